/* cc -O2 fit_kernel.c -lm */
/* Nadaraya-Watson regression with a width that is learned. 50 noisy measurements of 2 sin(x) + x^0.8; each is
   predicted from the 49 others (a mask leaves out its own, or the best width would be none at all), attn_backward
   says how the error changes with sigma, and sigma goes downhill. The curve and the attention weights, before and
   after, go as SVG into the directory given as the first argument (the current one without). */
#define ATTN_IMPLEMENTATION
#include "../attn.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Machines with a fused multiply-add get other bits where the compiler makes one of a*b + c. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

enum { MEASURED = 50, ASKED = 50, STEPS = 100 };
static const float first_sigma = 1, rate = 0.05f;
static const double bound = 0.3; /* of the mean squared error after training; the noise alone makes 0.25 */

static float x_measured[MEASURED], y_measured[MEASURED], x_asked[ASKED], y_true[ASKED];
static uint8_t others[MEASURED * MEASURED]; /* 1 everywhere but on the diagonal */
static int failures;

static void check(int ok, const char *what) {
    if (ok) return;
    printf("WRONG: %s\n", what);
    failures++;
}

static void must(attn_status status, const attn_error *err) {
    char text[160];
    if (status == ATTN_OK) return;
    attn_error_string(err, text, sizeof text);
    printf("attn.h refused: %s\n", text);
    exit(1);
}

/* ---- the task, with the same bits on every machine: no function of the C library is asked for its last one */

static float uniform(void) {
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(state >> 40) / 16777216;
}

static float target(float x) {
    double term = x, sine = 0;
    float power = x;
    for (int n = 2; n < 40; n += 2) { /* Taylor; x is at most 5 */
        sine += term;
        term *= -(double)x * x / (n * (n + 1));
    }
    attn_elementary(1, &power, &power, 1, ATTN_ISA_AUTO); /* x^0.8 = exp(0.8 log x), also at 0 */
    power *= 0.8f;
    attn_elementary(0, &power, &power, 1, ATTN_ISA_AUTO);
    return 2 * (float)sine + power;
}

static void measure(void) {
    for (int i = 0; i < MEASURED; i++) { /* ascending, irregular; noise of deviation 1/2, nearly normal */
        float noise = -6;
        for (int j = 0; j < 12; j++) noise += uniform();
        x_measured[i] = 5 * ((float)i + uniform()) / MEASURED;
        y_measured[i] = target(x_measured[i]) + 0.5f * noise;
        for (int j = 0; j < MEASURED; j++) others[i * MEASURED + j] = i != j;
    }
    for (int i = 0; i < ASKED; i++) {
        x_asked[i] = 5 * (float)i / ASKED;
        y_true[i] = target(x_asked[i]);
    }
}

/* ---- the regression: query = place asked about, key = place measured, value = what was measured there */

static attn_desc regression(const float *x, int count, float *y, float *weights, float sigma) {
    return (attn_desc){.score = ATTN_SCORE_GAUSSIAN,
                       .sigma = sigma,
                       .q = attn_view_bhsd(x, 1, 1, count, 1),
                       .k = attn_view_bhsd(x_measured, 1, 1, MEASURED, 1),
                       .v = attn_view_bhsd(y_measured, 1, 1, MEASURED, 1),
                       .out = attn_out_bhsd(y, 1, 1, count, 1),
                       .weights = attn_out_bhsd(weights, 1, 1, count, MEASURED)};
}

/* The mean squared error of each measurement predicted from the others, and what it changes by with sigma. */
static double loss(float sigma, float *d_sigma) {
    static float y[MEASURED], dy[MEASURED], weights[MEASURED * MEASURED];
    attn_error err;
    attn_desc d = regression(x_measured, MEASURED, y, weights, sigma);
    const attn_grad grad = {.d_out = attn_view_bhsd(dy, 1, 1, MEASURED, 1),
                            .d_sigma = attn_out_f32(d_sigma, 1, 1, 0, 0, 0)};
    double sum = 0, slope = 0;
    d.mask = attn_view_u8(others, 2, MEASURED, MEASURED, 0, 0);
    must(attn_forward(&d, &err), &err);
    for (int i = 0; i < MEASURED; i++) {
        const float miss = y[i] - y_measured[i];
        sum += (double)miss * miss;
        dy[i] = 2 * miss / MEASURED;
    }
    must(attn_backward(&d, &grad, &err), &err);

    for (int i = 0; i < MEASURED; i++) /* by the formula: a score -(x_i - x_j)^2 / (2 sigma^2) grows by its -2/sigma */
        for (int j = 0; j < MEASURED; j++) {
            const double distance = (double)x_measured[i] - x_measured[j];
            const double d_score = distance * distance / ((double)sigma * sigma * sigma);
            slope += dy[i] * (double)weights[i * MEASURED + j] * ((double)y_measured[j] - y[i]) * d_score;
        }
    check(fabs(*d_sigma - slope) <= 1e-5 + 1e-4 * fabs(slope), "d_sigma is not what the formula gives");
    return sum / MEASURED;
}

