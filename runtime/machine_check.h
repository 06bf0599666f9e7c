/* machine_check.h: how steady this machine is, what disturbs it, and what can be done about it. */
#ifndef TANDEM_CLI_MACHINE_CHECK_H
#define TANDEM_CLI_MACHINE_CHECK_H

#include "base/disturbance.h"
#include "tandem/advanced/store.h"

/* machine_check: keeps this thread's core busy for `ns`, with a speed sample every 20 ms. Shares and spreads
 * that the system does not report are NaN. *counts: the machine's counts at the end. TANDEM_NO_MEMORY. */
tandem_status machine_check(tandem_steadiness *found, tandem_machine_counts *counts, int64_t ns,
                            tandem_error *error);

/* Whether measurements on it are wider than they need to be. */
int machine_is_unsteady(const tandem_steadiness *found, const tandem_machine_counts *counts);

/* What was found, in a line: "core's speed varies by 2 %, memory's by 5 %; others take 12 % of a core; …". */
const char *machine_check_print(char *text, size_t size, const tandem_steadiness *found,
                                const tandem_machine_counts *counts);
/* What can be done, as a command or a sentence; "" = nothing. Returns text. */
const char *machine_check_remedy(char *text, size_t size, const tandem_steadiness *found,
                                 const tandem_machine_counts *counts);

#endif
