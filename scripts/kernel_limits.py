#!/usr/bin/env python3
"""What the machine code of our CUDA kernels allows on an H200, read from libtandem_cuda.so without a card: for each kernel the threads that are
resident, and of its main loop the accesses, the bytes on their way and the instructions, held against the bytes that the loop moves.

  kernel_limits.py [--library FILE] [--loops] [KERNEL]   KERNEL: a regular expression that names must begin with
  kernel_limits.py --check                               what must hold of all kernels; exit code 1 where it does not
  kernel_limits.py --listing KERNEL                      of each main loop the instructions; * is counted
  kernel_limits.py --resources                           mangled names, registers, bytes shared and local, as `ptxas -v` prints them

What cannot be read from code is not reported: what a cache holds (operands that one does are IN_CACHE), how long loops run whose ends are data, which
side of a branch is taken. Of the ways through a loop that which moves most bytes is counted, of those one without calls and NaNs, of those the
longest; `aside` are the loop's other instructions. Where no loop loads, the kernel as a whole counts.

Sources. Limits of an SM and results a clock: CUDA C++ Programming Guide, "Compute Capabilities" and "Throughput of Native Arithmetic
Instructions", capability 9.0. Pipes: Nsight Compute documentation, "Pipelines"; forums.developer.nvidia.com 108729 and 302018. Words and
their fields: Mesa, src/nouveau/compiler/nak/sm70_encode.rs, and what ptxas makes of known PTX; every call must lead to a named subroutine.
Attributes in .nv.info: CuAssembler, CuAsm/CuNVInfo.py, and `ptxas -v` (tests/cli/test_kernel_limits.sh)."""
import argparse
import collections
import os
import re
import signal
import struct
import subprocess
import sys

# --- The card: NVIDIA's data sheet of the H200; the latency is an assumption ------------------------------------------------

ARCH = 90
SM_THREADS, SM_BLOCKS, SM_REGISTERS, SM_SHARED, SYSTEM_SHARED, WARP = 2048, 32, 65536, 228 * 1024, 1024, 32
N_SM, BANDWIDTH, CLOCK_HZ, LATENCY_S = 132, 4.8e12, 1.755e9, 1e-6
BYTES_A_CLOCK = BANDWIDTH / N_SM / CLOCK_HZ
MOST = 1 / 0.85  # of the time that the bytes take: beyond, no 85 % of the bandwidth

# Clocks of an SM that a warp's instruction takes of its pipe, 32 over the results a clock. No rate is documented for wide products and for
# packing floats: half of what the nearest row says. imad is a part of fma (FMAheavy), which has both.
# A product of a warp's (tensor) is 16 by 8 by 16: 4,096 operations, which is what an SM's peak makes a clock.
CLOCKS = {"alu": 32 / 64, "fma": 32 / 128, "imad": 32 / 64, "wide": 32 / 32, "pack": 32 / 32, "xu": 32 / 16, "lsu": 32 / 32, "tensor": 1, "other": 0}
ISSUE = 1 / 4  # warp instructions of all kinds: four a clock

# --- Instructions: bits 0 to 8 of a word ----------------------------------------------------------------------------------------

