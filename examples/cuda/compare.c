/* nvcc -O3 -std=c++17 -arch=native compare.c attention.c kernels.cu -o compare (Hopper: -arch=sm_90a) */
/* One program, both places: the same descriptor on arrays of the host, then on arrays of the device, and by how much
   the results differ. The last bits do; the weights that dropout drops are the very same. */
#include "device.h"

enum { B = 2, H = 8, HKV = 2, SQ = 200, SK = 333, D = 64, PAIRS = B * H * SQ * SK };

static size_t q_bytes = sizeof(float) * B * H * SQ * D, k_bytes = sizeof(float) * B * HKV * SK * D;

static attn_desc describe(const float *q, const float *k, const float *v, float *out, float *weights, float *w_v) {
    attn_desc d = {0};
    d.q = attn_view_bhsd(q, B, H, SQ, D);
    d.k = attn_view_bhsd(k, B, HKV, SK, D);
    d.v = attn_view_bhsd(v, B, HKV, SK, D);
    d.out = attn_out_bhsd(out, B, H, SQ, D);
    d.weights = attn_out_bhsd(weights, B, H, SQ, SK);
    d.w_v = attn_view_f32(w_v, 1, D, 0, 0, 0);
    return d;
}

static double largest_difference(const float *a, const float *b, size_t n) {
    double most = 0;
    size_t i;
    for (i = 0; i < n; i++) {
        double difference = fabs((double)a[i] - (double)b[i]);
        if (!(difference <= most)) most = difference; /* a NaN stays */
    }
    return most;
}

int main(void) {
    float *q = random_floats(B * H * SQ * D), *k = random_floats(B * HKV * SK * D);
    float *v = random_floats(B * HKV * SK * D);
    float *w_v = random_floats(D), *out = random_floats(B * H * SQ * D), *weights = random_floats(PAIRS);
    float *out_back = random_floats(B * H * SQ * D), *weights_back = random_floats(PAIRS);
    attn_desc host = describe(q, k, v, out, weights, w_v);
    attn_desc device =
        describe((float *)on_device(q, q_bytes), (float *)on_device(k, k_bytes), (float *)on_device(v, k_bytes),
                 (float *)on_device(NULL, q_bytes), (float *)on_device(NULL, PAIRS * sizeof(float)),
                 (float *)on_device(w_v, D * sizeof(float)));
    const attn_view no_view = {0};
    const char *const names[4] = {"plain", "causal, bottom-right", "dropout", "additive"};
    int row, ok = 1;
    for (row = 0; row < 4; row++) {
        attn_desc *const both[2] = {&host, &device};
        char text[300];
        attn_error err;
        double of_out, of_weights;
        long masks = 0;
        size_t i;
        int place;
        for (place = 0; place < 2; place++) {
            attn_desc d = *both[place];
            d.causal = row == 1;
            d.align = row == 1 ? ATTN_ALIGN_BOTTOM_RIGHT : ATTN_ALIGN_TOP_LEFT;
            d.dropout = row == 2 ? 0.25f : 0;
            d.seed = 7;
            d.weights_after_dropout = 1;
            d.score = row == 3 ? ATTN_SCORE_ADDITIVE : ATTN_SCORE_SCALED_DOT;
            if (row != 3) d.w_v = no_view;
            must_attn(attn_forward(&d, &err), &err, "attn_forward");
            attn_explain(&d, text, sizeof text);
            printf("    %s\n", text);
        }
        to_host(out_back, device.out.data, q_bytes);
        to_host(weights_back, device.weights.data, PAIRS * sizeof(float));
        of_out = largest_difference(out, out_back, B * H * SQ * D);
        of_weights = largest_difference(weights, weights_back, PAIRS);
        for (i = 0; i < PAIRS; i++) masks += (weights[i] == 0) != (weights_back[i] == 0);
        printf("%s: output differs by %.2g at most, weights by %.2g, %ld weights are 0 in one place only\n", names[row],
               of_out, of_weights, masks);
        ok = ok && of_out <= 2e-5 && of_weights <= 2e-5 && masks == 0;
    }
    printf(ok ? "the places agree\n" : "WRONG: the places differ\n");
    return ok ? 0 : 1;
}
