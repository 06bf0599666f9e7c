/* study_floor.c: what `tandem-study exchange` can see on the models that it has trained.
 *
 * It measures the noise that a plan adds, in percent of the gradients', by trainings. A noise below half
 * of the measurement's interval has an interval that holds 0: nobody can tell it from none. Half of the
 * interval of the smallest noise measured on a model is taken. As a limit of a sensitivity it presumes
 * that noise limits the progress, where a percent of noise costs a percent of samples; elsewhere it costs
 * less. docs/study/exchange.json has the intervals; tests/cli/test_sensing.sh compares. */
#include <math.h>
#include <string.h>

#include "tandem/advanced/predictor.h"

static const struct study_floor {
    const char *model;
    double percent;
} floors[] = {
    /* as models are printed: options in the order of `tandem list models` */
    {"mlp:width=32,image=14x14x1", 2.72},
    {"mlp:width=32,depth=6,image=14x14x1", 4.14},
    {"resnet20:width=4,blocks=1,image=14x14x1", 4.26},
    {"vit_tiny:patch=7,width=16,depth=1,heads=2", 3.46},
};

double tandem_study_floor(const char *model)
{
    for (size_t k = 0; k < sizeof floors / sizeof *floors; k++)
        if (strcmp(floors[k].model, model) == 0) return floors[k].percent / 100;
    return NAN;
}
