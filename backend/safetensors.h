/* safetensors.h: weights in a file that other frameworks read and write, too.
 *
 *     n        u64, bytes of the header
 *     header   JSON: {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …, "__metadata__":
 *              {text: text}}
 *     data     the tensors, row-major, little-endian, from offsets that count from the header's end
 *
 * Together the tensors cover the data without gap or overlap. Written are F32; read are F32, BF16 and F16.
 * Source: https://github.com/huggingface/safetensors (README, "Format"). */
#ifndef TANDEM_BACKEND_SAFETENSORS_H
#define TANDEM_BACKEND_SAFETENSORS_H

#include <stdio.h>

#include "tandem/graph.h"

enum { TANDEM_TENSOR_NAME = 80 };
static const uint64_t tandem_safetensors_header_bytes = 100 << 20; /* most that is read */

/* A tensor that a file must hold, under this name and with this shape: where its numbers lie, or go. */
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
    uint64_t start, bytes; /* behind the header */
} tandem_stored_tensor;

/* Holds a header against what the file must hold: each of the tensors, no other, in its shape and a type that
 * is read, all within `data_bytes` and covering it. Fills stored[n]. TANDEM_MALFORMED (no such header,
 * offsets that do not fit), TANDEM_WRONG_MODEL (a tensor too many, too few, or of another shape: its name,
 * and the nearest one there is), TANDEM_NO_MEMORY. `path` is for messages. *stored unchanged on error. */
tandem_status tandem_safetensors_parse(tandem_stored_tensor *stored, const tandem_tensor *tensor, int n,
                                       const char *header, size_t header_bytes, uint64_t data_bytes,
                                       const char *path, tandem_error *error);

/* Checks a file; and fills the tensors' values, where `fill` is 1. TANDEM_IO, and the errors above; the
 * values of tensors are changed only where the header was right. Cost: the file, once. */
tandem_status tandem_safetensors_read(const tandem_tensor *tensor, int n, const char *path, int fill,
                                      tandem_error *error);

/* Writes them all in F32, with the model's name as metadata; the file is old or new, never half. TANDEM_IO,
 * TANDEM_NO_MEMORY. */
tandem_status tandem_safetensors_write(const tandem_tensor *tensor, int n, const char *model,
                                       const char *path, tandem_error *error);

#endif
