/* golden.c - two 64-bit hashes over a fixed set of calls, of their results and of their gradients, computed in a way
   that the options choose. Every way must give the same hashes: that is the header's promise of the same bits.
   tests/golden.sh runs the ways; tests/golden.txt holds the hashes.

   golden [--type f32|f16|bf16|amx|i8|amx-i8|sequences|index|sums] [--isa NAME] [--workers N]
          [--cut whole|alone|blocks|keys]
          [--layout packed|strided|reversed] [--apart] [--float-control N] [--mixed | --every] [--cases]

   --type           how the arrays of all calls are stored. A type has hashes of its own, a line of golden.txt; f32,
                    which is what is meant where nothing is said, has the first one. f16, bf16: all arrays of numbers
                    but lse and stats, and the conversions too. amx: bf16, with ATTN_PRECISION_FAST by AMX, and each
                    call as one, for a call of few queries is exact. i8: keys and values as codes (where
                    gradients are computed f16, for codes have none), the other arrays f32, f16 and bf16 in turn.
                    amx-i8: this, forward passes with ATTN_PRECISION_FAST by AMX.
                    sequences: another set, of batches of unequal length in arrays of all types, each call in all ways
                    to store them. index: calls with a bias by index, its index in every way to store it.
                    sums: attn_key_sums, of all queries and of the last ones
   --workers N      1: attn_forward; more: attn_plan_forward and its tasks in a shuffled order, as N workers
   --cut            one call; one call per query; one call per block of batches, heads and queries; out and lse
                    from calls over 256, 512 or 1024 keys each, of which one carries on what the one before it left
   --layout         where inputs and outputs lie
   --apart          one call per result instead of all results from one
   --float-control  what the caller has set: 1 flush to zero, 2 round up, 3 both and traps, 4 round down and
   traps; not on x86 only how it rounds
   --mixed          each call of the set in another of these ways
   --every          all workers, cuts and layouts in turn: one line each
   --cases          the hash of each call, to find the one that differs
   --dump N         what went into the hash of call N, one number a line (1000 + N: of its gradients)

   Inputs are made, and rounded to their type, with integers only (a float is its bits), so that they depend neither on
   the compiler nor on the conversions that are tested. The implementation is in this file: it is what the compiler's
   options are tried on. With GOLDEN_LINKED it is in another. */
#ifndef GOLDEN_LINKED
#define ATTN_IMPLEMENTATION
#endif
#include "../attn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SSE__) || defined(_M_X64)
#include <xmmintrin.h>
#define HAVE_CONTROL 1
#elif defined(__aarch64__) || (defined(__arm__) && defined(__ARM_FP)) || defined(__riscv_flen) || \
    defined(__s390x__) || defined(__powerpc__)
#include <fenv.h>
#define HAVE_CONTROL 1
#define HAVE_ROUNDING 1
#endif

enum { CUT_WHOLE, CUT_ALONE, CUT_BLOCKS, CUT_KEYS, CUT_COUNT };
enum { LAYOUT_PACKED, LAYOUT_STRIDED, LAYOUT_REVERSED, LAYOUT_COUNT };
enum { FLOAT_CONTROLS = 5 };

typedef struct {
    attn_isa isa;
    int workers, cut, layout, apart, float_control;
} way;

static void stop(const char *what, const attn_error *error) {
    char text[200] = "";
    if (error) attn_error_string(error, text, sizeof text);
    printf("golden: %s %s\n", what, text);
    exit(2);
}

/* ---- numbers */
static uint64_t state;

static uint64_t next(void) { /* splitmix64 (Steele, Lea, Flood 2014) */
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}
static int below(int n) { return (int)(next() % (uint64_t)n); }
static int one_in(int n) { return below(n) == 0; }
static int between(int lo, int hi) { return lo + below(hi - lo + 1); }

static float from_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
/* sign, exponent in [lo, hi] (a power of two), any mantissa */
static uint32_t number(int lo, int hi) {
    uint32_t exponent = (uint32_t)(between(lo, hi) + 127);
    return (uint32_t)(next() & 0x807FFFFFu) | exponent << 23;
}

/* How the arrays of this call are stored. For i8 `stored` is the type of all but keys and values. */
static struct {
    int type, stored;
    int scale, per_row; /* i8: type of the scales; one for a row, else one for 32 numbers */
} storage;
static int is_amx;

static void choose_storage(int n) {
    static const int beside_codes[] = {ATTN_F32, ATTN_F16, ATTN_BF16};
    storage.stored = storage.type == ATTN_I8 ? beside_codes[n % 3] : storage.type;
    storage.scale = n / 2 % 2 ? ATTN_F16 : ATTN_F32;
    storage.per_row = n % 2;
}
/* Numbers at the edge of what f16 has, where a call has arrays of it, or all would be 0 or infinite. */
static int has_f16(void) {
    return storage.stored == ATTN_F16 || (storage.type == ATTN_I8 && storage.scale == ATTN_F16);
}

enum { PLAIN, SMALL, TINY, HUGE_VALUES, SPECIAL, KINDS };

static uint32_t value(int kind) {
    static const uint32_t special[] = {0x7FC00000u, 0xFFC12345u, 0x7F800001u, 0x7F800000u, 0xFF800000u,
                                       0x80000000u, 0u,          1u,          0x807FFFFFu, 0x7F7FFFFFu};
    switch (kind) {
    case SMALL: return number(-12, -3);
    case TINY:
        if (one_in(3)) return (uint32_t)(next() & 0x807FFFFFu);
        return has_f16() ? number(-26, -12) : number(-126, -60);
    case HUGE_VALUES: return has_f16() ? number(8, 15) : number(20, 127);
    case SPECIAL: return one_in(40) ? special[below((int)(sizeof special / sizeof *special))] : number(-3, 1);
    default: return number(-4, 0);
    }
}

/* A float as f16 or bf16, to nearest even. A NaN keeps what fits of its payload, so that there are signalling ones. */
static uint32_t half(int type, uint32_t bits) {
    uint32_t sign = bits >> 16 & 0x8000u, x = bits & 0x7FFFFFFFu, exponent = x >> 23, shift;
    if (x > 0x7F800000u) {
        uint32_t payload = type == ATTN_F16 ? x >> 13 & 0x3FFu : x >> 16 & 0x7Fu;
        return sign | (type == ATTN_F16 ? 0x7C00u : 0x7F80u) | (payload ? payload : 1);
    }
    if (type == ATTN_BF16) return sign | (x + 0x7FFFu + (x >> 16 & 1)) >> 16;
    if (exponent >= 143) return sign | 0x7C00u; /* 65536 and more */
    if (exponent >= 113) {
        x -= 112u << 23;
        return sign | (x + 0xFFFu + (x >> 13 & 1)) >> 13;
    }
    shift = 126 - exponent; /* no power of its own: units of 2^-24 */
    if (shift > 25) return sign;
    x = (x & 0x7FFFFFu) | 0x800000u;
    return sign | (x + (1u << (shift - 1)) - 1 + (x >> shift & 1)) >> shift;
}

/* FNV-1a over 32-bit words, with the high half folded in */
static uint64_t mix(uint64_t hash, uint32_t word) {
    hash = (hash ^ word) * 0x100000001B3u;
    return hash ^ hash >> 29;
}

/* ---- memory: everything of one call of the set, freed together */
static void *blocks[4096];
static int block_count;

static void *take(size_t bytes) {
    void *p = malloc(bytes + 64);
    if (!p || block_count == (int)(sizeof blocks / sizeof *blocks)) stop("out of memory", NULL);
    memset(p, 0xAB, bytes + 64); /* results are compared, so what is not written shows */
    return blocks[block_count++] = p;
}
static void free_blocks(void) {
    while (block_count) free(blocks[--block_count]);
}

/* ---- views. All start dense; lay_out makes another storage of the same shape. */
static size_t width(const attn_view *v) {
    switch (v->type) {
    case ATTN_U8:
    case ATTN_I8: return 1;
    case ATTN_F16:
    case ATTN_BF16: return 2;
    case ATTN_F64:
    case ATTN_I64: return 8;
    default: return 4;
    }
}
static size_t count(const attn_view *v) {
    size_t n = 1;
    int a;
    for (a = 0; a < v->rank; a++) n *= (size_t)v->size[a];
    return v->rank ? n : 0;
}
static attn_view dense(int type, int rank, const int64_t *size) {
    attn_view v;
    int64_t stride = 1;
    int a;
    memset(&v, 0, sizeof v);
    v.type = type;
    v.rank = rank;
    for (a = rank - 1; a >= 0; a--) {
        v.size[a] = size[a];
        v.stride[a] = stride;
        stride *= size[a];
    }
    v.data = take(count(&v) * width(&v));
    return v;
}
/* Element by its row-major index. All arrays are written, laid out and hashed through this, which took half of the
   time with a division for each axis: a dense view needs none, another one short ones, for no view here has 2^32. */
static unsigned char *at(const attn_view *v, size_t index) {
    int64_t offset = 0, stride = 1;
    uint32_t left = (uint32_t)index;
    int a;
    for (a = v->rank - 1; a >= 0 && v->stride[a] == stride; a--) stride *= v->size[a];
    if (a < 0) offset = (int64_t)index;
    for (a = a < 0 ? 0 : v->rank; left > 0 && a-- > 0;) {
        uint32_t size = (uint32_t)v->size[a];
        offset += (int64_t)(left % size) * v->stride[a];
        left /= size;
    }
    return (unsigned char *)(uintptr_t)v->data + offset * (int64_t)width(v);
}
static uint32_t bits_at(const attn_view *v, size_t index) { /* of a float */
    uint32_t bits;
    memcpy(&bits, at(v, index), 4);
    return bits;
}
static void put_float(const attn_view *v, size_t index, uint32_t bits) { /* rounded to the type of the view */
    uint16_t narrow;
    if (v->type == ATTN_F32) {
        memcpy(at(v, index), &bits, 4);
        return;
    }
    narrow = (uint16_t)half(v->type, bits);
    memcpy(at(v, index), &narrow, 2);
}
static attn_view as(int type, const attn_view *v) { /* floats, dense, as another type */
    attn_view w;
    size_t n = count(v), i;
    if (v->rank == 0 || v->type != ATTN_F32 || type == ATTN_F32) return *v;
    w = dense(type, v->rank, v->size);
    for (i = 0; i < n; i++) put_float(&w, i, bits_at(v, i));
    return w;
}
/* Keys or values as codes: the places of a float's mantissa below the largest power of two in its group, which is what
   the scale is made of, with any mantissa. What is no number becomes -128, in some groups times what is none either. */
