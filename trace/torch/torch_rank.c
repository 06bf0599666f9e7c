/* torch_rank.c: sorts the PyTorch profiler's events of one rank into calls of operators, launches, kernels,
 * steps and collectives. */
#include "trace/torch/torch_rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "trace/torch/torch_reader.h"

static int starts_with(const char *text, const char *word) { return strncmp(text, word, strlen(word)) == 0; }

static int category_ends_with(const char *text, const char *word)
{
    const size_t n = strlen(text), n_word = strlen(word);
    return n >= n_word && strcmp(text + n - n_word, word) == 0;
}

/* --- Categories ----------------------------------------------------------------------------------------- */

enum { UNKNOWN, NOT_NEEDED, HOST, NOTE, DEVICE, LAUNCH };

/* Older versions have other names, or none. Runtimes and drivers are those of any device: cuda_runtime,
 * cuda_driver, hip_runtime, xpu_runtime, privateuse1_runtime, Runtime. */
static int event_category(const tandem_event *event)
{
    static const struct {
        const char *name;
        int category;
    } categories[] = {{"cpu_op", HOST},
                      {"kernel", DEVICE},
                      {"user_annotation", NOTE},
                      {"gpu_memcpy", DEVICE},
                      {"gpu_memset", DEVICE},
                      {"Operator", HOST},
                      {"Kernel", DEVICE},
                      {"Memcpy", DEVICE},
                      {"Memset", DEVICE},
                      {"python_function", NOT_NEEDED},
                      {"gpu_user_annotation", NOT_NEEDED},
                      {"cpu_instant_event", NOT_NEEDED},
                      {"external_correlation", NOT_NEEDED},
                      {"overhead", NOT_NEEDED},
                      {"cuda_sync", NOT_NEEDED},
                      {"cuda_event", NOT_NEEDED},
                      {"cuda_profiler_range", NOT_NEEDED},
                      {"gpu_pm_counter", NOT_NEEDED},
                      {"ac2g", NOT_NEEDED},
                      {"fwdbwd", NOT_NEEDED},
                      {"Trace", NOT_NEEDED}};
    const char *const name = event->category.text;
    if (!*name) {
        const char *const process = event->process.text; /* of PyTorch without Kineto */
        return starts_with(process, "CUDA") ? DEVICE : starts_with(process, "CPU") ? HOST : UNKNOWN;
    }
    for (size_t k = 0; k < sizeof categories / sizeof *categories; k++)
        if (*name == *categories[k].name && strcmp(name, categories[k].name) == 0)
            return categories[k].category;
    return category_ends_with(name, "untime") || category_ends_with(name, "_driver") ? LAUNCH : UNKNOWN;
}

/* Names that do not fit are counted alone. */
static void add_unknown_name(tandem_torch_left_out *out, const tandem_event *event)
{
    char text[44], name[48];
    tandem_event_copy(text, sizeof text, event->category.n ? &event->category : &event->process);
    (void)snprintf(name, sizeof name, "'%s'", text);
    if (strstr(out->unknown, name)) return;
    const size_t n = strlen(out->unknown);
    if (n + strlen(name) + 3 < sizeof out->unknown)
        (void)snprintf(out->unknown + n, sizeof out->unknown - n, "%s%s", n ? ", " : "", name);
}

/* --- Events --------------------------------------------------------------------------------------------- */

static tandem_status add_step_window(torch_reader *r, int64_t number, int64_t end_ns)
{
    torch_rank *const rank = r->rank;
    if (rank->n_window == TORCH_MAX_STEPS)
        return tandem_events_refuse(&r->events, &r->event,
                                    "expected at most 65536 steps (ProfilerStep#…) in a file");
    torch_step_window *const more =
        tandem_grow(rank->window, &rank->window_capacity, rank->n_window, sizeof *more, TORCH_MAX_STEPS);
    if (!more) return torch_reader_no_memory(r);
    rank->window = more;
    rank->window[rank->n_window++] =
        (torch_step_window){.number = number, .begin_ns = r->event.start_ns, .end_ns = end_ns};
    return TANDEM_OK;
}

