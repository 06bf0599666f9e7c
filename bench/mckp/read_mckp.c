/* read_mckp.c: reads a knapsack problem from JSON and finds a unit in which all its times are whole. */
#include "bench/mckp/mckp.h"

#include "base/arena.h"
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double max_sensitivity_value = 1e100, max_exact_total = 0x1p52;

typedef struct owned_mckp {
    mckp problem; /* the first member: what callers have a pointer to */
    tandem_arena arena;
} owned_mckp;

typedef struct mckp_reader {
    owned_mckp *made;
    tandem_json_location location;
    const json_t *time_limit, *byte_limit; /* NULL = none */
    double **time_ns;                      /* [n_item][n_choice] as in the file */
    int *by_name;                          /* [n_item] items, in the order of their names */
} mckp_reader;

static tandem_status mckp_no_memory(const mckp_reader *r)
{
    return tandem_no_memory(r->location.error, "to read '%.200s'", r->location.source);
}

static tandem_status refuse_member(const mckp_reader *r, const char *member, const char *why)
{
    return tandem_json_refuse(&r->location, member, why);
}

/* --- Numbers and names ---------------------------------------------------------------------------------- */

static tandem_status read_mckp_amount(double *value, const mckp_reader *r, const json_t *object,
                                      const char *member, double max, int required)
{
    double read = 0;
    char why[96];
    const tandem_status status = tandem_json_real(&read, &r->location, object, member, required);
    if (status != TANDEM_OK) return status;
    (void)snprintf(why, sizeof why, "must be a number from 0 to %g, got %g", max, read);
    if (!(read >= 0 && read <= max)) return refuse_member(r, member, why);
    *value = read;
    return TANDEM_OK;
}

static tandem_status read_mckp_bytes(uint64_t *bytes, const mckp_reader *r, const json_t *object,
                                     int required)
{
    int64_t read = -1; /* what is absent stays as it is */
    const tandem_status status =
        tandem_json_integer(&read, &r->location, object, "bytes", 0, (int64_t)max_exact_total, required);
    if (status == TANDEM_OK && read >= 0) *bytes = (uint64_t)read;
    return status;
}

static tandem_status read_mckp_name(char **name, const mckp_reader *r, const json_t *object)
{
    const char *text = NULL;
    const tandem_status status = tandem_json_text(&text, &r->location, object, "name", 1);
    if (status != TANDEM_OK) return status;
    if (!*text) return refuse_member(r, "name", "must not be empty");
    *name = tandem_arena_text(&r->made->arena, text);
    return *name ? TANDEM_OK : mckp_no_memory(r);
}

/* --- Items ---------------------------------------------------------------------------------------------- */

static tandem_status read_choice(mckp_reader *r, int i, int k, const json_t *object)
{
    static const char *const allowed[] = {"name", "time_ns", "sensitivity", "bytes", NULL};
    mckp_choice *const choice = &r->made->problem.item[i].choice[k];
    tandem_status status = tandem_json_check_members(&r->location, object, allowed);
    if (status == TANDEM_OK) status = read_mckp_name(&choice->name, r, object);
    if (status == TANDEM_OK)
        status =
            read_mckp_amount(&r->time_ns[i][k], r, object, "time_ns", max_exact_total, r->time_limit != NULL);
    if (status == TANDEM_OK)
        status = read_mckp_amount(&choice->sensitivity, r, object, "sensitivity", max_sensitivity_value, 1);
    if (status == TANDEM_OK) status = read_mckp_bytes(&choice->bytes, r, object, r->byte_limit != NULL);
    return status;
}

