/* recipe_note.h: says which operators a recipe does, and how many it cannot do (docs/recipes.md). */
#pragma once

#include "runtime/listener.h"
#include "tandem/workload.h"

/* Of the recipe that the workload's step is laid out for; without one, nothing. */
void runtime_note_recipe(const tandem_listener *listener, const tandem_workload *workload);
