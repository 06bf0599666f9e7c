/* methods.h: the sensitivity methods, one a file; private to predictor/. */
#ifndef TANDEM_PREDICTOR_METHODS_H
#define TANDEM_PREDICTOR_METHODS_H

#include "tandem/advanced/predictor.h"

extern const tandem_sensitivity_method tandem_sensitivity_fisher, tandem_sensitivity_qsync,
    tandem_sensitivity_sampled;
extern const tandem_sensitivity_method *const tandem_sensitivity_methods[]; /* all, then NULL */

#endif
