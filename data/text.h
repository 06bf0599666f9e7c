/* text.h: a text as symbols; a model predicts each character from those before it. */
#pragma once

#include <stddef.h>

#include "tandem/advanced/data.h"

/* Turns text[n] into the numbers of its bytes, in order of their values; symbol[256] byte → number, 0 where a
 * byte does not occur. How many there are. */
int tandem_text_number_symbols(uint8_t *symbol, uint8_t *text, int64_t n);

/* Sets kind, n_train, n_test, n_text and length of *data for a text of n symbols, the last tenth of which is
 * the test part. `unit` is what errors call the symbols: "bytes". TANDEM_USAGE: length < 1; TANDEM_MALFORMED:
 * n < 10·(length+1). *data unchanged on error. */
tandem_status tandem_text_cut_windows(tandem_data *data, int64_t n, const char *unit, int length,
                                      const char *path, tandem_error *error);

/* The same as tandem_text_open from bytes[n]; *data then owns them. `path` is for errors. */
tandem_status tandem_text_from_bytes(tandem_data *data, int length, uint8_t *bytes, size_t n,
                                     const char *path, tandem_error *error);

/* Reads a file, turns its bytes into symbols, and sets kind, n_train, n_test, n_class, n_symbol, text,
 * n_text, length and symbol of *data, which owns them. TANDEM_USAGE: length < 1; TANDEM_MALFORMED: fewer than
 * 10·(length+1) bytes; errors of tandem_data_file_read. *data unchanged on error. */
tandem_status tandem_text_open(tandem_data *data, const char *path, int length, tandem_error *error);
