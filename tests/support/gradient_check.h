/* gradient_check.h: every operator's backward kernels against finite differences of its own forward kernel,
 * in fp32. */
#ifndef TANDEM_TESTS_CONFORMANCE_GRADIENT_CHECK_H
#define TANDEM_TESTS_CONFORMANCE_GRADIENT_CHECK_H

#include "tandem/advanced/device_backend.h"

/* One device, and how often its gradients were wrong: on stdout, the first eight. */
typedef struct gradients {
    const tandem_device_backend *backend; /* whose memory is the host's */
    void *device;
    /* of each operand whose gradient is looked at; it costs four forward passes an element */
    size_t max_elements;
    int is_gpu; /* steps have narrow_rows, and cases that only CPUs have kernels for are left out */
    int complaints;
} gradients;

__attribute__((format(printf, 2, 3))) void gradients_complain(gradients *g, const char *format, ...);
void gradients_check_every_case(gradients *g);

#endif
