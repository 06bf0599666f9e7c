/* stand_in.h: what tests put in NVIDIA's libraries' place where there is no card: memory of the host, streams
 * of which the first has done everything when a call returns, and the others nothing before they are waited
 * for, products and convolutions as plain loops. With the kernels under simt.h the whole CUDA backend runs
 * so, but for the libraries themselves. */
#ifndef TANDEM_TESTS_CUDA_STAND_IN_H
#define TANDEM_TESTS_CUDA_STAND_IN_H

#include "backend/cuda/vendor.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default) /* build/tests/libtandem_cuda.so exports them */

#define stand_in_vendor tandem_cuda_vendor /* so that the backend's own `open` finds it, too */

/* The card that it describes; tests change it. */
extern cuda_gpu stand_in_gpu;
extern int stand_in_n_gpu;
extern int stand_in_clock_is_fixed; /* 1: on the card a nanosecond passes from one event to the next */
extern int stand_in_clocks[2];      /* of compute, of memory; in MHz */
extern int stand_in_cores_at_open;  /* that the thread which opened the card could run on */
/* The call or launch after that many more fails as a lost card would, and all after it; −1: none does. */
extern int stand_in_calls_to_failure;
extern int stand_in_fail_once;       /* 1: but that one alone, as a launch that is refused */
int stand_in_next_error(void);       /* of the call that now comes: 0, or its error */
extern int64_t stand_in_memory_left; /* bytes that can still be taken */
/* Of the four ways in which it does a piece of work the first is its guess, the third is fastest, then the
 * second. A product with fast sums takes half its time. */
extern int stand_in_candidates; /* how many it names; 0: it knows no way */
extern int stand_in_n_refused;  /* how many of these do not pass its own check */
extern int stand_in_fail_third; /* whether the third fails when it is run */
extern int stand_in_n_failing;  /* how many, from its guess on, fail when they are run */
/* With which error it refuses work and ways: CUBLASLT_NOT_SUPPORTED, … */
extern int stand_in_refusal;
/* It knows no way for a convolution of more channels; 0: for none. */
extern int stand_in_max_convolution_channels;
/* 1: what a stream beside the first is given is done at once, though the first has not come so far */
extern int stand_in_eager_streams;
/* 1: what the first stream copies from the card to page-locked memory arrives when somebody waits for what
 * was recorded after it; until then there is 0xFF */
extern int stand_in_late_copies;
int stand_in_copies_on_their_way(void);
/* how often the host waited for the first stream while another had a copy to do, so far */
extern int stand_in_waits_with_copies;
extern int stand_in_runs; /* of work, so far */
/* of products whose matrices have a row that begins at no multiple of 16 bytes: a card loads them slowly */
extern int stand_in_unaligned_products;
extern int stand_in_launches;       /* kernels, work and memsets, so far */
extern int stand_in_blocks;         /* of the kernel that ran last */
extern int64_t stand_in_max_locked; /* bytes that a `lock` may have */
/* the card that can lock none, −1: all can; so it is with STAND_IN_REFUSES_LOCK in the environment */
extern int stand_in_lock_refused_on;
/* 1: what is taken from now on is the card's alone: a host that touches it dies by SIGSEGV */
extern int stand_in_has_device_memory;
extern int stand_in_graph_runs, stand_in_graph_nodes; /* so far: runs; nodes of the graphs that were made */
/* 1: events in graphs count as reached before the graph comes there */
extern int stand_in_early_graph_events;
/* 1: who waits for an event in a graph before the graph comes there sleeps until it is 0 */
extern int stand_in_lost_graph_events;
/* 1: work of a library cannot be captured; so it is with STAND_IN_REFUSES_CAPTURE in the environment */
extern int stand_in_refuse_capture;
int stand_in_max_host_bytes(void); /* page-locked at once, so far */
int stand_in_open_handles(void);   /* what was opened or taken and not given back */

/* What a stream is to do: done now, after what it was given before, or a node of a graph. run(what), then
 * drop(what), which may be NULL; for the first stream. 0, or why it cannot be captured. */
int stand_in_submit(tandem_cuda_stream stream, void (*run)(void *what), void (*drop)(void *what), void *what);

/* A memset of the stream without a name, until something follows on it or somebody waits. */
void stand_in_clear_later(void *memory, int value, uint64_t bytes);
void stand_in_clear_now(void);

/* Around whatever the card does (simt.h, and here). */
void stand_in_enter(void);
void stand_in_leave(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
