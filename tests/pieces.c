/* pieces.c - views, scores, masks as data, the dropout mask, merging: what stands alone. */
#include "cases.h"

static attn_desc no_options(void) {
    attn_desc o;
    memset(&o, 0, sizeof o);
    return o;
}

/* ---- constructors of views: every element where it belongs */
static float memory[2 * 3 * 4 * 5 * 3];

static void check_view(attn_view v, int rank, const int64_t size[4], const int64_t stride[4], const void *data,
                       const char *what) {
    CHECKF(v.rank == rank && v.type == ATTN_F32 && v.data == data, "%s: rank, type or data", what);
    for (int axis = 0; axis < rank; axis++)
        CHECKF(v.size[axis] == size[axis] && v.stride[axis] == stride[axis], "%s: axis %d has %ld elements %ld apart",
               what, axis, (long)v.size[axis], (long)v.stride[axis]);
}
#define VIEW(call, rank, s0, s1, s2, s3, t0, t1, t2, t3, data) \
    do { \
        const int64_t size[4] = {s0, s1, s2, s3}, stride[4] = {t0, t1, t2, t3}; \
        check_view(call, rank, size, stride, data, #call); \
    } while (0)

static void test_views(void) {
    float *m = memory;
    uint8_t bytes[4];
    int32_t i32[4];
    int64_t i64[4];
    VIEW(attn_view_f32(m, 1, 7, 0, 0, 0), 1, 7, 0, 0, 0, 1, 0, 0, 0, m);
    VIEW(attn_view_f32(m, 2, 3, 7, 0, 0), 2, 3, 7, 0, 0, 7, 1, 0, 0, m);
    VIEW(attn_view_f32(m, 3, 2, 3, 7, 0), 3, 2, 3, 7, 0, 21, 7, 1, 0, m);
    VIEW(attn_view_f32(m, 4, 2, 3, 4, 5), 4, 2, 3, 4, 5, 60, 20, 5, 1, m);
    VIEW(attn_view_of(attn_out_f32(m, 4, 2, 3, 4, 5)), 4, 2, 3, 4, 5, 60, 20, 5, 1, m);
    VIEW(attn_view_bhsd(m, 2, 3, 4, 5), 4, 2, 3, 4, 5, 60, 20, 5, 1, m);
    VIEW(attn_view_bshd(m, 2, 4, 3, 5), 4, 2, 3, 4, 5, 60, 5, 15, 1, m);
    VIEW(attn_view_of(attn_out_bhsd(m, 2, 3, 4, 5)), 4, 2, 3, 4, 5, 60, 20, 5, 1, m);
    VIEW(attn_view_of(attn_out_bshd(m, 2, 4, 3, 5)), 4, 2, 3, 4, 5, 60, 5, 15, 1, m);
    for (int which = 0; which < 3; which++)
        VIEW(attn_view_qkv(m, which, 2, 4, 3, 5), 4, 2, 3, 4, 5, 180, 5, 45, 1, m + 15 * which);
    VIEW(attn_view_rows(m + 2, 2, 4, 3, 5, 23), 4, 2, 3, 4, 5, 92, 5, 23, 1, m + 2);
    VIEW(attn_view_of(attn_out_rows(m + 2, 2, 4, 3, 5, 23)), 4, 2, 3, 4, 5, 92, 5, 23, 1, m + 2);
    VIEW(attn_view_swap(attn_view_f32(m, 4, 2, 3, 4, 5), 3, 1), 4, 2, 5, 4, 3, 60, 1, 5, 20, m);
    VIEW(attn_view_swap(attn_view_f32(m, 2, 2, 3, 0, 0), 0, 0), 2, 2, 3, 0, 0, 3, 1, 0, 0, m);
    VIEW(attn_view_slice(attn_view_f32(m, 4, 2, 3, 4, 5), 2, 1, 2), 4, 2, 3, 2, 5, 60, 20, 5, 1, m + 5);
    VIEW(attn_view_slice(attn_view_f32(m, 4, 2, 3, 4, 5), 0, 1, 1), 4, 1, 3, 4, 5, 60, 20, 5, 1, m + 60);
    VIEW(attn_view_slice(attn_view_bshd(m, 2, 4, 3, 5), 1, 2, 1), 4, 2, 1, 4, 5, 60, 5, 15, 1, m + 10);
    VIEW(attn_view_of(attn_out_slice(attn_out_f32(m, 2, 6, 7, 0, 0), 1, 3, 4)), 2, 6, 4, 0, 0, 7, 1, 0, 0, m + 3);
    static const int64_t beyond[][2] = {{-1, 1}, {2, 2}, {4, 1}, {0, -1}, {INT64_MAX, 1}, {0, INT64_MAX}};
    for (size_t n = 0; n < sizeof beyond / sizeof *beyond; n++) { /* refused by what takes it; no address outside */
        attn_view part = attn_view_slice(attn_view_f32(m, 2, 3, 4, 0, 0), 0, beyond[n][0], beyond[n][1]);
        CHECK(part.size[0] == -1 && part.data == m);
    }
    attn_view b = attn_view_u8(bytes, 2, 2, 2, 0, 0), i = attn_view_i32(i32, 2, 2, 2, 0, 0),
              l = attn_view_i64(i64, 1, 4, 0, 0, 0);
    CHECK(b.type == ATTN_U8 && b.data == bytes && b.stride[0] == 2 && i.type == ATTN_I32 && i.data == i32 &&
          l.type == ATTN_I64);
    CHECK(attn_view_slice(b, 0, 1, 1).data == bytes + 1 * 2 && attn_view_slice(l, 0, 3, 1).data == i64 + 3);
    CHECK(attn_view_slice(i, 1, 1, 1).data == i32 + 1);
    attn_out o = attn_out_u8(bytes, 2, 2, 2, 0, 0);
    CHECK(o.type == ATTN_U8 && o.rank == 2 && o.data == bytes && o.stride[0] == 2 && o.stride[1] == 1);
}

/* ---- scores */
static attn_desc as_options(const attn_desc *d) { /* everything but what a piece is given apart */
    attn_desc o = *d;
    memset(&o.q, 0, (size_t)((char *)&o.score - (char *)&o.q));
    return o;
}

static void test_scores(void) {
    for (int32_t score = 0; score < ATTN_SCORE_GIVEN; score++)
        for (int again = 0; again < 6; again++) {
            attn_desc d = make_desc(2, 4, 2, test_int(1, 20), test_int(1, 300), test_int(1, 20), 1), o;
            set_score(&d, score, test_int(1, 9));
            ask_for(&d, RESULT_SCORES, LAYOUT_PACKED);
            if (again % 2 && !ref_is_kernel(score)) d.scale = -1.5f;
            attn_out scores = make_out(LAYOUT_MIXED, 4, 2, 4, d.q.size[2], d.k.size[2]);
            check_everywhere(&d, "scores by attn_forward");
            o = as_options(&d);
            o.causal = 1; /* changes no score */
            o.softcap = 0.1f;
            o.mask = make_ints(ATTN_U8, 1, d.k.size[2], 0, 0, 0, 0, 0);
            for (int n = 0; n < test_isa_count(); n++) {
                o.isa = (int32_t)test_isa(n);
                poison(&scores);
                CHECK_STATUS(attn_scores(d.q, d.k, scores, &o, 0), ATTN_OK);
                CHECK(gaps_untouched(&scores));
                check_same(&scores, &d.scores, "attn_scores and attn_forward");
            }
            test_release();
        }
    attn_view q = make_filled(LAYOUT_PACKED, 1, 4, 1, 1, 2, 9), k = make_filled(LAYOUT_PACKED, 1, 4, 1, 1, 3, 9);
    attn_out scores = make_out(LAYOUT_PACKED, 4, 1, 1, 2, 3);
    CHECK_STATUS(attn_scores(q, k, scores, 0, 0), ATTN_OK); /* no options: scaled dot product */
    for (int i = 0; i < 6; i++) {
        double want = 0;
        for (int c = 0; c < 9; c++) want += ref_at(&q, 0, 0, i / 3, c) * ref_at(&k, 0, 0, i % 3, c) / 3;
        CHECK_CLOSE(((float *)scores.data)[i], want, 1e-5);
    }
}

/* ---- masks */
static int allowed(const attn_desc *o, const int64_t n[4], const int64_t at[4]) {
    int64_t b = at[0], i = at[2], j = at[3];
    int64_t keys = o->key_lengths.rank ? ref_int(&o->key_lengths, b, i) : n[3],
            queries = o->query_lengths.rank ? ref_int(&o->query_lengths, b, i) : n[2];
    int64_t p = o->align == ATTN_ALIGN_TOP_LEFT       ? i
                : o->align == ATTN_ALIGN_BOTTOM_RIGHT ? i + keys - queries
                : o->positions.rank == 1              ? ref_int(&o->positions, b, i) + i
                                                      : ref_int(&o->positions, b, i);
    if (i >= queries || j >= keys || (o->causal && j > p)) return 0;
    if (o->window && o->window_left != ATTN_UNBOUNDED && j < p - o->window_left) return 0;
    if (o->window && o->window_right != ATTN_UNBOUNDED && j > p + o->window_right) return 0;
    if (o->bias.rank && ref_at(&o->bias, b, at[1], i, j) == -INFINITY) return 0;
    return !o->mask.rank || ref_at(&o->mask, b, at[1], i, j) != 0;
}

static attn_desc random_mask(const int64_t n[4]) {
    attn_desc o = no_options();
    if (test_int(0, 1)) o.key_lengths = make_ints(ATTN_I32, test_int(1, 2), n[0], n[2], 0, 0, 0, (int)n[3]);
    if (test_int(0, 2) == 0) o.query_lengths = make_ints(ATTN_I64, 1, n[0], 0, 0, 0, 0, (int)n[2]);
    o.align = (test_int(0, 2) + 2) % 3 + 1; /* top left, bottom right, positions */
    if (o.align == ATTN_ALIGN_POSITIONS)
        o.positions = make_ints(ATTN_I32, test_int(1, 2), n[0], n[2], 0, 0, -4, (int)n[3] + 4);
    o.causal = test_int(0, 1);
    o.window = test_int(0, 1);
    o.window_left = test_int(-1, 4);
    o.window_right = test_int(-1, 4);
    if (!o.window) o.window_left = o.window_right = 0;
    if (test_int(0, 1)) {
        o.mask = make_ints(ATTN_U8, 4, test_int(0, 1) ? n[0] : 1, test_int(0, 1) ? n[1] : 1, n[2], n[3], 0, 2);
        uint8_t *bytes = (uint8_t *)(uintptr_t)o.mask.data;
        for (int64_t i = 0; i < o.mask.size[0] * o.mask.size[1] * n[2] * n[3]; i++)
            if (bytes[i] == 2) bytes[i] = i % 2 ? 128 : 255; /* any but 0 says yes, those too whose sign bit is set */
    }
    if (test_int(0, 2) == 0) {
        o.bias = make_filled(LAYOUT_MIXED, 1, 2, n[2], n[3], 0, 0);
        for (int i = 0; i < 5; i++)
            put_at(&o.bias, 0, 0, test_int(0, (int)n[2] - 1), test_int(0, (int)n[3] - 1), -INFINITY);
        put_at(&o.bias, 0, 0, 0, 0, NAN); /* a number like any other */
    }
    return o;
}

static void test_mask(void) {
    for (int again = 0; again < 200; again++) {
        int64_t n[4] = {test_int(1, 3), test_int(1, 3), test_int(1, 9), test_int(1, 12)}, at[4];
        attn_desc o = random_mask(n);
        size_t count = (size_t)(n[0] * n[1] * n[2] * n[3] * 2);
        uint8_t *bytes = (uint8_t *)test_guarded(count);
        attn_out out = attn_out_u8(bytes, 4, n[0], n[1], n[2], n[3] * 2);
        int reversed = again % 2;
        memset(bytes, 77, count); /* every other byte, in either direction */
        out.size[3] = n[3];
        out.stride[3] = reversed ? -2 : 2;
        if (reversed) out.data = bytes + 2 * n[3] - 2;
        CHECK_STATUS(attn_mask(out, &o, 0), ATTN_OK);
        for (at[0] = 0; at[0] < n[0]; at[0]++)
            for (at[1] = 0; at[1] < n[1]; at[1]++)
                for (at[2] = 0; at[2] < n[2]; at[2]++)
                    for (at[3] = 0; at[3] < n[3]; at[3]++) {
                        const uint8_t *got = (uint8_t *)out.data + (at[0] * out.stride[0] + at[1] * out.stride[1] +
                                                                    at[2] * out.stride[2] + at[3] * out.stride[3]);
                        CHECKF(*got == allowed(&o, n, at), "mask[%ld,%ld,%ld,%ld] is %d", (long)at[0], (long)at[1],
                               (long)at[2], (long)at[3], (int)*got);
                    }
        for (size_t i = 1; i < count; i += 2) CHECK(bytes[i] == 77);
        test_release();
    }
}

/* The mask is where attention has weight. */
static void test_mask_of_attention(void) {
    for (int again = 0; again < 40; again++) {
        int64_t n[4] = {2, 2, test_int(1, 9), test_int(1, 40)};
        attn_desc d = random_mask(n), whole = make_desc(n[0], n[1], n[1], n[2], n[3], 4, 2);
        uint8_t *bytes = (uint8_t *)test_guarded((size_t)(n[0] * n[1] * n[2] * n[3]));
        memset(&d.bias, 0, sizeof d.bias);
        CHECK_STATUS(attn_mask(attn_out_u8(bytes, 4, n[0], n[1], n[2], n[3]), &d, 0), ATTN_OK);
        d.q = whole.q;
        d.k = whole.k;
        d.v = whole.v;
        ask_for(&d, RESULT_WEIGHTS | RESULT_MASKED, LAYOUT_PACKED);
        run_desc(&d, "a masked call");
        for (int64_t i = 0; i < n[0] * n[1] * n[2] * n[3]; i++) {
            CHECK((((float *)d.weights.data)[i] > 0) == bytes[i]);
            CHECK((((float *)d.scores_masked.data)[i] != -INFINITY) == bytes[i]);
        }
        test_release();
    }
    uint8_t all[6] = {9, 9, 9, 9, 9, 9};
    CHECK_STATUS(attn_mask(attn_out_u8(all, 4, 1, 1, 2, 3), 0, 0), ATTN_OK); /* no options */
    for (int i = 0; i < 6; i++) CHECK(all[i] == 1);
    CHECK_STATUS(attn_mask(attn_out_u8(0, 4, 1, 0, 2, 3), 0, 0), ATTN_OK);
}

/* ---- dropout: Philox4x32-10 written from its definition, with 64-bit products and the key schedule in a table */
static void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t keys[10][2], s[4];
    for (uint32_t round = 0; round < 10; round++) {
        keys[round][0] = key[0] + round * 0x9E3779B9u;
        keys[round][1] = key[1] + round * 0xBB67AE85u;
    }
    memcpy(s, counter, sizeof s);
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)s[0] * 0xD2511F53u, b = (uint64_t)s[2] * 0xCD9E8D57u;
        const uint32_t next[4] = {(uint32_t)(b >> 32) ^ s[1] ^ keys[round][0], (uint32_t)b,
                                  (uint32_t)(a >> 32) ^ s[3] ^ keys[round][1], (uint32_t)a};
        memcpy(s, next, sizeof s);
    }
    memcpy(out, s, sizeof s);
}

