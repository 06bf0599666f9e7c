/* study_margins.c: the margins of the study, their hash, and those that the first line of records names. */
#include "research/study_margins.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"

const struct study_margin_values study_margin = {
#define MARGIN(part, name, value, meaning) .part##_##name = (value),
#include "research/margins.def"
};

static const struct {
    const char *part, *name;
    double value;
} rows[] = {
#define MARGIN(part, name, value, meaning) {#part, #name, value},
#include "research/margins.def"
};

void study_margins_add(study_margins *margins, const char *name, double value)
{
    if (margins->n == STUDY_MAX_MARGINS) return; /* tests/unit/test_study_margins.c: there is room */
    margins->row[margins->n].name = name;
    margins->row[margins->n++].value = value;
}

study_margins study_margins_of(const char *part)
{
    study_margins margins = {.n = 0};
    const char *of = strcmp(part, "crossed") == 0 ? "exchange" : part;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].part, of) == 0) study_margins_add(&margins, rows[i].name, rows[i].value);
    return margins;
}

void study_margins_hash(char text[STUDY_MARGINS_HASH], const study_margins *margins)
{
    uint64_t hash = TANDEM_HASH_START;
    for (int i = 0; i < margins->n; i++) {
        char row[96];
        (void)snprintf(row, sizeof row, "%s=%.17g,", margins->row[i].name, margins->row[i].value);
        hash = tandem_hash_text(hash, row);
    }
    (void)snprintf(text, STUDY_MARGINS_HASH, "%016llx", (unsigned long long)hash);
}

json_t *study_margins_json(const study_margins *margins)
{
    json_t *object = json_object();
    for (int i = 0; object && i < margins->n; i++)
        if (json_object_set_new(object, margins->row[i].name, json_real(margins->row[i].value)) != 0) {
            json_decref(object);
            return NULL;
        }
    return object;
}

/* The first margin that is another one, or that the head lacks. 0: none. */
static int say_first_difference(study_margins *margins, const json_t *of_run)
{
    for (int i = 0; i < margins->n; i++) {
        const char *name = margins->row[i].name;
        const json_t *was = json_object_get(of_run, name);
        if (json_is_number(was) && json_number_value(was) == margins->row[i].value) continue;
        if (json_is_number(was))
            (void)snprintf(margins->late, sizeof margins->late, "%s is %.6g, and was %.6g", name,
                           margins->row[i].value, json_number_value(was));
        else
            (void)snprintf(margins->late, sizeof margins->late, "they do not name %s", name);
        return 1;
    }
    return 0;
}

void study_margins_compare(study_margins *margins, const json_t *head)
{
    char hash[STUDY_MARGINS_HASH];
    const json_t *of_run = json_object_get(head, "margins");
    const char *hash_of_run = json_string_value(json_object_get(head, "margins_hash"));
    margins->late[0] = '\0';
    study_margins_hash(hash, margins);
    if (!of_run || !hash_of_run)
        (void)snprintf(margins->late, sizeof margins->late, "they name none");
    else if (!say_first_difference(margins, of_run) && strcmp(hash, hash_of_run) != 0)
        (void)snprintf(margins->late, sizeof margins->late, "they name other margins");
}
