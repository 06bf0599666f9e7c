/* recorded_memory.c: the memory of a step that another framework runs, from the blocks that it allocated in
 * fp32 (record.h). A product in low precision keeps narrow copies of its operands from its forward to its
 * backward pass; what it would have kept in f32 is released as soon as nothing else reads it. */
#include <stdlib.h>

#include "step/program/values.h"
#include "tandem/record.h"

/* PyTorch's allocator for GPUs hands out multiples of this (kMinBlockSize of
 * c10/cuda/CUDACachingAllocator.cpp); the one for CPUs, what was asked for. */
enum { GPU_BLOCK_BYTES = 512 };

typedef struct recorded_plan {
    const tandem_step *step;
    const tandem_recorded_memory *memory;
    int64_t *change; /* [n_event + 1] bytes that begin to live at an event, less those that cease */
    int peak_event;  /* while counting by category: the event of the peak; else −1 */
    tandem_memory *count;
} recorded_plan;

static int64_t block_bytes(const recorded_plan *p, int64_t bytes)
{
    const int64_t unit = GPU_BLOCK_BYTES;
    return p->step->options.gpu_blocks ? (bytes + unit - 1) / unit * unit : bytes;
}

static const tandem_precision_row *precision_of(const recorded_plan *p, int product)
{
    return tandem_precision_get(p->step->precision[p->memory->product[product].call]);
}

/* Whether the product keeps a copy of its first operand in place of the operand. */
static int is_narrow(const recorded_plan *p, int product)
{
    return precision_of(p, product)->saved != TANDEM_F32;
}

static int keeps_second(const recorded_plan *p, int product)
{
    const tandem_precision_row *row = precision_of(p, product);
    return row->other_operand_dtype == row->forward;
}

/* --- Lifetimes ------------------------------------------------------------------------------------------ */

/* Whether the block lives within one pass of a product in low precision, which has its own in its place. A
 * release at the event of the pass's end comes after the pass. */
static int is_in_narrow_pass(const recorded_plan *p, const tandem_recorded_block *block, int product)
{
    const tandem_recorded_product *at = &p->memory->product[product];
    return is_narrow(p, product) && ((block->born >= at->forward && block->freed < at->forward_end) ||
                                     (block->born >= at->backward && block->freed < at->backward_end));
}

static int max_of(int a, int b) { return a > b ? a : b; }

/* Until when the reader needs the block in the plan; in_fp32: until when in fp32. */
static int reads_until(const recorded_plan *p, const tandem_recorded_reader *reader, int *in_fp32)
{
    const int forward_end = p->memory->product[reader->product].forward_end;
    const int is_first = reader->role == TANDEM_READS_FIRST;
    *in_fp32 = reader->role == TANDEM_KEEPS_SECOND ? -1 : reader->event;
    if (!is_narrow(p, reader->product)) return *in_fp32;
    return is_first || keeps_second(p, reader->product) ? forward_end : reader->event;
}

/* The event at which the block is released in the plan. What the last one to read it in fp32 reads no longer
 * is released after those that are left. */
static int release_event(const recorded_plan *p, const tandem_recorded_block *block)
{
    int last = block->rest, last_in_fp32 = block->rest;
    for (int r = block->first_reader; r < block->first_reader + block->n_reader; r++) {
        int in_fp32 = -1;
        last = max_of(last, reads_until(p, &p->memory->reader[r], &in_fp32));
        last_in_fp32 = max_of(last_in_fp32, in_fp32);
    }
    if (last >= last_in_fp32) return max_of(last, block->freed);
    return last > block->born && last < block->freed ? last : block->freed;
}

/* --- What a product has of its own ---------------------------------------------------------------------- */

typedef struct own_bytes {
    int64_t operands, weight; /* kept from forward to backward */
    int64_t forward, backward;
} own_bytes;

static int64_t tensor_elements(const tandem_graph *graph, int tensor)
{
    return tandem_shape_elements(&graph->op[tensor].shape);
}

