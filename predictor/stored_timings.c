/* stored_timings.c: imported times of a store on their way into a calibration (predictor.h). */
#include "tandem/advanced/timings.h"

static tandem_status add_stored_timing(void *context, const tandem_timing *timing, tandem_error *error)
{
    tandem_work work;
    const tandem_status status = tandem_timing_work(&work, timing, error);
    if (status == TANDEM_UNKNOWN_NAME) return TANDEM_OK;
    return status == TANDEM_OK
               ? tandem_calibration_add(context, &work, timing->time_ns, tandem_timing_timed(timing), error)
               : status;
}

tandem_status tandem_calibration_add_stored(tandem_calibration *calibration, tandem_store *store,
                                            tandem_error *error)
{
    return tandem_store_visit_timings(store, tandem_calibration_device(calibration)->name, add_stored_timing,
                                      calibration, error);
}
