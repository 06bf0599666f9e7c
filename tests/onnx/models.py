"""The models that imports are checked with: torchvision's, and a few of our own. MODELS[name] → (make, shape or tokens)."""
import torch
import torch.nn as nn


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x):
        return self.net(x)


class Transformer(nn.Module):
    """An encoder, or with a causal mask a decoder without cross attention."""

    def __init__(self, causal, layers=12, width=64, vocabulary=100, length=32):
        super().__init__()
        self.causal = causal
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.randn(1, length, width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=causal
        )
        self.layers = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        x = self.token(tokens) + self.position[:, : tokens.shape[1]]
        mask = None
        if self.causal:
            n = tokens.shape[1]
            mask = torch.full((n, n), float("-inf")).triu(1)
        return self.head(self.layers(x, mask))


class RootMeanSquare(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class RotaryLayer(nn.Module):
    def __init__(self, width, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, depth = heads, kv_heads, width // heads
        self.q, self.out = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(width, kv_heads * depth, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * width, width, bias=False)
        self.norm1, self.norm2 = RootMeanSquare(width), RootMeanSquare(width)

    def forward(self, x, cos, sin, mask):
        batch, length, width = x.shape
        y, depth = self.norm1(x), width // self.heads
        q, k, v = (
            layer(y).view(batch, length, heads, depth).transpose(1, 2)
            for layer, heads in ((self.q, self.heads), (self.k, self.kv_heads), (self.v, self.kv_heads))
        )
        q, k, times = rotate(q, cos, sin), rotate(k, cos, sin), self.heads // self.kv_heads
        if times > 1:
            k, v = (
                one[:, :, None].expand(-1, -1, times, -1, -1).reshape(batch, self.heads, length, depth)
                for one in (k, v)
            )
        mixed = (q @ k.transpose(-1, -2) * depth**-0.5 + mask).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        y = self.norm2(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class Rotary(nn.Module):
    """A decoder with rotated positions, norms by the root mean square, gates, and heads that share keys. The sines are in
    the file, or computed there from frequencies."""

    def __init__(self, kv_heads, has_sines, layers=3, width=64, heads=4, vocabulary=100, length=32):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(RotaryLayer(width, heads, kv_heads) for _ in range(layers))
        self.norm, self.head = RootMeanSquare(width), nn.Linear(width, vocabulary, bias=False)
        depth, self.has_sines = width // heads, has_sines
        self.register_buffer("frequency", 1e4 ** (-torch.arange(0, depth, 2) / depth), persistent=False)
        if has_sines:
            angles = self.angles(torch.arange(2 * length)[None])  # of more places than there are
            self.register_buffer("cos", angles.cos(), persistent=False)
            self.register_buffer("sin", angles.sin(), persistent=False)

    def angles(self, places):
        angles = (self.frequency[None, :, None] @ places[:, None, :].to(self.frequency.dtype)).transpose(1, 2)
        return torch.cat((angles, angles), -1)

    def forward(self, tokens):
        length = tokens.shape[1]
        if self.has_sines:
            cos, sin = self.cos[:, :length], self.sin[:, :length]
        else:
            angles = self.angles(torch.arange(length)[None])
            cos, sin = angles.cos()[:, None], angles.sin()[:, None]
        x, mask = self.token(tokens), torch.full((length, length), float("-inf")).triu(1)
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        return self.head(self.norm(x))


class Odd(nn.Module):
    """Two inputs, a branch taken in Python, operations in place, a head of its own."""

    def __init__(self, wide=True):
        super().__init__()
        self.left = nn.Linear(20, 32)
        self.right = nn.Linear(12, 32)
        self.gate = nn.Linear(64, 64) if wide else nn.Identity()
        self.head = nn.Linear(64, 10)

    def forward(self, a, b):
        x = torch.cat([self.left(a), self.right(b)], 1)
        if x.shape[1] == 64:
            x = x * torch.sigmoid(self.gate(x))
        x += 1.0
        x.mul_(0.5)
        return self.head(torch.relu_(x))


def torchvision_model(name, size, **options):
    def make():
        import torchvision

        model = getattr(torchvision.models, name)(weights=None, **options)
        for module in model.modules():  # nothing random, and no layer that starts with zeros
            if isinstance(module, (nn.Dropout, torchvision.ops.StochasticDepth)):
                module.p = 0.0
            if isinstance(module, nn.Linear) and not module.weight.any():
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.BatchNorm2d) and not module.weight.any():
                nn.init.constant_(module.weight, 0.2)
        return model

    return make, [(3, size, size)]


MODELS = {
    "mlp": (Mlp, [(1, 28, 28)]),
    "odd": (Odd, [(20,), (12,)]),
    "encoder": (lambda: Transformer(False), 32),
    "decoder": (lambda: Transformer(True), 32),
    "rotary": (lambda: Rotary(2, True), 32),
    "rotary_angles": (lambda: Rotary(4, False), 32),
    "resnet18": torchvision_model("resnet18", 64),
    "resnet50": torchvision_model("resnet50", 128, zero_init_residual=True),
    "vgg16": torchvision_model("vgg16", 224),
    "vgg11_bn": torchvision_model("vgg11_bn", 224),
    "vit_b_16": torchvision_model("vit_b_16", 64, image_size=64),
    "densenet121": torchvision_model("densenet121", 64),
    "mobilenet_v2": torchvision_model("mobilenet_v2", 224),
    "efficientnet_b0": torchvision_model("efficientnet_b0", 64),
    "googlenet": torchvision_model("googlenet", 224, aux_logits=False, init_weights=False),
    "convnext_tiny": torchvision_model("convnext_tiny", 64),
    "swin_t": torchvision_model("swin_t", 224),
}
