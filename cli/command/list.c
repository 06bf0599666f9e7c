/* list.c: `tandem list`: the names that other commands take. */
#include <limits.h>
#include <math.h>
#include <stdio.h>

#include "base/append.h"
#include "base/nearest.h"
#include "cli/cli.h"
#include "cli/table.h"
#include "tandem/advanced/format.h"
#include "tandem/advanced/predictor.h"

/* --- Devices ---------------------------------------------------------------------------------- */

static json_t *precision_names_json(unsigned precisions)
{
    json_t *names = json_array();
    for (int p = 0; p < TANDEM_N_PRECISION; p++)
        if (precisions >> p & 1)
            json_array_append_new(names, json_string(tandem_precision_get((tandem_precision)p)->name));
    return names;
}

static const char *print_precision_names(char *text, size_t size, unsigned precisions)
{
    text[0] = '\0';
    for (int p = 0; p < TANDEM_N_PRECISION; p++)
        if (precisions >> p & 1)
            (void)tandem_append(text, size, "%s%s", *text ? ", " : "",
                                tandem_precision_get((tandem_precision)p)->name);
    return text[0] ? text : "-";
}

/* null without a description. */
static json_t *device_facts_json(const tandem_device *device)
{
    const tandem_gpu_spec *spec = &device->gpu_spec;
    if (!tandem_device_is_described(device)) return json_null();
    json_t *flops = json_object(), *reached = json_object();
    tandem_reached_rates rates;
    tandem_reached_rates_fitted(&rates, device);
    for (int d = 0; d < TANDEM_N_COMPUTE_DTYPE; d++) {
        if (spec->flops_per_s[d] <= 0) continue;
        json_object_set_new(flops, tandem_dtype_name((tandem_dtype)d), json_real(spec->flops_per_s[d]));
        json_object_set_new(reached, tandem_dtype_name((tandem_dtype)d), json_real(rates.flops_per_s[d]));
    }
    return json_pack("{s:o,s:o,s:f,s:f,s:f,s:f,s:i,s:i,s:s,s:i,s:I}", "flops_per_s", flops,
                     "reached_flops_per_s", reached, "bytes_per_s", spec->bytes_per_s, "reached_bytes_per_s",
                     rates.bytes_per_s, "l2_bytes", spec->l2_bytes, "watts", spec->watts, "process_nm",
                     spec->process_nm, "mhz", spec->mhz, "memory_kind",
                     spec->memory_kind == TANDEM_HBM ? "HBM" : "GDDR", "n_sm", spec->n_sm, "memory_bytes",
                     (json_int_t)device->memory_bytes);
}

/* Rows that others measured of a described device and that ship. */
static int64_t count_others(const tandem_device *device)
{
    tandem_calibration *calibration = NULL;
    int64_t n = 0;
    if (!tandem_device_is_described(device)) return 0;
    if (tandem_calibration_open(&calibration, device, NULL) == TANDEM_OK &&
        tandem_calibration_add_others(calibration, NULL) == TANDEM_OK)
        n = tandem_calibration_others_count(calibration);
    tandem_calibration_close(calibration);
    return n;
}

static void list_device(json_t *rows, cli_table *table, const tandem_device *device, int present,
                        const char *meaning)
{
    char precisions[128], known[64];
    const int described = tandem_device_is_described(device);
    const int64_t n_others = count_others(device);
    (void)snprintf(known, sizeof known, n_others ? "described, measured by others (%lld rows)" : "described",
                   (long long)n_others);
    json_array_append_new(rows, json_pack("{s:s,s:s,s:b,s:o,s:s,s:o,s:I}", "name", device->name, "meaning",
                                          meaning, "present", present, "precisions",
                                          precision_names_json(device->precisions), "amp_dtype",
                                          tandem_dtype_name(device->amp_dtype), "described",
                                          device_facts_json(device), "others_rows", (json_int_t)n_others));
    cli_table_row(table, "%s\t%s\t%s\t%s\t%s", device->name,
                  present     ? "yes"
                  : described ? known
                              : "no",
                  print_precision_names(precisions, sizeof precisions, device->precisions),
                  tandem_dtype_name(device->amp_dtype), meaning);
}

