/* entries.c - of "sequences": entries of unequal length in shared arrays, by starts, packed or in pages. Keys in
   several calls: parts.c; a cache that grows, rotary positions: sequence.c. A random call of a few batch entries is cut
   into calls of its own, one per entry, which are held against the reference; then the entries are put into shared
   arrays, whose other elements are NaN or no length at all, and must get the same bits there. */
#include "grads.h"
#define NO_SEQUENCES /* they are made here */
#define MORE_FACTORS(X) X(PLACE_Q, 3) X(PLACE_K, 5)
#include "descriptors.h"

enum { ENTRIES = 3 };
enum { DENSE, PADDED, TOGETHER, SHUFFLED, PAGED }; /* where queries or keys lie; keys together in another order */
typedef struct place {
    int64_t b, queries, keys; /* entries; rows of the arrays that they are put into */
    int query_starts, key_starts, packed_queries, packed_keys;
    int64_t q0[ENTRIES], nq[ENTRIES], k0[ENTRIES], nk[ENTRIES];
} place;

/* ---- entries in larger arrays */
static attn_view with_four_axes(attn_view v) {
    attn_view w = {v.data, {1, 1, 1, 1}, {0, 0, 0, 0}, v.type, 4};
    for (int axis = 0; axis < v.rank; axis++)
        w.size[axis + 4 - v.rank] = v.size[axis], w.stride[axis + 4 - v.rank] = v.stride[axis];
    return w;
}
/* Roles of the axes after the batch: 'q' queries, 'k' keys, '.' other; broadcast: an axis of size 1 stays one. A copy
   in new memory, in which every entry lies in its place. */
static attn_view spread(const place *p, attn_view v, const char *roles, int broadcast) {
    int packed = roles[1] == 'q' || roles[0] == 'q' ? p->packed_queries : p->packed_keys, pair = 0;
    attn_view w = v;
    int64_t index[4] = {0, 0, 0, 0}, low, high;
    if (!v.rank) return v;
    if (broadcast) v = with_four_axes(v), packed = 0, w = v;
    for (int axis = 1; axis < v.rank; axis++) {
        char role = broadcast && v.size[axis] == 1 ? '.' : roles[axis - 1];
        if (role == 'q') w.size[axis] = p->queries;
        if (role == 'k') w.size[axis] = p->keys;
        pair |= role != '.';
    }
    w.size[0] = packed ? 1 : pair ? p->b : v.size[0];
    set_strides(&w, test_int(0, 1) ? LAYOUT_PACKED : LAYOUT_MIXED);
    take_memory(&w);
    if (!view_extent(&v, &low, &high)) return w;
    for (int64_t b = 0; b < (pair ? p->b : v.size[0]); b++) {
        memset(index, 0, sizeof index);
        do {
            int64_t from[4], to[4];
            int inside = 1;
            memcpy(from, index, sizeof from), memcpy(to, index, sizeof to);
            if (index[0] > 0) break; /* the batch is walked above */
            from[0] = v.size[0] == 1 ? 0 : b, to[0] = packed || w.size[0] == 1 ? 0 : b;
            for (int axis = 1; axis < v.rank; axis++) {
                char role = broadcast && v.size[axis] == 1 ? '.' : roles[axis - 1];
                if (role == 'q') inside &= index[axis] < p->nq[b], to[axis] += p->q0[b];
                if (role == 'k') inside &= index[axis] < p->nk[b], to[axis] += p->k0[b];
            }
            if (inside)
                memcpy((char *)(uintptr_t)w.data + offset_of(&w, to) * (int64_t)type_bytes(w.type),
                       (const char *)v.data + offset_of(&v, from) * (int64_t)type_bytes(v.type), type_bytes(v.type));
        } while (next_index(&v, index));
    }
    return w;
}
static attn_out spread_out(const place *p, attn_out o, const char *roles) {
    attn_view v = attn_view_of(o);
    attn_out to = {0, {0, 0, 0, 0}, {0, 0, 0, 0}, o.type, o.rank};
    int packed = roles[1] == 'q' ? p->packed_queries : p->packed_keys;
    if (!o.rank) return o;
    if (strchr(roles, 'k') && strchr(roles, 'q')) packed = 0;
    for (int axis = 0; axis < o.rank; axis++) {
        char role = axis ? roles[axis - 1] : 'b';
        v.size[axis] = role == 'b'   ? (packed ? 1 : p->b)
                       : role == 'q' ? p->queries
                       : role == 'k' ? p->keys
                                     : v.size[axis];
    }
    to = make_out_of(o.type, LAYOUT_GAPS, o.rank, v.size[0], v.size[1], v.size[2], v.size[3]);
    poison(&to);
    return to;
}
/* A mask or a bias of packed entries: rows as the queries lie, columns from each entry's first key on; all else is NaN,
   a byte of 1 or an index of no element. */
