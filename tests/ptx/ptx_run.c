/* ptx_run.c: runs a launch: which warp's turn it is, which of its lanes run, and how they wait for one
 * another. */
#include <stdlib.h>

#include "tests/ptx/ptx_machine.h"

static uint64_t draw(ptx_machine *machine)
{
    machine->drawn ^= machine->drawn << 13;
    machine->drawn ^= machine->drawn >> 7;
    machine->drawn ^= machine->drawn << 17;
    return machine->drawn;
}

/* --- Lanes of a warp ------------------------------------------------------------------------------------ */

/* Groups that stand at one instruction become one; the earliest one that does not wait becomes the first. */
static void regroup(ptx_warp *warp)
{
    for (int g = 0; g < warp->n_group; g++)
        for (int h = warp->n_group - 1; h > g; h--)
            if (warp->group[h].at == warp->group[g].at) {
                warp->group[g].lanes |= warp->group[h].lanes;
                warp->group[g].waits &= warp->group[h].waits;
                warp->group[g].awaited |= warp->group[h].awaited;
                warp->group[h] = warp->group[--warp->n_group];
            }
    int next = 0;
    for (int g = 1; g < warp->n_group; g++) {
        const ptx_group *const a = &warp->group[g], *const b = &warp->group[next];
        if (a->waits != b->waits ? !a->waits : a->at < b->at) next = g;
    }
    const ptx_group first = warp->group[next];
    warp->group[next] = warp->group[0];
    warp->group[0] = first;
}

/* Lanes that branch apart from those that run. */
static void part(ptx_warp *warp, int at, uint32_t lanes)
{
    warp->group[0].lanes &= ~lanes;
    warp->group[warp->n_group++] = (ptx_group){at, 0, lanes, 0};
}

/* Whether all lanes named have come. If not, these wait and others run; if no others can, it is a finding,
 * and they go on without them. */
static int has_gathered(ptx_machine *machine, ptx_warp *warp, const ptx_instruction *i, uint32_t named,
                        ptx_fault fault)
{
    ptx_group *const own = &warp->group[0];
    if (own->lanes == named) {
        if (own->awaited & ~own->lanes) ptx_report(machine, fault, i); /* some have ended instead */
        own->awaited = 0;
        return 1;
    }
    for (int g = 1; g < warp->n_group; g++)
        if (!warp->group[g].waits) {
            own->waits = 1;
            own->awaited |= named & ~own->lanes;
            return 0;
        }
    ptx_report(machine, fault, i);
    own->awaited = 0;
    return 1;
}

static void branch(ptx_machine *machine, ptx_warp *warp, const ptx_instruction *i, uint32_t lanes)
{
    const uint32_t all = warp->group[0].lanes;
    warp->group[0].at++;
    if (lanes == all) {
        warp->group[0].at = i->target;
    } else if (lanes) {
        if (i->is_uniform) ptx_report(machine, PTX_LANES_MISSING, i);
        part(warp, i->target, lanes);
    }
}

static void return_lanes(ptx_warp *warp, uint32_t lanes)
{
    warp->live &= ~lanes;
    warp->group[0].lanes &= ~lanes;
    warp->group[0].at++;
    if (warp->group[0].lanes) return;
    if (--warp->n_group) warp->group[0] = warp->group[warp->n_group];
}

/* Which lane a lane reads: the mode's own arithmetic within the segment that c gives (PTX ISA, shfl). */
static int source_lane(const ptx_instruction *i, int lane, uint32_t b, uint32_t c)
{
    const int clamp = (int)(c & 31), segment = (int)(c >> 8 & 31),
              most = (lane & segment) | (clamp & ~segment);
    const int least = lane & segment, by = (int)(b & 31);
    switch ((ptx_shuffle)i->kind) {
    case PTX_UP: return lane - by >= most ? lane - by : lane;
    case PTX_DOWN: return lane + by <= most ? lane + by : lane;
    case PTX_BFLY: return (lane ^ by) <= most ? lane ^ by : lane;
    case PTX_IDX: return (least | (by & ~segment)) <= most ? least | (by & ~segment) : lane;
    }
    return lane;
}

