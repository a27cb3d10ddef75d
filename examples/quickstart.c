/* cc -O2 quickstart.c -lm */
/* Scaled dot product attention of 2 queries over 4 keys: the output and the weights. */
#define ATTN_IMPLEMENTATION
#include "../attn.h"
#include <math.h>
#include <stdio.h>

int main(void) {
    const float q[2 * 3] = {6, 0, 0, 0, 6, 0};                   /* [Sq=2, D=3] */
    const float k[4 * 3] = {1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 0}; /* [Sk=4, D=3] */
    const float v[4 * 2] = {1, 10, 2, 20, 3, 30, 4, 40};         /* [Sk=4, Dv=2] */
    float out[2 * 2], weights[2 * 4];
    const double e = exp(6 / sqrt(3.0)); /* the mass of keys i and 3 for query i; the others have 1 */
    attn_desc d = {0};                   /* zero means default, absent or off */
    attn_error err;
    char text[128];
    int i, ok = 1;

    d.q = attn_view_bhsd(q, 1, 1, 2, 3); /* batch, heads, rows, numbers in a row */
    d.k = attn_view_bhsd(k, 1, 1, 4, 3);
    d.v = attn_view_bhsd(v, 1, 1, 4, 2);
    d.out = attn_out_bhsd(out, 1, 1, 2, 2);
    d.weights = attn_out_bhsd(weights, 1, 1, 2, 4); /* optional, like every result */
    if (attn_forward(&d, &err) != ATTN_OK) {
        attn_error_string(&err, text, sizeof text);
        printf("attn_forward: %s\n", text);
        return 1;
    }
    for (i = 0; i < 2; i++) {
        const float *w = weights + 4 * i, *o = out + 2 * i;
        printf("query %d: weights %.4f %.4f %.4f %.4f", i, w[0], w[1], w[2], w[3]);
        printf(", output %.4f %.4f\n", o[0], o[1]);
        ok = ok && fabs(w[i] - e / (2 * e + 2)) <= 1e-5 && fabs(w[2] - 1 / (2 * e + 2)) <= 1e-5;
        ok = ok && fabs(o[0] - (w[0] + 2 * w[1] + 3 * w[2] + 4 * w[3])) <= 1e-5;
    }
    printf(ok ? "as the formula says\n" : "WRONG: not what the formula says\n");
    return !ok || fflush(stdout) || ferror(stdout); /* an output that is lost fails, too */
}
