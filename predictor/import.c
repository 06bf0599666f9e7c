/* import.c: rows of timing tables on their way into a store: what they say is checked, and what is already
 * there stays once (timings.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/hash.h"
#include "predictor/by_others.h"
#include "tandem/advanced/timings.h"

enum { MAX_BATCH = 512, MAX_IMPORTED = 1 << 29 };
static const double max_apart = 10; /* times of one key */

/* A device as a table writes it. */
typedef struct import_device {
    char spelling[TANDEM_TIMING_TEXT];
    tandem_device device;
    tandem_status status; /* TANDEM_OK, or why its rows are left out */
    char why[TANDEM_ERROR_TEXT];
} import_device;

/* What a key's rows took: an operator with its sizes, on one device, in one precision and pass. */
typedef struct import_key {
    double min_ns, max_ns;
    int64_t line; /* of the first; 0 = in the store */
} import_key;

struct tandem_import {
    tandem_store *store; /* NULL: rows are only checked */
    const char *default_device;
    int force;
    import_device *device; /* by spelling */
    int n_device, device_room, last_device;
    import_key *key;
    int n_key, key_room, n_seen;
    tandem_hash_index of_key, seen; /* seen: rows, their times and sources included */
    tandem_timing *batch;           /* [MAX_BATCH] not yet filed */
    size_t n_batch;
    tandem_import_summary summary;
};

tandem_status tandem_import_open(tandem_import **import, tandem_store *store, const char *device, int force,
                                 tandem_error *error)
{
    tandem_import *const opened = calloc(1, sizeof *opened);
    tandem_timing *const batch = malloc(MAX_BATCH * sizeof *batch);
    if (!opened || !batch) {
        free(batch);
        free(opened);
        return tandem_no_memory(error, "for an import");
    }
    opened->store = store;
    opened->default_device = device;
    opened->force = force;
    opened->batch = batch;
    *import = opened;
    return TANDEM_OK;
}

void tandem_import_close(tandem_import *import)
{
    if (!import) return;
    free(import->device);
    free(import->key);
    free(import->batch);
    tandem_hash_index_free(&import->of_key);
    tandem_hash_index_free(&import->seen);
    free(import);
}

const tandem_import_summary *tandem_import_summary_of(const tandem_import *import)
{
    return &import->summary;
}

/* --- Keys ----------------------------------------------------------------------------------------------- */

static uint64_t mix_hash(uint64_t hash, double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    hash = (hash ^ bits) * UINT64_C(0x9e3779b97f4a7c15); /* Knuth's golden ratio */
    return hash ^ hash >> 29;
}

/* Events around a call add the host's time, so that they make another key. */
static uint64_t hash_timing_key(const tandem_timing *t)
{
    const tandem_convolution *const c = &t->convolution;
    const double size[] = {t->batch,    t->m,           t->k,      t->n,        t->rows,         t->columns,
                           c->images,   c->channels_in, c->height, c->width,    c->channels_out, c->kernel_h,
                           c->kernel_w, c->pad_h,       c->pad_w,  c->stride_h, c->stride_w};
    uint64_t hash = tandem_hash_text(TANDEM_HASH_START, t->device);
    hash = tandem_hash_text(hash ^ 1, t->kind);
    hash = tandem_hash_text(hash ^ 1, t->precision);
    hash = mix_hash(hash, (double)(16 * (int)t->pass + tandem_timing_timed(t)));
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) hash = mix_hash(hash, size[i]);
    return hash;
}

static uint64_t hash_timing_row(uint64_t key, const tandem_timing *t)
{
    return mix_hash(tandem_hash_text(tandem_hash_text(key, t->source) ^ 1, t->method), t->time_ns);
}

uint64_t tandem_timing_hash(const tandem_timing *timing)
{
    return hash_timing_row(hash_timing_key(timing), timing);
}

static tandem_status refuse_contradiction(const tandem_timing *t, const import_key *key, tandem_error *error)
{
    const double other_ns = t->time_ns > key->min_ns ? key->min_ns : key->max_ns;
    char where[48] = "in the store";
    if (key->line > 0) (void)snprintf(where, sizeof where, "from line %lld on", (long long)key->line);
    return tandem_error_set(
        error, TANDEM_MALFORMED,
        "%s took %.4g us, the same %s %.4g us: over %.0f times apart. One of them is wrong; "
        "--force keeps both",
        t->kind, 1e-3 * t->time_ns, where, 1e-3 * other_ns, max_apart);
}

/* Counts a row in its key. *is_known: the same row was there before. keeps_both: times that are far apart are
 * no error. */
static tandem_status note_key(int *is_known, tandem_import *import, const tandem_timing *t, int keeps_both,
                              tandem_error *error)
{
    const uint64_t hash = hash_timing_key(t), row = hash_timing_row(hash, t);
    int index = tandem_hash_index_find(&import->of_key, hash);
    *is_known = tandem_hash_index_find(&import->seen, row) >= 0;
    if (*is_known) return TANDEM_OK;
    if (index < 0) {
        import_key *const more =
            tandem_grow(import->key, &import->key_room, import->n_key, sizeof *more, MAX_IMPORTED);
        if (more) import->key = more;
        if (!more || !tandem_hash_index_add(&import->of_key, hash, import->n_key))
            return tandem_no_memory(error, "for an import of %d rows", import->n_key);
        index = import->n_key++;
        import->key[index] = (import_key){t->time_ns, t->time_ns, t->line};
    }
    import_key *const key = &import->key[index];
    const int is_contradiction = t->time_ns > max_apart * key->min_ns || max_apart * t->time_ns < key->max_ns;
    if (is_contradiction && !keeps_both) return refuse_contradiction(t, key, error);
    if (import->n_seen == MAX_IMPORTED || !tandem_hash_index_add(&import->seen, row, import->n_seen++))
        return tandem_no_memory(error, "for an import of %d rows", import->n_seen);
    key->min_ns = fmin(key->min_ns, t->time_ns);
    key->max_ns = fmax(key->max_ns, t->time_ns);
    return TANDEM_OK;
}

