/* whatif_torch.c: traces of the PyTorch profiler: where a step's time goes, and which rank the others wait
 * for. */
#include <stdio.h>

#include "base/quantity.h"
#include "cli/table.h"
#include "cli/command/whatif.h"
#include "tandem/advanced/torch_trace.h"

enum { ROWS = 15 /* of operators and collectives, unless -v is given */ };

void whatif_print_negative(int64_t n)
{
    if (n > 0)
        printf("%lld negative duration%s, from clocks that differ, count as 0\n", (long long)n,
               n == 1 ? "" : "s");
}

static double time_share(int64_t part_ns, int64_t whole_ns)
{
    return whole_ns > 0 ? (double)part_ns / (double)whole_ns : 0;
}

/* Mean over the ranks of their mean step. */
static int64_t mean_step_ns(const tandem_torch_summary *torch)
{
    int64_t sum_ns = 0;
    for (int k = 0; k < torch->n_rank; k++) sum_ns += torch->rank[k].mean.duration_ns / torch->n_rank;
    return sum_ns;
}

static int64_t count_rank_steps(const tandem_torch_summary *torch)
{
    int64_t n = 0;
    for (int k = 0; k < torch->n_rank; k++) n += torch->rank[k].n_step;
    return n;
}

/* Per step and rank. */
static int64_t ns_per_step(const tandem_torch_summary *torch, int64_t sum_ns)
{
    const int64_t n = count_rank_steps(torch);
    return n > 0 ? sum_ns / n : 0;
}

/* Within whole steps: what lies beside them must not count as a part of them. */
static int64_t torch_cost_ns(const tandem_torch_summary *torch, const tandem_torch_cost *cost)
{
    return torch->is_device ? cost->step_device_ns : cost->step_self_ns;
}

static int64_t count_negative_durations(const tandem_torch_summary *torch)
{
    int64_t n = 0;
    for (int k = 0; k < torch->n_rank; k++) n += torch->rank[k].n_negative;
    return n;
}

static int64_t cast_ns_per_step(const tandem_torch_summary *torch)
{
    int64_t sum_ns = 0;
    for (int k = 0; k < torch->n_operator; k++)
        if (torch->operators[k].is_cast) sum_ns += torch_cost_ns(torch, &torch->operators[k].cost);
    return ns_per_step(torch, sum_ns);
}

/* --- For people ----------------------------------------------------------------------------------------- */

static void print_torch_excess(const tandem_torch_summary *torch)
{
    if (torch->excess < 0) return;
    const tandem_torch_operator *const op = &torch->operators[torch->excess];
    printf("It spends %s per step more than the other ranks on %s (%s).\n",
           tandem_quantity_ns(torch->excess_ns).text, op->name, tandem_torch_pass_name(op->pass));
}

static void print_torch_cause(const tandem_torch_summary *torch)
{
    const tandem_torch_rank *const slowest = &torch->rank[torch->slowest];
    if (torch->n_rank == 1) return;
    if (torch->n_joined == 0)
        printf("Rank %d computes longest. No collective was recorded by more than one rank, so the "
               "waits are unknown.\n",
               slowest->rank);
    else if (slowest->n_last == 0)
        printf("No rank is later than the others at any of %lld collectives.\n", (long long)torch->n_joined);
    else
        printf("Rank %d is last at %lld of %lld collectives, %s per step later than the next: "
               "without that the step would be up to %.1f%% shorter.\n",
               slowest->rank, (long long)slowest->n_last, (long long)torch->n_joined,
               tandem_quantity_ns(slowest->late_ns).text,
               100 * time_share(slowest->late_ns, slowest->mean.duration_ns));
    if (torch->n_joined == 0 || slowest->n_last > 0) print_torch_excess(torch);
}

