/* study_records.h: what parts of the study have finished, by name, in a file to which each record is added at
 * once. A part that was stopped goes on from there. */
#ifndef TANDEM_RESEARCH_RECORDS_H
#define TANDEM_RESEARCH_RECORDS_H

#include "cli/cli.h"
#include "research/study_margins.h"

enum { STUDY_PLAN_NAME = 64, STUDY_RECORD_NAME = 256 };

typedef struct study_records {
    FILE *file; /* to which processes that were forked may add, too. NULL: nowhere */
    json_t *value;
    const char *path;           /* borrowed */
    study_margins *margins;     /* borrowed */
    char plan[STUDY_PLAN_NAME]; /* the first line's */
} study_records;
/* Reads `path` if it exists, and locks it. NULL: records live in memory. A last line that is not whole is cut
 * off. plan: names what decides the values. margins: judge them; the first line of a new file names them,
 * and margins->late says whether that of an old one does, too. TANDEM_USAGE: records of another plan, or
 * another study writes there. TANDEM_MALFORMED. TANDEM_IO. */
tandem_status study_records_open(study_records *records, const char *path, const char *plan,
                                 study_margins *margins, tandem_error *error);
void study_records_close(study_records *records);
/* Reads what other processes have added. */
tandem_status study_records_read(study_records *records, tandem_error *error);
/* Whether there is a record of that name with n values. */
int study_records_has(const study_records *records, const char *name, int n);
/* The same; fills them in. */
int study_records_find(double *value, int n, const study_records *records, const char *name);
tandem_status study_records_add(study_records *records, const char *name, const double *value, int n,
                                tandem_error *error);

#endif