/* One row represents all GPUs of this machine, which have numbers. */
static void list_gpus(json_t *rows, cli_table *table)
{
    tandem_device gpu;
    tandem_error why;
    char text[256];
    if (tandem_device_find(&gpu, "cuda:0", &why) != TANDEM_OK) return;
    const tandem_backend_api *backend = runtime_backend(&why);
    const int present = backend && backend->device_describe(text, sizeof text, gpu.name, &why) == TANDEM_OK;
    list_device(rows, table, &gpu, present,
                "NVIDIA GPUs by number: cuda:0, cuda:1, …; `tandem doctor` shows those here");
}

static tandem_status list_devices(json_t *rows, cli_table *table, tandem_error *error)
{
    (void)error;
    cli_table_row(table, "device\there\tprecisions\tamp dtype\twhat it is");
    for (int i = 0; i < tandem_device_count(); i++) {
        const tandem_device *device = tandem_device_get(i);
        list_device(rows, table, device, tandem_device_is_present(device->name), device->meaning);
    }
    list_gpus(rows, table);
    return TANDEM_OK;
}

/* --- Models ----------------------------------------------------------------------------------- */

static json_t *model_options_json(const tandem_model *model)
{
    char usual[TANDEM_MODEL_VALUE_TEXT], min[TANDEM_MODEL_VALUE_TEXT], max[TANDEM_MODEL_VALUE_TEXT];
    json_t *options = json_array();
    for (const tandem_model_option *option = model->option; option->name; option++)
        json_array_append_new(options,
                              json_pack("{s:s,s:s,s:s,s:s,s:s}", "name", option->name, "default",
                                        tandem_model_value_print(usual, option, option->default_value), "min",
                                        tandem_model_value_print(min, option, option->min_value), "max",
                                        tandem_model_value_print(max, option, option->max_value), "meaning",
                                        option->meaning));
    return options;
}

static tandem_status list_models(json_t *rows, cli_table *table, tandem_error *error)
{
    (void)error;
    char usual[TANDEM_MODEL_VALUE_TEXT], min[TANDEM_MODEL_VALUE_TEXT], max[TANDEM_MODEL_VALUE_TEXT];
    cli_table_row(table, "model\toption\t>default\trange\twhat it is");
    for (int i = 0; i < tandem_model_count(); i++) {
        const tandem_model *model = tandem_model_get(i);
        json_array_append_new(rows,
                              json_pack("{s:s,s:s,s:s,s:o}", "name", model->name, "summary", model->summary,
                                        "data", model->data, "options", model_options_json(model)));
        cli_table_row(table, "%s\t\t\t\t%s; trains on %s", model->name, model->summary, model->data);
        for (const tandem_model_option *option = model->option; option->name; option++)
            cli_table_row(table, "\t%s\t%s\t%s … %s\t%s", option->name,
                          tandem_model_value_print(usual, option, option->default_value),
                          tandem_model_value_print(min, option, option->min_value),
                          tandem_model_value_print(max, option, option->max_value), option->meaning);
    }
    return TANDEM_OK;
}

/* --- Precisions ------------------------------------------------------------------------------- */

static tandem_status list_precisions(json_t *rows, cli_table *table, tandem_error *error)
{
    (void)error;
    cli_table_row(table, "precision\tforward\tdgrad\twgrad\tother "
                         "operand\taccumulator\toutput\tsaved\tproduct");
    for (int p = 0; p < TANDEM_N_PRECISION; p++) {
        const tandem_precision_row *row = tandem_precision_get((tandem_precision)p);
        const char *forward = tandem_dtype_name(row->forward), *dgrad = tandem_dtype_name(row->dgrad),
                   *wgrad = tandem_dtype_name(row->wgrad),
                   *other_operand_dtype = tandem_dtype_name(row->other_operand_dtype),
                   *accumulator = tandem_dtype_name(row->accumulator),
                   *output = tandem_dtype_name(row->output), *saved = tandem_dtype_name(row->saved),
                   *product_dtype = tandem_dtype_name(row->product_dtype);
        json_array_append_new(rows,
                              json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s}", "name", row->name, "forward",
                                        forward, "dgrad", dgrad, "wgrad", wgrad, "other_operand_dtype",
                                        other_operand_dtype, "accumulator", accumulator, "output", output,
                                        "saved", saved, "product_dtype", product_dtype));
        cli_table_row(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", row->name, forward, dgrad, wgrad,
                      other_operand_dtype, accumulator, output, saved, product_dtype);
    }
    return TANDEM_OK;
}

