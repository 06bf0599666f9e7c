#!/bin/bash
# scripts/mutants on a small tree of its own: what it breaks, what it says of each break, and that it goes on
# where it was stopped. Speaks TAP.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"
scripts=$(cd "$here/../../scripts" && pwd)
code=0
: >err

# --- Which breaks there are -----------------------------------------------------------------------------

cat >some.c <<'END'
#define MACRO(x) ((x) + 1)
/* a < b + 1 */
static int add(int a, int b) /* a - b */
{
    char text[32] = "1 < 2";
    if (a <= b && a != 7) report(text, -a);
    status = twice(a, b + 0x10);
    free(text);
    return a->x - 2.5F;
}
END
PYTHONPATH=$scripts/mutants PYTHONDONTWRITEBYTECODE=1 python3 - some.c >out 2>err <<'END'
import sys
from breaks import breaks_of
text = open(sys.argv[1]).read()
for of in breaks_of("some.c", text):
    print(of.line, of.kind, repr(text[of.start:of.end]), repr(of.new))
END
code=$?
sort >expected <<'END'
6 arguments 'text, -a' '-a, text'
6 call 'report(text, -a)' ''
6 constant '7' '6'
6 constant '7' '8'
6 relational '!=' '=='
6 relational '<=' '<'
6 relational '<=' '>'
6 sign '-' ' '
7 arguments 'a, b + 0x10' 'b + 0x10, a'
7 call 'status = twice(a, b + 0x10)' ''
7 constant '0x10' '15'
7 constant '0x10' '17'
7 sign '+' '-'
9 constant '2.5F' '3.125F'
9 sign '-' '+'
END
[ $code = 0 ] && diff expected <(sort out) >>err
report "breaks: relational operators, constants, signs, dropped calls, swapped arguments, no others" $?

cat >some.py <<'END'
def add(a, b):  # a < b
    """1 < 2"""
    print("ä", a, b)
    return a - 1 if a == b else -b
END
PYTHONPATH=$scripts/mutants PYTHONDONTWRITEBYTECODE=1 python3 - some.py >out 2>err <<'END'
import sys
from breaks import breaks_of
text = open(sys.argv[1]).read()
for of in breaks_of("some.py", text):
    print(of.line, of.kind, repr(text[of.start:of.end]), repr(of.new))
END
code=$?
sort >expected <<'END'
3 arguments '"ä", a' 'a, "ä"'
3 arguments 'a, b' 'b, a'
3 call 'print("ä", a, b)' 'pass'
4 constant '1' '0'
4 constant '1' '2'
4 relational '==' '!='
4 sign '-' ' '
4 sign '-' '+'
END
[ $code = 0 ] && diff expected <(sort out) >>err
report "breaks: those of Python" $?

(
    export PYTHONPATH=$scripts/mutants PYTHONDONTWRITEBYTECODE=1
    cd "$here/../.." && python3 - >"$work/out" 2>"$work/err" <<'END'
import glob
from breaks import KINDS, breaks_of
from trial import draw_breaks, with_break
n = dict.fromkeys(KINDS, 0)
for name in glob.glob("base/*.c") + glob.glob("allocator/policy/*.c") + glob.glob("python/tandem/*.py"):
    text = open(name).read()
    for of in breaks_of(name, text):
        broken = with_break(text, of)
        assert broken != text and broken.count("\n") == text.count("\n"), (name, of)
        n[of.kind] += 1
    assert draw_breaks(name, 40, text, 1) == draw_breaks(name, 40, text, 1)
assert min(n.values()) > 100, n
END
)
code=$?
report "breaks of our own sources keep their lines, and are drawn alike" $code

# --- A tree in which one line is tested -----------------------------------------------------------------

mkdir -p tree/sums tree/tests/unit tree/scripts/mutants
cat >tree/sums/sums.h <<'END'
int tested(int a, int b);
int ignored(int a, int b);
int unreached(int a, int b);
int same_code(int a);
struct pair { int a, b; };
int no_other(struct pair a, int b);
int warned(int *a, int b);
int counts(int n);
END
cat >tree/sums/sums.c <<'END'
#include "sums/sums.h"
int tested(int a, int b) { return a + b; }
int ignored(int a, int b) { return a + b; }
int unreached(int a, int b) { return a + b; }
int same_code(int a) { return (int)sizeof(a + a); }
int no_other(struct pair a, int b) { return b ? no_other(a, b) : a.a; }
int warned(int *a, int b) { return b ? warned(a, b) : *a; }
int counts(int n)
{
    volatile unsigned long k = (unsigned long)n;
    while (k) k = k - 1;
    return (int)k;
}
END
cat >tree/tests/unit/test_sums.c <<'END'
#include "sums/sums.h"
int main(void)
{
    int one = 1;
    (void)ignored(1, 2);
    return tested(2, 3) != 5 || counts(5) || same_code(1) != 4 || no_other((struct pair){1, 2}, 0) != 1 ||
           warned(&one, 0) != 1;
}
END
cat >tree/tests/unit/test_broken.c <<'END'
#include "sums/sums.h"
int main(void) { return tested(0, 0) == 0; }
END
cat >tree/Makefile <<'END'
B = build
OPT = -O2
WARN = -Wall -Wextra $(WERROR) -Wno-infinite-recursion
LDFLAGS =
all: $(B)/obj/sums/sums.o
tests: $(B)/tests/unit/test_sums $(B)/tests/unit/test_broken
$(B)/obj/%.o: %.c
	@mkdir -p $(@D)
	@gcc $(OPT) $(WARN) -fPIC -I. -MMD -MP -c -o $@ $<
