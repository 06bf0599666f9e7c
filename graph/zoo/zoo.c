/* zoo.c: the models there are, and how a name with options becomes a graph. */
#include "graph/zoo/zoo.h"
#include "base/nearest.h"

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

/* --- What model files build with ------------------------------------------------------------------------ */
tandem_zoo_name tandem_zoo_in(const char *scope, const char *part)
{
    tandem_zoo_name name;
    (void)snprintf(name.text, sizeof name.text, "%s%s%s", scope, *scope ? "." : "", part);
    return name;
}

int tandem_zoo_linear(tandem_builder *b, const char *name, int x, int64_t n, float deviation)
{
    x = tandem_build_linear(b, name, x, n, deviation);
    return tandem_build_bias(b, tandem_zoo_in(name, "bias").text, x, 1, 0);
}

int tandem_zoo_images(tandem_builder *b, int64_t image)
{
    return tandem_build_images(b, "image", tandem_zoo_height(image), tandem_zoo_width(image),
                               tandem_zoo_channels(image));
}

/* --- Pieces of a model's name --------------------------------------------------------------------------- */
typedef struct piece {
    const char *start;
    size_t length;
} piece;

/* Up to the first of the characters in `ends`, or the end. */
static piece piece_until(const char *text, const char *ends) { return (piece){text, strcspn(text, ends)}; }

static bool piece_is(piece p, const char *text)
{
    return strlen(text) == p.length && memcmp(text, p.start, p.length) == 0;
}

/* For messages: cut, and fit for a terminal. */
typedef struct quote {
    char text[TANDEM_NEAREST_LENGTH + 1];
} quote;
static quote quote_of(piece p)
{
    quote q = {{0}};
    const size_t most = sizeof q.text - 1;
    for (size_t i = 0; i < p.length && i < most; i++)
        q.text[i] = p.start[i] >= ' ' && p.start[i] <= '~' ? p.start[i] : '?';
    return q;
}

/* --- Values --------------------------------------------------------------------------------------------- */
static bool is_image(const tandem_model_option *option) { return strcmp(option->name, "image") == 0; }
static bool is_head(const tandem_model_option *option) { return strcmp(option->name, "head") == 0; }

static bool is_share(const tandem_model_option *option) { return strcmp(option->name, "dropout") == 0; }

static const char *const heads[] = {[TANDEM_ZOO_HEAD_MLM] = "mlm", [TANDEM_ZOO_HEAD_CLASS] = "class"};

char *tandem_model_value_print(char text[TANDEM_MODEL_VALUE_TEXT], const tandem_model_option *option,
                               int64_t value)
{
    if (is_image(option))
        (void)snprintf(text, TANDEM_MODEL_VALUE_TEXT, "%" PRId64 "x%" PRId64 "x%" PRId64,
                       tandem_zoo_height(value), tandem_zoo_width(value), tandem_zoo_channels(value));
    else if (is_head(option))
        (void)snprintf(text, TANDEM_MODEL_VALUE_TEXT, "%s", heads[value]);
    else if (is_share(option))
        (void)snprintf(text, TANDEM_MODEL_VALUE_TEXT, "%g", (double)value / TANDEM_ZOO_SHARE);
    else
        (void)snprintf(text, TANDEM_MODEL_VALUE_TEXT, "%" PRId64, value);
    return text;
}

/* A number of digits alone, at most 9 of them after leading zeros: more lies outside every range. */
static bool number_read(int64_t *number, piece p)
{
    int64_t n = 0;
    for (size_t i = 0; i < p.length; i++) {
        if (p.start[i] < '0' || p.start[i] > '9' || n > 99999999) return false;
        n = 10 * n + (p.start[i] - '0');
    }
    *number = n;
    return p.length > 0;
}

/* Height, width and channels lie between those of `least` and of `most`. */
static bool image_within(const int64_t size[3], int64_t least, int64_t most)
{
    return size[0] >= tandem_zoo_height(least) && size[0] <= tandem_zoo_height(most) &&
           size[1] >= tandem_zoo_width(least) && size[1] <= tandem_zoo_width(most) &&
           size[2] >= tandem_zoo_channels(least) && size[2] <= tandem_zoo_channels(most);
}

