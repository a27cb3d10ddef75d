/* The kernels of stages 2 and 3 against float64, in the timings of the emulator or, from fast.cu, on a device: random
   shapes and options, every number of every result, memory around the results untouched, the same bits in every timing.

       fast [ROUNDS [TIMINGS [KIND]]]   ROUNDS calls of each kind, each in so many timings (0: all); KIND: of those
                                        alone whose name has this in it, up to the first failure (mutants.sh) */
#define ATTN_CUDA_MAX_BLOCKS 5 /* so that a block has several tasks, one after the other */
#define ATTN__CUDA_KEEP        /* the macros that kernels are written with */
#ifdef __CUDACC__
#include "device.cu"
#else
#include "device.cc"
#endif
#include "half.h"
#include <algorithm>
#include <stdio.h>
#include <stdlib.h>
#include <math.h>
#include <string>
#include <vector>

using namespace attn__gpu;

static uint64_t seed = 1;
static uint32_t bits() {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}
static int draw(int least, int most) { return least + (int)(bits() % (uint32_t)(most - least + 1)); }
static bool chance(int percent) { return draw(0, 99) < percent; }
static int half_type(bool bf16) { /* where the build has kernels of one alone, it is that */
    return ATTN_CUDA_BF16 && (bf16 || !ATTN_CUDA_F16) ? ATTN_BF16 : ATTN_F16;
}
static float number() { return (float)(int)(bits() % 65536) / 32768.0f - 1.0f; }

static long checks, failures, calls;
static int timings = fake_timings(); /* that each call runs in */
static bool only_first;

/* Memory that the kernels and the tests use */
template <class T> struct shared_memory {
    typedef T value_type;
    shared_memory() {}
    template <class U> shared_memory(const shared_memory<U> &) {}
    T *allocate(size_t n) { return (T *)fake_share(n * sizeof(T)); }
    void deallocate(T *p, size_t) { fake_unshare(p); }
};
template <class T, class U> bool operator==(const shared_memory<T> &, const shared_memory<U> &) { return true; }
template <class T, class U> bool operator!=(const shared_memory<T> &, const shared_memory<U> &) { return false; }
template <class T> using shared_vector = std::vector<T, shared_memory<T>>;

/* An array [B,H,I,X] in an allocation of its own: 64 elements of margin on both sides, any order of the first three
   axes, a gap of `unit` elements between rows, NaN wherever no element lies. */
struct tensor {
    shared_vector<unsigned char> memory;
    std::vector<double> value; /* as stored: rounded */
    attn__array a;
    int64_t size[4];
    size_t bytes_of() const { return a.type == ATTN_F32 ? 4 : a.type == ATTN_U8 || a.type == ATTN_I8 ? 1 : 2; }
    int64_t at(int64_t b, int64_t h, int64_t i, int64_t x) const {
        return ((b * size[1] + h) * size[2] + i) * size[3] + x;
    }
    const double *row(int64_t b, int64_t h, int64_t i) const { return value.data() + at(b, h, i, 0); }
    double operator()(int64_t b, int64_t h, int64_t i, int64_t x) const { return value[(size_t)at(b, h, i, x)]; }
};
static double read_element(const tensor &t, int64_t place) {
    const unsigned char *p = (const unsigned char *)t.a.data + place * (int64_t)t.bytes_of();
    float f;
    uint16_t h;
    if (t.a.type == ATTN_U8) return *p;
    if (t.a.type == ATTN_I8) return *(const int8_t *)p;
    if (t.a.type == ATTN_F32) {
        memcpy(&f, p, 4);
        return f;
    }
    memcpy(&h, p, 2);
    return from_16(h, t.a.type);
}
static void write_element(tensor &t, int64_t place, double x) {
    unsigned char *p = (unsigned char *)t.a.data + place * (int64_t)t.bytes_of();
    const float f = (float)x;
    const uint16_t h = t.bytes_of() != 2 ? 0 : to_16(x, t.a.type);
    if (t.a.type == ATTN_U8) *p = (unsigned char)x;
    else if (t.a.type == ATTN_I8) *(int8_t *)p = (int8_t)x;
    else if (t.a.type == ATTN_F32) memcpy(p, &f, 4);
    else memcpy(p, &h, 2);
}
template <class F> static void for_all(const tensor &t, F f) {
    for (int64_t b = 0; b < t.size[0]; b++)
        for (int64_t h = 0; h < t.size[1]; h++)
            for (int64_t i = 0; i < t.size[2]; i++)
                for (int64_t x = 0; x < t.size[3]; x++) f(b, h, i, x);
}
static void make(tensor &t, int type, int64_t n0, int64_t n1, int64_t n2, int64_t n3, int unit = 8) {
    static const int orders[3][3] = {{2, 1, 0}, {1, 2, 0}, {2, 0, 1}}; /* innermost first: BHSD, BSHD, HBSD */
    const int *order = orders[draw(0, 2)];
    const int64_t gap = chance(50) ? 0 : unit;
    int64_t step = (type == ATTN_I8 ? (n3 + 15) / 16 * 16 : (n3 + 7) / 8 * 8) + gap;
    t.size[0] = n0, t.size[1] = n1, t.size[2] = n2, t.size[3] = n3;
    t.a.type = type, t.a.rank = 4, t.a.stride[3] = 1;
    for (int k = 0; k < 3; k++) {
        t.a.stride[order[k]] = step;
        step *= t.size[order[k]];
    }
    t.memory.assign(((size_t)step + 128) * t.bytes_of() + 64, 0xff);
    t.a.data =
        (void *)(((uintptr_t)t.memory.data() + 64 * t.bytes_of() + 15) / 16 * 16 + (size_t)gap % 8 * t.bytes_of());
    t.value.assign((size_t)(n0 * n1 * n2 * n3), NAN);
}
static void put(tensor &t, int64_t b, int64_t h, int64_t i, int64_t x, double value) {
    const int64_t place = attn__gpu::place(t.a, b, h, i, x);
    write_element(t, place, value);
    t.value[(size_t)t.at(b, h, i, x)] = read_element(t, place);
}
static void fill(tensor &t, double size) {
    for_all(t, [&](int64_t b, int64_t h, int64_t i, int64_t x) {
        put(t, b, h, i, x, t.a.type == ATTN_U8 ? (double)chance(80) : number() * size);
    });
}
/* Mask and bias may have any strides: an axis may be the other way round, or all along it be the same. */
static void restride(tensor &t) {
    const int axis = draw(0, 3);
    if (chance(40)) t.a.stride[axis] = 0;
    else if (chance(50)) {
        t.a.data = (char *)t.a.data + (t.size[axis] - 1) * t.a.stride[axis] * (int64_t)t.bytes_of();
        t.a.stride[axis] = -t.a.stride[axis];
    }
    for_all(t, [&](int64_t b, int64_t h, int64_t i, int64_t x) {
        t.value[(size_t)t.at(b, h, i, x)] = read_element(t, place(t.a, b, h, i, x));
    });
}
/* Some calls have a few numbers that are not finite: they may not leave the rows and columns they belong to. */
static void spoil(tensor &t, int percent) {
    static const double odd[3] = {NAN, INFINITY, -INFINITY};
    if (!chance(percent)) return;
    for (int n = draw(1, 4); n > 0; n--) {
        const int64_t i[4] = {draw(0, (int)t.size[0] - 1), draw(0, (int)t.size[1] - 1), draw(0, (int)t.size[2] - 1),
                              draw(0, (int)t.size[3] - 1)};
        put(t, i[0], i[1], i[2], i[3], odd[draw(0, 2)]);
    }
}
/* The one NaN of results */
static bool has_other_nan(const tensor &t) {
    bool other = false;
    for_all(t, [&](int64_t b, int64_t h, int64_t i, int64_t x) {
        const int64_t at = place(t.a, b, h, i, x);
        uint32_t word = 0;
        memcpy(&word, (const unsigned char *)t.a.data + at * (int64_t)t.bytes_of(), t.bytes_of());
        if (isnan(read_element(t, at)))
            other |= word != (t.a.type == ATTN_F32 ? 0x7fc00000u : t.a.type == ATTN_BF16 ? 0x7fc0u : 0x7e00u);
    });
    return other;
}
static bool all_untouched(const shared_vector<unsigned char> &m) {
    return std::all_of(m.begin(), m.end(), [](unsigned char x) { return x == 0xff; });
}
/* Are all bytes but those of elements still 0xff? */
static bool margins_untouched(const tensor &t) {
    shared_vector<unsigned char> m(t.memory.begin(), t.memory.end());
    for_all(t, [&](int64_t b, int64_t h, int64_t i, int64_t x) {
        const int64_t place = attn__gpu::place(t.a, b, h, i, x);
        memset(m.data() + ((unsigned char *)t.a.data - t.memory.data()) + place * (int64_t)t.bytes_of(), 0xff,
               t.bytes_of());
    });
    return all_untouched(m);
}

/* ---- a call with random options */
struct call {
    params p;
    device dev;
    tensor q, k, v, out, lse, stats, bias, mask, alibi, sink, d_out, d_lse, dq, dk, dv, d_sink;
    tensor d_bias, d_scale, d_alibi;
    tensor pairs[4];                      /* weights; scores, behind the softcap, masked */
    tensor codes[2], scales[2], pools[4]; /* of k and v; of these and their scales */
    shared_vector<int32_t> key_lengths, query_lengths, positions, query_starts, key_starts;
    shared_vector<int64_t> table;
    int page = 0; /* rows of a page, for in_pages */
    shared_vector<float> work;
    std::string name;
    int infinite; /* 1: something in q, 2: in k, 4: in v, 8: in d_out; 16: numbers at the ends of f32's range. No weight
                     of these calls vanishes, so what is infinite in f32 is to be so */
    bool pair_sums = false;   /* d_bias, d_scale, d_alibi, wherever they can be */
    bool scale_alone = false; /* d_scale, but not dq, dk, dv */
    bool masked = false;      /* of entries: by a bias, and maybe a mask */
    int codes_of = 0;         /* for take_codes. 1: k, 2: v */
};
static void integers(attn__array &a, shared_vector<int32_t> &v, int64_t b, int64_t i) {
    a.data = v.data(), a.rank = i > 1 ? 2 : 1, a.type = ATTN_I32;
    a.stride[0] = i > 1 ? i : b > 1 ? 1 : 0, a.stride[1] = 0, a.stride[2] = i > 1, a.stride[3] = 0;
}
struct wishes {
    /* decode 2: all heads of a group in 1 to about 20 rows, with codes 80; 3: in some tiles of stage 3. extra 1: all
       options, or one of those below. most_v: of the values' head size, where that is not drawn as the other is.
       most_page: for in_pages, keys are whole pages of up to so many */
    int least_rows, most_rows, extra, decode, least_d, most_d;
    int most_v = 0, most_page = 0;
    bool codes = false;                     /* head sizes are multiples of 16 */
    int pages_of = 1;                       /* and pages of so many rows */
    bool floats = false;                    /* q, k, v and gradients are f32 */
    int least_keys = 512, most_keys = 1500; /* of a decode */
};
enum { COLUMN = 3 }; /* of q and k, where something in them is infinite on both sides */
enum { LATE = 32 };  /* in call.infinite: what is infinite is among the last columns */
enum {
    OF_SCORES = 2, /* softcap, ALiBi, a negative scale: some of these, nothing with a number for each pair */
    OF_PAIRS = 3,  /* all options, at least one with a number for each pair, in rows of any alignment */
    PAIRS_ALONE = 4,
    DROPOUT_ALONE = 5,
    DROPOUT_OF_SCORES = 6 /* and OF_SCORES */
};

/* sizes: batch, heads, heads of K and V, queries, keys, head sizes of Q and of V */
static void start_call(call &c, int type, const int (&sizes)[7]) {
    params &p = c.p;
    memset((void *)&p, 0, sizeof p);
    p.batch = sizes[0], p.heads = sizes[1], p.heads_kv = sizes[2], p.queries = sizes[3];
    p.keys = sizes[4], p.size_q = p.size_k = sizes[5], p.size_v = sizes[6];
    make(c.q, type, p.batch, p.heads, p.queries, p.size_q);
    make(c.k, type, p.batch, p.heads_kv, p.keys, p.size_q);
    make(c.v, type, p.batch, p.heads_kv, p.keys, p.size_v);
    make(c.out, chance(70) ? type : ATTN_F32, p.batch, p.heads, p.queries, p.size_v, 2); /* pairs are enough */
    make(c.lse, ATTN_F32, p.batch, p.heads, p.queries, 1);
    make(c.stats, ATTN_F32, p.batch, p.heads, p.queries, 2);
    fill(c.q, 3), fill(c.k, 3), fill(c.v, 2);
    p.q = c.q.a, p.k = c.k.a, p.v = c.v.a;
    p.lse = c.lse.a, p.stats = c.stats.a, p.out = c.out.a;
    p.score = ATTN_SCORE_SCALED_DOT;
    p.scale = 1.0f / sqrtf((float)p.size_q);
    p.keep_scale = 1.0f;
    p.left = p.right = INT64_MAX;
    c.name += std::string(type == ATTN_BF16  ? "bf16"
                          : type == ATTN_F16 ? "f16"
                                             : "f32") +
              " B" + std::to_string(p.batch) + " H" + std::to_string(p.heads) + "/" + std::to_string(p.heads_kv) +
              " Sq" + std::to_string(p.queries) + " Sk" + std::to_string(p.keys) + " D" + std::to_string(p.size_q) +
              " Dv" + std::to_string(p.size_v);
}
/* the least likely is a negative scale; of_scores: at least one */
static void score_options(call &c, bool of_scores) {
    params &p = c.p;
    const int percent = of_scores ? 60 : 30;
    if (chance(percent)) p.softcap = (float)draw(1, 4), c.name += " softcap";
    if (chance(percent) || (of_scores && p.softcap == 0)) {
        make(c.alibi, ATTN_F32, 1, p.heads, 1, 1);
        fill(c.alibi, chance(30) ? 1.5 : 0.3);
        p.alibi = c.alibi.a, p.alibi.stride[0] = p.alibi.stride[2] = p.alibi.stride[3] = 0;
        c.name += " ALiBi";
    }
    if (chance(15)) p.scale = -p.scale, c.name += " negative scale";
}
static void random_call(call &c, const wishes &w) {
    params &p = c.p;
    static const int packs[4] = {1, 4, 8, 16};
    const int drawn = half_type(chance(70)), type = w.floats ? ATTN_F32 : drawn, heads_kv = draw(1, 2);
    const int group = w.decode == 2 ? packs[draw(0, 3)] : w.decode == 3 ? 2 * draw(1, 4) : chance(40) ? draw(2, 4) : 1;
    const int whole = w.codes ? 16 : 8, size_q = whole * draw((w.least_d + whole - 1) / whole, w.most_d / whole);
    const int size_v = w.most_v     ? 8 * draw(1, w.most_v / 8)
                       : chance(60) ? size_q
                                    : whole * draw((w.least_d + whole - 1) / whole, w.most_d / whole);
    int queries = w.decode ? draw(1, 5) : draw(w.least_rows, w.most_rows);
    int keys = w.decode ? draw(w.least_keys, w.most_keys) : draw(1, w.most_rows);
    if (w.decode == 3) queries = draw(w.least_rows, 140), keys = draw(1, w.most_rows);
    if (w.decode == 2) queries = chance(50) ? 1 : draw(1, (w.codes ? 80 : 20) / group + 1);
    if (w.decode == 2 && chance(40)) keys = draw(1, 150); /* not enough for all warps, or for parts */
    if (w.most_page) c.page = draw(1, w.most_page / w.pages_of) * w.pages_of;
    if (w.most_page) keys = (keys + c.page - 1) / c.page * c.page;
    start_call(c, type, {draw(1, 2), heads_kv * group, heads_kv, queries, keys, size_q, size_v});
    if (chance(15)) fill(c.q, 60), c.name += " steep"; /* most weights vanish */
    spoil(c.q, 20), spoil(c.k, 20), spoil(c.v, 30);
    if (chance(30)) p.score = ATTN_SCORE_DOT, p.scale = 0.1f;
    const bool causal = chance(50);
    if (causal) c.name += " causal";
    if (chance(30)) {
        p.left = chance(70) ? draw(0, 90) : INT64_MAX, p.right = chance(50) ? draw(0, 40) : INT64_MAX;
        c.name += " window";
    }
    if (causal) p.right = 0;
    p.align = draw(0, 2);
    if (w.decode && w.decode < 3 && p.align == 0) p.align = 1;
    if (p.align == ATTN_ALIGN_POSITIONS) {
        const int64_t per_query = chance(50) ? p.queries : 1;
        c.positions.resize((size_t)(p.batch * per_query));
        for (int32_t &x : c.positions) x = draw(-5, (int)p.keys + 5);
        integers(p.positions, c.positions, p.batch, per_query);
        c.name += " positions";
    } else if (p.align == ATTN_ALIGN_BOTTOM_RIGHT) {
        c.name += " bottom-right";
    }
    if (chance(w.most_page ? 80 : 30)) {
        const int64_t per_query = chance(40) ? p.queries : 1;
        c.key_lengths.resize((size_t)(p.batch * per_query));
        for (int32_t &x : c.key_lengths) x = draw(0, (int)p.keys);
        integers(p.key_lengths, c.key_lengths, p.batch, per_query);
        c.name += " key lengths";
    }
    if (chance(20)) {
        c.query_lengths.resize((size_t)p.batch);
        for (int32_t &x : c.query_lengths) x = draw(0, (int)p.queries);
        integers(p.query_lengths, c.query_lengths, p.batch, 1);
        c.name += " query lengths";
    }
    if (chance(20)) p.empty = ATTN_EMPTY_NAN, c.name += " empty NaN";
    if (chance(25)) {
        make(c.sink, ATTN_F32, 1, p.heads, 1, 1);
        fill(c.sink, 4);
        p.sink = c.sink.a, p.sink.stride[0] = p.sink.stride[2] = p.sink.stride[3] = 0;
        c.name += " sink";
    }
    if (w.extra && w.extra != PAIRS_ALONE && w.extra != DROPOUT_ALONE)
        score_options(c, w.extra == OF_SCORES || w.extra == DROPOUT_OF_SCORES);
    if (w.extra == 0 || w.extra == OF_SCORES) return;
    const bool of_pairs = w.extra != 1;
    const int percent = w.extra >= DROPOUT_ALONE ? 0 : of_pairs ? 50 : 30;
    if (chance(percent)) {
        const int other = type == ATTN_BF16 ? ATTN_F16 : ATTN_BF16; /* than q's */
        const int bias_type = chance(50) ? ATTN_F32 : !of_pairs && chance(30) ? other : type;
        make(c.bias, bias_type, p.batch, p.heads, p.queries, p.keys, of_pairs && chance(40) ? 1 : 8);
        fill(c.bias, 2);
        const bool lowest = bias_type != ATTN_F16 && chance(percent); /* as in masks that leave a row no key */
        for_all(c.bias, [&](int64_t b, int64_t h, int64_t i, int64_t x) {
            if (!chance(90)) put(c.bias, b, h, i, x, -INFINITY);
            if (lowest && i % 5 == 3) put(c.bias, b, h, i, x, -3.38e38f);
        });
        if (lowest) c.name += " (rows of the lowest number)";
        restride(c.bias);
        p.bias = c.bias.a, c.name += " bias";
    }
    if (chance(percent)) {
        const int64_t heads = of_pairs && chance(50) ? p.heads : 1;
        make(c.mask, ATTN_U8, p.batch, heads, p.queries, p.keys, of_pairs && chance(40) ? 1 : 8);
        fill(c.mask, 1);
        restride(c.mask);
        p.mask = c.mask.a, p.mask.stride[1] = heads > 1 ? p.mask.stride[1] : 0, c.name += " mask";
    }
    if (chance(30) || (of_pairs && !p.bias.rank && !p.mask.rank)) {
        p.dropout = 0.3f, p.drop_below = (uint64_t)(0.3 * 4294967296.0), p.keep_scale = 1.0f / 0.7f, p.seed = 12345;
        for (int i = 0; i < 4; i++) p.origin[i] = (uint32_t)draw(0, 9);
        c.name += " dropout";
    }
}

