/* cc -O2 bench/scaling.c -lm -lpthread; or `make bench-scaling`. What a call costs as one of its sizes grows, on one
   thread and on two: time and workspace, as tables here and as log-log plots, an SVG each, in the directory that is the
   first argument; only of the series whose name contains the second. The scale of the axes is the same in both
   directions, so that slopes can be read. GCC or clang, POSIX. */
#define _GNU_SOURCE
#define ATTN_IMPLEMENTATION
#include "../attn.h"
#include "measure.h"
#include <math.h>
#include <unistd.h>

#ifndef BENCH_COMMIT
#define BENCH_COMMIT "unknown"
#endif

enum { MAX_POINTS = 20, SAMPLES = 5, CURVES = 2 };

static const struct series {
    const char *file, *title, *axis;
    size_t field;        /* of job: what grows, by 2 from `from` to `to` */
    size_t too;          /* a field that grows along, or the same */
    int from, to, slope; /* in the end */
    job fixed;
} table[] = {
#define GROWS(a, b) offsetof(job, a), offsetof(job, b)
    {"queries",
     "4 heads, 1024 keys, d 64",
     "queries",
     GROWS(queries, queries),
     1,
     4096,
     1,
     {"", SIZES(1, 4, 4, 0, 1024, 64, 64)}},
    {"keys", "4 heads, 32 queries, d 64", "keys", GROWS(keys, keys), 16, 65536, 1, {"", SIZES(1, 4, 4, 32, 0, 64, 64)}},
    {"one-query",
     "one query, 4 heads, d 64",
     "keys",
     GROWS(keys, keys),
     16,
     131072,
     1,
     {"", SIZES(1, 4, 4, 1, 0, 64, 64)}},
    {"length",
     "queries as many as keys, 2 heads, d 64",
     "queries and keys",
     GROWS(queries, keys),
     16,
     4096,
     2,
     {"", SIZES(1, 2, 2, 0, 0, 64, 64)}},
    {"backward",
     "gradients, queries as many as keys, 2 heads, d 64",
     "queries and keys",
     GROWS(queries, keys),
     16,
     4096,
     2,
     {"", SIZES(1, 2, 2, 0, 0, 64, 64), .kind = 'g'}},
    {"size", "4 heads, 512 queries, 512 keys", "d", GROWS(d, dv), 8, 512, 1, {"", SIZES(1, 4, 4, 512, 512, 0, 0)}},
    {"heads",
     "256 queries, 256 keys, d 64",
     "heads",
     GROWS(heads, kv_heads),
     1,
     64,
     1,
     {"", SIZES(1, 0, 0, 256, 256, 64, 64)}},
    {"hidden",
     "additive, 256 queries, 256 keys, values of 64",
     "hidden width",
     GROWS(d, d),
     8,
     1024,
     1,
     {"", SIZES(1, 1, 1, 256, 256, 0, 64), .score = WORK_ADDITIVE}},
};

typedef struct curve {
    int points;
    double x[MAX_POINTS], seconds[CURVES][MAX_POINTS], bytes[CURVES][MAX_POINTS];
} curve;

static void measure(const struct series *s, pool *pools, curve *to) {
    to->points = 0;
    for (int size = s->from; size <= s->to; size *= 2) {
        job j = s->fixed;
        *(int32_t *)((char *)&j + s->field) = *(int32_t *)((char *)&j + s->too) = size;
        make_data(&j);
        printf("%-18s %6d", s->axis, size);
        to->x[to->points] = size;
        for (int i = 0; i < CURVES; i++) {
            double samples[SAMPLES];
            call c;
            j.threads = i + 1;
            if (call_prepare(&c, &j, &pools[i]) != ATTN_OK) stop("attn.h refused the call");
            run_call(&c);
            for (int n = 0; n < SAMPLES; n++) samples[n] = 1 / rate(run_call, &c, i > 0);
            to->seconds[i][to->points] = median(samples, SAMPLES);
            to->bytes[i][to->points] = (double)c.desc.workspace_bytes;
            printf("  %10.3f us %9zu bytes", to->seconds[i][to->points] * 1e6, c.desc.workspace_bytes);
            free(c.desc.workspace);
        }
        printf("\n");
        free_data(&j), to->points++;
    }
}

/* ---- the plots: a decade is as long on both axes */
enum { DECADE = 76, LEFT = 70, TOP = 64, GAP = 90 };

typedef struct panel {
    double x, lowest_x, lowest_y, height; /* in pixels; decades; pixels */
} panel;
static double at_x(const panel *p, double x) { return p->x + DECADE * (log10(x) - p->lowest_x); }
static double at_y(const panel *p, double y) { return TOP + p->height - DECADE * (log10(y) - p->lowest_y); }

static void decades(const double y[CURVES][MAX_POINTS], int points, double *lowest, double *highest) {
    *lowest = 1e9, *highest = -1e9;
    for (int i = 0; i < CURVES; i++)
        for (int n = 0; n < points; n++)
            *lowest = fmin(*lowest, log10(y[i][n])), *highest = fmax(*highest, log10(y[i][n]));
    *lowest = floor(*lowest), *highest = fmax(ceil(*highest), *lowest + 1);
}
static void label(char *text, size_t size, int decade, int is_time) { /* 10^decade seconds or bytes */
    static const char *const units[2][4] = {{"B", "KB", "MB", "GB"}, {"ns", "us", "ms", "s"}};
    int shifted = is_time ? decade + 9 : decade, unit = shifted / 3;
    snprintf(text, size, "%g %s", pow(10, shifted % 3), units[is_time][unit < 0 ? 0 : unit > 3 ? 3 : unit]);
}
static void say(FILE *f, double x, double y, const char *attributes, const char *text) {
    fprintf(f, "<text x='%.1f' y='%.1f' %s>%s</text>\n", x, y, attributes, text);
}
static void line(FILE *f, const char *class, double x0, double y0, double x1, double y1) {
    fprintf(f, "<path class='%s' d='M%.1f %.1fL%.1f %.1f'/>\n", class, x0, y0, x1, y1);
}

