/* site.h: Slurm's names at one site: tandem.conf, beside slurm.conf. One fact per line; # begins a comment.
 *
 *   gres      gpu:a100-40  a100          a generic resource NAME:TYPE, or NAME of any type, is this device
 *   feature   rome         cpu:avx2      a node with this feature is this device
 *   net       100Gbit/s,5us              the link between nodes, as in a cluster's text
 *   interface eth0                       network interface of the ranks (TANDEM_IFACE)
 *   db        /var/lib/tandem/store.db   profile store of jobs that name none
 *
 * By default, gpu:TYPE is device TYPE, and a feature cpu_X, also with the prefix tandem_, is device cpu:X:
 * the name of a feature cannot hold a colon. Of several such features the strongest counts, the last of
 * `tandem list devices`. Other resources and features are ignored. Private to plugins/slurm. */
#pragma once

#include <stddef.h>

#include "tandem/cluster.h"

enum { TANDEM_SITE_NAME = 64, TANDEM_SITE_MAX_ROW = 256 };

typedef struct tandem_site_row {
    char name[TANDEM_SITE_NAME]; /* in Slurm */
    tandem_device device;
} tandem_site_row;

typedef struct tandem_site {
    char net[64], interface[32], db[4096]; /* "" = not given */
    int n_gres, n_feature;
    tandem_site_row gres[TANDEM_SITE_MAX_ROW], feature[TANDEM_SITE_MAX_ROW];
} tandem_site;

/* tandem_site_path: the default path: in the directory of slurm.conf ($SLURM_CONF, or /etc/slurm). Cut to
 * fit. */
void tandem_site_path(char *path, size_t size);

/* tandem_site_open: reads the file; without one, nothing is mapped. TANDEM_MALFORMED names the line;
 * TANDEM_IO, TANDEM_NO_MEMORY. *site (new, the caller closes it) is unchanged on error. */
tandem_status tandem_site_open(tandem_site **site, const char *path, tandem_error *error);
/* tandem_site_parse: the same for a text of n bytes; `path` names it in errors. TANDEM_MALFORMED,
 * TANDEM_NO_MEMORY. */
tandem_status tandem_site_parse(tandem_site **site, const char *text, size_t n, const char *path,
                                tandem_error *error);
void tandem_site_close(tandem_site *site); /* NULL is fine */

/* One resource of a list: "gres:gpu:t4:2", "gres/gpu:t4", "gpu:2", "gpu:t4:1(IDX:0)". */
typedef struct tandem_gres {
    char name[TANDEM_SITE_NAME], type[TANDEM_SITE_NAME]; /* type "" = none given */
    long count;                                          /* 1 where none is given */
} tandem_gres;
/* tandem_gres_next: parses the item at *list and advances *list; commas outside of parentheses separate
 * items. 0 at the end. Names are cut to fit. */
int tandem_gres_next(tandem_gres *gres, const char **list);

/* tandem_site_gres: the device of a resource. 1: *device is set; 0: it is none, or one without a type; −1:
 * its type is unknown, *error is TANDEM_UNKNOWN_NAME with the nearest name. */
int tandem_site_gres(tandem_device *device, const tandem_site *site, const tandem_gres *gres,
                     tandem_error *error);

/* tandem_site_feature: the device of a node with these features. 1: *device is set; 0: none. `features`:
 * names with any separators: "a,b", "[a*2&b*4]". */
int tandem_site_feature(tandem_device *device, const tandem_site *site, const char *features);

/* Parses the next feature name at *features and advances *features. 1; 0 at the end. Skips counts (*2). */
int tandem_feature_next(char name[TANDEM_SITE_NAME], const char **features);
