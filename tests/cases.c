/* cases.c - see cases.h. */
#include "cases.h"

/* ---- views */
size_t type_bytes(int32_t type) {
    return type == ATTN_U8 || type == ATTN_I8      ? 1
           : type == ATTN_F16 || type == ATTN_BF16 ? 2
           : type == ATTN_I64 || type == ATTN_F64  ? 8
                                                   : 4;
}

int view_extent(const attn_view *v, int64_t *low, int64_t *high) {
    *low = *high = 0;
    for (int axis = 0; axis < v->rank; axis++) {
        int64_t reach = (v->size[axis] - 1) * v->stride[axis];
        if (v->size[axis] == 0) return 0;
        if (reach < 0) *low += reach;
        else *high += reach;
    }
    return 1;
}

void shuffle(int64_t *x, int64_t n) {
    for (int64_t i = n - 1; i > 0; i--) {
        int j = test_int(0, (int)i);
        int64_t t = x[i];
        x[i] = x[j];
        x[j] = t;
    }
}

void set_strides(attn_view *v, layout how) {
    int64_t order[4] = {0, 1, 2, 3}, stride = 1;
    int gaps = how == LAYOUT_GAPS || how == LAYOUT_MIXED;
    if (how == LAYOUT_BSHD && v->rank == 4) order[1] = 2, order[2] = 1;
    if (how == LAYOUT_MIXED) shuffle(order, v->rank);
    if (gaps) stride = test_int(1, 3);
    for (int n = v->rank; n-- > 0;) {
        int64_t axis = order[n];
        v->stride[axis] = stride;
        if (how == LAYOUT_REVERSED || (how == LAYOUT_MIXED && test_int(0, 3) == 0)) v->stride[axis] = -stride;
        if (how == LAYOUT_BROADCAST && n < v->rank - 1 && test_int(0, 1)) v->stride[axis] = 0;
        else stride *= v->size[axis] > 0 ? v->size[axis] : 1;
        if (gaps) stride += test_int(0, 5);
    }
}

void take_memory(attn_view *v) {
    int64_t low, high;
    size_t bytes = type_bytes(v->type), count = view_extent(v, &low, &high) ? (size_t)(high - low + 1) : 0;
    unsigned char *p =
        (unsigned char *)(test_int(0, 1) ? test_guarded(count * bytes) : test_guarded_low(count * bytes));
    v->data = p - low * (int64_t)bytes;
}

attn_view make_view(int32_t type, layout how, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    attn_view v = {0, {n0, n1, n2, n3}, {0, 0, 0, 0}, type, rank};
    set_strides(&v, how);
    take_memory(&v);
    return v;
}

attn_out make_out_of(int32_t type, layout how, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    layout usable = how == LAYOUT_REVERSED || how == LAYOUT_BROADCAST ? LAYOUT_PACKED : how;
    attn_view v = {0, {n0, n1, n2, n3}, {0, 0, 0, 0}, type, rank};
    attn_out o = {0, {n0, n1, n2, n3}, {0, 0, 0, 0}, type, rank};
    set_strides(&v, usable);
    for (int axis = 0; axis < rank; axis++) v.stride[axis] = v.stride[axis] < 0 ? -v.stride[axis] : v.stride[axis];
    take_memory(&v);
    o.data = (void *)(uintptr_t)v.data;
    memcpy(o.stride, v.stride, sizeof o.stride);
    return o;
}

attn_out make_out(layout how, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    return make_out_of(ATTN_F32, how, rank, n0, n1, n2, n3);
}

void put(const attn_view *v, int64_t offset, double x) {
    void *data = (void *)(uintptr_t)v->data; /* the tests made this memory: it is writable */
    switch (v->type) {
    case ATTN_U8: ((uint8_t *)data)[offset] = (uint8_t)x; break;
    case ATTN_I32: ((int32_t *)data)[offset] = (int32_t)x; break;
    case ATTN_I64: ((int64_t *)data)[offset] = (int64_t)x; break;
    case ATTN_F64: ((double *)data)[offset] = x; break;
    case ATTN_I8: ((int8_t *)data)[offset] = (int8_t)x; break;
    case ATTN_F16:
    case ATTN_BF16: ((uint16_t *)data)[offset] = ref_half(v->type, x); break;
    default: ((float *)data)[offset] = (float)x;
    }
}

void put_at(const attn_view *v, int64_t a, int64_t b, int64_t c, int64_t d, double x) {
    const int64_t index[4] = {a, b, c, d};
    put(v, offset_of(v, index + 4 - v->rank), x);
}

