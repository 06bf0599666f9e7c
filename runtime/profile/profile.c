/* profile.c: measures the costs of a workload on its devices: as one rank, or by starting all of them. */
#include "runtime/profile/profile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/quantity.h"
#include "runtime/train/training_rank.h"

static const int64_t longest_sweep_ns = INT64_C(120000000000);

/* --- Stages of one rank --------------------------------------------------------------------------------- */

/* The co-runner of this rank: the device of the first other rank. */
static const char *co_runner_of(const profile_rank *rank)
{
    const int other = rank->self.rank == 0 ? 1 : 0;
    return rank->workload->cluster.classes[tandem_cluster_class_of(&rank->workload->cluster, other)]
        .device.name;
}

/* Measures the device alone, with algorithms of earlier profiles or newly tuned ones. */
static tandem_status profile_own_costs(profile_rank *rank, tandem_profile_count *count, tandem_error *error)
{
    int n = 0;
    tandem_status status = training_rank_load_algorithms(
        rank->backend, rank->worker, rank->request->remeasure ? NULL : rank->store, 1, error);
    if (status == TANDEM_OK) status = profile_costs(rank, "", count, error);
    const tandem_algorithm *tuned = rank->backend->worker_tuned_algorithms(rank->worker, &n);
    return status == TANDEM_OK ? tandem_store_put_algorithms(rank->store, tuned, n, error) : status;
}

/* One rank at a time; the others wait in a barrier, which uses no core time. */
static tandem_status profile_alone(profile_rank *rank, tandem_profile_count *count, tandem_error *error)
{
    for (int turn = 0; turn < rank->self.n_rank; turn++) {
        tandem_status status = turn == rank->self.rank ? profile_own_costs(rank, count, error) : TANDEM_OK;
        if (status == TANDEM_OK) status = rank->backend->worker_barrier(rank->worker, error);
        if (status != TANDEM_OK) return status;
    }
    return TANDEM_OK;
}

static tandem_status profile_stages(profile_rank *rank, tandem_profile_report *report,
                                    tandem_profile_count *allreduce, tandem_error *error)
{
    const int measures_costs = !rank->request->allreduce_only, is_alone = rank->self.n_rank == 1;
    tandem_status status = measures_costs ? profile_alone(rank, &report->alone, error) : TANDEM_OK;
    if (is_alone || status != TANDEM_OK) return status;
    if (measures_costs) status = profile_costs(rank, co_runner_of(rank), &report->contended, error);
    if (status == TANDEM_OK) status = rank->backend->worker_barrier(rank->worker, error);
    if (status == TANDEM_OK && measures_costs)
        status = profile_updates(rank, co_runner_of(rank), &report->contended, error);
    if (status == TANDEM_OK) status = profile_allreduce(rank, allreduce, error);
    return status;
}

static void finish_report(tandem_profile_report *report, const profile_rank *rank)
{
    const tandem_steadiness *s = &rank->steadiness;
    (void)snprintf(report->device, sizeof report->device, "%s", rank->device);
    report->clocks = rank->clocks;
    report->event_ns = rank->event_ns;
    report->compute_spread = s->compute_spread;
    report->memory_spread = s->memory_spread;
    report->delay_share = s->delay_share;
    report->steal_share = s->steal_share;
    report->interval_share = s->interval_share;
}

/* All ranks; result->rank has room for each of them. */
static tandem_status profile_and_gather(profile_rank *rank, tandem_profile_result *result,
                                        tandem_error *error)
{
    tandem_profile_report own = {.event_ns = -1};
    tandem_status status = profile_stages(rank, &own, &result->allreduce, error);
    finish_report(&own, rank);
    return status == TANDEM_OK
               ? rank->backend->worker_gather(rank->worker, &own, result->rank, sizeof own, error)
               : status;
}

static tandem_status sweep_here(profile_rank *rank, tandem_workload *workload, tandem_profile_result *result,
                                tandem_error *error)
{
    const tandem_status status = profile_sweep(rank, workload, result, error);
    finish_report(&result->rank[0], rank);
    return status;
}

