/* folder: trace */
/* Execution traces of Chakra: what is written of a step, read back to the same step; traces written here,
 * with steps worked out by hand; and all kinds of bad ones. */
#include <unistd.h>
#include <zlib.h>

#include "base/file.h"
#include "profiles/format/chakra.h"
#include "profiles/format/chakra.pb-c.h"
#include "tandem/advanced/trace.h"
#include "tandem/advanced/whatif.h"
#include "tests/support/tandem_test.h"

/* --- Writing messages ----------------------------------------------------------------------------------- */

enum { MAX = 1 << 14 };

typedef struct file {
    uint8_t bytes[MAX];
    size_t n;
} file;

static void put_varint(file *to, uint64_t value)
{
    for (; value > 0x7f; value >>= 7) to->bytes[to->n++] = (uint8_t)(value | 0x80);
    to->bytes[to->n++] = (uint8_t)value;
}

static void put_chakra(file *to, const ProtobufCMessage *message)
{
    const size_t n = protobuf_c_message_get_packed_size(message);
    assert_true(to->n + n + 10 < MAX);
    put_varint(to, n);
    to->n += protobuf_c_message_pack(message, to->bytes + to->n);
}

static void put_metadata(file *to)
{
    Chakra__Metadata metadata = CHAKRA__METADATA__INIT;
    metadata.version = (ProtobufCBinaryData){5, (uint8_t[]){"0.0.4"}};
    put_chakra(to, &metadata.base);
}

/* A node of some µs; dep, attribute: end at −1 and at name NULL. */
typedef struct pair {
    const char *name;
    int64_t value;
    const char *text; /* instead of a value */
} pair;
typedef struct drawn {
    uint64_t id;
    int type;
    uint64_t us;
    int dep[6];
    pair attribute[4];
    const char *name;
} drawn;

/* Among the dependencies of a node: one on the call that called it. */
enum { CALLED_BY = 1000 };

static void put_node(file *to, const drawn *from)
{
    Chakra__Node node = CHAKRA__NODE__INIT;
    Chakra__Attribute one[4], *pointer[4];
    uint64_t dep[5];
    node.id = from->id;
    node.type = from->type;
    node.name = (char *)(uintptr_t)(from->name ? from->name : "x");
    node.duration_us = from->us;
    node.data = dep;
    node.attribute = pointer;
    uint64_t control[5];
    node.control = control;
    for (int k = 0; k < 5 && from->dep[k] >= 0; k++) {
        if (from->dep[k] >= CALLED_BY)
            control[node.n_control++] = (uint64_t)from->dep[k] - CALLED_BY;
        else
            dep[node.n_data++] = (uint64_t)from->dep[k];
    }
    for (size_t k = 0; k < 4 && from->attribute[k].name; k++) {
        pointer[k] = &one[k];
        one[k] = (Chakra__Attribute)CHAKRA__ATTRIBUTE__INIT;
        one[k].name = (char *)(uintptr_t)from->attribute[k].name;
        one[k].value_case = from->attribute[k].text ? CHAKRA__ATTRIBUTE__VALUE_STRING_VAL
                                                    : CHAKRA__ATTRIBUTE__VALUE_INT64_VAL;
        if (from->attribute[k].text)
            one[k].string_val = (char *)(uintptr_t)from->attribute[k].text;
        else
            one[k].int64_val = from->attribute[k].value;
        node.n_attribute++;
    }
    put_chakra(to, &node.base);
}

static file *make_chakra(const drawn *node, size_t n)
{
    file *const made = calloc(1, sizeof *made);
    assert_non_null(made);
    put_metadata(made);
    for (size_t k = 0; k < n; k++) put_node(made, &node[k]);
    return made;
}

enum {
    COMP = TANDEM_CHAKRA_COMPUTE,
    SEND = TANDEM_CHAKRA_SEND,
    RECV = TANDEM_CHAKRA_RECEIVE,
    COLL = TANDEM_CHAKRA_COLLECTIVE
};
#define NONE                                                                                                 \
    {                                                                                                        \
        -1                                                                                                   \
    }
#define AFTER(...)                                                                                           \
    {                                                                                                        \
        __VA_ARGS__, -1                                                                                      \
    }

/* --- Reading -------------------------------------------------------------------------------------------- */

static tandem_status parse_chakra(tandem_whatif **whatif, const file *a, const file *b, tandem_error *error)
{
    const char *const source[] = {"t.0.et", "t.1.et"};
    const void *const bytes[] = {a->bytes, b ? b->bytes : NULL};
    const size_t n[] = {a->n, b ? b->n : 0};
    return tandem_whatif_parse_chakra(whatif, source, bytes, n, b ? 2 : 1, error);
}

static tandem_whatif *accept(file *a, file *b)
{
    tandem_whatif *whatif = NULL;
    tandem_error error = {0};
    require_ok(parse_chakra(&whatif, a, b, &error), &error);
    free(b);
    free(a);
    return whatif;
}

