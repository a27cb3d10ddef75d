/* corners.c - gradients where they must be exactly 0, where NaN and infinity may go and where not, memory that may
   not be read, sizes of 0 and 1 and around those of tiles, numbers at the ends of the range. */
#include "grads.h"
#include <time.h>

/* Runs a forward call and its gradients, all of them, with everything from above, against the reference. */
static call check_all(const attn_desc *d, const char *what) {
    call c = make_call(d, FROM_ALL, ~0u);
    check_call(&c, what);
    return c;
}

static void put_upstream(const attn_grad *g, int64_t b, int64_t h, int64_t i, float x) { /* one row, everywhere */
    for (int64_t n = 0; n < g->d_out.size[3]; n++) put_float(&g->d_out, b, h, i, n, x);
    for (int64_t n = 0; n < g->d_weights.size[3]; n++) put_float(&g->d_weights, b, h, i, n, x);
    put_float(&g->d_lse, b, h, i, 0, x);
}

static int all_zero(const attn_out *o, const char *what) {
    attn_view v = attn_view_of(*o);
    int64_t index[4] = {0, 0, 0, 0}, low, high;
    if (!o->rank || !view_extent(&v, &low, &high)) return 1;
    do {
        uint32_t bits = bits_at(&v, index);
        if (bits << 1) return CHECKF(0, "%s: a gradient that must be 0 has the bits %08x", what, (unsigned)bits);
    } while (next_index(&v, index));
    return CHECKF(1, "%s", what);
}

/* ---- rows without a key */

/* Their gradient is 0 even where the gradients from above are NaN; a finite sink still gets d_lse. */
static void empty_rows(void) {
    for (int how = 0; how < NO_COUNT; how++)
        for (int32_t policy = 0; policy < ATTN_EMPTY_COUNT; policy++)
            for (int sink = 0; sink < 2; sink++) {
                attn_desc d = without_keys(how);
                ref_result r;
                int64_t rows = 0;
                d.empty = policy;
                d.bias = d.bias.rank ? d.bias : make_filled(LAYOUT_PACKED, 1, 2, 1, EMPTY_KEYS, 0, 0);
                d.alibi = make_filled(LAYOUT_PACKED, 0.3, 1, 2, 0, 0, 0);
                if (sink) d.sink = make_filled(LAYOUT_PACKED, 1, 1, 2, 0, 0, 0);
                call c = make_call(&d, FROM_ALL, ~0u);
                ref_forward(&d, &r);
                for (int64_t n = 0; n < r.b * r.h * r.sq; n++) {
                    int64_t b = n / (r.h * r.sq), h = n / r.sq % r.h, i = n % r.sq;
                    float lse = (float)ref_at(&c.g.d_lse, 0, b, h, i);
                    if (r.stats[2 * n] != -INFINITY) continue; /* has keys */
                    rows++;
                    if (policy != ATTN_EMPTY_UNIFORM || sink) put_upstream(&c.g, b, h, i, odd_nan());
                    else { /* dv has a part in it */
                        for (int64_t j = 0; j < r.sk; j++) put_float(&c.g.d_weights, b, h, i, j, odd_nan());
                        lse = odd_nan();
                    }
                    put_float(&c.g.d_lse, b, h, i, 0, lse);
                    if (!sink) put_float(&c.g.d_lse, b, h, i, 0, odd_nan());
                }
                ref_free(&r);
                CHECKF(rows > 0, "no empty row");
                check_call(&c, "rows without a key");
                test_release();
            }
}

/* One row alone has none, wherever it stands. */
static void one_empty_row(void) {
    enum { ROWS = 19 };
    for (int row = 0; row < ROWS; row += 3)
        for (int32_t policy = 0; policy < ATTN_EMPTY_COUNT; policy++) {
            attn_desc d = make_desc(1, 2, 1, ROWS, EMPTY_KEYS, 6, 5);
            d.key_lengths = make_ints(ATTN_I32, 2, 1, ROWS, 0, 0, 1, EMPTY_KEYS);
            put_at(&d.key_lengths, 0, 0, 0, row, 0);
            d.empty = policy;
            check_all(&d, "one row without a key");
            test_release();
        }
}

/* No row has a key: every gradient is 0, but for the sink's. */
static void nothing_allowed(void) {
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++)
        for (int sink = 0; sink < 2; sink++) {
            attn_desc d = make_desc(2, 4, 2, 19, 70, 6, 5);
            set_score(&d, score, 7);
            d.key_lengths = make_ints(ATTN_I32, 1, 2, 0, 0, 0, 0, 0);
            d.bias = make_filled(LAYOUT_PACKED, 1, 2, 19, 70, 0, 0);
            d.empty = score % 2 ? ATTN_EMPTY_NAN : ATTN_EMPTY_ZERO;
            if (sink) d.sink = make_filled(LAYOUT_PACKED, 1, 1, 4, 0, 0, 0);
            call c = check_all(&d, ref_score_names[score]);
            memset(&c.g.d_sink, 0, sizeof c.g.d_sink);
            for (int n = 0; n < GRAD_COUNT; n++) all_zero(grad_of(&c.g, n), ref_grad_names[n]);
            test_release();
        }
}

static void sinks(void) {
    static const float values[] = {0, 3, -3, 80, -80, 1e4f, -1e4f, -1e30f, 1e30f, -INFINITY};
    for (size_t n = 0; n < sizeof values / sizeof *values; n++)
        for (int how = -1; how < NO_COUNT; how += 2) {
            attn_desc d = how < 0 ? make_desc(2, 2, 1, 19, 300, 6, 5) : without_keys(how);
            d.sink = make_ints(ATTN_F32, 1, 2, 0, 0, 0, 1, 1);
            put_at(&d.sink, 0, 0, 0, 0, (double)values[n]);
            d.empty = (int32_t)n % ATTN_EMPTY_COUNT;
            check_all(&d, "sink");
            test_release();
        }
}

/* ---- NaN and infinity */

/* Rows and keys of two kinds, even and odd, that never meet: what happens to the one must not change a bit of the
   other. Both lie in the same tiles. */
static attn_desc two_kinds(int32_t score) {
    attn_desc d = make_desc(1, 2, 1, 21, 150, 7, 5);
    set_score(&d, score, 6);
    d.mask = make_ints(ATTN_U8, 2, 21, 150, 0, 0, 0, 1);
    for (int i = 0; i < 21; i++)
        for (int j = 0; j < 150; j++)
            if ((i + j) % 2) put_at(&d.mask, 0, 0, i, j, 0);
    d.bias = make_filled(LAYOUT_PACKED, 1, 2, 21, 150, 0, 0);
    return d;
}

enum { AT_Q, AT_K, AT_V, AT_D_OUT, AT_D_LSE, AT_D_WEIGHTS, AT_BIAS, AT_GIVEN, AT_COUNT };

/* Row 6 and key 80 are even. 0: this score has no such thing. */
static int spoil(call *c, int at, float x) {
    const int64_t row = 6, key = 80;
    attn_view *v = at == AT_Q           ? &c->d.q
                   : at == AT_K         ? &c->d.k
                   : at == AT_V         ? &c->d.v
                   : at == AT_D_OUT     ? &c->g.d_out
                   : at == AT_D_LSE     ? &c->g.d_lse
                   : at == AT_D_WEIGHTS ? &c->g.d_weights
                   : at == AT_BIAS      ? &c->d.bias
                                        : &c->d.given_scores;
    if (!v->rank) return 0;
    *v = copy_view(v, LAYOUT_PACKED);
    put_at(&c->d.mask, 0, 0, row, key, 1);
    if (at == AT_Q || at == AT_D_OUT) put_float(v, 0, 1, row, 2, x);
    else if (at == AT_K || at == AT_V) put_float(v, 0, 0, key, 2, x);
    else if (at == AT_D_LSE) put_float(v, 0, 1, row, 0, x);
    else if (at == AT_BIAS) put_float(v, row, key, 0, 0, x);
    else put_float(v, 0, 1, row, key, x);
    return 1;
}

