/* page.c: the page: one part for each model, and in it the sections that its files have something for. */
#include "report/page.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "report/section.h"

#include "page_css.h"
#include "page_js.h"

static const report_section *const sections[] = {
    &report_verdict,  &report_cluster,   &report_timeline,   &report_precision_map,
    &report_tradeoff, &report_memory,    &report_profile,    &report_sensitivity,
    &report_training, &report_straggler, &report_provenance,
};
enum { N_SECTION = sizeof sections / sizeof *sections };

typedef struct drawn_section {
    char *html;
    size_t n;
} drawn_section;

/* --- Parts ---------------------------------------------------------------------------------------------- */

/* The models, in the order of their files; the files that name none belong to the only model, if there is
 * one. */
typedef struct model_list {
    const char **name; /* [page->n + 1] */
    int n;
} model_list;

static int list_page_models(model_list *models, const report_page *page)
{
    int has_nameless = 0;
    models->name = calloc((size_t)page->n + 1, sizeof *models->name);
    models->n = 0;
    if (!models->name) return 0;
    for (int k = 0; k < page->n; k++) {
        int known = 0;
        for (int m = 0; m < models->n && !known; m++)
            known = strcmp(models->name[m], page->item[k].model) == 0;
        has_nameless |= !page->item[k].model[0];
        if (!known && page->item[k].model[0]) models->name[models->n++] = page->item[k].model;
    }
    if (has_nameless && models->n != 1) models->name[models->n++] = "";
    return 1;
}

static int open_part(report_part *part, const report_page *page, const model_list *models, int number)
{
    *part = (report_part){.page = page, .model = models->name[number], .number = number};
    part->item = calloc((size_t)page->n + 1, sizeof(const report_item *));
    for (int k = 0; part->item && k < page->n; k++)
        if (strcmp(page->item[k].model, part->model) == 0 || (!page->item[k].model[0] && models->n == 1))
            part->item[part->n++] = &page->item[k];
    return part->item != NULL;
}

/* --- One part ------------------------------------------------------------------------------------------- */

static int draw_section(drawn_section *drawn, const report_section *section, const report_part *part)
{
    FILE *const out = open_memstream(&drawn->html, &drawn->n);
    if (!out) return 0;
    const int whole = section->draw(out, part) && !ferror(out);
    return fclose(out) == 0 && whole;
}

static void put_contents(FILE *out, const drawn_section *drawn, const report_part *part)
{
    report_put(out, "<nav aria-label=\"Sections of %s\"><ul>", part->model[0] ? part->model : "the page");
    for (int s = 0; s < N_SECTION; s++)
        if (drawn[s].n)
            report_put(out, "<li><a href=\"#p%d-%s\">%s</a></li>", part->number, sections[s]->id,
                       sections[s]->title);
    report_put(out, "</ul></nav>\n");
}

/* What the page could show, and how. */
static void put_absent(FILE *out, const drawn_section *drawn)
{
    int n = 0;
    for (int s = 0; s < N_SECTION; s++) {
        if (drawn[s].n || !sections[s]->makes_it) continue;
        if (!n++)
            report_put(out,
                       "<section class=\"absent\"><h3>Not on this page</h3><p>The files given hold nothing "
                       "for these sections. The commands make it.</p><dl>");
        report_put(out, "<dt>%s</dt><dd><code>%s</code></dd>", sections[s]->title, sections[s]->makes_it);
    }
    if (n) report_put(out, "</dl></section>\n");
}

static const char *made_host(const tandem_made *made) { return made->host; }
static const char *made_version(const tandem_made *made) { return made->version; }

/* Of the files that say it. */
static int count_distinct(const report_part *part, const char *(*of)(const tandem_made *origin))
{
    int n = 0;
    for (int k = 0; k < part->n; k++) {
        int is_new = of(&part->item[k]->made)[0] != '\0';
        for (int m = 0; m < k && is_new; m++)
            is_new = strcmp(of(&part->item[m]->made), of(&part->item[k]->made)) != 0;
        n += is_new;
    }
    return n;
}

/* Files of one model may still come from runs that cannot be compared. */
static void put_differences(FILE *out, const report_part *part)
{
    const int n_host = count_distinct(part, made_host), n_version = count_distinct(part, made_version);
    if (n_host > 1)
        report_put(out,
                   "<p class=\"warn\">These files were made on %d machines: their times differ for that "
                   "reason alone. Provenance names them.</p>",
                   n_host);
    if (n_version > 1)
        report_put(out,
                   "<p class=\"warn\">These files were made by %d versions of tandem. Provenance names "
                   "them.</p>",
                   n_version);
}

