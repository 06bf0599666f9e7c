/* narrow.h: put before layout.cu where the test compiles it, so that a call chooses how many elements are
 * indexed with 32 bits. */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C"
#else
extern
#endif
    size_t device_narrow_elements;
#define NARROW_ELEMENTS device_narrow_elements
