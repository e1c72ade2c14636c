"""Writes tests/data/op_cases.json: small graphs of every op with what PyTorch makes of them in
float64. tests/unit/test_reference.cc holds the reference executor to them.

Run by hand, from the root, after adding an op or a case:  python tests/python/make_op_cases.py
"""

import json
import math
import pathlib

import torch
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
inf, nan = math.inf, math.nan
cases = []


def rand(*shape, scale=1.5):
    # Few digits keep the file small.
    return (torch.randn(*shape) * scale).mul(1000).round().div(1000)


def number(x):
    if isinstance(x, (bool, int)):
        return int(x)
    if math.isnan(x):
        return "nan"
    if math.isinf(x):
        return "inf" if x > 0 else "-inf"
    return x


def dtype_of(tensor, dtype):
    return dtype or {torch.bool: "bool", torch.int64: "i64", torch.int32: "i32"}.get(tensor.dtype, "f32")


def value(tensor, dtype=None):
    return {"dtype": dtype_of(tensor, dtype), "shape": list(tensor.shape),
            "data": [number(x) for x in tensor.flatten().tolist()]}


def type_text(tensor, dtype=None, shape=None):
    sizes = shape if shape is not None else ", ".join(map(str, tensor.shape))
    return f"{dtype_of(tensor, dtype)}[{sizes}]"


def stored(tensor):
    name = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64",
            torch.int32: "i32", torch.bool: "bool", torch.float64: None}[tensor.dtype]
    return {"dtype": name, "shape": list(tensor.shape),
            "bytes": tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes().hex()}


def graph_text(lines, kind="graph"):
    body = "\n".join("  " + line for line in lines)
    return f'{kind} "case" {{\n{body}\n}}\n'


def add(op, name, lines, output, inputs=None, weights=None, bindings=None, dtype=None,
        tolerance=1e-12):
    cases.append({"op": op, "name": name, "graph": graph_text(lines), "bindings": bindings or {},
                  "inputs": inputs or {}, "weights": weights or {},
                  "outputs": {"y": value(output, dtype)}, "tolerance": tolerance})


def one(op, name, tensors, output, attrs="", dtypes=None, shapes=None, out_dtype=None,
        out_shape=None, bindings=None):
    """A graph of one op over inputs. dtypes and shapes (text) replace what the tensors say."""
    lines, inputs = [], {}
    for i, tensor in enumerate(tensors):
        dtype = dtypes[i] if dtypes else None
        shape = shapes[i] if shapes else None
        lines.append(f'%{i} = input {{name="x{i}"}} : {type_text(tensor, dtype, shape)}')
        inputs[f"x{i}"] = value(tensor, dtype)
    n = len(tensors)
    refs = ", ".join(f"%{i}" for i in range(n))
    lines.append(f"%{n} = {op}" + (f"({refs})" if n else "") + (f" {{{attrs}}}" if attrs else "")
                 + f" : {type_text(output, out_dtype, out_shape)}")
    lines.append(f'return %{n} as "y"')
    add(op, name, lines, output, inputs, bindings=bindings, dtype=out_dtype)


special = torch.tensor([0.0, -0.0, 1.0, -1.0, 1e-3, -30.0, 30.0, 800.0, -800.0, inf, -inf, nan])


def leaves():
    x = rand(2, 3)
    one_input = ['%0 = input {name="x"} : f16[2, 3]', 'return %0 as "y"']
    add("input", "floats pass unrounded", one_input, x, {"x": value(x, "f16")}, dtype="f16")
    data = torch.tensor([[inf, -inf], [nan, -0.0], [1e-300, 3.0], [3.0, 3.0]])
    add("constant", "special values and repeats",
        ["%0 = constant {data=[inf, -inf, nan, -0.0, 1e-300, 3.0 x 3]} : f32[4, 2]",
         'return %0 as "y"'], data)
    add("constant", "a scalar", ["%0 = constant {data=[7.0]} : i64[]", 'return %0 as "y"'],
        torch.tensor(7))
    add("positions", "of a whole forward", ["%0 = positions : i64[S]", 'return %0 as "y"'],
        torch.arange(5), bindings={"S": 5})
    add("positions", "of a step", ["%0 = positions : i64[T]", 'return %0 as "y"'],
        torch.arange(7, 10), bindings={"T": 3, "P": 7})