static void same_odd_part(const call *a, const call *b, const char *what) {
    call x = *a, y = *b;
    for (int n = 0; n < GRAD_COUNT; n++) {
        attn_out *p = grad_of(&x.g, n), *q = grad_of(&y.g, n);
        if (!p->rank || (n > GRAD_GIVEN && n != GRAD_BIAS)) continue; /* a parameter meets all rows */
        int axis = n == GRAD_BIAS ? 0 : 2, count = (int)p->size[axis];
        for (int i = 1; i < count; i += 2) {
            attn_out of_p = attn_out_slice(*p, axis, i, 1), of_q = attn_out_slice(*q, axis, i, 1);
            if (!check_same(&of_p, &of_q, what)) return;
        }
    }
}

static void not_finite(void) {
    const float values[] = {odd_nan(), INFINITY, -INFINITY};
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++)
        for (int at = 0; at < AT_COUNT; at++)
            for (int n = 0; n < 3; n++) {
                attn_desc d = two_kinds(score);
                if (n == 2) d.dropout = 0.3f;
                call clean = make_call(&d, FROM_ALL, ~0u), dirty = clean;
                char what[80];
                snprintf(what, sizeof what, "%s, %g at place %d", ref_score_names[score], (double)values[n], at);
                ask_grads(&dirty, ~0u, 0, LAYOUT_PACKED);
                ask_for(&dirty.d, RESULT_OUT | RESULT_STATS, LAYOUT_PACKED);
                put_at(&d.mask, 0, 0, 6, 80, 1);
                if (!spoil(&dirty, at, values[n])) continue;
                if (score == ATTN_SCORE_ADDITIVE && n > 0 && at <= AT_K) /* flat slope times infinity: 0 or NaN */
                    memset(&dirty.g.d_w_q, 0, sizeof(attn_out)), memset(&dirty.g.d_w_k, 0, sizeof(attn_out));
                for (int isa = 0; isa < test_isa_count(); isa++) {
                    clean.d.isa = (int32_t)test_isa(isa);
                    run_desc(&clean.d, what);
                    if (!run_call(&clean, what)) return;
                }
                run_desc(&dirty.d, what);
                check_call(&dirty, what);
                for (int isa = 0; isa < test_isa_count(); isa++) {
                    dirty.d.isa = (int32_t)test_isa(isa);
                    run_call(&dirty, what);
                    same_odd_part(&clean, &dirty, what);
                }
                test_release();
            }
}

/* NaN, infinity and huge numbers where no row may look, and in the gradients from above of pairs that are excluded: the
   bits are those without. */
static void excluded(void) {
    const float values[] = {odd_nan(), INFINITY, -3e38f};
    enum { ROWS = 19, KEYS = 300 };
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++)
        for (int how = 0; how < 2; how++) {
            attn_desc d = make_desc(1, 2, 1, ROWS, KEYS, 7, 5);
            ref_result r;
            set_score(&d, score, 6);
            if (how == 0) d.mask = make_ints(ATTN_U8, 1, KEYS, 0, 0, 0, 1, 1);
            else d.bias = make_filled(LAYOUT_PACKED, 1, 1, KEYS, 0, 0, 0);
            for (int j = 0; j < KEYS; j++) {
                if (!(test_int(0, 2) == 0 || (j >= 16 && j < 64) || j >= KEYS - 20)) continue;
                if (how == 0) put_at(&d.mask, 0, 0, 0, j, 0);
                else put_at(&d.bias, 0, 0, 0, j, -INFINITY);
            }
            call clean = check_all(&d, ref_score_names[score]), dirty = copy_grads(&clean);
            ref_sizes(&d, &r);
            for (int j = 0; j < KEYS; j++) {
                float x = values[test_int(0, 2)];
                if (ref_allowed(&d, &r, 0, 0, 0, j)) continue;
                for (int c = 0; c < 7 && d.k.rank; c++) put_float(&d.k, 0, 0, j, c, x);
                for (int i = 0; i < ROWS && !d.k.rank; i++) put_float(&d.given_scores, 0, 1, i, j, x);
                for (int c = 0; c < 5; c++) put_float(&d.v, 0, 0, j, c, x);
                for (int i = 0; i < ROWS; i++) put_float(&clean.g.d_weights, 0, 1, i, j, x);
                for (int key = 0; key < 2 && clean.g.dk.rank; key++) {
                    attn_out row = attn_out_slice(key ? clean.g.dk : clean.g.dv, 2, j, 1);
                    all_zero(&row, "of an excluded key");
                }
            }
            check_call(&dirty, "what excluded keys hold");
            same_grads(&clean, &dirty, "what excluded keys hold");
            test_release();
        }
}

/* A NaN query among rows that all exclude some keys: those keys' gradients stay finite, and those of other rows. */
static void excluded_by_row(void) {
    for (int variant = 0; variant < 16; variant++) {
        attn_desc d = make_desc(1, 1, 1, 70, 150, 5, 4);
        int64_t row = test_int(0, 69);
        d.causal = variant % 4 == 0;
        d.window = variant % 4 == 1;
        d.window_left = test_int(0, 9);
        d.window_right = test_int(0, 9);
        if (!d.window) d.window_left = d.window_right = 0;
        if (variant % 4 == 2) d.key_lengths = make_ints(ATTN_I32, 2, 1, 70, 0, 0, 0, 150);
        if (variant % 4 == 3) d.mask = make_ints(ATTN_U8, 2, 70, 150, 0, 0, 0, 1);
        d.align = ATTN_ALIGN_BOTTOM_RIGHT;
        call clean = check_all(&d, "clean"), dirty = clean;
        ref_result r;
        ref_sizes(&d, &r);
        if (variant % 2) {
            dirty.d.q = copy_view(&d.q, LAYOUT_PACKED);
            put_float(&dirty.d.q, 0, 0, row, 2, odd_nan());
        } else {
            dirty.g.d_out = copy_view(&clean.g.d_out, LAYOUT_PACKED);
            put_float(&dirty.g.d_out, 0, 0, row, 1, odd_nan());
        }
        ask_for(&dirty.d, RESULT_OUT | RESULT_STATS, LAYOUT_PACKED);
        ask_grads(&dirty, ~0u, 0, LAYOUT_PACKED);
        run_desc(&dirty.d, "dirty");
        check_call(&dirty, "a NaN row");
        for (int64_t i = 0; i < 70; i++) {
            attn_out a = attn_out_slice(clean.g.dq, 2, i, 1), b = attn_out_slice(dirty.g.dq, 2, i, 1);
            if (i != row) check_same(&a, &b, "dq of another row");
        }
        for (int64_t j = 0; j < 150; j++)
            for (int n = 0; n < 2 && !ref_allowed(&d, &r, 0, 0, row, j); n++) {
                attn_out a = attn_out_slice(n ? clean.g.dv : clean.g.dk, 2, j, 1),
                         b = attn_out_slice(n ? dirty.g.dv : dirty.g.dk, 2, j, 1);
                check_same(&a, &b, "a key that the row may not attend to");
            }
        test_release();
    }
}

/* ---- keys on pages that cannot be read */
static void unmapped_case(int32_t score, int variant) {
    enum { KEYS = 4000, D = 6, DV = 3 };
    int64_t sq = test_int(1, 20), first, end = test_int(1, 700);
    attn_desc d = make_desc(1, 2, 1, sq, 1, D, DV);
    set_score(&d, score, 4);
    limit_keys(&d, variant, &first, &end);
    d.k = unmapped_beyond(first, end, KEYS, D, test_int(0, 1));
    d.v = unmapped_beyond(first, end, KEYS, DV, test_int(0, 1));
    if (test_int(0, 1)) {
        d.bias = make_filled(LAYOUT_PACKED, 1, 1, KEYS, 0, 0, 0);
        d.key_lengths = variant == 1 ? make_ints(ATTN_I32, 1, 1, 0, 0, 0, KEYS, KEYS) : d.key_lengths;
    }
    call c = check_all(&d, ref_score_names[score]);
    for (int n = 0; n < 4; n++) { /* beyond what may be read: before and after, dk and dv */
        attn_out *o = n % 2 ? &c.g.dk : &c.g.dv,
                 beyond = n < 2 ? attn_out_slice(*o, 2, 0, first) : attn_out_slice(*o, 2, end, KEYS - end);
        all_zero(&beyond, "of a key that may not be read");
    }
    test_release();
}

