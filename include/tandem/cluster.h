/* cluster.h: devices and clusters. */
#ifndef TANDEM_CLUSTER_H
#define TANDEM_CLUSTER_H

#include "tandem/device.h"
#include "tandem/step_options.h"

TANDEM_BEGIN_DECLARATIONS

enum { TANDEM_MAX_CLASS = 32 };

/* What a GPU's datasheet says, from which times are predicted without having it (predictor.h).
 * profiles/devices/cards.def has meaning and source of each member. */
typedef enum tandem_memory_kind { TANDEM_GDDR, TANDEM_HBM } tandem_memory_kind;
typedef struct tandem_gpu_spec {
    /* peak, by operand type; 0 = no units for it */
    double flops_per_s[TANDEM_N_COMPUTE_DTYPE];
    double bytes_per_s; /* peak of its memory */
    double l2_bytes;    /* level-2 cache */
    double watts;       /* limit of the board */
    int process_nm;     /* name of the process that the chip is made in */
    int mhz;            /* boost clock, at which the peaks are reached */
    tandem_memory_kind memory_kind;
    int generation; /* compute capability, 10 · major + minor: its library takes certain tiles */
    int n_sm;       /* multiprocessors; each works on one tile of a product */
} tandem_gpu_spec;

/* The hardware of one worker: an instruction set of this CPU on one core (`cpu:avx2`) or on several
 * (`cpu:avx2:8`), a GPU (`cuda:0`), or a described device (`t4`). */
typedef struct tandem_device {
    char name[TANDEM_DEVICE_NAME];
    char meaning[96];
    unsigned precisions;    /* bit p: it can run precision p */
    tandem_dtype amp_dtype; /* dtype of TANDEM_AMP on this device: bf16 or f16 if that is fast, otherwise
                             * f32 */
    uint64_t memory_bytes;  /* 0 = unknown */
    /* 1: products of 8-bit numbers read both operands along the summed dimension, so that casts also write
     * a transposed copy (step.h): tensor cores */
    int transposed_copy;
    /* 1: kernels of softmax, layernorm and the cross-entropy read and write bf16 and f16, and compute in f32
     * (BY_ROWS in op.def): cuda:N. 0: they read and write f32. So it is with described devices, whose times
     * are held against published ones of frameworks that do so (bench/published.sh) */
    int narrow_rows;
    /* Bit p: attention whose two products have precision p is one kernel, which keeps its scores on the chip
     * (tandem_step_attention in step.h): bf16 and fp16 on cuda:N; on CPUs as cpu.def says */
    unsigned fused_attention;
    /* 1: kernels of some consecutive tasks are one (tandem_step_is_merged in step.h): cuda:N */
    int merged_tasks;
    /* 1: rows of logits begin at multiples of 16 bytes (tandem_step_padded_row in step.h): cuda:N */
    int padded_rows;
    /* 1: narrow copies of weights lie in the memory of the weights' gradients (step_options.h): CPUs */
    int copies_in_gradients;
    tandem_gpu_spec gpu_spec; /* of a described device; all 0 if there are kernels */
} tandem_device;
/* Whether it is a described device. It has no kernels: plans for it can be made and replayed, not run. */
int tandem_device_is_described(const tandem_device *device);
/* Whether it is "torch:" and 1 or more of a-z, 0-9 and ._-: what a framework recorded (record.h). It has
 * costs, but no kernels: plans for it are made here and run there. */
int tandem_device_is_recorded(const char *name);

/* Opens the step program of a graph for the device: tandem_step_open_with (step.h) with its amp_dtype,
 * transposed_copy, narrow_rows, fused_attention, merged_tasks, padded_rows and copies_in_gradients, and
 * gpu_blocks of a card. options NULL = all zero. */
typedef struct tandem_step tandem_step;
tandem_status tandem_device_open_step(tandem_step **step, const tandem_device *device,
                                      const tandem_graph *graph, uint64_t bucket_bytes,
                                      const tandem_step_options *options, tandem_error *error);

/* All known devices: the rows of profiles/devices/cpu.def, weakest first, then those of cards.def. */
int tandem_device_count(void);
const tandem_device *tandem_device_get(int index);
/* By name; also cuda:0, cuda:1, … of any machine, torch:NAME, and a card as tables, nvidia-smi and people
 * write it, such as "V100-PCIe-32GB" (profiles/devices/spellings.def). *device has the row's own name. A
 * CPU's name may have a number of cores, `cpu:avx2:8`, and then *device has it, too, unless it is 1.
 * TANDEM_UNKNOWN_NAME suggests the nearest one, or says which numbers of cores are allowed. */
tandem_status tandem_device_find(tandem_device *device, const char *name, tandem_error *error);
/* A device as typed on a command line: a name, or `strongest` or `weakest`: the last and the first row of
 * profiles/devices/cpu.def that this machine's CPU has. *device has the real name. Files never contain
 * these words; tandem_device_find refuses them. A number of cores may follow, as in `strongest:4`.
 * TANDEM_NO_DEVICE if there is none. */