OPCODES = {
    "alu": "002 MOV, 003 P2R, 004 R2P, 005 CS2R, 006 VOTE, 007 SEL, 008 FSEL, 009 FMNMX, 00b FSETP, 00c ISETP, 00f VIMNMX3, 010 IADD3, 011 LEA, "
           "012 LOP3, 013 IABS, 016 PRMT, 017 IMNMX, 019 SHF, 01c PLOP3, 036 VIADD, 045 I2FP, 046 VIADDMNMX, 048 VIMNMX",
    "fma": "020 FMUL, 021 FADD, 023 FFMA, 030 HADD2, 031 HFMA2, 032 HMUL2, 035 HFMA2.MMA",
    "imad": "024 IMAD",
    "wide": "025 IMAD.WIDE, 027 IMAD.HI",
    "pack": "03e F2FP",
    "xu": "100 FLO, 101 BREV, 102 FCHK, 104 F2F, 105 F2I, 106 I2F, 107 FRND, 108 MUFU, 109 POPC, 111 F2I.64, 112 I2F.64, 113 FRND.64",
    "tensor": "03c HMMA",
    "lsu": "03b LDSM, 181 LDG, 183 LDL, 184 LDS, 186 STG, 187 STL, 188 STS, 189 SHFL, 18c ATOMS, 18e RED, 1a8 ATOMG, 1c4 REDUX",
    "other": "082 UMOV, 086 VOTEU, 087 USEL, 08c UISETP, 090 UIADD3, 091 ULEA, 092 ULOP3, 096 UPRMT, 099 USHF, 0a4 UIMAD, 0a5 UIMAD.WIDE, "
             "0b9 ULDC, 0bd UFLO, 0bf UPOPC, 0ca R2UR, 118 NOP, 119 S2R, 11b ENDCOLLECTIVE, 11d BAR, 141 BSYNC, 142 BREAK, 144 CALL, 145 BSSY, 146 YIELD, 147 BRA, "
             "148 WARPSYNC, 14d EXIT, 150 RET, 182 LDC, 18f CCTL, 192 MEMBAR, 1ab ERRBAR, 1c3 S2UR",
}
NAMES = {int(code, 16): (name, pipe) for pipe, row in OPCODES.items() for code, name in (one.split() for one in row.split(", "))}
MOVES = {"LDG", "LDL", "LDS", "STG", "STL", "STS"}
WIDTHS = (1, 1, 2, 2, 4, 8, 16)  # bytes of an access, by bits 73 to 75
UNORDERED = 8  # a comparison that holds where one of both is a NaN, by bits 76 to 79

Instruction = collections.namedtuple("Instruction", "at name pipe bytes guard guarded target waits sets finds")


def field(word, start, end):
    return word >> start & (1 << end - start) - 1


def decode(at, word):
    opcode = field(word, 0, 9)
    if opcode not in NAMES:
        raise ValueError("OPCODES lacks an instruction: %03x at 0x%x, 0x%032x" % (opcode, at, word))
    name, pipe = NAMES[opcode]
    guard, target, finds = field(word, 12, 16), None, None
    guarded = guard != 7
    if name in ("BRA", "CALL"):
        far = field(word, 34, 82)
        far -= (far & 1 << 47) << 1
        target = at + 16 + 4 * (far << 8 | field(word, 16, 24))
        guarded = guarded or name == "BRA" and field(word, 87, 91) != 7
    if name in ("FSETP", "ISETP", "PLOP3"):
        finds = field(word, 81, 84), name == "FSETP" and field(word, 76, 80) == UNORDERED
    width = WIDTHS[field(word, 73, 76)] if name in MOVES else 0
    return Instruction(at, name, pipe, width, guard, guarded, target, field(word, 116, 122), field(word, 110, 113), finds)


# --- Files ------------------------------------------------------------------------------------------------------------------------

EM_CUDA = 190


def sections(elf):
    """(name, bytes) of each section of a 64-bit ELF file, in order; what is not in the file is zeros."""
    if elf[:5] != b"\x7fELF\x02":
        raise ValueError("this is no ELF file of 64 bits")
    start, = struct.unpack_from("<Q", elf, 40)
    n, names = struct.unpack_from("<HH", elf, 60)
    rows = [struct.unpack_from("<IIQQQQ", elf, start + 64 * i) for i in range(n)]
    for name, kind, _, _, offset, size in rows:
        begin = rows[names][4] + name
        yield elf[begin:elf.index(b"\0", begin)].decode(), bytes(size) if kind == 8 else elf[offset:offset + size]


def cubins(library):
    """Those of ARCH: entries of kind 2 in the library's fat binaries; a cubin is its own."""
    if struct.unpack_from("<H", library, 18)[0] == EM_CUDA:
        yield library
    for fat in (data for name, data in sections(library) if name == ".nv_fatbin"):
        at = 0
        while at + 16 <= len(fat):
            magic, _, header, size = struct.unpack_from("<IHHQ", fat, at)
            if magic != 0xBA55ED50:
                at += 8
                continue
            entry, at = at + header, at + header + size
            while entry < at:
                kind, _, start, length = struct.unpack_from("<HHIQ", fat, entry)
                if kind == 2 and struct.unpack_from("<I", fat, entry + 28)[0] == ARCH:
                    yield unpacked(fat[entry + start:entry + start + length])
                entry += start + length


