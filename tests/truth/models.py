"""Writes two small ONNX models and a data set of small images: with nothing but the standard library."""

import random
import struct

FLOAT, INTEGER, INTEGERS = 1, 2, 7


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, value):
    """A field of a protobuf message: a whole number, a text, or a message that is encoded already."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def attribute(name, value):
    if isinstance(value, int):
        return field(5, field(1, name) + field(3, value) + field(20, INTEGER))
    return field(5, field(1, name) + b"".join(field(8, one) for one in value) + field(20, INTEGERS))


def node(kind, inputs, output, **attributes):
    message = b"".join(field(1, one) for one in inputs.split()) + field(2, output) + field(3, output)
    message += field(4, kind) + b"".join(attribute(*pair) for pair in attributes.items())
    return field(1, message)


def weight(name, *dims):
    draw = random.Random(name)
    n = 1
    for one in dims:
        n *= one
    numbers = struct.pack(f"<{n}f", *(draw.gauss(0, 0.1) for _ in range(n)))
    message = b"".join(field(1, one) for one in dims) + field(2, FLOAT) + field(8, name) + field(9, numbers)
    return field(5, message)


def value(number, name, *dims):
    shape = b"".join(field(1, field(2, d) if isinstance(d, str) else field(1, d)) for d in dims)
    return field(number, field(1, name) + field(2, field(1, field(1, FLOAT) + field(2, shape))))


def write_model(path, nodes, weights, inputs, outputs):
    graph = b"".join(nodes) + field(2, "g") + b"".join(weights) + inputs + outputs
    with open(path, "wb") as file:
        file.write(field(1, 7) + field(8, field(1, "") + field(2, 13)) + field(7, graph))


def write_models(folder):
    """branches.onnx: two linear layers read one tensor, and their sum a third. convolutions.onnx: two convolutions
    and a linear layer."""
    image, classes = value(11, "x", "batch", 1, 28, 28), value(12, "y", "batch", 10)
    write_model(
        f"{folder}/branches.onnx",
        [
            node("Flatten", "x", "flat", axis=1),
            node("Gemm", "flat left.w left.b", "left", transB=1),
            node("Gemm", "flat right.w right.b", "right", transB=1),
            node("Add", "left right", "sum"),
            node("Relu", "sum", "active"),
            node("Gemm", "active head.w head.b", "y", transB=1),
        ],
        [weight("left.w", 96, 784), weight("left.b", 96), weight("right.w", 96, 784), weight("right.b", 96)]
        + [weight("head.w", 10, 96), weight("head.b", 10)],
        image,
        classes,
    )
    write_model(
        f"{folder}/convolutions.onnx",
        [
            node("Conv", "x first.w first.b", "first", pads=[1, 1, 1, 1], kernel_shape=[3, 3], strides=[2, 2]),
            node("Relu", "first", "one"),
            node("Conv", "one second.w second.b", "second", pads=[1, 1, 1, 1], kernel_shape=[3, 3], strides=[2, 2]),
            node("Relu", "second", "two"),
            node("Flatten", "two", "flat", axis=1),
            node("Gemm", "flat head.w head.b", "y", transB=1),
        ],
        [weight("first.w", 8, 1, 3, 3), weight("first.b", 8), weight("second.w", 16, 8, 3, 3)]
        + [weight("second.b", 16), weight("head.w", 10, 784), weight("head.b", 10)],
        image,
        classes,
    )


def write_images(folder):
    """512 + 64 images in the format of the MNIST family: each class has a pattern, under noise. A third of the labels
    are drawn: no training gets to a loss of 0, where gradients vanish."""
    draw = random.Random("images")
    patterns = [[draw.randrange(256) for _ in range(784)] for _ in range(10)]
    for name, n in (("train", 512), ("t10k", 64)):
        classes = [k % 10 for k in range(n)]
        labels = bytes(draw.randrange(10) if draw.random() < 1 / 3 else one for one in classes)
        with open(f"{folder}/{name}-labels-idx1-ubyte", "wb") as file:
            file.write(struct.pack(">BBBBI", 0, 0, 8, 1, n) + labels)
        with open(f"{folder}/{name}-images-idx3-ubyte", "wb") as file:
            file.write(struct.pack(">BBBBIII", 0, 0, 8, 3, n, 28, 28))
            for k in range(n):
                noise = draw.randbytes(784)
                file.write(bytes((a + b * 3) // 4 for a, b in zip(patterns[classes[k]], noise)))
