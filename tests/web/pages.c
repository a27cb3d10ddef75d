/* pages.c - the pictures that heatmap.js looks at in a browser: pages DIRECTORY. The values are
   (37 i mod 101 - 50) / 64, which every storage type but u8 holds exactly; there is a NaN and an infinity in the last
   panel. */
#define ATTN_IMPLEMENTATION
#include "../../attn.h"
#define ATTN_HEATMAP_HTML_IMPLEMENTATION
#include "../../examples/web/attn_heatmap_html.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, HEADS = 3, ROWS = 6, COLUMNS = 8, CELLS = BATCH * HEADS * ROWS * COLUMNS, LARGE = 4096 };
static const char *directory;
static attn_error err;

static int put(void *file, const char *text, size_t n) { return fwrite(text, 1, n, (FILE *)file) != n; }

typedef attn_status (*picture)(const attn_heatmap *, attn_writer, attn_error *);
static void write_as(picture draw, const attn_heatmap *map, const char *name) {
    char path[1024], text[200] = "";
    attn_writer writer = {put, NULL};
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    writer.user = file;
    attn_status status = file ? draw(map, writer, &err) : ATTN_ERR_WRITE;
    if ((file && fclose(file) != 0) || status != ATTN_OK) {
        attn_error_string(&err, text, sizeof text);
        fprintf(stderr, "pages: %s: %s\n", path, text);
        exit(1);
    }
}

/* The same values in each storage type, with labels that would be markup if they were not escaped. */
static void small(void) {
    static const char *const rows[ROWS] = {
        "<img src=x onerror=alert(1)>", "</script>", "\"quoted\" & 'quoted'", "\303\251t\303\251", "", "  two blanks"};
    static const char *const columns[COLUMNS] = {
        "</ul><b>", "a", "b", "a long label, which stands slanted", "\344\270\255\346\226\207", "d", "e", "f"};
    static const char *const names[] = {"f32.html", "f16.html", "bf16.html"};
    static float x[CELLS];
    static uint16_t half[CELLS];
    static uint8_t bytes[CELLS];
    attn_heatmap map = {0};
    for (int i = 0; i < CELLS; i++) x[i] = (float)(37 * i % 101 - 50) / 64, bytes[i] = (uint8_t)(37 * i % 101);
    x[CELLS - 1] = NAN;
    x[CELLS - 2] = INFINITY;
    map.title = "</title><script>document.title = 'wrong'</script>";
    map.x_label = "keys";
    map.y_label = "queries";
    map.x_ticks = columns;
    map.y_ticks = rows;
    map.colormap = ATTN_COLORMAP_VIRIDIS;
    attn_view values = attn_view_f32(x, 4, BATCH, HEADS, ROWS, COLUMNS);
    for (int type = 0; type < 3; type++) {
        map.values = attn_view_typed((attn_type)type, type ? (void *)half : x, 4, BATCH, HEADS, ROWS, COLUMNS);
        attn_out typed = attn_out_typed((attn_type)type, half, 4, BATCH, HEADS, ROWS, COLUMNS);
        if (type && attn_convert(values, typed, &err) != ATTN_OK) exit(1);
        write_as(attn_heatmap_html, &map, names[type]);
    }
    map.values = attn_view_u8(bytes, 4, BATCH, HEADS, ROWS, COLUMNS);
    write_as(attn_heatmap_html, &map, "u8.html");
    map.values = attn_view_slice(attn_view_slice(values, 0, 0, 1), 1, 0, 1);
    map.values.size[0] = map.values.size[1] = 1;
    map.range_set = 1; /* that of all panels */
    map.range_min = -50.0f / 64;
    map.range_max = 50.0f / 64;
    map.cell_titles = 1;
    map.numbers = 1;
    write_as(attn_heatmap_svg, &map, "titles.svg");
    attn_heatmap cells = map;
    cells.no_colorbar = 1;
    cells.width = COLUMNS;
    cells.height = ROWS;
    write_as(attn_heatmap_ppm, &cells, "f32.ppm");
    map.range_set = 0; /* below and above 0 */
    cells.colormap = map.colormap = ATTN_COLORMAP_DIVERGING;
    write_as(attn_heatmap_ppm, &cells, "signed.ppm");
    write_as(attn_heatmap_html, &map, "signed.html");
    write_as(attn_heatmap_lines_svg, &map, "lines.svg");
}

