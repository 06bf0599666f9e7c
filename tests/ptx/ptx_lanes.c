/* ptx_lanes.c: the instructions that compute each lane for itself. */
#include "tests/ptx/ptx_machine.h"

#define F(x) ptx_float((uint32_t)(x))
#define BITS(x) ptx_bits(x)

/* What each kind of operand is: its type, its place in a frame as that type, and the number of a lane. */
#define TYPE_n uint32_t
#define TYPE_h uint32_t
#define TYPE_w uint32_t
#define TYPE_l uint64_t
#define TYPE_p uint32_t
#define READ_n(at, lane) 0
#define READ_h(at, lane) (at)[lane]
#define READ_w(at, lane) (at)[lane]
#define READ_l(at, lane) (at)[lane]
#define READ_p(at, lane) (*(at) >> (lane)&1)
#define WRITE_h(at, lane, x) (at)[lane] = (uint32_t)(uint16_t)(x)
#define WRITE_w(at, lane, x) (at)[lane] = (uint32_t)(x)
#define WRITE_l(at, lane, x) (at)[lane] = (uint64_t)(x)
#define WRITE_p(at, lane, x) *(at) = (*(at) & ~(1u << (lane))) | ((uint32_t)(x)&1) << (lane)

static void *operand_place(const ptx_machine *machine, const ptx_warp *warp, int32_t place)
{
    return place == PTX_NO_PLACE ? NULL : ptx_place(machine, warp, place);
}

static uint32_t relation_u(uint64_t a, uint64_t b)
{
    return a < b ? PTX_LESS : a == b ? PTX_EQUAL : PTX_GREATER;
}

static uint32_t relation_s(int64_t a, int64_t b)
{
    return a < b ? PTX_LESS : a == b ? PTX_EQUAL : PTX_GREATER;
}

static uint32_t relation_f(float a, float b)
{
    return a < b ? PTX_LESS : a == b ? PTX_EQUAL : a > b ? PTX_GREATER : PTX_UNORDERED;
}

/* How a and b compare as numbers of a type. */
static uint32_t relation_of(ptx_type type, uint64_t a, uint64_t b)
{
    if (type.class == 'f') return relation_f(F(a), F(b));
    if (type.class != 's') return relation_u(a, b);
    return type.bits == 64   ? relation_s((int64_t)a, (int64_t)b)
           : type.bits == 32 ? relation_s((int32_t)a, (int32_t)b)
                             : relation_s((int16_t)a, (int16_t)b);
}

static void compare_lanes(const ptx_machine *machine, ptx_warp *warp, const ptx_instruction *i,
                          uint32_t lanes)
{
    const uint32_t *const a = ptx_place(machine, warp, i->with[0]), *const b =
                                                                        ptx_place(machine, warp, i->with[1]);
    uint32_t accepted = 0;
    for (int lane = 0; lane < PTX_LANES; lane++) {
        const uint64_t x = i->type.bits == 64 ? ptx_wide_lane(a, lane) : a[lane],
                       y = i->type.bits == 64 ? ptx_wide_lane(b, lane) : b[lane];
        accepted |= (uint32_t)((i->kind & relation_of(i->type, x, y)) != 0) << lane;
    }
    const uint32_t other = i->combine ? *ptx_place(machine, warp, i->with[2]) : 0;
    if (i->combine == 'a') accepted &= other;
    if (i->combine == 'o') accepted |= other;
    if (i->combine == 'x') accepted ^= other;
    uint32_t *const to = ptx_place(machine, warp, i->to[0]);
    *to = (*to & ~lanes) | (accepted & lanes);
}

static void split_lanes(const ptx_machine *machine, ptx_warp *warp, const ptx_instruction *i, uint32_t lanes)
{
    const uint32_t *const from = ptx_place(machine, warp, i->with[0]);
    uint32_t *const low = ptx_place(machine, warp, i->to[0]), *const high =
                                                                  ptx_place(machine, warp, i->to[1]);
    for (int lane = 0; lane < PTX_LANES; lane++) {
        if (!(lanes >> lane & 1)) continue;
        const uint64_t x = i->type.bits == 64 ? ptx_wide_lane(from, lane) : from[lane];
        low[lane] = i->type.bits == 64 ? (uint32_t)x : (uint16_t)x;
        high[lane] = (uint32_t)(x >> (i->type.bits / 2));
    }
}

