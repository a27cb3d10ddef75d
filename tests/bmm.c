/* bmm.c - attn_bmm: every element is the sum of chains of 64 fused multiply-adds, whatever the sizes, strides and
   batches. */
#include "grads.h"

/* The elements (row, k) of an entry, or (k, row) where they are turned, side by side; to be freed. */
static double *numbers_of_entry(const attn_view *v, int64_t i0, int64_t i1, int64_t rows, int64_t depth, int turned) {
    double *x = (double *)malloc((size_t)(rows * depth + 1) * sizeof *x);
    if (!x) abort();
    for (int64_t row = 0; row < rows; row++)
        for (int64_t k = 0; k < depth; k++)
            x[row * depth + k] = turned ? ref_at(v, i0, i1, k, row) : ref_at(v, i0, i1, row, k);
    return x;
}

/* An element of the product, exactly as the manual says it is computed. */
static float chains(const double *a, const double *b, int64_t depth) {
    float total = 0, sum = 0;
    for (int64_t k = 0; k < depth; k++) {
        sum = fmaf((float)a[k], (float)b[k], k % 64 ? sum : 0);
        if (k % 64 == 63 || k == depth - 1) total = k < 64 ? sum : total + sum;
    }
    return total;
}

/* What one of `every` elements must be, in the order of their indices; to be freed. */
static float *wanted(attn_view a, attn_view b, attn_view out, int64_t every) {
    int64_t size[4] = {1, 1, 1, 1}, element = 0, depth = a.size[a.rank - 1];
    for (int axis = 0; axis < out.rank; axis++) size[4 - out.rank + axis] = out.size[axis];
    float *want = (float *)malloc((size_t)(size[0] * size[1] * size[2] * size[3] / every + 1) * sizeof *want);
    if (!want) abort();
    for (int64_t i0 = 0; i0 < size[0]; i0++)
        for (int64_t i1 = 0; i1 < size[1]; i1++) {
            double *rows = numbers_of_entry(&a, i0, i1, size[2], depth, 0);
            double *columns = numbers_of_entry(&b, i0, i1, size[3], depth, 1);
            for (int64_t m = 0; m < size[2]; m++)
                for (int64_t n = 0; n < size[3]; n++, element++)
                    if (element % every == 0)
                        want[element / every] = chains(rows + m * depth, columns + n * depth, depth);
            free(rows);
            free(columns);
        }
    return want;
}

static void compare(const attn_view *got, const float *want, int64_t every, attn_isa isa, const char *what) {
    int64_t index[4] = {0, 0, 0, 0}, low, high, bad = 0, element = 0;
    if (!view_extent(got, &low, &high)) return;
    do {
        if (element++ % every) continue;
        float x = want[(element - 1) / every];
        uint32_t bits = bits_at(got, index), expected;
        memcpy(&expected, &x, sizeof expected);
        if (isnan(x)) expected = 0x7fc00000u;
        if (bits != expected && bad++ == 0)
            CHECKF(0, "%s on %s: [%ld,%ld,%ld,%ld] has the bits %08x, not those of %.9g", what, attn_isa_string(isa),
                   (long)index[0], (long)index[1], (long)index[2], (long)index[3], (unsigned)bits, (double)x);
    } while (next_index(got, index));
    CHECKF(bad == 0, "%s: %ld elements differ", what, (long)bad);
}

/* One of `every` elements; large products by vectors alone. numbers: those of b, if b is codes with these scales. */
static void check_with(attn_view a, attn_view b, attn_view numbers, attn_view scale, attn_out out, int64_t every,
                       const char *what) {
    attn_view got = attn_view_of(out);
    float *want = wanted(a, numbers, got, every);
    for (int n = 0; n < test_isa_count(); n++) {
        attn_desc o;
        int32_t workers = n % 2 ? test_int(2, 40) : 0;
        if (every > 1 && test_isa(n) == ATTN_ISA_SCALAR) continue;
        memset(&o, 0, sizeof o);
        o.parallel.workers = workers;
        o.parallel.user = &workers;
        o.parallel.run = workers ? run_shuffled : 0;
        o.isa = (int32_t)test_isa(n);
        o.k_scale = scale;
        poison(&out);
        if (!CHECKF(attn_bmm(a, b, out, &o, 0) == ATTN_OK, "%s: refused", what)) break;
        CHECKF(gaps_untouched(&out), "%s: wrote between the elements", what);
        compare(&got, want, every, test_isa(n), what);
    }
    free(want);
}

static const attn_view no_scale;
static void check_some(attn_view a, attn_view b, attn_out out, int64_t every, const char *what) {
    check_with(a, b, b, no_scale, out, every, what);
}

static void check_product(attn_view a, attn_view b, attn_out out, const char *what) { check_some(a, b, out, 1, what); }

