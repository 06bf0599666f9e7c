/* amax_history.c: delayed scaling: the range of a tensor from its amax in earlier steps. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "tandem/amax_history.h"

tandem_status tandem_amax_history_init(tandem_amax_history *history, int window, int margin,
                                       tandem_error *error)
{
    if (!history) return tandem_error_set(error, TANDEM_USAGE, "amax history: history is NULL");
    if (window < 1 || window > TANDEM_AMAX_WINDOW)
        return tandem_error_set(error, TANDEM_USAGE, "amax history: window is %d; it is 1 to %d", window,
                                TANDEM_AMAX_WINDOW);
    if (margin < -TANDEM_AMAX_MARGIN || margin > TANDEM_AMAX_MARGIN)
        return tandem_error_set(error, TANDEM_USAGE, "amax history: margin is %d; it is %d to %d", margin,
                                -TANDEM_AMAX_MARGIN, TANDEM_AMAX_MARGIN);
    memset(history, 0, tandem_amax_history_bytes(window)); /* the memory may be shorter than the struct */
    history->window = window;
    history->margin = margin;
    history->before = -1;
    return TANDEM_OK;
}

tandem_status tandem_amax_history_add(tandem_amax_history *history, float amax, tandem_error *error)
{
    if (!(amax >= 0 && isfinite(amax)))
        return tandem_error_set(error, TANDEM_LIMIT_EXCEEDED,
                                "amax history: amax is %g; it is finite and at least 0", (double)amax);
    history->before = tandem_amax_history_range(history);
    history->amax[history->updates++ % history->window] = amax;
    return TANDEM_OK;
}

float tandem_amax_history_range(const tandem_amax_history *history)
{
    if (history->updates == 0) return -1;
    float largest = 0;
    for (int i = 0; i < history->window && i < history->updates; i++)
        largest = history->amax[i] > largest ? history->amax[i] : largest;
    const float range = ldexpf(largest, history->margin);
    return isfinite(range) ? range : FLT_MAX;
}
