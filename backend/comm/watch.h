/* watch.h: a thread that checks every 100 ms whether a collective waits for a dead rank, or for too long.
 * Private to backend/comm.
 *
 * It counts how long a collective has waited, because Gloo's own time-outs count time in which this process
 * was stopped (patience.h).
 *
 * Gloo does not wake a thread whose message was half received when the connection broke; the thread would
 * wait for its timeout. A rank takes much longer than 100 ms to die, and the checks cost less than 0.1
 * permille of a core. */
#pragma once

#include <stdint.h>

#include "tandem/status.h"

typedef struct tandem_watch tandem_watch;

/* counted_ns: since the last poll, as far as this process ran. */
typedef void tandem_watch_poll(void *context, int64_t counted_ns);

/* Calls poll on its own thread, which blocks all signals. *watch is unchanged on error. */
tandem_status tandem_watch_open(tandem_watch **watch, tandem_watch_poll *poll, void *context,
                                tandem_error *error);
/* Returns after the last poll. NULL is fine. */
void tandem_watch_close(tandem_watch *watch);
