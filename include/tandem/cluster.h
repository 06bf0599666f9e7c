/* cluster.h: devices, and clusters of them. */
#ifndef TANDEM_CLUSTER_H
#define TANDEM_CLUSTER_H

#include "tandem/device.h"
#include "tandem/step.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum { TANDEM_MAX_CLASS = 32 };

/* What is known of a card without having it: profiles/devices/cards.def says each member's meaning and
 * source. Times are predicted from it (predictor.h). */
typedef struct tandem_gpu_spec {
    /* peak, by type in which operands are multiplied; 0 = it has no units for that */
    double flops_per_s[TANDEM_N_COMPUTE_DTYPE];
    double compute_efficiency[TANDEM_N_COMPUTE_DTYPE]; /* share of it that large products reach */
    double bytes_per_s;                                /* peak of its memory */
    double memory_efficiency;                          /* share of it that streaming kernels reach */
    int64_t launch_ns;                                 /* from one small kernel to the next */
    int n_sm; /* multiprocessors, each of which works on one tile of a product */
} tandem_gpu_spec;

/* One worker's hardware: an instruction set of this CPU (`cpu:avx2`), a card, or a described model (`t4`). */
typedef struct tandem_device {
    char name[TANDEM_DEVICE_NAME];
    char meaning[96];
    unsigned precisions;    /* bit p: it can run precision p */
    tandem_dtype amp_dtype; /* what TANDEM_AMP means on it: bf16 or f16 where that is fast, else f32 */
    uint64_t memory_bytes;  /* 0 = not known */
    /* 1: products of numbers of a byte take both operands along the dimension that they sum over, so that
     * casts write column-wise copies (step.h): the tensor units of cards */
    int transposed_copy;
    tandem_gpu_spec gpu_spec; /* of a described model; all 0 where there are kernels instead */
} tandem_device;
/* Whether it is a described model: there are no kernels for it, so that plans for it can be made and
 * replayed, not run. */
int tandem_device_is_described(const tandem_device *device);

/* The step program of a graph as it is laid out for the device: tandem_step_open_with (step.h) with its
 * `wider` and `columnwise`; options NULL = all zero. */
tandem_status tandem_device_open_step(tandem_step **step, const tandem_device *device,
                                      const tandem_graph *graph, uint64_t bucket_bytes,
                                      const tandem_step_options *options, tandem_error *error);

/* Every device tandem knows: the rows of profiles/devices/cpu.def, weakest first, and those of cards.def. */
int tandem_device_count(void);
const tandem_device *tandem_device_get(int index);
/* By name; also cuda:0, cuda:1, …, whether they are here or not. TANDEM_UNKNOWN_NAME with the nearest one. */
tandem_status tandem_device_find(tandem_device *device, const char *name, tandem_error *error);
/* As a person names it on a command line: by name, or `strongest` or `weakest`: of the rows of
 * profiles/devices/cpu.def, weakest first, the last and the first that the CPU of this machine has; both the
 * same where it has one only. The device has its name; files never hold these words, and tandem_device_find
 * refuses them. TANDEM_NO_DEVICE where there is none. */
tandem_status tandem_device_resolve(tandem_device *device, const char *word, tandem_error *error);
/* Whether this machine can run it (CPUID). Never of a described model. */
int tandem_device_is_present(const char *name);
/* TANDEM_NO_DEVICE naming what is missing and what this machine has, or what can be done with a described
 * model. Of a card only whether it can be named: opening a worker says whether it is there (backend.h). */
tandem_status tandem_device_require(const char *name, tandem_error *error);
/* The two ends of this machine that the demo trains on: the strongest device, and `cpu:avx2_vnni` where it is
 * there, else the weakest. Both the same where there is one only. */
void tandem_device_demo_pair(const tandem_device **strong, const tandem_device **weak);

/* A connection over which a message of n bytes takes latency_ns + n / bytes_per_s, in either direction at
 * once. */
typedef struct tandem_link {
    double bytes_per_s; /* 0 = not given */
    int64_t latency_ns;
} tandem_link;

