/* site.c: reads tandem.conf, and translates Slurm's names of resources and features to devices. */
#include "plugins/slurm/site.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/nearest.h"
#include "base/file.h"
#include "base/plain_text.h"

/* --- The file ------------------------------------------------------------------------------------------- */

typedef struct conf_line {
    const char *path;
    int number;
    char *rest; /* state of strtok_r */
    tandem_error *error;
} conf_line;

static tandem_status refuse_conf_line(const conf_line *l, const char *why)
{
    return tandem_error_set(l->error, TANDEM_MALFORMED, "%.200s, line %d: %s", l->path, l->number, why);
}

static char *next_conf_word(conf_line *l) { return strtok_r(NULL, " \t\r", &l->rest); }

static tandem_status read_device_row(tandem_site_row *row, int *n, conf_line *l)
{
    const char *name = next_conf_word(l), *device = next_conf_word(l);
    tandem_error inner = {0};
    if (!name || !device)
        return refuse_conf_line(l, "gres and feature take a name of Slurm's and a device: gres gpu:t4 t4");
    if (*n == TANDEM_SITE_MAX_ROW)
        return refuse_conf_line(l, "there are too many lines of this kind; 256 are allowed");
    if (strlen(name) >= TANDEM_SITE_NAME) return refuse_conf_line(l, "a name has 63 characters at most");
    if (tandem_device_find(&row[*n].device, device, &inner) != TANDEM_OK)
        return refuse_conf_line(l, inner.text);
    (void)snprintf(row[*n].name, sizeof row[*n].name, "%s", name);
    ++*n;
    return TANDEM_OK;
}

static tandem_status read_conf_value(char *value, size_t size, conf_line *l)
{
    const char *word = next_conf_word(l);
    if (!word) return refuse_conf_line(l, "a value is missing");
    if (strlen(word) >= size) return refuse_conf_line(l, "this value is too long");
    (void)snprintf(value, size, "%s", word);
    return TANDEM_OK;
}

static tandem_status read_conf_line(tandem_site *site, char *text, conf_line *l)
{
    static const char *const keys[] = {"gres", "feature", "net", "interface", "db"};
    const char *key = strtok_r(text, " \t\r", &l->rest);
    tandem_status status = TANDEM_OK;
    if (!key) return TANDEM_OK;
    if (strcmp(key, "gres") == 0)
        status = read_device_row(site->gres, &site->n_gres, l);
    else if (strcmp(key, "feature") == 0)
        status = read_device_row(site->feature, &site->n_feature, l);
    else if (strcmp(key, "net") == 0)
        status = read_conf_value(site->net, sizeof site->net, l);
    else if (strcmp(key, "interface") == 0)
        status = read_conf_value(site->interface, sizeof site->interface, l);
    else if (strcmp(key, "db") == 0)
        status = read_conf_value(site->db, sizeof site->db, l);
    else
        return tandem_error_set(
            l->error, TANDEM_MALFORMED,
            "%.200s, line %d: there is no '%.60s'.%s Lines begin with gres, feature, net, interface or db.",
            l->path, l->number, key, tandem_nearest_hint(key, keys, sizeof keys / sizeof *keys).text);
    if (status == TANDEM_OK && next_conf_word(l)) return refuse_conf_line(l, "there is a word too many");
    return status;
}

static tandem_status read_conf_lines(tandem_site *site, char *text, const char *path, tandem_error *error)
{
    conf_line l = {.path = path, .error = error};
    tandem_status status = TANDEM_OK;
    /* strsep counts empty lines, too */
    while (status == TANDEM_OK && text) {
        char *one = strsep(&text, "\n");
        one[strcspn(one, "#")] = '\0';
        l.number++;
        status = read_conf_line(site, one, &l);
    }
    return status;
}

