/* descriptors.h - random descriptors that cover every pair of options, of the forward call and of what a test adds
   with MORE_FACTORS(X); WITH_GRADIENTS adds what attn_backward is asked about the call. */
#ifndef ATTN_DESCRIPTORS_H
#define ATTN_DESCRIPTORS_H

#include "cases.h"

#ifdef WITH_GRADIENTS
#include "grads.h"
#define MORE_FACTORS(X) X(UPSTREAM, 7) X(STATS, 2) X(ASKED, 5) X(ACCUMULATE, 3) X(LAYOUT_GRAD, 4)
#endif
#ifndef MORE_FACTORS
#define MORE_FACTORS(X)
#endif
/* Without starts and pages: NO_SEQUENCES, before the include */
#ifdef NO_SEQUENCES
#define FACTOR_OF_SEQUENCES(X)
#else
#define FACTOR_OF_SEQUENCES(X) X(SEQUENCES, 6)
#endif

/* Without a bias by index, which a device refuses: NO_INDICES, before the include */
#ifdef NO_INDICES
#define BIASES 7
#else
#define BIASES 10
#endif

/* Every option is a factor with a few levels; level 0 is mostly "off". Some have no effect together (a
   kernel takes no scale, a dot product no sigma): the case is then the one without. */
// clang-format off
#define FACTORS(X) \
    X(SCORE, ATTN_SCORE_COUNT) X(BATCH, 2) X(HEADS, 4) X(QUERIES, 4) X(KEYS, 4) X(DIM, 3) X(VALUE_DIM, 3) \
    X(LAYOUT_Q, LAYOUT_COUNT) X(LAYOUT_K, LAYOUT_COUNT) X(LAYOUT_V, LAYOUT_COUNT) X(LAYOUT_OUT, 4) \
    X(NUMBERS, 3) X(SCALE, 4) X(PER_HEAD, 2) X(SOFTCAP, 2) X(BIAS, BIASES) X(ALIBI, 2) X(SINK, 3) X(MASK, 5) \
    X(KEY_LENGTHS, 3) X(QUERY_LENGTHS, 2) X(CAUSAL, 2) X(ALIGN, 4) X(WINDOW, 5) X(DROPOUT, 3) X(AFTER, 2) \
    X(EMPTY, ATTN_EMPTY_COUNT) X(RESULTS, 6) X(POISON, 2) X(WORKERS, 4) FACTOR_OF_SEQUENCES(X) \
    MORE_FACTORS(X)
enum {
#define X(name, levels) F_##name,
    FACTORS(X)
#undef X
    FACTOR_COUNT
};
// clang-format on
static const int levels[FACTOR_COUNT] = {
#define X(name, levels) levels,
    FACTORS(X)
#undef X
};

/* ---- which pairs of levels have been had */
enum { MAX_LEVELS = 16 };
static unsigned char covered[FACTOR_COUNT][FACTOR_COUNT][MAX_LEVELS][MAX_LEVELS];

static inline int new_pairs(const int f[FACTOR_COUNT], int mark) {
    int n = 0;
    for (int a = 0; a < FACTOR_COUNT; a++) {
        for (int b = a + 1; b < FACTOR_COUNT; b++) {
            unsigned char *had = &covered[a][b][f[a]][f[b]];
            n += !*had;
            if (mark) *had = 1;
        }
    }
    return n;
}

static inline int missing_pairs(void) {
    int n = 0;
    for (int a = 0; a < FACTOR_COUNT; a++)
        for (int b = a + 1; b < FACTOR_COUNT; b++)
            for (int i = 0; i < levels[a]; i++)
                for (int j = 0; j < levels[b]; j++) n += !covered[a][b][i][j];
    return n;
}

/* Of a few random candidates the one with the most new pairs. */
static inline void draw_factors(int f[FACTOR_COUNT]) {
    int best = -1;
    for (int candidate = 0; candidate < 12; candidate++) {
        int g[FACTOR_COUNT];
        for (int n = 0; n < FACTOR_COUNT; n++) g[n] = test_int(0, levels[n] - 1);
        int gain = new_pairs(g, 0);
        if (gain <= best) continue;
        best = gain;
        memcpy(f, g, sizeof g);
    }
    new_pairs(f, 1);
}

/* ---- a descriptor from factors */
typedef struct shape {
    int64_t b, h, hkv, sq, sk, d, dv;
} shape;