/* The vectors that its authors publish. */
static void test_philox(void) {
    static const uint32_t zero[4], ones[4] = {0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu};
    static const uint32_t pi[4] = {0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u},
                          pi_key[2] = {0xa4093822u, 0x299f31d0u};
    static const uint32_t of_zero[4] = {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u};
    static const uint32_t of_ones[4] = {0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu};
    static const uint32_t of_pi[4] = {0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u};
    uint32_t x[4];
    philox(zero, zero, x);
    CHECK(!memcmp(x, of_zero, sizeof x));
    philox(ones, ones, x);
    CHECK(!memcmp(x, of_ones, sizeof x));
    philox(pi, pi_key, x);
    CHECK(!memcmp(x, of_pi, sizeof x));
}

static int kept(const attn_desc *o, const int64_t at[4]) {
    uint32_t index[4], x[4];
    const uint32_t key[2] = {(uint32_t)o->seed, (uint32_t)(o->seed >> 32)};
    for (int axis = 0; axis < 4; axis++)
        index[axis] = (uint32_t)((uint64_t)o->dropout_origin[axis] + (uint64_t)at[axis]);
    const uint32_t counter[4] = {index[3] / 4, index[2], index[1], index[0]};
    philox(counter, key, x);
    return (double)x[index[3] % 4] >= ldexp((double)o->dropout, 32);
}

