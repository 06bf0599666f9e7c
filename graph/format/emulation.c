/* emulation.c: which number format represents a dtype while a step is emulated. */
#include <stdio.h>
#include <string.h>

#include "tandem/advanced/format.h"

tandem_emulation tandem_emulation_make(uint64_t seed)
{
    tandem_emulation emulation = {.error_scale = 1, .seed = seed};
    for (int d = 0; d < TANDEM_N_COMPUTE_DTYPE; d++)
        emulation.format[d] = tandem_format_of_dtype((tandem_dtype)d);
    return emulation;
}

tandem_status tandem_emulation_replace(tandem_emulation *emulation, const char *formats, tandem_error *error)
{
    tandem_emulation made = *emulation;
    for (size_t n; *formats; formats += n + (formats[n] == ',')) {
        char name[32];
        tandem_format format;
        n = strcspn(formats, ",");
        (void)snprintf(name, sizeof name, "%.*s", (int)n, formats);
        const tandem_status status = tandem_format_find(&format, name, error);
        if (status != TANDEM_OK) return status;
        made.format[tandem_format_get(format)->dtype] = format;
    }
    *emulation = made;
    return TANDEM_OK;
}
