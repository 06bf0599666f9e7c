/* read_chakra.c: reads MLCommons Chakra execution traces (profiles/format/chakra.proto), one file per rank:
 * nodes and their dependencies. */
#include "trace/reader/chakra_trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "profiles/format/chakra.h"
#include "profiles/format/chakra.pb-c.h"
#include "trace/reader/read_input.h"

enum { MAX_NODES = 1 << 27 };

tandem_status chakra_append(const chakra_trace *r, chakra_array *to, const void *one, size_t size)
{
    void *const more = tandem_grow(to->of, &to->capacity, to->n, size, MAX_NODES);
    if (!more) return chakra_no_memory(r);
    to->of = more;
    memcpy((char *)to->of + (size_t)to->n++ * size, one, size);
    return TANDEM_OK;
}

/* --- Names and kinds ------------------------------------------------------------------------------------ */

static uint64_t hash_integer(uint64_t hash, int64_t value)
{
    return (hash ^ (uint64_t)value) * UINT64_C(0x9e3779b97f4a7c15) + (hash >> 29);
}

static tandem_status find_or_add_name(chakra_trace *r, const char *text, int32_t *index)
{
    const uint64_t hash = tandem_hash_text(TANDEM_HASH_START, text);
    *index = tandem_hash_index_find(&r->table, hash);
    if (*index >= 0) return TANDEM_OK;
    const char *const name = tandem_arena_text(&r->arena, text);
    if (!name || !tandem_hash_index_add(&r->table, hash, r->names.n)) return chakra_no_memory(r);
    *index = r->names.n;
    return chakra_append(r, &r->names, &name, sizeof name);
}

/* Names reach errors and files: control characters become question marks. */
static void make_printable(char *text)
{
    for (; *text; text++)
        if (*text < 0x20 || *text == 0x7f) *text = '?';
}

/* Kinds that do not fit share the last row. */
static int32_t find_or_add_kind(chakra_trace *r, const char *text)
{
    for (int k = 0; k < r->n_kind; k++)
        if (strncmp(r->kind[k].text, text, sizeof r->kind[k].text - 1) == 0) return k;
    if (r->n_kind == CHAKRA_KINDS) return CHAKRA_KINDS - 1;
    if (r->n_kind == CHAKRA_KINDS - 1) text = "other";
    (void)snprintf(r->kind[r->n_kind].text, sizeof r->kind->text, "%s", text);
    return r->n_kind++;
}

/* The kind of a node without an attribute `kind`. */
static const char *default_kind_name(int type, int64_t comm_type)
{
    static const char *const types[] = {"node",    "metadata", "memory load", "memory store",
                                        "compute", "send",     "receive",     "collective",
                                        "storage", "batch",    "checkpoint"};
    static const char *const collectives[] = {"all-reduce",     "reduce",    "all-gather", "gather",
                                              "scatter",        "broadcast", "all-to-all", "reduce-scatter",
                                              "reduce-scatter", "barrier"};
    if (type == TANDEM_CHAKRA_COLLECTIVE && comm_type >= 0 &&
        comm_type < (int64_t)(sizeof collectives / sizeof *collectives))
        return collectives[comm_type];
    return type >= 0 && type < (int)(sizeof types / sizeof *types) ? types[type] : "node";
}

/* --- Messages ------------------------------------------------------------------------------------------- */

static void *alloc_for_protobuf(void *data, size_t n)
{
    void *const made = malloc(n);
    if (!made) ((chakra_trace *)data)->is_out_of_memory = 1;
    return made;
}

static void free_for_protobuf(void *data, void *memory)
{
    (void)data;
    free(memory);
}

static int by_node_id(const void *left, const void *right)
{
    const chakra_node *const a = left, *const b = right;
    const int order = (a->id > b->id) - (a->id < b->id);
    return order ? order : (a->sequence > b->sequence) - (a->sequence < b->sequence);
}

/* Sorts the file's nodes by id; an id may occur only once. Nodes usually arrive in order. */
static tandem_status sort_chakra_nodes(const chakra_trace *r)
{
    const int first = r->rank[r->at].first;
    const size_t n = (size_t)(r->nodes.n - first);
    int is_sorted = 1;
    for (int i = first + 1; i < r->nodes.n && is_sorted; i++)
        is_sorted = chakra_node_at(r, i - 1)->id < chakra_node_at(r, i)->id;
    if (is_sorted) return TANDEM_OK;
    qsort(chakra_node_at(r, first), n, sizeof(chakra_node), by_node_id);
    for (int i = first + 1; i < r->nodes.n; i++)
        if (chakra_node_at(r, i - 1)->id == chakra_node_at(r, i)->id)
            return tandem_error_set(r->error, TANDEM_MALFORMED,
                                    "'%.200s': node %llu (%.80s) occurs twice; expected one node per id",
                                    r->rank[r->at].path, (unsigned long long)chakra_node_at(r, i)->id,
                                    chakra_node_name(r, i));
    return TANDEM_OK;
}

