"""Writes the small models that `make test` imports, and damaged ones, into a folder. Needs python3-onnx; its output is committed
in tests/data/onnx. usage: make_small.py FOLDER"""
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

folder = sys.argv[1]
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


def tensor(name, *dim, scale=0.1):
    draw = numpy.random.default_rng(sum(name.encode()))
    return numpy_helper.from_array((scale * draw.standard_normal(dim)).astype(numpy.float32), name)


def integers(name, *numbers):
    return numpy_helper.from_array(numpy.array(numbers, numpy.int64), name)


def node(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs.split(), outputs.split(), name=f"/{outputs.split()[0]}/{kind}", **attributes)


def model(name, nodes, inputs, outputs, initializers, opset=13, change=None):
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7)
    if change:
        change(made)
    with open(f"{folder}/{name}.onnx", "wb") as file:
        file.write(made.SerializeToString(deterministic=True))


X = helper.make_tensor_value_info("x", FLOAT, ["batch", 8])
Y = helper.make_tensor_value_info("y", FLOAT, ["batch", 10])
W = [tensor("fc.weight", 10, 8), tensor("fc.bias", 10)]
GEMM = node("Gemm", "x fc.weight fc.bias", "y", transB=1)

# What is right, if odd: nodes in any order, an input that nobody reads, initializers as inputs, scalars as 1-tensors.
model(
    "odd",
    [node("Gemm", "c fc.weight fc.bias", "y", transB=1), node("Mul", "b two", "c"), node("Relu", "x", "b")],
    [X, helper.make_tensor_value_info("unused", FLOAT, [3]), helper.make_tensor_value_info("fc.weight", FLOAT, [10, 8])],
    [Y],
    W + [numpy_helper.from_array(numpy.array([2.0], numpy.float32), "two")],
)
# The same functions in two ways, the same sizes after a reshape, and a module of one letter.
for name, nodes in (
    ("selu", [node("Selu", "x", "a")]),
    ("selu_in_parts", [node("Elu", "x", "b", alpha=1.67326319217681884765625), node("Mul", "b gamma", "a")]),
    ("shifted", [node("Mul", "x two", "b"), node("Add", "b three", "a")]),
    ("shifted_before", [node("Add", "x half", "b"), node("Mul", "b two", "a")]),
    ("sizes_in_column", [node("Reshape", "column flat", "shape"), node("Reshape", "x shape", "b"), node("Flatten", "b", "a")]),
    ("one_letter", [helper.make_node("Relu", ["x"], ["a"], name="/m/n/n.0/Relu")]),
):
    constants = {"gamma": 1.05070102214813232421875, "two": 2, "three": 3, "half": 1.5}
    model(
        name,
        [*nodes, node("Gemm", "a fc.weight fc.bias", "y", transB=1)],
        [X],
        [Y],
        [
            *W,
            *(numpy_helper.from_array(numpy.array(of, numpy.float32), key) for key, of in constants.items()),
            numpy_helper.from_array(numpy.array([[-1], [2], [4]], numpy.int64), "column"),
            integers("flat", -1),
        ],
    )
