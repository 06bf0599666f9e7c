/* weight_gradient_amx.c: the bf16 gradient of a convolution's weight in the tile registers of AMX, for the
 * table avx512_amx. Other calls go to weight_gradient.c.
 *
 * Per tap it is (channels of x, places)·(places, channels of the result). A block of places is packed twice:
 *
 *     uint16_t x[phase][32 channels][places]     transposed, of up to 128 channels at a time
 *     uint16_t g[32 channels][places / 2][…]     pairs of places, as tiles of B want them
 *
 * All taps read the same packed x, each from another place on: places lie on a grid that is as wide as a row
 * of the result and the taps to its right, and the gradient is zero where the result has no such place. With
 * a stride, x is sampled: pixels whose row and column leave the same remainders make a phase, and each tap
 * reads one phase. 32 by 32 sums stay in registers over the places of a block. The order of the sums depends
 * on the shapes alone. An infinity in x may become a NaN in the sums of its row, as in Winograd's algorithm.
 */
#include <string.h>

#include "kernels/cpu/isa/amx.h"

#if defined __AVX512VNNI__

#include "kernels/cpu/isa/transpose_lanes.h"

#define AMX __attribute__((target("amx-tile,amx-bf16")))

enum {
    SIDE = 16,             /* rows of a tile */
    STEP = 32,             /* places that are multiplied together */
    PANEL = 32,            /* channels: two tiles */
    LINE = 64,             /* bytes of a row of a tile */
    MIN_PLACES = 256,      /* of a block */
    MAX_PLACES = 1024,     /* whose 32 channels stay in the first caches */
    BLOCK_BYTES = 1 << 20, /* of the packed gradient, which stays in the second cache */
    GROUP = 4,             /* panels of x that are packed together, of whole lines and pages of memory */
    STEP_ELEMENTS = STEP * PANEL
};

typedef tandem_weight_gradient wgrad_call;

