/* folder: kernels */
/* The detectors of ptx.h find what they are for. Each file of tests/ptx/faults is a kernel without a fault,
 * and tells what is found once its marked lines are replaced: "LINE //! REPLACEMENT". Both run under several
 * seeds. */
#include "tests/support/tandem_test.h"

#include <glob.h>

#include "tests/ptx/ptx.h"

enum { NUMBERS = 512, RESULTS = 128, GAP = 64, SEEDS = 8 };

static char *read_text(const char *path)
{
    enum { MAX_TEXT = 1 << 16 };
    FILE *const file = fopen(path, "r");
    char *const text = calloc(1, MAX_TEXT);
    assert_non_null(file);
    assert_non_null(text);
    assert_in_range(fread(text, 1, MAX_TEXT, file), 1, MAX_TEXT - 1);
    fclose(file);
    return text;
}

/* With the marked lines replaced, and how many those are. */
static int plant_fault(char *text)
{
    int n = 0;
    for (char *mark = strstr(text, "//!"); mark; mark = strstr(mark, "//!"), n++) {
        char *line = mark;
        while (line > text && line[-1] != '\n') line--;
        memset(line, ' ', (size_t)(mark + 3 - line));
        mark = line;
    }
    return n;
}

/* The fault that a file's second line names. */
static ptx_fault fault_of(const char *text)
{
    const char *const named = strstr(text, "finds: ");
    assert_non_null(named);
    for (int f = 0; f < PTX_N_FAULT; f++)
        if (strncmp(named + 7, ptx_fault_names[f], strcspn(named + 7, "\n")) == 0) return (ptx_fault)f;
    fail_msg("no detector is called so: %.40s", named);
    return PTX_N_FAULT;
}

/* Runs a text's kernel; how often each fault was found. */
static void run_text(const char *name, const char *text, uint64_t seed, uint64_t found[PTX_N_FAULT])
{
    static uint32_t in[NUMBERS + GAP], out[RESULTS + GAP]; /* so that no array begins where one ends */
    const ptx_options options = {.seed = seed, .limit = 1000000};
    ptx_machine *const machine = ptx_open(&options);
    assert_non_null(machine);
    const char *const error = ptx_load(machine, name, text);
    if (error) fail_msg("%s", error);
    for (uint32_t i = 0; i < NUMBERS; i++) in[i] = i < RESULTS ? i * 3 : 0;
    ptx_add_memory(machine, in, NUMBERS * sizeof *in, 1);
    ptx_add_memory(machine, out, RESULTS * sizeof *out, 0);
    void *from = in, *to = out;
    uint32_t n = RESULTS;
    void *const argument[] = {&from, &to, &n};
    ptx_launch(machine, 0, 2, 64, argument);
    memset(found, 0, PTX_N_FAULT * sizeof *found);
    for (int f = 0; f < ptx_n_finding(machine); f++)
        found[ptx_finding_at(machine, f)->fault] += ptx_finding_at(machine, f)->times;
    ptx_close(machine);
}

static void each_fault_is_found(void **state)
{
    glob_t files;
    assert_int_equal(glob("tests/ptx/faults/*.ptx", 0, NULL, &files), 0);
    assert_true(files.gl_pathc >= 12);
    int is_shown[PTX_N_FAULT] = {0}, wrong = 0;
    for (size_t k = 0; k < files.gl_pathc; k++) {
        char *const text = read_text(files.gl_pathv[k]);
        const ptx_fault fault = fault_of(text);
        uint64_t found[PTX_N_FAULT];
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            run_text(files.gl_pathv[k], text, seed, found);
            for (int f = 0; f < PTX_N_FAULT; f++)
                if (found[f] && ++wrong)
                    print_message("%s, whole, seed %d: %s\n", files.gl_pathv[k], (int)seed,
                                  ptx_fault_names[f]);
        }
        assert_int_equal(plant_fault(text), 1);
        int n_named = 0;
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            uint64_t all = 0;
            run_text(files.gl_pathv[k], text, seed, found);
            for (int f = 0; f < PTX_N_FAULT; f++) all += found[f];
            n_named += found[fault] > 0;
            if (!all && ++wrong)
                print_message("%s, with its fault, seed %d: nothing is found\n", files.gl_pathv[k],
                              (int)seed);
        }
        if (n_named < SEEDS / 2 && ++wrong)
            print_message("%s, with its fault: found as such by %d seeds\n", files.gl_pathv[k], n_named);
        is_shown[fault] = 1;
        free(text);
    }
    for (int f = 0; f < PTX_N_FAULT; f++)
        if (!is_shown[f] && ++wrong) print_message("no file shows: %s\n", ptx_fault_names[f]);
    globfree(&files);
    assert_int_equal(wrong, 0);
}

/* What is not known is refused, not passed over. */
static void unknown_text_is_refused(void **state)
{
    static const char *const bodies[] = {"frob.b32 %r1, %r1;",
                                         "add.ftz.f32 %r1, %r1, %r1;",
                                         "ld.local.u32 %r1, [%rd1];",
                                         "bra $nowhere;",
                                         "mov.u32 %r1, %clock;",
                                         "add.s32 %r1, %r2, %r1;",
                                         "add.s32 %r1, %rd1, %r1;",
                                         "bar.sync 1;",
                                         "add.s32 %r1, %r1, %r1, %r1;",
                                         "ld.global.v2.u32 %r1, [%rd1];",
                                         ".local .b32 x;",
                                         "st.global.volatile.u32 [%rd1], %r1;"};
    for (size_t k = 0; k < N_OF(bodies); k++) {
        char text[512];
        snprintf(text, sizeof text,
                 ".version 9.0\n.entry f() { .reg .b32 %%r<2>; .reg .b64 %%rd<2>; %s ret; }", bodies[k]);
        ptx_machine *const machine = ptx_open(NULL);
        if (!ptx_load(machine, "text", text)) fail_msg("accepted: %s", bodies[k]);
        ptx_close(machine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_fault_is_found),
                                       cmocka_unit_test(unknown_text_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