static tandem_status refuse_chakra_bytes(const chakra_trace *r, const tandem_input *input, const char *why)
{
    return tandem_error_set(r->error, TANDEM_MALFORMED, "'%.200s', byte %llu: %s", r->rank[r->at].path,
                            (unsigned long long)(input->offset + input->at), why);
}

/* The length of the next message; *is_there = 0 at the end of the file. */
static tandem_status read_message_length(const chakra_trace *r, tandem_input *input, size_t *n, int *is_there)
{
    int got = 1;
    uint64_t value = 0;
    for (size_t k = 0; k < 10; k++) {
        while (input->at + k == input->end && got) {
            const tandem_status status = tandem_input_refill(input, &got, r->error);
            if (status != TANDEM_OK) return status;
        }
        if (input->at + k == input->end) {
            *is_there = 0;
            return k == 0 ? TANDEM_OK
                          : refuse_chakra_bytes(r, input, "the file ends within the length of a message");
        }
        const unsigned char byte = input->bytes[input->at + k];
        value |= (uint64_t)(byte & 0x7f) << (7 * k);
        if (byte & 0x80) continue;
        if (k == 9 && byte > 1) break;
        input->at += k + 1;
        *n = (size_t)value;
        return TANDEM_OK;
    }
    return refuse_chakra_bytes(r, input, "expected the length of a message, a varint of at most 64 bits");
}

/* The next message as a whole, at input->at, where it stays unread. */
static tandem_status read_message(const chakra_trace *r, tandem_input *input, size_t *n, int *is_there)
{
    int got = 1;
    *is_there = 1;
    tandem_status status = read_message_length(r, input, n, is_there);
    if (status != TANDEM_OK || !*is_there) return status;
    if (*n > input->capacity)
        return tandem_error_set(
            r->error, TANDEM_MALFORMED, "'%.200s', byte %llu: a message of %zu bytes; expected at most %zu",
            r->rank[r->at].path, (unsigned long long)(input->offset + input->at), *n, input->capacity);
    while (input->end - input->at < *n) {
        if (!got) return refuse_chakra_bytes(r, input, "the file ends within a message; it was cut off");
        status = tandem_input_refill(input, &got, r->error);
        if (status != TANDEM_OK) return status;
    }
    return TANDEM_OK;
}

/* --- Attributes ----------------------------------------------------------------------------------------- */

/* An integer of any type. Returns 0 for other types and beyond 63 bits. */
static int integer_of_attribute(const Chakra__Attribute *attribute, int64_t *value)
{
    switch (attribute->value_case) {
    case CHAKRA__ATTRIBUTE__VALUE_INT32_VAL: *value = attribute->int32_val; return 1;
    case CHAKRA__ATTRIBUTE__VALUE_INT64_VAL: *value = attribute->int64_val; return 1;
    case CHAKRA__ATTRIBUTE__VALUE_UINT32_VAL: *value = attribute->uint32_val; return 1;
    case CHAKRA__ATTRIBUTE__VALUE_UINT64_VAL: *value = (int64_t)attribute->uint64_val; return *value >= 0;
    case CHAKRA__ATTRIBUTE__VALUE_SINT32_VAL: *value = attribute->sint32_val; return 1;
    case CHAKRA__ATTRIBUTE__VALUE_SINT64_VAL: *value = attribute->sint64_val; return 1;
    case CHAKRA__ATTRIBUTE__VALUE_FIXED32_VAL: *value = attribute->fixed32_val; return 1;
    case CHAKRA__ATTRIBUTE__VALUE_FIXED64_VAL: *value = (int64_t)attribute->fixed64_val; return *value >= 0;
    case CHAKRA__ATTRIBUTE__VALUE_SFIXED32_VAL: *value = attribute->sfixed32_val; return 1;
    case CHAKRA__ATTRIBUTE__VALUE_SFIXED64_VAL: *value = attribute->sfixed64_val; return 1;
    default: return 0;
    }
}

/* The attributes that are read; INT64_MIN or NULL = absent. */
typedef struct node_attributes {
    int64_t comm_type, comm_size, comm_src, comm_dst, comm_tag, duration_ns, start_ns;
    const char *group, *kind;
} node_attributes;

