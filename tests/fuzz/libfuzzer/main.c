/* Runs a fuzz target under clang's libFuzzer (scripts/fuzz.sh): the arguments are libFuzzer's. The target's
 * seeds are written into the folder $TANDEM_FUZZ_SEEDS first, where it is set, for libFuzzer reads inputs
 * from folders alone. */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz_main.h"

extern int LLVMFuzzerRunDriver(int *argc, char ***argv, int (*one)(const uint8_t *, size_t));

static bool write_seed(const char *folder, const char *name, int i, const uint8_t *seed, size_t n)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/seed_%d", folder, i);
    FILE *const file = fopen(path, "wbe");
    bool good = file && fwrite(seed, 1, n, file) == n;
    if (file && fclose(file) != 0) good = false;
    if (!good) (void)fprintf(stderr, "fuzz_%s: cannot write %s: %s\n", name, path, strerror(errno));
    return good;
}

int tandem_fuzz_main(const char *name, int (*one)(const uint8_t *data, size_t size),
                     const uint8_t *const *seeds, const size_t *seed_bytes, int n_seed, int argc, char **argv)
{
    const char *const folder = getenv("TANDEM_FUZZ_SEEDS");
    for (int i = 0; folder && *folder && i < n_seed; i++)
        if (!write_seed(folder, name, i, seeds[i], seed_bytes[i])) return 1;
    return LLVMFuzzerRunDriver(&argc, &argv, one);
}
