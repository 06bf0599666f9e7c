/* checkpoint.c: writes, checks and reads checkpoint files. */
#include "backend/checkpoint.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "base/file.h"
#include "base/hash.h"

enum { CHECKPOINT_MODEL = 128 };
typedef struct checkpoint_header {
    char magic[8];
    uint32_t version, n_array;
    int64_t step;
    uint64_t hash;
    int64_t n_weight;
    char model[CHECKPOINT_MODEL], optimizer[16], train_config[TANDEM_CHECKPOINT_TRAIN_CONFIG];
    int64_t n_running, skipped;
    uint32_t n_rank, good_steps;
    float scale;
    uint32_t array_crc[TANDEM_CHECKPOINT_ARRAYS], running_crc;
    uint32_t crc;
} checkpoint_header;
static_assert(sizeof(checkpoint_header) == 232 + TANDEM_CHECKPOINT_TRAIN_CONFIG &&
                  offsetof(checkpoint_header, crc) == sizeof(checkpoint_header) - 4,
              "the header is the file's first bytes");

/* Before the histories' records. */
typedef struct checkpoint_trailer {
    uint32_t n_record, window, record_crc, crc;
} checkpoint_trailer;
enum { VERSION_WITHOUT_AMAX = 2, MAX_RECORDS = 1 << 18 };
/* a double, in which rates are computed, counts no further */
static const int64_t MAX_STEPS = INT64_C(1) << 53;

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "numbers are written in the order of their bytes in memory");

static const char magic[8] = {'t', 'a', 'n', 'd', 'e', 'm', 'c', 'k'};

static uint32_t update_crc(uint32_t crc, const void *bytes, size_t n)
{
    return (uint32_t)crc32_z(crc, bytes, n);
}
static uint32_t checkpoint_header_crc(const checkpoint_header *h)
{
    return update_crc(0, h, offsetof(checkpoint_header, crc));
}

/* --- Writing -------------------------------------------------------------------------------------------- */

/* A name that has no room, a long path, is kept as a hash of it and its end. */
static void put_model_name(char to[CHECKPOINT_MODEL], const char *model)
{
    enum { TAIL = 100 };
    const size_t n = strlen(model);
    if (n < CHECKPOINT_MODEL)
        memcpy(to, model, n + 1);
    else
        (void)snprintf(to, CHECKPOINT_MODEL, "%016llx…%s",
                       (unsigned long long)tandem_hash_text(TANDEM_HASH_START, model), model + n - TAIL);
}

static const float *parameter_values(const tandem_training_state *state, int k, int p)
{
    return state->array[k] + state->step->parameter_start[p];
}

static size_t parameter_value_bytes(const tandem_training_state *state, int p)
{
    return (size_t)state->step->graph->parameter[p].elements * sizeof(float);
}

uint32_t tandem_checkpoint_crc(const tandem_training_state *state, int k)
{
    uint32_t crc = 0;
    for (int p = 0; p < state->step->graph->n_parameter; p++)
        crc = update_crc(crc, parameter_values(state, k, p), parameter_value_bytes(state, p));
    return crc;
}

static size_t running_stats_bytes(const checkpoint_header *h)
{
    return (size_t)h->n_rank * (size_t)h->n_running * sizeof(float);
}

static checkpoint_header make_checkpoint_header(const tandem_training_state *state, const uint32_t *crc,
                                                int64_t step, const char *train_config)
{
    const tandem_graph *graph = state->step->graph;
    checkpoint_header h = {.version = state->histories.n ? TANDEM_CHECKPOINT_VERSION : VERSION_WITHOUT_AMAX,
                           .n_array = (uint32_t)state->n_array,
                           .step = step,
                           .hash = graph->hash,
                           .n_weight = tandem_graph_n_weight(graph),
                           .n_running = tandem_batchnorm_stats_count(graph),
                           .n_rank = (uint32_t)state->n_rank,
                           .scale = state->loss_scale.scale,
                           .good_steps = (uint32_t)state->loss_scale.good_steps,
                           .skipped = state->loss_scale.skipped};
    memcpy(h.magic, magic, sizeof magic);
    put_model_name(h.model, graph->model);
    (void)snprintf(h.optimizer, sizeof h.optimizer, "%s", tandem_optimizer_name(graph->optimizer.kind));
    (void)snprintf(h.train_config, sizeof h.train_config, "%s", train_config);
    memcpy(h.array_crc, crc, (size_t)state->n_array * sizeof *crc);
    h.running_crc = update_crc(0, state->running_stats, running_stats_bytes(&h));
    h.crc = checkpoint_header_crc(&h);
    return h;
}