/* The vector of counter 0 and key 0 through the mask itself: with p just at and just above a word, the element goes
   from kept to dropped. */
static void test_dropout_vectors(void) {
    static const uint32_t words[4] = {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u};
    for (int word = 0; word < 4; word++) {
        attn_desc o = no_options();
        uint8_t at, above;
        o.dropout = (float)(words[word] >> 8) * 0x1p-24f; /* its first 24 bits */
        o.dropout_origin[3] = word;
        CHECK_STATUS(attn_dropout_mask(attn_out_u8(&at, 4, 1, 1, 1, 1), &o, 0), ATTN_OK);
        o.dropout += 0x1p-24f;
        CHECK_STATUS(attn_dropout_mask(attn_out_u8(&above, 4, 1, 1, 1, 1), &o, 0), ATTN_OK);
        CHECKF(at == 1 && above == 0, "word %d: %d at it, %d above it", word, (int)at, (int)above);
    }
}

static void test_dropout_mask(void) {
    static const int64_t origins[] = {0, 1, 3, 5, 1000, 4294967290, 4294967296, -3, INT64_MAX, INT64_MIN};
    for (int again = 0; again < 100; again++) {
        int64_t n[4] = {test_int(1, 3), test_int(1, 3), test_int(1, 5), test_int(1, 40)}, at[4];
        attn_desc o = no_options();
        o.dropout = again % 10 == 0 ? 1 : again % 10 == 1 ? 0 : (float)test_uniform();
        o.seed = test_bits();
        for (int axis = 0; axis < 4; axis++) o.dropout_origin[axis] = origins[test_int(0, 9)];
        uint8_t *bytes = (uint8_t *)test_guarded((size_t)(n[0] * n[1] * n[2] * n[3])), *next = bytes;
        CHECK_STATUS(attn_dropout_mask(attn_out_u8(bytes, 4, n[0], n[1], n[2], n[3]), &o, 0), ATTN_OK);
        for (at[0] = 0; at[0] < n[0]; at[0]++)
            for (at[1] = 0; at[1] < n[1]; at[1]++)
                for (at[2] = 0; at[2] < n[2]; at[2]++)
                    for (at[3] = 0; at[3] < n[3]; at[3]++, next++)
                        CHECKF(*next == kept(&o, at), "p %.9g: [%ld,%ld,%ld,%ld] is %d", (double)o.dropout, (long)at[0],
                               (long)at[1], (long)at[2], (long)at[3], (int)*next);
        test_release();
    }
}

