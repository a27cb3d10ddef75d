/* cc -O2 tiny_gpt.c -lm */
/* A small transformer learns to write like the text it reads, one character after the other. By default it reads
   README.md and attn.h themselves, from the working directory: run it from the top of the tree, or name a text.

       tiny_gpt [--full] [--steps N] [--checkpoint FILE] [--export FILE] [--svg FILE] [TEXT...]

   Characters become vectors; LAYERS times causal attention (grouped heads, rotary positions) and a gated network
   (SwiGLU) are added to them, each after an RMS norm; the vectors of the characters, again, turn the result into
   scores of what comes next. Trained by AdamW. Everything attends and multiplies through attn.h, forward and
   backward; the rest is plain C. With
   -fopenmp (cc -O2 -fopenmp tiny_gpt.c -lm) the work of a step is spread over the cores. The bits of the result
   depend neither on the number of threads nor on the machine.

       --full               trains for some minutes on two cores, instead of some seconds
       --steps N            trains for N steps
       --checkpoint FILE    is written now and then and at the end; where it exists, training goes on from there
       --export FILE        writes the model as generate.c and other small C programs read it
       --svg FILE           draws what each head attends to

   It checks itself and exits with 1 when something is wrong: training that goes on from a checkpoint must give the
   same bits as training without a break, and with the default text and steps the bounds below must hold. */
#define ATTN_IMPLEMENTATION
#include "../attn.h"
#include "numbers.h"
#include <ctype.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#define PARALLEL_FOR _Pragma("omp parallel for if (spread)")
#define SECONDS omp_get_wtime()
#else
#include <time.h>
#define PARALLEL_FOR
#define SECONDS ((double)clock() / CLOCKS_PER_SEC)
#endif

/* Machines with a fused multiply-add get other bits where the compiler makes one of a*b + c. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

enum {
    LAYERS = 2,
    HEADS = 4,
    KV_HEADS = 2, /* of keys and values */
    WIDTH = 64,   /* numbers that stand for a character */
    HEAD = WIDTH / HEADS,
    ALL_HEADS = (HEADS + 2 * KV_HEADS) * HEAD, /* queries, keys and values, side by side */
    HIDDEN = 176,                              /* between the two layers of a network */
    VOCABULARY = 256,                          /* characters are bytes */
    CONTEXT = 256,                             /* characters that see each other in training */
    SEQUENCES = 1,                             /* of that length in a shard */
    SHARDS = 4, /* of a step. Each has its own gradient, so that it does not matter who computes which */
    TOKENS = SEQUENCES * CONTEXT,
    STRETCH = 512, /* of every HELD_OUT stretches of the text the last one is kept for the test */
    HELD_OUT = 20,
    SAMPLES = SHARDS, /* texts written in the end, of so many characters */
    SAMPLE_SIZE = 256,
    MAP = 32, /* characters in the picture of the attention */
    LONGEST_PATH = 4000
};

/* The bounds. loss: at most this on the held-out part, in nats per character (guessing: 4.6). words: at least this
   share of the sampled words of three letters or more occurs in the text. */
typedef struct {
    int steps;
    double loss, words;
} goal;
static const goal short_run = {600, 1.8, 0.30}, full_run = {8000, 1.05, 0.60};
static const float learning_rate = 7e-3f, decay_1 = 0.9f, decay_2 = 0.98f, weight_decay = 0.1f, temperature = 0.8f;

/* Floats only, so that the optimizer can see it as one array. Matrices are stored [out,in]. */
typedef struct {
    float norm_1[WIDTH], heads[ALL_HEADS * WIDTH], result[WIDTH * WIDTH];
    float norm_2[WIDTH], gate_up[2 * HIDDEN * WIDTH], down[WIDTH * HIDDEN];
} block;
typedef struct {
    float embedding[VOCABULARY * WIDTH];
    block blocks[LAYERS];
    float norm[WIDTH];
} model;
enum { PARAMETERS = sizeof(model) / sizeof(float) };

/* All that training changes, and so what a checkpoint holds. There is no generator of random numbers in it: they are a
   function of the step. */
typedef struct {
    char format[8];
    uint64_t text_hash;
    int64_t bytes, steps, step; /* of this structure; to do; done */
    float power_1, power_2;     /* of the decays, for Adam's correction of its first steps */
    model parameters, mean, square;
} training;

typedef struct {
    char *bytes; /* ends in 0 */
    int64_t size;
    uint64_t hash;
} corpus;

