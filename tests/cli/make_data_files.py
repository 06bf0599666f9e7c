#!/usr/bin/env python3
"""Writes small data sets of every format that --data takes into the current folder."""
import os
import struct

N_TOKEN = 4000


def write(name, *parts):
    with open(name, "wb") as file:
        for part in parts:
            file.write(part)


def llmc_header(magic, version, count):
    return struct.pack("<3i", magic, version, count) + bytes(1024 - 12)


def token_files():
    """A cycle of 13 ids: each names the next one."""
    ids = [i * 5 % 13 for i in range(N_TOKEN)]
    narrow = struct.pack(f"<{N_TOKEN}H", *ids)
    wide = struct.pack(f"<{N_TOKEN}I", *ids)
    write("nano.bin", narrow)
    write("llmc.bin", llmc_header(20240520, 1, N_TOKEN), narrow)
    write("llama.bin", llmc_header(20240801, 7, N_TOKEN), wide)
    write("wide.bin", struct.pack(f"<{N_TOKEN}I", *(i * 51 % 130 for i in range(N_TOKEN))))



def cifar_files():
    """Images whose class is their brightness, so that few steps learn it."""
    for folder, names, coarse in (
        ("cifar10", [f"data_batch_{k}.bin" for k in range(1, 6)] + ["test_batch.bin"], b""),
        ("cifar100", ["train.bin", "test.bin"], b"\0"),
    ):
        os.makedirs(folder)
        for name in names:
            records = [coarse + bytes([i % 4]) + bytes([60 * (i % 4) + i % 7]) * 3072 for i in range(24)]
            write(f"{folder}/{name}", *records)



def npy(name, dtype, shape, values):
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    write(name, b"\x93NUMPY\x01\x00", struct.pack("<H", len(header)), header, values)


def numpy_files():
    """Images, and features, whose class is their brightness."""
    n = 160
    values = [60 * (i % 4) + (i + k) % 7 for i in range(n) for k in range(64)]
    floats = struct.pack(f"<{n * 64}f", *(v / 255 for v in values))
    npy("images.npy", "|u1", (n, 8, 8), bytes(values))
    npy("floats.npy", "<f4", (n, 8, 8, 1), floats)
    npy("features.npy", "<f4", (n, 64), floats)
    npy("double.npy", "<f8", (n, 64), struct.pack(f"<{n * 64}d", *values))
    npy("labels.npy", "<i8", (n,), struct.pack(f"<{n}q", *(i % 4 for i in range(n))))
    npy("far.npy", "<i4", (n,), struct.pack(f"<{n}i", *(i - 1 for i in range(n))))



def tables():
    """Texts whose words name the label."""
    words = {"good": "a fine film", "bad": "zzz boring", "mixed": "so so"}
    names = list(words)
    rows = [(names[i % 3], f"{words[names[i % 3]]} {i}") for i in range(120)]
    write("reviews.tsv", b"text\tlabel\n", *(f"{text}\t{label}\n".encode() for label, text in rows))
    numbers = [f"{names.index(label)}\t{text}\r\n".encode() for label, text in rows]
    write("numbers.tsv", b"label\ttext\r\n", *numbers)
    write("bare.tsv", *numbers)
    write("tab.tsv", b"label\ttext\n1\ta\tb\n")


token_files()
tables()
numpy_files()
cifar_files()
