/* cast_scaling.c: which casts keep an amax history, and the text form of delayed scaling. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "step/program/values.h"
#include "tandem/amax_history.h"

enum { DEFAULT_WINDOW = 16 };

const char *tandem_range_source_name(tandem_range_source range)
{
    static const char *const name[TANDEM_N_RANGE_SOURCE] = {"measured", "known", "delayed"};
    return (unsigned)range < TANDEM_N_RANGE_SOURCE ? name[range] : "?";
}

int tandem_step_amax_history(const tandem_step *step, int t)
{
    const tandem_task *task = &step->task[t];
    const int is_cast = task->kind == TANDEM_TASK_WEIGHT_CAST || task->kind == TANDEM_TASK_CAST ||
                        task->kind == TANDEM_TASK_GRADIENT_CAST;
    if (!task->active || !is_cast || step_range_source(step, task, task->to) != TANDEM_RANGE_DELAYED)
        return -1;
    if (!tandem_step_is_recomputed(step, t)) return t;
    const int first = step->index->cast[task->op] + t - step->index->recomputed_cast[task->op];
    return step->task[first].active ? first : t;
}

uint64_t tandem_step_amax_history_bytes(const tandem_step *step)
{
    const int window = step->options.scaling.window;
    return window > 0 ? padded_bytes(tandem_amax_history_bytes(window)) : 0;
}

/* --- As a text ------------------------------------------------------------------------------------------ */

/* Reads "window=16" or "margin=0" up to a comma or the end. Returns what follows; NULL: malformed. */
static const char *read_scaling_field(tandem_cast_scaling *scaling, const char *at)
{
    int *const field = strncmp(at, "window=", 7) == 0   ? &scaling->window
                       : strncmp(at, "margin=", 7) == 0 ? &scaling->margin
                                                        : NULL;
    if (!field || !strchr("-0123456789", at[7])) return NULL;
    const int min = field == &scaling->window ? 1 : -TANDEM_AMAX_MARGIN;
    const int max = field == &scaling->window ? TANDEM_AMAX_WINDOW : TANDEM_AMAX_MARGIN;
    char *end = NULL;
    errno = 0;
    const long n = strtol(at + 7, &end, 10);
    if (errno || end == at + 7 || n < min || n > max || (*end && *end != ',')) return NULL;
    *field = (int)n;
    return *end ? end + 1 : end;
}

tandem_status tandem_cast_scaling_parse(tandem_cast_scaling *out, const char *text, tandem_error *error)
{
    tandem_cast_scaling scaling = {.window = -1};
    const char *rest = strcmp(text, "current") == 0 ? "" : NULL;
    if (strncmp(text, "delayed", 7) == 0 && (!text[7] || (text[7] == ':' && text[8]))) {
        scaling.window = DEFAULT_WINDOW;
        for (rest = text + 7 + (text[7] == ':'); rest && *rest;) rest = read_scaling_field(&scaling, rest);
    }
    const size_t n = strlen(text);
    if (!rest || text[n ? n - 1 : 0] == ',')
        return tandem_error_set(error, TANDEM_USAGE,
                                "scaling is current, or delayed:window=%d,margin=0 with a window of 1 to %d "
                                "and a margin of %d to %d, got '%s'",
                                DEFAULT_WINDOW, TANDEM_AMAX_WINDOW, -TANDEM_AMAX_MARGIN, TANDEM_AMAX_MARGIN,
                                text);
    *out = scaling;
    return TANDEM_OK;
}

char *tandem_cast_scaling_print(char text[TANDEM_CAST_SCALING_TEXT], tandem_cast_scaling scaling)
{
    if (scaling.window > 0)
        (void)snprintf(text, TANDEM_CAST_SCALING_TEXT, "delayed:window=%d,margin=%d", scaling.window,
                       scaling.margin);
    else
        (void)snprintf(text, TANDEM_CAST_SCALING_TEXT, "current");
    return text;
}
