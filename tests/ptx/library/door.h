/* door.h: what the two libraries of kernels show to the test that compares them: one runs the kernels' PTX,
 * the other one the same sources as coroutines (tests/cuda/simt.h). Each has calls of kernels/cuda/kernels.h.
 */
#pragma once

#include "tests/ptx/ptx.h"

/* How two results of a call may differ. */
typedef enum door_kind {
    DOOR_BYTES,   /* not at all */
    DOOR_NUMBERS, /* by 4e-6 of the largest one, and by a rounding of their type */
    DOOR_SUMS,    /* of numbers that were rounded before, each of which may differ by that */
    DOOR_CODES    /* of such numbers: few, by one code */
} door_kind;

typedef struct door_result {
    char what[64];
    door_kind kind;
    int type;       /* of numbers: a tandem_cuda_float */
    uint8_t *bytes; /* freed with the results */
    size_t n;       /* bytes */
} door_result;

typedef struct door_results {
    door_result *result;
    int n, max;
    int n_failed; /* calls that returned an error */
    char failed[64];
} door_results;

typedef struct ptx_door {
    const char *(*open)(const char *folder, const ptx_options *options); /* NULL, or what is wrong */
    ptx_machine *(*machine)(void);                                       /* NULL: there is none */
    const char *(*call_name)(int call);                                  /* NULL after the last one */
    /* type: a tandem_cuda_float; columns of the rows that it works on. 0: the call is not made for these. */
    int (*run)(int call, int type, size_t columns, door_results *results);
} ptx_door;
