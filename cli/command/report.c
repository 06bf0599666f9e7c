/* report.c: `tandem report`: one page of HTML from plans, traces, logs and results. */
#include <stdio.h>
#include <string.h>

#include "cli/report_files.h"

static int check_report_words(const cli_options *options, const char *path)
{
    const int has_store = cli_option_given(options, OPTION_DB);
    if (options->n_word == 0 && !has_store)
        return cli_fail_with(
            TANDEM_MISSING,
            "nothing to show: no file given. Make one, e.g. `tandem demo --report report.html`, or "
            "`tandem allocate --model resnet50 --cluster \"8*v100@8 + 8*t4@8 net=100Gbit/s,5us\" "
            "--predict -o plan.json`, then `tandem report plan.json`");
    int replaces = has_store && strcmp(options->db, path) == 0;
    for (int k = 0; k < options->n_word; k++) replaces |= strcmp(options->word[k], path) == 0;
    if (replaces)
        return cli_fail_with(TANDEM_USAGE,
                             "the page would replace '%.200s', from which it is drawn. Choose another file "
                             "with -o",
                             path);
    return 0;
}

static int print_report(const cli_options *options, const report_page *page, const char *path)
{
    if (strcmp(path, "-") == 0) return 0; /* standard output holds the page */
    if (!options->json) {
        printf("%s: drawn from %d file%s\n", path, page->n, page->n == 1 ? "" : "s");
        return 0;
    }
    json_t *const result = cli_json_new("report"), *const files = json_array();
    for (int k = 0; k < page->n; k++)
        json_array_append_new(
            files, json_pack("{s:s,s:s}", "file", page->item[k].source, "model", page->item[k].model));
    json_object_set_new(result, "page", json_string(path));
    json_object_set_new(result, "files", files);
    return cli_print_json(result);
}

static int run_report(const cli_options *options)
{
    const char *const path = options->output ? options->output : "report.html";
    tandem_error error = {0};
    report_page page = {0};
    const int refused = check_report_words(options, path);
    if (refused) return refused;
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < options->n_word && status == TANDEM_OK; k++)
        status = cli_report_add_file(&page, options, options->word[k], &error);
    if (status == TANDEM_OK && cli_option_given(options, OPTION_DB))
        status = cli_report_add_store(&page, options->db, &error);
    if (status == TANDEM_OK) status = report_page_write(&page, path, &error);
    const int code = status == TANDEM_OK ? print_report(options, &page, path) : cli_fail(&error);
    report_page_close(&page);
    return code;
}

static const int options[] = {OPTION_OUTPUT, OPTION_DB, OPTION_END};
const cli_command command_report = {
    .name = "report",
    .words = "[FILE...]",
    .summary = "One page to look at: timeline, precisions, trade-off, memory, training",
    .option = options,
    .description =
        "Examples:\n"
        "  tandem report plan.json                          what a plan file says\n"
        "  tandem replay --plan plan.json --operators --memory-timeline --trace predicted.json --json "
        ">replay.json\n"
        "  tandem train --plan plan.json --data fashion-mnist --trace measured.json --log run.jsonl\n"
        "  tandem report plan.json replay.json predicted.json measured.json run.jsonl -o report.html\n"
        "  tandem report --db tandem.db                      what a profile store holds\n"
        "FILE is a plan, a step's trace, a recorded job (analysed as by tandem whatif), a training log, "
        "a profile\n"
        "store (.db, or --db; it is only read), or what a command printed with --json. The page is one file "
        "of HTML\n"
        "that asks for nothing else [report.html]. A section for which no file has anything is left out; the "
        "page\n"
        "then says which command makes it. Files of different models are drawn apart. Equal files give equal "
        "bytes.",
    .run = run_report,
};
