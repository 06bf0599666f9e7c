/* chakra_trace.h: execution traces of MLCommons Chakra, one a rank, while they become a model of the step;
 * private to replayer/. */
#ifndef TANDEM_REPLAYER_CHAKRA_TRACE_H
#define TANDEM_REPLAYER_CHAKRA_TRACE_H

#include "trace/whatif/whatif_model.h"

enum { CHAKRA_KINDS = 32 /* most kinds of nodes that are told apart */ };

typedef struct chakra_node {
    uint64_t id;
    int64_t start_ns, duration_ns;
    uint64_t group; /* what is alike in the parts of a collective or a message; 0: stands alone */
    int64_t size;   /* comm_size; −1 = not said */
    int32_t name, kind, sequence; /* places in the tables of names and kinds; among the nodes of its file */
    int32_t first_dep, n_dep;     /* while its file is read */
    int32_t partner;              /* rank number at the other end of a message; −1: it is none */
    uint8_t type;
    uint8_t is_over_all_ranks; /* a collective of all ranks: it names no group of them */
} chakra_node;

typedef struct chakra_rank {
    const char *path;
    int number, first, end; /* its nodes */
    int64_t busy_ns;
} chakra_rank;

typedef struct chakra_name {
    uint64_t hash;
    const char *text;
} chakra_name;

typedef struct chakra_array { /* of anything */
    void *of;
    int n, capacity;
} chakra_array;

typedef struct chakra_trace {
    tandem_error *error;
    tandem_arena arena; /* names */
    chakra_rank *rank;
    int n_rank, at;                         /* at: the one that is being read */
    chakra_array nodes, deps, edges, names; /* of chakra_node, uint64_t, tandem_dag_edge, chakra_name */
    int *table;                             /* of names by hash: place + 1 */
    int table_capacity;
    whatif_label kind[CHAKRA_KINDS];
    int n_kind;
    int *group; /* [n nodes] −1 = alone */
    int n_group;
    int is_out_of_memory; /* set by the allocator that protobuf-c is given */
} chakra_trace;

static inline chakra_node *chakra_node_at(const chakra_trace *r, int i)
{
    return (chakra_node *)r->nodes.of + i;
}
static inline const char *chakra_node_name(const chakra_trace *r, int i)
{
    return ((const chakra_name *)r->names.of)[chakra_node_at(r, i)->name].text;
}

static inline tandem_status chakra_no_memory(const chakra_trace *r)
{
    return tandem_no_memory(r->error, "to read '%.200s'", r->rank[r->at].path);
}

/* read_chakra.c: reads n files, or as many bytes in memory where `bytes` is not NULL. *job, of which only
 * `error` is set, gets its ranks by number, the nodes of each by id, and what they depend on as edges, which
 * stand in the order of those who wait. It is to be closed on error, too. */
tandem_status chakra_trace_read(chakra_trace *trace, const char *const *path, const void *const *bytes,
                                const size_t *n_byte, int n);
void chakra_trace_close(chakra_trace *trace);

#endif
