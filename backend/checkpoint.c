#include "backend/checkpoint.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "base/file.h"

typedef struct header {
    char magic[8];
    uint32_t version, n_array;
    int64_t step;
    uint64_t hash;
    int64_t n_weight;
    char model[128], optimizer[16], recipe[TANDEM_CHECKPOINT_RECIPE];
    int64_t n_running, skipped;
    uint32_t n_rank, good;
    float scale;
    uint32_t array_crc[TANDEM_CHECKPOINT_ARRAYS], running_crc;
    uint32_t crc;
} header;
static_assert(sizeof(header) == 232 + TANDEM_CHECKPOINT_RECIPE && offsetof(header, crc) == sizeof(header) - 4,
              "the header is the file's first bytes");

/* Of the histories, behind all else. */
typedef struct trailer {
    uint32_t n_record, window, record_crc, crc;
} trailer;
enum { VERSION_WITHOUT_HISTORIES = 2, MOST_RECORDS = 1 << 18 };
/* what a double, which rates are computed in, still counts */
static const int64_t MOST_STEPS = INT64_C(1) << 53;

static_assert(sizeof((header){0}.model) >= TANDEM_MODEL_NAME, "a longer name needs another version of the "
                                                              "file");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are written as they lie in memory");

static const char magic[8] = {'t', 'a', 'n', 'd', 'e', 'm', 'c', 'k'};

static uint32_t crc_of(uint32_t crc, const void *bytes, size_t n) { return (uint32_t)crc32_z(crc, bytes, n); }
static uint32_t header_crc(const header *h) { return crc_of(0, h, offsetof(header, crc)); }

/* --- Writing -------------------------------------------------------------------------------------------- */

static const float *numbers_of(const tandem_training_state *state, int k, int p)
{
    return state->array[k] + state->step->parameter_start[p];
}

static size_t bytes_of(const tandem_training_state *state, int p)
{
    return (size_t)state->step->graph->parameter[p].elements * sizeof(float);
}

uint32_t tandem_checkpoint_crc(const tandem_training_state *state, int k)
{
    uint32_t crc = 0;
    for (int p = 0; p < state->step->graph->n_parameter; p++)
        crc = crc_of(crc, numbers_of(state, k, p), bytes_of(state, p));
    return crc;
}

static size_t running_bytes(const header *h)
{
    return (size_t)h->n_rank * (size_t)h->n_running * sizeof(float);
}

static header header_of(const tandem_training_state *state, const uint32_t *crc, int64_t step,
                        const char *recipe)
{
    const tandem_graph *graph = state->step->graph;
    header h = {.version = state->histories.n ? TANDEM_CHECKPOINT_VERSION : VERSION_WITHOUT_HISTORIES,
                .n_array = (uint32_t)state->n_array,
                .step = step,
                .hash = graph->hash,
                .n_weight = tandem_graph_n_weight(graph),
                .n_running = tandem_running_count(graph),
                .n_rank = (uint32_t)state->n_rank,
                .scale = state->scaling.scale,
                .good = (uint32_t)state->scaling.good,
                .skipped = state->scaling.skipped};
    memcpy(h.magic, magic, sizeof magic);
    (void)snprintf(h.model, sizeof h.model, "%s", graph->model);
    (void)snprintf(h.optimizer, sizeof h.optimizer, "%s", tandem_optimizer_name(graph->optimizer.kind));
    (void)snprintf(h.recipe, sizeof h.recipe, "%s", recipe);
    memcpy(h.array_crc, crc, (size_t)state->n_array * sizeof *crc);
    h.running_crc = crc_of(0, state->running, running_bytes(&h));
    h.crc = header_crc(&h);
    return h;
}

static uint32_t trailer_crc(const trailer *t) { return crc_of(0, t, offsetof(trailer, crc)); }

static int write_histories(const tandem_history_image *image, FILE *stream)
{
    if (image->n == 0) return 1;
    const size_t bytes = (size_t)tandem_history_image_bytes(image);
    trailer t = {.n_record = (uint32_t)image->n, .window = (uint32_t)image->window};
    t.record_crc = crc_of(0, image->record, bytes);
    t.crc = trailer_crc(&t);
    return fwrite(&t, sizeof t, 1, stream) == 1 && fwrite(image->record, bytes, 1, stream) == 1;
}

