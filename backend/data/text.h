/* text.h: a text as symbols, to predict the next character from those before it. */
#ifndef TANDEM_BACKEND_DATA_TEXT_H
#define TANDEM_BACKEND_DATA_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/data.h"

/* tandem_text_encode: turn bytes[n] into symbols, in place, and set kind, n_train, n_test, n_class, text,
 * n_text, length and symbol of *data, to which the bytes belong from then on. `path` names them in errors.
 * TANDEM_USAGE where length < 1, TANDEM_MALFORMED where n < 10·(length+1): then neither *data nor the bytes
 * change. O(n). */
tandem_status tandem_text_encode(tandem_data *data, int length, uint8_t *bytes, size_t n, const char *path,
                                 tandem_error *error);

/* tandem_text_open: the same for a file. */
tandem_status tandem_text_open(tandem_data *data, const char *path, int length, tandem_error *error);

#endif
