/* ptx_memory.c: loads, stores and atomics, and what is known of each byte: of shared memory, who used it
 * since which barrier; of arrays, what this launch has read and stored. */
#include <stdlib.h>

#include "tests/ptx/ptx_machine.h"

enum { MANY = -2 };

/* --- Shared memory -------------------------------------------------------------------------------------- */

/* Whether other warps have used a byte by an atomic since the last barrier. */
static int is_met_by_atomic(const ptx_warp *warp, const ptx_shared_byte *byte)
{
    return byte->atomic_epoch == warp->block->epoch && byte->atomic_warp != (int)warp->number;
}

/* The PTX ISA orders accesses of one warp's lanes only by barriers; a shuffle orders none. */
static void check_shared_load(ptx_machine *machine, const ptx_warp *warp, const ptx_instruction *i,
                              ptx_shared_byte *byte, int lane)
{
    const uint32_t epoch = warp->block->epoch;
    if (!byte->is_written) ptx_report(machine, PTX_SHARED_UNWRITTEN, i);
    if (is_met_by_atomic(warp, byte)) ptx_report(machine, PTX_SHARED_RACE, i);
    if (byte->write_epoch == epoch) {
        if (byte->write_warp != (int)warp->number)
            ptx_report(machine, PTX_SHARED_RACE, i);
        else if (byte->write_lane != lane && byte->write_sync == warp->sync)
            ptx_report(machine, PTX_LANE_EXCHANGE, i);
    }
    const int is_first = byte->read_epoch != epoch;
    byte->read_warp = (int16_t)(is_first || byte->read_warp == (int)warp->number ? (int)warp->number : MANY);
    const int is_alone = is_first || byte->read_sync != warp->sync || byte->read_lane == lane;
    byte->read_lane = (int8_t)(is_alone ? lane : MANY);
    byte->read_epoch = epoch;
    byte->read_sync = warp->sync;
}

static void check_shared_store(ptx_machine *machine, const ptx_warp *warp, const ptx_instruction *i,
                               ptx_shared_byte *byte, int lane)
{
    const uint32_t epoch = warp->block->epoch;
    const int own = (int)warp->number;
    if ((byte->write_epoch == epoch && byte->write_warp != own) ||
        (byte->read_epoch == epoch && byte->read_warp != own) || is_met_by_atomic(warp, byte))
        ptx_report(machine, PTX_SHARED_RACE, i);
    else if ((byte->write_epoch == epoch && byte->write_lane != lane && byte->write_sync == warp->sync) ||
             (byte->read_epoch == epoch && byte->read_lane != lane && byte->read_sync == warp->sync))
        ptx_report(machine, PTX_LANE_EXCHANGE, i);
    byte->write_epoch = epoch;
    byte->write_sync = warp->sync;
    byte->write_warp = (int16_t)own;
    byte->write_lane = (int8_t)lane;
    byte->is_written = 1;
}

/* An atomic races with other warps' plain accesses, but with no atomic. */
static void check_shared_atomic(ptx_machine *machine, const ptx_warp *warp, const ptx_instruction *i,
                                ptx_shared_byte *byte)
{
    const uint32_t epoch = warp->block->epoch;
    const int own = (int)warp->number, is_first = byte->atomic_epoch != epoch;
    if (!byte->is_written) ptx_report(machine, PTX_SHARED_UNWRITTEN, i);
    if ((byte->write_epoch == epoch && byte->write_warp != own) ||
        (byte->read_epoch == epoch && byte->read_warp != own))
        ptx_report(machine, PTX_SHARED_RACE, i);
    byte->atomic_warp = (int16_t)(is_first || byte->atomic_warp == own ? own : MANY);
    byte->atomic_epoch = epoch;
    byte->is_written = 1;
}

static int is_misaligned(ptx_machine *machine, const ptx_instruction *i, uint64_t at, unsigned bytes)
{
    if (at % bytes == 0) return 0;
    ptx_report(machine, PTX_ALIGNMENT, i);
    machine->has_stopped = 1;
    return 1;
}

