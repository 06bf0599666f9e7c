#!/usr/bin/env python3
"""What the machine code of our CUDA kernels allows, without a card: for each kernel its resident threads, and of the loop that loads most,
its accesses, the bytes on their way and the instructions, against the bytes that the loop moves. Read from the cubins in libtandem_cuda.so.

Static: what a cache holds, how long data-dependent loops run and which side of a branch is taken is not in the code. Of a loop's ways
that which moves most bytes is counted, and of those the shortest; `aside` are the loop's instructions beside it.

Sources. Limits of an SM: CUDA C++ Programming Guide, "Compute Capabilities", "Technical Specifications per Compute Capability". Rates: the same,
"Arithmetic Instructions", "Throughput of Native Arithmetic Instructions", 9.0. Which pipe has what: Nsight Compute documentation,
"Metrics Decoder", "Pipelines". Words of 128 bits and their fields: Mesa, src/nouveau/compiler/nak/sm70_encode.rs, and what ptxas makes of
known PTX. Fat binary and .nv.info: cuda-binary-utilities and LLVM's BinaryFormat/CudaFatbinary are silent, so what nvcc 13 writes."""
import argparse
import collections
import re
import struct
import subprocess
import sys

# --- The card --------------------------------------------------------------------------------------------------------------

ARCH = 90
SM_THREADS, SM_BLOCKS, SM_REGISTERS, SM_SHARED, BLOCK_SHARED, WARP = 2048, 32, 65536, 228 * 1024, 1024, 32
N_SM, BANDWIDTH, CLOCK_HZ, LATENCY_S = 132, 4.8e12, 1.755e9, 1e-6  # H200 (NVIDIA H200 data sheet); the latency is an assumption
BYTES_A_CLOCK = BANDWIDTH / N_SM / CLOCK_HZ

# Clocks of an SM that a warp's instruction takes of a pipe: 32 over the results a clock. Wide products and conversions through the XU
# are taken at the lower of the rates that are told of them.
CLOCKS = {"alu": 32 / 64, "fma": 32 / 128, "imad": 32 / 64, "wide": 32 / 32, "xu": 32 / 16, "lsu": 32 / 32, "none": 0}
ISSUE = 1 / 4

# --- Instructions: bits 0 to 8 of a word -------------------------------------------------------------------------------------

OPCODES = {
    "alu": "002 MOV, 003 P2R, 004 R2P, 005 CS2R, 006 VOTE, 007 SEL, 008 FSEL, 009 FMNMX, 00b FSETP, 00c ISETP, 00f VIMNMX3, 010 IADD3, "
           "011 LEA, 012 LOP3, 013 IABS, 016 PRMT, 017 IMNMX, 019 SHF, 01c PLOP3, 036 VIADD, 03e F2FP, 045 I2FP, 048 VIMNMX",
    "fma": "020 FMUL, 021 FADD, 023 FFMA, 030 HADD2, 031 HFMA2, 032 HMUL2, 035 HFMA2.MMA",
    "imad": "024 IMAD",
    "wide": "025 IMAD.WIDE, 027 IMAD.HI",
    "xu": "100 FLO, 101 BREV, 102 FCHK, 104 F2F, 105 F2I, 106 I2F, 107 FRND, 108 MUFU, 109 POPC, 111 F2I.64, 112 I2F.64, 113 FRND.64",
    "lsu": "181 LDG, 183 LDL, 184 LDS, 186 STG, 187 STL, 188 STS, 189 SHFL, 18c ATOMS, 18e RED, 1a8 ATOMG, 1c4 REDUX",
    "none": "082 UMOV, 086 VOTEU, 087 USEL, 08c UISETP, 090 UIADD3, 091 ULEA, 092 ULOP3, 096 UPRMT, 099 USHF, 0a4 UIMAD, 0a5 UIMAD.WIDE, "
            "0b9 ULDC, 0bd UFLO, 0bf UPOPC, 0ca R2UR, 118 NOP, 119 S2R, 11d BAR, 141 BSYNC, 142 BREAK, 144 CALL, 145 BSSY, 147 BRA, "
            "148 WARPSYNC, 14d EXIT, 150 RET, 182 LDC, 1c3 S2UR",
}
NAMES = {int(code, 16): (name, pipe) for pipe, row in OPCODES.items() for code, name in (o.split() for o in row.split(", "))}
WIDTHS = (1, 1, 2, 2, 4, 8, 16, 16)  # bytes of an access, by bits 73 to 75

