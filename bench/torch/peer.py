#!/usr/bin/python3.11
"""Whether the PyTorch here is one to compare with, for bench/torch.sh: prints its version, its BLAS and the CPU; exits 4 where a
product of two 1024 x 1024 matrices in fp32 on one thread stays under 10 GFLOP/s, as it does in the slow reference BLAS.

usage: peer.py [--json] [--compiler]

With --compiler it says as well for which vectors torch.compile makes kernels; where what it includes is missing, for
none, and then they are slow.
"""
import json
import os
import re
import sys
import time

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
from tandem._blas import blas_file  # noqa: E402

LEAST_GFLOPS = 10
SETS = ("amx_bf16", "avx512_bf16", "avx512_vnni", "avx512f", "avx_vnni", "avx2", "avx", "sse4_1")


def product_gflops():
    """The best of five products, after one that loads the library."""
    a, b = torch.rand(1024, 1024), torch.rand(1024, 1024)
    a @ b
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - begin)
    return 2 * 1024**3 / best / 1e9


def cpu():
    """The CPU's name, and those of SETS that it has, the strongest first."""
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        text = info.read()
    name = re.search(r"^model name\s*: (.*)$", text, re.M)
    flags = re.search(r"^flags\s*: (.*)$", text, re.M)
    has = set(flags.group(1).split()) if flags else set()
    return (name.group(1) if name else "unknown"), [one for one in SETS if one in has]


def describe():
    """What a figure of this PyTorch holds for. Products run on one thread."""
    torch.set_num_threads(1)
    gflops = product_gflops()
    config = torch.__config__.show()
    built = re.search(r"BLAS_INFO=(\w+)", config)
    capability = re.search(r"CPU capability usage: (\S+)", config)
    name, sets = cpu()
    return {
        "pytorch": torch.__version__,
        "blas": blas_file(),
        "blas_info": built.group(1) if built else None,
        "product_gflops": round(gflops, 1),
        "cpu": name,
        "instruction_sets": sets,
        "pytorch_uses": capability.group(1) if capability else None,
    }


def compiler():
    try:
        from torch._inductor.cpu_vec_isa import pick_vec_isa

        isa = pick_vec_isa()
    except Exception as failed:  # an older PyTorch, what it needs to compile
        return f"none: {type(failed).__name__}: {str(failed).splitlines()[0] if str(failed) else ''}"
    return str(isa) if isa else "no vectors, which is slow: install what bench/newest_torch.sh lists"


def main():
    found = describe()
    blas = found["blas"] or f"what is built in ({found['blas_info']})"
    if found["product_gflops"] < LEAST_GFLOPS:
        print(
            f"bench/torch.sh: this PyTorch is no peer: a product of 1024 x 1024 matrices in fp32 on one thread runs at "
            f"{found['product_gflops']} GFLOP/s in {blas}; allowed: {LEAST_GFLOPS} and more. "
            "Install a fast BLAS: apt-get install libopenblas0",
            file=sys.stderr,
        )
        sys.exit(4)
    if "--json" in sys.argv[1:]:
        print(json.dumps(found))
        return
    print(
        f"PyTorch {found['pytorch']}, its own kernels for {found['pytorch_uses'] or 'an unknown set'}; BLAS: {blas}, "
        f"{found['product_gflops']} GFLOP/s in a product of 1024 x 1024 on one thread"
    )
    print(f"CPU: {found['cpu']}; {', '.join(found['instruction_sets'])}")
    if "--compiler" in sys.argv[1:]:
        print(f"torch.compile: kernels for {compiler()}")


if __name__ == "__main__":
    main()
