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
