#include "cli/prediction.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"

tandem_status cli_replayer_open(tandem_replayer **out, const cli_options *options, const cli_subject *subject,
                                tandem_error *error)
{
    const tandem_graph *graph[TANDEM_MAX_CLASS] = {0};
    tandem_store *store = NULL;
    tandem_replayer *replayer = NULL;
    for (int c = 0; c < subject->cluster.n_class; c++) graph[c] = subject->graph[c];
    const tandem_replayer_options choices = {.bucket_bytes = options->bucket_bytes, .predict = options->predict};
    tandem_error missing = {0};
    tandem_status status = tandem_store_open(&store, options->db, TANDEM_STORE_READ, &missing);
    if (status == TANDEM_MISSING && options->predict) status = TANDEM_OK; /* descriptions need no store */
    if (status == TANDEM_OK)
        status = tandem_replayer_open_with(&replayer, &subject->cluster, graph, store, &choices, error);
    else
        *error = missing;
    tandem_store_close(store);
    if (status != TANDEM_OK) return status;
    tandem_replayer_set_plan(replayer, subject->plan);
    *out = replayer;
    return TANDEM_OK;
}

/* --- Where times come from --- */

static double share_of(const tandem_provenance *provenance, int origin)
{
    int64_t sum = 0;
    for (int k = 0; k < TANDEM_N_ORIGIN; k++) sum += provenance->ns[k];
    return sum > 0 ? (double)provenance->ns[origin] / (double)sum : 0;
}

json_t *cli_provenance_json(const tandem_replayer *replayer, int c)
{
    tandem_provenance provenance;
    json_t *costs = json_object();
    tandem_replayer_provenance(replayer, c, &provenance);
    for (int k = 0; k < TANDEM_N_ORIGIN; k++)
        json_object_set_new(costs, tandem_origin_name((tandem_origin)k),
                            json_pack("{s:i,s:f}", "tasks", provenance.n_task[k], "share", share_of(&provenance, k)));
    json_object_set_new(costs, "fitted_to", json_integer((json_int_t)provenance.n_fitted));
    json_object_set_new(costs, "spread", cli_number(provenance.spread));
    return costs;
}

/* What a prediction rests on, behind its share. */
static void append_basis(char *line, size_t size, const tandem_provenance *provenance)
{
    char spread[TANDEM_QUANTITY_TEXT];
    const size_t used = strlen(line);
    if (!provenance->n_fitted)
        (void)snprintf(line + used, size - used, ", from the description alone");
    else if (isnan(provenance->spread))
        (void)snprintf(line + used, size - used, ", from the description and %lld measured costs",
                       (long long)provenance->n_fitted);
    else
        (void)snprintf(line + used, size - used, ", fitted to %lld measured costs that lie %s from the fit",
                       (long long)provenance->n_fitted,
                       tandem_quantity_print_ratio(spread, sizeof spread, provenance->spread));
}

/* Of buckets beyond the measured curve: by which line, and how good it is. */
static void print_exchange(const tandem_exchange *exchange)
{
    char latency[TANDEM_QUANTITY_TEXT], rate[TANDEM_QUANTITY_TEXT] = "any rate", spread[TANDEM_QUANTITY_TEXT];
    if (exchange->n_beyond == 0) return;
    if (exchange->bytes_per_s > 0) tandem_quantity_print_bps(rate, sizeof rate, exchange->bytes_per_s);
    printf("all-reduce: %d buckets beyond the %d points of the curve: %s and %s, from which the upper points lie %s\n",
           exchange->n_beyond, tandem_quantity_print_ns(latency, sizeof latency, llround(exchange->latency_ns)),
           rate, exchange->n_point, tandem_quantity_print_ratio(spread, sizeof spread, exchange->spread));
}

void cli_provenance_print(const tandem_replayer *replayer)
{
    const tandem_cluster *cluster = tandem_replayer_cluster(replayer);
    for (int c = 0; c < cluster->n_class; c++) {
        tandem_provenance provenance;
        char line[256] = "", share[TANDEM_QUANTITY_TEXT];
        tandem_replayer_provenance(replayer, c, &provenance);
        for (int k = 0; k < TANDEM_N_ORIGIN; k++) {
            const size_t used = strlen(line);
            if (provenance.n_task[k])
                (void)snprintf(line + used, sizeof line - used, "%s%s %s (%d tasks)", used ? ", " : "",
                               tandem_quantity_print_ratio(share, sizeof share, share_of(&provenance, k)),
                               tandem_origin_name((tandem_origin)k), provenance.n_task[k]);
        }
        if (provenance.n_task[TANDEM_ORIGIN_PREDICTED]) append_basis(line, sizeof line, &provenance);
        if (strchr(line, ',')) printf("times on %s: %s\n", cluster->member[c].device.name, line);
    }
    print_exchange(tandem_replayer_exchange(replayer));
}

/* --- What low precision harms --- */

const char *cli_harm_method(const cli_options *options)
{
    return options->method ? options->method : "fisher";
}

static tandem_status load(double *harm[TANDEM_MAX_CLASS], tandem_store *store, const cli_options *options,
                          const cli_subject *subject, tandem_error *error)
{
    for (int c = 0; c < subject->cluster.n_class; c++) {
        const tandem_graph *graph = subject->graph[c];
        harm[c] = calloc((size_t)graph->n_op * TANDEM_N_PRECISION, sizeof **harm);
        if (!harm[c]) return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for sensitivities");
        const tandem_status status = tandem_sensitivity_load(harm[c], store, graph, cli_harm_method(options),
                                                             subject->cluster.member[c].device.wider, error);
        if (status != TANDEM_OK) return status;
    }
    return TANDEM_OK;
}

tandem_status cli_harm_load(double *harm[TANDEM_MAX_CLASS], const cli_options *options,
                            const cli_subject *subject, tandem_error *error)
{
    const tandem_sensitivity_method *known;
    double *loaded[TANDEM_MAX_CLASS] = {0};
    tandem_store *store = NULL;
    tandem_status status = tandem_sensitivity_find(&known, cli_harm_method(options), error);
    if (status == TANDEM_OK) status = tandem_store_open(&store, options->db, TANDEM_STORE_READ, error);
    if (status == TANDEM_OK) status = load(loaded, store, options, subject, error);
    tandem_store_close(store);
    if (status == TANDEM_OK)
        memcpy(harm, loaded, sizeof loaded);
    else
        cli_harm_free(loaded);
    return status;
}

void cli_harm_free(double *harm[TANDEM_MAX_CLASS])
{
    for (int c = 0; c < TANDEM_MAX_CLASS; c++) {
        free(harm[c]);
        harm[c] = NULL;
    }
}

uint64_t cli_memory_limit(const cli_subject *subject, int c)
{
    const tandem_cluster_class *member = &subject->cluster.member[c];
    return member->memory_bytes ? member->memory_bytes : member->device.memory_bytes;
}
