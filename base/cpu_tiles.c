/* cpu_tiles.c: CPUID, Linux's permission (arch_prctl) and one instruction in a child.
 * Source: Linux, Documentation/x86/xstate.rst. */
#include "base/cpu_tiles.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* Leaf 7: EDX bits 22, 24 and 25 are bf16, tiles and int8. Compilers older than AMX lack the names. */
static int cpu_shows_tiles(void)
{
    enum { NEEDS = 1 << 22 | 1 << 24 | 1 << 25 };
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & NEEDS) == NEEDS;
}

static int linux_permits_tiles(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

/* TILERELEASE, in bytes, because older assemblers lack its name. It needs the same state as all others. */
static void run_tile_instruction(void)
{
    __asm__ volatile(".byte 0xc4, 0xe2, 0x78, 0x49, 0xc0" ::: "memory");
}
#else
static int cpu_shows_tiles(void) { return 0; }
static int linux_permits_tiles(void) { return 0; }
static void run_tile_instruction(void) {}
#endif

/* The child has no exit signal, so that a host program's SIGCHLD handler and wait() never see it, and leaves
 * no core file. Signals are blocked in it: one that an instruction raises then ends it without a handler. It
 * makes system calls alone, which take no lock. */
int tandem_cpu_tiles_probe(void (*probe)(void))
{
    sigset_t all, before;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return 1;
    const pid_t child = (pid_t)syscall(SYS_clone, 0L, NULL, NULL, NULL, 0L);
    if (child == 0) {
        (void)syscall(SYS_prctl, PR_SET_DUMPABLE, 0L, 0L, 0L, 0L);
        probe();
        (void)syscall(SYS_exit_group, 0L);
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (child < 0) return 1;
    int status = 0;
    pid_t ended = 0;
    do ended = waitpid(child, &status, (int)__WCLONE);
    while (ended < 0 && errno == EINTR);
    return ended < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static tandem_cpu_tiles_state ask_for_tiles(void)
{
    if (!cpu_shows_tiles()) return TANDEM_TILES_ABSENT;
    if (!linux_permits_tiles()) return TANDEM_TILES_REFUSED;
    return tandem_cpu_tiles_probe(run_tile_instruction) ? TANDEM_TILES_USABLE : TANDEM_TILES_TRAP;
}

tandem_cpu_tiles_state tandem_cpu_tiles(void)
{
    static atomic_int known; /* 0, or 1 + the state */
    const int before = atomic_load(&known);
    if (before > 0) return (tandem_cpu_tiles_state)(before - 1);
    const tandem_cpu_tiles_state state = ask_for_tiles();
    atomic_store(&known, 1 + (int)state);
    return state;
}

const char *tandem_cpu_tiles_missing(void)
{
    switch (tandem_cpu_tiles()) {
    case TANDEM_TILES_ABSENT: return "amx";
    case TANDEM_TILES_REFUSED: return "amx (Linux refuses this process its registers)";
    case TANDEM_TILES_TRAP: return "amx (the CPU shows it, but its instructions trap)";
    default: return NULL;
    }
}
