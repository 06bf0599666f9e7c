/* emulation.c: which number format, or recipe, represents a dtype while a step is emulated. */
#include <stdio.h>
#include <string.h>

#include "base/nearest.h"
#include "tandem/advanced/recipe.h"
#include "tandem/graph.h"

tandem_emulation tandem_emulation_make(uint64_t seed)
{
    tandem_emulation emulation = {.error_scale = 1, .seed = seed};
    for (int d = 0; d < TANDEM_N_COMPUTE_DTYPE; d++)
        emulation.format[d] = tandem_format_of_dtype((tandem_dtype)d);
    return emulation;
}

static tandem_status no_such_format(const char *name, tandem_error *error)
{
    const char *known[TANDEM_N_FORMAT + TANDEM_N_RECIPE];
    tandem_format format;
    for (int f = 0; f < TANDEM_N_FORMAT; f++) known[f] = tandem_format_get((tandem_format)f)->name;
    for (int r = 1; r < TANDEM_N_RECIPE; r++)
        known[TANDEM_N_FORMAT + r - 1] = tandem_recipe_get((tandem_recipe)r)->name;
    const char *nearest = tandem_nearest(name, known, TANDEM_N_FORMAT + TANDEM_N_RECIPE - 1);
    if (!nearest || tandem_recipe_find(nearest) == TANDEM_RECIPE_NONE)
        return tandem_format_find(&format, name, error);
    return tandem_error_set(error, TANDEM_UNKNOWN_NAME,
                            "there is no number format or recipe '%.40s'. Did you mean '%s'? "
                            "`tandem list formats` shows formats, and docs/recipes.md recipes.",
                            name, nearest);
}

static tandem_status replace_one(tandem_emulation *emulation, tandem_dtype *replaced, const char *name,
                                 tandem_error *error)
{
    tandem_format format;
    const tandem_recipe recipe = tandem_recipe_find(name);
    if (recipe != TANDEM_RECIPE_NONE)
        format = tandem_recipe_get(recipe)->operand[TANDEM_RECIPE_FORWARD][0].format;
    else if (tandem_format_find(&format, name, NULL) != TANDEM_OK)
        return no_such_format(name, error);
    const tandem_dtype dtype = tandem_format_get(format)->dtype;
    if (recipe != TANDEM_RECIPE_NONE && dtype != TANDEM_S8)
        return tandem_error_set(error, TANDEM_USAGE,
                                "recipe %s takes the place of no other type: a precision has it (tandem list "
                                "precisions). Use e.g. --uniform mxfp8 --emulate, or a plan",
                                name);
    emulation->format[dtype] = format;
    if (dtype == TANDEM_S8) emulation->recipe = recipe;
    *replaced = dtype;
    return TANDEM_OK;
}

tandem_status tandem_emulation_replace(tandem_emulation *emulation, const char *formats, tandem_error *error)
{
    tandem_emulation made = *emulation;
    char first[TANDEM_N_COMPUTE_DTYPE][32] = {{0}};
    for (size_t n; *formats; formats += n + (formats[n] == ',')) {
        char name[32];
        tandem_dtype dtype = TANDEM_F32;
        n = strcspn(formats, ",");
        (void)snprintf(name, sizeof name, "%.*s", (int)n, formats);
        const tandem_status status = replace_one(&made, &dtype, name, error);
        if (status != TANDEM_OK) return status;
        if (first[dtype][0])
            return tandem_error_set(error, TANDEM_USAGE,
                                    "%s and %s both take the place of %s. Give one of them", first[dtype],
                                    name, tandem_dtype_name(dtype));
        memcpy(first[dtype], name, sizeof name);
    }
    *emulation = made;
    return TANDEM_OK;
}
