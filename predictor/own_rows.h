/* own_rows.h: a user's rows of one kernel, about what others' rows predict of them. Private to predictor/. */
#ifndef TANDEM_PREDICTOR_OWN_ROWS_H
#define TANDEM_PREDICTOR_OWN_ROWS_H

#include "predictor/form.h"

typedef struct tandem_own_row {
    float shape[TANDEM_N_SHAPE]; /* as of others' rows, logarithms */
    double residual, weight;     /* log(measured / what others' rows predict); the share of it that is work */
} tandem_own_row;
/* {NULL}: there are none. */
typedef struct tandem_own_rows {
    tandem_own_row *row;
    int n, room;
    double least, most; /* of the residuals; at most 0, at least 0 */
} tandem_own_rows;
/* TANDEM_NO_MEMORY: unchanged. */
tandem_status tandem_own_rows_add(tandem_own_rows *rows, const tandem_own_row *row, tandem_error *error);
void tandem_own_rows_clear(tandem_own_rows *rows);

/* What is known of residuals without any own row: logarithmic standard deviations, above 0. */
typedef struct tandem_own_prior {
    double own, shared; /* a shape's own; of what all shapes on the card share */
} tandem_own_prior;
typedef struct tandem_own_answer {
    double residual; /* expected; 0 without rows */
    double unknown;  /* its deviation, over that without rows: from 0 to 1 */
} tandem_own_answer;
/* Cost: O(rows), and some 20 us. */
tandem_own_answer tandem_own_rows_at(const tandem_own_rows *rows, const tandem_own_prior *prior,
                                     const float at[TANDEM_N_SHAPE]);

#endif
