/* sequence.c - of "sequences": the functions around a call: lengths from offsets, rows put after those of a cache,
   rotary positions and their tables. Entries in shared arrays and pages: entries.c; keys in several calls: parts.c.
   What costs no time as well: room of a cache, calls without an element. Most functions take no instruction set: the
   program runs them on the best one; builds without the others are in tests/check.sh. */
#include "saved.h"
#include <time.h>

static const int32_t floats[3] = {ATTN_F32, ATTN_F16, ATTN_BF16};
static const attn_view none;

static int32_t any_type(void) { return floats[test_int(0, 2)]; }
static int32_t any_int(void) { return test_int(0, 1) ? ATTN_I32 : ATTN_I64; }
static layout any_layout(int count) { return (layout)test_int(0, count - 1); }

/* ---- errors: status, field and place; nothing is written */
typedef struct memory { /* of an output, as it was */
    void *data, *copy;
    size_t bytes;
} memory;
static memory remember(const attn_out *o) {
    attn_view v = attn_view_of(*o);
    int64_t low, high;
    memory m = {o->data, 0, view_extent(&v, &low, &high) ? (size_t)(high + 1) * type_bytes(o->type) : 0};
    m.copy = test_guarded(m.bytes);
    memcpy(m.copy, m.data, m.bytes);
    return m;
}
static int unchanged(const memory *m) { return !memcmp(m->copy, m->data, m->bytes); }
static void refused(attn_status got, attn_status status, const char *field, int places, int64_t i, int64_t j,
                    const attn_error *err, int line) {
    CHECKF(got == status && err->status == (int32_t)status, "line %d: status \"%s\", want \"%s\"", line,
           attn_status_string(got), attn_status_string(status));
    CHECKF(!strcmp(err->field, field) && *err->rule, "line %d: \"%s %s\", want %s", line, err->field, err->rule, field);
    CHECKF(err->has_place == places && (places < 1 || err->place[0] == i) && (places < 2 || err->place[1] == j),
           "line %d: %d places [%ld,%ld], want %d [%ld,%ld]", line, (int)err->has_place, (long)err->place[0],
           (long)err->place[1], places, (long)i, (long)j);
}
#define REFUSED_AT(call, status, field, places, i, j) \
    do { \
        attn_error err; \
        memset(&err, 0x55, sizeof err); \
        attn_status st_ = (call); \
        refused(st_, status, field, places, i, j, &err, __LINE__); \
    } while (0)
#define REFUSED(call, status, field) REFUSED_AT(call, status, field, 0, 0, 0)

/* ---- lengths of offsets */
static void lengths_test(void) {
    for (int again = 0; again < 60; again++) {
        int n = test_int(0, 9);
        attn_view offsets = make_view(any_int(), any_layout(LAYOUT_COUNT), 1, n + 1, 0, 0, 0);
        attn_out lengths = make_out_of(any_int(), any_layout(3), 1, n, 0, 0, 0);
        if (offsets.stride[0] == 0) continue; /* broadcast */
        int64_t at = test_int(0, 5), start = at, want[10];
        put_at(&offsets, 0, 0, 0, 0, (double)at);
        for (int b = 0; b < n; b++) put_at(&offsets, 0, 0, 0, b + 1, (double)(at += want[b] = test_int(0, 3)));
        CHECK_STATUS(attn_lengths_of(offsets, lengths, 0), ATTN_OK);
        attn_view got = attn_view_of(lengths);
        for (int b = 0; b < n; b++) CHECK(ref_int(&got, b, 0) == want[b]);
        CHECK(at >= start && gaps_untouched(&lengths));
        test_release();
    }
}
static void lengths_errors(void) {
    int64_t offsets[4] = {0, 5, 3, 9}, out64[3] = {7, 7, 7};
    int32_t out[3] = {7, 7, 7};
    attn_view v = attn_view_i64(offsets, 1, 4, 0, 0, 0);
    attn_out o = attn_out_typed(ATTN_I32, out, 1, 3, 0, 0, 0), o64 = attn_out_typed(ATTN_I64, out64, 1, 3, 0, 0, 0);
    attn_out nowhere;
    char text[200];
    attn_error e;
    memset(&nowhere, 0, sizeof nowhere);
    REFUSED_AT(attn_lengths_of(v, o, &err), ATTN_ERR_RANGE, "offsets", 1, 2, 0);
    attn_lengths_of(v, o, &e);
    attn_error_string(&e, text, sizeof text);
    CHECKF(strstr(text, ": 5, is 3 at [2]") != 0, "%s", text);
    offsets[0] = -1, offsets[2] = 5;
    REFUSED_AT(attn_lengths_of(v, o, &err), ATTN_ERR_RANGE, "offsets", 1, 0, 0);
    offsets[0] = 0, offsets[3] = 5 + (int64_t)INT32_MAX + 1;
    REFUSED_AT(attn_lengths_of(v, o, &err), ATTN_ERR_RANGE, "lengths", 1, 2, 0);
    CHECK(out[0] == 7 && out[1] == 7 && out[2] == 7);
    CHECK_STATUS(attn_lengths_of(v, o64, 0), ATTN_OK);
    CHECK(out64[2] == (int64_t)INT32_MAX + 1);
    offsets[3]--;
    CHECK_STATUS(attn_lengths_of(v, o, &e), ATTN_OK);
    CHECK(out[2] == INT32_MAX && e.has_place == 0);
    REFUSED(attn_lengths_of(attn_view_i64(offsets, 1, 3, 0, 0, 0), o, &err), ATTN_ERR_SIZE, "offsets.size[0]");
    REFUSED(attn_lengths_of(none, o, &err), ATTN_ERR_NULL, "offsets");
    REFUSED(attn_lengths_of(v, nowhere, &err), ATTN_ERR_NULL, "lengths");
    REFUSED(attn_lengths_of(attn_view_f32((float *)out, 1, 4, 0, 0, 0), o, &err), ATTN_ERR_TYPE, "offsets.type");
    REFUSED(attn_lengths_of(v, attn_out_typed(ATTN_I64, offsets + 1, 1, 3, 0, 0, 0), &err), ATTN_ERR_OVERLAP,
            "lengths");
}

