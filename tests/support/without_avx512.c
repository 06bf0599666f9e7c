/* A library to preload: the program below it sees a CPU that has AVX2 and FMA, but no AVX-512, no AMX and no
 * AVX-VNNI. Linux traps the instruction CPUID for the process (arch_prctl(2), ARCH_SET_CPUID: Intel CPUs from
 * Ivy Bridge on), and the handler here answers it with those bits cleared. So a program that chooses its
 * kernels by CPUID runs the very code that it would run on such a CPU, at this machine's clock. What ld.so
 * asked before (which memcpy libc takes) stays as it is. A handler of SIGSEGV that the program sets (cmocka
 * and compilers do) gets what is no CPUID. */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <cpuid.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

/* Bits of leaf 7 (Intel's Software Developer's Manual, volume 2A, CPUID). */
#define NO_EBX (1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 30 | 1u << 31)
#define NO_ECX (1u << 1 | 1u << 6 | 1u << 11 | 1u << 12 | 1u << 14)
#define NO_EDX (1u << 2 | 1u << 3 | 1u << 8 | 1u << 22 | 1u << 23 | 1u << 24 | 1u << 25)
#define NO_EAX_OF_1 (1u << 4 | 1u << 5 | 1u << 21)

static long set_cpuid(unsigned long on) { return syscall(SYS_arch_prctl, ARCH_SET_CPUID, on); }

/* What the program wants done at SIGSEGV. */
static struct sigaction of_program = {.sa_handler = SIG_DFL};

static int real_sigaction(int number, const struct sigaction *action, struct sigaction *old)
{
    static int (*real)(int, const struct sigaction *, struct sigaction *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "sigaction");
    return real(number, action, old);
}

int sigaction(int number, const struct sigaction *action, struct sigaction *old)
{
    if (number != SIGSEGV) return real_sigaction(number, action, old);
    if (old) *old = of_program;
    if (action) of_program = *action;
    return 0;
}

sighandler_t signal(int number, sighandler_t handler)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, old;
    return sigaction(number, &action, &old) == 0 ? old.sa_handler : SIG_ERR;
}

static void answer_cpuid(int number, siginfo_t *info, void *context)
{
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *code = (const unsigned char *)r[REG_RIP];
    if (r[REG_TRAPNO] != 13 || code[0] != 0x0f || code[1] != 0xa2) {
        if (of_program.sa_flags & SA_SIGINFO) {
            of_program.sa_sigaction(number, info, context);
        } else if (of_program.sa_handler != SIG_DFL && of_program.sa_handler != SIG_IGN) {
            of_program.sa_handler(number);
        } else {
            real_sigaction(number, &of_program, NULL); /* the instruction fails again, and now for good */
            if (info->si_code <= 0) raise(number);     /* it came from kill(2) */
        }
        return;
    }
    unsigned leaf = (unsigned)r[REG_RAX], sub = (unsigned)r[REG_RCX], a, b, c, d;
    set_cpuid(1);
    __cpuid_count(leaf, sub, a, b, c, d);
    set_cpuid(0);
    if (leaf == 7 && sub == 0) b &= ~NO_EBX, c &= ~NO_ECX, d &= ~NO_EDX;
    if (leaf == 7 && sub == 1) a &= ~NO_EAX_OF_1;
    r[REG_RAX] = a, r[REG_RBX] = b, r[REG_RCX] = c, r[REG_RDX] = d;
    r[REG_RIP] += 2;
}

__attribute__((constructor)) static void hide_avx512(void)
{
    struct sigaction action = {.sa_sigaction = answer_cpuid, .sa_flags = SA_SIGINFO | SA_NODEFER};
    static const char refused[] = "without_avx512: this CPU or kernel does not trap CPUID\n";
    if (real_sigaction(SIGSEGV, &action, NULL) == 0 && set_cpuid(0) == 0) return;
    (void)!write(2, refused, sizeof refused - 1);
    _exit(4);
}
