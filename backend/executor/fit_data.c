/* fit_data.c: how a data set's samples become what a model takes: as they lie, in another order of the same
 * numbers, or as images of another size. Where neither keeps their meaning, the two are refused: numbers that
 * are resized or repeated train to a plausible loss. */
#include "backend/executor/fit_data.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { N_AXIS = TANDEM_DATA_AXES, SHAPE_TEXT = 160, COLOURS = 3, MAX_ORDER = 5 };

/* --- Texts ---------------------------------------------------------------------------------------------- */

static const char *print_sample(char text[SHAPE_TEXT], const tandem_sample *s)
{
    size_t used = 0;
    (void)snprintf(text, SHAPE_TEXT, "1"); /* without a dimension: one number */
    for (int d = 0; d < s->n_dim && used < SHAPE_TEXT; d++) {
        const int n = snprintf(text + used, SHAPE_TEXT - used, "%s%" PRId64, d ? " × " : "", s->dim[d]);
        used += n > 0 ? (size_t)n : 0;
    }
    return text;
}

static const char *layout_text(tandem_sample_layout layout)
{
    switch (layout) {
    case TANDEM_SAMPLE_CHANNELS_LAST: return " (height × width × channels)";
    case TANDEM_SAMPLE_CHANNELS_FIRST: return " (channels × height × width)";
    case TANDEM_SAMPLE_SEVERAL: return " numbers in several inputs";
    case TANDEM_SAMPLE_NUMBERS: break;
    }
    return "";
}

static int is_of_zoo(const tandem_graph *graph) { return !graph->source; }

/* Numbers without places are no image: neither resized, nor cut into rows. */
static tandem_status refuse_features(const tandem_data *data, const tandem_graph *graph, tandem_error *error)
{
    char sample[SHAPE_TEXT], advice[SHAPE_TEXT] = "Give a model with such an input";
    if (is_of_zoo(graph)) (void)snprintf(advice, sizeof advice, "Use image=1x%dx1", data->width);
    return tandem_error_set(
        error, TANDEM_MALFORMED,
        "model '%s' takes samples of %s%s, but data '%s' has samples of %d features, which "
        "are no such samples. %s, or save them in the model's shape",
        graph->model, print_sample(sample, &graph->sample), layout_text(graph->sample.layout), data->name,
        data->width, advice);
}

static tandem_status refuse_shape(const tandem_data *data, const tandem_graph *graph, tandem_error *error)
{
    char sample[SHAPE_TEXT], advice[SHAPE_TEXT];
    if (data->is_flat) return refuse_features(data, graph, error);
    if (is_of_zoo(graph))
        (void)snprintf(advice, sizeof advice, "Use image=%dx%dx%d", data->height, data->width,
                       data->channels);
    else
        (void)snprintf(advice, sizeof advice,
                       "Give data of the model's shape, or a model with an input of batch × %d × %d × %d",
                       data->channels, data->height, data->width);
    return tandem_error_set(
        error, TANDEM_MALFORMED,
        "model '%s' takes samples of %s%s, but data '%s' has images of %d × %d × %d (height × width × "
        "channels), which are no such samples. %s",
        graph->model, print_sample(sample, &graph->sample), layout_text(graph->sample.layout), data->name,
        data->height, data->width, data->channels, advice);
}

/* --- The same numbers in another order ------------------------------------------------------------------ */

/* A way to see an image: its dimensions, of one or more axes each, outermost first. */
typedef struct image_order {
    int n_dim, n_axis[N_AXIS];
    tandem_data_axis axis[N_AXIS];
    const char *said;
} image_order;

/* Those that a model may have; the first one that its sample has is taken. fill: over how many channels a
 * grey image is repeated; 1: only its own. */
