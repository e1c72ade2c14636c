"""Where cuBLASLt is looked for, and what is said of one that is missing or no use."""

import json
import os
import subprocess

import pytest
from compiled import PROGRAM

FUNCTIONS = [
    "cublasLtCreate",
    "cublasLtDestroy",
    "cublasLtMatmulDescCreate",
    "cublasLtMatmulDescDestroy",
    "cublasLtMatmulDescSetAttribute",
    "cublasLtMatrixLayoutCreate",
    "cublasLtMatrixLayoutDestroy",
    "cublasLtMatmulPreferenceCreate",
    "cublasLtMatmulPreferenceDestroy",
    "cublasLtMatmulPreferenceSetAttribute",
    "cublasLtMatmulAlgoGetHeuristic",
    "cublasLtMatmulAlgoCheck",
    "cublasLtMatmul",
    "cublasLtGetStatusName",
]


@pytest.fixture
def library(tmp_path):
    """Makes a library that says it is this version."""

    def make(file, version, functions=FUNCTIONS):
        source = tmp_path / "library.c"
        text = [f"int {name}(void) {{ return 0; }}" for name in functions]
        text.append(f"unsigned long cublasLtGetVersion(void) {{ return {version}; }}")
        source.write_text("\n".join(text))
        file.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cc", "-shared", "-fPIC", source, "-o", file], check=True)
        return file

    return make


def devices(folder, **environment):
    """In an empty folder, so that no environment is found there."""
    result = subprocess.run(
        [PROGRAM, "devices", "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "CUDA_HOME": "", "AC_CUBLASLT": "", **environment},
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_a_named_library_is_the_one(library, tmp_path):
    file = library(tmp_path / "my-cublas.so", 130203)
    assert devices(tmp_path, AC_CUBLASLT=str(file))["cublaslt"] == "13.2.3"
    text = subprocess.run(
        [PROGRAM, "devices"], env={**os.environ, "AC_CUBLASLT": file}, capture_output=True, text=True
    ).stdout
    assert "cuBLASLt 13.2.3" in text


def test_a_named_library_that_is_no_use_is_an_error_and_no_other_is_taken(library, tmp_path):
    good = library(tmp_path / "home/lib64/libcublasLt.so.13", 130000)
    home = {"CUDA_HOME": str(tmp_path / "home")}
    assert devices(tmp_path, **home)["cublaslt"] == "13.0.0"
    for file, reason in [
        (tmp_path / "absent.so", "absent.so"),
        (library(tmp_path / "old.so", 110500), "11.5.0"),
        (library(tmp_path / "half.so", 130000, FUNCTIONS[:3]), "half.so"),
    ]:
        report = devices(tmp_path, AC_CUBLASLT=str(file), **home)
        assert report["cublaslt"] == ""
        assert "AC_CUBLASLT" in report["why_no_cublaslt"] and reason in report["why_no_cublaslt"]
    other = tmp_path / "other.so"
    source = tmp_path / "other.c"
    source.write_text("int f(void) { return 0; }")
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", other], check=True)
    assert "is no cuBLASLt" in devices(tmp_path, AC_CUBLASLT=str(other))["why_no_cublaslt"]
    assert good.exists()


@pytest.mark.parametrize("package", ["cu13", "cublas"])
def test_packages_of_the_python_in_the_path_are_searched(package, library, tmp_path):
    library(
        tmp_path / f"env/lib/python3.11/site-packages/nvidia/{package}/lib/libcublasLt.so.12", 120405
    )
    python = tmp_path / "env/bin/python3"
    python.parent.mkdir(parents=True)
    python.symlink_to("/bin/true")
    path = f"{python.parent}:{os.environ['PATH']}"
    assert devices(tmp_path, PATH=path)["cublaslt"] == "12.4.5"


def test_an_old_library_is_passed_over_and_named(library, tmp_path):
    old = library(tmp_path / "home/lib64/libcublasLt.so.11", 110500)
    report = devices(tmp_path, CUDA_HOME=str(tmp_path / "home"), PATH=str(tmp_path))
    if report["cublaslt"]:
        pytest.skip("this machine has a cuBLASLt in a place that no variable names")
    assert "no cuBLASLt" in report["why_no_cublaslt"]
    assert str(old) in report["why_no_cublaslt"] and "11.5.0" in report["why_no_cublaslt"]
    assert "AC_CUBLASLT" in report["why_no_cublaslt"]
