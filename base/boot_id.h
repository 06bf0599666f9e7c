/* boot_id.h: identifies a running kernel. */
#pragma once

enum { TANDEM_BOOT_ID_BYTES = 48 };

/* A text that no other kernel has, nor this one after a restart; "" where the system has none. The rest of
 * `text` is zero. */
void tandem_boot_id(char text[TANDEM_BOOT_ID_BYTES]);
