"""Writes safetensors by published names, with random numbers, and says what they are in the layout of tandem.

published.py make MODEL FILE [SHIFT]      writes the file of a small model, running statistics more by SHIFT
published.py check MODEL FILE EXPORTED    compares an exported file with it, number by number, but for these
published.py shifted SHIFT A B            whether those of B are SHIFT more than those of A
"""

import array
import json
import random
import struct
import sys

LAYERS, WIDTH, INNER, VOCABULARY, POSITIONS, CLASSES, PATCH, CHANNELS = 2, 8, 32, 30, 6, 5, 4, 3


def linear(name, n_in, n_out, own):
    return [(name + ".weight", [n_out, n_in], own + ".weight", lambda f, r, c: f[c * n_in + r], n_out),
            (name + ".bias", [n_out], own + ".bias", lambda f, r, c: f[c], n_out)]


def same(name, shape, own, columns):
    return [(name, shape, own, lambda f, r, c: f[r * columns + c], columns)]


def norm(name, own, n=WIDTH, parts=("weight", "bias"), names=("weight", "bias")):
    return [of for part, published in zip(parts, names) for of in same(f"{name}.{published}", [n], f"{own}.{part}", n)]


def convolution(name, n_in, n_out, side, own):
    def value(f, r, c):  # row r is (y, x, input)
        return f[((c * n_in + r % n_in) * side + r // n_in // side) * side + r // n_in % side]
    return [(name + ".weight", [n_out, n_in, side, side], own + ".weight", value, n_out)]


def bert():
    e, rows = "bert.embeddings.", []
    rows += same(e + "word_embeddings.weight", [VOCABULARY, WIDTH], "embedding.weight", WIDTH)
    rows += same(e + "position_embeddings.weight", [POSITIONS, WIDTH], "position", WIDTH)
    rows += same(e + "token_type_embeddings.weight", [2, WIDTH], "segment", WIDTH)
    rows += norm(e + "LayerNorm", "embedding.norm", names=("gamma", "beta"))
    for i in range(LAYERS):
        at, own = f"bert.encoder.layer.{i}.", f"block{i}."
        for name, to in (("query", "q"), ("key", "k"), ("value", "v")):
            rows += linear(f"{at}attention.self.{name}", WIDTH, WIDTH, f"{own}attention.{to}")
        rows += linear(at + "attention.output.dense", WIDTH, WIDTH, own + "attention.out")
        rows += norm(at + "attention.output.LayerNorm", own + "norm1", names=("gamma", "beta"))
        rows += linear(at + "intermediate.dense", WIDTH, INNER, own + "mlp.fc1")
        rows += linear(at + "output.dense", INNER, WIDTH, own + "mlp.fc2")
        rows += norm(at + "output.LayerNorm", own + "norm2", names=("gamma", "beta"))
    rows += linear("cls.predictions.transform.dense", WIDTH, WIDTH, "transform")
    rows += norm("cls.predictions.transform.LayerNorm", "transform.norm", names=("gamma", "beta"))
    rows += same("cls.predictions.bias", [VOCABULARY], "head.bias", VOCABULARY)
    return rows, ["bert.pooler.dense.weight", "cls.seq_relationship.bias"]


def gpt2():
    rows = same("wte.weight", [VOCABULARY, WIDTH], "embedding.weight", WIDTH)
    rows += same("wpe.weight", [POSITIONS, WIDTH], "position", WIDTH)
    for i in range(LAYERS):
        at, own = f"h.{i}.", f"block{i}."
        rows += norm(at + "ln_1", own + "norm1") + norm(at + "ln_2", own + "norm2")
        for part, to in enumerate("qkv"):
            rows += [(at + "attn.c_attn.weight", [WIDTH, 3 * WIDTH], f"{own}attention.{to}.weight",
                      lambda f, r, c, part=part: f[r * 3 * WIDTH + part * WIDTH + c], WIDTH),
                     (at + "attn.c_attn.bias", [3 * WIDTH], f"{own}attention.{to}.bias",
                      lambda f, r, c, part=part: f[part * WIDTH + c], WIDTH)]
        for name, n_in, n_out, to in (("attn.c_proj", WIDTH, WIDTH, "attention.out"), ("mlp.c_fc", WIDTH, INNER, "mlp.fc1"),
                                      ("mlp.c_proj", INNER, WIDTH, "mlp.fc2")):
            rows += same(at + name + ".weight", [n_in, n_out], own + to + ".weight", n_out)
            rows += same(at + name + ".bias", [n_out], own + to + ".bias", n_out)
    return rows + norm("ln_f", "norm"), ["h.0.attn.bias"]


def vit():
    rows = convolution("vit.embeddings.patch_embeddings.projection", CHANNELS, WIDTH, PATCH, "patch")
    rows += same("vit.embeddings.patch_embeddings.projection.bias", [WIDTH], "patch.bias", WIDTH)
    rows += same("vit.embeddings.cls_token", [1, 1, WIDTH], "class", WIDTH)
    rows += same("vit.embeddings.position_embeddings", [1, 5, WIDTH], "position", WIDTH)
    for i in range(LAYERS):
        at, own = f"vit.encoder.layer.{i}.", f"block{i}."
        rows += norm(at + "layernorm_before", own + "norm1") + norm(at + "layernorm_after", own + "norm2")
        for name, to in (("query", "q"), ("key", "k"), ("value", "v")):
            rows += linear(f"{at}attention.attention.{name}", WIDTH, WIDTH, f"{own}attention.{to}")
        rows += linear(at + "attention.output.dense", WIDTH, WIDTH, own + "attention.out")
        rows += linear(at + "intermediate.dense", WIDTH, INNER, own + "mlp.fc1")
        rows += linear(at + "output.dense", INNER, WIDTH, own + "mlp.fc2")
    return rows + norm("vit.layernorm", "norm") + linear("classifier", WIDTH, CLASSES, "head"), []


def resnet(is_bottleneck):
    width, blocks = 4, ([3, 4, 6, 3] if is_bottleneck else [2, 2, 2, 2])
    every = ("weight", "bias", "running_mean", "running_var")

    def with_norm(name, norm_name, n_in, n_out, side, own):
        return convolution(name, n_in, n_out, side, own) + norm(norm_name, own + ".norm", n_out, every, every)

    rows, n_in = with_norm("conv1", "bn1", CHANNELS, width, 7, "stem"), width
    for stage, n_block in enumerate(blocks):
        inner = width << stage
        n_out = inner * (4 if is_bottleneck else 1)
        for block in range(n_block):
            at, own = f"layer{stage + 1}.{block}.", f"stage{stage + 1}.block{block}."
            sizes = ([(n_in, inner, 1), (inner, inner, 3), (inner, n_out, 1)] if is_bottleneck
                     else [(n_in, inner, 3), (inner, inner, 3)])
            for k, (a, b, side) in enumerate(sizes, 1):
                rows += with_norm(f"{at}conv{k}", f"{at}bn{k}", a, b, side, f"{own}conv{k}")
            if block == 0 and (stage > 0 or is_bottleneck):
                rows += with_norm(at + "downsample.0", at + "downsample.1", n_in, n_out, 1, own + "shortcut")
            n_in = n_out
    return rows + linear("fc", n_in, CLASSES, "head"), ["bn1.num_batches_tracked"]


MODELS = {"bert": bert, "gpt2": gpt2, "vit": vit, "resnet18": lambda: resnet(False), "resnet50": lambda: resnet(True)}


def count(shape):
    n = 1
    for dim in shape:
        n *= dim
    return n


def read(path):
    with open(path, "rb") as file:
        content = file.read()
    n = struct.unpack("<Q", content[:8])[0]
    header, data = json.loads(content[8:8 + n]), content[8 + n:]
    return {name: (of["shape"], array.array("f", data[of["data_offsets"][0]:of["data_offsets"][1]]))
            for name, of in header.items() if name != "__metadata__" and of["dtype"] == "F32"}


def make(model, path, shift=0.0):
    rows, others = MODELS[model]()
    draw, header, data = random.Random(7), {"__metadata__": {"format": "pt"}}, b""
    for name, shape in {**{row[0]: row[1] for row in rows}, **{name: [2] for name in others}}.items():
        values = [draw.uniform(0.5, 1.5) if "running_var" in name else draw.uniform(-1, 1) for _ in range(count(shape))]
        if "running" in name:
            values = [x + float(shift) for x in values]
        part = array.array("f", values).tobytes()
        kind = "I64" if "num_batches" in name else "F32"
        part = struct.pack("<2q", 3, 4) if kind == "I64" else part
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def check(model, path, exported):
    published, own = read(path), read(exported)
    rows, _ = MODELS[model]()
    assert sorted(row[2] for row in rows) == sorted(own), set(own) ^ {row[2] for row in rows}
    for name, _, to, value, columns in rows:
        got, file = own[to][1], published[name][1]
        if "running" in name:
            continue
        for k, x in enumerate(got):
            assert x == value(file, k // columns, k % columns), (name, to, k)


def shifted(shift, first, second):
    a, b = read(first), read(second)
    differences = [y - x for name in a if "running" in name for x, y in zip(a[name][1], b[name][1])]
    assert differences and all(abs(of - float(shift)) < 1e-5 for of in differences), differences[:5]


if __name__ == "__main__":
    {"make": make, "check": check, "shifted": shifted}[sys.argv[1]](*sys.argv[2:])
