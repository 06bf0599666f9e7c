/* images.cu: images of a data set, from their bytes. CPU reference: tandem_data_read_resized
 * (data/idx.c). */
#include "kernels/cuda/launch.h"

static __device__ __forceinline__ const uint8_t *slot_of(const tandem_image_slots *s)
{
    return s->slots + (size_t)((*s->micro_index + s->micro) & 1) * s->slot_bytes;
}

static __device__ __forceinline__ float blend(float a, float b, float weight)
{
    return TANDEM_ADD(a, TANDEM_MUL(TANDEM_ADD(b, -a), weight));
}

/* A block writes a row of an image at a time. */
KERNEL images(float *__restrict__ x /* (rows, width, channels) */, unsigned rows, unsigned height,
              unsigned width, unsigned channels, const tandem_image_slots s)
{
    const uint8_t *const slot = slot_of(&s);
    const unsigned own = (unsigned)s.channels, across = width * channels;
    const size_t stride = (size_t)s.width * own;
    for (unsigned r = blockIdx.x; r < rows; r += gridDim.x) {
        const unsigned sample = r / height;
        const tandem_pixel_blend y = s.blend_of_row[r % height];
        const uint8_t *const image = slot + (size_t)sample * (size_t)s.height * stride,
                             *const upper = image + (size_t)y.first * stride,
                             *const lower = image + (size_t)y.next * stride;
        float *const to = x + (size_t)r * across;
        for (unsigned e = threadIdx.x; e < across; e += THREADS) {
            const unsigned k = e % channels % own;
            const tandem_pixel_blend z = s.blend_of_column[e / channels];
            const size_t left = (size_t)z.first * own + k, right = (size_t)z.next * own + k;
            const float pixel = blend(blend((float)upper[left], (float)upper[right], z.weight),
                                      blend((float)lower[left], (float)lower[right], z.weight), y.weight);
            to[e] = TANDEM_ADD(pixel / 255.0f, -s.mean) / s.deviation;
        }
    }
}

KERNEL image_labels(int32_t *__restrict__ label, size_t n, const tandem_image_slots s)
{
    const int32_t *const from = (const int32_t *)(const void *)(slot_of(&s) + s.label_offset);
    for (size_t k = first_item(); k < n; k += all_items()) label[k] = from[k];
}

extern "C" int tandem_cuda_images(float *x, size_t batch, unsigned height, unsigned width, unsigned channels,
                                  const tandem_image_slots *s, tandem_cuda_stream stream)
{
    const size_t rows = batch * height, max_blocks = 65536;
    if (rows >= UINT32_MAX - max_blocks) return (int)cudaErrorInvalidValue;
    const unsigned grid = (unsigned)(rows < max_blocks ? rows : max_blocks);
    return LAUNCH(images, grid, THREADS, stream, x, (unsigned)rows, height, width, channels, *s);
}

extern "C" int tandem_cuda_image_labels(int32_t *label, size_t n, const tandem_image_slots *s,
                                        tandem_cuda_stream stream)
{
    return LAUNCH(image_labels, grid_of(n), THREADS, stream, label, n, *s);
}
