/* allocate_instance.c: `tandem allocate --instance FILE`: choices for a bare instance, without model, store
 * or device. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/quantity.h"
#include "cli/cli.h"
#include "cli/table.h"
#include "tandem/mckp.h"

static const double rounding = 1e-9; /* a gap below it is none: bounds are safe against rounding */

typedef struct instance_context {
    const cli_options *options;
    const char *policy;
    tandem_mckp *instance;
    tandem_mckp_answer answer;
    double seconds;
} instance_context;

static tandem_status check_instance_options(const cli_options *options, tandem_error *error)
{
    static const int allowed[] = {OPTION_INSTANCE, OPTION_POLICY, OPTION_OUTPUT,
                                  OPTION_JSON,     OPTION_QUIET,  OPTION_END};
    const char *other = cli_option_not_allowed(options, allowed);
    if (other)
        return tandem_error_set(error, TANDEM_USAGE,
                                "--%s is about a model, and --instance brings no model but its own limits; "
                                "only --policy and --output go with it",
                                other);
    return TANDEM_OK;
}

static tandem_status solve_instance(instance_context *s, tandem_error *error)
{
    tandem_status status = check_instance_options(s->options, error);
    if (status == TANDEM_OK) status = tandem_mckp_read(&s->instance, s->options->instance, error);
    if (status != TANDEM_OK) return status;
    s->answer.choice = calloc((size_t)s->instance->n_item, sizeof *s->answer.choice);
    if (!s->answer.choice) return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for the choices");
    const int64_t begin_ns = tandem_now_ns();
    status = tandem_mckp_solve(&s->answer, s->instance, s->policy, 0, error);
    s->seconds = (double)(tandem_now_ns() - begin_ns) * 1e-9;
    if (status == TANDEM_OK && s->options->output)
        status = tandem_mckp_write(s->instance, &s->answer, s->options->output, error);
    return status;
}

static double time_to_ns(const tandem_mckp *instance, int64_t time)
{
    double power = 1;
    for (int d = 0; d < instance->decimals; d++) power *= 10;
    return (double)time / power;
}

static const tandem_mckp_choice *item_choice(const instance_context *s, int i)
{
    return &s->instance->item[i].choice[s->answer.choice[i]];
}

/* --- JSON ------------------------------------------------------------------------------------- */

static int print_instance_json(const instance_context *s)
{
    const tandem_mckp *instance = s->instance;
    json_t *result = cli_json_new("allocate"), *choices = json_array();
    for (int i = 0; i < instance->n_item; i++)
        json_array_append_new(choices, json_pack("{s:s,s:s,s:i}", "item", instance->item[i].name, "choice",
                                                 item_choice(s, i)->name, "number", s->answer.choice[i]));
    const int has_bytes = instance->byte_limit != UINT64_MAX;
    json_object_set_new(result, "instance", json_string(s->options->instance));
    json_object_set_new(result, "policy", json_string(s->policy));
    json_object_set_new(result, "items", json_integer(instance->n_item));
    json_object_set_new(result, "groups", json_integer(instance->n_group));
    json_object_set_new(result, "harm", json_real(s->answer.sensitivity));
    json_object_set_new(result, "lower_bound", json_real(s->answer.lower_bound));
    json_object_set_new(result, "gap", json_real(s->answer.gap));
    json_object_set_new(result, "proof", json_string(s->answer.proof));
    json_object_set_new(result, "time_ns", json_real(s->answer.time_ns));
    json_object_set_new(result, "time_limit_ns", cli_json_number(instance->time_limit_ns));
    json_object_set_new(result, "time_unit_ns", json_real(time_to_ns(instance, 1)));
    json_object_set_new(result, "time_rounded", json_boolean(instance->rounded));
    json_object_set_new(result, "bytes", json_integer((json_int_t)s->answer.bytes));
    json_object_set_new(result, "byte_limit",
                        has_bytes ? json_integer((json_int_t)instance->byte_limit) : json_null());
    json_object_set_new(result, "seconds", json_real(s->seconds));
    json_object_set_new(result, "choices", choices);
    return cli_print_json(result);
}

/* --- Text ------------------------------------------------------------------------------------- */

static int print_instance_limits(const instance_context *s)
{
    const tandem_mckp *instance = s->instance;
    char gap[TANDEM_QUANTITY_TEXT];
    cli_table table = {0};
    cli_table_row(&table, "\t>chosen\t>limit");
    if (instance->time_limit != INT64_MAX)
        cli_table_row(&table, "time (ns)\t%.15g\t%.15g", s->answer.time_ns, instance->time_limit_ns);
    else
        cli_table_row(&table, "time (ns)\t%.15g\tnone", s->answer.time_ns);
    if (instance->byte_limit != UINT64_MAX)
        cli_table_row(&table, "bytes\t%" PRIu64 "\t%" PRIu64, s->answer.bytes, instance->byte_limit);
    else
        cli_table_row(&table, "bytes\t%" PRIu64 "\tnone", s->answer.bytes);
    const int code = cli_table_print(&table);
    cli_table_free(&table);
    printf("\nharm %.6g; no choices within the limits have less than %.6g (%s), gap %s\n\n",
           s->answer.sensitivity, s->answer.lower_bound, s->answer.proof,
           tandem_quantity_print_ratio(gap, sizeof gap, s->answer.gap < rounding ? 0 : s->answer.gap));
    return code;
}

static int print_instance_text(const instance_context *s)
{
    const tandem_mckp *instance = s->instance;
    char time[TANDEM_QUANTITY_TEXT];
    printf("%d items in %d groups by policy %s in %s\n\n", instance->n_item, instance->n_group, s->policy,
           tandem_quantity_print_ns(time, sizeof time, (int64_t)(s->seconds * 1e9)));
    int code = print_instance_limits(s);
    if (code) return code;
    cli_table table = {0};
    cli_table_row(&table, "item\tchoice\t>time (ns)\t>harm\t>bytes");
    for (int i = 0; i < instance->n_item; i++)
        cli_table_row(&table, "%s\t%s\t%.15g\t%.4g\t%" PRIu64, instance->item[i].name,
                      item_choice(s, i)->name, time_to_ns(instance, item_choice(s, i)->time),
                      item_choice(s, i)->sensitivity, item_choice(s, i)->bytes);
    code = cli_table_print(&table);
    cli_table_free(&table);
    return code;
}

int cli_allocate_instance(const cli_options *options)
{
    tandem_error error = {0};
    instance_context s = {.options = options,
                          .policy = options->policy ? options->policy : tandem_mckp_policy_get(0)->name};
    int code;
    if (solve_instance(&s, &error) != TANDEM_OK)
        code = cli_fail(&error);
    else if (options->output && strcmp(options->output, "-") == 0)
        code = 0; /* standard output holds the choices */
    else
        code = options->json ? print_instance_json(&s) : print_instance_text(&s);
    if (code == 0 && options->output && strcmp(options->output, "-") != 0)
        cli_note(options, "choices written to %s", options->output);
    free(s.answer.choice);
    tandem_mckp_close(s.instance);
    return code;
}
