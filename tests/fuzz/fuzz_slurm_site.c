/* folder: plugins */
/* tandem.conf from any bytes: it is refused by its line and nothing is made, or what it says is within bounds
 * and says the same when it is written down again. slurmctld, which is root's, reads it. */
#include "plugins/slurm/site.h"
#include "tests/fuzz/fuzz_main.h"

static int is_word(const char *text, size_t room)
{
    const size_t n = strnlen(text, room);
    return n < room && strcspn(text, " \t\r\n#") == n;
}

static void check_rows(const tandem_site_row *row, int n)
{
    demand(n >= 0 && n <= TANDEM_SITE_MAX_ROW, "there are no more lines than there may be");
    for (int i = 0; i < n; i++) {
        tandem_device device;
        demand(row[i].name[0] && is_word(row[i].name, sizeof row[i].name), "a name is a word");
        demand(tandem_device_find(&device, row[i].device.name, NULL) == TANDEM_OK, "a device is one that "
                                                                                   "there is");
    }
}

static void print_rows_fuzz_slurm_site(FILE *out, const char *key, const tandem_site_row *row, int n)
{
    for (int i = 0; i < n; i++) (void)fprintf(out, "%s %s %s\n", key, row[i].name, row[i].device.name);
}

/* What it says, written down; the caller's to free. */
static char *written(size_t *n, const tandem_site *site)
{
    const char *const keys[] = {"net", "interface", "db"}, *const values[] = {site->net, site->interface,
                                                                              site->db};
    char *text = NULL;
    FILE *out = open_memstream(&text, n);
    demand(out != NULL, "there is memory");
    print_rows_fuzz_slurm_site(out, "gres", site->gres, site->n_gres);
    print_rows_fuzz_slurm_site(out, "feature", site->feature, site->n_feature);
    for (int k = 0; k < 3; k++)
        if (*values[k]) (void)fprintf(out, "%s %s\n", keys[k], values[k]);
    (void)fclose(out);
    return text;
}

static void check_again_fuzz_slurm_site(const tandem_site *site)
{
    size_t n = 0, n_again = 0;
    tandem_site *again = NULL;
    char *text = written(&n, site);
    demand(tandem_site_parse(&again, text, n, "again", NULL) == TANDEM_OK, "what it says is a site");
    char *text_again = written(&n_again, again);
    demand(n == n_again && memcmp(text, text_again, n) == 0, "and says the same");
    free(text_again);
    tandem_site_close(again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tandem_site *site = NULL;
    tandem_error error = {0};
    const tandem_status status = tandem_site_parse(&site, (const char *)data, size, "a site", &error);
    if (status != TANDEM_OK) {
        demand(status == TANDEM_MALFORMED && !site, "what is refused is malformed, and nothing is made");
        demand(strncmp(error.text, "a site", 6) == 0, "and is named");
        return 0;
    }
    check_rows(site->gres, site->n_gres);
    check_rows(site->feature, site->n_feature);
    demand(is_word(site->net, sizeof site->net) && is_word(site->interface, sizeof site->interface) &&
               is_word(site->db, sizeof site->db),
           "a value is a word");
    check_again_fuzz_slurm_site(site);
    tandem_site_close(site);
    return 0;
}

int main(int argc, char **argv)
{
    return tandem_fuzz_main("slurm_site", LLVMFuzzerTestOneInput, NULL, NULL, 0, argc, argv);
}
