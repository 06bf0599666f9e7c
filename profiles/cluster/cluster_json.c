/* cluster_json.c: reads a cluster from a JSON file, tandem.cluster/1. */
#include "base/quantity.h"
#include "profiles/cluster/cluster_text.h"
#include "base/json.h"
#include "profiles/cluster/link.h"

#include <stdio.h>
#include <string.h>

static tandem_status read_cluster_class(tandem_cluster_class *member, const tandem_json_location *location,
                                        const json_t *object)
{
    static const char *const allowed[] = {"device", "ranks", "per_node", "batch",
                                          "memory", "link",  "slow",     NULL};
    tandem_error inner = {0};
    const char *device = NULL, *memory = NULL;
    int64_t n_rank = 1, per_node = 0;
    tandem_status status = tandem_json_check_members(location, object, allowed);
    if (status == TANDEM_OK) status = tandem_json_text(&device, location, object, "device", 1);
    if (status == TANDEM_OK)
        status = tandem_json_integer(&n_rank, location, object, "ranks", 1, TANDEM_CLUSTER_MAX_RANK, 0);
    if (status == TANDEM_OK)
        status = tandem_json_integer(&per_node, location, object, "per_node", 1, TANDEM_CLUSTER_MAX_RANK, 0);
    if (status == TANDEM_OK)
        status =
            tandem_json_integer(&member->batch, location, object, "batch", 1, TANDEM_CLUSTER_MAX_BATCH, 0);
    if (status == TANDEM_OK) status = tandem_json_text(&memory, location, object, "memory", 0);
    if (status == TANDEM_OK) status = tandem_link_read(&member->link, location, object, "link");
    if (status == TANDEM_OK) status = tandem_slowdown_read(&member->slowdown_ppm, location, object);
    if (status != TANDEM_OK) return status;
    member->n_rank = (int)n_rank;
    member->per_node = (int)per_node;
    if (memory && tandem_quantity_parse_bytes(&member->memory_bytes, memory, &inner) != TANDEM_OK)
        return tandem_json_refuse(location, "memory", inner.text);
    if (memory && member->memory_bytes == 0) return tandem_json_refuse(location, "memory", "must be above 0");
    const tandem_status found = tandem_device_find(&member->device, device, &inner);
    return found == TANDEM_OK ? found
                              : tandem_error_set(location->error, found, "'%.200s', %s.device: %s",
                                                 location->source, location->path, inner.text);
}

static tandem_status read_cluster_root(tandem_cluster *cluster, tandem_json_location *location,
                                       const json_t *root)
{
    static const char *const allowed[] = {"schema", "classes", "node", "net", NULL};
    const char *schema = NULL;
    tandem_status status = tandem_json_check_members(location, root, allowed);
    if (status == TANDEM_OK) status = tandem_json_text(&schema, location, root, "schema", 1);
    if (status != TANDEM_OK) return status;
    if (strcmp(schema, "tandem.cluster/1") != 0)
        return tandem_json_refuse(location, "schema", "must be \"tandem.cluster/1\"");
    status = tandem_cluster_read_links(cluster, location, root);
    if (status != TANDEM_OK) return status;
    const json_t *const classes = json_object_get(root, "classes");
    const size_t n = json_array_size(classes); /* 0 if it is no array */
    if (n < 1 || n > TANDEM_MAX_CLASS)
        return tandem_json_refuse(location, "classes", "must be an array of 1 to 32 classes");
    for (size_t c = 0; c < n && status == TANDEM_OK; c++) {
        (void)snprintf(location->path, sizeof location->path, "classes[%zu]", c);
        status = read_cluster_class(&cluster->classes[c], location, json_array_get(classes, c));
    }
    cluster->n_class = (int)n;
    return status;
}
_Static_assert(TANDEM_MAX_CLASS == 32, "the message above says 32");

tandem_status tandem_cluster_parse_json(tandem_cluster *cluster, const char *bytes, size_t n,
                                        const char *source, tandem_error *error)
{
    json_t *root = NULL;
    tandem_cluster parsed = {0};
    tandem_json_location location = {.source = source, .error = error};
    tandem_status status = tandem_json_parse(&root, bytes, n, source, error);
    if (status == TANDEM_OK) status = read_cluster_root(&parsed, &location, root);
    if (status == TANDEM_OK) *cluster = parsed;
    json_decref(root);
    return status;
}