/* ---- rotary positions: the bits that the manual's formula has */
static uint32_t as_bits(int32_t type, float x) {
    uint32_t bits;
    if (type != ATTN_F32) return ref_half(type, (double)x);
    memcpy(&bits, &x, sizeof bits);
    return x != x ? 0x7fc00000u : bits;
}
static float float_at(const attn_view *v, int64_t b, int64_t h, int64_t i, int64_t x) {
    return (float)ref_at(v, b, h, i, x);
}
static float rounded_difference(float a, float b, float c, float d) { /* a b - c d, three roundings */
    volatile float first = a * b, second = c * d;
    return first - second;
}
static void rope_check(attn_view x, attn_view cosines, attn_view sines, attn_view positions, uint32_t flags,
                       const attn_out *out) {
    const attn_view got = attn_view_of(*out);
    const int64_t half = cosines.size[1];
    int wrong = 0;
    int64_t at[4] = {0, 0, 0, 0}, low, high;
    if (!view_extent(&got, &low, &high)) return;
    do {
        int64_t column = at[3], n = flags & ATTN_ROPE_INTERLEAVED ? column / 2 : column % (half ? half : 1), other;
        int second = flags & ATTN_ROPE_INTERLEAVED ? (int)(column % 2) : column >= half;
        int64_t p = !positions.rank       ? at[2]
                    : positions.rank == 1 ? ref_int(&positions, at[0], 0) + at[2]
                                          : ref_int(&positions, at[0], at[2]);
        float a = float_at(&x, at[0], at[1], at[2], column), c, s, want = a;
        if (column < 2 * half) {
            other = flags & ATTN_ROPE_INTERLEAVED ? column ^ 1 : second ? column - half : column + half;
            c = float_at(&cosines, 0, 0, p, n), s = float_at(&sines, 0, 0, p, n);
            if (second != ((flags & ATTN_ROPE_INVERSE) != 0)) s = -s;
            float b = float_at(&x, at[0], at[1], at[2], other);
            want = rounded_difference(a, c, b, s);
            double exact = (double)a * (double)c - (double)b * (double)s;
            if (isfinite(want)) CHECK_CLOSE(want, exact, 2e-7 * (fabs((double)a * c) + fabs((double)b * s)) + 1e-44);
        }
        if (bits_at(&got, at) != as_bits(got.type, want)) wrong++;
    } while (next_index(&got, at));
    CHECKF(!wrong, "%d of [%ld,%ld,%ld,%ld], R %ld, flags %d, types %d %d, strides %ld %ld", wrong, (long)x.size[0],
           (long)x.size[1], (long)x.size[2], (long)x.size[3], 2 * (long)half, (int)flags, x.type, got.type,
           (long)x.stride[3], (long)got.stride[3]);
}
static void rope_any(void) {
    for (int again = 0; again < 800; again++) {
        const int large = again % 8 == 0, table = test_int(1, 20);
        int64_t b = test_int(0, 3), h = test_int(0, large ? 40 : 4), s = test_int(0, large ? 40 : 5), d;
        d = test_int(0, large ? 60 : again % 8 == 3 ? 2400 : 320);
        int64_t half = test_int(0, 2) ? d / 2 : test_int(0, (int)d / 2), rows = s + table;
        attn_view x = make_view(any_type(), again % 3 ? any_layout(2) : any_layout(LAYOUT_COUNT), 4, b, h, s, d);
        layout how = again % 3 ? LAYOUT_PACKED : any_layout(LAYOUT_COUNT);
        attn_view cosines = make_filled(how, 1, 2, rows, half, 0, 0), sines = make_filled(how, 1, 2, rows, half, 0, 0);
        attn_view positions = none, before;
        attn_out out =
            make_out_of(again % 5 ? x.type : any_type(), again % 3 ? any_layout(2) : any_layout(3), 4, b, h, s, d);
        const uint32_t flags = (uint32_t)test_int(0, 3);
        fill(&x, draw_normal, 0, 2);
        if (again % 7 == 0 && b * h * s * d > 0)
            for (int n = 0; n < 5; n++) {
                static const double odd[4] = {NAN, INFINITY, -INFINITY, 0};
                put_at(&x, test_int(0, (int)b - 1), test_int(0, (int)h - 1), test_int(0, (int)s - 1),
                       test_int(0, (int)d - 1), odd[test_int(0, 3)]);
            }
        if (again % 4 == 1) positions = make_ints(any_int(), 1, b, 0, 0, 0, 0, table);
        if (again % 4 == 2) positions = make_ints(any_int(), 2, b, s, 0, 0, 0, (int)rows - 1);
        before = copy_view(&x, LAYOUT_PACKED);
        if (again % 6 == 5) { /* in place */
            out = make_out_of(x.type, any_layout(3), 4, b, h, s, d);
            attn_view same = attn_view_of(out);
            int64_t at[4] = {0, 0, 0, 0}, low, high;
            if (view_extent(&same, &low, &high)) do
                    memcpy((char *)out.data + offset_of(&same, at) * (int64_t)type_bytes(x.type),
                           (const char *)before.data + offset_of(&before, at) * (int64_t)type_bytes(x.type),
                           type_bytes(x.type));
                while (next_index(&same, at));
            x = same;
        }
        CHECK_STATUS(attn_rope(x, cosines, sines, positions, flags, out, 0), ATTN_OK);
        rope_check(before, cosines, sines, positions, flags, &out);
        CHECK(gaps_untouched(&out));
        test_release();
    }
}
/* Back and forth; of a large array, where rows are taken together another way. */
static void rope_back(void) {
    enum { S = 300, H = 60, D = 128 };
    for (uint32_t flags = 0; flags < 2; flags++)
        for (int by_head = 0; by_head < 2; by_head++) {
            attn_view x = make_filled(by_head ? LAYOUT_BSHD : LAYOUT_PACKED, 1, 4, 1, H, S, D);
            attn_out cosines = make_out(LAYOUT_PACKED, 2, S, D / 2, 0, 0),
                     sines = make_out(LAYOUT_PACKED, 2, S, D / 2, 0, 0);
            attn_out out = make_out(by_head ? LAYOUT_BSHD : LAYOUT_PACKED, 4, 1, H, S, D);
            const attn_view c = attn_view_of(cosines), s = attn_view_of(sines);
            CHECK_STATUS(attn_rope_table(cosines, sines, 0, 0), ATTN_OK);
            CHECK_STATUS(attn_rope(x, c, s, none, flags, out, 0), ATTN_OK);
            for (int n = 0; n < 200; n++) {
                int64_t h = test_int(0, H - 1), i = test_int(0, S - 1);
                attn_out row = make_out(LAYOUT_PACKED, 4, 1, 1, 1, D);
                attn_view p = make_ints(ATTN_I32, 1, 1, 0, 0, 0, (int)i, (int)i), whole = attn_view_of(out);
                CHECK_STATUS(attn_rope(slice_row(x, 0, h, i), c, s, p, flags, row, 0), ATTN_OK);
                for (int64_t d = 0; d < D; d++) CHECK(((float *)row.data)[d] == float_at(&whole, 0, h, i, d));
            }
            CHECK_STATUS(attn_rope(attn_view_of(out), c, s, none, flags | ATTN_ROPE_INVERSE, out, 0), ATTN_OK);
            double worst = 0;
            attn_view back = attn_view_of(out);
            for (int64_t h = 0; h < H; h++)
                for (int64_t i = 0; i < S; i++)
                    for (int64_t d = 0; d < D; d++)
                        worst = fmax(worst, fabs(ref_at(&x, 0, h, i, d) - ref_at(&back, 0, h, i, d)));
            CHECK_CLOSE(worst, 0, 3e-6);
            test_release();
        }
}
static void rope_errors(void) {
    float *x = test_floats(2 * 2 * 3 * 8), table[8 * 4], *y = test_floats(2 * 2 * 3 * 8);
    int32_t p[6] = {0, 1, 2, 3, 4, 5};
    const attn_view v = attn_view_bhsd(x, 2, 2, 3, 8), c = attn_view_f32(table, 2, 8, 4, 0, 0);
    attn_view ps = attn_view_i32(p, 2, 2, 3, 0, 0), p1 = attn_view_i32(p, 1, 2, 0, 0, 0), wide = c, few = c;
    attn_out o = attn_out_bhsd(y, 2, 2, 3, 8), nowhere, shifted = attn_out_bhsd(x + 1, 2, 2, 3, 8), turned;
    char text[200];
    attn_error e;
    memset(&nowhere, 0, sizeof nowhere), memset(table, 0, sizeof table);
    memory y_before = remember(&o);
    turned = attn_out_bhsd(x, 2, 2, 3, 8);
    turned.stride[1] = 8, turned.stride[2] = 16;
    wide.size[1] = 5, few.size[0] = 2;
    REFUSED(attn_rope(none, c, c, none, 0, o, &err), ATTN_ERR_NULL, "x");
    REFUSED(attn_rope(v, none, c, none, 0, o, &err), ATTN_ERR_NULL, "cosines");
    REFUSED(attn_rope(v, c, none, none, 0, o, &err), ATTN_ERR_NULL, "sines");
    REFUSED(attn_rope(v, c, c, none, 0, nowhere, &err), ATTN_ERR_NULL, "out");
    REFUSED(attn_rope(attn_view_swap(v, 1, 2), c, c, none, 0, o, &err), ATTN_ERR_SIZE, "out.size[1]");
    REFUSED(attn_rope(attn_view_f32(x, 3, 4, 3, 8, 0), c, c, none, 0, o, &err), ATTN_ERR_RANK, "x.rank");
    REFUSED(attn_rope(v, c, attn_view_slice(c, 0, 0, 7), none, 0, o, &err), ATTN_ERR_SIZE, "sines.size[0]");
    REFUSED(attn_rope(v, c, attn_view_slice(c, 1, 0, 3), none, 0, o, &err), ATTN_ERR_SIZE, "sines.size[1]");
    REFUSED(attn_rope(v, wide, wide, none, 0, o, &err), ATTN_ERR_SIZE, "cosines.size[1]");
    REFUSED(attn_rope(v, few, few, none, 0, o, &err), ATTN_ERR_SIZE, "cosines.size[0]");
    REFUSED(attn_rope(v, attn_view_typed(ATTN_F16, table, 2, 8, 4, 0, 0), c, none, 0, o, &err), ATTN_ERR_TYPE,
            "cosines.type");
    REFUSED(attn_rope(attn_view_typed(ATTN_I8, x, 4, 2, 2, 3, 8), c, c, none, 0, o, &err), ATTN_ERR_TYPE, "x.type");
    REFUSED(attn_rope(v, c, c, attn_view_f32(table, 1, 2, 0, 0, 0), 0, o, &err), ATTN_ERR_TYPE, "positions.type");
    REFUSED(attn_rope(v, c, c, attn_view_i32(p, 1, 3, 0, 0, 0), 0, o, &err), ATTN_ERR_SIZE, "positions.size[0]");
    REFUSED(attn_rope(v, c, c, attn_view_i32(p, 2, 2, 2, 0, 0), 0, o, &err), ATTN_ERR_SIZE, "positions.size[1]");
    REFUSED(attn_rope(v, c, c, none, 4, o, &err), ATTN_ERR_OPTION, "flags");
    REFUSED(attn_rope(v, c, c, none, 0, shifted, &err), ATTN_ERR_OVERLAP, "out");
    REFUSED(attn_rope(v, c, c, none, 0, turned, &err), ATTN_ERR_OVERLAP, "out");
    REFUSED(attn_rope(v, attn_view_f32(y, 2, 8, 4, 0, 0), c, none, 0, o, &err), ATTN_ERR_OVERLAP, "out");
    p[4] = 8;
    REFUSED_AT(attn_rope(v, c, c, ps, 0, o, &err), ATTN_ERR_RANGE, "positions", 2, 1, 1);
    attn_rope(v, c, c, ps, 0, o, &e);
    attn_error_string(&e, text, sizeof text);
    CHECKF(strstr(text, ": 7, is 8 at [1,1]") != 0, "%s", text);
    p[2] = -1;
    REFUSED_AT(attn_rope(v, c, c, ps, 0, o, &err), ATTN_ERR_RANGE, "positions", 2, 0, 2);
    p[1] = 6;
    REFUSED_AT(attn_rope(v, c, c, p1, 0, o, &err), ATTN_ERR_RANGE, "positions", 1, 1, 0);
    p[0] = -3;
    REFUSED_AT(attn_rope(v, c, c, p1, 0, o, &err), ATTN_ERR_RANGE, "positions", 1, 0, 0);
    CHECK(unchanged(&y_before));
    p[0] = 0, p[1] = 5;
    CHECK_STATUS(attn_rope(v, c, c, p1, 0, o, &e), ATTN_OK);
    p1.stride[0] = 0; /* one for all entries */
    CHECK_STATUS(attn_rope(v, c, c, p1, 0, o, &e), ATTN_OK);
}

