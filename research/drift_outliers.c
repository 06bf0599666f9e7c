/* drift_outliers.c: where a model's channels can grow outliers while it computes the same.
 *
 * Large language models have a few channels whose activations are many times larger than all others'
 * (Dettmers et al., "LLM.int8()", NeurIPS 2022). Moving a factor between a channel and the weights that read
 * it changes no result (Xiao et al., "SmoothQuant", ICML 2023, moves it the other way). Here it grows. */
#include "research/drift.h"

static int is_norm(tandem_op_kind kind)
{
    return kind == TANDEM_OP_LAYERNORM || kind == TANDEM_OP_BATCHNORM || kind == TANDEM_OP_BATCHNORM_RELU;
}

static int has_product(const tandem_op *op)
{
    return (op->kind == TANDEM_OP_LINEAR || op->kind == TANDEM_OP_CONV2D) && op->parameter[0] >= 0 &&
           !op->transpose_b;
}

/* The first operator that reads it; *n: how many do. */
static int find_reader(const tandem_graph *graph, int op, int *n)
{
    int first = -1;
    *n = 0;
    for (int i = graph->n_op - 1; i > op; i--)
        for (int k = 0; k < TANDEM_MAX_INPUT; k++)
            if (graph->op[i].input[k] == op) {
                first = i;
                ++*n;
            }
    return first;
}

/* 0: the place has no room for all of them. */
static int add_scaled(drift_place *place, const tandem_op *op)
{
    for (int k = 0; k < TANDEM_MAX_PARAMETER && op->parameter[k] >= 0; k++) {
        if (place->n_scaled == DRIFT_MAX_PARAMETERS) return 0;
        place->scaled[place->n_scaled++] = op->parameter[k];
    }
    return 1;
}

/* 0: others read the channels, too, or too many do. */
static int find_divided(drift_place *place, const tandem_graph *graph, int op)
{
    for (int i = op + 1; i < graph->n_op; i++)
        for (int k = 0; k < TANDEM_MAX_INPUT; k++) {
            const tandem_op *reader = &graph->op[i];
            if (reader->input[k] != op) continue;
            if (!has_product(reader) || place->n_divided == DRIFT_MAX_PARAMETERS) return 0;
            place->divided[place->n_divided++] = reader->parameter[0];
        }
    return place->n_divided > 0;
}

int drift_places_find(drift_place place[DRIFT_MAX_PLACES], const tandem_graph *graph)
{
    int n = 0;
    for (int i = 0; i < graph->n_op && n < DRIFT_MAX_PLACES; i++) {
        if (!is_norm(graph->op[i].kind) && !has_product(&graph->op[i])) continue;
        drift_place found = {.n_channel = tandem_shape_last(&graph->op[i].shape)};
        int last = i, n_reader = 0, has_room = add_scaled(&found, &graph->op[i]);
        for (int next = find_reader(graph, last, &n_reader); n_reader == 1;
             next = find_reader(graph, last, &n_reader)) {
            const tandem_op *reader = &graph->op[next];
            const int is_bias = reader->kind == TANDEM_OP_BIAS &&
                                graph->parameter[reader->parameter[0]].elements == found.n_channel;
            if (!is_bias && reader->kind != TANDEM_OP_RELU) break;
            if (is_bias) has_room &= add_scaled(&found, reader);
            last = next;
        }
        if (has_room && find_divided(&found, graph, last)) place[n++] = found;
    }
    return n;
}

void drift_place_scale(float *weight, const tandem_step *step, const drift_place *place, int64_t j, float by)
{
    for (int k = 0; k < place->n_scaled; k++) {
        float *of = weight + step->parameter_start[place->scaled[k]];
        const int64_t n = step->graph->parameter[place->scaled[k]].elements;
        for (int64_t i = j; i < n; i += place->n_channel) of[i] *= by;
    }
    for (int k = 0; k < place->n_divided; k++) {
        float *of = weight + step->parameter_start[place->divided[k]];
        const tandem_parameter *parameter = &step->graph->parameter[place->divided[k]];
        const int64_t n_column = tandem_shape_last(&parameter->shape), n_row = parameter->elements / n_column;
        for (int64_t row = j; row < n_row; row += place->n_channel)
            for (int64_t i = 0; i < n_column; i++) of[row * n_column + i] /= by;
    }
}