/* Which rows and keys the entries of the descriptor at hand have, or have room for; batch sizes of the arrays of
   queries and of keys, 1 where entries are packed; rows of a page, or 0 without pages, and then k_b pages. */
static struct {
    int query_starts, key_starts;
    int64_t q_b, k_b, page;
    ref_entry at[REF_ENTRIES];
} drawn;

static inline shape draw_shape(const int f[FACTOR_COUNT]) {
    static const int heads[][2] = {{1, 1}, {2, 2}, {4, 2}, {3, 1}};
    static const int queries[][2] = {{1, 1}, {2, 7}, {8, 20}, {21, 40}},
                     keys[][2] = {{1, 2}, {3, 16}, {17, 60}, {120, 280}};
    static const int sizes[][2] = {{1, 1}, {2, 8}, {9, 36}};
    const int *q = queries[f[F_QUERIES]], *k = keys[f[F_KEYS]], *d = sizes[f[F_DIM]], *v = sizes[f[F_VALUE_DIM]];
    shape s = {1 + f[F_BATCH],       heads[f[F_HEADS]][0], heads[f[F_HEADS]][1], test_int(q[0], q[1]),
               test_int(k[0], k[1]), test_int(d[0], d[1]), test_int(v[0], v[1])};
    return s;
}

static inline void build_inputs(attn_desc *d, const int f[FACTOR_COUNT], const shape *s) {
    static const double deviations[] = {1, 6, 1e-20};
    double deviation = deviations[f[F_NUMBERS]];
    d->score = f[F_SCORE];
    d->v = make_filled((layout)f[F_LAYOUT_V], 1, 4, drawn.k_b, s->hkv, drawn.page ? drawn.page : s->sk, s->dv);
    if (d->score == ATTN_SCORE_GIVEN) {
        d->given_scores = make_filled((layout)f[F_LAYOUT_Q], deviation, 4, s->b, s->h, s->sq, s->sk);
        return;
    }
    d->q = make_filled((layout)f[F_LAYOUT_Q], deviation, 4, drawn.q_b, s->h, s->sq, s->d);
    d->k = make_filled((layout)f[F_LAYOUT_K], deviation, 4, drawn.k_b, s->hkv, drawn.page ? drawn.page : s->sk, s->d);
    if (!ref_is_distance(d->score)) return;
    fill(&d->q, draw_quarters, -1, 1);
    fill(&d->k, draw_quarters, -1, 1);
    d->sigma = (float)exp2(ceil(log2(0.9 * sqrt((double)s->d)))); /* a power of two: the kernels' edges are exact */
}

static inline void build_score(attn_desc *d, const int f[FACTOR_COUNT], const shape *s) {
    int per_head = f[F_PER_HEAD];
    int64_t lead = per_head ? s->h : 0, width = test_int(1, 12);
    if (!ref_is_kernel(d->score) && f[F_SCALE]) {
        d->scale_set = f[F_SCALE] != 2;
        d->scale = f[F_SCALE] == 1 ? 0.3f : f[F_SCALE] == 2 ? 1.7f : -0.6f;
        if (f[F_SCALE] == 3 && test_int(0, 1)) d->scale = 0;
    }
    if (ref_is_distance(d->score) && per_head) {
        d->sigma_per_head = make_view(ATTN_F32, LAYOUT_GAPS, 1, s->h, 0, 0, 0);
        for (int64_t h = 0; h < s->h; h++) put_at(&d->sigma_per_head, 0, 0, 0, h, d->sigma * (h % 2 ? 2 : 1));
        d->sigma = 0;
    }
    if (d->score == ATTN_SCORE_BILINEAR) {
        if (per_head) d->bilinear = make_filled(LAYOUT_MIXED, 0.4, 3, lead, s->d, s->d, 0);
        else d->bilinear = make_filled(LAYOUT_MIXED, 0.4, 2, s->d, s->d, 0, 0);
    }
    if (d->score != ATTN_SCORE_ADDITIVE) return;
    if (per_head) {
        d->w_q = make_filled(LAYOUT_GAPS, 0.7, 3, lead, width, s->d, 0);
        d->w_k = make_filled(LAYOUT_MIXED, 0.7, 3, lead, width, s->d, 0);
        d->w_v = make_filled(LAYOUT_MIXED, 1, 2, lead, width, 0, 0);
        d->hidden_bias = make_filled(LAYOUT_PACKED, 1, 2, lead, width, 0, 0);
    } else {
        int identity = test_int(0, 1);
        if (identity) width = s->d;
        else d->w_q = make_filled(LAYOUT_PACKED, 0.7, 2, width, s->d, 0, 0);
        if (!identity || test_int(0, 1)) d->w_k = make_filled(LAYOUT_PACKED, 0.7, 2, width, s->d, 0, 0);
        d->w_v = make_filled(LAYOUT_REVERSED, 1, 1, width, 0, 0, 0);
    }
}

