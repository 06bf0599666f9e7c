#include "tests/fuzz/fuzz_main.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/philox.h"

enum {
    FEW_INPUTS = 4000,
    MANY_INPUTS = 20000, /* `make test LONG=1` */
    /* of a mutated input; a file of the corpus may be larger and is then only replayed */
    MAX_BYTES = 1 << 16,
    MAX_SECONDS = 20
};

/* ---- what is being run: for the signal handler, which can be given nothing ----------------------------- */

static struct {
    char text[128], path[PATH_MAX]; /* what to print, where to keep the input */
    const uint8_t *data;
    size_t size;
} current;

/* Async-signal-safe: write, open and close only. */
static void keep_input(void)
{
    const ssize_t said = write(STDERR_FILENO, current.text, strlen(current.text));
    const int fd = open(current.path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd >= 0) {
        const ssize_t kept = write(fd, current.data, current.size);
        (void)kept;
        close(fd);
    }
    (void)said;
}

static void on_signal(int number)
{
    keep_input();
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

/* Present where a sanitizer is linked: it dies without a signal of its own. */
extern void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void watch(const char *name)
{
    const char *const directory = getenv("TMPDIR");
    (void)snprintf(current.path, sizeof current.path, "%s/fuzz_%s.crash",
                   directory && *directory ? directory : "/tmp", name);
    static const int deadly[] = {SIGABRT, SIGALRM, SIGBUS, SIGFPE, SIGILL, SIGSEGV};
    for (size_t i = 0; i < sizeof deadly / sizeof deadly[0]; i++)
        if (!__sanitizer_set_death_callback || deadly[i] == SIGALRM || deadly[i] == SIGABRT)
            (void)signal(deadly[i], on_signal);
    if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(keep_input);
}

/* ---- the pool of inputs to mutate ---------------------------------------------------------------------- */

typedef struct input {
    uint8_t *data;
    size_t size;
} input;

typedef struct pool {
    input *input;
    size_t n, n_mutable; /* those up to MAX_BYTES come first once the pool is whole */
} pool;

static void out_of_memory(const char *name)
{
    (void)fprintf(stderr, "fuzz_%s: out of memory\n", name);
    exit(1);
}

static void pool_add(pool *p, const char *name, uint8_t *data, size_t size)
{
    input *const grown = realloc(p->input, (p->n + 1) * sizeof *grown);
    if (!grown) out_of_memory(name);
    p->input = grown;
    p->input[p->n++] = (input){data, size};
    if (size <= MAX_BYTES) { /* swap it to the end of the mutable ones */
        const input large = p->input[p->n_mutable];
        p->input[p->n_mutable++] = p->input[p->n - 1];
        if (p->n_mutable < p->n) p->input[p->n - 1] = large;
    }
}

static uint8_t *copy_of(const char *name, const uint8_t *data, size_t size)
{
    uint8_t *const copy = malloc(size ? size : 1);
    if (!copy) out_of_memory(name);
    if (size) memcpy(copy, data, size);
    return copy;
}

static bool add_file(pool *p, const char *name, const char *path)
{
    FILE *const file = fopen(path, "rb");
    uint8_t *data = NULL;
    size_t size = 0, room = 0;
    while (file) {
        if (size == room) {
            room = room ? room * 2 : 4096;
            uint8_t *const grown = realloc(data, room);
            if (!grown) out_of_memory(name);
            data = grown;
        }
        const size_t got = fread(data + size, 1, room - size, file);
        if (got == 0) break;
        size += got;
    }
    const bool good = file && !ferror(file);
    if (good)
        pool_add(p, name, data, size);
    else {
        (void)fprintf(stderr, "fuzz_%s: cannot read %s: %s\n", name, path, strerror(errno));
        free(data);
    }
    if (file) (void)fclose(file);
    return good;
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_visible(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static bool add_directory(pool *p, const char *name, const char *path)
{
    struct dirent **entry = NULL;
    /* the same order everywhere: input i is the same */
    const int n = scandir(path, &entry, is_visible, by_bytes);
    bool good = n >= 0;
    for (int i = 0; i < n; i++) {
        char file[PATH_MAX];
        struct stat about;
        const int length = snprintf(file, sizeof file, "%s/%s", path, entry[i]->d_name);
        if (length > 0 && (size_t)length < sizeof file && stat(file, &about) == 0 && S_ISREG(about.st_mode))
            good = add_file(p, name, file) && good;
        free(entry[i]);
    }
    free(entry);
    return good;
}

/* ---- mutation ------------------------------------------------------------------------------------------ */

/* The draws of one input: words of Philox blocks {block, input}. */
typedef struct draws {
    uint64_t seed;
    uint32_t input, n;
} draws;

static uint32_t draw_fuzz_main(draws *d)
{
    const uint32_t counter[4] = {d->n / 4, d->input, 0, 0};
    return tandem_philox(counter, d->seed).word[d->n++ % 4];
}

/* In 0 … n−1; n ≥ 1. */
static size_t below_fuzz_main(draws *d, size_t n) { return (size_t)((uint64_t)draw_fuzz_main(d) * n >> 32); }

/* Replaces `cut` bytes at `at` by `put`; the result stays within MAX_BYTES. */
static size_t replace_fuzz_main(uint8_t *data, size_t size, size_t at, size_t cut, const uint8_t *put,
                                size_t n_put)
{
    if (size - cut + n_put > MAX_BYTES) n_put = MAX_BYTES - (size - cut);
    memmove(data + at + n_put, data + at + cut, size - at - cut);
    if (n_put) memcpy(data + at, put, n_put);
    return size - cut + n_put;
}

/* Texts that parsers of numbers, JSON, SQL and units have stumbled over. */
static const char *const tokens[] = {
    "-1",
    "0",
    "1e999",
    "-0",
    "18446744073709551616",
    "9223372036854775808",
    "2147483648",
    "nan",
    "inf",
    "null",
    "true",
    "{}",
    "[]",
    "[[[[[[[[",
    "\"\"",
    "\\u0000",
    "\\",
    "\"",
    "'",
    "%s%n",
    "../",
    "\n",
    "\r\n",
    "\t",
    "\xff\xfe",
    ",",
    ":",
    "+",
    "*",
    "@",
    "=",
    "GiB",
    "ns",
    "%",
    "0x",
    "1.5",
    "--",
    "/*",
    "]",
    "}",
    "((((((((",
    ";",
    " ",
    "\xc3\xa9",
};

static size_t put_number(draws *d, uint8_t *data, size_t size)
{
    static const uint32_t telling[] = {0,      1,      2,      0x7f,    0x80,       0xff,       0x100,
                                       0x7fff, 0x8000, 0xffff, 0x10000, 0x7fffffff, 0x80000000, 0xffffffff};
    const uint32_t value = telling[below_fuzz_main(d, sizeof telling / sizeof telling[0])];
    const size_t width = (size_t)1 << below_fuzz_main(d, 3);
    const bool big_endian = draw_fuzz_main(d) & 1;
    if (size < width) return size;
    const size_t at = below_fuzz_main(d, size - width + 1);
    for (size_t i = 0; i < width; i++)
        data[at + i] = (uint8_t)(value >> 8 * (big_endian ? width - 1 - i : i));
    return size;
}

static size_t mutate_once(draws *d, uint8_t *data, size_t size, const pool *p)
{
    const uint32_t kind = draw_fuzz_main(d) % 10;
    if (size == 0 && kind < 7) return size;
    const size_t at = below_fuzz_main(d, size + 1),
                 span = below_fuzz_main(d, size - at < 64 ? size - at + 1 : 65);
    uint8_t few[16];
    switch (kind) {
    case 0: data[below_fuzz_main(d, size)] ^= (uint8_t)(1u << draw_fuzz_main(d) % 8); return size;
    case 1: data[below_fuzz_main(d, size)] = (uint8_t)draw_fuzz_main(d); return size;
    case 2:
    case 3: return put_number(d, data, size);
    case 4: return replace_fuzz_main(data, size, at, span, NULL, 0);
    case 5:
        return draw_fuzz_main(d) % 4 ? replace_fuzz_main(data, size, at, size - at, NULL, 0)
                                     : size; /* cut short */
    case 6: {
        uint8_t again[64];
        memcpy(again, data + at, span);
        return replace_fuzz_main(data, size, below_fuzz_main(d, size + 1), 0, again, span);
    }
    case 7: {
        const input other = p->input[below_fuzz_main(d, p->n_mutable)];
        const size_t from = below_fuzz_main(d, other.size + 1);
        return replace_fuzz_main(data, size, at, span, other.data + from,
                                 below_fuzz_main(d, other.size - from + 1));
    }
    case 8: {
        const char *const token = tokens[below_fuzz_main(d, sizeof tokens / sizeof tokens[0])];
        return replace_fuzz_main(data, size, at, span % 4, (const uint8_t *)token, strlen(token));
    }
    default:
        for (size_t i = 0; i < sizeof few; i++) few[i] = (uint8_t)draw_fuzz_main(d);
        return replace_fuzz_main(data, size, at, 0, few, 1 + below_fuzz_main(d, sizeof few));
    }
}

/* Mutant `i` into data[MAX_BYTES]; its size. */
static size_t mutant(uint8_t *data, uint32_t i, uint64_t seed, const pool *p)
{
    draws d = {.seed = seed, .input = i};
    const input base = p->input[below_fuzz_main(&d, p->n_mutable)];
    size_t size = base.size;
    if (size) memcpy(data, base.data, size);
    for (uint32_t n = 1 + draw_fuzz_main(&d) % 6; n > 0; n--) size = mutate_once(&d, data, size, p);
    return size;
}

/* ---- the run ------------------------------------------------------------------------------------------- */

static void run_fuzz_main(const char *name, int (*one)(const uint8_t *, size_t), const uint8_t *data,
                          size_t size, const char *kind, size_t i, uint64_t seed)
{
    uint8_t *const exact = copy_of(name, data, size);
    (void)snprintf(current.text, sizeof current.text, "fuzz_%.40s: died on %s %zu, seed %llu, %zu bytes\n",
                   name, kind, i, (unsigned long long)seed, size);
    current.data = exact;
    current.size = size;
    (void)alarm(MAX_SECONDS);
    (void)one(exact, size);
    (void)alarm(0);
    free(exact);
}

static uint64_t number_from(const char *variable, uint64_t otherwise)
{
    const char *const text = getenv(variable);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

/* 0 = there, 1 = cannot be read. */
static int gather(pool *p, bool *alone, const char *name, int argc, char **argv)
{
    char path[PATH_MAX];
    const char *const given = argc > 1 ? argv[1] : getenv("TANDEM_CORPUS");
    struct stat about;
    if (given && *given)
        (void)snprintf(path, sizeof path, "%s", given);
    else
        (void)snprintf(path, sizeof path, "tests/fuzz/corpus/%s", name);
    if (stat(path, &about) != 0) {
        (void)printf("fuzz_%s: no corpus %s: %s\n", name, path, strerror(errno));
        return given && *given ? 1 : 0;
    }
    *alone = S_ISREG(about.st_mode);
    return (*alone ? add_file(p, name, path) : add_directory(p, name, path)) ? 0 : 1;
}

int tandem_fuzz_main(const char *name, int (*one)(const uint8_t *data, size_t size),
                     const uint8_t *const *seeds, const size_t *seed_bytes, int n_seed, int argc, char **argv)
{
    pool p = {0};
    bool alone = false;
    const uint64_t seed = number_from("TANDEM_FUZZ_SEED", 1);
    const char *const is_long = getenv("TEST_LONG");
    uint64_t n_mutant = number_from("TANDEM_FUZZ_INPUTS", is_long && *is_long ? MANY_INPUTS : FEW_INPUTS),
             n_run = 0;
    int failed = gather(&p, &alone, name, argc, argv);
    uint8_t *const data = malloc(MAX_BYTES);
    if (!data) out_of_memory(name);
    if (!failed) {
        for (int i = 0; i < n_seed && !alone; i++)
            pool_add(&p, name, copy_of(name, seeds[i], seed_bytes[i]), seed_bytes[i]);
        if (alone || p.n_mutable == 0) n_mutant = 0;
        (void)printf("fuzz_%s: seed %llu, %zu given and %llu mutated inputs\n", name,
                     (unsigned long long)seed, p.n, (unsigned long long)n_mutant);
        (void)fflush(stdout);
        watch(name);
        for (size_t i = 0; i < p.n; i++, n_run++)
            run_fuzz_main(name, one, p.input[i].data, p.input[i].size, "given input", i, seed);
        for (uint64_t i = 0; i < n_mutant; i++, n_run++)
            run_fuzz_main(name, one, data, mutant(data, (uint32_t)i, seed, &p), "mutated input", (size_t)i,
                          seed);
        (void)printf("fuzz_%s: %llu inputs\n", name, (unsigned long long)n_run);
        if (n_run == 0) {
            (void)fprintf(stderr,
                          "fuzz_%s: nothing was run: it has no seeds and its corpus is empty or absent; name "
                          "a "
                          "folder of inputs, or run it where tests/fuzz/corpus/%s is\n",
                          name, name);
            failed = 1;
        }
    }
    for (size_t i = 0; i < p.n; i++) free(p.input[i].data);
    free(p.input);
    free(data);
    return failed;
}
