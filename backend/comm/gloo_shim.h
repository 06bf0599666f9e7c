/* gloo_shim.h: the part of Gloo that tandem uses, in C. Private to backend/comm.
 *
 * A mesh is one Gloo device (TCP, one thread of Gloo's own) and one context (a connection to every other
 * rank). Data moves through buffers: recv() and send() only post, wait_received() and wait_sent() block, in
 * the kernel. Nothing throws across this border: every exception becomes a result and a text.
 *
 * Why no gloo::allreduce(): Gloo's thread and the thread that posts take turns on a lock for each connection,
 * and Gloo's thread does not wait for it: it asks the kernel again, at once, until it gets it. Where both
 * share a core (a rank pinned to its core) that burns the poster's time slice: 4.0 ms for an all-reduce of 4
 * KiB, all of it CPU time, against 0.09 ms here. So whoever posts holds Gloo's thread still meanwhile (hold,
 * release), which gloo's own collectives do not; ring.c builds them from send and receive instead.
 *
 * And why slots are made from sizes (comm.c): when a message is longer than the buffer posted for it, Gloo
 * throws in its own thread, which ends the process. With the size in the slot such a message finds no buffer,
 * and times out. */
#ifndef TANDEM_BACKEND_COMM_GLOO_SHIM_H
#define TANDEM_BACKEND_COMM_GLOO_SHIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tandem_gloo tandem_gloo;
typedef struct tandem_gloo_buffer tandem_gloo_buffer;

typedef enum tandem_gloo_result {
    TANDEM_GLOO_OK,
    TANDEM_GLOO_NO_MEMORY,
    TANDEM_GLOO_FAILED /* the text says why */
} tandem_gloo_result;

/* Filled by every call that does not return TANDEM_GLOO_OK; Gloo's own words, without its source line. */
enum { TANDEM_GLOO_ERROR_TEXT = 400 };
typedef struct tandem_gloo_error {
    char text[TANDEM_GLOO_ERROR_TEXT];
} tandem_gloo_error;

/* Starts Gloo's thread: it inherits core and signal mask of the caller. `interface`: a network interface by
 * name, NULL = the loopback address. *gloo is unchanged on error. */
tandem_gloo_result tandem_gloo_open(tandem_gloo **gloo, const char *interface, tandem_gloo_error *reason);

/* Connects to all other ranks, once. Each must be on its way: waits up to timeout_ms for a key in the
 * directory `store` and up to five times as long for a connection. */
tandem_gloo_result tandem_gloo_connect(tandem_gloo *gloo, const char *store, int rank, int n_rank,
                                       int64_t timeout_ms, tandem_gloo_error *reason);

/* Wakes every thread that waits on this mesh; from now on every wait fails. Gloo wakes them itself when a
 * connection breaks, except those whose message is half way through it: hence watch.h. */
void tandem_gloo_abort(tandem_gloo *gloo);

/* Aborts, and ends every connection, so that the other ranks notice. Only after a failure: what was sent but
 * not yet received is lost. NULL is fine. */
void tandem_gloo_break(tandem_gloo *gloo);

/* Data already sent still arrives. All buffers must be closed. NULL is fine. Takes some 10 ms a connection.
 * */
void tandem_gloo_close(tandem_gloo *gloo);

/* A view of the caller's memory, to send from and receive into. *buffer is unchanged on error. */
tandem_gloo_result tandem_gloo_buffer_open(tandem_gloo_buffer **buffer, tandem_gloo *gloo, void *data,
                                           size_t bytes, tandem_gloo_error *reason);
/* Messages still posted are dropped; the memory is not touched after. NULL is fine. */
void tandem_gloo_buffer_close(tandem_gloo_buffer *buffer);

/* "Gloo 0.5.0", as compiled. */
const char *tandem_gloo_version(void);

/* Around recv() and send(): keeps Gloo's thread from spinning on the connections' locks. Several threads may
 * hold. */
void tandem_gloo_hold(tandem_gloo *gloo);
void tandem_gloo_release(tandem_gloo *gloo);

/* Messages between two ranks match by slot, and within a slot in the order of posting; both sides name the
 * same number of bytes (> 0). */
tandem_gloo_result tandem_gloo_recv(tandem_gloo_buffer *buffer, int from, uint64_t slot, size_t offset,
                                    size_t bytes, tandem_gloo_error *reason);
tandem_gloo_result tandem_gloo_send(tandem_gloo_buffer *buffer, int to, uint64_t slot, size_t offset,
                                    size_t bytes, tandem_gloo_error *reason);

/* Block until the next posted message of this buffer has arrived, or has been handed to the kernel. */
tandem_gloo_result tandem_gloo_wait_received(tandem_gloo_buffer *buffer, int64_t timeout_ms,
                                             tandem_gloo_error *reason);
tandem_gloo_result tandem_gloo_wait_sent(tandem_gloo_buffer *buffer, int64_t timeout_ms,
                                         tandem_gloo_error *reason);

#ifdef __cplusplus
}
#endif
#endif