/* The curve at the places asked about; returns its mean squared error against the one without noise. */
static double ask(float *y, float *weights, float sigma) {
    const attn_desc d = regression(x_asked, ASKED, y, weights, sigma);
    attn_error err;
    double sum = 0;
    must(attn_forward(&d, &err), &err);
    for (int i = 0; i < ASKED; i++) sum += ((double)y[i] - y_true[i]) * ((double)y[i] - y_true[i]);
    return sum / ASKED;
}

/* ---- pictures */

static int put(void *file, const char *text, size_t n) { return fwrite(text, 1, n, (FILE *)file) != n; }

static FILE *open_svg(const char *directory, const char *name) {
    char path[1024];
    snprintf(path, sizeof path, "%s/fit_kernel_%s.svg", directory, name);
    FILE *file = fopen(path, "wb");
    if (file) printf("written: %s\n", path);
    else printf("cannot write %s\n", path), exit(1);
    return file;
}

static void draw_line(FILE *file, const float *y, const char *style, const char *name, int row) {
    fprintf(file, "<polyline fill='none' %s points='", style);
    for (int i = 0; i < ASKED; i++) fprintf(file, "%.1f,%.1f ", 40 + 104 * (double)x_asked[i], 340 - 60 * (double)y[i]);
    fprintf(file, "'/>\n<line x1='420' x2='450' y1='%d' y2='%d' %s/><text x='458' y='%d'>%s</text>\n", row, row, style,
            row + 4, name);
}

static void draw_curves(FILE *file, const float *before, const float *after) {
    fprintf(file, "<svg xmlns='http://www.w3.org/2000/svg' width='600' height='380' font-family='sans-serif' "
                  "font-size='12'>\n<rect width='600' height='380' fill='white'/>\n"
                  "<path d='M40 20V340H570' fill='none' stroke='black'/>\n");
    for (int i = 0; i <= 5; i++)
        fprintf(file,
                "<text x='%d' y='358' text-anchor='middle'>%d</text><text x='30' y='%d' text-anchor='end'>%d</text>\n",
                40 + 104 * i, i, 344 - 60 * i, i);
    for (int i = 0; i < MEASURED; i++)
        fprintf(file, "<circle cx='%.1f' cy='%.1f' r='3' fill='grey'/>\n", 40 + 104 * (double)x_measured[i],
                340 - 60 * (double)y_measured[i]);
    draw_line(file, y_true, "stroke='black' stroke-dasharray='5 4'", "without noise", 30);
    draw_line(file, before, "stroke='steelblue' stroke-width='2'", "before", 48);
    draw_line(file, after, "stroke='crimson' stroke-width='2'", "after", 66);
    fprintf(file, "</svg>\n");
}

int main(int argc, char **argv) {
    static const char *const titles[2] = {"before", "after"};
    static float curves[2][ASKED], weights[2][ASKED * MEASURED];
    const char *directory = argc > 1 ? argv[1] : ".";
    float sigma = first_sigma, d_sigma = 0;
    attn_error err;

    measure();
    const double error_before = ask(curves[0], weights[0], sigma), loss_before = loss(sigma, &d_sigma);
    for (int step = 0; step < STEPS; step++) {
        const double now = loss(sigma, &d_sigma);
        if (step % 10 == 0) printf("step %2d: sigma %.4f, error %.4f, d_sigma %+.4f\n", step, sigma, now, d_sigma);
        sigma -= rate * d_sigma;
    }
    const double error_after = ask(curves[1], weights[1], sigma), loss_after = loss(sigma, &d_sigma);
    printf("predicting each from the others: sigma %.4f, error %.4f before; %.4f, %.4f after (at most %.2f)\n",
           first_sigma, loss_before, sigma, loss_after, bound);
    printf("against the curve without noise: error %.4f before, %.4f after\n", error_before, error_after);
    check(loss_after <= bound && error_after < error_before, "the error is above its bound");
    check(fabsf(d_sigma) <= 1e-3f, "sigma is still on its way");

    FILE *file = open_svg(directory, "curves");
    draw_curves(file, curves[0], curves[1]);
    check(!ferror(file) && fclose(file) == 0, "a picture could not be written");
    file = open_svg(directory, "weights");
    const attn_heatmap map = {.values = attn_view_f32(weights[0], 3, 2, ASKED, MEASURED, 0),
                              .panel_titles = titles,
                              .x_label = "Measured",
                              .y_label = "Asked"};
    must(attn_heatmap_svg(&map, (attn_writer){put, file}, &err), &err);
    check(fclose(file) == 0, "a picture could not be written");
    return failures || fflush(stdout) || ferror(stdout); /* an output that is lost fails, too */
}