def weights():
    wide = torch.cat([torch.randn(20), torch.tensor(
        [0.0, -0.0, inf, -inf, nan, 65504.0, 65519.0, 65520.0, -7e4, 1e-5, 6e-8, 2.9e-8, 3.1e-8, -1e-9,
         3.3e38, 1e-40, 2049.0, 2051.0, 1.00048828125, 1.00146484375])]).reshape(8, 5)
    graph = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
    for file_dtype in graph.values():
        given = wide.to(torch.float32).to(file_dtype)
        for name, dtype in graph.items():
            # What is finite and too large for the graph's type is refused.
            too_large = given.isfinite() & given.to(dtype).isinf()
            tensor = torch.where(too_large, torch.ones_like(given), given)
            add("weight", f"{file_dtype} in a graph of {name}",
                [f'%0 = weight {{key="w", store="checkpoint"}} : {name}[8, 5]', 'return %0 as "y"'],
                tensor.to(dtype).to(torch.float64), weights={"w": stored(tensor)}, dtype=name)
    for tensor in (torch.tensor([-3, 2**40]), torch.tensor([-3, 2**31 - 1], dtype=torch.int32),
                   torch.tensor([True, False])):
        add("weight", str(tensor.dtype),
            [f'%0 = weight {{key="w", store="checkpoint"}} : {type_text(tensor)}', 'return %0 as "y"'],
            tensor, weights={"w": stored(tensor)})


def unary():
    x = rand(3, 5)
    functions = {
        "neg": torch.neg, "abs": torch.abs, "exp": torch.exp, "log": torch.log, "sqrt": torch.sqrt,
        "rsqrt": torch.rsqrt, "reciprocal": torch.reciprocal, "sin": torch.sin, "cos": torch.cos,
        "tanh": torch.tanh, "erf": torch.erf, "sigmoid": torch.sigmoid, "silu": F.silu,
        "relu": torch.relu}
    for op, function in functions.items():
        one(op, "random", [x], function(x), dtypes=["bf16"], out_dtype="bf16")
        one(op, "positive", [x.abs()], function(x.abs()))
        one(op, "special values", [special], function(special))
        one(op, "a scalar", [torch.tensor(0.25)], function(torch.tensor(0.25)))
        one(op, "nothing", [torch.zeros(0, 3)], torch.zeros(0, 3), shapes=["S, 3"], out_shape="S, 3",
            bindings={"S": 0})
    for op in ("neg", "abs"):
        ints = torch.tensor([-5, 0, 7])
        one(op, "integers", [ints], functions[op](ints))
    for tanh in (True, False):
        approximate = "tanh" if tanh else "none"
        for name, tensor in (("random", x), ("special", special)):
            one("gelu", f"{name}, {approximate}", [tensor], F.gelu(tensor, approximate=approximate),
                f"tanh={str(tanh).lower()}")
    flags = torch.tensor([[True, False], [False, False]])
    one("logical_not", "bools", [flags], ~flags)


def casts():
    def cast(name, x, to, expected, dtype=None):
        one("cast", name, [x], expected, f"dtype={to}", [dtype], None, to)
    x = torch.tensor([1.75, -1.75, 0.1, -0.1, 0.0, 65519.9])
    cast("float to float keeps the double", x, "f16", x)
    cast("f16 to f32", x, "f32", x, "f16")
    cast("NaN and infinity between floats", special, "bf16", special)
    cast("float to integer truncates", x, "i64", x.to(torch.int64))
    cast("float to i32", x, "i32", x.to(torch.int32))
    cast("float to bool", special, "bool", special.to(torch.bool))
    cast("integer to bool", torch.tensor([0, -2, 3]), "bool", torch.tensor([False, True, True]))
    cast("integer to float", torch.tensor([0, -2, 3]), "f32", torch.tensor([0.0, -2.0, 3.0]))
    cast("bool to float", torch.tensor([True, False]), "f32", torch.tensor([1.0, 0.0]))
    cast("bool to i64", torch.tensor([True, False]), "i64", torch.tensor([1, 0]))
    cast("i64 to i32", torch.tensor([4, -4]), "i32", torch.tensor([4, -4], dtype=torch.int32))