/* ---- the same in float64, from the words of attn.h */
static uint32_t philox_word(const params &p, int64_t b, int64_t h, int64_t i, int64_t j) {
    const uint64_t column = (uint32_t)(j + p.origin[3]);
    uint64_t c[4] = {column / 4, (uint32_t)(i + p.origin[2]), (uint32_t)(h + p.origin[1]), (uint32_t)(b + p.origin[0])};
    uint64_t key[2] = {p.seed & 0xffffffffu, p.seed >> 32};
    for (int round = 0; round < 10; round++) {
        const uint64_t x = 0xD2511F53u * c[0], y = 0xCD9E8D57u * c[2];
        const uint64_t n[4] = {(y >> 32) ^ c[1] ^ key[0], y & 0xffffffffu, (x >> 32) ^ c[3] ^ key[1], x & 0xffffffffu};
        for (int k = 0; k < 4; k++) c[k] = n[k];
        key[0] = (key[0] + 0x9E3779B9u) & 0xffffffffu, key[1] = (key[1] + 0xBB67AE85u) & 0xffffffffu;
    }
    return (uint32_t)c[column % 4];
}
static double keep(const params &p, int64_t b, int64_t h, int64_t i, int64_t j) {
    if (p.dropout == 0) return 1;
    return philox_word(p, b, h, i, j) >= p.drop_below ? 1 / (1 - (double)p.dropout) : 0;
}
static int64_t keys_of(const call &c, int64_t b, int64_t i) {
    const params &p = c.p;
    return p.key_lengths.rank ? c.key_lengths[(size_t)(p.key_lengths.stride[2] ? b * p.queries + i : b)] : p.keys;
}
static int64_t queries_of(const call &c, int64_t b) {
    return c.p.query_lengths.rank ? c.query_lengths[(size_t)b] : c.p.queries;
}
static int64_t position_of(const call &c, int64_t b, int64_t i) {
    const params &p = c.p;
    if (p.align == ATTN_ALIGN_BOTTOM_RIGHT) return i + keys_of(c, b, i) - queries_of(c, b);
    if (p.align != ATTN_ALIGN_POSITIONS) return i;
    return p.positions.rank == 2 ? c.positions[(size_t)(b * p.queries + i)] : c.positions[(size_t)b] + i;
}
/* the score of a pair as it reaches the softmax; *slope: its derivative by the raw score */
static double score(const call &c, int64_t b, int64_t h, int64_t i, int64_t j, double *slope) {
    const params &p = c.p;
    const int64_t hk = h / (p.heads / p.heads_kv), position = position_of(c, b, i);
    const int64_t length_k = keys_of(c, b, i), length_q = queries_of(c, b);
    double s = 0;
    *slope = 0;
    if (j >= length_k || i >= length_q) return -INFINITY;
    if (p.left != INT64_MAX && j < position - p.left) return -INFINITY;
    if (p.right != INT64_MAX && j > position + p.right) return -INFINITY;
    if (p.mask.rank && !c.mask(b, c.mask.size[1] > 1 ? h : 0, i, j)) return -INFINITY;
    if (p.bias.rank && c.bias(b, h, i, j) == -INFINITY) return -INFINITY;
    const double *const q = c.q.row(b, h, i), *const k = c.k.row(b, hk, j);
    for (int64_t x = 0; x < p.size_q; x++) s += q[x] * k[x];
    s *= p.scale;
    *slope = 1;
    if (p.softcap != 0) {
        const double t = tanh(s / p.softcap);
        s = p.softcap * t;
        *slope = 1 - t * t;
    }
    if (p.bias.rank) s += c.bias(b, h, i, j);
    if (p.alibi.rank) s -= c.alibi(0, h, 0, 0) * fabs((double)(position - j));
    return s;
}

static void fail(const call &c, const char *what, double got, double want) {
    if (failures++ < 15)
        printf("FAIL %s: got %.9g, want %.9g\n     %s, %s\n", what, got, want, c.name.c_str(), fake_timing_name());
    if (only_first) exit(1);
}
static void close(const call &c, const char *what, double got, double want, double bound) {
    checks++;
    if (got == want || (!isfinite(want) && !isnan(want) ? !isfinite(got) : isnan(got) && isnan(want)) ||
        fabs(got - want) <= bound)
        return;
    fail(c, what, got, want);
}
/* A result that is not wanted is all margin. */
static void check_memory(const call &c, const attn__array &wanted, const tensor &t) {
    checks++;
    if (wanted.rank && has_other_nan(t)) fail(c, "another NaN", 0, 0);
    checks++;
    if (!(wanted.rank ? margins_untouched(t) : all_untouched(t.memory)))
        fail(c, "memory beside the results was written", 0, 0);
}
static const attn__array &wanted_pairs(const params &p, int n) {
    return n == 0 ? p.weights : n == 1 ? p.scores : n == 2 ? p.scores_softcap : p.scores_masked;
}
/* A row's weights and scores, with the masked scores and what they sum up to (with the sink) in float64 */
static void check_pairs(const call &c, int64_t b, int64_t h, int64_t i, const std::vector<double> &masked, double top,
                        double mass, double all) {
    static const char *const names[4] = {"weights", "scores", "scores_softcap", "scores_masked"};
    const params &p = c.p;
    const double sink = p.sink.rank ? c.sink(0, h, 0, 0) : -INFINITY;
    const bool nan = mass == 0 && sink == -INFINITY && p.empty == ATTN_EMPTY_NAN;
    double sum = 0, rounding = 0;
    for (int64_t j = 0; j < p.keys; j++) {
        const double score = masked[(size_t)j], one = exp(score - top) / all;
        double dot = 0, terms = 0, want[4];
        const double *const q = c.q.row(b, h, i), *const k = c.k.row(b, h / (p.heads / p.heads_kv), j);
        for (int64_t x = 0; x < p.size_q; x++) {
            const double term = q[x] * k[x];
            dot += term, terms += fabs(term);
        }
        const double drops = p.weights_after_dropout ? keep(p, b, h, i, j) : 1;
        want[0] = score == -INFINITY ? (nan ? NAN : 0) : drops == 0 ? 0 : one * drops;
        want[1] = p.scale * dot;
        want[2] = p.softcap == 0 ? want[1] : p.softcap * tanh(want[1] / p.softcap);
        want[3] = score;
        for (int n = 0; n < 4; n++) {
            if (!wanted_pairs(p, n).rank) continue;
            const int type = c.pairs[n].a.type;
            const double unit = type == ATTN_F32 ? 2e-6 : type == ATTN_BF16 ? 1.0 / 256 : 1.0 / 2048;
            const double got = read_element(c.pairs[n], place(c.pairs[n].a, b, h, i, j));
            const double doubt = n == 0 ? 3e-5 * (1 + fabs(top) + fabs(score)) * fabs(want[0])
                                        : 2e-6 * (fabs(p.scale) * terms + fabs(want[n]));
            const bool large = type == ATTN_F16 && fabs(want[n]) > 65000; /* infinite there */
            if (!large) close(c, names[n], got, want[n], doubt + unit * fabs(want[n]) + 1e-7);
            if (n == 0) sum += got, rounding += unit * fabs(got) + 1e-7;
        }
    }
    const double own = mass == 0 ? 0 : mass / all; /* what the sink leaves them */
    if (p.weights.rank && (p.dropout == 0 || !p.weights_after_dropout))
        close(c, "the sum of a row's weights", sum, nan ? NAN : own, rounding + 3e-5 * (1 + fabs(top)));
}
/* What a weight may be off when it meets the values: its type rounds it; in f32 1e-6 times 1 + S, where S is the
   largest sum of a score's absolute terms (attn.h: 4e-6) */
static double unit_of_weights(const call &c) {
    const params &p = c.p;
    double largest = 0;
    if (p.q.type != ATTN_F32) return p.q.type == ATTN_BF16 ? 1.0 / 256 : 1.0 / 2048;
    for (int64_t b = 0; b < p.batch; b++)
        for (int64_t h = 0; h < p.heads; h++)
            for (int64_t i = 0; i < p.queries; i++)
                for (int64_t j = 0; j < p.keys; j++) {
                    const double *const q = c.q.row(b, h, i), *const k = c.k.row(b, h / (p.heads / p.heads_kv), j);
                    double terms = p.bias.rank && isfinite(c.bias(b, h, i, j)) ? fabs(c.bias(b, h, i, j)) : 0, sum = 0;
                    for (int64_t x = 0; x < p.size_q; x++) sum += fabs(q[x] * k[x]);
                    if (p.alibi.rank) terms += fabs(c.alibi(0, h, 0, 0)) * (double)(p.keys + p.queries);
                    if (isfinite(sum)) largest = fmax(largest, terms + sum * fabs((double)p.scale));
                }
    return 1e-6 * (1 + largest);
}
static void check_forward(const call &c) {
    const params &p = c.p;
    const double half = unit_of_weights(c), least = p.q.type == ATTN_F32 ? 1e-7 : 1e-6;
    const double of_out = p.out.type == ATTN_F32 ? 0 : half;
    std::vector<double> w((size_t)p.keys), sum((size_t)p.size_v), size((size_t)p.size_v), slope((size_t)p.keys);
    std::vector<bool> either((size_t)p.size_v);
    for (int64_t b = 0; b < p.batch; b++)
        for (int64_t h = 0; h < p.heads; h++)
            for (int64_t i = 0; i < p.queries; i++) {
                const double sink = p.sink.rank ? c.sink(0, h, 0, 0) : -INFINITY;
                double top = -INFINITY, mass = 0, all, lse;
                for (int64_t j = 0; j < p.keys; j++)
                    top = fmax(top, w[(size_t)j] = score(c, b, h, i, j, &slope[(size_t)j]));
                for (int64_t j = 0; j < p.keys; j++)
                    if (w[(size_t)j] != -INFINITY) mass += exp(w[(size_t)j] - top);
                lse = top + log(mass);
                if (mass == 0) lse = -INFINITY;
                if (sink > -INFINITY) lse = fmax(lse, sink) + log1p(exp(-fabs(lse - sink)));
                all = mass == 0 ? 0 : mass + exp(sink - top); /* relative to top, with the sink */
                if (p.lse.rank)
                    close(c, "lse", read_element(c.lse, place(c.lse.a, b, h, i, 0)), lse, 2e-5 * (1 + fabs(lse)));
                if (p.stats.rank) {
                    const int64_t at = place(c.stats.a, b, h, i, 0);
                    close(c, "stats: maximum", read_element(c.stats, at), top, 2e-5 * (1 + fabs(top)));
                    close(c, "stats: mass", read_element(c.stats, at + 1), mass, 1e-4 * (1 + mass));
                }
                if (wants_pairs(p)) check_pairs(c, b, h, i, w, top, mass, all);
                if (!p.out.rank) continue;
                for (int64_t x = 0; x < p.size_v; x++) sum[(size_t)x] = size[(size_t)x] = 0, either[(size_t)x] = false;
                for (int64_t j = 0; j < p.keys; j++) {
                    const double *const v = c.v.row(b, h / (p.heads / p.heads_kv), j);
                    /* no mask, but an infinite k has excluded it: these stages may let its v through all the same */
                    for (int64_t x = 0; w[(size_t)j] == -INFINITY && slope[(size_t)j] != 0 && x < p.size_v; x++)
                        if (!isfinite(v[x])) either[(size_t)x] = true;
                    if (w[(size_t)j] == -INFINITY) continue;
                    const double f = exp(w[(size_t)j] - top) / all * keep(p, b, h, i, j);
                    for (int64_t x = 0; x < p.size_v; x++) {
                        const double term = f * v[x];
                        sum[(size_t)x] += term;
                        size[(size_t)x] += fabs(term);
                    }
                }
                for (int64_t x = 0; x < p.size_v; x++) {
                    const double want =
                        mass == 0 && sink == -INFINITY && p.empty == ATTN_EMPTY_NAN ? NAN : sum[(size_t)x];
                    const double got = read_element(c.out, place(c.out.a, b, h, i, x));
                    if (either[(size_t)x] && isnan(got)) continue;
                    close(c, "out", got, want, half * size[(size_t)x] + of_out * fabs(want) + least);
                    if (p.q.type == ATTN_F32 && c.infinite && isinf(want) && got != want)
                        fail(c, "infinite out of f32", got, want);
                }
            }
    check_memory(c, p.out, c.out);
    check_memory(c, p.lse, c.lse);
    check_memory(c, p.stats, c.stats);
    for (int n = 0; n < 4; n++)
        if (wanted_pairs(p, n).rank) check_memory(c, wanted_pairs(p, n), c.pairs[n]);
}

/* ---- gradients: what the formulas say, in float64, from the numbers as they are stored; with the size of the terms */
struct sums {
    std::vector<double> value, size;
    explicit sums(const tensor &t) : value(t.value.size(), 0.0), size(t.value.size(), 0.0) {}
    void add(int64_t at, double x) { value[(size_t)at] += x, size[(size_t)at] += fabs(x); }
};
static void make_backward(call &c) {
    params &p = c.p;
    const int type = p.q.type;
    make(c.d_out, type, p.batch, p.heads, p.queries, p.size_v);
    fill(c.d_out, 1);
    spoil(c.d_out, c.infinite ? 0 : 20);
    if (c.infinite & 8)
        put(c.d_out, 0, 0, p.queries / 2, c.infinite & LATE ? p.size_v - 3 : 2, -INFINITY), c.name += " infinite d_out";
    if (c.infinite &
        16) /* ends_call: sums of products of k and q are to be finite, and v has such numbers in two columns */
        for_all(c.d_out, [&](int64_t b, int64_t h, int64_t i, int64_t x) {
            put(c.d_out, b, h, i, x, number() * (x == 3 || x == 4 ? 3e-39 : 0.01));
        });
    p.d_out = c.d_out.a;
    if (chance(p.sink.rank ? 70 : 30)) { /* all that a row without keys gives d_sink */
        make(c.d_lse, ATTN_F32, p.batch, p.heads, p.queries, 1);
        fill(c.d_lse, c.infinite & 16 ? 0.01 : 1);
        p.d_lse = c.d_lse.a;
        c.name += " d_lse";
    }
    make(c.dq, chance(70) ? type : ATTN_F32, p.batch, p.heads, p.queries, p.size_q);
    make(c.dk, chance(70) ? type : ATTN_F32, p.batch, p.heads_kv, p.keys, p.size_q);
    make(c.dv, chance(70) ? type : ATTN_F32, p.batch, p.heads_kv, p.keys, p.size_v);
    if (chance(85)) p.dq = c.dq.a;
    if (chance(85)) p.dk = c.dk.a;
    if (chance(85) || !(p.dq.rank || p.dk.rank)) p.dv = c.dv.a;
    if (p.sink.rank && chance(60)) {
        make(c.d_sink, chance(70) ? ATTN_F32 : type, 1, p.heads, 1, 1);
        p.d_sink = c.d_sink.a, p.d_sink.stride[0] = p.d_sink.stride[2] = p.d_sink.stride[3] = 0;
        c.name += " d_sink";
    }
    if (chance(50)) p.stats.rank = 0, c.name += " without stats";
    if (chance(20)) p.accumulate = (uint32_t)draw(1, 7), c.name += " accumulate";
    if (p.d_sink.rank && chance(20)) p.accumulate |= ATTN_GRAD_SINK;
}
/* What all pairs add to: also a bias's gradient of which axes have size 1, whatever the bias has there, for the kernels
   do not see what that is. */
static attn__array broadcast(tensor &t, int type, const int64_t (&size)[4]) {
    make(t, type, size[0], size[1], size[2], size[3]);
    attn__array a = t.a;
    for (int axis = 0; axis < 4; axis++)
        if (size[axis] == 1) a.stride[axis] = 0;
    return a;
}
static void make_pair_sums(call &c, const stage &s) {
    params &p = c.p;
    const bool wanted = !(c.infinite & 16) && chance(c.pair_sums ? 100 : 40);
    const int percent = c.pair_sums ? 95 : 70;
    const bool runs = wanted && !s.covers(p, c.dev, false); /* as a forward, for stats */
    p.is_backward = 1;
    if (!wanted) return;
    if (p.bias.rank && chance(percent)) {
        const int64_t all[4] = {p.batch, p.heads, p.queries, p.keys};
        for (int axis = 0; axis < 4; axis++) p.bias_size[axis] = chance(40) ? 1 : all[axis];
        p.d_bias = broadcast(c.d_bias, chance(70) ? ATTN_F32 : p.q.type, p.bias_size);
    }
    if (p.alibi.rank && chance(percent)) p.d_alibi = broadcast(c.d_alibi, ATTN_F32, {1, p.heads, 1, 1});
    if (c.scale_alone || chance(percent / 2)) p.d_scale = broadcast(c.d_scale, ATTN_F32, {1, 1, 1, 1});
    if (s.covers(p, c.dev, true)) p.d_bias.rank = p.d_scale.rank = p.d_alibi.rank = 0;
    checks++;
    if (!s.covers(forward_of(p), c.dev, false) != runs) fail(c, "another stage for stats", !runs, runs);
    if (p.d_bias.rank) c.name += " d_bias";
    if (p.d_scale.rank) c.name += " d_scale";
    if (p.d_alibi.rank) c.name += " d_alibi";
    if (p.d_bias.rank && chance(20)) p.accumulate |= ATTN_GRAD_BIAS;
    if (p.d_scale.rank && chance(20)) p.accumulate |= ATTN_GRAD_SCALE;
    if (p.d_alibi.rank && chance(20)) p.accumulate |= ATTN_GRAD_ALIBI;
    if (c.scale_alone || (wants_pair_sums(p) && chance(15))) p.dq.rank = p.dk.rank = p.dv.rank = 0, c.name += " alone";
}
static void check_sums(const call &c, const char *what, const tensor &t, const sums &r, double half, double before) {
    const double unit = t.a.type == ATTN_F32 ? 0 : half;
    for_all(t, [&](int64_t b, int64_t h, int64_t i, int64_t x) {
        const size_t at = (size_t)t.at(b, h, i, x);
        const double want = r.value[at] + before;
        const double bound = 4 * half * r.size[at] + unit * fabs(want) + (c.p.q.type == ATTN_F32 ? 1e-6 : 1e-5);
        close(c, what, read_element(t, place(t.a, b, h, i, x)), want, bound);
    });
    checks++;
    if (has_other_nan(t)) fail(c, "another NaN in a gradient", 0, 0);
    checks++;
    if (!margins_untouched(t)) fail(c, "memory beside a gradient was written", 0, 0);
}
static void check_backward(const call &c, double before_q, double before_k, double before_v) {
    const params &p = c.p;
    const int64_t group = p.heads / p.heads_kv;
    /* what cancels: 2^-22 of its terms in parts of f32, where it is not below the last term of the bound */
    const double half = unit_of_weights(c), of_parts = c.infinite & 16 ? 2.4e-7 / (4 * half) : half;
    const double of_terms = p.q.type == ATTN_F32 ? of_parts : 1e-3;
    sums dq(c.dq), dk(c.dk), dv(c.dv), d_sink(c.d_sink), d_bias(c.d_bias), d_scale(c.d_scale), d_alibi(c.d_alibi);
    std::vector<double> w((size_t)p.keys), slope((size_t)p.keys);
    for (int64_t b = 0; b < p.batch; b++)
        for (int64_t h = 0; h < p.heads; h++)
            for (int64_t i = 0; i < p.queries; i++) {
                const int64_t hk = h / group;
                double top = -INFINITY, mass = 0, all, delta = 0, size = 0;
                for (int64_t j = 0; j < p.keys; j++)
                    top = fmax(top, w[(size_t)j] = score(c, b, h, i, j, &slope[(size_t)j]));
                for (double x : w) mass += x == -INFINITY ? 0 : exp(x - top);
                all = mass + (p.sink.rank ? exp(c.sink(0, h, 0, 0) - top) : 0);
                for (int64_t x = 0; x < p.size_v; x++)
                    delta += c.d_out(b, h, i, x) * c.out(b, h, i, x),
                        size += fabs(c.d_out(b, h, i, x) * c.out(b, h, i, x));
                if (mass == 0) delta = 0; /* d_out has no influence */
                if (p.d_lse.rank) delta -= c.d_lse(b, h, i, 0);
                if (p.d_sink.rank) {
                    const double of_sink = mass == 0 ? 1 : 1 / (1 + mass * exp(top - c.sink(0, h, 0, 0)));
                    const bool none = of_sink < 1.2e-38; /* 0 in f32: NaN has no influence */
                    d_sink.add(c.d_sink.at(0, h, 0, 0), none ? 0 : -of_sink * delta);
                    d_sink.size[(size_t)c.d_sink.at(0, h, 0, 0)] += none || mass == 0 ? 0 : of_sink * size;
                }
                if (mass == 0) continue;
                for (int64_t j = 0; j < p.keys; j++) {
                    if (w[(size_t)j] == -INFINITY) continue;
                    const double weight = exp(w[(size_t)j] - top) / all, factor = keep(p, b, h, i, j);
                    const double *const q = c.q.row(b, h, i), *const k = c.k.row(b, hk, j);
                    const double *const v = c.v.row(b, hk, j), *const d_out = c.d_out.row(b, h, i);
                    const int64_t of_q = c.dq.at(b, h, i, 0), of_k = c.dk.at(b, hk, j, 0), of_v = c.dv.at(b, hk, j, 0);
                    double above = 0, terms = 0, g;
                    for (int64_t x = 0; x < p.size_v; x++) {
                        dv.add(of_v + x, (factor == 0 ? 0 : weight * factor) * d_out[x]);
                        above += d_out[x] * v[x];
                        terms += fabs(d_out[x] * v[x]);
                    }
                    g = weight * slope[(size_t)j] * p.scale * ((factor == 0 ? 0 : above * factor) - delta);
                    if (wants_pair_sums(p)) {
                        const double behind = weight * ((factor == 0 ? 0 : above * factor) - delta);
                        const double error = fabs(weight) * (terms * factor + fabs(delta)) * of_terms;
                        const auto add = [&](sums &to, int64_t at, double of_one) {
                            to.add(at, behind * of_one), to.size[(size_t)at] += error * fabs(of_one);
                        };
                        const int64_t *n = p.bias_size;
                        double product = 0;
                        for (int64_t x = 0; x < p.size_q; x++) product += q[x] * k[x];
                        if (p.d_bias.rank)
                            add(d_bias,
                                c.d_bias.at(n[0] > 1 ? b : 0, n[1] > 1 ? h : 0, n[2] > 1 ? i : 0, n[3] > 1 ? j : 0), 1);
                        if (p.d_scale.rank) add(d_scale, c.d_scale.at(0, 0, 0, 0), slope[(size_t)j] * product);
                        if (p.d_alibi.rank)
                            add(d_alibi, c.d_alibi.at(0, h, 0, 0), -fabs((double)(position_of(c, b, i) - j)));
                    }
                    /* its own error: of the weight, of what cancels */
                    const double doubt =
                        fabs(weight * slope[(size_t)j] * p.scale) * (terms * factor + fabs(delta)) * of_terms;
                    for (int64_t x = 0; x < p.size_q; x++) {
                        dq.add(of_q + x, g * k[x]);
                        dk.add(of_k + x, g * q[x]);
                        dq.size[(size_t)(of_q + x)] += doubt * fabs(k[x]);
                        dk.size[(size_t)(of_k + x)] += doubt * fabs(q[x]);
                    }
                }
            }
    if (p.d_sink.rank) check_sums(c, "d_sink", c.d_sink, d_sink, half, p.accumulate & ATTN_GRAD_SINK ? 0.25 : 0);
    const auto before = [&](uint32_t bit) { return p.accumulate & bit ? 0.25 : 0; };
    if (p.d_bias.rank) check_sums(c, "d_bias", c.d_bias, d_bias, half, before(ATTN_GRAD_BIAS));
    if (p.d_scale.rank) check_sums(c, "d_scale", c.d_scale, d_scale, half, before(ATTN_GRAD_SCALE));
    if (p.d_alibi.rank) check_sums(c, "d_alibi", c.d_alibi, d_alibi, half, before(ATTN_GRAD_ALIBI));
    if (p.dq.rank) check_sums(c, "dq", c.dq, dq, half, before_q);
    if (p.dk.rank) check_sums(c, "dk", c.dk, dk, half, before_k);
    if (p.dv.rank) check_sums(c, "dv", c.dv, dv, half, before_v);
}

