#!/usr/bin/env python3
"""Times vLLM's greedy generation of one request, as lines of JSON:
    time_vllm.py MODEL
MODEL is a folder with config.json and weights; it needs no tokenizer. A prefix is never reused."""

import json
import pathlib

import timing
import torch
import vllm


def main():
    arguments = timing.parser(__doc__)
    arguments.add_argument("model")
    given = timing.parse(arguments)
    config = json.loads(pathlib.Path(given.model, "config.json").read_text())
    engine = vllm.LLM(
        model=given.model,
        dtype="auto",
        skip_tokenizer_init=True,
        enable_prefix_caching=False,
        max_num_seqs=1,
        max_model_len=max(sum(tokens) for tokens in given.workloads),
        seed=1,
    )

    def generate(ids, tokens):
        choice = vllm.SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
        (result,) = engine.generate([{"prompt_token_ids": ids}], choice, use_tqdm=False)
        assert len(result.outputs[0].token_ids) == tokens

    timing.time_all(
        "vllm",
        given,
        config["vocab_size"],
        generate,
        model=config["model_type"],
        dtype=config.get("dtype") or config.get("torch_dtype"),
        device=torch.cuda.get_device_name() if torch.cuda.is_available() else "host device",
        versions={"torch": torch.__version__, "vllm": vllm.__version__},
    )


main()