/* (2,3,4) times (2,4,6), as in the textbook: of ones, every element is 4. */
static void test_textbook(void) {
    float a[24], b[48], c[36];
    for (int i = 0; i < 48; i++) b[i] = a[i / 2] = 1;
    CHECK_STATUS(attn_bmm(attn_view_f32(a, 3, 2, 3, 4, 0), attn_view_f32(b, 3, 2, 4, 6, 0),
                          attn_out_f32(c, 3, 2, 3, 6, 0), 0, 0),
                 ATTN_OK);
    for (int i = 0; i < 36; i++) CHECK(c[i] == 4);
    check_product(make_filled(LAYOUT_PACKED, 1, 3, 2, 3, 4, 0), make_filled(LAYOUT_PACKED, 1, 3, 2, 4, 6, 0),
                  make_out(LAYOUT_PACKED, 3, 2, 3, 6, 0), "(2,3,4) x (2,4,6)");
}

static void test_sizes(void) {
    static const int64_t sizes[] = {0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 23, 31, 33, 48, 63, 64, 65, 100, 130};
    enum { COUNT = (int)(sizeof sizes / sizeof *sizes) };
    for (int i = 0; i < COUNT; i++)
        for (int role = 0; role < 3; role++)
            for (int again = 0; again < 2; again++) {
                int64_t n[3];
                for (int r = 0; r < 3; r++) n[r] = r == role ? sizes[i] : sizes[test_int(1, COUNT - 5)];
                check_product(make_filled(LAYOUT_PACKED, 1, 2, n[0], n[1], 0, 0),
                              make_filled(LAYOUT_PACKED, 1, 2, n[1], n[2], 0, 0),
                              make_out(LAYOUT_PACKED, 2, n[0], n[2], 0, 0), "a size");
                test_release();
            }
}

static void test_large(void) {
    check_product(make_filled(LAYOUT_PACKED, 1, 2, 131, 700, 0, 0), make_filled(LAYOUT_PACKED, 1, 2, 700, 40, 0, 0),
                  make_out(LAYOUT_PACKED, 2, 131, 40, 0, 0), "many rows, a long chain");
    check_product(make_filled(LAYOUT_PACKED, 1, 2, 3, 30, 0, 0), make_filled(LAYOUT_PACKED, 1, 2, 30, 777, 0, 0),
                  make_out(LAYOUT_PACKED, 2, 3, 777, 0, 0), "many columns");
    for (int transposed = 0; transposed < 2; transposed++) {
        attn_view b = make_filled(LAYOUT_GAPS, 1, 2, transposed ? 203 : 1030, transposed ? 1030 : 203, 0, 0);
        check_some(make_filled(LAYOUT_GAPS, 1, 2, 2050, 1030, 0, 0), transposed ? attn_view_swap(b, 0, 1) : b,
                   make_out(LAYOUT_PACKED, 2, 2050, 203, 0, 0), 997, "so large that tiles share what is read");
        test_release();
    }
}

/* Few rows: of any type, beginning anywhere; alone, or of entries that share one b, [k,n], or stored as [n,k]. */
static void check_few_rows(int64_t m, int64_t k, int64_t n, int shared, layout la, int transposed) {
    static const int32_t types[] = {ATTN_F32, ATTN_F16, ATTN_BF16};
    int64_t entries = test_int(1, 3), entries_b = shared ? 1 : entries;
    attn_view a = make_filled(la, 1, 3, entries, m, k, 0);
    attn_view b = make_filled(LAYOUT_PACKED, 1, 3, entries_b, transposed ? n : k, transposed ? k : n, 0);
    attn_view x = retyped(&a, types[test_int(0, 2)], la);
    attn_view y = retyped(&b, types[test_int(0, 2)], test_int(0, 1) ? LAYOUT_GAPS : LAYOUT_PACKED);
    attn_out out = make_out(test_int(0, 1) ? LAYOUT_GAPS : LAYOUT_PACKED, 3, entries, m, n, 0);
    check_product(x, transposed ? attn_view_swap(y, 1, 2) : y, out, transposed ? "few rows, b transposed" : "few rows");
    test_release();
}

/* b is read where it lies. */
static void test_few_rows(void) {
    static const int64_t depths[] = {0, 1, 15, 16, 17, 63, 64, 65, 80, 128, 130, 257, 300},
                         columns[] = {1, 7, 8, 9, 100, 203};
    for (int i = 0; i < 240; i++) {
        int64_t m = i % 2 ? test_int(1, 4) : test_int(5, 18), k = depths[test_int(0, 12)], n = columns[test_int(0, 5)];
        check_few_rows(m, k, n, i % 3 != 0, i % 4 ? LAYOUT_PACKED : (layout)test_int(0, LAYOUT_COUNT - 1), 0);
    }
}

/* Up to 64 rows times a matrix that is read where it lies: more columns than a task has room for, the last of which
   fill no vector and are packed. */
static void test_rows_in_place(void) {
    static const int64_t depths[] = {1, 3, 64, 70, 130};
    for (int i = 0; i < 30; i++) {
        const int64_t m = i % 3 ? test_int(17, 64) : 64, k = depths[i % 5], n = i % 4 ? test_int(600, 2300) : 1024;
        check_some(make_filled(LAYOUT_PACKED, 1, 2, m, k, 0, 0), make_filled(LAYOUT_PACKED, 1, 2, k, n, 0, 0),
                   make_out(LAYOUT_PACKED, 2, m, n, 0, 0), 13, "up to 64 rows");
        test_release();
    }
}

