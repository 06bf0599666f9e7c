/* json.h: reads JSON that people may have written: each error names file, member, value and allowed values.
 * It needs jansson, which not every library of ours links (mk/parts.mk). */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "tandem/status.h"

/* A location in a file, for errors only. */
typedef struct tandem_json_location {
    const char *source; /* name of the file */
    char path[160];     /* "classes[1]"; "" at the top */
    tandem_error *error;
} tandem_json_location;

/* A tree of JSON takes some hundred bytes for a value of two in the file: a file has at most so many. */
enum { TANDEM_JSON_MAX_VALUES = 1 << 20 };
/* tandem_json_check_count: TANDEM_MALFORMED where there are more. */
tandem_status tandem_json_check_count(const char *bytes, size_t n, const char *source, tandem_error *error);

/* tandem_json_parse: parses text into a new reference. TANDEM_MALFORMED with line and column,
 * or with too many values; TANDEM_NO_MEMORY. */
tandem_status tandem_json_parse(json_t **root, const char *bytes, size_t n, const char *source,
                                tandem_error *error);

/* TANDEM_MALFORMED: "'source', path.member: why". member NULL: the location itself. */
tandem_status tandem_json_refuse(const tandem_json_location *location, const char *member, const char *why);
/* TANDEM_MALFORMED unless `object` is an object whose members all occur in `allowed`, which ends with NULL.
 * The error suggests the nearest allowed name. */
tandem_status tandem_json_check_members(const tandem_json_location *location, const json_t *object,
                                        const char *const *allowed);

/* Reads one member of an object. If it is absent or null: TANDEM_MALFORMED if `required`, otherwise *value
 * is unchanged. */
tandem_status tandem_json_text(const char **value, const tandem_json_location *location, const json_t *object,
                               const char *member, int required); /* borrowed from the object */
tandem_status tandem_json_integer(int64_t *value, const tandem_json_location *location, const json_t *object,
                                  const char *member, int64_t min, int64_t max, int required);
tandem_status tandem_json_real(double *value, const tandem_json_location *location, const json_t *object,
                               const char *member, int required);
/* true or false */
tandem_status tandem_json_bool(int *value, const tandem_json_location *location, const json_t *object,
                               const char *member);
