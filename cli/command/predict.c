/* predict.c: `tandem predict`: the time of one operator on a described device, and how it comes about. */
#include "cli/command/predict.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/quantity.h"
#include "cli/table.h"

/* --- One operator --------------------------------------------------------------------------------------- */

typedef struct prediction {
    const char *device, *operator, * precision;
    tandem_work work;
    tandem_kernel_time time;
    predict_interval interval;
    predict_ratio ratio;
    tandem_spread_group group;
    const tandem_reached_rates *rates;
    int64_t n_row;           /* of the device, that calibrate it */
    int64_t n_others, n_own; /* of its kernel */
    tandem_evidence source;
    int is_measured;
} prediction;

static tandem_status read_pass_option(tandem_pass *pass, const char *text, tandem_error *error)
{
    static const struct {
        const char *name;
        tandem_pass pass;
    } names[] = {{"fwd", TANDEM_PASS_FORWARD},
                 {"forward", TANDEM_PASS_FORWARD},
                 {"dgrad", TANDEM_PASS_DGRAD},
                 {"wgrad", TANDEM_PASS_WGRAD},
                 {"update", TANDEM_PASS_UPDATE}};
    *pass = TANDEM_PASS_FORWARD;
    for (size_t i = 0; text && i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i].name) == 0) {
            *pass = names[i].pass;
            return TANDEM_OK;
        }
    if (!text) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE, "--pass must be fwd, dgrad, wgrad or update, got '%s'",
                            text);
}

/* The key of a task in a precision: one-byte operands are summed into two bytes. */
static tandem_status make_operator_key(tandem_cost_key *key, const cli_options *options, const char *name,
                                       tandem_error *error)
{
    tandem_precision precision;
    tandem_pass pass;
    tandem_status status = tandem_precision_find(&precision, name, error);
    if (status == TANDEM_OK) status = read_pass_option(&pass, options->pass, error);
    if (status != TANDEM_OK) return status;
    const tandem_dtype from = tandem_precision_get(precision)->forward;
    *key = (tandem_cost_key){.kind = TANDEM_COST_OP,
                             .precision = tandem_precision_get(precision)->name,
                             .pass = pass,
                             .from = from,
                             .to = tandem_dtype_bytes(from) == 1 ? TANDEM_F16 : from};
    const int n = snprintf(key->signature, sizeof key->signature, "%s", options->word[0]);
    if (n < 0 || (size_t)n >= sizeof key->signature)
        return tandem_error_set(error, TANDEM_USAGE, "an operator has at most %zu characters",
                                sizeof key->signature - 1);
    return TANDEM_OK;
}

/* Whether text[n] is whole numbers from 0 to 2^53 with an x between them, such as 3x3. */
static int is_sizes(const char *text, size_t n)
{
    const char *const end = text + n;
    for (const char *at = text;; at++) {
        uint64_t number = 0;
        const char *const begin = at;
        for (; at < end && *at >= '0' && *at <= '9' && number <= UINT64_C(1) << 53; at++)
            number = 10 * number + (uint64_t)(*at - '0');
        if (at == begin || number > UINT64_C(1) << 53) return 0;
        if (at == end || *at != 'x') return at == end;
    }
}

/* What follows the operator's name, and the text of a recorded call. */
static const char *operator_fields(const char *signature)
{
    const int has_text = strncmp(signature, "call ", 5) == 0 || strncmp(signature, "call_trained ", 13) == 0;
    const char *at = signature + strcspn(signature, " ");
    if (!has_text) return at;
    at += strspn(at, " ");
    return at + strcspn(at, " ");
}

/* Every word of an operator's fields is sizes, or a name with sizes; f= of a map names a function. */
static tandem_status check_operator_numbers(const char *signature, tandem_error *error)
{
    for (const char *word = operator_fields(signature); *word; word += strcspn(word, " ")) {
        word += strspn(word, " ");
        const size_t n = strcspn(word, " "), name = strcspn(word, "= ");
        const char *const value = name < n ? word + name + 1 : word;
        if (n == 0 || strncmp(word, "f=", 2) == 0 || (n == 2 && strncmp(word, "->", 2) == 0)) continue;
        if (is_sizes(value, (size_t)(word + n - value))) continue;
        return tandem_error_set(error, TANDEM_USAGE,
                                "'%.60s': sizes must be whole numbers from 0 to 2^53, got '%.*s'", signature,
                                (int)n, word);
    }
    return TANDEM_OK;
}

