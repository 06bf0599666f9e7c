/* training_run.h: real training runs for tests. Every run is a set of forked ranks, because an instruction
 * set and a Gloo connection belong to a process. */
#ifndef TANDEM_TESTS_TRAINING_RUN_H
#define TANDEM_TESTS_TRAINING_RUN_H

#include "tandem/advanced/backend.h"
#include "tandem/cluster.h"

enum { MAX_STEPS = 64, MAX_RANKS = 3 };

/* What ranks leave, in memory shared with them. */
typedef struct record {
    double loss[MAX_RANKS][MAX_STEPS];        /* by step */
    uint64_t gradients[MAX_RANKS][MAX_STEPS]; /* a hash of their bits, where the experiment wants it */
    tandem_status status[MAX_RANKS];
    tandem_error error[MAX_RANKS];
    int64_t failed_ns[MAX_RANKS];
    uint64_t allocated[MAX_RANKS], planned[MAX_RANKS], evaluation[MAX_RANKS];
    int64_t resident[MAX_RANKS];
    int64_t resumed_at[MAX_RANKS];
    tandem_step_report report[MAX_RANKS][MAX_STEPS];
    tandem_evaluation evaluated[MAX_RANKS];
    int open_things[MAX_RANKS];
    /* whether gradients were exchanged in shared memory; if not, why, where that is known */
    int shares[MAX_RANKS];
    char shared_memory_error[MAX_RANKS][TANDEM_ERROR_TEXT];
    volatile int64_t steps_done[MAX_RANKS];
} record;

typedef struct experiment {
    const char *model, *device;
    int64_t batch;     /* local */
    int n_rank, steps; /* steps: of the whole training */
    tandem_precision precision;
    uint64_t seed;
    int killed_rank; /* −1 = none: dies by SIGKILL once it has done three steps */
    /* what only some tests want; 0 or NULL = nothing */
    const char *resume, *save; /* checkpoints: read before the first step, written after the last */
    int save_every;            /* and after so many steps */
    uint64_t bucket_bytes, memory_bytes;
    int allow_nan;
    tandem_observer *observer; /* of every rank; its context is a training_view */
    const tandem_optimizer_options *optimizer;
    float (*rate)(int64_t step); /* the learning rate; NULL = the optimizer's */
    double clip;
    float label_smoothing, loss_scale;
    const char *no_decay;
    const char *init, *export; /* weights: read before the first step, written after the last */
    tandem_step_options variant;
    const tandem_emulation *emulation; /* with variant.emulated */
    int hash_gradients;
    const tandem_data *data;   /* NULL = noise */
    int fails;                 /* as it should: nothing is said of it on stderr */
    const char *second_device; /* of rank 1 */
    int64_t evaluate;          /* test samples, after the last step */
    int over_network;          /* gradients are exchanged that way, not in shared memory */
    tandem_dtype wire;         /* what they travel in */
    int wires_differ;          /* in f32 from rank 0 */
    int kills;                 /* 1: its observer ends ranks */
    int (*open_things)(void);  /* what a device has open, asked once all is closed */
} experiment;

typedef struct training_view {
    const tandem_step *step;
    int rank, n_rank;
    int64_t index; /* of the step under way */
} training_view;

/* Runs it; training_forget releases the record. Says on stderr what failed, where no failure is part of the
 * experiment. */
record *training_run(const experiment *e);
void training_forget(record *r);
/* The same of an experiment in which nothing fails: every rank did all of its steps, in the memory that was
 * planned. */
record *training_run_through(const experiment *e);
/* Losses and gradients of every step, on every rank. */
void training_check_same_bits(const record *a, const record *b, const experiment *e);

/* A folder of the test's own, for as long as its group runs: set-up and tear-down for cmocka, files in it,
 * and whether two files hold the same bytes. */
int training_folder_open(void **state);
int training_folder_remove(void **state);
typedef struct training_file {
    char path[64];
} training_file;
training_file training_file_named(const char *name);
int training_files_equal(const char *a, const char *b);

/* Of the devices here, or NULL. */
const char *training_weakest(void);
const char *training_strongest(void);
/* Skips the test, aloud, where this machine has no device. */
void training_require_device(void);

#endif
