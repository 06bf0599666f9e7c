/* safetensors.h: weights in a file that other frameworks read and write too.
 *
 *     n        u64, bytes of the header
 *     header   JSON: {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …,
 *              "__metadata__": {text: text}}
 *     data     the tensors, row-major, little-endian, at offsets from the header's end
 *
 * The tensors cover the data without gap or overlap. tandem writes F32, and reads F32, BF16 and F16.
 * Source: https://github.com/huggingface/safetensors (README, "Format"). */
#pragma once

#include <jansson.h>
#include <stdio.h>

#include "tandem/graph.h"

enum { TANDEM_TENSOR_NAME = 80 };
static const uint64_t tandem_safetensors_header_bytes = 100 << 20; /* the most that is read */

/* A tensor that the file must hold, with its name, its shape and its numbers. */
typedef struct tandem_tensor {
    char name[TANDEM_TENSOR_NAME];
    tandem_shape shape;
    float *value;
} tandem_tensor;

typedef enum tandem_stored_type {
    TANDEM_STORED_F32,
    TANDEM_STORED_BF16,
    TANDEM_STORED_F16
} tandem_stored_type;
typedef struct tandem_stored_tensor {
    tandem_stored_type type;
    uint64_t start, bytes; /* after the header */
} tandem_stored_tensor;

/* Compares a header with the tensors that the file must hold: each of them, no other, with its shape and a
 * readable dtype, covering all of `data_bytes`. Fills stored[n]. TANDEM_MALFORMED (no such header, wrong
 * offsets), TANDEM_WRONG_MODEL (a tensor too many, missing, or of another shape: its name, and the nearest
 * name), TANDEM_NO_MEMORY. `path` is for messages. *stored unchanged on error. */
tandem_status tandem_safetensors_parse(tandem_stored_tensor *stored, const tandem_tensor *tensor, int n,
                                       const char *header, size_t header_bytes, uint64_t data_bytes,
                                       const char *path, tandem_error *error);

/* Checks a file, and with `fill` 1 reads the tensors' values. TANDEM_IO, and the errors above; the values
 * change only if the header is right. Cost: reading the file. */
tandem_status tandem_safetensors_read(const tandem_tensor *tensor, int n, const char *path, int fill,
                                      tandem_error *error);

/* The parts of the above, for files with other names (published.h). tandem_safetensors_open: checks the size
 * of a header and reads it into *text, which the caller frees, as it closes *stream; data_bytes follow it.
 * tandem_safetensors_find: a tensor's entry of the header, of this shape, with a readable dtype and a place
 * in the file. tandem_safetensors_read_values: widens its numbers into tensor->value; data_start: of the data
 * in the file. */
tandem_status tandem_safetensors_open(FILE **stream, char **text, uint64_t *header_bytes,
                                      uint64_t *data_bytes, const char *path, tandem_error *error);
tandem_status tandem_safetensors_find(tandem_stored_tensor *stored, const tandem_tensor *tensor,
                                      const json_t *entry, uint64_t data_bytes, const char *path,
                                      tandem_error *error);
tandem_status tandem_safetensors_read_values(const tandem_tensor *tensor, const tandem_stored_tensor *stored,
                                             FILE *stream, uint64_t data_start, const char *path,
                                             tandem_error *error);

/* Writes all tensors as F32, with the model's name as metadata; the file whole or not at all. TANDEM_IO,
 * TANDEM_NO_MEMORY. */
tandem_status tandem_safetensors_write(const tandem_tensor *tensor, int n, const char *model,
                                       const char *path, tandem_error *error);
