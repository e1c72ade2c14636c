"""`study propose`: an advisor inside a search over a recorded table, and the falsifiers of it."""

import json
import re
from pathlib import Path

import pytest
from compiled import program

BAD_INPUT, AWAITED, WRONG_USAGE = 3, 5, 2
THREADS, SPLITS = (64, 128, 256, 512), (1, 2, 4, 8)


def microseconds(threads, split) -> float:
    """The best is 512/4; the prediction says nothing."""
    return 100 + 20 * (3 - THREADS.index(threads)) + 7 * abs(SPLITS.index(split) - 2)


def write_table(file: Path, signature: str, microseconds, field="split") -> Path:
    lines = [{"study": 1, "device": "A device", "toolkit": "T", "model": signature, "date": "2026-01-01"}]
    lines.append({"region": 0, "signature": signature, "description": "a product", "uses": 1})
    for threads in THREADS:
        for split in SPLITS:
            fields = {"threads": threads, field: split}
            lines.append({"region": 0, "plan": f"gemv/{threads}/{split}", "family": "gemv", "fields": fields,
                          "predicted_us": 50 + threads / 100, "outcome": "measured",
                          "samples_us": [microseconds(threads, split)] * 3})  # fmt: skip
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


@pytest.fixture
def table(tmp_path) -> Path:
    return write_table(tmp_path / "table.jsonl", "s", microseconds)


def propose(table, *options, sessions=2, expect=0):
    output = table.with_name("proposed.jsonl")
    author = ("--model", "somebody", "--date", "2026-01-31") if "ask:" in str(options) else ()
    return program("study", "propose", table, "-o", output, "--sessions", sessions, "--attempts", 8, "--proposals", 2,
                   *author, *options, expect=expect)  # fmt: skip


def sessions(table) -> list:
    return [json.loads(line) for line in table.with_name("proposed.jsonl").read_text().splitlines()]


def answer_all(folder, reply) -> int:
    """Answers the questions that have no reply yet; the second session does so in vain."""
    answered = 0
    for prompt in Path(folder).glob("*.prompt.txt"):
        file = prompt.with_name(prompt.name.replace(".prompt.", ".reply."))
        if not file.exists():
            file.write_text(reply(prompt.read_text()) if "-session-1-" in prompt.name else "I cannot say.")
            answered += 1
    return answered


def climb(prompt) -> str:
    """Who doubles threads, and tries another split, as far as the prompt says that it is legal."""
    legal = {name: values.split() for name, values in re.findall(r"^  (\w+): ([\d ]+)$", prompt, re.M)}
    wanted = [("threads", max(legal.get("threads", ["0"]), key=int))]
    wanted += [("split", value) for value in legal.get("split", [])]
    proposals = [{"site": "", "field": field, "value": value, "why": "more"} for field, value in wanted]
    return "Let me see.\n" + json.dumps({"note": "few threads", "proposals": proposals[:2]})


def finish(table, folder, *options) -> int:
    """Round by round: each run goes on to the next question. Returns how many were asked."""
    asked = 0
    for _ in range(40):
        result = propose(table, "--advisor", f"ask:{folder}", *options, expect=None)
        if result.returncode == 0:
            return asked
        assert result.returncode == AWAITED and "replies are missing" in result.stderr
        assert answer_all(folder, climb) > 0
        asked = len(list(Path(folder).glob("*.prompt.txt")))
    raise AssertionError("the rounds never end")


