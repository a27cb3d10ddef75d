/* chapter.c - what page.html shows: the textbook's chapter on attention, computed by attn.h in the browser.
   `make web` compiles it to WebAssembly and puts it into the page. A function named by PAGE takes what the controls of
   its section say and leaves pictures, as SVG, and a sentence in `text`. The implementation of attn.h is in
   tests/golden.c, so that the page can compute the golden hash as well. */
#include "../../attn.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#ifdef __wasm__
#define PAGE(name) __attribute__((export_name(#name))) name
#else
#define PAGE(name) name
#endif

int golden_main(int argc, char **argv);
const char *PAGE(begin)(void);
void PAGE(fit)(double width);
void PAGE(pooling)(double kernel, double width);
void PAGE(steps)(double first, double second);
void PAGE(softmax)(double first, double second, double temperature);
void PAGE(scores)(double size, double temperature);
void PAGE(masks)(double causal, double left, double right, double length);
void PAGE(sequences)(double first, double second, double left, double padding);
const char *PAGE(kernels)(void);
int PAGE(forward)(int simd);
int PAGE(golden)(int simd);

/* ---- text for the page */
static char text[1 << 20];
static attn_buffer buffer = {text, sizeof text, 0};
static attn_error err;

static void say(const char *format, ...) {
    char line[400];
    va_list args;
    attn_writer writer = {NULL, NULL};
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    writer = attn_buffer_writer(&buffer);
    writer.write(writer.user, line, strlen(line));
}

static int good(attn_status status) {
    char reason[200];
    if (status == ATTN_OK) return 1;
    attn_error_string(&err, reason, sizeof reason);
    say("<p>attn.h refused: %s</p>", reason);
    return 0;
}

static void begin_text(void) { buffer.length = 0; }

/* On a screen of so few pixels, 0: of more, pictures are as wide as it, and panels stand below each other. */
static int narrow;
void fit(double width) { narrow = (int)width; }

static attn_view below_each_other(attn_view v) { /* [panels, rows, columns] as [panels, 1, rows, columns] */
    if (v.rank < 3) return v;
    for (int axis = 3; v.rank == 3 && axis > 1; axis--)
        v.size[axis] = v.size[axis - 1], v.stride[axis] = v.stride[axis - 1];
    if (v.rank == 4) v.size[0] *= v.size[1], v.stride[0] = v.stride[1]; /* rows of panels become one column */
    v.size[1] = 1;
    v.rank = 4;
    return v;
}
static void draw(const attn_heatmap *wide) {
    attn_heatmap map = *wide;
    if (narrow) {
        map.values = below_each_other(map.values);
        map.mask = below_each_other(map.mask);
        map.width = narrow;
        map.height = 0;
    }
    (void)good(attn_heatmap_svg(&map, attn_buffer_writer(&buffer), &err));
}

static attn_heatmap heatmap(attn_view values) {
    attn_heatmap map = {0};
    map.values = values;
    map.x_label = "keys";
    map.y_label = "queries";
    map.range_set = 1;
    map.range_max = 1;
    map.cell_titles = 1;
    map.colormap = ATTN_COLORMAP_VIRIDIS;
    return map;
}

/* How many keys of equal weight a row of weights is worth: e to its entropy, 1 where one key has all the weight. */
static double keys_worth(const float *weights, int keys) {
    double entropy = 0;
    for (int j = 0; j < keys; j++)
        if (weights[j] > 0) entropy -= (double)weights[j] * log((double)weights[j]);
    return exp(entropy);
}

/* ---- random numbers: the same on every machine */
static double uniform(void) {
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 40) / 16777216.0;
}
static float normal(void) { /* twelve uniform numbers have variance 1 */
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += uniform();
    return (float)sum;
}

