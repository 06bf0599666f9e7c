/* team.h: the threads of a rank with several cores. They are OpenMP's, which oneDNN runs on, too, so that
 * a core has one thread for both. */
#pragma once

#include <stdint.h>

/* What runs on a thread: the part begin … end of a range. It writes what no other part reads or writes. */
typedef void cpu_part(void *context, int64_t begin, int64_t end);

/* The threads that cpu_for and oneDNN use when this thread calls them: those of the last cpu_team_set. */
int cpu_team_size(void);
void cpu_team_set(int n_thread);

/* Calls `part` for parts of 0 … n at the same time, at most one per thread, and returns when all have
 * ended. Each begins at a multiple of `grain`, which is also the least work that is worth a thread: with n
 * ≤ grain, this thread does all of it. Where the parts lie depends on the number of threads, so results
 * may not depend on it: a sum stays within a part, or is of numbers that are added in any order to the
 * same bits. Cost: about a microsecond where threads still wait for work, tens of them where they sleep. */
void cpu_for(int64_t n, int64_t grain, cpu_part *part, void *context);