/* --- Number formats --------------------------------------------------------------------------- */

static tandem_status list_formats(json_t *rows, cli_table *table, tandem_error *error)
{
    static const char *const rounding[] = {"nearest", "stochastic", "toward zero"};
    static const char *const scale[] = {"none",       "loss",       "tensor",   "row",
                                        "block e8m0", "block e4m3", "block f32"};
    (void)error;
    cli_table_row(table,
                  "format\tdtype\t>bits\t>largest\t>least\tbeyond\trounding\tscale\t>block\t>sum bits");
    for (int f = 0; f < TANDEM_N_FORMAT; f++) {
        const tandem_format_row *row = tandem_format_get((tandem_format)f);
        const char *beyond = row->overflow == TANDEM_OVERFLOW_INFINITE ? "infinite" : "saturating";
        const double largest = tandem_format_largest(row), least = ldexp(1, row->least);
        json_array_append_new(rows,
                              json_pack("{s:s,s:s,s:i,s:i,s:f,s:f,s:s,s:s,s:s,s:i,s:i}", "name", row->name,
                                        "dtype", tandem_dtype_name(row->dtype), "bits", row->bits, "mantissa",
                                        row->mantissa, "largest", largest, "least", least, "beyond", beyond,
                                        "rounding", rounding[row->rounding], "scale", scale[row->scale],
                                        "block", row->block, "sum_bits", row->sum_bits));
        cli_table_row(table, "%s\t%s\t%d\t%.6g\t%.3g\t%s\t%s\t%s\t%d\t%d", row->name,
                      tandem_dtype_name(row->dtype), row->bits, largest, least, beyond,
                      rounding[row->rounding], scale[row->scale], row->block, row->sum_bits);
    }
    return TANDEM_OK;
}

/* --- Operators -------------------------------------------------------------------------------- */

static const char *op_class_text(tandem_op_class op_class)
{
    switch (op_class) {
    case TANDEM_SOURCE: return "source";
    case TANDEM_ADJUSTABLE: return "adjustable";
    case TANDEM_DEPENDENT: return "dependent";
    case TANDEM_FIXED: break;
    }
    return "fixed";
}

static tandem_status list_operators(json_t *rows, cli_table *table, tandem_error *error)
{
    (void)error;
    char precisions[128];
    cli_table_row(table, "operator\tclass\t>inputs\t>parameters\tprecisions");
    for (int kind = 0; kind < TANDEM_N_OP_KIND; kind++) {
        const tandem_op_row *row = tandem_op_row_get((tandem_op_kind)kind);
        json_array_append_new(rows, json_pack("{s:s,s:s,s:i,s:i,s:o}", "name", row->name, "class",
                                              op_class_text(row->op_class), "inputs", row->n_input,
                                              "parameters", row->n_parameter, "precisions",
                                              precision_names_json(row->precisions)));
        cli_table_row(table, "%s\t%s\t%d\t%d\t%s", row->name, op_class_text(row->op_class), row->n_input,
                      row->n_parameter,
                      print_precision_names(precisions, sizeof precisions, row->precisions));
    }
    return TANDEM_OK;
}

/* --- Policies --------------------------------------------------------------------------------- */

