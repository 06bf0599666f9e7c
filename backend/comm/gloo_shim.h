/* gloo_shim.h: the part of Gloo that tandem uses, in C. Private to backend/comm.
 *
 * A mesh is one Gloo device (TCP, with a thread of Gloo's own) and one context (a connection to every other
 * rank, which mesh.c makes: Gloo takes any stranger for a rank). Data moves through buffers: recv() and
 * send() only post messages; wait_received() and wait_sent() block in the kernel. No exception leaves this
 * file: each becomes a result and a text.
 *
 * Why not gloo::allreduce(): Gloo's thread and the posting thread share one lock per connection, and Gloo's
 * thread does not wait for that lock but polls the kernel until it gets it. A rank pins both to one core, so
 * the polling uses up the poster's time slice: an all-reduce of 4 KiB takes 4.0 ms, all of it CPU time,
 * against 0.09 ms here. A posting thread therefore holds Gloo's thread meanwhile (hold, release), which
 * Gloo's own collectives do not do. ring.c builds them from send and receive instead.
 *
 * Why slots contain sizes (collectives.c): when a message is longer than the buffer posted for it, Gloo
 * throws in its own thread, which ends the process. With its size in the slot, such a message finds no buffer
 * and times out. */
#pragma once

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
    TANDEM_GLOO_FAILED /* the text gives the reason */
} tandem_gloo_result;

/* Filled by every call that does not return TANDEM_GLOO_OK: Gloo's own text without its source line. */
enum { TANDEM_GLOO_ERROR_TEXT = 400 };
typedef struct tandem_gloo_error {
    char text[TANDEM_GLOO_ERROR_TEXT];
} tandem_gloo_error;

/* Starts Gloo's thread, which inherits the caller's core and signal mask. `interface`: a network interface's
 * name; NULL = the loopback address. *gloo is unchanged on error. */
tandem_gloo_result tandem_gloo_open(tandem_gloo **gloo, const char *interface, tandem_gloo_error *reason);

/* Takes over the connections that mesh.c has made: file[n_rank], of which the caller closes its own
 * descriptors afterwards. Once. */
tandem_gloo_result tandem_gloo_connect(tandem_gloo *gloo, const int *file, int rank, int n_rank,
                                       tandem_gloo_error *reason);

/* Called every 100 ms: `ns` more have passed for all threads that wait. Where that exceeds a wait's timeout,
 * it fails, and the mesh is aborted. */
void tandem_gloo_count_wait(tandem_gloo *gloo, int64_t ns);

/* Wakes every thread that waits on this mesh; all later waits fail. When a connection breaks, Gloo wakes
 * these threads itself, except those whose message was half received: hence watch.h. */
void tandem_gloo_abort(tandem_gloo *gloo);

/* Aborts and ends every connection, so that the other ranks notice. Only after a failure: data that was sent
 * but not received is lost. NULL is fine. */
void tandem_gloo_break(tandem_gloo *gloo);

/* Data that was sent still arrives. All buffers must be closed. NULL is fine. Takes some 10 ms per
 * connection. */
void tandem_gloo_close(tandem_gloo *gloo);

/* A view of the caller's memory, to send from and receive into. *buffer is unchanged on error. */
tandem_gloo_result tandem_gloo_buffer_open(tandem_gloo_buffer **buffer, tandem_gloo *gloo, void *data,
                                           size_t bytes, tandem_gloo_error *reason);
/* Drops messages that are still posted; the memory is not touched afterwards. NULL is fine. */
void tandem_gloo_buffer_close(tandem_gloo_buffer *buffer);

/* "Gloo 0.5.0", the version it was compiled with. */
const char *tandem_gloo_version(void);

/* Called around recv() and send(): keep Gloo's thread from polling the connections' locks. Several threads
 * may hold. */
void tandem_gloo_hold(tandem_gloo *gloo);
void tandem_gloo_release(tandem_gloo *gloo);

/* Messages between two ranks match by slot, and within a slot in the order of posting. Both sides give the
 * same number of bytes (> 0). */
tandem_gloo_result tandem_gloo_recv(tandem_gloo_buffer *buffer, int from, uint64_t slot, size_t offset,
                                    size_t bytes, tandem_gloo_error *reason);
tandem_gloo_result tandem_gloo_send(tandem_gloo_buffer *buffer, int to, uint64_t slot, size_t offset,
                                    size_t bytes, tandem_gloo_error *reason);

/* Block until the next posted message of this buffer has arrived, or was passed to the kernel. The timeout is
 * counted by tandem_gloo_count_wait. */
tandem_gloo_result tandem_gloo_wait_received(tandem_gloo_buffer *buffer, int64_t timeout_ms,
                                             tandem_gloo_error *reason);
tandem_gloo_result tandem_gloo_wait_sent(tandem_gloo_buffer *buffer, int64_t timeout_ms,
                                         tandem_gloo_error *reason);

#ifdef __cplusplus
}
#endif
