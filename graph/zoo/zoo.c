/* zoo.c: the table of models, and how a name with options becomes a graph. */
#include "graph/zoo/zoo.h"
#include "base/nearest.h"
#include "base/plain_text.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const tandem_zoo_model *const models[] = {&tandem_zoo_mlp,
                                                 &tandem_zoo_resnet20,
                                                 &tandem_zoo_vit_tiny,
                                                 &tandem_zoo_gpt_tiny,
                                                 &tandem_zoo_resnet18,
                                                 &tandem_zoo_resnet50,
                                                 &tandem_zoo_vgg16_bn,
                                                 &tandem_zoo_vit_b16,
                                                 &tandem_zoo_bert_base,
                                                 &tandem_zoo_gpt2_small,
                                                 NULL};
enum { N_MODEL = sizeof models / sizeof *models - 1 };

int tandem_model_count(void) { return N_MODEL; }
const tandem_model *tandem_model_get(int index)
{
    return index >= 0 && index < N_MODEL ? &models[index]->model : NULL;
}

/* --- Pieces of a model's name --------------------------------------------------------------------------- */
typedef struct text_span {
    const char *start;
    size_t length;
} text_span;

/* Up to the first of the characters in `ends`, or the end. */
static text_span span_until(const char *text, const char *ends)
{
    return (text_span){text, strcspn(text, ends)};
}

static bool span_equals(text_span p, const char *text)
{
    return strlen(text) == p.length && memcmp(text, p.start, p.length) == 0;
}

/* A copy for look-ups and messages: cut, and printable. */
typedef struct quote {
    char text[TANDEM_NEAREST_LENGTH + 1];
} quote;
static quote quote_span(text_span p)
{
    quote q = {{0}};
    const size_t max = sizeof q.text - 1;
    for (size_t i = 0; i < p.length && i < max; i++)
        q.text[i] = p.start[i] >= ' ' && p.start[i] <= '~' ? p.start[i] : '?';
    return q;
}

/* --- Values --------------------------------------------------------------------------------------------- */
static bool is_image(const tandem_model_option *option) { return strcmp(option->name, "image") == 0; }
static bool is_head(const tandem_model_option *option) { return strcmp(option->name, "head") == 0; }
static bool is_fraction(const tandem_model_option *option) { return strcmp(option->name, "dropout") == 0; }

static const char *const head_names[] = {[TANDEM_ZOO_HEAD_MLM] = "mlm", [TANDEM_ZOO_HEAD_CLASS] = "class"};

char *tandem_model_value_print(char text[TANDEM_MODEL_VALUE_TEXT], const tandem_model_option *option,
                               int64_t value)
{
    if (is_image(option))
        (void)snprintf(text, TANDEM_MODEL_VALUE_TEXT, "%" PRId64 "x%" PRId64 "x%" PRId64,
                       tandem_zoo_height(value), tandem_zoo_width(value), tandem_zoo_channels(value));
    else if (is_head(option))
        (void)snprintf(text, TANDEM_MODEL_VALUE_TEXT, "%s", head_names[value]);
    else if (is_fraction(option))
        (void)tandem_plain_print(text, TANDEM_MODEL_VALUE_TEXT, "%g", (double)value / TANDEM_ZOO_FRACTION);
    else
        (void)snprintf(text, TANDEM_MODEL_VALUE_TEXT, "%" PRId64, value);
    return text;
}

/* At most 9 digits after leading zeros: no range holds more. */
static bool read_digits(int64_t *number, text_span p)
{
    int64_t n = 0;
    for (size_t i = 0; i < p.length; i++) {
        if (p.start[i] < '0' || p.start[i] > '9' || n > 99999999) return false;
        n = 10 * n + (p.start[i] - '0');
    }
    *number = n;
    return p.length > 0;
}

/* Whether height, width and channels lie between those of `min` and of `max`. */
static bool is_image_in_range(const int64_t size[3], int64_t min, int64_t max)
{
    return size[0] >= tandem_zoo_height(min) && size[0] <= tandem_zoo_height(max) &&
           size[1] >= tandem_zoo_width(min) && size[1] <= tandem_zoo_width(max) &&
           size[2] >= tandem_zoo_channels(min) && size[2] <= tandem_zoo_channels(max);
}

