/* packet.h: bytes between a process that makes a request and the ranks that it starts: one function per type
 * of value, which writes it or reads it, so that both sides agree. Both are of the same build. */
#pragma once

#include <stddef.h>

/* All zero: an empty one, to write. */
typedef struct packet {
    unsigned char *bytes;
    size_t n, capacity; /* bytes, and how many have room */
    size_t read;        /* so many of them */
    int is_reading;
    int has_failed; /* no memory, or fewer bytes than are read: what follows changes nothing */
} packet;

void packet_free(packet *p);
/* From the first byte on. */
void packet_begin_reading(packet *p);

void packet_value(packet *p, void *value, size_t bytes);
/* A string or NULL. What is read lives as long as the packet. */
void packet_text(packet *p, const char **text);
/* The same; what is read belongs to the caller. */
void packet_own_text(packet *p, char **text);
/* An array of n elements or NULL, of which `array` is the address of the pointer. What is read belongs to the
 * caller. */
void packet_array(packet *p, void *array, size_t n, size_t bytes);
/* A value or NULL. What is read lives as long as the packet. */
void packet_borrowed(packet *p, const void **value, size_t bytes);