void fill(const attn_view *v, double (*draw)(double, double), double a, double b) {
    int64_t index[4] = {0, 0, 0, 0}, low, high;
    if (!view_extent(v, &low, &high)) return;
    do put(v, offset_of(v, index), draw(a, b));
    while (next_index(v, index));
}

attn_view make_filled(layout how, double deviation, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    attn_view v = make_view(ATTN_F32, how, rank, n0, n1, n2, n3);
    fill(&v, draw_normal, 0, deviation);
    return v;
}

attn_view make_ints(int32_t type, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3, int low, int high) {
    attn_view v = make_view(type, LAYOUT_PACKED, rank, n0, n1, n2, n3);
    fill(&v, draw_int, low, high);
    return v;
}

static char *place_of(const attn_view *v, const int64_t index[4]) {
    return (char *)(uintptr_t)v->data + offset_of(v, index) * (int64_t)type_bytes(v->type);
}

/* How many elements of the last axis can be copied or compared at once: all of them where they lie side by side in both
   views, else one. */
static int64_t at_once(const attn_view *a, const attn_view *b) {
    const int last = a->rank - 1;
    return last >= 0 && a->type == b->type && a->stride[last] == 1 && b->stride[last] == 1 ? a->size[last] : 1;
}

attn_view copy_view(const attn_view *v, layout how) {
    attn_view copy = make_view(v->type, how, v->rank, v->size[0], v->size[1], v->size[2], v->size[3]);
    int64_t index[4] = {0, 0, 0, 0}, low, high, count = at_once(v, &copy);
    if (!view_extent(v, &low, &high)) return copy;
    do {
        memcpy(place_of(&copy, index), place_of(v, index), (size_t)count * type_bytes(v->type));
        if (count > 1) index[v->rank - 1] = count - 1;
    } while (next_index(v, index));
    return copy;
}

attn_view slice_row(attn_view v, int64_t b, int64_t h, int64_t i) {
    const int64_t index[3] = {b, h, i};
    for (int axis = 0; axis < 3; axis++) {
        int mine = axis - 4 + v.rank;
        if (v.rank && mine >= 0 && v.size[mine] != 1) v = attn_view_slice(v, mine, index[axis], 1);
    }
    return v;
}

attn_out slice_out_row(attn_out o, int64_t b, int64_t h, int64_t i) {
    if (!o.rank) return o;
    return attn_out_slice(attn_out_slice(attn_out_slice(o, 0, b, 1), 1, h, 1), 2, i, 1);
}

/* ---- a plain call */
attn_desc make_desc(int64_t b, int64_t h, int64_t hkv, int64_t sq, int64_t sk, int64_t d, int64_t dv) {
    attn_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.q = make_filled(LAYOUT_PACKED, 1, 4, b, h, sq, d);
    desc.k = make_filled(LAYOUT_PACKED, 1, 4, b, hkv, sk, d);
    desc.v = make_filled(LAYOUT_PACKED, 1, 4, b, hkv, sk, dv);
    desc.out = make_out(LAYOUT_PACKED, 4, b, h, sq, dv);
    desc.align = sq == sk ? ATTN_ALIGN_UNSET : ATTN_ALIGN_TOP_LEFT;
    return desc;
}

void set_score(attn_desc *desc, int32_t score, int64_t hidden) {
    int64_t b = desc->q.size[0], h = desc->q.size[1], sq = desc->q.size[2], d = desc->q.size[3];
    desc->score = score;
    if (score == ATTN_SCORE_BILINEAR) desc->bilinear = make_filled(LAYOUT_PACKED, 1, 2, d, d, 0, 0);
    if (score == ATTN_SCORE_ADDITIVE) {
        double deviation = d ? 1 / sqrt((double)d) : 1;
        desc->w_q = make_filled(LAYOUT_PACKED, deviation, 2, hidden, d, 0, 0);
        desc->w_k = make_filled(LAYOUT_PACKED, deviation, 2, hidden, d, 0, 0);
        desc->w_v = make_filled(LAYOUT_PACKED, 1, 1, hidden, 0, 0, 0);
    }
    if (ref_is_distance(score)) { /* distances of about the width */
        double width = d ? 0.7 / sqrt((double)d) : 1;
        if (score != ATTN_SCORE_GAUSSIAN) desc->sigma = 2;
        fill(&desc->q, draw_normal, 0, width);
        fill(&desc->k, draw_normal, 0, width);
    }
    if (score == ATTN_SCORE_GIVEN) {
        desc->given_scores = make_filled(LAYOUT_PACKED, 2, 4, b, h, sq, desc->k.size[2]);
        memset(&desc->q, 0, sizeof desc->q);
        memset(&desc->k, 0, sizeof desc->k);
    }
}

