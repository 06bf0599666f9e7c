/* link: --wrap=malloc --wrap=calloc --wrap=realloc --wrap=free --wrap=tandem_graph_open_limited */
/* link: --wrap=tandem_step_open_with --wrap=tandem_step_resolve --wrap=tandem_memory_plan */
/* folder: plugins */
/* What slurmctld's check costs at most. Jobs are drawn, the hardest kinds are made on purpose; none takes
 * more work than a job may, nor does it more than it counts, and what is said of a job is the same each time.
 * `test_check_work N` draws N jobs and prints the one that takes the most work and the one that takes the
 * most CPU time: docs/slurm.md has them. */
#include <inttypes.h>
#include <time.h>

#include "base/philox.h"
#include "graph/zoo/zoo.h"
#include "plugins/slurm/memory_fit.h"
#include "tandem/advanced/step.h"
#include "tests/support/draw.h"
#include "tests/support/tandem_test.h"

enum { SEED = 15, N_BYTE = 160, AGAIN = 7 };
static int n_draw = 200;

/* --- What is done, counted where it is done ------------------------------------------------------------- */

static uint64_t done; /* units */
tandem_status __real_tandem_graph_open_limited(tandem_graph **graph, const char *model, int64_t batch,
                                               int *n_op, tandem_error *error);
tandem_status __wrap_tandem_graph_open_limited(tandem_graph **graph, const char *model, int64_t batch,
                                               int *n_op, tandem_error *error);
tandem_status __real_tandem_step_open_with(tandem_step **step, const tandem_graph *graph,
                                           tandem_dtype amp_dtype, uint64_t bucket,
                                           const tandem_step_options *options, tandem_error *error);
tandem_status __wrap_tandem_step_open_with(tandem_step **step, const tandem_graph *graph,
                                           tandem_dtype amp_dtype, uint64_t bucket,
                                           const tandem_step_options *options, tandem_error *error);
void __real_tandem_step_resolve(tandem_step *step);
void __wrap_tandem_step_resolve(tandem_step *step);
tandem_status __real_tandem_memory_plan(tandem_memory *memory, const tandem_step *step,
                                        const uint64_t *workspace, int64_t *offset, int64_t *workspace_offset,
                                        tandem_error *error);
tandem_status __wrap_tandem_memory_plan(tandem_memory *memory, const tandem_step *step,
                                        const uint64_t *workspace, int64_t *offset, int64_t *workspace_offset,
                                        tandem_error *error);

tandem_status __wrap_tandem_graph_open_limited(tandem_graph **graph, const char *model, int64_t batch,
                                               int *n_op, tandem_error *error)
{
    const tandem_status status = __real_tandem_graph_open_limited(graph, model, batch, n_op, error);
    if (status == TANDEM_OK || status == TANDEM_LIMIT_EXCEEDED)
        done += (uint64_t)*n_op * TANDEM_MEMORY_FIT_BUILD;
    return status;
}

tandem_status __wrap_tandem_step_open_with(tandem_step **step, const tandem_graph *graph,
                                           tandem_dtype amp_dtype, uint64_t bucket,
                                           const tandem_step_options *options, tandem_error *error)
{
    done += (uint64_t)graph->n_op * TANDEM_MEMORY_FIT_LAY_OUT;
    return __real_tandem_step_open_with(step, graph, amp_dtype, bucket, options, error);
}

void __wrap_tandem_step_resolve(tandem_step *step)
{
    done += (uint64_t)step->graph->n_op * TANDEM_MEMORY_FIT_RESOLVE;
    __real_tandem_step_resolve(step);
}

tandem_status __wrap_tandem_memory_plan(tandem_memory *memory, const tandem_step *step,
                                        const uint64_t *workspace, int64_t *offset, int64_t *workspace_offset,
                                        tandem_error *error)
{
    done += (uint64_t)step->graph->n_op * TANDEM_MEMORY_FIT_ASSIGN;
    return __real_tandem_memory_plan(memory, step, workspace, offset, workspace_offset, error);
}

/* --- The search ----------------------------------------------------------------------------------------- */

static double cpu_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

typedef struct found {
    double ms;
    uint64_t work;
    tandem_status status;
    char job[2048];
} found;

typedef struct searching {
    tandem_site *site;
    found slowest, hardest;
    int n, n_over;
} searching;

static double check_check_work(tandem_status *status, uint64_t *work, const tandem_submission *submission,
                               const tandem_site *site)
{
    tandem_error error = {0};
    done = 0;
    const double begin = cpu_ms();
    tandem_work_budget budget = {.limit = TANDEM_SUBMISSION_MAX_WORK};
    *status = tandem_submission_check(&budget, submission, site, &error);
    const double ms = cpu_ms() - begin;
    *work = budget.spent;
    const int is_known =
        *status == TANDEM_OK || *status == TANDEM_LIMIT_EXCEEDED || tandem_submission_is_refused(*status);
    if (!is_known) fail_msg("%s: %s", tandem_status_name(*status), error.text);
    if (done > *work)
        fail_msg("%" PRIu64 " units were done and %" PRIu64 " counted: %s", done, *work, submission->model);
    return ms;
}