def unpacked(cubin):
    if cubin[:4] == b"\x28\xb5\x2f\xfd":
        return subprocess.run(["zstd", "-dcq"], input=cubin, stdout=subprocess.PIPE, check=True).stdout
    return cubin


def attributes(info):
    """(number, bytes) of each entry of .nv.info: a byte of format, the number, and two bytes, of format 4 a length."""
    at = 0
    while at + 4 <= len(info):
        form, number, value = struct.unpack_from("<BBH", info, at)
        yield number, info[at + 4:at + 4 + value] if form == 4 else b""
        at += 4 + (value if form == 4 else 0)


Kernel = collections.namedtuple("Kernel", "mangled code calls registers shared local threads")
MAX_THREADS, FRAME_SIZE, REGISTER_COUNT = 0x05, 0x11, 0x2F


def kernels(cubin):
    all_sections = list(sections(cubin))
    data_of = dict(all_sections)
    places = [i for i, (name, _) in enumerate(all_sections) if name.startswith(".text.")]
    symbols = []
    for at in range(0, len(data_of[".symtab"]), 24):
        name, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", data_of[".symtab"], at)
        symbols.append((data_of[".strtab"][name:].split(b"\0", 1)[0].decode(), section, value))
    known = collections.defaultdict(dict)
    for number, data in attributes(data_of[".nv.info"]):
        if number in (FRAME_SIZE, REGISTER_COUNT):
            symbol, value = struct.unpack("<II", data)
            known[symbols[symbol][0]][number] = value
    for place in places:
        name, data = all_sections[place][0][len(".text."):], all_sections[place][1]
        code = [decode(at, int.from_bytes(data[at:at + 16], "little")) for at in range(0, len(data), 16)]
        routines = {value: symbol for symbol, section, value in symbols if section == place and "$" in symbol}
        calls = {i.at: routines[i.target].rsplit("$", 1)[-1] for i in code if i.name == "CALL"}
        threads = [struct.unpack("<III", v) for n, v in attributes(data_of[".nv.info." + name]) if n == MAX_THREADS]
        shared = max(len(data_of.get(".nv.shared." + name, b"")) - SYSTEM_SHARED, 0)
        yield Kernel(name, code, calls, known[name][REGISTER_COUNT], shared, known[name].get(FRAME_SIZE, 0),
                     threads[0][0] * threads[0][1] * threads[0][2] if threads else 1024)


def readable(mangled):
    """Demangled, without arguments."""
    text = subprocess.run(["c++filt"], input="\n".join(mangled), stdout=subprocess.PIPE, check=True, text=True).stdout
    plain = [re.sub(r"^void ", "", line.replace("(reading)", "")) for line in text.splitlines()]
    return [re.sub(r"unsigned (\w+)", r"u\1", line[:line.index("(")] if "(" in line else line) for line in plain]


# --- Control flow -------------------------------------------------------------------------------------------------------------------