/* "28x28x1" */
static bool read_image_dims(int64_t size[3], text_span p)
{
    for (int i = 0; i < 3; i++) {
        size_t n = 0;
        while (n < p.length && p.start[n] != 'x') n++;
        const bool ends = n == p.length;
        if (ends != (i == 2) || !read_digits(&size[i], (text_span){p.start, n})) return false;
        p = (text_span){p.start + n + !ends, p.length - n - !ends};
    }
    return true;
}

static bool read_image_size(int64_t *image, text_span p, const tandem_model_option *option)
{
    int64_t size[3];
    if (read_digits(&size[0], p)) {
        size[1] = size[0];
        size[2] = tandem_zoo_channels(option->default_value);
    } else if (!read_image_dims(size, p)) {
        return false;
    }
    if (!is_image_in_range(size, option->min_value, option->max_value)) return false;
    *image = TANDEM_ZOO_IMAGE(size[0], size[1], size[2]);
    return true;
}

static bool read_head_name(int64_t *head, text_span p, const tandem_model_option *option)
{
    for (*head = option->min_value; *head <= option->max_value; (*head)++)
        if (span_equals(p, head_names[*head])) return true;
    return false;
}

/* "0.1", "0" or ".25": a decimal fraction with at most four digits after its point. */
static bool read_fraction(int64_t *fraction, text_span p, const tandem_model_option *option)
{
    size_t whole = 0;
    while (whole < p.length && p.start[whole] != '.') whole++;
    int64_t n = 0;
    if (whole > 0 && !read_digits(&n, (text_span){p.start, whole})) return false;
    if (p.length - whole > 5 || (p.length - whole < 2 && (whole == 0 || whole != p.length))) return false;
    for (size_t i = 1; i <= 4; i++) {
        const char digit = whole + i < p.length ? p.start[whole + i] : '0';
        if (digit < '0' || digit > '9') return false;
        n = 10 * n + (digit - '0');
    }
    *fraction = n;
    return n >= option->min_value && n <= option->max_value;
}

static bool read_option_count(int64_t *count, text_span p, const tandem_model_option *option)
{
    return read_digits(count, p) && *count >= option->min_value && *count <= option->max_value;
}

static tandem_status read_option_value(int64_t *value, const tandem_model *model,
                                       const tandem_model_option *option, text_span p, tandem_error *error)
{
    int64_t read;
    const bool fine = is_image(option)      ? read_image_size(&read, p, option)
                      : is_head(option)     ? read_head_name(&read, p, option)
                      : is_fraction(option) ? read_fraction(&read, p, option)
                                            : read_option_count(&read, p, option);
    if (fine) {
        *value = read;
        return TANDEM_OK;
    }
    char min[TANDEM_MODEL_VALUE_TEXT], max[TANDEM_MODEL_VALUE_TEXT];
    return tandem_error_set(error, TANDEM_USAGE, "model %s: %s is '%s'; allowed %s … %s (%s)", model->name,
                            option->name, quote_span(p).text,
                            tandem_model_value_print(min, option, option->min_value),
                            tandem_model_value_print(max, option, option->max_value), option->meaning);
}

/* --- Options -------------------------------------------------------------------------------------------- */
/* One "option=value" at `text`. */
static tandem_status read_model_option(int64_t *value, bool *given, const tandem_model *model, text_span text,
                                       tandem_error *error)
{
    const text_span name = span_until(text.start, "=,");
    const quote got = quote_span(name);
    tandem_hint hint;
    size_t n = 0;
    if (name.length == 0)
        return tandem_error_set(error, TANDEM_USAGE,
                                "model %s: an option without a name; write %s:option=value,option=value",
                                model->name, model->name);
    while (model->option[n].name) n++;
    const int i = tandem_name_find(got.text, &model->option[0].name, n, sizeof model->option[0], &hint);
    if (i < 0)
        return tandem_error_set(error, TANDEM_UNKNOWN_NAME,
                                "model %s has no option '%s'.%s `tandem list models` shows them.",
                                model->name, got.text, hint.text);
    const tandem_model_option *option = &model->option[i];
    if (given[i])
        return tandem_error_set(error, TANDEM_USAGE, "model %s: %s is given twice; allowed once", model->name,
                                option->name);
    if (name.length == text.length)
        return tandem_error_set(error, TANDEM_USAGE, "model %s: %s has no value; write %s=VALUE", model->name,
                                option->name, option->name);
    given[i] = true;
    return read_option_value(&value[i], model, option,
                             (text_span){text.start + name.length + 1, text.length - name.length - 1}, error);
}

