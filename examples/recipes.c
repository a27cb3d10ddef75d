/* cc -O2 recipes.c -lm */
/* The recipes of the manual (RECIPES in attn.h) on a few numbers, held against plain loops in double precision. */
#define ATTN_IMPLEMENTATION
#include "../attn.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { H = 2, N = 40, D = 16 }; /* heads, most rows, numbers of a row */
static float q[H * N * D], k[H * N * D], v[H * N * D], out[H * N * D];
static int failed;

static void must(attn_status status, const attn_error *err) {
    char text[200];
    if (status == ATTN_OK) return;
    attn_error_string(err, text, sizeof text);
    printf("refused: %s\n", text);
    failed = 1;
}
static float some(void) {
    static uint32_t x = 1;
    x = x * 1664525u + 1013904223u;
    return (float)(x >> 8) / (1 << 23) - 1;
}
static attn_desc fresh(int64_t queries, int64_t keys) { /* new numbers in q, k and v */
    attn_desc d;
    memset(&d, 0, sizeof d);
    for (int i = 0; i < H * N * D; i++) q[i] = some(), k[i] = some(), v[i] = some(), out[i] = 0;
    d.q = attn_view_bhsd(q, 1, H, queries, D), d.out = attn_out_bhsd(out, 1, H, queries, D);
    d.k = attn_view_bhsd(k, 1, H, keys, D), d.v = attn_view_bhsd(v, 1, H, keys, D);
    return d;
}

/* The largest difference from attention in double precision over the keys that `sees` allows, with `added` to the
   scores; either may be absent. */
typedef int sees_fn(int64_t i, int64_t j);
typedef double added_fn(int64_t h, int64_t i, int64_t j);
static void check(const char *name, int64_t queries, int64_t keys, sees_fn *sees, added_fn *added) {
    double worst = 0;
    for (int64_t h = 0; h < H; h++)
        for (int64_t i = 0; i < queries; i++) {
            double sum = 0, want[D] = {0};
            for (int64_t j = 0; j < keys; j++) {
                double score = 0;
                if (sees && !sees(i, j)) continue;
                for (int c = 0; c < D; c++)
                    score += (double)q[(h * queries + i) * D + c] * (double)k[(h * keys + j) * D + c];
                double weight = exp(score / sqrt((double)D) + (added ? added(h, i, j) : 0));
                sum += weight;
                for (int c = 0; c < D; c++) want[c] += weight * (double)v[(h * keys + j) * D + c];
            }
            for (int c = 0; c < D; c++)
                worst = fmax(worst, fabs(want[c] / sum - (double)out[(h * queries + i) * D + c]));
        }
    printf("%-48s off by %.1e at most\n", name, worst);
    failed |= !(worst < 2e-6);
}

/* ---- a prefix, or an image, that sees all of itself; the rest is causal */
static const int64_t span_end[3] = {6, 20, 30}, span_begin[3] = {0, 13, 28};
static int64_t end_of(int64_t i) { /* of what token i sees: its span's end, or itself */
    for (int n = 0; n < 3; n++)
        if (i >= span_begin[n] && i < span_end[n]) return span_end[n];
    return i + 1;
}
static int sees_span(int64_t i, int64_t j) { return j < end_of(i); }
static void prefix_and_spans(void) {
    attn_error err;
    int64_t n = N, sees[N];
    attn_desc d = fresh(n, n);
    for (int64_t i = 0; i < n; i++) sees[i] = end_of(i);
    d.key_lengths = attn_view_i64(sees, 2, 1, n, 0, 0);
    must(attn_forward(&d, &err), &err);
    check("a prefix and spans that see themselves", n, n, sees_span, 0);
}

/* ---- the first tokens beside a window */
enum { FIRST = 4, WINDOW = 9 };
static int sees_first(int64_t i, int64_t j) { return j <= i && (j < FIRST || j > i - WINDOW); }
static void first_and_window(void) {
    static float two[2][H * N * D], mass[2][H * N];
    attn_error err;
    int64_t n = N, from = -FIRST;
    attn_out none;
    attn_desc d = fresh(n, n), a = d, b = d;
    memset(&none, 0, sizeof none);
    a.out = attn_out_bhsd(two[0], 1, H, n, D), a.lse = attn_out_f32(mass[0], 3, 1, H, n, 0);
    b.out = attn_out_bhsd(two[1], 1, H, n, D), b.lse = attn_out_f32(mass[1], 3, 1, H, n, 0);
    a.k = attn_view_slice(d.k, 2, 0, FIRST), a.v = attn_view_slice(d.v, 2, 0, FIRST);
    a.causal = 1, a.align = ATTN_ALIGN_TOP_LEFT;
    b.k = attn_view_slice(d.k, 2, FIRST, n - FIRST), b.v = attn_view_slice(d.v, 2, FIRST, n - FIRST);
    b.causal = b.window = 1, b.window_left = WINDOW - 1;
    b.align = ATTN_ALIGN_POSITIONS, b.positions = attn_view_i64(&from, 1, 1, 0, 0, 0);
    must(attn_forward(&a, &err), &err);
    must(attn_forward(&b, &err), &err);
    must(attn_merge(attn_view_of(a.out), attn_view_of(a.lse), attn_view_of(b.out), attn_view_of(b.lse), d.out, none,
                    &err),
         &err);
    check("the first tokens beside a window", n, n, sees_first, 0);
}