/* ---- what several files try */
attn_desc without_keys(int how) {
    attn_desc d = make_desc(2, 2, 1, EMPTY_QUERIES, EMPTY_KEYS, 6, 5);
    if (how == NO_LENGTH) {
        d.key_lengths = make_ints(ATTN_I32, 1, 2, 0, 0, 0, 0, 0);
        put_at(&d.key_lengths, 0, 0, 0, 1, 7);
    }
    if (how == NO_LENGTH_PER_QUERY) d.key_lengths = make_ints(ATTN_I64, 2, 2, EMPTY_QUERIES, 0, 0, 0, 1);
    if (how == NO_MASK) d.mask = make_ints(ATTN_U8, 1, EMPTY_KEYS, 0, 0, 0, 0, 0);
    if (how == NO_MASK_ROW) d.mask = make_ints(ATTN_U8, 2, EMPTY_QUERIES, 1, 0, 0, 0, 1);
    if (how == NO_CAUSAL || how == NO_WINDOW) {
        int position = how == NO_CAUSAL ? -9 : EMPTY_KEYS;
        d.causal = how == NO_CAUSAL;
        d.window = how == NO_WINDOW;
        d.window_left = how == NO_WINDOW ? 3 : 0;
        d.align = ATTN_ALIGN_POSITIONS;
        d.positions = make_ints(ATTN_I64, 1, 2, 0, 0, 0, position, position);
    }
    if (how == NO_QUERY) d.query_lengths = make_ints(ATTN_I32, 1, 2, 0, 0, 0, 0, 9);
    if (how == NO_BIAS) {
        d.bias = make_filled(LAYOUT_PACKED, 1, 2, EMPTY_QUERIES, EMPTY_KEYS, 0, 0);
        attn_view rows = attn_view_slice(d.bias, 0, 4, 11);
        fill(&rows, draw_normal, -INFINITY, 0);
    }
    if (how == NO_GIVEN) {
        set_score(&d, ATTN_SCORE_GIVEN, 0);
        attn_view rows = attn_view_slice(d.given_scores, 2, 3, 12);
        fill(&rows, draw_normal, -INFINITY, 0);
    }
    if (how == NO_KERNEL) {
        set_score(&d, ATTN_SCORE_EPANECHNIKOV, 0);
        attn_view rows = attn_view_slice(d.q, 2, 5, 9);
        fill(&rows, draw_normal, 50, 1);
    }
    return d;
}