/* The work of one thread: some sequences, what their forward pass leaves for the backward pass, a gradient. */
typedef struct {
    uint8_t text[SEQUENCES][CONTEXT + 1];
    float stream[2 * LAYERS + 1][TOKENS * WIDTH], normed[2 * LAYERS + 1][TOKENS * WIDTH];
    float heads[LAYERS][TOKENS * ALL_HEADS], mixed[LAYERS][TOKENS * WIDTH];
    float gate_up[LAYERS][TOKENS * 2 * HIDDEN], hidden[LAYERS][TOKENS * HIDDEN];
    float logits[TOKENS * VOCABULARY], log_sum[TOKENS];
    float d_stream[TOKENS * WIDTH], d_normed[TOKENS * WIDTH], d_heads[TOKENS * ALL_HEADS], d_mixed[TOKENS * WIDTH];
    float d_hidden[TOKENS * HIDDEN], d_gate_up[TOKENS * 2 * HIDDEN];
    model gradient;
    double loss;
} shard;

static float cosines[CONTEXT * HEAD / 2], sines[CONTEXT * HEAD / 2]; /* of the rotary positions */
static int spread = 1;                                               /* over the threads; without OpenMP nobody asks */

static void must(attn_status status, const attn_error *err) {
    char text[160];
    if (status == ATTN_OK) return;
    attn_error_string(err, text, sizeof text);
    printf("attn.h refused: %s\n", text);
    exit(1);
}

