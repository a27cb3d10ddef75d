/* cc -O2 train_align.c -lm */
/* Learns to read dates. "the 3rd of May 1994", "5/3/94" and ten other ways to write a day become 1994-05-03, character
   by character. What joins the encoder to the decoder is additive attention, every part of it learned:

       encoder    the value of a character is its embedding; its key is one layer over the embeddings around it
       decoder    the query is the embedding of a place in the answer plus that of the character written before it
       attention  context = sum over the characters of softmax(w_v . tanh(W_q query + W_k key + hidden_bias)) value
       answer     two layers over context and query, softmax

   A value knows nothing of its neighbours, so the decoder has to look where the answer stands. The program writes the
   dates itself and knows these places: it counts how often the largest weight lies there, on days never trained on.

       train_align [options] [DATE]     reads DATE before and after training, and draws the weights

       --steps N      train up to step N (default 500)
       --load FILE    go on from this state: the bits are those of training without a break
       --save FILE    write the state at the end, as it lies in memory
       --svg FILE     write the two heatmaps as a picture too

   The numbers are the same on every machine. attn.h promises its own, softmax and tanh included; here no product is
   rounded before it is added, as a compiler may or may not do: a product of two floats is exact in double. */
#define _POSIX_C_SOURCE 200112L /* isatty */
#define ATTN_IMPLEMENTATION
#include "../attn.h"
#include "numbers.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef _WIN32
#include <io.h>
#define isatty _isatty
#define fileno _fileno
#else
#include <unistd.h>
#endif

enum { BATCH = 32, SOURCE = 40, TARGET = 10 };         /* dates, characters of a date, of an answer */
enum { LETTERS = 96, SYMBOLS = 11 };                   /* 0 = none, then ' '..'~'; 0..9 and - */
enum { EMBED = 16, WINDOW = 5, KEY = 48, QUERY = 32 }; /* numbers of a value; values after a key; numbers of both */
enum { HIDDEN = 32, MIX = 64 };                        /* width of the additive score, of the layer before the last */
enum { STEPS = 500, RESUMED = 40, TESTS = 8 };         /* steps, those done twice to compare, batches of tests */

typedef struct {
    float letter[LETTERS][EMBED];
    float w_key[WINDOW * EMBED][KEY], b_key[KEY];
    float place[TARGET][QUERY], before[SYMBOLS + 1][QUERY]; /* the last: nothing was written before */
    float w_q[HIDDEN][QUERY], w_k[HIDDEN][KEY], w_v[HIDDEN], hidden_bias[HIDDEN];
    float w_mix[EMBED + QUERY][MIX], b_mix[MIX];
    float w_out[MIX][SYMBOLS], b_out[SYMBOLS];
} parameters;
enum { PARAMETERS = sizeof(parameters) / sizeof(float) };

typedef struct { /* everything that the next step depends on; a file holds it as it is here */
    char magic[8];
    uint64_t step, random;
    parameters p, mean, square; /* Adam's moments */
    float power1, power2;       /* beta1^step, beta2^step */
} trainer;

typedef struct {
    int32_t lengths[BATCH];
    char source[BATCH][SOURCE + 1], target[BATCH][TARGET + 1];
    int first[BATCH][TARGET], last[BATCH][TARGET]; /* what answers: source[first..last-1]; first = last: not known */
} batch;

static struct { /* what a forward pass leaves for the backward pass */
    float windows[BATCH * SOURCE][WINDOW * EMBED], keys[BATCH * SOURCE][KEY], values[BATCH * SOURCE][EMBED];
    float joined[BATCH * TARGET][EMBED + QUERY]; /* context and query side by side */
    float weights[BATCH][TARGET][SOURCE], stats[BATCH * TARGET][2];
    float hidden[BATCH * TARGET][MIX], logits[BATCH * TARGET][SYMBOLS], p[BATCH * TARGET][SYMBOLS], lse[BATCH * TARGET];
} now, d; /* and the gradients of it */

static attn_error err;

static void must(attn_status status) {
    char text[160];
    if (status == ATTN_OK) return;
    attn_error_string(&err, text, sizeof text);
    fprintf(stderr, "attn.h refused: %s\n", text);
    exit(1);
}

/* ---- the task: dates as people write them */

