/* boot_id.c: reads the boot id of Linux. */
#include "base/boot_id.h"

#include <stdio.h>
#include <string.h>

void tandem_boot_id(char text[TANDEM_BOOT_ID_BYTES])
{
    memset(text, 0, TANDEM_BOOT_ID_BYTES);
    FILE *stream = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (stream && !fgets(text, TANDEM_BOOT_ID_BYTES, stream)) text[0] = '\0';
    if (stream) (void)fclose(stream);
}
