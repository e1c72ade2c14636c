"""The page that `report` writes, as headless Chromium shows it: its figures are those of `inspect --json` and of
`bench -o json`, and nothing that a package says becomes more than text."""

import json
import re
import shutil

import browser
import damage
import pytest
import tiny_models
from compiled import compile_package, phase_of, program

JOB_FAILED, WRONG_USAGE, BAD_INPUT = 1, 2, 3
ATTACK = "</script><script>window.taken = 1</script><img src=x onerror='window.taken = 1'>]]> \u2028 ${1} \\"

PARTS = [{"point": "its <input> is there", "us": 1.5, "least_us": 0.25}, {"point": "handed on", "us": 0.5, "least_us": 0.5}]

# The table under an element, as [{title: data-value}], with numbers where the figures are right-aligned.
ROWS = """((table) => {
  const titles = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
  return [...table.tBodies[0].rows].map((row) => Object.fromEntries([...row.cells].map((cell, at) => [
    titles[at],
    !cell.hasAttribute("data-value") ? null : cell.className === "n" ? Number(cell.dataset.value) : cell.dataset.value,
  ])));
})"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    source = tiny_models.write_case("llama_gqa", folder / "model")
    # Attention is left to plain kernels, several for a region.
    compile_package(source, folder / "package", "--families", "gemv,embedding", tries=1)
    return folder / "package"


@pytest.fixture(scope="module")
def planned(package):
    """How many tokens are cached in the decode step that the plan is for."""
    return phase_of(json.loads((package / "plan.json").read_text()), "decode")["context"]


@pytest.fixture(scope="module")
def bench(package, planned, tmp_path_factory):
    file = tmp_path_factory.mktemp("bench") / "bench.json"
    result = program("bench", package, "--context", f"4,40,{planned}", "--new", 1, "--timeline", "-o", "json")
    lines = json.loads(result.stdout)
    # No launch of this package says where its time goes: one is given two parts.
    at = max(i for i, line in enumerate(lines) if line["what"] == "timeline" and line["launch"] == 1)
    lines[at + 1 : at + 1] = [lines[at] | {"what": "part", "rounds": 2} | part for part in PARTS]
    file.write_text(json.dumps(lines))
    return file


@pytest.fixture(scope="module")
def page(package, bench, tmp_path_factory):
    file = tmp_path_factory.mktemp("page") / "report.html"
    program("report", package, "-o", file, "--bench", bench, "--trace", file.with_suffix(".json"), "-q")
    return file


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    if browser.chromium() is None:
        pytest.skip("there is no Chromium: scripts/setup.sh installs it on Debian (chromium-headless-shell)")
    running = browser.Browser(tmp_path_factory.mktemp("chromium"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def tab(chromium, page):
    return chromium.open(page)


def inspect(package, stage):
    return json.loads(program("inspect", package, "--stage", stage, "--json").stdout)


def rows(tab, label) -> list:
    return tab.run(f"""{ROWS}(document.querySelector('[aria-label="{label}"] table'))""")


def choose(tab, section, phase):
    tab.run(f"[...document.querySelectorAll('#{section} .choice button')].find((b) => b.textContent === '{phase}').click()")


def edited(package, to, edit):
    """A copy of the package in which `edit` has changed plan and program."""
    shutil.copytree(package, to)
    files = {name: json.loads((to / f"{name}.json").read_text()) for name in ("plan", "program")}
    edit(files["plan"], files["program"])
    for name, content in files.items():
        (to / f"{name}.json").write_text(json.dumps(content))
    damage.sign(to)
    return to


def test_the_page_is_drawn_whole_and_asks_for_nothing(tab, page):
    assert tab.errors() == [] and tab.requests() == [page.as_uri()]
    assert tab.run("document.querySelectorAll('.broken').length") == 0
    sections = tab.run("[...document.querySelectorAll('section')].map((s) => s.id)")
    assert sections == [
        *("regions", "timeline", "roofline", "speed", "funnel", "predicted", "search", "advice", "compilation"),
    ]
    links = tab.run("[...document.querySelectorAll('nav a')].map((a) => a.getAttribute('href').slice(1))")
    assert links == sections
    for section in ("timeline", "roofline", "speed", "predicted"):
        assert tab.run(f"document.querySelectorAll('#{section} svg .hit').length") > 2, section
    text = tab.run("document.body.innerText")
    for odd in ("undefined", "NaN", "[object", "Infinity"):
        assert odd not in text


@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_regions_are_those_of_inspect(phase, tab, package):
    choose(tab, "regions", phase)
    selection = inspect(package, "selection")[phase]["selection"]
    shown = [row for row in rows(tab, f"Regions of {phase}") if row["Implementation"]]
    figures = ("Uses", "Implementation", "Predicted µs", "FLOPs", "Bytes")
    assert len(selection) > 4
    assert sorted([row[title] for title in figures] for row in shown) == sorted(
        [of["uses"], of["candidate"] or "fallback", of["predicted_us"] if of["candidate"] else None, of["flops"], of["bytes"]]
        for of in selection
    )
    assert sum(row["Share"] for row in rows(tab, f"Regions of {phase}")) == pytest.approx(1)


def test_the_funnel_is_that_of_inspect(tab, package):
    stats = inspect(package, "stats")
    for phase in ("decode", "prefill"):
        shown = tab.run(
            f"""Object.fromEntries([...document.querySelectorAll('.funnel[data-phase="{phase}"] [data-stage]')]
            .map((cell) => [cell.dataset.stage, cell.textContent]))"""
        )
        of = stats[phase]
        built = of["tried"] - of["failed"].get("not_compiled", 0) - of["failed"].get("unavailable", 0)
        names = dict(enumerated="enumerated", legal="legal", ranked="plans", tried="tried", right="validated", fast="selected")
        expected = {stage: of[name] for stage, name in names.items()} | {"built": built}
        assert shown == {stage: f"{count:,}" for stage, count in expected.items()}


def test_attempts_and_stages_are_those_of_inspect(tab, package):
    verdicts, stats = inspect(package, "verdicts"), inspect(package, "stats")
    expected = [
        [phase, of["candidate"], of["outcome"]["kind"], of["predicted_us"], of.get("measured_us"), of["outcome"].get("worst_error")]
        for phase in ("decode", "prefill")
        for of in verdicts[phase]["verdicts"]
    ]
    titles = ("Phase", "Candidate", "Verdict", "Predicted µs", "Measured µs", "Error / bound")
    assert [[row[title] for title in titles] for row in rows(tab, "Attempts")] == expected
    assert [{"stage": row["Stage"], "seconds": row["Seconds"]} for row in rows(tab, "Stages")] == stats["stages"]
    assert tab.run("document.querySelector('#tile-worst b').textContent") == f"{verdicts['check']['worst']:.3f}"


def test_speeds_and_the_timeline_are_those_of_bench(tab, package, bench, planned):
    lines = json.loads(bench.read_text())
    speeds = [line for line in lines if line["what"] == "decode"]
    fields = {"Tokens cached": "context", "ms a token": "ms", "Weight bytes": "weight_bytes", "Cache bytes": "cache_bytes"}
    fields |= {"Median ms": "ms_median", "p99 ms": "ms_p99", "Streams GB/s": "limit_gb_s", "Share": "share"}
    assert rows(tab, "Speeds") == [{title: of[name] for title, name in fields.items()} for of in speeds]
    typical = float(tab.run("document.querySelector('#tile-ms b').firstChild.textContent").replace(",", ""))
    assert typical == pytest.approx(speeds[-1]["ms"], rel=0.01)
    launches = [line for line in lines if line["what"] == "timeline" and line["context"] == planned]
    fields = {"#": "launch", "Kernel": "kernel", "Begins µs": "start_us", "µs": "us", "Bytes": "bytes"}
    shown = [{title: row[title] for title in fields} for row in rows(tab, "Launches")]
    assert shown == [{title: of[name] for title, name in fields.items()} for of in launches]
    fields = {"Until": "point", "µs of a round": "us", "Least µs": "least_us"}
    shown = rows(tab, "Parts of a launch")
    assert [{title: row[title] for title in fields} for row in shown] == [{t: part[name] for t, name in fields.items()} for part in PARTS]
    assert [row["Share"] for row in shown] == [0.75, 0.25]
    decode = phase_of(json.loads((package / "program.json").read_text()), "decode")
    assert [of["kernel"] for of in launches] == [of["kernel"] for of in decode["launches"]]
    # Each launch counts towards one region, as often as the plan uses that.
    names = [row["Region"] for row in rows(tab, "Launches")]
    assert "other" not in names
    parts = tab.run("JSON.parse(document.getElementById('document').textContent).step.parts")
    assert any(part["launches"] > 1 for part in parts) and any(part["launches"] == 1 for part in parts)
    selection = inspect(package, "selection")["decode"]["selection"]
    for at, of in enumerate(selection):
        mine = [part for part in parts if part["selection"] == at]
        assert len(mine) == of["uses"] and all(part["flops"] == of["flops"] for part in mine)
        assert {launches[part["from"]]["kernel"] for part in mine} <= set(of["kernels"])
    us = sum(of["us"] for of in launches)
    choose(tab, "regions", "decode")
    for row in rows(tab, "Regions of decode"):
        assert row["In the step µs"] == pytest.approx(us * row["Share"])


def test_the_trace_is_the_timeline(page, bench, planned):
    events = json.loads(page.with_suffix(".json").read_text())["traceEvents"]
    launches = [line for line in json.loads(bench.read_text()) if line["what"] == "timeline" and line["context"] == planned]
    complete = [event for event in events if event["ph"] == "X"]
    assert [(e["ts"], e["dur"], e["args"]["kernel"]) for e in complete] == [
        (of["start_us"], of["us"], of["kernel"]) for of in launches
    ]
    for before, after in zip(complete, complete[1:]):
        assert before["dur"] > 0 and after["ts"] == pytest.approx(before["ts"] + before["dur"])


@pytest.mark.parametrize("label, title", [("Launches", "Bytes"), ("Attempts", "Candidate"), ("Stages", "Seconds")])
def test_tables_sort(label, title, tab):
    before = rows(tab, label)
    head = f"""[...document.querySelectorAll('[aria-label="{label}"] th')].find((th) => th.textContent === '{title}')"""
    tab.run(f"{head}.firstChild.click()")
    once, said = rows(tab, label), tab.run(f"{head}.ariaSort")
    tab.run(f"{head}.firstChild.click()")
    twice = rows(tab, label)
    values, text = [row[title] for row in before], isinstance(before[0][title], str)
    assert said == ("ascending" if text else "descending")
    assert sorted(map(str, before)) == sorted(map(str, once)) and len(set(values)) > 2
    if not text:
        assert [row[title] for row in once] == sorted(values, reverse=True)
        assert [row[title] for row in twice] == sorted(values)
    assert [row[title] for row in once] == [row[title] for row in twice][::-1] != values


def test_the_timeline_can_be_looked_at_closely(tab):
    bars = "document.querySelectorAll('#timeline svg rect.hit').length"
    buttons = "[...document.querySelectorAll('#timeline .choice button')]"
    whole = tab.run(bars)
    assert whole == len(rows(tab, "Launches"))
    tab.run(f"{buttons}[1].click()")
    layer = tab.run(bars)
    assert 0 < layer < whole / 2 + 2  # of two layers
    tab.run(f"{buttons}[0].click()")
    assert tab.run(bars) == whole
    # A drag over the first tenth of it.
    tab.run("document.querySelector('#timeline').scrollIntoView({behavior: 'instant'})")
    box = tab.run("(({left, top, width}) => ({left, top, width}))(document.querySelector('#timeline svg > rect').getBoundingClientRect())")
    for kind, share in (("mousePressed", 0.001), ("mouseMoved", 0.05), ("mouseReleased", 0.1)):
        at = dict(x=box["left"] + share * box["width"], y=box["top"] + 3)
        tab.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)
    assert 0 < tab.run(bars) < whole
    bar = tab.run("(({left, top}) => ({x: left + 1, y: top + 5}))(document.querySelector('#timeline svg rect.hit').getBoundingClientRect())")
    tab.call("Input.dispatchMouseEvent", type="mouseMoved", **bar)
    assert "µs from" in tab.run("document.getElementById('tip').textContent") and not tab.run("document.getElementById('tip').hidden")


def test_light_and_dark_and_a_phone(chromium, page):
    pictures = []
    for width, dark in ((1200, False), (1200, True), (390, False), (390, True)):
        tab = chromium.open(page, width, dark)
        assert tab.errors() == []
        assert tab.run("[document.scrollingElement.scrollWidth, innerWidth]") == [width, width]
        beyond = "[...document.querySelectorAll('svg text')].filter((t) => t.getBoundingClientRect().right > innerWidth)"
        assert tab.run(f"{beyond}.map((t) => t.textContent)") == []
        red = tab.run("Number(/\\d+/.exec(getComputedStyle(document.body).backgroundColor)[0])")
        assert (red < 64) if dark else (red > 192)
        pictures.append(tab.picture())
    assert len(set(pictures)) == len(pictures)


def test_nothing_that_a_package_says_runs(chromium, package, bench, tmp_path):
    def edit(plan, of_program):
        of_program["model"] = ATTACK
        phase_of(of_program, "decode")["notes"] = [note + ATTACK for note in phase_of(of_program, "decode")["notes"]]
        for selection in phase_of(plan, "decode")["selections"]:
            for i, attempt in enumerate(selection["attempts"]):
                attempt["candidate"] += ATTACK
                attempt["outcome"]["why"] = ATTACK
        plan["stages"][0]["stage"] = ATTACK
        item = {"item": ATTACK, "accepted": False, "said": ATTACK, "reason": ATTACK}
        plan["advice"] = {"advisor": ATTACK, "share": 0.1, "regions": [
            dict(phase="decode", ops=ATTACK, signature=ATTACK, why=ATTACK, share=0.5, diagnosis=False, prompt_hash="", model=ATTACK, calls=1,
                 input_tokens=3, output_tokens=4, seconds=0.5, failure=ATTACK, label=ATTACK, order=[], thorough=[], audit=[item])
        ]}  # fmt: skip

    hostile = edited(package, tmp_path / "hostile", edit)
    measured = json.loads(bench.read_text())
    for line in measured:
        line |= {"model": ATTACK, "device": ATTACK, "driver": ATTACK}
    (tmp_path / "bench.json").write_text(json.dumps(measured))
    program("report", hostile, "-o", tmp_path / "page.html", "--bench", tmp_path / "bench.json")
    tab = chromium.open(tmp_path / "page.html")
    assert tab.run("typeof window.taken") == "undefined"
    assert tab.run("document.querySelectorAll('script').length") == 2
    assert tab.run("document.querySelectorAll('img').length") == 0
    assert tab.run("document.querySelector('h1').textContent") == ATTACK
    assert [row["Said"] for row in rows(tab, "Audit of the advice")] == [ATTACK]
    assert [row["Failure"] for row in rows(tab, "Questions")] == [ATTACK]
    assert tab.errors() == [] and len(tab.requests()) == 1
    assert tab.run("document.querySelectorAll('.broken').length") == 0


def test_the_search_is_the_order_of_the_attempts(chromium, package, tmp_path):
    times = [9.0, 5.0, 7.0, 4.0]

    def edit(plan, _):
        selection = phase_of(plan, "decode")["selections"][1]
        attempt = selection["attempts"][0]
        selection["attempts"] = [dict(attempt, candidate=f"made/{i}", measured_us=us) for i, us in enumerate(times)]

    timed = edited(package, tmp_path / "timed", edit)
    program("report", timed, "-o", tmp_path / "page.html", "--no-run")
    tab = chromium.open(tmp_path / "page.html")
    assert "9.00 µs → 4.00 µs in 4" in tab.run("document.querySelector('#search .legend').textContent")
    # A dot for each attempt that was the best so far, and lines down to them.
    assert tab.run("document.querySelectorAll('#search svg circle').length") == 3
    line = tab.run("document.querySelector('#search svg path').getAttribute('d')")
    top = float(re.match(r"M[\d.]+,([\d.]+)", line)[1])
    heights = [float(height) for height in re.findall(r"V([\d.]+)", line)]
    assert [(at - top) / (heights[-1] - top) for at in heights] == pytest.approx([(9 - 5) / (9 - 4), (9 - 5) / (9 - 4), 1])
    assert tab.run("document.querySelectorAll('#predicted svg circle').length") == len(times)
    assert "--no-run" in tab.run("document.querySelector('#timeline').textContent")
    assert tab.errors() == []


def test_it_measures_by_itself(package, tmp_path):
    said = program("report", package, "-o", tmp_path / "page.html", "--context", "4,30", "--new", 2, "--trace", tmp_path / "t.json")
    assert "timing tokens after 30" in said.stderr and said.stdout == ""
    text = (tmp_path / "page.html").read_text()
    document = json.loads(text.partition('type="application/json">')[2].partition("</script>")[0])
    decode = [line for line in document["measurements"] if line["what"] == "decode"]
    assert [line["context"] for line in decode] == [4, 30] and all(line["ms"] > 0 and line["new"] == 2 for line in decode)
    launches = phase_of(json.loads((package / "program.json").read_text()), "decode")["launches"]
    assert len(document["step"]["launches"]) == len(launches) and document["not_measured"] == ""
    assert len(json.loads((tmp_path / "t.json").read_text())["traceEvents"]) == len(launches) + 2


def test_a_package_for_a_gpu_that_is_not_here(chromium, package, tmp_path):
    def edit(plan, of_program):
        plan["target"] = of_program["target"] = "sm_90a"

    gpu = edited(package, tmp_path / "gpu", edit)
    says = "Not measured here: the package is for sm_90a, and there is no GPU here."
    program("report", gpu, "-o", tmp_path / "page.html", CUDA_VISIBLE_DEVICES="")
    tab = chromium.open(tmp_path / "page.html")
    for section in ("timeline", "roofline", "speed"):
        assert says in tab.run(f"document.getElementById('{section}').textContent"), section
    assert "not measured here" in tab.run("document.getElementById('tile-ms').textContent")
    assert tab.errors() == []
    options = ("--trace", tmp_path / "t.json")
    failed = program("report", gpu, "-o", tmp_path / "p.html", *options, expect=JOB_FAILED, CUDA_VISIBLE_DEVICES="")
    assert f"--trace: no step was timed: {says}" in failed.stderr and not (tmp_path / "t.json").exists()


def test_a_page_that_cannot_be_drawn_says_so(chromium, package, tmp_path):
    def edit(plan, _):
        phase_of(plan, "decode")["selections"][0]["ops"] = 5

    program("report", edited(package, tmp_path / "odd", edit), "-o", tmp_path / "page.html", "--no-run")
    tab = chromium.open(tmp_path / "page.html", drawn="main p")
    assert "This page cannot be drawn" in tab.run("document.body.innerText")


def test_what_cannot_be_reported(package, bench, tmp_path):
    to = tmp_path / "page.html"
    for output, says in ((tmp_path, "no file that can be"), ("/dev/null", "no file that can be"), (tmp_path / "no" / "page.html", "there is no folder")):
        result = program("report", package, "-o", output, expect=WRONG_USAGE)
        assert "error: --output: " in result.stderr and says in result.stderr and "timing" not in result.stderr
    lines = json.loads(bench.read_text())

    def refused(says, change=None, text=None):
        changed = json.loads(json.dumps(lines))
        if change:
            change(changed)
        (tmp_path / "bench.json").write_text(json.dumps(changed) if text is None else text)
        result = program("report", package, "-o", to, "--bench", tmp_path / "bench.json", expect=BAD_INPUT)
        assert result.stderr.startswith(f"error: {tmp_path}/bench.json: ") and says in result.stderr, result.stderr
        assert result.stderr.count("\n") == 1 and not to.exists()

    refused("not what bench -o json writes", text="{}")
    refused("not what bench -o json writes", lambda all: all[0].pop("what"))
    refused("not what bench -o json writes", lambda all: all[0].update(ms="fast"))
    refused("ms is -1", lambda all: all[0].update(ms=-1))
    refused("not valid JSON", text='[{"what": ')
    refused('of "another" in f32', lambda all: all[0].update(model="another"))
    refused("measure it again", lambda all: all.pop())
    refused("measure it again", lambda all: all[-1].update(kernel="made_up"))
    damaged = tmp_path / "damaged"
    shutil.copytree(package, damaged)
    (damaged / "plan.json").write_text((damaged / "plan.json").read_text() + " ")
    result = program("report", damaged, "-o", to, expect=BAD_INPUT)
    assert "plan.json" in result.stderr and not to.exists()
    odd = edited(package, tmp_path / "odd", lambda plan, _: phase_of(plan, "decode").update(context="many"))
    assert "compile the model again" in program("report", odd, "-o", to, expect=BAD_INPUT).stderr
    assert "is no package" in program("report", tmp_path, "-o", to, expect=BAD_INPUT).stderr
    program("report", package, expect=WRONG_USAGE)
    for options in (("--no-run", "--bench", bench), ("--no-run", "--trace", to), ("--bench", bench, "--context", 4)):
        program("report", package, "-o", to, *options, expect=WRONG_USAGE)