def binary():
    a, b = rand(2, 3, 4), rand(3, 1)
    sa = special.reshape(-1, 1)
    sb = special.reshape(1, -1)
    ints_a = torch.tensor([[7, -7, 0], [5, -9, 3]])
    divisors, powers = torch.tensor([2, 2, -4]), torch.tensor([2, 3, 0])
    functions = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div,
                 "pow": torch.pow, "maximum": torch.maximum, "minimum": torch.minimum,
                 "equal": torch.eq, "not_equal": torch.ne, "less": torch.lt,
                 "less_equal": torch.le, "greater": torch.gt, "greater_equal": torch.ge}
    for op, f in functions.items():
        compare = f(a, b).dtype == torch.bool
        one(op, "broadcast inner and outer", [a, b], f(a, b), dtypes=["f16", "f16"],
            out_dtype=None if compare else "f16")
        c = rand(1, 4)
        one(op, "broadcast both", [c, b], f(c, b))
        one(op, "the smaller first", [b.abs(), a.abs()], f(b.abs(), a.abs()))
        one(op, "a scalar", [a, torch.tensor(2.0)], f(a, torch.tensor(2.0)))
        one(op, "same shape, symbolic", [a[0], a[1]], f(a[0], a[1]), shapes=["S, 4"] * 2,
            out_shape="S, 4", bindings={"S": 3})
        one(op, "special values", [sa, sb], f(sa, sb))
        ints_b = powers if op == "pow" else divisors
        expected = (torch.div(ints_a, ints_b, rounding_mode="trunc") if op == "div"
                    else f(ints_a, ints_b))
        one(op, "integers", [ints_a, ints_b], expected)
    flags_a = torch.tensor([[True], [False]])
    flags_b = torch.tensor([True, False])
    one("equal", "bools", [flags_a, flags_b], flags_a == flags_b)
    one("logical_and", "bools", [flags_a, flags_b], flags_a & flags_b)
    one("logical_or", "bools", [flags_a, flags_b], flags_a | flags_b)
    condition = torch.tensor([[True], [False], [True]])
    x, y = rand(2, 1, 4), torch.tensor(-inf)
    one("where", "broadcast all", [condition, x, y], torch.where(condition, x, y))
    one("where", "the branch not taken may be NaN", [flags_b, torch.tensor([1.0, nan]),
        torch.tensor([nan, 2.0])], torch.tensor([1.0, 2.0]))
    one("where", "integers", [flags_b, torch.tensor([1, 2]), torch.tensor(5)], torch.tensor([1, 5]))