/* the `mode`th timing of a call; where it runs in few, calls have different ones */
static void set_timing(int mode) {
    static int next;
    if (mode == 0) next = timings < fake_timings() ? next + 1 : 0;
    else next += timings < fake_timings() ? 1 : 0;
    fake_timing(timings < fake_timings() ? next * 3 % fake_timings() : mode, seed);
}
static void poison(tensor &t) { std::fill(t.memory.begin(), t.memory.end(), 0xff); }

static void give_workspace(call &c, size_t workspace) {
    c.work.assign(workspace / 4 + 128, NAN);
    c.p.workspace = (void *)(((uintptr_t)c.work.data() + 255) / 256 * 256);
}
static void check_workspace(const call &c, size_t workspace) {
    const float *const end = (const float *)c.p.workspace + (workspace + 3) / 4;
    checks++;
    if (!std::all_of(end, c.work.data() + c.work.size(), [](float x) { return isnan(x); }))
        fail(c, "memory behind the workspace was written", 0, 0);
}
static void set_all(tensor &t, double x) {
    for_all(t, [&](int64_t b, int64_t h, int64_t i, int64_t y) { write_element(t, place(t.a, b, h, i, y), x); });
}
/* of the kernels for heads of that size, in any call */
static int stage_2_columns(int64_t head_size) {
    int columns = 0;
    with_16_bit_size(head_size, true, [&](auto d) { columns = decltype(d)::value; });
    return columns;
}
/* Blocks that are alive at once where some count on others, in different timings */
static const int together[4] = {3, 1, 8, 2};
/* Has a stage's backward one sweep for all gradients, which adds to dq where that is wanted? */
static bool sweeps_once(const params &p, forward_fn backward) {
    return backward == hopper_backward || mma_sweeps_once(p);
}
/* the forward's results are there already, in c.out and c.stats */
static void run_backward(call &c, size_t workspace, forward_fn backward) {
    enum { RESULTS = 7 };
    static const uint32_t adds[RESULTS] = {ATTN_GRAD_Q,    ATTN_GRAD_K,     ATTN_GRAD_V,    ATTN_GRAD_SINK,
                                           ATTN_GRAD_BIAS, ATTN_GRAD_SCALE, ATTN_GRAD_ALIBI};
    shared_vector<unsigned char> first[RESULTS];
    tensor *const results[RESULTS] = {&c.dq, &c.dk, &c.dv, &c.d_sink, &c.d_bias, &c.d_scale, &c.d_alibi};
    const bool once = c.p.dq.rank && sweeps_once(c.p, backward);
    const bool in_any_order = once && c.p.precision == ATTN_PRECISION_FAST; /* what is added to dq */
    double before[RESULTS];
    for_all(c.out, [&](int64_t b, int64_t h, int64_t i,
                       int64_t x) { /* not what the forward would write again */
                                    put(c.out, b, h, i, x, 0.5 * read_element(c.out, place(c.out.a, b, h, i, x)));
    });
    const shared_vector<unsigned char> out = c.out.memory;
    give_workspace(c, workspace);
    for (int mode = 0; mode < timings; mode++) {
        for (int n = 0; n < RESULTS; n++) {
            before[n] = c.p.accumulate & adds[n] ? 0.25 : 0;
            poison(*results[n]);
            if (before[n] != 0) set_all(*results[n], before[n]);
        }
        set_timing(mode);
        if (once) fake_together(together[mode % 4]);
        calls++;
        const int error = backward(c.p, c.dev, NULL);
        fake_together(0);
        if (error || fake_failure()[0]) {
            fail(c, fake_failure(), error, 0);
            continue;
        }
        checks++;
        if (out != c.out.memory) fail(c, "the saved out was written", mode, 0);
        check_workspace(c, workspace);
        for (int n = 0; n < RESULTS; n++) {
            if (mode == 0) first[n] = results[n]->memory;
            checks++;
            if (n == 0 && in_any_order) continue;
            if (first[n] != results[n]->memory) fail(c, "other bits of a gradient than in the first timing", mode, n);
        }
        if (mode == 0 || in_any_order) check_backward(c, before[0], before[1], before[2]);
    }
}
static void run_forward(call &c, size_t workspace, forward_fn forward) {
    shared_vector<unsigned char> first[7];
    tensor *const results[7] = {&c.out, &c.lse, &c.stats, &c.pairs[0], &c.pairs[1], &c.pairs[2], &c.pairs[3]};
    for (int mode = 0; mode < timings; mode++) {
        give_workspace(c, workspace); /* with nothing in it that the timing before left */
        for (tensor *t : results) poison(*t);
        set_timing(mode);
        calls++;
        if (c.p.queries <= 5 && c.p.keys >= 512) fake_together(together[mode % 4]); /* keys may be cut */
        const int error = forward(c.p, c.dev, NULL);
        fake_together(0);
        if (error || fake_failure()[0]) {
            fail(c, fake_failure(), error, 0);
            continue;
        }
        if (mode == 0) check_forward(c);
        check_workspace(c, workspace);
        for (int n = 0; n < 7; n++) {
            if (mode == 0) first[n] = results[n]->memory;
            checks++;
            if (first[n] == results[n]->memory) continue;
            fail(c, "other bits than in the first timing", mode, n);
            check_forward(c);
        }
    }
}

static void forward(call &c, const stage &s) {
    if (s.covers(c.p, c.dev, false)) fail(c, s.covers(c.p, c.dev, false), 0, 1);
    else run_forward(c, (size_t)s.workspace(c.p, c.dev, false, false), s.forward);
}
/* with so little shared memory that two blocks fit into a multiprocessor of 100 KB, each of which costs 1 KB more */
static void forward_in_little(call &c, const stage &s) {
    fake_forget();
    forward(c, s);
    checks++;
    if (2 * (fake_counted().shared + 1024) > 100 * 1024) fail(c, "shared memory", (double)fake_counted().shared, 50176);
}
/* Tiles of 128 rows: of head sizes from 65 to 128 where there are two for each multiprocessor. That these ran, and
   tiles of 64 rows where there are fewer, this memory tells. */
template <void (*test)(call &, const stage &)> static void in_large_tiles(call &c, const stage &s) {
    const params &p = c.p;
    const int64_t group = p.heads / p.heads_kv;
    const int64_t tiles = p.queries < 128 ? p.batch * p.heads_kv * ((p.queries * group + 127) / 128)
                                          : p.batch * p.heads * ((p.queries + 127) / 128);
    c.dev.processors = 1;
    fake_forget();
    test(c, s);
    with_shape(p, [&](auto, auto d) {
        if (test != forward || decltype(d)::value != 128 || has_extra(p) || p.queries * group <= 16) return;
        const bool large = tiles >= 2 && c.dev.compiled < 90;
        const size_t want =
            large ? mma_tile_shape<128, false>::shared_bytes : mma_small_shape<128, false>::shared_bytes;
        checks++;
        if (fake_counted().shared != want) fail(c, "shared memory", (double)fake_counted().shared, (double)want);
    });
}
/* Some results are not wanted. Up to 16 rows the warps of a block share the keys, two where the device has little
   shared memory or head sizes are above 128, else four: that these kernels ran, and no others, this memory tells. */
template <int Kind> static void decode_as(call &c, const stage &s) {
    params &p = c.p;
    size_t of_decode = 0;
    bool merges = true; /* else keys that are cut take a second launch */
    with_shape(p, [&](auto, auto d) {
        constexpr int D = decltype(d)::value, kind = D % 32 ? NUMBERS : Kind, keys = mma_decode_keys<D, kind>;
        merges = (D <= 192 || !has_extra(p)) && mma_plan<D>(p, c.dev).splits <= MOST_MERGED;
        typedef mma_shape<D, keys, 4, kind> of_four;
        const bool four = D <= 128 && c.dev.shared_bytes > (kind ? 2 * of_four::shared_bytes + 1024 : 100 * 1024);
        of_decode = (size_t)(four ? of_four::shared_bytes : mma_shape<D, keys, 2, kind>::shared_bytes);
    });
    if (chance(20)) p.out.rank = 0, c.name += " without out";
    if (chance(30)) p.lse.rank = 0, c.name += " without lse";
    if (chance(50) && (p.out.rank || p.lse.rank)) p.stats.rank = 0, c.name += " without stats";
    fake_forget();
    forward(c, s);
    checks++;
    const bool few = Kind != NUMBERS || p.queries * p.heads / p.heads_kv <= 16;
    if ((fake_counted().shared == of_decode) != few)
        fail(c, "shared memory", (double)fake_counted().shared, (double)of_decode);
    if (few && merges && fake_counted().launches != timings)
        fail(c, "launches", (double)fake_counted().launches, timings);
}
static void decode(call &c, const stage &s) { decode_as<NUMBERS>(c, s); }
/* more parts than a warp has lanes, where they fill tiles of 16 rows or of 64 */
static void decode_in_many_parts(call &c, const stage &s) {
    c.dev.processors = (int)(c.p.batch * c.p.heads_kv) * draw(17, 20);
    with_shape(c.p, [&](auto, auto d) {
        const int parts = mma_plan<decltype(d)::value>(c.p, c.dev).splits;
        checks++;
        if (parts <= 32) fail(c, "parts", parts, 33);
    });
    decode(c, s);
}
/* Rows of k, v and their scales, those that may count, in pages of a pool in any order, with pages in it that are
   nobody's. Other rows are NaN, and pages without a row that may count have any number in the table. */
static void put_into_pages(call &c) {
    static const int64_t nowhere[4] = {-1, INT64_MIN, INT64_MAX, 1ll << 32};
    params &p = c.p;
    const auto is_codes = [](const attn__array &a) { return a.type == ATTN_I8 || a.type == CODES_FOR_TILES; };
    const bool codes[2] = {is_codes(p.k), is_codes(p.v)};
    const tensor *const from[4] = {codes[0] ? &c.codes[0] : &c.k, codes[1] ? &c.codes[1] : &c.v, &c.scales[0],
                                   &c.scales[1]};
    attn__array *const to[4] = {&p.k, &p.v, &p.k_scale, &p.v_scale};
    const int64_t pages = p.keys / c.page;
    std::vector<int64_t> order((size_t)(p.batch * pages + draw(1, 3)));
    for (size_t i = 0; i < order.size(); i++) {
        const size_t other = (size_t)draw(0, (int)i);
        order[i] = order[other], order[other] = (int64_t)i;
    }
    p.page = c.page, p.pool = (int64_t)order.size();
    c.table.assign((size_t)(p.batch * pages), 0);
    for (int n = 0; n < 4; n++) {
        if (n >= 2 && !codes[n - 2]) continue;
        tensor &pool = c.pools[n];
        make(pool, from[n]->a.type, p.pool, p.heads_kv, p.page, from[n]->size[3], 16);
        for (int64_t b = 0; b < p.batch; b++) {
            int64_t end = p.key_lengths.rank ? 0 : p.keys;
            for (int64_t i = 0; p.key_lengths.rank && i < (p.key_lengths.stride[2] ? p.queries : 1); i++)
                end = std::max<int64_t>(end, c.key_lengths[(size_t)(p.key_lengths.stride[2] ? b * p.queries + i : b)]);
            for (int64_t j = 0; j < p.keys; j++) {
                const int64_t at = b * pages + j / p.page, page = order[(size_t)at];
                if (j % p.page == 0) c.table[(size_t)at] = j < end ? page : nowhere[draw(0, 3)];
                for (int64_t h = 0; h < p.heads_kv && j < end; h++)
                    for (int64_t x = 0; x < pool.size[3]; x++)
                        put(pool, page, h, j % p.page, x, (*from[n])(b, h, j, x));
            }
        }
        pool.a.stride[3] = to[n]->stride[3];
        pool.a.type = to[n]->type;
        *to[n] = pool.a;
    }
    p.page_table = {(void *)c.table.data(), {pages, 0, 1, 0}, ATTN_I64, 2};
    c.name += ", in pages of " + std::to_string(c.page);
}
/* The same call in another form has the bits of the one before, by kernels with so much shared memory. */
static void same_bits(call &c, const stage &s, size_t shared) {
    const tensor *const results[3] = {&c.out, &c.lse, &c.stats};
    const shared_vector<unsigned char> want[3] = {c.out.memory, c.lse.memory, c.stats.memory};
    fake_forget();
    forward(c, s);
    checks++;
    if (fake_counted().shared != shared) fail(c, "shared memory", (double)fake_counted().shared, (double)shared);
    for (int n = 0; n < 3; n++) {
        checks++;
        if (results[n]->memory != want[n]) fail(c, "other bits than of numbers side by side", n, 0);
    }
}
template <void (*test)(call &, const stage &)> static void in_pages(call &c, const stage &s) {
    fake_forget();
    test(c, s);
    const size_t shared = fake_counted().shared;
    put_into_pages(c);
    same_bits(c, s, shared);
}
/* The numbers of k or v become others near by, of which there are codes. What is not finite is a scale's. */
static void become_codes(tensor &t, tensor &codes, tensor &scales) {
    const bool per_row = chance(50);
    const int64_t in_row = per_row ? 1 : (t.size[3] + 31) / 32;
    make(codes, ATTN_I8, t.size[0], t.size[1], t.size[2], t.size[3], 16);
    make(scales, chance(50) ? ATTN_F32 : ATTN_F16, t.size[0], t.size[1], t.size[2], in_row, 1);
    if (in_row == 1) scales.a.stride[3] = 0;
    for_all(scales, [&](int64_t b, int64_t h, int64_t i, int64_t g) {
        const int64_t first = g * 32, end = per_row ? t.size[3] : std::min(first + 32, t.size[3]);
        double largest = 0;
        for (int64_t x = first; x < end && isfinite(largest); x++)
            if (!(fabs(t(b, h, i, x)) <= largest))
                largest = isfinite(t(b, h, i, x)) ? fabs(t(b, h, i, x)) : t(b, h, i, x);
        put(scales, b, h, i, g, largest / 127);
        const float scale = (float)scales(b, h, i, g);
        for (int64_t x = first; x < end; x++) {
            const double code = scale == 0 || !isfinite(scale) ? (double)draw(-128, 127) : rint(t(b, h, i, x) / scale);
            put(codes, b, h, i, x, std::max(-128.0, std::min(127.0, code)));
            put(t, b, h, i, x, (float)codes(b, h, i, x) * scale);
        }
    });
}
static void draw_codes_of(call &c) {
    c.codes_of = draw(1, 3);
    if (c.codes_of & 1) become_codes(c.k, c.codes[0], c.scales[0]);
    if (c.codes_of & 2) become_codes(c.v, c.codes[1], c.scales[1]);
}
/* k, v or both become the codes of their numbers, for kernels that make tiles of numbers again. */
static void take_codes(call &c, const stage &s) {
    params &p = c.p;
    const bool packed = p.k.stride[0] == 0;
    if (c.codes_of & 1) p.k = c.codes[0].a, p.k_scale = c.scales[0].a;
    if (c.codes_of & 2) p.v = c.codes[1].a, p.v_scale = c.scales[1].a;
    for (attn__array *const a : {&p.k, &p.v, &p.k_scale, &p.v_scale})
        if (packed) a->stride[0] = 0;
    checks++;
    if (hand_over_codes(p, s, c.dev, NULL) || !are_for_tiles(p)) fail(c, "codes do not become tiles of numbers", 0, 1);
    c.name += c.codes_of == 1 ? ", codes of k" : c.codes_of == 2 ? ", codes of v" : ", codes";
}
/* Of few rows, too, where the kernel of a decode makes no numbers of codes */
static void few_codes_in_tiles(call &c, const stage &s) {
    draw_codes_of(c);
    if (!has_extra(c.p)) c.p.softcap = 2, c.name += " softcap";
    take_codes(c, s);
    fake_forget();
    forward(c, s);
    with_shape(c.p, [&](auto, auto d) {
        checks++;
        if (decltype(d)::value > 192 &&
            fake_counted().shared != mma_small_shape<decltype(d)::value, true>::shared_bytes)
            fail(c, "shared memory of another kernel", (double)fake_counted().shared, 0);
    });
}
/* Codes of which numbers are made tile by tile have the bits of these numbers, in pages, too, in the kernels with
   options. Slopes of 0 have numbers taken there. */
