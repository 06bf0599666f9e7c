/* own_process.h: checks of one device in a process of its own, for a process opens one device only. */
#ifndef TANDEM_TESTS_OWN_PROCESS_H
#define TANDEM_TESTS_OWN_PROCESS_H

/* Fails the running test with what `check` printed, where it does not return 0 or does not return at all. */
void own_process_check(int (*check)(const char *device), const char *device);

/* Threads that are more than the cores would wait for each other without letting each other run. OpenMP's
 * library reads how they wait when it is loaded, so the program begins again; it is called first in main. */
void own_process_wait_asleep(char **argv);

#endif