tandem_status tandem_device_resolve(tandem_device *device, const char *word, tandem_error *error);
/* The cores of a rank on the device of this name: those that the name ends in, else 1. */
int tandem_device_cores(const char *name);
/* Whether this machine can run it (CPUID; its cores are not counted). Never for a described device. */
int tandem_device_is_present(const char *name);
/* TANDEM_NO_DEVICE says what is missing and what this machine has, or what a described device is for. For a
 * GPU only the name is checked; opening a worker shows whether it is there (backend.h). */
tandem_status tandem_device_require(const char *name, tandem_error *error);
/* The two devices of this machine for the demo: the strongest one, and `cpu:avx2_vnni` or else the weakest.
 * Equal if there is only one. */
void tandem_device_demo_pair(const tandem_device **strong, const tandem_device **weak);

/* A connection: a message of n bytes takes latency_ns + n / bytes_per_s, in both directions at once. */
typedef struct tandem_link {
    double bytes_per_s; /* 0 = not given */
    int64_t latency_ns;
} tandem_link;

typedef struct tandem_cluster_class {
    tandem_device device;
    int n_rank;
    int per_node;          /* ranks per node; 0 = all on one node, together with other such classes */
    int64_t batch;         /* local batch; 0 = the command's --batch */
    uint64_t memory_bytes; /* limit per rank; 0 = the device's; 0 there too = none */
    tandem_link link;      /* between two ranks of the class on one node; not given = the cluster's `node` */
    int64_t slowdown_ppm;  /* task times in millionths of the device's; 0 = 1000000 */
} tandem_cluster_class;

typedef struct tandem_cluster {
    int n_class;
    tandem_cluster_class classes[TANDEM_MAX_CLASS];
    /* between nodes: of one node, shared by its ranks; 0 = not given: measured collectives only */
    double link_bytes_per_s;
    int64_t link_latency_ns;
    tandem_link node; /* of each rank, within its node; not given = as between nodes */
    /* 1: ranks of one machine also exchange gradients over the network. Not part of the text; 0 after
     * parsing */
    int over_network;
    /* TANDEM_F32 or TANDEM_BF16: what gradients travel in between ranks. Not part of the text, either */
    tandem_dtype wire;
} tandem_cluster;

/* tandem_cluster_parse: `text` is "DEVICE + DEVICE …" (tandem_device_resolve), or "16*v100@8 + 16*t4@8
 * net=100Gbit/s,5us": COUNT*DEVICE@RANKS_PER_NODE. A class may have batch=N, memory=12GiB, link=600GB/s,1us
 * and slow=1.05 after its device; node=300Gbit/s,2us may be anywhere. Or the name of a JSON file with the
 * same content:
 *   {"schema":"tandem.cluster/1","classes":[{"device":…,"ranks":…,"per_node":…,"batch":…,"memory":"12GiB",
 *   "link":"600GB/s,1us","slow":1.05}],"node":"300Gbit/s,2us","net":"100Gbit/s,5us"}
 * Stragglers: slow=1.1@rank3, anywhere in the text, makes global rank 3 take 1.1 times as long as its
 * device, for every slow= of its class. Ranks are numbered class by class, as written. Equally slow
 * stragglers of a class become a class of their own after it, which renumbers the ranks. RANKS_PER_NODE
 * stays, and may exceed the ranks that are left. TANDEM_USAGE or TANDEM_MALFORMED say where, what was read,
 * what is allowed; TANDEM_UNKNOWN_NAME for a device. *cluster unchanged on error. */
tandem_status tandem_cluster_parse(tandem_cluster *cluster, const char *text, tandem_error *error);
/* Samples of a step of all ranks: each of n_micro micro-steps has the batch of every class; n_micro < 1
 * counts as 1. */
int64_t tandem_cluster_samples(const tandem_cluster *cluster, int n_micro);
/* tandem_cluster_fill_defaults: sets `batch` for classes without one, and the memory limit per rank:
 * "12GiB" for all classes, or "12GiB,4GiB" for each. 0 and NULL change nothing. TANDEM_USAGE; *cluster
 * unchanged on error. */
tandem_status tandem_cluster_fill_defaults(tandem_cluster *cluster, int64_t batch, const char *memory,
                                           tandem_error *error);
/* tandem_cluster_open_graphs: opens the model at the batch of every class into graph[n_class], all or none.
 * Every class must have a batch. The caller closes them. Errors of tandem_graph_open. */
tandem_status tandem_cluster_open_graphs(tandem_graph **graph, const tandem_cluster *cluster,
                                         const char *model, tandem_error *error);
