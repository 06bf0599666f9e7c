/* json.h: reading JSON that people may have written: every complaint says which file, which member, what
 * it is and what it should be. Private to profiles/. */
#ifndef TANDEM_PROFILES_JSON_H
#define TANDEM_PROFILES_JSON_H

#include <jansson.h>
#include <stdint.h>

#include "tandem/status.h"

/* Where in a file one reads: for errors only. */
typedef struct tandem_json_location {
    const char *source; /* name of the file */
    char path[160];     /* "classes[1]", or "" at the top */
    tandem_error *error;
} tandem_json_location;

/* tandem_json_parse: text → a new reference. TANDEM_MALFORMED with line and column; TANDEM_NO_MEMORY. */
tandem_status tandem_json_parse(json_t **root, const char *bytes, size_t n, const char *source,
                                tandem_error *error);

/* TANDEM_MALFORMED: "'source', path.member: why". member NULL: the place itself. */
tandem_status tandem_json_refuse(const tandem_json_location *location, const char *member, const char *why);
/* That `object` is an object without members other than `allowed`, which ends with NULL; the nearest is
 * named. */
tandem_status tandem_json_check_members(const tandem_json_location *location, const json_t *object,
                                        const char *const *allowed);

/* One member of an object. Absent or null: TANDEM_MALFORMED where `required`, else *value stays as it is. */
tandem_status tandem_json_text(const char **value, const tandem_json_location *location, const json_t *object,
                               const char *member, int required); /* borrowed from the object */
tandem_status tandem_json_integer(int64_t *value, const tandem_json_location *location, const json_t *object,
                                  const char *member, int64_t min, int64_t max, int required);
tandem_status tandem_json_real(double *value, const tandem_json_location *location, const json_t *object,
                               const char *member, int required);
/* True or false. */
tandem_status tandem_json_bool(int *value, const tandem_json_location *location, const json_t *object,
                               const char *member);

#endif
