/* torch_signatures.c: names of operators, kernels and collectives as rows: one row per name, shapes and
 * types, or per operation, size and group. */
#include "trace/torch/torch_reader.h"

#include <stdio.h>
#include <string.h>

#include "base/grow.h"

tandem_status torch_reader_no_memory(const torch_reader *r)
{
    return tandem_no_memory(r->error, "to read '%.200s'", r->events.input->source);
}

/* --- Names ---------------------------------------------------------------------------------------------- */

/* The letters of a name in lower case, so that ncclDevKernel_AllReduce_Sum, nccl:all_reduce and
 * c10d::allreduce_ are alike. */
static void lower_letters(char *to, size_t size, const char *name)
{
    size_t n = 0;
    for (; *name && n + 1 < size; name++) {
        const char lower = (char)(*name | 0x20);
        if (lower >= 'a' && lower <= 'z') to[n++] = lower;
    }
    to[n] = '\0';
}

/* The operation of a collective, or the name itself. */
const char *torch_collective_operation(const char *name)
{
    static const struct {
        const char *letters, *operation;
    } operations[] = {
        {"allreduce", "all-reduce"},  {"reducescatter", "reduce-scatter"},
        {"allgather", "all-gather"},  {"alltoall", "all-to-all"},
        {"broadcast", "broadcast"},   {"barrier", "barrier"},
        {"sendrecv", "send-receive"}, {"gather", "gather"},
        {"scatter", "scatter"},       {"send", "send"},
        {"recv", "receive"},          {"reduce", "reduce"},
    };
    char letters[TANDEM_EVENT_TEXT];
    lower_letters(letters, sizeof letters, name);
    for (size_t k = 0; k < sizeof operations / sizeof *operations; k++)
        if (strstr(letters, operations[k].letters)) return operations[k].operation;
    return name;
}

/* Whether all ranks give such a collective the same number of elements. */
static int has_equal_sizes(const char *operation)
{
    static const char *const equal[] = {"all-reduce", "broadcast", "reduce", "barrier"};
    for (size_t k = 0; k < sizeof equal / sizeof *equal; k++)
        if (strcmp(operation, equal[k]) == 0) return 1;
    return 0;
}

static int is_cast_event(const tandem_event *event)
{
    const char *const name = event->name.text;
    if (strcmp(name, "aten::to") == 0 || strcmp(name, "aten::_to_copy") == 0) return 1;
    if (strcmp(name, "aten::copy_") != 0 || event->types.n < 2) return 0;
    const char *const first = event->types.text + 1, *const comma = strchr(first, ','); /* [to,from,…] */
    if (!comma) return 0;
    const size_t n = (size_t)(comma - first);
    return strncmp(comma + 1, first, n) != 0 || (comma[1 + n] != ',' && comma[1 + n] != ']');
}

/* --- Rows ----------------------------------------------------------------------------------------------- */

/* Beyond the limit, all share one. */
tandem_status torch_add_signature(torch_reader *r, uint64_t hash, const char *name, const char *detail,
                                  int cast, int32_t *index)
{
    static const uint64_t rest = 1; /* hash of the shared one */
    torch_rank *const rank = r->rank;
    if (rank->n_signature == TORCH_MAX_SIGNATURES) {
        *index = tandem_hash_index_find(&rank->table, rest);
        return TANDEM_OK;
    }
    torch_signature signature = {.hash = hash, .is_cast = cast};
    if (rank->n_signature == TORCH_MAX_SIGNATURES - 1) {
        signature = (torch_signature){.hash = rest};
        name = "(operators beyond the first 65535)";
        detail = "";
    }
    torch_signature *const more = tandem_grow(rank->signature, &rank->signature_capacity, rank->n_signature,
                                              sizeof *more, TORCH_MAX_SIGNATURES);
    if (!more) return torch_reader_no_memory(r);
    rank->signature = more;
    signature.name = tandem_arena_text(&rank->arena, name);
    signature.detail = tandem_arena_text(&rank->arena, detail);
    if (!signature.name || !signature.detail ||
        !tandem_hash_index_add(&rank->table, signature.hash, rank->n_signature))
        return torch_reader_no_memory(r);
    more[rank->n_signature] = signature;
    *index = rank->n_signature++;
    return TANDEM_OK;
}

