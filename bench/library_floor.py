"""What a prompt costs in libraries alone; JSON lines on stdout.

  library_floor.py CONFIG... [--tokens 128,2048,8192,20480] [--dtype bfloat16]

For each model (a config.json) and number of tokens: the matrix products of all layers, as PyTorch's
cuBLAS computes them (q, k and v together, and gate and up), and the fastest of PyTorch's attentions
(flash, cuDNN), causal, of all tokens at once. Norms, RoPE, activations, sampling and the head are left
out, so that no engine on these libraries could be faster. Needs PyTorch and a GPU. Weights rotate, so
that they come from memory; inputs are random.
"""

import argparse
import json
import pathlib
import statistics
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

COLD_BYTES = 150_000_000  # of weights that rotate: more than any second-level cache holds
ROUNDS = 5


def milliseconds(run, repeats):
    """The median of rounds of `repeats` calls run(i), each recorded in one graph."""
    for i in range(3):
        run(i)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(repeats):
            run(i)
    graph.replay()
    times = []
    for _ in range(ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / repeats)
    return statistics.median(times)


def product(tokens, n, k, dtype):
    count = max(2, -(-COLD_BYTES // (n * k * dtype.itemsize)))
    weights = [torch.randn(n, k, device="cuda", dtype=dtype) * k**-0.5 for _ in range(count)]
    x = torch.randn(tokens, k, device="cuda", dtype=dtype)
    y = torch.empty(tokens, n, device="cuda", dtype=dtype)
    return milliseconds(lambda i: torch.mm(x, weights[i % count].t(), out=y), count)


BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


def attention_inputs(tokens, heads, kv_heads, size, dtype):
    return [torch.randn((1, count, tokens, size), device="cuda", dtype=dtype)
            for count in (heads, kv_heads, kv_heads)]


def attend(name, q, k, v):
    with sdpa_kernel(BACKENDS[name]):
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])


def attention(inputs):
    """The fastest, and its name."""
    best = None
    for name in BACKENDS:
        try:
            took = milliseconds(lambda _: attend(name, *inputs), 3)
        except RuntimeError as error:  # this PyTorch has none, or not for these sizes
            print(f"{name}: {error}".splitlines()[0], file=sys.stderr)
            continue
        if best is None or took < best[0]:
            best = took, name
    if best is None:
        raise SystemExit("PyTorch has neither flash nor cuDNN attention here")
    return best


def chain(tokens, products, how, inputs, layers, dtype):
    steps = []
    for n, k in products.values():
        weights = [torch.randn(n, k, device="cuda", dtype=dtype) * k**-0.5 for _ in range(layers)]
        steps.append((torch.randn(tokens, k, device="cuda", dtype=dtype), weights,
                      torch.empty(tokens, n, device="cuda", dtype=dtype)))

    def layer(i):
        attend(how, *inputs)
        for x, weights, y in steps:
            torch.mm(x, weights[i % layers].t(), out=y)

    return layers * milliseconds(layer, layers)


def floor(config, tokens, dtype):
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    size = config.get("head_dim") or hidden // heads
    products = {
        "qkv": ((heads + 2 * kv_heads) * size, hidden),
        "o": (hidden, heads * size),
        "gate_up": (2 * inner, hidden),
        "down": (hidden, inner),
    }
    layer = {name: product(tokens, n, k, dtype) for name, (n, k) in products.items()}
    inputs = attention_inputs(tokens, heads, kv_heads, size, dtype)
    attending, how = attention(inputs)
    layers = config["num_hidden_layers"]
    return {"ms": layers * (sum(layer.values()) + attending), "layers": layers,
            "chain_ms": chain(tokens, products, how, inputs, layers, dtype), "attention": how,
            "layer_us": {**{name: ms * 1e3 for name, ms in layer.items()},
                         "attention": attending * 1e3}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("configs", nargs="+", type=pathlib.Path)
    parser.add_argument("--tokens", default="128,2048,8192,20480",
                        type=lambda text: [int(part) for part in text.split(",")])
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16"))
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("PyTorch sees no GPU here")
    dtype = getattr(torch, arguments.dtype)
    torch.manual_seed(1)
    for file in arguments.configs:
        config = json.loads(file.read_text())
        for tokens in arguments.tokens:
            print(json.dumps({"what": "library floor", "model": file.stem, "tokens": tokens,
                              "dtype": arguments.dtype, **floor(config, tokens, dtype),
                              "device": torch.cuda.get_device_name(), "pytorch": torch.__version__}),
                  flush=True)


if __name__ == "__main__":
    main()
