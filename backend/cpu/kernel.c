/* kernel.c: functions that the operators' files share: shapes, labels, bias periods, sums of rows. */
#include "backend/cpu/kernel.h"
#include "backend/cpu/team.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

tandem_status cpu_kernel_of_float(tandem_kernel *kernel, cpu_kernel_run *run, tandem_error *error)
{
    kernel->run = run;
    if (cpu_is_float(kernel->task.from) && kernel->task.to == kernel->task.from) return TANDEM_OK;
    return cpu_kernel_refuse(kernel, "it works in one float type, f32 or bf16", error);
}

typedef struct rows_call {
    const tandem_kernel *kernel;
    const tandem_kernel_call *call;
    cpu_kernel_part *part;
} rows_call;

static void run_rows(void *context, int64_t begin, int64_t end)
{
    const rows_call *of = context;
    of->part(of->kernel, of->call, begin, end);
}

void cpu_kernel_rows(const tandem_kernel *kernel, const tandem_kernel_call *call, int64_t n, int64_t width,
                     cpu_kernel_part *part)
{
    enum { WORTH_A_THREAD = 4096 };
    rows_call of = {kernel, call, part};
    cpu_for(n, width > 0 && width < WORTH_A_THREAD ? (WORTH_A_THREAD + width - 1) / width : 1, run_rows, &of);
}

const tandem_shape *cpu_input_shape(const tandem_kernel *kernel, int slot)
{
    return &kernel->graph->op[kernel->op->input[slot]].shape;
}

tandem_status cpu_label_index(int64_t *label_index, const tandem_kernel *kernel, const int32_t *label,
                              int64_t row, int64_t rows, tandem_error *error)
{
    const int64_t batch = kernel->graph->batch, of_sample = rows / batch,
                  length = tandem_shape_elements(cpu_input_shape(kernel, 1)) / batch;
    if (of_sample == length) {
        *label_index = row;
        return TANDEM_OK;
    }
    const int64_t sample = row / of_sample, end = (sample + 1) * length;
    int64_t next = row % of_sample == 0 ? sample * length : *label_index + 1;
    while (next < end && label[next] == -1) next++;
    if (next == end)
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "operator '%s': sample %" PRId64 " has %" PRId64
                                " labels that are not −1; allowed is %" PRId64,
                                kernel->op->name, sample, row % of_sample, of_sample);
    *label_index = next;
    return TANDEM_OK;
}

size_t cpu_bias_period(const tandem_kernel *kernel)
{
    return (size_t)tandem_bias_period(kernel->op, &kernel->graph->parameter[kernel->op->parameter[0]]);
}

void cpu_add_row(float *sum, const void *row, tandem_dtype from, int64_t n)
{
    if (from == TANDEM_F32) {
        const float *const wide = row;
        for (int64_t j = 0; j < n; j++) sum[j] += wide[j];
        return;
    }
    const uint16_t *const narrow = row;
    for (int64_t j = 0; j < n; j++) {
        const uint32_t bits = (uint32_t)narrow[j] << 16;
        float value;
        memcpy(&value, &bits, sizeof value);
        sum[j] += value;
    }
}