/* Its columns lie side by side: as many as are multiplied where they lie, and more. */
static void test_few_rows_transposed(void) {
    static const int64_t depths[] = {0, 1, 3, 63, 64, 80, 127, 128, 130, 320, 960, 1024, 1152, 1100},
                         columns[] = {63, 64, 65, 95, 96, 100, 203, 777};
    for (int i = 0; i < 240; i++) {
        int64_t m = i % 3 ? test_int(1, 10) : 1, k = depths[test_int(0, 13)], n = columns[test_int(0, 7)];
        check_few_rows(m, k, n, i % 2, i % 4 ? LAYOUT_PACKED : (layout)test_int(0, LAYOUT_COUNT - 1), 1);
    }
}

/* ---- b as codes, which a device refuses */
static int takes_codes(void) {
    attn_view rows = make_filled(LAYOUT_PACKED, 1, 4, 1, 1, 1, 1), scale, codes = coded(&rows, &scale, LAYOUT_PACKED);
    attn_desc options;
    attn_error err;
    memset(&options, 0, sizeof options);
    options.k_scale = scale;
    attn_status st = attn_bmm(rows, codes, make_out(LAYOUT_PACKED, 4, 1, 1, 1, 1), &options, &err);
    test_release();
    if (st == ATTN_OK) return 1;
    CHECKF(st == ATTN_ERR_PLACE && !strcmp(err.field, "b.type"), "refused: %s %s", err.field, err.rule);
    test_skip("a device takes no codes");
    return 0;
}

/* The product in double precision, from the codes and their scales alone. What is left is the rounding of a number, of
   chains of 64 and of their sum. */
static void check_codes_exactly(const attn_view *a, const attn_view *b, const attn_view *scale, const attn_view *got) {
    const int64_t depth = a->size[a->rank - 1], m = got->size[2], n = got->size[3];
    const double unit = ldexp(1, -24) * (66 + (double)depth / 64);
    const int grouped = scale->size[scale->rank - 1] > 1;
    for (int64_t entry = 0; entry < got->size[0] * got->size[1]; entry++) {
        const int64_t i0 = entry / got->size[1], i1 = entry % got->size[1];
        double *rows = numbers_of_entry(a, i0, i1, m, depth, 0), *numbers = numbers_of_entry(b, i0, i1, n, depth, 1);
        for (int64_t at = 0; at < n * depth; at++)
            numbers[at] *= ref_at(scale, i0, i1, at / depth, grouped ? at % depth / 32 : 0);
        for (int64_t at = 0; at < m * n; at++) {
            const int64_t i = at / n, j = at % n;
            double sum = 0, terms = 0, x = ref_at(got, i0, i1, i, j);
            for (int64_t k = 0; k < depth; k++) {
                const double term = rows[i * depth + k] * numbers[j * depth + k];
                sum += term;
                terms += fabs(term);
            }
            if (!isfinite(sum) && isnan(sum) == isnan(x)) continue;
            if (!CHECKF(fabs(x - sum) <= unit * terms + 1e-40, "codes: [%ld,%ld,%ld,%ld] is %.9g, not %.9g", (long)i0,
                        (long)i1, (long)i, (long)j, x, sum))
                break;
        }
        free(rows);
        free(numbers);
    }
}

/* b: codes of rows [n,k], transposed; the scales of a b that is shared may lack its batch. */
static void check_codes(attn_view a, attn_view rows, layout how, attn_out out, const char *what) {
    attn_view scale, codes = attn_view_swap(coded(&rows, &scale, how), 2, 3), all = scale;
    if (codes.size[0] * codes.size[1] == 1 && test_int(0, 1))
        scale = attn_view_typed((attn_type)scale.type, scale.data, 2, scale.size[2], scale.size[3], 0, 0),
        scale.stride[0] = all.stride[2], scale.stride[1] = all.stride[3];
    check_with(a, codes, attn_view_swap(rows, 2, 3), scale, out, 1, what);
    attn_view got = attn_view_of(out);
    if (out.type == ATTN_F32) check_codes_exactly(&a, &codes, &all, &got);
    test_release();
}

static void test_codes(void) {
    static const int64_t depths[] = {0, 1, 3, 31, 33, 63, 64, 65, 96, 128, 192, 256, 300, 320, 448, 512, 1000, 1024},
                         columns[] = {1, 7, 31, 63, 64, 65, 96, 100, 203};
    if (!takes_codes()) return;
    for (int i = 0; i < 200; i++) {
        int64_t m = i % 3 == 0 ? test_int(1, 4) : i % 3 == 1 ? test_int(1, 10) : test_int(1, 40);
        int64_t k = depths[test_int(0, 17)], n = columns[test_int(0, 8)];
        int64_t entries[2] = {test_int(1, 2), test_int(1, 3)}, shared[2];
        for (int axis = 0; axis < 2; axis++) shared[axis] = test_int(0, 2) ? 1 : entries[axis];
        layout how = i % 4 ? (layout)(i % 2 ? LAYOUT_PACKED : LAYOUT_GAPS) : (layout)test_int(0, LAYOUT_COUNT - 1);
        attn_view a = make_filled(how, 1, 4, entries[0], entries[1], m, k);
        attn_view x = i % 5 ? a : retyped(&a, i % 2 ? ATTN_F16 : ATTN_BF16, how);
        check_codes(x, make_filled(LAYOUT_PACKED, 1, 4, shared[0], shared[1], n, k),
                    how == LAYOUT_BROADCAST ? LAYOUT_PACKED : how, /* each code has a place of its own */
                    make_out((layout)test_int(0, LAYOUT_COUNT - 1), 4, entries[0], entries[1], m, n), "codes");
    }
}

