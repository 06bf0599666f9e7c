#include "cli/prediction.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/append.h"
#include "base/quantity.h"

tandem_request cli_planner_request(const cli_options *options)
{
    return (tandem_request){.store = options->db,
                            .method = options->method,
                            .base_precision = options->base_precision,
                            .bucket_bytes = options->bucket_bytes,
                            .collective = options->collective,
                            .step = options->step,
                            .predict = options->predict,
                            .kernels = options->kernels,
                            .loss_scale = options->loss_scale,
                            .without_update = options->without_update};
}

tandem_status cli_planner_open(tandem_planner **planner, const cli_options *options,
                               const tandem_workload *workload, int times_only, tandem_error *error)
{
    tandem_request request = cli_planner_request(options);
    request.times_only = times_only;
    return tandem_planner_open_workload(planner, &request, workload, error);
}

int cli_method_is_percent(const char *method) { return strcmp(cli_method_unit(method), " %") == 0; }

json_t *cli_peak_json(uint64_t bytes) { return bytes ? json_integer((json_int_t)bytes) : json_null(); }

const char *cli_method_unit(const char *method)
{
    static char text[32];
    const tandem_sensitivity_method *row = NULL;
    const int is_known = tandem_sensitivity_find(&row, method, NULL) == TANDEM_OK;
    if (!is_known || strcmp(row->unit, "none") == 0) return "";
    (void)snprintf(text, sizeof text, " %s", row->unit);
    return text;
}

const char *cli_method_text(const char *method)
{
    static char text[64];
    const char *unit = cli_method_unit(method);
    (void)snprintf(text, sizeof text, "%s,%s", method, *unit ? unit : " no unit");
    return text;
}

/* --- Where times come from --- */

static double origin_share(const tandem_provenance *provenance, int origin)
{
    int64_t sum = 0;
    for (int k = 0; k < TANDEM_N_ORIGIN; k++) sum += provenance->ns[k];
    return sum > 0 ? (double)provenance->ns[origin] / (double)sum : 0;
}

static json_t *interval_cards_json(const tandem_provenance *provenance)
{
    json_t *const cards = json_array();
    for (const char *at = provenance->interval_cards; *at; at += strcspn(at, " ") + 1)
        json_array_append_new(cards, json_stringn(at, strcspn(at, " ")));
    return cards;
}

json_t *cli_cost_sources_json(const tandem_time_sources *sources, int c)
{
    const tandem_provenance *provenance = &sources->of[c];
    json_t *costs = json_object();
    for (int k = 0; k < TANDEM_N_ORIGIN; k++)
        json_object_set_new(
            costs, tandem_origin_name((tandem_origin)k),
            json_pack("{s:i,s:f}", "tasks", provenance->n_task[k], "share", origin_share(provenance, k)));
    json_object_set_new(costs, "fitted_to", json_integer((json_int_t)provenance->n_fitted));
    json_object_set_new(costs, "contradicting", json_integer((json_int_t)provenance->n_contradicting));
    json_object_set_new(costs, "spread", cli_json_number(provenance->spread));
    json_object_set_new(costs, "kernels", json_string(tandem_kernel_set_name(provenance->kernels)));
    json_object_set_new(costs, "without_update", json_boolean(provenance->without_update));
    json_object_set_new(costs, "form_interval_80", cli_json_number(provenance->form_interval));
    json_object_set_new(costs, "interval_rows", json_integer((json_int_t)provenance->interval_rows));
    json_object_set_new(costs, "interval_error", cli_json_number(provenance->interval_error));
    json_object_set_new(costs, "interval_cards", interval_cards_json(provenance));
    return costs;
}

int cli_cost_sources_digits(const tandem_time_sources *sources)
{
    for (int c = 0; c < sources->n_class; c++)
        if (sources->of[c].n_task[TANDEM_ORIGIN_PREDICTED]) return 2;
    return 3;
}

int cli_profile_interval_digits(double interval) { return interval >= 0.05 ? 2 : 3; }

void cli_profile_interval_print(double interval)
{
    if (interval >= 0.02)
        printf("the profile is sure to %s of the step: the machine was not steady\n",
               tandem_quantity_ratio(interval).text);
}

json_t *cli_provenance_json(const tandem_replayer *replayer, int c)
{
    tandem_time_sources sources;
    tandem_replayer_sources(replayer, &sources);
    return cli_cost_sources_json(&sources, c);
}

