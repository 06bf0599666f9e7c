#include "runtime/machine_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/append.h"
#include "base/clock.h"
#include "base/quantity.h"
#include "base/sort.h"
#include "runtime/listener.h"
#include "tandem/runtime.h"
#include "runtime/train/step_watch.h"

/* Beyond these, costs vary by more than the 1 % that a profile aims at. */
static const double unsteady_spread = 0.1, unsteady_delay = 0.02, unsteady_steal = 0.01;
enum { MAX_SPEED_SAMPLES = 256 };

static double spread_of(int64_t *ns, int n)
{
    tandem_sort_int64(ns, (size_t)n);
    return n > 1 && ns[n / 2] > 0 ? (double)(ns[9 * n / 10] - ns[n / 10]) / (double)ns[n / 2] : NAN;
}

/* Speed samples, and between them this core is kept busy: a sleeping thread is never delayed. */
static int take_speed_samples(step_watch *watch, int64_t end_ns, int64_t *compute_ns, int64_t *memory_ns)
{
    int n = 0;
    while (n < MAX_SPEED_SAMPLES && tandem_now_ns() < end_ns) {
        step_watch_take_speed_sample(watch);
        compute_ns[n] = watch->speed_sample.compute_ns;
        memory_ns[n++] = watch->speed_sample.memory_ns;
        while (!step_watch_is_speed_sample_due(watch) && tandem_now_ns() < end_ns) continue;
    }
    return n;
}

tandem_status machine_check(tandem_steadiness *found, tandem_machine_counts *counts, int64_t ns,
                            tandem_error *error)
{
    step_watch watch = {.probe.file = -1};
    tandem_machine_counts before;
    int64_t compute_ns[MAX_SPEED_SAMPLES], memory_ns[MAX_SPEED_SAMPLES];
    const tandem_status status = step_watch_open(&watch, "cpu:any", error);
    if (status != TANDEM_OK) return status;
    tandem_machine_counts_read(&before, "");
    const int64_t begin_ns = tandem_now_ns(), delayed = tandem_delay_read(&watch.probe);
    const int n = take_speed_samples(&watch, begin_ns + ns, compute_ns, memory_ns);
    const int64_t delay_ns = tandem_delay_since(delayed, tandem_delay_read(&watch.probe));
    const double wall_ns = (double)(tandem_now_ns() - begin_ns);
    tandem_machine_counts_read(counts, "");
    const int64_t steal_ns = tandem_count_since(before.steal_ns, counts->steal_ns),
                  busy_ns = tandem_count_since(before.busy_ns, counts->busy_ns);
    counts->throttled_ns = tandem_count_since(before.throttled_ns, counts->throttled_ns);
    *found = (tandem_steadiness){.compute_spread = spread_of(compute_ns, n),
                                 .memory_spread = spread_of(memory_ns, n),
                                 .compute_speed_sample_ns = n ? compute_ns[n / 2] : 0,
                                 .memory_speed_sample_ns = n ? memory_ns[n / 2] : 0,
                                 .delay_share = delay_ns >= 0 ? (double)delay_ns / wall_ns : NAN,
                                 .steal_share = steal_ns >= 0 && busy_ns + steal_ns > 0
                                                    ? (double)steal_ns / (double)(busy_ns + steal_ns)
                                                    : NAN,
                                 .interval_share = NAN};
    step_watch_close(&watch);
    return TANDEM_OK;
}

static int is_saving_power(const tandem_machine_counts *counts)
{
    return strcmp(counts->governor, "powersave") == 0 || strcmp(counts->governor, "conservative") == 0;
}

int machine_is_unsteady(const tandem_steadiness *found, const tandem_machine_counts *counts)
{
    return found->compute_spread > unsteady_spread || found->memory_spread > 2 * unsteady_spread ||
           found->delay_share > unsteady_delay || found->steal_share > unsteady_steal ||
           counts->throttled_ns > 0 || is_saving_power(counts);
}

static void append_share(char *text, size_t size, const char *what, double share)
{
    char number[TANDEM_QUANTITY_TEXT];
    if (isnan(share))
        (void)tandem_append(text, size, "; %s: unknown here", what);
    else
        (void)tandem_append(text, size, "; %s %s", what,
                            tandem_quantity_print_ratio(number, sizeof number, share));
}

const char *machine_check_print(char *text, size_t size, const tandem_steadiness *found,
                                const tandem_machine_counts *counts)
{
    char compute[TANDEM_QUANTITY_TEXT], memory[TANDEM_QUANTITY_TEXT];
    (void)snprintf(text, size, "the core's speed varies by %s, memory's by %s",
                   tandem_quantity_print_ratio(compute, sizeof compute, found->compute_spread),
                   tandem_quantity_print_ratio(memory, sizeof memory, found->memory_spread));
    append_share(text, size, "other processes take of the core", found->delay_share);
    append_share(text, size, "other virtual machines", found->steal_share);
    if (counts->throttled_ns > 0) (void)tandem_append(text, size, "; a quota withholds time");
    if (counts->mhz > 0) (void)tandem_append(text, size, "; %d MHz", counts->mhz);
    if (is_saving_power(counts)) (void)tandem_append(text, size, "; governor %s", counts->governor);
    return text;
}

const char *machine_check_remedy(char *text, size_t size, const tandem_steadiness *found,
                                 const tandem_machine_counts *counts)
{
    const char *remedy = "";
    if (counts->throttled_ns > 0)
        remedy = "a larger CPU quota for this container (cpu.max)";
    else if (is_saving_power(counts))
        remedy = "cpupower frequency-set -g performance";
    else if (found->delay_share > unsteady_delay)
        remedy = "top -b -n 1 | head -n 20    # and end what else runs";
    else if (found->steal_share > unsteady_steal)
        remedy = "a machine with dedicated cores: other virtual machines use these, too";
    else if (found->compute_spread > unsteady_spread)
        remedy = "sleep 300    # a hot core slows down; a neighbour thread may also take of it";
    else if (found->memory_spread > 2 * unsteady_spread)
        remedy = "fewer processes on other cores that move much memory";
    (void)snprintf(text, size, "%s", remedy);
    return text;
}