def test_a_session_through_files_resumes_round_by_round(table, tmp_path):
    asked = finish(table, tmp_path / "asked")
    ours = sessions(table)
    assert len(ours) == 2 and {one["arm"] for one in ours} == {"proposals+tree"}
    assert {(call["model"], call["date"]) for one in ours for call in one["calls"]} == {("somebody", "2026-01-31")}
    assert sum(len(one["calls"]) for one in ours) == asked
    for one in ours:
        assert len(one["plans"]) == len(set(one["plans"])) == 8
    assert "gemv/512/4" in ours[0]["plans"] and ours[0]["plans"] != ours[1]["plans"]
    first, in_vain = (one["calls"][0] for one in ours)
    assert first["note"] == "few threads" and first["audit"][0]["accepted"]
    assert not in_vain["audit"][0]["accepted"]
    # Without a question left, the same searches are done again, to the same plans.
    assert finish(table, tmp_path / "asked") == 0
    assert [one["plans"] for one in sessions(table)[2:]] == [one["plans"] for one in ours]


def test_all_sessions_ask_at_once(table, tmp_path):
    other = write_table(tmp_path / "other.jsonl", "o", lambda threads, split: 1000 + threads)
    asked = tmp_path / "asked"

    def ask(*tables, expect=AWAITED):
        return propose(*tables, "--advisor", f"ask:{asked}", sessions=3, expect=expect).stderr

    said = ask(table, other)
    assert "6 of 6 sessions wait" in said
    first = sorted(file.name for file in asked.glob("*.prompt.txt"))
    assert [name.rsplit("-", 1)[0] for name in first] == [
        f"{name}-session-{i}-round-01-after-1" for name in ("other", "table") for i in (1, 2, 3)
    ]
    # One of them is answered: that session goes on, the others wait, and nothing is asked again.
    (asked / first[4].replace(".prompt.", ".reply.")).write_text(climb((asked / first[4]).read_text()))
    assert "6 of 6 sessions wait" in ask(table, other)
    assert "table-session-2-round-02-after-" in " ".join({f.name for f in asked.glob("*.prompt.txt")} - set(first))
    assert len(list(asked.glob("*.prompt.txt"))) == 7 and not table.with_name("proposed.jsonl").exists()
    same_name = tmp_path / "elsewhere"
    same_name.mkdir()
    same = write_table(same_name / "table.jsonl", "t", microseconds)
    assert "another has this name" in ask(table, same, expect=WRONG_USAGE)
    assert "give --model and --date" in program(
        "study", "propose", table, "-o", tmp_path / "p", "--advisor", f"ask:{asked}", expect=WRONG_USAGE
    ).stderr


def test_another_programs_history_is_told_instead_of_ones_own(table, tmp_path):
    """A table whose every outcome is past 1000 us: what an advisor of the first reads is of those alone."""
    other = write_table(tmp_path / "other.jsonl", "o", lambda threads, split: 1000 + threads + 3 * split)
    stranger = write_table(tmp_path / "stranger.jsonl", "x", microseconds, field="depth")
    folder = tmp_path / "asked"
    finish(table, folder, "--feedback", "other", "--other", stranger, "--other", other)
    assert {one["arm"] for one in sessions(table)} == {"proposals+tree (another program's feedback)"}
    legal_values = 0
    for prompt in folder.glob("*.prompt.txt"):
        text = prompt.read_text()
        attempts = int(re.search(r"-after-(\d+)-", prompt.name)[1])
        measured = {float(us) for us in re.findall(r"(?<!predicted )(?<![\d.])([\d.]+) us", text)}
        assert measured and measured <= {1000.0 + threads + 3 * split for threads in THREADS for split in SPLITS}
        assert f"{8 - attempts} of 8 attempts are left" in text
        legal_values += len(re.findall(r"^  (?:threads|split): [\d ]+$", text, re.M))
    assert legal_values > 0
    assert "gemv/512/4" in sessions(table)[0]["plans"]  # what is proposed is looked up in its own space
    both = propose(table, "--advisor", "ask:x", "--feedback", "other", expect=WRONG_USAGE).stderr
    assert "--feedback other and --other TABLE" in both
    none = propose(table, "--advisor", f"ask:{folder}", "--feedback", "other", "--other", table, expect=BAD_INPUT)
    assert "have no other space" in none.stderr