Instruction = collections.namedtuple("Instruction", "at name pipe bytes guarded target waits sets")


def field(word, start, end):
    return word >> start & (1 << end - start) - 1


def decode(at, word):
    opcode = field(word, 0, 9)
    if opcode not in NAMES:
        raise ValueError("an instruction that the table OPCODES lacks: %03x at 0x%x, 0x%032x" % (opcode, at, word))
    name, pipe = NAMES[opcode]
    guarded = field(word, 12, 16) != 7
    target = None
    if name in ("BRA", "CALL"):
        far = field(word, 34, 82)
        far -= (far & 1 << 47) << 1
        target = at + 16 + 4 * (far << 8 | field(word, 16, 24))
        guarded = guarded or field(word, 87, 91) != 7
    moved = WIDTHS[field(word, 73, 76)] if name[:2] in ("LD", "ST") and name != "LDC" else 0
    return Instruction(at, name, pipe, moved, guarded, target, field(word, 116, 122), field(word, 110, 113))


# --- Files ---------------------------------------------------------------------------------------------------------------------

def sections(elf):
    """(name, type, info, bytes) of each section of a 64-bit ELF file."""
    at, = struct.unpack_from("<Q", elf, 40)
    n, names = struct.unpack_from("<HH", elf, 60)
    rows = [struct.unpack_from("<IIQQQQIIQQ", elf, at + 64 * i) for i in range(n)]
    start = rows[names][4]
    for name, kind, _, _, offset, size, _, info, _, _ in rows:
        end = elf.index(b"\0", start + name)
        yield elf[start + name:end].decode(), kind, info, elf[offset:offset + size] if kind != 8 else bytes(size)


def cubins(library):
    """The cubins of ARCH in a host library or object: entries of kind 2 of its fat binaries."""
    for name, _, _, fat in sections(library):
        at = 0
        while name == ".nv_fatbin" and at + 16 <= len(fat):
            magic, _, header, size = struct.unpack_from("<IHHQ", fat, at)
            if magic != 0xBA55ED50:
                at += 8
                continue
            entry, end = at + header, at + header + size
            while entry < end:
                kind, _, start, length = struct.unpack_from("<HHIQ", fat, entry)
                if kind == 2 and struct.unpack_from("<I", fat, entry + 28)[0] == ARCH:
                    yield unpacked(fat[entry + start:entry + start + length])
                entry += start + length
            at = end


def unpacked(cubin):
    if cubin[:4] == b"\x28\xb5\x2f\xfd":
        cubin = subprocess.run(["zstd", "-dcq"], input=cubin, stdout=subprocess.PIPE, check=False).stdout
    if cubin[:4] != b"\x7fELF":
        raise ValueError("a cubin that is compressed by what this does not know")
    return cubin


def attributes(info):
    """(number, bytes) of each entry of .nv.info: a byte of format, the number, and two bytes, which of format 4 are a length."""
    at = 0
    while at + 4 <= len(info):
        form, number, value = struct.unpack_from("<BBH", info, at)
        at += 4
        yield number, info[at:at + value] if form == 4 else b""
        at += value if form == 4 else 0


Kernel = collections.namedtuple("Kernel", "name code registers shared local threads")
FRAME_SIZE, REGISTER_COUNT, MAX_THREADS = 0x11, 0x2F, 0x05


def kernels(cubin):
    all_sections = list(sections(cubin))
    by_name = {name: data for name, _, _, data in all_sections}
    strings, symbols = by_name[".strtab"], by_name[".symtab"]
    name_of = lambda i: strings[struct.unpack_from("<I", symbols, 24 * i)[0]:].split(b"\0", 1)[0].decode()
    of_symbol = collections.defaultdict(dict)
    for number, data in attributes(by_name[".nv.info"]):
        if number in (FRAME_SIZE, REGISTER_COUNT):
            symbol, value = struct.unpack("<II", data)
            of_symbol[name_of(symbol)][number] = value
    for name, _, _, data in all_sections:
        if not name.startswith(".text."):
            continue
        name = name[len(".text."):]
        threads = 0
        for number, value in attributes(by_name[".nv.info." + name]):
            if number == MAX_THREADS:
                x, y, z = struct.unpack("<III", value)
                threads = x * y * z
        words = (int.from_bytes(data[i:i + 16], "little") for i in range(0, len(data), 16))
        yield Kernel(name, [decode(16 * i, word) for i, word in enumerate(words)], of_symbol[name][REGISTER_COUNT],
                     len(by_name.get(".nv.shared." + name, b"")), of_symbol[name].get(FRAME_SIZE, 0), threads)