static void unmapped(void) {
    for (int32_t score = 0; score < ATTN_SCORE_GIVEN; score++)
        for (int variant = 0; variant < 5; variant++) unmapped_case(score, variant);
}

static void unmapped_given(void) {
    enum { KEYS = 4000, LENGTH = 140 };
    attn_desc d = given_beyond(LENGTH, KEYS);
    call c = check_all(&d, "given scores beyond the length");
    attn_out beyond = attn_out_slice(c.g.d_given_scores, 3, LENGTH, KEYS - LENGTH);
    all_zero(&beyond, "of given scores beyond the length");
}

/* The same of rows that no entry has, of pages beyond a length, and of numbers that belong to neither. Of n integers
   only first..end-1 are mapped. */
static attn_view unmapped_ints(int rank, int64_t first, int64_t end, int64_t n, int64_t lo, int64_t hi) {
    char *p = (char *)test_guarded_span((size_t)first * 8, (size_t)(end - first) * 8, (size_t)(n - end) * 8, 0);
    attn_view v = attn_view_i64((const int64_t *)(const void *)p, rank, rank == 2 ? 1 : end - first, end - first, 0, 0);
    fill(&v, draw_int, (double)lo, (double)hi);
    v.data = p - (size_t)first * 8;
    v.size[rank - 1] = n;
    return v;
}
static attn_view two_ints(int64_t a, int64_t b) {
    attn_view v = make_ints(ATTN_I32, 1, 2, 0, 0, 0, 0, 0);
    put_at(&v, 0, 0, 0, 0, (double)a), put_at(&v, 0, 0, 0, 1, (double)b);
    return v;
}
static void unmapped_starts(void) {
    enum { ROWS = 600, KEYS = 1200, D = 6, DV = 3 }; /* the reference holds each row and key */
    for (int n = 0; n < 22; n++) {
        int64_t q0 = test_int(0, 550), rows = test_int(1, 40), k0 = test_int(1, 550), keys = test_int(1, 600);
        int64_t some_rows = test_int(0, (int)rows), some_keys = test_int(0, (int)keys); /* those of the first entry */
        int packed = n % 2, shared = packed && n > 18; /* both entries begin with the first key */
        attn_desc d = make_desc(1, 1, 1, 1, 1, D, DV);
        set_score(&d, n % ATTN_SCORE_GIVEN, 4);
        d.q = unmapped_beyond(q0, q0 + rows, ROWS, D, test_int(0, 1));
        d.k = unmapped_beyond(k0, k0 + keys, KEYS, D, test_int(0, 1));
        d.v = unmapped_beyond(k0, k0 + keys, KEYS, DV, test_int(0, 1));
        d.align = n % 3 ? ATTN_ALIGN_BOTTOM_RIGHT : ATTN_ALIGN_POSITIONS;
        if (n % 3 == 0) d.positions = unmapped_ints(2, q0, q0 + rows, ROWS, -5, keys);
        if (n % 4 == 0) d.key_lengths = unmapped_ints(2, q0, q0 + rows, ROWS, 0, keys);
        d.causal = n % 5 < 2;
        d.dropout = n % 7 ? 0 : 0.25f;
        if (packed) {
            d.query_starts = two_ints(q0, q0 + some_rows);
            d.query_lengths = two_ints(some_rows, rows - some_rows);
            d.key_starts = two_ints(k0, shared ? k0 : k0 + some_keys);
            if (n % 4) d.key_lengths = two_ints(some_keys, shared ? keys : keys - some_keys);
        } else {
            d.query_starts = make_ints(ATTN_I64, 1, 1, 0, 0, 0, (int)q0, (int)q0);
            d.query_lengths = make_ints(ATTN_I32, 1, 1, 0, 0, 0, (int)rows, (int)rows);
            d.key_starts = make_ints(ATTN_I32, 1, 1, 0, 0, 0, (int)k0, (int)k0);
            if (n % 4) d.key_lengths = make_ints(ATTN_I32, 1, 1, 0, 0, 0, (int)keys, (int)keys);
        }
        if (shared) { /* two entries that share their keys: there is no gradient then */
            ask_for(&d, RESULT_OUT | RESULT_LSE, LAYOUT_PACKED);
            check_everywhere(&d, "entries that share keys, pages beyond them unmapped");
        } else {
            check_all(&d, "entries, pages beyond them unmapped");
        }
        test_release();
    }
}
static void unmapped_pages(void) {
    enum { PAGES = 40, D = 6, DV = 3, ENTRY = 25 };
    for (int n = 0; n < 12; n++) { /* pages 7, 8, ... of the pool, as long as there are keys */
        int64_t page = (int64_t[]){1, 4, 16, 70}[n % 4], keys = test_int(1, (int)(ENTRY * page)), first = 7 * page;
        int64_t used = (keys + page - 1) / page;
        attn_desc d = make_desc(1, 1, 1, n % 3 ? 1 : test_int(2, 20), 1, D, DV);
        attn_view pool[2];
        for (int v = 0; v < 2; v++) {
            int64_t size = v ? DV : D;
            pool[v] = unmapped_beyond(first, first + keys, PAGES * page, size, test_int(0, 1));
            pool[v].size[0] = PAGES, pool[v].size[2] = page, pool[v].stride[0] = page * size;
        }
        d.k = pool[0], d.v = pool[1];
        d.align = ATTN_ALIGN_BOTTOM_RIGHT;
        d.causal = n % 2;
        d.key_lengths = make_ints(ATTN_I32, 1, 1, 0, 0, 0, (int)keys, (int)keys);
        d.page_table = unmapped_ints(2, 0, used, ENTRY, 0, 0);
        for (int64_t p = 0; p < used; p++) put_at(&d.page_table, 0, 0, 0, p, (double)(7 + p));
        ask_for(&d, RESULT_OUT | RESULT_LSE, LAYOUT_PACKED);
        check_everywhere(&d, "pages of a pool, after the keys unmapped");
        test_release();
    }
}
/* Of a cache only the new rows are touched, of the tables of rotations only the rows of the positions. */
static void unmapped_tools(void) {
    enum { ROWS = 5, ROOM = 3000, D = 8 };
    for (int n = 0; n < 8; n++) {
        int64_t held = test_int(0, ROOM - ROWS);
        attn_view cache = unmapped_beyond(held, held + ROWS, ROOM, D, n % 2),
                  fresh = make_filled(LAYOUT_PACKED, 1, 4, 1, 1, ROWS, D);
        attn_view length = make_ints(ATTN_I32, 1, 1, 0, 0, 0, (int)held, (int)held), table[2];
        attn_out o;
        memcpy(&o, &cache, sizeof o);
        CHECK_STATUS(attn_append(fresh, o, length, 0, 0), ATTN_OK);
        for (int64_t i = 0; i < ROWS; i++)
            for (int64_t x = 0; x < D; x++)
                CHECK_CLOSE(ref_at(&cache, 0, 0, held + i, x), ref_at(&fresh, 0, 0, i, x), 0);
        for (int t = 0; t < 2; t++) {
            table[t] = unmapped_beyond(held, held + ROWS, ROOM, D / 2, n % 2);
            table[t] = attn_view_f32((const float *)table[t].data, 2, ROOM, D / 2, 0, 0);
        }
        o = make_out(LAYOUT_PACKED, 4, 1, 1, ROWS, D);
        CHECK_STATUS(attn_rope(fresh, table[0], table[1], length, (uint32_t)n % 4, o, 0), ATTN_OK);
        test_release();
    }
}