static tandem_status read_item(mckp_reader *r, int i, const json_t *object)
{
    static const char *const allowed[] = {"name", "choices", NULL};
    mckp_item *const item = &r->made->problem.item[i];
    (void)snprintf(r->location.path, sizeof r->location.path, "items[%d]", i);
    tandem_status status = tandem_json_check_members(&r->location, object, allowed);
    if (status == TANDEM_OK) status = read_mckp_name(&item->name, r, object);
    if (status != TANDEM_OK) return status;
    const json_t *const choices = json_object_get(object, "choices");
    const size_t n = json_array_size(choices); /* 0 for what is no array */
    if (n < 1 || n > MCKP_MAX_CHOICE)
        return refuse_member(r, "choices", "must be an array of 1 to 1000 choices");
    item->n_choice = (int)n;
    item->choice = tandem_arena_array(&r->made->arena, n, sizeof *item->choice);
    r->time_ns[i] = tandem_arena_array(&r->made->arena, n, sizeof *r->time_ns[i]);
    if (!item->choice || !r->time_ns[i]) return mckp_no_memory(r);
    for (size_t k = 0; k < n && status == TANDEM_OK; k++) {
        (void)snprintf(r->location.path, sizeof r->location.path, "items[%d].choices[%zu]", i, k);
        status = read_choice(r, i, (int)k, json_array_get(choices, k));
    }
    return status;
}
_Static_assert(MCKP_MAX_CHOICE == 1000, "the message above says 1000");

static int compare_item_names(const void *a, const void *b, void *items)
{
    const mckp_item *const item = items;
    const int i = *(const int *)a, j = *(const int *)b, names = strcmp(item[i].name, item[j].name);
    return names ? names : i - j;
}

static tandem_status sort_item_names(mckp_reader *r)
{
    const mckp *const problem = &r->made->problem;
    for (int i = 0; i < problem->n_item; i++) r->by_name[i] = i;
    qsort_r(r->by_name, (size_t)problem->n_item, sizeof *r->by_name, compare_item_names, problem->item);
    for (int k = 1; k < problem->n_item; k++) {
        const int before = r->by_name[k - 1], i = r->by_name[k];
        char why[160];
        if (strcmp(problem->item[before].name, problem->item[i].name) != 0) continue;
        (void)snprintf(r->location.path, sizeof r->location.path, "items[%d]", i);
        (void)snprintf(why, sizeof why, "'%.80s' is the name of items[%d] already", problem->item[i].name,
                       before);
        return refuse_member(r, "name", why);
    }
    return TANDEM_OK;
}

static tandem_status read_items(mckp_reader *r, const json_t *root)
{
    mckp *const problem = &r->made->problem;
    tandem_arena *const arena = &r->made->arena;
    const json_t *const items = json_object_get(root, "items");
    const size_t n = json_array_size(items);
    tandem_status status = TANDEM_OK;
    if (n < 1 || n > MCKP_MAX_ITEM) return refuse_member(r, "items", "must be an array of 1 to 10000 items");
    problem->n_item = (int)n;
    problem->item = tandem_arena_array(arena, n, sizeof *problem->item);
    r->time_ns = tandem_arena_array(arena, n, sizeof *r->time_ns);
    r->by_name = tandem_arena_array(arena, n, sizeof *r->by_name);
    if (!problem->item || !r->time_ns || !r->by_name) return mckp_no_memory(r);
    for (size_t i = 0; i < n && status == TANDEM_OK; i++)
        status = read_item(r, (int)i, json_array_get(items, i));
    return status == TANDEM_OK ? sort_item_names(r) : status;
}
_Static_assert(MCKP_MAX_ITEM == 10000, "the message above says 10000");

/* --- Ties ----------------------------------------------------------------------------------------------- */

static int find_item(const mckp_reader *r, const char *name)
{
    const mckp *const problem = &r->made->problem;
    int low = 0, high = problem->n_item;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (strcmp(problem->item[r->by_name[middle]].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == problem->n_item || strcmp(problem->item[r->by_name[low]].name, name) != 0) return -1;
    return r->by_name[low];
}

static tandem_status read_tied(int *item, const mckp_reader *r, const json_t *value)
{
    const mckp *const problem = &r->made->problem;
    char why[160];
    if (json_is_string(value)) {
        *item = find_item(r, json_string_value(value));
        (void)snprintf(why, sizeof why, "there is no item '%.80s'", json_string_value(value));
        return *item >= 0 ? TANDEM_OK : refuse_member(r, NULL, why);
    }
    (void)snprintf(why, sizeof why, "must be the name of an item, or its number from 0 to %d",
                   problem->n_item - 1);
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) >= problem->n_item)
        return refuse_member(r, NULL, why);
    *item = (int)json_integer_value(value);
    return TANDEM_OK;
}

/* Until groups are numbered, item.group is an item of the same group that comes before it, or itself. */
static int first_of_group(const mckp *problem, int i)
{
    while (problem->item[i].group != i) i = problem->item[i].group;
    return i;
}

