"""Documents that follow from something else: results from their records, links from what they point to."""

import json
import re
import shutil
import subprocess
import sys

import pytest
from compiled import ROOT, module_of

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/[mn]*/*.md")])


@pytest.fixture(scope="module")
def results():
    return module_of("scripts/results.py")


def test_the_page_of_results_is_what_the_records_give():
    checked = subprocess.run([sys.executable, ROOT / "scripts/results.py", "--check"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def test_the_newest_record_counts(results, tmp_path):
    shutil.copytree(ROOT / "bench/results", tmp_path, dirs_exist_ok=True)
    record = dict(what="decode", model="Qwen3-1.7B", dtype="bf16", context=2048, ms=1.2345, share=0.987)
    lines = [{"device": "NVIDIA H100 80GB HBM3", "commit": "abcdef1", "command": "a command"}, record]
    (tmp_path / "2099-01-01-new.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = results.page(tmp_path)
    new = "| NVIDIA H100 80GB HBM3 | Qwen3-1.7B | bfloat16 |  | 1.234 (99 %) |  |  |  | abcdef1 | `2099-01-01-new.jsonl` |"
    assert new in page
    row = re.search(r"^\| NVIDIA H100 80GB HBM3 \| Qwen3-1.7B \| bfloat16 \|([^|]*)\|([^|]*)\|([^|]*)\|", results.page(), re.M)
    assert row[2] not in page
    assert f"{row[1]}|  |{row[3]}" in page  # other contexts are the older run's


def test_figures_name_files_that_are_there():
    for path in DOCUMENTS:
        text = path.read_text()
        for name in re.findall(r"`(?:bench/results/)?(20\d\d-\d\d-\d\d-[a-z0-9.-]+\.jsonl(?:\.gz)?)`", text):
            assert (ROOT / "bench/results" / name).is_file(), (path, name)


def test_links_lead_somewhere():
    for path in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text()):
            if not target.startswith(("http://", "https://")):
                assert (path.parent / target).exists(), (path, target)


def test_files_that_documents_name_exist():
    for path in (ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/manual/*.md")):
        for name in re.findall(r"`((?:src|kernels|tests|scripts|bench|python|reference|docs|examples)/[\w./-]+)`", path.read_text()):
            if "NAME" not in name:
                assert (ROOT / name).exists(), (path, name)


def test_lines_are_not_too_long_to_read():
    for path in DOCUMENTS:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            assert len(line) <= 600, (path, number)


def test_every_note_is_in_the_index():
    notes = {path.name for path in (ROOT / "docs/notes").glob("20*.md")}
    index = (ROOT / "docs/notes/README.md").read_text()
    assert notes == set(re.findall(r"\]\((20[^)]*)\)", index))


def test_readme_shows_results_as_they_are():
    readme, page = (ROOT / "README.md").read_text(), (ROOT / "docs/results.md").read_text()
    rows = re.findall(r"^\| (\S+) \|( [0-9.]+ \([0-9]+ %\) \|.*)$", readme, re.MULTILINE)
    assert len(rows) == 4
    for model, figures in rows:
        assert f"| NVIDIA H100 80GB HBM3 | {model} | bfloat16 |{figures}" in page


def test_the_table_of_stages_names_what_is_there():
    text = (ROOT / "docs/architecture.md").read_text()
    rows = re.findall(r"^\| (?:\d+ )?[a-z]+ \|[^|]*\|[^|]*\|([^|]*)\|([^|]*`src/[^|]*)\|$", text, re.MULTILINE)
    assert len(rows) == 15
    for functions, files in rows:
        headers = "".join((ROOT / name).read_text() for name in re.findall(r"`([^`]+)`", files))
        for name in re.findall(r"`([^`]+)`", functions):
            for part in name.split("::"):
                assert re.search(rf"\b{part}\b", headers), (name, files)
