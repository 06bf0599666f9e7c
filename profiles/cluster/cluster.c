/* cluster.c: parses and prints clusters as text, and derives limits, ranks and groups from them. */
#include "tandem/cluster.h"
#include "base/list.h"
#include "base/nearest.h"
#include "base/plain_text.h"
#include "base/quantity.h"
#include "profiles/cluster/cluster_text.h"
#include "profiles/cluster/link.h"
#include "base/file.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char grammar[] =
    "A cluster is [COUNT*]DEVICE[@RANKS_PER_NODE] [batch=N] [memory=12GiB] [link=600GB/s,1us] [slow=1.05], "
    "several joined by '+', "
    "and at the end [node=300Gbit/s,2us] [net=100Gbit/s,5us] [slow=1.1@rank3]; or the name of a .json file";

enum { WORD = 128, MAX_STRAGGLERS = 256 };

typedef struct straggler {
    int rank;
    int64_t slowdown_ppm;
} straggler;

typedef struct cluster_parser {
    const char *at;
    char word[WORD];
    tandem_cluster cluster;
    tandem_link net;
    straggler straggler[MAX_STRAGGLERS];
    int n_straggler;
    tandem_error *error;
} cluster_parser;

/* Where the word is, as errors say it: in a class, or, as net= and node=, anywhere in the cluster. */
static const char *print_word_place(char text[WORD + 32], const cluster_parser *p)
{
    if (strncmp(p->word, "net=", 4) == 0 || strncmp(p->word, "node=", 5) == 0)
        (void)snprintf(text, WORD + 32, "cluster, '%s'", p->word);
    else
        (void)snprintf(text, WORD + 32, "class %d, '%s'", p->cluster.n_class + 1, p->word);
    return text;
}

static tandem_status refuse_class(cluster_parser *p, const char *why)
{
    char place[WORD + 32];
    return tandem_error_set(p->error, TANDEM_USAGE, "%s: %s. %s.", print_word_place(place, p), why, grammar);
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* Reads the next word into p->word; "" before '+' and at the end. */
static tandem_status next_cluster_word(cluster_parser *p)
{
    while (is_blank(*p->at)) p->at++;
    size_t n = 0;
    while (p->at[n] && p->at[n] != '+' && !is_blank(p->at[n])) n++;
    const bool cut = n >= WORD;
    (void)snprintf(p->word, WORD, "%.*s", cut ? 40 : (int)n, p->at);
    if (cut) return refuse_class(p, "this word is too long");
    p->at += n;
    return TANDEM_OK;
}

/* An integer from 1 to `max`; 0 for anything else. */
static int64_t parse_positive(const char *text, size_t n, int64_t max)
{
    int64_t value = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9') return 0;
        value = value * 10 + (text[i] - '0');
        if (value > max) return 0;
    }
    return value;
}

/* Whether a word without its COUNT* and @RANKS_PER_NODE names a device. */
static bool names_device(const char *word)
{
    char name[WORD];
    tandem_device device;
    const char *const star = strchr(word, '*'), *const begin = star ? star + 1 : word;
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(begin, "@"), begin);
    return tandem_device_find(&device, name, NULL) == TANDEM_OK;
}

/* Joins the next words to the device's where they name a card together, as in "RTX 2080 Ti". An option has a
 * '=', and no name is longer than four words. */
static void join_device_words(cluster_parser *p)
{
    char joined[WORD];
    const char *at = p->at;
    (void)snprintf(joined, sizeof joined, "%s", p->word);
    for (int more = 0; more < 3; more++) {
        while (is_blank(*at)) at++;
        const size_t n = strcspn(at, " \t\r\n+"), used = strlen(joined);
        if (n == 0 || memchr(at, '=', n) || used + 1 + n >= sizeof joined) return;
        (void)snprintf(joined + used, sizeof joined - used, " %.*s", (int)n, at);
        at += n;
        if (!names_device(joined)) continue;
        memcpy(p->word, joined, sizeof joined);
        p->at = at;
    }
}