/* Where all arrays lie on a device a bias by index is refused, and a mask by row of packed entries. */
static inline int takes_indices(void) {
    static int known, taken;
    attn_desc d;
    memset(&d, 0, sizeof d);
#ifdef DRAWN_FOR_A_DEVICE /* where arrays are put later */
    known = 1;
#endif
    if (known++) return taken;
    d.q = d.k = d.v = make_filled(LAYOUT_PACKED, 1, 4, 1, 1, 1, 1);
    d.out = make_out(LAYOUT_PACKED, 4, 1, 1, 1, 1), d.bias = make_filled(LAYOUT_PACKED, 1, 1, 1, 0, 0, 0);
    d.bias_index = make_ints(ATTN_I32, 1, 1, 0, 0, 0, 0, 0);
    return taken = attn_forward(&d, 0) == ATTN_OK;
}

/* A view of rank 1..4 that broadcasts against [B,H,Sq,Sk]: some of its axes have size 1. Packed, its columns are those
   of the longest entry, or some more; or it has one row and one column. */
static inline attn_view make_broadcast(int32_t type, int rank, const shape *s) {
    int64_t full[4] = {s->b, s->h, s->sq, s->sk}, n[4] = {0, 0, 0, 0}, longest = 0;
    int packed = drawn.q_b != s->b || (drawn.k_b != s->b && !drawn.page), one = !takes_indices() || test_int(0, 3) == 0;
    for (int64_t b = 0; packed && b < s->b; b++) longest = drawn.at[b].k > longest ? drawn.at[b].k : longest;
    if (packed) full[3] = longest + test_int(0, 3);
    for (int axis = 0; axis < rank; axis++) n[axis] = test_int(0, 3) ? full[axis + 4 - rank] : 1;
    if (packed) n[rank - 1] = full[3];
    for (int axis = 0; axis < rank; axis++)
        if (packed && one && axis + 4 - rank >= 2) n[axis] = 1;
    return make_view(type, test_int(0, 1) ? LAYOUT_MIXED : LAYOUT_PACKED, rank, n[0], n[1], n[2], n[3]);
}

static inline double draw_some_excluded(double share, double value) {
    return test_uniform() < share ? value : test_normal();
}
static inline double draw_bits(double share, double most) {
    return test_uniform() < share ? test_int(1, (int)most) : 0;
}

/* A bias by index: any array of them, or by distance, from one vector. */
static inline void build_indexed(attn_desc *d, int by_distance, const shape *s) {
    const int64_t n = test_int(1, 40), distances = s->sq + s->sk > 0 ? s->sq + s->sk - 1 : 0;
    const int32_t type = test_int(0, 1) ? ATTN_I32 : ATTN_I64;
    const int packed = drawn.q_b != s->b || (drawn.k_b != s->b && !drawn.page), back = test_int(0, 1);
    if (test_int(0, 2)) d->bias = make_filled(LAYOUT_MIXED, 1, 2, test_int(0, 1) ? s->h : 1, n, 0, 0);
    else d->bias = make_filled(LAYOUT_GAPS, 1, 1, n, 0, 0, 0);
    if (d->bias.rank == 2 && test_int(0, 5) == 0 && d->bias.size[0] > 0) put_at(&d->bias, 0, 0, 0, n / 2, -INFINITY);
    if (packed || !by_distance) {
        d->bias_index = make_broadcast(type, test_int(1, 4), s);
        fill(&d->bias_index, draw_int, -2, (double)n - 1);
        return;
    }
    attn_view all = make_ints(type, 1, distances, 0, 0, 0, -1, (int)n - 1);
    d->bias_index = all, d->bias_index.rank = 2;
    d->bias_index.size[0] = s->sq, d->bias_index.size[1] = s->sk;
    d->bias_index.stride[0] = back ? -1 : 1, d->bias_index.stride[1] = 1;
    if (back && s->sq > 0) d->bias_index.data = (const char *)all.data + (s->sq - 1) * (type == ATTN_I32 ? 4 : 8);
}

