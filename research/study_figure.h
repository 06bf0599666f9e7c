/* study_figure.h: the figure of a part, as SVG. */
#ifndef TANDEM_RESEARCH_FIGURE_H
#define TANDEM_RESEARCH_FIGURE_H

#include "research/study.h"

/* Draws the report's figure, which has rows. The same rows give the same bytes. */
void study_figure_write(FILE *svg, const study_report *report);

#endif
