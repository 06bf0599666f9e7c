/* ptx.h: runs the PTX that nvcc makes of a kernel on the host, and finds what a GPU would only do wrong now
 * and then. Written from the PTX ISA 9.0.
 *
 * A machine has the kernels of some modules, and the memory that they may use. A launch runs some blocks at a
 * time, whose warps take turns of random length, in an order that the seed draws. Lanes of a warp that have
 * branched apart run one group after the other, the one at the earliest instruction first.
 *
 * Findings are what the PTX ISA or the CUDA C++ Programming Guide leaves undefined. A launch goes on after
 * one, but for accesses outside of the memory and misaligned ones, which end it.
 *
 * What it cannot show: the machine code that ptxas makes, times, the memory order between blocks, and how a
 * card rounds its approximate functions and adds in its tensor cores. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef enum ptx_fault {
    PTX_SHARED_RACE,      /* warps use one byte of shared memory, no barrier between them, and one writes */
    PTX_LANE_EXCHANGE,    /* the same of lanes of one warp */
    PTX_SHARED_UNWRITTEN, /* shared memory is read before it is written */
    PTX_SHARED_BOUNDS,    /* an access outside of the kernel's shared memory */
    PTX_GLOBAL_BOUNDS,    /* an access outside of the machine's memory, or across the end of an array */
    PTX_ALIGNMENT,        /* an address that is no multiple of the access's bytes */
    PTX_GLOBAL_UNWRITTEN, /* an array is read where neither the host nor a kernel has written */
    PTX_STALE_READ,       /* ld.global.nc of a byte that the same launch writes */
    PTX_BLOCK_RACE,    /* blocks store to one byte, or one reads what another has stored without an atomic */
    PTX_BARRIER,       /* a barrier that not all threads of the block come to, or in a branch of some lanes */
    PTX_LANES_MISSING, /* a shuffle, ldmatrix or mma without a lane that it names */
    PTX_ENDLESS,       /* a launch that executes more than ptx_options.limit */
    PTX_N_FAULT
} ptx_fault;
extern const char *const ptx_fault_names[PTX_N_FAULT];

typedef struct ptx_options {
    uint64_t seed;  /* of the turns */
    int resident;   /* blocks that take turns; 0: 3 */
    int ulp;        /* approximate functions are up to so many units in the last place away */
    int contracts;  /* mul.f32 and add.f32 become one fma, as ptxas may do: set before ptx_load */
    int truncates;  /* tensor cores add 8 products at a time and truncate, as cards were seen to do */
    int is_unaware; /* no findings but of bounds and alignment: faster */
    uint64_t limit; /* instructions of warps in a launch, or it does not end; 0: 2^33 */
} ptx_options;

typedef struct ptx_finding {
    ptx_fault fault;
    const char *kernel;
    int line; /* of the module's text */
    uint64_t times;
} ptx_finding;

typedef struct ptx_machine ptx_machine;
ptx_machine *ptx_open(const ptx_options *options); /* NULL: no memory */
void ptx_close(ptx_machine *machine);
void ptx_set_options(ptx_machine *machine, const ptx_options *options);

/* Adds a module's kernels. NULL, or what is wrong with the text, which the machine owns. */
const char *ptx_load(ptx_machine *machine, const char *module, const char *text);

/* An array of the host that kernels may use; `is_written`: the host has written it. Leave a gap between
 * arrays: an access from one into the next is within bounds. */
void ptx_add_memory(ptx_machine *machine, void *at, size_t bytes, int is_written);
void ptx_remove_memory(ptx_machine *machine, const void *at);
void ptx_mark_written(ptx_machine *machine, const void *at, size_t bytes);

/* The kernel of this name, or -1. */
int ptx_find(const ptx_machine *machine, const char *kernel);
int ptx_n_kernel(const ptx_machine *machine);
const char *ptx_kernel_name(const ptx_machine *machine, int kernel);
uint64_t ptx_launches(const ptx_machine *machine, int kernel);
int ptx_n_parameter(const ptx_machine *machine, int kernel);

/* argument[k] leads to the value of parameter k. */
void ptx_launch(ptx_machine *machine, int kernel, unsigned grid, unsigned block, void *const *argument);

int ptx_n_finding(const ptx_machine *machine);
const ptx_finding *ptx_finding_at(const ptx_machine *machine, int i);
void ptx_forget_findings(ptx_machine *machine);
uint64_t ptx_n_executed(const ptx_machine *machine); /* instructions of warps */