static int print_torch_ranks(const tandem_torch_summary *torch)
{
    cli_table table = {0};
    cli_table_row(&table, "rank\t>steps\t>step\t>computes\t>communicates\t>exposed\t>idle\t>waits for "
                          "others\t>late by\t>last");
    for (int k = 0; k < torch->n_rank; k++) {
        const tandem_torch_rank *const rank = &torch->rank[k];
        const tandem_torch_step *const mean = &rank->mean;
        cli_table_row(&table, "%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%lld", rank->rank, rank->n_step,
                      tandem_quantity_ns(mean->duration_ns).text, tandem_quantity_ns(mean->compute_ns).text,
                      tandem_quantity_ns(mean->comm_ns).text, tandem_quantity_ns(mean->exposed_ns).text,
                      tandem_quantity_ns(mean->idle_ns).text, tandem_quantity_ns(rank->wait_ns).text,
                      tandem_quantity_ns(rank->late_ns).text, (long long)rank->n_last);
    }
    putchar('\n');
    return cli_table_finish(&table);
}

static int print_torch_operators(const tandem_torch_summary *torch, int max_rows)
{
    const int64_t step_ns = mean_step_ns(torch);
    int n = 0; /* the others have no part in a whole step, and come last */
    while (n < torch->n_operator &&
           (torch->operators[n].cost.step_calls || torch_cost_ns(torch, &torch->operators[n].cost)))
        n++;
    cli_table table = {0};
    if (n == 0) return 0;
    cli_table_row(&table, "operator\tpass\t>%s per step\t>of the step\t>calls per step\tsignature",
                  torch->is_device ? "on the device" : "itself");
    for (int k = 0; k < n && k < max_rows; k++) {
        const tandem_torch_operator *const op = &torch->operators[k];
        const int64_t cost_ns = ns_per_step(torch, torch_cost_ns(torch, &op->cost));
        cli_table_row(&table, "%.60s%s\t%s\t%s\t%.2f%%\t%.1f\t%.80s", op->name, op->is_cast ? " (cast)" : "",
                      tandem_torch_pass_name(op->pass), tandem_quantity_ns(cost_ns).text,
                      100 * time_share(cost_ns, step_ns),
                      (double)op->cost.step_calls / (double)count_rank_steps(torch), op->signature);
    }
    putchar('\n');
    const int code = cli_table_finish(&table);
    if (n > max_rows) printf("… and %d more (-v)\n", n - max_rows);
    return code;
}

static int print_torch_collectives(const tandem_torch_summary *torch, int max_rows)
{
    cli_table table = {0};
    if (torch->n_collective == 0) return 0;
    cli_table_row(&table, "collective\t>joined\t>transfer\t>wait per step\tsize and members");
    for (int k = 0; k < torch->n_collective && k < max_rows; k++) {
        const tandem_torch_collective *const collective = &torch->collective[k];
        cli_table_row(&table, "%.60s\t%lld\t%s\t%s\t%.80s", collective->name, (long long)collective->n,
                      tandem_quantity_ns(collective->transfer_ns).text,
                      tandem_quantity_ns(ns_per_step(torch, collective->wait_ns)).text,
                      collective->signature);
    }
    putchar('\n');
    const int code = cli_table_finish(&table);
    if (torch->n_collective > max_rows) printf("… and %d more (-v)\n", torch->n_collective - max_rows);
    return code;
}

/* --- What was left out: always said --------------------------------------------------------------------- */

/* ns < 0: it has no time. */
static void print_left_out(const tandem_torch_rank *rank, const char *what, int64_t n, int64_t ns)
{
    if (n == 0) return;
    printf("rank %d: %s: %lld", rank->rank, what, (long long)n);
    if (ns >= 0) printf(", %s in all", tandem_quantity_ns(ns).text);
    putchar('\n');
}

/* Every kernel belongs to an operator or is counted here. */
static void print_torch_kernels(const tandem_torch_rank *rank)
{
    const tandem_torch_left_out *const out = &rank->left_out;
    if (rank->n_kernel == 0) return;
    printf("rank %d: kernels and copies: %lld on %d device%s, %d stream%s, of which %lld belong to operators",
           rank->rank, (long long)rank->n_kernel, rank->n_device, rank->n_device == 1 ? "" : "s",
           rank->n_stream, rank->n_stream == 1 ? "" : "s",
           (long long)(rank->n_kernel - out->n_without_operator));
    if (out->n_by_id) printf(" (%lld by External id, without a launch)", (long long)out->n_by_id);
    if (out->n_without_operator)
        printf("; without an operator: %lld, %s in all", (long long)out->n_without_operator,
               tandem_quantity_ns(out->without_operator_ns).text);
    putchar('\n');
    print_left_out(rank, "kernels without a recorded launch, which count where they begin",
                   out->n_without_launch, -1);
}

