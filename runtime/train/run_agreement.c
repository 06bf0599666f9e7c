#include "runtime/train/run_agreement.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/plain_text.h"

static void put_version(FILE *to) { fprintf(to, "version: %s\n", TANDEM_VERSION); }

/* A hash of a file's first `max` bytes. A file that cannot be read has 0: who opens it says why. */
static uint64_t hash_file_begin(const char *path, uint64_t max)
{
    enum { PIECE = 1 << 20 };
    FILE *const file = fopen(path, "rbe");
    unsigned char *piece = file ? malloc(PIECE) : NULL;
    uint64_t hash = TANDEM_HASH_START, done = 0;
    for (size_t n; piece && done < max && (n = fread(piece, 1, PIECE, file)) > 0; done += n)
        hash = tandem_hash_bytes(hash, piece, n);
    if (file) (void)fclose(file);
    free(piece);
    return piece ? hash : 0;
}

static void put_file(FILE *to, const char *key, const char *path, uint64_t max)
{
    if (path)
        fprintf(to, "%s: a file with hash %016" PRIx64 "\n", key, hash_file_begin(path, max));
    else
        fprintf(to, "%s: none\n", key);
}

/* What decides which collectives the ranks make, and when. */
static void put_course(FILE *to, const tandem_workload *workload, const tandem_train_request *request)
{
    /* a checkpoint begins with checksums of all that follows */
    enum { CHECKPOINT_BEGIN = 1 << 20 };
    fprintf(to, "steps: %" PRId64 "\n", request->steps);
    if (request->data && request->evaluate > 0)
        fprintf(to, "evaluation: of %" PRId64 " samples, every %" PRId64 " steps, 0 = at the end\n",
                request->evaluate, request->evaluate_every);
    else
        fprintf(to, "evaluation: none\n");
    fprintf(to, "evaluation in: %s\n", request->evaluate_in_plan ? "the plan" : "fp32");
    fprintf(to, "evaluation again in: %s\n", request->evaluate_in ? request->evaluate_in : "none");
    if (request->checkpoint)
        fprintf(to, "checkpoints: every %" PRId64 " steps, 0 = at the end\n", request->checkpoint_every);
    else
        fprintf(to, "checkpoints: none\n");
    fprintf(to, "exported weights: %s\n", request->exported ? "at the end" : "none");
    fprintf(to, "times of tasks: %s%s\n", request->per_task ? "by operator" : "not by operator",
            request->trace ? ", and as a trace" : "");
    for (int c = 0; c < workload->cluster.n_class && request->workload.emulate; c++)
        fprintf(to, "class %d emulates a device of %s\n", c,
                tandem_dtype_name(workload->cluster.classes[c].device.amp_dtype));
    fprintf(to, "recomputed segments: %d\n", workload->plan->step.n_recompute_segment);
    fprintf(to, "ZeRO: %d, shards %s\n", request->zero, request->shards ? request->shards : "even");
    put_file(to, "resumed checkpoint", request->resume, CHECKPOINT_BEGIN);
    put_file(to, "initial weights", request->init, UINT64_MAX);
}

/* What else decides when a run ends, and under which plan. */
static void put_choices(FILE *to, const tandem_train_request *request)
{
    char limit[32];
    (void)tandem_plain_print(limit, sizeof limit, "%.9g", 100 * request->max_sensitivity);
    fprintf(to, "losses that are not finite: %s\n", request->allow_nan ? "end nothing" : "end the run");
    if (!request->reestimate)
        fputs("sensitivities: are not estimated again\n", to);
    else if (request->max_sensitivity < 0)
        fprintf(to, "sensitivities: again every %" PRId64 " steps, 0 = rarely; least time to the same loss\n",
                request->reestimate_every);
    else
        fprintf(to, "sensitivities: again every %" PRId64 " steps, 0 = rarely; at most %s %%\n",
                request->reestimate_every, limit);
}

/* Variables by which the libraries that compute change fp32 itself. */
static void put_environment(FILE *to)
{
    static const char *const variable[] = {"ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE"};
    for (size_t k = 0; k < sizeof variable / sizeof *variable; k++) {
        const char *value = getenv(variable[k]);
        fprintf(to, "%s: %.100s\n", variable[k], value && *value ? value : "not set");
    }
}

/* --- Whole ---------------------------------------------------------------------------------------------- */

/* Closes the stream, and gives its text away. */
static tandem_status finish_text(char **text, FILE *stream, char **written, tandem_error *error)
{
    const int has_failed = !stream || ferror(stream);
    if ((stream && fclose(stream) != 0) || has_failed || !*written) {
        free(*written);
        return tandem_no_memory(error, "for what the ranks compare");
    }
    *text = *written;
    return TANDEM_OK;
}

tandem_status run_agreement_make(char **text, const training_rank *rank, const tandem_workload *workload,
                                 const tandem_train_request *request, tandem_error *error)
{
    enum { CONFIG_TEXT = 16384 };
    const tandem_graph *graph = workload->graph[0];
    char *written = NULL, *config = malloc(CONFIG_TEXT);
    size_t size = 0;
    FILE *to = config ? open_memstream(&written, &size) : NULL;
    if (to) {
        put_version(to);
        fprintf(to, "model: %s, operators %016" PRIx64 "\n", graph->model, graph->hash);
        train_config_print_all(config, CONFIG_TEXT, &rank->config, workload, request,
                               request->data ? &rank->data : NULL, rank->data_hash);
        fputs(config, to);
        put_course(to, workload, request);
        put_choices(to, request);
        put_environment(to);
    }
    free(config);
    return finish_text(text, to, &written, error);
}

tandem_status run_agreement_make_of(char **text, const char *lines, tandem_error *error)
{
    char *written = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&written, &size);
    if (to) {
        put_version(to);
        fputs(lines, to);
        put_environment(to);
    }
    return finish_text(text, to, &written, error);
}
