"""Tiny random models of every architecture and variant that AgentCompile takes, and the truth about
each of them: what transformers or PyTorch computes in float32, with no cache.

    python tests/python/tiny_models.py OUT [--case NAME]

writes OUT/NAME/ for each case: a HuggingFace folder, or model.py with a factory for a plain PyTorch
decoder, and expected.json with {"ids", "last_logits", "generated", "gaps"}.
"""

import argparse
import importlib.util
import json
import os
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import plain_decoders
import torch
import transformers

PROMPT_LENGTH, NEW_TOKENS = 41, 24

BASE = dict(
    vocab_size=211,
    hidden_size=64,
    intermediate_size=112,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 3.0}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 50000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN_FULL = {
    **YARN,
    "beta_fast": 16.0,
    "beta_slow": 2.0,
    "attention_factor": 1.25,
    "truncate": False,
}
SLIDING, FULL = "sliding_attention", "full_attention"


@dataclass
class Case:
    family: str  # transformers' class prefix; "" for a plain decoder
    config: dict = field(default_factory=dict)
    dtype: torch.dtype = torch.float32
    shard: str | None = None  # max_shard_size
    old_rope: bool = False  # spell RoPE as rope_theta + rope_scaling in config.json


def _native(family: str, **extra) -> dict:
    """The variants that Llama, Mistral, Qwen2 and Qwen3 share."""
    return {
        "gqa": Case(family, extra),
        "mha_tied": Case(family, dict(extra, num_key_value_heads=4, tie_word_embeddings=True)),
        "mqa_head_dim": Case(family, dict(extra, num_key_value_heads=1, head_dim=24)),
        "float16": Case(family, extra, dtype=torch.float16),
        "bfloat16_sharded": Case(family, extra, dtype=torch.bfloat16, shard="40KB"),
        "linear": Case(family, dict(extra, rope_parameters=LINEAR)),
        "llama3": Case(family, dict(extra, rope_parameters=LLAMA3)),
        "yarn": Case(family, dict(extra, rope_parameters=YARN)),
        "old_theta": Case(family, dict(extra, rope_theta=70000.0), old_rope=True),
        "old_llama3": Case(family, dict(extra, rope_parameters=LLAMA3), old_rope=True),
        "old_yarn": Case(family, dict(extra, rope_parameters=YARN_FULL), old_rope=True),
    }


