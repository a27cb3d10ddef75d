/* attn.h - v0.3.0 - attention for C in one header - MIT or Unlicense, at your choice (end of file)
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
       >>kernels-avx2  >>kernels-avx512  the same bits       >>heatmap         pictures
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
             error no output byte has been written. Checks are always on. What is set and cannot count is an error: a
             parameter of another score (sigma with DOT), positions without ATTN_ALIGN_POSITIONS, window_left without
             window, weights_after_dropout without weights, data in a view of rank 0. Only seed, dropout_origin, align
             and weights_after_dropout may stand where dropout, or what uses positions, is off. An output must not
             overlap an input or another output; views that interleave, as the slots of a packed array do, are told
             apart.

   BINDINGS  cc -O2 -shared -fPIC -x c -DATTN_IMPLEMENTATION attn.h -o libattn.so -lm  makes a library. Enums are passed
             as int. attn_desc, attn_grad, attn_mha_desc, attn_mha_grad and attn_heatmap may grow at their end; their
             first field, struct_bytes, says how much the caller has: its own sizeof, so that any later library takes
             it (what the caller lacks counts as 0; what the library does not know must be 0), or 0, where header and
             library are of one version. The other structures keep their sizes. attn_layout() tells all offsets.

   MACROS    define before the include; "impl" = in the file with ATTN_IMPLEMENTATION, "all" = the same in every file
       ATTN_IMPLEMENTATION    impl  compile the implementation here
       ATTN_STATIC            all   all functions static, a private copy: together with ATTN_IMPLEMENTATION in each file
       ATTN_DEF               all   your own linkage, for example __declspec(dllexport)
       ATTN_ASSERT(x)         impl  internal invariants; default assert; none on user input
       ATTN_MALLOC(n), ATTN_FREE(p)    impl  both or neither; default malloc, free
       ATTN_NO_LIBC           impl  call no C library (compilers may still emit memcpy, memmove, memset, memcmp). Calls
                                    without workspace and allocator then need ATTN_MALLOC and ATTN_FREE
       ATTN_NO_SIMD, ATTN_NO_AVX2, ATTN_NO_AVX512    impl  leave kernels out (without AVX2 no AVX-512)
       ATTN_NO_HEATMAP        all   leave the pictures out
       ATTN_NO_BACKWARD       all   leave the gradients out
       ATTN_CUDA              impl  arrays may lie on a device; needs attn_cuda.cuh, compiled in a .cu file
       ATTN_NO_EXACT_FMA      impl  on a machine without fused multiply-add: a*b+c rounded twice (faster, other bits)
*/

/* --------------------------------------------------------------------------------------------------------- >>api */
#ifndef ATTN_H_INCLUDED
#define ATTN_H_INCLUDED

#define ATTN_VERSION_MAJOR 0
#define ATTN_VERSION_MINOR 3
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

#if defined(__cplusplus) && __cplusplus >= 201402L
#  define ATTN__0 = {}          /* so that {}, {0} and designators leave no member of a descriptor unset */
#else
#  define ATTN__0
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
    int64_t     reserved[4];    /* 0; room for later versions, so that the size stays */
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
    ATTN_ALIGN_UNSET = 0,       /* p = i where Sq == Sk; else causal, a bounded window and ALiBi need one of the others,
                                   for a forgotten choice there is a decode that is wrong without a word */
    ATTN_ALIGN_BOTTOM_RIGHT,    /* p = i + len_k - len_q: the last query sits at the last key (decode, chunked prefill).
                                   len_k: key_lengths (per query where so given), else Sk; len_q: query_lengths,
                                   else Sq */
    ATTN_ALIGN_POSITIONS,       /* p = positions[b] + i, or positions[b,i]; may be negative or beyond Sk */
    ATTN_ALIGN_TOP_LEFT,        /* p = i, whatever Sq and Sk are */
    ATTN_ALIGN_COUNT
} attn_align;

typedef enum attn_empty {       /* a row without an allowed key, or without mass; rows beyond query_lengths too */
    ATTN_EMPTY_ZERO = 0,        /* out 0, weights 0 */
    ATTN_EMPTY_NAN,             /* out NaN, weights NaN */
    ATTN_EMPTY_UNIFORM,         /* weights 1/Sk over ALL keys, whose values are read; what a mask of -1e6 gives */
    ATTN_EMPTY_COUNT
} attn_empty;                   /* lse is -inf under all three; none applies where a finite sink gives the row mass */

typedef enum attn_isa {         /* instruction sets, weakest first; all compute the same bits */
    ATTN_ISA_AUTO = 0, ATTN_ISA_SCALAR, ATTN_ISA_AVX2, ATTN_ISA_AVX512, ATTN_ISA_COUNT
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
    uint64_t struct_bytes ATTN__0;      /* 0, or sizeof(attn_desc): see BINDINGS */

    /* what attends to what (see SHAPES) */
    attn_view q ATTN__0, k ATTN__0, v ATTN__0; /* rank 4. v may be absent when out is */

    /* results; each may be absent, but not all. f32 */
    attn_out out ATTN__0;               /* [B,H,Sq,Dv] */
    attn_out lse ATTN__0;               /* [B,H,Sq]  log-sum-exp: the logarithm of the row's mass; -inf for an empty
                                           row */
    attn_out weights ATTN__0;           /* [B,H,Sq,Sk]  after softmax, before dropout (but see weights_after_dropout) */
    attn_out scores ATTN__0;            /* [B,H,Sq,Sk]  raw, scale included. All Sk keys, masks or not: reads them
                                           all */
    attn_out scores_softcap ATTN__0;    /* [B,H,Sq,Sk]  after softcap. Likewise all keys */
    attn_out scores_masked ATTN__0;     /* [B,H,Sq,Sk]  after bias, ALiBi and masks; an excluded entry is -inf */

    /* score */
    int32_t score ATTN__0;              /* attn_score */
    int32_t scale_set ATTN__0;          /* nonzero: use `scale` as it is, even 0. Zero: scale 0 means the default */
    float scale ATTN__0;                /* default 1/sqrt(D) for SCALED_DOT, else 1. An error for the distance
                                           kernels */
    float sigma ATTN__0;                /* width of the distance kernels, 1e-18..1e18; 0 = 1 */
    attn_view sigma_per_head ATTN__0;   /* [H]; instead of sigma */
    attn_view bilinear ATTN__0;         /* M [Dq,Dk] or per head [H,Dq,Dk]; here q and k may differ in D */
    attn_view w_q ATTN__0, w_k ATTN__0; /* W_q [h,Dq], W_k [h,Dk], or per head [H,h,.]; absent = identity (then D =
                                           h) */
    attn_view w_v ATTN__0;              /* [h] or [H,h] */
    attn_view hidden_bias ATTN__0;      /* b [h] or [H,h]; absent = 0 */
    attn_view given_scores ATTN__0;     /* [B,H,Sq,Sk], for ATTN_SCORE_GIVEN; sizes are read from here, q and k stay
                                           absent */

    /* what is added to the score */
    float softcap ATTN__0;              /* c > 0: s becomes c*tanh(s/c). 0 = off */
    attn_view bias ATTN__0;             /* f32, rank 1..4, broadcast from the right against [B,H,Sq,Sk] as numpy does */
    attn_view alibi ATTN__0;            /* slopes [H]: adds -slope*|p - j| (Press et al. 2021) */
    attn_view sink ATTN__0;             /* [H]: one more logit in the denominator. A row with a finite sink is never
                                           empty */

    /* which keys a query may attend to: all of these must allow it */
    attn_view mask ATTN__0;             /* u8, nonzero = may attend; rank 1..4, broadcast from the right: rank 2 is
                                           [Sq,Sk], rank 3 [H,Sq,Sk]. One per batch entry: [B,1,Sq,Sk]; padding:
                                           [B,1,1,Sk] */
    attn_view key_lengths ATTN__0;      /* i32/i64 [B] or per query [B,Sq]: keys j < length. 0..Sk */
    attn_view query_lengths ATTN__0;    /* i32/i64 [B]: queries i >= length are empty rows. 0..Sq */
    int32_t causal ATTN__0;             /* nonzero: key j is allowed when j <= p */
    int32_t align ATTN__0;              /* attn_align: p for causal, window and ALiBi */
    attn_view positions ATTN__0;        /* i32/i64 [B] (of the first query) or [B,Sq]; with ATTN_ALIGN_POSITIONS only */
    int32_t window ATTN__0;             /* nonzero: the two below count */
    int32_t empty ATTN__0;              /* attn_empty: rows without a key */
    int64_t window_left ATTN__0;        /* p - window_left <= j <= p + window_right; >= 0 or ATTN_UNBOUNDED */
    int64_t window_right ATTN__0;

    /* dropout of the weights: keep with probability 1-p, scale by 1/(1-p) */
    float dropout ATTN__0;              /* p, 0..1 */
    int32_t weights_after_dropout ATTN__0; /* nonzero: `weights` are returned after dropout */
    uint64_t seed ATTN__0;              /* the mask is a function of seed and the absolute (b,h,i,j), of nothing else */
    int64_t dropout_origin[4] ATTN__0;  /* absolute (b,h,i,j) of this call's first element */

    /* how to run */
    int32_t isa ATTN__0;                /* attn_isa; forced, or an error where the CPU lacks it. For tests and
                                           benchmarks */
    int32_t reserved ATTN__0;           /* 0 */
    void *workspace ATTN__0;            /* attn_workspace_size bytes, any alignment; NULL: one allocation */
    size_t workspace_bytes ATTN__0;
    attn_allocator allocator ATTN__0;
    attn_parallel parallel ATTN__0;

    /* one more result */
    attn_out stats ATTN__0;             /* [B,H,Sq,2]  each row's maximum score and its sum of e^(score - maximum),
                                           without the sink: what attn_backward needs to have the weights again
                                           exactly. -inf and 0 for a row without mass */

    /* with ATTN_CUDA */
    void *stream ATTN__0;               /* the cudaStream_t of a call whose arrays lie on a device; NULL: the default
                                           stream. isa and parallel do not count there */
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
    uint64_t struct_bytes ATTN__0;      /* 0, or sizeof(attn_grad) */

    /* gradients of a loss with respect to the forward's results; each may be absent, but not all */
    attn_view d_out ATTN__0;            /* [B,H,Sq,Dv] */
    attn_view d_weights ATTN__0;        /* [B,H,Sq,Sk]  of the weights as they were returned (see
                                           weights_after_dropout) */
    attn_view d_lse ATTN__0;            /* [B,H,Sq] */

    /* results: with respect to what went in; each may be absent, but not all. Shaped like what they belong to */
    attn_out dq ATTN__0, dk ATTN__0, dv ATTN__0;
    attn_out d_given_scores ATTN__0;    /* [B,H,Sq,Sk], for ATTN_SCORE_GIVEN */
    attn_out d_bias ATTN__0;            /* summed over the axes along which the bias was broadcast, of size 1 or
                                           missing (not where it has stride 0 on an axis of full size) */
    attn_out d_bilinear ATTN__0, d_w_q ATTN__0, d_w_k ATTN__0, d_w_v ATTN__0, d_hidden_bias ATTN__0; /* with or
                                           without the head axis, as the parameter */
    attn_out d_sigma ATTN__0;           /* [1], or [H] with sigma_per_head */
    attn_out d_scale ATTN__0;           /* [1]  of the scale that was used */
    attn_out d_sink ATTN__0, d_alibi ATTN__0; /* [H] */
    uint32_t accumulate ATTN__0;        /* ATTN_GRAD_x bits: these are added to what the outputs hold, the others
                                           written */
    int32_t reserved ATTN__0;           /* 0 */
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
    uint64_t struct_bytes ATTN__0;      /* 0, or sizeof(attn_mha_desc) */
    attn_view query ATTN__0, key ATTN__0, value ATTN__0;
    attn_view w_query ATTN__0, w_key ATTN__0, w_value ATTN__0, w_result ATTN__0;
    attn_view b_query ATTN__0, b_key ATTN__0, b_value ATTN__0, b_result ATTN__0;
    attn_out out ATTN__0;
    int64_t heads ATTN__0;              /* H, required */
    int64_t heads_kv ATTN__0;           /* Hkv; 0 = H */
    const attn_desc *attention ATTN__0;
} attn_mha_desc;
ATTN_DEF attn_status attn_mha(const attn_mha_desc *desc, attn_error *err);
ATTN_DEF attn_status attn_mha_workspace_size(const attn_mha_desc *desc, size_t *bytes, attn_error *err);

#ifndef ATTN_NO_BACKWARD
/* Its gradients. `desc` as it was for attn_mha (out is not read); the projections and the attention are computed again.
   Where key is absent in `desc`, dkey must be too, and its gradient is added to dquery; so value's to dkey, or where
   that stands in, to dquery. */
typedef struct attn_mha_grad {
    uint64_t struct_bytes ATTN__0;      /* 0, or sizeof(attn_mha_grad) */
    attn_view d_out ATTN__0;            /* [B,Sq,Eo] */
    attn_out dquery ATTN__0, dkey ATTN__0, dvalue ATTN__0; /* results; each may be absent, but not all */
    attn_out dw_query ATTN__0, dw_key ATTN__0, dw_value ATTN__0, dw_result ATTN__0;
    attn_out db_query ATTN__0, db_key ATTN__0, db_value ATTN__0, db_result ATTN__0;
    const attn_grad *attention ATTN__0; /* may be NULL; else d_weights, d_lse and all results but dq, dk, dv count,
                                           with their bits of accumulate */
    uint32_t accumulate ATTN__0;        /* 1 << n: the n-th result of the eleven above is added to, not written */
    int32_t reserved ATTN__0;           /* 0 */
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
/* The layout of all structures, for bindings to be checked against or generated from: a line "attn_desc 2112" with a
   structure's size, then a line "    causal 1792 4" with offset and size for each of its fields. As attn_explain. */
ATTN_DEF size_t      attn_layout(char *text, size_t size);
/* The library's own elementary functions, exactly as the kernels use them: y[i] = f(x[i]). exp below 2^-126 is 0.
   isa as in the descriptor. x and y may be the same array. */
typedef enum attn_function { ATTN_EXP = 0, ATTN_LOG, ATTN_TANH, ATTN_FUNCTION_COUNT } attn_function;
ATTN_DEF attn_status attn_elementary(attn_function function, const float *x, float *y, int64_t n, attn_isa isa);

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
    uint64_t struct_bytes ATTN__0;      /* 0, or sizeof(attn_heatmap) */
    attn_view values ATTN__0;           /* f32 or u8; [rows,cols], or [panel cols, rows, cols] (one row of panels),
                                           or [panel rows, panel cols, rows, cols], as d2l's show_heatmaps. Any
                                           strides. The weights [B,H,Sq,Sk] are B rows of H panels as they are */
    const attn_desc *mask_of ATTN__0;   /* instead of values' data: draw this descriptor's mask; values carries only
                                           the sizes [B,H,Sq,Sk] (rank 4, data NULL, u8) */
    const char *title ATTN__0;          /* above all; strings are UTF-8 and escaped as needed; NULL = none */
    const char *x_label ATTN__0;        /* axis titles: "Keys" */
    const char *y_label ATTN__0;        /* "Queries" */
    const char *const *x_ticks ATTN__0; /* [cols] labels of the columns; NULL = their numbers */
    const char *const *y_ticks ATTN__0; /* [rows] labels of the rows */
    const char *const *panel_titles ATTN__0; /* [panel rows * panel cols]; NULL = none */
    int32_t colormap ATTN__0;           /* attn_colormap; low is light in REDS and GREY. NaN has a colour of its own */
    int32_t range_set ATTN__0;          /* nonzero: colours run from range_min to range_max; else over the finite
                                           data */
    float range_min ATTN__0, range_max ATTN__0;
    int32_t width ATTN__0, height ATTN__0; /* of the whole picture in pixels (SVG, PPM); 0 = from the number of cells */
    int32_t ticks_on_top ATTN__0;       /* nonzero: column labels above, not below */
    int32_t no_colorbar ATTN__0;        /* nonzero: leave the colour bar out */
    int32_t numbers ATTN__0;            /* nonzero: print the values in the cells (SVG; terminal with ASCII always
                                           shades) */
    int32_t terminal ATTN__0;           /* attn_terminal, for attn_heatmap_ansi */
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

#undef ATTN__0

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

#if (defined(__x86_64__) || defined(_M_X64)) && !defined(__TINYC__)
#  define ATTN__X64 1
#else
#  define ATTN__X64 0
#endif

/* Vector kernels need no build flag: functions carry their target (gcc, clang), or the compiler needs none (MSVC). */
#if ATTN__X64 && !defined(ATTN_NO_SIMD) && !defined(ATTN_NO_AVX2)
#  define ATTN__HAVE_AVX2 1
#else
#  define ATTN__HAVE_AVX2 0
#endif
#if ATTN__HAVE_AVX2 && !defined(ATTN_NO_AVX512)      /* its table holds some of AVX2's functions */
#  define ATTN__HAVE_AVX512 1
#else
#  define ATTN__HAVE_AVX512 0
#endif
#if ATTN__HAVE_AVX2
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
#  define ATTN__INLINE          static inline __attribute__((always_inline))
#  define ATTN__AVX2            __attribute__((target("avx2,fma")))
#  define ATTN__AVX512          __attribute__((target("avx512f,avx512dq,fma")))
#  define ATTN__COPY(to, from, bytes) __builtin_memcpy(to, from, bytes)
#  define ATTN__PREFETCH(p)     __builtin_prefetch(p)
#  define ATTN__PREFETCH_FAR(p) __builtin_prefetch(p, 0, 2)     /* not into the innermost cache */
#else
#  define ATTN__NOINLINE
#  define ATTN__INLINE          static __inline
#  define ATTN__AVX2
#  define ATTN__AVX512
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
/* Keeps gcc from folding one shared vector load into every multiply-add that uses it (a fifth of the speed). */
#if ATTN__GNU && ATTN__X64
#  define ATTN__KEEP(v) __asm__("" : "+v"(v))
#  define ATTN__KEEP_POINTER(p) __asm__("" : "+r"(p))       /* from making it an index of another one */
#else
#  define ATTN__KEEP(v) ((void)0)
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

typedef struct attn__kernels {
    int32_t width, vecs;        /* floats in a vector; vectors in the widest tile */
    void (*product)(const attn__product *p);
    /* Few rows against B's rows: c[r*c_row + j] = sum over k, ascending, of a[k*a_k + r] * b[j*b_row + k], j < columns.
       Lanes are keys, turned on the way. Up to ATTN__FEW rows; a_k is `width`: so many floats
       can be read there. c has room for whole vectors. a_row, vecs, kind and onto do not count */
    void (*dots)(const attn__product *p, int64_t columns);
    /* s = scale * (w_sum - 2 sum_u w_u / (1 + query_u key_u)), four terms over a common denominator */
    void (*additive)(const attn__additive *p);
    /* s = scale * sum_u w_u tanh(query_u + key_u), for pairs whose exponentials would overflow */
    void (*additive_direct)(const attn__additive *p);
    /* one chunk's softmax for one vector of lanes: s[j][..] (j0 <= j < j1) becomes e^(s - top); its top and its sum.
       mark: an excluded entry (-inf) becomes -0 instead of 0 */
    void (*weigh)(float *s, int64_t ld, int64_t j0, int64_t j1, int mark, float *top, float *sum);
    /* per lane: running (max, sum) and a chunk's (cmax, csum) -> their union; old and fresh are the two factors */
    void (*join)(int64_t lanes, float *top, float *sum, const float *cmax, const float *csum, float *old, float *fresh);
    /* o[r][lane] = o*old[lane] + acc*fresh[lane] */
    void (*merge)(int64_t rows, int64_t ld, float *o, const float *acc, const float *old, const float *fresh);
    int  (*finite)(const float *x, int64_t n);
    /* to[c][lane] = scale[lane] * rows[lane][c*stride], all ld lanes */
    void (*pack)(float *to, int64_t ld, const float *const *rows, int64_t stride, int64_t n, const float *scale);
    /* rows[lane][c*stride] = scale[lane] * from[c][lane] for the first `lanes`; a NaN becomes the one NaN */
    void (*unpack)(float *const *rows, int64_t lanes, int64_t stride, const float *from, int64_t ld, int64_t n,
                   const float *scale);
    void (*exp)(const float *x, float *y, int64_t n);          /* full range */
    void (*log)(const float *x, float *y, int64_t n);
    void (*tanh)(const float *x, float *y, int64_t n);
    /* in place: x = cap*tanh(x/cap); keep: -inf stays -inf */
    void (*softcap)(float *x, int64_t n, float cap, int keep);
    /* in place: a sum of squares becomes the score of a distance kernel; width[lane]: -1/(2 sigma^2) for the Gaussian,
       else sigma^2 */
    void (*distance)(float *s, int64_t ld, int64_t n, int32_t score, const float *width);
    /* s[j][lane] -= slope[lane] * |position[lane] - j| */
    void (*alibi)(float *s, int64_t ld, int64_t n, const float *slope, const float *position);
    /* s[j][lane] = -inf unless first[lane] <= j < last[lane] */
    void (*clip)(float *s, int64_t ld, int64_t n, const int32_t *first, const int32_t *last);
    /* s[j][lane] += rows[lane][j*stride], but -inf there gives -inf whatever s is; keep: an s of -inf stays too */
    void (*bias)(float *s, int64_t ld, int64_t n, const float *const *rows, int64_t stride, int keep);
    /* s[j][lane] = -inf where rows[lane][j*stride] is 0 */
    void (*exclude)(float *s, int64_t ld, int64_t n, const uint8_t *const *rows, int64_t stride);
    /* y[j] = e^(scale*x[j] - top) * factor, 0 where that is below 2^-126 or scale*x[j] is -inf (even when factor is
       NaN); y may be x */
    void (*normalise)(const float *x, float *y, int64_t n, float scale, float top, float factor);
    /* what weigh computes, for one row of scores scale*x[j] that lie side by side; n: a multiple of ATTN__PARTS */
    void (*mass)(const float *x, int64_t n, float scale, float *top, float *sum);
    void (*drop)(const attn__drop *d);
#ifndef ATTN_NO_BACKWARD
    void (*grade)(const attn__grade *g);
    /* sum[lane] = sum over c, ascending, of x[c][lane] y[c][lane] */
    void (*inner)(const float *x, const float *y, int64_t ld, int64_t n, float *sum);
    /* to[c] = from[c]*factor, or to[c] + that in one rounding; a NaN becomes the one NaN */
    void (*deliver)(const float *from, float *to, int64_t n, float factor, int add);
    void (*additive_gradient)(const attn__additive_gradient *g);
    /* y[j*row + u] += the tree of part[j][u][0..15], for n keys and four u */
    void (*fold)(const float *part, int64_t n, float *y, int64_t row);
#endif
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

static void attn__exp_scalar(const float *x, float *y, int64_t n)
{
    int64_t i;
    for (i = 0; i < n; i++) y[i] = attn__exp_full(x[i]);
}
static void attn__log_scalar(const float *x, float *y, int64_t n)
{
    int64_t i;
    for (i = 0; i < n; i++) y[i] = attn__log(x[i]);
}
static void attn__tanh_scalar(const float *x, float *y, int64_t n)
{
    int64_t i;
    for (i = 0; i < n; i++) y[i] = attn__tanh(x[i]);
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

static const attn__kernels attn__table_scalar = {
    1, 8, attn__product_scalar, attn__dots_scalar, attn__additive_scalar, attn__additive_direct_scalar,
    attn__weigh_scalar, attn__join_scalar, attn__merge_scalar, attn__finite_scalar, attn__pack_scalar,
    attn__unpack_scalar, attn__exp_scalar, attn__log_scalar, attn__tanh_scalar, attn__softcap_scalar,
    attn__distance_scalar, attn__alibi_scalar, attn__clip_scalar, attn__bias_scalar, attn__exclude_scalar,
    attn__normalise_scalar, attn__mass_scalar, attn__drop_scalar
#ifndef ATTN_NO_BACKWARD
    , attn__grade_scalar, attn__inner_scalar, attn__deliver_scalar, attn__additive_gradient_scalar, attn__fold_scalar
#endif
};

/* ------------------------------------------------------------------------------------------------ >>kernels-avx2
   8 lanes. Adds, subtractions and multiplications are operators where the compiler has them for vectors: those obey the
   arithmetic pragmas of >>platform, intrinsics from a header that was parsed under -ffast-math do not. */
#if ATTN__HAVE_AVX2
#if ATTN__GNU
#  define ATTN__ADD8(a, b) ((a) + (b))
#  define ATTN__SUB8(a, b) ((a) - (b))
#  define ATTN__MUL8(a, b) ((a) * (b))
#  define ATTN__DIV8(a, b) ((a) / (b))
#else
#  define ATTN__ADD8(a, b) _mm256_add_ps(a, b)
#  define ATTN__SUB8(a, b) _mm256_sub_ps(a, b)
#  define ATTN__MUL8(a, b) _mm256_mul_ps(a, b)
#  define ATTN__DIV8(a, b) _mm256_div_ps(a, b)
#endif
#if ATTN__CLANG_FAST           /* the instructions themselves: nothing to fold */
#  define ATTN__OP8(name, result, kind, text) \
    ATTN__INLINE ATTN__AVX2 result name(__m256 a, __m256 b) \
    { result r; __asm__(text " %2, %1, %0" : kind(r) : "x"(a), "x"(b)); return r; }
ATTN__OP8(ATTN__MIN8, __m256, "=x", "vminps")
ATTN__OP8(ATTN__MAX8, __m256, "=x", "vmaxps")
ATTN__OP8(ATTN__LESS8, __m256, "=x", "vcmpps $17,")
ATTN__OP8(ATTN__AT_MOST8, __m256, "=x", "vcmpps $18,")
ATTN__OP8(ATTN__SAME8, __m256, "=x", "vcmpps $0,")
ATTN__OP8(ATTN__UNORDERED8, __m256, "=x", "vcmpps $3,")
ATTN__INLINE ATTN__AVX2 __m256 ATTN__FMA8(__m256 a, __m256 b, __m256 c)
{ __asm__("vfmadd231ps %2, %1, %0" : "+x"(c) : "x"(a), "x"(b)); return c; }
ATTN__INLINE ATTN__AVX2 __m256 ATTN__SQRT8(__m256 x)
{ __m256 r; __asm__("vsqrtps %1, %0" : "=x"(r) : "x"(x)); return r; }
#else
#  define ATTN__FMA8(a, b, c)       _mm256_fmadd_ps(a, b, c)
#  define ATTN__MIN8(a, b)          _mm256_min_ps(a, b)         /* b where either is NaN; so is max */
#  define ATTN__MAX8(a, b)          _mm256_max_ps(a, b)
#  define ATTN__SQRT8(x)            _mm256_sqrt_ps(x)
#  define ATTN__LESS8(a, b)         _mm256_cmp_ps(a, b, _CMP_LT_OQ)
#  define ATTN__AT_MOST8(a, b)      _mm256_cmp_ps(a, b, _CMP_LE_OQ)
#  define ATTN__SAME8(a, b)         _mm256_cmp_ps(a, b, _CMP_EQ_OQ)
#  define ATTN__UNORDERED8(a, b)    _mm256_cmp_ps(a, b, _CMP_UNORD_Q)
#endif
#define ATTN__ALL8(x)       _mm256_set1_ps(x)
#define ATTN__LOAD8(p)      _mm256_loadu_ps(p)
#define ATTN__STORE8(p, v)  _mm256_storeu_ps(p, v)
/* x where the mask's sign bit is clear, y where it is set */
#define ATTN__PICK8(x, y, mask) _mm256_blendv_ps(x, y, mask)
#define ATTN__SHIFT8(x, n)  _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x), n))

/* ---- exp, log, tanh: step by step those of >>math */
ATTN__INLINE ATTN__AVX2 __m256 attn__exp_poly_avx2(__m256 x, __m256 *shifted)
{
    const __m256 t = ATTN__FMA8(x, ATTN__ALL8(ATTN__LOG2E), ATTN__ALL8(ATTN__EXP_MAGIC));
    const __m256 n = ATTN__SUB8(t, ATTN__ALL8(ATTN__EXP_MAGIC));
    __m256 r = ATTN__FMA8(n, ATTN__ALL8(-ATTN__LN2_HI), x), p;
    r = ATTN__FMA8(n, ATTN__ALL8(-ATTN__LN2_LO), r);
    p = ATTN__FMA8(ATTN__ALL8(ATTN__EXP_C6), r, ATTN__ALL8(ATTN__EXP_C5));
    p = ATTN__FMA8(p, r, ATTN__ALL8(ATTN__EXP_C4));
    p = ATTN__FMA8(p, r, ATTN__ALL8(ATTN__EXP_C3));
    p = ATTN__FMA8(p, r, ATTN__ALL8(ATTN__EXP_C2));
    p = ATTN__FMA8(p, r, ATTN__ALL8(1.0f));
    *shifted = t;
    return ATTN__FMA8(p, r, ATTN__ALL8(1.0f));
}

ATTN__INLINE ATTN__AVX2 __m256 attn__exp8(__m256 x)
{
    __m256 t;
    const __m256 p = attn__exp_poly_avx2(x, &t);
    return _mm256_andnot_ps(ATTN__LESS8(x, ATTN__ALL8(ATTN__EXP_LOWEST)),
                            ATTN__MUL8(p, ATTN__SHIFT8(t, 23)));
}

ATTN__INLINE ATTN__AVX2 __m256 attn__exp_full8(__m256 x)
{
    const __m256i bias = _mm256_set1_epi32(127);
    __m256 t, p;
    __m256i n, half;
    x = ATTN__MIN8(ATTN__ALL8(100.0f), x);                   /* in this order NaN passes */
    p = attn__exp_poly_avx2(x, &t);
    n = _mm256_sub_epi32(_mm256_castps_si256(t), _mm256_castps_si256(ATTN__ALL8(ATTN__EXP_MAGIC)));
    half = _mm256_srai_epi32(n, 1);
    p = ATTN__MUL8(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
    p = ATTN__MUL8(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(n, half), bias), 23)));
    return _mm256_andnot_ps(ATTN__LESS8(x, ATTN__ALL8(ATTN__EXP_LOWEST)), p);
}

ATTN__INLINE ATTN__AVX2 __m256 attn__log8(__m256 x)
{
    const __m256i root = _mm256_set1_epi32((int32_t)ATTN__SQRT_HALF);
    const __m256 tiny = ATTN__LESS8(x, ATTN__ALL8(ATTN__SMALLEST));
    const __m256 y = ATTN__PICK8(x, ATTN__MUL8(x, ATTN__ALL8(8388608.0f)), tiny);
    const __m256i b = _mm256_sub_epi32(_mm256_castps_si256(y), root);
    const __m256 e = ATTN__SUB8(_mm256_cvtepi32_ps(_mm256_srai_epi32(b, 23)), _mm256_and_ps(tiny, ATTN__ALL8(23.0f)));
    const __m256 m = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_and_si256(b, _mm256_set1_epi32(0x007fffff)), root));
    const __m256 f = ATTN__SUB8(m, ATTN__ALL8(1.0f)), f2 = ATTN__MUL8(f, f);
    __m256 q = ATTN__FMA8(ATTN__ALL8(ATTN__LOG_C7), f, ATTN__ALL8(ATTN__LOG_C6));
    q = ATTN__FMA8(q, f, ATTN__ALL8(ATTN__LOG_C5));
    q = ATTN__FMA8(q, f, ATTN__ALL8(ATTN__LOG_C4));
    q = ATTN__FMA8(q, f, ATTN__ALL8(ATTN__LOG_C3));
    q = ATTN__FMA8(q, f, ATTN__ALL8(ATTN__LOG_C2));
    q = ATTN__FMA8(q, f, ATTN__ALL8(ATTN__LOG_C1));
    q = ATTN__FMA8(q, f, ATTN__ALL8(ATTN__LOG_C0));
    q = ATTN__FMA8(q, f, ATTN__ALL8(-0.5f));
    q = ATTN__FMA8(e, ATTN__ALL8(ATTN__LN2_LO), ATTN__MUL8(q, f2));
    q = ATTN__FMA8(e, ATTN__ALL8(ATTN__LN2_HI), ATTN__ADD8(q, f));
    q = ATTN__PICK8(q, x, ATTN__SAME8(x, ATTN__ALL8(ATTN__INF)));
    q = ATTN__PICK8(ATTN__ALL8(ATTN__NAN), q, ATTN__LESS8(_mm256_setzero_ps(), x));
    return ATTN__PICK8(q, ATTN__ALL8(ATTN__NEG_INF), ATTN__SAME8(x, _mm256_setzero_ps()));
}