static attn_view coded(const attn_view *v, attn_view *scale) {
    static const uint32_t special[] = {0x7FC00000u, 0x7F800000u, 0xFF800000u, 0x80000000u};
    int64_t size[4], d = v->size[3], step = storage.per_row || d < 32 ? d : 32;
    int64_t groups = storage.per_row || d < 1 ? 1 : (d + 31) / 32;
    attn_view codes = dense(ATTN_I8, 4, v->size);
    size_t rows = (size_t)(v->size[0] * v->size[1] * v->size[2]), row;
    memcpy(size, v->size, sizeof size);
    size[3] = groups;
    *scale = dense(storage.scale, 4, size);
    for (row = 0; row < rows; row++) {
        int64_t g, c;
        for (g = 0; g < groups; g++) {
            int64_t end = (g + 1) * step < d ? (g + 1) * step : d;
            uint32_t most = 7, unit;
            int odd = 0;
            for (c = g * step; c < end; c++) {
                uint32_t exponent = bits_at(v, row * (size_t)d + (size_t)c) >> 23 & 0xFFu;
                if (exponent == 255) odd = 1;
                else if (exponent > most) most = exponent;
            }
            for (c = g * step; c < end; c++) {
                uint32_t bits = bits_at(v, row * (size_t)d + (size_t)c), exponent = bits >> 23 & 0xFFu;
                int code = most - exponent < 7 ? (int)(((bits & 0x7FFFFFu) | 0x800000u) >> (17 + most - exponent)) : 0;
                if (bits >> 31) code = -code;
                if (exponent == 255) code = -128;
                *at(&codes, row * (size_t)d + (size_t)c) = (unsigned char)code;
            }
            unit = (most - 6) << 23 | (uint32_t)(next() & 0x7FFFFFu);
            put_float(scale, row * (size_t)groups + (size_t)g, odd && one_in(4) ? special[below(4)] : unit);
        }
    }
    return codes;
}
/* strided: axes stored in another order, gaps between elements. reversed: the first element lies last. */
static attn_view lay_out(const attn_view *v, int layout, int is_output) {
    attn_view w = *v;
    size_t n = count(v), i;
    int64_t stride = layout == LAYOUT_STRIDED ? 2 : 1, last = 0;
    int order[4] = {0, 2, 1, 3}, a;
    if (v->rank == 0 || layout == LAYOUT_PACKED || n == 0) return w;
    for (a = 3; a >= 0; a--) {
        int axis = v->rank == 4 ? order[a] : a;
        if (axis >= v->rank) continue;
        w.stride[axis] = stride;
        last += (v->size[axis] - 1) * stride;
        stride *= v->size[axis];
        if (layout == LAYOUT_STRIDED) stride += 3;
    }
    w.data = take((size_t)(last + 1) * width(v));
    if (layout == LAYOUT_REVERSED && !is_output) {
        w.data = (const unsigned char *)w.data + last * (int64_t)width(v);
        for (a = 0; a < v->rank; a++) w.stride[a] = -w.stride[a];
    }
    for (i = 0; i < n; i++) memcpy(at(&w, i), at(v, i), width(v));
    return w;
}
static attn_out writable(attn_view v) {
    attn_out o;
    memcpy(&o, &v, sizeof o); /* the same fields, the pointer without const */
    return o;
}

/* ---- the set: call n is made from the number n alone */
typedef struct {
    attn_desc d; /* inputs dense; of the results only the sizes */
    int64_t b, h, hkv, sq, sk, dq, dk, dv;
} problem;

enum { RESULTS = 6 };

/* The views of a descriptor and what their axes run over: b batch, h head, g key/value head, i query. */
static const struct {
    size_t offset;
    const char *axes;
} inputs[] = {
    {offsetof(attn_desc, q), "bhi."},         {offsetof(attn_desc, k), "bg.."},
    {offsetof(attn_desc, v), "bg.."},         {offsetof(attn_desc, sigma_per_head), "h"},
    {offsetof(attn_desc, bilinear), "h.."},   {offsetof(attn_desc, w_q), "h.."},
    {offsetof(attn_desc, w_k), "h.."},        {offsetof(attn_desc, w_v), "h."},
    {offsetof(attn_desc, hidden_bias), "h."}, {offsetof(attn_desc, given_scores), "bhi."},
    {offsetof(attn_desc, bias), "bhi."},      {offsetof(attn_desc, alibi), "h"},
    {offsetof(attn_desc, sink), "h"},         {offsetof(attn_desc, mask), "bhi."},
    {offsetof(attn_desc, k_scale), "bg.."},   {offsetof(attn_desc, v_scale), "bg.."},
};
static const struct {
    size_t offset;
    const char *axes;
} results[RESULTS] = {
    {offsetof(attn_desc, out), "bhi."},
    {offsetof(attn_desc, lse), "bhi"},
    {offsetof(attn_desc, weights), "bhi."},
    {offsetof(attn_desc, scores), "bhi."},
    {offsetof(attn_desc, scores_softcap), "bhi."},
    {offsetof(attn_desc, scores_masked), "bhi."},
};
enum { INPUTS = sizeof inputs / sizeof *inputs };

static attn_view *input(attn_desc *d, int i) { return (attn_view *)(void *)((char *)d + inputs[i].offset); }
static attn_out *result(attn_desc *d, int i) { return (attn_out *)(void *)((char *)d + results[i].offset); }

static attn_view floats(int kind, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    int64_t size[4];
    attn_view v;
    size_t n, i;
    size[0] = n0, size[1] = n1, size[2] = n2, size[3] = n3;
    v = dense(ATTN_F32, rank, size);
    n = count(&v);
    for (i = 0; i < n; i++) {
        uint32_t bits = value(kind);
        memcpy(at(&v, i), &bits, 4);
    }
    return v;
}
static attn_view stored(int kind, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    attn_view v = floats(kind, rank, n0, n1, n2, n3);
    return as(storage.stored, &v);
}
static attn_view integers(int wide, int rank, int64_t n0, int64_t n1, int64_t lo, int64_t hi) {
    int64_t size[4] = {0, 0, 0, 0};
    attn_view v;
    size_t n, i;
    size[0] = n0, size[1] = n1;
    v = dense(wide ? ATTN_I64 : ATTN_I32, rank, size);
    n = count(&v);
    for (i = 0; i < n; i++) {
        int64_t x = lo + (int64_t)(next() % (uint64_t)(hi - lo + 1));
        int32_t narrow = (int32_t)x;
        memcpy(at(&v, i), wide ? (void *)&x : (void *)&narrow, width(&v));
    }
    return v;
}
static int64_t integer(const attn_view *v, size_t index) {
    int64_t x = 0;
    int32_t narrow;
    if (width(v) == 8) {
        memcpy(&x, at(v, index), 8);
        return x;
    }
    memcpy(&narrow, at(v, index), 4);
    return narrow;
}
/* A shape that broadcasts against [B,H,Sq,Sk]: rank 1 to 4, any axis 1. */
static attn_view broadcast(const problem *p, int type) {
    int64_t full[4], size[4];
    int rank = between(1, 4), a;
    full[0] = p->b, full[1] = p->h, full[2] = p->sq, full[3] = p->sk;
    for (a = 0; a < rank; a++) size[a] = one_in(4) ? 1 : full[4 - rank + a];
    return dense(type, rank, size);
}

/* Every option that occurs, so that the set can be checked to hold all of them. */
// clang-format off
#define FEATURES(X) \
    X(PER_HEAD) X(SCALE) X(SOFTCAP) X(BIAS) X(ALIBI) X(SINK) X(MASK) X(LENGTHS) X(LENGTHS_PER_QUERY) \
    X(QUERY_LENGTHS) X(CAUSAL) X(BOTTOM_RIGHT) X(POSITIONS) X(POSITIONS_PER_QUERY) X(WINDOW) X(DROPOUT) \
    X(DROPPED_WEIGHTS) X(EMPTY_NAN) X(GROUPED) X(NO_KEYS) X(NO_DIMENSIONS) X(LONG_ROW) X(ONE_QUERY) \
    X(WIDE_VALUES) X(SMALL_KIND) X(TINY_KIND) X(HUGE_KIND) X(SPECIAL_KIND) X(IDENTITY)
enum {
#define X(name) HAS_##name,
    FEATURES(X)
#undef X
    FEATURE_COUNT
};
// clang-format on
static const char *const feature_names[] = {
#define X(name) #name,
    FEATURES(X)
#undef X
};
static int seen[FEATURE_COUNT];

static int pick(int feature, int n) { /* one in n calls has it */
    if (!one_in(n)) return 0;
    seen[feature]++;
    return 1;
}

static void make_shape(problem *p, int n) {
    p->b = between(1, 3);
    p->h = between(1, 4);
    p->sq = between(1, 20);
    p->sk = between(1, 90);
    p->dk = between(1, 24);
    p->dv = between(1, 24);
    switch (n / ATTN_SCORE_COUNT) {
    case 0: p->b = p->h = 1, p->sq = between(65, 80), p->sk = between(120, 200), p->dk = 33; break;
    case 1:
        p->b = 1, p->h = 2, p->sq = between(1, 3), p->sk = between(1000, 3000), p->dk = 5, seen[HAS_LONG_ROW]++;
        break;
    case 2: p->sq = 1, p->sk = between(1, 600), seen[HAS_ONE_QUERY]++; break;
    case 3: p->dk = between(60, 130), p->dv = between(60, 130), seen[HAS_WIDE_VALUES]++; break;
    case 4: p->dk = 64, p->dv = 64, p->sq = 16, p->sk = 64, p->b = 1; break;
    case 5:
        if (one_in(2)) p->sk = 0, seen[HAS_NO_KEYS]++;
        else p->dk = 0, seen[HAS_NO_DIMENSIONS]++;
        break;
    default: break;
    }
    p->hkv = p->h;
    if (p->h % 2 == 0 && pick(HAS_GROUPED, 2)) p->hkv = p->h / 2;
    p->dq = p->dk;
}

static void make_score(problem *p, int n, int kind) {
    attn_desc *d = &p->d;
    int per_head, score = n % ATTN_SCORE_COUNT;
    int64_t hidden = between(1, 40);
    d->score = score;
    per_head = pick(HAS_PER_HEAD, 2);
    if (score == ATTN_SCORE_GIVEN) {
        p->hkv = p->h;
        d->given_scores = floats(kind, 4, p->b, p->h, p->sq, p->sk);
    }
    if (score == ATTN_SCORE_BILINEAR) {
        p->dq = between(1, 20);
        d->bilinear = per_head ? floats(PLAIN, 3, p->h, p->dq, p->dk, 0) : floats(PLAIN, 2, p->dq, p->dk, 0, 0);
    }
    if (score == ATTN_SCORE_ADDITIVE) {
        int identity = pick(HAS_IDENTITY, 3);
        if (identity) hidden = p->dk;
        else {
            p->dq = between(1, 20);
            d->w_q = per_head ? floats(PLAIN, 3, p->h, hidden, p->dq, 0) : floats(PLAIN, 2, hidden, p->dq, 0, 0);
            d->w_k = one_in(2) ? floats(PLAIN, 3, p->h, hidden, p->dk, 0) : floats(PLAIN, 2, hidden, p->dk, 0, 0);
        }
        d->w_v = per_head ? floats(PLAIN, 2, p->h, hidden, 0, 0) : floats(PLAIN, 1, hidden, 0, 0, 0);
        if (one_in(2)) d->hidden_bias = floats(SMALL, 1, hidden, 0, 0, 0);
    }
    if (score >= ATTN_SCORE_GAUSSIAN && score <= ATTN_SCORE_TRIANGULAR) {
        size_t i;
        d->sigma = from_bits(0x3F800000u + (uint32_t)below(0x1000000)); /* 1 to 4 */
        if (per_head) d->sigma_per_head = floats(PLAIN, 1, p->h, 0, 0, 0);
        for (i = 0; i < count(&d->sigma_per_head); i++) { /* positive: 2 to 3.9, in either order of bytes */
            uint32_t bits;
            memcpy(&bits, at(&d->sigma_per_head, i), sizeof bits);
            bits = 0x40000000u | (bits & 0x00ffffffu);
            memcpy(at(&d->sigma_per_head, i), &bits, sizeof bits);
        }
        if (per_head) d->sigma = 0;
    } else if (score != ATTN_SCORE_CONSTANT && pick(HAS_SCALE, 3)) {
        d->scale = from_bits(number(-3, 1));
        d->scale_set = 1;
    }
    if (score != ATTN_SCORE_GIVEN) {
        d->q = floats(kind, 4, p->b, p->h, p->sq, p->dq);
        d->k = floats(kind, 4, p->b, p->hkv, p->sk, p->dk);
    }
    d->v = floats(kind, 4, p->b, p->hkv, p->sk, p->dv);
}