uint8_t *ptx_shared(ptx_machine *machine, ptx_warp *warp, const ptx_instruction *i, uint64_t at,
                    unsigned bytes, int lane, int stores)
{
    ptx_block *const block = warp->block;
    const uint64_t all = (uint64_t)machine->now->shared_bytes;
    if (is_misaligned(machine, i, at, bytes)) return NULL;
    if (at >= all || at + bytes > all) {
        ptx_report(machine, PTX_SHARED_BOUNDS, i);
        machine->has_stopped = 1;
        return NULL;
    }
    for (unsigned b = 0; !machine->options.is_unaware && b < bytes; b++)
        if (stores)
            check_shared_store(machine, warp, i, &block->shadow[at + b], lane);
        else
            check_shared_load(machine, warp, i, &block->shadow[at + b], lane);
    return block->shared + at;
}

/* --- Arrays --------------------------------------------------------------------------------------------- */

void ptx_begin_launch(ptx_machine *machine)
{
    for (int k = 0; k < machine->n_array; k++) {
        ptx_array *const a = &machine->array[k];
        for (size_t b = a->first; b < a->last; b++) a->state[b] &= PTX_IS_WRITTEN;
        a->first = a->bytes;
        a->last = 0;
    }
    machine->has_stopped = 0;
    machine->begun = machine->executed;
    machine->fenced = ptx_must(calloc((size_t)machine->grid * PTX_LANES, sizeof *machine->fenced));
    machine->released = ptx_must(calloc(machine->grid, sizeof *machine->released));
    machine->releaser = ptx_must(calloc(machine->grid, 1));
}

void ptx_end_launch(ptx_machine *machine)
{
    free(machine->fenced);
    free(machine->released);
    free(machine->releaser);
}

static uint32_t time_now(const ptx_machine *machine)
{
    return (uint32_t)(machine->executed - machine->begun);
}

static uint32_t number_of_warp(const ptx_warp *warp)
{
    return warp->block->number * PTX_LANES + warp->number;
}

void ptx_fence(ptx_machine *machine, const ptx_warp *warp)
{
    machine->fenced[number_of_warp(warp)] = time_now(machine);
}

/* Whether a block knows what another one has stored: the writer executed a fence after the store,
 * and its block an atomic, which a barrier or one warp's order puts after the store; and this block executed
 * an atomic, too. Whether the fence came before the atomic is not looked at. */
static int is_published(const ptx_machine *machine, const ptx_block *block, const ptx_array *a, size_t b)
{
    const uint32_t writer = a->writer[b], other = writer / PTX_LANES, released = machine->released[other];
    if (other == block->number) return 1;
    const int is_own = a->epoch[b] == released && machine->releaser[other] == writer % PTX_LANES;
    return block->has_acquired && a->stored[b] <= machine->fenced[writer] &&
           (a->epoch[b] < released || is_own);
}

static ptx_array *array_around(ptx_machine *machine, uint64_t at)
{
    const uint8_t *const place = (const uint8_t *)(uintptr_t)at;
    int first = 0, end = machine->n_array;
    if (machine->last_array < end) {
        ptx_array *const a = &machine->array[machine->last_array];
        if (place >= a->at && place < a->at + a->bytes) return a;
    }
    while (first < end) {
        const int middle = (first + end) / 2;
        if (machine->array[middle].at + machine->array[middle].bytes <= place)
            first = middle + 1;
        else
            end = middle;
    }
    machine->last_array = first;
    return first < machine->n_array && machine->array[first].at <= place ? &machine->array[first] : NULL;
}

/* One byte that a block loads: from where no block has stored but itself, unless it has met the others by an
 * atomic. */
