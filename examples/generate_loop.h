/* generate_loop.h - the model of generate.c, its files, and the plain way to run it: one token at a time, a loop for
   each product, keys and values as floats. generate.c compares its own numbers and speed with those of this loop. For
   the speed `make demo-generate` compiles it apart, with the flags that such loops are made for:

       cc -O3 -march=native -ffast-math -x c -c generate_loop.h
       cc -O2 -DLOOP_APART generate.c generate_loop.o -lm */
#ifndef GENERATE_LOOP_H
#define GENERATE_LOOP_H
#include <stddef.h>
#include <stdint.h>

/* A checkpoint is `sizes`, then the tensors as floats, each of all layers, in this order; matrices are [out,in]. Where
   the sign of `vocabulary` is turned, a matrix for the output follows, else it is that of the embedding. */
typedef struct {
    struct {
        int32_t width, hidden, layers, heads, kv_heads, vocabulary, length;
    } sizes;
    const float *embedding;                             /* [vocabulary,width] */
    const float *norm_1, *query, *key, *value, *result; /* [width], key and value [kv_heads*head,width] */
    const float *norm_2, *gate, *down, *up, *norm;      /* gate and up [hidden,width], down [width,hidden] */
    const float *cosines, *sines;                       /* [length,head/2]; computed anew in generate.c */
    const float *output;                                /* [vocabulary,width] */
} model;

typedef struct { /* logits [vocabulary], keys and values [layers,length,kv_heads*head], the tables [length,head/2] */
    float *x, *y, *z, *query, *gate, *up, *scores, *keys, *values, *logits, *cosines, *sines;
    double (*now)(void);
    double attention; /* seconds */
} loop;

/* 1, or 0 with a message. */
int read_model(model *m, const char *name);
/* Random numbers in place of what training finds: m->sizes are given. 1, or 0: no memory. */
int make_model(model *m);
void free_model(model *m);
/* Takes in one more token, the one at `position`; logits of what comes after it. */
void loop_token(const model *m, loop *s, int token, int position);
#endif

#ifndef LOOP_APART
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where the tensors lie in `data`; returns how many floats there are. */
static int64_t place_tensors(model *m, const float *data, int own_output) {
    const int64_t layers = m->sizes.layers, width = m->sizes.width, hidden = m->sizes.hidden;
    const int64_t head = width / m->sizes.heads, kv = head * m->sizes.kv_heads, all = width * m->sizes.vocabulary;
    const int64_t angles = m->sizes.length * (head / 2), square = layers * width * width,
                  wide = layers * hidden * width;
    const struct {
        const float **tensor;
        int64_t count;
    } tensors[] = {{&m->embedding, all},
                   {&m->norm_1, layers * width},
                   {&m->query, square},
                   {&m->key, layers * kv * width},
                   {&m->value, layers * kv * width},
                   {&m->result, square},
                   {&m->norm_2, layers * width},
                   {&m->gate, wide},
                   {&m->down, wide},
                   {&m->up, wide},
                   {&m->norm, width},
                   {&m->cosines, angles},
                   {&m->sines, angles},
                   {&m->output, own_output ? all : 0}};
    int64_t at = 0;
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; at += tensors[i++].count)
        *tensors[i].tensor = data ? data + at : NULL;
    if (!own_output) m->output = m->embedding;
    return at;
}

static int are_sensible(const model *m) {
    const int32_t all[] = {m->sizes.width,    m->sizes.hidden,     m->sizes.layers, m->sizes.heads,
                           m->sizes.kv_heads, m->sizes.vocabulary, m->sizes.length};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i] < 1 || all[i] > 1 << 18) return 0;
    return m->sizes.width % (2 * m->sizes.heads) == 0 && m->sizes.heads % m->sizes.kv_heads == 0;
}

int read_model(model *m, const char *name) {
    FILE *file = fopen(name, "rb");
    const char *wrong = NULL;
    if (!file || fread(&m->sizes, sizeof m->sizes, 1, file) != 1) wrong = "cannot be read";
    const int own_output = !wrong && m->sizes.vocabulary < 0;
    if (own_output) m->sizes.vocabulary = m->sizes.vocabulary < -INT32_MAX ? 0 : -m->sizes.vocabulary;
    if (!wrong && !are_sensible(m)) wrong = "not a checkpoint: its sizes make no sense";
    if (!wrong) {
        const size_t count = (size_t)place_tensors(m, NULL, own_output);
        float *data = (float *)malloc(count * sizeof(float));
        if (!data || fread(data, sizeof(float), count, file) != count || fgetc(file) != EOF) {
            wrong = "not a checkpoint: it has another length than its sizes say";
            free(data);
        } else place_tensors(m, data, own_output);
    }
    if (file) fclose(file);
    if (wrong) fprintf(stderr, "generate: %s: %s\n", name, wrong);
    return !wrong;
}