static void print_torch_fragments(const tandem_torch_rank *rank)
{
    for (int k = 0; k < rank->n_fragment; k++)
        printf("rank %d: step %lld is a fragment (%s, %lld kernels) and does not count\n", rank->rank,
               (long long)rank->fragment[k].number, tandem_quantity_ns(rank->fragment[k].duration_ns).text,
               (long long)rank->fragment[k].n_kernel);
}

static void print_torch_rest(const tandem_torch_rank *rank, int n_rank)
{
    const tandem_torch_left_out *const out = &rank->left_out;
    print_left_out(rank, "kernels launched in no step, which do not count", out->n_outside, out->outside_ns);
    print_left_out(rank, "kernels launched in fragments, which do not count", out->n_in_fragment,
                   out->in_fragment_ns);
    print_left_out(rank, "calls of operators in no whole step, which do not count", out->n_call_outside,
                   out->call_outside_ns);
    if (n_rank > 1) {
        print_left_out(rank, "collectives in no whole step, which are not joined", out->n_collective_outside,
                       -1);
        print_left_out(rank, "collectives without partners in the other files", rank->n_unjoined, -1);
    }
    if (out->n_unknown)
        printf("rank %d: slices of unknown categories, which do not count: %lld, %s in all: %s\n", rank->rank,
               (long long)out->n_unknown, tandem_quantity_ns(out->unknown_ns).text, out->unknown);
    print_left_out(rank, "begin and end events (ph B and E), which are not read", out->n_pair, -1);
    print_left_out(rank, "slices without name, ts or dur, which are skipped", rank->n_incomplete, -1);
    print_left_out(rank, "slices that end after the slice in which they begin", rank->n_overlapping, -1);
    print_left_out(rank, "slices beyond the first 2097152 kernels, launches or operators, which do not count",
                   out->n_beyond, out->beyond_ns);
    if (rank->mean.early_ns)
        printf("rank %d: %s per step run beside the end of the step before\n", rank->rank,
               tandem_quantity_ns(rank->mean.early_ns).text);
    if (rank->joined_ns)
        printf("rank %d: busy times are too long by up to %s in total\n", rank->rank,
               tandem_quantity_ns(rank->joined_ns).text);
}

static void print_torch_left_out(const tandem_torch_summary *torch)
{
    for (int k = 0; k < torch->n_rank; k++) {
        const tandem_torch_rank *const rank = &torch->rank[k];
        if (rank->step[0].number < 0)
            printf("rank %d: no ProfilerStep#: the whole trace counts as one step\n", rank->rank);
        if (torch->is_device && !rank->is_device)
            printf("rank %d: no kernels: it computes where its host does\n", rank->rank);
        print_torch_kernels(rank);
        print_torch_fragments(rank);
        print_torch_rest(rank, torch->n_rank);
    }
    if (torch->n_by_order)
        printf("collectives without sequence numbers, joined by their order within the step: %lld of %lld\n",
               (long long)torch->n_by_order, (long long)torch->n_joined);
}

static int print_torch_text(const tandem_torch_summary *torch, const cli_options *options)
{
    const int max_rows = options->details ? torch->n_operator : ROWS;
    printf("%d rank%s of the PyTorch profiler, %s; step %s, of which casts %s\n", torch->n_rank,
           torch->n_rank > 1 ? "s" : "", torch->is_device ? "kernels of a device" : "operators on the host",
           tandem_quantity_ns(mean_step_ns(torch)).text, tandem_quantity_ns(cast_ns_per_step(torch)).text);
    whatif_print_negative(count_negative_durations(torch));
    if (!options->quiet) print_torch_left_out(torch); /* JSON has it always */
    print_torch_cause(torch);
    int code = print_torch_ranks(torch);
    if (!code) code = print_torch_collectives(torch, options->details ? torch->n_collective : ROWS);
    if (!code) code = print_torch_operators(torch, max_rows);
    return code;
}

