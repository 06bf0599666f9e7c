/* ratios.c: ratios of predicted times, as text and JSON. */
#include "cli/ratios.h"

#include <math.h>
#include <stdio.h>

#include "base/append.h"
#include "base/quantity.h"
#include "cli/answer.h"
#include "cli/table.h"

static const double worth_saying = 0.01; /* of the step */
static const char *const end_name[] = {"high", "low"};

static double ratio_at(const tandem_ratio_shift *shift, int end)
{
    return end == 0 ? shift->ratio * (1 + shift->half) : shift->ratio / (1 + shift->half);
}

/* What another plan saves there; 1: no plan is found, so that this one does not hold either. */
static double gain_at(const tandem_ratio_shift *shift, int end)
{
    return shift->n_changed[end] < 0 ? 1 : shift->gain[end];
}

static void print_flip(const tandem_ratio_shift *shift, int end, int n_more)
{
    char text[640] = "", more[64] = "";
    const char *const precision = tandem_precision_get(shift->precision)->name;
    (void)tandem_append(text, sizeof text,
                        "%s products on %s take %.2f x the time of fp32 (80%%: %.2f to %.2f). ", precision,
                        shift->device, shift->ratio, ratio_at(shift, 1), ratio_at(shift, 0));
    if (n_more) (void)snprintf(more, sizeof more, " (%d more with --details)", n_more);
    if (shift->n_changed[end] < 0)
        (void)tandem_append(text, sizeof text, "At %.2f no plan is found%s", ratio_at(shift, end), more);
    else
        (void)tandem_append(
            text, sizeof text,
            "At %.2f another plan has a step %s shorter, with %d operator%s changed%s. Time '%s' "
            "in %s and fp32 on %s, and give the times by `tandem profile --import`",
            ratio_at(shift, end), tandem_quantity_ratio(shift->gain[end]).text, shift->n_changed[end],
            shift->n_changed[end] == 1 ? "" : "s", more, shift->to_measure[end], precision, shift->device);
    answer_line("ratios", "%s", text);
}

void ratios_print(const tandem_ratio_check *check)
{
    const tandem_ratio_shift *most = NULL;
    int end = 0, n_flip = 0;
    for (int k = 0; k < 2 * check->n; k++) {
        const tandem_ratio_shift *const shift = &check->shift[k / 2];
        if (shift->n_changed[k % 2] == 0 || gain_at(shift, k % 2) < worth_saying) continue;
        n_flip++;
        if (most && gain_at(shift, k % 2) <= gain_at(most, end)) continue;
        most = shift;
        end = k % 2;
    }
    if (most) print_flip(most, end, n_flip - 1);
    if (check->n_left_out)
        answer_line("ratios", "%d of %d are not checked: the limit is %d", check->n_left_out,
                    check->n + check->n_left_out, TANDEM_MAX_RATIO_SHIFT);
}

int ratios_print_details(const tandem_ratio_check *check)
{
    cli_table table = {0};
    if (!check->n) return 0;
    cli_table_row(&table,
                  "products on\tin\t>of fp32's time\t>80%% from\t>to\t>changed, low\t>saves\t>changed, "
                  "high\t>saves");
    for (int k = 0; k < check->n; k++) {
        const tandem_ratio_shift *const s = &check->shift[k];
        char saves[2][TANDEM_QUANTITY_TEXT] = {"", ""}, changed[2][16] = {"no plan", "no plan"};
        for (int end = 0; end < 2; end++) {
            if (s->n_changed[end] >= 0)
                (void)snprintf(changed[end], sizeof changed[end], "%d", s->n_changed[end]);
            if (s->n_changed[end] > 0)
                (void)snprintf(saves[end], sizeof saves[end], "%s", tandem_quantity_ratio(s->gain[end]).text);
        }
        cli_table_row(&table, "%s\t%s\t%.3f\t%.3f\t%.3f\t%s\t%s\t%s\t%s", s->device,
                      tandem_precision_get(s->precision)->name, s->ratio, ratio_at(s, 1), ratio_at(s, 0),
                      changed[1], saves[1], changed[0], saves[0]);
    }
    return cli_table_finish(&table);
}

json_t *ratios_json(const tandem_ratio_check *check)
{
    json_t *const all = json_array();
    for (int k = 0; k < check->n; k++) {
        const tandem_ratio_shift *const s = &check->shift[k];
        json_t *const one = json_pack("{s:s,s:s,s:f}", "device", s->device, "precision",
                                      tandem_precision_get(s->precision)->name, "ratio", s->ratio);
        for (int end = 0; end < 2; end++)
            json_object_set_new(one, end_name[end],
                                json_pack("{s:f,s:i,s:o,s:s}", "ratio", ratio_at(s, end), "changed",
                                          s->n_changed[end], "gain",
                                          cli_json_number(s->n_changed[end] < 0 ? NAN : s->gain[end]),
                                          "operator", s->to_measure[end]));
        json_array_append_new(all, one);
    }
    return all;
}
