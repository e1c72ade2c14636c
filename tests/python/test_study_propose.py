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


@pytest.fixture
def table(tmp_path) -> Path:
    lines = [{"study": 1, "device": "A device", "toolkit": "T", "model": "tiny", "date": "2026-01-01"}]
    lines.append({"region": 0, "signature": "s", "description": "a product", "uses": 1})
    for threads in THREADS:
        for split in SPLITS:
            fields = {"threads": threads, "split": split}
            lines.append({"region": 0, "plan": f"gemv/{threads}/{split}", "family": "gemv", "fields": fields,
                          "predicted_us": 50 + threads / 100, "outcome": "measured",
                          "samples_us": [microseconds(threads, split)] * 3})  # fmt: skip
    file = tmp_path / "table.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def propose(table, *options, expect=0):
    output = table.with_name("proposed.jsonl")
    return program("study", "propose", table, "-o", output, "--sessions", 2, "--attempts", 8, "--proposals", 2,
                   *options, expect=expect)  # fmt: skip


def sessions(table) -> list:
    return [json.loads(line) for line in table.with_name("proposed.jsonl").read_text().splitlines()]


def answer_all(folder, reply) -> int:
    """Answers the questions that have no reply yet; the second session does so in vain."""
    answered = 0
    for prompt in Path(folder).glob("*/*.prompt.txt"):
        file = prompt.with_name(prompt.name.replace(".prompt.", ".reply."))
        if not file.exists():
            file.write_text(reply(prompt.read_text()) if prompt.parent.name == "session-1" else "I cannot say.")
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
        asked = len(list(Path(folder).glob("*/*.prompt.txt")))
    raise AssertionError("the rounds never end")


def test_a_session_through_files_resumes_round_by_round(table, tmp_path):
    asked = finish(table, tmp_path / "asked")
    ours = sessions(table)
    assert len(ours) == 2 and {one["arm"] for one in ours} == {"proposals+tree"}
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


def test_replay_compares_proposals_with_their_falsifiers(table, tmp_path):
    finish(table, tmp_path / "asked")
    finish(table, tmp_path / "permuted", "--feedback", "permuted")
    finish(table, tmp_path / "none", "--feedback", "none")
    propose(table, "--by-chance")
    arms = {one["arm"] for one in sessions(table)}
    assert arms == {"proposals+tree", "proposals+tree (permuted feedback)", "proposals+tree (no feedback)",
                    "proposals+tree (by chance)"}  # fmt: skip
    # What an advisor without feedback reads holds no measurement.
    for prompt in (tmp_path / "none").glob("*/*.prompt.txt"):
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