/* ---- data, made once */
enum { POINTS = 40, PLACES = 61 };                /* pooling: measured, asked for */
enum { EXAMPLES = 2, ROWS = 4, KEYS = 10 };       /* softmax */
enum { QUERIES = 6, MOST = 128, HIDDEN = 16 };    /* scores */
enum { TOKENS = 24, TOKEN_SIZE = 16 };            /* masks */
enum { HEADS = 8, LENGTH = 256, HEAD_SIZE = 64 }; /* speed */
static float point_x[POINTS], point_y[POINTS], place[PLACES];
static float given[EXAMPLES * ROWS * KEYS], query[QUERIES * MOST], key[KEYS * MOST];
static float w_q[HIDDEN * MOST], w_k[HIDDEN * MOST], w_v[HIDDEN], token[2][TOKENS * TOKEN_SIZE];
static float much[3][HEADS * LENGTH * HEAD_SIZE], result[HEADS * LENGTH * HEAD_SIZE];

static double curve(double x) { return 2 * sin(x) + x; }
static void fill(float *x, int n, double factor) {
    for (int i = 0; i < n; i++) x[i] = (float)(factor * (double)normal());
}

const char *begin(void) {
    for (int i = 0; i < POINTS; i++) {
        point_x[i] = (float)(5 * (i + uniform()) / POINTS);
        point_y[i] = (float)(curve((double)point_x[i]) + 0.5 * (double)normal());
    }
    for (int i = 0; i < PLACES; i++) place[i] = (float)(5.0 * i / (PLACES - 1));
    fill(given, EXAMPLES * ROWS * KEYS, 1.5);
    fill(query, QUERIES * MOST, 1);
    fill(key, KEYS * MOST, 1);
    fill(w_q, HIDDEN * MOST, 1);
    fill(w_k, HIDDEN * MOST, 1);
    fill(w_v, HIDDEN, 1);
    for (int i = 0; i < 2; i++) fill(token[i], TOKENS * TOKEN_SIZE, 1);
    for (int i = 0; i < 3; i++) fill(much[i], HEADS * LENGTH * HEAD_SIZE, 1);
    return text;
}

/* ---- 1. attention pooling: a mean of values, weighted by how near their keys are */
static double across(double x) { return 20 + 64 * x; }
static double down(double y) { return 210 - 24 * (y + 1); }

static void plot(const float *y) {
    say("<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 360 240' width='360' height='240' fill='none' "
        "role='img' aria-label='measured points, the curve behind them and the result of attention pooling'>");
    for (int i = 0; i < POINTS; i++)
        say("<circle cx='%.1f' cy='%.1f' r='3.5' fill='currentColor' opacity='.45'/>", across((double)point_x[i]),
            down((double)point_y[i]));
    for (int which = 0; which < 2; which++) {
        say(which ? "<path class='result' stroke-width='3' d='" : "<path class='truth' stroke-dasharray='5 5' d='");
        for (int i = 0; i < PLACES; i++)
            say("%c%.1f %.1f", i ? 'L' : 'M', across((double)place[i]),
                down(which ? (double)y[i] : curve((double)place[i])));
        say("'/>");
    }
    say("</svg>");
}

void pooling(double kernel, double width) {
    static const int kernels[] = {ATTN_SCORE_GAUSSIAN, ATTN_SCORE_EPANECHNIKOV, ATTN_SCORE_TRIANGULAR,
                                  ATTN_SCORE_BOXCAR, ATTN_SCORE_CONSTANT};
    static float weights[PLACES * POINTS], y[PLACES];
    attn_desc d = {0};
    double error = 0;
    begin_text();
    d.q = attn_view_bhsd(place, 1, 1, PLACES, 1);
    d.k = attn_view_bhsd(point_x, 1, 1, POINTS, 1);
    d.v = attn_view_bhsd(point_y, 1, 1, POINTS, 1);
    d.out = attn_out_bhsd(y, 1, 1, PLACES, 1);
    d.weights = attn_out_bhsd(weights, 1, 1, PLACES, POINTS);
    d.score = kernels[(int)kernel];
    if (d.score != ATTN_SCORE_CONSTANT) d.sigma = (float)width;
    if (!good(attn_forward(&d, &err))) return;
    plot(y);
    attn_heatmap map = heatmap(attn_view_f32(weights, 2, PLACES, POINTS, 0, 0));
    map.range_set = 0;
    map.width = 340;
    map.height = 260;
    draw(&map);
    for (int i = 0; i < PLACES; i++) error += pow((double)y[i] - curve((double)place[i]), 2) / PLACES;
    say("<p>Mean squared distance from the curve: <b>%.3f</b></p>", error);
}