tandem_status tandem_checkpoint_write(const char *path, const tandem_training_state *state,
                                      const uint32_t *crc, int64_t step, const char *recipe,
                                      tandem_error *error)
{
    const header h = header_of(state, crc, step, recipe);
    tandem_file file = {0};
    const tandem_status status = tandem_file_open(&file, path, error);
    if (status != TANDEM_OK) return status;
    const size_t n_running = running_bytes(&h);
    int written = fwrite(&h, sizeof h, 1, file.stream) == 1;
    for (int k = 0; k < state->n_array; k++)
        for (int p = 0; written && p < state->step->graph->n_parameter; p++)
            written = fwrite(numbers_of(state, k, p), bytes_of(state, p), 1, file.stream) == 1;
    if (written && n_running) written = fwrite(state->running, n_running, 1, file.stream) == 1;
    if (written) (void)write_histories(&state->histories, file.stream);
    return tandem_file_finish(&file, error); /* says why, where it was not written */
}

/* --- Reading -------------------------------------------------------------------------------------------- */

static tandem_status unreadable(tandem_error *error, const char *path, int code)
{
    return tandem_error_set(error, TANDEM_IO, "checkpoint '%.200s' cannot be read: %s", path, strerror(code));
}

static tandem_status damaged(tandem_error *error, const char *path, const char *part)
{
    return tandem_error_set(error, TANDEM_MALFORMED,
                            "checkpoint '%.200s' is damaged: its %s do not have the checksum that was "
                            "written with them",
                            path, part);
}

static int is_text(const char *text, size_t size) { return memchr(text, '\0', size) != NULL; }

/* A file whose checksums are right may still hold what no training has: whoever writes a file writes its
 * checksums, too. */
static tandem_status out_of_range(tandem_error *error, const char *path, const char *what, double got,
                                  const char *allowed)
{
    return tandem_error_set(error, TANDEM_MALFORMED,
                            "checkpoint '%.200s' has %.20g for its %s; %s is allowed: it was not written by "
                            "tandem, "
                            "take another",
                            path, got, what, allowed);
}

static tandem_status check_ranges(const header *h, const char *path, tandem_error *error)
{
    if (h->step < 0 || h->step > MOST_STEPS)
        return out_of_range(error, path, "steps done", (double)h->step, "0 to 2^53");
    if (h->skipped < 0 || h->skipped > h->step)
        return out_of_range(error, path, "skipped steps", (double)h->skipped, "0 to the steps done");
    if (h->good > INT32_MAX || h->good > h->step)
        return out_of_range(error, path, "steps since the loss scale changed", (double)h->good,
                            "0 to the steps done");
    if (!(h->scale >= 0 && h->scale <= 0x1p64f) || (h->scale > 0 && !isnormal(h->scale)) || signbit(h->scale))
        return out_of_range(error, path, "loss scale", (double)h->scale,
                            "above 0 to 2^64, or 0 where the loss is not scaled,");
    if (h->n_array < 1 || h->n_array > TANDEM_CHECKPOINT_ARRAYS)
        return out_of_range(error, path, "arrays", (double)h->n_array, "1 to 3");
    if (h->n_rank < 1 || h->n_rank > INT32_MAX)
        return out_of_range(error, path, "ranks", (double)h->n_rank, "1 to 2^31 - 1");
    if (!is_text(h->model, sizeof h->model) || !is_text(h->optimizer, sizeof h->optimizer) ||
        !is_text(h->recipe, sizeof h->recipe))
        return tandem_error_set(
            error, TANDEM_MALFORMED,
            "checkpoint '%.200s' has a text without an end: it was not written by tandem, take another",
            path);
    return TANDEM_OK;
}

static tandem_status read_header(header *h, FILE *stream, const char *path, tandem_error *error)
{
    errno = 0;
    const size_t n = fread(h, 1, sizeof *h, stream);
    if (ferror(stream)) return unreadable(error, path, errno);
    if (n >= sizeof magic && memcmp(h->magic, magic, sizeof magic) != 0)
        return tandem_error_set(error, TANDEM_FOREIGN, "'%.200s' is no checkpoint of tandem", path);
    if (n >= sizeof magic + sizeof h->version && h->version != TANDEM_CHECKPOINT_VERSION &&
        h->version != VERSION_WITHOUT_HISTORIES)
        return tandem_error_set(error, TANDEM_FOREIGN,
                                "checkpoint '%.200s' is of version %u, this tandem reads versions %d and %d",
                                path, h->version, VERSION_WITHOUT_HISTORIES, TANDEM_CHECKPOINT_VERSION);
    if (n < sizeof *h)
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "checkpoint '%.200s' is cut short: it has %zu bytes, less than its header of "
                                "%zu",
                                path, n, sizeof *h);
    return h->crc == header_crc(h) ? check_ranges(h, path, error) : damaged(error, path, "first bytes");
}

