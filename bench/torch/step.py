#!/usr/bin/python3.11
"""Training steps of PyTorch on models of tandem's zoo, for bench/torch.sh. Prints one JSON object.

usage: step.py MODEL fp32|bf16 [--batch N] [--seq N] [--channels-last] [--labelled] [--sdpa] [--padded]
[--compile] [--turns TURN…] [--steps N] [--ranks N] [--threads N] [--device cpu|cuda]

The models have the architecture of graph/zoo/resnet.c, vit_b16.c, bert_base.c (head=mlm) and gpt2_small.c, and their
optimizers, fused on a CPU where this PyTorch has them so (2.4); inputs are noise, made before the clock starts. bf16
is autocast. With ranks, DistributedDataParallel over Gloo: a process a rank, one thread each, each on a core of its
own. With --labelled, bert_base's head reads the tokens that have a label alone, as tandem's does. --sdpa takes
scaled_dot_product_attention in place of its parts, and --compile torch.compile. --padded gives the vocabulary of
gpt2_small and bert_base the next multiple of 64 words, none of which is drawn: tandem's rows of logits begin at such
multiples, and tensor cores want them. vocabulary is what the model has. A turn is such options together,
"labelled+sdpa", or "eager", none of them: --turns measures one after the other in one process and prints an object as
each is measured, or its "error"; exit code 1 where there was one. On a card (one rank) AdamW is the fused one and
cuDNN tries its algorithms, and peak_bytes are the card's. The first two steps are not counted. state_bytes: of
weights, gradients and what the optimizer keeps.
"""
import argparse
import gc
import json
import os
import re
import resource
import statistics
import sys
import tempfile
import time

import torch
import torch.nn.functional as F
from torch import nn

OPTIONS = ("labelled", "sdpa", "padded", "compile")  # of a turn
HAS_FUSED_ON_CPU = [int(part) for part in torch.__version__.split(".")[:2]] >= [2, 4]


class Block(nn.Module):
    def __init__(self, width, heads, norm_behind, causal, sdpa):
        super().__init__()
        self.sdpa = sdpa
        self.heads, self.norm_behind, self.causal = heads, norm_behind, causal
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def attention(self, x, mask):
        batch, length, width = x.shape

        def split(layer):
            return layer(x).view(batch, length, self.heads, width // self.heads).transpose(1, 2)

        if self.sdpa:
            mixed = F.scaled_dot_product_attention(split(self.q), split(self.k), split(self.v), is_causal=self.causal)
            return self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        scores = split(self.q) @ split(self.k).transpose(-1, -2) * (width // self.heads) ** -0.5
        if self.causal:
            scores = scores.masked_fill(mask, float("-inf"))
        mixed = scores.softmax(-1) @ split(self.v)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def mlp(self, x):
        return self.fc2(F.gelu(self.fc1(x), approximate="tanh"))

    def forward(self, x, mask):
        if self.norm_behind:
            x = self.norm1(x + self.attention(x, mask))
            return self.norm2(x + self.mlp(x))
        x = x + self.attention(self.norm1(x), mask)
        return x + self.mlp(self.norm2(x))


class AttentionInParts(nn.Module):
    """What nn.MultiheadAttention does with scaled_dot_product_attention since PyTorch 2, of its parts."""

    def __init__(self, attention):
        super().__init__()
        self.heads = attention.num_heads
        self.weight, self.bias, self.out = attention.in_proj_weight, attention.in_proj_bias, attention.out_proj

    def forward(self, query, key, value, need_weights):
        batch, length, width = query.shape
        parts = F.linear(query, self.weight, self.bias).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = (q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5).softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width)), None


class Transformer(nn.Module):
    """bert_base with its head for hidden tokens, or gpt2_small."""

    def __init__(self, vocabulary, positions, length, is_bert, sdpa, width=768, heads=12, layers=12):
        super().__init__()
        self.is_bert = is_bert
        self.labelled = None  # which tokens the head reads: all
        self.word, self.position = nn.Embedding(vocabulary, width), nn.Parameter(torch.randn(positions, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, heads, is_bert, not is_bert, sdpa) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.word.weight, std=0.02)
        self.register_buffer("mask", torch.triu(torch.ones(length, length, dtype=torch.bool), 1))
        if is_bert:
            self.segment = nn.Parameter(torch.randn(2, width) * 0.02)
            self.transform, self.transform_norm = nn.Linear(width, width), nn.LayerNorm(width)
            self.head_bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, tokens):
        x = self.word(tokens) + self.position[: tokens.shape[1]]
        if self.is_bert:
            x = self.norm(x + self.segment[0])
        for block in self.blocks:
            x = block(x, self.mask)
        if not self.is_bert:
            return F.linear(self.norm(x), self.word.weight)
        if self.labelled is not None:
            x = x.reshape(-1, x.shape[-1])[self.labelled]
        # autocast leaves layer_norm its operands, which may not be of two types
        x = self.transform_norm(F.gelu(self.transform(x), approximate="tanh").float())
        return F.linear(x, self.word.weight, self.head_bias)


