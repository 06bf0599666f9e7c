/* folder: runtime */
/* A probe's wide ranges are those of four times the batches: what it sums with them is what a probe sums
 * whose ranges are of so many batches. */
#include <math.h>

#include "runtime/estimate/estimate_probe.h"
#include "tests/support/held_run.h"

enum { BATCH = 4, REPLICATES = 5 };

static void probe_all(tandem_estimate *estimate, const held_run *p, int n_range_batch, int has_wide_ranges)
{
    static float sketch[2 * REPLICATES * TANDEM_PROBE_SKETCH];
    static const tandem_precision estimated[] = {TANDEM_PRECISION_BF16, TANDEM_PRECISION_FP8,
                                                 TANDEM_PRECISION_INT8_FULL};
    const tandem_emulation emulation = tandem_emulation_make(0);
    tandem_error error = {0};
    require_ok(tandem_estimate_open(estimate, p->graph->n_op, 1, REPLICATES, &error), &error);
    estimate->batch = BATCH;
    estimate->range_batch = has_wide_ranges ? n_range_batch * BATCH : 0;
    for (int op = 0; op < p->graph->n_op; op++)
        for (size_t k = 0; k < sizeof estimated / sizeof *estimated; k++)
            estimate->is_estimated[tandem_estimate_cell(op, estimated[k], TANDEM_F32)] =
                (unsigned char)tandem_op_is_adjustable(&p->graph->op[op]);
    const probe_point point = {.backend = p->backend,
                               .executor = p->executor,
                               .step = p->step,
                               .metric = {.by = 1},
                               .estimate = estimate,
                               .emulation = &emulation,
                               .n_range_batch = n_range_batch,
                               .n_rank = 1};
    require_ok(estimate_probe_point(&point, sketch, &error), &error);
}

/* A replicate's batches have seen 2r + 1 and 2r + 2 batches, of which ranges take the last, and wide ones up
 * to four: l, the mean of ln. */
static double widening_of(int r) { return (log(fmin(2 * r + 1, 4)) + log(fmin(2 * r + 2, 4))) / 2; }

static void wide_ranges_are_those_of_more_batches(void **state)
{
    (void)state;
    held_run p;
    tandem_estimate wide = {0}, of_four = {0};
    double square = 0, growth = 0;
    int n = 0;
    /* without units that switch: there, operators share a ratio */
    open_held_run(&p, "vit_tiny:width=16,heads=2,depth=1,patch=14", BATCH);
    probe_all(&wide, &p, 1, 1);
    probe_all(&of_four, &p, TANDEM_WIDE_RANGE, 0);
    for (int r = 0; r < REPLICATES; r++) square += widening_of(r) * widening_of(r);
    for (int i = 0; i < p.graph->n_op * TANDEM_N_PRECISION; i++) {
        const int precision = i % TANDEM_N_PRECISION,
                  cell =
                      tandem_estimate_cell(i / TANDEM_N_PRECISION, (tandem_precision)precision, TANDEM_F32);
        for (int r = 0; r < REPLICATES && wide.is_estimated[cell]; r++, n++) {
            const tandem_estimated_error *of = &tandem_estimate_errors(&wide, 0, cell)[r],
                                         *other = &tandem_estimate_errors(&of_four, 0, cell)[r];
            const double more = REPLICATES * widening_of(r) * log(TANDEM_WIDE_RANGE) / square,
                         expected = of->total + more * (other->total - of->total);
            if (!(fabs(of->wide_total - expected) <= 1e-12 * expected))
                fail_msg("%s %s, replicate %d: wide %.17g, expected %.17g",
                         p.graph->op[i / TANDEM_N_PRECISION].name,
                         tandem_precision_get((tandem_precision)precision)->name, r, of->wide_total,
                         expected);
            if (precision == TANDEM_PRECISION_BF16) assert_true(of->wide_total == of->total);
            if (precision == TANDEM_PRECISION_INT8_FULL) growth += log(other->total / of->total);
            assert_true(of_four.error[0].wide_total == of_four.error[0].total);
        }
    }
    assert_true(n == 3 * 10 * REPLICATES && growth > 0);
    tandem_estimate_close(&wide);
    tandem_estimate_close(&of_four);
    close_held_run(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wide_ranges_are_those_of_more_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
