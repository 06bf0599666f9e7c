/* scratch.h: where tests make their stores: in memory where there is such a folder, since they make thousands
 * of them, each commit of one waits for its disk, and nobody pulls the plug. */
#ifndef TANDEM_TESTS_SCRATCH_H
#define TANDEM_TESTS_SCRATCH_H

#include <unistd.h>

static inline const char *scratch(void) { return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"; }

#endif