# A gelu by erf, a layernorm in steps, a batchnorm, a convolution, and a softmax at the end.
IMAGE = helper.make_tensor_value_info("x", FLOAT, ["batch", 3, 8, 8])
model(
    "conv",
    [
        node("Conv", "x conv.weight conv.bias", "a", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "a bn.weight bn.bias bn.mean bn.var", "b", epsilon=0.001),
        node("Relu", "b", "c"),
        node("GlobalAveragePool", "c", "d"),
        node("Flatten", "d", "e"),
        node("MatMul", "e fc.weight", "f"),
        node("Add", "f fc.bias", "h"),
        node("ReduceMean", "h", "m", axes=[-1]),
        node("Sub", "h m", "n"),
        node("Pow", "n two", "o"),
        node("ReduceMean", "o", "p", axes=[-1]),
        node("Add", "p epsilon", "q"),
        node("Sqrt", "q", "r"),
        node("Div", "n r", "s"),
        node("Mul", "s norm.weight", "t"),
        node("Add", "t norm.bias", "u"),
        node("Div", "u root", "v"),
        node("Erf", "v", "w"),
        node("Add", "w one", "z"),
        node("Mul", "u z", "aa"),
        node("Mul", "aa half", "bb"),
        node("LogSoftmax", "bb", "y", axis=1),
    ],
    [IMAGE],
    [Y],
    [
        tensor("conv.weight", 6, 3, 3, 3),
        tensor("conv.bias", 6),
        tensor("bn.weight", 6),
        tensor("bn.bias", 6),
        tensor("bn.mean", 6),
        tensor("bn.var", 6),
        tensor("fc.weight", 6, 10),
        tensor("fc.bias", 10),
        tensor("norm.weight", 10),
        tensor("norm.bias", 10),
    ]
    + [
        numpy_helper.from_array(numpy.array(value, numpy.float32), name)
        for name, value in (("two", 2), ("epsilon", 1e-5), ("root", 2**0.5), ("one", 1), ("half", 0.5))
    ],
)
model(
    "tokens",
    [
        node("Gather", "table ids", "a"),
        node("MatMul", "a head", "y"),
    ],
    [helper.make_tensor_value_info("ids", INT, ["batch", "seq"])],
    [helper.make_tensor_value_info("y", FLOAT, ["batch", "seq", 11])],
    [tensor("table", 11, 6), tensor("head", 6, 11)],
)
# Rotated positions: sines of more places than there are, and angles of frequencies; heads that share a key.
model(
    "rotated",
    [
        node("MatMul", "x to.weight", "a"),
        node("Slice", "sines zero four zero", "s"),
        node("Mul", "a s", "b"),
        node("Mul", "b s", "c"),
        node("Constant", "", "places", value=numpy_helper.from_array(numpy.arange(4, dtype=numpy.float32)[None])),
        node("MatMul", "frequencies places", "angles"),
        node("Cos", "angles", "cosines"),
        node("Mul", "c cosines", "d"),
        node("Unsqueeze", "d one", "e"),
        node("Expand", "e shape", "f"),
        node("Reshape", "f flat", "h"),
        node("Gemm", "h fc.weight fc.bias", "y", transB=1),
    ],
    [helper.make_tensor_value_info("x", FLOAT, ["batch", 4, 4])],
    [Y],
    [
        tensor("to.weight", 4, 4),
        tensor("sines", 9, 4, scale=1),
        tensor("frequencies", 4, 1),
        tensor("fc.weight", 10, 32),
        tensor("fc.bias", 10),
        integers("zero", 0),
        integers("one", 1),
        integers("four", 4),
        integers("shape", 1, 2, 4, 4),
        integers("flat", -1, 32),
    ],
)
# A table of factors as it lies, and transposed.
model(
    "turned",
    [
        node("Mul", "x table", "a"),
        node("Transpose", "table", "t", perm=[1, 0]),
        node("Mul", "a t", "b"),
        node("Flatten", "b", "c"),
        node("Gemm", "c fc.weight fc.bias", "y", transB=1),
    ],
    [helper.make_tensor_value_info("x", FLOAT, ["batch", 4, 4])],
    [Y],
    [tensor("table", 4, 4, scale=1), tensor("fc.weight", 10, 16), tensor("fc.bias", 10)],
)
# Attention with a table of relative positions and a mask that is written in steps, as Swin's; no weights but names.
model(
    "places",
    [
        node("MatMul", "x to.weight", "a"),
        node("Gather", "attn.table places", "g"),
        node("Reshape", "g square", "h"),
        node("Transpose", "h", "t", perm=[2, 0, 1]),
        node("Add", "a t", "b"),
        node("ConstantOfShape", "two", "zeros"),
        node("ScatterND", "zeros place number", "mask"),
        node("Add", "b mask", "c"),
        node("Softmax", "c", "d", axis=2),
        node("Flatten", "d", "e"),
        node("Gemm", "e fc.weight fc.bias", "y", transB=1),
    ],
    [helper.make_tensor_value_info("x", FLOAT, ["batch", 4, 4])],
    [Y],
    [
        tensor("to.weight", 4, 4),
        tensor("attn.table", 7, 1),
        tensor("fc.weight", 10, 16),
        tensor("fc.bias", 10),
        integers("places", *[3 + i - j for i in range(4) for j in range(4)]),
        integers("square", 4, 4, -1),
        integers("two", 4, 4),
        numpy_helper.from_array(numpy.array([[0, 1]], numpy.int64), "place"),
        numpy_helper.from_array(numpy.array([-100], numpy.float32), "number"),
    ],
)
# One net on images in many shapes; its weights are inputs without numbers, so drawn by the seed.
PARAMETERS = [helper.make_tensor_value_info("fc.weight", FLOAT, [10, 784]), helper.make_tensor_value_info("fc.bias", FLOAT, [10])]
HEAD = node("Gemm", "f fc.weight fc.bias", "y", transB=1)