def reductions():
    x = rand(2, 3, 4)
    for op, f in (("sum", torch.sum), ("mean", torch.mean), ("amax", torch.amax)):
        for axes in ([2], [0], [1], [0, 2], [2, 1], [0, 1, 2]):
            for keep in (True, False):
                expected = f(x, dim=axes, keepdim=keep)
                one(op, f"axes {axes}, keep {keep}", [x], expected,
                    f"axes={axes}, keep={str(keep).lower()}")
        one(op, "no axes", [x], x, "axes=[], keep=false")
        one(op, "an axis of size 1", [x[:, :1]], f(x[:, :1], dim=1), "axes=[1], keep=false")
        one(op, "symbolic", [x[0]], f(x[0], dim=0), "axes=[0], keep=false", shapes=["S, 4"],
            bindings={"S": 3})
        odd = torch.tensor([[1.0, nan, 3.0], [nan, 5.0, 1.0], [inf, 1.0, 2.0], [-inf, -inf, -inf],
                            [inf, -inf, 0.0]])
        one(op, "special values", [odd], f(odd, dim=1), "axes=[1], keep=false")
    one("sum", "over nothing", [torch.zeros(0, 2)], torch.zeros(2), "axes=[0], keep=false",
        shapes=["S, 2"], bindings={"S": 0})
    one("mean", "over nothing", [torch.zeros(0, 2)], torch.full((2,), nan), "axes=[0], keep=false",
        shapes=["S, 2"], bindings={"S": 0})
    ints = torch.tensor([[-4, -2], [7, 0]])
    one("amax", "integers", [ints], ints.amax(1), "axes=[1], keep=false")
    bools = torch.tensor([[True, False], [False, False]])
    one("amax", "bools", [bools], bools.amax(1), "axes=[1], keep=false")
    for axis in range(3):
        one("softmax", f"axis {axis}", [x], torch.softmax(x, axis), f"axis={axis}")
    masked = x[0].clone()
    masked[0, 1:] = -inf
    masked[2, :] = -inf
    one("softmax", "masks, and a row that is all masked", [masked], torch.softmax(masked, 1), "axis=1")
    odd = torch.tensor([[1.0, nan, 3.0], [inf, 1.0, 2.0], [1e308, -1e308, 1e308], [700.0, 800.0, 0.0]])
    one("softmax", "special values", [odd], torch.softmax(odd, 1), "axis=1")


def norms():
    x, w, b = rand(3, 2, 5), rand(5), rand(5)
    def rms(x, eps, w=None, offset=0.0):
        y = F.rms_norm(x, (5,), None, eps)
        return y if w is None else y * (offset + w)
    one("rms_norm", "no weight", [x], rms(x, 1e-6), "eps=1e-06, weight_offset=0.0")
    one("rms_norm", "no weight ignores the offset", [x], rms(x, 1e-6), "eps=1e-06, weight_offset=1.0")
    one("rms_norm", "weight", [x, w], rms(x, 1e-5, w), "eps=1e-05, weight_offset=0.0")
    one("rms_norm", "1 + weight", [x, w], rms(x, 0.5, w, 1.0), "eps=0.5, weight_offset=1.0")
    one("rms_norm", "one axis", [x[0, 0]], rms(x[0, 0], 0.0), "eps=0.0, weight_offset=0.0")
    zero = torch.zeros(2, 5)
    zero[1, 2] = nan
    one("rms_norm", "zeros and NaN", [zero], rms(zero, 1e-6), "eps=1e-06, weight_offset=0.0")
    for rest in ([], [w], [w, b]):
        one("layer_norm", f"{len(rest)} parameters", [x + 3] + rest,
            F.layer_norm(x + 3, (5,), *rest, eps=1e-5), "eps=1e-05")
    one("layer_norm", "large eps", [x, w, b], F.layer_norm(x, (5,), w, b, eps=2.0), "eps=2.0")
    one("layer_norm", "zeros and NaN", [zero], F.layer_norm(zero, (5,), eps=1e-5), "eps=1e-05")


