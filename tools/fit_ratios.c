/* fit_ratios.c: how far ratios of a task's times in two types are off on generations that a fit has not seen:
 * of rows of equal sizes that one source timed alike (constant_fit.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/sort.h"
#include "tools/fit_data.h"

/* --- Pairs of rows -------------------------------------------------------------------------------------- */

/* A row that was judged, by what it shares with the same task in other types. */
typedef struct ratio_row {
    uint64_t task;
    const fit_row *row;
} ratio_row;

static uint64_t task_hash(const fit_row *row)
{
    const tandem_work *const w = &row->work;
    const double what[] = {row->gpu, row->manner, w->work_class, w->pass, w->count, w->m, w->n, w->k};
    const uint64_t hash = tandem_hash_bytes(TANDEM_HASH_START, what, sizeof what);
    return tandem_hash_bytes(hash, &w->convolution, sizeof w->convolution);
}

/* By task, then type, then place. */
static int compare_ratio_rows(const void *a, const void *b)
{
    const ratio_row *const x = a, *const y = b;
    if (x->task != y->task) return TANDEM_ORDER(x->task, y->task);
    if (x->row->work.type != y->row->work.type) return TANDEM_ORDER(x->row->work.type, y->row->work.type);
    return TANDEM_ORDER(x->row, y->row);
}

/* Rows of one task and type from `at` on; their mean error. Returns where they end. */
static size_t mean_left_out(double *mean, const ratio_row *rows, size_t at, size_t n)
{
    const size_t begin = at;
    double sum = 0;
    for (;
         at < n && rows[at].task == rows[begin].task && rows[at].row->work.type == rows[begin].row->work.type;
         at++)
        sum += (double)rows[at].row->left_out;
    *mean = sum / (double)(at - begin);
    return at;
}

typedef struct typed_error {
    const fit_row *row;
    double error;
} typed_error;

/* All ratios of one task, each to its cell. */
static tandem_status add_ratios(tandem_constant_fit *fit, const typed_error *of, int n, tandem_error *error)
{
    for (int a = 0; a < n; a++)
        for (int b = 0; b < n; b++) {
            const tandem_ratio_group group = tandem_ratio_group_of(&of[a].row->work, &of[b].row->work);
            if (group == TANDEM_N_RATIO_GROUP) continue;
            if (fit->n_ratio == fit->ratio_room) {
                const size_t room = fit->ratio_room ? 2 * fit->ratio_room : 4096;
                fit_ratio *const more = realloc(fit->ratio, room * sizeof *more);
                if (!more) return tandem_no_memory(error, "for %zu ratios", room);
                fit->ratio = more;
                fit->ratio_room = room;
            }
            const tandem_gpu_spec *const spec = &tandem_device_get(of[a].row->gpu)->gpu_spec;
            fit->ratio[fit->n_ratio++] = (fit_ratio){group,
                                                     of[a].row->gpu,
                                                     of[a].error - of[b].error,
                                                     {tandem_spread_group_of(&of[a].row->work, spec),
                                                      tandem_spread_group_of(&of[b].row->work, spec)}};
        }
    return TANDEM_OK;
}

static tandem_status find_left_out_ratios(tandem_constant_fit *fit, tandem_error *error)
{
    ratio_row *const rows = malloc((fit->n_row + 1) * sizeof *rows);
    tandem_status status = TANDEM_OK;
    size_t n = 0;
    fit->n_ratio = 0;
    if (!rows) return tandem_no_memory(error, "for a fit");
    for (size_t i = 0; i < fit->n_row; i++)
        if (!isnan(fit->row[i].left_out) && fit->row[i].work.is_product)
            rows[n++] = (ratio_row){task_hash(&fit->row[i]), &fit->row[i]};
    qsort(rows, n, sizeof *rows, compare_ratio_rows);
    for (size_t at = 0; at < n && status == TANDEM_OK;) {
        typed_error of[TANDEM_N_COMPUTE_DTYPE];
        const uint64_t task = rows[at].task;
        int n_type = 0;
        for (; at < n && rows[at].task == task; n_type++) {
            of[n_type].row = rows[at].row;
            at = mean_left_out(&of[n_type].error, rows, at, n);
        }
        status = add_ratios(fit, of, n_type, error);
    }
    free(rows);
    return status;
}

