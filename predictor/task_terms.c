/* task_terms.c: what the time of a measured device's task is made of (predictor/latency.c), from its work and
 * its cost key. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/plain_text.h"
#include "predictor/form.h"

/* Where bytes outgrow a level of a cache: of the first, the second, and the part of the third that one core
 * has. The fit decides what each costs. */
static const double cache_bytes[] = {32 << 10, 1 << 20, 8 << 20};
enum { N_CACHE = sizeof cache_bytes / sizeof *cache_bytes };

/* f32 numbers of a vector of the device; 1 = not known. */
static double vector_lanes(const char *device)
{
    static const struct {
        const char *prefix;
        double lanes;
    } vectors[] = {{"cpu:avx512", 16}, {"cpu:avx", 8}, {"cpu:sse", 4}};
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        if (strncmp(device, vectors[i].prefix, strlen(vectors[i].prefix)) == 0) return vectors[i].lanes;
    return 1;
}

/* The text after " name=", up to the next blank; its length 0 = there is none. */
static size_t find_field(const char **value, const char *text, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = strchr(text, ' '); at; at = strchr(at + 1, ' '))
        if (strncmp(at + 1, name, n) == 0 && at[n + 1] == '=') {
            *value = at + n + 2;
            return strcspn(*value, " ");
        }
    return 0;
}

static double number_of_field(const char *text, const char *name)
{
    const char *value = NULL;
    return find_field(&value, text, name) ? tandem_plain_read(value, NULL) : 0;
}

/* Attributes that are no sizes choose another kernel. */
static int variant_of_attributes(const char *signature)
{
    static const char *const attribute[] = {"tb", "accumulate", "causal", "axes", "f", "tied"};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof attribute / sizeof *attribute; i++) {
        const char *value = NULL;
        const size_t n = find_field(&value, signature, attribute[i]);
        for (size_t k = 0; k < n; k++) hash = hash * 31 + (unsigned char)value[k] + i;
    }
    return (int)(hash % 1000003);
}

static int is_multiple(double a, double b, double of) { return fmod(a, of) == 0 && fmod(b, of) == 0; }

/* Kernels differ by window, and by channels that fill vectors: Winograd's algorithm takes both
 * (isa/winograd.c of the CPU backend). */
static int variant_of_convolution(const tandem_convolution *v)
{
    const double taps = v->kernel_h * v->kernel_w, stride = v->stride_h * v->stride_w;
    const int window = stride > 1 ? 2 : taps > 1 ? (v->kernel_h == 3 && v->kernel_w == 3 ? 1 : 3) : 0;
    return 2 * window + is_multiple(v->channels_in, v->channels_out, 32);
}

static void set_product_terms(tandem_task_terms *terms, const tandem_work *w, double lanes)
{
    const double columns = ceil(w->n / lanes) * lanes, element = w->element_bytes;
    const double a = w->count * w->m * w->k * element, b = w->count * w->k * w->n * element,
                 c = w->count * w->m * w->n, result = fmax(1, w->bytes - a - b);
    const double term[TANDEM_N_TERM] = {1, w->flops * columns / w->n, a, b,
                                        w->work_class == TANDEM_WORK_CONVOLUTION ? c * element : result};
    memcpy(terms->term, term, sizeof term);
}

/* Half a width apart count sizes of which one fills vectors and the other does not. */
static double alignment(double a, double b)
{
    return is_multiple(a, b, 16) ? 0 : is_multiple(a, b, 8) ? 0.3 : is_multiple(a, b, 4) ? 0.6 : 0.9;
}

static void set_product_shape(tandem_task_terms *terms, const tandem_work *w)
{
    double *const s = terms->shape;
    s[0] = log(fmax(1, w->count)), s[1] = log(w->m), s[2] = log(w->k), s[3] = log(w->n);
    if (w->work_class != TANDEM_WORK_CONVOLUTION) {
        s[4] = alignment(w->n, w->k);
        return;
    }
    const tandem_convolution *const v = &w->convolution;
    s[4] = alignment(v->channels_in, v->channels_out);
    s[5] = log(v->kernel_h * v->kernel_w);
    s[6] = log(v->stride_h * v->stride_w);
    s[7] = 0.5 * log(fmax(1, v->height));
}

/* The last dimension of what it works on: of rows, channels, or a bias's period. */
static double columns_of_stream(const char *signature)
{
    static const char *const field[] = {"period", "row", "width", "c"};
    const char *value = NULL;
    if (find_field(&value, signature, "rows") && !find_field(&value, signature, "width"))
        return number_of_field(signature, "n");
    for (size_t i = 0; i < sizeof field / sizeof *field; i++)
        if (find_field(&value, signature, field[i])) return tandem_plain_read(value, NULL);
    if (strncmp(signature, "transpose ", 10) != 0) return 0;
    const size_t n = strcspn(signature + 10, " ");
    const char *last = signature + 10;
    for (size_t i = 0; i < n; i++)
        if (signature[10 + i] == 'x') last = signature + 10 + i + 1;
    return tandem_plain_read(last, NULL);
}

void tandem_task_terms_of(tandem_task_terms *terms, const tandem_work *work, const tandem_cost_key *key,
                          const char *device)
{
    *terms = (tandem_task_terms){.flops = work->flops, .bytes = work->bytes};
    if (work->is_product) {
        terms->variant = work->work_class == TANDEM_WORK_CONVOLUTION
                             ? variant_of_convolution(&work->convolution)
                             : variant_of_attributes(key->signature);
        set_product_terms(terms, work, vector_lanes(device));
        set_product_shape(terms, work);
        return;
    }
    const char *const signature = key->kind == TANDEM_COST_CAST ? "" : key->signature;
    const double columns = columns_of_stream(signature), bytes = work->bytes;
    terms->variant = variant_of_attributes(signature);
    terms->term[0] = 1;
    terms->term[1] = bytes;
    for (int i = 0; i < N_CACHE; i++) terms->term[2 + i] = fmax(0, bytes - cache_bytes[i]);
    terms->term[2 + N_CACHE] = columns > 0 ? bytes / columns : 0; /* rows */
    terms->shape[0] = 0.6 * log(bytes);
    terms->shape[1] = columns > 0 ? log(columns) : 0;
    terms->shape[2] = 0.7 * log(fmax(1, number_of_field(signature, "k")));
    terms->shape[3] = 0.7 * log(fmax(1, number_of_field(signature, "s")));
    terms->shape[4] = columns > 0 ? 1.5 * alignment(columns, columns) : 0;
    terms->shape[5] = log(fmax(1, number_of_field(signature, "parameters")));
}