/* "28x28x1" */
static bool sizes_read(int64_t size[3], piece p)
{
    for (int i = 0; i < 3; i++) {
        size_t n = 0;
        while (n < p.length && p.start[n] != 'x') n++;
        const bool ends = n == p.length;
        if (ends != (i == 2) || !number_read(&size[i], (piece){p.start, n})) return false;
        p = (piece){p.start + n + !ends, p.length - n - !ends};
    }
    return true;
}

static bool image_read(int64_t *image, piece p, const tandem_model_option *option)
{
    int64_t size[3];
    if (number_read(&size[0], p)) {
        size[1] = size[0];
        size[2] = tandem_zoo_channels(option->fallback);
    } else if (!sizes_read(size, p)) {
        return false;
    }
    if (!image_within(size, option->least, option->most)) return false;
    *image = TANDEM_ZOO_IMAGE(size[0], size[1], size[2]);
    return true;
}

static bool head_read(int64_t *head, piece p, const tandem_model_option *option)
{
    for (*head = option->least; *head <= option->most; (*head)++)
        if (piece_is(p, heads[*head])) return true;
    return false;
}

/* "0.1", "0" or ".25": a decimal fraction with at most four digits behind its point. */
static bool share_read(int64_t *share, piece p, const tandem_model_option *option)
{
    size_t whole = 0;
    while (whole < p.length && p.start[whole] != '.') whole++;
    int64_t n = 0;
    if (whole > 0 && !number_read(&n, (piece){p.start, whole})) return false;
    if (p.length - whole > 5 || (p.length - whole < 2 && (whole == 0 || whole != p.length))) return false;
    for (size_t i = 1; i <= 4; i++) {
        const char digit = whole + i < p.length ? p.start[whole + i] : '0';
        if (digit < '0' || digit > '9') return false;
        n = 10 * n + (digit - '0');
    }
    *share = n;
    return n >= option->least && n <= option->most;
}

static bool count_read(int64_t *count, piece p, const tandem_model_option *option)
{
    return number_read(count, p) && *count >= option->least && *count <= option->most;
}

static tandem_status value_read(int64_t *value, const tandem_model *model, const tandem_model_option *option,
                                piece p, tandem_error *error)
{
    int64_t read;
    const bool fine = is_image(option)   ? image_read(&read, p, option)
                      : is_head(option)  ? head_read(&read, p, option)
                      : is_share(option) ? share_read(&read, p, option)
                                         : count_read(&read, p, option);
    if (fine) {
        *value = read;
        return TANDEM_OK;
    }
    char least[TANDEM_MODEL_VALUE_TEXT], most[TANDEM_MODEL_VALUE_TEXT];
    return tandem_error_set(error, TANDEM_USAGE, "model %s: %s is '%s'; allowed %s … %s (%s)", model->name,
                            option->name, quote_of(p).text,
                            tandem_model_value_print(least, option, option->least),
                            tandem_model_value_print(most, option, option->most), option->meaning);
}

/* --- Options -------------------------------------------------------------------------------------------- */
static tandem_status option_find(int *index, const tandem_model *model, piece name, tandem_error *error)
{
    const char *candidates[TANDEM_ZOO_MAX_OPTION];
    size_t n = 0;
    for (; model->option[n].name; n++) {
        if (piece_is(name, model->option[n].name)) {
            *index = (int)n;
            return TANDEM_OK;
        }
        candidates[n] = model->option[n].name;
    }
    const quote got = quote_of(name);
    return tandem_error_set(error, TANDEM_UNKNOWN_NAME,
                            "model %s has no option '%s'.%s `tandem list models` shows them.", model->name,
                            got.text, tandem_nearest_hint(got.text, candidates, n).text);
}

