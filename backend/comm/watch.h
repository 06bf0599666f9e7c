/* watch.h: a thread that looks every 100 ms whether a collective waits for the dead. Private to backend/comm.
 *
 * Gloo does not wake a thread whose message was half way through a connection that broke; it would wait out
 * its timeout. 100 ms is short beside what a rank takes to die, and the looks cost less than 0.1 permille of
 * a core. */
#ifndef TANDEM_BACKEND_COMM_WATCH_H
#define TANDEM_BACKEND_COMM_WATCH_H

#include "tandem/status.h"

typedef struct tandem_watch tandem_watch;

/* Calls look(context) on a thread of its own, which blocks all signals. *watch is unchanged on error. */
tandem_status tandem_watch_open(tandem_watch **watch, void (*poll)(void *context), void *context,
                                tandem_error *error);
/* Returns when the last look is over. NULL is fine. */
void tandem_watch_close(tandem_watch *watch);

#endif
