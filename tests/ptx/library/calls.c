/* calls.c: the table of calls, and what they share. */
#include "tests/ptx/library/calls.h"

#include <stdlib.h>
#include <string.h>

size_t device_narrow_elements = UINT32_MAX;

size_t call_size(tandem_cuda_float type) { return type == TANDEM_CUDA_F32 ? 4 : 2; }

double call_draw(call *c)
{
    c->drawn ^= c->drawn << 13;
    c->drawn ^= c->drawn >> 7;
    c->drawn ^= c->drawn << 17;
    return (double)(c->drawn >> 11) * 0x1p-52 - 1;
}

static void *new_array(call *c, size_t bytes, int is_written)
{
    if (c->n_array == CALL_MAX_ARRAYS) abort();
    return c->array[c->n_array++] = device_alloc(bytes, is_written);
}

void *call_array(call *c, size_t bytes) { return new_array(c, bytes, 0); }

void *call_copy(call *c, const void *from, size_t bytes)
{
    return memcpy(new_array(c, bytes, 1), from, bytes);
}

void *call_numbers(call *c, tandem_cuda_float type, size_t n, double largest)
{
    uint8_t *const at = new_array(c, n * call_size(type), 1);
    for (size_t i = 0; i < n; i++) {
        const float x = (float)(call_draw(c) * largest);
        const uint16_t half = type == TANDEM_CUDA_BF16 ? tandem_bf16_of(x) : tandem_f16_of(x);
        memcpy(at + i * call_size(type), type == TANDEM_CUDA_F32 ? (const void *)&x : &half, call_size(type));
    }
    return at;
}

/* Each has another payload. */
void call_put_nans(void *at, tandem_cuda_float type, size_t n)
{
    for (size_t i = 3; i < n; i += 16) {
        if (type == TANDEM_CUDA_F32)
            ((uint32_t *)at)[i] = 0xFFC12345u - (uint32_t)i;
        else
            ((uint16_t *)at)[i] = (uint16_t)((type == TANDEM_CUDA_BF16 ? 0xFFE1u : 0xFE11u) - i % 16);
    }
}

int32_t *call_integers(call *c, size_t n, double largest)
{
    int32_t *const at = new_array(c, n * sizeof *at, 1);
    for (size_t i = 0; i < n; i++) at[i] = (int32_t)(call_draw(c) * largest);
    return at;
}

void *call_result_array(call *c, tandem_cuda_float type, size_t n)
{
    return call_array(c, n * call_size(type));
}

/* --- Results -------------------------------------------------------------------------------------------- */

void call_check(call *c, int failed, const char *what)
{
    if (!failed) return;
    c->results->n_failed++;
    strncpy(c->results->failed, what, sizeof c->results->failed - 1);
}

static void add_result(call *c, const char *what, door_kind kind, tandem_cuda_float type, const void *at,
                       size_t bytes)
{
    door_results *const r = c->results;
    if (r->n == r->max) {
        r->max = r->max * 2 + 16;
        r->result = realloc(r->result, (size_t)r->max * sizeof *r->result);
        if (!r->result) abort();
    }
    door_result *const own = &r->result[r->n++];
    *own = (door_result){.kind = kind, .type = (int)type, .bytes = malloc(bytes + 1), .n = bytes};
    if (!own->bytes) abort();
    strncpy(own->what, what, sizeof own->what - 1);
    memcpy(own->bytes, at, bytes);
}

void call_bytes(call *c, const char *what, const void *at, size_t bytes)
{
    add_result(c, what, DOOR_BYTES, TANDEM_CUDA_F32, at, bytes);
}

void call_close_to(call *c, const char *what, tandem_cuda_float type, const void *at, size_t n)
{
    add_result(c, what, DOOR_NUMBERS, type, at, n * call_size(type));
}

void call_sums(call *c, const char *what, tandem_cuda_float type, const void *at, size_t n)
{
    add_result(c, what, DOOR_SUMS, type, at, n * call_size(type));
}

void call_codes(call *c, const char *what, const void *at, size_t n)
{
    add_result(c, what, DOOR_CODES, TANDEM_CUDA_F32, at, n);
}

/* --- The table ------------------------------------------------------------------------------------------ */

static const call_row *const files[] = {calls_of_rows,    calls_of_casts,     calls_of_columns,
                                        calls_of_layouts, calls_of_attention, calls_of_coded_results};

static const call_row *call_at(int number)
{
    for (size_t f = 0; f < sizeof files / sizeof *files; f++)
        for (const call_row *row = files[f]; row->name; row++)
            if (number-- == 0) return row;
    return NULL;
}

static const char *name_of_call(int number)
{
    const call_row *const row = call_at(number);
    return row ? row->name : NULL;
}

static void check_words(call *c)
{
    for (size_t t = 0; t < TANDEM_CUDA_TICKETS; t++)
        if (c->tickets[t]) {
            call_check(c, 1, "a ticket is left");
            break;
        }
    call_check(c, c->words[0] || c->words[1], "a word is left");
}

/* Long rows are few, so that no call takes much longer than another. */
static int make_call(int number, int type, size_t columns, door_results *results)
{
    static const uint32_t zeros[TANDEM_CUDA_TICKETS];
    const size_t rows = columns > 1500 ? 9 : columns > 300 ? 21 : 37;
    call c = {.type = (tandem_cuda_float)type, .columns = columns, .rows = rows, .n = rows * columns};
    c.drawn = (uint64_t)number * 1000003 + columns * 3 + (uint64_t)type + 88172645463325252;
    c.results = results;
    c.tickets = call_copy(&c, zeros, sizeof zeros);
    c.words = call_copy(&c, zeros, 2 * sizeof *zeros);
    call_at(number)->make(&c);
    check_words(&c);
    for (int a = 0; a < c.n_array; a++) device_free(c.array[a]);
    return !c.is_unsuited;
}

extern const ptx_door tests_ptx_door;
const ptx_door tests_ptx_door __attribute__((visibility("default"))) = {
    .open = device_open, .machine = device_machine, .call_name = name_of_call, .run = make_call};