/* As many are kept as should be, along every axis alike, and neighbours have nothing to do with each other. */
static void test_dropout_rate(void) {
    enum { N = 32, COUNT = N * N * N * N / 16 };
    static uint8_t bytes[COUNT];
    static const float rates[] = {0.1f, 0.25f, 0.5f, 0.9f};
    for (int i = 0; i < 4; i++) {
        attn_desc o = no_options();
        double p = (double)rates[i], deviation = sqrt(p * (1 - p) * COUNT), sum = 0, pairs[4] = {0, 0, 0, 0};
        static const int64_t stride[4] = {8 * N * N, N * N, N, 1};
        o.dropout = rates[i];
        o.seed = 12345;
        CHECK_STATUS(attn_dropout_mask(attn_out_u8(bytes, 4, N / 4, N / 4, N, N), &o, 0), ATTN_OK);
        for (int at = 0; at < COUNT; at++) {
            sum += bytes[at];
            for (int axis = 0; axis < 4; axis++)
                if (at + stride[axis] < COUNT)
                    pairs[axis] += (bytes[at] - (1 - p)) * (bytes[at + stride[axis]] - (1 - p));
        }
        CHECKF(fabs(sum - (1 - p) * COUNT) < 4.5 * deviation, "p %g: %g of %d kept", p, sum, (int)COUNT);
        for (int axis = 0; axis < 4; axis++)
            CHECKF(fabs(pairs[axis]) < 4.5 * p * (1 - p) * sqrt(COUNT),
                   "p %g: neighbours along axis %d are correlated: %g", p, axis, pairs[axis]);
    }
}