/* "option=value,…" up to the end of `text`; the other options have their defaults. */
static tandem_status read_model_options(int64_t *value, const tandem_model *model, const char *text,
                                        tandem_error *error)
{
    bool given[TANDEM_ZOO_MAX_OPTION] = {false};
    for (int i = 0; model->option[i].name; i++) value[i] = model->option[i].default_value;
    if (!text) return TANDEM_OK;
    for (;;) {
        const text_span one = span_until(text, ",");
        const tandem_status status = read_model_option(value, given, model, one, error);
        if (status != TANDEM_OK || text[one.length] == '\0') return status;
        text += one.length + 1;
    }
}

static tandem_status find_model(const tandem_zoo_model **model, text_span name, tandem_error *error)
{
    const char *names[N_MODEL];
    const quote got = quote_span(name);
    tandem_hint hint;
    for (int i = 0; i < N_MODEL; i++) names[i] = models[i]->model.name;
    const int i = tandem_name_find(got.text, names, N_MODEL, sizeof *names, &hint);
    if (i < 0)
        return tandem_error_set(error, TANDEM_UNKNOWN_NAME,
                                "there is no model '%s'.%s `tandem list models` shows them.", got.text,
                                hint.text);
    *model = models[i];
    return TANDEM_OK;
}

/* The name, with the options that differ from their defaults in the order of the table. */
static void print_canonical_model(char *text, size_t room, const tandem_model *model, const int64_t *value)
{
    size_t n = (size_t)snprintf(text, room, "%s", model->name);
    char separator = ':';
    for (int i = 0; model->option[i].name; i++) {
        char number[TANDEM_MODEL_VALUE_TEXT];
        if (value[i] == model->option[i].default_value || n >= room) continue;
        n += (size_t)snprintf(text + n, room - n, "%c%s=%s", separator, model->option[i].name,
                              tandem_model_value_print(number, &model->option[i], value[i]));
        separator = ',';
    }
}

tandem_status tandem_graph_open_zoo(tandem_graph **graph, const char *model, int64_t batch,
                                    tandem_error *error)
{
    int n_op = INT_MAX;
    return tandem_graph_open_limited(graph, model, batch, &n_op, error);
}

tandem_status tandem_graph_open_limited(tandem_graph **graph, const char *model, int64_t batch, int *n_op,
                                        tandem_error *error)
{
    const text_span name = span_until(model ? model : "", ":");
    const char *options = name.start[name.length] ? name.start + name.length + 1 : NULL;
    const tandem_zoo_model *row = NULL;
    int64_t value[TANDEM_ZOO_MAX_OPTION];
    char text[256];
    tandem_builder *builder = NULL;
    tandem_graph *made = NULL;
    tandem_status status = find_model(&row, name, error);
    if (status == TANDEM_OK) status = read_model_options(value, &row->model, options, error);
    if (status == TANDEM_OK) status = tandem_builder_open(&builder, batch, error);
    if (status == TANDEM_OK) {
        tandem_builder_set_max_op(builder, *n_op);
        status = row->build(builder, value, error);
    }
    if (status == TANDEM_OK) {
        *n_op = tandem_builder_n_op(builder);
        print_canonical_model(text, sizeof text, &row->model, value);
        status = tandem_builder_finish(builder, text, &row->optimizer, &made, error);
    }
    if (status == TANDEM_OK) status = tandem_graph_fuse(made, error);
    if (status == TANDEM_OK)
        *graph = made;
    else
        tandem_graph_close(made);
    tandem_builder_close(builder);
    return status;
}