static tandem_status refuse_chakra_node(const chakra_trace *r, const Chakra__Node *from, const char *why)
{
    return tandem_error_set(r->error, TANDEM_MALFORMED, "'%.200s', node %llu (%.80s): %s",
                            r->rank[r->at].path, (unsigned long long)from->id, from->name, why);
}

static tandem_status read_node_attributes(const chakra_trace *r, const Chakra__Node *from, node_attributes *w)
{
    const struct {
        const char *name;
        int64_t *value;
    } numbers[] = {{"comm_type", &w->comm_type},     {"comm_size", &w->comm_size},
                   {"comm_src", &w->comm_src},       {"comm_dst", &w->comm_dst},
                   {"comm_tag", &w->comm_tag},       {"tandem_duration_ns", &w->duration_ns},
                   {"tandem_start_ns", &w->start_ns}};
    enum { N_NUMBER = sizeof numbers / sizeof *numbers };
    for (size_t k = 0; k < N_NUMBER; k++) *numbers[k].value = INT64_MIN;
    w->group = w->kind = NULL;
    for (size_t a = 0; a < from->n_attribute; a++) {
        const Chakra__Attribute *const attribute = from->attribute[a];
        const int is_text = attribute->value_case == CHAKRA__ATTRIBUTE__VALUE_STRING_VAL;
        if (is_text && strcmp(attribute->name, "pg_name") == 0) w->group = attribute->string_val;
        if (is_text && strcmp(attribute->name, "kind") == 0)
            make_printable(attribute->string_val), w->kind = attribute->string_val;
        for (size_t k = 0; k < N_NUMBER; k++)
            if (strcmp(attribute->name, numbers[k].name) == 0 &&
                (!integer_of_attribute(attribute, numbers[k].value) || *numbers[k].value < 0))
                return refuse_chakra_node(
                    r, from,
                    "expected attributes of communication and of time to be whole numbers from 0 on");
    }
    return TANDEM_OK;
}

/* --- Nodes ---------------------------------------------------------------------------------------------- */

static const int64_t max_ns = TANDEM_DAG_MAX_NS;

static tandem_status read_node_times(const chakra_trace *r, const Chakra__Node *from,
                                     const node_attributes *w, chakra_node *to)
{
    if (from->duration_us > (uint64_t)max_ns / 1000 || w->duration_ns > max_ns)
        return refuse_chakra_node(r, from, "expected a duration from 0 to 104 days");
    if (from->start_us > (uint64_t)INT64_MAX / 2000 || w->start_ns > INT64_MAX / 2)
        return refuse_chakra_node(r, from, "expected a start below 2^62 ns");
    to->duration_ns = w->duration_ns >= 0 ? w->duration_ns : 1000 * (int64_t)from->duration_us;
    to->start_ns = w->start_ns >= 0 ? w->start_ns : 1000 * (int64_t)from->start_us;
    return TANDEM_OK;
}

/* Reads the group hash, which is equal in all parts of a collective or message. */
static tandem_status read_node_partners(const chakra_trace *r, const Chakra__Node *from,
                                        const node_attributes *w, chakra_node *to)
{
    const int number = r->rank[r->at].number;
    to->size = w->comm_size >= 0 ? w->comm_size : -1;
    to->partner = -1;
    if (to->type == TANDEM_CHAKRA_COLLECTIVE) {
        to->is_over_all_ranks = !w->group || !*w->group;
        to->group = hash_integer(tandem_hash_text(hash_integer(TANDEM_HASH_START, to->type),
                                                  to->is_over_all_ranks ? "" : w->group),
                                 w->comm_type);
    }
    if (to->type != TANDEM_CHAKRA_SEND && to->type != TANDEM_CHAKRA_RECEIVE) return TANDEM_OK;
    const int is_send = to->type == TANDEM_CHAKRA_SEND;
    const int64_t other = is_send ? w->comm_dst : w->comm_src;
    if (other < 0 || other > INT32_MAX)
        return refuse_chakra_node(r, from,
                                  "expected comm_dst of a send and comm_src of a receive to be a rank");
    to->partner = (int32_t)other;
    to->group = hash_integer(
        hash_integer(hash_integer(TANDEM_HASH_START, is_send ? number : other), is_send ? other : number),
        w->comm_tag);
    return TANDEM_OK;
}

static tandem_status append_dependencies(chakra_trace *r, const uint64_t *id, size_t n)
{
    tandem_status status = TANDEM_OK;
    for (size_t k = 0; k < n && status == TANDEM_OK; k++)
        status = chakra_append(r, &r->deps, &id[k], sizeof *id);
    return status;
}

