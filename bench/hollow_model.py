#!/usr/bin/env python3
"""Makes a model of a geometry and a format of weights, without the weights: enough to compile it, and to measure the
package with random ones.

    hollow_model.py CONFIG FORMAT OUT

CONFIG is the config.json of a model in 16 bits. OUT becomes a folder with a config.json, or with gguf-TYPE a GGUF file
whose matrices have that type and are zeros that take no disk."""

import json
import struct
import sys
from pathlib import Path


def compressed(form, **weights):
    weights = dict(dynamic=False, symmetric=True, **weights)
    group = dict(targets=["Linear"], weights=weights, input_activations=None, output_activations=None)
    return dict(quant_method="compressed-tensors", format=form, config_groups=dict(group_0=group), ignore=["lm_head"])


def whole(bits, group=None):
    blocks = dict(strategy="group", group_size=group) if group else dict(strategy="channel")
    return compressed("pack-quantized", num_bits=bits, type="int", **blocks)


FORMATS = {
    "plain": None,
    "fp8-blocks": dict(quant_method="fp8", activation_scheme="dynamic", weight_block_size=[128, 128]),
    "fp8-rows": compressed("float-quantized", num_bits=8, type="float", strategy="channel"),
    "int8": whole(8),
    "int4-g128": whole(4, 128),
    "int4-g32": whole(4, 32),
    "awq": dict(quant_method="awq", version="gemm", bits=4, group_size=128, zero_point=True),
    "gptq": dict(quant_method="gptq", bits=4, group_size=128, desc_act=False, sym=False),
    "nvfp4": compressed("nvfp4-pack-quantized", num_bits=4, type="float", strategy="tensor_group", group_size=16),
    "mxfp4": compressed("mxfp4-pack-quantized", num_bits=4, type="float", strategy="group", group_size=32),
}

# As ggml numbers them: elements and bytes of a block.
TYPES = {
    "Q4_0": (2, 32, 18),
    "Q8_0": (8, 32, 34),
    "Q4_K": (12, 256, 144),
    "Q5_K": (13, 256, 176),
    "Q6_K": (14, 256, 210),
}
F32 = (0, 1, 4)
U32, FLOAT32, STRING = 4, 6, 8  # kinds of metadata
ALIGNMENT = 32


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def field(key: str, value) -> bytes:
    if isinstance(value, str):
        return text(key) + struct.pack("<I", STRING) + text(value)
    kind, form = (FLOAT32, "<f") if isinstance(value, float) else (U32, "<I")
    return text(key) + struct.pack("<I", kind) + struct.pack(form, value)


def tensors_of(config: dict, matrix: tuple):
    """Names, types and shapes, the innermost axis first."""
    hidden, wide, vocabulary = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    head = config.get("head_dim") or hidden // config["num_attention_heads"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    yield "token_embd.weight", matrix, (hidden, vocabulary)
    for layer in range(config["num_hidden_layers"]):
        yield from (
            (f"blk.{layer}.{name}.weight", matrix if len(shape) == 2 else F32, shape)
            for name, shape in {
                "attn_norm": (hidden,),
                "attn_q": (hidden, queries),
                "attn_k": (hidden, keys),
                "attn_v": (hidden, keys),
                "attn_output": (queries, hidden),
                "ffn_norm": (hidden,),
                "ffn_gate": (hidden, wide),
                "ffn_up": (hidden, wide),
                "ffn_down": (wide, hidden),
                **({"attn_q_norm": (head,), "attn_k_norm": (head,)} if config["model_type"] == "qwen3" else {}),
            }.items()
        )
    yield "output_norm.weight", F32, (hidden,)
    if not config.get("tie_word_embeddings"):
        yield "output.weight", matrix, (hidden, vocabulary)


def write_gguf(config: dict, type_name: str, out: Path) -> None:
    arch = config["model_type"]
    if arch not in ("llama", "qwen3"):
        sys.exit(f"hollow_model.py: no GGUF file of model_type {arch}: llama and qwen3 are known")
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    said = {
        "general.architecture": arch,
        f"{arch}.context_length": config["max_position_embeddings"],
        f"{arch}.embedding_length": config["hidden_size"],
        f"{arch}.block_count": config["num_hidden_layers"],
        f"{arch}.feed_forward_length": config["intermediate_size"],
        f"{arch}.vocab_size": config["vocab_size"],
        f"{arch}.attention.head_count": config["num_attention_heads"],
        f"{arch}.attention.head_count_kv": config["num_key_value_heads"],
        f"{arch}.attention.key_length": head,
        f"{arch}.attention.value_length": head,
        f"{arch}.attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
        f"{arch}.rope.freq_base": float(config["rope_theta"]),
    }
    infos, offset, count = b"", 0, 0
    for name, (number, elements, size), shape in tensors_of(config, TYPES[type_name]):
        if shape[0] % elements:
            sys.exit(f"hollow_model.py: {name} has rows of {shape[0]}, which are no whole blocks of {type_name}")
        infos += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, number, offset)
        offset += shape[0] // elements * size * (shape[1] if len(shape) == 2 else 1)
        offset += -offset % ALIGNMENT
        count += 1
    header = b"GGUF" + struct.pack("<IQQ", 3, count, len(said)) + b"".join(field(*each) for each in said.items()) + infos
    header += bytes(-len(header) % ALIGNMENT)
    with open(out, "wb") as file:
        file.write(header)
        file.truncate(len(header) + offset)


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    config, form, out = json.loads(Path(sys.argv[1]).read_text()), sys.argv[2], Path(sys.argv[3])
    if form.removeprefix("gguf-") in TYPES:
        write_gguf(config, form.removeprefix("gguf-"), out)
    elif form in FORMATS:
        if FORMATS[form]:
            config["quantization_config"] = FORMATS[form]
        out.mkdir(parents=True, exist_ok=True)
        (out / "config.json").write_text(json.dumps(config, indent=1))
    else:
        known = ", ".join([*FORMATS, *(f"gguf-{name}" for name in TYPES)])
        sys.exit(f"hollow_model.py: {form} is no format: {known} are known")


if __name__ == "__main__":
    main()