int make_model(model *m) {
    const int64_t count = place_tensors(m, NULL, 0), width = m->sizes.width;
    float *data = (float *)malloc((size_t)count * sizeof(float));
    uint32_t bits = 1;
    if (!data) return 0;
    for (int64_t i = 0; i < count; i++) {
        bits = bits * 1664525u + 1013904223u;
        data[i] = ((float)(bits >> 8) / 8388608 - 1) * 2 / sqrtf((float)width);
    }
    place_tensors(m, data, 0);
    for (int64_t i = 0; i < m->sizes.layers * width; i++)
        data[m->norm_1 - data + i] = data[m->norm_2 - data + i] = data[m->norm - data + i % width] = 1;
    return 1;
}

void free_model(model *m) { free((void *)(uintptr_t)m->embedding); }

static void loop_product(float *y, const float *x, const float *w, int in, int out) {
    for (int i = 0; i < out; i++) {
        float sum = 0;
        for (int j = 0; j < in; j++) sum += w[(size_t)i * (size_t)in + (size_t)j] * x[j];
        y[i] = sum;
    }
}

static void loop_norm(float *y, const float *x, const float *gain, int n) {
    float sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] * x[i];
    sum = 1 / sqrtf(sum / (float)n + 1e-5f);
    for (int i = 0; i < n; i++) y[i] = gain[i] * (x[i] * sum);
}

static void loop_turn(float *x, const float *cosines, const float *sines, int heads, int head) {
    for (int i = 0; i < heads * head; i += 2) {
        const float a = x[i], b = x[i + 1], c = cosines[i % head / 2], s = sines[i % head / 2];
        x[i] = a * c - b * s;
        x[i + 1] = b * c + a * s;
    }
}

static void loop_softmax(float *x, int n) {
    float most = x[0], sum = 0;
    for (int i = 1; i < n; i++) most = x[i] > most ? x[i] : most;
    for (int i = 0; i < n; i++) {
        x[i] = expf(x[i] - most);
        sum += x[i];
    }
    for (int i = 0; i < n; i++) x[i] /= sum;
}

/* out [heads*head] from keys and values [rows,row] of one layer */
static void loop_attention(const model *m, float *out, const float *query, const float *keys, const float *values,
                           float *scores, int rows) {
    const int heads = m->sizes.heads, head = m->sizes.width / heads, group = heads / m->sizes.kv_heads;
    const size_t row = (size_t)(m->sizes.kv_heads * head);
    for (int h = 0; h < heads; h++) {
        const float *q = query + h * head, *k = keys + h / group * head, *v = values + h / group * head;
        float *o = out + h * head;
        for (int t = 0; t < rows; t++) {
            float sum = 0;
            for (int i = 0; i < head; i++) sum += q[i] * k[(size_t)t * row + (size_t)i];
            scores[t] = sum / sqrtf((float)head);
        }
        loop_softmax(scores, rows);
        memset(o, 0, (size_t)head * sizeof(float));
        for (int t = 0; t < rows; t++)
            for (int i = 0; i < head; i++) o[i] += scores[t] * v[(size_t)t * row + (size_t)i];
    }
}

void loop_token(const model *m, loop *s, int token, int position) {
    const int width = m->sizes.width, hidden = m->sizes.hidden, head = width / m->sizes.heads;
    const int kv = m->sizes.kv_heads * head;
    const float *cosines = s->cosines + position * head / 2, *sines = s->sines + position * head / 2;
    memcpy(s->x, m->embedding + (size_t)token * (size_t)width, (size_t)width * sizeof(float));
    for (int n = 0; n < m->sizes.layers; n++) {
        const size_t l = (size_t)n, square = l * (size_t)(width * width), wide = l * (size_t)(hidden * width);
        float *keys = s->keys + l * (size_t)(m->sizes.length * kv), *values = s->values + (keys - s->keys);
        float *k = keys + (size_t)(position * kv), *v = values + (size_t)(position * kv);
        loop_norm(s->y, s->x, m->norm_1 + n * width, width);
        loop_product(s->query, s->y, m->query + square, width, width);
        loop_product(k, s->y, m->key + l * (size_t)(kv * width), width, kv);
        loop_product(v, s->y, m->value + l * (size_t)(kv * width), width, kv);
        loop_turn(s->query, cosines, sines, m->sizes.heads, head);
        loop_turn(k, cosines, sines, m->sizes.kv_heads, head);

        const double start = s->now();
        loop_attention(m, s->y, s->query, keys, values, s->scores, position + 1);
        s->attention += s->now() - start;

        loop_product(s->z, s->y, m->result + square, width, width);
        for (int i = 0; i < width; i++) s->x[i] += s->z[i];
        loop_norm(s->y, s->x, m->norm_2 + n * width, width);
        loop_product(s->gate, s->y, m->gate + wide, width, hidden);
        loop_product(s->up, s->y, m->up + wide, width, hidden);
        for (int i = 0; i < hidden; i++) s->gate[i] *= s->up[i] / (1 + expf(-s->gate[i]));
        loop_product(s->z, s->gate, m->down + wide, hidden, width);
        for (int i = 0; i < width; i++) s->x[i] += s->z[i];
    }
    loop_norm(s->y, s->x, m->norm, width);
    loop_product(s->logits, s->y, m->output, width, m->sizes.vocabulary);
}
#endif
