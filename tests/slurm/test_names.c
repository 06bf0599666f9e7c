/* folder: plugins */
/* What Slurm's names mean to tandem: tandem.conf, resources, features; and what nodes are as a cluster. */
#include <unistd.h>

#include "plugins/slurm/layout.h"
#include "plugins/slurm/site.h"
#include "tests/support/tandem_test.h"

/* --- tandem.conf ---------------------------------------------------------------------------------------- */

/* A site of this text; NULL where it is refused, with the reason. */
static tandem_site *site_of(const char *text, tandem_error *error)
{
    char path[] = "/tmp/tandem-site-XXXXXX";
    tandem_site *site = NULL;
    const int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), strlen(text));
    (void)close(file);
    const tandem_status status = tandem_site_open(&site, path, error);
    (void)unlink(path);
    assert_true((status == TANDEM_OK) == (site != NULL));
    return site;
}

static void a_site_is_read(void **state)
{
    tandem_error error = {0};
    tandem_site *site = site_of("# cards\n\n  gres\tgpu:old cpu:sse41 # a comment\ngres fpga "
                                "cpu:avx2\r\nfeature rome cpu:avx2\n"
                                "net 100Gbit/s,5us\ninterface ib0\ndb /srv/tandem.db",
                                &error);
    assert_non_null(site);
    assert_int_equal(site->n_gres, 2);
    assert_string_equal(site->gres[0].name, "gpu:old");
    assert_string_equal(site->gres[0].device.name, "cpu:sse41");
    assert_int_equal(site->n_feature, 1);
    assert_string_equal(site->net, "100Gbit/s,5us");
    assert_string_equal(site->interface, "ib0");
    assert_string_equal(site->db, "/srv/tandem.db");
    tandem_site_close(site);
    assert_int_equal(tandem_site_open(&site, "/nonexistent/tandem.conf", &error), TANDEM_OK);
    assert_int_equal(site->n_gres + site->n_feature, 0);
    tandem_site_close(site);
    tandem_site_close(NULL);
}

static void a_site_is_refused_by_line(void **state)
{
    static const char *const rows[][2] = {
        {"# fine\ngress gpu:t4 cpu:avx\n", "line 2: there is no 'gress'. Did you mean 'gres'?"},
        {"gres gpu:t4 cpu:avxx\n", "line 1: there is no device 'cpu:avxx'. Did you mean 'cpu:avx'?"},
        {"gres gpu:t4\n", "line 1: gres and feature take a name of Slurm's and a device"},
        {"db\n", "line 1: a value is missing"},
        {"net 1Gbit/s, 5us\n", "line 1: there is a word too many"},
    };
    for (size_t k = 0; k < N_OF(rows); k++) {
        tandem_error error = {0};
        assert_null(site_of(rows[k][0], &error));
        assert_int_equal(error.status, TANDEM_MALFORMED);
        if (!strstr(error.text, rows[k][1])) fail_msg("%s", error.text);
    }
    char long_text[256] = "feature ";
    tandem_error error = {0};
    memset(long_text + 8, 'x', 100);
    (void)strcat(long_text, " cpu:avx\n");
    assert_null(site_of(long_text, &error));
    char *many = calloc(TANDEM_SITE_MAX_ROW + 1, 32);
    assert_non_null(many);
    for (int k = 0; k <= TANDEM_SITE_MAX_ROW; k++)
        (void)snprintf(many + strlen(many), 32, "feature f%d cpu:avx\n", k);
    assert_null(site_of(many, &error));
    assert_non_null(strstr(error.text, "line 257"));
    free(many);
}

static void the_site_lies_beside_slurm_conf(void **state)
{
    char path[64];
    (void)setenv("SLURM_CONF", "/srv/slurm/slurm.conf", 1);
    tandem_site_path(path, sizeof path);
    assert_string_equal(path, "/srv/slurm/tandem.conf");
    (void)unsetenv("SLURM_CONF");
    tandem_site_path(path, sizeof path);
    assert_string_equal(path, "/etc/slurm/tandem.conf");
}

/* --- Resources and features ----------------------------------------------------------------------------- */

