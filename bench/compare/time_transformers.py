#!/usr/bin/env python3
"""Times transformers' greedy generation of one request, as lines of JSON:
    time_transformers.py MODEL              PyTorch eager: a cache that grows, SDPA attention
    time_transformers.py MODEL --compile    decode steps by torch.compile, with a static cache and CUDA graphs, as
                                            transformers does by itself for such a cache
MODEL is a folder with config.json and weights. It runs on the GPU where there is one."""

import time

import timing
import torch
import transformers

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class FirstToken(transformers.StoppingCriteria):
    """Never stops; notes when the first token was there."""

    def __init__(self):
        self.at = None

    def __call__(self, input_ids, scores, **unused):
        if self.at is None:
            wait()
            self.at = time.perf_counter()
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)


def wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


@torch.inference_mode()
def main():
    arguments = timing.parser(__doc__)
    arguments.add_argument("model")
    arguments.add_argument("--compile", action="store_true")
    given = timing.parse(arguments)
    model = transformers.AutoModelForCausalLM.from_pretrained(given.model, dtype="auto", attn_implementation="sdpa")
    model = model.eval().to(DEVICE)
    options = {"do_sample": False, "pad_token_id": 0, "disable_compile": True}
    if given.compile:
        options |= {
            "cache_implementation": "static",
            "disable_compile": False,
            "compile_config": transformers.CompileConfig(mode="reduce-overhead"),
        }

    def generate(ids, tokens):
        first = FirstToken()
        prompt = torch.tensor([ids], device=DEVICE)
        made = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            min_new_tokens=tokens,
            max_new_tokens=tokens,
            stopping_criteria=[first],
            **options,
        )
        wait()
        assert made.shape[1] == len(ids) + tokens, made.shape
        return first.at

    timing.time_all(
        "torch.compile" if given.compile else "eager",
        given,
        model.config.vocab_size,
        generate,
        model=model.config.model_type,
        dtype=str(model.dtype).removeprefix("torch."),
        device=torch.cuda.get_device_name() if DEVICE == "cuda" else "host device",
        versions={"torch": torch.__version__, "transformers": transformers.__version__},
    )


main()
