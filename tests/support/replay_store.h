/* replay_store.h: a profile store of costs that a test has made up, in a file of its own. */
#ifndef TANDEM_TESTS_REPLAY_STORE_H
#define TANDEM_TESTS_REPLAY_STORE_H

#include <unistd.h>

#include "tandem/advanced/step.h"
#include "tandem/advanced/store.h"
#include "tests/support/scratch_files.h"
#include "tests/support/tandem_test.h"

typedef struct replay_store {
    char path[64];
    tandem_store *store;
} replay_store;

static inline void replay_store_open(replay_store *s)
{
    tandem_error error = {0};
    (void)snprintf(s->path, sizeof s->path, "%s/tandem-replay-XXXXXX", scratch());
    const int file = mkstemp(s->path);
    assert_true(file >= 0);
    (void)close(file);
    (void)unlink(s->path);
    s->store = NULL;
    require_ok(tandem_store_open(&s->store, s->path, TANDEM_STORE_WRITE, &error), &error);
}

static inline void replay_store_close(replay_store *s)
{
    static const char *const ending[] = {"", "-wal", "-shm"};
    tandem_store_close(s->store);
    for (int i = 0; i < 3; i++) {
        char name[80];
        (void)snprintf(name, sizeof name, "%s%s", s->path, ending[i]);
        (void)unlink(name);
    }
}

static inline tandem_cost replay_cost(int64_t ns, uint64_t workspace_bytes)
{
    tandem_cost cost;
    tandem_cost_from_samples(&cost, &ns, 1, workspace_bytes);
    return cost;
}

/* What a cost is to be; −1 = left out. */
typedef int64_t replay_cost_rule(void *context, const tandem_cost_key *key, uint64_t *workspace_bytes);

/* Files a cost for every variant of every task that the model's step program can have. */
static inline void replay_store_fill(replay_store *s, const tandem_graph *graph, tandem_dtype amp_dtype,
                                     uint64_t bucket_bytes, const char *device, const char *co_runner,
                                     replay_cost_rule *rule, void *context)
{
    tandem_step *step = NULL;
    tandem_error error = {0};
    /* it has all tasks there can be, or their like */
    const tandem_step_options options = {.n_micro = 2, .with_norm = 1};
    assert_int_equal(tandem_step_open_with(&step, graph, amp_dtype, bucket_bytes, &options, &error),
                     TANDEM_OK);
    assert_int_equal(tandem_store_begin(s->store, &error), TANDEM_OK);
    for (int t = 0; t < step->n_task; t++) {
        for (int variant = 0; variant < TANDEM_MAX_VARIANT; variant++) {
            tandem_cost_key key;
            uint64_t workspace_bytes = 0;
            if (step->task[t].kind == TANDEM_TASK_REDUCE || !tandem_step_cost_key(step, t, variant, &key))
                continue;
            const int64_t ns = rule(context, &key, &workspace_bytes);
            if (ns < 0) continue;
            const tandem_cost cost = replay_cost(ns, workspace_bytes);
            require_ok(tandem_store_put_cost(s->store, device, co_runner, &key, &cost, &error), &error);
        }
    }
    assert_int_equal(tandem_store_commit(s->store, &error), TANDEM_OK);
    tandem_step_close(step);
}

static inline void replay_store_put_curve(replay_store *s, const char *group, int loaded, uint64_t bytes,
                                          int64_t ns)
{
    const tandem_collective_point point = {bytes, replay_cost(ns, 0)};
    assert_int_equal(tandem_store_put_collective(s->store, group, "all-reduce", loaded, &point, NULL),
                     TANDEM_OK);
}

static inline tandem_cluster_class replay_class(const char *device, tandem_dtype amp_dtype, int n_rank,
                                                int per_node)
{
    tandem_cluster_class member = {.n_rank = n_rank, .per_node = per_node};
    (void)snprintf(member.device.name, sizeof member.device.name, "%s", device);
    member.device.amp_dtype = amp_dtype;
    member.device.precisions = (1u << TANDEM_N_PRECISION) - 1;
    return member;
}

#endif