ATTN__INLINE ATTN__AVX2 __m256 attn__tanh8(__m256 x)
{
    const __m256 sign = _mm256_and_ps(x, ATTN__ALL8(-0.0f)), one = ATTN__ALL8(1.0f);
    const __m256 b = ATTN__MIN8(ATTN__ALL8(10.0f), _mm256_xor_ps(x, sign)), x2 = ATTN__MUL8(b, b);
    __m256 p = ATTN__FMA8(ATTN__ALL8(ATTN__TANH_C4), x2, ATTN__ALL8(ATTN__TANH_C3)), y;
    p = ATTN__FMA8(p, x2, ATTN__ALL8(ATTN__TANH_C2));
    p = ATTN__FMA8(p, x2, ATTN__ALL8(ATTN__TANH_C1));
    p = ATTN__FMA8(p, x2, ATTN__ALL8(ATTN__TANH_C0));
    y = ATTN__SUB8(one, ATTN__DIV8(ATTN__ALL8(2.0f), ATTN__ADD8(attn__exp8(ATTN__ADD8(b, b)), one)));
    p = ATTN__FMA8(ATTN__MUL8(b, x2), p, b);
    y = ATTN__PICK8(y, p, ATTN__LESS8(b, ATTN__ALL8(ATTN__TANH_SPLIT)));
    return _mm256_or_ps(y, sign);
}

ATTN__INLINE ATTN__AVX2 __m256 attn__quiet8(__m256 x)
{
    return ATTN__PICK8(x, ATTN__ALL8(ATTN__NAN), ATTN__UNORDERED8(x, x));
}

/* ---- products */
/* Brings the rows of A after r .. r+n near, and the other matrix's rows r .. r+n. */
static void attn__fetch(const attn__product *p, int64_t r, int64_t n)
{
    int64_t i, k;
    for (i = r; i < r + n; i++) {
        const float *a = attn__ahead(p->a, i + n, p->a_row), *other = attn__ahead(p->fetch, i, p->fetch_row);
        for (k = 0; k < p->depth; k += 16) ATTN__PREFETCH(a + k);
        for (k = 0; k < p->fetch_size; k += 16) ATTN__PREFETCH_FAR(other + k);
    }
}

/* The same for a block of W rows, step by step along their `depth` columns: at column k what belongs to W of them. */
ATTN__INLINE void attn__fetch_block(const int W, const float *at, int64_t row, int64_t depth, int64_t k)
{
    int x;
    if (row == depth) ATTN__UNROLL for (x = 0; x < W*W; x += 16) ATTN__PREFETCH_FAR(attn__ahead(at, 1, W*k + x));
    else if (k % 16 == 0) for (x = 0; x < W; x++) ATTN__PREFETCH_FAR(attn__ahead(at, x, row) + k);
}

/* A strip of R rows and N vectors in registers. R, N and kind are constants where this is inlined. */
ATTN__INLINE ATTN__AVX2 void attn__strip_avx2(const int R, const int N, const int kind, const attn__product *p,
                                              const float *a, float *c)
{
    const int64_t a_row = p->a_row, a_k = p->a_k, b_row = p->b_row, c_row = p->c_row;
    const float *b = p->b, *a3 = a + 3*a_row;       /* of six rows three: else their distances do not fit registers */
    const int64_t depth = p->depth;
    __m256 acc[12], q[8], s, t;
    int64_t k;
    int r, i;
    if (R == 6) ATTN__KEEP_POINTER(a3);
    if (p->onto == ATTN__ADD_AFTER) ATTN__UNROLL for (r = 0; r < R; r++) ATTN__PREFETCH(c + r*c_row);
    ATTN__UNROLL for (r = 0; r < R; r++)
        ATTN__UNROLL for (i = 0; i < N; i++) acc[r*N + i] =
            p->onto == ATTN__GO_ON ? ATTN__LOAD8(c + r*c_row + 8*i) : _mm256_setzero_ps();
    for (k = depth; k > 0; k--, a += a_k, a3 += a_k, b += b_row) {
        if (N == 8) ATTN__UNROLL for (i = 0; i < 4; i++) {
            ATTN__PREFETCH(attn__ahead(b, 16, b_row) + 16*i);
            if (p->fetch) ATTN__PREFETCH_FAR(attn__ahead(p->fetch, depth - k, p->fetch_row) + 16*i);
        }
        ATTN__UNROLL for (i = 0; i < N; i++) {
            q[i] = ATTN__LOAD8(b + 8*i);
            if (R > 1 && kind != ATTN__SQUARED_DISTANCE) ATTN__KEEP(q[i]);  /* no register to spare: read again */
        }
        ATTN__UNROLL for (r = 0; r < R; r++) {
            s = _mm256_broadcast_ss(R == 6 && r >= 3 ? a3 + (r - 3)*a_row : a + r*a_row);
            ATTN__UNROLL for (i = 0; i < N; i++) {
                if (kind == ATTN__SQUARED_DISTANCE) { t = ATTN__SUB8(s, q[i]); acc[r*N + i] = ATTN__FMA8(t, t,
                    acc[r*N + i]); }
                else if (kind == ATTN__PRODUCT) acc[r*N + i] = ATTN__FMA8(s, q[i], acc[r*N + i]);
                else if (kind == ATTN__WEIGHTED_DIFFERENCE) acc[r*N + i] = ATTN__FMA8(s,
                    ATTN__SUB8(q[i], ATTN__LOAD8(p->x + r*p->x_row + 8*i)), acc[r*N + i]);
                else acc[r*N + i] = ATTN__PICK8(ATTN__FMA8(s, q[i], acc[r*N + i]), acc[r*N + i], q[i]);
            }
        }
    }
    if (p->onto == ATTN__ADD_AFTER) ATTN__UNROLL for (r = 0; r < R; r++)
        ATTN__UNROLL for (i = 0; i < N; i++) acc[r*N + i] = ATTN__ADD8(ATTN__LOAD8(c + r*c_row + 8*i), acc[r*N + i]);
    ATTN__UNROLL for (r = 0; r < R; r++)
        ATTN__UNROLL for (i = 0; i < N; i++) ATTN__STORE8(c + r*c_row + 8*i, acc[r*N + i]);
}

/* All rows: strips of R, then of two (where it pays to compile them), then single ones. */
ATTN__INLINE ATTN__AVX2 void attn__rows_avx2(const int R, const int N, const int kind, const attn__product *p)
{
    int64_t r = 0;
    for (; r + R <= p->rows; r += R) {
        if (p->fetch) attn__fetch(p, r, R);
        attn__strip_avx2(R, N, kind, p, p->a + r*p->a_row, p->c + r*p->c_row);
    }
    if (kind == ATTN__PRODUCT) for (; r + 2 <= p->rows; r += 2)
        attn__strip_avx2(2, N, kind, p, p->a + r*p->a_row, p->c + r*p->c_row);
    for (; r < p->rows; r++) attn__strip_avx2(1, N, kind, p, p->a + r*p->a_row, p->c + r*p->c_row);
}

/* What is rarer than a product, in one or two vectors at a time: short rather than fast. */
ATTN__AVX2 static void attn__product_rare_avx2(const attn__product *p)
{
    attn__product part = *p;
    int64_t r, i;
    for (i = 0; i < p->vecs; i += part.vecs) {
        part.b = p->b + 8*i;
        part.c = p->c + 8*i;
        part.vecs = p->kind == ATTN__SQUARED_DISTANCE && i + 2 <= p->vecs ? 2 : 1;
        if (part.vecs == 2) attn__rows_avx2(6, 2, ATTN__SQUARED_DISTANCE, &part);
        else if (p->kind == ATTN__SQUARED_DISTANCE) attn__rows_avx2(8, 1, ATTN__SQUARED_DISTANCE, &part);
        else for (r = 0; r < p->rows; r++)
            if (p->kind == ATTN__WEIGHTED_DIFFERENCE) {
                part.x = p->x + r*p->x_row + 8*i;
                attn__strip_avx2(1, 1, ATTN__WEIGHTED_DIFFERENCE, &part, part.a + r*part.a_row, part.c + r*part.c_row);
            } else attn__strip_avx2(1, 1, ATTN__PRODUCT_OF_ALLOWED, &part, part.a + r*part.a_row,
                                     part.c + r*part.c_row);
    }
}

ATTN__AVX2 static void attn__product_avx2(const attn__product *p)
{
    ATTN_ASSERT(p->vecs < 8 || (p->rows == 1 && p->kind == ATTN__PRODUCT));
    if (p->kind != ATTN__PRODUCT) attn__product_rare_avx2(p);
    else if (p->vecs == 8) attn__strip_avx2(1, 8, ATTN__PRODUCT, p, p->a, p->c);    /* few rows: B is read in place */
    else if (p->vecs == 3) attn__rows_avx2(4, 3, ATTN__PRODUCT, p);
    else if (p->vecs == 2) attn__rows_avx2(6, 2, ATTN__PRODUCT, p);
    else attn__rows_avx2(8, 1, ATTN__PRODUCT, p);
}

/* ---- additive scores */
ATTN__INLINE ATTN__AVX2 __m256 attn__tree_avx2(const int n, __m256 *part)     /* step by step that of attn__tree */
{
    int r;
    ATTN__UNROLL for (r = 0; r < 8; r++) if (r + 8 < n) part[r] = ATTN__ADD8(part[r], part[r + 8]);
    ATTN__UNROLL for (r = 0; r < 4; r++) if (r + 4 < n) part[r] = ATTN__ADD8(part[r], part[r + 4]);
    ATTN__UNROLL for (r = 0; r < 2; r++) part[r] = ATTN__ADD8(part[r], part[r + 2]);
    return ATTN__ADD8(part[0], part[1]);
}

/* Four hidden units: their terms over a common denominator. */
ATTN__INLINE ATTN__AVX2 __m256 attn__additive_terms_avx2(const float *e, int64_t ld, const float *f, const float *w)
{
    const __m256 cap = ATTN__ALL8(1073741824.0f), one = ATTN__ALL8(1.0f);
    __m256 a = ATTN__FMA8(ATTN__LOAD8(e), _mm256_broadcast_ss(f), one);
    __m256 b = ATTN__FMA8(ATTN__LOAD8(e + ld), _mm256_broadcast_ss(f + 1), one);
    __m256 c = ATTN__FMA8(ATTN__LOAD8(e + 2*ld), _mm256_broadcast_ss(f + 2), one);
    __m256 d = ATTN__FMA8(ATTN__LOAD8(e + 3*ld), _mm256_broadcast_ss(f + 3), one), n0, n1;
    a = ATTN__MIN8(a, cap);
    b = ATTN__MIN8(b, cap);
    c = ATTN__MIN8(c, cap);
    d = ATTN__MIN8(d, cap);
    n0 = ATTN__FMA8(_mm256_broadcast_ss(w), b, ATTN__MUL8(_mm256_broadcast_ss(w + 1), a));
    n1 = ATTN__FMA8(_mm256_broadcast_ss(w + 2), d, ATTN__MUL8(_mm256_broadcast_ss(w + 3), c));
    a = ATTN__MUL8(a, b);
    c = ATTN__MUL8(c, d);
    return ATTN__DIV8(ATTN__FMA8(n0, c, ATTN__MUL8(n1, a)), ATTN__MUL8(a, c));
}

ATTN__AVX2 static void attn__additive_avx2(const attn__additive *p)
{
    const int64_t ld = p->ld;
    int64_t j, u;
    int32_t i;
    int g;
    for (i = 0; i < p->vecs; i++)
        for (j = 0; j < p->rows; j++) {
            const float *f = p->key + j * p->key_stride, *e = p->query + 8*i, *w = p->w;
            __m256 part[ATTN__TERMS];
            ATTN__UNROLL for (g = 0; g < ATTN__TERMS; g++) part[g] = _mm256_setzero_ps();
            for (u = 0; u < p->hidden; u += 4*ATTN__TERMS)
                ATTN__UNROLL for (g = 0; g < ATTN__TERMS; g++) {
                    if (u + 4*g >= p->hidden) break;
                    part[g] = ATTN__ADD8(part[g], attn__additive_terms_avx2(e, ld, f, w));
                    e += 4*ld;
                    f += 4;
                    w += 4;
                }
            part[0] = ATTN__FMA8(ATTN__ALL8(-2.0f), attn__tree_avx2(ATTN__TERMS, part), ATTN__ALL8(p->w_sum));
            ATTN__STORE8(p->s + j*ld + 8*i, ATTN__MUL8(ATTN__ALL8(p->scale), part[0]));
        }
}

ATTN__AVX2 static void attn__additive_direct_avx2(const attn__additive *p)
{
    int64_t j, u;
    int32_t i;
    for (j = 0; j < p->rows; j++)
        for (i = 0; i < p->vecs; i++) {
            __m256 part[ATTN__TERMS];
            for (u = 0; u < ATTN__TERMS; u++) part[u] = _mm256_setzero_ps();
            for (u = 0; u < p->hidden; u++) {
                const __m256 x = ATTN__ADD8(ATTN__LOAD8(p->query + u*p->ld + 8*i),
                                            _mm256_broadcast_ss(p->key + j*p->key_stride + u));
                __m256 *sum = part + u % ATTN__TERMS;
                *sum = ATTN__FMA8(_mm256_broadcast_ss(p->w + u), attn__tanh8(x), *sum);
            }
            ATTN__STORE8(p->s + j*p->ld + 8*i, ATTN__MUL8(ATTN__ALL8(p->scale), attn__tree_avx2(ATTN__TERMS, part)));
        }
}

/* ---- weights, and chunks into the whole */
/* e^x of N vectors, none above 0, step by step, so that none waits for another. low: where some may underflow. Then,
   and only then, the result is below 2^-126: to be cut there, for the same bits, which keeps a register free here. */
ATTN__INLINE ATTN__AVX2 void attn__exp_side_by_side_avx2(const int N, const int low, __m256 *x)
{
    __m256 t[4], n[4], p[4];
    int u;
    if (low) ATTN__UNROLL for (u = 0; u < N; u++) x[u] = ATTN__MAX8(ATTN__ALL8(ATTN__EXP_NOTHING), x[u]);
    ATTN__UNROLL for (u = 0; u < N; u++)
        t[u] = ATTN__FMA8(x[u], ATTN__ALL8(ATTN__LOG2E), ATTN__ALL8(ATTN__EXP_MAGIC));
    ATTN__UNROLL for (u = 0; u < N; u++) n[u] = ATTN__SUB8(t[u], ATTN__ALL8(ATTN__EXP_MAGIC));
    ATTN__UNROLL for (u = 0; u < N; u++) x[u] = ATTN__FMA8(n[u], ATTN__ALL8(-ATTN__LN2_HI), x[u]);
    ATTN__UNROLL for (u = 0; u < N; u++) x[u] = ATTN__FMA8(n[u], ATTN__ALL8(-ATTN__LN2_LO), x[u]);
    ATTN__UNROLL for (u = 0; u < N; u++)
        p[u] = ATTN__FMA8(ATTN__ALL8(ATTN__EXP_C6), x[u], ATTN__ALL8(ATTN__EXP_C5));
    ATTN__UNROLL for (u = 0; u < N; u++) p[u] = ATTN__FMA8(p[u], x[u], ATTN__ALL8(ATTN__EXP_C4));
    ATTN__UNROLL for (u = 0; u < N; u++) p[u] = ATTN__FMA8(p[u], x[u], ATTN__ALL8(ATTN__EXP_C3));
    ATTN__UNROLL for (u = 0; u < N; u++) p[u] = ATTN__FMA8(p[u], x[u], ATTN__ALL8(ATTN__EXP_C2));
    ATTN__UNROLL for (u = 0; u < N; u++) p[u] = ATTN__FMA8(p[u], x[u], ATTN__ALL8(1.0f));
    ATTN__UNROLL for (u = 0; u < N; u++) p[u] = ATTN__FMA8(p[u], x[u], ATTN__ALL8(1.0f));
    ATTN__UNROLL for (u = 0; u < N; u++) x[u] = ATTN__MUL8(p[u], ATTN__SHIFT8(t[u], 23));
}

/* Scores of N keys become weights. */
ATTN__INLINE ATTN__AVX2 void attn__weigh_keys_avx2(const int N, const int low, float *s, int64_t ld, __m256 base,
                                                   int mark, __m256 *part)
{
    __m256 x[4];
    int u;
    ATTN__UNROLL for (u = 0; u < N; u++) x[u] = ATTN__SUB8(ATTN__LOAD8(s + u*ld), base);
    attn__exp_side_by_side_avx2(N, low, x);
    ATTN__UNROLL for (u = 0; u < N; u++) {
        x[u] = _mm256_andnot_ps(ATTN__LESS8(x[u], ATTN__ALL8(ATTN__SMALLEST)), x[u]);
        if (mark) x[u] = ATTN__PICK8(x[u], ATTN__ALL8(-0.0f),
                                      ATTN__SAME8(ATTN__LOAD8(s + u*ld), ATTN__ALL8(ATTN__NEG_INF)));
        ATTN__STORE8(s + u*ld, x[u]);
        part[u] = ATTN__ADD8(part[u], x[u]);
    }
}

