#include "runtime/process/packet.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 4096 };

void packet_free(packet *p)
{
    free(p->bytes);
    *p = (packet){0};
}

void packet_begin_reading(packet *p)
{
    p->is_reading = 1;
    p->read = 0;
}

/* Room for so many bytes more. 0: no memory. */
static int reserve_packet(packet *p, size_t bytes)
{
    size_t capacity = p->capacity ? p->capacity : FIRST_CAPACITY;
    if (bytes > SIZE_MAX / 2 - p->n) return 0;
    while (capacity < p->n + bytes) capacity *= 2;
    unsigned char *const grown = capacity > p->capacity ? realloc(p->bytes, capacity) : p->bytes;
    if (!grown) return 0;
    p->bytes = grown;
    p->capacity = capacity;
    return 1;
}

/* The next bytes, which are then read or written; NULL: it has failed. */
static unsigned char *next_bytes(packet *p, size_t bytes)
{
    const int has_room =
        !p->has_failed && (p->is_reading ? bytes <= p->n - p->read : reserve_packet(p, bytes));
    size_t *const at = p->is_reading ? &p->read : &p->n;
    p->has_failed = !has_room;
    if (!has_room) return NULL;
    *at += bytes;
    return p->bytes + *at - bytes;
}

void packet_value(packet *p, void *value, size_t bytes)
{
    unsigned char *const at = next_bytes(p, bytes);
    if (!at || bytes == 0) return;
    if (p->is_reading)
        memcpy(value, at, bytes);
    else
        memcpy(at, value, bytes);
}

void packet_text(packet *p, const char **text)
{
    uint64_t bytes = !p->is_reading && *text ? strlen(*text) + 1 : 0;
    packet_value(p, &bytes, sizeof bytes);
    unsigned char *const at = next_bytes(p, p->has_failed ? 0 : (size_t)bytes);
    if (p->is_reading)
        *text = at && bytes && at[bytes - 1] == '\0' ? (const char *)at : NULL;
    else if (at && bytes)
        memcpy(at, *text, (size_t)bytes);
}

void packet_own_text(packet *p, char **text)
{
    const char *borrowed = *text;
    packet_text(p, &borrowed);
    if (!p->is_reading) return;
    *text = borrowed ? strdup(borrowed) : NULL;
    p->has_failed = p->has_failed || (borrowed && !*text);
}

void packet_array(packet *p, void *array, size_t n, size_t bytes)
{
    void *elements = NULL;
    memcpy(&elements, array, sizeof elements);
    uint64_t n_element = !p->is_reading && elements ? n : 0;
    packet_value(p, &n_element, sizeof n_element);
    if (p->is_reading) {
        const int is_whole = !p->has_failed && bytes && n_element <= (p->n - p->read) / bytes;
        elements = is_whole && n_element ? malloc((size_t)n_element * bytes) : NULL;
        p->has_failed = p->has_failed || !is_whole || (n_element && !elements);
        memcpy(array, &elements, sizeof elements);
    }
    if (!p->has_failed) packet_value(p, elements, (size_t)n_element * bytes);
}

void packet_borrowed(packet *p, const void **value, size_t bytes)
{
    uint64_t has_value = !p->is_reading && *value;
    packet_value(p, &has_value, sizeof has_value);
    unsigned char *const at = next_bytes(p, p->has_failed || !has_value ? 0 : bytes);
    if (p->is_reading)
        *value = at && has_value ? at : NULL;
    else if (at && has_value)
        memcpy(at, *value, bytes);
}
