/* rank_main.c: tandem-rank: the program of one rank. Only tandem's libraries start it (process/ranks.c). */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "runtime/process/process.h"
#include "runtime/process/ranks.h"

int main(int argc, char **argv)
{
    child_follow_parent();
    signals_begin(NULL);
    openmp_forget();
    const int code = argc == 2 ? rank_process_run(argv[1]) : -1;
    if (code >= 0) return code;
    fputs("tandem-rank: this program is a part of tandem's library, which starts it for each rank of a run.\n"
          "Use `tandem train`, `tandem profile` and the like.\n",
          stderr);
    return tandem_status_exit_code(TANDEM_USAGE);
}
