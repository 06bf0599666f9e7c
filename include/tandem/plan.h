/* plan.h: the precision of every adjustable operator on every class: as a value (an assignment), with what
 * is known about it (a plan), and as a file (tandem.plan/1). */
#ifndef TANDEM_PLAN_H
#define TANDEM_PLAN_H

#include "tandem/cluster.h"

TANDEM_BEGIN_DECLARATIONS

/* The precision of every operator on every class, opened, copied and compared as a whole. */
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

/* What made a file, as text; "" = unknown. It has no time: the same work gives the same bytes. */
enum { TANDEM_MADE_COMMAND = 2048 };
typedef struct tandem_made {
    char command[TANDEM_MADE_COMMAND]; /* as a shell reads it */
    char version[24], host[192];       /* of tandem; CPU, CPUs, and a hash of the machine's name */
    char seed[24];                     /* digits */
} tandem_made;

/* What is minimized. */
typedef enum tandem_objective {
    TANDEM_MINIMIZE_OPEN,         /* in a request: what its limits leave; of a plan: not known */
    TANDEM_MINIMIZE_SENSITIVITY,  /* within a step */
    TANDEM_MINIMIZE_STEP,         /* within a sensitivity */
    TANDEM_MINIMIZE_MEMORY,       /* the largest peak of any rank, within a step and a sensitivity */
    TANDEM_MINIMIZE_TRAINING_TIME /* step × (1 + sensitivity): the time to the same loss */
} tandem_objective;
enum { TANDEM_N_OBJECTIVE = TANDEM_MINIMIZE_TRAINING_TIME + 1 };
const char *tandem_objective_name(tandem_objective objective); /* "training-time", …; "" of the first */
/* The objective of a name. TANDEM_UNKNOWN_NAME: names all of them. */
tandem_status tandem_objective_find(tandem_objective *objective, const char *name, tandem_error *error);

/* Whose bound a plan has: which plans its problem gave a loss scale to. */
typedef enum tandem_scale_rule {
    TANDEM_SCALE_UNKNOWN,   /* no bound, or one from before files had this member */
    TANDEM_SCALE_AS_NEEDED, /* those that need one; every other plan has none */
    TANDEM_SCALE_OF_ALL     /* all */
} tandem_scale_rule;

typedef struct tandem_plan {
    char name[48]; /* "allocated", "uniform int8", … */
    char policy[24];
    char model[TANDEM_MODEL_NAME];
    uint64_t hash;          /* of the graph */
    tandem_cluster cluster; /* batch of every class filled in */
    tandem_assignment assignment;
    tandem_precision base_precision; /* of the classes in keeps_base */
    unsigned keeps_base;             /* bit c: class c keeps the base precision, lowering it saves no time */
    uint64_t bucket_bytes;           /* for which the plan was made; 0 = unknown */
    tandem_objective objective;      /* that was asked for */
    double max_sensitivity; /* that was asked for, in the unit of the method; NaN = none, or unknown */
    /* what the allocator found; 0 or NaN = unknown */
    double slowdown;    /* NaN also where a target was given instead */
    int64_t target_ns;  /* the longest step allowed */
    int64_t fastest_ns; /* the fastest plan found, from which slowdown counts */
    int64_t step_ns;
    uint64_t peak_bytes[TANDEM_MAX_CLASS];
    char method[24]; /* of the sensitivities */
    /* the sum over operators and classes, which the allocator bounds, in the unit of the method: by
     * "sampled", no less than the plan's sensitivity */
    double sensitivity_bound;
    double lower_bound, gap; /* NaN until a bound is computed */
    char proof[24];          /* the method that proved the bound; "" = none */
    tandem_scale_rule scale_rule;
    /* 1: the file has a bound without a scale_rule. Such bounds were false where gradients are f16: this one
     * is not read, and counts as unproven */
    int has_unproven_bound;
    tandem_step_options step; /* micro-steps, recomputation, the norm of a loss scale */
    /* of the training that the plan is for; 0 = none, < 0 = dynamic; with a loss scale the step has a norm */
    double loss_scale;
    tandem_made made; /* written and read with the plan; the caller fills it in */
} tandem_plan;

/* A loss scale as a word: a number above 0 and below 2^64, or "dynamic" (< 0). TANDEM_USAGE: names what is
 * allowed. */
