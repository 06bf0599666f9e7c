"""Which breaks a line of source can have: relational operators, constants, signs, dropped calls, swapped arguments.

A break is one replacement of bytes within a file, and keeps the number of lines. Not broken: comments, texts, macros (lines of the
preprocessor), sizes of char arrays, and calls that release what a test without a leak checker does not miss (RELEASES)."""
import ast
import collections
import io
import re
import tokenize

Break = collections.namedtuple("Break", "kind line start end new")  # new: what replaces text[start:end]
KINDS = ("relational", "constant", "sign", "call", "arguments")

RELATIONAL = {"<": ("<=", ">"), "<=": ("<", ">"), ">": (">=", "<"), ">=": (">", "<"), "==": ("!=",), "!=": ("==",)}
RELEASES = re.compile(r"^(free|json_decref|\w+_free|\w+_close|fclose|close|munmap|regfree|gsl_\w+_free)$")
TOKEN = re.compile(r"""(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<text>[LuU8]*"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<name>[A-Za-z_]\w*)
    |(?P<number>0[xX][0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?(?:[pP][+-]?\d+)?\w*|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\w*)
    |(?P<sign><<=|>>=|\.\.\.|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\S)""", re.X | re.S)
NO_CALL = {"if", "for", "while", "switch", "return", "sizeof", "do", "else", "case", "defined", "__attribute__", "_Static_assert",
           "assert", "_Alignof", "va_arg", "offsetof"}
Token = collections.namedtuple("Token", "kind text start end line")


def without_preprocessor(text):
    """The same text with blanks in the place of each line of the preprocessor."""
    kept, is_continued = [], False
    for line in text.split("\n"):
        is_gone = is_continued or line.lstrip().startswith("#")
        is_continued = is_gone and line.endswith("\\")
        kept.append(" " * len(line) if is_gone else line)
    return "\n".join(kept)


def tokens_of(text):
    tokens, line, at = [], 1, 0
    for found in TOKEN.finditer(without_preprocessor(text)):
        line += text.count("\n", at, found.start())
        at = found.start()
        if found.lastgroup != "comment":
            tokens.append(Token(found.lastgroup, found.group(), found.start(), found.end(), line))
    return tokens


def brackets_of(tokens):
    """For the place of each bracket that of its partner, both ways."""
    partner, open_at, pairs = {}, [], {")": "(", "]": "[", "}": "{"}
    for i, token in enumerate(tokens):
        if token.kind != "sign":
            continue
        if token.text in "([{":
            open_at.append(i)
        elif token.text in pairs and open_at and tokens[open_at[-1]].text == pairs[token.text]:
            partner[i] = open_at.pop()
            partner[partner[i]] = i
    return partner


def other_numbers(text):
    """What may replace a constant."""
    found = re.match(r"^(0[xX][0-9a-fA-F]+|\d+)([uUlL]*)$", text)
    if found:
        value = int(found.group(1), 16 if found.group(1)[:2] in ("0x", "0X") else 8 if re.match("^0[0-7]+$", found.group(1)) else 10)
        return [f"{other}{found.group(2)}" for other in ([1] if value == 0 else [value - 1, value + 1])]
    found = re.match(r"^((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)([fFlL]?)$", text)
    if not found:
        return []
    value, suffix = float(found.group(1)), found.group(2)
    return [("1.0" if value == 0 else repr(1.25 * value)) + suffix]


def is_value_end(token):
    return token.kind in ("name", "number", "text") and token.text not in ("return", "case") or token.text in (")", "]")


def is_statement_start(tokens, partner, i):
    before = tokens[i - 1] if i else None
    if before is None:
        return False
    if before.text in ("{", "}", ";", "else"):
        return True
    head = partner.get(i - 1, 0) - 1
    return before.text == ")" and head >= 0 and tokens[head].text in ("if", "for", "while")


def dropped_call(tokens, partner, i):
    """The break that drops the statement at token i, if it is a call, or takes its result into a variable."""
    at = i
    if [token.text for token in tokens[i:i + 3]] == ["(", "void", ")"]:
        at = i + 3
    else:
        while at + 2 < len(tokens) and tokens[at].kind == "name" and tokens[at + 1].text in ("->", "."):
            at += 2
        if at + 2 < len(tokens) and tokens[at].kind == "name" and tokens[at + 1].text == "=":
            at += 2
        else:
            at = i
    if at + 1 >= len(tokens) or tokens[at].kind != "name" or tokens[at].text in NO_CALL or RELEASES.match(tokens[at].text):
        return None
    while at + 2 < len(tokens) and tokens[at].kind == "name" and tokens[at + 1].text in ("->", "."):
        at += 2
    end = partner.get(at + 1)
    if tokens[at + 1].text != "(" or end is None or end + 1 >= len(tokens) or tokens[end + 1].text != ";":
        return None
    return Break("call", tokens[i].line, tokens[i].start, tokens[end].end, None)


