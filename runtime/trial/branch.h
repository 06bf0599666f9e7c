/* branch.h: one training of a trial: from the store, or trained and kept there; private to runtime/trial. */
#pragma once

#include "tandem/advanced/data.h"
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
    int is_known;    /* it was in the store */
    int64_t took_ns; /* 0 where it was */
} branch;

/* The seed of a pair, far from those of other pairs and of trials of other seeds. */
uint64_t branch_seed(uint64_t seed, int pair);

/* branch_run: the branch of pair number `pair`. The caller releases *out. Errors of tandem_train and the
 * store; *out unchanged. */
tandem_status branch_run(branch *out, const branch_source *source, branch_kind kind, int pair, int64_t begin,
                         const tandem_listener *listener, tandem_error *error);
void branch_free(branch *of);
