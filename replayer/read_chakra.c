/* read_chakra.c: execution traces of MLCommons Chakra (profiles/chakra.proto), one file a rank, as one job: nodes wait for what they
 * depend on and for nothing else, collectives and messages for their partners; from these a model of the step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/chakra.h"
#include "profiles/chakra.pb-c.h"
#include "replayer/read_input.h"
#include "replayer/whatif_model.h"

enum { MOST_RANKS = 4096, MOST_KINDS = 32, MOST_NODES = 1 << 27, LANES = 2 };
static const char *const lane_name[LANES] = {"compute", "communication"};

typedef struct node {
    uint64_t id;
    int64_t start_ns, duration_ns;
    uint64_t group; /* what is alike in the parts of a collective or a message; 0: stands alone */
    int64_t size;   /* comm_size; −1 = not said */
    int32_t name, kind, sequence; /* places in the tables of names and kinds; among the nodes of its file */
    int32_t first_dep, n_dep;     /* while its file is read */
    int32_t partner;              /* rank number at the other end of a message; −1: it is none */
    uint8_t type;
    uint8_t is_wide; /* a collective of all ranks: it names no group of them */
} node;

typedef struct rank {
    const char *path;
    int number, first, behind; /* its nodes */
    int64_t busy_ns;
} rank;

typedef struct name {
    uint64_t hash;
    const char *text;
} name;

typedef struct list { /* of anything */
    void *of;
    int n, room;
} list;

typedef struct reading {
    tandem_error *error;
    tandem_arena arena; /* names */
    rank *rank;
    int n_rank, at; /* at: the one that is being read */
    list nodes, deps, edges, names;
    int *table; /* of names by hash: place + 1 */
    int table_room;
    whatif_label kind[MOST_KINDS];
    int n_kind;
    int *group; /* [n nodes] −1 = alone */
    int n_group;
    int is_out_of_memory; /* set by the allocator that protobuf-c is given */
} reading;

static node *node_of(const reading *r, int i) { return (node *)r->nodes.of + i; }
static const char *name_of(const reading *r, int i)
{
    return ((name *)r->names.of)[node_of(r, i)->name].text;
}

static tandem_status no_memory(const reading *r)
{
    return tandem_error_set(r->error, TANDEM_NO_MEMORY, "no memory to read '%.200s'", r->rank[r->at].path);
}

static tandem_status add(const reading *r, list *to, const void *one, size_t size)
{
    if (to->n == to->room) {
        const int room = to->room ? 2 * to->room : 256;
        void *const more = to->room < MOST_NODES ? realloc(to->of, (size_t)room * size) : NULL;
        if (!more) return no_memory(r);
        to->of = more;
        to->room = room;
    }
    memcpy((char *)to->of + (size_t)to->n++ * size, one, size);
    return TANDEM_OK;
}

/* --- Names and kinds ------------------------------------------------------------------------------------ */

static uint64_t hash_text(uint64_t hash, const char *text) /* FNV-1a */
{
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return hash;
}

static uint64_t hash_whole(uint64_t hash, int64_t value)
{
    return (hash ^ (uint64_t)value) * UINT64_C(0x9e3779b97f4a7c15) + (hash >> 29);
}

static const uint64_t seed = UINT64_C(0xcbf29ce484222325);

static void enter(reading *r, int place)
{
    const name *const names = r->names.of;
    unsigned at = (unsigned)names[place].hash;
    while (r->table[at & (unsigned)(r->table_room - 1)]) at++;
    r->table[at & (unsigned)(r->table_room - 1)] = place + 1;
}

static tandem_status grow_table(reading *r)
{
    const int room = r->table_room ? 2 * r->table_room : 256;
    int *const table = calloc((size_t)room, sizeof *table);
    if (!table) return no_memory(r);
    free(r->table);
    r->table = table;
    r->table_room = room;
    for (int k = 0; k < r->names.n; k++) enter(r, k);
    return TANDEM_OK;
}

static tandem_status find_name(reading *r, const char *text, int32_t *place)
{
    const uint64_t hash = hash_text(seed, text);
    const name *const names = r->names.of;
    for (unsigned at = (unsigned)hash; r->table_room; at++) {
        const int found = r->table[at & (unsigned)(r->table_room - 1)];
        if (!found) break;
        if (names[found - 1].hash != hash) continue;
        *place = found - 1;
        return TANDEM_OK;
    }
    tandem_status status = 2 * (r->names.n + 1) > r->table_room ? grow_table(r) : TANDEM_OK;
    if (status != TANDEM_OK) return status;
    const name made = {hash, tandem_arena_text(&r->arena, text)};
    if (!made.text) return no_memory(r);
    status = add(r, &r->names, &made, sizeof made);
    if (status != TANDEM_OK) return status;
    *place = r->names.n - 1;
    enter(r, *place);
    return TANDEM_OK;
}

