/* pytorch_kernels.c: the kernels of a task in PyTorch without fusion, from the table in pytorch_kernels.def.
 *
 * Each kernel is a work of its own, which the form or its calibration times. A task follows the table where
 * that names its operator and pass, else it is one kernel, as tandem's. */
#include <math.h>
#include <string.h>

#include "base/nearest.h"
#include "predictor/form.h"
#include "tandem/advanced/predictor.h"

/* Whose elements a kernel reads and writes. */
typedef enum kernel_of {
    OF_TASK,
    OF_ELEMENTS,
    OF_INPUT,
    OF_OUTPUT,
    OF_WEIGHT,
    OF_PARAMETERS /* as OF_ELEMENTS, a kernel for each parameter */
} kernel_of;

typedef enum kernel_when {
    WHEN_ALWAYS,
    WHEN_SUMMED,         /* another gradient is added to the result */
    WHEN_TWO_BYTES,      /* operands of two bytes */
    WHEN_CHANNELS_FIRST, /* on tensor cores, without the memory format that they take */
    WHEN_OF_TABLE,       /* a bias that is rows of a table, such as positions */
    WHEN_IN_PRODUCT,     /* any other bias */
    WHEN_GELU_AS_ONE,
    WHEN_GELU_WRITTEN_OUT,
    WHEN_CAUSAL,
    WHEN_MASKED, /* causal, or a mask is added */
    WHEN_UPDATES,
    WHEN_KEEPS /* without an update */
} kernel_when;