/* What shapes of a kind have in common of their spread, at least: as of rows of one card
 * (predictor/by_others.c). */
static const double least_shared = 0.5;

/* --- Spreads -------------------------------------------------------------------------------------------- */

/* |error| or error of a group's ratios on a card into value[]; returns their number. */
static size_t collect_ratios(double *value, const tandem_constant_fit *fit, int group, int gpu)
{
    size_t n = 0;
    for (size_t i = 0; i < fit->n_ratio; i++)
        if ((int)fit->ratio[i].group == group && fit->ratio[i].gpu == gpu) value[n++] = fit->ratio[i].error;
    return n;
}

/* Of all cards but one; without: −1, of all. value: [ratios] */
static tandem_ratio_spread ratio_spread_without(const tandem_constant_fit *fit, int group, int without,
                                                double *value)
{
    spread_cells cells = {.n = 0};
    double *room = value;
    size_t n_all = 0;
    for (int d = 0; d < tandem_device_count(); d++) {
        if (d == without) continue;
        const size_t n = collect_ratios(room, fit, group, d);
        const int before = cells.n;
        fit_add_spread_cell(&cells, room, n);
        if (cells.n == before) continue;
        room += n, n_all += n;
    }
    if (cells.n == 0) return (tandem_ratio_spread){0, 0, 0};
    const tandem_spread spread = fit_spread_of_cells(&cells);
    const double all = hypot(spread.shared, spread.own), shared = fmax(spread.shared, least_shared * all);
    return (tandem_ratio_spread){shared, sqrt(all * all - shared * shared), (int)n_all};
}

static double share_inside(const double *error, size_t n, tandem_ratio_spread spread)
{
    size_t inside = 0;
    for (size_t i = 0; i < n; i++) inside += fabs(error[i]) <= 1.2816 * hypot(spread.shared, spread.own);
    return (double)inside / (double)n;
}

/* As if the errors of both times had nothing in common. */
static tandem_ratio_spread spread_of_both(const tandem_constant_fit *fit, int group, int gpu)
{
    for (size_t i = 0; i < fit->n_ratio; i++) {
        const fit_ratio *const ratio = &fit->ratio[i];
        if ((int)ratio->group != group || ratio->gpu != gpu) continue;
        const tandem_spread *const a = &fit->spread[ratio->of[0]], *const b = &fit->spread[ratio->of[1]];
        return (tandem_ratio_spread){hypot(a->shared, b->shared), hypot(a->own, b->own), 0};
    }
    return (tandem_ratio_spread){0, 0, 0};
}

static void judge_ratio_cell(tandem_constant_fit *fit, int group, int gpu, double *value)
{
    const size_t n = collect_ratios(value, fit, group, gpu);
    if (n < FIT_MIN_SPREAD_ROWS || fit->n_ratio_cell == FIT_MAX_RATIO_CELLS) return;
    double *const room = value + n;
    const tandem_ratio_spread by_others = ratio_spread_without(fit, group, gpu, room),
                              of_both = spread_of_both(fit, group, gpu);
    tandem_constant_fit_ratio cell = {.group = (tandem_ratio_group)group, .n_shape = (int64_t)n};
    (void)snprintf(cell.gpu, sizeof cell.gpu, "%s", tandem_device_get(gpu)->name);
    cell.inside = share_inside(value, n, fit->ratio_of[group].spread);
    cell.inside_by_others = by_others.n_shape > 0 ? share_inside(value, n, by_others) : NAN;
    cell.inside_of_both = share_inside(value, n, of_both);
    cell.spread_of_both = hypot(of_both.shared, of_both.own);
    for (size_t i = 0; i < n; i++) cell.bias += value[i] / (double)n, value[i] = fabs(value[i]);
    for (size_t i = 0; i < n; i++) cell.mean += value[i] / (double)n;
    cell.median = tandem_median(value, n);
    fit->ratio_cell[fit->n_ratio_cell++] = cell;
}

