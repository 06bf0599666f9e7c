"""Four models of the zoo in plain PyTorch, as graph/zoo/ has them, with their parameters under tandem's names.

A model's `tensors` are (tandem's name, PyTorch's tensor, layout); a layout turns PyTorch's into tandem's, which keeps a linear's
weight as (inputs, outputs), a convolution's as (height * width * inputs, outputs), and everything else as PyTorch does.
"""
import torch
import torch.nn.functional as F
from torch import nn


def as_it_is(x):
    return x


def linear_layout(x):
    return x.t()


def conv_layout(x):
    return x.permute(2, 3, 1, 0).reshape(-1, x.shape[0])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tensors = []
        self.without_decay = []

    def keep(self, name, tensor, layout=as_it_is, decays=False):
        self.tensors.append((name, tensor, layout))
        if not decays and isinstance(tensor, nn.Parameter):
            self.without_decay.append(tensor)
        return tensor

    def add(self, name, module):
        self.add_module("made_" + name.replace(".", "_"), module)
        return module

    def linear(self, name, n_in, n_out, deviation=0.02, bias=True):
        made = self.add(name, nn.Linear(n_in, n_out, bias=bias))
        nn.init.normal_(made.weight, std=deviation)
        self.keep(name + ".weight", made.weight, linear_layout, decays=True)
        if bias:
            nn.init.zeros_(made.bias)
            self.keep(name + ".bias", made.bias)
        return made

    def conv(self, name, n_in, n_out, kernel, stride, pad):
        made = self.add(name, nn.Conv2d(n_in, n_out, kernel, stride, pad, bias=False))
        nn.init.normal_(made.weight, std=(2 / (kernel * kernel * n_in)) ** 0.5)
        self.keep(name + ".weight", made.weight, conv_layout, decays=True)
        return made

    def batchnorm(self, name, n):
        made = self.add(name, nn.BatchNorm2d(n))
        for part in ("weight", "bias", "running_mean", "running_var"):
            self.keep(f"{name}.{part}", getattr(made, part))
        return made

    def layernorm(self, name, n):
        made = self.add(name, nn.LayerNorm(n))
        self.keep(name + ".weight", made.weight)
        self.keep(name + ".bias", made.bias)
        return made

    def embedding(self, name, n, width):
        made = self.add(name, nn.Embedding(n, width))
        nn.init.normal_(made.weight, std=0.02)
        self.keep(name + ".weight", made.weight, decays=True)
        return made

    def table(self, name, *shape, deviation=0.02):
        made = nn.Parameter(torch.randn(*shape) * deviation)
        self.register_parameter("made_" + name.replace(".", "_"), made)
        return self.keep(name, made)

    def groups(self, decay):
        """Parameters for an optimizer: weight decay is for matrices."""
        without = {id(p) for p in self.without_decay}
        return [
            {"params": [p for p in self.parameters() if id(p) not in without], "weight_decay": decay},
            {"params": self.without_decay, "weight_decay": 0.0},
        ]


