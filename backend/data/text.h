/* text.h: a text as symbols; a model predicts each character from those before it. */
#pragma once

#include "tandem/advanced/data.h"

/* Reads a file, turns its bytes into symbols, and sets kind, n_train, n_test, n_class, text, n_text, length
 * and symbol of *data, which owns them. TANDEM_USAGE: length < 1; TANDEM_MALFORMED: fewer than 10·(length+1)
 * bytes; errors of tandem_data_file_read. *data unchanged on error. */
tandem_status tandem_text_open(tandem_data *data, const char *path, int length, tandem_error *error);