static inline void build_added(attn_desc *d, const int f[FACTOR_COUNT], const shape *s) {
    if (f[F_SOFTCAP]) d->softcap = 2.5f;
    if (f[F_BIAS] > 6 && takes_indices()) build_indexed(d, f[F_BIAS] > 7, s);
    else if (f[F_BIAS]) {
        d->bias = make_broadcast(ATTN_F32, f[F_BIAS] < 5 ? f[F_BIAS] : 4, s);
        fill(&d->bias, draw_some_excluded, f[F_BIAS] < 5 ? 0 : 0.3, f[F_BIAS] == 5 ? -INFINITY : -1e9);
    }
    if (f[F_ALIBI]) d->alibi = make_filled(LAYOUT_GAPS, 0.3, 1, s->h, 0, 0, 0);
    if (f[F_SINK]) {
        d->sink = make_filled(LAYOUT_REVERSED, 1, 1, s->h, 0, 0, 0);
        if (f[F_SINK] == 2) put_at(&d->sink, 0, 0, 0, 0, -INFINITY);
    }
}

/* ---- entries of a batch that share arrays */

/* Gradients: no pages, and no two entries with a key in common where keys are packed. A piece: arrays of the sizes that
   are asked for, so no pages and nothing packed. */
static int for_gradients, for_piece;

static inline int draw_int_type(void) { return test_int(0, 1) ? ATTN_I32 : ATTN_I64; }
static inline int64_t at_most(int64_t n) { return test_int(0, 3) ? test_int(0, (int)n) : test_int(0, 1) ? n : 0; }

/* Entries one after the other, with gaps; of keys that are not for gradients in a random order. Those without rows
   anywhere. Returns what they take. */
static inline int64_t pack_entries(const shape *s, int keys, int64_t most) {
    int64_t *order = random_order(s->b), total = 0;
    for (int64_t n = 0; n < s->b; n++) {
        ref_entry *e = &drawn.at[keys && !for_gradients ? order[n] : n];
        int64_t count = at_most(most), start;
        total += test_int(0, 2) ? 0 : test_int(0, 5);
        start = count || test_int(0, 1) ? total : test_int(0, (int)total);
        if (keys) e->k0 = start, e->k = count;
        else e->q0 = start, e->q = count;
        total += count;
    }
    free(order);
    return total + (total == 0 || test_int(0, 1) ? test_int(1, 4) : 0);
}

/* Of keys that are not for gradients, entries may have some in common: a prefix, or any. */
static inline void share_keys(const shape *s) {
    for (int64_t b = 0; b < s->b; b++) {
        drawn.at[b].k0 = test_int(0, 1) ? 0 : at_most(s->sk);
        drawn.at[b].k = at_most(s->sk - drawn.at[b].k0);
    }
}

/* Chooses who has what of which rows, and makes the shape that of the arrays. Level 3: left padding and the like, 4:
   packed, 5: pages, which may have starts as well. */
static inline void draw_entries(const int f[FACTOR_COUNT], shape *s) {
#ifdef NO_SEQUENCES
    int level = 0;
#else
    int level = f[F_SEQUENCES];
#endif
    int places = f[F_SCORE] == ATTN_SCORE_GIVEN || for_piece || test_int(0, 3) == 0; /* [i,j] of arrays are asked for */
    int pack_queries = 0, pack_keys = 0;
    memset(&drawn, 0, sizeof drawn);
    drawn.q_b = drawn.k_b = s->b;
    if (level < 3 || s->b == 0 || s->h == 0) return;
    if (level == 5 && (for_gradients || for_piece)) level = 4;
    if (level == 4 && places) level = 3;
    if (level != 3 && !places) {
        s->b = drawn.q_b = drawn.k_b = test_int(1, 4);
        pack_queries = test_int(0, 3) > 0;
        pack_keys = level == 4 && (!pack_queries || test_int(0, 2));
    }
    drawn.query_starts = pack_queries || test_int(0, 1);
    drawn.key_starts = pack_keys || test_int(0, 1);
    if (!drawn.query_starts && !drawn.key_starts && level != 5) drawn.key_starts = 1;
    if (level == 5) {
        drawn.page = test_int(0, 3) ? test_int(1, 8) : test_int(1, 40);
        s->sk = (s->sk + drawn.page - 1) / drawn.page * drawn.page;
        drawn.k_b = test_int(1, 3) * (s->sk / drawn.page) + test_int(1, 3); /* pages of the pool */
    }
    for (int64_t b = 0; b < s->b; b++) {
        ref_entry *e = &drawn.at[b];
        if (drawn.query_starts) e->q0 = at_most(s->sq);
        if (drawn.key_starts) e->k0 = at_most(s->sk);
        e->q = s->sq - e->q0, e->k = s->sk - e->k0;
    }
    if (pack_queries) s->sq = pack_entries(s, 0, s->sq), drawn.q_b = 1;
    if (pack_keys) {
        s->sk = pack_entries(s, 1, s->sk), drawn.k_b = 1;
        if (!for_gradients && test_int(0, 1)) share_keys(s);
    }
}

