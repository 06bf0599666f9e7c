/* folder: backend */
/* Checkpoints of any bytes, and of good ones that were edited and given the right checksums again: an error,
 * or a state within its ranges. The first byte says which (0: any bytes); the rest is the file, or edits of
 * four bytes and up: where (two bytes, from the beginning or, from 0x8000 on, from the end), how many (0: cut
 * or prolonged there), and those bytes. */
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "backend/checkpoint.h"
#include "tests/fuzz/fuzz_main.h"

enum {
    HEADER = 232 + TANDEM_CHECKPOINT_TRAIN_CONFIG,
    TRAILER = 16,
    MAX_BYTES = 1 << 16,
    RANKS = 2,
    CASTS = 2,
    WINDOW = 3
};

static struct {
    tandem_graph *graph;
    tandem_step *step;
    uint8_t good_steps[2][MAX_BYTES]; /* without histories, and with them */
    size_t n_good[2], arrays, running_stats;
    int file; /* in memory */
    char path[32];
} set;

static void *some(size_t bytes)
{
    void *const block = calloc(1, bytes ? bytes : 1);
    demand(block != NULL, "there is memory");
    return block;
}

static tandem_training_state open_state(int n_rank)
{
    tandem_training_state state = {.step = set.step, .n_array = 2, .n_rank = n_rank};
    for (int k = 0; k < state.n_array; k++) state.array[k] = some((size_t)set.step->n_flat * sizeof(float));
    state.running_stats =
        some((size_t)n_rank * (size_t)tandem_batchnorm_stats_count(set.graph) * sizeof(float));
    return state;
}

static void close_state(tandem_training_state *state)
{
    for (int k = 0; k < state->n_array; k++) free(state->array[k]);
    free(state->running_stats);
    free(state->histories.record);
}

static void make_good(int with_histories)
{
    static const uint32_t crc[TANDEM_CHECKPOINT_ARRAYS]; /* mended with each input */
    tandem_training_state state = open_state(RANKS);
    state.loss_scale = (tandem_loss_scale){1024, 5, 1};
    if (with_histories) {
        state.histories =
            (tandem_amax_snapshot){RANKS, CASTS, WINDOW, tandem_amax_record_bytes(WINDOW), NULL};
        state.histories.record = some((size_t)tandem_amax_snapshot_bytes(&state.histories));
    }
    demand(tandem_checkpoint_write(set.path, &state, crc, 12, "seed: 7\n", NULL) == TANDEM_OK,
           "it can be written");
    const off_t bytes = lseek(set.file, 0, SEEK_END);
    demand(bytes > 0 && bytes < MAX_BYTES - 256, "a small file");
    set.n_good[with_histories] = (size_t)bytes;
    demand(pread(set.file, set.good_steps[with_histories], MAX_BYTES, 0) == bytes, "it can be read");
    demand(ftruncate(set.file, 0) == 0, "it can be emptied");
    close_state(&state);
}

static void set_up_fuzz_checkpoint(void)
{
    if (set.graph) return;
    demand(tandem_graph_open(&set.graph, "resnet20:blocks=1,width=1,image=4x4x1", 2, NULL) == TANDEM_OK,
           "a model");
    demand(tandem_step_open(&set.step, set.graph, TANDEM_F32, 0, NULL) == TANDEM_OK, "a step");
    set.arrays = (size_t)tandem_graph_n_weight(set.graph) * sizeof(float);
    set.running_stats = (size_t)tandem_batchnorm_stats_count(set.graph) * sizeof(float);
    set.file = memfd_create("checkpoint", MFD_CLOEXEC);
    (void)snprintf(set.path, sizeof set.path, "/proc/self/fd/%d", set.file);
    demand(set.file >= 0, "a file in memory");
    make_good(0);
    make_good(1);
}

static void put_crc(uint8_t *at, const uint8_t *bytes, size_t n)
{
    const uint32_t crc = (uint32_t)crc32_z(0, bytes, n);
    memcpy(at, &crc, sizeof crc);
}

/* The checksums of what the file now holds, as far as it goes. */
static void mend(uint8_t *file, size_t n)
{
    const size_t body_end = HEADER + 2 * set.arrays + RANKS * set.running_stats;
    if (n < HEADER) return;
    for (size_t k = 0; k < 2 && HEADER + (k + 1) * set.arrays <= n; k++)
        put_crc(file + HEADER - 20 + 4 * k, file + HEADER + k * set.arrays, set.arrays);
    if (body_end <= n) put_crc(file + HEADER - 8, file + HEADER + 2 * set.arrays, RANKS * set.running_stats);
    if (body_end + TRAILER <= n) {
        put_crc(file + body_end + 8, file + body_end + TRAILER, n - body_end - TRAILER);
        put_crc(file + body_end + 12, file + body_end, 12);
    }
    put_crc(file + HEADER - 4, file, HEADER - 4);
}