static int64_t smaller_place(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t whole_steps(int64_t places) { return (places + STEP - 1) / STEP; }

/* How the places of a call are divided. A strip is some rows of one image of the result, or of all images
 * where no tap reaches into a neighbouring place; a block is some strips. */
typedef struct wgrad_grid {
    int64_t images, rows;       /* of the result */
    int64_t halo_y, halo_x;     /* sampled rows and columns of x beyond those of the result */
    int64_t phases_y, phases_x; /* of x */
    int64_t width;              /* of a row of the grid */
    int64_t strip_rows, strips; /* of a block */
    int64_t steps;              /* of a strip, of the gradient */
    int64_t strip_places;       /* of x: what its last tap reads, in whole steps */
    int64_t row;                /* elements from a channel of the packed x to the next */
} wgrad_grid;

static wgrad_grid plan_wgrad_grid(const wgrad_call *g)
{
    wgrad_grid grid = {.images = g->n, .rows = g->out_height};
    grid.halo_y = (g->kernel_h - 1) / g->stride;
    grid.halo_x = (g->kernel_w - 1) / g->stride;
    grid.phases_y = smaller_place(g->stride, g->kernel_h);
    grid.phases_x = smaller_place(g->stride, g->kernel_w);
    grid.width = g->out_width + grid.halo_x;
    if (grid.halo_y == 0 && grid.halo_x == 0) {
        grid.images = 1;
        grid.rows = g->n * g->out_height;
    }
    int64_t places = BLOCK_BYTES / (g->to * (int64_t)sizeof(uint16_t));
    places = places < MIN_PLACES ? MIN_PLACES : smaller_place(places, MAX_PLACES);
    const int64_t rows = places / grid.width;
    grid.strip_rows = smaller_place(grid.rows, rows > 0 ? rows : 1);
    grid.steps = whole_steps(grid.strip_rows * grid.width);
    const int64_t strips = grid.strip_rows == grid.rows ? places / (grid.steps * STEP) : 1;
    grid.strips = smaller_place(grid.images, strips > 0 ? strips : 1);
    grid.strip_places = whole_steps(grid.steps * STEP + grid.halo_y * grid.width + grid.halo_x) * STEP;
    grid.row = grid.strips * grid.strip_places;
    if (grid.row / STEP % 2 == 0) grid.row += STEP; /* rows of a tile lie in different sets of the cache */
    return grid;
}

/* Of a panel of x, in all its phases. */
static int64_t packed_x_elements(const wgrad_grid *grid)
{
    return grid->phases_y * grid->phases_x * PANEL * grid->row;
}

static int64_t group_panels(const wgrad_call *g) { return smaller_place(g->from / PANEL, GROUP); }

size_t ISA(weight_gradient_amx_workspace)(const wgrad_call *g)
{
    if (!g->is_bf16) return ISA(weight_gradient_workspace)(g);
    const wgrad_grid grid = plan_wgrad_grid(g);
    const int64_t gradient = g->to * grid.strips * grid.steps * STEP;
    return (size_t)(group_panels(g) * packed_x_elements(&grid) + gradient) * sizeof(uint16_t);
}

/* --- Packing -------------------------------------------------------------------------------------------- */

/* A block: strips from `image` on, each of `rows` rows from `row` on. */
typedef struct wgrad_block {
    int64_t image, strips, row, rows;
} wgrad_block;

static inline __m512i load_channels(const uint16_t *pixel)
{
    return pixel ? _mm512_loadu_si512(pixel) : _mm512_setzero_si512();
}

/* The channels of the gradient at STEP places of a strip's grid, from place `place` on; NULL is zeros. */
static void gradient_places(const uint16_t *pixel[STEP], const wgrad_call *g, const wgrad_grid *grid,
                            const wgrad_block *block, int64_t image, int64_t place)
{
    int64_t row = place / grid->width, column = place % grid->width;
    for (int i = 0; i < STEP; i++) {
        const int64_t at = (image * grid->rows + block->row + row) * g->out_width + column;
        pixel[i] =
            row < block->rows && column < g->out_width ? (const uint16_t *)g->gradient + at * g->to : NULL;
        if (++column == grid->width) column = 0, row++;
    }
}

/* The channels of x at STEP places of a phase's grid. */
static void image_places(const uint16_t *pixel[STEP], const wgrad_call *g, const wgrad_grid *grid,
                         const wgrad_block *block, int64_t image, int64_t phase, int64_t place)
{
    int64_t row = place / grid->width, column = place % grid->width;
    for (int i = 0; i < STEP; i++) {
        const int64_t of_all = block->row + row;
        const int64_t one = grid->images == g->n ? image : of_all / g->out_height;
        const int64_t in_image = grid->images == g->n ? of_all : of_all % g->out_height;
        const int64_t y = in_image * g->stride + phase / grid->phases_x - g->pad,
                      x = column * g->stride + phase % grid->phases_x - g->pad;
        const int is_inside =
            row < block->rows + grid->halo_y && y >= 0 && y < g->height && x >= 0 && x < g->width;
        pixel[i] =
            is_inside ? (const uint16_t *)g->x + ((one * g->height + y) * g->width + x) * g->from : NULL;
        if (++column == grid->width) column = 0, row++;
    }
}

/* Channels `begin` to `end` of a block's gradient. */
static void pack_gradient(uint16_t *to, const wgrad_call *g, const wgrad_grid *grid, const wgrad_block *block,
                          int64_t begin, int64_t end)
{
    const __m512i lower = words_in_turns(0), upper = words_in_turns(SIDE);
    const int64_t panel = block->strips * grid->steps * STEP_ELEMENTS;
    for (int64_t strip = 0; strip < block->strips; strip++)
        for (int64_t step = 0; step < grid->steps; step++) {
            const uint16_t *pixel[STEP];
            gradient_places(pixel, g, grid, block, block->image + strip, step * STEP);
            uint16_t *at = to + (strip * grid->steps + step) * STEP_ELEMENTS;
            for (int64_t channel = begin; channel < end; channel += PANEL, at += panel)
                for (int pair = 0; pair < SIDE; pair++) {
                    const uint16_t *const first = pixel[2 * pair], *const second = pixel[2 * pair + 1];
                    const __m512i a = load_channels(first ? first + channel : NULL),
                                  b = load_channels(second ? second + channel : NULL);
                    _mm512_storeu_si512(at + pair * PANEL, _mm512_permutex2var_epi16(a, lower, b));
                    _mm512_storeu_si512(at + (SIDE + pair) * PANEL, _mm512_permutex2var_epi16(a, upper, b));
                }
        }
}

/* `panels` of channels from `channel` on, each channel's places side by side. */
static void pack_image(uint16_t *to, const wgrad_call *g, const wgrad_grid *grid, const wgrad_block *block,
                       int64_t channel, int64_t panels)
{
    const int64_t phases = grid->phases_y * grid->phases_x;
    for (int64_t phase = 0; phase < phases; phase++)
        for (int64_t strip = 0; strip < block->strips; strip++)
            for (int64_t place = 0; place < grid->strip_places; place += STEP) {
                const uint16_t *pixel[STEP];
                uint16_t *at = to + phase * PANEL * grid->row + strip * grid->strip_places + place;
                image_places(pixel, g, grid, block, block->image + strip, phase, place);
                for (int64_t panel = 0; panel < panels; panel++, at += packed_x_elements(grid)) {
                    __m512i channels[STEP];
                    for (int i = 0; i < STEP; i++)
                        channels[i] = load_channels(pixel[i] ? pixel[i] + channel + panel * PANEL : NULL);
                    transpose_words_32x32(at, grid->row, channels);
                }
            }
}

/* --- Products ------------------------------------------------------------------------------------------- */

/* 32 by 32 sums in c, rows of `width`, over the places of a block. Those of `next` are asked for meanwhile,
 * two rows a step, because tile loads and stores wait for each line of memory. */
AMX static void multiply_places(float *c, const float *next, int64_t width, const uint16_t *a,
                                const uint16_t *b, const wgrad_grid *grid, int64_t strips, int accumulate)
{
    int64_t fetched = 0; /* rows of `next` */
    const size_t c_row = (size_t)width * sizeof *c, a_row = (size_t)grid->row * sizeof *a;
    __asm__ volatile("" ::: "memory"); /* what was packed is in memory before tiles load it */
    begin_tile_sums(c, c_row, accumulate);
    for (int64_t strip = 0; strip < strips; strip++) {
        const uint16_t *at = a + strip * grid->strip_places;
        for (int64_t step = 0; step < grid->steps; step++, at += STEP, b += STEP_ELEMENTS) {
            _mm_prefetch((const char *)(next + fetched * width), _MM_HINT_T1);
            _mm_prefetch((const char *)(next + fetched * width + SIDE), _MM_HINT_T1);
            _mm_prefetch((const char *)(next + (fetched + 1) * width), _MM_HINT_T1);
            _mm_prefetch((const char *)(next + (fetched + 1) * width + SIDE), _MM_HINT_T1);
            fetched = (fetched + 2) % PANEL;
            _tile_loadd(4, at, a_row);
            _tile_loadd(6, b, LINE);
            _tile_dpbf16ps(0, 4, 6);
            _tile_loadd(7, b + SIDE * PANEL, LINE);
            _tile_dpbf16ps(1, 4, 7);
            _tile_loadd(5, at + SIDE * grid->row, a_row);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    store_tile_sums(c, c_row);
}

/* The channels of a call. */
typedef struct wgrad_channels {
    int64_t from_begin, from_end, to_begin, to_end;
} wgrad_channels;

/* All taps of a panel of x, from `channel` on. */
static void add_panel(const wgrad_call *g, const wgrad_grid *grid, const wgrad_block *block,
                      const wgrad_channels *channels, int64_t channel, const uint16_t *x,
                      const uint16_t *gradient, int accumulate)
{
    for (int64_t to = channels->to_begin; to < channels->to_end; to += PANEL) {
        for (int64_t tap = 0; tap < g->kernel_h * g->kernel_w; tap++) {
            const int64_t down = tap / g->kernel_w, across = tap % g->kernel_w;
            const int64_t phase = down % g->stride * grid->phases_x + across % g->stride;
            const int64_t place = down / g->stride * grid->width + across / g->stride;
            float *const sums = g->y + (tap * g->from + channel) * g->to + to;
            const float *const next = tap + 1 < g->kernel_h * g->kernel_w ? sums + g->from * g->to
                                      : to + PANEL < channels->to_end ? g->y + channel * g->to + to + PANEL
                                                                      : sums;
            multiply_places(sums, next, g->to, x + phase * PANEL * grid->row + place, gradient, grid,
                            block->strips, accumulate);
        }
        gradient += block->strips * grid->steps * STEP_ELEMENTS;
    }
}

static void add_block(const wgrad_call *g, const wgrad_grid *grid, const wgrad_block *block,
                      const wgrad_channels *channels, int accumulate)
{
    uint16_t *const x = (uint16_t *)(void *)g->workspace, *const gradient =
                                                              x + group_panels(g) * packed_x_elements(grid);
    pack_gradient(gradient, g, grid, block, channels->to_begin, channels->to_end);
    for (int64_t channel = channels->from_begin; channel < channels->from_end; channel += GROUP * PANEL) {
        const int64_t panels = smaller_place((channels->from_end - channel) / PANEL, GROUP);
        pack_image(x, g, grid, block, channel, panels);
        for (int64_t panel = 0; panel < panels; panel++)
            add_panel(g, grid, block, channels, channel + panel * PANEL, x + panel * packed_x_elements(grid),
                      gradient, accumulate);
    }
}

AMX void ISA(weight_gradient_amx)(const wgrad_call *g)
{
    if (!g->is_bf16) {
        ISA(weight_gradient)(g);
        return;
    }
    const wgrad_grid grid = plan_wgrad_grid(g);
    const wgrad_channels channels = {g->from_begin, g->from_end > 0 ? g->from_end : g->from, g->to_begin,
                                     g->to_end > 0 ? g->to_end : g->to};
    _tile_loadconfig(&whole_tiles);
    for (int64_t image = 0; image < grid.images; image += grid.strips)
        for (int64_t row = 0; row < grid.rows; row += grid.strip_rows) {
            const wgrad_block block = {.image = image,
                                       .strips = smaller_place(grid.strips, grid.images - image),
                                       .row = row,
                                       .rows = smaller_place(grid.strip_rows, grid.rows - row)};
            add_block(g, &grid, &block, &channels, image > 0 || row > 0);
        }
    _tile_release();
}

#endif
