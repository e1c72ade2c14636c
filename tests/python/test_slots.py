"""Packages whose steps can have several sequences: every command that reads a package takes them."""

import json

import pytest
import once
from compiled import compile_package, program

CASES = ("llama_gqa", "gemma2_softcap")


@pytest.fixture(scope="module", params=CASES)
def source(request, tmp_path_factory):
    return once.source(tmp_path_factory, request.param)


@pytest.fixture(scope="module")
def package(source, tmp_path_factory):
    package = tmp_path_factory.mktemp("slots") / "package"
    compile_package(source, package, "--unmeasured", "--slots", 3)
    return package


def test_products_read_weights_once(package):
    of = json.loads((package / "program.json").read_text())
    phases = [phase for phase in of["phases"] if phase["rows"] == "each"]
    assert [(phase["name"], phase["min_tokens"], phase["max_tokens"]) for phase in phases] == [("together 2", 1, 2), ("together 3", 3, 3)]
    for phase in phases:
        alone = {launch["kernel"] for launch in phase["launches"] if launch.get("each_row")}
        together = {launch["kernel"] for launch in phase["launches"] if not launch.get("each_row")}
        assert any(kernel.startswith("gemv") for kernel in together)
        assert not any(kernel.startswith("gemv") for kernel in alone)
        assert any("attend" in kernel or "attention" in kernel for kernel in alone)


def test_it_is_checked_and_verified(package):
    checked = json.loads((package / "plan.json").read_text())["check"]
    assert checked["done"] and not checked["fault"]
    result = json.loads(program("verify", package, "--json").stdout)
    assert result["whole"]["done"] and not result["whole"]["fault"] and result["ok"]


def test_it_is_shown(package, tmp_path):
    for stage in ("regions", "candidates", "verdicts", "selection", "stats"):
        assert "together 3" in program("inspect", package, "--stage", stage).stdout
        json.loads(program("inspect", package, "--stage", stage, "--json").stdout)
    program("report", package, "-o", tmp_path / "report.html")
    assert "together 3" in (tmp_path / "report.html").read_text()


def test_too_many(source, tmp_path):
    result = program("compile", source, "-o", tmp_path / "p", "--chunk", 4, "--slots", 5, expect=2)
    assert "--slots 5" in result.stderr and "--chunk" in result.stderr