def make(arguments):
    """Model, input, labels and optimizer."""
    torch.manual_seed(1)
    batch, length, device = arguments.batch, arguments.seq, arguments.device
    fused = {"fused": True} if device == "cpu" and HAS_FUSED_ON_CPU else {}
    if arguments.model == "resnet50":
        import torchvision

        model, x = torchvision.models.resnet50(), torch.rand(batch, 3, 224, 224) * 2 - 1
        if arguments.channels_last:
            model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
        model = model.to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.002, momentum=0.9, weight_decay=1e-4, **fused)
        return model, x.to(device), torch.randint(0, 1000, (batch,)).to(device), optimizer
    if device == "cuda":
        fused = {"fused": True}
    if arguments.model == "vit_b16":
        import torchvision

        model, x = torchvision.models.vit_b_16().to(device), torch.rand(batch, 3, 224, 224) * 2 - 1
        for part in model.modules():
            if isinstance(part, nn.GELU):
                part.approximate = "tanh"  # as tandem's
        if not arguments.sdpa:
            for block in model.encoder.layers:
                block.self_attention = AttentionInParts(block.self_attention)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.3, **fused)
        return model, x.to(device), torch.randint(0, 1000, (batch,)).to(device), optimizer
    is_bert = arguments.model == "bert_base"
    vocabulary = 30522 if is_bert else 50257
    rows = -(-vocabulary // 64) * 64 if arguments.padded else vocabulary
    model = Transformer(rows, 512 if is_bert else 1024, length, is_bert, arguments.sdpa).to(device)
    labels = torch.randint(0, vocabulary, (batch, length))
    if is_bert:
        labels[:, (15 * length + 50) // 100 :] = -1  # 15 % are predicted
        if arguments.labelled:
            model.labelled = (labels.reshape(-1) >= 0).nonzero().squeeze(1).to(device)
            labels = labels.reshape(-1)[labels.reshape(-1) >= 0]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, **fused)
    return model, torch.randint(0, vocabulary, (batch, length)).to(device), labels.to(device), optimizer


def state_bytes(model, optimizer):
    kept = (part for of_one in optimizer.state.values() for part in of_one.values() if torch.is_tensor(part))
    return 4 * (2 * sum(one.numel() for one in model.parameters()) + sum(part.numel() for part in kept))


def rss_bytes():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def train(rank, arguments, rendezvous):
    on_card = arguments.device == "cuda"
    torch.set_num_threads(arguments.threads)
    torch.backends.cudnn.benchmark = on_card
    before_bytes = rss_bytes()
    if arguments.ranks > 1:
        os.sched_setaffinity(0, {rank % os.cpu_count()})
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=arguments.ranks
        )
    model, x, labels, optimizer = make(arguments)
    vocabulary = model.word.num_embeddings if isinstance(model, Transformer) else None
    if arguments.compile:
        model = torch.compile(model)
    if arguments.ranks > 1:
        model = nn.parallel.DistributedDataParallel(model)
    times = []
    for _ in range(arguments.steps + 2):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(arguments.device, dtype=torch.bfloat16, enabled=arguments.precision == "bf16"):
            y = model(x)
            loss = F.cross_entropy(y.reshape(-1, y.shape[-1]), labels.reshape(-1), ignore_index=-1)
        loss.backward()
        optimizer.step()
        if on_card:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    if rank == 0:
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        if on_card:
            peak_bytes, before_bytes = torch.cuda.max_memory_allocated(), 0
        print(
            json.dumps(
                {
                    "model": arguments.model,
                    "turn": arguments.turn,
                    "precision": arguments.precision,
                    "step_ns": round(statistics.median(times[2:]) * 1e9),
                    "peak_bytes": peak_bytes,
                    "model_bytes": peak_bytes - before_bytes,
                    "state_bytes": state_bytes(model, optimizer),
                    **({"vocabulary": vocabulary} if vocabulary else {}),
                    "loss": loss.item(),
                }
            ),
            flush=True,
        )


def reason(failed):
    """One line of what a compiler, an allocator or an older PyTorch said: its first error."""
    lines = str(failed).strip().splitlines() or [type(failed).__name__]
    for pattern in (r"\berror: ", r"^\w+(Error|Exception): "):
        for line in lines:
            if re.search(pattern, line):
                return line.strip()
    return lines[0]


def take_turns(arguments):
    code = 0
    for arguments.turn in arguments.turns:
        for option in OPTIONS:
            setattr(arguments, option, option in arguments.turn.split("+"))
        try:
            train(0, arguments, None)
        except Exception as failed:
            print(json.dumps({"model": arguments.model, "turn": arguments.turn, "error": reason(failed)}), flush=True)
            code = 1
        gc.collect()
        if arguments.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
    return code


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=["resnet50", "vit_b16", "bert_base", "gpt2_small"])
    parser.add_argument("precision", choices=["fp32", "bf16"])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--labelled", action="store_true")
    parser.add_argument("--sdpa", action="store_true")
    parser.add_argument("--padded", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--turns", nargs="+", metavar="TURN")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    arguments = parser.parse_args()
    if (arguments.device == "cuda" or arguments.turns) and arguments.ranks > 1:
        parser.error("--device cuda and --turns take one rank")
    if arguments.threads > 1 and arguments.ranks > 1:
        parser.error("--threads takes one rank: each of several has one thread")
    for turn in arguments.turns or []:
        if not {*turn.split("+")} <= {*OPTIONS, "eager"}:
            parser.error(f"no turn '{turn}': eager, or {', '.join(OPTIONS)}, joined by +")
    if arguments.turns:
        sys.exit(take_turns(arguments))
    arguments.turn = "+".join(one for one in OPTIONS if getattr(arguments, one)) or "eager"
    if arguments.ranks == 1:
        train(0, arguments, None)
        return
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(train, (arguments, os.path.join(folder, "store")), nprocs=arguments.ranks)


if __name__ == "__main__":
    main()
