/* ptx_machine.h: what the parts of the interpreter share. A kernel is read into instructions whose operands
 * are places in a warp's frame: 32 lanes of 32 or 64 bits each, or the 32 bits of a predicate. */
#pragma once

#include <math.h>
#include <string.h>

#include "tests/ptx/ptx.h"

enum { PTX_LANES = 32, PTX_NO_PLACE = INT32_MIN, PTX_MAX_OPERANDS = 10 };
#define PTX_ALL_LANES 0xFFFFFFFFu

typedef enum ptx_operation {
#define LANES(id, ...) PTX_##id,
#include "tests/ptx/instructions.def"
#undef LANES
    PTX_SETP,
    PTX_SPECIAL, /* with: a ptx_special */
    PTX_SPLIT,   /* mov.b64 {a, b}, c; mov.b32 {a, b}, c */
    PTX_JOIN,    /* mov.b32 c, {a, b} */
    PTX_LOAD_PARAM,
    PTX_LOAD_PARAM_AT, /* by an address in a register */
    PTX_LOAD,
    PTX_STORE,
    PTX_ATOMIC,
    PTX_FENCE,
    PTX_BAR,
    PTX_WARP_BAR,
    PTX_SHUFFLE,
    PTX_LDMATRIX,
    PTX_MMA,
    PTX_BRANCH,
    PTX_RETURN,
    PTX_NOTHING
} ptx_operation;

typedef enum ptx_special { PTX_TID, PTX_CTAID, PTX_NTID, PTX_NCTAID, PTX_LANEID } ptx_special;
typedef enum ptx_atom { PTX_ATOM_ADD, PTX_ATOM_MAX, PTX_ATOM_MIN, PTX_ATOM_OR, PTX_ATOM_EXCH } ptx_atom;
typedef enum ptx_shuffle { PTX_BFLY, PTX_UP, PTX_DOWN, PTX_IDX } ptx_shuffle;

/* How two numbers compare, and so what a comparison accepts: lt is LESS, le LESS | EQUAL, ltu LESS |
 * UNORDERED. */
enum { PTX_LESS = 1, PTX_EQUAL = 2, PTX_GREATER = 4, PTX_UNORDERED = 8 };

typedef struct ptx_type {
    uint8_t bits;  /* 8, 16, 32, 64; a predicate: 1 */
    uint8_t class; /* 'u', 's', 'f', or 'b'; a predicate: 'p' */
} ptx_type;

typedef struct ptx_instruction {
    uint16_t operation; /* ptx_operation */
    uint8_t kind;    /* ptx_special, ptx_atom, ptx_shuffle; setp: what it accepts; mma: 'b' bf16, 'f' f16 */
    uint8_t combine; /* setp: 'a', 'o', 'x' with its last operand; 0 without */
    ptx_type type;
    uint8_t vector;        /* elements of a load or a store; mma: columns of a */
    uint8_t register_bits; /* that a load fills, or a store takes */
    uint8_t is_shared, is_read_only, is_turned, is_uniform, is_guard_negated;
    int32_t guard; /* a predicate; PTX_NO_PLACE: none */
    int32_t to[4], with[PTX_MAX_OPERANDS];
    int64_t offset;
    int32_t target, line;
} ptx_instruction;

typedef struct ptx_parameter {
    int at, bytes;
} ptx_parameter;

typedef struct ptx_kernel {
    char *name;
    ptx_instruction *code;
    int n_code, max_code;
    ptx_parameter *parameter;
    int n_parameter, parameter_bytes, shared_bytes;
    unsigned max_threads;
    int frame_words;
    uint32_t *constants; /* 32 lanes each; place -1 - i begins at word i */
    int n_constant_word, max_constant_word;
    uint64_t launches;
} ptx_kernel;

/* Of an array of the host, for each byte. */
enum { PTX_IS_WRITTEN = 1, PTX_WAS_READ_ONLY = 2, PTX_WAS_STORED = 4 };
typedef struct ptx_array {
    uint8_t *at;
    size_t bytes;
    uint8_t *state;
    uint32_t *writer; /* the warp that has stored it in this launch, where state says so: 32·block + warp */
    uint32_t *stored; /* and when, and after how many barriers of its block */
    uint32_t *epoch;
    size_t first, last; /* what this launch has touched: first < last */
} ptx_array;

struct ptx_machine {
    ptx_options options;
    char **text;
    int n_text;
    ptx_kernel *kernel;
    int n_kernel, max_kernel;
    ptx_array *array; /* sorted by address */
    int n_array, max_array, last_array;
    ptx_finding *finding;
    int n_finding, max_finding;
    char *error;
    uint64_t executed, drawn;
    /* Of the launch that runs */
    ptx_kernel *now;
    uint8_t *parameters;
    unsigned grid, block;
    int has_stopped;
    uint64_t begun;     /* times of a launch are the instructions executed since */
    uint32_t *fenced;   /* when each warp executed its last fence; 32 per block */
    uint32_t *released; /* after how many barriers each block executed its last atomic on an array */
    uint8_t *releaser;  /* which of its warps did */
};