/* --- JSON ----------------------------------------------------------------------------------------------- */

static json_t *torch_step_json(const tandem_torch_step *step)
{
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "step", (json_int_t)step->number, "step_ns",
                     (json_int_t)step->duration_ns, "compute_ns", (json_int_t)step->compute_ns, "comm_ns",
                     (json_int_t)step->comm_ns, "exposed_comm_ns", (json_int_t)step->exposed_ns, "idle_ns",
                     (json_int_t)step->idle_ns, "early_ns", (json_int_t)step->early_ns, "kernels",
                     (json_int_t)step->n_kernel);
}

/* Numbers and times of what the results do not hold. */
static json_t *torch_left_out_json(const tandem_torch_rank *rank)
{
    const tandem_torch_left_out *const out = &rank->left_out;
    const struct {
        const char *name;
        int64_t value;
    } members[] = {{"kernels_without_operator", out->n_without_operator},
                   {"kernels_without_operator_ns", out->without_operator_ns},
                   {"kernels_without_launch", out->n_without_launch},
                   {"kernels_by_external_id", out->n_by_id},
                   {"kernels_in_no_step", out->n_outside},
                   {"kernels_in_no_step_ns", out->outside_ns},
                   {"kernels_in_fragments", out->n_in_fragment},
                   {"kernels_in_fragments_ns", out->in_fragment_ns},
                   {"calls_in_no_step", out->n_call_outside},
                   {"calls_in_no_step_ns", out->call_outside_ns},
                   {"collectives_in_no_step", out->n_collective_outside},
                   {"unknown_slices", out->n_unknown},
                   {"unknown_slices_ns", out->unknown_ns},
                   {"begin_end_events", out->n_pair},
                   {"beyond_limits", out->n_beyond},
                   {"beyond_limits_ns", out->beyond_ns}};
    json_t *const object = json_object();
    for (size_t k = 0; k < sizeof members / sizeof *members; k++)
        json_object_set_new(object, members[k].name, json_integer(members[k].value));
    json_object_set_new(object, "unknown_categories", json_string(out->unknown));
    return object;
}

static json_t *torch_rank_json(const tandem_torch_rank *rank)
{
    json_t *const steps = json_array(), *const object = torch_step_json(&rank->mean);
    for (int k = 0; k < rank->n_step; k++) json_array_append_new(steps, torch_step_json(&rank->step[k]));
    json_object_del(object, "step");
    json_t *const fragments = json_array();
    for (int k = 0; k < rank->n_fragment; k++)
        json_array_append_new(fragments, torch_step_json(&rank->fragment[k]));
    json_object_set_new(object, "kernels", json_integer(rank->n_kernel));
    json_object_set_new(object, "kernels_ns", json_integer(rank->kernel_ns));
    json_object_set_new(object, "devices", json_integer(rank->n_device));
    json_object_set_new(object, "streams", json_integer(rank->n_stream));
    json_object_set_new(object, "rank", json_integer(rank->rank));
    json_object_set_new(object, "file", json_string(rank->path));
    json_object_set_new(object, "wait_ns", json_integer(rank->wait_ns));
    json_object_set_new(object, "late_ns", json_integer(rank->late_ns));
    json_object_set_new(object, "last", json_integer(rank->n_last));
    json_object_set_new(object, "events", json_integer(rank->n_event));
    json_object_set_new(object, "incomplete", json_integer(rank->n_incomplete));
    json_object_set_new(object, "negative", json_integer(rank->n_negative));
    json_object_set_new(object, "overlapping", json_integer(rank->n_overlapping));
    json_object_set_new(object, "unjoined", json_integer(rank->n_unjoined));
    json_object_set_new(object, "busy_error_ns", json_integer(rank->joined_ns));
    json_object_set_new(object, "left_out", torch_left_out_json(rank));
    json_object_set_new(object, "fragments", fragments);
    json_object_set_new(object, "steps", steps);
    return object;
}

static json_t *torch_cost_json(const tandem_torch_cost *cost)
{
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "calls", (json_int_t)cost->calls, "total_ns",
                     (json_int_t)cost->total_ns, "self_ns", (json_int_t)cost->self_ns, "device_ns",
                     (json_int_t)cost->device_ns, "step_calls", (json_int_t)cost->step_calls, "step_self_ns",
                     (json_int_t)cost->step_self_ns, "step_device_ns", (json_int_t)cost->step_device_ns);
}

