/* folder: trace */
/* Execution traces of Chakra from any bytes, plain or compressed, of one rank or two: an error, or a step
 * that its critical path adds up to. The first two bytes say how many of the rest are rank 0's; what is left
 * is rank 1's. */
#include "tandem/advanced/whatif.h"
#include "tests/fuzz/fuzz_main.h"

static void check_whatif_fuzz_chakra(const tandem_whatif *w, int n_rank)
{
    demand(w->n_step == 1 && w->n_worker == n_rank && w->n_op >= n_rank, "a step of all ranks");
    demand(w->step_ns > 0 && w->ideal_ns >= 0 && w->recorded_ns >= 0, "no time is negative");
    demand(w->cause.without_ns <= w->step_ns, "without a cause the step is no longer");
    demand(w->n_critical > 0 && w->critical_path[0].start_ns == 0, "the critical path begins with the step");
    for (int k = 1; k < w->n_critical; k++)
        demand(w->critical_path[k].start_ns == w->critical_path[k - 1].end_ns,
               "the critical path has no gaps");
    demand(w->critical_path[w->n_critical - 1].end_ns == w->step_ns, "the critical path is as long as the "
                                                                     "step");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const source[] = {"fuzz.0.et", "fuzz.1.et"};
    if (size < 2) return 0;
    const size_t rest = size - 2, said = (size_t)data[0] | (size_t)data[1] << 8;
    const size_t n[] = {said < rest ? said : rest, said < rest ? rest - said : 0};
    const void *const bytes[] = {data + 2, data + 2 + n[0]};
    const int n_rank = n[1] ? 2 : 1;
    tandem_whatif *whatif = NULL;
    tandem_error error = {0};
    const tandem_status status = tandem_whatif_parse_chakra(&whatif, source, bytes, n, n_rank, &error);
    demand((status == TANDEM_OK) == (whatif != NULL), "outputs are untouched");
    if (status == TANDEM_OK)
        check_whatif_fuzz_chakra(whatif, n_rank);
    else
        demand(status == TANDEM_MALFORMED && error.status == status && error.text[0], "an error has a text");
    tandem_whatif_close(whatif);
    return 0;
}

int main(int argc, char **argv)
{
    return tandem_fuzz_main("chakra", LLVMFuzzerTestOneInput, NULL, NULL, 0, argc, argv);
}
