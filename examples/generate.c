/* cc -O2 generate.c -lm */
/* Writes text with a transformer, as inference programs do: prompts of unequal lengths are read in packed form, all at
   once; then each gets a token at a time, and a cache holds the keys and values of what was before.

       generate                       checks itself on a small model of random numbers
       generate MODEL [PROMPT...]     goes on with the prompts
       generate --measure             compares its speed with a plain loop's (make demo-generate)

   MODEL is a checkpoint as small C programs read it: seven int32, then floats (see generate_loop.h); `tiny_gpt --export
   MODEL` writes one. A token is a byte. Grouped heads, rotary positions, RMS norms, SwiGLU. Options, which change the
   speed and the memory but, except for the first three, not one byte of the text:

       --cache f32|bf16|int8          what keys and values are kept as
       --weights f32|bf16|int8        what matrices are kept as
       --temperature T, --seed N      0: the most probable token (the default); else drawn
       --tokens N                     so many for each prompt
       --page N                       the cache is made of pages of N rows, taken as texts grow; 0: one piece per text
       --batch N, --threads N         prompts, and tasks, that run at once

   It checks itself: each prompt has the same text with every instruction set, number of threads, batch and page size,
   and the numbers of the plain loop are these, nearly. It exits with 1 when something is wrong. */
#define _POSIX_C_SOURCE 200112L
#define ATTN_IMPLEMENTATION
#include "../attn.h"
#include "generate_loop.h"
#include "numbers.h"
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Machines with a fused multiply-add get other bits where the compiler makes one of a*b + c. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

enum { MOST_PROMPTS = 64, MOST_THREADS = 16 };

/* How a text is generated. */
typedef struct {
    int32_t isa, threads, batch, page, cache, weights; /* the last two: attn_type */
    float temperature;
    uint64_t seed;
} manner;

typedef struct { /* a matrix [1,1,out,in] and, for int8, its scales [1,1,out,1] */
    attn_view rows, scale;
} matrix;
enum { TO_HEADS, FROM_HEADS, TO_HIDDEN, FROM_HIDDEN, MATRICES }; /* of a layer; the first: queries, keys and values */

typedef union block { /* of memory, in a list; what it holds lies after it, where a line of the cache begins */
    union block *next;
    char line[64];
} block;

/* Some prompts on their way through the model. A step takes `counts[b]` more tokens of each, all of them side by side
   as `rows` rows, those of prompt b from starts[b] on. */
typedef struct {
    const model *m;
    manner how;
    matrix *w[MATRICES], output;                        /* [layers] each */
    float *cosines, *sines;                             /* [length,head/2] */
    int32_t *starts, *counts, *lengths, *ends;          /* [batch]; lengths: before the step, ends: after */
    int32_t batch, rows, *positions, *table;            /* [rows], [batch,pages] */
    int64_t pieces, piece, pages, pages_used;           /* of the cache: so many of so many rows each */
    char *keys, *values;                                /* [layers,pieces,kv_heads,piece,head] */
    float *key_scales, *value_scales;                   /* [layers,pieces,kv_heads,piece,1] */
    float *x, *y, *z, *qkv, *gate_up, *hidden, *logits; /* [rows,...]; logits [batch,vocabulary] */
    void *workspace;
    size_t workspace_bytes;
    double attention; /* seconds */
    block *blocks;    /* all of its memory */
} decoder;

static attn_error err; /* of the latest call */

static void must(attn_status status) {
    char text[160];
    if (status == ATTN_OK) return;
    attn_error_string(&err, text, sizeof text);
    printf("attn.h refused: %s\n", text);
    exit(1);
}

/* Zeros, until the decoder ends. */
static void *room(decoder *d, int64_t count, int64_t size) {
    const size_t bytes = sizeof(block) + (size_t)(count * size);
    void *memory;
    if (posix_memalign(&memory, sizeof(block), bytes) != 0) {
        fprintf(stderr, "generate: no memory\n");
        exit(1);
    }
    block *b = (block *)memset(memory, 0, bytes);
    b->next = d->blocks;
    d->blocks = b;
    return b + 1;
}
static float *floats(decoder *d, int64_t count) { return (float *)room(d, count, sizeof(float)); }
static int32_t *integers(decoder *d, int64_t count) { return (int32_t *)room(d, count, sizeof(int32_t)); }