static void refuse(file *a, file *b, const char *word, const char *more)
{
    tandem_whatif *const untouched = (tandem_whatif *)(uintptr_t)16, *whatif = untouched;
    tandem_error error = {0};
    assert_int_equal(parse_chakra(&whatif, a, b, &error), TANDEM_MALFORMED);
    assert_ptr_equal(whatif, untouched);
    if (!strstr(error.text, word) || !strstr(error.text, more))
        fail_msg("'%s' and '%s' are not said: %s", word, more, error.text);
    free(b);
    free(a);
}

/* Two ranks compute 30 and 50 us, reduce for 10 us, which the early one sees as 30, and update for 5 us. */
static void a_collective_is_joined(void **state)
{
    static const drawn early[] = {
        {9, COMP, 30, NONE, {{0}}, "fwd"},
        {3, COLL, 30, AFTER(9), {{"comm_type", 0, NULL}, {"comm_size", 64, NULL}}, "grad"},
        {4, COMP, 5, AFTER(3), {{"kind", 0, "update"}}, "opt"}};
    static const drawn late[] = {
        {9, COMP, 50, NONE, {{0}}, "fwd"},
        {3, COLL, 10, AFTER(9), {{"comm_type", 0, NULL}, {"comm_size", 64, NULL}}, "grad"},
        {4, COMP, 5, AFTER(3), {{"kind", 0, "update"}}, "opt"}};
    tandem_whatif *const w = accept(make_chakra(early, 3), make_chakra(late, 3));
    assert_int_equal(w->step_ns, 65000);
    assert_int_equal(w->ideal_ns, 45000); /* as the one that computes least */
    assert_int_equal(w->n_worker, 2);
    assert_int_equal(w->n_op, 6);
    assert_int_equal(w->recorded_ns, 0);
    assert_string_equal(w->cause.who, "rank 1");
    assert_int_equal(w->cause.without_ns, 45000);
    static const struct {
        const char *who, *what, *name;
        int64_t start_ns, end_ns;
    } path[] = {{"rank 1", "compute", "fwd", 0, 50000},
                {"rank 0", "all-reduce", "grad", 50000, 60000},
                {"rank 0", "update", "opt", 60000, 65000}};
    assert_int_equal(w->n_critical, 3);
    for (int k = 0; k < 3; k++) {
        assert_string_equal(w->critical_path[k].who, path[k].who);
        assert_string_equal(w->critical_path[k].what, path[k].what);
        assert_string_equal(w->critical_path[k].name, path[k].name);
        assert_int_equal(w->critical_path[k].start_ns, path[k].start_ns);
        assert_int_equal(w->critical_path[k].end_ns, path[k].end_ns);
    }
    tandem_whatif_close(w);
}

/* Rank 0 computes 7 us and sends; rank 1 receives, having waited, and computes 20 us. */
static void a_message_is_joined(void **state)
{
    static const drawn from[] = {
        {0, COMP, 7, NONE, {{0}}, NULL},
        {1, SEND, 2, AFTER(0), {{"comm_dst", 1, NULL}, {"comm_tag", 5, NULL}}, NULL}};
    static const drawn to[] = {{0, RECV, 9, NONE, {{"comm_src", 0, NULL}, {"comm_tag", 5, NULL}}, NULL},
                               {1, COMP, 20, AFTER(0), {{0}}, NULL}};
    tandem_whatif *w = accept(make_chakra(from, 2), make_chakra(to, 2));
    assert_int_equal(w->step_ns, 29000);
    tandem_whatif_close(w);
    w = accept(make_chakra(from, 2), NULL); /* the other rank's file is not there: it is sent alone */
    assert_int_equal(w->step_ns, 9000);
    tandem_whatif_close(w);
}

/* Only the ranks of a named group take part; the exact duration counts; beside one another runs what does not
 * depend. */
static void what_nodes_say_counts(void **state)
{
    static const drawn one[] = {
        {0, COMP, 4, NONE, {{"tandem_duration_ns", 4321, NULL}}, NULL},
        {1, COLL, 3, NONE, {{"comm_type", 2, NULL}, {"pg_name", 0, "mine"}, {"comm_size", 1, NULL}}, NULL}};
    static const drawn other[] = {{0, COMP, 2, NONE, {{0}}, NULL}};
    tandem_whatif *const w = accept(make_chakra(one, 2), make_chakra(other, 1));
    assert_int_equal(w->step_ns, 4321);
    assert_string_equal(w->by_operator.part[1].name, "all-gather");
    tandem_whatif_close(w);
}

/* --- Call parents and messages -------------------------------------------------------------------------- */

/* A converted trace lacks the parents of some calls. */
static void missing_call_parents_are_counted(void **state)
{
    static const drawn some[] = {
        {2, COMP, 5, AFTER(CALLED_BY + 1), {{0}}, "child"},
        {3, COMP, 7, AFTER(2, CALLED_BY + 2, CALLED_BY + 99, CALLED_BY + 98), {{0}}, "next"}};
    tandem_whatif *const w = accept(make_chakra(some, 2), NULL);
    assert_int_equal(w->step_ns, 12000);
    assert_int_equal(w->n_missing_control, 3);
    assert_int_equal(w->n_dropped_control, 0);
    tandem_whatif_close(w);
}