static void resources_are_taken_apart(void **state)
{
    static const struct {
        const char *text, *name, *type;
        long count;
    } rows[] = {
        {"gpu::2", "gpu", "", 2}, {"gres:gpu:t4:2", "gpu", "t4", 2}, {"gres/gpu:t4", "gpu", "t4", 1},
        {"gpu:2", "gpu", "", 2},           {"gpu", "gpu", "", 1},
        {"gpu:4K", "gpu", "", 4},          {"gpu:1080:3", "gpu", "1080", 3},
        {"gpu:t4:0", "gpu", "t4", 0},      {"gpu:t4:x", "gpu", "t4", 1},
    };
    for (size_t k = 0; k < N_OF(rows); k++) {
        const char *at = rows[k].text;
        tandem_gres gres;
        assert_int_equal(tandem_gres_next(&gres, &at), 1);
        assert_string_equal(gres.name, rows[k].name);
        assert_string_equal(gres.type, rows[k].type);
        assert_int_equal(gres.count, rows[k].count);
        assert_int_equal(tandem_gres_next(&gres, &at), 0);
    }
    const char *list = "gpu:t4:2(IDX:0,2),nic:1, gres:gpu:v100:1(IDX:1)";
    tandem_gres gres[3];
    for (int k = 0; k < 3; k++) assert_int_equal(tandem_gres_next(&gres[k], &list), 1);
    assert_string_equal(gres[0].type, "t4");
    assert_string_equal(gres[1].name, "nic");
    assert_string_equal(gres[2].type, "v100");
    assert_int_equal(tandem_gres_next(&gres[0], &list), 0);
}

static int gres_device(char device[TANDEM_DEVICE_NAME], const tandem_site *site, const char *text,
                       tandem_error *error)
{
    tandem_gres gres;
    tandem_device found = {.name = "none"};
    assert_int_equal(tandem_gres_next(&gres, &text), 1);
    const int result = tandem_site_gres(&found, site, &gres, error);
    (void)snprintf(device, TANDEM_DEVICE_NAME, "%s", found.name);
    return result;
}

static void resources_are_devices(void **state)
{
    char device[TANDEM_DEVICE_NAME];
    tandem_error error = {0};
    tandem_site *site = site_of("gres gpu:old cpu:sse41\ngres gpu:any cpu:avx\ngres fpga cpu:avx2\n", &error);
    assert_non_null(site);
    assert_int_equal(gres_device(device, site, "gpu:old:1", &error), 1);
    assert_string_equal(device, "cpu:sse41");
    assert_int_equal(gres_device(device, site, "fpga:large:1", &error), 1);
    assert_string_equal(device, "cpu:avx2");
    assert_int_equal(gres_device(device, site, "nic:mlx", &error), 0);
    assert_int_equal(gres_device(device, site, "gpu:1", &error), 0);
    assert_int_equal(gres_device(device, site, "gpu:odl", &error), -1);
    assert_int_equal(error.status, TANDEM_UNKNOWN_NAME);
    assert_non_null(strstr(error.text, "gpu:odl. Did you mean 'gpu:old'?"));
    assert_non_null(strstr(error.text, "`gres gpu:odl DEVICE`"));
    tandem_site_close(site);
}

static void features_are_devices(void **state)
{
    static const char *const rows[][2] = {
        {"cpu_avx2", "cpu:avx2"},
        {"ssd,tandem_cpu_avx512_bf16,ib", "cpu:avx512_bf16"},
        {"cpu_avx2,cpu_avx512,cpu_avx", "cpu:avx512"}, /* the strongest */
        {"cpu_avx512,rome", "cpu:avx"},                /* what the site says goes first */
        {"milan,rome", "cpu:avx"},                     /* in the order of its lines */
        {"[gpu*2&cpu_sse41*4]", "cpu:sse41"},
        {"cpu_avx9", NULL},
        {"cpu_", NULL},
        {"tandem_", NULL},
        {"avx2", NULL},
        {"", NULL},
    };
    tandem_error error = {0};
    tandem_site *site = site_of("feature rome cpu:avx\nfeature milan cpu:avx2\n", &error);
    assert_non_null(site);
    for (size_t k = 0; k < N_OF(rows); k++) {
        tandem_device device = {.name = "none"};
        assert_int_equal(tandem_site_feature(&device, site, rows[k][0]), rows[k][1] != NULL);
        assert_string_equal(device.name, rows[k][1] ? rows[k][1] : "none");
    }
    tandem_site_close(site);
}