static int64_t size_of(int32_t type) { return type == ATTN_F32 ? 4 : type == ATTN_I8 ? 1 : 2; }
static const char *name_of(int32_t type) { return type == ATTN_F32 ? "f32" : type == ATTN_BF16 ? "bf16" : "int8"; }
static int64_t head_of(const model *m) { return m->sizes.width / m->sizes.heads; }
static int64_t width_of_heads(const model *m) { return head_of(m) * (m->sizes.heads + 2 * m->sizes.kv_heads); }

static uint64_t mix(uint64_t x) { /* random bits as a function of a number (splitmix64) */
    x = (x + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}
static float uniform(uint64_t x) { return (float)(mix(x) >> 40) / 16777216; }

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int fail(const char *what) {
    fprintf(stderr, "generate: %s\n", what);
    return 0;
}

/* ---- threads. These start and end with each call, which costs more than it brings where models are small; a program
   that stays has a pool, as in threads.c. */

typedef struct {
    attn_task_fn task;
    void *arg;
    int64_t count;
    int32_t worker, workers;
} share;

static void *run_share(void *user) {
    const share *s = (const share *)user;
    for (int64_t i = s->worker; i < s->count; i += s->workers) s->task(s->arg, i, s->worker);
    return NULL;
}

static void run_tasks(void *user, int64_t count, attn_task_fn task, void *arg) {
    const int32_t wanted = *(const int32_t *)user, workers = count < wanted ? (int32_t)count : wanted;
    share shares[MOST_THREADS];
    pthread_t threads[MOST_THREADS];
    int started[MOST_THREADS] = {0};
    for (int32_t i = 0; i < workers; i++) {
        const share one = {task, arg, count, i, workers};
        shares[i] = one;
        if (i > 0) started[i] = pthread_create(&threads[i], NULL, run_share, &shares[i]) == 0;
    }
    for (int32_t i = 0; i < workers; i++) { /* its own, and those for which there was no thread */
        if (started[i]) pthread_join(threads[i], NULL);
        else run_share(&shares[i]);
    }
}

/* ---- the layers */

static attn_view numbers(const int32_t *x, int64_t count) { return attn_view_i32(x, 1, count, 0, 0, 0); }

static attn_desc options(decoder *d) { /* what all calls have in common */
    attn_desc o = {0};
    o.isa = d->how.isa;
    o.workspace = d->workspace;
    o.workspace_bytes = d->workspace_bytes;
    if (d->how.threads > 1) {
        o.parallel.run = run_tasks;
        o.parallel.user = &d->how.threads;
        o.parallel.workers = d->how.threads;
    }
    return o;
}

/* out [rows,n] = x [rows,.] w^T. A product of some rows with the rows of a matrix is what attention begins with: raw
   scores, with the weights as keys. For few rows that is faster than attn_bmm (of the same bits), and takes int8. */
static attn_desc product_of(decoder *d, float *out, const float *x, int64_t rows, const matrix *w) {
    attn_desc o = options(d);
    o.score = ATTN_SCORE_DOT;
    o.q = attn_view_f32(x, 4, 1, 1, rows, w->rows.size[3]);
    o.k = w->rows;
    o.k_scale = w->scale;
    o.scores = attn_out_f32(out, 4, 1, 1, rows, w->rows.size[2]);
    return o;
}
static void multiply(decoder *d, float *out, const float *x, int64_t rows, const matrix *w) {
    const attn_desc o = product_of(d, out, x, rows, w);
    must(attn_scores(o.q, o.k, o.scores, &o, &err));
}

static void norm(float *y, const float *x, const float *gain, int32_t rows, int32_t width) {
    for (int32_t t = 0; t < rows; t++, x += width, y += width) {
        float sum = 0;
        for (int32_t i = 0; i < width; i++) sum += x[i] * x[i];
        const float r = 1 / sqrtf(sum / (float)width + 1e-5f);
        for (int32_t i = 0; i < width; i++) y[i] = gain[i] * (x[i] * r);
    }
}

/* hidden = gate * sigmoid(gate) * up. The library's exp has the same bits on every machine. */
static void activate(decoder *d, int32_t rows) {
    const int32_t hidden = d->m->sizes.hidden;
    const float *gate = d->gate_up, *up = gate + hidden;
    float *y = d->hidden;
    for (int32_t t = 0; t < rows; t++, gate += 2 * hidden, up += 2 * hidden, y += hidden) {
        for (int32_t i = 0; i < hidden; i++) y[i] = -gate[i];
        attn_elementary(ATTN_EXP, y, y, hidden, (attn_isa)d->how.isa);
        for (int32_t i = 0; i < hidden; i++) y[i] = gate[i] / (1 + y[i]) * up[i];
    }
}

/* Prompts whose steps are of one size, as those of one token are, are a batch as any other: [batch,heads,n,head].
   Others are packed, one after the other: [1,heads,rows,head]. */
static int is_packed(const decoder *d) {
    for (int32_t b = 1; b < d->batch; b++)
        if (d->counts[b] != d->counts[0]) return 1;
    return 0;
}
static attn_out heads_of(const decoder *d, float *x, int32_t heads, int64_t row) { /* side by side in such a row */
    const int32_t outer = is_packed(d) ? 1 : d->batch;
    return attn_out_rows(x, outer, d->rows / outer, heads, head_of(d->m), row);
}

/* One layer's part of the cache, as [pieces,kv_heads,piece,columns]. */
static attn_out cache_of(const decoder *d, void *x, int32_t type, int32_t n, int64_t columns) {
    const int64_t heads = d->m->sizes.kv_heads;
    return attn_out_typed((attn_type)type, (char *)x + n * d->pieces * heads * d->piece * columns * size_of(type), 4,
                          d->pieces, heads, d->piece, columns);
}

/* The attention of layer n, from d->q to d->y, over the cache, which has the new keys already. */
static attn_desc attention_of(decoder *d, int32_t n) {
    const int64_t head = head_of(d->m);
    attn_desc o = options(d);
    o.q = attn_view_of(heads_of(d, d->qkv, d->m->sizes.heads, width_of_heads(d->m)));
    o.k = attn_view_of(cache_of(d, d->keys, d->how.cache, n, head));
    o.v = attn_view_of(cache_of(d, d->values, d->how.cache, n, head));
    o.out = heads_of(d, d->y, d->m->sizes.heads, d->m->sizes.width);
    if (d->how.cache == ATTN_I8) {
        o.k_scale = attn_view_of(cache_of(d, d->key_scales, ATTN_F32, n, 1));
        o.v_scale = attn_view_of(cache_of(d, d->value_scales, ATTN_F32, n, 1));
    }
    if (d->how.page) o.page_table = attn_view_i32(d->table, 2, d->batch, d->pages, 0, 0);
    if (is_packed(d)) {
        o.query_starts = numbers(d->starts, d->batch);
        o.query_lengths = numbers(d->counts, d->batch);
    }
    o.key_lengths = numbers(d->ends, d->batch);
    o.causal = 1;
    o.align = ATTN_ALIGN_BOTTOM_RIGHT; /* the last query is at the last key */
    return o;
}

/* Queries and keys are turned by their positions, keys and values go into the cache, then all that is there attends. */
static void attend(decoder *d, int32_t n) {
    const int64_t head = head_of(d->m), row = width_of_heads(d->m), length = d->m->sizes.length;
    const int32_t heads = d->m->sizes.heads, kv_heads = d->m->sizes.kv_heads;
    const attn_desc o = attention_of(d, n);
    const attn_view lengths = numbers(d->lengths, d->batch);
    float *k = d->qkv + heads * head, *v = k + kv_heads * head;
    const attn_out turned = heads_of(d, d->qkv, heads + kv_heads, row); /* what is side by side needs one call */
    attn_desc where = options(d);
    must(attn_rope_with(attn_view_of(turned), attn_view_f32(d->cosines, 2, length, head / 2, 0, 0),
                        attn_view_f32(d->sines, 2, length, head / 2, 0, 0),
                        attn_view_i32(d->positions, 2, turned.size[0], turned.size[2], 0, 0), ATTN_ROPE_INTERLEAVED,
                        turned, &where, &err));

    const double start = now();
    where.query_starts = o.query_starts;
    where.query_lengths = o.query_lengths;
    where.page_table = o.page_table;
    where.k_scale = o.k_scale;
    must(attn_append(attn_view_of(heads_of(d, k, kv_heads, row)), cache_of(d, d->keys, d->how.cache, n, head), lengths,
                     &where, &err));
    memset(&where.k_scale, 0, sizeof where.k_scale);
    where.v_scale = o.v_scale;
    must(attn_append(attn_view_of(heads_of(d, v, kv_heads, row)), cache_of(d, d->values, d->how.cache, n, head),
                     lengths, &where, &err));
    must(attn_forward(&o, &err));
    d->attention += now() - start;
}

/* Where the rows of the next step are; pages for them. */
static void place_rows(decoder *d) {
    int32_t rows = 0;
    for (int32_t b = 0; b < d->batch; b++) {
        d->starts[b] = rows;
        d->ends[b] = d->lengths[b] + d->counts[b];
        for (int32_t i = 0; i < d->counts[b]; i++) d->positions[rows++] = d->lengths[b] + i;
        if (!d->how.page) continue;
        for (int64_t p = (d->lengths[b] + d->piece - 1) / d->piece; p * d->piece < d->ends[b]; p++)
            d->table[b * d->pages + p] = (int32_t)d->pages_used++;
    }
    d->rows = rows;
}

static void add(float *x, const float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] += y[i];
}

