/* ptx_findings.c: a machine, its arrays and what it has found. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/ptx/ptx_machine.h"

const char *const ptx_fault_names[PTX_N_FAULT] = {
    [PTX_SHARED_RACE] = "warps race in shared memory",
    [PTX_LANE_EXCHANGE] = "lanes exchange by shared memory without a barrier",
    [PTX_SHARED_UNWRITTEN] = "shared memory is read before it is written",
    [PTX_SHARED_BOUNDS] = "an access outside of shared memory",
    [PTX_GLOBAL_BOUNDS] = "an access outside of all arrays",
    [PTX_ALIGNMENT] = "a misaligned access",
    [PTX_GLOBAL_UNWRITTEN] = "an array is read where it was never written",
    [PTX_STALE_READ] = "ld.global.nc of a byte that the launch writes",
    [PTX_BLOCK_RACE] = "blocks race in an array",
    [PTX_BARRIER] = "not all threads come to one barrier",
    [PTX_LANES_MISSING] = "lanes are missing that the instruction names",
    [PTX_ENDLESS] = "the launch does not end",
};

void *ptx_must(void *memory)
{
    if (memory) return memory;
    fprintf(stderr, "tests/ptx: no memory\n");
    abort();
}

ptx_machine *ptx_open(const ptx_options *options)
{
    ptx_machine *const machine = calloc(1, sizeof *machine);
    if (machine && options) ptx_set_options(machine, options);
    return machine;
}

void ptx_set_options(ptx_machine *machine, const ptx_options *options)
{
    machine->options = *options;
    machine->drawn = options->seed * 0x9E3779B97F4A7C15ull + 0x2545F4914F6CDD1Dull;
}

void ptx_close(ptx_machine *machine)
{
    if (!machine) return;
    for (int k = 0; k < machine->n_kernel; k++) {
        free(machine->kernel[k].name);
        free(machine->kernel[k].code);
        free(machine->kernel[k].parameter);
        free(machine->kernel[k].constants);
    }
    while (machine->n_array) ptx_remove_memory(machine, machine->array[0].at);
    for (int t = 0; t < machine->n_text; t++) free(machine->text[t]);
    free(machine->kernel);
    free(machine->array);
    free(machine->finding);
    free(machine->text);
    free(machine->error);
    free(machine);
}

int ptx_find(const ptx_machine *machine, const char *kernel)
{
    for (int k = 0; k < machine->n_kernel; k++)
        if (strcmp(machine->kernel[k].name, kernel) == 0) return k;
    return -1;
}

int ptx_n_kernel(const ptx_machine *machine) { return machine->n_kernel; }
const char *ptx_kernel_name(const ptx_machine *machine, int kernel) { return machine->kernel[kernel].name; }
uint64_t ptx_launches(const ptx_machine *machine, int kernel) { return machine->kernel[kernel].launches; }
int ptx_n_parameter(const ptx_machine *machine, int kernel) { return machine->kernel[kernel].n_parameter; }
uint64_t ptx_n_executed(const ptx_machine *machine) { return machine->executed; }

/* --- Findings ------------------------------------------------------------------------------------------- */

void ptx_report(ptx_machine *machine, ptx_fault fault, const ptx_instruction *i)
{
    const char *const kernel = machine->now->name;
    const int line = i ? i->line : 0;
    for (int f = 0; f < machine->n_finding; f++) {
        ptx_finding *const known = &machine->finding[f];
        if (known->fault == fault && known->line == line && known->kernel == kernel) {
            known->times++;
            return;
        }
    }
    if (machine->n_finding == machine->max_finding) {
        machine->max_finding = machine->max_finding * 2 + 16;
        machine->finding =
            ptx_must(realloc(machine->finding, (size_t)machine->max_finding * sizeof *machine->finding));
    }
    machine->finding[machine->n_finding++] = (ptx_finding){fault, kernel, line, 1};
}

int ptx_n_finding(const ptx_machine *machine) { return machine->n_finding; }
const ptx_finding *ptx_finding_at(const ptx_machine *machine, int i) { return &machine->finding[i]; }
void ptx_forget_findings(ptx_machine *machine) { machine->n_finding = 0; }

/* --- Arrays --------------------------------------------------------------------------------------------- */

void ptx_add_memory(ptx_machine *machine, void *at, size_t bytes, int is_written)
{
    if (machine->n_array == machine->max_array) {
        machine->max_array = machine->max_array * 2 + 16;
        machine->array =
            ptx_must(realloc(machine->array, (size_t)machine->max_array * sizeof *machine->array));
    }
    int place = machine->n_array++;
    for (; place > 0 && machine->array[place - 1].at > (uint8_t *)at; place--)
        machine->array[place] = machine->array[place - 1];
    ptx_array *const own = &machine->array[place];
    *own = (ptx_array){.at = at, .bytes = bytes, .state = ptx_must(calloc(bytes + 1, 1)), .first = bytes};
    own->writer = ptx_must(calloc(bytes + 1, sizeof *own->writer));
    own->stored = ptx_must(calloc(bytes + 1, sizeof *own->stored));
    own->epoch = ptx_must(calloc(bytes + 1, sizeof *own->epoch));
    if (is_written) memset(own->state, PTX_IS_WRITTEN, bytes);
}

void ptx_remove_memory(ptx_machine *machine, const void *at)
{
    for (int k = 0; k < machine->n_array; k++) {
        if (machine->array[k].at != at) continue;
        free(machine->array[k].state);
        free(machine->array[k].writer);
        free(machine->array[k].stored);
        free(machine->array[k].epoch);
        machine->n_array--;
        memmove(&machine->array[k], &machine->array[k + 1],
                (size_t)(machine->n_array - k) * sizeof *machine->array);
    }
    machine->last_array = 0;
}

void ptx_mark_written(ptx_machine *machine, const void *at, size_t bytes)
{
    for (int k = 0; k < machine->n_array; k++) {
        const ptx_array *const a = &machine->array[k];
        if ((const uint8_t *)at < a->at || (const uint8_t *)at >= a->at + a->bytes) continue;
        const size_t first = (size_t)((const uint8_t *)at - a->at), left = a->bytes - first;
        for (size_t b = 0; b < bytes && b < left; b++) a->state[first + b] |= PTX_IS_WRITTEN;
    }
}
