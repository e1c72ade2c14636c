"""Runs a package with nothing but what is in it: program.json replayed through the C functions of its
own library, as its README.md says, with numpy for memory and safetensors for the weights. It is no part
of AgentCompile, and knows nothing of it: that is the point."""

import ctypes
import json
import struct
from pathlib import Path

import numpy as np
from safetensors import safe_open

BYTES = {"f32": 4, "f16": 2, "bf16": 2, "i32": 4, "i64": 8}


def count(value, tokens: int) -> int:
    if isinstance(value, int):
        return value
    size = value["fixed"] + value["per_token"] * tokens
    size = value.get("times", 1) * -(-size // value.get("per", 1))
    return min(size, value["at_most"]) if value.get("at_most") else size


def memory(size: int) -> np.ndarray:
    """Bytes at a multiple of 256, full of NaN: whatever is read must have been written."""
    whole = np.full(size + 256, 0xFF, np.uint8)
    start = -whole.ctypes.data % 256
    return whole[start : start + size]


def stored(path: Path) -> dict:
    """Of a file or a checkpoint's folder: name -> bytes."""
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    tensors = {}
    for file in files:
        with safe_open(file, "np") as reader:
            tensors.update({key: reader.get_tensor(key) for key in reader.keys()})
    return tensors


class Package:
    def __init__(self, folder: Path):
        self.program = json.loads((folder / "program.json").read_text())
        (library,) = folder.glob("lib*_kernels.so")
        self.library = ctypes.CDLL(str(library))
        self.error = getattr(self.library, f"{library.name[3:-len('_kernels.so')]}_error")
        self.error.restype = ctypes.c_char_p
        self.position = 0
        weights = {
            name: stored(folder / path) for name, path in self.program["stores"].items()
        }  # an absolute path stays
        constants = np.frombuffer((folder / "constants.bin").read_bytes(), np.uint8)
        arena = memory(self.program["arena_bytes"])
        self.longest_step = max(phase["max_tokens"] for phase in self.program["phases"])
        self.buffers = []
        for buffer in self.program["buffers"]:
            size = count(buffer["bytes"], self.longest_step)
            role = buffer["role"]
            if role == "scratch":
                # Beyond the arena's end lies nothing: numpy would cut it short.
                data = arena[buffer["offset"] : buffer["offset"] + size]
                assert len(data) == size
            else:
                data = memory(max(size, 1))
            if role == "weight":
                tensor = weights[buffer["store"]][buffer["key"]]
                assert list(tensor.shape) == buffer["shape"]
                data[:size] = np.ascontiguousarray(tensor).view(np.uint8).reshape(-1)
            elif role == "constant":
                data[:size] = constants[buffer["offset"] :][:size]
            elif role == "counters":
                data[:] = 0
            elif role == "until":  # no step ends the text
                data[:] = np.array([-1] + [0] * 15, np.int32).view(np.uint8)
            elif role == "rope_table":
                source = self.program["buffers"][buffer["source"]]
                frequencies = constants[source["offset"] :][: source["bytes"]].view(np.float32)
                angles = np.outer(np.arange(self.program["max_context"]), frequencies.astype(float))
                table = np.stack([np.cos(angles), np.sin(angles)], -1) * buffer["scale"]
                data[:size] = table.astype(np.float32).view(np.uint8).reshape(-1)
            self.buffers.append(data)

    def launch(self, launch: dict, tokens: int) -> None:
        params = bytearray.fromhex(launch["params"])
        for at, buffer, offset in launch["pointers"]:
            address = self.buffers[buffer].ctypes.data + count(offset, tokens)
            params[at : at + 8] = address.to_bytes(8, "little")
        for at, size, value in launch["numbers"]:
            params[at : at + size] = count(value, tokens).to_bytes(size, "little", signed=True)
        for m in launch["maps"]:
            base = self.buffers[m["buffer"]].ctypes.data + count(m["offset"], tokens)
            view = (base, count(m["rows"], tokens), m["columns"], m["pitch"])
            box = (m["box_rows"], m["box_panels"], m["dtype"] == "bf16")
            encoded = struct.pack("<4q3i84x", *view, *box)
            params[m["at"] : m["at"] + 128] = encoded
        kernel = launch["kernel"]
        assert getattr(self.library, f"{kernel}_params_bytes")() == len(params)
        grid = [count(size, tokens) for size in launch["grid"]]
        code = getattr(self.library, f"{kernel}_launch")(
            bytes(params), *grid, launch["threads"], launch["shared_bytes"], None
        )
        assert code == 0, self.error(code)

    def phase_of(self, tokens: int, rows: str) -> dict:
        phases = [p for p in self.program["phases"] if p["rows"] == rows]
        fits = [p for p in phases if p["min_tokens"] <= tokens <= p["max_tokens"]]
        return max((p for p in fits if p["from"] <= self.position), key=lambda p: p["from"])

    def step(self, ids: list, rows: str = "last") -> int:
        """One step of these tokens; returns the token that it chooses."""
        phase = self.phase_of(len(ids), rows)
        wide = self.program["buffers"][phase["ids"]]["dtype"] == "i64"
        raw = np.array(ids, np.int64 if wide else np.int32).view(np.uint8)
        self.buffers[phase["ids"]][: len(raw)] = raw
        for buffer, data in zip(self.program["buffers"], self.buffers):
            if buffer["role"] == "position":
                data[:4] = np.array([self.position], np.int32).view(np.uint8)
        for launch in phase["launches"]:
            self.launch(launch, len(ids))
        self.position += len(ids)
        self.last = phase
        token = next(
            data
            for buffer, data in zip(self.program["buffers"], self.buffers)
            if buffer["role"] == "token"
        )
        return int(token[:4].view(np.int32)[0])

    def logits(self, row: int = 0) -> np.ndarray:
        """After the last step; of a row, where it has all."""
        index = self.last["logits"]
        dtype = {"f32": np.float32, "f16": np.float16}[self.program["buffers"][index]["dtype"]]
        vocab = self.program["vocab"]
        return self.buffers[index].view(dtype)[row * vocab : (row + 1) * vocab].copy()

    def generate(self, prompt: list, new_tokens: int) -> list:
        for at in range(0, len(prompt), self.longest_step):
            token = self.step(prompt[at : at + self.longest_step])
        tokens = [token]
        while len(tokens) < new_tokens:
            tokens.append(self.step(tokens[-1:]))
        return tokens
