/* add_law.h: how the noise of a plan follows from those of its parts, and with which power noises grow. */
#ifndef TANDEM_RESEARCH_ADD_LAW_H
#define TANDEM_RESEARCH_ADD_LAW_H

/* Of the same n parts with whole errors and with halved ones; weight: how often each is in the plan. */
typedef struct add_law_parts {
    const double *whole, *halved, *weight; /* [n] */
    int n;
} add_law_parts;

/* The noise of the plan: ΣB + √ΣA², where a part's noise is A·a + B·a² at errors times a. Where all parts
 * have A = 0, that is their sum; else it is less. Noises below 0 count as 0. */
double add_law_noise(const add_law_parts *parts);

/* The power of the error's scale with which a noise grows between two scales. NaN: a noise is not above 0. */
double add_law_power(double noise, double noise_before, double scale, double scale_before);

#endif