/* ---- a bias by distance alone (T5) */
static float by_distance[H * (2 * N - 1)]; /* of each head: from -(N - 1) to N - 1 */
static double added_by_distance(int64_t h, int64_t i, int64_t j) {
    return (double)by_distance[h * (2 * N - 1) + N - 1 + j - i];
}
static void relative_bias(void) {
    attn_error err;
    int64_t n = N;
    attn_desc d = fresh(n, n);
    for (int i = 0; i < H * (2 * N - 1); i++) by_distance[i] = some();
    d.bias = attn_view_f32(by_distance + n - 1, 3, H, n, n, 0);
    d.bias.stride[0] = 2 * n - 1, d.bias.stride[1] = -1, d.bias.stride[2] = 1;
    must(attn_forward(&d, &err), &err);
    check("a bias by distance, a view of stride -1", n, n, 0, added_by_distance);
}

/* ---- rotary positions of one's own: any angle for any row and pair */
enum { ROWS = 5, COLUMNS = 8, PAIRS = D / 2 };
static double angle_in_plane(int64_t token, int n) { /* half of the pairs turn by the column, half by the row */
    int64_t x = token % COLUMNS, y = token / COLUMNS;
    return (double)(n < PAIRS / 2 ? x : y) * pow(10000, -2.0 * (n % (PAIRS / 2)) / (D / 2));
}
static double angle_of_some(int64_t token, int n) { /* the slower three quarters of the pairs do not turn */
    return n < PAIRS / 4 ? (double)token * pow(10000, -2.0 * n / D) : 0;
}
static void own_tables(const char *name, double (*angle)(int64_t token, int n)) {
    static float cosines[N * PAIRS], sines[N * PAIRS], turned[H * N * D];
    attn_error err;
    attn_view none;
    double worst = 0;
    fresh(N, N);
    memset(&none, 0, sizeof none);
    for (int64_t t = 0; t < N; t++)
        for (int n = 0; n < PAIRS; n++) {
            cosines[t * PAIRS + n] = (float)cos(angle(t, n));
            sines[t * PAIRS + n] = (float)sin(angle(t, n));
        }
    attn_view c = attn_view_f32(cosines, 2, N, PAIRS, 0, 0), s = attn_view_f32(sines, 2, N, PAIRS, 0, 0);
    must(attn_rope(attn_view_bhsd(q, 1, H, N, D), c, s, none, 0, attn_out_bhsd(turned, 1, H, N, D), &err), &err);
    for (int64_t row = 0; row < H * N; row++)
        for (int n = 0; n < PAIRS; n++) {
            double a = (double)q[row * D + n], b = (double)q[row * D + n + PAIRS], t = angle(row % N, n);
            worst = fmax(worst, fabs(a * cos(t) - b * sin(t) - (double)turned[row * D + n]));
            worst = fmax(worst, fabs(b * cos(t) + a * sin(t) - (double)turned[row * D + n + PAIRS]));
        }
    printf("%-48s off by %.1e at most\n", name, worst);
    failed |= !(worst < 5e-7);
}