static size_t edit_fuzz_checkpoint(uint8_t *file, size_t n, const uint8_t *data, size_t size)
{
    while (size >= 4 && n > 0) {
        const size_t said = (size_t)data[0] | (size_t)data[1] << 8, length = data[2];
        const size_t from = said & 0x7fff, at = said < 0x8000 ? from % n : n - 1 - from % n;
        data += 3;
        size -= 3;
        if (length == 0) { /* the file ends there, or so many bytes later */
            const size_t to = said < 0x8000 ? at : n + data[0];
            if (to > n) memset(file + n, data[0], to < MAX_BYTES ? to - n : MAX_BYTES - n);
            n = to < MAX_BYTES ? to : MAX_BYTES;
            continue;
        }
        const size_t put = length < size ? length : size, room = put < n - at ? put : n - at;
        memcpy(file + at, data, room);
        data += put;
        size -= put;
    }
    return n;
}

static void check_records(const tandem_amax_snapshot *image)
{
    for (int64_t k = 0; k < (int64_t)image->n_rank * image->n; k++) {
        const tandem_amax_record *record = (const void *)(image->record + (uint64_t)k * image->record_bytes);
        demand(record->history.updates >= 0 && isfinite(record->history.before), "a history's counts");
        for (int i = 0; i < image->window; i++)
            demand(isfinite(record->history.amax[i]) && record->history.amax[i] >= 0, "a history's amax");
    }
}

static void check_open(const tandem_checkpoint *checkpoint, size_t n)
{
    const tandem_loss_scale *s = &checkpoint->loss_scale;
    demand(checkpoint->info.step >= 0 && s->skipped >= 0 && s->skipped <= checkpoint->info.step, "steps");
    demand(s->good_steps >= 0 && isfinite(s->scale) && s->scale >= 0, "a loss scale");
    demand(memchr(checkpoint->info.train_config, 0, sizeof checkpoint->info.train_config) != NULL,
           "a text ends");
    const uint64_t records = tandem_amax_snapshot_bytes(&checkpoint->histories);
    demand(checkpoint->n_rank >= 1 && (uint64_t)checkpoint->n_rank * set.running_stats + records < n,
           "no more than it holds");
    tandem_training_state state = open_state(checkpoint->n_rank);
    tandem_error error = {0};
    state.histories = checkpoint->histories;
    state.histories.record = some((size_t)records);
    const tandem_status status = tandem_checkpoint_read(checkpoint, &state, set.path, &error);
    demand(status == TANDEM_OK || (status == TANDEM_MALFORMED && error.text[0]), "it is read, or refused");
    if (status == TANDEM_OK) check_records(&state.histories);
    close_state(&state);
}

static void check_file_fuzz_checkpoint(const uint8_t *bytes, size_t n)
{
    tandem_checkpoint checkpoint = {.n_rank = -7};
    tandem_error error = {0};
    demand(ftruncate(set.file, 0) == 0 && pwrite(set.file, bytes, n, 0) == (ssize_t)n, "it can be written");
    const tandem_status status = tandem_checkpoint_open(&checkpoint, set.path, set.graph, &error);
    if (status == TANDEM_OK) {
        check_open(&checkpoint, n);
        tandem_checkpoint_close(&checkpoint);
        return;
    }
    demand(status == TANDEM_MALFORMED || status == TANDEM_WRONG_FORMAT || status == TANDEM_WRONG_MODEL,
           "malformed");
    demand(error.status == status && error.text[0], "an error has a text");
    demand(checkpoint.n_rank == -7 && !checkpoint.stream, "the output is untouched");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t file[MAX_BYTES];
    set_up_fuzz_checkpoint();
    if (size < 1) return 0;
    if (data[0] == 0) {
        check_file_fuzz_checkpoint(data + 1, size - 1);
        return 0;
    }
    const int which = data[0] & 1;
    memcpy(file, set.good_steps[which], set.n_good[which]);
    const size_t n = edit_fuzz_checkpoint(file, set.n_good[which], data + 1, size - 1);
    if (data[0] & 2) mend(file, n);
    check_file_fuzz_checkpoint(file, n);
    return 0;
}

int main(int argc, char **argv)
{
    enum { LOW = (HEADER - 40) & 255, HIGH = (HEADER - 40) >> 8 }; /* skipped, n_rank, good, scale */
    static const uint8_t good[] = {2}, with[] = {3}, none[] = {0, 't', 'a', 'n', 'd', 'e', 'm', 'c', 'k', 3};
    static const uint8_t scale[] = {2, LOW + 16, HIGH, 4, 0, 0, 0xc0, 0x7f},
                         steps[] = {2, 16, 0, 8, 9, 0, 0, 0, 0, 0, 0, 1};
    static const uint8_t ranks[] = {3, LOW + 8, HIGH, 4, 255, 255, 255, 127},
                         cut[] = {3, 100, 0x80, 4, 1, 2, 3, 4, 20, 0, 0, 0};
    static const uint8_t *const seeds[] = {good, with, none, scale, steps, ranks, cut};
    static const size_t n[] = {sizeof good,  sizeof with,  sizeof none, sizeof scale,
                               sizeof steps, sizeof ranks, sizeof cut};
    return tandem_fuzz_main("checkpoint", LLVMFuzzerTestOneInput, seeds, n, 7, argc, argv);
}
