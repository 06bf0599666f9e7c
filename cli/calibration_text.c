#include "base/append.h"
#include "cli/calibration_text.h"

#include "tandem/dtype.h"

static int64_t count_rates(const tandem_calibration_basis *basis)
{
    int64_t n = 0;
    for (int t = 0; t < TANDEM_N_COMPUTE_DTYPE; t++) n += basis->n_rate[t];
    return n;
}

const char *calibration_text(char *text, size_t size, const tandem_calibration *calibration)
{
    const tandem_calibration_basis *const basis = tandem_calibration_basis_of(calibration);
    const int64_t n_bandwidth = basis->n_rate[TANDEM_N_COMPUTE_DTYPE];
    const char *separator = ": ";
    text[0] = '\0';
    (void)tandem_append(text, size, "%s: %lld row%s", tandem_calibration_device(calibration)->name,
                        (long long)basis->n_row, basis->n_row == 1 ? "" : "s");
    for (int t = 0; t < TANDEM_N_COMPUTE_DTYPE; t++)
        if (basis->n_rate[t]) {
            (void)tandem_append(text, size, "%srate in %s from %lld", separator,
                                tandem_dtype_name((tandem_dtype)t), (long long)basis->n_rate[t]);
            separator = ", ";
        }
    if (n_bandwidth)
        (void)tandem_append(text, size, "%sbandwidth from %lld", separator, (long long)n_bandwidth);
    if (n_bandwidth) separator = ", ";
    if (basis->n_launch)
        (void)tandem_append(text, size, "%slaunch from %lld", separator, (long long)basis->n_launch);
    if (basis->n_events)
        (void)tandem_append(text, size, "; %lld tiny ones between events show only what the host adds",
                            (long long)basis->n_events);
    if (count_rates(basis) == 0)
        (void)tandem_append(text, size, "; no large product (linear), so no rate follows");
    if (n_bandwidth == 0) (void)tandem_append(text, size, "; no large stream, so no bandwidth follows");
    if (basis->n_launch == 0)
        (void)tandem_append(text, size, "; no tiny kernel's own time, so no launch follows");
    if (basis->n_contradicting)
        (void)tandem_append(text, size,
                            "; %lld contradict the datasheet, or others' times, by more than 3 x and are "
                            "left out",
                            (long long)basis->n_contradicting);
    return text;
}

json_t *calibration_json(const tandem_calibration *calibration)
{
    const tandem_calibration_basis *const basis = tandem_calibration_basis_of(calibration);
    json_t *const rates = json_object();
    for (int t = 0; t < TANDEM_N_COMPUTE_DTYPE; t++)
        if (basis->n_rate[t])
            json_object_set_new(rates, tandem_dtype_name((tandem_dtype)t),
                                json_integer((json_int_t)basis->n_rate[t]));
    return json_pack("{s:s,s:I,s:o,s:I,s:I,s:I,s:I}", "name", tandem_calibration_device(calibration)->name,
                     "rows", (json_int_t)basis->n_row, "rates", rates, "bandwidth",
                     (json_int_t)basis->n_rate[TANDEM_N_COMPUTE_DTYPE], "launch", (json_int_t)basis->n_launch,
                     "host_events", (json_int_t)basis->n_events, "contradicting",
                     (json_int_t)basis->n_contradicting);
}
