/* Resources, features and a submission from any bytes: nothing is read behind its end, names are cut to fit, and what is said
 * of a job is one of the few things that can be said. slurmctld runs this code on what users write. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/slurm/submission.h"
#include "tests/fuzz/fuzz_main.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(int holds, const char *law)
{
    if (holds) return;
    (void)fprintf(stderr, "broken: %s\n", law);
    abort();
}

/* Lists end, and every item takes a part of them. */
static void walk(const char *text)
{
    const char *at = text, *before = text;
    tandem_gres gres;
    char name[TANDEM_SITE_NAME];
    while (tandem_gres_next(&gres, &at)) {
        demand(at > before, "a resource takes a part of the list");
        demand(strlen(gres.name) < TANDEM_SITE_NAME && strlen(gres.type) < TANDEM_SITE_NAME, "names are cut to fit");
        before = at;
    }
    for (at = before = text; tandem_feature_next(name, &at); before = at) {
        demand(at > before, "a feature takes a part of the list");
        demand(name[0] && strlen(name) < TANDEM_SITE_NAME, "a feature has a name");
    }
}

/* The text's lines, in turn, are what the user wrote. */
static void submit(char *text)
{
    static const char *const nowhere = "/nonexistent/tandem.conf";
    tandem_submission submission = {.model = "mlp"};
    tandem_error error = {0};
    char *rest = text;
    submission.resources[0] = strsep(&rest, "\n");
    submission.features = rest ? strsep(&rest, "\n") : NULL;
    submission.batch = rest ? strsep(&rest, "\n") : NULL;
    submission.memory = rest ? strsep(&rest, "\n") : NULL;
    const tandem_status status = tandem_submission_check(&submission, nowhere, &error);
    demand(status == TANDEM_OK || tandem_submission_is_refused(status), "a job is let through or refused");
    demand(status == TANDEM_OK || error.text[0], "a refusal has a reason");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *const text = malloc(size + 1);
    if (!text) return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    walk(text);
    submit(text);
    free(text);
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const seeds[] = {
        "gres:gpu:t4:2,gres:gpu:v100:1(IDX:0-1,3)\n[cpu_avx2*2&cpu_sse41*4]\n64\n12GiB,300MiB",
        "gpu:4K,nic\ntandem_cpu_avx512_bf16|rome\n4000\n1MiB",
    };
    const uint8_t *bytes[2];
    size_t n[2];
    for (int k = 0; k < 2; k++) {
        bytes[k] = (const uint8_t *)seeds[k];
        n[k] = strlen(seeds[k]);
    }
    return tandem_fuzz_main("slurm_names", LLVMFuzzerTestOneInput, bytes, n, 2, argc, argv);
}
