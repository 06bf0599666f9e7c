/* whatif_timeline.c: the step and the ideal of a job, one beside the other, as JSON that Perfetto opens. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "profiles/json_write.h"
#include "replayer/whatif_model.h"

enum { STEP, IDEAL, N_VIEW };
static const char *const view_name[N_VIEW] = {"step", "ideal"};

typedef struct writing {
    const whatif_model *model;
    FILE *stream;
    int64_t n_event;
    int64_t *ready_ns[N_VIEW], *end_ns[N_VIEW]; /* [largest step] */
} writing;

/* Microseconds with three decimals. */
static void write_us(FILE *stream, const char *member, int64_t ns)
{
    (void)fprintf(stream, ",\"%s\":%" PRId64 ".%03d", member, ns / 1000, (int)(ns % 1000));
}

static void write_name(writing *w, const char *kind, int process, int lane, const char *view, const char *name)
{
    char text[TANDEM_WHATIF_NAME + 16];
    (void)snprintf(text, sizeof text, "%s%s%s", view, *view ? ": " : "", name);
    (void)fprintf(w->stream, "%s{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":",
                  w->n_event++ ? ",\n" : "\n", kind, process, lane);
    tandem_json_write_text(w->stream, text);
    (void)fputs("}}", w->stream);
}

static void write_names(writing *w)
{
    const whatif_model *const model = w->model;
    for (int worker = 0; worker < model->n_worker; worker++)
        for (int view = 0; view < N_VIEW; view++) {
            const int process = N_VIEW * worker + view; /* one under the other */
            write_name(w, "process_name", process, 0, view_name[view], model->worker_name[worker].text);
            for (int lane = 0; lane < model->n_lane; lane++)
                write_name(w, "thread_name", process, lane, "", model->lane_name[lane]);
        }
}

static void write_op(writing *w, int step, int op, int view, int64_t origin_ns)
{
    const whatif_model *const model = w->model;
    const int i = op - model->first[step];
    const int64_t ready_ns = w->ready_ns[view][i], length_ns = w->end_ns[view][i] - ready_ns;
    const int64_t duration_ns = (view == STEP ? model->actual_ns : model->ideal_ns)[op];
    (void)fprintf(w->stream, "%s{\"ph\":\"X\",\"name\":", w->n_event++ ? ",\n" : "\n");
    tandem_json_write_text(w->stream, model->op_name[op]);
    (void)fprintf(w->stream, ",\"cat\":\"%s\",\"pid\":%d,\"tid\":%d", view_name[view],
                  N_VIEW * model->worker[op] + view, model->lane[op]);
    write_us(w->stream, "ts", origin_ns + ready_ns);
    write_us(w->stream, "dur", length_ns);
    (void)fprintf(w->stream, ",\"args\":{\"step\":%" PRId64, model->number[step]);
    write_us(w->stream, "wait_us", length_ns - duration_ns);
    (void)fputs("}}", w->stream);
}

static tandem_status write_steps(writing *w, tandem_error *error)
{
    const whatif_model *const model = w->model;
    int64_t origin_ns = 0;
    for (int s = 0; s < model->n_step; s++) {
        const int first = model->first[s];
        int64_t length_ns[N_VIEW] = {0};
        for (int view = 0; view < N_VIEW; view++) {
            const tandem_status status =
                tandem_engine_run(model->engine[s], (view == STEP ? model->actual_ns : model->ideal_ns) + first,
                                  w->ready_ns[view], w->end_ns[view], &length_ns[view], error);
            if (status != TANDEM_OK) return status;
            for (int op = first; op < model->first[s + 1]; op++) write_op(w, s, op, view, origin_ns);
        }
        origin_ns += length_ns[STEP] > length_ns[IDEAL] ? length_ns[STEP] : length_ns[IDEAL];
    }
    return TANDEM_OK;
}

tandem_status whatif_write_timeline(const char *path, const whatif_model *model, tandem_error *error)
{
    writing w = {.model = model};
    tandem_file file = {0};
    tandem_status status = TANDEM_OK;
    size_t most = 1;
    for (int s = 0; s < model->n_step; s++)
        if ((size_t)(model->first[s + 1] - model->first[s]) > most)
            most = (size_t)(model->first[s + 1] - model->first[s]);
    for (int view = 0; view < N_VIEW; view++) {
        w.ready_ns[view] = malloc(most * sizeof(int64_t));
        w.end_ns[view] = malloc(most * sizeof(int64_t));
        if (!w.ready_ns[view] || !w.end_ns[view])
            status = tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for the timeline");
    }
    if (status == TANDEM_OK) status = tandem_file_open(&file, path, error);
    if (status != TANDEM_OK) goto out;
    w.stream = file.stream;
    (void)fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", w.stream);
    write_names(&w);
    status = write_steps(&w, error);
    (void)fputs("\n]}\n", w.stream);
    if (status == TANDEM_OK) status = tandem_file_finish(&file, error);
out:
    tandem_file_discard(&file);
    for (int view = 0; view < N_VIEW; view++) {
        free(w.ready_ns[view]);
        free(w.end_ns[view]);
    }
    return status;
}
