/* fit_data.h: what becomes of a data set's samples so that a model takes them (data_fit of backend.h). */
#pragma once

#include "tandem/advanced/backend.h"

tandem_status tandem_data_fit(tandem_data *data, const tandem_graph *graph, char said[TANDEM_DATA_SAID],
                              tandem_error *error);