def linears():
    for name, a, b in (
            ("matrices", rand(3, 4), rand(4, 5)), ("one row", rand(1, 7), rand(7, 3)),
            ("one column", rand(3, 7), rand(7, 1)), ("batched", rand(2, 3, 4), rand(2, 4, 2)),
            ("broadcast batch", rand(2, 1, 2, 3), rand(3, 3, 2)),
            ("the left has no batch", rand(2, 3), rand(2, 3, 2)),
            ("wider than a block", rand(2, 3), rand(3, 71))):
        one("matmul", name, [a, b], a @ b)
    odd = torch.tensor([[0.0, 1.0], [inf, 1.0], [nan, 0.0]])
    other = torch.tensor([[inf, 1.0], [1.0, 2.0]])
    one("matmul", "special values", [odd, other], odd @ other)
    one("matmul", "over nothing", [torch.zeros(2, 0), torch.zeros(0, 3)], torch.zeros(2, 3),
        shapes=["2, S", "S, 3"], bindings={"S": 0})
    x, w, b = rand(2, 3, 11), rand(5, 11), rand(5)
    one("linear", "no bias", [x, w], F.linear(x, w))
    one("linear", "bias", [x, w, b], F.linear(x, w, b))
    one("linear", "a vector", [x[0, 0], w, b], F.linear(x[0, 0], w, b))
    one("linear", "symbolic", [x[0], w], F.linear(x[0], w), shapes=["S, 11", None], out_shape="S, 5",
        bindings={"S": 3})
    one("linear", "special values", [odd, other], F.linear(odd, other))
    table, ids = rand(6, 3), torch.tensor([[0, 5], [2, 2]])
    one("embedding", "two axes of ids", [table, ids], F.embedding(ids, table))
    one("embedding", "no ids", [table, ids[0, :0]], torch.zeros(0, 3), shapes=[None, "S"],
        out_shape="S, 3", bindings={"S": 0})
    deep = rand(4, 2, 2)
    one("embedding", "a table of three axes, i32 ids", [deep, torch.tensor([3, 0], dtype=torch.int32)],
        deep[[3, 0]])
    one("embedding", "a table of one axis, a single id", [rand(4) * 0 + 2.5, torch.tensor(1)],
        torch.tensor(2.5))
    # The same ops over weights that stay in their storage format.
    for file_dtype in (torch.float32, torch.float16, torch.bfloat16):
        tensor = torch.randn(7, 19).to(file_dtype)
        exact = tensor.to(torch.float64)
        weight = '%1 = weight {key="w", store="checkpoint"} : f32[7, 19]'
        for op, x, expected in (("linear", rand(2, 19), lambda x: F.linear(x, exact)),
                                ("matmul", rand(2, 7), lambda x: x @ exact)):
            y = expected(x)
            add(op, f"a stored weight, {file_dtype}",
                [f'%0 = input {{name="x"}} : {type_text(x)}', weight,
                 f"%2 = {op}(%0, %1) : {type_text(y)}", 'return %2 as "y"'],
                y, {"x": value(x)}, {"w": stored(tensor)})
        ids = torch.tensor([6, 0, 3])
        tied = F.linear(exact[ids], exact).mul(2)
        add("embedding", f"a stored table that is also read whole, {file_dtype}",
            ['%0 = input {name="x"} : i64[S]', weight, "%2 = embedding(%1, %0) : f32[S, 19]",
             "%3 = linear(%2, %1) : f32[S, 7]", "%4 = permute(%1) {axes=[1, 0]} : f32[19, 7]",
             "%5 = matmul(%2, %4) : f32[S, 7]", "%6 = add(%3, %5) : f32[S, 7]",
             'return %6 as "y"'], tied, {"x": value(ids)}, {"w": stored(tensor)}, {"S": 3})