/* ---- tables against the formulas, in the widest type there is */
static attn_rope_desc rope_kind(int kind) {
    attn_rope_desc d;
    memset(&d, 0, sizeof d);
    d.scaling = kind % ATTN_ROPE_SCALING_COUNT;
    if (kind) d.base = kind % 2 ? 500000 : 1e6;
    if (d.scaling != ATTN_ROPE_PLAIN) d.factor = kind % 3 ? 8 : 2.5;
    if (d.scaling >= ATTN_ROPE_YARN) d.original_positions = kind % 3 ? 8192 : 4096;
    if (kind >= ATTN_ROPE_SCALING_COUNT) {
        d.first_position = 1234567;
        if (d.scaling == ATTN_ROPE_YARN)
            d.no_truncation = 1, d.beta_fast = 40, d.beta_slow = 2, d.attention_factor = 0.7;
        if (d.scaling == ATTN_ROPE_LLAMA3) d.low_freq_factor = 0.5, d.high_freq_factor = 7;
    }
    return d;
}
static double rope_frequency(const attn_rope_desc *d, int64_t n, int64_t size) {
    const double pi = 3.14159265358979323846, base = d->base != 0 ? d->base : 10000;
    long double wide = (long double)base;
    if (d->scaling == ATTN_ROPE_NTK && size > 2)
        wide *= powl((long double)d->factor, (long double)size / (long double)(size - 2));
    const double w = (double)powl(wide, -2.0L * (long double)n / (long double)size);
    if (d->scaling == ATTN_ROPE_LINEAR) return w / d->factor;
    if (d->scaling == ATTN_ROPE_YARN) {
        double fast = d->beta_fast != 0 ? d->beta_fast : 32, slow = d->beta_slow != 0 ? d->beta_slow : 1, r;
        double low = (double)size * log((double)d->original_positions / (fast * 2 * pi)) / (2 * log(base));
        double high = (double)size * log((double)d->original_positions / (slow * 2 * pi)) / (2 * log(base));
        if (!d->no_truncation) low = floor(low), high = ceil(high);
        low = fmax(low, 0), high = fmin(high, (double)size - 1);
        if (low == high) high += 0.001;
        r = fmin(fmax(((double)n - low) / (high - low), 0), 1);
        return w / d->factor * r + w * (1 - r);
    }
    if (d->scaling == ATTN_ROPE_LLAMA3) {
        double least = d->low_freq_factor != 0 ? d->low_freq_factor : 1;
        double most = d->high_freq_factor != 0 ? d->high_freq_factor : 4, length = 2 * pi / w;
        if (length < (double)d->original_positions / most) return w;
        if (length > (double)d->original_positions / least) return w / d->factor;
        double smooth = ((double)d->original_positions / length - least) / (most - least);
        return (1 - smooth) * w / d->factor + smooth * w;
    }
    return w;
}
static void rope_tables(void) {
    static const int64_t positions[] = {0, 1, 2, 3, 17, 1000, 4095, 65535, 1 << 23};
    for (int kind = 0; kind < 2 * ATTN_ROPE_SCALING_COUNT; kind++)
        for (int again = 0; again < 6; again++) {
            attn_rope_desc d = rope_kind(kind);
            const int64_t half = again == 0 ? 1 : again == 1 ? 2 : again == 2 ? 64 : test_int(1, 90);
            if (d.scaling == ATTN_ROPE_YARN && again > 2) d.original_positions = 2 * again - 2; /* c from -1 to 0 too */
            if (again == 3 || again == 4) d.base = again == 3 ? 370727 : 46341; /* about 2^18.5, 2^15.5 */
            const double m = d.scaling != ATTN_ROPE_YARN ? 1
                             : d.attention_factor != 0   ? d.attention_factor
                                                         : 0.1 * log(d.factor) + 1;
            for (size_t n = 0; n < sizeof positions / sizeof *positions; n++) {
                attn_rope_desc at = d;
                at.first_position += positions[n];
                attn_out c = make_out(any_layout(3), 2, 3, half, 0, 0), s = make_out(any_layout(3), 2, 3, half, 0, 0);
                const attn_view cosines = attn_view_of(c), sines = attn_view_of(s);
                CHECK_STATUS(attn_rope_table(c, s, &at, 0), ATTN_OK);
                CHECK(gaps_untouched(&c) && gaps_untouched(&s));
                for (int64_t p = 0; p < 3; p++)
                    for (int64_t i = 0; i < half; i++) {
                        double angle = (double)(at.first_position + p) * rope_frequency(&d, i, 2 * half);
                        double cosine = m * cos(angle), sine = m * sin(angle), off = angle * 4e-16 * m;
                        CHECK_CLOSE(ref_at(&cosines, 0, 0, p, i), cosine, fabs(cosine) * 0x1p-23 + off);
                        CHECK_CLOSE(ref_at(&sines, 0, 0, p, i), sine, fabs(sine) * 0x1p-23 + off);
                    }
                test_release();
            }
        }
    attn_out c = make_out(LAYOUT_PACKED, 2, 2, 3, 0, 0), s = make_out(LAYOUT_PACKED, 2, 2, 3, 0, 0);
    attn_out c0 = make_out(LAYOUT_PACKED, 2, 2, 3, 0, 0), s0 = make_out(LAYOUT_PACKED, 2, 2, 3, 0, 0);
    attn_rope_desc d;
    memset(&d, 0, sizeof d);
    CHECK_STATUS(attn_rope_table(c, s, &d, 0), ATTN_OK);
    CHECK_STATUS(attn_rope_table(c0, s0, 0, 0), ATTN_OK);
    check_same(&c, &c0, "defaults");
    check_same(&s, &s0, "defaults");
    d.struct_bytes = sizeof d;
    CHECK_STATUS(attn_rope_table(c0, s0, &d, 0), ATTN_OK);
    check_same(&c, &c0, "struct_bytes");
}
/* The same bits on every machine: tables of each kind, and what turns by them. */
static void rope_bits(void) {
    enum { S = 64, HALF = 40, D = 96 };
    static float cosines[S * HALF], sines[S * HALF], x[2 * S * D], y[2 * S * D];
    uint64_t hash = 14695981039346656037u;
    for (int i = 0; i < 2 * S * D; i++) x[i] = (float)((i * 7919) % 2001 - 1000) / 256;
    for (int kind = 0; kind < 2 * ATTN_ROPE_SCALING_COUNT; kind++) {
        const attn_rope_desc d = rope_kind(kind);
        const attn_view c = attn_view_f32(cosines, 2, S, HALF, 0, 0), s = attn_view_f32(sines, 2, S, HALF, 0, 0);
        CHECK_STATUS(
            attn_rope_table(attn_out_f32(cosines, 2, S, HALF, 0, 0), attn_out_f32(sines, 2, S, HALF, 0, 0), &d, 0),
            ATTN_OK);
        CHECK_STATUS(
            attn_rope(attn_view_bhsd(x, 1, 2, S, D), c, s, none, (uint32_t)kind % 4, attn_out_bhsd(y, 1, 2, S, D), 0),
            ATTN_OK);
        for (int i = 0; i < 2 * S * D; i++) hash = (hash ^ as_bits(ATTN_F32, y[i])) * 1099511628211u;
    }
    CHECKF(hash == 0x26bf68a036969be0u, "%llx", (unsigned long long)hash);
}
#define TABLE(status, field, change) \
    do { \
        attn_rope_desc d = rope_kind(ATTN_ROPE_PLAIN); \
        change; \
        REFUSED(attn_rope_table(c, s, &d, &err), status, field); \
    } while (0)
static void rope_table_errors(void) {
    static float m[2][6];
    attn_out c = attn_out_f32(m[0], 2, 2, 3, 0, 0), s = attn_out_f32(m[1], 2, 2, 3, 0, 0), nowhere;
    memset(&nowhere, 0, sizeof nowhere);
    memset(m, 0x5a, sizeof m);
    memory c_before = remember(&c), s_before = remember(&s);
    TABLE(ATTN_ERR_OPTION, "struct_bytes", d.struct_bytes = 8);
    TABLE(ATTN_ERR_OPTION, "scaling", d.scaling = -1);
    TABLE(ATTN_ERR_OPTION, "scaling", d.scaling = ATTN_ROPE_SCALING_COUNT);
    TABLE(ATTN_ERR_RANGE, "base", d.base = 0.5);
    TABLE(ATTN_ERR_RANGE, "base", d.base = -10000);
    TABLE(ATTN_ERR_RANGE, "base", d.base = NAN);
    TABLE(ATTN_ERR_RANGE, "base", d.base = 2e18);
    TABLE(ATTN_ERR_OPTION, "factor", d.factor = 2);
    TABLE(ATTN_ERR_RANGE, "factor", d.scaling = ATTN_ROPE_LINEAR);
    TABLE(ATTN_ERR_RANGE, "factor", (d.scaling = ATTN_ROPE_NTK, d.factor = 0.9));
    TABLE(ATTN_ERR_RANGE, "factor", (d.scaling = ATTN_ROPE_NTK, d.factor = INFINITY));
    TABLE(ATTN_ERR_OPTION, "original_positions", d.original_positions = 4096);
    TABLE(ATTN_ERR_OPTION, "original_positions", (d = rope_kind(2), d.original_positions = 4096));
    TABLE(ATTN_ERR_RANGE, "original_positions", (d = rope_kind(3), d.original_positions = 0));
    TABLE(ATTN_ERR_RANGE, "original_positions", (d = rope_kind(4), d.original_positions = -1));
    TABLE(ATTN_ERR_RANGE, "original_positions", (d = rope_kind(4), d.original_positions = ((int64_t)1 << 48) + 1));
    TABLE(ATTN_ERR_OPTION, "low_freq_factor", (d = rope_kind(3), d.low_freq_factor = 1));
    TABLE(ATTN_ERR_OPTION, "high_freq_factor", d.high_freq_factor = 4);
    TABLE(ATTN_ERR_RANGE, "high_freq_factor", (d = rope_kind(4), d.low_freq_factor = 4));
    TABLE(ATTN_ERR_RANGE, "low_freq_factor", (d = rope_kind(4), d.low_freq_factor = -1));
    TABLE(ATTN_ERR_OPTION, "beta_fast", (d = rope_kind(4), d.beta_fast = 32));
    TABLE(ATTN_ERR_OPTION, "beta_slow", d.beta_slow = 1);
    TABLE(ATTN_ERR_RANGE, "beta_slow", (d = rope_kind(3), d.beta_slow = 33));
    TABLE(ATTN_ERR_RANGE, "beta_fast", (d = rope_kind(3), d.beta_fast = NAN));
    TABLE(ATTN_ERR_OPTION, "attention_factor", d.attention_factor = 1);
    TABLE(ATTN_ERR_RANGE, "attention_factor", (d = rope_kind(3), d.attention_factor = -1));
    float factors[3] = {1, 0.25f, INFINITY};
    const attn_view each = attn_view_f32(factors, 1, 3, 0, 0, 0);
    for (int kind = 1; kind < ATTN_ROPE_SCALING_COUNT; kind++)
        TABLE(ATTN_ERR_OPTION, "factors", (d = rope_kind(kind), d.factors = each));
    TABLE(ATTN_ERR_OPTION, "factor", (d.factors = each, d.factor = 2));
    TABLE(ATTN_ERR_RANGE, "attention_factor", (d.factors = each, d.attention_factor = INFINITY));
    TABLE(ATTN_ERR_SIZE, "factors.size[0]", (d.factors = each, d.factors.size[0] = 2));
    TABLE(ATTN_ERR_TYPE, "factors.type", (d.factors = each, d.factors.type = ATTN_F16));
    TABLE(ATTN_ERR_NULL, "factors.data", (d.factors = each, d.factors.data = 0));
    TABLE(ATTN_ERR_OVERLAP, "cosines", (d.factors = each, d.factors.data = m[0]));
    static const float wrong[] = {0.24f, 0, -1, -INFINITY, NAN};
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        attn_rope_desc d = rope_kind(ATTN_ROPE_PLAIN);
        d.factors = each, factors[1] = wrong[n];
        REFUSED(attn_rope_table(c, s, &d, &err), ATTN_ERR_RANGE, "factors");
    }
    TABLE(ATTN_ERR_OPTION, "no_truncation", d.no_truncation = 1);
    TABLE(ATTN_ERR_OPTION, "no_truncation", (d = rope_kind(3), d.no_truncation = 2));
    TABLE(ATTN_ERR_RANGE, "first_position", d.first_position = -1);
    TABLE(ATTN_ERR_RANGE, "first_position", d.first_position = (1 << 24) + 1);
    TABLE(ATTN_ERR_RANGE, "cosines.size[0]", d.first_position = 1 << 24);
    REFUSED(attn_rope_table(nowhere, s, 0, &err), ATTN_ERR_NULL, "cosines");
    REFUSED(attn_rope_table(c, nowhere, 0, &err), ATTN_ERR_NULL, "sines");
    REFUSED(attn_rope_table(c, c, 0, &err), ATTN_ERR_OVERLAP, "cosines");
    REFUSED(attn_rope_table(c, attn_out_f32(m[1], 2, 2, 2, 0, 0), 0, &err), ATTN_ERR_SIZE, "sines.size[1]");
    REFUSED(attn_rope_table(attn_out_typed(ATTN_F16, m[0], 2, 2, 3, 0, 0), s, 0, &err), ATTN_ERR_TYPE, "cosines.type");
    CHECK(unchanged(&c_before) && unchanged(&s_before));
}

