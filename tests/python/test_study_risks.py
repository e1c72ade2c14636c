"""scripts/study_risks.py: what risk notes name against what became of it, and the figures that documents state."""

import gzip
import json

import pytest
from compiled import ROOT, module_of

NOTE = (ROOT / "docs/notes/2026-11-29-risk-notes.md").read_text()
RESULTS = ROOT / "bench/results"


@pytest.fixture(scope="module")
def script():
    return module_of("scripts/study_risks.py")


@pytest.fixture(scope="module")
def counted(script):
    # Of the note's day: what was recorded later is not in it.
    tables = [file for file in RESULTS.glob("*-study-h?00-*.jsonl.gz") if file.name < "2026-11-30"]
    results = [file for file in RESULTS.glob("*-h?00-*.jsonl") if file.name < "2026-11-29"]
    return script.count(str(RESULTS / "2026-11-21-advice-claude.jsonl"), [str(file) for file in (*tables, *results)])


def test_recordings_give_the_figures_of_the_note(counted):
    stated = [line.strip("| ").split(" | ") for line in NOTE.splitlines() if line.startswith("| ")]
    rows = {name: cells for name, *cells in stated}
    counts = {"replies": "replies", "notes": "notes", "that ask the gate to look closer": "notes_to_look_closer",
              "of these, about all plans of a region (`*`)": "notes_of_all", "different plans that are named": "named",
              "of these, in a recorded table": "named_in_tables"}  # fmt: skip
    for name, key in counts.items():
        assert rows[name] == [str(counted[key])], name
    for name, key in (("all", "all"), ("that a note names", "risky"), ("others of the same regions", "others")):
        assert rows[name] == [str(counted[key][of]) for of in ("plans", "failed", "judged", "judged_failed")], name
    one, closer = counted["notes"] - counted["notes_of_all"], counted["notes_of_one_to_look_closer"]
    assert counted["notes_to_look_closer"] - closer == counted["notes_of_all"]  # all of those
    assert f"Of the {one} notes about one plan {closer} do" in NOTE and f"the other {one - closer} speak" in NOTE
    assert (counted["compilations"], counted["compilations_with_rejections"], counted["rejected"]) == (20, 1, 10)
    judged = counted["all"]["judged"]
    assert f"up to {100 * (1 - 0.05 ** (1 / judged)):.1f} % would fit 0 of {judged:,}" in NOTE
    search = (ROOT / "docs/manual/search.md").read_text()
    assert f"none of {counted['all']['plans']:,} plans failed" in search
    assert f"none of the {judged:,} that it judged" in search and f"{counted['named']} had been called risky" in search


def write_table(file, **header):
    def plan(name, outcome="measured", **more):
        return {"region": 0, "plan": name, "family": "f", "fields": {}, "predicted_us": 1, "outcome": outcome, **more}

    lines = [{"study": 1, **header}, {"region": 0, "signature": "s"},
             plan("a", admission="skipped"), plan("b", "wrong", why="w"), plan("c"), plan("d", "uncompilable"),
             plan("e", admission="skipped"), plan("e", "wrong"),
             {"region": 1, "signature": "nobody was asked"}, {**plan("a", "failed"), "region": 1}]  # fmt: skip
    file.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))
    return file


def test_failures_are_counted_where_there_are_some(script, tmp_path):
    risks = [{"candidate": "b", "note": "n", "validate_more": True}, {"candidate": "a", "note": "n"},
             {"candidate": "*", "note": "n"}, {"candidate": "not there", "note": "n"}]  # fmt: skip
    reply = "I think {x} " + json.dumps({"draft": {"risks": []}}) + " so:\n```" + json.dumps({"risks": risks}) + "```"
    replies = tmp_path / "replies.jsonl"
    replies.write_text("".join(json.dumps({"region": "s", "reply": said}) + "\n" for said in (reply, "None.")))
    table = write_table(tmp_path / "table.jsonl.gz")
    planted = write_table(tmp_path / "planted.jsonl.gz", planted="by us")
    results = tmp_path / "results.jsonl"
    compilations = [{"what": "compile", "rejected": 3}, {"what": "compile"}, {"what": "decode", "rejected": 9}]
    results.write_text("".join(json.dumps(line) + "\n" for line in compilations))
    counts = script.count(str(replies), [str(table), str(planted), str(results)])
    assert (counts["replies"], counts["notes"], counts["notes_of_all"], counts["notes_to_look_closer"]) == (2, 4, 1, 1)
    assert (counts["named"], counts["named_in_tables"]) == (3, 2)
    assert counts["all"] == {"plans": 6, "failed": 4, "judged": 5, "judged_failed": 4}
    assert counts["risky"] == {"plans": 2, "failed": 1, "judged": 1, "judged_failed": 1}
    assert counts["others"] == {"plans": 3, "failed": 2, "judged": 3, "judged_failed": 2}
    assert (counts["compilations"], counts["compilations_with_rejections"], counts["rejected"]) == (1, 1, 3)
