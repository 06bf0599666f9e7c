/* study.c: `tandem-study`: measures what is predicted of low precision, part by part. */
#include "research/study.h"
#include "research/study_runs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <gsl/gsl_sort.h>

#include "base/append.h"
#include "base/file.h"
#include "base/nearest.h"
#include "research/study_figure.h"

typedef enum study_kept { STUDY_KEEPS_NOTHING, STUDY_KEEPS_JOBS, STUDY_KEEPS_TRAININGS } study_kept;

static const struct study_row {
    const char *name;
    study_part *run;
    study_kept kept; /* in the file of --checkpoint */
} parts[] = {{"rounding", study_rounding, STUDY_KEEPS_NOTHING},
             {"sampled", study_sampled, STUDY_KEEPS_JOBS},
             {"batch", study_batch, STUDY_KEEPS_JOBS},
             {"rank", study_rank, STUDY_KEEPS_JOBS},
             {"add", study_add, STUDY_KEEPS_JOBS},
             {"exchange", study_exchange_rate, STUDY_KEEPS_TRAININGS},
             {"crossed", study_crossed, STUDY_KEEPS_TRAININGS},
             {"null", study_null, STUDY_KEEPS_TRAININGS},
             {"price", study_price, STUDY_KEEPS_TRAININGS},
             {"plans", study_plans, STUDY_KEEPS_TRAININGS},
             {"drift", study_drift, STUDY_KEEPS_TRAININGS}};
enum { N_PART = sizeof parts / sizeof *parts };

void study_add_cell(study_report *report, json_t *cell, int is_met)
{
    json_object_set_new(cell, "met", json_boolean(is_met));
    json_array_append_new(report->cells, cell);
    report->n_cell++;
    report->n_failed += !is_met;
}

study_interval study_draws_interval(double *draw, int n)
{
    if (n == 0) return (study_interval){NAN, NAN};
    for (int i = 0; i < n; i++)
        if (isnan(draw[i])) draw[i] = INFINITY;
    gsl_sort(draw, 1, (size_t)n);
    return (study_interval){draw[n / 40], draw[n - 1 - n / 40]};
}

/* PREFIX.md or PREFIX.json, whole or not at all. */
static tandem_status write_study_file(const char *prefix, const char *suffix, const char *text,
                                      tandem_error *error)
{
    char path[4096];
    tandem_file file = {0};
    if (snprintf(path, sizeof path, "%s%s", prefix, suffix) >= (int)sizeof path)
        return tandem_error_set(error, TANDEM_USAGE, "--output takes a shorter path");
    const tandem_status status = tandem_file_open(&file, path, error);
    if (status != TANDEM_OK) return status;
    (void)fputs(text, file.stream);
    (void)fputc('\n', file.stream);
    return tandem_file_finish(&file, error);
}

static tandem_status write_figure(const char *prefix, const study_report *report, tandem_error *error)
{
    char *text = NULL;
    size_t size = 0;
    if (report->figure.n == 0) return TANDEM_OK;
    FILE *svg = open_memstream(&text, &size);
    if (svg) study_figure_write(svg, report);
    tandem_status status =
        svg && fclose(svg) == 0 ? TANDEM_OK : tandem_no_memory(error, "for the study's figure");
    if (status == TANDEM_OK) status = write_study_file(prefix, ".svg", text, error);
    free(text);
    return status;
}

static int print_study(const study_report *report, const char *text)
{
    const cli_options *options = report->options;
    tandem_error error = {0};
    if (options->output) {
        char *json = json_dumps(report->json, JSON_COMPACT | JSON_REAL_PRECISION(9));
        tandem_status status = json ? TANDEM_OK : tandem_no_memory(&error, "for the study's result");
        if (status == TANDEM_OK) status = write_study_file(options->output, ".md", text, &error);
        if (status == TANDEM_OK) status = write_study_file(options->output, ".json", json, &error);
        if (status == TANDEM_OK) status = write_figure(options->output, report, &error);
        free(json);
        if (status != TANDEM_OK) return cli_fail(&error);
    } else if (options->json) {
        const int code = cli_print_json(json_incref(report->json));
        if (code) return code;
    } else {
        (void)puts(text);
    }
    return report->n_failed > 0;
}

static tandem_status open_study_data(const char *part, tandem_error *error)
{
    tandem_error why = {0};
    const tandem_status status = study_data_open(STUDY_DATA, 1, &why);
    if (status == TANDEM_OK) return status;
    return tandem_error_set(error, status, status == TANDEM_MISSING ? "SKIP study %s: %s" : "study %s: %s",
                            part, why.text);
}

/* The numbers are no device's. */
static void say_emulated(const study_report *report)
{
    json_object_set_new(report->json, "emulated", json_true());
    (void)fputs("\nAll number formats but f32 are emulated.\n", report->text);
}

/* Which margins judge the cells, and whether they were fixed before the run. */
static void say_margins(const study_report *report)
{
    const study_margins *of = &report->margins;
    char hash[STUDY_MARGINS_HASH];
    study_margins_hash(hash, of);
    json_object_set_new(report->json, "margins", study_margins_json(of));
    json_object_set_new(report->json, "margins_hash", json_string(hash));
    json_object_set_new(report->json, "margins_late", of->late[0] ? json_string(of->late) : json_null());
    if (!of->late[0])
        (void)fprintf(report->text, "\nJudged by margins fixed before the run, %s:", hash);
    else
        (void)fprintf(report->text,
                      "\n**Judged by margins entered after the run**, as far as its records say: %s.\n"
                      "Those of now, %s:",
                      of->late, hash);
    for (int i = 0; i < of->n; i++)
        (void)fprintf(report->text, "%s%s %.6g",
                      i % 6 ? ", "
                      : i   ? ",\n"
                            : "\n",
                      of->row[i].name, of->row[i].value);
    (void)fputs(".\n", report->text);
}

