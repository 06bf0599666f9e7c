/* rank_process.c: what the helper program tandem-rank does: one rank's part of a request. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/process/ranks.h"

static const rank_verb *const verbs[] = {&train_verb, &sensitivity_verb, &plan_estimate_verb, &profile_verb,
                                         NULL};

static const rank_verb *find_verb(const char *name)
{
    for (int k = 0; verbs[k]; k++)
        if (strcmp(verbs[k]->name, name) == 0) return verbs[k];
    return NULL;
}

/* --- Messages to the parent------------------------------------------------------------------------------ */

static void send_text(int to, message head, const char *text)
{
    head.bytes = strlen(text);
    (void)message_write(to, &head, text); /* a parent that has ended ends this process, too */
}

static void send_progress(void *context, int64_t left_ns, const char *text)
{
    send_text(*(const int *)context, (message){.kind = MESSAGE_PROGRESS, .left_ns = left_ns}, text);
}

static void send_note(void *context, const char *text)
{
    send_text(*(const int *)context, (message){.kind = MESSAGE_NOTE}, text);
}

static void send_error(int to, const tandem_error *error)
{
    const char *text = error->text[0] ? error->text : tandem_status_meaning(error->status);
    send_text(to, (message){.kind = MESSAGE_ERROR, .status = error->status, .rank = error->rank}, text);
}

/* --- The request ---------------------------------------------------------------------------------------- */

/* Ranks share the file and its position, so that each reads at places of its own. */
static tandem_status read_rank_request(packet *p, int from, tandem_error *error)
{
    struct stat file;
    if (fstat(from, &file) == 0 && file.st_size > 0) p->bytes = malloc((size_t)file.st_size);
    if (p->bytes && pread(from, p->bytes, (size_t)file.st_size, 0) == file.st_size) {
        p->n = (size_t)file.st_size;
        packet_begin_reading(p);
        return TANDEM_OK;
    }
    return tandem_error_set(error, TANDEM_BUG, "a rank got no request. Only tandem's libraries start it");
}

static tandem_status run_verb(packet *answer, const rank_verb *verb, packet *p,
                              const tandem_rank_place *place, const int *to, tandem_error *error)
{
    int has_progress = 0;
    packet_value(p, &has_progress, sizeof has_progress);
    void *request = calloc(1, verb->request_bytes);
    if (!request) return tandem_no_memory(error, "for a request");
    verb->pack_request(p, request);
    const tandem_listener listener = {
        .context = (void *)(uintptr_t)to, .progress = has_progress ? send_progress : NULL, .note = send_note};
    const tandem_status status =
        p->has_failed
            ? tandem_error_set(error, TANDEM_BUG, "the request of rank %d is not whole", place->rank)
            : verb->run(answer, request, place, &listener, error);
    free(request);
    return status == TANDEM_OK && answer->has_failed ? tandem_no_memory(error, "for the result") : status;
}

int rank_process_run(const char *name)
{
    const char *files = getenv("TANDEM_RANK_FILES");
    const rank_verb *const verb = find_verb(name);
    int from = -1, to = -1;
    tandem_error error = {.rank = -1};
    tandem_rank_place place;
    packet request = {0}, answer = {0};
    if (!verb || !files || sscanf(files, "%d %d", &from, &to) != 2) return -1;
    (void)fcntl(from, F_SETFD, FD_CLOEXEC);
    (void)fcntl(to, F_SETFD, FD_CLOEXEC);
    tandem_status status = rank_place_from_environment(&place, &error) == 1 ? TANDEM_OK
                           : error.status                                   ? error.status
                                                                            : TANDEM_BUG;
    if (status == TANDEM_OK) rank_start_begin(&place);
    if (status == TANDEM_OK) status = read_rank_request(&request, from, &error);
    if (status == TANDEM_OK) status = run_verb(&answer, verb, &request, &place, &to, &error);
    if (status == TANDEM_OK) {
        (void)message_write(to, &(message){.kind = MESSAGE_ANSWER, .bytes = answer.n}, answer.bytes);
    } else {
        rank_start_failed(error.text[0] ? error.text : tandem_status_meaning(status));
        error.status = status;
        send_error(to, &error);
    }
    packet_free(&request);
    packet_free(&answer);
    return tandem_status_exit_code(status);
}