static tandem_status make_ratio(prediction *p, const tandem_calibration *calibration,
                                const cli_options *options, tandem_error *error)
{
    tandem_cost_key key;
    tandem_work wide;
    if (!options->over) return TANDEM_OK;
    if (!p->work.is_product)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "--over compares products and convolutions, whose types set their rate; '%s' is "
            "neither",
            p->operator);
    const tandem_status status = make_operator_key(&key, options, options->over, error);
    if (status != TANDEM_OK) return status;
    if (!tandem_work_of(&wide, &key) || !tandem_calibrated_ratio(&p->ratio.of, calibration, &p->work, &wide))
        return tandem_error_set(error, TANDEM_MISSING, "%s has no units for %s", p->device, key.precision);
    p->ratio.over = key.precision;
    return tandem_calibration_check_others(calibration, error);
}

static tandem_status make_prediction(prediction *p, predict_devices *devices, const tandem_cost_key *key,
                                     const cli_options *options, tandem_error *error)
{
    tandem_calibration *calibration = NULL;
    tandem_status status = predict_find(&calibration, devices, options->device, error);
    if (status == TANDEM_OK) status = check_operator_numbers(key->signature, error);
    if (status != TANDEM_OK) return status;
    if (!tandem_work_of(&p->work, key) || (p->work.is_product && !(p->work.flops > 0)))
        return tandem_error_set(error, TANDEM_USAGE,
                                "'%s' is no operator with a time in this pass, or lacks a size; an operator "
                                "is written as in `tandem graph show --json`, e.g. \"linear m=4096 k=1280 "
                                "n=3840\"",
                                key->signature);
    p->device = options->device;
    p->operator= key->signature;
    p->precision = key->precision;
    status = predict_time(&p->time, calibration, &p->work, key->precision, error);
    if (status != TANDEM_OK) return status;
    p->rates = tandem_calibration_rates(calibration);
    p->n_row = tandem_calibration_row_count(calibration);
    p->group = tandem_spread_group_of(&p->work, &tandem_calibration_device(calibration)->gpu_spec);
    p->n_others = tandem_calibration_others(calibration, &p->work, 0);
    p->n_own = tandem_calibration_own_about_others(calibration, &p->work, 0);
    p->source = tandem_calibration_evidence(calibration, &p->work);
    p->is_measured = p->n_row > 0 || p->n_others > 0;
    p->interval = predict_interval_of(calibration, &p->work, 0, p->time.ns);
    return make_ratio(p, calibration, options, error);
}

static int print_prediction_json(const prediction *p)
{
    const tandem_kernel_time *const t = &p->time;
    const tandem_spread *const spread = tandem_spread_fitted(p->group);
    json_t *result = cli_json_new("predict");
    json_object_set_new(result, "device", json_string(p->device));
    json_object_set_new(result, "operator", json_string(p->operator));
    json_object_set_new(result, "precision", json_string(p->precision));
    json_object_set_new(result, "pass", json_string(tandem_pass_name(p->work.pass)));
    json_object_set_new(result, "ns", json_real(t->ns));
    json_object_set_new(result, "interval_80", json_pack("[f,f]", p->interval.low_ns, p->interval.high_ns));
    json_object_set_new(result, "spread",
                        json_pack("{s:f,s:f,s:f,s:i}", "device",
                                  p->is_measured ? 0.0 : tandem_device_spread_fitted(p->group)->shared,
                                  "shared", p->n_others > 0 ? p->interval.shared : spread->shared, "own",
                                  p->interval.own, "cells", spread->n_cell));
    json_object_set_new(result, "bound", json_string(tandem_time_bound_name(t->bound)));
    json_object_set_new(result, "terms",
                        json_pack("{s:f,s:f,s:f,s:f,s:f,s:s,s:[f,f],s:f,s:f,s:f}", "launch_ns", t->launch_ns,
                                  "compute_ns", t->compute_ns, "memory_ns", t->memory_ns, "executed_flops",
                                  t->executed_flops, "bytes", t->bytes, "algorithm", t->algorithm, "tile",
                                  t->tile_m, t->tile_n, "waves", t->waves, "splits", t->splits, "by_rows",
                                  t->by_rows));
    json_object_set_new(result, "calibrated_by", json_integer((json_int_t)p->n_row));
    json_object_set_new(result, "others_rows", json_integer((json_int_t)p->n_others));
    json_object_set_new(result, "own_about_others", json_integer((json_int_t)p->n_own));
    json_object_set_new(result, "unmeasured_kernel", json_boolean(p->source == TANDEM_EVIDENCE_OTHER_KERNEL));
    if (p->ratio.over)
        json_object_set_new(result, "ratio",
                            json_pack("{s:s,s:f,s:[f,f],s:i}", "over", p->ratio.over, "ratio",
                                      p->ratio.of.ratio, "interval_80", p->ratio.of.low, p->ratio.of.high,
                                      "shapes", p->ratio.of.spread.n_shape));
    return cli_print_json(result);
}