template <bool Pages, void (*test)(call &, const stage &)> static void codes_in_tiles(call &c, const stage &s) {
    params &p = c.p;
    const bool plain = !has_extra(p);
    if (stage_2_columns(larger_head(p)) > 192 && p.queries * p.heads / p.heads_kv <= MMA_DECODE_ROWS)
        return few_codes_in_tiles(c, s);
    draw_codes_of(c);
    if (c.codes_of & 1 && c.scales[0].size[3] > 1 && p.size_q % 32 == 16 && chance(50)) { /* and of half a group */
        const int64_t i[3] = {draw(0, (int)p.batch - 1), draw(0, (int)p.heads_kv - 1), draw(0, (int)p.keys - 1)};
        put(c.scales[0], i[0], i[1], i[2], p.size_q / 32, INFINITY), c.name += ", an infinite scale";
        for (int64_t x = p.size_q - 16; x < p.size_q; x++) {
            put(c.codes[0], i[0], i[1], i[2], x, 1), put(c.k, i[0], i[1], i[2], x, INFINITY);
            for_all(c.q, [&](int64_t b, int64_t h, int64_t row, int64_t column) {
                if (column == x) put(c.q, b, h, row, x, -fabs(c.q(b, h, row, x)));
            });
        }
    }
    if (plain) {
        make(c.alibi, ATTN_F32, 1, p.heads, 1, 1);
        for (int64_t h = 0; h < p.heads; h++) put(c.alibi, 0, h, 0, 0, 0);
        p.alibi = c.alibi.a, p.alibi.stride[0] = p.alibi.stride[2] = p.alibi.stride[3] = 0;
    }
    fake_forget();
    test(c, s);
    const size_t shared = fake_counted().shared;
    if (plain && (c.codes_of < 3 || p.queries * p.heads / p.heads_kv > 64)) p.alibi.rank = 0; /* else codes are read */
    take_codes(c, s);
    same_bits(c, s, shared);
    if (Pages) put_into_pages(c), same_bits(c, s, shared);
}
/* k or v become what codes stand for: each number is rounded to f32, for a call that reads codes as they are. */
static void draw_codes(call &c, tensor &t, tensor &codes, tensor &scales, double size) {
    const bool per_row = chance(50), extremes = chance(20);
    make(codes, ATTN_I8, t.size[0], t.size[1], t.size[2], t.size[3], 16);
    make(t, ATTN_F32, t.size[0], t.size[1], t.size[2], t.size[3]);
    const int64_t in_row = per_row ? 1 : (t.size[3] + 31) / 32;
    make(scales, chance(50) ? ATTN_F32 : ATTN_F16, t.size[0], t.size[1], t.size[2], in_row, 1);
    fill(scales, size);
    spoil(scales, c.name.find(" steep") != std::string::npos ? 100 : 20); /* a weight that vanishes lets NaN through */
    if (chance(30)) /* a key that, with a window or causal, some rows have and others have not */
        put(scales, 0, 0, draw(std::max(0, (int)t.size[2] - 8), (int)t.size[2] - 1), draw(0, (int)in_row - 1), NAN);
    if (scales.size[3] == 1) scales.a.stride[3] = 0;
    for_all(t, [&](int64_t b, int64_t h, int64_t i, int64_t x) {
        put(codes, b, h, i, x, extremes ? (chance(50) ? -128 : 127) : draw(-128, 127));
        const float scale = (float)scales(b, h, i, per_row ? 0 : x / 32);
        put(t, b, h, i, x, (float)codes(b, h, i, x) * scale);
    });
    c.name += per_row ? ", codes" : ", codes in groups";
}
/* A decode reads codes of k and v as they are. Pages: and has the same bits in pages. */
template <bool Pages> static void decode_codes(call &c, const stage &s) {
    params &p = c.p;
    draw_codes(c, c.k, c.codes[0], c.scales[0], 0.03);
    draw_codes(c, c.v, c.codes[1], c.scales[1], p.out.type == ATTN_F32 && chance(50) ? 1000 : 0.03); /* no f16 */
    p.k = c.codes[0].a, p.v = c.codes[1].a, p.k_scale = c.scales[0].a, p.v_scale = c.scales[1].a;
    if (p.queries * p.heads / p.heads_kv > 64) return; /* their numbers are made before a kernel of this stage runs */
    if (stage_2_columns(larger_head(p)) % 32) {        /* here, too */
        calls++, checks++;
        return s.covers(p, c.dev, false) ? (void)0 : fail(c, "codes in a kernel without whole groups of columns", 0, 1);
    }
    fake_forget();
    if (p.k_scale.stride[3] || p.v_scale.stride[3]) decode_as<CODES_IN_GROUPS>(c, s);
    else decode_as<CODES>(c, s);
    const size_t shared = fake_counted().shared;
    if (Pages) put_into_pages(c), same_bits(c, s, shared);
}
/* Weights and scores, some of these, in arrays of any type and strides; then the other results, some of them or none.
   Those have the bits of a call without weights, and weights those of a call that asks for them and stats alone. */
static void forward_with_pairs(call &c, const stage &s) {
    params &p = c.p;
    attn__array *const of[4] = {&p.weights, &p.scores, &p.scores_softcap, &p.scores_masked};
    const bool of_stage_3 = s.forward == hopper_forward; /* which has out in any case */
    forward(c, s);
    tensor *const results[3] = {&c.out, &c.lse, &c.stats};
    shared_vector<unsigned char> alone[3];
    for (int n = 0; n < 3; n++) alone[n] = results[n]->memory;
    for (int n = 0; n < 4; n++) {
        static const int types[3] = {ATTN_F32, ATTN_BF16, ATTN_F16};
        const bool wide = chance(60); /* rows in pieces of 16 bytes */
        if (!chance(n == 0 ? 80 : 35) && (n < 3 || wants_pairs(p))) continue;
        make(c.pairs[n], types[draw(0, 2)], p.batch, p.heads, p.queries, p.keys, wide ? 8 : 1);
        if (!wide && chance(40)) { /* queries side by side */
            std::swap(c.pairs[n].size[2], c.pairs[n].size[3]);
            make(c.pairs[n], c.pairs[n].a.type, p.batch, p.heads, p.keys, p.queries, 1);
            std::swap(c.pairs[n].size[2], c.pairs[n].size[3]);
            std::swap(c.pairs[n].a.stride[2], c.pairs[n].a.stride[3]);
        }
        *of[n] = c.pairs[n].a;
    }
    if (p.dropout != 0 && chance(50)) p.weights_after_dropout = 1, c.name += " (weights after it)";
    c.name += ", with";
    for (int n = 0; n < 4; n++)
        if (of[n]->rank) c.name += n == 0 ? " weights" : n == 1 ? " scores" : n == 2 ? " softcapped" : " masked";
    if (!of_stage_3 && chance(40)) p.out.rank = 0, c.name += ", without out";
    if (chance(40)) p.lse.rank = 0, c.name += ", without lse";
    if (chance(50)) p.stats.rank = 0, c.name += ", without stats";
    forward(c, s);
    const attn__array *const asked[3] = {&p.out, &p.lse, &p.stats};
    for (int n = 0; n < 3; n++) {
        checks++;
        if (asked[n]->rank && results[n]->memory != alone[n]) fail(c, "other bits than without weights", n, 0);
    }
    if (!p.weights.rank) return;
    const shared_vector<unsigned char> weights = c.pairs[0].memory;
    for (int n = 1; n < 4; n++) of[n]->rank = 0, poison(c.pairs[n]), c.pairs[n].memory.clear();
    p.stats = c.stats.a, p.lse.rank = 0, c.name += ", then alone";
    forward(c, s);
    checks++;
    if (c.pairs[0].memory != weights) fail(c, "other bits of weights than alone", 0, 0);
}
static void forward_cut_off(call &c, const stage &s) { forward(c, s); }
static void forward_of_ends(call &c, const stage &s) { forward(c, s); }
static void backward(call &c, const stage &s);
static void backward_of_ends(call &c, const stage &s) { backward(c, s); }
/* Where tasks differ in length and there are more than multiprocessors, each is taken by a ticket: so many were. */
static void forward_by_tickets(call &c, const stage &s) {
    const params &p = c.p;
    int tasks = 0;
    with_hopper_shape(p, [&](auto shape) {
        constexpr int rows = decltype(shape)::rows;
        const int packed = hopper_packed(p, c.dev, rows);
        tasks = (int)(p.batch * p.heads >> packed) * task_order_of(p, false, rows, packed).tiles;
    });
    if (chance(50)) c.p.left = c.p.right = INT64_MAX, c.name += ", neither causal nor a window after all";
    forward(c, s);
    if (!has_unequal_tasks(p) || tasks <= c.dev.processors) return;
    checks++;
    if (*(const int *)p.workspace != tasks) fail(c, "tickets", *(const int *)p.workspace, tasks);
}
/* Heads of some sizes have kernels of their own, not those of larger ones; the shared memory of a forward tells. */
template <class Heads> static void check_heads(call &c) {
    int qk = 0, v = 0;
    with_heads(c.p, hopper_heads(), [&](auto heads) { qk = decltype(heads)::qk, v = decltype(heads)::v; });
    checks++;
    if (qk != Heads::qk) fail(c, "kernels for another head size", qk, Heads::qk);
    else if (v != Heads::v) fail(c, "kernels for another head size of the values", v, Heads::v);
}
template <class Heads> static void forward_of(call &c, const stage &s) {
    const size_t own = (size_t)(has_extra(c.p) ? hopper_shape<Heads, Heads::all>::shared_bytes
                                               : hopper_shape<Heads, false>::shared_bytes);
    check_heads<Heads>(c);
    fake_forget();
    forward(c, s);
    checks++;
    if (fake_counted().shared != own) fail(c, "shared memory", (double)fake_counted().shared, (double)own);
}
typedef head_pair<96, 96, false> heads_96;
typedef head_pair<192, 128> heads_192_128;
typedef head_pair<192, 192, false> heads_192;
/* The heads of a group fill a tile together: there are as few tiles as can be. */
static void forward_packed(call &c, const stage &s) {
    const params &p = c.p;
    const int64_t heads = p.batch * p.heads;
    c.dev.processors = 1; /* however few tiles are left */
    int64_t fewest = heads * ((p.queries + 127) / 128);
    for (int64_t in_one = 2; in_one <= 16 && p.heads / p.heads_kv % in_one == 0; in_one *= 2)
        fewest = std::min(fewest, heads / in_one * ((p.queries * in_one + 127) / 128));
    const task_order order = task_order_of(p, false, 128, hopper_packed(p, c.dev, 128));
    checks++;
    if ((heads >> order.packed) * order.tiles != fewest) fail(c, "tiles", order.tiles, (double)fewest);
    forward(c, s);
}
/* after a forward in some timing, whose results it goes on with */
static void backward(call &c, const stage &s) {
    const bool other = s.covers(c.p, c.dev, false) && s.forward == hopper_forward; /* stage 2 has it with all options */
    give_workspace(c, (size_t)(other ? mma_workspace : s.workspace)(c.p, c.dev, false, false));
    set_timing(0);
    if ((other ? mma_covers : s.covers)(c.p, c.dev, false) || (other ? mma_forward : s.forward)(c.p, c.dev, NULL) ||
        fake_failure()[0])
        fail(c, "the forward for gradients", 0, 1);
    make_backward(c);
    make_pair_sums(c, s);
    if (s.covers(c.p, c.dev, true)) fail(c, s.covers(c.p, c.dev, true), 0, 1);
    else {
        fake_forget();
        run_backward(c, (size_t)s.workspace(c.p, c.dev, true, false), s.backward);
    }
}
template <class Heads> static void backward_of(call &c, const stage &s) {
    check_heads<Heads>(c);
    backward(c, s);
}
/* The kernels that find gradients: of one sweep one, where dq is wanted one behind it, with ATTN_PRECISION_FAST also
   one in front; else those of stage 2. */
static long kernels_of_gradients(const params &p, forward_fn backward) {
    if (!p.dq.rank && !p.dk.rank && !p.dv.rank) return 0;
    if (sweeps_once(p, backward)) return !p.dq.rank ? 1 : p.precision == ATTN_PRECISION_FAST ? 3 : 2;
    return (p.dq.rank != 0) + (p.dk.rank || p.dv.rank);
}
/* Of d_bias, d_scale, d_alibi each has one, and another one where it is in parts. */
static long kernels_of_pairs(const params &p) {
    long count = 0;
    with_shape(p, [&](auto, auto d) {
        for (int of = OF_BIAS; of <= OF_ALIBI; of++) {
            const pairs_work m = pairs_plan(p, (pair_term)of, grad_shape<decltype(d)::value, true>::keys);
            if (m.to.rank) count += m.parts > 1 ? 2 : 1;
        }
    });
    return count;
}
/* How many were launched tells: one more comes first, in stage 3 another that looks at a mask; and one finds d_sink. */
static void backward_in_one(call &c, const stage &s) {
    const params &p = c.p;
    const bool fast = chance(30);
    if (fast) c.p.precision = ATTN_PRECISION_FAST, c.name += ", FAST";
    backward(c, s);
    if (!p.stats.rank) return; /* a forward is counted, too */
    checks++;
    const int before = 1 + (s.backward == hopper_backward && p.mask.rank) + (p.d_sink.rank != 0);
    const long want = timings * (before + kernels_of_gradients(p, s.backward) + kernels_of_pairs(p));
    if (fake_counted().launches != want) fail(c, "launches", (double)fake_counted().launches, (double)want);
}
static void backward_of_vanishing(call &c, const stage &s) { backward(c, s); }
static void backward_of_halves(call &c, const stage &s) { backward_in_one(c, s); }
static void backward_of_pairs(call &c, const stage &s) {
    c.pair_sums = true;
    backward(c, s);
}
/* Whatever keys and values hold that no query may attend to, gradients have the same bits: in the column where a query
   is infinite, too. */
static void backward_beside_any(call &c, const stage &s) {
    static const double odd[3] = {NAN, INFINITY, -INFINITY};
    params &p = c.p;
    tensor *const results[3] = {&c.dq, &c.dk, &c.dv};
    shared_vector<unsigned char> want[3];
    c.key_lengths.resize((size_t)p.batch);
    for (int32_t &x : c.key_lengths) x = draw(0, (int)p.keys - 1);
    integers(p.key_lengths, c.key_lengths, p.batch, 1);
    backward(c, s);
    for (int64_t b = 0; b < p.batch; b++)
        for (int n = 0; n < 20; n++) {
            const int64_t j = draw(c.key_lengths[(size_t)b], (int)p.keys - 1), h = draw(0, (int)p.heads_kv - 1);
            put(c.k, b, h, j, c.infinite ? COLUMN : draw(0, (int)p.size_q - 1),
                c.infinite && n % 4 == 3 ? 0 : odd[n % 3]);
            put(c.v, b, h, j, draw(0, (int)p.size_v - 1), odd[n % 2]);
        }
    for (int n = 0; n < 3; n++) {
        want[n] = results[n]->memory;
        poison(*results[n]);
        if (p.accumulate >> n & 1) set_all(*results[n], 0.25);
    }
    calls++, checks++;
    if (s.backward(p, c.dev, NULL) || fake_failure()[0]) return fail(c, fake_failure(), 0, 1);
    for (int n = 0; n < 3; n++) {
        checks++;
        if (want[n] != results[n]->memory) fail(c, "other bits of a gradient beside keys of any numbers", n, 0);
    }
}
template <class Heads> static void backward_in_one_of(call &c, const stage &s) {
    check_heads<Heads>(c);
    backward_in_one(c, s);
}

/* A mask of tiles that are empty, whole, or have some pairs or one; heads or batches, rows, sometimes columns, may have
   it in common. */
static void draw_mask_of_tiles(call &c) {
    params &p = c.p;
    const int rows = chance(70) ? 128 : draw(20, 300), keys = chance(70) ? 64 : draw(20, 200);
    int kind = 0, row = -1, key = -1;
    make(c.mask, ATTN_U8, p.batch, chance(50) ? 1 : p.heads, p.queries, p.keys, chance(30) ? 1 : 16);
    for (int axis = 0; axis < 4; axis++)
        if (chance(axis == 3 ? 5 : 20)) c.mask.a.stride[axis] = 0;
    const bool wide = chance(50); /* rows at multiples of 16 bytes, read in such pieces */
    if (wide) {
        int64_t step = (p.keys + 15) / 16 * 16;
        for (int axis = 2; axis >= 0; axis--) {
            if (c.mask.a.stride[axis]) c.mask.a.stride[axis] = step;
            step *= c.mask.size[axis];
        }
        c.mask.memory.assign((size_t)step + 64, 0xff);
        c.mask.a.data = (void *)(((uintptr_t)c.mask.memory.data() + 15) / 16 * 16);
    }
    std::vector<int> kinds;
    for_all(c.mask, [&](int64_t b, int64_t h, int64_t i, int64_t x) {
        if (i / rows != row || x / keys != key) {
            row = (int)(i / rows), key = (int)(x / keys);
            const size_t at = (size_t)((((b * 8 + h) * 64 + row) * 64) + key);
            if (kinds.size() <= at) kinds.resize(at + 1, -1);
            if (kinds[at] < 0) kinds[at] = draw(0, 5);
            kind = kinds[at];
        }
        const bool one = i % rows == rows / 3 && x % keys == keys / 2;
        put(c.mask, b, h, i, x, kind < 3 ? 0 : kind == 3 ? 1 : kind == 4 ? chance(60) : one);
    });
    for_all(c.mask, [&](int64_t b, int64_t h, int64_t i, int64_t x) {
        c.mask.value[(size_t)c.mask.at(b, h, i, x)] = read_element(c.mask, place(c.mask.a, b, h, i, x));
    });
    p.mask = c.mask.a;
    if (c.mask.size[1] == 1) p.mask.stride[1] = 0;
    if (p.batch == 1) p.mask.stride[0] = 0;
    c.name += ", mask of tiles";
}
/* The mask as a bias, of which no tile is left out */
static void make_bias(call &c, bool of_mask) {
    params &p = c.p;
    make(c.bias, ATTN_F32, p.batch, p.heads, p.queries, p.keys);
    for_all(c.bias, [&](int64_t b, int64_t h, int64_t i, int64_t x) {
        put(c.bias, b, h, i, x, !of_mask || c.mask(b, c.mask.size[1] > 1 ? h : 0, i, x) ? 0 : -INFINITY);
    });
    p.bias = c.bias.a;
}
static void mask_becomes_bias(call &c) {
    make_bias(c, true);
    c.p.mask.rank = 0;
    c.name += " as a bias";
}
/* The boxes of columns of K and V in tiles without a pair that the mask lets through, and those of Q where all tiles
   are so: where no reach leaves out tiles, the forward loads so many less. */
