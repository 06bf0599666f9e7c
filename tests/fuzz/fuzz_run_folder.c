/* folder: plugins */
/* The file of a run folder from any bytes: it is refused and nothing is taken of it, or what is taken has the
 * names that srun writes, and is all that is in it. A task reads it in a directory that others may write.
 * */
#include "plugins/slurm/run_folder.h"
#include "tests/fuzz/fuzz_main.h"

/* Every byte of the input is one of a value that was taken, of its name, or an = or a line's end: nothing was
 * passed over. */
static void check_taken(const tandem_run_environment *left, size_t size)
{
    size_t n = 0;
    for (int v = 0; v < TANDEM_N_RUN_VARIABLE; v++) {
        if (!left->value[v]) continue;
        demand(left->value[v][0] && !strchr(left->value[v], '\n'), "a value is a line");
        n += strlen(tandem_run_variable_name((tandem_run_variable)v)) + strlen(left->value[v]) + 2;
    }
    demand(n == size, "what is taken is all that is there");
    demand(size <= TANDEM_RUN_MAX_BYTES, "a file is no larger than it may be");
    if (left->value[TANDEM_RUN_FAILED])
        demand(left->failed >= 1 && left->failed <= 255 && !left->value[TANDEM_RUN_RANKS],
               "a failure is alone");
    else
        demand(left->failed == 0 && left->value[TANDEM_RUN_RANKS] != NULL, "a plan has ranks");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tandem_run_environment left = {0};
    tandem_error error = {0};
    const tandem_status status =
        tandem_run_environment_parse(&left, (const char *)data, size, ".tandem-run-1.0", &error);
    if (status == TANDEM_OK) {
        check_taken(&left, size);
    } else {
        demand(status == TANDEM_WRONG_FORMAT && !left.text, "what is refused is somebody else's, and nothing "
                                                            "is taken");
        demand(error.text[0] != '\0', "a refusal has a reason");
        for (const char *at = error.text; *at; at++)
            demand(*at >= ' ' && *at <= '~', "what is said is fit to print");
    }
    free(left.text);
    return 0;
}

int main(int argc, char **argv)
{
    return tandem_fuzz_main("run_folder", LLVMFuzzerTestOneInput, NULL, NULL, 0, argc, argv);
}