/* Long columns, whose scales are more than other rows need room for. */
static void test_codes_long(void) {
    if (!takes_codes()) return;
    for (int i = 0; i < 8; i++) {
        int64_t m = 1 + i / 2, k = i % 2 ? 4160 : 4128, n = 97;
        check_codes(make_filled(LAYOUT_PACKED, 1, 4, 1, 1, m, k), make_filled(LAYOUT_PACKED, 1, 4, 1, 1, n, k),
                    LAYOUT_PACKED, make_out(LAYOUT_PACKED, 4, 1, 1, m, n), "long codes");
    }
}

/* Weights that are stored as [k,n], whose columns do not lie side by side. */
static void test_codes_by_rows(void) {
    if (!takes_codes()) return;
    for (int i = 0; i < 40; i++) {
        int64_t m = test_int(1, 20), k = test_int(1, 140), n = test_int(1, 130), groups = i % 2 ? (k + 31) / 32 : 1;
        attn_view b = make_view(ATTN_I8, i % 3 ? LAYOUT_PACKED : LAYOUT_GAPS, 4, 1, 1, k, n);
        attn_view numbers = make_view(ATTN_F32, LAYOUT_PACKED, 4, 1, 1, k, n);
        attn_view scale = make_filled(LAYOUT_PACKED, 0.02, 4, 1, 1, n, groups);
        for (int64_t x = 0; x < k * n; x++) {
            int code = test_int(-128, 127);
            put_at(&b, 0, 0, x / n, x % n, code);
            put_at(&numbers, 0, 0, x / n, x % n,
                   (float)code * (float)ref_at(&scale, 0, 0, x % n, groups > 1 ? x / n / 32 : 0));
        }
        attn_view a = make_filled(LAYOUT_PACKED, 1, 4, 1, 1, m, k);
        attn_out out = make_out(LAYOUT_PACKED, 4, 1, 1, m, n);
        attn_view got = attn_view_of(out);
        check_with(a, b, numbers, scale, out, 1, "codes by rows");
        check_codes_exactly(&a, &b, &scale, &got);
        test_release();
    }
}

/* Entries that share codes, but have scales of their own, are no one matrix. */
static void test_codes_with_own_scales(void) {
    if (!takes_codes()) return;
    for (int i = 0; i < 12; i++) {
        int64_t entries = test_int(2, 4), m = test_int(1, 5), k = 64 * test_int(1, 3), n = test_int(60, 80);
        attn_view rows = make_filled(LAYOUT_PACKED, 1, 4, 1, 1, n, k), first,
                  codes = coded(&rows, &first, LAYOUT_PACKED);
        attn_view scale = make_filled(LAYOUT_PACKED, 0.02, 4, 1, entries, n, first.size[3]);
        attn_view numbers = make_view(ATTN_F32, LAYOUT_PACKED, 4, 1, entries, n, k);
        codes.size[1] = entries;
        codes.stride[1] = 0;
        for (int64_t e = 0; e < entries; e++)
            for (int64_t x = 0; x < n * k; x++)
                put_at(&numbers, 0, e, x / k, x % k,
                       (float)ref_at(&codes, 0, e, x / k, x % k) *
                           (float)ref_at(&scale, 0, e, x / k, first.size[3] > 1 ? x % k / 32 : 0));
        check_with(make_filled(LAYOUT_PACKED, 1, 4, 1, entries, m, k), attn_view_swap(codes, 2, 3),
                   attn_view_swap(numbers, 2, 3), scale, make_out(LAYOUT_PACKED, 4, 1, entries, m, n), 1, "own scales");
        test_release();
    }
}

/* A scale that is NaN makes its column NaN, the one NaN, or only where its 32 numbers are; so does infinity times 0. */
static void test_codes_special(void) {
    if (!takes_codes()) return;
    for (int i = 0; i < 20; i++) {
        int64_t m = i % 2 ? test_int(1, 8) : test_int(9, 20), k = i % 3 ? 128 : test_int(33, 127), n = 100;
        attn_view a = make_filled(LAYOUT_PACKED, 1, 4, 1, 1, m, k), rows = make_filled(LAYOUT_PACKED, 1, 4, 1, 1, n, k);
        put_at(&rows, 0, 0, test_int(0, 99), test_int(0, (int)k - 1), -NAN);
        put_at(&a, 0, 0, test_int(0, (int)m - 1), test_int(0, (int)k - 1), i % 4 ? INFINITY : NAN);
        check_codes(a, rows, LAYOUT_PACKED, make_out(LAYOUT_PACKED, 4, 1, 1, m, n), "special codes");
    }
}