tandem_status tandem_site_parse(tandem_site **out, const char *text, size_t n, const char *path,
                                tandem_error *error)
{
    if (n && memchr(text, '\0', n))
        return tandem_error_set(error, TANDEM_MALFORMED, "%.200s holds a NUL byte; it is a text", path);
    tandem_site *site = calloc(1, sizeof *site);
    char *copy = malloc(n + 1);
    tandem_status status = TANDEM_OK;
    if (!site || !copy) {
        status = tandem_no_memory(error, "to read '%.200s'", path);
    } else {
        if (n) memcpy(copy, text, n);
        copy[n] = '\0';
        status = read_conf_lines(site, copy, path, error);
    }
    free(copy);
    if (status == TANDEM_OK)
        *out = site;
    else
        free(site);
    return status;
}

void tandem_site_path(char *path, size_t size)
{
    const char *conf = getenv("SLURM_CONF");
    if (!conf || !strchr(conf, '/')) conf = "/etc/slurm/slurm.conf";
    (void)snprintf(path, size, "%.*s/tandem.conf", (int)(strrchr(conf, '/') - conf), conf);
}

tandem_status tandem_site_open(tandem_site **site, const char *path, tandem_error *error)
{
    enum { MAX_FILE_BYTES = 1 << 16 };
    char *bytes = NULL;
    size_t n = 0;
    const int absent = access(path, F_OK) != 0 && errno == ENOENT;
    tandem_status status = absent ? TANDEM_OK : tandem_file_read(&bytes, &n, path, MAX_FILE_BYTES, error);
    if (status == TANDEM_OK) status = tandem_site_parse(site, bytes, n, path, error);
    free(bytes);
    return status;
}

void tandem_site_close(tandem_site *site) { free(site); }

/* --- Generic resources ---------------------------------------------------------------------------------- */

/* Copies up to a colon or the end. */
static size_t copy_gres_field(char out[TANDEM_SITE_NAME], const char *text, size_t n)
{
    size_t length = 0;
    while (length < n && text[length] != ':') length++;
    (void)snprintf(out, TANDEM_SITE_NAME, "%.*s",
                   (int)(length < TANDEM_SITE_NAME ? length : TANDEM_SITE_NAME - 1), text);
    return length;
}

static int is_count(const char *text)
{
    char *end = NULL;
    if (!tandem_is_digit(*text)) return 0;
    (void)strtol(text, &end, 10);
    return *end == '\0' || (strchr("kKmMgG", *end) && end[1] == '\0');
}

/* Parses NAME[:TYPE][:COUNT]. */
static void read_gres(tandem_gres *gres, const char *text, size_t n)
{
    char second[TANDEM_SITE_NAME] = "", third[TANDEM_SITE_NAME] = "";
    size_t at = copy_gres_field(gres->name, text, n);
    if (at < n) at += 1 + copy_gres_field(second, text + at + 1, n - at - 1);
    if (at < n) (void)copy_gres_field(third, text + at + 1, n - at - 1);
    const int untyped = !third[0] && is_count(second);
    const char *count = untyped ? second : third;
    (void)snprintf(gres->type, sizeof gres->type, "%s", untyped ? "" : second);
    gres->count = is_count(count) ? strtol(count, NULL, 10) : 1;
}

int tandem_gres_next(tandem_gres *gres, const char **list)
{
    const char *at = *list;
    while (*at == ',' || *at == ' ') at++;
    if (strncmp(at, "gres:", 5) == 0 || strncmp(at, "gres/", 5) == 0) at += 5;
    const size_t n = strcspn(at, ",(");
    if (!n && *at != '(') return 0;
    read_gres(gres, at, n);
    at += n;
    if (*at == '(') at += strcspn(at, ")");
    *list = at + strcspn(at, ",");
    return 1;
}