static void shuffle(ptx_machine *machine, ptx_warp *warp, const ptx_instruction *i, uint32_t lanes)
{
    const uint32_t *const a = ptx_place(machine, warp, i->with[0]),
                          *const b = ptx_place(machine, warp, i->with[1]),
                          *const c = ptx_place(machine, warp, i->with[2]);
    uint32_t got[PTX_LANES], inside = 0;
    for (int lane = 0; lane < PTX_LANES; lane++) {
        if (!(lanes >> lane & 1)) continue;
        const int from = source_lane(i, lane, b[lane], c[lane]);
        if (!(lanes >> from & 1)) ptx_report(machine, PTX_LANES_MISSING, i);
        got[lane] = a[from];
        inside |= (uint32_t)(from != lane || (b[lane] & 31) == 0) << lane;
    }
    for (int lane = 0; lane < PTX_LANES; lane++)
        if (lanes >> lane & 1) ptx_place(machine, warp, i->to[0])[lane] = got[lane];
    if (i->to[1] == PTX_NO_PLACE) return;
    uint32_t *const is_inside = ptx_place(machine, warp, i->to[1]);
    *is_inside = (*is_inside & ~lanes) | inside;
}

/* The lanes that an instruction with a guard runs for. */
static uint32_t guarded_lanes(const ptx_machine *machine, const ptx_warp *warp, const ptx_instruction *i)
{
    const uint32_t lanes = warp->group[0].lanes;
    if (i->guard == PTX_NO_PLACE) return lanes;
    const uint32_t holds = *ptx_place(machine, warp, i->guard);
    return lanes & (i->is_guard_negated ? ~holds : holds);
}

/* What all lanes that it names must come to together; whether they have. */
static int run_together(ptx_machine *machine, ptx_warp *warp, const ptx_instruction *i)
{
    const uint32_t running = warp->group[0].lanes;
    if (i->operation == PTX_BAR) return has_gathered(machine, warp, i, warp->live, PTX_BARRIER);
    uint32_t named = PTX_ALL_LANES;
    if (i->operation == PTX_SHUFFLE)
        named = ptx_place(machine, warp, i->with[3])[__builtin_ctz(running)];
    else if (i->operation == PTX_WARP_BAR)
        named = ptx_place(machine, warp, i->with[0])[__builtin_ctz(running)];
    return has_gathered(machine, warp, i, named, PTX_LANES_MISSING);
}

static void run_instruction(ptx_machine *machine, ptx_warp *warp, const ptx_instruction *i, uint32_t lanes)
{
    switch ((ptx_operation)i->operation) {
    case PTX_LOAD:
    case PTX_LOAD_PARAM_AT: ptx_load_lanes(machine, warp, i, lanes); break;
    case PTX_STORE: ptx_store_lanes(machine, warp, i, lanes); break;
    case PTX_ATOMIC: ptx_atomic_lanes(machine, warp, i, lanes); break;
    case PTX_SHUFFLE: shuffle(machine, warp, i, lanes); break;
    case PTX_LDMATRIX: ptx_load_matrices(machine, warp, i); break;
    case PTX_MMA: ptx_multiply(machine, warp, i); break;
    case PTX_WARP_BAR: warp->sync++; break;
    case PTX_BAR: warp->is_at_barrier = 1; break;
    case PTX_FENCE: ptx_fence(machine, warp); break;
    case PTX_NOTHING: break;
    default: ptx_compute_lanes(machine, warp, i, lanes); break;
    }
}

static int is_of_all_lanes(const ptx_instruction *i)
{
    return i->operation >= PTX_BAR && i->operation <= PTX_MMA;
}

