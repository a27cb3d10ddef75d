/* walk.c - three calls whose functions are written down as they run, for tests/walks.sh: which calls which, each pair
   once, in the order of their first call. Compiled with -finstrument-functions, which gcc and clang have.
       walk forward|paged|backward    a line per pair: the addresses of caller and callee; 0: called by this program */
#ifndef WALK_HEADER
#define WALK_HEADER "../attn.h"
#endif
#define ATTN_IMPLEMENTATION
#include WALK_HEADER
#include <stdio.h>
#include <string.h>

enum { MOST_PAIRS = 1 << 14, MOST_DEPTH = 1000 };
static void *pairs[MOST_PAIRS][2], *within[MOST_DEPTH];
static int pair_count, depth, is_on;

#if defined(__GNUC__)
#define HOOK __attribute__((no_instrument_function))
#else
#define HOOK
#endif
HOOK void __cyg_profile_func_enter(void *callee, void *site);
HOOK void __cyg_profile_func_exit(void *callee, void *site);
void __cyg_profile_func_enter(void *callee, void *site) {
    void *caller = is_on && depth ? within[depth - 1] : NULL;
    int n = 0;
    (void)site;
    if (!is_on) return;
    while (n < pair_count && (pairs[n][0] != caller || pairs[n][1] != callee)) n++;
    if (n == pair_count && n < MOST_PAIRS) pairs[n][0] = caller, pairs[n][1] = callee, pair_count++;
    if (depth < MOST_DEPTH) within[depth] = callee;
    depth++;
}
void __cyg_profile_func_exit(void *callee, void *site) {
    (void)callee, (void)site;
    depth -= is_on;
}

enum { HEADS = 2, ROWS = 300, DIM = 64, NUMBERS = HEADS * ROWS * DIM };
static float x[3][NUMBERS], out[NUMBERS], grads[3][NUMBERS], d_out[NUMBERS];

static attn_status forward(int is_backward) { /* f32, causal */
    attn_desc d;
    attn_grad g;
    int i;
    memset(&d, 0, sizeof d), memset(&g, 0, sizeof g);
    for (i = 0; i < 3 * NUMBERS; i++) x[i / NUMBERS][i % NUMBERS] = (float)(i * 37 % 101 - 50) / 64;
    for (i = 0; i < NUMBERS; i++) d_out[i] = (float)(i % 11 - 5) / 8;
    d.q = attn_view_bhsd(x[0], 1, HEADS, ROWS, DIM);
    d.k = attn_view_bhsd(x[1], 1, HEADS, ROWS, DIM);
    d.v = attn_view_bhsd(x[2], 1, HEADS, ROWS, DIM);
    d.out = attn_out_bhsd(out, 1, HEADS, ROWS, DIM);
    d.causal = 1;
    d.align = ATTN_ALIGN_TOP_LEFT;
    g.d_out = attn_view_bhsd(d_out, 1, HEADS, ROWS, DIM);
    g.dq = attn_out_bhsd(grads[0], 1, HEADS, ROWS, DIM);
    g.dk = attn_out_bhsd(grads[1], 1, HEADS, ROWS, DIM);
    g.dv = attn_out_bhsd(grads[2], 1, HEADS, ROWS, DIM);
    is_on = 1;
    return is_backward ? attn_backward(&d, &g, NULL) : attn_forward(&d, NULL);
}

enum { PAGES = 8, PAGE = 64, KV_HEADS = 8, Q_HEADS = 32 };
static signed char codes[PAGES * KV_HEADS * PAGE * DIM];
static float scales[PAGES * KV_HEADS * PAGE];

static attn_status paged(void) { /* one query, 32 heads on 8, int8 in pages */
    static const int32_t table[PAGES] = {3, 0, 7, 1, 5, 2, 6, 4}, length = PAGES * PAGE - 12;
    attn_desc d;
    size_t i;
    memset(&d, 0, sizeof d);
    for (i = 0; i < sizeof codes; i++) codes[i] = (signed char)((int)(i * 37 % 255) - 127);
    for (i = 0; i < sizeof scales / sizeof *scales; i++) scales[i] = 1.0f / 128;
    for (i = 0; i < Q_HEADS * DIM; i++) x[0][i] = (float)(i % 13) / 16;
    d.q = attn_view_bhsd(x[0], 1, Q_HEADS, 1, DIM);
    d.k = d.v = attn_view_typed(ATTN_I8, codes, 4, PAGES, KV_HEADS, PAGE, DIM);
    d.k_scale = d.v_scale = attn_view_typed(ATTN_F32, scales, 4, PAGES, KV_HEADS, PAGE, 1);
    d.page_table = attn_view_i32(table, 2, 1, PAGES, 0, 0);
    d.key_lengths = attn_view_i32(&length, 1, 1, 0, 0, 0);
    d.out = attn_out_bhsd(out, 1, Q_HEADS, 1, DIM);
    is_on = 1;
    return attn_forward(&d, NULL);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    attn_status status = !strcmp(what, "paged") ? paged() : forward(!strcmp(what, "backward"));
    int n;
    is_on = 0;
    if (status != ATTN_OK) printf("walk: %s: %s\n", what, attn_status_string(status));
    for (n = 0; n < pair_count && status == ATTN_OK; n++)
        printf("0x%lx 0x%lx\n", (unsigned long)(uintptr_t)pairs[n][0], (unsigned long)(uintptr_t)pairs[n][1]);
    return status != ATTN_OK;
}