/* Each number on both sides of its limits, what 0 stands for, and where it does not count. */
#define ROPE_NUMBER(kinds, name, least, most, usual) \
    { kinds, offsetof(attn_rope_desc, name), #name, least, most, usual }
static const struct {
    int kinds; /* a bit for each scaling */
    size_t at;
    const char *name;
    double least, most, usual; /* usual: 0 where 0 stands for no number that could be given */
} rope_numbers[] = {ROPE_NUMBER(31, base, 1 + 0x1p-52, 1e18, 10000),
                    ROPE_NUMBER(30, factor, 1, 1e18, 0),
                    ROPE_NUMBER(16, low_freq_factor, 1e-18, 1e18 - 128, 1),
                    ROPE_NUMBER(16, high_freq_factor, 1e-18 + 0x1p-112, 1e18, 4),
                    ROPE_NUMBER(8, beta_fast, 1e-18, 1e18, 32),
                    ROPE_NUMBER(8, beta_slow, 1e-18, 1e18, 1),
                    ROPE_NUMBER(8, attention_factor, 1e-18, 1e18, 0)};
static attn_rope_desc with_number(int kind, int n, double x) {
    attn_rope_desc d = rope_kind(kind);
    if (n == 2) d.high_freq_factor = 1e18; /* each of a pair has all the room there is */
    if (n == 3) d.low_freq_factor = 1e-18;
    if (n == 4) d.beta_slow = 1e-18;
    if (n == 5) d.beta_fast = 1e18;
    if (!(rope_numbers[n].kinds >> kind & 1)) d = rope_kind(kind);
    memcpy((char *)&d + rope_numbers[n].at, &x, sizeof x);
    return d;
}
static void rope_number(int kind, int n, attn_out c, attn_out s) {
    const char *name = rope_numbers[n].name;
    const double least = rope_numbers[n].least, most = rope_numbers[n].most, usual = rope_numbers[n].usual;
    attn_rope_desc d = with_number(kind, n, 2);
    if (!(rope_numbers[n].kinds >> kind & 1)) {
        REFUSED(attn_rope_table(c, s, &d, &err), ATTN_ERR_OPTION, name);
        return;
    }
    d = with_number(kind, n, least);
    CHECKF(attn_rope_table(c, s, &d, 0) == ATTN_OK, "%s of kind %d: the least is refused", name, kind);
    d = with_number(kind, n, most);
    CHECKF(attn_rope_table(c, s, &d, 0) == ATTN_OK, "%s of kind %d: the most is refused", name, kind);
    d = with_number(kind, n, nextafter(least, 0));
    REFUSED(attn_rope_table(c, s, &d, &err), ATTN_ERR_RANGE, name);
    d = with_number(kind, n, nextafter(1e18, INFINITY));
    REFUSED(attn_rope_table(c, s, &d, &err), ATTN_ERR_RANGE, name);
    if (usual == 0) return;
    attn_out c0 = make_out(LAYOUT_PACKED, 2, 9, 32, 0, 0), s0 = make_out(LAYOUT_PACKED, 2, 9, 32, 0, 0);
    d = with_number(kind, n, 0);
    CHECK_STATUS(attn_rope_table(c, s, &d, 0), ATTN_OK);
    d = with_number(kind, n, usual);
    CHECK_STATUS(attn_rope_table(c0, s0, &d, 0), ATTN_OK);
    check_same(&c, &c0, name);
    check_same(&s, &s0, name);
}
static void rope_table_limits(void) {
    attn_out c = make_out(LAYOUT_PACKED, 2, 9, 32, 0, 0), s = make_out(LAYOUT_PACKED, 2, 9, 32, 0, 0);
    attn_rope_desc d;
    for (int kind = 0; kind < ATTN_ROPE_SCALING_COUNT; kind++)
        for (int n = 0; n < 7; n++) rope_number(kind, n, c, s);
    for (int kind = ATTN_ROPE_YARN; kind <= ATTN_ROPE_LLAMA3; kind++) {
        d = rope_kind(kind), d.original_positions = 1;
        CHECK_STATUS(attn_rope_table(c, s, &d, 0), ATTN_OK);
        d.original_positions = (int64_t)1 << 48;
        CHECK_STATUS(attn_rope_table(c, s, &d, 0), ATTN_OK);
    }
    d = rope_kind(ATTN_ROPE_YARN), d.beta_slow = d.beta_fast = 7;
    CHECK_STATUS(attn_rope_table(c, s, &d, 0), ATTN_OK);
    d = rope_kind(ATTN_ROPE_PLAIN), d.first_position = (1 << 24) - 8; /* the last of 9 rows is 2^24 */
    CHECK_STATUS(attn_rope_table(c, s, &d, 0), ATTN_OK);
    d.first_position++;
    REFUSED(attn_rope_table(c, s, &d, &err), ATTN_ERR_RANGE, "cosines.size[0]");
    d.first_position = 1 << 24; /* and its one row */
    CHECK_STATUS(attn_rope_table(attn_out_slice(c, 0, 0, 1), attn_out_slice(s, 0, 0, 1), &d, 0), ATTN_OK);
}

/* ---- a cache that grows: the bits of attn_convert and attn_quantize, row by row, and nothing else written */
static attn_out append_room(int32_t type, layout how, int64_t n0, int64_t n1, int64_t n2, int64_t n3, attn_out *twin) {
    attn_out o = make_out_of(type, how, 4, n0, n1, n2, n3);
    attn_view v = attn_view_of(o);
    int64_t low, high;
    size_t bytes = view_extent(&v, &low, &high) ? (size_t)(high + 1) * type_bytes(type) : 0;
    for (size_t i = 0; i < bytes; i++) ((unsigned char *)o.data)[i] = (unsigned char)test_int(0, 120);
    *twin = o;
    twin->data = test_guarded(bytes);
    memcpy(twin->data, o.data, bytes);
    return o;
}
static int append_same(const attn_out *a, const attn_out *b) {
    attn_view v = attn_view_of(*a);
    int64_t low, high;
    return !view_extent(&v, &low, &high) || !memcmp(a->data, b->data, (size_t)(high + 1) * type_bytes(a->type));
}
static attn_out append_row(attn_out o, int64_t b, int64_t row) {
    return attn_out_slice(attn_out_slice(o, 0, b, 1), 2, row, 1);
}
static void append_once(int again) {
    enum { FRESH_PACKED = 1, CACHE_PACKED = 2, PAGED = 4, RAGGED = 8 };
    const int how = test_int(0, 15), codes = test_int(0, 2) == 0, paged = (how & PAGED) != 0;
    const int packed = !paged && how & CACHE_PACKED, groups = test_int(0, 1);
    const int64_t entries = test_int(0, 4), heads = test_int(0, 3), most = test_int(0, 7), d = test_int(0, 70);
    const int64_t page = test_int(1, 5), pages = test_int(1, 6), pool = entries * pages + 2;
    const int64_t capacity = paged ? page * pages : most + test_int(0, 9);
    const int32_t type = codes ? ATTN_I8 : any_type();
    attn_view fresh = make_view(any_type(), any_layout(LAYOUT_COUNT), 4, how & FRESH_PACKED ? 1 : entries, heads,
                                how & FRESH_PACKED ? most * entries : most, d);
    attn_view lengths = make_view(any_int(), LAYOUT_GAPS, 1, entries, 0, 0, 0), ql = lengths, qs, ks, table;
    attn_out twin, scale_twin, scale;
    const int64_t rows = packed  ? capacity * entries
                         : paged ? page
                                 : capacity,
                  batch = packed  ? 1
                          : paged ? pool
                                  : entries;
    attn_out cache = append_room(type, any_layout(3), batch, heads, rows, d, &twin);
    attn_desc o;
    memset(&o, 0, sizeof o), memset(&scale, 0, sizeof scale), memset(&scale_twin, 0, sizeof scale_twin);
    fill(&fresh, draw_normal, 0, 3);
    ql = make_view(any_int(), LAYOUT_PACKED, 1, entries, 0, 0, 0),
    qs = make_view(any_int(), LAYOUT_PACKED, 1, entries, 0, 0, 0);
    ks = make_view(any_int(), LAYOUT_PACKED, 1, entries, 0, 0, 0);
    table = make_view(any_int(), LAYOUT_MIXED, 2, entries, pages, 0, 0);
    for (int64_t b = 0; b < entries; b++) {
        int64_t n = how & (RAGGED | FRESH_PACKED) ? test_int(0, (int)most) : most, start = capacity - most;
        int64_t room = capacity - n < 0 ? 0 : capacity - n, left = packed || how & RAGGED ? test_int(0, (int)room) : 0;
        if (n > capacity) n = capacity;
        (void)start;
        put_at(&ql, 0, 0, 0, b, (double)n);
        put_at(&qs, 0, 0, 0, b, (double)(how & FRESH_PACKED ? b * most : test_int(0, (int)(most - n))));
        put_at(&ks, 0, 0, 0, b, (double)((packed ? b * capacity : 0) + left));
        put_at(&lengths, 0, 0, 0, b, test_int(0, (int)(capacity - left - n)));
        for (int64_t i = 0; i < pages; i++) put_at(&table, 0, 0, b, i, (double)(b * pages + pages - 1 - i));
    }
    const int starts = how & FRESH_PACKED || test_int(0, 1), keys = packed || how & RAGGED;
    o.query_lengths = ql;
    if (starts) o.query_starts = qs;
    if (keys) o.key_starts = ks;
    if (paged) o.page_table = table;
    if (codes) {
        scale = append_room(test_int(0, 1) ? ATTN_F32 : ATTN_F16, any_layout(3), batch, heads, rows,
                            groups ? (d + 31) / 32 : 1, &scale_twin);
        if (again % 2) o.k_scale = attn_view_of(scale);
        else o.v_scale = attn_view_of(scale);
    }
    o.causal = 1, o.sigma = 3; /* ignored */
    memory before = remember((attn_out *)(void *)&lengths);
    CHECK_STATUS(attn_append(fresh, cache, lengths, &o, 0), ATTN_OK);
    CHECK(unchanged(&before));
    for (int64_t b = 0; b < entries; b++)
        for (int64_t i = 0; i < ref_int(&ql, b, 0); i++) {
            int64_t to = ref_int(&lengths, b, 0) + i + (keys ? ref_int(&ks, b, 0) : 0), row = to % page;
            int64_t from = i + (starts ? ref_int(&qs, b, 0) : 0), at = packed ? 0 : b;
            if (paged) at = ref_int(&table, b, to / page);
            else row = to;
            attn_view x = attn_view_slice(attn_view_slice(fresh, 0, how & FRESH_PACKED ? 0 : b, 1), 2, from, 1);
            attn_status st = codes ? attn_quantize(x, append_row(twin, at, row), append_row(scale_twin, at, row), 0)
                                   : attn_convert(x, append_row(twin, at, row), 0);
            CHECK_STATUS(st, ATTN_OK);
        }
    CHECKF(append_same(&cache, &twin), "case %d: ways %d, type %d", again, how, (int)type);
    CHECKF(!codes || append_same(&scale, &scale_twin), "case %d: scales, ways %d", again, how);
    test_release();
}
static void append_any(void) {
    for (int again = 0; again < 1500; again++) append_once(again);
}
static void append_errors(void) {
    enum { B = 2, H = 2, N = 3, S = 8, D = 4 };
    static float fresh[B * H * N * D], cache[B * H * S * D], scales[B * H * S];
    static int8_t codes[B * H * S * D];
    int32_t lengths[B] = {2, 5}, ql[B] = {3, 3}, starts[B] = {0, 0}, pages[B * 4] = {0, 1, 2, 3, 3, 2, 1, 0};
    attn_view x = attn_view_bhsd(fresh, B, H, N, D), l = attn_view_i32(lengths, 1, B, 0, 0, 0), two;
    attn_out c = attn_out_bhsd(cache, B, H, S, D), i8 = attn_out_typed(ATTN_I8, codes, 4, B, H, S, D), nowhere;
    attn_out pool = attn_out_bhsd(cache, 8, H, 2, D);
    attn_view scale = attn_view_f32(scales, 4, B, H, S, 1), table = attn_view_i32(pages, 2, B, 4, 0, 0);
    attn_desc o;
    attn_error e;
    memset(&nowhere, 0, sizeof nowhere), memset(cache, 0x5a, sizeof cache), memset(codes, 0x5a, sizeof codes);
    memset(&o, 0, sizeof o);
    memory before = remember(&c), i8_before = remember(&i8);
    two = attn_view_i32(starts, 1, B, 0, 0, 0);
#define APPEND(status, field, places, i, j, change) \
    do { \
        memset(&o, 0, sizeof o); \
        change; \
        REFUSED_AT(attn_append(x, c, l, &o, &err), status, field, places, i, j); \
    } while (0)
    REFUSED(attn_append(none, c, l, 0, &err), ATTN_ERR_NULL, "fresh");
    REFUSED(attn_append(x, nowhere, l, 0, &err), ATTN_ERR_NULL, "cache");
    REFUSED(attn_append(x, c, none, 0, &err), ATTN_ERR_NULL, "lengths");
    REFUSED(attn_append(x, attn_out_bhsd(cache, B, H, S, D - 1), l, 0, &err), ATTN_ERR_SIZE, "cache.size[3]");
    REFUSED(attn_append(x, attn_out_bhsd(cache, B, H - 1, S, D), l, 0, &err), ATTN_ERR_SIZE, "cache.size[1]");
    REFUSED(attn_append(x, attn_out_bhsd(cache, B - 1, H, S, D), l, 0, &err), ATTN_ERR_SIZE, "cache.size[0]");
    REFUSED(attn_append(attn_view_slice(x, 0, 0, 1), c, l, 0, &err), ATTN_ERR_SIZE, "fresh.size[0]");
    REFUSED(attn_append(x, attn_out_typed(ATTN_U8, codes, 4, B, H, S, D), l, 0, &err), ATTN_ERR_TYPE, "cache.type");
    REFUSED(attn_append(attn_view_typed(ATTN_F64, fresh, 4, B, H, 1, D), c, l, 0, &err), ATTN_ERR_TYPE, "fresh.type");
    REFUSED(attn_append(x, c, attn_view_f32(fresh, 1, B, 0, 0, 0), 0, &err), ATTN_ERR_TYPE, "lengths.type");
    REFUSED(attn_append(x, attn_out_f32(cache, 3, B, S, D, 0), l, 0, &err), ATTN_ERR_RANK, "cache.rank");
    REFUSED(attn_append(attn_view_bhsd(cache + 5, B, H, N, D), c, l, 0, &err), ATTN_ERR_OVERLAP, "cache");
    REFUSED(attn_append(x, i8, l, 0, &err), ATTN_ERR_NULL, "k_scale");
    APPEND(ATTN_ERR_OPTION, "struct_bytes", 0, 0, 0, o.struct_bytes = 12);
    APPEND(ATTN_ERR_OPTION, "k_scale", 0, 0, 0, o.k_scale = scale);
    APPEND(ATTN_ERR_OPTION, "v_scale", 0, 0, 0, o.v_scale = scale);
    memset(&o, 0, sizeof o);
    o.k_scale = scale;
    o.v_scale = attn_view_f32(fresh, 4, B, H, 8, 1);
    REFUSED(attn_append(attn_view_bhsd(cache, B, H, N, D), i8, l, &o, &err), ATTN_ERR_OPTION, "v_scale");
    memset(&o, 0, sizeof o);
    o.v_scale = attn_view_f32(scales, 4, B, H, S - 1, 1);
    REFUSED(attn_append(x, i8, l, &o, &err), ATTN_ERR_SIZE, "v_scale.size[2]");
    o.v_scale = attn_view_f32(scales, 4, B, H / 2, S, 1);
    REFUSED(attn_append(x, i8, l, &o, &err), ATTN_ERR_SIZE, "v_scale.size[1]");
    o.v_scale = attn_view_f32(cache, 4, B, H, S, 2);
    REFUSED(attn_append(x, i8, l, &o, &err), ATTN_ERR_SIZE, "v_scale.size[3]");
    o.v_scale = attn_view_f32(fresh, 4, B, H, S, 1);
    REFUSED(attn_append(x, i8, l, &o, &err), ATTN_ERR_OVERLAP, "v_scale");
    lengths[0] = -1;
    APPEND(ATTN_ERR_RANGE, "lengths", 1, 0, 0, (void)0);
    lengths[0] = 0, lengths[1] = 6;
    APPEND(ATTN_ERR_RANGE, "lengths", 1, 1, 0, (void)0);
    attn_append(x, c, l, 0, &e);
    CHECK(e.got == 6 && e.want == S - N && e.has_numbers);
    lengths[1] = 5;
    starts[1] = 1;
    APPEND(ATTN_ERR_RANGE, "lengths", 1, 1, 0, o.key_starts = two);
    starts[1] = -1;
    APPEND(ATTN_ERR_RANGE, "key_starts", 1, 1, 0, o.key_starts = two);
    APPEND(ATTN_ERR_RANGE, "query_starts", 1, 1, 0, o.query_starts = two);
    starts[1] = INT32_MAX;
    APPEND(ATTN_ERR_RANGE, "key_starts", 1, 1, 0, o.key_starts = two);
    APPEND(ATTN_ERR_RANGE, "query_starts", 1, 1, 0, o.query_starts = two);
    int64_t far[B] = {0, INT64_MIN};
    two = attn_view_i64(far, 1, B, 0, 0, 0);
    for (int again = 0; again < 2; again++) {
        APPEND(ATTN_ERR_RANGE, "key_starts", 1, 1, 0, o.key_starts = two);
        APPEND(ATTN_ERR_RANGE, "query_starts", 1, 1, 0, o.query_starts = two);
        APPEND(ATTN_ERR_RANGE, "query_lengths", 1, 1, 0, o.query_lengths = two);
        REFUSED_AT(attn_append(x, c, two, 0, &err), ATTN_ERR_RANGE, "lengths", 1, 1, 0);
        far[1] = INT64_MAX;
    }
    starts[1] = 0, ql[0] = 4;
    APPEND(ATTN_ERR_RANGE, "query_lengths", 1, 0, 0, o.query_lengths = attn_view_i32(ql, 1, B, 0, 0, 0));
    ql[0] = -1;
    APPEND(ATTN_ERR_RANGE, "query_lengths", 1, 0, 0, o.query_lengths = attn_view_i32(ql, 1, B, 0, 0, 0));
    APPEND(ATTN_ERR_SIZE, "query_lengths.size[0]", 0, 0, 0, o.query_lengths = attn_view_i32(ql, 1, 1, 0, 0, 0));
    APPEND(ATTN_ERR_SIZE, "query_starts.size[0]", 0, 0, 0, o.query_starts = attn_view_i32(ql, 1, 1, 0, 0, 0));
    APPEND(ATTN_ERR_SIZE, "key_starts.size[0]", 0, 0, 0, o.key_starts = attn_view_i32(ql, 1, 1, 0, 0, 0));
    APPEND(ATTN_ERR_SIZE, "page_table.size[0]", 0, 0, 0, o.page_table = attn_view_i32(pages, 2, 1, 4, 0, 0));
    c = pool;
    lengths[0] = 1, lengths[1] = 5, pages[2] = 8; /* of entry 0, pages 0 and 1 are written; of entry 1, 2 and 3 */
    memset(&o, 0, sizeof o), o.page_table = table;
    pages[6] = -1;
    APPEND(ATTN_ERR_RANGE, "page_table", 2, 1, 2, o.page_table = table);
    pages[6] = 1, pages[1] = 8;
    APPEND(ATTN_ERR_RANGE, "page_table", 2, 0, 1, o.page_table = table);
    pages[1] = 1, lengths[1] = 6;
    APPEND(ATTN_ERR_RANGE, "lengths", 1, 1, 0, o.page_table = table);
    CHECK(unchanged(&before) && unchanged(&i8_before));
    lengths[1] = 5;
    CHECK_STATUS(attn_append(x, pool, l, &o, &e), ATTN_OK); /* page 8 is after what is written */
    CHECK(e.has_place == 0);
#undef APPEND
}

/* What a cache has room for beyond its keys costs no time: room for 2^34 keys, of which 64 are there, for one query
   with heads beside each other or apart, and for rows whose keys become floats for several tiles at once. */
static void room_costs_no_time(void) {
    enum { B = 8, KEYS = 64, SIZE = 16, MOST = 20 };
    const size_t rows = (size_t)B * MOST * SIZE;
    static int32_t lengths[B];
    static float first[4 * B * B * MOST * SIZE + B * B * KEYS * SIZE]; /* keys lie last, for their view reaches far */
    for (int n = 0; n < 6; n++) {
        const int64_t heads = n % 3 == 2 ? 1 : B, queries = n % 3 == 2 ? MOST : 1, width = heads * SIZE;
        float *k = first + 3 * rows * B;
        attn_desc d = {0};
        double seconds[2];
        for (size_t i = 2 * rows * B; i < sizeof first / sizeof *first; i++) first[i] = (float)test_int(-99, 99) / 64;
        for (int b = 0; b < B; b++) lengths[b] = KEYS;
        d.q = attn_view_bhsd(first + 2 * rows * B, B, heads, queries, SIZE);
        d.k = n < 3 ? attn_view_bhsd(k, B, heads, KEYS, SIZE) : attn_view_rows(k, B, KEYS, heads, SIZE, width);
        if (n % 3 == 2) d.k = attn_view_typed(ATTN_F16, k, 4, B, heads, KEYS, SIZE), d.k.stride[2] += n / 3;
        d.v = d.k, d.key_lengths = attn_view_i32(lengths, 1, B, 0, 0, 0);
        for (int far = 0; far < 2; far++) {
            const clock_t before = clock();
            d.out = attn_out_bhsd(first + (size_t)far * rows * B, B, heads, queries, SIZE);
            if (far) d.k.size[2] = d.v.size[2] = (int64_t)1 << 34;
            CHECK_STATUS(attn_forward(&d, 0), ATTN_OK);
            seconds[far] = (double)(clock() - before) / CLOCKS_PER_SEC;
        }
        CHECKF(seconds[1] < 0.2 + 20 * seconds[0], "way %d: %.3f s, without the room %.3f s", n, seconds[1],
               seconds[0]);
        CHECK(!memcmp(first, d.out.data, (size_t)(B * heads * queries * SIZE) * sizeof *first));
    }
}
/* Nor are keys prepared there, or a query's keys cut among tasks by what there could be. */
static void room_makes_no_tasks(void) {
    enum { SIZE = 4, KEYS = 300 };
    int32_t length = KEYS;
    float x[KEYS * SIZE], out[SIZE];
    attn_desc d = {0};
    attn_plan plan;
    for (int i = 0; i < KEYS * SIZE; i++) x[i] = (float)test_int(1, 9);
    d.q = attn_view_bhsd(x, 1, 1, 1, SIZE), d.k = d.v = attn_view_bhsd(x, 1, 1, KEYS, SIZE);
    d.k.size[2] = d.v.size[2] = 1 << 24;
    d.k.stride[2] = d.v.stride[2] = 0; /* so that they reach no other array */
    d.key_lengths = attn_view_i32(&length, 1, 1, 0, 0, 0), d.out = attn_out_bhsd(out, 1, 1, 1, SIZE);
    d.parallel.workers = 9;
    CHECK_STATUS(attn_plan_forward(&d, &plan, 0), ATTN_OK);
    CHECK(plan.phases == 1 && plan.tasks[0] == 1);
    d.score = ATTN_SCORE_COSINE;
    CHECK_STATUS(attn_plan_forward(&d, &plan, 0), ATTN_OK);
    CHECK(plan.phases == 2 && plan.tasks[0] == 2); /* blocks of 256 keys */
    length = 0;
    CHECK_STATUS(attn_plan_forward(&d, &plan, 0), ATTN_OK);
    CHECK(plan.phases == 2 && plan.tasks[0] == 1);
}

/* ---- calls without an element return at once, however long the axes are that have none */
enum { FAR = 1 << 28 };
static int64_t none_yet[4];
static float few[64];
static attn_view repeated(attn_view v) { /* of the axes that are long */
    for (int axis = 0; axis < v.rank; axis++)
        if (v.size[axis] == FAR) v.stride[axis] = 0;
    return v;
}
static attn_view empty(int rank, int64_t a, int64_t b, int64_t c, int64_t d) {
    return attn_view_f32(0, rank, a, b, c, d);
}
static attn_out nothing(int type, int rank, int64_t a, int64_t b, int64_t c, int64_t d) {
    return attn_out_typed((attn_type)type, 0, rank, a, b, c, d);
}
#define AT_ONCE(call) \
    do { \
        const clock_t before = clock(); \
        CHECK_STATUS(call, ATTN_OK); \
        CHECKF(clock() - before < CLOCKS_PER_SEC / 5, "%s: %.1f s", #call, \
               (double)(clock() - before) / CLOCKS_PER_SEC); \
    } while (0)
static void caches_of_nothing(void) {
    const attn_view lengths = repeated(attn_view_i64(none_yet, 1, FAR, 0, 0, 0));
    const attn_view table = attn_view_f32(few, 2, 1, 0, 0, 0), one = attn_view_i64(none_yet, 1, 1, 0, 0, 0);
    const attn_view each = repeated(attn_view_i64(none_yet, 2, 1, FAR, 0, 0));
    attn_desc o = {0};
    AT_ONCE(attn_append(empty(4, FAR, 1, 0, 4), nothing(ATTN_F32, 4, FAR, 1, 0, 4), lengths, 0, 0));
    AT_ONCE(attn_append(empty(4, 1, FAR, 1, 0), nothing(ATTN_F32, 4, 1, FAR, 1, 0), one, 0, 0));
    o.query_lengths = lengths;
    AT_ONCE(
        attn_append(repeated(attn_view_f32(few, 4, FAR, 1, 1, 4)), nothing(ATTN_F32, 4, FAR, 1, 0, 4), lengths, &o, 0));
    AT_ONCE(attn_rope(empty(4, FAR, 1, 1, 0), table, table, lengths, 0, nothing(ATTN_F32, 4, FAR, 1, 1, 0), 0));
    AT_ONCE(attn_rope(empty(4, 1, 1, FAR, 0), table, table, each, 0, nothing(ATTN_F32, 4, 1, 1, FAR, 0), 0));
    AT_ONCE(attn_quantize(empty(4, FAR, 1, 1, 0), nothing(ATTN_I8, 4, FAR, 1, 1, 0), nothing(ATTN_F32, 4, FAR, 1, 1, 0),
                          0));
    AT_ONCE(attn_unpack_q8_0(0, nothing(ATTN_I8, 4, FAR, 1, 1, 0), nothing(ATTN_F32, 4, FAR, 1, 1, 0), 0));
    AT_ONCE(attn_convert(empty(4, FAR, 1, 1, 0), nothing(ATTN_F16, 4, FAR, 1, 1, 0), 0));
}
static void results_of_nothing(void) {
    const attn_view lengths = repeated(attn_view_i64(none_yet, 1, FAR, 0, 0, 0));
    const attn_view lse = repeated(attn_view_f32(few, 3, FAR, 1, 1, 0));
    const attn_out absent = {0};
    attn_desc o = {0}, d = {0};
    AT_ONCE(attn_merge(empty(4, FAR, 1, 1, 0), lse, empty(4, FAR, 1, 1, 0), lse, nothing(ATTN_F32, 4, FAR, 1, 1, 0),
                       absent, 0));
    o.key_lengths = o.key_starts = lengths;
    AT_ONCE(attn_softmax(empty(4, FAR, 1, 1, 0), nothing(ATTN_F32, 4, FAR, 1, 1, 0), &o, 0));
    AT_ONCE(attn_softmax_backward(empty(4, FAR, 1, 1, 0), empty(4, FAR, 1, 1, 0), nothing(ATTN_F32, 4, FAR, 1, 1, 0), 0,
                                  0));
    AT_ONCE(attn_mask(nothing(ATTN_U8, 4, FAR, 1, 1, 0), &o, 0));
    AT_ONCE(attn_dropout_mask(nothing(ATTN_U8, 4, FAR, 1, 1, 0), &o, 0));
    AT_ONCE(attn_bmm(empty(3, FAR, 0, 4, 0), empty(3, FAR, 4, 0, 0), nothing(ATTN_F32, 3, FAR, 0, 0, 0), 0, 0));
    AT_ONCE(attn_bmm_backward(attn_view_f32(few, 2, 2, 2, 0, 0), empty(3, FAR, 2, 0, 0), empty(3, FAR, 2, 0, 0),
                              attn_out_f32(few + 8, 2, 2, 2, 0, 0), absent, 0, 0, 0));
    d.q = empty(4, FAR, 1, 0, 4), d.k = d.v = repeated(attn_view_f32(few, 4, FAR, 1, 1, 4));
    d.out = nothing(ATTN_F32, 4, FAR, 1, 0, 4), d.key_lengths = d.key_starts = lengths;
    AT_ONCE(attn_forward(&d, 0));
}
/* Size queries take arrays without data: what these would hold is not looked for, entry by entry. */
static void sizes_of_many(void) {
    attn_desc d = {0};
    size_t bytes;
    d.q = attn_view_bhsd(NULL, FAR, 1, 2, 0), d.k = attn_view_bhsd(NULL, FAR, 1, 1, 0);
    d.v = d.k, d.out = attn_out_bhsd(NULL, FAR, 1, 2, 0);
    d.key_lengths = attn_view_i64(NULL, 1, FAR, 0, 0, 0);
    AT_ONCE(attn_workspace_size(&d, &bytes, 0));
    d.key_lengths = attn_view_i64(NULL, 2, FAR, 2, 0, 0);
    d.query_lengths = attn_view_i64(NULL, 1, FAR, 0, 0, 0);
    AT_ONCE(attn_workspace_size(&d, &bytes, 0));
    d.positions = d.key_lengths, d.align = ATTN_ALIGN_POSITIONS;
    AT_ONCE(attn_workspace_size(&d, &bytes, 0));
}
/* With starts an entry's mask takes as long as its rows, though how far its keys go is found by looking at them all. */
static void mask_of_many_rows(void) {
    enum { ROWS = 1 << 15 };
    static int32_t reach[ROWS], start;
    static uint8_t bytes[ROWS];
    attn_desc o = {0};
    int wrong = 0;
    for (int i = 0; i < ROWS; i++) reach[i] = i % 3 == 1;
    o.query_starts = attn_view_i32(&start, 1, 1, 0, 0, 0), o.key_lengths = attn_view_i32(reach, 2, 1, ROWS, 0, 0);
    AT_ONCE(attn_mask(attn_out_u8(bytes, 4, 1, 1, ROWS, 1), &o, 0));
    for (int i = 0; i < ROWS; i++) wrong += bytes[i] != reach[i];
    CHECKF(!wrong, "%d rows are wrong", wrong);
}
/* Sums over a batch of no queries are 0. */
static void gradients_of_nothing(void) {
    attn_desc d = {0};
    attn_grad g = {0};
    attn_mha_desc m = {0};
    attn_mha_grad mg = {0};
    memset(few, 0x11, sizeof few);
    d.q = empty(4, FAR, 1, 0, 4), d.k = d.v = repeated(attn_view_f32(few, 4, FAR, 1, 1, 4));
    d.out = nothing(ATTN_F32, 4, FAR, 1, 0, 4), g.d_out = attn_view_of(d.out);
    g.d_scale = attn_out_f32(few + 40, 1, 1, 0, 0, 0);
    AT_ONCE(attn_backward(&d, &g, 0));
    d.score = ATTN_SCORE_BILINEAR, d.bilinear = attn_view_f32(few, 2, 4, 4, 0, 0);
    g.d_bilinear = attn_out_f32(few + 41, 2, 4, 4, 0, 0);
    AT_ONCE(attn_backward(&d, &g, 0));
    for (int i = 40; i < 57; i++) CHECK(few[i] == 0);
    m.heads = 1, m.query = empty(3, FAR, 0, 4, 0), m.out = nothing(ATTN_F32, 3, FAR, 0, 4, 0);
    m.w_query = m.w_key = m.w_value = m.w_result = attn_view_f32(few, 2, 4, 4, 0, 0);
    AT_ONCE(attn_mha(&m, 0));
    mg.d_out = attn_view_of(m.out), mg.dw_query = attn_out_f32(few + 40, 2, 4, 4, 0, 0);
    AT_ONCE(attn_mha_backward(&m, &mg, 0));
    m.query = repeated(attn_view_f32(few, 3, FAR, 1, 4, 0)), m.w_result = empty(2, 0, 4, 0, 0);
    m.out = nothing(ATTN_F32, 3, FAR, 1, 0, 0);
    AT_ONCE(attn_mha(&m, 0));
}

/* ---- multi-head attention of packed entries: the bits of a call for each. What lies in no entry is NaN and stays as
   it is. Of keys that are the queries' own rows an entry may have others than its queries. */
enum { WIDTH = 12, MODEL = 8, IN_ONE = 1, KEYS_APART = 2, NO_RESULT = 4, ROW_TYPES = 8, ADDS = 16, WAYS = 32 };
typedef struct block { /* of one call: all entries, or one of them */
    attn_mha_desc m;
    attn_mha_grad g;
    attn_desc o;
} block;
static attn_view weight_of(int64_t rows, int64_t columns) {
    return make_filled(LAYOUT_PACKED, 0.4, columns ? 2 : 1, rows, columns, 0, 0);
}
static attn_view rows_of_entries(int64_t total, const int64_t *start, const int64_t *n, int64_t b) {
    attn_view v = make_view(ATTN_F32, LAYOUT_GAPS, 3, 1, total, MODEL, 0);
    for (int64_t e = 0; e < b; e++)
        for (int64_t i = 0; i < n[e]; i++)
            for (int64_t c = 0; c < MODEL; c++) put_at(&v, 0, 0, start[e] + i, c, test_int(-50, 50) / 32.0);
    return v;
}
static attn_out row_results(int32_t type, int64_t total, int64_t width) {
    attn_out o = make_out_of(type, LAYOUT_GAPS, 3, 1, total, width, 0);
    poison(&o);
    return o;
}
static attn_view only_rows(attn_view v, int64_t first, int64_t n) {
    return v.rank ? attn_view_slice(v, 1, first, n) : v;
}
static void only_rows_of(attn_out *o, int64_t first, int64_t n) {
    if (o->rank) *o = attn_out_slice(*o, 1, first, n);
}
/* What is not among the rows of entries holds what `poison` has put there. */
static void check_no_entry(const attn_out *o, const int64_t *start, const int64_t *n, const int64_t *start_too,
                           const int64_t *n_too, int64_t b, const char *name) {
    int fine = 1;
    for (int64_t row = 0; o->rank && row < o->size[1]; row++) {
        int mine = 0;
        for (int64_t e = 0; e < b; e++)
            mine |=
                (row >= start[e] && row < start[e] + n[e]) || (row >= start_too[e] && row < start_too[e] + n_too[e]);
        const unsigned char *at = (const unsigned char *)o->data + row * o->stride[1] * (int64_t)type_bytes(o->type);
        for (size_t i = 0; !mine && i < type_bytes(o->type); i++) fine &= at[i] == 0xFF;
    }
    CHECKF(fine, "%s: a row of no entry was written", name);
}
static void alike(const attn_out *a, const attn_out *b, const char *name) { check_same(a, b, name); }

static void packed_rows(int64_t b, int64_t most, int64_t *start, int64_t *n, int64_t *total) {
    *total = test_int(0, 2);
    for (int64_t e = 0; e < b; e++) {
        n[e] = test_int(0, 4) ? test_int(1, (int)most) : 0, start[e] = *total;
        *total += n[e] + (test_int(0, 1) ? test_int(0, 3) : 0);
    }
    *total += test_int(0, 2) + 1;
}
static attn_view numbers(const int64_t *x, int64_t b) { return attn_view_i64(x, 1, b, 0, 0, 0); }

static void mha_of_entries(void) {
    for (int way = 0; way < 4 * WAYS; way++) {
        const int64_t b = way % 5 == 4 ? 1 : test_int(2, 4);
        const int32_t type = way & ROW_TYPES ? (way & WAYS ? ATTN_BF16 : ATTN_F16) : ATTN_F32;
        const int in_one = way & IN_ONE, others = in_one && way & KEYS_APART, adds = way & ADDS ? 1 : 0;
        int64_t q0[4], nq[4], k0[4], nk[4], rows, keys;
        block all, one[4];
        attn_error err;
        memset(&all, 0, sizeof all);
        packed_rows(b, 9, q0, nq, &rows);
        packed_rows(b, 9, k0, nk, &keys);
        for (int64_t e = 0; in_one && e < b; e++) { /* keys within an entry's rows, or the row before them, too */
            k0[e] = q0[e], nk[e] = nq[e], keys = rows;
            if (others && nq[e] > 1) k0[e]++, nk[e]--;
        }
        all.m.heads = 4, all.m.heads_kv = 2;
        all.m.query = rows_of_entries(rows, q0, nq, b);
        if (!in_one) all.m.key = rows_of_entries(keys, k0, nk, b);
        if (way & WAYS && !in_one) all.m.value = rows_of_entries(keys, k0, nk, b);
        all.m.w_query = weight_of(WIDTH, MODEL), all.m.b_query = weight_of(WIDTH, 0);
        all.m.w_key = weight_of(WIDTH / 2, MODEL), all.m.w_value = weight_of(10, MODEL),
        all.m.b_value = weight_of(10, 0);
        if (!(way & NO_RESULT)) all.m.w_result = weight_of(7, 20), all.m.b_result = weight_of(7, 0);
        all.m.out = row_results(type, rows, way & NO_RESULT ? 20 : 7);
        all.o.query_starts = numbers(q0, b), all.o.query_lengths = numbers(nq, b);
        all.o.key_starts = numbers(k0, b), all.o.key_lengths = numbers(nk, b);
        all.o.causal = way % 3 == 0, all.o.align = ATTN_ALIGN_BOTTOM_RIGHT;
        all.o.dropout = way % 7 ? 0 : 0.3f;
        all.g.d_out = rows_of_entries(rows, q0, nq, b), all.g.accumulate = (unsigned)adds;
        all.g.d_out = make_filled(LAYOUT_GAPS, 1, 3, 1, rows, all.m.out.size[2], 0);
        all.g.dquery = row_results(type, rows, MODEL);
        if (!in_one) all.g.dkey = row_results(type, keys, MODEL);
        if (all.m.value.rank) all.g.dvalue = row_results(type, keys, MODEL);
        for (int64_t i = 0; adds && i < rows; i++)
            for (int64_t c = 0; c < MODEL; c++) {
                attn_view v = attn_view_of(all.g.dquery);
                put_at(&v, 0, 0, i, c, 0.25);
            }
        all.g.dw_query = make_out(LAYOUT_PACKED, 2, WIDTH, MODEL, 0, 0);
        all.g.dw_value = make_out(LAYOUT_PACKED, 2, 10, MODEL, 0, 0);
        all.g.db_query = make_out(LAYOUT_PACKED, 1, WIDTH, 0, 0, 0);
        if (all.m.w_result.rank) all.g.db_result = make_out(LAYOUT_PACKED, 1, 7, 0, 0, 0);
        for (int64_t e = 0; e < b; e++) {
            block *x = &one[e];
            attn_out *results[] = {&x->m.out, &x->g.dquery, &x->g.dkey, &x->g.dvalue};
            *x = all;
            x->o.query_starts.rank = x->o.query_lengths.rank = x->o.key_starts.rank = x->o.key_lengths.rank = 0;
            x->o.query_starts = x->o.query_lengths = x->o.key_starts = x->o.key_lengths = none;
            x->o.dropout_origin[0] = e;
            for (int n = 0; n < 4; n++) *results[n] = copy_out(results[n]);
            if (others) x->m.key = all.m.query;
            x->m.query = only_rows(x->m.query, q0[e], nq[e]);
            x->m.key = only_rows(x->m.key, k0[e], nk[e]), x->m.value = only_rows(x->m.value, k0[e], nk[e]);
            x->g.d_out = only_rows(x->g.d_out, q0[e], nq[e]);
            only_rows_of(&x->m.out, q0[e], nq[e]), only_rows_of(&x->g.dquery, q0[e], nq[e]);
            only_rows_of(&x->g.dkey, k0[e], nk[e]), only_rows_of(&x->g.dvalue, k0[e], nk[e]);
            x->g.dw_query = copy_out(&all.g.dw_query), x->g.dw_value = copy_out(&all.g.dw_value);
            x->g.db_query = copy_out(&all.g.db_query), x->g.db_result = copy_out(&all.g.db_result);
            if (e > 0) { /* sums over entries */
                x->g.dw_query = one[0].g.dw_query, x->g.dw_value = one[0].g.dw_value;
                x->g.db_query = one[0].g.db_query, x->g.db_result = one[0].g.db_result;
                x->g.accumulate |= 1u << 3 | 1u << 5 | 1u << 7 | 1u << 10;
            }
        }
        all.m.attention = &all.o;
        check_saved(&all.m, &all.g);
        if (!CHECKF(attn_mha(&all.m, &err) == ATTN_OK, "refused: %s %s", err.field, err.rule)) return;
        if (!CHECKF(attn_mha_backward(&all.m, &all.g, &err) == ATTN_OK, "refused: %s %s", err.field, err.rule)) return;
        check_no_entry(&all.m.out, q0, nq, q0, nq, b, "out");
        if (!adds) check_no_entry(&all.g.dquery, q0, nq, in_one ? k0 : q0, in_one ? nk : nq, b, "dquery");
        check_no_entry(&all.g.dkey, k0, nk, k0, nk, b, "dkey");
        check_no_entry(&all.g.dvalue, k0, nk, k0, nk, b, "dvalue");
        for (int64_t e = 0; e < b; e++) {
            attn_out out = attn_out_slice(all.m.out, 1, q0[e], nq[e]),
                     dq = attn_out_slice(all.g.dquery, 1, q0[e], nq[e]);
            one[e].m.attention = &one[e].o;
            CHECK_STATUS(attn_mha(&one[e].m, &err), ATTN_OK);
            alike(&out, &one[e].m.out, "out of an entry");
            CHECK_STATUS(attn_mha_backward(&one[e].m, &one[e].g, &err), ATTN_OK);
            if (!others) alike(&dq, &one[e].g.dquery, "dquery of an entry");
            if (all.g.dkey.rank) {
                attn_out dk = attn_out_slice(all.g.dkey, 1, k0[e], nk[e]);
                alike(&dk, &one[e].g.dkey, "dkey of an entry");
            }
        }
        alike(&all.g.dw_query, &one[0].g.dw_query, "dw_query"), alike(&all.g.dw_value, &one[0].g.dw_value, "dw_value");
        alike(&all.g.db_query, &one[0].g.db_query, "db_query"),
            alike(&all.g.db_result, &one[0].g.db_result, "db_result");
        test_release();
    }
}

/* One entry alone, in the middle of its rows, is packed unless the descriptor has something of all pairs: then the rows
   outside of it are empty rows, whose out is b_result and whose dquery is 0. attn_mha and attn_mha_backward see it
   alike, and d_weights changes nothing. */
enum { ALONE_PLAIN, ALONE_WEIGHTS, ALONE_SCORES, ALONE_SOFTCAP, ALONE_MASKED, ALONE_D_WEIGHTS, ALONE_COUNT };
static void mha_of_one_entry(void) {
    for (int asks = 0; asks < ALONE_COUNT; asks++) {
        const int64_t rows = 6;
        int64_t start[1] = {1}, n[1] = {3};
        int outside = 1;
        attn_error err;
        attn_desc o;
        attn_grad inner;
        attn_mha_desc m;
        attn_mha_grad g;
        memset(&o, 0, sizeof o), memset(&inner, 0, sizeof inner), memset(&m, 0, sizeof m), memset(&g, 0, sizeof g);
        m.heads = 2, m.attention = &o;
        m.query = make_filled(LAYOUT_PACKED, 1, 3, 1, rows, MODEL, 0);
        m.w_query = weight_of(MODEL, MODEL), m.w_key = weight_of(MODEL, MODEL), m.w_value = weight_of(MODEL, MODEL);
        m.w_result = weight_of(MODEL, MODEL), m.b_result = weight_of(MODEL, 0);
        m.out = row_results(ATTN_F32, rows, MODEL);
        o.query_starts = o.key_starts = numbers(start, 1), o.query_lengths = o.key_lengths = numbers(n, 1);
        attn_out *pairs[] = {NULL, &o.weights, &o.scores, &o.scores_softcap, &o.scores_masked, NULL};
        if (pairs[asks]) *pairs[asks] = make_out(LAYOUT_PACKED, 4, 1, 2, rows, rows);
        if (asks == ALONE_D_WEIGHTS) inner.d_weights = make_filled(LAYOUT_PACKED, 1, 4, 1, 2, rows, rows);
        g.attention = &inner;
        g.d_out = make_filled(LAYOUT_PACKED, 1, 3, 1, rows, MODEL, 0);
        g.dquery = row_results(ATTN_F32, rows, MODEL);
        check_saved(&m, &g);
        CHECK_STATUS(attn_mha(&m, &err), ATTN_OK);
        CHECK_STATUS(attn_mha_backward(&m, &g, &err), ATTN_OK);
        const attn_view out = attn_view_of(m.out), dq = attn_view_of(g.dquery);
        for (int64_t row = 0; row < rows; row += row ? 1 : 4) /* 0, 4, 5 */
            for (int64_t c = 0; c < MODEL; c++) {
                const int fresh = asks == ALONE_PLAIN || asks == ALONE_D_WEIGHTS;
                const double x = ref_at(&out, 0, 0, row, c);
                outside = outside && (fresh ? isnan(x) : x == ref_at(&m.b_result, 0, 0, 0, c));
                outside = outside && (fresh ? isnan(ref_at(&dq, 0, 0, row, c)) : ref_at(&dq, 0, 0, row, c) == 0);
            }
        CHECKF(outside, "asking for %d: rows outside of the entry", asks);
        test_release();
    }
}

/* Frequencies divided by factors, as longrope has them, up to position 128k. */
static void rope_factors(void) {
    for (int again = 0; again < 12; again++) {
        const int64_t half = again ? test_int(1, 90) : 64;
        attn_rope_desc d = rope_kind(0), older;
        attn_view factors = make_view(ATTN_F32, any_layout(LAYOUT_COUNT), 1, half, 0, 0, 0);
        for (int64_t n = 0; n < half; n++)
            put_at(&factors, 0, 0, 0, n, n % 7 == 6 ? INFINITY : n % 5 == 4 ? 0.25 : (float)(1 + 60 * test_uniform()));
        d.factors = factors, d.base = 1e6, d.attention_factor = again % 3 ? 0.9 + test_uniform() : 0;
        const double m = again % 3 ? d.attention_factor : 1;
        for (int64_t first = 0; first < 131072; first += 131069) {
            attn_out c = make_out(any_layout(3), 2, 3, half, 0, 0), s = make_out(any_layout(3), 2, 3, half, 0, 0);
            const attn_view cosines = attn_view_of(c), sines = attn_view_of(s);
            d.first_position = first;
            CHECK_STATUS(attn_rope_table(c, s, &d, 0), ATTN_OK);
            CHECK(gaps_untouched(&c) && gaps_untouched(&s));
            for (int64_t p = 0; p < 3; p++)
                for (int64_t n = 0; n < half; n++) {
                    double w = rope_frequency(&d, n, 2 * half) / ref_at(&factors, 0, 0, 0, n);
                    double angle = (double)(first + p) * w, cosine = m * cos(angle), sine = m * sin(angle);
                    CHECK_CLOSE(ref_at(&cosines, 0, 0, p, n), cosine, fabs(cosine) * 0x1p-23 + angle * 4e-16 * m);
                    CHECK_CLOSE(ref_at(&sines, 0, 0, p, n), sine, fabs(sine) * 0x1p-23 + angle * 4e-16 * m);
                }
        }
        /* one factor for all is LINEAR, and a caller who does not know of factors has none */
        attn_out c[2], s[2];
        for (int n = 0; n < 2; n++)
            c[n] = make_out(LAYOUT_PACKED, 2, 5, half, 0, 0), s[n] = make_out(LAYOUT_PACKED, 2, 5, half, 0, 0);
        for (int64_t n = 0; n < half; n++) put_at(&factors, 0, 0, 0, n, 2.5);
        older = rope_kind(0), older.base = 1e6, older.first_position = d.first_position = 130000;
        older.scaling = ATTN_ROPE_LINEAR, older.factor = 2.5, d.attention_factor = 0;
        older.struct_bytes = offsetof(attn_rope_desc, factors), older.factors.rank = 77;
        for (int n = 0; n < 1 + (half > 1); n++) { /* the second time one number for all */
            if (n) d.factors.stride[0] = 0;
            CHECK_STATUS(attn_rope_table(c[0], s[0], &d, 0), ATTN_OK);
            CHECK_STATUS(attn_rope_table(c[1], s[1], &older, 0), ATTN_OK);
            check_same(&c[0], &c[1], "factors"), check_same(&s[0], &s[1], "factors");
        }
        test_release();
    }
}

/* ---- slopes of ALiBi: a geometric sequence, then every other one of that of twice as many heads */
static void alibi_slopes(void) {
    static const double of_12[12] = {0.5,
                                     0.25,
                                     0.125,
                                     0.0625,
                                     0.03125,
                                     0.015625,
                                     0.0078125,
                                     0.00390625,
                                     0.7071067811865476,
                                     0.3535533905932738,
                                     0.1767766952966369,
                                     0.08838834764831845};
    for (int64_t heads = 0; heads < 300; heads++) {
        const int type = (int)(heads % 3 == 0 ? ATTN_F32 : heads % 3 == 1 ? ATTN_F16 : ATTN_BF16);
        attn_out wide = make_out_of(ATTN_F32, any_layout(3), 1, heads, 0, 0, 0);
        attn_out narrow = make_out_of(type, any_layout(3), 1, heads, 0, 0, 0);
        attn_view w = attn_view_of(wide), n = attn_view_of(narrow);
        CHECK_STATUS(attn_alibi_slopes(wide, 0), ATTN_OK);
        CHECK_STATUS(attn_alibi_slopes(narrow, 0), ATTN_OK);
        CHECK(gaps_untouched(&wide) && gaps_untouched(&narrow));
        int64_t p = 1;
        while (2 * p <= heads) p *= 2;
        for (int64_t h = 0; h < heads; h++) {
            const double of_p = pow(2, -8 * (double)(h + 1) / (double)p);
            const double want = h < p ? of_p : pow(2, -8 * (double)(2 * (h - p) + 1) / (double)(2 * p));
            const float close = (float)want;
            CHECK_CLOSE(ref_at(&w, 0, 0, 0, h), close, 0);
            if (type != ATTN_F32) CHECK_CLOSE(ref_at(&n, 0, 0, 0, h), ref_of_half(type, ref_half(type, close)), 0);
            if (heads == 12) CHECK_CLOSE(ref_at(&w, 0, 0, 0, h), (float)of_12[h], 0);
        }
        if (heads == 6) CHECK_CLOSE(ref_at(&w, 0, 0, 0, 4), 0.5, 0), CHECK_CLOSE(ref_at(&w, 0, 0, 0, 5), 0.125, 0);
        if (heads == 40) CHECK_CLOSE(ref_at(&w, 0, 0, 0, 31), 0.00390625, 0);
        test_release();
    }
    attn_out codes = make_out_of(ATTN_I8, LAYOUT_PACKED, 1, 4, 0, 0, 0), nowhere;
    memset(&nowhere, 0, sizeof nowhere);
    REFUSED(attn_alibi_slopes(nowhere, &err), ATTN_ERR_NULL, "slopes");
    REFUSED(attn_alibi_slopes(codes, &err), ATTN_ERR_TYPE, "slopes.type");
    REFUSED(attn_alibi_slopes(make_out(LAYOUT_PACKED, 2, 4, 1, 0, 0), &err), ATTN_ERR_RANK, "slopes.rank");
}

const test_case suite_sequence[] = {{"sequence.lengths", lengths_test},
                                    {"sequence.lengths_errors", lengths_errors},
                                    {"sequence.rope_any", rope_any},
                                    {"sequence.rope_back", rope_back},
                                    {"sequence.rope_errors", rope_errors},
                                    {"sequence.rope_tables", rope_tables},
                                    {"sequence.rope_bits", rope_bits},
                                    {"sequence.rope_table_errors", rope_table_errors},
                                    {"sequence.rope_table_limits", rope_table_limits},
                                    {"sequence.rope_factors", rope_factors},
                                    {"sequence.alibi_slopes", alibi_slopes},
                                    {"sequence.append_any", append_any},
                                    {"sequence.append_errors", append_errors},
                                    {"sequence.room_costs_no_time", room_costs_no_time},
                                    {"sequence.room_makes_no_tasks", room_makes_no_tasks},
                                    {"sequence.caches_of_nothing", caches_of_nothing},
                                    {"sequence.results_of_nothing", results_of_nothing},
                                    {"sequence.sizes_of_many", sizes_of_many},
                                    {"sequence.mask_of_many_rows", mask_of_many_rows},
                                    {"sequence.gradients_of_nothing", gradients_of_nothing},
                                    {"sequence.mha_of_entries", mha_of_entries},
                                    {"sequence.mha_of_one_entry", mha_of_one_entry},
                                    {0, 0}};