static int list_orders(image_order order[MAX_ORDER], const tandem_data *data, tandem_sample_layout layout,
                       int fill)
{
    const int64_t c = data->channels, w = data->width;
    const tandem_data_axis rows = {data->height, w * c}, columns = {w, c},
                           channels = {fill > 1 ? fill : c, fill > 1 ? 0 : 1};
    const int is_last = layout == TANDEM_SAMPLE_CHANNELS_LAST;
    int n = 0;
    const char *const first = c == 1 && fill == 1 ? "row by row" : "channels first",
                      *const last = c == 1 && fill == 1 ? "row by row" : "channels last";
    if (!is_last) order[n++] = (image_order){3, {1, 1, 1}, {channels, rows, columns}, first};
    order[n++] = (image_order){3, {1, 1, 1}, {rows, columns, channels}, last};
    if (fill > 1) return n;
    if (c == 1) order[n++] = (image_order){1, {3}, {channels, rows, columns}, "flattened, row by row"};
    if (c == 1 || is_last) return n;
    order[n++] = (image_order){1, {3}, {channels, rows, columns}, "flattened, channel by channel"};
    order[n++] = (image_order){2, {1, 2}, {channels, rows, columns}, "channels × pixels"};
    order[n++] = (image_order){2, {2, 1}, {rows, columns, channels}, "pixels × channels"};
    return n;
}

static int64_t order_dim(const image_order *order, int d, int *first)
{
    int64_t n = 1;
    *first = 0;
    for (int k = 0; k < d; k++) *first += order->n_axis[k];
    for (int k = 0; k < order->n_axis[d]; k++) n *= order->axis[*first + k].n;
    return n;
}

/* The sample's axes in the order of the model's memory. 0: it is no such order. Dimensions of size 1 do not
 * count. */
static int match_order(tandem_data_axis axis[N_AXIS], const tandem_sample *s, const image_order *order)
{
    int next = 0, first = 0, used = 0, of[TANDEM_MAX_SAMPLE_DIM];
    for (int d = 0; d < s->n_dim; d++) {
        of[d] = -1;
        if (s->dim[d] == 1) continue;
        while (next < order->n_dim && order_dim(order, next, &first) == 1) next++;
        if (next == order->n_dim || order_dim(order, next, &first) != s->dim[d]) return 0;
        of[d] = next++;
    }
    for (; next < order->n_dim; next++)
        if (order_dim(order, next, &first) != 1) return 0;
    for (int k = 0; k < s->n_dim; k++) {
        const int d = s->layout == TANDEM_SAMPLE_CHANNELS_FIRST ? (k + 1) % s->n_dim : k;
        for (int i = 0; of[d] >= 0 && i < order->n_axis[of[d]]; i++) {
            (void)order_dim(order, of[d], &first);
            axis[used++] = order->axis[first + i];
        }
    }
    while (used < N_AXIS) axis[used++] = (tandem_data_axis){1, 0};
    return 1;
}

/* Whether the axes count the stored pixels one after the other. */
static int is_as_stored(const tandem_data_axis axis[N_AXIS])
{
    int64_t apart = 1;
    for (int k = N_AXIS - 1; k >= 0; k--) {
        if (axis[k].n == 1) continue;
        if (axis[k].step != apart) return 0;
        apart *= axis[k].n;
    }
    return 1;
}

/* Whether a sample with these dimensions is what everyone expects, so that nothing need be said. */
static int is_usual(const tandem_sample *s, const tandem_data *data)
{
    const int64_t first[] = {data->channels, data->height, data->width},
                  last[] = {data->height, data->width, data->channels};
    return s->n_dim == 3 &&
           memcmp(s->dim, s->layout == TANDEM_SAMPLE_CHANNELS_FIRST ? first : last, sizeof first) == 0 &&
           (s->layout == TANDEM_SAMPLE_CHANNELS_FIRST || s->layout == TANDEM_SAMPLE_CHANNELS_LAST);
}