static void check_load(ptx_machine *machine, const ptx_block *block, const ptx_instruction *i, ptx_array *a,
                       size_t b)
{
    if (!(a->state[b] & PTX_IS_WRITTEN)) ptx_report(machine, PTX_GLOBAL_UNWRITTEN, i);
    if (a->state[b] & PTX_WAS_STORED) {
        if (i->is_read_only) ptx_report(machine, PTX_STALE_READ, i);
        if (!is_published(machine, block, a, b)) ptx_report(machine, PTX_BLOCK_RACE, i);
    }
    if (i->is_read_only) a->state[b] |= PTX_WAS_READ_ONLY;
}

static void check_store(ptx_machine *machine, const ptx_warp *warp, const ptx_instruction *i, ptx_array *a,
                        size_t b)
{
    if (a->state[b] & PTX_WAS_READ_ONLY) ptx_report(machine, PTX_STALE_READ, i);
    if (a->state[b] & PTX_WAS_STORED && !is_published(machine, warp->block, a, b))
        ptx_report(machine, PTX_BLOCK_RACE, i);
    a->state[b] |= PTX_IS_WRITTEN | PTX_WAS_STORED;
    a->writer[b] = number_of_warp(warp);
    a->stored[b] = time_now(machine);
    a->epoch[b] = warp->block->epoch;
}

static uint8_t *global(ptx_machine *machine, ptx_warp *warp, const ptx_instruction *i, uint64_t at,
                       unsigned bytes, int stores)
{
    if (is_misaligned(machine, i, at, bytes)) return NULL;
    ptx_array *const a = array_around(machine, at);
    const size_t first = a ? (size_t)(at - (uintptr_t)a->at) : 0;
    if (!a || bytes > a->bytes - first) {
        ptx_report(machine, PTX_GLOBAL_BOUNDS, i);
        machine->has_stopped = 1;
        return NULL;
    }
    if (machine->options.is_unaware) {
        if (stores) memset(a->state + first, PTX_IS_WRITTEN, bytes);
        return a->at + first;
    }
    if (first < a->first) a->first = first;
    if (first + bytes > a->last) a->last = first + bytes;
    for (size_t b = first; b < first + bytes; b++)
        if (stores)
            check_store(machine, warp, i, a, b);
        else
            check_load(machine, warp->block, i, a, b);
    return a->at + first;
}

/* --- Instructions --------------------------------------------------------------------------------------- */

static uint64_t address_of_lane(const ptx_machine *machine, const ptx_warp *warp, const ptx_instruction *i,
                                int lane)
{
    const uint32_t *const base = ptx_place(machine, warp, i->with[0]);
    if (i->is_shared) return (uint32_t)(base[lane] + (uint32_t)i->offset);
    return ptx_wide_lane(base, lane) + (uint64_t)i->offset;
}

/* Parameters by an address in a register, which counts from the first one. */
static uint8_t *parameter_at(ptx_machine *machine, const ptx_instruction *i, uint64_t at, unsigned bytes)
{
    const uint64_t all = (uint64_t)machine->now->parameter_bytes;
    if (is_misaligned(machine, i, at, bytes)) return NULL;
    if (at < all && bytes <= all - at) return machine->parameters + at;
    ptx_report(machine, PTX_GLOBAL_BOUNDS, i);
    machine->has_stopped = 1;
    return NULL;
}

/* The bytes of a lane, or NULL. */
static uint8_t *reach(ptx_machine *machine, ptx_warp *warp, const ptx_instruction *i, int lane, int stores)
{
    const uint64_t at = address_of_lane(machine, warp, i, lane);
    const unsigned bytes = i->type.bits / 8u * i->vector;
    if (i->operation == PTX_LOAD_PARAM_AT) return parameter_at(machine, i, at, bytes);
    return i->is_shared ? ptx_shared(machine, warp, i, at, bytes, lane, stores)
                        : global(machine, warp, i, at, bytes, stores);
}

static uint64_t extend(const ptx_instruction *i, uint64_t x)
{
    if (i->type.class == 's' && i->type.bits == 8) x = (uint64_t)(int64_t)(int8_t)x;
    if (i->type.class == 's' && i->type.bits == 16) x = (uint64_t)(int64_t)(int16_t)x;
    if (i->type.class == 's' && i->type.bits == 32) x = (uint64_t)(int64_t)(int32_t)x;
    return i->register_bits == 16 ? (uint16_t)x : x;
}