/* ---- drafts taken back from a ring: the lengths go back, nothing else does */
enum { LEFT = 5, DRAFTS = 3, PAGE = 2, RING = (LEFT + DRAFTS + PAGE - 1) / PAGE + 1, PAGES = N / PAGE };
static int sees_window(int64_t i, int64_t j) { return i == 0 && j >= N - 1 - LEFT; }
static void drafts_of_a_ring(void) {
    static float pool[2][RING * H * PAGE * D], last[H * N * D];
    attn_error err;
    int64_t length = 0, table[PAGES];
    attn_desc d = fresh(1, N);
    attn_view all_k = d.k, all_v = d.v;
    d.k = attn_view_bhsd(pool[0], RING, H, PAGE, D), d.v = attn_view_bhsd(pool[1], RING, H, PAGE, D);
    while (length < N) {
        int64_t n = N - length < DRAFTS ? N - length : DRAFTS, end = length + n;
        int64_t kept = length % 3 == 0 || length + n == N ? n : 1; /* of n drafts */
        attn_desc o;
        memset(&o, 0, sizeof o);
        for (int64_t j = 0; j * PAGE < end; j++) table[j] = j % RING;
        o.page_table = d.page_table = attn_view_i64(table, 2, 1, PAGES, 0, 0);
        attn_view lengths = attn_view_i64(&length, 1, 1, 0, 0, 0);
        for (int wrong = 1; wrong >= 0; wrong--) { /* drafts that are taken back; then what stays */
            int64_t count = wrong ? n : kept;
            attn_view fresh_k = attn_view_slice(all_k, 2, length, count),
                      fresh_v = attn_view_slice(all_v, 2, length, count);
            if (wrong) fresh_k.data = fresh_v.data = last;
            must(attn_append(fresh_k, attn_out_bhsd(pool[0], RING, H, PAGE, D), lengths, &o, &err), &err);
            must(attn_append(fresh_v, attn_out_bhsd(pool[1], RING, H, PAGE, D), lengths, &o, &err), &err);
        }
        length += kept;
    }
    d.key_lengths = attn_view_i64(&length, 1, 1, 0, 0, 0);
    d.window = 1, d.window_left = LEFT, d.align = ATTN_ALIGN_BOTTOM_RIGHT;
    must(attn_forward(&d, &err), &err);
    check("a ring from which drafts were taken back", 1, N, sees_window, 0);
}

/* ---- the pages that a query needs most (Quest) */
enum { WIDE = 8, CHOSEN = 2 };
static const int32_t best[CHOSEN] = {0, 3}; /* pages of 8 keys, found by the caller; and the last one */
static int sees_pages(int64_t i, int64_t j) {
    return i == 0 && (j / WIDE == best[0] || j / WIDE == best[1] || j >= 32);
}
static void chosen_pages(void) {
    static float pool[2][H * N * D];
    static const int32_t table[N / WIDE] = {2, 4, 0, 1, 3}; /* of the sequence: the last page holds 6 keys */
    int32_t picked[CHOSEN + 1], length = CHOSEN * WIDE + 6;
    attn_error err;
    attn_desc d = fresh(1, 38);
    for (int h = 0; h < H; h++)
        for (int j = 0; j < 38; j++)
            for (int c = 0; c < D; c++) {
                int at = ((table[j / WIDE] * H + h) * WIDE + j % WIDE) * D + c, from = (h * 38 + j) * D + c;
                pool[0][at] = k[from], pool[1][at] = v[from];
            }
    d.k = attn_view_bhsd(pool[0], N / WIDE, H, WIDE, D), d.v = attn_view_bhsd(pool[1], N / WIDE, H, WIDE, D);
    for (int n = 0; n < CHOSEN; n++) picked[n] = table[best[n]];
    picked[CHOSEN] = table[N / WIDE - 1];
    d.page_table = attn_view_i32(picked, 2, 1, CHOSEN + 1, 0, 0);
    d.key_lengths = attn_view_i32(&length, 1, 1, 0, 0, 0);
    must(attn_forward(&d, &err), &err);
    check("chosen pages of a cache", 1, 38, sees_pages, 0);
}

/* ---- a tree of drafts: each sees the cache, its ancestors and itself */
enum { TREE = 6, HELD = N - TREE };
static const int parent[TREE] = {-1, 0, 0, 1, 1, 2};
static int sees_ancestors(int64_t i, int64_t j) {
    if (j < HELD) return 1;
    for (; i >= 0 && i != j - HELD; i = parent[i]) {}
    return i >= 0;
}
static void tree_of_drafts(void) {
    static uint8_t mask[TREE * N];
    attn_error err;
    int64_t n = TREE, held = HELD;
    attn_desc d = fresh(n, held + n);
    for (int64_t i = 0; i < n; i++) {
        memset(mask + i * (held + n), 1, (size_t)held);
        for (int64_t j = i; j >= 0; j = parent[j]) mask[i * (held + n) + held + j] = 1;
    }
    d.mask = attn_view_u8(mask, 2, n, held + n, 0, 0);
    must(attn_forward(&d, &err), &err);
    check("a tree of drafts", n, held + n, sees_ancestors, 0);
}

int main(void) {
    prefix_and_spans();
    first_and_window();
    relative_bias();
    own_tables("rotary positions in a plane", angle_in_plane);
    own_tables("rotary positions of some of the pairs", angle_of_some);
    drafts_of_a_ring();
    chosen_pages();
    tree_of_drafts();
    return fflush(stdout) != 0 || ferror(stdout) || failed;
}