static attn_view spread_packed(const place *p, attn_view v, int spare) {
    attn_view w;
    int64_t keys = 0;
    if (!v.rank) return v;
    v = with_four_axes(v);
    for (int64_t b = 0; b < p->b; b++) keys = p->nk[b] > keys ? p->nk[b] : keys;
    if (v.size[2] == 1 && v.size[3] == 1 && (!takes_indices() || test_int(0, 1))) return v; /* the same for all keys */
    if (v.size[3] == 1) v.size[3] = keys, v.stride[3] = 0;
    w = v;
    if (v.size[2] > 1) w.size[2] = p->queries;
    w.size[0] = v.size[2] == 1 ? v.size[0] : p->packed_queries && test_int(0, 1) ? 1 : p->b;
    w.size[3] = keys + spare;
    if (w.size[3] == 1 && v.size[2] == 1) w.size[3]++;                         /* else it is for all keys */
    while (p->b == 1 && (w.size[3] == 1 || w.size[3] == p->keys)) w.size[3]++; /* else columns are those of k */
    set_strides(&w, test_int(0, 1) ? LAYOUT_PACKED : LAYOUT_MIXED);
    take_memory(&w);
    for (int64_t b = 0; b < (w.size[0] == 1 && v.size[2] == 1 ? 1 : p->b); b++)
        for (int64_t h = 0; h < v.size[1]; h++)
            for (int64_t i = 0; i < (v.size[2] > 1 ? p->nq[b] : 1); i++)
                for (int64_t j = 0; j < (w.size[0] == 1 && v.size[2] == 1 ? keys : p->nk[b]); j++) {
                    const int64_t from[4] = {v.size[0] == 1 ? 0 : b, h, i, j};
                    const int64_t to[4] = {w.size[0] == 1 ? 0 : b, h, v.size[2] > 1 ? p->q0[b] + i : 0, j};
                    memcpy((char *)(uintptr_t)w.data + offset_of(&w, to) * (int64_t)type_bytes(w.type),
                           (const char *)v.data + offset_of(&v, from) * (int64_t)type_bytes(v.type),
                           type_bytes(v.type));
                }
    return w;
}
/* Part of an array of all entries: entry b's, in its own place. */
static attn_view part_of(const place *p, attn_view v, int64_t b, const char *roles, int placed, int broadcast) {
    if (!v.rank) return v;
    if (broadcast) v = with_four_axes(v);
    if (v.size[0] > 1) v = attn_view_slice(v, 0, b, 1);
    for (int axis = 1; axis < v.rank; axis++) {
        if (broadcast && v.size[axis] == 1) continue;
        if (roles[axis - 1] == 'q') v = attn_view_slice(v, axis, placed ? p->q0[b] : 0, p->nq[b]);
        if (roles[axis - 1] == 'k') v = attn_view_slice(v, axis, placed ? p->k0[b] : 0, p->nk[b]);
    }
    return v;
}
static attn_out part_of_out(const place *p, attn_out o, int64_t b, const char *roles, int placed) {
    attn_view v = part_of(p, attn_view_of(o), b, roles, placed, 0);
    memcpy(&o, &v, sizeof o);
    return o;
}

