/* store_timings.c: rows of timing tables that others published, each with its source and how it was timed. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "profiles/store/store_handle.h"

#define TIMING_SIZES                                                                                         \
    "batch, m, k, n, \"rows\", \"columns\", images, channels_in, height, width, channels_out, kernel_h, "    \
    "kernel_w, pad_h, pad_w, stride_h, stride_w"

/* --- Filing --------------------------------------------------------------------------------------------- */

/* Where the next row goes; kept from one row to the next, which mostly has the same set. */
typedef struct timing_place {
    const tandem_timing *of; /* a row of the set; NULL = none yet */
    int64_t set, place;
} timing_place;

static int is_same_set(const tandem_timing *a, const tandem_timing *b)
{
    return a->pass == b->pass && strcmp(a->kind, b->kind) == 0 && strcmp(a->device, b->device) == 0 &&
           strcmp(a->source, b->source) == 0 && strcmp(a->method, b->method) == 0 &&
           strcmp(a->precision, b->precision) == 0;
}

static tandem_status find_timing_set(timing_place *place, tandem_store *store, const tandem_timing *t,
                                     tandem_error *error)
{
    static const char insert[] =
        "INSERT INTO timing_set (device, source, method, operator, \"precision\", pass, host, time_ns) "
        "VALUES "
        "((SELECT id FROM device WHERE name = ?1), ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING";
    static const char select[] =
        "SELECT s.id, (SELECT max(place) FROM timing WHERE timing_set = s.id) FROM timing_set AS s WHERE "
        "s.device = (SELECT id FROM device WHERE name = ?1) AND s.source = ?2 AND s.method = ?3 AND "
        "s.operator = ?4 AND s.\"precision\" = ?5 AND s.pass = ?6";
    const char *const pass = tandem_pass_name(t->pass);
    sqlite3_stmt *row = NULL;
    int more = 0;
    tandem_status status = tandem_store_add_device(store, t->device, error);
    if (status == TANDEM_OK)
        status = tandem_store_execute(store, error, insert, "ssssssii", t->device, t->source, t->method,
                                      t->kind, t->precision, pass, store->host, tandem_store_now_ns());
    if (status == TANDEM_OK)
        status = tandem_store_query(&row, store, error, select, "ssssss", t->device, t->source, t->method,
                                    t->kind, t->precision, pass);
    if (status == TANDEM_OK) status = tandem_store_next_row(&more, store, row, error);
    if (status == TANDEM_OK && !more) status = tandem_store_refuse_damaged(store, "a set of timings", error);
    if (status == TANDEM_OK)
        *place = (timing_place){t, sqlite3_column_int64(row, 0), sqlite3_column_int64(row, 1) + 1};
    if (row) {
        (void)sqlite3_reset(row);
        (void)sqlite3_clear_bindings(row);
    }
    return status;
}

static tandem_status put_timing(timing_place *place, tandem_store *store, const tandem_timing *t,
                                tandem_error *error)
{
    static const char insert[] =
        "INSERT INTO timing (timing_set, place, took_ns, flops, bytes, " TIMING_SIZES ") VALUES (?1, ?2, ?3, "
        "?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22)";
    const tandem_convolution *const c = &t->convolution;
    if (!t->device[0] || !(t->time_ns > 0) || !isfinite(t->time_ns))
        return tandem_error_set(error, TANDEM_USAGE, "an imported time needs a device, and a time above 0");
    if (!place->of || !is_same_set(place->of, t)) {
        const tandem_status status = find_timing_set(place, store, t, error);
        if (status != TANDEM_OK) return status;
    }
    return tandem_store_execute(
        store, error, insert, "iirrrooooooooooooooooo", place->set, place->place++, t->time_ns, t->flops,
        t->bytes, (int64_t)t->batch, (int64_t)t->m, (int64_t)t->k, (int64_t)t->n, (int64_t)t->rows,
        (int64_t)t->columns, (int64_t)c->images, (int64_t)c->channels_in, (int64_t)c->height,
        (int64_t)c->width, (int64_t)c->channels_out, (int64_t)c->kernel_h, (int64_t)c->kernel_w,
        (int64_t)c->pad_h, (int64_t)c->pad_w, (int64_t)c->stride_h, (int64_t)c->stride_w);
}

