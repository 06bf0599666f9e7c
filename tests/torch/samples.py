"""What tandem documents about samples, written again from its documentation: the generator of all its draws (base/philox.h), the
order of samples and the hiding of tokens (include/tandem/advanced/data.h), the format of weights (backend/safetensors.h)."""
import json
import struct

import numpy
import torch

SHUFFLE, MASK = 4, 5  # purposes of draws
WORD = 0xFFFFFFFF


def philox(counter, key):
    """Philox4x32-10 of Salmon et al., SC 2011."""
    c, k0, k1 = list(counter), key & WORD, key >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k0, p1 & WORD, (p0 >> 32) ^ c[3] ^ k1, p0 & WORD]
        k0, k1 = (k0 + 0x9E3779B9) & WORD, (k1 + 0xBB67AE85) & WORD
    return c


def order(n, seed, epoch):
    """Fisher and Yates's, from the end."""
    samples = list(range(n))
    for i in range(n - 1, 0, -1):
        word = philox([i, epoch & WORD, epoch >> 32, SHUFFLE], seed)
        j = ((word[1] << 32 | word[0]) * (i + 1)) >> 64
        samples[i], samples[j] = samples[j], samples[i]
    return samples


def batches(n, batch, steps, seed):
    """The samples of each step: epochs are cut into batches, and what is left of one is dropped."""
    each, epoch = n // batch, []
    for step in range(steps):
        if step % each == 0:
            epoch = order(n, seed, step // each)
        yield epoch[step % each * batch : (step % each + 1) * batch]


def hide(tokens, n, mask, symbols, seed, sample):
    """Tokens with n of them hidden, and labels: -100 where none was."""
    tokens, labels, length = list(tokens), [-100] * len(tokens), len(tokens)
    for i in range(length):
        word = philox([i, sample & WORD, sample >> 32, MASK], seed)
        if word[0] * (length - i) >> 32 >= n:
            continue
        n -= 1
        labels[i] = tokens[i]
        tenth = word[1] * 10 >> 32
        if tenth < 8:
            tokens[i] = mask
        elif tenth == 8:
            tokens[i] = word[2] * symbols >> 32
    return tokens, labels


def write_idx(path, array):
    with open(path, "wb") as file:
        file.write(bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes())


def make_images(folder, n_train=96, n_test=64, size=28):
    """Blurred stripes whose direction and width are the class, with noise."""
    draw = numpy.random.default_rng(1)
    parts = {}
    y, x = numpy.mgrid[0:size, 0:size] / size
    for part, n in (("train", n_train), ("t10k", n_test)):
        labels = draw.integers(0, 10, n)
        angle = labels * numpy.pi / 10
        across = x * numpy.cos(angle)[:, None, None] + y * numpy.sin(angle)[:, None, None]
        phase = draw.uniform(0, 6.3, (n, 1, 1))
        images = 128 + 80 * numpy.sin(20 * across + phase) + draw.normal(0, 15, (n, size, size))
        images = images.clip(0, 255).astype(numpy.uint8)
        write_idx(f"{folder}/{part}-images-idx3-ubyte", images)
        write_idx(f"{folder}/{part}-labels-idx1-ubyte", labels.astype(numpy.uint8))
        parts[part] = images, labels
    pixels = parts["train"][0].astype(numpy.float64) / 255
    mean, deviation = numpy.float32(pixels.mean()), numpy.float32(pixels.std())
    return {
        part: (
            torch.from_numpy((images.astype(numpy.float32) / numpy.float32(255) - mean) / deviation)[:, None],
            torch.from_numpy(labels.astype(numpy.int64)),
        )
        for part, (images, labels) in parts.items()
    }


def write_weights(path, tensors):
    header, start = {}, 0
    for name, value in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [start, start + value.nbytes]}
        start += value.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for value in tensors.values():
            file.write(numpy.ascontiguousarray(value).tobytes())


def read_weights(path):
    with open(path, "rb") as file:
        (n,) = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(n)), file.read()
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        first, end = entry["data_offsets"]
        tensors[name] = numpy.frombuffer(data[first:end], "<f4").reshape(entry["shape"])
    return tensors
