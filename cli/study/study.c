/* study.c: `tandem study`: measures what is predicted of low precision, part by part. */
#include "cli/study/study.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/nearest.h"

static const struct study_row {
    const char *name;
    study_part *run;
    int keeps_records; /* reads --checkpoint and --repetitions */
} parts[] = {{"rounding", study_rounding, 0},
             {"gradient", study_gradient, 0},
             {"sampled", study_sampled, 0},
             {"batch", study_batch, 0},
             {"rank", study_rank, 1},
             {"add", study_add, 1},
             {"exchange", study_exchange_rate, 1},
             {"null", study_null, 1}};
enum { N_PART = sizeof parts / sizeof *parts };

void study_add_cell(study_report *report, json_t *cell, int is_met)
{
    json_object_set_new(cell, "met", json_boolean(is_met));
    json_array_append_new(report->cells, cell);
    report->n_cell++;
    report->n_failed += !is_met;
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

static int print_study(const study_report *report, const char *text)
{
    const cli_options *options = report->options;
    tandem_error error = {0};
    if (options->output) {
        char *json = json_dumps(report->json, JSON_COMPACT | JSON_REAL_PRECISION(9));
        tandem_status status = json ? TANDEM_OK : tandem_no_memory(&error, "for the study's result");
        if (status == TANDEM_OK) status = write_study_file(options->output, ".md", text, &error);
        if (status == TANDEM_OK) status = write_study_file(options->output, ".json", json, &error);
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

static tandem_status check_study_data(const char *part, tandem_error *error)
{
    char path[4096];
    tandem_error why = {0};
    const tandem_backend_api *backend = cli_backend(error);
    if (!backend) return TANDEM_MISSING;
    const tandem_status status = backend->data_find(path, sizeof path, STUDY_DATA, &why);
    return status == TANDEM_OK ? status
                               : tandem_error_set(error, status, "SKIP study %s: %s", part, why.text);
}

static int run_part(const cli_options *options, const char *name, study_part *run)
{
    tandem_error error = {0};
    char *text = NULL;
    size_t size = 0;
    study_report report = {.options = options, .json = cli_json_new("study"), .cells = json_array()};
    json_object_set_new(report.json, "part", json_string(name));
    json_object_set_new(report.json, "quick", json_boolean(options->quick));
    json_object_set_new(report.json, "cells", report.cells);
    report.text = open_memstream(&text, &size);
    tandem_status status =
        report.text && report.cells ? TANDEM_OK : tandem_no_memory(&error, "for the study's tables");
    if (status == TANDEM_OK) status = check_study_data(name, &error);
    if (status == TANDEM_OK) status = run(&report, &error);
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
    free(text);
    return code;
}

/* "rounding, gradient, …, or all" */
static const char *list_study_parts(void)
{
    static char text[256];
    text[0] = '\0';
    for (int p = 0; p < N_PART; p++) (void)cli_append(text, sizeof text, "%s, ", parts[p].name);
    return cli_append(text, sizeof text, "or all");
}

static int run_study(const cli_options *options)
{
    tandem_hint hint;
    const char *word = options->n_word == 1 ? options->word[0] : NULL;
    if (!word) return cli_fail_with(TANDEM_USAGE, "say which part to run: %s", list_study_parts());
    int code = 0;
    const int is_all = strcmp(word, "all") == 0;
    if (is_all && options->output)
        return cli_fail_with(TANDEM_USAGE, "--output takes the tables of one part, not of all");
    const int part = tandem_name_find(word, &parts[0].name, N_PART, sizeof *parts, &hint);
    if ((options->checkpoint || options->repetitions > 0) && (part < 0 || !parts[part].keeps_records))
        return cli_fail_with(TANDEM_USAGE,
                             "--checkpoint and --repetitions are of parts that keep their trainings, such as "
                             "`study exchange`, not of '%s'",
                             word);
    for (int p = 0; p < N_PART && is_all && code <= 1; p++) {
        const int part_code = run_part(options, parts[p].name, parts[p].run);
        code = part_code ? part_code : code;
    }
    if (is_all) return code;
    if (part < 0)
        return cli_fail_with(TANDEM_UNKNOWN_NAME, "the study has no part '%s'.%s Say %s", word, hint.text,
                             list_study_parts());
    if (options->repetitions > 0 && (parts[part].run == study_rank || parts[part].run == study_add))
        return cli_fail_with(TANDEM_USAGE, "--repetitions is not of `study %s`, whose cells are fixed", word);
    return run_part(options, parts[part].name, parts[part].run);
}

static const int options[] = {OPTION_QUICK,      OPTION_DEVICE,      OPTION_SEED,  OPTION_OUTPUT,
                              OPTION_CHECKPOINT, OPTION_REPETITIONS, OPTION_QUIET, OPTION_END};
const cli_command command_study = {
    .name = "study",
    .words = "rounding|gradient|sampled|batch|rank|add|exchange|null|all",
    .summary = "Measure what is predicted of low precision, with intervals",
    .option = options,
    .description =
        "Examples:\n"
        "  tandem study rounding                    the variance of rounding, by 1,000 draws\n"
        "  tandem study all --quick                 every part, small\n"
        "  tandem study rounding -o docs/study/rounding   writes rounding.md and rounding.json\n"
        "  tandem study exchange --checkpoint kept.jsonl   an hour; stopped, it goes on from the file\n"
        "  tandem study rank --checkpoint ranks.jsonl      minutes; the same\n"
        "Trains small models on fashion-mnist on one device [the strongest one here]. Exit code 1: a "
        "part\nmisses its bar. docs/study/README.md describes the parts.",
    .run = run_study,
};