static tandem_status check_graph(const header *h, const char *path, const tandem_graph *graph,
                                 tandem_error *error)
{
    const char *optimizer = tandem_optimizer_name(graph->optimizer.kind);
    if (strcmp(h->model, graph->model) != 0)
        return tandem_error_set(error, TANDEM_WRONG_MODEL,
                                "checkpoint '%.200s' is of model '%s', this run "
                                "trains '%s'",
                                path, h->model, graph->model);
    if (strcmp(h->optimizer, optimizer) != 0)
        return tandem_error_set(error, TANDEM_WRONG_MODEL,
                                "checkpoint '%.200s' was trained by optimizer %s, model '%s' has %s here",
                                path, h->optimizer, graph->model, optimizer);
    if (h->hash != graph->hash || h->n_running != tandem_running_count(graph) ||
        h->n_weight != tandem_graph_n_weight(graph) ||
        (int)h->n_array != 1 + tandem_optimizer_n_state(graph->optimizer.kind))
        return tandem_error_set(error, TANDEM_WRONG_MODEL,
                                "checkpoint '%.200s' is of a model '%s' with other operators than this "
                                "tandem's",
                                path, h->model);
    return TANDEM_OK;
}

static uint64_t state_bytes(const header *h)
{
    return sizeof *h + (uint64_t)h->n_array * (uint64_t)h->n_weight * sizeof(float) + running_bytes(h);
}

/* What stands behind the running statistics, and whether the file ends where it should. */
static tandem_status check_size(tandem_history_image *image, trailer *t, const header *h, FILE *stream,
                                const char *path, tandem_error *error)
{
    struct stat seen;
    if (fstat(fileno(stream), &seen) != 0) return unreadable(error, path, errno);
    uint64_t awaited = state_bytes(h);
    if (h->version == TANDEM_CHECKPOINT_VERSION) {
        awaited += sizeof *t;
        if ((uint64_t)seen.st_size >= awaited) {
            if (fseek(stream, (long)state_bytes(h), SEEK_SET) != 0 || fread(t, sizeof *t, 1, stream) != 1 ||
                fseek(stream, (long)sizeof *h, SEEK_SET) != 0)
                return unreadable(error, path, errno ? errno : EIO);
            if (t->crc != trailer_crc(t)) return damaged(error, path, "amax histories");
            if (t->window < 1 || t->window > TANDEM_AMAX_WINDOW)
                return out_of_range(error, path, "amax histories' window", t->window, "1 to 1024");
            if (t->n_record > MOST_RECORDS)
                return out_of_range(error, path, "amax histories a rank", t->n_record, "0 to 2^18");
            *image = (tandem_history_image){.n_rank = (int32_t)h->n_rank,
                                            .n = (int32_t)t->n_record,
                                            .window = (int32_t)t->window,
                                            .record_bytes = tandem_history_record_bytes((int)t->window)};
            awaited += tandem_history_image_bytes(image);
        }
    }
    if ((uint64_t)seen.st_size == awaited) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_MALFORMED,
                            "checkpoint '%.200s' %s: it has %lld bytes, one of model '%s' has %llu", path,
                            (uint64_t)seen.st_size < awaited ? "is cut short" : "goes on behind its end",
                            (long long)seen.st_size, h->model, (unsigned long long)awaited);
}

/* The next so many bytes of the file. */
static tandem_status check_part(FILE *stream, uint64_t left, uint32_t awaited, const char *part,
                                const char *path, tandem_error *error)
{
    unsigned char bytes[1 << 16];
    uint32_t crc = 0;
    for (uint64_t n; left > 0; left -= n) {
        n = left < sizeof bytes ? left : sizeof bytes;
        errno = 0;
        if (fread(bytes, 1, n, stream) != n) return unreadable(error, path, errno ? errno : EIO);
        crc = crc_of(crc, bytes, n);
    }
    return crc == awaited ? TANDEM_OK : damaged(error, path, part);
}