/* ---- where entries are put */
static void put_side(int how, int64_t entries, int64_t room, const int64_t *n, int64_t *start, int64_t *all, int ends) {
    int64_t order[ENTRIES] = {0, 1, 2}, at = test_int(0, 3);
    *all = room;
    for (int64_t b = 0; b < entries; b++) start[b] = 0;
    if (how == DENSE) return;
    if (how == PADDED) {
        *all = room + test_int(0, 5);
        for (int64_t b = 0; b < entries; b++) start[b] = ends ? test_int(0, (int)(*all - n[b])) : *all - n[b];
        return;
    }
    if (how == SHUFFLED) shuffle(order, entries);
    for (int64_t b = 0; b < entries; b++) start[order[b]] = at, at += n[order[b]] + test_int(0, 3);
    *all = at;
}
/* May entries not be packed? A mask or a bias of one entry may have the columns of k, and counts where these lie. */
static int has_pairs(const attn_desc *d, int64_t entries) {
    attn_view bias = with_four_axes(d->bias_index.rank ? d->bias_index : d->bias), mask = with_four_axes(d->mask);
    return d->weights.rank || d->scores.rank || d->scores_softcap.rank || d->scores_masked.rank ||
           d->given_scores.rank ||
           ((!takes_indices() || (entries == 1 && test_int(0, 1))) &&
            ((d->bias.rank && (bias.size[2] > 1 || bias.size[3] > 1)) ||
             (d->mask.rank && (mask.size[2] > 1 || mask.size[3] > 1))));
}
static void draw_place(place *p, const attn_desc *d, const int f[FACTOR_COUNT], int pairs, int64_t b, int64_t sq,
                       int64_t sk) {
    int how_q = f[F_PLACE_Q], how_k = f[F_PLACE_K];
    if (pairs) how_q = how_q > PADDED ? PADDED : how_q, how_k = how_k > PADDED && how_k < PAGED ? PADDED : how_k;
    memset(p, 0, sizeof *p);
    p->b = b;
    p->query_starts = how_q != DENSE, p->key_starts = how_k != DENSE && how_k != PAGED;
    p->packed_queries = how_q > PADDED, p->packed_keys = how_k > PADDED && how_k != PAGED;
    if (b == 1 && !pairs && how_q == PADDED && d->query_lengths.rank) p->packed_queries = 1; /* one entry alone */
    if (b == 1 && !pairs && how_k == PADDED && d->key_lengths.rank) p->packed_keys = 1;
    for (int64_t e = 0; e < b; e++) {
        int64_t rows = d->query_lengths.rank ? ref_int(&d->query_lengths, e, 0) : sq;
        p->nq[e] = p->query_starts ? rows : sq;
        p->nk[e] = d->key_lengths.rank == 1 ? ref_int(&d->key_lengths, e, 0) : d->key_lengths.rank ? 0 : sk;
        for (int64_t i = 0; d->key_lengths.rank == 2 && i < rows; i++)
            if (ref_int(&d->key_lengths, e, i) > p->nk[e]) p->nk[e] = ref_int(&d->key_lengths, e, i);
    }
    put_side(how_q, b, sq, p->nq, p->q0, &p->queries, d->query_lengths.rank || p->packed_queries);
    put_side(how_k == PAGED ? DENSE : how_k, b, sk, p->nk, p->k0, &p->keys, d->key_lengths.rank == 1 || p->packed_keys);
}
static attn_view lengths_or(const attn_view *given, const int64_t *n, int64_t b) {
    attn_view v = make_view(test_int(0, 1) ? ATTN_I32 : ATTN_I64, LAYOUT_GAPS, 1, b, 0, 0, 0);
    if (given->rank == 1 && !n) return *given;
    for (int64_t e = 0; e < b; e++) put_at(&v, 0, 0, 0, e, (double)n[e]);
    return v;
}
/* k or v in a pool: entry b's key j in the page that the table says. */
static attn_view in_pages(const place *p, attn_view v, const attn_view *table, int64_t page, int64_t pool) {
    attn_view w = make_view(v.type, test_int(0, 1) ? LAYOUT_PACKED : LAYOUT_MIXED, 4, pool, v.size[1], page, v.size[3]);
    for (int64_t b = 0; b < p->b; b++)
        for (int64_t h = 0; h < v.size[1]; h++)
            for (int64_t j = 0; j < p->nk[b]; j++)
                for (int64_t c = 0; c < v.size[3]; c++) {
                    const int64_t from[4] = {b, h, j, c}, to[4] = {ref_int(table, b, j / page), h, j % page, c};
                    memcpy((char *)(uintptr_t)w.data + offset_of(&w, to) * (int64_t)type_bytes(w.type),
                           (const char *)v.data + offset_of(&v, from) * (int64_t)type_bytes(v.type),
                           type_bytes(v.type));
                }
    return w;
}
static void put_in_pages(attn_desc *e, const place *p, const attn_desc *d) {
    static const int64_t sizes[] = {1, 2, 7, 16, 70, 300};
    int64_t page = sizes[test_int(0, 5)], pages = 0, order[2000], used = 0, pool;
    while (p->keys % page) page = sizes[test_int(0, 5)] % 3 ? 1 : page - 1;
    pages = p->keys / page, pool = p->b * pages + test_int(0, 2);
    if (pool > 2000) return;
    e->page_table = make_view(test_int(0, 1) ? ATTN_I32 : ATTN_I64, LAYOUT_PACKED, 2, p->b, pages, 0, 0);
    for (int64_t n = 0; n < pool; n++) order[n] = n;
    shuffle(order, pool);
    for (int64_t b = 0; b < p->b; b++) /* what lies after an entry's keys stays no page at all: -1 */
        for (int64_t n = 0; n * page < p->nk[b]; n++) put_at(&e->page_table, 0, 0, b, n, (double)order[used++]);
    if (d->k.rank) e->k = in_pages(p, d->k, &e->page_table, page, pool);
    if (d->v.rank) e->v = in_pages(p, d->v, &e->page_table, page, pool);
}