/* Up to `turns` instructions; until it is at a barrier, has ended, or the launch has. */
static void run_warp(ptx_machine *machine, ptx_warp *warp, int turns)
{
    const ptx_instruction *const code = machine->now->code;
    for (; turns > 0 && warp->n_group && !warp->is_at_barrier && !machine->has_stopped; turns--) {
        if (warp->n_group > 1) regroup(warp);
        const ptx_instruction *const i = &code[warp->group[0].at];
        const uint32_t lanes = guarded_lanes(machine, warp, i);
        machine->executed++;
        if (i->operation == PTX_BRANCH) {
            branch(machine, warp, i, lanes);
        } else if (i->operation == PTX_RETURN) {
            return_lanes(warp, lanes);
        } else if (!lanes) {
            warp->group[0].at++;
        } else if (is_of_all_lanes(i) && lanes != warp->group[0].lanes) {
            part(warp, warp->group[0].at + 1,
                 warp->group[0].lanes & ~lanes); /* as if it had been branched over */
        } else if (!is_of_all_lanes(i) || run_together(machine, warp, i)) {
            warp->group[0].waits = 0;
            run_instruction(machine, warp, i, lanes);
            warp->group[0].at++;
        }
    }
}

/* --- Warps of a block, blocks of a launch --------------------------------------------------------------- */

typedef struct pool {
    ptx_block *block;
    int n_block;
    unsigned started, step;
    int is_backwards;
} pool;

/* Which block is the x-th to begin: a permutation, since the step and the grid have no common divisor. */
static unsigned block_number(const ptx_machine *machine, const pool *p, unsigned x)
{
    const unsigned place = (unsigned)((uint64_t)x * p->step % machine->grid);
    return p->is_backwards ? machine->grid - 1 - place : place;
}

static void begin_block(ptx_machine *machine, ptx_block *block, unsigned number)
{
    const ptx_kernel *const kernel = machine->now;
    const size_t shared = (size_t)kernel->shared_bytes;
    block->number = number;
    block->epoch = 1;
    block->has_acquired = 0;
    memset(block->shared, 0xCD, shared);
    memset(block->shadow, 0, shared * sizeof *block->shadow);
    for (unsigned w = 0; w < block->n_warp; w++) {
        ptx_warp *const warp = &block->warp[w];
        const unsigned left = machine->block - w * PTX_LANES;
        const uint32_t live = left >= PTX_LANES ? PTX_ALL_LANES : (1u << left) - 1;
        *warp = (ptx_warp){.block = block, .number = w, .n_group = 1, .live = live};
        warp->group[0] = (ptx_group){0, 0, live, 0};
        warp->frame = block->frames + (size_t)w * (size_t)kernel->frame_words;
    }
}

static void open_block(ptx_machine *machine, ptx_block *block)
{
    const ptx_kernel *const kernel = machine->now;
    const size_t shared = (size_t)kernel->shared_bytes + 1;
    block->n_warp = (machine->block + PTX_LANES - 1) / PTX_LANES;
    block->warp = ptx_must(calloc(block->n_warp, sizeof *block->warp));
    block->frames =
        ptx_must(calloc((size_t)block->n_warp * (size_t)kernel->frame_words + 1, sizeof *block->frames));
    block->shared = ptx_must(malloc(shared));
    block->shadow = ptx_must(malloc(shared * sizeof *block->shadow));
}

static void close_block(ptx_block *block)
{
    free(block->warp);
    free(block->frames);
    free(block->shared);
    free(block->shadow);
}

/* Warps go on once all of the block stand at one barrier. One that has ended, or is at another one, is a
 * finding; the others go on then, as a GPU would let them. */
static void pass_barrier(ptx_machine *machine, ptx_block *block)
{
    const ptx_instruction *barrier = NULL;
    int is_whole = 1;
    for (unsigned w = 0; w < block->n_warp; w++) {
        const ptx_warp *const warp = &block->warp[w];
        if (!warp->n_group) {
            is_whole = 0;
            continue;
        }
        const ptx_instruction *const i = &machine->now->code[warp->group[0].at - 1];
        if ((barrier && barrier != i) || warp->live != warp->group[0].lanes) is_whole = 0;
        barrier = i;
    }
    if (!is_whole) ptx_report(machine, PTX_BARRIER, barrier);
    block->epoch++;
    for (unsigned w = 0; w < block->n_warp; w++) {
        block->warp[w].is_at_barrier = 0;
        block->warp[w].sync++;
    }
}

