"""Replies for the study: asked for as compile asks, kept with who gave them, read by study replay."""

import json
import time
from pathlib import Path

import pytest
import tiny_models
from compiled import program
from llm_server import Service, advice

WRONG_USAGE, BAD_INPUT, AWAITED = 2, 3, 5
SOMEBODY = ("--model", "somebody", "--date", "2026-11-21")
SAME = ("--max-context", 96, "--chunk", 8, "--target", "sm_90")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "model"
    tiny_models.write_case("qwen3_gqa", folder)
    return folder


@pytest.fixture
def advise(model, tmp_path):
    def start(who, *options, expect=0, output="advice.jsonl", **environment):
        arguments = ("study", "advise", model, "-o", tmp_path / output, *SAME, "--advisor", who)
        return program(*arguments, *options, expect=expect, **environment)

    return start


def prompts(folder) -> dict:
    return {path.name: path.read_text() for path in Path(folder).glob("*.prompt.txt")}


def answer(folder, name, text):
    (Path(folder) / name.replace(".prompt.", ".reply.")).write_text(text)


def lines(file) -> list:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_replies_in_a_folder(advise, model, tmp_path):
    asked, file = tmp_path / "asked", tmp_path / "advice.jsonl"
    # What compile would ask about the decode step, byte for byte, under the same names.
    who = f"ask:{tmp_path}/compile"
    program("compile", model, "-o", tmp_path / "p", *SAME, "--advisor", who, expect=AWAITED)
    result = advise(f"ask:{asked}", "--cover", *SOMEBODY, expect=AWAITED)
    wanted = {k: v for k, v in prompts(tmp_path / "compile").items() if k.startswith("decode-")}
    questions = prompts(asked)
    assert questions == wanted and len(questions) > 3
    assert f"{len(questions)} of {len(questions)}" in result.stderr and not file.exists()

    # Two are answered, one of them in vain: without --advisor-wait nothing is written.
    useful, useless, *rest = sorted(questions)
    answer(asked, useful, "Well.\n" + json.dumps(advice(questions[useful])))
    answer(asked, useless, "I would rather not say.")
    advise(f"ask:{asked}", "--cover", *SOMEBODY, expect=AWAITED)
    assert not file.exists()
    some = ("--cover", "--advisor-wait", 0, "--json", *SOMEBODY)
    result = advise(f"ask:{asked}", *some)
    report = json.loads(result.stdout)
    assert (report["regions"], report["replies"], report["new"]) == (len(questions), 2, 2)
    for name in rest:
        assert name.removesuffix(".prompt.txt") in report["unanswered"]
        assert f"no advice about {name.removesuffix('.prompt.txt')}: " in result.stderr
    kept = {line["prompt"]: line for line in lines(file)}
    line = kept[questions[useful]]
    assert line["order"] == advice(questions[useful])["order"] and line["region"]
    assert line["reply"] == "Well.\n" + json.dumps(advice(questions[useful]))
    assert (line["model"], line["date"]) == ("somebody", "2026-11-21")
    assert line["advisor"] == f"ask:{asked}" and line["prompt_hash"][:12] in useful
    assert "weights" not in line and "tokens" not in line and "seconds" not in line
    assert kept[questions[useless]]["order"] == []
    assert report["audit"]["order"] == {"accepted": len(line["order"]), "rejected": {}}
    assert sum(report["audit"]["reply"]["rejected"].values()) == 1
    assert report["accepted"] == 1 + len(line["order"]) and report["rejected"] == 1

    # The rest, and again: what is there stays as it is.
    before = file.read_text()
    for name in rest:
        answer(asked, name, json.dumps(advice(questions[name])))
    text = advise(f"ask:{asked}", "--cover", *SOMEBODY).stdout
    assert f"{len(rest)} of them new" in text and "order" in text
    assert file.read_text().startswith(before) and len(lines(file)) == len(questions)
    before = file.read_text()
    report = json.loads(advise(f"ask:{asked}", *some).stdout)
    assert report["new"] == 0 and file.read_text() == before
    # The same words of somebody else are another draw.
    asked.rename(tmp_path / "again")
    assert json.loads(advise(f"ask:{tmp_path}/again", *some).stdout)["new"] == len(questions)

    # compile, too, takes advice from such a file.
    kept = json.loads(advise(f"replay:{file}", "--cover", "--json", output="copy.jsonl").stdout)
    assert kept["replies"] == len(questions)
    copied = lines(tmp_path / "copy.jsonl")
    assert {line["model"] for line in copied} == {"somebody"}
    assert {line["date"] for line in copied} == {"2026-11-21"}


def test_regions(advise, tmp_path):
    asked = tmp_path / "asked"
    advise(f"ask:{asked}", "--cover", "--regions", "argmax", *SOMEBODY, expect=AWAITED)
    assert len(prompts(asked)) == 1
    # Of other cuts, too.
    advise(f"ask:{asked}", "--cover", *SOMEBODY, expect=AWAITED)
    of_the_cover = prompts(asked)
    advise(f"ask:{asked}", *SOMEBODY, expect=AWAITED)
    assert set(of_the_cover) < set(prompts(asked))
    other = advise(f"ask:{asked}", "--regions", "no such", *SOMEBODY, expect=WRONG_USAGE)
    assert "--regions" in other.stderr


