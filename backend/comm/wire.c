/* wire.c: packs floats into bf16 where they lie, and unpacks them. */
#include "backend/comm/wire.h"

static tandem_narrow_floats widen(tandem_narrow_halves h)
{
    return (tandem_narrow_floats)(__builtin_convertvector(h, tandem_narrow_words) << 16);
}

static tandem_narrow_halves narrow(tandem_narrow_floats x)
{
    return __builtin_convertvector(tandem_narrow_round((tandem_narrow_words)x) >> 16, tandem_narrow_halves);
}

static float widen_one(const char *packed, size_t i)
{
    uint16_t h;
    memcpy(&h, packed + 2 * i, sizeof h);
    const uint32_t bits = (uint32_t)h << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Ascending: number i is read at byte 4i before byte 2i is written. */
void tandem_narrow_pack(float *data, const void *more, size_t n, size_t n_narrow)
{
    char *const packed = (char *)data;
    const char *const added = more;
    const size_t n_lane = n_narrow / TANDEM_NARROW_LANES * TANDEM_NARROW_LANES,
                 rest = tandem_narrow_rest_at(n_narrow);
    for (size_t i = 0; i < n_lane; i += TANDEM_NARROW_LANES) {
        tandem_narrow_floats x = *(const tandem_narrow_floats *)(data + i);
        if (added) x += widen(*(const tandem_narrow_halves *)(const void *)(added + 2 * i));
        *(tandem_narrow_halves *)(void *)(packed + 2 * i) = narrow(x);
    }
    for (size_t i = n_lane; i < n_narrow; i++) {
        const float x = tandem_narrow_rounded(added ? data[i] + widen_one(added, i) : data[i]);
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        const uint16_t h = (uint16_t)(bits >> 16);
        memcpy(packed + 2 * i, &h, sizeof h);
    }
    for (size_t i = n_narrow; i < n; i++) {
        float x = data[i], other = 0;
        if (added) {
            memcpy(&other, added + rest + (i - n_narrow) * sizeof x, sizeof other);
            x += other;
        }
        memcpy(packed + rest + (i - n_narrow) * sizeof x, &x, sizeof x);
    }
}

/* Descending, from the rest down: byte 4i is written after byte 2i was read. */
void tandem_narrow_unpack(float *data, size_t n, size_t n_narrow)
{
    const char *const packed = (const char *)data;
    const size_t n_lane = n_narrow / TANDEM_NARROW_LANES * TANDEM_NARROW_LANES;
    memmove(data + n_narrow, packed + tandem_narrow_rest_at(n_narrow), (n - n_narrow) * sizeof *data);
    for (size_t i = n_narrow; i-- > n_lane;) data[i] = widen_one(packed, i);
    for (size_t i = n_lane; i > 0;) {
        i -= TANDEM_NARROW_LANES;
        const tandem_narrow_halves h = *(const tandem_narrow_halves *)(const void *)(packed + 2 * i);
        *(tandem_narrow_floats *)(data + i) = widen(h);
    }
}
