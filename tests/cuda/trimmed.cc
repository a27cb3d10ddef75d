/* trimmed.cc - attn_cuda.cuh with kernels of f16 alone, of heads of 64 and without gradients (cuda.mk defines that):
   what was left out runs in stage 1 instead, and attn_explain says why. Linked with attn.c. */
#include "device.cc"

enum { ROWS = 64, SIZE = 64, MOST = 128, LARGEST = 200 /* of stage 2 */ };
static uint16_t zeros[ROWS * MOST], ones[ROWS * MOST], out[ROWS * MOST];
static float dq[ROWS * MOST], dv[ROWS * MOST];
static int failures;
static void expect(bool is_so, const char *what) {
    if (!is_so) printf("FAILED: %s\n", what), failures++;
}
static attn_desc call_of(attn_type type, int64_t size) {
    attn_desc d = {};
    d.q = d.k = attn_view_typed(type, zeros, 4, 1, 1, ROWS, size);
    d.v = attn_view_typed(type, ones, 4, 1, 1, ROWS, size);
    d.out = attn_out_typed(type, out, 4, 1, 1, ROWS, size);
    for (uint16_t &x : ones) x = type == ATTN_F16 ? 0x3c00 : 0x3f80;
    return d;
}
/* Runs d in this stage, of which attn_explain says so; why: what it says of the next one */
static void check(attn_desc d, const char *stage, const char *why) {
    char text[600];
    attn_explain(&d, text, sizeof text);
    expect(strstr(text, stage) && strstr(text, why), text);
    memset(out, 0, sizeof out);
    expect(attn_forward(&d, NULL) == ATTN_OK, "the forward runs");
    expect(memcmp(out, ones, ROWS * (size_t)d.out.size[3] * sizeof *out) == 0, "the mean of ones is one");
}
/* Of stage 3 those of its sizes are compiled that some of ATTN_CUDA_HOPPER_DIMS take. */
template <int... Sizes> static bool takes(const int (&expected)[5]) {
    static const int sizes[5] = {64, 96, 128, 192, 256};
    bool same = true;
    for (int n = 0; n < 5; n++)
        same =
            same && attn__gpu::takes_one_of(sizes[n], LARGEST, attn__gpu::head_sizes<Sizes...>()) == (expected[n] != 0);
    return same;
}
int main(void) {
    char text[600];
    bool right = true;
    expect(takes<64>({1, 0, 0, 0, 0}) && takes<48, 80>({1, 1, 1, 0, 0}) && takes<64, 128>({1, 0, 1, 0, 0}) &&
               takes<64, 200>({1, 0, 0, 0, 1}) && takes<8, 136>({1, 0, 0, 1, 0}) && takes<97, 201>({0, 0, 1, 0, 0}) &&
               takes<32, 64, 96, 128, 192, 200>({1, 1, 1, 1, 1}),
           "sizes of stage 3");
    fake_everything(2);
    check(call_of(ATTN_F16, SIZE), "stage 3", "");
    check(call_of(ATTN_BF16, SIZE), "stage 1", "compiled without kernels of bf16 (ATTN_CUDA_BF16)");
    check(call_of(ATTN_F16, MOST), "stage 1", "a head size is beyond those that were compiled");
    attn_desc d = call_of(ATTN_F16, SIZE);
    attn_grad g = {};
    g.d_out = attn_view_typed(ATTN_F16, ones, 4, 1, 1, ROWS, SIZE);
    g.dq = attn_out_bhsd(dq, 1, 1, ROWS, SIZE);
    g.dv = attn_out_bhsd(dv, 1, 1, ROWS, SIZE);
    attn_explain_backward(&d, &g, text, sizeof text);
    expect(strstr(text, "stage 1") && strstr(text, "without kernels of gradients (ATTN_CUDA_GRADIENTS)"), text);
    expect(attn_backward(&d, &g, NULL) == ATTN_OK, "the backward runs");
    for (int i = 0; i < ROWS * SIZE; i++) right = right && dq[i] == 0.0f && dv[i] == 1.0f;
    expect(right, "gradients of equal scores");
    expect(attn_cuda_prepare(NULL) == ATTN_OK, "the kernels that there are load");
    printf("trimmed: %d failed\n", failures);
    return failures != 0;
}