tandem_status tandem_loss_scale_parse(double *loss_scale, const char *word, tandem_error *error);
enum { TANDEM_LOSS_SCALE_TEXT = 32 };
char *tandem_loss_scale_print(char text[TANDEM_LOSS_SCALE_TEXT], double loss_scale); /* returns text */

/* Operators of class c whose backward products read gradients in f16. A plan has a loss scale where any class
 * has such an operator: tandem_plan_needs_loss_scale. `graph` is the plan's. */
int tandem_plan_count_f16_gradients(const tandem_plan *plan, const tandem_graph *graph, int c);
int tandem_plan_needs_loss_scale(const tandem_plan *plan, const tandem_graph *graph);

/* tandem_plan_open: a plan in fp32. Every class of `cluster` has its batch. The caller closes it.
 * TANDEM_USAGE, TANDEM_NO_MEMORY: *plan unchanged. */
tandem_status tandem_plan_open(tandem_plan **plan, const tandem_graph *graph, const tandem_cluster *cluster,
                               const char *name, tandem_error *error);
void tandem_plan_close(tandem_plan *plan); /* NULL is fine */
/* tandem_plan_uniform: gives class c `precision` wherever the operator has it. Substitutes elsewhere: int8
 * for int8_full; the precision of the device's amp_dtype (bf16, fp16 or fp32) for int8, fp8, mxfp8 and nvfp4;
 * fp32 for all others. So with int8_full an embedding gets bf16 or fp32. TANDEM_NO_KERNEL: the device lacks
 * the precision; says which it has. TANDEM_WRONG_MODEL. The plan is unchanged on error. */
tandem_status tandem_plan_uniform(tandem_plan *plan, const tandem_graph *graph, int c,
                                  tandem_precision precision, tandem_error *error);
/* tandem_plan_set: gives one operator of class c a precision. TANDEM_USAGE: it is not adjustable, or lacks
 * the precision. TANDEM_NO_KERNEL: the device lacks it. TANDEM_WRONG_MODEL. The plan is unchanged on error.
 * */
tandem_status tandem_plan_set(tandem_plan *plan, const tandem_graph *graph, int c, int op,
                              tandem_precision precision, tandem_error *error);
/* tandem_plan_random: gives each operator of class c a random precision of `precisions` (bit p: precision p)
 * that the device has, with the substitutes of tandem_plan_uniform. The same seed gives the same plan.
 * TANDEM_NO_KERNEL: the device has none of them. TANDEM_WRONG_MODEL. The plan is unchanged on error. */
tandem_status tandem_plan_random(tandem_plan *plan, const tandem_graph *graph, int c, unsigned precisions,
                                 uint64_t seed, tandem_error *error);
/* Whether class c has exactly what tandem_plan_uniform gives it; 0: its device lacks the precision. `graph`
 * is the plan's. */
int tandem_plan_is_uniform(const tandem_plan *plan, const tandem_graph *graph, int c,
                           tandem_precision precision);
/* TANDEM_WRONG_MODEL: the plan was made for another graph; names both models. */
tandem_status tandem_plan_check(const tandem_plan *plan, const tandem_graph *graph, tandem_error *error);

/* tandem_plan_write: writes path.tmp and renames it, so that the file is never incomplete. It writes a pipe
 * or a device directly; path "-" = stdout. Adjustable operators are listed by name, in the order of the
 * graph; unknown values are null. TANDEM_IO, TANDEM_NO_MEMORY. */
tandem_status tandem_plan_write(const tandem_plan *plan, const tandem_graph *graph, const char *path,
                                tandem_error *error);
/* tandem_plan_read: reads a plan and opens the graph that it names, at the batch of the first class. The
 * caller closes both. TANDEM_IO, TANDEM_MALFORMED (line or member, and what), TANDEM_WRONG_MODEL,
 * TANDEM_NO_MEMORY: outputs unchanged. */
tandem_status tandem_plan_read(tandem_plan **plan, tandem_graph **graph, const char *path,
                               tandem_error *error);
/* The same of a plan that is emulated: its devices may lack the precisions of their operators, and have all
 * of them in *plan. */
tandem_status tandem_plan_read_emulated(tandem_plan **plan, tandem_graph **graph, const char *path,
                                        tandem_error *error);
/* The JSON text that tandem_plan_write writes. The caller frees it. NULL: out of memory. */
char *tandem_plan_text(const tandem_plan *plan, const tandem_graph *graph);

TANDEM_END_DECLARATIONS
#endif