tandem_status tandem_store_put_timings(tandem_store *store, const tandem_timing *timing, size_t n,
                                       tandem_error *error)
{
    timing_place place = {.of = NULL};
    tandem_status status = tandem_store_write_begin(store, error);
    if (status != TANDEM_OK) return status;
    for (size_t i = 0; i < n && status == TANDEM_OK; i++)
        status = put_timing(&place, store, &timing[i], error);
    return tandem_store_write_end(store, status, error);
}

/* --- Reading -------------------------------------------------------------------------------------------- */

static tandem_status read_timing_text(char text[TANDEM_TIMING_TEXT], const tandem_store *store,
                                      sqlite3_stmt *row, int column, tandem_error *error)
{
    const char *read = NULL;
    const tandem_status status = tandem_store_column_text(&read, store, row, column, error);
    if (status == TANDEM_OK) (void)snprintf(text, TANDEM_TIMING_TEXT, "%s", read);
    return status;
}

static tandem_status read_timing_sizes(tandem_timing *t, const tandem_store *store, sqlite3_stmt *row,
                                       int column, tandem_error *error)
{
    tandem_convolution *const c = &t->convolution;
    double *const size[] = {&t->batch,        &t->m,        &t->k,           &t->n,      &t->rows,
                            &t->columns,      &c->images,   &c->channels_in, &c->height, &c->width,
                            &c->channels_out, &c->kernel_h, &c->kernel_w,    &c->pad_h,  &c->pad_w,
                            &c->stride_h,     &c->stride_w};
    for (int i = 0; i < (int)(sizeof size / sizeof *size); i++) {
        const int64_t read = sqlite3_column_int64(row, column + i), max = INT64_C(1) << 53;
        if (read < 0 || read > max) return tandem_store_refuse_damaged(store, "a size", error);
        *size[i] = (double)read;
    }
    return TANDEM_OK;
}

/* *is_known: 0 where this version does not know the pass. */
static tandem_status read_timing(tandem_timing *t, int *is_known, const tandem_store *store,
                                 sqlite3_stmt *row, tandem_error *error)
{
    const char *pass = NULL;
    *is_known = 0;
    tandem_status status = read_timing_text(t->source, store, row, 0, error);
    if (status == TANDEM_OK) status = read_timing_text(t->method, store, row, 1, error);
    if (status == TANDEM_OK) status = read_timing_text(t->kind, store, row, 2, error);
    if (status == TANDEM_OK) status = read_timing_text(t->precision, store, row, 3, error);
    if (status == TANDEM_OK) status = tandem_store_column_text(&pass, store, row, 4, error);
    if (status != TANDEM_OK) return status;
    for (int p = 0; p < TANDEM_N_PASS && !*is_known; p++)
        if (strcmp(tandem_pass_name((tandem_pass)p), pass) == 0) {
            t->pass = (tandem_pass)p;
            *is_known = 1;
        }
    t->time_ns = sqlite3_column_double(row, 5);
    t->flops = sqlite3_column_double(row, 6);
    t->bytes = sqlite3_column_double(row, 7);
    const int is_sound = t->time_ns > 0 && t->time_ns <= 1e15 && t->flops >= 0 && isfinite(t->flops) &&
                         t->bytes >= 0 && isfinite(t->bytes);
    if (!is_sound) return tandem_store_refuse_damaged(store, "an imported time", error);
    return read_timing_sizes(t, store, row, 8, error);
}

tandem_status tandem_store_visit_timings(tandem_store *store, const char *device,
                                         tandem_timing_visitor *visit, void *context, tandem_error *error)
{
    static const char select[] =
        "SELECT s.source, s.method, s.operator, s.\"precision\", s.pass, t.took_ns, t.flops, "
        "t.bytes, " TIMING_SIZES " FROM timing_set AS s JOIN timing AS t ON t.timing_set = s.id WHERE "
        "s.device = (SELECT id FROM device WHERE name = ?1) ORDER BY s.id, t.place";
    sqlite3_stmt *row = NULL;
    int more = 0;
    tandem_status status = tandem_store_query(&row, store, error, select, "s", device);
    while (status == TANDEM_OK) {
        tandem_timing timing = {.repeats = 1};
        int is_known = 0;
        status = tandem_store_next_row(&more, store, row, error);
        if (status != TANDEM_OK || !more) break;
        (void)snprintf(timing.device, sizeof timing.device, "%s", device);
        status = read_timing(&timing, &is_known, store, row, error);
        if (status == TANDEM_OK && is_known) status = visit(context, &timing, error);
    }
    if (row) {
        (void)sqlite3_reset(row);
        (void)sqlite3_clear_bindings(row);
    }
    return status;
}