/* [COUNT*]DEVICE[@RANKS_PER_NODE] */
static tandem_status read_class_device(cluster_parser *p, tandem_cluster_class *class)
{
    const char *name = p->word;
    const char *const star = strchr(name, '*');
    class->n_rank = 1;
    if (star) {
        class->n_rank = (int)parse_positive(name, (size_t)(star - name), TANDEM_CLUSTER_MAX_RANK);
        if (class->n_rank == 0) return refuse_class(p, "COUNT must be a whole number from 1 to 1000000");
        name = star + 1;
    }
    const char *const at = strrchr(name, '@');
    if (at) {
        class->per_node = (int)parse_positive(at + 1, strlen(at + 1), TANDEM_CLUSTER_MAX_RANK);
        if (class->per_node == 0)
            return refuse_class(p, "RANKS_PER_NODE must be a whole number from 1 to 1000000");
    }
    char device[WORD];
    (void)snprintf(device, sizeof device, "%.*s", at ? (int)(at - name) : (int)strlen(name), name);
    if (!device[0]) return refuse_class(p, "the name of a device is missing");
    return tandem_device_resolve(&class->device, device, p->error);
}

/* Repeats a quantity's error with the class and the word in front of it. */
static tandem_status refuse_class_value(cluster_parser *p, const tandem_error *inner)
{
    char place[WORD + 32];
    return tandem_error_set(p->error, inner->status, "%s: %s", print_word_place(place, p), inner->text);
}

/* A decimal number with at most six decimals, in millionths; 0 for anything else. */
static int64_t parse_ppm(const char *text, size_t n)
{
    const char *const point = memchr(text, '.', n);
    const size_t whole = point ? (size_t)(point - text) : n, fraction = point ? n - whole - 1 : 0;
    int64_t value = 0, scale_ppm = TANDEM_CLUSTER_PPM;
    if (n > 12 || whole == 0 || fraction > 6 || (point && fraction == 0)) return 0;
    for (size_t i = 0; i < n; i++) {
        if (i == whole) continue;
        if (text[i] < '0' || text[i] > '9') return 0;
        value = value * 10 + (text[i] - '0');
        if (i > whole) scale_ppm /= 10;
    }
    return value * scale_ppm;
}

static bool is_valid_slowdown(int64_t ppm)
{
    return ppm > 0 && ppm <= TANDEM_CLUSTER_MAX_SLOWDOWN * (int64_t)TANDEM_CLUSTER_PPM;
}

/* slow=FACTOR of a class, slow=FACTOR@rankN of a rank. */
static tandem_status read_class_slowdown(cluster_parser *p, tandem_cluster_class *class, const char *text)
{
    const char *const at = strchr(text, '@');
    const int64_t slowdown = parse_ppm(text, at ? (size_t)(at - text) : strlen(text));
    if (!is_valid_slowdown(slowdown))
        return refuse_class(p,
                            "slow is a factor over 0 up to 1000, with at most six decimals, as in slow=1.1");
    if (!at) {
        if (class->slowdown_ppm) return refuse_class(p, "slow is given twice");
        class->slowdown_ppm = slowdown;
        return TANDEM_OK;
    }
    const char *const rank = strncmp(at, "@rank", 5) == 0 ? at + 5 : "";
    const bool is_zero = strcmp(rank, "0") == 0;
    const int64_t number =
        parse_positive(rank, strlen(rank), TANDEM_CLUSTER_MAX_RANK * (int64_t)TANDEM_MAX_CLASS);
    if (!is_zero && number == 0)
        return refuse_class(p, "a straggler is a rank by its number, as in slow=1.1@rank3");
    for (int i = 0; i < p->n_straggler; i++)
        if (p->straggler[i].rank == number) return refuse_class(p, "slow is given twice for this rank");
    if (p->n_straggler == MAX_STRAGGLERS)
        return refuse_class(p, "more than 256 stragglers; write equally slow ranks as a class, COUNT*DEVICE "
                               "slow=1.1");
    p->straggler[p->n_straggler++] = (straggler){(int)number, slowdown};
    return TANDEM_OK;
}

static tandem_status read_class_batch(cluster_parser *p, tandem_cluster_class *class, const char *value)
{
    if (class->batch) return refuse_class(p, "batch is given twice");
    class->batch = parse_positive(value, strlen(value), TANDEM_CLUSTER_MAX_BATCH);
    return class->batch ? TANDEM_OK : refuse_class(p, "batch must be a whole number from 1 to 1000000000");
}

static tandem_status read_class_memory(cluster_parser *p, tandem_cluster_class *class, const char *value)
{
    tandem_error inner = {0};
    if (class->memory_bytes) return refuse_class(p, "memory is given twice");
    if (tandem_quantity_parse_bytes(&class->memory_bytes, value, &inner) != TANDEM_OK)
        return refuse_class_value(p, &inner);
    return class->memory_bytes ? TANDEM_OK : refuse_class(p, "memory must be above 0");
}

