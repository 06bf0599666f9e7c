/* device_cores.h: the number of cores in the name of a device: "cpu:avx2:8" is "cpu:avx2" with eight. */
#pragma once

#include <stddef.h>

enum { TANDEM_MAX_CORE = 512 };

/* The name without its number, to base[size]; cut to fit. Returns the number of cores: 1 for a name
 * without one, and for every name that does not begin with "cpu:", "strongest" or "weakest". 0: what
 * follows is no number from 1 to TANDEM_MAX_CORE, without leading zeros; base is what precedes it. */
int tandem_device_split_cores(char *base, size_t size, const char *name);
