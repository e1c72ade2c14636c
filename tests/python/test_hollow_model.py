"""Models without weights, which GPUs are measured with: each is in the format that was asked for."""

import json
import subprocess
import sys

import pytest
from compiled import ROOT, program

MAKE = ROOT / "bench/hollow_model.py"
QWEN3, LLAMA = (ROOT / f"tests/data/configs/{name}.json" for name in ("qwen3-1.7b", "llama-3.1-8b"))
FORMATS = {
    "plain": None,
    "fp8-blocks": "e4m3_128x128",
    "fp8-rows": "e4m3_row",
    "int8": "u8_row",
    "int4-g128": "u4_g128_bf16",
    "int4-g32": "u4_g32_bf16",
    "awq": "u4_g128_bf16_zeros",
    "gptq": "u4_g128_bf16_zeros",
    "nvfp4": "e2m1_g16_f8e4m3_global",
    "mxfp4": "e2m1_g32_f8e8m0",
    "gguf-Q4_0": "u4_g32_f16",
    "gguf-Q8_0": "u8_g32_f16",
    "gguf-Q4_K": "u4_g32_i8_in256_minima",
    "gguf-Q5_K": "u5_g32_i8_in256_minima",
    "gguf-Q6_K": "u6_g16_i8_in256",
}


def make(config, form, out):
    return subprocess.run([sys.executable, MAKE, config, form, out], capture_output=True, text=True)


@pytest.mark.parametrize("form", FORMATS)
def test_weights_are_in_the_format(form, tmp_path):
    for config in QWEN3, LLAMA:
        out = tmp_path / (f"{config.stem}.gguf" if form.startswith("gguf") else config.stem)
        result = make(config, form, out)
        assert result.returncode == 0, result.stderr
        if out.suffix == ".gguf":
            assert out.stat().st_blocks * 512 < 1 << 20, "weights take no disk"
        graph = program("inspect", out, "--stage", "graph").stdout.splitlines()
        weights = [line for line in graph if "= weight {" in line and "_proj" in line and "norm" not in line]
        layers = json.loads(config.read_text())["num_hidden_layers"]
        assert len(weights) == 7 * layers
        wanted = f'format="{FORMATS[form]}"' if FORMATS[form] else None
        assert all(wanted in line if wanted else "format=" not in line for line in weights)


def test_what_cannot_be_made(tmp_path):
    result = make(QWEN3, "int3", tmp_path / "model")
    assert result.returncode == 1 and "int3 is no format" in result.stderr and "gguf-Q4_K" in result.stderr
    config = tmp_path / "config.json"
    config.write_text(json.dumps(json.loads(QWEN3.read_text()) | {"intermediate_size": 6000}))
    result = make(config, "gguf-Q4_K", tmp_path / "model.gguf")
    assert result.returncode == 1 and "blk.0.ffn_down.weight has rows of 6000" in result.stderr
    assert not (tmp_path / "model.gguf").exists()