static uint32_t checkpoint_trailer_crc(const checkpoint_trailer *t)
{
    return update_crc(0, t, offsetof(checkpoint_trailer, crc));
}

static int write_amax_snapshot(const tandem_amax_snapshot *snapshot, FILE *stream)
{
    if (snapshot->n == 0) return 1;
    const size_t bytes = (size_t)tandem_amax_snapshot_bytes(snapshot);
    checkpoint_trailer t = {.n_record = (uint32_t)snapshot->n, .window = (uint32_t)snapshot->window};
    t.record_crc = update_crc(0, snapshot->record, bytes);
    t.crc = checkpoint_trailer_crc(&t);
    return fwrite(&t, sizeof t, 1, stream) == 1 && fwrite(snapshot->record, bytes, 1, stream) == 1;
}

static tandem_status exchange_array(const tandem_training_state *state, int k, tandem_error *error)
{
    return state->exchange ? state->exchange(state->exchange_context, k, error) : TANDEM_OK;
}

tandem_status tandem_checkpoint_write(const char *path, const tandem_training_state *state,
                                      const uint32_t *crc, int64_t step, const char *train_config,
                                      tandem_error *error)
{
    const checkpoint_header h = make_checkpoint_header(state, crc, step, train_config);
    tandem_file file = {0};
    const tandem_status status = tandem_file_open(&file, path, error);
    if (status != TANDEM_OK) return status;
    const size_t n_running = running_stats_bytes(&h);
    int written = fwrite(&h, sizeof h, 1, file.stream) == 1;
    for (int k = 0; k < state->n_array; k++) {
        const tandem_status exchanged = exchange_array(state, k, error);
        if (exchanged != TANDEM_OK) {
            tandem_file_discard(&file);
            return exchanged;
        }
        for (int p = 0; written && p < state->step->graph->n_parameter; p++)
            written =
                fwrite(parameter_values(state, k, p), parameter_value_bytes(state, p), 1, file.stream) == 1;
    }
    if (written && n_running) written = fwrite(state->running_stats, n_running, 1, file.stream) == 1;
    if (written) (void)write_amax_snapshot(&state->histories, file.stream);
    return tandem_file_finish(&file, error); /* it reports a failed write */
}

/* --- Reading -------------------------------------------------------------------------------------------- */

static tandem_status checkpoint_read_error(tandem_error *error, const char *path, int code)
{
    return tandem_error_set(error, TANDEM_IO, "checkpoint '%.200s' cannot be read: %s", path, strerror(code));
}

static tandem_status checkpoint_crc_error(tandem_error *error, const char *path, const char *part)
{
    return tandem_error_set(
        error, TANDEM_MALFORMED,
        "checkpoint '%.200s' is damaged: its %s do not have the checksum that was written with them", path,
        part);
}

static int is_terminated_text(const char *text, size_t size) { return memchr(text, '\0', size) != NULL; }

/* A file with right checksums may still hold values that no training has, because its writer also writes the
 * checksums. */
static tandem_status checkpoint_range_error(tandem_error *error, const char *path, const char *what,
                                            double got, const char *allowed)
{
    return tandem_error_set(
        error, TANDEM_MALFORMED,
        "checkpoint '%.200s' has %.20g for its %s; %s is allowed: it was not written by tandem, take another",
        path, got, what, allowed);
}

