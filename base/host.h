/* host.h: which machine this is, for what it measures and writes. */
#pragma once

enum { TANDEM_HOST_CPU = 128, TANDEM_HOST_HASH = 17 };

/* The machine's name is kept as a hash: files are handed on. */
typedef struct tandem_host {
    char name_hash[TANDEM_HOST_HASH]; /* 16 hexadecimal digits */
    char cpu[TANDEM_HOST_CPU];        /* "Intel(R) Xeon(R) …"; "" where the system does not report it */
    int n_cpu;
} tandem_host;

void tandem_host_read(tandem_host *host);
