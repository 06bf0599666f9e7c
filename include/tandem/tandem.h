/* tandem.h: all that a program needs to make, read and compare plans. libtandem.so implements it.
 *
 * These headers are stable: names and meanings stay within a major version.
 *   status.h   every function's result, and its error text
 *   graph.h    models as graphs of operators
 *   cluster.h  devices, and clusters of them
 *   plan.h     plans and their files
 *   record.h   graphs that another framework recorded; record_costs.h: what their calls took
 *   provenance.h  where the times of a step come from
 *   planner.h  from a profile store to a plan: begin here
 * kernels.h (libtandem_kernels.so) and cuda_kernels.h (libtandem_cuda_kernels.so) are stable, too, and do not
 * need libtandem.so. Headers in advanced/ show how tandem works inside. They may change with every
 * version. */
#ifndef TANDEM_TANDEM_H
#define TANDEM_TANDEM_H

#include "tandem/advice.h"
#include "tandem/cluster.h"
#include "tandem/graph.h"
#include "tandem/plan.h"
#include "tandem/planner.h"
#include "tandem/provenance.h"
#include "tandem/record.h"
#include "tandem/record_costs.h"
#include "tandem/status.h"

#endif
