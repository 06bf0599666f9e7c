/* calibration_text.h: what follows from the measured rows of a described device, for people and as JSON. */
#pragma once

#include "cli/cli.h"
#include "tandem/advanced/predictor.h"

enum { CALIBRATION_TEXT = 512 };
/* "a100: 3 rows: rate in f32 from 1, bandwidth from 1, launch from 1"; what no row gives is said. After
 * tandem_calibration_finish. Returns text. */
const char *calibration_text(char *text, size_t size, const tandem_calibration *calibration);
json_t *calibration_json(const tandem_calibration *calibration);
