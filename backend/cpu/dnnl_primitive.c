/* dnnl_primitive.c: describes, opens, runs and closes oneDNN primitives. */
#include "backend/cpu/dnnl_primitive.h"

#include <stdlib.h>
#include <string.h>

#include "backend/cpu/kernel.h"

static tandem_status onednn_error(const tandem_kernel *kernel, dnnl_status_t status, const char *what,
                                  tandem_error *error)
{
    if (status == dnnl_unimplemented) return cpu_kernel_refuse(kernel, "oneDNN has no such primitive", error);
    char name[KERNEL_NAME];
    kernel_name(name, &kernel->task, kernel->op);
    if (status == dnnl_out_of_memory) return tandem_no_memory(error, "to %s %s", what, name);
    return tandem_error_set(error, TANDEM_BUG, "oneDNN answers %d when asked to %s %s", (int)status, what,
                            name);
}

tandem_status cpu_primitive_describe(dnnl_primitive_desc_t *description, const tandem_kernel *kernel,
                                     const_dnnl_op_desc_t operation, dnnl_primitive_attr_t attributes,
                                     const_dnnl_primitive_desc_t hint, tandem_error *error)
{
    dnnl_primitive_attr_t own = NULL;
    dnnl_status_t status = dnnl_success;
    if (!attributes) status = dnnl_primitive_attr_create(&own);
    dnnl_primitive_attr_t const used = attributes ? attributes : own;
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_scratchpad_mode(used, dnnl_scratchpad_mode_user);
    if (status == dnnl_success)
        status = dnnl_primitive_desc_create(description, operation, used, kernel->device->engine, hint);
    if (own) dnnl_primitive_attr_destroy(own);
    return status == dnnl_success ? TANDEM_OK : onednn_error(kernel, status, "prepare", error);
}

static int is_implementation(const_dnnl_primitive_desc_t description, const char *beginning)
{
    const char *name = NULL;
    return dnnl_primitive_desc_query(description, dnnl_query_impl_info_str, 0, &name) == dnnl_success &&
           name && strncmp(name, beginning, strlen(beginning)) == 0;
}

tandem_status cpu_primitive_describe_by(dnnl_primitive_desc_t *description, const tandem_kernel *kernel,
                                        const_dnnl_op_desc_t operation, dnnl_primitive_attr_t attributes,
                                        const char *wanted, tandem_error *error)
{
    const tandem_status status =
        cpu_primitive_describe(description, kernel, operation, attributes, NULL, error);
    dnnl_primitive_desc_iterator_t each = NULL;
    if (status != TANDEM_OK || is_implementation(*description, wanted) ||
        dnnl_primitive_desc_iterator_create(&each, operation, attributes, kernel->device->engine, NULL) !=
            dnnl_success)
        return status;
    do {
        dnnl_primitive_desc_t found = dnnl_primitive_desc_iterator_fetch(each);
        if (found && is_implementation(found, wanted)) {
            dnnl_primitive_desc_destroy(*description);
            *description = found;
            break;
        }
        if (found) dnnl_primitive_desc_destroy(found);
    } while (dnnl_primitive_desc_iterator_next(each) == dnnl_success);
    dnnl_primitive_desc_iterator_destroy(each);
    return status;
}

int cpu_primitive_is_reference(const_dnnl_primitive_desc_t description)
{
    return is_implementation(description, "ref");
}

static dnnl_status_t add_primitive_argument(cpu_primitive *primitive, dnnl_engine_t engine, int id,
                                            const dnnl_memory_desc_t *layout)
{
    dnnl_exec_arg_t *argument = &primitive->argument[primitive->n];
    argument->arg = id;
    const dnnl_status_t status = dnnl_memory_create(&argument->memory, layout, engine, DNNL_MEMORY_NONE);
    if (status == dnnl_success) primitive->n++;
    return status;
}

static dnnl_status_t add_primitive_arguments(cpu_primitive *primitive, const tandem_kernel *kernel,
                                             const_dnnl_primitive_desc_t description, int n,
                                             const int *argument)
{
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < n && status == dnnl_success; i++) {
        dnnl_memory_desc_t one;
        const dnnl_memory_desc_t *layout;
        /* not one of the descriptors that can be queried */
        if (argument[i] == DNNL_ARG_ATTR_OUTPUT_SCALES) {
            dnnl_memory_desc_init_by_tag(&one, 1, (dnnl_dims_t){1}, dnnl_f32, dnnl_a);
            layout = &one;
        } else {
            layout = dnnl_primitive_desc_query_md(description, dnnl_query_exec_arg_md, argument[i]);
        }
        status = layout ? add_primitive_argument(primitive, kernel->device->engine, argument[i], layout)
                        : dnnl_invalid_arguments;
    }
    if (status != dnnl_success) return status;
    const dnnl_memory_desc_t *scratchpad =
        dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0);
    primitive->scratchpad_bytes = scratchpad ? dnnl_memory_desc_get_size(scratchpad) : 0;
    if (primitive->scratchpad_bytes > 0) {
        status = add_primitive_argument(primitive, kernel->device->engine, DNNL_ARG_SCRATCHPAD, scratchpad);
        if (status == dnnl_success) primitive->n--; /* it comes after the others and is not counted */
    }
    return status;
}

tandem_status cpu_primitive_open(cpu_primitive *primitive, const tandem_kernel *kernel,
                                 dnnl_primitive_desc_t description, int n, const int *argument,
                                 tandem_error *error)
{
    cpu_primitive opened = {0};
    dnnl_status_t status = add_primitive_arguments(&opened, kernel, description, n, argument);
    if (status == dnnl_success) status = dnnl_primitive_create(&opened.primitive, description);
    dnnl_primitive_desc_destroy(description);
    if (status != dnnl_success) {
        cpu_primitive_close(&opened);
        return onednn_error(kernel, status, "prepare", error);
    }
    *primitive = opened;
    return TANDEM_OK;
}