static inline attn_view draw_lengths(const shape *s, int keys) {
    attn_view v = make_view(draw_int_type(), LAYOUT_MIXED, 1, s->b, 0, 0, 0);
    int packed = keys ? drawn.k_b == 1 && s->b > 1 : drawn.q_b == 1 && s->b > 1;
    for (int64_t b = 0; b < s->b; b++) {
        int64_t most = keys ? drawn.at[b].k : drawn.at[b].q;
        put_at(&v, 0, 0, 0, b, (double)(packed && test_int(0, 3) ? most : test_int(0, (int)most)));
    }
    return v;
}
static inline attn_view all_keys(const shape *s) {
    attn_view v = make_view(ATTN_I64, LAYOUT_PACKED, 1, s->b, 0, 0, 0);
    for (int64_t b = 0; b < s->b; b++) put_at(&v, 0, 0, 0, b, (double)drawn.at[b].k);
    return v;
}
/* [B,Sq], or [1,total]; of a row that no entry has, 0 */
static inline attn_view draw_lengths_per_query(const shape *s) {
    attn_view v = make_ints(draw_int_type(), 2, drawn.q_b, s->sq, 0, 0, 0, 0);
    for (int64_t b = 0; b < s->b; b++)
        for (int64_t i = 0; i < s->sq; i++)
            if (drawn.q_b == s->b || (i >= drawn.at[b].q0 && i < drawn.at[b].q0 + drawn.at[b].q))
                put_at(&v, 0, 0, drawn.q_b == 1 ? 0 : b, i, test_int(0, (int)drawn.at[b].k));
    return v;
}

/* Pages in a random order, some of them used twice; numbers that must not be read hold what would be refused. */
static inline attn_view draw_table(const attn_desc *d, const shape *s) {
    attn_view table =
        make_view(draw_int_type(), test_int(0, 1) ? LAYOUT_MIXED : LAYOUT_PACKED, 2, s->b, s->sk / drawn.page, 0, 0);
    int64_t *order = random_order(drawn.k_b);
    attn_desc with = *d;
    ref_result r;
    fill(&table, draw_int, -1, -1);
    with.page_table = table;
    ref_sizes(&with, &r);
    for (int64_t b = 0; b < s->b; b++)
        for (int64_t n = 0; n < table.size[1]; n++)
            if (n * drawn.page < r.entries[b].k0 + r.entries[b].k)
                put_at(&table, 0, 0, b, n, (double)order[test_int(0, 5) ? (b + n) % drawn.k_b : test_int(0, 1)]);
    free(order);
    return table;
}

static inline void build_entries(attn_desc *d, const int f[FACTOR_COUNT], const shape *s) {
    int shared_rows = drawn.q_b != s->b, shared_keys = drawn.k_b != s->b && !drawn.page;
    if (drawn.query_starts) d->query_starts = make_view(draw_int_type(), LAYOUT_MIXED, 1, s->b, 0, 0, 0);
    if (drawn.key_starts) d->key_starts = make_view(draw_int_type(), LAYOUT_MIXED, 1, s->b, 0, 0, 0);
    for (int64_t b = 0; b < s->b; b++) {
        if (drawn.query_starts) put_at(&d->query_starts, 0, 0, 0, b, (double)drawn.at[b].q0);
        if (drawn.key_starts) put_at(&d->key_starts, 0, 0, 0, b, (double)drawn.at[b].k0);
    }
    if (f[F_QUERY_LENGTHS] || shared_rows) d->query_lengths = draw_lengths(s, 0);
    if (f[F_KEY_LENGTHS] == 2) d->key_lengths = draw_lengths_per_query(s);
    else if (f[F_KEY_LENGTHS] == 1 || (shared_keys && for_gradients)) d->key_lengths = draw_lengths(s, 1);
    else if (shared_keys) d->key_lengths = all_keys(s); /* packed keys need them */
    if (drawn.page) d->page_table = draw_table(d, s);
}