/* Appends what the predicted times are based on. */
static void append_fit_source(char *line, size_t size, const tandem_provenance *provenance)
{
    if (!provenance->n_fitted)
        (void)tandem_append(line, size, ", from the description alone");
    else if (isnan(provenance->spread))
        (void)tandem_append(line, size, ", from the description and %lld measured costs",
                            (long long)provenance->n_fitted);
    else
        (void)tandem_append(line, size, ", fitted to %lld measured costs, which differ from the fit by %s",
                            (long long)provenance->n_fitted, tandem_quantity_ratio(provenance->spread).text);
    if (provenance->n_contradicting)
        (void)tandem_append(line, size,
                            ", %lld of which contradict its datasheet by more than 3 x and are left out",
                            (long long)provenance->n_contradicting);
    if (provenance->kernels != TANDEM_KERNELS_TANDEM)
        (void)tandem_append(line, size, ", of %s's kernels%s", tandem_kernel_set_name(provenance->kernels),
                            provenance->without_update ? " without the update" : "");
    if (!isnan(provenance->form_interval))
        (void)tandem_append(line, size, ", within %.0f%% in 80%% of cases", 100 * provenance->form_interval);
}

/* Prints the algorithms or the measured curve of all-reduces, and the quality of its fit. */
static void print_allreduce_sources(const tandem_time_sources *sources)
{
    const tandem_allreduce_source *source = &sources->allreduce;
    char rate[TANDEM_QUANTITY_TEXT] = "any rate";
    int n = 0;
    for (int k = 0; k < TANDEM_N_COLLECTIVE_ALGORITHM; k++)
        if (source->n_by_algorithm[k])
            printf("%s%d %s",
                   n++ ? ", " : "all-reduces over the cluster's links: ", source->n_by_algorithm[k],
                   tandem_collective_algorithm_name((tandem_collective_algorithm)k));
    if (n) putchar('\n');
    if (n && sources->is_net_within_nodes)
        puts("inside nodes net= holds, too: give link= or node= if devices of a node are joined faster");
    if (!source->n_point) return;
    if (source->bytes_per_s > 0) tandem_quantity_print_bps(rate, sizeof rate, source->bytes_per_s);
    printf("all-reduces from a measured curve of %d points; its upper part differs by %s from a "
           "line of %s and %s",
           source->n_point, tandem_quantity_ratio(source->spread).text,
           tandem_quantity_ns(llround(source->latency_ns)).text, rate);
    if (source->n_extrapolated) printf("; %d buckets are extrapolated on that line", source->n_extrapolated);
    putchar('\n');
}

/* What the times of class c are based on; "" or one source alone if that is all. */
static void write_sources(char *line, size_t size, const tandem_provenance *provenance)
{
    *line = '\0';
    for (int k = 0; k < TANDEM_N_ORIGIN; k++)
        if (provenance->n_task[k])
            (void)tandem_append(line, size, "%s%s %s (%d tasks)", *line ? ", " : "",
                                tandem_quantity_ratio(origin_share(provenance, k)).text,
                                tandem_origin_name((tandem_origin)k), provenance->n_task[k]);
    if (provenance->n_task[TANDEM_ORIGIN_PREDICTED]) append_fit_source(line, size, provenance);
}

/* Which cards the intervals rest on, one line for all classes. */
static void print_interval_sources(const tandem_time_sources *sources)
{
    for (int c = 0; c < sources->n_class; c++) {
        const tandem_provenance *const one = &sources->of[c];
        int is_repeated = isnan(one->form_interval);
        for (int before = 0; before < c; before++)
            is_repeated |= strcmp(sources->device[before], sources->device[c]) == 0;
        if (is_repeated) continue;
        char cards[TANDEM_INTERVAL_CARDS];
        int n = 0;
        (void)snprintf(cards, sizeof cards, "%s", one->interval_cards);
        for (const char *at = cards; *at; at++) n += *at == ' ';
        if (n > 0) cards[strlen(cards) - 1] = '\0';
        printf(
            "the interval on %s rests on %lld rows of %d card%s (%s); left out of the fit, a row was off by "
            "%s on average\n",
            sources->device[c], (long long)one->interval_rows, n, n == 1 ? "" : "s", cards,
            tandem_quantity_ratio(one->interval_error).text);
    }
}

void cli_cost_sources_print(const tandem_time_sources *sources)
{
    char line[TANDEM_MAX_CLASS][384];
    for (int c = 0; c < sources->n_class; c++) {
        int is_told = 0;
        write_sources(line[c], sizeof line[c], &sources->of[c]);
        for (int k = 0; k < c; k++)
            is_told |= strcmp(sources->device[k], sources->device[c]) == 0 && strcmp(line[k], line[c]) == 0;
        if (strchr(line[c], ',') && !is_told) printf("times on %s: %s\n", sources->device[c], line[c]);
    }
    print_interval_sources(sources);
    print_allreduce_sources(sources);
}

void cli_provenance_print(const tandem_replayer *replayer)
{
    tandem_time_sources sources;
    tandem_replayer_sources(replayer, &sources);
    cli_cost_sources_print(&sources);
}
