/* ranks.h: a run has one process per rank. The process that makes a request starts them, passes what
 * they report to its listener, and takes the answer of rank 0. */
#pragma once

#include "runtime/process/packet.h"
#include "runtime/process/rank_place.h"
#include "tandem/runtime.h"

/* What tandem-rank knows to do. Each verb has a row in ranks_verbs. */
typedef struct rank_verb {
    const char *name;
    size_t request_bytes;
    void (*pack_request)(packet *p, void *request); /* all but place and listener */
    /* Of one rank. `answer` is what rank 0 has to say; others leave it empty. */
    tandem_status (*run)(packet *answer, void *request, const tandem_rank_place *place,
                         const tandem_listener *listener, tandem_error *error);
} rank_verb;
extern const rank_verb train_verb, sensitivity_verb, plan_estimate_verb, profile_verb;
/* The texts of a workload, whose other members are packed with the request that has it. */
void workload_request_pack(packet *p, tandem_workload_request *request);
void training_options_pack(packet *p, tandem_training_options *options);

/* ranks_run: starts n_rank processes of tandem-rank, each on cores of its own, as many as its class of the
 * cluster has, and waits for them. The caller releases the answer, which is empty on error.
 * TANDEM_MISSING: there is no tandem-rank. TANDEM_NO_DEVICE: they need more cores than there are.
 * TANDEM_IO: the working directory takes no folder for the run. TANDEM_NO_MEMORY, TANDEM_CANCELLED, and
 * the error of the rank that failed first; that another rank has failed counts only if there is no other
 * error. */
tandem_status ranks_run(packet *answer, const rank_verb *verb, void *request, const tandem_cluster *cluster,
                        int n_rank, const tandem_listener *listener, tandem_error *error);

/* Removes the folder of a run, with the files in it. */
void ranks_remove_folder(const char *path);

/* What tandem-rank does: reads its request from the descriptor that its parent gave, runs the verb of that
 * name, and answers. Returns the exit code. */
int rank_process_run(const char *verb);

/* --- Messages of a rank (messages.c) -------------------------------------------------------------------- */
typedef enum message_kind { MESSAGE_PROGRESS, MESSAGE_NOTE, MESSAGE_ERROR, MESSAGE_ANSWER } message_kind;
typedef struct message {
    message_kind kind;
    tandem_status status; /* of an error, */
    int rank;             /* and whose it is (status.h) */
    int64_t left_ns;      /* of progress */
    uint64_t bytes;       /* that follow: a text with its end, or an answer */
} message;
/* Writes a message and its bytes. 0, or −1: errno says why. */
int message_write(int to, const message *head, const void *bytes);
/* Reads one; *bytes belongs to the caller. 0: the other side has ended; −1: no memory, or a message that is
 * none. */
int message_read(int from, message *head, void **bytes);
