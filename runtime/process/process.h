/* process.h: what a command does with its own process: standard files, signals and children, cores. */
#pragma once
#include <sched.h>
#include <stddef.h>
#include <sys/types.h>

#include "tandem/status.h"

/* --- Standard files (standard_files.c) ------------------------------------------------------------------ */
/* Opens those of descriptors 0 to 2 that the parent closed, so that no other file gets their numbers, and a
 * descriptor of its own for results. Before anything else is opened. 0, or errno. */
int cli_standard_files_open(void);
/* From here on, what libraries print on standard output goes to stderr: only results are there. */
void cli_standard_output_protect(void);
/* The descriptor of results: standard output of a child that is to print ours. */
int cli_result_descriptor(void);

/* --- Signals and children (children.c) ------------------------------------------------------------------ */
/* A signal that ends this command first removes its scratch files, ends its children and says so. SIGINT,
 * SIGQUIT and SIGTERM do so even where the parent ignores them, as a shell does for background jobs. The
 * others that it ignores stay ignored, as nohup wants of SIGHUP. At the start of the program.
 * clear_line: runs in the handler before it says what ends the command; NULL: nothing. */
void signals_begin(void (*clear_line)(void));
/* Until children_end, this process has children. A signal that would end it ends them, and is noted. */
void children_begin(void);
/* Whether such a signal came: what is under way is to end. */
int children_are_ending(void);
/* The same as if this signal had come. */
void children_end_by(int number);
/* fork. The child ends with its parent and says nothing of the signal that ends it. 0 in the child, else its
 * index: 1 for the first child since children_begin, and so on. −1: errno says why. */
int child_fork(void);
/* A child that was started otherwise, and that it has been waited for. Call child_add with all signals
 * blocked, in the same span as the start. */
void child_add(pid_t pid);
void child_remove(pid_t pid);
/* In a program that a parent started so: it ends with its parent. Before the signals begin. */
void child_follow_parent(void);
/* Waits for any child. Returns its index, and how it ended (waitpid); 0: none is left. */
int child_wait(int *state);
/* Ends all children; they are still to be waited for. */
void children_terminate(void);
/* After the last child. If a signal was noted, it ends this process now. */
void children_end(void);
/* "SIGTERM". Valid until the next call. */
const char *signal_name(int number);

/* --- Cores (cores.c) ------------------------------------------------------------------------------------ */
/* A core that this process has taken. Other runs on this host see that it is taken, until the last process
 * that has `lock` open ends. */
typedef struct taken_core {
    int cpu;     /* −1 = any: the process may run on cores that cannot be named */
    int lock;    /* a descriptor; −1 = it could not be locked */
    int n_other; /* how many others had taken this core before; they share it */
    int beside; /* a core whose thread is of the same physical core, and which another has taken; −1 = none */
} taken_core;

/* The cores that this process may use, and which are threads of one physical core. */
typedef struct usable_cores {
    int n, order[CPU_SETSIZE]; /* one thread of each physical core first */
    int sibling[CPU_SETSIZE];  /* of every core, usable or not: the first thread of its physical core */
    int node[CPU_SETSIZE]; /* of every core: the NUMA node of its memory; 0 where the system reports none */
} usable_cores;
/* n = 0: the system does not report them. */
void cores_read(usable_cores *cores);
/* Fills in n and order, from sibling. */
void cores_order(usable_cores *cores, const cpu_set_t *usable);
/* Takes the least taken of these cores; of those, one whose physical core is free, if there is one; of those
 * the first from order[first] on. */
void core_take(taken_core *core, const usable_cores *of, int first);
void core_release(taken_core *core);
/* Takes n cores for one process, each as core_take does: all of one NUMA node if one has n physical cores
 * that are free, else n threads that are; else of all nodes. core_take, and the same core, for n = 1. */
void cores_take(taken_core *core, int n, const usable_cores *of, int first);
/* "TANDEM_CORE=…": what gives n cores to a program that keeps their locks open; "" where it has none. Cut
 * to fit: CORES_NAME bytes a core are enough. */
enum { CORES_NAME = 32 };
void cores_name(const taken_core *core, int n, char *text, size_t size);
/* The n cores of this process, for all that it runs: those that its parent gave, else it takes them, once.
 * NULL: no memory. */
const taken_core *cores_own(int n, int first);
/* The whole cores whose time a process may take by the quotas of its control groups, at least 1; 0 = there
 * is no quota. root: what precedes /proc and /sys, "" but in tests (core_quota.c). */
int cores_quota(const char *root);
/* Whether n_core threads can run here, each on a core of its own. *allowed: how
 * many cores this process may use, and *why: what allows no more; 0 = the system does not report it. */
int cores_suffice(int n_core, int *allowed, const char **why);
/* This process gives its own cores back, and may run again wherever it might before it took one. */
void core_forget(void);
/* Takes away the variables by which OpenMP's library binds threads to cores, as soon as it is opened. */
void openmp_forget(void);

/* --- Scratch files (scratch_files.c) -------------------------------------------------------------------- */
/* Registers a file of the working directory: a signal that ends the command removes it. At most 16 files,
 * names of at most 39 characters; not for several threads. */
void scratch_file_add(const char *path);
void scratch_file_remove(const char *path);
/* mkstemps, and registers the file before a signal can come. */
int scratch_file_make(char *name, int n_suffix);
/* In a handler of signals: removes those that are registered. */
void scratch_files_unlink(void);
/* In a child: they are its parent's. */
void scratch_files_forget(void);

/* An empty file of JSON in the working directory, as a scratch file; the caller removes it. Writes its name
 * to `path`. TANDEM_IO. */
enum { SCRATCH_JSON = 32 };
tandem_status scratch_json_make(char path[SCRATCH_JSON], tandem_error *error);

/* An empty store in the working directory, as a scratch file; the caller removes it. Writes its name to
 * `path`. TANDEM_IO. */
enum { SCRATCH_STORE = 32 };
tandem_status scratch_store_make(char path[SCRATCH_STORE], tandem_error *error);
void scratch_store_remove(const char *path);