/* ---- sizes */
static void every_d(void) {
    for (int size = 1; size <= 70; size++)
        for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++) {
            attn_desc d = make_desc(1, 2, 1 + size % 2, 1 + size % 19, 1 + size * 5 % 23, size, 1 + size * 7 % 40);
            set_score(&d, score, size); /* the hidden width takes every value too */
            check_all(&d, ref_score_names[score]);
            test_release();
        }
}

static void every_dv(void) {
    for (int size = 1; size <= 70; size++) {
        attn_desc d = make_desc(1, 1, 1, 1 + size % 35, 1 + size * 3 % 29, 3, size);
        check_all(&d, "size of the values");
        test_release();
    }
}

static void odd_sizes(void) { /* around those of tiles, chunks and blocks, each with each */
    static const int queries[] = {1, 2, 4, 5, 16, 17, 33, 64, 65, 128, 129, 257},
                     keys[] = {1, 7, 16, 17, 63, 64, 65, 129, 256, 257}, values[] = {1, 8, 3, 17, 33};
    static const int32_t scores[] = {ATTN_SCORE_SCALED_DOT, ATTN_SCORE_ADDITIVE, ATTN_SCORE_BILINEAR,
                                     ATTN_SCORE_GAUSSIAN,   ATTN_SCORE_GIVEN,    ATTN_SCORE_COSINE};
    int n = 0;
    for (size_t i = 0; i < sizeof queries / sizeof *queries; i++)
        for (size_t j = 0; j < sizeof keys / sizeof *keys; j++, n++) {
            attn_desc d = make_desc(1, 1 + n % 2, 1, queries[i], keys[j], 5, values[n % 5]);
            set_score(&d, n % 2 ? scores[n / 2 % 6] : ATTN_SCORE_SCALED_DOT, 3);
            d.causal = n % 3 == 0;
            d.align = n % 4 < 2 ? ATTN_ALIGN_BOTTOM_RIGHT : ATTN_ALIGN_TOP_LEFT;
            check_all(&d, "odd sizes");
            test_release();
        }
}

static void no_size(void) {              /* a size of 0 is legal everywhere */
    for (int axis = 0; axis < 7; axis++) /* the last is the heads of q, which may be none where k has some */
        for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++)
            for (int more = 0; more < 2; more++) {
                int64_t n[7] = {2, 2, 3, 5, 4, 3, 2};
                n[axis] = 0;
                if (axis == 1) n[6] = 0;
                attn_desc d = make_desc(n[0], n[6], n[1], n[2], n[3], n[4], n[5]);
                set_score(&d, score, 3);
                if (more) {
                    d.bias = make_filled(LAYOUT_PACKED, 1, 1, 1, 0, 0, 0);
                    d.sink = make_filled(LAYOUT_PACKED, 1, 1, n[6], 0, 0, 0);
                    d.alibi = make_filled(LAYOUT_PACKED, 1, 1, n[6], 0, 0, 0);
                }
                check_all(&d, ref_score_names[score]);
                test_release();
            }
}

/* Each gradient asked for alone: the bits it has among the others, in memory that has no room for them. Whole blocks of
   queries, and vectors wider than what lies between the rows of a block. */
static void one_alone(void) {
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++) {
        attn_desc d = make_desc(1, 2, 1, 130, 20, 40, 5);
        set_score(&d, score, 6);
        d.sink = make_filled(LAYOUT_PACKED, 1, 1, 2, 0, 0, 0);
        call all = check_all(&d, ref_score_names[score]);
        for (int n = 0; n < GRAD_COUNT; n++) {
            call one = all;
            if (!grad_of(&all.g, n)->rank) continue;
            ask_grads(&one, 1u << n, 0, LAYOUT_PACKED);
            for (int32_t workers = 1; workers <= 3; workers += 2)
                if (run_call_planned(&one, workers)) same_grads(&all, &one, "a gradient alone");
        }
        test_release();
    }
}

static void grouped_heads(void) {
    static const int groups[][2] = {{6, 1}, {6, 2}, {6, 3}, {5, 1}, {32, 4}};
    for (size_t n = 0; n < sizeof groups / sizeof *groups; n++)
        for (int queries = 1; queries <= 19; queries += 6)
            for (int32_t score = 0; score < ATTN_SCORE_GIVEN; score += 1 + (int32_t)n % 3) {
                attn_desc d = make_desc(2, groups[n][0], groups[n][1], queries, 40, 8, 6);
                set_score(&d, score, 5);
                check_all(&d, "grouped heads");
                test_release();
            }
}

/* Many keys and many queries: several chunks, several blocks, in every direction. */
static void long_rows(void) {
    static const int sizes[][2] = {{3, 1300}, {1, 513}, {300, 300}, {700, 70}, {129, 1025}, {400, 17}};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
        for (int variant = 0; variant < 4; variant++) {
            attn_desc d = make_desc(1, 2, 1, sizes[n][0], sizes[n][1], 6, 5);
            d.align = ATTN_ALIGN_BOTTOM_RIGHT;
            d.causal = variant >= 2;
            d.window = variant == 3;
            d.window_left = d.window ? 90 : 0;
            d.window_right = d.window ? ATTN_UNBOUNDED : 0;
            if (variant == 1) set_score(&d, ATTN_SCORE_ADDITIVE, 5);
            if (variant == 2) d.dropout = 0.25f;
            d.bias = make_filled(LAYOUT_PACKED, 1, 1, sizes[n][1], 0, 0, 0);
            check_all(&d, "long rows");
            test_release();
        }
}

/* The bias' gradient, for all the ways in which it is broadcast, with stride 0 on an axis of full size too. */
static void bias_shapes(void) {
    for (int shape = 0; shape < 16; shape++)
        for (int rank = 1; rank <= 4; rank++)
            for (int full_stride = 0; full_stride < 2; full_stride++) {
                const int64_t full[4] = {2, 4, 21, 70};
                int64_t n[4] = {0, 0, 0, 0};
                attn_desc d = make_desc(2, 4, 2, 21, 70, 5, 4);
                for (int axis = 0; axis < rank; axis++) n[axis] = shape >> axis & 1 ? full[axis + 4 - rank] : 1;
                d.bias = make_filled(full_stride ? LAYOUT_BROADCAST : LAYOUT_MIXED, 1, rank, n[0], n[1], n[2], n[3]);
                d.causal = shape % 3 == 0;
                check_all(&d, "a broadcast bias");
                test_release();
            }
}

/* ---- the ends of the range */
static void kernel_edges(void) { /* u = 1 exactly, and the peak at u = 0, with and without softcap */
    for (int32_t score = ATTN_SCORE_GAUSSIAN; score <= ATTN_SCORE_TRIANGULAR; score++)
        for (int softcap = 0; softcap < 2; softcap++) {
            attn_desc d = make_desc(1, 1, 1, 3, 9, 1, 2);
            d.score = score;
            d.softcap = softcap ? 1.5f : 0;
            for (int i = 0; i < 3; i++) put_at(&d.q, 0, 0, i, 0, 100 + i);
            for (int j = 0; j < 9; j++) put_at(&d.k, 0, 0, j, 0, 100 + (j - 4) * 0.5);
            check_all(&d, ref_score_names[score]);
            test_release();
        }
}

static void far_from_origin(void) { /* coordinates in the thousands: differences are what counts */
    for (int32_t score = ATTN_SCORE_GAUSSIAN; score <= ATTN_SCORE_TRIANGULAR; score++) {
        attn_desc d = make_desc(1, 2, 1, 21, 150, 5, 4);
        set_score(&d, score, 0);
        fill(&d.q, draw_normal, 4096, 0.3);
        fill(&d.k, draw_normal, 4096, 0.3);
        check_all(&d, ref_score_names[score]);
        test_release();
    }
}