static tandem_status check_header_ranges(const checkpoint_header *h, const char *path, tandem_error *error)
{
    if (h->step < 0 || h->step > MAX_STEPS)
        return checkpoint_range_error(error, path, "steps done", (double)h->step, "0 to 2^53");
    if (h->skipped < 0 || h->skipped > h->step)
        return checkpoint_range_error(error, path, "skipped steps", (double)h->skipped,
                                      "0 to the steps done");
    if (h->good_steps > INT32_MAX || h->good_steps > h->step)
        return checkpoint_range_error(error, path, "steps since the loss scale changed",
                                      (double)h->good_steps, "0 to the steps done");
    if (!(h->scale >= 0 && h->scale <= 0x1p64f) || (h->scale > 0 && !isnormal(h->scale)) || signbit(h->scale))
        return checkpoint_range_error(error, path, "loss scale", (double)h->scale,
                                      "above 0 to 2^64, or 0 where the loss is not scaled,");
    if (h->n_array < 1 || h->n_array > TANDEM_CHECKPOINT_ARRAYS)
        return checkpoint_range_error(error, path, "arrays", (double)h->n_array, "1 to 3");
    if (h->n_rank < 1 || h->n_rank > INT32_MAX)
        return checkpoint_range_error(error, path, "ranks", (double)h->n_rank, "1 to 2^31 - 1");
    if (!is_terminated_text(h->model, sizeof h->model) ||
        !is_terminated_text(h->optimizer, sizeof h->optimizer) ||
        !is_terminated_text(h->train_config, sizeof h->train_config))
        return tandem_error_set(
            error, TANDEM_MALFORMED,
            "checkpoint '%.200s' has a text without an end: it was not written by tandem, take another",
            path);
    return TANDEM_OK;
}

static tandem_status read_checkpoint_header(checkpoint_header *h, FILE *stream, const char *path,
                                            tandem_error *error)
{
    errno = 0;
    const size_t n = fread(h, 1, sizeof *h, stream);
    if (ferror(stream)) return checkpoint_read_error(error, path, errno);
    if (n >= sizeof magic && memcmp(h->magic, magic, sizeof magic) != 0)
        return tandem_error_set(error, TANDEM_WRONG_FORMAT, "'%.200s' is no checkpoint of tandem", path);
    if (n >= sizeof magic + sizeof h->version && h->version != TANDEM_CHECKPOINT_VERSION &&
        h->version != VERSION_WITHOUT_AMAX)
        return tandem_error_set(error, TANDEM_WRONG_FORMAT,
                                "checkpoint '%.200s' is of version %u, this tandem reads versions %d and %d",
                                path, h->version, VERSION_WITHOUT_AMAX, TANDEM_CHECKPOINT_VERSION);
    if (n < sizeof *h)
        return tandem_error_set(
            error, TANDEM_MALFORMED,
            "checkpoint '%.200s' is cut short: it has %zu bytes, less than its header of %zu", path, n,
            sizeof *h);
    return h->crc == checkpoint_header_crc(h) ? check_header_ranges(h, path, error)
                                              : checkpoint_crc_error(error, path, "first bytes");
}

static tandem_status check_checkpoint_graph(const checkpoint_header *h, const char *path,
                                            const tandem_graph *graph, tandem_error *error)
{
    const char *optimizer = tandem_optimizer_name(graph->optimizer.kind);
    char name[CHECKPOINT_MODEL] = "";
    put_model_name(name, graph->model);
    if (strcmp(h->model, name) != 0)
        return tandem_error_set(error, TANDEM_WRONG_MODEL,
                                "checkpoint '%.200s' is of model '%s', this run trains '%s'", path, h->model,
                                graph->model);
    if (strcmp(h->optimizer, optimizer) != 0)
        return tandem_error_set(error, TANDEM_WRONG_MODEL,
                                "checkpoint '%.200s' was trained by optimizer %s, model '%s' has %s here",
                                path, h->optimizer, graph->model, optimizer);
    if (h->hash != graph->hash || h->n_running != tandem_batchnorm_stats_count(graph) ||
        h->n_weight != tandem_graph_n_weight(graph) ||
        (int)h->n_array != 1 + tandem_optimizer_n_state(graph->optimizer.kind))
        return tandem_error_set(
            error, TANDEM_WRONG_MODEL,
            "checkpoint '%.200s' is of a model '%s' with other operators than this tandem's", path, h->model);
    return TANDEM_OK;
}

static uint64_t checkpoint_state_bytes(const checkpoint_header *h)
{
    return sizeof *h + (uint64_t)h->n_array * (uint64_t)h->n_weight * sizeof(float) + running_stats_bytes(h);
}