static tandem_status list_policies(json_t *rows, cli_table *table, tandem_error *error)
{
    (void)error;
    cli_table_row(table, "policy\twhat it does");
    const tandem_policy *policy;
    for (int i = 0; (policy = tandem_policy_get(i)); i++) {
        json_array_append_new(rows, json_pack("{s:s,s:s}", "name", policy->name, "meaning", policy->meaning));
        cli_table_row(table, "%s\t%s", policy->name, policy->meaning);
    }
    return TANDEM_OK;
}

/* --- Data sets -------------------------------------------------------------------------------- */

static tandem_status list_datasets(json_t *rows, cli_table *table, tandem_error *error)
{
    (void)error;
    cli_table_row(table, "data\tpackage\twhat it is\twhere");
    for (int i = 0; tandem_data_set_at(i); i++) {
        const tandem_data_set *set = tandem_data_set_at(i);
        char path[PATH_MAX];
        const int here = tandem_data_find(path, sizeof path, set->name, NULL) == TANDEM_OK;
        json_array_append_new(rows, json_pack("{s:s,s:s,s:s,s:b,s:s?}", "name", set->name, "meaning",
                                              set->text, "package", set->package, "present", here, "path",
                                              here ? path : NULL));
        cli_table_row(table, "%s\t%s\t%s\t%s", set->name, set->package, set->text,
                      here ? path : "not installed");
    }
    for (int i = 0; tandem_data_format_at(i); i++) {
        const tandem_data_format *format = tandem_data_format_at(i);
        json_array_append_new(rows, json_pack("{s:s,s:s,s:n,s:b,s:n}", "name", format->given, "meaning",
                                              format->text, "package", "present", 0, "path"));
        cli_table_row(table, "%s\t\t%s\t--data=PATH", format->given, format->text);
    }
    return TANDEM_OK;
}

/* --- The command ------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    tandem_status (*list)(json_t *rows, cli_table *table, tandem_error *error);
} kinds[] = {
    {"devices", list_devices},   {"models", list_models},       {"precisions", list_precisions},
    {"formats", list_formats},   {"operators", list_operators}, {"policies", list_policies},
    {"datasets", list_datasets},
};
enum { N_KIND = sizeof kinds / sizeof *kinds };

static int run_list(const cli_options *options)
{
    tandem_hint hint;
    if (options->n_word != 1)
        return cli_fail_with(TANDEM_USAGE,
                             "say what to list, one of devices, models, precisions, formats, operators, "
                             "policies, datasets");
    const int kind = tandem_name_find(options->word[0], &kinds[0].name, N_KIND, sizeof *kinds, &hint);
    if (kind < 0)
        return cli_fail_with(
            TANDEM_UNKNOWN_NAME,
            "no list '%s'.%s Say one of devices, models, precisions, formats, operators, policies, "
            "datasets.",
            options->word[0], hint.text);
    tandem_error error = {0};
    cli_table table = {0};
    json_t *result = cli_json_new("list"), *rows = json_array();
    json_object_set_new(result, kinds[kind].name, rows);
    const tandem_status status = kinds[kind].list(rows, &table, &error);
    int code = 0;
    if (status != TANDEM_OK)
        code = cli_fail(&error);
    else if (options->json)
        code = cli_print_json(json_incref(result));
    else
        code = cli_table_finish(&table);
    cli_table_free(&table);
    json_decref(result);
    return code;
}

static const int options[] = {OPTION_END};
const cli_command command_list = {
    .name = "list",
    .words = "devices|models|precisions|formats|operators|policies|datasets",
    .summary = "Devices, models, precisions, formats, operators, policies, data sets",
    .option = options,
    .description =
        "Examples:\n"
        "  tandem list devices            devices of this machine and GPUs to plan for, with their "
        "precisions\n"
        "  tandem list models             models with their options, written NAME:option=value,...\n"
        "  tandem list precisions --json  the dtypes of each precision, as one JSON object\n"
        "here: yes; no; described: tandem can plan for it with --predict, but has no kernels. In\n"
        "`list precisions`, `amp` means the amp dtype of the device in `list devices`.",
    .run = run_list,
};