static const char *print_double_ns(char text[TANDEM_QUANTITY_TEXT], double ns)
{
    return tandem_quantity_print_ns(text, TANDEM_QUANTITY_TEXT, llround(fmin(ns, 9e18)));
}

static void print_compute_term(const prediction *p)
{
    const tandem_kernel_time *const t = &p->time;
    const tandem_dtype type = p->work.is_product ? p->work.type : TANDEM_F32;
    char time[TANDEM_QUANTITY_TEXT], flops[TANDEM_QUANTITY_TEXT], rate[TANDEM_QUANTITY_TEXT];
    printf("  compute  %8s  %sFLOP executed at %s reached%s\n", print_double_ns(time, t->compute_ns),
           tandem_quantity_print_count(flops, sizeof flops, t->executed_flops),
           tandem_quantity_print_per_second(rate, sizeof rate, p->rates->flops_per_s[type], "FLOP"),
           p->rates->is_power_bound[type] ? ", which the board's watts limit" : "");
    if (t->tile_m > 0)
        printf("  %-7s  %8s  tiles of %.0f x %.0f, %.2f waves, depth split in %.0f\n", t->algorithm, "",
               t->tile_m, t->tile_n, t->waves, t->splits);
}

/* What the time rests on, and with it its interval. */
static void print_prediction_source(const prediction *p)
{
    if (p->n_row > 0) printf("  calibrated by %lld measured rows\n", (long long)p->n_row);
    if (p->n_others > 0)
        printf("  measured by others (%lld rows of its kernel), and by the form between them\n",
               (long long)p->n_others);
    if (p->n_own > 0) printf("  own rows of its kernel (%lld) correct these\n", (long long)p->n_own);
    if (p->n_others == 0)
        printf("  described%s\n",
               p->source == TANDEM_EVIDENCE_OTHER_KERNEL
                   ? ": no row times int8 on its tensor cores, and those of its dot products do not count"
                   : "");
}

static void print_interval_basis(const prediction *p)
{
    const tandem_spread *const spread = tandem_spread_fitted(p->group);
    const double shared = 100 * p->interval.shared, own = 100 * p->interval.own;
    if (p->n_others > 0)
        printf("  the interval: rows of others about each other, %.0f%%, and what a card's tasks share, "
               "%.0f%%%s\n",
               own, shared, p->n_own > 0 ? "; both are what own rows leave unknown" : "");
    else if (spread->n_cell > 0)
        printf("  the interval: %s, on chips left out of the fit: %.0f%% shared and %.0f%% a shape's own,\n"
               "  from %d cells%s\n",
               tandem_spread_group_name(p->group), shared, own, spread->n_cell,
               p->is_measured ? "" : "; nothing measured says what this card reaches of its peaks");
}

static void print_ratio(const prediction *p)
{
    const tandem_time_ratio *const of = &p->ratio.of;
    if (!p->ratio.over) return;
    printf("  ratio      %.3f x the time in %s, 80%% between %.3f and %.3f; ", of->ratio, p->ratio.over,
           of->low, of->high);
    if (of->spread.n_shape == 0)
        printf("no size was measured in both, so both\n  intervals add up\n");
    else
        printf("of %d sizes measured in\n  both, %s\n", of->spread.n_shape,
               p->n_others > 0 ? "each predicted without its own rows"
                               : "on generations left out of the fit");
}

