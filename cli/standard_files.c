/* standard_files.c: descriptors 0 to 2. Results have a descriptor of their own; libraries that print, e.g.
 * because a variable of the environment makes them verbose, print on stderr. The Makefile links the program
 * with --wrap: stdout, printf, puts and putchar of our own objects are those below. What libraries call by
 * these names is the C library's. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "runtime/process/process.h"

/* NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp): the linker's names */
FILE *__wrap_stdout;

int __wrap_vprintf(const char *format, va_list arguments)
{
    return vfprintf(__wrap_stdout, format, arguments);
}

int __wrap_printf(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int n = vfprintf(__wrap_stdout, format, arguments);
    va_end(arguments);
    return n;
}

/* What printf and vprintf are with _FORTIFY_SOURCE. */
int __wrap___vprintf_chk(int flag, const char *format, va_list arguments)
{
    (void)flag;
    return vfprintf(__wrap_stdout, format, arguments);
}

int __wrap___printf_chk(int flag, const char *format, ...)
{
    (void)flag;
    va_list arguments;
    va_start(arguments, format);
    const int n = vfprintf(__wrap_stdout, format, arguments);
    va_end(arguments);
    return n;
}

int __wrap_puts(const char *text)
{
    return fputs(text, __wrap_stdout) == EOF ? EOF : fputc('\n', __wrap_stdout);
}

int __wrap_putchar(int c) { return fputc(c, __wrap_stdout); }
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

/* A result that cannot be written is an error, also where standard output is closed: /dev/full takes nothing.
 * The folder / is for places without /dev. */
static int open_in_place(int descriptor)
{
    if (fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) return 0;
    const int is_output = descriptor == STDOUT_FILENO;
    int opened = open(is_output ? "/dev/full" : "/dev/null", O_RDWR); /* NOLINT: exec keeps it */
    if (opened < 0) opened = open("/", O_RDONLY | O_DIRECTORY);       /* NOLINT: the same */
    return opened < 0 ? errno : 0; /* the lowest free number: `descriptor` */
}

int cli_standard_files_open(void)
{
    int failed = 0;
    for (int k = STDIN_FILENO; k <= STDERR_FILENO && !failed; k++) failed = open_in_place(k);
    const int own = failed ? -1 : fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (own >= 0) __wrap_stdout = fdopen(own, "w");
    return __wrap_stdout ? 0 : failed ? failed : errno;
}

void cli_standard_output_protect(void) { (void)dup2(STDERR_FILENO, STDOUT_FILENO); }

int cli_result_descriptor(void) { return fileno(__wrap_stdout); }
