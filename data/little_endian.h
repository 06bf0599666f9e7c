/* little_endian.h: numbers in files, least significant byte first, at any address. */
#pragma once

#include <stdint.h>

static inline uint16_t tandem_le16(const uint8_t *at) { return (uint16_t)(at[0] | at[1] << 8); }

static inline uint32_t tandem_le32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}