/* Names go into errors and files: what is no printable ASCII is a question mark. */
static void make_printable(char *text)
{
    for (; *text; text++)
        if (*text < 0x20 || *text == 0x7f) *text = '?';
}

/* The last one stands for all that do not fit. */
static int32_t find_kind(reading *r, const char *text)
{
    for (int k = 0; k < r->n_kind; k++)
        if (strncmp(r->kind[k].text, text, sizeof r->kind[k].text - 1) == 0) return k;
    if (r->n_kind == MOST_KINDS) return MOST_KINDS - 1;
    if (r->n_kind == MOST_KINDS - 1) text = "other";
    (void)snprintf(r->kind[r->n_kind].text, sizeof r->kind->text, "%s", text);
    return r->n_kind++;
}

/* What a node is called where it does not say. */
static const char *kind_of(int type, int64_t comm_type)
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

static void *take_memory(void *data, size_t n)
{
    void *const made = malloc(n);
    if (!made) ((reading *)data)->is_out_of_memory = 1;
    return made;
}

static void give_memory(void *data, void *memory)
{
    (void)data;
    free(memory);
}

static tandem_status refuse_bytes(const reading *r, const tandem_input *input, const char *why)
{
    return tandem_error_set(r->error, TANDEM_MALFORMED, "'%.200s', byte %llu: %s", r->rank[r->at].path,
                            (unsigned long long)(input->offset + input->at), why);
}

/* The length of the next message; *is_there = 0 at the end of the file. */
static tandem_status next_length(const reading *r, tandem_input *input, size_t *n, int *is_there)
{
    int got = 1;
    uint64_t value = 0;
    for (size_t k = 0; k < 10; k++) {
        while (input->at + k == input->end && got) {
            const tandem_status status = tandem_input_more(input, &got, r->error);
            if (status != TANDEM_OK) return status;
        }
        if (input->at + k == input->end) {
            *is_there = 0;
            return k == 0 ? TANDEM_OK : refuse_bytes(r, input, "the file ends within the length of a message");
        }
        const unsigned char byte = input->bytes[input->at + k];
        value |= (uint64_t)(byte & 0x7f) << (7 * k);
        if (byte & 0x80) continue;
        if (k == 9 && byte > 1) break;
        input->at += k + 1;
        *n = (size_t)value;
        return TANDEM_OK;
    }
    return refuse_bytes(r, input, "expected the length of a message, a varint of at most 64 bits");
}

/* … and all of it, at input->at, which is left there. */
static tandem_status next_message(const reading *r, tandem_input *input, size_t *n, int *is_there)
{
    int got = 1;
    *is_there = 1;
    tandem_status status = next_length(r, input, n, is_there);
    if (status != TANDEM_OK || !*is_there) return status;
    if (*n > input->room)
        return tandem_error_set(
            r->error, TANDEM_MALFORMED, "'%.200s', byte %llu: a message of %zu bytes; expected at most %zu",
            r->rank[r->at].path, (unsigned long long)(input->offset + input->at), *n, input->room);
    while (input->end - input->at < *n) {
        if (!got) return refuse_bytes(r, input, "the file ends within a message; it was cut off");
        status = tandem_input_more(input, &got, r->error);
        if (status != TANDEM_OK) return status;
    }
    return TANDEM_OK;
}

/* --- Attributes ----------------------------------------------------------------------------------------- */

/* A whole number in whichever type it was written. 0 = it is none, or over 63 bits. */
static int whole_of(const Chakra__Attribute *one, int64_t *value)
{
    switch (one->value_case) {
    case CHAKRA__ATTRIBUTE__VALUE_INT32_VAL: *value = one->int32_val; return 1;
    case CHAKRA__ATTRIBUTE__VALUE_INT64_VAL: *value = one->int64_val; return 1;
    case CHAKRA__ATTRIBUTE__VALUE_UINT32_VAL: *value = one->uint32_val; return 1;
    case CHAKRA__ATTRIBUTE__VALUE_UINT64_VAL: *value = (int64_t)one->uint64_val; return *value >= 0;
    case CHAKRA__ATTRIBUTE__VALUE_SINT32_VAL: *value = one->sint32_val; return 1;
    case CHAKRA__ATTRIBUTE__VALUE_SINT64_VAL: *value = one->sint64_val; return 1;
    case CHAKRA__ATTRIBUTE__VALUE_FIXED32_VAL: *value = one->fixed32_val; return 1;
    case CHAKRA__ATTRIBUTE__VALUE_FIXED64_VAL: *value = (int64_t)one->fixed64_val; return *value >= 0;
    case CHAKRA__ATTRIBUTE__VALUE_SFIXED32_VAL: *value = one->sfixed32_val; return 1;
    case CHAKRA__ATTRIBUTE__VALUE_SFIXED64_VAL: *value = one->sfixed64_val; return 1;
    default: return 0;
    }
}

