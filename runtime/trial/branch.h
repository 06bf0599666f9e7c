/* branch.h: one training of a trial: from the store, or trained and kept there; private to runtime/trial. */
#pragma once

#include "tandem/advanced/data.h"
#include "tandem/advanced/store.h"
#include "tandem/runtime.h"

/* What all branches of a trial share. All zero is closed. */
typedef struct branch_source {
    const tandem_loss_request *request;
    tandem_data data; /* for its hash */
    uint64_t data_hash;
    const char *emulate; /* as in tandem_workload_request */
    const char *plan[2]; /* files: of the base, of the plan; NULL: the request has none */
    const char *base;    /* precision */
} branch_source;

typedef enum branch_kind { BRANCH_BASE, BRANCH_PLAN } branch_kind;

typedef struct branch {
    double *loss; /* [steps]; owned */
    double held_out, held_out_in_base;
    int is_known;            /* it was in the store */
    int64_t took_ns;         /* 0 where it was */
    uint64_t resident_bytes; /* what its ranks took of memory; 0 where it was in the store */
} branch;
void branch_free(branch *of);

/* A branch that is to be had: from the store, or by training. All zero is closed. */
typedef struct branch_task {
    tandem_train_request train;
    tandem_workload workload;
    tandem_branch_record record; /* where the store keeps it */
    branch made;
} branch_task;

/* The seed of a pair, far from those of other pairs and of trials of other seeds. */
uint64_t branch_seed(uint64_t seed, int pair);

/* branch_open: looks for the branch of pair number `pair` in the store. *task is closed on error. Errors of
 * tandem_workload_open and of the store. */
tandem_status branch_open(branch_task *task, const branch_source *source, branch_kind kind, int pair,
                          int64_t begin, tandem_error *error);
/* branch_train: trains it and files it as soon as it ends, unless it is known. Tasks may train in threads
 * beside each other. Errors of tandem_train and of the store. */
tandem_status branch_train(branch_task *task, const tandem_listener *listener, tandem_error *error);
void branch_close(branch_task *task);