static long boxes_in_empty_tiles(const call &c) {
    const params &p = c.p;
    int keys = 0, boxes = 0, boxes_q = 0;
    long empty = 0;
    with_hopper_shape(p, [&](auto shape) {
        typedef decltype(shape) Shape;
        keys = Shape::keys, boxes_q = (Shape::qk + 63) / 64, boxes = boxes_q + (Shape::v + 63) / 64;
    });
    for (int64_t b = 0; b < p.batch; b++)
        for (int64_t h = 0; h < p.heads; h++)
            for (int64_t i0 = 0; i0 < p.queries; i0 += 128) {
                bool any_of_row = false;
                for (int64_t j0 = 0; j0 < p.keys; j0 += keys) {
                    bool any = false;
                    for (int64_t i = i0; i < std::min(i0 + 128, p.queries); i++)
                        for (int64_t j = j0; j < std::min(j0 + keys, p.keys); j++)
                            any = any || c.mask(b, c.mask.size[1] > 1 ? h : 0, i, j);
                    empty += any ? 0 : boxes;
                    any_of_row = any_of_row || any;
                }
                empty += any_of_row ? 0 : boxes_q;
            }
    return empty;
}
static void forward_of_mask_tiles(call &c, const stage &s) {
    const params &p = c.p;
    draw_mask_of_tiles(c);
    /* where the mask lets all of a tile through, V is not looked through; with a bias it is */
    if (chance(60)) put(c.v, 0, 0, draw(0, (int)p.keys - 1), draw(0, (int)p.size_v - 1), NAN), forward(c, s);
    make_bias(c, false); /* zeros: without a bias scores have other last bits */
    const bool all = p.left == INT64_MAX && p.right == INT64_MAX && !p.key_lengths.rank && !p.query_lengths.rank;
    const long empty = boxes_in_empty_tiles(c);
    /* an infinite v is as it is in whole tiles of a mask, NaN in those that are looked through */
    const bool infinite = std::any_of(c.v.value.begin(), c.v.value.end(), [](double x) { return isinf(x); });
    fake_forget();
    forward(c, s);
    const fake_counts masked = fake_counted();
    mask_becomes_bias(c);
    if (infinite) fake_forget(), forward(c, s);
    else same_bits(c, s, masked.shared);
    checks++;
    if (masked.loads && all && fake_counted().loads - masked.loads != empty * timings)
        fail(c, "loads of empty tiles", (double)(fake_counted().loads - masked.loads), (double)empty * timings);
}
static void backward_of_mask_tiles(call &c, const stage &s) {
    tensor *const results[3] = {&c.dq, &c.dk, &c.dv};
    shared_vector<unsigned char> want[3];
    draw_mask_of_tiles(c);
    make_bias(c, false);
    if (chance(40)) c.p.left = draw(0, 150), c.name += " left " + std::to_string(c.p.left);
    backward(c, s);
    for (int n = 0; n < 3; n++) want[n] = results[n]->memory;
    for_all(c.out, [&](int64_t b, int64_t h, int64_t i,
                       int64_t x) { /* run_backward takes a half of it */
                                    put(c.out, b, h, i, x, 2 * read_element(c.out, place(c.out.a, b, h, i, x)));
    });
    mask_becomes_bias(c);
    run_backward(c, (size_t)s.workspace(c.p, c.dev, true, false), s.backward);
    for (int n = 0; n < 3; n++) {
        checks++;
        if (results[n]->memory != want[n]) fail(c, "other bits of a gradient than without empty tiles", n, 0);
    }
}

/* ---- entries with starts: packed, queries or keys or both, or each behind padding of its own */
struct span {
    int row0, rows, key0, keys; /* keys: those that exist, as many as its length or up to the end of the array */
    int length;
};
static void copy_rows_of(tensor &to, const tensor &from, int64_t b, int64_t row0) {
    for_all(to, [&](int64_t, int64_t h, int64_t i, int64_t x) { put(to, 0, h, i, x, from(b, h, row0 + i, x)); });
}
static std::vector<double> elements(const tensor &t) {
    std::vector<double> all;
    for_all(
        t, [&](int64_t b, int64_t h, int64_t i, int64_t x) { all.push_back(read_element(t, place(t.a, b, h, i, x))); });
    return all;
}
/* A bias, and maybe a mask, over entries: a number for each pair of the arrays; where one side is packed, a head */
static void mask_entries(call &all, bool packed) {
    params &p = all.p;
    const int64_t rows = packed ? 1 : p.queries, keys = packed ? 1 : p.keys;
    const auto draw_one = [&](tensor &t, attn__array &a, int type, const char *name) {
        make(t, type, chance(60) ? p.batch : 1, chance(60) ? p.heads : 1, rows, keys, chance(40) ? 1 : 8);
        for_all(t, [&](int64_t b, int64_t h, int64_t i, int64_t x) {
            put(t, b, h, i, x, type == ATTN_U8 ? chance(80) : chance(10) ? -INFINITY : 2 * number());
        });
        if (!packed) restride(t);
        a = t.a;
        for (int axis = 0; axis < 4; axis++)
            if (t.size[axis] == 1) a.stride[axis] = 0;
        all.name += name;
    };
    draw_one(all.bias, p.bias, chance(50) ? ATTN_F32 : p.q.type, " bias");
    if (chance(60)) draw_one(all.mask, p.mask, ATTN_U8, " mask");
}
/* What an entry has of one */
static void own_pairs(tensor &own, attn__array &a, const tensor &all, int64_t heads, const span &e, int64_t b) {
    make(own, all.a.type, 1, heads, e.rows, std::max(e.keys, 1));
    for_all(own, [&](int64_t, int64_t h, int64_t i, int64_t x) {
        const int64_t at[4] = {b, h, e.row0 + i, e.key0 + x};
        int64_t in[4];
        for (int axis = 0; axis < 4; axis++) in[axis] = std::min(at[axis], all.size[axis] - 1);
        put(own, 0, h, i, x, all(in[0], in[1], in[2], in[3]));
    });
    a = own.a;
}
/* The call of an entry alone, with the options of all */
static void start_own(call &own, const call &all, const span &e, int64_t b) {
    const params &p = all.p;
    const int type = p.q.type;
    start_call(own, type,
               {1, (int)p.heads, (int)p.heads_kv, e.rows, std::max(e.keys, 1), (int)p.size_q, (int)p.size_v});
    make(own.out, all.out.a.type, 1, p.heads, e.rows, p.size_v, 2);
    own.p.out = own.out.a;
    copy_rows_of(own.q, all.q, p.packed_queries ? 0 : b, e.row0);
    if (e.keys) copy_rows_of(own.k, all.k, p.packed_keys ? 0 : b, e.key0);
    if (e.keys) copy_rows_of(own.v, all.v, p.packed_keys ? 0 : b, e.key0);
    own.p.score = p.score, own.p.scale = p.scale, own.p.left = p.left, own.p.right = p.right, own.p.align = p.align;
    own.p.empty = p.empty, own.p.softcap = p.softcap, own.p.alibi = p.alibi, own.p.sink = p.sink;
    own.sink = all.sink, own.alibi = all.alibi; /* what float64 reads */
    own.p.dropout = p.dropout, own.p.drop_below = p.drop_below, own.p.keep_scale = p.keep_scale, own.p.seed = p.seed;
    for (int i = 0; i < 4; i++) own.p.origin[i] = p.origin[i] + (i == 0 ? (uint32_t)b : 0);
    if (p.bias.rank) own_pairs(own.bias, own.p.bias, all.bias, p.heads, e, b);
    if (p.mask.rank) own_pairs(own.mask, own.p.mask, all.mask, p.heads, e, b);
    own.dev = all.dev;
    own.name = all.name + ", entry " + std::to_string(b) + " rows " + std::to_string(e.row0) + "+" +
               std::to_string(e.rows) + " keys " + std::to_string(e.key0) + "+" + std::to_string(e.length);
    own.key_lengths.assign(1, e.length);
    integers(own.p.key_lengths, own.key_lengths, 1, 1);
    if (!p.packed_queries && p.query_lengths.rank) {
        own.query_lengths.assign(1, std::min(all.query_lengths[(size_t)b], e.rows));
        integers(own.p.query_lengths, own.query_lengths, 1, 1);
    }
    if (p.align == ATTN_ALIGN_POSITIONS && p.positions.rank == 1) {
        own.positions.assign(1, all.positions[(size_t)b]);
        integers(own.p.positions, own.positions, 1, 1);
    } else if (p.align == ATTN_ALIGN_POSITIONS) {
        own.positions.clear();
        for (int i = 0; i < e.rows; i++)
            own.positions.push_back(all.positions[(size_t)((p.packed_queries ? 0 : b * p.queries) + e.row0 + i)]);
        integers(own.p.positions, own.positions, 1, 2);
        own.p.positions.stride[0] = e.rows;
    }
}
/* Draws the entries of a call: sizes, starts, gaps between packed ones. */
static std::vector<span> draw_entries(call &all, const wishes &w, bool packed_queries, bool packed_keys,
                                      bool pages = false) {
    std::vector<span> of(chance(30) ? 1 : (size_t)draw(2, 7));
    int rows = 0, keys = 0;
    for (span &e : of) {
        e.rows = chance(15) ? 0 : w.decode ? draw(1, 4) : chance(40) ? draw(1, 30) : draw(1, w.most_rows);
        e.length = chance(10) ? 0 : draw(w.decode ? w.most_rows / 2 : 1, w.most_rows);
        e.row0 = packed_queries ? rows + draw(0, 3) : chance(30) ? 0 : draw(0, w.most_rows / 2);
        e.key0 = packed_keys ? keys + draw(0, 3) : chance(30) ? 0 : draw(0, w.most_rows / 2);
        rows = packed_queries ? e.row0 + e.rows : std::max(rows, e.row0 + 1);
        keys = packed_keys ? e.key0 + e.length : std::max(keys, e.key0 + 1);
    }
    rows = std::max(rows, w.least_rows) + draw(0, 20), keys = std::max(keys, 1) + draw(0, 20);
    if (pages) all.page = draw(1, 40), keys = draw(1, w.most_rows / all.page + 1) * all.page;
    for (span &e : of) e.key0 = pages ? 0 : e.key0;
    for (span &e : of) {
        if (!packed_queries) e.rows = rows - e.row0;
        if (!packed_keys) e.length = std::min(e.length, keys - e.key0);
        e.keys = packed_keys ? e.length : keys - e.key0;
    }
    all.query_starts.clear(), all.key_starts.clear(), all.key_lengths.clear(), all.query_lengths.clear();
    for (const span &e : of) {
        all.query_starts.push_back(e.row0), all.key_starts.push_back(e.key0);
        all.key_lengths.push_back(e.length);
        all.query_lengths.push_back(packed_queries ? e.rows : draw(0, e.rows));
    }
    params &p = all.p;
    p.queries = rows, p.keys = keys, p.batch = (int64_t)of.size();
    p.packed_queries = packed_queries, p.packed_keys = packed_keys, p.ragged = 1;
    return of;
}
static void remake(call &c, tensor &t, attn__array &a, int type, bool packed, int64_t heads, int64_t rows,
                   int64_t columns, double size, int unit = 8) {
    make(t, type, packed ? 1 : c.p.batch, heads, rows, columns, unit);
    if (size > 0) fill(t, size);
    a = t.a;
    if (packed) a.stride[0] = 0;
}
/* The arrays of a forward over entries */
static void make_entries(call &all, int type, int out_type, bool packed_queries, bool packed_keys) {
    params &p = all.p;
    all.name += packed_queries ? ", packed queries" : ", padded queries";
    all.name += packed_keys ? ", packed keys" : ", padded keys";
    remake(all, all.q, p.q, type, packed_queries, p.heads, p.queries, p.size_q, 3);
    remake(all, all.k, p.k, type, packed_keys, p.heads_kv, p.keys, p.size_q, 3);
    remake(all, all.v, p.v, type, packed_keys, p.heads_kv, p.keys, p.size_v, 2);
    remake(all, all.out, p.out, out_type, packed_queries, p.heads, p.queries, p.size_v, 0, 2);
    remake(all, all.lse, p.lse, ATTN_F32, packed_queries, p.heads, p.queries, 1, 0);
    remake(all, all.stats, p.stats, ATTN_F32, packed_queries, p.heads, p.queries, 2, 0);
}
static void check_outside(const call &c, const tensor &t, const std::vector<span> &of, bool packed) {
    for_all(t, [&](int64_t b, int64_t h, int64_t i, int64_t x) {
        for (size_t n = 0; n < of.size(); n++)
            if (packed ? i >= of[n].row0 && i < of[n].row0 + of[n].rows : (int64_t)n == b) return;
        const unsigned char *at = (const unsigned char *)t.a.data + place(t.a, b, h, i, x) * (int64_t)t.bytes_of();
        checks++;
        for (size_t n = 0; n < t.bytes_of(); n++)
            if (at[n] != 0xff) return fail(c, "a row of no entry was written", (double)i, (double)x);
    });
}
/* What is no entry's may hold anything. */
static void spoil_outside(tensor &t, const std::vector<span> &of, bool packed, bool keys) {
    static const double odd[3] = {NAN, INFINITY, -INFINITY};
    for_all(t, [&](int64_t b, int64_t h, int64_t i, int64_t x) {
        for (size_t n = 0; n < of.size(); n++) {
            const int64_t first = keys ? of[n].key0 : of[n].row0, many = keys ? of[n].length : of[n].rows;
            if ((packed || (int64_t)n == b) && i >= first && i < first + many) return;
        }
        put(t, b, h, i, x, odd[(i + x) % 3]);
    });
}
/* Does stage 2 take tiles of as many rows for both calls, and cut the keys of neither? */
static bool has_same_tiles(const params &p, const params &own, const device &dev) {
    bool same = false;
    with_shape(p, [&](auto, auto d) {
        constexpr int D = decltype(d)::value;
        const mma_work one = mma_plan<D>(p, dev), other = mma_plan<D>(own, dev);
        same = one.rows == other.rows && one.splits == 1 && other.splits == 1;
    });
    return same;
}
static void forward_of_entries(call &all, const stage &s) {
    params &p = all.p;
    const int type = p.q.type, out_type = all.out.a.type;
    const bool of_stage_2 = s.forward == mma_forward, decode = p.queries <= 5 && p.keys >= 512; /* keys are cut */
    const wishes w = {
        of_stage_2 && !decode ? 1 : decode ? 0 : 64, decode ? 1200 : of_stage_2 ? 150 : 300, 0, decode, 0, 0};
    const bool packed_queries = chance(all.masked ? 30 : 70), packed_keys = chance(packed_queries ? 70 : 30);
    const bool lengths = packed_keys || chance(60);
    const bool pages = of_stage_2 && !packed_keys && chance(all.masked ? 20 : 60);
    const std::vector<span> of = draw_entries(all, w, packed_queries, packed_keys, pages);
    make_entries(all, type, out_type, packed_queries, packed_keys);
    if (all.masked) mask_entries(all, packed_queries || packed_keys);
    spoil(all.k, 20), spoil(all.v, 30);
    if (chance(50)) {
        spoil_outside(all.q, of, packed_queries, false);
        if (lengths) spoil_outside(all.k, of, packed_keys, true), spoil_outside(all.v, of, packed_keys, true);
        all.name += ", NaN outside";
    }
    if (all.codes_of) draw_codes_of(all);
    integers(p.query_starts, all.query_starts, p.batch, 1), integers(p.key_starts, all.key_starts, p.batch, 1);
    integers(p.key_lengths, all.key_lengths, p.batch, 1), integers(p.query_lengths, all.query_lengths, p.batch, 1);
    if (!lengths) p.key_lengths.rank = 0;
    if (pages) p.key_starts.rank = 0;
    if (!packed_queries && chance(50)) p.query_lengths.rank = 0;
    if (p.align == ATTN_ALIGN_POSITIONS) {
        const bool per_query = chance(50);
        all.positions.resize((size_t)(per_query ? (packed_queries ? 1 : p.batch) * p.queries : p.batch));
        for (int32_t &x : all.positions) x = draw(-5, w.most_rows);
        integers(p.positions, all.positions, p.batch, per_query ? p.queries : 1);
        if (per_query && packed_queries) p.positions.rank = 2, p.positions.stride[0] = 0, p.positions.stride[2] = 1;
    }
    const char *why = s.covers(p, all.dev, false);
    if (of_stage_2 && stage_2_columns(larger_head(p)) > MMA_STARTS) { /* as in a build without heads of 192 */
        calls++, checks++;
        return why && strstr(why, "starts") ? (void)0 : fail(all, "taken by a kernel without starts", 0, 1);
    }
    if (why && !strstr(why, "few")) return fail(all, why, 0, 1); /* right it is of few rows, too */
    tensor *const results[3] = {&all.out, &all.lse, &all.stats};
    shared_vector<unsigned char> first[3];
    const size_t workspace = (size_t)s.workspace(p, all.dev, false, false);
    give_workspace(all, workspace);
    for (int mode = 0; mode < timings; mode++) {
        for (tensor *t : results) poison(*t);
        set_timing(mode);
        calls++;
        const int error = s.forward(p, all.dev, NULL);
        if (error || fake_failure()[0]) return fail(all, fake_failure(), error, 0);
        check_workspace(all, workspace);
        for (int n = 0; n < 3; n++) {
            if (mode == 0) first[n] = results[n]->memory;
            checks++;
            if (first[n] != results[n]->memory) fail(all, "other bits than in the first timing", mode, n);
        }
    }
    const attn__array k = p.k, v = p.v;
    const auto again = [&](const char *what) {
        if (s.covers(p, all.dev, false)) return fail(all, s.covers(p, all.dev, false), 0, 1);
        give_workspace(all, (size_t)s.workspace(p, all.dev, false, false));
        for (tensor *t : results) poison(*t);
        if (s.forward(p, all.dev, NULL) || fake_failure()[0]) return fail(all, fake_failure(), 0, 1);
        for (int n = 0; n < 3; n++) {
            checks++;
            if (first[n] != results[n]->memory) fail(all, what, 0, n);
        }
    };
    if (all.codes_of) take_codes(all, s), again("other bits than of the numbers of codes");
    if (pages) put_into_pages(all), again("other bits than of keys side by side");
    p.k = k, p.v = v, p.page = p.pool = 0, p.page_table.rank = p.k_scale.rank = p.v_scale.rank = 0;
    for (tensor *t : results) {
        check_outside(all, *t, of, packed_queries);
        checks++;
        if (!margins_untouched(*t)) fail(all, "memory beside the results was written", 0, 0);
    }
    for (size_t b = 0; b < of.size(); b++) {
        const span &e = of[b];
        span own_span = e;
        if (!lengths) own_span.length = e.keys;
        if (e.rows == 0) continue;
        call own;
        start_own(own, all, own_span, (int64_t)b);
        tensor *const own_results[3] = {&own.out, &own.lse, &own.stats};
        const int64_t array = packed_queries ? 0 : (int64_t)b;
        for (int n = 0; n < 3; n++)
            for_all(*own_results[n], [&](int64_t, int64_t h, int64_t i, int64_t x) {
                const tensor &from = *results[n];
                tensor &to = *own_results[n];
                memcpy((char *)to.a.data + place(to.a, 0, h, i, x) * (int64_t)to.bytes_of(),
                       (const char *)from.a.data + place(from.a, array, h, e.row0 + i, x) * (int64_t)from.bytes_of(),
                       to.bytes_of());
            });
        check_forward(own);
        if (of_stage_2 && !has_same_tiles(p, own.p, all.dev)) continue;
        std::vector<double> want[3];
        for (int n = 0; n < 3; n++) want[n] = elements(*own_results[n]), poison(*own_results[n]);
        give_workspace(own, (size_t)s.workspace(own.p, own.dev, false, false));
        set_timing(0);
        if (s.forward(own.p, own.dev, NULL) || fake_failure()[0]) return fail(own, fake_failure(), 0, 1);
        for (int n = 0; n < 3; n++) {
            const std::vector<double> got = elements(*own_results[n]);
            checks++;
            for (size_t x = 0; x < got.size(); x++) /* infinite v: which rows share a tile tells infinity from NaN */
                if (memcmp(&got[x], &want[n][x], sizeof got[x]) && (isfinite(got[x]) || isfinite(want[n][x])))
                    return fail(own, "other bits than in a call of its own", want[n][x], got[x]);
        }
    }
    for (int64_t b = 0; !packed_queries && b < p.batch; b++) /* rows in front of an entry's have no keys */
        for_all(all.out, [&](int64_t at, int64_t h, int64_t i, int64_t x) {
            const double sink = p.sink.rank ? all.sink(0, h, 0, 0) : -INFINITY;
            if (at != b || i >= of[(size_t)b].row0) return;
            close(all, "out in front of an entry", read_element(all.out, place(all.out.a, b, h, i, x)),
                  sink == -INFINITY && p.empty == ATTN_EMPTY_NAN ? NAN : 0, 0);
            close(all, "lse in front of an entry", read_element(all.lse, place(all.lse.a, b, h, i, 0)), sink,
                  2e-5 * (1 + fabs(sink)));
        });
}

