/* probe_noise.c: which kept numbers are rounded, in which ranges; probe_sums.c has what that adds to a
 * gradient. */
#include "runtime/estimate/probe_run.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/estimate/probe_loops.h"
#include "tandem/advanced/format.h"

/* a of x + a·(Q(x) − x), where errors are magnified. */
static double error_scale_of(const probe_run *run) { return run->point->emulation->error_scale; }

static const probe_operator *probed_operator_of(const probe_run *run, int op)
{
    for (int k = 0; k < run->n_op; k++)
        if (run->operator[k].op == op) return &run->operator[k];
    return NULL;
}

static void add_read_errors(float *sum, probe_run *run, const probe_operator *of, tandem_format format);

/* Adds to sum what the kept result of an operator is off: by its own rounding, and by what a sum reads. */
static void add_result_error(float *sum, probe_run *run, const probe_operator *of, tandem_format format)
{
    const probe_kept_tensor *y = &of->kept[KEPT_Y];
    float *const error = calloc((size_t)y->n, sizeof *error);
    if (!error) {
        run->status = tandem_no_memory(&run->error, "for the errors of a result");
        return;
    }
    add_read_errors(error, run, of, format);
    probe_add(error, y->x, y->n);
    const tandem_format_cast cast = {.format = format,
                                     .x = error,
                                     .rows = 1,
                                     .columns = y->n,
                                     .range = y->amax[PROBE_OWN_RANGE],
                                     .error_scale = error_scale_of(run)};
    if (run->status == TANDEM_OK) run->status = tandem_format_round(error, NULL, &cast, &run->error);
    probe_add_difference(sum, error, y->x, y->n);
    free(error);
}

/* The errors of narrow results that a bias or a sum reads, added to sum, as long as its kept result. */
static void add_read_errors(float *sum, probe_run *run, const probe_operator *of, tandem_format format)
{
    const tandem_graph *graph = run->point->step->graph;
    const tandem_op *op = &graph->op[of->op];
    if (op->kind != TANDEM_OP_BIAS && op->kind != TANDEM_OP_ADD) return;
    for (int slot = 0; slot < tandem_op_row_get(op->kind)->n_input && run->status == TANDEM_OK; slot++) {
        const probe_operator *input = probed_operator_of(run, graph->view[op->input[slot]]);
        if (input && input->formats[TANDEM_PROBE_RESULT] >> format & 1 &&
            input->kept[KEPT_Y].n == of->kept[KEPT_Y].n)
            add_result_error(sum, run, input, format);
    }
}

/* What is rounded: x, or in a result with the errors of what it sums. */
static const float *rounded_numbers(probe_run *run, const probe_operator *of, int part,
                                    const probe_kept_tensor *x, tandem_format format)
{
    if (part != TANDEM_PROBE_RESULT) return x->x;
    memcpy(run->read, x->x, (size_t)x->n * sizeof *run->read);
    add_read_errors(run->read, run, of, format);
    return run->read;
}

/* The products that an output sums; of a table, whose rows are read as they are, 0. */
static double products_of_output(const tandem_graph *graph, const tandem_op *op)
{
    if (op->kind == TANDEM_OP_EMBEDDING) return 0;
    if (op->parameter[0] < 0) return (double)tandem_shape_last(&graph->op[op->input[0]].shape);
    return (double)graph->parameter[op->parameter[0]].elements / (double)tandem_shape_last(&op->shape);
}

void probe_describe_sums(const probe_run *run, probe_operator *of)
{
    const tandem_graph *graph = run->point->step->graph;
    const tandem_op *op = &graph->op[of->op];
    for (int range = 0; range < N_PROBE_RANGE; range++) {
        tandem_probe_sums *sums = &of->sums[range];
        sums->is_before_jump = of->is_before_jump;
        sums->has_second = op->parameter[0] < 0;
        sums->n_products = of->is_adjustable ? products_of_output(graph, op) : 1;
    }
}

void probe_clear_sums(const probe_run *run, probe_operator *of)
{
    memset(of->sums, 0, sizeof of->sums);
    probe_describe_sums(run, of);
}