def test_replay_compares_proposals_with_their_falsifiers(table, tmp_path):
    finish(table, tmp_path / "asked")
    other = write_table(tmp_path / "another.jsonl", "o", microseconds)
    finish(table, tmp_path / "permuted", "--feedback", "permuted")
    finish(table, tmp_path / "none", "--feedback", "none")
    finish(table, tmp_path / "other", "--feedback", "other", "--other", other)
    propose(table, "--by-chance")
    arms = {one["arm"] for one in sessions(table)}
    assert arms == {"proposals+tree", "proposals+tree (permuted feedback)", "proposals+tree (no feedback)",
                    "proposals+tree (another program's feedback)", "proposals+tree (by chance)"}  # fmt: skip
    # What an advisor without feedback reads holds no measurement.
    for prompt in (tmp_path / "none").glob("*.prompt.txt"):
        assert re.findall(r"[\d.]+ us", prompt.read_text()) == re.findall(r"(?<=predicted )[\d.]+ us", prompt.read_text())
    report = tmp_path / "report"
    proposed = table.with_name("proposed.jsonl")
    replay = ("study", "replay", table, "-o", report, "--proposed", proposed, "--attempts", 8, "--repetitions", 4,
              "--resamples", 50)  # fmt: skip
    document = json.loads(program(*replay, "--json").stdout)
    (group,) = document["groups"]
    assert arms <= {arm["arm"] for arm in group["arms"]}
    pairs = {(one["arm"], one["against"]) for one in group["comparisons"]}
    assert {("proposals+tree", name) for name in arms | {"tree"} if name != "proposals+tree"} <= pairs
    # When all is answered, a last run records the replies, and these give the same searches.
    before = [one["plans"] for one in sessions(table) if one["arm"] == "proposals+tree"]
    record = tmp_path / "recorded.jsonl"
    for who in (f"ask:{tmp_path}/asked", f"replay:{record}"):
        proposed.unlink()
        propose(table, "--advisor", who, *(("--advisor-record", record) if who.startswith("ask") else ()))
        assert [one["plans"] for one in sessions(table)] == before


def crafted(signature, arm, before, calls=()) -> dict:
    """A search that finds the best point after so many others, none of which is near it."""
    slow = [f"gemv/{threads}/{split}" for threads in (64, 128) for split in SPLITS]
    return {"arm": arm, "signature": signature, "plans": [*slow[:before], "gemv/512/4"], "calls": list(calls)}