/* item() calls a kernel and a copy, and waits for the copy: 2, 3, 4 by calls, 3, 4, 2 by data. Node 1,
 * which is on no cycle, waits for 2. */
static void data_decides_against_call_parents(void **state)
{
    static const drawn some[] = {{2, COMP, 1, AFTER(4), {{0}}, "item"},
                                 {3, COMP, 20, AFTER(CALLED_BY + 2), {{0}}, "dense"},
                                 {4, COMP, 300, AFTER(3, CALLED_BY + 3), {{0}}, "copy"},
                                 {1, COMP, 4000, AFTER(CALLED_BY + 2), {{0}}, "later"}};
    tandem_whatif *const w = accept(make_chakra(some, 4), NULL);
    assert_int_equal(w->step_ns, 4321000);
    assert_int_equal(w->n_dropped_control, 1);
    assert_int_equal(w->n_missing_control, 0);
    tandem_whatif_close(w);
}

/* Calls alone form a cycle: the node with the lowest number comes first. Itself as a parent is a cycle,
 * too. */
static void cycles_of_calls_are_cut_once(void **state)
{
    static const drawn some[] = {{5, COMP, 1, AFTER(CALLED_BY + 7), {{0}}, "a"},
                                 {6, COMP, 20, AFTER(CALLED_BY + 5, CALLED_BY + 6), {{0}}, "b"},
                                 {7, COMP, 300, AFTER(CALLED_BY + 6), {{0}}, "c"}};
    tandem_whatif *const w = accept(make_chakra(some, 3), NULL);
    assert_int_equal(w->step_ns, 321000);
    assert_int_equal(w->n_dropped_control, 2);
    tandem_whatif_close(w);
}

/* Data dependencies in a cycle are wrong, with calls beside them, too. */
static void cycles_of_data_are_refused_beside_calls(void **state)
{
    static const drawn some[] = {{5, COMP, 1, AFTER(6, CALLED_BY + 6), {{0}}, "a"},
                                 {6, COMP, 20, AFTER(5), {{0}}, "b"}};
    refuse(make_chakra(some, 2), NULL, "cycle", "(a)");
}

/* Both ranks send and then receive: a send is buffered, and does not wait. */
static void a_ring_of_sends_is_no_cycle(void **state)
{
    static const drawn zero[] = {{0, COMP, 10, NONE, {{0}}, "work"},
                                 {1, SEND, 5, AFTER(0), {{"comm_dst", 1, NULL}}, "send"},
                                 {2, RECV, 40, AFTER(1), {{"comm_src", 1, NULL}}, "receive"},
                                 {3, COMP, 100, AFTER(2), {{0}}, "more"}};
    static const drawn one[] = {{0, COMP, 30, NONE, {{0}}, "work"},
                                {1, SEND, 5, AFTER(0), {{"comm_dst", 0, NULL}}, "send"},
                                {2, RECV, 5, AFTER(1), {{"comm_src", 0, NULL}}, "receive"},
                                {3, COMP, 100, AFTER(2), {{0}}, "more"}};
    tandem_whatif *const w = accept(make_chakra(zero, 4), make_chakra(one, 4));
    /* rank 0 waits until rank 1 sends, at 30: 30 + 5 + 100; rank 1: 30 + 5, 5, 100 */
    assert_int_equal(w->step_ns, 140000);
    assert_int_equal(w->n_dropped_control, 0);
    tandem_whatif_close(w);
}

/* Both receive before they send: that is a deadlock. */
static void a_ring_of_receives_is_a_cycle(void **state)
{
    static const drawn zero[] = {{1, RECV, 5, NONE, {{"comm_src", 1, NULL}}, "receive"},
                                 {2, SEND, 5, AFTER(1), {{"comm_dst", 1, NULL}}, "send"}};
    static const drawn one[] = {{1, RECV, 5, NONE, {{"comm_src", 0, NULL}}, "receive"},
                                {2, SEND, 5, AFTER(1), {{"comm_dst", 0, NULL}}, "send"}};
    refuse(make_chakra(zero, 2), make_chakra(one, 2), "cycle", "(receive)");
}

/* A send holds the rank that receives, not the one that sends. */
static void a_send_does_not_wait(void **state)
{
    static const drawn from[] = {{1, SEND, 5, NONE, {{"comm_dst", 1, NULL}}, "send"},
                                 {2, COMP, 100, AFTER(1), {{0}}, "work"}};
    static const drawn to[] = {{0, COMP, 60, NONE, {{0}}, "busy"},
                               {1, RECV, 5, AFTER(0), {{"comm_src", 0, NULL}}, "receive"}};
    tandem_whatif *const w = accept(make_chakra(from, 2), make_chakra(to, 2));
    assert_int_equal(w->step_ns, 105000);
    tandem_whatif_close(w);
}

