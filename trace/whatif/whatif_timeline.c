/* whatif_timeline.c: writes step and ideal step of a job as Chrome trace JSON, one below the other. */
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "profiles/format/chrome.h"
#include "trace/whatif/whatif_model.h"

enum { STEP, IDEAL, N_VIEW };
static const char *const view_name[N_VIEW] = {"step", "ideal"};

typedef struct timeline_writer {
    const whatif_model *model;
    tandem_chrome chrome;
    int64_t *ready_ns[N_VIEW], *end_ns[N_VIEW]; /* [largest step] */
} timeline_writer;

static void write_timeline_process(timeline_writer *w, int process, const char *view, const char *name)
{
    char text[TANDEM_WHATIF_NAME + 16];
    (void)snprintf(text, sizeof text, "%s: %s", view, name);
    tandem_chrome_name(&w->chrome, "process_name", process, 0, text);
}

static void write_timeline_names(timeline_writer *w)
{
    const whatif_model *const model = w->model;
    for (int worker = 0; worker < model->n_worker; worker++)
        for (int view = 0; view < N_VIEW; view++) {
            const int process = N_VIEW * worker + view; /* one below the other */
            write_timeline_process(w, process, view_name[view], model->worker_name[worker].text);
            for (int track = 0; track < model->n_track; track++)
                tandem_chrome_name(&w->chrome, "thread_name", process, track, model->track_name[track]);
        }
}

static void write_timeline_op(timeline_writer *w, int step, int op, int view, int64_t origin_ns)
{
    const whatif_model *const model = w->model;
    const int i = op - model->first[step];
    const int64_t ready_ns = w->ready_ns[view][i], length_ns = w->end_ns[view][i] - ready_ns;
    const int64_t duration_ns = (view == STEP ? model->actual_ns : model->ideal_ns)[op];
    tandem_chrome_event(&w->chrome, 'X', model->op_name[op], view_name[view],
                        N_VIEW * model->worker[op] + view, model->track[op], origin_ns + ready_ns);
    tandem_chrome_put(&w->chrome, ",\"dur\":");
    tandem_chrome_us(&w->chrome, length_ns);
    tandem_chrome_put(&w->chrome, ",\"args\":{\"step\":");
    tandem_chrome_integer(&w->chrome, model->number[step]);
    tandem_chrome_put(&w->chrome, ",\"wait_us\":");
    tandem_chrome_us(&w->chrome, length_ns - duration_ns);
    tandem_chrome_put(&w->chrome, "}}");
}

static tandem_status write_timeline_steps(timeline_writer *w, tandem_error *error)
{
    const whatif_model *const model = w->model;
    int64_t origin_ns = 0;
    for (int s = 0; s < model->n_step; s++) {
        const int first = model->first[s];
        int64_t length_ns[N_VIEW] = {0};
        for (int view = 0; view < N_VIEW; view++) {
            const tandem_status status = tandem_dag_simulator_run(
                model->simulator[s], (view == STEP ? model->actual_ns : model->ideal_ns) + first,
                w->ready_ns[view], w->end_ns[view], &length_ns[view], error);
            if (status != TANDEM_OK) return status;
            for (int op = first; op < model->first[s + 1]; op++) write_timeline_op(w, s, op, view, origin_ns);
        }
        origin_ns += length_ns[STEP] > length_ns[IDEAL] ? length_ns[STEP] : length_ns[IDEAL];
    }
    return TANDEM_OK;
}

static tandem_status open_timeline_writer(timeline_writer *w, const whatif_model *model)
{
    size_t max = 1;
    for (int s = 0; s < model->n_step; s++)
        if ((size_t)(model->first[s + 1] - model->first[s]) > max)
            max = (size_t)(model->first[s + 1] - model->first[s]);
    w->model = model;
    for (int view = 0; view < N_VIEW; view++) {
        w->ready_ns[view] = malloc(max * sizeof(int64_t));
        w->end_ns[view] = malloc(max * sizeof(int64_t));
        if (!w->ready_ns[view] || !w->end_ns[view]) return TANDEM_NO_MEMORY;
    }
    return TANDEM_OK;
}

tandem_status whatif_write_timeline(const char *path, const whatif_model *model, tandem_error *error)
{
    tandem_file file = {0};
    timeline_writer *const w = calloc(1, sizeof *w);
    tandem_status status = w ? open_timeline_writer(w, model) : TANDEM_NO_MEMORY;
    if (status != TANDEM_OK) {
        status = tandem_error_set(error, status, "no memory for the timeline");
        goto out;
    }
    status = tandem_file_open(&file, path, error);
    if (status != TANDEM_OK) goto out;
    tandem_chrome_begin(&w->chrome, file.stream, NULL);
    write_timeline_names(w);
    status = write_timeline_steps(w, error);
    tandem_chrome_end(&w->chrome);
    if (status == TANDEM_OK) status = tandem_file_finish(&file, error);
out:
    tandem_file_discard(&file);
    for (int view = 0; view < N_VIEW && w; view++) {
        free(w->ready_ns[view]);
        free(w->end_ns[view]);
    }
    free(w);
    return status;
}