/* tokens [rows]: the next d->counts[b] of each prompt. Leaves logits of what comes after them. */
static void step(decoder *d, const int32_t *tokens) {
    const model *m = d->m;
    const int32_t width = m->sizes.width;
    place_rows(d);
    const int32_t rows = d->rows;
    for (int32_t t = 0; t < rows; t++)
        memcpy(d->x + t * width, m->embedding + (int64_t)tokens[t] * width, (size_t)width * sizeof(float));
    for (int32_t n = 0; n < m->sizes.layers; n++) {
        norm(d->y, d->x, m->norm_1 + n * width, rows, width);
        multiply(d, d->qkv, d->y, rows, &d->w[TO_HEADS][n]);
        attend(d, n);
        multiply(d, d->z, d->y, rows, &d->w[FROM_HEADS][n]);
        add(d->x, d->z, (int64_t)rows * width);

        norm(d->y, d->x, m->norm_2 + n * width, rows, width);
        multiply(d, d->gate_up, d->y, rows, &d->w[TO_HIDDEN][n]);
        activate(d, rows);
        multiply(d, d->z, d->hidden, rows, &d->w[FROM_HIDDEN][n]);
        add(d->x, d->z, (int64_t)rows * width);
    }
    for (int32_t b = 0; b < d->batch; b++) { /* of each prompt the last row is of interest */
        norm(d->y + b * width, d->x + (d->starts[b] + d->counts[b] - 1) * width, m->norm, 1, width);
        d->lengths[b] = d->ends[b];
    }
    multiply(d, d->logits, d->y, d->batch, &d->output);
}

