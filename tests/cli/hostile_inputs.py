"""Inputs that were made to harm, of each kind that tandem reads, given to the commands that read them.

What must hold: no signal and no internal error; an exit code below 7; a text where it is not 0; at most 512 MiB
beyond the bytes that the file really has; at most 10 s of the processor. Nothing that a terminal obeys is
printed. Prints one line per input that broke a law, and the number of inputs. Of all inputs one in EVERY is
given. Usage: hostile_inputs.py TANDEM FIXTURES ONNX EVERY
"""
import gzip
import json
import os
import resource
import shutil
import signal
import sqlite3
import struct
import sys
import tempfile

TANDEM, FIXTURES, ONNX = sys.argv[1:4]
EVERY = int(sys.argv[4])
MAX_BEYOND, MAX_SECONDS = 512 << 20, 10
MARK = "\x1b]0;owned\x07\x1b[31m\u009b31m\u202e"  # what a terminal would obey
n_input = n_run = n_bad = 0
worst_kib = worst_s = 0


def say(name, why):
    global n_bad
    n_bad += 1
    print(f"{name}: {why}", flush=True)


def run(name, arguments, held_bytes):
    """Runs tandem on an input, in a process that the kernel ends where it takes too much."""
    global n_run, worst_kib, worst_s
    n_run += 1
    said = tempfile.TemporaryFile()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        resource.setrlimit(resource.RLIMIT_CPU, (2 * MAX_SECONDS, 2 * MAX_SECONDS))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.alarm(240)  # waits for ever: a pipe, a lock
        os.execv(TANDEM, [TANDEM, *arguments])
    _, state, used = os.wait4(child, 0)
    said.seek(0)
    text = said.read(1 << 20)
    seconds = used.ru_utime + used.ru_stime
    worst_kib, worst_s = max(worst_kib, used.ru_maxrss), max(worst_s, seconds)
    where = f"{name}: tandem {' '.join(arguments)}"
    if os.WIFSIGNALED(state):
        return say(where, f"ended by signal {os.WTERMSIG(state)}")
    code = os.WEXITSTATUS(state)
    if code > 6:
        say(where, f"exit code {code}: {text[-300:]!r}")
    if code and not text.strip():
        say(where, f"exit code {code} without a text")
    if seconds > MAX_SECONDS:
        say(where, f"took {seconds:.1f} s of the processor")
    if used.ru_maxrss * 1024 > MAX_BEYOND + held_bytes:
        say(where, f"took {used.ru_maxrss >> 10} MiB")
    if b"\x1b" in text or b"\x07" in text or b"\xc2\x9b" in text or b"\xe2\x80\xae" in text:
        say(where, f"prints what a terminal obeys: {text[:300]!r}")


def read(path):
    with open(path, "rb") as file:
        return file.read()


