"""scripts/study-sessions.sh: sessions over two spaces in five orders, answered by who does not know the arm. Those that
were recorded, replayed to the figures that documents state."""

import gzip
import json
import re
from functools import partial

import pytest
import session_scripts
from compiled import ROOT, program
from session_scripts import WAITS, first_changes

NOTE = (ROOT / "docs/notes/2026-11-29-sessions.md").read_text()
RECORDINGS = "bench/results/2026-11-29-study-sessions"
PROPOSALS = "proposals+tree"
SPACES = {"llama-3.2-1b-qkv": "rms_norm+linear+linear+linear", "qwen3-1.7b-last-o": "linear+add"}

run = partial(session_scripts.run, "study-sessions.sh")
sessions = partial(session_scripts.done, "study-sessions.sh")


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sessions")
    sessions("tables", folder)
    return folder


def key(out) -> dict:
    rows = [line.split() for line in (out / "sessions.txt").read_text().splitlines()]
    return {number: (arm, space, order) for number, arm, space, order in rows}


def test_five_orders_of_two_spaces(out):
    signatures = set()
    for space, ops in SPACES.items():
        orders = []
        for order in range(1, 6):
            text = (out / f"tables/{space}-order-{order}.jsonl").read_text()
            lines = [json.loads(line) for line in text.splitlines()]
            (region,) = [line for line in lines if "signature" in line]
            assert region["description"] == f"{ops}, unfitted constants"
            assert region["signature"].endswith(f"; unfitted constants, order {order}")
            signatures.add(region["signature"])
            orders.append([line["plan"] for line in lines if "plan" in line])
        assert len({tuple(order) for order in orders}) == 5
        assert len({frozenset(order) for order in orders}) == 1
    assert len(signatures) == 10
    assert len(set(key(out).values())) == 40


@pytest.mark.parametrize("arm", ["none", "other"])
def test_a_session_is_played_to_its_end(out, arm):
    number = next(number for number, of in key(out).items() if of[0] == arm)
    folder = out / "play" / number
    asked = []
    while (ran := run("play", out, number)).returncode == WAITS:
        asked.append(f"question-{len(asked) + 1:02}.txt")
        assert asked[-1] in ran.stdout
        assert sorted(file.name for file in folder.glob("question-*")) == asked  # names do not say the arm
        answer = folder / asked[-1].replace("question", "answer")
        assert run("play", out, number).returncode == WAITS
        answer.write_text(first_changes((folder / asked[-1]).read_text()))
    assert re.fullmatch(r"finished: 64 attempts, \d+ calls\n", ran.stdout), ran.stdout + ran.stderr
    assert sessions("play", out, number) == ran.stdout  # nothing is recorded twice
    (recorded,) = map(json.loads, (out / f"recorded/{number}.jsonl").read_text().splitlines())
    assert recorded["arm"] == "proposals+tree (" + {"none": "no", "other": "another program's"}[arm] + " feedback)"
    assert len(recorded["calls"]) == len(asked) == len((out / f"replies/{number}.jsonl").read_text().splitlines())


def test_tables_of_a_space_are_of_one_kind(out):
    sessions("chance", out)
    sessions("replay", out)
    report = json.loads((out / "report/report.json").read_text())
    assert [case["kind"] for case in report["cases"]] == [0] * 5 + [1] * 5
    (arm,) = [arm for arm in report["groups"][0]["arms"] if arm["arm"].endswith("(by chance)")]
    assert arm["searches"] == 50


def recorded(name) -> list[dict]:
    return [json.loads(line) for line in gzip.decompress((ROOT / f"{RECORDINGS}-{name}.jsonl.gz").read_bytes()).splitlines()]


def replayed(tables, folder, searches) -> list[dict]:
    """The regions' part of each report: of both spaces, and of each alone."""
    (folder / "recorded").mkdir(parents=True)
    (folder / "tables").symlink_to(tables)
    (folder / "recorded/all.jsonl").write_text("".join(json.dumps(search) + "\n" for search in searches))
    sessions("replay", folder)
    names = ["report", *(f"report-{space}" for space in SPACES)]
    return [json.loads((folder / name / "report.json").read_text())["groups"][0] for name in names]


def arms(report) -> dict:
    return {arm["arm"]: arm for arm in report["arms"]}


def against(report) -> dict:
    return {pair["against"]: pair for pair in report["comparisons"] if pair["arm"] == PROPOSALS}


def attempts(arm) -> str:
    (to,) = [to for to in arm["to_within"] if to["within"] == 0.05]
    return f"{to['attempts']:.1f} ({100 * to['reached']:.0f} %)"


def interval(values, scale=1) -> str:
    mean, low, high = (scale * value for value in values)
    return f"{mean:.1f} [{low:.1f}, {high:.1f}]"


def rows(text, heading) -> list[list[str]]:
    """The rows of the table under this row of titles."""
    table = text.split(f"\n| {heading} |\n")[1].split("\n\n")[0]
    return [line.strip("| ").split(" | ") for line in table.splitlines()[1:]]


@pytest.fixture(scope="module")
def reports(out, tmp_path_factory):
    return replayed(out / "tables", tmp_path_factory.mktemp("recorded"), recorded("proposed"))


