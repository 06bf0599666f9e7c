/* stand_in.h: what tests put in NVIDIA's libraries' place where there is no card: memory of the host, streams that have done everything
 * when a call returns, products and convolutions as plain loops. With the kernels under simt.h the whole CUDA backend runs so,
 * but for the libraries themselves. */
#ifndef TANDEM_TESTS_CUDA_STAND_IN_H
#define TANDEM_TESTS_CUDA_STAND_IN_H

#include "backend/cuda/vendor.h"

/* The table that the library has for NVIDIA's, where these are not linked. */
#define stand_in_vendor tandem_cuda_vendor

/* The card that it describes; tests change it. */
extern cuda_card stand_in_card;
extern int stand_in_n_card;
/* The call after that many more fails as a lost card would, and all behind it; −1: none does. */
extern int stand_in_fails_after;
extern int64_t stand_in_memory_left; /* bytes that can still be taken */
/* Of the four ways in which it does a piece of work the first is its guess, the third is fastest, then the second. */
extern int stand_in_candidates; /* how many it names */
extern int stand_in_breaks;     /* whether the third fails when it is run */
extern int stand_in_runs;       /* of work, so far */
int stand_in_open_things(void); /* what was opened or taken and not given back */

#endif