/* One "option=value" at `text`. */
static tandem_status option_read(int64_t *value, bool *given, const tandem_model *model, piece text,
                                 tandem_error *error)
{
    const piece name = piece_until(text.start, "=,");
    int i = 0;
    if (name.length == 0)
        return tandem_error_set(error, TANDEM_USAGE,
                                "model %s: an option without a name; write %s:option=value,option=value",
                                model->name, model->name);
    const tandem_status status = option_find(&i, model, name, error);
    if (status != TANDEM_OK) return status;
    if (given[i])
        return tandem_error_set(error, TANDEM_USAGE, "model %s: %s is given twice; allowed once", model->name,
                                model->option[i].name);
    if (name.length == text.length)
        return tandem_error_set(error, TANDEM_USAGE, "model %s: %s has no value; write %s=VALUE", model->name,
                                model->option[i].name, model->option[i].name);
    given[i] = true;
    return value_read(&value[i], model, &model->option[i],
                      (piece){text.start + name.length + 1, text.length - name.length - 1}, error);
}

/* "option=value,…" up to the end; the values that are not given are the defaults. */
static tandem_status options_read(int64_t *value, const tandem_model *model, const char *text,
                                  tandem_error *error)
{
    bool given[TANDEM_ZOO_MAX_OPTION] = {false};
    for (int i = 0; model->option[i].name; i++) value[i] = model->option[i].fallback;
    if (!text) return TANDEM_OK;
    for (;;) {
        const piece one = piece_until(text, ",");
        const tandem_status status = option_read(value, given, model, one, error);
        if (status != TANDEM_OK || text[one.length] == '\0') return status;
        text += one.length + 1;
    }
}

static tandem_status model_find(const tandem_zoo_model **model, piece name, tandem_error *error)
{
    const char *candidates[N_MODEL];
    for (int i = 0; i < N_MODEL; i++) {
        if (piece_is(name, models[i]->model.name)) {
            *model = models[i];
            return TANDEM_OK;
        }
        candidates[i] = models[i]->model.name;
    }
    const quote got = quote_of(name);
    return tandem_error_set(error, TANDEM_UNKNOWN_NAME,
                            "there is no model '%s'.%s `tandem list models` "
                            "shows them.",
                            got.text, tandem_nearest_hint(got.text, candidates, N_MODEL).text);
}

/* The name with the options that differ from the defaults, in the order of the table. */
static void canonical(char *text, size_t room, const tandem_model *model, const int64_t *value)
{
    size_t n = (size_t)snprintf(text, room, "%s", model->name);
    char separator = ':';
    for (int i = 0; model->option[i].name; i++) {
        char number[TANDEM_MODEL_VALUE_TEXT];
        if (value[i] == model->option[i].fallback || n >= room) continue;
        n += (size_t)snprintf(text + n, room - n, "%c%s=%s", separator, model->option[i].name,
                              tandem_model_value_print(number, &model->option[i], value[i]));
        separator = ',';
    }
}

tandem_status tandem_graph_open(tandem_graph **graph, const char *model, int64_t batch, tandem_error *error)
{
    int n_op = INT_MAX;
    return tandem_graph_open_within(graph, model, batch, &n_op, error);
}

tandem_status tandem_graph_open_within(tandem_graph **graph, const char *model, int64_t batch, int *n_op,
                                       tandem_error *error)
{
    const piece name = piece_until(model ? model : "", ":");
    const char *options = name.start[name.length] ? name.start + name.length + 1 : NULL;
    const tandem_zoo_model *row = NULL;
    int64_t value[TANDEM_ZOO_MAX_OPTION];
    char text[256];
    tandem_builder *builder = NULL;
    tandem_graph *made = NULL;
    tandem_status status = model_find(&row, name, error);
    if (status == TANDEM_OK) status = options_read(value, &row->model, options, error);
    if (status == TANDEM_OK) status = tandem_builder_open(&builder, batch, error);
    if (status == TANDEM_OK) {
        tandem_builder_limit(builder, *n_op);
        status = row->build(builder, value, error);
    }
    if (status == TANDEM_OK) {
        *n_op = tandem_builder_n_op(builder);
        canonical(text, sizeof text, &row->model, value);
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