static void cosine_lengths(void) {
    static const double lengths[] = {1, 1e-10, 1e-19, 1e-30, 1e10, 1e19, 1e30};
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
        for (int side = 0; side < 2; side++) {
            attn_desc d = make_desc(1, 1, 1, 19, 40, 6, 3);
            char what[60];
            d.score = ATTN_SCORE_COSINE;
            fill(side ? &d.k : &d.q, draw_normal, 0, lengths[n]);
            attn_view zero = attn_view_slice(d.k, 2, 4, 1), zero_row = attn_view_slice(d.q, 2, 7, 1);
            fill(&zero, draw_int, 0, 0);
            fill(&zero_row, draw_int, 0, 0);
            snprintf(what, sizeof what, "cosine, %s of length %g", side ? "keys" : "queries", lengths[n]);
            call c = check_all(&d, what);
            attn_out of_key = attn_out_slice(c.g.dk, 2, 4, 1), of_row = attn_out_slice(c.g.dq, 2, 7, 1);
            all_zero(&of_key, what);
            all_zero(&of_row, what);
            test_release();
        }
}

static void additive_extremes(void) { /* e^2a and e^2b leave the range of float although a + b does not */
    static const double offsets[] = {0, 10, 20, 44, 100, 1000};
    for (size_t n = 0; n < sizeof offsets / sizeof *offsets; n++)
        for (int only_some = 0; only_some < 2; only_some++) {
            attn_desc d = additive_far_apart(19, 40, offsets[n], only_some);
            check_all(&d, "additive, far apart");
            test_release();
        }
}

static void scores_at_the_ends(void) { /* huge scores, flat softcaps, -inf, -1e9, weights that underflow */
    static const float caps[] = {0, 1e-3f, 1, 50, 1e10f};
    static const double sizes[] = {1, 1e2, 1e4, 1e30};
    for (size_t cap = 0; cap < 5; cap++)
        for (size_t size = 0; size < 4; size++)
            for (int variant = 0; variant < 3; variant++) {
                attn_desc d = make_desc(1, 1, 1, 19, 300, 5, 4);
                set_score(&d, ATTN_SCORE_GIVEN, 0);
                fill(&d.given_scores, draw_normal, 0, sizes[size]);
                d.softcap = caps[cap];
                for (int j = variant; j < 300 && variant; j += 3)
                    put_at(&d.given_scores, 0, 0, j % 19, j, variant == 1 ? -INFINITY : -1e9);
                check_all(&d, "scores at the ends");
                test_release();
            }
}

/* A given score of -inf excludes its key, whatever scale and softcap are, as a mask would: bit by bit, in each result
   and gradient. The rows of a plain softmax (no softcap, weights alone) have a way of their own. */
static void given_minus_infinity(void) {
    static const float scales[] = {0.5f, 0, -1.5f};
    for (int variant = 0; variant < 6 * test_isa_count(); variant++) {
        attn_desc d = make_desc(1, 2, 1, 19, 300, 5, 4), masked, plain;
        set_score(&d, ATTN_SCORE_GIVEN, 0);
        d.isa = (int32_t)test_isa(variant / 6);
        d.scale = scales[variant % 3];
        d.scale_set = 1;
        d.softcap = variant % 6 < 3 ? 0 : 2;
        masked = plain = d;
        masked.mask = make_ints(ATTN_U8, 4, 1, 2, 19, 300, 1, 1);
        masked.given_scores = copy_view(&d.given_scores, LAYOUT_PACKED);
        for (int n = 0; n < 2 * 19 * 300; n += 1 + n % 4) {
            put(&d.given_scores, n, -INFINITY);
            ((uint8_t *)(uintptr_t)masked.mask.data)[n] = 0;
        }
        call c = make_call(&d, FROM_ALL, ~0u), like = make_call(&masked, FROM_ALL, ~0u);
        check_same(&c.d.out, &like.d.out, "-inf excludes as a mask does");
        check_same(&c.d.stats, &like.d.stats, "-inf excludes as a mask does");
        like.g.d_out = c.g.d_out;
        like.g.d_lse = c.g.d_lse;
        like.g.d_weights = c.g.d_weights;
        if (run_call(&c, "-inf") & run_call(&like, "masked")) same_grads(&c, &like, "-inf excludes as a mask does");
        plain = d;
        memset(&plain.v, 0, sizeof plain.v);
        masked.v = plain.v;
        ask_for(&plain, RESULT_WEIGHTS, LAYOUT_PACKED);
        ask_for(&masked, RESULT_WEIGHTS, LAYOUT_PACKED);
        run_desc(&plain, "-inf");
        run_desc(&masked, "masked");
        check_same(&plain.weights, &masked.weights, "-inf excludes as a mask does: weights");
        test_release();
    }
}

/* What becomes -inf by the scale is data to a softcap: -c, as a number is that stays finite. */
static void given_overflow(void) {
    for (int variant = 0; variant < 2 * test_isa_count(); variant++) {
        attn_desc d = make_desc(1, 1, 1, 9, 70, 5, 4), finite;
        set_score(&d, ATTN_SCORE_GIVEN, 0);
        d.isa = (int32_t)test_isa(variant / 2);
        d.scale = variant % 2 ? -10 : 10;
        d.softcap = 0.5f;
        finite = d;
        finite.given_scores = copy_view(&d.given_scores, LAYOUT_PACKED);
        for (int j = 0; j < 70; j += 3) {
            put_at(&d.given_scores, 0, 0, j % 9, j, variant % 2 ? 3e38 : -3e38);
            put_at(&finite.given_scores, 0, 0, j % 9, j, variant % 2 ? 3e37 : -3e37);
        }
        ask_for(&d, RESULT_OUT | RESULT_LSE | RESULT_WEIGHTS, LAYOUT_PACKED);
        ask_for(&finite, RESULT_OUT | RESULT_LSE | RESULT_WEIGHTS, LAYOUT_PACKED);
        run_desc(&d, "scores that overflow");
        run_desc(&finite, "scores that do not");
        check_same_results(&d, &finite, "scores that overflow");
        test_release();
    }
}

/* The statistics of a row keep what a log-sum-exp in one float would lose. */
static void large_lse(void) {
    attn_desc d = make_desc(1, 2, 1, 19, 300, 5, 4);
    set_score(&d, ATTN_SCORE_GIVEN, 0);
    fill(&d.given_scores, draw_normal, 0, 1);
    d.bias = make_filled(LAYOUT_PACKED, 0, 1, 1, 0, 0, 0);
    put_at(&d.bias, 0, 0, 0, 0, 1e4);
    call shifted = make_call(&d, FROM_ALL, ~0u);
    for (int n = 0; n < 19 * 300 * 2; n++) /* multiples of 2^-10, which 1e4 does not round */
        put(&d.given_scores, n, round(ref_at(&d.given_scores, 0, n / 5700, n / 300 % 19, n % 300) * 1024) / 1024);
    run_desc(&shifted.d, "shifted");
    check_call(&shifted, "scores near 1e4");
    call plain = copy_grads(&shifted);
    plain.d.bias = make_filled(LAYOUT_PACKED, 0, 1, 1, 0, 0, 0);
    plain.d.out = make_out(LAYOUT_PACKED, 4, 1, 2, 19, 4);
    plain.d.stats = make_out(LAYOUT_PACKED, 4, 1, 2, 19, 2);
    run_desc(&plain.d, "not shifted");
    check_call(&plain, "scores near 0");
    check_same(&shifted.g.d_given_scores, &plain.g.d_given_scores, "a constant added to all scores");
    check_same(&shifted.g.dv, &plain.g.dv, "a constant added to all scores");
}

static void dropout_ends(void) { /* all dropped: not the NaN of 0 * 1/0; none dropped: the bits without dropout */
    for (int after = 0; after < 2; after++) {
        attn_desc d = make_desc(1, 2, 1, 19, 40, 5, 4);
        d.weights_after_dropout = after;
        call none = check_all(&d, "no dropout"), zero = copy_grads(&none), all = zero;
        zero.d.seed = 7;
        run_call(&zero, "dropout 0 with a seed");
        same_grads(&none, &zero, "dropout 0 with a seed");
        all = copy_grads(&none);
        all.d.dropout = 1;
        all.d.seed = 7;
        ask_for(&all.d, RESULT_OUT | RESULT_STATS, LAYOUT_PACKED);
        run_desc(&all.d, "dropout 1");
        check_call(&all, "dropout 1");
        all_zero(&all.g.dv, "dropout 1");
        all.d.dropout = 0.5f;
        all.d.dropout_origin[3] = ((int64_t)1 << 32) - 20;
        all.d.dropout_origin[2] = ((int64_t)1 << 32) - 3;
        run_desc(&all.d, "an origin that wraps");
        check_call(&all, "an origin that wraps");
        test_release();
    }
}

