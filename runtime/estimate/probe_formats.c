/* probe_formats.c: the operators that round under a cell, adjustable ones and those that depend on them,
 * and to which formats. */
#include "runtime/estimate/probe_run.h"
#include "tandem/advanced/recipe.h"

static tandem_format format_of_amp(tandem_dtype dtype, tandem_dtype amp_dtype,
                                   const tandem_emulation *emulation)
{
    const tandem_dtype of = dtype == TANDEM_AMP ? amp_dtype : dtype;
    return emulation ? emulation->format[of] : tandem_format_of_dtype(of);
}

void tandem_probe_formats(tandem_format of[TANDEM_N_PROBE_PART], tandem_precision precision,
                          tandem_dtype amp_dtype, const tandem_emulation *emulation)
{
    const tandem_precision_row *row = tandem_precision_get(precision);
    const tandem_dtype product = tandem_precision_product_dtype(precision, TANDEM_F32);
    const int is_tf32 = product == TANDEM_TF32;
    const tandem_format forward = format_of_amp(is_tf32 ? product : row->forward, amp_dtype, emulation);
    of[TANDEM_PROBE_INPUT] = of[TANDEM_PROBE_SECOND] = of[TANDEM_PROBE_WEIGHT] = forward;
    of[TANDEM_PROBE_GRADIENT] = format_of_amp(is_tf32 ? product : row->wgrad, amp_dtype, emulation);
    of[TANDEM_PROBE_RESULT] = format_of_amp(row->output, amp_dtype, emulation);
    const tandem_recipe recipe =
        tandem_recipe_of(row->wgrad, emulation ? emulation->recipe : TANDEM_RECIPE_NONE);
    if (recipe == TANDEM_RECIPE_NONE) return;
    of[TANDEM_PROBE_WEIGHT] = tandem_recipe_get(recipe)->operand[TANDEM_RECIPE_FORWARD][1].format;
    of[TANDEM_PROBE_GRADIENT] = tandem_recipe_get(recipe)->operand[TANDEM_RECIPE_WGRAD][1].format;
}

probe_cell_formats probe_formats_of_cell(const probe_run *run, int cell)
{
    static const tandem_dtype amp_dtypes[TANDEM_N_AMP_DTYPE] = {TANDEM_F32, TANDEM_BF16, TANDEM_F16};
    probe_cell_formats formats = {{0}};
    tandem_probe_formats(formats.of, (tandem_precision)(cell / TANDEM_N_AMP_DTYPE % TANDEM_N_PRECISION),
                         amp_dtypes[cell % TANDEM_N_AMP_DTYPE], run->point->emulation);
    return formats;
}

void probe_set_plan_of_cell(const probe_run *run, int cell)
{
    const int op = cell / TANDEM_N_AMP_DTYPE / TANDEM_N_PRECISION;
    for (int k = 0; k < run->n_op; k++)
        if (run->operator[k].is_adjustable)
            tandem_step_set(run->plan, run->operator[k].op,
                            run->operator[k].op == op
                                ? (tandem_precision)(cell / TANDEM_N_AMP_DTYPE % TANDEM_N_PRECISION)
                                : TANDEM_PRECISION_FP32);
    tandem_step_resolve(run->plan);
}

tandem_format probe_format_of_dependent(const probe_run *run, const probe_operator *of, int part)
{
    const tandem_op_kind kind = run->point->step->graph->op[of->op].kind;
    if (of->is_adjustable || (part != TANDEM_PROBE_RESULT && part != TANDEM_PROBE_GRADIENT))
        return TANDEM_N_FORMAT;
    if (part == TANDEM_PROBE_GRADIENT && tandem_op_row_get(kind)->dgrad != TANDEM_GRAD_TASK)
        return TANDEM_N_FORMAT;
    return run->point->emulation->format[run->plan->output_dtype[of->op]];
}