static void draw(FILE *f, panel p, const struct series *s, const curve *c, const double y[CURVES][MAX_POINTS],
                 int is_time) {
    int last = c->points - 1;
    double right = at_x(&p, c->x[last]), bottom = TOP + p.height, low, high;
    char text[32];
    decades(y, c->points, &low, &high);
    p.lowest_y = low;
    say(f, p.x, TOP - 10, "class='head'", is_time ? "time" : "workspace");
    say(f, (p.x + right) / 2, bottom + 34, "class='middle'", s->axis);
    for (int d = (int)low; at_y(&p, pow(10, d)) >= TOP - 1; d++) {
        label(text, sizeof text, d, is_time);
        line(f, "grid", p.x, at_y(&p, pow(10, d)), right, at_y(&p, pow(10, d)));
        say(f, p.x - 6, at_y(&p, pow(10, d)) + 4, "text-anchor='end'", text);
    }
    for (int n = 0; n <= last; n += 2) {
        snprintf(text, sizeof text, "%g", c->x[n]);
        line(f, "grid", at_x(&p, c->x[n]), TOP, at_x(&p, c->x[n]), bottom);
        say(f, at_x(&p, c->x[n]), bottom + 16, "class='middle'", text);
    }
    if (is_time) { /* what the last point of one thread would make of the others, if cost were a power of the size */
        double decades_down = fmin(s->slope * log10(c->x[last] / c->x[0]), log10(y[0][last]) - low);
        line(f, "ideal", right - DECADE * decades_down / s->slope, at_y(&p, y[0][last]) + DECADE * decades_down, right,
             at_y(&p, y[0][last]));
    }
    for (int i = 0; i < CURVES; i++)
        for (int n = 0; n <= last; n++) {
            double px = at_x(&p, c->x[n]), py = at_y(&p, y[i][n]);
            if (n < last) line(f, i ? "two" : "one", px, py, at_x(&p, c->x[n + 1]), at_y(&p, y[i][n + 1]));
            fprintf(f, "<circle class='%s' cx='%.1f' cy='%.1f' r='2'/>\n", i ? "two" : "one", px, py);
        }
}
static void plot(const char *directory, const struct series *s, const curve *c) {
    static const char style[] =
        ".grid{stroke:#ddd} .ideal{stroke:#999;stroke-dasharray:4 4} .head{font-weight:bold} "
        ".middle{text-anchor:middle} .one{stroke:#c2410c} .two{stroke:#1d4ed8} .grey{fill:#666}";
    char text[512];
    double low, high, memory_low, memory_high, wide = DECADE * log10(c->x[c->points - 1] / c->x[0]), below;
    panel time = {LEFT, log10(c->x[0]), 0, 0}, memory;
    FILE *f;
    decades(c->seconds, c->points, &low, &high);
    decades(c->bytes, c->points, &memory_low, &memory_high);
    time.height = DECADE * fmax(high - low, memory_high - memory_low);
    memory = time, memory.x = LEFT + wide + GAP;
    below = TOP + time.height + 54;
    snprintf(text, sizeof text, "%s/%s.svg", directory, s->file);
    f = fopen(text, "w");
    if (!f) stop("a plot cannot be written");
    fprintf(f, "<svg xmlns='http://www.w3.org/2000/svg' width='%.0f' height='%.0f'", memory.x + wide + 40, below + 10);
    fprintf(f, " font-family='sans-serif' font-size='11'>\n<style>%s</style>\n", style);
    fprintf(f, "<rect width='100%%' height='100%%' fill='#fff'/>\n");
    snprintf(text, sizeof text, "Against %s: %s", s->axis, s->title);
    say(f, 12, 18, "class='head'", text);
    snprintf(text, sizeof text, "%s, %ld cores, %s; attn.h %s", cpu_name(), sysconf(_SC_NPROCESSORS_ONLN),
             attn_isa_string(attn_best_isa()), BENCH_COMMIT);
    say(f, 12, 34, "class='grey'", text);
    draw(f, time, s, c, c->seconds, 1);
    draw(f, memory, s, c, c->bytes, 0);
    say(f, LEFT, below, "fill='#c2410c'", "one thread");
    say(f, LEFT + 80, below, "fill='#1d4ed8'", "two threads");
    snprintf(text, sizeof text, "dashed: slope %d", s->slope);
    say(f, LEFT + 160, below, "class='grey'", text);
    fprintf(f, "</svg>\n");
    if (fclose(f)) stop("a plot cannot be written");
}

int main(int argc, char **argv) {
    static pool pools[CURVES];
    for (int i = 0; i < CURVES; i++) pools[i].pinned = i > 0, pool_start(&pools[i], i + 1);
    printf("%s, %ld cores, %s; time and workspace on one thread, on two\n", cpu_name(), sysconf(_SC_NPROCESSORS_ONLN),
           attn_isa_string(attn_best_isa()));
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        curve c;
        if (argc > 2 && !strstr(table[i].file, argv[2])) continue;
        measure(&table[i], pools, &c);
        plot(argc > 1 ? argv[1] : ".", &table[i], &c);
    }
    return 0;
}