/* What attn_quantize makes is what attn_bmm takes, as the manual has it. */
static void test_codes_of_quantize(void) {
    if (!takes_codes()) return;
    for (int i = 0; i < 8; i++) {
        int64_t m = test_int(1, 3), k = 32 * test_int(1, 5), n = 70, groups = i % 2 ? k / 32 : 1;
        attn_view x = make_filled(LAYOUT_PACKED, 1, 2, m, k, 0, 0), w = make_filled(LAYOUT_PACKED, 1, 4, 1, 1, n, k);
        attn_view codes = make_view(ATTN_I8, LAYOUT_PACKED, 4, 1, 1, n, k);
        attn_view scales = make_view(i % 3 ? ATTN_F32 : ATTN_F16, LAYOUT_PACKED, 4, 1, 1, n, groups);
        attn_out made = attn_out_typed(ATTN_I8, (void *)(uintptr_t)codes.data, 4, 1, 1, n, k),
                 units = attn_out_typed((attn_type)scales.type, (void *)(uintptr_t)scales.data, 4, 1, 1, n, groups),
                 out = make_out(LAYOUT_PACKED, 2, m, n, 0, 0);
        attn_desc options;
        memset(&options, 0, sizeof options);
        options.k_scale = scales;
        CHECK_STATUS(attn_quantize(w, made, units, 0), ATTN_OK);
        CHECK_STATUS(attn_bmm(x, attn_view_swap(codes, 2, 3), out, &options, 0), ATTN_OK);
        attn_view got = attn_view_of(out);
        for (int64_t row = 0; row < m; row++)
            for (int64_t j = 0; j < n; j++) {
                double sum = 0, most = 0;
                for (int64_t c = 0; c < k; c++) {
                    sum += ref_at(&x, 0, 0, row, c) * ref_at(&w, 0, 0, j, c);
                    most += fabs(ref_at(&x, 0, 0, row, c)) * ref_at(&scales, 0, 0, j, groups > 1 ? c / 32 : 0);
                }
                if (!CHECK_CLOSE(ref_at(&got, 0, 0, row, j), sum, 0.55 * most)) return;
            }
        test_release();
    }
}

/* Any layout of the three, transposed or not. */
static void test_layouts(void) {
    for (int how = 0; how < LAYOUT_COUNT * LAYOUT_COUNT; how++)
        for (int transposed = 0; transposed < 8; transposed++) {
            layout la = (layout)(how % LAYOUT_COUNT), lb = (layout)(how / LAYOUT_COUNT),
                   lo = (layout)test_int(0, LAYOUT_COUNT - 1);
            int64_t m = test_int(1, 20), k = test_int(1, 20), n = test_int(1, 70);
            attn_view a = transposed & 1 ? make_filled(la, 1, 3, 2, k, m, 0) : make_filled(la, 1, 3, 2, m, k, 0);
            attn_view b = transposed & 2 ? make_filled(lb, 1, 3, 2, n, k, 0) : make_filled(lb, 1, 3, 2, k, n, 0);
            attn_out out = transposed & 4 ? make_out(lo, 3, 2, n, m, 0) : make_out(lo, 3, 2, m, n, 0);
            if (transposed & 1) a = attn_view_swap(a, 1, 2);
            if (transposed & 2) b = attn_view_swap(b, 1, 2);
            if (transposed & 4) {
                attn_view v = attn_view_swap(attn_view_of(out), 1, 2);
                memcpy(out.size, v.size, sizeof v.size);
                memcpy(out.stride, v.stride, sizeof v.stride);
            }
            check_product(a, b, out, "a layout");
            test_release();
        }
}

/* Batches broadcast as numpy does: sizes of 1 and missing axes on either side. */
static void test_batches(void) {
    for (int pattern = 0; pattern < 16; pattern++)
        for (int rank_a = 2; rank_a <= 4; rank_a++)
            for (int rank_b = 2; rank_b <= 4; rank_b++) {
                int64_t outer[2] = {3, 2}, batch_a[2], batch_b[2], batch[2];
                int rank = rank_a > rank_b ? rank_a : rank_b;
                for (int axis = 0; axis < 2; axis++) {
                    int there_a = rank_a > 3 - axis, there_b = rank_b > 3 - axis;
                    batch_a[axis] = there_a && !(pattern >> (2 * axis) & 1) ? outer[axis] : 1;
                    batch_b[axis] = there_b && !(pattern >> (2 * axis + 1) & 1) ? outer[axis] : 1;
                    batch[axis] = batch_a[axis] > batch_b[axis] ? batch_a[axis] : batch_b[axis];
                }
                attn_view a = make_filled(LAYOUT_PACKED, 1, 4, batch_a[0], batch_a[1], 3, 5),
                          b = make_filled(LAYOUT_MIXED, 1, 4, batch_b[0], batch_b[1], 5, 4);
                attn_out out = make_out(LAYOUT_GAPS, 4, batch[0], batch[1], 3, 4);
                attn_view o = attn_view_of(out);
                attn_view *views[3];
                int ranks[3];
                views[0] = &a, views[1] = &b, views[2] = &o;
                ranks[0] = rank_a, ranks[1] = rank_b, ranks[2] = rank;
                for (int v = 0; v < 3; v++) { /* drop leading axes of size 1 */
                    int drop = 4 - ranks[v];
                    for (int axis = 0; axis < ranks[v]; axis++) {
                        views[v]->size[axis] = views[v]->size[axis + drop];
                        views[v]->stride[axis] = views[v]->stride[axis + drop];
                    }
                    views[v]->rank = ranks[v];
                }
                memcpy(out.size, o.size, sizeof o.size);
                memcpy(out.stride, o.stride, sizeof o.stride);
                out.rank = rank;
                check_product(a, b, out, "a broadcast batch");
                test_release();
            }
}