/* A send that was called by another node, and one that waits for its own receive. */
static void callers_of_a_send_hold_its_receive(void **state)
{
    static const drawn from[] = {{0, COMP, 70, NONE, {{0}}, "work"},
                                 {1, SEND, 5, AFTER(CALLED_BY + 0), {{"comm_dst", 1, NULL}}, "send"}};
    static const drawn to[] = {{1, RECV, 5, NONE, {{"comm_src", 0, NULL}}, "receive"}};
    static const drawn both[] = {{0, COMP, 70, NONE, {{0}}, "work"},
                                 {1, SEND, 5, AFTER(2), {{"comm_dst", 0, NULL}}, "send"},
                                 {2, RECV, 5, NONE, {{"comm_src", 0, NULL}}, "receive"}};
    tandem_whatif *const w = accept(make_chakra(from, 2), make_chakra(to, 1));
    assert_int_equal(w->step_ns, 75000);
    assert_int_equal(w->critical_path[1].start_ns, 70000);
    static const drawn after[] = {{1, RECV, 5, NONE, {{"comm_src", 0, NULL}}, "receive"},
                                  {2, COMP, 9, AFTER(1), {{0}}, "more"}};
    tandem_whatif *const more = accept(make_chakra(from, 2), make_chakra(after, 2));
    assert_int_equal(more->step_ns, 84000);
    tandem_whatif_close(more);
    tandem_whatif_close(w);
    refuse(make_chakra(both, 3), NULL, "cycle", "(receive)");
}

/* --- Drawn graphs, against the rules written out -------------------------------------------------------- */

enum { MAX_DRAWN = 8 };
typedef struct rules {
    int n;
    int data[MAX_DRAWN][MAX_DRAWN], control[MAX_DRAWN][MAX_DRAWN]; /* [before][after] */
    int reaches[MAX_DRAWN][MAX_DRAWN];
    int64_t end_us[MAX_DRAWN];
    int is_done[MAX_DRAWN];
} rules;

static void close_reaches(rules *o)
{
    for (int i = 0; i < o->n; i++)
        for (int k = 0; k < o->n; k++) o->reaches[i][k] = o->data[i][k] || o->control[i][k];
    for (int m = 0; m < o->n; m++)
        for (int i = 0; i < o->n; i++)
            for (int k = 0; k < o->n; k++) o->reaches[i][k] |= o->reaches[i][m] && o->reaches[m][k];
}

/* Whether a node may come next; if not `all`, control dependencies within its cycle do not count. */
static int may_come(const rules *o, int at, int all)
{
    for (int b = 0; b < o->n; b++) {
        const int is_soft = !o->data[b][at] && (b == at || (o->reaches[b][at] && o->reaches[at][b]));
        if (o->is_done[b] || (!o->data[b][at] && !o->control[b][at])) continue;
        if (all || !is_soft) return 0;
    }
    return !o->is_done[at];
}

/* Returns the step; *dropped: control dependencies that contradict the order. */
static int64_t order_by_rules(rules *o, const drawn *node, int64_t *dropped)
{
    int64_t step_us = 0;
    *dropped = 0;
    close_reaches(o);
    for (int n_done = 0; n_done < o->n; n_done++) {
        int at = -1;
        for (int all = 1; all >= 0 && at < 0; all--)
            for (int k = o->n - 1; k >= 0; k--)
                if (may_come(o, k, all)) at = k;
        assert_true(at >= 0);
        for (int b = 0; b < o->n; b++) {
            if (o->control[b][at] && !o->is_done[b]) (*dropped)++;
            if ((o->data[b][at] || o->control[b][at]) && o->is_done[b] && o->end_us[b] > o->end_us[at])
                o->end_us[at] = o->end_us[b];
        }
        o->is_done[at] = 1;
        o->end_us[at] += (int64_t)node[at].us;
        if (o->end_us[at] > step_us) step_us = o->end_us[at];
    }
    return step_us;
}

static void draw_graph(rules *o, drawn *node, unsigned *seed)
{
    *o = (rules){.n = 2 + rand_r(seed) % (MAX_DRAWN - 1)};
    int order[MAX_DRAWN];
    for (int k = 0; k < o->n; k++) {
        const int at = rand_r(seed) % (k + 1);
        order[k] = order[at];
        order[at] = k;
    }
    for (int k = 0; k < o->n; k++) {
        const int n_dep = rand_r(seed) % 4;
        node[k] = (drawn){(uint64_t)k, COMP, 1 + (uint64_t)(rand_r(seed) % 1000), NONE, {{0}}, "x"};
        for (int d = 0; d < n_dep; d++) {
            const int before = rand_r(seed) % o->n;
            const int is_data = order[before] < order[k] && rand_r(seed) % 2;
            int *const edge = is_data ? &o->data[before][k] : &o->control[before][k];
            node[k].dep[d] = *edge ? CALLED_BY + 99 : is_data ? before : CALLED_BY + before;
            node[k].dep[d + 1] = -1;
            *edge = 1;
        }
    }
}