static int64_t bytes_in(tandem_dtype dtype, int64_t elements)
{
    return (int64_t)tandem_dtype_size(dtype, (uint64_t)elements);
}

/* Of the first operand. On cards convolutions are products of windows (python/tandem/_cuda.py). */
static int64_t first_elements(const recorded_plan *p, const tandem_op *op)
{
    const tandem_shape *x = &p->step->graph->op[op->input[0]].shape;
    if (op->kind != TANDEM_OP_CONV2D || !p->step->options.gpu_blocks) return tandem_shape_elements(x);
    const int64_t results = tandem_shape_elements(&op->shape) / tandem_shape_last(&op->shape);
    return results * op->kernel_h * op->kernel_h * tandem_shape_last(x);
}

/* What passes on a CPU allocate beside results (python/tandem/_kernels.py). Those in 8 bits alone are one
 * call each, which allocates nothing. Where bf16 is slow, products are of f32. */
static void add_cpu_workspaces(own_bytes *own, const recorded_plan *p, const tandem_precision_row *row,
                               int64_t x, int64_t w, int64_t y)
{
    const int is_bf16 = row->forward == TANDEM_BF16, is_int8 = row->dgrad == TANDEM_AMP;
    const int64_t larger = x > w ? x : w, in_bf16 = bytes_in(TANDEM_BF16, 1),
                  in_f32 = bytes_in(TANDEM_F32, 1);
    if (p->memory->has_fast_bf16) {
        own->forward = is_bf16 ? in_bf16 * y : 0;
        own->backward = is_bf16 ? in_bf16 * (y + larger) : is_int8 ? in_bf16 * (y + x + w + larger) : 0;
    } else {
        own->forward = is_bf16 ? in_f32 * (x + w) : 0;
        own->backward = is_bf16 ? in_bf16 * y + in_f32 * (y + larger) : is_int8 ? in_f32 * x : 0;
    }
}

/* Of products of CUDA tensors (python/tandem/_cuda.py): operands in the types of precision.def. */
static void add_gpu_workspaces(own_bytes *own, const recorded_plan *p, const tandem_precision_row *row,
                               int64_t x, int64_t w, int64_t y)
{
    const tandem_dtype amp = p->step->amp_dtype == TANDEM_F32 ? TANDEM_BF16 : p->step->amp_dtype,
                       dgrad = row->dgrad == TANDEM_AMP ? amp : row->dgrad,
                       other = row->other_operand_dtype == TANDEM_AMP ? amp : row->other_operand_dtype;
    own->backward = bytes_in(dgrad, y);
    if (other != row->saved) own->backward += bytes_in(other, x) + bytes_in(other, w);
}

static own_bytes own_bytes_of(const recorded_plan *p, int product)
{
    const tandem_graph *graph = p->step->graph;
    const tandem_op *op = &graph->op[p->memory->product[product].call];
    const tandem_precision_row *row = precision_of(p, product);
    const int is_weight = op->parameter[0] >= 0;
    const int64_t x = first_elements(p, op), y = tandem_shape_elements(&op->shape),
                  w = is_weight ? graph->parameter[op->parameter[0]].elements
                                : tensor_elements(graph, op->input[1]);
    own_bytes own = {.operands = block_bytes(p, bytes_in(row->saved, x))};
    *(is_weight ? &own.weight : &own.operands) += keeps_second(p, product) ? bytes_in(row->forward, w) : 0;
    (p->step->options.gpu_blocks ? add_gpu_workspaces : add_cpu_workspaces)(&own, p, row, x, w, y);
    const int copies = p->step->options.gpu_blocks ? 0 : p->memory->product[product].copies;
    if (copies & TANDEM_COPIES_INPUT) own.forward += bytes_in(TANDEM_F32, x);
    if (copies & TANDEM_COPIES_GRADIENT) own.backward += bytes_in(TANDEM_F32, y);
    return own;
}

