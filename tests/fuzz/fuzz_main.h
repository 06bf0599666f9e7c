/* fuzz_main.h: runs a fuzz target where there is no fuzzer: its corpus, then a fixed number of mutated
 * inputs.
 *
 * A target is a file fuzz_NAME.c with LLVMFuzzerTestOneInput(data, size), which returns 0 and aborts where a
 * law is broken, and a main that returns tandem_fuzz_main("NAME", …).
 *
 * `make fuzz TARGET=NAME` runs the same file under clang's libFuzzer (tests/fuzz/libfuzzer/main.c,
 * docs/fuzzing.md). */
#ifndef TANDEM_TESTS_FUZZ_MAIN_H
#define TANDEM_TESTS_FUZZ_MAIN_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The target: one input, of any bytes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Aborts, and names the law that an input breaks, unless it holds. */
static inline void demand(int holds, const char *law)
{
    if (holds) return;
    (void)fprintf(stderr, "broken: %s\n", law);
    abort();
}
#define must(law) demand((law), #law)

/* tandem_fuzz_main: call `one` on each file of the corpus (argv[1], or else $TANDEM_CORPUS, or else
 * tests/fuzz/corpus/NAME; a default that is absent is said and passed over, one that was given must be
 * there), on each seed, and on 4000 inputs mutated from both (TEST_LONG=1: 20000; $TANDEM_FUZZ_INPUTS:
 * another number). Input i depends on i, the corpus and the seed alone, which is 1, or $TANDEM_FUZZ_SEED, and
 * is printed. Each input lies in a block of its own size, so that a sanitizer sees the first byte read after
 * it. An input that kills the process or takes longer than 20 s is named and written to
 * $TMPDIR/fuzz_NAME.crash (/tmp where it is not set); that file given as argv[1] is run alone.
 * Prints "fuzz_NAME: N inputs"; returns 0, or 1 where the corpus cannot be read or no input was run. `n_seed`
 * may be 0 if there is a corpus. */
int tandem_fuzz_main(const char *name, int (*one)(const uint8_t *data, size_t size),
                     const uint8_t *const *seeds, const size_t *seed_bytes, int n_seed, int argc,
                     char **argv);

#endif