static int fit_order(tandem_data *data, const tandem_graph *graph, int fill, char said[TANDEM_DATA_SAID])
{
    const tandem_sample *const s = &graph->sample;
    const int64_t *const dim = graph->op[graph->input].shape.dim;
    image_order order[MAX_ORDER];
    char sample[SHAPE_TEXT];
    const int n = list_orders(order, data, s->layout, fill), usual = data->is_flat || is_usual(s, data);
    for (int k = 0; k < n; k++) {
        tandem_data_axis axis[N_AXIS];
        if (!match_order(axis, s, &order[k])) continue;
        if (!usual)
            (void)snprintf(said, TANDEM_DATA_SAID, "images of %d × %d × %d are taken as %s (%s%s)",
                           data->height, data->width, data->channels, print_sample(sample, s), order[k].said,
                           fill > 1 ? ", grey in every channel" : "");
        data->stored = (int64_t)data->height * data->width * data->channels;
        data->is_reordered = !is_as_stored(axis);
        memcpy(data->axis, axis, sizeof axis);
        data->height = (int)dim[1], data->width = (int)dim[2], data->channels = (int)dim[3];
        return 1;
    }
    return 0;
}

/* --- Images of another size ----------------------------------------------------------------------------- */

/* A file's images keep their proportions, to a factor of 2: a spectrum of 34 × 96 is no photograph. */
static int keeps_proportions(const tandem_data *data, int64_t height, int64_t width)
{
    const double turned = (double)height * data->width / ((double)width * data->height);
    return turned >= 0.5 && turned <= 2;
}

static int fit_size(const tandem_data *data, const tandem_graph *graph, char said[TANDEM_DATA_SAID])
{
    const tandem_sample_layout layout = graph->sample.layout;
    const int64_t *const dim = graph->op[graph->input].shape.dim;
    const int fills = data->channels == 1 && (dim[3] == COLOURS || is_of_zoo(graph));
    if ((layout != TANDEM_SAMPLE_CHANNELS_FIRST && layout != TANDEM_SAMPLE_CHANNELS_LAST) ||
        (dim[3] != data->channels && !fills) || (dim[1] == 1 && data->height > 1) ||
        (dim[2] == 1 && data->width > 1) || (!is_of_zoo(graph) && !keeps_proportions(data, dim[1], dim[2])))
        return 0;
    (void)snprintf(said, TANDEM_DATA_SAID,
                   "images of %d × %d × %d are resized to %" PRId64 " × %" PRId64 " × %" PRId64
                   " (bilinear%s)",
                   data->height, data->width, data->channels, dim[1], dim[2], dim[3],
                   dim[3] == data->channels ? "" : ", grey in every channel");
    return 1;
}

/* Of a data set that was fitted before, whose pixels are seen in the model's order. */
static tandem_status check_fitted(const tandem_data *data, const tandem_graph *graph, tandem_error *error)
{
    const int64_t *const dim = graph->op[graph->input].shape.dim;
    if (data->height == dim[1] && data->width == dim[2] && data->channels == dim[3]) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE,
                            "data '%s' was fitted to another model than '%s'; give it as it was opened",
                            data->name, graph->model);
}

static tandem_status fit_images(tandem_data *data, const tandem_graph *graph, char said[TANDEM_DATA_SAID],
                                tandem_error *error)
{
    if (data->stored) return check_fitted(data, graph, error);
    if (graph->length != 1)
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "data '%s' has one label for each image, but model '%s' predicts %" PRId64
                                " for each sample. Give a model with one row of outputs for a sample",
                                data->name, graph->model, graph->length);
    const int is_one = graph->sample.layout != TANDEM_SAMPLE_SEVERAL;
    if (is_one && fit_order(data, graph, 1, said)) return TANDEM_OK;
    if (is_one && !data->is_flat &&
        ((data->channels == 1 && fit_order(data, graph, COLOURS, said)) || fit_size(data, graph, said)))
        return TANDEM_OK;
    return refuse_shape(data, graph, error);
}

/* --- Texts and classes ---------------------------------------------------------------------------------- */