/* ---- a decoder from beginning to end */

/* A matrix of rows of size `in`, those of some matrices one below the other, in the type that was asked for. */
static matrix put_matrix(decoder *d, char **at, int64_t in, const float *const *parts, const int64_t *outs, int count) {
    const attn_type type = (attn_type)d->how.weights;
    const attn_desc o = options(d);
    matrix w = {{0}, {0}};
    int64_t out = 0, first = 0;
    for (int i = 0; i < count; i++) out += outs[i];
    const attn_out all = attn_out_typed(type, *at, 4, 1, 1, out, in);
    const attn_out scale = attn_out_f32(type == ATTN_I8 ? floats(d, out) : NULL, 4, 1, 1, out, 1);
    for (int i = 0; i < count; first += outs[i++]) {
        const attn_view part = attn_view_f32(parts[i], 4, 1, 1, outs[i], in);
        const attn_out to = attn_out_slice(all, 2, first, outs[i]);
        if (type == ATTN_I8) must(attn_quantize_with(part, to, attn_out_slice(scale, 2, first, outs[i]), &o, &err));
        else must(attn_convert_with(part, to, &o, &err));
    }
    *at += out * in * size_of(type);
    w.rows = attn_view_of(all);
    if (type == ATTN_I8) w.scale = attn_view_of(scale);
    return w;
}

