/* graph_work.h: `tandem graph work MODEL`. */
#pragma once

#include "cli/cli.h"

/* What a training step of the model computes, moves and launches on a GPU, and how long that
 * takes at the fixed rates of docs/cuda.md. Returns the exit code. */
int graph_print_work(const cli_options *options, const tandem_graph *graph);
