/* wide.h: loops that are compiled for several instruction sets, of which the machine's runs.
 *
 * TANDEM_WIDE before a function whose loops run in vectors. Sums keep an order of their own in arrays, and
 * products are not contracted, so that all of them give the same bits. Sanitizers' checks are not ready yet
 * when the loader chooses, so there they run in one version. */
#pragma once

#if defined __x86_64__ && !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ &&                   \
    !defined __clang__ && defined __GNUC__
#define TANDEM_WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TANDEM_WIDE
#endif