/* Whether a warp of the block can run; passes the barrier that all stand at. */
static int can_run(ptx_machine *machine, ptx_block *block)
{
    int waits = 0;
    for (unsigned w = 0; w < block->n_warp; w++) {
        if (!block->warp[w].n_group) continue;
        if (!block->warp[w].is_at_barrier) return 1;
        waits = 1;
    }
    if (waits) pass_barrier(machine, block);
    return waits;
}

/* The last one takes its place. */
static void remove_block(pool *p, ptx_block *block)
{
    close_block(block);
    const ptx_block *const last = &p->block[--p->n_block];
    if (last == block) return;
    *block = *last;
    for (unsigned w = 0; w < block->n_warp; w++) block->warp[w].block = block;
}

/* Some turns of a warp of a block; 0: the pool is empty. */
static int run_some(ptx_machine *machine, pool *p)
{
    ptx_block *const block = &p->block[draw(machine) % (uint64_t)p->n_block];
    if (!can_run(machine, block)) {
        if (p->started < machine->grid) {
            begin_block(machine, block, block_number(machine, p, p->started++));
        } else {
            remove_block(p, block);
        }
        return p->n_block;
    }
    const unsigned first = (unsigned)(draw(machine) % block->n_warp);
    for (unsigned k = 0; k < block->n_warp; k++) {
        ptx_warp *const warp = &block->warp[(first + k) % block->n_warp];
        if (!warp->n_group || warp->is_at_barrier) continue;
        const int is_long = draw(machine) % 8 == 0;
        run_warp(machine, warp, is_long ? 1 << 16 : 20 + (int)(draw(machine) % 400));
        break;
    }
    return 1;
}

static uint8_t *parameters_of(const ptx_kernel *kernel, void *const *argument)
{
    uint8_t *const at = ptx_must(calloc((size_t)kernel->parameter_bytes + 16, 1));
    for (int k = 0; k < kernel->n_parameter; k++)
        memcpy(at + kernel->parameter[k].at, argument[k], (size_t)kernel->parameter[k].bytes);
    return at;
}

static unsigned step_without_divisor(uint64_t drawn, unsigned grid)
{
    static const unsigned steps[] = {1, 7, 11, 13, 17, 19};
    const unsigned step = steps[drawn % 6];
    return grid % step ? step : 1;
}

void ptx_launch(ptx_machine *machine, int kernel, unsigned grid, unsigned block, void *const *argument)
{
    const uint64_t most = machine->options.limit ? machine->options.limit : 1ull << 33;
    const uint64_t limit = machine->executed + most;
    ptx_kernel *const now = &machine->kernel[kernel];
    machine->now = now;
    machine->grid = grid;
    machine->block = block;
    now->launches++;
    uint8_t *const parameters = parameters_of(now, argument);
    machine->parameters = parameters;
    ptx_begin_launch(machine);
    const unsigned resident = machine->options.resident ? (unsigned)machine->options.resident : 3;
    pool p = {.step = step_without_divisor(draw(machine), grid), .is_backwards = (int)(draw(machine) % 2)};
    p.n_block = (int)(resident < grid ? resident : grid);
    p.block = ptx_must(calloc((size_t)p.n_block, sizeof *p.block));
    for (int b = 0; b < p.n_block; b++) {
        open_block(machine, &p.block[b]);
        begin_block(machine, &p.block[b], block_number(machine, &p, p.started++));
    }
    while (!machine->has_stopped && p.n_block && run_some(machine, &p))
        if (machine->executed > limit) {
            ptx_report(machine, PTX_ENDLESS, NULL);
            break;
        }
    for (int b = 0; b < p.n_block; b++) close_block(&p.block[b]);
    ptx_end_launch(machine);
    free(p.block);
    free(parameters);
}
