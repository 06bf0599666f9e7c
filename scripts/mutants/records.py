"""Records of breaks, a JSON object a line, and the table that is made of them."""
import collections
import json
import os

COMPILER = "the compiler"  # what a record says that noticed, beside the names of tests


class Records:
    """The file of one seed: what was drawn, in any order. A last line that is not whole is cut off."""

    def __init__(self, path, head):
        self.path, self.head, self.known = path, head, {}
        if os.path.exists(path):
            self.read()
        else:
            self.write(head)

    def read(self):
        with open(self.path, "r+b") as file:
            content = file.read()
            whole = content.rfind(b"\n") + 1
            file.truncate(whole)
        rows = [json.loads(line) for line in content[:whole].decode().splitlines()]
        if not rows:
            self.write(self.head)
        elif rows[0] != self.head:
            raise SystemExit(f"mutants: '{self.path}' has records of {rows[0]}, not of {self.head}. Move it away, or go on with the "
                             "tree, the seed and the limits that it is of")
        self.known = {row["n"]: row for row in rows[1:]}

    def write(self, row):
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def add(self, row):
        self.known[row["n"]] = row
        self.write(row)


def one_line(text):
    return " ".join(text.split())


def read_by_hand(path):
    """Breaks that are set aside by hand: {(file, line's text, was, is): reason}."""
    by_hand = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip() and not line.startswith("#"):
                    parts = line.rstrip("\n").split("\t")
                    if len(parts) != 5 or not parts[4].strip():
                        raise SystemExit(f"mutants: '{path}', line {number}: expected file, line, was, is and a reason, with tabs "
                                         "between them")
                    by_hand[tuple(one_line(part) for part in parts[:4])] = parts[4]
    return by_hand


def key_of(row):
    return row["file"], one_line(row["before"]), one_line(row["was"]), one_line(row["is"])


def is_judged(row, by_hand):
    return row["verdict"] in ("noticed", "survived") and key_of(row) not in by_hand


def judged_rows(known, by_hand, number):
    """The first `number` that count, in the order in which they were drawn, and all that were drawn before the last of them."""
    counted, drawn = [], []
    for n in sorted(known):
        if len(counted) == number or n != len(drawn):  # a gap: another worker has not ended
            break
        drawn.append(known[n])
        if is_judged(known[n], by_hand):
            counted.append(known[n])
    return counted, drawn


def code(text, longest=70):
    text = one_line(text)
    text = text if len(text) <= longest else text[:longest - 1] + "…"
    return "`` " + text.replace("|", "\\|") + " ``" if "`" in text else "`" + text.replace("|", "\\|") + "`"


def share(part, whole):
    return f"{100 * part / whole:.0f} %" if whole else "–"


def group_table(heading, counted, group_of):
    groups = collections.defaultdict(list)
    for row in counted:
        groups[group_of(row)].append(row["verdict"] == "noticed")
    lines = [f"| {heading} | breaks | noticed | |", "|---|---|---|---|"]
    lines += [f"| {name} | {len(of)} | {sum(of)} | {share(sum(of), len(of))} |" for name, of in sorted(groups.items())]
    return lines


def table_of(known, by_hand, head, number):
    """Markdown: what was noticed, and what survived."""
    counted, drawn = judged_rows(known, by_hand, number)
    noticed = sum(row["verdict"] == "noticed" for row in counted)
    aside = collections.Counter(row["verdict"] for row in drawn if row["verdict"] not in ("noticed", "survived"))
    hand = [row for row in drawn if row["verdict"] in ("noticed", "survived") and key_of(row) in by_hand]
    hung = sum(row.get("how") == "hangs" for row in counted)
    warned = sum(row.get("by") == COMPILER for row in counted)
    unreached = sum(row["verdict"] == "survived" and row["tests"] == 0 for row in counted)
    lines = [f"Seed {head['seed']}, sources {head['sources']}: {len(counted)} breaks, {noticed} noticed, {share(noticed, len(counted))}; "
             f"{hung} of these by a test that hangs, {warned} by the compiler, whose warnings scripts/check.sh takes for errors: "
             f"without those {share(noticed - warned, len(counted) - warned)}. {len(counted) - noticed} survived; no test reaches {unreached} of them.",
             f"Set aside: {aside['same code']} that compile to the same code, {len(hand)} by hand, and {aside['not compiled']} lines of "
             "which no break compiles.", ""]
    lines += group_table("folder", counted, lambda row: row["file"].split("/")[0]) + [""]
    lines += group_table("kind", counted, lambda row: row["kind"]) + [""]
    lines += ["| survived | line | was | is | tests |", "|---|---|---|---|---|"]
    for row in sorted((row for row in counted if row["verdict"] == "survived"), key=lambda row: (row["file"], row["line"])):
        tests = f"{row['tests']}" + (f" of {row['tests'] + row['others']}" if row["others"] else "") if row["tests"] else "none reaches it"
        lines.append(f"| {row['file']}:{row['line']} | {code(row['before'])} | {code(row['was'], 40)} | "
                     f"{code(row['is'], 40) if row['is'].strip() else '(dropped)'} | {tests} |")
    if hand:
        lines += ["", "| set aside by hand | was | is | reason |", "|---|---|---|---|"]
        lines += [f"| {row['file']}:{row['line']} | {code(row['was'], 40)} | {code(row['is'], 40)} | {by_hand[key_of(row)]} |"
                  for row in sorted(hand, key=lambda row: (row["file"], row["line"]))]
    return "\n".join(lines) + "\n"