/* Of a byte of shared memory: who used it last, since which barrier of its block, and which one of its warp.
 */
typedef struct ptx_shared_byte {
    uint32_t write_epoch, read_epoch, atomic_epoch, write_sync, read_sync;
    int16_t write_warp, read_warp, atomic_warp; /* the last two: MANY */
    int8_t write_lane, read_lane;
    uint8_t is_written;
} ptx_shared_byte;

/* Lanes that are at one instruction; `waits`: for the other lanes that it names, which are `awaited`. */
typedef struct ptx_group {
    int at, waits;
    uint32_t lanes, awaited;
} ptx_group;

typedef struct ptx_block ptx_block;
typedef struct ptx_warp {
    ptx_block *block;
    uint32_t *frame;
    unsigned number;
    ptx_group group[PTX_LANES]; /* the first one runs */
    int n_group, is_at_barrier;
    uint32_t live, sync; /* lanes that have not returned; barriers passed */
} ptx_warp;

struct ptx_block {
    unsigned number, n_warp;
    ptx_warp *warp;
    uint32_t *frames;
    uint8_t *shared;
    ptx_shared_byte *shadow;
    uint32_t epoch;
    int has_acquired; /* it has executed an atomic on an array since it began */
};

/* ptx_findings.c */
void ptx_report(ptx_machine *machine, ptx_fault fault, const ptx_instruction *i);
void *ptx_must(void *memory); /* aborts the test on NULL */

/* ptx_memory.c */
void ptx_begin_launch(ptx_machine *machine);
void ptx_end_launch(ptx_machine *machine);
void ptx_fence(ptx_machine *machine, const ptx_warp *warp);
void ptx_load_lanes(ptx_machine *machine, ptx_warp *warp, const ptx_instruction *i, uint32_t lanes);
void ptx_store_lanes(ptx_machine *machine, ptx_warp *warp, const ptx_instruction *i, uint32_t lanes);
void ptx_atomic_lanes(ptx_machine *machine, ptx_warp *warp, const ptx_instruction *i, uint32_t lanes);
/* `bytes` of shared memory that a lane uses, at an address; NULL: it has ended the launch. */
uint8_t *ptx_shared(ptx_machine *machine, ptx_warp *warp, const ptx_instruction *i, uint64_t at,
                    unsigned bytes, int lane, int stores);

/* ptx_matrix.c */
void ptx_load_matrices(ptx_machine *machine, ptx_warp *warp, const ptx_instruction *i);
void ptx_multiply(ptx_machine *machine, ptx_warp *warp, const ptx_instruction *i);

/* ptx_lanes.c */
void ptx_compute_lanes(const ptx_machine *machine, ptx_warp *warp, const ptx_instruction *i, uint32_t lanes);

/* ptx_numbers.c */
typedef enum ptx_format { PTX_F16, PTX_BF16, PTX_E4M3, PTX_E5M2 } ptx_format;
uint32_t ptx_round(ptx_format format, float x); /* to nearest, ties to even; one-byte formats saturate */
float ptx_f16_value(uint32_t bits);
uint32_t ptx_f16_of_e4m3(uint32_t code);
uint32_t ptx_f16_of_e5m2(uint32_t code);
float ptx_fma_down(float a, float b, float c); /* a·b + c towards −∞ */
float ptx_exp2(float x, int flushes, int ulp);
float ptx_reciprocal(float x, int flushes, int ulp);
float ptx_quotient(float a, float b, int ulp);
float ptx_min(float a, float b);
float ptx_max(float a, float b);
uint32_t ptx_permute(uint32_t a, uint32_t b, uint32_t selection);
uint32_t ptx_reverse(uint32_t x);

static inline float ptx_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline uint32_t ptx_raw_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
/* Of a result: every NaN is one. */
static inline uint32_t ptx_bits(float x) { return x == x ? ptx_raw_bits(x) : 0x7FFFFFFFu; }

/* The lanes of an operand. */
static inline uint32_t *ptx_place(const ptx_machine *machine, const ptx_warp *warp, int32_t place)
{
    return place >= 0 ? warp->frame + place : machine->now->constants + (-1 - place);
}
static inline uint64_t ptx_wide_lane(const uint32_t *at, int lane)
{
    uint64_t x;
    memcpy(&x, (const uint8_t *)at + 8 * lane, sizeof x);
    return x;
}