static tandem_status read_class_link(cluster_parser *p, tandem_link *link, const char *name,
                                     const char *value)
{
    tandem_error inner = {0};
    char why[32];
    (void)snprintf(why, sizeof why, "%s is given twice", name);
    if (link->bytes_per_s > 0) return refuse_class(p, why);
    return tandem_link_parse(link, name, value, &inner) == TANDEM_OK ? TANDEM_OK
                                                                     : refuse_class_value(p, &inner);
}

static tandem_status read_class_option(cluster_parser *p, tandem_cluster_class *class)
{
    static const char *const keys[] = {"batch", "memory", "link", "slow", "node", "net"};
    enum { BATCH, MEMORY, LINK, SLOWDOWN, NODE, NET, N_KEY };
    char key[WORD];
    const char *const equals = strchr(p->word, '=');
    (void)snprintf(key, sizeof key, "%.*s", (int)strcspn(p->word, "="), p->word);
    int k = 0;
    while (k < N_KEY && strcmp(key, keys[k]) != 0) k++;
    if (k == N_KEY || !equals)
        return tandem_error_set(p->error, TANDEM_USAGE,
                                "class %d, '%s': a device may be followed by batch=, memory=, link=, slow=, "
                                "node= and net=.%s %s.",
                                p->cluster.n_class + 1, p->word,
                                k == N_KEY ? tandem_nearest_hint(key, keys, N_KEY).text : "", grammar);
    switch (k) {
    case BATCH: return read_class_batch(p, class, equals + 1);
    case MEMORY: return read_class_memory(p, class, equals + 1);
    case LINK: return read_class_link(p, &class->link, "link", equals + 1);
    case SLOWDOWN: return read_class_slowdown(p, class, equals + 1);
    case NODE: return read_class_link(p, &p->cluster.node, "node", equals + 1);
    default: return read_class_link(p, &p->net, "net", equals + 1);
    }
}

static tandem_status parse_cluster_class(cluster_parser *p)
{
    tandem_cluster_class class = {0};
    tandem_status status = next_cluster_word(p);
    if (status != TANDEM_OK) return status;
    if (p->cluster.n_class == TANDEM_MAX_CLASS)
        return tandem_error_set(p->error, TANDEM_USAGE,
                                "a cluster has %d classes at most; write equal devices as one "
                                "class, COUNT*DEVICE",
                                TANDEM_MAX_CLASS);
    if (!p->word[0]) return refuse_class(p, "a device is missing here");
    join_device_words(p);
    status = read_class_device(p, &class);
    while (status == TANDEM_OK) {
        status = next_cluster_word(p);
        if (status != TANDEM_OK || !p->word[0]) break;
        status = read_class_option(p, &class);
    }
    if (status == TANDEM_OK) p->cluster.classes[p->cluster.n_class++] = class;
    return status;
}

/* --- Stragglers ----------------------------------------------------------------------------------------- */

/* Moves one rank of class `from` to a class with its slowdown, among those made from `first` on. */
static tandem_status add_straggler(cluster_parser *p, const tandem_cluster *whole, int from, int first,
                                   const straggler *s)
{
    tandem_cluster *const built = &p->cluster;
    for (int c = first; c < built->n_class; c++)
        if (built->classes[c].slowdown_ppm == s->slowdown_ppm) {
            built->classes[c].n_rank++;
            return TANDEM_OK;
        }
    if (built->n_class == TANDEM_MAX_CLASS)
        return tandem_error_set(
            p->error, TANDEM_USAGE,
            "slow=…@rank%d: a straggler needs a class beside the cluster's %d, of at most %d; give "
            "stragglers of one class the same factor, or write fewer classes",
            s->rank, built->n_class, TANDEM_MAX_CLASS);
    built->classes[built->n_class] = whole->classes[from];
    built->classes[built->n_class].n_rank = 1;
    built->classes[built->n_class++].slowdown_ppm = s->slowdown_ppm;
    return TANDEM_OK;
}