/* Whether the results of a kind are numbers that it read, or 0. */
static int picks_numbers(tandem_op_kind kind)
{
    static const tandem_op_kind picks[] = {
        TANDEM_OP_RELU,      TANDEM_OP_MAXPOOL,      TANDEM_OP_RESHAPE,
        TANDEM_OP_TRANSPOSE, TANDEM_OP_SLICE,        TANDEM_OP_GATHER_LABELLED,
        TANDEM_OP_CONCAT,    TANDEM_OP_CONCAT_TOKEN, TANDEM_OP_REPEAT};
    for (size_t k = 0; k < sizeof picks / sizeof *picks; k++)
        if (kind == picks[k]) return 1;
    return 0;
}

static void ask_formats(probe_run *run, const probe_operator *adjustable)
{
    const int each = TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE;
    for (int cell = adjustable->op * each; cell < (adjustable->op + 1) * each; cell++) {
        const probe_cell_formats formats = probe_formats_of_cell(run, cell);
        if (!run->point->estimate->is_estimated[cell]) continue;
        probe_set_plan_of_cell(run, cell);
        for (int k = 0; k < run->n_op; k++)
            for (int part = 0; part < TANDEM_N_PROBE_PART; part++) {
                probe_operator *of = &run->operator[k];
                const tandem_format f =
                    of == adjustable ? formats.of[part] : probe_format_of_dependent(run, of, part);
                if (f != TANDEM_N_FORMAT) of->formats[part] |= 1U << f;
            }
    }
}

static int find_gradient_task(const tandem_step *step, int op)
{
    const int value = tandem_value_gradient(step, op, TANDEM_F32);
    for (int t = 0; t < step->n_task; t++)
        for (int r = 0; r < step->task[t].n_read && step->task[t].active; r++)
            if (step->task[t].read[r] == value) return t;
    return -1;
}

void probe_open_operators(probe_run *run)
{
    const tandem_step *step = run->point->step;
    for (int i = 0; i < step->graph->n_op; i++) {
        const tandem_op *op = &step->graph->op[i];
        const int is_adjustable = tandem_op_is_adjustable(op),
                  may_depend = op->needs_gradient && op->dtype == TANDEM_F32 && !picks_numbers(op->kind);
        if (!is_adjustable && !may_depend) continue;
        run->operator[run->n_op++] =(probe_operator){
            .op = i, .is_adjustable = is_adjustable, .gradient_task = find_gradient_task(step, i)};
        probe_operator *of = &run->operator[run->n_op - 1];
        if (!is_adjustable || op->kind == TANDEM_OP_EMBEDDING) continue;
        of->kept[KEPT_X].is_costly = of->kept[KEPT_DX].is_costly =
            !step->graph->op[op->input[0]].needs_gradient;
    }
    for (int k = 0; k < run->n_op; k++)
        if (run->operator[k].is_adjustable) ask_formats(run, &run->operator[k]);
    /* dependent ones that no cell asks for */
    int n = 0;
    for (int k = 0; k < run->n_op; k++) {
        const probe_operator of = run->operator[k];
        if (of.is_adjustable || of.formats[TANDEM_PROBE_RESULT]) run->operator[n++] = of;
    }
    run->n_op = n;
}

/* Whether results of a kind have a slope that jumps, as far as it is known. */
static int has_jump(tandem_op_kind kind)
{
    static const tandem_op_kind jumps[] = {
        TANDEM_OP_RELU, TANDEM_OP_MAXPOOL, TANDEM_OP_BATCHNORM_RELU, TANDEM_OP_BATCHNORM_ADD_RELU,
        TANDEM_OP_MAP,  TANDEM_OP_CALL,    TANDEM_OP_CALL_TRAINED};
    for (size_t k = 0; k < sizeof jumps / sizeof *jumps; k++)
        if (kind == jumps[k]) return 1;
    return 0;
}

void probe_find_jumps(probe_run *run, unsigned char *is_before)
{
    const tandem_graph *graph = run->point->step->graph;
    for (int i = graph->n_op - 1; i >= 0; i--)
        for (int k = graph->consumer_start[i]; k < graph->consumer_start[i + 1]; k++)
            is_before[i] |= (unsigned char)(is_before[graph->consumer[k]] ||
                                            has_jump(graph->op[graph->consumer[k]].kind));
    for (int k = 0; k < run->n_op; k++) run->operator[k].is_before_jump = is_before[run->operator[k].op];
}
