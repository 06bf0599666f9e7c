/* text.h: a text as symbols, to predict the next character from those before it. */
#ifndef TANDEM_BACKEND_DATA_TEXT_H
#define TANDEM_BACKEND_DATA_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/data.h"

/* tandem_text_open: read a file, turn its bytes into symbols, and set kind, n_train, n_test, n_class, text,
 * n_text, length and symbol of *data, which owns them from then on. TANDEM_USAGE where length < 1,
 * TANDEM_MALFORMED where it holds fewer than 10·(length+1) bytes, and as tandem_data_file_read: then *data
 * does not change. */
tandem_status tandem_text_open(tandem_data *data, const char *path, int length, tandem_error *error);

#endif
