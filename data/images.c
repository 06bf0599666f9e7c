/* images.c: gives samples of images, whichever format they come from. */
#include "data/images.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "data/labels.h"
#include "data/little_endian.h"

/* How many a stored image has, also where a fit shows them otherwise. */
static int64_t stored_pixels(const tandem_data *data)
{
    return data->stored ? data->stored : (int64_t)data->height * data->width * data->channels;
}

/* Where a sample and its label are stored. Interleaved: samples 9, 19, … of all are those of the test. */
static int64_t stored_row(const tandem_data *data, int test, int64_t sample)
{
    const int64_t every = TANDEM_IMAGES_TEST_EVERY;
    if (!data->is_interleaved) return sample;
    return test ? every * sample + every - 1 : sample + sample / (every - 1);
}

static const uint8_t *stored_image(const tandem_data *data, int test, int64_t sample)
{
    const int64_t bytes = stored_pixels(data) * (data->is_f32 ? (int64_t)sizeof(float) : 1);
    return (test && !data->is_interleaved ? data->pixels_test : data->pixels_train) +
           stored_row(data, test, sample) * bytes;
}

static int32_t stored_label(const tandem_data *data, int test, int64_t sample)
{
    return tandem_data_label(data, test && !data->is_interleaved, stored_row(data, test, sample));
}

/* --- The training pixels -------------------------------------------------------------------------------- */

static void measure_bytes(tandem_data *data)
{
    uint64_t count[256] = {0};
    const int64_t n_pixel = stored_pixels(data);
    for (int64_t i = 0; i < data->n_train; i++) {
        const uint8_t *const pixel = stored_image(data, 0, i);
        for (int64_t k = 0; k < n_pixel; k++) count[pixel[k]]++;
    }
    const double n = (double)data->n_train * (double)n_pixel;
    double sum = 0, square = 0;
    for (int v = 0; v < 256; v++) sum += v * (double)count[v];
    for (int v = 0; v < 256; v++) square += (v - sum / n) * (v - sum / n) * (double)count[v];
    data->mean = (float)(sum / n / 255);
    data->deviation = square > 0 ? (float)(sqrt(square / n) / 255) : 1.0f;
}

/* The sum over the training part of (number − from) or, power 2, its square. */
static double sum_floats(const tandem_data *data, double from, int power)
{
    const int64_t n_pixel = stored_pixels(data);
    double sum = 0;
    for (int64_t i = 0; i < data->n_train; i++) {
        const uint8_t *const image = stored_image(data, 0, i);
        for (int64_t k = 0; k < n_pixel; k++) {
            const double d = (double)tandem_le_f32(image + 4 * k) - from;
            sum += power == 2 ? d * d : d;
        }
    }
    return sum;
}

static void measure_floats(tandem_data *data)
{
    const double n = (double)data->n_train * (double)stored_pixels(data), mean = sum_floats(data, 0, 1) / n,
                 deviation = sqrt(sum_floats(data, mean, 2) / n);
    data->mean = (float)mean;
    data->deviation = (float)deviation > 0 ? (float)deviation : 1.0f;
}

/* Of both parts: a test that is not finite has no loss. */
static tandem_status check_floats(const tandem_data *data, const char *path, tandem_error *error)
{
    const int64_t n_pixel = stored_pixels(data), n_sample[] = {data->n_train, data->n_test};
    for (int test = 0; test < 2; test++)
        for (int64_t i = 0; i < n_sample[test]; i++) {
            const uint8_t *const image = stored_image(data, test, i);
            for (int64_t k = 0; k < n_pixel; k++) {
                const double value = (double)tandem_le_f32(image + 4 * k);
                if (!isfinite(value))
                    return tandem_error_set(
                        error, TANDEM_MALFORMED,
                        "%s: number %lld of sample %lld is %g, allowed are finite ones. Remove "
                        "the sample, or replace the number.",
                        path, (long long)k, (long long)stored_row(data, test, i), value);
            }
        }
    return TANDEM_OK;
}

tandem_status tandem_images_measure(tandem_data *data, const char *path, tandem_error *error)
{
    const tandem_status status = data->is_f32 ? check_floats(data, path, error) : TANDEM_OK;
    if (status != TANDEM_OK) return status;
    if (data->is_f32)
        measure_floats(data);
    else
        measure_bytes(data);
    return TANDEM_OK;
}

/* --- Samples -------------------------------------------------------------------------------------------- */

/* Number i of a stored image, a byte's as it is. */
static float stored_number(const tandem_data *data, const uint8_t *image, int64_t i)
{
    return data->is_f32 ? tandem_le_f32(image + 4 * i) : (float)image[i];
}

static float normalise(const tandem_data *data, float number)
{
    return ((data->is_f32 ? number : number / 255.0f) - data->mean) / data->deviation;
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
                const int64_t at = i * axis[0].step + j * axis[1].step + k * axis[2].step;
                if (bytes)
                    bytes[n] = from[at];
                else
                    x[n] = normalise(data, stored_number(data, from, at));
            }
}

void tandem_data_read_image(const tandem_data *data, int test, int64_t sample, float *x, int32_t *label)
{
    const int64_t n = (int64_t)data->height * data->width * data->channels;
    const uint8_t *const pixels = stored_image(data, test, sample);
    if (data->is_reordered)
        read_ordered(data, pixels, NULL, x);
    else
        for (int64_t i = 0; i < n; i++) x[i] = normalise(data, stored_number(data, pixels, i));
    *label = stored_label(data, test, sample);
}

void tandem_data_read_pixels(const tandem_data *data, int64_t sample, uint8_t *pixels, int32_t *label)
{
    const size_t n = (size_t)data->height * (size_t)data->width * (size_t)data->channels;
    const uint8_t *const stored = stored_image(data, 0, sample);
    assert(!data->is_f32);
    if (data->is_reordered)
        read_ordered(data, stored, pixels, NULL);
    else
        memcpy(pixels, stored, n);
    *label = stored_label(data, 0, sample);
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
        const int64_t upper = y.first * w * c, lower = y.next * w * c;
        for (int64_t j = 0; j < width; j++) {
            const tandem_pixel_blend z = blend_at(j, width, w);
            for (int64_t k = 0; k < channels; k++) {
                const int64_t left = z.first * c + k % c, right = z.next * c + k % c;
                const float number =
                    interpolate(interpolate(stored_number(data, pixels, upper + left),
                                            stored_number(data, pixels, upper + right), z.weight),
                                interpolate(stored_number(data, pixels, lower + left),
                                            stored_number(data, pixels, lower + right), z.weight),
                                y.weight);
                *x++ = normalise(data, number);
            }
        }
    }
    *label = stored_label(data, test, sample);
}
