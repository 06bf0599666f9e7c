/* device.h: what the program and a device's kernels both name: a device, its clocks, its tuned algorithms. */
#ifndef TANDEM_DEVICE_H
#define TANDEM_DEVICE_H

enum {
    TANDEM_DEVICE_NAME = 48,    /* bytes of a device's name, "cpu:avx2" or "cuda:0", its end included */
    TANDEM_BACKEND_VERSION = 19 /* of tandem_backend_api and tandem_device_backend together */
};

/* The algorithm that was tuned for a piece of work. Both texts are the device's own: `spec` names the GPU,
 * the versions of its libraries and the work; `choice` names the algorithm. */
typedef struct tandem_algorithm {
    const char *spec, *choice;
} tandem_algorithm;

/* The clock rates at which a device runs now. */
typedef struct tandem_clocks {
    int compute_mhz, memory_mhz;
} tandem_clocks;

#endif
