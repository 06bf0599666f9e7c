/* torch_kernels.c: whose kernel is it. A kernel has the correlation of the runtime's or driver's call that
 * launched it. The innermost operator at that time on that thread is the kernel's. An External id names the
 * operator only in some versions: it counts where the launch was not recorded. */
#include <stdlib.h>

#include "base/sort.h"
#include "trace/torch/torch_reader.h"

/* Ends fall after starts: of two that begin together, the longer one is the outer one. */
static int by_call_thread_start(const void *left, const void *right)
{
    const torch_call *const a = left, *const b = right;
    int order = TANDEM_ORDER(a->thread, b->thread);
    if (!order) order = TANDEM_ORDER(a->start_ns, b->start_ns);
    if (!order) order = TANDEM_ORDER(b->end_ns, a->end_ns);
    return order ? order : TANDEM_ORDER(a->order, b->order);
}

static int by_launch_thread_start(const void *left, const void *right)
{
    const torch_launch *const a = left, *const b = right;
    int order = TANDEM_ORDER(a->thread, b->thread);
    if (!order) order = TANDEM_ORDER(a->start_ns, b->start_ns);
    return order ? order : TANDEM_ORDER(a->correlation, b->correlation);
}

static int by_launch_correlation(const void *left, const void *right)
{
    const torch_launch *const a = left, *const b = right;
    int order = TANDEM_ORDER(a->correlation, b->correlation);
    if (!order) order = TANDEM_ORDER(a->start_ns, b->start_ns);
    return order ? order : TANDEM_ORDER(a->thread, b->thread);
}

/* --- Launches and operators ----------------------------------------------------------------------------- */

/* Goes through the calls of all threads in order of time. The stack holds the calls that may not have
 * ended. */
typedef struct call_walk {
    const torch_rank *rank;
    int *stack; /* [n_call] */
    int n, next;
} call_walk;

static int innermost_call(call_walk *w, const torch_launch *launch)
{
    const torch_call *const call = w->rank->call;
    for (; w->next < w->rank->n_call; w->next++) {
        const torch_call *const entry = &call[w->next];
        if (entry->thread > launch->thread) break;
        if (entry->thread == launch->thread && entry->start_ns > launch->start_ns) break;
        while (w->n && (call[w->stack[w->n - 1]].thread != entry->thread ||
                        call[w->stack[w->n - 1]].end_ns < entry->start_ns))
            w->n--;
        w->stack[w->n++] = w->next;
    }
    while (w->n && (call[w->stack[w->n - 1]].thread != launch->thread ||
                    call[w->stack[w->n - 1]].end_ns < launch->start_ns))
        w->n--;
    return w->n ? w->stack[w->n - 1] : -1;
}

static tandem_status find_launching_calls(torch_rank *rank, tandem_error *error)
{
    const size_t n_call = (size_t)rank->n_call, n_launch = (size_t)rank->n_launch;
    if (n_call == 0 || n_launch == 0) return TANDEM_OK;
    call_walk walk = {.rank = rank, .stack = malloc(n_call * sizeof *walk.stack)};
    if (!walk.stack) return tandem_no_memory(error, "for %d operators of a trace", rank->n_call);
    qsort(rank->call, n_call, sizeof *rank->call, by_call_thread_start);
    qsort(rank->launch, n_launch, sizeof *rank->launch, by_launch_thread_start);
    for (size_t k = 0; k < n_launch; k++) rank->launch[k].call = innermost_call(&walk, &rank->launch[k]);
    free(walk.stack);
    return TANDEM_OK;
}

/* --- Kernels and launches ------------------------------------------------------------------------------- */

/* The latest launch with the kernel's correlation that began before it; numbers repeat where a file holds
 * several processes. Clocks of device and host may differ a little: otherwise it is the first one. */
static const torch_launch *find_launch(const torch_rank *rank, const torch_kernel *kernel)
{
    int low = 0, high = rank->n_launch;
    if (kernel->correlation < 0) return NULL;
    while (low < high) { /* the first one after those that count */
        const int middle = low + (high - low) / 2;
        const torch_launch *const launch = &rank->launch[middle];
        if (launch->correlation < kernel->correlation ||
            (launch->correlation == kernel->correlation && launch->start_ns <= kernel->start_ns))
            low = middle + 1;
        else
            high = middle;
    }
    if (low > 0 && rank->launch[low - 1].correlation == kernel->correlation) return &rank->launch[low - 1];
    if (low < rank->n_launch && rank->launch[low].correlation == kernel->correlation)
        return &rank->launch[low];
    return NULL;
}

static void join_kernel(torch_rank *rank, torch_kernel *kernel)
{
    const torch_launch *const launch = find_launch(rank, kernel);
    if (launch) {
        const torch_call *const call = launch->call >= 0 ? &rank->call[launch->call] : NULL;
        kernel->has_launch = 1;
        kernel->launch_ns = launch->start_ns;
        kernel->owner = call ? call->signature : -1;
        kernel->pass = call ? call->pass : 0;
    } else {
        rank->left_out.n_by_id += kernel->owner >= 0;
        rank->left_out.n_without_launch += kernel->owner < 0;
    }
    if (kernel->owner >= 0) return;
    rank->left_out.n_without_operator++;
    torch_add_ns(&rank->left_out.without_operator_ns, kernel->end_ns - kernel->start_ns);
}

tandem_status torch_rank_join_kernels(torch_rank *rank, tandem_error *error)
{
    if (rank->n_kernel == 0) return TANDEM_OK;
    const tandem_status status = find_launching_calls(rank, error);
    if (status != TANDEM_OK) return status;
    if (rank->n_launch)
        qsort(rank->launch, (size_t)rank->n_launch, sizeof *rank->launch, by_launch_correlation);
    for (int k = 0; k < rank->n_kernel; k++) join_kernel(rank, &rank->kernel[k]);
    return TANDEM_OK;
}
