/* sums.c - attn_key_sums against the sums of the reference's weights: random descriptors, keys of every type, pages;
   the same bits on every instruction set, with and without stats, from tasks in any order, of an entry alone. */
#include "descriptors.h"
#include "sums.h"

/* Packed keys of no entry hold what they held. */
static void check_others(const sums_case *s, const ref_result *r) {
    attn_view got = attn_view_of(s->sums);
    int64_t index[4] = {0, 0, 0, 0}, low, high;
    size_t bytes = type_bytes(got.type);
    CHECK(gaps_untouched(&s->sums));
    if (!r->packed_keys || !view_extent(&got, &low, &high)) return;
    do
        if (!in_some_entry(&s->d, r, 1, index[2])) CHECK(bits_at(&got, index) == UINT32_MAX >> (32 - 8 * bytes));
    while (next_index(&got, index));
}

static int run_sums(sums_case *s, const char *what) {
    attn_error err;
    char text[200];
    poison(&s->sums);
    attn_status status = attn_key_sums(&s->d, s->last, s->sums, &err);
    attn_error_string(&err, text, sizeof text);
    if (CHECKF(status == ATTN_OK, "%s: refused: %s: %s", what, attn_status_string(status), text)) return 1;
    ref_print(&s->d);
    return 0;
}

static attn_grad as_gradient(const sums_case *s) {
    attn_grad g;
    memset(&g, 0, sizeof g);
    g.key_sums = s->sums;
    g.last_queries = s->last;
    return g;
}

/* The same bits in another way, into memory of its own; one: what is there already. */
static void check_same_sums(const sums_case *one, sums_case *other, const char *what) {
    other->sums = copy_out(&one->sums);
    if (run_sums(other, what) && !check_same(&one->sums, &other->sums, what)) ref_print(&one->d);
}

static void check_as_tasks(const sums_case *s, int32_t workers) {
    sums_case other = *s;
    attn_grad g;
    attn_plan plan;
    size_t bytes = 0;
    other.sums = copy_out(&s->sums);
    other.d.parallel.workers = workers;
    poison(&other.sums);
    g = as_gradient(&other);
    if (!CHECK_STATUS(attn_plan_backward(&other.d, &g, &plan, 0), ATTN_OK)) return;
    CHECK_STATUS(attn_key_sums_workspace_size(&other.d, other.last, other.sums, &bytes, 0), ATTN_OK);
    CHECK(bytes == plan.workspace_bytes);
    run_plan(&plan, workers);
    if (!check_same(&s->sums, &other.sums, "tasks in a random order")) ref_print(&s->d);
}

static void check_entry(const sums_case *s, const ref_result *r, int64_t b) {
    sums_case one = *s;
    ref_entry e = ref_entry_of(&s->d, r, b);
    int packed = s->sums.size[0] == 1;
    attn_out mine = attn_out_slice(attn_out_slice(s->sums, 0, packed ? 0 : b, 1), 2, e.k0, e.k);
    if (s->d.empty == ATTN_EMPTY_UNIFORM) return; /* outside the promise */
    one.d = entry_alone(&s->d, b);
    one.sums = copy_out(&mine);
    if (run_sums(&one, "an entry alone") && !check_same(&mine, &one.sums, "an entry alone")) ref_print(&s->d);
}

/* With the stats of a forward call: those of another way to the same bits. */
static void check_with_stats(const sums_case *s) {
    sums_case other = *s;
    ask_for(&other.d, RESULT_STATS, LAYOUT_MIXED);
    attn_desc forward = other.d;
    forward.weights_after_dropout = 0;
    if (CHECK_STATUS(attn_forward(&forward, 0), ATTN_OK)) check_same_sums(s, &other, "with stats");
}

static void check_case(sums_case *s, int32_t workers) {
    ref_result r;
    sums_case first;
    attn_desc plain = s->d;
    if (s->plain_k.rank) plain.k = s->plain_k, memset(&plain.k_scale, 0, sizeof plain.k_scale);
    ref_forward(&plain, &r);
    for (int n = 0; n < test_isa_count(); n++) {
        s->d.isa = (int32_t)test_isa(n);
        if (!run_sums(s, "by key")) break;
        if (n == 0) check_reference(s, &r, "by key");
        check_others(s, &r);
        first = *s;
        if (n == 0) first.sums = copy_out(&s->sums);
        else if (!check_same(&first.sums, &s->sums, "another instruction set")) ref_print(&s->d);
    }
    check_as_tasks(s, workers);
    check_with_stats(s);
    if (r.b > 0) check_entry(s, &r, test_int(0, (int)r.b - 1));
    ref_free(&r);
}