static tandem_status add_chakra_node(chakra_trace *r, const Chakra__Node *from)
{
    chakra_node node = {
        .id = from->id, .first_dep = r->deps.n, .sequence = r->nodes.n - r->rank[r->at].first};
    node_attributes w;
    make_printable(from->name);
    tandem_status status = read_node_attributes(r, from, &w);
    node.type = from->type >= 0 && from->type <= UINT8_MAX ? (uint8_t)from->type : UINT8_MAX;
    if (status == TANDEM_OK) status = read_node_times(r, from, &w, &node);
    if (status == TANDEM_OK) status = read_node_partners(r, from, &w, &node);
    if (status == TANDEM_OK) status = find_or_add_name(r, from->name, &node.name);
    if (status == TANDEM_OK) status = append_dependencies(r, from->data, from->n_data);
    if (status == TANDEM_OK) status = append_dependencies(r, from->control, from->n_control);
    if (status != TANDEM_OK) return status;
    node.kind = find_or_add_kind(r, w.kind && *w.kind ? w.kind : default_kind_name(from->type, w.comm_type));
    node.n_dep = r->deps.n - node.first_dep;
    node.n_data = node.n_dep - (int32_t)from->n_control;
    /* Before the array doubles: a file that repeats itself takes no memory. */
    if (r->nodes.n == r->nodes.capacity) status = sort_chakra_nodes(r);
    return status == TANDEM_OK ? chakra_append(r, &r->nodes, &node, sizeof node) : status;
}

static tandem_status read_chakra_metadata(chakra_trace *r, tandem_input *input, ProtobufCAllocator *allocator)
{
    size_t n = 0;
    int is_there = 0;
    tandem_status status = read_message(r, input, &n, &is_there);
    if (status != TANDEM_OK) return status;
    Chakra__Metadata *const metadata =
        is_there ? chakra__metadata__unpack(allocator, n, input->bytes + input->at) : NULL;
    if (r->is_out_of_memory)
        status = chakra_no_memory(r);
    else if (!metadata || metadata->base.n_unknown_fields)
        status = refuse_chakra_bytes(r, input,
                                     "expected the metadata with which an execution trace of "
                                     "Chakra 0.0.4 begins");
    chakra__metadata__free_unpacked(metadata, allocator);
    input->at += n;
    return status;
}

static tandem_status read_chakra_nodes(chakra_trace *r, tandem_input *input)
{
    ProtobufCAllocator allocator = {alloc_for_protobuf, free_for_protobuf, r};
    int is_there = 1;
    tandem_status status = read_chakra_metadata(r, input, &allocator);
    while (status == TANDEM_OK) {
        size_t n = 0;
        status = read_message(r, input, &n, &is_there);
        if (status != TANDEM_OK || !is_there) break;
        if (n == 0)
            return refuse_chakra_bytes(r, input, "an empty message; expected a node, which has an id");
        Chakra__Node *const message = chakra__node__unpack(&allocator, n, input->bytes + input->at);
        if (message)
            status = add_chakra_node(r, message);
        else
            status = r->is_out_of_memory
                         ? chakra_no_memory(r)
                         : refuse_chakra_bytes(r, input, "expected a node; the message is damaged");
        chakra__node__free_unpacked(message, &allocator);
        input->at += n;
    }
    return status;
}

/* --- Ranks ---------------------------------------------------------------------------------------------- */