static void make_masks(problem *p) {
    attn_desc *d = &p->d;
    size_t i;
    if (pick(HAS_BIAS, 4)) {
        d->bias = broadcast(p, ATTN_F32);
        for (i = 0; i < count(&d->bias); i++) {
            uint32_t bits = one_in(9) ? 0xFF800000u : number(-3, 1);
            memcpy(at(&d->bias, i), &bits, 4);
        }
    }
    if (pick(HAS_MASK, 3)) {
        d->mask = broadcast(p, ATTN_U8);
        for (i = 0; i < count(&d->mask); i++) *at(&d->mask, i) = (unsigned char)(one_in(3) ? 0 : between(1, 255));
    }
    if (pick(HAS_LENGTHS, 3)) d->key_lengths = integers(one_in(2), 1, p->b, 0, 0, p->sk);
    else if (pick(HAS_LENGTHS_PER_QUERY, 4)) d->key_lengths = integers(one_in(2), 2, p->b, p->sq, 0, p->sk);
    if (pick(HAS_QUERY_LENGTHS, 5)) d->query_lengths = integers(one_in(2), 1, p->b, 0, 0, p->sq);
    if (pick(HAS_CAUSAL, 3)) d->causal = 1;
    d->align = ATTN_ALIGN_TOP_LEFT;
    if (pick(HAS_BOTTOM_RIGHT, 3)) d->align = ATTN_ALIGN_BOTTOM_RIGHT;
    else if (pick(HAS_POSITIONS, 4)) {
        d->align = ATTN_ALIGN_POSITIONS;
        d->positions = pick(HAS_POSITIONS_PER_QUERY, 2) ? integers(1, 2, p->b, p->sq, -3, p->sk + 3)
                                                        : integers(0, 1, p->b, 0, -3, p->sk + 3);
    }
    if (pick(HAS_WINDOW, 4)) {
        d->window = 1;
        d->window_left = one_in(4) ? ATTN_UNBOUNDED : between(0, 40);
        d->window_right = one_in(4) ? ATTN_UNBOUNDED : between(0, 40);
    }
}

/* The inputs as the call stores them; codes have no gradient. */
static void store_inputs(attn_desc *d, int has_gradients) {
    int i, cache = has_gradients ? ATTN_F16 : ATTN_I8;
    if (storage.type == ATTN_I8) {
        if (!d->k.rank) d->k_scale.rank = 0; /* given scores */
        else d->k = has_gradients ? as(cache, &d->k) : coded(&d->k, &d->k_scale);
        d->v = has_gradients ? as(cache, &d->v) : coded(&d->v, &d->v_scale);
    }
    for (i = 0; i < INPUTS; i++) {
        attn_view *v = input(d, i);
        if (v != &d->k_scale && v != &d->v_scale) *v = as(storage.stored, v);
    }
}

static void make_problem(problem *p, int n, int has_gradients) {
    static const int kinds[] = {PLAIN, PLAIN, SMALL, PLAIN, TINY, PLAIN, HUGE_VALUES, PLAIN, SPECIAL, PLAIN, SPECIAL};
    int kind = kinds[n / 3 % (int)(sizeof kinds / sizeof *kinds)], r;
    attn_desc *d = &p->d;
    choose_storage(n);
    memset(p, 0, sizeof *p);
    state = 0xA77E4710u + (uint64_t)n;
    if (kind != PLAIN) seen[HAS_SMALL_KIND + kind - SMALL]++;
    make_shape(p, n);
    make_score(p, n, kind);
    make_masks(p);
    if (pick(HAS_SOFTCAP, 4)) d->softcap = from_bits(number(0, 5) & 0x7FFFFFFFu);
    if (pick(HAS_ALIBI, 4)) d->alibi = floats(SMALL, 1, p->h, 0, 0, 0);
    if (pick(HAS_SINK, 5)) d->sink = floats(PLAIN, 1, p->h, 0, 0, 0);
    if (pick(HAS_EMPTY_NAN, 4)) d->empty = ATTN_EMPTY_NAN;
    if (pick(HAS_DROPOUT, 4)) {
        d->dropout = from_bits(0x3E800000u + (uint32_t)below(0x1000000)); /* 0.25 to 0.9999 */
        d->seed = next();
        for (r = 0; r < 4; r++) d->dropout_origin[r] = between(0, 1000000);
        d->weights_after_dropout = pick(HAS_DROPPED_WEIGHTS, 2);
    }
    for (r = 0; r < RESULTS; r++) {
        attn_out *o = result(d, r);
        o->rank = r == 1 ? 3 : 4;
        o->size[0] = p->b, o->size[1] = p->h, o->size[2] = p->sq;
        o->size[3] = r == 0 ? p->dv : p->sk;
        if (r > 2 && (n + r) % 3) o->rank = 0, o->data = NULL; /* the results on the way: in some calls */
    }
    store_inputs(d, has_gradients);
}

/* ---- a part of a call: some batches, heads and queries of it, as a call of its own */
typedef struct {
    int64_t b, nb, h, nh, i, ni;
} part;

static void cut_view(attn_view *v, const char *axes, const problem *p, const part *c) {
    int a, skip = (int)strlen(axes) - v->rank;
    for (a = 0; a < v->rank; a++) {
        int64_t group = p->h / p->hkv, start = 0, size = v->size[a];
        switch (axes[skip + a]) {
        case 'b': start = c->b, size = c->nb; break;
        case 'h': start = c->h, size = c->nh; break;
        case 'g': start = c->h / group, size = c->nh == 1 ? 1 : c->nh / group; break;
        case 'i': start = c->i, size = c->ni; break;
        default: break;
        }
        if (v->size[a] == 1) continue; /* broadcast, or all there is */
        v->data = (const unsigned char *)v->data + start * v->stride[a] * (int64_t)width(v);
        v->size[a] = size;
    }
}
static int64_t key_length(const problem *p, int64_t b, int64_t i) {
    const attn_view *v = &p->d.key_lengths;
    if (v->rank == 0) return p->sk;
    return integer(v, (size_t)(v->rank == 1 ? b : b * p->sq + i));
}
static int64_t query_length(const problem *p, int64_t b) {
    return p->d.query_lengths.rank ? integer(&p->d.query_lengths, (size_t)b) : p->sq;
}
static int64_t position(const problem *p, int64_t b, int64_t i) {
    const attn_view *v = &p->d.positions;
    if (p->d.align == ATTN_ALIGN_TOP_LEFT) return i;
    if (p->d.align == ATTN_ALIGN_BOTTOM_RIGHT) return i + key_length(p, b, i) - query_length(p, b);
    return v->rank == 1 ? integer(v, (size_t)b) + i : integer(v, (size_t)(b * p->sq + i));
}
static attn_view positions_of(const problem *p, const part *c) {
    attn_view v = integers(1, 2, c->nb, c->ni, 0, 0);
    int64_t b, i;
    for (b = 0; b < c->nb; b++)
        for (i = 0; i < c->ni; i++) {
            int64_t x = position(p, c->b + b, c->i + i);
            memcpy(at(&v, (size_t)(b * c->ni + i)), &x, 8);
        }
    return v;
}
static attn_view query_lengths_of(const problem *p, const part *c) {
    attn_view v = integers(1, 1, c->nb, 0, 0, 0);
    int64_t b;
    for (b = 0; b < c->nb; b++) {
        int64_t x = query_length(p, c->b + b) - c->i;
        if (x < 0) x = 0;
        if (x > c->ni) x = c->ni;
        memcpy(at(&v, (size_t)b), &x, 8);
    }
    return v;
}
/* `whole` has the data where the layout put it; the positions and lengths come from the dense problem. */
static attn_desc cut_out(const problem *p, const attn_desc *whole, const part *c) {
    attn_desc d = *whole;
    int i;
    for (i = 0; i < INPUTS; i++) cut_view(input(&d, i), inputs[i].axes, p, c);
    for (i = 0; i < RESULTS; i++) {
        attn_view v = attn_view_of(*result(&d, i));
        cut_view(&v, results[i].axes, p, c);
        *result(&d, i) = writable(v);
    }
    cut_view(&d.key_lengths, d.key_lengths.rank == 1 ? "b" : "bi", p, c);
    if (d.query_lengths.rank) d.query_lengths = query_lengths_of(p, c);
    d.align = ATTN_ALIGN_POSITIONS;
    d.positions = positions_of(p, c);
    d.dropout_origin[0] += c->b;
    d.dropout_origin[1] += c->h;
    d.dropout_origin[2] += c->i;
    return d;
}

/* ---- running a descriptor */
#if defined(HAVE_ROUNDING)
static const int control[FLOAT_CONTROLS] = {FE_TONEAREST, FE_TOWARDZERO, FE_UPWARD, FE_UPWARD, FE_DOWNWARD};

static unsigned swap_control(int n) { /* returns what was set before */
    unsigned before = (unsigned)fegetround();
    if (fesetround(control[n])) stop("the rounding mode cannot be set", NULL);
    return before;
}
static void restore_control(unsigned before, int n) {
    int after = fegetround();
    fesetround((int)before);
    if (after != control[n]) stop("the rounding mode was not restored", NULL);
}
#elif defined(HAVE_CONTROL)
/* MXCSR: 8000 flush to zero, 40 denormals are zero, 4000 up, 2000 down; 1F80 masks all traps, 1900 leaves
   invalid operation, division by zero and overflow trapping */
static const unsigned control[FLOAT_CONTROLS] = {0x1F80, 0x9FC0, 0x5F80, 0xD940, 0x3900};

static unsigned swap_control(int n) { /* returns what was set before */
    unsigned before = _mm_getcsr();
    _mm_setcsr(control[n]);
    return before;
}
static void restore_control(unsigned before, int n) {
    unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    if ((after & 0xFFC0u) != control[n]) stop("the floating-point control register was not restored", NULL);
}
#else
static unsigned swap_control(int n) { return (void)n, 0u; }
static void restore_control(unsigned before, int n) { (void)before, (void)n; }
#endif