/* What a forward leaves, by calls without starts */
static void forward_by_entries(call &all, const stage &s, const std::vector<span> &of) {
    for (size_t b = 0; b < of.size(); b++) {
        call own;
        if (of[b].rows == 0) continue;
        start_own(own, all, of[b], (int64_t)b);
        give_workspace(own, (size_t)s.workspace(own.p, all.dev, false, false));
        if (s.forward(own.p, all.dev, NULL) || fake_failure()[0]) return fail(own, fake_failure(), 0, 1);
        const auto copy = [&](tensor &to, const tensor &from) {
            for_all(from, [&](int64_t, int64_t h, int64_t i, int64_t x) {
                put(to, all.p.packed_queries ? 0 : (int64_t)b, h, of[b].row0 + i, x,
                    read_element(from, place(from.a, 0, h, i, x)));
            });
        };
        copy(all.out, own.out), copy(all.stats, own.stats), copy(all.lse, own.lse);
    }
}
/* Gradients of entries, packed or padded: each entry's are those of a call of its own, bit for bit. */
static void backward_of_entries(call &all, const stage &s) {
    params &p = all.p;
    const int type = p.q.type;
    const wishes w = {64, p.size_q + p.size_v > 128 ? 150 : 260, 0, 0, 0, 0};
    const bool packed = chance(all.masked ? 30 : 65), packed_keys = chance(packed ? 80 : 20),
               lengths = packed_keys || chance(60);
    std::vector<span> of = draw_entries(all, w, packed, packed_keys);
    for (span &e : of)
        if (!lengths) e.length = e.keys;
    make_entries(all, type, type, packed, packed_keys);
    if (all.masked) mask_entries(all, packed || packed_keys);
    spoil(all.q, 20), spoil(all.k, 20), spoil(all.v, 20);
    const bool outside = chance(60);
    if (outside) {
        spoil_outside(all.q, of, packed, false), spoil_outside(all.k, of, packed_keys, true);
        spoil_outside(all.v, of, packed_keys, true), all.name += ", NaN outside";
    }
    integers(p.query_starts, all.query_starts, p.batch, 1), integers(p.key_starts, all.key_starts, p.batch, 1);
    integers(p.key_lengths, all.key_lengths, p.batch, 1), integers(p.query_lengths, all.query_lengths, p.batch, 1);
    if (!lengths) p.key_lengths.rank = 0;
    if (!packed && chance(50)) p.query_lengths.rank = 0;
    if (p.align == ATTN_ALIGN_POSITIONS) {
        all.positions.resize((size_t)p.batch);
        for (int32_t &x : all.positions) x = draw(-5, w.most_rows);
        integers(p.positions, all.positions, p.batch, 1);
    }
    const char *const no_forward = s.covers(p, all.dev, false); /* of options of both kinds: stage 2's then */
    const bool no_starts = no_forward && strstr(no_forward, "entries with starts, and kernels");
    const stage &other = no_forward && strstr(no_forward, "beside a bias") ? stages[1] : s;
    give_workspace(all, (size_t)other.workspace(p, all.dev, false, false));
    set_timing(0);
    if (no_starts) forward_by_entries(all, s, of);
    else if (other.forward(p, all.dev, NULL) || fake_failure()[0]) return fail(all, fake_failure(), 0, 1);
    remake(all, all.d_out, p.d_out, type, packed, p.heads, p.queries, p.size_v, 1);
    spoil(all.d_out, 20);
    if (outside) spoil_outside(all.d_out, of, packed, false), spoil_outside(all.out, of, packed, false);
    remake(all, all.dq, p.dq, chance(70) ? type : ATTN_F32, packed, p.heads, p.queries, p.size_q, 0);
    remake(all, all.dk, p.dk, chance(70) ? type : ATTN_F32, packed_keys, p.heads_kv, p.keys, p.size_q, 0);
    remake(all, all.dv, p.dv, chance(70) ? type : ATTN_F32, packed_keys, p.heads_kv, p.keys, p.size_v, 0);
    if (chance(30)) {
        remake(all, all.d_lse, p.d_lse, ATTN_F32, packed, p.heads, p.queries, 1, 1);
        all.name += " d_lse";
    }
    if (chance(25)) p.precision = ATTN_PRECISION_FAST, all.name += ", FAST";
    attn__array *const wanted[3] = {&p.dq, &p.dk, &p.dv};
    for (int n = 0; n < 3; n++)
        if (chance(15) && wanted[(n + 1) % 3]->rank) wanted[n]->rank = 0, all.name += " without a gradient";
    const bool stats = chance(60) || no_starts, once = p.dq.rank && sweeps_once(p, s.backward);
    const bool in_any_order = once && p.precision == ATTN_PRECISION_FAST; /* what is added to dq */
    if (!stats) p.stats.rank = 0, all.name += " without stats";
    p.is_backward = 1;
    if (no_starts) { /* no forward finds what is missing */
        params without = p;
        without.stats.rank = 0;
        const char *const none = s.covers(without, all.dev, true);
        checks++;
        if (!none || !strstr(none, "starts without stats")) fail(all, "statistics by a kernel without starts", 0, 1);
    }
    const char *const why = s.covers(p, all.dev, true);
    if (why && !strstr(why, "few")) return fail(all, why, 0, 1);
    tensor *const results[3] = {&all.dq, &all.dk, &all.dv};
    shared_vector<unsigned char> first[3];
    const size_t workspace = (size_t)s.workspace(p, all.dev, true, false);
    give_workspace(all, workspace);
    for (int mode = 0; mode < timings; mode++) {
        for (tensor *t : results) poison(*t);
        set_timing(mode);
        calls++;
        if (once) fake_together(together[mode % 4]);
        const int error = s.backward(p, all.dev, NULL);
        fake_together(0);
        if (error || fake_failure()[0]) return fail(all, fake_failure(), error, 0);
        check_workspace(all, workspace);
        for (int n = 0; n < 3; n++) {
            if (mode == 0) first[n] = results[n]->memory;
            checks++;
            if (n == 0 && in_any_order) continue;
            if (first[n] != results[n]->memory) fail(all, "other bits than in the first timing", mode, n);
        }
    }
    std::vector<span> of_keys = of;
    for (span &e : of_keys) e.row0 = e.key0, e.rows = e.keys;
    for (int n = 0; n < 3; n++) {
        check_outside(all, *results[n], n ? of_keys : of, n ? packed_keys : packed);
        checks++;
        if (!margins_untouched(*results[n])) fail(all, "memory beside the gradients was written", n, 0);
    }
    for (size_t b = 0; b < of.size(); b++) {
        const span &e = of[b];
        const int64_t array = packed ? 0 : (int64_t)b, array_keys = packed_keys ? 0 : (int64_t)b;
        for (int n = 0; n < 3; n++) /* in front of it: zeros */
            if (wanted[n]->rank && !(n ? packed_keys : packed))
                for_all(*results[n], [&](int64_t at, int64_t h, int64_t i, int64_t x) {
                    if (at == (int64_t)b && i < (n ? e.key0 : e.row0))
                        close(all, "a gradient in front of an entry",
                              read_element(*results[n], place(results[n]->a, at, h, i, x)), 0, 0);
                });
        if (e.rows == 0 || e.keys == 0) { /* no pair: zeros */
            for (int n = 0; n < 3; n++)
                if (wanted[n]->rank)
                    for_all(*results[n], [&](int64_t at, int64_t h, int64_t i, int64_t x) {
                        const int64_t from = n ? e.key0 : e.row0, many = n ? e.keys : e.rows;
                        if (at == (n ? array_keys : array) && i >= from && i < from + many)
                            close(all, "a gradient without a pair",
                                  read_element(*results[n], place(results[n]->a, at, h, i, x)), 0, 0);
                    });
            continue;
        }
        call own;
        start_own(own, all, e, (int64_t)b);
        if (packed_keys || !lengths) own.p.key_lengths.rank = 0;
        own.infinite = 0;
        const auto copy = [&](tensor &to, const tensor &from, int64_t row0) {
            for_all(to, [&](int64_t, int64_t h, int64_t i, int64_t x) {
                put(to, 0, h, i, x, read_element(from, place(from.a, array, h, row0 + i, x)));
            });
        };
        copy(own.out, all.out, e.row0), copy(own.stats, all.stats, e.row0), copy(own.lse, all.lse, e.row0);
        make(own.d_out, type, 1, p.heads, e.rows, p.size_v);
        copy(own.d_out, all.d_out, e.row0);
        own.p.d_out = own.d_out.a;
        if (p.d_lse.rank) {
            make(own.d_lse, ATTN_F32, 1, p.heads, e.rows, 1);
            copy(own.d_lse, all.d_lse, e.row0);
            own.p.d_lse = own.d_lse.a;
        }
        make(own.dq, all.dq.a.type, 1, p.heads, e.rows, p.size_q);
        make(own.dk, all.dk.a.type, 1, p.heads_kv, e.keys, p.size_q);
        make(own.dv, all.dv.a.type, 1, p.heads_kv, e.keys, p.size_v);
        own.p.dq = own.dq.a, own.p.dk = own.dk.a, own.p.dv = own.dv.a, own.p.precision = p.precision;
        own.p.dq.rank = p.dq.rank, own.p.dk.rank = p.dk.rank, own.p.dv.rank = p.dv.rank;
        own.p.is_backward = 1;
        if (!stats) own.p.stats.rank = 0;
        tensor *const own_results[3] = {&own.dq, &own.dk, &own.dv};
        for (int n = 0; n < 3; n++) {
            poison(*own_results[n]);
            for_all(*own_results[n], [&](int64_t, int64_t h, int64_t i, int64_t x) {
                const tensor &from = *results[n];
                tensor &to = *own_results[n];
                memcpy((char *)to.a.data + place(to.a, 0, h, i, x) * (int64_t)to.bytes_of(),
                       (const char *)from.a.data +
                           place(from.a, n ? array_keys : array, h, (n ? e.key0 : e.row0) + i, x) *
                               (int64_t)from.bytes_of(),
                       to.bytes_of());
            });
        }
        check_backward(own, 0, 0, 0);
        if (!stats && (s.covers(p, all.dev, false) || s.covers(own.p, own.dev, false)))
            continue; /* stats by another stage */
        if (!stats && s.forward == mma_forward && !has_same_tiles(p, own.p, all.dev)) continue;
        std::vector<double> want[3];
        for (int n = 0; n < 3; n++) want[n] = elements(*own_results[n]), poison(*own_results[n]);
        give_workspace(own, (size_t)s.workspace(own.p, own.dev, true, false));
        set_timing(0);
        if (s.backward(own.p, own.dev, NULL) || fake_failure()[0]) return fail(own, fake_failure(), 0, 1);
        for (int n = 0; n < 3; n++) {
            const std::vector<double> got = elements(*own_results[n]);
            checks++;
            if (n == 0 && in_any_order) continue;
            for (size_t x = 0; x < got.size(); x++)
                if (memcmp(&got[x], &want[n][x], sizeof got[x]) && (isfinite(got[x]) || isfinite(want[n][x])))
                    return fail(own, "other bits of a gradient than in a call of its own", want[n][x], got[x]);
        }
    }
}

template <void Test(call &, const stage &)> static void masked_entries(call &all, const stage &s) {
    all.masked = true;
    Test(all, s);
}
static void codes_of_entries(call &all, const stage &s) {
    all.codes_of = 1;
    forward_of_entries(all, s);
}

