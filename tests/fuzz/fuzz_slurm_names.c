/* folder: plugins */
/* Resources, features and a submission from any bytes: nothing is read after its end, names are cut to fit,
 * and what is said of a job is one of the few things that can be said, at a cost within its budget. slurmctld
 * runs this code on what users write. */
#include "tests/fuzz/fuzz_main.h"
#include "tests/support/draw.h"

/* Lists end, and every item takes a part of them. */
static void walk(const char *text)
{
    const char *at = text, *before = text;
    tandem_gres gres;
    char name[TANDEM_SITE_NAME];
    while (tandem_gres_next(&gres, &at)) {
        demand(at > before, "a resource takes a part of the list");
        demand(strlen(gres.name) < TANDEM_SITE_NAME && strlen(gres.type) < TANDEM_SITE_NAME,
               "names are cut to fit");
        before = at;
    }
    for (at = before = text; tandem_feature_next(name, &at); before = at) {
        demand(at > before, "a feature takes a part of the list");
        demand(name[0] && strlen(name) < TANDEM_SITE_NAME, "a feature has a name");
    }
}

static void check_fuzz_slurm_names(const tandem_submission *submission, uint64_t max_work)
{
    static tandem_site *site; /* as full as it may be, the same for all */
    tandem_work_budget work = {.limit = max_work};
    tandem_error error = {0};
    if (!site) {
        char *text = tandem_draw_site();
        demand(tandem_site_parse(&site, text, strlen(text), "drawn", NULL) == TANDEM_OK,
               "a full site is read");
        free(text);
    }
    const tandem_status status = tandem_submission_check(&work, submission, site, &error);
    const int is_over = status == TANDEM_LIMIT_EXCEEDED;
    demand(work.spent <= max_work, "the work stays within its budget");
    demand(status == TANDEM_OK || is_over || tandem_submission_is_refused(status), "a job is let through or "
                                                                                   "refused");
    demand(status == TANDEM_OK || error.text[0], "a refusal has a reason");
    for (const char *at = error.text; is_over && *at; at++)
        demand(*at >= ' ' && *at <= '~', "what is logged is fit to print");
}

/* The text's lines, in turn, are what the user wrote. */
static void submit(char *text)
{
    tandem_submission submission = {.model = "mlp"};
    char *rest = text;
    submission.resources[0] = strsep(&rest, "\n");
    submission.features = rest ? strsep(&rest, "\n") : NULL;
    submission.batch = rest ? strsep(&rest, "\n") : NULL;
    submission.memory = rest ? strsep(&rest, "\n") : NULL;
    if (rest) submission.model = strsep(&rest, "\n");
    check_fuzz_slurm_names(&submission, 4000);
}

/* After a byte 0: two that say how much work there may be, seldom all of it, so that there is time for many
 * jobs; then a job that bytes represent, which mutations of text would hardly ever write. */
static void submit_drawn(const uint8_t *data, size_t size)
{
    tandem_drawn drawn;
    const unsigned share = size < 2 ? 0 : data[0] | (unsigned)data[1] << 8;
    const size_t head = size < 2 ? size : 2;
    uint64_t max_work = share % 32 == 31 ? share / 8 : share % 512;
    if (share == 0xffff) max_work = TANDEM_SUBMISSION_MAX_WORK;
    tandem_draw_submission(&drawn, data + head, size - head);
    check_fuzz_slurm_names(&drawn.submission, max_work);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size && !data[0]) {
        submit_drawn(data + 1, size - 1);
        return 0;
    }
    char *const text = malloc(size + 1);
    if (!text) return 0;
    if (size) memcpy(text, data, size);
    text[size] = '\0';
    walk(text);
    submit(text);
    free(text);
    return 0;
}

int main(int argc, char **argv)
{
    return tandem_fuzz_main("slurm_names", LLVMFuzzerTestOneInput, NULL, NULL, 0, argc, argv);
}