/* The signature is name, shapes and types of an operator, and the name of a kernel. */
tandem_status torch_find_signature(torch_reader *r, int is_kernel, int32_t *index)
{
    const tandem_event *const event = &r->event;
    const uint64_t hash =
        is_kernel ? ~event->name.hash : event->name.hash + 3 * event->dims.hash + 7 * event->types.hash;
    char detail[2 * TANDEM_EVENT_TEXT + 2];
    *index = tandem_hash_index_find(&r->rank->table, hash);
    if (*index >= 0) return TANDEM_OK;
    (void)snprintf(detail, sizeof detail, "%s%s%s", event->dims.text,
                   event->dims.n && event->types.n ? " " : "", event->types.text);
    return torch_add_signature(r, hash, event->name.text, is_kernel ? "" : detail, is_cast_event(event),
                               index);
}

/* --- Communication -------------------------------------------------------------------------------------- */

/* The row of a collective. Its hash distinguishes sizes, unlike the key by which it is joined. */
static tandem_status find_collective_row(torch_reader *r, uint64_t key, const char *name, const char *detail,
                                         int32_t *index)
{
    const uint64_t hash = tandem_hash_text(key ^ TANDEM_HASH_START, detail);
    *index = tandem_hash_index_find(&r->rank->table, hash);
    return *index >= 0 ? TANDEM_OK : torch_add_signature(r, hash, name, detail, 0, index);
}

tandem_status torch_add_collective(torch_reader *r, const torch_collective *added, const char *name,
                                   const char *detail, int32_t *index)
{
    torch_rank *const rank = r->rank;
    tandem_status status = TANDEM_OK;
    *index = -1;
    if (added->source != TORCH_KERNEL)
        status = tandem_interval_set_add(&rank->comm[added->source], added->start_ns,
                                         added->start_ns + added->duration_ns, r->error);
    if (status != TANDEM_OK) return status;
    if (rank->n_collective == TORCH_MAX_COLLECTIVES) {
        rank->n_dropped++;
        return TANDEM_OK;
    }
    torch_collective *const more = tandem_grow(rank->collective, &rank->collective_capacity,
                                               rank->n_collective, sizeof *more, TORCH_MAX_COLLECTIVES);
    if (!more) return torch_reader_no_memory(r);
    rank->collective = more;
    torch_collective collective = *added;
    status = find_collective_row(r, added->key, name, detail, &collective.signature);
    if (status != TANDEM_OK) return status;
    *index = rank->n_collective;
    more[rank->n_collective++] = collective;
    return TANDEM_OK;
}

/* What a row shows: size and group. The sizes of an all-to-all differ between ranks and between steps. */
static void describe_collective(const tandem_event *event, const char *operation, char *detail, size_t size)
{
    char number[32] = "";
    (void)snprintf(number, sizeof number, "n=%lld", (long long)event->elements);
    const char *const shown = strcmp(operation, "all-to-all") == 0 ? ""
                              : event->elements >= 0               ? number
                                                                   : event->dims.text;
    (void)snprintf(detail, size, "%s%s%s", shown, *shown && event->members.n ? " " : "", event->members.text);
}

/* The key is equal on all ranks: operation, group and type. Where no sequence number distinguishes the
 * collectives of a group, those whose sizes must be equal are distinguished by them. */
tandem_status torch_add_event_collective(torch_reader *r, int64_t end_ns, int source, int32_t *index)
{
    const tandem_event *const event = &r->event;
    const char *const operation =
        torch_collective_operation(event->label.n ? event->label.text : event->name.text);
    char detail[2 * TANDEM_EVENT_TEXT + 40];
    uint64_t key = tandem_hash_text(TANDEM_HASH_START, operation);
    key = (key + event->dtype.hash) * UINT64_C(0x9e3779b97f4a7c15) + 3 * event->members.hash;
    if (event->sequence < 0 && has_equal_sizes(operation))
        key = (key + (uint64_t)event->elements) * UINT64_C(0x9e3779b97f4a7c15) +
              (event->elements < 0 ? 7 * event->dims.hash : 0);
    describe_collective(event, operation, detail, sizeof detail);
    const torch_collective collective = {.start_ns = event->start_ns,
                                         .duration_ns = end_ns - event->start_ns,
                                         .key = key,
                                         .sequence = event->sequence,
                                         .window = -1,
                                         .source = source};
    return torch_add_collective(r, &collective, operation, detail, index);
}