/* The mask is what attention drops, scaled by 1/(1-p); the weights before it are those of a call without. */
static void test_dropout_of_attention(void) {
    for (int again = 0; again < 20; again++) {
        attn_desc d = make_desc(2, 2, 1, test_int(1, 9), test_int(1, 300), 5, 3), plain;
        int64_t count = 4 * d.q.size[2] * d.k.size[2];
        uint8_t *bytes = (uint8_t *)test_guarded((size_t)count);
        ask_for(&d, RESULT_OUT | RESULT_WEIGHTS | RESULT_LSE, LAYOUT_PACKED);
        plain = copy_results(&d);
        run_desc(&plain, "without dropout");
        d.dropout = again ? (float)test_uniform() : 1;
        d.seed = test_bits();
        for (int axis = 0; axis < 4; axis++) d.dropout_origin[axis] = again % 4 ? test_int(0, 100) : INT64_MAX - again;
        CHECK_STATUS(attn_dropout_mask(attn_out_u8(bytes, 4, 2, 2, d.q.size[2], d.k.size[2]), &d, 0), ATTN_OK);
        run_desc(&d, "with dropout");
        check_same(&d.weights, &plain.weights, "weights before dropout");
        check_same(&d.lse, &plain.lse, "lse with dropout");
        d.weights_after_dropout = 1;
        run_desc(&d, "with dropout");
        for (int64_t i = 0; i < count; i++) {
            double before = (double)((float *)plain.weights.data)[i], after = (double)((float *)d.weights.data)[i];
            if (bytes[i] == 0) CHECKF(after == 0, "a dropped weight is %g", after);
            else CHECK_CLOSE(after, before / (1 - (double)d.dropout), 1e-6 * after);
        }
        test_release();
    }
}