static void find_ratio_spread(tandem_constant_fit *fit, int group, double *value)
{
    char *const cards = fit->ratio_cards[group];
    double sum = 0;
    tandem_ratio_fit *const of = &fit->ratio_of[group];
    *of = (tandem_ratio_fit){ratio_spread_without(fit, group, -1, value), 0, cards};
    cards[0] = '\0';
    for (int d = 0; d < tandem_device_count(); d++) {
        const size_t n = collect_ratios(value, fit, group, d), used = strlen(cards);
        if (n < FIT_MIN_SPREAD_ROWS) continue;
        for (size_t i = 0; i < n; i++) sum += fabs(exp(value[i]) - 1);
        (void)snprintf(cards + used, FIT_CARDS_TEXT - used, "%s ", tandem_device_get(d)->name);
    }
    of->error = of->spread.n_shape > 0 ? sum / of->spread.n_shape : 0;
}

/* What a table has of fp8 includes quantising, which is no part of a rate. */
static int is_narrower(int a, int b)
{
    const int is_fp8 = a == TANDEM_E4M3 || a == TANDEM_E5M2;
    return !is_fp8 && tandem_dtype_bytes((tandem_dtype)a) < tandem_dtype_bytes((tandem_dtype)b);
}

/* Of what cards below 100 W, or others, reach in one type over a wider one, as their generation was left
 * out. */
static void find_device_ratio(tandem_constant_fit *fit, int is_small, double *value)
{
    tandem_device_spread *const of = &fit->device_ratio[is_small];
    size_t n = 0;
    for (int d = 0; d < tandem_device_count(); d++)
        for (int a = 0; a < TANDEM_N_COMPUTE_DTYPE; a++)
            for (int b = 0; b < TANDEM_N_COMPUTE_DTYPE; b++) {
                const double off = fit->device_off[d][a] - fit->device_off[d][b];
                if (isnan(off) || !is_narrower(a, b)) continue;
                if ((tandem_device_get(d)->gpu_spec.watts < 100) == is_small) value[n++] = fabs(off);
            }
    *of = (tandem_device_spread){0, (int)n};
    if (n == 0) return;
    (void)tandem_median(value, n); /* sorts */
    of->shared = value[(size_t)(0.8 * (double)(n - 1) + 0.5)] / 1.2816;
}

tandem_status fit_judge_ratios(tandem_constant_fit *fit, tandem_error *error)
{
    const tandem_status status = find_left_out_ratios(fit, error);
    if (status != TANDEM_OK) return status;
    enum { MAX_DEVICE_RATIOS = FIT_MAX_DEVICES * TANDEM_N_COMPUTE_DTYPE * TANDEM_N_COMPUTE_DTYPE };
    double *const value = malloc((2 * fit->n_ratio + MAX_DEVICE_RATIOS) * sizeof *value);
    if (!value) return tandem_no_memory(error, "for a fit");
    fit->n_ratio_cell = 0;
    for (int g = 0; g < TANDEM_N_RATIO_GROUP; g++) {
        find_ratio_spread(fit, g, value);
        for (int d = 0; d < tandem_device_count(); d++) judge_ratio_cell(fit, g, d, value);
    }
    for (int is_small = 0; is_small < 2; is_small++) find_device_ratio(fit, is_small, value);
    free(value);
    return TANDEM_OK;
}

const tandem_constant_fit_ratio *tandem_constant_fit_ratio_table(const tandem_constant_fit *fit, int *n)
{
    *n = fit->n_ratio_cell;
    return fit->ratio_cell;
}

const tandem_ratio_fit *tandem_constant_fit_ratios(const tandem_constant_fit *fit) { return fit->ratio_of; }

const tandem_device_spread *tandem_constant_fit_device_ratio(const tandem_constant_fit *fit)
{
    return fit->device_ratio;
}