/* --- The sums ------------------------------------------------------------------------------------------- */

/* Bytes that live from event `born` until `freed`. */
static void add_bytes(recorded_plan *p, uint64_t *category, int64_t bytes, int born, int freed)
{
    if (p->peak_event < 0) {
        p->change[born] += bytes;
        p->change[freed] -= bytes;
    } else if (born <= p->peak_event && p->peak_event < freed) {
        *category += (uint64_t)bytes;
    }
}

static void add_product(recorded_plan *p, int product)
{
    const tandem_recorded_product *at = &p->memory->product[product];
    if (!is_narrow(p, product) || at->forward < 0) return;
    const own_bytes own = own_bytes_of(p, product);
    add_bytes(p, &p->count->workspace, own.forward, at->forward, at->forward_end);
    if (at->backward < 0) return;
    add_bytes(p, &p->count->activations, own.operands, at->forward, at->backward_end);
    add_bytes(p, &p->count->weight_copies, own.weight, at->forward, at->backward_end);
    add_bytes(p, &p->count->workspace, own.backward, at->backward, at->backward_end);
}

/* replaced: [n_block] whether a product in low precision has its own in the place of the block. */
static void add_recorded_blocks(recorded_plan *p, const unsigned char *replaced)
{
    const tandem_recorded_memory *memory = p->memory;
    for (int b = 0; b < memory->n_block; b++) {
        const tandem_recorded_block *block = &memory->block[b];
        uint64_t *category = block->is_gradient               ? &p->count->gradients
                             : block->born < memory->backward ? &p->count->activations
                                                              : &p->count->activation_gradients;
        if (!replaced[b])
            add_bytes(p, category, block_bytes(p, block->bytes), block->born, release_event(p, block));
    }
    for (int product = 0; product < memory->n_product; product++) add_product(p, product);
}

/* Blocks are in the order of birth, and passes are few: each looks at the blocks that are born in it. */
static void find_replaced(const recorded_plan *p, unsigned char *replaced)
{
    const tandem_recorded_memory *memory = p->memory;
    for (int product = 0; product < memory->n_product; product++)
        for (int pass = 0; pass < 2 && is_narrow(p, product); pass++) {
            const tandem_recorded_product *at = &memory->product[product];
            const int begin = pass ? at->backward : at->forward,
                      end = pass ? at->backward_end : at->forward_end;
            int low = 0, high = memory->n_block;
            while (low < high) {
                const int middle = low + (high - low) / 2;
                if (memory->block[middle].born < begin)
                    low = middle + 1;
                else
                    high = middle;
            }
            for (int b = low; b < memory->n_block && memory->block[b].born < end; b++)
                replaced[b] |= (unsigned char)is_in_narrow_pass(p, &memory->block[b], product);
        }
}

/* The largest sum, and the event of it. */
static int64_t find_peak(const recorded_plan *p, int *event)
{
    int64_t now = 0, peak = 0;
    *event = 0;
    for (int e = 0; e < p->memory->n_event; e++) {
        now += p->change[e];
        if (now > peak) {
            peak = now;
            *event = e;
        }
    }
    return peak;
}

/* What lives all the time, of a rank whose update works on one parameter after the other. */
static void count_constant(tandem_memory *plan, const tandem_step *step, int gradients_stay)
{
    const tandem_recorded_memory *memory = step->graph->memory;
    const tandem_optimizer_options *optimizer = &step->graph->optimizer;
    const int n_state = optimizer->kind == TANDEM_SGD && optimizer->momentum == 0
                            ? 0
                            : tandem_optimizer_n_state(optimizer->kind);
    const uint64_t trained = (uint64_t)memory->trained_bytes;
    plan->weights = (uint64_t)memory->weight_bytes;
    plan->optimizer = (uint64_t)n_state * trained;
    plan->gradients = (gradients_stay ? trained : 0) + (step->options.ddp_bucket_memory ? trained : 0);
}