static void count_beyond(torch_reader *r, int64_t end_ns)
{
    r->rank->left_out.n_beyond++;
    torch_add_ns(&r->rank->left_out.beyond_ns, end_ns - r->event.start_ns);
}

/* Correlation 0 is no call's: a device's own work has it. */
static tandem_status add_launch(torch_reader *r, int64_t end_ns)
{
    torch_rank *const rank = r->rank;
    if (r->event.correlation <= 0) return TANDEM_OK;
    if (rank->n_launch == TORCH_MAX_LAUNCHES) {
        count_beyond(r, end_ns);
        return TANDEM_OK;
    }
    torch_launch *const more =
        tandem_grow(rank->launch, &rank->launch_capacity, rank->n_launch, sizeof *more, TORCH_MAX_LAUNCHES);
    if (!more) return torch_reader_no_memory(r);
    rank->launch = more;
    more[rank->n_launch++] = (torch_launch){.correlation = r->event.correlation,
                                            .start_ns = r->event.start_ns,
                                            .thread = torch_find_thread(r, r->event.thread),
                                            .call = -1};
    return TANDEM_OK;
}

/* Adds to a set of a few values; those beyond its size are not distinguished. */
static void add_to_set(uint64_t *set, int *n, int size, uint64_t value)
{
    for (int k = 0; k < *n; k++)
        if (set[k] == value) return;
    if (*n < size) set[(*n)++] = value;
}

static void note_place(torch_reader *r)
{
    torch_rank *const rank = r->rank;
    const tandem_event *const event = &r->event;
    const uint64_t device = event->device >= 0 ? (uint64_t)event->device : event->process.hash;
    enum {
        N_DEVICE = sizeof rank->device / sizeof *rank->device,
        N_STREAM = sizeof rank->stream / sizeof *rank->stream
    };
    add_to_set(rank->device, &rank->n_device, N_DEVICE, device);
    add_to_set(rank->stream, &rank->n_stream, N_STREAM, event->thread);
}

static int is_copy_event(const tandem_event *event)
{
    return starts_with(event->name.text, "Memcpy") || starts_with(event->name.text, "Memset");
}

static tandem_status add_device_slice(torch_reader *r, int64_t end_ns)
{
    torch_rank *const rank = r->rank;
    torch_kernel kernel = {.start_ns = r->event.start_ns,
                           .end_ns = end_ns,
                           .launch_ns = INT64_MIN,
                           .correlation = r->event.correlation > 0 ? r->event.correlation : -1,
                           .external = r->event.external,
                           .owner = -1,
                           .collective = -1,
                           .window = -1,
                           .is_comm = (uint8_t)tandem_event_is_collective(&r->event),
                           .is_copy = (uint8_t)is_copy_event(&r->event)};
    if (rank->n_kernel == TORCH_MAX_KERNELS) {
        count_beyond(r, end_ns);
        return TANDEM_OK;
    }
    note_place(r);
    tandem_status status = torch_find_signature(r, 1, &kernel.signature);
    if (status == TANDEM_OK && kernel.is_comm)
        status = torch_add_event_collective(r, end_ns, TORCH_KERNEL, &kernel.collective);
    if (status != TANDEM_OK) return status;
    torch_kernel *const more =
        tandem_grow(rank->kernel, &rank->kernel_capacity, rank->n_kernel, sizeof *more, TORCH_MAX_KERNELS);
    if (!more) return torch_reader_no_memory(r);
    rank->kernel = more;
    more[rank->n_kernel++] = kernel;
    return TANDEM_OK;
}

static int is_collective_slice(const char *name)
{
    return starts_with(name, "nccl:") || starts_with(name, "gloo:") || starts_with(name, "ucc:") ||
           starts_with(name, "mpi:");
}

