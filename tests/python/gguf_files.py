"""GGUF files of tiny models, by llama.cpp's own package: what its converter does to tensors is done here."""

from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from gguf import TokenType

OUTSIDE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
IN_LAYERS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
GEMMA = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def gguf_name(name: str, arch: str) -> str:
    module, kind = name.rsplit(".", 1)
    if module in OUTSIDE:
        return f"{OUTSIDE[module]}.{kind}"
    layer, module = module.removeprefix("model.layers.").split(".", 1)
    names = {**IN_LAYERS, **(GEMMA if arch == "gemma3" else {})}
    return f"blk.{layer}.{names[module]}.{kind}"


def reorder(weight: np.ndarray, heads: int) -> np.ndarray:
    half = weight.shape[0] // heads // 2
    return weight.reshape(heads, 2, half, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def blocks(rng: np.random.Generator, shape: tuple, kind: Type) -> np.ndarray:
    """Random blocks, of elements that are small and lie about 0."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    data = rng.integers(0, 256, (shape[0], shape[1] // elements, size), dtype=np.uint8)
    # Where the scales are; of those with a minimum, what it is to be of the scale: the middle of the codes.
    places = {Type.Q2_K: (80, 1.5), Type.Q3_K: (108, 0), Type.Q4_K: (0, 7.5), Type.Q5_K: (0, 15.5), Type.Q6_K: (208, 0)}
    place, middle = places[kind]
    scale = rng.uniform(0.5, 1, data.shape[:2]) * (2e-3 if middle in (0, 1.5) else 2e-4)
    for at, value in ((place, scale), *([(place + 2, scale * middle)] if middle else [])):
        data[..., at : at + 2] = value.astype(np.float16)[..., None].view(np.uint8)
    if kind == Type.Q6_K:
        data[..., 192:208] = rng.integers(-4, 5, (*data.shape[:2], 16), dtype=np.int8).view(np.uint8)
    return data.reshape(shape[0], -1)


def config_keys(writer, arch: str, config) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
        if rope["rope_type"] == "yarn":
            writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if arch == "gemma3":
        writer.add_sliding_window(config.sliding_window)


def write(path: Path, model: torch.nn.Module, arch: str, kind=Type.F32, tokenizer=None, change=None) -> None:
    """Writes the model's file. Its matrices get `kind`, or what it is of their names, and the model their values."""
    config, rng = model.config, np.random.default_rng(5)
    writer = gguf.GGUFWriter(path, arch)
    config_keys(writer, arch, config)
    if tokenizer:
        tokenizer(writer)
    if change:
        change(writer)
    rope = config.rope_parameters
    if rope.get("rope_type") == "llama3":
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        scaled = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")[0].numpy()
        plain = 1.0 / rope["rope_theta"] ** (np.arange(0, 2 * scaled.size, 2, dtype=np.float32) / (2 * scaled.size))
        writer.add_tensor("rope_freqs.weight", (plain / scaled).astype(np.float32))
    kind_of = kind if callable(kind) else lambda name: kind
    for name, weight in model.named_parameters():
        kind = kind_of(name)
        data = weight.detach().float().numpy()
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
        heads = heads.get(name.split(".")[-2]) if arch in ("llama", "smollm3") else None
        if arch == "gemma3" and name.endswith("norm.weight"):
            data = data + 1
        if data.ndim < 2 or kind == Type.F32 or data.shape[1] % gguf.GGML_QUANT_SIZES[kind][0]:
            writer.add_tensor(gguf_name(name, arch), reorder(data, heads) if heads else data)
            continue
        # The package packs no K-quants, and reads them.
        packed = blocks(rng, data.shape, kind) if kind.name.endswith("_K") else gguf.quantize(data, kind)
        weight.data = torch.from_numpy(np.array(gguf.dequantize(packed, kind))).to(weight.dtype)
        writer.add_tensor(gguf_name(name, arch), reorder(packed, heads) if heads else packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_byte_tokenizer(writer, document: dict, pre: str, template=None, bos=None, eos=None) -> None:
    """What a tokenizer.json says, as the converter writes it."""
    ids = {**document["model"]["vocab"], **{one["content"]: one["id"] for one in document["added_tokens"]}}
    special = {one["content"]: one["special"] for one in document["added_tokens"]}
    tokens = sorted(ids, key=ids.get)
    kinds = [(TokenType.CONTROL if special[t] else TokenType.USER_DEFINED) if t in special else TokenType.NORMAL for t in tokens]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in document["model"]["merges"]])
    if bos is not None:
        writer.add_bos_token_id(ids[bos])
        writer.add_add_bos_token(True)
    if eos is not None:
        writer.add_eos_token_id(ids[eos])
    if template:
        writer.add_chat_template(template)


def add_scored_tokenizer(writer, document: dict) -> None:
    """The same of pieces with scores: the earlier a piece comes, the higher is its score."""
    ids = document["model"]["vocab"]
    tokens = sorted(ids, key=ids.get)
    order = {"".join(pair): -float(i) for i, pair in reversed(list(enumerate(document["model"]["merges"])))}
    kinds = [TokenType.UNKNOWN if t == "<unk>" else TokenType.BYTE if t.startswith("<0x") else TokenType.NORMAL for t in tokens]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores([order.get(token, -1e6) for token in tokens])
    writer.add_token_types(kinds)
    writer.add_unk_token_id(ids["<unk>"])
    writer.add_add_bos_token(False)