static tandem_status split_stragglers(cluster_parser *p, const tandem_cluster *whole, int from,
                                      int first_rank)
{
    const int first = p->cluster.n_class, end_rank = first_rank + whole->classes[from].n_rank;
    int n_left = whole->classes[from].n_rank;
    for (int i = 0; i < p->n_straggler; i++)
        n_left -= p->straggler[i].rank >= first_rank && p->straggler[i].rank < end_rank;
    if (n_left > 0 && p->cluster.n_class == TANDEM_MAX_CLASS)
        return tandem_error_set(p->error, TANDEM_USAGE,
                                "with its stragglers the cluster has more than %d classes; give stragglers "
                                "of one class the same factor, or write fewer classes",
                                TANDEM_MAX_CLASS);
    if (n_left > 0) {
        p->cluster.classes[p->cluster.n_class] = whole->classes[from];
        p->cluster.classes[p->cluster.n_class++].n_rank = n_left;
    }
    tandem_status status = TANDEM_OK;
    for (int i = 0; i < p->n_straggler && status == TANDEM_OK; i++)
        if (p->straggler[i].rank >= first_rank && p->straggler[i].rank < end_rank)
            status = add_straggler(p, whole, from, first, &p->straggler[i]);
    return status;
}

static tandem_status split_off_stragglers(cluster_parser *p)
{
    const tandem_cluster whole = p->cluster;
    const int n_rank = tandem_cluster_n_rank(&whole);
    for (int i = 0; i < p->n_straggler; i++)
        if (p->straggler[i].rank >= n_rank)
            return tandem_error_set(p->error, TANDEM_USAGE, "slow=…@rank%d: the cluster's ranks are 0 to %d",
                                    p->straggler[i].rank, n_rank - 1);
    tandem_status status = TANDEM_OK;
    p->cluster.n_class = 0;
    for (int c = 0, first_rank = 0; c < whole.n_class && status == TANDEM_OK;
         first_rank += whole.classes[c++].n_rank)
        status = split_stragglers(p, &whole, c, first_rank);
    for (int c = 0; c < p->cluster.n_class; c++)
        if (p->cluster.classes[c].slowdown_ppm == TANDEM_CLUSTER_PPM) p->cluster.classes[c].slowdown_ppm = 0;
    return status;
}

static tandem_status parse_cluster_text(tandem_cluster *cluster, const char *text, tandem_error *error)
{
    cluster_parser p = {.at = text, .error = error};
    for (;;) {
        const tandem_status status = parse_cluster_class(&p);
        if (status != TANDEM_OK) return status;
        if (!*p.at) break;
        p.at++; /* the '+' */
    }
    const tandem_status status = split_off_stragglers(&p);
    if (status != TANDEM_OK) return status;
    *cluster = p.cluster;
    cluster->link_bytes_per_s = p.net.bytes_per_s;
    cluster->link_latency_ns = p.net.latency_ns;
    return TANDEM_OK;
}

/* No device's name begins or ends like this. "/" alone decides nothing, since it occurs in "100Gbit/s". */
static bool is_cluster_file_name(const char *text)
{
    const size_t n = strlen(text);
    return (n > 5 && strcmp(text + n - 5, ".json") == 0) || text[0] == '/' || strncmp(text, "./", 2) == 0 ||
           strncmp(text, "../", 3) == 0;
}

tandem_status tandem_cluster_parse(tandem_cluster *cluster, const char *text, tandem_error *error)
{
    enum { MAX_CLUSTER_BYTES = 1 << 20 };
    if (!text || !text[strspn(text, " \t\r\n")])
        return tandem_error_set(error, TANDEM_USAGE, "the cluster is empty. %s.", grammar);
    if (!is_cluster_file_name(text)) return parse_cluster_text(cluster, text, error);
    char *bytes = NULL;
    size_t n = 0;
    tandem_status status = tandem_file_read(&bytes, &n, text, MAX_CLUSTER_BYTES, error);
    if (status == TANDEM_OK) status = tandem_cluster_parse_json(cluster, bytes, n, text, error);
    free(bytes);
    return status;
}

/* --- Printing: exact, so that what was printed parses to the same cluster ------------------------------- */
/* Appends to text[size]; cuts to fit. */
__attribute__((format(printf, 3, 4))) static void append_format(char *text, size_t size, const char *format,
                                                                ...)
{
    const size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    (void)tandem_plain_print_list(text + used, size - used, format, arguments);
    va_end(arguments);
}