/* Nothing to sum gives 0, not what was there before; nothing to write writes nothing. */
static void test_empty(void) {
    float out[6];
    memset(out, 0xFF, sizeof out);
    CHECK_STATUS(attn_bmm(attn_view_f32(0, 2, 2, 0, 0, 0), attn_view_f32(0, 2, 0, 3, 0, 0),
                          attn_out_f32(out, 2, 2, 3, 0, 0), 0, 0),
                 ATTN_OK);
    for (int i = 0; i < 6; i++) CHECK(out[i] == 0 && !signbit(out[i]));
    memset(out, 0xFF, sizeof out);
    CHECK_STATUS(attn_bmm(attn_view_f32(0, 2, 0, 4, 0, 0), attn_view_f32(out, 2, 4, 1, 0, 0),
                          attn_out_f32(0, 2, 0, 1, 0, 0), 0, 0),
                 ATTN_OK);
    CHECK_STATUS(attn_bmm(attn_view_f32(0, 3, 0, 2, 2, 0), attn_view_f32(out, 2, 2, 2, 0, 0),
                          attn_out_f32(0, 3, 0, 2, 2, 0), 0, 0),
                 ATTN_OK);
    for (int i = 0; i < 6; i++) CHECK(isnan(out[i]));
}

/* NaN and infinity stay in their row and column; huge and tiny numbers are summed as they are. */
static void test_special(void) {
    for (int i = 0; i < 20; i++) {
        attn_view a = make_filled(LAYOUT_PACKED, 1, 2, 7, 6, 0, 0), b = make_filled(LAYOUT_PACKED, 1, 2, 6, 35, 0, 0);
        put_at(&a, 0, 0, test_int(0, 6), test_int(0, 5), i % 2 ? NAN : INFINITY);
        put_at(&b, 0, 0, test_int(0, 5), test_int(0, 34), i % 3 ? -NAN : -INFINITY);
        put_at(&a, 0, 0, test_int(0, 6), test_int(0, 5), 0x1p-149);
        put_at(&b, 0, 0, test_int(0, 5), test_int(0, 34), 0x1p127);
        put_at(&a, 0, 0, test_int(0, 6), test_int(0, 5), -0.0);
        check_product(a, b, make_out(LAYOUT_PACKED, 2, 7, 35, 0, 0), "special numbers");
        test_release();
    }
}

/* One NaN in one row, whichever it is: that row alone has them, all of them the one NaN. */
static void test_one_bad_row(void) {
    static const int64_t rows[] = {1, 2, 7, 64, 65, 130}, columns[] = {1, 8, 35, 70};
    for (int i = 0; i < 24; i++) {
        int64_t m = rows[i % 6], n = columns[i / 6];
        for (int last = 0; last < 2; last++) {
            attn_view a = make_filled(LAYOUT_PACKED, 1, 2, m, 6, 0, 0),
                      b = make_filled(LAYOUT_PACKED, 1, 2, 6, n, 0, 0);
            put_at(&a, 0, 0, last ? m - 1 : test_int(0, (int)m - 1), test_int(0, 5), -NAN);
            check_product(a, b, make_out(LAYOUT_PACKED, 2, m, n, 0, 0), "a bad row");
            test_release();
        }
    }
}

/* x + y*z is rounded once: the product, 2^-24 (1 - 2^-46), leaves the sum just beside the middle between two floats,
   nearer than a double can tell. Also with infinity, and where the sum needs no correction. */
static void rounded_once(const float rows[][2], const float *column, const float *want, int count) {
    for (int n = 0; n < test_isa_count(); n++) {
        attn_desc o;
        float out[5];
        memset(&o, 0, sizeof o);
        o.isa = (int32_t)test_isa(n);
        CHECK_STATUS(attn_bmm(attn_view_f32(rows[0], 2, count, 2, 0, 0), attn_view_f32(column, 2, 2, 1, 0, 0),
                              attn_out_f32(out, 2, count, 1, 0, 0), &o, 0),
                     ATTN_OK);
        for (int i = 0; i < count; i++)
            CHECKF(out[i] == want[i], "row %d on %s: %a, not %a", i, attn_isa_string(test_isa(n)), (double)out[i],
                   (double)want[i]);
    }
}
static void test_rounded_once(void) {
    static const float wide = 0x1.000002p-12f, narrow = 0x1.fffffcp-13f, odd = 0x1.000002p0f;
    const float rows[5][2] = {{odd, wide}, {odd, -wide}, {-odd, wide}, {INFINITY, wide}, {2, wide}};
    const float want[5] = {odd, odd, -odd, INFINITY, 2};
    const float column[2] = {1, narrow};
    rounded_once(rows, column, want, 5);
}
/* A product a hair above half of the smallest number, added to one that is no normal float either: rounded to double
   first, the sum would lie in the middle. */