/* ---- merging: attention over all keys from that over two halves of them */
static void check_merge(attn_desc *d, int64_t first) {
    int64_t n = d->k.size[2], rows = d->q.size[2];
    attn_desc half[2];
    attn_out merged = make_out(LAYOUT_MIXED, 4, 2, 4, rows, d->v.size[3]),
             lse = make_out(LAYOUT_GAPS, 3, 2, 4, rows, 0);
    ref_result r;
    ref_forward(d, &r);
    for (int part = 0; part < 2; part++) {
        half[part] = *d;
        half[part].k = attn_view_slice(d->k, 2, part ? first : 0, part ? n - first : first);
        half[part].v = attn_view_slice(d->v, 2, part ? first : 0, part ? n - first : first);
        if (d->mask.rank) half[part].mask = attn_view_slice(d->mask, 3, part ? first : 0, part ? n - first : first);
        ask_for(&half[part], RESULT_OUT | RESULT_LSE, LAYOUT_PACKED);
        run_desc(&half[part], "a part of the keys");
    }
    poison(&merged);
    poison(&lse);
    CHECK_STATUS(attn_merge(attn_view_of(half[0].out), attn_view_of(half[0].lse), attn_view_of(half[1].out),
                            attn_view_of(half[1].lse), merged, lse, 0),
                 ATTN_OK);
    CHECK(gaps_untouched(&merged) && gaps_untouched(&lse));
    attn_desc got = *d;
    got.out = merged;
    got.lse = lse;
    double ratio = ref_check(&got, &r, "merged parts");
    CHECKF(ratio <= 1, "merged parts are %.2f times the bound off", ratio);
    ref_free(&r);
    attn_out nowhere;
    memset(&nowhere, 0, sizeof nowhere);
    attn_out alone = make_out(LAYOUT_PACKED, 4, 2, 4, rows, d->v.size[3]);
    CHECK_STATUS(attn_merge(attn_view_of(half[0].out), attn_view_of(half[0].lse), attn_view_of(half[1].out),
                            attn_view_of(half[1].lse), alone, nowhere, 0),
                 ATTN_OK);
    check_same(&alone, &merged, "merged without lse");
}

