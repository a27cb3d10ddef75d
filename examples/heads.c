/* cc -O2 heads.c -lm */
/* Heads: multi-head attention with its projections, grouped and multi-query heads, and what the causal masks
   look like. Heatmaps go to the terminal and, as SVG, into the directory given as the first argument (the
   current one without); the heads as lines between queries and keys, too. */
#define ATTN_IMPLEMENTATION
#include "../attn.h"
#define ATTN_HEATMAP_HTML_IMPLEMENTATION
#include "web/attn_heatmap_html.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static attn_error err; /* of the latest call: which field broke which rule */
static int failures;
static const char *directory = ".";

static void check(int ok, const char *what) {
    if (ok) return;
    printf("WRONG: %s\n", what);
    failures++;
}

static void must(attn_status status) {
    char text[160];
    if (status == ATTN_OK) return;
    attn_error_string(&err, text, sizeof text);
    printf("attn.h refused: %s\n", text);
    exit(1);
}

static void fill(float *x, int n) { /* -1 .. 1, the same on every machine */
    static uint64_t state = 1;
    for (int i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)((double)(state >> 40) / 8388608.0 - 1);
    }
}

static int put(void *file, const char *text, size_t n) { return fwrite(text, 1, n, (FILE *)file) != n; }

typedef attn_status (*picture)(const attn_heatmap *, attn_writer, attn_error *);
static void draw_file(const attn_heatmap *map, picture draw_as, const char *name) {
    char path[1024];
    attn_writer writer = {put, NULL};
    snprintf(path, sizeof path, "%s/heads_%s.svg", directory, name);
    FILE *file = fopen(path, "wb");
    if (file) {
        writer.user = file;
        must(draw_as(map, writer, &err));
        printf("written: %s\n\n", path);
    }
    check(file && fclose(file) == 0, path);
}
static void draw(attn_heatmap map, const char *name) {
    attn_writer writer = {put, stdout};
    map.x_label = "Keys";
    map.y_label = "Queries";
    map.terminal = getenv("COLORTERM") ? ATTN_TERMINAL_TRUECOLOR : ATTN_TERMINAL_ASCII;
    must(attn_heatmap_ansi(&map, writer, &err));
    draw_file(&map, attn_heatmap_svg, name);
}

/* ---- multi-head attention: 2 sentences, 4 queries, 6 keys (3 and 2 of them valid), 5 heads of 4 numbers */
enum { B = 2, SQ = 4, SK = 6, H = 5, D = 4, E = H * D };

/* row [E] = w [E,E] x [E] in double */
static void project(double *row, const float *w, const float *x) {
    for (int o = 0; o < E; o++) {
        row[o] = 0;
        for (int i = 0; i < E; i++) row[o] += (double)w[o * E + i] * x[i];
    }
}

/* What one query of one sentence must give, by the formula: project, attend in every head, project. */
static void reference(double *result, const float *const w[4], const float *query, const float *key, int length) {
    double q[E], k[SK][E], v[SK][E];
    float heads[E];
    project(q, w[0], query);
    for (int j = 0; j < length; j++) {
        project(k[j], w[1], key + j * E);
        project(v[j], w[2], key + j * E);
    }
    for (int h = 0; h < H; h++) {
        double sum = 0, mix[D] = {0};
        for (int j = 0; j < length; j++) {
            double score = 0;
            for (int c = h * D; c < h * D + D; c++) score += q[c] * k[j][c];
            score = exp(score / sqrt((double)D));
            sum += score;
            for (int c = 0; c < D; c++) mix[c] += score * v[j][h * D + c];
        }
        for (int c = 0; c < D; c++) heads[h * D + c] = (float)(mix[c] / sum);
    }
    project(result, w[3], heads);
}

