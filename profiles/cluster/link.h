/* link.h: links and slowdowns as text and in JSON, of a cluster and of a plan; private to profiles/. */
#pragma once

#include "base/json.h"
#include "tandem/cluster.h"

enum { TANDEM_CLUSTER_PPM = 1000000 /* the factor 1 */, TANDEM_CLUSTER_MAX_SLOWDOWN = 1000 /* times */ };

/* tandem_link_parse: "100Gbit/s,5us"; `name` is the link's in errors. TANDEM_USAGE; *link unchanged on error.
 * */
tandem_status tandem_link_parse(tandem_link *link, const char *name, const char *text, tandem_error *error);
/* The text that parses to the same link; "" for a link that is not given. */
enum { TANDEM_LINK_TEXT = 96 };
void tandem_link_print(char *text, size_t size, const tandem_link *link);

/* Units from large to small; the last factor is 1. tandem_print_exact: `value` in the largest unit of which
 * it is a whole multiple. */
typedef struct tandem_unit {
    const char *unit;
    uint64_t factor;
} tandem_unit;
void tandem_print_exact(char *text, size_t size, uint64_t value, const tandem_unit *unit);

/* tandem_link_read: the member `name` as a link; *link is unchanged where the member is absent or null.
 * TANDEM_MALFORMED. */
tandem_status tandem_link_read(tandem_link *link, const tandem_json_location *location, const json_t *object,
                               const char *name);
/* The member "slow" of a class, a factor; 0 where it is absent or 1. TANDEM_MALFORMED; unchanged on error. */
tandem_status tandem_slowdown_read(int64_t *slowdown_ppm, const tandem_json_location *location,
                                   const json_t *object);
/* The members "net" and "node" of a cluster or a plan. */
tandem_status tandem_cluster_read_links(tandem_cluster *cluster, const tandem_json_location *location,
                                        const json_t *root);