static void far_positions(void) {
    static const int64_t far = (int64_t)1 << 62, positions[] = {far, -far, far - 5, -far + 5, (int64_t)1 << 40, 0},
                         sides[] = {0, 5, INT64_MAX, ATTN_UNBOUNDED};
    for (int n = 0; n < 6 * 4 * 4; n++) {
        attn_desc d = make_desc(1, 1, 1, 1, 20, 3, 2);
        d.align = ATTN_ALIGN_POSITIONS;
        d.positions = one_int(positions[n % 6]);
        d.window = 1;
        d.window_left = sides[n / 6 % 4];
        d.window_right = sides[n / 24 % 4];
        d.causal = n % 2;
        d.alibi = make_filled(LAYOUT_PACKED, 1e-12, 1, 1, 0, 0, 0);
        check_all(&d, "far positions");
        test_release();
    }
}

/* ---- sizes as they are used: how near the bound of each gradient the errors come */
static void accuracy(void) {
    forget_worst();
    long calls = 0;
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++)
        for (int peaked = 0; peaked < 2; peaked++, calls++) {
            attn_isa best = test_isa(test_isa_count() - 1);
            attn_desc d = make_desc(1, 2, 1, best == ATTN_ISA_SCALAR ? 5 : 12, 500, 64, 64);
            set_score(&d, score, 24);
            if (peaked && score == ATTN_SCORE_GIVEN) fill(&d.given_scores, draw_normal, 3, 20);
            else if (peaked && !ref_is_kernel(score)) {
                fill(&d.q, draw_normal, 0.5, 3);
                fill(&d.k, draw_normal, -0.5, 2);
            }
            d.sink = make_filled(LAYOUT_PACKED, 1, 1, 2, 0, 0, 0);
            d.alibi = make_filled(LAYOUT_PACKED, 0.01, 1, 2, 0, 0, 0);
            d.bias = make_filled(LAYOUT_PACKED, 1, 1, 500, 0, 0, 0);
            call c = make_call(&d, FROM_ALL, ~0u);
            ref_grads g;
            ref_upstream up = upstream_of(&c.g);
            ref_backward(&c.d, &up, &g);
            c.d.isa = (int32_t)best;
            if (run_call(&c, ref_score_names[score])) check_grads(&c, &g, ref_score_names[score]);
            ref_free_grads(&g);
            test_release();
        }
    print_worst("gradients at sizes as they are used", calls);
}

/* A key whose score is a small difference of large terms, and so far below what has the mass that its weight is no news
   for the forward: all there is of delta where that has no slope itself. A sink, or a key whose value is 0. */
static void far_below(void) {
    enum { WIDTH = 33 };
    for (int n = 0; n < 60; n++) {
        int sink = n % 2, last = sink ? 0 : 1;
        attn_desc d = make_desc(1, 1, 1, 1, last + 1, WIDTH, 3);
        d.score = ATTN_SCORE_DOT;
        d.align = ATTN_ALIGN_TOP_LEFT;
        fill(&d.q, draw_normal, 0, 8);
        fill(&d.k, draw_normal, 0, 8);
        double rest = -42 - test_uniform() * 30;
        for (int c = 0; c < WIDTH - 1; c++) rest -= ref_at(&d.q, 0, 0, 0, c) * ref_at(&d.k, 0, 0, last, c);
        put_at(&d.q, 0, 0, 0, WIDTH - 1, 1);
        put_at(&d.k, 0, 0, last, WIDTH - 1, rest);
        for (int c = 0; !sink && c < WIDTH; c++) put_at(&d.k, 0, 0, 0, c, 0);
        for (int c = 0; !sink && c < 3; c++) put_at(&d.v, 0, 0, 0, c, 0);
        if (sink) d.sink = make_filled(LAYOUT_PACKED, 0, 1, 1, 0, 0, 0);
        d.bias = make_filled(LAYOUT_PACKED, 0, 1, last + 1, 0, 0, 0);
        call c = make_call(&d, FROM_OUT, ~0u);
        check_call(&c, sink ? "a key far below the sink" : "a key far below another one");
        test_release();
    }
}

/* ---- terms that are alike: what n equal ones lose in chains of c, as NUMERICS says, in units of 2^-24 of their sum */
static double alike(int64_t n, int64_t c) { return ((double)c + (double)n / (double)c) / 4 + 1; }
static double lost(double got, double exact, double terms) { return fabs(got - exact) / terms * 0x1p24; }

/* Each score is 0, each value and each element of a key is x. The gradient from above is of out where dv is asked for,
   which needs no out, else of the log-sum-exp. */