def test_a_service_says_itself_who_answers(advise, tmp_path):
    service = Service()
    keys = {"ANTHROPIC_BASE_URL": service.url, "ANTHROPIC_API_KEY": "sk-test", "TZ": "UTC"}
    record = tmp_path / "calls.jsonl"
    try:
        advise("anthropic:some-model", "--cover", "--advisor-record", record, **keys)
        service.faults = [("status", 401, "no")] * 100
        result = advise("anthropic:some-model", "--cover", expect=1, **keys)
        assert "none of" in result.stderr and "no advice about decode-" in result.stderr
    finally:
        service.shutdown()
        service.server_close()
    kept = lines(tmp_path / "advice.jsonl")
    today = time.strftime("%Y-%m-%d", time.gmtime())
    for line in kept:
        assert line["model"].startswith("some-model") and line["date"] <= today
        assert line["tokens"] > 2000 and line["seconds"] > 0 and line["order"]
    # A recording says who answered, and when that was.
    advise(f"replay:{record}", "--cover", output="again.jsonl")
    again = lines(tmp_path / "again.jsonl")
    assert [line["order"] for line in again] == [line["order"] for line in kept]
    assert {line["model"] for line in again} == {line["model"] for line in kept}
    assert all(line["date"].startswith("20") and line["tokens"] > 2000 for line in again)


def test_wrong_usage(advise, tmp_path):
    ask = f"ask:{tmp_path}/asked"
    for who, options, says in (
        ("none", (), "--advisor"),
        ("oracle:x", (), "--advisor"),
        (ask, (), "--model"),
        (ask, ("--model", "m"), "--date"),
        (ask, ("--date", "2026-11-21"), "--model"),
        (ask, (*SOMEBODY, "--device", "cuda"), "--device"),
        ("anthropic:m", SOMEBODY, "--model"),
        ("openai:m@http://127.0.0.1:1/v1", SOMEBODY, "--model"),
    ):
        assert says in advise(who, *options, expect=WRONG_USAGE).stderr
    for date in ("today", "2026-02-30", "2026-1-1", "2026-11-21T10:00", "21.11.2026"):
        result = advise(ask, "--model", "m", "--date", date, expect=WRONG_USAGE)
        assert "YYYY-MM-DD" in result.stderr
    result = advise(ask, *SOMEBODY, output="no/folder.jsonl", expect=WRONG_USAGE)
    assert "no/" not in str(list(tmp_path.iterdir())) and "there is no folder" in result.stderr
    (tmp_path / "notes.txt").write_text("notes\n")
    assert "line 1" in advise(ask, *SOMEBODY, output="notes.txt", expect=BAD_INPUT).stderr
    assert (tmp_path / "notes.txt").read_text() == "notes\n"
    assert not (tmp_path / "asked").exists()  # nobody was asked anything


def test_study_replay_takes_the_advice(model, tmp_path):
    table, file, asked = tmp_path / "t.jsonl", tmp_path / "advice.jsonl", tmp_path / "asked"
    subjects = ("--cover", "--regions", "linear+add")
    program(
        "study", "record", model, "-o", table, *subjects, "--max-candidates", 6, "--context", 20,
        "--rounds", 2, "--seconds", 0.0005, "-q", timeout=600,
    )  # fmt: skip
    names = sorted(json.loads(x)["description"] for x in table.read_text().splitlines()[1:] if "signature" in x)
    assert names == ["linear+add", "linear+add"]
    ask = ("study", "advise", model, "-o", file, *subjects, "--advise-share", 0, *SOMEBODY)
    program(*ask, "--advisor", f"ask:{asked}", expect=AWAITED)
    questions = prompts(asked)
    assert len(questions) == 2
    for draw, change in enumerate((lambda ids: ids, lambda ids: ids[::-1])):
        folder = tmp_path / f"draw{draw}"
        folder.mkdir()
        name = min(questions)  # the other one is never answered
        answer(folder, name, json.dumps(advice(questions[name], change)))
        program(*ask, "--advisor", f"ask:{folder}", "--advisor-wait", 0)
    replay = ("study", "replay", table, "--advice", file, "--repetitions", 4, "--resamples", 20)
    result = program(*replay, "--attempts", 6, "-o", tmp_path / "report")
    assert "no reply is about it: " in result.stdout
    report = json.loads((tmp_path / "report/report.json").read_text())
    assert report["replies"] == 2 and report["other_replies"] == 0
    assert len(report["unadvised"]) == 1 and len(report["cases"]) == 2
    # Arms with advice are compared on the region that has it, the others on both, too.
    advised, both = ({arm["arm"]: arm for arm in group["arms"]} for group in report["groups"])
    assert advised["advice"]["searches"] == 2
    assert all(len(arm["by_case"]) == 1 for arm in advised.values())
    assert "advice" not in both and all(len(arm["by_case"]) == 2 for arm in both.values())
    assert report["unadvised"][0] in (tmp_path / "report/report.md").read_text()