static void append_link(char *text, size_t size, const char *name, const tandem_link *link)
{
    char value[TANDEM_LINK_TEXT];
    tandem_link_print(value, sizeof value, link);
    if (value[0]) append_format(text, size, " %s=%s", name, value);
}

static void print_ppm(char *text, size_t size, int64_t ppm)
{
    (void)snprintf(text, size, "%" PRId64 ".%06" PRId64, ppm / TANDEM_CLUSTER_PPM, ppm % TANDEM_CLUSTER_PPM);
    size_t n = strlen(text);
    while (n > 1 && text[n - 1] == '0') n--;
    text[text[n - 1] == '.' ? n - 1 : n] = '\0';
}

void tandem_cluster_print(char *text, size_t size, const tandem_cluster *cluster)
{
    static const tandem_unit units[] = {
        {"TiB", 1ull << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}};
    const tandem_link net = {cluster->link_bytes_per_s, cluster->link_latency_ns};
    if (size == 0) return;
    text[0] = '\0';
    for (int c = 0; c < cluster->n_class; c++) {
        const tandem_cluster_class *const class = &cluster->classes[c];
        append_format(text, size, "%s", c ? " + " : "");
        if (class->n_rank != 1) append_format(text, size, "%d*", class->n_rank);
        append_format(text, size, "%s", class->device.name);
        if (class->per_node) append_format(text, size, "@%d", class->per_node);
        if (class->batch) append_format(text, size, " batch=%" PRId64, class->batch);
        if (class->memory_bytes) {
            char memory[32];
            tandem_print_exact(memory, sizeof memory, class->memory_bytes, units);
            append_format(text, size, " memory=%s", memory);
        }
        append_link(text, size, "link", &class->link);
        if (class->slowdown_ppm) {
            char slowdown[32];
            print_ppm(slowdown, sizeof slowdown, class->slowdown_ppm);
            append_format(text, size, " slow=%s", slowdown);
        }
    }
    append_link(text, size, "node", &cluster->node);
    append_link(text, size, "net", &net);
}

/* --- What follows for each class ------------------------------------------------------------------------ */
static tandem_status read_memory_limit(tandem_cluster *cluster, int c, const char *memory,
                                       tandem_error *error)
{
    char word[64];
    uint64_t bytes = 0;
    if (!tandem_list_word(word, sizeof word, memory, c, cluster->n_class))
        return tandem_error_set(error, TANDEM_USAGE,
                                "memory '%.200s' does not fit %d classes: give one size for all, or one for "
                                "each",
                                memory, cluster->n_class);
    const tandem_status status = tandem_quantity_parse_bytes(&bytes, word, error);
    if (status != TANDEM_OK) return status;
    if (bytes == 0)
        return tandem_error_set(error, TANDEM_USAGE, "memory '%.200s': a limit must be above 0", memory);
    cluster->classes[c].memory_bytes = bytes;
    return TANDEM_OK;
}

tandem_status tandem_cluster_fill_defaults(tandem_cluster *cluster, int64_t batch, const char *memory,
                                           tandem_error *error)
{
    tandem_cluster built = *cluster;
    for (int c = 0; c < built.n_class; c++) {
        if (built.classes[c].batch == 0) built.classes[c].batch = batch;
        const tandem_status status = memory ? read_memory_limit(&built, c, memory, error) : TANDEM_OK;
        if (status != TANDEM_OK) return status;
    }
    *cluster = built;
    return TANDEM_OK;
}

tandem_status tandem_cluster_open_graphs(tandem_graph **graph, const tandem_cluster *cluster,
                                         const char *model, tandem_error *error)
{
    tandem_graph *made[TANDEM_MAX_CLASS] = {0};
    tandem_status status = TANDEM_OK;
    for (int c = 0; c < cluster->n_class && status == TANDEM_OK; c++)
        status = tandem_graph_open(&made[c], model, cluster->classes[c].batch, error);
    for (int c = 0; c < cluster->n_class; c++) {
        if (status == TANDEM_OK)
            graph[c] = made[c];
        else
            tandem_graph_close(made[c]);
    }
    return status;
}

uint64_t tandem_cluster_memory_limit(const tandem_cluster *cluster, int c)
{
    const tandem_cluster_class *const class = &cluster->classes[c];
    return class->memory_bytes ? class->memory_bytes : class->device.memory_bytes;
}

