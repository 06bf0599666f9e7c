/* allocate_svg.c: draws a Pareto front as SVG with gnuplot. The picture is written to its file when it is
 * complete. */
#include <errno.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/command/allocate.h"

/* --- The script ------------------------------------------------------------------------------- */

typedef struct axis_unit {
    const char *unit;
    double size;
} axis_unit;

/* The largest unit in which the largest number is at least 1. */
static axis_unit choose_axis_unit(double max_value, const axis_unit *units)
{
    while (units[1].unit && max_value >= units[1].size) units++;
    return *units;
}

static const axis_unit time_units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {NULL, 0}};
static const axis_unit byte_units[] = {{"B", 1},        {"KiB", 0x1p10}, {"MiB", 0x1p20},
                                       {"GiB", 0x1p30}, {"TiB", 0x1p40}, {NULL, 0}};

typedef struct svg_drawing {
    FILE *script;
    const tandem_pareto_front *pareto;
    axis_unit time, bytes;
    double min_ns, max_ns, min_bytes, max_bytes;
    /* where a sensitivity of 0 is drawn on the logarithmic axis; 0 = all are 0 */
    double floor;
} svg_drawing;

static double svg_height(const svg_drawing *d, double sensitivity)
{
    return sensitivity > 0 ? sensitivity : d->floor;
}

/* One decade below the smallest positive sensitivity. */
static double find_log_floor(const tandem_pareto_front *pareto)
{
    double min = INFINITY;
    for (int k = 0; k < pareto->n_point; k++)
        if (pareto->point[k].sensitivity > 0) min = fmin(min, pareto->point[k].sensitivity);
    for (int k = 0; k < pareto->n_baseline; k++)
        if (pareto->baseline[k].sensitivity > 0) min = fmin(min, pareto->baseline[k].sensitivity);
    return isfinite(min) ? pow(10, floor(log10(min)) - 1) : 0;
}

static uint64_t svg_peak_bytes(const uint64_t *peak_bytes)
{
    uint64_t max = 0;
    for (int c = 0; c < TANDEM_MAX_CLASS; c++)
        if (peak_bytes[c] > max) max = peak_bytes[c];
    return max;
}

static void extend_drawing(svg_drawing *d, int64_t step_ns, uint64_t bytes)
{
    d->min_ns = fmin(d->min_ns, (double)step_ns);
    d->max_ns = fmax(d->max_ns, (double)step_ns);
    d->min_bytes = fmin(d->min_bytes, (double)bytes);
    d->max_bytes = fmax(d->max_bytes, (double)bytes);
}

static svg_drawing measure_drawing(FILE *script, const tandem_pareto_front *pareto)
{
    svg_drawing d = {.script = script,
                     .pareto = pareto,
                     .min_ns = INFINITY,
                     .min_bytes = INFINITY,
                     .floor = find_log_floor(pareto)};
    for (int k = 0; k < pareto->n_point; k++)
        extend_drawing(&d, pareto->point[k].step_ns, pareto->point[k].peak_bytes);
    for (int k = 0; k < pareto->n_baseline; k++)
        extend_drawing(&d, pareto->baseline[k].step_ns, svg_peak_bytes(pareto->baseline[k].peak_bytes));
    d.time = choose_axis_unit(d.max_ns, time_units);
    d.bytes = choose_axis_unit(d.max_bytes, byte_units);
    return d;
}

/* Names have no quotes: they are checked when they are read. */
static void write_svg_data(const svg_drawing *d)
{
    fputs("$front << EOD\n", d->script);
    for (int k = 0; k < d->pareto->n_point; k++) {
        const tandem_pareto_point *p = &d->pareto->point[k];
        fprintf(d->script, "%.9g %.9g %.6g %.9g\n", (double)p->step_ns / d->time.size,
                svg_height(d, p->sensitivity), (double)p->peak_bytes / d->bytes.size,
                p->lower_bound > 0 ? p->lower_bound : NAN);
    }
    fputs("EOD\n$uniform << EOD\n", d->script);
    for (int k = 0; k < d->pareto->n_baseline; k++) {
        const tandem_baseline *u = &d->pareto->baseline[k];
        fprintf(d->script, "%.9g %.9g %.6g \"%s\"\n", (double)u->step_ns / d->time.size,
                svg_height(d, u->sensitivity), (double)svg_peak_bytes(u->peak_bytes) / d->bytes.size,
                u->name);
    }
    fputs("EOD\n", d->script);
}

static void write_svg_axes(const svg_drawing *d, const allocate_context *a)
{
    char cluster[256];
    tandem_cluster_print(cluster, sizeof cluster, &a->workload.cluster);
    fprintf(d->script,
            "set terminal svg size 900,600 noenhanced background 'white' font 'sans-serif,14'\n"
            "set title \"%s: step against sensitivity, policy %s\\n%s\"\n",
            a->problem->graph->model, a->policy->name, cluster);
    fprintf(d->script, "set xlabel 'step (%s)'\nset ylabel 'sensitivity (%s)'\n", d->time.unit,
            cli_method_text(tandem_planner_method(a->planner)));
    /* a margin, so that differences below 1 % have one colour */
    fprintf(d->script, "set cblabel 'largest memory of a rank (%s)'\nset cbrange [%.9g:%.9g]\n",
            d->bytes.unit, (d->min_bytes - 0.02 * d->max_bytes) / d->bytes.size,
            1.02 * d->max_bytes / d->bytes.size);
    fputs("set grid\nset key inside left bottom\nset offsets graph 0.05, graph 0.15, 0, 0\nset palette "
          "defined (0 '#2b6cb0', 1 '#dd6b20')\n",
          d->script);
    /* a range is needed if all points have the same step */
    fprintf(d->script, "set xrange [%.9g:%.9g]\n", d->min_ns / d->time.size, 1.02 * d->max_ns / d->time.size);
    if (d->floor <= 0) fputs("set yrange [-1:1]\n", d->script);
    if (d->floor > 0)
        fprintf(d->script,
                "set logscale y\nset format y '%%.0e'\nset yrange [%.9g:*]\nset ytics add ('0' %.9g)\n",
                d->floor / 2, d->floor);
}