/* Where each result and input has queries and keys. */
static const char *const result_roles[RESULT_COUNT] = {".q.", ".q", ".qk", ".qk", ".qk", ".qk", ".q."};

static void put_together(attn_desc *e, const place *p, const attn_desc *d, int paged) {
    *e = *d;
    e->q = spread(p, d->q, ".q.", 0), e->k = spread(p, d->k, ".k.", 0), e->v = spread(p, d->v, ".k.", 0);
    e->given_scores = spread(p, d->given_scores, ".qk", 0);
    if (p->packed_queries || p->packed_keys) {
        *ref_bias_of_pairs(e) = spread_packed(p, *ref_bias_of_pairs(e), test_int(0, 2));
        e->mask = spread_packed(p, d->mask, test_int(0, 2));
    } else {
        *ref_bias_of_pairs(e) = spread(p, *ref_bias_of_pairs(e), ".qk", 1), e->mask = spread(p, d->mask, ".qk", 1);
    }
    if (d->key_lengths.rank == 2) e->key_lengths = spread(p, d->key_lengths, "q", 0);
    if (d->positions.rank == 2) e->positions = spread(p, d->positions, "q", 0);
    if (p->query_starts) e->query_starts = lengths_or(&d->q, p->q0, p->b);
    if (p->key_starts) e->key_starts = lengths_or(&d->q, p->k0, p->b);
    if (p->packed_queries) e->query_lengths = lengths_or(&d->q, p->nq, p->b);
    if (p->packed_keys && d->key_lengths.rank < 2) e->key_lengths = lengths_or(&d->q, p->nk, p->b);
    if (paged) put_in_pages(e, p, d);
    for (int n = 0; n < RESULT_COUNT; n++) {
        attn_desc copy = *d;
        *result_of(e, n) = spread_out(p, *result_of(&copy, n), result_roles[n]);
    }
}
/* The call of entry b alone. */
static attn_desc own_call(const place *p, const attn_desc *d, int64_t b) {
    attn_desc own = *d;
    own.q = part_of(p, d->q, b, ".q.", 0, 0), own.k = part_of(p, d->k, b, ".k.", 0, 0);
    own.v = part_of(p, d->v, b, ".k.", 0, 0), own.given_scores = part_of(p, d->given_scores, b, ".qk", 0, 0);
    *ref_bias_of_pairs(&own) = part_of(p, *ref_bias_of_pairs(&own), b, ".qk", 0, 1),
    own.mask = part_of(p, d->mask, b, ".qk", 0, 1);
    if (d->key_lengths.rank == 2) own.key_lengths = part_of(p, d->key_lengths, b, "q", 0, 0);
    if (d->key_lengths.rank == 1) memset(&own.key_lengths, 0, sizeof own.key_lengths);
    if (d->query_lengths.rank) own.query_lengths = attn_view_slice(d->query_lengths, 0, b, 1);
    if (p->query_starts) memset(&own.query_lengths, 0, sizeof own.query_lengths);
    if (d->positions.rank) own.positions = part_of(p, d->positions, b, "q", 0, 0);
    own.dropout_origin[0] += b;
    for (int n = 0; n < RESULT_COUNT; n++) {
        attn_desc copy = *d;
        *result_of(&own, n) = part_of_out(p, *result_of(&copy, n), b, result_roles[n], 0);
    }
    return own;
}

/* What lies in no entry: 0xFF where entries are packed; else 0 or -inf beside its keys. */
static void check_outside(const place *p, attn_desc *e, int n, const char *what) {
    attn_view v = attn_view_of(*result_of(e, n));
    int64_t index[4] = {0, 0, 0, 0}, low, high;
    int pair = result_roles[n][1] == 'q' && result_roles[n][2] == 'k', right = 1;
    if (!v.rank || !view_extent(&v, &low, &high)) return;
    do {
        int row = 0, key = !pair;
        for (int64_t b = p->packed_queries ? 0 : index[0]; b < (p->packed_queries ? p->b : index[0] + 1); b++) {
            row |= index[2] >= p->q0[b] && index[2] < p->q0[b] + p->nq[b];
            key |= pair && index[3] >= p->k0[b] && index[3] < p->k0[b] + p->nk[b];
        }
        uint32_t bits = bits_at(&v, index);
        if (p->packed_queries && !row) right &= bits == 0xffffffffu;
        if (!key) right &= bits == (n == 2 ? 0u : 0xff800000u);
        if (!p->packed_queries && !row && n == 0 && e->empty == ATTN_EMPTY_ZERO) right &= bits == 0;
    } while (next_index(&v, index));
    CHECKF(right, "%s: result %d beside the entries", what, n);
}
static void check_forward(const place *p, attn_desc *e, const attn_desc *d, const char *what) {
    for (int i = 0; i < test_isa_count(); i++) {
        char name[80];
        snprintf(name, sizeof name, "%s on %s", what, attn_isa_string(test_isa(i)));
        e->isa = test_isa(i);
        poison_results(e);
        if (!run_desc(e, name)) return;
        for (int64_t b = 0; b < p->b; b++) {
            attn_desc own = own_call(p, d, b), mine = own;
            for (int n = 0; n < RESULT_COUNT; n++)
                *result_of(&mine, n) = part_of_out(p, *result_of(e, n), b, result_roles[n], 1);
            if (!check_same_results(&own, &mine, name)) ref_print(&own);
        }
        for (int n = 0; n < RESULT_COUNT; n++) check_outside(p, e, n, name);
        e->isa = ATTN_ISA_AUTO;
    }
}