static tandem_status tie_items(const mckp_reader *r, int a, int b)
{
    mckp_item *const item = r->made->problem.item;
    char why[256];
    (void)snprintf(why, sizeof why, "'%.80s' has %d choices and '%.80s' %d; tied items must have as many",
                   item[a].name, item[a].n_choice, item[b].name, item[b].n_choice);
    if (item[a].n_choice != item[b].n_choice) return refuse_member(r, NULL, why);
    a = first_of_group(&r->made->problem, a);
    b = first_of_group(&r->made->problem, b);
    if (a < b)
        item[b].group = a;
    else
        item[a].group = b;
    return TANDEM_OK;
}

static tandem_status read_tie(mckp_reader *r, size_t t, const json_t *list)
{
    const size_t n = json_array_size(list);
    int first = 0;
    (void)snprintf(r->location.path, sizeof r->location.path, "ties[%zu]", t);
    if (n < 2) return refuse_member(r, NULL, "must be an array of two or more items");
    for (size_t k = 0; k < n; k++) {
        int item = 0;
        (void)snprintf(r->location.path, sizeof r->location.path, "ties[%zu][%zu]", t, k);
        tandem_status status = read_tied(&item, r, json_array_get(list, k));
        if (status == TANDEM_OK && k > 0) status = tie_items(r, first, item);
        if (status != TANDEM_OK) return status;
        if (k == 0) first = item;
    }
    return TANDEM_OK;
}

static tandem_status read_ties(mckp_reader *r, const json_t *root)
{
    mckp *const problem = &r->made->problem;
    const json_t *const ties = json_object_get(root, "ties");
    tandem_status status = TANDEM_OK;
    for (int i = 0; i < problem->n_item; i++) problem->item[i].group = i;
    if (ties && !json_is_null(ties) && !json_is_array(ties))
        return refuse_member(r, "ties", "must be an array of arrays of items");
    for (size_t t = 0; t < json_array_size(ties) && status == TANDEM_OK; t++)
        status = read_tie(r, t, json_array_get(ties, t));
    r->location.path[0] = '\0';
    for (int i = 0; i < problem->n_item; i++) {
        const int before = problem->item[i].group;
        problem->item[i].group = before == i ? problem->n_group++ : problem->item[before].group;
    }
    return status;
}

/* --- Units ---------------------------------------------------------------------------------------------- */

/* Digits after the point of the shortest decimal that is this double; `most` + 1 where it has more.
 * Quotients of whole numbers below 2^53 and powers up to 10^22 are rounded right, so a decimal of so few
 * digits comes out as its double. */
static int count_decimals(double x, int max)
{
    double power = 1;
    for (int d = 0; d <= max; d++, power *= 10)
        if (x * power < 0x1p53 && nearbyint(x * power) / power == x) return d;
    return max + 1;
}

static double sum_longest_ns(const mckp_reader *r)
{
    const mckp *const problem = &r->made->problem;
    double sum = 0;
    for (int i = 0; i < problem->n_item; i++) {
        double longest = 0;
        for (int k = 0; k < problem->item[i].n_choice; k++) longest = fmax(longest, r->time_ns[i][k]);
        sum += longest;
    }
    return sum;
}

static int64_t limit_in_units(double limit_ns, double power)
{
    const long double units = (long double)limit_ns * (long double)power, nearest = nearbyintl(units);
    /* more than all items take together */
    if (units >= (long double)max_exact_total) return (int64_t)max_exact_total;
    return (int64_t)(fabsl(units - nearest) <= units * 0x1p-52L ? nearest : floorl(units));
}

static tandem_status scale_times(mckp_reader *r)
{
    mckp *const problem = &r->made->problem;
    const double longest = sum_longest_ns(r);
    double power = 1;
    int max = 0, needed = 0;
    if (longest >= max_exact_total)
        return refuse_member(r, "items", "their longest choices must take less than 2^52 ns together");
    for (; max < 15 && longest * power * 10 < max_exact_total; max++) power *= 10;
    for (int i = 0; i < problem->n_item; i++)
        for (int k = 0; k < problem->item[i].n_choice; k++) {
            const int d = count_decimals(r->time_ns[i][k], max);
            needed = d > needed ? d : needed;
        }
    problem->is_rounded = needed > max;
    for (; max > needed; max--) power /= 10;
    problem->decimals = max;
    for (int i = 0; i < problem->n_item; i++)
        for (int k = 0; k < problem->item[i].n_choice; k++)
            problem->item[i].choice[k].time = (int64_t)nearbyint(r->time_ns[i][k] * power);
    problem->time_limit = INT64_MAX;
    if (r->time_limit) problem->time_limit = limit_in_units(problem->time_limit_ns, power);
    return TANDEM_OK;
}