static void test_merge(void) {
    for (int again = 0; again < 40; again++) {
        int64_t keys = test_int(1, 60);
        attn_desc d = make_desc(2, 4, 2, test_int(1, 9), keys, 6, test_int(1, 20));
        ask_for(&d, RESULT_OUT | RESULT_LSE, LAYOUT_PACKED);
        if (again % 3 == 0) d.scale = 20; /* one part outweighs the other */
        if (again % 2) d.mask = make_ints(ATTN_U8, 4, 2, 1, 1, keys, 0, 1);
        check_merge(&d, again % 5 == 0 ? 0 : test_int(0, (int)keys)); /* an empty part too */
        test_release();
    }
}

static void merge_one(float a, float lse_a, float b, float lse_b, float *out, float *lse) {
    CHECK_STATUS(attn_merge(attn_view_f32(&a, 4, 1, 1, 1, 1), attn_view_f32(&lse_a, 3, 1, 1, 1, 0),
                            attn_view_f32(&b, 4, 1, 1, 1, 1), attn_view_f32(&lse_b, 3, 1, 1, 1, 0),
                            attn_out_f32(out, 4, 1, 1, 1, 1), attn_out_f32(lse, 3, 1, 1, 1, 0), 0),
                 ATTN_OK);
}

static void test_merge_limits(void) {
    float out, lse;
    merge_one(3, -INFINITY, 5, -INFINITY, &out, &lse); /* both empty */
    CHECK(out == 0 && lse == -INFINITY);
    merge_one(3, 1, 5, -INFINITY, &out, &lse);
    CHECK(out == 3 && lse == 1);
    merge_one(NAN, -INFINITY, 5, 2, &out, &lse); /* what an empty part holds does not matter */
    CHECK(out == 5 && lse == 2);
    merge_one(5, 2, INFINITY, -INFINITY, &out, &lse);
    CHECK(out == 5 && lse == 2);
    merge_one(2, 0, 4, 0, &out, &lse);
    CHECK_CLOSE(out, 3, 1e-6);
    CHECK_CLOSE(lse, log(2), 1e-6);
    merge_one(2, 1e30f, 4, -1e30f, &out, &lse);
    CHECK(out == 2 && lse == 1e30f);
    merge_one(2, 3000, 4, 3000, &out, &lse);
    CHECK_CLOSE(out, 3, 1e-6);
    merge_one(2, NAN, 4, 0, &out, &lse);
    CHECK(isnan(out) && isnan(lse));
    merge_one(2, 0, NAN, 0, &out, &lse);
    CHECK(isnan(out) && !isnan(lse));
    CHECK_STATUS(attn_merge(attn_view_f32(0, 4, 0, 2, 3, 4), attn_view_f32(0, 3, 0, 2, 3, 0),
                            attn_view_f32(0, 4, 0, 2, 3, 4), attn_view_f32(0, 3, 0, 2, 3, 0),
                            attn_out_f32(0, 4, 0, 2, 3, 4), attn_out_f32(0, 3, 0, 2, 3, 0), 0),
                 ATTN_OK);
}

const test_case suite_pieces[] = {{"pieces.views", test_views},
                                  {"pieces.scores", test_scores},
                                  {"pieces.mask", test_mask},
                                  {"pieces.mask_of_attention", test_mask_of_attention},
                                  {"pieces.philox", test_philox},
                                  {"pieces.dropout_vectors", test_dropout_vectors},
                                  {"pieces.dropout_mask", test_dropout_mask},
                                  {"pieces.dropout_rate", test_dropout_rate},
                                  {"pieces.dropout_of_attention", test_dropout_of_attention},
                                  {"pieces.merge", test_merge},
                                  {"pieces.merge_limits", test_merge_limits},
                                  {0, 0}};