/* ---- 2. one query, step by step: a table whose cells tell how they were computed */
void steps(double first, double second) {
    enum { N = 4 };
    static const float keys[2 * N] = {1, 0, 0, 1, 1, 1, -1, 0.5f}, values[N] = {10, 20, 30, 40};
    const float q[2] = {(float)first, (float)second};
    float dot[N], scores[N], weights[N], out[1];
    double total = 0;
    attn_desc d = {0}, plain = {0};
    begin_text();
    d.q = attn_view_bhsd(q, 1, 1, 1, 2);
    d.k = attn_view_bhsd(keys, 1, 1, N, 2);
    d.v = attn_view_bhsd(values, 1, 1, N, 1);
    d.scores = attn_out_bhsd(scores, 1, 1, 1, N);
    d.weights = attn_out_bhsd(weights, 1, 1, 1, N);
    d.out = attn_out_bhsd(out, 1, 1, 1, 1);
    plain.score = ATTN_SCORE_DOT;
    if (!good(attn_scores(d.q, d.k, attn_out_bhsd(dot, 1, 1, 1, N), &plain, &err))) return;
    if (!good(attn_forward(&d, &err))) return;
    for (int j = 0; j < N; j++) total += exp((double)scores[j]);
    say("<table><tr><th>key<th>q&middot;k<th>score<th>weight<th>value<th>weight &times; value");
    for (int j = 0; j < N; j++) {
        const double x = (double)keys[2 * j], y = (double)keys[2 * j + 1], s = (double)scores[j];
        const double w = (double)weights[j], v = (double)values[j];
        say("<tr><th>(%g, %g)<td title='q&middot;k = %.1f &times; %g + %.1f &times; %g = %.2f'>%.2f", x, y, first, x,
            second, y, (double)dot[j], (double)dot[j]);
        say("<td title='scaled by the size 2: %.2f / &radic;2 = %.3f'>%.3f", (double)dot[j], s, s);
        say("<td title='softmax: e^%.3f / (sum of all four) = %.3f / %.3f = %.3f'>%.3f", s, exp(s), total, w, w);
        say("<td title='what this key stands for'>%g<td title='%.3f &times; %g = %.3f'>%.3f", v, w, v, w * v, w * v);
    }
    say("<tr><th colspan=3>result<td title='the weights add up to 1'>1<td><td title='the sum of this column: ");
    for (int j = 0; j < N; j++) say(j ? " + %.3f" : "%.3f", (double)(weights[j] * values[j]));
    say("'><b>%.3f</b></table>", (double)out[0]);
}

/* ---- 3. masked softmax */
void softmax(double first, double second, double temperature) {
    static float weights[EXAMPLES * ROWS * KEYS];
    static uint8_t mask[EXAMPLES * ROWS * KEYS];
    const int32_t lengths[EXAMPLES] = {(int32_t)first, (int32_t)second};
    char titles[EXAMPLES][40];
    const char *panels[EXAMPLES] = {titles[0], titles[1]};
    attn_desc d = {0};
    begin_text();
    d.score = ATTN_SCORE_GIVEN;
    d.given_scores = attn_view_bhsd(given, EXAMPLES, 1, ROWS, KEYS);
    d.scale = (float)(1 / temperature);
    d.key_lengths = attn_view_i32(lengths, 1, EXAMPLES, 0, 0, 0);
    d.weights = attn_out_bhsd(weights, EXAMPLES, 1, ROWS, KEYS);
    if (!good(attn_forward(&d, &err))) return;
    if (!good(attn_mask(attn_out_u8(mask, 4, EXAMPLES, 1, ROWS, KEYS), &d, &err))) return;
    attn_heatmap map = heatmap(attn_view_f32(weights, 3, EXAMPLES, ROWS, KEYS, 0));
    map.mask = attn_view_u8(mask, 3, EXAMPLES, ROWS, KEYS, 0);
    for (int i = 0; i < EXAMPLES; i++)
        snprintf(titles[i], sizeof titles[i], "%s: %d of %d keys", i ? "Second" : "First", (int)lengths[i], KEYS);
    map.panel_titles = panels;
    draw(&map);
    say("<p>The first row is worth <b>%.1f</b> keys of equal weight.</p>", first > 0 ? keys_worth(weights, KEYS) : 0.0);
}

