/* team.h: puts kernels that are divided among the threads of a rank in the place of those of one thread. */
#pragma once

#include "kernels/cpu/isa/isa.h"

/* Of a copy of the table of this instruction set; the other functions stay. Workspaces then have the size for
 * cpu_team_size() threads (backend/cpu/team.h), which must be the same when the kernel runs. */
void ISA(divide_kernels)(tandem_isa_kernels *table);