static call call_of_like(int64_t sq, int64_t sk, const float *x, const float *zero, attn_isa isa) {
    call c;
    memset(&c, 0, sizeof c);
    c.d.score = ATTN_SCORE_DOT;
    c.d.isa = (int32_t)isa;
    c.d.align = ATTN_ALIGN_TOP_LEFT;
    c.d.q = attn_view_bhsd(zero, 1, 1, sq, 1);
    c.d.k = attn_view_bhsd(x, 1, 1, sk, 1);
    c.d.bias = attn_view_f32(zero, 1, 1, 0, 0, 0);
    c.d.q.stride[2] = c.d.k.stride[2] = 0;
    c.d.v = c.d.k;
    c.d.out = make_out(LAYOUT_PACKED, 4, 1, 1, sq, 1);
    return c;
}
static float gradient_of_like(call *c, int which, attn_view above) {
    memset(&c->g, 0, sizeof c->g);
    ask_grads(c, 1u << which, 0, LAYOUT_PACKED);
    if (which == GRAD_V) c->g.d_out = above;
    else c->g.d_lse = above, c->g.d_lse.rank = 3; /* [1,1,Sq] */
    CHECK_STATUS(attn_backward(&c->d, &c->g, 0), ATTN_OK);
    return *(const float *)grad_of(&c->g, which)->data;
}
static void like_terms_of(int64_t n, attn_isa isa) {
    static const float zero = 0, one = 1, zeros[2] = {0, 0};
    static const int32_t places[2] = {0, 1};
    float x = (float)(1 + test_uniform()), y[1];
    double exact = x, sum = (double)n * x;
    call over_keys = call_of_like(1, n, &x, &zero, isa), over_queries = call_of_like(n, 1, &x, &zero, isa);
    attn_view row = attn_view_bhsd(&x, 1, 1, n, 1), ones = attn_view_f32(&one, 2, n, 1, 0, 0), all;
    attn_desc o;
    row.stride[2] = ones.stride[0] = 0;
    all = attn_view_f32(&x, 2, n, 1, 0, 0);
    all.stride[0] = 0;
    memset(&o, 0, sizeof o);
    o.isa = (int32_t)isa;
    run_desc(&over_keys.d, "like terms");
#define LOSES(what, got, exact, chain) \
    CHECKF(lost(got, exact, exact) <= alike(n, chain), "%ld like terms of %s lose %.1f units, at most %.1f", (long)n, \
           what, lost(got, exact, exact), alike(n, chain))
    LOSES("out", *(float *)over_keys.d.out.data, exact, 128);
    LOSES("dv", gradient_of_like(&over_queries, GRAD_V, row), sum, 128);
    LOSES("dq", gradient_of_like(&over_keys, GRAD_Q, attn_view_bhsd(&one, 1, 1, 1, 1)), exact, 64);
    LOSES("d_bias over keys", gradient_of_like(&over_keys, GRAD_BIAS, attn_view_bhsd(&x, 1, 1, 1, 1)), exact, n);
    LOSES("d_bias over queries", gradient_of_like(&over_queries, GRAD_BIAS, row), sum, 128);
    over_queries = call_of_like(n, 2, &x, &zero, isa);
    over_queries.d.bias = attn_view_f32(zeros, 1, 2, 0, 0, 0);
    LOSES("d_bias of keys", gradient_of_like(&over_queries, GRAD_BIAS, row), sum / 2, n);
    over_queries.d.bias_index = attn_view_i32(places, 1, 2, 0, 0, 0);
    LOSES("d_bias by index", gradient_of_like(&over_queries, GRAD_BIAS, row), sum / 2, 2048);
    over_queries = call_of_like(1, n, &x, &zero, isa);
    over_queries.d.bias = attn_view_f32(&zero, 1, 1, 0, 0, 0);
    over_queries.d.bias_index = attn_view_i32(places, 1, 1, 0, 0, 0);
    over_queries.d.bias_index.size[0] = n, over_queries.d.bias_index.stride[0] = 0;
    LOSES("d_bias of one element", gradient_of_like(&over_queries, GRAD_BIAS, attn_view_bhsd(&x, 1, 1, 1, 1)), exact,
          2048);
    CHECK_STATUS(attn_bmm(attn_view_swap(all, 0, 1), ones, attn_out_f32(y, 2, 1, 1, 0, 0), &o, 0), ATTN_OK);
    LOSES("attn_bmm", y[0], sum, 64);
    CHECK_STATUS(attn_bmm_backward(ones, attn_view_f32(&one, 2, 1, 1, 0, 0), all, attn_out_f32(0, 0, 0, 0, 0, 0),
                                   attn_out_f32(y, 2, 1, 1, 0, 0), 0, &o, 0),
                 ATTN_OK);
    LOSES("attn_bmm_backward", y[0], sum, 128);
#undef LOSES
}
/* The gradient of a softmax of equal numbers, where that of its weights is the same everywhere, is 0: x/n - delta/n. */
static void like_weights(int64_t n, attn_isa isa) {
    static const float zero = 0;
    float x = (float)(1 + test_uniform());
    attn_view scores = attn_view_f32(&zero, 1, n, 0, 0, 0), above = attn_view_f32(&x, 1, n, 0, 0, 0);
    attn_out dx = make_out(LAYOUT_PACKED, 1, n, 0, 0, 0);
    attn_desc o;
    scores.stride[0] = above.stride[0] = 0;
    memset(&o, 0, sizeof o);
    o.isa = (int32_t)isa;
    CHECK_STATUS(attn_softmax_backward(scores, above, dx, &o, 0), ATTN_OK);
    double units = lost(*(float *)dx.data, 0, 2 * x / (double)n);
    CHECKF(units <= alike(n, 64), "%ld like weights lose %.1f units, at most %.1f", (long)n, units, alike(n, 64));
}
/* A score of n equal terms, for one query and for many. A cosine has three such sums, of two of them the root. */
static void like_score(int64_t n, int64_t queries, attn_isa isa, attn_score score) {
    static const float one = 1;
    float x = (float)(1 + test_uniform());
    attn_out scores = make_out(LAYOUT_PACKED, 4, 1, 1, queries, 1);
    attn_view q = attn_view_bhsd(&one, 1, 1, queries, n), k = attn_view_bhsd(&x, 1, 1, 1, n);
    attn_desc o;
    int cosine = score == ATTN_SCORE_COSINE;
    double most = cosine ? 2 * alike(n, 64) + 2 : alike(n, score == ATTN_SCORE_DOT ? 64 : 32);
    double exact = cosine ? 1 : score == ATTN_SCORE_DOT ? (double)n * x : -0.5 * (double)n * (x - 1.0) * (x - 1.0);
    q.stride[2] = q.stride[3] = k.stride[3] = 0;
    memset(&o, 0, sizeof o);
    o.isa = (int32_t)isa;
    o.score = (int32_t)score;
    CHECK_STATUS(attn_scores(q, k, scores, &o, 0), ATTN_OK);
    double units = lost(*(float *)scores.data, exact, fabs(exact));
    CHECKF(units <= most, "score %d of %ld like terms loses %.1f units, at most %.1f", (int)score, (long)n, units,
           most);
}
/* The worst: after 1 each term is a hair less than what would still change the sum. */
static void worst_terms(attn_isa isa) {
    static const float zero = 0, one = 1;
    float d_out[128];
    double sum = 0;
    call c = call_of_like(128, 1, &one, &zero, isa);
    for (int i = 0; i < 128; i++) sum += d_out[i] = i ? 0.99f * 0x1p-24f : 1;
    double units = lost(gradient_of_like(&c, GRAD_V, attn_view_bhsd(d_out, 1, 1, 128, 1)), sum, sum);
    CHECKF(units <= 128 + 1 && units > 120, "the worst terms lose %.1f units", units);
}
static void like_terms(void) {
    for (int i = 0; i < test_isa_count(); i++) {
        for (int64_t n = 2; n <= 1 << 15; n *= n < 64 ? 4 : 2)
            for (int again = 0; again < 4; again++) {
                like_terms_of(n, test_isa(i));
                like_weights(n, test_isa(i));
                for (int64_t queries = 1; queries <= 20; queries += 19) {
                    like_score(n, queries, test_isa(i), ATTN_SCORE_DOT);
                    like_score(n, queries, test_isa(i), ATTN_SCORE_GAUSSIAN);
                    like_score(n, queries, test_isa(i), ATTN_SCORE_COSINE);
                }
                test_release();
            }
        worst_terms(test_isa(i));
        test_release();
    }
}

/* ---- calls whose results have no element: nothing is to be done, whatever the sizes beside the 0 */
typedef attn_status (*without_elements)(int64_t n);

static attn_view none_of(int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    return attn_view_f32(0, rank, n0, n1, n2, n3);
}
static attn_out nothing(int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    return attn_out_f32(0, rank, n0, n1, n2, n3);
}
static attn_desc no_columns(int64_t n) { /* no column, no key: [n,1,n,0] */
    attn_desc d;
    memset(&d, 0, sizeof d);
    d.q = none_of(4, n, 1, n, 0);
    d.k = d.v = none_of(4, n, 1, 0, 0);
    d.out = nothing(4, n, 1, n, 0);
    d.align = ATTN_ALIGN_TOP_LEFT;
    return d;
}
static attn_status none_forward(int64_t n) {
    attn_desc d = no_columns(1);
    d.q = none_of(4, n, 1, 1, 0);
    d.k = d.v = none_of(4, n, 1, 0, 0);
    d.out = nothing(4, n, 1, 1, 0);
    return attn_forward(&d, 0);
}
static attn_status none_given(int64_t n) {
    attn_desc d = no_columns(1);
    memset(&d.q, 0, 3 * sizeof d.q);
    memset(&d.out, 0, sizeof d.out);
    d.score = ATTN_SCORE_GIVEN;
    d.given_scores = none_of(4, 1, n, n, 0);
    d.weights = nothing(4, 1, n, n, 0);
    return attn_forward(&d, 0);
}
static attn_status none_backward(int64_t n) {
    attn_desc d = no_columns(1);
    attn_grad g;
    memset(&g, 0, sizeof g);
    d.q = g.d_out = none_of(4, n, 1, 1, 0);
    d.k = d.v = none_of(4, n, 1, 1, 0);
    d.out = g.dq = nothing(4, n, 1, 1, 0);
    return attn_backward(&d, &g, 0);
}
static attn_status none_planned(int64_t n) {
    attn_desc d = no_columns(n);
    attn_plan plan;
    attn_status st = attn_plan_forward(&d, &plan, 0);
    for (int32_t phase = 0; st == ATTN_OK && phase < plan.phases; phase++)
        CHECKF(plan.tasks[phase] == 0, "%ld tasks for nothing", (long)plan.tasks[phase]);
    return st;
}
static attn_status none_lengths(int64_t n) { /* all of them one number */
    static const int32_t length = 1;
    attn_desc d = no_columns(1);
    size_t bytes;
    d.q = none_of(4, n, 1, 0, 0);
    d.k = d.v = none_of(4, n, 1, 1, 0);
    d.out = nothing(4, n, 1, 0, 0);
    d.key_lengths = attn_view_i32(&length, 1, n, 0, 0, 0);
    d.key_lengths.stride[0] = 0;
    return attn_workspace_size(&d, &bytes, 0);
}
static attn_status none_mask(int64_t n) { return attn_mask(attn_out_u8(0, 4, n, 1, n, 0), 0, 0); }
static attn_status none_dropped(int64_t n) { return attn_dropout_mask(attn_out_u8(0, 4, n, 1, 1, 0), 0, 0); }
static attn_status none_merged(int64_t n) {
    static const float lse = 0;
    attn_view one = attn_view_f32(&lse, 3, n, 1, 1, 0), no = none_of(4, n, 1, 1, 0);
    memset(one.stride, 0, sizeof one.stride);
    return attn_merge(no, one, no, one, nothing(4, n, 1, 1, 0), nothing(0, 0, 0, 0, 0), 0);
}
static attn_status none_product(int64_t n) { /* n * n does not fit in 64 bits */
    return attn_bmm(none_of(4, n, n, 0, 0), none_of(4, n, n, 0, 8), nothing(4, n, n, 0, 8), 0, 0);
}
static attn_status none_product_back(int64_t n) {
    return attn_bmm_backward(none_of(4, n, n, 0, 0), none_of(4, n, n, 0, 8), none_of(4, n, n, 0, 8),
                             nothing(4, n, n, 0, 0), nothing(4, n, n, 0, 8), 0, 0, 0);
}