static void build_case(attn_desc *d, const int f[FACTOR_COUNT], shape *s) {
    *s = draw_shape(f);
    s->b = test_int(1, ENTRIES);
    build_shaped(d, f, *s);
    if (d->query_lengths.rank == 0 && f[F_PLACE_Q] > PADDED) /* packed entries of different sizes */
        d->query_lengths = make_ints(ATTN_I64, 1, s->b, 0, 0, 0, 0, (int)s->sq);
    for (int64_t b = 0; d->query_lengths.rank && d->key_lengths.rank == 2 && b < s->b; b++) /* no entry's rows */
        for (int64_t i = ref_int(&d->query_lengths, b, 0); i < s->sq; i++) put_at(&d->key_lengths, 0, 0, b, i, 0);
}

static void forward(void) {
    int had[3][5] = {{0}};
    memset(covered, 0, sizeof covered);
    for (int n = 0; n < 290; n++) {
        int f[FACTOR_COUNT];
        attn_desc d, e;
        shape s;
        place p;
        char what[60];
        draw_factors(f);
        if (n % 2) f[F_RESULTS] = n % 4 == 1 ? 1 : 2; /* so that entries may be packed */
        if (n % 2 && !takes_indices()) f[F_BIAS] = f[F_MASK] = 0;
        build_case(&d, f, &s);
        if (d.weights_after_dropout && !d.weights.rank) d.weights_after_dropout = 0;
        draw_place(&p, &d, f, has_pairs(&d, s.b), s.b, s.sq, s.sk);
        if (!p.query_starts && !p.key_starts && f[F_PLACE_K] != PAGED) {
            test_release();
            continue;
        }
        for (int64_t b = 0; b < s.b; b++) {
            attn_desc own = own_call(&p, &d, b);
            snprintf(what, sizeof what, "case %d, entry %d alone", n, (int)b);
            check_everywhere(&own, what);
        }
        for (int64_t b = 0; b < s.b; b++) { /* all of them again, for their arrays lie among each other */
            attn_desc own = own_call(&p, &d, b);
            run_desc(&own, what);
        }
        put_together(&e, &p, &d, f[F_PLACE_K] == PAGED);
        snprintf(what, sizeof what, "case %d, put together", n);
        check_forward(&p, &e, &d, what);
        had[f[F_PLACE_Q]][f[F_PLACE_K]]++;
        test_release();
    }
    for (int q = 0; q < 3; q++)
        for (int k = 0; k < 5; k++)
            CHECKF(had[q][k] || (q == DENSE && k == DENSE), "queries %d, keys %d were not tried", q, k);
}

/* Few rows are read by a way of their own, 16 keys at a time where pages allow it: the bits of the same keys side by
   side, on every instruction set, for chunks that end within a page, windows that begin within one, all that queries
   share, scales for a row or for 32 codes of it. */