static json_t *torch_operator_json(const tandem_torch_summary *torch, const tandem_torch_operator *op)
{
    json_t *const object = torch_cost_json(&op->cost), *const ranks = json_array();
    for (int k = 0; k < torch->n_rank; k++) json_array_append_new(ranks, torch_cost_json(&op->rank[k]));
    json_object_set_new(object, "name", json_string(op->name));
    json_object_set_new(object, "signature", json_string(op->signature));
    json_object_set_new(object, "pass", json_string(tandem_torch_pass_name(op->pass)));
    json_object_set_new(object, "cast", json_boolean(op->is_cast));
    json_object_set_new(object, "ranks", ranks);
    return object;
}

static int print_torch_json(const tandem_torch_summary *torch)
{
    json_t *const object = cli_json_new("whatif"), *const ranks = json_array(),
                  *const operators = json_array(), *const collectives = json_array();
    const tandem_torch_rank *const slowest = &torch->rank[torch->slowest];
    const int64_t step_ns = mean_step_ns(torch), ideal_ns = step_ns - slowest->late_ns;
    for (int k = 0; k < torch->n_rank; k++) json_array_append_new(ranks, torch_rank_json(&torch->rank[k]));
    for (int k = 0; k < torch->n_operator; k++)
        json_array_append_new(operators, torch_operator_json(torch, &torch->operators[k]));
    for (int k = 0; k < torch->n_collective; k++) {
        const tandem_torch_collective *const collective = &torch->collective[k];
        json_array_append_new(collectives,
                              json_pack("{s:s,s:s,s:I,s:I,s:I}", "name", collective->name, "signature",
                                        collective->signature, "joined", (json_int_t)collective->n,
                                        "transfer_ns", (json_int_t)collective->transfer_ns, "wait_ns",
                                        (json_int_t)collective->wait_ns));
    }
    json_object_set_new(object, "recording", json_string("torch"));
    json_object_set_new(object, "device", json_boolean(torch->is_device));
    json_object_set_new(object, "slowdown",
                        cli_json_number(ideal_ns > 0 ? (double)step_ns / (double)ideal_ns : 1));
    json_object_set_new(object, "step_ns", json_integer(step_ns));
    json_object_set_new(object, "ideal_step_ns", json_integer(ideal_ns));
    json_object_set_new(object, "casts_ns", json_integer(cast_ns_per_step(torch)));
    json_object_set_new(object, "slowest_rank", json_integer(slowest->rank));
    json_object_set_new(object, "joined", json_integer(torch->n_joined));
    json_object_set_new(object, "joined_by_order", json_integer(torch->n_by_order));
    json_object_set_new(object, "negative_durations", json_integer(count_negative_durations(torch)));
    if (torch->excess >= 0)
        json_object_set_new(object, "excess",
                            json_pack("{s:s,s:s,s:s,s:I}", "operator", torch->operators[torch->excess].name,
                                      "signature", torch->operators[torch->excess].signature, "pass",
                                      tandem_torch_pass_name(torch->operators[torch->excess].pass), "ns",
                                      (json_int_t)torch->excess_ns));
    json_object_set_new(object, "ranks", ranks);
    json_object_set_new(object, "collectives", collectives);
    json_object_set_new(object, "by_operator", operators);
    return cli_print_json(object);
}

int whatif_torch(const cli_options *options)
{
    tandem_error error = {0};
    tandem_torch_summary *torch = NULL;
    if (options->trace)
        return cli_fail_with(
            TANDEM_USAGE,
            "--trace needs a pipeline job (CSV), a step of tandem or Chakra; '%s' is from the "
            "PyTorch profiler",
            options->word[0]);
    if (tandem_torch_read(&torch, options->word, options->n_word, &error) != TANDEM_OK)
        return cli_fail(&error);
    const int code = options->json ? print_torch_json(torch) : print_torch_text(torch, options);
    tandem_torch_close(torch);
    return code;
}
