/* calls.h: one call of a function of kernels/cuda/kernels.h: its inputs, drawn from a seed of its own, and
 * its results, which the door returns. Arrays live until the call ends. */
#pragma once

#include "kernels/cuda/kernels.h"
#include "tests/ptx/library/device.h"
#include "tests/ptx/library/door.h"

enum { CALL_MAX_ARRAYS = 256, CALL_TURNS = 4 /* of a cast with a history */ };
typedef struct call {
    tandem_cuda_float type;
    size_t columns, rows, n; /* n = rows·columns */
    int is_unsuited;         /* the call is not made for this type and size */
    uint64_t drawn;
    uint32_t *tickets, *words; /* 0, and 0 afterwards */
    void *array[CALL_MAX_ARRAYS];
    int n_array;
    door_results *results;
} call;

size_t call_size(tandem_cuda_float type);
double call_draw(call *c);                                                     /* −1 … 1 */
void *call_array(call *c, size_t bytes);                                       /* not written */
void *call_copy(call *c, const void *from, size_t bytes);                      /* written by the host */
void *call_numbers(call *c, tandem_cuda_float type, size_t n, double largest); /* drawn */
int32_t *call_integers(call *c, size_t n, double largest);
void call_put_nans(void *at, tandem_cuda_float type, size_t n); /* in every 16th place */
void *call_result_array(call *c, tandem_cuda_float type, size_t n);
void call_check(call *c, int failed, const char *what);
void call_bytes(call *c, const char *what, const void *at, size_t bytes);
void call_close_to(call *c, const char *what, tandem_cuda_float type, const void *at, size_t n);
void call_sums(call *c, const char *what, tandem_cuda_float type, const void *at, size_t n);
void call_codes(call *c, const char *what, const void *at, size_t n);

/* One array of the calls of each file: a name, and what makes the call. */
typedef struct call_row {
    const char *name;
    void (*make)(call *c);
} call_row;
extern const call_row calls_of_rows[], calls_of_casts[], calls_of_columns[], calls_of_layouts[],
    calls_of_attention[], calls_of_coded_results[]; /* each ends with a name NULL */
