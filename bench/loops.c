/* loops.c - attention as it is written down: three loops and a softmax, for a few queries of one head. Built with
   several sets of flags. */
#include "work.h"
#include <math.h>

enum { MOST_KEYS = 4096 };

static void softmax_of_values(const job *j, float *weight, const float *v, float *out) {
    float largest = -INFINITY, sum = 0;
    int n, c;
    for (n = 0; n < j->keys; n++)
        if (weight[n] > largest) largest = weight[n];
    for (n = 0; n < j->keys; n++) sum += weight[n] = expf(weight[n] - largest);
    for (c = 0; c < j->dv; c++) out[c] = 0;
    for (n = 0; n < j->keys; n++)
        for (c = 0; c < j->dv; c++) out[c] += weight[n] / sum * v[(size_t)n * (size_t)j->dv + (size_t)c];
}

/* Row i of [H*Sq]. */
void attention_loop(void *arg, int64_t i, int32_t worker) {
    const job *j = (const job *)arg;
    const float *q = j->q + i * j->d, *k = j->k + i / j->queries * j->keys * j->d;
    float weight[MOST_KEYS], scale = 1 / sqrtf((float)j->d), sum;
    int n, c;
    (void)worker;
    for (n = 0; n < j->keys; n++, k += j->d) {
        for (sum = 0, c = 0; c < j->d; c++) sum += q[c] * k[c];
        weight[n] = sum * scale;
    }
    softmax_of_values(j, weight, j->v + i / j->queries * j->keys * j->dv, j->out + i * j->dv);
}

/* Row i of [Sq]: one head. */
void additive_loop(void *arg, int64_t i, int32_t worker) {
    const job *j = (const job *)arg;
    const float *q = j->q + i * j->d, *k = j->k;
    float weight[MOST_KEYS], sum;
    int n, c;
    (void)worker;
    for (n = 0; n < j->keys; n++, k += j->d) {
        for (sum = 0, c = 0; c < j->d; c++) sum += j->w_v[c] * tanhf(q[c] + k[c]);
        weight[n] = sum;
    }
    softmax_of_values(j, weight, j->v, j->out + i * j->dv);
}