/* Memory limit of a rank of class c in bytes; 0 = none. */
uint64_t tandem_cluster_memory_limit(const tandem_cluster *cluster, int c);
/* The canonical text of a cluster, which parses to the same cluster; cut to fit. */
void tandem_cluster_print(char *text, size_t size, const tandem_cluster *cluster);
int tandem_cluster_n_rank(const tandem_cluster *cluster);
/* tandem_cluster_shard: how its ranks share the training's state in a stage of ZeRO, 0 to 3. shards: "even",
 * NULL as well; the share of a rank in each class, "1,3"; or "fit", which is even until
 * tandem_cluster_fit_shards. TANDEM_USAGE; *sharding unchanged then. */
tandem_status tandem_cluster_shard(tandem_sharding *sharding, const tandem_cluster *cluster, int stage,
                                   const char *shards, tandem_error *error);
/* Whether `tandem train` runs the stage on these devices. */
int tandem_cluster_trains_sharded(const tandem_cluster *cluster, int stage);
int tandem_shards_fit(const char *shards); /* whether that is "fit"; NULL is fine */
/* tandem_cluster_fit_shards: equal shards but where a class has no room for them: it then keeps what fits,
 * and the others keep the rest.
 *   room   of a rank of each class (tandem_step_shard_room)
 *   state  bytes of all state
 * TANDEM_INFEASIBLE: all ranks together lack room; says how much. *sharding unchanged then. */
tandem_status tandem_cluster_fit_shards(tandem_sharding *sharding, const tandem_cluster *cluster,
                                        const tandem_shard_room *room, uint64_t state, tandem_error *error);
/* The cores of all ranks: those of its device (tandem_device_cores) for each. */
int64_t tandem_cluster_n_core(const tandem_cluster *cluster);
/* Whether a device has a precision whose backward products read f16, so that plans may need a loss scale. */
int tandem_cluster_may_need_loss_scale(const tandem_cluster *cluster);
/* The class of a global rank; −1 if there is no such rank. Ranks are numbered class by class. */
int tandem_cluster_class_of(const tandem_cluster *cluster, int rank);
/* Whether its ranks exchange gradients in shared memory: several ranks with kernels, all on one node, not
 * over_network. */
int tandem_cluster_shares_memory(const tandem_cluster *cluster);
/* The key of measured collectives: the sorted names of all ranks' devices, joined by '+', equal ones as
 * N*NAME; then " in shared memory" if they share it, so that times over a network are never taken for it,
 * and " in bf16" where gradients travel so. */
enum { TANDEM_GROUP_KEY_TEXT = TANDEM_MAX_CLASS * (TANDEM_DEVICE_NAME + 12) + 32 };
void tandem_cluster_group_key(char *text, size_t size, const tandem_cluster *cluster);

/* tandem_gradient_wire_find: "f32" or "bf16". TANDEM_UNKNOWN_NAME with the nearest one; *wire unchanged
 * then. */
tandem_status tandem_gradient_wire_find(tandem_dtype *wire, const char *name, tandem_error *error);
/* Bytes of a bucket on their way: its last element, which may carry the loss, stays f32. */
uint64_t tandem_cluster_wire_bytes(const tandem_cluster *cluster, int64_t elements);

/* How ranks all-reduce where no curve was measured. replayer/collective.h has the formulas and sources. */
typedef enum tandem_collective_algorithm {
    TANDEM_RING, /* as tandem's own executor does it */
    TANDEM_TREE, /* two binary trees at once */
    TANDEM_HALVING_DOUBLING,
    TANDEM_HIERARCHICAL, /* within nodes, between nodes, within nodes */
    TANDEM_N_COLLECTIVE_ALGORITHM,
    TANDEM_AUTO = TANDEM_N_COLLECTIVE_ALGORITHM /* whichever of them is fastest for that many bytes */
} tandem_collective_algorithm;
const char *tandem_collective_algorithm_name(tandem_collective_algorithm algorithm); /* "ring", …, "auto" */
/* By name. TANDEM_UNKNOWN_NAME with the nearest one. */
tandem_status tandem_collective_algorithm_find(tandem_collective_algorithm *algorithm, const char *name,
                                               tandem_error *error);

/* Whose kernels a described GPU runs (predictor.h). */
typedef enum tandem_kernel_set {
    TANDEM_KERNELS_TANDEM,       /* its own, fused */
    TANDEM_KERNELS_PYTORCH,      /* PyTorch's without fusion, channels first */
    TANDEM_KERNELS_PYTORCH_NHWC, /* the same in the memory format channels_last */
    TANDEM_N_KERNEL_SET
} tandem_kernel_set;
const char *tandem_kernel_set_name(tandem_kernel_set set); /* "tandem", "pytorch", "pytorch-nhwc" */
/* By name. TANDEM_UNKNOWN_NAME with the nearest one. */
tandem_status tandem_kernel_set_find(tandem_kernel_set *set, const char *name, tandem_error *error);

TANDEM_END_DECLARATIONS
#endif
