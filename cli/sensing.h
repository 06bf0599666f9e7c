/* sensing.h: measures what precisions change of real gradients (advanced/sensing.h). */
#pragma once

#include "cli/training_rank.h"

/* Steps of an age: a number, or a share of `steps`. "0,10%,50%,90%" → ascending, each once. TANDEM_USAGE:
 * names the wrong one. */
tandem_status sensing_ages_parse(int64_t age[TANDEM_MAX_AGE], int *n_age, const char *text, int64_t steps,
                                 tandem_error *error);

typedef struct sensing_request {
    int64_t age[TANDEM_MAX_AGE]; /* ascending */
    int n_age, n_replicate;
    int first_replicate;   /* other replicates have other batches and draws */
    int64_t batch;         /* that is sensed; 0: that of a micro-step of the training */
    const char *precision; /* NULL: every one, in its own formats. Else this one alone, emulated so: */
    tandem_emulation emulation;
    int is_whole_plan; /* 1: all operators in it at once, as the cell of the first one that has it */
} sensing_request;

/* sensing_run: trains the workload's model in fp32 on options->data, and senses every operator in the
 * precisions of the request at each age, with weights held still. CPU devices only. The caller closes
 * *sensing. Memory: beside the training, 3 · n_replicate + 4 times the weights. Cost: sampled.c has it. */
tandem_status sensing_run(tandem_sensing *sensing, const cli_workload *workload, const cli_options *options,
                          const sensing_request *request, tandem_error *error);

/* sensed_result.c: the object that `tandem sensitivity --at --json` prints, for a device; the caller releases
 * it. TANDEM_USAGE: replicates whose gradients are all 0. TANDEM_NO_MEMORY: *result unchanged. */
tandem_status sensing_result_json(json_t **result, const tandem_graph *graph, const tandem_sensing *sensing,
                                  const tandem_device *device, tandem_error *error);

/* Copies the gradient of an executor's last step, parameter after parameter, [n_weight]. */
tandem_status sensing_copy_gradient(float *gradient, const tandem_backend_api *backend,
                                    const tandem_executor *executor, const tandem_graph *graph,
                                    tandem_error *error);