static tandem_status check_arrays(const header *h, const trailer *t, const tandem_history_image *image,
                                  FILE *stream, const char *path, tandem_error *error)
{
    static const char *const name[TANDEM_CHECKPOINT_ARRAYS] = {"weights", "optimizer's numbers",
                                                               "optimizer's second numbers"};
    assert(h->n_array <= TANDEM_CHECKPOINT_ARRAYS); /* check_ranges */
    tandem_status status = TANDEM_OK;
    for (uint32_t k = 0; k < h->n_array && status == TANDEM_OK; k++)
        status =
            check_part(stream, (uint64_t)h->n_weight * sizeof(float), h->array_crc[k], name[k], path, error);
    if (status == TANDEM_OK)
        status = check_part(stream, running_bytes(h), h->running_crc, "running statistics", path, error);
    if (status != TANDEM_OK || image->n == 0) return status;
    if (fseek(stream, (long)sizeof *t, SEEK_CUR) != 0) return unreadable(error, path, errno);
    return check_part(stream, tandem_history_image_bytes(image), t->record_crc, "amax histories", path,
                      error);
}

tandem_status tandem_checkpoint_open(tandem_checkpoint *checkpoint, const char *path,
                                     const tandem_graph *graph, tandem_error *error)
{
    header h = {0};
    trailer t = {0};
    tandem_history_image histories = {0};
    FILE *stream = fopen(path, "rbe");
    if (!stream) return unreadable(error, path, errno);
    tandem_status status = read_header(&h, stream, path, error);
    if (status == TANDEM_OK) status = check_graph(&h, path, graph, error);
    if (status == TANDEM_OK) status = check_size(&histories, &t, &h, stream, path, error);
    if (status == TANDEM_OK) status = check_arrays(&h, &t, &histories, stream, path, error);
    if (status != TANDEM_OK) {
        (void)fclose(stream);
        return status;
    }
    *checkpoint = (tandem_checkpoint){.stream = stream,
                                      .info = {.step = h.step},
                                      .scaling = {h.scale, (int32_t)h.good, h.skipped},
                                      .n_rank = (int)h.n_rank,
                                      .histories = histories};
    memcpy(checkpoint->info.recipe, h.recipe, sizeof h.recipe);
    return TANDEM_OK;
}

void tandem_checkpoint_close(tandem_checkpoint *checkpoint)
{
    if (checkpoint->stream) (void)fclose(checkpoint->stream);
    *checkpoint = (tandem_checkpoint){0};
}

/* What a cast takes its range from. */
static tandem_status check_records(const tandem_history_image *image, const char *path, tandem_error *error)
{
    for (int64_t k = 0; k < (int64_t)image->n_rank * image->n; k++) {
        const tandem_history_record *const record =
            (const void *)(image->record + (uint64_t)k * image->record_bytes);
        const tandem_amax_history *const h = &record->history;
        if (h->updates < 0 || h->updates > MOST_STEPS)
            return out_of_range(error, path, "casts in an amax history", (double)h->updates, "0 to 2^53");
        if (!isfinite(h->before) || (h->before < 0 && h->before != -1))
            return out_of_range(error, path, "range in an amax history", (double)h->before,
                                "0 or above, or -1 for none,");
        for (int i = 0; i < image->window; i++)
            if (!isfinite(h->amax[i]) || h->amax[i] < 0)
                return out_of_range(error, path, "amax in a history", (double)h->amax[i], "0 or above");
    }
    return TANDEM_OK;
}

tandem_status tandem_checkpoint_read(const tandem_checkpoint *checkpoint, const tandem_training_state *state,
                                     const char *path, tandem_error *error)
{
    errno = 0;
    int found = fseek(checkpoint->stream, sizeof(header), SEEK_SET) == 0;
    for (int k = 0; k < state->n_array; k++)
        for (int p = 0; found && p < state->step->graph->n_parameter; p++)
            found = fread(state->array[k] + state->step->parameter_start[p], bytes_of(state, p), 1,
                          checkpoint->stream) == 1;
    const size_t n_running = (size_t)checkpoint->n_rank * (size_t)tandem_running_count(state->step->graph);
    if (found)
        found = fread(state->running, sizeof *state->running, n_running, checkpoint->stream) == n_running;
    if (found && state->histories.n > 0)
        found = fseek(checkpoint->stream, (long)sizeof(trailer), SEEK_CUR) == 0 &&
                fread(state->histories.record, (size_t)tandem_history_image_bytes(&state->histories), 1,
                      checkpoint->stream) == 1;
    return found ? check_records(&state->histories, path, error)
                 : unreadable(error, path, errno ? errno : EIO);
}

tandem_status tandem_checkpoint_inspect(tandem_checkpoint_info *info, const char *path,
                                        const tandem_graph *graph, tandem_error *error)
{
    tandem_checkpoint checkpoint = {0};
    const tandem_status status = tandem_checkpoint_open(&checkpoint, path, graph, error);
    if (status == TANDEM_OK) *info = checkpoint.info;
    tandem_checkpoint_close(&checkpoint);
    return status;
}
