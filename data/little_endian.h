/* little_endian.h: numbers in files, least significant byte first, at any address. */
#pragma once

#include <stdint.h>
#include <string.h>

static inline uint16_t tandem_le16(const uint8_t *at) { return (uint16_t)(at[0] | at[1] << 8); }

static inline uint32_t tandem_le32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static inline uint64_t tandem_le64(const uint8_t *at)
{
    return (uint64_t)tandem_le32(at) | (uint64_t)tandem_le32(at + 4) << 32;
}

static inline float tandem_le_f32(const uint8_t *at)
{
    const uint32_t word = tandem_le32(at);
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

static inline void tandem_put_le16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}