static int by_ms(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void keep_check_work(found *best, double ms, uint64_t work, tandem_status status,
                            const tandem_drawn *drawn)
{
    *best = (found){.ms = ms, .work = work, .status = status};
    tandem_drawn_print(best->job, drawn);
}

static void look_at(searching *s, const tandem_drawn *drawn)
{
    tandem_status status;
    uint64_t work = 0;
    double ms = check_check_work(&status, &work, &drawn->submission, s->site);
    s->n++;
    s->n_over += status == TANDEM_LIMIT_EXCEEDED;
    if (work > TANDEM_SUBMISSION_MAX_WORK) {
        char job[2048];
        tandem_drawn_print(job, drawn);
        fail_msg("%" PRIu64 " units of work, %d are allowed: %s", work, TANDEM_SUBMISSION_MAX_WORK, job);
    }
    if (work > s->hardest.work) keep_check_work(&s->hardest, ms, work, status, drawn);
    if (ms <= s->slowest.ms) return;
    double again[AGAIN]; /* once may have been the machine's fault */
    for (int k = 0; k < AGAIN; k++) {
        tandem_status same;
        uint64_t as_much = 0;
        again[k] = check_check_work(&same, &as_much, &drawn->submission, s->site);
        assert_int_equal(same, status);
        assert_int_equal(as_much, work);
    }
    qsort(again, AGAIN, sizeof *again, by_ms);
    if (again[AGAIN / 2] > s->slowest.ms) keep_check_work(&s->slowest, again[AGAIN / 2], work, status, drawn);
}

/* As many blocks as can be, and just fewer, on every kind of device, with memory that is never enough and
 * always. */
static void look_at_the_deepest(searching *s)
{
    static const struct {
        const char *model, *more;
        int limit, step;
    } deep[] = {
        {"gpt2_small:layers=", "", 256, 3},
        {"gpt2_small:layers=", ",dropout=0.1", 256, 3},
        {"bert_base:layers=", ",dropout=0.1", 256, 5},
        {"resnet20:blocks=", "", 64, 3},
        {"mlp:depth=", "", 256, 16},
        {"gpt_tiny:depth=", ",dropout=0.1", 64, 3},
        {"vit_b16:layers=", ",dropout=0.1", 256, 9},
    };
    static const char *const memory[] = {"1B", "900TiB"}, *const batch[] = {"1", "4", "1000", "1048576"};
    tandem_drawn d;
    size_t used = 0;
    for (int k = 0; k < tandem_device_count(); k++) {
        char type[TANDEM_DEVICE_NAME];
        (void)snprintf(type, sizeof type, "%s", tandem_device_get(k)->name);
        for (char *at = type; *at; at++) *at = *at == ':' ? '_' : *at;
        used += (size_t)snprintf(d.resources[0] + used, sizeof d.resources[0] - used, "gpu:%s,", type);
    }
    d.features[0] = '\0';
    const int stride = n_draw > 1000 ? 1 : 12;
    for (size_t m = 0; m < N_OF(deep); m++)
        for (int depth = 1; depth <= deep[m].limit; depth += deep[m].step * stride)
            for (size_t k = 0; k < N_OF(memory); k++)
                for (size_t b = 0; b < N_OF(batch); b++) {
                    d.submission = (tandem_submission){.model = d.model,
                                                       .batch = batch[b],
                                                       .memory = memory[k],
                                                       .resources = {d.resources[0]},
                                                       .features = d.features};
                    (void)snprintf(d.model, sizeof d.model, "%s%d%s", deep[m].model, depth, deep[m].more);
                    look_at(s, &d);
                    d.submission.resources[0] = "gpu:h100"; /* one device: deeper models */
                    look_at(s, &d);
                }
}

static void print(const char *what, const found *f)
{
    (void)printf("# %s: %.1f ms CPU, %" PRIu64 " units, %s:\n#   %s\n", what, f->ms, f->work,
                 tandem_status_name(f->status), f->job);
}

static void no_job_takes_more_work_than_it_may(void **state)
{
    searching s = {0};
    char *text = tandem_draw_site();
    assert_int_equal(tandem_site_parse(&s.site, text, strlen(text), "drawn", NULL), TANDEM_OK);
    free(text);
    look_at_the_deepest(&s);
    for (int k = 0; k < n_draw; k++) {
        uint32_t words[N_BYTE / 4];
        tandem_drawn d;
        for (uint32_t w = 0; w < N_OF(words); w++)
            words[w] = tandem_philox((uint32_t[4]){(uint32_t)k, w, 0, 0}, SEED).word[0];
        tandem_draw_submission(&d, (const uint8_t *)words, sizeof words);
        look_at(&s, &d);
    }
    (void)printf("# %d jobs, seed %d; %d are let through unchecked; %d units of work are allowed\n", s.n,
                 SEED, s.n_over, TANDEM_SUBMISSION_MAX_WORK);
    print("most CPU time", &s.slowest);
    print("most work", &s.hardest);
    assert_true(s.n_over > 0 && s.n_over < s.n);
    tandem_site_close(s.site);
}

int main(int argc, char **argv)
{
    if (argc > 1) n_draw = (int)strtol(argv[1], NULL, 10);
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_job_takes_more_work_than_it_may)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