/* All matrices in the order of their use, so that what is read ahead is what comes next. */
static void set_weights(decoder *d) {
    const model *m = d->m;
    const int64_t layers = m->sizes.layers, width = m->sizes.width, hidden = m->sizes.hidden, all = m->sizes.vocabulary;
    const int64_t kv = head_of(m) * m->sizes.kv_heads, heads[] = {width, kv, kv}, two[] = {hidden, hidden};
    char *at =
        (char *)room(d, layers * width * (2 * width + 2 * kv + 3 * hidden) + all * width, size_of(d->how.weights));
    for (int i = 0; i < MATRICES; i++) d->w[i] = (matrix *)room(d, layers, sizeof(matrix));
    for (int64_t n = 0; n < layers; n++) {
        const int64_t square = n * width * width, narrow = n * kv * width, wide = n * hidden * width;
        const float *const qkv[] = {m->query + square, m->key + narrow, m->value + narrow};
        const float *const gate_up[] = {m->gate + wide, m->up + wide};
        const float *const result = m->result + square, *const down = m->down + wide;
        d->w[TO_HEADS][n] = put_matrix(d, &at, width, qkv, heads, 3);
        d->w[FROM_HEADS][n] = put_matrix(d, &at, width, &result, &width, 1);
        d->w[TO_HIDDEN][n] = put_matrix(d, &at, width, gate_up, two, 2);
        d->w[FROM_HIDDEN][n] = put_matrix(d, &at, hidden, &down, &width, 1);
    }
    d->output = put_matrix(d, &at, width, &m->output, &all, 1);
}

static void set_cache(decoder *d) {
    const model *m = d->m;
    const int64_t head = head_of(m), angles = head / 2, length = m->sizes.length;
    d->piece = d->how.page ? d->how.page : length;
    d->pages = (length + d->piece - 1) / d->piece;
    d->pieces = d->batch * d->pages;
    d->table = integers(d, d->pieces);
    const int64_t rows = m->sizes.layers * d->pieces * m->sizes.kv_heads * d->piece;
    d->keys = (char *)room(d, rows * head, size_of(d->how.cache));
    d->values = (char *)room(d, rows * head, size_of(d->how.cache));
    d->key_scales = floats(d, d->how.cache == ATTN_I8 ? rows : 0);
    d->value_scales = floats(d, d->how.cache == ATTN_I8 ? rows : 0);
    d->cosines = floats(d, length * angles);
    d->sines = floats(d, length * angles);
    must(attn_rope_table(attn_out_f32(d->cosines, 2, length, angles, 0, 0),
                         attn_out_f32(d->sines, 2, length, angles, 0, 0), NULL, &err));
}

static void ask_for(decoder *d, const attn_desc *o) {
    size_t bytes;
    must(attn_workspace_size(o, &bytes, &err));
    if (bytes > d->workspace_bytes) d->workspace_bytes = bytes;
}

/* The largest workspace of any call: of a step of these counts, or of one token each. */
static void set_workspace(decoder *d, const int32_t *counts) {
    memcpy(d->counts, counts, (size_t)d->batch * sizeof *counts);
    place_rows(d);
    for (int i = 0; i <= MATRICES; i++) {
        const attn_desc o = product_of(d, NULL, NULL, d->rows, i < MATRICES ? d->w[i] : &d->output);
        ask_for(d, &o);
    }
    const attn_desc o = attention_of(d, 0);
    ask_for(d, &o);
    d->pages_used = 0; /* nothing has been taken in yet */
}

/* counts [batch]: the tokens of the first step, and the most of any. */
static void begin(decoder *d, const model *m, const manner *how, int32_t batch, const int32_t *counts) {
    const int64_t width = m->sizes.width, hidden = m->sizes.hidden;
    int32_t ones[MOST_PROMPTS];
    memset(d, 0, sizeof *d);
    d->m = m;
    d->how = *how;
    d->batch = batch;
    for (int32_t b = 0; b < batch; b++) d->rows += counts[b];
    d->starts = integers(d, batch);
    d->counts = integers(d, batch);
    d->lengths = integers(d, batch);
    d->ends = integers(d, batch);
    d->positions = integers(d, d->rows);
    d->x = floats(d, d->rows * width);
    d->y = floats(d, d->rows * width);
    d->z = floats(d, d->rows * width);
    d->qkv = floats(d, d->rows * width_of_heads(m));
    d->gate_up = floats(d, d->rows * 2 * hidden);
    d->hidden = floats(d, d->rows * hidden);
    d->logits = floats(d, batch * (int64_t)m->sizes.vocabulary);
    set_weights(d);
    set_cache(d);
    for (int32_t b = 0; b < batch; b++) ones[b] = 1;
    set_workspace(d, ones);
    set_workspace(d, counts);
    d->workspace = room(d, (int64_t)d->workspace_bytes, 1);
}

