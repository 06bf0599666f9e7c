/* report_files.h: reads what a page is drawn from. */
#pragma once

#include "cli/cli.h"
#include "report/page.h"

/* cli_report_add_file: adds a file of any kind that a page shows: a plan, a step of tandem, a recorded job
 * (which `whatif` analyses first), a training log, or what a command printed with --json.
 * TANDEM_WRONG_FORMAT: it is none of these. TANDEM_MALFORMED, TANDEM_IO, TANDEM_NO_MEMORY: the page is
 * unchanged. */
tandem_status cli_report_add_file(report_page *page, const cli_options *options, const char *path,
                                  tandem_error *error);
/* report_store.c: what a profile store holds: its costs, its machines, and the sensitivities of each of its
 * models, with intervals where the model has an estimate. Opens it for reading. The errors of
 * tandem_store_open and tandem_store_overview: the page is unchanged, or lacks the last models. */
tandem_status cli_report_add_store(report_page *page, const char *path, tandem_error *error);
/* Whether a file is to be read as a store: it begins as SQLite's files do, or ends in .db. */
int cli_report_is_store(const char *path, const char *begin, size_t n);
/* A step that tandem wrote; `source` names it on the page. */
tandem_status cli_report_add_trace(report_page *page, const char *path, const char *source,
                                   tandem_error *error);
/* Takes over the object, which may be NULL: then nothing is added. */
tandem_status cli_report_add_result(report_page *page, json_t *result, const char *source,
                                    tandem_error *error);

/* --- --report: the page at the end of a command -------------------------------------------------------- */
/* cli_report_check: whether the page can be written, before a command takes its time; without --report, yes.
 * TANDEM_IO, TANDEM_NO_MEMORY. */
tandem_status cli_report_check(const cli_options *options, tandem_error *error);
/* Adds a plan on this cluster. replays: also what `tandem replay` says of it, its operators, its memory and
 * its timeline; the store must have its costs. Errors of the replay are on stderr; the page then lacks it. */
tandem_status cli_report_add_plan(report_page *page, const cli_options *options, const tandem_plan *plan,
                                  const tandem_cluster *cluster, const tandem_graph *graph, int replays,
                                  tandem_error *error);
/* Writes a page of one result, which it takes over. Returns the exit code. */
int cli_report_write_result(const cli_options *options, json_t *result, const char *source);
/* Writes the page if `status`, of what was added, is TANDEM_OK, and closes it. Returns the exit code. */
int cli_report_finish(report_page *page, const cli_options *options, tandem_status status,
                      const tandem_error *error);
