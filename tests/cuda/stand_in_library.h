/* stand_in_library.h: the CUDA backend on stand_in.h as the library that the product opens,
 * build/tests/libtandem_cuda.so. */
#ifndef TANDEM_TESTS_CUDA_STAND_IN_LIBRARY_H
#define TANDEM_TESTS_CUDA_STAND_IN_LIBRARY_H

/* Names it in TANDEM_CUDA and opens it, for dlsym of what stand_in.h declares: the variables that ranks of
 * this process see. NULL where it does not open; dlerror says why. */
void *stand_in_library_open(void);

#endif
