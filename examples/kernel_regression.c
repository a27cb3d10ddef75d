/* cc -O2 kernel_regression.c -lm */
/* Nadaraya-Watson regression is attention: the query is the place asked about, the keys are the places
   measured, the values what was measured there, and the kernel is the score. All kernels on one noisy curve,
   then the Gaussian one in four widths. Heatmaps go to the terminal and, as SVG, into the directory given as
   the first argument (the current one without). */
#define ATTN_IMPLEMENTATION
#include "../attn.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRAIN 36 /* keys and values */
#define ASKED 12 /* queries */
#define KINDS 5
#define WIDTHS 4

static const int kinds[KINDS] = {ATTN_SCORE_GAUSSIAN, ATTN_SCORE_EPANECHNIKOV, ATTN_SCORE_TRIANGULAR, ATTN_SCORE_BOXCAR,
                                 ATTN_SCORE_CONSTANT};
static const char *const kind_names[KINDS] = {"gaussian", "epanechnikov", "triangular", "boxcar", "constant"};
static const float widths[WIDTHS] = {0.1f, 0.2f, 0.5f, 1.0f};
static const char *const width_names[WIDTHS] = {"sigma 0.1", "sigma 0.2", "sigma 0.5", "sigma 1"};

static float x_train[TRAIN], y_train[TRAIN], x_asked[ASKED];
static attn_error err;
static int failures;

static void must(attn_status status) {
    char text[160];
    if (status == ATTN_OK) return;
    attn_error_string(&err, text, sizeof text);
    printf("attn.h refused: %s\n", text);
    exit(1);
}

static double target(double x) { return 2 * sin(x) + 0.5 * x; }

static double uniform(void) { /* the same numbers on every machine */
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 40) / 16777216.0;
}

static double weight(int kind, double u) { /* of a key at the distance u */
    switch (kind) {
    case ATTN_SCORE_GAUSSIAN: return exp(-u * u / 2);
    case ATTN_SCORE_EPANECHNIKOV: return u < 1 ? 1 - u * u : 0;
    case ATTN_SCORE_TRIANGULAR: return u < 1 ? 1 - u : 0;
    case ATTN_SCORE_BOXCAR: return u <= 1;
    default: return 1;
    }
}

/* The mean squared error of y [ASKED] against the target. y is checked against the formula on the way. */
static double error_of(const float *y, int kind, double sigma) {
    double sum = 0;
    for (int i = 0; i < ASKED; i++) {
        double mass = 0, want = 0;
        for (int j = 0; j < TRAIN; j++) {
            double w = weight(kind, fabs((double)x_asked[i] - x_train[j]) / sigma);
            mass += w;
            want += w * y_train[j];
        }
        if (mass > 0) want /= mass; /* no measurement within reach: 0, as attn.h gives */
        if (!(fabs(y[i] - want) <= 1e-4)) {
            printf("WRONG: at x = %g: %g, not %g\n", x_asked[i], y[i], want);
            failures++;
        }
        sum += (y[i] - target(x_asked[i])) * (y[i] - target(x_asked[i]));
    }
    return sum / ASKED;
}

/* heads > 1: the same queries, keys and values for every head, only sigma differs.
   out [1,heads,ASKED,1], weights [1,heads,ASKED,TRAIN] */
static void regress(int kind, int heads, const float *sigma, float *out, float *weights) {
    attn_desc d = {0};
    d.score = kind;
    d.q = attn_view_bhsd(x_asked, 1, heads, ASKED, 1);
    d.q.stride[1] = 0;
    d.k = attn_view_bhsd(x_train, 1, 1, TRAIN, 1);
    d.v = attn_view_bhsd(y_train, 1, 1, TRAIN, 1);
    if (sigma) d.sigma_per_head = attn_view_f32(sigma, 1, heads, 0, 0, 0);
    d.out = attn_out_bhsd(out, 1, heads, ASKED, 1);
    d.weights = attn_out_bhsd(weights, 1, heads, ASKED, TRAIN);
    must(attn_forward(&d, &err));
}

static int put(void *file, const char *text, size_t n) { return fwrite(text, 1, n, (FILE *)file) != n; }

static void draw(const float *weights, int panels, const char *const *titles, const char *directory, const char *name) {
    char path[1024];
    attn_heatmap map = {0};
    attn_writer writer = {put, stdout};
    map.values = attn_view_f32(weights, 4, panels, 1, ASKED, TRAIN); /* panels below each other */
    map.panel_titles = titles;
    map.x_label = "Measured";
    map.y_label = "Asked";
    map.terminal = getenv("COLORTERM") ? ATTN_TERMINAL_TRUECOLOR : ATTN_TERMINAL_ASCII;
    must(attn_heatmap_ansi(&map, writer, &err));
    snprintf(path, sizeof path, "%s/kernel_regression_%s.svg", directory, name);
    FILE *file = fopen(path, "wb");
    if (file) {
        writer.user = file;
        map.width = 1000;
        map.values = attn_view_f32(weights, 3, panels, ASKED, TRAIN, 0); /* panels side by side */
        must(attn_heatmap_svg(&map, writer, &err));
    }
    if (!file || fclose(file) != 0) {
        printf("WRONG: cannot write %s\n", path);
        failures++;
    } else {
        printf("written: %s\n\n", path);
    }
}

int main(int argc, char **argv) {
    static float out[KINDS * ASKED], weights[KINDS * ASKED * TRAIN];
    const char *directory = argc > 1 ? argv[1] : ".";
    double errors[KINDS];

    for (int j = 0; j < TRAIN; j++) { /* ascending, irregular; noise of variance 1/4 */
        x_train[j] = (float)(5 * (j + uniform()) / TRAIN);
        y_train[j] = (float)(target(x_train[j]) + 0.5 * sqrt(12.0) * (uniform() - 0.5));
    }
    for (int i = 0; i < ASKED; i++) x_asked[i] = 5 * (float)i / ASKED;

    printf("Mean squared error against the noiseless target, sigma 1:\n");
    for (int n = 0; n < KINDS; n++) {
        regress(kinds[n], 1, NULL, out + n * ASKED, weights + n * ASKED * TRAIN);
        errors[n] = error_of(out + n * ASKED, kinds[n], 1);
        printf("  %-12s %.4f\n", kind_names[n], errors[n]);
    }
    for (int n = 0; n + 1 < KINDS; n++)
        if (!(errors[n] < errors[KINDS - 1])) {
            printf("WRONG: %s is no better than the plain mean\n", kind_names[n]);
            failures++;
        }
    draw(weights, KINDS, kind_names, directory, "kernels");

    printf("The Gaussian kernel in four widths, one head each:\n");
    regress(ATTN_SCORE_GAUSSIAN, WIDTHS, widths, out, weights);
    for (int n = 0; n < WIDTHS; n++)
        printf("  %-12s %.4f\n", width_names[n], error_of(out + n * ASKED, ATTN_SCORE_GAUSSIAN, widths[n]));
    draw(weights, WIDTHS, width_names, directory, "widths");

    if (failures) printf("%d wrong\n", failures);
    else printf("every output agrees with the formula in double\n");
    return failures || fflush(stdout) || ferror(stdout); /* an output that is lost fails, too */
}
