/* door.c: asks for a plan as a step under Slurm does, from the texts of its options and its nodes, and prints
 * the answer as JSON: a door of tests/property/test_doors.sh. No Slurm is needed.
 *
 * usage: door --store FILE [--net LINK] --node DEVICE:TASKS… [--NAME VALUE…], the names of options without
 *        "tandem-" */
#include <string.h>

#include "plugins/slurm/step_plan.h"
#include "tests/support/answer_json.h"

enum { MAX_NODE = 64 };
typedef struct slurm_door {
    const char *store, *net;
    const char *given[TANDEM_N_SPANK_OPTION];
    tandem_node node[MAX_NODE];
    int n_node;
} slurm_door;

static tandem_status add_node(slurm_door *d, char *text, tandem_error *error)
{
    char *const colon = strrchr(text, ':'); /* devices have colons, too */
    tandem_node *const node = &d->node[d->n_node++];
    *node = (tandem_node){.name = "node"};
    if (!colon || d->n_node == MAX_NODE)
        return tandem_error_set(error, TANDEM_USAGE, "door: '%s' is no DEVICE:TASKS, or one node too many",
                                text);
    *colon = '\0';
    node->n_task = (int)strtol(colon + 1, NULL, 10);
    return tandem_device_find(&node->device, text, error);
}

static tandem_status read_option(slurm_door *d, const char *name, char *value, tandem_error *error)
{
    static const char *const names[TANDEM_N_SPANK_OPTION] = {[TANDEM_SPANK_MODEL] = "--model",
                                                             [TANDEM_SPANK_BATCH] = "--batch",
                                                             [TANDEM_SPANK_DB] = "--db",
                                                             [TANDEM_SPANK_MEMORY] = "--memory",
                                                             [TANDEM_SPANK_SLOWDOWN] = "--slowdown",
                                                             [TANDEM_SPANK_BASE] = "--base-precision",
                                                             [TANDEM_SPANK_POLICY] = "--policy",
                                                             [TANDEM_SPANK_PLAN] = "--plan",
                                                             [TANDEM_SPANK_METHOD] = "--sensitivity",
                                                             [TANDEM_SPANK_MAX_SENSITIVITY] =
                                                                 "--max-sensitivity",
                                                             [TANDEM_SPANK_MINIMIZE] = "--minimize",
                                                             [TANDEM_SPANK_MAX_STEP] = "--max-step",
                                                             [TANDEM_SPANK_GLOBAL_BATCH] = "--global-batch"};
    if (strcmp(name, "--store") == 0) return d->store = value, TANDEM_OK;
    if (strcmp(name, "--net") == 0) return d->net = value, TANDEM_OK;
    if (strcmp(name, "--node") == 0) return add_node(d, value, error);
    for (int k = 0; k < TANDEM_N_SPANK_OPTION; k++)
        if (strcmp(name, names[k]) == 0) {
            d->given[k] = value;
            return tandem_step_check_option((tandem_spank_option)k, name + 2, value, error);
        }
    return tandem_error_set(error, TANDEM_USAGE, "door: unknown option %s", name);
}

int main(int argc, char **argv)
{
    static slurm_door d = {.net = ""};
    static tandem_step_question question;
    tandem_answer answer = {.plan = NULL};
    tandem_error error = {0};
    tandem_status status = TANDEM_OK;
    for (int k = 1; k + 1 < argc && status == TANDEM_OK; k += 2)
        status = read_option(&d, argv[k], argv[k + 1], &error);
    if (status == TANDEM_OK)
        status = tandem_step_ask(&question, d.given, d.node, d.n_node, d.net, d.store, &error);
    if (status == TANDEM_OK) status = tandem_answer_open(&answer, &question.request, &error);
    if (status == TANDEM_OK)
        print_answer(&answer);
    else
        fprintf(stderr, "door: %s\n", error.text);
    tandem_answer_close(&answer);
    return tandem_status_exit_code(status);
}