static int run_part(const cli_options *options, const struct study_row *part)
{
    tandem_error error = {0};
    char *text = NULL;
    size_t size = 0;
    study_report report = {.options = options, .json = cli_json_new("study"), .cells = json_array()};
    json_object_set_new(report.json, "part", json_string(part->name));
    json_object_set_new(report.json, "quick", json_boolean(study_own.quick));
    json_object_set_new(report.json, "cells", report.cells);
    report.margins = study_margins_of(part->name);
    report.text = open_memstream(&text, &size);
    tandem_status status =
        report.text && report.cells ? TANDEM_OK : tandem_no_memory(&error, "for the study's tables");
    if (status == TANDEM_OK) status = part->run(&report, &error);
    if (status == TANDEM_OK && report.figure.is_lost)
        status = tandem_no_memory(&error, "for the study's figure");
    if (status == TANDEM_OK) say_margins(&report);
    if (status == TANDEM_OK) say_emulated(&report);
    json_object_set_new(report.json, "failed", json_integer(report.n_failed));
    if (report.text && fclose(report.text) != 0 && status == TANDEM_OK)
        status = tandem_no_memory(&error, "for the study's tables");
    cli_progress_end();
    int code = 0;
    if (status != TANDEM_OK)
        code = cli_fail(&error);
    else
        code = print_study(&report, text);
    json_decref(report.json);
    free(report.figure.row);
    free(text);
    return code;
}

/* "rounding, gradient, …, or all" */
static const char *list_study_parts(void)
{
    static char text[256];
    text[0] = '\0';
    for (int p = 0; p < N_PART; p++) (void)tandem_append(text, sizeof text, "%s, ", parts[p].name);
    return tandem_append(text, sizeof text, "or all");
}

/* One part, or all for part < 0. The data set is read once. */
static int run_parts(const cli_options *given, int part)
{
    tandem_error error = {0};
    cli_options options = *given;
    int code = 0;
    if (open_study_data(part < 0 ? "all" : parts[part].name, &error) != TANDEM_OK) return cli_fail(&error);
    if (!options.device) cli_set_device(&options, "strongest");
    for (int p = 0; p < N_PART && code <= 1; p++) {
        if (part >= 0 && p != part) continue;
        const int part_code = run_part(&options, &parts[p]);
        code = part_code ? part_code : code;
    }
    study_data_close();
    return code;
}

static int run_study(const cli_options *options)
{
    tandem_hint hint;
    const char *word = options->n_word == 1 ? options->word[0] : NULL;
    if (!word) return cli_fail_with(TANDEM_USAGE, "say which part to run: %s", list_study_parts());
    const int is_all = strcmp(word, "all") == 0;
    const int part = is_all ? -1 : tandem_name_find(word, &parts[0].name, N_PART, sizeof *parts, &hint);
    const study_kept kept = part < 0 ? STUDY_KEEPS_NOTHING : parts[part].kept;
    if (is_all && options->output)
        return cli_fail_with(TANDEM_USAGE, "--output takes the tables of one part, not of all");
    if (!is_all && part < 0)
        return cli_fail_with(TANDEM_UNKNOWN_NAME, "the study has no part '%s'.%s Say %s", word, hint.text,
                             list_study_parts());
    if (options->checkpoint && kept == STUDY_KEEPS_NOTHING)
        return cli_fail_with(TANDEM_USAGE,
                             "--checkpoint is of parts that keep their jobs or trainings, such as "
                             "`tandem-study exchange`, not of '%s'",
                             word);
    if ((options->repetitions > 0 || study_own.recorded) && kept != STUDY_KEEPS_TRAININGS)
        return cli_fail_with(TANDEM_USAGE,
                             "--repetitions and --recorded are of parts that train, such as "
                             "`tandem-study exchange`, not of '%s'",
                             word);
    if (study_own.recorded && !options->checkpoint)
        return cli_fail_with(TANDEM_USAGE, "--recorded takes the file with the records, --checkpoint FILE");
    return run_parts(options, part);
}

static const int options[] = {OPTION_QUICK,    OPTION_DEVICE,     OPTION_SEED,
                              OPTION_OUTPUT,   OPTION_CHECKPOINT, OPTION_REPETITIONS,
                              OPTION_RECORDED, OPTION_QUIET,      OPTION_END};
const cli_command command_study = {
    .name = "study",
    .words = "rounding|sampled|batch|rank|add|exchange|crossed|null|price|plans|drift|all",
    .summary = "Measure what is predicted of low precision, with intervals",
    .option = options,
    .description =
        "Examples:\n"
        "  tandem-study rounding                    the variance of rounding, by 1,000 draws\n"
        "  tandem-study all --quick                 every part, small\n"
        "  tandem-study rounding -o docs/study/rounding   writes rounding.md and rounding.json\n"
        "  tandem-study exchange --checkpoint kept.jsonl   an hour; stopped, it goes on from the file\n"
        "  tandem-study rank --checkpoint ranks.jsonl      minutes; the same\n"
        "  tandem-study price --recorded --checkpoint prices.jsonl   its tables, without a training\n"
        "Trains small models on fashion-mnist and bible-kjv-text on one device [the strongest one here].\n"
        "Exit code 1: a part misses its bar. docs/study/README.md describes the parts.",
    .run = run_study,
};