static void put_lane(const ptx_machine *machine, ptx_warp *warp, const ptx_instruction *i, int32_t place,
                     int lane, uint64_t x)
{
    uint32_t *const to = ptx_place(machine, warp, place);
    if (i->register_bits == 64)
        memcpy((uint8_t *)to + 8 * lane, &x, 8);
    else
        to[lane] = (uint32_t)x;
}

void ptx_load_lanes(ptx_machine *machine, ptx_warp *warp, const ptx_instruction *i, uint32_t lanes)
{
    const unsigned bytes = i->type.bits / 8u;
    for (int lane = 0; lane < PTX_LANES && !machine->has_stopped; lane++) {
        const uint8_t *const from = lanes >> lane & 1 ? reach(machine, warp, i, lane, 0) : NULL;
        for (unsigned v = 0; from && v < i->vector; v++) {
            uint64_t x = 0;
            memcpy(&x, from + v * bytes, bytes);
            put_lane(machine, warp, i, i->to[v], lane, extend(i, x));
        }
    }
}

void ptx_store_lanes(ptx_machine *machine, ptx_warp *warp, const ptx_instruction *i, uint32_t lanes)
{
    const unsigned bytes = i->type.bits / 8u;
    for (int lane = 0; lane < PTX_LANES && !machine->has_stopped; lane++) {
        uint8_t *const to = lanes >> lane & 1 ? reach(machine, warp, i, lane, 1) : NULL;
        for (unsigned v = 0; to && v < i->vector; v++) {
            const uint32_t *const from = ptx_place(machine, warp, i->with[1 + v]);
            memcpy(to + v * bytes, (const uint8_t *)from + (size_t)lane * (i->register_bits == 64 ? 8 : 4),
                   bytes);
        }
    }
}

static uint32_t combined(ptx_atom kind, uint32_t old, uint32_t x)
{
    switch (kind) {
    case PTX_ATOM_ADD: return old + x;
    case PTX_ATOM_MAX: return old > x ? old : x;
    case PTX_ATOM_MIN: return old < x ? old : x;
    case PTX_ATOM_OR: return old | x;
    case PTX_ATOM_EXCH: return x;
    }
    return x;
}

/* Bounds and alignment are checked as of plain accesses. */
static uint8_t *reach_atomically(ptx_machine *machine, ptx_warp *warp, const ptx_instruction *i, int lane)
{
    const int is_unaware = machine->options.is_unaware;
    machine->options.is_unaware = 1;
    uint8_t *const at = reach(machine, warp, i, lane, !i->is_shared);
    machine->options.is_unaware = is_unaware;
    const uint64_t first = address_of_lane(machine, warp, i, lane);
    for (unsigned b = 0; at && i->is_shared && !is_unaware && b < 4; b++)
        check_shared_atomic(machine, warp, i, &warp->block->shadow[first + b]);
    if (!i->is_shared) {
        warp->block->has_acquired = 1;
        machine->released[warp->block->number] = warp->block->epoch;
        machine->releaser[warp->block->number] = (uint8_t)warp->number;
    }
    return at;
}

void ptx_atomic_lanes(ptx_machine *machine, ptx_warp *warp, const ptx_instruction *i, uint32_t lanes)
{
    for (int lane = 0; lane < PTX_LANES && !machine->has_stopped; lane++) {
        uint8_t *const at = lanes >> lane & 1 ? reach_atomically(machine, warp, i, lane) : NULL;
        if (!at) continue;
        const uint32_t x = ptx_place(machine, warp, i->with[1])[lane];
        uint32_t old;
        memcpy(&old, at, sizeof old);
        const uint32_t next = combined((ptx_atom)i->kind, old, x);
        memcpy(at, &next, sizeof next);
        if (i->to[0] != PTX_NO_PLACE) ptx_place(machine, warp, i->to[0])[lane] = old;
    }
}