def test_recordings_give_the_tables_of_the_note(reports):
    both = reports[0]
    for arm, count, *stated in rows(NOTE, "arm | searches | both spaces | q, k and v | last token's o"):
        assert arms(both)[arm]["searches"] == int(count)
        assert [attempts(arms(report)[arm]) for report in reports] == stated
    for arm, *stated in rows(NOTE, "against | both spaces | q, k and v | last token's o"):
        assert [interval(against(report)[arm]["attempts_to_5_percent"]) for report in reports] == stated
    for _, *stated in rows(NOTE, "hypothesis: `proposals+tree` needs fewer than | p | corrected | answer"):
        assert stated == ["1.0", "1.0", "not told apart"]
    assert [(test["p"], test["corrected_p"]) for test in both["hypotheses"]] == [(1, 1)] * 3
    for arm, *stated in rows(NOTE, "arm | q, k and v: 1 | 2 | 3 | 4 | 5 | o: 1 | 2 | 3 | 4 | 5"):
        orders = [f"{case['attempts_to_5_percent']:.1f}".removesuffix(".0") for case in arms(both)[arm]["by_case"]]
        assert orders == stated
    for arm, *stated in rows(NOTE, "arm | 8 | 16 | 36 | 64"):
        assert [f"{arms(both)[arm]['share'][after - 1][0]:.3f}" for after in (8, 16, 36, 64)] == stated
    for arm, *stated in rows(NOTE, "of | 8 | 16 | 36 | 64"):
        assert [interval(against(both)[arm]["difference"][after - 1], 100) for after in (8, 16, 36, 64)] == stated
    for arm, *stated in rows(NOTE, "arm | calls | tokens of prompts | of replies"):
        costs = arms(both)[arm]["costs"]
        assert [f"{costs['calls']:.1f}", f"{costs['prompt_tokens']:.0f}", f"{costs['reply_tokens']:.0f}"] == stated


def test_recordings_give_what_users_read_first(reports):
    fewest, proposed, alone = (attempts(arms(reports[0])[arm]).split()[0] for arm in ("surrogate", PROPOSALS, "tree"))
    both, qkv, last_o = (interval(against(report)["tree"]["attempts_to_5_percent"]) for report in reports)
    stated = {"search": (fewest, proposed, alone, both, qkv, last_o), "advice": (proposed, alone, both)}
    for page, figures in stated.items():
        text = (ROOT / f"docs/manual/{page}.md").read_text()
        assert [figure for figure in figures if figure not in text] == [], page


def test_excluded_sessions_would_change_little(out, tmp_path):
    searches = recorded("proposed")
    searches[2], searches[4] = recorded("excluded")  # 03 and 05
    pairs = against(replayed(out / "tables", tmp_path, searches)[0])
    assert f"against `tree` is {interval(pairs['tree']['attempts_to_5_percent'])}" in NOTE
    none = pairs[f"{PROPOSALS} (no feedback)"]
    assert f"against no feedback is {interval(none['attempts_to_5_percent'])}" in NOTE


def test_recordings_are_those_of_the_key(out):
    searches, replies = recorded("proposed"), recorded("replies")
    names = {"true": "", "permuted": " (permuted feedback)", "none": " (no feedback)", "other": " (another program's feedback)"}
    asked = taken = 0
    for search, (number, (arm, space, order)) in zip(searches, key(out).items(), strict=False):
        assert search["arm"] == PROPOSALS + names[arm]
        assert search["signature"] in (out / f"tables/{space}-order-{order}.jsonl").read_text()
        of_session = [reply["prompt_hash"] for reply in replies if reply["advisor"] == f"ask:asked/{number}"]
        assert [call["prompt_hash"] for call in search["calls"]] == of_session
        for call in search["calls"]:
            proposals = [item for item in call["audit"] if item["item"].startswith("proposals")]
            asked, taken = asked + len(proposals), taken + sum(item["accepted"] for item in proposals)
            assert any(item["accepted"] for item in proposals)
    assert {search["arm"] for search in searches[40:]} == {f"{PROPOSALS} (by chance)"} and len(searches) == 90
    assert f"answered {len(replies)} questions" in NOTE
    assert f"its {asked:,} proposals {taken:,} were taken" in NOTE


def test_todays_questions_are_those_that_were_answered(out, tmp_path):
    """Each session comes out again from its replies, which are looked up by the hash of a question."""
    searches, replies = recorded("proposed"), recorded("replies")
    first, second = SPACES
    for search, (number, (arm, space, order)) in zip(searches, key(out).items(), strict=False):
        given = [reply for reply in replies if reply["advisor"] == f"ask:asked/{number}"]
        (tmp_path / "replies.jsonl").write_text("".join(json.dumps(reply) + "\n" for reply in given))
        other = ["--other", out / f"tables/{second if space == first else first}-order-{order}.jsonl"]
        program("study", "propose", out / f"tables/{space}-order-{order}.jsonl", "--sessions", 1, "--seed", order,
                "--advisor", f"replay:{tmp_path}/replies.jsonl", "--feedback", arm, *(other if arm == "other" else []),
                "-q", "-o", tmp_path / f"{number}.jsonl")  # fmt: skip
        again = json.loads((tmp_path / f"{number}.jsonl").read_text())
        for call in (*again["calls"], *search["calls"]):
            del call["seconds"]
        assert again == search, number
