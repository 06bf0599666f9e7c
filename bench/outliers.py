"""FROM TO: weights with outliers. In each block, two channels of each norm's scale and shift are 256 times as
large, and the rows of the weights that read them 256 times smaller: in fp32 the same function. Large models
have such numbers, above 1000 times the median (Sun et al., arXiv:2402.17762)."""
import json
import re
import struct
import sys

FACTOR = 256  # a power of two: nothing is rounded
READERS = {"norm1": r"attention\.[qkv]", "norm2": r"mlp\.fc1"}  # where norms come before what they feed


def main(source, target):
    with open(source, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        data = bytearray(file.read())

    def scale(name, first, count, factor):
        begin = header[name]["data_offsets"][0] + 4 * first
        numbers = struct.unpack_from(f"<{count}f", data, begin)
        struct.pack_into(f"<{count}f", data, begin, *(factor * x for x in numbers))

    if header["__metadata__"]["model"].startswith("bert"):
        sys.exit(f"{source}: BERT's norms are also read by sums, which cannot be scaled down")
    changed = 0
    for name in list(header):
        found = re.fullmatch(r"block(\d+)\.(norm[12])\.weight", name)
        if not found:
            continue
        block, norm = found.groups()
        width = header[name]["shape"][0]
        for channel in (3, width // 2):
            scale(name, channel, 1, FACTOR)
            scale(name.replace("weight", "bias"), channel, 1, FACTOR)
            for reader, at in header.items():
                if re.fullmatch(rf"block{block}\.({READERS[norm]})\.weight", reader):
                    columns = at["shape"][1]
                    scale(reader, channel * columns, columns, 1 / FACTOR)
            changed += 1
    if not changed:
        sys.exit(f"{source}: no norm whose readers are known")
    with open(target, "wb") as file:
        text = json.dumps(header).encode()
        file.write(struct.pack("<Q", len(text)) + text + data)


main(*sys.argv[1:])