def readable(names):
    """Demangled, without arguments and without the functions' own types."""
    text = subprocess.run(["c++filt"], input="\n".join(names), stdout=subprocess.PIPE, check=True, text=True).stdout
    plain = [re.sub(r"\(unsigned int\)|\(int\)|^void ", "", line) for line in text.splitlines()]
    return [line[:line.index("(")] if "(" in line else line for line in plain]


# --- Control flow --------------------------------------------------------------------------------------------------------------

class Flow:
    """Blocks that the kernel's first one reaches, their successors, and its natural loops."""

    def __init__(self, code):
        starts = {0} | {i.target for i in code if i.name == "BRA"}
        starts |= {i.at + 16 for i in code if i.name in ("BRA", "EXIT", "RET", "CALL")}
        self.blocks, self.next = {}, {}
        for i in code:
            if i.at in starts:
                block = self.blocks[i.at] = []
            block.append(i)
        for start, block in self.blocks.items():
            last = block[-1]
            ends = last.name in ("BRA", "EXIT", "RET") and not last.guarded
            self.next[start] = [last.target] if last.name == "BRA" else []
            if not ends and last.at + 16 in self.blocks:
                self.next[start].append(last.at + 16)
        self.order = self.reached(0, self.next)
        self.loops = self.find_loops()

    def reached(self, start, successors):
        """In reverse postorder."""
        seen, order, stack = {start}, [], [(start, iter(successors[start]))]
        while stack:
            for block in stack[-1][1]:
                if block not in seen:
                    seen.add(block)
                    stack.append((block, iter(successors[block])))
                    break
            else:
                order.append(stack.pop()[0])
        return order[::-1]

    def find_loops(self):
        """{header: blocks}"""
        before = collections.defaultdict(list)
        for block in self.order:
            for after in self.next[block]:
                before[after].append(block)
        everything, loops, changed = set(self.order), {}, True
        over = {block: everything for block in self.order}  # those that every way to a block leads through
        over[0] = {0}
        while changed:
            changed = False
            for block in self.order[1:]:
                new = set.intersection(*(over[b] for b in before[block])) | {block}
                changed, over[block] = changed or new != over[block], new
        for block in self.order:
            for header in self.next[block]:
                if header in over[block]:
                    body, stack = loops.setdefault(header, {header}), [block]
                    while stack:
                        at = stack.pop()
                        if at not in body:
                            body.add(at)
                            stack += before[at]
        return loops

    def own(self, header):
        """Blocks of a loop that no loop within it has; of None, of the kernel outside its loops."""
        body = self.loops[header] if header is not None else set(self.order)
        inner = [b for h, b in self.loops.items() if h != header and b < body]
        return body - set().union(*inner)

    def way(self, header):
        """The instructions of one time through a loop, or through the kernel: most bytes of global memory, then fewest calls, then fewest."""
        body = self.loops[header] if header is not None else set(self.order)
        start = header if header is not None else 0
        backward = {(b, h) for h, blocks in self.loops.items() for b in blocks if h in self.next[b]}
        best = {}
        for block in reversed([b for b in self.order if b in body]):
            own = self.blocks[block]
            ends = [()] if header is None and not self.next[block] or (block, header) in backward else []
            if header is None and own[-1].name == "EXIT":
                ends = [()]
            ahead = [best[b] for b in self.next[block] if b in body and (block, b) not in backward and b in best]
            choices = [(*cost, rest) for cost, rest in ahead] + [(0, 0, 0, ()) for _ in ends]
            if choices:
                moved, calls, n, rest = min(choices, key=lambda c: c[:3])
                cost = (moved - sum(i.bytes for i in own if i.name in ("LDG", "STG")),
                        calls + sum(i.name == "CALL" for i in own), n + len(own))
                best[block] = (cost, (block, rest))
        instructions, at = [], best[start][1]
        while at:
            instructions += self.blocks[at[0]]
            at = at[1]
        return instructions