static void join_lanes(const ptx_machine *machine, ptx_warp *warp, const ptx_instruction *i, uint32_t lanes)
{
    const uint32_t *const low = ptx_place(machine, warp, i->with[0]), *const high = ptx_place(machine, warp,
                                                                                              i->with[1]);
    uint32_t *const to = ptx_place(machine, warp, i->to[0]);
    for (int lane = 0; lane < PTX_LANES; lane++) {
        if (!(lanes >> lane & 1)) continue;
        if (i->type.bits == 32)
            to[lane] = (low[lane] & 0xFFFF) | high[lane] << 16;
        else
            memcpy(to + 2 * lane, (const uint32_t[]){low[lane], high[lane]}, 8);
    }
}

static void read_special(const ptx_machine *machine, ptx_warp *warp, const ptx_instruction *i, uint32_t lanes)
{
    uint32_t *const to = ptx_place(machine, warp, i->to[0]);
    for (int lane = 0; lane < PTX_LANES; lane++) {
        if (!(lanes >> lane & 1)) continue;
        switch ((ptx_special)i->kind) {
        case PTX_TID: to[lane] = warp->number * PTX_LANES + (uint32_t)lane; break;
        case PTX_CTAID: to[lane] = warp->block->number; break;
        case PTX_NTID: to[lane] = machine->block; break;
        case PTX_NCTAID: to[lane] = machine->grid; break;
        case PTX_LANEID: to[lane] = (uint32_t)lane; break;
        }
    }
}

static void load_parameter(const ptx_machine *machine, ptx_warp *warp, const ptx_instruction *i,
                           uint32_t lanes)
{
    const unsigned bytes = i->type.bits / 8u;
    for (int v = 0; v < i->vector; v++) {
        uint64_t x = 0;
        memcpy(&x, machine->parameters + i->offset + (int64_t)bytes * v, bytes);
        uint32_t *const to = ptx_place(machine, warp, i->to[v]);
        for (int lane = 0; lane < PTX_LANES; lane++)
            if (lanes >> lane & 1)
                memcpy(to + lane * (i->register_bits == 64 ? 2 : 1), &x, i->register_bits == 64 ? 8 : 4);
    }
}

/* One function for each of instructions.def. */
typedef void lane_function(const ptx_machine *machine, ptx_warp *warp, const ptx_instruction *i,
                           uint32_t lanes);
#define LANES(id, spellings, kind_to, kind_a, kind_b, kind_c, value)                                         \
    static void lanes_##id(const ptx_machine *machine, ptx_warp *warp, const ptx_instruction *i,             \
                           uint32_t lanes)                                                                   \
    {                                                                                                        \
        const int ulp = machine->options.ulp;                                                                \
        TYPE_##kind_to *const to = operand_place(machine, warp, i->to[0]);                                   \
        const TYPE_##kind_a *const at_a = operand_place(machine, warp, i->with[0]);                          \
        const TYPE_##kind_b *const at_b = operand_place(machine, warp, i->with[1]);                          \
        const TYPE_##kind_c *const at_c = operand_place(machine, warp, i->with[2]);                          \
        (void)ulp, (void)at_b, (void)at_c;                                                                   \
        for (int lane = 0; lane < PTX_LANES; lane++) {                                                       \
            if (lanes != PTX_ALL_LANES && !(lanes >> lane & 1)) continue;                                    \
            const TYPE_##kind_a a = READ_##kind_a(at_a, lane);                                               \
            const TYPE_##kind_b b = READ_##kind_b(at_b, lane);                                               \
            const TYPE_##kind_c c = READ_##kind_c(at_c, lane);                                               \
            (void)b, (void)c;                                                                                \
            WRITE_##kind_to(to, lane, value);                                                                \
        }                                                                                                    \
    }
#include "tests/ptx/instructions.def"
#undef LANES

static lane_function *const lane_functions[] = {
#define LANES(id, ...) [PTX_##id] = lanes_##id,
#include "tests/ptx/instructions.def"
#undef LANES
    [PTX_SETP] = compare_lanes,
    [PTX_SPECIAL] = read_special,
    [PTX_SPLIT] = split_lanes,
    [PTX_JOIN] = join_lanes,
    [PTX_LOAD_PARAM] = load_parameter};

void ptx_compute_lanes(const ptx_machine *machine, ptx_warp *warp, const ptx_instruction *i, uint32_t lanes)
{
    lane_functions[i->operation](machine, warp, i, lanes);
}