/* Collectives of the host run concurrently with their callers: they are not part of the stack. */
static tandem_status add_collective_slice(torch_reader *r, int64_t end_ns, int is_annotation)
{
    int32_t signature = -1, index;
    tandem_status status = torch_add_event_collective(r, end_ns, TORCH_SLICE, &index);
    if (status != TANDEM_OK || is_annotation) return status;
    status = torch_find_signature(r, 0, &signature);
    return status == TANDEM_OK ? torch_add_host_slice(r, end_ns, signature, TORCH_BESIDE) : status;
}

static tandem_status add_host_event(torch_reader *r, int64_t end_ns, int is_annotation)
{
    static const char step[] = "ProfilerStep#";
    const char *const name = r->event.name.text;
    if (starts_with(name, step)) {
        const tandem_status status = add_step_window(r, strtoll(name + sizeof step - 1, NULL, 10), end_ns);
        return status == TANDEM_OK ? torch_add_host_slice(r, end_ns, -1, TORCH_PLAIN) : status;
    }
    if (is_collective_slice(name)) return add_collective_slice(r, end_ns, is_annotation);
    if (starts_with(name, "Optimizer.")) return torch_add_host_slice(r, end_ns, -1, TORCH_OPTIMIZER_SCOPE);
    if (is_annotation) return torch_add_host_slice(r, end_ns, -1, TORCH_PLAIN);
    const int is_call = starts_with(name, "c10d::") || starts_with(name, "_c10d_functional::") ||
                        starts_with(name, "record_param_comms");
    const int role = is_call                                                    ? TORCH_CALL_SCOPE
                     : starts_with(name, "autograd::engine::evaluate_function") ? TORCH_BACKWARD_SCOPE
                                                                                : TORCH_OPERATOR;
    int32_t signature = -1;
    const tandem_status status = torch_find_signature(r, 0, &signature);
    return status == TANDEM_OK ? torch_add_host_slice(r, end_ns, signature, role) : status;
}

/* Slices that are not read are counted with their times. */
static tandem_status skip_event(torch_reader *r, int category)
{
    tandem_torch_left_out *const out = &r->rank->left_out;
    if (category != UNKNOWN) return TANDEM_OK;
    out->n_unknown++;
    if (r->event.has_duration && r->event.duration_ns > 0)
        torch_add_ns(&out->unknown_ns, r->event.duration_ns);
    add_unknown_name(out, &r->event);
    return TANDEM_OK;
}

static tandem_status add_torch_event(torch_reader *r)
{
    const tandem_event *const event = &r->event;
    if (event->phase == 'B' || event->phase == 'E') r->rank->left_out.n_pair++;
    if (event->phase != 'X') return TANDEM_OK;
    const int category = event_category(event);
    if (category == UNKNOWN || category == NOT_NEEDED) return skip_event(r, category);
    if (!event->has_start || !event->has_duration || !event->has_name) {
        r->rank->n_incomplete++;
        return TANDEM_OK;
    }
    if (!tandem_input_clamp_duration(&r->event.duration_ns, &r->rank->n_negative))
        return tandem_events_refuse(&r->events, event, "expected a dur " TANDEM_INPUT_DURATIONS);
    const int64_t end_ns = event->start_ns + event->duration_ns;
    r->is_exact |= event->start_ns % 1000 != 0 || event->duration_ns % 1000 != 0;
    if (category == LAUNCH) return add_launch(r, end_ns);
    return category == DEVICE ? add_device_slice(r, end_ns) : add_host_event(r, end_ns, category == NOTE);
}

/* --- Files ---------------------------------------------------------------------------------------------- */

static tandem_status read_torch_events(torch_reader *r)
{
    int is_there = 1;
    torch_rank *const rank = r->rank;
    tandem_status status = TANDEM_OK;
    while (status == TANDEM_OK) {
        status = tandem_events_next(&r->events, &r->event, &is_there);
        if (status != TANDEM_OK || !is_there) break;
        status = add_torch_event(r);
    }
    if (status == TANDEM_OK) status = torch_finish_stacks(r);
    if (status == TANDEM_OK) torch_link_by_id(r);
    rank->n_event = r->events.n_event;
    rank->rank = r->events.header.rank;
    return status;
}

