/* chakra_trace.h: Chakra execution traces, one per rank, while they become a model of the step; private to
 * trace/. */
#pragma once

#include "base/hash.h"
#include "trace/whatif/whatif_model.h"

enum { CHAKRA_KINDS = 32 /* kinds of nodes that are distinguished */ };

typedef struct chakra_node {
    uint64_t id;
    int64_t start_ns, duration_ns;
    uint64_t group;               /* equal for all parts of a collective or a message; 0 = neither */
    int64_t size;                 /* comm_size; −1 = not given */
    int32_t name, kind, sequence; /* indices into names and kinds; index within its file */
    int32_t first_dep, n_dep;     /* into deps, while the file is read: */
    int32_t n_data;               /* the first n_data are data_deps, the others ctrl_deps */
    int32_t partner;              /* rank at the other end of a message; −1 = no message */
    uint8_t type;
    uint8_t is_over_all_ranks; /* a collective of all ranks, because it names no group */
} chakra_node;

typedef struct chakra_rank {
    const char *path;
    int number, first, end; /* of its nodes */
    int64_t busy_ns;
} chakra_rank;

typedef struct chakra_array { /* a growing array of any type */
    void *of;
    int n, capacity;
} chakra_array;

typedef struct chakra_trace {
    tandem_error *error;
    tandem_arena arena; /* of the names */
    chakra_rank *rank;
    int n_rank, at;                  /* rank that is being read */
    chakra_array nodes, deps, names; /* of chakra_node, uint64_t, const char * */
    /* of tandem_dag_edge, by `after`: data_deps, ctrl_deps, and both together */
    chakra_array edges, control, all;
    chakra_array messages; /* of tandem_dag_edge: the send and the receive of each message */
    int64_t n_missing_control, n_dropped_control; /* ctrl_deps on missing nodes, and on cycles */
    tandem_hash_index table;                      /* of names */
    whatif_label kind[CHAKRA_KINDS];
    int n_kind;
    int *group; /* [n nodes] −1 = no group */
    int n_group;
    int is_out_of_memory; /* set by the allocator given to protobuf-c */
} chakra_trace;

static inline chakra_node *chakra_node_at(const chakra_trace *r, int i)
{
    return (chakra_node *)r->nodes.of + i;
}
static inline const char *chakra_node_name(const chakra_trace *r, int i)
{
    return ((const char *const *)r->names.of)[chakra_node_at(r, i)->name];
}

static inline tandem_status chakra_no_memory(const chakra_trace *r)
{
    return tandem_no_memory(r->error, "to read '%.200s'", r->rank[r->at].path);
}

/* Appends to an array. TANDEM_NO_MEMORY. */
tandem_status chakra_append(const chakra_trace *r, chakra_array *to, const void *one, size_t size);

/* read_chakra.c: reads n files, or n byte arrays if `bytes` is not NULL. Of *trace only `error` is set
 * before. It receives the ranks by number, the nodes of each rank by id, and the dependencies as edges by
 * `after`. Control dependencies on missing nodes are counted and left out. To be closed on error, too. */
tandem_status chakra_trace_read(chakra_trace *trace, const char *const *path, const void *const *bytes,
                                const size_t *n_byte, int n);
void chakra_trace_close(chakra_trace *trace);