/* What is read of a node's attributes; INT64_MIN, NULL = it has none. */
typedef struct wanted {
    int64_t comm_type, comm_size, comm_src, comm_dst, comm_tag, duration_ns, start_ns;
    const char *group, *kind;
} wanted;

static tandem_status refuse_node(const reading *r, const Chakra__Node *from, const char *why)
{
    return tandem_error_set(r->error, TANDEM_MALFORMED, "'%.200s', node %llu (%.80s): %s",
                            r->rank[r->at].path, (unsigned long long)from->id, from->name, why);
}

static tandem_status read_attributes(const reading *r, const Chakra__Node *from, wanted *w)
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
        const Chakra__Attribute *const one = from->attribute[a];
        const int is_text = one->value_case == CHAKRA__ATTRIBUTE__VALUE_STRING_VAL;
        if (is_text && strcmp(one->name, "pg_name") == 0) w->group = one->string_val;
        if (is_text && strcmp(one->name, "kind") == 0)
            make_printable(one->string_val), w->kind = one->string_val;
        for (size_t k = 0; k < N_NUMBER; k++)
            if (strcmp(one->name, numbers[k].name) == 0 &&
                (!whole_of(one, numbers[k].value) || *numbers[k].value < 0))
                return refuse_node(
                    r, from, "expected attributes of communication and of time to be whole numbers from 0 on");
    }
    return TANDEM_OK;
}

/* --- Nodes ---------------------------------------------------------------------------------------------- */

static const int64_t most_ns = TANDEM_ENGINE_MOST_NS;

static tandem_status read_times(const reading *r, const Chakra__Node *from, const wanted *w, node *to)
{
    if (from->duration_us > (uint64_t)most_ns / 1000 || w->duration_ns > most_ns)
        return refuse_node(r, from, "expected a duration from 0 to 104 days");
    if (from->start_us > (uint64_t)INT64_MAX / 2000 || w->start_ns > INT64_MAX / 2)
        return refuse_node(r, from, "expected a start below 2^62 ns");
    to->duration_ns = w->duration_ns >= 0 ? w->duration_ns : 1000 * (int64_t)from->duration_us;
    to->start_ns = w->start_ns >= 0 ? w->start_ns : 1000 * (int64_t)from->start_us;
    return TANDEM_OK;
}

/* What its partners have in common with it. */
static tandem_status read_communication(const reading *r, const Chakra__Node *from, const wanted *w, node *to)
{
    const int number = r->rank[r->at].number;
    to->size = w->comm_size >= 0 ? w->comm_size : -1;
    to->partner = -1;
    if (to->type == TANDEM_CHAKRA_COLLECTIVE) {
        to->is_wide = !w->group || !*w->group;
        to->group = hash_whole(hash_text(hash_whole(seed, to->type), to->is_wide ? "" : w->group), w->comm_type);
    }
    if (to->type != TANDEM_CHAKRA_SEND && to->type != TANDEM_CHAKRA_RECEIVE) return TANDEM_OK;
    const int is_send = to->type == TANDEM_CHAKRA_SEND;
    const int64_t other = is_send ? w->comm_dst : w->comm_src;
    if (other < 0 || other > INT32_MAX)
        return refuse_node(r, from, "expected comm_dst of a send and comm_src of a receive to be a rank");
    to->partner = (int32_t)other;
    to->group =
        hash_whole(hash_whole(hash_whole(seed, is_send ? number : other), is_send ? other : number), w->comm_tag);
    return TANDEM_OK;
}

static tandem_status add_deps(reading *r, const uint64_t *id, size_t n)
{
    tandem_status status = TANDEM_OK;
    for (size_t k = 0; k < n && status == TANDEM_OK; k++) status = add(r, &r->deps, &id[k], sizeof *id);
    return status;
}

static tandem_status take_node(reading *r, const Chakra__Node *from)
{
    node made = {.id = from->id, .first_dep = r->deps.n, .sequence = r->nodes.n - r->rank[r->at].first};
    wanted w;
    make_printable(from->name);
    tandem_status status = read_attributes(r, from, &w);
    made.type = from->type >= 0 && from->type <= UINT8_MAX ? (uint8_t)from->type : UINT8_MAX;
    if (status == TANDEM_OK) status = read_times(r, from, &w, &made);
    if (status == TANDEM_OK) status = read_communication(r, from, &w, &made);
    if (status == TANDEM_OK) status = find_name(r, from->name, &made.name);
    if (status == TANDEM_OK) status = add_deps(r, from->data, from->n_data);
    if (status == TANDEM_OK) status = add_deps(r, from->control, from->n_control);
    if (status != TANDEM_OK) return status;
    made.kind = find_kind(r, w.kind && *w.kind ? w.kind : kind_of(from->type, w.comm_type));
    made.n_dep = r->deps.n - made.first_dep;
    return add(r, &r->nodes, &made, sizeof made);
}