static void test_tiny_rounded_once(void) {
    static const float a = 0x1.001p-75f, top = 0x1p-127f, next = 0x1p-149f;
    const float rows[4][2] = {{top, a}, {-top, -a}, {top, -a}, {0, a}};
    const float want[4] = {top + next, -top - next, top - next, next};
    const float column[2] = {1, 0x1.ffe002p-76f};
    rounded_once(rows, column, want, 4);
}

/* ---- gradients */

/* The number that belongs to element [i0,i1,row,column] of the product, in double precision: into da and db, packed and
   shaped like a and b, with the sums of absolute terms. */
static void reference_gradients(const attn_view *a, const attn_view *b, const attn_view *d_out, ref_tensor *da,
                                ref_tensor *db) {
    int64_t index[4] = {0, 0, 0, 0}, low, high, depth = a->size[a->rank - 1];
    ref_make_tensor(da, *a);
    ref_make_tensor(db, *b);
    if (!view_extent(d_out, &low, &high)) return;
    do {
        const int64_t *last = index + d_out->rank - 2;
        int64_t i0 = d_out->rank == 4 ? index[0] : 0, i1 = d_out->rank > 2 ? index[d_out->rank - 3] : 0;
        double g = ref_at(d_out, i0, i1, last[0], last[1]);
        for (int64_t k = 0; k < depth; k++) {
            double x = g * ref_at(b, i0, i1, k, last[1]), y = g * ref_at(a, i0, i1, last[0], k);
            ref_add(da, i0, i1, last[0], k, x, fabs(x));
            ref_add(db, i0, i1, k, last[1], y, fabs(y));
        }
    } while (next_index(d_out, index));
}

static double product_worst;
static double product_bound(double terms, double sum, double start) {
    return grad_tolerance(GRAD_K, terms, sum, start);
}

/* `which`: 1 da, 2 db, 3 both; `accumulate` likewise. */
static void check_gradients(attn_view a, attn_view b, attn_view d_out, int which, unsigned accumulate, layout how,
                            const char *what) {
    attn_out da, db, first_da, first_db;
    attn_view start_a, start_b;
    ref_tensor want_a, want_b;
    memset(&da, 0, sizeof da);
    memset(&db, 0, sizeof db);
    memset(&start_a, 0, sizeof start_a);
    memset(&start_b, 0, sizeof start_b);
    if (which & 1) da = make_out(how, a.rank, a.size[0], a.size[1], a.size[2], a.size[3]);
    if (which & 2) db = make_out(how, b.rank, b.size[0], b.size[1], b.size[2], b.size[3]);
    if (which & accumulate & 1)
        start_a = make_filled(LAYOUT_PACKED, 1, a.rank, a.size[0], a.size[1], a.size[2], a.size[3]);
    if (which & accumulate & 2)
        start_b = make_filled(LAYOUT_PACKED, 1, b.rank, b.size[0], b.size[1], b.size[2], b.size[3]);
    first_da = da;
    first_db = db;
    reference_gradients(&a, &b, &d_out, &want_a, &want_b);
    for (int n = 0; n < test_isa_count(); n++) {
        attn_error err;
        attn_desc o;
        int32_t workers = n % 2 ? test_int(2, 40) : 0;
        memset(&o, 0, sizeof o);
        o.isa = (int32_t)test_isa(n);
        o.parallel.workers = workers;
        o.parallel.user = &workers;
        o.parallel.run = workers ? run_shuffled : 0;
        put_start(&da, &start_a);
        put_start(&db, &start_b);
        if (!CHECKF(attn_bmm_backward(a, b, d_out, da, db, accumulate, &o, &err) == ATTN_OK, "%s: refused: %s %s", what,
                    err.field, err.rule))
            break;
        product_worst = fmax(product_worst, check_sums(&da, &want_a, &start_a, product_bound, what));
        product_worst = fmax(product_worst, check_sums(&db, &want_b, &start_b, product_bound, what));
        if (n == 0) first_da = copy_out(&da), first_db = copy_out(&db);
        check_same(&first_da, &da, what);
        check_same(&first_db, &db, what);
    }
    free(want_a.x);
    free(want_a.error);
    free(want_b.x);
    free(want_b.error);
}

static void test_gradient_sizes(void) {
    static const int64_t sizes[] = {0, 1, 2, 3, 5, 8, 9, 16, 17, 33, 64, 65, 127, 129, 300};
    enum { COUNT = (int)(sizeof sizes / sizeof *sizes) };
    product_worst = 0;
    for (int i = 0; i < COUNT; i++)
        for (int role = 0; role < 3; role++)
            for (int which = 1; which < 4; which++) {
                int64_t n[3];
                for (int r = 0; r < 3; r++) n[r] = r == role ? sizes[i] : sizes[test_int(1, COUNT - 4)];
                check_gradients(make_filled(LAYOUT_PACKED, 1, 2, n[0], n[1], 0, 0),
                                make_filled(LAYOUT_PACKED, 1, 2, n[1], n[2], 0, 0),
                                make_filled(LAYOUT_PACKED, 1, 2, n[0], n[2], 0, 0), which, i % 2 ? 0 : (unsigned)role,
                                LAYOUT_PACKED, "a size");
                test_release();
            }
    for (int swapped = 0; swapped < 4; swapped++) { /* gradients of several tiles of rows */
        attn_view x = swapped & 1 ? make_filled(LAYOUT_PACKED, 1, 2, 90, 300, 0, 0)
                                  : make_filled(LAYOUT_PACKED, 1, 2, 300, 90, 0, 0);
        attn_view y = swapped & 2 ? make_filled(LAYOUT_PACKED, 1, 2, 280, 90, 0, 0)
                                  : make_filled(LAYOUT_PACKED, 1, 2, 90, 280, 0, 0);
        check_gradients(swapped & 1 ? attn_view_swap(x, 0, 1) : x, swapped & 2 ? attn_view_swap(y, 0, 1) : y,
                        make_filled(LAYOUT_PACKED, 1, 2, 300, 280, 0, 0), 3, 3, LAYOUT_PACKED, "tiles of rows");
        test_release();
    }
    if (test_verbose()) printf("    largest error %.3f of the bound\n", product_worst);
}

