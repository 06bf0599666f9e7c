/* tsv.h: texts with a label each, one sample a line, in two columns with a tab between them. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "tandem/advanced/data.h"

/* Reads bytes[n], which the caller keeps; `path` names them in errors. The first line names the columns:
 * "label" and "text" (or "sentence"), in any order. A sample is the first `length` bytes of a text, or
 * fewer and line ends. Labels are integers from 0 where all of them are integers, else names, numbered in
 * the order of their bytes. A tenth of the samples, the same in every run, is of the test. Sets kind,
 * n_train, n_test, n_class, n_symbol, text, n_text, start, length, symbol, label_bytes and labels of
 * *data, which owns them. TANDEM_USAGE: length < 1; TANDEM_MALFORMED: another first line, a line without
 * two columns or with an empty one, fewer than 10 samples, a label outside of 0 … 65535 or more names;
 * TANDEM_NO_MEMORY. *data unchanged on error. O(n log n). */
tandem_status tandem_tsv_from_bytes(tandem_data *data, int length, const uint8_t *bytes, size_t n,
                                    const char *path, tandem_error *error);

/* The same of a file, gzipped or not; errors of tandem_data_file_read, too. */
tandem_status tandem_tsv_open(tandem_data *data, const char *path, int length, tandem_error *error);