void cpu_primitive_close(cpu_primitive *primitive)
{
    if (primitive->primitive) dnnl_primitive_destroy(primitive->primitive);
    for (int i = 0; i <= CPU_PRIMITIVE_ARGUMENTS; i++)
        if (primitive->argument[i].memory) dnnl_memory_destroy(primitive->argument[i].memory);
    *primitive = (cpu_primitive){0};
}

tandem_status cpu_primitive_make(cpu_primitive *primitive, const tandem_kernel *kernel,
                                 const_dnnl_op_desc_t operation, const_dnnl_op_desc_t forward, int n,
                                 const int *argument, tandem_error *error)
{
    dnnl_primitive_desc_t description = NULL, hint = NULL;
    tandem_status status = TANDEM_OK;
    if (forward) status = cpu_primitive_describe(&hint, kernel, forward, NULL, NULL, error);
    if (status == TANDEM_OK)
        status = cpu_primitive_describe(&description, kernel, operation, NULL, hint, error);
    if (hint) dnnl_primitive_desc_destroy(hint);
    return status == TANDEM_OK ? cpu_primitive_open(primitive, kernel, description, n, argument, error)
                               : status;
}

static void destroy_primitive_state(void *state)
{
    cpu_primitive_close(state);
    free(state);
}

static tandem_status run_kept_primitive(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                        tandem_error *error)
{
    const cpu_primitive *primitive = kernel->state;
    const void *data[CPU_PRIMITIVE_ARGUMENTS];
    for (int i = 0; i < primitive->n; i++)
        data[i] = i < primitive->n_in ? call->in[i] : call->out[i - primitive->n_in];
    return cpu_primitive_run(primitive, kernel, data, call->workspace, error);
}

tandem_status cpu_primitive_keep(tandem_kernel *kernel, cpu_primitive *primitive, int n_in,
                                 tandem_error *error)
{
    cpu_primitive *state = malloc(sizeof *state);
    if (!state) {
        cpu_primitive_close(primitive);
        return cpu_kernel_no_memory(kernel, error);
    }
    *state = *primitive;
    state->n_in = n_in;
    *primitive = (cpu_primitive){0};
    kernel->state = state;
    kernel->destroy = destroy_primitive_state;
    kernel->workspace_bytes = state->scratchpad_bytes;
    kernel->run = run_kept_primitive;
    return TANDEM_OK;
}

tandem_status cpu_primitive_copy(cpu_primitive *primitive, const tandem_kernel *kernel,
                                 const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                                 tandem_error *error)
{
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_primitive_desc_t description = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(&attributes);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user);
    if (status == dnnl_success)
        status = dnnl_reorder_primitive_desc_create(&description, from, kernel->device->engine, to,
                                                    kernel->device->engine, attributes);
    if (attributes) dnnl_primitive_attr_destroy(attributes);
    if (status != dnnl_success) return onednn_error(kernel, status, "prepare a layout for", error);
    return cpu_primitive_open(primitive, kernel, description, 2, (const int[]){DNNL_ARG_FROM, DNNL_ARG_TO},
                              error);
}

tandem_status cpu_primitive_reorder(cpu_primitive *primitive, const tandem_kernel *kernel,
                                    const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                                    tandem_error *error)
{
    if (!dnnl_memory_desc_equal(from, to)) return cpu_primitive_copy(primitive, kernel, from, to, error);
    *primitive = (cpu_primitive){0};
    return TANDEM_OK;
}

tandem_status cpu_primitive_run(const cpu_primitive *primitive, const tandem_kernel *kernel,
                                const void *const *data, void *scratchpad, tandem_error *error)
{
    if (!primitive->primitive) return TANDEM_OK;
    dnnl_stream_t const stream = kernel->device->stream;
    dnnl_status_t status = dnnl_success;
    int n = primitive->n;
    for (int i = 0; i < n && status == dnnl_success; i++)
        status = dnnl_memory_set_data_handle_v2(primitive->argument[i].memory, (void *)data[i], stream);
    if (status == dnnl_success && primitive->scratchpad_bytes > 0)
        status = dnnl_memory_set_data_handle_v2(primitive->argument[n++].memory, scratchpad, stream);
    if (status == dnnl_success)
        status = dnnl_primitive_execute(primitive->primitive, stream, n, primitive->argument);
    return status == dnnl_success ? TANDEM_OK : onednn_error(kernel, status, "run", error);
}

dnnl_data_type_t cpu_dnnl_type(tandem_dtype dtype)
{
    switch (dtype) {
    case TANDEM_F32: return dnnl_f32;
    case TANDEM_BF16: return dnnl_bf16;
    case TANDEM_S8: return dnnl_s8;
    default: return dnnl_s32;
    }
}

dnnl_memory_desc_t cpu_matrix_descriptor(tandem_dtype dtype, int64_t rows, int64_t columns)
{
    dnnl_memory_desc_t layout;
    dnnl_memory_desc_init_by_tag(&layout, 2, (dnnl_dims_t){rows, columns}, cpu_dnnl_type(dtype), dnnl_ab);
    return layout;
}

dnnl_memory_desc_t cpu_image_descriptor(tandem_dtype dtype, const tandem_shape *shape)
{
    dnnl_memory_desc_t layout;
    const int64_t *dim = shape->dim; /* n, h, w, c */
    dnnl_memory_desc_init_by_tag(&layout, 4, (dnnl_dims_t){dim[0], dim[3], dim[1], dim[2]},
                                 cpu_dnnl_type(dtype), dnnl_nhwc);
    return layout;
}