/* AdamW makes two tensors of a parameter's size: the root of the second moment, and the step's divisor
 * (torch/optim/adamw.py); SGD makes one where it adds a decay. */
static uint64_t update_bytes(const tandem_step *step)
{
    const tandem_optimizer_options *optimizer = &step->graph->optimizer;
    const int n = optimizer->kind == TANDEM_ADAMW ? 2 : optimizer->decay != 0;
    return (uint64_t)n * (uint64_t)step->graph->memory->largest_bytes;
}

static uint64_t sum_of(const tandem_memory *plan)
{
    return plan->weights + plan->gradients + plan->optimizer + plan->arena;
}

/* The larger of both: the step's passes, or the update, when all gradients are there and no activation is. */
static void choose_peak(tandem_memory *plan, const tandem_memory *passes, const tandem_step *step,
                        int gradients_stay)
{
    tandem_memory update = {0};
    count_constant(&update, step, gradients_stay);
    if (!gradients_stay) update.gradients += (uint64_t)step->graph->memory->trained_bytes;
    update.arena = update.arena_live = update.workspace = update_bytes(step);
    *plan = sum_of(passes) >= sum_of(&update) ? *passes : update;
    plan->peak = sum_of(plan);
}

/* That of the step whose images have the order that the plan's convolutions give them. */
static const tandem_recorded_memory *recorded_memory_of(const tandem_step *step)
{
    const tandem_recorded_memory *const memory = step->graph->memory;
    for (int p = 0; p < memory->n_product && memory->channels_last && !step->options.gpu_blocks; p++) {
        const int op = memory->product[p].call;
        if (step->graph->op[op].kind == TANDEM_OP_CONV2D &&
            tandem_precision_get(step->precision[op])->saved != TANDEM_F32)
            return memory->channels_last;
    }
    return memory;
}

static tandem_status plan_recorded(tandem_memory *plan, const tandem_step *step, tandem_error *error)
{
    const tandem_recorded_memory *memory = recorded_memory_of(step);
    const int gradients_stay = memory->keeps_gradients || step->options.n_micro > 1;
    tandem_memory passes = {0};
    const size_t n_change = (size_t)memory->n_event + 1;
    recorded_plan p = {step, memory, calloc(n_change * sizeof *p.change + (size_t)memory->n_block, 1), -1,
                       &passes};
    if (!p.change) return tandem_no_memory(error, "for the memory plan of %d blocks", memory->n_block);
    unsigned char *const replaced = (unsigned char *)(p.change + n_change);
    find_replaced(&p, replaced);
    add_recorded_blocks(&p, replaced);
    const int64_t peak = find_peak(&p, &p.peak_event);
    count_constant(&passes, step, gradients_stay);
    const uint64_t constant_gradients = passes.gradients;
    add_recorded_blocks(&p, replaced);
    passes.arena = passes.arena_live = (uint64_t)peak - (passes.gradients - constant_gradients);
    choose_peak(plan, &passes, step, gradients_stay);
    free(p.change);
    return TANDEM_OK;
}

tandem_status step_recorded_memory_plan(tandem_memory *memory, const tandem_step *step, int64_t *offset,
                                        int64_t *workspace_offset, tandem_error *error)
{
    tandem_memory plan = {0};
    const int is_known = step->graph->memory && step->options.n_recompute_segment <= 1 &&
                         step->options.n_recompute_segment != TANDEM_RECOMPUTE_SQRT;
    const tandem_status status = is_known ? plan_recorded(&plan, step, error) : TANDEM_OK;
    if (status != TANDEM_OK) return status;
    for (int v = 0; v < step->n_value && offset; v++) offset[v] = -1;
    for (int t = 0; t < step->n_task && workspace_offset; t++) workspace_offset[t] = -1;
    *memory = plan;
    return TANDEM_OK;
}