/* Reads the trailer after the running statistics, and checks that the file ends where it should. */
static tandem_status check_checkpoint_size(tandem_amax_snapshot *snapshot, checkpoint_trailer *t,
                                           const checkpoint_header *h, FILE *stream, const char *path,
                                           tandem_error *error)
{
    struct stat file_stat;
    if (fstat(fileno(stream), &file_stat) != 0) return checkpoint_read_error(error, path, errno);
    uint64_t expected = checkpoint_state_bytes(h);
    if (h->version == TANDEM_CHECKPOINT_VERSION) {
        expected += sizeof *t;
        if ((uint64_t)file_stat.st_size >= expected) {
            if (fseek(stream, (long)checkpoint_state_bytes(h), SEEK_SET) != 0 ||
                fread(t, sizeof *t, 1, stream) != 1 || fseek(stream, (long)sizeof *h, SEEK_SET) != 0)
                return checkpoint_read_error(error, path, errno ? errno : EIO);
            if (t->crc != checkpoint_trailer_crc(t))
                return checkpoint_crc_error(error, path, "amax histories");
            if (t->window < 1 || t->window > TANDEM_AMAX_WINDOW)
                return checkpoint_range_error(error, path, "amax histories' window", t->window, "1 to 1024");
            if (t->n_record > MAX_RECORDS)
                return checkpoint_range_error(error, path, "amax histories per rank", t->n_record,
                                              "0 to 2^18");
            *snapshot = (tandem_amax_snapshot){.n_rank = (int32_t)h->n_rank,
                                               .n = (int32_t)t->n_record,
                                               .window = (int32_t)t->window,
                                               .record_bytes = tandem_amax_record_bytes((int)t->window)};
            expected += tandem_amax_snapshot_bytes(snapshot);
        }
    }
    if ((uint64_t)file_stat.st_size == expected) return TANDEM_OK;
    return tandem_error_set(
        error, TANDEM_MALFORMED, "checkpoint '%.200s' %s: it has %lld bytes, one of model '%s' has %llu",
        path, (uint64_t)file_stat.st_size < expected ? "is cut short" : "is longer than its contents",
        (long long)file_stat.st_size, h->model, (unsigned long long)expected);
}

/* Compares the checksum of the next `left` bytes of the file. */
static tandem_status check_section_crc(FILE *stream, uint64_t remaining, uint32_t expected, const char *part,
                                       const char *path, tandem_error *error)
{
    unsigned char bytes[1 << 16];
    uint32_t crc = 0;
    for (uint64_t n; remaining > 0; remaining -= n) {
        n = remaining < sizeof bytes ? remaining : sizeof bytes;
        errno = 0;
        if (fread(bytes, 1, n, stream) != n) return checkpoint_read_error(error, path, errno ? errno : EIO);
        crc = update_crc(crc, bytes, n);
    }
    return crc == expected ? TANDEM_OK : checkpoint_crc_error(error, path, part);
}

static tandem_status check_checkpoint_crcs(const checkpoint_header *h, const checkpoint_trailer *t,
                                           const tandem_amax_snapshot *snapshot, FILE *stream,
                                           const char *path, tandem_error *error)
{
    static const char *const name[TANDEM_CHECKPOINT_ARRAYS] = {"weights", "optimizer state",
                                                               "second optimizer state"};
    assert(h->n_array <= TANDEM_CHECKPOINT_ARRAYS); /* check_header_ranges checks it */
    tandem_status status = TANDEM_OK;
    for (uint32_t k = 0; k < h->n_array && status == TANDEM_OK; k++)
        status = check_section_crc(stream, (uint64_t)h->n_weight * sizeof(float), h->array_crc[k], name[k],
                                   path, error);
    if (status == TANDEM_OK)
        status = check_section_crc(stream, running_stats_bytes(h), h->running_crc, "running statistics", path,
                                   error);
    if (status != TANDEM_OK || snapshot->n == 0) return status;
    if (fseek(stream, (long)sizeof *t, SEEK_CUR) != 0) return checkpoint_read_error(error, path, errno);
    return check_section_crc(stream, tandem_amax_snapshot_bytes(snapshot), t->record_crc, "amax histories",
                             path, error);
}

