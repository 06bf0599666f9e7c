/* cluster_text.h: parts of a cluster's text that its JSON form and the plan file share; private to
 * profiles/. */
#ifndef TANDEM_PROFILES_CLUSTER_TEXT_H
#define TANDEM_PROFILES_CLUSTER_TEXT_H

#include <stddef.h>

#include "tandem/cluster.h"

/* What a class may ask for: more is a slip of the finger, and sums of them fit their types. */
enum {
    TANDEM_CLUSTER_MAX_RANK = 1000000,
    TANDEM_CLUSTER_MAX_BATCH = 1000000000,
    TANDEM_CLUSTER_PPM = 1000000,      /* what 1 is in millionths */
    TANDEM_CLUSTER_MAX_SLOWDOWN = 1000 /* times */
};

/* A factor of a JSON file as tandem_cluster_class.slowdown_ppm; −1 where it is not allowed. */
int64_t tandem_slowdown_ppm_of(double factor);

/* tandem_link_parse: "100Gbit/s,5us"; `name` of the link is for errors. TANDEM_USAGE; *link unchanged on
 * error. */
tandem_status tandem_link_parse(tandem_link *link, const char *name, const char *text, tandem_error *error);
/* The same text back, so that parsing gives the same numbers; "" where no link is given. */
enum { TANDEM_LINK_TEXT = 96 };
void tandem_link_print(char *text, size_t size, const tandem_link *link);

/* tandem_cluster_parse_json: the content of a cluster file; `source` names it in errors. TANDEM_MALFORMED,
 * TANDEM_UNKNOWN_NAME, TANDEM_NO_MEMORY; *cluster unchanged on error. */
tandem_status tandem_cluster_parse_json(tandem_cluster *cluster, const char *bytes, size_t n,
                                        const char *source, tandem_error *error);

#endif
