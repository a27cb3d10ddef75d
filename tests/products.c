/* products.c - attn_bmm with ATTN_PRECISION_FAST: products of bf16 bit by bit, from the definition of the instructions;
   which products these are; and the bits of floats for all others. (--amx: those of AMX) */
#include "pairs.h"

/* ---- factors: numbers of bf16 where rows, columns, addresses and steps may be anything */
enum { PACKED, ROWS_APART, ROWS_FAR_APART, NUMBERS_APART, ANYHOW, PLACES };

/* [entries,rows,columns], or so seen and stored as [entries,columns,rows]. Its memory is its extent; it begins or ends
   at a page that cannot be read. */
static attn_view halves(int place, int64_t entries, int64_t rows, int64_t columns, int turned) {
    attn_view v = {0, {entries, turned ? columns : rows, turned ? rows : columns, 0}, {0, 0, 0, 0}, ATTN_BF16, 3};
    int64_t low, high;
    set_strides(&v, place == ANYHOW ? (layout)test_int(0, LAYOUT_COUNT - 1) : LAYOUT_PACKED);
    if (place == ROWS_APART || place == ROWS_FAR_APART)
        v.stride[1] += place == ROWS_APART ? 1 : test_int(2, 5), v.stride[0] = v.size[1] * v.stride[1];
    if (place == NUMBERS_APART)
        v.stride[2] = 2, v.stride[1] = 2 * v.size[2], v.stride[0] = v.size[1] * v.stride[1] + test_int(0, 1);
    view_extent(&v, &low, &high);
    const size_t bytes = 2 * (size_t)(high - low + 1), before = test_int(0, 1) ? 0 : 2; /* 4 n, or 4 n + 2 */
    char *from = (char *)(test_int(0, 1) ? test_guarded(bytes + before) : test_guarded_low(bytes + before));
    v.data = from + before - 2 * low;
    return turned ? attn_view_swap(v, 1, 2) : v;
}

/* One of some kinds of numbers: plain ones; or so small ones that products or they themselves are below 2^-126; or some
   that are no numbers. */
enum { PLAIN, SMALL_PRODUCTS, SUBNORMAL, INFINITE, KINDS };
static void put_numbers(const attn_view *v, int kind, int second) {
    const int exponent = kind == SMALL_PRODUCTS ? 64 : kind == SUBNORMAL && second ? 0 : 126; /* 0 or 1, 126 or 127 */
    int64_t index[4] = {0, 0, 0, 0};
    do {
        const uint64_t bits = test_bits() >> 40;
        const uint16_t half =
            (uint16_t)((bits & 0x80ff) + (unsigned)exponent * 128); /* sign, last of exponent, digits */
        memcpy((char *)(uintptr_t)v->data + 2 * offset_of(v, index), &half, sizeof half);
    } while (next_index(v, index));
    if (kind != INFINITE || test_int(0, 1)) return;
    static const double bad[] = {NAN, INFINITY, -INFINITY, 3e38, -3e38};
    for (int n = test_int(1, 3); n > 0; n--)
        put_at(v, 0, test_int(0, (int)v->size[0] - 1), test_int(0, (int)v->size[1] - 1),
               test_int(0, (int)v->size[2] - 1), bad[test_int(0, 4)]);
}

/* ---- the model */
enum { OF_FLOATS, BY_CHAINS, BY_AMX, BY_LANES };

/* Rows of entries that share b are those of one matrix where they lie so. */
static int64_t joined_rows(const attn_view *a, const attn_view *b, const attn_view *out) {
    int64_t rows = out->size[1], entries = out->size[0];
    int64_t row_a = rows == 1 ? a->stride[0] : a->stride[1], row_out = rows == 1 ? out->stride[0] : out->stride[1];
    if (entries == 1 || !(b->size[0] == 1 || b->stride[0] == 0) || row_a < 0 || row_out < 0) return rows;
    if (a->size[0] == 1 || a->stride[0] != rows * row_a || out->stride[0] != rows * row_out) return rows;
    return rows * entries;
}
static int form_of(const attn_view *a, const attn_view *b, const attn_view *out, int32_t isa) {
    const int pairs = pairs_on(isa);
    const int64_t rows = joined_rows(a, b, out), depth = a->size[2], columns = b->size[2];
    const int64_t apart = columns == 1 ? 1 : b->stride[2]; /* columns of b */
    if (!pairs || a->type != ATTN_BF16 || b->type != ATTN_BF16 || depth < (rows <= 8 ? 128 : 32) ||
        (rows <= 8 && b->stride[1] != 1))
        return OF_FLOATS;
    if (rows <= 8 && columns >= 64 && b->stride[1] == 1 && apart > 1) return BY_LANES;
    return pairs == PAIRS_BY_AMX ? BY_AMX : BY_CHAINS;
}

