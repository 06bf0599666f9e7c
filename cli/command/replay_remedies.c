/* replay_remedies.c: prints what would make a plan fit its memory. */
#include "base/quantity.h"
#include "cli/command/replay_memory.h"
#include "cli/table.h"

json_t *replay_remedies_json(const tandem_remedy *remedy, int n, uint64_t peak_bytes)
{
    json_t *rows = json_array();
    for (const tandem_remedy *r = remedy; r < remedy + n; r++)
        json_array_append_new(
            rows, json_pack("{s:s,s:I,s:I,s:o,s:b}", "what", r->what, "peak_bytes", (json_int_t)r->peak_bytes,
                            "saves_bytes", (json_int_t)(peak_bytes - r->peak_bytes), "step_ns",
                            r->step_ns >= 0 ? json_integer(r->step_ns) : json_null(), "fits", r->fits));
    return rows;
}

int replay_remedies_print(const tandem_remedy *remedy, int n, uint64_t peak_bytes, uint64_t limit_bytes,
                          const char *device)
{
    cli_table table = {0};
    printf("\n%s is %s over its limit of %s. Changed plans:\n", device,
           tandem_quantity_bytes(peak_bytes - limit_bytes).text, tandem_quantity_bytes(limit_bytes).text);
    cli_table_row(&table, "with\t>memory\t>saves\t>step\t");
    for (const tandem_remedy *r = remedy; r < remedy + n; r++)
        cli_table_row(&table, "%s\t%s\t%s\t%s\t%s", r->what, tandem_quantity_bytes(r->peak_bytes).text,
                      tandem_quantity_bytes(peak_bytes - r->peak_bytes).text,
                      r->step_ns >= 0 ? tandem_quantity_ns(r->step_ns).text : "?",
                      r->fits ? "fits" : "too large");
    return cli_table_finish(&table);
}
