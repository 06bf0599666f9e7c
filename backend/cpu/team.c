/* team.c: divides a range among OpenMP's threads. */
#include "backend/cpu/team.h"

#include <omp.h>
#include <stdatomic.h>

typedef struct team_job {
    cpu_part *part;
    void *context;
    int64_t n, grain, units; /* units: of `grain`, of which a thread gets whole ones */
    atomic_int begun, ended; /* for the thread sanitizer alone */
} team_job;

int cpu_team_size(void) { return omp_get_max_threads(); }

void cpu_team_set(int n_thread)
{
    if (omp_get_max_threads() != n_thread) omp_set_num_threads(n_thread);
}

/* libgomp is not instrumented: these two report to the sanitizer what passes between its threads. */
static void pass_to_sanitizer(atomic_int *gate)
{
#if defined __SANITIZE_THREAD__
    atomic_fetch_add_explicit(gate, 1, memory_order_release);
#else
    (void)gate;
#endif
}

static void take_from_sanitizer(atomic_int *gate)
{
#if defined __SANITIZE_THREAD__
    (void)atomic_load_explicit(gate, memory_order_acquire);
#else
    (void)gate;
#endif
}

/* OpenMP may give fewer threads than it was asked for. */
static void run_team_part(team_job *job, int thread, int n_thread)
{
    take_from_sanitizer(&job->begun);
    const int64_t begin = job->units * thread / n_thread * job->grain,
                  end = job->units * (thread + 1) / n_thread * job->grain;
    job->part(job->context, begin, end < job->n ? end : job->n);
    pass_to_sanitizer(&job->ended);
}

/* The compiler makes a function of the block, whose arguments the sanitizer would find unguarded. */
__attribute__((no_sanitize_thread)) static void run_job(team_job *job, int n_thread)
{
#pragma omp parallel num_threads(n_thread)
    run_team_part(job, omp_get_thread_num(), omp_get_num_threads());
}

void cpu_for(int64_t n, int64_t grain, cpu_part *part, void *context)
{
    const int64_t units = n / grain + (n % grain > 0);
    const int size = units > 1 ? cpu_team_size() : 1, n_thread = units < size ? (int)units : size;
    if (n_thread < 2) {
        part(context, 0, n);
        return;
    }
    team_job job = {.part = part, .context = context, .n = n, .grain = grain, .units = units};
    pass_to_sanitizer(&job.begun);
    run_job(&job, n_thread);
    take_from_sanitizer(&job.ended);
}
