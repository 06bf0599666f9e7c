/* folder: plugins */
/* What is left in a job's working directory: whole, this user's, and never through a link. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugins/slurm/job_plan.h"
#include "tests/support/tandem_test.h"

typedef struct place {
    char path[32];
    int directory;
    char *text; /* a plan */
} place;

static int open_place_job_plan(void **state)
{
    static place p;
    tandem_graph *graph = NULL;
    tandem_plan *plan = NULL;
    tandem_cluster cluster;
    (void)strcpy(p.path, "/tmp/tandem-job-XXXXXX");
    assert_non_null(mkdtemp(p.path));
    p.directory = open(p.path, O_RDONLY | O_DIRECTORY);
    assert_true(p.directory >= 0);
    assert_int_equal(tandem_graph_open(&graph, "mlp:width=16", 4, NULL), TANDEM_OK);
    assert_int_equal(tandem_cluster_parse(&cluster, "cpu:avx batch=4", NULL), TANDEM_OK);
    assert_int_equal(tandem_plan_open(&plan, graph, &cluster, "a plan", NULL), TANDEM_OK);
    p.text = tandem_plan_text(plan, graph);
    assert_non_null(p.text);
    tandem_plan_close(plan);
    tandem_graph_close(graph);
    *state = &p;
    return 0;
}

static int close_place_job_plan(void **state)
{
    place *p = *state;
    (void)unlinkat(p->directory, "plan.json", 0);
    (void)unlinkat(p->directory, "victim", 0);
    (void)close(p->directory);
    free(p->text);
    assert_int_equal(rmdir(p->path), 0); /* so nothing else was left */
    return 0;
}

static void put_job_plan(const place *p, const char *name, const char *text)
{
    const int file = openat(p->directory, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), strlen(text));
    (void)close(file);
}

static void expect_plan(const place *p, const char *name)
{
    tandem_plan *plan = NULL;
    tandem_graph *graph = NULL;
    tandem_error error = {0};
    require_ok(tandem_job_plan_read(&plan, &graph, p->directory, "plan.json", 0, &error), &error);
    if (name) {
        assert_non_null(plan);
        assert_string_equal(plan->name, name);
    } else {
        assert_null(plan);
    }
    tandem_plan_close(plan);
    tandem_graph_close(graph);
}

static void a_plan_is_written_and_read(void **state)
{
    const place *p = *state;
    int exists = -1;
    expect_plan(p, NULL);
    assert_int_equal(tandem_job_plan_write(&exists, p->directory, "plan.json", p->text, 0, NULL), TANDEM_OK);
    assert_int_equal(exists, 0);
    expect_plan(p, "a plan");
}

static void the_first_plan_stays(void **state)
{
    const place *p = *state;
    int exists = -1;
    put_job_plan(p, "plan.json", "the first");
    assert_int_equal(tandem_job_plan_write(&exists, p->directory, "plan.json", p->text, 0, NULL), TANDEM_OK);
    assert_int_equal(exists, 1);
    tandem_plan *plan = NULL;
    tandem_graph *graph = NULL;
    tandem_error error = {0};
    assert_int_equal(tandem_job_plan_read(&plan, &graph, p->directory, "plan.json", 0, &error),
                     TANDEM_MALFORMED);
    assert_non_null(strstr(error.text, "plan.json"));
    assert_null(plan);
}

static void an_earlier_jobs_plan_is_replaced(void **state)
{
    const place *p = *state;
    const struct timespec long_ago[2] = {{1000, 0}, {1000, 0}};
    tandem_plan *plan = NULL;
    tandem_graph *graph = NULL;
    int exists = -1;
    put_job_plan(p, "plan.json", "of an earlier job");
    assert_int_equal(utimensat(p->directory, "plan.json", long_ago, 0), 0);
    assert_int_equal(tandem_job_plan_read(&plan, &graph, p->directory, "plan.json", 1001, NULL), TANDEM_OK);
    assert_null(plan);
    assert_int_equal(tandem_job_plan_write(&exists, p->directory, "plan.json", p->text, 1001, NULL),
                     TANDEM_OK);
    assert_int_equal(exists, 0);
    expect_plan(p, "a plan");
}

static void links_are_not_followed_job_plan(void **state)
{
    const place *p = *state;
    tandem_plan *plan = NULL;
    tandem_graph *graph = NULL;
    tandem_error error = {0};
    struct stat seen;
    int exists = -1;
    put_job_plan(p, "victim", p->text);
    assert_int_equal(symlinkat("victim", p->directory, "plan.json"), 0);
    assert_int_equal(tandem_job_plan_read(&plan, &graph, p->directory, "plan.json", 0, &error), TANDEM_IO);
    assert_null(plan);
    put_job_plan(p, "victim", "untouched");
    assert_int_equal(tandem_job_plan_write(&exists, p->directory, "plan.json", p->text, 0, NULL), TANDEM_OK);
    assert_int_equal(exists, 1);
    assert_int_equal(fstatat(p->directory, "victim", &seen, 0), 0);
    assert_int_equal(seen.st_size, strlen("untouched"));

    /* what is no file at all */
    (void)unlinkat(p->directory, "plan.json", 0);
    assert_int_equal(mkfifoat(p->directory, "plan.json", 0600), 0);
    assert_int_equal(tandem_job_plan_read(&plan, &graph, p->directory, "plan.json", 0, &error), TANDEM_IO);
}

static void a_directory_that_cannot_be_written_says_so_job_plan(void **state)
{
    const place *p = *state;
    tandem_error error = {0};
    int exists = -1;
    const int proc = open("/proc", O_RDONLY | O_DIRECTORY); /* refuses even root */
    assert_true(proc >= 0);
    assert_int_equal(tandem_job_plan_write(&exists, proc, "plan.json", p->text, 0, &error), TANDEM_IO);
    assert_non_null(strstr(error.text, "'plan.json' cannot be written in the job's working directory"));
    (void)close(proc);
}

int main(void)
{
#define ROW(test) cmocka_unit_test_setup_teardown(test, open_place_job_plan, close_place_job_plan)
    const struct CMUnitTest tests[] = {
        ROW(a_plan_is_written_and_read),
        ROW(the_first_plan_stays),
        ROW(an_earlier_jobs_plan_is_replaced),
        ROW(links_are_not_followed_job_plan),
        ROW(a_directory_that_cannot_be_written_says_so_job_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