static const struct kind {
    const char *name;
    int stage; /* its index */
    void (*test)(call &, const attn__gpu::stage &);
    int arch, shared_bytes;
    wishes w;
} kinds[] = {
    {"stage 2 forward", 1, forward, 80, 163 * 1024, {1, 150, 0, 0, 8, 64}},
    {"stage 2 forward, with everything", 1, forward, 80, 163 * 1024, {1, 150, 1, 0, 8, 128}},
    {"stage 2 forward", 1, forward, 80, 163 * 1024, {1, 200, 0, 0, 72, 128}},
    {"stage 2 forward, with everything", 1, forward, 80, 163 * 1024, {1, 90, 1, 0, 136, 256}},
    {"stage 2 forward, decode", 1, forward, 80, 163 * 1024, {0, 0, 0, 1, 8, 128}},
    {"stage 2 forward, decode with everything", 1, forward, 80, 163 * 1024, {0, 0, 1, 1, 64, 64}},
    {"stage 3 forward", 2, forward, 90, 227 * 1024, {64, 600, 0, 0, 8, 64}},
    {"stage 3 forward", 2, forward, 90, 227 * 1024, {64, 500, 0, 0, 72, 128}},
    {"stage 3 forward", 2, forward, 90, 227 * 1024, {64, 400, 0, 0, 136, 256}},
    {"stage 3 forward, softcap and ALiBi", 2, forward, 90, 227 * 1024, {64, 400, OF_SCORES, 0, 8, 64}},
    {"stage 3 forward, softcap and ALiBi", 2, forward, 90, 227 * 1024, {64, 400, OF_SCORES, 0, 72, 128}},
    {"stage 3 forward, softcap and ALiBi", 2, forward, 90, 227 * 1024, {64, 300, OF_SCORES, 0, 136, 256}},
    {"stage 3 forward, bias, mask, dropout", 2, forward, 90, 227 * 1024, {64, 400, PAIRS_ALONE, 0, 8, 64}},
    {"stage 3 forward, bias, mask, dropout", 2, forward, 90, 227 * 1024, {64, 300, PAIRS_ALONE, 0, 72, 128}},
    {"stage 3 forward, bias, mask, dropout", 2, forward, 90, 227 * 1024, {64, 200, PAIRS_ALONE, 0, 136, 256}},
    {"stage 3 forward, bias, mask, dropout", 2, forward, 90, 227 * 1024, {64, 150, PAIRS_ALONE, 3, 8, 64}},
    {"stage 2 backward", 1, backward, 80, 99 * 1024, {1, 150, 0, 0, 8, 64}},
    {"stage 2 backward, with everything", 1, backward, 80, 99 * 1024, {1, 150, 1, 0, 8, 128}},
    {"stage 2 backward", 1, backward, 80, 99 * 1024, {1, 100, 0, 0, 72, 128}},
    {"stage 2 backward, with everything", 1, backward, 80, 99 * 1024, {1, 90, 1, 0, 136, 192}},
    {"stage 2 backward", 1, backward, 80, 99 * 1024, {1, 90, 0, 0, 200, 256}},
    {"stage 2 forward, infinite numbers", 1, forward, 80, 163 * 1024, {0, 0, 0, 0, 0, 0}},
    {"stage 3 forward, infinite numbers", 2, forward, 90, 227 * 1024, {0, 0, 0, 0, 0, 0}},
    {"stage 2 backward, infinite numbers", 1, backward, 80, 99 * 1024, {0, 0, 0, 0, 0, 0}},
    {"stage 3 backward", 2, backward, 90, 227 * 1024, {64, 400, 0, 0, 8, 64}},
    {"stage 3 backward", 2, backward, 90, 227 * 1024, {64, 300, 0, 0, 72, 128}},
    {"stage 3 backward", 2, backward, 90, 227 * 1024, {64, 150, 0, 0, 136, 256}},
    {"stage 3 backward, softcap and ALiBi", 2, backward, 90, 227 * 1024, {64, 400, OF_SCORES, 0, 8, 64}},
    {"stage 3 backward, softcap and ALiBi", 2, backward, 90, 227 * 1024, {64, 300, OF_SCORES, 0, 72, 128}},
    {"stage 3 backward, with everything", 2, backward, 90, 227 * 1024, {64, 300, OF_PAIRS, 0, 8, 64}},
    {"stage 3 backward, with everything", 2, backward, 90, 227 * 1024, {64, 250, OF_PAIRS, 0, 72, 128}},
    {"stage 3 backward, infinite numbers", 2, backward, 90, 227 * 1024, {0, 0, 0, 0, 0, 0}},
    {"stage 2, little shared memory", 1, forward_in_little, 86, 99 * 1024, {1, 200, 0, 0, 72, 128}},
    {"stage 2, little shared memory, with everything", 1, forward_in_little, 86, 99 * 1024, {1, 90, 1, 0, 72, 128}},
    {"stage 2 decode", 1, decode, 80, 163 * 1024, {0, 0, 0, 2, 8, 64}},
    {"stage 2 decode", 1, decode, 80, 163 * 1024, {0, 0, 0, 2, 72, 128}},
    {"stage 2 decode", 1, decode, 86, 99 * 1024, {0, 0, 0, 2, 136, 256}},
    {"stage 2 decode", 1, decode, 86, 99 * 1024, {0, 0, 0, 2, 8, 128}},
    {"stage 2 decode, with everything", 1, decode, 80, 163 * 1024, {0, 0, 1, 2, 8, 128}},
    {"stage 2 decode, with everything", 1, decode, 86, 99 * 1024, {0, 0, 1, 2, 136, 256}},
    {"stage 2 decode, many parts",
     1,
     decode_in_many_parts,
     80,
     163 * 1024,
     {0, 0, 0, 1, 8, 64, 0, 0, false, 1, false, 9000, 9500}},
    {"stage 2 decode, many parts",
     1,
     decode_in_many_parts,
     86,
     99 * 1024,
     {0, 0, 0, 1, 136, 256, 0, 0, false, 1, false, 9000, 9500}},
    {"stage 3 forward, cut off", 2, forward_cut_off, 90, 227 * 1024, {0, 0, 0, 0, 0, 0}},
    {"stage 3 forward by tickets", 2, forward_by_tickets, 90, 227 * 1024, {64, 600, 0, 0, 8, 64}},
    {"stage 3 forward by tickets", 2, forward_by_tickets, 90, 227 * 1024, {64, 500, 0, 0, 104, 128}},
    {"stage 3, long backward", 2, backward, 90, 227 * 1024, {64, 4300, 0, 0, 0, 0}},
    {"stage 3 backward in one sweep", 2, backward_in_one, 90, 227 * 1024, {64, 400, 0, 0, 8, 64}},
    {"stage 3 backward in one sweep", 2, backward_in_one, 90, 227 * 1024, {64, 300, 0, 0, 72, 128}},
    {"stage 3 backward in one sweep, heads of 96",
     2,
     backward_in_one_of<heads_96>,
     90,
     227 * 1024,
     {64, 250, 0, 0, 72, 96}},
    {"stage 3 backward in one sweep, softcap and ALiBi",
     2,
     backward_in_one,
     90,
     227 * 1024,
     {64, 300, OF_SCORES, 0, 8, 128}},
    {"stage 3 backward in one sweep, bias, mask, dropout",
     2,
     backward_in_one,
     90,
     227 * 1024,
     {64, 300, OF_PAIRS, 0, 8, 64}},
    {"stage 3 backward in one sweep, bias, mask, dropout",
     2,
     backward_in_one,
     90,
     227 * 1024,
     {64, 250, OF_PAIRS, 0, 72, 128}},
    {"stage 3 backward in one sweep, infinite numbers", 2, backward_in_one, 90, 227 * 1024, {0, 0, 0, 0, 0, 0}},
    {"stage 3, long backward in one sweep", 2, backward_in_one, 90, 227 * 1024, {64, 4300, 0, 0, 0, 0}},
    {"stage 2 backward in one sweep", 1, backward_in_one, 80, 99 * 1024, {1, 300, 0, 0, 8, 64}},
    {"stage 2 backward in one sweep", 1, backward_in_one, 80, 99 * 1024, {1, 250, 0, 0, 72, 128}},
    {"stage 2 backward in one sweep, with everything", 1, backward_in_one, 80, 99 * 1024, {1, 150, 1, 0, 8, 128}},
    {"stage 2 backward in one sweep, softcap and ALiBi",
     1,
     backward_in_one,
     80,
     99 * 1024,
     {1, 250, OF_SCORES, 0, 8, 64}},
    {"stage 2 backward in one sweep, bias, mask, dropout",
     1,
     backward_in_one,
     80,
     99 * 1024,
     {1, 200, OF_PAIRS, 0, 8, 128}},
    {"stage 2 backward in one sweep, infinite numbers", 1, backward_in_one, 80, 99 * 1024, {0, 0, 0, 0, 0, 0}},
    {"stage 2 backward in one sweep beside any keys", 1, backward_beside_any, 80, 99 * 1024, {1, 200, 0, 0, 8, 128}},
    {"stage 2 backward in one sweep beside any keys, with everything",
     1,
     backward_beside_any,
     80,
     99 * 1024,
     {1, 150, 1, 0, 8, 64}},
    {"stage 3 backward in one sweep beside any keys", 2, backward_beside_any, 90, 227 * 1024, {64, 200, 0, 0, 8, 128}},
    {"stage 3 backward in one sweep beside any keys, with everything",
     2,
     backward_beside_any,
     90,
     227 * 1024,
     {64, 150, OF_PAIRS, 0, 8, 128}},
    {"stage 2 backward beside any keys, infinite on both sides",
     1,
     backward_beside_any,
     80,
     99 * 1024,
     {0, 0, 0, 0, 0, 0}},
    {"stage 3 backward beside any keys, infinite on both sides",
     2,
     backward_beside_any,
     90,
     227 * 1024,
     {0, 0, 0, 0, 0, 0}},
    {"stage 3 forward, heads of 192 and 128",
     2,
     forward_of<heads_192_128>,
     90,
     227 * 1024,
     {64, 400, 0, 0, 136, 192, 128}},
    {"stage 3 forward, heads of 192 and 128, softcap and ALiBi",
     2,
     forward_of<heads_192_128>,
     90,
     227 * 1024,
     {64, 300, OF_SCORES, 0, 136, 192, 128}},
    {"stage 3 backward, heads of 192 and 128",
     2,
     backward_of<heads_192_128>,
     90,
     227 * 1024,
     {64, 250, 0, 0, 136, 192, 128}},
    {"stage 3 forward, heads of 96", 2, forward_of<heads_96>, 90, 227 * 1024, {64, 300, 0, 0, 72, 96}},
    {"stage 3 forward, heads of 192", 2, forward_of<heads_192>, 90, 227 * 1024, {64, 200, 0, 0, 136, 192}},
    {"stage 3 backward, heads of 96", 2, backward_of<heads_96>, 90, 227 * 1024, {64, 250, 0, 0, 72, 96}},
    {"stage 3 backward, heads of 192", 2, backward_of<heads_192>, 90, 227 * 1024, {64, 200, 0, 0, 136, 192}},
    {"stage 3 forward, packed heads", 2, forward_packed, 90, 227 * 1024, {64, 300, 0, 3, 8, 64}},
    {"stage 3 forward, packed heads", 2, forward_packed, 90, 227 * 1024, {64, 150, 0, 3, 72, 256}},
    {"stage 2 entries, forward", 1, forward_of_entries, 80, 163 * 1024, {1, 150, 0, 0, 8, 64}},
    {"stage 2 entries, forward", 1, forward_of_entries, 86, 99 * 1024, {1, 90, 0, 3, 72, 192}},
    {"stage 2 entries, forward, options", 1, forward_of_entries, 80, 163 * 1024, {1, 90, OF_SCORES, 0, 8, 64}},
    {"stage 2 entries, decode", 1, forward_of_entries, 80, 163 * 1024, {0, 0, 0, 1, 8, 64}},
    {"stage 3 entries, forward", 2, forward_of_entries, 90, 227 * 1024, {64, 150, 0, 0, 8, 64}},
    {"stage 3 entries, forward", 2, forward_of_entries, 90, 227 * 1024, {64, 150, 0, 3, 72, 256}},
    {"stage 3 entries, forward, options", 2, forward_of_entries, 90, 227 * 1024, {64, 150, OF_SCORES, 0, 8, 128}},
    {"stage 2 entries, backward", 1, backward_of_entries, 80, 163 * 1024, {1, 150, 0, 0, 8, 64}},
    {"stage 2 entries, backward", 1, backward_of_entries, 86, 99 * 1024, {1, 90, 0, 0, 72, 128}},
    {"stage 2 entries, backward, options", 1, backward_of_entries, 80, 163 * 1024, {1, 150, OF_SCORES, 0, 8, 128}},
    {"stage 3 entries, backward", 2, backward_of_entries, 90, 227 * 1024, {64, 150, 0, 0, 8, 64}},
    {"stage 3 entries, backward", 2, backward_of_entries, 90, 227 * 1024, {64, 150, 0, 0, 72, 256}},
    {"stage 3 entries, backward, options", 2, backward_of_entries, 90, 227 * 1024, {64, 150, OF_SCORES, 0, 8, 128}},
    {"stage 2 entries, forward, dropout", 1, forward_of_entries, 80, 163 * 1024, {1, 150, DROPOUT_ALONE, 0, 8, 128}},
    {"stage 2 entries, backward, dropout", 1, backward_of_entries, 80, 163 * 1024, {1, 150, DROPOUT_ALONE, 0, 8, 128}},
    {"stage 3 entries, forward, dropout", 2, forward_of_entries, 90, 227 * 1024, {64, 150, DROPOUT_ALONE, 0, 8, 256}},
    {"stage 3 entries, backward, dropout", 2, backward_of_entries, 90, 227 * 1024, {64, 150, DROPOUT_ALONE, 0, 8, 128}},
    {"stage 2 entries, forward, options and dropout",
     1,
     forward_of_entries,
     80,
     163 * 1024,
     {1, 90, DROPOUT_OF_SCORES, 0, 8, 192}},
    {"stage 2 entries, backward, options and dropout",
     1,
     backward_of_entries,
     80,
     163 * 1024,
     {1, 150, DROPOUT_OF_SCORES, 0, 8, 128}},
    {"stage 3 entries, backward, options and dropout",
     2,
     backward_of_entries,
     90,
     227 * 1024,
     {64, 150, DROPOUT_OF_SCORES, 0, 8, 128}},
    {"stage 2 f32, entries, dropout",
     1,
     forward_of_entries,
     86,
     99 * 1024,
     {1, 150, DROPOUT_ALONE, 0, 8, 64, 0, 0, false, 1, true}},
    {"stage 2 pages", 1, in_pages<forward>, 80, 163 * 1024, {1, 150, 0, 0, 8, 64, 0, 80}},
    {"stage 2 pages", 1, in_pages<forward>, 80, 163 * 1024, {1, 200, 0, 0, 72, 128, 0, 80}},
    {"stage 2 pages", 1, in_pages<forward>, 80, 163 * 1024, {1, 150, 0, 0, 136, 256, 0, 80}},
    {"stage 2 pages, little shared memory", 1, in_pages<forward>, 86, 99 * 1024, {1, 200, 0, 0, 72, 128, 0, 80}},
    {"stage 2 pages, with everything", 1, in_pages<forward>, 80, 163 * 1024, {1, 150, 1, 0, 8, 128, 0, 80}},
    {"stage 2 pages, with everything", 1, in_pages<forward>, 80, 163 * 1024, {1, 90, 1, 0, 136, 256, 0, 80}},
    {"stage 2 decode pages", 1, in_pages<decode>, 80, 163 * 1024, {0, 0, 0, 2, 8, 64, 0, 80}},
    {"stage 2 decode pages", 1, in_pages<decode>, 80, 163 * 1024, {0, 0, 0, 2, 72, 128, 0, 80}},
    {"stage 2 decode pages", 1, in_pages<decode>, 86, 99 * 1024, {0, 0, 0, 2, 136, 256, 0, 80}},
    {"stage 2 decode pages", 1, in_pages<decode>, 86, 99 * 1024, {0, 0, 0, 2, 8, 128, 0, 80}},
    {"stage 2 decode pages, with everything", 1, in_pages<decode>, 80, 163 * 1024, {0, 0, 1, 2, 8, 128, 0, 80}},
    {"stage 2 decode pages, with everything", 1, in_pages<decode>, 86, 99 * 1024, {0, 0, 1, 2, 136, 256, 0, 80}},
    {"stage 2 decode codes", 1, decode_codes<false>, 80, 163 * 1024, {0, 0, 0, 2, 8, 64, 0, 0, true}},
    {"stage 2 decode codes", 1, decode_codes<false>, 80, 163 * 1024, {0, 0, 0, 2, 72, 128, 0, 0, true}},
    {"stage 2 decode codes", 1, decode_codes<false>, 86, 99 * 1024, {0, 0, 0, 2, 136, 256, 0, 0, true}},
    {"stage 2 decode codes", 1, decode_codes<false>, 86, 99 * 1024, {0, 0, 0, 2, 136, 192, 0, 0, true}},
    {"stage 2 decode codes", 1, decode_codes<false>, 86, 99 * 1024, {0, 0, 0, 2, 8, 128, 0, 0, true}},
    {"stage 2 decode codes, in pages", 1, decode_codes<true>, 80, 163 * 1024, {0, 0, 0, 2, 8, 128, 0, 80, true}},
    {"stage 2 decode codes, in pages", 1, decode_codes<true>, 86, 99 * 1024, {0, 0, 0, 2, 136, 256, 0, 80, true}},
    {"stage 3 pages", 2, in_pages<forward>, 90, 227 * 1024, {64, 300, 0, 0, 8, 64, 0, 160, false, 8}},
    {"stage 3 pages", 2, in_pages<forward>, 90, 227 * 1024, {64, 300, 0, 3, 72, 128, 0, 160, false, 8}},
    {"stage 3 pages", 2, in_pages<forward>, 90, 227 * 1024, {64, 300, 0, 0, 136, 256, 0, 160, false, 8}},
    {"stage 3 pages, options", 2, in_pages<forward>, 90, 227 * 1024, {64, 300, OF_SCORES, 0, 8, 128, 0, 160, false, 8}},
    {"stage 3 pages, bias, mask, dropout",
     2,
     in_pages<forward>,
     90,
     227 * 1024,
     {64, 300, PAIRS_ALONE, 0, 8, 256, 0, 160, false, 8}},
    {"stage 2 weights", 1, forward_with_pairs, 80, 163 * 1024, {1, 150, 0, 0, 8, 64}},
    {"stage 2 weights", 1, forward_with_pairs, 80, 163 * 1024, {1, 200, 0, 0, 72, 128}},
    {"stage 2 weights", 1, forward_with_pairs, 86, 99 * 1024, {1, 150, 0, 0, 136, 256}},
    {"stage 2 weights, with everything", 1, forward_with_pairs, 80, 163 * 1024, {1, 150, 1, 0, 8, 64}},
    {"stage 2 weights, with everything", 1, forward_with_pairs, 80, 163 * 1024, {1, 150, 1, 0, 72, 256}},
    {"stage 2 weights, decode", 1, forward_with_pairs, 80, 163 * 1024, {0, 0, 0, 2, 8, 128}},
    {"stage 2 weights, infinite numbers", 1, forward_with_pairs, 80, 163 * 1024, {0, 0, 0, 0, 0, 0}},
    {"stage 3 weights", 2, forward_with_pairs, 90, 227 * 1024, {64, 300, 0, 0, 8, 64}},
    {"stage 3 weights", 2, forward_with_pairs, 90, 227 * 1024, {64, 200, 0, 0, 72, 256}},
    {"stage 3 weights, softcap and ALiBi", 2, forward_with_pairs, 90, 227 * 1024, {64, 300, OF_SCORES, 0, 8, 64}},
    {"stage 3 weights, bias, mask, dropout", 2, forward_with_pairs, 90, 227 * 1024, {64, 200, PAIRS_ALONE, 0, 8, 64}},
    {"stage 3 mask of tiles, forward", 2, forward_of_mask_tiles, 90, 227 * 1024, {64, 500, 0, 0, 8, 64}},
    {"stage 3 mask of tiles, forward", 2, forward_of_mask_tiles, 90, 227 * 1024, {64, 300, 0, 0, 72, 256}},
    {"stage 3 mask of tiles, backward", 2, backward_of_mask_tiles, 90, 227 * 1024, {64, 400, 0, 0, 8, 64}},
    {"stage 3 mask of tiles, backward", 2, backward_of_mask_tiles, 90, 227 * 1024, {64, 300, OF_SCORES, 0, 72, 128}},
    {"stage 2 f32, forward", 1, forward, 80, 99 * 1024, {1, 150, 0, 0, 8, 64, 0, 0, false, 1, true}},
    {"stage 2 f32, forward", 1, forward, 80, 99 * 1024, {1, 200, 0, 0, 72, 128, 0, 0, false, 1, true}},
    {"stage 2 f32, forward, with everything", 1, forward, 80, 99 * 1024, {1, 150, 1, 0, 8, 128, 0, 0, false, 1, true}},
    {"stage 2 f32, forward, few rows", 1, forward, 80, 99 * 1024, {0, 0, 0, 2, 8, 128, 0, 0, false, 1, true}},
    {"stage 2 f32, forward, parts", 1, forward, 80, 99 * 1024, {0, 0, 1, 1, 8, 64, 0, 0, false, 1, true}},
    {"stage 2 f32, pages", 1, in_pages<forward>, 80, 99 * 1024, {1, 150, 0, 0, 8, 128, 0, 80, false, 1, true}},
    {"stage 2 f32, entries", 1, forward_of_entries, 86, 99 * 1024, {1, 150, 0, 0, 8, 64, 0, 0, false, 1, true}},
    {"stage 2 f32, backward", 1, backward, 80, 99 * 1024, {1, 150, 0, 0, 8, 64, 0, 0, false, 1, true}},
    {"stage 2 f32, backward", 1, backward, 80, 99 * 1024, {1, 100, 0, 0, 72, 128, 0, 0, false, 1, true}},
    {"stage 2 f32, backward, with everything",
     1,
     backward,
     80,
     99 * 1024,
     {1, 100, 1, 0, 8, 128, 0, 0, false, 1, true}},
    {"stage 2 f32, forward, infinite numbers", 1, forward, 80, 99 * 1024, {0, 0, 0, 0, 0, 0, 0, 0, false, 1, true}},
    {"stage 2 f32, forward, ends", 1, forward_of_ends, 80, 99 * 1024, {0, 0, 0, 0, 0, 0, 0, 0, false, 1, true}},
    {"stage 2 f32, backward, ends", 1, backward_of_ends, 80, 99 * 1024, {0, 0, 0, 0, 0, 0, 0, 0, false, 1, true}},
    {"stage 2 f32, backward, infinite numbers", 1, backward, 80, 99 * 1024, {0, 0, 0, 0, 0, 0, 0, 0, false, 1, true}},
    {"stage 2, large tiles", 1, in_large_tiles<forward>, 80, 163 * 1024, {1, 300, 0, 0, 72, 128}},
    {"stage 2, large tiles, infinite numbers", 1, in_large_tiles<forward>, 80, 163 * 1024, {0, 0, 0, 0, 0, 0}},
    {"stage 2, large tiles, pages",
     1,
     in_pages<in_large_tiles<forward>>,
     80,
     163 * 1024,
     {1, 200, 0, 0, 72, 128, 0, 80}},
    {"stage 2, large tiles, entries", 1, in_large_tiles<forward_of_entries>, 80, 163 * 1024, {1, 150, 0, 0, 72, 128}},
    {"stage 2 sums over pairs", 1, backward_of_pairs, 80, 99 * 1024, {1, 250, OF_PAIRS, 0, 8, 64}},
    {"stage 2 sums over pairs", 1, backward_of_pairs, 86, 99 * 1024, {1, 150, 1, 0, 72, 256}},
    {"stage 2 sums over pairs, many", 1, backward_of_pairs, 80, 99 * 1024, {0, 0, 0, 0, 0, 0}},
    {"stage 2 sums over pairs, softcap and ALiBi", 1, backward_of_pairs, 80, 99 * 1024, {1, 200, OF_SCORES, 0, 8, 128}},
    {"stage 2 sums over pairs, f32", 1, backward_of_pairs, 80, 99 * 1024, {1, 150, 1, 0, 8, 128, 0, 0, false, 1, true}},
    {"stage 3 sums over pairs", 2, backward_of_pairs, 90, 227 * 1024, {64, 250, OF_PAIRS, 0, 8, 128}},
    {"stage 3 sums over pairs, softcap and ALiBi",
     2,
     backward_of_pairs,
     90,
     227 * 1024,
     {64, 250, OF_SCORES, 0, 8, 128}},
    {"stage 3 backward, split columns", 2, backward_in_one, 90, 227 * 1024, {64, 150, 0, 0, 136, 256}},
    {"stage 3 backward, split columns, softcap and ALiBi",
     2,
     backward_in_one,
     90,
     227 * 1024,
     {64, 130, OF_SCORES, 0, 136, 256}},
    {"stage 3 backward, split columns, bias, mask, dropout",
     2,
     backward_in_one,
     90,
     227 * 1024,
     {64, 130, OF_PAIRS, 0, 136, 256}},
    {"stage 3 backward, split columns, 192 and 128, softcap and ALiBi",
     2,
     backward_in_one_of<heads_192_128>,
     90,
     227 * 1024,
     {64, 130, OF_SCORES, 0, 136, 192, 128}},
    {"stage 3 backward, split columns, 192 and 128, bias, mask, dropout",
     2,
     backward_in_one_of<heads_192_128>,
     90,
     227 * 1024,
     {64, 130, OF_PAIRS, 0, 136, 192, 128}},
    {"stage 3 backward, split columns, beside any keys",
     2,
     backward_beside_any,
     90,
     227 * 1024,
     {64, 130, 0, 0, 136, 256}},
    {"stage 3 backward, split columns, beside any keys, with everything",
     2,
     backward_beside_any,
     90,
     227 * 1024,
     {64, 130, OF_PAIRS, 0, 136, 256}},
    {"stage 3 backward, split columns, mask of tiles",
     2,
     backward_of_mask_tiles,
     90,
     227 * 1024,
     {64, 200, OF_SCORES, 0, 136, 256}},
    {"stage 3 backward, split columns, entries",
     2,
     backward_of_entries,
     90,
     227 * 1024,
     {64, 130, OF_SCORES, 0, 136, 256}},
    {"stage 3 backward, split columns, entries, dropout",
     2,
     backward_of_entries,
     90,
     227 * 1024,
     {64, 130, DROPOUT_ALONE, 0, 136, 256}},
    {"stage 3 backward, split columns, sums over pairs",
     2,
     backward_of_pairs,
     90,
     227 * 1024,
     {64, 130, OF_PAIRS, 0, 136, 256}},
    {"stage 3 backward, split columns, infinite", 2, backward_of_vanishing, 90, 227 * 1024, {0, 0, 0, 0, 0, 0}},
    {"stage 2 entries, forward, bias and mask",
     1,
     masked_entries<forward_of_entries>,
     80,
     163 * 1024,
     {1, 90, OF_SCORES, 0, 8, 128}},
    {"stage 2 entries, decode, bias and mask",
     1,
     masked_entries<forward_of_entries>,
     86,
     99 * 1024,
     {0, 0, 0, 1, 8, 128}},
    {"stage 2 entries, backward, bias and mask",
     1,
     masked_entries<backward_of_entries>,
     80,
     99 * 1024,
     {1, 150, OF_SCORES, 0, 8, 128}},
    {"stage 2 codes in tiles", 1, codes_in_tiles<false, forward>, 80, 163 * 1024, {1, 200, 0, 0, 8, 64, 0, 0, true}},
    {"stage 2 codes in tiles", 1, codes_in_tiles<false, forward>, 80, 163 * 1024, {1, 150, 0, 0, 72, 256, 0, 0, true}},
    {"stage 2 codes in tiles, in pages",
     1,
     codes_in_tiles<true, forward>,
     86,
     99 * 1024,
     {1, 150, 0, 0, 8, 256, 0, 80, true}},
    {"stage 2 codes in tiles, with everything",
     1,
     codes_in_tiles<true, forward>,
     80,
     163 * 1024,
     {1, 150, 1, 0, 8, 256, 0, 80, true}},
    {"stage 2 codes in tiles, decode",
     1,
     codes_in_tiles<true, decode>,
     80,
     163 * 1024,
     {0, 0, 1, 2, 8, 192, 0, 80, true}},
    {"stage 2 codes in tiles, few rows", 1, few_codes_in_tiles, 80, 163 * 1024, {0, 0, 1, 2, 200, 256, 0, 0, true}},
    {"stage 2 codes in tiles, entries", 1, codes_of_entries, 80, 163 * 1024, {1, 90, OF_SCORES, 0, 8, 128, 0, 0, true}},
    {"stage 2 codes in tiles, entries",
     1,
     masked_entries<codes_of_entries>,
     86,
     99 * 1024,
     {1, 90, OF_SCORES, 0, 72, 192, 0, 0, true}},
    {"stage 2 backward, split columns", 1, backward_of_halves, 86, 99 * 1024, {1, 200, 0, 0, 136, 256}},
    {"stage 2 backward, split columns, softcap and ALiBi",
     1,
     backward_of_halves,
     80,
     163 * 1024,
     {1, 130, OF_SCORES, 0, 136, 256}},
    {"stage 2 backward, split columns, bias, mask, dropout",
     1,
     backward_of_halves,
     86,
     99 * 1024,
     {1, 130, OF_PAIRS, 0, 136, 256}},
    {"stage 2 backward, split columns, infinite numbers", 1, backward_of_halves, 80, 99 * 1024, {0, 0, 0, 0, 192, 0}},
    {"stage 2 backward, split columns, infinite", 1, backward_of_vanishing, 80, 99 * 1024, {0, 0, 0, 0, 192, 0}},
    {"stage 2 backward, split columns, beside any keys",
     1,
     backward_beside_any,
     80,
     99 * 1024,
     {1, 130, 0, 0, 136, 256}},
    {"stage 2 backward, split columns, beside any keys, with everything",
     1,
     backward_beside_any,
     80,
     99 * 1024,
     {1, 130, 1, 0, 136, 256}},
    {"stage 2 backward, split columns, entries", 1, backward_of_entries, 86, 99 * 1024, {1, 90, 0, 0, 136, 256}},
    {"stage 2 backward, split columns, entries, bias and mask",
     1,
     masked_entries<backward_of_entries>,
     80,
     99 * 1024,
     {1, 130, OF_SCORES, 0, 136, 256}},
    {"stage 2 codes in tiles, decode",
     1,
     codes_in_tiles<true, decode>,
     80,
     163 * 1024,
     {0, 0, 1, 2, 8, 64, 0, 80, true}},
};