class Resnet20(Model):
    """Images are (batch, 1, height, width)."""

    def __init__(self, width=16, blocks=3, channels=1, classes=10):
        super().__init__()
        self.stem = self.conv_norm("conv", channels, width, 3, 1)
        self.parts, before = [], width
        for stage in range(3):
            n = width << stage
            for block in range(blocks):
                scope = f"stage{stage + 1}.block{block}"
                stride = 2 if stage > 0 and block == 0 else 1
                first = self.conv_norm(scope + ".conv1", before, n, 3, stride)
                second = self.conv_norm(scope + ".conv2", n, n, 3, 1)
                changes = stride != 1 or before != n
                shortcut = self.conv_norm(scope + ".shortcut", before, n, 1, stride) if changes else as_it_is
                self.parts.append((first, second, shortcut))
                before = n
        self.head = self.linear("head", before, classes, before**-0.5)

    def conv_norm(self, name, n_in, n_out, kernel, stride):
        conv = self.conv(name, n_in, n_out, kernel, stride, kernel // 2)
        norm = self.batchnorm(name + ".norm", n_out)
        return lambda x: norm(conv(x))

    def forward(self, x):
        x = F.relu(self.stem(x))
        for first, second, shortcut in self.parts:
            x = F.relu(shortcut(x) + second(F.relu(first(x))))
        return self.head(x.mean((2, 3)))


class Block:
    """Attention and mlp, with their norms before or after them."""

    def __init__(self, model, scope, width, heads, causal, post_norm):
        self.heads, self.causal, self.post_norm = heads, causal, post_norm
        attention = scope + ".attention"
        self.q, self.k, self.v, self.out = (model.linear(f"{attention}.{part}", width, width) for part in ("q", "k", "v", "out"))
        self.fc1 = model.linear(scope + ".mlp.fc1", width, 4 * width)
        self.fc2 = model.linear(scope + ".mlp.fc2", 4 * width, width)
        self.norm1, self.norm2 = model.layernorm(scope + ".norm1", width), model.layernorm(scope + ".norm2", width)

    def attend(self, x):
        batch, length, width = x.shape
        q, k, v = (part(x).view(batch, length, self.heads, -1).transpose(1, 2) for part in (self.q, self.k, self.v))
        scores = q @ k.transpose(2, 3) / (width // self.heads) ** 0.5
        if self.causal:
            scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width))

    def mlp(self, x):
        return self.fc2(F.gelu(self.fc1(x), approximate="tanh"))

    def __call__(self, x):
        if self.post_norm:
            x = self.norm1(x + self.attend(x))
            return self.norm2(x + self.mlp(x))
        x = x + self.attend(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Transformer(Model):
    def blocks(self, depth, width, heads, causal=False, post_norm=False):
        self.made = [Block(self, f"block{i}", width, heads, causal, post_norm) for i in range(depth)]
        self.last = as_it_is if post_norm else self.layernorm("norm", width)

    def through(self, x):
        for block in self.made:
            x = block(x)
        return self.last(x)


class VitTiny(Transformer):
    def __init__(self, size=28, patch=4, width=192, depth=4, heads=3, classes=10):
        super().__init__()
        self.patch = self.conv("patch", 1, width, patch, patch, 0)
        self.patch_bias = self.table("patch.bias", width)
        self.position = self.table("position", (size // patch) ** 2, width)
        self.blocks(depth, width, heads)
        self.head = self.linear("head", width, classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2) + self.patch_bias + self.position
        return self.head(self.through(x).mean(1))


class GptTiny(Transformer):
    def __init__(self, length=64, width=128, depth=4, heads=4, vocabulary=128):
        super().__init__()
        self.word = self.embedding("embedding", vocabulary, width)
        self.position = self.table("position", length, width)
        self.blocks(depth, width, heads, causal=True)
        self.head = self.linear("head", width, vocabulary, bias=False)

    def forward(self, tokens):
        return self.head(self.through(self.word(tokens) + self.position)).flatten(0, 1)


class Bert(Transformer):
    def __init__(self, seq=16, width=768, layers=2, heads=12, vocabulary=30522, positions=512):
        super().__init__()
        self.word = self.embedding("embedding", vocabulary, width)
        self.position = self.table("position", positions, width)
        self.segment = self.table("segment", 2, width)
        self.norm = self.layernorm("embedding.norm", width)
        self.blocks(layers, width, heads, post_norm=True)
        self.transform = self.linear("transform", width, width)
        self.transform_norm = self.layernorm("transform.norm", width)
        self.head_bias = self.table("head.bias", vocabulary, deviation=0)

    def forward(self, tokens):
        x = self.norm(self.word(tokens) + self.position[: tokens.shape[1]] + self.segment[0])
        x = self.transform_norm(F.gelu(self.transform(self.through(x)), approximate="tanh"))
        return (x @ self.word.weight.t() + self.head_bias).flatten(0, 1)