static void extend(torch_rank *rank, int64_t start_ns, int64_t end_ns)
{
    if (start_ns < rank->first_ns) rank->first_ns = start_ns;
    if (end_ns > rank->last_ns) rank->last_ns = end_ns;
}

/* From the first to the last busy time: the step of a trace without steps. */
static void find_busy_extent(torch_rank *rank)
{
    tandem_interval_set *const all[] = {&rank->host, &rank->comm[0], &rank->comm[1], &rank->comm[2]};
    rank->first_ns = INT64_MAX;
    rank->last_ns = INT64_MIN;
    for (int k = 0; k < rank->n_kernel; k++) extend(rank, rank->kernel[k].start_ns, rank->kernel[k].end_ns);
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        tandem_interval_set_merge(all[k]);
        if (all[k]->n) extend(rank, all[k]->interval[0].begin_ns, all[k]->interval[all[k]->n - 1].end_ns);
    }
}

static tandem_status refuse_other_trace(const torch_reader *r)
{
    const tandem_torch_left_out *const out = &r->rank->left_out;
    return tandem_error_set(
        r->error, TANDEM_MALFORMED,
        "'%.200s': %lld events, none of which is an operator, a kernel or a step%s%s; expected a trace of "
        "the PyTorch profiler or of tandem train --trace",
        r->events.input->source, (long long)r->rank->n_event,
        out->n_unknown ? ": it is a trace of another program, with the categories or processes " : "",
        out->n_unknown ? out->unknown : "");
}

/* A cast computes: a plain copy within aten::to, to a device say, is none and has a row of its own. */
static tandem_status separate_copies(torch_reader *r)
{
    torch_rank *const rank = r->rank;
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < rank->n_kernel && status == TANDEM_OK; k++) {
        torch_kernel *const kernel = &rank->kernel[k];
        if (!kernel->is_copy || kernel->owner < 0 || !rank->signature[kernel->owner].is_cast) continue;
        const torch_signature signature = rank->signature[kernel->owner];
        const uint64_t hash = signature.hash ^ TORCH_CAST_HASH;
        kernel->owner = tandem_hash_index_find(&rank->table, hash);
        if (kernel->owner < 0)
            status = torch_add_signature(r, hash, signature.name, signature.detail, 0, &kernel->owner);
    }
    return status;
}

static tandem_status read_torch_rank(torch_reader *r)
{
    torch_rank *const rank = r->rank;
    tandem_status status = torch_open_stacks(r);
    if (status == TANDEM_OK) status = read_torch_events(r);
    if (status != TANDEM_OK) return status;
    find_busy_extent(rank);
    if (rank->first_ns > rank->last_ns && rank->n_window == 0) return refuse_other_trace(r);
    status = torch_rank_join_kernels(rank, r->error);
    if (status == TANDEM_OK) status = separate_copies(r);
    if (status == TANDEM_OK) torch_rank_place_in_steps(rank);
    return status;
}

tandem_status torch_rank_read(torch_rank *rank, tandem_input *input, tandem_error *error)
{
    torch_reader *const r = calloc(1, sizeof *r);
    if (!r) return tandem_no_memory(error, "to read '%.200s'", input->source);
    r->rank = rank;
    r->error = error;
    tandem_events_open(&r->events, input, error);
    const tandem_status status = read_torch_rank(r);
    torch_close_stacks(r);
    free(r);
    return status;
}

void torch_rank_close(torch_rank *rank)
{
    for (int k = 0; k < N_TORCH_SOURCE; k++) tandem_interval_set_free(&rank->comm[k]);
    tandem_interval_set_free(&rank->host);
    free(rank->kernel);
    free(rank->launch);
    free(rank->call);
    free(rank->collective);
    free(rank->window);
    tandem_hash_index_free(&rank->table);
    free(rank->signature);
    tandem_arena_free(&rank->arena);
    *rank = (torch_rank){0};
}