class Flow:
    """The blocks of a kernel that its start reaches, by the place of their first instruction; what follows each; natural loops."""

    def __init__(self, code):
        ends = ("BRA", "EXIT", "RET")
        starts = {0} | {i.target for i in code if i.name == "BRA"} | {i.at + 16 for i in code if i.name in ends}
        self.blocks, self.next = {}, {}
        for i in code:
            if i.at in starts:
                block = self.blocks[i.at] = []
            block.append(i)
        for start, block in self.blocks.items():
            last = block[-1]
            goes_on = (last.guarded or last.name not in ends) and last.at + 16 in self.blocks
            self.next[start] = [last.target] * (last.name == "BRA") + [last.at + 16] * goes_on
        self.order = self.in_order()
        self.loops = self.find_loops()

    def in_order(self):
        """Reverse postorder."""
        seen, order, stack = {0}, [], [(0, iter(self.next[0]))]
        while stack:
            ahead = next((b for b in stack[-1][1] if b not in seen), None)
            if ahead is None:
                order.append(stack.pop()[0])
            else:
                seen.add(ahead)
                stack.append((ahead, iter(self.next[ahead])))
        return order[::-1]

    def find_loops(self):
        """{first block: all blocks}"""
        before = collections.defaultdict(list)
        for block in self.order:
            for after in self.next[block]:
                before[after].append(block)
        over = {block: set(self.order) for block in self.order}  # blocks that every way there leads through
        over[0], changed = {0}, True
        while changed:
            changed = False
            for block in self.order[1:]:
                new = set.intersection(*(over[b] for b in before[block])) | {block}
                changed, over[block] = changed or new != over[block], new
        loops = {}
        for block in self.order:
            for head in over[block].intersection(self.next[block]):
                body, stack = loops.setdefault(head, {head}), [block]
                while stack:
                    at = stack.pop()
                    stack += before[at] if at not in body else []
                    body.add(at)
        return loops

    def way_of_nan(self, block):
        """The block that follows where the predicate of a block's branch has found a NaN; None: there is no such."""
        last = block[-1]
        if last.name != "BRA" or last.guard & 7 == 7:
            return None
        found = [i.finds for i in block if i.finds and i.finds[0] == last.guard & 7]
        if not found or not found[-1][1]:
            return None
        return last.target if last.guard < 8 else last.at + 16

    def own(self, head):
        """The instructions of a loop that no loop within it has; of None, of the kernel outside its loops."""
        body = self.loops.get(head, set(self.order))
        inner = set().union(*(b for h, b in self.loops.items() if b < body))
        return [i for b in sorted(body - inner) for i in self.blocks[b]]

    def way(self, head):
        """The instructions of one time through: those that move most global memory, then fewest calls and ways of NaNs, then most."""
        body, start = self.loops.get(head, set(self.order)), head or 0
        backward = {(b, h) for h, blocks in self.loops.items() for b in blocks if h in self.next[b]}
        best = {}
        for block in (b for b in reversed(self.order) if b in body):
            own = self.blocks[block]
            nan = self.way_of_nan(own)
            choices = [(best[b][0], best[b][1] + (b == nan), *best[b][2:]) for b in self.next[block]
                       if b in best and (block, b) not in backward]
            if (block, head) in backward or head is None and own[-1].name in ("EXIT", "RET"):
                choices.append((0, 0, 0, None))
            if choices:
                moved, calls, n, rest = min(choices, key=lambda c: c[:3])
                best[block] = (moved - sum(i.bytes for i in own if i.name in ("LDG", "STG")),
                               calls + sum(i.name == "CALL" for i in own), n - len(own), (block, rest))
        instructions, at = [], best[start][3]
        while at:
            instructions += self.blocks[at[0]]
            at = at[1]
        return instructions


# --- Limits ---------------------------------------------------------------------------------------------------------------------------

# Bytes for each number stored that are of small arrays, which a cache holds: a bias, a norm's columns.
IN_CACHE = {"shift": 4, "shift_octets": 4, "bias_gelu_backward": 4, "bias_gelu_backward_octets": 4, "batchnorm": 16, "batchnorm_backward": 24}
# Numbers that a thread has of a tile which its block first fills by a loop and then stores: the whole kernel is counted.
OF_TILE = {"quantise_both": 64}
ELEMENT = {"float": 4, "bf16": 2, "f16": 2}


