/* batch_ratio.h: predicted over measured squares, where both have their batches in common. */
#ifndef TANDEM_RESEARCH_BATCH_RATIO_H
#define TANDEM_RESEARCH_BATCH_RATIO_H

typedef struct batch_ratio {
    double ratio, factor; /* by which its 95 % interval reaches up and down */
} batch_ratio;

/* The ratio of the means over n ≥ 2 batches. Not finite where all measured squares are 0. */
batch_ratio batch_ratio_of(const double *predicted, const double *measured, int n);

#endif
