"""Records what transformers builds from a config, for tests/unit/test_native.cc: the parameters of
the checkpoint with their shapes, and the sliding window of every layer.

    python tests/python/make_native_cases.py tests/data/native_cases.json

Each variant is recorded twice: as written here, in the spelling of published configs, and as
transformers saves it again, in the new spelling.
"""

import copy
import json
import sys

import torch
import transformers

TINY = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 40, "max_position_embeddings": 128}
PAD = {"pad_token_id": 0}  # the default is past a tiny vocabulary
SLIDE = {"use_sliding_window": True, "sliding_window": 6}

CASES = [
    ("Llama", {}),
    ("Llama", {"num_key_value_heads": None, "tie_word_embeddings": True}),
    ("Llama", {"attention_bias": True, "mlp_bias": True, "hidden_act": "gelu"}),
    ("Llama", {"head_dim": 12, "num_key_value_heads": 1, "rope_theta": 5000.0}),
    ("Llama", {"torch_dtype": "float16", "rope_scaling": {"type": "linear", "factor": 2.0}}),
    ("Mistral", {}),
    ("Mistral", {"sliding_window": None, "head_dim": 16, "attention_bias": True}),
    ("Mistral", {"sliding_window": 5, "tie_word_embeddings": True, "hidden_act": "relu"}),
    ("Qwen2", {}),
    ("Qwen2", {"tie_word_embeddings": True, "attention_bias": False, "head_dim": 16}),
    ("Qwen2", SLIDE),  # max_window_layers is 28: no layer slides
    ("Qwen2", SLIDE | {"max_window_layers": 1}),
    ("Qwen2", SLIDE | {"max_window_layers": 0, "use_sliding_window": False}),
    ("Qwen3", {"head_dim": 8}),
    ("Qwen3", {"attention_bias": True, "hidden_act": "gelu_pytorch_tanh"}),  # head_dim is 128
    ("Qwen3", SLIDE | {"max_window_layers": 2, "head_dim": 10, "tie_word_embeddings": True}),
    ("Qwen3", SLIDE | {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}),
    ("SmolLM3", PAD | {"tie_word_embeddings": False}),
    ("SmolLM3", PAD | SLIDE | {"no_rope_layers": [1, 0, 1], "attention_bias": True}),
    ("SmolLM3", PAD | SLIDE | {"no_rope_layer_interval": 2, "layer_types": ["full_attention"] * 3}),
    ("Gemma3", {"head_dim": 8}),
    ("Gemma3", {"tie_word_embeddings": False, "sliding_window": 6, "sliding_window_pattern": 2}),
    ("Gemma3", {"head_dim": 10, "attention_bias": True, "layer_types": ["full_attention"] * 3}),
]
TEXT_ONLY = ("Gemma3",)  # the families whose other half is for images


def window(model, index):
    if hasattr(model.config, "layer_types"):
        return model.model.layers[index].self_attn.sliding_window or 0
    return getattr(model.config, "sliding_window", None) or 0


def record(family, fields):
    text = family in TEXT_ONLY
    model_type = family.lower() + ("_text" if text else "")
    config = {"architectures": [family + "ForCausalLM"], "model_type": model_type} | TINY | fields
    arguments = {key: value for key, value in copy.deepcopy(config).items() if key != "model_type"}
    with torch.device("meta"):
        model = getattr(transformers, family + "ForCausalLM")(
            getattr(transformers, family + ("TextConfig" if text else "Config"))(**arguments))
    tied = {"lm_head.weight"} if model.config.tie_word_embeddings else set()
    result = {"weights": {key: list(value.shape) for key, value in model.state_dict().items()
                          if key not in tied},
              "windows": [window(model, i) for i in range(len(model.model.layers))],
              "dtype": fields.get("torch_dtype", "float32")}
    return [{"config": written} | result for written in (config, model.config.to_dict())]


def main():
    transformers.logging.set_verbosity_error()
    cases = [case for family, fields in CASES for case in record(family, fields)]
    with open(sys.argv[1], "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(case, default=str) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()