static int print_prediction_text(const prediction *p)
{
    char time[TANDEM_QUANTITY_TEXT], low[TANDEM_QUANTITY_TEXT], high[TANDEM_QUANTITY_TEXT],
        rate[TANDEM_QUANTITY_TEXT], bytes[TANDEM_QUANTITY_TEXT];
    const tandem_spread *const spread = tandem_spread_fitted(p->group);
    const tandem_kernel_time *const t = &p->time;
    printf("%s, %s, %s %s: %s", p->device, p->operator, p->precision, tandem_pass_name(p->work.pass),
           print_double_ns(time, t->ns));
    if (spread->n_cell > 0)
        printf(", 80%% between %s and %s", print_double_ns(low, p->interval.low_ns),
               print_double_ns(high, p->interval.high_ns));
    printf("; bound by %s\n", tandem_time_bound_name(t->bound));
    printf("  launch   %8s\n", print_double_ns(time, t->launch_ns));
    print_compute_term(p);
    printf("  memory   %8s  %s past the cache at %s reached\n", print_double_ns(time, t->memory_ns),
           tandem_quantity_print_bytes(bytes, sizeof bytes, (uint64_t)fmin(t->bytes, 1e18)),
           tandem_quantity_print_bps(rate, sizeof rate, p->rates->bytes_per_s));
    printf("  least    %8s  the executed work at the datasheet's peaks\n",
           print_double_ns(time, t->least_ns));
    if (fabs(t->by_rows - 1) > 0.005)
        printf("  rows     %7.2fx  is in each term but the last: what measured rows say about the form\n",
               t->by_rows);
    print_prediction_source(p);
    print_interval_basis(p);
    print_ratio(p);
    return 0;
}

/* --- The command ---------------------------------------------------------------------------------------- */

static int check_predict_words(const cli_options *options)
{
    if (options->list && options->n_word == 0) return 0;
    if (options->list) return cli_fail_with(TANDEM_USAGE, "either an operator or --list, not both");
    if (options->n_word != 1)
        return cli_fail_with(TANDEM_USAGE, "one operator is needed, in quotes. Use: tandem predict --device "
                                           "h100 \"linear m=4096 k=1280 n=3840\"");
    if (!options->device)
        return cli_fail_with(TANDEM_USAGE, "--device is needed: a card of `tandem list devices`");
    return 0;
}

static int predict_one(predict_devices *devices, const cli_options *options)
{
    tandem_error error = {0};
    tandem_cost_key key;
    prediction p = {.device = NULL};
    const char *const name = options->precision ? options->precision : "fp32";
    tandem_status status = make_operator_key(&key, options, name, &error);
    if (status == TANDEM_OK) status = make_prediction(&p, devices, &key, options, &error);
    if (status != TANDEM_OK) return cli_fail(&error);
    return options->json ? print_prediction_json(&p) : print_prediction_text(&p);
}

static int run_predict(const cli_options *options)
{
    const int refused = check_predict_words(options);
    if (refused) return refused;
    tandem_error error = {0};
    predict_devices devices = {.of = {NULL}};
    int code = 0;
    if (predict_devices_open(&devices, options, &error) != TANDEM_OK) code = cli_fail(&error);
    if (code == 0) code = options->list ? predict_list(&devices, options) : predict_one(&devices, options);
    predict_devices_close(&devices);
    return code;
}

static const int options[] = {OPTION_DEVICE, OPTION_PRECISION, OPTION_OVER,  OPTION_PASS,
                              OPTION_LIST,   OPTION_CALIBRATE, OPTION_FORCE, OPTION_FROM_DESCRIPTION,
                              OPTION_OUTPUT, OPTION_DB,        OPTION_QUIET, OPTION_END};
const cli_command command_predict = {
    .name = "predict",
    .words = "[OPERATOR]",
    .summary = "Time of an operator on a described device, term by term",
    .option = options,
    .description =
        "Examples:\n"
        "  tandem predict --device h100 \"linear m=4096 k=1280 n=3840\" --precision fp32 --pass dgrad\n"
        "  tandem predict --device t4 \"linear m=2048 k=1024 n=1024\" --precision fp16 --over fp32\n"
        "  tandem predict --list measured.csv --calibrate three_rows.csv\n"
        "--list takes a timing table (docs/predicting.md); where a row has a time, errors are printed. -o\n"
        "writes every row with its predicted time.",
    .run = run_predict,
};