static tandem_status read_metadata(reading *r, tandem_input *input, ProtobufCAllocator *allocator)
{
    size_t n = 0;
    int is_there = 0;
    tandem_status status = next_message(r, input, &n, &is_there);
    if (status != TANDEM_OK) return status;
    Chakra__Metadata *const metadata =
        is_there ? chakra__metadata__unpack(allocator, n, input->bytes + input->at) : NULL;
    if (r->is_out_of_memory)
        status = no_memory(r);
    else if (!metadata || metadata->base.n_unknown_fields)
        status = refuse_bytes(r, input, "expected the metadata with which an execution trace of Chakra 0.0.4 begins");
    chakra__metadata__free_unpacked(metadata, allocator);
    input->at += n;
    return status;
}

static tandem_status read_nodes(reading *r, tandem_input *input)
{
    ProtobufCAllocator allocator = {take_memory, give_memory, r};
    int is_there = 1;
    tandem_status status = read_metadata(r, input, &allocator);
    while (status == TANDEM_OK) {
        size_t n = 0;
        status = next_message(r, input, &n, &is_there);
        if (status != TANDEM_OK || !is_there) break;
        Chakra__Node *const message = chakra__node__unpack(&allocator, n, input->bytes + input->at);
        if (message)
            status = take_node(r, message);
        else
            status = r->is_out_of_memory ? no_memory(r)
                                         : refuse_bytes(r, input, "expected a node; the message is damaged");
        chakra__node__free_unpacked(message, &allocator);
        input->at += n;
    }
    return status;
}

/* --- Ranks ---------------------------------------------------------------------------------------------- */

static int by_id(const void *left, const void *right)
{
    const node *const a = left, *const b = right;
    const int order = (a->id > b->id) - (a->id < b->id);
    return order ? order : (a->sequence > b->sequence) - (a->sequence < b->sequence);
}

