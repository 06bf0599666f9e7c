/* json.c: parses JSON with jansson and reads members, with errors that name file and member. */
#include "base/json.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/nearest.h"
#include "base/plain_text.h"

/* Each value but the first of an array or object follows a comma. */
tandem_status tandem_json_check_count(const char *bytes, size_t n, const char *source, tandem_error *error)
{
    size_t count = 1;
    bool is_text = false;
    for (size_t i = 0; i < n && count <= TANDEM_JSON_MAX_VALUES; i++) {
        if (bytes[i] == '"') is_text = !is_text;
        if (bytes[i] == '\\' && is_text) i++;
        count += !is_text && (bytes[i] == ',' || bytes[i] == '[' || bytes[i] == '{');
    }
    if (count <= TANDEM_JSON_MAX_VALUES) return TANDEM_OK;
    return tandem_error_set(
        error, TANDEM_MALFORMED,
        "'%.200s' has more than the %d values that such a file may have; is it the one you "
        "mean?",
        source, (int)TANDEM_JSON_MAX_VALUES);
}

/* Out of memory inside a word, jansson (2.14) drops a character and continues; elsewhere it fails without a
 * reason. The text is therefore parsed twice: two results that differ mean that memory is out. */
tandem_status tandem_json_parse(json_t **root, const char *bytes, size_t n, const char *source,
                                tandem_error *error)
{
    tandem_status status = tandem_json_check_count(bytes, n, source, error);
    if (status != TANDEM_OK) return status;
    json_error_t why, second_why;
    const locale_t before = tandem_plain_begin();
    json_t *parsed = json_loadb(bytes, n, JSON_REJECT_DUPLICATES, &why);
    json_t *const second_parse = json_loadb(bytes, n, JSON_REJECT_DUPLICATES, &second_why);
    tandem_plain_end(before);
    if (parsed && second_parse && json_equal(parsed, second_parse)) {
        *root = parsed;
        parsed = NULL;
    } else if (parsed || second_parse || !why.text[0] || strcmp(why.text, second_why.text) != 0) {
        status = tandem_no_memory(error, "to read '%.200s'", source);
    } else {
        status = tandem_error_set(error, TANDEM_MALFORMED, "'%.200s', line %d, column %d: not JSON: %s",
                                  source, why.line, why.column, why.text);
    }
    json_decref(second_parse);
    json_decref(parsed);
    return status;
}

tandem_status tandem_json_refuse(const tandem_json_location *location, const char *member, const char *why)
{
    const int joined = member && location->path[0];
    return tandem_error_set(location->error, TANDEM_MALFORMED, "'%.200s', %s%s%.80s: %s", location->source,
                            location->path[0] || member ? location->path : "top level", joined ? "." : "",
                            member ? member : "", why);
}

tandem_status tandem_json_check_members(const tandem_json_location *location, const json_t *object,
                                        const char *const *allowed)
{
    char why[512];
    size_t n = 0;
    while (allowed[n]) n++;
    if (!json_is_object(object)) return tandem_json_refuse(location, NULL, "must be an object");
    /* jansson iterates through a non-const pointer; nothing changes. */
    for (void *at = json_object_iter((json_t *)object); at;
         at = json_object_iter_next((json_t *)object, at)) {
        const char *const name = json_object_iter_key(at);
        size_t i = 0;
        while (i < n && strcmp(allowed[i], name) != 0) i++;
        if (i < n) continue;
        size_t used = (size_t)snprintf(why, sizeof why, "is not allowed here.%s Allowed are",
                                       tandem_nearest_hint(name, allowed, n).text);
        for (i = 0; i < n && used < sizeof why; i++)
            used += (size_t)snprintf(why + used, sizeof why - used, "%s %s", i ? "," : "", allowed[i]);
        return tandem_json_refuse(location, name, why);
    }
    return TANDEM_OK;
}

/* The member; NULL if it is absent or null. */
static const json_t *present_member(const json_t *object, const char *member)
{
    const json_t *const value = json_object_get(object, member);
    return json_is_null(value) ? NULL : value;
}

static tandem_status absent_member(const tandem_json_location *location, const char *member, int required)
{
    return required ? tandem_json_refuse(location, member, "is missing") : TANDEM_OK;
}

tandem_status tandem_json_text(const char **value, const tandem_json_location *location, const json_t *object,
                               const char *member, int required)
{
    const json_t *const found = present_member(object, member);
    if (!found) return absent_member(location, member, required);
    if (!json_is_string(found)) return tandem_json_refuse(location, member, "must be a text");
    *value = json_string_value(found);
    return TANDEM_OK;
}

tandem_status tandem_json_integer(int64_t *value, const tandem_json_location *location, const json_t *object,
                                  const char *member, int64_t min, int64_t max, int required)
{
    const json_t *const found = present_member(object, member);
    if (!found) return absent_member(location, member, required);
    const int64_t got = json_integer_value(found);
    if (json_is_integer(found) && got >= min && got <= max) {
        *value = got;
        return TANDEM_OK;
    }
    char why[120];
    (void)snprintf(why, sizeof why, "must be a whole number from %" PRId64 " to %" PRId64, min, max);
    return tandem_json_refuse(location, member, why);
}

tandem_status tandem_json_real(double *value, const tandem_json_location *location, const json_t *object,
                               const char *member, int required)
{
    const json_t *const found = present_member(object, member);
    if (!found) return absent_member(location, member, required);
    if (!json_is_number(found)) return tandem_json_refuse(location, member, "must be a number");
    *value = json_number_value(found);
    return TANDEM_OK;
}

tandem_status tandem_json_bool(int *value, const tandem_json_location *location, const json_t *object,
                               const char *member)
{
    const json_t *const found = present_member(object, member);
    if (!found) return TANDEM_OK;
    if (!json_is_boolean(found)) return tandem_json_refuse(location, member, "must be true or false");
    *value = json_is_true(found);
    return TANDEM_OK;
}