static void write_svg_plot(const svg_drawing *d)
{
    int has_bounds = 0;
    for (int k = 0; k < d->pareto->n_point; k++) has_bounds |= d->pareto->point[k].lower_bound > 0;
    fputs("plot $front using 1:2 with steps lc '#a0aec0' notitle, \\\n", d->script);
    if (has_bounds)
        fputs("     $front using 1:4 with lines dt 2 lc '#718096' title 'lower bound', \\\n", d->script);
    fputs("     $front using 1:2:3 with points pt 7 ps 1 palette title 'allocated'", d->script);
    if (d->pareto->n_baseline > 0)
        fputs(", \\\n     $uniform using 1:2:3 with points pt 4 ps 1.6 lw 2 palette title 'uniform', \\\n"
              "     $uniform using 1:2:4 with labels left offset 1.2,0 notitle",
              d->script);
    fputc('\n', d->script);
}

/* A memory file with the script, at its start; −1 = no memory. */
static int make_gnuplot_script(const tandem_pareto_front *pareto, const allocate_context *a)
{
    const int file = memfd_create("front", MFD_CLOEXEC);
    const int copy = file < 0 ? -1 : dup(file);
    FILE *script = copy < 0 ? NULL : fdopen(copy, "w");
    int whole = 0;
    if (script) {
        const svg_drawing d = measure_drawing(script, pareto);
        write_svg_axes(&d, a);
        write_svg_data(&d);
        write_svg_plot(&d);
        whole = !ferror(script);
        whole = fclose(script) == 0 && whole;
    } else if (copy >= 0) {
        (void)close(copy);
    }
    if (whole && lseek(file, 0, SEEK_SET) == 0) return file;
    if (file >= 0) (void)close(file);
    return -1;
}

/* --- gnuplot ---------------------------------------------------------------------------------- */

/* Writes a complete picture. gnuplot returns 0 even if it ran out of memory. */
static tandem_status write_svg_file(int picture, const char *path, tandem_error *error)
{
    static const char end[] = "</svg>";
    tandem_status status = TANDEM_OK;
    tandem_file file = {0};
    const off_t bytes = lseek(picture, 0, SEEK_END);
    const char *const text =
        bytes > 0 ? mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, picture, 0) : MAP_FAILED;
    if (text == MAP_FAILED || !memmem(text, (size_t)bytes, end, sizeof end - 1))
        status = tandem_error_set(error, TANDEM_IO, "gnuplot did not complete '%s'", path);
    if (status == TANDEM_OK) status = tandem_file_open(&file, path, error);
    if (status == TANDEM_OK) {
        (void)fwrite(text, 1, (size_t)bytes, file.stream);
        status = tandem_file_finish(&file, error); /* reports write errors */
    }
    if (text != MAP_FAILED) (void)munmap((void *)(uintptr_t)text, (size_t)bytes);
    return status;
}

/* The exit code of gnuplot, or −1 if it could not start. */
static int run_gnuplot(int script, int picture)
{
    char *const argument[] = {(char[]){"gnuplot"}, NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    int how = 0;
    if (posix_spawn_file_actions_init(&actions) != 0) return -1;
    const int started = posix_spawn_file_actions_adddup2(&actions, script, STDIN_FILENO) == 0 &&
                        posix_spawn_file_actions_adddup2(&actions, picture, STDOUT_FILENO) == 0 &&
                        posix_spawnp(&child, argument[0], &actions, NULL, argument, environ) == 0;
    (void)posix_spawn_file_actions_destroy(&actions);
    if (!started) return -1;
    while (waitpid(child, &how, 0) < 0)
        if (errno != EINTR) return 1;
    return WIFEXITED(how) ? WEXITSTATUS(how) : 1;
}

tandem_status allocate_svg(const tandem_pareto_front *pareto, const allocate_context *a, const char *path,
                           tandem_error *error)
{
    const int script = make_gnuplot_script(pareto, a);
    const int picture = script < 0 ? -1 : memfd_create("picture", MFD_CLOEXEC);
    tandem_status status = TANDEM_OK;
    if (picture < 0) status = tandem_no_memory(error, "for a gnuplot script and its picture");
    const int code = status == TANDEM_OK ? run_gnuplot(script, picture) : 0;
    if (code == -1 || code == 127)
        status = tandem_error_set(
            error, TANDEM_MISSING,
            "--svg needs gnuplot, which is not installed. Run `apt-get install gnuplot-nox`");
    else if (code != 0)
        status = tandem_error_set(error, TANDEM_IO, "gnuplot could not draw '%s': exit code %d", path, code);
    else if (status == TANDEM_OK)
        status = write_svg_file(picture, path, error);
    if (picture >= 0) (void)close(picture);
    if (script >= 0) (void)close(script);
    return status;
}