static void no_element(void) {
    static const struct {
        const char *name;
        without_elements run;
        int bits; /* 2^bits is what takes its time where each row is visited */
    } calls[] = {{"attn_forward", none_forward, 21},      {"attn_forward, given scores", none_given, 12},
                 {"attn_backward", none_backward, 19},    {"attn_plan_forward", none_planned, 20},
                 {"equal key_lengths", none_lengths, 27}, {"attn_mask", none_mask, 14},
                 {"attn_dropout_mask", none_dropped, 26}, {"attn_merge", none_merged, 22},
                 {"attn_bmm", none_product, 16},          {"attn_bmm_backward", none_product_back, 16}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        clock_t began = clock();
        CHECKF(calls[i].run((int64_t)1 << calls[i].bits) == ATTN_OK, "%s: refused", calls[i].name);
        double seconds = (double)(clock() - began) / CLOCKS_PER_SEC;
        if (!CHECKF(seconds < 0.1, "%s without an element takes %.1f s", calls[i].name, seconds)) continue;
        began = clock(); /* would take years */
        CHECKF(calls[i].run((int64_t)1 << 40) == ATTN_OK, "%s: 2^40 refused", calls[i].name);
        seconds = (double)(clock() - began) / CLOCKS_PER_SEC;
        CHECKF(seconds < 0.1, "%s without an element takes %.1f s", calls[i].name, seconds);
    }
}

/* Data that is NULL where there is no element: legal, and nothing is computed with that NULL (a sanitizer tells). */
static void no_data(void) {
    for (int axis = 0; axis < 7; axis++)
        for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++) {
            int64_t n[7] = {2, 2, 3, 20, 4, 19, 2};
            n[axis] = 0;
            if (axis == 1) n[6] = 0;
            attn_desc d = make_desc(n[0], n[6], n[1], n[2], n[3], n[4], n[5]);
            set_score(&d, score, 3);
            ask_for(&d, RESULT_ALL, LAYOUT_PACKED);
            attn_view *inputs[] = {&d.q, &d.k, &d.v, &d.given_scores, &d.bilinear, &d.w_q, &d.w_k};
            int64_t low, high;
            for (int i = 0; i < 7; i++)
                if (!view_extent(inputs[i], &low, &high)) inputs[i]->data = 0;
            for (int i = 0; i < RESULT_COUNT; i++) {
                attn_view v = attn_view_of(*result_of(&d, i));
                if (!view_extent(&v, &low, &high)) result_of(&d, i)->data = 0;
            }
            check_everywhere(&d, ref_score_names[score]);
            check_all(&d, ref_score_names[score]);
            test_release();
        }
    CHECK_STATUS(attn_bmm(attn_view_f32(0, 2, 3, 0, 0, 0), attn_view_f32(0, 2, 0, 2, 0, 0),
                          make_out(LAYOUT_PACKED, 2, 3, 2, 0, 0), 0, 0),
                 ATTN_OK);
}

/* What the stride of an axis of size 1 is does not matter (a sanitizer tells of pointers that follow it). */
static void any_stride(void) {
    static const int64_t strides[] = {INT64_MAX, INT64_MIN, INT64_MIN + 1, -1, (int64_t)1 << 61};
    for (int which = 0; which < 5; which++)
        for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++)
            for (int shape = 0; shape < 4; shape++) {
                attn_desc d = make_desc(1, 1, 1, shape == 1 ? 9 : 1, shape == 2 ? 150 : 1, 1, shape == 3 ? 40 : 1);
                set_score(&d, score, 1);
                d.bias = make_filled(LAYOUT_PACKED, 1, 2, 1, 1, 0, 0);
                d.mask = make_ints(ATTN_U8, 4, 1, 1, 1, 1, 1, 1);
                ask_for(&d, RESULT_ALL, LAYOUT_PACKED);
                attn_view *views[] = {&d.q,   &d.k,   &d.v,   &d.given_scores, &d.bilinear,
                                      &d.w_q, &d.w_k, &d.w_v, &d.bias,         &d.mask};
                for (int i = 0; i < 10; i++)
                    for (int axis = 0; axis < views[i]->rank; axis++)
                        if (views[i]->size[axis] == 1) views[i]->stride[axis] = strides[which];
                for (int i = 0; i < RESULT_COUNT; i++)
                    for (int axis = 0; axis < result_of(&d, i)->rank; axis++)
                        if (result_of(&d, i)->size[axis] == 1) result_of(&d, i)->stride[axis] = strides[which];
                check_everywhere(&d, ref_score_names[score]);
                check_all(&d, ref_score_names[score]);
                test_release();
            }
}

const test_case suite_corners[] = {{"corners.empty_rows", empty_rows},
                                   {"corners.one_empty_row", one_empty_row},
                                   {"corners.nothing_allowed", nothing_allowed},
                                   {"corners.sinks", sinks},
                                   {"corners.not_finite", not_finite},
                                   {"corners.excluded", excluded},
                                   {"corners.excluded_by_row", excluded_by_row},
                                   {"corners.unmapped", unmapped},
                                   {"corners.unmapped_given", unmapped_given},
                                   {"corners.unmapped_starts", unmapped_starts},
                                   {"corners.unmapped_pages", unmapped_pages},
                                   {"corners.unmapped_tools", unmapped_tools},
                                   {"corners.every_d", every_d},
                                   {"corners.every_dv", every_dv},
                                   {"corners.odd_sizes", odd_sizes},
                                   {"corners.no_size", no_size},
                                   {"corners.one_alone", one_alone},
                                   {"corners.grouped_heads", grouped_heads},
                                   {"corners.long_rows", long_rows},
                                   {"corners.bias_shapes", bias_shapes},
                                   {"corners.kernel_edges", kernel_edges},
                                   {"corners.far_from_origin", far_from_origin},
                                   {"corners.cosine_lengths", cosine_lengths},
                                   {"corners.additive_extremes", additive_extremes},
                                   {"corners.scores_at_the_ends", scores_at_the_ends},
                                   {"corners.given_minus_infinity", given_minus_infinity},
                                   {"corners.given_overflow", given_overflow},
                                   {"corners.large_lse", large_lse},
                                   {"corners.dropout_ends", dropout_ends},
                                   {"corners.far_positions", far_positions},
                                   {"corners.accuracy", accuracy},
                                   {"corners.far_below", far_below},
                                   {"corners.like_terms", like_terms},
                                   {"corners.no_element", no_element},
                                   {"corners.no_data", no_data},
                                   {"corners.any_stride", any_stride},
                                   {0, 0}};
