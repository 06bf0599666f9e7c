/* add.h: what the stages of `tandem-study add` share: plans are drawn (add_rows.c), what is left is reported
 * (add_left.c), they are estimated (add_jobs.c), and compared with sums over their parts (add_table.c,
 * add_scaled.c). */
#ifndef TANDEM_RESEARCH_ADD_H
#define TANDEM_RESEARCH_ADD_H

#include "research/noise_tasks.h"

enum {
    ADD_PLANS_OF_JOB = 50,
    ADD_N_SCALE = 4,
    ADD_MAX_JOBS = 32 /* of a task */
};
extern const double add_scales[ADD_N_SCALE]; /* of errors; the law takes the last two */

/* Fixed before a run, as are the tasks. */
typedef struct add_scope {
    const noise_tasks *tasks;
    int n_plan, n_replicate;    /* plans of a task; fewer where there are no more */
    int n_scaled;               /* of these, that are also estimated with scaled errors */
    const char *const *control; /* [n_compared] tasks 0, 1, … with gelus; NULL: none */
    int n_compared, n_control_plan;
} add_scope;

/* Of a plan, or of a pair. */
typedef struct add_result {
    double ratio, half; /* measured over summed */
    double by_operators;
    double shares; /* 1: some of its operators read one cast */
} add_result;

/* Rows that are estimated together, each [n_op of the graph]. */
typedef struct add_rows {
    tandem_precision *plan; /* [n × n_op] */
    int n, room, n_op;
} add_rows;

/* A task whose errors are not scaled, one whose are, or a control. */
typedef enum add_role { ADD_ALONE, ADD_COMPARED, ADD_CONTROL } add_role;

/* One estimate, and its record: plans with their parts, or for scale ≥ 0 the scaled rows. */
typedef struct add_job {
    char name[STUDY_RECORD_NAME];
    int n, n_value;               /* plans; values of the record */
    const tandem_precision *plan; /* [n × graph->n_op] */
    add_result *result;           /* [n] */
    int scale;
} add_job;

typedef struct add_study {
    study_report *report;
    const add_scope *scope;
    study_records records;
    noise_progress progress;
    noise_lab lab;
    add_role role;                  /* of the task */
    tandem_precision *plan, *pairs; /* [n_plan × graph->n_op] of the task; all pairs in int8_full */
    int n_plan;
    add_result *result; /* [n_plan] */
    add_result *pair;   /* [n_op·(n_op − 1)/2]; NULL: a control */
    add_rows scaled;    /* the first n_scaled plans, then the parts of all */
    int n_scaled;
    double *noise[ADD_N_SCALE]; /* [scaled.n] */
    add_job job[ADD_MAX_JOBS];
    int n_job;
    double left_s; /* that the jobs of all tasks take, before they start */
} add_study;

static inline const tandem_precision *add_plan_at(const add_study *s, int i)
{
    return s->plan + (size_t)i * (size_t)s->lab.workload.graph[0]->n_op;
}

/* --- Plans and their parts (add_rows.c) ------------------------------------------------------------------
 * */

/* Different plans of two lowered operators or more, into s->plan. seed: of these plans. */
tandem_status add_plans_draw(add_study *s, int n_plan, int seed, tandem_error *error);
/* Whether operators i and j read one rounded copy under a plan. */
int add_plan_shares_cast(const add_study *s, const tandem_precision *plan, int i, int j);
/* The index of a plan; −1: it is not there. */
int add_rows_find(const add_rows *rows, const tandem_precision *plan);
/* That of a plan which is added where it is new; −1: no memory. */
int add_rows_add(add_rows *rows, const tandem_precision *plan);
/* The weights of the sum over parts: each row that is a part gets 1. is_single: each operator is a part. Adds
 * rows that are missing; weight NULL: that alone. 0: no memory. */
int add_rows_sum_parts(double *weight, add_rows *rows, const add_study *s, const tandem_precision *plan,
                       int is_single);
/* n plans with their parts. The caller frees rows->plan, after errors too. TANDEM_NO_MEMORY. */
tandem_status add_rows_of_plans(add_rows *rows, const add_study *s, const tandem_precision *plan, int n,
                                tandem_error *error);

/* --- Jobs, and their records (add_jobs.c) ----------------------------------------------------------------
 * */

/* The jobs of a task that has plans, and their number before these are drawn. */
tandem_status add_jobs_list(add_study *s, tandem_error *error);
int add_job_count(int n_plan, add_role role);
/* Rows are estimated in the middle of the training; plan and n_plan of the request are still to be given. */
estimate_request add_request(const add_study *s);
/* Runs the jobs that have no record, and fills in the results of all. */
tandem_status add_jobs_run(add_study *s, tandem_error *error);

/* --- What is left (add_left.c) ---------------------------------------------------------------------------
 * */

/* Says what the listed jobs of a task have left, and adds its seconds to *left_s. */
tandem_status add_left_note(double *left_s, const add_study *s, tandem_error *error);

/* --- Tables (add_summary.c, add_table.c, add_scaled.c) ---------------------------------------------------
 * */

typedef struct add_summary {
    double median, close, inside;
    int n;
} add_summary;
/* But `inside`. Sorts the ratios. */
add_summary add_summary_of(double *ratio, int n);
/* which: 0 all plans, 1 those with a shared cast; is_single: over the sums of single operators. */
tandem_status add_summary_of_plans(add_summary *summary, const add_study *s, int which, int is_single,
                                   tandem_error *error);
/* A task's tables and bars. */
tandem_status add_table_print(add_study *s, tandem_error *error);
/* Those of scaled errors; adds "scales" and "law" to the task's object. */
tandem_status add_scaled_print(add_study *s, json_t *object, tandem_error *error);

#endif