def arguments_of(tokens, partner, i):
    """Of the call whose opening bracket is token i: (start, end) of each argument."""
    parts, start, at, end = [], tokens[i].end, i + 1, partner[i]
    while at < end:
        if tokens[at].text in ("(", "[", "{") and at in partner:
            at = partner[at]
        elif tokens[at].text == ",":
            parts.append((start, tokens[at].start))
            start = tokens[at].end
        at += 1
    parts.append((start, tokens[end].start))
    return parts


def swapped(text, first, second):
    """text[first] and text[second] in each other's place."""
    a, b = text[first[0]:first[1]], text[second[0]:second[1]]
    blank_a, blank_b = a[:len(a) - len(a.lstrip())], b[:len(b) - len(b.lstrip())]
    return blank_a + b.strip() + text[first[1]:second[0]] + blank_b + a.strip()


def depths_of(tokens):
    depth, depths = 0, []
    for token in tokens:
        depth -= token.text == "}"
        depths.append(depth)
        depth += token.text == "{"
    return depths


def breaks_of_c(text):
    tokens = tokens_of(text)
    partner, depths, found = brackets_of(tokens), depths_of(tokens), []
    lines = text.split("\n")
    for i, token in enumerate(tokens):
        before = tokens[i - 1] if i else Token("sign", ";", 0, 0, 0)
        if token.text in RELATIONAL and token.kind == "sign":
            found += [Break("relational", token.line, token.start, token.end, new) for new in RELATIONAL[token.text]]
        elif token.kind == "number":
            if not (before.text == "[" and re.search(r"\bchar\b", lines[token.line - 1])):
                found += [Break("constant", token.line, token.start, token.end, new) for new in other_numbers(token.text)]
        elif token.text in ("+", "-") and token.kind == "sign":
            if is_value_end(before):
                found.append(Break("sign", token.line, token.start, token.end, "-" if token.text == "+" else "+"))
            elif token.text == "-":
                found.append(Break("sign", token.line, token.start, token.end, " "))
        elif token.text in ("+=", "-="):
            found.append(Break("sign", token.line, token.start, token.end, "-=" if token.text == "+=" else "+="))
        if depths[i] > 0 and is_statement_start(tokens, partner, i):
            dropped = dropped_call(tokens, partner, i)
            if dropped:
                lost = text[dropped.start:dropped.end]
                found.append(dropped._replace(new="\n" * lost.count("\n")))
        if token.kind == "name" and token.text not in NO_CALL and depths[i] > 0 and i + 1 < len(tokens) and \
                tokens[i + 1].text == "(" and i + 1 in partner:
            parts = arguments_of(tokens, partner, i + 1)
            for a, b in zip(parts, parts[1:]):
                if text[a[0]:a[1]].strip() != text[b[0]:b[1]].strip():
                    found.append(Break("arguments", token.line, a[0], b[1], swapped(text, a, b)))
    return found


def breaks_of_python(text):
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    lines = text.split("\n")
    found, before = [], None

    def add(kind, begin, end, new):
        found.append(Break(kind, begin[0], starts[begin[0] - 1] + begin[1], starts[end[0] - 1] + end[1], new))

    def place(line, byte):
        return line, len(lines[line - 1].encode()[:byte].decode())

    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_value = before is not None and (before.type in (tokenize.NAME, tokenize.NUMBER) and before.string not in (
            "return", "in", "and", "or", "not", "if", "else") or before.string in (")", "]"))
        if token.type == tokenize.OP and token.string in RELATIONAL:
            for new in RELATIONAL[token.string]:
                add("relational", token.start, token.end, new)
        elif token.type == tokenize.NUMBER:
            for new in other_numbers(token.string):
                add("constant", token.start, token.end, new)
        elif token.type == tokenize.OP and token.string in ("+", "-", "+=", "-="):
            if is_value:
                add("sign", token.start, token.end, token.string.translate({43: "-", 45: "+"}))
            elif token.string == "-":
                add("sign", token.start, token.end, " ")
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            before = token
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            add("call", place(node.lineno, node.col_offset), place(node.end_lineno, node.end_col_offset),
                "pass" + " \\\n" * (node.end_lineno - node.lineno))
        elif isinstance(node, ast.Call):
            for a, b in zip(node.args, node.args[1:]):
                ends = [tuple(starts[line - 1] + place(line, byte)[1] for line, byte in (
                    (of.lineno, of.col_offset), (of.end_lineno, of.end_col_offset))) for of in (a, b)]
                if not any(isinstance(of, ast.Starred) for of in (a, b)):
                    found.append(Break("arguments", node.lineno, ends[0][0], ends[1][1], swapped(text, *ends)))
    return found


def breaks_of(path, text):
    """All breaks of a file, in order."""
    found = breaks_of_python(text) if path.endswith(".py") else breaks_of_c(text)
    return sorted(of for of in set(found) if text[of.start:of.end] != of.new)
