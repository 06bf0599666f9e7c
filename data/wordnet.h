/* wordnet.h: the glosses of WordNet, each with the lexicographer file that it comes from. */
#pragma once

#include "data/data_file.h"
#include "tandem/advanced/data.h"

enum { TANDEM_WORDNET_FILES = 4 };

/* Reads data.noun, data.verb, data.adj and data.adv of a directory. A sample is a gloss: its first `length`
 * bytes, or fewer and line ends. Its label is the number of the lexicographer file, 0 … 44. A tenth of them,
 * the same in every run, are test samples. Sets kind, n_train, n_test, n_class, n_symbol, text, n_text,
 * length, symbol and labels of *data, which owns them. TANDEM_USAGE: length < 1 or above 65536;
 * TANDEM_MALFORMED: a line that has no number or no gloss; errors of tandem_data_file_read. *data unchanged
 * on error. Source of the format: wndb(5WN). */
tandem_status tandem_wordnet_open(tandem_data *data, const char *path, int length, tandem_error *error);

/* The same of what the files hold; they stay the caller's. `path` is for errors. */
tandem_status tandem_wordnet_from_files(tandem_data *data, int length,
                                        const tandem_data_file file[TANDEM_WORDNET_FILES], const char *path,
                                        tandem_error *error);