def on_images(name, *shape, nodes=(), head=(node("Flatten", "x", "f"), HEAD), outputs=Y, weight=784):
    inputs = [helper.make_tensor_value_info("x", FLOAT, ["batch", *shape])] + PARAMETERS
    if weight != 784:
        inputs[1] = helper.make_tensor_value_info("fc.weight", FLOAT, [10, weight])
    model(f"takes_{name}", [*nodes, *head], inputs, [outputs], [])


TURN = node("Transpose", "x", "t", perm=[0, 3, 1, 2])
on_images("image", 1, 28, 28)
on_images("flat", 784)
on_images("rows", 28, 28)
on_images("row", 1, 784)
on_images("pixels", 784, 1, 1)
on_images("last", 28, 28, 1)
on_images("turned", 28, 28, 1, head=(TURN, node("Flatten", "t", "f"), HEAD))
on_images("deep", 1, 1, 28, 28)
on_images("larger", 1, 56, 56, weight=3136)
on_images("colour", 3, 28, 28, weight=2352)
on_images("table", 20, weight=20)
on_images("spectrum", 34, 96, weight=3264)
on_images("stack", 4, 14, 14, weight=784)
on_images("long", 1, 1, 96, weight=96)
on_images("spread", 1, 20, 96, weight=1920)
on_images("colours_last", 224, 224, 3, weight=150528)
on_images("many", 28, 28, head=(node("Transpose", "fc.weight", "w", perm=[1, 0]), node("MatMul", "x w", "y")), weight=28)
on_images("scalar", head=(node("Unsqueeze", "x", "f", axes=[1]), HEAD), weight=1)
model(
    "takes_two",
    [node("Concat", "x z", "f", axis=1), HEAD],
    [helper.make_tensor_value_info("x", FLOAT, ["batch", 392]), helper.make_tensor_value_info("z", FLOAT, ["batch", 392])] + PARAMETERS,
    [Y],
    [],
)
# The weights of "odd" in nodes: a Constant, one that is turned and copied, a list, and one that ConstantOfShape fills.
ODD = [node("Relu", "x", "a"), node("Add", "a shift", "b"), node("Gemm", "b fc.weight fc.bias", "y", transB=1)]
SHIFT = numpy_helper.from_array(numpy.full(8, 0.5, numpy.float32), "shift")
model("as_initializers", ODD, [X], [Y], W + [SHIFT])
TURNED = numpy_helper.from_array(numpy.ascontiguousarray(numpy_helper.to_array(W[0]).T), "v")
model(
    "as_nodes",
    [
        node("Constant", "", "v", value=TURNED),
        node("Transpose", "v", "u", perm=[1, 0]),
        node("Identity", "u", "fc.weight"),
        node("Constant", "", "fc.bias", value_floats=numpy_helper.to_array(W[1]).tolist()),
        node("ConstantOfShape", "eight", "shift", value=numpy_helper.from_array(numpy.array([0.5], numpy.float32))),
    ]
    + ODD,
    [X],
    [Y],
    [integers("eight", 8)],
)
# A bias of zeros is trained, and no mask.
model("zeros", [node("Constant", "", "fc.bias", value=numpy_helper.from_array(numpy.zeros(10, numpy.float32))), GEMM], [X], [Y], [W[0]])
model(
    "zeros_added",
    [node("Constant", "", "c", value=numpy_helper.from_array(numpy.zeros(8, numpy.float32))), node("Add", "x c", "a"), node("Gemm", "a fc.weight fc.bias", "y", transB=1)],
    [X],
    [Y],
    W,
)
# What an attribute of a norm decides; what no axes mean.
LN = [numpy_helper.from_array(numpy.full(8, v, numpy.float32), n) for n, v in (("norm.weight", 1), ("norm.bias", 0))]
model("epsilon", [node("LayerNormalization", "x norm.weight norm.bias", "y", epsilon=0.5)], [X], [helper.make_tensor_value_info("y", FLOAT, ["batch", 8])], LN, opset=17)
SCALARS = [numpy_helper.from_array(numpy.array(v, numpy.float32), n) for n, v in (("two", 2), ("half", 0.5))]
model(
    "epsilon_steps",
    [
        node("ReduceMean", "x", "m", axes=[-1]),
        node("Sub", "x m", "n"),
        node("Pow", "n two", "o"),
        node("ReduceMean", "o", "p", axes=[-1]),
        node("Add", "p half", "q"),
        node("Sqrt", "q", "r"),
        node("Div", "n r", "s"),
        node("Mul", "s norm.weight", "t"),
        node("Add", "t norm.bias", "y"),
    ],
    [X],
    [helper.make_tensor_value_info("y", FLOAT, ["batch", 8])],
    LN + SCALARS,
)
CUBE = helper.make_tensor_value_info("x", FLOAT, ["batch", 4, 2])
model("noop", [node("ReduceMean", "x", "a", noop_with_empty_axes=1), node("Flatten", "a", "b"), node("Gemm", "b fc.weight fc.bias", "y", transB=1)], [CUBE], [Y], W, opset=18)
model("auto_pad", [node("Conv", "x conv.weight", "a", auto_pad="OTHER"), node("GlobalAveragePool", "a", "b"), node("Flatten", "b", "y")], [IMAGE], [Y], [tensor("conv.weight", 10, 3, 3, 3)])
model("parts", [node("Split", "x", "a b", axis=1, num_outputs=3), node("Gemm", "a fc.weight fc.bias", "y", transB=1)], [X], [Y], [tensor("fc.weight", 10, 4), W[1]], opset=18)
# A table whose transpose an exporter stored; and one that only looks so.
IDS, SEQ = helper.make_tensor_value_info("ids", INT, ["batch", 5]), helper.make_tensor_value_info("y", FLOAT, ["batch", 5, 11])
TIED = [node("Gather", "table ids", "a"), node("MatMul", "a head", "y")]
TABLE = tensor("table", 11, 6)
HEAD_OF_TABLE = numpy_helper.from_array(numpy.ascontiguousarray(numpy_helper.to_array(TABLE).T), "head")
model("tied", TIED, [IDS], [SEQ], [TABLE, HEAD_OF_TABLE])
OTHER = numpy_helper.to_array(HEAD_OF_TABLE).copy()
OTHER[5, 10] += 1
model("untied", TIED, [IDS], [SEQ], [TABLE, numpy_helper.from_array(OTHER, "head")])
# Nodes after those that are not supported: with declared shapes, by definition, and unknown.
SOFT = [node("Mish", "x", "a"), node("Gemm", "a fc.weight fc.bias", "b", transB=1), node("Mish", "b", "c"), node("CumMax", "c", "d"), node("Relu", "d", "e"), node("Mish", "e", "y")]
model("after_unknown", SOFT, [X], [Y], W)