static inline void build_masks(attn_desc *d, const int f[FACTOR_COUNT], const shape *s) {
    int sq = (int)s->sq, sk = (int)s->sk;
    if (f[F_MASK]) {
        d->mask = make_broadcast(ATTN_U8, f[F_MASK], s);
        fill(&d->mask, draw_bits, 0.7, 255);
    }
    if (drawn.query_starts || drawn.key_starts || drawn.page) build_entries(d, f, s);
    else {
        if (f[F_KEY_LENGTHS] == 1) d->key_lengths = make_ints(ATTN_I32, 1, s->b, 0, 0, 0, 0, sk);
        if (f[F_KEY_LENGTHS] == 2) d->key_lengths = make_ints(ATTN_I64, 2, s->b, s->sq, 0, 0, 0, sk);
        if (f[F_QUERY_LENGTHS]) d->query_lengths = make_ints(ATTN_I32, 1, s->b, 0, 0, 0, 0, sq);
    }
    d->causal = f[F_CAUSAL];
    d->align = f[F_ALIGN] == 0 ? ATTN_ALIGN_TOP_LEFT : f[F_ALIGN] == 1 ? ATTN_ALIGN_BOTTOM_RIGHT : ATTN_ALIGN_POSITIONS;
    if (f[F_ALIGN] == 2) d->positions = make_ints(ATTN_I32, 1, s->b, 0, 0, 0, -3, sk + 3);
    if (f[F_ALIGN] == 3) d->positions = make_ints(ATTN_I64, 2, drawn.q_b, s->sq, 0, 0, -3, sk + 3);
    if (f[F_WINDOW]) {
        d->window = 1;
        d->window_left = f[F_WINDOW] == 2 ? ATTN_UNBOUNDED : f[F_WINDOW] == 4 ? 0 : test_int(0, sk);
        d->window_right = f[F_WINDOW] == 1 ? ATTN_UNBOUNDED : f[F_WINDOW] == 4 ? 0 : test_int(0, 20);
    }
}

/* Keys that no length lets in hold NaN: K, V, and the scores given for them. */
static inline void poison_excluded(const attn_desc *d, const shape *s) {
    for (int64_t b = 0; b < s->b; b++) {
        int64_t length = 0;
        for (int64_t i = 0; i < s->sq; i++) {
            int64_t n = d->key_lengths.rank ? ref_int(&d->key_lengths, b, i) : s->sk;
            length = n > length ? n : length;
        }
        attn_view inputs[3] = {d->k, d->v, d->given_scores};
        for (int n = 0; n < 3; n++) {
            int axis = n < 2 ? 2 : 3;
            if (!inputs[n].rank || inputs[n].stride[0] == 0 || inputs[n].stride[axis] == 0) continue; /* shared */
            attn_view beyond = attn_view_slice(attn_view_slice(inputs[n], 0, b, 1), axis, length, s->sk - length);
            fill(&beyond, draw_normal, NAN, 0);
        }
    }
}

/* The same where entries share arrays: rows of k and v that none of them has, and pages that none of them uses. */
static inline void poison_others(const attn_desc *d) {
    ref_result r;
    ref_sizes(d, &r);
    for (int n = 0; n < 3; n++) {
        attn_view v = n == 0 ? d->k : n == 1 ? d->v : d->given_scores;
        int axis = n < 2 ? 2 : 3;
        if (!v.rank || v.stride[0] == 0 || v.stride[axis] == 0 || v.size[0] == 0) continue; /* shared */
        unsigned char *used = (unsigned char *)calloc((size_t)(v.size[0] * v.size[axis]) + 1, 1);
        if (!used) abort();
        for (int64_t b = 0; b < r.b; b++)
            for (int64_t j = r.entries[b].k0; j < r.entries[b].k0 + r.entries[b].k; j++) {
                int64_t row = j, place = n < 2 ? ref_key_place(d, &v, b, j, &row) : b;
                used[(v.size[0] == 1 ? 0 : place) * v.size[axis] + row] = 1;
            }
        for (int64_t at = 0; at < v.size[0] * v.size[axis]; at++) {
            attn_view row = attn_view_slice(v, 0, at / v.size[axis], 1);
            row = attn_view_slice(row, axis, at % v.size[axis], 1);
            if (!used[at]) fill(&row, draw_normal, NAN, 0);
        }
        free(used);
    }
}