/* The nearest resource that has a device, as NAME:TYPE. */
static tandem_hint nearest_gres(const tandem_site *site, const char *name)
{
    enum { MAX_DEVICES = 256 };
    typedef char text[TANDEM_SITE_NAME];
    tandem_hint hint = {""};
    const int n_device = tandem_device_count() < MAX_DEVICES ? tandem_device_count() : MAX_DEVICES;
    text *gpus = calloc((size_t)n_device + 1, sizeof *gpus);
    const char **candidate = calloc((size_t)(site->n_gres + n_device) + 1, sizeof *candidate);
    for (int i = 0; candidate && i < site->n_gres; i++) candidate[i] = site->gres[i].name;
    for (int i = 0; candidate && gpus && i < n_device; i++) {
        (void)snprintf(gpus[i], sizeof gpus[i], "gpu:%.50s", tandem_device_get(i)->name);
        candidate[site->n_gres + i] = gpus[i];
    }
    if (candidate)
        hint = tandem_nearest_hint(name, candidate, (size_t)(site->n_gres + (gpus ? n_device : 0)));
    free(candidate);
    free(gpus);
    return hint;
}

int tandem_site_gres(tandem_device *device, const tandem_site *site, const tandem_gres *gres,
                     tandem_error *error)
{
    char name[2 * TANDEM_SITE_NAME];
    (void)snprintf(name, sizeof name, "%s%s%s", gres->name, gres->type[0] ? ":" : "", gres->type);
    for (int i = 0; i < site->n_gres; i++)
        if (strcmp(site->gres[i].name, name) == 0 || strcmp(site->gres[i].name, gres->name) == 0) {
            *device = site->gres[i].device;
            return 1;
        }
    if (strcmp(gres->name, "gpu") != 0 || !gres->type[0]) return 0;
    if (tandem_device_find(device, gres->type, NULL) == TANDEM_OK) return 1;
    (void)tandem_error_set(error, TANDEM_UNKNOWN_NAME,
                           "no device is known for the resource %s.%s A line `gres %s DEVICE` in tandem.conf "
                           "maps it (`tandem list devices`).",
                           name, nearest_gres(site, name).text, name);
    return -1;
}

/* --- Features ------------------------------------------------------------------------------------------- */

static int is_feature_char(char c) { return tandem_is_letter(c) || tandem_is_digit(c) || strchr("_-.:=", c); }

int tandem_feature_next(char name[TANDEM_SITE_NAME], const char **features)
{
    const char *at = *features;
    for (;;) {
        while (*at && *at != '*' && !is_feature_char(*at)) at++;
        if (*at != '*') break;
        for (at++; tandem_is_digit(*at);) at++;
    }
    size_t n = 0;
    while (at[n] && is_feature_char(at[n])) n++;
    (void)snprintf(name, TANDEM_SITE_NAME, "%.*s", (int)(n < TANDEM_SITE_NAME ? n : TANDEM_SITE_NAME - 1),
                   at);
    *features = at + n;
    return n > 0;
}

/* The index of device cpu:X for a feature cpu_X, also with the prefix tandem_; −1: there is none. */
static int cpu_device_index(const char *feature)
{
    char name[TANDEM_SITE_NAME];
    if (strncmp(feature, "tandem_", 7) == 0) feature += 7;
    if (strncmp(feature, "cpu_", 4) != 0) return -1;
    (void)snprintf(name, sizeof name, "cpu:%s", feature + 4);
    for (int i = 0; i < tandem_device_count(); i++)
        if (strcmp(tandem_device_get(i)->name, name) == 0) return i;
    return -1;
}

int tandem_site_feature(tandem_device *device, const tandem_site *site, const char *features)
{
    char name[TANDEM_SITE_NAME];
    int strongest = -1, row = site->n_feature;
    while (tandem_feature_next(name, &features)) {
        const int cpu_device = cpu_device_index(name);
        if (cpu_device > strongest) strongest = cpu_device;
        for (int i = 0; i < row; i++)
            if (strcmp(site->feature[i].name, name) == 0) row = i;
    }
    if (row < site->n_feature)
        *device = site->feature[row].device;
    else if (strongest >= 0)
        *device = *tandem_device_get(strongest);
    else
        return 0;
    return 1;
}