# --- Limits --------------------------------------------------------------------------------------------------------------------

def resident_threads(k):
    warps = -(-(k.threads or 1024) // WARP)
    of_warp = -(-k.registers * WARP // 256) * 256
    blocks = min(SM_BLOCKS, SM_THREADS // (warps * WARP), SM_REGISTERS // of_warp // warps, SM_SHARED // (k.shared + BLOCK_SHARED))
    return blocks * warps * WARP


def round_trips(way, again):
    """Latencies of global loads that one time through takes where nothing else takes time: a load sets a scoreboard, and the first
    instruction that waits for this one stands until all loads that set it are back."""
    now, back, ends = 0, {}, []
    for _ in range(8 if again else 1):
        for i in way:
            now = max([now] + [back.pop(s) for s in list(back) if i.waits >> s & 1])
            if i.name == "LDG" and i.sets != 7:
                back[i.sets] = now + 1
        ends.append(now)
    return (ends[-1] - ends[3]) / 4 if again else max([now] + list(back.values()))


def clocks(instructions):
    """Clocks of an SM for a warp, by what limits them."""
    sums = collections.Counter()
    for i in instructions:
        sums["issue"] += ISSUE
        sums[i.pipe] += CLOCKS[i.pipe]
    products = sums.pop("wide", 0) + sums.pop("imad", 0)
    sums["imad"], sums["fma"] = products, sums["fma"] + products / 2
    return max((value, name) for name, value in sums.items() if name != "none")


Row = collections.namedtuple("Row", "kernel header way aside resident loads stores trips")


def row_of(k, flow, header):
    way = flow.way(header)
    on_way = {i.at for i in way}
    aside = [i for b in flow.own(header) for i in flow.blocks[b] if i.at not in on_way]
    width = lambda name: collections.Counter(i.bytes for i in way if i.name == name)
    return Row(k, header, way, aside, resident_threads(k), width("LDG"), width("STG"), round_trips(way, header is not None))


def n_bytes(accesses):
    return sum(width * n for width, n in accesses.items())


def main_loop(flow):
    """Of the loops that load by themselves that with the widest accesses, and of those that which moves most; None: of the kernel."""
    def moved(header):
        own = [i.bytes for b in flow.own(header) for i in flow.blocks[b] if i.name in ("LDG", "STG")]
        return max(own), sum(own)
    loading = [h for h in sorted(flow.loops) if any(i.name == "LDG" for b in flow.own(h) for i in flow.blocks[b])]
    return max(loading, key=moved) if loading else None
if __name__=='__main__':
    lib=open(sys.argv[1],'rb').read()
    ks=[k for c in cubins(lib) for k in kernels(c)]
    names=readable([k.name for k in ks])
    for k,n in sorted(zip(ks,names),key=lambda p:p[1]):
        f=Flow(k.code); h=main_loop(f); r=row_of(k,f,h)
        lb,sb=n_bytes(r.loads),n_bytes(r.stores)
        mem=(lb+sb)*32/BYTES_A_CLOCK
        c,l=clocks(r.way); c2,l2=clocks(r.way+r.aside)
        calls=sum(i.name=='CALL' for i in r.way), sum(i.name=='CALL' for i in r.aside)
        print('%-46s r%3d s%5d l%3d %4d %s L%-22s S%-16s trips %.1f  way %5.1f KB need %4.1f  ins %4d +%4d  %.2f %s .. %.2f %s calls %s'%(n[:46],k.registers,k.shared,k.local,r.resident,'loop' if h is not None else 'once',dict(r.loads),dict(r.stores),r.trips, (lb/r.trips if r.trips else 0)*r.resident/1000, BANDWIDTH/N_SM*LATENCY_S/1000*(lb/(lb+sb) if lb+sb else 0), len(r.way),len(r.aside), c/mem if mem else 0,l,c2/mem if mem else 0,l2,calls))