static void drawn_graphs_are_ordered_by_the_rules(void **state)
{
    unsigned seed = 20;
    int64_t n_dropped = 0;
    for (int k = 0; k < 3000; k++) {
        rules o;
        drawn node[MAX_DRAWN];
        int64_t dropped = 0;
        draw_graph(&o, node, &seed);
        const int64_t step_us = order_by_rules(&o, node, &dropped);
        tandem_whatif *const w = accept(make_chakra(node, (size_t)o.n), NULL);
        if (w->step_ns != 1000 * step_us || w->n_dropped_control != dropped)
            fail_msg("graph %d: %lld ns, %lld dropped; by the rules %lld us, %lld", k, (long long)w->step_ns,
                     (long long)w->n_dropped_control, (long long)step_us, (long long)dropped);
        n_dropped += dropped;
        tandem_whatif_close(w);
    }
    assert_true(n_dropped > 3000);
}

/* Calls of both ranks around an all-reduce that both wait for. */
static void calls_around_a_collective_are_cut(void **state)
{
    static const drawn one[] = {{1, COLL, 8, AFTER(2), {{"comm_type", 0, NULL}}, "reduce"},
                                {2, COMP, 10, AFTER(CALLED_BY + 1), {{0}}, "grad"}};
    tandem_whatif *const w = accept(make_chakra(one, 2), make_chakra(one, 2));
    assert_int_equal(w->step_ns, 18000);
    assert_int_equal(w->n_dropped_control, 2);
    tandem_whatif_close(w);
}

/* --- Bad ones ------------------------------------------------------------------------------------------- */

static void bad_graphs_are_refused(void **state)
{
    static const drawn good[] = {{0, COMP, 1, NONE, {{0}}, NULL}};
    static const drawn circle[] = {{0, COMP, 1, AFTER(1), {{0}}, "a"}, {1, COMP, 1, AFTER(0), {{0}}, "b"}};
    static const drawn itself[] = {{5, COMP, 1, AFTER(5), {{0}}, "a"}};
    static const drawn dangling[] = {{7, COMP, 1, AFTER(99), {{0}}, "lost"}};
    static const drawn twice[] = {{7, COMP, 1, NONE, {{0}}, "a"}, {7, COMP, 1, NONE, {{0}}, "again"}};
    static const drawn longest[] = {{7, COMP, UINT64_MAX, NONE, {{0}}, "long"}};
    static const drawn negative[] = {{7, COMP, 1, NONE, {{"tandem_duration_ns", -5, NULL}}, "minus"}};
    static const drawn nothing[] = {{7, COMP, 0, NONE, {{0}}, "empty"}};
    static const drawn text[] = {{7, COLL, 1, NONE, {{"comm_size", 0, "big"}}, "text"}};
    static const drawn nowhere[] = {{7, SEND, 1, NONE, {{0}}, "nowhere"}};
    refuse(make_chakra(circle, 2), NULL, "rank 0, node", "(a)");
    refuse(make_chakra(itself, 1), NULL, "rank 0, node 5", "(a)");
    refuse(make_chakra(dangling, 1), NULL, "node 7 (lost)", "node 99");
    refuse(make_chakra(twice, 2), NULL, "node 7 (again)", "twice");
    refuse(make_chakra(longest, 1), NULL, "node 7 (long)", "104 days");
    refuse(make_chakra(negative, 1), NULL, "node 7 (minus)", "from 0 on");
    refuse(make_chakra(text, 1), NULL, "node 7 (text)", "whole numbers");
    refuse(make_chakra(nowhere, 1), NULL, "node 7 (nowhere)", "comm_dst");
    refuse(make_chakra(nothing, 1), NULL, "t.0.et", "no node has a duration");
    refuse(make_chakra(good, 0), NULL, "t.0.et", "no nodes");
}

static void lacking_partners_are_refused(void **state)
{
    static const drawn both[] = {{1, COLL, 3, NONE, {{"comm_type", 0, NULL}}, "first"},
                                 {2, COLL, 3, AFTER(1), {{"comm_type", 0, NULL}}, "second"}};
    static const drawn big[] = {
        {1, COLL, 3, NONE, {{"comm_type", 0, NULL}, {"comm_size", 8, NULL}}, "first"}};
    static const drawn small[] = {
        {1, COLL, 3, NONE, {{"comm_type", 0, NULL}, {"comm_size", 4, NULL}}, "first"}};
    static const drawn send[] = {{1, SEND, 3, NONE, {{"comm_dst", 1, NULL}}, "hello"}};
    static const drawn alone[] = {{1, COMP, 3, NONE, {{0}}, NULL}};
    refuse(make_chakra(both, 2), make_chakra(both, 1), "node 2 (second)", "number 2");
    refuse(make_chakra(big, 1), make_chakra(small, 1), "(first)", "comm_size");
    refuse(make_chakra(send, 1), make_chakra(alone, 1), "node 1 (hello)", "a send and a receive");
}

