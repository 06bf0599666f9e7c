/* lint_model.h: what clang's analyzer cannot see, since it looks at one file at a time: that a function which
 * reports an error never returns success. Included before each file by scripts/lint.sh, but not before those
 * that define these functions; the build knows nothing of it. */
#ifndef TANDEM_SCRIPTS_LINT_MODEL_H
#define TANDEM_SCRIPTS_LINT_MODEL_H

#include "tandem/status.h"
#define tandem_error_set(error, status, ...) (tandem_error_set((error), (status), __VA_ARGS__), (status))
#define tandem_no_memory(error, ...) (tandem_no_memory((error), __VA_ARGS__), TANDEM_NO_MEMORY)

#ifdef TANDEM_LINT_CPU
#include "backend/cpu/kernel.h"
#define cpu_kernel_refuse(kernel, why, error) (cpu_kernel_refuse((kernel), (why), (error)), TANDEM_NO_KERNEL)
#define cpu_kernel_no_memory(kernel, error) (cpu_kernel_no_memory((kernel), (error)), TANDEM_NO_MEMORY)
#endif

#ifdef TANDEM_LINT_CLI
#include "cli/cli.h"
#define cli_fail_with(status, ...) (cli_fail_with((status), __VA_ARGS__), 1)
#define cli_fail(error) (cli_fail(error), 1)
#endif

#endif