static int find_chakra_node(const chakra_trace *r, const chakra_rank *rank, uint64_t id)
{
    int low = rank->first, high = rank->end;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (chakra_node_at(r, middle)->id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < rank->end && chakra_node_at(r, low)->id == id ? low : -1;
}

/* Turns a dependency into an edge. Converted traces lack parents of calls: control dependencies on them do
 * not count. */
static tandem_status link_dependency(chakra_trace *r, int i, int k)
{
    const chakra_rank *const rank = &r->rank[r->at];
    const chakra_node *const node = chakra_node_at(r, i);
    const uint64_t id = ((const uint64_t *)r->deps.of)[node->first_dep + k];
    const tandem_dag_edge edge = {find_chakra_node(r, rank, id), i};
    const int is_control = k >= node->n_data;
    if (edge.before < 0 && !is_control)
        return tandem_error_set(
            r->error, TANDEM_MALFORMED, "'%.200s': node %llu (%.80s) depends on node %llu, which is missing",
            rank->path, (unsigned long long)node->id, chakra_node_name(r, i), (unsigned long long)id);
    if (edge.before < 0) {
        r->n_missing_control++;
        return TANDEM_OK;
    }
    return chakra_append(r, is_control ? &r->control : &r->edges, &edge, sizeof edge);
}

static tandem_status link_chakra_rank(chakra_trace *r)
{
    chakra_rank *const rank = &r->rank[r->at];
    tandem_status status = sort_chakra_nodes(r);
    rank->end = r->nodes.n;
    if (rank->end == rank->first)
        return tandem_error_set(r->error, TANDEM_MALFORMED, "'%.200s' holds no nodes", rank->path);
    for (int i = rank->first; i < rank->end && status == TANDEM_OK; i++) {
        const chakra_node *const node = chakra_node_at(r, i);
        if (!node->group && __builtin_add_overflow(rank->busy_ns, node->duration_ns, &rank->busy_ns))
            rank->busy_ns = INT64_MAX;
        for (int k = 0; k < node->n_dep && status == TANDEM_OK; k++) status = link_dependency(r, i, k);
    }
    r->deps.n = 0;
    return status;
}

static tandem_status read_chakra_rank(chakra_trace *r, tandem_input *input)
{
    r->rank[r->at].first = r->nodes.n;
    const tandem_status status = read_chakra_nodes(r, input);
    return status == TANDEM_OK ? link_chakra_rank(r) : status;
}

/* x.7.et and x.7.et.gz are rank 7; −1 = the name gives no rank. */
static int rank_in_file_name(const char *path)
{
    const size_t n = strlen(path);
    const size_t suffix = n > 6 && strcmp(path + n - 6, ".et.gz") == 0 ? 6
                          : n > 3 && strcmp(path + n - 3, ".et") == 0  ? 3
                                                                       : 0;
    size_t first = n - suffix;
    int number = 0;
    while (suffix && first > 0 && path[first - 1] >= '0' && path[first - 1] <= '9') first--;
    if (!suffix || first == n - suffix || first == 0 || path[first - 1] != '.' || n - suffix - first > 9)
        return -1;
    for (; first < n - suffix; first++) number = 10 * number + (path[first] - '0');
    return number;
}

static int by_chakra_rank(const void *left, const void *right)
{
    const chakra_rank *const a = left, *const b = right;
    return (a->number > b->number) - (a->number < b->number);
}

static tandem_status open_chakra_ranks(chakra_trace *r, const char *const *path, int n)
{
    r->rank = calloc((size_t)n, sizeof *r->rank);
    if (!r->rank) return tandem_no_memory(r->error, "to read '%.200s'", path[0]);
    r->n_rank = n;
    int all_say = 1;
    for (int k = 0; k < n; k++) all_say &= rank_in_file_name(path[k]) >= 0;
    for (int k = 0; k < n; k++)
        r->rank[k] = (chakra_rank){.path = path[k], .number = all_say ? rank_in_file_name(path[k]) : k};
    qsort(r->rank, (size_t)n, sizeof *r->rank, by_chakra_rank);
    for (int k = 1; k < n; k++)
        if (r->rank[k].number == r->rank[k - 1].number)
            return tandem_error_set(r->error, TANDEM_MALFORMED, "'%.200s' and '%.200s' are both of rank %d",
                                    r->rank[k - 1].path, r->rank[k].path, r->rank[k].number);
    return TANDEM_OK;
}

/* --- Files ---------------------------------------------------------------------------------------------- */

void chakra_trace_close(chakra_trace *r)
{
    free(r->group);
    tandem_hash_index_free(&r->table);
    free(r->names.of);
    free(r->messages.of);
    free(r->all.of);
    free(r->control.of);
    free(r->edges.of);
    free(r->deps.of);
    free(r->nodes.of);
    free(r->rank);
    tandem_arena_free(&r->arena);
    *r = (chakra_trace){0};
}

tandem_status chakra_trace_read(chakra_trace *r, const char *const *path, const void *const *bytes,
                                const size_t *n_byte, int n)
{
    tandem_status status = open_chakra_ranks(r, path, n);
    for (r->at = 0; r->at < n && status == TANDEM_OK; r->at++) {
        tandem_input input = {0};
        int index = 0;
        while (path[index] != r->rank[r->at].path) index++;
        status = bytes ? tandem_input_open_bytes(&input, bytes[index], n_byte[index], path[index], r->error)
                       : tandem_input_open(&input, path[index], r->error);
        if (status == TANDEM_OK) status = read_chakra_rank(r, &input);
        tandem_input_close(&input);
    }
    r->at = 0;
    return status;
}