/* --- Devices -------------------------------------------------------------------------------------------- */

/* What is already there must not stop a new row from being said to be far apart; it was accepted before. */
static tandem_status note_stored(void *context, const tandem_timing *timing, tandem_error *error)
{
    int is_known = 0;
    return note_key(&is_known, context, timing, 1, error);
}

static tandem_status add_import_device(tandem_import *import, const char *spelling, tandem_error *error)
{
    import_device *const more =
        tandem_grow(import->device, &import->device_room, import->n_device, sizeof *more, 1 << 16);
    if (!more) return tandem_no_memory(error, "for an import from %d devices", import->n_device);
    import->device = more;
    import_device *const device = &more[import->n_device];
    tandem_error why = {0};
    *device = (import_device){.status = TANDEM_OK};
    (void)snprintf(device->spelling, sizeof device->spelling, "%s", spelling);
    device->status = tandem_timing_device(&device->device, spelling, &why);
    memcpy(device->why, why.text, sizeof device->why);
    int is_new = device->status == TANDEM_OK;
    for (int d = 0; d < import->n_device && is_new; d++)
        is_new = more[d].status != TANDEM_OK || strcmp(more[d].device.name, device->device.name) != 0;
    import->last_device = import->n_device++;
    if (!is_new) return TANDEM_OK;
    const int n = import->summary.n_device;
    if (n < TANDEM_IMPORT_DEVICES) {
        (void)snprintf(import->summary.device[n], sizeof import->summary.device[n], "%s",
                       device->device.name);
        import->summary.n_device++;
    }
    return import->store
               ? tandem_store_visit_timings(import->store, device->device.name, note_stored, import, error)
               : TANDEM_OK;
}

static tandem_status find_import_device(const import_device **found, tandem_import *import,
                                        const char *spelling, tandem_error *error)
{
    int at = import->last_device;
    if (at >= import->n_device || strcmp(import->device[at].spelling, spelling) != 0) {
        for (at = 0; at < import->n_device && strcmp(import->device[at].spelling, spelling) != 0; at++) {
        }
        if (at == import->n_device) {
            const tandem_status status = add_import_device(import, spelling, error);
            if (status != TANDEM_OK) return status;
        }
        import->last_device = at;
    }
    *found = &import->device[at];
    return TANDEM_OK;
}

/* --- Rows ----------------------------------------------------------------------------------------------- */

static tandem_status leave_out(tandem_import *import, const tandem_timing *timing, const char *why)
{
    tandem_import_summary *const s = &import->summary;
    int i = 0;
    s->n_left_out++;
    while (i < s->n_reason && strcmp(s->reason[i].why, why) != 0) i++;
    if (i == TANDEM_IMPORT_REASONS) return TANDEM_OK;
    if (i == s->n_reason) {
        s->reason[i].line = timing->line;
        (void)snprintf(s->reason[i].why, sizeof s->reason[i].why, "%s", why);
        s->n_reason++;
    }
    s->reason[i].n_row++;
    return TANDEM_OK;
}

static tandem_status file_batch(tandem_import *import, tandem_error *error)
{
    const size_t n = import->n_batch;
    import->n_batch = 0;
    return import->store && n > 0 ? tandem_store_put_timings(import->store, import->batch, n, error)
                                  : TANDEM_OK;
}

static tandem_status accept_timing(tandem_import *import, const tandem_timing *timing,
                                   const import_device *device, const tandem_work *work, tandem_error *error)
{
    int is_known = 0;
    tandem_timing *const row = &import->batch[import->n_batch];
    *row = *timing;
    memcpy(row->device, device->device.name, sizeof device->device.name);
    row->flops = work->flops;
    row->bytes = work->bytes;
    tandem_status status = note_key(&is_known, import, row, import->force, error);
    if (status != TANDEM_OK) return status;
    import->summary.n_known += is_known;
    import->summary.n_filed += !is_known;
    import->n_batch += !is_known;
    return import->n_batch == MAX_BATCH ? file_batch(import, error) : TANDEM_OK;
}

static tandem_status import_row(void *context, const tandem_timing *timing, tandem_error *error)
{
    tandem_import *const import = context;
    const char *const name = timing->device[0] ? timing->device : import->default_device;
    const import_device *device = NULL;
    tandem_work work;
    tandem_error why = {0};
    import->summary.n_row++;
    if (!name) return tandem_error_set(error, TANDEM_USAGE, "it names no device; --device does");
    if (!(timing->time_ns > 0)) return tandem_error_set(error, TANDEM_MALFORMED, "it has no time");
    tandem_status status = find_import_device(&device, import, name, error);
    if (status != TANDEM_OK) return status;
    if (device->status != TANDEM_OK) return leave_out(import, timing, device->why);
    status = tandem_timing_work(&work, timing, &why);
    if (status == TANDEM_OK)
        status = tandem_timing_check(timing, &work, &device->device, import->force, &why);
    if (status == TANDEM_UNKNOWN_NAME || status == TANDEM_MISSING) return leave_out(import, timing, why.text);
    if (status == TANDEM_OK) return accept_timing(import, timing, device, &work, error);
    if (error) *error = why;
    return status;
}

tandem_status tandem_import_read(tandem_import *import, FILE *stream, const char *name, tandem_error *error)
{
    const tandem_status status = tandem_timings_read(stream, name, 1, import_row, import, error);
    return status == TANDEM_OK ? file_batch(import, error) : status;
}
