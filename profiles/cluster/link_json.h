/* link_json.h: links in JSON, of a cluster file and of a plan; private to profiles/. */
#ifndef TANDEM_PROFILES_LINK_JSON_H
#define TANDEM_PROFILES_LINK_JSON_H

#include "profiles/format/json.h"
#include "tandem/cluster.h"

/* tandem_link_read: the member `name` as a link; where it is absent or null, *link stays as it is.
 * TANDEM_MALFORMED. */
tandem_status tandem_link_read(tandem_link *link, const tandem_json_location *location, const json_t *object,
                               const char *name);
/* The member "slow" of a class, a factor over its compute; 0 where it is absent or 1. TANDEM_MALFORMED;
 * unchanged on error. */
tandem_status tandem_slowdown_read(int64_t *slowdown_ppm, const tandem_json_location *location,
                                   const json_t *object);
/* The members "net" and "node" of a cluster or a plan. */
tandem_status tandem_cluster_read_links(tandem_cluster *cluster, const tandem_json_location *location,
                                        const json_t *root);

#endif