static uint64_t random_below(uint64_t *state, uint64_t n) { /* splitmix64 */
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (z ^ (z >> 31)) % n;
}

static void add_text(batch *b, int n, const char *text, int most) {
    for (int i = 0; i < most && text[i]; i++) b->source[n][b->lengths[n]++] = text[i];
}

/* A digit is its own answer, up to target[end-1]. Zeros and centuries that are not written have no place. */
static void add_digits(batch *b, int n, int value, int width, int end) {
    char text[16];
    int i = b->lengths[n];
    snprintf(text, sizeof text, "%0*d", width, value);
    add_text(b, n, text, 4);
    for (end -= b->lengths[n] - i; i < b->lengths[n]; i++, end++) b->first[n][end] = i, b->last[n][end] = i + 1;
}

/* Both digits of the month are answered by its name, all of it. */
static void add_month(batch *b, int n, const char *name, int most) {
    b->first[n][5] = b->first[n][6] = b->lengths[n];
    add_text(b, n, name, most);
    b->last[n][5] = b->last[n][6] = b->lengths[n];
}

/* What a character of a form stands for; the others stand for themselves. */
static void add_field(batch *b, int n, char field, int year, int month, int day) {
    static const char *const months[12] = {"January", "February", "March",     "April",   "May",      "June",
                                           "July",    "August",   "September", "October", "November", "December"};
    static const char *const days[7] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
    static const char *const endings[4] = {"th", "st", "nd", "rd"};
    static const int shift[12] = {0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4}; /* Sakamoto's rule for the day of the week */
    const int y = year - (month < 3), weekday = (y + y / 4 - y / 100 + y / 400 + shift[month - 1] + day) % 7;
    switch (field) {
    case 'Y': add_digits(b, n, year, 4, 4); break;
    case 'y': add_digits(b, n, year % 100, 2, 4); break;
    case 'N': add_digits(b, n, month, 2, 7); break;
    case 'n': add_digits(b, n, month, 1, 7); break;
    case 'M': add_month(b, n, months[month - 1], 9); break;
    case 'm': add_month(b, n, months[month - 1], 3); break;
    case 'D': add_digits(b, n, day, 2, 10); break;
    case 'd': add_digits(b, n, day, 1, 10); break;
    case 'E': add_text(b, n, endings[day % 10 < 4 && day / 10 != 1 ? day % 10 : 0], 2); break;
    case 'W': add_text(b, n, days[weekday], 9); break;
    default: add_text(b, n, &field, 1);
    }
}

static int is_leap(int year) { return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0); }
static int is_unseen(int year, int month, int day) { return (372 * year + 31 * month + day) % 10 == 6; }

