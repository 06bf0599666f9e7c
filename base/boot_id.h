/* boot_id.h: which running machine this is. */
#ifndef TANDEM_BASE_BOOT_ID_H
#define TANDEM_BASE_BOOT_ID_H

enum { TANDEM_BOOT_ID_BYTES = 48 };

/* A text that another kernel, or this one started again, does not have; "" where the system has none. What is
 * behind it is cleared. */
void tandem_boot_id(char text[TANDEM_BOOT_ID_BYTES]);

#endif