static void few_rows_in_pages(void) {
    static const int64_t page_sizes[] = {1, 2, 5, 16, 24, 48, 80}, most = 610;
    static const int32_t types[] = {ATTN_F32, ATTN_F16, ATTN_BF16, ATTN_I8};
    for (int n = 0; n < 84; n++) { /* three times every type with every size of a page */
        const int64_t page = page_sizes[n % 7], b = 2, keys = (most + page - 1) / page * page;
        const int64_t lanes = page > 1 || n < 28 ? 0 : 4 << n % 2; /* heads of one row each, which may be lanes */
        /* of the smallest pages several heads take turns */
        const int64_t kv_heads = page > 2 ? 2 : lanes ? lanes : test_int(2, 9);
        const int matrices = lanes && n >= 56; /* one for each head */
        const int64_t heads = kv_heads * (matrices ? 2 : lanes ? 1 : test_int(1, 9));
        const int64_t size_k = test_int(1, 80), size_v = test_int(1, 160);
        const int32_t type = types[n / 7 % 4];
        const int64_t scales_k = n % 8 < 4 ? 1 : (size_k + 31) / 32, scales_v = n % 8 < 4 ? 1 : (size_v + 31) / 32;
        const size_t bytes = (size_t)(b * heads * size_v) * sizeof(float);
        float *first = (float *)test_guarded(bytes);
        int64_t order[2 * 610];
        place p = {.b = b, .keys = keys, .nk = {test_int(1, (int)most), test_int(1, (int)most)}};
        attn_desc d = {0}, e;
        attn_view lengths = make_view(ATTN_I32, LAYOUT_PACKED, 1, b, 0, 0, 0);
        for (int64_t i = 0; i < b; i++) put_at(&lengths, 0, 0, 0, i, (double)p.nk[i]);
        d.q = make_filled(LAYOUT_PACKED, 1, 4, b, heads, 1, size_k);
        d.k = make_view(type, LAYOUT_PACKED, 4, b, kv_heads, keys, size_k);
        d.v = make_view(type, LAYOUT_MIXED, 4, b, kv_heads, keys, size_v);
        if (type == ATTN_I8) fill(&d.k, draw_int, -127, 127), fill(&d.v, draw_int, -127, 127);
        else fill(&d.k, draw_normal, 0, 1), fill(&d.v, draw_normal, 0, 1);
        if (type == ATTN_I8) d.k_scale = make_filled(LAYOUT_PACKED, 0.02, 4, b, kv_heads, keys, scales_k);
        if (type == ATTN_I8) d.v_scale = make_filled(LAYOUT_PACKED, 0.02, 4, b, kv_heads, keys, scales_v);
        d.key_lengths = lengths;
        if (n % 5 == 0) d.window = 1, d.window_left = test_int(0, 400), d.align = ATTN_ALIGN_BOTTOM_RIGHT;
        if (matrices) d.score = ATTN_SCORE_BILINEAR;
        if (matrices) d.bilinear = make_filled(LAYOUT_PACKED, 0.2, 3, heads, size_k, size_k, 0);
        d.out = make_out(LAYOUT_PACKED, 4, b, heads, 1, size_v);
        e = d;
        e.out = make_out(LAYOUT_PACKED, 4, b, heads, 1, size_v);
        for (int64_t i = 0; i < keys / page * b; i++) order[i] = i;
        shuffle(order, keys / page * b);
        e.page_table = make_view(n % 2 ? ATTN_I64 : ATTN_I32, LAYOUT_MIXED, 2, b, keys / page, 0, 0);
        for (int64_t i = 0; i < keys / page * b; i++) /* -1 after what is needed */
            put_at(&e.page_table, 0, 0, i % b, i / b, i / b * page < p.nk[i % b] ? (double)order[i] : -1.0);
        e.k = in_pages(&p, d.k, &e.page_table, page, keys / page * b);
        e.v = in_pages(&p, d.v, &e.page_table, page, keys / page * b);
        if (type == ATTN_I8) e.k_scale = in_pages(&p, d.k_scale, &e.page_table, page, keys / page * b);
        if (type == ATTN_I8) e.v_scale = in_pages(&p, d.v_scale, &e.page_table, page, keys / page * b);
        for (int i = 0; i < test_isa_count(); i++) {
            d.isa = e.isa = test_isa(i);
            if (!run_desc(&d, "side by side") || !run_desc(&e, "in pages")) return;
            if (i == 0) memcpy(first, d.out.data, bytes);
            CHECKF(!memcmp(d.out.data, e.out.data, bytes) && !memcmp(d.out.data, first, bytes),
                   "pages of %d, %d heads, d %d and %d, type %d, on %s: other bits than side by side or scalar",
                   (int)page, (int)heads, (int)size_k, (int)size_v, type, attn_isa_string(d.isa));
        }
        test_release();
    }
}

/* Few rows whose keys lie [B,S,H,D] are read for several heads at a time: the bits of the same keys [B,H,S,D], for
   every type, lengths and windows that end within a chunk, values that are not finite, keys cut among tasks, and any
   number of workers, who share the heads. Some tasks have a single head; 4 or 8 heads of one row may be lanes. */