def test_the_report_says_what_asking_cost_and_when_it_pays(table, tmp_path):
    other = write_table(tmp_path / "other.jsonl", "o", microseconds)
    lines = other.read_text().splitlines()
    reference = {"region": 0, "reference": "gemv/64/1", "samples_us": [100.0], "attempt_seconds": 0.25}
    header = {**json.loads(lines[0]), "choices": 40, "choices_seconds": 60.0}
    other.write_text("\n".join([json.dumps(header), *lines[1:], json.dumps(reference)]) + "\n")
    counted = {"model": "m", "date": "2026-01-31", "input_tokens": 3000, "output_tokens": 200, "seconds": 8.0,
               "prompt_bytes": 1, "reply_bytes": 1}  # fmt: skip
    by_bytes = {"model": "m", "date": "2026-02-01", "input_tokens": 0, "output_tokens": 0, "seconds": 1e-4,
                "prompt_bytes": 4000, "reply_bytes": 400}  # fmt: skip
    arm = "proposals+tree"
    told = [crafted("s", arm, 1, [counted, counted]), crafted("o", arm, 2, [by_bytes])]
    for spoilt, before in (("permuted feedback", 5), ("no feedback", 6), ("by chance", 7)):
        calls = [] if spoilt == "by chance" else [counted]
        told += [crafted(signature, f"{arm} ({spoilt})", before, calls) for signature in ("s", "o")]
    proposed = tmp_path / "crafted.jsonl"
    proposed.write_text("".join(json.dumps(session) + "\n" for session in told))
    replay = ("study", "replay", table, other, "-o", tmp_path / "r", "--proposed", proposed, "--attempts", 8,
              "--repetitions", 4, "--resamples", 50, "--strategies", "random,tree")  # fmt: skip
    prices = ("--input-price", 3, "--output-price", 15, "--gpu-price", 2, "--priced", "Example, 2026-01-31")
    document = json.loads(program(*replay, *prices, "--json").stdout)
    (group,) = document["groups"]
    costs = {one["arm"]: one.get("costs") for one in group["arms"]}
    assert costs[f"{arm} (by chance)"] is None and costs["tree"] is None
    mean = costs[arm]
    assert (mean["calls"], mean["counted_calls"]) == (1.5, 1.0)
    assert (mean["prompt_tokens"], mean["reply_tokens"]) == ((6000 + 1000) / 2, (400 + 100) / 2)
    assert mean["seconds"] == 8.0
    assert mean["price"] == pytest.approx((3500 * 3 + 250 * 15) / 1e6)
    found = {one["against"]: one for one in group["comparisons"] if one["arm"] == arm}
    assert found[f"{arm} (by chance)"]["attempts_to_5_percent"][0] == pytest.approx(2.5 - 8)
    assert [one["against"] for one in group["hypotheses"]] == [
        ["tree"], [f"{arm} (permuted feedback)", f"{arm} (no feedback)"], [f"{arm} (by chance)"]
    ]  # fmt: skip
    # Two spaces: no p is less than a half, and three of them corrected are none at all.
    assert all(one["p"] >= 0.5 and one["corrected_p"] == 1 for one in group["hypotheses"])
    saved = -found["tree"]["attempts_to_5_percent"][0]
    assert saved > 0
    text = (tmp_path / "r" / "report.md").read_text()
    (row,) = (line for line in text.splitlines() if line.startswith(f"| {arm} | 1.5 |"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[2:5] == ["about 3500", "about 250", "8.0"]
    assert float(cells[6].split()[0]) == pytest.approx(saved, abs=0.06)
    assert float(cells[7].removesuffix(" s")) == pytest.approx(8.0 / saved, rel=0.01)
    assert float(cells[8].removesuffix(" s")) == pytest.approx(mean["price"] / saved / (2 / 3600), rel=0.01)
    assert "Example, 2026-01-31: 3 and 15" in text and "took 0.25 s to time" in text and "1.5 s for each" in text
    assert "7 calls were answered by m, 2026-01-31, 2026-02-01" in text
    unpriced = program(*replay).stdout
    assert unpriced and "No prices were given" in (tmp_path / "r" / "report.md").read_text()
    # What nobody can mean.
    assert "give all of" in program(*replay, "--input-price", 3, expect=WRONG_USAGE).stderr
    assert "give all of" in program(*replay, "--priced", "Example", expect=WRONG_USAGE).stderr
    counted["model"] = "another"
    proposed.write_text("".join(json.dumps(session) + "\n" for session in told))
    assert "of 2 models" in program(*replay, expect=WRONG_USAGE).stderr
    proposed.write_text(json.dumps({**told[0], "calls": ["none"]}) + "\n")
    assert "crafted.jsonl:1" in program(*replay, expect=BAD_INPUT).stderr


def test_requests_to_people_are_kept_and_reported(table, tmp_path):
    hostile = "x|y\n`</td>\x1b[31m" + "z" * 100_000
    asked = [{"site": "", "field": "threads", "value": 1024, "why": "more | of *them*"},
             {"site": "", "field": "split", "value": "8", "why": ""},
             {"site": hostile, "field": "depth", "value": hostile, "why": hostile}]  # fmt: skip

    def with_requests(prompt) -> str:
        assert "at most 4 values or fields that the compiler lacks" in prompt
        reply = json.loads(climb(prompt).split("\n", 1)[1])
        return json.dumps({**reply, "requests": asked})

    folder = tmp_path / "asked"
    for _ in range(40):
        if propose(table, "--advisor", f"ask:{folder}", "--requests", sessions=1, expect=None).returncode == 0:
            break
        answer_all(folder, with_requests)
    (ours,) = sessions(table)
    assert ours["requests"] is True and ours["calls"]
    for call in ours["calls"]:
        assert [(one["field"], one["value"], one["known"]) for one in call["requests"][:2]] == [
            ("threads", "1024", False), ("split", "8", True)
        ]  # fmt: skip
        assert all(len(text) < 250 and "\n" not in text for text in map(str, call["requests"][2].values()))
    assert set(ours["plans"]) <= {f"gemv/{threads}/{split}" for threads in THREADS for split in SPLITS}
    # The same proposals without requests come to the same search.
    assert finish(table, tmp_path / "plain") > 0
    plain = sessions(table)[1]
    assert plain["plans"] == ours["plans"] and "requests" not in plain
    assert all("requests" not in call for call in plain["calls"])
    report, proposed = tmp_path / "report", table.with_name("proposed.jsonl")
    replay = ("study", "replay", table, "-o", report, "--proposed", proposed, "--attempts", 8, "--repetitions", 4,
              "--resamples", 50)  # fmt: skip
    assert "3 requests to people are in the report: nothing of them was run" in program(*replay).stdout
    text, times = (report / "report.md").read_text(), len(ours["calls"])
    assert f"| s: a product |  | threads = 1024 | {times} |  | more \\| of \\*them\\* |" in text
    assert f"| s: a product |  | split = 8 | {times} | known: the space has it |  |" in text
    assert "x\\|y \\`&lt;/td>?\\[31mzzz" in text and "\x1b" not in text
    told = json.loads((report / "report.json").read_text())["requests"]
    assert [(one["value"], one["known"], one["times"]) for one in told[:2]] == [("1024", False, times), ("8", True, times)]
    # Old recordings have no requests, and their reports say nothing of any.
    proposed.write_text(json.dumps(plain) + "\n")
    assert "requests to people" not in program(*replay).stdout and "Requests" not in (report / "report.md").read_text()
    for bad in (7, [7], [{}], [{**ours["calls"][0]["requests"][0], "known": "yes"}], [{"site": 1}]):
        proposed.write_text(json.dumps({**ours, "calls": [{**ours["calls"][0], "requests": bad}]}) + "\n")
        assert "not a search with proposals" in program(*replay, expect=BAD_INPUT).stderr
    assert "chance asks for nothing" in propose(table, "--by-chance", "--requests", expect=WRONG_USAGE).stderr


def test_what_cannot_be_proposed_is_said(table, tmp_path):
    assert "say who proposes" in propose(table, expect=WRONG_USAGE).stderr
    assert "chance hears of nothing" in propose(table, "--by-chance", "--feedback", "none", expect=WRONG_USAGE).stderr
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"arm": "x"}\n')
    replay = ("study", "replay", table, "-o", tmp_path / "r", "--proposed", broken)
    assert "broken.jsonl:1" in program(*replay, expect=BAD_INPUT).stderr
    broken.write_text(json.dumps({"arm": "x", "signature": "s", "plans": ["gemv/1/1"], "calls": []}) + "\n")
    assert "no plan gemv/1/1" in program(*replay, expect=BAD_INPUT).stderr
    # Nonsense is no proposal: the search goes on by itself.
    folder = tmp_path / "asked"
    for _ in range(40):
        if propose(table, "--advisor", f"ask:{folder}", expect=None).returncode == 0:
            break
        answer_all(folder, lambda prompt: "I would rather not say.")
    assert all(not call["audit"][0]["accepted"] for one in sessions(table) for call in one["calls"])
    assert all(len(one["plans"]) == 8 for one in sessions(table))