static void damaged_files_are_refused(void **state)
{
    static const drawn good[] = {{0, COMP, 1, NONE, {{0}}, "abc"}, {1, COMP, 1, AFTER(0), {{0}}, "def"}};
    file *const whole = make_chakra(good, 2);
    for (size_t n = 0; n < whole->n; n++) { /* a cut between messages leaves fewer nodes, or none */
        file *const cut = calloc(1, sizeof *cut);
        tandem_whatif *w = NULL;
        tandem_error error = {0};
        memcpy(cut->bytes, whole->bytes, n);
        cut->n = n;
        const tandem_status status = parse_chakra(&w, cut, NULL, &error);
        if (status == TANDEM_OK) assert_int_equal(w->n_op, 1);
        if (status != TANDEM_OK) assert_int_equal(status, TANDEM_MALFORMED);
        tandem_whatif_close(w);
        free(cut);
    }
    file *bad = make_chakra(good, 2);
    bad->n--;
    refuse(bad, NULL, "t.0.et", "within a message");
    bad = make_chakra(good, 0);
    memset(bad->bytes + bad->n, 0xff, 11);
    bad->n += 11;
    refuse(bad, NULL, "t.0.et', byte 8", "64 bits");
    bad = make_chakra(good, 0);
    /* id over 64 bits */
    memcpy(bad->bytes + bad->n, "\x0c\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 13);
    bad->n += 13;
    refuse(bad, NULL, "t.0.et', byte 9", "the message is damaged");
    bad = make_chakra(good, 0);
    put_varint(bad, (uint64_t)1 << 40);
    refuse(bad, NULL, "t.0.et", "expected at most 1048576");
    bad = calloc(1, sizeof *bad);
    put_node(bad, &good[1]);
    refuse(bad, NULL, "t.0.et", "the metadata");
    refuse(calloc(1, sizeof *bad), NULL, "t.0.et", "the metadata");

    bad = make_chakra(good, 2); /* compressed, and cut off */
    uint8_t packed[MAX];
    z_stream z = {.next_in = bad->bytes, .avail_in = (uInt)bad->n, .next_out = packed, .avail_out = MAX};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    (void)deflateEnd(&z);
    memcpy(bad->bytes, packed, MAX);
    bad->n = z.total_out;
    tandem_whatif *const w = accept(memcpy(calloc(1, sizeof *bad), bad, sizeof *bad), NULL);
    assert_int_equal(w->step_ns, 2000);
    tandem_whatif_close(w);
    bad->n -= 9;
    refuse(bad, NULL, "t.0.et", "cut off");
    free(whole);
}

static void ranks_come_from_names(void **state)
{
    static const drawn good[] = {{0, COMP, 1, NONE, {{0}}, "abc"}};
    file *const f = make_chakra(good, 1);
    const void *const bytes[] = {f->bytes, f->bytes};
    const size_t n[] = {f->n, f->n};
    const char *const swapped[] = {"a.12.et.gz", "a.3.et"}, *const same[] = {"a.3.et", "b.3.et"},
                      *const silent[] = {"a.et", "3.et"};
    tandem_whatif *w = NULL;
    tandem_error error = {0};
    assert_int_equal(tandem_whatif_parse_chakra(&w, swapped, bytes, n, 2, &error), TANDEM_OK);
    assert_string_equal(w->by_worker.part[0].name, "rank 3");
    assert_string_equal(w->by_worker.part[1].name, "rank 12");
    tandem_whatif_close(w);
    assert_int_equal(tandem_whatif_parse_chakra(&w, same, bytes, n, 2, &error), TANDEM_MALFORMED);
    assert_non_null(strstr(error.text, "both of rank 3"));
    assert_int_equal(tandem_whatif_parse_chakra(&w, silent, bytes, n, 2, &error), TANDEM_OK);
    assert_string_equal(w->by_worker.part[1].name, "rank 1");
    tandem_whatif_close(w);
    free(f);
}

/* --- Steps of our own ----------------------------------------------------------------------------------- */

typedef struct fixture {
    tandem_graph *graph;
    tandem_step *step[2];
    tandem_trace_event *event[2];
    int n_event[2];
    char folder[40];
} fixture;

/* Tasks one after another, each as long as `draw` says; buckets when both ranks are there, one after the
 * other. */
static void lay_out_chakra(fixture *f)
{
    enum { MAX_BUCKETS = 64 };
    int64_t now_ns[2] = {0, 0}, wire_ns = 0, through_ns[MAX_BUCKETS] = {0};
    uint32_t draw = 1;
    for (int t = 0; t < f->step[0]->n_task; t++) {
        const tandem_task *const task = &f->step[0]->task[t];
        const int64_t ready_ns = now_ns[0] > now_ns[1] ? now_ns[0] : now_ns[1];
        if (task->kind == TANDEM_TASK_REDUCE && wire_ns < ready_ns) wire_ns = ready_ns;
        for (int k = 0; k < 2; k++) {
            if (!f->step[k]->task[t].active) continue;
            draw = draw * 1664525u + 1013904223u;
            const int64_t length_ns = task->kind == TANDEM_TASK_REDUCE ? 77777 : 1 + draw % 99999;
            int64_t *const clock_ns = task->kind == TANDEM_TASK_REDUCE ? &wire_ns : &now_ns[k];
            if (task->kind == TANDEM_TASK_UPDATE && now_ns[k] < through_ns[task->bucket])
                now_ns[k] = through_ns[task->bucket];
            f->event[k][f->n_event[k]++] = (tandem_trace_event){*clock_ns, *clock_ns + length_ns, t};
            if (task->kind != TANDEM_TASK_REDUCE) *clock_ns += length_ns;
        }
        if (task->kind == TANDEM_TASK_REDUCE) through_ns[task->bucket] = wire_ns += 77777;
    }
}

static int open_fixture_chakra(void **state)
{
    fixture *const f = calloc(1, sizeof *f);
    int op = 0;
    if (!f || tandem_graph_open(&f->graph, "mlp", 8, NULL) != TANDEM_OK) return -1;
    for (int k = 0; k < 2; k++) {
        if (tandem_step_open(&f->step[k], f->graph, TANDEM_F32, 1 << 18, NULL) != TANDEM_OK) return -1;
        f->event[k] = calloc((size_t)f->step[k]->n_task, sizeof *f->event[k]);
        if (!f->event[k]) return -1;
    }
    if (tandem_graph_find(&op, f->graph, "fc2", NULL) != TANDEM_OK) return -1;
    tandem_step_set(f->step[1], op, TANDEM_PRECISION_INT8);
    tandem_step_resolve(f->step[1]);
    lay_out_chakra(f);
    (void)snprintf(f->folder, sizeof f->folder, "/tmp/tandem_chakra_XXXXXX");
    *state = f;
    return mkdtemp(f->folder) ? 0 : -1;
}

static int close_fixture_chakra(void **state)
{
    fixture *const f = *state;
    for (int k = 0; k < 2; k++) {
        free(f->event[k]);
        tandem_step_close(f->step[k]);
    }
    tandem_graph_close(f->graph);
    const int code = rmdir(f->folder);
    free(f);
    return code;
}

static void write_lanes_chakra(const fixture *f, const char *path)
{
    tandem_error error = {0};
    const tandem_trace_track track[] = {{.device = "cpu:a",
                                         .rank = 0,
                                         .n_rank = 1,
                                         .step = f->step[0],
                                         .event = f->event[0],
                                         .n_event = f->n_event[0]},
                                        {.device = "cpu:b",
                                         .rank = 1,
                                         .n_rank = 3,
                                         .step = f->step[1],
                                         .event = f->event[1],
                                         .n_event = f->n_event[1]}};
    require_ok(tandem_trace_write(path, "title", track, 2, &error), &error);
}

/* The step is the one that the JSON of the same events gives, and the one that was laid out, to the ns. */
static void a_step_comes_back(void **state)
{
    const fixture *const f = *state;
    tandem_error error = {0};
    tandem_whatif *json = NULL, *chakra = NULL;
    char path[3][64];
    const char *const rank[] = {path[1], path[2]};
    static const char *const name[] = {"s.json", "s.0.et", "s.1.et"};
    for (int k = 0; k < 3; k++) (void)snprintf(path[k], sizeof path[k], "%s/%s", f->folder, name[k]);
    char base[64];
    (void)snprintf(base, sizeof base, "%s/s.et", f->folder);
    write_lanes_chakra(f, path[0]);
    write_lanes_chakra(f, base);
    require_ok(tandem_whatif_trace(&json, path[0], NULL, &error), &error);
    require_ok(tandem_whatif_chakra(&chakra, rank, 2, NULL, &error), &error);
    int64_t last_ns = 0;
    for (int k = 0; k < 2; k++) {
        const int64_t end_ns = f->event[k][f->n_event[k] - 1].end_ns;
        if (end_ns > last_ns) last_ns = end_ns;
    }
    assert_in_range(f->step[0]->n_bucket, 2, 64);
    assert_int_equal(chakra->step_ns, last_ns);
    assert_int_equal(chakra->recorded_ns, last_ns);
    assert_int_equal(json->step_ns, chakra->step_ns);
    assert_int_equal(json->n_op, chakra->n_op);
    assert_int_equal(json->by_worker.part[0].without_ns != 0, 1);
    assert_int_equal(chakra->critical_path[0].start_ns, 0);
    for (int k = 1; k < chakra->n_critical; k++)
        assert_int_equal(chakra->critical_path[k].start_ns, chakra->critical_path[k - 1].end_ns);
    assert_int_equal(chakra->critical_path[chakra->n_critical - 1].end_ns, chakra->step_ns);
    tandem_whatif_close(chakra);
    tandem_whatif_close(json);
    for (int k = 0; k < 3; k++) assert_int_equal(unlink(path[k]), 0);
}

/* The message at *at, moved on after it. */
static const uint8_t *next_message(const uint8_t *bytes, size_t *at, size_t *n)
{
    int shift = 0;
    for (*n = 0;; shift += 7) {
        const uint8_t byte = bytes[(*at)++];
        *n |= (size_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) break;
    }
    *at += *n;
    return bytes + *at - *n;
}

static const Chakra__Attribute *attribute_of(const Chakra__Node *node, const char *name)
{
    for (size_t k = 0; k < node->n_attribute; k++)
        if (strcmp(node->attribute[k]->name, name) == 0) return node->attribute[k];
    fail_msg("node %llu has no %s", (unsigned long long)node->id, name);
    return NULL;
}

static int depends_on(const Chakra__Node *node, int on)
{
    for (size_t k = 0; k < node->n_data; k++)
        if (node->data[k] == (uint64_t)on) return 1;
    return 0;
}

/* Nodes are the tasks that ran, with what the step program says of them. */
static void check_node(const fixture *f, const Chakra__Node *node, const tandem_trace_event *event)
{
    const tandem_step *const step = f->step[1];
    const tandem_task *const task = &step->task[event->task];
    assert_int_equal(node->id, event->task);
    assert_int_equal(node->start_us, event->start_ns / 1000);
    assert_int_equal(node->duration_us, (event->end_ns - event->start_ns + 500) / 1000);
    assert_int_equal(attribute_of(node, "tandem_duration_ns")->int64_val, event->end_ns - event->start_ns);
    assert_string_equal(attribute_of(node, "kind")->string_val, tandem_task_kind_name(task->kind));
    assert_string_equal(attribute_of(node, "from")->string_val, tandem_dtype_name(task->from));
    assert_false(attribute_of(node, "is_cpu_op")->bool_val);
    if (task->kind == TANDEM_TASK_REDUCE) {
        assert_int_equal(node->type, COLL);
        assert_int_equal(attribute_of(node, "comm_type")->int64_val, 0);
        assert_int_equal(attribute_of(node, "comm_size")->int64_val, 4 * step->bucket[task->bucket].elements);
        assert_true(depends_on(node, step->bucket[task->bucket].ready_task));
    } else {
        assert_int_equal(node->type, COMP);
        if (task->kind == TANDEM_TASK_UPDATE)
            assert_true(depends_on(node, step->bucket[task->bucket].reduce_task));
    }
    if (task->kind != TANDEM_TASK_FORWARD || strcmp(step->graph->op[task->op].name, "fc2") != 0) return;
    assert_string_equal(attribute_of(node, "op")->string_val, "fc2");
    assert_string_equal(attribute_of(node, "precision")->string_val, "int8");
    assert_int_equal(node->n_data, 2); /* the casts of its input and its weight, straight before it */
    assert_true(depends_on(node, event[-1].task));
}

static void nodes_say_what_ran(void **state)
{
    const fixture *const f = *state;
    tandem_error error = {0};
    char path[64], *bytes = NULL;
    size_t n_byte = 0, at = 0, n = 0;
    (void)snprintf(path, sizeof path, "%s/s.et", f->folder);
    write_lanes_chakra(f, path);
    (void)snprintf(path, sizeof path, "%s/s.0.et", f->folder);
    assert_int_equal(unlink(path), 0);
    (void)snprintf(path, sizeof path, "%s/s.1.et", f->folder);
    assert_int_equal(tandem_file_read(&bytes, &n_byte, path, 1 << 20, &error), TANDEM_OK);
    const uint8_t *message = next_message((uint8_t *)bytes, &at, &n);
    Chakra__Metadata *const metadata = chakra__metadata__unpack(NULL, n, message);
    assert_non_null(metadata);
    assert_memory_equal(metadata->version.data, "0.0.4", 5);
    assert_string_equal(metadata->attribute[1]->string_val, "cpu:b");
    assert_int_equal(metadata->attribute[2]->int64_val, 1);
    assert_int_equal(metadata->attribute[3]->int64_val, 3);
    chakra__metadata__free_unpacked(metadata, NULL);
    int k = 0, last[2] = {-1, -1};
    for (; at < n_byte; k++) {
        message = next_message((uint8_t *)bytes, &at, &n);
        Chakra__Node *const node = chakra__node__unpack(NULL, n, message);
        assert_non_null(node);
        check_node(f, node, &f->event[1][k]);
        int *const before = &last[node->type == COLL];
        assert_int_equal(node->n_control, *before >= 0);
        if (*before >= 0) assert_int_equal(node->control[0], *before);
        *before = (int)node->id;
        chakra__node__free_unpacked(node, NULL);
    }
    assert_int_equal(k, f->n_event[1]);
    free(bytes);
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_collective_is_joined),
        cmocka_unit_test(a_message_is_joined),
        cmocka_unit_test(missing_call_parents_are_counted),
        cmocka_unit_test(data_decides_against_call_parents),
        cmocka_unit_test(cycles_of_calls_are_cut_once),
        cmocka_unit_test(cycles_of_data_are_refused_beside_calls),
        cmocka_unit_test(a_ring_of_sends_is_no_cycle),
        cmocka_unit_test(a_ring_of_receives_is_a_cycle),
        cmocka_unit_test(a_send_does_not_wait),
        cmocka_unit_test(calls_around_a_collective_are_cut),
        cmocka_unit_test(callers_of_a_send_hold_its_receive),
        cmocka_unit_test(drawn_graphs_are_ordered_by_the_rules),
        cmocka_unit_test(what_nodes_say_counts),
        cmocka_unit_test(bad_graphs_are_refused),
        cmocka_unit_test(lacking_partners_are_refused),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(ranks_come_from_names),
        cmocka_unit_test_setup_teardown(a_step_comes_back, open_fixture_chakra, close_fixture_chakra),
        cmocka_unit_test_setup_teardown(nodes_say_what_ran, open_fixture_chakra, close_fixture_chakra),
    };
    return cmocka_run_group_tests_name("chakra", tests, NULL, NULL);
}