def declare(made):
    made.graph.value_info.append(helper.make_tensor_value_info("d", FLOAT, ["batch", 10]))


model("after_declared", SOFT, [X], [Y], W, change=declare)
model(
    "recurrent",
    [node("Expand", "state shape", "h"), node("LSTM", "x w r w h h", "a", hidden_size=4), node("Flatten", "a", "b"), node("Gemm", "b fc.weight fc.bias", "y", transB=1)],
    [helper.make_tensor_value_info("x", FLOAT, ["batch", 4, 2])],
    [Y],
    W + [tensor("state", 1, 1, 4), tensor("w", 1, 16, 2), tensor("r", 1, 16, 4), integers("shape", 1, 7, 4)],
)
model(
    "bare",
    [GEMM],
    [X]
    + [helper.make_tensor_value_info(name, FLOAT, dim) for name, dim in (("fc.weight", [10, 8]), ("fc.bias", [10]))],
    [Y],
    [],
)
# The same without a mask, as exported without weights: integers among the inputs. The table is read first.
model(
    "early",
    [
        node("Gather", "attn.table attn.places", "g"),
        node("Reshape", "g square", "h"),
        node("Transpose", "h", "t", perm=[2, 0, 1]),
        node("MatMul", "x to.weight", "a"),
        node("Add", "a t", "b"),
        node("Softmax", "b", "d", axis=2),
        node("Flatten", "d", "e"),
        node("Gemm", "e fc.weight fc.bias", "y", transB=1),
    ],
    [helper.make_tensor_value_info("x", FLOAT, ["batch", 4, 4])]
    + [
        helper.make_tensor_value_info(name, FLOAT, dim)
        for name, dim in (("to.weight", [4, 4]), ("attn.table", [7, 1]), ("fc.weight", [10, 16]), ("fc.bias", [10]))
    ]
    + [helper.make_tensor_value_info("attn.places", INT, [16])],
    [Y],
    [integers("square", 4, 4, -1)],
)
# The sum reads what was computed last first.
model(
    "branches",
    [node("MatMul", "x left.weight", "a"), node("MatMul", "x right.weight", "b"), node("Add", "b a", "y")],
    [X],
    [Y],
    [tensor("left.weight", 8, 10), tensor("right.weight", 8, 10)],
)
# A batchnorm that replaces a quarter of its running statistics in a step; PyTorch's default is a tenth.
BN = [tensor("bn.weight", 3), tensor("bn.bias", 3), tensor("bn.mean", 3), tensor("bn.var", 3), tensor("fc.weight", 10, 3), W[1]]


