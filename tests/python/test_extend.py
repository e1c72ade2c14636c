"""docs/adding.md says which files a new op, format of weights or kind of state touches. tests/extend/ has
a small real one of each as a patch; of a kernel family, as files that are built with the unit tests."""

import re
import shutil
import subprocess

import pytest

from compiled import ROOT, users_environment
from variants import LONG

FOLDER = ROOT / "tests/extend"
SECTIONS = {"op": "An op", "state": "A kind of state", "format": "Codes of weights"}
SOURCES = ("src", "kernels", "reference")
# What holds such things to a truth: PyTorch's results, double precision, the gate.
TESTS = ",".join(f"*/test_{name}.cc" for name in ("fallback", "math", "reference", "states", "weight_format*"))


def git(*arguments, cwd=ROOT) -> str:
    return subprocess.run(["git", *map(str, arguments)], cwd=cwd, check=True, capture_output=True,
                          text=True).stdout


def files_of(patch) -> list:
    return [line.split("\t")[2] for line in git("apply", "--numstat", patch).splitlines()]


def section(heading) -> tuple:
    text = (ROOT / "docs/adding.md").read_text()
    found = re.search(rf"^## {heading}: (\d+) source files.*?\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    assert found, f"docs/adding.md has no section \"{heading}: N source files\""
    return int(found[1]), found[2]


def test_there_is_a_section_for_each_patch():
    assert {path.stem for path in FOLDER.glob("*.patch")} == set(SECTIONS)


@pytest.mark.parametrize("name", SECTIONS)
def test_a_patch_touches_the_files_that_are_said(name):
    patch = FOLDER / f"{name}.patch"
    git("apply", "--check", patch)
    sources = [path for path in files_of(patch) if path.startswith(SOURCES)]
    count, text = section(SECTIONS[name])
    assert len(sources) == count
    assert [path for path in sources if f"`{path}`" not in text] == []


@pytest.mark.skipif(not LONG, reason="builds everything: AC_TEST_LONG=1")
def test_what_patches_add_passes_the_tests_of_such_things(tmp_path):
    for path in git("ls-files").split():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    for name in SECTIONS:
        git("apply", FOLDER / f"{name}.patch", cwd=tmp_path)
    build = ["scripts/build.sh", "release", "unit_tests"]
    subprocess.run(build, cwd=tmp_path, check=True, env=users_environment())
    subprocess.run(["build/release/unit_tests", f"--source-file={TESTS}"], cwd=tmp_path, check=True)