static void end(decoder *d) {
    for (block *b = d->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
}

/* The next token of a prompt: the most probable one, or drawn by a number that belongs to prompt and position. */
static int32_t choose(decoder *d, int32_t b, int32_t prompt) {
    const int32_t count = d->m->sizes.vocabulary;
    float *x = d->logits + (int64_t)b * count, u;
    int32_t token = 0;
    if (!(d->how.temperature > 0)) {
        for (int32_t i = 1; i < count; i++)
            if (x[i] > x[token]) token = i;
        return token;
    }
    attn_desc o = {0};
    o.scale = 1 / d->how.temperature;
    must(attn_softmax(attn_view_f32(x, 2, 1, count, 0, 0), attn_out_f32(x, 2, 1, count, 0, 0), &o, &err));
    u = uniform(mix(d->how.seed) + ((uint64_t)prompt << 32) + (uint64_t)d->lengths[b]);
    while (token < count - 1 && (u -= x[token]) >= 0) token++;
    return token;
}

/* `tokens` more of each prompt, into texts [count,tokens]; how long prompts and tokens took is added to seconds. */
static void generate(const model *m, const manner *how, const char *const *prompts, int32_t count, int32_t tokens,
                     int32_t *texts, double seconds[2]) {
    for (int32_t first = 0, n; first < count; first += n) {
        int32_t counts[MOST_PROMPTS], rows = 0;
        decoder d;
        n = count - first < how->batch ? count - first : how->batch;
        for (int32_t b = 0; b < n; b++) rows += counts[b] = (int32_t)strlen(prompts[first + b]);
        begin(&d, m, how, n, counts);
        int32_t *fresh = integers(&d, rows);
        rows = 0;
        for (int32_t b = 0; b < n; b++)
            for (int32_t i = 0; i < counts[b]; i++) fresh[rows++] = (unsigned char)prompts[first + b][i];
        for (int32_t i = 0; i < tokens; i++) {
            const double start = now();
            step(&d, fresh);
            for (int32_t b = 0; b < n; b++) {
                fresh[b] = texts[(first + b) * tokens + i] = choose(&d, b, first + b);
                d.counts[b] = 1;
            }
            seconds[i > 0] += now() - start;
        }
        end(&d);
    }
}

#include "generate_check.h"

/* ---- the command line */

static int is(const char *a, const char *b) { return strcmp(a, b) == 0; }

static int parse_number(const char *name, const char *text, int64_t least, int64_t most, int32_t *number) {
    int64_t x = 0;
    const int ok = take_whole(stderr, "generate", name, text, least, most, &x);
    *number = (int32_t)x;
    return ok;
}

static int parse_type(const char *name, const char *text, int32_t *type) {
    *type = is(text, "f32") ? ATTN_F32 : is(text, "bf16") ? ATTN_BF16 : ATTN_I8;
    if (is(text, name_of(*type))) return 1;
    fprintf(stderr, "generate: %s: %s is none of f32, bf16 and int8\n", name, text);
    return 0;
}

/* Scores are divided by it: by 0 it is the most probable token. */
static int parse_temperature(const char *name, const char *text, float *temperature) {
    if (!take_real(stderr, "generate", name, text, 0, 100, temperature)) return 0;
    if (*temperature == 0 || *temperature >= 0.001f) return 1;
    fprintf(stderr, "generate: %s: %s is neither 0 nor at least 0.001\n", name, text);
    return 0;
}

static int parse(manner *how, int32_t *tokens, const char *name, const char *value) {
    if (!value) return fprintf(stderr, "generate: %s: its value is missing\n", name), 0;
    if (is(name, "--cache")) return parse_type(name, value, &how->cache);
    if (is(name, "--weights")) return parse_type(name, value, &how->weights);
    if (is(name, "--temperature")) return parse_temperature(name, value, &how->temperature);
    if (is(name, "--tokens")) return parse_number(name, value, 1, 1 << 18, tokens);
    if (is(name, "--page")) return parse_number(name, value, 0, 1 << 18, &how->page);
    if (is(name, "--batch")) return parse_number(name, value, 1, MOST_PROMPTS, &how->batch);
    if (is(name, "--threads")) return parse_number(name, value, 1, MOST_THREADS, &how->threads);
    if (is(name, "--seed")) return take_seed(stderr, "generate", name, value, &how->seed);
    fprintf(stderr, "generate: there is no option %s\n", name);
    return 0;
}

static void put_token(int32_t token) {
    if (token < 256) putchar((int)token);
    else printf("<%d>", (int)token); /* of a model whose tokens are more than bytes */
}

/* The prompts, what comes after them, and how fast that was. tokens 0: as many as there is room for, at most 400. */
static int write_texts(const model *m, const manner *how, const char *const *prompts, int32_t count, int32_t tokens) {
    double seconds[2] = {0, 0};
    size_t longest = 0, rows = 0;
    for (int32_t p = 0; p < count; p++) {
        const size_t length = strlen(prompts[p]);
        for (size_t i = 0; i < length; i++)
            if ((unsigned char)prompts[p][i] >= m->sizes.vocabulary)
                return fail("a prompt has bytes the model has not");
        if (length == 0) return fail("a prompt is empty");
        if (length > longest) longest = length;
        rows += length;
    }
    if (longest >= (size_t)m->sizes.length) return fail("a prompt is longer than the model's texts may be");
    const int32_t left = m->sizes.length - (int32_t)longest;
    if (tokens == 0) tokens = left < 400 ? left : 400;
    if (tokens > left) return fail("prompt and tokens together are longer than the model's texts may be");
    int32_t *texts = (int32_t *)malloc((size_t)count * (size_t)tokens * sizeof *texts);
    if (!texts) return fail("no memory");
    generate(m, how, prompts, count, tokens, texts, seconds);
    for (int32_t p = 0; p < count; p++) {
        printf("---- prompt %d\n%s", (int)p + 1, prompts[p]);
        for (int32_t i = 0; i < tokens; i++) put_token(texts[p * tokens + i]);
        printf("\n");
    }
    printf("----\n%.0f tokens/s in the prompts", (double)rows / seconds[0]);
    if (tokens > 1) printf(", %.0f tokens/s after them", (double)count * (tokens - 1) / seconds[1]);
    printf(" (cache %s, weights %s, batch %d, threads %d)\n", name_of(how->cache), name_of(how->weights),
           (int)how->batch, (int)how->threads);
    free(texts);
    return 1;
}

int main(int argc, char **argv) {
    const char *name = NULL, *prompts[MOST_PROMPTS] = {"/* The "};
    manner how = {ATTN_ISA_AUTO, 1, 8, 0, ATTN_F32, ATTN_F32, 0, 1};
    int32_t count = 0, tokens = 0;
    int ok = 1, measures = 0;
    model m;
    for (int i = 1; ok && i < argc; i++) {
        if (is(argv[i], "--measure")) measures = 1;
        else if (strncmp(argv[i], "--", 2) == 0) ok = parse(&how, &tokens, argv[i], argv[i + 1]), i++;
        else if (!name) name = argv[i];
        else if (count < MOST_PROMPTS) prompts[count++] = argv[i];
        else ok = 0;
    }
    if (!ok || (measures && argc > 2) || (!name && !measures && argc > 1)) {
        fprintf(stderr, "usage: generate [--measure] or generate [OPTION VALUE]... MODEL [PROMPT...]\n");
        return 2;
    }
    if (name) {
        if (!read_model(&m, name)) return 1;
        ok = write_texts(&m, &how, prompts, count ? count : 1, tokens);
        free_model(&m);
    } else if (measures) measure();
    else ok = check();
    return !ok || fflush(stdout) || ferror(stdout); /* an output that is lost fails, too */
}