/* All layouts, transposed operands, and batches that broadcast: summed where an operand was repeated. */
static void test_gradient_batches(void) {
    for (int pattern = 0; pattern < 16; pattern++)
        for (int rank_a = 2; rank_a <= 4; rank_a++)
            for (int rank_b = 2; rank_b <= 4; rank_b++) {
                int64_t outer[2] = {3, 2}, size_a[2], size_b[2], size[2];
                int rank = rank_a > rank_b ? rank_a : rank_b;
                for (int axis = 0; axis < 2; axis++) {
                    size_a[axis] = rank_a > 3 - axis && !(pattern >> (2 * axis) & 1) ? outer[axis] : 1;
                    size_b[axis] = rank_b > 3 - axis && !(pattern >> (2 * axis + 1) & 1) ? outer[axis] : 1;
                    size[axis] = size_a[axis] > size_b[axis] ? size_a[axis] : size_b[axis];
                }
                int64_t m = test_int(1, 9), k = test_int(1, 20), n = test_int(1, 40);
                layout how = (layout)test_int(0, LAYOUT_COUNT - 1);
                attn_view views[3] = {make_filled(how, 1, 4, size_a[0], size_a[1], k, m),
                                      make_filled(LAYOUT_MIXED, 1, 4, size_b[0], size_b[1], k, n),
                                      make_filled(how, 1, 4, size[0], size[1], m, n)};
                views[0] = attn_view_swap(views[0], 2, 3);
                int ranks[3] = {rank_a, rank_b, rank};
                for (int v = 0; v < 3; v++) { /* drop leading axes of size 1 */
                    int drop = 4 - ranks[v];
                    for (int axis = 0; axis < ranks[v]; axis++) {
                        views[v].size[axis] = views[v].size[axis + drop];
                        views[v].stride[axis] = views[v].stride[axis + drop];
                    }
                    views[v].rank = ranks[v];
                }
                check_gradients(views[0], views[1], views[2], 1 + pattern % 3, (unsigned)test_int(0, 3),
                                (layout)test_int(0, LAYOUT_COUNT - 1), "a broadcast batch");
                test_release();
            }
}

/* NaN and infinity reach what they are multiplied with, and nothing else. */
static void test_gradient_special(void) {
    for (int i = 0; i < 30; i++) {
        attn_view a = make_filled(LAYOUT_PACKED, 1, 2, 17, 6, 0, 0), b = make_filled(LAYOUT_PACKED, 1, 2, 6, 35, 0, 0),
                  d_out = make_filled(LAYOUT_PACKED, 1, 2, 17, 35, 0, 0);
        attn_view *v = i % 3 == 0 ? &a : i % 3 == 1 ? &b : &d_out;
        put_at(v, 0, 0, test_int(0, (int)v->size[0] - 1), test_int(0, (int)v->size[1] - 1), i % 2 ? -NAN : INFINITY);
        check_gradients(a, b, d_out, 3, 0, LAYOUT_PACKED, "special numbers");
        test_release();
    }
}

const test_case suite_bmm[] = {{"bmm.textbook", test_textbook},
                               {"bmm.sizes", test_sizes},
                               {"bmm.large", test_large},
                               {"bmm.few_rows", test_few_rows},
                               {"bmm.rows_in_place", test_rows_in_place},
                               {"bmm.few_rows_transposed", test_few_rows_transposed},
                               {"bmm.codes", test_codes},
                               {"bmm.codes_long", test_codes_long},
                               {"bmm.codes_by_rows", test_codes_by_rows},
                               {"bmm.codes_with_own_scales", test_codes_with_own_scales},
                               {"bmm.codes_special", test_codes_special},
                               {"bmm.codes_of_quantize", test_codes_of_quantize},
                               {"bmm.layouts", test_layouts},
                               {"bmm.batches", test_batches},
                               {"bmm.empty", test_empty},
                               {"bmm.special", test_special},
                               {"bmm.one_bad_row", test_one_bad_row},
                               {"bmm.rounded_once", test_rounded_once},
                               {"bmm.tiny_rounded_once", test_tiny_rounded_once},
                               {"bmm.gradient_sizes", test_gradient_sizes},
                               {"bmm.gradient_batches", test_gradient_batches},
                               {"bmm.gradient_special", test_gradient_special},
                               {0, 0}};