/* Of a row of a and a column of b, with zeros behind them up to a multiple of 64. */
static float by_chains(const float *a, const float *b, int64_t depth) {
    float total = 0;
    for (int64_t k = 0; k < depth; k += 64) {
        float sum = 0;
        for (int64_t x = k; x < k + 64 && x < depth; x += 2) sum = pair_sum(sum, a + x, b + x);
        total = k == 0 ? sum : total + sum;
    }
    return total;
}
static float by_amx(const float *a, const float *b, int64_t depth) {
    float sum = 0;
    for (int64_t k = 0; k < depth; k += 32) sum = amx_sum(sum, a + k, b + k);
    return sum;
}
static float by_lanes(const float *a, const float *b, int64_t depth) {
    float lane[16] = {0}, four[4];
    for (int64_t k = 0; k < depth; k += 32)
        for (int i = 0; i < 16; i++) lane[i] = pair_sum(lane[i], a + k + 2 * i, b + k + 2 * i);
    for (int i = 0; i < 4; i++) four[i] = (lane[4 * i] + lane[4 * i + 2]) + (lane[4 * i + 1] + lane[4 * i + 3]);
    return (four[0] + four[2]) + (four[1] + four[3]);
}
static float *numbers_of(const attn_view *v, int64_t entry, int64_t lines, int64_t depth, int of_columns) {
    const int64_t up = (depth + 63) / 64 * 64;
    float *x = (float *)calloc((size_t)(lines * up + 1), sizeof *x);
    if (!x) abort();
    for (int64_t n = 0; n < lines; n++)
        for (int64_t k = 0; k < depth; k++)
            x[n * up + k] = (float)ref_at(v, 0, entry, of_columns ? k : n, of_columns ? n : k);
    return x;
}

/* All elements, or those of the first and last rows and columns and some of the others. */
static int64_t modelled[4]; /* elements, by form */
static void check_bits(const attn_view *a, const attn_view *b, const attn_view *out, int form, const char *what) {
    static float (*const models[])(const float *, const float *, int64_t) = {0, by_chains, by_amx, by_lanes};
    const int64_t rows = out->size[1], columns = out->size[2], depth = a->size[2], up = (depth + 63) / 64 * 64;
    const int64_t every = rows * columns / 100 + 1;
    int64_t bad = 0, entry = test_int(0, (int)out->size[0] - 1);
    float *x = numbers_of(a, a->size[0] == 1 ? 0 : entry, rows, depth, 0);
    float *y = numbers_of(b, b->size[0] == 1 ? 0 : entry, columns, depth, 1);
    for (int64_t n = test_int(0, (int)every - 1); n < rows * columns; n += every) {
        const int64_t at[4] = {entry, n / columns, n % columns, 0};
        const float want = models[form](x + at[1] * up, y + at[2] * up, depth);
        uint32_t bits;
        memcpy(&bits, &want, sizeof bits);
        if (isnan(want)) bits = 0x7fc00000u;
        modelled[form]++;
        if (bits_at(out, at) != bits && bad++ == 0)
            CHECKF(0, "%s, form %d: [%d,%d,%d] has the bits %08x, not those of %a", what, form, (int)at[0], (int)at[1],
                   (int)at[2], (unsigned)bits_at(out, at), (double)want);
    }
    CHECKF(bad == 0, "%s: %d elements differ", what, (int)bad);
    free(x);
    free(y);
}