static inline void build_shaped(attn_desc *d, const int f[FACTOR_COUNT], shape s) {
    static const float dropouts[] = {0, 0.3f, 1};
    static const int results[] = {RESULT_ALL,
                                  RESULT_OUT,
                                  RESULT_OUT | RESULT_LSE,
                                  RESULT_OUT | RESULT_WEIGHTS,
                                  RESULT_LSE | RESULT_MASKED,
                                  RESULT_OUT | RESULT_SCORES};
    memset(d, 0, sizeof *d);
    draw_entries(f, &s);
    build_inputs(d, f, &s);
    build_score(d, f, &s);
    build_added(d, f, &s);
    build_masks(d, f, &s);
    if (f[F_POISON] && (d->query_starts.rank || d->key_starts.rank || d->page_table.rank)) poison_others(d);
    else if (f[F_POISON]) poison_excluded(d, &s);
    d->dropout = dropouts[f[F_DROPOUT]];
    d->weights_after_dropout = f[F_AFTER];
    d->seed = test_bits();
    for (int n = 0; n < 4; n++) d->dropout_origin[n] = test_int(0, 3) ? 0 : test_int(0, 1000);
    d->empty = f[F_EMPTY];
    int packed = drawn.q_b != s.b || (drawn.k_b != s.b && !drawn.page);
    int set = results[f[F_RESULTS]] & (packed ? RESULT_OUT | RESULT_LSE | RESULT_STATS : RESULT_ALL);
    ask_for(d, set, (layout)(f[F_LAYOUT_OUT] == 3 ? LAYOUT_MIXED : f[F_LAYOUT_OUT]));
}

static inline void build(attn_desc *d, const int f[FACTOR_COUNT]) { build_shaped(d, f, draw_shape(f)); }

/* ---- what attn_backward is asked about such a call */
#ifdef WITH_GRADIENTS
static const int upstreams[7] = {1, 3, 5, 7, 2, 4, 6}; /* of the levels of F_UPSTREAM */

static inline unsigned draw_asked(int level, unsigned there) {
    unsigned set = level == 0   ? there
                   : level == 1 ? 7 /* q, k, v */
                   : level == 2 ? there & (unsigned)test_bits()
                   : level == 3 ? 1u << test_int(0, GRAD_COUNT - 1)
                                : there & ~7u;
    return set & there ? set & there : 1u << GRAD_V;
}

/* Of the forward call c->d, which gets stats, too */
static inline void build_gradients(call *c, const int f[FACTOR_COUNT]) {
    static const unsigned sums[3] = {0, ATTN_GRAD_ALL, 0};
    int from = upstreams[f[F_UPSTREAM]];
    layout out = (layout)(f[F_LAYOUT_OUT] == 3 ? LAYOUT_MIXED : f[F_LAYOUT_OUT]);
    ref_result r;
    ref_sizes(&c->d, &r);
    if (from & FROM_OUT && !c->d.out.rank) c->d.out = make_out(out, 4, r.rows_b, r.h, r.sq, r.dv);
    c->d.stats = make_out(out, 4, r.rows_b, r.h, r.sq, 2);
    draw_upstream(&c->g, &c->d, from, (layout)test_int(0, LAYOUT_COUNT - 1));
    unsigned there = all_grads(&c->d);
    ask_grads(c, draw_asked(f[F_ASKED], there),
              f[F_ACCUMULATE] == 2 ? there & (unsigned)test_bits() : sums[f[F_ACCUMULATE]],
              (layout)(f[F_LAYOUT_GRAD] == 3 ? LAYOUT_MIXED : f[F_LAYOUT_GRAD]));
}

static inline void build_call(call *c, const int f[FACTOR_COUNT]) {
    memset(c, 0, sizeof *c);
    build(&c->d, f);
    build_gradients(c, f);
}
#endif

#endif