tandem_status tandem_checkpoint_open(tandem_checkpoint *checkpoint, const char *path,
                                     const tandem_graph *graph, tandem_error *error)
{
    checkpoint_header h = {0};
    checkpoint_trailer t = {0};
    tandem_amax_snapshot histories = {0};
    FILE *stream = fopen(path, "rbe");
    if (!stream) return checkpoint_read_error(error, path, errno);
    tandem_status status = read_checkpoint_header(&h, stream, path, error);
    if (status == TANDEM_OK) status = check_checkpoint_graph(&h, path, graph, error);
    if (status == TANDEM_OK) status = check_checkpoint_size(&histories, &t, &h, stream, path, error);
    if (status == TANDEM_OK) status = check_checkpoint_crcs(&h, &t, &histories, stream, path, error);
    if (status != TANDEM_OK) {
        (void)fclose(stream);
        return status;
    }
    *checkpoint = (tandem_checkpoint){.stream = stream,
                                      .info = {.step = h.step},
                                      .loss_scale = {h.scale, (int32_t)h.good_steps, h.skipped},
                                      .n_rank = (int)h.n_rank,
                                      .histories = histories};
    memcpy(checkpoint->info.train_config, h.train_config, sizeof h.train_config);
    return TANDEM_OK;
}

void tandem_checkpoint_close(tandem_checkpoint *checkpoint)
{
    if (checkpoint->stream) (void)fclose(checkpoint->stream);
    *checkpoint = (tandem_checkpoint){0};
}

/* The values from which casts take their ranges. */
static tandem_status check_amax_records(const tandem_amax_snapshot *snapshot, const char *path,
                                        tandem_error *error)
{
    for (int64_t k = 0; k < (int64_t)snapshot->n_rank * snapshot->n; k++) {
        const tandem_amax_record *const record =
            (const void *)(snapshot->record + (uint64_t)k * snapshot->record_bytes);
        const tandem_amax_history *const h = &record->history;
        if (h->updates < 0 || h->updates > MAX_STEPS)
            return checkpoint_range_error(error, path, "casts in an amax history", (double)h->updates,
                                          "0 to 2^53");
        if (!isfinite(h->before) || (h->before < 0 && h->before != -1))
            return checkpoint_range_error(error, path, "range in an amax history", (double)h->before,
                                          "0 or above, or -1 for none,");
        for (int i = 0; i < snapshot->window; i++)
            if (!isfinite(h->amax[i]) || h->amax[i] < 0)
                return checkpoint_range_error(error, path, "amax in a history", (double)h->amax[i],
                                              "0 or above");
    }
    return TANDEM_OK;
}

tandem_status tandem_checkpoint_read(const tandem_checkpoint *checkpoint, const tandem_training_state *state,
                                     const char *path, tandem_error *error)
{
    errno = 0;
    int found = fseek(checkpoint->stream, sizeof(checkpoint_header), SEEK_SET) == 0;
    for (int k = 0; found && k < state->n_array; k++) {
        for (int p = 0; found && p < state->step->graph->n_parameter; p++)
            found = fread(state->array[k] + state->step->parameter_start[p], parameter_value_bytes(state, p),
                          1, checkpoint->stream) == 1;
        const tandem_status exchanged = found ? exchange_array(state, k, error) : TANDEM_OK;
        if (exchanged != TANDEM_OK) return exchanged;
    }
    const size_t n_running =
        (size_t)checkpoint->n_rank * (size_t)tandem_batchnorm_stats_count(state->step->graph);
    if (found)
        found = fread(state->running_stats, sizeof *state->running_stats, n_running, checkpoint->stream) ==
                n_running;
    if (found && state->histories.n > 0)
        found = fseek(checkpoint->stream, (long)sizeof(checkpoint_trailer), SEEK_CUR) == 0 &&
                fread(state->histories.record, (size_t)tandem_amax_snapshot_bytes(&state->histories), 1,
                      checkpoint->stream) == 1;
    return found ? check_amax_records(&state->histories, path, error)
                 : checkpoint_read_error(error, path, errno ? errno : EIO);
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
