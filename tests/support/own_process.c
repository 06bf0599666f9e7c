#include "tests/support/own_process.h"

#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/tandem_test.h"

enum { TEXT = 4096 };

void own_process_check(int (*check)(const char *device), const char *device)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(ends[0]);
        dup2(ends[1], STDOUT_FILENO);
        const int bad = check(device);
        fflush(NULL);
        _exit(bad);
    }
    close(ends[1]);
    char text[TEXT];
    size_t used = 0;
    for (ssize_t n; used < sizeof text - 1 && (n = read(ends[0], text + used, sizeof text - 1 - used)) > 0;)
        used += (size_t)n;
    text[used] = '\0';
    close(ends[0]);
    int how = 0;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
        fail_msg("%s: %s%s", device, WIFSIGNALED(how) ? "died of a signal; " : "", text);
}

void own_process_wait_asleep(char **argv)
{
    if (getenv("OMP_WAIT_POLICY")) return;
    setenv("OMP_WAIT_POLICY", "passive", 1);
    execv("/proc/self/exe", argv);
}