/* ---- 4. scoring functions */
void scores(double size, double temperature) {
    static const int kinds[] = {ATTN_SCORE_DOT, ATTN_SCORE_SCALED_DOT, ATTN_SCORE_ADDITIVE};
    static const char *const titles[] = {"Dot product", "Scaled dot product", "Additive"};
    static float weights[3][QUERIES * KEYS];
    static float project_q[HIDDEN * MOST], project_k[HIDDEN * MOST]; /* w_q and w_k for vectors of this size */
    const int n = (int)size;
    begin_text();
    for (int i = 0; i < HIDDEN * n; i++) {
        project_q[i] = w_q[i / n * MOST + i % n] / sqrtf((float)n);
        project_k[i] = w_k[i / n * MOST + i % n] / sqrtf((float)n);
    }
    for (int kind = 0; kind < 3; kind++) {
        attn_desc d = {0};
        d.score = kinds[kind];
        d.q = attn_view_slice(attn_view_bhsd(query, 1, 1, QUERIES, MOST), 3, 0, n);
        d.k = attn_view_slice(attn_view_bhsd(key, 1, 1, KEYS, MOST), 3, 0, n);
        d.weights = attn_out_bhsd(weights[kind], 1, 1, QUERIES, KEYS);
        d.scale = (float)((d.score == ATTN_SCORE_SCALED_DOT ? 1 / sqrt(size) : 1) / temperature);
        if (d.score == ATTN_SCORE_ADDITIVE) {
            d.w_q = attn_view_f32(project_q, 2, HIDDEN, n, 0, 0);
            d.w_k = attn_view_f32(project_k, 2, HIDDEN, n, 0, 0);
            d.w_v = attn_view_f32(w_v, 1, HIDDEN, 0, 0, 0);
        }
        if (!good(attn_forward(&d, &err))) return;
    }
    attn_heatmap map = heatmap(attn_view_f32(weights[0], 3, 3, QUERIES, KEYS, 0));
    map.panel_titles = titles;
    draw(&map);
    say("<p>The first row is worth <b>%.1f</b>, <b>%.1f</b> and <b>%.1f</b> keys of equal weight.</p>",
        keys_worth(weights[0], KEYS), keys_worth(weights[1], KEYS), keys_worth(weights[2], KEYS));
}

/* ---- 5. masks: a sequence that attends to itself */
void masks(double causal, double left, double right, double length) {
    static float weights[TOKENS * TOKENS];
    static uint8_t mask[TOKENS * TOKENS];
    const int32_t lengths[1] = {(int32_t)length};
    attn_desc d = {0};
    int pairs = 0;
    begin_text();
    d.q = attn_view_bhsd(token[0], 1, 1, TOKENS, TOKEN_SIZE);
    d.k = attn_view_bhsd(token[1], 1, 1, TOKENS, TOKEN_SIZE);
    d.weights = attn_out_bhsd(weights, 1, 1, TOKENS, TOKENS);
    d.causal = causal != 0;
    d.window = left < TOKENS || right < TOKENS;
    if (d.window) d.window_left = left < TOKENS ? (int64_t)left : ATTN_UNBOUNDED;
    if (d.window) d.window_right = right < TOKENS ? (int64_t)right : ATTN_UNBOUNDED;
    d.key_lengths = attn_view_i32(lengths, 1, 1, 0, 0, 0);
    if (!good(attn_forward(&d, &err))) return;
    if (!good(attn_mask(attn_out_u8(mask, 4, 1, 1, TOKENS, TOKENS), &d, &err))) return;
    attn_heatmap map = heatmap(attn_view_u8(mask, 2, TOKENS, TOKENS, 0, 0));
    map.mask = map.values;
    map.no_colorbar = 1;
    map.title = "May attend";
    map.width = 370;
    draw(&map);
    map = heatmap(attn_view_f32(weights, 2, TOKENS, TOKENS, 0, 0));
    map.title = "Weights; hatched: masked";
    map.mask = attn_view_u8(mask, 2, TOKENS, TOKENS, 0, 0);
    map.width = 448; /* with the colour bar cells of the same size */
    map.range_max = 0.5f;
    draw(&map);
    for (int i = 0; i < TOKENS * TOKENS; i++) pairs += weights[i] > 0;
    say("<p><b>%d</b> of %d pairs have a weight.</p>", pairs, TOKENS * TOKENS);
}

