"""scripts/study-failures.sh: sessions over two spaces with planted failures, with reasons and without. Those that were
recorded, counted to the figures that documents state."""

import gzip
import hashlib
import json
import math
import re
import statistics
from collections import Counter
from functools import partial

import pytest
import session_scripts
from compiled import ROOT, module_of, program
from session_scripts import WAITS, first_changes

PROTOCOL = (ROOT / "docs/study/protocol.md").read_text().split("## Sessions with planted failures")[1]
NOTE = (ROOT / "docs/notes/2026-11-29-failures-by-questions.md").read_text()
FIRST_NOTE = (ROOT / "docs/notes/2026-11-29-planted-failures.md").read_text()  # of an earlier run
RECORDINGS = "bench/results/2026-11-29-study-failures-by-questions"
SPACES = {"llama-3.2-1b-qkv": "rms_norm+linear+linear+linear", "qwen3-1.7b-gate-up": "rms_norm+linear+silu+linear+mul"}
ATTEMPTS = 24
REQUESTS = [{"site": "", "field": "threads", "value": value, "why": "half a warp less"} for value in ("112", "256")]

run = partial(session_scripts.run, "study-failures.sh")
done = partial(session_scripts.done, "study-failures.sh")


def told_in(question) -> list[tuple[str, str, str]]:
    """Of each failure that the program's question tells: the outcome, the reason, and the fields of the plan."""
    told, outcome, why = [], "", ""
    for line in question.partition("\n## Failures, the last first\n")[2].partition("\n## ")[0].splitlines()[3:]:
        if line.startswith("    "):
            told.append((outcome, why, line.strip()))
        elif line:
            outcome, why = line.strip().split(": ", 1)
    return [(outcome, json.loads(why), plan) for outcome, why, plan in told]


def finish(out, number) -> list[str]:
    """The questions of a session that is played to its end."""
    folder, questions = out / "play" / number, []
    while (ran := run("play", out, number)).returncode == WAITS:
        name = f"question-{len(questions) + 1:02}.txt"
        assert name in ran.stdout
        questions.append((folder / name).read_text())
        reply = {**json.loads(first_changes(questions[-1])), "requests": REQUESTS}
        (folder / name.replace("question", "answer")).write_text(json.dumps(reply))
    assert re.fullmatch(rf"finished: {ATTEMPTS} attempts, {len(questions)} calls\n", ran.stdout), ran.stdout + ran.stderr
    assert done("play", out, number) == ran.stdout  # nothing is recorded twice
    kept = map(json.loads, (out / f"replies/{number}.jsonl").read_text().splitlines())
    assert [line["prompt"] for line in kept] == questions  # the program's question is the question
    return questions


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("failures")
    done("tables", folder)
    return folder


@pytest.fixture(scope="module")
def free(out):
    done("chance", out)
    return out / "free"


def key(out) -> dict:
    rows = [line.split() for line in (out / "sessions.txt").read_text().splitlines()]
    return {tuple(of): number for number, *of in rows}


