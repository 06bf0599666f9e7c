/* conv3x3.c: convolutions of 3x3 windows in floats (tandem/kernels.h), as tandem's devices run them, by
 * Winograd's algorithm: checks what it gets, and runs the passes that are wanted. */
#include <inttypes.h>

#include "kernels/cpu/isa_kernels.h"

enum { CHANNELS = 32, SMALLEST_SIDE = 4 };

static int is_within(int64_t value, int64_t least) { return value >= least && value <= (int64_t)1 << 30; }

static int are_sizes(const tandem_conv3x3 *p)
{
    if (!is_within(p->images, 1) || !is_within(p->height, SMALLEST_SIDE) ||
        !is_within(p->width, SMALLEST_SIDE) || !is_within(p->channels, CHANNELS) ||
        !is_within(p->out, CHANNELS) || p->channels % CHANNELS != 0 || p->out % CHANNELS != 0)
        return 0;
    /* The largest number that is counted: transformed tiles of all images, or transformed weights; a tile of
     * 36 numbers covers 9 pixels or more, sides filled up. */
    const int64_t channels = p->channels > p->out ? p->channels : p->out;
    int64_t tiles = p->images, weights = channels;
    return !__builtin_mul_overflow(tiles, p->height + SMALLEST_SIDE, &tiles) &&
           !__builtin_mul_overflow(tiles, p->width + SMALLEST_SIDE, &tiles) &&
           !__builtin_mul_overflow(tiles, 64 * channels, &tiles) && tiles < INT64_MAX / 4 &&
           !__builtin_mul_overflow(weights, 64 * channels, &weights) && weights < INT64_MAX / 4;
}

/* The pass that makes y, or the gradient of x, or that of w, without its tensors. */
static tandem_winograd forward_pass(const tandem_conv3x3 *p)
{
    return (tandem_winograd){.n = p->images,
                             .height = p->height,
                             .width = p->width,
                             .from = p->channels,
                             .to = p->out,
                             .out_first = 1,
                             .from_bf16 = p->from == TANDEM_BF16,
                             .workspace = p->workspace};
}

static tandem_winograd image_gradient_pass(const tandem_conv3x3 *p)
{
    tandem_winograd pass = forward_pass(p);
    pass.from = p->out;
    pass.to = p->channels;
    pass.is_dgrad = 1;
    return pass;
}

static tandem_winograd weight_gradient_pass(const tandem_conv3x3 *p)
{
    tandem_winograd pass = forward_pass(p);
    pass.is_wgrad = 1;
    return pass;
}

size_t tandem_kernels_conv3x3_workspace(const tandem_kernels *kernels, const tandem_conv3x3 *shape)
{
    if (!kernels || !shape || !kernels->winograd || !are_sizes(shape)) return 0;
    const tandem_winograd pass[] = {forward_pass(shape), image_gradient_pass(shape),
                                    weight_gradient_pass(shape)};
    size_t largest = 0;
    for (size_t i = 0; i < sizeof pass / sizeof *pass; i++) {
        const size_t bytes = kernels->winograd_workspace(&pass[i]);
        if (bytes > largest) largest = bytes;
    }
    return largest;
}

static tandem_status check_conv3x3(const tandem_kernels *kernels, const tandem_conv3x3 *p,
                                   size_t workspace_bytes, tandem_error *error)
{
    if (!kernels->winograd)
        return tandem_error_set(error, TANDEM_NO_KERNEL,
                                "conv3x3: '%s' has none; open avx512 or a newer instruction set",
                                kernels->isa);
    if (!are_sizes(p))
        return tandem_error_set(error, TANDEM_USAGE,
                                "conv3x3: %" PRId64 " images of %" PRId64 "x%" PRId64 "x%" PRId64
                                " and %" PRId64
                                " results are no sizes; images are 4x4 and more, channels and "
                                "results multiples of 32",
                                p->images, p->height, p->width, p->channels, p->out);
    if (p->from != TANDEM_F32 && p->from != TANDEM_BF16)
        return tandem_error_set(error, TANDEM_USAGE, "conv3x3: `from` is %d; allowed: f32, bf16",
                                (int)p->from);
    const char *missing = NULL;
    if (!p->x && (p->y || p->gw)) missing = "x";
    if (!p->w && (p->y || p->gx)) missing = "w";
    if (!p->g && (p->gx || p->gw)) missing = "g";
    if (missing) return tandem_error_set(error, TANDEM_USAGE, "conv3x3: %s is NULL", missing);
    const size_t needs = tandem_kernels_conv3x3_workspace(kernels, p);
    if (workspace_bytes < needs || !p->workspace || (uintptr_t)p->workspace % 64)
        return tandem_error_set(error, TANDEM_USAGE,
                                "conv3x3: a workspace of %zu bytes, 64-byte aligned, is needed; got %zu",
                                needs, p->workspace ? workspace_bytes : 0);
    return TANDEM_OK;
}

static void run_pass(const tandem_kernels *kernels, tandem_winograd pass, const void *x, const void *w,
                     float *y)
{
    if (!y) return;
    pass.x = x;
    pass.w = w;
    pass.y = y;
    kernels->winograd(&pass);
}

tandem_status tandem_kernels_conv3x3(const tandem_kernels *kernels, const tandem_conv3x3 *pass,
                                     size_t workspace_bytes, tandem_error *error)
{
    if (!kernels || !pass)
        return tandem_error_set(error, TANDEM_USAGE, "conv3x3: %s is NULL", kernels ? "the pass" : "kernels");
    const tandem_status status = check_conv3x3(kernels, pass, workspace_bytes, error);
    if (status != TANDEM_OK) return status;
    run_pass(kernels, forward_pass(pass), pass->x, pass->w, pass->y);
    run_pass(kernels, image_gradient_pass(pass), pass->g, pass->w, pass->gx);
    run_pass(kernels, weight_gradient_pass(pass), pass->x, pass->g, pass->gw);
    return TANDEM_OK;
}