static void few_rows_of_heads_side_by_side(void) {
    static const int32_t types[] = {ATTN_F32, ATTN_F16, ATTN_BF16, ATTN_I8};
    for (int n = 0; n < 40; n++) {
        const int cut = n % 8 == 7, lanes = n % 8 >= 4 && !cut, matrices = n >= 32; /* one for each head */
        const int64_t b = cut ? 1 : test_int(1, 2), kv_heads = lanes ? 4 << n / 8 % 2 : test_int(2, cut ? 4 : 11);
        const int64_t group = matrices ? 2 : lanes ? 1 : test_int(1, 8);
        const int64_t keys = cut ? test_int(4096, 4400) : test_int(512, 900), size_k = test_int(1, cut ? 8 : 70);
        const int64_t size_v = test_int(16, cut ? 20 : 70), rows = b * kv_heads * group * size_v;
        const int32_t type = types[n % 4];
        float *first = (float *)test_guarded((size_t)rows * sizeof(float));
        attn_desc d = {0}, e;
        attn_view lengths = make_view(ATTN_I32, LAYOUT_PACKED, 1, b, 0, 0, 0);
        for (int64_t i = 0; i < b; i++) put_at(&lengths, 0, 0, 0, i, test_int((int)keys - 300, (int)keys));
        d.q = make_filled(LAYOUT_PACKED, 1, 4, b, kv_heads * group, 1, size_k);
        d.k = attn_view_swap(make_view(type, LAYOUT_PACKED, 4, b, keys, kv_heads, size_k), 1, 2);
        d.v = attn_view_swap(make_view(type, LAYOUT_PACKED, 4, b, keys, kv_heads, size_v), 1, 2);
        if (type == ATTN_I8) fill(&d.k, draw_int, -127, 127), fill(&d.v, draw_int, -127, 127);
        else fill(&d.k, draw_normal, 0, 1), fill(&d.v, draw_normal, 0, 1);
        if (type == ATTN_I8) d.k_scale = make_filled(LAYOUT_PACKED, 0.02, 4, b, kv_heads, keys, 1);
        if (type == ATTN_I8) d.v_scale = make_filled(LAYOUT_PACKED, 0.02, 4, b, kv_heads, keys, 1);
        if (type != ATTN_I8 && n % 3 == 0) { /* a score of -inf excludes the key from some rows */
            const int64_t key = test_int(0, 200);
            put_at(&d.k, 0, 1, key, 0, -INFINITY), put_at(&d.v, 0, 1, key, 0, n % 2 ? NAN : INFINITY);
        }
        if (n % 2) d.key_lengths = lengths;
        if (n % 5 == 0) d.window = 1, d.window_left = test_int(0, 400), d.align = ATTN_ALIGN_BOTTOM_RIGHT;
        if (matrices) d.score = ATTN_SCORE_BILINEAR;
        if (matrices) d.bilinear = make_filled(LAYOUT_PACKED, 0.2, 3, kv_heads * group, size_k, size_k, 0);
        d.out = make_out(LAYOUT_PACKED, 4, b, kv_heads * group, 1, size_v);
        e = d;
        e.out = make_out(LAYOUT_PACKED, 4, b, kv_heads * group, 1, size_v);
        e.k = copy_view(&d.k, LAYOUT_PACKED), e.v = copy_view(&d.v, LAYOUT_PACKED);
        for (int i = 0; i < test_isa_count(); i++) {
            d.isa = e.isa = test_isa(i), d.parallel.workers = test_int(1, lanes ? 2 : 5);
            if (!run_desc(&d, "heads side by side") || !run_desc(&e, "keys side by side")) return;
            if (i == 0) memcpy(first, e.out.data, (size_t)rows * sizeof(float));
            CHECKF(!memcmp(d.out.data, first, (size_t)rows * sizeof(float)) &&
                       !memcmp(e.out.data, first, (size_t)rows * sizeof(float)),
                   "%d heads of %d rows, %d keys, d %d and %d, type %d, %d workers, on %s: other bits", (int)kv_heads,
                   (int)group, (int)keys, (int)size_k, (int)size_v, type, (int)d.parallel.workers,
                   attn_isa_string(d.isa));
        }
        test_release();
    }
}

/* As many rows on a key head as a tile of few rows has, whose window begins at any key of a chunk: the scores of whole
   groups of keys, more than there are, must not be written where the places of further keys are read. */
static void few_rows_from_any_key(void) {
    for (int64_t from = 0; from < 256; from += 3) {
        const int64_t keys = test_int((int)from + 1, 256), d = test_int(65, 192);
        attn_desc o = {0};
        float first[8 * 192];
        o.q = make_filled(LAYOUT_PACKED, 1, 4, 1, 8, 1, d);
        o.k = make_filled(LAYOUT_PACKED, 1, 4, 1, 1, keys, d), o.v = make_filled(LAYOUT_PACKED, 1, 4, 1, 1, keys, d);
        o.window = 1, o.window_left = keys - 1 - from, o.align = ATTN_ALIGN_BOTTOM_RIGHT;
        o.out = make_out(LAYOUT_PACKED, 4, 1, 8, 1, d);
        for (int i = 0; i < test_isa_count(); i++) {
            o.isa = test_isa(i);
            if (!run_desc(&o, "a window from any key")) return;
            if (i == 0) memcpy(first, o.out.data, (size_t)(8 * d) * sizeof(float));
            CHECKF(!memcmp(o.out.data, first, (size_t)(8 * d) * sizeof(float)),
                   "keys %d to %d, d %d, on %s: other bits", (int)from, (int)keys, (int)d, attn_isa_string(o.isa));
        }
        test_release();
    }
}