/* Whole groups of 16 keys, each with its own sum, go four at a time. */
ATTN__AVX2 static void attn__weigh_avx2(float *s, int64_t ld, int64_t j0, int64_t j1, int mark, float *top, float *sum)
{
    const __m256 none = ATTN__ALL8(ATTN__NEG_INF);
    __m256 m, base, part[ATTN__PARTS], largest[4], least = ATTN__ALL8(ATTN__INF);
    int64_t j;
    int r, u, w, low;
    ATTN__UNROLL for (u = 0; u < 4; u++) largest[u] = none;
    for (j = j0; j + 4 <= j1; j += 4)
        ATTN__UNROLL for (u = 0; u < 4; u++) {
            base = ATTN__LOAD8(s + (j + u)*ld);
            largest[u] = ATTN__MAX8(base, largest[u]);
            least = ATTN__MIN8(base, least);
        }
    low = j < j1;
    for (; j < j1; j++) largest[0] = ATTN__MAX8(ATTN__LOAD8(s + j*ld), largest[0]);
    m = ATTN__MAX8(ATTN__MAX8(largest[0], largest[1]), ATTN__MAX8(largest[2], largest[3]));
    m = ATTN__ADD8(m, ATTN__ALL8(0.0f));
    base = _mm256_andnot_ps(ATTN__SAME8(m, none), m);
    low = low || _mm256_movemask_ps(ATTN__LESS8(ATTN__SUB8(least, base), ATTN__ALL8(ATTN__EXP_LOWEST)));
    ATTN__UNROLL for (r = 0; r < ATTN__PARTS; r++) part[r] = _mm256_setzero_ps();
    for (j = j0; j < j1; j += w) {
        r = (int)((uint64_t)j % ATTN__PARTS);
        w = r == 0 && j + ATTN__PARTS <= j1 && !mark ? ATTN__PARTS : 1;
        if (w == 1) attn__weigh_keys_avx2(1, 1, s + j*ld, ld, base, mark, part + r);
        else if (low) for (r = 0; r < ATTN__PARTS; r += 4)
            attn__weigh_keys_avx2(4, 1, s + (j + r)*ld, ld, base, 0, part + r);
        else for (r = 0; r < ATTN__PARTS; r += 4) attn__weigh_keys_avx2(4, 0, s + (j + r)*ld, ld, base, 0, part + r);
    }
    ATTN__STORE8(top, m);
    ATTN__STORE8(sum, attn__tree_avx2(ATTN__PARTS, part));
}

ATTN__AVX2 static void attn__join_avx2(int64_t lanes, float *top, float *sum, const float *cmax, const float *csum,
                                       float *old, float *fresh)
{
    const __m256 none = ATTN__ALL8(ATTN__NEG_INF);
    int64_t i;
    for (i = 0; i < lanes; i += 8) {
        const __m256 before = ATTN__LOAD8(top + i), now = ATTN__LOAD8(cmax + i), m = ATTN__MAX8(now, before);
        const __m256 base = _mm256_andnot_ps(ATTN__SAME8(m, none), m);
        const __m256 x = attn__exp8(ATTN__SUB8(before, base)), y = attn__exp8(ATTN__SUB8(now, base));
        ATTN__STORE8(old + i, x);
        ATTN__STORE8(fresh + i, y);
        ATTN__STORE8(sum + i, ATTN__FMA8(ATTN__LOAD8(csum + i), y, ATTN__MUL8(ATTN__LOAD8(sum + i), x)));
        ATTN__STORE8(top + i, m);
    }
}

ATTN__AVX2 static void attn__merge_avx2(int64_t rows, int64_t ld, float *o, const float *acc, const float *old,
                                        const float *fresh)
{
    int64_t r, i;
    for (r = 0; r < rows; r++, o += ld, acc += ld)
        for (i = 0; i < ld; i += 8) {
            const __m256 kept = ATTN__MUL8(ATTN__LOAD8(o + i), ATTN__LOAD8(old + i));
            ATTN__STORE8(o + i, ATTN__ADD8(ATTN__FMA8(ATTN__LOAD8(acc + i), ATTN__LOAD8(fresh + i), kept),
                                           _mm256_setzero_ps()));
        }
}

/* ---- rows into lanes and back; few rows */
/* 8 keys of 8 lanes at a time: the bytes of a key come to lie side by side */
ATTN__AVX2 static void attn__exclude_avx2(float *s, int64_t ld, int64_t n, const uint8_t *const *rows, int64_t stride)
{
    const __m256 none = ATTN__ALL8(ATTN__NEG_INF);
    const int64_t whole = stride == 1 && ld % 8 == 0 ? n & ~(int64_t)7 : 0;
    const uint8_t *tail[ATTN__MAX_LANES];
    int64_t i, j;
    int x;
    for (i = 0; i < ld; i += 8)
        for (j = 0; j < whole; j += 8) {
            __m128i r[8], t[4], u[4];
            for (x = 0; x < 8; x++) r[x] = _mm_loadl_epi64((const __m128i *)(const void *)(rows[i + x] + j));
            for (x = 0; x < 4; x++) t[x] = _mm_unpacklo_epi8(r[2*x], r[2*x + 1]);
            for (x = 0; x < 2; x++) {
                u[x] = _mm_unpacklo_epi16(t[2*x], t[2*x + 1]);
                u[x + 2] = _mm_unpackhi_epi16(t[2*x], t[2*x + 1]);
            }
            for (x = 0; x < 2; x++) {
                r[4*x] = _mm_unpacklo_epi32(u[2*x], u[2*x + 1]);
                r[4*x + 2] = _mm_unpackhi_epi32(u[2*x], u[2*x + 1]);
                r[4*x + 1] = _mm_srli_si128(r[4*x], 8);
                r[4*x + 3] = _mm_srli_si128(r[4*x + 2], 8);
            }
            for (x = 0; x < 8; x++) {
                float *at = s + (j + x)*ld + i;
                const __m256i out = _mm256_cmpeq_epi32(_mm256_cvtepu8_epi32(r[x]), _mm256_setzero_si256());
                ATTN__STORE8(at, ATTN__PICK8(ATTN__LOAD8(at), none, _mm256_castsi256_ps(out)));
            }
        }
    for (i = 0; i < ld; i++) tail[i] = rows[i] + whole * stride;
    attn__exclude_scalar(s + whole*ld, ld, n - whole, tail, stride);
}

ATTN__AVX2 static int attn__finite_avx2(const float *x, int64_t n)
{
    const __m256i exponent = _mm256_set1_epi32(0x7f800000);
    __m256i bad = _mm256_setzero_si256();
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        bad = _mm256_or_si256(bad, _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_castps_si256(ATTN__LOAD8(x + i)),
            exponent), exponent));
    return _mm256_testz_si256(bad, bad) && attn__finite_scalar(x + i, n - i);
}

/* rows of 8 registers <-> columns */
ATTN__INLINE ATTN__AVX2 void attn__transpose8(__m256 *r)
{
    __m256 t[8], u[8];
    int i;
    ATTN__UNROLL for (i = 0; i < 4; i++) {
        t[2*i] = _mm256_unpacklo_ps(r[2*i], r[2*i + 1]);
        t[2*i + 1] = _mm256_unpackhi_ps(r[2*i], r[2*i + 1]);
    }
    ATTN__UNROLL for (i = 0; i < 8; i += 4) {
        u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    ATTN__UNROLL for (i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

/* R rows against 8 of B's rows. On the way come near, in the order of memory, so that the machine's own prefetching
   follows: B's rows after the next ones, and as many of the matrix that is used next. */
ATTN__INLINE ATTN__AVX2 void attn__dots_block_avx2(const int R, const attn__product *p, int64_t j, int64_t last)
{
    const int64_t row = p->b_row;
    const float *a = p->a, *b = p->b + j*row, *y;
    const float *ahead = attn__ahead(b, 16, row), *fetch = attn__ahead(p->fetch, j, p->fetch_row);
    float *c = p->c + j, column[8];
    __m256 acc[ATTN__FEW], t[8];
    int64_t k = 0;
    int r, x;
    ATTN__UNROLL for (r = 0; r < R; r++) acc[r] = _mm256_setzero_ps();
    for (; k + 8 <= p->depth; k += 8) {
        ATTN__UNROLL for (y = b + k, x = 0; x < 8; x++, y += x <= last ? row : 0) t[x] = ATTN__LOAD8(y);
        attn__fetch_block(8, ahead, row, p->depth, k);
        if (p->fetch) attn__fetch_block(8, fetch, p->fetch_row, p->depth, k);
        attn__transpose8(t);
        ATTN__UNROLL for (x = 0; x < 8; x++, a += 8)
            ATTN__UNROLL for (r = 0; r < R; r++) acc[r] = ATTN__FMA8(_mm256_broadcast_ss(a + r), t[x], acc[r]);
    }
    for (; k < p->depth; k++, a += 8) {
        for (y = b + k, x = 0; x < 8; x++, y += x <= last ? row : 0) column[x] = *y;
        t[0] = ATTN__LOAD8(column);
        ATTN__UNROLL for (r = 0; r < R; r++) acc[r] = ATTN__FMA8(_mm256_broadcast_ss(a + r), t[0], acc[r]);
    }
    ATTN__UNROLL for (r = 0; r < R; r++, c += p->c_row) if (r < p->rows) ATTN__STORE8(c, acc[r]);
}

ATTN__AVX2 static void attn__dots_avx2(const attn__product *p, int64_t columns)
{
    int64_t j;
    ATTN_ASSERT(p->a_k == 8);
    for (j = 0; j + 8 <= columns; j += 8)
        if (p->rows == 1) attn__dots_block_avx2(1, p, j, 7);
        else attn__dots_block_avx2(ATTN__FEW, p, j, 7);
    if (j < columns) attn__dots_block_avx2(ATTN__FEW, p, j, columns - 1 - j);     /* its last row again and again */
}

ATTN__AVX2 static void attn__pack_avx2(float *to, int64_t ld, const float *const *rows, int64_t stride, int64_t n,
                                       const float *scale)
{
    const int64_t whole = stride == 1 ? n & ~(int64_t)7 : 0;
    const float *tail[ATTN__MAX_LANES];
    int64_t i, c;
    int x;
    for (i = 0; i < ld; i += 8)
        for (c = 0; c < whole; c += 8) {
            __m256 r[8];
            ATTN__UNROLL for (x = 0; x < 8; x++) r[x] = ATTN__LOAD8(rows[i + x] + c);
            attn__transpose8(r);
            ATTN__UNROLL for (x = 0; x < 8; x++)
                ATTN__STORE8(to + (c + x)*ld + i, ATTN__MUL8(r[x], ATTN__LOAD8(scale + i)));
        }
    if (whole == n) return;
    for (i = 0; i < ld; i++) tail[i] = rows[i] + whole * stride;
    attn__pack_scalar(to + whole*ld, ld, tail, stride, n - whole, scale);
}

ATTN__AVX2 static void attn__unpack_avx2(float *const *rows, int64_t lanes, int64_t stride, const float *from,
                                         int64_t ld,
                                         int64_t n, const float *scale)
{
    const int64_t whole = stride == 1 ? n & ~(int64_t)7 : 0;
    float *tail[ATTN__MAX_LANES];
    int64_t i, c;
    int x;
    for (i = 0; i < lanes; i += 8)
        for (c = 0; c < whole; c += 8) {
            __m256 r[8];
            ATTN__UNROLL for (x = 0; x < 8; x++)
                r[x] = attn__quiet8(ATTN__MUL8(ATTN__LOAD8(from + (c + x)*ld + i), ATTN__LOAD8(scale + i)));
            attn__transpose8(r);
            for (x = 0; x < 8 && i + x < lanes; x++) ATTN__STORE8(rows[i + x] + c, r[x]);
        }
    if (whole == n) return;
    for (i = 0; i < lanes; i++) tail[i] = rows[i] + whole * stride;
    attn__unpack_scalar(tail, lanes, stride, from + whole*ld, ld, n - whole, scale);
}

/* ---- number by number: functions, score transforms, masks */
/* y = f(x) over an array; the rest beyond whole vectors through a buffer */
#define ATTN__MAP8(name, f) \
    ATTN__AVX2 static void name(const float *x, float *y, int64_t n) \
    { \
        float rest[8] = {0, 0, 0, 0, 0, 0, 0, 0}; \
        int64_t i = 0, r; \
        for (; i + 8 <= n; i += 8) ATTN__STORE8(y + i, f(ATTN__LOAD8(x + i))); \
        if (i == n) return; \
        for (r = i; r < n; r++) rest[r - i] = x[r]; \
        ATTN__STORE8(rest, f(ATTN__LOAD8(rest))); \
        for (r = i; r < n; r++) y[r] = rest[r - i]; \
    }
ATTN__MAP8(attn__exp_avx2, attn__exp_full8)
ATTN__MAP8(attn__log_avx2, attn__log8)
ATTN__MAP8(attn__tanh_avx2, attn__tanh8)

ATTN__AVX2 static void attn__softcap_avx2(float *x, int64_t n, float cap, int keep)
{
    const __m256 c = ATTN__ALL8(cap), none = keep ? ATTN__ALL8(ATTN__NEG_INF) : ATTN__ALL8(ATTN__NAN);
    int64_t i;
    for (i = 0; i < n; i += 8) {
        const __m256 v = ATTN__LOAD8(x + i), y = ATTN__MUL8(c, attn__tanh8(ATTN__DIV8(v, c)));
        ATTN__STORE8(x + i, ATTN__PICK8(y, v, ATTN__SAME8(v, none)));
    }
}

ATTN__AVX2 static void attn__distance_avx2(float *s, int64_t ld, int64_t n, int32_t score, const float *width)
{
    const __m256 one = ATTN__ALL8(1.0f), none = ATTN__ALL8(ATTN__NEG_INF);
    int64_t j, i;
    for (j = 0; j < n; j++, s += ld)
        for (i = 0; i < ld; i += 8) {
            const __m256 x = ATTN__LOAD8(s + i), v = ATTN__LOAD8(width + i);
            __m256 u, y;
            if (score == ATTN_SCORE_GAUSSIAN) { ATTN__STORE8(s + i, ATTN__MUL8(x, v)); continue; }
            u = ATTN__DIV8(x, v);
            if (score == ATTN_SCORE_BOXCAR) y = _mm256_setzero_ps();
            else if (score == ATTN_SCORE_TRIANGULAR) y = attn__log8(ATTN__SUB8(one, ATTN__SQRT8(u)));
            else y = attn__log8(ATTN__SUB8(one, u));
            y = ATTN__PICK8(none, y, ATTN__AT_MOST8(u, one));
            ATTN__STORE8(s + i, ATTN__PICK8(y, u, ATTN__UNORDERED8(u, u)));
        }
}

ATTN__AVX2 static void attn__alibi_avx2(float *s, int64_t ld, int64_t n, const float *slope, const float *position)
{
    const __m256 sign = ATTN__ALL8(-0.0f);
    int64_t j, i;
    for (j = 0; j < n; j++, s += ld)
        for (i = 0; i < ld; i += 8) {
            const __m256 d = ATTN__SUB8(ATTN__LOAD8(position + i), ATTN__ALL8((float)j));
            ATTN__STORE8(s + i, ATTN__FMA8(_mm256_xor_ps(ATTN__LOAD8(slope + i), sign), _mm256_andnot_ps(sign, d),
                                           ATTN__LOAD8(s + i)));
        }
}

ATTN__AVX2 static void attn__clip_avx2(float *s, int64_t ld, int64_t n, const int32_t *first, const int32_t *last)
{
    int64_t j, i;
    for (j = 0; j < n; j++, s += ld) {
        const __m256i at = _mm256_set1_epi32((int32_t)j);
        for (i = 0; i < ld; i += 8) {
            const __m256i below = _mm256_cmpgt_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(first + i)),
                                                     at);
            const __m256i inside = _mm256_cmpgt_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(last + i)),
                                                      at);
            const __m256 keep = _mm256_castsi256_ps(_mm256_andnot_si256(below, inside));
            ATTN__STORE8(s + i, ATTN__PICK8(ATTN__ALL8(ATTN__NEG_INF), ATTN__LOAD8(s + i), keep));
        }
    }
}

ATTN__AVX2 static void attn__bias_avx2(float *s, int64_t ld, int64_t n, const float *const *rows, int64_t stride,
                                       int keep)
{
    const __m256 none = ATTN__ALL8(ATTN__NEG_INF), kept = keep ? none : ATTN__ALL8(ATTN__NAN);
    const int64_t whole = stride == 1 ? n & ~(int64_t)7 : 0;
    const float *tail[ATTN__MAX_LANES];
    int64_t i, j;
    int x;
    for (i = 0; i < ld; i += 8)
        for (j = 0; j < whole; j += 8) {
            __m256 r[8];
            ATTN__UNROLL for (x = 0; x < 8; x++) r[x] = ATTN__LOAD8(rows[i + x] + j);
            if (j % 16 == 0) for (x = 0; x < 8; x++)        /* half a chunk ahead */
                ATTN__PREFETCH_FAR(attn__ahead(rows[i + x] + j, 1, ATTN__CHUNK / 2));
            attn__transpose8(r);
            ATTN__UNROLL for (x = 0; x < 8; x++) {
                float *at = s + (j + x)*ld + i;
                const __m256 v = ATTN__LOAD8(at);
                const __m256 out = _mm256_or_ps(ATTN__SAME8(r[x], none), ATTN__SAME8(v, kept));
                ATTN__STORE8(at, ATTN__PICK8(ATTN__ADD8(v, r[x]), none, out));
            }
        }
    if (whole == n) return;
    for (i = 0; i < ld; i++) tail[i] = rows[i] + whole * stride;
    attn__bias_scalar(s + whole*ld, ld, n - whole, tail, stride, keep);
}

/* ---- rows that lie as they are */
ATTN__AVX2 static void attn__mass_avx2(const float *x, int64_t n, float scale, float *top, float *sum)
{
    const __m256 c = ATTN__ALL8(scale);
    __m256 m = ATTN__ALL8(ATTN__NEG_INF), base, low = _mm256_setzero_ps(), high = low;
    float part[ATTN__PARTS];
    int64_t j;
    for (j = 0; j < n; j += 8) m = ATTN__MAX8(ATTN__MUL8(ATTN__LOAD8(x + j), c), m);
    ATTN__STORE8(part, m);
    for (*top = part[0], j = 1; j < 8; j++) *top = attn__larger(part[j], *top);
    *top = *top + 0.0f;
    base = ATTN__ALL8(attn__choose(attn__is_none(*top), 0.0f, *top));
    for (j = 0; j < n; j += 16) {
        low = ATTN__ADD8(low, attn__exp8(ATTN__SUB8(ATTN__MUL8(ATTN__LOAD8(x + j), c), base)));
        high = ATTN__ADD8(high, attn__exp8(ATTN__SUB8(ATTN__MUL8(ATTN__LOAD8(x + j + 8), c), base)));
    }
    ATTN__STORE8(part, low);
    ATTN__STORE8(part + 8, high);
    *sum = attn__tree(part, ATTN__PARTS);
}

ATTN__AVX2 static void attn__normalise_avx2(const float *x, float *y, int64_t n, float scale, float top, float factor)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 v = ATTN__MUL8(ATTN__LOAD8(x + i), ATTN__ALL8(scale));
        const __m256 out = ATTN__SAME8(v, ATTN__ALL8(ATTN__NEG_INF));
        const __m256 w = ATTN__MUL8(attn__exp8(ATTN__SUB8(v, ATTN__ALL8(top))), ATTN__ALL8(factor));
        const __m256 none = _mm256_or_ps(out, ATTN__LESS8(w, ATTN__ALL8(ATTN__SMALLEST)));
        ATTN__STORE8(y + i, _mm256_andnot_ps(none, attn__quiet8(w)));
    }
    attn__normalise_scalar(x + i, y + i, n - i, scale, top, factor);
}

/* ---- dropout */
/* 8 counters at a time, those of 8 lanes and the same four keys: as two sets of four, each number in the lower half of
   64 bits, where products leave theirs; what the upper halves hold does not matter. */
ATTN__AVX2 static void attn__drop_avx2(const attn__drop *d)
{
    const __m256i below = _mm256_set1_epi32((int32_t)(uint32_t)d->below), b = _mm256_set1_epi32((int32_t)d->b);
    const __m256i m0 = _mm256_set1_epi32((int32_t)0xd2511f53u), m1 = _mm256_set1_epi32((int32_t)0xcd9e8d57u);
    const int none = d->below > 0xffffffffu;
    __m256i k0[10], k1[10];
    int64_t j, l;
    int round, half, x;
    for (round = 0; round < 10; round++) {
        k0[round] = _mm256_set1_epi32((int32_t)((uint32_t)d->seed + (uint32_t)round * 0x9e3779b9u));
        k1[round] = _mm256_set1_epi32((int32_t)((uint32_t)(d->seed >> 32) + (uint32_t)round * 0xbb67ae85u));
    }
    for (l = 0; l < d->lanes; l += 8) {
        const __m256i i = _mm256_loadu_si256((const __m256i *)(const void *)(d->i + l));
        const __m256i h = _mm256_loadu_si256((const __m256i *)(const void *)(d->h + l));
        for (j = d->j0; j < d->j1; ) {
            uint32_t key = d->key + (uint32_t)j;
            __m256i w[2][4], p0, p1;
            w[0][0] = w[1][0] = _mm256_set1_epi32((int32_t)(key / 4));
            w[0][1] = i;
            w[0][2] = h;
            w[1][1] = _mm256_srli_epi64(i, 32);
            w[1][2] = _mm256_srli_epi64(h, 32);
            w[0][3] = w[1][3] = b;
            for (round = 0; round < 10; round++)
                ATTN__UNROLL for (half = 0; half < 2; half++) {
                    p0 = _mm256_mul_epu32(w[half][0], m0);
                    p1 = _mm256_mul_epu32(w[half][2], m1);
                    w[half][0] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1, 32), w[half][1]), k0[round]);
                    w[half][2] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), w[half][3]), k1[round]);
                    w[half][1] = p1;
                    w[half][3] = p0;
                }
            ATTN__UNROLL for (x = 0; x < 4; x++)
                w[0][x] = _mm256_blend_epi32(w[0][x], _mm256_slli_epi64(w[1][x], 32), 0xaa);
            do {
                float *s = d->s + j * d->ld + l;
                const __m256 v = ATTN__LOAD8(s);
                __m256i kept = _mm256_cmpeq_epi32(_mm256_max_epu32(w[0][key % 4], below), w[0][key % 4]);
                if (none) kept = _mm256_setzero_si256();
                kept = _mm256_or_si256(kept, _mm256_srai_epi32(_mm256_castps_si256(v), 31));
                ATTN__STORE8(s, _mm256_and_ps(v, _mm256_castsi256_ps(kept)));
                j++;
                key++;
            } while (key % 4 && j < d->j1);
        }
    }
}

/* ---- gradients */
#ifndef ATTN_NO_BACKWARD
ATTN__AVX2 static void attn__inner_avx2(const float *x, const float *y, int64_t ld, int64_t n, float *sum)
{
    int64_t c, l;
    for (l = 0; l < ld; l += 8) {
        __m256 acc = _mm256_setzero_ps();
        for (c = 0; c < n; c++) acc = ATTN__FMA8(ATTN__LOAD8(x + c*ld + l), ATTN__LOAD8(y + c*ld + l), acc);
        ATTN__STORE8(sum + l, acc);
    }
}

ATTN__AVX2 static void attn__deliver_avx2(const float *from, float *to, int64_t n, float factor, int add)
{
    int64_t c = 0;
    for (; c + 8 <= n; c += 8) {
        __m256 x = ATTN__LOAD8(from + c);
        if (add) x = ATTN__FMA8(x, ATTN__ALL8(factor), ATTN__LOAD8(to + c));
        else x = ATTN__MUL8(x, ATTN__ALL8(factor));
        ATTN__STORE8(to + c, attn__quiet8(x));
    }
    attn__deliver_scalar(from + c, to + c, n - c, factor, add);
}

/* N keys of 8 lanes, step by step. No score is above its base, the maximum, and 1/mass is at most 1: so one cut below
   2^-126 is enough. A copy of *g: gcc need not read it again after each store. */
ATTN__INLINE ATTN__AVX2 void attn__grade_keys_avx2(const int N, attn__grade g, int64_t j, int64_t l, __m256 base,
                                                   __m256 inverse, __m256 shift)
{
    const int64_t at = j * g.ld + l, to = j * g.row + l;
    __m256 x[4], p, dp, keep, out;
    int u;
    ATTN__UNROLL for (u = 0; u < N; u++) x[u] = ATTN__SUB8(ATTN__LOAD8(g.s + at + u*g.ld), base);
    attn__exp_side_by_side_avx2(N, 1, x);
    ATTN__UNROLL for (u = 0; u < N; u++) {
        out = ATTN__SAME8(ATTN__LOAD8(g.s + at + u*g.ld), ATTN__ALL8(ATTN__NEG_INF));
        dp = ATTN__LOAD8(g.dp + at + u*g.ld);
        x[u] = ATTN__MUL8(x[u], inverse);
        p = x[u] = _mm256_andnot_ps(ATTN__LESS8(x[u], ATTN__ALL8(ATTN__SMALLEST)), x[u]);
        if (g.keep || g.more) {
            keep = g.keep ? ATTN__LOAD8(g.keep + at + u*g.ld) : ATTN__ALL8(1.0f);
            dp = ATTN__FMA8(dp, keep, g.more ? ATTN__LOAD8(g.more + at + u*g.ld) : _mm256_setzero_ps());
            p = _mm256_andnot_ps(ATTN__SAME8(keep, _mm256_setzero_ps()), ATTN__MUL8(x[u], keep));
        }
        ATTN__STORE8(g.p + to + u*g.row, ATTN__PICK8(p, ATTN__ALL8(-0.0f), out));
        ATTN__STORE8(g.ds + to + u*g.row, _mm256_andnot_ps(out, ATTN__MUL8(x[u], ATTN__SUB8(dp, shift))));
    }
}

ATTN__AVX2 static void attn__grade_avx2(const attn__grade *g)
{
    int64_t j, l;
    for (l = 0; l < g->ld; l += 8) {
        const __m256 base = ATTN__LOAD8(g->base + l), inverse = ATTN__LOAD8(g->inverse + l);
        const __m256 shift = ATTN__LOAD8(g->shift + l);
        for (j = 0; j + 2 <= g->rows; j += 2) attn__grade_keys_avx2(2, *g, j, l, base, inverse, shift);
        for (; j < g->rows; j++) attn__grade_keys_avx2(1, *g, j, l, base, inverse, shift);
    }
}

