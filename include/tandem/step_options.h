/* step_options.h: how a training step runs: micro-steps, recomputation, scaling of casts, gradient norm. */
#ifndef TANDEM_STEP_OPTIONS_H
#define TANDEM_STEP_OPTIONS_H

#include "tandem/graph.h"

TANDEM_BEGIN_DECLARATIONS

/* What ranks share of the training's state (ZeRO, advanced/zero.h). All zero: each rank has all of it. */
enum { TANDEM_MAX_ZERO_STAGE = 3, TANDEM_MAX_SHARE = 32, TANDEM_MAX_SHARE_UNITS = 1 << 20 };
typedef struct tandem_sharding {
    int stage;   /* 1: the optimizer's state; 0: nothing */
    int n_rank;  /* of the run */
    int rank;    /* whose shards memory and tasks of this step are */
    int n_share; /* 0: shards of a bucket have equal sizes; else: classes of ranks, in the ranks' order */
    int class_ranks[TANDEM_MAX_SHARE]; /* 1 or more */
    int class_units[TANDEM_MAX_SHARE]; /* a rank has this share of all units, 0 to TANDEM_MAX_SHARE_UNITS */
} tandem_sharding;
/* Where the shard of a rank begins in `elements` of a bucket, in elements; rank n_rank: where the last one
 * ends. Multiples of 16 but for that end. Equal shards are an nth, rounded up, so that the last may be short
 * or empty. Cost: O(n_share). */
int64_t tandem_shard_border(const tandem_sharding *sharding, int64_t elements, int rank);
/* What a rank has for its shards within a limit of memory. */
typedef struct tandem_shard_room {
    uint64_t bytes;      /* UINT64_MAX = no limit */
    int64_t fits_evenly; /* whether equal shards fit, to the byte */
} tandem_shard_room;
/* The part of the state that a rank of class c keeps, of n_share classes. */
double tandem_shard_share(const tandem_sharding *sharding, int c);

/* Options of a step program; all zero: one batch per step, all activations kept. */
enum { TANDEM_RECOMPUTE_SQRT = -1, TANDEM_MAX_MICRO = 1024 };
typedef struct tandem_step_options {
    int n_micro; /* micro-steps: local batches summed before the one all-reduce; 0 means 1 */
    /* Recompute segments. The graph is cut where a single tensor is handed on; every segment but the last
     * keeps only that tensor. 0, 1: no recomputation. TANDEM_RECOMPUTE_SQRT: the square root of the number
     * of cut points (Chen, Xu, Zhang, Guestrin, arXiv:1604.06174, 2016). */
    int n_recompute_segment;
    struct tandem_cast_scaling {
        int window; /* > 0: delayed scaling, by the amax of that many earlier casts; 0, −1: by its own */
        int margin; /* the range is 2^margin times the largest amax of the window */
    } scaling;      /* of casts to one-byte dtypes whose range is not known in advance (docs/rounding.md) */
    int transposed_copy; /* of the device (cluster.h), as amp_dtype is. 1: casts write transposed copies */
    int narrow_rows;     /* of the device, too. 1: operators by rows (op.def) read and write narrow floats */
    unsigned fused_attention; /* of the device, too. Bit p: attention in precision p is one task, of fp32,
                               * bf16 and fp16 (tandem_step_attention) */
    int merged_tasks;         /* of the device, too. 1: some tasks are one launch (tandem_step_is_merged) */
    int padded_rows; /* of the device, too. 1: rows of logits may have gaps (tandem_step_padded_row) */
    /* of the device, too. 1: narrow copies of weights lie in the weights' gradients until these are written,
     * and the dgrad of a large weight comes before its wgrad (docs/step.md, Memory) */
    int copies_in_gradients;
    int with_norm; /* 1: no update runs before the norm of all gradients is known */
    /* 1: every term of a tensor's gradient has memory of its own, and no dgrad accumulates. For those who
     * inspect the terms. */
    int separate_partial_grads;
    /* 1: every value is kept in f32, for every dtype: for an executor that emulates number formats
     * (advanced/format.h). Dtypes, casts and tasks stay those of the plan. */
    int emulated;
    /* With `emulated`: the tandem_recipe (advanced/format.h) of the executor's emulation, whose products need
     * memory for rounded operands; 0: none. */
    int recipe;
    /* 1: buckets as PyTorch's DistributedDataParallel makes them from its second step on: the first is
     * closed when it holds 1 MiB or more, each other when it holds bucket_bytes or more
     * (torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment_by_size). */
    int ddp_buckets;
    /* Of recorded graphs. 1: DistributedDataParallel's buckets are memory beside the gradients */
    int ddp_bucket_memory;
    /* of the device, too. 1: PyTorch's allocator for GPUs rounds blocks up, and convolutions in low precision
     * are products of windows */
    int gpu_blocks;
    tandem_sharding sharding;
} tandem_step_options;
typedef struct tandem_cast_scaling tandem_cast_scaling;
/* n_recompute_segment from "none", "sqrt" or a whole number. TANDEM_USAGE: names the allowed words. */
tandem_status tandem_recompute_parse(int *n_recompute_segment, const char *word, tandem_error *error);
enum { TANDEM_RECOMPUTE_TEXT = 16 };
char *tandem_recompute_print(char text[TANDEM_RECOMPUTE_TEXT], int n_recompute_segment); /* returns text */
/* From "current" (window −1: the user said so) or "delayed:window=16,margin=0"; these are the defaults of
 * the two fields. TANDEM_USAGE: names what is allowed. */
tandem_status tandem_cast_scaling_parse(tandem_cast_scaling *scaling, const char *text, tandem_error *error);
enum { TANDEM_CAST_SCALING_TEXT = 48 };
/* returns text */
char *tandem_cast_scaling_print(char text[TANDEM_CAST_SCALING_TEXT], tandem_cast_scaling scaling);

TANDEM_END_DECLARATIONS
#endif