static void put_part(FILE *out, const drawn_section *drawn, const report_part *part, int n_part)
{
    if (n_part > 1)
        report_put(out, "<article><h2 class=\"model\">%s</h2>\n",
                   part->model[0] ? part->model : "Files that name no model");
    put_differences(out, part);
    put_contents(out, drawn, part);
    for (int s = 0; s < N_SECTION; s++)
        if (drawn[s].n) {
            report_put(out, "<section id=\"p%d-%s\"><h2>%s</h2>\n", part->number, sections[s]->id,
                       sections[s]->title);
            (void)fwrite(drawn[s].html, 1, drawn[s].n, out);
            report_put(out, "</section>\n");
        }
    put_absent(out, drawn);
    if (n_part > 1) report_put(out, "</article>\n");
}

/* *n_drawn counts sections beside the last one, which lists the files. */
static int draw_part(FILE *out, const report_part *part, int n_part, int *n_drawn)
{
    drawn_section drawn[N_SECTION] = {{0}};
    int whole = 1;
    for (int s = 0; s < N_SECTION && whole; s++) {
        whole = draw_section(&drawn[s], sections[s], part);
        *n_drawn += drawn[s].n > 0 && s < N_SECTION - 1;
    }
    if (whole) put_part(out, drawn, part, n_part);
    for (int s = 0; s < N_SECTION; s++) free(drawn[s].html);
    return whole;
}

/* --- The page ------------------------------------------------------------------------------------------- */

static void put_head(FILE *out, const model_list *models)
{
    const char *const title = models->n == 1 && models->name[0][0] ? models->name[0] : "tandem";
    report_put(out,
               "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
               "content=\"width=device-width,initial-scale=1\"><meta http-equiv=\"Content-Security-Policy\" "
               "content=\"default-src 'none';style-src 'unsafe-inline';script-src 'unsafe-inline';img-src "
               "data:\"><link rel=\"icon\" href=\"data:,\"><title>%s \xe2\x80\x93 tandem</title>\n<style>\n",
               title);
    (void)fputs(page_css, out);
    report_put(
        out,
        "</style></head>\n<body><a class=\"skip\" href=\"#main\">Skip to the verdict</a><svg width=\"0\" "
        "height=\"0\" aria-hidden=\"true\"><defs><pattern id=\"hatch\" width=\"6\" height=\"6\" "
        "patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><path d=\"M0 0V6\" "
        "class=\"hatch\"/></pattern></defs></svg>\n<header><p class=\"brand\">tandem report</p><h1>%s</h1>",
        title);
    if (models->n > 1)
        report_put(out,
                   "<p class=\"warn\">These files belong to %d models. Each has a part of its own; no figure "
                   "mixes them.</p>",
                   models->n);
    report_put(out, "</header>\n<main id=\"main\">\n");
}

static void put_tail(FILE *out)
{
    report_put(
        out,
        "</main>\n<footer><p>Written by tandem %s. Times and sizes carry their units; a dash is a value "
        "that is not known.</p></footer>\n<script>\n",
        TANDEM_VERSION);
    (void)fputs(page_js, out);
    report_put(out, "</script></body></html>\n");
}

/* 0 without memory. */
static int draw_page(FILE *out, const report_page *page, int *n_drawn)
{
    model_list models;
    int whole = list_page_models(&models, page);
    if (whole) put_head(out, &models);
    for (int m = 0; m < models.n && whole; m++) {
        report_part part;
        whole = open_part(&part, page, &models, m) && draw_part(out, &part, models.n, n_drawn);
        free(part.item);
    }
    if (whole) put_tail(out);
    free(models.name);
    return whole && !ferror(out);
}

tandem_status report_page_draw(char **html, size_t *n, const report_page *page, tandem_error *error)
{
    char *text = NULL;
    size_t n_text = 0;
    int n_drawn = 0;
    FILE *const out = open_memstream(&text, &n_text);
    int whole = out && draw_page(out, page, &n_drawn);
    if (out) whole = fclose(out) == 0 && whole;
    tandem_status status = TANDEM_OK;
    if (!whole)
        status = tandem_no_memory(error, "for a page");
    else if (n_drawn == 0)
        status = tandem_error_set(error, TANDEM_MISSING,
                                  "nothing to show: the files hold no plan, trace, log or result. Make one, "
                                  "e.g. `tandem allocate --model resnet50 --cluster \"8*v100@8 + 8*t4@8 "
                                  "net=100Gbit/s,5us\" --predict -o plan.json`");
    if (status == TANDEM_OK) {
        *html = text;
        *n = n_text;
    } else {
        free(text);
    }
    return status;
}

tandem_status report_page_write(const report_page *page, const char *path, tandem_error *error)
{
    char *html = NULL;
    size_t n = 0;
    tandem_file file = {0};
    tandem_status status = report_page_draw(&html, &n, page, error);
    if (status == TANDEM_OK) status = tandem_file_open(&file, path, error);
    if (status == TANDEM_OK) {
        (void)fwrite(html, 1, n, file.stream);
        status = tandem_file_finish(&file, error);
    }
    free(html);
    return status;
}
