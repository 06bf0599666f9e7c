#include "tests/support/draw.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct source {
    const uint8_t *bytes;
    size_t left;
} source;

static unsigned byte(source *s)
{
    if (!s->left) return 0;
    s->left--;
    return *s->bytes++;
}

static unsigned below_source(source *s, unsigned n) { return (byte(s) | byte(s) << 8) % n; }

/* From least to most: an end, or anything between, small numbers as often as large ones. */
static int64_t number(source *s, int64_t least, int64_t most)
{
    switch (byte(s) % 8) {
    case 0: return least;
    case 1: return most;
    default: break;
    }
    const double share = below_source(s, 10001) / 10000.0;
    const int64_t drawn = least + (int64_t)(pow((double)(most - least) + 1, share) - 1);
    return drawn < most ? drawn : most;
}

static int64_t source_value(source *s, const tandem_model_option *option)
{
    if (strcmp(option->name, "image") != 0) return number(s, option->min_value, option->max_value);
    int64_t image = 0; /* three numbers in one, the channels last */
    for (int shift = 32; shift >= 0; shift -= 16)
        image |= number(s, option->min_value >> shift & 0xffff, option->max_value >> shift & 0xffff) << shift;
    return image;
}

static void draw_model(tandem_drawn *d, source *s)
{
    const tandem_model *model = tandem_model_get((int)below_source(s, (unsigned)tandem_model_count()));
    size_t used = (size_t)snprintf(d->model, sizeof d->model, "%s", model->name);
    char separator = ':', text[TANDEM_MODEL_VALUE_TEXT];
    for (const tandem_model_option *o = model->option; o->name; o++) {
        if (byte(s) % 2) continue;
        used += (size_t)snprintf(d->model + used, sizeof d->model - used, "%c%s=%s", separator, o->name,
                                 tandem_model_value_print(text, o, source_value(s, o)));
        separator = ',';
    }
    assert(used < sizeof d->model);
    d->submission.model = d->model;
}

static void put_type(char *out, size_t room, int device)
{
    (void)snprintf(out, room, "%s", tandem_device_get(device)->name);
    for (; *out; out++)
        if (*out == ':') *out = '_';
}

/* A list of resources: of cards, or as many of nothing as fit. */
static void draw_resources(char list[1024], source *s)
{
    const unsigned kind = byte(s) % 4, n_device = (unsigned)tandem_device_count();
    const unsigned n = kind == 0 ? 0 : kind == 1 ? 1 : 1 + below_source(s, n_device);
    size_t used = 0;
    list[0] = '\0';
    for (unsigned k = 0; k < n; k++) {
        char type[TANDEM_DEVICE_NAME];
        put_type(type, sizeof type, (int)below_source(s, n_device));
        used += (size_t)snprintf(list + used, 1024 - used, "%sgpu:%s:1", k ? "," : "", type);
    }
    const unsigned filler = byte(s) % 8;
    if (filler == 1)
        while (used + 3 < 1024) used += (size_t)snprintf(list + used, 1024 - used, ",n");
    if (filler == 2) /* a type that nothing is known of, as long as names are compared */
        (void)snprintf(list + used, 1024 - used, "%sgpu:%.60s", used ? "," : "",
                       "cpu_avx512_bf16_cpu_avx512_bf16_cpu_avx512_bf16_cpu_avx512_bf16");
}

static void draw_features(tandem_drawn *d, source *s)
{
    static const char *const some[] = {"cpu_sse41", "cpu_avx2", "cpu_avx512", "cpu_avx512_bf16"};
    size_t used = 0;
    d->features[0] = '\0';
    for (unsigned k = byte(s) % 4; k > 0; k--)
        used += (size_t)snprintf(d->features + used, sizeof d->features - used, "%s&", some[byte(s) % 4]);
    if (byte(s) % 8 == 1)
        while (used + 3 < sizeof d->features)
            used += (size_t)snprintf(d->features + used, sizeof d->features - used, "x&");
    d->submission.features = d->features;
}

void tandem_draw_submission(tandem_drawn *d, const uint8_t *bytes, size_t n)
{
    static const char *const memory[] = {NULL, "1B", "900TiB", "16GB"};
    source s = {bytes, n};
    d->submission = (tandem_submission){0};
    draw_model(d, &s);
    if (byte(&s) % 4) {
        (void)snprintf(d->batch, sizeof d->batch, "%" PRId64, number(&s, 1, 1 << 20));
        d->submission.batch = d->batch;
    }
    const unsigned kind = byte(&s) % 8;
    if (kind < 4) {
        d->submission.memory = memory[kind];
    } else {
        (void)snprintf(d->memory, sizeof d->memory, "%" PRId64 "MiB", number(&s, 1, (int64_t)1 << 30));
        d->submission.memory = d->memory;
    }
    const unsigned lists = byte(&s) % 8;
    for (unsigned k = 0; k < 4; k++) {
        if (k > 0 && !(lists >> (k - 1) & 1)) continue;
        draw_resources(d->resources[k], &s);
        d->submission.resources[k] = d->resources[k];
    }
    draw_features(d, &s);
    if (byte(&s) % 2) d->submission.task_memory_bytes = (uint64_t)number(&s, 1, (int64_t)1 << 50);
}

char *tandem_draw_site(void)
{
    const int n_device = tandem_device_count();
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    assert(out);
    for (int k = 0; k < TANDEM_SITE_MAX_ROW; k++)
        (void)fprintf(out, "feature some_feature_of_this_site_whose_name_is_rather_long_%03d %s\n", k,
                      tandem_device_get(0)->name);
    for (int k = 0; k < TANDEM_SITE_MAX_ROW - n_device; k++)
        (void)fprintf(out, "gres gpu:some_card_of_this_site_whose_name_is_rather_long_%05d %s\n", k,
                      tandem_device_get(0)->name);
    for (int k = 0; k < n_device; k++) {
        char type[TANDEM_DEVICE_NAME];
        put_type(type, sizeof type, k);
        (void)fprintf(out, "gres gpu:%s %s\n", type, tandem_device_get(k)->name);
    }
    (void)fclose(out);
    return text;
}

/* Cut where it is long. */
static size_t print_option(char *text, size_t used, const char *name, const char *value)
{
    const int is_long = strlen(value) > 150;
    return used +
           (size_t)snprintf(text + used, 2048 - used, " --%s=%.*s%s", name, 150, value, is_long ? "…" : "");
}

void tandem_drawn_print(char text[2048], const tandem_drawn *d)
{
    const tandem_submission *s = &d->submission;
    size_t used = (size_t)snprintf(text, 2048, "--tandem-model=%s", s->model);
    if (s->batch) used = print_option(text, used, "tandem-batch", s->batch);
    if (s->memory) used = print_option(text, used, "tandem-memory", s->memory);
    for (int k = 0; k < 4; k++)
        if (s->resources[k] && *s->resources[k]) used = print_option(text, used, "gres", s->resources[k]);
    if (*s->features) used = print_option(text, used, "constraint", s->features);
    if (s->task_memory_bytes)
        (void)snprintf(text + used, 2048 - used, " (%" PRIu64 " B a task)", s->task_memory_bytes);
}