$(B)/tests/%: tests/%.c $(B)/obj/sums/sums.o
	@mkdir -p $(@D)
	@gcc $(OPT) $(WARN) $(LDFLAGS) -I. -MMD -MP -o $@ $< \
	    $(B)/obj/sums/sums.o
END
hunt() { # OPTION…: the hunt in that tree
    PYTHONDONTWRITEBYTECODE=1 python3 "$scripts/mutants" --root tree --folder tree/build/mutants \
        --sources sums --programs "unit/test_sums unit/test_broken" --products all --jobs 1 \
        --least-seconds 10 "$@" >out 2>err
}
verdicts() { # of each line of sums.c: what the records say
    sed 1d tree/build/mutants/seed-1.jsonl |
        sed 's/.*"line": \([0-9]*\),.*"verdict": "\([a-z ]*\)".*/\1 \2/' | sort -n
}
cp -r tree/sums whole
hunt --number 20
code=$?
cat >expected <<'END'
2 noticed
3 survived
4 survived
5 same code
6 not compiled
7 noticed
11 noticed
END
[ $code = 1 ] && diff expected <(verdicts) >>err && diff -r whole tree/sums >>err
report "mutants: noticed, survived, not reached, same code, not compiled, warned, hung; the tree is whole" $?

grep -q '^Seed 1, .*: 5 breaks, 3 noticed, 60 %; 1 of these by a test that hangs, 1 by the compiler' out &&
    grep -q ' without those 50 %[.] 2 survived' out &&
    grep -q ' 2 survived; no test reaches 1 of them' out &&
    grep -q '^Set aside: 1 that compile to the same code, 0 by hand, and 1 lines' out &&
    grep -q '^| sums/sums.c:3 | .* | `+` | `-` | 1 |$' out &&
    grep -q '^| sums/sums.c:4 | .* | none reaches it |$' out && ! grep -q '^| sums/sums.c:2 ' out &&
    grep -q 'notice nothing here: unit/test_broken (does not pass)$' out
report "mutants: the table, and a test that fails without a break notices nothing" $?

# A killed hunt: some records, and half a line.
cp tree/build/mutants/seed-1.jsonl whole.jsonl
{ head -n 3 whole.jsonl && printf '{"n": 5, "fi'; } >tree/build/mutants/seed-1.jsonl
hunt --number 20
code=$?
[ $code = 1 ] && diff expected <(verdicts) >>err &&
    diff <(head -n 3 whole.jsonl) <(head -n 3 tree/build/mutants/seed-1.jsonl) >>err &&
    ! grep -q '^reach' out &&
    python3 -c 'import json, sys; [json.loads(line) for line in sys.stdin]' \
        <tree/build/mutants/seed-1.jsonl 2>>err
report "mutants: goes on where it was stopped" $?

printf 'sums/sums.c\t%s\t +\t-\tthe caller drops it\n' 'int ignored(int a, int b)  { return a + b; }' \
    >tree/scripts/mutants/set_aside.tsv
hunt --number 20 --table
[ $? = 1 ] && hunt --number 4 --table
code=$?
[ $code = 0 ] && hunt --number 20 --table
code=$?
[ $code = 1 ] && grep -q ': 4 breaks, 3 noticed, 75 %' out && grep -q ', 1 by hand, ' out &&
    grep -q '^| sums/sums.c:3 | `+` | `-` | the caller drops it |$' out
report "mutants: what is set aside by hand does not count, and is listed with its reason" $?

rm tree/scripts/mutants/set_aside.tsv
sed -i 's/(void)ignored(1, 2);/if (ignored(1, 2) != 3) return 1;/' tree/tests/unit/test_sums.c
hunt --number 20 --survivors
code=$?
[ $code = 1 ] && grep -q ': 5 breaks, 4 noticed, 80 %' out && grep -q '^noticed .* sums/sums.c:3 ' out
report "mutants: survivors are tried again with the tests as they are" $?

sed -i 's/{ return a + b; }/{ return b + a; }/' tree/sums/sums.c
hunt --number 20
code=$?
[ $code = 1 ] && grep -q 'has records of .* Move it away' err
report "mutants: records of other sources are refused" $?

echo "1..$n"
[ $failed = 0 ]