static uint64_t mix(uint64_t x) { /* random bits as a function of a number (splitmix64) */
    x = (x + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static float uniform(uint64_t x) { return (float)(mix(x) >> 40) / 16777216; }

/* ---- the layers, forward and backward. Gradients of parameters are added to, those of activations written. */

static attn_view matrix(const float *x, int rows, int columns) { return attn_view_f32(x, 2, rows, columns, 0, 0); }
static attn_out matrix_out(float *x, int rows, int columns) { return attn_out_f32(x, 2, rows, columns, 0, 0); }

/* y [rows,out] = x [rows,in] w^T */
static void linear(float *y, const float *x, const float *w, int rows, int in, int out) {
    attn_error err;
    must(attn_bmm(matrix(x, rows, in), attn_view_swap(matrix(w, out, in), 0, 1), matrix_out(y, rows, out), NULL, &err),
         &err);
}

static void linear_backward(float *dx, float *dw, const float *dy, const float *x, const float *w, int rows, int in,
                            int out) {
    attn_out dw_swapped = matrix_out(dw, in, out); /* as w goes into the product */
    attn_error err;
    dw_swapped.stride[0] = 1;
    dw_swapped.stride[1] = in;
    must(attn_bmm_backward(matrix(x, rows, in), attn_view_swap(matrix(w, out, in), 0, 1), matrix(dy, rows, out),
                           matrix_out(dx, rows, in), dw_swapped, 2, NULL, &err),
         &err);
}

static float inverse_size(const float *x) { /* 1 / root mean square */
    float sum = 0;
    for (int i = 0; i < WIDTH; i++) sum += x[i] * x[i];
    return 1 / sqrtf(sum / WIDTH + 1e-5f);
}

static void norm(float *y, const float *x, const float *gain, int rows) {
    for (int t = 0; t < rows; t++, x += WIDTH, y += WIDTH) {
        const float r = inverse_size(x);
        for (int i = 0; i < WIDTH; i++) y[i] = gain[i] * (x[i] * r);
    }
}

/* Adds to dx: the stream goes past the norm too. */
static void norm_backward(float *dx, float *d_gain, const float *dy, const float *x, const float *gain) {
    for (int t = 0; t < TOKENS; t++, x += WIDTH, dx += WIDTH, dy += WIDTH) {
        const float r = inverse_size(x);
        float dot = 0;
        for (int i = 0; i < WIDTH; i++) {
            d_gain[i] += dy[i] * (x[i] * r);
            dot += dy[i] * gain[i] * x[i];
        }
        dot *= r * r / WIDTH;
        for (int i = 0; i < WIDTH; i++) dx[i] += r * (dy[i] * gain[i] - x[i] * dot);
    }
}

/* In rows of ALL_HEADS numbers, some heads from `first` on, as [sequences,heads,length,HEAD]. */
static attn_out some_heads(float *x, int first, int heads, int sequences, int length) {
    return attn_out_rows(x + first * HEAD, sequences, length, heads, HEAD, ALL_HEADS);
}
static attn_view heads_in(float *x, int first, int heads, int sequences, int length) {
    return attn_view_of(some_heads(x, first, heads, sequences, length));
}

/* Queries and keys by their positions; and back, which is the gradient. */
static void turn(float *x, int sequences, int length, uint32_t direction) {
    const attn_out both = some_heads(x, 0, HEADS + KV_HEADS, sequences, length);
    const attn_view none = {0};
    attn_error err;
    must(attn_rope(attn_view_of(both), matrix(cosines, CONTEXT, HEAD / 2), matrix(sines, CONTEXT, HEAD / 2), none,
                   ATTN_ROPE_INTERLEAVED | direction, both, &err),
         &err);
}

/* Causal attention from x [sequences,length,ALL_HEADS] to y [sequences,length,WIDTH] */
static attn_desc attention(float *x, float *y, int sequences, int length) {
    return (attn_desc){.q = heads_in(x, 0, HEADS, sequences, length),
                       .k = heads_in(x, HEADS, KV_HEADS, sequences, length),
                       .v = heads_in(x, HEADS + KV_HEADS, KV_HEADS, sequences, length),
                       .out = attn_out_bshd(y, sequences, length, HEADS, HEAD),
                       .causal = 1};
}

static void attention_backward(float *dx, const float *dy, float *x, float *y) {
    const attn_desc d = attention(x, y, SEQUENCES, CONTEXT);
    const attn_grad grad = {.d_out = attn_view_bshd(dy, SEQUENCES, CONTEXT, HEADS, HEAD),
                            .dq = some_heads(dx, 0, HEADS, SEQUENCES, CONTEXT),
                            .dk = some_heads(dx, HEADS, KV_HEADS, SEQUENCES, CONTEXT),
                            .dv = some_heads(dx, HEADS + KV_HEADS, KV_HEADS, SEQUENCES, CONTEXT)};
    attn_error err;
    must(attn_backward(&d, &grad, &err), &err);
    turn(dx, SEQUENCES, CONTEXT, ATTN_ROPE_INVERSE);
}

static void sigmoid(float *y, const float *x, int n) { /* with the exp of attn.h, which is the same everywhere */
    for (int i = 0; i < n; i++) y[i] = -x[i];
    attn_elementary(ATTN_EXP, y, y, n, ATTN_ISA_AUTO);
    for (int i = 0; i < n; i++) y[i] = 1 / (1 + y[i]);
}

/* y [rows,HIDDEN] = gate * sigmoid(gate) * up, from rows of both */
static void activate(float *y, const float *gate_up, int rows) {
    for (int t = 0; t < rows; t++, y += HIDDEN, gate_up += 2 * HIDDEN) {
        sigmoid(y, gate_up, HIDDEN);
        for (int i = 0; i < HIDDEN; i++) y[i] *= gate_up[i] * gate_up[HIDDEN + i];
    }
}

static void activate_backward(float *dx, const float *dy, const float *gate_up) {
    float s[HIDDEN];
    for (int t = 0; t < TOKENS; t++, dy += HIDDEN, dx += 2 * HIDDEN, gate_up += 2 * HIDDEN) {
        const float *up = gate_up + HIDDEN;
        sigmoid(s, gate_up, HIDDEN);
        for (int i = 0; i < HIDDEN; i++) {
            dx[i] = dy[i] * up[i] * s[i] * (1 + gate_up[i] * (1 - s[i]));
            dx[HIDDEN + i] = dy[i] * gate_up[i] * s[i];
        }
    }
}

/* ---- the model */

static void add(float *y, const float *x, int rows) {
    for (int i = 0; i < rows * WIDTH; i++) y[i] += x[i];
}

/* Logits of the character after each one in s->text. weights: [LAYERS,HEADS,length,length] or NULL. */
static void forward(const model *p, shard *s, int sequences, int length, float *weights) {
    const int rows = sequences * length;
    for (int t = 0; t < rows; t++)
        memcpy(s->stream[0] + t * WIDTH, p->embedding + s->text[t / length][t % length] * WIDTH, WIDTH * sizeof(float));
    for (int l = 0; l < LAYERS; l++) {
        const block *b = &p->blocks[l];
        float *x = s->stream[2 * l], *y = s->stream[2 * l + 1], *z = s->stream[2 * l + 2];
        attn_desc d = attention(s->heads[l], s->mixed[l], sequences, length);
        attn_error err;
        norm(s->normed[2 * l], x, b->norm_1, rows);
        linear(s->heads[l], s->normed[2 * l], b->heads, rows, WIDTH, ALL_HEADS);
        turn(s->heads[l], sequences, length, 0);
        if (weights) d.weights = attn_out_bhsd(weights + l * HEADS * length * length, 1, HEADS, length, length);
        must(attn_forward(&d, &err), &err);
        linear(y, s->mixed[l], b->result, rows, WIDTH, WIDTH);
        add(y, x, rows);

        norm(s->normed[2 * l + 1], y, b->norm_2, rows);
        linear(s->gate_up[l], s->normed[2 * l + 1], b->gate_up, rows, WIDTH, 2 * HIDDEN);
        activate(s->hidden[l], s->gate_up[l], rows);
        linear(z, s->hidden[l], b->down, rows, HIDDEN, WIDTH);
        add(z, y, rows);
    }
    norm(s->normed[2 * LAYERS], s->stream[2 * LAYERS], p->norm, rows);
    linear(s->logits, s->normed[2 * LAYERS], p->embedding, rows, WIDTH, VOCABULARY);
}

/* Its sum over the shard; the logits become its gradient: probabilities, less 1 at the character that came. */
static void loss(shard *s, int sequences) {
    const int rows = sequences * CONTEXT;
    const attn_desc options = {.lse = attn_out_f32(s->log_sum, 3, 1, 1, rows, 0)};
    attn_error err;
    s->loss = 0;
    for (int t = 0; t < rows; t++) s->loss -= s->logits[t * VOCABULARY + s->text[t / CONTEXT][t % CONTEXT + 1]];
    must(attn_softmax(matrix(s->logits, rows, VOCABULARY), matrix_out(s->logits, rows, VOCABULARY), &options, &err),
         &err);
    for (int t = 0; t < rows; t++) {
        s->loss += s->log_sum[t];
        s->logits[t * VOCABULARY + s->text[t / CONTEXT][t % CONTEXT + 1]] -= 1;
    }
}

static void backward(const model *p, shard *s) {
    model *g = &s->gradient;
    memset(g, 0, sizeof *g);
    memset(s->d_stream, 0, sizeof s->d_stream);
    for (int i = 0; i < TOKENS * VOCABULARY; i++) s->logits[i] /= SHARDS * TOKENS; /* the mean of a step */
    linear_backward(s->d_normed, g->embedding, s->logits, s->normed[2 * LAYERS], p->embedding, TOKENS, WIDTH,
                    VOCABULARY);
    norm_backward(s->d_stream, g->norm, s->d_normed, s->stream[2 * LAYERS], p->norm);
    for (int l = LAYERS - 1; l >= 0; l--) {
        const block *b = &p->blocks[l];
        block *gb = &g->blocks[l];
        float *x = s->stream[2 * l], *y = s->stream[2 * l + 1];
        linear_backward(s->d_hidden, gb->down, s->d_stream, s->hidden[l], b->down, TOKENS, HIDDEN, WIDTH);
        activate_backward(s->d_gate_up, s->d_hidden, s->gate_up[l]);
        linear_backward(s->d_normed, gb->gate_up, s->d_gate_up, s->normed[2 * l + 1], b->gate_up, TOKENS, WIDTH,
                        2 * HIDDEN);
        norm_backward(s->d_stream, gb->norm_2, s->d_normed, y, b->norm_2);
        linear_backward(s->d_mixed, gb->result, s->d_stream, s->mixed[l], b->result, TOKENS, WIDTH, WIDTH);
        attention_backward(s->d_heads, s->d_mixed, s->heads[l], s->mixed[l]);
        linear_backward(s->d_normed, gb->heads, s->d_heads, s->normed[2 * l], b->heads, TOKENS, WIDTH, ALL_HEADS);
        norm_backward(s->d_stream, gb->norm_1, s->d_normed, x, b->norm_1);
    }
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < WIDTH; i++)
            g->embedding[s->text[t / CONTEXT][t % CONTEXT] * WIDTH + i] += s->d_stream[t * WIDTH + i];
}

/* ---- the text */

static int fail(const char *name, const char *what) {
    fprintf(stderr, "tiny_gpt: %s: %s\n", name, what);
    return 0;
}

static int read_text(corpus *c, const char *name) { /* after what is there */
    FILE *file = fopen(name, "rb");
    if (!file) return fail(name, "cannot be read");
    fseek(file, 0, SEEK_END);
    const long size = ftell(file);
    char *grown = size < 0 ? NULL : (char *)realloc(c->bytes, (size_t)c->size + (size_t)size + 1);
    if (!grown) return fail(name, "too large, or not a file");
    rewind(file);
    c->bytes = grown;
    c->size += (int64_t)fread(c->bytes + c->size, 1, (size_t)size, file);
    c->bytes[c->size] = 0;
    fclose(file);
    return 1;
}

static int is_long_enough(corpus *c) {
    if (c->size < STRETCH * HELD_OUT) return fail("the text", "too short: some 10 KB are needed");
    for (int64_t i = 0; i < c->size; i++) c->hash = mix(c->hash + (unsigned char)c->bytes[i]);
    return 1;
}

static int is_held_out(int64_t position) { return position / STRETCH % HELD_OUT == HELD_OUT - 1; }

static void pick_sequence(uint8_t *text, const corpus *c, uint64_t number) {
    int64_t start;
    uint64_t tries = mix(number);
    do start = (int64_t)(mix(tries++) % (uint64_t)(c->size - CONTEXT));
    while (is_held_out(start) || is_held_out(start + CONTEXT));
    memcpy(text, c->bytes + start, CONTEXT + 1);
}

/* ---- training */

static void begin(training *t, const corpus *c, int steps) {
    float *p = (float *)&t->parameters;
    memset(t, 0, sizeof *t);
    memcpy(t->format, "tinygpt2", sizeof t->format);
    t->text_hash = c->hash;
    t->bytes = (int64_t)sizeof *t;
    t->steps = steps;
    t->power_1 = t->power_2 = 1;
    for (int i = 0; i < PARAMETERS; i++) { /* normally distributed, nearly: a sum of uniform numbers */
        float sum = 0;
        for (int j = 0; j < 12; j++) sum += uniform((uint64_t)(12 * i + j));
        p[i] = 0.1f * (sum - 6);
    }
    for (int i = 0; i < WIDTH; i++) t->parameters.norm[i] = 1;
    for (int l = 0; l < LAYERS; l++) { /* what a block adds to the stream is nothing at first */
        block *b = &t->parameters.blocks[l];
        for (int i = 0; i < WIDTH; i++) b->norm_1[i] = b->norm_2[i] = 1;
        memset(b->result, 0, sizeof b->result);
        memset(b->down, 0, sizeof b->down);
    }
}

static void adam(training *t, shard *shards) {
    float *p = (float *)&t->parameters, *mean = (float *)&t->mean, *square = (float *)&t->square;
    const float done = (float)t->step / (float)t->steps; /* up for 15 % of the time, then down to 0 */
    const float rate = learning_rate * (done < 0.15f ? done / 0.15f : (1 - done) / 0.85f);
    t->power_1 *= decay_1;
    t->power_2 *= decay_2;
    PARALLEL_FOR
    for (int i = 0; i < PARAMETERS; i++) {
        float g = 0;
        for (int j = 0; j < SHARDS; j++) g += ((const float *)&shards[j].gradient)[i];
        mean[i] = decay_1 * mean[i] + (1 - decay_1) * g;
        square[i] = decay_2 * square[i] + (1 - decay_2) * g * g;
        p[i] -=
            rate * ((mean[i] / (1 - t->power_1)) / (sqrtf(square[i] / (1 - t->power_2)) + 1e-8f) + weight_decay * p[i]);
    }
}

/* One step; returns its loss per character. */
static double train(training *t, const corpus *c, shard *shards) {
    double sum = 0;
    PARALLEL_FOR
    for (int j = 0; j < SHARDS; j++) {
        shard *s = &shards[j];
        for (int i = 0; i < SEQUENCES; i++)
            pick_sequence(s->text[i], c, (uint64_t)((t->step * SHARDS + j) * SEQUENCES + i));
        forward(&t->parameters, s, SEQUENCES, CONTEXT, NULL);
        loss(s, SEQUENCES);
        backward(&t->parameters, s);
    }
    for (int j = 0; j < SHARDS; j++) sum += shards[j].loss;
    adam(t, shards);
    t->step++;
    return sum / (SHARDS * TOKENS);
}

static int save(const training *t, FILE *file) { return file && fwrite(t, sizeof *t, 1, file) == 1; }

static int are_between(const model *m, float low, float high) { /* not so for NaN */
    int ok = 1;
    for (int i = 0; i < PARAMETERS; i++) ok = ok && ((const float *)m)[i] >= low && ((const float *)m)[i] <= high;
    return ok;
}

/* Could training have left this? */
static int is_plausible(const training *t) {
    return t->step >= 0 && t->step <= t->steps && t->power_1 >= 0 && t->power_1 <= 1 && t->power_2 >= 0 &&
           t->power_2 <= 1 && are_between(&t->parameters, -FLT_MAX, FLT_MAX) &&
           are_between(&t->mean, -FLT_MAX, FLT_MAX) && are_between(&t->square, 0, FLT_MAX);
}

/* A checkpoint of this text, these sizes and as many steps, and nothing after it; else t is as it was. */
static int load(training *t, FILE *file) {
    static training read;
    if (!file || fread(&read, sizeof read, 1, file) != 1 || fgetc(file) != EOF) return 0;
    if (memcmp(&read, t, offsetof(training, step)) != 0 || !is_plausible(&read)) return 0;
    memcpy(t, &read, sizeof read);
    return 1;
}

static int save_as(const training *t, const char *name) { /* whoever stops the program keeps the old one or the new */
    char path[LONGEST_PATH + 8];
    snprintf(path, sizeof path, "%s.new", name);
    FILE *file = fopen(path, "wb");
    int ok = save(t, file);
    if (file && fclose(file) != 0) ok = 0;
    if (ok && rename(path, name) != 0) ok = remove(name) == 0 && rename(path, name) == 0; /* as Windows wants it */
    return ok || fail(name, "cannot be written");
}

/* All steps that are left, a line now and then. */
static int train_all(training *t, const corpus *c, shard *shards, const char *checkpoint) {
    const double start = SECONDS;
    const int64_t first = t->step, every = t->steps < 20 ? 1 : t->steps / 20;
    double sum = 0;
    int ok = 1;
    for (int64_t count = 1; ok && t->step < t->steps; count++) {
        sum += train(t, c, shards);
        if (t->step % every != 0 && t->step != t->steps) continue;
        const double per_step = (SECONDS - start) / (double)(t->step - first);
        printf("step %5ld of %ld, loss %.3f, %.1f thousand characters/s, %.0f s left\n", (long)t->step, (long)t->steps,
               sum / (double)count, 1e-3 * SHARDS * TOKENS / per_step, per_step * (double)(t->steps - t->step));
        fflush(stdout);
        sum = 0;
        count = 0;
        if (checkpoint) ok = save_as(t, checkpoint);
    }
    return ok;
}

/* ---- results */

/* Four steps in one go; and the last two again, from a checkpoint and by one thread: 1 if the bits are the same. */
static int resumes(const training *t, const corpus *c, shard *shards) {
    static training straight, resumed;
    FILE *file = tmpfile();
    memcpy(&straight, t, sizeof straight);
    memcpy(&resumed, t, sizeof resumed);
    straight.steps = resumed.steps = 4; /* of how many it may have to do */
    for (int i = 0; i < 2; i++) train(&straight, c, shards);
    int ok = save(&straight, file);
    for (int i = 0; i < 2; i++) train(&straight, c, shards);
    if (file) rewind(file);
    ok = ok && load(&resumed, file);
    spread = 0;
    for (int i = 0; i < 2; i++) train(&resumed, c, shards);
    spread = 1;
    if (file) fclose(file);
    return ok && memcmp(&straight, &resumed, sizeof straight) == 0;
}

static double held_out_loss(const model *p, const corpus *c, shard *s) {
    double sum = 0;
    int64_t count = 0;
    for (int64_t i = 0; i + CONTEXT < c->size; i += CONTEXT) {
        if (!is_held_out(i) || !is_held_out(i + CONTEXT)) continue;
        memcpy(s->text[0], c->bytes + i, CONTEXT + 1);
        forward(p, s, 1, CONTEXT, NULL);
        loss(s, 1);
        sum += s->loss;
        count += CONTEXT;
    }
    return sum / (double)count;
}

/* text [SAMPLE_SIZE + 1], drawn character by character after a line feed. */
static void write_sample(char *text, const model *p, shard *s, uint64_t number) {
    uint8_t *window = s->text[0];
    const attn_desc options = {.scale = 1 / temperature};
    attn_error err;
    int length = 1;
    window[0] = '\n';
    for (int i = 0; i < SAMPLE_SIZE; i++) {
        float *chance = s->logits + (length - 1) * VOCABULARY, u = uniform((number << 32) + (uint64_t)i);
        int symbol = 0;
        forward(p, s, 1, length, NULL);
        must(attn_softmax(matrix(chance, 1, VOCABULARY), matrix_out(chance, 1, VOCABULARY), &options, &err), &err);
        while (symbol < VOCABULARY - 1 && (u -= chance[symbol]) >= 0) symbol++;
        text[i] = (char)symbol;
        if (length == CONTEXT) memmove(window, window + 1, CONTEXT - 1);
        else length++;
        window[length - 1] = (uint8_t)symbol;
    }
    text[SAMPLE_SIZE] = 0;
}

static int is_letter(char byte) { return isalpha((unsigned char)byte); }

static int occurs(const char *word, size_t length, const char *text) { /* as a whole word */
    char copy[SAMPLE_SIZE + 1];
    memcpy(copy, word, length);
    copy[length] = 0;
    for (const char *at = text; (at = strstr(at, copy)) != NULL; at++)
        if (!is_letter(at[length]) && (at == text || !is_letter(at[-1]))) return 1;
    return 0;
}

/* Words of three letters or more that end in this sample; *known: those that occur in the text. */
static int count_words(const char *sample, const char *text, int *known) {
    int words = 0;
    for (const char *p = sample, *end; *p; p = end + 1) {
        for (end = p; is_letter(*end);) end++;
        if (!*end) break; /* perhaps there is more of it */
        if (end - p < 3) continue;
        words++;
        *known += occurs(p, (size_t)(end - p), text);
    }
    return words;
}

static int put(void *file, const char *text, size_t n) { return fwrite(text, 1, n, (FILE *)file) != n; }

static int draw(const model *p, const corpus *c, shard *s, const char *name) {
    static float weights[LAYERS * HEADS * MAP * MAP];
    static char letters[MAP][3], titles[LAYERS * HEADS][40];
    const char *ticks[MAP], *panel_titles[LAYERS * HEADS];
    attn_heatmap map = {0};
    attn_writer writer = {put, NULL};
    attn_error err;
    memcpy(s->text[0], c->bytes, MAP);
    forward(p, s, 1, MAP, weights);
    for (int i = 0; i < MAP; i++) {
        const char byte = c->bytes[i];
        memcpy(letters[i], byte == '\n' ? "\\n" : (char[]){byte, 0, 0}, 3);
        ticks[i] = letters[i];
    }
    for (int i = 0; i < LAYERS * HEADS; i++) {
        snprintf(titles[i], sizeof titles[i], "layer %d, head %d", i / HEADS + 1, i % HEADS + 1);
        panel_titles[i] = titles[i];
    }
    map.values = attn_view_f32(weights, 4, LAYERS, HEADS, MAP, MAP);
    map.panel_titles = panel_titles;
    map.x_ticks = map.y_ticks = ticks;
    map.x_label = "Characters attended to";
    map.y_label = "Characters that attend";
    map.width = 1900;
    if (!(writer.user = fopen(name, "wb"))) return fail(name, "cannot be written");
    must(attn_heatmap_svg(&map, writer, &err), &err);
    if (fclose((FILE *)writer.user) != 0) return fail(name, "cannot be written");
    printf("what each head attends to: %s\n", name);
    return 1;
}

/* A tensor of each layer, the floats from `first` on of a block. */
static int put_layers(FILE *file, const model *p, size_t first, size_t count) {
    int ok = 1;
    for (int l = 0; l < LAYERS; l++)
        ok = ok && fwrite((const float *)&p->blocks[l] + first, sizeof(float), count, file) == count;
    return ok;
}

/* The sizes, then the tensors in the order of generate_loop.h. */
static int export_as(const model *p, const char *name) {
    static const int32_t sizes[] = {WIDTH, HIDDEN, LAYERS, HEADS, KV_HEADS, VOCABULARY, CONTEXT};
    enum { F = sizeof(float), Q = WIDTH * WIDTH, K = KV_HEADS * HEAD * WIDTH, H = HIDDEN * WIDTH };
    const size_t heads = offsetof(block, heads) / F, gate = offsetof(block, gate_up) / F;
    FILE *file = fopen(name, "wb");
    int ok = file && fwrite(sizes, sizeof sizes, 1, file) == 1 &&
             fwrite(p->embedding, sizeof p->embedding, 1, file) == 1 &&
             put_layers(file, p, offsetof(block, norm_1) / F, WIDTH) && put_layers(file, p, heads, Q) &&
             put_layers(file, p, heads + Q, K) && put_layers(file, p, heads + Q + K, K) &&
             put_layers(file, p, offsetof(block, result) / F, Q) &&
             put_layers(file, p, offsetof(block, norm_2) / F, WIDTH) && put_layers(file, p, gate, H) &&
             put_layers(file, p, offsetof(block, down) / F, H) && put_layers(file, p, gate + H, H) &&
             fwrite(p->norm, sizeof p->norm, 1, file) == 1 && fwrite(cosines, sizeof cosines, 1, file) == 1 &&
             fwrite(sines, sizeof sines, 1, file) == 1;
    if (file && fclose(file) != 0) ok = 0;
    return ok || fail(name, "cannot be written");
}

/* ---- the command line */

static int is(const char *a, const char *b) { return strcmp(a, b) == 0; }

static int parse_steps(const char *text) { /* 0: not a number of steps */
    int64_t steps = 0;
    return take_whole(stderr, "tiny_gpt", "--steps", text, 1, INT_MAX - 1, &steps) ? (int)steps : 0;
}

int main(int argc, char **argv) {
    static training t;
    static shard shards[SHARDS];
    static corpus c;
    static char samples[SAMPLES][SAMPLE_SIZE + 1];
    const char *checkpoint = NULL, *exported = NULL, *svg = NULL;
    attn_error err;
    goal wanted = short_run;
    int ok = 1, bounded = 1, words = 0, known = 0;

    for (int i = 1; ok && i < argc; i++) {
        if (is(argv[i], "--full")) wanted = full_run;
        else if (strncmp(argv[i], "--", 2) != 0) {
            if (!read_text(&c, argv[i])) return 1;
            bounded = 0;
        } else if (i + 1 == argc) ok = 0;
        else if (is(argv[i], "--steps")) ok = (wanted.steps = parse_steps(argv[++i])) > 0, bounded = 0;
        else if (is(argv[i], "--checkpoint")) ok = strlen(checkpoint = argv[++i]) <= LONGEST_PATH;
        else if (is(argv[i], "--export")) exported = argv[++i];
        else if (is(argv[i], "--svg")) svg = argv[++i];
        else ok = 0;
    }
    if (!ok) {
        fprintf(stderr,
                "usage: tiny_gpt [--full] [--steps N] [--checkpoint FILE] [--export FILE] [--svg FILE] [TEXT...]\n");
        return 2;
    }
    if (!c.size && !(read_text(&c, "README.md") && read_text(&c, "attn.h")))
        return fail("the default text", "run from the directory of README.md and attn.h, or name another"), 1;
    if (!is_long_enough(&c)) return 1;
    must(attn_rope_table(matrix_out(cosines, CONTEXT, HEAD / 2), matrix_out(sines, CONTEXT, HEAD / 2), NULL, &err),
         &err);
    begin(&t, &c, wanted.steps);
    printf("%ld characters; %d parameters\n", (long)c.size, PARAMETERS);
    if (!resumes(&t, &c, shards)) ok = fail("WRONG", "from a checkpoint training goes on with other bits");
    FILE *file = checkpoint ? fopen(checkpoint, "rb") : NULL;
    if (file) {
        if (!load(&t, file)) return fail(checkpoint, "not a checkpoint of this text and number of steps"), 1;
        fclose(file);
        printf("going on from %s\n", checkpoint);
    }
    if (!train_all(&t, &c, shards, checkpoint)) return 1;

    PARALLEL_FOR
    for (int i = 0; i < SAMPLES; i++) write_sample(samples[i], &t.parameters, &shards[i], (uint64_t)i);
    for (int i = 0; i < SAMPLES; i++) {
        printf("---- sample %d\n%s\n", i + 1, samples[i]);
        words += count_words(samples[i], c.bytes, &known);
    }
    const double held_out = held_out_loss(&t.parameters, &c, shards), share = words ? (double)known / words : 0;
    printf("----\nthe held-out part: %.4f nats a character", held_out);
    printf(bounded ? " (at most %.2f)\n" : "\n", wanted.loss);
    printf("words that occur in the text: %d of %d, %.1f %%", known, words, 100 * share);
    printf(bounded ? " (at least %.0f %%)\n" : "\n", 100 * wanted.words);
    if (exported) ok = export_as(&t.parameters, exported) && ok;
    if (svg) ok = draw(&t.parameters, &c, shards, svg) && ok;
    if (bounded && !(held_out <= wanted.loss)) ok = fail("WRONG", "the loss is above its bound");
    if (bounded && !(share >= wanted.words)) ok = fail("WRONG", "too many words that do not occur in the text");
    free(c.bytes);
    return !ok || fflush(stdout) || ferror(stdout); /* an output that is lost fails, too */
}