def rotate_half(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def ropes():
    for name, shape, pairs in (("all of d", (4, 2, 6), 3), ("part of d", (4, 3, 7), 2),
                               ("no heads", (3, 4), 2), ("two head axes", (2, 2, 1, 4), 1)):
        x = rand(*shape)
        inv_freq = 10.0 ** -torch.arange(pairs).double()
        positions = torch.tensor([5, 0, 123, 7])[:shape[0]]
        angle = torch.outer(positions.double(), inv_freq)
        angle = angle.reshape(shape[0], *[1] * (len(shape) - 2), pairs)
        r = 2 * pairs
        for scale in (1.0, 1.25):
            cos, sin = (torch.cat([f(angle)] * 2, -1) * scale for f in (torch.cos, torch.sin))
            half = torch.cat([rotate_half(x[..., :r], cos, sin), x[..., r:]], -1)
            turned = torch.view_as_complex(x[..., :r].reshape(*shape[:-1], pairs, 2).contiguous())
            turned = torch.view_as_real(turned * torch.polar(torch.full_like(angle, scale), angle))
            pair = torch.cat([turned.reshape(*shape[:-1], r), x[..., r:]], -1)
            for interleaved, y in ((False, half), (True, pair)):
                one("rope", f"{name}, scale {scale}, interleaved {interleaved}",
                    [x, positions, inv_freq], y,
                    f"scale={scale}, interleaved={str(interleaved).lower()}")


def attend(q, k, v, scale, window, softcap):
    """Queries are the last tokens of the keys. [tokens, heads, size] in and out."""
    n, total = q.shape[0], k.shape[0]
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    rows = torch.arange(total - n, total).unsqueeze(1)
    columns = torch.arange(total).unsqueeze(0)
    seen = columns <= rows
    if window:
        seen &= columns > rows - window
    q, k, v = (t.transpose(0, 1) for t in (q, k, v))
    if softcap:
        scores = softcap * torch.tanh(q @ k.transpose(1, 2) * scale / softcap)
        y = torch.softmax(scores.masked_fill(~seen, -inf), -1) @ v
    else:
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scale)
    return y.transpose(0, 1)


variants = [  # heads, kv heads, key size, value size, scale, window, softcap
    (2, 2, 4, 4, 0.5, 0, 0.0), (4, 2, 3, 5, 0.7, 0, 0.0), (3, 1, 4, 2, 0.5, 0, 2.5),
    (2, 1, 4, 4, 0.5, 3, 0.0), (2, 2, 4, 4, 0.5, 1, 0.0), (2, 2, 4, 4, 0.5, 50, 1.5),
    (1, 1, 1, 1, -1.0, 2, 0.0)]


def attentions():
    for heads, kv_heads, key, size, scale, window, softcap in variants:
        name = f"{heads}/{kv_heads} heads, {key}/{size}, window {window}, softcap {softcap}"
        attrs = f"scale={scale}, window={window}, softcap={softcap}"
        n = 7
        q, k, v = rand(n, heads, key), rand(n, kv_heads, key), rand(n, kv_heads, size)
        one("attention", name, [q, k, v], attend(q, k, v, scale, window, softcap), attrs,
            shapes=[f"S, {heads}, {key}", f"S, {kv_heads}, {key}", f"S, {kv_heads}, {size}"],
            out_shape=f"S, {heads}, {size}", bindings={"S": n})
        lines = [f"state 0 : kv f32 keys={kv_heads}x{key} values={kv_heads}x{size} window={window}",
                 f'%0 = input {{name="q"}} : f32[T, {heads}, {key}]',
                 f'%1 = input {{name="k"}} : f32[T, {kv_heads}, {key}]',
                 f'%2 = input {{name="v"}} : f32[T, {kv_heads}, {size}]',
                 f"%3 = append_attend(%0, %1, %2) {{state=0, {attrs}}} : f32[T, {heads}, {size}]",
                 'return %3 as "y"']
        steps, past = [], 0
        for tokens in (3, 1, 2):
            new = slice(past, past + tokens)
            past += tokens
            y = attend(q[new], k[:past], v[:past], scale, window, softcap)
            steps.append({"tokens": tokens,
                          "inputs": {"q": value(q[new]), "k": value(k[new]), "v": value(v[new])},
                          "outputs": {"y": value(y)}})
        cases.append({"op": "append_attend", "name": name, "graph": graph_text(lines, "step"),
                      "steps": steps, "weights": {}, "tolerance": 1e-12})
    # A token that is not seen has no influence, whatever it holds.
    q, k, v = rand(3, 1, 2), rand(3, 1, 2), rand(3, 1, 2)
    y = attend(q, k, v, 1.0, 0, 0.0)
    k[2], v[2] = nan, inf
    y[2] = nan
    one("attention", "NaN and infinity", [q, k, v], y, "scale=1.0, window=0, softcap=0.0")