static tandem_status profile_one_rank(tandem_profile_result *result, tandem_workload *workload,
                                      const tandem_profile_request *request, tandem_error *error)
{
    const int64_t begin = tandem_now_ns(), sweep_end_ns = request->sweep_ns ? begin + request->sweep_ns : 0;
    profile_rank rank = {.request = request,
                         .workload = workload,
                         .self = request->place,
                         .steadiness = {0, 0, NAN, NAN, NAN, NAN, NAN},
                         .event_ns = -1,
                         .sweep_end_ns = sweep_end_ns};
    tandem_profile_result out = {.n_rank = request->place.n_rank};
    out.rank = calloc((size_t)out.n_rank, sizeof *out.rank);
    tandem_status status =
        out.rank ? profile_rank_open(&rank, error) : tandem_no_memory(error, "for %d ranks", out.n_rank);
    if (status == TANDEM_OK)
        status =
            sweep_end_ns ? sweep_here(&rank, workload, &out, error) : profile_and_gather(&rank, &out, error);
    if (!sweep_end_ns) (void)snprintf(out.model, sizeof out.model, "%s", workload->graph[0]->model);
    out.ns = tandem_now_ns() - begin;
    profile_rank_close(&rank);
    if (status == TANDEM_OK && request->place.rank == 0)
        *result = out;
    else
        tandem_profile_result_free(&out);
    return status;
}

/* --- Checks --------------------------------------------------------------------------------------------- */

static tandem_status check_profile_ranks(const tandem_profile_request *request,
                                         const tandem_workload *workload, tandem_error *error)
{
    const int n_rank = tandem_cluster_n_rank(&workload->cluster);
    if (n_rank > PROFILE_MAX_RANKS)
        return tandem_error_set(error, TANDEM_USAGE, "a profile has at most %d ranks, got %d",
                                (int)PROFILE_MAX_RANKS, n_rank);
    if (n_rank == 1 && request->allreduce_only)
        return tandem_error_set(error, TANDEM_USAGE, "--allreduce-only needs two ranks, got one");
    if (request->place.n_rank && request->place.n_rank != n_rank)
        return tandem_error_set(error, TANDEM_USAGE, "WORLD_SIZE is %d, but the profile has %d ranks",
                                request->place.n_rank, n_rank);
    return TANDEM_OK;
}

/* Creates the store before ranks open it together, and checks it. */
static tandem_status check_before_start(const tandem_profile_request *request,
                                        const tandem_workload *workload, tandem_error *error)
{
    for (int c = 0; c < workload->cluster.n_class; c++) {
        const tandem_status status = runtime_device_require(workload->cluster.classes[c].device.name, error);
        if (status != TANDEM_OK) return status;
    }
    if (!runtime_backend(error)) return TANDEM_MISSING;
    tandem_store *store = NULL;
    const tandem_status status = tandem_store_open(&store, request->store, TANDEM_STORE_WRITE, error);
    tandem_store_close(store);
    return status;
}

/* A sweep has no model: its workload is one device. */
static tandem_status open_sweep_device(tandem_workload *workload, const tandem_profile_request *request,
                                       tandem_error *error)
{
    char got[TANDEM_QUANTITY_TEXT];
    const char *device = request->workload.cluster;
    if (request->sweep_ns > longest_sweep_ns)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "--sweep=%s is too long; a sweep takes at most 120s. Another one goes on where "
            "it ended",
            tandem_quantity_print_ns(got, sizeof got, request->sweep_ns));
    if (!device)
        return tandem_error_set(error, TANDEM_USAGE,
                                "--sweep needs a device. Use e.g. --device strongest (tandem list devices)");
    const tandem_status status = tandem_cluster_parse(&workload->cluster, device, error);
    if (status != TANDEM_OK) return status;
    if (tandem_cluster_n_rank(&workload->cluster) == 1) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE,
                            "--sweep measures one device at a time, got %s. Run it for each of them", device);
}

