/* plan.h: a plan: which precision every adjustable operator has on every class; and its file, tandem.plan/1.
 * */
#ifndef TANDEM_PLAN_H
#define TANDEM_PLAN_H

#include "tandem/cluster.h"
#include "tandem/step.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* The precision of every operator on every class: a value that is opened, copied and compared as a whole. */
typedef struct tandem_assignment {
    int n_class, n_op;
    /* [n_op] of each class, of one allocation; fp32 for operators that are not adjustable; NULL from n_class
     * on */
    tandem_precision *precision[TANDEM_MAX_CLASS];
} tandem_assignment;

/* tandem_assignment_open: all fp32. The caller closes it. TANDEM_NO_MEMORY: *assignment unchanged. */
tandem_status tandem_assignment_open(tandem_assignment *assignment, int n_class, int n_op,
                                     tandem_error *error);
void tandem_assignment_close(tandem_assignment *assignment); /* all zero is fine; all zero afterwards */
/* Both functions take two assignments of the same n_class and n_op. Cost: O(n_class × n_op). */
void tandem_assignment_copy(tandem_assignment *to, const tandem_assignment *from);
int tandem_assignment_is_equal(const tandem_assignment *a, const tandem_assignment *b);

typedef struct tandem_plan {
    char name[48]; /* "allocated", "uniform int8", … */
    char policy[24];
    char model[TANDEM_MODEL_NAME];
    uint64_t hash;          /* of the graph */
    tandem_cluster cluster; /* batch of every class filled in */
    tandem_assignment assignment;
    tandem_precision base_precision; /* of the classes in keeps_base */
    unsigned keeps_base;             /* bit c: class c keeps the base precision, because it would only wait */
    uint64_t bucket_bytes;           /* for which it was made; 0 = not said */
    /* what the allocator knew about it; 0 or NaN = not known */
    double slowdown;    /* NaN also where a target was asked for instead */
    int64_t target_ns;  /* the longest step allowed */
    int64_t fastest_ns; /* the fastest plan found, from which slowdown counts */
    int64_t step_ns;
    uint64_t peak_bytes[TANDEM_MAX_CLASS];
    char method[24]; /* of the sensitivity */
    double sensitivity;
    double lower_bound, gap;  /* NaN until a bound is computed */
    char proof[24];           /* which method proved it; "" where none did */
    tandem_step_options step; /* micro-steps, recomputation, the norm of a loss scale */
    /* of the training that it is for; 0 = none, < 0 = dynamic; with one the step has a norm */
    double loss_scale;
} tandem_plan;

/* A loss scale as a word: a number above 0 and below 2^64, or "dynamic" (< 0). TANDEM_USAGE says what there
 * is. */
tandem_status tandem_loss_scale_parse(double *loss_scale, const char *word, tandem_error *error);
enum { TANDEM_LOSS_SCALE_TEXT = 32 };
char *tandem_loss_scale_print(char text[TANDEM_LOSS_SCALE_TEXT], double loss_scale); /* returns text */

/* All fp32. `cluster` must have batches. */
tandem_status tandem_plan_open(tandem_plan **plan, const tandem_graph *graph, const tandem_cluster *cluster,
                               const char *name, tandem_error *error);
void tandem_plan_close(tandem_plan *plan); /* NULL is fine */
/* tandem_plan_uniform: class c gets `precision` wherever the operator has it. Where it lacks it, int8 stands
 * in for int8_full; for int8 and fp8, the precision of the device's wider type: bf16, fp16 or fp32; and fp32
 * for all others. So with int8_full an embedding gets bf16 or fp32. TANDEM_NO_KERNEL where the device has no
 * such precision at all (says which it has); TANDEM_WRONG_MODEL. The plan is unchanged on error. */
tandem_status tandem_plan_uniform(tandem_plan *plan, const tandem_graph *graph, int c,
                                  tandem_precision precision, tandem_error *error);
/* tandem_plan_random: class c gets, operator by operator, what tandem_plan_uniform would give it there in a
 * precision drawn from those of its device that `precisions` has (bit p: precision p); the same for the same
 * seed. TANDEM_NO_KERNEL where there is none; TANDEM_WRONG_MODEL. The plan is unchanged on error. */
tandem_status tandem_plan_random(tandem_plan *plan, const tandem_graph *graph, int c, unsigned precisions,
                                 uint64_t seed, tandem_error *error);
/* Whether class c has exactly what tandem_plan_uniform would give it; 0 where its device lacks the precision.
 * `graph` is the plan's. */
int tandem_plan_is_uniform(const tandem_plan *plan, const tandem_graph *graph, int c,
                           tandem_precision precision);
/* TANDEM_WRONG_MODEL where the plan's hash is not the graph's (names both models). */
tandem_status tandem_plan_check(const tandem_plan *plan, const tandem_graph *graph, tandem_error *error);

/* Writes path.tmp and renames it, so that the file is old or new, never half; a pipe or a device is written
 * directly. Adjustable operators stand by name, in the order of the graph; what is not known is null. path
 * "-" = stdout. */
tandem_status tandem_plan_write(const tandem_plan *plan, const tandem_graph *graph, const char *path,
                                tandem_error *error);
/* Reads a file and the graph it names (tandem_graph_open at the first class's batch, handed to the caller).
 * TANDEM_IO, TANDEM_MALFORMED (line, or member, and what), TANDEM_WRONG_MODEL, TANDEM_NO_MEMORY. Outputs
 * unchanged on error. */
tandem_status tandem_plan_read(tandem_plan **plan, tandem_graph **graph, const char *path,
                               tandem_error *error);
/* The JSON text (caller frees): what tandem_plan_write writes. NULL without memory. */
char *tandem_plan_text(const tandem_plan *plan, const tandem_graph *graph);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