/* Whether noise has to be summed with wide ranges, too: else it is the same. */
static int has_wide_range(const probe_run *run, const probe_kept_tensor *x, int format)
{
    return run->point->estimate->range_batch > 0 &&
           tandem_format_get((tandem_format)format)->scale == TANDEM_FORMAT_SCALE_TENSOR &&
           x->amax[PROBE_WIDE_RANGE] > x->amax[PROBE_OWN_RANGE];
}

static void add_range_noise(probe_run *run, probe_operator *of, const tandem_probe_tensor *tensor, int format,
                            int range)
{
    if (run->status == TANDEM_OK)
        run->status =
            tandem_probe_add_noise(&of->sums[range], run->room, tensor, (tandem_format)format, &run->error);
}

/* With both ranges; x->x may be other numbers than the tensor's. */
static void add_format_noise(probe_run *run, probe_operator *of, tandem_probe_tensor tensor,
                             const probe_kept_tensor *x, int f, int is_known)
{
    tandem_probe_sums *own = &of->sums[PROBE_OWN_RANGE], *wide = &of->sums[PROBE_WIDE_RANGE];
    const double before = own->error_square[tensor.part][f];
    add_range_noise(run, of, &tensor, f, PROBE_OWN_RANGE);
    if (!is_known && has_wide_range(run, x, f)) {
        tensor.range = x->amax[PROBE_WIDE_RANGE];
        add_range_noise(run, of, &tensor, f, PROBE_WIDE_RANGE);
        return;
    }
    wide->noise[tensor.part][f][tensor.place] = own->noise[tensor.part][f][tensor.place];
    wide->error_square[tensor.part][f] += own->error_square[tensor.part][f] - before;
}

void probe_add_noise(probe_run *run, probe_operator *of, int part, const probe_kept_tensor *x,
                     const float *above, const float *below, float range)
{
    const double span = 2 * run->step[run->batch];
    if (x->n == 0 || run->status != TANDEM_OK) return;
    tandem_probe_difference(run->difference, above, below, (float)(1 / span), x->n);
    tandem_probe_tensor tensor = {.part = (tandem_probe_part)part,
                                  .place = run->batch,
                                  .n = x->n,
                                  .batch = run->point->estimate->batch,
                                  .n_sample = x->n_sample,
                                  .share = (double)run->point->estimate->batch / (double)x->n_sample,
                                  .x = x->x,
                                  .difference = {run->difference},
                                  .range = range > 0 ? range : x->amax[PROBE_OWN_RANGE],
                                  .error_scale = error_scale_of(run)};
    probe_describe_sums(run, of);
    tandem_probe_add_square(&of->sums[PROBE_OWN_RANGE], &tensor);
    for (int f = 0; f < TANDEM_N_FORMAT && run->status == TANDEM_OK; f++) {
        if (!(of->formats[part] >> f & 1)) continue;
        tensor.x = rounded_numbers(run, of, part, x, (tandem_format)f);
        add_format_noise(run, of, tensor, x, f, range > 0);
    }
}

void probe_add_weight_noise(probe_run *run, probe_operator *of)
{
    const int64_t n = of->n_kept_weight;
    tandem_probe_sums *own = &of->sums[PROBE_OWN_RANGE], *wide = &of->sums[PROBE_WIDE_RANGE];
    const tandem_probe_tensor tensor = {.part = TANDEM_PROBE_WEIGHT,
                                        .n = n,
                                        .share = n > 0 ? (double)of->n_weight / (double)n : 0,
                                        .x = of->w,
                                        .difference = {of->difference[0], of->difference[1]},
                                        .range = of->amax,
                                        .error_scale = error_scale_of(run)};
    tandem_probe_add_square(own, &tensor);
    for (int f = 0; f < TANDEM_N_FORMAT && run->status == TANDEM_OK && n > 0; f++)
        if (of->formats[TANDEM_PROBE_WEIGHT] >> f & 1) add_range_noise(run, of, &tensor, f, PROBE_OWN_RANGE);
    /* one weight for all batches */
    memcpy(wide->noise[TANDEM_PROBE_WEIGHT], own->noise[TANDEM_PROBE_WEIGHT], sizeof *wide->noise);
    memcpy(wide->error_square[TANDEM_PROBE_WEIGHT], own->error_square[TANDEM_PROBE_WEIGHT],
           sizeof *wide->error_square);
}