/* --- Ranks ---------------------------------------------------------------------------------------------- */
int tandem_cluster_may_need_loss_scale(const tandem_cluster *cluster)
{
    for (int c = 0; c < cluster->n_class; c++)
        for (int p = 0; p < TANDEM_N_PRECISION; p++)
            if (cluster->classes[c].device.precisions >> p & 1 &&
                tandem_precision_has_f16_gradient((tandem_precision)p, cluster->classes[c].device.amp_dtype))
                return 1;
    return 0;
}

int tandem_cluster_n_rank(const tandem_cluster *cluster)
{
    int n = 0;
    for (int c = 0; c < cluster->n_class; c++) n += cluster->classes[c].n_rank;
    return n;
}

int64_t tandem_cluster_n_core(const tandem_cluster *cluster)
{
    int64_t n = 0;
    for (int c = 0; c < cluster->n_class; c++)
        n += (int64_t)cluster->classes[c].n_rank * tandem_device_cores(cluster->classes[c].device.name);
    return n;
}

int64_t tandem_cluster_samples(const tandem_cluster *cluster, int n_micro)
{
    int64_t samples = 0;
    for (int c = 0; c < cluster->n_class; c++)
        samples += cluster->classes[c].batch * cluster->classes[c].n_rank;
    return samples * (n_micro > 1 ? n_micro : 1);
}

int tandem_cluster_class_of(const tandem_cluster *cluster, int rank)
{
    for (int c = 0; c < cluster->n_class && rank >= 0; c++) {
        if (rank < cluster->classes[c].n_rank) return c;
        rank -= cluster->classes[c].n_rank;
    }
    return -1;
}

int tandem_cluster_shares_memory(const tandem_cluster *cluster)
{
    if (cluster->over_network || tandem_cluster_n_rank(cluster) < 2) return 0;
    for (int c = 0; c < cluster->n_class; c++) {
        const tandem_cluster_class *const class = &cluster->classes[c];
        const int is_whole = cluster->n_class == 1 && class->per_node >= class->n_rank;
        if (tandem_device_is_described(&class->device) || (class->per_node != 0 && !is_whole)) return 0;
    }
    return 1;
}

void tandem_cluster_group_key(char *text, size_t size, const tandem_cluster *cluster)
{
    const char *name[TANDEM_MAX_CLASS];
    int n_rank[TANDEM_MAX_CLASS], n = 0;
    for (int c = 0; c < cluster->n_class; c++) { /* sorted; equal names are merged */
        const tandem_cluster_class *const class = &cluster->classes[c];
        int at = 0;
        while (at < n && strcmp(name[at], class->device.name) < 0) at++;
        if (at == n || strcmp(name[at], class->device.name) != 0) {
            memmove(name + at + 1, name + at, (size_t)(n - at) * sizeof *name);
            memmove(n_rank + at + 1, n_rank + at, (size_t)(n - at) * sizeof *n_rank);
            name[at] = class->device.name;
            n_rank[at] = 0;
            n++;
        }
        n_rank[at] += class->n_rank;
    }
    if (size == 0) return;
    text[0] = '\0';
    for (int i = 0; i < n; i++) {
        append_format(text, size, "%s", i ? "+" : "");
        if (n_rank[i] > 1) append_format(text, size, "%d*", n_rank[i]);
        append_format(text, size, "%s", name[i]);
    }
    if (tandem_cluster_shares_memory(cluster)) append_format(text, size, "%s", " in shared memory");
    if (cluster->wire != TANDEM_F32) append_format(text, size, " in %s", tandem_dtype_name(cluster->wire));
}

tandem_status tandem_gradient_wire_find(tandem_dtype *wire, const char *name, tandem_error *error)
{
    static const char *const names[] = {"f32", "bf16"};
    static const tandem_dtype types[] = {TANDEM_F32, TANDEM_BF16};
    tandem_hint hint;
    const int k = tandem_name_find(name, names, 2, sizeof *names, &hint);
    if (k < 0)
        return tandem_error_set(error, TANDEM_UNKNOWN_NAME,
                                "gradients cannot travel in '%.40s'.%s There are: f32, bf16", name,
                                hint.text);
    *wire = types[k];
    return TANDEM_OK;
}

uint64_t tandem_cluster_wire_bytes(const tandem_cluster *cluster, int64_t elements)
{
    if (cluster->wire == TANDEM_F32 || elements < 1) return (uint64_t)elements * sizeof(float);
    return ((uint64_t)elements - 1) * 2 + sizeof(float);
}