ATTN__AVX2 static void attn__additive_gradient_avx2(const attn__additive_gradient *g)
{
    const __m256 one = ATTN__ALL8(1.0f), minus_one = ATTN__ALL8(-1.0f);
    const int64_t keys = g->keys, key_stride = g->key_stride, row = g->row, ld = g->ld;
    int64_t j, l;
    int u;
    for (l = 0; l < ld; l += 8) {
        const float *e = g->query + g->u * ld + l, *f = g->key + g->u, *from = g->ds + l;
        float *part = g->part + (g->lane0 + l) % ATTN__PARTS;
        __m256 da[4], dt[4], all = _mm256_setzero_ps();
        ATTN__UNROLL for (u = 0; u < 4; u++) da[u] = dt[u] = _mm256_setzero_ps();
        for (j = 0; j < keys; j++, f += key_stride, from += row, part += 4 * ATTN__PARTS) {
            const __m256 ds = ATTN__LOAD8(from);
            all = ATTN__ADD8(all, ds);
            ATTN__UNROLL for (u = 0; u < 4; u++) {
                __m256 r = ATTN__DIV8(minus_one, ATTN__FMA8(ATTN__LOAD8(e + u*ld), _mm256_broadcast_ss(f + u), one));
                dt[u] = ATTN__FMA8(ds, r, dt[u]);
                r = ATTN__FMA8(r, r, r);
                da[u] = ATTN__FMA8(ds, r, da[u]);
                ATTN__STORE8(part + u*ATTN__PARTS, ATTN__FMA8(ds, r, ATTN__LOAD8(part + u*ATTN__PARTS)));
            }
        }
        ATTN__UNROLL for (u = 0; u < 4; u++) {
            float *to = g->da + u * row + l, *sum = g->dt + u * row + l;
            ATTN__STORE8(to, ATTN__ADD8(ATTN__LOAD8(to), da[u]));
            ATTN__STORE8(sum, ATTN__ADD8(ATTN__LOAD8(sum), ATTN__FMA8(ATTN__ALL8(2.0f), dt[u], all)));
        }
    }
}

/* The tree of attn__tree: halves are added to halves. The last two steps are made on four trees at a time. */
ATTN__AVX2 static void attn__fold_avx2(const float *part, int64_t n, float *y, int64_t row)
{
    int64_t j;
    int u;
    for (j = 0; j < n; j++, y += row) {
        __m256 t[4], a, b;
        for (u = 0; u < 4; u++, part += ATTN__PARTS) {
            t[u] = ATTN__ADD8(ATTN__LOAD8(part), ATTN__LOAD8(part + 8));
            t[u] = ATTN__ADD8(t[u], _mm256_permute2f128_ps(t[u], t[u], 1));
        }
        a = _mm256_permute2f128_ps(t[0], t[1], 0x20);           /* of u: x0 x1 x2 x3 */
        b = _mm256_permute2f128_ps(t[2], t[3], 0x20);
        a = ATTN__ADD8(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));       /* x0+x2, x1+x3 */
        a = ATTN__ADD8(a, _mm256_shuffle_ps(a, a, 0xf5));       /* in places 0, 2 of both halves: u = 0, 2, 1, 3 */
        a = _mm256_permutevar8x32_ps(a, _mm256_setr_epi32(0, 4, 2, 6, 0, 0, 0, 0));
        _mm_storeu_ps(y, _mm256_castps256_ps128(ATTN__ADD8(a, _mm256_castps128_ps256(_mm_loadu_ps(y)))));
    }
}
#endif

static const attn__kernels attn__table_avx2 = {
    8, 3, attn__product_avx2, attn__dots_avx2, attn__additive_avx2, attn__additive_direct_avx2, attn__weigh_avx2,
    attn__join_avx2, attn__merge_avx2, attn__finite_avx2, attn__pack_avx2, attn__unpack_avx2, attn__exp_avx2,
    attn__log_avx2, attn__tanh_avx2, attn__softcap_avx2, attn__distance_avx2, attn__alibi_avx2, attn__clip_avx2,
    attn__bias_avx2, attn__exclude_avx2, attn__normalise_avx2, attn__mass_avx2, attn__drop_avx2
#ifndef ATTN_NO_BACKWARD
    , attn__grade_avx2, attn__inner_avx2, attn__deliver_avx2, attn__additive_gradient_avx2, attn__fold_avx2
#endif
};
#endif /* ATTN__HAVE_AVX2 */

/* ---------------------------------------------------------------------------------------------- >>kernels-avx512
   16 lanes, masks for the results of comparisons, twice the registers. What pays is here; the rest of the table is
   AVX2's, which computes the same bits. */
#if ATTN__HAVE_AVX512
#if ATTN__GNU
#  define ATTN__ADD16(a, b) ((a) + (b))
#  define ATTN__SUB16(a, b) ((a) - (b))
#  define ATTN__MUL16(a, b) ((a) * (b))
#  define ATTN__DIV16(a, b) ((a) / (b))
#else
#  define ATTN__ADD16(a, b) _mm512_add_ps(a, b)
#  define ATTN__SUB16(a, b) _mm512_sub_ps(a, b)
#  define ATTN__MUL16(a, b) _mm512_mul_ps(a, b)
#  define ATTN__DIV16(a, b) _mm512_div_ps(a, b)
#endif
#if ATTN__CLANG_FAST           /* the instructions themselves: nothing to fold */
#  define ATTN__OP16(name, result, kind, text) \
    ATTN__INLINE ATTN__AVX512 result name(__m512 a, __m512 b) \
    { result r; __asm__(text " %2, %1, %0" : kind(r) : "v"(a), "v"(b)); return r; }
ATTN__OP16(ATTN__MIN16, __m512, "=v", "vminps")
ATTN__OP16(ATTN__MAX16, __m512, "=v", "vmaxps")
ATTN__OP16(ATTN__LESS16, __mmask16, "=Yk", "vcmpps $17,")
ATTN__OP16(ATTN__SAME16, __mmask16, "=Yk", "vcmpps $0,")
ATTN__INLINE ATTN__AVX512 __m512 ATTN__FMA16(__m512 a, __m512 b, __m512 c)
{ __asm__("vfmadd231ps %2, %1, %0" : "+v"(c) : "v"(a), "v"(b)); return c; }
#else
#  define ATTN__FMA16(a, b, c)      _mm512_fmadd_ps(a, b, c)
#  define ATTN__MIN16(a, b)         _mm512_min_ps(a, b)         /* b where either is NaN; so is max */
#  define ATTN__MAX16(a, b)         _mm512_max_ps(a, b)
#  define ATTN__LESS16(a, b)        _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ)
#  define ATTN__SAME16(a, b)        _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ)
#endif
#define ATTN__ALL16(x)       _mm512_set1_ps(x)
#define ATTN__LOAD16(p)      _mm512_loadu_ps(p)
#define ATTN__STORE16(p, v)  _mm512_storeu_ps(p, v)
/* x where the mask bit is clear, y where it is set */
#define ATTN__PICK16(x, y, mask) \
    _mm512_castsi512_ps(_mm512_mask_blend_epi32(mask, _mm512_castps_si512(x), _mm512_castps_si512(y)))
#define ATTN__SHIFT16(x, n)  _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(x), n))

ATTN__INLINE ATTN__AVX512 __m512 attn__exp_poly_avx512(__m512 x, __m512 *shifted)
{
    const __m512 t = ATTN__FMA16(x, ATTN__ALL16(ATTN__LOG2E), ATTN__ALL16(ATTN__EXP_MAGIC));
    const __m512 n = ATTN__SUB16(t, ATTN__ALL16(ATTN__EXP_MAGIC));
    __m512 r = ATTN__FMA16(n, ATTN__ALL16(-ATTN__LN2_HI), x), p;
    r = ATTN__FMA16(n, ATTN__ALL16(-ATTN__LN2_LO), r);
    p = ATTN__FMA16(ATTN__ALL16(ATTN__EXP_C6), r, ATTN__ALL16(ATTN__EXP_C5));
    p = ATTN__FMA16(p, r, ATTN__ALL16(ATTN__EXP_C4));
    p = ATTN__FMA16(p, r, ATTN__ALL16(ATTN__EXP_C3));
    p = ATTN__FMA16(p, r, ATTN__ALL16(ATTN__EXP_C2));
    p = ATTN__FMA16(p, r, ATTN__ALL16(1.0f));
    *shifted = t;
    return ATTN__FMA16(p, r, ATTN__ALL16(1.0f));
}

ATTN__INLINE ATTN__AVX512 __m512 attn__exp16(__m512 x)
{
    __m512 t;
    const __m512 p = attn__exp_poly_avx512(x, &t);
    return ATTN__PICK16(ATTN__MUL16(p, ATTN__SHIFT16(t, 23)), _mm512_setzero_ps(),
                        ATTN__LESS16(x, ATTN__ALL16(ATTN__EXP_LOWEST)));
}

/* A strip of R rows and N vectors in registers. R, N and kind are constants where this is inlined. */
ATTN__INLINE ATTN__AVX512 void attn__strip_avx512(const int R, const int N, const int kind, const attn__product *p,
                                              const float *a, float *c)
{
    const int64_t a_row = p->a_row, a_k = p->a_k, b_row = p->b_row, c_row = p->c_row;
    const float *b = p->b;
    __m512 acc[24], q[8], s, t;
    int64_t k;
    int r, i;
    ATTN__UNROLL for (r = 0; r < R; r++)
        ATTN__UNROLL for (i = 0; i < N; i++) acc[r*N + i] = p->onto == ATTN__GO_ON ?
            ATTN__LOAD16(c + r*c_row + 16*i) : _mm512_setzero_ps();
    for (k = 0; k < p->depth; k++, a += a_k, b += b_row) {
        if (N == 8) ATTN__UNROLL for (i = 0; i < 8; i++) {
            ATTN__PREFETCH(attn__ahead(b, 16, b_row) + 16*i);
            if (p->fetch) ATTN__PREFETCH_FAR(attn__ahead(p->fetch, k, p->fetch_row) + 16*i);
        }
        ATTN__UNROLL for (i = 0; i < N; i++) {
            q[i] = ATTN__LOAD16(b + 16*i);
            if (kind != ATTN__SQUARED_DISTANCE) ATTN__KEEP(q[i]);
        }
        ATTN__UNROLL for (r = 0; r < R; r++) {
            s = ATTN__ALL16(*(a + r*a_row));
            ATTN__UNROLL for (i = 0; i < N; i++) {
                if (kind == ATTN__SQUARED_DISTANCE) { t = ATTN__SUB16(s, q[i]); acc[r*N + i] = ATTN__FMA16(t, t,
                    acc[r*N + i]); }
                else acc[r*N + i] = ATTN__FMA16(s, q[i], acc[r*N + i]);
            }
        }
    }
    if (p->onto == ATTN__ADD_AFTER) ATTN__UNROLL for (r = 0; r < R; r++)
        ATTN__UNROLL for (i = 0; i < N; i++) acc[r*N + i] = ATTN__ADD16(ATTN__LOAD16(c + r*c_row + 16*i),
                                                                        acc[r*N + i]);
    ATTN__UNROLL for (r = 0; r < R; r++)
        ATTN__UNROLL for (i = 0; i < N; i++) ATTN__STORE16(c + r*c_row + 16*i, acc[r*N + i]);
}

/* All rows: strips of R, then of two (where it pays to compile them), then single ones. */
ATTN__INLINE ATTN__AVX512 void attn__rows_avx512(const int R, const int N, const int kind, const attn__product *p)
{
    int64_t r = 0;
    for (; r + R <= p->rows; r += R) {
        if (p->fetch) attn__fetch(p, r, R);
        attn__strip_avx512(R, N, kind, p, p->a + r*p->a_row, p->c + r*p->c_row);
    }
    if (kind == ATTN__PRODUCT) for (; r + 2 <= p->rows; r += 2)
        attn__strip_avx512(2, N, kind, p, p->a + r*p->a_row, p->c + r*p->c_row);
    for (; r < p->rows; r++) attn__strip_avx512(1, N, kind, p, p->a + r*p->a_row, p->c + r*p->c_row);
}

/* What is rarer than a product, short rather than fast: pairs of vectors here, the rest by halves of them. */
ATTN__AVX512 static void attn__product_rare_avx512(const attn__product *p)
{
    attn__product part = *p;
    int64_t i = 0;
    for (; p->kind == ATTN__SQUARED_DISTANCE && i + 2 <= p->vecs; i += 2) {
        part.b = p->b + 16*i;
        part.c = p->c + 16*i;
        attn__rows_avx512(12, 2, ATTN__SQUARED_DISTANCE, &part);
    }
    part.b = p->b + 16*i;
    part.c = p->c + 16*i;
    part.vecs = 2 * (p->vecs - (int32_t)i);
    attn__product_rare_avx2(&part);
}

ATTN__AVX512 static void attn__product_avx512(const attn__product *p)
{
    ATTN_ASSERT(p->vecs < 8 || (p->rows == 1 && p->kind == ATTN__PRODUCT));
    if (p->kind != ATTN__PRODUCT) attn__product_rare_avx512(p);
    else if (p->vecs == 8) attn__strip_avx512(1, 8, ATTN__PRODUCT, p, p->a, p->c);    /* few rows: B is read in place */
    else if (p->vecs == 4) attn__rows_avx512(6, 4, ATTN__PRODUCT, p);
    else if (p->vecs == 3) attn__rows_avx512(8, 3, ATTN__PRODUCT, p);
    else if (p->vecs == 2) attn__rows_avx512(12, 2, ATTN__PRODUCT, p);
    else attn__rows_avx512(16, 1, ATTN__PRODUCT, p);
}

ATTN__INLINE ATTN__AVX512 __m512 attn__tree_avx512(const int n, __m512 *part)     /* step by step that of attn__tree */
{
    int r;
    ATTN__UNROLL for (r = 0; r < 8; r++) if (r + 8 < n) part[r] = ATTN__ADD16(part[r], part[r + 8]);
    ATTN__UNROLL for (r = 0; r < 4; r++) if (r + 4 < n) part[r] = ATTN__ADD16(part[r], part[r + 4]);
    ATTN__UNROLL for (r = 0; r < 2; r++) part[r] = ATTN__ADD16(part[r], part[r + 2]);
    return ATTN__ADD16(part[0], part[1]);
}

/* Four hidden units: their terms over a common denominator. */
ATTN__INLINE ATTN__AVX512 __m512 attn__additive_terms_avx512(const float *e, int64_t ld, const float *f, const float *w)
{
    const __m512 cap = ATTN__ALL16(1073741824.0f), one = ATTN__ALL16(1.0f);
    __m512 a = ATTN__FMA16(ATTN__LOAD16(e), ATTN__ALL16(*f), one);
    __m512 b = ATTN__FMA16(ATTN__LOAD16(e + ld), ATTN__ALL16(f[1]), one);
    __m512 c = ATTN__FMA16(ATTN__LOAD16(e + 2*ld), ATTN__ALL16(f[2]), one);
    __m512 d = ATTN__FMA16(ATTN__LOAD16(e + 3*ld), ATTN__ALL16(f[3]), one), n0, n1;
    a = ATTN__MIN16(a, cap);
    b = ATTN__MIN16(b, cap);
    c = ATTN__MIN16(c, cap);
    d = ATTN__MIN16(d, cap);
    n0 = ATTN__FMA16(ATTN__ALL16(*w), b, ATTN__MUL16(ATTN__ALL16(w[1]), a));
    n1 = ATTN__FMA16(ATTN__ALL16(w[2]), d, ATTN__MUL16(ATTN__ALL16(w[3]), c));
    a = ATTN__MUL16(a, b);
    c = ATTN__MUL16(c, d);
    return ATTN__DIV16(ATTN__FMA16(n0, c, ATTN__MUL16(n1, a)), ATTN__MUL16(a, c));
}

ATTN__AVX512 static void attn__additive_avx512(const attn__additive *p)
{
    const int64_t ld = p->ld;
    int64_t j, u;
    int32_t i;
    int g;
    for (i = 0; i < p->vecs; i++)
        for (j = 0; j < p->rows; j++) {
            const float *f = p->key + j * p->key_stride, *e = p->query + 16*i, *w = p->w;
            __m512 part[ATTN__TERMS];
            ATTN__UNROLL for (g = 0; g < ATTN__TERMS; g++) part[g] = _mm512_setzero_ps();
            for (u = 0; u < p->hidden; u += 4*ATTN__TERMS)
                ATTN__UNROLL for (g = 0; g < ATTN__TERMS; g++) {
                    if (u + 4*g >= p->hidden) break;
                    part[g] = ATTN__ADD16(part[g], attn__additive_terms_avx512(e, ld, f, w));
                    e += 4*ld;
                    f += 4;
                    w += 4;
                }
            part[0] = ATTN__FMA16(ATTN__ALL16(-2.0f), attn__tree_avx512(ATTN__TERMS, part), ATTN__ALL16(p->w_sum));
            ATTN__STORE16(p->s + j*ld + 16*i, ATTN__MUL16(ATTN__ALL16(p->scale), part[0]));
        }
}

static void attn__additive_direct_avx512(const attn__additive *p)
{
    attn__additive halves = *p;
    halves.vecs = 2 * p->vecs;
    attn__additive_direct_avx2(&halves);
}

/* N keys side by side, step by step, so that none waits for another. The exponential of nothing above 0, the same bits:
   what underflows (where some may: low) is seen in the result, which keeps a register free. */
ATTN__INLINE ATTN__AVX512 void attn__weigh_keys_avx512(const int N, const int low, float *s, int64_t ld, __m512 base,
                                                       int mark, __m512 *part)
{
    __m512 x[4], t[4], n[4], p[4];
    int u;
    ATTN__UNROLL for (u = 0; u < N; u++) {
        x[u] = ATTN__SUB16(ATTN__LOAD16(s + u*ld), base);
        if (low) x[u] = ATTN__MAX16(ATTN__ALL16(ATTN__EXP_NOTHING), x[u]);
    }
    ATTN__UNROLL for (u = 0; u < N; u++)
        t[u] = ATTN__FMA16(x[u], ATTN__ALL16(ATTN__LOG2E), ATTN__ALL16(ATTN__EXP_MAGIC));
    ATTN__UNROLL for (u = 0; u < N; u++) n[u] = ATTN__SUB16(t[u], ATTN__ALL16(ATTN__EXP_MAGIC));
    ATTN__UNROLL for (u = 0; u < N; u++) x[u] = ATTN__FMA16(n[u], ATTN__ALL16(-ATTN__LN2_HI), x[u]);
    ATTN__UNROLL for (u = 0; u < N; u++) x[u] = ATTN__FMA16(n[u], ATTN__ALL16(-ATTN__LN2_LO), x[u]);
    ATTN__UNROLL for (u = 0; u < N; u++)
        p[u] = ATTN__FMA16(ATTN__ALL16(ATTN__EXP_C6), x[u], ATTN__ALL16(ATTN__EXP_C5));
    ATTN__UNROLL for (u = 0; u < N; u++) p[u] = ATTN__FMA16(p[u], x[u], ATTN__ALL16(ATTN__EXP_C4));
    ATTN__UNROLL for (u = 0; u < N; u++) p[u] = ATTN__FMA16(p[u], x[u], ATTN__ALL16(ATTN__EXP_C3));
    ATTN__UNROLL for (u = 0; u < N; u++) p[u] = ATTN__FMA16(p[u], x[u], ATTN__ALL16(ATTN__EXP_C2));
    ATTN__UNROLL for (u = 0; u < N; u++) p[u] = ATTN__FMA16(p[u], x[u], ATTN__ALL16(1.0f));
    ATTN__UNROLL for (u = 0; u < N; u++) p[u] = ATTN__FMA16(p[u], x[u], ATTN__ALL16(1.0f));
    ATTN__UNROLL for (u = 0; u < N; u++) {
        p[u] = ATTN__MUL16(p[u], ATTN__SHIFT16(t[u], 23));
        p[u] = ATTN__PICK16(p[u], _mm512_setzero_ps(), ATTN__LESS16(p[u], ATTN__ALL16(ATTN__SMALLEST)));
        if (mark) p[u] = ATTN__PICK16(p[u], ATTN__ALL16(-0.0f),
                                      ATTN__SAME16(ATTN__LOAD16(s + u*ld), ATTN__ALL16(ATTN__NEG_INF)));
        ATTN__STORE16(s + u*ld, p[u]);
        part[u] = ATTN__ADD16(part[u], p[u]);
    }
}

ATTN__AVX512 static void attn__weigh_avx512(float *s, int64_t ld, int64_t j0, int64_t j1, int mark, float *top,
                                            float *sum)
{
    const __m512 none = ATTN__ALL16(ATTN__NEG_INF);
    __m512 m, base, part[ATTN__PARTS], largest[4], least = ATTN__ALL16(ATTN__INF);
    int64_t j;
    int r, u, w, low;
    ATTN__UNROLL for (u = 0; u < 4; u++) largest[u] = none;
    for (j = j0; j + 4 <= j1; j += 4)
        ATTN__UNROLL for (u = 0; u < 4; u++) {
            base = ATTN__LOAD16(s + (j + u)*ld);
            largest[u] = ATTN__MAX16(base, largest[u]);
            least = ATTN__MIN16(base, least);
        }
    low = j < j1;
    for (; j < j1; j++) largest[0] = ATTN__MAX16(ATTN__LOAD16(s + j*ld), largest[0]);
    m = ATTN__MAX16(ATTN__MAX16(largest[0], largest[1]), ATTN__MAX16(largest[2], largest[3]));
    m = ATTN__ADD16(m, ATTN__ALL16(0.0f));
    base = ATTN__PICK16(m, _mm512_setzero_ps(), ATTN__SAME16(m, none));
    low = low || ATTN__LESS16(ATTN__SUB16(least, base), ATTN__ALL16(ATTN__EXP_LOWEST));
    ATTN__UNROLL for (r = 0; r < ATTN__PARTS; r++) part[r] = _mm512_setzero_ps();
    for (j = j0; j < j1; j += w) {
        r = (int)((uint64_t)j % ATTN__PARTS);
        w = r == 0 && j + ATTN__PARTS <= j1 && !mark ? ATTN__PARTS : 1;
        if (w == 1) attn__weigh_keys_avx512(1, 1, s + j*ld, ld, base, mark, part + r);
        else if (low) for (r = 0; r < ATTN__PARTS; r += 4)
            attn__weigh_keys_avx512(4, 1, s + (j + r)*ld, ld, base, 0, part + r);
        else for (r = 0; r < ATTN__PARTS; r += 4) attn__weigh_keys_avx512(4, 0, s + (j + r)*ld, ld, base, 0, part + r);
    }
    ATTN__STORE16(top, m);
    ATTN__STORE16(sum, attn__tree_avx512(ATTN__PARTS, part));
}