static void multi_head(void) {
    static float query[B * SQ * E], key[B * SK * E], out[B * SQ * E], weights[B * H * SQ * SK];
    static float w_query[E * E], w_key[E * E], w_value[E * E], w_result[E * E];
    static const int32_t lengths[B] = {3, 2};
    static const char *const titles[B * H] = {"sentence 0, head 0", "head 1", "head 2", "head 3", "head 4",
                                              "sentence 1, head 0", "head 1", "head 2", "head 3", "head 4"};
    const float *const w[4] = {w_query, w_key, w_value, w_result};
    attn_desc attention = {0}; /* what every head does */
    attn_mha_desc d = {0};     /* the projections around it */
    static uint8_t mask[B * H * SQ * SK];
    attn_heatmap map;
    fill(query, B * SQ * E);
    fill(key, B * SK * E);
    fill(w_query, E * E);
    fill(w_key, E * E);
    fill(w_value, E * E);
    fill(w_result, E * E);

    attention.key_lengths = attn_view_i32(lengths, 1, B, 0, 0, 0);
    attention.weights = attn_out_bhsd(weights, B, H, SQ, SK);
    d.query = attn_view_f32(query, 3, B, SQ, E, 0);
    d.key = attn_view_f32(key, 3, B, SK, E, 0); /* value absent: the keys again */
    d.w_query = attn_view_f32(w_query, 2, E, E, 0, 0);
    d.w_key = attn_view_f32(w_key, 2, E, E, 0, 0);
    d.w_value = attn_view_f32(w_value, 2, E, E, 0, 0);
    d.w_result = attn_view_f32(w_result, 2, E, E, 0, 0);
    d.out = attn_out_f32(out, 3, B, SQ, E, 0);
    d.heads = H;
    d.attention = &attention;
    must(attn_mha(&d, &err));

    for (int r = 0; r < B * SQ; r++) {
        double want[E], most = 0;
        reference(want, w, query + r * E, key + r / SQ * SK * E, lengths[r / SQ]);
        for (int c = 0; c < E; c++)
            if (most == most && !(fabs(out[r * E + c] - want[c]) <= most)) most = fabs(out[r * E + c] - want[c]);
        check(most <= 1e-4, "multi-head attention is not what the formula gives");
    }
    printf("Multi-head attention: query [%d,%d,%d], key [%d,%d,%d], %d heads, valid keys 3 and 2\n", B, SQ, E, B, SK, E,
           H);
    memset(&map, 0, sizeof map);
    map.values = attn_view_f32(weights, 4, B, H, SQ, SK); /* as they are: B rows of H panels */
    must(attn_mask(attn_out_u8(mask, 4, B, H, SQ, SK), &attention, &err));
    map.mask = attn_view_u8(mask, 4, B, H, SQ, SK); /* what lies beyond a sentence is hatched */
    map.panel_titles = titles;
    draw(map, "multi_head");
    draw_file(&map, attn_heatmap_lines_svg, "lines");
}

/* ---- grouped heads: query head h reads key head h / (4 / heads_kv). The bits are those of copied heads. */
static void grouped(int heads_kv) {
    float q[4 * 5 * 8], k[4 * 7 * 8], copies[4 * 7 * 8], out[4 * 5 * 8], want[4 * 5 * 8];
    attn_desc d = {0};
    fill(q, 4 * 5 * 8);
    fill(k, heads_kv * 7 * 8);
    for (int h = 0; h < 4; h++) memcpy(copies + h * 56, k + h / (4 / heads_kv) * 56, 56 * sizeof(float));
    d.q = attn_view_bhsd(q, 1, 4, 5, 8);
    d.k = d.v = attn_view_bhsd(k, 1, heads_kv, 7, 8);
    d.out = attn_out_bhsd(out, 1, 4, 5, 8);
    must(attn_forward(&d, &err));
    d.k = d.v = attn_view_bhsd(copies, 1, 4, 7, 8);
    d.out = attn_out_bhsd(want, 1, 4, 5, 8);
    must(attn_forward(&d, &err));
    printf("4 query heads on %d key head%s: the bits of 4 copied key heads\n", heads_kv, heads_kv == 1 ? "" : "s");
    check(memcmp(out, want, sizeof out) == 0, "grouped heads differ from copied ones");
}

/* ---- masks: 5 queries, 8 keys. No data is needed to draw what a descriptor allows. */
typedef int (*allowed_fn)(int i, int j);
static int top_left(int i, int j) { return j <= i; }
static int bottom_right(int i, int j) { return j <= i + 8 - 5; }
static int window(int i, int j) { return j >= i + 3 - 2 && j <= i + 3; }
static int valid(int i, int j) { return j <= i + 6 - 5 && j < 6; }

static void mask(const attn_desc *d, allowed_fn allowed, const char *name, const char *title) {
    uint8_t data[5 * 8];
    attn_heatmap map = {0};
    must(attn_mask(attn_out_u8(data, 4, 1, 1, 5, 8), d, &err));
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 8; j++) check(data[i * 8 + j] == allowed(i, j), title);
    map.values = attn_view_u8(NULL, 4, 1, 1, 5, 8);
    map.mask_of = d;
    map.title = title;
    map.colormap = ATTN_COLORMAP_GREY;
    map.no_colorbar = 1;
    draw(map, name);
}

static void masks(void) {
    static const int32_t key_length[1] = {6};
    attn_desc d = {0};
    d.causal = 1;
    d.align = ATTN_ALIGN_TOP_LEFT;
    mask(&d, top_left, "causal_top_left", "Causal, top-left");
    d.align = ATTN_ALIGN_BOTTOM_RIGHT;
    mask(&d, bottom_right, "causal_bottom_right", "Causal, bottom-right");
    d.window = 1;
    d.window_left = 2;
    mask(&d, window, "causal_window", "Causal, window of 2");
    d.window = d.window_left = 0;
    d.key_lengths = attn_view_i32(key_length, 1, 1, 0, 0, 0);
    mask(&d, valid, "causal_lengths", "Causal, 6 valid keys");
}

int main(int argc, char **argv) {
    if (argc > 1) directory = argv[1];
    multi_head();
    grouped(4);
    grouped(2);
    grouped(1);
    printf("\n");
    masks();
    if (failures) printf("%d wrong\n", failures);
    else printf("heads and masks are what the formulas give\n");
    return failures || fflush(stdout) || ferror(stdout); /* an output that is lost fails, too */
}