/* ---- a product in all ways to compute it */
static attn_desc options_on(int32_t isa, int32_t precision, int32_t *workers) {
    attn_desc o;
    memset(&o, 0, sizeof o);
    o.isa = isa;
    o.precision = precision;
    o.parallel.workers = *workers;
    o.parallel.user = workers;
    o.parallel.run = *workers ? run_shuffled : 0;
    return o;
}
/* In memory of exactly the size asked for, at any address. */
static int multiply(attn_view a, attn_view b, attn_out out, attn_desc o, const char *what) {
    attn_error err;
    size_t bytes = 0;
    attn_status st = attn_bmm_workspace_size(a, b, out, &o, &bytes, &err);
    o.workspace = test_int(0, 1) ? test_guarded(bytes + 1) : test_guarded_low(bytes + 1);
    o.workspace_bytes = bytes;
    poison(&out);
    if (st == ATTN_OK) st = attn_bmm(a, b, out, &o, &err);
    if (!CHECKF(st == ATTN_OK, "%s: refused: %s %s", what, err.field, err.rule)) return 0;
    return CHECKF(gaps_untouched(&out), "%s: wrote between the elements", what);
}
static void check_here(attn_view a, attn_view b, attn_out out, int32_t isa, const char *what) {
    static const int32_t types[] = {ATTN_F16, ATTN_BF16};
    int32_t none = 0, workers = test_int(1, 9);
    const attn_view got = attn_view_of(out);
    const int form = form_of(&a, &b, &got, isa);
    if (!multiply(a, b, out, options_on(isa, ATTN_PRECISION_FAST, &none), what)) return;
    attn_out first = copy_out(&out);
    if (form) check_bits(&a, &b, &got, form, what);
    if ((!form || out.size[1] * out.size[2] <= 4000 || test_int(0, 1)) &&
        multiply(a, b, out, options_on(isa, ATTN_PRECISION_FAST, &workers), what))
        check_same(&first, &out, "tasks in a random order");
    if (!form && multiply(a, b, out, options_on(isa, ATTN_PRECISION_F32, &none), what))
        check_same(&first, &out, "with floats");
    if (out.size[1] * out.size[2] > 4000 && test_int(0, 3)) return; /* takes long */
    attn_out typed = make_out_of(types[test_int(0, 1)], test_int(0, 1) ? LAYOUT_GAPS : LAYOUT_PACKED, 3, out.size[0],
                                 out.size[1], out.size[2], 0);
    const attn_view to = attn_view_of(typed);
    if (form_of(&a, &b, &to, isa) == form &&
        multiply(a, b, typed, options_on(isa, ATTN_PRECISION_FAST, &workers), what))
        check_rounded_once(&typed, &first, what);
}
/* Large products on the instruction set that may have pairs; others on all. */
static void check_product(attn_view a, attn_view b, attn_out out, int n) {
    const int64_t terms = out.size[0] * out.size[1] * out.size[2] * a.size[2];
    char what[120];
    for (int i = 0; i < test_isa_count(); i++) {
        const int32_t isa = (int32_t)test_isa(i);
        if (isa != ATTN_ISA_AVX512 && (n % 8 || terms > 400000)) continue;
        snprintf(what, sizeof what, "case %d: %d x (%d x %d) (%d x %d) on %s", n, (int)out.size[0], (int)out.size[1],
                 (int)a.size[2], (int)b.size[1], (int)out.size[2], attn_isa_string((attn_isa)isa));
        check_here(a, b, out, isa, what);
    }
}

static int pairs_here(void) { /* on one of the instruction sets of this run */
    for (int n = 0; n < test_isa_count(); n++)
        if (test_isa(n) == ATTN_ISA_AVX512) return pairs_on(ATTN_ISA_AVX512);
    return NO_PAIRS;
}

static const int64_t all_rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 17, 31, 63, 64, 65, 66, 130},
                     all_depths[] = {31, 32, 33, 63, 64, 65, 95, 127, 128, 130, 333, 512, 513, 1100},
                     all_columns[] = {1, 15, 16, 17, 63, 64, 65, 66, 131, 600};
enum { ROWS = 20, DEPTHS = 14, SHORT_DEPTHS = 7, COLUMNS = 10 };

/* Rows times columns, each with each: b by rows, by columns, and in any place. */
static void sizes(void) {
    for (int n = 0; n < ROWS * COLUMNS * 3; n++) {
        const int64_t m = all_rows[n % ROWS], columns = all_columns[n / ROWS % COLUMNS],
                      k = all_depths[test_int(m > 8 || n % 8 == 0 ? 0 : (int)SHORT_DEPTHS, DEPTHS - 1)];
        const int way = n / ROWS / COLUMNS, place = test_int(0, PLACES - 1);
        attn_view a = halves(test_int(0, 2) ? PACKED : test_int(0, PLACES - 1), 1, m, k, test_int(0, 3) == 0);
        attn_view b = halves(way == 2 ? place : PACKED, 1, k, columns, way == 2 ? test_int(0, 1) : way);
        put_numbers(&a, n % KINDS, 0), put_numbers(&b, n % KINDS, 1);
        check_product(a, b, make_out(test_int(0, 1) ? LAYOUT_PACKED : LAYOUT_GAPS, 3, 1, m, columns, 0), n);
        test_release();
    }
    const int pairs = pairs_here();
    if (pairs) CHECK(modelled[pairs == PAIRS_BY_AMX ? BY_AMX : BY_CHAINS] > 10000 && modelled[BY_LANES] > 2000);
    else test_skip("no products of bf16 here: no AVX512-BF16, or AMX that nobody asked for");
    test_release();
}

