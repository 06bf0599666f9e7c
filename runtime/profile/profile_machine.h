/* profile_machine.h: how steady the machine is while a device is profiled. */
#ifndef TANDEM_RUNTIME_PROFILE_MACHINE_H
#define TANDEM_RUNTIME_PROFILE_MACHINE_H

#include "runtime/profile/profile_samples.h"

typedef struct profile_machine {
    tandem_speed_sample steady;        /* to which costs are brought */
    tandem_speed_sample stored;        /* that of an earlier profile of this host; 0 = none */
    tandem_speed_sample *speed_sample; /* [n] one a step */
    int64_t n, capacity;
    int64_t steps_ns, delays_ns;  /* of all steps; delays −1 = unknown */
    tandem_machine_counts before; /* when it was opened */
} profile_machine;

/* profile_machine_open: with the steady speed sample of the store, if an earlier profile of this host left
 * one. Errors of the store. */
tandem_status profile_machine_open(profile_machine *machine, tandem_store *store, const char *device,
                                   const char *co_runner, tandem_error *error);
void profile_machine_free(profile_machine *machine);
/* Adds a step. TANDEM_NO_MEMORY. */
tandem_status profile_machine_add(profile_machine *machine, const step_watch *watch, int64_t step_ns,
                                  tandem_error *error);
/* Sets the steady speed sample: that of an earlier profile, or the median of the speed samples so far.
 * An earlier one whose arithmetic is more than 30 % off was of another machine. Without memory where that is
 * unreliable. */
void profile_machine_settle(profile_machine *machine);
/* At least one step was added. */
tandem_steadiness profile_machine_summary(profile_machine *machine, double interval_share);
/* Keeps in *worse, all zero at first, the larger of each spread and share. */
void profile_keep_worse(tandem_steadiness *worse, const tandem_steadiness *other);

/* Half the interval of a plan's step over its time, both as sums over tasks: that of the rounds' sums, each
 * task with its median of the round. Rounds in which a tenth of the time was not measured are left out; NaN
 * for fewer than two. key_of[n_task]: −1 = not timed. */
double profile_interval_share(const key_samples *key, const int *key_of, int n_task);

#endif