/* Years from 1000 to 2999; two digits mean 1950 to 2049. Every tenth day is kept from training, in every form. */
static void draw_batch(batch *b, uint64_t *random, int unseen) {
    static const char *const forms[] = {"d.n.y", "d.n.Y", "D.N.Y",  "n/d/y",     "N/D/Y",         "Y/N/D",
                                        "d M Y", "d m y", "M d, Y", "W, m d, Y", "the dE of M Y", "W, the dE of M Y"};
    static const int lengths[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    memset(b, 0, sizeof *b);
    for (int n = 0; n < BATCH; n++) {
        const char *form;
        int year, month, day;
        do {
            form = forms[random_below(random, sizeof forms / sizeof *forms)];
            year = strchr(form, 'y') ? 1950 + (int)random_below(random, 100) : 1000 + (int)random_below(random, 2000);
            month = 1 + (int)random_below(random, 12);
            day = 1 + (int)random_below(random, (uint64_t)(lengths[month - 1] + (month == 2 && is_leap(year))));
        } while (is_unseen(year, month, day) != unseen);
        while (*form) add_field(b, n, *form++, year, month, day);
        snprintf(b->target[n], sizeof b->target[n], "%04u-%02u-%02u", (unsigned)year % 10000, (unsigned)month % 100,
                 (unsigned)day % 100);
    }
}

static int letter_at(const batch *b, int n, int i) {
    const char c = i >= 0 && i < b->lengths[n] ? b->source[n][i] : 0;
    return c >= ' ' && c <= '~' ? c - ' ' + 1 : 0;
}

static int symbol_at(const batch *b, int n, int t) { /* t = -1: nothing yet */
    if (t < 0) return SYMBOLS;
    return b->target[n][t] == '-' ? SYMBOLS - 1 : b->target[n][t] - '0';
}

/* ---- the model */

typedef struct { /* y [rows,out] = x [rows,in] w [in,out] + bias, and tanh of it */
    const float *x, *w, *bias;
    float *y;
    int rows, in, out, squash;
} layer;

static layer key_layer(const parameters *p) {
    return (layer){now.windows[0], p->w_key[0], p->b_key, now.keys[0], BATCH * SOURCE, WINDOW * EMBED, KEY, 1};
}
static layer mix_layer(const parameters *p) {
    return (layer){now.joined[0], p->w_mix[0], p->b_mix, now.hidden[0], BATCH * TARGET, EMBED + QUERY, MIX, 1};
}
static layer out_layer(const parameters *p) {
    return (layer){now.hidden[0], p->w_out[0], p->b_out, now.logits[0], BATCH * TARGET, MIX, SYMBOLS, 0};
}

static void layer_forward(layer l) {
    must(attn_bmm(attn_view_f32(l.x, 2, l.rows, l.in, 0, 0), attn_view_f32(l.w, 2, l.in, l.out, 0, 0),
                  attn_out_f32(l.y, 2, l.rows, l.out, 0, 0), NULL, &err));
    for (int i = 0; i < l.rows * l.out; i++) l.y[i] += l.bias[i % l.out];
    if (l.squash) must(attn_elementary(2, l.y, l.y, l.rows * l.out, ATTN_ISA_AUTO));
}

/* From dy, which becomes the gradient before the tanh, to those of x, w and the bias. */
static void layer_backward(layer l, float *dy, float *dx, float *dw, float *dbias) {
    for (int i = 0; l.squash && i < l.rows * l.out; i++) dy[i] = (float)(dy[i] * (1 - (double)l.y[i] * l.y[i]));
    for (int i = 0; i < l.rows * l.out; i++) dbias[i % l.out] += dy[i];
    must(attn_bmm_backward(attn_view_f32(l.x, 2, l.rows, l.in, 0, 0), attn_view_f32(l.w, 2, l.in, l.out, 0, 0),
                           attn_view_f32(dy, 2, l.rows, l.out, 0, 0), attn_out_f32(dx, 2, l.rows, l.in, 0, 0),
                           attn_out_f32(dw, 2, l.in, l.out, 0, 0), 0, NULL, &err));
}

static attn_desc attention_of(const parameters *p, const batch *b) {
    return (attn_desc){.score = ATTN_SCORE_ADDITIVE,
                       .q = attn_view_rows(now.joined[0] + EMBED, BATCH, TARGET, 1, QUERY, EMBED + QUERY),
                       .k = attn_view_bhsd(now.keys[0], BATCH, 1, SOURCE, KEY),
                       .v = attn_view_bhsd(now.values[0], BATCH, 1, SOURCE, EMBED),
                       .w_q = attn_view_f32(p->w_q[0], 2, HIDDEN, QUERY, 0, 0),
                       .w_k = attn_view_f32(p->w_k[0], 2, HIDDEN, KEY, 0, 0),
                       .w_v = attn_view_f32(p->w_v, 1, HIDDEN, 0, 0, 0),
                       .hidden_bias = attn_view_f32(p->hidden_bias, 1, HIDDEN, 0, 0, 0),
                       .key_lengths = attn_view_i32(b->lengths, 1, BATCH, 0, 0, 0), /* what follows is padding */
                       .out = attn_out_rows(now.joined[0], BATCH, TARGET, 1, EMBED, EMBED + QUERY),
                       .weights = attn_out_bhsd(now.weights[0][0], BATCH, 1, TARGET, SOURCE),
                       .stats = attn_out_bhsd(now.stats[0], BATCH, 1, TARGET, 2)}; /* spares the gradients a product */
}

static void add(float *to, const float *x, int n) {
    for (int i = 0; i < n; i++) to[i] += x[i];
}

static void encode(const parameters *p, const batch *b) {
    for (int row = 0; row < BATCH * SOURCE; row++) {
        for (int w = 0; w < WINDOW; w++)
            memcpy(now.windows[row] + w * EMBED, p->letter[letter_at(b, row / SOURCE, row % SOURCE + w - WINDOW / 2)],
                   sizeof *p->letter);
        memcpy(now.values[row], p->letter[letter_at(b, row / SOURCE, row % SOURCE)], sizeof *p->letter);
    }
    layer_forward(key_layer(p));
}

static void decode(const parameters *p, const batch *b) {
    const attn_desc attention = attention_of(p, b);
    for (int row = 0; row < BATCH * TARGET; row++) {
        memcpy(now.joined[row] + EMBED, p->place[row % TARGET], sizeof *p->place);
        add(now.joined[row] + EMBED, p->before[symbol_at(b, row / TARGET, row % TARGET - 1)], QUERY);
    }
    must(attn_forward(&attention, &err));
    layer_forward(mix_layer(p));
    layer_forward(out_layer(p));
}

/* The mean cross entropy of the answers. */
static double loss_of(const parameters *p, const batch *b) {
    const attn_desc options = {.lse = attn_out_f32(now.lse, 3, 1, 1, BATCH * TARGET, 0)};
    double sum = 0;
    encode(p, b);
    decode(p, b);
    must(attn_softmax(attn_view_f32(now.logits[0], 2, BATCH * TARGET, SYMBOLS, 0, 0),
                      attn_out_f32(now.p[0], 2, BATCH * TARGET, SYMBOLS, 0, 0), &options, &err));
    for (int row = 0; row < BATCH * TARGET; row++)
        sum += (double)now.lse[row] - now.logits[row][symbol_at(b, row / TARGET, row % TARGET)];
    return sum / (BATCH * TARGET);
}

/* The gradients of loss_of, after it: from its end to its beginning. */
static void backward(const parameters *p, const batch *b, parameters *g) {
    const attn_desc attention = attention_of(p, b);
    const attn_grad grad = {.d_out = attn_view_rows(d.joined[0], BATCH, TARGET, 1, EMBED, EMBED + QUERY),
                            .dq = attn_out_rows(d.joined[0] + EMBED, BATCH, TARGET, 1, QUERY, EMBED + QUERY),
                            .accumulate = ATTN_GRAD_Q, /* to what mix_layer, which reads the query too, has put there */
                            .dk = attn_out_bhsd(d.keys[0], BATCH, 1, SOURCE, KEY),
                            .dv = attn_out_bhsd(d.values[0], BATCH, 1, SOURCE, EMBED),
                            .d_w_q = attn_out_f32(g->w_q[0], 2, HIDDEN, QUERY, 0, 0),
                            .d_w_k = attn_out_f32(g->w_k[0], 2, HIDDEN, KEY, 0, 0),
                            .d_w_v = attn_out_f32(g->w_v, 1, HIDDEN, 0, 0, 0),
                            .d_hidden_bias = attn_out_f32(g->hidden_bias, 1, HIDDEN, 0, 0, 0)};
    memset(g, 0, sizeof *g);
    for (int row = 0; row < BATCH * TARGET; row++)
        for (int s = 0; s < SYMBOLS; s++)
            d.logits[row][s] = (now.p[row][s] - (s == symbol_at(b, row / TARGET, row % TARGET))) / (BATCH * TARGET);
    layer_backward(out_layer(p), d.logits[0], d.hidden[0], g->w_out[0], g->b_out);
    layer_backward(mix_layer(p), d.hidden[0], d.joined[0], g->w_mix[0], g->b_mix);
    must(attn_backward(&attention, &grad, &err));

    layer_backward(key_layer(p), d.keys[0], d.windows[0], g->w_key[0], g->b_key);
    for (int row = 0; row < BATCH * TARGET; row++) {
        add(g->place[row % TARGET], d.joined[row] + EMBED, QUERY);
        add(g->before[symbol_at(b, row / TARGET, row % TARGET - 1)], d.joined[row] + EMBED, QUERY);
    }
    for (int row = 0; row < BATCH * SOURCE; row++) {
        for (int w = 0; w < WINDOW; w++)
            add(g->letter[letter_at(b, row / SOURCE, row % SOURCE + w - WINDOW / 2)], d.windows[row] + w * EMBED,
                EMBED);
        add(g->letter[letter_at(b, row / SOURCE, row % SOURCE)], d.values[row], EMBED);
    }
}

/* ---- training */

static void spread(uint64_t *random, float *x, int n, double width) { /* -width .. width */
    for (int i = 0; i < n; i++) x[i] = (float)(width * ((double)random_below(random, 1 << 24) * (2.0 / (1 << 24)) - 1));
}

static void trainer_start(trainer *t, uint64_t seed) {
    parameters *p = &t->p;
    memset(t, 0, sizeof *t);
    memcpy(t->magic, "dates 1", 8);
    t->random = seed;
    t->power1 = t->power2 = 1;
    spread(&t->random, p->letter[0], LETTERS * EMBED, 1);
    spread(&t->random, p->w_key[0], WINDOW * EMBED * KEY, sqrt(3.0 / (WINDOW * EMBED)));
    spread(&t->random, p->place[0], TARGET * QUERY, 1);
    spread(&t->random, p->before[0], (SYMBOLS + 1) * QUERY, 1);
    spread(&t->random, p->w_q[0], HIDDEN * QUERY, sqrt(3.0 / QUERY));
    spread(&t->random, p->w_k[0], HIDDEN * KEY, sqrt(3.0 / KEY));
    spread(&t->random, p->w_v, HIDDEN, sqrt(3.0 / HIDDEN));
    spread(&t->random, p->w_mix[0], (EMBED + QUERY) * MIX, sqrt(3.0 / (EMBED + QUERY)));
    spread(&t->random, p->w_out[0], MIX * SYMBOLS, sqrt(3.0 / MIX));
}

static void adam(trainer *t, const parameters *gradient) {
    const float beta1 = 0.9f, beta2 = 0.99f;
    const double rate = 1.2 / (200.0 + (double)t->step);
    const float *g = (const float *)gradient; /* all parameters in a row */
    float *p = (float *)&t->p, *mean = (float *)&t->mean, *square = (float *)&t->square;
    t->power1 = (float)((double)t->power1 * beta1);
    t->power2 = (float)((double)t->power2 * beta2);
    for (int i = 0; i < PARAMETERS; i++) {
        const float gg = (float)((double)g[i] * g[i]);
        mean[i] = (float)((double)beta1 * mean[i] + (double)(1 - beta1) * g[i]);
        square[i] = (float)((double)beta2 * square[i] + (double)(1 - beta2) * gg);
        p[i] = (float)(p[i] - rate * mean[i] / (1.0 - t->power1) / (sqrt(square[i] / (1.0 - t->power2)) + 1e-8));
    }
    t->step++;
}

static double train_step(trainer *t) { /* the loss before it */
    static parameters gradient;
    static batch b;
    draw_batch(&b, &t->random, 0);
    const double loss = loss_of(&t->p, &b);
    backward(&t->p, &b, &gradient);
    adam(t, &gradient);
    return loss;
}

static int trainer_write(const trainer *t, FILE *file) { return file && fwrite(t, sizeof *t, 1, file) == 1; }
static int trainer_read(trainer *t, FILE *file) {
    return file && fread(t, sizeof *t, 1, file) == 1 && fgetc(file) == EOF && memcmp(t->magic, "dates 1", 8) == 0;
}

/* ---- what it has learned */

static int largest(const float *x, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* Writes the answers character by character, each after those it wrote before. now.weights has where it looked. */
static void translate(const parameters *p, batch *b) {
    for (int n = 0; n < BATCH; n++) memset(b->target[n], '-', TARGET);
    encode(p, b);
    for (int t = 0; t < TARGET; t++) {
        decode(p, b);
        for (int n = 0; n < BATCH; n++) b->target[n][t] = "0123456789-"[largest(now.logits[n * TARGET + t], SYMBOLS)];
    }
}

typedef struct {
    double loss;
    int dates, dates_right, places, places_right;
} marks;

/* On days it was never trained on. A place is right when the largest weight of its row lies on what answers it. */
static marks examine(const parameters *p) {
    static batch b, truth;
    marks m = {0, 0, 0, 0, 0};
    uint64_t random = 2;
    for (int i = 0; i < TESTS; i++) {
        draw_batch(&truth, &random, 1);
        m.loss += loss_of(p, &truth) / TESTS;
        b = truth;
        translate(p, &b);
        for (int n = 0; n < BATCH; n++) {
            m.dates++;
            m.dates_right += strcmp(b.target[n], truth.target[n]) == 0;
            for (int t = 0; t < TARGET; t++) {
                const int place = largest(now.weights[n][t], b.lengths[n]);
                m.places += b.first[n][t] < b.last[n][t];
                m.places_right += place >= b.first[n][t] && place < b.last[n][t];
            }
        }
    }
    return m;
}

typedef struct { /* one date as it was read */
    char source[SOURCE + 1], answer[TARGET + 1];
    float weights[TARGET][SOURCE];
} reading;

static reading read_date(const parameters *p, const char *date) {
    static batch b; /* of one date; the others stay empty */
    reading r;
    memset(&b, 0, sizeof b);
    add_text(&b, 0, date, SOURCE);
    translate(p, &b);
    memcpy(r.source, b.source[0], sizeof r.source);
    memcpy(r.answer, b.target[0], sizeof r.answer);
    memcpy(r.weights, now.weights[0], sizeof r.weights);
    return r;
}

static int put(void *file, const char *s, size_t n) { return fwrite(s, 1, n, (FILE *)file) != n; }

/* Readings of one date side by side. */
static int draw(const reading *r, int count, const char *const *titles, FILE *file, int svg) {
    char letters[SOURCE + TARGET][2];
    const char *ticks[SOURCE + TARGET];
    attn_view values = attn_view_f32(r->weights[0], 3, count, TARGET, (int64_t)strlen(r->source), 0);
    values.stride[0] = (int64_t)(sizeof *r / sizeof(float));
    values.stride[1] = SOURCE;
    const attn_heatmap map = {.values = values,
                              .panel_titles = titles,
                              .x_ticks = ticks,
                              .y_ticks = ticks + SOURCE,
                              .range_set = 1,
                              .range_max = 1,
                              .terminal = !isatty(fileno(file)) ? ATTN_TERMINAL_ASCII
                                          : getenv("COLORTERM") ? ATTN_TERMINAL_TRUECOLOR
                                                                : ATTN_TERMINAL_256};
    for (int i = 0; i < SOURCE + TARGET; i++) {
        const char c = i < SOURCE ? r->source[i] : r[count - 1].answer[i - SOURCE];
        letters[i][0] = (char)(c == ' ' ? '_' : c);
        letters[i][1] = 0;
        ticks[i] = letters[i];
    }
    return (svg ? attn_heatmap_svg : attn_heatmap_ansi)(&map, (attn_writer){put, file}, NULL) == ATTN_OK;
}

static void report(const trainer *t, const marks *m, const reading *r, FILE *out) {
    const char *title = r->answer;
    fprintf(out, "after %d steps: loss on %d dates of unseen days %.6f\n", (int)t->step, m->dates, m->loss);
    fprintf(out, "    %.1f %% read right (%d)\n", 100.0 * m->dates_right / m->dates, m->dates_right);
    fprintf(out, "    %.1f %% of the alignment right (%d of the %d characters whose place is known)\n\n%s\n",
            100.0 * m->places_right / m->places, m->places_right, m->places, r->source);
    draw(r, 1, &title, out, 0);
    fprintf(out, "\n");
}

/* ---- the program */

/* On a terminal a line that is written over, into a file ten lines. Seconds are those of the processor. */
static void progress(FILE *out, uint64_t done, uint64_t all, double loss, clock_t start) {
    const int terminal = isatty(fileno(out)), tenths = (int)(10 * done / all);
    const double seconds = (double)(clock() - start + 1) / (double)CLOCKS_PER_SEC, rate = (double)done / seconds;
    if (!terminal && 10 * (done - 1) / all == 10 * done / all) return;
    fprintf(out, "%s[%.*s%.*s] %d of %d steps, ", terminal ? "\r" : "", tenths, "##########", 10 - tenths, "..........",
            (int)done, (int)all);
    fprintf(out, "loss %.4f, %.0f steps/s, %.0f s left%s", loss, rate, (double)(all - done) / rate,
            terminal && done < all ? "  " : "\n");
    fflush(out);
}

/* Trains up to `steps`; then does the last of them once more from a saved state. 0 = the bits are not the same. */
static int train(trainer *t, uint64_t steps, FILE *out) {
    static trainer again;
    const uint64_t first = t->step, saved = first + RESUMED < steps ? steps - RESUMED : first;
    const clock_t start = clock();
    FILE *file = tmpfile();
    int ok = file != NULL;
    while (t->step < steps) {
        if (t->step == saved) ok = ok && trainer_write(t, file);
        const double loss = train_step(t);
        progress(out, t->step - first, steps - first, loss, start);
    }
    if (ok) rewind(file);
    ok = ok && trainer_read(&again, file);
    while (ok && again.step < steps) train_step(&again);
    if (file) fclose(file);
    return ok && memcmp(t, &again, sizeof again) == 0;
}

typedef struct {
    uint64_t steps;
    const char *load, *save, *svg, *date;
} options;

static int wrong(FILE *log, const char *what, const char *which) {
    fprintf(log, "train_align: WRONG: %s%s\n", what, which);
    return 1;
}

static int set_option(options *o, const char *name, const char *value, FILE *log) {
    int64_t steps;
    if (strcmp(name, "--load") == 0) return o->load = value, 1;
    if (strcmp(name, "--save") == 0) return o->save = value, 1;
    if (strcmp(name, "--svg") == 0) return o->svg = value, 1;
    if (strcmp(name, "--steps") != 0 || !take_whole(log, "train_align", name, value, 0, INT32_MAX, &steps)) return 0;
    o->steps = (uint64_t)steps;
    return 1;
}

static int parse(options *o, int argc, char **argv, FILE *log) {
    for (int i = 1; i < argc; i += 2) {
        if (argv[i][0] != '-') return o->date = argv[i], i == argc - 1 && *o->date && strlen(o->date) <= SOURCE;
        if (i == argc - 1 || !set_option(o, argv[i], argv[i + 1], log)) return 0;
    }
    return 1;
}

/* The exit status: 0, 1 = something failed, 2 = a command line that is not understood. */
static int train_align(int argc, char **argv, FILE *out, FILE *log) {
    static trainer t;
    static const char *const titles[2] = {"before", "after"};
    options o = {STEPS, NULL, NULL, NULL, "the 3rd of May 1994"}; /* a day it is not trained on */
    reading readings[2];
    FILE *file;
    int bad = 0, done;
    if (!parse(&o, argc, argv, log)) {
        fprintf(log, "usage: train_align [--steps N] [--load FILE] [--save FILE] [--svg FILE] [DATE]\n");
        return 2;
    }
    trainer_start(&t, 1);
    if (o.load) {
        done = trainer_read(&t, file = fopen(o.load, "rb"));
        if (file) fclose(file);
        if (!done) return wrong(log, "no state of this program: ", o.load);
    }
    const int from_start = t.step == 0, trains = t.step < o.steps;
    const marks before = examine(&t.p);
    readings[0] = read_date(&t.p, o.date);
    fprintf(out, "%d parameters, ", (int)PARAMETERS);
    report(&t, &before, &readings[0], out);
    if (trains && !train(&t, o.steps, out)) bad += wrong(log, "resumed training gave other bits", "");
    else if (trains) fprintf(out, "the last steps once more, from a saved state: the same bits\n\n");
    const marks after = trains ? examine(&t.p) : before;
    readings[1] = read_date(&t.p, o.date);
    if (trains) report(&t, &after, &readings[1], out);
    if (from_start && !(after.loss <= 0.1 * before.loss)) bad += wrong(log, "the loss did not fall to a tenth", "");
    if (after.dates_right * 10 < after.dates * 9) bad += wrong(log, "less than 90 % of the dates are read right", "");
    if (after.places_right * 20 < after.places * 19) bad += wrong(log, "less than 95 % of the alignment is right", "");
    if (o.svg) {
        done = (file = fopen(o.svg, "wb")) && draw(readings, 2, titles, file, 1);
        if (!file || fclose(file) != 0 || !done) bad += wrong(log, "cannot write ", o.svg);
        else fprintf(out, "as a picture: %s\n", o.svg);
    }
    if (o.save) {
        done = trainer_write(&t, file = fopen(o.save, "wb"));
        if (!file || fclose(file) != 0 || !done) bad += wrong(log, "cannot write ", o.save);
    }
    if (fflush(out) || ferror(out)) bad += wrong(log, "the output is lost", "");
    return bad != 0;
}

int main(int argc, char **argv) { return train_align(argc, argv, stdout, stderr); }