def lines_of(out, arm, space, order) -> list[dict]:
    return [json.loads(line) for line in (out / f"tables/{arm}-{space}-order-{order}.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("space", SPACES)
def test_tables_are_planted_and_say_so(out, space):
    for order in range(1, 6):
        reasons, withheld = (lines_of(out, arm, space, order) for arm in ("reasons", "withheld"))
        assert all("failures were planted" in lines[0]["planted"] for lines in (reasons, withheld))
        assert reasons[1] == withheld[1] and reasons[1]["description"] == f"{SPACES[space]}, unfitted constants"
        failed = 0
        for told, not_told in zip(reasons, withheld, strict=True):
            if told.get("outcome") in ("uncompilable", "wrong"):
                failed += 1
                assert len(told["why"]) > 40 and "samples_us" not in told
                assert not_told == {**told, "outcome": "failed", "why": "failed"}
            elif "plan" in told:
                assert told == not_told and told["outcome"] == "measured"
        works = len([line for line in reasons if "plan" in line]) - failed
        assert f"{works} plans of the first space work" in PROTOCOL or f"Of the second {works} work" in PROTOCOL
        rows = PROTOCOL.split("| gate and up")[list(SPACES).index(space)]
        assert failed == sum(map(int, re.findall(r"\| (\d+)(?: of 400)? \| (?:wrong|uncompilable)", rows)))
    assert len(set(key(out).values())) == len(key(out)) == 20


def test_sessions_are_told_reasons_or_none(out):
    space = "qwen3-1.7b-gate-up"
    told, not_told = (finish(out, key(out)[arm, space, "1"]) for arm in ("reasons", "withheld"))
    for question in (*told, *not_told):
        assert "planted" not in question and "not listed" not in question
        assert "With `requests` you may ask people" in question
    assert "0xc000 max" in told[-1] and "Unknown modifier" in told[-1]
    for question, other in zip(not_told, told, strict=True):
        assert {(outcome, why) for outcome, why, _ in told_in(question)} == {("failed", "failed")}
        assert sorted(plan for *_, plan in told_in(question)) == sorted(plan for *_, plan in told_in(other))
        assert not re.search("uncompilable|wrong|ptxas|numerics", question)
    # Who proposes alike is led alike: the search reads no reason. What is told is what was tried until then.
    recorded = [out / f"recorded/{key(out)[arm, space, '1']}.jsonl" for arm in ("reasons", "withheld")]
    ours, others = (json.loads(file.read_text()) for file in recorded)
    assert ours["plans"] == others["plans"] and ours["arm"] == "proposals+tree"
    assert ours["requests"] is True
    lines = {line["plan"]: line for line in lines_of(out, "reasons", space, 1) if "plan" in line}
    for question in told:
        left = int(re.search(rf"(\d+) of {ATTEMPTS} attempts are left", question)[1])
        tried = [lines[plan] for plan in ours["plans"][: ATTEMPTS - left]]
        failed = [(line["outcome"], line["why"], " ".join(
            [line["family"], *(f"{name}={value}" for name, value in line["fields"].items())]
        )) for line in tried if "why" in line]  # fmt: skip
        assert told_in(question)[0] == failed[-1] and sorted(told_in(question)) == sorted(failed)


def test_all_sessions_are_prepared(tmp_path):
    waiting = done("prepare", tmp_path)
    for number in key(tmp_path).values():
        assert f"write {tmp_path}/play/{number}/answer-01.txt" in waiting
        assert [file.name for file in (tmp_path / "play" / number).iterdir()] == ["question-01.txt"]
    assert len((tmp_path / "free/chance.jsonl").read_text().splitlines()) == 50


@pytest.mark.usefixtures("free")
def test_counts_are_those_of_the_replay_and_of_the_protocol(out):
    done("replay", out)
    counted = json.loads((out / "count.json").read_text())
    arms = counted["arms"]
    for arm in ("reasons", "withheld"):
        report = json.loads((out / f"report-{arm}/report.json").read_text())
        assert [case["kind"] for case in report["cases"]] == [0] * 5 + [1] * 5
        replayed = {one["arm"]: one for one in report["groups"][0]["arms"]}
        assert replayed["proposals+tree (by chance)"]["searches"] == 50
        for name, ours in (("tree", "tree"), ("surrogate", "surrogate"), ("proposals+tree (by chance)", "chance")):
            (to,) = [to for to in replayed[name]["to_within"] if to["within"] == 0.1]
            mean = sum(of["attempts"] for of in arms[ours].values()) / 10
            assert to["attempts"] == pytest.approx(mean, abs=1e-6), name
    text = " ".join(PROTOCOL.split())
    for space in SPACES:
        for strategy in ("tree", "surrogate"):
            needed = [f"{arms[strategy][f'{space}-order-{order}']['attempts']:.0f}" for order in range(1, 6)]
            assert f"{', '.join(needed[:4])} and {needed[4]} with `{strategy}`" in text
            assert sum(map(int, needed)) >= 50
    # Of the two sessions that were played.
    pair = counted["differences"]["withheld"]["attempts"]
    assert pair["both"] == pair["qwen3-1.7b-gate-up"] == [0, 0, 0]
    session = arms["reasons"]["qwen3-1.7b-gate-up-order-1"]
    assert 0 < session["failed_before"] <= session["failed"] <= ATTEMPTS
    assert 0 <= session["taken_failed"] <= session["taken"] <= ATTEMPTS
    calls = len(json.loads((out / f"recorded/{key(out)['reasons', 'qwen3-1.7b-gate-up', '1']}.jsonl").read_text())["calls"])
    made = {"made": 2 * calls, "known": calls, "values": {"threads=112": calls, "threads=256": calls}}
    assert counted["requests"] == {"reasons": made, "withheld": made}


def kept(name) -> list[str]:
    return gzip.decompress((ROOT / f"{RECORDINGS}-{name}.jsonl.gz").read_bytes()).decode().splitlines(keepends=True)


@pytest.fixture(scope="module")
def recorded(out, free, tmp_path_factory):
    """A folder with the sessions that were recorded, counted and replayed."""
    folder = tmp_path_factory.mktemp("recorded")
    for name in ("tables", "sessions.txt", "free"):
        (folder / name).symlink_to(out / name)
    (folder / "recorded").mkdir()
    searches = kept("proposed")
    for number, line in enumerate(searches[:20], 1):
        (folder / f"recorded/{number:02}.jsonl").write_text(line)
    assert "".join(searches[20:]) == (free / "chance.jsonl").read_text()
    done("replay", folder)
    return folder


@pytest.fixture(scope="module")
def counts(recorded):
    return json.loads((recorded / "count.json").read_text())


@pytest.fixture(scope="module")
def script():
    return module_of("scripts/study_failures.py")


def rows(heading) -> list[list[str]]:
    """The rows of the note's table under this row of titles."""
    table = NOTE.split(f"\n| {heading} |\n")[1].split("\n\n")[0]
    return [line.strip("| ").split(" | ") for line in table.splitlines()[1:]]


def short(number) -> str:
    return f"{number:.1f}".replace("-0.0", "0.0")


def interval(values, scale=1) -> str:
    mean, low, high = (short(scale * value) for value in values)
    return f"{mean} [{low}, {high}]"


def of_spaces(arm, what) -> list[float]:
    """Of both spaces, and of each alone."""
    each = [statistics.mean(of[what] for name, of in arm.items() if name.startswith(space)) for space in SPACES]
    return [statistics.mean(each), *each]


def intervals(of) -> list[str]:
    return [interval(of[space]) for space in ("both", *SPACES)]


def by_lot(near, plans=400) -> float:
    """Attempts to the first of so many good plans in an order of chance; ATTEMPTS + 1 where none is among them."""
    return sum(math.comb(plans - near, tried) / math.comb(plans, tried) for tried in range(ATTEMPTS + 1))


def test_recordings_give_the_tables_of_the_note(recorded, counts):
    reports = {}
    for arm in ("reasons", "withheld"):
        report = json.loads((recorded / f"report-{arm}/report.json").read_text())
        reports[arm] = {one["arm"]: one for one in report["groups"][0]["arms"]}
    near = list(map(int, re.search(r"and (\d+) are within 10 % .* work, and (\d+) are", PROTOCOL).groups()))
    lots = [by_lot(good) for good in near]
    names = {"reasons": "proposals+tree", "withheld": "proposals+tree", "chance": "proposals+tree (by chance)"}
    for arm, searches, *stated in rows("arm | searches | both spaces | get there | q, k and v | gate and up"):
        replayed = reports["withheld" if arm == "withheld" else "reasons"][names.get(arm, arm)]
        (to,) = [to for to in replayed["to_within"] if to["within"] == 0.1]
        means = [statistics.mean(lots), *lots] if arm == "random (exact)" else of_spaces(counts["arms"][arm], "attempts")
        assert to["attempts"] == pytest.approx(means[0], abs=1e-6)
        both, *each = map(short, means)
        assert [both, f"{100 * to['reached']:.0f} %", *each] == stated
        assert searches == ("" if arm == "random (exact)" else str(replayed["searches"]))
    for against, *stated in rows("attempts, with reasons less | both spaces | q, k and v | gate and up"):
        assert intervals(counts["differences"][against]["attempts"]) == stated
    for arm, *stated in rows("arm | q, k and v: 1 | 2 | 3 | 4 | 5 | gate and up: 1 | 2 | 3 | 4 | 5"):
        assert [short(of["attempts"]).removesuffix(".0") for _, of in sorted(counts["arms"][arm].items())] == stated
    each = "both spaces | q, k and v | gate and up"
    for arm, *stated in rows(f"failed attempts | of all 24: {each} | until the first good plan: {each}"):
        means = of_spaces(counts["arms"][arm], "failed") + of_spaces(counts["arms"][arm], "failed_before")
        assert list(map(short, means)) == stated
    for against, *stated in rows("failed attempts, with reasons less | both spaces | q, k and v | gate and up"):
        against, what = against.split(", ")
        assert intervals(counts["differences"][against]["failed" if what == "of all 24" else "failed_before"]) == stated


def test_recordings_give_the_shares_of_proposals_that_fail(counts, script):
    arms = {arm: counts["arms"][arm] for arm in ("reasons", "withheld")}
    for arm, *stated in rows("of proposals | both spaces | q, k and v | gate and up"):
        parts = []
        for space in ("", *SPACES):
            sessions = [of for name, of in arms[arm].items() if name.startswith(space)]
            taken, failed = (sum(of[what] for of in sessions) for what in ("taken", "taken_failed"))
            parts.append(f"{failed} of {taken} ({100 * failed / taken:.0f} %)")
        assert parts == stated
    share = {arm: {name: of["taken_failed"] / of["taken"] for name, of in tables.items()} for arm, tables in arms.items()}
    less = {name: of - share["withheld"][name] for name, of in share["reasons"].items()}
    pairs = {space: [of for name, of in less.items() if name.startswith(space)] for space in SPACES}
    both, qkv, gate = (interval(script.difference(of), 100) for of in (pairs, *({space: pairs[space]} for space in SPACES)))
    assert f"{both} points over both spaces, {qkv} for q, k and v, {gate} for gate and up" in " ".join(NOTE.split())


def rule(why) -> str:
    """What a reason says, but for its numbers."""
    return re.sub(r"0x[0-9a-f]+|-?[\d.]+", "", why)


def sessions(out) -> list[tuple]:
    """Of each that was recorded: the arm, the space, the order, the search, and what was asked and replied."""
    replies = list(map(json.loads, kept("replies")))
    return [(*of, json.loads(line), [reply for reply in replies if reply["advisor"] == f"ask:asked/{number}"])
            for line, (of, number) in zip(kept("proposed"), key(out).items(), strict=False)]  # fmt: skip


def test_recordings_are_those_of_the_key(out):
    known, failing, calls, asked, taken, moved = Counter(), Counter(), Counter(), 0, 0, 0
    sizes = {"prompt": Counter(), "reply": Counter()}
    for arm, space, order, search, replies in sessions(out):
        lines = {line["plan"]: line for line in lines_of(out, "reasons", space, order) if "plan" in line}
        assert search["signature"] == lines_of(out, arm, space, order)[1]["signature"]
        assert [call["prompt_hash"] for call in search["calls"]] == [reply["prompt_hash"] for reply in replies]
        calls[arm] += len(replies)
        for call, reply in zip(search["calls"], replies, strict=True):
            question = reply["prompt"]
            assert hashlib.sha256(question.encode()).hexdigest() == reply["prompt_hash"]
            assert all(why != "failed" for _, why, _ in told_in(question)) == (arm == "reasons")
            for part, size in sizes.items():
                size[arm] += len(reply[part].encode())
            left = int(re.search(rf"(\d+) of {ATTEMPTS} attempts are left", question)[1])
            tried = {rule(lines[plan]["why"]) for plan in search["plans"][: ATTEMPTS - left] if "why" in lines[plan]}
            proposals = [item for item in call["audit"] if item["item"].startswith("proposals")]
            accepted = [item for item in proposals if item["accepted"]]
            assert accepted
            asked, taken = asked + len(proposals), taken + len(accepted)
            schedule = dict(re.findall(r"(\w+)=(\S+)", question.split("## The schedule to change\n\n")[1].split("\n")[0]))
            for item in accepted:
                plan = lines[item["reason"]]
                if "why" not in plan:
                    continue
                failing[arm] += 1
                known[arm] += rule(plan["why"]) in tried
                named = re.search(r'"field":"(\w+)"', item["said"])[1]
                changed = [name for name, value in plan["fields"].items() if str(value) != schedule[name] and name != named]
                moved += arm == "reasons" and len(changed) > 0
    note = " ".join(NOTE.split())
    assert len(kept("proposed")) == 70 and f"answered {len(kept('replies'))} questions" in note
    assert f"Of its {asked} proposals {taken} were taken" in note
    assert f"With reasons {known['reasons']} of the {failing['reasons']} proposals that failed" in note
    assert f"With reasons withheld they were {known['withheld']} of {failing['withheld']}" in note
    assert f"With reasons {moved} of the {failing['reasons']} proposals that failed differ" in note
    for arm, *stated in rows("arm | calls | tokens of questions | of replies"):
        tokens = [f"{size[arm] / 4 / 10:.0f}" for size in sizes.values()]
        assert [short(calls[arm] / 10), *tokens] == stated


def test_todays_questions_are_those_that_were_answered(out, tmp_path):
    """Each session comes out again from its replies, which are looked up by the hash of a question."""
    for arm, space, order, search, replies in sessions(out):
        (tmp_path / "replies.jsonl").write_text("".join(json.dumps(reply) + "\n" for reply in replies))
        program("study", "propose", out / f"tables/{arm}-{space}-order-{order}.jsonl", "--sessions", 1, "--seed", order,
                "--attempts", ATTEMPTS, "--calls", 6, "--proposals", 4, "--requests", "--advisor",
                f"replay:{tmp_path}/replies.jsonl", "-q", "-o", tmp_path / f"{arm}-{space}-{order}.jsonl")  # fmt: skip
        again = json.loads((tmp_path / f"{arm}-{space}-{order}.jsonl").read_text())
        for call in (*again["calls"], *search["calls"]):
            del call["seconds"]
        assert again == search, (arm, space, order)


def test_replies_name_the_causes_that_the_note_counts(out):
    first, later = Counter(), Counter()  # sessions, by what their first and their later notes name
    words = {"48 KiB": r"\b48 ?Ki?B|\b49152|\b0xc000", "rows=2": "rows=2|rows other than 2", "early=1": "early=1", "streaming": "streaming",
             "no_allocate": "no_allocate"}  # fmt: skip
    for arm, space, _, _, replies in sessions(out):
        notes = [json.loads(reply["reply"])["note"] for reply in replies]
        for word, pattern in words.items():
            first[arm, space, word] += bool(re.search(pattern, notes[0], re.I))
            later[arm, space, word] += any(re.search(pattern, note, re.I) for note in notes[1:])
    qkv, gate = SPACES
    note = " ".join(NOTE.split())
    assert f"{first['reasons', qkv, '48 KiB'] + first['reasons', gate, '48 KiB']} of the ten sessions with reasons name the 48 KiB" in note
    assert f"{later['reasons', qkv, 'rows=2']} of five with reasons and {later['withheld', qkv, 'rows=2']} of five without" in note
    assert f"{later['reasons', gate, 'early=1']} of the five sessions with reasons put that down to `early=1`" in note
    assert f"{later['reasons', gate, 'streaming']} name `cache=streaming` later" in note
    assert f"{later['withheld', gate, 'no_allocate']} of the five without reasons named `cache=no_allocate`" in note


def test_requests_are_those_of_the_note(out, counts):
    made, asking, known = Counter(), {}, 0
    for arm, space, order, search, _ in sessions(out):
        for call in search["calls"]:
            for request in call["requests"]:
                made[arm, request["field"]] += 1
                asking.setdefault((arm, request["field"]), set()).add((space, order))
                asking.setdefault(arm, set()).add((space, order))
                known += request["known"]
    totals = {arm: sum(of for (whose, _), of in made.items() if whose == arm) for arm in ("reasons", "withheld")}
    assert {arm: counts["requests"][arm]["made"] for arm in totals} == totals
    listed = rows("field that is asked for | with reasons: requests | sessions | withheld: requests | sessions")
    for field, *stated in listed:
        pairs = [(made[arm, field.strip("`")], len(asking.get((arm, field.strip("`")), ()))) for arm in totals]
        assert [str(number) for pair in pairs for number in pair] == stated, field
    assert {field.strip("`") for field, *_ in listed} == {field for _, field in made}
    note = " ".join(NOTE.split())
    assert f"{totals['reasons']} requests in {len(asking['reasons'])} sessions with reasons" in note
    assert f"{totals['withheld']} in {len(asking['withheld'])} with reasons withheld" in note
    assert f"{known} of them were known" in note


def test_both_runs_are_stated_beside_each_other(counts):
    for against, both, of_first in rows("attempts, with reasons less | this run | the first run"):
        assert both == interval(counts["differences"][against]["attempts"]["both"])
        (first,) = re.findall(rf"^\| {against} \| (\S+ \[.*?\]) \| .* \|$", FIRST_NOTE.split("## Failures")[0], re.M)
        assert of_first == first


def test_recordings_give_what_users_read_first(counts):
    means = [of_spaces(counts["arms"][arm], "attempts")[0] for arm in ("reasons", "withheld", "chance")]
    reasons, withheld, chance = map(short, means)
    told = interval(counts["differences"]["withheld"]["attempts"]["both"])
    alone = interval(counts["differences"]["tree"]["attempts"]["both"])
    stated = {"search": (told,), "advice": (reasons, withheld, chance, told, alone)}
    for page, figures in stated.items():
        text = (ROOT / f"docs/manual/{page}.md").read_text()
        assert [figure for figure in figures if figure not in text] == [], page
