/* draw.h: jobs that bytes represent: any model with any options, batch, memory, cards and features. */
#ifndef TANDEM_TESTS_SLURM_DRAW_H
#define TANDEM_TESTS_SLURM_DRAW_H

#include "plugins/slurm/submission.h"

typedef struct tandem_drawn {
    char model[512], batch[16], memory[32], resources[4][1024], features[1024];
    tandem_submission submission; /* of the texts above */
} tandem_drawn;

/* The same bytes are the same job; those that are missing count as 0. Values lie in their ranges, at their
 * ends more often than not; what does not go together with another value is drawn, too. */
void tandem_draw_submission(tandem_drawn *drawn, const uint8_t *bytes, size_t n);

/* As many lines as tandem.conf may have, the last ones for every device there is: `gres gpu:DEVICE DEVICE`,
 * with _ for the colon that a type cannot hold. For tandem_site_parse; the caller's to free. */
char *tandem_draw_site(void);

/* The job as it is typed, to be printed. */
void tandem_drawn_print(char text[2048], const tandem_drawn *drawn);

#endif
