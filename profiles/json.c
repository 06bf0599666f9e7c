#include "profiles/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/nearest.h"

/* Where memory runs out in the middle of a word, jansson (2.14) drops a character of it and goes on, and
 * elsewhere it fails without a reason. So a text is read twice: two readings that differ say that memory
 * is out. */
tandem_status tandem_json_parse(json_t **root, const char *bytes, size_t n, const char *source,
                                tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    json_error_t why, again;
    json_t *parsed = json_loadb(bytes, n, JSON_REJECT_DUPLICATES, &why);
    json_t *const second = json_loadb(bytes, n, JSON_REJECT_DUPLICATES, &again);
    if (parsed && second && json_equal(parsed, second)) {
        *root = parsed;
        parsed = NULL;
    } else if (parsed || second || !why.text[0] || strcmp(why.text, again.text) != 0) {
        status = tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to read '%.200s'", source);
    } else {
        status = tandem_error_set(error, TANDEM_MALFORMED, "'%.200s', line %d, column %d: no JSON: %s",
                                  source, why.line, why.column, why.text);
    }
    json_decref(second);
    json_decref(parsed);
    return status;
}

tandem_status tandem_json_refuse(const tandem_json_place *place, const char *member, const char *why)
{
    const int joined = member && place->path[0];
    return tandem_error_set(place->error, TANDEM_MALFORMED, "'%.200s', %s%s%.80s: %s", place->source,
                            place->path[0] || member ? place->path : "top level", joined ? "." : "",
                            member ? member : "", why);
}

tandem_status tandem_json_check_members(const tandem_json_place *place, const json_t *object,
                                        const char *const *allowed)
{
    char why[512];
    size_t n = 0;
    while (allowed[n]) n++;
    if (!json_is_object(object)) return tandem_json_refuse(place, NULL, "must be an object");
    /* jansson iterates through a non-const pointer; nothing is changed. */
    for (void *at = json_object_iter((json_t *)object); at;
         at = json_object_iter_next((json_t *)object, at)) {
        const char *const name = json_object_iter_key(at);
        size_t i = 0;
        while (i < n && strcmp(allowed[i], name) != 0) i++;
        if (i < n) continue;
        size_t used = (size_t)snprintf(why, sizeof why, "is no member here.%s Allowed are",
                                       tandem_nearest_hint(name, allowed, n).text);
        for (i = 0; i < n && used < sizeof why; i++)
            used += (size_t)snprintf(why + used, sizeof why - used, "%s %s", i ? "," : "", allowed[i]);
        return tandem_json_refuse(place, name, why);
    }
    return TANDEM_OK;
}

/* The member, or NULL where it is absent or null. */
static const json_t *present(const json_t *object, const char *member)
{
    const json_t *const value = json_object_get(object, member);
    return json_is_null(value) ? NULL : value;
}

static tandem_status absent(const tandem_json_place *place, const char *member, int required)
{
    return required ? tandem_json_refuse(place, member, "is missing") : TANDEM_OK;
}

tandem_status tandem_json_text(const char **value, const tandem_json_place *place, const json_t *object,
                               const char *member, int required)
{
    const json_t *const found = present(object, member);
    if (!found) return absent(place, member, required);
    if (!json_is_string(found)) return tandem_json_refuse(place, member, "must be a text");
    *value = json_string_value(found);
    return TANDEM_OK;
}

tandem_status tandem_json_whole(int64_t *value, const tandem_json_place *place, const json_t *object,
                                const char *member, int64_t least, int64_t most, int required)
{
    const json_t *const found = present(object, member);
    if (!found) return absent(place, member, required);
    const int64_t got = json_integer_value(found);
    if (json_is_integer(found) && got >= least && got <= most) {
        *value = got;
        return TANDEM_OK;
    }
    char why[120];
    (void)snprintf(why, sizeof why, "must be a whole number from %" PRId64 " to %" PRId64, least, most);
    return tandem_json_refuse(place, member, why);
}

tandem_status tandem_json_real(double *value, const tandem_json_place *place, const json_t *object,
                               const char *member, int required)
{
    const json_t *const found = present(object, member);
    if (!found) return absent(place, member, required);
    if (!json_is_number(found)) return tandem_json_refuse(place, member, "must be a number");
    *value = json_number_value(found);
    return TANDEM_OK;
}

tandem_status tandem_json_flag(int *value, const tandem_json_place *place, const json_t *object,
                               const char *member)
{
    const json_t *const found = present(object, member);
    if (!found) return TANDEM_OK;
    if (!json_is_boolean(found)) return tandem_json_refuse(place, member, "must be true or false");
    *value = json_is_true(found);
    return TANDEM_OK;
}