static int find_id(const reading *r, const rank *of, uint64_t id)
{
    int low = of->first, high = of->behind;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (node_of(r, middle)->id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < of->behind && node_of(r, low)->id == id ? low : -1;
}

/* Puts the nodes of the file in the order of their ids, and makes edges of what they depend on. */
static tandem_status close_rank(reading *r)
{
    rank *const of = &r->rank[r->at];
    tandem_status status = TANDEM_OK;
    of->behind = r->nodes.n;
    if (of->behind == of->first)
        return tandem_error_set(r->error, TANDEM_MALFORMED, "'%.200s' holds no nodes", of->path);
    qsort(node_of(r, of->first), (size_t)(of->behind - of->first), sizeof(node), by_id);
    for (int i = of->first; i < of->behind && status == TANDEM_OK; i++) {
        const node *const one = node_of(r, i);
        if (i > of->first && one[-1].id == one->id)
            return tandem_error_set(r->error, TANDEM_MALFORMED, "'%.200s': node %llu (%.80s) stands there twice",
                                    of->path, (unsigned long long)one->id, name_of(r, i));
        if (!one->group && __builtin_add_overflow(of->busy_ns, one->duration_ns, &of->busy_ns))
            of->busy_ns = INT64_MAX;
        for (int k = 0; k < one->n_dep && status == TANDEM_OK; k++) {
            const uint64_t id = ((const uint64_t *)r->deps.of)[one->first_dep + k];
            const tandem_engine_edge edge = {find_id(r, of, id), i};
            if (edge.before < 0)
                return tandem_error_set(r->error, TANDEM_MALFORMED,
                                        "'%.200s': node %llu (%.80s) depends on node %llu, which is not there",
                                        of->path, (unsigned long long)one->id, name_of(r, i),
                                        (unsigned long long)id);
            status = add(r, &r->edges, &edge, sizeof edge);
        }
    }
    r->deps.n = 0;
    return status;
}

static tandem_status read_rank(reading *r, tandem_input *input)
{
    r->rank[r->at].first = r->nodes.n;
    const tandem_status status = read_nodes(r, input);
    return status == TANDEM_OK ? close_rank(r) : status;
}

/* x.7.et and x.7.et.gz are of rank 7; −1 = the name does not say. */
static int number_in(const char *path)
{
    const size_t n = strlen(path);
    const size_t tail = n > 6 && strcmp(path + n - 6, ".et.gz") == 0 ? 6
                        : n > 3 && strcmp(path + n - 3, ".et") == 0  ? 3
                                                                     : 0;
    size_t first = n - tail;
    int number = 0;
    while (tail && first > 0 && path[first - 1] >= '0' && path[first - 1] <= '9') first--;
    if (!tail || first == n - tail || first == 0 || path[first - 1] != '.' || n - tail - first > 9) return -1;
    for (; first < n - tail; first++) number = 10 * number + (path[first] - '0');
    return number;
}

static int by_number(const void *left, const void *right)
{
    const rank *const a = left, *const b = right;
    return (a->number > b->number) - (a->number < b->number);
}

static tandem_status open_ranks(reading *r, const char *const *path, int n)
{
    r->rank = calloc((size_t)n, sizeof *r->rank);
    if (!r->rank) return tandem_error_set(r->error, TANDEM_NO_MEMORY, "no memory to read '%.200s'", path[0]);
    r->n_rank = n;
    int all_say = 1;
    for (int k = 0; k < n; k++) all_say &= number_in(path[k]) >= 0;
    for (int k = 0; k < n; k++)
        r->rank[k] = (rank){.path = path[k], .number = all_say ? number_in(path[k]) : k};
    qsort(r->rank, (size_t)n, sizeof *r->rank, by_number);
    for (int k = 1; k < n; k++)
        if (r->rank[k].number == r->rank[k - 1].number)
            return tandem_error_set(r->error, TANDEM_MALFORMED, "'%.200s' and '%.200s' are both of rank %d",
                                    r->rank[k - 1].path, r->rank[k].path, r->rank[k].number);
    return TANDEM_OK;
}

/* --- Partners ------------------------------------------------------------------------------------------- */

/* The number-th part with this key of a rank. */
typedef struct member {
    uint64_t key;
    int32_t rank, number, node, sequence;
    uint8_t type;
} member;

static int by_key_rank(const void *left, const void *right)
{
    const member *const a = left, *const b = right;
    int order = (a->key > b->key) - (a->key < b->key);
    if (!order) order = (a->rank > b->rank) - (a->rank < b->rank);
    if (!order)
        order = (a->type > b->type) - (a->type < b->type); /* a message to oneself has both ends there */
    return order ? order : (a->sequence > b->sequence) - (a->sequence < b->sequence);
}

static int by_key_number(const void *left, const void *right)
{
    const member *const a = left, *const b = right;
    int order = (a->key > b->key) - (a->key < b->key);
    if (!order) order = (a->number > b->number) - (a->number < b->number);
    if (!order) order = (a->rank > b->rank) - (a->rank < b->rank);
    return order ? order : (a->type > b->type) - (a->type < b->type);
}

static int rank_at(const reading *r, int number)
{
    for (int k = 0; k < r->n_rank; k++)
        if (r->rank[k].number == number) return k;
    return -1;
}

/* How many parts the thing has of which this is one. */
static int parts_of(const reading *r, const member *one, int n_rank_of_key)
{
    const node *const of = node_of(r, one->node);
    if (of->partner >= 0) return rank_at(r, of->partner) >= 0 ? 2 : 1;
    return of->is_wide ? r->n_rank : n_rank_of_key;
}

static tandem_status refuse_partner(const reading *r, const member *one, int n, const char *missing)
{
    return tandem_error_set(r->error, TANDEM_MALFORMED,
                            "'%.200s', node %llu (%.80s): number %d of its kind (%s) has %d part%s in these files; expected "
                            "%s",
                            r->rank[one->rank].path, (unsigned long long)node_of(r, one->node)->id,
                            name_of(r, one->node), one->number + 1, r->kind[node_of(r, one->node)->kind].text,
                            n, n == 1 ? "" : "s", missing);
}

/* The parts of one collective or message, n of them, where `expected` should be. */
static tandem_status join(reading *r, const member *of, int n, int expected)
{
    char why[64];
    (void)snprintf(why, sizeof why, "%d, one on each of %d ranks", expected, expected);
    if (n != expected)
        return refuse_partner(r, of, n, node_of(r, of->node)->partner >= 0 ? "a send and a receive" : why);
    int64_t transfer_ns = INT64_MAX;
    for (int k = 0; k < n; k++) {
        const node *const one = node_of(r, of[k].node);
        if (one->size != node_of(r, of->node)->size && strcmp(r->kind[one->kind].text, "all-reduce") == 0)
            return refuse_partner(r, &of[k], n, "all of one comm_size");
        if (one->duration_ns < transfer_ns) transfer_ns = one->duration_ns;
    }
    for (int k = 0; k < n; k++) {
        node_of(r, of[k].node)->duration_ns = transfer_ns; /* what it took longer on other ranks, they waited */
        r->group[of[k].node] = r->n_group;
    }
    r->n_group++;
    return TANDEM_OK;
}

/* Numbers the parts with one key on each rank; returns how many ranks have any. */
static int number_members(member *of, int n)
{
    int n_rank = 0;
    for (int k = 0; k < n; k++) {
        const int is_next = k > 0 && of[k].rank == of[k - 1].rank && of[k].type == of[k - 1].type;
        of[k].number = is_next ? of[k - 1].number + 1 : 0;
        n_rank += k == 0 || of[k].rank != of[k - 1].rank;
    }
    qsort(of, (size_t)n, sizeof *of, by_key_number);
    return n_rank;
}

static tandem_status join_key(reading *r, member *of, int n)
{
    const int n_rank = number_members(of, n);
    tandem_status status = TANDEM_OK;
    for (int first = 0, behind; first < n && status == TANDEM_OK; first = behind) {
        behind = first + 1;
        while (behind < n && of[behind].number == of[first].number) behind++;
        status = join(r, &of[first], behind - first, parts_of(r, &of[first], n_rank));
    }
    return status;
}

static int gather_members(const reading *r, member *to)
{
    int n = 0;
    for (int k = 0; k < r->n_rank; k++)
        for (int i = r->rank[k].first; i < r->rank[k].behind; i++) {
            const node *const one = node_of(r, i);
            if (!one->group) continue;
            if (to)
                to[n] = (member){.key = one->group, .rank = k, .node = i, .sequence = one->sequence, .type = one->type};
            n++;
        }
    return n;
}

static tandem_status join_all(reading *r)
{
    const int n = gather_members(r, NULL);
    member *const members = malloc(((size_t)n + 1) * sizeof *members);
    r->group = malloc((size_t)r->nodes.n * sizeof *r->group);
    tandem_status status = members && r->group ? TANDEM_OK : no_memory(r);
    for (int i = 0; i < r->nodes.n && status == TANDEM_OK; i++) r->group[i] = -1;
    if (status == TANDEM_OK) (void)gather_members(r, members);
    if (status == TANDEM_OK) qsort(members, (size_t)n, sizeof *members, by_key_rank);
    for (int first = 0, behind; first < n && status == TANDEM_OK; first = behind) {
        behind = first + 1;
        while (behind < n && members[behind].key == members[first].key) behind++;
        status = join_key(r, &members[first], behind - first);
    }
    free(members);
    return status;
}

/* --- The model ------------------------------------------------------------------------------------------ */

static void name_node(char *text, size_t size, const void *context, int i)
{
    const reading *const r = context;
    int k = 0;
    while (r->rank[k].behind <= i) k++;
    (void)snprintf(text, size, "rank %d, node %llu (%.80s)", r->rank[k].number,
                   (unsigned long long)node_of(r, i)->id, name_of(r, i));
}

static tandem_status open_engine(const reading *r, whatif_model *model)
{
    int *const stream = malloc((size_t)r->nodes.n * sizeof *stream);
    if (!stream) return no_memory(r);
    for (int i = 0; i < r->nodes.n; i++) stream[i] = -1;
    const tandem_engine_graph graph = {.n_op = r->nodes.n,
                                       .n_group = r->n_group,
                                       .n_edge = r->edges.n,
                                       .stream = stream,
                                       .group = r->group,
                                       .edge = r->edges.of,
                                       .name = name_node,
                                       .context = r};
    const tandem_status status = tandem_engine_open(model->engine, &graph, r->error);
    free(stream);
    return status;
}

/* Nodes of one name, the k-th of each rank: every rank takes what the one takes that computes least of those that have it. */
static tandem_status find_ideals(const reading *r, whatif_model *model)
{
    const int n = r->nodes.n;
    member *const alike = malloc((size_t)n * sizeof *alike);
    if (!alike) return no_memory(r);
    for (int k = 0; k < r->n_rank; k++)
        for (int i = r->rank[k].first; i < r->rank[k].behind; i++)
            alike[i] = (member){.key = (uint64_t)node_of(r, i)->name, .rank = k, .node = i, .sequence = i};
    qsort(alike, (size_t)n, sizeof *alike, by_key_rank);
    for (int first = 0, behind; first < n; first = behind) {
        behind = first + 1;
        while (behind < n && alike[behind].key == alike[first].key) behind++;
        (void)number_members(&alike[first], behind - first);
    }
    for (int first = 0, behind; first < n; first = behind) {
        int least = first;
        for (behind = first;
             behind < n && alike[behind].key == alike[first].key && alike[behind].number == alike[first].number;
             behind++)
            if (r->rank[alike[behind].rank].busy_ns < r->rank[alike[least].rank].busy_ns) least = behind;
        for (int k = first; k < behind; k++)
            model->ideal_ns[alike[k].node] =
                model->actual_ns[node_of(r, alike[k].node)->group ? alike[k].node : alike[least].node];
    }
    free(alike);
    return TANDEM_OK;
}

static tandem_status label_nodes(const reading *r, whatif_model *model)
{
    tandem_status status = whatif_model_dimension(model, WHATIF_OPERATOR, r->n_kind, r->error);
    if (status == TANDEM_OK && r->n_rank > 1)
        status = whatif_model_dimension(model, WHATIF_WORKER, r->n_rank, r->error);
    if (status != TANDEM_OK) return status;
    memcpy(model->by[WHATIF_OPERATOR].name, r->kind, (size_t)r->n_kind * sizeof *r->kind);
    model->lane_name = lane_name;
    model->n_lane = LANES;
    for (int k = 0; k < r->n_rank; k++) {
        (void)snprintf(model->worker_name[k].text, sizeof model->worker_name->text, "rank %d", r->rank[k].number);
        if (r->n_rank > 1) model->by[WHATIF_WORKER].name[k] = model->worker_name[k];
        for (int i = r->rank[k].first; i < r->rank[k].behind; i++) {
            model->worker[i] = k;
            model->op_name[i] = name_of(r, i);
            model->lane[i] = node_of(r, i)->group != 0;
            model->by[WHATIF_OPERATOR].of[i] = node_of(r, i)->kind;
            if (r->n_rank > 1) model->by[WHATIF_WORKER].of[i] = k;
        }
    }
    return TANDEM_OK;
}

/* The longest that any rank took from its first start to its last end: clocks of ranks need not agree. 0 = no starts. */
static int64_t recorded_of(const reading *r)
{
    int64_t longest_ns = 0, any_ns = 0;
    for (int k = 0; k < r->n_rank; k++) {
        int64_t first_ns = INT64_MAX, last_ns = INT64_MIN;
        for (int i = r->rank[k].first; i < r->rank[k].behind; i++) {
            const node *const one = node_of(r, i);
            if (one->start_ns < first_ns) first_ns = one->start_ns;
            if (one->start_ns + one->duration_ns > last_ns) last_ns = one->start_ns + one->duration_ns;
            any_ns |= one->start_ns;
        }
        if (last_ns - first_ns > longest_ns) longest_ns = last_ns - first_ns;
    }
    return any_ns ? longest_ns : 0;
}

static tandem_status open_model(const reading *r, whatif_model *model)
{
    int64_t any_ns = 0;
    tandem_status status = whatif_model_room(model, r->nodes.n, 1, r->n_rank, r->error);
    if (status != TANDEM_OK) return status;
    model->first[1] = r->nodes.n;
    model->recorded_ns[0] = recorded_of(r);
    for (int i = 0; i < r->nodes.n; i++) any_ns |= model->actual_ns[i] = node_of(r, i)->duration_ns;
    if (!any_ns)
        return tandem_error_set(r->error, TANDEM_MALFORMED,
                                "'%.200s': no node has a duration; expected a trace of what was measured or simulated",
                                r->rank[0].path);
    status = open_engine(r, model);
    if (status == TANDEM_OK) status = find_ideals(r, model);
    return status == TANDEM_OK ? label_nodes(r, model) : status;
}

/* --- The critical path ---------------------------------------------------------------------------------- */

typedef struct walk {
    const reading *r;
    const whatif_model *model;
    int64_t *ready_ns, *end_ns; /* [n nodes] */
    int *last_part;             /* [n_group] the part that was ready last */
    int *first_edge;            /* [n nodes + 1] edges stand in the order of those who wait */
} walk;

static void link_nodes(const walk *w)
{
    const reading *const r = w->r;
    const tandem_engine_edge *const edge = r->edges.of;
    for (int i = 0, e = 0; i <= r->nodes.n; i++) {
        while (e < r->edges.n && edge[e].after < i) e++;
        w->first_edge[i] = e;
    }
    for (int g = 0; g < r->n_group; g++) w->last_part[g] = -1;
    for (int i = 0; i < r->nodes.n; i++) {
        if (r->group[i] < 0) continue;
        int *const last = &w->last_part[r->group[i]];
        if (*last < 0 || w->ready_ns[i] > w->ready_ns[*last]) *last = i;
    }
}

/* Whom a node waited for last; −1 = nobody: it was ready at once. */
static int before(const walk *w, int i)
{
    const tandem_engine_edge *const edge = w->r->edges.of;
    const int part = w->r->group[i] >= 0 ? w->last_part[w->r->group[i]] : i;
    for (int e = w->first_edge[part]; e < w->first_edge[part + 1]; e++)
        if (w->end_ns[edge[e].before] == w->ready_ns[part]) return edge[e].before;
    return -1;
}

static int last_of(const walk *w)
{
    int last = 0;
    for (int i = 1; i < w->r->nodes.n; i++)
        if (w->end_ns[i] > w->end_ns[last]) last = i;
    return last;
}

static tandem_status list_links(const walk *w, tandem_whatif *whatif)
{
    int n = 0;
    for (int i = last_of(w); i >= 0; i = before(w, i)) n++;
    whatif->link = calloc((size_t)n, sizeof *whatif->link);
    if (!whatif->link) return no_memory(w->r);
    whatif->n_link = n;
    for (int i = last_of(w); i >= 0; i = before(w, i)) {
        tandem_whatif_link *const one = &whatif->link[--n];
        const whatif_model *const model = w->model;
        (void)snprintf(one->who, sizeof one->who, "%s", model->worker_name[model->worker[i]].text);
        (void)snprintf(one->what, sizeof one->what, "%s", w->r->kind[node_of(w->r, i)->kind].text);
        (void)snprintf(one->name, sizeof one->name, "%.*s", (int)sizeof one->name - 1, model->op_name[i]);
        one->start_ns = w->end_ns[i] - model->actual_ns[i];
        one->end_ns = w->end_ns[i];
    }
    return TANDEM_OK;
}

static tandem_status find_path(const reading *r, const whatif_model *model, tandem_whatif *whatif)
{
    const size_t n = (size_t)r->nodes.n;
    int64_t length_ns = 0;
    walk w = {.r = r,
              .model = model,
              .ready_ns = malloc(n * sizeof *w.ready_ns),
              .end_ns = malloc(n * sizeof *w.end_ns),
              .last_part = malloc(((size_t)r->n_group + 1) * sizeof *w.last_part),
              .first_edge = malloc((n + 1) * sizeof *w.first_edge)};
    tandem_status status = TANDEM_OK;
    if (!w.ready_ns || !w.end_ns || !w.last_part || !w.first_edge) status = no_memory(r);
    if (status == TANDEM_OK)
        status = tandem_engine_run(model->engine[0], model->actual_ns, w.ready_ns, w.end_ns, &length_ns, r->error);
    if (status == TANDEM_OK) {
        link_nodes(&w);
        status = list_links(&w, whatif);
    }
    free(w.first_edge);
    free(w.last_part);
    free(w.end_ns);
    free(w.ready_ns);
    return status;
}

/* --- Files ---------------------------------------------------------------------------------------------- */

static void close_reading(reading *r)
{
    free(r->group);
    free(r->table);
    free(r->names.of);
    free(r->edges.of);
    free(r->deps.of);
    free(r->nodes.of);
    free(r->rank);
    tandem_arena_free(&r->arena);
    free(r);
}

/* `bytes` NULL: the paths are files. */
static tandem_status analyse(tandem_whatif **whatif, const char *const *path, const void *const *bytes,
                             const size_t *n_byte, int n, const char *trace_path, tandem_error *error)
{
    whatif_model model = {0};
    tandem_whatif *made = NULL;
    if (n < 1 || n > MOST_RANKS)
        return tandem_error_set(error, TANDEM_USAGE, "%d traces; expected 1 to %d, one a rank", n, MOST_RANKS);
    reading *const r = calloc(1, sizeof *r);
    if (!r) return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to read '%.200s'", path[0]);
    r->error = error;
    tandem_status status = open_ranks(r, path, n);
    for (r->at = 0; r->at < n && status == TANDEM_OK; r->at++) {
        tandem_input input = {0};
        int place = 0;
        while (path[place] != r->rank[r->at].path) place++;
        status = bytes ? tandem_input_open_bytes(&input, bytes[place], n_byte[place], path[place], error)
                       : tandem_input_open(&input, path[place], error);
        if (status == TANDEM_OK) status = read_rank(r, &input);
        tandem_input_close(&input);
    }
    r->at = 0;
    if (status == TANDEM_OK) status = join_all(r);
    if (status == TANDEM_OK) status = open_model(r, &model);
    if (status == TANDEM_OK) status = whatif_analyse(&made, &model, trace_path, error);
    if (status == TANDEM_OK) status = find_path(r, &model, made);
    if (status == TANDEM_OK)
        *whatif = made;
    else
        tandem_whatif_close(made);
    whatif_model_close(&model);
    close_reading(r);
    return status;
}

tandem_status tandem_whatif_chakra(tandem_whatif **whatif, const char *const *path, int n,
                                   const char *trace_path, tandem_error *error)
{
    return analyse(whatif, path, NULL, NULL, n, trace_path, error);
}

tandem_status tandem_whatif_parse_chakra(tandem_whatif **whatif, const char *const *source,
                                         const void *const *bytes, const size_t *n_byte, int n, tandem_error *error)
{
    return analyse(whatif, source, bytes, n_byte, n, NULL, error);
}
