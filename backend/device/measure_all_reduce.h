#ifndef TANDEM_BACKEND_MEASURE_ALL_REDUCE_H
#define TANDEM_BACKEND_MEASURE_ALL_REDUCE_H

#include "backend/device/worker.h"

/* See measure_all_reduce in backend.h. */
tandem_status tandem_measure_all_reduce(tandem_worker *worker, uint64_t bytes, int loaded, int64_t *sample_ns,
                                        int n, double *slowdown, tandem_error *error);

#endif