def _cases() -> dict:
    window = dict(sliding_window=16)
    qwen_window = dict(use_sliding_window=True, sliding_window=16, num_hidden_layers=3)
    variants = {
        "llama": {
            **_native("Llama"),
            "attention_bias": Case("Llama", dict(attention_bias=True)),
            "all_biases": Case(
                "Llama", dict(attention_bias=True, mlp_bias=True, hidden_act="gelu")
            ),
            "sharded": Case("Llama", shard="60KB"),
            "one_layer": Case("Llama", dict(num_hidden_layers=1)),  # where size proves nothing
        },
        "mistral": {
            **_native("Mistral", sliding_window=None),
            "window": Case("Mistral", window),
            "window_head_dim": Case("Mistral", dict(window, head_dim=24, num_key_value_heads=1)),
        },
        "qwen2": {
            **_native("Qwen2"),
            "window": Case("Qwen2", dict(qwen_window, max_window_layers=1)),
            "window_all": Case("Qwen2", dict(qwen_window, max_window_layers=0)),
            "layer_types": Case("Qwen2", dict(qwen_window, layer_types=[SLIDING, FULL, SLIDING])),
        },
        "qwen3": {
            **_native("Qwen3", head_dim=16),
            "attention_bias": Case("Qwen3", dict(head_dim=16, attention_bias=True)),
            # Sizes that all layers in one launch take.
            "layers": Case("Qwen3", dict(head_dim=64, intermediate_size=192), torch.bfloat16),
            # The same with weights of 4 bits.
            "layers_of_codes": Case(
                "Qwen3", dict(hidden_size=256, head_dim=64, intermediate_size=512), torch.bfloat16
            ),
            "window": Case("Qwen3", dict(qwen_window, head_dim=32, max_window_layers=2)),
            "layer_types": Case(
                "Qwen3", dict(qwen_window, head_dim=16, layer_types=[FULL, SLIDING, FULL])
            ),
        },
        "gemma2": {
            "softcap": Case("Gemma2", dict(window, head_dim=16, query_pre_attn_scalar=24)),
            "bfloat16": Case("Gemma2", dict(window, head_dim=24), dtype=torch.bfloat16),
            "no_cap": Case(
                "Gemma2",
                dict(
                    window, head_dim=16, attn_logit_softcapping=None, final_logit_softcapping=None
                ),
            ),
        },
        "gemma3": {
            "text": Case("Gemma3", dict(window, head_dim=16, num_hidden_layers=3)),
            "layer_types": Case(
                "Gemma3", dict(window, head_dim=24, layer_types=[SLIDING, FULL]), torch.bfloat16
            ),
            "old_rope": Case(
                "Gemma3",
                dict(
                    window,
                    head_dim=16,
                    num_hidden_layers=3,
                    sliding_window_pattern=2,
                    final_logit_softcapping=8.0,
                    query_pre_attn_scalar=24,
                    rope_parameters={FULL: LINEAR, SLIDING: {"rope_type": "default", "rope_theta": 500.0}},
                ),
                old_rope=True,
            ),
        },
        "smollm3": {
            "no_rope": Case("SmolLM3", dict(num_hidden_layers=4, attention_bias=True)),
            "window": Case(
                "SmolLM3",
                dict(
                    num_hidden_layers=3,
                    no_rope_layers=[0, 1, 0],
                    use_sliding_window=True,
                    sliding_window=16,
                    rope_theta=70000.0,
                ),
                torch.bfloat16,
            ),
        },
        "phi3": {
            "fused": Case("Phi3", dict(window, tie_word_embeddings=False)),
            "partial": Case(
                "Phi3",
                dict(
                    sliding_window=None,
                    rope_parameters={
                        "rope_type": "default",
                        "rope_theta": 10000.0,
                        "partial_rotary_factor": 0.5,
                    },
                ),
            ),
        },
        "olmo2": {
            "post_norm": Case("Olmo2"),
            "tied": Case("Olmo2", dict(tie_word_embeddings=True)),
        },
        "gpt2": {
            "tied": Case("GPT2"),
            "untied": Case(
                "GPT2", dict(tie_word_embeddings=False, scale_attn_by_inverse_layer_idx=True)
            ),
        },
    }
    cases = {}
    for family, named in variants.items():
        cases.update({f"{family}_{name}": case for name, case in named.items()})
    cases.update({name: Case("") for name in plain_decoders.MODELS})
    return cases


CASES = _cases()

# What the Python capture is tested on: all that only it can take, and each thing that a native config
# can state once. AC_TEST_ALL=1 captures every case.
TO_CAPTURE = [
    "llama_all_biases",
    "llama_bfloat16_sharded",
    "llama_linear",
    "llama_mha_tied",
    "llama_mqa_head_dim",
    "llama_old_llama3",
    "llama_yarn",
    "mistral_float16",
    "mistral_window_head_dim",
    "qwen2_window",
    "qwen3_attention_bias",
    "qwen3_layer_types",
    "gemma3_layer_types",
    "gemma3_old_rope",
    "smollm3_no_rope",
    "smollm3_window",
]


def is_native(name: str) -> bool:
    return CASES[name].family in ("Llama", "Mistral", "Qwen2", "Qwen3", "SmolLM3", "Gemma3")


TO_CAPTURE += [name for name in CASES if not is_native(name)]
if os.environ.get("AC_TEST_ALL"):
    TO_CAPTURE = list(CASES)

# The cases of TO_CAPTURE that every run captures: each family that only Python takes, each style of attention, and
# what differs most among the others. AC_TEST_LONG=1 captures all.
CAPTURED_OFTEN = [
    "llama_all_biases",
    "llama_bfloat16_sharded",
    "llama_old_llama3",
    "qwen2_window",
    "gemma3_old_rope",
    "gemma2_softcap",
    "phi3_partial",
    "olmo2_tied",
    "gpt2_tied",
    "plain_handnorm_rope_gqa",
    "plain_nanogpt",
    "plain_sdpa_mask",
]


def _gpt2_config(config: dict) -> dict:
    names = {
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions",
        "intermediate_size": "n_inner",
    }
    config = {names.get(key, key): value for key, value in config.items()}
    config.pop("num_key_value_heads")
    return config