static tandem_status check_byte_sum(const mckp_reader *r)
{
    const mckp *const problem = &r->made->problem;
    uint64_t sum = 0; /* 10000 items of at most 2^52 bytes */
    for (int i = 0; i < problem->n_item; i++) {
        uint64_t largest = 0;
        for (int k = 0; k < problem->item[i].n_choice; k++)
            if (problem->item[i].choice[k].bytes > largest) largest = problem->item[i].choice[k].bytes;
        sum += largest;
        if (sum >= (uint64_t)max_exact_total)
            return refuse_member(r, "items", "their largest choices must have less than 2^52 bytes together");
    }
    return TANDEM_OK;
}

/* --- The file ------------------------------------------------------------------------------------------- */

static tandem_status read_limits(mckp_reader *r, const json_t *root)
{
    static const char *const allowed[] = {"time_ns", "bytes", NULL};
    const json_t *const limits = json_object_get(root, "limits");
    double time_ns = INFINITY;
    uint64_t bytes = UINT64_MAX;
    r->made->problem.time_limit_ns = time_ns;
    r->made->problem.byte_limit = bytes;
    if (!limits || json_is_null(limits)) return TANDEM_OK;
    (void)snprintf(r->location.path, sizeof r->location.path, "limits");
    tandem_status status = tandem_json_check_members(&r->location, limits, allowed);
    if (status == TANDEM_OK) status = read_mckp_amount(&time_ns, r, limits, "time_ns", 1e300, 0);
    if (status == TANDEM_OK) status = read_mckp_bytes(&bytes, r, limits, 0);
    if (status != TANDEM_OK) return status;
    r->time_limit = json_object_get(limits, "time_ns");
    r->byte_limit = json_object_get(limits, "bytes");
    if (json_is_null(r->time_limit)) r->time_limit = NULL;
    if (json_is_null(r->byte_limit)) r->byte_limit = NULL;
    r->made->problem.time_limit_ns = time_ns;
    r->made->problem.byte_limit = bytes;
    r->location.path[0] = '\0';
    return TANDEM_OK;
}

static tandem_status read_mckp_root(mckp_reader *r, const json_t *root)
{
    static const char *const allowed[] = {"schema", "items", "ties", "limits", NULL};
    const char *schema = NULL;
    tandem_status status = tandem_json_check_members(&r->location, root, allowed);
    if (status == TANDEM_OK) status = tandem_json_text(&schema, &r->location, root, "schema", 1);
    if (status == TANDEM_OK && strcmp(schema, "tandem.mckp/1") != 0)
        status = refuse_member(r, "schema", "must be \"tandem.mckp/1\"");
    if (status == TANDEM_OK) status = read_limits(r, root);
    if (status == TANDEM_OK) status = read_items(r, root);
    if (status == TANDEM_OK) status = read_ties(r, root);
    if (status == TANDEM_OK) status = scale_times(r);
    return status == TANDEM_OK ? check_byte_sum(r) : status;
}

tandem_status mckp_parse(mckp **problem, const char *bytes, size_t n, const char *source, tandem_error *error)
{
    json_t *root = NULL;
    mckp_reader r = {.made = calloc(1, sizeof *r.made), .location = {.source = source, .error = error}};
    if (!r.made) return mckp_no_memory(&r);
    tandem_status status = tandem_json_parse(&root, bytes, n, source, error);
    if (status == TANDEM_OK) status = read_mckp_root(&r, root);
    if (status == TANDEM_OK)
        *problem = &r.made->problem;
    else
        mckp_close(&r.made->problem);
    json_decref(root);
    return status;
}

void mckp_close(mckp *problem)
{
    owned_mckp *const whole = (owned_mckp *)problem;
    if (!whole) return;
    tandem_arena_free(&whole->arena);
    free(whole);
}
