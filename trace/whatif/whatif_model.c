/* whatif_model.c: allocates and frees the model of a recorded step. */
#include "trace/whatif/whatif_model.h"

void whatif_model_close(whatif_model *model)
{
    for (int s = 0; s < model->n_step && model->simulator; s++)
        tandem_dag_simulator_close(model->simulator[s]);
    tandem_arena_free(&model->arena);
    *model = (whatif_model){0};
}

tandem_status whatif_model_allocate(whatif_model *model, int n_op, int n_step, int n_worker,
                                    tandem_error *error)
{
    tandem_arena *const arena = &model->arena;
    const size_t op = (size_t)n_op, step = (size_t)n_step;
    if (!(model->simulator = tandem_arena_array(arena, step, sizeof *model->simulator)) ||
        !(model->first = tandem_arena_array(arena, step + 1, sizeof *model->first)) ||
        !(model->number = tandem_arena_array(arena, step, sizeof *model->number)) ||
        !(model->recorded_ns = tandem_arena_array(arena, step, sizeof *model->recorded_ns)) ||
        !(model->actual_ns = tandem_arena_array(arena, op, sizeof *model->actual_ns)) ||
        !(model->ideal_ns = tandem_arena_array(arena, op, sizeof *model->ideal_ns)) ||
        !(model->op_name = tandem_arena_array(arena, op, sizeof *model->op_name)) ||
        !(model->worker = tandem_arena_array(arena, op, sizeof *model->worker)) ||
        !(model->track = tandem_arena_array(arena, op, sizeof *model->track)) ||
        !(model->worker_name = tandem_arena_array(arena, (size_t)n_worker, sizeof *model->worker_name)))
        return tandem_no_memory(error, "to analyse %d operators", n_op);
    model->n_op = n_op;
    model->n_step = n_step;
    model->n_worker = n_worker;
    return TANDEM_OK;
}

tandem_status whatif_model_dimension(whatif_model *model, int dimension, int n, tandem_error *error)
{
    whatif_dimension *const by = &model->by[dimension];
    by->name = tandem_arena_array(&model->arena, (size_t)n, sizeof *by->name);
    by->of = tandem_arena_array(&model->arena, (size_t)model->n_op, sizeof *by->of);
    if (!by->name || !by->of) return tandem_no_memory(error, "to analyse %d operators", model->n_op);
    by->n = n;
    return TANDEM_OK;
}

int64_t whatif_mean(const int64_t *value, int n)
{
    int64_t quotient = 0, rest = 0;
    for (int i = 0; i < n; i++) {
        quotient += value[i] / n;
        rest += value[i] % n;
    }
    return quotient + (rest + n / 2) / n;
}