def layouts():
    x = rand(2, 3, 4)
    one("reshape", "merge", [x], x.reshape(6, 4), "shape=[6, 4]")
    one("reshape", "split, symbolic", [x], x.reshape(6, 2, 2), "shape=[S*3, 2, 2]", shapes=["S, 3, 4"],
        out_shape="3*S, 2, 2", bindings={"S": 2})
    one("reshape", "to a scalar", [x[0, :1, 0]], x[0, 0, 0], "shape=[]")
    for axes in ([0, 1, 2], [1, 0, 2], [2, 0, 1], [0, 2, 1], [2, 1, 0]):
        one("permute", str(axes), [x], x.permute(axes), f"axes={axes}")
    one("permute", "a scalar", [torch.tensor(2.0)], torch.tensor(2.0), "axes=[]")
    flags = torch.tensor([[True, False, True]])
    one("permute", "bools", [flags], flags.T, "axes=[1, 0]")
    one("expand", "inner, outer and new", [x[:, :1]], x[:, :1].expand(2, 2, 3, 4), "shape=[2, 2, 3, 4]")
    one("expand", "a scalar", [torch.tensor(2.0)], torch.full((2, 3), 2.0), "shape=[2, S]",
        out_shape="2, S", bindings={"S": 3})
    one("expand", "to nothing", [x[:1, 0]], torch.zeros(0, 4), "shape=[S, 4]", out_shape="S, 4",
        bindings={"S": 0})
    for axis, start, end, step in ((0, 1, 2, 1), (1, 0, 3, 2), (2, 1, 4, 2), (2, 1, 4, 3), (2, 0, 4, 5),
                                   (1, 2, 2, 1)):
        index = [slice(None)] * 3
        index[axis] = slice(start, end, step)
        one("slice", f"axis {axis}, {start}:{end}:{step}", [x], x[tuple(index)],
            f"axis={axis}, start={start}, end={end}, step={step}")
    one("slice", "symbolic", [x], x[:, 1:2], "axis=1, start=S - 2, end=S - 1, step=1",
        shapes=["2, S, 4"], bindings={"S": 3})
    long = rand(9, 2)
    one("slice", "the rows of a step from a table", [long], long[4:7], "axis=0, start=P, end=T + P, step=1",
        out_shape="T, 2", bindings={"T": 3, "P": 4})
    for axis in range(3):
        other = rand(*[5 if i == axis else s for i, s in enumerate(x.shape)])
        one("concat", f"axis {axis}", [x, other, x], torch.cat([x, other, x], axis), f"axis={axis}")
    one("concat", "one part", [x], x, "axis=1")
    one("concat", "an empty part", [x, x[:0]], x, "axis=0", shapes=["2, 3, 4", "S, 3, 4"],
        out_shape="S + 2, 3, 4", bindings={"S": 0})
    one("concat", "integers", [torch.tensor([1, 2]), torch.tensor([3])], torch.tensor([1, 2, 3]), "axis=0")
    for op, f in (("tril", torch.tril), ("triu", torch.triu)):
        for diagonal in (-2, -1, 0, 1, 5):
            one(op, f"diagonal {diagonal}", [x], f(x, diagonal), f"diagonal={diagonal}")
        tall = rand(4, 2)
        one(op, "tall", [tall], f(tall), "diagonal=0")
        ones = torch.ones(3, 3, dtype=torch.bool)
        one(op, "bools", [ones], f(ones), "diagonal=0", shapes=["S, S"], out_shape="S, S",
            bindings={"S": 3})
        infinite = torch.full((2, 2), -inf)
        one(op, "infinities become 0", [infinite], f(infinite), "diagonal=0")


for group in (leaves, weights, unary, casts, binary, reductions, norms, linears, ropes, attentions,
              layouts):
    group()
path = pathlib.Path(__file__).resolve().parent.parent / "data" / "op_cases.json"
path.parent.mkdir(exist_ok=True)
lines = ",\n".join(json.dumps(case, separators=(",", ":"), allow_nan=False) for case in cases)
path.write_text(f"[\n{lines}\n]\n")
print(f"{len(cases)} cases, {path.stat().st_size} bytes")