/* A function of attn.h, which has its error last, as a caller in w->float_control calls it. */
#define CALL(function, ...) \
    do { \
        attn_error error; \
        const unsigned before = swap_control(w->float_control); \
        const attn_status status = function(__VA_ARGS__, &error); \
        restore_control(before, w->float_control); \
        if (status != ATTN_OK) stop(#function ":", &error); \
    } while (0)

static void run_tasks(const attn_plan *plan, void *workspace, int workers) {
    int32_t phase;
    for (phase = 0; phase < plan->phases; phase++) {
        int64_t n = plan->tasks[phase], i, *order = (int64_t *)take((size_t)n * sizeof(int64_t));
        for (i = 0; i < n; i++) { /* a shuffled order (Fisher and Yates, from the inside) */
            int64_t j = (int64_t)(next() % (uint64_t)(i + 1));
            order[i] = order[j];
            order[j] = i;
        }
        for (i = 0; i < n; i++) attn_task(plan, workspace, phase, order[i], (int32_t)below(workers));
    }
}
static void run_plan(const attn_plan *plan, const way *w) {
    unsigned char *workspace = (unsigned char *)take(plan->workspace_bytes + 1) + 1; /* without alignment */
    const unsigned before = swap_control(w->float_control);
    run_tasks(plan, workspace, w->workers);
    restore_control(before, w->float_control);
}
static void run(const attn_desc *d, const way *w) {
    attn_plan plan;
    if (w->workers == 1) {
        CALL(attn_forward, d);
        return;
    }
    CALL(attn_plan_forward, d, &plan);
    run_plan(&plan, w);
}
static void run_results(const attn_desc *d, const way *w) {
    attn_desc one;
    int r, s;
    if (!w->apart) {
        run(d, w);
        return;
    }
    for (r = 0; r < RESULTS; r++) {
        one = *d;
        if (result(&one, r)->rank == 0) continue;
        for (s = 0; s < RESULTS; s++)
            if (s != r) result(&one, s)->rank = 0, result(&one, s)->data = NULL;
        if (r > 0) {
            one.v.rank = one.v_scale.rank = 0;
            one.v.data = one.v_scale.data = NULL;
        }
        if (!one.weights.rank) one.weights_after_dropout = 0;
        run(&one, w);
    }
}
/* The parts that a way cuts a call into, in memory of its own. */
static part *cut_parts(const problem *p, const way *w, int64_t *n) {
    int64_t step_b = w->cut == CUT_ALONE ? 1 : 2, step_i = w->cut == CUT_ALONE ? 1 : between(2, 30);
    int64_t step_h = w->cut == CUT_BLOCKS && one_in(2) ? p->h : 1;
    part c, *parts = (part *)take((size_t)(p->b * p->h * p->sq) * sizeof(part));
    *n = 0;
    for (c.b = 0; c.b < p->b; c.b += step_b)
        for (c.h = 0; c.h < p->h; c.h += step_h)
            for (c.i = 0; c.i < p->sq; c.i += step_i) {
                c.nb = p->b - c.b < step_b ? p->b - c.b : step_b;
                c.nh = step_h;
                c.ni = p->sq - c.i < step_i ? p->sq - c.i : step_i;
                parts[(*n)++] = c;
            }
    return parts;
}
static void run_parts(const problem *p, const attn_desc *whole, const way *w) {
    int64_t n;
    const part *c = cut_parts(p, w, &n);
    for (; n--; c++) {
        int taken = block_count;
        attn_desc d = cut_out(p, whole, c);
        run_results(&d, w);
        while (block_count > taken) free(blocks[--block_count]);
    }
}

/* The keys first .. first + n of a call: by views of them, or by where those of each entry start. */
static attn_view lengths_within(const problem *p, int64_t first, int64_t n, int rank) {
    attn_view v = integers(1, rank, p->b, p->sq, 0, 0);
    int64_t b, i;
    for (b = 0; b < p->b; b++)
        for (i = 0; i < (rank == 2 ? p->sq : 1); i++) {
            int64_t x = key_length(p, b, i) - first;
            x = x < 0 ? 0 : x > n ? n : x;
            memcpy(at(&v, (size_t)(rank == 2 ? b * p->sq + i : b)), &x, 8);
        }
    return v;
}
static void cut_keys(attn_desc *d, const problem *p, int64_t first, int64_t n, int by_starts) {
    attn_view *views[] = {&d->k, &d->v, &d->k_scale, &d->v_scale, &d->given_scores, &d->bias, &d->mask};
    int i;
    for (i = 0; i < 7 && !by_starts; i++) {
        int axis = i < 4 ? 2 : views[i]->rank - 1;
        if (views[i]->rank && (i < 5 || views[i]->size[axis] != 1))
            *views[i] = attn_view_slice(*views[i], axis, first, n);
    }
    if (by_starts) d->key_starts = integers(1, 1, p->b, 0, first, first);
    if (by_starts || d->key_lengths.rank)
        d->key_lengths = lengths_within(p, first, n, d->key_lengths.rank == 2 ? 2 : 1);
    d->key_origin = first;
}
static void run_keys(const problem *p, const attn_desc *whole, const way *w) {
    part all = {0, 0, 0, 0, 0, 0};
    int64_t size[4], first, n;
    size_t i;
    attn_desc d;
    attn_view carry;
    int r, by_starts = one_in(2);
    all.nb = p->b, all.nh = p->h, all.ni = p->sq;
    run_results(whole, w);
    if (p->sk <= ATTN_PART_KEYS || whole->empty == ATTN_EMPTY_UNIFORM || (!whole->out.rank && !whole->lse.rank)) return;
    d = cut_out(p, whole, &all);
    d.weights_after_dropout = 0;
    for (r = 0; r < RESULTS; r++) {
        attn_view v = attn_view_of(*result(&d, r));
        if (r > 1) memset(result(&d, r), 0, sizeof(attn_out));
        for (i = 0; r <= 1 && v.rank && i < count(&v); i++) memset(at(&v, i), 0xA5, width(&v));
    }
    size[0] = p->b, size[1] = p->h, size[2] = p->sq, size[3] = p->dv + 2;
    carry = dense(ATTN_F32, 4, size);
    carry = lay_out(&carry, w->layout, 1);
    for (first = 0; first < p->sk; first += n) {
        attn_desc one = d;
        n = (int64_t)ATTN_PART_KEYS << below(3);
        if (first) one.carry_in = carry;
        if (n < p->sk - first) {
            memset(&one.out, 0, sizeof one.out), memset(&one.lse, 0, sizeof one.lse);
            one.carry_out = writable(carry);
        } else n = p->sk - first;
        cut_keys(&one, p, first, n, by_starts);
        run(&one, w);
    }
}

static int dumped = -1, current; /* numbers of calls */

static uint64_t hash_view(uint64_t hash, const attn_view *v) {
    size_t n = count(v), i;
    for (i = 0; i < n; i++) {
        uint64_t bits = 0;
        uint32_t whole = 0;
        uint16_t narrow = 0;
        switch (width(v)) {
        case 1: bits = *at(v, i); break;
        case 2: memcpy(&narrow, at(v, i), 2), bits = narrow; break;
        case 4: memcpy(&whole, at(v, i), 4), bits = whole; break;
        default: memcpy(&bits, at(v, i), 8); break;
        }
        if (current == dumped) {
            printf("%6lu of %lu: %08lx", (unsigned long)i, (unsigned long)n, (unsigned long)(bits & 0xFFFFFFFFu));
            if (v->type == ATTN_F32) printf(" %.9g", (double)from_bits(whole));
            printf("\n");
        }
        hash = mix(hash, (uint32_t)bits);
        if (width(v) == 8) hash = mix(hash, (uint32_t)(bits >> 32));
    }
    return hash;
}

static uint64_t attention(int n, const way *w) {
    problem p;
    attn_desc d;
    uint64_t hash = (uint64_t)n;
    int i;
    make_problem(&p, n, 0);
    d = p.d;
    state = 1; /* what follows must not change the set */
    for (i = 0; i < INPUTS; i++) *input(&d, i) = lay_out(input(&p.d, i), w->layout, 0);
    for (i = 0; i < RESULTS; i++) {
        attn_out *o = result(&d, i);
        attn_view v;
        if (o->rank == 0) continue;
        v = dense(i == 1 ? ATTN_F32 : storage.stored, o->rank, o->size); /* lse is always f32 */
        *o = writable(lay_out(&v, w->layout, 1));
    }
    d.isa = w->isa;
    if (is_amx) d.precision = ATTN_PRECISION_FAST;
    d.parallel.workers = w->workers;
    if (w->cut == CUT_WHOLE) run_results(&d, w);
    else if (w->cut == CUT_KEYS) run_keys(&p, &d, w);
    else run_parts(&p, &d, w);
    for (i = 0; i < RESULTS; i++) {
        attn_view v = attn_view_of(*result(&d, i));
        if (v.rank) hash = hash_view(hash, &v);
    }
    free_blocks();
    return hash;
}

/* ---- gradients of the same calls */
enum { ABOVE = 3, GRADIENTS = 14, GRAD_CALL = 1000 };
static const struct {
    size_t offset;
    const char *axes;
} above[ABOVE] = {
    {offsetof(attn_grad, d_out), "bhi."},
    {offsetof(attn_grad, d_weights), "bhi."},
    {offsetof(attn_grad, d_lse), "bhi"},
};
static const struct {
    size_t offset, owner;
} gradients[GRADIENTS] = {
    {offsetof(attn_grad, dq), offsetof(attn_desc, q)},
    {offsetof(attn_grad, dk), offsetof(attn_desc, k)},
    {offsetof(attn_grad, dv), offsetof(attn_desc, v)},
    {offsetof(attn_grad, d_given_scores), offsetof(attn_desc, given_scores)},
    {offsetof(attn_grad, d_bias), offsetof(attn_desc, bias)},
    {offsetof(attn_grad, d_bilinear), offsetof(attn_desc, bilinear)},
    {offsetof(attn_grad, d_w_q), offsetof(attn_desc, w_q)},
    {offsetof(attn_grad, d_w_k), offsetof(attn_desc, w_k)},
    {offsetof(attn_grad, d_w_v), offsetof(attn_desc, w_v)},
    {offsetof(attn_grad, d_hidden_bias), offsetof(attn_desc, hidden_bias)},
    {offsetof(attn_grad, d_sigma), offsetof(attn_desc, sigma_per_head)},
    {offsetof(attn_grad, d_scale), 0},
    {offsetof(attn_grad, d_sink), offsetof(attn_desc, sink)},
    {offsetof(attn_grad, d_alibi), offsetof(attn_desc, alibi)},
};
static attn_view *from_above(attn_grad *g, int i) { return (attn_view *)(void *)((char *)g + above[i].offset); }
static attn_out *gradient(attn_grad *g, int i) { return (attn_out *)(void *)((char *)g + gradients[i].offset); }

/* All gradients that the call can have, some of them added to; d_out in most calls, the others in some. */
static void make_gradients(const problem *p, int n, attn_grad *g) {
    const attn_desc *d = &p->d;
    int kernel = d->score >= ATTN_SCORE_GAUSSIAN && d->score <= ATTN_SCORE_CONSTANT;
    int kind = n % 9 == 8 ? SPECIAL : PLAIN, i;
    memset(g, 0, sizeof *g);
    state = 0x96AD1E57u + (uint64_t)n;
    g->accumulate = (uint32_t)(next() & next()) & ATTN_GRAD_ALL;
    if (n % 7 != 3) g->d_out = stored(kind, 4, p->b, p->h, p->sq, p->dv);
    if (n % 3 == 0 || n % 7 == 3) g->d_lse = stored(kind, 3, p->b, p->h, p->sq, 0);
    if (n % 4 == 0) g->d_weights = stored(kind, 4, p->b, p->h, p->sq, p->sk);
    for (i = 0; i < GRADIENTS; i++) {
        attn_view like;
        memcpy(&like, (const char *)d + gradients[i].owner, sizeof like);
        if (gradients[i].offset == offsetof(attn_grad, d_scale)) like.rank = !kernel, like.size[0] = 1;
        if (gradients[i].offset == offsetof(attn_grad, d_sigma) && !like.rank)
            like.rank = kernel && d->score != ATTN_SCORE_CONSTANT, like.size[0] = 1;
        if (like.rank)
            *gradient(g, i) =
                writable(stored(PLAIN, like.rank, like.size[0], like.size[1], like.size[2], like.size[3]));
    }
}

static void run_backward(const attn_desc *d, const attn_grad *g, const way *w) {
    attn_plan plan;
    if (w->workers == 1) {
        CALL(attn_backward, d, g);
        return;
    }
    CALL(attn_plan_backward, d, g, &plan);
    run_plan(&plan, w);
}
static void run_gradients(const attn_desc *d, const attn_grad *g, const way *w) {
    attn_grad some = *g, one = *g;
    int i, j, any = 0;
    for (i = 0; i < GRADIENTS; i++) any |= gradient(&some, i)->rank;
    if (!any) return;
    if (!w->apart) {
        run_backward(d, g, w);
        return;
    }
    for (i = 0; i < GRADIENTS; i++) {
        one = *g;
        if (gradient(&one, i)->rank == 0) continue;
        for (j = 0; j < GRADIENTS; j++)
            if (j != i) gradient(&one, j)->rank = 0, gradient(&one, j)->data = NULL;
        run_backward(d, &one, w);
    }
}
static attn_out cut_result(const attn_out *o, const problem *p, const part *c) {
    attn_view v = attn_view_of(*o);
    cut_view(&v, "bhi.", p, c);
    return writable(v);
}
/* What belongs to a query depends on no other query: dq in parts, the rest, which sums over queries, whole. */
static void run_gradient_parts(const problem *p, const attn_desc *whole, attn_grad *g, const way *w) {
    attn_grad rest = *g;
    int64_t n;
    const part *c = cut_parts(p, w, &n);
    memset(&rest.dq, 0, sizeof rest.dq);
    memset(&rest.d_given_scores, 0, sizeof rest.d_given_scores);
    run_gradients(whole, &rest, w);
    for (; n--; c++) {
        attn_grad mine;
        int i, taken = block_count;
        attn_desc d = cut_out(p, whole, c);
        memset(&mine, 0, sizeof mine);
        d.stats = cut_result(&d.stats, p, c);
        mine.accumulate = g->accumulate;
        for (i = 0; i < ABOVE; i++) {
            *from_above(&mine, i) = *from_above(g, i);
            cut_view(from_above(&mine, i), above[i].axes, p, c);
        }
        if (g->dq.rank) mine.dq = cut_result(&g->dq, p, c);
        else mine.d_given_scores = cut_result(&g->d_given_scores, p, c);
        run_gradients(&d, &mine, w);
        while (block_count > taken) free(blocks[--block_count]);
    }
}

static uint64_t attention_gradients(int n, const way *w) {
    problem p;
    attn_desc d;
    attn_grad g;
    attn_error error;
    attn_view stats;
    int64_t size[4];
    uint64_t hash = (uint64_t)(GRAD_CALL + n);
    int i;
    make_problem(&p, n, 1);
    make_gradients(&p, n, &g);
    d = p.d;
    state = 1; /* what follows must not change the set */
    for (i = 0; i < INPUTS; i++) *input(&d, i) = lay_out(input(&p.d, i), w->layout, 0);
    for (i = 0; i < ABOVE; i++) *from_above(&g, i) = lay_out(from_above(&g, i), w->layout, 0);
    for (i = 0; i < GRADIENTS; i++) {
        attn_view v = attn_view_of(*gradient(&g, i));
        if (v.rank) *gradient(&g, i) = writable(lay_out(&v, w->layout, 1));
    }
    for (i = 1; i < RESULTS; i++) result(&d, i)->rank = 0, result(&d, i)->data = NULL;
    stats = dense(storage.stored, 4, d.out.size);
    d.out = writable(lay_out(&stats, w->layout, 1));
    size[0] = p.b, size[1] = p.h, size[2] = p.sq, size[3] = 2;
    stats = dense(ATTN_F32, 4, size);
    d.stats = writable(lay_out(&stats, w->layout, 1));
    d.isa = w->isa;
    const int32_t after = d.weights_after_dropout;
    if (is_amx) d.precision = ATTN_PRECISION_FAST;
    d.weights_after_dropout = 0; /* there are no weights */
    if (attn_forward(&d, &error) != ATTN_OK) stop("attn_forward:", &error);
    d.weights_after_dropout = after;
    d.parallel.workers = w->workers;
    if (n % 2) memset(&d.stats, 0, sizeof d.stats); /* computed again */
    if (w->cut == CUT_WHOLE || w->cut == CUT_KEYS) run_gradients(&d, &g, w);
    else run_gradient_parts(&p, &d, &g, w);
    for (i = 0; i < GRADIENTS; i++) {
        attn_view v = attn_view_of(*gradient(&g, i));
        if (v.rank) hash = hash_view(hash, &v);
    }
    free_blocks();
    return hash;
}

/* ---- the pieces that stand alone */
static attn_view placed(attn_view v, const way *w) { return lay_out(&v, w->layout, 0); }
static attn_view placed_out(const way *w, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    int64_t size[4];
    attn_view v;
    size[0] = n0, size[1] = n1, size[2] = n2, size[3] = n3;
    v = dense(storage.stored, rank, size);
    return lay_out(&v, w->layout, 1);
}
static uint64_t elementary(uint64_t hash, const way *w) {
    enum { N = 4099 };
    attn_view x = floats(PLAIN, 1, N, 0, 0, 0), y = floats(PLAIN, 1, N, 0, 0, 0);
    int function, i;
    for (i = 0; i < N; i++) {
        uint32_t bits = i % 3 ? (uint32_t)next() : i % 2 ? number(-10, 6) : value(SPECIAL);
        memcpy(at(&x, (size_t)i), &bits, 4);
    }
    for (function = 0; function < 3; function++) {
        unsigned before = swap_control(w->float_control);
        attn_status status =
            attn_elementary((attn_function)function, (const float *)x.data, (float *)(uintptr_t)y.data, N, w->isa);
        restore_control(before, w->float_control);
        if (status != ATTN_OK) stop("attn_elementary", NULL);
        hash = hash_view(hash, &y);
    }
    return hash;
}
static attn_desc options_of(const way *w) {
    attn_desc options;
    memset(&options, 0, sizeof options);
    options.isa = w->isa;
    return options;
}
static uint64_t matrix_product(uint64_t hash, const way *w) {
    attn_view a = placed(stored(PLAIN, 4, 2, 3, 19, 37), w), b = placed(stored(SPECIAL, 3, 1, 37, 41, 0), w);
    attn_view c = placed_out(w, 4, 2, 3, 19, 41);
    attn_desc options = options_of(w);
    CALL(attn_bmm, a, b, writable(c), &options);
    return hash_view(hash, &c);
}
static uint64_t softmax(uint64_t hash, const way *w) {
    attn_view x = placed(stored(SPECIAL, 3, 3, 7, 133, 0), w), y = placed_out(w, 3, 3, 7, 133, 0);
    attn_desc options = options_of(w);
    options.key_lengths = integers(0, 1, 3, 0, 100, 100);
    CALL(attn_softmax, x, writable(y), &options);
    return hash_view(hash, &y);
}
static attn_mha_desc heads_of(attn_desc *options, const way *w) {
    attn_mha_desc m;
    memset(&m, 0, sizeof m);
    *options = options_of(w);
    options->causal = 1;
    m.query = placed(stored(PLAIN, 3, 2, 9, 23, 0), w);
    m.w_query = placed(stored(PLAIN, 2, 12, 23, 0, 0), w);
    m.w_key = placed(stored(PLAIN, 2, 6, 23, 0, 0), w);
    m.w_value = placed(stored(PLAIN, 2, 10, 23, 0, 0), w);
    m.w_result = placed(stored(PLAIN, 2, 21, 20, 0, 0), w);
    m.b_query = placed(stored(PLAIN, 1, 12, 0, 0, 0), w);
    m.out = writable(placed_out(w, 3, 2, 9, 21, 0));
    m.heads = 4;
    m.heads_kv = 2;
    m.attention = options;
    return m;
}
static uint64_t multi_head(uint64_t hash, const way *w) {
    attn_desc options;
    attn_mha_desc m = heads_of(&options, w);
    attn_view y = attn_view_of(m.out);
    m.b_value = placed(stored(PLAIN, 1, 10, 0, 0, 0), w);
    m.b_result = placed(stored(PLAIN, 1, 21, 0, 0, 0), w);
    CALL(attn_mha, &m);
    return hash_view(hash, &y);
}
static uint64_t merge(uint64_t hash, const way *w) {
    attn_view out_a = placed(stored(SPECIAL, 4, 2, 3, 5, 11), w), out_b = placed(stored(PLAIN, 4, 2, 3, 5, 11), w);
    attn_view lse_a = placed(floats(PLAIN, 3, 2, 3, 5, 0), w), lse_b = placed(floats(SPECIAL, 3, 2, 3, 5, 0), w);
    attn_view y = placed_out(w, 4, 2, 3, 5, 11), one = floats(PLAIN, 3, 2, 3, 5, 0), lse = lay_out(&one, w->layout, 1);
    CALL(attn_merge, out_a, lse_a, out_b, lse_b, writable(y), writable(lse));
    return hash_view(hash_view(hash, &y), &lse);
}
/* Numbers of all exponents from each type to each, rows as codes and blocks of q8_0 as codes. */
static uint64_t conversions(uint64_t hash, const way *w) {
    enum { ROWS = 2 * 3 * 5, BLOCKS = ROWS * 3, N = 2 * 3 * 5 * 96 };
    static const int types[] = {ATTN_F32, ATTN_F16, ATTN_BF16, ATTN_F64};
    attn_view x = floats(SPECIAL, 4, 2, 3, 5, 96), plain = floats(SPECIAL, 4, 2, 3, 5, 96);
    attn_view q8 = integers(1, 1, BLOCKS * 34 / 8 + 1, 0, 0, 0);
    unsigned char *bytes = (unsigned char *)(uintptr_t)q8.data;
    int from, to, scale, groups, i;
    for (i = 0; i < N; i++) {
        uint32_t bits = i % 3 ? (uint32_t)next() : i % 2 ? number(-28, 17) : value(SPECIAL);
        memcpy(at(&x, (size_t)i), &bits, 4);
    }
    for (from = 0; from < 3; from++)
        for (to = 0; to < 4; to++) {
            attn_view a = as(types[from], &x), b = dense(types[to], 4, x.size);
            a = placed(a, w), b = lay_out(&b, w->layout, 1);
            CALL(attn_convert, a, writable(b));
            hash = hash_view(hash, &b);
            if (types[to] != ATTN_F64) continue;
            a = dense(storage.stored, 4, x.size); /* and back, from f64 */
            CALL(attn_convert, b, writable(a));
            hash = hash_view(hash, &a);
        }
    for (i = 0; i < BLOCKS * 34; i++) bytes[i] = (unsigned char)next();
    for (scale = 0; scale < 2; scale++)
        for (groups = 1; groups <= 3; groups += 2) {
            int64_t size[4] = {2, 3, 5, 0};
            attn_view codes = dense(ATTN_I8, 4, x.size), a = as(storage.stored, scale ? &x : &plain), b;
            size[3] = groups;
            b = dense(types[scale], 4, size);
            a = placed(a, w), b = lay_out(&b, w->layout, 1), codes = lay_out(&codes, w->layout, 1);
            CALL(attn_quantize, a, writable(codes), writable(b));
            hash = hash_view(hash_view(hash, &codes), &b);
            if (groups == 1) continue;
            CALL(attn_unpack_q8_0, bytes, writable(codes), writable(b));
            hash = hash_view(hash_view(hash, &codes), &b);
        }
    return hash;
}
/* ---- gradients of the pieces */
static uint64_t matrix_gradients(uint64_t hash, const way *w) {
    attn_view a = placed(stored(PLAIN, 4, 2, 3, 139, 37), w), b = placed(stored(SPECIAL, 3, 1, 37, 41, 0), w),
              d_out = placed(stored(PLAIN, 4, 2, 3, 139, 41), w), start = stored(PLAIN, 3, 1, 37, 41, 0);
    attn_view da = placed_out(w, 4, 2, 3, 139, 37), db = lay_out(&start, w->layout, 1);
    attn_desc options = options_of(w);
    CALL(attn_bmm_backward, a, b, d_out, writable(da), writable(db), 2, &options);
    return hash_view(hash_view(hash, &da), &db);
}
static uint64_t softmax_gradient(uint64_t hash, const way *w) {
    attn_view x = placed(stored(SPECIAL, 3, 3, 7, 133, 0), w), d_out = placed(stored(PLAIN, 3, 3, 7, 133, 0), w),
              dx = placed_out(w, 3, 3, 7, 133, 0);
    attn_desc options = options_of(w);
    options.key_lengths = integers(0, 1, 3, 0, 100, 100);
    CALL(attn_softmax_backward, x, d_out, writable(dx), &options);
    return hash_view(hash, &dx);
}
static uint64_t multi_head_gradients(uint64_t hash, const way *w) {
    attn_desc options;
    attn_mha_desc m = heads_of(&options, w);
    attn_mha_grad g;
    attn_view outs[6];
    int i;
    memset(&g, 0, sizeof g);
    g.d_out = placed(stored(PLAIN, 3, 2, 9, 21, 0), w);
    g.dquery = writable(outs[0] = placed_out(w, 3, 2, 9, 23, 0));
    g.dw_query = writable(outs[1] = placed_out(w, 2, 12, 23, 0, 0));
    g.dw_key = writable(outs[2] = placed_out(w, 2, 6, 23, 0, 0));
    g.dw_value = writable(outs[3] = placed_out(w, 2, 10, 23, 0, 0));
    g.dw_result = writable(outs[4] = placed_out(w, 2, 21, 20, 0, 0));
    g.db_query = writable(outs[5] = placed_out(w, 1, 12, 0, 0, 0));
    CALL(attn_mha_backward, &m, &g);
    for (i = 0; i < 6; i++) hash = hash_view(hash, &outs[i]);
    return hash;
}
typedef uint64_t (*piece)(uint64_t, const way *);
static const piece plain_pieces[] = {elementary, matrix_product, softmax, multi_head, merge, conversions};
static const piece gradient_pieces[] = {matrix_gradients, softmax_gradient, multi_head_gradients};
enum { ATTENTIONS = 11 * ATTN_SCORE_COUNT, PIECES = 5, GRADIENT_PIECES = 3 }; /* conversions: not of f32 */

static uint64_t run_piece(piece f, int n, const way *w) {
    uint64_t hash;
    choose_storage(n);
    state = 0x91E5u + (uint64_t)n;
    hash = f((uint64_t)n, w);
    free_blocks();
    return hash;
}

/* ---- the program */
static const char *const cut_names[] = {"whole", "alone", "blocks", "keys"};
static const char *const layout_names[] = {"packed", "strided", "reversed"};

static const struct {
    const char *name;
    int type;
} type_names[] = {{"f32", ATTN_F32}, {"f16", ATTN_F16}, {"bf16", ATTN_BF16}, {"i8", ATTN_I8}};

static int is_sequences, is_index, is_sums;
static const char *type_name(void) {
    int i = 0;
    while (type_names[i].type != storage.type) i++;
    return type_names[i].name;
}
static void choose_type(const char *name) {
    size_t i;
    is_sequences = !strcmp(name, "sequences");
    is_amx = !strncmp(name, "amx", 3);
    is_index = !strcmp(name, "index");
    is_sums = !strcmp(name, "sums");
    if (is_sequences || is_index || is_sums) return;
    if (is_amx) name = name[3] == '-' ? name + 4 : "bf16";
    for (i = 0; i < sizeof type_names / sizeof *type_names; i++)
        if (!strcmp(name, type_names[i].name)) {
            storage.type = type_names[i].type;
            return;
        }
    stop("unknown type:", NULL);
}

static way mixed(const way *given, int n) { /* another way for every call */
    static const int workers[] = {1, 2, 3, 8};
    way w = *given;
    w.workers = workers[n % 4];
    w.cut = n / 2 % CUT_COUNT;
    w.layout = n / 5 % LAYOUT_COUNT;
    w.apart = n % 7 == 0;
    return w;
}
static void add_call(uint64_t *total, uint64_t hash, int show) {
    if (show)
        printf("call %4d %08lx%08lx\n", current, (unsigned long)(hash >> 32), (unsigned long)(hash & 0xFFFFFFFFu));
    *total = mix(mix(*total, (uint32_t)hash), (uint32_t)(hash >> 32));
}
/* ---- sequences: a batch of entries of unequal length. The hash is that of a call for each entry; the same entries in
   shared arrays, in pages, in a ring of pages and grown row by row must give the same bits. */
enum { ENTRIES = 3, BATCHES = 24, ROOM = 2048 };
enum { SIDE_Q, SIDE_K }; /* arrays of queries, of keys */
enum { FORM_PACKED, FORM_PADDED, FORM_PAGES_1, FORM_PAGES_16, FORM_PAGES_300, FORM_RING, FORM_COUNT };
static const char *const form_names[] = {"packed",      "left padding", "pages of 1",
                                         "pages of 16", "pages of 300", "a ring"};

typedef struct {
    attn_desc d; /* the options */
    int64_t h, hkv, dq, dv, rows[ENTRIES], keys[ENTRIES];
    attn_view q[ENTRIES], k[ENTRIES], v[ENTRIES], k_scale[ENTRIES], v_scale[ENTRIES], d_out[ENTRIES];
    attn_view out[ENTRIES], lse[ENTRIES], dq_[ENTRIES], dk_[ENTRIES], dv_[ENTRIES]; /* of the entries' own calls */
} batch;

static attn_view shape4(int type, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    int64_t size[4];
    size[0] = n0, size[1] = n1, size[2] = n2, size[3] = n3;
    return dense(type, 4, size);
}
static void make_batch(batch *t, int n) {
    static const int sizes[] = {16, 64, 8, 36, 128}, heads[][2] = {{1, 1}, {4, 1}, {4, 2}, {8, 1}, {3, 3}};
    static const int types[] = {ATTN_F32, ATTN_F16, ATTN_BF16, ATTN_I8};
    attn_desc *d = &t->d;
    int b;
    storage.type = types[n / 4 % 4];
    choose_storage(n);
    memset(t, 0, sizeof *t);
    state = 0x5E9E0CE5u + (uint64_t)n;
    t->h = heads[n % 5][0], t->hkv = heads[n % 5][1];
    t->dq = sizes[n / 2 % 5], t->dv = sizes[n / 3 % 5];
    d->score = n % 7 == 5 ? ATTN_SCORE_COSINE : n % 7 == 6 ? ATTN_SCORE_GAUSSIAN : ATTN_SCORE_DOT;
    if (d->score == ATTN_SCORE_GAUSSIAN) d->sigma = 4;
    d->align = n % 3 ? ATTN_ALIGN_BOTTOM_RIGHT : ATTN_ALIGN_TOP_LEFT;
    d->causal = n % 4 != 2;
    d->window = n % 3 == 1;
    if (d->window) d->window_left = 40, d->window_right = ATTN_UNBOUNDED;
    if (n % 5 == 3) d->alibi = floats(SMALL, 1, t->h, 0, 0, 0);
    if (n % 6 == 4) d->sink = floats(PLAIN, 1, t->h, 0, 0, 0);
    if (n % 8 == 7) d->dropout = 0.25f, d->seed = next(), d->dropout_origin[0] = 5, d->dropout_origin[2] = 9;
    for (b = 0; b < ENTRIES; b++) {
        attn_view none;
        memset(&none, 0, sizeof none);
        t->rows[b] = n % 2 ? between(0, 4) : between(0, 90);
        t->keys[b] = n % 6 < 2 ? between(250, 700) : between(0, 120);
        t->q[b] = stored(PLAIN, 4, 1, t->h, t->rows[b], t->dq);
        t->k[b] = floats(PLAIN, 4, 1, t->hkv, t->keys[b], t->dq);
        t->v[b] = floats(PLAIN, 4, 1, t->hkv, t->keys[b], t->dv);
        t->d_out[b] = stored(PLAIN, 4, 1, t->h, t->rows[b], t->dv);
        t->k[b] = storage.type == ATTN_I8 ? coded(&t->k[b], &t->k_scale[b]) : as(storage.type, &t->k[b]);
        t->v[b] = storage.type == ATTN_I8 ? coded(&t->v[b], &t->v_scale[b]) : as(storage.type, &t->v[b]);
    }
    state = 1; /* what follows must not change the set */
}

/* Results in new memory, [batch,H,rows,.]; of a call with gradients those as well. kb is the batch size of the keys,
   0 for no gradients: there are none of pages, and an array of a pool's size with the keys of all has a gigabyte. */
static void ask(const batch *t, attn_desc *d, attn_grad *g, int64_t b, int64_t rows, int64_t kb, int64_t keys,
                const way *w) {
    int64_t size[4];
    attn_view v = shape4(storage.stored, b, t->h, rows, t->dv);
    d->out = writable(lay_out(&v, w->layout, 1));
    size[0] = b, size[1] = t->h, size[2] = rows;
    v = dense(ATTN_F32, 3, size);
    d->lse = writable(v);
    memset(g, 0, sizeof *g);
    if (storage.type == ATTN_I8 || kb == 0) return;
    g->dq = writable(shape4(storage.stored, b, t->h, rows, t->dq));
    g->dk = writable(shape4(storage.type, kb, t->hkv, keys, t->dq));
    g->dv = writable(shape4(storage.type, kb, t->hkv, keys, t->dv));
}
static void run_both(attn_desc *d, const attn_grad *g, const way *w) {
    d->isa = w->isa;
    d->parallel.workers = w->workers;
    run(d, w);
    if (!g->d_out.rank) return;
    memset(&d->lse, 0, sizeof d->lse);
    run_backward(d, g, w);
}

/* ---- where an entry lies in shared arrays */
typedef struct {
    int form;
    int64_t q_batch, k_batch, all_rows, all_keys, page, q0[ENTRIES], k0[ENTRIES];
    attn_view table;
} home;

/* Entries one after the other, with gaps; or each at the end of a row of its own. */
static int64_t start_all(const int64_t *n, int64_t *start, int is_packed) {
    int64_t at = 2, room = 1;
    int b;
    for (b = 0; b < ENTRIES; b++) start[b] = at, at += n[b] + b;
    for (b = 0; b < ENTRIES; b++)
        if (n[b] + 3 > room) room = n[b] + 3;
    for (b = 0; !is_packed && b < ENTRIES; b++) start[b] = room - n[b];
    return is_packed ? at : room;
}
static void find_home(const batch *t, int form, home *m) {
    int64_t pages, n, reused, longest = 1;
    int b;
    memset(m, 0, sizeof *m);
    m->form = form;
    m->q_batch = form == FORM_PADDED ? ENTRIES : 1;
    m->all_rows = start_all(t->rows, m->q0, form != FORM_PADDED);
    m->k_batch = form == FORM_PACKED ? 1 : ENTRIES;
    if (form <= FORM_PADDED) m->all_keys = start_all(t->keys, m->k0, form == FORM_PACKED);
    if (form <= FORM_PADDED) return;
    m->page = form == FORM_PAGES_1 ? 1 : form == FORM_PAGES_300 ? 300 : 16;
    for (b = 0; b < ENTRIES; b++)
        if (t->keys[b] > longest) longest = t->keys[b];
    pages = (longest + m->page - 1) / m->page;
    reused = form == FORM_RING ? (40 + 90) / m->page + 2 : pages; /* pages that a window and all queries reach */
    m->all_keys = pages * m->page;
    m->k_batch = ENTRIES * reused; /* of the pool */
    m->table = integers(form == FORM_PAGES_16, 2, ENTRIES, pages, 0, 0);
    for (b = 0; b < ENTRIES; b++)
        for (n = 0; n < pages; n++) {
            int64_t wide = n * m->page < t->keys[b] ? ((n + 1) % reused) * ENTRIES + b : -9;
            int32_t narrow = (int32_t)wide;
            memcpy(at(&m->table, (size_t)(b * pages + n)), m->table.type == ATTN_I64 ? (void *)&wide : (void *)&narrow,
                   width(&m->table));
        }
}
/* Row r of entry b: in which batch entry (or page) of the shared array, and which row there. */
static int64_t row_home(const home *m, int side, int b, int64_t r, int64_t *row) {
    if (side == SIDE_Q) {
        *row = m->q0[b] + r;
        return m->q_batch == 1 ? 0 : b;
    }
    *row = m->page ? r % m->page : m->k0[b] + r;
    if (m->page) return integer(&m->table, (size_t)(b * (m->all_keys / m->page) + r / m->page));
    return m->k_batch == 1 ? 0 : b;
}
static unsigned char *element_in(const attn_view *shared, int64_t place, int64_t h, int64_t row) {
    return at(shared, (size_t)(((place * shared->size[1] + h) * shared->size[2] + row) *
                               (shared->rank == 4 ? shared->size[3] : 1)));
}
/* The entries' rows into a shared array, which holds garbage elsewhere; in a ring the last of those in one place. */
static attn_view gather(const home *m, int side, const attn_view *of) {
    attn_view v = of[0];
    int64_t h, r, row;
    int b;
    if (!v.rank) return v;
    v = shape4(v.type, side == SIDE_Q ? m->q_batch : m->k_batch, v.size[1],
               side == SIDE_Q ? m->all_rows
               : m->page      ? m->page
                              : m->all_keys,
               v.size[3]);
    for (b = 0; b < ENTRIES; b++)
        for (r = 0; r < of[b].size[2]; r++) {
            int64_t place = row_home(m, side, b, r, &row);
            for (h = 0; h < v.size[1] && v.size[3]; h++)
                memcpy(element_in(&v, place, h, row), element_in(&of[b], 0, h, r), (size_t)v.size[3] * width(&v));
        }
    return v;
}
static void compare(const home *m, int side, const attn_view *own, attn_out shared, const char *what) {
    attn_view v = attn_view_of(shared);
    int64_t h, r, row, x, columns = v.rank == 4 ? v.size[3] : 1;
    int b;
    for (b = 0; v.rank && b < ENTRIES; b++)
        for (r = 0; r < own[b].size[2]; r++) {
            int64_t place = row_home(m, side, b, r, &row);
            for (h = 0; h < v.size[1]; h++) {
                const size_t first = (size_t)(((place * v.size[1] + h) * v.size[2] + row) * columns);
                const size_t own_first = (size_t)((h * own[b].size[2] + r) * columns), size = width(&v);
                for (x = 0; x < columns; x++)
                    if (memcmp(at(&v, first) + x * v.stride[3] * (int64_t)size,
                               at(&own[b], own_first) + x * own[b].stride[3] * (int64_t)size, size))
                        break;
                if (x == columns) continue;
                printf("call %d, entry %d, row %ld: %s differs in %s\n", current, b, (long)r, what,
                       form_names[m->form]);
                stop("sequences", NULL);
            }
        }
}
static attn_view starts_of(const int64_t *start) {
    attn_view v = integers(0, 1, ENTRIES, 0, 0, 0);
    int b;
    for (b = 0; b < ENTRIES; b++) {
        int32_t x = (int32_t)start[b];
        memcpy(at(&v, (size_t)b), &x, 4);
    }
    return v;
}
static void run_form(const batch *t, int form, const way *w) {
    home at;
    attn_desc d = t->d;
    attn_grad g;
    attn_view lse;
    find_home(t, form, &at);
    d.q = gather(&at, SIDE_Q, t->q), d.k = gather(&at, SIDE_K, t->k), d.v = gather(&at, SIDE_K, t->v);
    d.k_scale = gather(&at, SIDE_K, t->k_scale), d.v_scale = gather(&at, SIDE_K, t->v_scale);
    d.query_starts = starts_of(at.q0);
    if (form != FORM_PADDED) d.query_lengths = starts_of(t->rows), d.key_lengths = starts_of(t->keys);
    if (at.page) d.page_table = at.table;
    else d.key_starts = starts_of(at.k0);
    ask(t, &d, &g, at.q_batch, at.all_rows, at.page ? 0 : at.k_batch, at.all_keys, w);
    if (storage.type != ATTN_I8 && !at.page) g.d_out = gather(&at, SIDE_Q, t->d_out);
    lse = attn_view_of(d.lse);
    run_both(&d, &g, w);
    compare(&at, SIDE_Q, t->out, d.out, "out");
    compare(&at, SIDE_Q, t->lse, writable(lse), "lse");
    if (!g.d_out.rank) return;
    compare(&at, SIDE_Q, t->dq_, g.dq, "dq");
    compare(&at, SIDE_K, t->dk_, g.dk, "dk");
    compare(&at, SIDE_K, t->dv_, g.dv, "dv");
}
static void run_own(batch *t, int b, const way *w) {
    attn_desc d = t->d;
    attn_grad g;
    d.q = t->q[b], d.k = t->k[b], d.v = t->v[b], d.k_scale = t->k_scale[b], d.v_scale = t->v_scale[b];
    d.dropout_origin[0] += b;
    ask(t, &d, &g, 1, t->rows[b], 1, t->keys[b], w);
    if (storage.type != ATTN_I8) g.d_out = t->d_out[b];
    t->out[b] = attn_view_of(d.out), t->lse[b] = attn_view_of(d.lse);
    t->dq_[b] = attn_view_of(g.dq), t->dk_[b] = attn_view_of(g.dk), t->dv_[b] = attn_view_of(g.dv);
    run_both(&d, &g, w);
}
static void sequences(int n, const way *w, uint64_t hash[2]) {
    batch t;
    int b, form;
    make_batch(&t, n);
    for (b = 0; b < ENTRIES; b++) run_own(&t, b, w);
    for (b = 0; b < ENTRIES; b++) {
        hash[0] = hash_view(hash_view(hash[0], &t.out[b]), &t.lse[b]);
        hash[1] = hash_view(hash_view(hash_view(hash[1], &t.dq_[b]), &t.dk_[b]), &t.dv_[b]);
    }
    for (form = 0; form < FORM_COUNT; form++) {
        const int taken = block_count;
        if (form == FORM_RING && !(t.d.window && t.d.align == ATTN_ALIGN_BOTTOM_RIGHT)) continue; /* it forgets keys */
        run_form(&t, form, w);
        while (block_count > taken) free(blocks[--block_count]);
    }
    free_blocks();
}

/* Rows that go into a cache in three parts, contiguous and into pages, are those that attn_convert and attn_quantize
   make of all of them at once. */
static uint64_t growing(uint64_t hash, int type, int per_row, const way *w) {
    enum { STEPS = 3 };
    batch t;
    home at[2];
    attn_view x[ENTRIES], whole[ENTRIES], scale[ENTRIES], cache, scales, none;
    int b, step, paged;
    memset(&t, 0, sizeof t);
    memset(&none, 0, sizeof none);
    for (b = 0; b < ENTRIES; b++) {
        int64_t rows = t.keys[b] = between(1, 60);
        x[b] = floats(SPECIAL, 4, 1, 2, rows, 70);
        whole[b] = shape4(type, 1, 2, rows, 70);
        scale[b] = type == ATTN_I8 ? shape4(per_row ? ATTN_F32 : ATTN_F16, 1, 2, rows, per_row ? 1 : 3) : none;
        if (type == ATTN_I8) CALL(attn_quantize, x[b], writable(whole[b]), writable(scale[b]));
        else CALL(attn_convert, x[b], writable(whole[b]));
        hash = hash_view(hash, &whole[b]);
        if (scale[b].rank) hash = hash_view(hash, &scale[b]);
    }
    for (paged = 0; paged < 2; paged++) {
        int64_t held[ENTRIES] = {0, 0, 0};
        find_home(&t, paged ? FORM_PAGES_16 : FORM_PADDED, &at[paged]);
        cache = gather(&at[paged], SIDE_K, whole), scales = gather(&at[paged], SIDE_K, scale);
        memset((void *)(uintptr_t)cache.data, 0xAB, count(&cache) * width(&cache));
        if (scales.rank) memset((void *)(uintptr_t)scales.data, 0xAB, count(&scales) * width(&scales));
        for (step = 0; step < STEPS; step++) {
            attn_desc d;
            int64_t rows[ENTRIES], start[ENTRIES], all = 0, h, r;
            attn_view fresh, lengths = starts_of(held);
            memset(&d, 0, sizeof d);
            for (b = 0; b < ENTRIES; b++) {
                rows[b] = step == STEPS - 1 ? t.keys[b] - held[b] : (t.keys[b] - held[b]) / 2;
                start[b] = all, all += rows[b];
            }
            fresh = shape4(ATTN_F32, 1, 2, all, 70);
            for (b = 0; b < ENTRIES; b++)
                for (h = 0; h < 2; h++)
                    for (r = 0; r < rows[b]; r++)
                        memcpy(element_in(&fresh, 0, h, start[b] + r), element_in(&x[b], 0, h, held[b] + r), 70 * 4);
            d.query_starts = starts_of(start), d.query_lengths = starts_of(rows);
            if (paged) d.page_table = at[paged].table;
            else d.key_starts = starts_of(at[paged].k0);
            if (step % 2) d.k_scale = scales;
            else d.v_scale = scales;
            CALL(attn_append, fresh, writable(cache), lengths, &d);
            for (b = 0; b < ENTRIES; b++) held[b] += rows[b];
        }
        compare(&at[paged], SIDE_K, whole, writable(cache), "the cache");
        if (scales.rank) compare(&at[paged], SIDE_K, scale, writable(scales), "the scales of a cache");
    }
    return hash;
}
/* Tables of all kinds, and what they turn. */
static uint64_t rotary(uint64_t hash, const way *w) {
    int kind, type, flags;
    for (kind = 0; kind < ATTN_ROPE_SCALING_COUNT; kind++) {
        attn_rope_desc d;
        int64_t size[4] = {60, 24, 0, 0};
        attn_view table[2], none, x = floats(PLAIN, 4, 2, 3, 40, 50);
        memset(&none, 0, sizeof none);
        table[0] = dense(ATTN_F32, 2, size), table[1] = dense(ATTN_F32, 2, size);
        memset(&d, 0, sizeof d);
        d.scaling = kind;
        d.base = kind % 2 ? 500000 : 0;
        d.factor = kind ? 8 : 0;
        d.original_positions = kind >= ATTN_ROPE_YARN ? 8192 : 0;
        d.first_position = kind * 100003;
        CALL(attn_rope_table, writable(table[0]), writable(table[1]), &d);
        hash = hash_view(hash_view(hash, &table[0]), &table[1]);
        for (type = 0; type < 3; type++)
            for (flags = 0; flags < 4; flags++) {
                static const int types[] = {ATTN_F32, ATTN_F16, ATTN_BF16};
                attn_view from = as(types[type], &x), to = shape4(types[(type + flags) % 3], 2, 3, 40, 50);
                from = lay_out(&from, w->layout, 0), to = lay_out(&to, w->layout, 1);
                CALL(attn_rope, from, table[0], table[1], none, (uint32_t)flags, writable(to));
                hash = hash_view(hash, &to);
            }
    }
    free_blocks();
    return hash;
}
/* A mask that leaves out whole chunks, which are not computed, and a bias of -inf there: the same bits. */
static uint64_t left_out(uint64_t hash, const way *w) {
    enum { ROWS = 70, KEYS = 900 };
    attn_desc d;
    attn_view out[2], bias = floats(PLAIN, 2, ROWS, KEYS, 0, 0), mask;
    int64_t size[4] = {ROWS, KEYS, 0, 0}, i, j;
    int way_of;
    storage.type = storage.stored = ATTN_F32;
    mask = dense(ATTN_U8, 2, size);
    memset(&d, 0, sizeof d);
    d.q = floats(PLAIN, 4, 1, 2, ROWS, 24), d.k = floats(PLAIN, 4, 1, 1, KEYS, 24),
    d.v = floats(PLAIN, 4, 1, 1, KEYS, 40);
    for (i = 0; i < ROWS; i++)
        for (j = 0; j < KEYS; j++) {
            int in = i / 17 == j / 256 || (i == 3 && j == 899) || (i > 60 && j % 2 == 0);
            uint32_t bits = in ? 0 : 0xFF800000u;
            *at(&mask, (size_t)(i * KEYS + j)) = (unsigned char)in;
            memcpy(at(&bias, (size_t)(i * KEYS + j)), &bits, 4);
        }
    d.isa = w->isa;
    d.parallel.workers = w->workers;
    for (way_of = 0; way_of < 2; way_of++) {
        attn_view none;
        memset(&none, 0, sizeof none);
        d.mask = way_of ? none : mask, d.bias = way_of ? bias : none;
        out[way_of] = shape4(ATTN_F32, 1, 2, ROWS, 40);
        d.out = writable(out[way_of]);
        run(&d, w);
    }
    if (memcmp(out[0].data, out[1].data, count(&out[0]) * 4)) stop("a mask and a bias of -inf differ", NULL);
    hash = hash_view(hash, &out[0]);
    free_blocks();
    return hash;
}
static void run_sequences(const way *given, int is_mixed, int show, uint64_t total[2]) {
    static const int types[] = {ATTN_F16, ATTN_BF16, ATTN_I8, ATTN_I8, ATTN_F32};
    int n;
    for (n = 0; n < BATCHES + 7; n++) {
        way w = is_mixed ? mixed(given, n) : *given;
        uint64_t hash[2] = {0, 0};
        current = n;
        state = 0x5E9u + (uint64_t)n;
        if (n < BATCHES) sequences(n, &w, hash);
        else if (n < BATCHES + 5) hash[0] = growing(0, types[n - BATCHES], n % 2, &w);
        else hash[0] = n == BATCHES + 5 ? rotary(0, &w) : left_out(0, &w);
        free_blocks();
        add_call(&total[0], hash[0], show);
        add_call(&total[1], hash[1], show);
    }
}

/* ---- a bias by index: out and d_bias of its table, the same bits with the indices of each pair as with those by
   distance, i32 or i64, and out those of a bias that holds what they stand for */
static void index_pairs(const attn_desc *d, const attn_view *distances, attn_view *index, attn_view *bias) {
    const int64_t sq = d->q.size[2], sk = d->k.size[2], heads = d->q.size[1], n = d->bias.size[1];
    int64_t h, i, j;
    for (i = 0; i < sq; i++)
        for (j = 0; j < sk; j++) {
            int32_t x;
            int64_t wide;
            memcpy(&x, at(distances, (size_t)(sq - 1 + j - i)), 4);
            wide = x;
            memcpy(at(index, (size_t)(i * sk + j)), &wide, 8);
            for (h = 0; h < heads; h++) {
                unsigned char *to = at(bias, (size_t)((h * sq + i) * sk + j));
                if (x < 0) memset(to, 0, 4);
                else memcpy(to, at(&d->bias, (size_t)((d->bias.size[0] == 1 ? 0 : h) * n + x)), 4);
            }
        }
}
static void indexed(int n, const way *w, uint64_t hash[2]) {
    static const int64_t rows[] = {1, 7, 64, 130, 300}, keys[] = {300, 33, 70, 257, 150};
    const int64_t b = 1 + n % 2, heads = 2 + 2 * (n % 3), kv = n % 4 ? heads : 2, sq = rows[n % 5], sk = keys[n % 5];
    const int64_t size = between(1, 40), d_k = 8 * between(1, 8);
    attn_view distances = integers(0, 1, sq + sk - 1, 0, -1, size - 1), pairs = integers(1, 2, sq, sk, 0, 0);
    attn_view bias = floats(PLAIN, 3, heads, sq, sk, 0), shape = floats(PLAIN, 4, b, heads, sq, d_k);
    attn_desc d;
    attn_grad g;
    int form;
    memset(&d, 0, sizeof d), memset(&g, 0, sizeof g);
    d.q = floats(PLAIN, 4, b, heads, sq, d_k), d.k = floats(PLAIN, 4, b, kv, sk, d_k);
    d.v = floats(PLAIN, 4, b, kv, sk, d_k), d.bias = floats(PLAIN, 2, n % 5 ? heads : 1, size, 0, 0);
    d.causal = n % 3 == 0, d.align = ATTN_ALIGN_BOTTOM_RIGHT;
    index_pairs(&d, &distances, &pairs, &bias);
    g.d_out = floats(PLAIN, 4, b, heads, sq, d_k);
    for (form = 0; form < 3; form++) {
        attn_desc one = d;
        attn_grad of = g;
        attn_view out = lay_out(&shape, w->layout, 1), d_bias = floats(PLAIN, 2, d.bias.size[0], size, 0, 0);
        uint64_t so_far[2] = {1, 2};
        one.out = writable(out), of.d_bias = writable(d_bias);
        of.dq = writable(floats(PLAIN, 4, b, heads, sq, d_k));
        one.bias = placed(d.bias, w);
        if (form == 0)
            one.bias_index =
                attn_view_i32((const int32_t *)(const void *)at(&distances, (size_t)(sq - 1)), 2, sq, sk, 0, 0),
            one.bias_index.stride[0] = -1, one.bias_index.stride[1] = 1;
        else if (form == 1) one.bias_index = placed(pairs, w);
        else one.bias = bias, of.d_out.rank = 0;
        run_both(&one, &of, w);
        so_far[0] = hash_view(so_far[0], &out);
        if (form < 2) so_far[1] = hash_view(so_far[1], &d_bias);
        if (form && (hash[0] != so_far[0] || (form < 2 && hash[1] != so_far[1]))) stop("a bias by index differs", NULL);
        if (!form) hash[0] = so_far[0], hash[1] = so_far[1];
    }
}
/* ---- sums by key: of all queries, and of the last ones; with and without stats; keys as floats, and as codes */
static void summed(int n, const way *w, uint64_t hash[2]) {
    static const int64_t rows[] = {1, 7, 64, 130, 300}, keys[] = {300, 33, 70, 257, 150};
    const int64_t b = 1 + n % 2, heads = 2 + 2 * (n % 3), kv = n % 4 ? heads : 2, sq = rows[n % 5], sk = keys[n % 5];
    const int64_t d_k = 8 * between(1, 8);
    attn_view shape = floats(PLAIN, 3, b, heads, sk, 0);
    attn_desc d;
    int form;
    memset(&d, 0, sizeof d);
    d.q = floats(PLAIN, 4, b, heads, sq, d_k), d.k = floats(PLAIN, 4, b, kv, sk, d_k);
    if (n % 3 == 1) d.k = coded(&d.k, &d.k_scale);
    d.stats = writable(floats(PLAIN, 4, b, heads, sq, 2));
    d.causal = n % 2, d.align = ATTN_ALIGN_BOTTOM_RIGHT;
    if (n % 5 == 2) d.softcap = 4;
    CALL(attn_forward, &d);
    for (form = 0; form < 4; form++) {
        attn_desc one = d;
        attn_grad g;
        attn_view sums = lay_out(&shape, w->layout, 1);
        memset(&g, 0, sizeof g);
        if (form & 1) memset(&one.stats, 0, sizeof one.stats);
        if (form & 2) g.last_queries = 1 + sq / 3;
        g.key_sums = writable(sums);
        one.isa = w->isa, one.parallel.workers = w->workers;
        run_backward(&one, &g, w);
        hash[form / 2] = hash_view(form & 1 ? hash[form / 2] + 1 : 3, &sums);
    }
}

static void run_small(void (*kind)(int n, const way *w, uint64_t hash[2]), const way *given, int is_mixed, int show,
                      uint64_t total[2]) {
    int n;
    for (n = 0; n < 20; n++) {
        way w = is_mixed ? mixed(given, n) : *given;
        uint64_t hash[2] = {0, 0};
        current = n;
        state = 0x1DE8u + (uint64_t)n;
        kind(n, &w, hash);
        free_blocks();
        add_call(&total[0], hash[0], show);
        add_call(&total[1], hash[1], show);
    }
}

/* total[0]: of the results, total[1]: of the gradients */
static void run_set(const way *w, int is_mixed, int show, uint64_t total[2]) {
    int n, pieces = storage.type == ATTN_F32 ? PIECES : PIECES + 1;
    total[0] = total[1] = 0xCBF29CE484222325u;
    if (is_sequences) {
        run_sequences(w, is_mixed, show, total);
        return;
    }
    if (is_index || is_sums) {
        run_small(is_index ? indexed : summed, w, is_mixed, show, total);
        return;
    }
    for (n = 0; n < ATTENTIONS + pieces; n++) {
        way one = is_mixed ? mixed(w, n) : *w;
        current = n;
        add_call(&total[0],
                 n < ATTENTIONS ? attention(n, &one) : run_piece(plain_pieces[n - ATTENTIONS], n - ATTENTIONS, &one),
                 show);
    }
    for (n = 0; n < ATTENTIONS + GRADIENT_PIECES; n++) {
        way one = is_mixed ? mixed(w, n) : *w;
        current = GRAD_CALL + n;
        add_call(&total[1],
                 n < ATTENTIONS ? attention_gradients(n, &one)
                                : run_piece(gradient_pieces[n - ATTENTIONS], n - ATTENTIONS + PIECES, &one),
                 show);
    }
    for (n = 0; n < FEATURE_COUNT; n++)
        if (!seen[n]) stop(feature_names[n], NULL); /* the set lacks it */
}
static void report(const way *w, int is_mixed, int show) {
    uint64_t total[2];
    int i;
    run_set(w, is_mixed, show, total);
    for (i = 0; i < 2; i++)
        printf("0x%08lx%08lx ", (unsigned long)(total[i] >> 32), (unsigned long)(total[i] & 0xFFFFFFFFu));
    if (is_sequences) printf("sequences ");
    else if (is_index) printf("index ");
    else if (is_sums) printf("sums ");
    else if (is_amx) printf(storage.type == ATTN_I8 ? "amx-i8 " : "amx ");
    else if (storage.type != ATTN_F32) printf("%s ", type_name());
    printf("%s", attn_isa_string(w->isa));
    if (is_mixed) printf(" mixed");
    else printf(" %d workers, %s, %s", w->workers, cut_names[w->cut], layout_names[w->layout]);
    if (w->apart) printf(", results apart");
    if (w->float_control) printf(", float control %d", w->float_control);
    printf("\n");
}
static void every(way w, int show) {
    static const int workers[] = {1, 2, 3, 8};
    int i;
    for (i = 0; i < 4; i++)
        for (w.cut = 0; w.cut < CUT_COUNT; w.cut++)
            for (w.layout = 0; w.layout < LAYOUT_COUNT; w.layout++) {
                w.workers = workers[i];
                if (w.cut != CUT_KEYS || w.layout == i % LAYOUT_COUNT) report(&w, 0, show);
            }
    w.workers = 1, w.cut = CUT_WHOLE, w.layout = LAYOUT_PACKED, w.apart = 1;
    report(&w, 0, show);
    w.apart = 0;
#ifdef HAVE_CONTROL
    for (w.float_control = 1; w.float_control < FLOAT_CONTROLS; w.float_control++) report(&w, 1, show);
#endif
}
static int find(const char *name, const char *const *names, int n) {
    int i;
    for (i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0) return i;
    stop("unknown word:", NULL);
    return 0;
}

int main(int argc, char **argv) {
    way w;
    int i, is_mixed = 0, is_every = 0, show = 0;
    float x = 0;
    memset(&w, 0, sizeof w);
    w.isa = attn_best_isa();
    w.workers = 1;
    for (i = 1; i < argc; i++) {
        const char *option = argv[i], *word = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(option, "--mixed")) is_mixed = 1;
        else if (!strcmp(option, "--every")) is_every = 1;
        else if (!strcmp(option, "--apart")) w.apart = 1;
        else if (!strcmp(option, "--cases")) show = 1;
        else if (!strcmp(option, "--dump")) dumped = atoi(word), i++;
        else if (!strcmp(option, "--workers")) w.workers = atoi(word), i++;
        else if (!strcmp(option, "--cut")) w.cut = find(word, cut_names, CUT_COUNT), i++;
        else if (!strcmp(option, "--type")) choose_type(word), i++;
        else if (!strcmp(option, "--layout")) w.layout = find(word, layout_names, LAYOUT_COUNT), i++;
        else if (!strcmp(option, "--float-control")) w.float_control = atoi(word) % FLOAT_CONTROLS, i++;
        else if (!strcmp(option, "--isa")) {
            int isa = ATTN_ISA_SCALAR;
            while (isa < ATTN_ISA_COUNT && strcmp(attn_isa_string((attn_isa)isa), word)) isa++;
            w.isa = (attn_isa)isa;
            i++;
        } else stop(option, NULL);
    }
    if (attn_elementary(ATTN_EXP, &x, &x, 1, w.isa) != ATTN_OK || (is_amx && attn_enable_amx(NULL) != ATTN_OK)) {
        printf("this build or CPU has no such instruction set\n");
        return 3;
    }
    if (is_every) every(w, show);
    else report(&w, is_mixed, show);
    return 0;
}