def with_momentum(name, momentum):
    model(
        name,
        [
            node("BatchNormalization", "x bn.weight bn.bias bn.mean bn.var", "a", momentum=momentum),
            node("GlobalAveragePool", "a", "b"),
            node("Flatten", "b", "c"),
            node("Gemm", "c fc.weight fc.bias", "y", transB=1),
        ],
        [IMAGE],
        [Y],
        BN,
    )


with_momentum("momentum", 0.75)
# Bounds that are the largest numbers of 64 bits; a row by a negative number.
LAST = numpy_helper.from_array(numpy.array(-1, numpy.int64), "last")
model(
    "far",
    [
        node("Slice", "x from to axis", "a"),
        node("Slice", "a least to axis", "b"),
        node("Gather", "b last", "c", axis=1),
        node("MatMul", "c fc.weight", "y"),
    ],
    [helper.make_tensor_value_info("x", FLOAT, ["batch", 8, 6])],
    [Y],
    [tensor("fc.weight", 6, 10), integers("from", -3), integers("to", 2**63 - 1), integers("least", -(2**63)), integers("axis", 1), LAST],
)
STEP = [numpy_helper.from_array(numpy.array(0.1, numpy.float32), "step"), numpy_helper.from_array(numpy.array(0, numpy.int8), "zero")]
# A constant of no elements, and a graph that simulates 8-bit numbers.
model(
    "empty",
    [node("Concat", "nothing shape", "s", axis=0), node("Reshape", "x s", "a"), node("Gemm", "a fc.weight fc.bias", "y", transB=1)],
    [X],
    [Y],
    W + [integers("nothing"), integers("shape", -1, 8)],
)
model(
    "qdq",
    [
        node("QuantizeLinear", "x step zero", "q"),
        node("DequantizeLinear", "q step zero", "d"),
        node("Gemm", "d fc.weight fc.bias", "y", transB=1),
    ],
    [X],
    [Y],
    W + STEP,
)

