/* attn.h - v0.2.0 - attention for C in one header - MIT or Unlicense, at your choice (end of file)
   SPDX-License-Identifier: MIT OR Unlicense

   A complete program (cc -O2 demo.c -lm):

       #define ATTN_IMPLEMENTATION
       #include "attn.h"
       #include <stdio.h>
       int main(void) {
           float q[2*3] = {1,0,0, 0,1,0}, k[4*3] = {9,0,0, 0,9,0, 0,0,9, 1,1,1}, v[4*1] = {1,2,3,4}, out[2*1];
           attn_desc d = {0};                             // C++: attn_desc d = {};
           d.q   = attn_view_bhsd(q, 1, 1, 2, 3);         // 1 batch, 1 head, 2 queries of 3 numbers
           d.k   = attn_view_bhsd(k, 1, 1, 4, 3);         // 4 keys
           d.v   = attn_view_bhsd(v, 1, 1, 4, 1);         // 4 values of 1 number
           d.out = attn_out_bhsd(out, 1, 1, 2, 1);
           if (attn_forward(&d, NULL) == ATTN_OK) printf("%g %g\n", out[0], out[1]);
           return 0;
       }

   In ONE C or C++ file of a program #define ATTN_IMPLEMENTATION before the #include; the others just #include it.

   DOES      every attention of the textbook: scaled dot product, dot, cosine, bilinear, additive (Bahdanau), Gaussian
             and the other kernels of attention pooling; masks, valid lengths, causal, windows, softcap, sinks, ALiBi,
             bias, dropout; grouped heads; any sizes, any strides; the output, the log-sum-exp, the weights and every
             result on the way; masked softmax, batched matrix products, multi-head attention with its projections;
             the gradients of all these, for every input and parameter; heatmaps for a terminal, as SVG, as PPM. Every
             option composes with every other one.
   DOES NOT  f16/bf16/f64 storage on the CPU, RoPE, a KV cache, ragged batches (all of them to come; a type that is not
             there yet is refused with a status); start threads, print, abort, exit, keep global state.
   GPU       with attn_cuda.cuh beside it and ATTN_CUDA defined the same functions take arrays of an NVIDIA GPU, f16 and
             bf16 too: see there.

   CONTENTS  search for ">>" and a name
       >>api        everything public: types, descriptor, functions. It is the manual.
       >>config     what can be set before the include       >>validate        descriptors, field by field
       >>platform   compilers, instruction sets              >>driver          tiles, masks, chunks, heads, merging
       >>math       exp, log, tanh, fused multiply-add       >>public          the functions of the API
       >>kernels-scalar  the specification                   >>backward        gradients
       >>kernels-vector  the same bits, for every width      >>heatmap         pictures
       >>dispatch   which kernels run                        >>tail            clean-up, licences

   SHAPES    Letters used throughout:  B batch, H heads, Hkv key/value heads (H % Hkv == 0; query head h reads key head
             h / (H/Hkv)), Sq queries, Sk keys, D size of a query and of a key, Dv size of a value, h hidden width.
             q [B,H,Sq,D]  k [B,Hkv,Sk,D]  v [B,Hkv,Sk,Dv]  out [B,H,Sq,Dv]  lse [B,H,Sq]  weights [B,H,Sq,Sk].
             Bilinear and additive scores take q and k of different sizes, Dq and Dk. Any size is legal, 0 too: Sk = 0
             gives empty rows, D = 0 the score 0. Sizes and strides count ELEMENTS (bytes only where a name says so) and
             are 64 bits wide. Input strides may be 0 or negative. Every element of a requested result is written.

   ORDER     score (with its scale) -> softcap c*tanh(s/c) -> + bias, + ALiBi -> masks -> softmax (with sink)
             -> dropout -> times V. Each result on the way can be had; asking for one, or leaving one out, changes no
             bit of the others.

   MASKS     exclude; they never add a large negative number. A score of -inf has weight 0 wherever it came from; -1e9
             is data. An excluded key has no influence, whatever it holds (NaN, Inf, garbage). Where the exclusion is
             structural (key_lengths, causal, window) the key is never read: it may lie on an unmapped page.
             A row with no key left gives out 0, weights 0, lse -inf (see `empty`); with a finite sink its lse is the
             sink, and `empty` does not apply.
             NaN and Inf in allowed places stay in their row (of q), their rows (that attend to a key), their column
             (of V, also where the weight underflows or is dropped). A row with a score of +inf is NaN, as IEEE has it.
             A NaN in a result is always the one with the bits 0x7fc00000.

   NUMERICS  f32 storage, f32 accumulation by fused multiply-adds; exp, log and tanh within 2 ulp over every float; a
             weight below 2^-126 is 0. The error of out and weights against exact arithmetic is bounded per score in
             ATTN_SCORE_LIST below; that of a gradient by 1e-6 (of a parameter 3e-6) times the sum of the absolute terms
             it is made of, each times 1 + S (S: see there). The tests enforce both.

   SAME BITS The bits of an output row depend only on that row's query, on the keys and values it may attend to and on
             the options. Not on: instruction set, number of threads, order of tasks, batch size, the other queries in
             the call, prefill or decode, strides, compiler, optimisation level, -std, -ffast-math or -march=native, nor
             on the caller's rounding mode and flush-to-zero flags (they are set and restored by every call).
             Outside the promise: attn_merge of parts cut by hand; rows under ATTN_EMPTY_UNIFORM; machines without
             IEEE floats, with FLT_EVAL_METHOD other than 0 (x87) or whose rounding mode cannot be set from here (it is
             on x86 with SSE and on AArch64); ATTN_NO_EXACT_FMA on machines without fused multiply-add.

   MEMORY    attn_workspace_size tells what a call needs; pass that much in desc.workspace (any alignment) and nothing
             is allocated. Without it at most one block is taken, from desc.allocator or else from malloc. It is linear
             in Sq + Sk, never Sq*Sk, and depends on sizes, options and workers alone (lengths count as Sk). A
             workspace serves one call at a time; calls one after the other may share it. It must not overlap an array
             of the call (not checked). Stack: at most 16 KB per task (compiled with optimisation).

   THREADS   The library starts none. With desc.parallel it hands out independent tasks; without, the calling thread
             does them all. attn_plan_forward and attn_task let the caller spread the tasks as they like. All functions
             are reentrant: there is no mutable global, no init call.

   ERRORS    Every call returns a status, and fills *err (may be NULL) with the field, the rule and the two numbers. On
             error no output byte has been written. Checks are always on. A parameter of another score (sigma with DOT,
             positions without ATTN_ALIGN_POSITIONS, ...) is an error; numbers whose flag is 0 are not looked at. An
             output must not overlap an input or another output; views that interleave, as the slots of a packed array
             do, are told apart.

   BINDINGS  cc -O2 -shared -fPIC -x c -DATTN_IMPLEMENTATION attn.h -o libattn.so -lm  makes a library. Enums are passed
             as int. Structures may grow at their end: a binding must find attn_version()/100 as it was written for.

   MACROS    define before the include; "impl" = in the file with ATTN_IMPLEMENTATION, "all" = the same in every file
       ATTN_IMPLEMENTATION    impl  compile the implementation here
       ATTN_STATIC            all   all functions static, a private copy: together with ATTN_IMPLEMENTATION in each file
       ATTN_DEF               all   your own linkage, for example __declspec(dllexport)
       ATTN_ASSERT(x)         impl  internal invariants; default assert; none on user input
       ATTN_MALLOC(n), ATTN_FREE(p)    impl  both or neither; default malloc, free
       ATTN_NO_LIBC           impl  call no C library (compilers may still emit memcpy, memmove, memset, memcmp). Calls
                                    without workspace and allocator then need ATTN_MALLOC and ATTN_FREE
       ATTN_NO_SIMD, ATTN_NO_AVX2, ATTN_NO_AVX512    impl  leave kernels out
       ATTN_FILE              impl  this file's name in quotes, for #include: it reads itself again for each instruction
                                    set. Only where the compiler cannot tell it (no __FILE_NAME__) and it is not attn.h
       ATTN_NO_HEATMAP        all   leave the pictures out
       ATTN_NO_BACKWARD       all   leave the gradients out
       ATTN_CUDA              impl  arrays may lie on a device; needs attn_cuda.cuh, compiled in a .cu file
       ATTN_NO_EXACT_FMA      impl  on a machine without fused multiply-add: a*b+c rounded twice (faster, other bits)
*/

/* --------------------------------------------------------------------------------------------------------- >>api */
#ifndef ATTN_H_INCLUDED
#define ATTN_H_INCLUDED

#define ATTN_VERSION_MAJOR 0
#define ATTN_VERSION_MINOR 2
#define ATTN_VERSION_PATCH 0
#define ATTN_VERSION_NUMBER (ATTN_VERSION_MAJOR*10000 + ATTN_VERSION_MINOR*100 + ATTN_VERSION_PATCH)

#include <stddef.h>
#include <stdint.h>

#ifndef ATTN_DEF
#  if defined(ATTN_STATIC) && defined(__GNUC__)
#    define ATTN_DEF static __attribute__((unused))
#  elif defined(ATTN_STATIC)
#    define ATTN_DEF static
#  else
#    define ATTN_DEF extern
#  endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status */
#define ATTN_STATUS_LIST(X) \
    X(OK,            "ok") \
    X(ERR_NULL,      "something required is absent") \
    X(ERR_TYPE,      "an element type that this field does not take, or not yet") \
    X(ERR_RANK,      "a view with the wrong number of axes") \
    X(ERR_SIZE,      "a size that does not agree with another one") \
    X(ERR_STRIDE,    "strides that make an output overlap itself") \
    X(ERR_RANGE,     "a number out of its range") \
    X(ERR_OPTION,    "an unknown option, or options that contradict each other") \
    X(ERR_OVERFLOW,  "a size or an extent in bytes that does not fit in 64 bits or in memory") \
    X(ERR_OVERLAP,   "an output that overlaps an input or another output") \
    X(ERR_WORKSPACE, "a workspace smaller than attn_workspace_size says") \
    X(ERR_ALLOC,     "no memory") \
    X(ERR_ISA,       "an instruction set that this build or this CPU does not have") \
    X(ERR_WRITE,     "the writer reported a failure") \
    X(ERR_PLACE,     "arrays on the host and on a device in one call, or a call that a device does not take") \
    X(ERR_CUDA,      "the CUDA runtime reported an error: it is in attn_error")

typedef enum attn_status {
#define ATTN_X(name, text) ATTN_##name,
    ATTN_STATUS_LIST(ATTN_X)
#undef ATTN_X
    ATTN_STATUS_COUNT
} attn_status;

/* Which field broke which rule: "k.size[3] must equal q.size[3]: 64, is 65". The strings are literals. */
typedef struct attn_error {
    int32_t     status;         /* attn_status */
    const char *field;          /* "k.size[3]"; "" on success */
    const char *rule;           /* "must equal q.size[3]"; "" on success */
    int64_t     got, want;      /* the offending number and the one it was held against, where there are two */
    int32_t     has_numbers;    /* nonzero: got and want mean something */
    int32_t     cuda;           /* the cudaError_t of ATTN_ERR_CUDA, else 0 */
} attn_error;

/* ---- views: where data lies and how big it is. Data, sizes and strides, nothing else; cheap to copy.
   The constructors below make row-major views; any field may be changed afterwards: a reversed sequence is `data` at
   its last element and a negative stride, a broadcast axis has stride 0. An all-zero view (rank 0) means absent. */
typedef enum attn_type {
    ATTN_F32 = 0, ATTN_F16, ATTN_BF16, ATTN_F64,    /* f32; where arrays lie on a device, f16 and bf16 too */
    ATTN_U8,                                        /* masks: nonzero = may attend */
    ATTN_I32, ATTN_I64,                             /* lengths and positions */
    ATTN_TYPE_COUNT
} attn_type;

typedef struct attn_view {      /* input */
    const void *data;           /* first element (index 0 on every axis), aligned as its type asks; may be NULL when
                                   some size is 0 */
    int64_t     size[4];        /* elements per axis; only the first `rank` count */
    int64_t     stride[4];      /* elements between neighbours on an axis */
    int32_t     type, rank;     /* attn_type; 0 = absent, else 1..4 */
} attn_view;

typedef struct attn_out {       /* output; the same, writable */
    void   *data;
    int64_t size[4], stride[4];
    int32_t type, rank;
} attn_out;

/* Row-major view of rank 1..4; sizes beyond the rank are ignored (pass 0). */
ATTN_DEF attn_view attn_view_f32(const float   *data, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3);
ATTN_DEF attn_view attn_view_u8 (const uint8_t *data, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3);
ATTN_DEF attn_view attn_view_i32(const int32_t *data, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3);
ATTN_DEF attn_view attn_view_i64(const int64_t *data, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3);
ATTN_DEF attn_out  attn_out_f32 (float         *data, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3);
ATTN_DEF attn_out  attn_out_u8  (uint8_t       *data, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3);
/* [B,H,S,D], stored in that order (PyTorch's SDPA), or stored [B,S,H,D] (one token's heads together); no heads: h = 1.
   For weights and scores d is Sk.
   Either way the view's axes are B, H, S, D. A cache with room for N keys: a view of N, then size[2] = keys in use. */
ATTN_DEF attn_view attn_view_bhsd(const float *data, int64_t b, int64_t h, int64_t s, int64_t d);
ATTN_DEF attn_view attn_view_bshd(const float *data, int64_t b, int64_t s, int64_t h, int64_t d);
ATTN_DEF attn_out  attn_out_bhsd (float *data, int64_t b, int64_t h, int64_t s, int64_t d);
ATTN_DEF attn_out  attn_out_bshd (float *data, int64_t b, int64_t s, int64_t h, int64_t d);
/* q (which 0), k (1) or v (2) inside one packed array [B,S,3,H,D], seen as [B,H,S,D]. This and the functions below make
   of what is not there (which 3, axis 4, a range beyond the end) a view that every call refuses. */
ATTN_DEF attn_view attn_view_qkv(const float *data, int which, int64_t b, int64_t s, int64_t h, int64_t d);
/* Heads side by side inside rows of `row` floats, one row a token: a part of a packed [B,S,row] array (grouped q, k, v;
   a slot for the output), data at the part's first float; seen as [B,H,S,D]. */
ATTN_DEF attn_view attn_view_rows(const float *data, int64_t b, int64_t s, int64_t h, int64_t d, int64_t row);
ATTN_DEF attn_out  attn_out_rows (float *data, int64_t b, int64_t s, int64_t h, int64_t d, int64_t row);
/* `count` indices from `first` on along one axis, no copy: a micro-batch, some heads, a prefix of a cache. */
ATTN_DEF attn_view attn_view_slice(attn_view v, int axis, int64_t first, int64_t count);
ATTN_DEF attn_out  attn_out_slice (attn_out o, int axis, int64_t first, int64_t count);
/* The same data with two axes exchanged, no copy: attn_bmm of a transposed operand, a [S,B,..] array, ... */
ATTN_DEF attn_view attn_view_swap(attn_view v, int axis_a, int axis_b);
/* What an output holds, as an input of the next call. */
ATTN_DEF attn_view attn_view_of(attn_out o);

/* ---- choices. 0 is always the default. */

/* X(name, text, bound). The bound is on |out - exact| of one row, in units of V*(1 + S): V the largest |v| the row may
   attend to, S the largest sum of the absolute terms of a score that matters (for dot sum |q_c k_c| |scale|; for the
   distance kernels |score|; for additive sum |w_v|*(|a|+|b|)+|w_v|; plus |bias| and |ALiBi|). With V = 1 it holds for
   weights; with dropout V is scaled by 1/(1-p). Nothing may overflow: Sk * V,
   scale*q, q.k, |q-k|^2 below 3e38 (cosine: |k|). Next to the edge
   of EPANECHNIKOV and TRIANGULAR the bound is one on exp(score): the logarithm itself is ill-conditioned there. */
#define ATTN_SCORE_LIST(X) \
    X(SCALED_DOT,   "scaled dot product", 4e-6) /* scale * q.k, scale 1/sqrt(D) unless given (Vaswani et al. 2017) */ \
    X(DOT,          "dot product",        4e-6) /* scale * q.k (Luong et al. 2015) */ \
    X(COSINE,       "cosine",             4e-6) /* scale * q.k / (|q| |k|); 0 where q or k is the zero vector */ \
    X(BILINEAR,     "bilinear",           4e-6) /* scale * q M k (Luong "general") */ \
    X(ADDITIVE,     "additive",           4e-6) /* scale * w_v . tanh(W_q q + W_k k + b) (Bahdanau et al. 2014) */ \
    X(GAUSSIAN,     "gaussian",           4e-6) /* -u^2/2, u = |q-k|/sigma; the weight is exp of it */ \
    X(BOXCAR,       "boxcar",             4e-6) /* weight [u <= 1]; the score is its logarithm: 0 or -inf */ \
    X(EPANECHNIKOV, "epanechnikov",       4e-6) /* weight max(0, 1 - u^2); score its logarithm */ \
    X(TRIANGULAR,   "triangular",         4e-6) /* weight max(0, 1 - u); d2l calls this one Epanechnikov */ \
    X(CONSTANT,     "constant",           4e-6) /* weight 1, score 0: average pooling; only the sizes of q, k count */ \
    X(GIVEN,        "given",              4e-6) /* scale * given_scores[b,h,i,j]: no q, no k; the masked softmax     */

typedef enum attn_score {
#define ATTN_X(name, text, bound) ATTN_SCORE_##name,
    ATTN_SCORE_LIST(ATTN_X)
#undef ATTN_X
    ATTN_SCORE_COUNT
} attn_score;

typedef enum attn_align {       /* p[b,i], the position of query i among the keys; causal, window and ALiBi use it */
    ATTN_ALIGN_TOP_LEFT = 0,    /* p = i */
    ATTN_ALIGN_BOTTOM_RIGHT,    /* p = i + len_k - len_q: the last query sits at the last key (decode, chunked prefill).
                                   len_k: key_lengths (per query where so given), else Sk; len_q: query_lengths,
                                   else Sq */
    ATTN_ALIGN_POSITIONS,       /* p = positions[b] + i, or positions[b,i]; may be negative or beyond Sk */
    ATTN_ALIGN_COUNT
} attn_align;

typedef enum attn_empty {       /* a row without an allowed key, or without mass; rows beyond query_lengths too */
    ATTN_EMPTY_ZERO = 0,        /* out 0, weights 0 */
    ATTN_EMPTY_NAN,             /* out NaN, weights NaN */
    ATTN_EMPTY_UNIFORM,         /* weights 1/Sk over ALL keys, whose values are read; what a mask of -1e6 gives */
    ATTN_EMPTY_COUNT
} attn_empty;                   /* lse is -inf under all three; none applies where a finite sink gives the row mass */

#define ATTN_ISA_LIST(X) X(AUTO, "auto") X(SCALAR, "scalar") X(AVX2, "avx2") X(AVX512, "avx512")
typedef enum attn_isa {         /* instruction sets; all compute the same bits */
#define ATTN_X(name, text) ATTN_ISA_##name,
    ATTN_ISA_LIST(ATTN_X)
#undef ATTN_X
    ATTN_ISA_COUNT
} attn_isa;

/* ---- hooks */

/* Memory for calls without a workspace. Both functions or none (then ATTN_MALLOC/ATTN_FREE). */
typedef struct attn_allocator {
    void *(*allocate)(void *user, size_t bytes);      /* NULL = no memory */
    void  (*release)(void *user, void *block);
    void   *user;
} attn_allocator;

/* A piece of work: call it once for every index 0..count-1, in any order, on any threads, then return when all are
   done. `worker` tells concurrent calls apart: two tasks that run at the same time must get different numbers, each
   below `workers`; a thread's index in its pool. Tasks never wait for each other and never block. */
typedef void (*attn_task_fn)(void *arg, int64_t index, int32_t worker);
typedef struct attn_parallel {
    void  (*run)(void *user, int64_t count, attn_task_fn task, void *arg);    /* full barrier; NULL: calling thread */
    void   *user;
    int32_t workers;            /* how many tasks can run at the same time; 0 = 1, also where `run` is given: a `worker`
                                   beyond it writes outside the workspace. Memory is per worker */
} attn_parallel;

/* ---- the descriptor: one attention. Zero it, set what you need. Zero means default, absent or off.
   Fields are appended in later versions, never moved. */
#define ATTN_UNBOUNDED (-1)     /* for window_left, window_right */

typedef struct attn_desc {
    /* what attends to what (see SHAPES) */
    attn_view q, k, v;          /* rank 4. v may be absent when out is */

    /* results; each may be absent, but not all. f32 */
    attn_out  out;              /* [B,H,Sq,Dv] */
    attn_out  lse;              /* [B,H,Sq]  log-sum-exp: the logarithm of the row's mass; -inf for an empty row */
    attn_out  weights;          /* [B,H,Sq,Sk]  after softmax, before dropout (but see weights_after_dropout) */
    attn_out  scores;           /* [B,H,Sq,Sk]  raw, scale included. All Sk keys, masks or not: reads them all */
    attn_out  scores_softcap;   /* [B,H,Sq,Sk]  after softcap. Likewise all keys */
    attn_out  scores_masked;    /* [B,H,Sq,Sk]  after bias, ALiBi and masks; an excluded entry is -inf */

    /* score */
    int32_t   score;            /* attn_score */
    int32_t   scale_set;        /* nonzero: use `scale` as it is, even 0. Zero: scale 0 means the default */
    float     scale;            /* default 1/sqrt(D) for SCALED_DOT, else 1. An error for the distance kernels */
    float     sigma;            /* width of the distance kernels, 1e-18..1e18; 0 = 1 */
    attn_view sigma_per_head;   /* [H]; instead of sigma */
    attn_view bilinear;         /* M [Dq,Dk] or per head [H,Dq,Dk]; here q and k may differ in D */
    attn_view w_q, w_k;         /* W_q [h,Dq], W_k [h,Dk], or per head [H,h,.]; absent = identity (then D = h) */
    attn_view w_v;              /* [h] or [H,h] */
    attn_view hidden_bias;      /* b [h] or [H,h]; absent = 0 */
    attn_view given_scores;     /* [B,H,Sq,Sk], for ATTN_SCORE_GIVEN; sizes are read from here, q and k stay absent */

    /* what is added to the score */
    float     softcap;          /* c > 0: s becomes c*tanh(s/c). 0 = off */
    attn_view bias;             /* f32, rank 1..4, broadcast from the right against [B,H,Sq,Sk] as numpy does */
    attn_view alibi;            /* slopes [H]: adds -slope*|p - j| (Press et al. 2021) */
    attn_view sink;             /* [H]: one more logit in the denominator. A row with a finite sink is never empty */

    /* which keys a query may attend to: all of these must allow it */
    attn_view mask;             /* u8, nonzero = may attend; rank 1..4, broadcast from the right: rank 2 is [Sq,Sk],
                                   rank 3 [H,Sq,Sk]. One per batch entry: [B,1,Sq,Sk]; padding: [B,1,1,Sk] */
    attn_view key_lengths;      /* i32/i64 [B] or per query [B,Sq]: keys j < length. 0..Sk */
    attn_view query_lengths;    /* i32/i64 [B]: queries i >= length are empty rows. 0..Sq */
    int32_t   causal;           /* nonzero: key j is allowed when j <= p */
    int32_t   align;            /* attn_align: p for causal, window and ALiBi */
    attn_view positions;        /* i32/i64 [B] (of the first query) or [B,Sq]; with ATTN_ALIGN_POSITIONS only */
    int32_t   window;           /* nonzero: the two below count */
    int32_t   empty;            /* attn_empty: rows without a key */
    int64_t   window_left;      /* p - window_left <= j <= p + window_right; >= 0 or ATTN_UNBOUNDED */
    int64_t   window_right;

    /* dropout of the weights: keep with probability 1-p, scale by 1/(1-p) */
    float     dropout;          /* p, 0..1 */
    int32_t   weights_after_dropout;    /* nonzero: `weights` are returned after dropout */
    uint64_t  seed;             /* the mask is a function of seed and the absolute (b,h,i,j), of nothing else */
    int64_t   dropout_origin[4];/* absolute (b,h,i,j) of this call's first element */

    /* how to run */
    int32_t   isa;              /* attn_isa; forced, or an error where the CPU lacks it. For tests and benchmarks */
    int32_t   reserved;         /* 0 */
    void     *workspace;        /* attn_workspace_size bytes, any alignment; NULL: one allocation */
    size_t    workspace_bytes;
    attn_allocator allocator;
    attn_parallel  parallel;

    /* one more result */
    attn_out  stats;            /* [B,H,Sq,2]  each row's maximum score and its sum of e^(score - maximum), without the
                                   sink: what attn_backward needs to have the weights again exactly. -inf and 0 for a
                                   row without mass */

    /* with ATTN_CUDA */
    void     *stream;           /* the cudaStream_t of a call whose arrays lie on a device; NULL: the default stream.
                                   isa and parallel do not count there */
} attn_desc;

/* ---- gradients, described (ATTN_NO_BACKWARD leaves them out; attn_backward below says what they are) */
#if !defined(ATTN_NO_BACKWARD) || defined(ATTN__CUDA_SEAM)
typedef enum attn_grad_bit {    /* for `accumulate`: one bit per gradient, in the order of attn_grad */
    ATTN_GRAD_Q = 1 << 0, ATTN_GRAD_K = 1 << 1, ATTN_GRAD_V = 1 << 2, ATTN_GRAD_GIVEN_SCORES = 1 << 3,
    ATTN_GRAD_BIAS = 1 << 4, ATTN_GRAD_BILINEAR = 1 << 5, ATTN_GRAD_W_Q = 1 << 6, ATTN_GRAD_W_K = 1 << 7,
    ATTN_GRAD_W_V = 1 << 8, ATTN_GRAD_HIDDEN_BIAS = 1 << 9, ATTN_GRAD_SIGMA = 1 << 10, ATTN_GRAD_SCALE = 1 << 11,
    ATTN_GRAD_SINK = 1 << 12, ATTN_GRAD_ALIBI = 1 << 13, ATTN_GRAD_ALL = (1 << 14) - 1
} attn_grad_bit;

typedef struct attn_grad {
    /* gradients of a loss with respect to the forward's results; each may be absent, but not all */
    attn_view d_out;            /* [B,H,Sq,Dv] */
    attn_view d_weights;        /* [B,H,Sq,Sk]  of the weights as they were returned (see weights_after_dropout) */
    attn_view d_lse;            /* [B,H,Sq] */

    /* results: with respect to what went in; each may be absent, but not all. Shaped like what they belong to */
    attn_out  dq, dk, dv;
    attn_out  d_given_scores;   /* [B,H,Sq,Sk], for ATTN_SCORE_GIVEN */
    attn_out  d_bias;           /* summed over the axes along which the bias was broadcast, of size 1 or missing (not
                                   where it has stride 0 on an axis of full size) */
    attn_out  d_bilinear, d_w_q, d_w_k, d_w_v, d_hidden_bias;   /* with or without the head axis, as the parameter */
    attn_out  d_sigma;          /* [1], or [H] with sigma_per_head */
    attn_out  d_scale;          /* [1]  of the scale that was used */
    attn_out  d_sink, d_alibi;  /* [H] */
    uint32_t  accumulate;       /* ATTN_GRAD_x bits: these are added to what the outputs hold, the others written */
    int32_t   reserved;         /* 0 */
} attn_grad;
#endif

/* ---- attention */

/* Computes every result that `desc` asks for. err may be NULL. Cost: 2*B*H*Sq*Sk*(D+Dv) operations less what the
   structural masks spare; additive: B*H*Sq*Sk*(h + 2*Dv) and a division per four h. */
ATTN_DEF attn_status attn_forward(const attn_desc *desc, attn_error *err);

/* Bytes of workspace that attn_forward(desc) needs; monotone in every size. Data pointers may be NULL here. 0 is
   possible. */
ATTN_DEF attn_status attn_workspace_size(const attn_desc *desc, size_t *bytes, attn_error *err);

/* The same work cut into tasks, for callers who spread them over frames or threads themselves:
       attn_plan plan;
       attn_plan_forward(&desc, &plan, &err);
       for (p = 0; p < plan.phases; p++)                          // a phase starts when the one before is done
           for (i = 0; i < plan.tasks[p]; i++)                    // in any order, on any thread
               attn_task(&plan, workspace, p, i, worker);         // worker < desc.parallel.workers (0 = 1)
   workspace: plan.workspace_bytes, any alignment, the same block for all tasks; NULL where that is 0. All checks are
   made by the plan, so a task cannot fail. The plan holds a copy of the descriptor, may be copied, and may be run any
   number of times, also by several callers with a workspace each: what q, k, v, mask and bias point to may change in
   between; lengths, positions and sigmas were checked by the plan and must not. desc.parallel.workers counts here;
   parallel.run, workspace and allocator do not. The number of tasks does not depend on the workers. */
#define ATTN_MAX_PHASES 16
typedef struct attn_plan {
    attn_desc desc;             /* resolved: defaults filled in */
    size_t    workspace_bytes;
    int32_t   phases;
    int32_t   isa;              /* attn_isa that runs */
    int64_t   tasks[ATTN_MAX_PHASES];
    int64_t   internal[32];     /* private, as all that follows */
#ifndef ATTN_NO_BACKWARD
    attn_grad grad;
    attn_view out, stats;
    int64_t   backward[32];
#endif
} attn_plan;
ATTN_DEF attn_status attn_plan_forward(const attn_desc *desc, attn_plan *plan, attn_error *err);
ATTN_DEF void attn_task(const attn_plan *plan, void *workspace, int32_t phase, int64_t index, int32_t worker);

/* ---- gradients */
#ifndef ATTN_NO_BACKWARD

/* From the forward's inputs and the gradients of its results, those of its inputs and parameters. `forward` is the
   descriptor of the forward call, as it was: its `out` is read (required where d_out is given, unless dv alone is
   wanted), its `stats` are read where present, else computed again (one product more; the same bits). Its other results
   do not count; workspace, parallel, allocator and isa do. Nothing of size Sq*Sk is kept: weights are computed again,
   block by block. Cost: 5/2 of the forward's.
   - Rows without mass give 0 everywhere, even where a gradient from above is NaN, under ATTN_EMPTY_NAN too; a finite
     sink still gets its share of d_lse. Under ATTN_EMPTY_UNIFORM they give dv.
   - Excluded pairs contribute nothing, whatever q, k, v and d_out hold; a key that no row may attend to gets exactly 0,
     and is not read where lengths, causal or window exclude it. NaN and Inf stay in their rows and columns.
   - BOXCAR and CONSTANT have gradient 0 for q, k and sigma; TRIANGULAR has 0 at distance 0, COSINE at the zero vector.
   - The same bits whatever isa, workers, tasks and strides (see SAME BITS). Sums have one fixed order: a key's over the
     queries in blocks of ATTN_GRAD_QUERIES, heads of a group one after the other; a query's over the keys in blocks
     of ATTN_GRAD_KEYS; a parameter's over batch, head, query (or key). Blocks start at multiples of their size. */
#define ATTN_GRAD_QUERIES 128
#define ATTN_GRAD_KEYS     64
ATTN_DEF attn_status attn_backward(const attn_desc *forward, const attn_grad *grad, attn_error *err);

/* Bytes of workspace that attn_backward needs. Data pointers may be NULL here. O(B*H*Sq + Sk) rows, never Sq*Sk. */
ATTN_DEF attn_status attn_backward_workspace_size(const attn_desc *forward, const attn_grad *grad, size_t *bytes,
                                                  attn_error *err);

/* As attn_plan_forward; attn_task runs it. Here the number of tasks may depend on desc.parallel.workers. */
ATTN_DEF attn_status attn_plan_backward(const attn_desc *forward, const attn_grad *grad, attn_plan *plan,
                                        attn_error *err);

/* As attn_explain. */
ATTN_DEF size_t attn_explain_backward(const attn_desc *forward, const attn_grad *grad, char *text, size_t size);

/* The masked softmax's: dx from d_out, of one shape with x; x and options as they were given to attn_softmax. Neither
   may overlap dx. Workspace: attn_softmax_backward_workspace_size. */
ATTN_DEF attn_status attn_softmax_backward(attn_view x, attn_view d_out, attn_out dx, const attn_desc *options,
                                           attn_error *err);
ATTN_DEF attn_status attn_softmax_backward_workspace_size(attn_view x, attn_view d_out, attn_out dx,
                                                          const attn_desc *options, size_t *bytes, attn_error *err);

/* The matrix product's: da = d_out b^T, db = a^T d_out, each summed over the batch axes along which a or b was
   broadcast; either may be absent (rank 0). accumulate: 1 adds to da, 2 to db. Chains of ATTN_GRAD_QUERIES. */
ATTN_DEF attn_status attn_bmm_backward(attn_view a, attn_view b, attn_view d_out, attn_out da, attn_out db,
                                       uint32_t accumulate, const attn_desc *options, attn_error *err);
ATTN_DEF attn_status attn_bmm_backward_workspace_size(attn_view a, attn_view b, attn_view d_out, attn_out da,
                                                      attn_out db, const attn_desc *options, size_t *bytes,
                                                      attn_error *err);
#endif /* ATTN_NO_BACKWARD */

/* A sentence on how the descriptor is run: score, instruction set, tiles, tasks, workspace, or why it is refused.
   Writes at most `size` bytes with the final 0 (none when size is 0; text may then be NULL), returns the length of the
   whole text. */
ATTN_DEF size_t attn_explain(const attn_desc *desc, char *text, size_t size);

/* ---- the pieces, alone. In `options` everything but q, k, v and the results counts; NULL = none. */

/* Masked softmax over the last axis: out = softmax(x), of one shape: [n], [Sq,Sk], [B,Sq,Sk] or [B,H,Sq,Sk]. `options`:
   key_lengths ([B] or [B,Sq]), mask, bias (against x's own shape), scale, causal, empty, sink, lse ([B,H,Sq]), ... out
   may be x itself (same data, same strides). Scores that a length, causal or the window excludes may still be read.
   [Sq,Sk] is one batch entry: a length per row is key_lengths [1,Sq]. dropout counts with weights_after_dropout. */
ATTN_DEF attn_status attn_softmax(attn_view x, attn_out out, const attn_desc *options, attn_error *err);
ATTN_DEF attn_status attn_softmax_workspace_size(attn_view x, attn_out out, const attn_desc *options,
                                                 size_t *bytes, attn_error *err);

/* Raw scores [B,H,Sq,Sk] of q and k under options->score, scale included; no mask. Workspace: attn_workspace_size of
   the descriptor with q, k and scores. */
ATTN_DEF attn_status attn_scores(attn_view q, attn_view k, attn_out scores, const attn_desc *options, attn_error *err);

/* The mask as data: 1 where query i may attend to key j, else 0. mask is u8 [B,H,Sq,Sk]; its sizes are the shape, no q
   and no k is needed. Counts: mask, key_lengths, query_lengths, causal, align, positions, window, bias of -inf. Like
   the next two it needs no workspace and never allocates. */
ATTN_DEF attn_status attn_mask(attn_out mask, const attn_desc *options, attn_error *err);

/* The dropout mask as data: 1 = kept. u8 [B,H,Sq,Sk]. Counts: dropout, seed, dropout_origin. Philox4x32-10 (Salmon et
   al. 2011): key = seed (low word first), counter = (j/4, i, h, b), h the query head; kept when word j%4 >= p*2^32.
   Absolute indices modulo 2^32. */
ATTN_DEF attn_status attn_dropout_mask(attn_out mask, const attn_desc *options, attn_error *err);

/* Attention over two disjoint sets of keys from the attentions over each: out = w_a out_a + w_b out_b, w_x =
   exp(lse_x - lse), lse = log(exp(lse_a) + exp(lse_b)); both empty: out 0, lse -inf. Outs [B,H,Sq,Dv], lses [B,H,Sq];
   lse may be absent (rank 0). Not in place. */
ATTN_DEF attn_status attn_merge(attn_view out_a, attn_view lse_a, attn_view out_b, attn_view lse_b,
                                attn_out out, attn_out lse, attn_error *err);

/* Batched matrix product: out[..,m,n] = sum_k a[..,m,k] b[..,k,n]; ranks 2..4, batch axes broadcast as numpy does.
   Transposed operands: attn_view_swap(a, last, last-1). An element is the sum, in order, of fused chains over 64 k
   each. `options`: isa, workspace (attn_bmm_workspace_size), allocator, parallel; may be NULL. */
ATTN_DEF attn_status attn_bmm(attn_view a, attn_view b, attn_out out, const attn_desc *options, attn_error *err);
ATTN_DEF attn_status attn_bmm_workspace_size(attn_view a, attn_view b, attn_out out, const attn_desc *options,
                                             size_t *bytes, attn_error *err);

/* Multi-head attention with its projections, y = x W^T + bias (weights stored [out,in] as PyTorch's nn.Linear does):
       q = query w_query^T, k = key w_key^T, v = value w_value^T, cut into heads, attend, concat w_result^T.
   query [B,Sq,Eq], key [B,Sk,Ek], value [B,Sk,Ev]; w_query [H*D,Eq], w_key [Hkv*D,Ek], w_value [Hkv*Dv,Ev],
   w_result [Eo,H*Dv] (absent: the heads side by side); biases [out] or absent; out [B,Sq,Eo].
   key absent = query, value absent = key. D = w_query.size[0] / heads. `attention`: everything of attn_desc but q, k, v
   and out; may be NULL; isa, parallel, allocator and workspace (attn_mha_workspace_size bytes) of the whole come from
   there too. The same bits as attn_bmm, + bias, attn_forward, attn_bmm. With a key cache: call those instead. */
typedef struct attn_mha_desc {
    attn_view query, key, value;
    attn_view w_query, w_key, w_value, w_result;
    attn_view b_query, b_key, b_value, b_result;
    attn_out  out;
    int64_t   heads;            /* H, required */
    int64_t   heads_kv;         /* Hkv; 0 = H */
    const attn_desc *attention;
} attn_mha_desc;
ATTN_DEF attn_status attn_mha(const attn_mha_desc *desc, attn_error *err);
ATTN_DEF attn_status attn_mha_workspace_size(const attn_mha_desc *desc, size_t *bytes, attn_error *err);

#ifndef ATTN_NO_BACKWARD
/* Its gradients. `desc` as it was for attn_mha (out is not read); the projections and the attention are computed again.
   Where key is absent in `desc`, dkey must be too, and its gradient is added to dquery; so value's to dkey, or where
   that stands in, to dquery. */
typedef struct attn_mha_grad {
    attn_view d_out;            /* [B,Sq,Eo] */
    attn_out  dquery, dkey, dvalue;                     /* results; each may be absent, but not all */
    attn_out  dw_query, dw_key, dw_value, dw_result;
    attn_out  db_query, db_key, db_value, db_result;
    const attn_grad *attention; /* may be NULL; else d_weights, d_lse and all results but dq, dk, dv count, with their
                                   bits of accumulate */
    uint32_t  accumulate;       /* 1 << n: the n-th result of the eleven above is added to, not written */
    int32_t   reserved;         /* 0 */
} attn_mha_grad;
ATTN_DEF attn_status attn_mha_backward(const attn_mha_desc *desc, const attn_mha_grad *grad, attn_error *err);
ATTN_DEF attn_status attn_mha_backward_workspace_size(const attn_mha_desc *desc, const attn_mha_grad *grad,
                                                      size_t *bytes, attn_error *err);
#endif

/* ---- small things */
ATTN_DEF const char *attn_status_string(attn_status status);       /* "a size that does not agree with another one" */
/* "k.size[3] must equal q.size[3]: 64, is 65" (or "ok") into text (at most size bytes with the 0; text may be NULL when
   size is 0); returns the whole length. */
ATTN_DEF size_t      attn_error_string(const attn_error *err, char *text, size_t size);
ATTN_DEF attn_isa    attn_best_isa(void);                          /* what ATTN_ISA_AUTO takes on this CPU */
ATTN_DEF const char *attn_isa_string(attn_isa isa);                /* "avx2" */
ATTN_DEF const char *attn_score_string(attn_score score);          /* "scaled dot product" */
ATTN_DEF int32_t     attn_version(void);                           /* compare with ATTN_VERSION_NUMBER */
/* The library's own elementary functions, exactly as the kernels use them (0 = exp, 1 = log, 2 = tanh): y[i] = f(x[i]).
   exp below 2^-126 is 0.
   isa as in the descriptor. x and y may be the same array. */
ATTN_DEF attn_status attn_elementary(int32_t function, const float *x, float *y, int64_t n, attn_isa isa);

/* ---- pictures (ATTN_NO_HEATMAP leaves them out) */
#ifndef ATTN_NO_HEATMAP

/* Where text goes: called with successive pieces; returns 0 to go on, anything else stops with ATTN_ERR_WRITE.
   For a FILE* (opened "wb"):  int put(void *f, const char *s, size_t n) { return fwrite(s, 1, n, (FILE *)f) != n; }  */
typedef struct attn_writer {
    int  (*write)(void *user, const char *bytes, size_t count);
    void  *user;
} attn_writer;
/* A writer into memory: attn_buffer b = {text, sizeof text, 0}; attn_buffer_writer(&b). b.length counts all bytes, also
   those that did not fit (so size 0 asks for the size); the text is cut at size-1 and ends in 0. */
typedef struct attn_buffer { char *data; size_t size, length; } attn_buffer;
ATTN_DEF attn_writer attn_buffer_writer(attn_buffer *buffer);

typedef enum attn_colormap {
    ATTN_COLORMAP_REDS = 0, ATTN_COLORMAP_VIRIDIS, ATTN_COLORMAP_GREY, ATTN_COLORMAP_COUNT
} attn_colormap;
typedef enum attn_terminal {
    ATTN_TERMINAL_TRUECOLOR = 0, ATTN_TERMINAL_256, ATTN_TERMINAL_ASCII, ATTN_TERMINAL_COUNT
} attn_terminal;

/* One heatmap or a grid of them, row 0 on top, one range of colours for all panels. Zero means default. The pictures
   need no memory. Infinities take the end colours, NaN is magenta (?? in ASCII). Values that are all equal are shown
   against 0. Labels are cut at 32 columns; invalid UTF-8 becomes U+FFFD. At most 65536 rows or columns, 32767 pixels;
   a width or height too small for the labels is an error that says the least that fits. With one of the two given cells
   stay square. A terminal line is as long as a row of panels: view panels as [n,1,rows,cols] to have them below each
   other. Tick labels stand on the outer panels only. */
typedef struct attn_heatmap {
    attn_view   values;         /* f32 or u8; [rows,cols], or [panel cols, rows, cols] (one row of panels), or
                                   [panel rows, panel cols, rows, cols], as d2l's show_heatmaps. Any strides.
                                   The weights [B,H,Sq,Sk] are B rows of H panels as they are */
    const attn_desc *mask_of;   /* instead of values' data: draw this descriptor's mask; values carries only the sizes
                                   [B,H,Sq,Sk] (rank 4, data NULL, u8) */
    const char *title;          /* above all; strings are UTF-8 and escaped as needed; NULL = none */
    const char *x_label;        /* axis titles: "Keys" */
    const char *y_label;        /* "Queries" */
    const char *const *x_ticks; /* [cols] labels of the columns; NULL = their numbers */
    const char *const *y_ticks; /* [rows] labels of the rows */
    const char *const *panel_titles;    /* [panel rows * panel cols]; NULL = none */
    int32_t     colormap;       /* attn_colormap; low is light in REDS and GREY. NaN has a colour of its own */
    int32_t     range_set;      /* nonzero: colours run from range_min to range_max; else over the finite data */
    float       range_min, range_max;
    int32_t     width, height;  /* of the whole picture in pixels (SVG, PPM); 0 = from the number of cells */
    int32_t     ticks_on_top;   /* nonzero: column labels above, not below */
    int32_t     no_colorbar;    /* nonzero: leave the colour bar out */
    int32_t     numbers;        /* nonzero: print the values in the cells (SVG; terminal with ASCII always shades) */
    int32_t     terminal;       /* attn_terminal, for attn_heatmap_ansi */
} attn_heatmap;

/* For a terminal; as a whole SVG file; as a PPM file (P6: cells and colour bar, no text). */
ATTN_DEF attn_status attn_heatmap_ansi(const attn_heatmap *map, attn_writer writer, attn_error *err);
ATTN_DEF attn_status attn_heatmap_svg (const attn_heatmap *map, attn_writer writer, attn_error *err);
ATTN_DEF attn_status attn_heatmap_ppm (const attn_heatmap *map, attn_writer writer, attn_error *err);
#endif /* ATTN_NO_HEATMAP */


/* ---- private: what attn_cuda.cuh has for the implementation below */
#if defined(ATTN_CUDA) || defined(ATTN__CUDA_SEAM)
#define ATTN__PLACE_HOST   1
#define ATTN__PLACE_DEVICE (~1)                                         /* each device has a bit */
int     attn__cuda_place(const void *data, attn_error *err);            /* bits: where it can be used; 0: an error */
int64_t attn__cuda_bytes(const attn_desc *d, const void *grad);         /* of workspace; grad: attn_grad or NULL */
attn_status attn__cuda_run(const attn_desc *d, const void *grad, void *workspace, attn_error *err);
/* as attn__sum and attn__mha_add_bias; a NULL: all ones; in_order: the chains of attn_bmm, its very bits */
attn_status attn__cuda_sum(const attn_view *a, const attn_view *b, const attn_out *out, const int64_t *batch, int adds,
                           int skip, int in_order, void *stream, attn_error *err);
attn_status attn__cuda_add(const attn_view *bias, const attn_out *y, void *stream, attn_error *err);
attn_status attn__cuda_mask(const attn_desc *d, const attn_out *mask, int dropout, attn_error *err);
attn_status attn__cuda_merge(const attn_view *v, void *stream, attn_error *err);    /* the six of attn_merge */
const char *attn__cuda_stage(const attn_desc *d, const void *grad, int n, const char **why);    /* 0: the strongest */
void   *attn__cuda_allocate(const attn_desc *d, size_t bytes);
void    attn__cuda_release(void *block, void *stream);
#endif

#ifdef __cplusplus
}
#endif
#endif /* ATTN_H_INCLUDED */

/* ==================================================================================================================
   Stop here if you only want the API. What follows is the implementation.
   ================================================================================================================== */
#if defined(ATTN_IMPLEMENTATION) && !defined(ATTN__IMPLEMENTED)
#define ATTN__IMPLEMENTED

/* ------------------------------------------------------------------------------------------------------ >>config */
#if defined(ATTN_MALLOC) != defined(ATTN_FREE)
#  error "attn.h: define both ATTN_MALLOC and ATTN_FREE, or neither"
#endif
#ifndef ATTN_NO_LIBC
#  include <string.h>
#  ifndef ATTN_MALLOC
#    include <stdlib.h>
#    define ATTN_MALLOC(bytes) malloc(bytes)
#    define ATTN_FREE(block)   free(block)
#  endif
#  ifndef ATTN_ASSERT
#    include <assert.h>
#    define ATTN_ASSERT(x) assert(x)
#  endif
#endif
#ifndef ATTN_ASSERT
#  define ATTN_ASSERT(x) ((void)0)
#endif

/* ---------------------------------------------------------------------------------------------------- >>platform */
#if defined(__GNUC__) || defined(__clang__)
#  define ATTN__GNU 1
#else
#  define ATTN__GNU 0
#endif

#if (defined(__x86_64__) || defined(_M_X64)) && !defined(_M_ARM64EC) && !defined(__arm64ec__) && !defined(__TINYC__)
#  define ATTN__X64 1
#else
#  define ATTN__X64 0
#endif

/* Vector kernels need no build flag: functions carry their target (gcc, clang), or the compiler needs none (MSVC). */
#if ATTN__X64 && !defined(ATTN_NO_SIMD)
#  include <immintrin.h>
#endif
#if defined(_MSC_VER) && ATTN__X64
#  include <intrin.h>
#  if defined(__clang__)        /* its immintrin.h leaves these out when it stands in for MSVC */
#    include <pmmintrin.h>
#    include <tmmintrin.h>
#    include <smmintrin.h>
#    include <avxintrin.h>
#    include <avx2intrin.h>
#    include <fmaintrin.h>
#    include <avx512fintrin.h>
#    include <avx512dqintrin.h>
#  endif
#endif

#if ATTN__GNU
#  define ATTN__NOINLINE        __attribute__((noinline))
#  define ATTN__INLINE          static __inline__ __attribute__((always_inline))
#  define ATTN__WITH(features)  __attribute__((target(features)))
#  define ATTN__COPY(to, from, bytes) __builtin_memcpy(to, from, bytes)
#  define ATTN__PREFETCH(p)     __builtin_prefetch(p)
#  define ATTN__PREFETCH_FAR(p) __builtin_prefetch(p, 0, 2)     /* not into the innermost cache */
#else
#  define ATTN__NOINLINE
#  define ATTN__INLINE          static __inline
#  define ATTN__WITH(features)
#  ifdef ATTN_NO_LIBC
#    define ATTN__COPY(to, from, bytes) attn__copy(to, from, bytes)
static void attn__copy(void *to, const void *from, size_t bytes)
{
    unsigned char *t = (unsigned char *)to;
    const unsigned char *f = (const unsigned char *)from;
    while (bytes--) *t++ = *f++;
}
#  else
#    define ATTN__COPY(to, from, bytes) memcpy(to, from, bytes)
#  endif
#  define ATTN__PREFETCH(p)     ((void)(p))
#  define ATTN__PREFETCH_FAR(p) ((void)(p))
#endif

/* clang under -ffast-math: what is not a plain + - * / in the code below would be open to folding; see attn__choose and
   the vector vocabularies. */
#if defined(__clang__) && (defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__))
#  define ATTN__CLANG_FAST 1
#else
#  define ATTN__CLANG_FAST 0
#endif

/* Accumulators live in small arrays; unless the loops over them are unrolled they stay in memory. */
#if defined(__clang__)
#  define ATTN__UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__) && __GNUC__ >= 8
#  define ATTN__UNROLL _Pragma("GCC unroll 24")
#else
#  define ATTN__UNROLL
#endif
#if ATTN__GNU && ATTN__X64
#  define ATTN__KEEP_POINTER(p) __asm__("" : "+r"(p))       /* from making it an index of another one */
#else
#  define ATTN__KEEP_POINTER(p) ((void)0)
#endif

/* The arithmetic below is meant as it stands: no contraction, no reassociation, NaN and signed zeros as IEEE has them,
   whatever flags the including file is compiled with. Restored in >>tail. */
#if defined(__clang__)
#  if __clang_major__ >= 12 && ATTN__X64      /* elsewhere it only warns */
#    pragma float_control(precise, on, push)
#  endif
#  pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wmaybe-uninitialized"   /* gcc 12 in its own avx512fintrin.h */
#  pragma GCC push_options
#  pragma GCC optimize("no-fast-math", "no-unsafe-math-optimizations", "no-finite-math-only", "no-associative-math", \
                       "no-reciprocal-math", "signed-zeros", "fp-contract=off")
#elif defined(_MSC_VER)
#  pragma float_control(precise, on, push)
#  pragma fp_contract(off)
#endif

/* The caller's rounding mode, flush-to-zero flags and exception masks are set aside for the length of a task.
   The work stands in functions that are not inlined, so that no arithmetic moves across. */
#if ATTN__X64
typedef uint32_t attn__fp_state;
static attn__fp_state attn__fp_enter(void)
{
    attn__fp_state saved;
    const uint32_t plain = 0x1f80u;     /* round to nearest, no flush to zero, all exceptions masked */
#  if ATTN__GNU
    __asm__ __volatile__("stmxcsr %0" : "=m"(saved));
    __asm__ __volatile__("ldmxcsr %0" : : "m"(plain) : "memory");
#  else
    saved = _mm_getcsr();
    _mm_setcsr(plain);
#  endif
    return saved;
}
static void attn__fp_leave(attn__fp_state saved)
{
#  if ATTN__GNU
    __asm__ __volatile__("ldmxcsr %0" : : "m"(saved) : "memory");
#  else
    _mm_setcsr(saved);
#  endif
}
#elif defined(__aarch64__) && ATTN__GNU
typedef uint64_t attn__fp_state;
static attn__fp_state attn__fp_enter(void)
{
    attn__fp_state saved;
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(saved));
    __asm__ __volatile__("msr fpcr, %0" : : "r"((uint64_t)0) : "memory");
    return saved;
}
static void attn__fp_leave(attn__fp_state saved) { __asm__ __volatile__("msr fpcr, %0" : : "r"(saved) : "memory"); }
#else
typedef int attn__fp_state;
static attn__fp_state attn__fp_enter(void) { return 0; }
static void attn__fp_leave(attn__fp_state saved) { (void)saved; }
#endif

/* -------------------------------------------------------------------------------------------------------- >>math
   Scalar forms of what every instruction set computes. NaN and infinity are told apart by their bits. */
static uint32_t attn__bits(float x) { uint32_t b; ATTN__COPY(&b, &x, sizeof b); return b; }
static float attn__float(uint32_t b) { float x; ATTN__COPY(&x, &b, sizeof x); return x; }
static int attn__is_nan(float x) { return (attn__bits(x) & 0x7fffffffu) > 0x7f800000u; }
static int attn__is_inf(float x) { return (attn__bits(x) & 0x7fffffffu) == 0x7f800000u; }

#define ATTN__INF      attn__float(0x7f800000u)
#define ATTN__NEG_INF  attn__float(0xff800000u)
#define ATTN__NAN      attn__float(0x7fc00000u)
#define ATTN__SMALLEST 1.17549435e-38f          /* 2^-126, the smallest normal number */

/* Choices between floats are made on their bits: under -ffast-math clang marks a float's ?: as free of NaN and
   infinity, whatever the pragmas say. */
static float attn__choose(int first, float a, float b) { return attn__float(first ? attn__bits(a) : attn__bits(b)); }
static float attn__larger(float a, float b) { return attn__choose(a > b, a, b); }       /* b where either is NaN */
static float attn__negate(float x) { return attn__float(attn__bits(x) ^ 0x80000000u); }
static int attn__is_none(float x) { return attn__bits(x) == 0xff800000u; }              /* -inf: no weight */
static float attn__quiet(float x) { return attn__choose(attn__is_nan(x), ATTN__NAN, x); }   /* one NaN everywhere */

/* a*b + c, rounded once. Without the instruction: the product is exact in double; the sum is rounded to odd there, so
   that rounding it again to float gives what one rounding would have (Boldo and Melquiond 2008). */
static float attn__fma(float a, float b, float c)
{
#if ATTN__GNU && (defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__aarch64__))
#  if ATTN__CLANG_FAST && ATTN__X64
    __asm__("vfmadd231ss %2, %1, %0" : "+x"(c) : "x"(a), "x"(b));
    return c;
#  else
    return __builtin_fmaf(a, b, c);
#  endif
#elif defined(ATTN_NO_EXACT_FMA)
    const float product = a * b;
    return product + c;
#else
    const double p = (double)a * (double)b, s = p + (double)c;
    const double t = s - p, rest = (p - (s - t)) + ((double)c - t);     /* s + rest == p + c exactly */
    uint64_t bits;
    ATTN__COPY(&bits, &s, sizeof bits);
    if ((bits & 0x7ff0000000000000u) != 0x7ff0000000000000u && rest != 0.0 && (bits & 1u) == 0) {
        double odd;
        bits = (rest > 0.0) == (s > 0.0) ? bits + 1 : bits - 1;
        ATTN__COPY(&odd, &bits, sizeof odd);
        return (float)odd;
    }
    return (float)s;
#endif
}

/* Square root, correctly rounded: Newton in double is close enough to the exact root, which for a float is never near
   the middle between two floats. */
static float attn__sqrt(float x)
{
    uint64_t bits;
    double y, d = (double)x;
    int i;
    if (attn__is_nan(x) || x < 0.0f) return ATTN__NAN;
    if (x == 0.0f || attn__is_inf(x)) return x;
    ATTN__COPY(&bits, &d, sizeof bits);
    bits = (bits >> 1) + 0x1ff8000000000000u;                   /* halves the exponent: within 7 % */
    ATTN__COPY(&y, &bits, sizeof y);
    for (i = 0; i < 4; i++) y = 0.5 * (y + d / y);
    return (float)y;
}

/* exp: x = n ln2 + r, |r| <= ln2/2; e^r by a polynomial with e^0 = 1 exactly, times 2^n.
   Adding the magic number 1.5*2^23 + 127 rounds to an integer and leaves n + 127 in the low bits. */
#define ATTN__EXP_MAGIC  12583039.0f
#define ATTN__LOG2E      1.442695022f
#define ATTN__LN2_HI     0.6931471825f
#define ATTN__LN2_LO     (-1.904654300e-09f)
#define ATTN__EXP_LOWEST (-87.33654022f)        /* below it e^x < 2^-126 */
#define ATTN__EXP_NOTHING (-88.0f)              /* the scale 2^n is 0 there */
#define ATTN__EXP_C2     4.999999404e-01f
#define ATTN__EXP_C3     1.666651964e-01f
#define ATTN__EXP_C4     4.166840017e-02f
#define ATTN__EXP_C5     8.368850686e-03f
#define ATTN__EXP_C6     1.381432055e-03f

static float attn__exp_poly(float x, float *shifted)
{
    const float t = attn__fma(x, ATTN__LOG2E, ATTN__EXP_MAGIC), n = t - ATTN__EXP_MAGIC;
    const float r = attn__fma(n, -ATTN__LN2_LO, attn__fma(n, -ATTN__LN2_HI, x));
    float p = attn__fma(ATTN__EXP_C6, r, ATTN__EXP_C5);
    p = attn__fma(p, r, ATTN__EXP_C4);
    p = attn__fma(p, r, ATTN__EXP_C3);
    p = attn__fma(p, r, ATTN__EXP_C2);
    p = attn__fma(p, r, 1.0f);
    *shifted = t;
    return attn__fma(p, r, 1.0f);
}

/* For x <= 88, which is all that a softmax asks for. */
static float attn__exp(float x)
{
    float t;
    const float p = attn__exp_poly(x, &t);
    return attn__choose(x < ATTN__EXP_LOWEST, 0.0f, p * attn__float(attn__bits(t) << 23));
}

/* For every x: 2^n in two factors, since 2^128 is no float. */
static float attn__exp_full(float x)
{
    float t, p;
    uint32_t n, half;
    x = attn__choose(100.0f < x, 100.0f, x);
    p = attn__exp_poly(x, &t);
    n = attn__bits(t) - attn__bits(ATTN__EXP_MAGIC);            /* n modulo 2^32 */
    half = (uint32_t)((int32_t)n >> 1);
    p = p * attn__float((half + 127u) << 23) * attn__float((n - half + 127u) << 23);
    return attn__choose(x < ATTN__EXP_LOWEST, 0.0f, p);
}

/* log: x = 2^e m, m in [sqrt(1/2), sqrt 2), f = m - 1; log m = f - f^2/2 + f^3 Q(f). */
#define ATTN__LOG_C0  3.333333135e-01f
#define ATTN__LOG_C1 -2.500081956e-01f
#define ATTN__LOG_C2  2.000122666e-01f
#define ATTN__LOG_C3 -1.662335694e-01f
#define ATTN__LOG_C4  1.420175731e-01f
#define ATTN__LOG_C5 -1.316018254e-01f
#define ATTN__LOG_C6  1.276157796e-01f
#define ATTN__LOG_C7 -7.634497434e-02f
#define ATTN__SQRT_HALF 0x3f3504f3u

static float attn__log(float x)
{
    const int tiny = x < ATTN__SMALLEST;
    const float y = attn__choose(tiny, x * 8388608.0f, x);      /* 2^23: subnormals */
    const uint32_t b = attn__bits(y) - ATTN__SQRT_HALF;
    const float e = (float)(((int32_t)b >> 23) - (tiny ? 23 : 0));
    const float f = attn__float((b & 0x007fffffu) + ATTN__SQRT_HALF) - 1.0f, f2 = f * f;
    float q = attn__fma(ATTN__LOG_C7, f, ATTN__LOG_C6);
    q = attn__fma(q, f, ATTN__LOG_C5);
    q = attn__fma(q, f, ATTN__LOG_C4);
    q = attn__fma(q, f, ATTN__LOG_C3);
    q = attn__fma(q, f, ATTN__LOG_C2);
    q = attn__fma(q, f, ATTN__LOG_C1);
    q = attn__fma(q, f, ATTN__LOG_C0);
    q = attn__fma(q, f, -0.5f);
    q = attn__fma(e, ATTN__LN2_LO, q * f2);
    q = attn__fma(e, ATTN__LN2_HI, q + f);
    q = attn__choose(attn__is_inf(x), x, q);
    return attn__choose(x > 0.0f, q, attn__choose(x == 0.0f, ATTN__NEG_INF, ATTN__NAN));
}

/* tanh: a polynomial near 0, else 1 - 2/(e^2|x| + 1). */
#define ATTN__TANH_C0 -3.333328068e-01f
#define ATTN__TANH_C1  1.333144158e-01f
#define ATTN__TANH_C2 -5.373971537e-02f
#define ATTN__TANH_C3  2.063908800e-02f
#define ATTN__TANH_C4 -5.704987328e-03f
#define ATTN__TANH_SPLIT 0.625f

static float attn__tanh(float x)
{
    const uint32_t sign = attn__bits(x) & 0x80000000u;
    const float a = attn__float(attn__bits(x) ^ sign), b = attn__choose(10.0f < a, 10.0f, a), x2 = b * b;
    float p = attn__fma(ATTN__TANH_C4, x2, ATTN__TANH_C3), y;
    p = attn__fma(p, x2, ATTN__TANH_C2);
    p = attn__fma(p, x2, ATTN__TANH_C1);
    p = attn__fma(p, x2, ATTN__TANH_C0);
    y = attn__choose(b < ATTN__TANH_SPLIT, attn__fma(b * x2, p, b), 1.0f - 2.0f / (attn__exp(b + b) + 1.0f));
    return attn__float(attn__bits(y) | sign);
}

/* 1 / |v| for the cosine, 0 for the zero vector (and below 2^-126); scaled by a power of two so that no square over- or
   underflows. */
static float attn__inverse_norm(const float *v, int64_t stride, int64_t n)
{
    float largest = 0.0f, scale, sum = 0.0f;
    uint32_t exponent;
    int64_t c;
    for (c = 0; c < n; c++) {
        const float a = attn__float(attn__bits(v[c * stride]) & 0x7fffffffu);
        if (attn__is_nan(a) || attn__is_inf(a)) return ATTN__NAN;
        largest = attn__larger(a, largest);
    }
    exponent = attn__bits(largest) >> 23;
    if (exponent == 0) return 0.0f;                             /* zero, or so small that 1/|v| is no float */
    exponent = exponent > 252 ? 252 : exponent;
    scale = attn__float((254u - exponent) << 23);               /* largest * scale is in [1,2), or near it */
    for (c = 0; c < n; c++) sum = attn__fma(v[c * stride] * scale, v[c * stride] * scale, sum);
    return scale / attn__sqrt(sum);
}

/* ---------------------------------------------------------------------------------------------- >>kernels-scalar
   The kernel table. Nearly all of attention is one product, with A read where it lies and B a tile of lanes:
       C[r][lane] = sum over k, ascending, of A[r,k] * B[k][lane],   each step one fused multiply-add
   Lanes run across queries (or keys, or columns), never along a sum: so the bits do not depend on the vector width.
   A tile is a row-major array of `ld` lanes a row; ld = width*vecs is the same for all arrays of one tile.
   The scalar functions are the specification; the other tables compute the same bits. */
#define ATTN__FEW 4             /* up to so many rows a tile is laid the other way */
#define ATTN__LONG 96           /* floats in a row of keys that does not stay in the caches near by */
#define ATTN__MAX_WIDTH 16      /* floats in the widest vector of any table */
#define ATTN__MAX_LANES 64      /* the widest tile of any table */
#define ATTN__CHUNK     256     /* keys per chunk: part of the numeric contract, as are the next five */
#define ATTN__CHAIN     128     /* keys of a chunk whose weighted values are summed in one chain */
#define ATTN__SQUARES   32      /* numbers of a vector whose squared differences are summed in one chain */
#define ATTN__RUN       64      /* terms of a matrix product that are summed in one chain */
#define ATTN__PARTS     16      /* a chunk's sum of weights: 16 partial sums by key index mod 16, then a tree */
#define ATTN__TERMS     8       /* an additive score: 8 partial sums of four units each, likewise */

enum { ATTN__PRODUCT = 0, ATTN__SQUARED_DISTANCE, ATTN__PRODUCT_OF_ALLOWED, ATTN__WEIGHTED_DIFFERENCE };
enum { ATTN__FROM_ZERO = 0, ATTN__GO_ON, ATTN__ADD_AFTER };

typedef struct attn__product {
    const float *a;             /* A[r,k] = a[r*a_row + k*a_k] */
    int64_t      a_row, a_k;
    const float *b;             /* B[k][lane] = b[k*b_row + lane] */
    float       *c;             /* C[r][lane] = c[r*c_row + lane] */
    int64_t      b_row, c_row;
    int64_t      rows, depth;
    int32_t      vecs;          /* lanes of this product: width*vecs, at most those of a tile; 8 vectors for one row */
    int32_t      kind;          /* SQUARED_DISTANCE sums (B - A)^2. PRODUCT_OF_ALLOWED leaves steps out where B's sign
                                   bit is set: that is how a weight says "excluded", so that 0 * NaN does not happen.
                                   WEIGHTED_DIFFERENCE sums A (B - X[r][lane]) */
    int32_t      onto;          /* GO_ON: the sum starts from what C holds, else from 0; ADD_AFTER: then added to it */
    const float *x;             /* X[r][lane] = x[r*x_row + lane] */
    int64_t      x_row;
    const float *fetch;         /* not NULL: a matrix whose rows are brought near as the rows of A (of B: dots, and
                                   single rows of 8 vectors) are used; A's next rows too */
    int64_t      fetch_row, fetch_size;
} attn__product;

typedef struct attn__additive {
    const float *query;         /* [hidden][ld]: e^2a, or a for the direct form */
    const float *key;           /* row of a key: key[j*key_stride + u]: e^2b, or b */
    int64_t      key_stride;
    const float *w;             /* [hidden] */
    float       *s;             /* [rows][ld] */
    int64_t      rows, hidden;  /* hidden: a multiple of 4, padded with w = 0 */
    float        w_sum, scale;
    int32_t      ld, vecs;
} attn__additive;

/* Dropout of a tile's weights: a dropped one becomes 0, except that -0 stays. */
typedef struct attn__drop {
    float          *s;          /* [.][ld], rows j0 .. j1, for the first `lanes` */
    int64_t         ld, lanes, j0, j1;
    uint64_t        seed, below;
    const uint32_t *i, *h;      /* per lane, with the origin added, as all of these */
    uint32_t        b, key;     /* key: of row 0 */
} attn__drop;

#ifndef ATTN_NO_BACKWARD
/* From scores and the gradients of weights to weights P and the gradients dS of scores, [rows][ld] -> rows of `row`:
       P = keep*w (0 where keep is 0), dS = w*(dp*keep + more - shift), w = e^(s - base)*inverse, 0 below 2^-126;
   an excluded entry (s = -inf) gets -0 and 0, whatever else it holds. keep and more may be NULL (1 and 0). */
typedef struct attn__grade {
    const float *s, *dp, *keep, *more, *base, *inverse, *shift;
    float       *p, *ds;
    int64_t      rows, ld, row;
} attn__grade;

/* Additive: for hidden units u .. u+3, the lanes of a tile and a block of keys, with r = -1/(1 + query_u key_u) and
   x = dS (r + r^2):  da_u[lane] += sum over keys of x;  dt_u[lane] += (sum over keys of dS) + 2 (that of dS r), each
   one chain; part[key][u][lane mod 16] += x, lane by lane. tanh is 1 + 2r, and its derivative -4 (r + r^2). */
typedef struct attn__additive_gradient {
    const float *query;         /* [.][ld]: e^2a, [padded] rows, then a */
    const float *key;           /* key[j*key_stride + u]: e^2b; + padded: b; [2 padded]: 1 where it is clear */
    const float *ds, *mark;     /* [keys][row]; mark: NULL (no pair needs care), or -0 where a pair is excluded */
    const int   *lane_clear;
    float       *da, *dt;       /* [4][row] */
    float       *part;          /* [keys][4][16] */
    int64_t      u, padded, ld, lane0, key_stride, keys, row;       /* lane0: of the tile, mod 16 counts */
} attn__additive_gradient;
#endif

/* X(result, name, parameters): the kernels. The struct and each instruction set's table are made from this list. */
#define ATTN__KERNEL_LIST(X) \
    X(void, product, (const attn__product *p)) \
    /* Few rows against B's rows: c[r*c_row + j] = sum over k, ascending, of a[k*a_k + r] * b[j*b_row + k], j < columns.
       Lanes are keys, turned on the way. Up to ATTN__FEW rows; a_k is `width`: so many floats
       can be read there. c has room for whole vectors. a_row, vecs, kind and onto do not count */ \
    X(void, dots, (const attn__product *p, int64_t columns)) \
    /* s = scale * (w_sum - 2 sum_u w_u / (1 + query_u key_u)), four terms over a common denominator */ \
    X(void, additive, (const attn__additive *p)) \
    /* s = scale * sum_u w_u tanh(query_u + key_u), for pairs whose exponentials would overflow */ \
    X(void, additive_direct, (const attn__additive *p)) \
    /* one chunk's softmax for one vector of lanes: s[j][..] (j0 <= j < j1) becomes e^(s - top); its top and its sum.
       mark: an excluded entry (-inf) becomes -0 instead of 0 */ \
    X(void, weigh, (float *s, int64_t ld, int64_t j0, int64_t j1, int mark, float *top, float *sum)) \
    /* per lane: running (max, sum) and a chunk's (cmax, csum) -> their union; old and fresh are the two factors */ \
    X(void, join, (int64_t lanes, float *top, float *sum, const float *cmax, const float *csum, float *old, \
                   float *fresh)) \
    /* o[r][lane] = o*old[lane] + acc*fresh[lane] */ \
    X(void, merge, (int64_t rows, int64_t ld, float *o, const float *acc, const float *old, const float *fresh)) \
    X(int, finite, (const float *x, int64_t n)) \
    /* to[c][lane] = scale[lane] * rows[lane][c*stride], all ld lanes */ \
    X(void, pack, (float *to, int64_t ld, const float *const *rows, int64_t stride, int64_t n, const float *scale)) \
    /* rows[lane][c*stride] = scale[lane] * from[c][lane] for the first `lanes`; a NaN becomes the one NaN */ \
    X(void, unpack, (float *const *rows, int64_t lanes, int64_t stride, const float *from, int64_t ld, int64_t n, \
                     const float *scale)) \
    /* y = exp (function 0), log (1) or tanh (2) of x, over the full range */ \
    X(void, elementary, (int32_t function, const float *x, float *y, int64_t n)) \
    /* in place: x = cap*tanh(x/cap); keep: -inf stays -inf. n: a multiple of width */ \
    X(void, softcap, (float *x, int64_t n, float cap, int keep)) \
    /* in place: a sum of squares becomes the score of a distance kernel; width[lane]: -1/(2 sigma^2) for the Gaussian,
       else sigma^2 */ \
    X(void, distance, (float *s, int64_t ld, int64_t n, int32_t score, const float *width)) \
    /* s[j][lane] -= slope[lane] * |position[lane] - j| */ \
    X(void, alibi, (float *s, int64_t ld, int64_t n, const float *slope, const float *position)) \
    /* s[j][lane] = -inf unless first[lane] <= j < last[lane] */ \
    X(void, clip, (float *s, int64_t ld, int64_t n, const int32_t *first, const int32_t *last)) \
    /* s[j][lane] += rows[lane][j*stride], but -inf there gives -inf whatever s is; keep: an s of -inf stays too */ \
    X(void, bias, (float *s, int64_t ld, int64_t n, const float *const *rows, int64_t stride, int keep)) \
    /* s[j][lane] = -inf where rows[lane][j*stride] is 0 */ \
    X(void, exclude, (float *s, int64_t ld, int64_t n, const uint8_t *const *rows, int64_t stride)) \
    /* y[j] = e^(scale*x[j] - top) * factor, 0 where that is below 2^-126 or scale*x[j] is -inf (even when factor is
       NaN); y may be x */ \
    X(void, normalise, (const float *x, float *y, int64_t n, float scale, float top, float factor)) \
    /* what weigh computes, for one row of scores scale*x[j] that lie side by side; n: a multiple of ATTN__PARTS */ \
    X(void, mass, (const float *x, int64_t n, float scale, float *top, float *sum)) \
    X(void, drop, (const attn__drop *d)) \
    ATTN__GRADIENT_KERNELS(X)
#ifdef ATTN_NO_BACKWARD
#  define ATTN__GRADIENT_KERNELS(X)
#else
#  define ATTN__GRADIENT_KERNELS(X) \
    X(void, grade, (const attn__grade *g)) \
    /* sum[lane] = sum over c, ascending, of x[c][lane] y[c][lane] */ \
    X(void, inner, (const float *x, const float *y, int64_t ld, int64_t n, float *sum)) \
    /* to[c] = from[c]*factor, or to[c] + that in one rounding; a NaN becomes the one NaN */ \
    X(void, deliver, (const float *from, float *to, int64_t n, float factor, int add)) \
    X(void, additive_gradient, (const attn__additive_gradient *g)) \
    /* y[j*row + u] += the tree of part[j][u][0..15], for n keys and four u */ \
    X(void, fold, (const float *part, int64_t n, float *y, int64_t row))
#endif

typedef struct attn__kernels {
    int32_t isa, width, vecs;   /* attn_isa; floats in a vector; vectors in the widest tile */
#define ATTN__X(result, name, parameters) result (*name) parameters;
    ATTN__KERNEL_LIST(ATTN__X)
#undef ATTN__X
} attn__kernels;

/* Where a row lies that is only fetched: it may be behind the last one, so no pointer arithmetic. */
static const float *attn__ahead(const float *p, int64_t rows, int64_t row)
{
    return (const float *)((uintptr_t)p + (uintptr_t)rows * (uintptr_t)row * sizeof *p);
}

static void attn__product_scalar(const attn__product *p)
{
    int64_t r, k;
    int32_t i;
    for (r = 0; r < p->rows; r++) {
        const float *a = p->a + r * p->a_row, *b = p->b;
        float *c = p->c + r * p->c_row, acc[8];
        ATTN_ASSERT(p->vecs <= 8);
        for (i = 0; i < p->vecs; i++) acc[i] = attn__choose(p->onto == ATTN__GO_ON, c[i], 0.0f);
        for (k = 0; k < p->depth; k++, a += p->a_k, b += p->b_row)
            for (i = 0; i < p->vecs; i++) {
                const float d = b[i] - *a;
                if (p->kind == ATTN__SQUARED_DISTANCE) acc[i] = attn__fma(d, d, acc[i]);
                else if (p->kind == ATTN__WEIGHTED_DIFFERENCE) acc[i] = attn__fma(*a, b[i] - p->x[r * p->x_row + i],
                                                                                  acc[i]);
                else if (p->kind == ATTN__PRODUCT || !(attn__bits(b[i]) >> 31)) acc[i] = attn__fma(*a, b[i], acc[i]);
            }
        for (i = 0; i < p->vecs; i++) c[i] = p->onto == ATTN__ADD_AFTER ? c[i] + acc[i] : acc[i];
    }
}

static void attn__dots_scalar(const attn__product *p, int64_t columns)
{
    int64_t r, j, k;
    for (r = 0; r < p->rows; r++)
        for (j = 0; j < columns; j++) {
            float sum = 0.0f;
            for (k = 0; k < p->depth; k++)
                sum = attn__fma(p->a[k * p->a_k + r], p->b[j * p->b_row + k], sum);
            p->c[r * p->c_row + j] = sum;
        }
}

static float attn__tree(float *part, int n)         /* the sum of n numbers, a power of two, in its fixed order */
{
    int r;
    while (n /= 2)
        for (r = 0; r < n; r++) part[r] = part[r] + part[r + n];
    return part[0];
}

static void attn__additive_scalar(const attn__additive *p)
{
    const float *e, *f, *w, cap = 1073741824.0f;    /* 2^30: four factors stay finite; 2/2^30 is below rounding */
    float part[ATTN__TERMS], *sum, d[4], n0, n1, d0, d1;
    int64_t j, u;
    int32_t i, g;
    for (j = 0; j < p->rows; j++)
        for (i = 0; i < p->vecs; i++) {
            for (g = 0; g < ATTN__TERMS; g++) part[g] = 0.0f;
            for (u = 0; u < p->hidden; u += 4) {
                e = p->query + u * p->ld + i;
                f = p->key + j * p->key_stride + u;
                w = p->w + u;
                for (g = 0; g < 4; g++) {
                    d[g] = attn__fma(e[g * p->ld], f[g], 1.0f);
                    d[g] = attn__choose(d[g] < cap, d[g], cap);
                }
                n0 = attn__fma(w[0], d[1], w[1] * d[0]);
                n1 = attn__fma(w[2], d[3], w[3] * d[2]);
                d0 = d[0] * d[1];
                d1 = d[2] * d[3];
                sum = part + u / 4 % ATTN__TERMS;
                *sum = *sum + attn__fma(n0, d1, n1 * d0) / (d0 * d1);
            }
            p->s[j * p->ld + i] = p->scale * attn__fma(-2.0f, attn__tree(part, ATTN__TERMS), p->w_sum);
        }
}

static void attn__additive_direct_scalar(const attn__additive *p)
{
    int64_t j, u;
    int32_t i;
    for (j = 0; j < p->rows; j++)
        for (i = 0; i < p->vecs; i++) {
            float part[ATTN__TERMS];
            for (u = 0; u < ATTN__TERMS; u++) part[u] = 0.0f;
            for (u = 0; u < p->hidden; u++) {
                const float t = attn__tanh(p->query[u * p->ld + i] + p->key[j * p->key_stride + u]);
                part[u % ATTN__TERMS] = attn__fma(p->w[u], t, part[u % ATTN__TERMS]);
            }
            p->s[j * p->ld + i] = p->scale * attn__tree(part, ATTN__TERMS);
        }
}

static void attn__weigh_scalar(float *s, int64_t ld, int64_t j0, int64_t j1, int mark, float *top, float *sum)
{
    float m = ATTN__NEG_INF, part[ATTN__PARTS], base;
    int64_t j;
    int r;
    for (j = j0; j < j1; j++) m = attn__larger(s[j * ld], m);      /* NaN is passed over, and comes back as a weight */
    m = m + 0.0f;                                   /* of 0 and -0 neither is larger: whichever came first, it is 0 */
    base = attn__choose(attn__is_none(m), 0.0f, m);
    for (r = 0; r < ATTN__PARTS; r++) part[r] = 0.0f;
    for (j = j0; j < j1; j++) {
        float e = attn__exp(s[j * ld] - base);
        if (mark && attn__is_none(s[j * ld])) e = -0.0f;
        s[j * ld] = e;
        part[j % ATTN__PARTS] = part[j % ATTN__PARTS] + e;
    }
    *top = m;
    *sum = attn__tree(part, ATTN__PARTS);
}

static void attn__join_scalar(int64_t lanes, float *top, float *sum, const float *cmax, const float *csum,
                              float *old, float *fresh)
{
    int64_t i;
    for (i = 0; i < lanes; i++) {
        const float m = attn__larger(cmax[i], top[i]), base = attn__choose(attn__is_none(m), 0.0f, m);
        old[i] = attn__exp(top[i] - base);
        fresh[i] = attn__exp(cmax[i] - base);
        sum[i] = attn__fma(csum[i], fresh[i], sum[i] * old[i]);
        top[i] = m;
    }
}

static void attn__merge_scalar(int64_t rows, int64_t ld, float *o, const float *acc, const float *old,
                               const float *fresh)
{
    int64_t r, i;
    for (r = 0; r < rows; r++)
        for (i = 0; i < ld; i++)                    /* + 0: never -0, so that a chunk without mass changes nothing */
            o[r * ld + i] = attn__fma(acc[r * ld + i], fresh[i], o[r * ld + i] * old[i]) + 0.0f;
}

static int attn__finite_scalar(const float *x, int64_t n)
{
    int64_t i;
    for (i = 0; i < n; i++)
        if ((attn__bits(x[i]) & 0x7f800000u) == 0x7f800000u) return 0;
    return 1;
}

static void attn__pack_scalar(float *to, int64_t ld, const float *const *rows, int64_t stride, int64_t n,
                              const float *scale)
{
    int64_t c, i;
    for (i = 0; i < ld; i++)
        for (c = 0; c < n; c++) to[c * ld + i] = rows[i][c * stride] * scale[i];
}

static void attn__unpack_scalar(float *const *rows, int64_t lanes, int64_t stride, const float *from, int64_t ld,
                                int64_t n, const float *scale)
{
    int64_t c, i;
    for (i = 0; i < lanes; i++)
        for (c = 0; c < n; c++) rows[i][c * stride] = attn__quiet(from[c * ld + i] * scale[i]);
}

static void attn__elementary_scalar(int32_t function, const float *x, float *y, int64_t n)
{
    int64_t i;
    for (i = 0; i < n; i++)
        if (function == 0) y[i] = attn__exp_full(x[i]);
        else if (function == 1) y[i] = attn__log(x[i]);
        else y[i] = attn__tanh(x[i]);
}

static void attn__softcap_scalar(float *x, int64_t n, float cap, int keep)
{
    int64_t i;
    for (i = 0; i < n; i++)
        if (!(keep && attn__is_none(x[i]))) x[i] = cap * attn__tanh(x[i] / cap);
}

static void attn__distance_scalar(float *s, int64_t ld, int64_t n, int32_t score, const float *width)
{
    int64_t j, i;
    for (j = 0; j < n; j++)
        for (i = 0; i < ld; i++) {
            float *x = s + j * ld + i, u2, weight;
            if (score == ATTN_SCORE_GAUSSIAN) { *x = *x * width[i]; continue; }
            u2 = *x / width[i];
            if (score == ATTN_SCORE_BOXCAR) weight = 1.0f;
            else if (score == ATTN_SCORE_TRIANGULAR) weight = 1.0f - attn__sqrt(u2);
            else weight = 1.0f - u2;
            *x = attn__choose(u2 <= 1.0f, attn__log(weight), attn__choose(attn__is_nan(u2), u2, ATTN__NEG_INF));
        }
}

static void attn__alibi_scalar(float *s, int64_t ld, int64_t n, const float *slope, const float *position)
{
    int64_t j, i;
    for (j = 0; j < n; j++)
        for (i = 0; i < ld; i++) {
            const float d = position[i] - (float)j;
            s[j * ld + i] = attn__fma(attn__negate(slope[i]), attn__float(attn__bits(d) & 0x7fffffffu), s[j * ld + i]);
        }
}

static void attn__clip_scalar(float *s, int64_t ld, int64_t n, const int32_t *first, const int32_t *last)
{
    int64_t j, i;
    for (j = 0; j < n; j++)
        for (i = 0; i < ld; i++)
            if (j < first[i] || j >= last[i]) s[j * ld + i] = ATTN__NEG_INF;
}

static void attn__bias_scalar(float *s, int64_t ld, int64_t n, const float *const *rows, int64_t stride, int keep)
{
    int64_t i, j;
    for (i = 0; i < ld; i++)
        for (j = 0; j < n; j++) {
            float *x = s + j * ld + i, b = rows[i][j * stride];
            *x = attn__choose(attn__is_none(b) || (keep && attn__is_none(*x)), ATTN__NEG_INF, *x + b);
        }
}

static void attn__exclude_scalar(float *s, int64_t ld, int64_t n, const uint8_t *const *rows, int64_t stride)
{
    int64_t j, i;
    for (i = 0; i < ld; i++)
        for (j = 0; j < n; j++)
            if (!rows[i][j * stride]) s[j * ld + i] = ATTN__NEG_INF;
}

static void attn__normalise_scalar(const float *x, float *y, int64_t n, float scale, float top, float factor)
{
    int64_t i;
    for (i = 0; i < n; i++) {
        const float s = x[i] * scale, w = attn__exp(s - top) * factor;
        y[i] = attn__choose(w < ATTN__SMALLEST || attn__is_none(s), 0.0f, attn__quiet(w));
    }
}

static void attn__mass_scalar(const float *x, int64_t n, float scale, float *top, float *sum)
{
    float s[ATTN__CHUNK];
    int64_t i;
    for (i = 0; i < n; i++) s[i] = x[i] * scale;
    attn__weigh_scalar(s, 1, 0, n, 0, top, sum);
}

/* Philox4x32-10 */
static void attn__philox(uint64_t seed, uint32_t *counter)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32), c0, c2;
    uint64_t p0, p1;
    int round;
    for (round = 0; round < 10; round++, k0 += 0x9e3779b9u, k1 += 0xbb67ae85u) {
        p0 = (uint64_t)0xd2511f53u * counter[0];
        p1 = (uint64_t)0xcd9e8d57u * counter[2];
        c0 = (uint32_t)(p1 >> 32) ^ counter[1] ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ counter[3] ^ k1;
        counter[1] = (uint32_t)p1;
        counter[3] = (uint32_t)p0;
        counter[0] = c0;
        counter[2] = c2;
    }
}

static void attn__drop_scalar(const attn__drop *d)
{
    uint32_t words[4];
    int64_t j, l;
    for (l = 0; l < d->lanes; l++)
        for (j = d->j0; j < d->j1; j++) {
            const uint32_t key = d->key + (uint32_t)j;
            float *x = d->s + j * d->ld + l;
            if (j == d->j0 || key % 4 == 0) {                   /* four keys come from one counter */
                words[0] = key / 4;
                words[1] = d->i[l];
                words[2] = d->h[l];
                words[3] = d->b;
                attn__philox(d->seed, words);
            }
            if (words[key % 4] < d->below && !(attn__bits(*x) >> 31)) *x = 0.0f;
        }
}

#ifndef ATTN_NO_BACKWARD
static void attn__inner_scalar(const float *x, const float *y, int64_t ld, int64_t n, float *sum)
{
    int64_t c, l;
    for (l = 0; l < ld; l++)
        for (sum[l] = 0.0f, c = 0; c < n; c++) sum[l] = attn__fma(x[c * ld + l], y[c * ld + l], sum[l]);
}

/* x*factor, or y + x*factor, rounded once: no compiler can make something else of it */
static float attn__scaled(float x, float factor, float y, int add)
{
    return add ? attn__fma(x, factor, y) : x * factor;
}

static void attn__deliver_scalar(const float *from, float *to, int64_t n, float factor, int add)
{
    int64_t c;
    for (c = 0; c < n; c++) {
        to[c] = attn__quiet(attn__scaled(from[c], factor, to[c], add));
    }
}

static void attn__grade_scalar(const attn__grade *g)
{
    int64_t j, l;
    for (j = 0; j < g->rows; j++)
        for (l = 0; l < g->ld; l++) {
            const float s = g->s[j * g->ld + l], e = attn__exp(s - g->base[l]) * g->inverse[l];
            const float w = attn__choose(e < ATTN__SMALLEST, 0.0f, e);
            const float keep = g->keep ? g->keep[j * g->ld + l] : 1.0f, more = g->more ? g->more[j * g->ld + l] : 0.0f;
            const float ds = w * (attn__fma(g->dp[j * g->ld + l], keep, more) - g->shift[l]);
            g->p[j * g->row + l] = attn__choose(attn__is_none(s), -0.0f, attn__choose(keep == 0.0f, 0.0f, w * keep));
            g->ds[j * g->row + l] = attn__choose(attn__is_none(s), 0.0f, ds);
        }
}

static void attn__additive_gradient_scalar(const attn__additive_gradient *g)
{
    const float *e = g->query + g->u * g->ld, *a = e + g->padded * g->ld;
    int64_t j, l;
    int u;
    for (l = 0; l < g->ld; l++) {
        float da[4] = {0.0f, 0.0f, 0.0f, 0.0f}, dt[4] = {0.0f, 0.0f, 0.0f, 0.0f}, all = 0.0f;
        for (j = 0; j < g->keys; j++) {
            const float *f = g->key + j * g->key_stride + g->u, *b = f + g->padded, ds = g->ds[j * g->row + l];
            float *part = g->part + j * 4 * ATTN__PARTS + (g->lane0 + l) % ATTN__PARTS, r;
            if (g->mark && attn__bits(g->mark[j * g->row + l]) == 0x80000000u) continue;
            all = all + ds;
            for (u = 0; u < 4; u++) {
                r = -1.0f / attn__fma(e[u * g->ld + l], f[u], 1.0f);
                if (g->mark && !(g->lane_clear[l] && g->key[j * g->key_stride + 2 * g->padded] != 0.0f))
                    r = 0.5f * attn__tanh(a[u * g->ld + l] + b[u]) - 0.5f;
                dt[u] = attn__fma(ds, r, dt[u]);
                r = attn__fma(r, r, r);
                da[u] = attn__fma(ds, r, da[u]);
                part[u * ATTN__PARTS] = attn__fma(ds, r, part[u * ATTN__PARTS]);
            }
        }
        for (u = 0; u < 4; u++) {
            g->da[u * g->row + l] = g->da[u * g->row + l] + da[u];
            g->dt[u * g->row + l] = g->dt[u * g->row + l] + attn__fma(2.0f, dt[u], all);
        }
    }
}

static void attn__fold_scalar(const float *part, int64_t n, float *y, int64_t row)
{
    float x[ATTN__PARTS];
    int64_t j, u;
    int i;
    for (j = 0; j < n; j++)
        for (u = 0; u < 4; u++, part += ATTN__PARTS) {
            for (i = 0; i < ATTN__PARTS; i++) x[i] = part[i];
            y[j * row + u] = y[j * row + u] + attn__tree(x, ATTN__PARTS);
        }
}
#endif

#define ATTN__X(result, name, parameters) , attn__##name##_scalar
static const attn__kernels attn__table_scalar = {ATTN_ISA_SCALAR, 1, 8 ATTN__KERNEL_LIST(ATTN__X)};
#undef ATTN__X

#define ATTN__IN_THE_MIDDLE     /* of the first reading; what lies between is for the others */
#endif

/* ---------------------------------------------------------------------------------------------- >>kernels-vector
   The vector kernels, written once over a vocabulary. >>dispatch has this file read again per instruction set, with
   ATTN__LANES floats to a vector: of that reading only this section counts. First the vocabulary:
       VEC, MASK                  LANES floats (or 32 bits each); a truth value for each lane
       V(name)                    the name of a function in this reading
       VECS, SUMS                 vectors in the widest tile; running sums that a product keeps in registers
       LOAD, STORE                at any address;  BROADCAST(p), ALL(x), ALL_BITS(n): the same in every lane
       ADD, SUB, MUL, DIV, SQRT   FMA(a, b, c) is a*b + c, rounded once
       MIN, MAX                   b where a or b is NaN
       LESS, AT_MOST, SAME, UNORDERED, SAME_BITS, ABOVE (signed integers), NEGATIVE (the sign bit)    -> MASK
       EITHER, ANY                of masks: lane by lane; is one set?
       PICK(x, y, m)              y where m is set, else x;  CLEAR(x, m): 0 where it is
       AND, XOR, ADD_BITS, LEFT, RIGHT (the sign stays), MOST_BITS (the larger unsigned integer), TO_FLOATS (of
                                  integers), LOAD_BYTES (LANES bytes, each widened to 32 bits)
       MULTIPLY_EVEN, ODD, EVENS  64-bit products of even lanes; the odd lanes moved there; even lanes of both, by turns
       KEEP(x)                    in a register: gcc folds a load into each multiply-add that uses it, a fifth slower
       HELPER, KERNEL             how a function begins;  V(transpose): LANES vectors, rows to columns
   ADD to DIV are operators where the compiler has them for vectors: those obey the arithmetic pragmas of >>platform,
   intrinsics from a header that was parsed under -ffast-math do not. */
#ifdef ATTN__LANES
#define ATTN__READ 200          /* the version of this text */
#if ATTN__LANES == 8
#  define ATTN__V(name)         attn__##name##_avx2
#  define ATTN__ISA             ATTN_ISA_AVX2
#  define ATTN__HELPER          ATTN__INLINE ATTN__WITH("avx2,fma")
#  define ATTN__KERNEL          static ATTN__WITH("avx2,fma")
#  define ATTN__MM(name)        _mm256_##name
#  define ATTN__VEC             __m256
#  define ATTN__MASK            __m256              /* the sign bit of each lane */
#  define ATTN__VECS            3
#  define ATTN__SUMS            12
#  define ATTN__REGISTER        "x"
#  define ATTN__MASK_REGISTER   "=x"
#  define ATTN__INTS(x)         _mm256_castps_si256(x)
#  define ATTN__FLOATS(x)       _mm256_castsi256_ps(x)
#  define ATTN__AND(a, b)       ATTN__FLOATS(_mm256_and_si256(ATTN__INTS(a), ATTN__INTS(b)))
#  define ATTN__XOR(a, b)       ATTN__FLOATS(_mm256_xor_si256(ATTN__INTS(a), ATTN__INTS(b)))
#  define ATTN__COMPARE(a, b, how) _mm256_cmp_ps(a, b, how)
#  define ATTN__SAME_BITS(a, b) ATTN__FLOATS(_mm256_cmpeq_epi32(ATTN__INTS(a), ATTN__INTS(b)))
#  define ATTN__ABOVE(a, b)     ATTN__FLOATS(_mm256_cmpgt_epi32(ATTN__INTS(a), ATTN__INTS(b)))
#  define ATTN__NEGATIVE(x)     (x)
#  define ATTN__EITHER(m, n)    _mm256_or_ps(m, n)
#  define ATTN__ANY(m)          (_mm256_movemask_ps(m) != 0)
#  define ATTN__BROADCAST(p)    _mm256_broadcast_ss(p)
#  define ATTN__PICK(x, y, m)   _mm256_blendv_ps(x, y, m)
#  define ATTN__CLEAR(x, m)     _mm256_andnot_ps(m, x)
#  define ATTN__LOAD_BYTES(p)   ATTN__FLOATS(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p))))
#  define ATTN__EVENS(a, b)     _mm256_blend_ps(a, ATTN__FLOATS(_mm256_slli_epi64(ATTN__INTS(b), 32)), 0xaa)
#elif ATTN__LANES == 16
#  define ATTN__V(name)         attn__##name##_avx512
#  define ATTN__ISA             ATTN_ISA_AVX512
#  define ATTN__HELPER          ATTN__INLINE ATTN__WITH("avx512f,avx512dq,fma")
#  define ATTN__KERNEL          static ATTN__WITH("avx512f,avx512dq,fma")
#  define ATTN__MM(name)        _mm512_##name
#  define ATTN__VEC             __m512
#  define ATTN__MASK            __mmask16
#  define ATTN__VECS            4
#  define ATTN__SUMS            24
#  define ATTN__REGISTER        "v"
#  define ATTN__MASK_REGISTER   "=Yk"
#  define ATTN__INTS(x)         _mm512_castps_si512(x)
#  define ATTN__FLOATS(x)       _mm512_castsi512_ps(x)
#  define ATTN__AND(a, b)       ATTN__FLOATS(_mm512_and_si512(ATTN__INTS(a), ATTN__INTS(b)))
#  define ATTN__XOR(a, b)       ATTN__FLOATS(_mm512_xor_si512(ATTN__INTS(a), ATTN__INTS(b)))
#  define ATTN__COMPARE(a, b, how) _mm512_cmp_ps_mask(a, b, how)
#  define ATTN__SAME_BITS(a, b) _mm512_cmpeq_epi32_mask(ATTN__INTS(a), ATTN__INTS(b))
#  define ATTN__ABOVE(a, b)     _mm512_cmpgt_epi32_mask(ATTN__INTS(a), ATTN__INTS(b))
#  define ATTN__NEGATIVE(x)     _mm512_movepi32_mask(ATTN__INTS(x))
#  define ATTN__EITHER(m, n)    ((__mmask16)((m) | (n)))
#  define ATTN__ANY(m)          ((m) != 0)
#  define ATTN__BROADCAST(p)    _mm512_set1_ps(*(p))
#  define ATTN__PICK(x, y, m)   ATTN__FLOATS(_mm512_mask_blend_epi32(m, ATTN__INTS(x), ATTN__INTS(y)))
#  define ATTN__CLEAR(x, m)     ATTN__PICK(x, _mm512_setzero_ps(), m)
#  define ATTN__LOAD_BYTES(p)   ATTN__FLOATS(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p))))
#  define ATTN__EVENS(a, b)     ATTN__PICK(a, ATTN__FLOATS(_mm512_slli_epi64(ATTN__INTS(b), 32)), 0xaaaa)
#endif
/* ---- what both widths of x86 share */
#ifdef ATTN__MM
#define ATTN__LOAD              ATTN__MM(loadu_ps)
#define ATTN__LOAD_BITS(p)      ATTN__LOAD((const float *)(const void *)(p))
#define ATTN__STORE             ATTN__MM(storeu_ps)
#define ATTN__ALL               ATTN__MM(set1_ps)
#define ATTN__ALL_BITS(n)       ATTN__FLOATS(ATTN__MM(set1_epi32)((int32_t)(n)))
#define ATTN__ON_BITS(name, a, b) ATTN__FLOATS(ATTN__MM(name)(ATTN__INTS(a), ATTN__INTS(b)))
#define ATTN__ADD_BITS(a, b)    ATTN__ON_BITS(add_epi32, a, b)
#define ATTN__MOST_BITS(a, b)   ATTN__ON_BITS(max_epu32, a, b)
#define ATTN__MULTIPLY_EVEN(a, b) ATTN__ON_BITS(mul_epu32, a, b)
#define ATTN__LEFT(x, n)        ATTN__FLOATS(ATTN__MM(slli_epi32)(ATTN__INTS(x), n))
#define ATTN__RIGHT(x, n)       ATTN__FLOATS(ATTN__MM(srai_epi32)(ATTN__INTS(x), n))
#define ATTN__ODD(x)            ATTN__FLOATS(ATTN__MM(srli_epi64)(ATTN__INTS(x), 32))
#define ATTN__TO_FLOATS(x)      ATTN__MM(cvtepi32_ps)(ATTN__INTS(x))
#if ATTN__GNU
#  define ATTN__KEEP(v)         __asm__("" : "+v"(v))
#  define ATTN__ADD(a, b)       ((a) + (b))
#  define ATTN__SUB(a, b)       ((a) - (b))
#  define ATTN__MUL(a, b)       ((a) * (b))
#  define ATTN__DIV(a, b)       ((a) / (b))
#else
#  define ATTN__KEEP(v)         ((void)0)
#  define ATTN__ADD             ATTN__MM(add_ps)
#  define ATTN__SUB             ATTN__MM(sub_ps)
#  define ATTN__MUL             ATTN__MM(mul_ps)
#  define ATTN__DIV             ATTN__MM(div_ps)
#endif
#if ATTN__CLANG_FAST            /* the instructions themselves: nothing to fold */
#  define ATTN__MIN             ATTN__V(min)
#  define ATTN__MAX             ATTN__V(max)
#  define ATTN__LESS            ATTN__V(less)
#  define ATTN__AT_MOST         ATTN__V(at_most)
#  define ATTN__SAME            ATTN__V(same)
#  define ATTN__UNORDERED       ATTN__V(unordered)
#  define ATTN__FMA             ATTN__V(fma)
#  define ATTN__SQRT            ATTN__V(sqrt)
#  define ATTN__OPERATION(name, result, kind, text) \
    ATTN__HELPER result name(ATTN__VEC a, ATTN__VEC b) \
    { result r; __asm__(text " %2, %1, %0" : kind(r) : ATTN__REGISTER(a), ATTN__REGISTER(b)); return r; }
ATTN__OPERATION(ATTN__MIN, ATTN__VEC, "=" ATTN__REGISTER, "vminps")
ATTN__OPERATION(ATTN__MAX, ATTN__VEC, "=" ATTN__REGISTER, "vmaxps")
ATTN__OPERATION(ATTN__LESS, ATTN__MASK, ATTN__MASK_REGISTER, "vcmpps $17,")
ATTN__OPERATION(ATTN__AT_MOST, ATTN__MASK, ATTN__MASK_REGISTER, "vcmpps $18,")
ATTN__OPERATION(ATTN__SAME, ATTN__MASK, ATTN__MASK_REGISTER, "vcmpps $0,")
ATTN__OPERATION(ATTN__UNORDERED, ATTN__MASK, ATTN__MASK_REGISTER, "vcmpps $3,")
ATTN__HELPER ATTN__VEC ATTN__FMA(ATTN__VEC a, ATTN__VEC b, ATTN__VEC c)
{ __asm__("vfmadd231ps %2, %1, %0" : "+" ATTN__REGISTER(c) : ATTN__REGISTER(a), ATTN__REGISTER(b)); return c; }
ATTN__HELPER ATTN__VEC ATTN__SQRT(ATTN__VEC x)
{ ATTN__VEC r; __asm__("vsqrtps %1, %0" : "=" ATTN__REGISTER(r) : ATTN__REGISTER(x)); return r; }
#else
#  define ATTN__MIN             ATTN__MM(min_ps)
#  define ATTN__MAX             ATTN__MM(max_ps)
#  define ATTN__LESS(a, b)      ATTN__COMPARE(a, b, _CMP_LT_OQ)
#  define ATTN__AT_MOST(a, b)   ATTN__COMPARE(a, b, _CMP_LE_OQ)
#  define ATTN__SAME(a, b)      ATTN__COMPARE(a, b, _CMP_EQ_OQ)
#  define ATTN__UNORDERED(a, b) ATTN__COMPARE(a, b, _CMP_UNORD_Q)
#  define ATTN__FMA             ATTN__MM(fmadd_ps)
#  define ATTN__SQRT            ATTN__MM(sqrt_ps)
#endif

ATTN__HELPER void ATTN__V(transpose)(ATTN__VEC *r)
{
    ATTN__VEC t[ATTN__LANES];
    int i;
    ATTN__UNROLL for (i = 0; i < ATTN__LANES; i += 4) {         /* 4 x 4, within 128 bits each */
        t[i] = ATTN__MM(unpacklo_ps)(r[i], r[i + 1]);
        t[i + 1] = ATTN__MM(unpackhi_ps)(r[i], r[i + 1]);
        t[i + 2] = ATTN__MM(unpacklo_ps)(r[i + 2], r[i + 3]);
        t[i + 3] = ATTN__MM(unpackhi_ps)(r[i + 2], r[i + 3]);
        r[i] = ATTN__MM(shuffle_ps)(t[i], t[i + 2], 0x44);
        r[i + 1] = ATTN__MM(shuffle_ps)(t[i], t[i + 2], 0xee);
        r[i + 2] = ATTN__MM(shuffle_ps)(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = ATTN__MM(shuffle_ps)(t[i + 1], t[i + 3], 0xee);
    }
#if ATTN__LANES == 8
    ATTN__UNROLL for (i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
        r[i] = t[i];
    }
#else
    ATTN__UNROLL for (i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    }
    ATTN__UNROLL for (i = 0; i < 8; i++) {
        r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
    }
#endif
}
#endif /* ATTN__MM */

/* ---- exp, log, tanh: step by step those of >>math */
#define ATTN__EACH(i, n)        ATTN__UNROLL for (i = 0; i < (n); i++)

/* The powers of x times c[0] .. c[n - 1], the highest first. */
ATTN__HELPER ATTN__VEC ATTN__V(polynomial)(ATTN__VEC x, const float *c, const int n)
{
    ATTN__VEC p = ATTN__ALL(c[0]);
    int i;
    ATTN__UNROLL for (i = 1; i < n; i++) p = ATTN__FMA(p, x, ATTN__ALL(c[i]));
    return p;
}

/* N vectors side by side, so that none waits for another: x becomes e^r, and t holds n + 127 in its low bits. */
ATTN__HELPER void ATTN__V(exp_poly)(const int N, ATTN__VEC *x, ATTN__VEC *t)
{
    static const float c[] = {ATTN__EXP_C6, ATTN__EXP_C5, ATTN__EXP_C4, ATTN__EXP_C3, ATTN__EXP_C2, 1.0f, 1.0f};
    ATTN__VEC n[4], p[4];
    int i, u;
    ATTN__EACH(u, N) t[u] = ATTN__FMA(x[u], ATTN__ALL(ATTN__LOG2E), ATTN__ALL(ATTN__EXP_MAGIC));
    ATTN__EACH(u, N) n[u] = ATTN__SUB(t[u], ATTN__ALL(ATTN__EXP_MAGIC));
    ATTN__EACH(u, N) x[u] = ATTN__FMA(n[u], ATTN__ALL(-ATTN__LN2_HI), x[u]);
    ATTN__EACH(u, N) x[u] = ATTN__FMA(n[u], ATTN__ALL(-ATTN__LN2_LO), x[u]);
    ATTN__EACH(u, N) p[u] = ATTN__ALL(c[0]);
    ATTN__EACH(i, 6) ATTN__EACH(u, N) p[u] = ATTN__FMA(p[u], x[u], ATTN__ALL(c[i + 1]));
    ATTN__EACH(u, N) x[u] = p[u];
}

ATTN__HELPER ATTN__VEC ATTN__V(exp)(ATTN__VEC x)
{
    ATTN__VEC p = x, t;
    ATTN__V(exp_poly)(1, &p, &t);
    return ATTN__CLEAR(ATTN__MUL(p, ATTN__LEFT(t, 23)), ATTN__LESS(x, ATTN__ALL(ATTN__EXP_LOWEST)));
}

/* e^x of N vectors, none above 0. low: where some may underflow. Then, and only then, the result is below 2^-126: to be
   cut there, for the same bits, which keeps a register free here. */
ATTN__HELPER void ATTN__V(exp_side_by_side)(const int N, const int low, ATTN__VEC *x)
{
    ATTN__VEC t[4];
    int u;
    if (low) ATTN__EACH(u, N) x[u] = ATTN__MAX(ATTN__ALL(ATTN__EXP_NOTHING), x[u]);
    ATTN__V(exp_poly)(N, x, t);
    ATTN__EACH(u, N) x[u] = ATTN__MUL(x[u], ATTN__LEFT(t[u], 23));
}

ATTN__HELPER ATTN__VEC ATTN__V(exp_full)(ATTN__VEC x)
{
    ATTN__VEC p, t, n;
    p = x = ATTN__MIN(ATTN__ALL(100.0f), x);                    /* in this order NaN passes */
    ATTN__V(exp_poly)(1, &p, &t);
    n = ATTN__ADD_BITS(t, ATTN__ALL_BITS(254u - attn__bits(ATTN__EXP_MAGIC)));     /* n + 254, and 2^n in two factors */
    p = ATTN__MUL(p, ATTN__LEFT(ATTN__RIGHT(n, 1), 23));
    p = ATTN__MUL(p, ATTN__LEFT(ATTN__RIGHT(ATTN__ADD_BITS(n, ATTN__ALL_BITS(1)), 1), 23));
    return ATTN__CLEAR(p, ATTN__LESS(x, ATTN__ALL(ATTN__EXP_LOWEST)));
}

ATTN__HELPER ATTN__VEC ATTN__V(log)(ATTN__VEC x)
{
    static const float c[] = {ATTN__LOG_C7, ATTN__LOG_C6, ATTN__LOG_C5, ATTN__LOG_C4, ATTN__LOG_C3, ATTN__LOG_C2,
                              ATTN__LOG_C1, ATTN__LOG_C0, -0.5f};
    const ATTN__MASK tiny = ATTN__LESS(x, ATTN__ALL(ATTN__SMALLEST));
    const ATTN__VEC y = ATTN__PICK(x, ATTN__MUL(x, ATTN__ALL(8388608.0f)), tiny);
    const ATTN__VEC b = ATTN__ADD_BITS(y, ATTN__ALL_BITS(0u - ATTN__SQRT_HALF));
    const ATTN__VEC e = ATTN__SUB(ATTN__TO_FLOATS(ATTN__RIGHT(b, 23)),
                                  ATTN__PICK(ATTN__ALL(0.0f), ATTN__ALL(23.0f), tiny));
    const ATTN__VEC m = ATTN__ADD_BITS(ATTN__AND(b, ATTN__ALL_BITS(0x007fffff)), ATTN__ALL_BITS(ATTN__SQRT_HALF));
    const ATTN__VEC f = ATTN__SUB(m, ATTN__ALL(1.0f));
    ATTN__VEC q = ATTN__MUL(ATTN__V(polynomial)(f, c, 9), ATTN__MUL(f, f));
    q = ATTN__FMA(e, ATTN__ALL(ATTN__LN2_LO), q);
    q = ATTN__FMA(e, ATTN__ALL(ATTN__LN2_HI), ATTN__ADD(q, f));
    q = ATTN__PICK(q, x, ATTN__SAME(x, ATTN__ALL(ATTN__INF)));
    q = ATTN__PICK(ATTN__ALL(ATTN__NAN), q, ATTN__LESS(ATTN__ALL(0.0f), x));
    return ATTN__PICK(q, ATTN__ALL(ATTN__NEG_INF), ATTN__SAME(x, ATTN__ALL(0.0f)));
}

ATTN__HELPER ATTN__VEC ATTN__V(tanh)(ATTN__VEC x)
{
    static const float c[] = {ATTN__TANH_C4, ATTN__TANH_C3, ATTN__TANH_C2, ATTN__TANH_C1, ATTN__TANH_C0};
    const ATTN__VEC sign = ATTN__AND(x, ATTN__ALL(-0.0f)), one = ATTN__ALL(1.0f);
    const ATTN__VEC b = ATTN__MIN(ATTN__ALL(10.0f), ATTN__XOR(x, sign)), x2 = ATTN__MUL(b, b);
    const ATTN__VEC p = ATTN__FMA(ATTN__MUL(b, x2), ATTN__V(polynomial)(x2, c, 5), b);
    const ATTN__VEC y = ATTN__SUB(one, ATTN__DIV(ATTN__ALL(2.0f), ATTN__ADD(ATTN__V(exp)(ATTN__ADD(b, b)), one)));
    return ATTN__XOR(ATTN__PICK(y, p, ATTN__LESS(b, ATTN__ALL(ATTN__TANH_SPLIT))), sign);
}

ATTN__HELPER ATTN__VEC ATTN__V(quiet)(ATTN__VEC x)
{
    return ATTN__PICK(x, ATTN__ALL(ATTN__NAN), ATTN__UNORDERED(x, x));
}

/* ---- products */
/* Brings the rows of A after r .. r+n near, and the other matrix's rows r .. r+n. */
ATTN__NOINLINE static void ATTN__V(fetch)(const attn__product *p, int64_t r, int64_t n)
{
    int64_t i, k;
    for (i = r; i < r + n; i++) {
        const float *a = attn__ahead(p->a, i + n, p->a_row), *other = attn__ahead(p->fetch, i, p->fetch_row);
        for (k = 0; k < p->depth; k += 16) ATTN__PREFETCH(a + k);
        for (k = 0; k < p->fetch_size; k += 16) ATTN__PREFETCH_FAR(other + k);
    }
}

/* The same for a block of LANES rows, step by step along their `depth` columns: at column k what belongs to LANES. */
ATTN__INLINE void ATTN__V(fetch_block)(const float *at, int64_t row, int64_t depth, int64_t k)
{
    const int W = ATTN__LANES;
    int x;
    if (row == depth) ATTN__UNROLL for (x = 0; x < W*W; x += 16) ATTN__PREFETCH_FAR(attn__ahead(at, 1, W*k + x));
    else if (k % 16 == 0) for (x = 0; x < W; x++) ATTN__PREFETCH_FAR(attn__ahead(at, x, row) + k);
}

/* A strip of R rows and N vectors in registers. R, N and kind are constants where this is inlined. */
ATTN__HELPER void ATTN__V(strip)(const int R, const int N, const int kind, const attn__product *p, const float *a,
                                 float *c)
{
    const int64_t a_row = p->a_row, a_k = p->a_k, b_row = p->b_row, c_row = p->c_row, depth = p->depth;
    const int go_on = kind != ATTN__SQUARED_DISTANCE && p->onto == ATTN__GO_ON;
    const float *b = p->b, *a3 = a + 3*a_row;       /* of six rows three: else their distances do not fit registers */
    ATTN__VEC acc[ATTN__SUMS], q[8], s, t;
    int64_t k;
    int r, i;
    if (R == 6) ATTN__KEEP_POINTER(a3);
    if (p->onto == ATTN__ADD_AFTER) ATTN__EACH(r, R) ATTN__PREFETCH(c + r*c_row);
    ATTN__EACH(r, R) ATTN__EACH(i, N)
        acc[r*N + i] = go_on ? ATTN__LOAD(c + r*c_row + ATTN__LANES*i) : ATTN__ALL(0.0f);
    for (k = depth; k > 0; k--, a += a_k, a3 += a_k, b += b_row) {
        if (N == 8) ATTN__EACH(i, ATTN__LANES / 2) {
            ATTN__PREFETCH(attn__ahead(b, 16, b_row) + 16*i);
            if (p->fetch) ATTN__PREFETCH_FAR(attn__ahead(p->fetch, depth - k, p->fetch_row) + 16*i);
        }
        ATTN__EACH(i, N) {
            q[i] = ATTN__LOAD(b + ATTN__LANES*i);
            if (R > 1 && kind != ATTN__SQUARED_DISTANCE) ATTN__KEEP(q[i]);  /* no register to spare: read again */
        }
        ATTN__EACH(r, R) {
            s = ATTN__BROADCAST(R == 6 && r >= 3 ? a3 + (r - 3)*a_row : a + r*a_row);
            ATTN__EACH(i, N) {
                if (kind == ATTN__PRODUCT) {
                    acc[r*N + i] = ATTN__FMA(s, q[i], acc[r*N + i]);
                    if (N == 3 && r == 0) ATTN__KEEP(acc[i]);       /* clang 19 moves all sums in each step else */
                } else if (kind == ATTN__PRODUCT_OF_ALLOWED)
                    acc[r*N + i] = ATTN__PICK(ATTN__FMA(s, q[i], acc[r*N + i]), acc[r*N + i], ATTN__NEGATIVE(q[i]));
                else if (kind == ATTN__SQUARED_DISTANCE) {
                    t = ATTN__SUB(s, q[i]);
                    acc[r*N + i] = ATTN__FMA(t, t, acc[r*N + i]);
                } else {
                    t = ATTN__SUB(q[i], ATTN__LOAD(p->x + r*p->x_row + ATTN__LANES*i));
                    acc[r*N + i] = ATTN__FMA(s, t, acc[r*N + i]);
                }
            }
        }
    }
    if (p->onto == ATTN__ADD_AFTER) ATTN__EACH(r, R) ATTN__EACH(i, N)
        acc[r*N + i] = ATTN__ADD(ATTN__LOAD(c + r*c_row + ATTN__LANES*i), acc[r*N + i]);
    ATTN__EACH(r, R) ATTN__EACH(i, N) ATTN__STORE(c + r*c_row + ATTN__LANES*i, acc[r*N + i]);
}

/* All rows: strips of R, then of two (where it pays to compile them), then single ones. */
ATTN__HELPER void ATTN__V(rows)(const int R, const int N, const int kind, const attn__product *p)
{
    int64_t r = 0;
    for (; r + R <= p->rows; r += R) {
        if (p->fetch) ATTN__V(fetch)(p, r, R);
        ATTN__V(strip)(R, N, kind, p, p->a + r*p->a_row, p->c + r*p->c_row);
    }
    if (kind == ATTN__PRODUCT) for (; r + 2 <= p->rows; r += 2)
        ATTN__V(strip)(2, N, kind, p, p->a + r*p->a_row, p->c + r*p->c_row);
    for (; r < p->rows; r++) ATTN__V(strip)(1, N, kind, p, p->a + r*p->a_row, p->c + r*p->c_row);
}

/* What is rarer than a product, in one or two vectors at a time: short rather than fast. */
ATTN__KERNEL void ATTN__V(product_rare)(const attn__product *p)
{
    attn__product part = *p;
    int64_t r, i;
    for (i = 0; i < p->vecs; i += part.vecs) {
        part.b = p->b + ATTN__LANES*i;
        part.c = p->c + ATTN__LANES*i;
        part.vecs = p->kind == ATTN__SQUARED_DISTANCE && i + 2 <= p->vecs ? 2 : 1;
        if (part.vecs == 2) ATTN__V(rows)(6, 2, ATTN__SQUARED_DISTANCE, &part);
        else if (p->kind == ATTN__SQUARED_DISTANCE) ATTN__V(rows)(8, 1, ATTN__SQUARED_DISTANCE, &part);
        else for (r = 0; r < p->rows; r++, part.a += p->a_row, part.c += p->c_row)
            if (p->kind == ATTN__WEIGHTED_DIFFERENCE) {
                part.x = p->x + r*p->x_row + ATTN__LANES*i;
                ATTN__V(strip)(1, 1, ATTN__WEIGHTED_DIFFERENCE, &part, part.a, part.c);
            } else ATTN__V(strip)(1, 1, ATTN__PRODUCT_OF_ALLOWED, &part, part.a, part.c);
        part.a = p->a;
    }
}

ATTN__KERNEL void ATTN__V(product)(const attn__product *p)
{
    ATTN_ASSERT(p->vecs < 8 || (p->rows == 1 && p->kind == ATTN__PRODUCT));
    if (p->kind != ATTN__PRODUCT) ATTN__V(product_rare)(p);
    else if (p->vecs == 8) ATTN__V(strip)(1, 8, ATTN__PRODUCT, p, p->a, p->c);      /* few rows: B is read in place */
    else if (ATTN__VECS >= 4 && p->vecs == 4) ATTN__V(rows)(ATTN__SUMS / 4, 4, ATTN__PRODUCT, p);
    else if (p->vecs == 3) ATTN__V(rows)(ATTN__SUMS / 3, 3, ATTN__PRODUCT, p);
    else if (p->vecs == 2) ATTN__V(rows)(ATTN__SUMS / 2, 2, ATTN__PRODUCT, p);
    else ATTN__V(rows)(8, 1, ATTN__PRODUCT, p);
}

/* R rows against LANES of B's rows. On the way come near, in the order of memory, so that the machine's own prefetching
   follows: B's rows after the next ones, and as many of the matrix that is used next. */
ATTN__HELPER void ATTN__V(dots_block)(const int R, const attn__product *p, int64_t j, int64_t last)
{
    const int64_t row = p->b_row;
    const float *a = p->a, *b = p->b + j*row, *y;
    const float *ahead = attn__ahead(b, 2*ATTN__LANES, row), *fetch = attn__ahead(p->fetch, j, p->fetch_row);
    float *c = p->c + j, column[ATTN__LANES];
    ATTN__VEC acc[ATTN__FEW], t[ATTN__LANES];
    int64_t k = 0;
    int r, x;
    ATTN__EACH(r, R) acc[r] = ATTN__ALL(0.0f);
    for (; k + ATTN__LANES <= p->depth; k += ATTN__LANES) {
        ATTN__UNROLL for (y = b + k, x = 0; x < ATTN__LANES; x++, y += x <= last ? row : 0) t[x] = ATTN__LOAD(y);
        ATTN__V(fetch_block)(ahead, row, p->depth, k);
        if (p->fetch) ATTN__V(fetch_block)(fetch, p->fetch_row, p->depth, k);
        ATTN__V(transpose)(t);
        ATTN__UNROLL for (x = 0; x < ATTN__LANES; x++, a += ATTN__LANES)
            ATTN__EACH(r, R) acc[r] = ATTN__FMA(ATTN__BROADCAST(a + r), t[x], acc[r]);
    }
    for (; k < p->depth; k++, a += ATTN__LANES) {
        for (y = b + k, x = 0; x < ATTN__LANES; x++, y += x <= last ? row : 0) column[x] = *y;
        t[0] = ATTN__LOAD(column);
        ATTN__EACH(r, R) acc[r] = ATTN__FMA(ATTN__BROADCAST(a + r), t[0], acc[r]);
    }
    ATTN__UNROLL for (r = 0; r < R; r++, c += p->c_row) if (r < p->rows) ATTN__STORE(c, acc[r]);
}

ATTN__KERNEL void ATTN__V(dots)(const attn__product *p, int64_t columns)
{
    int64_t j;
    ATTN_ASSERT(p->a_k == ATTN__LANES);
    for (j = 0; j < columns; j += ATTN__LANES)
        if (p->rows == 1 && j + ATTN__LANES <= columns) ATTN__V(dots_block)(1, p, j, ATTN__LANES - 1);
        else ATTN__V(dots_block)(ATTN__FEW, p, j, columns - 1 - j);     /* of the last row what there is, and again */
}

/* ---- additive scores */
ATTN__HELPER ATTN__VEC ATTN__V(tree)(const int n, ATTN__VEC *part)     /* step by step that of attn__tree */
{
    int r;
    ATTN__EACH(r, 8) if (r + 8 < n) part[r] = ATTN__ADD(part[r], part[r + 8]);
    ATTN__EACH(r, 4) if (r + 4 < n) part[r] = ATTN__ADD(part[r], part[r + 4]);
    ATTN__EACH(r, 2) if (r + 2 < n) part[r] = ATTN__ADD(part[r], part[r + 2]);
    if (n > 1) part[0] = ATTN__ADD(part[0], part[1]);
    return part[0];
}

/* Four hidden units: their terms over a common denominator. */
ATTN__HELPER ATTN__VEC ATTN__V(additive_terms)(const float *e, int64_t ld, const float *f, const float *w)
{
    ATTN__VEC d[4], n0, n1, d0, d1;
    int g;
    ATTN__EACH(g, 4) d[g] = ATTN__FMA(ATTN__LOAD(e + g*ld), ATTN__BROADCAST(f + g), ATTN__ALL(1.0f));
    ATTN__EACH(g, 4) d[g] = ATTN__MIN(d[g], ATTN__ALL(1073741824.0f));
    n0 = ATTN__FMA(ATTN__BROADCAST(w), d[1], ATTN__MUL(ATTN__BROADCAST(w + 1), d[0]));
    n1 = ATTN__FMA(ATTN__BROADCAST(w + 2), d[3], ATTN__MUL(ATTN__BROADCAST(w + 3), d[2]));
    d0 = ATTN__MUL(d[0], d[1]);
    d1 = ATTN__MUL(d[2], d[3]);
    return ATTN__DIV(ATTN__FMA(n0, d1, ATTN__MUL(n1, d0)), ATTN__MUL(d0, d1));
}

ATTN__KERNEL void ATTN__V(additive)(const attn__additive *p)
{
    const int64_t ld = p->ld;
    int64_t i, j, u;
    int g;
    for (i = 0; i < p->vecs; i++)
        for (j = 0; j < p->rows; j++) {
            const float *f = p->key + j*p->key_stride, *e = p->query + ATTN__LANES*i, *w = p->w;
            ATTN__VEC part[ATTN__TERMS];
            ATTN__EACH(g, ATTN__TERMS) part[g] = ATTN__ALL(0.0f);
            for (u = 0; u < p->hidden; u += 4*ATTN__TERMS)
                ATTN__EACH(g, ATTN__TERMS) {
                    if (u + 4*g >= p->hidden) break;
                    part[g] = ATTN__ADD(part[g], ATTN__V(additive_terms)(e, ld, f, w));
                    e += 4*ld;
                    f += 4;
                    w += 4;
                }
            part[0] = ATTN__FMA(ATTN__ALL(-2.0f), ATTN__V(tree)(ATTN__TERMS, part), ATTN__ALL(p->w_sum));
            ATTN__STORE(p->s + j*ld + ATTN__LANES*i, ATTN__MUL(ATTN__ALL(p->scale), part[0]));
        }
}

ATTN__KERNEL void ATTN__V(additive_direct)(const attn__additive *p)
{
    int64_t i, j, u;
    for (j = 0; j < p->rows; j++)
        for (i = 0; i < p->vecs; i++) {
            ATTN__VEC part[ATTN__TERMS], x;
            for (u = 0; u < ATTN__TERMS; u++) part[u] = ATTN__ALL(0.0f);
            for (u = 0; u < p->hidden; u++) {
                x = ATTN__LOAD(p->query + u*p->ld + ATTN__LANES*i);
                x = ATTN__ADD(x, ATTN__BROADCAST(p->key + j*p->key_stride + u));
                x = ATTN__FMA(ATTN__BROADCAST(p->w + u), ATTN__V(tanh)(x), part[u % ATTN__TERMS]);
                part[u % ATTN__TERMS] = x;
            }
            x = ATTN__MUL(ATTN__ALL(p->scale), ATTN__V(tree)(ATTN__TERMS, part));
            ATTN__STORE(p->s + j*p->ld + ATTN__LANES*i, x);
        }
}

/* ---- weights, and chunks into the whole */
/* Scores of N keys become weights. */
ATTN__HELPER void ATTN__V(weigh_keys)(const int N, const int low, float *s, int64_t ld, ATTN__VEC base, int mark,
                                      ATTN__VEC *part)
{
    ATTN__VEC x[4];
    int u;
    ATTN__EACH(u, N) x[u] = ATTN__SUB(ATTN__LOAD(s + u*ld), base);
    ATTN__V(exp_side_by_side)(N, low, x);
    ATTN__EACH(u, N) {
        x[u] = ATTN__CLEAR(x[u], ATTN__LESS(x[u], ATTN__ALL(ATTN__SMALLEST)));
        if (mark) x[u] = ATTN__PICK(x[u], ATTN__ALL(-0.0f),
                                    ATTN__SAME(ATTN__LOAD(s + u*ld), ATTN__ALL(ATTN__NEG_INF)));
        ATTN__STORE(s + u*ld, x[u]);
        part[u] = ATTN__ADD(part[u], x[u]);
    }
}

/* Whole groups of 16 keys, each with its own sum, go four at a time. */
ATTN__KERNEL void ATTN__V(weigh)(float *s, int64_t ld, int64_t j0, int64_t j1, int mark, float *top, float *sum)
{
    const ATTN__VEC none = ATTN__ALL(ATTN__NEG_INF);
    ATTN__VEC m, base, part[ATTN__PARTS], largest[4], least = ATTN__ALL(ATTN__INF);
    int64_t j;
    int r, u, w, low;
    ATTN__EACH(u, 4) largest[u] = none;
    for (j = j0; j + 4 <= j1; j += 4)
        ATTN__EACH(u, 4) {
            base = ATTN__LOAD(s + (j + u)*ld);
            largest[u] = ATTN__MAX(base, largest[u]);
            least = ATTN__MIN(base, least);
        }
    low = j < j1;
    for (; j < j1; j++) largest[0] = ATTN__MAX(ATTN__LOAD(s + j*ld), largest[0]);
    m = ATTN__MAX(ATTN__MAX(largest[0], largest[1]), ATTN__MAX(largest[2], largest[3]));
    m = ATTN__ADD(m, ATTN__ALL(0.0f));
    base = ATTN__CLEAR(m, ATTN__SAME(m, none));
    low = low || ATTN__ANY(ATTN__LESS(ATTN__SUB(least, base), ATTN__ALL(ATTN__EXP_LOWEST)));
    ATTN__EACH(r, ATTN__PARTS) part[r] = ATTN__ALL(0.0f);
    for (j = j0; j < j1; j += w) {
        r = (int)((uint64_t)j % ATTN__PARTS);
        w = r == 0 && j + ATTN__PARTS <= j1 && !mark ? ATTN__PARTS : 1;
        if (w == 1) ATTN__V(weigh_keys)(1, 1, s + j*ld, ld, base, mark, part + r);
        else if (low) for (r = 0; r < ATTN__PARTS; r += 4)
            ATTN__V(weigh_keys)(4, 1, s + (j + r)*ld, ld, base, 0, part + r);
        else for (r = 0; r < ATTN__PARTS; r += 4) ATTN__V(weigh_keys)(4, 0, s + (j + r)*ld, ld, base, 0, part + r);
    }
    ATTN__STORE(top, m);
    ATTN__STORE(sum, ATTN__V(tree)(ATTN__PARTS, part));
}

ATTN__KERNEL void ATTN__V(join)(int64_t lanes, float *top, float *sum, const float *cmax, const float *csum, float *old,
                                float *fresh)
{
    int64_t i;
    for (i = 0; i < lanes; i += ATTN__LANES) {
        const ATTN__VEC before = ATTN__LOAD(top + i), now = ATTN__LOAD(cmax + i), m = ATTN__MAX(now, before);
        const ATTN__VEC base = ATTN__CLEAR(m, ATTN__SAME(m, ATTN__ALL(ATTN__NEG_INF)));
        const ATTN__VEC x = ATTN__V(exp)(ATTN__SUB(before, base)), y = ATTN__V(exp)(ATTN__SUB(now, base));
        ATTN__STORE(old + i, x);
        ATTN__STORE(fresh + i, y);
        ATTN__STORE(sum + i, ATTN__FMA(ATTN__LOAD(csum + i), y, ATTN__MUL(ATTN__LOAD(sum + i), x)));
        ATTN__STORE(top + i, m);
    }
}

ATTN__KERNEL void ATTN__V(merge)(int64_t rows, int64_t ld, float *o, const float *acc, const float *old,
                                 const float *fresh)
{
    int64_t r, i;
    for (r = 0; r < rows; r++, o += ld, acc += ld)
        for (i = 0; i < ld; i += ATTN__LANES) {
            const ATTN__VEC kept = ATTN__MUL(ATTN__LOAD(o + i), ATTN__LOAD(old + i));
            ATTN__STORE(o + i, ATTN__ADD(ATTN__FMA(ATTN__LOAD(acc + i), ATTN__LOAD(fresh + i), kept), ATTN__ALL(0.0f)));
        }
}

/* ---- rows into lanes and back */
/* Blocks of LANES rows and as many columns are turned in registers; what is left, or does not lie side by side, goes
   column by column. */
ATTN__KERNEL void ATTN__V(pack)(float *to, int64_t ld, const float *const *rows, int64_t stride, int64_t n,
                                const float *scale)
{
    float column[ATTN__LANES];
    ATTN__VEC r[ATTN__LANES];
    int64_t i, c, step;
    int x;
    for (i = 0; i < ld; i += ATTN__LANES)
        for (c = 0; c < n; c += step) {
            step = stride == 1 && c + ATTN__LANES <= n ? ATTN__LANES : 1;
            if (step == 1) {
                for (x = 0; x < ATTN__LANES; x++) column[x] = rows[i + x][c*stride];
                ATTN__STORE(to + c*ld + i, ATTN__MUL(ATTN__LOAD(column), ATTN__LOAD(scale + i)));
                continue;
            }
            ATTN__EACH(x, ATTN__LANES) r[x] = ATTN__LOAD(rows[i + x] + c);
            ATTN__V(transpose)(r);
            ATTN__EACH(x, ATTN__LANES) ATTN__STORE(to + (c + x)*ld + i, ATTN__MUL(r[x], ATTN__LOAD(scale + i)));
        }
}

ATTN__KERNEL void ATTN__V(unpack)(float *const *rows, int64_t lanes, int64_t stride, const float *from, int64_t ld,
                                  int64_t n, const float *scale)
{
    float column[ATTN__LANES];
    ATTN__VEC r[ATTN__LANES], factor;
    int64_t i, c, step;
    int x;
    for (i = 0; i < lanes; i += ATTN__LANES)
        for (c = 0; c < n; c += step) {
            step = stride == 1 && c + ATTN__LANES <= n ? ATTN__LANES : 1;
            factor = ATTN__LOAD(scale + i);
            if (step == 1) {
                ATTN__STORE(column, ATTN__V(quiet)(ATTN__MUL(ATTN__LOAD(from + c*ld + i), factor)));
                for (x = 0; x < ATTN__LANES && i + x < lanes; x++) rows[i + x][c*stride] = column[x];
                continue;
            }
            ATTN__EACH(x, ATTN__LANES) r[x] = ATTN__V(quiet)(ATTN__MUL(ATTN__LOAD(from + (c + x)*ld + i), factor));
            ATTN__V(transpose)(r);
            for (x = 0; x < ATTN__LANES && i + x < lanes; x++) ATTN__STORE(rows[i + x] + c, r[x]);
        }
}

ATTN__HELPER void ATTN__V(add_bias)(float *s, ATTN__VEC bias, int keep)
{
    const ATTN__VEC v = ATTN__LOAD(s), none = ATTN__ALL(ATTN__NEG_INF), kept = keep ? none : ATTN__ALL(ATTN__NAN);
    const ATTN__MASK out = ATTN__EITHER(ATTN__SAME(bias, none), ATTN__SAME(v, kept));
    ATTN__STORE(s, ATTN__PICK(ATTN__ADD(v, bias), none, out));
}

ATTN__KERNEL void ATTN__V(bias)(float *s, int64_t ld, int64_t n, const float *const *rows, int64_t stride, int keep)
{
    float column[ATTN__LANES];
    ATTN__VEC r[ATTN__LANES];
    int64_t i, j, step;
    int x;
    for (i = 0; i < ld; i += ATTN__LANES)
        for (j = 0; j < n; j += step) {
            step = stride == 1 && j + ATTN__LANES <= n ? ATTN__LANES : 1;
            if (step == 1) {
                for (x = 0; x < ATTN__LANES; x++) column[x] = rows[i + x][j*stride];
                ATTN__V(add_bias)(s + j*ld + i, ATTN__LOAD(column), keep);
                continue;
            }
            ATTN__EACH(x, ATTN__LANES) r[x] = ATTN__LOAD(rows[i + x] + j);
            if (j % 16 == 0) for (x = 0; x < ATTN__LANES; x++)      /* half a chunk ahead */
                ATTN__PREFETCH_FAR(attn__ahead(rows[i + x] + j, 1, ATTN__CHUNK / 2));
            ATTN__V(transpose)(r);
            ATTN__EACH(x, ATTN__LANES) ATTN__V(add_bias)(s + (j + x)*ld + i, r[x], keep);
        }
}

ATTN__KERNEL void ATTN__V(exclude)(float *s, int64_t ld, int64_t n, const uint8_t *const *rows, int64_t stride)
{
    ATTN__VEC r[ATTN__LANES];
    int64_t i, j, step;
    int x;
    for (i = 0; i < ld; i += ATTN__LANES)
        for (j = 0; j < n; j += step) {
            step = stride == 1 && j + ATTN__LANES <= n ? ATTN__LANES : 1;
            if (step == 1) {
                for (x = 0; x < ATTN__LANES; x++) if (!rows[i + x][j*stride]) s[j*ld + i + x] = ATTN__NEG_INF;
                continue;
            }
            ATTN__EACH(x, ATTN__LANES) r[x] = ATTN__LOAD_BYTES(rows[i + x] + j);
            ATTN__V(transpose)(r);
            ATTN__EACH(x, ATTN__LANES) {
                float *at = s + (j + x)*ld + i;
                const ATTN__MASK out = ATTN__SAME_BITS(r[x], ATTN__ALL(0.0f));
                ATTN__STORE(at, ATTN__PICK(ATTN__LOAD(at), ATTN__ALL(ATTN__NEG_INF), out));
            }
        }
}

/* ---- number by number: functions, score transforms, masks */
/* The numbers x[0] .. x[n - 1], at most LANES of them, the others 0; and back. */
ATTN__HELPER ATTN__VEC ATTN__V(take)(const float *x, int64_t n)
{
    float some[ATTN__LANES];
    int64_t i;
    if (n >= ATTN__LANES) return ATTN__LOAD(x);
    for (i = 0; i < ATTN__LANES; i++) some[i] = i < n ? x[i] : 0.0f;
    return ATTN__LOAD(some);
}
ATTN__HELPER void ATTN__V(give)(float *x, int64_t n, ATTN__VEC v)
{
    float some[ATTN__LANES];
    int64_t i;
    if (n >= ATTN__LANES) { ATTN__STORE(x, v); return; }
    ATTN__STORE(some, v);
    for (i = 0; i < n; i++) x[i] = some[i];
}

ATTN__HELPER void ATTN__V(map)(const int function, const float *x, float *y, int64_t n)
{
    int64_t i;
    for (i = 0; i < n; i += ATTN__LANES) {
        ATTN__VEC v = ATTN__V(take)(x + i, n - i);
        if (function == 0) v = ATTN__V(exp_full)(v);
        else if (function == 1) v = ATTN__V(log)(v);
        else v = ATTN__V(tanh)(v);
        ATTN__V(give)(y + i, n - i, v);
    }
}
ATTN__KERNEL void ATTN__V(elementary)(int32_t function, const float *x, float *y, int64_t n)
{
    if (function == 0) ATTN__V(map)(0, x, y, n);
    else if (function == 1) ATTN__V(map)(1, x, y, n);
    else ATTN__V(map)(2, x, y, n);
}

ATTN__KERNEL int ATTN__V(finite)(const float *x, int64_t n)
{
    const ATTN__VEC exponent = ATTN__ALL(ATTN__INF);
    ATTN__MASK bad = ATTN__SAME_BITS(ATTN__ALL(0.0f), exponent);
    int64_t i = 0;
    for (; i + ATTN__LANES <= n; i += ATTN__LANES)
        bad = ATTN__EITHER(bad, ATTN__SAME_BITS(ATTN__AND(ATTN__LOAD(x + i), exponent), exponent));
    return !ATTN__ANY(bad) && attn__finite_scalar(x + i, n - i);
}

ATTN__KERNEL void ATTN__V(softcap)(float *x, int64_t n, float cap, int keep)
{
    const ATTN__VEC c = ATTN__ALL(cap), none = keep ? ATTN__ALL(ATTN__NEG_INF) : ATTN__ALL(ATTN__NAN);
    int64_t i;
    for (i = 0; i < n; i += ATTN__LANES) {
        const ATTN__VEC v = ATTN__LOAD(x + i), y = ATTN__MUL(c, ATTN__V(tanh)(ATTN__DIV(v, c)));
        ATTN__STORE(x + i, ATTN__PICK(y, v, ATTN__SAME(v, none)));
    }
}

ATTN__KERNEL void ATTN__V(distance)(float *s, int64_t ld, int64_t n, int32_t score, const float *width)
{
    const ATTN__VEC one = ATTN__ALL(1.0f);
    int64_t j, i;
    for (j = 0; j < n; j++, s += ld)
        for (i = 0; i < ld; i += ATTN__LANES) {
            const ATTN__VEC x = ATTN__LOAD(s + i), v = ATTN__LOAD(width + i);
            ATTN__VEC u, y;
            if (score == ATTN_SCORE_GAUSSIAN) { ATTN__STORE(s + i, ATTN__MUL(x, v)); continue; }
            u = y = ATTN__DIV(x, v);
            if (score == ATTN_SCORE_TRIANGULAR) y = ATTN__SQRT(u);
            y = score == ATTN_SCORE_BOXCAR ? ATTN__ALL(0.0f) : ATTN__V(log)(ATTN__SUB(one, y));
            y = ATTN__PICK(ATTN__ALL(ATTN__NEG_INF), y, ATTN__AT_MOST(u, one));
            ATTN__STORE(s + i, ATTN__PICK(y, u, ATTN__UNORDERED(u, u)));
        }
}

ATTN__KERNEL void ATTN__V(alibi)(float *s, int64_t ld, int64_t n, const float *slope, const float *position)
{
    int64_t j, i;
    for (j = 0; j < n; j++, s += ld)
        for (i = 0; i < ld; i += ATTN__LANES) {
            const ATTN__VEC d = ATTN__SUB(ATTN__LOAD(position + i), ATTN__ALL((float)j));
            const ATTN__VEC falls = ATTN__XOR(ATTN__LOAD(slope + i), ATTN__ALL(-0.0f));
            ATTN__STORE(s + i, ATTN__FMA(falls, ATTN__AND(d, ATTN__ALL_BITS(0x7fffffff)), ATTN__LOAD(s + i)));
        }
}

ATTN__KERNEL void ATTN__V(clip)(float *s, int64_t ld, int64_t n, const int32_t *first, const int32_t *last)
{
    const ATTN__VEC none = ATTN__ALL(ATTN__NEG_INF);
    int64_t j, i;
    for (j = 0; j < n; j++, s += ld)
        for (i = 0; i < ld; i += ATTN__LANES) {
            const ATTN__MASK below = ATTN__ABOVE(ATTN__LOAD_BITS(first + i), ATTN__ALL_BITS(j));
            const ATTN__MASK inside = ATTN__ABOVE(ATTN__LOAD_BITS(last + i), ATTN__ALL_BITS(j));
            ATTN__STORE(s + i, ATTN__PICK(ATTN__PICK(none, ATTN__LOAD(s + i), inside), none, below));
        }
}

/* ---- rows that lie as they are */
ATTN__KERNEL void ATTN__V(mass)(const float *x, int64_t n, float scale, float *top, float *sum)
{
    const ATTN__VEC c = ATTN__ALL(scale);
    ATTN__VEC m = ATTN__ALL(ATTN__NEG_INF), base, sums[ATTN__PARTS / ATTN__LANES];
    float part[ATTN__PARTS];
    int64_t j;
    int r;
    for (j = 0; j < n; j += ATTN__LANES) m = ATTN__MAX(ATTN__MUL(ATTN__LOAD(x + j), c), m);
    ATTN__STORE(part, m);
    for (*top = part[0], r = 1; r < ATTN__LANES; r++) *top = attn__larger(part[r], *top);
    *top = *top + 0.0f;
    base = ATTN__ALL(attn__choose(attn__is_none(*top), 0.0f, *top));
    ATTN__EACH(r, ATTN__PARTS / ATTN__LANES) sums[r] = ATTN__ALL(0.0f);
    for (j = 0; j < n; j += ATTN__PARTS)
        ATTN__EACH(r, ATTN__PARTS / ATTN__LANES) {
            m = ATTN__SUB(ATTN__MUL(ATTN__LOAD(x + j + r*ATTN__LANES), c), base);
            sums[r] = ATTN__ADD(sums[r], ATTN__V(exp)(m));
        }
    ATTN__EACH(r, ATTN__PARTS / ATTN__LANES) ATTN__STORE(part + r*ATTN__LANES, sums[r]);
    *sum = attn__tree(part, ATTN__PARTS);
}

ATTN__KERNEL void ATTN__V(normalise)(const float *x, float *y, int64_t n, float scale, float top, float factor)
{
    int64_t i;
    for (i = 0; i < n; i += ATTN__LANES) {
        const ATTN__VEC v = ATTN__MUL(ATTN__V(take)(x + i, n - i), ATTN__ALL(scale));
        const ATTN__VEC w = ATTN__MUL(ATTN__V(exp)(ATTN__SUB(v, ATTN__ALL(top))), ATTN__ALL(factor));
        const ATTN__MASK out = ATTN__SAME(v, ATTN__ALL(ATTN__NEG_INF));
        const ATTN__MASK none = ATTN__EITHER(out, ATTN__LESS(w, ATTN__ALL(ATTN__SMALLEST)));
        ATTN__V(give)(y + i, n - i, ATTN__CLEAR(ATTN__V(quiet)(w), none));
    }
}

/* ---- dropout */
/* LANES counters at a time, those of as many lanes and the same four keys: as two sets, of the even and the odd lanes,
   each number in the lower half of 64 bits, where products leave theirs; what the upper halves hold does not matter. */
ATTN__HELPER void ATTN__V(philox)(const ATTN__VEC *k0, const ATTN__VEC *k1, ATTN__VEC w[2][4])
{
    const ATTN__VEC m0 = ATTN__ALL_BITS(0xd2511f53u), m1 = ATTN__ALL_BITS(0xcd9e8d57u);
    ATTN__VEC p0, p1;
    int round, half;
    for (round = 0; round < 10; round++)
        ATTN__EACH(half, 2) {
            p0 = ATTN__MULTIPLY_EVEN(w[half][0], m0);
            p1 = ATTN__MULTIPLY_EVEN(w[half][2], m1);
            w[half][0] = ATTN__XOR(ATTN__XOR(ATTN__ODD(p1), w[half][1]), k0[round]);
            w[half][2] = ATTN__XOR(ATTN__XOR(ATTN__ODD(p0), w[half][3]), k1[round]);
            w[half][1] = p1;
            w[half][3] = p0;
        }
}

ATTN__KERNEL void ATTN__V(drop)(const attn__drop *d)
{
    const ATTN__VEC below = ATTN__ALL_BITS((uint32_t)d->below), zero = ATTN__ALL(0.0f);
    const int all = d->below > 0xffffffffu;
    ATTN__VEC k0[10], k1[10], w[2][4];
    int64_t j, l;
    int x;
    for (x = 0; x < 10; x++) {
        k0[x] = ATTN__ALL_BITS((uint32_t)d->seed + (uint32_t)x * 0x9e3779b9u);
        k1[x] = ATTN__ALL_BITS((uint32_t)(d->seed >> 32) + (uint32_t)x * 0xbb67ae85u);
    }
    for (l = 0; l < d->lanes; l += ATTN__LANES)
        for (j = d->j0; j < d->j1; ) {
            uint32_t key = d->key + (uint32_t)j;
            w[0][0] = w[1][0] = ATTN__ALL_BITS(key / 4);
            w[0][1] = ATTN__LOAD_BITS(d->i + l);
            w[0][2] = ATTN__LOAD_BITS(d->h + l);
            w[1][1] = ATTN__ODD(w[0][1]);
            w[1][2] = ATTN__ODD(w[0][2]);
            w[0][3] = w[1][3] = ATTN__ALL_BITS(d->b);
            ATTN__V(philox)(k0, k1, w);
            ATTN__EACH(x, 4) w[0][x] = ATTN__EVENS(w[0][x], w[1][x]);
            do {
                float *s = d->s + j*d->ld + l;
                const ATTN__VEC v = ATTN__LOAD(s), word = w[0][key % 4];
                ATTN__MASK kept = ATTN__NEGATIVE(v);
                if (!all) kept = ATTN__EITHER(kept, ATTN__SAME_BITS(ATTN__MOST_BITS(word, below), word));
                ATTN__STORE(s, ATTN__PICK(zero, v, kept));
                j++;
                key++;
            } while (key % 4 && j < d->j1);
        }
}

/* ---- gradients */
#ifndef ATTN_NO_BACKWARD
ATTN__KERNEL void ATTN__V(inner)(const float *x, const float *y, int64_t ld, int64_t n, float *sum)
{
    int64_t c, l;
    for (l = 0; l < ld; l += ATTN__LANES) {
        ATTN__VEC acc = ATTN__ALL(0.0f);
        for (c = 0; c < n; c++) acc = ATTN__FMA(ATTN__LOAD(x + c*ld + l), ATTN__LOAD(y + c*ld + l), acc);
        ATTN__STORE(sum + l, acc);
    }
}

ATTN__KERNEL void ATTN__V(deliver)(const float *from, float *to, int64_t n, float factor, int add)
{
    int64_t c;
    for (c = 0; c < n; c += ATTN__LANES) {
        ATTN__VEC x = ATTN__V(take)(from + c, n - c);
        if (add) x = ATTN__FMA(x, ATTN__ALL(factor), ATTN__V(take)(to + c, n - c));
        else x = ATTN__MUL(x, ATTN__ALL(factor));
        ATTN__V(give)(to + c, n - c, ATTN__V(quiet)(x));
    }
}

/* N keys, step by step. No score is above its base, the maximum, and 1/mass is at most 1: so one cut below 2^-126 is
   enough. A copy of *g: gcc need not read it again after each store. */
ATTN__HELPER void ATTN__V(grade_keys)(const int N, attn__grade g, int64_t j, int64_t l, ATTN__VEC base,
                                      ATTN__VEC inverse, ATTN__VEC shift)
{
    const int64_t at = j * g.ld + l, to = j * g.row + l;
    ATTN__VEC x[4], p, dp, keep;
    int u;
    ATTN__EACH(u, N) x[u] = ATTN__SUB(ATTN__LOAD(g.s + at + u*g.ld), base);
    ATTN__V(exp_side_by_side)(N, 1, x);
    ATTN__EACH(u, N) {
        const ATTN__MASK out = ATTN__SAME(ATTN__LOAD(g.s + at + u*g.ld), ATTN__ALL(ATTN__NEG_INF));
        dp = ATTN__LOAD(g.dp + at + u*g.ld);
        x[u] = ATTN__MUL(x[u], inverse);
        p = x[u] = ATTN__CLEAR(x[u], ATTN__LESS(x[u], ATTN__ALL(ATTN__SMALLEST)));
        if (g.keep || g.more) {
            keep = g.keep ? ATTN__LOAD(g.keep + at + u*g.ld) : ATTN__ALL(1.0f);
            dp = ATTN__FMA(dp, keep, g.more ? ATTN__LOAD(g.more + at + u*g.ld) : ATTN__ALL(0.0f));
            p = ATTN__CLEAR(ATTN__MUL(x[u], keep), ATTN__SAME(keep, ATTN__ALL(0.0f)));
        }
        ATTN__STORE(g.p + to + u*g.row, ATTN__PICK(p, ATTN__ALL(-0.0f), out));
        ATTN__STORE(g.ds + to + u*g.row, ATTN__CLEAR(ATTN__MUL(x[u], ATTN__SUB(dp, shift)), out));
    }
}

ATTN__KERNEL void ATTN__V(grade)(const attn__grade *g)
{
    int64_t j, l;
    for (l = 0; l < g->ld; l += ATTN__LANES) {
        const ATTN__VEC base = ATTN__LOAD(g->base + l), inverse = ATTN__LOAD(g->inverse + l);
        const ATTN__VEC shift = ATTN__LOAD(g->shift + l);
        for (j = 0; j + 2 <= g->rows; j += 2) ATTN__V(grade_keys)(2, *g, j, l, base, inverse, shift);
        for (; j < g->rows; j++) ATTN__V(grade_keys)(1, *g, j, l, base, inverse, shift);
    }
}

ATTN__KERNEL void ATTN__V(additive_gradient)(const attn__additive_gradient *g)
{
    const ATTN__VEC one = ATTN__ALL(1.0f), minus_one = ATTN__ALL(-1.0f);
    const int64_t keys = g->keys, key_stride = g->key_stride, row = g->row, ld = g->ld;
    int64_t j, l;
    int u;
    for (l = 0; l < ld; l += ATTN__LANES) {
        const float *e = g->query + g->u * ld + l, *f = g->key + g->u, *from = g->ds + l;
        float *part = g->part + (g->lane0 + l) % ATTN__PARTS;
        ATTN__VEC da[4], dt[4], all = ATTN__ALL(0.0f), r;
        ATTN__EACH(u, 4) da[u] = dt[u] = ATTN__ALL(0.0f);
        for (j = 0; j < keys; j++, f += key_stride, from += row, part += 4 * ATTN__PARTS) {
            const ATTN__VEC ds = ATTN__LOAD(from);
            all = ATTN__ADD(all, ds);
            ATTN__EACH(u, 4) {
                r = ATTN__DIV(minus_one, ATTN__FMA(ATTN__LOAD(e + u*ld), ATTN__BROADCAST(f + u), one));
                dt[u] = ATTN__FMA(ds, r, dt[u]);
                r = ATTN__FMA(r, r, r);
                da[u] = ATTN__FMA(ds, r, da[u]);
                ATTN__STORE(part + u*ATTN__PARTS, ATTN__FMA(ds, r, ATTN__LOAD(part + u*ATTN__PARTS)));
            }
        }
        ATTN__EACH(u, 4) {
            float *to = g->da + u*row + l, *sum = g->dt + u*row + l;
            ATTN__STORE(to, ATTN__ADD(ATTN__LOAD(to), da[u]));
            ATTN__STORE(sum, ATTN__ADD(ATTN__LOAD(sum), ATTN__FMA(ATTN__ALL(2.0f), dt[u], all)));
        }
    }
}

/* LANES rows of part at a time, turned so that each has its tree in a lane: LANES/4 keys of four u. Beyond the last row
   that one again. */
ATTN__KERNEL void ATTN__V(fold)(const float *part, int64_t n, float *y, int64_t row)
{
    float sums[ATTN__LANES];
    ATTN__VEC t[ATTN__LANES], some[ATTN__PARTS / ATTN__LANES];
    int64_t j, x;
    int i;
    for (j = 0; j < 4*n; j += ATTN__LANES) {
        ATTN__EACH(x, ATTN__LANES) {
            const float *from = part + (j + x < 4*n ? j + x : j)*ATTN__PARTS;
            ATTN__EACH(i, ATTN__PARTS / ATTN__LANES) some[i] = ATTN__LOAD(from + i*ATTN__LANES);
            t[x] = ATTN__V(tree)(ATTN__PARTS / ATTN__LANES, some);
        }
        ATTN__V(transpose)(t);
        ATTN__STORE(sums, ATTN__V(tree)(ATTN__LANES, t));
        for (x = j; x < j + ATTN__LANES && x < 4*n; x++) y[x/4*row + x%4] = y[x/4*row + x%4] + sums[x - j];
    }
}
#endif

#define ATTN__X(result, name, parameters) , ATTN__V(name)
static const attn__kernels ATTN__V(table) = {ATTN__ISA, ATTN__LANES, ATTN__VECS ATTN__KERNEL_LIST(ATTN__X)};
#undef ATTN__X
#undef ATTN__ABOVE
#undef ATTN__ADD
#undef ATTN__ADD_BITS
#undef ATTN__ALL
#undef ATTN__ALL_BITS
#undef ATTN__AND
#undef ATTN__ANY
#undef ATTN__AT_MOST
#undef ATTN__BROADCAST
#undef ATTN__CLEAR
#undef ATTN__COMPARE
#undef ATTN__DIV
#undef ATTN__EACH
#undef ATTN__EITHER
#undef ATTN__EVENS
#undef ATTN__FLOATS
#undef ATTN__FMA
#undef ATTN__HELPER
#undef ATTN__INTS
#undef ATTN__KEEP
#undef ATTN__ISA
#undef ATTN__KERNEL
#undef ATTN__LEFT
#undef ATTN__LESS
#undef ATTN__LOAD
#undef ATTN__LOAD_BITS
#undef ATTN__LOAD_BYTES
#undef ATTN__MASK
#undef ATTN__MASK_REGISTER
#undef ATTN__MAX
#undef ATTN__MIN
#undef ATTN__MM
#undef ATTN__MOST_BITS
#undef ATTN__MUL
#undef ATTN__MULTIPLY_EVEN
#undef ATTN__NEGATIVE
#undef ATTN__ODD
#undef ATTN__ON_BITS
#undef ATTN__OPERATION
#undef ATTN__PICK
#undef ATTN__REGISTER
#undef ATTN__RIGHT
#undef ATTN__SAME
#undef ATTN__SAME_BITS
#undef ATTN__SQRT
#undef ATTN__STORE
#undef ATTN__SUB
#undef ATTN__SUMS
#undef ATTN__TO_FLOATS
#undef ATTN__UNORDERED
#undef ATTN__V
#undef ATTN__VEC
#undef ATTN__VECS
#undef ATTN__XOR
#undef ATTN__LANES
#endif /* ATTN__LANES */

#ifdef ATTN__IN_THE_MIDDLE
#undef ATTN__IN_THE_MIDDLE
/* ---------------------------------------------------------------------------------------------------- >>dispatch
   The instruction sets of this build, each by another reading of >>kernels-vector, and which of them runs. */
#if ATTN__X64 && !defined(ATTN_NO_SIMD)
#  ifndef ATTN_FILE             /* not of the file that is compiled: the header may have been pasted into that */
#    if defined(__FILE_NAME__) && defined(__INCLUDE_LEVEL__) && __INCLUDE_LEVEL__ > 0
#      define ATTN_FILE __FILE_NAME__
#    else
#      define ATTN_FILE "attn.h"
#    endif
#  endif
#  ifdef __has_include
#    if !__has_include(ATTN_FILE)
#      error "attn.h reads itself and did not find ATTN_FILE: define ATTN_FILE as its name, in quotes, or ATTN_NO_SIMD"
#    endif
#  endif
#endif

/* The tables of this build, the weakest first. */
#define ATTN__TABLES_0 &attn__table_scalar
#if ATTN__X64 && !defined(ATTN_NO_SIMD) && !defined(ATTN_NO_AVX2)
#  define ATTN__LANES 8
#  include ATTN_FILE
#  define ATTN__TABLES_1 ATTN__TABLES_0, &attn__table_avx2
#else
#  define ATTN__TABLES_1 ATTN__TABLES_0
#endif
#if ATTN__X64 && !defined(ATTN_NO_SIMD) && !defined(ATTN_NO_AVX512)
#  define ATTN__LANES 16
#  include ATTN_FILE
#  define ATTN__TABLES_2 ATTN__TABLES_1, &attn__table_avx512
#else
#  define ATTN__TABLES_2 ATTN__TABLES_1
#endif
#if defined(ATTN__LANES) || (defined(ATTN__READ) && ATTN__READ != ATTN_VERSION_NUMBER)
#  error "ATTN_FILE is not this attn.h, but another file or version: define ATTN_FILE as its name, or ATTN_NO_SIMD"
#endif
static const attn__kernels *const attn__tables[] = {ATTN__TABLES_2};

/* The kernels of an instruction set, or NULL where this build has none. */
static const attn__kernels *attn__table(int32_t isa)
{
    size_t i;
    for (i = 0; i < sizeof attn__tables / sizeof *attn__tables; i++)
        if (attn__tables[i]->isa == isa) return attn__tables[i];
    return NULL;
}

static int attn__cpu_has(attn_isa isa)
{
    if (!attn__table((int32_t)isa)) return 0;
#if ATTN__X64 && ATTN__GNU && !defined(_MSC_VER)
    __builtin_cpu_init();
    if (isa == ATTN_ISA_AVX2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (isa == ATTN_ISA_AVX512) return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
#elif ATTN__X64 && defined(_MSC_VER)
    if (isa != ATTN_ISA_SCALAR) {
        const int fma_osxsave_avx = (1 << 12) | (1 << 27) | (1 << 28);
        unsigned long long enabled;
        int r[4];
        __cpuid(r, 0);
        if (r[0] < 7) return 0;
        __cpuid(r, 1);
        if ((r[2] & fma_osxsave_avx) != fma_osxsave_avx) return 0;
        enabled = _xgetbv(0);
        __cpuidex(r, 7, 0);
        if (isa == ATTN_ISA_AVX2) return (enabled & 6) == 6 && (r[1] >> 5 & 1);
        if (isa == ATTN_ISA_AVX512) return (enabled & 0xe6) == 0xe6 && (r[1] >> 16 & 1) && (r[1] >> 17 & 1);
    }
#endif
    return 1;
}

ATTN_DEF attn_isa attn_best_isa(void)
{
    size_t i = sizeof attn__tables / sizeof *attn__tables - 1;
    while (!attn__cpu_has((attn_isa)attn__tables[i]->isa)) i--;
    return (attn_isa)attn__tables[i]->isa;
}

/* ---------------------------------------------------------------------------------------------------- >>validate
   Descriptors become a resolved copy and a geometry; every rule is checked before anything is written. */
static attn_status attn__fail2(attn_error *err, attn_status status, const char *field, const char *rule,
                               int64_t got, int64_t want)
{
    if (err) {
        err->status = (int32_t)status;
        err->field = field;
        err->rule = rule;
        err->got = got;
        err->want = want;
        err->has_numbers = 1;
        err->cuda = 0;
    }
    return status;
}
static attn_status attn__fail(attn_error *err, attn_status status, const char *field, const char *rule)
{
    attn__fail2(err, status, field, rule, 0, 0);
    if (err) err->has_numbers = 0;
    return status;
}
static attn_status attn__success(attn_error *err)
{
    attn__fail(err, ATTN_OK, "", "");
    return ATTN_OK;
}
#define ATTN__TRY(call) \
    do { const attn_status attn__st = (call); if (attn__st != ATTN_OK) return attn__st; } while (0)
#define ATTN__RULE(holds, status, field, rule) \
    do { if (!(holds)) return attn__fail(err, status, field, rule); } while (0)

/* Sizes are non-negative; a sum or product that does not fit sticks at the largest number. */
#define ATTN__HUGE ((int64_t)0x7fffffffffffffff)
static int64_t attn__add64(int64_t a, int64_t b) { return a > ATTN__HUGE - b ? ATTN__HUGE : a + b; }
static int64_t attn__mul64(int64_t a, int64_t b)
{
    if (((uint64_t)a | (uint64_t)b) >> 30 == 0) return a * b;       /* spares nearly every call the division */
    return b && a > ATTN__HUGE / b ? ATTN__HUGE : a * b;
}
/* For positions: any signs. */
static int64_t attn__add_signed(int64_t a, int64_t b)
{
    if (b > 0 && a > ATTN__HUGE - b) return ATTN__HUGE;
    if (b < 0 && a < -ATTN__HUGE - b) return -ATTN__HUGE;
    return a + b;
}

typedef struct attn__names { const char *view, *data, *type, *rank, *size[4], *stride; } attn__names;
#define ATTN__NAMES(f) {f, f ".data", f ".type", f ".rank", \
                        {f ".size[0]", f ".size[1]", f ".size[2]", f ".size[3]"}, f ".stride"}

enum { ATTN__TAKES_F32 = 1, ATTN__TAKES_U8, ATTN__TAKES_INT };

typedef struct attn__field {
    size_t      offset;         /* in the descriptor */
    int         output, takes, rank_least, rank_most;
    attn__names names;
} attn__field;

/* X(field, is an output, takes, least rank, most) */
#define ATTN__VIEW_LIST(X) \
    X(q, 0, F32, 4, 4) X(k, 0, F32, 4, 4) X(v, 0, F32, 4, 4) \
    X(out, 1, F32, 4, 4) X(lse, 1, F32, 3, 3) X(stats, 1, F32, 4, 4) X(weights, 1, F32, 4, 4) \
    X(scores, 1, F32, 4, 4) X(scores_softcap, 1, F32, 4, 4) X(scores_masked, 1, F32, 4, 4) \
    X(sigma_per_head, 0, F32, 1, 1) X(bilinear, 0, F32, 2, 3) X(w_q, 0, F32, 2, 3) X(w_k, 0, F32, 2, 3) \
    X(w_v, 0, F32, 1, 2) X(hidden_bias, 0, F32, 1, 2) X(given_scores, 0, F32, 4, 4) \
    X(bias, 0, F32, 1, 4) X(alibi, 0, F32, 1, 1) X(sink, 0, F32, 1, 1) X(mask, 0, U8, 1, 4) \
    X(key_lengths, 0, INT, 1, 2) X(query_lengths, 0, INT, 1, 1) X(positions, 0, INT, 1, 2)

enum {
#define ATTN__X(f, output, takes, least, most) ATTN__F_##f,
    ATTN__VIEW_LIST(ATTN__X)
#undef ATTN__X
    ATTN__F_COUNT
};
static const attn__field attn__fields[ATTN__F_COUNT] = {
#define ATTN__X(f, output, takes, least, most) \
    {offsetof(attn_desc, f), output, ATTN__TAKES_##takes, least, most, ATTN__NAMES(#f)},
    ATTN__VIEW_LIST(ATTN__X)
#undef ATTN__X
};

static int32_t attn__rank_at(const attn_desc *d, int field)
{
    int32_t rank;
    ATTN__COPY(&rank, (const char *)d + attn__fields[field].offset + offsetof(attn_view, rank), sizeof rank);
    return rank;
}
static int64_t attn__size_at(const attn_desc *d, int field, int axis)
{
    int64_t size;
    ATTN__COPY(&size, (const char *)d + attn__fields[field].offset + offsetof(attn_view, size) +
               (size_t)axis * sizeof size, sizeof size);
    return size;
}
static attn_view attn__view_at(const attn_desc *d, int field)       /* attn_out and attn_view have one layout */
{
    attn_view v;
    ATTN__COPY(&v, (const char *)d + attn__fields[field].offset, sizeof v);
    return v;
}

static int64_t attn__elements(const attn_view *v)
{
    int64_t n = 1;
    int i;
    for (i = 0; i < v->rank; i++) if (v->size[i] == 0) return 0;
    for (i = 0; i < v->rank; i++) n = attn__mul64(n, v->size[i]);
    return n;
}

static int64_t attn__type_size(int32_t type)
{
    return type == ATTN_U8 ? 1 : type == ATTN_F16 || type == ATTN_BF16 ? 2 : type == ATTN_F64 || type == ATTN_I64 ? 8 :
        4;
}

/* Bytes below and above the first element that a view reaches; 0 if they fit. */
static int attn__extent(const attn_view *v, int64_t *below, int64_t *above)
{
    const int64_t bytes = attn__type_size(v->type);
    int i;
    *below = 0;
    *above = 1;
    for (i = 0; i < v->rank; i++) {
        const int64_t s = v->stride[i], step = s < 0 ? (s < -ATTN__HUGE ? ATTN__HUGE : -s) : s;
        const int64_t reach = attn__mul64(step, v->size[i] - 1);
        if (s < 0) *below = attn__add64(*below, reach); else *above = attn__add64(*above, reach);
    }
    *below = attn__mul64(*below, bytes);
    *above = attn__mul64(*above, bytes);
    return *below > ATTN__HUGE / 2 || *above > ATTN__HUGE / 2 || *below + *above > (int64_t)((size_t)-1 / 2);
}

/* The bytes that a view reaches, first and behind the last. */
typedef struct attn__span { uintptr_t first, end; } attn__span;
static int attn__find_span(const attn_view *v, attn__span *s)       /* 0 if it fits, as attn__extent */
{
    int64_t below, above;
    const int large = attn__extent(v, &below, &above);
    s->first = (uintptr_t)v->data - (uintptr_t)below;
    s->end = (uintptr_t)v->data + (uintptr_t)above;
    return large;
}
static attn__span attn__span_of(const attn_view *v)
{
    attn__span s;
    attn__find_span(v, &s);
    return s;
}
static int attn__apart(attn__span a, attn__span b) { return a.end <= b.first || b.end <= a.first; }

/* Do the axes nest, each stride at least as large as all that lies below it? Then no two elements coincide. */
static int attn__nests(const attn_view *v)
{
    int64_t stride[4], size[4], covered = 1;
    int i, j, n = 0;
    for (i = 0; i < v->rank; i++) {
        if (v->size[i] <= 1) continue;
        for (j = n++; j > 0 && stride[j - 1] > (v->stride[i] < 0 ? -v->stride[i] : v->stride[i]); j--) {
            stride[j] = stride[j - 1];
            size[j] = size[j - 1];
        }
        stride[j] = v->stride[i] < 0 ? -v->stride[i] : v->stride[i];
        size[j] = v->size[i];
    }
    for (i = 0; i < n; i++) {
        if (stride[i] < covered) return 0;
        covered = attn__add64(attn__mul64(stride[i], size[i] - 1), covered);
    }
    return 1;
}

/* The first byte and the length of the inner part of a view: the axes whose byte stride g does not divide. */
static uintptr_t attn__inner_part(const attn_view *v, int64_t g, int64_t *length)
{
    attn_view inner = *v;
    attn__span span;
    int i;
    for (i = 0; i < v->rank; i++)
        if (v->size[i] <= 1 || v->stride[i] * attn__type_size(v->type) % g == 0) inner.size[i] = 1;
    span = attn__span_of(&inner);
    *length = (int64_t)(span.end - span.first);
    return span.first;
}

/* Can it be seen that two views share no byte? By their extents, or because they interleave, as the q, k and v of a
   packed array do: modulo a common outer stride they lie beside each other. */
static int attn__disjoint(const attn_view *a, const attn_view *b)
{
    int64_t a_length, b_length, apart;
    int i;
    if (!attn__elements(a) || !attn__elements(b)) return 1;
    if (attn__apart(attn__span_of(a), attn__span_of(b))) return 1;
    for (i = 0; i < a->rank; i++) {
        uintptr_t a_start, b_start;
        int64_t g;
        if (a->size[i] <= 1 || a->stride[i] == 0) continue;
        g = (a->stride[i] < 0 ? -a->stride[i] : a->stride[i]) * attn__type_size(a->type);
        a_start = attn__inner_part(a, g, &a_length);
        b_start = attn__inner_part(b, g, &b_length);
        apart = (int64_t)(b_start - a_start) % g;               /* from a's to b's start, modulo g */
        apart = apart < 0 ? apart + g : apart;
        if (a_length <= apart && apart + b_length <= g) return 1;
    }
    return 0;
}

/* What a check is for: a call on these data, or only its sizes. */
enum {
    ATTN__WITH_DATA = 1,
    ATTN__NO_RESULT_NEEDED = 2,
#ifdef ATTN_CUDA
    ATTN__ON_DEVICE = 4,
    ATTN__ANYWHERE = 8,     /* there is no array yet that would tell */
    ATTN__AS_TASKS = 16     /* what may lie on the host is used there */
#else
    ATTN__ON_DEVICE = 0, ATTN__ANYWHERE = 0, ATTN__AS_TASKS = 0
#endif
};
#ifdef ATTN_CUDA
#define ATTN__HALF(v, flags) ((flags) & (ATTN__ON_DEVICE | ATTN__ANYWHERE) && \
                              ((v)->type == ATTN_F16 || (v)->type == ATTN_BF16))
#else
#define ATTN__HALF(v, flags) 0
#endif

/* One view on its own: rank, type, sizes, extent. span: what it reaches. */
static attn_status attn__check_span(const attn_view *v, const attn__field *f, int flags, attn__span *span,
                                    attn_error *err)
{
    int64_t elements;
    int i;
    span->first = span->end = (uintptr_t)v->data;
    if (v->rank == 0) return ATTN_OK;
    if (v->rank < f->rank_least || v->rank > f->rank_most)
        return attn__fail2(err, ATTN_ERR_RANK, f->names.rank,
                           v->rank < f->rank_least ? "must be at least" : "must be at most", v->rank,
                           v->rank < f->rank_least ? f->rank_least : f->rank_most);
    if (f->takes == ATTN__TAKES_F32 && !ATTN__HALF(v, flags)) {
        ATTN__RULE(v->type < ATTN_F16 || v->type > ATTN_F64, ATTN_ERR_TYPE, f->names.type,
                   "must be ATTN_F32: other float types are not in this version");
        ATTN__RULE(v->type == ATTN_F32, ATTN_ERR_TYPE, f->names.type, "must be ATTN_F32");
    } else if (f->takes == ATTN__TAKES_U8) {
        ATTN__RULE(v->type == ATTN_U8, ATTN_ERR_TYPE, f->names.type, "must be ATTN_U8");
    } else if (f->takes == ATTN__TAKES_INT) {
        ATTN__RULE(v->type == ATTN_I32 || v->type == ATTN_I64, ATTN_ERR_TYPE, f->names.type,
                   "must be ATTN_I32 or ATTN_I64");
    }
    for (i = 0; i < v->rank; i++)
        if (v->size[i] < 0) return attn__fail2(err, ATTN_ERR_SIZE, f->names.size[i], "must be at least", v->size[i], 0);
    elements = attn__elements(v);
    if (elements == 0) return ATTN_OK;
    ATTN__RULE(elements <= ATTN__HUGE / 8, ATTN_ERR_OVERFLOW, f->names.view,
               "must have fewer than 2^60 elements");
    ATTN__RULE(!attn__find_span(v, span), ATTN_ERR_OVERFLOW, f->names.stride,
               "must keep the extent within memory");
    ATTN__RULE(!(flags & ATTN__WITH_DATA) || v->data, ATTN_ERR_NULL, f->names.data, "must not be NULL");
    ATTN__RULE(!f->output || attn__nests(v), ATTN_ERR_STRIDE, f->names.stride,
               "must not make the output overlap itself");
    return ATTN_OK;
}
static attn_status attn__check_view(const attn_view *v, const attn__field *f, int flags, attn_error *err)
{
    attn__span span;
    return attn__check_span(v, f, flags, &span, err);
}

/* view.size[axis] == want, unless the view is absent */
static attn_status attn__check_size(const attn_view *v, const attn__names *names, int axis, int64_t want,
                                    const char *rule, attn_error *err)
{
    if (v->rank == 0 || v->size[axis] == want) return ATTN_OK;
    return attn__fail2(err, ATTN_ERR_SIZE, names->size[axis], rule, v->size[axis], want);
}

/* field.size[axis] == want, unless the field is absent */
static attn_status attn__check_field(const attn_desc *d, int field, int axis, int64_t want, const char *rule,
                                     attn_error *err)
{
    if (!attn__rank_at(d, field) || attn__size_at(d, field, axis) == want) return ATTN_OK;
    return attn__fail2(err, ATTN_ERR_SIZE, attn__fields[field].names.size[axis], rule, attn__size_at(d, field, axis),
                       want);
}

/* [B,H,Sq,Sk] broadcast from the right */
static attn_status attn__check_broadcast(const attn_view *v, const attn__names *names, const int64_t *shape,
                                         attn_error *err)
{
    int i;
    for (i = 0; i < v->rank; i++) {
        const int64_t want = shape[4 - v->rank + i];
        if (v->size[i] != 1 && v->size[i] != want)
            return attn__fail2(err, ATTN_ERR_SIZE, names->size[i], "must broadcast against [B,H,Sq,Sk]: be 1 or",
                               v->size[i], want);
    }
    return ATTN_OK;
}

static int64_t attn__int_at(const attn_view *v, int64_t index)
{
    return v->type == ATTN_I32 ? ((const int32_t *)v->data)[index] : ((const int64_t *)v->data)[index];
}

/* lengths [B] or [B,Sq], each 0..most */
static attn_status attn__check_lengths(const attn_view *v, const attn__names *names, int64_t most, attn_error *err)
{
    int64_t b, i;
    const int64_t n = v->rank == 2 ? v->size[1] : 1;
    if (v->rank == 0 || !v->data) return ATTN_OK;
    for (b = 0; b < v->size[0]; b++)
        for (i = 0; i < n; i++) {
            const int64_t x = attn__int_at(v, b * v->stride[0] + (v->rank == 2 ? i * v->stride[1] : 0));
            if (x < 0) return attn__fail2(err, ATTN_ERR_RANGE, names->view, "must be at least", x, 0);
            if (x > most) return attn__fail2(err, ATTN_ERR_RANGE, names->view, "must be at most the size of its axis",
                                             x, most);
        }
    return ATTN_OK;
}

/* What a call looks like once its descriptor is resolved. */
typedef struct attn__shape {
    int64_t batch, heads, heads_kv, queries, keys, size_q, size_k, size_v, hidden;
    int64_t streams;            /* key sequences per batch entry: one per key head, or per head where keys are projected
                                   or queries transformed per head */
    int64_t ld;                 /* lanes of a tile */
    int64_t tiles;              /* tiles per stream */
    int64_t key_blocks;         /* blocks of ATTN__CHUNK keys per stream to prepare; 0: nothing to prepare */
    int64_t key_floats;         /* prepared floats per key */
    int64_t key_bytes;          /* prepared in all, at the start of the workspace */
    int64_t parts;              /* tasks among which the keys of a tile are cut; 1: not cut */
    int64_t chunk_floats;       /* what a chunk leaves behind where they are cut: see attn__slot */
    int64_t chunk_bytes;        /* that in all, behind the prepared keys */
    int64_t worker_bytes;       /* per worker, after it */
#ifdef ATTN_CUDA
    int64_t on_device;
#endif
} attn__shape;

#define ATTN__CUT_TILES 4       /* up to so many tiles of few rows in all: their keys are cut among tasks */
#define ATTN__CUT_CHUNKS 8      /* chunks that a task gets then, at least */
#define ATTN__CUT_TASKS 16      /* tasks that are enough */
#define ATTN__FEW_KEYS 32       /* keys whose rows of V are read side by side then */
#define ATTN__FEW_ROW (ATTN__CHUNK + ATTN__MAX_WIDTH)
#define ATTN__ALIGN 64
#define ATTN__TILE_BYTES 5120   /* room for an attn__tile, a multiple of ATTN__ALIGN: checked where that is defined */
#define ATTN__ADDITIVE_CLEAR 20.0f  /* |a|, |b| up to here: e^2a e^2b neither overflows nor underflows */

static int64_t attn__blocks(int64_t n, int64_t of) { return n / of + (n % of != 0); }
static int64_t attn__round4(int64_t n) { return attn__mul64(attn__add64(n, 3) / 4, 4); }
static int64_t attn__bytes_of(int64_t floats) { return attn__mul64(attn__add64(attn__mul64(floats, 4),
    ATTN__ALIGN - 1) / ATTN__ALIGN, ATTN__ALIGN); }
static int attn__is_kernel(int32_t score) { return score >= ATTN_SCORE_GAUSSIAN && score <= ATTN_SCORE_CONSTANT; }
static int attn__is_dot(int32_t score)
{
    return score == ATTN_SCORE_SCALED_DOT || score == ATTN_SCORE_DOT || score == ATTN_SCORE_COSINE ||
           score == ATTN_SCORE_BILINEAR;
}
static int attn__is_number(float x) { return (attn__bits(x) & 0x7f800000u) != 0x7f800000u; }

static int attn__is_width(float x) { return x >= 1e-18f && x <= 1e18f; }       /* its square is a normal float */

/* The fields that only some scores take. */
static attn_status attn__check_score(const attn_desc *d, attn_error *err)
{
    const int given = d->score == ATTN_SCORE_GIVEN, additive = d->score == ATTN_SCORE_ADDITIVE;
    const int has_sigma = d->score >= ATTN_SCORE_GAUSSIAN && d->score <= ATTN_SCORE_TRIANGULAR;
    ATTN__RULE(d->score >= 0 && d->score < ATTN_SCORE_COUNT, ATTN_ERR_OPTION, "score", "must be one of attn_score");
    ATTN__RULE(!attn__is_kernel(d->score) || (!d->scale_set && d->scale == 0.0f), ATTN_ERR_OPTION, "scale",
               "must not be set for a distance kernel: sigma sets its width");
    ATTN__RULE(attn__is_number(d->scale), ATTN_ERR_RANGE, "scale", "must be finite");
    ATTN__RULE(d->sigma == 0.0f || attn__is_width(d->sigma), ATTN_ERR_RANGE, "sigma",
               "must be within 1e-18..1e18, or 0 for 1");
    ATTN__RULE(has_sigma || d->sigma == 0.0f, ATTN_ERR_OPTION, "sigma", "counts for the distance kernels only");
    ATTN__RULE(has_sigma || !d->sigma_per_head.rank, ATTN_ERR_OPTION, "sigma_per_head",
               "counts for the distance kernels only");
    ATTN__RULE(d->sigma == 0.0f || !d->sigma_per_head.rank, ATTN_ERR_OPTION, "sigma",
               "must be 0 where sigma_per_head is given");
    ATTN__RULE(d->score == ATTN_SCORE_BILINEAR || !d->bilinear.rank, ATTN_ERR_OPTION, "bilinear",
               "counts for ATTN_SCORE_BILINEAR only");
    ATTN__RULE(additive || !d->w_q.rank, ATTN_ERR_OPTION, "w_q", "counts for ATTN_SCORE_ADDITIVE only");
    ATTN__RULE(additive || !d->w_k.rank, ATTN_ERR_OPTION, "w_k", "counts for ATTN_SCORE_ADDITIVE only");
    ATTN__RULE(additive || !d->w_v.rank, ATTN_ERR_OPTION, "w_v", "counts for ATTN_SCORE_ADDITIVE only");
    ATTN__RULE(additive || !d->hidden_bias.rank, ATTN_ERR_OPTION, "hidden_bias", "counts for ATTN_SCORE_ADDITIVE only");
    ATTN__RULE(given || !d->given_scores.rank, ATTN_ERR_OPTION, "given_scores", "counts for ATTN_SCORE_GIVEN only");
    ATTN__RULE(!given || d->given_scores.rank, ATTN_ERR_NULL, "given_scores", "must be given for ATTN_SCORE_GIVEN");
    ATTN__RULE(!given || !d->q.rank, ATTN_ERR_OPTION, "q", "must be absent for ATTN_SCORE_GIVEN");
    ATTN__RULE(!given || !d->k.rank, ATTN_ERR_OPTION, "k", "must be absent for ATTN_SCORE_GIVEN");
    ATTN__RULE(given || d->q.rank, ATTN_ERR_NULL, "q", "must be given");
    ATTN__RULE(given || d->k.rank, ATTN_ERR_NULL, "k", "must be given");
    ATTN__RULE(d->score != ATTN_SCORE_BILINEAR || d->bilinear.rank, ATTN_ERR_NULL, "bilinear",
               "must be given for ATTN_SCORE_BILINEAR");
    ATTN__RULE(!additive || d->w_v.rank, ATTN_ERR_NULL, "w_v", "must be given for ATTN_SCORE_ADDITIVE");
    return ATTN_OK;
}

static attn_status attn__check_options(const attn_desc *d, attn_error *err)
{
    ATTN__RULE(d->align >= 0 && d->align < ATTN_ALIGN_COUNT, ATTN_ERR_OPTION, "align", "must be one of attn_align");
    ATTN__RULE(d->align != ATTN_ALIGN_POSITIONS || d->positions.rank, ATTN_ERR_NULL, "positions",
               "must be given for ATTN_ALIGN_POSITIONS");
    ATTN__RULE(d->align == ATTN_ALIGN_POSITIONS || !d->positions.rank, ATTN_ERR_OPTION, "align",
               "must be ATTN_ALIGN_POSITIONS where positions are given");
    ATTN__RULE(d->empty >= 0 && d->empty < ATTN_EMPTY_COUNT, ATTN_ERR_OPTION, "empty", "must be one of attn_empty");
    ATTN__RULE(attn__is_number(d->softcap) && d->softcap >= 0.0f, ATTN_ERR_RANGE, "softcap",
               "must be finite and > 0, or 0 for none");
    ATTN__RULE(attn__is_number(d->dropout) && d->dropout >= 0.0f && d->dropout <= 1.0f, ATTN_ERR_RANGE, "dropout",
               "must be within 0..1");
    if (d->window && d->window_left < ATTN_UNBOUNDED)
        return attn__fail2(err, ATTN_ERR_RANGE, "window_left", "must be at least", d->window_left, ATTN_UNBOUNDED);
    if (d->window && d->window_right < ATTN_UNBOUNDED)
        return attn__fail2(err, ATTN_ERR_RANGE, "window_right", "must be at least", d->window_right, ATTN_UNBOUNDED);
    ATTN__RULE(d->isa >= 0 && d->isa < ATTN_ISA_COUNT, ATTN_ERR_OPTION, "isa", "must be one of attn_isa");
    ATTN__RULE(d->isa == ATTN_ISA_AUTO || attn__cpu_has((attn_isa)d->isa), ATTN_ERR_ISA, "isa",
               "must be on this CPU and in this build");
    ATTN__RULE(d->reserved == 0, ATTN_ERR_OPTION, "reserved", "must be 0");
    ATTN__RULE(!d->allocator.allocate == !d->allocator.release, ATTN_ERR_NULL, "allocator",
               "must have both functions or none");
    ATTN__RULE(d->parallel.workers >= 0, ATTN_ERR_RANGE, "parallel.workers", "must not be negative");
    return ATTN_OK;
}

/* Sizes of the views against each other. */
static attn_status attn__check_shape(const attn_desc *d, attn__shape *s, attn_error *err)
{
    const attn__field *f = attn__fields;
    const int given = d->score == ATTN_SCORE_GIVEN;
    const attn_view *from = given ? &d->given_scores : &d->q;
    int64_t shape[4], all;
    int i, p;
#define ATTN__SIZE(field, axis, want, rule) \
    ATTN__TRY(attn__check_field(d, ATTN__F_##field, axis, want, rule, err))
    s->batch = from->size[0];
    s->heads = from->size[1];
    s->queries = from->size[2];
    s->keys = given ? from->size[3] : d->k.size[2];
    s->size_q = given ? 0 : d->q.size[3];
    s->size_k = given ? 0 : d->k.size[3];
    s->heads_kv = !given ? d->k.size[1] : d->v.rank ? d->v.size[1] : s->heads;
    s->size_v = d->v.rank ? d->v.size[3] : 0;
    s->hidden = d->w_v.rank ? d->w_v.size[d->w_v.rank - 1] : 0;
    ATTN__SIZE(k, 0, s->batch, "must equal q.size[0]");
    if (s->heads_kv ? s->heads % s->heads_kv != 0 : s->heads != 0)
        return attn__fail2(err, ATTN_ERR_SIZE, given ? "v.size[1]" : "k.size[1]",
                           "must divide the number of query heads", s->heads_kv, s->heads);
    if (d->score != ATTN_SCORE_BILINEAR && d->score != ATTN_SCORE_ADDITIVE) ATTN__SIZE(k, 3, s->size_q,
        "must equal q.size[3]");
    ATTN__SIZE(v, 0, s->batch, "must equal the batch size of q");
    ATTN__SIZE(v, 1, s->heads_kv, "must equal k.size[1]");
    ATTN__SIZE(v, 2, s->keys, "must equal the number of keys");
    ATTN__RULE(!d->out.rank || d->v.rank, ATTN_ERR_NULL, "v", "must be given where out is");
    ATTN__SIZE(out, 3, s->size_v, "must equal v.size[3]");
    shape[0] = s->batch;
    shape[1] = s->heads;
    shape[2] = s->queries;
    shape[3] = s->keys;
    for (p = ATTN__F_out; p <= ATTN__F_scores_masked; p++) {
        const int rank = attn__rank_at(d, p);
        for (i = 0; i < (p == ATTN__F_out ? 3 : rank); i++)
            ATTN__TRY(attn__check_field(d, p, i, i == 3 && p == ATTN__F_stats ? 2 : shape[i],
                      i == 0 ? "must equal the batch size" :
                      i == 1 ? "must equal the number of query heads" : i == 2 ? "must equal the number of queries" :
                      p == ATTN__F_stats ? "must be" : "must equal the number of keys", err));
    }
    ATTN__SIZE(sigma_per_head, 0, s->heads, "must equal the number of query heads");
    ATTN__SIZE(alibi, 0, s->heads, "must equal the number of query heads");
    ATTN__SIZE(sink, 0, s->heads, "must equal the number of query heads");
    for (p = ATTN__F_bilinear; p <= ATTN__F_hidden_bias; p++) {         /* [..] or [H,..] */
        const int per_head = p <= ATTN__F_w_k ? 3 : 2;
        if (attn__rank_at(d, p) == per_head)
            ATTN__TRY(attn__check_field(d, p, 0, s->heads, "must equal the number of query heads", err));
    }
    ATTN__SIZE(bilinear, d->bilinear.rank - 2, s->size_q, "must equal q.size[3]");
    ATTN__SIZE(bilinear, d->bilinear.rank - 1, s->size_k, "must equal k.size[3]");
    ATTN__SIZE(w_q, d->w_q.rank - 2, s->hidden, "must equal the size of w_v");
    ATTN__SIZE(w_k, d->w_k.rank - 2, s->hidden, "must equal the size of w_v");
    ATTN__SIZE(w_q, d->w_q.rank - 1, s->size_q, "must equal q.size[3]");
    ATTN__SIZE(w_k, d->w_k.rank - 1, s->size_k, "must equal k.size[3]");
    ATTN__SIZE(hidden_bias, d->hidden_bias.rank - 1, s->hidden, "must equal the size of w_v");
    if (d->score == ATTN_SCORE_ADDITIVE && !d->w_q.rank) ATTN__SIZE(q, 3, s->hidden,
                                                                    "must equal the size of w_v where w_q is absent");
    if (d->score == ATTN_SCORE_ADDITIVE && !d->w_k.rank) ATTN__SIZE(k, 3, s->hidden,
                                                                    "must equal the size of w_v where w_k is absent");
    ATTN__TRY(attn__check_broadcast(&d->bias, &f[ATTN__F_bias].names, shape, err));
    ATTN__TRY(attn__check_broadcast(&d->mask, &f[ATTN__F_mask].names, shape, err));
    ATTN__SIZE(key_lengths, 0, s->batch, "must equal the batch size");
    if (d->key_lengths.rank == 2) ATTN__SIZE(key_lengths, 1, s->queries, "must equal the number of queries");
    ATTN__SIZE(query_lengths, 0, s->batch, "must equal the batch size");
    ATTN__SIZE(positions, 0, s->batch, "must equal the batch size");
    if (d->positions.rank == 2) ATTN__SIZE(positions, 1, s->queries, "must equal the number of queries");
#undef ATTN__SIZE
    all = attn__mul64(attn__mul64(shape[0], shape[1]), attn__mul64(shape[2], shape[3]));
    ATTN__RULE(all < ATTN__HUGE / 8 && all * 4 <= (int64_t)((size_t)-1 / 2), ATTN_ERR_OVERFLOW,
               given ? "given_scores" : "k", "must make B*H*Sq*Sk a number that can be counted");
    return ATTN_OK;
}

static attn_status attn__check_contents(const attn_desc *d, const attn__shape *s, attn_error *err)
{
    const attn__field *f = attn__fields;
    int64_t h;
    ATTN__TRY(attn__check_lengths(&d->key_lengths, &f[ATTN__F_key_lengths].names, s->keys, err));
    ATTN__TRY(attn__check_lengths(&d->query_lengths, &f[ATTN__F_query_lengths].names, s->queries, err));
    for (h = 0; d->sigma_per_head.rank && d->sigma_per_head.data && h < s->heads; h++) {
        const float sigma = ((const float *)d->sigma_per_head.data)[h * d->sigma_per_head.stride[0]];
        ATTN__RULE(attn__is_width(sigma), ATTN_ERR_RANGE, "sigma_per_head", "must be within 1e-18..1e18");
    }
    return ATTN_OK;
}

/* The fields that are there, which are few, and what they reach. */
typedef struct attn__present { int count, field[ATTN__F_COUNT]; attn__span span[ATTN__F_COUNT]; } attn__present;

static attn_status attn__check_overlaps(const attn_desc *d, const attn__present *present, attn_error *err)
{
    int a, b, axis;
    for (a = 0; a < present->count; a++)
        for (b = 0; attn__fields[present->field[a]].output && b < present->count; b++) {
            const int i = present->field[a], j = present->field[b];
            attn_view o, x;
            int same;
            if (b == a || (attn__fields[j].output && b < a) ||
                attn__apart(present->span[a], present->span[b])) continue;
            o = attn__view_at(d, i);
            x = attn__view_at(d, j);
            same = i == ATTN__F_weights && j == ATTN__F_given_scores && x.data == o.data && !d->out.rank;
            for (axis = 0; axis < 4; axis++) same = same && (x.size[axis] <= 1 || x.stride[axis] == o.stride[axis]);
            if (same) continue;                                     /* the masked softmax in place */
            ATTN__RULE(attn__disjoint(&o, &x), ATTN_ERR_OVERLAP, attn__fields[i].names.view, attn__fields[j].output ?
                       "must not overlap another output" : "must not overlap an input");
        }
    return ATTN_OK;
}

#ifdef ATTN_CUDA
/* ---- where a call runs: where its arrays lie */
typedef struct attn__place { int where, seen; } attn__place;

static attn_status attn__see(attn__place *at, const attn_view *v, const char *field, attn_error *err)
{
    int here;
    if (v->rank < 1 || v->rank > 4 || !v->data || !attn__elements(v)) return ATTN_OK;
    here = attn__cuda_place(v->data, err);
    if (!here) return ATTN_ERR_CUDA;
    ATTN__RULE(at->where & here, ATTN_ERR_PLACE, field, at->where & ATTN__PLACE_HOST ?
               "must lie on the host, where the arrays before it lie" :
               "must lie on the device, where the arrays before it lie");
    at->where &= here;
    at->seen = 1;
    return ATTN_OK;
}
static attn_status attn__see_fields(attn__place *at, const void *structure, const attn__field *fields, int count,
                                    attn_error *err)
{
    attn_view v;
    int i;
    for (i = 0; i < count; i++) {
        ATTN__COPY(&v, (const char *)structure + fields[i].offset, sizeof v);
        ATTN__TRY(attn__see(at, &v, fields[i].names.view, err));
    }
    return ATTN_OK;
}
static attn_status attn__see_workspace(attn__place *at, const attn_desc *d, attn_error *err)
{
    attn_view v;
    v.data = d->workspace;
    v.rank = 1;
    v.size[0] = at->seen;
    return attn__see(at, &v, "workspace", err);
}
/* As the flags of a check. Nothing seen: a call would run on the host; its sizes are asked for either place. */
static int attn__place_flags(const attn__place *at, int flags)
{
    if (flags & ATTN__AS_TASKS && at->where & ATTN__PLACE_HOST) return flags;
    if (at->seen && at->where & ATTN__PLACE_DEVICE) return flags | ATTN__ON_DEVICE;
    return at->seen || flags & ATTN__WITH_DATA ? flags : flags | ATTN__ANYWHERE;
}
static attn_status attn__find_place(const attn_desc *d, int *flags, attn_error *err)
{
    attn__place at = {ATTN__PLACE_HOST | ATTN__PLACE_DEVICE, 0};
    if (!d) return ATTN_OK;
    ATTN__TRY(attn__see_fields(&at, d, attn__fields, ATTN__F_COUNT, err));
    ATTN__TRY(attn__see_workspace(&at, d, err));
    *flags = attn__place_flags(&at, *flags);
    return ATTN_OK;
}
/* For what only the CPU does. */
static int attn__is_on_host(const void *data) { return !data || attn__cuda_place(data, NULL) & ATTN__PLACE_HOST; }
#endif

/* One query over a long cache is one tile, too little for several threads: its keys are cut, each chunk leaves its
   maximum, sum and output behind, and one more task joins them in order. The memory is counted by rows, whether they
   are cut or not, so that it never shrinks as a size grows. */
static void attn__cut_keys(attn__shape *s, int32_t score, int64_t rows)
{
    const int64_t tiles = attn__mul64(attn__mul64(s->batch, s->streams), s->tiles);
    const int64_t chunks = attn__blocks(s->keys, ATTN__CHUNK);
    int64_t all;
    s->parts = 1;
    s->chunk_floats = attn__mul64(ATTN__FEW, attn__add64(s->size_v, 2));
    s->chunk_bytes = 0;
    if (!attn__is_dot(score) || tiles == 0 || chunks < 2 * ATTN__CUT_CHUNKS) return;
    all = attn__mul64(attn__mul64(s->batch, s->heads), s->queries);
    s->chunk_bytes = attn__bytes_of(attn__mul64(attn__mul64(all < ATTN__CUT_TILES ? all : ATTN__CUT_TILES, chunks),
                                                s->chunk_floats));
    if (rows > ATTN__FEW || tiles > ATTN__CUT_TILES) return;
    s->parts = ATTN__CUT_TASKS / tiles;
    if (s->parts > chunks / ATTN__CUT_CHUNKS) s->parts = chunks / ATTN__CUT_CHUNKS;
}

/* Checks everything; fills in defaults in *d and the shape. */
static attn_status attn__resolve(attn_desc *d, attn__shape *s, int flags, attn_error *err)
{
    const attn__kernels *kernels;
    int64_t rows, depth, lanes_floats, few_floats;
    attn__present present;
    int p, any = 0;
    ATTN__TRY(attn__check_score(d, err));
    ATTN__TRY(attn__check_options(d, err));
    present.count = 0;
    for (p = 0; p < ATTN__F_COUNT; p++) {
        const int unread = d->score == ATTN_SCORE_CONSTANT && (p == ATTN__F_q || p == ATTN__F_k);
        attn_view v;
        if (!attn__rank_at(d, p)) continue;
        v = attn__view_at(d, p);
        ATTN__TRY(attn__check_span(&v, &attn__fields[p], unread ? flags & ~ATTN__WITH_DATA : flags,
                                   &present.span[present.count], err));
        present.field[present.count++] = p;
        any |= attn__fields[p].output;
    }
    ATTN__RULE(any || (flags & ATTN__NO_RESULT_NEEDED), ATTN_ERR_NULL, "out", "must be given, or another result");
    ATTN__TRY(attn__check_shape(d, s, err));
    if (!(flags & ATTN__ON_DEVICE)) ATTN__TRY(attn__check_contents(d, s, err));
    if (flags & ATTN__WITH_DATA) ATTN__TRY(attn__check_overlaps(d, &present, err));
#ifdef ATTN_CUDA
    ATTN__RULE(!d->lse.rank || d->lse.type == ATTN_F32, ATTN_ERR_TYPE, "lse.type", "must be ATTN_F32");
    ATTN__RULE(!d->stats.rank || d->stats.type == ATTN_F32, ATTN_ERR_TYPE, "stats.type", "must be ATTN_F32");
    s->on_device = (flags & ATTN__ON_DEVICE) != 0;
#endif

    if (d->isa == ATTN_ISA_AUTO) d->isa = (int32_t)attn_best_isa();
    if (!d->scale_set && d->scale == 0.0f)
        d->scale = d->score == ATTN_SCORE_SCALED_DOT && s->size_q > 0 ? 1.0f / attn__sqrt((float)s->size_q) : 1.0f;
    d->scale_set = !attn__is_kernel(d->score);
    if (d->sigma == 0.0f) d->sigma = 1.0f;
    if (d->parallel.workers == 0) d->parallel.workers = 1;

    kernels = attn__table(d->isa);
    s->streams = d->bilinear.rank == 3 || d->w_q.rank == 3 || d->w_k.rank == 3 || d->w_v.rank == 2 ||
                 d->hidden_bias.rank == 2 ? s->heads : s->heads_kv;
    s->ld = kernels->width * kernels->vecs;
    rows = s->streams ? attn__mul64(s->heads / s->streams, s->queries) : 0;
    s->tiles = attn__blocks(rows, s->ld);
    s->key_floats = d->score == ATTN_SCORE_COSINE;
    if (d->score == ATTN_SCORE_ADDITIVE) s->key_floats = attn__add64(attn__mul64(2, attn__round4(s->hidden)), 1);
    s->key_blocks = s->key_floats ? attn__blocks(s->keys, ATTN__CHUNK) : 0;
    s->key_bytes = attn__bytes_of(attn__mul64(attn__mul64(attn__mul64(s->batch, s->streams), s->keys), s->key_floats));
    attn__cut_keys(s, d->score, rows);
    depth = d->score == ATTN_SCORE_ADDITIVE ? attn__mul64(2, attn__round4(s->hidden)) : s->size_k;  /* see attn__room */
    lanes_floats = attn__add64(attn__add64(depth, s->size_q > s->size_k ? s->size_q : s->size_k),
                               attn__add64(attn__mul64(3, s->size_v), 2 * ATTN__CHUNK));
    few_floats = attn__mul64(ATTN__FEW, attn__add64(s->size_v, ATTN__MAX_WIDTH + ATTN__FEW_ROW));
    s->worker_bytes = attn__add64(attn__bytes_of(attn__add64(attn__mul64(lanes_floats, s->ld), few_floats)),
                                  attn__add64(ATTN__TILE_BYTES, attn__bytes_of(attn__round4(s->hidden))));
    ATTN__RULE(attn__add64(attn__mul64(s->worker_bytes, d->parallel.workers), attn__add64(s->key_bytes,
               s->chunk_bytes)) < (int64_t)((size_t)-1 / 4),
               ATTN_ERR_OVERFLOW, "workspace", "must fit in memory: a size is too large");
    return ATTN_OK;
}

static size_t attn__workspace_of(const attn_desc *d, const attn__shape *s)
{
    return (size_t)(s->key_bytes + s->chunk_bytes + s->worker_bytes * d->parallel.workers + ATTN__ALIGN);
}

/* ------------------------------------------------------------------------------------------------------ >>driver
   Written once for all instruction sets. Phase by phase: the keys are prepared, where a score needs it; tiles of
   queries are run, chunk by chunk of keys: scores -> softcap, bias, masks -> weights -> times V, merged in ascending
   order; where the keys of a tile were cut among tasks, its chunks are merged in a phase of their own. */

/* ---- which keys a row may attend to, as far as lengths, causal and window say: first <= j < last */
typedef struct attn__row { int64_t position, first, last; } attn__row;

static attn__row attn__row_of(const attn_desc *d, int64_t queries, int64_t keys, int64_t b, int64_t i)
{
    attn__row row;
    int64_t key_length = keys, query_length = queries, end;
    if (d->key_lengths.rank)
        key_length = attn__int_at(&d->key_lengths, b * d->key_lengths.stride[0] +
                                  (d->key_lengths.rank == 2 ? i * d->key_lengths.stride[1] : 0));
    if (d->query_lengths.rank) query_length = attn__int_at(&d->query_lengths, b * d->query_lengths.stride[0]);
    row.position = i;
    if (d->align == ATTN_ALIGN_BOTTOM_RIGHT) row.position = i + key_length - query_length;
    else if (d->align == ATTN_ALIGN_POSITIONS && d->positions.rank == 2)
        row.position = attn__int_at(&d->positions, b * d->positions.stride[0] + i * d->positions.stride[1]);
    else if (d->align == ATTN_ALIGN_POSITIONS)
        row.position = attn__add_signed(attn__int_at(&d->positions, b * d->positions.stride[0]), i);
    row.first = 0;
    row.last = i < query_length ? key_length : 0;
    if (d->window && d->window_left >= 0) {
        const int64_t start = attn__add_signed(row.position, -d->window_left);
        row.first = start > 0 ? start : 0;
    }
    end = d->causal ? row.position : ATTN__HUGE - 1;
    if (d->window && d->window_right >= 0) {
        const int64_t right = attn__add_signed(row.position, d->window_right);
        end = right < end ? right : end;
    }
    if (end < row.last) row.last = end < 0 ? 0 : end + 1;
    if (row.first >= row.last) row.first = row.last = 0;
    return row;
}

/* Strides of a mask or bias over (b,h,i,j): numpy's broadcasting from the right. */
static void attn__broadcast(const attn_view *v, int64_t *stride)
{
    int i;
    for (i = 0; i < 4; i++) {
        const int axis = i - (4 - v->rank);
        stride[i] = axis >= 0 && v->size[axis] != 1 ? v->stride[axis] : 0;
    }
}

/* May query (b,h,i) attend to key j, as far as can be told without q and k? */
static int attn__mask_at(const attn_desc *d, int64_t queries, int64_t keys, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const attn__row row = attn__row_of(d, queries, keys, b, i);
    int64_t s[4];
    if (j < row.first || j >= row.last) return 0;
    if (d->mask.rank) {
        attn__broadcast(&d->mask, s);
        if (!((const uint8_t *)d->mask.data)[b*s[0] + h*s[1] + i*s[2] + j*s[3]]) return 0;
    }
    if (d->bias.rank) {
        attn__broadcast(&d->bias, s);
        if (attn__is_none(((const float *)d->bias.data)[b*s[0] + h*s[1] + i*s[2] + j*s[3]])) return 0;
    }
    return 1;
}

/* ---- dropout */
/* p*2^32 rounded up, the numbers below which a weight is dropped: 0 = none, 2^32 = all */
static uint64_t attn__drop_below(float p)
{
    const double bound = (double)p * 4294967296.0;
    const uint64_t whole = (uint64_t)bound;
    return whole + ((double)whole < bound);
}
static float attn__keep_scale(float p) { return attn__choose(p < 1.0f, 1.0f / (1.0f - p), 0.0f); }

/* Walks along one row of the mask, j ascending; four keys come from one counter. */
typedef struct attn__dropper { uint64_t seed, below; uint32_t b, h, i, j, block, words[4]; int ready; } attn__dropper;
static attn__dropper attn__dropper_of(const attn_desc *d, int64_t b, int64_t h, int64_t i)
{
    attn__dropper x;
    x.seed = d->seed;
    x.below = attn__drop_below(d->dropout);
    x.b = (uint32_t)b + (uint32_t)d->dropout_origin[0];     /* modulo 2^32 */
    x.h = (uint32_t)h + (uint32_t)d->dropout_origin[1];
    x.i = (uint32_t)i + (uint32_t)d->dropout_origin[2];
    x.j = (uint32_t)d->dropout_origin[3];
    x.block = x.words[0] = x.words[1] = x.words[2] = x.words[3] = 0;
    x.ready = 0;
    return x;
}
static int attn__kept(attn__dropper *x, int64_t key)
{
    const uint32_t j = (uint32_t)key + x->j;
    if (!x->ready || x->block != j / 4) {
        x->ready = 1;
        x->block = x->words[0] = j / 4;
        x->words[1] = x->i;
        x->words[2] = x->h;
        x->words[3] = x->b;
        attn__philox(x->seed, x->words);
    }
    return x->words[j % 4] >= x->below;
}

/* ---- a tile: `lanes` rows of one stream, head by head; the lanes beyond repeat the last row and are not stored */
typedef struct attn__tile {
    const attn_desc *d;
    const attn__shape *shape;
    const attn__kernels *f;
    int64_t b, stream, head_kv, head;   /* head: of the first row; the only one where parameters differ per head */
    int64_t ld, lanes;                  /* ld: a multiple of the vectors' width, at most shape->ld */
    int32_t vecs;                       /* ld / width */
    int32_t plain;                      /* softmax of given rows and nothing else: row by row, where they lie */
    int32_t few;                        /* so few rows that lanes are better keys and columns: see >>few */
    int64_t h[ATTN__MAX_LANES], i[ATTN__MAX_LANES];
    attn__row row[ATTN__MAX_LANES];
    int64_t first, last;                /* over all lanes */
    const float *prepared;              /* key_floats per key of this stream */
    float *slots;                       /* where the keys are cut: one slot per chunk; else NULL */
    /* arrays [.][ld]: vectors before projecting; what meets the keys; outputs so far, of a chunk, of a chain; a chunk's
       scores, then weights; scratch of that size. w: w_v, padded */
    float *raw, *query, *o, *acc, *part, *s, *t, *w;
    float *few_s, *few_v;               /* a chunk's scores and outputs, a row per query */
    float w_sum;
    int lane_clear[ATTN__MAX_LANES];    /* additive: |a| is small enough for the factored form */
    float scale[ATTN__MAX_LANES], width[ATTN__MAX_LANES], slope[ATTN__MAX_LANES], ones[ATTN__MAX_LANES];
    float top[ATTN__MAX_LANES], sum[ATTN__MAX_LANES];
} attn__tile;
typedef char attn__tile_fits[sizeof(attn__tile) <= ATTN__TILE_BYTES ? 1 : -1];

static const float *attn__at(const attn_view *v, int64_t a, int64_t b, int64_t c, int64_t e)
{
    return (const float *)v->data + (a*v->stride[0] + b*v->stride[1] + c*v->stride[2] + e*v->stride[3]);
}
static float *attn__out_at(const attn_out *o, int64_t a, int64_t b, int64_t c, int64_t e)
{
    return (float *)o->data + (a*o->stride[0] + b*o->stride[1] + c*o->stride[2] + (o->rank == 4 ? e*o->stride[3] : 0));
}
/* x with x * scale = -inf */
static float attn__none_over(float scale) { return attn__choose(scale < 0.0f, ATTN__INF, ATTN__NEG_INF); }
static void attn__fill(float *x, int64_t stride, int64_t n, float value)
{
    int64_t j = 0;
    if (stride == 1)            /* eight that become two stores */
        for (; j + 8 <= n; j += 8)
            x[j] = x[j + 1] = x[j + 2] = x[j + 3] = x[j + 4] = x[j + 5] = x[j + 6] = x[j + 7] = value;
    for (; j < n; j++) x[j * stride] = value;
}
static float attn__of_head(const attn_view *v, int64_t h) { return ((const float *)v->data)[h * v->stride[0]]; }

static void attn__copy_floats(float *to, const float *from, int64_t n)
{
    for (; n >= 8; n -= 8, to += 8, from += 8) ATTN__COPY(to, from, 8 * sizeof *to);    /* a size that is known */
    for (; n > 0; n--) *to++ = *from++;
}

/* The part of a parameter [..] or [H,..] that belongs to one head, as a view without the head axis. */
static attn_view attn__per_head(attn_view v, int rank, int64_t h)
{
    int i;
    if (v.rank != rank + 1) return v;
    v.data = (const float *)v.data + h * v.stride[0];
    for (i = 0; i < rank; i++) {
        v.size[i] = v.size[i + 1];
        v.stride[i] = v.stride[i + 1];
    }
    v.rank = rank;
    return v;
}

/* c = matrix * b, matrix [rows,depth] read with any strides */
static void attn__apply(const attn__kernels *f, const float *matrix, int64_t row_stride, int64_t column_stride,
                        const float *b, float *c, int64_t rows, int64_t depth, int64_t ld)
{
    attn__product p;
    p.a = matrix;
    p.a_row = row_stride;
    p.a_k = column_stride;
    p.b = b;
    p.c = c;
    p.rows = rows;
    p.b_row = p.c_row = ld;
    p.vecs = (int32_t)ld / f->width;
    p.kind = ATTN__PRODUCT;
    p.onto = ATTN__FROM_ZERO;
    p.fetch = NULL;
    do {                        /* run by run: less is lost to rounding, and that much of b stays near */
        p.depth = depth < ATTN__RUN ? depth : ATTN__RUN;
        f->product(&p);
        depth -= p.depth;
        p.a += p.depth * p.a_k;
        p.b += p.depth * p.b_row;
        p.onto = ATTN__ADD_AFTER;
    } while (depth > 0);
}

/* The tile's arrays, behind it in the worker's memory. worker_bytes in attn__resolve is the sum of these. */
static void attn__room(attn__tile *t)
{
    const attn__shape *s = t->shape;
    float *at = (float *)(void *)((char *)t + ATTN__TILE_BYTES);
    const int64_t depth = t->d->score == ATTN_SCORE_ADDITIVE ? 2 * attn__round4(s->hidden) : s->size_k;
    attn__fill(t->ones, 1, s->ld, 1.0f);
    t->query = at; at += depth * s->ld;
    t->raw = at;   at += (s->size_q > s->size_k ? s->size_q : s->size_k) * s->ld;
    t->o = at;     at += s->size_v * s->ld;
    t->acc = at;   at += s->size_v * s->ld;
    t->part = at;  at += s->size_v * s->ld;
    t->s = at;     at += ATTN__CHUNK * s->ld;
    t->t = at;     at += ATTN__CHUNK * s->ld;
    t->few_s = at; at += ATTN__FEW * ATTN__FEW_ROW;
    t->few_v = at; at += ATTN__FEW * (s->size_v + ATTN__MAX_WIDTH);
    t->w = at;
}

/* Additive: projected = W x for the lanes' vectors x in `raw` ([size][ld]); a copy where W is absent. Padded rows 0. */
static void attn__project(const attn__tile *t, attn_view w, const float *raw, float *projected)
{
    const int64_t hidden = t->shape->hidden, n = attn__round4(hidden) * t->ld;
    int64_t u;
    if (w.rank) {
        w = attn__per_head(w, 2, t->head);
        attn__apply(t->f, (const float *)w.data, w.stride[0], w.stride[1], raw, projected, hidden, w.size[1], t->ld);
    } else for (u = 0; u < hidden * t->ld; u++) projected[u] = raw[u];
    for (u = hidden * t->ld; u < n; u++) projected[u] = 0.0f;
}

/* e = e^2x for rows [hidden][ld], 0 in the padded rows */
static void attn__exp_twice(const attn__tile *t, const float *x, float *e)
{
    const int64_t n = t->shape->hidden * t->ld, all = attn__round4(t->shape->hidden) * t->ld;
    int64_t u;
    for (u = 0; u < n; u++) e[u] = x[u] + x[u];
    t->f->elementary(0, e, e, n);
    for (u = n; u < all; u++) e[u] = 0.0f;
}

static int attn__clear(const float *x, int64_t stride, int64_t n)
{
    int64_t u;
    for (u = 0; u < n; u++)
        if (!(x[u * stride] <= ATTN__ADDITIVE_CLEAR && x[u * stride] >= -ATTN__ADDITIVE_CLEAR)) return 0;
    return 1;
}

static void attn__load_weights(attn__tile *t)       /* w_v, padded; its sum, one chain */
{
    const attn_view v = attn__per_head(t->d->w_v, 1, t->head);
    const int64_t hidden = v.size[0], padded = attn__round4(hidden);
    int64_t u;
    t->w_sum = 0.0f;
    for (u = 0; u < hidden; u++) {
        t->w[u] = ((const float *)v.data)[u * v.stride[0]];
        t->w_sum = t->w_sum + t->w[u];
    }
    attn__fill(t->w + hidden, 1, padded - hidden, 0.0f);
}

/* Loads the lanes' queries, transformed into what will meet the keys. */
static void attn__load_queries(attn__tile *t)
{
    const attn_desc *d = t->d;
    const attn__shape *s = t->shape;
    const float *rows[ATTN__MAX_LANES];
    int64_t l;
    for (l = 0; l < t->ld; l++) {
        t->scale[l] = d->score == ATTN_SCORE_ADDITIVE || attn__is_kernel(d->score) ? 1.0f : d->scale;
        if (d->score == ATTN_SCORE_GIVEN || d->score == ATTN_SCORE_CONSTANT) continue;
        rows[l] = attn__at(&d->q, t->b, t->h[l], t->i[l], 0);
        if (d->score == ATTN_SCORE_COSINE) t->scale[l] = d->scale * attn__inverse_norm(rows[l], d->q.stride[3],
            s->size_q);
    }
    if (d->score == ATTN_SCORE_GIVEN || d->score == ATTN_SCORE_CONSTANT) return;
    if (d->score == ATTN_SCORE_BILINEAR) {
        const attn_view m = attn__per_head(d->bilinear, 2, t->head);
        t->f->pack(t->raw, t->ld, rows, d->q.stride[3], s->size_q, t->scale);
        attn__apply(t->f, (const float *)m.data, m.stride[1], m.stride[0], t->raw, t->query, s->size_k, s->size_q,
                    t->ld);
    } else if (d->score == ATTN_SCORE_ADDITIVE) {
        float *a = t->query + attn__round4(s->hidden) * t->ld;      /* e^2a first, then a itself */
        t->f->pack(t->raw, t->ld, rows, d->q.stride[3], s->size_q, t->scale);
        attn__project(t, d->w_q, t->raw, a);
        attn__exp_twice(t, a, t->query);
        for (l = 0; l < t->ld; l++) t->lane_clear[l] = attn__clear(a + l, t->ld, s->hidden);
        attn__load_weights(t);
    } else t->f->pack(t->query, t->ld, rows, d->q.stride[3], s->size_q, t->scale);
}

/* ---- phase 0: one block of keys of one stream. Only keys that some row may attend to are read.
   covered[j] for keys c0..c0+n: does any row of batch entry b reach it? all: the scores are wanted for every key */
static void attn__cover(const attn_desc *d, const attn__shape *s, int64_t b, int64_t c0, int64_t n, uint8_t *covered)
{
    int32_t change[ATTN__CHUNK + 1];
    int64_t i, j, depth = 0;
    for (j = 0; j <= n; j++) change[j] = 0;
    for (i = 0; i < s->queries; i++) {
        const attn__row row = attn__row_of(d, s->queries, s->keys, b, i);
        const int64_t first = row.first - c0, last = row.last - c0;
        if (first >= n || last <= 0) continue;
        change[first > 0 ? first : 0]++;
        change[last < n ? last : n]--;
    }
    for (j = 0; j < n; j++) {
        depth += change[j];
        covered[j] = depth > 0 || d->scores.rank || d->scores_softcap.rank;
    }
}

/* Additive, per key: e^2b, b (both padded to a multiple of 4), and 1 where the factored form may be used. */
static void attn__prepare_additive(attn__tile *t, const float *const *rows, int64_t count, float *to)
{
    const attn__shape *s = t->shape;
    const int64_t hidden = s->hidden, padded = attn__round4(hidden);
    float *b = t->query + padded * t->ld, *keys[ATTN__MAX_LANES];
    const attn_view bias = attn__per_head(t->d->hidden_bias, 1, t->head);
    int64_t l, u;
    t->f->pack(t->raw, t->ld, rows, t->d->k.stride[3], s->size_k, t->ones);
    attn__project(t, t->d->w_k, t->raw, b);
    for (u = 0; bias.rank && u < hidden; u++)
        for (l = 0; l < t->ld; l++) b[u * t->ld + l] = b[u * t->ld + l] +
            ((const float *)bias.data)[u * bias.stride[0]];
    attn__exp_twice(t, b, t->query);
    for (l = 0; l < count; l++) keys[l] = to + l * s->key_floats;
    t->f->unpack(keys, count, 1, t->query, t->ld, 2 * padded, t->ones);
    for (l = 0; l < count; l++) keys[l][2 * padded] = attn__clear(keys[l] + padded, 1, hidden) ? 1.0f : 0.0f;
}

static void attn__prepare_keys(attn__tile *t, int64_t c0, float *prepared)
{
    const attn_desc *d = t->d;
    const attn__shape *s = t->shape;
    const int64_t n = s->keys - c0 < ATTN__CHUNK ? s->keys - c0 : ATTN__CHUNK;
    const float *rows[ATTN__MAX_LANES];
    uint8_t covered[ATTN__CHUNK];
    int64_t j, l, run;
    attn__cover(d, s, t->b, c0, n, covered);
    for (j = 0; j < n; j += run) {
        for (run = 0; j + run < n && run < t->ld && covered[j + run]; run++) rows[run] = attn__at(&d->k, t->b,
            t->head_kv, c0 + j + run, 0);
        if (run == 0) { run = 1; continue; }
        for (l = run; l < t->ld; l++) rows[l] = rows[0];
        if (d->score == ATTN_SCORE_ADDITIVE) attn__prepare_additive(t, rows, run, prepared + (c0 + j) * s->key_floats);
        else for (l = 0; l < run; l++) prepared[c0 + j + l] = attn__inverse_norm(rows[l], d->k.stride[3], s->size_k);
    }
}

/* ---- scores of the keys c0+j0 .. c0+j1 of a chunk, for the vectors x0 .. x1 of the tile, into rows j0.. of t->s */
static void attn__additive_scores(attn__tile *t, int64_t c0, int64_t j0, int64_t j1, int32_t x0, int32_t x1)
{
    const attn__shape *s = t->shape;
    const int64_t padded = attn__round4(s->hidden), lane0 = x0 * t->f->width, lane1 = x1 * t->f->width;
    const float *keys = t->prepared + (c0 + j0) * s->key_floats;
    attn__additive p;
    int64_t j, l, lanes_clear = 1;
    p.query = t->query + lane0;
    p.key = keys;
    p.key_stride = s->key_floats;
    p.w = t->w;
    p.s = t->s + j0 * t->ld + lane0;
    p.rows = j1 - j0;
    p.hidden = padded;
    p.w_sum = t->w_sum;
    p.scale = t->d->scale;
    p.ld = (int32_t)t->ld;
    p.vecs = x1 - x0;
    t->f->additive(&p);
    for (l = lane0; l < lane1; l++) lanes_clear &= t->lane_clear[l];
    for (j = 0; j < j1 - j0; j++) {                 /* the pairs that are not clear, again */
        const int key_clear = keys[j * s->key_floats + 2 * padded] != 0.0f;
        if (lanes_clear && key_clear) continue;
        p.query = t->query + padded * t->ld + lane0;
        p.key = keys + j * s->key_floats + padded;
        p.s = t->t + lane0;
        p.rows = 1;
        t->f->additive_direct(&p);
        for (l = lane0; l < lane1; l++)
            if (!key_clear || !t->lane_clear[l]) t->s[(j0 + j) * t->ld + l] = t->t[l];
    }
}

/* ---- >>few: a tile of few rows (one query; a group of heads) would leave most lanes idle. Then lanes are keys, on
   the way turned in registers, and after that columns of V, read where they lie. The same chains, so the same bits;
   scores and outputs of a chunk are turned into the tile's layout, where everything else happens. */
static int32_t attn__is_few(const attn__tile *t)
{
    const attn_desc *d = t->d;
    return attn__is_dot(d->score) && t->lanes <= ATTN__FEW && d->k.size[3] > 0 && d->k.stride[3] == 1 &&
           (!d->out.rank || (d->v.stride[3] == 1 && d->v.size[3] >= t->f->width));
}

/* [lanes][row] at `from` -> t's layout */
static void attn__few_turn(const attn__tile *t, const float *from, int64_t row, int64_t n, float *to)
{
    const float *rows[ATTN__MAX_LANES];
    int64_t l;
    for (l = 0; l < t->ld; l++) rows[l] = from + (l < t->lanes ? l : t->lanes - 1) * row;
    t->f->pack(to, t->ld, rows, 1, n, t->ones);
}

static void attn__few_scores(attn__tile *t, int64_t c0, int64_t j0, int64_t j1)
{
    attn__product p;
    p.a = t->query;
    p.a_k = t->ld;
    p.b = attn__at(&t->d->k, t->b, t->head_kv, c0 + j0, 0);
    p.b_row = t->d->k.stride[2];
    p.c = t->few_s + j0;
    p.c_row = ATTN__FEW_ROW;
    p.rows = t->lanes;
    p.depth = t->shape->size_k;
    p.fetch = t->d->out.rank ? attn__at(&t->d->v, t->b, t->head_kv, c0 + j0, 0) : NULL;
    p.fetch_row = t->d->out.rank ? t->d->v.stride[2] : 0;
    t->f->dots(&p, j1 - j0);
    attn__few_turn(t, t->few_s + j0, ATTN__FEW_ROW, j1 - j0, t->s + j0 * t->ld);
}

static void attn__scores(attn__tile *t, int64_t c0, int64_t j0, int64_t j1, int32_t x0, int32_t x1)
{
    const attn_desc *d = t->d;
    const int64_t lane0 = x0 * t->f->width;
    int64_t j, l;
    if (d->score == ATTN_SCORE_ADDITIVE) attn__additive_scores(t, c0, j0, j1, x0, x1);
    else if (d->score == ATTN_SCORE_CONSTANT) {
        for (j = j0 * t->ld; j < j1 * t->ld; j++) t->s[j] = 0.0f;
    } else if (d->score == ATTN_SCORE_GIVEN) {
        const float *rows[ATTN__MAX_LANES];
        for (l = 0; l < t->ld; l++) rows[l] = attn__at(&d->given_scores, t->b, t->h[l], t->i[l], c0 + j0);
        t->f->pack(t->s + j0 * t->ld, t->ld, rows, d->given_scores.stride[3], j1 - j0, t->scale);
    } else if (t->few) attn__few_scores(t, c0, j0, j1);
    else {
        const int64_t run = attn__is_kernel(d->score) ? ATTN__SQUARES : t->shape->size_k;
        int64_t k = 0;
        attn__product p;
        p.a = attn__at(&d->k, t->b, t->head_kv, c0 + j0, 0);
        p.a_row = d->k.stride[2];
        p.a_k = d->k.stride[3];
        p.b = t->query + lane0;
        p.c = t->s + j0 * t->ld + lane0;
        p.rows = j1 - j0;
        p.b_row = p.c_row = t->ld;
        p.vecs = x1 - x0;
        p.kind = attn__is_kernel(d->score) ? ATTN__SQUARED_DISTANCE : ATTN__PRODUCT;
        p.onto = ATTN__FROM_ZERO;
        p.fetch = NULL;
        if (t->shape->size_k >= ATTN__LONG && p.a_k == 1 && d->out.rank && d->v.stride[3] == 1) {
            p.fetch = attn__at(&d->v, t->b, t->head_kv, c0 + j0, 0);
            p.fetch_row = d->v.stride[2];
            p.fetch_size = t->shape->size_v;
        }
        do {
            p.depth = t->shape->size_k - k < run ? t->shape->size_k - k : run;
            t->f->product(&p);
            k += p.depth;
            p.a += p.depth * p.a_k;
            p.b += p.depth * p.b_row;
            p.onto = ATTN__ADD_AFTER;
        } while (k < t->shape->size_k);
    }
    for (j = j0; d->score == ATTN_SCORE_COSINE && j < j1; j++)
        for (l = lane0; l < x1 * t->f->width; l++) t->s[j * t->ld + l] = t->s[j * t->ld + l] * t->prepared[c0 + j];
}

static void attn__finish_raw(attn__tile *t, int64_t n)      /* sums of squares -> scores of the distance kernels */
{
    if (attn__is_kernel(t->d->score) && t->d->score != ATTN_SCORE_CONSTANT) t->f->distance(t->s, t->ld, n,
        t->d->score, t->width);
}

static void attn__soften(attn__tile *t, int64_t n)
{
    if (t->d->softcap != 0.0f) t->f->softcap(t->s, n * t->ld, t->d->softcap, attn__is_kernel(t->d->score));
}

/* Rows of an output [B,H,Sq,Sk] for the lanes, at key j. */
static void attn__lane_rows(const attn__tile *t, const attn_out *o, int64_t j, float **rows)
{
    int64_t l;
    for (l = 0; l < t->lanes; l++)
        rows[l] = attn__out_at(o, t->b, t->h[l], t->i[l], j);
}
static void attn__store_chunk(const attn__tile *t, const attn_out *o, int64_t c0, int64_t n)
{
    float *rows[ATTN__MAX_LANES];
    if (!o->rank) return;
    attn__lane_rows(t, o, c0, rows);
    t->f->unpack(rows, t->lanes, o->stride[3], t->s, t->ld, n, t->ones);
}

/* The raw and the softcapped scores as results: over all keys, apart from the rest so that they change no bit of it.
   from: a multiple of ATTN__CHUNK */
static void attn__tap_scores(attn__tile *t, int64_t from, int64_t to)
{
    int64_t c0, n;
    for (c0 = from; c0 < to; c0 += ATTN__CHUNK) {
        n = to - c0 < ATTN__CHUNK ? to - c0 : ATTN__CHUNK;
        attn__scores(t, c0, 0, n, 0, t->vecs);
        attn__finish_raw(t, n);
        attn__store_chunk(t, &t->d->scores, c0, n);
        attn__soften(t, n);
        attn__store_chunk(t, &t->d->scores_softcap, c0, n);
    }
}

/* ---- one chunk. Which vectors of the tile reach key j? from[j] <= x < to[j], the hull; none where from[j] == to[j].
   A key that no lane may attend to lies in no hull and is never read. Where the chunk is `whole`, from[0] and to[0]
   hold for all of it and the others are not set. */
typedef struct attn__reach {
    int32_t first[ATTN__MAX_LANES], last[ATTN__MAX_LANES];  /* per lane, within the chunk */
    uint8_t from[ATTN__CHUNK], to[ATTN__CHUNK];
    int     whole;                                          /* every lane reaches every key of the chunk */
} attn__reach;

static void attn__find_reach(const attn__tile *t, int64_t c0, int64_t n, attn__reach *r)
{
    int8_t change[ATTN__CHUNK + 1];
    int64_t j, l;
    int32_t x, depth;
    r->whole = 1;
    for (l = 0; l < t->ld; l++) {
        const int64_t first = t->row[l].first - c0, last = t->row[l].last - c0;
        r->first[l] = (int32_t)(first < 0 ? 0 : first > n ? n : first);
        r->last[l] = (int32_t)(last < 0 ? 0 : last > n ? n : last);
        if (r->first[l] > 0 || r->last[l] < n) r->whole = 0;
    }
    if (r->whole) {
        r->from[0] = 0;
        r->to[0] = (uint8_t)t->vecs;
        return;
    }
    for (j = 0; j < n; j++) r->from[j] = r->to[j] = 0;
    for (x = 0; x < t->vecs; x++) {
        for (j = 0; j <= n; j++) change[j] = 0;
        for (l = x * t->f->width; l < (x + 1) * t->f->width; l++)
            if (r->first[l] < r->last[l]) { change[r->first[l]]++; change[r->last[l]]--; }
        for (depth = 0, j = 0; j < n; j++) {
            depth += change[j];
            if (depth == 0) continue;
            if (r->from[j] == r->to[j]) r->from[j] = (uint8_t)x;
            r->to[j] = (uint8_t)(x + 1);
        }
    }
}

/* The next stretch of keys from j on with one hull; returns its end. */
static int64_t attn__stretch(const attn__reach *r, int64_t j, int64_t n)
{
    const int64_t start = j;
    if (r->whole) return n;
    while (j < n && r->from[j] == r->from[start] && r->to[j] == r->to[start]) j++;
    return j;
}

static void attn__mask_chunk(attn__tile *t, int64_t c0, int64_t n, const attn__reach *r)
{
    const attn_desc *d = t->d;
    int64_t stride[4], l;
    if (d->bias.rank) {
        const float *rows[ATTN__MAX_LANES];
        attn__broadcast(&d->bias, stride);
        for (l = 0; l < t->ld; l++)
            rows[l] = (const float *)d->bias.data + (t->b*stride[0] + t->h[l]*stride[1] + t->i[l]*stride[2] +
                                                     c0*stride[3]);
        t->f->bias(t->s, t->ld, n, rows, stride[3], attn__is_kernel(d->score));
    }
    if (d->alibi.rank) {
        float position[ATTN__MAX_LANES];
        for (l = 0; l < t->ld; l++) position[l] = (float)attn__add_signed(t->row[l].position, -c0);
        t->f->alibi(t->s, t->ld, n, t->slope, position);
    }
    if (d->mask.rank) {
        const uint8_t *rows[ATTN__MAX_LANES];
        attn__broadcast(&d->mask, stride);
        for (l = 0; l < t->ld; l++)
            rows[l] = (const uint8_t *)d->mask.data + (t->b*stride[0] + t->h[l]*stride[1] + t->i[l]*stride[2] +
                                                       c0*stride[3]);
        t->f->exclude(t->s, t->ld, n, rows, stride[3]);
    }
    if (!r->whole) t->f->clip(t->s, t->ld, n, r->first, r->last);
}

static void attn__chunk_scores(attn__tile *t, int64_t c0, int64_t n, const attn__reach *r)
{
    int64_t j, end;
    if (!r->whole) attn__fill(t->s, 1, n * t->ld, ATTN__NEG_INF);
    for (j = 0; j < n; j = end) {
        end = attn__stretch(r, j, n);
        if (r->from[j] < r->to[j]) attn__scores(t, c0, j, end, r->from[j], r->to[j]);
    }
    attn__finish_raw(t, n);
    attn__soften(t, n);
    attn__mask_chunk(t, c0, n, r);
}

/* Dropout for some lanes of the tile and the rows j0 .. j1 of [.][ld]; row 0 is key c0. */
static void attn__drop_lanes(const attn__tile *t, int64_t c0, int64_t lane0, int64_t lanes, int64_t j0, int64_t j1,
                             float *s)
{
    uint32_t i[ATTN__MAX_LANES], h[ATTN__MAX_LANES];
    const int64_t *origin = t->d->dropout_origin;   /* modulo 2^32 */
    attn__drop d;
    int64_t l;
    for (l = 0; l < lanes; l++) {
        i[l] = (uint32_t)t->i[lane0 + l] + (uint32_t)origin[2];
        h[l] = (uint32_t)t->h[lane0 + l] + (uint32_t)origin[1];
    }
    d.s = s + lane0;
    d.ld = t->ld;
    d.lanes = lanes;
    d.j0 = j0;
    d.j1 = j1;
    d.seed = t->d->seed;
    d.below = attn__drop_below(t->d->dropout);
    d.i = i;
    d.h = h;
    d.b = (uint32_t)t->b + (uint32_t)origin[0];
    d.key = (uint32_t)c0 + (uint32_t)origin[3];
    t->f->drop(&d);
}

/* Scores of the tile's vector x become weights relative to the chunk's maximum, between the keys that some lane
   reaches. mark: tell excluded ones from those that underflow. */
static void attn__weigh_vector(attn__tile *t, const attn__reach *r, int32_t x, int mark, float *cmax, float *csum,
                               int64_t *first, int64_t *last)
{
    const int64_t lane0 = x * t->f->width, lane1 = lane0 + t->f->width;
    int64_t l;
    *first = r->first[lane0];
    *last = r->last[lane0];
    for (l = lane0; l < lane1; l++) {
        *first = r->first[l] < *first ? r->first[l] : *first;
        *last = r->last[l] > *last ? r->last[l] : *last;
    }
    t->f->weigh(t->s + lane0, t->ld, *first, *last, mark, cmax + lane0, csum + lane0);
}
static void attn__chunk_weights(attn__tile *t, int64_t c0, int64_t n, const attn__reach *r, int mark,
                                float *cmax, float *csum)
{
    const int64_t width = t->f->width;
    int64_t j, first, last;
    int32_t x;
    for (x = 0; x < t->vecs; x++) {
        attn__weigh_vector(t, r, x, mark, cmax, csum, &first, &last);
        for (j = 0; !r->whole && j < n; j++)    /* a vector of the hull that does not reach the key: excluded, inert */
            if (j < first || j >= last) attn__fill(t->s + j * t->ld + x * width, 1, width, -0.0f);
        if (t->d->dropout > 0.0f) attn__drop_lanes(t, c0, x * width, width, first, last, t->s);
    }
}

/* Some keys at a time, so that a row of V is read whole while its lines are near. The last vector of columns ends
   with the row and may overlap the one before it; it has a place of its own: with 8 lanes and 20 columns they start at
   0, 8 and 12, the last is kept in places 16..23, and its upper half moves down to 16..19 at the end. */
static void attn__few_values(attn__tile *t, int64_t c0, int64_t j0, int64_t j1, const attn__reach *r, float *acc)
{
    const attn_view *v = &t->d->v;
    const int64_t width = t->f->width, size = t->shape->size_v, whole = size / width * width, row = size + width;
    float *weights[ATTN__FEW];
    attn__product p;
    int64_t j, end, next, column, l;
    for (l = 0; l < t->lanes; l++) weights[l] = t->few_s + l * ATTN__FEW_ROW + j0;
    t->f->unpack(weights, t->lanes, 1, t->s + j0 * t->ld, t->ld, j1 - j0, t->ones);
    attn__fill(t->few_v, 1, t->lanes * row, 0.0f);
    p.a_row = ATTN__FEW_ROW;
    p.a_k = 1;
    p.b_row = v->stride[2];
    p.c_row = row;
    p.rows = t->lanes;
    p.kind = ATTN__PRODUCT;
    p.onto = 1;
    p.fetch_row = t->d->k.stride[2];
    for (j = j0; j < j1; j = next) {
        end = attn__stretch(r, j, j1);
        next = j + ATTN__FEW_KEYS < end ? j + ATTN__FEW_KEYS : end;
        if (!r->whole && r->from[j] == r->to[j]) continue;
        p.a = t->few_s + j;
        p.depth = next - j;
        for (column = 0; column < size; column += p.vecs * width) {
            const int64_t left = (whole - column) / width;
            p.vecs = p.rows == 1 && left >= 8 ? 8 : left > t->f->vecs ? t->f->vecs : left > 0 ? (int32_t)left : 1;
            p.b = attn__at(v, t->b, t->head_kv, c0 + j, column < whole ? column : size - width);
            p.c = t->few_v + column;
            p.fetch = p.vecs < 8 ? NULL :       /* while V is read the keys of the next chunk come near */
                attn__ahead(attn__at(&t->d->k, t->b, t->head_kv, c0 + j, 0), ATTN__CHUNK, p.fetch_row) + column;
            t->f->product(&p);
        }
    }
    for (l = 0; l < t->lanes; l++)
        for (column = whole; column < size; column++)
            t->few_v[l * row + column] = t->few_v[l * row + column + width - (size - whole)];
    attn__few_turn(t, t->few_v, row, size, acc);
}

/* after: acc gets a chain more, where the chunk is whole */
static void attn__chunk_values(attn__tile *t, int64_t c0, int64_t j0, int64_t j1, const attn__reach *r, int32_t kind,
                               int after, float *acc)
{
    const attn_view *v = &t->d->v;
    attn__product p;
    int64_t j, end;
    if (t->few && kind == ATTN__PRODUCT) { attn__few_values(t, c0, j0, j1, r, acc); return; }
    if (!r->whole) attn__fill(acc, 1, t->shape->size_v * t->ld, 0.0f);
    for (j = j0; j < j1; j = end) {
        const int64_t hull = r->whole ? 0 : j;
        end = attn__stretch(r, j, j1);
        if (r->from[hull] == r->to[hull]) continue;
        p.a = attn__at(v, t->b, t->head_kv, c0 + j, 0);
        p.a_row = v->stride[3];
        p.a_k = v->stride[2];
        p.b = t->s + j * t->ld + r->from[hull] * t->f->width;
        p.c = acc + r->from[hull] * t->f->width;
        p.rows = t->shape->size_v;
        p.depth = end - j;
        p.b_row = p.c_row = t->ld;
        p.vecs = r->to[hull] - r->from[hull];
        p.kind = kind;
        p.onto = !r->whole ? ATTN__GO_ON : after ? ATTN__ADD_AFTER : ATTN__FROM_ZERO;
        p.fetch = NULL;
        t->f->product(&p);
    }
}

/* The weighted values of a chunk: chain by chain, which loses less to rounding than one long chain. */
static void attn__chunk_outputs(attn__tile *t, int64_t c0, int64_t n, const attn__reach *r, int32_t kind)
{
    const int at_once = r->whole && !(t->few && kind == ATTN__PRODUCT);
    int64_t j, end;
    for (j = 0; j < n; j = end) {
        end = n - j < ATTN__CHAIN ? n : j + ATTN__CHAIN;
        attn__chunk_values(t, c0, j, end, r, kind, j > 0, j && !at_once ? t->part : t->acc);
        if (j && !at_once) t->f->merge(t->shape->size_v, t->ld, t->acc, t->part, t->ones, t->ones);
    }
}

/* What a chunk leaves behind where the keys of a tile are cut: output, maximum and sum of each row. */
static float *attn__slot(const attn__tile *t, int64_t c0)
{
    return t->slots + c0 / ATTN__CHUNK * t->shape->chunk_floats;
}
static void attn__leave(const attn__tile *t, float *slot, const float *cmax, const float *csum)
{
    const int64_t outputs = t->d->out.rank ? t->shape->size_v : 0;
    float *rows[ATTN__MAX_LANES];
    int64_t l;
    for (l = 0; l < t->lanes; l++) {
        rows[l] = slot + 2 * ATTN__FEW + l * outputs;
        slot[l] = cmax[l];
        slot[ATTN__FEW + l] = csum[l];
    }
    if (outputs) t->f->unpack(rows, t->lanes, 1, t->acc, t->ld, outputs, t->ones);
}

/* A chunk's results, the output in t->acc, are joined with those of the chunks before it. */
static void attn__absorb(attn__tile *t, const float *cmax, const float *csum)
{
    float old[ATTN__MAX_LANES], fresh[ATTN__MAX_LANES];
    t->f->join(t->ld, t->top, t->sum, cmax, csum, old, fresh);
    if (t->d->out.rank) t->f->merge(t->shape->size_v, t->ld, t->o, t->acc, old, fresh);
}
static void attn__recall(attn__tile *t, const float *slot)
{
    const int64_t outputs = t->d->out.rank ? t->shape->size_v : 0;
    float cmax[ATTN__MAX_LANES], csum[ATTN__MAX_LANES];
    int64_t l;
    for (l = 0; l < t->ld; l++) {
        cmax[l] = slot[l < t->lanes ? l : t->lanes - 1];
        csum[l] = slot[ATTN__FEW + (l < t->lanes ? l : t->lanes - 1)];
    }
    if (outputs) attn__few_turn(t, slot + 2 * ATTN__FEW, outputs, outputs, t->acc);
    attn__absorb(t, cmax, csum);
}

static void attn__chunk(attn__tile *t, int64_t c0, int64_t n)
{
    const attn_desc *d = t->d;
    const int64_t outputs = d->out.rank ? t->shape->size_v : 0;
    float cmax[ATTN__MAX_LANES], csum[ATTN__MAX_LANES];
    attn__reach r;
    attn__find_reach(t, c0, n, &r);
    attn__chunk_scores(t, c0, n, &r);
    attn__store_chunk(t, &d->scores_masked, c0, n);
    attn__store_chunk(t, &d->weights, c0, n);           /* scores for now; attn__finish_weights turns them */
    attn__chunk_weights(t, c0, n, &r, 0, cmax, csum);
    if (outputs) {
        attn__chunk_outputs(t, c0, n, &r, ATTN__PRODUCT);
        if (!t->f->finite(t->acc, outputs * t->ld)) {   /* NaN, Inf or overflow: again, without the excluded lanes */
            attn__chunk_scores(t, c0, n, &r);
            attn__chunk_weights(t, c0, n, &r, 1, cmax, csum);
            attn__chunk_outputs(t, c0, n, &r, ATTN__PRODUCT_OF_ALLOWED);
        }
    }
    if (t->slots) attn__leave(t, attn__slot(t, c0), cmax, csum);
    else attn__absorb(t, cmax, csum);
}

/* ---- the end of a tile: per row 1/mass, then outputs, log-sum-exp and weights */
static void attn__uniform_row(const attn__tile *t, int64_t l)
{
    const attn_desc *d = t->d;
    const int64_t keys = t->shape->keys;
    const float weight = attn__choose(keys > 0, 1.0f / (float)keys, 0.0f), keep = attn__keep_scale(d->dropout);
    attn__dropper drop = attn__dropper_of(d, t->b, t->h[l], t->i[l]);
    const int64_t columns = d->out.rank ? t->shape->size_v : 0;
    float *o = t->o + l, *acc = t->acc + l;
    int64_t c, j;
    attn__fill(o, t->ld, columns, 0.0f);
    attn__fill(acc, t->ld, columns, 0.0f);
    for (j = 0; j < keys; j++) {
        const int kept = d->dropout == 0.0f || attn__kept(&drop, j);
        const float w = attn__choose(d->dropout > 0.0f, attn__choose(kept, weight * keep, 0.0f), weight);
        for (c = 0; c < columns; c++)
            acc[c * t->ld] = attn__fma(w, *attn__at(&d->v, t->b, t->head_kv, j, c), acc[c * t->ld]);
        if (j % ATTN__CHUNK == ATTN__CHUNK - 1 || j == keys - 1) {
            for (c = 0; c < columns; c++) o[c * t->ld] = o[c * t->ld] + acc[c * t->ld];
            attn__fill(acc, t->ld, columns, 0.0f);
        }
        if (d->weights.rank)
            *attn__out_at(&d->weights, t->b, t->h[l], t->i[l], j) = d->weights_after_dropout ? w : weight;
    }
}

static int32_t attn__is_plain(const attn__tile *t)
{
    const attn_desc *d = t->d;
    return d->score == ATTN_SCORE_GIVEN && d->given_scores.stride[3] == 1 && d->scale != 0.0f && d->softcap == 0.0f &&
           !d->out.rank && !d->scores_masked.rank && !d->bias.rank && !d->alibi.rank && !d->mask.rank;
}

/* A row's maximum and sum in the plain case. Chunks and the 16 sums go by absolute key, so edges are filled up. */
static void attn__plain_row(attn__tile *t, int64_t l)
{
    const float *x = attn__at(&t->d->given_scores, t->b, t->h[l], t->i[l], 0);
    float top[ATTN__MAX_WIDTH], sum[ATTN__MAX_WIDTH], cmax[ATTN__MAX_WIDTH], csum[ATTN__MAX_WIDTH];
    float old[ATTN__MAX_WIDTH], fresh[ATTN__MAX_WIDTH], *edge = t->t;
    const int64_t first = t->row[l].first, last = t->row[l].last, width = t->f->width;
    int64_t c0, c1, j;
    attn__fill(top, 1, width, ATTN__NEG_INF);
    attn__fill(cmax, 1, width, ATTN__NEG_INF);
    attn__fill(sum, 1, width, 0.0f);
    attn__fill(csum, 1, width, 0.0f);
    for (c0 = first / ATTN__CHUNK * ATTN__CHUNK; c0 < last; c0 = c1) {
        c1 = c0 + ATTN__CHUNK;
        if (first <= c0 && c1 <= last) t->f->mass(x + c0, ATTN__CHUNK, t->d->scale, cmax, csum);
        else {
            attn__fill(edge, 1, ATTN__CHUNK, attn__none_over(t->d->scale));
            for (j = first > c0 ? first : c0; j < c1 && j < last; j++) edge[j - c0] = x[j];
            t->f->mass(edge, ATTN__CHUNK, t->d->scale, cmax, csum);
        }
        t->f->join(width, top, sum, cmax, csum, old, fresh);
    }
    t->top[l] = top[0];
    t->sum[l] = sum[0];
}

/* One row of weights, which holds masked scores in the chunks that were visited; in the plain case nothing yet. */
static void attn__finish_weights(const attn__tile *t, int64_t l, float top, float inverse)
{
    const attn_desc *d = t->d;
    const int64_t stride = d->weights.stride[3], keys = t->shape->keys;
    const int64_t from = t->plain ? t->row[l].first : t->first / ATTN__CHUNK * ATTN__CHUNK;
    const int64_t to = t->plain ? t->row[l].last : t->last;
    const float base = attn__choose(attn__is_none(top), 0.0f, top), keep = attn__keep_scale(d->dropout);
    attn__dropper drop = attn__dropper_of(d, t->b, t->h[l], t->i[l]);
    float *row = attn__out_at(&d->weights, t->b, t->h[l], t->i[l], 0), *w;
    const float *x = t->plain ? attn__at(&d->given_scores, t->b, t->h[l], t->i[l], 0) : row;
    const int64_t x_stride = t->plain ? 1 : stride;
    int64_t j, c0, n;
    attn__fill(row, stride, from < to ? from : keys, 0.0f);
    for (c0 = from; c0 < to; c0 += n) {
        n = to - c0 < ATTN__CHUNK ? to - c0 : ATTN__CHUNK;
        w = stride == 1 ? row + c0 : t->t;
        for (j = 0; x_stride != 1 && j < n; j++) w[j] = x[(c0 + j) * x_stride];
        t->f->normalise(x_stride == 1 ? x + c0 : w, w, n, attn__choose(t->plain, d->scale, 1.0f), base, inverse);
        for (j = 0; d->weights_after_dropout && d->dropout > 0.0f && j < n; j++)
            w[j] = attn__choose(attn__kept(&drop, c0 + j), w[j] * keep, 0.0f);
        for (j = 0; stride != 1 && j < n; j++) row[(c0 + j) * stride] = w[j];
    }
    if (from < to) attn__fill(row + to * stride, stride, keys - to, 0.0f);
}

static void attn__finish_tile(attn__tile *t)
{
    const attn_desc *d = t->d;
    float inverse[ATTN__MAX_LANES], *rows[ATTN__MAX_LANES];
    int64_t l;
    for (l = 0; l < t->lanes; l++) {
        float top = t->top[l], sum = t->sum[l], share = 1.0f;
        if (d->stats.rank) {
            *attn__out_at(&d->stats, t->b, t->h[l], t->i[l], 0) = top;
            *attn__out_at(&d->stats, t->b, t->h[l], t->i[l], 1) = attn__quiet(sum);
        }
        if (d->sink.rank && !attn__is_none(attn__of_head(&d->sink, t->h[l]))) {
            const float sink = attn__of_head(&d->sink, t->h[l]), m = attn__larger(sink, top);
            share = attn__exp(top - m);
            sum = attn__fma(sum, share, attn__exp(sink - m));
            top = m;
        }
        inverse[l] = attn__choose(sum == 0.0f, 0.0f, share / sum);
        if (d->lse.rank)
            *attn__out_at(&d->lse, t->b, t->h[l], t->i[l], 0) =
                attn__choose(sum == 0.0f, ATTN__NEG_INF, attn__quiet(top + attn__log(sum)));
        if (sum == 0.0f && d->empty == ATTN_EMPTY_UNIFORM) {
            attn__uniform_row(t, l);
            inverse[l] = 1.0f;
            continue;
        }
        if (sum == 0.0f && d->empty == ATTN_EMPTY_NAN) inverse[l] = ATTN__NAN;
        if (d->weights.rank) {
            attn__finish_weights(t, l, t->top[l], inverse[l]);
            if (sum == 0.0f)
                attn__fill(attn__out_at(&d->weights, t->b, t->h[l], t->i[l], 0), d->weights.stride[3], t->shape->keys,
                           inverse[l]);
        }
        if (d->dropout > 0.0f) inverse[l] = inverse[l] * attn__keep_scale(d->dropout);
    }
    if (d->scores_masked.rank) {
        attn__lane_rows(t, &d->scores_masked, 0, rows);
        for (l = 0; l < t->lanes; l++) {
            const int64_t from = t->first / ATTN__CHUNK * ATTN__CHUNK, s = d->scores_masked.stride[3];
            attn__fill(rows[l], s, t->first < t->last ? from : t->shape->keys, ATTN__NEG_INF);
            if (t->first < t->last) attn__fill(rows[l] + t->last * s, s, t->shape->keys - t->last, ATTN__NEG_INF);
        }
    }
    if (d->out.rank) {
        for (l = t->lanes; l < t->ld; l++) inverse[l] = 0.0f;
        attn__lane_rows(t, &d->out, 0, rows);
        t->f->unpack(rows, t->lanes, d->out.stride[3], t->o, t->ld, t->shape->size_v, inverse);
    }
}

/* Do all rows of a batch entry reach the same keys? */
static int attn__same_rows(const attn_desc *d)
{
    return !d->causal && !d->window && d->key_lengths.rank < 2 && !d->query_lengths.rank && !d->alibi.rank;
}

/* The lanes of a tile: its rows from query i of head h on, and what they may reach. */
static void attn__open_lanes(attn__tile *t, int64_t h, int64_t i)
{
    const attn_desc *d = t->d;
    const attn__shape *s = t->shape;
    const int same = attn__same_rows(d);
    int64_t l;
    t->first = ATTN__HUGE;
    t->last = 0;
    t->head = h;
    for (l = 0; l < t->ld; l++) {
        t->h[l] = h;
        t->i[l] = i;
        if (l == 0 || !same) t->row[l] = attn__row_of(d, s->queries, s->keys, t->b, i);
        else t->row[l] = t->row[0];
        if (t->row[l].first < t->row[l].last) {
            t->first = t->row[l].first < t->first ? t->row[l].first : t->first;
            t->last = t->row[l].last > t->last ? t->row[l].last : t->last;
        }
        if (attn__is_kernel(d->score)) {
            const float sigma = d->sigma_per_head.rank ? attn__of_head(&d->sigma_per_head, h) : d->sigma;
            t->width[l] = sigma * sigma;
            if (d->score == ATTN_SCORE_GAUSSIAN) t->width[l] = -0.5f / t->width[l];
        }
        if (d->alibi.rank) t->slope[l] = attn__of_head(&d->alibi, h);
        t->top[l] = ATTN__NEG_INF;
        t->sum[l] = 0.0f;
        if (l + 1 < t->lanes && ++i == s->queries) {
            i = 0;
            h++;
        }
    }
    if (t->first >= t->last) t->first = t->last = 0;
}

/* The vectors of one of so many tiles, of one width or two next to each other, and how many lie before it. */
static int64_t attn__share(int64_t vectors, int64_t tiles, int64_t tile, int64_t *before)
{
    const int64_t each = vectors / tiles, more = vectors % tiles;
    *before = tile * each + (tile < more ? tile : more);
    return each + (tile < more);
}

static void attn__open_tile(attn__tile *t, int64_t tile)
{
    const attn__shape *s = t->shape;
    const int64_t group = s->heads / s->streams, rows = group * s->queries;
    int64_t row0;
    t->vecs = (int32_t)attn__share(attn__blocks(rows, t->f->width), s->tiles, tile, &row0);
    row0 *= t->f->width;
    t->ld = t->vecs * t->f->width;
    t->lanes = rows - row0 < t->ld ? rows - row0 : t->ld;
    t->few = attn__is_few(t);
    attn__open_lanes(t, t->stream * group + row0 / s->queries, row0 % s->queries);
    t->plain = attn__is_plain(t);
}

/* All of a tile, or one part of its keys (`part` of shape->parts). */
static void attn__run_tile(attn__tile *t, int64_t part)
{
    const attn_desc *d = t->d;
    const attn__shape *s = t->shape;
    const int64_t chunks = attn__blocks(s->keys, ATTN__CHUNK);
    const int64_t from = chunks * part / s->parts * ATTN__CHUNK;
    const int64_t to = part + 1 == s->parts ? s->keys : chunks * (part + 1) / s->parts * ATTN__CHUNK;
    int64_t l, c0, n;
    attn__load_queries(t);
    if (d->scores.rank || d->scores_softcap.rank) attn__tap_scores(t, from, to);
    if (!d->out.rank && !d->lse.rank && !d->weights.rank && !d->scores_masked.rank && !d->stats.rank) return;
    if (d->out.rank) attn__fill(t->o, 1, s->size_v * t->ld, 0.0f);
    for (l = 0; t->plain && l < t->lanes; l++) attn__plain_row(t, l);
    c0 = t->first / ATTN__CHUNK * ATTN__CHUNK;
    for (c0 = c0 < from ? from : c0; !t->plain && c0 < t->last && c0 < to; c0 += ATTN__CHUNK) {
        n = t->last - c0 < ATTN__CHUNK ? t->last - c0 : ATTN__CHUNK;
        attn__chunk(t, c0, n);
    }
    if (!t->slots) attn__finish_tile(t);
}

static void attn__join_parts(attn__tile *t)
{
    int64_t c0;
    const attn_desc *d = t->d;
    if (!d->out.rank && !d->lse.rank && !d->weights.rank && !d->scores_masked.rank && !d->stats.rank) return;
    if (t->d->out.rank) attn__fill(t->o, 1, t->shape->size_v * t->ld, 0.0f);
    for (c0 = t->first / ATTN__CHUNK * ATTN__CHUNK; c0 < t->last; c0 += ATTN__CHUNK) attn__recall(t, attn__slot(t, c0));
    attn__finish_tile(t);
}

/* ---- tasks */
static char *attn__align(void *p) { return (char *)(((uintptr_t)p + ATTN__ALIGN - 1) / ATTN__ALIGN * ATTN__ALIGN); }

typedef char attn__shape_fits[sizeof(attn__shape) <= sizeof(((attn_plan *)0)->internal) ? 1 : -1];
static const attn__shape *attn__shape_of(const attn_plan *plan, attn__shape *s)
{
    ATTN__COPY(s, plan->internal, sizeof *s);
    return s;
}

ATTN__NOINLINE static void attn__run_task(const attn_plan *plan, void *workspace, int32_t phase, int64_t index,
                                          int32_t worker)
{
    attn__shape shape;
    const attn__shape *s = attn__shape_of(plan, &shape);
    const int preparing = s->key_blocks > 0 && phase == 0, joining = s->parts > 1 && phase + 1 == plan->phases;
    const int64_t parts = joining ? 1 : s->parts, per_stream = preparing ? s->key_blocks : s->tiles * parts;
    const int64_t within = index % per_stream, tile = within / parts;
    char *base = attn__align(workspace);
    float *prepared = (float *)(void *)base;
    attn__tile *t = (attn__tile *)(void *)(base + s->key_bytes + s->chunk_bytes + worker * s->worker_bytes);
    t->d = &plan->desc;
    t->shape = s;
    t->f = attn__table(plan->isa);
    t->ld = s->ld;
    t->vecs = t->f->vecs;
    t->stream = index / per_stream % s->streams;
    t->b = index / per_stream / s->streams;
    t->head_kv = t->stream / (s->streams / s->heads_kv);
    t->head = t->stream * (s->heads / s->streams);
    prepared += (t->b * s->streams + t->stream) * s->keys * s->key_floats;
    t->prepared = prepared;
    attn__room(t);
    if (preparing) {
        attn__prepare_keys(t, within * ATTN__CHUNK, prepared);
        return;
    }
    t->slots = s->parts == 1 ? NULL : (float *)(void *)(base + s->key_bytes) +
        ((t->b * s->streams + t->stream) * s->tiles + tile) * attn__blocks(s->keys, ATTN__CHUNK) * s->chunk_floats;
    attn__open_tile(t, tile);
    if (joining) attn__join_parts(t);
    else attn__run_tile(t, within % parts);
}

#ifndef ATTN_NO_BACKWARD
static int attn__prepares(const attn_plan *plan)
{
    attn__shape shape;
    return attn__shape_of(plan, &shape)->key_blocks > 0;
}
static void attn__run_gradients(const attn_plan *plan, void *workspace, int32_t phase, int64_t index, int32_t worker);
#endif

ATTN_DEF void attn_task(const attn_plan *plan, void *workspace, int32_t phase, int64_t index, int32_t worker)
{
    const attn__fp_state saved = attn__fp_enter();
#ifndef ATTN_NO_BACKWARD
    if (plan->backward[0] && !(attn__prepares(plan) && phase == 0))
        attn__run_gradients(plan, workspace, phase, index, worker);
    else
#endif
    attn__run_task(plan, workspace, phase, index, worker);
    attn__fp_leave(saved);
}

typedef struct attn__job { const attn_plan *plan; void *workspace; int32_t phase; } attn__job;
static void attn__job_task(void *arg, int64_t index, int32_t worker)
{
    const attn__job *job = (const attn__job *)arg;
    attn_task(job->plan, job->workspace, job->phase, index, worker);
}

#ifdef ATTN_CUDA
static int attn__on_device(const attn_plan *plan)
{
    attn__shape s;
    return attn__shape_of(plan, &s)->on_device != 0;
}
/* The descriptor as the device takes it, and as a stage is chosen for it: a backward's has the forward's out and stats
   again. *grad: NULL, or the gradients. */
static attn_desc attn__device_desc(const attn_plan *plan, const void **grad)
{
    attn_desc d = plan->desc;
    *grad = NULL;
#ifndef ATTN_NO_BACKWARD
    if (plan->backward[0]) {
        ATTN__COPY(&d.out, &plan->out, sizeof d.out);
        ATTN__COPY(&d.stats, &plan->stats, sizeof d.stats);
        *grad = &plan->grad;
    }
#endif
    return d;
}
static attn_status attn__run_on_device(const attn_plan *plan, void *workspace, attn_error *err)
{
    const void *grad;
    const attn_desc d = attn__device_desc(plan, &grad);
    return attn__cuda_run(&d, grad, workspace, err);
}
#endif

static attn_status attn__run_plan(const attn_plan *plan, void *workspace, attn_error *err)
{
    attn__job job;
    int64_t i;
#ifdef ATTN_CUDA
    if (attn__on_device(plan)) return attn__run_on_device(plan, workspace, err);
#endif
    (void)err;
    job.plan = plan;
    job.workspace = workspace;
    for (job.phase = 0; job.phase < plan->phases; job.phase++) {
        const int64_t n = plan->tasks[job.phase];
        if (plan->desc.parallel.run && n > 1) plan->desc.parallel.run(plan->desc.parallel.user, n, attn__job_task,
            &job);
        else for (i = 0; i < n; i++) attn_task(plan, workspace, job.phase, i, 0);
    }
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------------------------ >>public */
/* What follows only steers, so it is compiled for size; >>backward, whose work is done by kernels, to compile quickly;
   its planning and >>heatmap for size again. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#  pragma GCC optimize("Os")
#endif

/* ---- views */
static attn_view attn__view(const void *data, attn_type type, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3)
{
    attn_view v;
    int i;
    v.data = data;
    v.type = (int32_t)type;
    v.rank = rank;
    v.size[0] = n0;
    v.size[1] = n1;
    v.size[2] = n2;
    v.size[3] = n3;
    for (i = 0; i < 4; i++) v.stride[i] = 0;
    if (rank < 1 || rank > 4) return v;             /* refused by whatever takes it */
    v.stride[rank - 1] = 1;
    for (i = rank - 2; i >= 0; i--) v.stride[i] = v.size[i + 1] > 0 ? attn__mul64(v.stride[i + 1], v.size[i + 1]) :
        v.stride[i + 1];
    for (i = rank; i < 4; i++) v.size[i] = 0;
    return v;
}
/* What cannot be a view of anything: refused by whatever takes it. */
static attn_view attn__no_view(attn_view v)
{
    v.rank = -1;
    return v;
}
static int attn__has_axis(const attn_view *v, int axis) { return axis >= 0 && axis < v->rank && axis <= 3; }
static attn_out attn__out(void *data, attn_view v)
{
    attn_out o;
    ATTN__COPY(&o, &v, sizeof o);
    o.data = data;
    return o;
}
ATTN_DEF attn_view attn_view_f32(const float *data, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3)
{ return attn__view(data, ATTN_F32, rank, n0, n1, n2, n3); }
ATTN_DEF attn_view attn_view_u8(const uint8_t *data, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3)
{ return attn__view(data, ATTN_U8, rank, n0, n1, n2, n3); }
ATTN_DEF attn_view attn_view_i32(const int32_t *data, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3)
{ return attn__view(data, ATTN_I32, rank, n0, n1, n2, n3); }
ATTN_DEF attn_view attn_view_i64(const int64_t *data, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3)
{ return attn__view(data, ATTN_I64, rank, n0, n1, n2, n3); }
ATTN_DEF attn_out attn_out_f32(float *data, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3)
{ return attn__out(data, attn__view(data, ATTN_F32, rank, n0, n1, n2, n3)); }
ATTN_DEF attn_out attn_out_u8(uint8_t *data, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3)
{ return attn__out(data, attn__view(data, ATTN_U8, rank, n0, n1, n2, n3)); }
ATTN_DEF attn_view attn_view_bhsd(const float *data, int64_t b, int64_t h, int64_t s, int64_t d)
{ return attn__view(data, ATTN_F32, 4, b, h, s, d); }
ATTN_DEF attn_view attn_view_bshd(const float *data, int64_t b, int64_t s, int64_t h, int64_t d)
{ return attn_view_swap(attn__view(data, ATTN_F32, 4, b, s, h, d), 1, 2); }
ATTN_DEF attn_out attn_out_bhsd(float *data, int64_t b, int64_t h, int64_t s, int64_t d)
{ return attn__out(data, attn_view_bhsd(data, b, h, s, d)); }
ATTN_DEF attn_out attn_out_bshd(float *data, int64_t b, int64_t s, int64_t h, int64_t d)
{ return attn__out(data, attn_view_bshd(data, b, s, h, d)); }
ATTN_DEF attn_view attn_view_qkv(const float *data, int which, int64_t b, int64_t s, int64_t h, int64_t d)
{
    attn_view v = attn_view_bshd(data, b, s, h, d);
    if (which < 0 || which > 2) return attn__no_view(v);
    if (data && h > 0 && d > 0) v.data = data + which * attn__mul64(h, d);
    v.stride[0] = attn__mul64(3, v.stride[0]);
    v.stride[2] = attn__mul64(3, v.stride[2]);
    return v;
}
ATTN_DEF attn_view attn_view_rows(const float *data, int64_t b, int64_t s, int64_t h, int64_t d, int64_t row)
{
    attn_view v = attn_view_bshd(data, b, s, h, d);
    v.stride[0] = s > 0 && row > 0 ? attn__mul64(s, row) : 0;
    v.stride[2] = row;
    return v;
}
ATTN_DEF attn_out attn_out_rows(float *data, int64_t b, int64_t s, int64_t h, int64_t d, int64_t row)
{ return attn__out(data, attn_view_rows(data, b, s, h, d, row)); }
ATTN_DEF attn_view attn_view_slice(attn_view v, int axis, int64_t first, int64_t count)
{
    if (v.rank == 0) return v;
    if (!attn__has_axis(&v, axis)) return attn__no_view(v);
    if (first < 0 || count < 0 || count > v.size[axis] || first > v.size[axis] - count) {
        v.size[axis] = -1;                          /* refused by whatever takes it */
        return v;
    }
    if (v.data && count > 0) v.data = (const char *)v.data + first * v.stride[axis] * attn__type_size(v.type);
    v.size[axis] = count;
    return v;
}
ATTN_DEF attn_out attn_out_slice(attn_out o, int axis, int64_t first, int64_t count)
{
    const attn_view v = attn_view_slice(attn_view_of(o), axis, first, count);
    ATTN__COPY(&o, &v, sizeof o);
    return o;
}
ATTN_DEF attn_view attn_view_swap(attn_view v, int axis_a, int axis_b)
{
    int64_t n, s;
    if (v.rank == 0) return v;
    if (!attn__has_axis(&v, axis_a) || !attn__has_axis(&v, axis_b)) return attn__no_view(v);
    n = v.size[axis_a];
    s = v.stride[axis_a];
    v.size[axis_a] = v.size[axis_b];
    v.stride[axis_a] = v.stride[axis_b];
    v.size[axis_b] = n;
    v.stride[axis_b] = s;
    return v;
}
ATTN_DEF attn_view attn_view_of(attn_out o)
{
    attn_view v;
    ATTN__COPY(&v, &o, sizeof v);
    return v;
}

/* ---- text */
typedef struct attn__text { char *at; size_t size, length; } attn__text;

static void attn__put(attn__text *t, const char *s)
{
    for (; *s; s++, t->length++)
        if (t->length + 1 < t->size) t->at[t->length] = *s;
}
static void attn__put_number(attn__text *t, int64_t x)
{
    char digits[21];
    int n = 20;
    uint64_t u = x < 0 ? 0u - (uint64_t)x : (uint64_t)x;
    digits[n] = 0;
    do { digits[--n] = (char)('0' + (int)(u % 10)); u /= 10; } while (u);
    if (x < 0) digits[--n] = '-';
    attn__put(t, digits + n);
}
static size_t attn__end_text(const attn__text *t)
{
    if (t->size) t->at[t->length < t->size ? t->length : t->size - 1] = 0;
    return t->length;
}
static void attn__put_error(attn__text *t, const attn_error *err)
{
    attn__put(t, err->field);
    attn__put(t, " ");
    attn__put(t, err->rule);
    if (!err->has_numbers) return;
    attn__put(t, ": ");
    attn__put_number(t, err->want);
    attn__put(t, ", is ");
    attn__put_number(t, err->got);
}

ATTN_DEF size_t attn_error_string(const attn_error *err, char *text, size_t size)
{
    attn__text t;
    t.at = text;
    t.size = text ? size : 0;
    t.length = 0;
    if (!err || err->status == ATTN_OK) attn__put(&t, "ok");
    else attn__put_error(&t, err);
    return attn__end_text(&t);
}
ATTN_DEF const char *attn_status_string(attn_status status)
{
    static const char *const text[] = {
#define ATTN_X(name, words) words,
        ATTN_STATUS_LIST(ATTN_X)
#undef ATTN_X
    };
    return (int)status >= 0 && status < ATTN_STATUS_COUNT ? text[status] : "unknown status";
}
ATTN_DEF const char *attn_isa_string(attn_isa isa)
{
    static const char *const text[] = {
#define ATTN_X(name, words) words,
        ATTN_ISA_LIST(ATTN_X)
#undef ATTN_X
    };
    return (int)isa >= 0 && isa < ATTN_ISA_COUNT ? text[isa] : "unknown instruction set";
}
ATTN_DEF const char *attn_score_string(attn_score score)
{
    static const char *const text[] = {
#define ATTN_X(name, words, bound) words,
        ATTN_SCORE_LIST(ATTN_X)
#undef ATTN_X
    };
    return (int)score >= 0 && score < ATTN_SCORE_COUNT ? text[score] : "unknown score";
}
ATTN_DEF int32_t attn_version(void) { return ATTN_VERSION_NUMBER; }

/* ---- attention */
static void attn__zero(void *p, size_t bytes)
{
    unsigned char *b = (unsigned char *)p;
    while (bytes--) *b++ = 0;
}
static attn_desc attn__options(const attn_desc *options)        /* a copy without q, k, v and results */
{
    attn_desc d;
    int p;
    if (options) d = *options;
    else attn__zero(&d, sizeof d);
    for (p = ATTN__F_q; p <= ATTN__F_scores_masked; p++) attn__zero((char *)&d + attn__fields[p].offset,
                                                                    sizeof(attn_view));
    return d;
}

/* A block of memory for one call: the caller's, or one allocation. */
typedef struct attn__memory { void *block, *allocated; int flags; } attn__memory;
static attn_status attn__acquire(const attn_desc *d, size_t bytes, int flags, attn__memory *m, attn_error *err)
{
    m->block = d->workspace;
    m->allocated = NULL;
    m->flags = flags;
    if (d->workspace) {
        if (d->workspace_bytes < bytes)
            return attn__fail2(err, ATTN_ERR_WORKSPACE, "workspace_bytes", "must be at least",
                               (int64_t)d->workspace_bytes, (int64_t)bytes);
        return ATTN_OK;
    }
    if (bytes == 0) return ATTN_OK;
    if (d->allocator.allocate) m->allocated = d->allocator.allocate(d->allocator.user, bytes);
#ifdef ATTN_CUDA
    else if (flags & ATTN__ON_DEVICE) m->allocated = attn__cuda_allocate(d, bytes);
#endif
#ifdef ATTN_MALLOC
    else m->allocated = ATTN_MALLOC(bytes);
#endif
    m->block = m->allocated;
    if (!m->block) return attn__fail2(err, ATTN_ERR_ALLOC, "workspace", "could not be allocated: bytes needed", 0,
                                      (int64_t)bytes);
    return ATTN_OK;
}
static void attn__release(const attn_desc *d, attn__memory *m)
{
    if (!m->allocated) return;
    if (d->allocator.release) d->allocator.release(d->allocator.user, m->allocated);
#ifdef ATTN_CUDA
    else if (m->flags & ATTN__ON_DEVICE) attn__cuda_release(m->allocated, d->stream);
#endif
#ifdef ATTN_FREE
    else ATTN_FREE(m->allocated);
#endif
}

#ifdef ATTN_CUDA
#define ATTN__FIND_PLACE(call) ATTN__TRY(call)
/* A plan for the device has no tasks; for either place the larger workspace. */
static void attn__device_bytes(attn_plan *plan, int flags)
{
    const void *grad;
    attn_desc d;
    size_t bytes;
    if (!(flags & (ATTN__ON_DEVICE | ATTN__ANYWHERE))) return;
    d = attn__device_desc(plan, &grad);
    bytes = (size_t)attn__cuda_bytes(&d, grad);
    if (flags & ATTN__ON_DEVICE || bytes > plan->workspace_bytes) plan->workspace_bytes = bytes;
}
#else
#define ATTN__FIND_PLACE(call) ((void)0)
#endif

ATTN__NOINLINE static attn_status attn__plan(const attn_desc *desc, attn_plan *plan, int flags, attn_error *err)
{
    attn__shape s;
    int64_t streams;
    attn__zero(&s, sizeof s);
    ATTN__RULE(desc, ATTN_ERR_NULL, "desc", "must not be NULL");
    ATTN__RULE(plan, ATTN_ERR_NULL, "plan", "must not be NULL");
    plan->desc = *desc;
    ATTN__TRY(attn__resolve(&plan->desc, &s, flags, err));
    streams = attn__mul64(s.batch, s.streams);
    plan->isa = plan->desc.isa;
    plan->phases = (s.key_blocks > 0) + 1 + (s.parts > 1);
    attn__zero(plan->tasks, sizeof plan->tasks);
    if (s.key_blocks > 0) plan->tasks[0] = attn__mul64(streams, s.key_blocks);
    if (s.parts > 1) plan->tasks[plan->phases - 2] = attn__mul64(attn__mul64(streams, s.tiles), s.parts);
    plan->tasks[plan->phases - 1] = attn__mul64(streams, s.tiles);
    plan->workspace_bytes = streams > 0 && s.tiles > 0 ? attn__workspace_of(&plan->desc, &s) : 0;
    if (!plan->tasks[plan->phases - 1]) plan->tasks[0] = 0;
    ATTN__COPY(plan->internal, &s, sizeof s);
#ifndef ATTN_NO_BACKWARD
    plan->backward[0] = 0;
#endif
#ifdef ATTN_CUDA
    attn__device_bytes(plan, flags);
#endif
    return attn__success(err);
}

static attn_status attn__plan_placed(const attn_desc *desc, attn_plan *plan, int flags, attn_error *err)
{
    const attn__fp_state saved = attn__fp_enter();
    const attn_status st = attn__plan(desc, plan, flags, err);
    attn__fp_leave(saved);
    return st;
}

ATTN_DEF attn_status attn_plan_forward(const attn_desc *desc, attn_plan *plan, attn_error *err)
{
    int flags = ATTN__WITH_DATA | ATTN__AS_TASKS;
    ATTN__FIND_PLACE(attn__find_place(desc, &flags, err));
    ATTN__RULE(!(flags & ATTN__ON_DEVICE), ATTN_ERR_PLACE, "desc", "must have its arrays on the host: tasks run there");
    return attn__plan_placed(desc, plan, flags, err);
}

ATTN_DEF attn_status attn_workspace_size(const attn_desc *desc, size_t *bytes, attn_error *err)
{
    attn_plan plan;
    int flags = ATTN__NO_RESULT_NEEDED;
    ATTN__RULE(bytes, ATTN_ERR_NULL, "bytes", "must not be NULL");
    ATTN__FIND_PLACE(attn__find_place(desc, &flags, err));
    ATTN__TRY(attn__plan_placed(desc, &plan, flags, err));
    *bytes = plan.workspace_bytes;
    return ATTN_OK;
}

ATTN_DEF attn_status attn_forward(const attn_desc *desc, attn_error *err)
{
    attn_plan plan;
    attn__memory memory;
    attn_status st;
    int flags = ATTN__WITH_DATA;
    ATTN__FIND_PLACE(attn__find_place(desc, &flags, err));
    ATTN__TRY(attn__plan_placed(desc, &plan, flags, err));
    ATTN__TRY(attn__acquire(desc, plan.workspace_bytes, flags, &memory, err));
    st = attn__run_plan(&plan, memory.block, err);
    attn__release(desc, &memory);
    return st;
}

#ifdef ATTN_CUDA
/* "; on the device, stage 1 (not stage 2: why, not stage 3: why); workspace .. bytes" */
static size_t attn__end_on_device(attn__text *t, const attn_plan *plan)
{
    const void *grad;
    const attn_desc d = attn__device_desc(plan, &grad);
    const char *why = "", *name = NULL;
    int n, i;
    for (n = 0; why; n++) name = attn__cuda_stage(&d, grad, n, &why);
    attn__put(t, "; on the device, ");
    attn__put(t, name);
    for (i = n - 2; i >= 0; i--) {          /* why not the stronger ones */
        attn__put(t, i == n - 2 ? " (not " : ", not ");
        attn__put(t, attn__cuda_stage(&d, grad, i, &why));
        attn__put(t, ": ");
        attn__put(t, why);
        if (i == 0) attn__put(t, ")");
    }
    attn__put(t, "; workspace ");
    attn__put_number(t, (int64_t)plan->workspace_bytes);
    attn__put(t, " bytes");
    return attn__end_text(t);
}
#endif

ATTN_DEF size_t attn_explain(const attn_desc *desc, char *text, size_t size)
{
    attn_plan plan;
    attn_error err;
    attn__shape s;
    attn__text t;
    attn_status st = ATTN_OK;
    int flags = ATTN__NO_RESULT_NEEDED;
#ifdef ATTN_CUDA
    st = attn__find_place(desc, &flags, &err);
#endif
    if (st == ATTN_OK) st = attn__plan_placed(desc, &plan, flags, &err);
    t.at = text;
    t.size = text ? size : 0;
    t.length = 0;
    if (st != ATTN_OK) {
        attn__put(&t, "refused: ");
        attn__put_error(&t, &err);
        return attn__end_text(&t);
    }
    attn__shape_of(&plan, &s);
    attn__put(&t, attn_score_string((attn_score)plan.desc.score));
    attn__put(&t, " attention, ");
    attn__put_number(&t, s.batch);
    attn__put(&t, " x ");
    attn__put_number(&t, s.heads);
    attn__put(&t, " heads (");
    attn__put_number(&t, s.heads_kv);
    attn__put(&t, " of keys), ");
    attn__put_number(&t, s.queries);
    attn__put(&t, " queries x ");
    attn__put_number(&t, s.keys);
    attn__put(&t, " keys, d ");
    attn__put_number(&t, s.size_q);
    attn__put(&t, ", dv ");
    attn__put_number(&t, s.size_v);
#ifdef ATTN_CUDA
    if (s.on_device) return attn__end_on_device(&t, &plan);
#endif
    attn__put(&t, "; kernels ");
    attn__put(&t, attn_isa_string((attn_isa)plan.isa));
    attn__put(&t, ", tiles of ");
    attn__put_number(&t, s.ld);
    attn__put(&t, " queries x ");
    attn__put_number(&t, ATTN__CHUNK);
    attn__put(&t, " keys, ");
    if (s.key_blocks > 0) {
        attn__put_number(&t, plan.tasks[0]);
        attn__put(&t, " tasks for the keys, then ");
    }
    if (s.parts > 1) {
        attn__put_number(&t, plan.tasks[plan.phases - 2]);
        attn__put(&t, " tasks for parts of the keys, then ");
    }
    attn__put_number(&t, plan.tasks[plan.phases - 1]);
    attn__put(&t, " tasks; workspace ");
    attn__put_number(&t, (int64_t)plan.workspace_bytes);
    attn__put(&t, " bytes for ");
    attn__put_number(&t, plan.desc.parallel.workers);
    attn__put(&t, plan.desc.parallel.workers == 1 ? " worker" : " workers");
    return attn__end_text(&t);
}

/* ---- the pieces */

/* An error in a field that has another name in the function that was called. */
static attn_status attn__rename(attn_error *err, attn_status st, const attn__names *from, const attn__names *names,
                                int rank)
{
    int i;
    if (st == ATTN_OK || !err) return st;
    if (err->field == from->view) err->field = names->view;
    if (err->field == from->data) err->field = names->data;
    if (err->field == from->type) err->field = names->type;
    if (err->field == from->rank) err->field = names->rank;
    if (err->field == from->stride) err->field = names->stride;
    for (i = 0; i < 4; i++)         /* the axes that attn__as_rank4 added are in front, and [1] where the rank is 3 */
        if (err->field == from->size[i]) {
            const int axis = rank == 3 && i == 0 ? 0 : i - (4 - rank);
            err->field = axis < 0 ? names->view : names->size[axis];
            return st;
        }
    return st;
}

/* [n], [rows,n], [B,rows,n] or [B,H,rows,n] as [B,H,rows,n] */
static attn_view attn__as_rank4(attn_view v)
{
    attn_view r = v;
    int axis, from = v.rank - 1;
    if (v.rank < 1 || v.rank > 4) return v;
    r.rank = 4;
    for (axis = 3; axis >= 0; axis--) {
        const int absent = from < 0 || (axis == 1 && v.rank < 4);
        r.size[axis] = absent ? 1 : v.size[from];
        r.stride[axis] = absent ? 0 : v.stride[from];
        if (!absent) from--;
    }
    return r;
}

static attn_status attn__softmax(attn_view x, attn_out out, const attn_desc *options, size_t *bytes, attn_error *err)
{
    static const attn__names names_x = ATTN__NAMES("x"), names_out = ATTN__NAMES("out");
    const attn__names *mask = &attn__fields[ATTN__F_mask].names, *bias = &attn__fields[ATTN__F_bias].names;
    attn_desc d = attn__options(options);
    attn_status st;
    ATTN__RULE(x.rank, ATTN_ERR_NULL, "x", "must be given");
    ATTN__RULE(out.rank, ATTN_ERR_NULL, "out", "must be given");
    if (out.rank != x.rank) return attn__fail2(err, ATTN_ERR_RANK, "out.rank", "must equal x.rank", out.rank, x.rank);
    if (options) d.lse = options->lse;
    if (options) d.stats = options->stats;
    if (x.rank == 3 && d.mask.rank == 3) d.mask = attn__as_rank4(d.mask);
    if (x.rank == 3 && d.bias.rank == 3) d.bias = attn__as_rank4(d.bias);
    d.score = ATTN_SCORE_GIVEN;
    d.given_scores = attn__as_rank4(x);
    d.weights = attn__out(out.data, attn__as_rank4(attn_view_of(out)));
    st = bytes ? attn_workspace_size(&d, bytes, err) : attn_forward(&d, err);
    attn__rename(err, st, &attn__fields[ATTN__F_given_scores].names, &names_x, x.rank);
    if (x.rank == 3 && options && options->mask.rank == 3) attn__rename(err, st, mask, mask, 3);
    if (x.rank == 3 && options && options->bias.rank == 3) attn__rename(err, st, bias, bias, 3);
    return attn__rename(err, st, &attn__fields[ATTN__F_weights].names, &names_out, x.rank);
}
ATTN_DEF attn_status attn_softmax(attn_view x, attn_out out, const attn_desc *options, attn_error *err)
{
    return attn__softmax(x, out, options, NULL, err);
}
ATTN_DEF attn_status attn_softmax_workspace_size(attn_view x, attn_out out, const attn_desc *options, size_t *bytes,
                                                 attn_error *err)
{
    ATTN__RULE(bytes, ATTN_ERR_NULL, "bytes", "must not be NULL");
    return attn__softmax(x, out, options, bytes, err);
}

ATTN_DEF attn_status attn_scores(attn_view q, attn_view k, attn_out scores, const attn_desc *options, attn_error *err)
{
    attn_desc d = attn__options(options);
    ATTN__RULE(scores.rank, ATTN_ERR_NULL, "scores", "must be given");
    d.q = q;
    d.k = k;
    d.scores = scores;
    return attn_forward(&d, err);
}

/* A mask's descriptor, alone: no scores, only what says who may attend to whom. */
static attn_status attn__mask_check(const attn_desc *options, int64_t b, int64_t h, int64_t queries, int64_t keys,
                                    int flags, attn_error *err)
{
    attn_desc d;
    attn__shape s;
    attn__zero(&d, sizeof d);
    attn__zero(&s, sizeof s);
    if (options) {
        d.bias = options->bias;
        d.mask = options->mask;
        d.key_lengths = options->key_lengths;
        d.query_lengths = options->query_lengths;
        d.causal = options->causal;
        d.align = options->align;
        d.positions = options->positions;
        d.window = options->window;
        d.window_left = options->window_left;
        d.window_right = options->window_right;
    }
    d.score = ATTN_SCORE_CONSTANT;
    d.q = attn_view_f32(NULL, 4, b, h, queries, 1);
    d.k = attn_view_f32(NULL, 4, b, h, keys, 1);
    return attn__resolve(&d, &s, flags | ATTN__NO_RESULT_NEEDED, err);
}

static attn_status attn__check_mask_out(const attn_out *mask, attn_error *err)
{
    static const attn__field field = {0, 1, ATTN__TAKES_U8, 4, 4, ATTN__NAMES("mask")};
    const attn_view v = attn_view_of(*mask);
    ATTN__RULE(mask->rank, ATTN_ERR_NULL, "mask", "must be given");
    return attn__check_view(&v, &field, 1, err);
}
static uint8_t *attn__byte_at(const attn_out *m, int64_t b, int64_t h, int64_t i, int64_t j)
{
    return (uint8_t *)m->data + (b*m->stride[0] + h*m->stride[1] + i*m->stride[2] + j*m->stride[3]);
}

#ifdef ATTN_CUDA
static attn_status attn__mask_find_place(const attn_out *mask, const attn_desc *d, int *flags, attn_error *err)
{
    attn__place at = {ATTN__PLACE_HOST | ATTN__PLACE_DEVICE, 0};
    const attn_view v = attn_view_of(*mask);
    ATTN__TRY(attn__see(&at, &v, "mask", err));
    ATTN__TRY(attn__see_fields(&at, d, &attn__fields[ATTN__F_bias], ATTN__F_COUNT - ATTN__F_bias, err));
    *flags = attn__place_flags(&at, *flags);
    return ATTN_OK;
}
static attn_status attn__mask_on_device(const attn_out *mask, attn_desc d, int dropout, attn_error *err)
{
    const int64_t *n = mask->size;
    d.score = ATTN_SCORE_CONSTANT;
    d.q = attn_view_f32(NULL, 4, n[0], n[1], n[2], 1);
    d.k = attn_view_f32(NULL, 4, n[0], n[1], n[3], 1);
    ATTN__TRY(attn__cuda_mask(&d, mask, dropout, err));
    return attn__success(err);
}
#endif

ATTN_DEF attn_status attn_mask(attn_out mask, const attn_desc *options, attn_error *err)
{
    const int64_t *n = mask.size;
    const attn_desc d = attn__options(options);
    const attn_view out = attn_view_of(mask);
    int64_t b, h, i, j;
    int p, flags = ATTN__WITH_DATA;
    ATTN__TRY(attn__check_mask_out(&mask, err));
    ATTN__FIND_PLACE(attn__mask_find_place(&mask, &d, &flags, err));
    ATTN__TRY(attn__mask_check(options, n[0], n[1], n[2], n[3], flags, err));
    for (p = ATTN__F_bias; p < ATTN__F_COUNT; p++) {
        const attn_view in = attn__view_at(&d, p);
        if (p == ATTN__F_alibi || p == ATTN__F_sink) continue;              /* they do not count here */
        ATTN__RULE(!in.rank || attn__disjoint(&out, &in), ATTN_ERR_OVERLAP, "mask", "must not overlap an input");
    }
#ifdef ATTN_CUDA
    if (flags & ATTN__ON_DEVICE) return attn__mask_on_device(&mask, d, 0, err);
#endif
    for (b = 0; b < n[0]; b++)
        for (h = 0; h < n[1]; h++)
            for (i = 0; i < n[2]; i++)
                for (j = 0; j < n[3]; j++)
                    *attn__byte_at(&mask, b, h, i, j) = (uint8_t)attn__mask_at(&d, n[2], n[3], b, h, i, j);
    return attn__success(err);
}

ATTN__NOINLINE static void attn__dropout_rows(const attn_out *mask, const attn_desc *d)
{
    const int64_t *n = mask->size;
    int64_t b, h, i, j;
    for (b = 0; b < n[0]; b++)
        for (h = 0; h < n[1]; h++)
            for (i = 0; i < n[2]; i++) {
                attn__dropper drop = attn__dropper_of(d, b, h, i);
                for (j = 0; j < n[3]; j++) *attn__byte_at(mask, b, h, i, j) = (uint8_t)attn__kept(&drop, j);
            }
}

#ifdef ATTN_CUDA
static attn_desc attn__dropout_of(const attn_desc *options)      /* nothing but dropout */
{
    attn_desc d;
    int i;
    attn__zero(&d, sizeof d);
    d.dropout = options->dropout;
    d.seed = options->seed;
    for (i = 0; i < 4; i++) d.dropout_origin[i] = options->dropout_origin[i];
    d.stream = options->stream;
    return d;
}
#endif

ATTN_DEF attn_status attn_dropout_mask(attn_out mask, const attn_desc *options, attn_error *err)
{
    const attn_desc d = attn__options(options);
    attn__fp_state saved;
    ATTN__TRY(attn__check_mask_out(&mask, err));
    ATTN__RULE(attn__is_number(d.dropout) && d.dropout >= 0.0f && d.dropout <= 1.0f, ATTN_ERR_RANGE, "dropout",
               "must be within 0..1");
#ifdef ATTN_CUDA
    {
        const int here = mask.data ? attn__cuda_place(mask.data, err) : ATTN__PLACE_HOST;
        if (!here) return ATTN_ERR_CUDA;
        if (here & ATTN__PLACE_DEVICE) return attn__mask_on_device(&mask, attn__dropout_of(&d), 1, err);
    }
#endif
    saved = attn__fp_enter();
    attn__dropout_rows(&mask, &d);
    attn__fp_leave(saved);
    return attn__success(err);
}

ATTN__NOINLINE static void attn__merge_rows(const attn_view *out_a, const attn_view *lse_a, const attn_view *out_b,
                                            const attn_view *lse_b, const attn_out *out, const attn_out *lse)
{
    int64_t b, h, i, c;
    for (b = 0; b < out->size[0]; b++)
        for (h = 0; h < out->size[1]; h++)
            for (i = 0; i < out->size[2]; i++) {
                const float la = *attn__at(lse_a, b, h, i, 0), lb = *attn__at(lse_b, b, h, i, 0);
                const float m = attn__larger(la, lb), base = attn__choose(attn__is_none(m), 0.0f, m);
                const float ea = attn__exp(la - base), eb = attn__exp(lb - base), sum = ea + eb;
                for (c = 0; c < out->size[3]; c++) {            /* a part without mass contributes nothing, no NaN */
                    float both = 0.0f;
                    if (!attn__is_none(la)) both = *attn__at(out_a, b, h, i, c) * ea;
                    if (!attn__is_none(lb)) both = attn__fma(*attn__at(out_b, b, h, i, c), eb, both);
                    *attn__out_at(out, b, h, i, c) = attn__choose(sum == 0.0f, 0.0f, attn__quiet(both / sum));
                }
                if (lse->rank)
                    *attn__out_at(lse, b, h, i, 0) = attn__choose(sum == 0.0f, ATTN__NEG_INF,
                                                                  attn__quiet(m + attn__log(sum)));
            }
}

ATTN_DEF attn_status attn_merge(attn_view out_a, attn_view lse_a, attn_view out_b, attn_view lse_b,
                                attn_out out, attn_out lse, attn_error *err)
{
    static const attn__field fields[6] = {
        {0, 0, ATTN__TAKES_F32, 4, 4, ATTN__NAMES("out_a")}, {0, 0, ATTN__TAKES_F32, 3, 3, ATTN__NAMES("lse_a")},
        {0, 0, ATTN__TAKES_F32, 4, 4, ATTN__NAMES("out_b")}, {0, 0, ATTN__TAKES_F32, 3, 3, ATTN__NAMES("lse_b")},
        {0, 1, ATTN__TAKES_F32, 4, 4, ATTN__NAMES("out")}, {0, 1, ATTN__TAKES_F32, 3, 3, ATTN__NAMES("lse")}};
    attn_view v[6];
    attn__fp_state saved;
    int i, j, axis, flags = ATTN__WITH_DATA;
    v[0] = out_a;
    v[1] = lse_a;
    v[2] = out_b;
    v[3] = lse_b;
    v[4] = attn_view_of(out);
    v[5] = attn_view_of(lse);
#ifdef ATTN_CUDA
    {
        attn__place at = {ATTN__PLACE_HOST | ATTN__PLACE_DEVICE, 0};
        for (i = 0; i < 6; i++) ATTN__TRY(attn__see(&at, &v[i], fields[i].names.view, err));
        flags = attn__place_flags(&at, flags);
    }
#endif
    for (i = 0; i < 6; i++) {
        ATTN__RULE(v[i].rank || i == 5, ATTN_ERR_NULL, fields[i].names.view, "must be given");
        ATTN__TRY(attn__check_view(&v[i], &fields[i], flags, err));
        for (axis = 0; axis < v[i].rank; axis++) ATTN__TRY(attn__check_size(&v[i], &fields[i].names, axis,
            v[0].size[axis], "must equal that of out_a", err));
    }
    for (i = 4; i < 6; i++)
        for (j = 0; v[i].rank && j < i; j++)
            ATTN__RULE(attn__disjoint(&v[i], &v[j]), ATTN_ERR_OVERLAP, fields[i].names.view,
                       "must not overlap an input or another output");
#ifdef ATTN_CUDA
    if (flags & ATTN__ON_DEVICE) {          /* there is no descriptor: the default stream */
        ATTN__TRY(attn__cuda_merge(v, NULL, err));
        return attn__success(err);
    }
#endif
    saved = attn__fp_enter();
    attn__merge_rows(&out_a, &lse_a, &out_b, &lse_b, &out, &lse);
    attn__fp_leave(saved);
    return attn__success(err);
}

/* ---- batched matrix product: a task is one batch entry's columns, `ld` at a time; lanes are columns */
#define ATTN__BMM_ROWS 64
typedef struct attn__bmm {
    attn_view a, b;             /* rank 4, broadcast axes with stride 0 */
    attn_out  out;
    const attn__kernels *f;
    int64_t   ld, column_tiles, worker_bytes;
    char     *memory;
    int       flags;
} attn__bmm;

static attn_view attn__batch_rank4(attn_view v)         /* leading axes of size 1 added; size 1 gets stride 0 */
{
    attn_view r = v;
    int axis;
    r.rank = 4;
    for (axis = 0; axis < 4; axis++) {
        const int from = axis - (4 - v.rank);
        r.size[axis] = from < 0 ? 1 : v.size[from];
        r.stride[axis] = from < 0 || (axis < 2 && r.size[axis] == 1) ? 0 : v.stride[from];
    }
    return r;
}

static attn_status attn__bmm_resolve(attn_view a, attn_view b, attn_out out, const attn_desc *options, int flags,
                                     attn__bmm *m, attn_error *err)
{
    static const attn__field fields[3] = {{0, 0, ATTN__TAKES_F32, 2, 4, ATTN__NAMES("a")},
        {0, 0, ATTN__TAKES_F32, 2, 4, ATTN__NAMES("b")}, {0, 1, ATTN__TAKES_F32, 2, 4, ATTN__NAMES("out")}};
    attn_view v[3];
    int i, axis;
    v[0] = a;
    v[1] = b;
    v[2] = attn_view_of(out);
    for (i = 0; i < 3; i++) {
        ATTN__RULE(v[i].rank, ATTN_ERR_NULL, fields[i].names.view, "must be given");
        ATTN__TRY(attn__check_view(&v[i], &fields[i], flags, err));
    }
    if (b.size[b.rank - 2] != a.size[a.rank - 1])
        return attn__fail2(err, ATTN_ERR_SIZE, fields[1].names.size[b.rank - 2], "must equal the last size of a",
                           b.size[b.rank - 2], a.size[a.rank - 1]);
    if (out.size[out.rank - 2] != a.size[a.rank - 2])
        return attn__fail2(err, ATTN_ERR_SIZE, fields[2].names.size[out.rank - 2], "must equal the rows of a",
                           out.size[out.rank - 2], a.size[a.rank - 2]);
    if (out.size[out.rank - 1] != b.size[b.rank - 1])
        return attn__fail2(err, ATTN_ERR_SIZE, fields[2].names.size[out.rank - 1], "must equal the columns of b",
                           out.size[out.rank - 1], b.size[b.rank - 1]);
    m->a = attn__batch_rank4(a);
    m->b = attn__batch_rank4(b);
    m->out = attn__out(out.data, attn__batch_rank4(v[2]));
    for (axis = 0; axis < 2; axis++) {
        const int64_t n = m->a.size[axis] == 1 ? m->b.size[axis] : m->a.size[axis], at = axis - (4 - out.rank);
        if (m->b.size[axis] != 1 && m->b.size[axis] != n)
            return attn__fail2(err, ATTN_ERR_SIZE, fields[1].names.size[axis - (4 - b.rank)],
                               "must broadcast with a: be 1 or", m->b.size[axis], n);
        if (m->out.size[axis] != n)
            return attn__fail2(err, ATTN_ERR_SIZE, at < 0 ? "out.rank" : fields[2].names.size[at],
                               "must have the broadcast batch of a and b", m->out.size[axis], n);
    }
    for (i = 0; (flags & ATTN__WITH_DATA) && i < 2; i++)
        ATTN__RULE(attn__disjoint(&v[2], &v[i]), ATTN_ERR_OVERLAP, "out", "must not overlap an input");
    ATTN__TRY(attn__check_options(options, err));
    m->f = attn__table(options->isa ? options->isa : (int32_t)attn_best_isa());
    m->ld = m->f->width * m->f->vecs;
    m->column_tiles = attn__blocks(m->out.size[3], m->ld);
    m->worker_bytes = attn__bytes_of(attn__mul64(attn__add64(m->a.size[3], ATTN__BMM_ROWS), m->ld));
    ATTN__RULE(attn__mul64(m->worker_bytes, (int64_t)options->parallel.workers + 1) < (int64_t)((size_t)-1 / 4),
               ATTN_ERR_OVERFLOW,
               "a", "must leave a workspace that fits in memory");
    m->memory = NULL;
    m->flags = flags;
    return ATTN_OK;
}

static size_t attn__bmm_workspace(const attn__bmm *m, const attn_desc *options)
{
    if (m->flags & ATTN__ON_DEVICE) return 0;
    return (size_t)(m->worker_bytes * (options->parallel.workers ? options->parallel.workers : 1) + ATTN__ALIGN);
}

ATTN__NOINLINE static void attn__bmm_columns(const attn__bmm *m, int64_t index, int32_t worker)
{
    const int64_t batch = index / m->column_tiles, width = m->f->width;
    int64_t before;
    const int64_t ld = width * attn__share(attn__blocks(m->out.size[3], width), m->column_tiles,
                                           index % m->column_tiles, &before), column = before * width;
    const int64_t h = batch % m->out.size[1], b = batch / m->out.size[1], depth = m->a.size[3];
    const int64_t lanes = m->out.size[3] - column < ld ? m->out.size[3] - column : ld;
    float *panel = (float *)(void *)(m->memory + worker * m->worker_bytes), *c = panel + depth * m->ld;
    const float *columns[ATTN__MAX_LANES];
    float ones[ATTN__MAX_LANES];
    int64_t k, l, r, r0, rows;
    attn__fill(ones, 1, ld, 1.0f);
    if (m->b.stride[3] == 1 || depth == 0) for (k = 0; k < depth; k++) {
        const float *later = attn__ahead(attn__at(&m->b, b, h, k, column), 16, m->b.stride[2]);
        ATTN__PREFETCH(later);
        ATTN__PREFETCH(attn__ahead(later, 1, ld - 1));
        attn__copy_floats(panel + k * ld, attn__at(&m->b, b, h, k, column), lanes);
        attn__fill(panel + k * ld + lanes, 1, ld - lanes, 0.0f);
    } else {
        for (l = 0; l < ld; l++) columns[l] = attn__at(&m->b, b, h, 0, column + (l < lanes ? l : lanes - 1));
        m->f->pack(panel, ld, columns, m->b.stride[2], depth, ones);
    }
    for (r0 = 0; r0 < m->out.size[2]; r0 += rows) {
        rows = m->out.size[2] - r0 < ATTN__BMM_ROWS ? m->out.size[2] - r0 : ATTN__BMM_ROWS;
        for (r = 0; r < rows; r++) {
            ATTN__PREFETCH(attn__out_at(&m->out, b, h, r0 + r, column));
            ATTN__PREFETCH(attn__out_at(&m->out, b, h, r0 + r, column) + lanes - 1);
        }
        attn__apply(m->f, attn__at(&m->a, b, h, r0, 0), m->a.stride[2], m->a.stride[3], panel, c, rows, depth, ld);
        if (m->out.stride[3] == 1 && m->f->finite(c, rows * ld))
            for (r = 0; r < rows; r++)
                attn__copy_floats(attn__out_at(&m->out, b, h, r0 + r, column), c + r * ld, lanes);
        else for (r = 0; r < rows; r++)
            for (l = 0; l < lanes; l++)
                *attn__out_at(&m->out, b, h, r0 + r, column + l) = attn__quiet(c[r * ld + l]);
    }
}
static void attn__bmm_task(void *arg, int64_t index, int32_t worker)
{
    const attn__fp_state saved = attn__fp_enter();
    attn__bmm_columns((const attn__bmm *)arg, index, worker);
    attn__fp_leave(saved);
}
static attn_status attn__bmm_run(attn__bmm *m, void *memory, const attn_desc *options, attn_error *err)
{
    const int64_t n = m->out.size[0] * m->out.size[1] * m->column_tiles;
    const attn_parallel *parallel = &options->parallel;
    int64_t i;
#ifdef ATTN_CUDA
    if (m->flags & ATTN__ON_DEVICE)
        return attn__cuda_sum(&m->a, &m->b, &m->out, m->out.size, 0, 0, 1, options->stream, err);
#endif
    (void)err;
    if (m->out.size[2] == 0) return ATTN_OK;
    m->memory = attn__align(memory);
    if (parallel->run && n > 1) parallel->run(parallel->user, n, attn__bmm_task, m);
    else for (i = 0; i < n; i++) attn__bmm_task(m, i, 0);
    return ATTN_OK;
}
#ifdef ATTN_CUDA
static attn_status attn__bmm_find_place(const attn_view *v, int count, const attn_desc *options, int *flags,
                                        attn_error *err)
{
    static const char *const names[5] = {"a", "b", "out", "da", "db"};
    attn__place at = {ATTN__PLACE_HOST | ATTN__PLACE_DEVICE, 0};
    int i;
    for (i = 0; i < count; i++) ATTN__TRY(attn__see(&at, &v[i], count == 5 && i == 2 ? "d_out" : names[i], err));
    ATTN__TRY(attn__see_workspace(&at, options, err));
    *flags = attn__place_flags(&at, *flags);
    return ATTN_OK;
}
#endif

ATTN_DEF attn_status attn_bmm_workspace_size(attn_view a, attn_view b, attn_out out, const attn_desc *options,
                                             size_t *bytes, attn_error *err)
{
    const attn_desc d = attn__options(options);
    attn__bmm m;
    int flags = 0;
    ATTN__RULE(bytes, ATTN_ERR_NULL, "bytes", "must not be NULL");
#ifdef ATTN_CUDA
    {
        attn_view v[3];
        v[0] = a;
        v[1] = b;
        v[2] = attn_view_of(out);
        ATTN__TRY(attn__bmm_find_place(v, 3, &d, &flags, err));
    }
#endif
    ATTN__TRY(attn__bmm_resolve(a, b, out, &d, flags, &m, err));
    *bytes = attn__bmm_workspace(&m, &d);
    return attn__success(err);
}

ATTN_DEF attn_status attn_bmm(attn_view a, attn_view b, attn_out out, const attn_desc *options, attn_error *err)
{
    const attn_desc d = attn__options(options);
    attn__memory memory;
    attn__bmm m;
    attn_status st;
    int flags = ATTN__WITH_DATA;
#ifdef ATTN_CUDA
    attn_view v[3];
    v[0] = a;
    v[1] = b;
    v[2] = attn_view_of(out);
    ATTN__TRY(attn__bmm_find_place(v, 3, &d, &flags, err));
#endif
    ATTN__TRY(attn__bmm_resolve(a, b, out, &d, flags, &m, err));
    ATTN__TRY(attn__acquire(&d, attn__bmm_workspace(&m, &d), flags, &memory, err));
    st = attn__bmm_run(&m, memory.block, &d, err);
    attn__release(&d, &memory);
    return st == ATTN_OK ? attn__success(err) : st;
}

/* ---- multi-head attention: four products around attn_forward */
typedef struct attn__mha {
    attn_desc attention;        /* q, k, v, out point into memory */
    attn__bmm product[4];       /* query, key, value, result */
    attn_view bias[4];
    attn_plan plan;
    int64_t   floats[4];        /* projected q, k, v and the heads' outputs */
    int64_t   own_bytes;        /* those, in all */
    size_t    inner_bytes;      /* for the products and the attention, one after the other */
    int       flags;
} attn__mha;

/* One projection y = x W^T: x [B,S,E], w [out,E], y [B,S,out]. */
static attn_status attn__mha_project(attn__mha *m, int which, attn_view x, attn_view w, attn_view bias, attn_out y,
                                     int flags, const attn__field *w_field, attn_error *err)
{
    static const attn__field fields[4] = {
        {0, 0, ATTN__TAKES_F32, 1, 1, ATTN__NAMES("b_query")}, {0, 0, ATTN__TAKES_F32, 1, 1, ATTN__NAMES("b_key")},
        {0, 0, ATTN__TAKES_F32, 1, 1, ATTN__NAMES("b_value")}, {0, 0, ATTN__TAKES_F32, 1, 1, ATTN__NAMES("b_result")}};
    ATTN__TRY(attn__check_size(&w, &w_field->names, 1, x.size[2], "must equal the last size of what it projects", err));
    ATTN__TRY(attn__check_view(&bias, &fields[which], flags, err));
    ATTN__TRY(attn__check_size(&bias, &fields[which].names, 0, w.size[0], "must equal size[0] of its weights", err));
    m->bias[which] = bias;
    return attn__bmm_resolve(x, attn_view_swap(w, 0, 1), y, &m->attention, flags, &m->product[which], err);
}

ATTN__NOINLINE static void attn__mha_add_rows(const attn_view *bias, const attn_out *y)
{
    int64_t b, i, c;
    for (b = 0; b < y->size[1]; b++)
        for (i = 0; i < y->size[2]; i++)
            for (c = 0; c < y->size[3]; c++) {
                float *p = attn__out_at(y, 0, b, i, c);
                *p = attn__quiet(*p + attn__of_head(bias, c));
            }
}

static attn_status attn__mha_add_bias(const attn__mha *m, int which, attn_error *err)
{
    const attn_view *bias = &m->bias[which];
    attn__fp_state saved;
    if (!bias->rank) return ATTN_OK;
#ifdef ATTN_CUDA
    if (m->flags & ATTN__ON_DEVICE)
        return attn__cuda_add(bias, &m->product[which].out, m->attention.stream, err);
#endif
    (void)err;
    saved = attn__fp_enter();
    attn__mha_add_rows(bias, &m->product[which].out);
    attn__fp_leave(saved);
    return ATTN_OK;
}

#ifdef ATTN_CUDA
static attn_status attn__mha_find_place(const attn_mha_desc *desc, int *flags, attn_error *err)
{
    static const char *const names[12] = {"query", "key", "value", "w_query", "w_key", "w_value", "w_result",
                                          "b_query", "b_key", "b_value", "b_result", "out"};
    attn__place at = {ATTN__PLACE_HOST | ATTN__PLACE_DEVICE, 0};
    int i;
    for (i = 0; i < 12; i++) {              /* the views of the descriptor follow each other */
        attn_view v;
        ATTN__COPY(&v, (const char *)&desc->query + (size_t)i * sizeof v, sizeof v);
        ATTN__TRY(attn__see(&at, &v, names[i], err));
    }
    if (desc->attention) {                  /* all but q, k, v and out */
        ATTN__TRY(attn__see_fields(&at, desc->attention, &attn__fields[ATTN__F_lse], ATTN__F_COUNT - ATTN__F_lse, err));
        ATTN__TRY(attn__see_workspace(&at, desc->attention, err));
    }
    *flags = attn__place_flags(&at, *flags);
    return ATTN_OK;
}
#endif

/* From head to head where they lie side by side. It may wrap around where there is no element: no check bounds the
   strides then, and none is used. */
static int64_t attn__heads_apart(int64_t stride, int64_t size) { return (int64_t)((uint64_t)stride * (uint64_t)size); }

/* Everything but the running. base: the aligned workspace, NULL where only the size is wanted. */
static attn_status attn__mha_resolve(const attn_mha_desc *desc, float *base, attn__mha *m, attn_error *err)
{
    static const attn__field weights[4] = {
        {0, 0, ATTN__TAKES_F32, 2, 2, ATTN__NAMES("w_query")}, {0, 0, ATTN__TAKES_F32, 2, 2, ATTN__NAMES("w_key")},
        {0, 0, ATTN__TAKES_F32, 2, 2, ATTN__NAMES("w_value")}, {0, 0, ATTN__TAKES_F32, 2, 2, ATTN__NAMES("w_result")}};
    static const attn__field inputs[4] = {
        {0, 0, ATTN__TAKES_F32, 3, 3, ATTN__NAMES("query")}, {0, 0, ATTN__TAKES_F32, 3, 3, ATTN__NAMES("key")},
        {0, 0, ATTN__TAKES_F32, 3, 3, ATTN__NAMES("value")}, {0, 1, ATTN__TAKES_F32, 3, 3, ATTN__NAMES("out")}};
    const int need = base != NULL;
    int flags = need ? ATTN__WITH_DATA : 0;
    int64_t heads, heads_kv, size_d, size_v, batch, queries, keys;
    attn_view x[4], w[4];
    attn_desc *d = &m->attention;
    float *q, *k, *v, *o;
    size_t most = 0;
    int i;
    ATTN__RULE(desc, ATTN_ERR_NULL, "desc", "must not be NULL");
    ATTN__FIND_PLACE(attn__mha_find_place(desc, &flags, err));
    m->flags = flags;
    x[0] = desc->query;
    x[1] = desc->key.rank ? desc->key : x[0];
    x[2] = desc->value.rank ? desc->value : x[1];
    x[3] = attn_view_of(desc->out);
    w[0] = desc->w_query;
    w[1] = desc->w_key;
    w[2] = desc->w_value;
    w[3] = desc->w_result;
    for (i = 0; i < 4; i++) {
        ATTN__RULE(x[i].rank, ATTN_ERR_NULL, inputs[i].names.view, "must be given");
        ATTN__RULE(w[i].rank || i == 3, ATTN_ERR_NULL, weights[i].names.view, "must be given");
        ATTN__TRY(attn__check_view(&w[i], &weights[i], flags, err));
        ATTN__TRY(attn__check_view(&x[i], &inputs[i], flags, err));
        ATTN__TRY(attn__check_size(&x[i], &inputs[i].names, 0, x[0].size[0], "must equal query.size[0]", err));
    }
    heads = desc->heads;
    heads_kv = desc->heads_kv ? desc->heads_kv : heads;
    ATTN__RULE(heads > 0, ATTN_ERR_RANGE, "heads", "must be at least 1");
    ATTN__RULE(heads_kv > 0 && heads % heads_kv == 0, ATTN_ERR_RANGE, "heads_kv", "must divide heads");
    for (i = 0; i < 3; i++)
        if (w[i].size[0] % (i ? heads_kv : heads) != 0)
            return attn__fail2(err, ATTN_ERR_SIZE, weights[i].names.size[0],
                               "must be a multiple of the number of heads", w[i].size[0], i ? heads_kv : heads);
    batch = x[0].size[0];
    queries = x[0].size[1];
    keys = x[1].size[1];
    size_d = w[0].size[0] / heads;
    size_v = w[2].size[0] / heads_kv;
    ATTN__TRY(attn__check_size(&x[2], &inputs[2].names, 1, keys, "must equal key.size[1]", err));
    ATTN__TRY(attn__check_size(&x[3], &inputs[3].names, 1, queries, "must equal query.size[1]", err));
    ATTN__TRY(attn__check_size(&x[3], &inputs[3].names, 2, w[3].rank == 2 ? w[3].size[0] : attn__mul64(heads, size_v),
                               "must equal the width of the result", err));

    *d = attn__options(desc->attention);
    if (d->score != ATTN_SCORE_BILINEAR && d->score != ATTN_SCORE_ADDITIVE)
        ATTN__TRY(attn__check_size(&w[1], &weights[1].names, 0, attn__mul64(size_d, heads_kv),
                                   "must equal heads_kv * w_query.size[0] / heads", err));
    if (desc->attention) {
        d->lse = desc->attention->lse;
        d->stats = desc->attention->stats;
        d->weights = desc->attention->weights;
        d->scores = desc->attention->scores;
        d->scores_softcap = desc->attention->scores_softcap;
        d->scores_masked = desc->attention->scores_masked;
    }
    m->floats[0] = attn__mul64(attn__mul64(batch, queries), w[0].size[0]);
    m->floats[1] = attn__mul64(attn__mul64(batch, keys), w[1].size[0]);
    m->floats[2] = attn__mul64(attn__mul64(batch, keys), w[2].size[0]);
    m->floats[3] = w[3].rank ? attn__mul64(attn__mul64(batch, queries), attn__mul64(heads, size_v)) : 0;
    q = base;
    k = base ? q + m->floats[0] : NULL;
    v = base ? k + m->floats[1] : NULL;
    o = base ? v + m->floats[2] : NULL;
    ATTN__TRY(attn__mha_project(m, 0, x[0], w[0], desc->b_query, attn_out_f32(q, 3, batch, queries, w[0].size[0], 0),
                                flags, &weights[0], err));
    ATTN__TRY(attn__mha_project(m, 1, x[1], w[1], desc->b_key, attn_out_f32(k, 3, batch, keys, w[1].size[0], 0), flags,
                                &weights[1], err));
    ATTN__TRY(attn__mha_project(m, 2, x[2], w[2], desc->b_value, attn_out_f32(v, 3, batch, keys, w[2].size[0], 0),
                                flags, &weights[2], err));
    d->q = attn_view_bshd(q, batch, queries, heads, size_d);
    d->k = attn_view_bshd(k, batch, keys, heads_kv, w[1].size[0] / heads_kv);
    d->v = attn_view_bshd(v, batch, keys, heads_kv, size_v);
    d->out = attn_out_bshd(o, batch, queries, heads, size_v);
    if (w[3].rank) {
        ATTN__TRY(attn__mha_project(m, 3, attn_view_f32(o, 3, batch, queries, attn__mul64(heads, size_v), 0), w[3],
                                    desc->b_result, desc->out, flags, &weights[3], err));
    } else {
        ATTN__RULE(!desc->b_result.rank, ATTN_ERR_OPTION, "b_result", "must be absent where w_result is");
        d->out.data = desc->out.data;
        d->out.type = desc->out.type;
        d->out.stride[0] = desc->out.stride[0];
        d->out.stride[1] = attn__heads_apart(desc->out.stride[2], size_v);
        d->out.stride[2] = desc->out.stride[1];
        d->out.stride[3] = desc->out.stride[2];
    }
    ATTN__TRY(attn__plan_placed(d, &m->plan, flags, err));
    for (i = 0; i < (w[3].rank ? 4 : 3); i++) {
        const size_t bytes = attn__bmm_workspace(&m->product[i], d);
        const attn_view out_view = attn_view_of(desc->out);
        most = bytes > most ? bytes : most;
        ATTN__RULE(!need || i == 3 || attn__disjoint(&out_view, &x[i]), ATTN_ERR_OVERLAP, "out",
                   "must not overlap an input");
        ATTN__RULE(!need || attn__disjoint(&out_view, &w[i]), ATTN_ERR_OVERLAP, "out", "must not overlap the weights");
        ATTN__RULE(!need || !m->bias[i].rank || attn__disjoint(&out_view, &m->bias[i]), ATTN_ERR_OVERLAP, "out",
                   "must not overlap a bias");
    }
    for (i = ATTN__F_sigma_per_head; need && i < ATTN__F_COUNT; i++) {      /* out against what the attention reads */
        const attn_view in = attn__view_at(d, i), out_view = attn_view_of(desc->out);
        ATTN__RULE(!in.rank || attn__disjoint(&out_view, &in), ATTN_ERR_OVERLAP, "out", "must not overlap an input");
    }
    for (i = ATTN__F_lse; need && i <= ATTN__F_scores_masked; i++) {        /* the other results against all of these */
        const attn_view o_view = attn__view_at(d, i);
        int p;
        for (p = 0; o_view.rank && p < 4; p++) {
            ATTN__RULE(attn__disjoint(&o_view, &x[p]), ATTN_ERR_OVERLAP, p == 3 ? "out" : attn__fields[i].names.view,
                       p == 3 ? "must not overlap another output" : "must not overlap an input");
            ATTN__RULE(!w[p].rank || (attn__disjoint(&o_view, &w[p]) &&
                       (!m->bias[p].rank || attn__disjoint(&o_view, &m->bias[p]))), ATTN_ERR_OVERLAP,
                       attn__fields[i].names.view, "must not overlap the weights");
        }
    }
    m->inner_bytes = m->plan.workspace_bytes > most ? m->plan.workspace_bytes : most;
    m->own_bytes = attn__bytes_of(attn__add64(attn__add64(m->floats[0], m->floats[1]),
                                              attn__add64(m->floats[2], m->floats[3])));
    ATTN__RULE(m->own_bytes < (int64_t)((size_t)-1 / 4), ATTN_ERR_OVERFLOW, "query",
               "must leave a workspace that fits in memory");
    return ATTN_OK;
}

static size_t attn__mha_bytes(const attn__mha *m) { return (size_t)m->own_bytes + m->inner_bytes + 2 * ATTN__ALIGN; }

ATTN_DEF attn_status attn_mha_workspace_size(const attn_mha_desc *desc, size_t *bytes, attn_error *err)
{
    attn__mha m;
    ATTN__RULE(bytes, ATTN_ERR_NULL, "bytes", "must not be NULL");
    ATTN__TRY(attn__mha_resolve(desc, NULL, &m, err));
    *bytes = attn__mha_bytes(&m);
    return attn__success(err);
}

ATTN_DEF attn_status attn_mha(const attn_mha_desc *desc, attn_error *err)
{
    attn__memory memory;
    attn__mha m;
    attn_status st;
    int i;
    ATTN__TRY(attn__mha_resolve(desc, NULL, &m, err));
    m.attention.q.data = desc->query.data;          /* tells the device */
    ATTN__TRY(attn__acquire(&m.attention, attn__mha_bytes(&m), m.flags, &memory, err));
    st = attn__mha_resolve(desc, (float *)(void *)attn__align(memory.block), &m, err);
    if (st == ATTN_OK) {
        char *inner = attn__align(memory.block) + m.own_bytes;
        for (i = 0; i < 4 && st == ATTN_OK; i++) {
            if (i == 3) st = attn__run_plan(&m.plan, inner, err);
            if (st != ATTN_OK || (i == 3 && !desc->w_result.rank)) break;
            st = attn__bmm_run(&m.product[i], inner, &m.attention, err);
            if (st == ATTN_OK) st = attn__mha_add_bias(&m, i, err);
        }
        if (st == ATTN_OK) attn__success(err);
    }
    attn__release(&m.attention, &memory);
    return st;
}

/* ---------------------------------------------------------------------------------------------------- >>backward
   Gradients. First the descriptors, field by field as in >>validate; then how it runs. */
#ifndef ATTN_NO_BACKWARD
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#  pragma GCC optimize("O1")
#endif

/* X(field, is an output, the field of attn_desc whose shape it has (out and weights stand for the sizes of the call,
   lse for [B,H,Sq]), least rank, most) */
#define ATTN__GRAD_LIST(X) \
    X(d_out, 0, out, 4, 4) X(d_weights, 0, weights, 4, 4) X(d_lse, 0, lse, 3, 3) \
    X(dq, 1, q, 4, 4) X(dk, 1, k, 4, 4) X(dv, 1, v, 4, 4) X(d_given_scores, 1, given_scores, 4, 4) \
    X(d_bias, 1, bias, 1, 4) X(d_bilinear, 1, bilinear, 2, 3) X(d_w_q, 1, w_q, 2, 3) X(d_w_k, 1, w_k, 2, 3) \
    X(d_w_v, 1, w_v, 1, 2) X(d_hidden_bias, 1, hidden_bias, 1, 2) X(d_sigma, 1, sigma_per_head, 1, 1) \
    X(d_scale, 1, stats, 1, 1) X(d_sink, 1, sink, 1, 1) X(d_alibi, 1, alibi, 1, 1)
enum {
#define ATTN__X(f, output, like, least, most) ATTN__G_##f,
    ATTN__GRAD_LIST(ATTN__X)
#undef ATTN__X
    ATTN__G_COUNT
};
static const attn__field attn__grad_fields[ATTN__G_COUNT] = {
#define ATTN__X(f, output, like, least, most) \
    {offsetof(attn_grad, f), output, ATTN__TAKES_F32, least, most, ATTN__NAMES(#f)},
    ATTN__GRAD_LIST(ATTN__X)
#undef ATTN__X
};
static attn_view attn__grad_at(const attn_grad *g, int field)
{
    attn_view v;
    ATTN__COPY(&v, (const char *)g + attn__grad_fields[field].offset, sizeof v);
    return v;
}
static int attn__adds(const attn_grad *g, int field)         /* is this result added to what is there? */
{
    return (int)(g->accumulate >> (field - ATTN__G_dq) & 1u);
}

/* The shape that a gradient must have; rank 0: what it belongs to is absent. */
static attn_view attn__grad_shape(const attn_desc *d, const attn__shape *s, int field)
{
    static const int like[ATTN__G_COUNT] = {
#define ATTN__X(f, output, of, least, most) ATTN__F_##of,
        ATTN__GRAD_LIST(ATTN__X)
#undef ATTN__X
    };
    attn_view v = attn__view_at(d, like[field]);
    int i;
    if (field <= ATTN__G_d_lse) {
        v.rank = field == ATTN__G_d_lse ? 3 : field == ATTN__G_d_out && !d->v.rank ? 0 : 4;
        v.size[0] = s->batch;
        v.size[1] = s->heads;
        v.size[2] = s->queries;
        v.size[3] = field == ATTN__G_d_out ? s->size_v : s->keys;
    }
    if (field == ATTN__G_d_sigma && !v.rank) v.rank = attn__is_kernel(d->score), v.size[0] = 1;
    if (field == ATTN__G_d_scale) v.rank = !attn__is_kernel(d->score), v.size[0] = 1;
    for (i = v.rank; i < 4; i++) v.size[i] = 0;
    return v;
}

static attn_status attn__check_grad(const attn_desc *d, const attn__shape *s, const attn_grad *g, int flags,
                                    attn_error *err)
{
    int i, j, axis, above = 0, results = 0, more_than_dv = 0;
    for (i = 0; i < ATTN__G_COUNT; i++) {
        const attn__field *f = &attn__grad_fields[i];
        const attn_view v = attn__grad_at(g, i), like = attn__grad_shape(d, s, i);
        if (!v.rank) continue;
        ATTN__TRY(attn__check_view(&v, f, flags, err));
        ATTN__RULE(like.rank, ATTN_ERR_OPTION, f->names.view, "must be absent where what it belongs to is");
        if (v.rank != like.rank)
            return attn__fail2(err, ATTN_ERR_RANK, f->names.rank, "must be that of what it belongs to", v.rank,
                               like.rank);
        for (axis = 0; axis < v.rank; axis++)
            ATTN__TRY(attn__check_size(&v, &f->names, axis, like.size[axis], "must be that of what it belongs to",
                                       err));
        if (i < ATTN__G_dq) above = 1;
        else results = 1;
        if (i >= ATTN__G_dq && i != ATTN__G_dv) more_than_dv = 1;
    }
    ATTN__RULE(above, ATTN_ERR_NULL, "d_out", "must be given, or another gradient from above");
    ATTN__RULE(results, ATTN_ERR_NULL, "dq", "must be given, or another result");
    ATTN__RULE(g->accumulate <= ATTN_GRAD_ALL, ATTN_ERR_OPTION, "accumulate", "must be ATTN_GRAD_x bits");
    ATTN__RULE(g->reserved == 0, ATTN_ERR_OPTION, "reserved", "must be 0");
    ATTN__RULE(d->out.rank || !g->d_out.rank || !more_than_dv, ATTN_ERR_NULL, "out",
               "must be given: the forward's result is read");
    for (i = ATTN__G_dq; (flags & ATTN__WITH_DATA) && i < ATTN__G_COUNT; i++) {
        const attn_view o = attn__grad_at(g, i);
        const char *name = attn__grad_fields[i].names.view;
        if (!o.rank) continue;
        for (j = 0; j < ATTN__G_COUNT; j++) {
            const attn_view x = attn__grad_at(g, j);
            if (!x.rank || (j >= ATTN__G_dq && j <= i)) continue;
            ATTN__RULE(attn__disjoint(&o, &x), ATTN_ERR_OVERLAP, name, j < ATTN__G_dq ? "must not overlap an input" :
                       "must not overlap another output");
        }
        for (j = 0; j < ATTN__F_COUNT; j++) {
            const attn_view x = attn__view_at(d, j);
            if (!x.rank || (attn__fields[j].output && j != ATTN__F_out && j != ATTN__F_stats)) continue;
            ATTN__RULE(attn__disjoint(&o, &x), ATTN_ERR_OVERLAP, name, "must not overlap an input");
        }
    }
    return ATTN_OK;
}

/* ---- how it runs. Four phases: keys are prepared as in the forward, where a score needs it; per row maximum, 1/mass
   and delta are found (ATTN__R_x below); blocks of queries meet blocks of keys; sums over rows become the gradients of
   the parameters.
   A block of queries is ATTN_GRAD_QUERIES rows of one head, cut into tiles of the forward's kind, so that scores,
   masks and the rest are the forward's own code. Per block of keys every tile leaves its weights P and the gradients dS
   of its scores behind, [key][query]; three products with lanes along columns take them on:
       dV[j] += P[j][.] dO     dK[j] += dS[j][.] Q     dQ[i] += dS[.][i] K
   each a chain from 0 over the block, then one addition: so the blocks are what defines the bits, not who computes
   them when. Adding an excluded pair's 0 changes nothing as long as the other factor is finite; where one is not, the
   product is made in plain C, without the excluded pairs. */
#define ATTN__GRAD_ROW 144      /* floats between the keys of a block of P or dS; not a power of two, for the cache */
#define ATTN__SUM_ROWS 64       /* rows of a tile of a sum over rows */
#define ATTN__WORTH_CUTTING 0x80000     /* queries * keys * columns; less is done before another thread has woken up */
#define ATTN__MAX_ROUNDS ((ATTN_MAX_PHASES - 3) / 2)            /* two phases each */

enum { ATTN__R_TOP, ATTN__R_INVERSE, ATTN__R_SHIFT, ATTN__R_SINK,           /* found first */
       ATTN__R_ALIBI, ATTN__R_SCALE, ATTN__R_SIGMA, ATTN__R_BIAS,           /* left behind by the blocks */
       ATTN__R_COUNT };

/* What a worker's memory holds for the blocks, in this order. */
enum { ATTN__M_TILES, ATTN__M_QUERY, ATTN__M_D_OUT, ATTN__M_RAW, ATTN__M_S, ATTN__M_T, ATTN__M_DP, ATTN__M_KEEP,
       ATTN__M_P, ATTN__M_DS, ATTN__M_SOFT, ATTN__M_SQUARE, ATTN__M_DQ, ATTN__M_DT, ATTN__M_Q_ROWS, ATTN__M_D_OUT_ROWS,
       ATTN__M_K_ROWS, ATTN__M_W, ATTN__M_MATRIX, ATTN__M_RESULT, ATTN__M_PART,
       ATTN__M_DK, ATTN__M_DB, ATTN__M_DV, ATTN__M_MET,         /* the sums over queries, by key */
       ATTN__M_COUNT };

enum { ATTN__DO_Q = 1, ATTN__DO_K = 2 };
/* the gradient of a bias: sums of rows, made like other parameters; block by block added to what is there, or stored */
enum { ATTN__BIAS_NONE, ATTN__BIAS_ROWS, ATTN__BIAS_ADDED, ATTN__BIAS_STORED };

typedef struct attn__backward {
    int64_t is_backward;        /* 1 */
    int64_t rows;               /* B*H*Sq */
    int64_t blocks;             /* of queries, per head */
    int64_t tiles;              /* of a block of queries */
    int64_t size_u, pad_u;      /* what dS multiplies: vectors of so many floats (additive: the hidden width) */
    int64_t pad_k, pad_v;       /* sizes rounded up to whole vectors */
    int64_t vector_row, value_row;      /* floats between copied rows of q and k, of d_out */
    int64_t does;               /* ATTN__DO_Q, ATTN__DO_K: what is wanted at all */
    int64_t vectors;            /* 0: dS meets no vectors, there is nothing to find behind it */
    int64_t bias;               /* ATTN__BIAS_x */
    int64_t cross;              /* the bias's gradient sums over streams, which one task must do in order */
    int64_t every;              /* dS is a result over all keys, so all blocks are visited */
    int64_t key_parts, query_parts;     /* 0, 0: a task does all of a unit; else tasks of each kind per unit */
    int64_t rounds, slots, merge_parts; /* rounds: 0, or `slots` blocks of a unit at a time are each summed by key; then
                                           these sums are added up, by so many tasks per unit */
    int64_t save_u, save_t, save_b;     /* u or da, dt, db: rows that parameters are summed from */
    int64_t rows_bytes, left_bytes, worker_bytes;
    int64_t row_tasks, main_tasks, sum_tasks;
} attn__backward;
typedef char attn__backward_fits[sizeof(attn__backward) <= sizeof(((attn_plan *)0)->backward) ? 1 : -1];

static int64_t attn__up(int64_t n, int64_t width) { return attn__mul64(attn__blocks(n, width), width); }
/* A distance of rows that are read one below the other: not one that puts all of them into a few sets of the cache. */
static int64_t attn__spread(int64_t n) { return n > 0 && n % 32 == 0 ? attn__add64(n, 16) : n; }
static int attn__is_distance(int32_t score)         /* those with a gradient */
{
    return score == ATTN_SCORE_GAUSSIAN || score == ATTN_SCORE_EPANECHNIKOV || score == ATTN_SCORE_TRIANGULAR;
}

static void attn__grad_memory(const attn_desc *d, const attn__shape *s, const attn__backward *w, int64_t *floats)
{
    const attn__kernels *f = attn__table(d->isa);
    const int64_t lanes = ATTN_GRAD_QUERIES, keys = attn__up(s->keys, ATTN_GRAD_KEYS), block = ATTN_GRAD_KEYS;
    const int64_t more = s->size_q > s->size_k ? s->size_q : s->size_k, additive = d->score == ATTN_SCORE_ADDITIVE;
    const int64_t matrix = additive ? (d->w_q.rank || d->w_k.rank ? s->hidden : 0) :
        d->score == ATTN_SCORE_BILINEAR ? s->size_k : 0;
    int64_t i;
    for (i = 0; i < ATTN__M_COUNT; i++) floats[i] = 0;
    floats[ATTN__M_TILES] = attn__mul64(w->tiles, ATTN__TILE_BYTES / 4);
    floats[ATTN__M_QUERY] = attn__mul64(additive ? attn__mul64(2, attn__round4(s->hidden)) : s->size_k, lanes);
    floats[ATTN__M_D_OUT] = attn__mul64(s->size_v, lanes);
    floats[ATTN__M_RAW] = attn__mul64(more, s->ld);
    floats[ATTN__M_S] = floats[ATTN__M_T] = floats[ATTN__M_DP] = floats[ATTN__M_KEEP] = block * s->ld;
    floats[ATTN__M_P] = floats[ATTN__M_DS] = block * ATTN__GRAD_ROW;
    if (d->softcap != 0.0f) floats[ATTN__M_SOFT] = block * ATTN__GRAD_ROW;
    if (attn__is_distance(d->score)) floats[ATTN__M_SQUARE] = block * ATTN__GRAD_ROW;
    floats[ATTN__M_DQ] = attn__mul64(w->pad_u, ATTN__GRAD_ROW);
    if (additive) floats[ATTN__M_DT] = floats[ATTN__M_DQ];
    floats[ATTN__M_Q_ROWS] = attn__mul64(w->vector_row > 0 ? attn__add64(w->pad_u, 16) : 0, lanes);   /* monotone */
    floats[ATTN__M_D_OUT_ROWS] = attn__mul64(w->value_row > 0 ? attn__add64(w->pad_v, 16) : 0, lanes);
    floats[ATTN__M_K_ROWS] = attn__mul64(w->vector_row > 0 ? attn__add64(w->pad_u, 16) : 0, block);
    floats[ATTN__M_DK] = attn__mul64(w->pad_k, keys);
    if (additive) floats[ATTN__M_DB] = attn__mul64(w->pad_u, keys);
    floats[ATTN__M_DV] = attn__mul64(w->pad_v, keys);
    floats[ATTN__M_W] = attn__round4(s->hidden);
    floats[ATTN__M_MATRIX] = attn__mul64(matrix, attn__up(more, f->width));
    floats[ATTN__M_RESULT] = attn__mul64(attn__up(more, f->width), lanes);
    if (floats[ATTN__M_RESULT] < block * lanes) floats[ATTN__M_RESULT] = block * lanes;
    if (additive) floats[ATTN__M_PART] = block * 4 * ATTN__PARTS;
    if (w->save_b) floats[ATTN__M_MET] = keys;
    for (i = 0; i < ATTN__M_COUNT; i++) floats[i] = attn__up(floats[i], ATTN__ALIGN / 4);
}

/* ---- rows in plain C: what the table's product computes, without the excluded pairs */
typedef struct attn__grad_product {
    const float *a, *b, *x, *mark;      /* C[r][c] += sum over k of A[r,k] B[k][c], or of A[r,k] (B[k][c] - X[r][c]); */
    int64_t a_row, a_k, b_row, x_row;   /* mark, strides as A: -0 where the pair is excluded */
    float *c;
    int64_t c_row, rows, depth, columns;
    int careful;
} attn__grad_product;

static void attn__multiply(const attn__kernels *f, const attn__grad_product *g)
{
    attn__product p;
    int64_t r, k, c;
    if (g->depth <= 0 || g->rows <= 0) return;
    if (g->careful) {
        for (r = 0; r < g->rows; r++)
            for (c = 0; c < g->columns; c++) {
                float sum = 0.0f;
                for (k = 0; k < g->depth; k++) {
                    const float b = g->b[k * g->b_row + c];
                    if (attn__bits(g->mark[r * g->a_row + k * g->a_k]) == 0x80000000u) continue;
                    sum = attn__fma(g->a[r * g->a_row + k * g->a_k], g->x ? b - g->x[r * g->x_row + c] : b, sum);
                }
                g->c[r * g->c_row + c] = g->c[r * g->c_row + c] + sum;
            }
        return;
    }
    p.a = g->a;
    p.a_row = g->a_row;
    p.a_k = g->a_k;
    p.b_row = g->b_row;
    p.c_row = g->c_row;
    p.x_row = g->x_row;
    p.rows = g->rows;
    p.depth = g->depth;
    p.kind = g->x ? ATTN__WEIGHTED_DIFFERENCE : ATTN__PRODUCT;
    p.onto = ATTN__ADD_AFTER;
    p.fetch = NULL;
    for (c = 0; c < g->columns; c += p.vecs * f->width) {
        const int64_t left = attn__blocks(g->columns - c, f->width);
        p.vecs = left > f->vecs + 1 || left == f->vecs ? f->vecs : left > f->vecs ? (int32_t)(left + 1) / 2 :
            (int32_t)left;
        p.b = g->b + c;
        p.c = g->c + c;
        p.x = g->x ? g->x + c : NULL;
        f->product(&p);
    }
}

/* ---- the state of a task */
typedef struct attn__pass {
    const attn_plan *plan;
    const attn_desc *d;
    const attn_grad *g;
    const attn__shape *s;
    const attn__backward *w;
    const attn__kernels *f;
    float *rows, *left_u, *left_t, *left_b;     /* shared */
    const float *prepared;
    float *m[ATTN__M_COUNT];            /* the worker's */
    int     does;
    int32_t worker;
    int64_t b, head_kv, head;
    int64_t key0, key1;                 /* the keys this task is for */
    int64_t i0, n, tiles;               /* the block of queries */
    int64_t nk;                         /* keys of the block of keys */
    int64_t lane0[ATTN_GRAD_QUERIES / 8 + 1];   /* of each tile in the block */
    int64_t first, last;                /* keys that some row of it reaches */
    int     uniform, bad_q, bad_d_out, bad_k;   /* bad: NaN or Inf in the rows */
    float   base[ATTN_GRAD_QUERIES], inverse[ATTN_GRAD_QUERIES], shift[ATTN_GRAD_QUERIES];
    uint8_t dead[ATTN_GRAD_QUERIES];    /* rows without mass */
    uint8_t whole, seen[ATTN_GRAD_KEYS];        /* the block of keys: does every row reach all; does any reach this */
} attn__pass;
#define ATTN__PASS_BYTES ((int64_t)(sizeof(attn__pass) + ATTN__ALIGN - 1) / ATTN__ALIGN * ATTN__ALIGN)

static int64_t attn__row_index(const attn__pass *p, int64_t i)
{
    return (p->b * p->s->heads + p->head) * p->s->queries + i;
}
static float *attn__row_field(const attn__pass *p, int field, int64_t i)
{
    return p->rows + field * p->w->rows + attn__row_index(p, i);
}
static attn__tile *attn__tile_at(const attn__pass *p, int64_t x)
{
    return (attn__tile *)(void *)((char *)p->m[ATTN__M_TILES] + x * ATTN__TILE_BYTES);
}

/* A tile of `lanes` rows of the pass's head, from query i on. */
static void attn__grad_tile(const attn__pass *p, attn__tile *t, int64_t i, int64_t lanes)
{
    const attn__shape *s = p->s;
    t->d = p->d;
    t->shape = s;
    t->f = p->f;
    t->b = p->b;
    t->head_kv = p->head_kv;
    t->stream = s->streams == s->heads ? p->head : p->head_kv;
    t->prepared = p->prepared + (t->b * s->streams + t->stream) * s->keys * s->key_floats;
    t->lanes = lanes;
    t->vecs = (int32_t)attn__blocks(lanes, p->f->width);
    t->ld = t->vecs * p->f->width;
    t->plain = t->few = 0;
    t->slots = NULL;
    attn__fill(t->ones, 1, t->ld, 1.0f);
    attn__open_lanes(t, p->head, i);
}

/* ---- phase of the rows: maximum and sum as the forward had them, then delta */
static void attn__row_stats(attn__pass *p, attn__tile *t)
{
    const attn_view *stats = &p->plan->stats;
    float cmax[ATTN__MAX_LANES], csum[ATTN__MAX_LANES], old[ATTN__MAX_LANES], fresh[ATTN__MAX_LANES];
    attn__reach r;
    int64_t l, c0, n, first, last;
    int32_t x;
    if (stats->rank) {
        for (l = 0; l < t->ld; l++) {
            t->top[l] = *attn__at(stats, t->b, t->h[l], t->i[l], 0);
            t->sum[l] = *attn__at(stats, t->b, t->h[l], t->i[l], 1);
        }
        return;
    }
    for (c0 = t->first / ATTN__CHUNK * ATTN__CHUNK; c0 < t->last; c0 += ATTN__CHUNK) {
        n = t->last - c0 < ATTN__CHUNK ? t->last - c0 : ATTN__CHUNK;
        attn__find_reach(t, c0, n, &r);
        attn__chunk_scores(t, c0, n, &r);
        for (x = 0; x < t->vecs; x++) attn__weigh_vector(t, &r, x, 0, cmax, csum, &first, &last);
        t->f->join(t->ld, t->top, t->sum, cmax, csum, old, fresh);
    }
}

/* What dropout does to the weights of a tile: 0 or 1/(1-p). */
static void attn__keep_factors(const attn__tile *t, int64_t c0, int64_t n, float *keep)
{
    attn__fill(keep, 1, n * t->ld, attn__keep_scale(t->d->dropout));
    attn__drop_lanes(t, c0, 0, t->ld, 0, n, keep);
}
static void attn__pack_weights_grad(const attn__pass *p, const attn__tile *t, int64_t c0, int64_t n, float *to)
{
    const attn_view *v = &p->g->d_weights;
    const float *rows[ATTN__MAX_LANES];
    int64_t l;
    for (l = 0; l < t->ld; l++) rows[l] = attn__at(v, t->b, t->h[l], t->i[l], c0);
    t->f->pack(to, t->ld, rows, v->stride[3], n, t->ones);
}

/* delta[lane] += sum over j of P dW, one chain */
static void attn__weights_delta(attn__pass *p, attn__tile *t, const float *base, const float *inverse, float *delta)
{
    const attn_desc *d = p->d;
    float zero[ATTN__MAX_LANES];
    attn__grade g;
    attn__reach r;
    int64_t l, j, c0, n;
    attn__fill(zero, 1, ATTN__MAX_LANES, 0.0f);
    g.base = base;
    g.inverse = inverse;
    g.shift = zero;
    g.s = t->s;
    g.dp = t->t;
    g.more = NULL;
    g.keep = d->dropout > 0.0f && d->weights_after_dropout ? t->acc : NULL;
    g.p = g.ds = t->s;
    g.ld = g.row = t->ld;
    for (c0 = t->first / ATTN_GRAD_KEYS * ATTN_GRAD_KEYS; c0 < t->last; c0 += ATTN_GRAD_KEYS) {
        n = t->last - c0 < ATTN_GRAD_KEYS ? t->last - c0 : ATTN_GRAD_KEYS;
        attn__find_reach(t, c0, n, &r);
        attn__chunk_scores(t, c0, n, &r);
        attn__pack_weights_grad(p, t, c0, n, t->t);
        g.keep = NULL;
        if (d->dropout > 0.0f && d->weights_after_dropout) {
            attn__keep_factors(t, c0, n, t->t + ATTN_GRAD_KEYS * t->ld);
            g.keep = t->t + ATTN_GRAD_KEYS * t->ld;
        }
        g.rows = n;
        t->f->grade(&g);
        for (j = 0; j < n; j++)
            for (l = 0; l < t->lanes; l++) delta[l] = delta[l] + t->s[j * t->ld + l];
    }
}

static void attn__row_tile(attn__pass *p, attn__tile *t)
{
    const attn_desc *d = p->d;
    const attn_view *out = &p->plan->out, *above = &p->g->d_out;
    float base[ATTN__MAX_LANES], inverse[ATTN__MAX_LANES], delta[ATTN__MAX_LANES], p_sink[ATTN__MAX_LANES];
    const float *rows[ATTN__MAX_LANES];
    int64_t l;
    if (!p->plan->stats.rank || p->g->d_weights.rank) attn__load_queries(t);
    attn__row_stats(p, t);
    for (l = 0; l < t->ld; l++) {
        float sum = t->sum[l], share = 1.0f;
        delta[l] = p_sink[l] = 0.0f;
        base[l] = attn__choose(attn__is_none(t->top[l]), 0.0f, t->top[l]);
        if (d->sink.rank && !attn__is_none(attn__of_head(&d->sink, t->h[l]))) {
            const float sink = attn__of_head(&d->sink, t->h[l]), m = attn__larger(sink, t->top[l]);
            share = attn__exp(t->top[l] - m);
            sum = attn__fma(sum, share, attn__exp(sink - m));
            p_sink[l] = attn__exp(sink - m) / sum;
        }
        inverse[l] = attn__choose(sum == 0.0f, 0.0f, share / sum);
        if (sum == 0.0f && d->empty == ATTN_EMPTY_UNIFORM) inverse[l] = -1.0f;          /* tells the blocks */
    }
    if (above->rank && out->rank) {
        for (l = 0; l < t->ld; l++) rows[l] = attn__at(above, t->b, t->h[l], t->i[l], 0);
        t->f->pack(t->o, t->ld, rows, above->stride[3], p->s->size_v, t->ones);
        for (l = 0; l < t->ld; l++) rows[l] = attn__at(out, t->b, t->h[l], t->i[l], 0);
        t->f->pack(t->acc, t->ld, rows, out->stride[3], p->s->size_v, t->ones);
        t->f->inner(t->o, t->acc, t->ld, p->s->size_v, delta);
        for (l = 0; l < t->ld; l++) delta[l] = attn__choose(t->sum[l] == 0.0f, 0.0f, delta[l]);
    }
    if (p->g->d_weights.rank) attn__weights_delta(p, t, base, inverse, delta);
    for (l = 0; l < t->lanes; l++) {
        const float lse = p->g->d_lse.rank ? *attn__at(&p->g->d_lse, t->b, t->h[l], t->i[l], 0) : 0.0f;
        *attn__row_field(p, ATTN__R_TOP, t->i[l]) = t->top[l];
        *attn__row_field(p, ATTN__R_INVERSE, t->i[l]) = inverse[l];
        *attn__row_field(p, ATTN__R_SHIFT, t->i[l]) = delta[l] - lse;
        *attn__row_field(p, ATTN__R_SINK, t->i[l]) = attn__choose(p_sink[l] == 0.0f, 0.0f, p_sink[l] * (lse -
            delta[l]));
    }
}

/* ---- the blocks */

/* Rows [n][size] as products want them, `row` floats apart and filled up with zeros; those that `use` leaves out are
   zeros and not read. factor: NULL or one per row. Is one of them NaN or Inf? */
static int attn__copy_rows(const attn__kernels *f, const attn_view *v, int64_t b, int64_t h, int64_t i0, int64_t n,
                           int64_t row, const uint8_t *use, const float *factor, float *to)
{
    const int64_t size = v->size[3];
    int64_t i, c;
    for (i = 0; i < n; i++) {
        const float *from = attn__at(v, b, h, i0 + (use[i] ? i : 0), 0);
        float *x = to + i * row;
        attn__fill(x + size, 1, row - size, 0.0f);
        if (!use[i]) attn__fill(x, 1, size, 0.0f);
        else if (v->stride[3] == 1) attn__copy_floats(x, from, size);
        else for (c = 0; c < size; c++) x[c] = from[c * v->stride[3]];
        for (c = 0; factor && use[i] && c < size; c++) x[c] = x[c] * factor[i];
    }
    return !f->finite(to, n * row);
}

/* What meets dS in dK: q, q/|q|, M^T q. */
static void attn__open_q_rows(attn__pass *p)
{
    const attn_desc *d = p->d;
    float factor[ATTN_GRAD_QUERIES], *rows[ATTN__MAX_LANES];
    uint8_t use[ATTN_GRAD_QUERIES];
    int64_t i, x;
    p->bad_q = 0;
    if (p->w->vector_row == 0 || d->score == ATTN_SCORE_ADDITIVE) return;
    for (i = 0; i < p->n; i++) {
        use[i] = !p->dead[i];
        if (d->score == ATTN_SCORE_COSINE && use[i])
            factor[i] = attn__inverse_norm(attn__at(&d->q, p->b, p->head, p->i0 + i, 0), d->q.stride[3], p->s->size_q);
    }
    if (d->score == ATTN_SCORE_BILINEAR) {
        for (x = 0; x < p->tiles; x++) {
            attn__tile *t = attn__tile_at(p, x);
            for (i = 0; i < t->lanes; i++) {
                rows[i] = p->m[ATTN__M_Q_ROWS] + (p->lane0[x] + i) * p->w->vector_row;
                attn__fill(rows[i], 1, p->w->vector_row, 0.0f);
            }
            p->f->unpack(rows, t->lanes, 1, t->query, t->ld, p->s->size_k, t->ones);
        }
        for (i = 0; i < p->n; i++)
            if (p->dead[i]) attn__fill(p->m[ATTN__M_Q_ROWS] + i * p->w->vector_row, 1, p->w->vector_row, 0.0f);
        p->bad_q = !p->f->finite(p->m[ATTN__M_Q_ROWS], p->n * p->w->vector_row);
    } else p->bad_q = attn__copy_rows(p->f, &d->q, p->b, p->head, p->i0, p->n, p->w->vector_row, use,
                                      d->score == ATTN_SCORE_COSINE ? factor : NULL, p->m[ATTN__M_Q_ROWS]);
}

static void attn__open_block(attn__pass *p, int64_t i0)
{
    const attn_desc *d = p->d;
    const attn__shape *s = p->s;
    const int64_t depth = d->score == ATTN_SCORE_ADDITIVE ? 2 * attn__round4(s->hidden) : s->size_k;
    uint8_t use[ATTN_GRAD_QUERIES];
    const float *rows[ATTN__MAX_LANES];
    int64_t vectors, each, more, x, i, l;
    p->i0 = i0;
    p->n = s->queries - i0 < ATTN_GRAD_QUERIES ? s->queries - i0 : ATTN_GRAD_QUERIES;
    vectors = attn__blocks(p->n, p->f->width);
    p->tiles = attn__blocks(vectors, p->f->vecs);
    each = vectors / p->tiles;
    more = vectors % p->tiles;
    p->uniform = 0;
    for (i = 0; i < p->n; i++) {
        const float top = *attn__row_field(p, ATTN__R_TOP, i0 + i);
        p->inverse[i] = *attn__row_field(p, ATTN__R_INVERSE, i0 + i);
        p->shift[i] = *attn__row_field(p, ATTN__R_SHIFT, i0 + i);
        p->dead[i] = (uint8_t)(attn__is_none(top) && !attn__is_nan(p->inverse[i]));
        p->base[i] = attn__choose(attn__is_none(top), 0.0f, top);
        use[i] = !p->dead[i] || p->inverse[i] < 0.0f;
        p->uniform |= p->inverse[i] < 0.0f;
    }
    for (; i < ATTN_GRAD_QUERIES; i++) p->base[i] = p->inverse[i] = p->shift[i] = 0.0f;
    p->first = ATTN__HUGE;
    p->last = 0;
    for (x = 0, i = 0; x < p->tiles; x++) {
        attn__tile *t = attn__tile_at(p, x);
        const int64_t room = (each + (x < more)) * p->f->width;
        attn__grad_tile(p, t, i0 + i, p->n - i < room ? p->n - i : room);
        p->lane0[x] = i;
        t->query = p->m[ATTN__M_QUERY] + i * depth;
        t->raw = p->m[ATTN__M_RAW];
        t->s = p->m[ATTN__M_S];
        t->t = p->m[ATTN__M_T];
        t->w = p->m[ATTN__M_W];
        attn__load_queries(t);
        if (p->g->d_out.rank) {
            for (l = 0; l < t->ld; l++) rows[l] = attn__at(&p->g->d_out, t->b, t->h[l], t->i[l], 0);
            p->f->pack(p->m[ATTN__M_D_OUT] + i * s->size_v, t->ld, rows, p->g->d_out.stride[3], s->size_v, t->ones);
        }
        if (t->first < t->last) {
            p->first = t->first < p->first ? t->first : p->first;
            p->last = t->last > p->last ? t->last : p->last;
        }
        i += t->ld;
    }
    if (p->first >= p->last) p->first = p->last = 0;
    p->bad_d_out = 0;
    if (p->g->d_out.rank && p->g->dv.rank && (p->does & ATTN__DO_K))
        p->bad_d_out = attn__copy_rows(p->f, &p->g->d_out, p->b, p->head, i0, p->n, p->w->value_row, use, NULL,
                                       p->m[ATTN__M_D_OUT_ROWS]);
    attn__open_q_rows(p);
    if (p->does & ATTN__DO_Q) {
        attn__fill(p->m[ATTN__M_DQ], 1, p->w->pad_u * ATTN__GRAD_ROW, 0.0f);
        if (d->score == ATTN_SCORE_ADDITIVE) attn__fill(p->m[ATTN__M_DT], 1, p->w->pad_u * ATTN__GRAD_ROW, 0.0f);
        for (i = 0; i < p->n; i++)
            for (l = ATTN__R_ALIBI; l < ATTN__R_COUNT; l++) *attn__row_field(p, (int)l, i0 + i) = 0.0f;
    }
}

/* P and dS of one tile against the keys c0 .. c0+n, into its lanes of the block. */
static void attn__grad_scores(attn__pass *p, int64_t x, int64_t c0, int64_t n)
{
    const attn_desc *d = p->d;
    const attn_view *v = &d->v;
    attn__tile *t = attn__tile_at(p, x);
    const int64_t lane0 = p->lane0[x], ld = t->ld;
    float *to_p = p->m[ATTN__M_P] + lane0, *to_ds = p->m[ATTN__M_DS] + lane0, *dp = p->m[ATTN__M_DP];
    attn__reach r;
    attn__grade g;
    attn__product q;
    int64_t j, l, end, hull, any = 0;
    attn__find_reach(t, c0, n, &r);
    for (j = 0; j < n; j++) {
        hull = r.whole ? 0 : j;
        if (r.from[hull] < r.to[hull]) p->seen[j] = 1, any = 1;
    }
    if (!r.whole) p->whole = 0;
    if (!any) {
        for (j = 0; j < n; j++) {
            attn__fill(to_p + j * ATTN__GRAD_ROW, 1, ld, -0.0f);
            attn__fill(to_ds + j * ATTN__GRAD_ROW, 1, ld, 0.0f);
        }
        return;
    }
    if (!r.whole) attn__fill(t->s, 1, n * ld, ATTN__NEG_INF);
    if (!r.whole || !p->g->d_out.rank) attn__fill(dp, 1, n * ld, 0.0f);
    for (j = 0; j < n; j = end) {
        end = attn__stretch(&r, j, n);
        hull = r.whole ? 0 : j;
        if (r.from[hull] >= r.to[hull]) continue;
        attn__scores(t, c0, j, end, r.from[hull], r.to[hull]);
        if (!p->g->d_out.rank) continue;
        q.a = attn__at(v, t->b, t->head_kv, c0 + j, 0);
        q.a_row = v->stride[2];
        q.a_k = v->stride[3];
        q.b = p->m[ATTN__M_D_OUT] + lane0 * p->s->size_v + r.from[hull] * t->f->width;
        q.c = dp + j * ld + r.from[hull] * t->f->width;
        q.b_row = q.c_row = ld;
        q.rows = end - j;
        q.depth = p->s->size_v;
        q.vecs = r.to[hull] - r.from[hull];
        q.kind = ATTN__PRODUCT;
        q.onto = 0;
        q.fetch = NULL;
        t->f->product(&q);
    }
    for (j = 0; attn__is_distance(d->score) && j < n; j++)
        attn__copy_floats(p->m[ATTN__M_SQUARE] + lane0 + j * ATTN__GRAD_ROW, t->s + j * ld, ld);
    attn__finish_raw(t, n);
    attn__soften(t, n);
    for (j = 0; d->softcap != 0.0f && j < n; j++)
        attn__copy_floats(p->m[ATTN__M_SOFT] + lane0 + j * ATTN__GRAD_ROW, t->s + j * ld, ld);
    attn__mask_chunk(t, c0, n, &r);
    g.s = t->s;
    g.dp = dp;
    g.base = p->base + lane0;
    g.inverse = p->inverse + lane0;
    g.shift = p->shift + lane0;
    g.keep = g.more = NULL;
    if (d->dropout > 0.0f) {
        attn__keep_factors(t, c0, n, p->m[ATTN__M_KEEP]);
        g.keep = p->m[ATTN__M_KEEP];
    }
    if (p->g->d_weights.rank) {
        attn__pack_weights_grad(p, t, c0, n, t->t);
        if (d->weights_after_dropout) for (j = 0; j < n * ld; j++) dp[j] = dp[j] + t->t[j];
        else g.more = t->t;
    }
    g.p = to_p;
    g.ds = to_ds;
    g.row = ATTN__GRAD_ROW;
    g.ld = ld;
    g.rows = n;
    t->f->grade(&g);
    for (l = t->lanes; l < ld; l++)                 /* beyond the last row: nothing */
        for (j = 0; j < n; j++) {
            to_p[j * ATTN__GRAD_ROW + l] = -0.0f;
            to_ds[j * ATTN__GRAD_ROW + l] = 0.0f;
        }
}

/* Rows under ATTN_EMPTY_UNIFORM: their weights on all keys. */
static void attn__grad_uniform(attn__pass *p, int64_t c0, int64_t n)
{
    const float weight = 1.0f / (float)p->s->keys, scale = attn__keep_scale(p->d->dropout);
    int64_t i, j;
    for (i = 0; i < p->n; i++) {
        attn__dropper drop = attn__dropper_of(p->d, p->b, p->head, p->i0 + i);
        if (!(p->inverse[i] < 0.0f)) continue;
        for (j = 0; j < n; j++)
            p->m[ATTN__M_P][j * ATTN__GRAD_ROW + i] = p->d->dropout == 0.0f ? weight :
                attn__kept(&drop, c0 + j) ? weight * scale : 0.0f;
    }
}

/* dS as a result of its own, over all keys: the gradient of a bias or of given scores. */
static void attn__store_scores_grad(attn__pass *p, const attn_out *o, int64_t c0, int64_t n, float factor, int add,
                                    const int64_t *stride)
{
    const float *ds = p->m[ATTN__M_DS];
    float *rows[ATTN__MAX_LANES], *turned = p->m[ATTN__M_RESULT], by[ATTN__MAX_LANES];
    const int64_t base = p->b * stride[0] + p->head * stride[1] + c0 * stride[3];
    int64_t i, j, i0, lanes;
    attn__fill(by, 1, ATTN__MAX_LANES, factor);
    for (i0 = 0; i0 < p->n; i0 += lanes) {
        lanes = p->n - i0 < ATTN__MAX_LANES ? p->n - i0 : ATTN__MAX_LANES;
        for (i = 0; i < lanes; i++)
            rows[i] = add ? turned + i * ATTN_GRAD_KEYS :
                (float *)o->data + (base + (p->i0 + i0 + i) * stride[2]);
        p->f->unpack(rows, lanes, add ? 1 : stride[3], ds + i0, ATTN__GRAD_ROW, n, by);
        for (i = 0; add && i < lanes; i++) {
            float *to = (float *)o->data + (base + (p->i0 + i0 + i) * stride[2]);
            if (p->f->finite(rows[i], n)) for (j = 0; j < n; j++) to[j * stride[3]] = to[j * stride[3]] + rows[i][j];
            else for (j = 0; j < n; j++) to[j * stride[3]] = attn__quiet(to[j * stride[3]] + rows[i][j]);
        }
    }
}

/* What is done with dS before it meets vectors: bias and ALiBi, then the softcap's factor, then given scores and
   distances. */
static void attn__grad_elements(attn__pass *p, int64_t c0, int64_t n)
{
    const attn_desc *d = p->d;
    const attn_grad *g = p->g;
    const float *mark = p->m[ATTN__M_P], *soft = p->m[ATTN__M_SOFT], *square = p->m[ATTN__M_SQUARE];
    float *ds = p->m[ATTN__M_DS];
    int64_t stride[4], i, j;
    if (p->w->bias > ATTN__BIAS_ROWS && (p->does & (p->w->key_parts ? ATTN__DO_K : ATTN__DO_Q | ATTN__DO_K))) {
        const attn_view v = attn_view_of(g->d_bias);
        attn__broadcast(&v, stride);
        attn__store_scores_grad(p, &g->d_bias, c0, n, 1.0f, p->w->bias == ATTN__BIAS_ADDED, stride);
    }
    if ((p->does & ATTN__DO_Q) && (p->w->bias == ATTN__BIAS_ROWS || g->d_alibi.rank))
        for (i = 0; i < p->n; i++) {
            const attn__row row = attn__row_of(d, p->s->queries, p->s->keys, p->b, p->i0 + i);
            float sum = *attn__row_field(p, ATTN__R_BIAS, p->i0 + i);
            float alibi = *attn__row_field(p, ATTN__R_ALIBI, p->i0 + i);
            for (j = 0; j < n; j++) {
                const float x = ds[j * ATTN__GRAD_ROW + i], apart = (float)attn__add_signed(row.position, -c0 - j);
                sum = sum + x;
                alibi = attn__fma(attn__negate(x), attn__float(attn__bits(apart) & 0x7fffffffu), alibi);
            }
            *attn__row_field(p, ATTN__R_BIAS, p->i0 + i) = sum;
            *attn__row_field(p, ATTN__R_ALIBI, p->i0 + i) = alibi;
        }
    if (d->softcap != 0.0f)
        for (j = 0; j < n; j++)
            for (i = j * ATTN__GRAD_ROW; i < j * ATTN__GRAD_ROW + p->n; i++) {
                float y;
                if (attn__bits(mark[i]) == 0x80000000u) continue;
                y = soft[i] / d->softcap;
                ds[i] = ds[i] * attn__fma(attn__negate(y), y, 1.0f);
            }
    if (d->score == ATTN_SCORE_GIVEN && (p->does & ATTN__DO_Q)) {
        if (g->d_given_scores.rank)
            attn__store_scores_grad(p, &g->d_given_scores, c0, n, d->scale, attn__adds(g, ATTN__G_d_given_scores),
                                    g->d_given_scores.stride);
        for (i = 0; g->d_scale.rank && i < p->n; i++) {
            float *sum = attn__row_field(p, ATTN__R_SCALE, p->i0 + i);
            for (j = 0; j < n; j++)
                if (attn__bits(mark[j * ATTN__GRAD_ROW + i]) != 0x80000000u)
                    *sum = attn__fma(ds[j * ATTN__GRAD_ROW + i],
                                     *attn__at(&d->given_scores, p->b, p->head, p->i0 + i, c0 + j), *sum);
        }
    }
    if (attn__is_distance(d->score)) {              /* dS becomes the factor of k - q; sigma's gradient on the way */
        const float sigma = d->sigma_per_head.rank ? attn__of_head(&d->sigma_per_head, p->head) : d->sigma;
        const float width = sigma * sigma, inverse = 1.0f / sigma;
        for (j = 0; j < n; j++)
            for (i = 0; i < p->n; i++) {
                const int64_t at = j * ATTN__GRAD_ROW + i;
                float *sum = attn__row_field(p, ATTN__R_SIGMA, p->i0 + i), x = ds[at], u;
                if (attn__bits(mark[at]) == 0x80000000u) continue;
                if (d->score == ATTN_SCORE_GAUSSIAN) x = x / width;
                else if (d->score == ATTN_SCORE_EPANECHNIKOV) x = (x + x) / (width * (1.0f - square[at] / width));
                else {
                    u = attn__sqrt(square[at] / width);
                    x = u == 0.0f ? 0.0f : x / (width * (u * (1.0f - u)));
                }
                ds[at] = x;
                if (p->does & ATTN__DO_Q) *sum = attn__fma(x, square[at] * inverse, *sum);
            }
    }
}

/* The rows of one side of a block that the other side's rows r0 .. r1 reach: for products no longer than needed. */
static void attn__hull(const attn__pass *p, int64_t c0, int by_key, int64_t r0, int64_t r1, int64_t *from, int64_t *to)
{
    int64_t x, l, a, b;
    *from = ATTN__HUGE;
    *to = 0;
    for (x = 0; x < p->tiles; x++) {
        const attn__tile *t = attn__tile_at(p, x);
        for (l = 0; l < t->lanes; l++) {
            const int64_t i = p->lane0[x] + l;
            if (p->inverse[i] < 0.0f) { a = 0; b = ATTN_GRAD_KEYS; }
            else { a = t->row[l].first - c0; b = t->row[l].last - c0; }
            a = a < 0 ? 0 : a;
            b = b > p->nk ? p->nk : b;
            if (a >= b) continue;
            if (by_key) {
                if (a >= r1 || b <= r0) continue;
                a = i;
                b = i + 1;
            } else if (i < r0 || i >= r1) continue;
            *from = a < *from ? a : *from;
            *to = b > *to ? b : *to;
        }
    }
    if (*from > *to) *from = *to = 0;
}

/* dV or dK: rows are keys, the sum runs over the block's queries. */
static void attn__grad_keys(attn__pass *p, attn__grad_product *g, int64_t c0, float *to, int64_t pad)
{
    const float *a = g->a, *b = g->b, *mark = p->m[ATTN__M_P], *x = g->x;
    const int64_t step = p->whole ? p->nk : 16;
    int64_t j, from = 0, end = p->n;
    g->a_row = ATTN__GRAD_ROW;
    g->a_k = 1;
    g->c_row = g->columns = pad;
    for (j = 0; j < p->nk; j += step) {
        if (!p->whole) attn__hull(p, c0, 1, j, j + step, &from, &end);
        g->rows = p->nk - j < step ? p->nk - j : step;
        g->depth = end - from;
        g->a = a + j * ATTN__GRAD_ROW + from;
        g->mark = mark + j * ATTN__GRAD_ROW + from;
        g->b = b + from * g->b_row;
        g->x = x ? x + j * g->x_row : NULL;
        g->c = to + (c0 - p->key0 + j) * pad;
        attn__multiply(p->f, g);
    }
}

/* dQ: rows are queries, the sum runs over the block's keys. */
static void attn__grad_queries(attn__pass *p, attn__grad_product *g, int64_t c0)
{
    const int64_t step = p->whole ? p->n : 32, pad = p->w->pad_u;
    int64_t i, from = 0, end = p->nk;
    g->a_row = 1;
    g->a_k = ATTN__GRAD_ROW;
    g->b_row = g->x_row = p->w->vector_row;
    g->c_row = g->columns = pad;
    g->careful = p->bad_k;
    for (i = 0; i < p->n; i += step) {
        if (!p->whole) attn__hull(p, c0, 0, i, i + step, &from, &end);
        g->rows = p->n - i < step ? p->n - i : step;
        g->depth = end - from;
        g->a = p->m[ATTN__M_DS] + from * ATTN__GRAD_ROW + i;
        g->mark = p->m[ATTN__M_P] + from * ATTN__GRAD_ROW + i;
        g->b = p->m[ATTN__M_K_ROWS] + from * g->b_row;
        g->x = attn__is_distance(p->d->score) ? p->m[ATTN__M_Q_ROWS] + i * g->x_row : NULL;
        g->c = p->m[ATTN__M_DQ] + i * pad;
        attn__multiply(p->f, g);
    }
}

/* Additive: da, db and the sums of dS tanh, four hidden units at a time. */
static void attn__grad_additive(attn__pass *p, int64_t c0)
{
    const attn__shape *s = p->s;
    const int64_t padded = p->w->pad_u;
    float *part = p->m[ATTN__M_PART];
    attn__additive_gradient g;
    int64_t u, x, j, i, clear = 1;
    for (j = 0; p->w->save_b && j < p->nk; j++) {
        float *met = p->m[ATTN__M_MET] + (c0 - p->key0 + j);
        for (i = 0; *met == 0.0f && i < p->n; i++)
            if (attn__bits(p->m[ATTN__M_P][j * ATTN__GRAD_ROW + i]) != 0x80000000u) *met = 1.0f;
    }
    g.key = attn__tile_at(p, 0)->prepared + c0 * s->key_floats;
    g.key_stride = s->key_floats;
    g.keys = p->nk;
    g.padded = padded;
    g.row = ATTN__GRAD_ROW;
    for (j = 0; j < p->nk; j++) clear &= p->seen[j] && g.key[j * s->key_floats + 2 * padded] != 0.0f;
    for (u = 0; u < padded; u += 4) {
        attn__zero(part, (size_t)p->nk * 4 * ATTN__PARTS * sizeof *part);
        for (x = 0; x < p->tiles; x++) {
            const attn__tile *t = attn__tile_at(p, x);
            int64_t l, lanes_clear = clear;
            if (t->first >= t->last) continue;
            for (l = 0; l < t->ld; l++) lanes_clear &= t->lane_clear[l];
            g.u = u;
            g.query = t->query;
            g.ld = t->ld;
            g.lane_clear = t->lane_clear;
            g.lane0 = p->lane0[x];
            g.ds = p->m[ATTN__M_DS] + g.lane0;
            g.mark = lanes_clear ? NULL : p->m[ATTN__M_P] + g.lane0;
            g.da = p->m[ATTN__M_DQ] + u * ATTN__GRAD_ROW + g.lane0;
            g.dt = p->m[ATTN__M_DT] + u * ATTN__GRAD_ROW + g.lane0;
            g.part = part;
            if (lanes_clear) p->f->additive_gradient(&g);
            else attn__additive_gradient_scalar(&g);
        }
        p->f->fold(part, p->nk, p->m[ATTN__M_DB] + (c0 - p->key0) * padded + u, padded);
    }
}

/* dS meets the vectors of both sides. */
static void attn__grad_vectors(attn__pass *p, int64_t c0)
{
    const attn_desc *d = p->d;
    float factor[ATTN_GRAD_KEYS];
    attn__grad_product g;
    int64_t j;
    if (d->score == ATTN_SCORE_ADDITIVE) {
        attn__grad_additive(p, c0);
        return;
    }
    for (j = 0; d->score == ATTN_SCORE_COSINE && j < p->nk; j++)
        factor[j] = p->seen[j] ? attn__tile_at(p, 0)->prepared[c0 + j] : 0.0f;
    p->bad_k = attn__copy_rows(p->f, &d->k, p->b, p->head_kv, c0, p->nk, p->w->vector_row, p->seen,
                               d->score == ATTN_SCORE_COSINE ? factor : NULL, p->m[ATTN__M_K_ROWS]);
    if (attn__is_distance(d->score)) p->bad_k |= p->bad_q;
    if ((p->does & ATTN__DO_K) && p->g->dk.rank) {
        g.a = p->m[ATTN__M_DS];
        g.b = p->m[ATTN__M_Q_ROWS];
        g.b_row = g.x_row = p->w->vector_row;
        g.x = attn__is_distance(d->score) ? p->m[ATTN__M_K_ROWS] : NULL;
        g.careful = p->bad_q || (g.x && p->bad_k);
        attn__grad_keys(p, &g, c0, p->m[ATTN__M_DK], p->w->pad_k);
    }
    if (p->does & ATTN__DO_Q) attn__grad_queries(p, &g, c0);
}

static void attn__grad_block(attn__pass *p, int64_t c0)
{
    attn__grad_product g;
    int64_t x, j;
    p->nk = p->s->keys - c0 < ATTN_GRAD_KEYS ? p->s->keys - c0 : ATTN_GRAD_KEYS;
    p->whole = 1;
    for (j = 0; j < p->nk; j++) p->seen[j] = 0;
    for (x = 0; x < p->tiles; x++) attn__grad_scores(p, x, c0, p->nk);
    attn__grad_elements(p, c0, p->nk);
    if (p->w->pad_u > 0) attn__grad_vectors(p, c0);
    if (p->uniform) attn__grad_uniform(p, c0, p->nk);           /* last: its rows count as excluded until here */
    if (!p->g->d_out.rank || !p->g->dv.rank || !(p->does & ATTN__DO_K)) return;
    g.a = p->m[ATTN__M_P];
    g.b = p->m[ATTN__M_D_OUT_ROWS];
    g.b_row = p->w->value_row;
    g.x = NULL;
    g.careful = p->bad_d_out;
    attn__grad_keys(p, &g, c0, p->m[ATTN__M_DV], p->w->pad_v);
}

/* ---- from sums to results */
static void attn__store_grad(const attn__kernels *f, const attn_out *o, int64_t a, int64_t b, int64_t c,
                             const float *from, int64_t n, float factor, int add)
{
    float *to = attn__out_at(o, a, b, c, 0);
    int64_t e;
    if (from && o->stride[3] == 1) {
        f->deliver(from, to, n, factor, add);
        return;
    }
    for (e = 0; e < n; e++, to += o->stride[3]) {
        if (from) *to = attn__quiet(attn__scaled(from[e], factor, *to, add));
        else if (!add) *to = 0.0f;                          /* no sum: nothing came together here */
    }
}
static int attn__all_zero(const float *x, int64_t stride, int64_t n, int negative)
{
    int64_t i;
    for (i = 0; i < n; i++)
        if (negative ? attn__bits(x[i * stride]) != 0x80000000u : attn__bits(x[i * stride]) << 1 != 0) return 0;
    return 1;
}

/* A matrix with any strides, as padded rows. */
static const float *attn__matrix_rows(attn__pass *p, const float *m, int64_t row, int64_t column, int64_t rows,
                                      int64_t columns, int64_t pad)
{
    float *to = p->m[ATTN__M_MATRIX];
    int64_t r, c;
    for (r = 0; r < rows; r++, to += pad) {
        attn__fill(to + columns, 1, pad - columns, 0.0f);
        for (c = 0; c < columns; c++) to[c] = m[r * row + c * column];
    }
    return p->m[ATTN__M_MATRIX];
}
/* rows [n][depth] (any strides) times such a matrix, into M_RESULT, rows of `pad` */
static const float *attn__times(attn__pass *p, const float *a, int64_t a_row, int64_t a_k, int64_t n, int64_t depth,
                                const float *matrix, int64_t pad)
{
    attn__grad_product g;
    attn__fill(p->m[ATTN__M_RESULT], 1, n * pad, 0.0f);
    g.a = a;
    g.a_row = a_row;
    g.a_k = a_k;
    g.b = matrix;
    g.b_row = g.c_row = g.columns = pad;
    g.c = p->m[ATTN__M_RESULT];
    g.rows = n;
    g.depth = depth;
    g.x = NULL;
    g.careful = 0;
    attn__multiply(p->f, &g);
    return p->m[ATTN__M_RESULT];
}

static float attn__dot_of(const float *x, int64_t stride, const float *y, int64_t n)
{
    float sum = 0.0f;
    int64_t c;
    for (c = 0; c < n; c++) sum = attn__fma(x[c * stride], y[c], sum);
    return sum;
}
/* y becomes inverse * (y - v (v . y)) for the unit vector v = x * inverse; returns v . y */
static float attn__normal_part(const float *x, int64_t stride, float inverse, float *y, int64_t n)
{
    const float along = attn__dot_of(x, stride, y, n) * inverse;
    int64_t c;
    for (c = 0; c < n; c++)
        y[c] = attn__fma(attn__negate(x[c * stride] * inverse), along, y[c]) * inverse;
    return along;
}

/* The block's rows: u, or da, becomes dq; what parameters need is left behind. */
static void attn__close_block(attn__pass *p)
{
    const attn_desc *d = p->d;
    const attn__shape *s = p->s;
    const int additive = d->score == ATTN_SCORE_ADDITIVE, adds = attn__adds(p->g, ATTN__G_dq);
    const int64_t pad = p->w->pad_u, size = p->w->size_u;
    const attn_view *q = &d->q;
    float *u = p->m[ATTN__M_DQ], *dt = p->m[ATTN__M_DT], factor = d->scale;
    const float *y = u;
    int64_t y_row = pad, i, c;
    if (!q->rank) return;
    if (p->w->vectors && additive) {
        const float *w = attn__tile_at(p, 0)->w;
        for (c = 0; c < size; c++)
            for (i = c * ATTN__GRAD_ROW; i < c * ATTN__GRAD_ROW + p->n; i++) u[i] = u[i] * (-4.0f * d->scale * w[c]);
        for (i = 0; i < p->n; i++) {
            const int64_t row = attn__row_index(p, p->i0 + i);
            for (c = 0; p->w->save_u && c < size; c++)
                p->left_u[row * size + c] = p->dead[i] ? -0.0f : u[c * ATTN__GRAD_ROW + i] + 0.0f;
            for (c = 0; p->w->save_t && c < size; c++) p->left_t[row * size + c] = dt[c * ATTN__GRAD_ROW + i];
            if (!p->dead[i]) for (c = 0; c < size; c++) {
                float *sum = attn__row_field(p, ATTN__R_SCALE, p->i0 + i);
                *sum = attn__fma(w[c], dt[c * ATTN__GRAD_ROW + i], *sum);
            }
        }
        if (!p->g->dq.rank) return;
        if (d->w_q.rank) {
            const attn_view m = attn__per_head(d->w_q, 2, p->head);
            y_row = attn__up(s->size_q, p->f->width);
            y = attn__matrix_rows(p, (const float *)m.data, m.stride[0], m.stride[1], size, s->size_q, y_row);
            y = attn__times(p, u, 1, ATTN__GRAD_ROW, p->n, size, y, y_row);
        } else {
            for (i = 0; i < p->n; i++)
                for (c = 0; c < size; c++) p->m[ATTN__M_RESULT][i * pad + c] = u[c * ATTN__GRAD_ROW + i];
            y = p->m[ATTN__M_RESULT];
        }
        factor = 1.0f;
    } else if (p->w->vectors && d->score == ATTN_SCORE_BILINEAR) {
        const attn_view m = attn__per_head(d->bilinear, 2, p->head);
        for (i = 0; p->w->save_u && i < p->n; i++)
            for (c = 0; c < size; c++)
                p->left_u[attn__row_index(p, p->i0 + i) * size + c] = p->dead[i] ? -0.0f : u[i * pad + c] + 0.0f;
        y_row = attn__up(s->size_q, p->f->width);
        y = attn__matrix_rows(p, (const float *)m.data, m.stride[1], m.stride[0], size, s->size_q, y_row);
        y = attn__times(p, u, pad, 1, p->n, size, y, y_row);
    } else if (attn__is_distance(d->score)) factor = 1.0f;
    for (i = 0; i < p->n; i++, y += y_row) {
        const int nothing = !p->w->vectors || p->dead[i];
        const float *x = nothing ? NULL : attn__at(q, p->b, p->head, p->i0 + i, 0);
        float *row = attn__row_field(p, ATTN__R_SCALE, p->i0 + i);
        if (nothing) ;
        else if (d->score == ATTN_SCORE_COSINE)
            *row = attn__normal_part(x, q->stride[3], attn__inverse_norm(x, q->stride[3], size), u + i * pad, size);
        else if (p->g->d_scale.rank && !additive && !attn__is_kernel(d->score))
            *row = attn__dot_of(x, q->stride[3], y, s->size_q);
        if (p->g->dq.rank)
            attn__store_grad(p->f, &p->g->dq, p->b, p->head, p->i0 + i, nothing ? NULL : y, s->size_q, factor, adds);
    }
}

/* Additive, where a stream ends: db of its keys is left behind and becomes a part of dk. Else nothing. */
static void attn__close_stream(attn__pass *p)
{
    const attn_desc *d = p->d;
    const attn__shape *s = p->s;
    const int64_t padded = p->w->pad_u, hidden = s->hidden, pad = p->w->pad_k;
    const int64_t stream = s->streams == s->heads ? p->head : p->head_kv, n = p->key1 - p->key0;
    const attn_view m = attn__per_head(d->w_k, 2, p->head), w = attn__per_head(d->w_v, 1, p->head);
    float *db = p->m[ATTN__M_DB];
    const float *y = db, *matrix = NULL;
    int64_t j, j0, c, count;
    if (d->score != ATTN_SCORE_ADDITIVE) return;
    for (j = 0; j < n; j++)
        for (c = 0; c < hidden; c++)
            db[j * padded + c] = db[j * padded + c] * (-4.0f * d->scale * attn__of_head(&w, c));
    for (j = 0; p->w->save_b && j < n; j++)         /* -0: no query attends to it */
        for (c = 0; c < hidden; c++)
            p->left_b[((p->b * s->streams + stream) * s->keys + p->key0 + j) * hidden + c] =
                p->m[ATTN__M_MET][j] == 0.0f ? -0.0f : db[j * padded + c] + 0.0f;
    attn__fill(p->m[ATTN__M_MET], 1, p->w->save_b ? n : 0, 0.0f);
    if (p->g->dk.rank && d->w_k.rank)
        matrix = attn__matrix_rows(p, (const float *)m.data, m.stride[0], m.stride[1], hidden, s->size_k, pad);
    for (j0 = 0; p->g->dk.rank && j0 < n; j0 += count) {
        count = n - j0 < ATTN_GRAD_QUERIES ? n - j0 : ATTN_GRAD_QUERIES;
        if (matrix) y = attn__times(p, db + j0 * padded, padded, 1, count, hidden, matrix, pad);
        else y = db + j0 * padded;
        for (j = 0; j < count; j++)
            if (!attn__all_zero(db + (j0 + j) * padded, 1, hidden, 0))
                for (c = 0; c < s->size_k; c++)
                    p->m[ATTN__M_DK][(j0 + j) * pad + c] = p->m[ATTN__M_DK][(j0 + j) * pad + c] +
                        y[j * (matrix ? pad : padded) + c];
    }
    attn__fill(db, 1, n * padded, 0.0f);
}

static void attn__close_keys(attn__pass *p)
{
    const attn_desc *d = p->d;
    const attn__shape *s = p->s;
    const int dot = d->score == ATTN_SCORE_DOT || d->score == ATTN_SCORE_SCALED_DOT || d->score == ATTN_SCORE_COSINE;
    int64_t j;
    for (j = p->key0; j < p->key1; j++) {
        float *dk = p->m[ATTN__M_DK] + (j - p->key0) * p->w->pad_k;
        const int nothing = !p->w->vectors || attn__all_zero(dk, 1, s->size_k, 0);
        if (p->g->dv.rank)
            attn__store_grad(p->f, &p->g->dv, p->b, p->head_kv, j, p->m[ATTN__M_DV] + (j - p->key0) * p->w->pad_v,
                             s->size_v, 1.0f, attn__adds(p->g, ATTN__G_dv));
        if (!p->g->dk.rank) continue;
        if (!nothing && d->score == ATTN_SCORE_COSINE)
            attn__normal_part(attn__at(&d->k, p->b, p->head_kv, j, 0), d->k.stride[3], p->prepared[(p->b * s->streams +
                              p->head_kv) * s->keys + j], dk, s->size_k);
        attn__store_grad(p->f, &p->g->dk, p->b, p->head_kv, j, nothing ? NULL : dk, s->size_k, dot ? d->scale : 1.0f,
                         attn__adds(p->g, ATTN__G_dk));
    }
}

static void attn__clear_keys(attn__pass *p)
{
    const int64_t n = p->key1 - p->key0;
    if (p->does & ATTN__DO_K) {
        attn__fill(p->m[ATTN__M_DK], 1, n * p->w->pad_k, 0.0f);
        attn__fill(p->m[ATTN__M_DV], 1, n * p->w->pad_v, 0.0f);
    }
    if (p->d->score == ATTN_SCORE_ADDITIVE) attn__fill(p->m[ATTN__M_DB], 1, n * p->w->pad_u, 0.0f);
    attn__fill(p->m[ATTN__M_MET], 1, p->w->save_b ? n : 0, 0.0f);
}

/* Blocks q0 .. q1 of queries of the pass's head meet its keys. */
static void attn__run_queries(attn__pass *p, int64_t q0, int64_t q1)
{
    int64_t block, c0, from, to;
    for (block = q0; block < q1; block++) {
        attn__open_block(p, block * ATTN_GRAD_QUERIES);
        from = p->uniform || p->w->every ? 0 : p->first / ATTN_GRAD_KEYS * ATTN_GRAD_KEYS;
        to = p->uniform || p->w->every ? p->s->keys : p->last;
        from = from < p->key0 ? p->key0 : from;
        to = to > p->key1 ? p->key1 : to;
        for (c0 = from; c0 < to; c0 += ATTN_GRAD_KEYS) attn__grad_block(p, c0);
        if (p->does & ATTN__DO_Q) attn__close_block(p);
    }
}

/* One unit, a batch entry's key head and the query heads that read it: blocks q0 .. q1 of queries of each head. */
static void attn__run_unit(attn__pass *p, int64_t unit, int64_t q0, int64_t q1)
{
    const attn__shape *s = p->s;
    const int64_t group = s->heads / s->heads_kv;
    int64_t h;
    p->b = unit / s->heads_kv;
    p->head_kv = unit % s->heads_kv;
    attn__clear_keys(p);
    for (h = 0; h < group; h++) {
        p->head = p->head_kv * group + h;
        attn__run_queries(p, q0, q1);
        if (p->w->vectors && (p->does & ATTN__DO_K) && (s->streams == s->heads || h + 1 == group))
            attn__close_stream(p);
    }
    if (p->does & ATTN__DO_K) attn__close_keys(p);
}

/* ---- sums over rows: the gradients of parameters, and the products of the pieces.
   out[x][y][r][c] (+)= scale * sum over batch and k of a[..][r,k] b[..][k,c]; batch axes of `out` that have size 1 are
   summed over, k in blocks of ATTN_GRAD_QUERIES, all in ascending order */
typedef struct attn__sum {
    attn_view a, b;             /* rank 4; batch axes of size 1 have stride 0 */
    attn_out  out;
    int64_t   batch[2], b_shares;       /* so many heads of a share one of b */
    float     scale;
    int       adds, skip;               /* skip: rows of b that are not finite do not count where a is all -0 (1),
                                           all 0 (2) */
    const attn_desc *cover;             /* not NULL: b are keys; those that no query may attend to are not read */
    const attn__shape *shape;
} attn__sum;

static int64_t attn__sum_tasks(const attn__kernels *f, const attn__sum *m)
{
    const int64_t columns = attn__blocks(m->out.size[3], f->width * f->vecs);
    return attn__mul64(attn__mul64(m->out.size[0], m->out.size[1]),
                       attn__mul64(attn__blocks(m->out.size[2], ATTN__SUM_ROWS), columns));
}
static int64_t attn__sum_bytes(const attn__kernels *f)
{
    return attn__bytes_of((int64_t)(ATTN_GRAD_QUERIES + ATTN__SUM_ROWS) * f->width * f->vecs);
}

/* b's rows k0 .. k0+n, `lanes` columns from `column` on, as a tile. */
static void attn__sum_panel(const attn__sum *m, int64_t x, int64_t y, int64_t k0, int64_t n, int64_t column,
                            int64_t lanes, int64_t ld, float *panel)
{
    uint8_t covered[ATTN__CHUNK];
    int64_t k, l;
    if (m->cover) attn__cover(m->cover, m->shape, x, k0, n, covered);
    for (k = 0; k < n; k++, panel += ld) {
        const float *from;
        attn__fill(panel, 1, ld, 0.0f);
        if (m->cover && !covered[k]) continue;
        from = attn__at(&m->b, x, y / m->b_shares, k0 + k, column);
        for (l = 0; l < lanes; l++) panel[l] = from[l * m->b.stride[3]];
        if (m->skip && !attn__finite_scalar(panel, lanes) &&
            attn__all_zero(attn__at(&m->a, x, y, 0, k0 + k), m->a.stride[2], m->a.size[2], m->skip == 1))
            attn__fill(panel, 1, lanes, 0.0f);
    }
}

ATTN__NOINLINE static void attn__sum_tile(const attn__kernels *f, const attn__sum *m, int64_t index, float *panel)
{
    const int64_t wide = f->width * f->vecs, columns = attn__blocks(m->out.size[3], wide);
    const int64_t row_tiles = attn__blocks(m->out.size[2], ATTN__SUM_ROWS), column = index % columns * wide;
    const int64_t r0 = index / columns % row_tiles * ATTN__SUM_ROWS, xy = index / columns / row_tiles;
    const int64_t y = xy % m->out.size[1], x = xy / m->out.size[1], depth = m->a.size[3];
    const int64_t lanes = m->out.size[3] - column < wide ? m->out.size[3] - column : wide;
    const int64_t ld = attn__blocks(lanes, f->width) * f->width;
    const int64_t x1 = m->out.size[0] == 1 ? m->batch[0] : x + 1, y1 = m->out.size[1] == 1 ? m->batch[1] : y + 1;
    float *c = panel + ATTN_GRAD_QUERIES * wide;
    attn__product p;
    int64_t b, h, r, l, k0;
    p.rows = m->out.size[2] - r0 < ATTN__SUM_ROWS ? m->out.size[2] - r0 : ATTN__SUM_ROWS;
    p.a_row = m->a.stride[2];
    p.a_k = m->a.stride[3];
    p.b = panel;
    p.c = c;
    p.b_row = p.c_row = ld;
    p.vecs = (int32_t)(ld / f->width);
    p.kind = ATTN__PRODUCT;
    p.onto = ATTN__ADD_AFTER;
    p.fetch = NULL;
    attn__fill(c, 1, p.rows * ld, 0.0f);
    for (b = m->out.size[0] == 1 ? 0 : x; b < x1; b++)
        for (h = m->out.size[1] == 1 ? 0 : y; h < y1; h++)
            for (k0 = 0; k0 < depth; k0 += ATTN_GRAD_QUERIES) {
                p.depth = depth - k0 < ATTN_GRAD_QUERIES ? depth - k0 : ATTN_GRAD_QUERIES;
                attn__sum_panel(m, b, h, k0, p.depth, column, lanes, ld, panel);
                p.a = attn__at(&m->a, b, h, r0, k0);
                f->product(&p);
            }
    for (r = 0; r < p.rows; r++)
        for (l = 0; l < lanes; l++) {
            float *to = attn__out_at(&m->out, x, y, r0 + r, column + l);
            *to = attn__quiet(attn__scaled(c[r * ld + l], m->scale, *to, m->adds));
        }
}

/* `n` floats behind a place in a workspace that may not be there yet */
static const float *attn__behind(const float *place, int64_t n) { return place ? place + n : place; }

/* a rank-4 view of packed floats; NULL data where the workspace is not there yet */
static attn_view attn__packed(const float *data, int64_t a, int64_t b, int64_t c, int64_t e)
{
    attn_view v;
    v.data = data;
    v.type = ATTN_F32;
    v.rank = 4;
    v.size[0] = a;
    v.size[1] = b;
    v.size[2] = c;
    v.size[3] = e;
    v.stride[3] = 1;
    v.stride[2] = e;
    v.stride[1] = attn__mul64(c, e);
    v.stride[0] = attn__mul64(b, v.stride[1]);
    return v;
}
static attn_view attn__swapped(attn_view v)         /* the last two axes */
{
    const int64_t n = v.size[2], s = v.stride[2];
    v.size[2] = v.size[3];
    v.stride[2] = v.stride[3];
    v.size[3] = n;
    v.stride[3] = s;
    return v;
}
/* A parameter's gradient, rank `rank` or with a head axis in front, as [1,1|H,..]. */
static attn_out attn__grad_rank4(attn_out o, int rank)
{
    attn_out r = o;
    int axis;
    r.rank = 4;
    for (axis = 0; axis < 4; axis++) {
        const int per_head = o.rank > rank, from = axis == 1 ? 0 : axis - (4 - rank) + per_head;
        const int absent = axis == 0 || (axis == 1 ? !per_head : axis < 4 - rank);
        r.size[axis] = absent ? 1 : o.size[from];
        r.stride[axis] = absent ? 0 : o.stride[from];
    }
    return r;
}

/* The sum that makes one result; 0 where it is not asked for or not made so. */
static int attn__grad_sum(const attn_plan *plan, const attn__shape *s, const attn__backward *w, int field,
                          const float *rows, const float *left, attn__sum *m)
{
    static const float one = 1.0f;
    const attn_desc *d = &plan->desc;
    const attn_grad *g = &plan->grad;
    const attn_view gradient = attn__grad_at(g, field);
    const int64_t left_t = w->save_u ? w->rows * w->size_u : 0, left_b = left_t + (w->save_t ? w->rows * w->size_u : 0);
    attn_out o;
    int of = -1;
    if (!gradient.rank) return 0;
    ATTN__COPY(&o, &gradient, sizeof o);
    m->a = attn__packed(&one, 1, 1, 1, s->queries);
    m->a.stride[0] = m->a.stride[1] = m->a.stride[2] = m->a.stride[3] = 0;
    m->batch[0] = s->batch;
    m->batch[1] = s->heads;
    m->b_shares = 1;
    m->scale = 1.0f;
    m->adds = attn__adds(g, field);
    m->skip = 0;
    m->cover = NULL;
    m->shape = s;
    switch (field) {
    case ATTN__G_d_sink:  of = ATTN__R_SINK;  break;
    case ATTN__G_d_alibi: of = ATTN__R_ALIBI; break;
    case ATTN__G_d_sigma: of = ATTN__R_SIGMA; break;
    case ATTN__G_d_scale: of = ATTN__R_SCALE; break;
    case ATTN__G_d_bias:
        if (w->bias != ATTN__BIAS_ROWS) return 0;
        of = ATTN__R_BIAS;
        break;
    case ATTN__G_d_bilinear:
        m->a = attn__swapped(attn__packed(left, s->batch, s->heads, s->queries, w->size_u));
        m->b = d->q;
        m->out = attn__grad_rank4(o, 2);
        {
            const int64_t n = m->out.size[2], t = m->out.stride[2];
            m->out.size[2] = m->out.size[3];
            m->out.stride[2] = m->out.stride[3];
            m->out.size[3] = n;
            m->out.stride[3] = t;
        }
        m->scale = d->scale;
        m->skip = 1;
        return 1;
    case ATTN__G_d_w_q:
        m->a = attn__swapped(attn__packed(left, s->batch, s->heads, s->queries, w->size_u));
        m->b = d->q;
        m->out = attn__grad_rank4(o, 2);
        m->skip = 1;
        return 1;
    case ATTN__G_d_w_v:
        m->b = attn__packed(attn__behind(left, left_t), s->batch, s->heads, s->queries, w->size_u);
        m->out = attn__grad_rank4(o, 1);
        m->scale = d->scale;
        return 1;
    case ATTN__G_d_w_k: case ATTN__G_d_hidden_bias:
        m->batch[1] = s->heads > 0 ? s->streams : 0;        /* without a head no stream was closed */
        m->b = attn__packed(attn__behind(left, left_b), s->batch, s->streams, s->keys, w->size_u);
        m->out = attn__grad_rank4(o, field == ATTN__G_d_w_k ? 2 : 1);
        m->a.size[3] = s->keys;
        if (field == ATTN__G_d_hidden_bias) return 1;
        m->a = attn__swapped(m->b);
        m->b = d->k;
        m->b_shares = s->heads_kv > 0 ? s->streams / s->heads_kv : 1;
        m->skip = 1;
        m->cover = d;
        return 1;
    default:
        return 0;
    }
    m->b = attn__packed(attn__behind(rows, of * w->rows), s->batch, s->heads, s->queries, 1);
    m->out = attn__grad_rank4(o, 0);
    if (field == ATTN__G_d_bias) {
        int axis;
        for (axis = 0; axis < 4; axis++) {
            const int from = axis - (4 - o.rank);
            m->out.size[axis] = from < 0 ? 1 : o.size[from];
            m->out.stride[axis] = from < 0 || o.size[from] == 1 ? 0 : o.stride[from];
        }
        if (m->out.size[2] == s->queries) {         /* not summed over queries: they are columns */
            m->a.size[3] = 1;
            m->b = attn__swapped(m->b);
            m->out.size[3] = m->out.size[2];
            m->out.stride[3] = m->out.stride[2];
            m->out.size[2] = 1;
        }
    }
    return 1;
}

/* ---- tasks */
static void attn__zero_out(const attn_out *o)
{
    int64_t i[4], n[4], s[4];
    int axis;
    for (axis = 0; axis < 4; axis++) {
        n[axis] = axis < o->rank ? o->size[axis] : 1;
        s[axis] = axis < o->rank ? o->stride[axis] : 0;
    }
    for (i[0] = 0; i[0] < n[0]; i[0]++)
        for (i[1] = 0; i[1] < n[1]; i[1]++)
            for (i[2] = 0; i[2] < n[2]; i[2]++)
                attn__fill((float *)o->data + (i[0]*s[0] + i[1]*s[1] + i[2]*s[2]), s[3], n[3], 0.0f);
}

ATTN__NOINLINE static void attn__run_rows(attn__pass *p, char *memory, int64_t index)
{
    const attn__shape *s = p->s;
    attn__tile *t = (attn__tile *)(void *)memory;
    int64_t i, end, lanes;
    if (index == p->w->blocks * s->batch * s->heads) {
        attn__zero_out(&p->g->d_bias);
        return;
    }
    i = index % p->w->blocks * ATTN_GRAD_QUERIES;
    p->head = index / p->w->blocks % s->heads;
    p->b = index / p->w->blocks / s->heads;
    p->head_kv = p->head / (s->heads / s->heads_kv);
    end = s->queries - i < ATTN_GRAD_QUERIES ? s->queries : i + ATTN_GRAD_QUERIES;
    t->shape = s;
    t->d = p->d;
    attn__room(t);
    for (; i < end; i += lanes) {
        lanes = end - i < s->ld ? end - i : s->ld;
        attn__grad_tile(p, t, i, lanes);
        attn__row_tile(p, t);
    }
}

static void attn__lay_out(attn__pass *p, char *memory)
{
    int64_t floats[ATTN__M_COUNT], i;
    float *at = (float *)(void *)memory;
    attn__grad_memory(p->d, p->s, p->w, floats);
    for (i = 0; i < ATTN__M_COUNT; at += floats[i++]) p->m[i] = at;
}
static void attn__part_of_keys(attn__pass *p, int64_t part, int64_t parts)
{
    const int64_t blocks = attn__blocks(p->s->keys, ATTN_GRAD_KEYS);
    p->key0 = blocks * part / parts * ATTN_GRAD_KEYS;
    p->key1 = part + 1 < parts ? blocks * (part + 1) / parts * ATTN_GRAD_KEYS : p->s->keys;
}

ATTN__NOINLINE static void attn__run_blocks(attn__pass *p, char *memory, int64_t index)
{
    const attn__shape *s = p->s;
    const attn__backward *w = p->w;
    const int64_t units = s->batch * s->heads_kv, key_units = w->cross ? 1 : units;
    int64_t unit0, unit1, q0 = 0, q1 = w->blocks, unit, part;
    attn__lay_out(p, memory);
    p->key0 = 0;
    p->key1 = s->keys;
    p->does = (int)w->does;
    if (w->key_parts + w->query_parts == 0) {
        unit0 = index;
        unit1 = w->cross ? units : index + 1;
    } else if (index < key_units * w->key_parts) {
        p->does = ATTN__DO_K;
        attn__part_of_keys(p, index % w->key_parts, w->key_parts);
        unit0 = index / w->key_parts;
        unit1 = w->cross ? units : unit0 + 1;
    } else {
        p->does = ATTN__DO_Q;
        index -= key_units * w->key_parts;
        part = index % w->query_parts;
        unit0 = index / w->query_parts;
        unit1 = unit0 + 1;
        q0 = w->blocks * part / w->query_parts;
        q1 = w->blocks * (part + 1) / w->query_parts;
    }
    for (unit = unit0; unit < unit1; unit++) attn__run_unit(p, unit, q0, q1);
}

/* ---- rounds: `slots` blocks of queries of one unit at a time, each by a task that sums by key for itself, in a slot,
   which is that part of a worker's memory (whoever runs the task). Then the sums of the first slot, which go on from
   round to round, get those of the others added: block by block in ascending order, as if one task had done it all. */
static int64_t attn__round_blocks(const attn__backward *w, int64_t round)
{
    const int64_t left = w->blocks - round * w->slots;
    return left < w->slots ? left : w->slots;
}
static float *attn__in_slot(const attn__pass *p, int part, int64_t slot)
{
    const int64_t unit = p->b * p->s->heads + p->head;
    return (float *)(void *)((char *)p->m[part] + (unit * p->w->slots + slot - p->worker) * p->w->worker_bytes);
}
static void attn__open_unit(attn__pass *p, char *memory, int64_t unit)
{
    attn__lay_out(p, memory);
    p->does = ATTN__DO_Q | ATTN__DO_K;
    p->b = unit / p->s->heads;
    p->head = p->head_kv = unit % p->s->heads;
}

ATTN__NOINLINE static void attn__run_round(attn__pass *p, char *memory, int64_t round, int64_t index)
{
    const int64_t n = attn__round_blocks(p->w, round), slot = index % n, block = round * p->w->slots + slot;
    int part;
    attn__open_unit(p, memory, index / n);
    attn__part_of_keys(p, 0, 1);
    for (part = ATTN__M_DK; part <= ATTN__M_MET; part++) p->m[part] = attn__in_slot(p, part, slot);
    if (round == 0 || slot > 0) attn__clear_keys(p);
    attn__run_queries(p, block, block + 1);
}

ATTN__NOINLINE static void attn__run_merge(attn__pass *p, char *memory, int64_t round, int64_t index)
{
    const attn__backward *w = p->w;
    const int64_t n = attn__round_blocks(w, round);
    int64_t pads[4], slot;
    float *sums;
    int x;
    attn__open_unit(p, memory, index / w->merge_parts);
    attn__part_of_keys(p, index % w->merge_parts, w->merge_parts);
    pads[0] = w->pad_k;
    pads[1] = p->d->score == ATTN_SCORE_ADDITIVE ? w->pad_u : 0;
    pads[2] = w->pad_v;
    pads[3] = w->save_b;
    for (x = 0; x < 4; x++) {
        const int64_t from = p->key0 * pads[x], count = (p->key1 - p->key0) * pads[x];
        sums = attn__in_slot(p, ATTN__M_DK + x, 0) + from;
        for (slot = 1; slot < n; slot++)
            p->f->deliver(attn__in_slot(p, ATTN__M_DK + x, slot) + from, sums, count, 1.0f, 1);
        p->m[ATTN__M_DK + x] = sums;
    }
    if (round + 1 < w->rounds) return;
    if (w->vectors) attn__close_stream(p);
    attn__close_keys(p);
}

ATTN__NOINLINE static void attn__run_sums(attn__pass *p, char *memory, int64_t index)
{
    attn__sum m;
    int field;
    for (field = ATTN__G_d_bias; field < ATTN__G_COUNT; field++) {
        int64_t n;
        if (!attn__grad_sum(p->plan, p->s, p->w, field, p->rows, p->left_u, &m)) continue;
        n = attn__sum_tasks(p->f, &m);
        if (index < n) {
            attn__sum_tile(p->f, &m, index, (float *)(void *)memory);
            return;
        }
        index -= n;
    }
}

static void attn__run_gradients(const attn_plan *plan, void *workspace, int32_t phase, int64_t index, int32_t worker)
{
    attn__shape shape;
    attn__backward w;
    char *base = attn__align(workspace), *memory;
    attn__pass *p;
    ATTN__COPY(&w, plan->backward, sizeof w);
    attn__shape_of(plan, &shape);
    memory = base + shape.key_bytes + w.rows_bytes + w.left_bytes + worker * w.worker_bytes;
    p = (attn__pass *)(void *)memory;               /* too big for a small stack */
    memory += ATTN__PASS_BYTES;
    p->plan = plan;
    p->d = &plan->desc;
    p->g = &plan->grad;
    p->s = &shape;
    p->w = &w;
    p->f = attn__table(plan->isa);
    p->worker = worker;
    p->prepared = (const float *)(void *)base;
    p->rows = (float *)(void *)(base + shape.key_bytes);
    p->left_u = p->rows + w.rows_bytes / 4;
    p->left_t = p->left_u + (w.save_u ? w.rows * w.size_u : 0);
    p->left_b = p->left_t + (w.save_t ? w.rows * w.size_u : 0);
    phase -= shape.key_blocks > 0;
    if (phase == 0) attn__run_rows(p, memory, index);
    else if (phase > (w.rounds ? 2 * w.rounds : 1)) attn__run_sums(p, memory, index);
    else if (w.rounds == 0) attn__run_blocks(p, memory, index);
    else if (phase % 2) attn__run_round(p, memory, phase / 2, index);
    else attn__run_merge(p, memory, phase / 2 - 1, index);
}

/* ---- planning; for size again */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#  pragma GCC optimize("Os")
#endif
static void attn__plan_bias(const attn_desc *d, const attn__shape *s, const attn_grad *g, attn__backward *w)
{
    const attn_out *o = &g->d_bias;
    const int64_t shape[4] = {s->batch, s->heads, s->queries, s->keys};
    int axis, summed[4];
    w->bias = ATTN__BIAS_NONE;
    w->cross = 0;
    if (!o->rank) return;
    (void)d;
    for (axis = 0; axis < 4; axis++) {
        const int from = axis - (4 - o->rank);
        summed[axis] = shape[axis] != 1 && (from < 0 || o->size[from] == 1);
    }
    if (o->size[o->rank - 1] == 1) w->bias = ATTN__BIAS_ROWS;
    else {
        w->bias = attn__adds(g, ATTN__G_d_bias) || summed[0] || summed[1] || summed[2] ? ATTN__BIAS_ADDED :
            ATTN__BIAS_STORED;
        w->cross = summed[0] || (summed[1] && s->heads_kv > 1);
    }
}

/* Which tasks there are: one per unit, a batch entry's key head, has each block's weights once (five products). With
   fewer units than workers: rounds (five products, one block after another); or cut among more tasks, some of which do
   dK and dV for a part of the keys and others dQ for a part of the queries (four and three products; additive, where
   both need all of it, five and five). What takes longest for its slowest worker tells. */
static void attn__plan_tasks(const attn_desc *d, const attn__shape *s, attn__backward *w)
{
    const int64_t workers = d->parallel.workers, units = attn__mul64(s->batch, s->heads_kv);
    const int64_t key_units = w->cross && units > 0 ? 1 : units;
    const int64_t key_blocks = attn__blocks(s->keys, ATTN_GRAD_KEYS);
    const int64_t whole = attn__mul64(attn__blocks(key_units, workers), 5 * workers);
    const int64_t cut = attn__mul64(units, d->score == ATTN_SCORE_ADDITIVE ? 10 : 7), least = whole < cut ? whole : cut;
    const int64_t work = attn__mul64(attn__mul64(s->queries, s->keys), attn__add64(w->size_u, s->size_v));
    const int both = w->does == (ATTN__DO_Q | ATTN__DO_K);
    w->key_parts = w->query_parts = w->rounds = 0;
    w->main_tasks = key_units;
    if (workers == 1 || units == 0 || attn__mul64(work, units) < ATTN__WORTH_CUTTING ||
        (!both && key_units >= 4 * workers)) return;
    w->slots = workers / units;
    if (w->slots > w->blocks) w->slots = w->blocks;
    if (both && w->slots > 1 && s->heads == s->heads_kv && !w->cross && w->bias != ATTN__BIAS_ADDED && key_blocks > 0) {
        w->rounds = attn__blocks(w->blocks, w->slots);
        if (w->rounds <= ATTN__MAX_ROUNDS && 5 * workers * w->rounds < least * w->blocks) {
            w->merge_parts = key_blocks < workers ? key_blocks : workers;
            w->main_tasks = units * w->blocks;
            return;
        }
        w->rounds = 0;
    }
    if (both && whole <= cut) return;
    if (w->does & ATTN__DO_K) w->key_parts = attn__blocks(4 * workers, key_units);
    if (w->does & ATTN__DO_Q) w->query_parts = attn__blocks(4 * workers, units);
    if (w->key_parts > key_blocks) w->key_parts = key_blocks > 0 ? key_blocks : 1;
    if (w->query_parts > w->blocks) w->query_parts = w->blocks > 0 ? w->blocks : 1;
    w->main_tasks = attn__add64(attn__mul64(key_units, w->key_parts), attn__mul64(units, w->query_parts));
}

ATTN__NOINLINE static attn_status attn__plan_gradients(const attn_desc *forward, const attn_grad *grad,
                                                       attn_plan *plan, int flags, attn_error *err)
{
    attn__shape s;
    attn__backward w;
    attn_desc *d;
    const attn__kernels *f;
    int64_t floats[ATTN__M_COUNT], bytes = 0, total;
    int i, phase = 0, below_q, below_k;
    attn__zero(&s, sizeof s);
    attn__zero(&w, sizeof w);
    ATTN__RULE(forward, ATTN_ERR_NULL, "forward", "must not be NULL");
    ATTN__RULE(grad, ATTN_ERR_NULL, "grad", "must not be NULL");
    ATTN__RULE(plan, ATTN_ERR_NULL, "plan", "must not be NULL");
    plan->desc = *forward;
    plan->grad = *grad;
    d = &plan->desc;
    ATTN__TRY(attn__resolve(d, &s, flags | ATTN__NO_RESULT_NEEDED, err));
    ATTN__TRY(attn__check_grad(d, &s, grad, flags, err));
    plan->out = attn_view_of(d->out);
    plan->stats = attn_view_of(d->stats);
    for (i = ATTN__F_out; i <= ATTN__F_scores_masked; i++)
        attn__zero((char *)d + attn__fields[i].offset, sizeof(attn_view));
    if (!grad->d_out.rank) attn__zero(&plan->out, sizeof plan->out);
    f = attn__table(d->isa);
    s.parts = 1;
    s.chunk_bytes = 0;

    w.is_backward = 1;
    w.rows = attn__mul64(attn__mul64(s.batch, s.heads), s.queries);
    w.blocks = attn__blocks(s.queries, ATTN_GRAD_QUERIES);
    w.tiles = attn__blocks(ATTN_GRAD_QUERIES, f->width * f->vecs);
    if (w.tiles > attn__blocks(s.queries, f->width)) w.tiles = attn__blocks(s.queries, f->width);
    attn__plan_bias(d, &s, grad, &w);
    below_q = grad->dq.rank || grad->d_bilinear.rank || grad->d_w_q.rank || grad->d_w_v.rank ||
              (grad->d_scale.rank && d->score != ATTN_SCORE_GIVEN);
    below_k = grad->dk.rank || grad->d_w_k.rank || grad->d_hidden_bias.rank;
    w.vectors = (below_q || below_k) && d->score != ATTN_SCORE_GIVEN && d->score != ATTN_SCORE_BOXCAR &&
                d->score != ATTN_SCORE_CONSTANT;
    w.size_u = !w.vectors ? 0 : d->score == ATTN_SCORE_ADDITIVE ? s.hidden : s.size_k;
    w.pad_u = d->score == ATTN_SCORE_ADDITIVE ? (w.vectors ? attn__round4(s.hidden) : 0) :
        attn__up(w.size_u, f->width);
    w.pad_k = w.vectors ? attn__up(s.size_k, f->width) : 0;
    w.pad_v = grad->d_out.rank || grad->dv.rank ? attn__up(s.size_v, f->width) : 0;
    w.vector_row = d->score == ATTN_SCORE_ADDITIVE ? 0 : attn__spread(w.pad_u);
    w.value_row = attn__spread(w.pad_v);
    w.every = w.bias == ATTN__BIAS_STORED || (grad->d_given_scores.rank &&
              !attn__adds(grad, ATTN__G_d_given_scores));
    if (below_q || grad->d_given_scores.rank || grad->d_sigma.rank || grad->d_scale.rank || grad->d_alibi.rank ||
        w.bias == ATTN__BIAS_ROWS) w.does |= ATTN__DO_Q;
    if (below_k || grad->dv.rank || w.bias > ATTN__BIAS_ROWS) w.does |= ATTN__DO_K;
    w.save_u = w.vectors && (grad->d_bilinear.rank || grad->d_w_q.rank);
    w.save_t = w.vectors && grad->d_w_v.rank;
    w.save_b = w.vectors && (grad->d_w_k.rank || grad->d_hidden_bias.rank);
    attn__plan_tasks(d, &s, &w);
    w.row_tasks = attn__add64(attn__mul64(attn__mul64(s.batch, s.heads), w.blocks),
                              w.bias == ATTN__BIAS_ADDED && !attn__adds(grad, ATTN__G_d_bias));
    if (w.does == 0) w.main_tasks = 0;
    for (i = ATTN__G_d_bias; i < ATTN__G_COUNT; i++) {
        attn__sum m;
        if (attn__grad_sum(plan, &s, &w, i, NULL, NULL, &m)) w.sum_tasks = attn__add64(w.sum_tasks,
                                                                                        attn__sum_tasks(f, &m));
    }
    w.rows_bytes = attn__bytes_of(attn__mul64(w.rows, ATTN__R_COUNT));
    w.left_bytes = attn__bytes_of(attn__mul64(w.size_u, attn__add64(attn__mul64(w.rows, w.save_u + w.save_t),
                   w.save_b ? attn__mul64(attn__mul64(s.batch, s.streams), s.keys) : 0)));
    attn__grad_memory(d, &s, &w, floats);
    for (i = 0; i < ATTN__M_COUNT; i++) bytes = attn__add64(bytes, attn__bytes_of(floats[i]));
    if (bytes < s.worker_bytes) bytes = s.worker_bytes;
    if (bytes < attn__sum_bytes(f)) bytes = attn__sum_bytes(f);
    bytes = attn__add64(bytes, ATTN__PASS_BYTES);
    w.worker_bytes = bytes;
    s.worker_bytes = bytes;                         /* for the keys, which the forward's code prepares */
    total = attn__add64(attn__mul64(bytes, d->parallel.workers), attn__add64(s.key_bytes,
                        attn__add64(w.rows_bytes, w.left_bytes)));
    ATTN__RULE(total < (int64_t)((size_t)-1 / 4), ATTN_ERR_OVERFLOW, "workspace",
               "must fit in memory: a size is too large");

    plan->isa = d->isa;
    attn__zero(plan->tasks, sizeof plan->tasks);
    if (s.key_blocks > 0) plan->tasks[phase++] = attn__mul64(attn__mul64(s.batch, s.streams), s.key_blocks);
    plan->tasks[phase++] = w.row_tasks;
    if (w.rounds == 0) plan->tasks[phase++] = w.main_tasks;
    for (i = 0; i < w.rounds; i++) {
        plan->tasks[phase++] = s.batch * s.heads * attn__round_blocks(&w, i);
        plan->tasks[phase++] = s.batch * s.heads * w.merge_parts;
    }
    if (w.sum_tasks > 0) plan->tasks[phase++] = w.sum_tasks;
    plan->phases = phase;
    plan->workspace_bytes = w.row_tasks || w.main_tasks || w.sum_tasks ? (size_t)(total + ATTN__ALIGN) : 0;
    if (plan->workspace_bytes == 0) plan->tasks[0] = 0;
    ATTN__COPY(plan->internal, &s, sizeof s);
    attn__zero(plan->backward, sizeof plan->backward);
    ATTN__COPY(plan->backward, &w, sizeof w);
#ifdef ATTN_CUDA
    attn__device_bytes(plan, flags);
#endif
    return attn__success(err);
}
static attn_status attn__plan_gradients_placed(const attn_desc *forward, const attn_grad *grad, attn_plan *plan,
                                               int flags, attn_error *err)
{
    const attn__fp_state saved = attn__fp_enter();
    const attn_status st = attn__plan_gradients(forward, grad, plan, flags, err);
    attn__fp_leave(saved);
    return st;
}
#ifdef ATTN_CUDA
static attn_status attn__find_grad_place(const attn_desc *d, const attn_grad *g, int *flags, attn_error *err)
{
    attn__place at = {ATTN__PLACE_HOST | ATTN__PLACE_DEVICE, 0};
    if (!d || !g) return ATTN_OK;
    ATTN__TRY(attn__see_fields(&at, d, attn__fields, ATTN__F_COUNT, err));
    ATTN__TRY(attn__see_fields(&at, g, attn__grad_fields, ATTN__G_COUNT, err));
    ATTN__TRY(attn__see_workspace(&at, d, err));
    *flags = attn__place_flags(&at, *flags);
    return ATTN_OK;
}
#endif
ATTN_DEF attn_status attn_plan_backward(const attn_desc *forward, const attn_grad *grad, attn_plan *plan,
                                        attn_error *err)
{
    int flags = ATTN__WITH_DATA | ATTN__AS_TASKS;
    ATTN__FIND_PLACE(attn__find_grad_place(forward, grad, &flags, err));
    ATTN__RULE(!(flags & ATTN__ON_DEVICE), ATTN_ERR_PLACE, "desc", "must have its arrays on the host: tasks run there");
    return attn__plan_gradients_placed(forward, grad, plan, flags, err);
}
ATTN_DEF attn_status attn_backward_workspace_size(const attn_desc *forward, const attn_grad *grad, size_t *bytes,
                                                  attn_error *err)
{
    attn_plan plan;
    int flags = 0;
    ATTN__RULE(bytes, ATTN_ERR_NULL, "bytes", "must not be NULL");
    ATTN__FIND_PLACE(attn__find_grad_place(forward, grad, &flags, err));
    ATTN__TRY(attn__plan_gradients_placed(forward, grad, &plan, flags, err));
    *bytes = plan.workspace_bytes;
    return ATTN_OK;
}
ATTN_DEF attn_status attn_backward(const attn_desc *forward, const attn_grad *grad, attn_error *err)
{
    attn_plan plan;
    attn__memory memory;
    attn_status st;
    int flags = ATTN__WITH_DATA;
    ATTN__FIND_PLACE(attn__find_grad_place(forward, grad, &flags, err));
    ATTN__TRY(attn__plan_gradients_placed(forward, grad, &plan, flags, err));
    ATTN__TRY(attn__acquire(forward, plan.workspace_bytes, flags, &memory, err));
    st = attn__run_plan(&plan, memory.block, err);
    attn__release(forward, &memory);
    return st;
}
ATTN_DEF size_t attn_explain_backward(const attn_desc *forward, const attn_grad *grad, char *text, size_t size)
{
    attn_plan plan;
    attn_error err;
    attn__backward w;
    attn__text t;
    attn_status st = ATTN_OK;
    int flags = 0;
#ifdef ATTN_CUDA
    st = attn__find_grad_place(forward, grad, &flags, &err);
#endif
    if (st == ATTN_OK) st = attn__plan_gradients_placed(forward, grad, &plan, flags, &err);
    t.at = text;
    t.size = text ? size : 0;
    t.length = 0;
    if (st != ATTN_OK) {
        attn__put(&t, "refused: ");
        attn__put_error(&t, &err);
        return attn__end_text(&t);
    }
    ATTN__COPY(&w, plan.backward, sizeof w);
    attn__put(&t, "gradients of ");
    attn__put(&t, attn_score_string((attn_score)plan.desc.score));
#ifdef ATTN_CUDA
    if (attn__on_device(&plan)) {
        attn__put(&t, " attention");
        return attn__end_on_device(&t, &plan);
    }
#endif
    attn__put(&t, " attention; kernels ");
    attn__put(&t, attn_isa_string((attn_isa)plan.isa));
    attn__put(&t, ", blocks of ");
    attn__put_number(&t, ATTN_GRAD_QUERIES);
    attn__put(&t, " queries x ");
    attn__put_number(&t, ATTN_GRAD_KEYS);
    attn__put(&t, plan.stats.rank ? " keys, statistics given, " : " keys, statistics computed again, ");
    attn__put_number(&t, w.row_tasks);
    attn__put(&t, " tasks for the rows, then ");
    attn__put_number(&t, w.main_tasks);
    attn__put(&t, w.rounds ? " tasks for blocks of queries, a few at a time" : w.key_parts + w.query_parts == 0 ?
              " tasks for all products" : " tasks for parts of keys or queries");
    if (w.sum_tasks > 0) {
        attn__put(&t, ", then ");
        attn__put_number(&t, w.sum_tasks);
        attn__put(&t, " tasks for parameters");
    }
    attn__put(&t, "; workspace ");
    attn__put_number(&t, (int64_t)plan.workspace_bytes);
    attn__put(&t, " bytes for ");
    attn__put_number(&t, plan.desc.parallel.workers);
    attn__put(&t, plan.desc.parallel.workers == 1 ? " worker" : " workers");
    return attn__end_text(&t);
}

/* ---- the pieces: matrix products and sums over rows, run one after another */
typedef struct attn__sum_job { const attn__kernels *f; const attn__sum *m; char *memory; } attn__sum_job;
static void attn__sum_task(void *arg, int64_t index, int32_t worker)
{
    const attn__sum_job *job = (const attn__sum_job *)arg;
    const attn__fp_state saved = attn__fp_enter();
    attn__sum_tile(job->f, job->m, index, (float *)(void *)(job->memory + worker * attn__sum_bytes(job->f)));
    attn__fp_leave(saved);
}
static int32_t attn__isa_of(const attn_desc *d) { return d->isa ? d->isa : (int32_t)attn_best_isa(); }

static attn_status attn__sum_run(const attn__sum *m, const attn_desc *d, int flags, void *memory, attn_error *err)
{
    const attn_parallel *parallel = &d->parallel;
    attn__sum_job job;
    int64_t i, n;
#ifdef ATTN_CUDA
    if (flags & ATTN__ON_DEVICE)
        return attn__cuda_sum(m->a.data || !attn__elements(&m->a) ? &m->a : NULL, &m->b, &m->out, m->batch, m->adds,
                              m->skip, 0, d->stream, err);
#endif
    (void)flags;
    (void)err;
    job.f = attn__table(attn__isa_of(d));
    job.m = m;
    job.memory = attn__align(memory);
    n = attn__sum_tasks(job.f, m);
    if (parallel->run && n > 1) parallel->run(parallel->user, n, attn__sum_task, &job);
    else for (i = 0; i < n; i++) attn__sum_task(&job, i, 0);
    return ATTN_OK;
}
/* out (+)= a b, rank 4; `adds` to what is there, skip as in attn__sum */
static attn__sum attn__sum_of(attn_view a, attn_view b, attn_out out, int adds, int skip)
{
    attn__sum m;
    int axis;
    m.a = a;
    m.b = b;
    m.out = out;
    for (axis = 0; axis < 2; axis++) m.batch[axis] = a.size[axis] == 1 ? b.size[axis] : a.size[axis];
    m.b_shares = 1;
    m.scale = 1.0f;
    m.adds = adds;
    m.skip = skip;
    m.cover = NULL;
    m.shape = NULL;
    return m;
}
static int64_t attn__sum_memory(const attn_desc *d, int flags)
{
    if (flags & ATTN__ON_DEVICE) return 0;
    return attn__add64(attn__mul64(attn__sum_bytes(attn__table(attn__isa_of(d))),
                                   d->parallel.workers ? d->parallel.workers : 1), ATTN__ALIGN);
}

static attn_status attn__softmax_gradient(attn_view x, attn_view d_out, attn_out dx, const attn_desc *options,
                                          size_t *bytes, attn_error *err)
{
    static const attn__names names_x = ATTN__NAMES("x"), names_d_out = ATTN__NAMES("d_out"),
                             names_dx = ATTN__NAMES("dx");
    const attn_view out = attn_view_of(dx);
    attn_desc d = attn__options(options);
    attn_grad g;
    attn_status st;
    attn__zero(&g, sizeof g);
    ATTN__RULE(x.rank, ATTN_ERR_NULL, "x", "must be given");
    ATTN__RULE(d_out.rank, ATTN_ERR_NULL, "d_out", "must be given");
    ATTN__RULE(dx.rank, ATTN_ERR_NULL, "dx", "must be given");
    if (d_out.rank != x.rank)
        return attn__fail2(err, ATTN_ERR_RANK, "d_out.rank", "must equal x.rank", d_out.rank, x.rank);
    if (dx.rank != x.rank) return attn__fail2(err, ATTN_ERR_RANK, "dx.rank", "must equal x.rank", dx.rank, x.rank);
    if (x.rank == 3 && d.mask.rank == 3) d.mask = attn__as_rank4(d.mask);
    if (x.rank == 3 && d.bias.rank == 3) d.bias = attn__as_rank4(d.bias);
    d.score = ATTN_SCORE_GIVEN;
    d.given_scores = attn__as_rank4(x);
    g.d_weights = attn__as_rank4(d_out);
    g.d_given_scores = attn__out(dx.data, attn__as_rank4(out));
    st = bytes ? attn_backward_workspace_size(&d, &g, bytes, err) : attn_backward(&d, &g, err);
    attn__rename(err, st, &attn__fields[ATTN__F_given_scores].names, &names_x, x.rank);
    if (x.rank == 3 && options && options->mask.rank == 3)
        attn__rename(err, st, &attn__fields[ATTN__F_mask].names, &attn__fields[ATTN__F_mask].names, 3);
    if (x.rank == 3 && options && options->bias.rank == 3)
        attn__rename(err, st, &attn__fields[ATTN__F_bias].names, &attn__fields[ATTN__F_bias].names, 3);
    attn__rename(err, st, &attn__grad_fields[ATTN__G_d_weights].names, &names_d_out, x.rank);
    return attn__rename(err, st, &attn__grad_fields[ATTN__G_d_given_scores].names, &names_dx, x.rank);
}
ATTN_DEF attn_status attn_softmax_backward(attn_view x, attn_view d_out, attn_out dx, const attn_desc *options,
                                           attn_error *err)
{
    return attn__softmax_gradient(x, d_out, dx, options, NULL, err);
}
ATTN_DEF attn_status attn_softmax_backward_workspace_size(attn_view x, attn_view d_out, attn_out dx,
                                                          const attn_desc *options, size_t *bytes, attn_error *err)
{
    ATTN__RULE(bytes, ATTN_ERR_NULL, "bytes", "must not be NULL");
    return attn__softmax_gradient(x, d_out, dx, options, bytes, err);
}

static attn_status attn__bmm_gradient(const attn_view *v, const attn_desc *options, int flags, attn__sum *sums,
                                      attn_error *err)
{
    static const attn__field fields[5] = {{0, 0, ATTN__TAKES_F32, 2, 4, ATTN__NAMES("a")},
        {0, 0, ATTN__TAKES_F32, 2, 4, ATTN__NAMES("b")}, {0, 0, ATTN__TAKES_F32, 2, 4, ATTN__NAMES("d_out")},
        {0, 1, ATTN__TAKES_F32, 2, 4, ATTN__NAMES("da")}, {0, 1, ATTN__TAKES_F32, 2, 4, ATTN__NAMES("db")}};
    attn_view r[5];
    int i, j, axis;
    for (i = 0; i < 5; i++) {
        ATTN__RULE(v[i].rank || i > 2, ATTN_ERR_NULL, fields[i].names.view, "must be given");
        ATTN__TRY(attn__check_view(&v[i], &fields[i], flags, err));
        if (v[i].rank) r[i] = attn__batch_rank4(v[i]);
    }
    ATTN__RULE(v[3].rank || v[4].rank, ATTN_ERR_NULL, "da", "must be given, or db");
    ATTN__TRY(attn__check_size(&v[1], &fields[1].names, v[1].rank - 2, r[0].size[3], "must equal the last size of a",
                               err));
    ATTN__TRY(attn__check_size(&v[2], &fields[2].names, v[2].rank - 2, r[0].size[2], "must equal the rows of a", err));
    ATTN__TRY(attn__check_size(&v[2], &fields[2].names, v[2].rank - 1, r[1].size[3], "must equal the columns of b",
                               err));
    for (axis = 0; axis < 2; axis++) {
        const int64_t n = r[0].size[axis] == 1 ? r[1].size[axis] : r[0].size[axis];
        const int at = axis - (4 - v[2].rank);
        if (r[1].size[axis] != 1 && r[1].size[axis] != n)
            return attn__fail2(err, ATTN_ERR_SIZE, fields[1].names.size[axis - (4 - v[1].rank)],
                               "must broadcast with a: be 1 or", r[1].size[axis], n);
        if (r[2].size[axis] != n)
            return attn__fail2(err, ATTN_ERR_SIZE, at < 0 ? "d_out.rank" : fields[2].names.size[at],
                               "must have the broadcast batch of a and b", r[2].size[axis], n);
    }
    for (i = 3; i < 5; i++) {
        if (!v[i].rank) continue;
        if (v[i].rank != v[i - 3].rank)
            return attn__fail2(err, ATTN_ERR_RANK, fields[i].names.rank, "must be that of what it belongs to",
                               v[i].rank, v[i - 3].rank);
        for (axis = 0; axis < v[i].rank; axis++)
            ATTN__TRY(attn__check_size(&v[i], &fields[i].names, axis, v[i - 3].size[axis],
                                       "must be that of what it belongs to", err));
        for (j = 0; (flags & ATTN__WITH_DATA) && j < 5; j++)
            ATTN__RULE(!v[j].rank || j == i || (j == 3 && i == 4) || attn__disjoint(&v[i], &v[j]), ATTN_ERR_OVERLAP,
                       fields[i].names.view, j < 3 ? "must not overlap an input" : "must not overlap another output");
    }
    ATTN__TRY(attn__check_options(options, err));
    if (v[3].rank) sums[0] = attn__sum_of(r[2], attn__swapped(r[1]),
                                           attn__out((void *)(uintptr_t)v[3].data, r[3]), 0, 0);
    if (v[4].rank) sums[1] = attn__sum_of(attn__swapped(r[0]), r[2],
                                           attn__out((void *)(uintptr_t)v[4].data, r[4]), 0, 0);
    return ATTN_OK;
}
ATTN_DEF attn_status attn_bmm_backward(attn_view a, attn_view b, attn_view d_out, attn_out da, attn_out db,
                                       uint32_t accumulate, const attn_desc *options, attn_error *err)
{
    const attn_desc d = attn__options(options);
    attn__memory memory;
    attn__sum sums[2];
    attn_view v[5];
    attn_status st = ATTN_OK;
    int i, flags = ATTN__WITH_DATA;
    v[0] = a;
    v[1] = b;
    v[2] = d_out;
    v[3] = attn_view_of(da);
    v[4] = attn_view_of(db);
    ATTN__FIND_PLACE(attn__bmm_find_place(v, 5, &d, &flags, err));
    ATTN__TRY(attn__bmm_gradient(v, &d, flags, sums, err));
    ATTN__RULE(accumulate <= 3, ATTN_ERR_OPTION, "accumulate", "must be 1 for da, 2 for db, or both");
    ATTN__TRY(attn__acquire(&d, (size_t)attn__sum_memory(&d, flags), flags, &memory, err));
    for (i = 0; i < 2 && st == ATTN_OK; i++) {
        if (!v[3 + i].rank) continue;
        sums[i].adds = (int)(accumulate >> i & 1u);
        st = attn__sum_run(&sums[i], &d, flags, memory.block, err);
    }
    attn__release(&d, &memory);
    return st == ATTN_OK ? attn__success(err) : st;
}
ATTN_DEF attn_status attn_bmm_backward_workspace_size(attn_view a, attn_view b, attn_view d_out, attn_out da,
                                                      attn_out db, const attn_desc *options, size_t *bytes,
                                                      attn_error *err)
{
    const attn_desc d = attn__options(options);
    attn__sum sums[2];
    attn_view v[5];
    int flags = 0;
    ATTN__RULE(bytes, ATTN_ERR_NULL, "bytes", "must not be NULL");
    v[0] = a;
    v[1] = b;
    v[2] = d_out;
    v[3] = attn_view_of(da);
    v[4] = attn_view_of(db);
    ATTN__FIND_PLACE(attn__bmm_find_place(v, 5, &d, &flags, err));
    ATTN__TRY(attn__bmm_gradient(v, &d, flags, sums, err));
    *bytes = (size_t)attn__sum_memory(&d, flags);
    return attn__success(err);
}

/* ---- multi-head attention: projections and attention again, then its gradients between those of the products */
enum { ATTN__H_D_OUT, ATTN__H_DQUERY, ATTN__H_DKEY, ATTN__H_DVALUE, ATTN__H_DW_QUERY, ATTN__H_DW_KEY,
       ATTN__H_DW_VALUE, ATTN__H_DW_RESULT, ATTN__H_DB_QUERY, ATTN__H_DB_KEY, ATTN__H_DB_VALUE, ATTN__H_DB_RESULT,
       ATTN__H_COUNT };
static const attn__field attn__mha_fields[ATTN__H_COUNT] = {
#define ATTN__X(f, output, rank) {offsetof(attn_mha_grad, f), output, ATTN__TAKES_F32, rank, rank, ATTN__NAMES(#f)},
    ATTN__X(d_out, 0, 3) ATTN__X(dquery, 1, 3) ATTN__X(dkey, 1, 3) ATTN__X(dvalue, 1, 3)
    ATTN__X(dw_query, 1, 2) ATTN__X(dw_key, 1, 2) ATTN__X(dw_value, 1, 2) ATTN__X(dw_result, 1, 2)
    ATTN__X(db_query, 1, 1) ATTN__X(db_key, 1, 1) ATTN__X(db_value, 1, 1) ATTN__X(db_result, 1, 1)
#undef ATTN__X
};

typedef struct attn__mha_gradient {
    attn__mha m;                /* the forward; its plan first of the attention, then of its gradients */
    attn_grad grad;
    float    *d_heads, *d_projected[3];
    int64_t   own_bytes, inner_bytes;
} attn__mha_gradient;
#define ATTN__HEADS_BYTES ((int64_t)(sizeof(attn__mha_gradient) + ATTN__ALIGN - 1) / ATTN__ALIGN * ATTN__ALIGN)

static attn_view attn__mha_at(const attn_mha_grad *grad, int field)
{
    attn_view v;
    ATTN__COPY(&v, (const char *)grad + attn__mha_fields[field].offset, sizeof v);
    return v;
}
/* What a gradient belongs to: the fields of attn_mha_desc lie in the order of attn_mha_grad's, only out is last. */
static attn_view attn__mha_like(const attn_mha_desc *desc, int field)
{
    attn_view v;
    ATTN__COPY(&v, field ? (const char *)&desc->query + (size_t)(field - 1) * sizeof v : (const char *)&desc->out,
               sizeof v);
    return v;
}
/* What is projected: the query, the key or what stands in for it, the value likewise. */
static attn_view attn__mha_input(const attn_mha_desc *desc, int which)
{
    return which == 0 || (which == 1 && !desc->key.rank) || (!desc->value.rank && !desc->key.rank) ? desc->query :
        which == 1 || !desc->value.rank ? desc->key : desc->value;
}
static attn_view attn__mha_weights(const attn_mha_desc *desc, int which)
{
    return which == 0 ? desc->w_query : which == 1 ? desc->w_key : which == 2 ? desc->w_value : desc->w_result;
}

/* A gradient against what it belongs to and everything else. */
ATTN__NOINLINE static attn_status attn__mha_check(const attn_mha_desc *desc, const attn_mha_grad *grad, int flags,
                                                  attn_error *err)
{
    const int need = flags & ATTN__WITH_DATA;
    int i, j, axis, any = 0;
    for (i = 0; i < ATTN__H_COUNT; i++) {
        const attn__field *f = &attn__mha_fields[i];
        const attn_view g = attn__mha_at(grad, i), like = attn__mha_like(desc, i);
        if (!g.rank) continue;
        ATTN__TRY(attn__check_view(&g, f, flags, err));
        ATTN__RULE(like.rank, ATTN_ERR_OPTION, f->names.view, "must be absent where what it belongs to is");
        for (axis = 0; axis < like.rank; axis++)
            ATTN__TRY(attn__check_size(&g, &f->names, axis, like.size[axis],
                                       "must be that of what it belongs to", err));
        any |= i > 0;
    }
    ATTN__RULE(grad->d_out.rank, ATTN_ERR_NULL, "d_out", "must be given");
    ATTN__RULE(any || grad->attention, ATTN_ERR_NULL, "dquery", "must be given, or another result");
    ATTN__RULE(grad->accumulate < 1u << 11, ATTN_ERR_OPTION, "accumulate", "must be bits 0 to 10");
    ATTN__RULE(grad->reserved == 0, ATTN_ERR_OPTION, "reserved", "must be 0");
    for (i = 1; need && i < ATTN__H_COUNT; i++) {
        const char *name = attn__mha_fields[i].names.view;
        const attn_view o = attn__mha_at(grad, i);
        for (j = 0; o.rank && j < ATTN__H_COUNT; j++) {
            const attn_view like = attn__mha_like(desc, j), g = attn__mha_at(grad, j);
            ATTN__RULE(j == 0 || !like.rank || attn__disjoint(&o, &like), ATTN_ERR_OVERLAP, name,
                       "must not overlap an input");
            ATTN__RULE((j > 0 && j <= i) || !g.rank || attn__disjoint(&o, &g), ATTN_ERR_OVERLAP, name,
                       j ? "must not overlap another output" : "must not overlap an input");
        }
        for (j = 0; o.rank && grad->attention && j < ATTN__G_COUNT; j++) {
            const attn_view other = attn__grad_at(grad->attention, j);
            if (j == ATTN__G_d_out || (j >= ATTN__G_dq && j <= ATTN__G_dv)) continue;
            ATTN__RULE(!other.rank || attn__disjoint(&o, &other), ATTN_ERR_OVERLAP, name, j < ATTN__G_dq ?
                       "must not overlap an input" : "must not overlap another output");
        }
        for (j = ATTN__F_sigma_per_head; o.rank && desc->attention && j < ATTN__F_COUNT; j++) {
            const attn_view in = attn__view_at(desc->attention, j);
            ATTN__RULE(!in.rank || attn__disjoint(&o, &in), ATTN_ERR_OVERLAP, name, "must not overlap an input");
        }
    }
    for (i = ATTN__G_d_given_scores; need && grad->attention && i < ATTN__G_COUNT; i++) {   /* the attention's own */
        const attn_view o = attn__grad_at(grad->attention, i);
        for (j = 0; o.rank && j < ATTN__H_COUNT; j++) {
            const attn_view in = j ? attn__mha_like(desc, j) : grad->d_out;
            ATTN__RULE(!in.rank || attn__disjoint(&o, &in), ATTN_ERR_OVERLAP, attn__grad_fields[i].names.view,
                       "must not overlap an input");
        }
    }
    return ATTN_OK;
}

#ifdef ATTN_CUDA
static attn_status attn__mha_grad_place(const attn_mha_grad *grad, const attn__mha *m, attn_error *err)
{
    attn__place at;
    at.where = m->flags & ATTN__ON_DEVICE ? ATTN__PLACE_DEVICE : m->flags & ATTN__ANYWHERE ?
        ATTN__PLACE_HOST | ATTN__PLACE_DEVICE : ATTN__PLACE_HOST;
    at.seen = 1;
    ATTN__TRY(attn__see_fields(&at, grad, attn__mha_fields, ATTN__H_COUNT, err));
    if (!grad->attention) return ATTN_OK;
    return attn__see_fields(&at, grad->attention, attn__grad_fields, ATTN__G_COUNT, err);
}
#endif

static attn_status attn__mha_gradient_resolve(const attn_mha_desc *desc, const attn_mha_grad *grad, float *base,
                                              attn__mha_gradient *a, attn_error *err)
{
    attn_desc *d = &a->m.attention;
    attn_view d_heads;
    int64_t floats, heads_floats, rows, least;
    int i, p;
    ATTN__RULE(grad, ATTN_ERR_NULL, "grad", "must not be NULL");
    ATTN__TRY(attn__mha_resolve(desc, base, &a->m, err));
    ATTN__FIND_PLACE(attn__mha_grad_place(grad, &a->m, err));
    ATTN__TRY(attn__mha_check(desc, grad, a->m.flags, err));
    for (p = ATTN__F_lse; p <= ATTN__F_scores_masked; p++)
        attn__zero((char *)d + attn__fields[p].offset, sizeof(attn_view));
    rows = attn__mul64(attn__mul64(d->q.size[0], d->q.size[1]), d->q.size[2]);
    heads_floats = attn__mul64(rows, d->v.size[3]);
    /* behind q, k, v: the heads' outputs, the row statistics, d_out of the heads, dq, dk, dv */
    floats = attn__add64(attn__add64(a->m.floats[0], a->m.floats[1]), a->m.floats[2]);
    d->out = attn_out_bshd(base ? base + floats : NULL, d->q.size[0], d->q.size[2], d->q.size[1], d->v.size[3]);
    floats = attn__add64(floats, heads_floats);
    d->stats = attn_out_f32(base ? base + floats : NULL, 4, d->q.size[0], d->q.size[1], d->q.size[2], 2);
    floats = attn__add64(floats, attn__mul64(rows, 2));
    a->d_heads = base ? base + floats : NULL;
    floats = attn__add64(floats, heads_floats);
    for (i = 0; i < 3; i++) {
        a->d_projected[i] = base ? base + floats : NULL;
        floats = attn__add64(floats, a->m.floats[i]);
    }
    a->own_bytes = attn__bytes_of(floats);
    ATTN__RULE(a->own_bytes < (int64_t)((size_t)-1 / 8), ATTN_ERR_OVERFLOW, "query",
               "must leave a workspace that fits in memory");
    d_heads = attn_view_bshd(a->d_heads, d->q.size[0], d->q.size[2], d->q.size[1], d->v.size[3]);
    if (!desc->w_result.rank) {                     /* the heads side by side: d_out is their gradient as it is */
        d_heads.data = grad->d_out.data;
        d_heads.type = grad->d_out.type;
        d_heads.stride[0] = grad->d_out.stride[0];
        d_heads.stride[1] = attn__heads_apart(grad->d_out.stride[2], d->v.size[3]);
        d_heads.stride[2] = grad->d_out.stride[1];
        d_heads.stride[3] = grad->d_out.stride[2];
    }
    attn__zero(&a->grad, sizeof a->grad);
    if (grad->attention) a->grad = *grad->attention;
    a->grad.d_out = d_heads;
    a->grad.dq = attn_out_bshd(a->d_projected[0], d->q.size[0], d->q.size[2], d->q.size[1], d->q.size[3]);
    a->grad.dk = attn_out_bshd(a->d_projected[1], d->k.size[0], d->k.size[2], d->k.size[1], d->k.size[3]);
    a->grad.dv = attn_out_bshd(a->d_projected[2], d->v.size[0], d->v.size[2], d->v.size[1], d->v.size[3]);
    a->grad.accumulate &= ~7u;
    ATTN__TRY(attn__plan_gradients_placed(d, &a->grad, &a->m.plan, a->m.flags, err));
    a->inner_bytes = (int64_t)a->m.plan.workspace_bytes;
    ATTN__TRY(attn__plan_placed(d, &a->m.plan, a->m.flags, err));
    least = (int64_t)a->m.plan.workspace_bytes;
    a->inner_bytes = least > a->inner_bytes ? least : a->inner_bytes;
    for (i = 0; i < 3; i++) {
        least = (int64_t)attn__bmm_workspace(&a->m.product[i], d);
        a->inner_bytes = least > a->inner_bytes ? least : a->inner_bytes;
    }
    least = attn__sum_memory(d, a->m.flags);
    a->inner_bytes = least > a->inner_bytes ? least : a->inner_bytes;
    return ATTN_OK;
}

/* [B,S,E] as [B,1,S,E]; [r,c] as [1,1,r,c]; [n] as [1,1,1,n] */
static attn_view attn__mha_rank4(attn_view v)
{
    attn_view r = attn__batch_rank4(v);
    if (v.rank != 3) return r;
    r.size[0] = v.size[0];
    r.stride[0] = v.stride[0];
    r.size[1] = 1;
    r.stride[1] = 0;
    return r;
}
/* a gradient g (+)= a b */
static attn_status attn__mha_sum(const attn__mha_gradient *a, const attn_mha_grad *grad, int field, attn_view x,
                                 attn_view y, int again, int skip, void *inner, attn_error *err)
{
    const attn_view g = attn__mha_at(grad, field);
    const int adds = again || (grad->accumulate >> (field - 1) & 1u);
    attn__sum m;
    if (!g.rank) return ATTN_OK;
    m = attn__sum_of(x, y, attn__out((void *)(uintptr_t)g.data, attn__mha_rank4(g)), adds, skip);
    return attn__sum_run(&m, &a->m.attention, a->m.flags, inner, err);
}

static attn_status attn__mha_gradient_run(attn__mha_gradient *a, const attn_mha_desc *desc, const attn_mha_grad *grad,
                                          void *inner, attn_error *err)
{
    static const float one = 1.0f;
    const attn_desc *d = &a->m.attention;
    const int64_t batch = d->q.size[0], *heads = d->out.size;
    const attn_view above = attn__mha_rank4(grad->d_out);
    attn_view ones = attn__packed(&one, 1, 1, 1, 0), of_heads, projected;
    int i, field, to_query = 0, to_key = 0;
    ones.stride[0] = ones.stride[1] = ones.stride[2] = ones.stride[3] = 0;
    if (a->m.flags & ATTN__ON_DEVICE) ones.data = NULL;     /* the device knows what is meant */
    for (i = 0; i < 3; i++) {
        ATTN__TRY(attn__bmm_run(&a->m.product[i], inner, d, err));
        ATTN__TRY(attn__mha_add_bias(&a->m, i, err));
    }
    ATTN__TRY(attn__run_plan(&a->m.plan, inner, err));
    if (desc->w_result.rank) {
        attn__sum m;
        of_heads = attn__packed((const float *)d->out.data, batch, 1, heads[2], heads[1] * heads[3]);
        ATTN__TRY(attn__mha_sum(a, grad, ATTN__H_DW_RESULT, attn__swapped(above), of_heads, 0, 0, inner, err));
        ones.size[3] = heads[2];
        ATTN__TRY(attn__mha_sum(a, grad, ATTN__H_DB_RESULT, ones, above, 0, 0, inner, err));
        of_heads.data = a->d_heads;
        m = attn__sum_of(above, attn__mha_rank4(desc->w_result), attn__out(a->d_heads, of_heads), 0, 0);
        ATTN__TRY(attn__sum_run(&m, d, a->m.flags, inner, err));
    }
    ATTN__TRY(attn__plan_gradients_placed(d, &a->grad, &a->m.plan, a->m.flags, err));
    ATTN__TRY(attn__run_plan(&a->m.plan, inner, err));
    for (i = 0; i < 3; i++) {
        const attn_view x = attn__mha_input(desc, i), w = attn__mha_weights(desc, i);
        projected = attn__packed(a->d_projected[i], batch, 1, x.size[1], w.size[0]);
        ATTN__TRY(attn__mha_sum(a, grad, ATTN__H_DW_QUERY + i, attn__swapped(projected), attn__mha_rank4(x), 0, 2,
                                inner, err));
        ones.size[3] = x.size[1];
        ATTN__TRY(attn__mha_sum(a, grad, ATTN__H_DB_QUERY + i, ones, projected, 0, 0, inner, err));
        field = i == 2 && !desc->value.rank ? ATTN__H_DKEY : ATTN__H_DQUERY + i;
        if (field == ATTN__H_DKEY && !desc->key.rank) field = ATTN__H_DQUERY;
        ATTN__TRY(attn__mha_sum(a, grad, field, projected, attn__mha_rank4(w), field == ATTN__H_DQUERY ? to_query :
                      field == ATTN__H_DKEY ? to_key : 0, 0, inner, err));
        to_query |= field == ATTN__H_DQUERY;
        to_key |= field == ATTN__H_DKEY;
    }
    return ATTN_OK;
}

ATTN__NOINLINE static attn_status attn__mha_gradient_bytes(const attn_mha_desc *desc, const attn_mha_grad *grad,
                                                           size_t *bytes, attn_error *err)
{
    attn__mha_gradient a;
    ATTN__TRY(attn__mha_gradient_resolve(desc, grad, NULL, &a, err));
    *bytes = (size_t)(ATTN__HEADS_BYTES + a.own_bytes + a.inner_bytes + 2 * ATTN__ALIGN);
    return attn__success(err);
}
ATTN_DEF attn_status attn_mha_backward_workspace_size(const attn_mha_desc *desc, const attn_mha_grad *grad,
                                                      size_t *bytes, attn_error *err)
{
    ATTN__RULE(bytes, ATTN_ERR_NULL, "bytes", "must not be NULL");
    return attn__mha_gradient_bytes(desc, grad, bytes, err);
}
ATTN__NOINLINE static attn_status attn__mha_gradient_within(const attn_mha_desc *desc, const attn_mha_grad *grad,
                                                            size_t bytes, attn_error *err)
{
    attn_desc d = attn__options(desc->attention);
    attn__mha_gradient *a;
#ifdef ATTN_CUDA
    attn__mha_gradient on_host;
#endif
    int flags = ATTN__WITH_DATA;
    attn__memory memory;
    attn_status st;
    char *base;
    ATTN__FIND_PLACE(attn__mha_find_place(desc, &flags, err));
    d.q.data = desc->query.data;                    /* tells the device */
    ATTN__TRY(attn__acquire(&d, bytes, flags, &memory, err));
    base = attn__align(memory.block);
    a = (attn__mha_gradient *)(void *)base;         /* too big for a small stack */
#ifdef ATTN_CUDA
    if (flags & ATTN__ON_DEVICE) a = &on_host;      /* that memory is the device's */
#endif
    base += ATTN__HEADS_BYTES;
    st = attn__mha_gradient_resolve(desc, grad, (float *)(void *)base, a, err);
    if (st == ATTN_OK) st = attn__mha_gradient_run(a, desc, grad, base + a->own_bytes, err);
    if (st == ATTN_OK) attn__success(err);
    attn__release(&d, &memory);
    return st;
}
ATTN_DEF attn_status attn_mha_backward(const attn_mha_desc *desc, const attn_mha_grad *grad, attn_error *err)
{
    size_t bytes;
    ATTN__TRY(attn__mha_gradient_bytes(desc, grad, &bytes, err));
    return attn__mha_gradient_within(desc, grad, bytes, err);
}
#endif /* ATTN_NO_BACKWARD */

/* ---- small things */
ATTN_DEF attn_status attn_elementary(int32_t function, const float *x, float *y, int64_t n, attn_isa isa)
{
    const attn__kernels *f;
    attn__fp_state saved;
    int64_t i;
    if (function < 0 || function > 2 || (int)isa < 0 || isa >= ATTN_ISA_COUNT) return ATTN_ERR_OPTION;
    if (n < 0) return ATTN_ERR_SIZE;
    if (n > 0 && (!x || !y)) return ATTN_ERR_NULL;
    if (isa != ATTN_ISA_AUTO && !attn__cpu_has(isa)) return ATTN_ERR_ISA;
#ifdef ATTN_CUDA
    if (n > 0 && (!attn__is_on_host(x) || !attn__is_on_host(y))) return ATTN_ERR_PLACE;
#endif
    f = attn__table((int32_t)(isa == ATTN_ISA_AUTO ? attn_best_isa() : isa));
    saved = attn__fp_enter();
    f->elementary(function, x, y, n);
    attn__fp_leave(saved);
    for (i = 0; i < n; i++) y[i] = attn__quiet(y[i]);
    return ATTN_OK;
}

/* ----------------------------------------------------------------------------------------------------- >>heatmap */
#ifndef ATTN_NO_HEATMAP
/* A picture is made in three steps: attn__pic_open checks everything and finds the range of the colours,
   attn__pic_layout says where things stand (for SVG and PPM, in whole pixels), and the public functions at the end walk
   over panels and cells. All bytes leave through attn__pic_byte. */

enum {
    ATTN__PIC_POINTS = 7,           /* control points of a colour map */
    ATTN__PIC_NAN    = 0xFF00FF,
    ATTN__PIC_LABEL  = 32,          /* columns of a label; a longer one is cut */
    ATTN__PIC_STAIRS = 48,          /* most column labels on lines of their own in a terminal */
    ATTN__PIC_CELLS  = 65536,       /* most rows, and columns, of all panels together */
    ATTN__PIC_PIXELS = 32767,       /* largest width and height to ask for */
    ATTN__PIC_CHAR   = 7,           /* width of a character of the 12 pixel font, generously */
    ATTN__PIC_PAD    = 12,          /* empty margin */
    ATTN__PIC_BAR    = 14,          /* width of the colour bar */
    ATTN__PIC_NUMBER = 32           /* bytes that hold any formatted number */
};

typedef enum attn__pic_kind { ATTN__PIC_ANSI, ATTN__PIC_SVG, ATTN__PIC_PPM } attn__pic_kind;

typedef struct attn__pic {
    const attn_heatmap *map;
    attn__fp_state caller;
    attn_writer    to;
    attn__pic_kind kind;
    int      failed, plain;         /* the writer reported a failure; a terminal without colours */
    int      has_nan, turned;       /* turned: column labels are slanted */
    int      tick_e10, number_e10;  /* powers of ten of the ticks of the colour bar and of numbers in cells */
    int64_t  tick_first, tick_last, tick_unit;      /* ticks at k*tick_unit*10^tick_e10, first <= k <= last */
    int64_t  number_len;            /* columns of the longest number in a cell, 0 = none wanted */
    double   low, high;             /* range of the colours, low < high */
    int64_t  size[4], stride[4];    /* panel rows, panel columns, rows, columns */
    int64_t  label_len[2], step[2]; /* of row and column labels: columns of the longest; one at every step-th cell */
    int64_t  gutter, field, panel;  /* terminal: columns of the row labels, of a cell, of a panel */
    int64_t  origin[2], extent[2];  /* pixels, vertically [0] and horizontally [1]: first panel, size of a panel, */
    int64_t  pitch[2], grid[2], total[2];           /* distance between panels, size of all panels, of the picture */
    int64_t  names, bar_x, bar_h;   /* pixels: height of what is written along the columns; the colour bar */
    size_t   used;
    char     bytes[512];
} attn__pic;

/* ---- bytes and numbers */

static int64_t attn__pic_max(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t attn__pic_min(int64_t a, int64_t b) { return a < b ? a : b; }

static void attn__pic_flush(attn__pic *p)
{
    if (p->used != 0 && !p->failed) {
        attn__fp_leave(p->caller);                  /* the writer is the caller's code */
        p->failed = p->to.write(p->to.user, p->bytes, p->used) != 0;
        p->caller = attn__fp_enter();
    }
    p->used = 0;
}

static void attn__pic_byte(attn__pic *p, uint32_t byte)
{
    if (p->used == sizeof p->bytes) attn__pic_flush(p);
    p->bytes[p->used++] = (char)(unsigned char)byte;
}

static void attn__pic_puts(attn__pic *p, const char *s) { while (*s) attn__pic_byte(p, (unsigned char)*s++); }

static void attn__pic_fill(attn__pic *p, char c, int64_t count)
{
    for (; count > 0; count--) attn__pic_byte(p, (unsigned char)c);
}

/* mantissa * 10^e10 as a person writes it: 0.25, 1500, 2.5e-7; every digit counts. Returns the length. */
static int attn__pic_decimal(char *text, int64_t mantissa, int e10)
{
    char digits[ATTN__PIC_NUMBER];                  /* the last one first */
    uint64_t u = mantissa < 0 ? 0 - (uint64_t)mantissa : (uint64_t)mantissa;
    int n = 0, len = 0, end = 0, point, scientific, i;
    for (; e10 > 0 && u < 10000000; e10--) u *= 10;
    if (mantissa == 0 && e10 < -4) e10 = 0;
    do digits[n++] = (char)('0' + (int)(u % 10)); while ((u /= 10) != 0);
    scientific = mantissa != 0 && e10 != 0 && (n + e10 < -3 || n + e10 > 7);
    point = scientific ? n - 1 : -e10;
    while (scientific && digits[end] == '0') end++;
    while (n <= point) digits[n++] = '0';
    if (mantissa < 0) text[len++] = '-';
    for (i = n - 1; i >= end; i--) {
        text[len++] = digits[i];
        if (i == point && i > end) text[len++] = '.';
    }
    text[len] = 0;
    if (!scientific) return len;
    text[len++] = 'e';
    return len + attn__pic_decimal(text + len, n - 1 + e10, 0);
}

/* Markup: % stands for the next argument as a number, @ for the next as a colour, #rrggbb. */
static void attn__pic_put(attn__pic *p, const char *s, int64_t a, int64_t b, int64_t c, int64_t d, int64_t e)
{
    char number[ATTN__PIC_NUMBER];
    int64_t arg[5];
    int next = 0, i;
    arg[0] = a; arg[1] = b; arg[2] = c; arg[3] = d; arg[4] = e;
    for (; *s; s++) {
        if (*s == '%') {
            (void)attn__pic_decimal(number, arg[next++], 0);
            attn__pic_puts(p, number);
        } else if (*s == '@') {
            attn__pic_byte(p, '#');
            for (i = 20; i >= 0; i -= 4) attn__pic_byte(p, (unsigned char)"0123456789abcdef"[arg[next] >> i & 15]);
            next++;
        } else attn__pic_byte(p, (unsigned char)*s);
    }
}

static double attn__pic_pow10(int e)
{
    double x = 1;
    int i;
    for (i = e < 0 ? -e : e; i > 0; i--) x *= 10;
    return e < 0 ? 1 / x : x;
}

/* The power of ten of the first digit of x > 0. */
static int attn__pic_exponent(double x)
{
    int e = 0;
    for (x *= 1 + 1e-9; x >= 10; e++) x /= 10;      /* 0.01 times 10 and 10 may be a hair less than 1 */
    for (; x < 1; e--) x *= 10;
    return e;
}

static int64_t attn__pic_floor(double x)
{
    const int64_t i = (int64_t)x;
    return (double)i > x ? i - 1 : i;
}

/* ---- text: UTF-8 in, UTF-8 out */

/* The next code point, made harmless: what is not UTF-8, and control characters, become U+FFFD; 0 at the end. */
static uint32_t attn__pic_next(const char **text)
{
    const unsigned char *s = (const unsigned char *)*text;
    uint32_t c = s[0];
    const int more = c < 0x80 ? 0 : c < 0xC2 ? -1 : c < 0xE0 ? 1 : c < 0xF0 ? 2 : c < 0xF5 ? 3 : -1;
    int i = 1;
    if (c == 0) return 0;
    if (more > 0) c &= 0x3Fu >> more;
    while (i <= more && (s[i] & 0xC0) == 0x80) c = c << 6 | (s[i++] & 0x3Fu);
    *text += i;
    if (more < 0 || i <= more || (more == 2 && c < 0x800) || (more == 3 && c < 0x10000) || c > 0x10FFFF) return 0xFFFD;
    if (c == '\t' || c == '\n' || c == '\r') return ' ';
    if (c < ' ' || (c >= 0x7F && c < 0xA0) || (c >= 0xD800 && c < 0xE000) || (c & 0xFFFE) == 0xFFFE) return 0xFFFD;
    return c;
}

/* How many columns a code point takes: combining marks none, East Asian letters and emoji two. */
static int attn__pic_columns(uint32_t c)
{
    if ((c >= 0x300 && c < 0x370) || (c >= 0x200B && c < 0x2010) || (c >= 0xFE00 && c < 0xFE10)) return 0;
    return (c >= 0x1100 && c < 0x1160) || (c >= 0x2E80 && c < 0xA4D0) || (c >= 0xAC00 && c < 0xD7A4)
        || (c >= 0xF900 && c < 0xFB00) || (c >= 0xFF00 && c < 0xFF61) || (c >= 0x1F300 && c < 0x1FB00)
        || (c >= 0x20000 && c < 0x40000) ? 2 : 1;
}

/* Columns of a string that may be absent. */
static int64_t attn__pic_length(const char *s)
{
    int64_t n = 0;
    uint32_t c;
    while (s && (c = attn__pic_next(&s)) != 0) n += attn__pic_columns(c);
    return n;
}

/* Columns of a label as it is drawn. */
static int64_t attn__pic_cut(const char *label) { return attn__pic_min(attn__pic_length(label), ATTN__PIC_LABEL); }

static void attn__pic_code(attn__pic *p, uint32_t c)
{
    if (p->kind == ATTN__PIC_SVG && (c == '&' || c == '<' || c == '>' || c == '"' || c == '\''))
        attn__pic_put(p, "&#%;", (int64_t)c, 0, 0, 0, 0);
    else if (c < 0x80) attn__pic_byte(p, c);
    else {
        if (c >= 0x10000) attn__pic_byte(p, 0xF0 | c >> 18);
        if (c >= 0x800) attn__pic_byte(p, c >= 0x10000 ? 0x80 | (c >> 12 & 0x3F) : 0xE0 | c >> 12);
        attn__pic_byte(p, c >= 0x800 ? 0x80 | (c >> 6 & 0x3F) : 0xC0 | c >> 6);
        attn__pic_byte(p, 0x80 | (c & 0x3F));
    }
}

/* Puts at most `most` columns of s, the last one an ellipsis where something is cut off. Returns the columns put. */
static int64_t attn__pic_text(attn__pic *p, const char *s, int64_t most)
{
    const int64_t all = attn__pic_length(s), room = all > most ? most - 1 : all;
    int64_t used = 0;
    uint32_t c;
    if (most < 1) return 0;
    for (; (c = attn__pic_next(&s)) != 0 && used + attn__pic_columns(c) <= room; used += attn__pic_columns(c))
        attn__pic_code(p, c);
    if (all > most) attn__pic_code(p, p->plain ? '~' : 0x2026);
    return used + (all > most);
}

/* ---- values and colours */

/* Cell k, counted over [panel rows, panel columns, rows, columns]. */
static float attn__pic_value(const attn__pic *p, int64_t k)
{
    const int64_t *n = p->size, *s = p->stride;
    const int64_t j = k % n[3], i = k / n[3] % n[2], h = k / n[3] / n[2] % n[1], b = k / n[3] / n[2] / n[1];
    const int64_t at = b*s[0] + h*s[1] + i*s[2] + j*s[3];
    if (p->map->mask_of) return attn__mask_at(p->map->mask_of, n[2], n[3], b, h, i, j) ? 1.0f : 0.0f;
    if (p->map->values.type == ATTN_U8) return (float)((const uint8_t *)p->map->values.data)[at];
    return ((const float *)p->map->values.data)[at];
}

/* Piecewise linear through equally spaced points, fitted to the maps of these names. */
static const unsigned char attn__pic_maps[ATTN_COLORMAP_COUNT][ATTN__PIC_POINTS][3] = {
    { {255,245,240}, {253,214,196}, {251,159,128}, {253,106,73}, {229,43,37}, {180,16,23}, {103,0,13} },
    { {68,1,84}, {70,59,135}, {49,104,143}, {29,144,141}, {46,184,126}, {142,216,60}, {253,231,37} },
    { {255,255,255}, {213,213,213}, {170,170,170}, {128,128,128}, {85,85,85}, {43,43,43}, {0,0,0} }
};

/* Where a value lies in the range: 0..1, infinities at the ends; -1 for NaN. */
static double attn__pic_place(const attn__pic *p, float value)
{
    if (attn__is_nan(value)) return -1;
    if (attn__is_inf(value)) return value > 0 ? 1 : 0;
    if ((double)value >= p->high) return 1;
    return (double)value > p->low ? ((double)value - p->low) / (p->high - p->low) : 0;
}

/* The colour 0xrrggbb of such a place. */
static uint32_t attn__pic_colour(const attn__pic *p, double place)
{
    const double x = place * (ATTN__PIC_POINTS - 1);
    const int i = (int)attn__pic_max(0, attn__pic_min((int64_t)x, ATTN__PIC_POINTS - 2));
    const unsigned char *a = attn__pic_maps[p->map->colormap][i], *b = attn__pic_maps[p->map->colormap][i + 1];
    uint32_t rgb = 0;
    int c;
    if (place < 0) return ATTN__PIC_NAN;
    for (c = 0; c < 3; c++) rgb = rgb << 8 | (uint32_t)(a[c] + (x - i) * (b[c] - a[c]) + 0.5);
    return rgb;
}

static uint32_t attn__pic_cell_colour(const attn__pic *p, int64_t k)
{
    return attn__pic_colour(p, attn__pic_place(p, attn__pic_value(p, k)));
}

/* Black or white, whichever is read better on the colour. */
static uint32_t attn__pic_ink(uint32_t rgb)
{
    return (rgb >> 16) * 299 + (rgb >> 8 & 255) * 587 + (rgb & 255) * 114 > 140000 ? 0x000000 : 0xFFFFFF;
}

/* A value as text, as exact as the range of the colours asks for. */
static int attn__pic_number(const attn__pic *p, float value, char *text)
{
    const char *word = attn__is_nan(value) ? "NaN" : value > 0 ? "inf" : "-inf";
    double x = (double)value / attn__pic_pow10(p->number_e10);
    int e = p->number_e10, n = 0;
    if (attn__is_nan(value) || attn__is_inf(value)) {
        while ((text[n] = word[n]) != 0) n++;
        return n;
    }
    for (; x > 1e7 || x < -1e7; e++) x /= 10;
    return attn__pic_decimal(text, attn__pic_floor(x + 0.5), e);
}

/* ---- checks, range, labels */

/* Sizes and strides as [panel rows, panel columns, rows, columns]; missing axes have size 1. */
static attn_status attn__pic_check_values(attn__pic *p, attn_error *err)
{
    static const attn__field field[2] = {{0, 0, ATTN__TAKES_F32, 2, 4, ATTN__NAMES("values")},
                                         {0, 0, ATTN__TAKES_U8, 2, 4, ATTN__NAMES("values")}};
    const attn_view *v = &p->map->values;
    const int mask = p->map->mask_of != NULL, u8 = mask || v->type == ATTN_U8;
    int64_t together;
    int a, axis;
    ATTN__RULE(v->rank, ATTN_ERR_NULL, "values", "must be given");
    ATTN__RULE(!mask || v->rank == 4, ATTN_ERR_RANK, "values.rank", "must be 4 with mask_of");
    ATTN__RULE(u8 || v->type == ATTN_F32, ATTN_ERR_TYPE, "values.type", "must be ATTN_F32 or ATTN_U8");
    ATTN__TRY(attn__check_view(v, &field[u8], mask ? 0 : ATTN__WITH_DATA, err));
#ifdef ATTN_CUDA
    ATTN__RULE(attn__is_on_host(v->data), ATTN_ERR_PLACE, "values.data", "must lie on the host");
#endif
    for (a = 0; a < 4; a++) {
        axis = a - (4 - v->rank);
        p->size[a] = axis < 0 ? 1 : v->size[axis];
        p->stride[a] = axis < 0 ? 0 : v->stride[axis];
        together = a == 0 ? p->size[0] : attn__mul64(p->size[a], p->size[a == 1 ? 0 : a - 2]);
        if (together > ATTN__PIC_CELLS)
            return attn__fail2(err, ATTN_ERR_RANGE, field->names.size[axis],
                               "must be, times the number of panels, at most", together, ATTN__PIC_CELLS);
    }
    return ATTN_OK;
}

static attn_status attn__pic_check(attn__pic *p, attn_error *err)
{
    const attn_heatmap *m = p->map;
    ATTN__RULE(m, ATTN_ERR_NULL, "map", "must not be NULL");
    ATTN__RULE(p->to.write, ATTN_ERR_NULL, "writer.write", "must not be NULL");
    ATTN__TRY(attn__pic_check_values(p, err));
    ATTN__RULE(m->colormap >= 0 && m->colormap < ATTN_COLORMAP_COUNT, ATTN_ERR_OPTION, "colormap",
               "must be one of attn_colormap");
    ATTN__RULE(m->terminal >= 0 && m->terminal < ATTN_TERMINAL_COUNT, ATTN_ERR_OPTION, "terminal",
               "must be one of attn_terminal");
    ATTN__RULE(!m->range_set || attn__bits(m->range_min) << 1 < 0xff000000u, ATTN_ERR_RANGE, "range_min",
               "must be finite");
    ATTN__RULE(!m->range_set || attn__bits(m->range_max) << 1 < 0xff000000u, ATTN_ERR_RANGE, "range_max",
               "must be finite");
    ATTN__RULE(!m->range_set || m->range_min < m->range_max, ATTN_ERR_RANGE, "range_max",
               "must be above range_min");
    if (!m->mask_of) return ATTN_OK;
#ifdef ATTN_CUDA
    {
        int flags = ATTN__WITH_DATA;
        ATTN__TRY(attn__find_place(m->mask_of, &flags, err));
        ATTN__RULE(!(flags & ATTN__ON_DEVICE), ATTN_ERR_PLACE, "mask_of", "must have its arrays on the host");
    }
#endif
    return attn__mask_check(m->mask_of, p->size[0], p->size[1], p->size[2], p->size[3], ATTN__WITH_DATA, err);
}

/* The range over the finite values. One value alone is seen against 0, so that all ones look full and all zeros empty;
   a mask runs from 0 to 1. */
static void attn__pic_range(attn__pic *p)
{
    const int64_t cells = p->map->mask_of ? 0 : p->size[0] * p->size[1] * p->size[2] * p->size[3];
    const int set = p->map->range_set != 0;
    int seen = 0;
    int64_t k;
    float x;
    p->low = set ? (double)p->map->range_min : 0;
    p->high = set ? (double)p->map->range_max : 1;
    for (k = 0; k < cells; k++) {
        x = attn__pic_value(p, k);
        if (attn__is_nan(x)) p->has_nan = 1;
        if (attn__is_nan(x) || attn__is_inf(x) || set) continue;
        if (!seen || (double)x < p->low) p->low = (double)x;
        if (!seen || (double)x > p->high) p->high = (double)x;
        seen = 1;
    }
    if (p->low < p->high) return;
    if (p->low > 0) p->low = 0;
    else if (p->high < 0) p->high = 0;
    else p->high = 1;
}

/* Three to six ticks of the colour bar: the finest of 1, 2, 2.5, 5 times a power of ten that gives no more. */
static void attn__pic_choose_ticks(attn__pic *p)
{
    static const int unit[4] = { 10, 20, 25, 50 };
    double step;
    int k, e;
    for (k = 0; ; k++) {
        e = attn__pic_exponent(p->high - p->low) - 3 + k / 4;
        step = unit[k % 4] * attn__pic_pow10(e);
        p->tick_first = -attn__pic_floor(1e-3 - p->low / step);
        p->tick_last = attn__pic_floor(1e-3 + p->high / step);
        if (p->tick_last - p->tick_first < 6) break;
    }
    p->tick_unit = unit[k % 4] == 25 ? 25 : unit[k % 4] / 10;
    p->tick_e10 = unit[k % 4] == 25 ? e : e + 1;
}

/* The label of row (axis 0) or column (axis 1) i; `number` holds it where it is a number. */
static const char *attn__pic_label(const attn__pic *p, int axis, int64_t i, char *number)
{
    const char *const *labels = axis ? p->map->x_ticks : p->map->y_ticks;
    if (labels) return labels[i] ? labels[i] : "";
    (void)attn__pic_decimal(number, i, 0);
    return number;
}

static const char *attn__pic_panel_title(const attn__pic *p, int64_t panel)
{
    return p->map->panel_titles && p->map->panel_titles[panel] ? p->map->panel_titles[panel] : "";
}

/* The smallest of 1, 2, 5, 10, 20, ... cells that take at least `need` where `cells` of them take `extent`. */
static int64_t attn__pic_step(int64_t need, int64_t extent, int64_t cells)
{
    int64_t step = 1;
    int k;
    for (k = 0; step < cells && step * extent < need * cells; k++) step = k % 3 == 1 ? step / 2 * 5 : step * 2;
    return step;
}

static attn_status attn__pic_open(attn__pic *p, attn_writer to, attn__pic_kind kind, attn_error *err)
{
    char text[ATTN__PIC_NUMBER];
    int64_t i;
    int a;
    const attn_heatmap *map = p->map;
    p->to = to;
    p->kind = kind;
    ATTN__TRY(attn__pic_check(p, err));
    p->plain = kind == ATTN__PIC_ANSI && map->terminal == ATTN_TERMINAL_ASCII;
    attn__pic_range(p);
    attn__pic_choose_ticks(p);
    p->number_e10 = attn__pic_exponent((p->high - p->low) / 50);
    for (i = map->numbers && !p->plain ? p->size[0] * p->size[1] * p->size[2] * p->size[3] : 0; i > 0; i--)
        p->number_len = attn__pic_max(p->number_len, attn__pic_number(p, attn__pic_value(p, i - 1), text));
    for (a = 0; a < 2; a++)             /* of numbers the last is the longest */
        for (i = p->label_len[a] = 0; i < p->size[2 + a]; i++) {
            if (!(a ? map->x_ticks : map->y_ticks)) i = p->size[2 + a] - 1;
            p->label_len[a] = attn__pic_max(p->label_len[a], attn__pic_cut(attn__pic_label(p, a, i, text)));
        }
    return ATTN_OK;
}

static attn_status attn__pic_close(attn__pic *p, attn_error *err)
{
    attn__pic_flush(p);
    ATTN__RULE(!p->failed, ATTN_ERR_WRITE, "writer.write", "must return 0");
    return attn__success(err);
}

/* ---- pixels: SVG and PPM. Cell i of n covers the pixels from i*extent/n to (i+1)*extent/n, rounded down. */

/* Side of a cell where the caller gives neither width nor height. */
static int64_t attn__pic_cell_side(const attn__pic *p)
{
    const int64_t longest = attn__pic_max(p->size[2], p->size[3]);
    const int64_t all = attn__pic_max(p->size[0] * p->size[2], p->size[1] * p->size[3]);
    int64_t side = all ? attn__pic_max(640 / all, 120 / longest) : 1;
    side = attn__pic_max(1, attn__pic_min(side, 28));
    if (p->kind != ATTN__PIC_SVG) return side;
    if ((p->map->x_ticks || p->map->y_ticks) && all < 128) side = attn__pic_max(side, 16);
    return p->number_len ? attn__pic_max(side, p->number_len * ATTN__PIC_CHAR + 6) : side;
}

/* Margins before and after the panels, and gaps between them, vertically [0] and horizontally [1]. Column labels that
   do not fit side by side are slanted if they are words and thinned out if they are numbers. */
static void attn__pic_margins(attn__pic *p, int64_t side, int64_t *before, int64_t *after, int64_t *gap)
{
    const attn_heatmap *m = p->map;
    const int svg = p->kind == ATTN__PIC_SVG, top = m->ticks_on_top != 0;
    const int64_t line = svg ? 20 : 0, pad = svg ? ATTN__PIC_PAD : 0, width = p->label_len[1] * ATTN__PIC_CHAR;
    const int64_t panel = m->width && p->size[1] ? (int64_t)m->width * 3 / 4 / p->size[1] : side * p->size[3];
    int64_t slant, numbers = 0, k;
    char text[ATTN__PIC_NUMBER];
    p->turned = svg && m->x_ticks && (width + 6) * p->size[3] > panel;
    slant = p->turned ? width * 5 / 7 : 0;
    p->names = (p->turned ? slant + 18 : line) + (m->x_label ? line : 0);
    for (k = p->tick_first; k <= p->tick_last; k++)
        numbers = attn__pic_max(numbers, attn__pic_decimal(text, k * p->tick_unit, p->tick_e10) * ATTN__PIC_CHAR + 6);
    gap[1] = svg ? 16 : 8;
    gap[0] = gap[1] + (m->panel_titles ? line : 0);
    before[0] = pad + (m->title ? line + line / 2 : 0) + (top ? p->names : gap[0] - gap[1]);
    after[0] = pad + (top ? gap[0] - gap[1] : p->names);
    before[1] = svg ? pad + (m->y_label ? line : 0) + p->label_len[0] * ATTN__PIC_CHAR + 8 : 0;
    after[1] = pad + (m->no_colorbar ? 0 : gap[1] + ATTN__PIC_BAR + (svg ? numbers : 0));
    if (top) after[1] = attn__pic_max(after[1], slant);
    else before[1] = attn__pic_max(before[1], slant);
}

static attn_status attn__pic_layout(attn__pic *p, attn_error *err)
{
    const attn_heatmap *m = p->map;
    const int64_t *panels = p->size, *cells = p->size + 2, pad = ATTN__PIC_PAD, side = attn__pic_cell_side(p);
    const int svg = p->kind == ATTN__PIC_SVG;
    int64_t before[2], after[2], gap[2], wish[2], used, k;
    int a;
    wish[0] = m->height; wish[1] = m->width;
    attn__pic_margins(p, side, before, after, gap);
    for (a = 0; a < 2; a++) {
        used = before[a] + after[a] + attn__pic_max(panels[a] - 1, 0) * gap[a];
        if (wish[a] && wish[a] < used + panels[a])
            return attn__fail2(err, ATTN_ERR_RANGE, a ? "width" : "height",
                               "must leave room for labels and cells: be at least", wish[a], used + panels[a]);
        if (wish[a] > ATTN__PIC_PIXELS)
            return attn__fail2(err, ATTN_ERR_RANGE, a ? "width" : "height", "must be at most", wish[a],
                               ATTN__PIC_PIXELS);
        p->extent[a] = wish[a] && panels[a] && cells[a] ? (wish[a] - used) / panels[a] : cells[a] * side;
    }
    for (a = 0; a < 2; a++)     /* one side given: cells stay square */
        if (!wish[a] && wish[1 - a] && cells[1 - a])
            p->extent[a] = (p->extent[1 - a] * cells[a] + cells[1 - a] - 1) / cells[1 - a];
    for (a = 0; a < 2; a++) {
        p->origin[a] = before[a];
        p->pitch[a] = p->extent[a] + gap[a];
        for (k = 0; a == 1 && svg && !m->width && k < panels[0] * panels[1]; k++)
            p->pitch[1] = attn__pic_max(p->pitch[1], attn__pic_cut(attn__pic_panel_title(p, k)) * ATTN__PIC_CHAR + 8);
        p->grid[a] = panels[a] ? (panels[a] - 1) * p->pitch[a] + p->extent[a] : 0;
        p->total[a] = attn__pic_max(1, wish[a] ? wish[a] : before[a] + p->grid[a] + after[a]);
    }
    p->step[0] = attn__pic_step(12, p->extent[0], cells[0]);
    p->step[1] = attn__pic_step(p->turned ? 16 : p->label_len[1] * ATTN__PIC_CHAR + 6, p->extent[1], cells[1]);
    p->bar_x = before[1] + p->grid[1] + gap[1];
    p->bar_h = p->grid[0];
    if (!svg) return ATTN_OK;
    k = p->has_nan ? 24 : 0;    /* the bar, with the colour of NaN below it, and titles may be longer than the panels */
    p->bar_h = attn__pic_max(p->bar_h - k, 80);
    if (!m->height) p->total[0] = attn__pic_max(p->total[0], attn__pic_length(m->y_label) * ATTN__PIC_CHAR + 2*pad);
    if (!m->height && !m->no_colorbar) p->total[0] = attn__pic_max(p->total[0], before[0] + p->bar_h + k + pad);
    if (!m->width) p->total[1] = attn__pic_max(p->total[1], attn__pic_length(m->x_label) * ATTN__PIC_CHAR + 2*pad);
    if (!m->width) p->total[1] = attn__pic_max(p->total[1], attn__pic_length(m->title) * 10 + 2*pad);
    p->bar_h = attn__pic_max(1, attn__pic_min(p->bar_h, p->total[0] - before[0] - k - pad));
    return ATTN_OK;
}

/* Where cell i of an axis begins, from the edge of its panel. */
static int64_t attn__pic_edge(const attn__pic *p, int axis, int64_t i)
{
    return i * p->extent[axis] / p->size[2 + axis];
}

static void attn__svg_text(attn__pic *p, int64_t x, int64_t y, int angle, const char *anchor, const char *s,
                           int64_t most)
{
    attn__pic_put(p, angle ? "<text transform=\"translate(% %) rotate(%)\"" : "<text x=\"%\" y=\"%\"",
                  x, y, angle, 0, 0);
    attn__pic_puts(p, " text-anchor=\"");
    attn__pic_puts(p, anchor);
    attn__pic_puts(p, "\">");
    (void)attn__pic_text(p, s, most);
    attn__pic_puts(p, "</text>\n");
}

/* A title in the middle of the panels, horizontally (axis 1) or vertically (0), moved or cut to stay in the picture. */
static void attn__svg_title(attn__pic *p, int axis, int64_t at, const char *s, int64_t per_column)
{
    const int64_t most = (p->total[axis] - 2 * ATTN__PIC_PAD) / per_column;
    const int64_t half = attn__pic_min(attn__pic_length(s), most) * per_column / 2 + ATTN__PIC_PAD;
    int64_t middle = p->origin[axis] + p->grid[axis] / 2;
    middle = attn__pic_max(attn__pic_min(middle, p->total[axis] - half), half);
    if (s) attn__svg_text(p, axis ? middle : at, axis ? at : middle, axis ? 0 : -90, "middle", s, most);
}

static void attn__svg_frame(attn__pic *p, int64_t x, int64_t y, int64_t w, int64_t h)
{
    attn__pic_put(p, "<rect x=\"%.5\" y=\"%.5\" width=\"%\" height=\"%\" fill=\"none\" stroke=\"#999\"/>\n",
                  x - 1, y - 1, w + 1, h + 1, 0);
}

static void attn__svg_cells(attn__pic *p, int64_t panel, int64_t x, int64_t y)
{
    const int64_t rows = p->size[2], cols = p->size[3], len = p->number_len * ATTN__PIC_CHAR;
    const int gap = p->extent[0] >= 12 * rows && p->extent[1] >= 12 * cols;     /* small maps: a white grid */
    char text[ATTN__PIC_NUMBER];
    int64_t i, j, next, k, x0, x1, y0, y1;
    uint32_t rgb;
    attn__pic_put(p, "<g shape-rendering=\"crispEdges\" text-anchor=\"middle\" font-size=\"%\">\n",
                  len ? attn__pic_max(1, attn__pic_min(12, (p->extent[1] / cols - 2) * 12 / len)) : 12, 0, 0, 0, 0);
    for (i = 0; i < rows && !p->failed; i++) {
        y0 = attn__pic_edge(p, 0, i);
        y1 = attn__pic_edge(p, 0, i + 1);
        for (j = 0; j < cols && y1 > y0; j = next) {
            k = (panel * rows + i) * cols + j;
            rgb = attn__pic_cell_colour(p, k);
            for (next = j + 1; next < cols && !gap && !len; next++)     /* one rectangle for equal neighbours */
                if (attn__pic_cell_colour(p, k + next - j) != rgb) break;
            x0 = attn__pic_edge(p, 1, j);
            x1 = attn__pic_edge(p, 1, next);
            if (x1 == x0) continue;
            attn__pic_put(p, "<rect x=\"%\" y=\"%\" width=\"%\" height=\"%\" fill=\"@\"/>\n",
                          x + x0, y + y0, x1 - x0 - gap, y1 - y0 - gap, (int64_t)rgb);
            if (!len) continue;
            (void)attn__pic_number(p, attn__pic_value(p, k), text);
            attn__pic_put(p, "<text x=\"%\" y=\"%\" fill=\"@\">", x + (x0 + x1) / 2, y + (y0 + y1) / 2 + 4,
                          (int64_t)attn__pic_ink(rgb), 0, 0);
            attn__pic_puts(p, text);
            attn__pic_puts(p, "</text>\n");
        }
    }
    attn__pic_puts(p, "</g>\n");
    attn__svg_frame(p, x, y, p->extent[1] - gap, p->extent[0] - gap);
}

/* Labels of the rows left of a panel (axis 0), or of the columns below or above it (1). */
static void attn__svg_labels(attn__pic *p, int axis, int64_t x, int64_t y)
{
    const int top = p->map->ticks_on_top != 0;
    const int64_t base = top ? y - 7 : y + p->extent[0] + 15;
    char number[ATTN__PIC_NUMBER];
    const char *s;
    int64_t i, at;
    for (i = 0; i < p->size[2 + axis]; i += p->step[axis]) {
        at = (attn__pic_edge(p, axis, i) + attn__pic_edge(p, axis, i + 1)) / 2;
        s = attn__pic_label(p, axis, i, number);
        if (axis == 0) attn__svg_text(p, x - 8, y + at + 4, 0, "end", s, ATTN__PIC_LABEL);
        else if (!p->turned) attn__svg_text(p, x + at, base, 0, "middle", s, ATTN__PIC_LABEL);
        else attn__svg_text(p, x + at + 4, base, -45, top ? "start" : "end", s, ATTN__PIC_LABEL);
    }
}

static void attn__svg_bar(attn__pic *p)
{
    const int64_t x = p->bar_x, y = p->origin[0], h = p->bar_h;
    const int64_t step = attn__pic_step(14, h, p->tick_last - p->tick_first + 1);
    const double unit = (double)p->tick_unit * attn__pic_pow10(p->tick_e10);
    char text[ATTN__PIC_NUMBER];
    int64_t k, at;
    attn__pic_put(p, "<linearGradient id=\"attn-colormap-%\" x1=\"0\" y1=\"1\" x2=\"0\" y2=\"0\">\n",
                  p->map->colormap, 0, 0, 0, 0);
    for (k = 0; k < ATTN__PIC_POINTS; k++)
        attn__pic_put(p, "<stop offset=\"%e-2\" stop-color=\"@\"/>\n", (k * 100 + 3) / (ATTN__PIC_POINTS - 1),
                      attn__pic_colour(p, (double)k / (ATTN__PIC_POINTS - 1)), 0, 0, 0);
    attn__pic_puts(p, "</linearGradient>\n");
    attn__pic_put(p, "<rect x=\"%\" y=\"%\" width=\"%\" height=\"%\" fill=\"url(#attn-colormap-%)\"/>\n",
                  x, y, ATTN__PIC_BAR, h, p->map->colormap);
    attn__svg_frame(p, x, y, ATTN__PIC_BAR, h);
    for (k = p->tick_first; k <= p->tick_last; k += step) {
        at = y + (int64_t)((double)h * (p->high - (double)k * unit) / (p->high - p->low) + 0.5);
        (void)attn__pic_decimal(text, k * p->tick_unit, p->tick_e10);
        attn__pic_put(p, "<path d=\"M% %.5h4\" stroke=\"#999\"/>\n", x + ATTN__PIC_BAR, at - 1, 0, 0, 0);
        attn__svg_text(p, x + ATTN__PIC_BAR + 6, at + 4, 0, "start", text, ATTN__PIC_LABEL);
    }
    if (!p->has_nan) return;
    attn__pic_put(p, "<rect x=\"%\" y=\"%\" width=\"%\" height=\"%\" fill=\"@\"/>\n",
                  x, y + h + 10, ATTN__PIC_BAR, ATTN__PIC_BAR, ATTN__PIC_NAN);
    attn__svg_text(p, x + ATTN__PIC_BAR + 6, y + h + 21, 0, "start", "NaN", ATTN__PIC_LABEL);
}

static attn_status attn__pic_svg(attn__pic *p, attn_writer writer, attn_error *err)
{
    const attn_heatmap *map = p->map;
    int64_t r, c, x, y;
    ATTN__TRY(attn__pic_open(p, writer, ATTN__PIC_SVG, err));
    ATTN__TRY(attn__pic_layout(p, err));
    attn__pic_put(p, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%\" height=\"%\" viewBox=\"0 0 % %\" ",
                  p->total[1], p->total[0], p->total[1], p->total[0], 0);
    attn__pic_puts(p, "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\" fill=\"#222\">\n");
    attn__pic_put(p, "<rect width=\"%\" height=\"%\" fill=\"#fff\"/>\n", p->total[1], p->total[0], 0, 0, 0);
    if (map->title) {
        attn__pic_puts(p, "<g font-size=\"16\">\n");
        attn__svg_title(p, 1, ATTN__PIC_PAD + 14, map->title, 10);
        attn__pic_puts(p, "</g>\n");
    }
    y = map->ticks_on_top ? p->origin[0] - p->names + 8 : p->origin[0] + p->grid[0] + p->names - 2;
    attn__svg_title(p, 1, y, map->x_label, ATTN__PIC_CHAR);
    attn__svg_title(p, 0, ATTN__PIC_PAD + 10, map->y_label, ATTN__PIC_CHAR);
    for (r = 0; r < p->size[0]; r++) for (c = 0; c < p->size[1]; c++) {
        x = p->origin[1] + c * p->pitch[1];
        y = p->origin[0] + r * p->pitch[0];
        attn__svg_cells(p, r * p->size[1] + c, x, y);
        if (c == 0) attn__svg_labels(p, 0, x, y);
        if (r == (map->ticks_on_top ? 0 : p->size[0] - 1)) attn__svg_labels(p, 1, x, y);
        if (map->panel_titles)
            attn__svg_text(p, x + p->extent[1] / 2, map->ticks_on_top ? y + p->extent[0] + 16 : y - 7, 0, "middle",
                           attn__pic_panel_title(p, r * p->size[1] + c), (p->pitch[1] - 4) / ATTN__PIC_CHAR);
    }
    if (!map->no_colorbar) attn__svg_bar(p);
    attn__pic_puts(p, "</svg>\n");
    return attn__pic_close(p, err);
}

/* Which panel a pixel is in, and which of its cells; -1 beside the panels. */
static int64_t attn__ppm_find(const attn__pic *p, int axis, int64_t pixel, int64_t *panel)
{
    const int64_t in = pixel % p->pitch[axis];
    *panel = pixel / p->pitch[axis];
    if (*panel >= p->size[axis] || in >= p->extent[axis]) return -1;
    return ((in + 1) * p->size[2 + axis] - 1) / p->extent[axis];
}

static attn_status attn__pic_ppm(attn__pic *p, attn_writer writer, attn_error *err)
{
    const attn_heatmap *map = p->map;
    int64_t x, y, i, j, r, c, cell, last = -1;
    uint32_t rgb, colour = 0;
    ATTN__TRY(attn__pic_open(p, writer, ATTN__PIC_PPM, err));
    ATTN__TRY(attn__pic_layout(p, err));
    attn__pic_put(p, "P6\n% %\n255\n", p->total[1], p->total[0], 0, 0, 0);
    for (y = 0; y < p->total[0] && !p->failed; y++) {
        i = attn__ppm_find(p, 0, y, &r);
        for (x = 0; x < p->total[1]; x++) {
            j = attn__ppm_find(p, 1, x, &c);
            rgb = 0xFFFFFF;
            if (i >= 0 && j >= 0) {
                cell = ((r * p->size[1] + c) * p->size[2] + i) * p->size[3] + j;
                if (cell != last) colour = attn__pic_cell_colour(p, cell);
                last = cell;
                rgb = colour;
            }
            if (!map->no_colorbar && x >= p->bar_x && x < p->bar_x + ATTN__PIC_BAR && y < p->bar_h)
                rgb = attn__pic_colour(p, p->bar_h > 1 ? (double)(p->bar_h - 1 - y) / (double)(p->bar_h - 1) : 1);
            attn__pic_byte(p, rgb >> 16);
            attn__pic_byte(p, rgb >> 8 & 255);
            attn__pic_byte(p, rgb & 255);
        }
    }
    return attn__pic_close(p, err);
}

/* ---- terminal */

/* The one of the colours 16..255 that is nearest: a cube of 6*6*6, then 24 greys. */
static int attn__ansi_256(uint32_t rgb)
{
    int best = 16, least = 3 * 256 * 256, k, c, distance, part, level;
    for (k = 16; k < 256; k++) {
        for (c = distance = 0; c < 3; c++) {
            part = (k - 16) / (c == 0 ? 36 : c == 1 ? 6 : 1) % 6;
            level = k >= 232 ? 8 + 10 * (k - 232) : part ? 55 + 40 * part : 0;
            level -= (int)(rgb >> (16 - 8 * c) & 255);
            distance += level * level;
        }
        if (distance < least) { least = distance; best = k; }
    }
    return best;
}

/* A field in the colour of a place in the range, with text in it; plain terminals get shades and no text. */
static void attn__ansi_field(attn__pic *p, double place, const char *text, int64_t columns)
{
    const uint32_t rgb = attn__pic_colour(p, place);
    if (p->plain) {
        attn__pic_fill(p, place < 0 ? '?' : " .:-=+*#%@"[(int)(place * 9 + 0.5)], columns);
        return;
    }
    if (p->map->terminal == ATTN_TERMINAL_256) attn__pic_put(p, "\033[48;5;%m", attn__ansi_256(rgb), 0, 0, 0, 0);
    else attn__pic_put(p, "\033[48;2;%;%;%m", rgb >> 16, rgb >> 8 & 255, rgb & 255, 0, 0);
    if (*text) attn__pic_put(p, "\033[38;5;%m", attn__pic_ink(rgb) ? 231 : 16, 0, 0, 0, 0);
    attn__pic_fill(p, ' ', columns - attn__pic_length(text) - 1);
    attn__pic_puts(p, text);
    attn__pic_byte(p, ' ');
}

static void attn__ansi_reset(attn__pic *p) { if (!p->plain) attn__pic_puts(p, "\033[0m"); }

/* Column labels under or over panels: on one line where they fit, else as stairs, each on a line of its own with
   strokes that lead to the columns of the others. */
static void attn__ansi_labels(attn__pic *p)
{
    const int64_t step = p->step[1], labels = (p->size[3] + step - 1) / step;
    const int stairs = p->label_len[1] >= p->field * step;
    const char *const stroke = p->plain ? "|" : "\342\224\202";
    char number[ATTN__PIC_NUMBER];
    int64_t line, own, i, c, at;
    for (line = 0; line < (stairs ? labels : 1); line++) {
        own = !stairs ? labels : p->map->ticks_on_top ? line : labels - 1 - line;
        attn__pic_fill(p, ' ', p->gutter);
        for (c = 0; c < p->size[1]; c++) {
            for (i = at = 0; i < labels && i <= own; i++) {
                attn__pic_fill(p, ' ', i * step * p->field - at);
                at = i * step * p->field;
                at += attn__pic_text(p, stairs && i < own ? stroke : attn__pic_label(p, 1, i * step, number),
                                     ATTN__PIC_LABEL);
            }
            if (c < p->size[1] - 1) attn__pic_fill(p, ' ', p->panel - at);
        }
        attn__pic_byte(p, '\n');
    }
}

static void attn__ansi_panel_titles(attn__pic *p, int64_t r)
{
    int64_t c, at;
    attn__pic_fill(p, ' ', p->gutter);
    for (c = 0; c < p->size[1]; c++) {
        at = attn__pic_text(p, attn__pic_panel_title(p, r * p->size[1] + c), ATTN__PIC_LABEL);
        if (c < p->size[1] - 1) attn__pic_fill(p, ' ', p->panel - at);
    }
    attn__pic_byte(p, '\n');
}

/* Row i of the r-th line of panels. */
static void attn__ansi_row(attn__pic *p, int64_t r, int64_t i)
{
    char text[ATTN__PIC_NUMBER];
    const char *s = attn__pic_label(p, 0, i, text);
    int64_t c, j;
    float value;
    attn__pic_fill(p, ' ', p->gutter - 1 - attn__pic_cut(s));
    (void)attn__pic_text(p, s, ATTN__PIC_LABEL);
    attn__pic_byte(p, ' ');
    text[0] = 0;
    for (c = 0; c < p->size[1]; c++) {
        for (j = 0; j < p->size[3]; j++) {
            value = attn__pic_value(p, ((r * p->size[1] + c) * p->size[2] + i) * p->size[3] + j);
            if (p->number_len) (void)attn__pic_number(p, value, text);
            attn__ansi_field(p, attn__pic_place(p, value), text, p->field);
        }
        attn__ansi_reset(p);
        if (c < p->size[1] - 1) attn__pic_fill(p, ' ', p->panel - p->size[3] * p->field);
    }
    attn__pic_byte(p, '\n');
}

/* What the colours mean, on one line. */
static void attn__ansi_legend(attn__pic *p)
{
    char text[ATTN__PIC_NUMBER];
    int k;
    attn__pic_byte(p, '\n');
    attn__pic_fill(p, ' ', p->gutter);
    (void)attn__pic_number(p, (float)p->low, text);
    attn__pic_puts(p, text);
    attn__pic_puts(p, p->plain ? " [" : " ");
    for (k = 0; k < 20; k++) attn__ansi_field(p, k / 19.0, "", 1);
    attn__ansi_reset(p);
    attn__pic_puts(p, p->plain ? "] " : " ");
    (void)attn__pic_number(p, (float)p->high, text);
    attn__pic_puts(p, text);
    if (p->has_nan) {
        attn__pic_puts(p, "   ");
        attn__ansi_field(p, -1, "", 2);
        attn__ansi_reset(p);
        attn__pic_puts(p, " NaN");
    }
    attn__pic_byte(p, '\n');
}

static void attn__ansi_line(attn__pic *p, const char *what, const char *s)
{
    if (!s) return;
    attn__pic_puts(p, what);
    (void)attn__pic_text(p, s, ATTN__HUGE);
    attn__pic_byte(p, '\n');
}

static attn_status attn__pic_ansi(attn__pic *p, attn_writer writer, attn_error *err)
{
    const attn_heatmap *map = p->map;
    int64_t r, i, n;
    char text[ATTN__PIC_NUMBER];
    ATTN__TRY(attn__pic_open(p, writer, ATTN__PIC_ANSI, err));
    n = p->size[3];
    p->field = p->number_len ? p->number_len + 2 : 2;
    p->gutter = p->label_len[0] + 1;
    p->step[1] = map->x_ticks ? attn__pic_step(1, ATTN__PIC_STAIRS, n)
                             : attn__pic_step(p->label_len[1] + 1, n * p->field, n);
    p->panel = n * p->field;              /* a panel is as wide as its cells, its labels and its title */
    for (i = 0; i < n; i += p->step[1])
        p->panel = attn__pic_max(p->panel, i * p->field + attn__pic_cut(attn__pic_label(p, 1, i, text)));
    for (i = 0; i < p->size[0] * p->size[1]; i++)
        p->panel = attn__pic_max(p->panel, attn__pic_cut(attn__pic_panel_title(p, i)));
    p->panel += 2;
    attn__ansi_line(p, "", map->title);
    attn__ansi_line(p, "rows: ", map->y_label);
    attn__ansi_line(p, "columns: ", map->x_label);
    for (r = 0; r < p->size[0]; r++) {
        if (r) attn__pic_byte(p, '\n');
        if (map->panel_titles) attn__ansi_panel_titles(p, r);
        if (map->ticks_on_top && r == 0) attn__ansi_labels(p);
        for (i = 0; i < p->size[2] && !p->failed; i++) attn__ansi_row(p, r, i);
        if (!map->ticks_on_top && r == p->size[0] - 1) attn__ansi_labels(p);
    }
    if (!map->no_colorbar) attn__ansi_legend(p);
    return attn__pic_close(p, err);
}

/* ---- a writer into memory */

static int attn__buffer_write(void *user, const char *bytes, size_t count)
{
    attn_buffer *b = (attn_buffer *)user;
    const size_t size = b->data ? b->size : 0;
    size_t i;
    for (i = 0; i < count; i++, b->length++) if (b->length + 1 < size) b->data[b->length] = bytes[i];
    if (size != 0) b->data[b->length < size ? b->length : size - 1] = 0;
    return 0;
}

typedef attn_status attn__pic_fn(attn__pic *p, attn_writer writer, attn_error *err);
static attn_status attn__pic_run(attn__pic_fn *draw, const attn_heatmap *map, attn_writer writer, attn_error *err)
{
    attn__pic p;
    attn_status st;
    attn__zero(&p, sizeof p);
    p.map = map;
    p.caller = attn__fp_enter();
    st = draw(&p, writer, err);
    attn__fp_leave(p.caller);
    return st;
}
ATTN_DEF attn_status attn_heatmap_ansi(const attn_heatmap *map, attn_writer writer, attn_error *err)
{ return attn__pic_run(attn__pic_ansi, map, writer, err); }
ATTN_DEF attn_status attn_heatmap_svg(const attn_heatmap *map, attn_writer writer, attn_error *err)
{ return attn__pic_run(attn__pic_svg, map, writer, err); }
ATTN_DEF attn_status attn_heatmap_ppm(const attn_heatmap *map, attn_writer writer, attn_error *err)
{ return attn__pic_run(attn__pic_ppm, map, writer, err); }

ATTN_DEF attn_writer attn_buffer_writer(attn_buffer *buffer)
{
    attn_writer w;
    if (buffer) (void)attn__buffer_write(buffer, "", 0);        /* an empty text ends in 0, too */
    w.write = buffer ? attn__buffer_write : NULL;
    w.user = buffer;
    return w;
}
#endif /* ATTN_NO_HEATMAP */

/* -------------------------------------------------------------------------------------------------------- >>tail */
#if defined(__clang__)
#  pragma STDC FP_CONTRACT DEFAULT
#  if __clang_major__ >= 12 && ATTN__X64
#    pragma float_control(pop)
#  endif
#elif defined(__GNUC__)
#  pragma GCC pop_options
#  pragma GCC diagnostic pop
#elif defined(_MSC_VER)
#  pragma fp_contract(on)
#  pragma float_control(pop)
#endif
#undef ATTN__ADDITIVE_CLEAR
#undef ATTN__ALIGN
#undef ATTN__BMM_ROWS
#undef ATTN__CHAIN
#undef ATTN__RUN
#undef ATTN__SQUARES
#undef ATTN__CHUNK
#undef ATTN__COPY
#undef ATTN__EXP_C2
#undef ATTN__EXP_C3
#undef ATTN__EXP_C4
#undef ATTN__EXP_C5
#undef ATTN__EXP_C6
#undef ATTN__EXP_LOWEST
#undef ATTN__EXP_NOTHING
#undef ATTN__EXP_MAGIC
#undef ATTN__GNU
#undef ATTN__HUGE
#undef ATTN__INF
#undef ATTN__GRADIENT_KERNELS
#undef ATTN__INLINE
#undef ATTN__KERNEL_LIST
#undef ATTN__READ
#undef ATTN__TABLES_0
#undef ATTN__TABLES_1
#undef ATTN__TABLES_2
#undef ATTN__WITH
#undef ATTN__KEEP_POINTER
#undef ATTN__LN2_HI
#undef ATTN__LN2_LO
#undef ATTN__LOG2E
#undef ATTN__LOG_C0
#undef ATTN__LOG_C1
#undef ATTN__LOG_C2
#undef ATTN__LOG_C3
#undef ATTN__LOG_C4
#undef ATTN__LOG_C5
#undef ATTN__LOG_C6
#undef ATTN__LOG_C7
#undef ATTN__FEW
#undef ATTN__FEW_ROW
#undef ATTN__CUT_TILES
#undef ATTN__CUT_CHUNKS
#undef ATTN__CUT_TASKS
#undef ATTN__FEW_KEYS
#undef ATTN__LONG
#undef ATTN__MAX_WIDTH
#undef ATTN__MAX_LANES
#undef ATTN__NAMES
#undef ATTN__NAN
#undef ATTN__NEG_INF
#undef ATTN__NOINLINE
#undef ATTN__PARTS
#undef ATTN__TERMS
#undef ATTN__MAX_ROUNDS
#undef ATTN__WORTH_CUTTING
#undef ATTN__PASS_BYTES
#undef ATTN__HEADS_BYTES
#undef ATTN__PREFETCH
#undef ATTN__PREFETCH_FAR
#undef ATTN__RULE
#undef ATTN__SMALLEST
#undef ATTN__SQRT_HALF
#undef ATTN__TANH_C0
#undef ATTN__TANH_C1
#undef ATTN__TANH_C2
#undef ATTN__TANH_C3
#undef ATTN__TANH_C4
#undef ATTN__TANH_SPLIT
#undef ATTN__TRY
#undef ATTN__HALF
#undef ATTN__FIND_PLACE
#undef ATTN__PLACE_HOST
#undef ATTN__PLACE_DEVICE
#undef ATTN__UNROLL
#undef ATTN__VIEW_LIST
#undef ATTN__GRAD_LIST
#undef ATTN__GRAD_ROW
#undef ATTN__SUM_ROWS
#undef ATTN__CLANG_FAST
#undef ATTN__TILE_BYTES
#undef ATTN__X64
#endif /* ATTN_IMPLEMENTATION */

/* ------------------------------------------------------------------------------------------------------------------
   This software is available under two licences; choose the one you prefer.

   A - MIT Licence. Copyright (c) 2026 the attn.h authors
   Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
   documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
   rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to
   permit persons to whom the Software is furnished to do so, subject to the following conditions: The above copyright
   notice and this permission notice shall be included in all copies or substantial portions of the Software. THE
   SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
   WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
   COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
   OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.

   B - The Unlicense (unlicense.org)
   This is free and unencumbered software released into the public domain. Anyone is free to copy, modify, publish, use,
   compile, sell, or distribute this software, either in source code form or as a compiled binary, for any purpose,
   commercial or non-commercial, and by any means. In jurisdictions that recognize copyright laws, the author or authors
   of this software dedicate any and all copyright interest in the software to the public domain. We make this
   dedication for the benefit of the public at large and to the detriment of our heirs and successors. We intend this
   dedication to be an overt act of relinquishment in perpetuity of all present and future rights to this software under
   copyright law. THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT
   LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL
   THE AUTHORS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE,
   ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
   ------------------------------------------------------------------------------------------------------------------ */