/* --- Nodes as a cluster --------------------------------------------------------------------------------- */

static tandem_node node_of(const char *device, int n_task)
{
    tandem_node node = {.name = "n", .n_task = n_task, .class_index = -7, .first_rank = -7};
    assert_int_equal(tandem_device_find(&node.device, device, NULL), TANDEM_OK);
    return node;
}

static void nodes_are_classes(void **state)
{
    char text[TANDEM_LAYOUT_TEXT];
    tandem_cluster cluster;
    tandem_node node[] = {node_of("cpu:avx2", 2), node_of("cpu:avx", 1), node_of("cpu:avx2", 2),
                          node_of("cpu:avx", 3),  node_of("cpu:avx", 0), node_of("cpu:avx", 1)};
    const int first[] = {0, 4, 2, 6, -7, 5}, class_index[] = {0, 1, 0, 2, -1, 1};
    assert_int_equal(tandem_layout_print(text, node, 6, "1Gbit/s,5us", NULL), TANDEM_OK);
    assert_string_equal(text, "4*cpu:avx2@2 + 2*cpu:avx@1 + 3*cpu:avx@3 net=1Gbit/s,5us");
    assert_int_equal(tandem_cluster_parse(&cluster, text, NULL), TANDEM_OK);
    assert_int_equal(tandem_layout_ranks(node, 6, &cluster, NULL), TANDEM_OK);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(node[i].class_index, class_index[i]);
        assert_int_equal(node[i].first_rank, first[i]);
    }
}

/* A plan that was given counts its ranks in its own order of classes. */
static void a_plans_classes_find_their_nodes(void **state)
{
    tandem_cluster cluster;
    tandem_error error = {0};
    tandem_node node[] = {node_of("cpu:avx2", 1), node_of("cpu:avx", 2), node_of("cpu:avx2", 1)};
    assert_int_equal(
        tandem_cluster_parse(&cluster, "2*cpu:avx batch=4 + cpu:avx2 batch=8 + cpu:avx2 batch=16", NULL),
        TANDEM_OK);
    assert_int_equal(tandem_layout_ranks(node, 3, &cluster, &error), TANDEM_OK);
    assert_int_equal(node[0].first_rank, 2);
    assert_int_equal(node[1].first_rank, 0);
    assert_int_equal(node[2].first_rank, 3);
    assert_int_equal(node[2].class_index, 2);

    static const char *const others[] = {"3*cpu:avx + 2*cpu:avx2", "2*cpu:avx + cpu:avx2",
                                         "cpu:avx + cpu:avx + 2*cpu:avx2", "2*cpu:avx@1 + 2*cpu:avx2",
                                         "2*cpu:avx + 2*cpu:sse41"};
    for (size_t k = 0; k < N_OF(others); k++) {
        error = (tandem_error){0};
        assert_int_equal(tandem_cluster_parse(&cluster, others[k], NULL), TANDEM_OK);
        assert_int_equal(tandem_layout_ranks(node, 3, &cluster, &error), TANDEM_WRONG_MODEL);
        assert_non_null(strstr(error.text, "the nodes of this step are 2*cpu:avx2@1 + 2*cpu:avx@2"));
    }
}

static void there_are_eight_classes_at_most(void **state)
{
    char text[TANDEM_LAYOUT_TEXT] = "untouched";
    tandem_error error = {0};
    tandem_node node[TANDEM_MAX_CLASS + 1];
    for (int i = 0; i <= TANDEM_MAX_CLASS; i++) node[i] = node_of("cpu:avx512_bf16", 1 + i);
    assert_int_equal(tandem_layout_print(text, node, TANDEM_MAX_CLASS + 1, "", &error), TANDEM_USAGE);
    assert_string_equal(text, "untouched");
    assert_int_equal(tandem_layout_print(text, node, TANDEM_MAX_CLASS, "", &error), TANDEM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_site_is_read),
        cmocka_unit_test(a_site_is_refused_by_line),
        cmocka_unit_test(the_site_lies_beside_slurm_conf),
        cmocka_unit_test(resources_are_taken_apart),
        cmocka_unit_test(resources_are_devices),
        cmocka_unit_test(features_are_devices),
        cmocka_unit_test(nodes_are_classes),
        cmocka_unit_test(a_plans_classes_find_their_nodes),
        cmocka_unit_test(there_are_eight_classes_at_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
