/* every_case.h: every operator of op.def, in every precision, on a device: against the reference of
 * operator_case.h. */
#ifndef TANDEM_TESTS_CONFORMANCE_EVERY_CASE_H
#define TANDEM_TESTS_CONFORMANCE_EVERY_CASE_H

#include "tandem/cluster.h"
#include "tests/support/operator_case.h"

/* What is said on stdout: a change of the code shows in a few lines; of a card's first run each is wanted. */
enum { MAX_COMPLAINTS = 8, MAX_COMPLAINTS_ON_CARD = 400 };

/* Of an operator's tasks of one kind in one precision: how many were looked at, and were wrong. */
typedef struct bench_count {
    int checked, wrong;
} bench_count;

/* One device, and what was found wrong with it: on stdout, the first max_complaints (0: MAX_COMPLAINTS). */
typedef struct bench {
    const tandem_device_backend *backend;
    const tandem_device *row;
    void *device;
    int narrow_gradients; /* gradients of bf16 convolutions are rounded to bf16 before they become f32 */
    int is_gpu;           /* cases that are for the CPU's ways are left out */
    tandem_op_kind only;  /* 0: every kind; else cases of this one */
    int max_complaints;
    void (*look)(struct bench *b, const tandem_step *step, int task, const char *where); /* NULL: none */
    int complaints, checks;
    bench_count count[TANDEM_N_OP_KIND][TANDEM_N_PRECISION][TANDEM_N_TASK_KIND];
    int copies; /* column-wise ones that were looked at */
    int gaps;   /* outputs with gaps between their rows that were looked at */
} bench;

__attribute__((format(printf, 2, 3))) void bench_complain(bench *b, const char *format, ...);

#define CHECK(b, condition, ...)                                                                             \
    do {                                                                                                     \
        (b)->checks++;                                                                                       \
        if (!(condition)) bench_complain((b), __VA_ARGS__);                                                  \
    } while (0)

/* Each task of each case in each form, and each precision against fp32 with its casts. */
void bench_check_every_case(bench *b);
void bench_check_case(bench *b, const operator_case *c, tandem_dtype amp_dtype); /* one of them, or another */
void bench_check_every_precision(bench *b);
/* A line for each (operator, precision, pass) of bench_check_every_case with something wrong; nothing if
 * none. */
void bench_print_wrong(const bench *b);

/* The precision of a case's operator, and of the linears before and after it. */
void case_set_precisions(tandem_step *step, const case_graph *made, tandem_precision own,
                         tandem_precision before, tandem_precision after);
/* The active task of a kind, of an operator, that writes `to` (of a forward task: any type); −1 where there
 * is none. */
int case_find_task(const tandem_step *step, tandem_task_kind kind, int op, tandem_dtype to);
int bench_has_bf16(const bench *b);

#endif