/* rows of 16 registers <-> columns */
ATTN__INLINE ATTN__AVX512 void attn__transpose16(__m512 *r)
{
    __m512 t[16];
    int i;
    ATTN__UNROLL for (i = 0; i < 8; i++) {
        t[2*i] = _mm512_unpacklo_ps(r[2*i], r[2*i + 1]);
        t[2*i + 1] = _mm512_unpackhi_ps(r[2*i], r[2*i + 1]);
    }
    ATTN__UNROLL for (i = 0; i < 16; i += 4) {
        r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    ATTN__UNROLL for (i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    }
    ATTN__UNROLL for (i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

ATTN__INLINE ATTN__AVX512 void attn__dots_block_avx512(const int R, const attn__product *p, int64_t j, int64_t last)
{
    const int64_t row = p->b_row;
    const float *a = p->a, *b = p->b + j*row, *y;
    const float *ahead = attn__ahead(b, 32, row), *fetch = attn__ahead(p->fetch, j, p->fetch_row);
    float *c = p->c + j, column[16];
    __m512 acc[ATTN__FEW], t[16];
    int64_t k = 0;
    int r, x;
    ATTN__UNROLL for (r = 0; r < R; r++) acc[r] = _mm512_setzero_ps();
    for (; k + 16 <= p->depth; k += 16) {
        ATTN__UNROLL for (y = b + k, x = 0; x < 16; x++, y += x <= last ? row : 0) t[x] = ATTN__LOAD16(y);
        attn__fetch_block(16, ahead, row, p->depth, k);
        if (p->fetch) attn__fetch_block(16, fetch, p->fetch_row, p->depth, k);
        attn__transpose16(t);
        ATTN__UNROLL for (x = 0; x < 16; x++, a += 16)
            ATTN__UNROLL for (r = 0; r < R; r++) acc[r] = ATTN__FMA16(ATTN__ALL16(a[r]), t[x], acc[r]);
    }
    for (; k < p->depth; k++, a += 16) {
        for (y = b + k, x = 0; x < 16; x++, y += x <= last ? row : 0) column[x] = *y;
        t[0] = ATTN__LOAD16(column);
        ATTN__UNROLL for (r = 0; r < R; r++) acc[r] = ATTN__FMA16(ATTN__ALL16(a[r]), t[0], acc[r]);
    }
    ATTN__UNROLL for (r = 0; r < R; r++, c += p->c_row) if (r < p->rows) ATTN__STORE16(c, acc[r]);
}

ATTN__AVX512 static void attn__dots_avx512(const attn__product *p, int64_t columns)
{
    int64_t j;
    ATTN_ASSERT(p->a_k == 16);
    for (j = 0; j + 16 <= columns; j += 16)
        if (p->rows == 1) attn__dots_block_avx512(1, p, j, 15);
        else attn__dots_block_avx512(ATTN__FEW, p, j, 15);
    if (j < columns) attn__dots_block_avx512(ATTN__FEW, p, j, columns - 1 - j);     /* its last row again and again */
}

static const attn__kernels attn__table_avx512 = {
    16, 4, attn__product_avx512, attn__dots_avx512, attn__additive_avx512, attn__additive_direct_avx512,
    attn__weigh_avx512, attn__join_avx2, attn__merge_avx2, attn__finite_avx2, attn__pack_avx2, attn__unpack_avx2,
    attn__exp_avx2, attn__log_avx2, attn__tanh_avx2, attn__softcap_avx2, attn__distance_avx2, attn__alibi_avx2,
    attn__clip_avx2, attn__bias_avx2, attn__exclude_avx2, attn__normalise_avx2, attn__mass_avx2, attn__drop_avx2
#ifndef ATTN_NO_BACKWARD
    , attn__grade_avx2, attn__inner_avx2, attn__deliver_avx2, attn__additive_gradient_avx2, attn__fold_avx2
#endif
};
#endif /* ATTN__HAVE_AVX512 */

/* ---------------------------------------------------------------------------------------------------- >>dispatch */
static int attn__cpu_has(attn_isa isa)
{
    if (isa == ATTN_ISA_SCALAR) return 1;
#if ATTN__X64 && ATTN__GNU && !defined(_MSC_VER)     /* libgcc and compiler-rt filled their table before main */
#  if ATTN__HAVE_AVX2
    if (isa == ATTN_ISA_AVX2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#  endif
#  if ATTN__HAVE_AVX512
    if (isa == ATTN_ISA_AVX512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && attn__cpu_has(ATTN_ISA_AVX2);
#  endif
#elif ATTN__X64 && defined(_MSC_VER)
    {
        const int fma_osxsave_avx = (1 << 12) | (1 << 27) | (1 << 28);
        unsigned long long enabled;
        int r[4];
        __cpuid(r, 0);
        if (r[0] < 7) return 0;
        __cpuid(r, 1);
        if ((r[2] & fma_osxsave_avx) != fma_osxsave_avx) return 0;
        enabled = _xgetbv(0);
        __cpuidex(r, 7, 0);
        if (ATTN__HAVE_AVX2 && isa == ATTN_ISA_AVX2) return (enabled & 6) == 6 && (r[1] >> 5 & 1);
        if (ATTN__HAVE_AVX512 && isa == ATTN_ISA_AVX512)
            return (enabled & 0xe6) == 0xe6 && (r[1] >> 5 & 1) && (r[1] >> 16 & 1) && (r[1] >> 17 & 1);
    }
#endif
    return 0;
}

ATTN_DEF attn_isa attn_best_isa(void)
{
    if (attn__cpu_has(ATTN_ISA_AVX512)) return ATTN_ISA_AVX512;
    if (attn__cpu_has(ATTN_ISA_AVX2)) return ATTN_ISA_AVX2;
    return ATTN_ISA_SCALAR;
}

static const attn__kernels *attn__table(int32_t isa)
{
#if ATTN__HAVE_AVX512
    if (isa == ATTN_ISA_AVX512) return &attn__table_avx512;
#endif
#if ATTN__HAVE_AVX2
    if (isa == ATTN_ISA_AVX2) return &attn__table_avx2;
#endif
    (void)isa;
    return &attn__table_scalar;
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

/* ---- how much of a structure the caller has. Of one who knows less, from an older header, a copy is made, with 0 for
   the rest; of one who knows more the rest must be 0. least: the size that version 0.3 had. */
static attn_status attn__check_bytes(const void *structure, size_t known, size_t least, const char *field,
                                     attn_error *err)
{
    const unsigned char *bytes = (const unsigned char *)structure;
    uint64_t n = 0, i;
    if (structure) ATTN__COPY(&n, structure, sizeof n);
    if (n == 0 || n == known) return ATTN_OK;
    if (n < least) return attn__fail2(err, ATTN_ERR_OPTION, field, "must be 0 or at least", (int64_t)n, (int64_t)least);
    ATTN__RULE(n % sizeof(void *) == 0 && n < 1 << 16, ATTN_ERR_OPTION, field, "must be the structure's size, or 0");
    for (i = known; i < n; i++)
        ATTN__RULE(!bytes[i], ATTN_ERR_OPTION, field, "must count no field that this version lacks and that is not 0");
    return ATTN_OK;
}
static const void *attn__known_part(const void *structure, void *copy, size_t known)
{
    uint64_t n = 0, i;
    if (structure) ATTN__COPY(&n, structure, sizeof n);
    if (n == 0 || n >= known) return structure;
    for (i = 0; i < known; i++)
        ((unsigned char *)copy)[i] = i < n ? ((const unsigned char *)structure)[i] : (unsigned char)0;
    return copy;
}
#define ATTN__KNOWN(type, p, copy, last, field) \
    ATTN__TRY(attn__check_bytes(p, sizeof(type), offsetof(type, last) + sizeof(p)->last, field, err)); \
    p = (const type *)attn__known_part(p, copy, sizeof(type))

/* ---- fields: a row for each view of a public structure, and for each array that a function takes.
   A shape has four characters, for the axes [batch, heads, rows, columns]; the view's own axes are those that are not
   '.', in this order. A letter stands for one size in the whole call: the first field that has it says which, all the
   others must equal that. Lower case: the axis may be missing, the leftmost first. A digit is the size itself, '?' any.
       B batch  H heads  K key heads  Q queries  S keys  D size of a query  E of a key  V of a value  U hidden width */
enum {                          /* what a field is; its element type */
    ATTN__RESULT = 1 << 0,      /* written */
    ATTN__KEPT = 1 << 1,        /* results of the forward pass that the backward pass reads */
    ATTN__OPERAND = 1 << 2,     /* what attends to what: not an option */
    ATTN__NEEDED = 1 << 4,      /* must be given, where the score takes it */
    ATTN__BROADCAST = 1 << 5,   /* an axis in lower case may have size 1 */
    ATTN__FOR_VECTORS = 1 << 6, ATTN__FOR_BILINEAR = 1 << 7, ATTN__FOR_ADDITIVE = 1 << 8,   /* which scores take it; */
    ATTN__FOR_DISTANCE = 1 << 9, ATTN__FOR_GIVEN = 1 << 10, ATTN__FOR_SOME = 31 << 6        /* without a bit: all do */
};
enum { ATTN__FLOATS, ATTN__SINGLES, ATTN__BYTES, ATTN__INTS };      /* singles: f32 on a device, too */

typedef struct attn__field {
    const char *texts, *axes;   /* what an error says about it, in ATTN__TEXTS' order, and about a wrong rank */
    char        shape[5];
    uint8_t     takes, owner;   /* owner: 1 + the row of what a gradient belongs to; it has that one's sizes */
    uint16_t    offset;         /* in the structure */
    uint32_t    flags;
} attn__field;

enum { ATTN__T_VIEW, ATTN__T_SIZE, ATTN__T_DATA = 5, ATTN__T_TYPE, ATTN__T_RANK, ATTN__T_STRIDE, ATTN__T_COUNT };
#define ATTN__EQUALS "must equal "
#define ATTN__TEXTS(f) \
    ATTN__EQUALS f "\0" ATTN__EQUALS f ".size[0]\0" ATTN__EQUALS f ".size[1]\0" ATTN__EQUALS f ".size[2]\0" \
    ATTN__EQUALS f ".size[3]\0" f ".data\0" f ".type\0" f ".rank\0" f ".stride"
#define ATTN__ROW(structure, f, shape, axes, takes, flags, owner) \
    {ATTN__TEXTS(#f), "must be that of " axes, shape, ATTN__##takes, owner, (uint16_t)offsetof(structure, f), flags}

static const char *attn__rule_of(const attn__field *f, int text)    /* "must equal q.size[3]" */
{
    const char *s = f->texts;
    while (text-- > 0) while (*s++) {}
    return s;
}
static const char *attn__name_of(const attn__field *f, int text)    /* "q.size[3]" */
{
    return attn__rule_of(f, text) + (text < ATTN__T_DATA ? sizeof ATTN__EQUALS - 1 : 0);
}

/* X(field, shape, its axes in words, takes, flags) */
#define ATTN__VIEW_LIST(X) \
    X(q, "BHQD", "[B,H,Sq,D]; without heads H = 1", FLOATS, ATTN__OPERAND | ATTN__NEEDED | ATTN__FOR_VECTORS) \
    X(k, "BKSE", "[B,Hkv,Sk,D]; without heads Hkv = 1", FLOATS, ATTN__OPERAND | ATTN__NEEDED | ATTN__FOR_VECTORS) \
    X(given_scores, "BHQS", "[B,H,Sq,Sk]; without heads H = 1", FLOATS, ATTN__NEEDED | ATTN__FOR_GIVEN) \
    X(v, "BKSV", "[B,Hkv,Sk,Dv]; without heads Hkv = 1", FLOATS, ATTN__OPERAND) \
    X(out, "BHQV", "[B,H,Sq,Dv]; without heads H = 1", FLOATS, ATTN__RESULT | ATTN__KEPT) \
    X(lse, "BHQ.", "[B,H,Sq]; without heads H = 1", SINGLES, ATTN__RESULT) \
    X(stats, "BHQ2", "[B,H,Sq,2]; without heads H = 1", SINGLES, ATTN__RESULT | ATTN__KEPT) \
    X(weights, "BHQS", "[B,H,Sq,Sk]; without heads H = 1", FLOATS, ATTN__RESULT) \
    X(scores, "BHQS", "[B,H,Sq,Sk]; without heads H = 1", FLOATS, ATTN__RESULT) \
    X(scores_softcap, "BHQS", "[B,H,Sq,Sk]; without heads H = 1", FLOATS, ATTN__RESULT) \
    X(scores_masked, "BHQS", "[B,H,Sq,Sk]; without heads H = 1", FLOATS, ATTN__RESULT) \
    X(sigma_per_head, ".H..", "[H]", FLOATS, ATTN__FOR_DISTANCE) \
    X(bilinear, ".hDE", "[Dq,Dk] or [H,Dq,Dk]", FLOATS, ATTN__NEEDED | ATTN__FOR_BILINEAR) \
    X(w_v, ".h.U", "[h] or [H,h]", FLOATS, ATTN__NEEDED | ATTN__FOR_ADDITIVE) \
    X(w_q, ".hUD", "[h,Dq] or [H,h,Dq]", FLOATS, ATTN__FOR_ADDITIVE) \
    X(w_k, ".hUE", "[h,Dk] or [H,h,Dk]", FLOATS, ATTN__FOR_ADDITIVE) \
    X(hidden_bias, ".h.U", "[h] or [H,h]", FLOATS, ATTN__FOR_ADDITIVE) \
    X(bias, "bhqs", "[Sk], [Sq,Sk], [H,Sq,Sk] or [B,H,Sq,Sk]", FLOATS, ATTN__BROADCAST) \
    X(alibi, ".H..", "[H]", FLOATS, 0) \
    X(sink, ".H..", "[H]", FLOATS, 0) \
    X(mask, "bhqs", "[Sk], [Sq,Sk], [H,Sq,Sk] or [B,H,Sq,Sk]", BYTES, ATTN__BROADCAST) \
    X(key_lengths, "B.q.", "[B] or [B,Sq]", INTS, 0) \
    X(query_lengths, "B...", "[B]", INTS, 0) \
    X(positions, "B.q.", "[B] or [B,Sq]", INTS, 0)

enum {
#define ATTN__X(f, shape, axes, takes, flags) ATTN__F_##f,
    ATTN__VIEW_LIST(ATTN__X)
#undef ATTN__X
    ATTN__F_COUNT
};
static const attn__field attn__fields[ATTN__F_COUNT] = {
#define ATTN__X(f, shape, axes, takes, flags) ATTN__ROW(attn_desc, f, shape, axes, takes, flags, 0),
    ATTN__VIEW_LIST(ATTN__X)
#undef ATTN__X
};

#ifndef ATTN_NO_BACKWARD
/* As above; with the field of attn_desc that it belongs to, and of whose shape it is. */
#define ATTN__OWNERS "what it belongs to"
#define ATTN__GRAD_LIST(X) \
    X(d_out, "BHQV", "[B,H,Sq,Dv]; without heads H = 1", 0, 0) \
    X(d_weights, "BHQS", "[B,H,Sq,Sk]; without heads H = 1", 0, 0) \
    X(d_lse, "BHQ.", "[B,H,Sq]; without heads H = 1", 0, 0) \
    X(dq, "BHQD", ATTN__OWNERS, ATTN__RESULT, 1 + ATTN__F_q) \
    X(dk, "BKSE", ATTN__OWNERS, ATTN__RESULT, 1 + ATTN__F_k) \
    X(dv, "BKSV", ATTN__OWNERS, ATTN__RESULT, 1 + ATTN__F_v) \
    X(d_given_scores, "BHQS", ATTN__OWNERS, ATTN__RESULT, 1 + ATTN__F_given_scores) \
    X(d_bias, "bhqs", ATTN__OWNERS, ATTN__RESULT | ATTN__BROADCAST, 1 + ATTN__F_bias) \
    X(d_bilinear, ".hDE", ATTN__OWNERS, ATTN__RESULT, 1 + ATTN__F_bilinear) \
    X(d_w_q, ".hUD", ATTN__OWNERS, ATTN__RESULT, 1 + ATTN__F_w_q) \
    X(d_w_k, ".hUE", ATTN__OWNERS, ATTN__RESULT, 1 + ATTN__F_w_k) \
    X(d_w_v, ".h.U", ATTN__OWNERS, ATTN__RESULT, 1 + ATTN__F_w_v) \
    X(d_hidden_bias, ".h.U", ATTN__OWNERS, ATTN__RESULT, 1 + ATTN__F_hidden_bias) \
    X(d_sigma, ".?..", "[1], or [H] with sigma_per_head", ATTN__RESULT, 0) \
    X(d_scale, ".1..", "[1]", ATTN__RESULT, 0) \
    X(d_sink, ".H..", ATTN__OWNERS, ATTN__RESULT, 1 + ATTN__F_sink) \
    X(d_alibi, ".H..", ATTN__OWNERS, ATTN__RESULT, 1 + ATTN__F_alibi)
enum {
#define ATTN__X(f, shape, axes, flags, owner) ATTN__G_##f,
    ATTN__GRAD_LIST(ATTN__X)
#undef ATTN__X
    ATTN__G_COUNT
};
static const attn__field attn__grad_fields[ATTN__G_COUNT] = {
#define ATTN__X(f, shape, axes, flags, owner) ATTN__ROW(attn_grad, f, shape, axes, FLOATS, flags, owner),
    ATTN__GRAD_LIST(ATTN__X)
#undef ATTN__X
};
#else
enum { ATTN__G_COUNT };
#endif

/* The weights have H*D = M, Hkv*D = N, Hkv*Dv = P rows; w_result takes T and gives O; the inputs' sizes are X, Y, Z. */
#define ATTN__MHA_LIST(X) \
    X(query, "B.QX", "[B,Sq,Eq]", ATTN__NEEDED) X(key, "B.SY", "[B,Sk,Ek]", 0) X(value, "B.SZ", "[B,Sk,Ev]", 0) \
    X(w_query, "..MX", "[H*D,Eq]", ATTN__NEEDED) X(w_key, "..NY", "[Hkv*D,Ek]", ATTN__NEEDED) \
    X(w_value, "..PZ", "[Hkv*Dv,Ev]", ATTN__NEEDED) X(w_result, "..OT", "[Eo,H*Dv]", 0) \
    X(b_query, "...M", "[H*D]", 0) X(b_key, "...N", "[Hkv*D]", 0) X(b_value, "...P", "[Hkv*Dv]", 0) \
    X(b_result, "...O", "[Eo]", 0) X(out, "B.QO", "[B,Sq,Eo]", ATTN__NEEDED | ATTN__RESULT)
enum {
#define ATTN__X(f, shape, axes, flags) ATTN__H_##f,
    ATTN__MHA_LIST(ATTN__X)
#undef ATTN__X
    ATTN__H_COUNT
};
static const attn__field attn__mha_fields[ATTN__H_COUNT] = {
#define ATTN__X(f, shape, axes, flags) ATTN__ROW(attn_mha_desc, f, shape, axes, FLOATS, flags, 0),
    ATTN__MHA_LIST(ATTN__X)
#undef ATTN__X
};

/* The view that a row tells of; attn_out and attn_view have one layout. */
static attn_view attn__view_in(const void *structure, const attn__field *f)
{
    attn_view v;
    ATTN__COPY(&v, (const char *)structure + f->offset, sizeof v);
    return v;
}
static attn_view attn__view_at(const attn_desc *d, int field) { return attn__view_in(d, &attn__fields[field]); }

/* Which axis of a view of that rank stands for which letter of its shape; -1: it has none. Returns how many have one:
   `rank` where that rank is possible. */
static int attn__axes_of(const char *shape, int rank, int *axis)
{
    int i, n = 0, most = 0;
    for (i = 0; i < 4; i++) most += shape[i] != '.';
    for (i = 0; i < 4; i++) {
        const int left_out = shape[i] >= 'a' && most > rank;
        most -= left_out;
        axis[i] = shape[i] == '.' || left_out ? -1 : n++;
    }
    return n;
}

/* A view by the four axes of its shape, [b,h,row,column]: stride 0 where it has no such axis, or but one index there. */
typedef struct attn__array { void *data; int64_t stride[4]; int32_t type, given; } attn__array;
static void attn__array_of(const attn_view *v, const char *shape, attn__array *a)
{
    int i, axis[4] = {-1, -1, -1, -1};
    a->data = (void *)(uintptr_t)v->data;
    a->type = v->type;
    a->given = v->rank != 0;
    if (a->given) attn__axes_of(shape, v->rank, axis);
    for (i = 0; i < 4; i++) a->stride[i] = axis[i] >= 0 && v->size[axis[i]] > 1 ? v->stride[axis[i]] : 0;
}

/* The same as a view; the axes that it lacks have size 1. */
static attn_view attn__view4(attn_view v, const char *shape)
{
    attn_view r = v;
    attn__array a;
    int i, axis[4];
    if (v.rank < 1 || v.rank > 4) return v;
    attn__array_of(&v, shape, &a);
    attn__axes_of(shape, v.rank, axis);
    for (i = 0; i < 4; i++) {
        r.size[i] = axis[i] < 0 ? 1 : v.size[axis[i]];
        r.stride[i] = a.stride[i];
    }
    r.rank = 4;
    return r;
}

static int64_t attn__elements(const attn_view *v)
{
    int64_t n = 1;
    int i;
    for (i = 0; i < v->rank; i++) if (v->size[i] == 0) return 0;
    for (i = 0; i < v->rank; i++) n = attn__mul64(n, v->size[i]);
    return n;
}

enum { ATTN__RANK_NONE = -1, ATTN__RANK_OVERFLOW = -2 };     /* of what the functions that make views cannot make */

static int64_t attn__type_size(int32_t type)
{
    return type == ATTN_U8 ? 1 : type == ATTN_F16 || type == ATTN_BF16 ? 2 : type == ATTN_F64 || type == ATTN_I64 ? 8 :
        4;
}

/* The bytes that a view reaches, first and behind the last; returns 0 if they fit in memory. */
typedef struct attn__span { uintptr_t first, end; } attn__span;
static int attn__find_span(const attn_view *v, attn__span *s)
{
    const int64_t bytes = attn__type_size(v->type);
    int64_t below = 0, above = 1;
    int i;
    for (i = 0; i < v->rank; i++) {
        const int64_t stride = v->stride[i], step = stride < 0 ? (stride < -ATTN__HUGE ? ATTN__HUGE : -stride) : stride;
        const int64_t reach = attn__mul64(step, v->size[i] - 1);
        if (stride < 0) below = attn__add64(below, reach);
        else above = attn__add64(above, reach);
    }
    below = attn__mul64(below, bytes);
    above = attn__mul64(above, bytes);
    s->first = (uintptr_t)v->data - (uintptr_t)below;
    s->end = (uintptr_t)v->data + (uintptr_t)above;
    return below > ATTN__HUGE / 2 || above > ATTN__HUGE / 2 || below + above > (int64_t)((size_t)-1 / 2);
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
    attn__find_span(&inner, &span);
    *length = (int64_t)(span.end - span.first);
    return span.first;
}

/* Can it be seen that two views share no byte? By their extents, or because they interleave, as the q, k and v of a
   packed array do: modulo a common outer stride they lie beside each other. */
static int attn__disjoint(const attn_view *a, const attn_view *b)
{
    int64_t a_length, b_length, apart;
    attn__span a_span, b_span;
    int i;
    if (!attn__elements(a) || !attn__elements(b)) return 1;
    attn__find_span(a, &a_span);
    attn__find_span(b, &b_span);
    if (attn__apart(a_span, b_span)) return 1;
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

/* One view on its own: rank, type, sizes, extent. axis: as attn__axes_of; span: what it reaches. */
static attn_status attn__check_view(const attn_view *v, const attn__field *f, int flags, int *axis, attn__span *span,
                                    attn_error *err)
{
    const int axes = attn__axes_of(f->shape, v->rank, axis);
    int64_t elements;
    int i;
    ATTN__RULE(v->rank != ATTN__RANK_OVERFLOW, ATTN_ERR_OVERFLOW, attn__name_of(f, ATTN__T_VIEW),
               "must have fewer than 2^60 elements");
    if (v->rank != axes || axes < 1)
        return attn__fail2(err, ATTN_ERR_RANK, attn__name_of(f, ATTN__T_RANK), f->axes, v->rank,
                           axes > 0 ? axes : 1);
    if (f->takes <= ATTN__SINGLES && !(f->takes == ATTN__FLOATS && ATTN__HALF(v, flags))) {
        ATTN__RULE(v->type < ATTN_F16 || v->type > ATTN_F64, ATTN_ERR_TYPE, attn__name_of(f, ATTN__T_TYPE),
                   "must be ATTN_F32: other float types are not in this version");
        ATTN__RULE(v->type == ATTN_F32, ATTN_ERR_TYPE, attn__name_of(f, ATTN__T_TYPE), "must be ATTN_F32");
    } else if (f->takes == ATTN__BYTES) {
        ATTN__RULE(v->type == ATTN_U8, ATTN_ERR_TYPE, attn__name_of(f, ATTN__T_TYPE), "must be ATTN_U8");
    } else if (f->takes == ATTN__INTS) {
        ATTN__RULE(v->type == ATTN_I32 || v->type == ATTN_I64, ATTN_ERR_TYPE, attn__name_of(f, ATTN__T_TYPE),
                   "must be ATTN_I32 or ATTN_I64");
    }
    for (i = 0; i < v->rank; i++)
        if (v->size[i] < 0) return attn__fail2(err, ATTN_ERR_SIZE, attn__name_of(f, ATTN__T_SIZE + i),
                                               "must be at least", v->size[i], 0);
    span->first = span->end = (uintptr_t)v->data;
    elements = attn__elements(v);
    if (elements == 0) return ATTN_OK;
    ATTN__RULE(elements <= ATTN__HUGE / 8, ATTN_ERR_OVERFLOW, attn__name_of(f, ATTN__T_VIEW),
               "must have fewer than 2^60 elements");
    ATTN__RULE(!attn__find_span(v, span), ATTN_ERR_OVERFLOW, attn__name_of(f, ATTN__T_STRIDE),
               "must keep the extent within memory");
    ATTN__RULE(!(flags & ATTN__WITH_DATA) || v->data, ATTN_ERR_NULL, attn__name_of(f, ATTN__T_DATA),
               "must not be NULL");
    ATTN__RULE(!(f->flags & ATTN__RESULT) || attn__nests(v), ATTN_ERR_STRIDE, attn__name_of(f, ATTN__T_STRIDE),
               "must not make the output overlap itself");
    return ATTN_OK;
}

/* A walk over the tables of a call: what each letter stands for and by which field; the views that are there. */
#define ATTN__LETTER(w, letter) ((w)->size[(letter) - 'A'])
typedef struct attn__found { const attn__field *field; const void *structure; attn__span span; } attn__found;
typedef struct attn__walk {
    int64_t            size[26];
    const attn__field *of[26];          /* NULL: no field had this letter yet */
    int8_t             axis[26];
    const attn__field *owners;          /* of gradients, and where these lie */
    const void        *owned;
    uint32_t           takes;           /* ATTN__FOR_x of the score */
    int                flags, count, in_place;
    int                inputs;          /* so many of those found, the first, are only read in a backward pass */
    attn__found        found[(int)ATTN__F_COUNT + (int)ATTN__G_COUNT + 24];     /* 24: of attn_mha_desc and _grad */
} attn__walk;
static void attn__walk_begin(attn__walk *w, int flags)
{
    int i;
    for (i = 0; i < 26; i++) w->size[i] = 0;
    for (i = 0; i < 26; i++) w->of[i] = NULL;
    w->takes = ATTN__FOR_SOME;
    w->flags = flags;
    w->count = w->in_place = w->inputs = 0;
}

/* What a letter stands for, from elsewhere; axis -1: the first text of the field is the rule. */
static void attn__bind(attn__walk *w, char letter, int64_t size, const attn__field *f, int axis)
{
    w->size[letter - 'A'] = size;
    w->of[letter - 'A'] = f;
    w->axis[letter - 'A'] = (int8_t)axis;
}

/* One size against its letter. Key heads must divide the heads; most scores multiply keys by queries, so D = E. */
static attn_status attn__check_letter(attn__walk *w, const attn__field *f, char letter, int axis, int64_t size,
                                      attn_error *err)
{
    int n = letter - (letter >= 'a' ? 'a' : 'A');
    const char *rule;
    if (letter == '?' || (letter >= 'a' && size == 1 && f->flags & ATTN__BROADCAST)) return ATTN_OK;
    if (letter < 'A')
        return size == letter - '0' ? ATTN_OK : attn__fail2(err, ATTN_ERR_SIZE, attn__name_of(f, ATTN__T_SIZE + axis),
                                                            "must be", size, letter - '0');
    if (!w->of[n]) {
        attn__bind(w, (char)('A' + n), size, f, axis);
        if (letter == 'K' && (size ? ATTN__LETTER(w, 'H') % size : ATTN__LETTER(w, 'H')) != 0)
            return attn__fail2(err, ATTN_ERR_SIZE, attn__name_of(f, ATTN__T_SIZE + axis),
                               "must divide the number of query heads", size, ATTN__LETTER(w, 'H'));
        if (letter != 'E' || w->takes & (ATTN__FOR_BILINEAR | ATTN__FOR_ADDITIVE)) return ATTN_OK;
        n = 'D' - 'A';
    }
    if (size == w->size[n]) return ATTN_OK;
    rule = letter < 'a' || !(f->flags & ATTN__BROADCAST) ? attn__rule_of(w->of[n], ATTN__T_SIZE + w->axis[n]) :
        f->shape[3] != 's' ? "must broadcast with a: be 1 or" :
        "must be 1 or that of [B,H,Sq,Sk], axes counted from the right: [Sq,Sk], [H,Sq,Sk], [B,1,1,Sk], ...";
    return attn__fail2(err, ATTN_ERR_SIZE, attn__name_of(f, ATTN__T_SIZE + axis), rule, size, w->size[n]);
}

/* A gradient against what it belongs to. */
static attn_status attn__check_owner(const attn__walk *w, const attn__field *f, const attn_view *v, attn_error *err)
{
    const attn__field *o = &w->owners[f->owner - 1];
    const attn_view like = attn__view_in(w->owned, o);
    int i;
    ATTN__RULE(like.rank, ATTN_ERR_OPTION, attn__name_of(f, ATTN__T_VIEW),
               "must be absent where what it belongs to is");
    if (v->rank != like.rank) return attn__fail2(err, ATTN_ERR_RANK, attn__name_of(f, ATTN__T_RANK),
                                                 f->axes, v->rank, like.rank);
    for (i = 0; i < v->rank; i++)
        if (v->size[i] != like.size[i])
            return attn__fail2(err, ATTN_ERR_SIZE, attn__name_of(f, ATTN__T_SIZE + i),
                               attn__rule_of(o, ATTN__T_SIZE + i), v->size[i], like.size[i]);
    return ATTN_OK;
}

/* What is said of a field that the score does not take, or that it lacks. */
static attn_status attn__refuse_field(const attn__field *f, int given, attn_error *err)
{
    static const struct { uint32_t by; const char *only, *needed; } rules[] = {
        {ATTN__FOR_VECTORS, "must be absent for ATTN_SCORE_GIVEN", "must be given"},
        {ATTN__FOR_BILINEAR, "counts for ATTN_SCORE_BILINEAR only", "must be given for ATTN_SCORE_BILINEAR"},
        {ATTN__FOR_ADDITIVE, "counts for ATTN_SCORE_ADDITIVE only", "must be given for ATTN_SCORE_ADDITIVE"},
        {ATTN__FOR_GIVEN, "counts for ATTN_SCORE_GIVEN only", "must be given for ATTN_SCORE_GIVEN"},
        {ATTN__FOR_DISTANCE, "counts for the distance kernels only", ""}, {ATTN__NEEDED, "", "must be given"}};
    int i = 0;
    while (!(f->flags & rules[i].by)) i++;
    return given ? attn__fail(err, ATTN_ERR_OPTION, attn__name_of(f, ATTN__T_VIEW), rules[i].only) :
        attn__fail(err, ATTN_ERR_NULL, attn__name_of(f, ATTN__T_VIEW), rules[i].needed);
}

/* The views of one structure. Those with a flag of `without` do not count, those with one of `unread` need no data. */
static attn_status attn__check_fields(attn__walk *w, const void *structure, const attn__field *fields, int count,
                                      uint32_t without, uint32_t unread, attn_error *err)
{
    const attn__field *f;
    for (f = fields; f < fields + count; f++) {
        attn__found *found = &w->found[w->count];
        attn_view v;
        const int taken = !(f->flags & ATTN__FOR_SOME) || f->flags & w->takes;
        const void *data;
        int32_t rank;
        int i, axis[4];
        if (f->flags & without) continue;
        ATTN__COPY(&rank, (const char *)structure + f->offset + offsetof(attn_view, rank), sizeof rank);
        ATTN__COPY(&data, (const char *)structure + f->offset, sizeof data);
        if (rank ? !taken : !data && taken && f->flags & ATTN__NEEDED) return attn__refuse_field(f, rank != 0, err);
        if (!rank && !data) continue;           /* absent; data without a rank is a forgotten one */
        v = attn__view_in(structure, f);
        ATTN__TRY(attn__check_view(&v, f, f->flags & unread ? w->flags & ~ATTN__WITH_DATA : w->flags, axis,
                                   &found->span, err));
        if (f->owner) ATTN__TRY(attn__check_owner(w, f, &v, err));
        else for (i = 0; i < 4; i++)
            if (axis[i] >= 0) ATTN__TRY(attn__check_letter(w, f, f->shape[i], axis[i], v.size[axis[i]], err));
        found->field = f;
        found->structure = structure;
        w->count++;
    }
    return ATTN_OK;
}

/* The masked softmax alone may work in place: its weights where its scores were. */
static int attn__in_place(const attn__walk *w, const attn__found *o, const attn__found *x)
{
    const attn_view a = attn__view_in(o->structure, o->field), b = attn__view_in(x->structure, x->field);
    int i, same = w->in_place && o->field == &attn__fields[ATTN__F_weights] &&
        x->field == &attn__fields[ATTN__F_given_scores] && a.data == b.data;
    for (i = 0; i < 4; i++) same = same && (b.size[i] <= 1 || b.stride[i] == a.stride[i]);
    return same;
}

static int attn__is_written(const attn__walk *w, const attn__found *f)
{
    return f >= w->found + w->inputs && f->field->flags & ATTN__RESULT;
}

/* No output may share a byte with another one or with an input. */
static attn_status attn__check_overlaps(const attn__walk *w, attn_error *err)
{
    const attn__found *o, *x, *end = w->found + w->count;
    for (o = w->found; o < end; o++)
        for (x = w->found; attn__is_written(w, o) && x < end; x++) {
            const int both = attn__is_written(w, x);
            attn_view a, b;
            if (x == o || (both && x < o) || attn__apart(o->span, x->span)) continue;
            a = attn__view_in(o->structure, o->field);
            b = attn__view_in(x->structure, x->field);
            ATTN__RULE(attn__in_place(w, o, x) || attn__disjoint(&a, &b), ATTN_ERR_OVERLAP,
                       attn__name_of(o->field, ATTN__T_VIEW), both ? "must not overlap another output" :
                       "must not overlap an input");
        }
    return ATTN_OK;
}

static int64_t attn__int_at(const attn_view *v, int64_t index)
{
    return v->type == ATTN_I32 ? ((const int32_t *)v->data)[index] : ((const int64_t *)v->data)[index];
}

/* lengths or positions, [B] or [B,Sq], each least..most */
static attn_status attn__check_ints(const attn_desc *d, int field, int64_t least, int64_t most, const char *at_most,
                                    attn_error *err)
{
    const attn_view v = attn__view_at(d, field);
    const char *name = attn__name_of(&attn__fields[field], ATTN__T_VIEW);
    const int64_t n = v.rank == 2 ? v.size[1] : 1;
    int64_t b, i;
    if (!v.rank || !v.data || n == 0) return ATTN_OK;
    for (b = 0; b < v.size[0]; b++)
        for (i = 0; i < n; i++) {
            const int64_t x = attn__int_at(&v, b * v.stride[0] + (v.rank == 2 ? i * v.stride[1] : 0));
            if (x < least) return attn__fail2(err, ATTN_ERR_RANGE, name, "must be at least", x, least);
            if (x > most) return attn__fail2(err, ATTN_ERR_RANGE, name, at_most, x, most);
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

static uint32_t attn__taken_by(int32_t score)       /* ATTN__FOR_x */
{
    if (score == ATTN_SCORE_GIVEN) return ATTN__FOR_GIVEN;
    if (score == ATTN_SCORE_BILINEAR) return ATTN__FOR_VECTORS | ATTN__FOR_BILINEAR;
    if (score == ATTN_SCORE_ADDITIVE) return ATTN__FOR_VECTORS | ATTN__FOR_ADDITIVE;
    if (attn__is_kernel(score) && score != ATTN_SCORE_CONSTANT) return ATTN__FOR_VECTORS | ATTN__FOR_DISTANCE;
    return ATTN__FOR_VECTORS;
}
static attn_status attn__check_score(const attn_desc *d, attn_error *err)
{
    const int distance = (attn__taken_by(d->score) & ATTN__FOR_DISTANCE) != 0;
    ATTN__RULE(d->score >= 0 && d->score < ATTN_SCORE_COUNT, ATTN_ERR_OPTION, "score", "must be one of attn_score");
    ATTN__RULE(!attn__is_kernel(d->score) || (!d->scale_set && d->scale == 0.0f), ATTN_ERR_OPTION, "scale",
               "must not be set for a distance kernel: sigma sets its width");
    ATTN__RULE(attn__is_number(d->scale), ATTN_ERR_RANGE, "scale", "must be finite");
    ATTN__RULE(d->sigma == 0.0f || attn__is_width(d->sigma), ATTN_ERR_RANGE, "sigma",
               "must be within 1e-18..1e18, or 0 for 1");
    ATTN__RULE(distance || d->sigma == 0.0f, ATTN_ERR_OPTION, "sigma", "counts for the distance kernels only");
    ATTN__RULE(d->sigma == 0.0f || !d->sigma_per_head.rank, ATTN_ERR_OPTION, "sigma",
               "must be 0 where sigma_per_head is given");
    return ATTN_OK;
}

static attn_status attn__check_options(const attn_desc *d, attn_error *err)
{
    ATTN__RULE(d->align >= 0 && d->align < ATTN_ALIGN_COUNT, ATTN_ERR_OPTION, "align", "must be one of attn_align");
    ATTN__RULE(d->align != ATTN_ALIGN_POSITIONS || d->positions.rank, ATTN_ERR_NULL, "positions",
               "must be given for ATTN_ALIGN_POSITIONS");
    ATTN__RULE(d->align == ATTN_ALIGN_POSITIONS || !d->positions.rank, ATTN_ERR_OPTION, "align",
               "must be ATTN_ALIGN_POSITIONS where positions are given");
    ATTN__RULE(d->window || (d->window_left == 0 && d->window_right == 0), ATTN_ERR_OPTION,
               d->window_left ? "window_left" : "window_right", "counts only with window");
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

#define ATTN__FAR ((int64_t)1 << 62)    /* positions up to here can be added to sizes */
/* What the arrays hold that can be looked at. */
static attn_status attn__check_contents(const attn_desc *d, const attn__walk *w, attn_error *err)
{
    const char *axis = "must be at most the size of its axis";
    const attn_view *sigma = &d->sigma_per_head;
    int64_t h;
    ATTN__TRY(attn__check_ints(d, ATTN__F_key_lengths, 0, ATTN__LETTER(w, 'S'), axis, err));
    ATTN__TRY(attn__check_ints(d, ATTN__F_query_lengths, 0, ATTN__LETTER(w, 'Q'), axis, err));
    ATTN__TRY(attn__check_ints(d, ATTN__F_positions, -ATTN__FAR, ATTN__FAR, "must be at most", err));
    for (h = 0; sigma->rank && sigma->data && h < sigma->size[0]; h++)
        ATTN__RULE(attn__is_width(((const float *)sigma->data)[h * sigma->stride[0]]), ATTN_ERR_RANGE, "sigma_per_head",
                   "must be within 1e-18..1e18");
    return ATTN_OK;
}

static int attn__uses_positions(const attn_desc *d)
{
    return d->causal || d->alibi.rank || (d->window && (d->window_left >= 0 || d->window_right >= 0));
}

/* All rules of a descriptor; without: as attn__check_fields, where the walk knows the sizes already. */
static attn_status attn__check_desc(attn__walk *w, const attn_desc *d, uint32_t without, attn_error *err)
{
    const uint32_t unread = d->score == ATTN_SCORE_CONSTANT ? (uint32_t)ATTN__FOR_VECTORS : 0u;
    int64_t all;
    int i, any = w->flags & ATTN__NO_RESULT_NEEDED;
    ATTN__TRY(attn__check_score(d, err));
    ATTN__TRY(attn__check_options(d, err));
    w->takes = attn__taken_by(d->score);
    w->in_place = !d->out.rank;
    ATTN__TRY(attn__check_fields(w, d, attn__fields, ATTN__F_COUNT, without, unread, err));
    for (i = 0; i < w->count; i++) any |= attn__is_written(w, &w->found[i]);
    ATTN__RULE(any, ATTN_ERR_NULL, "out", "must be given, or another result");
    ATTN__RULE(!d->out.rank || d->v.rank, ATTN_ERR_NULL, "v", "must be given where out is");
    ATTN__RULE(w->flags & ATTN__NO_RESULT_NEEDED || !d->weights_after_dropout || d->dropout == 0.0f || d->weights.rank,
               ATTN_ERR_OPTION, "weights_after_dropout", "counts only where weights are given");
    ATTN__RULE(d->align != ATTN_ALIGN_UNSET || ATTN__LETTER(w, 'Q') == ATTN__LETTER(w, 'S') || !attn__uses_positions(d),
               ATTN_ERR_OPTION, "align", "must be set where Sq != Sk: ATTN_ALIGN_BOTTOM_RIGHT (the last query sits at "
               "the last key, as in decode), ATTN_ALIGN_TOP_LEFT (query i at key i) or ATTN_ALIGN_POSITIONS");
    if (d->score == ATTN_SCORE_ADDITIVE && !d->w_q.rank && d->q.size[3] != ATTN__LETTER(w, 'U'))
        return attn__fail2(err, ATTN_ERR_SIZE, "q.size[3]", "must equal the size of w_v where w_q is absent",
                           d->q.size[3], ATTN__LETTER(w, 'U'));
    if (d->score == ATTN_SCORE_ADDITIVE && !d->w_k.rank && d->k.size[3] != ATTN__LETTER(w, 'U'))
        return attn__fail2(err, ATTN_ERR_SIZE, "k.size[3]", "must equal the size of w_v where w_k is absent",
                           d->k.size[3], ATTN__LETTER(w, 'U'));
    all = attn__mul64(attn__mul64(ATTN__LETTER(w, 'B'), ATTN__LETTER(w, 'H')),
                      attn__mul64(ATTN__LETTER(w, 'Q'), ATTN__LETTER(w, 'S')));
    ATTN__RULE(all < ATTN__HUGE / 8 && all * 4 <= (int64_t)((size_t)-1 / 2), ATTN_ERR_OVERFLOW,
               attn__name_of(w->of['S' - 'A'], ATTN__T_VIEW), "must make B*H*Sq*Sk a number that can be counted");
    if (!(w->flags & ATTN__ON_DEVICE)) ATTN__TRY(attn__check_contents(d, w, err));
    return w->flags & ATTN__WITH_DATA ? attn__check_overlaps(w, err) : ATTN_OK;
}

#ifndef ATTN_NO_BACKWARD
/* Of what the walk found, what a backward call reads: the forward's results are inputs now, or do not count. */
static void attn__keep_inputs(attn__walk *w)
{
    int i, n = 0;
    for (i = 0; i < w->count; i++) {
        const uint32_t flags = w->found[i].field->flags;
        if (!(flags & ATTN__RESULT) || flags & ATTN__KEPT) w->found[n++] = w->found[i];
    }
    w->count = w->inputs = n;
}

/* The gradients of a call whose descriptor the walk has been through. */
static attn_status attn__check_grad(attn__walk *w, const attn_desc *d, const attn_grad *g, attn_error *err)
{
    int i, first, above = 0, results = 0, reads_out = 0;
    attn__keep_inputs(w);
    first = w->count;
    w->owners = attn__fields;
    w->owned = d;
    ATTN__TRY(attn__check_fields(w, g, attn__grad_fields, ATTN__G_COUNT, 0, 0, err));
    for (i = first; i < w->count; i++) {
        const int written = attn__is_written(w, &w->found[i]);
        above |= !written;
        results |= written;
        reads_out |= written && w->found[i].field != &attn__grad_fields[ATTN__G_dv];
    }
    ATTN__RULE(!g->d_out.rank || d->v.rank, ATTN_ERR_OPTION, "d_out", "must be absent where v is");
    ATTN__RULE(!g->d_sigma.rank || attn__is_kernel(d->score), ATTN_ERR_OPTION, "d_sigma",
               "counts for the distance kernels only");
    ATTN__RULE(!g->d_scale.rank || !attn__is_kernel(d->score), ATTN_ERR_OPTION, "d_scale",
               "must be absent for the distance kernels");
    if (g->d_sigma.rank && g->d_sigma.size[0] != (d->sigma_per_head.rank ? d->sigma_per_head.size[0] : 1))
        return attn__fail2(err, ATTN_ERR_SIZE, "d_sigma.size[0]", "must be 1, or that of sigma_per_head",
                           g->d_sigma.size[0], d->sigma_per_head.rank ? d->sigma_per_head.size[0] : 1);
    ATTN__RULE(above, ATTN_ERR_NULL, "d_out", "must be given, or another gradient from above");
    ATTN__RULE(results, ATTN_ERR_NULL, "dq", "must be given, or another result");
    ATTN__RULE(g->accumulate <= ATTN_GRAD_ALL, ATTN_ERR_OPTION, "accumulate", "must be ATTN_GRAD_x bits");
    ATTN__RULE(g->reserved == 0, ATTN_ERR_OPTION, "reserved", "must be 0");
    ATTN__RULE(d->out.rank || !g->d_out.rank || !reads_out, ATTN_ERR_NULL, "out",
               "must be given: the forward's result is read");
    return w->flags & ATTN__WITH_DATA ? attn__check_overlaps(w, err) : ATTN_OK;
}
#endif

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
    int i;
    for (i = 0; i < count; i++) {
        const attn_view v = attn__view_in(structure, &fields[i]);
        ATTN__TRY(attn__see(at, &v, attn__name_of(&fields[i], ATTN__T_VIEW), err));
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
static attn_status attn__find_place_of(const void *structure, const attn__field *fields, int count,
                                       const attn_desc *options, int *flags, attn_error *err)
{
    attn__place at = {ATTN__PLACE_HOST | ATTN__PLACE_DEVICE, 0};
    if (!structure) return ATTN_OK;
    ATTN__TRY(attn__see_fields(&at, structure, fields, count, err));
    if (options) ATTN__TRY(attn__see_workspace(&at, options, err));
    *flags = attn__place_flags(&at, *flags);
    return ATTN_OK;
}
static attn_status attn__find_place(const attn_desc *d, int *flags, attn_error *err)
{
    return attn__find_place_of(d, attn__fields, ATTN__F_COUNT, d, flags, err);
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

/* The sizes that the letters stand for. */
static void attn__shape_from(const attn__walk *w, attn__shape *s)
{
    s->batch = ATTN__LETTER(w, 'B');
    s->heads = ATTN__LETTER(w, 'H');
    s->heads_kv = w->of['K' - 'A'] ? ATTN__LETTER(w, 'K') : s->heads;
    s->queries = ATTN__LETTER(w, 'Q');
    s->keys = ATTN__LETTER(w, 'S');
    s->size_q = ATTN__LETTER(w, 'D');
    s->size_k = ATTN__LETTER(w, 'E');
    s->size_v = ATTN__LETTER(w, 'V');
    s->hidden = ATTN__LETTER(w, 'U');
}

/* Checks everything; fills in defaults in *d and the shape. grad: an attn_grad or NULL. */
static attn_status attn__resolve(attn_desc *d, attn__shape *s, const void *grad, int flags, attn_error *err)
{
    const attn__kernels *kernels;
    int64_t rows, depth, lanes_floats, few_floats;
    attn__walk w;
    attn__walk_begin(&w, flags);
    ATTN__TRY(attn__check_desc(&w, d, 0, err));
#ifndef ATTN_NO_BACKWARD
    if (grad) ATTN__TRY(attn__check_grad(&w, d, (const attn_grad *)grad, err));
#endif
    (void)grad;
    attn__shape_from(&w, s);
#ifdef ATTN_CUDA
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
    t->f->exp(e, e, n);
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
/* What cannot be a view of anything: refused by whatever takes it or a part of it. */
static attn_view attn__no_view(attn_view v, int rank)
{
    v.rank = rank;
    return v;
}
/* A view that lies in `rows` rows of `row` elements, if so many can be. */
static attn_view attn__within(attn_view v, int64_t row, int64_t rows)
{
    return row > 0 && rows > 0 && attn__elements(&v) > 0 && attn__mul64(row, rows) > ATTN__HUGE / 8 ?
        attn__no_view(v, ATTN__RANK_OVERFLOW) : v;
}
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
    return attn__within(v, v.stride[0], v.size[0]);
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
    const attn_view whole = attn_view_f32(data, 4, b, s, 3, attn__mul64(h > 0 ? h : 0, d > 0 ? d : 0));
    attn_view v = attn_view_bshd(data, b, s, h, d);
    if (which < 0 || which > 2) return attn__no_view(v, ATTN__RANK_NONE);
    if (whole.rank != 4 || v.rank != 4) return attn__no_view(v, ATTN__RANK_OVERFLOW);
    v.stride[0] = whole.stride[0];
    v.stride[2] = whole.stride[1];
    if (data && attn__elements(&v) > 0) v.data = data + which * whole.stride[2];
    return v;
}
ATTN_DEF attn_view attn_view_rows(const float *data, int64_t b, int64_t s, int64_t h, int64_t d, int64_t row)
{
    attn_view v = attn_view_bshd(data, b, s, h, d);
    v.stride[0] = s > 0 && row > 0 ? attn__mul64(s, row) : 0;
    v.stride[2] = row;
    return attn__within(v, v.stride[0], b);
}
ATTN_DEF attn_out attn_out_rows(float *data, int64_t b, int64_t s, int64_t h, int64_t d, int64_t row)
{ return attn__out(data, attn_view_rows(data, b, s, h, d, row)); }
ATTN_DEF attn_view attn_view_slice(attn_view v, int axis, int64_t first, int64_t count)
{
    if (v.rank <= 0) return v;
    if (!attn__has_axis(&v, axis)) return attn__no_view(v, ATTN__RANK_NONE);
    if (first < 0 || count < 0 || count > v.size[axis] || first > v.size[axis] - count) {
        v.size[axis] = -1;                          /* refused by whatever takes it */
        return v;
    }
    if (v.data && count > 0)
        v.data = (const char *)((uintptr_t)v.data + (uintptr_t)first * (uintptr_t)v.stride[axis] *
                                (uintptr_t)attn__type_size(v.type));
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
    if (v.rank <= 0) return v;
    if (!attn__has_axis(&v, axis_a) || !attn__has_axis(&v, axis_b)) return attn__no_view(v, ATTN__RANK_NONE);
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
    static const char *const text[] = {"auto", "scalar", "avx2", "avx512"};
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

/* ---- the layout: S(structure), then F(structure, field) for each of its fields, views first */
#define ATTN__D(f)  ATTN__F(attn_desc, f)
#define ATTN__DV(f, shape, axes, takes, flags) ATTN__F(attn_desc, f)
#define ATTN__G(f)  ATTN__F(attn_grad, f)
#define ATTN__GV(f, shape, axes, flags, owner) ATTN__F(attn_grad, f)
#define ATTN__H(f)  ATTN__F(attn_mha_desc, f)
#define ATTN__HV(f, shape, axes, flags) ATTN__F(attn_mha_desc, f)
#define ATTN__N(f)  ATTN__F(attn_mha_grad, f)
#define ATTN__P(f)  ATTN__F(attn_heatmap, f)
#define ATTN__FIELDS \
    ATTN__S(attn_view) ATTN__F(attn_view, data) ATTN__F(attn_view, size) ATTN__F(attn_view, stride) \
    ATTN__F(attn_view, type) ATTN__F(attn_view, rank) ATTN__S(attn_out) ATTN__F(attn_out, data) \
    ATTN__F(attn_out, size) ATTN__F(attn_out, stride) ATTN__F(attn_out, type) ATTN__F(attn_out, rank) \
    ATTN__S(attn_error) ATTN__F(attn_error, status) ATTN__F(attn_error, field) ATTN__F(attn_error, rule) \
    ATTN__F(attn_error, got) ATTN__F(attn_error, want) ATTN__F(attn_error, has_numbers) ATTN__F(attn_error, cuda) \
    ATTN__F(attn_error, reserved) ATTN__S(attn_allocator) ATTN__F(attn_allocator, allocate) \
    ATTN__F(attn_allocator, release) ATTN__F(attn_allocator, user) ATTN__S(attn_parallel) ATTN__F(attn_parallel, run) \
    ATTN__F(attn_parallel, user) ATTN__F(attn_parallel, workers) ATTN__S(attn_plan) \
    ATTN__F(attn_plan, workspace_bytes) ATTN__F(attn_plan, phases) ATTN__F(attn_plan, isa) ATTN__F(attn_plan, tasks) \
    ATTN__S(attn_desc) ATTN__VIEW_LIST(ATTN__DV) ATTN__D(struct_bytes) ATTN__D(score) ATTN__D(scale_set) \
    ATTN__D(scale) ATTN__D(sigma) ATTN__D(softcap) ATTN__D(causal) ATTN__D(align) ATTN__D(window) ATTN__D(empty) \
    ATTN__D(window_left) ATTN__D(window_right) ATTN__D(dropout) ATTN__D(weights_after_dropout) ATTN__D(seed) \
    ATTN__D(dropout_origin) ATTN__D(isa) ATTN__D(reserved) ATTN__D(workspace) ATTN__D(workspace_bytes) \
    ATTN__D(allocator) ATTN__D(parallel) ATTN__D(stream) ATTN__S(attn_mha_desc) ATTN__MHA_LIST(ATTN__HV) \
    ATTN__H(struct_bytes) ATTN__H(heads) ATTN__H(heads_kv) ATTN__H(attention)
#ifdef ATTN_NO_BACKWARD
#  define ATTN__GRADIENT_FIELDS
#else
#define ATTN__GRADIENT_FIELDS \
    ATTN__S(attn_grad) ATTN__GRAD_LIST(ATTN__GV) ATTN__G(struct_bytes) ATTN__G(accumulate) ATTN__G(reserved) \
    ATTN__S(attn_mha_grad) ATTN__N(struct_bytes) ATTN__N(d_out) ATTN__N(dquery) ATTN__N(dkey) ATTN__N(dvalue) \
    ATTN__N(dw_query) ATTN__N(dw_key) ATTN__N(dw_value) ATTN__N(dw_result) ATTN__N(db_query) ATTN__N(db_key) \
    ATTN__N(db_value) ATTN__N(db_result) ATTN__N(attention) ATTN__N(accumulate) ATTN__N(reserved)
#endif
#ifdef ATTN_NO_HEATMAP
#  define ATTN__PICTURE_FIELDS
#else
#define ATTN__PICTURE_FIELDS \
    ATTN__S(attn_writer) ATTN__F(attn_writer, write) ATTN__F(attn_writer, user) ATTN__S(attn_buffer) \
    ATTN__F(attn_buffer, data) ATTN__F(attn_buffer, size) ATTN__F(attn_buffer, length) ATTN__S(attn_heatmap) \
    ATTN__P(struct_bytes) ATTN__P(values) ATTN__P(mask_of) ATTN__P(title) ATTN__P(x_label) ATTN__P(y_label) \
    ATTN__P(x_ticks) ATTN__P(y_ticks) ATTN__P(panel_titles) ATTN__P(colormap) ATTN__P(range_set) ATTN__P(range_min) \
    ATTN__P(range_max) ATTN__P(width) ATTN__P(height) ATTN__P(ticks_on_top) ATTN__P(no_colorbar) ATTN__P(numbers) \
    ATTN__P(terminal)
#endif
ATTN_DEF size_t attn_layout(char *text, size_t size)
{
#define ATTN__S(structure) {0xffffu, (uint16_t)sizeof(structure)},
#define ATTN__F(structure, f) {(uint16_t)offsetof(structure, f), (uint16_t)sizeof(((structure *)0)->f)},
    static const struct { uint16_t offset, size; } at[] = {
        ATTN__FIELDS ATTN__GRADIENT_FIELDS ATTN__PICTURE_FIELDS};
#undef ATTN__S
#undef ATTN__F
#define ATTN__S(structure) #structure "\0"
#define ATTN__F(structure, f) #f "\0"
    static const char names[] = ATTN__FIELDS ATTN__GRADIENT_FIELDS ATTN__PICTURE_FIELDS;
#undef ATTN__S
#undef ATTN__F
    const char *name = names;
    attn__text t;
    size_t i;
    t.at = text;
    t.size = text ? size : 0;
    t.length = 0;
    for (i = 0; i < sizeof at / sizeof *at; i++) {
        const int field = at[i].offset != 0xffffu;
        attn__put(&t, field ? "    " : "");
        attn__put(&t, name);
        attn__put(&t, " ");
        if (field) attn__put_number(&t, at[i].offset);
        attn__put(&t, field ? " " : "");
        attn__put_number(&t, at[i].size);
        attn__put(&t, "\n");
        while (*name++) {}
    }
    return attn__end_text(&t);
}

/* ---- attention */
static void attn__zero(void *p, size_t bytes)
{
    unsigned char *b = (unsigned char *)p;
    while (bytes--) *b++ = 0;
}
static void attn__make_absent(attn_desc *d, uint32_t which)           /* fields with one of these flags become absent */
{
    int i;
    for (i = 0; i < ATTN__F_COUNT; i++)
        if (attn__fields[i].flags & which) attn__zero((char *)d + attn__fields[i].offset, sizeof(attn_view));
}
static attn_status attn__options(const attn_desc *options, uint32_t without, attn_desc *d, attn_error *err)
{
    ATTN__KNOWN(attn_desc, options, d, stream, "struct_bytes");
    if (!options) attn__zero(d, sizeof *d);
    else if (options != d) *d = *options;
    d->struct_bytes = 0;
    attn__make_absent(d, without);
    return ATTN_OK;
}
#define ATTN__OPTIONS (ATTN__OPERAND | ATTN__RESULT)        /* what options are without */

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
    ATTN__KNOWN(attn_desc, desc, &plan->desc, stream, "struct_bytes");
    if (desc != &plan->desc) plan->desc = *desc;
    ATTN__TRY(attn__resolve(&plan->desc, &s, NULL, flags, err));
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

/* An error in a field that has another name in the function that was called, where it was of that rank. */
static void attn__rename(attn_error *err, const attn__field *from, const attn__field *to, int rank)
{
    int n;
    if (err->status == ATTN_OK) return;
    if (err->rule == from->axes) err->rule = to->axes;
    for (n = 0; n < ATTN__T_COUNT; n++) {
        const int axis = rank == 3 && n == ATTN__T_SIZE ? 0 : n - ATTN__T_SIZE - (4 - rank), is_size = n > 0 && n < 5;
        const int as = !is_size ? n : axis < 0 ? ATTN__T_VIEW : ATTN__T_SIZE + axis;
        if (err->rule == attn__rule_of(from, n)) err->rule = attn__rule_of(to, as);
        if (err->field == attn__name_of(from, n)) {
            err->field = attn__name_of(to, as);
            return;
        }
    }
}

/* The shape of [n], [Sq,Sk], [B,Sq,Sk] or [B,H,Sq,Sk], by its rank. */
static attn_view attn__rows4(attn_view v)
{
    static const char *const shapes[5] = {"", "...S", "..QS", "B.QS", "BHQS"};
    return attn__view4(v, shapes[v.rank < 0 || v.rank > 4 ? 0 : v.rank]);
}
#define ATTN__X_TEXTS(f) {ATTN__TEXTS(f), "must be that of [n], [Sq,Sk], [B,Sq,Sk] or [B,H,Sq,Sk]", "", 0, 0, 0, 0}
/* The options of a softmax of x as those of an attention to given scores. Where x has 3 axes, theirs are the same 3. */
static attn_status attn__softmax_options(const attn_view *x, const attn_desc *options, attn_desc *d, attn_error *err)
{
    ATTN__RULE(x->rank, ATTN_ERR_NULL, "x", "must be given");
    ATTN__TRY(attn__options(options, ATTN__OPTIONS, d, err));
    d->score = ATTN_SCORE_GIVEN;
    d->given_scores = attn__rows4(*x);
    if (x->rank == 3 && d->mask.rank == 3) d->mask = attn__rows4(d->mask);
    if (x->rank == 3 && d->bias.rank == 3) d->bias = attn__rows4(d->bias);
    return ATTN_OK;
}
static void attn__softmax_error(attn_error *err, const attn_view *x, const attn_desc *options)
{
    static const attn__field field = ATTN__X_TEXTS("x");
    const attn__field *mask = &attn__fields[ATTN__F_mask], *bias = &attn__fields[ATTN__F_bias];
    attn__rename(err, &attn__fields[ATTN__F_given_scores], &field, x->rank);
    if (x->rank == 3 && options && options->mask.rank == 3) attn__rename(err, mask, mask, 3);
    if (x->rank == 3 && options && options->bias.rank == 3) attn__rename(err, bias, bias, 3);
}

static attn_status attn__softmax(attn_view x, attn_out out, const attn_desc *options, size_t *bytes, attn_error *err)
{
    static const attn__field field_out = ATTN__X_TEXTS("out");
    attn_desc d;
    attn_status st;
    ATTN__TRY(attn__softmax_options(&x, options, &d, err));
    ATTN__RULE(out.rank, ATTN_ERR_NULL, "out", "must be given");
    if (out.rank != x.rank) return attn__fail2(err, ATTN_ERR_RANK, "out.rank", "must equal x.rank", out.rank, x.rank);
    if (options) d.lse = options->lse;
    if (options) d.stats = options->stats;
    d.weights = attn__out(out.data, attn__rows4(attn_view_of(out)));
    st = bytes ? attn_workspace_size(&d, bytes, err) : attn_forward(&d, err);
    if (st == ATTN_OK || !err) return st;
    attn__softmax_error(err, &x, options);
    attn__rename(err, &attn__fields[ATTN__F_weights], &field_out, x.rank);
    return st;
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
    attn_desc d;
    ATTN__TRY(attn__options(options, ATTN__OPTIONS, &d, err));
    ATTN__RULE(scores.rank, ATTN_ERR_NULL, "scores", "must be given");
    d.q = q;
    d.k = k;
    d.scores = scores;
    d.weights_after_dropout = 0;
    return attn_forward(&d, err);
}

/* A mask as data, and where it is not NULL what makes it: no scores, only what says who may attend to whom. */
static attn_status attn__mask_check(const void *mask, const attn__field *f, const attn_desc *options, int flags,
                                    attn_error *err)
{
    attn__walk w;
    attn_desc d;
    attn__walk_begin(&w, flags | ATTN__NO_RESULT_NEEDED);
    ATTN__TRY(attn__check_fields(&w, mask, f, 1, 0, ATTN__OPERAND, err));
    if (!options) return ATTN_OK;
    ATTN__TRY(attn__check_bytes(options, sizeof d, offsetof(attn_desc, stream) + sizeof d.stream, "struct_bytes", err));
    attn__zero(&d, sizeof d);
    d.causal = options->causal;
    d.align = options->align;
    d.window = options->window;
    d.window_left = options->window_left;
    d.window_right = options->window_right;
    d.bias = options->bias;
    d.mask = options->mask;
    d.key_lengths = options->key_lengths;
    d.query_lengths = options->query_lengths;
    d.positions = options->positions;
    return attn__check_desc(&w, &d, ATTN__OPERAND, err);
}
static const attn__field attn__mask_field = {
    ATTN__TEXTS("mask"), "must be that of [B,H,Sq,Sk]; without heads H = 1", "BHQS", ATTN__BYTES, 0, 0,
    ATTN__RESULT | ATTN__NEEDED};
static int64_t attn__out_elements(const attn_out *o)       /* absent: none */
{
    const attn_view v = attn_view_of(*o);
    return v.rank ? attn__elements(&v) : 0;
}
static uint8_t *attn__byte_at(const attn_out *m, int64_t b, int64_t h, int64_t i, int64_t j)
{
    return (uint8_t *)m->data + (b*m->stride[0] + h*m->stride[1] + i*m->stride[2] + j*m->stride[3]);
}

#ifdef ATTN_CUDA
static attn_status attn__mask_find_place(const attn_out *mask, const attn_desc *d, int *flags, attn_error *err)
{
    attn__place at = {ATTN__PLACE_HOST | ATTN__PLACE_DEVICE, 0};
    ATTN__TRY(attn__see_fields(&at, mask, &attn__mask_field, 1, err));
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
    int64_t b, h, i, j;
    int flags = ATTN__WITH_DATA;
    attn_desc d;
    ATTN__TRY(attn__options(options, ATTN__OPTIONS, &d, err));
    ATTN__FIND_PLACE(attn__mask_find_place(&mask, &d, &flags, err));
    ATTN__TRY(attn__mask_check(&mask, &attn__mask_field, &d, flags, err));
    if (!attn__out_elements(&mask)) return attn__success(err);
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
    attn_desc d;
    attn__fp_state saved;
    ATTN__TRY(attn__options(options, ATTN__OPTIONS, &d, err));
    ATTN__TRY(attn__mask_check(&mask, &attn__mask_field, NULL, ATTN__WITH_DATA, err));
    ATTN__RULE(attn__is_number(d.dropout) && d.dropout >= 0.0f && d.dropout <= 1.0f, ATTN_ERR_RANGE, "dropout",
               "must be within 0..1");
    if (!attn__out_elements(&mask)) return attn__success(err);
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

typedef struct attn__merge_arrays { attn_view out_a, lse_a, out_b, lse_b; attn_out out, lse; } attn__merge_arrays;

ATTN_DEF attn_status attn_merge(attn_view out_a, attn_view lse_a, attn_view out_b, attn_view lse_b,
                                attn_out out, attn_out lse, attn_error *err)
{
#define ATTN__OF_MERGE(f, flags) ATTN__ROW(attn__merge_arrays, f, "BHQV", "[B,H,Sq,Dv]; without heads H = 1", FLOATS, \
                                           flags, 0)
#define ATTN__LSE_OF_MERGE(f, flags) ATTN__ROW(attn__merge_arrays, f, "BHQ.", "[B,H,Sq]; without heads H = 1", FLOATS, \
                                               flags, 0)
    static const attn__field fields[6] = {
        ATTN__OF_MERGE(out_a, ATTN__NEEDED), ATTN__LSE_OF_MERGE(lse_a, ATTN__NEEDED),
        ATTN__OF_MERGE(out_b, ATTN__NEEDED), ATTN__LSE_OF_MERGE(lse_b, ATTN__NEEDED),
        ATTN__OF_MERGE(out, ATTN__NEEDED | ATTN__RESULT), ATTN__LSE_OF_MERGE(lse, ATTN__RESULT)};
#undef ATTN__OF_MERGE
#undef ATTN__LSE_OF_MERGE
    attn__merge_arrays m;
    attn__walk w;
    attn__fp_state saved;
    int flags = ATTN__WITH_DATA;
    m.out_a = out_a;
    m.lse_a = lse_a;
    m.out_b = out_b;
    m.lse_b = lse_b;
    m.out = out;
    m.lse = lse;
    ATTN__FIND_PLACE(attn__find_place_of(&m, fields, 6, NULL, &flags, err));
    attn__walk_begin(&w, flags);
    ATTN__TRY(attn__check_fields(&w, &m, fields, 6, 0, 0, err));
    ATTN__TRY(attn__check_overlaps(&w, err));
#ifdef ATTN_CUDA
    if (flags & ATTN__ON_DEVICE) {          /* there is no descriptor: the default stream */
        ATTN__TRY(attn__cuda_merge(&m.out_a, NULL, err));
        return attn__success(err);
    }
#endif
    if (!attn__out_elements(&out) && !attn__out_elements(&lse)) return attn__success(err);
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

typedef struct attn__bmm_arrays { attn_view a, b; attn_out out; } attn__bmm_arrays;
#define ATTN__BMM_ROW(structure, f, shape, flags) \
    ATTN__ROW(structure, f, shape, "a matrix: 2, or 3 or 4 with batch axes before it", FLOATS, flags, 0)
static const attn__field attn__bmm_fields[3] = {
    ATTN__BMM_ROW(attn__bmm_arrays, a, "bhRT", ATTN__NEEDED | ATTN__BROADCAST),
    ATTN__BMM_ROW(attn__bmm_arrays, b, "bhTC", ATTN__NEEDED | ATTN__BROADCAST),
    ATTN__BMM_ROW(attn__bmm_arrays, out, "bhRC", ATTN__NEEDED | ATTN__RESULT)};

/* The factors, then what has their product's shape, with the batch that they have together. */
static attn_status attn__check_product(attn__walk *w, const void *arrays, const attn__field *fields, attn_error *err)
{
    static const attn__field batch = {"must have the broadcast batch of a and b", "", "", 0, 0, 0, 0};
    attn_view out;
    int i;
    ATTN__TRY(attn__check_fields(w, arrays, fields, 2, 0, 0, err));
    if (!w->of['B' - 'A']) attn__bind(w, 'B', 1, &batch, -1);
    if (!w->of['H' - 'A']) attn__bind(w, 'H', 1, &batch, -1);
    ATTN__TRY(attn__check_fields(w, arrays, fields + 2, 1, 0, 0, err));
    out = attn__view_in(arrays, fields + 2);
    for (i = 0; i < 4 - out.rank; i++) {
        const int64_t n = ATTN__LETTER(w, i ? 'H' : 'B');
        if (n != 1) return attn__fail2(err, ATTN_ERR_SIZE, attn__name_of(fields + 2, ATTN__T_RANK), batch.texts, 1, n);
    }
    return ATTN_OK;
}

static attn_status attn__bmm_check(const attn__bmm_arrays *x, const attn_desc *options, int flags, attn_error *err)
{
    attn__walk w;
    attn__walk_begin(&w, flags);
    ATTN__TRY(attn__check_product(&w, x, attn__bmm_fields, err));
    if (flags & ATTN__WITH_DATA) ATTN__TRY(attn__check_overlaps(&w, err));
    return attn__check_options(options, err);
}

static attn_status attn__bmm_resolve(attn_view a, attn_view b, attn_out out, const attn_desc *options, int flags,
                                     attn__bmm *m, attn_error *err)
{
    m->a = attn__view4(a, "bhRT");
    m->b = attn__view4(b, "bhTC");
    m->out = attn__out(out.data, attn__view4(attn_view_of(out), "bhRC"));
    m->f = attn__table(options->isa ? options->isa : (int32_t)attn_best_isa());
    m->ld = m->f->width * m->f->vecs;
    m->column_tiles = attn__blocks(m->out.size[3], m->ld);
    m->worker_bytes = attn__bytes_of(attn__mul64(attn__add64(m->a.size[3], ATTN__BMM_ROWS), m->ld));
    ATTN__RULE(attn__mul64(m->worker_bytes, (int64_t)options->parallel.workers + 1) < (int64_t)((size_t)-1 / 4),
               ATTN_ERR_OVERFLOW, "a", "must leave a workspace that fits in memory");
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
/* The place, the checks and the set-up of one product. */
static attn_status attn__bmm_begin(attn_view a, attn_view b, attn_out out, const attn_desc *options, int flags,
                                   attn__bmm *m, attn_error *err)
{
    attn__bmm_arrays x;
    x.a = a;
    x.b = b;
    x.out = out;
    ATTN__FIND_PLACE(attn__find_place_of(&x, attn__bmm_fields, 3, options, &flags, err));
    ATTN__TRY(attn__bmm_check(&x, options, flags, err));
    return attn__bmm_resolve(a, b, out, options, flags, m, err);
}

ATTN_DEF attn_status attn_bmm_workspace_size(attn_view a, attn_view b, attn_out out, const attn_desc *options,
                                             size_t *bytes, attn_error *err)
{
    attn_desc d;
    attn__bmm m;
    ATTN__TRY(attn__options(options, ATTN__OPTIONS, &d, err));
    ATTN__RULE(bytes, ATTN_ERR_NULL, "bytes", "must not be NULL");
    ATTN__TRY(attn__bmm_begin(a, b, out, &d, 0, &m, err));
    *bytes = attn__bmm_workspace(&m, &d);
    return attn__success(err);
}

ATTN_DEF attn_status attn_bmm(attn_view a, attn_view b, attn_out out, const attn_desc *options, attn_error *err)
{
    attn_desc d;
    attn__memory memory;
    attn__bmm m;
    attn_status st;
    ATTN__TRY(attn__options(options, ATTN__OPTIONS, &d, err));
    ATTN__TRY(attn__bmm_begin(a, b, out, &d, ATTN__WITH_DATA, &m, err));
    ATTN__TRY(attn__acquire(&d, attn__bmm_workspace(&m, &d), m.flags, &memory, err));
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

/* All that a call has but the contents; d: its options without q, k, v and out. */
static attn_status attn__mha_check_fields(attn__walk *w, const attn_mha_desc *desc, const attn_desc *d,
                                          uint32_t without, attn_error *err)
{
#define ATTN__FROM(rule) {rule, "", "", 0, 0, 0, 0}
    static const attn__field heads_of = ATTN__FROM("must equal heads"), heads_kv_of = ATTN__FROM("must equal heads_kv"),
        depth = ATTN__FROM("must equal w_query.size[0] / heads"),
        width = ATTN__FROM("must equal w_value.size[0] / heads_kv"),
        depths = ATTN__FROM("must equal heads_kv * w_query.size[0] / heads"),
        widths = ATTN__FROM("must equal heads * w_value.size[0] / heads_kv");
#undef ATTN__FROM
    const attn__field *f = attn__mha_fields, *key = &f[desc->key.rank ? ATTN__H_key : ATTN__H_query];
    const int64_t heads = desc->heads, heads_kv = desc->heads_kv ? desc->heads_kv : heads;
    int64_t size_d, size_v;
    int i;
    ATTN__RULE(heads > 0, ATTN_ERR_RANGE, "heads", "must be at least 1");
    ATTN__RULE(heads_kv > 0 && heads % heads_kv == 0, ATTN_ERR_RANGE, "heads_kv", "must divide heads");
    ATTN__RULE(desc->w_result.rank || !desc->b_result.rank, ATTN_ERR_OPTION, "b_result",
               "must be absent where w_result is");
    ATTN__TRY(attn__check_score(d, err));
    ATTN__TRY(attn__check_options(d, err));
    w->takes = attn__taken_by(d->score);
    for (i = 0; i < 3; i++) {
        const attn_view v = attn__view_in(desc, &f[ATTN__H_w_query + i]);
        const int64_t n = i ? heads_kv : heads;
        if (v.rank == 2 && v.size[0] > 0 && v.size[0] % n != 0)
            return attn__fail2(err, ATTN_ERR_SIZE, attn__name_of(&f[ATTN__H_w_query + i], ATTN__T_SIZE),
                               "must be a multiple of the number of heads", v.size[0], n);
    }
    size_d = desc->w_query.size[0] / heads;
    size_v = desc->w_value.size[0] / heads_kv;
    if (!desc->key.rank) attn__bind(w, 'S', desc->query.size[1], key, 1);       /* what stands in for it */
    if (!desc->key.rank) attn__bind(w, 'Y', desc->query.size[2], key, 2);
    if (!desc->value.rank) attn__bind(w, 'Z', desc->key.rank ? desc->key.size[2] : desc->query.size[2], key, 2);
    if (!(w->takes & (ATTN__FOR_BILINEAR | ATTN__FOR_ADDITIVE)))
        attn__bind(w, 'N', attn__mul64(heads_kv, size_d), &depths, -1);
    attn__bind(w, 'T', attn__mul64(heads, size_v), &widths, -1);
    if (!desc->w_result.rank) attn__bind(w, 'O', ATTN__LETTER(w, 'T'), &widths, -1);
    ATTN__TRY(attn__check_fields(w, desc, f, ATTN__H_COUNT, 0, 0, err));
    attn__bind(w, 'H', heads, &heads_of, -1);
    attn__bind(w, 'K', heads_kv, &heads_kv_of, -1);
    attn__bind(w, 'D', size_d, &depth, -1);
    attn__bind(w, 'E', ATTN__LETTER(w, 'N') / heads_kv, &f[ATTN__H_w_key], 0);
    attn__bind(w, 'V', size_v, &width, -1);
    ATTN__TRY(attn__check_fields(w, d, attn__fields, ATTN__F_COUNT, without, 0, err));
    return w->flags & ATTN__WITH_DATA ? attn__check_overlaps(w, err) : ATTN_OK;
}

ATTN__NOINLINE static attn_status attn__mha_check(const attn_mha_desc *desc, const attn_desc *d, int flags,
                                                  attn_error *err)
{
    attn__walk w;
    attn__walk_begin(&w, flags);
    return attn__mha_check_fields(&w, desc, d, ATTN__OPERAND, err);
}

/* One projection y = x W^T: x [B,S,E], w [out,E], y [B,S,out]. */
static attn_status attn__mha_project(attn__mha *m, int which, attn_view x, attn_view w, attn_view bias, attn_out y,
                                     attn_error *err)
{
    m->bias[which] = bias;
    return attn__bmm_resolve(x, attn_view_swap(w, 0, 1), y, &m->attention, m->flags, &m->product[which], err);
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
    attn__place at = {ATTN__PLACE_HOST | ATTN__PLACE_DEVICE, 0};
    ATTN__TRY(attn__see_fields(&at, desc, attn__mha_fields, ATTN__H_COUNT, err));
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
    int64_t heads, heads_kv, size_d, size_v, batch, queries, keys;
    int flags = base ? ATTN__WITH_DATA : 0;
    attn_view x[3], w[4];
    attn_desc *d = &m->attention;
    float *q, *k, *v, *o;
    size_t most = 0;
    int i;
    ATTN__RULE(desc, ATTN_ERR_NULL, "desc", "must not be NULL");
    ATTN__FIND_PLACE(attn__mha_find_place(desc, &flags, err));
    m->flags = flags;
    ATTN__TRY(attn__options(desc->attention, ATTN__OPERAND, d, err));
    attn__zero(&d->out, sizeof d->out);
    ATTN__TRY(attn__mha_check(desc, d, flags, err));
    x[0] = desc->query;
    x[1] = desc->key.rank ? desc->key : x[0];
    x[2] = desc->value.rank ? desc->value : x[1];
    w[0] = desc->w_query;
    w[1] = desc->w_key;
    w[2] = desc->w_value;
    w[3] = desc->w_result;
    heads = desc->heads;
    heads_kv = desc->heads_kv ? desc->heads_kv : heads;
    batch = x[0].size[0];
    queries = x[0].size[1];
    keys = x[1].size[1];
    size_d = w[0].size[0] / heads;
    size_v = w[2].size[0] / heads_kv;
    m->floats[0] = attn__mul64(attn__mul64(batch, queries), w[0].size[0]);
    m->floats[1] = attn__mul64(attn__mul64(batch, keys), w[1].size[0]);
    m->floats[2] = attn__mul64(attn__mul64(batch, keys), w[2].size[0]);
    m->floats[3] = w[3].rank ? attn__mul64(attn__mul64(batch, queries), attn__mul64(heads, size_v)) : 0;
    q = base;
    k = base ? q + m->floats[0] : NULL;
    v = base ? k + m->floats[1] : NULL;
    o = base ? v + m->floats[2] : NULL;
    ATTN__TRY(attn__mha_project(m, 0, x[0], w[0], desc->b_query, attn_out_f32(q, 3, batch, queries, w[0].size[0], 0),
                                err));
    ATTN__TRY(attn__mha_project(m, 1, x[1], w[1], desc->b_key, attn_out_f32(k, 3, batch, keys, w[1].size[0], 0), err));
    ATTN__TRY(attn__mha_project(m, 2, x[2], w[2], desc->b_value, attn_out_f32(v, 3, batch, keys, w[2].size[0], 0),
                                err));
    d->q = attn_view_bshd(q, batch, queries, heads, size_d);
    d->k = attn_view_bshd(k, batch, keys, heads_kv, w[1].size[0] / heads_kv);
    d->v = attn_view_bshd(v, batch, keys, heads_kv, size_v);
    d->out = attn_out_bshd(o, batch, queries, heads, size_v);
    if (w[3].rank) {
        ATTN__TRY(attn__mha_project(m, 3, attn_view_f32(o, 3, batch, queries, attn__mul64(heads, size_v), 0), w[3],
                                    desc->b_result, desc->out, err));
    } else {
        d->out.data = desc->out.data;
        d->out.type = desc->out.type;
        d->out.stride[0] = desc->out.stride[0];
        d->out.stride[1] = attn__heads_apart(desc->out.stride[2], size_v);
        d->out.stride[2] = desc->out.stride[1];
        d->out.stride[3] = desc->out.stride[2];
    }
    ATTN__TRY(attn__plan_placed(d, &m->plan, flags | ATTN__NO_RESULT_NEEDED, err));
    for (i = 0; i < (w[3].rank ? 4 : 3); i++) {
        const size_t bytes = attn__bmm_workspace(&m->product[i], d);
        most = bytes > most ? bytes : most;
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
    attn_mha_desc copy;
    ATTN__RULE(bytes, ATTN_ERR_NULL, "bytes", "must not be NULL");
    ATTN__KNOWN(attn_mha_desc, desc, &copy, attention, "struct_bytes");
    ATTN__TRY(attn__mha_resolve(desc, NULL, &m, err));
    *bytes = attn__mha_bytes(&m);
    return attn__success(err);
}

ATTN_DEF attn_status attn_mha(const attn_mha_desc *desc, attn_error *err)
{
    attn__memory memory;
    attn__mha m;
    attn_mha_desc copy;
    attn_status st;
    int i;
    ATTN__KNOWN(attn_mha_desc, desc, &copy, attention, "struct_bytes");
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

static attn_view attn__grad_at(const attn_grad *g, int field)
{
    return attn__view_in(g, &attn__grad_fields[field]);
}
static int attn__adds(const attn_grad *g, int field)         /* is this result added to what is there? */
{
    return (int)(g->accumulate >> (field - ATTN__G_dq) & 1u);
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
    ATTN__KNOWN(attn_desc, forward, &plan->desc, stream, "struct_bytes");
    ATTN__KNOWN(attn_grad, grad, &plan->grad, reserved, "struct_bytes");
    if (forward != &plan->desc) plan->desc = *forward;
    if (grad != &plan->grad) plan->grad = *grad;
    grad = &plan->grad;
    d = &plan->desc;
    ATTN__TRY(attn__resolve(d, &s, grad, flags | ATTN__NO_RESULT_NEEDED, err));
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
    static const attn__field field_d_out = ATTN__X_TEXTS("d_out"), field_dx = ATTN__X_TEXTS("dx");
    attn_desc d;
    attn_grad g;
    attn_status st;
    attn__zero(&g, sizeof g);
    ATTN__TRY(attn__softmax_options(&x, options, &d, err));
    ATTN__RULE(d_out.rank, ATTN_ERR_NULL, "d_out", "must be given");
    ATTN__RULE(dx.rank, ATTN_ERR_NULL, "dx", "must be given");
    if (d_out.rank != x.rank)
        return attn__fail2(err, ATTN_ERR_RANK, "d_out.rank", "must equal x.rank", d_out.rank, x.rank);
    if (dx.rank != x.rank) return attn__fail2(err, ATTN_ERR_RANK, "dx.rank", "must equal x.rank", dx.rank, x.rank);
    g.d_weights = attn__rows4(d_out);
    g.d_given_scores = attn__out(dx.data, attn__rows4(attn_view_of(dx)));
    st = bytes ? attn_backward_workspace_size(&d, &g, bytes, err) : attn_backward(&d, &g, err);
    if (st == ATTN_OK || !err) return st;
    attn__softmax_error(err, &x, options);
    attn__rename(err, &attn__grad_fields[ATTN__G_d_weights], &field_d_out, x.rank);
    attn__rename(err, &attn__grad_fields[ATTN__G_d_given_scores], &field_dx, x.rank);
    return st;
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

typedef struct attn__bmm_grad_arrays { attn_view a, b, d_out; attn_out da, db; } attn__bmm_grad_arrays;
static const attn__field attn__bmm_grad_fields[5] = {
    ATTN__BMM_ROW(attn__bmm_grad_arrays, a, "bhRT", ATTN__NEEDED | ATTN__BROADCAST),
    ATTN__BMM_ROW(attn__bmm_grad_arrays, b, "bhTC", ATTN__NEEDED | ATTN__BROADCAST),
    ATTN__BMM_ROW(attn__bmm_grad_arrays, d_out, "bhRC", ATTN__NEEDED),
    ATTN__ROW(attn__bmm_grad_arrays, da, "bhRT", ATTN__OWNERS, FLOATS, ATTN__RESULT, 1),
    ATTN__ROW(attn__bmm_grad_arrays, db, "bhTC", ATTN__OWNERS, FLOATS, ATTN__RESULT, 2)};

static attn_status attn__bmm_gradient(const attn__bmm_grad_arrays *x, const attn_desc *options, int *flags,
                                      attn__sum *sums, attn_error *err)
{
    const attn_view a = attn__view4(x->a, "bhRT"), b = attn__view4(x->b, "bhTC"), d_out = attn__view4(x->d_out, "bhRC");
    attn__walk w;
    ATTN__FIND_PLACE(attn__find_place_of(x, attn__bmm_grad_fields, 5, options, flags, err));
    attn__walk_begin(&w, *flags);
    w.owners = attn__bmm_grad_fields;
    w.owned = x;
    ATTN__TRY(attn__check_product(&w, x, attn__bmm_grad_fields, err));
    ATTN__TRY(attn__check_fields(&w, x, attn__bmm_grad_fields + 3, 2, 0, 0, err));
    ATTN__RULE(x->da.rank || x->db.rank, ATTN_ERR_NULL, "da", "must be given, or db");
    if (*flags & ATTN__WITH_DATA) ATTN__TRY(attn__check_overlaps(&w, err));
    ATTN__TRY(attn__check_options(options, err));
    sums[0] = attn__sum_of(d_out, attn__swapped(b), attn__out(x->da.data, attn__view4(attn_view_of(x->da), "bhRT")), 0,
                           0);
    sums[1] = attn__sum_of(attn__swapped(a), d_out, attn__out(x->db.data, attn__view4(attn_view_of(x->db), "bhTC")), 0,
                           0);
    return ATTN_OK;
}
ATTN_DEF attn_status attn_bmm_backward(attn_view a, attn_view b, attn_view d_out, attn_out da, attn_out db,
                                       uint32_t accumulate, const attn_desc *options, attn_error *err)
{
    attn_desc d;
    attn__bmm_grad_arrays x;
    attn__memory memory;
    attn__sum sums[2];
    attn_status st = ATTN_OK;
    int i, flags = ATTN__WITH_DATA;
    ATTN__TRY(attn__options(options, ATTN__OPTIONS, &d, err));
    x.a = a;
    x.b = b;
    x.d_out = d_out;
    x.da = da;
    x.db = db;
    ATTN__TRY(attn__bmm_gradient(&x, &d, &flags, sums, err));
    ATTN__RULE(accumulate <= 3, ATTN_ERR_OPTION, "accumulate", "must be 1 for da, 2 for db, or both");
    ATTN__TRY(attn__acquire(&d, (size_t)attn__sum_memory(&d, flags), flags, &memory, err));
    for (i = 0; i < 2 && st == ATTN_OK; i++) {
        if (!(i ? db.rank : da.rank)) continue;
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
    attn_desc d;
    attn__bmm_grad_arrays x;
    attn__sum sums[2];
    int flags = 0;
    ATTN__TRY(attn__options(options, ATTN__OPTIONS, &d, err));
    ATTN__RULE(bytes, ATTN_ERR_NULL, "bytes", "must not be NULL");
    x.a = a;
    x.b = b;
    x.d_out = d_out;
    x.da = da;
    x.db = db;
    ATTN__TRY(attn__bmm_gradient(&x, &d, &flags, sums, err));
    *bytes = (size_t)attn__sum_memory(&d, flags);
    return attn__success(err);
}

/* ---- multi-head attention: projections and attention again, then its gradients between those of the products */
/* In the order of attn_mha_desc, whose fields they belong to; d_out has the shape of its out. */
enum { ATTN__H_D_OUT, ATTN__H_DQUERY, ATTN__H_DKEY, ATTN__H_DVALUE, ATTN__H_DW_QUERY, ATTN__H_DW_KEY,
       ATTN__H_DW_VALUE, ATTN__H_DW_RESULT, ATTN__H_DB_QUERY, ATTN__H_DB_KEY, ATTN__H_DB_VALUE, ATTN__H_DB_RESULT };
static const attn__field attn__mha_grad_fields[ATTN__H_COUNT] = {
    ATTN__ROW(attn_mha_grad, d_out, "B.QO", "[B,Sq,Eo]", FLOATS, ATTN__NEEDED, 0),
#define ATTN__X(f, shape) ATTN__ROW(attn_mha_grad, d##f, shape, ATTN__OWNERS, FLOATS, ATTN__RESULT, 1 + ATTN__H_##f),
    ATTN__X(query, "B.QX") ATTN__X(key, "B.SY") ATTN__X(value, "B.SZ")
    ATTN__X(w_query, "..MX") ATTN__X(w_key, "..NY") ATTN__X(w_value, "..PZ") ATTN__X(w_result, "..OT")
    ATTN__X(b_query, "...M") ATTN__X(b_key, "...N") ATTN__X(b_value, "...P") ATTN__X(b_result, "...O")
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
    return attn__view_in(grad, &attn__mha_grad_fields[field]);
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

/* The gradients against what they belong to, and against everything else. */
ATTN__NOINLINE static attn_status attn__mha_check_grad(const attn_mha_desc *desc, const attn_mha_grad *grad,
                                                       const attn_grad *own, const attn__mha *m, attn_error *err)
{
    attn__walk w;
    int i, any = grad->attention != NULL;
    attn__walk_begin(&w, m->flags);
    ATTN__TRY(attn__mha_check_fields(&w, desc, &m->attention, ATTN__OPERAND | ATTN__RESULT, err));
    attn__keep_inputs(&w);
    w.owners = attn__mha_fields;
    w.owned = desc;
    ATTN__TRY(attn__check_fields(&w, grad, attn__mha_grad_fields, ATTN__H_COUNT, 0, 0, err));
    for (i = 0; i < w.count; i++) any |= attn__is_written(&w, &w.found[i]);
    ATTN__RULE(any, ATTN_ERR_NULL, "dquery", "must be given, or another result");
    ATTN__RULE(grad->accumulate < 1u << 11, ATTN_ERR_OPTION, "accumulate", "must be bits 0 to 10");
    ATTN__RULE(grad->reserved == 0, ATTN_ERR_OPTION, "reserved", "must be 0");
    w.owners = attn__fields;
    w.owned = &m->attention;
    ATTN__TRY(attn__check_fields(&w, own, &attn__grad_fields[ATTN__G_d_weights], 2, 0, 0, err));
    ATTN__TRY(attn__check_fields(&w, own, &attn__grad_fields[ATTN__G_d_given_scores],       /* not dq, dk, dv */
                                 ATTN__G_COUNT - ATTN__G_d_given_scores, 0, 0, err));
    return w.flags & ATTN__WITH_DATA ? attn__check_overlaps(&w, err) : ATTN_OK;
}

#ifdef ATTN_CUDA
static attn_status attn__mha_grad_place(const attn_mha_grad *grad, const attn__mha *m, attn_error *err)
{
    attn__place at;
    at.where = m->flags & ATTN__ON_DEVICE ? ATTN__PLACE_DEVICE : m->flags & ATTN__ANYWHERE ?
        ATTN__PLACE_HOST | ATTN__PLACE_DEVICE : ATTN__PLACE_HOST;
    at.seen = 1;
    ATTN__TRY(attn__see_fields(&at, grad, attn__mha_grad_fields, ATTN__H_COUNT, err));
    if (!grad->attention) return ATTN_OK;
    return attn__see_fields(&at, grad->attention, attn__grad_fields, ATTN__G_COUNT, err);
}
#endif

static attn_status attn__mha_gradient_resolve(const attn_mha_desc *desc, const attn_mha_grad *grad, float *base,
                                              attn__mha_gradient *a, attn_error *err)
{
    attn_desc *d = &a->m.attention;
    const attn_grad *of_attention;
    attn_view d_heads;
    int64_t floats, heads_floats, rows, least;
    int i, p;
    ATTN__RULE(grad, ATTN_ERR_NULL, "grad", "must not be NULL");
    ATTN__TRY(attn__mha_resolve(desc, base, &a->m, err));
    ATTN__FIND_PLACE(attn__mha_grad_place(grad, &a->m, err));
    of_attention = grad->attention;
    ATTN__KNOWN(attn_grad, of_attention, &a->grad, reserved, "struct_bytes");
    if (!of_attention) attn__zero(&a->grad, sizeof a->grad);
    else if (of_attention != &a->grad) a->grad = *of_attention;
    a->grad.struct_bytes = 0;
    ATTN__TRY(attn__mha_check_grad(desc, grad, &a->grad, &a->m, err));
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
    a->grad.d_out = d_heads;
    a->grad.dq = attn_out_bshd(a->d_projected[0], d->q.size[0], d->q.size[2], d->q.size[1], d->q.size[3]);
    a->grad.dk = attn_out_bshd(a->d_projected[1], d->k.size[0], d->k.size[2], d->k.size[1], d->k.size[3]);
    a->grad.dv = attn_out_bshd(a->d_projected[2], d->v.size[0], d->v.size[2], d->v.size[1], d->v.size[3]);
    a->grad.accumulate &= ~7u;
    ATTN__TRY(attn__plan_gradients_placed(d, &a->grad, &a->m.plan, a->m.flags, err));
    a->inner_bytes = (int64_t)a->m.plan.workspace_bytes;
    ATTN__TRY(attn__plan_placed(d, &a->m.plan, a->m.flags | ATTN__NO_RESULT_NEEDED, err));
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
static attn_view attn__mha_rank4(attn_view v) { return attn__rows4(v); }
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
    attn_mha_desc copy;
    attn_mha_grad grad_copy;
    ATTN__RULE(bytes, ATTN_ERR_NULL, "bytes", "must not be NULL");
    ATTN__KNOWN(attn_mha_desc, desc, &copy, attention, "struct_bytes");
    ATTN__KNOWN(attn_mha_grad, grad, &grad_copy, reserved, "struct_bytes");
    return attn__mha_gradient_bytes(desc, grad, bytes, err);
}
ATTN__NOINLINE static attn_status attn__mha_gradient_within(const attn_mha_desc *desc, const attn_mha_grad *grad,
                                                            size_t bytes, attn_error *err)
{
    attn_desc d;
    attn__mha_gradient *a;
#ifdef ATTN_CUDA
    attn__mha_gradient on_host;
#endif
    int flags = ATTN__WITH_DATA;
    attn__memory memory;
    attn_status st;
    char *base;
    ATTN__TRY(attn__options(desc->attention, ATTN__OPTIONS, &d, err));
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
    attn_mha_desc copy;
    attn_mha_grad grad_copy;
    size_t bytes;
    ATTN__KNOWN(attn_mha_desc, desc, &copy, attention, "struct_bytes");
    ATTN__KNOWN(attn_mha_grad, grad, &grad_copy, reserved, "struct_bytes");
    ATTN__TRY(attn__mha_gradient_bytes(desc, grad, &bytes, err));
    return attn__mha_gradient_within(desc, grad, bytes, err);
}
#endif /* ATTN_NO_BACKWARD */

/* ---- small things */
ATTN_DEF attn_status attn_elementary(attn_function function, const float *x, float *y, int64_t n, attn_isa isa)
{
    const attn__kernels *f;
    attn__fp_state saved;
    int64_t i;
    if ((int)function < 0 || function >= ATTN_FUNCTION_COUNT) return ATTN_ERR_OPTION;
    if ((int)isa < 0 || isa >= ATTN_ISA_COUNT) return ATTN_ERR_OPTION;
    if (n < 0) return ATTN_ERR_SIZE;
    if (n > 0 && (!x || !y)) return ATTN_ERR_NULL;
    if (isa != ATTN_ISA_AUTO && !attn__cpu_has(isa)) return ATTN_ERR_ISA;
#ifdef ATTN_CUDA
    if (n > 0 && (!attn__is_on_host(x) || !attn__is_on_host(y))) return ATTN_ERR_PLACE;
#endif
    f = attn__table((int32_t)(isa == ATTN_ISA_AUTO ? attn_best_isa() : isa));
    saved = attn__fp_enter();
    (function == ATTN_EXP ? f->exp : function == ATTN_LOG ? f->log : f->tanh)(x, y, n);
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
#define ATTN__VALUES(takes) ATTN__ROW(attn_heatmap, values, "bhQS", \
        "[rows,cols], [panel cols,rows,cols] or [panel rows,panel cols,rows,cols]", takes, ATTN__OPERAND, 0)
    static const attn__field field[2] = {ATTN__VALUES(FLOATS), ATTN__VALUES(BYTES)};
#undef ATTN__VALUES
    const attn_view *v = &p->map->values;
    const int mask = p->map->mask_of != NULL, u8 = mask || v->type == ATTN_U8;
    attn__span span;
    int64_t together;
    int a, axis, axes[4];
    ATTN__RULE(v->rank, ATTN_ERR_NULL, "values", "must be given");
    ATTN__RULE(!mask || v->rank == 4, ATTN_ERR_RANK, "values.rank", "must be 4 with mask_of");
    ATTN__RULE(u8 || v->type == ATTN_F32, ATTN_ERR_TYPE, "values.type", "must be ATTN_F32 or ATTN_U8");
    ATTN__TRY(attn__check_view(v, &field[u8], mask ? 0 : ATTN__WITH_DATA, axes, &span, err));
#ifdef ATTN_CUDA
    ATTN__RULE(attn__is_on_host(v->data), ATTN_ERR_PLACE, "values.data", "must lie on the host");
#endif
    for (a = 0; a < 4; a++) {
        axis = a - (4 - v->rank);
        p->size[a] = axis < 0 ? 1 : v->size[axis];
        p->stride[a] = axis < 0 ? 0 : v->stride[axis];
        together = a == 0 ? p->size[0] : attn__mul64(p->size[a], p->size[a == 1 ? 0 : a - 2]);
        if (together > ATTN__PIC_CELLS)
            return attn__fail2(err, ATTN_ERR_RANGE, attn__name_of(field, ATTN__T_SIZE + axis),
                               "must be, times the number of panels, at most", together, ATTN__PIC_CELLS);
    }
    return ATTN_OK;
}

static attn_status attn__pic_check(attn__pic *p, attn_error *err)
{
    static const attn__field values =
        ATTN__ROW(attn_heatmap, values, "BHQS", "[B,H,Sq,Sk]", BYTES, ATTN__OPERAND, 0);
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
    return attn__mask_check(m, &values, m->mask_of, ATTN__WITH_DATA, err);
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
    attn_heatmap copy;
    attn__pic p;
    attn_status st;
    ATTN__KNOWN(attn_heatmap, map, &copy, terminal, "struct_bytes");
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
#undef ATTN__ADD16
#undef ATTN__ADD8
#undef ATTN__ADDITIVE_CLEAR
#undef ATTN__ALIGN
#undef ATTN__ALL16
#undef ATTN__ALL8
#undef ATTN__AVX2
#undef ATTN__AVX512
#undef ATTN__BMM_ROWS
#undef ATTN__CHAIN
#undef ATTN__RUN
#undef ATTN__SQUARES
#undef ATTN__CHUNK
#undef ATTN__COPY
#undef ATTN__DIV16
#undef ATTN__DIV8
#undef ATTN__EXP_C2
#undef ATTN__EXP_C3
#undef ATTN__EXP_C4
#undef ATTN__EXP_C5
#undef ATTN__EXP_C6
#undef ATTN__EXP_LOWEST
#undef ATTN__EXP_NOTHING
#undef ATTN__EXP_MAGIC
#undef ATTN__FMA16
#undef ATTN__FMA8
#undef ATTN__GNU
#undef ATTN__HAVE_AVX2
#undef ATTN__HAVE_AVX512
#undef ATTN__HUGE
#undef ATTN__INF
#undef ATTN__INLINE
#undef ATTN__KEEP
#undef ATTN__KEEP_POINTER
#undef ATTN__LESS16
#undef ATTN__LN2_HI
#undef ATTN__LN2_LO
#undef ATTN__LOAD16
#undef ATTN__LOAD8
#undef ATTN__LOG2E
#undef ATTN__LOG_C0
#undef ATTN__LOG_C1
#undef ATTN__LOG_C2
#undef ATTN__LOG_C3
#undef ATTN__LOG_C4
#undef ATTN__LOG_C5
#undef ATTN__LOG_C6
#undef ATTN__LOG_C7
#undef ATTN__MAP8
#undef ATTN__FEW
#undef ATTN__FEW_ROW
#undef ATTN__CUT_TILES
#undef ATTN__CUT_CHUNKS
#undef ATTN__CUT_TASKS
#undef ATTN__FEW_KEYS
#undef ATTN__LONG
#undef ATTN__MAX_WIDTH
#undef ATTN__MAX_LANES
#undef ATTN__MUL16
#undef ATTN__MUL8
#undef ATTN__BMM_ROW
#undef ATTN__D
#undef ATTN__DV
#undef ATTN__EQUALS
#undef ATTN__FAR
#undef ATTN__FIELDS
#undef ATTN__G
#undef ATTN__GRADIENT_FIELDS
#undef ATTN__GV
#undef ATTN__H
#undef ATTN__HV
#undef ATTN__KNOWN
#undef ATTN__LETTER
#undef ATTN__MHA_LIST
#undef ATTN__N
#undef ATTN__OPTIONS
#undef ATTN__OWNERS
#undef ATTN__P
#undef ATTN__PICTURE_FIELDS
#undef ATTN__ROW
#undef ATTN__TEXTS
#undef ATTN__X_TEXTS
#undef ATTN__NAN
#undef ATTN__NEG_INF
#undef ATTN__NOINLINE
#undef ATTN__PARTS
#undef ATTN__TERMS
#undef ATTN__MAX_ROUNDS
#undef ATTN__WORTH_CUTTING
#undef ATTN__PASS_BYTES
#undef ATTN__HEADS_BYTES
#undef ATTN__PICK16
#undef ATTN__PICK8
#undef ATTN__PREFETCH
#undef ATTN__PREFETCH_FAR
#undef ATTN__RULE
#undef ATTN__SAME16
#undef ATTN__SHIFT16
#undef ATTN__SMALLEST
#undef ATTN__SHIFT8
#undef ATTN__SQRT_HALF
#undef ATTN__STORE16
#undef ATTN__STORE8
#undef ATTN__SUB16
#undef ATTN__SUB8
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
#undef ATTN__AT_MOST8
#undef ATTN__CLANG_FAST
#undef ATTN__LESS8
#undef ATTN__MAX16
#undef ATTN__MAX8
#undef ATTN__MIN16
#undef ATTN__MIN8
#undef ATTN__OP16
#undef ATTN__OP8
#undef ATTN__SAME8
#undef ATTN__SQRT8
#undef ATTN__UNORDERED8
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