/* Entries that share b or do not, are joined or are not; of up to 4 axes. */
static void batches(void) {
    for (int n = 0; n < 60; n++) {
        const int64_t entries = test_int(2, 4), m = n % 3 ? test_int(1, 5) : test_int(6, 40),
                      k = all_depths[test_int(0, DEPTHS - 1)], columns = n % 2 ? test_int(64, 140) : test_int(1, 80);
        const int shared_a = test_int(0, 3) == 0, shared_b = test_int(0, 2) > 0, turned = test_int(0, 1);
        attn_view a = halves(test_int(0, PLACES - 1), shared_a ? 1 : entries, m, k, test_int(0, 3) == 0);
        attn_view b = halves(test_int(0, 2), shared_b ? 1 : entries, k, columns, turned);
        put_numbers(&a, n % KINDS, 0), put_numbers(&b, n % KINDS, 1);
        attn_out out = make_out(test_int(0, 2) ? LAYOUT_PACKED : LAYOUT_GAPS, 3, shared_a && shared_b ? 1 : entries, m,
                                columns, 0);
        check_product(a, b, out, n);
        test_release();
    }
}

/* Two of bf16 where FAST was not asked for: as the same numbers in floats. */
static void not_asked_for(void) {
    int32_t none = 0;
    for (int n = 0; n < 4 * test_isa_count(); n++) {
        const int64_t m = n % 2 ? test_int(1, 8) : test_int(9, 70), k = test_int(32, 200), columns = test_int(60, 100);
        const attn_desc exact = options_on((int32_t)test_isa(n / 4), ATTN_PRECISION_F32, &none),
                        fast = options_on((int32_t)test_isa(n / 4), ATTN_PRECISION_FAST, &none);
        attn_view a = make_filled(LAYOUT_PACKED, 1, 2, m, k, 0, 0),
                  b = make_filled(LAYOUT_PACKED, 1, 2, columns, k, 0, 0);
        attn_view x = retyped(&a, ATTN_BF16, LAYOUT_PACKED), y = retyped(&b, ATTN_BF16, LAYOUT_PACKED);
        attn_out out = make_out(LAYOUT_PACKED, 2, m, columns, 0, 0), want = copy_out(&out);
        if (multiply(x, attn_view_swap(y, 0, 1), out, exact, "halves") &&
            multiply(a, attn_view_swap(b, 0, 1), want, fast, "floats"))
            check_same(&out, &want, "not asked for");
        test_release();
    }
}

/* Other types than two of bf16, codes among them, and gradients: the bits of floats. */
static void other_types(void) {
    static const int32_t types[][2] = {{ATTN_BF16, ATTN_F16}, {ATTN_F16, ATTN_BF16}, {ATTN_F32, ATTN_BF16},
                                       {ATTN_BF16, ATTN_F32}, {ATTN_F16, ATTN_F16},  {ATTN_BF16, ATTN_I8}};
    int32_t none = 0;
    for (int n = 0; n < 24; n++) {
        const int32_t isa = (int32_t)test_isa(n / 6 % test_isa_count());
        const int64_t m = n % 2 ? test_int(1, 8) : test_int(9, 70), k = test_int(32, 200), columns = test_int(60, 100);
        attn_view a = make_filled(LAYOUT_PACKED, 1, 4, 1, 1, m, k), scale = a,
                  b = make_filled(LAYOUT_PACKED, 1, 4, 1, 1, columns, k);
        const int codes = types[n % 6][1] == ATTN_I8;
        a = retyped(&a, types[n % 6][0], LAYOUT_PACKED);
        b = codes ? coded(&b, &scale, LAYOUT_PACKED) : retyped(&b, types[n % 6][1], LAYOUT_PACKED);
        attn_out fast = make_out(LAYOUT_PACKED, 4, 1, 1, m, columns), exact = copy_out(&fast);
        attn_desc o = options_on(isa, ATTN_PRECISION_FAST, &none);
        if (codes) o.k_scale = scale;
        if (!multiply(a, attn_view_swap(b, 2, 3), fast, o, "other types")) continue;
        o.precision = ATTN_PRECISION_F32;
        multiply(a, attn_view_swap(b, 2, 3), exact, o, "other types, exact");
        check_same(&fast, &exact, "other types");
        test_release();
    }
    for (int n = 0; n < test_isa_count(); n++) {
        attn_view a = halves(PACKED, 2, 40, 64, 0), b = halves(PACKED, 2, 64, 70, n % 2),
                  d_out = halves(0, 2, 40, 70, 0);
        attn_out da[2], db[2];
        put_numbers(&a, PLAIN, 0), put_numbers(&b, PLAIN, 1), put_numbers(&d_out, PLAIN, 0);
        for (int fast = 0; fast < 2; fast++) {
            attn_desc o = options_on((int32_t)test_isa(n), fast ? ATTN_PRECISION_FAST : ATTN_PRECISION_F32, &none);
            da[fast] = make_out(LAYOUT_PACKED, 3, 2, 40, 64, 0), db[fast] = make_out(LAYOUT_PACKED, 3, 2, 64, 70, 0);
            CHECK_STATUS(attn_bmm_backward(a, b, d_out, da[fast], db[fast], 0, &o, 0), ATTN_OK);
        }
        check_same(&da[0], &da[1], "da"), check_same(&db[0], &db[1], "db");
        test_release();
    }
}

