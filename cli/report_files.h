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
/* Takes over the object, which may be NULL: then nothing is added. */
tandem_status cli_report_add_result(report_page *page, json_t *result, const char *source,
                                    tandem_error *error);