/* An entry with as many keys as queries needs no alignment, whatever the arrays have. */
static void without_alignment(void) {
    static const int32_t starts[2][2] = {{0, 5}, {3, 9}}, lengths[2] = {4, 3};
    attn_desc d = make_desc(1, 2, 1, 8, 16, 5, 6), e;
    d.query_starts = attn_view_i32(starts[0], 1, 2, 0, 0, 0), d.key_starts = attn_view_i32(starts[1], 1, 2, 0, 0, 0);
    d.query_lengths = d.key_lengths = attn_view_i32(lengths, 1, 2, 0, 0, 0);
    d.causal = 1, d.align = ATTN_ALIGN_UNSET;
    e = d;
    e.align = ATTN_ALIGN_TOP_LEFT;
    e.out = make_out(LAYOUT_PACKED, 4, 1, 2, 8, 6);
    memset(d.out.data, 0, 2 * 8 * 6 * sizeof(float)), memset(e.out.data, 0, 2 * 8 * 6 * sizeof(float));
    if (run_desc(&d, "no alignment") && run_desc(&e, "top left"))
        CHECK(!memcmp(d.out.data, e.out.data, 2 * 8 * 6 * sizeof(float)));
    test_release();
}

/* More rows than lanes that some kernels have, of keys that become floats for all of them at once, and values that are
   not finite: each row has the bits of a call of its own. */
static void rows_of_two_tiles(void) {
    enum { ROWS = 9, KEYS = 900, SIZE = 24 };
    attn_desc d = make_desc(1, 1, 1, ROWS, KEYS, SIZE, SIZE), one;
    uint16_t *values = (uint16_t *)test_guarded(KEYS * SIZE * sizeof *values);
    float out[SIZE];
    for (int n = 0; n < KEYS * SIZE; n++) values[n] = (uint16_t)(0x3f80 + test_int(0, 15) * 8); /* 1 to 2 */
    values[300 * SIZE + 3] = 0x7f80;                                                            /* infinite */
    d.v = attn_view_typed(ATTN_BF16, values, 4, 1, 1, KEYS, SIZE);
    for (int n = 0; n < test_isa_count(); n++) {
        d.isa = test_isa(n);
        if (!run_desc(&d, "all rows")) return;
        one = d;
        for (int i = 0; i < ROWS; i++) {
            one.q = attn_view_slice(d.q, 2, i, 1);
            one.out = attn_out_bhsd(out, 1, 1, 1, SIZE);
            if (!run_desc(&one, "one row")) return;
            CHECKF(!memcmp(out, (const float *)d.out.data + i * SIZE, sizeof out),
                   "row %d differs in a call of its own (%s)", i, attn_isa_string(d.isa));
        }
    }
    test_release();
}

/* One packed picture where key_starts alone say that entries share it: all of its rows belong to entries by their
   lengths, so one has them all. */
static void rows_of_one_entry(void) {
    int32_t starts[3] = {2, 0, 1}, lengths[3] = {3, 0, 0}, keys[3] = {3, 5, 4};
    int64_t zeros[3] = {0, 0, 0};
    uint8_t picture[2][3 * 5];
    attn_desc d = {0};
    d.key_starts = attn_view_i32(starts, 1, 3, 0, 0, 0);
    d.query_lengths = attn_view_i32(lengths, 1, 3, 0, 0, 0), d.key_lengths = attn_view_i32(keys, 1, 3, 0, 0, 0);
    for (int n = 0; n < 2; n++) {
        if (n) d.query_starts = attn_view_i64(zeros, 1, 3, 0, 0, 0);
        CHECK_STATUS(attn_mask(attn_out_u8(picture[n], 4, 1, 1, 3, 5), &d, 0), ATTN_OK);
        for (int at = 0; at < 3 * 5; at++) CHECK(picture[n][at] == (at % 5 >= 2));
    }
}

const test_case suite_entries[] = {
    {"entries.forward", forward},
    {"entries.few_rows_in_pages", few_rows_in_pages},
    {"entries.few_rows_of_heads_side_by_side", few_rows_of_heads_side_by_side},
    {"entries.few_rows_from_any_key", few_rows_from_any_key},
    {"entries.without_alignment", without_alignment},
    {"entries.rows_of_two_tiles", rows_of_two_tiles},
    {"entries.rows_of_one_entry", rows_of_one_entry},
    {0, 0},
};
