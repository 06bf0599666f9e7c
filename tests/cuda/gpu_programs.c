/* gpu_programs.c: all tests that run on a card, and bench_gpu, in one program, so that the kernels of all
 * architectures are linked and packed once. The name by which it is called says which of them it is. */
#include <stdio.h>
#include <string.h>

/* Their `main`, which the Makefile renames. */
#define PROGRAM(name) int name(int n, char **word);
#include "tests/cuda/gpu_programs.def"
#undef PROGRAM

typedef struct gpu_program {
    const char *name;
    int (*run)(int n, char **word);
} gpu_program;

static const gpu_program gpu_programs[] = {
#define PROGRAM(name) {#name, name},
#include "tests/cuda/gpu_programs.def"
#undef PROGRAM
};

int main(int n, char **word)
{
    const char *slash = n > 0 ? strrchr(word[0], '/') : NULL, *name = "";
    if (n > 0) name = slash ? slash + 1 : word[0];
    (void)setvbuf(stdout, NULL, _IOLBF,
                  BUFSIZ); /* a program that is stopped leaves its last line in a file */
    for (size_t i = 0; i < sizeof gpu_programs / sizeof *gpu_programs; i++)
        if (strcmp(name, gpu_programs[i].name) == 0) return gpu_programs[i].run(n, word);
    fprintf(stderr, "%s is no program on a card; link this file to the name of one:", name);
    for (size_t i = 0; i < sizeof gpu_programs / sizeof *gpu_programs; i++)
        fprintf(stderr, " %s", gpu_programs[i].name);
    fprintf(stderr, "\n");
    return 2;
}
