/* Instance files from any bytes: an error, or an instance whose policies agree with each other and with its
 * limits. */
#include <math.h>

#include "tandem/mckp.h"
#include "tests/fuzz/fuzz_main.h"

static void check_items(const tandem_mckp *mckp)
{
    int n_group = 0;
    int64_t longest_sum = 0;
    demand(mckp->n_item >= 1 && mckp->n_item <= TANDEM_MCKP_MAX_ITEM, "some items");
    for (int i = 0; i < mckp->n_item; i++) {
        const tandem_mckp_item *const item = &mckp->item[i];
        int64_t longest = 0;
        demand(item->name && item->name[0], "an item has a name");
        demand(item->group >= 0 && item->group <= n_group, "groups are numbered by their first items");
        n_group += item->group == n_group;
        for (int j = 0; j < i; j++)
            demand(mckp->item[j].group != item->group || mckp->item[j].n_choice == item->n_choice,
                   "tied items have as many choices");
        for (int k = 0; k < item->n_choice; k++) {
            demand(item->choice[k].sensitivity >= 0 && item->choice[k].sensitivity < INFINITY, "harm");
            demand(item->choice[k].time >= 0, "time");
            if (item->choice[k].time > longest) longest = item->choice[k].time;
        }
        longest_sum += longest;
    }
    demand(n_group == mckp->n_group, "groups are counted");
    demand(longest_sum <= INT64_C(1) << 53, "sums are exact");
}

/* What is said about the choices is what they add up to. */
static void check_answer(const tandem_mckp *mckp, const tandem_mckp_answer *answer)
{
    double sensitivity = 0;
    int64_t time = 0;
    uint64_t bytes = 0;
    for (int i = 0; i < mckp->n_item; i++) {
        const tandem_mckp_item *const item = &mckp->item[i];
        const int k = answer->choice[i];
        demand(k >= 0 && k < item->n_choice, "a choice of the item");
        for (int j = 0; j < i; j++)
            demand(mckp->item[j].group != item->group || answer->choice[j] == k, "tied items choose alike");
        sensitivity += item->choice[k].sensitivity;
        time += item->choice[k].time;
        bytes += item->choice[k].bytes;
    }
    demand(fabs(sensitivity - answer->sensitivity) <= 1e-9 * sensitivity, "the harm is that of the choices");
    demand(bytes == answer->bytes, "so are the bytes");
    demand(time <= mckp->time_limit && bytes <= mckp->byte_limit, "limits are kept");
    demand(answer->lower_bound >= 0 && answer->lower_bound <= answer->sensitivity, "the bound is below");
    demand(answer->gap >= 0 && answer->gap <= 1, "a gap is a part");
}

static void check_policies(const tandem_mckp *mckp)
{
    tandem_mckp_answer exact = {0}, other = {0};
    tandem_error error = {0};
    exact.choice = calloc((size_t)mckp->n_item, sizeof *exact.choice);
    other.choice = calloc((size_t)mckp->n_item, sizeof *other.choice);
    if (exact.choice && other.choice) {
        const tandem_status status = tandem_mckp_solve(&exact, mckp, "exact", 0.05, &error);
        demand(status == TANDEM_OK || status == TANDEM_INFEASIBLE, "an answer, or that there is none");
        if (status == TANDEM_OK) check_answer(mckp, &exact);
        for (int k = 0; k < 2; k++) {
            const tandem_status found = tandem_mckp_solve(&other, mckp, k ? "greedy" : "bound", 0, &error);
            demand(found == TANDEM_OK || found == TANDEM_INFEASIBLE, "an answer, or none found");
            if (found != TANDEM_OK) continue;
            check_answer(mckp, &other);
            demand(status == TANDEM_OK, "what another policy finds, exact finds");
            demand(other.sensitivity >= exact.lower_bound * (1 - 1e-9), "no policy is below the bound");
            demand(other.lower_bound <= exact.sensitivity * (1 + 1e-9), "no bound is above a policy");
        }
    }
    free(other.choice);
    free(exact.choice);
}

static void check_text(const char *text, size_t size)
{
    tandem_mckp *mckp = NULL;
    tandem_error error = {0};
    const tandem_status status = tandem_mckp_parse(&mckp, text, size, "fuzz.json", &error);
    if (status == TANDEM_OK) {
        check_items(mckp);
        check_policies(mckp);
    } else {
        demand(error.status == status && error.text[0] != '\0', "an error has a text");
        demand(!mckp, "outputs are untouched");
    }
    tandem_mckp_close(mckp);
}

static const char seed[] =
    "{\"schema\": \"tandem.instance/1\", \"items\": ["
    "{\"name\": \"a\", \"choices\": [{\"name\": \"x\", \"time_ns\": 10, \"harm\": 0, \"bytes\": 1}, "
    "{\"name\": \"y\", \"time_ns\": 4.5, \"harm\": 3e-7, \"bytes\": 8}]}, "
    "{\"name\": \"b\", \"choices\": [{\"name\": \"x\", \"time_ns\": 9.25, \"harm\": 1e-9, \"bytes\": 7}, "
    "{\"name\": \"y\", \"time_ns\": 5, \"harm\": 2e-7, \"bytes\": 2}]}, "
    "{\"name\": \"c\", \"choices\": [{\"name\": \"x\", \"time_ns\": 8, \"harm\": 0, \"bytes\": 3}, "
    "{\"name\": \"y\", \"time_ns\": 6, \"harm\": 1.9e-7, \"bytes\": 4}, {\"name\": \"z\", \"time_ns\": 1, "
    "\"harm\": 1e-5, "
    "\"bytes\": 1}]}], \"ties\": [[\"a\", 1]], \"limits\": {\"time_ns\": 19.5, \"bytes\": 17}}";

/* Random bytes are seldom JSON. So the same bytes also choose values of a good instance, and what to put in
 * their places: each pair of bytes is one edit. */
static void check_edited(const uint8_t *data, size_t size)
{
    static const char *const values[] = {
        "0",    "1",  "2.5",  "7",    "-1", "1e-300", "1e100", "1e15",  "4503599627370495",   "0.1",
        "1e-9", "17", "12.3", "null", "[]", "{}",     "\"a\"", "\"c\"", "0.30000000000000004"};
    char text[sizeof seed + 512];
    (void)snprintf(text, sizeof text, "%s", seed);
    for (size_t i = 0; i + 1 < size && i < 16; i += 2) {
        char edited[sizeof text];
        unsigned n = 0;
        const char *at = text;
        for (const char *found = text; (found = strstr(found, "\": ")); found += 3) n++;
        for (unsigned which = data[i] % n; (at = strstr(at, "\": ")) && which > 0; which--) at += 3;
        at += 3;
        const size_t kept = (size_t)(at - text), value = strcspn(at, ",}]");
        (void)snprintf(edited, sizeof edited, "%.*s%s%s", (int)kept, text,
                       values[data[i + 1] % (sizeof values / sizeof *values)], at + value);
        memcpy(text, edited, sizeof text);
    }
    check_text(text, strlen(text));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_text((const char *)data, size);
    check_edited(data, size);
    return 0;
}

int main(int argc, char **argv)
{
    static const uint8_t edits[] = {4, 9, 17, 3, 30, 8}; /* short ones, for the second half */
    const uint8_t *const bytes[] = {(const uint8_t *)seed, edits};
    const size_t n[] = {sizeof seed - 1, sizeof edits};
    return tandem_fuzz_main("instance", LLVMFuzzerTestOneInput, bytes, n, 2, argc, argv);
}
