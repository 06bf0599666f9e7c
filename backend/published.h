/* published.h: weights in a file by the names under which others publish them (published.def). */
#pragma once

#include "backend/safetensors.h"
#include "tandem/advanced/backend.h"

/* tandem_published_read: where the file has published names of the model and not tandem's own, *is_published
 * is 1, and with `fill` 1 the values of all that it has are set, in tandem's layout. Else *is_published is 0,
 * and nothing is read. said: which tensors of the file are left out, and which of the model are not there
 * and stay as they are; "" = none. model: "bert_base:layers=2". TANDEM_WRONG_MODEL: a tensor is missing that
 * the model cannot do without, or has another shape; TANDEM_MALFORMED, TANDEM_IO, TANDEM_NO_MEMORY. Cost:
 * reading the file. */
tandem_status tandem_published_read(int *is_published, char said[TANDEM_TENSORS_SAID],
                                    const tandem_tensor *tensor, int n, const char *model, const char *path,
                                    int fill, tandem_error *error);
