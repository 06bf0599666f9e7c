/* thread.h: starts the threads of backend/comm. */
#pragma once

#include <pthread.h>

/* Starts a thread on core `cpu` (-1 = any) with every signal blocked: signals are for the application's
 * threads. Returns 0 or the error number of pthread_create. */
int tandem_thread_start(pthread_t *thread, int cpu, void *(*run)(void *), void *argument);
