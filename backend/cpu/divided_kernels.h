/* divided_kernels.h: tables of kernels that run on the threads of a rank (backend/cpu/isa/team.c). */
#pragma once

#include "kernels/cpu/isa_kernels.h"

/* Fills *divided with the kernels of `table`; those that are divided among threads use as many as
 * cpu_team_size() (team.h) says at each call, and have workspaces for that many. Their results have the
 * bits of `table`. */
void cpu_divide_kernels(tandem_isa_kernels *divided, const tandem_isa_kernels *table);