static tandem_status open_profile_workload(tandem_workload *workload, const tandem_profile_request *request,
                                           tandem_error *error)
{
    if (request->sweep_ns) return open_sweep_device(workload, request, error);
    const tandem_status status = tandem_workload_open(workload, &request->workload, error);
    if (status != TANDEM_OK) return status;
    /* of plans that will need a loss scale, the norm is a part of the step */
    if (workload->loss_scale == 0 && tandem_cluster_may_need_loss_scale(&workload->cluster)) {
        workload->loss_scale = -1;
        workload->plan->step.with_norm = 1;
    }
    return check_profile_ranks(request, workload, error);
}

/* --- Between processes ---------------------------------------------------------------------------------- */

static void pack_profile_request(packet *p, void *of)
{
    tandem_profile_request *request = of;
    packet_value(p, request, sizeof *request);
    workload_request_pack(p, &request->workload);
    packet_text(p, &request->store);
    packet_text(p, &request->data);
}

static void pack_profile_result(packet *p, tandem_profile_result *result)
{
    packet_value(p, result, sizeof *result);
    packet_array(p, &result->rank, (size_t)result->n_rank, sizeof *result->rank);
}

static tandem_status run_profile_verb(packet *answer, void *of, const tandem_rank_place *place,
                                      const tandem_listener *listener, tandem_error *error)
{
    tandem_profile_request request = *(const tandem_profile_request *)of;
    tandem_profile_result result = {.n_rank = 0};
    request.place = *place;
    request.listener = *listener;
    const tandem_status status = tandem_profile(&result, &request, error);
    if (status == TANDEM_OK && place->rank == 0) pack_profile_result(answer, &result);
    tandem_profile_result_free(&result);
    return status;
}

const rank_verb profile_verb = {.name = "profile",
                                .request_bytes = sizeof(tandem_profile_request),
                                .pack_request = pack_profile_request,
                                .run = run_profile_verb};

/* --- Public --------------------------------------------------------------------------------------------- */

static void note_sweep(const tandem_profile_request *request, const tandem_workload *workload)
{
    char time[TANDEM_QUANTITY_TEXT];
    if (request->sweep_ns)
        runtime_note(&request->listener,
                     "a sweep of %s takes %s; one that is stopped keeps what it has measured",
                     workload->cluster.classes[0].device.name,
                     tandem_quantity_print_ns(time, sizeof time, request->sweep_ns));
}

static tandem_status profile_on_ranks(tandem_profile_result *result, const tandem_workload *workload,
                                      const tandem_profile_request *request, tandem_error *error)
{
    packet answer = {0};
    tandem_profile_request copy = *request;
    tandem_profile_result read = {.n_rank = 0};
    tandem_status status = check_before_start(request, workload, error);
    if (status == TANDEM_OK) note_sweep(request, workload);
    if (status == TANDEM_OK) status = profile_warn_of_unsteady_machine(request, error);
    if (status == TANDEM_OK)
        status = ranks_run(&answer, &profile_verb, &copy, &workload->cluster,
                           tandem_cluster_n_rank(&workload->cluster), &request->listener, error);
    if (status == TANDEM_OK) {
        pack_profile_result(&answer, &read);
        if (answer.has_failed) status = tandem_no_memory(error, "for the result of a profile");
    }
    packet_free(&answer);
    if (status == TANDEM_OK)
        *result = read;
    else
        tandem_profile_result_free(&read);
    return status;
}

tandem_status tandem_profile(tandem_profile_result *result, const tandem_profile_request *request,
                             tandem_error *error)
{
    tandem_workload workload = {.loss_scale = 0};
    tandem_status status = open_profile_workload(&workload, request, error);
    if (status == TANDEM_OK)
        status = request->place.n_rank ? profile_one_rank(result, &workload, request, error)
                                       : profile_on_ranks(result, &workload, request, error);
    tandem_workload_close(&workload);
    return status;
}

void tandem_profile_result_free(tandem_profile_result *result)
{
    free(result->rank);
    *result = (tandem_profile_result){0};
}