/* Keys of 16 or 8 bits; the descriptor of the reference has floats of the same values. */
static void change_type(sums_case *s) {
    static const int32_t types[] = {ATTN_F32, ATTN_F16, ATTN_BF16, ATTN_I8};
    int32_t type = types[test_int(0, 3)];
    attn_desc *d = &s->d;
    memset(&s->plain_k, 0, sizeof s->plain_k);
    if (!d->k.rank || type == ATTN_F32 || (type == ATTN_I8 && ref_is_kernel(d->score))) return; /* near an edge */
    s->plain_k = d->k;
    d->k = type == ATTN_I8 ? coded(&s->plain_k, &d->k_scale, LAYOUT_MIXED) : retyped(&s->plain_k, type, LAYOUT_MIXED);
}

static void build_sums(sums_case *s, int f[FACTOR_COUNT]) {
    ref_result r;
    shape size = draw_shape(f);
    if (test_int(0, 5) == 0) size.sq = test_int(100, 300);
    for_gradients = f[F_SEQUENCES] != 5; /* pages are welcome; packed keys lie in order */
    build_shaped(&s->d, f, size);
    for_gradients = 0;
    ask_for(&s->d, 0, LAYOUT_PACKED);
    if (s->d.k.rank) memset(&s->d.v, 0, sizeof s->d.v);
    change_type(s);
    ref_sizes(&s->d, &r);
    s->last = test_int(0, 1) ? 0 : test_int(1, (int)r.sq + 2);
    s->sums = make_out_of(test_int(0, 3) ? ATTN_F32 : ATTN_BF16, test_int(0, 1) ? LAYOUT_PACKED : LAYOUT_MIXED, 3,
                          r.packed_keys ? 1 : r.b, r.h, r.sk, 0);
}

static void pairs(void) {
    static const int32_t workers[] = {1, 2, 3, 8};
    memset(covered, 0, sizeof covered);
    for (int n = 0; n < 900; n++) {
        int f[FACTOR_COUNT];
        sums_case s;
        draw_factors(f);
        build_sums(&s, f);
        check_case(&s, workers[f[F_WORKERS]]);
        test_release();
    }
    int missing = missing_pairs();
    CHECKF(missing == 0, "%d pairs of options were not tried", missing);
}

/* A NaN in a query that does not count reaches no sum; among those that count it reaches all of its keys. */
static void queries_that_count(void) {
    float q[10] = {0}, k[6] = {1, 2, 3, 4, 5, 6}, sums[3];
    attn_desc d;
    memset(&d, 0, sizeof d);
    q[2 * 2 + 1] = NAN;
    d.q = attn_view_f32(q, 4, 1, 1, 5, 2);
    d.k = attn_view_f32(k, 4, 1, 1, 3, 2);
    CHECK_STATUS(attn_key_sums(&d, 2, attn_out_f32(sums, 3, 1, 1, 3, 0), 0), ATTN_OK);
    for (int j = 0; j < 3; j++) CHECK_CLOSE(sums[j], 2 / 3.0, 1e-6);
    CHECK_STATUS(attn_key_sums(&d, 3, attn_out_f32(sums, 3, 1, 1, 3, 0), 0), ATTN_OK);
    for (int j = 0; j < 3; j++) CHECK(isnan(sums[j]));
}

/* Keys in parts, with the stats of all of them: the bits of one call. */
static void parts(void) {
    const int64_t keys = 2 * ATTN_PART_KEYS + 77;
    attn_desc d = make_desc(2, 4, 2, 150, keys, 24, 8), part;
    attn_out whole = make_out(LAYOUT_PACKED, 3, 2, 4, keys, 0), pieces = make_out(LAYOUT_PACKED, 3, 2, 4, keys, 0);
    d.causal = 1;
    d.align = ATTN_ALIGN_BOTTOM_RIGHT;
    ask_for(&d, RESULT_STATS, LAYOUT_PACKED);
    if (!run_desc(&d, "the stats of all keys") || !CHECK_STATUS(attn_key_sums(&d, 40, whole, 0), ATTN_OK)) return;
    d.align = ATTN_ALIGN_POSITIONS;
    d.positions = make_ints(ATTN_I32, 1, 2, 0, 0, 0, (int)keys - 150, (int)keys - 150);
    for (int64_t first = 0, n; first < keys; first += n) {
        n = keys - first < ATTN_PART_KEYS ? keys - first : ATTN_PART_KEYS;
        part = d;
        part.k = attn_view_slice(d.k, 2, first, n);
        part.v = attn_view_slice(d.v, 2, first, n);
        part.key_origin = first;
        CHECK_STATUS(attn_key_sums(&part, 40, attn_out_slice(pieces, 2, first, n), 0), ATTN_OK);
    }
    check_same(&whole, &pieces, "keys in parts");
}

const test_case suite_sums[] = {
    {"sums.pairs", pairs},
    {"sums.queries_that_count", queries_that_count},
    {"sums.parts", parts},
    {0, 0},
};
