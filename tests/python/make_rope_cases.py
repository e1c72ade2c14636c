"""Records the rotary frequencies that transformers computes, for tests/unit/test_rope_frequencies.cc.

    python tests/python/make_rope_cases.py tests/data/rope_cases.json

Every case goes through the architecture's own configuration class and rotary embedding module, from
the very JSON that a config.json would hold, so that spellings and defaults are recorded as well.
"""

import copy
import importlib
import json
import sys

import transformers

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}

CASES = {
    "default theta": {"head_dim": 64},
    "theta 500000, head_dim 128": {"head_dim": 128, "rope_theta": 500000.0},
    "integer theta, qwen3": {"model_type": "qwen3", "rope_theta": 1000000},
    "qwen2, derived head_dim": {"model_type": "qwen2", "rope_theta": 1e6},
    "odd number of pairs": {"head_dim": 6, "rope_theta": 10000.0},
    "one pair": {"head_dim": 2},
    "theta is not a float32": {"head_dim": 96, "rope_theta": 123456.789},
    "theta 1": {"head_dim": 16, "rope_theta": 1.0},
    "large theta": {"head_dim": 256, "rope_theta": 8e6},
    "new spelling": {"head_dim": 64, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
    "new spelling goes before the old theta":
        {"head_dim": 64, "rope_theta": 7.0, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
    "new spelling takes the old theta":
        {"head_dim": 64, "rope_theta": 77.0, "rope_parameters": {"rope_type": "default"}},
    "rope_scaling goes before rope_parameters":
        {"head_dim": 64, "rope_theta": 77.0, "rope_scaling": {"type": "linear", "factor": 2},
         "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
    "empty rope_scaling":
        {"head_dim": 64, "rope_scaling": {}, "rope_parameters": {"rope_type": "linear", "factor": 3.0}},
    "rope_type goes before type":
        {"head_dim": 64, "rope_scaling": {"type": "dynamic", "rope_type": "linear", "factor": 2.5}},
    "default type ignores the rest":
        {"head_dim": 64, "rope_scaling": {"type": "default", "factor": 9.0, "partial_rotary_factor": 0.5}},
    "linear": {"head_dim": 128, "rope_scaling": {"type": "linear", "factor": 4.0}},
    "linear by 3, mistral": {"model_type": "mistral", "rope_scaling": {"rope_type": "linear", "factor": 3}},
    "llama 3.1": {"head_dim": 128, "rope_theta": 500000.0, "rope_scaling": LLAMA3,
                  "max_position_embeddings": 131072},
    "llama 3.2": {"head_dim": 64, "rope_theta": 500000.0, "rope_scaling": LLAMA3 | {"factor": 32.0},
                  "max_position_embeddings": 131072},
    "llama3, new spelling": {"head_dim": 64, "max_position_embeddings": 131072,
                             "rope_parameters": LLAMA3 | {"rope_theta": 500000.0}},
    "llama3, odd factors": {"head_dim": 80, "rope_theta": 31000.0,
                            "rope_scaling": LLAMA3 | {"factor": 3.7, "low_freq_factor": 0.7,
                                                      "high_freq_factor": 5.3,
                                                      "original_max_position_embeddings": 1000}},
    "llama3, original length from max_position_embeddings":
        {"head_dim": 64, "max_position_embeddings": 4096,
         "rope_scaling": {k: v for k, v in LLAMA3.items() if k != "original_max_position_embeddings"}},
    "llama3, original length at the top":
        {"head_dim": 64, "max_position_embeddings": 65536, "original_max_position_embeddings": 512,
         "rope_scaling": LLAMA3},
    "yarn": {"model_type": "qwen3", "rope_theta": 1e6, "rope_scaling": YARN,
             "max_position_embeddings": 131072},
    "yarn, old type key": {"model_type": "qwen2", "rope_theta": 1e6,
                           "rope_scaling": {"type": "yarn", "factor": 4.0,
                                            "original_max_position_embeddings": 32768}},
    "yarn, new spelling": {"model_type": "mistral", "rope_parameters": YARN | {"rope_theta": 1e6}},
    "yarn, attention_factor": {"head_dim": 64, "rope_scaling": YARN | {"attention_factor": 0.83}},
    "yarn, mscale": {"head_dim": 64, "rope_scaling": YARN | {"mscale": 0.707, "mscale_all_dim": 1.3}},
    "yarn, one mscale": {"head_dim": 64, "rope_scaling": YARN | {"mscale": 0.707}},
    "yarn, mscale 0": {"head_dim": 64, "rope_scaling": YARN | {"mscale": 0.707, "mscale_all_dim": 0}},
    "yarn, betas": {"head_dim": 128, "rope_scaling": YARN | {"beta_fast": 20.5, "beta_slow": 2}},
    "yarn, betas 0 and null": {"head_dim": 128, "rope_scaling": YARN | {"beta_fast": 0, "beta_slow": None}},
    "yarn, not truncated": {"head_dim": 128, "rope_theta": 150000.0,
                            "rope_scaling": YARN | {"factor": 32.0, "truncate": False}},
    "yarn, equal bounds": {"head_dim": 4, "rope_scaling": YARN | {"beta_fast": 1, "beta_slow": 1,
                                                                 "original_max_position_embeddings": 6}},
    "yarn, factor 1": {"head_dim": 64, "rope_scaling": YARN | {"factor": 1.0}},
    "yarn, short context": {"head_dim": 32, "rope_scaling": YARN | {"factor": 1.5,
                                                                   "original_max_position_embeddings": 3}},
    "yarn, original length at the top":
        {"head_dim": 64, "original_max_position_embeddings": 700, "rope_scaling": YARN},
}

NAMES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}


def record(name, fields):
    config = {"architectures": None, "model_type": "llama", "hidden_size": 512,
              "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
              "num_key_value_heads": 2, "vocab_size": 32} | fields
    family = NAMES[config["model_type"]]
    config["architectures"] = [family + "ForCausalLM"]
    module = importlib.import_module(f"transformers.models.{config['model_type']}.modeling_{config['model_type']}")
    arguments = {key: value for key, value in copy.deepcopy(config).items() if key != "model_type"}
    rope = getattr(module, family + "RotaryEmbedding")(getattr(transformers, family + "Config")(**arguments))
    return {"name": name, "config": config, "inv_freq": rope.inv_freq.double().tolist(),
            "scale": float(rope.attention_scaling)}


def main():
    transformers.logging.set_verbosity_error()
    cases = [record(name, fields) for name, fields in CASES.items()]
    with open(sys.argv[1], "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()
