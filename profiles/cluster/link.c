/* link.c: a link, and the slowdown of a class, as text and in JSON. */
#include "profiles/cluster/link.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/plain_text.h"
#include "base/quantity.h"

/* --- Text: what is printed parses to the same numbers --------------------------------------------------- */

tandem_status tandem_link_parse(tandem_link *link, const char *name, const char *text, tandem_error *error)
{
    char rate[128];
    tandem_link link_read = {0};
    const char *const comma = strchr(text, ',');
    if (!comma || comma - text >= (int)sizeof rate)
        return tandem_error_set(error, TANDEM_USAGE,
                                "%s is a rate and a latency, as in %s=100Gbit/s,5us; got '%.40s'", name, name,
                                text);
    (void)snprintf(rate, sizeof rate, "%.*s", (int)(comma - text), text);
    tandem_status status = tandem_quantity_parse_bps(&link_read.bytes_per_s, rate, error);
    if (status == TANDEM_OK) status = tandem_quantity_parse_ns(&link_read.latency_ns, comma + 1, error);
    if (status == TANDEM_OK) *link = link_read;
    return status;
}

void tandem_print_exact(char *text, size_t size, uint64_t value, const tandem_unit *unit)
{
    while (unit->factor > 1 && (value == 0 || value % unit->factor != 0)) unit++;
    (void)snprintf(text, size, "%" PRIu64 "%s", value / unit->factor, unit->unit);
}

/* Rates that are not a whole number of bits per second keep all digits. The decimal point is '.' in every
 * locale. */
static void print_bit_rate(char *text, size_t size, double bytes_per_s)
{
    static const tandem_unit units[] = {{"Tbit/s", 1000000000000},
                                        {"Gbit/s", 1000000000},
                                        {"Mbit/s", 1000000},
                                        {"kbit/s", 1000},
                                        {"bit/s", 1}};
    const double bits_per_s = 8 * bytes_per_s;
    if (bits_per_s < 0x1p53 && bits_per_s >= 1 && bits_per_s == floor(bits_per_s)) {
        tandem_print_exact(text, size, (uint64_t)bits_per_s, units);
        return;
    }
    char digits[40];
    (void)tandem_plain_print(digits, sizeof digits, "%.16e", bits_per_s);
    /* The '+' of an exponent would separate two classes. */
    char *const plus = strchr(digits, '+');
    if (plus) memmove(plus, plus + 1, strlen(plus));
    (void)snprintf(text, size, "%sbit/s", digits);
}

void tandem_link_print(char *text, size_t size, const tandem_link *link)
{
    static const tandem_unit units[] = {{"s", 1000000000}, {"ms", 1000000}, {"us", 1000}, {"ns", 1}};
    char rate[64], latency[32];
    if (size) text[0] = '\0';
    if (!(link->bytes_per_s > 0)) return;
    print_bit_rate(rate, sizeof rate, link->bytes_per_s);
    tandem_print_exact(latency, sizeof latency, link->latency_ns > 0 ? (uint64_t)link->latency_ns : 0, units);
    (void)snprintf(text, size, "%s,%s", rate, latency);
}

/* --- JSON ---------------------------------------------------------------------------------------------- */

tandem_status tandem_link_read(tandem_link *link, const tandem_json_location *location, const json_t *object,
                               const char *name)
{
    tandem_error inner = {0};
    const char *text = NULL;
    const tandem_status status = tandem_json_text(&text, location, object, name, 0);
    if (status != TANDEM_OK || !text) return status;
    return tandem_link_parse(link, name, text, &inner) == TANDEM_OK
               ? TANDEM_OK
               : tandem_json_refuse(location, name, inner.text);
}

tandem_status tandem_slowdown_read(int64_t *slowdown_ppm, const tandem_json_location *location,
                                   const json_t *object)
{
    double slowdown = 1;
    const tandem_status status = tandem_json_real(&slowdown, location, object, "slow", 0);
    if (status != TANDEM_OK) return status;
    const double ppm = slowdown * TANDEM_CLUSTER_PPM;
    if (!(ppm >= 0.5) || !(slowdown <= TANDEM_CLUSTER_MAX_SLOWDOWN))
        return tandem_json_refuse(location, "slow", "must be a factor over 0 up to 1000");
    const int64_t whole = (int64_t)(ppm + 0.5);
    *slowdown_ppm = whole == TANDEM_CLUSTER_PPM ? 0 : whole;
    return TANDEM_OK;
}

tandem_status tandem_cluster_read_links(tandem_cluster *cluster, const tandem_json_location *location,
                                        const json_t *root)
{
    tandem_link net = {0};
    tandem_status status = tandem_link_read(&net, location, root, "net");
    if (status == TANDEM_OK) status = tandem_link_read(&cluster->node, location, root, "node");
    if (status != TANDEM_OK) return status;
    cluster->link_bytes_per_s = net.bytes_per_s;
    cluster->link_latency_ns = net.latency_ns;
    return TANDEM_OK;
}