# What is wrong.
with_momentum("momentum_above", -0.5)
model("nothing", [GEMM], [helper.make_tensor_value_info("x", FLOAT, ["batch", 0])], [Y], W)
model(
    "rowless",
    [node("Slice", "x from to axis", "a"), node("Gemm", "a fc.weight fc.bias", "y", transB=1)],
    [X],
    [Y],
    W + [integers("from", 3), integers("to", 3), integers("axis", 1)],
)
model(
    "axis_twice",
    [node("Transpose", "c", "t", perm=[0, 0]), node("Add", "x t", "a"), node("Gemm", "a fc.weight fc.bias", "y", transB=1)],
    [X],
    [Y],
    W + [tensor("c", 8, 8)],
)
model(
    "left_out",
    [helper.make_node("Split", ["x", "sizes"], ["", "b"], axis=1), node("Gemm", "b fc.weight fc.bias", "y", transB=1)],
    [X],
    [Y],
    W + [integers("sizes", 8, 0)],
)
model("open", [GEMM], [helper.make_tensor_value_info("x", FLOAT, ["batch", None])], [Y], W)
model("whole", [GEMM], [helper.make_tensor_value_info("x", INT, ["batch", 8])], [Y], W)
model(
    "quantised",
    [node("DequantizeLinear", "w step zero", "d"), node("Gemm", "x d fc.bias", "y", transB=1)],
    [X],
    [Y],
    [numpy_helper.from_array(numpy.ones((10, 8), numpy.int8), "w"), W[1]] + STEP,
)
model("cycle", [node("Add", "x b", "a"), node("Relu", "a", "b"), node("Gemm", "a fc.weight fc.bias", "y", transB=1)], [X], [Y], W)
model("undefined", [node("Gemm", "nothing fc.weight fc.bias", "y", transB=1)], [X], [Y], W)
model("sizes", [GEMM], [X], [Y], [tensor("fc.weight", 10, 9), W[1]])
model("types", [GEMM], [X], [Y], [numpy_helper.from_array(numpy.ones((10, 8), numpy.int64), "fc.weight"), W[1]])
model("opset8", [GEMM], [X], [Y], W, opset=8)
model("opset7", [GEMM], [X], [Y], W, opset=7)
model("opset6", [GEMM], [X], [Y], W, opset=6)
model("unknown", [node("Relu", "x", "a"), node("Einsum", "a a", "b", equation="ij,ij->ij"), node("Gemm", "b fc.weight fc.bias", "y", transB=1)], [X], [Y], W)
branch = helper.make_graph([node("Relu", "x", "o")], "b", [], [helper.make_tensor_value_info("o", FLOAT, None)])
model(
    "if",
    [node("If", "flag", "a", then_branch=branch, else_branch=branch), node("Gemm", "a fc.weight fc.bias", "y", transB=1)],
    [X],
    [Y],
    W + [numpy_helper.from_array(numpy.array(True), "flag")],
)


def cut_data(made):
    made.graph.initializer[0].raw_data = made.graph.initializer[0].raw_data[:-3]


def outside(location, offset=0):
    def change(made):
        t = made.graph.initializer[0]
        t.ClearField("raw_data")
        t.data_location = TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", str(offset))):
            entry = t.external_data.add()
            entry.key, entry.value = key, value

    return change


def promise(made):
    made.graph.initializer[0].dims[0] = 10**9


def of_microsoft(made):
    made.graph.node[0].domain = "com.microsoft"
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))


def element(made):
    made.graph.initializer[0].data_type = 77


model("short", [GEMM], [X], [Y], W, change=cut_data)
model("external", [GEMM], [X], [Y], W, change=outside("weights.bin"))
model("outside", [GEMM], [X], [Y], W, change=outside("../onnx/weights.bin"))
model("absolute", [GEMM], [X], [Y], W, change=outside("/etc/passwd"))
model("missing", [GEMM], [X], [Y], W, change=outside("nothing.bin"))
model("beneath", [GEMM], [X], [Y], W, change=outside("part/weights.bin"))
model("far_past_end", [GEMM], [X], [Y], W, change=outside("weights.bin", 2**63 - 1))
model("before", [GEMM], [X], [Y], W, change=outside("weights.bin", -1))
model("domain", [node("Gelu", "x", "a"), node("Gemm", "a fc.weight fc.bias", "y", transB=1)], [X], [Y], W, change=of_microsoft)
model("element", [GEMM], [X], [Y], W, change=element)
model("past_end", [GEMM], [X], [Y], W, change=outside("weights.bin", 64))
model("promise", [GEMM], [X], [Y], W, change=promise)
with open(f"{folder}/weights.bin", "wb") as file:
    file.write(W[0].raw_data)
with open(f"{folder}/odd.onnx", "rb") as file:
    whole = file.read()
with open(f"{folder}/cut.onnx", "wb") as file:
    file.write(whole[: len(whole) * 2 // 3])