def resident_threads(k):
    warps, of_warp = -(-k.threads // WARP), -(-k.registers * WARP // 256) * 256
    blocks = min(SM_BLOCKS, SM_THREADS // WARP // warps, SM_REGISTERS // of_warp // warps, SM_SHARED // (k.shared + SYSTEM_SHARED))
    return blocks * warps * WARP


def round_trips(way, repeats):
    """How often one time through waits for memory, where nothing else takes time: a load sets a scoreboard, and the first
    instruction that waits for that one waits until all loads that set it are back."""
    now, back, ends = 0, {}, []
    for _ in range(8 if repeats else 1):
        for i in way:
            now = max([now] + [back.pop(s) for s in list(back) if i.waits >> s & 1])
            if i.name == "LDG":
                back[i.sets] = now + 1
        ends.append(now)
    return (ends[-1] - ends[3]) / 4 if repeats else max([now] + list(back.values()))


def clocks(instructions):
    """{what limits: clocks of an SM for a warp}"""
    sums = collections.Counter()
    for i in instructions:
        sums["issue"] += ISSUE
        sums[i.pipe] += CLOCKS[i.pipe]
    sums["imad"] += sums.pop("wide", 0)
    sums["fma"] += sums["imad"] / 2
    return sums


class Row:
    """A loop of a kernel (None: all of it), and what one time through it does."""

    def __init__(self, name, k, flow, head):
        self.name, self.k = name, k
        base, *arguments = re.split("[<,>] ?| ", name)
        element = next((ELEMENT[a] for a in arguments if a in ELEMENT), 4)
        self.way = flow.way(head)
        if base in OF_TILE:
            times = OF_TILE[base] * element // sum(self.widths("LDG").elements())
            self.way, head = flow.way(None) + self.way * (times - 1), None
        counted = {i.at for i in self.way}
        self.aside = [i for i in flow.own(head) if i.at not in counted]
        self.loads, self.stores = self.widths("LDG"), self.widths("STG")
        stored, loaded = sum(self.stores.elements()), sum(self.loads.elements())
        numbers = sum(n * (width // element if width > 4 else 1) for width, n in self.stores.items())
        cached = IN_CACHE.get(base, 0) * numbers
        self.loaded, self.moved = loaded - cached, loaded - cached + stored
        self.resident = resident_threads(k)
        trips = round_trips(self.way, head is not None)
        self.on_way = self.loaded / trips * self.resident if trips else 0
        self.asked = LATENCY_S * BANDWIDTH / N_SM * self.loaded / self.moved if self.moved else 0
        self.limits = clocks(self.way)
        self.pipe = max(self.limits, key=self.limits.get)
        self.ratio = self.limits[self.pipe] / self.memory() if self.moved else 0
        self.ratio_with_aside = max(clocks(self.way + self.aside).values()) / self.memory() if self.moved else 0

    def widths(self, name):
        return collections.Counter(i.bytes for i in self.way if i.name == name)

    def memory(self):
        return self.moved * WARP / BYTES_A_CLOCK

    def calls(self, instructions):
        return {self.k.calls[i.at] for i in instructions if i.name == "CALL"}


def loading_loops(flow):
    return [h for h in sorted(flow.loops) if any(i.name == "LDG" for i in flow.own(h))]


def main_loop(flow):
    """The loop with the widest accesses, and of several that which moves most by itself; what a branch to its second block parts is one."""
    def moves(head):
        bytes_of = [i.bytes for i in flow.own(head) if i.name in ("LDG", "STG")]
        return max(bytes_of), sum(bytes_of)
    found = loading_loops(flow)
    head = max(found, key=moves, default=None)
    around = [h for h in found if h != head and head in flow.next[h] and flow.loops[head] < flow.loops[h]]
    return around[0] if around else head


def accesses(widths):
    return " ".join("%d×%d" % (n, width) for width, n in sorted(widths.items(), reverse=True)) or "-"


HEADER = ("kernel", "reg.", "shared", "local", "threads", "loads", "stores", "KB on way", "asked", "instr.", "aside", "ratio", "limit", "aside", "flags")
LINE = "%-42s %4s %6s %5s %7s  %-10s %-9s %9s %5s %6s %6s %5s %-5s %5s  %s"


def line_of(row):
    k = row.k
    divides = {c for c in row.calls(row.way) if "u64" in c or "s64" in c}
    narrow = sum(w * n for w, n in (row.loads + row.stores).items() if w < 4)
    flags = (["local memory"] if is_local(k) else []) + (["divides 64 bits"] if divides else []) + (["calls"] if row.calls(row.way) else [])
    flags += ["narrow accesses"] if narrow * 2 > row.moved else []
    flags += ["waits"] if row.on_way < 0.85 * row.asked else []
    flags += ["computes"] if row.ratio > MOST else []
    return LINE % (row.name, k.registers, k.shared, k.local, row.resident, accesses(row.loads), accesses(row.stores),
                   "%.1f" % (row.on_way / 1000), "%.1f" % (row.asked / 1000), len(row.way), len(row.aside), "%.2f" % row.ratio,
                   row.pipe, "%.2f" % row.ratio_with_aside, ", ".join(flags))


# --- What must hold ---------------------------------------------------------------------------------------------------------------------

IN_OCTETS = re.compile(r"\w+_octets|(map_one|map_two|convert|quantise|quantise_delayed|amax|scale_s32|sgd|adamw|transpose_bytes)\b")


CHANGES_TYPE = re.compile(r"(quantise|quantise_delayed|quantise_both|quantise_both_delayed|convert|amax)<")


def is_local(k):
    return k.local or any(i.name in ("LDL", "STL") for i in k.code)


def faults(row):
    if is_local(row.k):
        yield "has %d bytes of local memory" % row.k.local
    for name in row.calls(row.way):
        yield "calls %s in its main loop" % name
    if IN_OCTETS.match(row.name):
        widest = 8 if re.search("s8|e4m3|e5m2", row.name.split(", ")[-1]) else 16
        narrow = sum(w * n for w, n in (row.loads + row.stores).items() if w < 8)
        if max(row.loads, default=0) < widest or 10 * narrow > row.moved:
            yield "loads %s and stores %s bytes" % (accesses(row.loads), accesses(row.stores))
    if CHANGES_TYPE.match(row.name) and row.ratio > MOST:
        yield "computes for %.2f of its bytes' time, %s" % (row.ratio, row.pipe)


def read_kernels(path):
    with open(path, "rb") as file:
        library = file.read()
    found = [k for cubin in cubins(library) for k in kernels(cubin)]
    if not found:
        raise ValueError("no kernels of sm_%d are in it" % ARCH)
    return sorted(zip(readable([k.mangled for k in found]), found), key=lambda pair: pair[0])


def list_instructions(row):
    print("%s: %s" % (row.name, ", ".join("%s %.1f" % (name, value) for name, value in sorted(row.limits.items()) if value)),
          "of %.1f clocks for %d bytes" % (row.memory(), row.moved))
    counted = {i.at for i in row.way}
    for i in sorted(set(row.way + row.aside)):
        print("%s %04x %s%-9s %-5s %2s  waits %s sets %s%s" % (
            "*" if i.at in counted else " ", i.at, "@" if i.guarded else " ", i.name, i.pipe, i.bytes or "", format(i.waits, "06b"),
            i.sets if i.sets != 7 else "-", "  to %04x" % i.target if i.target is not None else ""))


def main():
    build = os.environ.get("B", "build")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernel", nargs="?", default="")
    parser.add_argument("--library", default=build + "/libtandem_cuda.so")
    for option in ("--loops", "--check", "--listing", "--resources"):
        parser.add_argument(option, action="store_true")
    asked = parser.parse_args()
    found = [(name, k) for name, k in read_kernels(asked.library) if re.match(asked.kernel, name)]
    if asked.resources:
        for _, k in found:
            print(k.mangled, k.registers, k.shared, k.local)
        return 0
    rows = []
    for name, k in found:
        flow = Flow(k.code)
        heads = {"%s 0x%x" % (name, head): head for head in loading_loops(flow)} if asked.loops else {}
        rows += [Row(called, k, flow, head) for called, head in (heads or {name: main_loop(flow)}).items()]
    if asked.listing:
        for row in rows:
            list_instructions(row)
    elif asked.check:
        found = ["%s %s" % (row.name, fault) for row in rows for fault in faults(row)]
        print("\n".join(found) or "%d kernels of sm_%d: no findings" % (len(rows), ARCH))
        return 1 if found else 0
    else:
        print("sm_%d, %d SMs, %.1f TB/s, %.3f GHz, latency %.1f µs: %.1f bytes a clock, %.1f KB on their way, an SM" % (
            ARCH, N_SM, BANDWIDTH / 1e12, CLOCK_HZ / 1e9, LATENCY_S * 1e6, BYTES_A_CLOCK, LATENCY_S * BANDWIDTH / N_SM / 1000))
        print(LINE % HEADER)
        print("\n".join(map(line_of, rows)))
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        sys.exit(main())
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        sys.exit("kernel_limits.py: %s" % error)