static tandem_status check_text(const tandem_data *data, const tandem_graph *graph, tandem_error *error)
{
    const int64_t room = graph->vocabulary - (graph->n_masked > 0),
                  taken = tandem_shape_elements(&graph->op[graph->input].shape) / graph->batch;
    if (taken != data->length)
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "model '%s' takes samples of %" PRId64
                                " characters, but data '%s' has samples of %d. Open it with that length",
                                graph->model, taken, data->name, data->length);
    if (data->labels_train && graph->length != 1)
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "data '%s' has one class for each sample, but model '%s' predicts %" PRId64
                                " characters of it. Give a text without classes, or a model with head=class",
                                data->name, graph->model, graph->length);
    if (graph->length != 1 && graph->length != data->length)
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "model '%s' predicts %" PRId64
                                " characters of a sample of %d; allowed are 1, the next one, or "
                                "as many. Give a model whose output has a row for each character, or one row",
                                graph->model, graph->length, data->length);
    if (data->n_symbol <= room) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_MALFORMED,
                            "data '%s' has %d characters, but the vocabulary of model '%s' has room for "
                            "%" PRId64 "%s",
                            data->name, data->n_symbol, graph->model, room,
                            graph->n_masked ? " and one masked token" : "");
}

/* Ids name rows of the model's tables: another number of them means another tokenizer. */
static tandem_status check_token_ids(const tandem_data *data, const tandem_graph *graph, tandem_error *error)
{
    const int64_t room = graph->vocabulary - (graph->n_masked > 0);
    char advice[SHAPE_TEXT] = "Give ids of the model's tokenizer";
    if (data->n_symbol <= room) return TANDEM_OK;
    if (is_of_zoo(graph))
        (void)snprintf(advice, sizeof advice, "Use vocabulary=%" PRId64 ", or ids of another tokenizer",
                       (int64_t)data->n_symbol + (graph->n_masked > 0));
    return tandem_error_set(
        error, TANDEM_MALFORMED,
        "data '%s' has token ids of 0 to %d, but the vocabulary of model '%s' allows 0 to "
        "%" PRId64 "%s. %s",
        data->name, data->n_symbol - 1, graph->model, room - 1,
        graph->n_masked ? ", since the last one marks a hidden token" : "", advice);
}

static tandem_status check_kind(const tandem_data *data, const tandem_graph *graph, tandem_error *error)
{
    const int takes_text = graph->op[graph->input].dtype == TANDEM_S32;
    char sample[SHAPE_TEXT];
    if ((data->kind == TANDEM_DATA_TEXT) == takes_text) return TANDEM_OK;
    if (takes_text)
        return tandem_error_set(
            error, TANDEM_MALFORMED,
            "model '%s' takes text, samples of %" PRId64 " tokens, but data '%s' is images of %d × %d × %d. "
            "Give a text, --data FILE.txt, or token ids, --data FILE.bin",
            graph->model, graph->sample.dim[0], data->name, data->height, data->width, data->channels);
    return tandem_error_set(error, TANDEM_MALFORMED,
                            "model '%s' takes images, samples of %s%s, but data '%s' is text. Give --data "
                            "fashion-mnist, or a directory of such files",
                            graph->model, print_sample(sample, &graph->sample),
                            layout_text(graph->sample.layout), data->name);
}

tandem_status tandem_data_fit(tandem_data *data, const tandem_graph *graph, char said[TANDEM_DATA_SAID],
                              tandem_error *error)
{
    tandem_data fitted = *data;
    char text[TANDEM_DATA_SAID] = "";
    tandem_status status = check_kind(data, graph, error);
    if (status == TANDEM_OK && data->token_bytes) status = check_token_ids(data, graph, error);
    if (status == TANDEM_OK && data->n_class > graph->n_class)
        status =
            tandem_error_set(error, TANDEM_MALFORMED,
                             "data '%s' has %d classes or characters, but model '%s' has %" PRId64 " outputs",
                             data->name, data->n_class, graph->model, graph->n_class);
    if (status == TANDEM_OK)
        status = data->kind == TANDEM_DATA_TEXT ? check_text(data, graph, error)
                                                : fit_images(&fitted, graph, text, error);
    if (status != TANDEM_OK) return status;
    *data = fitted;
    if (said) memcpy(said, text, sizeof text);
    return TANDEM_OK;
}
