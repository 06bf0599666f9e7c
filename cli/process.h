/* process.h: what a command does with its own process: standard files, signals and children, cores. */
#pragma once
#include <sched.h>
#include <stddef.h>

/* --- Standard files (standard_files.c) ------------------------------------------------------------------ */
/* Opens those of descriptors 0 to 2 that the parent closed, so that no other file gets their numbers, and a
 * descriptor of its own for results. Before anything else is opened. 0, or errno. */
int cli_standard_files_open(void);
/* From here on, what libraries print on standard output goes to stderr: results stand there alone. */
void cli_standard_output_protect(void);
/* The descriptor of results: standard output of a child that is to print ours. */
int cli_result_descriptor(void);

/* --- Signals and children (children.c) ------------------------------------------------------------------ */
/* A signal that ends this command first removes its scratch files, ends its children and says so. SIGINT,
 * SIGQUIT and SIGTERM do so even where the parent ignores them, as a shell does for background jobs. The
 * others that it ignores stay ignored, as nohup wants of SIGHUP. At the start of the program. */
void cli_signals_begin(void);
/* Until cli_children_end, this process has children. A signal that would end it ends them, and is noted. */
void cli_children_begin(void);
/* Whether such a signal came: what is under way is to end. */
int cli_is_ending(void);
/* The same as if this signal had come. */
void cli_end_by(int number);
/* fork. The child ends with its parent and says nothing of the signal that ends it. 0 in the child, else its
 * index: 1 for the first child since cli_children_begin, and so on. −1: errno says why. */
int cli_child_fork(void);
/* Waits for any child. Returns its index, and how it ended (waitpid); 0: none is left. */
int cli_child_wait(int *state);
/* Ends all children; they are still to be waited for. */
void cli_children_terminate(void);
/* Behind the last child. If a signal was noted, it ends this process now. */
void cli_children_end(void);
/* "SIGTERM". Valid until the next call. */
const char *cli_signal_name(int number);

/* --- Cores (cores.c) ------------------------------------------------------------------------------------ */
/* A core that this process has taken. Other runs on this host see that it is taken, until the last process
 * that has `lock` open ends. */
typedef struct cli_core {
    int cpu;     /* −1 = any: the process may run on cores that cannot be named */
    int lock;    /* a descriptor; −1 = it could not be locked */
    int n_other; /* how many others had taken this core before; they share it */
    int beside; /* a core whose thread is of the same physical core, and which another has taken; −1 = none */
} cli_core;

/* The cores that this process may use, and which are threads of one physical core. */
typedef struct cli_cores {
    int n, order[CPU_SETSIZE]; /* one thread of each physical core first */
    int sibling[CPU_SETSIZE];  /* of every core, usable or not: the first thread of its physical core */
} cli_cores;
/* n = 0: the system does not tell. */
void cli_cores_read(cli_cores *cores);
/* Fills in n and order, from sibling. */
void cli_cores_order(cli_cores *cores, const cpu_set_t *usable);
/* Takes the least taken of these cores; of those, one whose physical core is free, if there is one; of those
 * the first from order[first] on. */
void cli_core_take(cli_core *core, const cli_cores *of, int first);
void cli_core_release(cli_core *core);
/* Gives a core to the program that this process becomes by exec. */
void cli_core_bequeath(const cli_core *core);
/* The core of this process, for all that it runs: that which its parent gave, else it takes one, once. */
const cli_core *cli_core_own(int first);
/* This process gives its own core back, and may run again wherever it might before it took one. */
void cli_core_forget(void);
/* Takes away the variables by which OpenMP's library binds threads to cores, as soon as it is opened. */
void cli_openmp_forget(void);
