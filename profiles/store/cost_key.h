/* cost_key.h: prints the key of a cast from its parts, as the store keeps them; private to profiles/. */
#ifndef TANDEM_PROFILES_COST_KEY_H
#define TANDEM_PROFILES_COST_KEY_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/advanced/step.h"

void tandem_cost_key_print_cast(char *text, size_t size, int64_t elements, const char *from, const char *to,
                                tandem_range_source range, int transposed_copy);

#endif