static const int largest_head = std::max({ATTN_CUDA_HEAD_DIMS}); /* of stage 2 */
static int largest_of_floats() {                                 /* in f32 */
    int largest = 0;
    for (int d : {ATTN_CUDA_HEAD_DIMS}) largest = ATTN_CUDA_F32 && (d == 64 || d == 128) ? d : largest;
    return largest;
}
/* What this program's kernels are compiled for, 75, 80 or 90; 0: the emulator, which has all of them. A build for
   sm_90a (90) has stage 2's kernels of few queries, and chooses them for the shared memory that such a device has; the
   others have none of stage 3. */
static int built_for() {
#ifdef __CUDACC__
    return device_of(0).compiled;
#else
    return 0;
#endif
}
/* Why a kind is left out here; else NULL */
static const char *left_out(const kind &k) {
    if (k.arch > fake_arch()) return "this device is older";
    if (k.w.least_d > largest_head && (k.stage == 1 || largest_head <= 128)) return "this build has no heads so large";
    if (k.w.floats && std::max(k.w.most_d, 1) > largest_of_floats()) return "this build has no heads of f32 so large";
    if (built_for() && k.stage == 2 && built_for() < 90) return "built without sm_90a";
    if (built_for() && k.stage == 1 && built_for() < 80) return "built without sm_80";
    if (built_for() == 90 && k.arch == 86) return "built for sm_90a, where shared memory is never little";
    return NULL;
}
/* In a build for sm_90a the gradients of stage 2, which other devices find in 99 KB, have what its device has. */
static device device_for(const kind &k) {
    device d;
    d.arch = k.arch;
    d.compiled = built_for() == 90 ? 90 : k.arch;
    d.shared_bytes = built_for() == 90 ? std::max(k.shared_bytes, 227 * 1024) : k.shared_bytes;
    d.processors = 4;
    d.encode = attn__hw::tensor_map_encoder();
    return d;
}
#ifdef __CUDACC__
/* A kernel that this build has no body for: whoever launches it is told. Last of all, for the device is lost to this
   process then. */
static void launch_without_body() {
    mma_work m = mma_work();
    if (built_for() != 90) return;
    mma_forward_run<attn__hw::bf16, 128, false, mma_keys<128, false>, 1, mma_tile_shape<128, false>>(m, 1, NULL);
    checks++;
    if (cudaDeviceSynchronize() == cudaSuccess) failures++, printf("FAIL a kernel without a body: no error\n");
}
#endif

/* Infinite numbers where nothing is masked, so that pairs are excluded by their scores alone, or where a softcap makes
   their scores finite and causality excludes; the first shape was wrong once. */
static const int shapes[][7] = {{1, 2, 2, 5, 111, 80, 24},
                                {1, 2, 1, 70, 140, 56, 64},
                                {2, 1, 1, 64, 128, 128, 80},
                                {1, 1, 1, 66, 64, 200, 256},
                                {1, 2, 1, 70, 90, 136, 192}};
static void infinite_call(call &c, const kind &k, int i) {
    const int of_stage_2 = largest_head < 128 ? 2 : largest_head < 256 || k.w.floats ? 3 : 4;
    const bool halves = k.test == backward_of_halves,
               gradients = halves || k.test == backward || k.test == backward_in_one;
    const int shape = halves                                    ? 4 - (i % 2 && largest_head > 192)
                      : k.w.floats && largest_of_floats() < 128 ? 1
                      : k.stage == 2                            ? 1 + i % 3
                                                                : i % of_stage_2;
    c.infinite = i % (gradients ? 15 : 7) + 1;
    start_call(c, k.w.floats ? ATTN_F32 : half_type(i % 2), shapes[shape]);
    if (shape == 0) c.p.right = 0, c.p.align = ATTN_ALIGN_BOTTOM_RIGHT, c.name += " causal bottom-right";
    const bool in_one = halves || (k.stage == 2 && k.test == backward_in_one);
    const bool shaped = in_one || (c.p.size_q <= 128 && c.p.size_v <= 128); /* by options, too */
    if (i / 3 % 2 && shaped)                                                /* infinite numbers make finite scores */
        c.p.softcap = 2, c.p.right = 0, c.name += " softcap, causal";
    else if (i % 6 == 1 && shaped) c.p.scale = 0, c.name += " scale 0";
    const int64_t late = halves && i / 2 % 2 ? 128 : 0; /* another warp's columns */
    const int64_t key = c.p.keys / 3 | in_one;          /* odd: causal parts two neighbouring queries */
    if (in_one && (i + 1) / 2 % 2) make_bias(c, false), c.name += " bias of zeros";
    if (c.infinite & 1) put(c.q, 0, 0, c.p.queries / 2, 5 + late, INFINITY), c.name += " infinite q";
    if (c.infinite & 2) put(c.k, 0, 0, key, 3 + late, -INFINITY), c.name += " infinite k";
    if (c.infinite & 2 && i % 2) { /* else some scores are infinite above, and rows NaN */
        c.name += ", scores below alone";
        for (int64_t h = 0; h < c.p.heads; h++)
            for (int64_t r = 0; r < c.p.queries; r++) put(c.q, 0, h, r, 3 + late, 0.5 + fabs(number()));
    }
    if ((c.infinite & 3) == 3) { /* inf and -inf among the products of a query and a key: NaN */
        const bool in_key = i / 4 % 2 == 0;
        const int64_t row = c.p.queries / 2;
        for_all(c.q, [&](int64_t b, int64_t h, int64_t r, int64_t x) {
            if (x == 3 + late) put(c.q, b, h, r, x, in_key ? -1 : 1);
            if (x == 5 + late) put(c.q, b, h, r, x, 0.5);
        });
        put(c.q, 0, 0, row, 3 + late, in_key ? 1 : INFINITY), put(c.q, 0, 0, row, 5 + late, INFINITY);
        put(c.k, 0, 0, key, 3 + late, in_key ? INFINITY : 1), put(c.k, 0, 0, key, 5 + late, -INFINITY);
        c.name += in_key ? ", two in a key" : ", one in a key";
    }
    if (c.infinite & 4) put(c.v, 0, 0, key, 1 + late, INFINITY), c.name += " infinite v";
}

/* Queries and keys that are infinite in the same column, where all other products are negative: -inf excludes a pair as
   a mask would, and rows stay finite. In some calls there is a row of inf * 0, or one whose scores are infinite above;
   a softcap makes all scores finite, and slopes of 0 meet what is infinite. */
static void infinite_on_both_sides(call &c, const kind &k, int i) {
    start_call(c, half_type(i % 2), shapes[k.stage == 2 ? 1 + i % 3 : i % (largest_head < 128 ? 2 : 3)]);
    const params &p = c.p;
    for_all(c.q, [&](int64_t b, int64_t h, int64_t r, int64_t x) {
        if (x == COLUMN) put(c.q, b, h, r, x, r % 16 == 5 ? INFINITY : 0.5 + fabs(number()));
    });
    for_all(c.k, [&](int64_t b, int64_t h, int64_t j, int64_t x) {
        if (x == COLUMN) put(c.k, b, h, j, x, j % 8 == 3 ? -INFINITY : -0.5 - fabs(number()));
    });
    c.infinite = 3, c.name += " infinite q and k in one column";
    if (i % 3 == 1) put(c.q, 0, 0, p.queries / 3, COLUMN, 0), c.name += ", with a 0";
    if (i % 3 == 2) put(c.q, 0, 0, p.queries / 3, COLUMN, -INFINITY), c.name += ", of either sign";
    if (i / 2 % 2) c.p.right = 0, c.name += ", causal";
    if (i / 4 % 2) c.p.softcap = 2, c.name += ", softcap";
}

/* Weights that are 0 in f16, and not in f32, where d_out is infinite; or q and k infinite beside a softcap, so that
   scores are finite. In columns of either consumer, where these split them. */
static void vanishing_call(call &c, int i) {
    static const int sizes[][7] = {
        {1, 2, 1, 70, 130, 200, 256}, {1, 1, 1, 100, 70, 192, 128}, {1, 1, 1, 65, 90, 144, 192}};
    start_call(c, half_type(i / 3 % 2), sizes[i % 3 == 0 && largest_head < 256 ? 1 : i % 3]);
    params &p = c.p;
    p.scale = 0.25f;
    for_all(c.q, [&](int64_t b, int64_t h, int64_t r, int64_t x) { put(c.q, b, h, r, x, x ? 0.1 * number() : 8); });
    for_all(c.k, [&](int64_t b, int64_t h, int64_t j, int64_t x) {
        put(c.k, b, h, j, x, x ? 0.1 * number() : j % 4 == 1 ? -10 : 0);
    });
    const bool late = i / 2 % 2;
    c.infinite = (i % 4 == 3 ? 1 + 2 * (i / 4 % 2) : 8) | (late ? LATE : 0);
    if (i / 4 % 2 || c.infinite & 2) p.right = 0, c.name += " causal";
    if (c.infinite & 8) return;
    p.softcap = 2, c.name += " softcap, infinite q";
    put(c.q, 0, 0, p.queries / 2, late ? p.size_q - 3 : 2, INFINITY);
    if (!(c.infinite & 2)) return;
    c.name += " and k"; /* in a panel that consumers share, too, where there is one */
    put(c.k, 0, 0, p.keys / 3, i / 8 % 2 ? p.size_q / 2 - 1 : p.size_q - 2, -INFINITY);
    put(c.k, 0, 0, p.keys / 2, i / 8 % 2 ? p.size_q / 2 + 1 : 5, INFINITY);
}

/* Numbers of f32 that round to infinity where they are split, with small ones beside them that keep scores small; and
   an infinite value, which is to stay one (gradients would all be NaN). In each second call some keys are cut off. */
static void ends_call(call &c, int i, bool gradients) {
    static const int sizes[][7] = {{1, 2, 1, 70, 140, 64, 64}, {1, 1, 1, 20, 90, 24, 80}, {1, 2, 2, 64, 33, 128, 16}};
    const int shape = largest_of_floats() < 128 ? 0 : i % 3;
    const double largest = 3.4028234663852886e38;
    start_call(c, ATTN_F32, sizes[shape]);
    params &p = c.p;
    p.scale = 1e-10f;
    for (int64_t h = 0; h < p.heads_kv; h++)
        for (int64_t j = 0; j < p.keys; j++) put(c.k, 0, h, j, 7, number() * 1e-28);
    put(c.q, 0, 0, 3, 7, i % 2 ? largest : -largest), put(c.q, 0, 0, p.queries - 1, 7, 3.402e38);
    put(c.k, 0, 0, 2, 1, largest), put(c.k, 0, p.heads_kv - 1, p.keys - 1, 2, -largest);
    for (int64_t h = 0; h < p.heads; h++)
        for (int64_t r = 0; r < p.queries; r++)
            put(c.q, 0, h, r, 1, number() * 1e-28), put(c.q, 0, h, r, 2, number() * 1e-28);
    put(c.v, 0, 0, 5, 3, 3.4024e38), put(c.v, 0, 0, p.keys - 2, 4, -3.4022e38), put(c.v, 0, 0, 7, 6, 1e-39);
    if (!gradients) put(c.v, 0, 0, p.keys / 2, 5, i % 4 < 2 ? INFINITY : -INFINITY), put(c.v, 0, 0, p.keys - 1, 8, NAN);
    c.infinite = 16, c.name += " ends of the range";
    if (i % 2 == 0) return;
    c.key_lengths.assign(1, (int32_t)p.keys - 3);
    integers(p.key_lengths, c.key_lengths, 1, 1), p.right = 40, c.name += ", window, key lengths";
}
/* Tiles of keys of which the last is cut off by a length, with an infinite value before the cut and one after it. */
static void cut_off_call(call &c, int i) {
    static const int sizes[][7] = {{1, 2, 1, 70, 340, 64, 64}, {1, 1, 1, 66, 340, 128, 80}};
    start_call(c, half_type(i / 2 % 2), sizes[i % 2]);
    put(c.v, 0, 0, 310, 1, INFINITY);
    put(c.v, 0, 0, 338, 2, INFINITY);
    put(c.k, 0, 0, 338, 3, INFINITY);
    c.key_lengths.assign(1, 320), c.query_lengths.assign(1, (int32_t)c.p.queries - 5);
    integers(c.p.key_lengths, c.key_lengths, 1, 1), integers(c.p.query_lengths, c.query_lengths, 1, 1);
    c.name += " infinite v, key and query lengths";
}

/* More than 32 tiles of queries or keys, which the producer looks at in one step; the window leaves some steps without
   any, the first ones or the last ones. Numbers of the last rows alone are not finite, or none is. The second shape
   takes longest. */
static const int long_shapes[][7] = {
    {1, 2, 1, 2200, 70, 8, 16}, {1, 2, 2, 70, 4300, 16, 8}, {1, 1, 1, 4300, 300, 8, 8}};
static void long_call(call &c, int i) {
    const int shape = i % 6 == 1 ? 1 : i % 2 * 2;
    start_call(c, half_type(i % 2), long_shapes[shape]);
    if (shape == 2 || i % 4 == 0) c.p.left = 80, c.p.right = 30, c.name += " window";
    if (shape == 2) c.p.align = ATTN_ALIGN_BOTTOM_RIGHT;
    if (i % 4 == 0) return;
    put(c.q, 0, 0, c.p.queries - 2, 5, INFINITY);
    put(c.k, 0, 0, c.p.keys - 1, 3, -INFINITY);
    put(c.v, 0, 0, c.p.keys - 3, 1, INFINITY);
    c.name += " infinite rows";
}

/* Sums in parts: of all pairs in more parts than a warp has lanes, where a window leaves few tiles any pair; in two
   parts that read the same rows, and nothing else in the workspace; or of each head, query and key over a large
   batch. */
static void many_tiles_call(call &c, int i) {
    params &p = c.p;
    if (i % 3 == 0) {
        start_call(c, half_type(i % 2), {1, 1, 1, 2900, 2900, 8, 8});
        p.left = 40, p.right = 0, c.name += " window";
        return;
    }
    if (i % 3 == 2) {
        start_call(c, half_type(i % 2), {1, 1, 1, 60, 8400, 8, 8});
        c.scale_alone = true;
        return;
    }
    start_call(c, half_type(i % 2), {70, 4, 2, 20, 20, 8, 8});
    make_bias(c, false);
    make(c.alibi, ATTN_F32, 1, p.heads, 1, 1);
    fill(c.alibi, 0.3);
    p.alibi = c.alibi.a, p.alibi.stride[0] = p.alibi.stride[2] = p.alibi.stride[3] = 0;
    c.name += " bias of zeros, ALiBi";
}

#ifdef ATTN_CUDA_HW_HEADER /* functions of the device are functions of the host in the emulator alone */
/* What stage 3 finds of a row in 32 bits (row_in) is what all stages find in 64 (row_at), however far positions,
   lengths and limits are: positions up to 2^62, for more is refused where it is looked at. */
static void rows_in_32_bits() {
    static const int64_t far[] = {0, 1, 5, 1 << 20, (1 << 30) - 2, 1ll << 30, 3ll << 30, 1ll << 62, INT64_MAX - 3};
    const auto size = [] { return chance(30) ? (1 << 30) - 1 - draw(0, 8) : draw(1, 700); };
    const auto limit = [] { return chance(50) ? INT64_MAX : far[draw(0, 8)]; };
    for (int n = 0; n < 20000; n++) {
        params p = params();
        const int64_t position = far[draw(0, 7)] * (chance(50) ? -1 : 1);
        p.batch = p.heads = p.heads_kv = 1;
        p.queries = size(), p.keys = size(), p.left = limit(), p.right = limit();
        p.align = chance(40) ? ATTN_ALIGN_POSITIONS : chance(50) ? ATTN_ALIGN_BOTTOM_RIGHT : ATTN_ALIGN_TOP_LEFT;
        const int32_t lengths[2] = {draw(0, (int)p.keys), draw(0, (int)p.queries)};
        p.positions = {(void *)&position, {1, 0, 0, 0}, ATTN_I64, p.align == ATTN_ALIGN_POSITIONS};
        p.key_lengths = {(void *)&lengths[0], {1, 0, 0, 0}, ATTN_I32, chance(50)};
        p.query_lengths = {(void *)&lengths[1], {1, 0, 0, 0}, ATTN_I32, chance(50)};
        const int i = chance(50) ? (int)p.queries - 1 : draw(0, (int)p.queries - 1);
        const tile_row one = row_in(p, entry_reach_of(p, whole_entry(p), 0), 0, i),
                       other = row_at(p, whole_entry(p), 0, 0, 1, i);
        checks++;
        if (one.first == other.first && one.last == other.last && one.position == other.position) continue;
        printf("FAIL a row's keys: %d to %d at %lld, want %d to %d at %lld\n", one.first, one.last,
               (long long)one.position, other.first, other.last, (long long)other.position);
        failures++;
        return;
    }
}
#else
static void rows_in_32_bits() {}
#endif

/* Weak: where this is linked with another program, it is that one's kernels. */
__attribute__((weak)) int main(int argc, char **argv) {
    const int rounds = argc > 1 ? atoi(argv[1]) : 12;
    const char *const only = argc > 3 ? argv[3] : "";
    if (argc > 2 && atoi(argv[2]) > 0) timings = std::min(atoi(argv[2]), fake_timings());
    only_first = *only != 0;
    if (strstr("stage 3 forward, rows", only)) rows_in_32_bits(), calls++;
    for (const kind &k : kinds) {
        const long before = checks, failed = failures, called = calls;
        if (!strstr(k.name, only)) continue;
        if (left_out(k)) {
            printf("%s: skipped (%s)\n", k.name, left_out(k));
            continue;
        }
        wishes w = k.w;
        if (k.stage == 1) w.most_d = std::min(w.most_d, largest_head);
        /* one call of each: the sanitizers', who look at the edges of tiles */
        if (rounds == 1 && w.most_d) w.most_rows = std::max(w.least_rows, std::min(w.most_rows, 140));
        for (int i = 0; i < rounds; i++) {
            call c;
            seed = (uint64_t)(&k - kinds) * 1000003 + (uint64_t)i * 7919 + 1;
            for (int n = 0; n < 4; n++) bits();
            c.infinite = 0;
            if (w.most_d) random_call(c, w);
            else if (k.w.most_rows) long_call(c, i);
            else if (k.test == forward_cut_off) cut_off_call(c, i);
            else if (k.test == backward_of_pairs) many_tiles_call(c, i);
            else if (k.test == backward_of_vanishing) vanishing_call(c, i);
            else if (k.test == forward_of_ends || k.test == backward_of_ends)
                ends_call(c, i, k.test == backward_of_ends);
            else if (k.test == backward_beside_any) infinite_on_both_sides(c, k, i);
            else infinite_call(c, k, i);
            c.dev = device_for(k);
            k.test(c, stages[k.stage]);
        }
        printf("%s", k.name);
        if (w.most_d) printf(", head sizes %d..%d", w.least_d, w.most_d);
        printf(": %ld calls, %ld checks, %ld failed\n", calls - called, checks - before, failures - failed);
        fflush(stdout);
    }
    checks++;
    if (!fake_summary()) failures++;
#ifdef __CUDACC__
    launch_without_body();
#endif
    printf("fast: %ld calls, %ld checks, %ld failed\n", calls, checks, failures);
    return failures != 0 || calls == 0;
}