typedef struct tandem_cluster_class {
    tandem_device device;
    int n_rank;
    int per_node;          /* ranks a node; 0 = all on one, with all others of which that is said */
    int64_t batch;         /* local; 0 = the command's --batch */
    uint64_t memory_bytes; /* limit a rank; 0 = the device's, 0 there too = none */
    tandem_link link;      /* between two ranks of the class on one node; not given = the cluster's `node` */
    int64_t slowdown_ppm;  /* how long its tasks take, of what the device's take; 0 = 1000000: as long */
} tandem_cluster_class;

typedef struct tandem_cluster {
    int n_class;
    tandem_cluster_class classes[TANDEM_MAX_CLASS];
    /* between nodes: of one node, shared by its ranks; 0 = not given: measured collectives only */
    double link_bytes_per_s;
    int64_t link_latency_ns;
    tandem_link node; /* of each rank, within its node; not given = as between nodes */
    /* 1: ranks of one machine exchange gradients over the network, too. Of no text; 0 after parse */
    int over_network;
} tandem_cluster;

/* tandem_cluster_parse: `text` is "DEVICE + DEVICE …", as tandem_device_resolve takes them, or "16*v100@8 +
 * 16*t4@8 net=100Gbit/s,5us" (COUNT*DEVICE@RANKS_A_NODE), each class with optional batch=N, memory=12GiB,
 * link=600GB/s,1us and slow=1.05 behind its device, node=300Gbit/s,2us anywhere; or the name of a JSON file
 * of that content ({"schema":"tandem.cluster/1","classes":
 * [{"device":…,"ranks":…,"per_node":…,"batch":…,"memory":"12GiB","link":"600GB/s,1us","slow":1.05}],"node":"300Gbit/s,2us",
 * "net":"100Gbit/s,5us"}). Stragglers: slow=1.1@rank3, anywhere in the text, makes global rank 3 (ranks are
 * numbered class by class, as written) take 1.1 times as long as its device does, whatever its class's slow=.
 * Equally slow stragglers of a class become a class of their own right behind it, which renumbers the ranks;
 * RANKS_A_NODE stays, and may be more than the ranks that are left. TANDEM_USAGE or TANDEM_MALFORMED say
 * where, what was read, what is allowed; TANDEM_UNKNOWN_NAME for a device. *cluster unchanged on error. */
tandem_status tandem_cluster_parse(tandem_cluster *cluster, const char *text, tandem_error *error);
/* tandem_cluster_fill_defaults: what a cluster's text may leave open: `batch` where a class has none, and the
 * limit of a rank's memory, "12GiB" for all classes or "12GiB,4GiB", one for each, instead of what they have;
 * 0 and NULL leave them alone. TANDEM_USAGE; *cluster unchanged on error. */
tandem_status tandem_cluster_fill_defaults(tandem_cluster *cluster, int64_t batch, const char *memory,
                                           tandem_error *error);
/* tandem_cluster_open_graphs: the model at the batch of every class, which must have one: graph[n_class], all
 * or none. The caller closes them. Errors of tandem_graph_open. */
tandem_status tandem_cluster_open_graphs(tandem_graph **graph, const tandem_cluster *cluster,
                                         const char *model, tandem_error *error);
/* Bytes that a rank of class c may take; 0 = no limit. */
uint64_t tandem_cluster_memory_limit(const tandem_cluster *cluster, int c);
/* The canonical string of a cluster, from which tandem_cluster_parse makes the same one; cut to fit. */
void tandem_cluster_print(char *text, size_t size, const tandem_cluster *cluster);
int tandem_cluster_n_rank(const tandem_cluster *cluster);
/* The class of a global rank: ranks are numbered class by class. −1 where there is no such rank. */
int tandem_cluster_class_of(const tandem_cluster *cluster, int rank);
/* Whether its ranks exchange gradients in memory that they share: more than one, all of them CPUs and cards
 * that kernels run on, all of one node, not over_network. */
int tandem_cluster_shares_memory(const tandem_cluster *cluster);
/* Under which collectives are filed: names of all ranks' devices, sorted, joined by '+', equal ones as
 * N*NAME; and behind them " in shared memory" where they share it, so that what was measured over a network
 * is never taken for it. */
enum { TANDEM_GROUP_KEY_TEXT = TANDEM_MAX_CLASS * (TANDEM_DEVICE_NAME + 12) + 24 };
void tandem_cluster_group_key(char *text, size_t size, const tandem_cluster *cluster);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