/* A causal mask: what lies after it is hatched, unlike the zeros before it; what it holds is not told. */
static void masked(void) {
    static float x[ROWS * COLUMNS];
    static uint8_t mask[ROWS * COLUMNS];
    attn_heatmap map = {0};
    for (int i = 0; i < ROWS * COLUMNS; i++)
        x[i] = i % COLUMNS < i / COLUMNS ? 0 : i % COLUMNS > i / COLUMNS ? 99 : 1, mask[i] = x[i] < 2;
    map.values = attn_view_f32(x, 2, ROWS, COLUMNS, 0, 0);
    map.mask = attn_view_u8(mask, 2, ROWS, COLUMNS, 0, 0);
    write_as(attn_heatmap_html, &map, "masked.html");
    write_as(attn_heatmap_svg, &map, "masked.svg");
}

/* 4096 x 4096: zeros, but for a diagonal and one column, each one cell wide. */
static void large(void) {
    float *x = (float *)calloc((size_t)LARGE * LARGE, sizeof *x);
    attn_heatmap map = {0};
    if (!x) exit(1);
    for (size_t i = 0; i < LARGE; i++) x[i * LARGE + i] = 1, x[i * LARGE + 1000] = 0.5f;
    map.values = attn_view_f32(x, 2, LARGE, LARGE, 0, 0);
    write_as(attn_heatmap_html, &map, "large.html");
    free(x);
}

/* More words than a window is high, with long names; a title of 900 letters. */
static void many_words(void) {
    enum { N = 40 };
    static float x[N * N];
    static char names[N][32], title[901];
    const char *words[N];
    attn_heatmap map = {0};
    for (int i = 0; i < N * N; i++) x[i] = (float)(37 * i % 101) / 101;
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "word%d-rather-long-name", i);
        words[i] = names[i];
    }
    map.values = attn_view_f32(x, 2, N, N, 0, 0);
    map.x_ticks = map.y_ticks = words;
    write_as(attn_heatmap_html, &map, "words.html");
    memset(title, 'q', sizeof title - 1);
    for (int i = 5; i < 900; i += 6) title[i] = ' ';
    map.y_label = title;
    write_as(attn_heatmap_html, &map, "long.html");
}

/* Letters wider than most, in each place where the lines have text; a name of a panel beside short words. */
static void wide_letters(void) {
    static const char *const words[] = {"the", "cat"}, *const wide[] = {"MWMW@@%%", "\320\250\320\251\320\226 W"};
    static const char *const names[] = {"THE NAME OF A PANEL IN CAPITALS, WHICH IS LONG"};
    static const float x[4] = {1, 0.5f, 0.25f, 1};
    attn_heatmap map = {0};
    map.values = attn_view_f32(x, 2, 2, 2, 0, 0);
    map.x_ticks = map.y_ticks = words;
    map.y_label = "QUERY TOKENS";
    map.title = "WWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWW";
    write_as(attn_heatmap_lines_svg, &map, "wide0.svg");
    map.x_ticks = wide;
    map.x_label = "mmmmmmmmmmmmmmmmmmm";
    map.panel_titles = names;
    map.title = NULL;
    write_as(attn_heatmap_lines_svg, &map, "wide1.svg");
    map.x_label = "A TITLE OF KEYS THAT IS CUT: W@MWW@MW";
    map.y_label = NULL;
    map.y_ticks = NULL;
    write_as(attn_heatmap_lines_svg, &map, "wide2.svg");
}

static void empty(void) {
    attn_heatmap map = {0};
    map.values = attn_view_f32(NULL, 3, 2, 0, 5, 0);
    write_as(attn_heatmap_html, &map, "empty.html");
}

int main(int argc, char **argv) {
    directory = argc > 1 ? argv[1] : ".";
    small();
    masked();
    large();
    many_words();
    wide_letters();
    empty();
    return 0;
}