/* ---- 6. sequences in one array, and a window over one of them: what is hatched is never computed */
void sequences(double first, double second, double left, double padding) {
    static const char *const titles[4] = {"Three documents", "A window", "Padding first", "A shared prefix"};
    static uint8_t pictures[4][TOKENS * TOKENS];
    const int32_t lengths[3] = {(int32_t)first, (int32_t)second, TOKENS - (int32_t)first - (int32_t)second};
    const int32_t starts[3] = {0, lengths[0], lengths[0] + lengths[1]}, after[1] = {(int32_t)padding};
    const int32_t prefix_starts[2] = {0, 0}, prefix_lengths[2] = {lengths[0], lengths[0]};
    attn_desc d[4] = {{0}};
    int pairs = 0;
    begin_text();
    for (int i = 0; i < 3; i++) {
        d[i].causal = 1;
        d[i].window = left < TOKENS;
        if (d[i].window) d[i].window_left = (int64_t)left, d[i].window_right = ATTN_UNBOUNDED;
    }
    d[0].query_starts = d[0].key_starts = attn_view_i32(starts, 1, 3, 0, 0, 0);
    d[0].query_lengths = d[0].key_lengths = attn_view_i32(lengths, 1, 3, 0, 0, 0);
    d[2].query_starts = d[2].key_starts = attn_view_i32(after, 1, 1, 0, 0, 0);
    d[3].query_starts = attn_view_i32(starts + 1, 1, 2, 0, 0, 0);
    d[3].query_lengths = attn_view_i32(lengths + 1, 1, 2, 0, 0, 0);
    d[3].key_starts = attn_view_i32(prefix_starts, 1, 2, 0, 0, 0);
    d[3].key_lengths = attn_view_i32(prefix_lengths, 1, 2, 0, 0, 0);
    for (int i = 0; i < 4; i++)
        if (!good(attn_mask(attn_out_typed(ATTN_U8, pictures[i], 4, 1, 1, TOKENS, TOKENS), &d[i], &err))) return;
    attn_heatmap map = heatmap(attn_view_u8(pictures[0], 4, 2, 2, TOKENS, TOKENS));
    map.mask = map.values;
    map.panel_titles = titles;
    map.no_colorbar = 1;
    map.width = 700;
    draw(&map);
    for (int i = 0; i < TOKENS * TOKENS; i++) pairs += pictures[0][i];
    say("<p>In the first picture <b>%d</b> of %d pairs attend.</p>", pairs, TOKENS * TOKENS);
}

/* ---- 7. speed: which kernels run, and one forward call, whose time the page takes */
const char *kernels(void) { return attn_isa_string(attn_best_isa()); }

int forward(int simd) {
    attn_desc d = {0};
    begin_text();
    d.q = attn_view_bhsd(much[0], 1, HEADS, LENGTH, HEAD_SIZE);
    d.k = attn_view_bhsd(much[1], 1, HEADS, LENGTH, HEAD_SIZE);
    d.v = attn_view_bhsd(much[2], 1, HEADS, LENGTH, HEAD_SIZE);
    d.out = attn_out_bhsd(result, 1, HEADS, LENGTH, HEAD_SIZE);
    d.isa = simd ? ATTN_ISA_AUTO : ATTN_ISA_SCALAR;
    return good(attn_forward(&d, &err));
}

/* ---- 8. the golden hash, which tests/golden.c prints */
int golden(int simd) {
    char name[] = "golden", option[] = "--isa", mixed[] = "--mixed", isa[16];
    char *argv[] = {name, option, isa, mixed, NULL};
    snprintf(isa, sizeof isa, "%s", simd ? kernels() : "scalar");
    int status = golden_main(4, argv);
    fflush(stdout);
    return status;
}