/* The memory asked for never shrinks as a size grows, for factors as they lie. */
enum { ENTRIES, M, K, N, WORKERS, AXES };
static size_t bytes_of(const int64_t *size, int32_t isa, int way, int32_t precision) {
    attn_view a = attn_view_typed(ATTN_BF16, 0, 3, size[ENTRIES], size[M], size[K], 0);
    attn_view b = way & 1 ? attn_view_swap(attn_view_typed(ATTN_BF16, 0, 3, size[ENTRIES], size[N], size[K], 0), 1, 2)
                          : attn_view_typed(ATTN_BF16, 0, 3, size[ENTRIES], size[K], size[N], 0);
    int32_t workers = (int32_t)size[WORKERS];
    attn_desc o = options_on(isa, precision, &workers);
    size_t bytes = 0;
    if (way & 2) a.stride[1]++, a.stride[0] = size[M] * a.stride[1];
    if (way & 4) b.size[0] = 1;
    CHECK_STATUS(attn_bmm_workspace_size(a, b, attn_out_f32(0, 3, size[ENTRIES], size[M], size[N], 0), &o, &bytes, 0),
                 ATTN_OK);
    return bytes;
}
static void monotone(void) {
    for (int n = 0; n < test_isa_count(); n++)
        for (int axis = 0; axis < AXES; axis++)
            for (int way = 0; way < 16; way++) {
                int64_t size[AXES] = {test_int(1, 3), test_int(1, 12), test_int(1, 80), test_int(1, 80),
                                      test_int(1, 4)};
                size_t before = 0;
                if (way & 8) size[M] = test_int(1, 300), size[K] = test_int(1, 1300), size[N] = test_int(1, 700);
                for (size[axis] = 1; size[axis] < 1400; size[axis] += 1 + size[axis] / 15) {
                    const size_t bytes = bytes_of(size, (int32_t)test_isa(n), way, ATTN_PRECISION_FAST);
                    if (!CHECKF(bytes >= before, "axis %d, way %d: %lu bytes at %ld, %lu before", axis, way,
                                (unsigned long)bytes, (long)size[axis], (unsigned long)before))
                        break;
                    before = bytes;
                }
            }
}

/* AMX runs where it was asked for, and each task gives the tiles back. */
static void tiles(void) {
    if (test_with_amx()) CHECK(pairs_on(ATTN_ISA_AVX512) == PAIRS_BY_AMX);
#if defined(__GNUC__) && !defined(_WIN32)
    if (pairs_here() == PAIRS_BY_AMX && getenv("EMULATED_AMX")) {
        const unsigned long long products = emulated_tile_products;
        int32_t workers = 3;
        attn_view a = halves(PACKED, 1, 70, 70, 0), b = halves(PACKED, 1, 70, 70, 1);
        put_numbers(&a, PLAIN, 0), put_numbers(&b, PLAIN, 1);
        multiply(a, b, make_out(LAYOUT_PACKED, 3, 1, 70, 70, 0),
                 options_on(ATTN_ISA_AVX512, ATTN_PRECISION_FAST, &workers), "by AMX");
        CHECK(emulated_tile_products > products);
        CHECK(emulated_tiles_configured == 0);
        return;
    }
#endif
    test_skip("whether tasks give tiles back: in emulation");
}

const test_case suite_products[] = {{"products.sizes", sizes},
                                    {"products.batches", batches},
                                    {"products.not_asked_for", not_asked_for},
                                    {"products.other_types", other_types},
                                    {"products.monotone", monotone},
                                    {"products.tiles", tiles},
                                    {0, 0}};