float odd_nan(void) {
    uint32_t bits = 0xffc12345u;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

void put_float(const attn_view *v, int64_t b, int64_t h, int64_t i, int64_t c, float x) {
    const int64_t index[4] = {b, h, i, c};
    memcpy((float *)(uintptr_t)v->data + offset_of(v, index), &x, sizeof x);
}

attn_view unmapped_beyond(int64_t first, int64_t end, int64_t sk, int64_t n, int low) {
    size_t row = (size_t)n * sizeof(float);
    char *p =
        (char *)test_guarded_span((size_t)first * row, (size_t)(end - first) * row, (size_t)(sk - end) * row, low);
    attn_view v = attn_view_f32((const float *)(const void *)p, 4, 1, 1, end - first, n);
    fill(&v, draw_normal, 0, 0.5);
    v.data = p - (size_t)first * row;
    v.size[2] = sk;
    return v;
}

void limit_keys(attn_desc *d, int variant, int64_t *first, int64_t *end) {
    const int64_t sq = d->q.size[2];
    *first = 0;
    if (variant == 0) d->key_lengths = make_ints(ATTN_I32, 1, 1, 0, 0, 0, (int)*end, (int)*end);
    if (variant == 1) d->causal = 1, d->align = ATTN_ALIGN_TOP_LEFT, *end = sq;
    if (variant == 2) { /* positions 1000.., window: keys 1000-left .. 1000+sq-1+right */
        d->window = 1;
        d->window_left = test_int(0, 200);
        d->window_right = test_int(0, 40);
        d->align = ATTN_ALIGN_POSITIONS;
        d->positions = make_ints(ATTN_I64, 1, 1, 0, 0, 0, 1000, 1000);
        *first = 1000 - d->window_left;
        *end = 1000 + sq + d->window_right;
    }
    if (variant == 3) { /* lengths per query; the longest is *end */
        d->key_lengths = make_ints(ATTN_I32, 2, 1, sq, 0, 0, 0, (int)*end);
        put_at(&d->key_lengths, 0, 0, 0, 0, (double)*end);
    }
    if (variant == 4) { /* no key at all */
        d->key_lengths = make_ints(ATTN_I32, 1, 1, 0, 0, 0, 0, 0);
        *end = 0;
    }
    if (variant == 5) { /* bottom-right within the length, a window of the past */
        d->key_lengths = make_ints(ATTN_I32, 1, 1, 0, 0, 0, 600, 600);
        d->align = ATTN_ALIGN_BOTTOM_RIGHT;
        d->causal = d->window = 1;
        d->window_left = 33;
        d->window_right = ATTN_UNBOUNDED;
        *first = 600 - sq - 33;
        *end = 600;
    }
}

attn_desc given_beyond(int64_t length, int64_t keys) {
    attn_desc d = make_desc(1, 1, 1, 1, 1, 1, 3);
    set_score(&d, ATTN_SCORE_GIVEN, 0);
    d.v = unmapped_beyond(0, length, keys, 3, 0);
    attn_view row = unmapped_beyond(0, length, keys, 1, 0);
    d.given_scores = attn_view_swap(row, 2, 3);
    d.key_lengths = make_ints(ATTN_I32, 1, 1, 0, 0, 0, (int)length, (int)length);
    return d;
}

attn_desc additive_far_apart(int64_t sq, int64_t sk, double offset, int only_some) {
    attn_desc d = make_desc(1, 1, 1, sq, sk, 6, 3);
    d.score = ATTN_SCORE_ADDITIVE;
    d.w_v = make_filled(LAYOUT_PACKED, 1, 1, 6, 0, 0, 0);
    attn_view q = only_some ? attn_view_slice(d.q, 2, 3, 9) : d.q, k = only_some ? attn_view_slice(d.k, 2, 7, 20) : d.k;
    fill(&q, draw_normal, offset, 1);
    fill(&k, draw_normal, -offset, 1);
    return d;
}

/* ---- results */
attn_out *result_of(attn_desc *d, int which) {
    attn_out *results[RESULT_COUNT];
    results[0] = &d->out;
    results[1] = &d->lse;
    results[2] = &d->weights;
    results[3] = &d->scores;
    results[4] = &d->scores_softcap;
    results[5] = &d->scores_masked;
    results[6] = &d->stats;
    return results[which];
}

void ask_for(attn_desc *d, int set, layout how) {
    ref_result r;
    ref_sizes(d, &r);
    for (int n = 0; n < RESULT_COUNT; n++) {
        attn_out *o = result_of(d, n);
        memset(o, 0, sizeof *o);
        if (!(set >> n & 1)) continue;
        *o = n == 1 ? make_out(how, 3, r.rows_b, r.h, r.sq, 0)
                    : make_out(how, 4, r.rows_b, r.h, r.sq,
                               n == 0   ? r.dv
                               : n == 6 ? 2
                                        : r.sk);
    }
}

void poison(const attn_out *o) {
    attn_view v = attn_view_of(*o);
    int64_t low, high;
    int64_t bytes = (int64_t)type_bytes(o->type);
    if (o->rank && view_extent(&v, &low, &high))
        memset((char *)o->data + low * bytes, 0xFF, (size_t)((high - low + 1) * bytes));
}

void poison_results(attn_desc *d) {
    for (int n = 0; n < RESULT_COUNT; n++) poison(result_of(d, n));
}

int gaps_untouched(const attn_out *o) {
    attn_view v = attn_view_of(*o);
    int64_t low, high, index[4] = {0, 0, 0, 0}, count = 1;
    int untouched = 1;
    if (!o->rank || !view_extent(&v, &low, &high)) return 1;
    for (int axis = 0; axis < v.rank; axis++) count *= v.size[axis];
    if (count == high - low + 1) return 1; /* packed: there are none (no output overlaps itself) */
    unsigned char *element = (unsigned char *)calloc((size_t)(high - low + 1), 1);
    if (!element) abort();
    do element[offset_of(&v, index) - low] = 1;
    while (next_index(&v, index));
    for (int64_t at = low; at <= high; at++) {
        int64_t bytes = (int64_t)type_bytes(o->type);
        uint64_t bits = UINT64_MAX;
        memcpy(&bits, (char *)o->data + at * bytes, (size_t)bytes);
        untouched &= element[at - low] || bits == UINT64_MAX;
    }
    free(element);
    return untouched;
}

uint32_t bits_at(const attn_view *v, const int64_t index[4]) {
    uint32_t bits = 0;
    memcpy(&bits, place_of(v, index), type_bytes(v->type));
    return bits;
}

int check_same(const attn_out *a, const attn_out *b, const char *what) {
    attn_view x = attn_view_of(*a), y = attn_view_of(*b);
    int64_t index[4] = {0, 0, 0, 0}, low, high;
    if (!a->rank || !b->rank || !view_extent(&x, &low, &high)) return 1;
    const int64_t count = at_once(&x, &y);
    int64_t *const last = index + x.rank - 1;
    do {
        if (*last == 0 && !memcmp(place_of(&x, index), place_of(&y, index), (size_t)count * type_bytes(x.type))) {
            *last = count - 1;
            continue;
        }
        uint32_t p = bits_at(&x, index), q = bits_at(&y, index);
        if (p != q)
            return CHECKF(0, "%s: [%ld,%ld,%ld,%ld] has the bits %08x, the other %08x", what, (long)index[0],
                          (long)index[1], (long)index[2], (long)index[3], (unsigned)p, (unsigned)q);
    } while (next_index(&x, index));
    return CHECKF(1, "%s", what);
}

int check_same_results(const attn_desc *a, const attn_desc *b, const char *what) {
    attn_desc x = *a, y = *b;
    int same = 1;
    for (int n = 0; n < RESULT_COUNT; n++) same &= check_same(result_of(&x, n), result_of(&y, n), what);
    return same;
}

attn_desc forward_of(const attn_desc *d) {
    attn_desc forward = *d;
    if (!d->weights.rank) forward.weights_after_dropout = 0;
    return forward;
}

int run_desc(const attn_desc *d, const char *what) {
    attn_error err;
    char text[200];
    attn_desc forward = forward_of(d);
    attn_status status = attn_forward(&forward, &err);
    if (status == ATTN_OK) return CHECKF(1, "%s", what);
    attn_error_string(&err, text, sizeof text);
    CHECKF(0, "%s: refused: %s: %s", what, attn_status_string(status), text);
    ref_print(d);
    return 0;
}

/* ---- batch entries of arrays that several share */
int in_some_entry(const attn_desc *d, const ref_result *r, int keys, int64_t at) {
    int found = 0;
    for (int64_t b = 0; b < r->b; b++) found |= keys ? ref_has_key(d, r, b, at) : ref_has_row(d, r, b, at);
    return found;
}

int others_untouched(const attn_desc *d, const attn_out *o) {
    attn_view v = attn_view_of(*o);
    ref_result r;
    int64_t index[4] = {0, 0, 0, 0}, low, high;
    ref_sizes(d, &r);
    if (!o->rank || !r.packed_rows || !view_extent(&v, &low, &high)) return 1;
    do {
        uint64_t bits = UINT64_MAX;
        memcpy(&bits, (char *)o->data + offset_of(&v, index) * (int64_t)type_bytes(v.type), type_bytes(v.type));
        if (bits != UINT64_MAX && !in_some_entry(d, &r, 0, index[2])) return 0;
    } while (next_index(&v, index));
    return 1;
}

attn_view cut_broadcast(attn_view v, int axis, int64_t first, int64_t count) {
    int mine = axis - 4 + v.rank;
    return v.rank && mine >= 0 && v.size[mine] != 1 ? attn_view_slice(v, mine, first, count) : v;
}

attn_view cut_entry(attn_view v, int64_t b, int64_t first, int64_t count) {
    if (!v.rank) return v;
    return attn_view_slice(attn_view_slice(v, 0, v.size[0] == 1 ? 0 : b, 1), 2, first, count);
}

attn_out cut_out_entry(attn_out o, int64_t b, int64_t first, int64_t count) {
    if (!o.rank) return o;
    return attn_out_slice(attn_out_slice(o, 0, o.size[0] == 1 ? 0 : b, 1), 2, first, count);
}

attn_view gather_keys(const attn_desc *d, const attn_view *pool, int64_t b, int64_t first, int64_t count) {
    attn_view keys = make_view(pool->type, LAYOUT_PACKED, 4, 1, pool->size[1], count, pool->size[3]);
    int64_t index[4] = {0, 0, 0, 0}, low, high, bytes = (int64_t)type_bytes(pool->type);
    if (!view_extent(&keys, &low, &high)) return keys;
    do {
        int64_t from[4] = {0, index[1], 0, index[3]};
        from[0] = ref_key_place(d, pool, b, first + index[2], &from[2]);
        memcpy((char *)(uintptr_t)keys.data + offset_of(&keys, index) * bytes,
               (const char *)pool->data + offset_of(pool, from) * bytes, (size_t)bytes);
    } while (next_index(&keys, index));
    return keys;
}

attn_desc entry_alone(const attn_desc *d, int64_t b) {
    ref_result r;
    attn_desc one = *d;
    ref_sizes(d, &r);
    ref_entry e = ref_entry_of(d, &r, b);
    attn_view *keys[] = {&one.k, &one.v, &one.k_scale, &one.v_scale}, *added[] = {ref_bias_of_pairs(&one), &one.mask},
              *ints[] = {&one.key_lengths, &one.query_lengths, &one.positions};
    if (!r.has_entries) e.q = r.sq; /* lengths stay what they are */
    for (int n = 0; n < 4; n++) {
        if (keys[n]->rank && d->page_table.rank) *keys[n] = gather_keys(d, keys[n], b, e.k0, e.k);
        else *keys[n] = cut_entry(*keys[n], b, e.k0, e.k);
    }
    for (int n = 0; n < 2; n++) {
        *added[n] = cut_broadcast(cut_broadcast(*added[n], 0, b, 1), 2, e.q0, e.q);
        *added[n] = cut_broadcast(*added[n], 3, r.packed_rows || r.packed_keys ? 0 : e.k0, e.k);
    }
    one.q = cut_entry(d->q, b, e.q0, e.q);
    if (d->given_scores.rank)
        one.given_scores = attn_view_slice(cut_entry(d->given_scores, b, e.q0, e.q), 3, e.k0, e.k);
    for (int n = 0; n < RESULT_COUNT; n++) {
        attn_out *o = result_of(&one, n);
        *o = cut_out_entry(*o, b, e.q0, e.q);
        if (o->rank && n >= 2 && n <= 5) *o = attn_out_slice(*o, 3, e.k0, e.k);
    }
    for (int n = 0; n < 3; n++) {
        attn_view *v = ints[n];
        if (r.has_entries && (n == 1 || (n == 0 && v->rank == 1))) memset(v, 0, sizeof *v);
        if (v->rank) *v = attn_view_slice(*v, 0, v->size[0] == 1 ? 0 : b, 1);
        if (v->rank == 2) *v = attn_view_slice(*v, 1, e.q0, e.q);
    }
    memset(&one.query_starts, 0, (size_t)((char *)(&one.page_table + 1) - (char *)&one.query_starts));
    one.dropout_origin[0] += b;
    return one;
}

double check_on(attn_desc *d, const ref_result *r, attn_isa isa, const char *what) {
    d->isa = (int32_t)isa;
    poison_results(d);
    if (!run_desc(d, what)) return INFINITY;
    for (int n = 0; n < RESULT_COUNT; n++)
        CHECKF(gaps_untouched(result_of(d, n)) && others_untouched(d, result_of(d, n)),
               "%s: wrote between the elements of result %d, or to rows of no entry", what, n);
    return ref_check(d, r, what);
}

attn_out copy_out(const attn_out *o) {
    attn_out copy = *o;
    attn_view v = attn_view_of(*o);
    if (!o->rank) return copy;
    v = copy_view(&v, LAYOUT_PACKED);
    memcpy(&copy, &v, sizeof copy);
    return copy;
}

attn_desc copy_results(const attn_desc *d) {
    attn_desc copy = *d;
    for (int n = 0; n < RESULT_COUNT; n++) *result_of(&copy, n) = copy_out(result_of(&copy, n));
    return copy;
}

double check_everywhere(attn_desc *d, const char *what) {
    ref_result r;
    attn_desc first = *d;
    double ratio = 0;
    ref_forward(d, &r);
    for (int n = 0; n < test_isa_count(); n++) {
        ratio = fmax(ratio, check_on(d, &r, test_isa(n), what));
        if (n == 0) first = copy_results(d);
        else if (!check_same_results(&first, d, what)) ref_print(d);
    }
    ref_free(&r);
    return ratio;
}

/* ---- the same work in other ways */
int64_t *random_order(int64_t count) {
    int64_t *order = (int64_t *)malloc((size_t)(count + 1) * sizeof *order);
    if (!order) abort();
    for (int64_t i = 0; i < count; i++) order[i] = i;
    shuffle(order, count);
    return order;
}

void run_shuffled(void *user, int64_t count, attn_task_fn task, void *arg) {
    int32_t workers = *(int32_t *)user;
    int64_t *order = random_order(count);
    for (int64_t i = 0; i < count; i++) task(arg, order[i], (int32_t)test_int(0, workers - 1));
    free(order);
}

void run_plan(const attn_plan *plan, int32_t workers) {
    void *workspace = test_guarded(plan->workspace_bytes);
    for (int32_t phase = 0; phase < plan->phases; phase++) {
        int64_t *order = random_order(plan->tasks[phase]);
        for (int64_t i = 0; i < plan->tasks[phase]; i++)
            attn_task(plan, workspace, phase, order[i], (int32_t)test_int(0, workers - 1));
        free(order);
    }
}

int run_planned(const attn_desc *d, int32_t workers) {
    attn_plan plan;
    attn_desc planned = forward_of(d);
    planned.parallel.workers = workers;
    if (!CHECK_STATUS(attn_plan_forward(&planned, &plan, NULL), ATTN_OK)) return 0;
    run_plan(&plan, workers);
    return 1;
}

attn_view slice_head(attn_view v, int rank_shared, int64_t h) {
    return v.rank > rank_shared && v.size[0] != 1 ? attn_view_slice(v, 0, h, 1) : v;
}

attn_view one_int(int64_t x) {
    attn_view v = make_view(ATTN_I64, LAYOUT_PACKED, 1, 1, 0, 0, 0);
    memcpy((void *)(uintptr_t)v.data, &x, sizeof x);
    return v;
}

attn_desc row_alone(const attn_desc *d, int64_t b, int64_t h, int64_t i) {
    ref_result r;
    attn_desc one = *d;
    ref_sizes(d, &r);
    if (r.has_entries) {
        one = entry_alone(d, b);
        return row_alone(&one, 0, h, i - r.entries[b].q0);
    }
    int64_t hkv = h / (r.h / r.hkv);
    int given = d->score == ATTN_SCORE_GIVEN;
    if (given) one.given_scores = slice_row(d->given_scores, b, h, i);
    else {
        one.q = slice_row(d->q, b, h, i);
        one.k = attn_view_slice(attn_view_slice(d->k, 0, b, 1), 1, hkv, 1);
    }
    attn_view *values[3] = {&one.v, &one.k_scale, &one.v_scale};
    for (int n = 0; n < 3; n++)
        if (values[n]->rank) *values[n] = attn_view_slice(attn_view_slice(*values[n], 0, b, 1), 1, hkv, 1);
    for (int n = 0; n < RESULT_COUNT; n++) *result_of(&one, n) = slice_out_row(*result_of(&one, n), b, h, i);
    *ref_bias_of_pairs(&one) = slice_row(*ref_bias_of_pairs(&one), b, h, i);
    if (d->bias_index.rank) one.bias = slice_head(d->bias, 1, h);
    one.mask = slice_row(d->mask, b, h, i);
    one.alibi = slice_head(d->alibi, 0, h);
    one.sink = slice_head(d->sink, 0, h);
    one.sigma_per_head = slice_head(d->sigma_per_head, 0, h);
    one.bilinear = slice_head(d->bilinear, 2, h);
    one.w_q = slice_head(d->w_q, 2, h);
    one.w_k = slice_head(d->w_k, 2, h);
    one.w_v = slice_head(d->w_v, 1, h);
    one.hidden_bias = slice_head(d->hidden_bias, 1, h);
    one.key_lengths = one_int(ref_key_length(d, &r, b, i));
    one.query_lengths = one_int(i < ref_query_length(d, &r, b));
    one.align = ATTN_ALIGN_POSITIONS;
    one.positions = one_int(ref_position(d, &r, b, i));
    one.dropout_origin[0] += b;
    one.dropout_origin[1] += h;
    one.dropout_origin[2] += i;
    return one;
}

void check_row_alone(const attn_desc *d, int64_t b, int64_t h, int64_t i) {
    ref_result r;
    ref_sizes(d, &r);
    if (r.has_entries && (i < r.entries[b].q0 || i >= r.entries[b].q0 + r.entries[b].q)) return; /* of no entry */
    attn_desc row = row_alone(d, b, h, i), alone = copy_results(&row);
    poison_results(&alone);
    run_desc(&alone, "one row alone");
    if (!check_same_results(&row, &alone, "a row in the batch and alone")) {
        printf("        row %ld,%ld,%ld of\n", (long)b, (long)h, (long)i);
        ref_print(d);
    }
}

void check_entries_alone(const attn_desc *d) {
    ref_result r;
    ref_sizes(d, &r);
    for (int64_t b = 0; r.has_entries && b < r.b; b++) {
        attn_desc entry = entry_alone(d, b), alone = copy_results(&entry);
        poison_results(&alone);
        run_desc(&alone, "an entry alone");
        if (check_same_results(&entry, &alone, "an entry among others and alone")) continue;
        printf("        entry %ld of\n", (long)b);
        ref_print(d);
    }
}

attn_view retyped(attn_view *v, int32_t type, layout how) {
    int64_t index[4] = {0, 0, 0, 0}, low, high;
    if (!v->rank) return *v;
    *v = copy_view(v, LAYOUT_PACKED);
    attn_view other = make_view(type, how, v->rank, v->size[0], v->size[1], v->size[2], v->size[3]);
    if (!view_extent(v, &low, &high)) return other;
    do {
        int64_t at = offset_of(v, index), to = offset_of(&other, index);
        float x = ((const float *)v->data)[at];
        if (type == ATTN_F32) {
            ((float *)(uintptr_t)other.data)[to] = x;
            continue;
        }
        put(&other, to, x);
        ((float *)(uintptr_t)v->data)[at] = (float)ref_of_half(type, ((const uint16_t *)other.data)[to]);
    } while (next_index(v, index));
    return other;
}

attn_view coded(attn_view *v, attn_view *scale, layout how) {
    int64_t n = v->size[3], groups = test_int(0, 1) ? 1 : (n + 31) / 32, step = groups == 1 ? n : 32;
    int32_t type = test_int(0, 1) ? ATTN_F32 : ATTN_F16;
    *v = copy_view(v, LAYOUT_PACKED);
    attn_view codes = make_view(ATTN_I8, how, 4, v->size[0], v->size[1], v->size[2], n);
    *scale =
        make_view(type, test_int(0, 1) ? LAYOUT_PACKED : LAYOUT_MIXED, 4, v->size[0], v->size[1], v->size[2], groups);
    for (int64_t row = 0; row < v->size[0] * v->size[1] * v->size[2]; row++) {
        int64_t b = row / v->size[2] / v->size[1], h = row / v->size[2] % v->size[1], j = row % v->size[2];
        for (int64_t g = 0; g < groups; g++) {
            float *x = (float *)(uintptr_t)v->data + row * n + g * step, most = 0, unit;
            int64_t count = n - g * step < step ? n - g * step : step;
            for (int64_t c = 0; c < count; c++) most = isnan(x[c]) ? NAN : fmaxf(most, fabsf(x[c]));
            for (int64_t c = 0; c < count; c++) most = isnan(x[c]) ? NAN : most;
            put_at(scale, b, h, j, g, most / 100);
            unit = (float)ref_at(scale, b, h, j, g);
            for (int64_t c = 0; c < count; c++) {
                double code = unit > 0 ? fmin(fmax(nearbyint(x[c] / unit), -128), 127) : test_int(-128, 127);
                put_at(&codes, b, h, j, g * step + c, code);
                x[c] = (float)code * unit;
            }
        }
    }
    return codes;
}

int check_rounded_once(const attn_out *typed, const attn_out *plain, const char *what) {
    attn_view x = attn_view_of(*typed), y = attn_view_of(*plain);
    int64_t index[4] = {0, 0, 0, 0}, low, high;
    CHECKF(gaps_untouched(typed), "%s: wrote between the elements", what);
    if (!typed->rank || !view_extent(&x, &low, &high)) return 1;
    do {
        uint32_t got = bits_at(&x, index), want = bits_at(&y, index);
        if (want == UINT32_MAX) want >>= 32 - 8 * type_bytes(x.type); /* packed, of no entry: not written */
        else if (x.type != ATTN_F32) want = ref_half(x.type, ((const float *)y.data)[offset_of(&y, index)]);
        if (got != want)
            return CHECKF(0, "%s: [%ld,%ld,%ld,%ld] of type %d has the bits %x, want %x", what, (long)index[0],
                          (long)index[1], (long)index[2], (long)index[3], (int)x.type, (unsigned)got, (unsigned)want);
    } while (next_index(&x, index));
    return CHECKF(1, "%s", what);
}

int check_rounded_results(const attn_desc *typed, const attn_desc *plain, const char *what) {
    attn_desc x = *typed, y = *plain;
    char text[80];
    int same = 1;
    for (int n = 0; n < RESULT_COUNT; n++) {
        snprintf(text, sizeof text, "%s, result %d", what, n);
        same &= check_rounded_once(result_of(&x, n), result_of(&y, n), text);
    }
    if (!same) ref_print(plain);
    return same;
}