def packed(repeated, times):
    """gzip of `times` repetitions, made member by member."""
    block = gzip.compress(repeated * max(1, (1 << 20) // len(repeated)), 9)
    return block * max(1, times * len(repeated) >> 20)


def damaged(good):
    """Names and bytes of what damage does to a good file."""
    n = len(good)
    yield "empty", b""
    for k, end in enumerate((1, n // 7, n // 3, n // 2, n - n // 5, n - 1)):
        yield f"cut{k}", good[: max(0, end)]
    for k in range(4):
        at = (n - 1) * (2 * k + 1) // 8
        yield f"flip{k}", good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :]
    yield "twice", good + good
    yield "zeros", bytes(n)
    yield "nul", good[: n // 2] + b"\0" + good[n // 2 :]
    yield "ones", b"\xff" * 4096


def json_traps(good):
    """JSON that is deep, long, twice, huge, or commands a terminal."""
    text = good.decode()
    yield "deep", b"[" * 2_000_000
    yield "deep_objects", b'{"a":' * 1_000_000
    yield "twice_keyed", ("{" + text.strip()[1:-1] + "," + text.strip()[1:-1] + "}").encode()
    for k, number in enumerate(("1e999", "-1", "99999999999999999999", "1e308", "0.1", "null", '"x"', "[]", "true")):
        # the first number after a colon, and all of them
        out, change, rest = [], 0, text
        for part in rest.split(":"):
            head = len(part) - len(part.lstrip(" "))
            digits = len(part[head:]) - len(part[head:].lstrip("-0123456789.eE+"))
            if digits and out:
                part, change = part[:head] + number + part[head + digits :], change + 1
            out.append(part)
        yield f"numbers{k}", ":".join(out).encode()
    marked = json.dumps(json.loads(text), ensure_ascii=True)
    for k, word in enumerate(sorted({w for w in marked.split('"')[1::2] if w}, key=lambda w: (len(w), w))[:12]):
        yield f"mark{k}", marked.replace(f'"{word}"', '"' + word + json.dumps(MARK)[1:-1] + '"').encode()
    yield "long_text", ('{"schema": "' + "x" * 50_000_000 + '"}').encode()
    yield "long_list", b"[" + b"0," * 20_000_000 + b"0]"


def bombs(of):
    yield "bomb_zeros.gz", packed(b"\0", 4 << 30)
    yield "bomb_nest.gz", packed(b"[", 2 << 30)
    yield "bomb_lines.gz", packed(b"1,2,3,4\n", 256 << 20)
    yield "bomb_of_it.gz", gzip.compress(of * max(1, (64 << 20) // max(1, len(of))), 1)


def protobuf_traps():
    def varint(x):
        out = b""
        while x > 127:
            out, x = out + bytes([x & 127 | 128]), x >> 7
        return out + bytes([x])

    inner = b""
    for _ in range(60_000):
        inner = b"\x3a" + varint(len(inner)) + inner
    yield "nested", inner
    yield "huge_length", b"\x3a" + varint(1 << 40)
    yield "huge_field", varint((1 << 29 - 1) << 3 | 2) + b"\x04abcd"
    yield "many_fields", b"\x08\x01" * 3_000_000
    yield "endless_varint", b"\x80" * 1_000_000
    yield "many_nodes", b"\x3a" + varint(4_000_000) + b"\x0a\x00" * 2_000_000


def try_one(kind, name, suffix, content, commands):
    """Writes the input and gives it to each command; FILE is replaced by it."""
    global n_input
    n_input += 1
    if n_input % EVERY:
        return
    path = f"{kind}_{name}".replace(".", "_") + suffix
    if isinstance(content, bytes):
        with open(path, "wb") as file:
            file.write(content)
    else:
        content(path)
    held = os.stat(path).st_blocks * 512 if os.path.isfile(path) else 0
    for command in commands:
        run(f"{kind} {name}", [word.replace("FILE", path) for word in command], held)
    if os.path.isdir(path):
        os.rmdir(path)
    else:
        os.unlink(path)
    for left in [entry for entry in os.listdir(".") if entry.startswith((path, "out."))]:
        os.unlink(left) if not os.path.isdir(left) else shutil.rmtree(left)


def sparse(size, head=b""):
    def make(path):
        with open(path, "wb") as file:
            file.write(head)
            file.truncate(size)

    return make


def special():
    yield "folder", lambda path: os.mkdir(path)
    yield "none", lambda path: os.symlink("/nonexistent", path)
    yield "circle", lambda path: os.symlink(os.path.basename(path), path)
    yield "null", lambda path: os.symlink("/dev/null", path)


def store_traps(good):
    def with_sql(sql):
        def make(path):
            with open(path, "wb") as file:
                file.write(good)
            base = sqlite3.connect(path)
            base.execute("PRAGMA journal_mode = DELETE")
            base.executescript(sql)
            base.commit()
            base.close()

        return make

    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000) "
    traps = {
        "endless_view": f"DROP TABLE op_cost; CREATE VIEW op_cost AS {endless}",
        "large_view": "DROP TABLE operator; CREATE VIEW operator AS SELECT 1 AS id, hex(zeroblob(400000000)) AS signature",
        "view": "CREATE VIEW v AS SELECT 1",
        "trigger": "CREATE TRIGGER t AFTER INSERT ON device BEGIN DELETE FROM op_cost; END",
        "generated": "CREATE TABLE g (a, b AS (hex(zeroblob(400000000))))",
        "index": "CREATE INDEX i ON operator (length(signature))",
        "fts": "CREATE VIRTUAL TABLE f USING fts5 (x)",
        "analyzed": "ANALYZE",
        "objects": "PRAGMA writable_schema = ON; INSERT INTO sqlite_schema WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL "
        "SELECT i + 1 FROM n WHERE i < 100000) SELECT 'view', 'v' || i, 'v' || i, 0, 'CREATE VIEW v' || i || "
        "' AS SELECT 1' FROM n",
        "many_rows": f"INSERT INTO operator (signature) {many} SELECT 'x' || i FROM n",
        "many_models": f"INSERT INTO model (name, hash) {many} SELECT 'm', 'h' || i FROM n",
        "long_text": "INSERT INTO device (name) SELECT hex(zeroblob(20000000))",
        "long_names": "UPDATE device SET name = name || hex(zeroblob(200000)); UPDATE model SET name = hex(zeroblob(200000))",
        "marked": f"UPDATE device SET name = name || '{MARK}'; UPDATE model SET name = name || '{MARK}'; "
        f"UPDATE operator SET signature = signature || '{MARK}'; UPDATE host SET cpu = cpu || '{MARK}'",
        "negative": "UPDATE op_cost SET median_ns = -1, sum_ns = -1",
        "infinite": "UPDATE op_cost SET sum_ns = 9e999, sum_squares_ns2 = 9e999",
        "huge": "UPDATE op_cost SET n = 9223372036854775807, median_ns = 9223372036854775807",
        "future": "PRAGMA user_version = 2147483647",
        "older": "PRAGMA user_version = 1",
        "below": "PRAGMA user_version = -5",
        "cache": "PRAGMA default_cache_size = 2147483647",
    }
    for name, sql in traps.items():
        yield name, with_sql(sql)
    for size in (1 << 30, 5 << 30):
        yield f"sparse{size >> 30}", sparse(size, good)
    yield "pages", good[:28] + struct.pack(">I", 0x7FFFFFFF) + good[32:]


def good_store():
    if os.path.exists("good.db"):
        os.unlink("good.db")
    lines = read(f"{FIXTURES}/timings.csv").decode().splitlines()
    with open("good.csv", "w", encoding="utf-8") as file:
        file.write("\n".join(lines[:4]) + "\n")
    code = os.spawnl(os.P_WAIT, TANDEM, TANDEM, "profile", "--import", "good.csv", "--db", "good.db", "-q")
    if code or not os.path.exists("good.db"):
        sys.exit(f"no store could be made: exit code {code}")
    return read("good.db")


def main():
    os.chdir(tempfile.mkdtemp(prefix="tandem-hostile-"))
    here = os.getcwd()
    plan = read(f"{FIXTURES}/plan.json")
    step = read(f"{FIXTURES}/step.json")
    torch = read(f"{FIXTURES}/torch0.json")
    job = read(f"{FIXTURES}/job.csv")
    chakra = read(f"{FIXTURES}/chakra.0.et")
    timings = read(f"{FIXTURES}/timings.csv")
    onnx = read(f"{ONNX}/conv.onnx")
    report = ["report", "FILE", "-o", "out.html"]
    kinds = [
        ("plan", ".json", plan, [["replay", "--plan", "FILE", "--predict"], report], True),
        ("step", ".json", step, [["whatif", "FILE"], report], True),
        ("torch", ".json", torch, [["whatif", "FILE"]], True),
        ("job", ".csv", job, [["whatif", "FILE"], report], False),
        ("chakra", ".0.et", chakra, [["whatif", "FILE"]], False),
        ("onnx", ".onnx", onnx, [["graph", "--model", "FILE"]], False),
        ("timings", ".csv", timings, [["profile", "--import", "FILE", "--db", "out.db"]], False),
        ("log", ".jsonl", b'{"step": 0, "loss": 1.5, "lr": 0.1, "rank": 0}\n' * 40, [report], False),
        ("init", ".safetensors", struct.pack("<Q", 60) + b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}      ' + b"\0" * 4,
         [["train", "--model", "mlp:depth=1,width=16", "--device", "cpu:sse41", "--steps", "1", "--init", "FILE", "-q"]], False),
        ("checkpoint", ".ckpt", b"tandem checkpoint" * 40,
         [["train", "--model", "mlp:depth=1,width=16", "--device", "cpu:sse41", "--steps", "1", "--resume", "FILE", "-q"]], False),
    ]
    for kind, suffix, good, commands, is_json in kinds:
        for name, content in damaged(good):
            try_one(kind, name, suffix, content, commands)
        for name, content in special():
            try_one(kind, name, suffix, content, commands)
        try_one(kind, "sparse", suffix, sparse(3 << 30, good), commands)
        if is_json:
            for name, content in json_traps(good):
                try_one(kind, name, suffix, content, commands)
        if kind in ("step", "job", "chakra", "onnx"):
            for name, content in bombs(good):
                try_one(kind, name, suffix + (".gz" if kind != "onnx" else ""), content, commands)
        if kind in ("chakra", "onnx"):
            for name, content in protobuf_traps():
                try_one(kind, name, suffix, content, commands)
    store = good_store()
    commands = [["report", "--db", "FILE", "-o", "out.html"], ["replay", "--model", "mlp", "--cluster", "1*t4", "--predict",
                "--db", "FILE"]]
    for name, content in list(damaged(store)) + list(special()) + list(store_traps(store)):
        try_one("store", name, ".db", content, commands)
    for name, content in list(damaged(timings))[:6]:
        try_one("store_import", name, ".csv", content, [["profile", "--import", "FILE", "--db", "good.db"]])
    for word in ("1*t4" + MARK, "9" * 400 + "*t4", "1*" + "t4," * 50_000, "(" * 100_000, "1*t4 net=1e999GB/s,5us", "-1*t4"):
        global n_input
        n_input += 1
        run("cluster", ["replay", "--model", "mlp", "--predict", "--cluster", word], 0)
    for word in ("mlp" + MARK, "mlp:depth=99999999999", "mlp:" + "a=1," * 20_000, "m" * 100_000, "vit_tiny:width=1073741824"):
        n_input += 1
        run("model", ["graph", "--model", word], 0)
    os.chdir("/")
    shutil.rmtree(here)
    print(f"one in {EVERY} of {n_input} inputs in {n_run} runs; at most {worst_kib >> 10} MiB and {worst_s:.1f} s of the processor; "
          f"{n_bad} broke a law")
    return 1 if n_bad or n_input < 200 else 0


sys.exit(main())