static const struct kernel_row {
    const char *kind;
    tandem_pass pass;
    kernel_when when;
    kernel_of of;
    double count, accesses, bytes;
} kernel_rows[] = {
#define KERNEL(kind, pass, when, of, count, accesses, bytes)                                                 \
    {#kind, TANDEM_PASS_##pass, WHEN_##when, OF_##of, count, accesses, bytes},
#include "tandem/advanced/pytorch_kernels.def"
#undef KERNEL
};
enum { N_KERNEL_ROW = sizeof kernel_rows / sizeof *kernel_rows };

/* How the models' public implementations are written (docs/predicting.md). */
static const struct {
    const char *model; /* what its name begins with */
    int writes_gelu_out, adds_mask;
} model_writings[] = {{"gpt", 1, 0}, {"bert", 0, 1}};

const char *tandem_kernel_set_name(tandem_kernel_set set)
{
    static const char *const names[TANDEM_N_KERNEL_SET] = {[TANDEM_KERNELS_TANDEM] = "tandem",
                                                           [TANDEM_KERNELS_PYTORCH] = "pytorch",
                                                           [TANDEM_KERNELS_PYTORCH_NHWC] = "pytorch-nhwc"};
    return names[set];
}

tandem_status tandem_kernel_set_find(tandem_kernel_set *set, const char *name, tandem_error *error)
{
    const char *names[TANDEM_N_KERNEL_SET];
    for (int i = 0; i < TANDEM_N_KERNEL_SET; i++) {
        names[i] = tandem_kernel_set_name((tandem_kernel_set)i);
        if (strcmp(names[i], name) != 0) continue;
        *set = (tandem_kernel_set)i;
        return TANDEM_OK;
    }
    return tandem_error_set(error, TANDEM_UNKNOWN_NAME, "there is no kernel set '%s'.%s", name,
                            tandem_nearest_hint(name, names, TANDEM_N_KERNEL_SET).text);
}

static int is_written(const char *model, int asks_gelu)
{
    for (size_t i = 0; i < sizeof model_writings / sizeof *model_writings; i++)
        if (strncmp(model, model_writings[i].model, strlen(model_writings[i].model)) == 0)
            return asks_gelu ? model_writings[i].writes_gelu_out : model_writings[i].adds_mask;
    return 0;
}

static int does_hold(kernel_when when, const tandem_cost_key *key, const tandem_work *task_work,
                     const tandem_kernel_style *style, const tandem_gpu_spec *spec)
{
    const int is_causal = strstr(key->signature, " causal=1") != NULL;
    switch (when) {
    case WHEN_ALWAYS: return 1;
    case WHEN_SUMMED: return strstr(key->signature, " accumulate=1") != NULL;
    case WHEN_TWO_BYTES: return tandem_dtype_bytes(key->from) == 2;
    case WHEN_CHANNELS_FIRST:
        return style->set == TANDEM_KERNELS_PYTORCH && spec->generation >= 70 &&
               task_work->type != TANDEM_F32;
    case WHEN_OF_TABLE: return strstr(key->signature, " of=") != NULL;
    case WHEN_IN_PRODUCT: return strstr(key->signature, " of=") == NULL;
    case WHEN_GELU_AS_ONE: return !is_written(style->model, 1);
    case WHEN_GELU_WRITTEN_OUT: return is_written(style->model, 1);
    case WHEN_CAUSAL: return is_causal;
    case WHEN_MASKED: return is_causal || is_written(style->model, 0);
    case WHEN_UPDATES: return !style->without_update;
    case WHEN_KEEPS: return style->without_update;
    }
    return 0;
}

static double elements_of(const tandem_task_sizes *sizes, kernel_of elements)
{
    switch (elements) {
    case OF_INPUT: return sizes->input;
    case OF_OUTPUT: return sizes->output;
    case OF_WEIGHT: return sizes->weight;
    case OF_TASK:
    case OF_ELEMENTS:
    case OF_PARAMETERS: break;
    }
    return sizes->elements;
}

static void add_kernel(tandem_task_kernels *out, const struct kernel_row *row, const tandem_cost_key *key,
                       const tandem_work *task_work, const tandem_task_sizes *sizes)
{
    if (row->of == OF_TASK) {
        out->count[out->n] = 1;
        out->work[out->n++] = *task_work;
        return;
    }
    const tandem_dtype dtype = row->when == WHEN_SUMMED ? key->to : key->from;
    const double size = (double)tandem_dtype_bytes(dtype),
                 n_parameter = row->of == OF_PARAMETERS ? fmax(1, sizes->parameters) : 1,
                 bytes = elements_of(sizes, row->of) * (row->accesses * size + row->bytes) / n_parameter;
    if (row->count == 0 && out->n > 0) out->work[out->n - 1].bytes += bytes; /* of the kernel before */
    if (!(row->count > 0 && bytes > 0)) return;
    out->count[out->n] = row->count * n_parameter;
    out->work[out->n++] = (tandem_work){.kind = task_work->kind,
                                        .work_class = TANDEM_WORK_STREAM,
                                        .type = task_work->type,
                                        .pass = key->pass,
                                        .bytes = bytes,
                                        .element_bytes = size};
}

int tandem_kernels_of(tandem_task_kernels *out, const tandem_cost_key *key, const tandem_kernel_style *style,
                      const tandem_gpu_spec *spec)
{
    tandem_cost_key plain = *key;
    tandem_work task_work;
    int is_known = 0;
    *out = (tandem_task_kernels){.n = 0};
    /* what is added to the result has a kernel of its own in the table */
    char *const summed = key->kind == TANDEM_COST_OP ? strstr(plain.signature, " accumulate=1") : NULL;
    if (summed) *summed = '\0';
    if (!tandem_work_of(&task_work, &plain)) return 0;
    const tandem_task_sizes sizes = tandem_task_sizes_of(key->signature);
    for (int i = 0; i < N_KERNEL_ROW && key->kind == TANDEM_COST_OP; i++) {
        const struct kernel_row *const row = &kernel_rows[i];
        if (row->pass != key->pass || strcmp(row->kind, task_work.kind) != 0) continue;
        is_known = 1;
        if (does_hold(row->when, key, &task_work, style, spec)) add_kernel(out, row, key, &task_work, &sizes);
    }
    if (!is_known) {
        out->count[0] = 1;
        out->work[out->n++] = task_work;
    }
    return 1;
}

int64_t tandem_latency_of_kernels(const tandem_latency *latency, const tandem_cost_key *key,
                                  const tandem_kernel_style *style, int *form_group)
{
    const tandem_calibration *const calibration = tandem_latency_calibration(latency);
    tandem_task_kernels kernels;
    double sum = 0, longest = -1;
    *form_group = -1;
    if (!calibration) return -1;
    const tandem_gpu_spec *const spec = &tandem_calibration_device(calibration)->gpu_spec;
    if (!tandem_kernels_of(&kernels, key, style, spec)) return -1;
    for (int i = 0; i < kernels.n; i++) {
        const double ns = tandem_calibrated_ns(NULL, calibration, &kernels.work[i]) * kernels.count[i];
        if (!(ns >= 0) || ns > 1e18) return -1;
        if (ns > longest) *form_group = tandem_calibration_form_group(calibration, &kernels.work[i]);
        longest = fmax(longest, ns);
        sum += ns;
    }
    return sum > 1 ? llround(sum) : 1;
}
