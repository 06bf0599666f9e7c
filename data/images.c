/* images.c: gives samples of images, whichever format they come from. */
#include "data/images.h"

#include <assert.h>
#include <math.h>
#include <string.h>

void tandem_images_measure(tandem_data *data, const uint8_t *pixel, size_t n_pixel)
{
    uint64_t count[256] = {0};
    for (size_t i = 0; i < n_pixel; i++) count[pixel[i]]++;
    const double n = (double)n_pixel;
    double sum = 0, square = 0;
    for (int v = 0; v < 256; v++) sum += v * (double)count[v];
    for (int v = 0; v < 256; v++) square += (v - sum / n) * (v - sum / n) * (double)count[v];
    data->mean = (float)(sum / n / 255);
    data->deviation = square > 0 ? (float)(sqrt(square / n) / 255) : 1.0f;
}

/* How many a stored image has, also where a fit shows them otherwise. */
static int64_t stored_pixels(const tandem_data *data)
{
    return data->stored ? data->stored : (int64_t)data->height * data->width * data->channels;
}

static const uint8_t *stored_image(const tandem_data *data, int test, int64_t sample)
{
    return (test ? data->pixels_test : data->pixels_train) + sample * stored_pixels(data);
}

static float normalise(const tandem_data *data, uint8_t pixel)
{
    return ((float)pixel / 255.0f - data->mean) / data->deviation;
}

/* In the order that data_fit of backend.h found: bytes or, where they are NULL, normalised numbers. */
static void read_ordered(const tandem_data *data, const uint8_t *from, uint8_t *bytes, float *x)
{
    const tandem_data_axis *const axis = data->axis;
    int64_t n = 0;
    assert(bytes || x);
    for (int64_t i = 0; i < axis[0].n; i++)
        for (int64_t j = 0; j < axis[1].n; j++)
            for (int64_t k = 0; k < axis[2].n; k++, n++) {
                const uint8_t pixel = from[i * axis[0].step + j * axis[1].step + k * axis[2].step];
                if (bytes)
                    bytes[n] = pixel;
                else
                    x[n] = normalise(data, pixel);
            }
}

void tandem_data_read_image(const tandem_data *data, int test, int64_t sample, float *x, int32_t *label)
{
    const int64_t n = (int64_t)data->height * data->width * data->channels;
    const uint8_t *const pixels = stored_image(data, test, sample);
    if (data->is_reordered)
        read_ordered(data, pixels, NULL, x);
    else
        for (int64_t i = 0; i < n; i++) x[i] = normalise(data, pixels[i]);
    *label = (test ? data->labels_test : data->labels_train)[sample];
}

void tandem_data_read_pixels(const tandem_data *data, int64_t sample, uint8_t *pixels, int32_t *label)
{
    const size_t n = (size_t)data->height * (size_t)data->width * (size_t)data->channels;
    const uint8_t *const stored = stored_image(data, 0, sample);
    if (data->is_reordered)
        read_ordered(data, stored, pixels, NULL);
    else
        memcpy(pixels, stored, n);
    *label = data->labels_train[sample];
}

/* Where index i of `n` lies in a row of `size` pixels. An int holds it, because of the limit of a file. */
static tandem_pixel_blend blend_at(int64_t i, int64_t n, int64_t size)
{
    const double at = ((double)i + 0.5) * (double)size / (double)n - 0.5;
    const int32_t last = (int32_t)size - 1, first = at <= 0 ? 0 : (int32_t)at;
    if (at <= 0) return (tandem_pixel_blend){0, 0, 0};
    if (first >= last) return (tandem_pixel_blend){last, last, 0};
    return (tandem_pixel_blend){first, first + 1, (float)(at - (double)first)};
}

void tandem_data_blends(tandem_pixel_blend *blend, int64_t n, int64_t size)
{
    for (int64_t i = 0; i < n; i++) blend[i] = blend_at(i, n, size);
}

static float interpolate(float a, float b, float weight) { return a + (b - a) * weight; }

void tandem_data_read_resized(const tandem_data *data, int test, int64_t sample, int height, int width,
                              int channels, float *x, int32_t *label)
{
    const int64_t w = data->width, c = data->channels;
    const uint8_t *const pixels = stored_image(data, test, sample);
    for (int64_t i = 0; i < height; i++) {
        const tandem_pixel_blend y = blend_at(i, height, data->height);
        const uint8_t *const upper = pixels + y.first * w * c, *const lower = pixels + y.next * w * c;
        for (int64_t j = 0; j < width; j++) {
            const tandem_pixel_blend z = blend_at(j, width, w);
            for (int64_t k = 0; k < channels; k++) {
                const int64_t left = z.first * c + k % c, right = z.next * c + k % c;
                const float pixel =
                    interpolate(interpolate((float)upper[left], (float)upper[right], z.weight),
                                interpolate((float)lower[left], (float)lower[right], z.weight), y.weight);
                *x++ = (pixel / 255.0f - data->mean) / data->deviation;
            }
        }
    }
    *label = (test ? data->labels_test : data->labels_train)[sample];
}
