/* cpu_tiles.h: whether this process may use the tile registers of AMX. */
#pragma once

typedef enum tandem_cpu_tiles_state {
    TANDEM_TILES_ABSENT,  /* the CPU, or the hypervisor that shows it, has no AMX with bf16 and int8 */
    TANDEM_TILES_REFUSED, /* Linux does not let the process have them, or a sandbox forbids to ask */
    TANDEM_TILES_TRAP,    /* a tile instruction ends the process that runs it */
    TANDEM_TILES_USABLE
} tandem_cpu_tiles_state;

/* tandem_cpu_tiles: asks once for the whole process, and its later threads may use them, too. Where the CPU
 * shows them, a child process runs a tile instruction first: a hypervisor may show the flag and trap. */
tandem_cpu_tiles_state tandem_cpu_tiles(void);

/* tandem_cpu_tiles_missing: what tandem_cpu_tiles lacks, in a word and a reason; NULL: nothing. */
const char *tandem_cpu_tiles_missing(void);

/* tandem_cpu_tiles_probe: the same of a probe that the caller gives, for tests: it runs in a child process
 * and returns, or ends. 1: it returned; also where no child can be made: then nothing speaks against it. */
int tandem_cpu_tiles_probe(void (*probe)(void));