def build(name: str) -> torch.nn.Module:
    """The model of a case, with weights that are far from degenerate: norms near but never at
    their neutral value, every bias in use, logits some units apart."""
    case = CASES[name]
    if not case.family:
        return plain_decoders.build(name)
    config = {**BASE, **case.config}
    theta = config.pop("rope_theta", None)
    if theta:
        config["rope_parameters"] = {"rope_type": "default", "rope_theta": theta}
    if case.family == "GPT2":
        config = _gpt2_config(config)
        model_class, config_class = transformers.GPT2LMHeadModel, transformers.GPT2Config
    else:
        text = "TextConfig" if case.family == "Gemma3" else "Config"
        model_class = getattr(transformers, f"{case.family}ForCausalLM")
        config_class = getattr(transformers, case.family + text)
    config.setdefault("tie_word_embeddings", case.family in ("Gemma2", "Gemma3", "GPT2"))
    model = model_class(config_class(**config)).eval()
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    neutral = 0.0 if case.family.startswith("Gemma") else 1.0
    # A tied head with large embeddings only ever repeats the last token (Gemma scales them up).
    embedding = 0.15 if model.config.tie_word_embeddings else 0.5
    embedding = 0.04 if neutral == 0.0 else embedding
    with torch.no_grad():
        for path, weight in model.named_parameters():
            if weight.dim() == 1:
                is_scale = path.endswith("weight")
                weight.normal_(neutral if is_scale else 0.0, 0.2, generator=generator)
            elif "embed" in path or "wte" in path or "wpe" in path:
                weight.normal_(0.0, embedding, generator=generator)
            else:
                fan_in = weight.shape[0] if case.family == "GPT2" else weight.shape[1]
                weight.normal_(0.0, 1.5 * fan_in**-0.5, generator=generator)
    return model.to(case.dtype)


def write_case(name: str, folder) -> Path:
    """Writes the model of a case into a folder and returns the SOURCE that names it."""
    case, folder = CASES[name], Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if not case.family:
        text = Path(plain_decoders.__file__).read_text()
        source = folder / "model.py"
        source.write_text(f'{text}\n\ndef factory():\n    return build("{name}"), VOCAB\n')
        return source
    sharding = {"max_shard_size": case.shard} if case.shard else {}
    build(name).save_pretrained(folder, **sharding)
    if case.old_rope:
        file = folder / "config.json"
        config = json.loads(file.read_text())
        rope = config.pop("rope_parameters")
        if case.family == "Gemma3":
            config["rope_local_base_freq"] = rope[SLIDING]["rope_theta"]
            config["sliding_window_pattern"] = case.config["sliding_window_pattern"]
            del config["layer_types"]
            rope = rope[FULL]
        config["rope_theta"] = rope.pop("rope_theta")
        config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
        config["torch_dtype"] = config.pop("dtype")
        file.write_text(json.dumps(config, indent=2))
    return folder


def load_float32(name: str, folder) -> torch.nn.Module:
    """The written case as transformers or Python loads it, in float32, with its own attention."""
    if CASES[name].family:
        return transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        ).eval()
    spec = importlib.util.spec_from_file_location(f"case_{name}", Path(folder) / "model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.factory()[0].eval()


def logits_of(model: torch.nn.Module, ids: list) -> torch.Tensor:
    """Logits of every token, recomputed from the beginning."""
    with torch.no_grad():
        if isinstance(model, transformers.PreTrainedModel):
            return model(torch.tensor([ids]), use_cache=False).logits[0].float()
        return model(torch.tensor([ids]))[0].float()


def prompt(name: str, length: int = PROMPT_LENGTH) -> list:
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()) + 1)
    vocab = BASE["vocab_size"] if CASES[name].family else plain_decoders.VOCAB
    return torch.randint(0, vocab, (length,), generator=generator).tolist()


def expected(name: str, folder, prompt_ids: list, new_tokens: int) -> dict:
    """The truth: logits of the prompt's last token, then greedy tokens and how far each of them
    was ahead of the second best."""
    model = load_float32(name, folder)
    ids, last_logits, generated, gaps = list(prompt_ids), None, [], []
    for _ in range(new_tokens):
        logits = logits_of(model, ids)[-1]
        if last_logits is None:
            last_logits = logits.tolist()
        best, second = torch.topk(logits, 2).values.tolist()
        generated.append(int(logits.argmax()))
        gaps.append(best - second)
        ids.append(generated[-1])
    return {
        "ids": list(prompt_ids),
        "last_logits": last_logits,
        "generated": generated,
        "gaps": gaps,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--case", action="append", choices=sorted(CASES))
    options = parser.parse_args()
    transformers.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    for name in options.case or CASES:
        folder = options.out / name
        write_case(name, folder)
        truth = expected(name, folder, prompt(name), NEW_TOKENS)
        (folder / "expected.json").write_text(json.dumps(truth))
        print(f"{name}: smallest gap {min(truth['gaps']):.3g}", flush=True)


if __name__ == "__main__":
    main()
