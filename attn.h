/* attn.h - v0.3.0 - attention for C in one header - MIT or Unlicense, at your choice (end of file)
   SPDX-License-Identifier: MIT OR Unlicense

   A complete program, C99 or C++11 (cc -O2 demo.c -lm):

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
   A C++ file that is compiled with -Wold-style-cast or -Wconversion implements it as a system header: -isystem DIR.

   DOES      every attention of the textbook (d2l.ai, "Dive into Deep Learning"): scaled dot product, dot, cosine,
             bilinear, additive (Bahdanau), Gaussian and the other kernels of attention pooling; masks, valid lengths,
             causal, windows, softcap, sinks, ALiBi, bias, dropout; grouped heads; any sizes, any strides; the output,
             log-sum-exp, weights and every intermediate result; masked softmax, batched matrix products, multi-head
             attention with its projections; the gradients of all these, for every input and parameter; heatmaps for a
             terminal, as SVG and as PPM. All options can be combined, except where stated.
             Arrays are f32, f16 or bf16, in any mix; keys, values and b of a matrix product also int8 with scales, for
             inference.
             For sequences: ragged and packed batches, left padding, pages, a growing cache, rotary positions.
   DOES NOT  take arrays of f64 (attn_convert alone does), start threads, print, abort or exit.
   GPU       with attn_cuda.cuh beside it and ATTN_CUDA defined the same functions take arrays on an NVIDIA GPU, except
             those that are said to run on the host, and gradients of keys in parts. Its kernels have run on an H200 and
             an H100.

   CONTENTS  search for ">>" and a name
       >>api             everything public: types, descriptor, functions. It is the manual.
       >>config          what can be set before the include: memory, assert
       >>platform        compilers, processors, the floating-point state
       >>math            exp, log, tanh, square root, fused multiply-add of one number
       >>kernels-scalar  the list of all kernels, and each in plain C: the specification
       >>kernels-vector  the same kernels and bits in vectors: one text, included once per instruction set
       >>dispatch        these inclusions, and which instruction set runs
       >>errors          how a check says no; arithmetic of sizes that does not wrap
       >>fields          a table row per array and number: shape, type, flags, rule
       >>call            attn__call, what a descriptor becomes, and attn__matmul: attn_cuda.cuh reads them too
       >>views           axes and extent of a view, the operand that it becomes, its check by its row of the table
       >>overlap         may two arrays share bytes?
       >>rules           what no table can say: lengths, starts, pages, parts, options that exclude each other
       >>tuning          numbers that were measured, and where
       >>arrays          how operands are stored: strides, heads, broadcasting, types, pages
       >>entries         batch entries of different lengths: each is run as a call of its own
       >>memory map      how workspace is cut up; the state of a task: attn__tile, attn__pass; what a score is
       >>planning        from descriptor to call; its steps, their number of tasks, its workspace
       >>keys            rows of queries, keys and values as products take them
       >>products        matrix products: projections, and what gradients are made of
       >>scores          a table row per score: how queries and keys are prepared and combined, its gradients
       >>skinny          scores and outputs of few queries
       >>options         lengths, causal, window, softcap, bias, ALiBi, mask, sink, dropout, and their gradients
       >>tile            the forward pass: a tile of queries against chunks of keys
       >>gradients       the backward pass: blocks of queries against blocks of keys
       >>sums            the gradients of parameters: sums over rows
       >>tasks           which of these a task runs
       The functions of the API:
       >>constructors    views;  >>text: errors and names;  >>attention: plan, workspace, run;  >>explain
       >>pieces          softmax, scores, masks, merging;  >>conversion: types;  >>bmm: batched matrix products
       >>mha             multi-head attention;  >>layout: offsets of all structures
       >>cache           lengths from offsets, a cache that grows;  >>rope: rotary positions, tables, slopes
       >>heatmap         pictures;  >>tail: clean-up, licences
   A call: attn_desc -> attn__plan checks it (attn__checker: what each letter of a shape stands for), makes an
   attn__call of it, and finds its steps, tasks and workspace -> attn__run_task runs one task -> an attn__tile, in the
   backward pass an attn__pass -> the score's row of the table, the options -> kernels of the table in call->f.

   WORDS     of the implementation
             lane     (1) one row (a query of a head) of a tile; (2) one float of a vector
             tile     up to 64 rows of one stream side by side; its arrays are [key or column][ld]
             stream   keys that some heads share: one per key head; per head where their parameters differ
             chunk    256 keys: a tile takes them chunk by chunk (FlashAttention: a block), merged by maximum and sum
             chain    fused multiply-adds one after the other into one sum; its length is part of the numeric contract
             reach    the keys a row may attend to; hull: of several rows, all from the first such key to the last
             part     of a tile's keys, or of the work of a backward step, for one task (split-K); of all keys: PARTS
             slot     where a chunk, or a block of queries, leaves its sums; they are joined in ascending order
             skinny   a tile of few rows (decoding: one query, or the heads of a group): lanes are keys, not rows
             expand   keys or values of 16 or 8 bits become floats, once for all rows that share them
             prefetch what will be read comes into a cache meanwhile
             block    backward: 128 queries by 64 keys of one head; pass: the state of the task that works on them

   SHAPES    Letters used throughout:  B batch, H heads, Hkv key/value heads (H % Hkv == 0; query head n reads key head
             n / (H/Hkv)), Sq queries, Sk keys, D size of a query and of a key, Dv size of a value, h hidden width.
             q [B,H,Sq,D]  k [B,Hkv,Sk,D]  v [B,Hkv,Sk,Dv]  out [B,H,Sq,Dv]  lse [B,H,Sq]  weights [B,H,Sq,Sk].
             Bilinear and additive scores take q and k of different sizes, Dq and Dk. Any size is legal, 0 too: Sk = 0
             gives empty rows, D = 0 the score 0. Sizes and strides count ELEMENTS (bytes only where a name says so).
             Input strides may be 0 or negative. Every element of a result is written (but see SEQUENCES).
             A row is a query of a head. Its mass is the sum of exp(score) over its keys, without the sink.

   SEQUENCES of unequal length share arrays by `query_starts`, `key_starts` and lengths. Batch entry b has the queries
             from query_starts[b] on, query_lengths[b] of them, and the keys from key_starts[b] on, key_lengths[b] of
             them (the largest, if lengths are per query); without lengths, all up to the end of the array. Its results
             have the bits of a call on this entry alone (with dropout_origin[0] + b; but see `precision`): i, j,
             positions, windows, bottom-right alignment, chunks and dropout count from its starts, and Sq and Sk are the
             numbers of its own queries and keys.
             Gradients of parameters are sums over the batch. (That of a bias may differ in its last bit, or in the sign
             of 0, where the entry has one query or one key: it is a sum in one of the two calls and not in the other.)
             Packed: where starts are given, the arrays of queries (q, out, lse, stats, carry and their gradients),
             those of keys (k, v, their scales and gradients) or both may have batch size 1, with all entries one after
             the other: [1,H,total,D]. B is then the size of the starts, and per-query key_lengths and positions are
             [1,total]. Packed queries need query_lengths, packed keys key_lengths: see attn_lengths_of. The queries of
             packed entries stand one after the other: each query_starts[b] is at least the end of every entry before b.
             So do the keys in attn_backward, attn_mha_backward and attn_key_sums; in other calls they may be shared (a
             prefix) and stand in any order. An entry without rows may begin anywhere. Weights, scores, given scores and
             d_weights must be absent. A mask or a bias (or its index) has the rows of q, [B or 1, H or 1, rows or 1,
             columns], and its columns count from the first key of each entry: as many as the longest entry has keys, or
             more; or one row and one column, which is all that a device takes. With B = 1 the queries (keys) are packed
             where they have starts and lengths and the descriptor has none of these results, nor a mask or a bias of
             more than one row or column that has one column or those of k (so asking for weights may change bits under
             ATTN_PRECISION_FAST).
             Not packed: rows outside of an entry are empty rows; bias, mask, weights and scores lie at the arrays' own
             places [b,h,start + i,start + j], and outside of an entry's keys weights and gradients are 0, scores -inf.
             What lies in no entry: it is not read (but scores, scores_softcap and d_sink are of all queries, and all
             indices are checked), and where it is packed it is not written either, in no result and no gradient but
             d_bias.
             Left padding is key_starts (and query_starts) alone, without lengths.
             Pages: with `page_table` k and v are pools of pages. The shapes of other arrays (and ATTN_ALIGN_UNSET) take
             Sk = pages * page; everything else counts each entry's own keys, as with starts. The cache of a sliding
             window may be a ring of R pages for each entry, of which the oldest is used again; P = B * R, but the table
             has a column for each page of the whole sequence. Before n new rows are appended, with end[b] = their
             number and that of the rows before them,
                 for (j = 0; j * page < end[b]; j++) table[b * pages + j] = b * R + j % R;
             With R at least ceil((window_left + n) / page) + 1 the new rows overwrite only keys the window has passed.
             A cache grows by attn_append. A step of n new tokens: attn_rope for q and k; attn_append for k, then for v,
             with the lengths before the step; attn_forward with key_lengths = those + n and, if causal,
             ATTN_ALIGN_BOTTOM_RIGHT.

   PARTS     Where keys are too many for one memory, several calls take them part by part, in ascending order, with the
             bits of one call with all keys. In each call k, v, mask and bias (and given scores) are those of the part's
             keys alone. Every part but the last has a multiple of ATTN_PART_KEYS of them (with starts or pages an entry
             may end in any part, with any number; in later parts it has none), and
                 d.key_origin = first;                          // the part's first key, of all
                 d.carry_in = attn_view_of(carry);              // absent in the first call
                 d.carry_out = carry;                           // absent in the last call
             Causal, window, ALiBi, dropout and chunks count keys from the first of all; key_lengths count from the
             part's first, within 0 and the number of its keys. A row that may attend to no key of a part passes through
             it unchanged. A call with carry_out needs no other result; out, lse and stats of a call with carry_in are
             those of all keys so far. A sink is counted once, by the call without carry_out. With causal, window or
             ALiBi, align must be ATTN_ALIGN_TOP_LEFT or ATTN_ALIGN_POSITIONS. Weights, scores and ATTN_EMPTY_UNIFORM
             need all keys in one call.
             Gradients are computed part by part, too. They need no carry, but out and stats of all keys:
                 for (first = 0; first < keys; first += n) {    // n keys, from multiples of ATTN_PART_KEYS on
                     d.k = attn_view_slice(k, 2, first, n), d.v = attn_view_slice(v, 2, first, n);
                     d.key_origin = first, g.accumulate = first ? ATTN_GRAD_Q : 0;
                     g.dk = attn_out_slice(dk, 2, first, n), g.dv = attn_out_slice(dv, 2, first, n);
                     attn_backward(&d, &g, &err);
                 }
             dk, dv and a bias's columns have the bits of one call; dq and the gradients of parameters are sums over the
             parts, within their bound. d_weights and d_sink need all keys at once.
             On a device: forward alone, within the bound of one call.

   RECIPES   what needs no option of its own. examples/recipes.c is all of them as a program.
             A prefix, or an image, that sees all of itself, the rest causal: a length for each query, and no `causal`.
                 for (int64_t i = 0; i < n; i++) sees[i] = end_of(i);           // its span's end, or i + 1
                 d.key_lengths = attn_view_i64(sees, 2, 1, n, 0, 0);
             The first tokens beside a window ("attention sinks"): two calls, of which the second begins after FIRST
             keys; their out and lse by attn_merge. `from` is -FIRST.
                 a.k = attn_view_slice(d.k, 2, 0, FIRST), a.v = attn_view_slice(d.v, 2, 0, FIRST);
                 a.causal = 1, a.align = ATTN_ALIGN_TOP_LEFT;
                 b.k = attn_view_slice(d.k, 2, FIRST, n - FIRST), b.v = attn_view_slice(d.v, 2, FIRST, n - FIRST);
                 b.causal = b.window = 1, b.window_left = WINDOW - 1;
                 b.align = ATTN_ALIGN_POSITIONS, b.positions = attn_view_i64(&from, 1, 1, 0, 0, 0);
             A bias by distance alone: by_distance has for each head the 2n - 1 numbers of the distances j - i from
             -(n-1) on. Nothing of size n*n is made. (Out of a table, as in T5: see `bias_index`.)
                 d.bias = attn_view_f32(by_distance + n - 1, 3, H, n, n, 0);
                 d.bias.stride[0] = 2 * n - 1, d.bias.stride[1] = -1, d.bias.stride[2] = 1;
             Rotary positions in a plane, or of some of the pairs only: tables of one's own, with any angle for any row
             and pair; a pair of angle 0 stays as it is.
                 cosines[t * PAIRS + n] = (float)cos(angle(t, n));
                 sines[t * PAIRS + n] = (float)sin(angle(t, n));
             Drafts taken back from a ring of pages (SEQUENCES): the lengths go back by their number, nothing else. The
             rule for R keeps all that the window of the first new row reaches, so it is still there.
             The pages that a query needs most (Quest): a table of these alone, in ascending order, the last one at its
             end; `length` is CHOSEN * WIDE plus the number of rows of the last page that hold keys. All rows before the
             query are in reach of it, so there is no causal and no window.
                 for (int n = 0; n < CHOSEN; n++) picked[n] = table[best[n]];
                 picked[CHOSEN] = table[N / WIDE - 1];
                 d.page_table = attn_view_i32(picked, 2, 1, CHOSEN + 1, 0, 0);
                 d.key_lengths = attn_view_i32(&length, 1, 1, 0, 0, 0);
             A tree of drafts, each of which sees `held` keys of the cache, its ancestors and itself: a mask. Its
             position, for attn_rope, is held plus its depth in the tree.
                 memset(mask + i * (held + n), 1, (size_t)held);
                 for (int64_t j = i; j >= 0; j = parent[j]) mask[i * (held + n) + held + j] = 1;
             Trees of several sequences, packed, are one mask: its rows those of q, as wide as the longest needs.

   ORDER     score (with its scale) -> softcap c*tanh(s/c) -> + bias, + ALiBi -> masks -> softmax (with sink)
             -> dropout -> times V. Every intermediate result can be returned; asking for it changes no bit of the
             others (on a GPU it may).

   MASKS     exclude: a score of -inf has weight 0, whatever produced it; -1e9 is a score like any other. An excluded
             key has no influence, whatever it holds (NaN, Inf, garbage). Keys beyond key_lengths, causal or the window
             are never read: they may lie on an unmapped page (unless scores, scores_softcap or ATTN_EMPTY_UNIFORM ask
             for all keys).
             A row with no key left: see attn_empty.
             Allowed NaN and Inf spread no further than they must: from q to its row; from k to the rows that attend to
             it; from v to its column in those rows (also where the weight is 0 or dropped). A row with a score of +inf
             is NaN (inf - inf). A NaN in a result is always the one with the bits 0x7fc00000.

   TYPES     Every array of floats may be f32, f16 or bf16, independently, but where its field says otherwise; k, v and
             b of attn_bmm also int8, without gradients. Reading is exact (an int8 value times its scale is rounded
             once); after that, arithmetic is that of f32 arrays with the same values, and each result is rounded once
             to its type: to nearest even, NaN to one quiet NaN, what is too large for f16 to infinity. So 16-bit
             results have an extra relative error of 2^-11 (f16) or 2^-8 (bf16), and the bits of one result do not
             depend on the type of another. Gradients are made from the stored `out`: where that has 16 bits their bound
             below grows by as much (more if out has numbers below 2^-14, subnormal in f16). `precision` may ask for
             products of bf16, with their own bound.
   NUMERICS  f32 accumulation by fused multiply-adds; exp, log and tanh within 2 ulp over every float; a weight below
             2^-126 is 0. The error of out and weights against exact arithmetic is bounded per score in ATTN_SCORE_LIST
             below, that of lse by the same number times 1 + S + |lse|; that of a gradient by 1e-6 (3e-6 for parameters
             and attn_bmm_backward) times the sum over its absolute terms t of t*(1 + S), where S also covers the sink
             and the score of the term's own key, however small its weight. The tests enforce them.
             These bounds hold for sums of up to 1000 terms, or of 128 in one chain. A longer sum of n terms in chains
             of c adds at most c + n/c units of 2^-24 of its absolute sum; if all terms are equal (all rounded the same
             way), (c + n/c)/4 + 1. For instance 128 + 256 units, 2.3e-5, for out over 32768 keys.
             c: 128 keys for out; 128 queries (rows of a product) for dk, dv and parameters; 64 keys for dq and for what
             d_weights add to a row's gradients (attn_softmax_backward too); 64 terms for a score (32 for a distance)
             and for attn_bmm; 2048 for a table of up to 1024 numbers (bias_index), of N numbers N/1024 times as many;
             c = n (one chain) for the gradients of sigma, scale, ALiBi and a broadcast bias, and for sums over Dv.

   SAME BITS The bits of an output row depend only on that row's query, on the keys and values it may attend to and on
             the options. Not on: instruction set, threads, order of tasks, batch size, the other queries in the call,
             prefill or decode, strides, compiler, optimisation level, -std, -ffast-math or -march=native, nor on the
             caller's rounding mode and flush-to-zero flags (they are set and restored by every call).
             Outside the promise: arrays on a GPU; ATTN_PRECISION_FAST; attn_merge (but see PARTS); rows under
             ATTN_EMPTY_UNIFORM; raw scores and weights of keys that a query may not attend to, where these lie in
             pages and lengths are per query (SEQUENCES says which there are); machines without IEEE floats, with
             FLT_EVAL_METHOD other than 0 (x87), or with the older NaN encoding (MIPS before release 6: only NaN bits
             differ); a caller's own rounding or flush flags where the library cannot set them (it can with gcc and
             clang on x86 with SSE, ARM, RISC-V, s390x, PowerPC; on x86-64 with any compiler); ATTN_NO_EXACT_FMA on
             machines without fused multiply-add. Under clang's -ffast-math or -Ofast the file with ATTN_IMPLEMENTATION
             needs -fno-finite-math-only, for which an #error asks; then the bits hold from version 13 (x86) and 16
             (AArch64). On other targets it asks for -fno-fast-math.
             Not detected, and changing bits: -fno-honor-nans and -fno-honor-infinities (clang 17 and later); on targets
             with the second #error also -fassociative-math, -freciprocal-math, -fno-signed-zeros and -fapprox-func, and
             so -ffast-math with -fno-finite-math-only.
   MEMORY    attn_workspace_size gives the bytes that attn_forward needs; other functions have one of their own, or need
             none. With so many in desc.workspace (any alignment) nothing is allocated, without it at most one block,
             from desc.allocator or else from malloc. It is linear in Sq + Sk, never Sq*Sk (except that a 16-bit d_bias
             that is summed or accumulated needs f32 room of its size), and depends on sizes, types, options and workers
             alone, and on whether the heads of k and v lie side by side within a row ([B,S,H,D]), not on what lengths
             hold (with ATTN_CUDA also on where arrays lie). That of the largest call serves all others with the same
             options. The smallest calls need some 35 KB for each worker, their gradients 250 KB and room for one head's
             dk and dv as floats; with more than two workers up to 2 MB each, for these and for parts of dq. A workspace
             serves one call at a time. It must not overlap an array of the call (not checked). Stack: at most 16 KB per
             call or task (compiled with optimisation).

   THREADS   Independent tasks go to desc.parallel, else the calling thread runs them; a plan (attn_plan_forward) lets
             the caller schedule them. All functions are thread-safe: there are no mutable globals, and no init call.

   ERRORS    Every function that can fail returns a status, and fills *err (may be NULL) with the field, the broken rule
             and, if any, the two numbers. On error no output has been written (except ATTN_ERR_WRITE, ATTN_ERR_CUDA).
             Numbers that arrays hold (lengths, starts, positions, pages, indices) and that lead outside of an array are
             ATTN_ERR_RANGE, with their place, as are packed entries out of order and a cache without room. A field that
             is set but could have no effect is an error, too: a parameter of another score (sigma with DOT), positions
             without ATTN_ALIGN_POSITIONS, window_left without window, weights_after_dropout without weights,
             workspace_bytes without workspace, data in a view of rank 0. Allowed though unused: seed, dropout_origin
             and weights_after_dropout without dropout; align and positions without causal, window and ALiBi. A flag
             (causal, window, ...) is 0 or 1. An output must not overlap an input or another output; interleaved views
             that share no element, as in a packed array, are accepted.

   BINDINGS  cc -O2 -shared -fPIC -x c -DATTN_IMPLEMENTATION attn.h -o libattn.so -lm  makes a library. Enums are passed
             as int. attn_desc, attn_grad, attn_mha_desc, attn_mha_grad, attn_rope_desc and attn_heatmap may grow at
             their end. Set their first field, struct_bytes, to your sizeof, and any later library accepts them (fields
             that you lack count as 0; fields that it lacks must be 0); or to 0 if header and library have the same
             version. The other structures keep their sizes. attn_layout() lists all offsets.

   MACROS    define before the include; "impl" = in the file with ATTN_IMPLEMENTATION, "all" = the same in every file
       ATTN_IMPLEMENTATION    impl  compile the implementation here
       ATTN_STATIC            all   all functions static, a private copy: together with ATTN_IMPLEMENTATION in each file
       ATTN_DEF               all   your own linkage, for example __declspec(dllexport)
       ATTN_ASSERT(x)         impl  checks internal invariants, never user input; default assert
       ATTN_MALLOC(n), ATTN_FREE(p)    impl  both or neither; default malloc, free
       ATTN_NO_LIBC           impl  call no C library (compilers may still emit memcpy, memmove, memset, memcmp, and on
                                    x86-64 the table of CPU features in libgcc or compiler-rt). Calls without
                                    workspace and allocator then need ATTN_MALLOC and ATTN_FREE
       ATTN_NO_SIMD           impl  leave all vector kernels out; or those of one instruction set, with
                                    ATTN_NO_AVX2, ATTN_NO_AVX512, ATTN_NO_NEON, ATTN_NO_PORTABLE, ATTN_NO_RELAXED
       ATTN_FILE              impl  this file's name in quotes (it #includes itself once per instruction set). Needed
                                    where it is not named attn.h and is compiled directly, pasted into another file, or
                                    by a compiler without __FILE_NAME__
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

/* Which field broke which rule: "k.size[3] must equal q.size[3]: 64, is 65" (want 64, got 65). Strings are literals. */
typedef struct attn_error {
    int32_t     status;         /* attn_status */
    const char *field;          /* "k.size[3]"; "" on success */
    const char *rule;           /* "must equal q.size[3]"; "" on success */
    int64_t     got, want;      /* the offending number and the required one, if has_numbers */
    int32_t     has_numbers;    /* nonzero: got and want are valid; 2: got does not divide want */
    int32_t     cuda;           /* the cudaError_t of ATTN_ERR_CUDA, else 0 */
    int64_t     place[2];       /* the indices of the offending element, as many as has_place says; of a bias_index of
                                   more than two axes the last two */
    int32_t     has_place;      /* 0, 1 or 2 */
    int32_t     has_type;       /* nonzero: got is the attn_type that was given */
    int64_t     reserved2;
} attn_error;

/* ---- views: where data lies and how big it is. The constructors below make row-major views; any field may be changed
   afterwards: a reversed sequence is `data` at its last element and a negative stride, a broadcast axis has stride 0.
   An all-zero view (rank 0) means absent. */
typedef enum attn_type {
    ATTN_F32 = 0, ATTN_F16, ATTN_BF16,              /* arrays of floats: see TYPES */
    ATTN_F64,                                       /* attn_convert alone */
    ATTN_U8,                                        /* masks: nonzero = may attend */
    ATTN_I32, ATTN_I64,                             /* lengths, positions, indices */
    ATTN_I8,                                        /* k, v, b of attn_bmm: int8 values times k_scale, v_scale */
    ATTN_TYPE_COUNT
} attn_type;

typedef struct attn_view {      /* input */
    const void *data;           /* first element (index 0 on every axis), aligned; may be NULL if a size is 0 */
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
/* The same for any type, e.g. f16, bf16, i8: attn_view_typed(ATTN_BF16, data, 4, b, h, s, d). */
ATTN_DEF attn_view attn_view_typed(attn_type type, const void *data, int rank, int64_t n0, int64_t n1, int64_t n2,
                                   int64_t n3);
ATTN_DEF attn_out  attn_out_typed (attn_type type, void *data, int rank, int64_t n0, int64_t n1, int64_t n2,
                                   int64_t n3);
/* [B,H,S,D], stored in that order (PyTorch's SDPA), or stored [B,S,H,D] (one token's heads together); no heads: h = 1.
   For weights and scores d is Sk. Other types: the same with data NULL; then set the view's data and type. A cache with
   room for N keys is a view of N (for attn_append, too), then size[2] = the keys in use. */
ATTN_DEF attn_view attn_view_bhsd(const float *data, int64_t b, int64_t h, int64_t s, int64_t d);
ATTN_DEF attn_view attn_view_bshd(const float *data, int64_t b, int64_t s, int64_t h, int64_t d);
ATTN_DEF attn_out  attn_out_bhsd (float *data, int64_t b, int64_t h, int64_t s, int64_t d);
ATTN_DEF attn_out  attn_out_bshd (float *data, int64_t b, int64_t s, int64_t h, int64_t d);
/* q (which 0), k (1) or v (2) inside one packed array [B,S,3,H,D], seen as [B,H,S,D]. Here and below, a wrong argument
   (which = 3, axis = 4, a range beyond the end) gives a view that every call refuses. */
ATTN_DEF attn_view attn_view_qkv(const float *data, int which, int64_t b, int64_t s, int64_t h, int64_t d);
/* Heads side by side inside rows of `row` floats, one row a token: a part of a packed [B,S,row] array, data at the
   part's first float; seen as [B,H,S,D]. */
ATTN_DEF attn_view attn_view_rows(const float *data, int64_t b, int64_t s, int64_t h, int64_t d, int64_t row);
ATTN_DEF attn_out  attn_out_rows (float *data, int64_t b, int64_t s, int64_t h, int64_t d, int64_t row);
/* `count` indices from `first` on along one axis, no copy: a micro-batch, some heads, a prefix of a cache. */
ATTN_DEF attn_view attn_view_slice(attn_view v, int axis, int64_t first, int64_t count);
ATTN_DEF attn_out  attn_out_slice (attn_out o, int axis, int64_t first, int64_t count);
/* The same data with two axes exchanged, no copy: attn_bmm of a transposed operand, a [S,B,..] array, ... */
ATTN_DEF attn_view attn_view_swap(attn_view v, int axis_a, int axis_b);
/* An output as an input view, for the next call. */
ATTN_DEF attn_view attn_view_of(attn_out o);

/* ---- choices. 0 is always the default. */

/* X(name, text, bound). |out - exact| <= bound*V*(1 + S) for each row: V is the largest |v| it may attend to, S the
   largest sum of absolute terms of one score, over keys of weight above e^-40 (dot: sum |q_c k_c| |scale|; distance
   kernels: |score|; additive: sum |w_v|*(|a|+|b|)+|w_v|; plus |bias| and |ALiBi|). With V = 1 it holds for weights;
   with dropout V is scaled by 1/(1-p). It holds if nothing overflows: Sk*V, scale*q, q.k, |q-k|^2 below 3e38 (cosine:
   |k|). Near the edge of EPANECHNIKOV and TRIANGULAR it bounds exp(score): the logarithm is ill-conditioned there. */
#define ATTN_SCORE_LIST(X) \
    X(SCALED_DOT,   "scaled dot product", 4e-6) /* scale * q.k, scale 1/sqrt(D) unless given (Vaswani et al. 2017) */ \
    X(DOT,          "dot product",        4e-6) /* scale * q.k (Luong et al. 2015) */ \
    X(COSINE,       "cosine",             4e-6) /* scale * q.k / (|q| |k|); 0 where q or k is the zero vector */ \
    X(BILINEAR,     "bilinear",           4e-6) /* scale * q^T M k (Luong "general") */ \
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
    ATTN_ALIGN_UNSET = 0,       /* p = i if Sq == Sk (of each entry), else an error with causal, window, ALiBi */
    ATTN_ALIGN_BOTTOM_RIGHT,    /* p = i + len_k - len_q: the last query sits at the last key (decode, chunked prefill).
                                   len_k: key_lengths (per query where so given) or Sk; len_q: query_lengths or Sq */
    ATTN_ALIGN_POSITIONS,       /* p = positions[b] + i, or positions[b,i]; may be negative or beyond Sk */
    ATTN_ALIGN_TOP_LEFT,        /* p = i, whatever Sq and Sk are: is_causal of PyTorch's SDPA */
    ATTN_ALIGN_COUNT
} attn_align;

typedef enum attn_empty {       /* a row with no key left, or whose scores are all -inf; beyond query_lengths too */
    ATTN_EMPTY_ZERO = 0,        /* out 0, weights 0 */
    ATTN_EMPTY_NAN,             /* out NaN, weights NaN */
    ATTN_EMPTY_UNIFORM,         /* weights 1/Sk over ALL keys, whose values are read: as if masks added -1e6 */
    ATTN_EMPTY_COUNT
} attn_empty;                   /* lse is -inf under all three; none applies where a finite sink gives the row mass */

#define ATTN_ISA_LIST(X) X(AUTO, "auto") X(SCALAR, "scalar") X(AVX2, "avx2") X(AVX512, "avx512") X(NEON, "neon") \
                         X(PORTABLE, "portable") X(RELAXED, "relaxed")
typedef enum attn_isa {         /* instruction sets, all with the same bits; PORTABLE: vectors of gcc and clang;
                                   RELAXED: these in WebAssembly by -mrelaxed-simd, where a multiply-add is fused */
#define ATTN_X(name, text) ATTN_ISA_##name,
    ATTN_ISA_LIST(ATTN_X)
#undef ATTN_X
    ATTN_ISA_COUNT
} attn_isa;

typedef enum attn_precision {   /* see `precision` in attn_desc */
    ATTN_PRECISION_F32 = 0,     /* every product has f32 factors: the bits of SAME BITS */
    ATTN_PRECISION_FAST,        /* products of bf16, on some CPUs faster; on a GPU products of matrices by tensor cores,
                                   dq summed in any order */
    ATTN_PRECISION_COUNT
} attn_precision;

/* ---- hooks */

/* Memory for calls without a workspace. Both functions or none (then ATTN_MALLOC/ATTN_FREE). */
typedef struct attn_allocator {
    void *(*allocate)(void *user, size_t bytes) ATTN__0;      /* NULL = no memory */
    void  (*release)(void *user, void *block) ATTN__0;
    void   *user ATTN__0;
} attn_allocator;

/* A task. attn_parallel.run must call it once for each index 0..count-1, in any order, on any threads, and return when
   all are done. `worker` tells concurrent calls apart: two tasks that run at the same time must get different numbers
   in 0..workers-1, e.g. the thread's index in its pool. Tasks never wait for each other and never block. */
typedef void (*attn_task_fn)(void *arg, int64_t index, int32_t worker);
typedef struct attn_parallel {
    void  (*run)(void *user, int64_t count, attn_task_fn task, void *arg) ATTN__0; /* may be called several times per
                                   call of attn.h; NULL: the calling thread runs the tasks */
    void   *user ATTN__0;
    int32_t workers ATTN__0;    /* most tasks that run at once; 0 means 1, even with `run`. A larger `worker` writes
                                   outside the workspace, which has memory for each. Without `run`, too, there is memory
                                   for so many: for the tasks of a plan */
} attn_parallel;

/* ---- the descriptor: one attention. Zero it, set what you need. Zero means default, absent or off.
   Fields are appended in later versions, never moved. */
#define ATTN_UNBOUNDED (-1)     /* for window_left, window_right */

typedef struct attn_desc {
    uint64_t struct_bytes ATTN__0;      /* 0, or sizeof(attn_desc): see BINDINGS */

    /* what attends to what (see SHAPES) */
    attn_view q ATTN__0, k ATTN__0, v ATTN__0; /* rank 4. v may be absent when out is. Types: see TYPES */

    /* results; each may be absent, but not all */
    attn_out out ATTN__0;               /* [B,H,Sq,Dv] */
    attn_out lse ATTN__0;               /* [B,H,Sq]  f32; log-sum-exp of masked scores and sink; empty row: -inf */
    attn_out weights ATTN__0;           /* [B,H,Sq,Sk]  after softmax, before dropout (but see weights_after_dropout) */
    attn_out scores ATTN__0;            /* [B,H,Sq,Sk]  before softcap, bias, masks; scale included; of all Sk keys */
    attn_out scores_softcap ATTN__0;    /* [B,H,Sq,Sk]  after softcap; of all Sk keys */
    attn_out scores_masked ATTN__0;     /* [B,H,Sq,Sk]  after bias, ALiBi and masks; an excluded entry is -inf */

    /* score */
    int32_t score ATTN__0;              /* attn_score */
    int32_t scale_set ATTN__0;          /* 1: use `scale` as it is, even 0. 0: scale 0 means the default */
    float scale ATTN__0;                /* default 1/sqrt(D) for SCALED_DOT, else 1. Not for distances, CONSTANT */
    float sigma ATTN__0;                /* width of the distance kernels, 1e-18..1e18; 0 means 1 */
    attn_view sigma_per_head ATTN__0;   /* [H]; instead of sigma */
    attn_view bilinear ATTN__0;         /* M [Dq,Dk] or per head [H,Dq,Dk] */
    attn_view w_q ATTN__0, w_k ATTN__0; /* W_q [h,Dq], W_k [h,Dk], or per head [H,h,.]; absent: h = Dq, Dk */
    attn_view w_v ATTN__0;              /* [h] or [H,h] */
    attn_view hidden_bias ATTN__0;      /* b [h] or [H,h]; absent = 0 */
    attn_view given_scores ATTN__0;     /* [B,H,Sq,Sk], for ATTN_SCORE_GIVEN, where q and k stay absent. -inf excludes,
                                           whatever scale and softcap are */

    /* what is added to the score */
    float softcap ATTN__0;              /* c > 0: s becomes c*tanh(s/c) (Gemma 2, 2024). 0 = off */
    attn_view bias ATTN__0;             /* rank 1..4, broadcast from the right against [B,H,Sq,Sk] as numpy does; with
                                           bias_index a table, [N] or [H,N] */
    attn_view alibi ATTN__0;            /* slopes [H]: adds -slope*|p - j| (Press et al. 2021) */
    attn_view sink ATTN__0;             /* [H]: one more logit in the denominator, with no value (gpt-oss, 2025). A
                                           row with a finite sink is never empty */

    /* which keys a query may attend to: all of these must allow it */
    attn_view mask ATTN__0;             /* u8, nonzero = may attend; rank 1..4, broadcast as bias: rank 3 is [H,Sq,Sk].
                                           One per batch entry: [B,1,Sq,Sk]; padding: [B,1,1,Sk] */
    attn_view key_lengths ATTN__0;      /* i32/i64 [B] (cache_seqlens, seqused_k) or per query [B,Sq], packed
                                           [1,total]: keys j < length. 0..Sk */
    attn_view query_lengths ATTN__0;    /* i32/i64 [B]: queries i >= length are empty rows. 0..Sq */
    int32_t causal ATTN__0;             /* 1: key j is allowed when j <= p */
    int32_t align ATTN__0;              /* attn_align: p for causal, window and ALiBi */
    attn_view positions ATTN__0;        /* i32/i64 [B] (of the first query) or [B,Sq], packed [1,total]: position_ids */
    int32_t window ATTN__0;             /* 1: use window_left and window_right, which say how far it reaches */
    int32_t empty ATTN__0;              /* attn_empty: rows without a key */
    int64_t window_left ATTN__0;        /* p - window_left <= j <= p + window_right; >= 0 or ATTN_UNBOUNDED. A sliding
                                           window of W keys, the query's own among them: W-1 and 0 */
    int64_t window_right ATTN__0;

    /* dropout of the weights: keep with probability 1-p, scale by 1/(1-p) */
    float dropout ATTN__0;              /* p, 0..1; 1 drops all: out 0 */
    int32_t weights_after_dropout ATTN__0; /* 1: `weights` are returned after dropout */
    uint64_t seed ATTN__0;              /* the mask is a function of seed and the absolute (b,h,i,j), of nothing else */
    int64_t dropout_origin[4] ATTN__0;  /* absolute (b,h,i,j) of this call's first element */

    /* how to run */
    int32_t isa ATTN__0;                /* attn_isa; forces one: an error if this CPU or build lacks it */
    int32_t reserved ATTN__0;           /* 0 */
    void *workspace ATTN__0;            /* attn_workspace_size bytes, any alignment; NULL: one allocation */
    size_t workspace_bytes ATTN__0;     /* its size; 0 without one (size queries and plans do not look at it) */
    attn_allocator allocator ATTN__0;
    attn_parallel parallel ATTN__0;

    /* one more result */
    attn_out stats ATTN__0;             /* [B,H,Sq,2]  f32; each row's maximum score and its sum of e^(score - maximum),
                                           without the sink; -inf and 0 for a row without mass. Optional for
                                           attn_backward, which then has one product less to do */

    /* with ATTN_CUDA */
    void *stream ATTN__0;               /* the cudaStream_t of a call whose arrays lie on a device; NULL: the default
                                           stream. isa and parallel are ignored there */

    /* scales of int8 k and v, for inference: f32 or f16, [B,Hkv,Sk,1] (one per row) or [B,Hkv,Sk,ceil(D/32)] (one per
       32 numbers of a row; Dv for v). Made by attn_quantize. In attn_bmm k_scale is that of its b */
    attn_view k_scale ATTN__0, v_scale ATTN__0;

    /* attn_precision. With FAST attn_forward may multiply in bf16 (by AMX where attn_enable_amx was called before,
       else by AVX512-BF16 on a CPU without AMX; compiled by gcc 11, for AMX 12, clang 13 or later): the scores of
       SCALED_DOT and DOT where q and k are bf16 and |scale| is at most 2^64, and out, for any score, where v is
       bf16; by AMX also where this k is int8, or v without dropout, with one scale per row; attn_backward, by AMX,
       all that is made of such scores where q, k, v and d_out are bf16. Sums are f32; weights (of int8 v times its
       scale), and in attn_backward the gradients of scores, are rounded to bf16 for this; numbers, products and sums
       below 2^-126 (before the scale and that of k), and such weights, count as 0; sums of q times codes of k must
       not overflow, either. The bound on out grows by 2^-8 V (see ATTN_SCORE_LIST), that of a gradient by 2^-8 (where
       out was made so, 2^-7) times the sum that NUMERICS names, no other does. The bits are those of CPUs with the
       same unit; they do not depend on threads, tasks, batch or strides; those of gradients do on whether stats are
       given. It changes nothing for other types, scores, instruction sets and CPUs, for at most 8 rows per key head
       (per query head with per-head parameters), and by AMX for fewer than 32 numbers in a row of k (scores) or of v
       (out; 64 where the scores are no such products), of gradients also fewer than 32 queries or keys. Rows,
       queries and keys are those of the arrays, where packed those of an entry: in a batch that is not packed a short
       entry may have other bits than alone. attn_bmm and attn_mha say what it does there. On a device it concerns
       these (see TYPES in attn_cuda.cuh) and attn_backward, whose dq may have other bits in each run (BITS there). On a
       CPU attn_explain and attn_explain_backward say whether it is used */
    int32_t precision ATTN__0;
    int32_t reserved2 ATTN__0;          /* 0 */

    /* sequences of unequal length in shared arrays (see SEQUENCES) */
    attn_view query_starts ATTN__0;     /* i32/i64 [B]: the first query row of each entry (cu_seqlens_q, leftpad);
                                           packed queries: ascending */
    attn_view key_starts ATTN__0;       /* i32/i64 [B]: the first key of each entry (cu_seqlens_k, leftpad_k);
                                           packed keys, for gradients: ascending */
    /* i32/i64 [B,pages] (block_table): k, v and their scales are pools [P,Hkv,page,D] of P pages, any strides, and key
       j of entry b is row j % page of pool page page_table[b,j / page]; with key_starts read j + key_starts[b] for j.
       Sk = pages * page; key_lengths (cache_seqlens) say what counts. Pages beyond a length are not looked up; the
       numbers of the others must be within 0..P-1. Any page size. Entries may share pages. No gradients */
    attn_view page_table ATTN__0;

    /* keys that come in several calls (see PARTS) */
    attn_view carry_in ATTN__0;         /* [B,H,Sq,Dv+2]  f32; carry_out of the call before this one */
    attn_out carry_out ATTN__0;         /* [B,H,Sq,Dv+2]  f32; of each row its Dv outputs, not yet divided by the sum,
                                           its maximum score and its sum of e^(score - maximum); for a row without mass
                                           zeros, -inf and 0. It may be carry_in itself (same data, same strides) */
    int64_t key_origin ATTN__0;         /* where this call's first key stands among all keys; with starts, each entry's
                                           first among those of the entry. A multiple of ATTN_PART_KEYS */

    /* A bias by index (T5: Raffel et al. 2020, buckets of distances; Swin: Liu et al. 2021, places in a window): i32 or
       i64, rank 1..4, broadcast as bias and mask are, any strides. `bias` is a table then, [N] or [H,N] (or [1,N]),
       and the score of (h,i,j) gets bias[h, bias_index[b,h,i,j]], or 0 where the index is below 0. All indices must be
       below N, also those of excluded pairs; a plan checks them. d_bias is the table's gradient. What is said of bias
       under SEQUENCES and PARTS holds for the index; -inf in the table excludes. By distance alone: the indices of the
       distances j - i from -(Sq-1) on are one vector of Sq + Sk - 1, seen with the strides -1 and 1 from its element
       Sq-1; that is fastest. Not on a device */
    attn_view bias_index ATTN__0;
} attn_desc;
#define ATTN_PART_KEYS 256              /* every part of the keys but the last has a multiple of so many */

/* ---- gradients, described (ATTN_NO_BACKWARD leaves them out; attn_backward below says what they are) */
#if !defined(ATTN_NO_BACKWARD) || defined(ATTN_CUDA) || defined(ATTN__CUDA_SEAM)
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
    attn_view d_weights ATTN__0;        /* [B,H,Sq,Sk]  of the weights as they were returned */
    attn_view d_lse ATTN__0;            /* [B,H,Sq] */

    /* results: gradients of the inputs; each may be absent, but not all. Each is shaped like its input */
    attn_out dq ATTN__0, dk ATTN__0, dv ATTN__0;
    attn_out d_given_scores ATTN__0;    /* [B,H,Sq,Sk], for ATTN_SCORE_GIVEN */
    attn_out d_bias ATTN__0;            /* summed over axes that bias lacks or of size 1; others of stride 0 are not. By
                                           bias_index: of each 128 queries of a head N sums are in the workspace */
    attn_out d_bilinear ATTN__0, d_w_q ATTN__0, d_w_k ATTN__0, d_w_v ATTN__0, d_hidden_bias ATTN__0;
    attn_out d_sigma ATTN__0;           /* [1], or [H] with sigma_per_head */
    attn_out d_scale ATTN__0;           /* [1]  of the scale used; not for distance kernels and CONSTANT */
    attn_out d_sink ATTN__0, d_alibi ATTN__0; /* [H] */
    uint32_t accumulate ATTN__0;        /* ATTN_GRAD_x bits: these are added to what their arrays hold */
    int32_t reserved ATTN__0;           /* 0 */

    /* attn_key_sums as a plan, or explained: without any of the arrays above */
    attn_out key_sums ATTN__0;          /* [B,H,Sk]  what each key got of the attention: no gradient */
    int64_t last_queries ATTN__0;       /* key_sums: over so many queries at the end of each entry; 0 = over all */
} attn_grad;
#endif

/* ---- attention */

/* Computes every result that `desc` asks for. Cost: 2*B*H*Sq*Sk*(D + Dv) operations, less what key_lengths, causal and
   window skip; additive scores: h tanh for each pair in place of 2*D operations. */
ATTN_DEF attn_status attn_forward(const attn_desc *desc, attn_error *err);

/* Bytes of workspace that attn_forward(desc) needs, which may be 0; never less for a larger size (on a GPU: see
   attn_cuda.cuh). With several workers keys may be cut among tasks, which takes at most min(B*H*Sq, 8*workers) *
   (Sk/256 + 3) * (Dv + 2) floats. Data pointers may be NULL here. */
ATTN_DEF attn_status attn_workspace_size(const attn_desc *desc, size_t *bytes, attn_error *err);

/* The same work cut into tasks, for callers who spread them over frames or threads themselves:
       attn_plan plan;
       attn_plan_forward(&desc, &plan, &err);
       for (p = 0; p < plan.phases; p++)                          // a phase starts when the one before is done
           for (i = 0; i < plan.tasks[p]; i++)                    // in any order, on any thread
               attn_task(&plan, workspace, p, i, worker);         // worker < desc.parallel.workers (0 = 1)
   workspace: plan.workspace_bytes, the same block for all tasks; NULL where that is 0. All checks are made by the plan,
   so a task cannot fail. The plan holds what it needs of the descriptor, may be copied, and may be run any number of
   times. Runs at the same time need a workspace each, and write the same results. What q, k, v, mask and bias point to
   may change between runs; lengths, starts, page tables, positions and sigmas were checked by the plan and must not (an
   index of a bias may, but counts as -1 where it is beyond the table). Of the descriptor, parallel.run, workspace and
   allocator are ignored. Data pointers must be set. There are two to four tasks for each of parallel.workers where the
   work is worth it: keys that few queries share are cut, else tiles of queries are narrower. On a device a plan has one
   task: see PLANS in attn_cuda.cuh. */
#define ATTN_MAX_PHASES 16
typedef struct attn_plan {
    size_t    workspace_bytes;
    int32_t   phases;
    int32_t   isa;              /* attn_isa that runs */
    int64_t   tasks[ATTN_MAX_PHASES];
    int64_t   internal[640];    /* private */
} attn_plan;
ATTN_DEF attn_status attn_plan_forward(const attn_desc *desc, attn_plan *plan, attn_error *err);
ATTN_DEF void attn_task(const attn_plan *plan, void *workspace, int32_t phase, int64_t index, int32_t worker);

/* ---- gradients */
#ifndef ATTN_NO_BACKWARD

/* Computes the gradients of inputs and parameters from those of the results. `forward`: the descriptor of the forward
   call, unchanged. Its `out` is read (required where d_out is given, unless dv alone is wanted); its `stats` are read
   if present, else recomputed (one more product, the same bits). Its other results are ignored; its workspace,
   parallel, allocator and isa are used. Cost: 5/2 of the forward's.
   - Empty rows add 0 to every gradient, even if the incoming one is NaN, and under ATTN_EMPTY_NAN too. But a finite
     sink gets its share of d_lse, and under ATTN_EMPTY_UNIFORM they add to dv.
   - Excluded pairs contribute nothing, whatever q, k, v and d_out hold. A key that no row may attend to gets exactly 0
     (a packed one of no entry: SEQUENCES).
   - BOXCAR and CONSTANT have gradient 0 for q, k and sigma; TRIANGULAR has 0 at distance 0, COSINE at the zero vector.
   - The bits do not depend on isa, workers, tasks and strides (see SAME BITS). Sums have one fixed order: a key's over
     the queries in blocks of ATTN_GRAD_QUERIES, heads of a group one after the other; a query's over the keys in blocks
     of ATTN_GRAD_KEYS; a parameter's over batch, head, query (or key). Blocks start at multiples of their size. */
#define ATTN_GRAD_QUERIES 128
#define ATTN_GRAD_KEYS     64
ATTN_DEF attn_status attn_backward(const attn_desc *forward, const attn_grad *grad, attn_error *err);

/* Bytes of workspace that attn_backward needs. Data pointers may be NULL here. */
ATTN_DEF attn_status attn_backward_workspace_size(const attn_desc *forward, const attn_grad *grad, size_t *bytes,
                                                  attn_error *err);

/* As attn_plan_forward; attn_task runs it. */
ATTN_DEF attn_status attn_plan_backward(const attn_desc *forward, const attn_grad *grad, attn_plan *plan,
                                        attn_error *err);

/* As attn_explain, for attn_backward. */
ATTN_DEF size_t attn_explain_backward(const attn_desc *forward, const attn_grad *grad, char *text, size_t size);

/* What each key got of the attention: key_sums [B,H,Sk], the sum of its weights over the queries of each entry, or over
   the last `last_queries` of them if that is not 0, as caches that keep the most important keys want it (H2O: Zhang et
   al. 2023; SnapKV: Li et al. 2024) and explanations do. The weights are never stored. forward: the descriptor of the
   forward call; out and v are not needed. int8 keys and pages may be used, and keys in parts as in attn_backward; not
   on a device. Rows beyond query_lengths or of no entry do not count. Other empty rows add 0, under ATTN_EMPTY_NAN too,
   but 1/Sk under ATTN_EMPTY_UNIFORM; dropout counts with weights_after_dropout alone. The sums of a head are made in
   blocks of ATTN_GRAD_QUERIES: 16 partial sums by query mod 16, then a tree. As a plan, or explained:
   attn_plan_backward and attn_explain_backward with key_sums in attn_grad. Cost: with stats half of the forward's or a
   little more, without stats a little more than the forward's. */
ATTN_DEF attn_status attn_key_sums(const attn_desc *forward, int64_t last_queries, attn_out key_sums,
                                   attn_error *err);
ATTN_DEF attn_status attn_key_sums_workspace_size(const attn_desc *forward, int64_t last_queries, attn_out key_sums,
                                                  size_t *bytes, attn_error *err);

/* Gradient of attn_softmax: dx from d_out, both of the shape of x. x and options as they were given to attn_softmax (so
   it must not have worked in place). dx must not overlap x or d_out. */
ATTN_DEF attn_status attn_softmax_backward(attn_view x, attn_view d_out, attn_out dx, const attn_desc *options,
                                           attn_error *err);
ATTN_DEF attn_status attn_softmax_backward_workspace_size(attn_view x, attn_view d_out, attn_out dx,
                                                          const attn_desc *options, size_t *bytes, attn_error *err);

/* Gradient of attn_bmm: da = d_out b^T, db = a^T d_out, each summed over the batch axes along which a or b was
   broadcast; either may be absent (rank 0). accumulate: bit 0 adds to da, 1 to db. Chains of ATTN_GRAD_QUERIES. No int8
   b. */
ATTN_DEF attn_status attn_bmm_backward(attn_view a, attn_view b, attn_view d_out, attn_out da, attn_out db,
                                       uint32_t accumulate, const attn_desc *options, attn_error *err);
ATTN_DEF attn_status attn_bmm_backward_workspace_size(attn_view a, attn_view b, attn_view d_out, attn_out da,
                                                      attn_out db, const attn_desc *options, size_t *bytes,
                                                      attn_error *err);
#endif /* ATTN_NO_BACKWARD */

/* Describes in a sentence how the call would run, or why it is refused. It says which share of the pairs lengths,
   causal and window allow where their arrays are there, for up to 2^20 rows of queries; packed entries count as if
   padded to the longest. Writes at most `size` bytes with the final 0 (size 0: text may be NULL); returns the length of
   the whole text, without the 0. */
ATTN_DEF size_t attn_explain(const attn_desc *desc, char *text, size_t size);

/* ---- the pieces, alone. `options` may be NULL; its q, k, v, and its results unless named, are ignored. */

/* Masked softmax over the last axis: out = softmax(x), of one shape: [n], [Sq,Sk], [B,Sq,Sk] or [B,H,Sq,Sk]. `options`:
   key_lengths ([B] or [B,Sq]), mask, bias or its index (against x's own shape), scale, softcap, ALiBi, causal, window,
   empty, sink; the results lse ([B,H,Sq]) and stats. out may be x itself (same data, same strides). Excluded scores may
   still be read. [Sq,Sk] is one batch entry: a length per row is key_lengths [1,Sq]. dropout needs
   weights_after_dropout. */
ATTN_DEF attn_status attn_softmax(attn_view x, attn_out out, const attn_desc *options, attn_error *err);
ATTN_DEF attn_status attn_softmax_workspace_size(attn_view x, attn_out out, const attn_desc *options,
                                                 size_t *bytes, attn_error *err);

/* Raw scores [B,H,Sq,Sk] of q and k under options->score, scale included; no mask. Workspace: attn_workspace_size of
   the descriptor with q, k and scores. */
ATTN_DEF attn_status attn_scores(attn_view q, attn_view k, attn_out scores, const attn_desc *options, attn_error *err);

/* The mask as data: 1 where query i may attend to key j, else 0. The output is u8 [B,H,Sq,Sk] and gives the sizes, no q
   and no k is needed. Options used: parallel, mask, key_lengths, query_lengths, causal, align, positions, window,
   bias of -inf, bias_index; query_starts and key_starts: with batch size 1 and B starts it shows all packed entries. */
ATTN_DEF attn_status attn_mask(attn_out mask, const attn_desc *options, attn_error *err);

/* The dropout mask as data: 1 = kept. u8 [B,H,Sq,Sk]. Options used: parallel, dropout, seed, dropout_origin.
   Philox4x32-10 (Salmon et al. 2011): key = seed (low word first), counter = (j/4, i, h, b), h the query head; key j is
   kept when output word j%4 >= p*2^32. Indices modulo 2^32. Starts are not used: ask for an entry's mask alone
   (SEQUENCES). */
ATTN_DEF attn_status attn_dropout_mask(attn_out mask, const attn_desc *options, attn_error *err);

/* Attention over two disjoint sets of keys from the attentions over each: out = w_a out_a + w_b out_b, w_x =
   exp(lse_x - lse), lse = log(exp(lse_a) + exp(lse_b)); both empty: out 0, lse -inf. Outs [B,H,Sq,Dv], lses f32
   [B,H,Sq]; lse may be absent. Not in place. A sink belongs to one of the two only. attn_merge_with: the same, with
   options. Used: parallel; on a device: stream. Other options are ignored, isa too. NULL: attn_merge. */
ATTN_DEF attn_status attn_merge(attn_view out_a, attn_view lse_a, attn_view out_b, attn_view lse_b,
                                attn_out out, attn_out lse, attn_error *err);
ATTN_DEF attn_status attn_merge_with(attn_view out_a, attn_view lse_a, attn_view out_b, attn_view lse_b,
                                     attn_out out, attn_out lse, const attn_desc *options, attn_error *err);

/* Batched matrix product: out[..,m,n] = sum_k a[..,m,k] b[..,k,n]; ranks 2..4, batch axes broadcast as numpy does.
   Transpose an operand by attn_view_swap of its last two axes. An element is the in-order sum of chains of 64 fused
   multiply-adds. Options used: isa, workspace (attn_bmm_workspace_size bytes), allocator, parallel, stream, k_scale,
   precision: with ATTN_PRECISION_FAST products of bf16 a and b may be made as in attn_forward, and summed in f32, where
   k is at least 32, of up to 8 rows of a 128 and the numbers of b's columns lie side by side; its bits may then depend
   on batch and strides, not on workers. Gradients are as without. On a device products may be made by tensor cores,
   gradients too (TYPES in attn_cuda.cuh).
   b may be int8: weights w [n,k], of which attn_quantize made codes row by row, used transposed, x w^T:
       options.k_scale = scales;                                          // [..,n,1] or [..,n,ceil(k/32)], f32 or f16
       attn_bmm(x, attn_view_swap(codes, 2, 3), out, &options, &err);     // codes [..,..,n,k]
   k_scale has b's batch axes or none, then a row for each column of b: one scale, or one per 32 numbers of the column.
   A number of b is code * scale, a float, rounded once; then all is as with an f32 b of these numbers, bit for bit.
   Columns whose numbers do not lie side by side, as in a b stored as [k,n], are taken too, but slowly. Up to 4 rows of
   a are fastest where k is a multiple of 64. Not on a device. */
ATTN_DEF attn_status attn_bmm(attn_view a, attn_view b, attn_out out, const attn_desc *options, attn_error *err);
ATTN_DEF attn_status attn_bmm_workspace_size(attn_view a, attn_view b, attn_out out, const attn_desc *options,
                                             size_t *bytes, attn_error *err);

/* to = from, number by number: views of the same shape, any strides, each f32, f16, bf16 or f64. Rounds to nearest
   even, once; a number too large becomes infinity, NaN the type's one quiet NaN. Not in place. attn_convert_with: as
   attn_merge_with. */
ATTN_DEF attn_status attn_convert(attn_view from, attn_out to, attn_error *err);
ATTN_DEF attn_status attn_convert_with(attn_view from, attn_out to, const attn_desc *options, attn_error *err);

/* Quantizes k or v of attn_desc, or weights of attn_bmm, to int8: from (f32, f16, bf16) and codes (int8) are [B,H,S,D];
   scale (f32 or f16) is [B,H,S,1], one per row, or [B,H,S,ceil(D/32)], one per 32 numbers. scale = largest |x| / 127,
   rounded to its type (f16: at most 65504); a code is x / scale, a float, rounded to the nearest integer (ties to
   even), within -127..127. NaN and infinity make the scale NaN; with it, and with a scale of 0, the codes are 0.
   attn_quantize_with: as attn_merge_with. */
ATTN_DEF attn_status attn_quantize(attn_view from, attn_out codes, attn_out scale, attn_error *err);
ATTN_DEF attn_status attn_quantize_with(attn_view from, attn_out codes, attn_out scale, const attn_desc *options,
                                        attn_error *err);
/* From ggml's q8_0: rows of blocks, each a little-endian f16 scale and 32 codes (34 bytes); rows in the order of the
   axes of codes, D a multiple of 32. codes and scale as above, one per 32 numbers; blocks must not overlap them (not
   checked). */
ATTN_DEF attn_status attn_unpack_q8_0(const void *blocks, attn_out codes, attn_out scale, attn_error *err);

/* ---- sequences */

/* lengths[b] = offsets[b+1] - offsets[b]: offsets i32 or i64 [B+1], as cu_seqlens of other libraries, must not descend;
   lengths i32 or i64 [B]. The starts are the first B offsets: a view [B] of the same array. On the host. */
ATTN_DEF attn_status attn_lengths_of(attn_view offsets, attn_out lengths, attn_error *err);

/* Puts new rows of k or v after those that a cache holds: row i of entry b of fresh goes to row lengths[b] + i of
   cache. fresh [B,Hkv,n,D]: f32, f16, bf16; cache [B,Hkv,S,D]: these, converted as by attn_convert, or int8, converted
   as by attn_quantize. lengths: i32 or i64 [B], the rows that each entry holds already; they are not changed. Options
   used: query_lengths: how many of an entry's n rows count; query_starts: where they begin in fresh, which may be
   packed, [1,Hkv,total,D]; key_starts: where the entry begins in cache, which may be packed, too; page_table: cache is
   a pool [P,Hkv,page,D], and the table names the pages of the new rows already; one of k_scale and v_scale, never both:
   the scales of an int8 cache, which are written, though it is a view; parallel. Two entries must not put rows in one
   place of a pool or of a packed cache (not checked). On a device: stream. Other options are ignored, isa too. */
ATTN_DEF attn_status attn_append(attn_view fresh, attn_out cache, attn_view lengths, const attn_desc *options,
                                 attn_error *err);

/* Rotary positions (Su et al. 2021): the first R columns of x [B,H,S,D] are turned, pair by pair, the others copied:
       a cos - b sin and b cos + a sin in place of the pair a, b at columns n and n + R/2 (weights of Hugging Face), or
       with ATTN_ROPE_INTERLEAVED 2n and 2n+1 (Meta's own weights of Llama); cos, sin = cosines[p,n], sines[p,n].
   cosines, sines: f32 [positions, R/2], as attn_rope_table makes them; R at most D. p, their row for row i of entry b:
   positions[b] + i, or positions[b,i], of i32 or i64 [B] or [B,S] (packed [1,total]); i where positions are absent
   (rank 0). It must exist, for rows of padding too: with left padding give [B,S], any number there. If the tables have
   a first_position, p is the position less that. ATTN_ROPE_INVERSE turns the other way, which is the gradient; it
   undoes the rotation where m (below) is 1. x, out: f32, f16, bf16, any strides; out may be x (same data, type and
   strides), else they must not overlap. Four products, each rounded, then a difference and a sum, each rounded: no
   fused multiply-add, the same bits on every machine. A NaN becomes its type's one, copied ones too. attn_rope_with: as
   attn_merge_with. */
enum { ATTN_ROPE_INTERLEAVED = 1, ATTN_ROPE_INVERSE = 2 };
ATTN_DEF attn_status attn_rope(attn_view x, attn_view cosines, attn_view sines, attn_view positions, uint32_t flags,
                               attn_out out, attn_error *err);
ATTN_DEF attn_status attn_rope_with(attn_view x, attn_view cosines, attn_view sines, attn_view positions,
                                    uint32_t flags, attn_out out, const attn_desc *options, attn_error *err);

/* The tables, f32 [positions, R/2]: cosines[p,n] = m cos(t), sines[p,n] = m sin(t), t = (first_position + p) f. m is 1,
   but for YARN and factors; f is the frequency of pair n. f and t are doubles: powers below are within 3 ulp, the rest
   is computed in double as it stands. Cosine and sine are within 1 ulp of those of t, and the same bits on every
   machine. desc NULL: all defaults. The scalings, with w = base^(-2n/R); in quotes their rope_type in the
   configurations of Hugging Face's transformers, whose rope_theta is base and whose tables differ by the rounding of
   f32 alone:
       PLAIN   f = w                                                               "default" (Su et al. 2021)
               f = w/factors[n] where these are given, m = attention_factor        "longrope" (Ding et al. 2024)
               "longrope" has short_factor or long_factor, by the length, for factors, and, unless attention_factor is
               set, sqrt(1 + ln(factor)/ln(N)); "proportional" has infinity for each pair that is not turned
       LINEAR  f = w / factor                                              "linear" (Chen et al. 2023; kaiokendev)
       NTK     f = w factor^(-2n/(R-2)), the w of base * factor^(R/(R-2))                  bloc97 2023
               "dynamic" is this for lengths beyond N, the training's: with factor * length/N - (factor-1) as factor
       YARN    f = w/factor * (1 - r) + w * r, r = 1 - (n - low)/(high - low) within 0..1; low = floor(c(beta_fast)),
               high = ceil(c(beta_slow)), low at least 0, high at most R-1, high + 0.001 where they are equal;
               m = attention_factor; c(x) = R ln(original_positions/(2 pi x)) / (2 ln base)
                                                                                   "yarn" (Peng et al. 2023)
       LLAMA3  the same f with r = (x - low_freq_factor)/(high_freq_factor - low_freq_factor) within 0..1, where
               x = original_positions w / (2 pi) are the pair's turns in training  "llama3" (Llama 3.1, 2024) */
typedef enum attn_rope_scaling {
    ATTN_ROPE_PLAIN = 0, ATTN_ROPE_LINEAR, ATTN_ROPE_NTK, ATTN_ROPE_YARN, ATTN_ROPE_LLAMA3, ATTN_ROPE_SCALING_COUNT
} attn_rope_scaling;
typedef struct attn_rope_desc {         /* a number that the scaling does not use must be 0 */
    uint64_t struct_bytes ATTN__0;      /* 0, or sizeof(attn_rope_desc) */
    double base ATTN__0;                /* above 1, to 1e18; 0 = 10000 */
    int32_t scaling ATTN__0;            /* attn_rope_scaling */
    int32_t no_truncation ATTN__0;      /* YARN: 1 leaves low and high as they are ("truncate": false) */
    double factor ATTN__0;              /* all but PLAIN; 1..1e18, required */
    int64_t original_positions ATTN__0; /* YARN, LLAMA3: original_max_position_embeddings; 1..2^48, required */
    double low_freq_factor ATTN__0, high_freq_factor ATTN__0; /* LLAMA3; 1e-18..1e18, the second one larger; 0 = 1, 4 */
    double beta_fast ATTN__0, beta_slow ATTN__0; /* YARN; 1e-18..1e18, the second one not larger; 0 = 32, 1 */
    double attention_factor ATTN__0;    /* YARN; 1e-18..1e18; 0 = 0.1 ln(factor) + 1. Configurations with mscale and
                                           mscale_all_dim mean the quotient of 0.1 mscale ln(factor) + 1 of both.
                                           With factors, too; there 0 = 1 */
    int64_t first_position ATTN__0;     /* of row 0 of the tables; no position may be above 2^24 */
    attn_view factors ATTN__0;          /* PLAIN; f32 [R/2]: 0.25 or more, infinity too: that pair is not turned */
} attn_rope_desc;
ATTN_DEF attn_status attn_rope_table(attn_out cosines, attn_out sines, const attn_rope_desc *desc, attn_error *err);

/* slopes [H] (f32, f16, bf16) = those of ALiBi's authors for H heads, as `alibi` of attn_desc takes them: with p the
   largest power of two up to H, 2^(-8(h+1)/p) for head h below p, 2^(-4(2(h-p)+1)/p) for the others. The same bits on
   every machine. On the host. */
ATTN_DEF attn_status attn_alibi_slopes(attn_out slopes, attn_error *err);

/* Multi-head attention with its projections, y = x W^T + bias (weights stored [out,in] as PyTorch's nn.Linear does):
       q = query w_query^T, k = key w_key^T, v = value w_value^T, cut into heads, attend, concat w_result^T.
   query [B,Sq,Eq], key [B,Sk,Ek], value [B,Sk,Ev]; w_query [H*D,Eq], w_key [Hkv*D,Ek], w_value [Hkv*Dv,Ev],
   w_result [Eo,H*Dv] (absent: the heads side by side); biases [rows of the weight] or absent, b_result only with
   w_result; out [B,Sq,Eo]. key absent = query, value absent = key. D = w_query.size[0] / heads. `attention`: all of
   attn_desc but q, k, v and out, not ATTN_SCORE_GIVEN; may be NULL. isa, parallel, allocator and workspace
   (attn_mha_workspace_size bytes) of the whole come from there too. The same bits as attn_bmm, + bias, attn_forward,
   attn_bmm with f32 arrays between them; with ATTN_PRECISION_FAST, on a CPU that multiplies in bf16 then, and H*Sq
   above 8, with bf16 in the place of q, k and v where their weights and inputs are bf16, and of what w_result
   multiplies where that is; on a device with f16 or bf16 in the place of all of these and their gradients, where all
   weights and inputs are (TYPES in attn_cuda.cuh). Packed: query and out [1,total,E], key and value [1,total,E] where
   keys are; where key is query, key_starts and key_lengths are needed, too; not on a device. No page_table: pages hold
   keys that are projected already. With a KV cache, call those yourself. (Vaswani et al. 2017) */
typedef struct attn_mha_desc {
    uint64_t struct_bytes ATTN__0;      /* 0, or sizeof(attn_mha_desc) */
    attn_view query ATTN__0, key ATTN__0, value ATTN__0;
    attn_view w_query ATTN__0, w_key ATTN__0, w_value ATTN__0, w_result ATTN__0;
    attn_view b_query ATTN__0, b_key ATTN__0, b_value ATTN__0, b_result ATTN__0;
    attn_out out ATTN__0;
    int64_t heads ATTN__0;              /* H, required */
    int64_t heads_kv ATTN__0;           /* Hkv; 0 = H */
    const attn_desc *attention ATTN__0;
    void *saved ATTN__0;                /* attn_mha_saved_size bytes, any alignment; NULL: nothing is kept */
    size_t saved_bytes ATTN__0;         /* its size; 0 without one (size queries do not look at it) */
} attn_mha_desc;
ATTN_DEF attn_status attn_mha(const attn_mha_desc *desc, attn_error *err);
ATTN_DEF attn_status attn_mha_workspace_size(const attn_mha_desc *desc, size_t *bytes, attn_error *err);

/* Bytes of `saved`, with which training does not compute the forward pass twice: attn_mha leaves there its projected q,
   k and v, what w_result multiplies and the stats; attn_mha_backward with the same descriptor only reads them, as often
   as it is called. The same bits. With `saved` set both need less workspace (unless out has no element). Refused:
   memory that attn_mha has not filled, or in a call that failed, or one of other sizes, types or options (or by
   ATTN_PRECISION_FAST before attn_enable_amx); a copy of it, unless the addresses differ by a multiple of 64. Not
   noticed: arrays that hold other numbers by then. The result stats must be absent; no array of the call may overlap it
   (not checked). Not on a device, not with PARTS. */
ATTN_DEF attn_status attn_mha_saved_size(const attn_mha_desc *desc, size_t *bytes, attn_error *err);

#ifndef ATTN_NO_BACKWARD
/* Gradients of attn_mha. `desc` as it was there (out is not read); without `saved` projections and attention are
   recomputed. All keys come in one call: key_origin is 0. If key is absent, so must dkey be: its gradient goes to
   dquery. If value is absent, so must dvalue be: its gradient goes to dkey, or to dquery if key is absent too. */
typedef struct attn_mha_grad {
    uint64_t struct_bytes ATTN__0;      /* 0, or sizeof(attn_mha_grad) */
    attn_view d_out ATTN__0;            /* [B,Sq,Eo] */
    attn_out dquery ATTN__0, dkey ATTN__0, dvalue ATTN__0; /* results; each may be absent, but not all */
    attn_out dw_query ATTN__0, dw_key ATTN__0, dw_value ATTN__0, dw_result ATTN__0;
    attn_out db_query ATTN__0, db_key ATTN__0, db_value ATTN__0, db_result ATTN__0;
    const attn_grad *attention ATTN__0; /* or NULL. Used: d_weights, d_lse, results but dq, dk, dv; their accumulate */
    uint32_t accumulate ATTN__0;        /* bit n (from 0): adds to the n-th of the 11 results above, in that order */
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
/* Asks the operating system for AMX, the CPU's matrix unit for bf16: calls with ATTN_PRECISION_FAST use it from then
   on (see `precision`), in all threads, but not plans made before. It changes the state of the process, so attn.h
   never asks by itself; once is enough, more often does no harm. ATTN_ERR_ISA, "amx", where this build, the CPU or the
   kernel lacks it. */
ATTN_DEF attn_status attn_enable_amx(attn_error *err);
ATTN_DEF int32_t     attn_version(void);                           /* compare with ATTN_VERSION_NUMBER */
/* The layout of all structures, for bindings: a line "attn_desc 2688" with a structure's size, then a line
   "    causal 1792 4" with offset and size for each of its fields. text, size and result as in attn_explain. */
ATTN_DEF size_t      attn_layout(char *text, size_t size);
/* The library's own elementary functions, exactly as the kernels use them: y[i] = f(x[i]), on the host. Results of exp
   below 2^-126 are 0. x and y may be the same array. Errors: ATTN_ERR_OPTION, _SIZE, _NULL, _ISA. */
typedef enum attn_function { ATTN_EXP = 0, ATTN_LOG, ATTN_TANH, ATTN_FUNCTION_COUNT } attn_function;
ATTN_DEF attn_status attn_elementary(attn_function function, const float *x, float *y, int64_t n, attn_isa isa);

/* ---- pictures (ATTN_NO_HEATMAP leaves them out) */
#ifndef ATTN_NO_HEATMAP

/* Where text goes: called with successive pieces; must return 0 to go on, anything else stops with ATTN_ERR_WRITE.
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
    ATTN_COLORMAP_REDS = 0, ATTN_COLORMAP_VIRIDIS, ATTN_COLORMAP_GREY, ATTN_COLORMAP_DIVERGING, ATTN_COLORMAP_COUNT
} attn_colormap;
typedef enum attn_terminal {
    ATTN_TERMINAL_TRUECOLOR = 0, ATTN_TERMINAL_256, ATTN_TERMINAL_ASCII, ATTN_TERMINAL_COUNT
} attn_terminal;

/* One heatmap or a grid of them, row 0 on top, one range of colours for all panels. Zero means default. Infinities take
   the end colours, NaN is magenta (?? in ASCII); masked cells are hatched (// in a terminal) and do not count for the
   range. If all values are equal, the range includes 0. DIVERGING is for numbers of both signs, as a bias or gradients
   are: its range is -m..m, m the largest magnitude, so that 0 is light grey, what is below it blue, what is above it
   red, and x as dark as -x (in ASCII a shade after a sign); of a range_set that is no -m..m the middle is grey instead.
   Labels are cut at 32 columns; invalid UTF-8 becomes U+FFFD. At most 65536 rows and columns over all panels and 32767
   pixels a side; a width or height too small for the labels is an error that gives the minimum. If only one of the two
   is given, cells are square. View panels as [n,1,rows,cols] to have them below each other. Only the outer panels have
   tick labels. */
typedef struct attn_heatmap {
    uint64_t struct_bytes ATTN__0;      /* 0, or sizeof(attn_heatmap) */
    attn_view values ATTN__0;           /* f32, f16, bf16 or u8; [rows,cols], or [panel cols, rows, cols] (one row of
                                           panels), or [panel rows, panel cols, rows, cols], as d2l's show_heatmaps.
                                           Any strides. The weights [B,H,Sq,Sk] are B rows of H panels as they are */
    const attn_desc *mask_of ATTN__0;   /* instead of values' data: draw this descriptor's mask; values carries only
                                           the sizes [B,H,Sq,Sk] (rank 4, data NULL, u8) */
    const char *title ATTN__0;          /* above all; strings are UTF-8 and escaped as needed; NULL = none */
    const char *x_label ATTN__0;        /* axis titles: "Keys" */
    const char *y_label ATTN__0;        /* "Queries" */
    const char *const *x_ticks ATTN__0; /* [cols] labels of the columns; NULL = their numbers */
    const char *const *y_ticks ATTN__0; /* [rows] labels of the rows */
    const char *const *panel_titles ATTN__0; /* [panel rows * panel cols]; NULL = none */
    int32_t colormap ATTN__0;           /* attn_colormap; low is light in REDS and GREY. NaN has a colour of its own */
    int32_t range_set ATTN__0;          /* 1: colours run from range_min to range_max; else over the finite data */
    float range_min ATTN__0, range_max ATTN__0;
    int32_t width ATTN__0, height ATTN__0; /* of the whole picture in pixels (SVG, PPM); 0 = from the number of cells */
    int32_t ticks_on_top ATTN__0;       /* 1: column labels above, not below */
    int32_t no_colorbar ATTN__0;        /* 1: leave the colour bar out */
    int32_t numbers ATTN__0;            /* 1: print the values in the cells (SVG; terminal, but not in ASCII) */
    int32_t terminal ATTN__0;           /* attn_terminal, for attn_heatmap_ansi */
    int32_t cell_titles ATTN__0;        /* 1: hovering over a cell shows its labels and value (SVG, up to 4096 cells) */
    attn_view mask ATTN__0;             /* u8, rank and sizes of values, any strides: a cell where it is 0 is hatched,
                                           whatever it holds, unlike one whose weight is 0. As attn_mask writes it */
} attn_heatmap;

/* Write a heatmap for a terminal; as an SVG file; as a PPM file (P6: cells and colour bar, no text). A web page, where
   each cell tells its labels and its value, is a header of its own, made of these: examples/web/attn_heatmap_html.h. */
ATTN_DEF attn_status attn_heatmap_ansi(const attn_heatmap *map, attn_writer writer, attn_error *err);
ATTN_DEF attn_status attn_heatmap_svg (const attn_heatmap *map, attn_writer writer, attn_error *err);
ATTN_DEF attn_status attn_heatmap_ppm (const attn_heatmap *map, attn_writer writer, attn_error *err);
#endif /* ATTN_NO_HEATMAP */

/* ---- private: what attn_cuda.cuh has for the implementation below */
#if defined(ATTN_CUDA) || defined(ATTN__CUDA_SEAM)
#define ATTN__PLACE_HOST   1
#define ATTN__PLACE_DEVICE (~1)                                         /* each device has a bit, 2 << its number */
#define ATTN__PLACE_NUMBERS 29                                          /* those beyond have one together */
struct attn__array;
struct attn__call;
struct attn__matmul;
int     attn__cuda_place(const void *data, attn_error *err);            /* bits: where it can be used; 0: an error */
int64_t attn__cuda_bytes(const struct attn__call *c);                   /* of workspace */
attn_status attn__cuda_run(const struct attn__call *c, void *workspace, void *stream, attn_error *err);
/* Of a plan: `room` keeps what its runs need beside the call; then each run. */
#define ATTN__CUDA_KEPT 1664
attn_status attn__cuda_plan(const struct attn__call *c, void *stream, void *room, size_t *bytes, attn_error *err);
void    attn__cuda_task(const struct attn__call *c, const void *room, void *workspace);
/* Both at once: what is found of the device and the arrays is found once. with_memory: attn__size_or_run. */
typedef attn_status attn__cuda_memory(attn_status (*run)(void *call, const attn_desc *d, void *memory, attn_error *err),
                                      void *call, const attn_desc *d, int64_t needed, int on_device, size_t *bytes,
                                      attn_error *err);
attn_status attn__cuda_call(const struct attn__call *c, const attn_desc *d, attn__cuda_memory *with_memory,
                            attn_error *err);
/* on_device, here and below: as in attn__call */
attn_status attn__cuda_matmul(const struct attn__matmul *m, void *stream, int on_device, attn_error *err);
attn_status attn__cuda_mask(const struct attn__call *c, const struct attn__array *mask, const int64_t *size,
                            int dropout, void *stream, attn_error *err);
void   *attn__cuda_stream(void);        /* that of attn_cuda_use_stream, on which calls without options are enqueued */
/* The arrays as in the functions of attn.h; append: those of attn__append, and where they are in desc. */
attn_status attn__cuda_merge(const struct attn__array *a, const int64_t *size, void *stream, attn_error *err);
attn_status attn__cuda_convert(const struct attn__array *a, const int64_t *size, void *stream, int on_device,
                               attn_error *err);
attn_status attn__cuda_quantize(const struct attn__array *a, const int64_t *size, int64_t groups, void *stream,
                                int on_device, attn_error *err);
attn_status attn__cuda_unpack_q8_0(const void *blocks, const struct attn__array *a, const int64_t *size,
                                   attn_error *err);
attn_status attn__cuda_append(const struct attn__array *a, const attn_desc *desc, int on_device, attn_error *err);
attn_status attn__cuda_rope(const struct attn__array *a, const int64_t *size, const int64_t *table, uint32_t flags,
                            void *stream, int on_device, attn_error *err);
attn_status attn__cuda_rope_table(const struct attn__array *a, const double *frequencies, const int64_t *size,
                                  int64_t first_position, double factor, attn_error *err);
const char *attn__cuda_stage(const struct attn__call *c, int n, const char **why);      /* 0: that runs */
void   *attn__cuda_allocate(const attn_desc *d, size_t bytes, int on_device);
void    attn__cuda_release(void *block, void *stream, int on_device);
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

#if (defined(__x86_64__) || defined(_M_X64)) && !defined(_M_ARM64EC) && !defined(__arm64ec__) && !defined(__TINYC__)
#  define ATTN__X64 1
#else
#  define ATTN__X64 0
#endif

/* Vector kernels need no build flag: functions carry their target (gcc, clang), or the compiler needs none (MSVC). */
#if ATTN__X64 && !defined(ATTN_NO_SIMD)
#  include <immintrin.h>
#endif
#if ATTN__GNU && defined(__aarch64__) && defined(__ARM_NEON) && !defined(__AARCH64EB__) && !defined(__arm64ec__) \
    && !defined(ATTN_NO_SIMD) && !defined(ATTN_NO_NEON)
#  include <arm_neon.h>
#  define ATTN__HAS_NEON 1
#else
#  define ATTN__HAS_NEON 0
#endif
/* A multiply-add rounded once, by an instruction: a call of the C library's would be slower than the code in >>math. */
#if ATTN__GNU && (defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__aarch64__) || defined(__FP_FAST_FMAF) \
    || defined(__riscv_flen) || defined(__s390x__) \
    || (defined(__powerpc__) && !defined(_SOFT_FLOAT) && !defined(__NO_FPRS__)))
#  define ATTN__HAS_FMA 1
#else
#  define ATTN__HAS_FMA 0
#endif
#ifdef __has_builtin
#  if __has_builtin(__builtin_elementwise_fma)      /* for some systems clang makes a call of the other one */
#    define ATTN__FMAF __builtin_elementwise_fma
#  endif
#endif
#ifndef ATTN__FMAF
#  define ATTN__FMAF __builtin_fmaf
#endif
/* The vectors of gcc and clang themselves, where the machine has registers for them, and either a multiply-add that is
   rounded once or conversions between float and double vectors. Not on 32-bit ARM, whose vectors flush subnormals. */
#if ((defined(__clang__) && __clang_major__ >= 13) || (!defined(__clang__) && defined(__GNUC__) && __GNUC__ >= 9)) \
    && (ATTN__X64 || defined(__wasm_simd128__) || defined(__VSX__) || defined(__aarch64__) || defined(__riscv_vector) \
        || (defined(__s390x__) && defined(__VX__) && __ARCH__ >= 12)) \
    && !ATTN__HAS_NEON && !defined(ATTN_NO_SIMD) && !defined(ATTN_NO_PORTABLE)
#  define ATTN__HAS_PORTABLE 1
typedef float attn__f4 __attribute__((vector_size(16)));
typedef double attn__d2 __attribute__((vector_size(16)));
typedef int32_t attn__i4 __attribute__((vector_size(16)));
typedef uint32_t attn__u4 __attribute__((vector_size(16)));
typedef uint64_t attn__u2 __attribute__((vector_size(16)));
#else
#  define ATTN__HAS_PORTABLE 0
#endif
/* WebAssembly's relaxed multiply-add, which rounds once or twice, as the machine does it best: attn__cpu_has asks. */
#if ATTN__HAS_PORTABLE && defined(__wasm_relaxed_simd__) && __clang_major__ >= 17 && !defined(ATTN_NO_RELAXED)
#  define ATTN__HAS_RELAXED 1
#else
#  define ATTN__HAS_RELAXED 0
#endif
/* Products of pairs of bf16, an instruction that the assembler must know. */
#if ATTN__X64 && ATTN__GNU && !defined(_MSC_VER) && !defined(ATTN_NO_SIMD) && !defined(ATTN_NO_AVX512) \
    && ((defined(__clang__) && __clang_major__ >= 13) || (!defined(__clang__) && __GNUC__ >= 11))
#  define ATTN__HAS_BF16_DOT 1
#else
#  define ATTN__HAS_BF16_DOT 0
#endif
/* AMX: a program has to ask Linux for it. */
#if ATTN__HAS_BF16_DOT && defined(__linux__) && !defined(__ILP32__) && (defined(__clang__) || __GNUC__ >= 12)
#  define ATTN__HAS_AMX 1
#else
#  define ATTN__HAS_AMX 0
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
#    include <f16cintrin.h>
#    include <avx512fintrin.h>
#    include <avx512dqintrin.h>
#  endif
#endif

#if ATTN__GNU
#  define ATTN__NOINLINE        __attribute__((noinline))
#  define ATTN__PLAIN           ATTN__NOINLINE
#  ifdef __has_attribute
#    if __has_attribute(noipa)
/* Plain C that vector kernels call. Where gcc can see that it leaves their registers alone, it leaves out vzeroupper
   as well, and the instructions after it take 120 ns. */
#      undef ATTN__PLAIN
#      define ATTN__PLAIN       __attribute__((noipa))
#    endif
#  endif
#  define ATTN__MAY_ALIAS       __attribute__((may_alias))
#  define ATTN__INLINE          static __inline__ __attribute__((always_inline))
#  define ATTN__WITH(features)  __attribute__((target(features)))
#  define ATTN__COPY(to, from, bytes) __builtin_memcpy(to, from, bytes)
#  define ATTN__PREFETCH(p)     __builtin_prefetch(p)
#  define ATTN__PREFETCH_FAR(p) __builtin_prefetch(p, 0, 2)     /* not into the innermost cache */
#else
#  define ATTN__NOINLINE
#  define ATTN__PLAIN
#  define ATTN__MAY_ALIAS
#  define ATTN__INLINE          static __inline
#  define ATTN__WITH(features)
#  ifdef ATTN_NO_LIBC
#    define ATTN__COPY attn__copy
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
ATTN__NOINLINE static void attn__zero(void *p, size_t bytes)
{
#if ATTN__GNU
    __asm__("" : "+r"(bytes));      /* where gcc knows the size it emits "rep stos", which is slow */
    __builtin_memset(p, 0, bytes);
#elif defined(ATTN_NO_LIBC)
    unsigned char *to = (unsigned char *)p;
    while (bytes--) *to++ = 0;
#else
    memset(p, 0, bytes);
#endif
}

/* Between a product and a sum with it: clang under -ffast-math would make one multiply-add of them, whatever the
   pragmas below say. (In vectors it is ATTN__KEEP.) */
#if defined(__clang__)
#  define ATTN__APART(x) __asm__("" : "+m"(x))
#else
#  define ATTN__APART(x) ((void)0)
#endif

/* Accumulators live in small arrays; unless the loops over them are unrolled they stay in memory. */
#if defined(__clang__)
#  define ATTN__UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__) && __GNUC__ >= 8
#  define ATTN__UNROLL _Pragma("GCC unroll 24")
#else
#  define ATTN__UNROLL
#endif

/* The arithmetic below is meant as it stands: no contraction, no reassociation, NaN and signed zeros as IEEE has them,
   whatever flags the including file is compiled with. Restored in >>tail. What clang may assume of floats that pass
   between functions no pragma says; so it must not take them for finite. */
#if defined(__clang__)
#  if ATTN__X64 || defined(__i386__)
#    define ATTN__PRECISE (__clang_major__ >= 13)       /* has the pragma; elsewhere it only warns */
#  elif defined(__aarch64__)
#    define ATTN__PRECISE (__clang_major__ >= 16)
#  else
#    define ATTN__PRECISE 0
#  endif
#  if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#    if ATTN__PRECISE
#      error "attn.h: clang would take NaN and infinity for impossible: add -fno-finite-math-only to this file's flags"
#    else
#      error "attn.h: this compiler cannot be told here to keep arithmetic as written: add -fno-fast-math to its flags"
#    endif
#  endif
#  if ATTN__PRECISE
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
#if ATTN__X64 || (ATTN__GNU && defined(__i386__) && defined(__SSE__) && !defined(__TINYC__))
typedef uint32_t attn__fp_state;
static attn__fp_state attn__fp_read(void)
{
#  if ATTN__GNU
    attn__fp_state state = 0;           /* and "+m": a memory sanitizer does not see what an instruction writes */
    __asm__ __volatile__("stmxcsr %0" : "+m"(state) : : "memory");
    return state;
#  else
    return _mm_getcsr();
#  endif
}

static void attn__fp_write(attn__fp_state state)
{
#  if ATTN__GNU
    __asm__ __volatile__("ldmxcsr %0" : : "m"(state) : "memory");
#  else
    _mm_setcsr(state);
#  endif
}

/* Written only where it changes something: a write waits until nothing else is under way. */
static attn__fp_state attn__fp_enter(void)
{
    const uint32_t plain = 0x1f80u;     /* round to nearest, no flush to zero, all exceptions masked; after it */
    const uint32_t flags = 0x3fu;       /* the exceptions that there were: they change no result */
    const attn__fp_state saved = attn__fp_read();
    if ((saved & ~flags) != plain) attn__fp_write(plain);
    return saved;
}

static void attn__fp_leave(attn__fp_state saved)
{
    if (attn__fp_read() != saved) attn__fp_write(saved);
}
#elif ATTN__GNU && defined(__aarch64__)
#  define ATTN__CONTROL(X) X(uint64_t, "r", "mrs %0, fpcr", "msr fpcr, %0")
#elif ATTN__GNU && defined(__arm__) && defined(__ARM_FP) && !defined(__ARM_FEATURE_MVE) /* its LTPSIZE must stay */
#  define ATTN__CONTROL(X) X(uint32_t, "r", "vmrs %0, fpscr", "vmsr fpscr, %0")
#elif ATTN__GNU && defined(__riscv_flen)
#  define ATTN__CONTROL(X) X(size_t, "r", "frcsr %0", "fscsr %0")
#elif ATTN__GNU && defined(__s390x__)
#  define ATTN__CONTROL(X) X(uint32_t, "d", "efpc %0", "sfpc %0")
#elif ATTN__GNU && defined(__powerpc__) && !defined(_SOFT_FLOAT) && !defined(__NO_FPRS__)
#  define ATTN__CONTROL(X) X(double, "d", "mffs %0", "mtfsf 255, %0")
#else
typedef int attn__fp_state;
static attn__fp_state attn__fp_enter(void) { return 0; }
static void attn__fp_leave(attn__fp_state saved) { (void)saved; }
#endif
#ifdef ATTN__CONTROL    /* type and constraint of the register, how it is read and written; 0: what attn.h wants */
#  define ATTN__X(type, kind, read, write) \
    typedef type attn__fp_state; \
    static attn__fp_state attn__fp_enter(void) \
    { \
        attn__fp_state saved; \
        __asm__ __volatile__(read : "=" kind(saved)); \
        __asm__ __volatile__(write : : kind((attn__fp_state)0) : "memory"); \
        return saved; \
    } \
    static void attn__fp_leave(attn__fp_state saved) { __asm__ __volatile__(write : : kind(saved) : "memory"); }
ATTN__CONTROL(ATTN__X)
#  undef ATTN__X
#  undef ATTN__CONTROL
#endif

/* -------------------------------------------------------------------------------------------------------- >>math
   Scalar forms of what every instruction set computes. NaN and infinity are told apart by their bits. */
ATTN__INLINE uint32_t attn__bits(float x) { uint32_t b; ATTN__COPY(&b, &x, sizeof b); return b; }
ATTN__INLINE float attn__float(uint32_t b) { float x; ATTN__COPY(&x, &b, sizeof x); return x; }
static float attn__absolute(float x) { return attn__float(attn__bits(x) & 0x7fffffffu); }
static int attn__is_nan(float x) { return (attn__bits(x) & 0x7fffffffu) > 0x7f800000u; }
static int attn__is_inf(float x) { return (attn__bits(x) & 0x7fffffffu) == 0x7f800000u; }

#define ATTN__NEG_INF  attn__float(0xff800000u)
#define ATTN__NAN      attn__float(0x7fc00000u)
static const float attn__smallest = 1.17549435e-38f;            /* 2^-126, the smallest normal number */

static float attn__larger(float a, float b) { return a > b ? a : b; }           /* b where either is NaN */
static float attn__negate(float x) { return attn__float(attn__bits(x) ^ 0x80000000u); }
static int attn__is_none(float x) { return attn__bits(x) == 0xff800000u; }        /* -inf: no weight */
static float attn__quiet(float x) { return attn__is_nan(x) ? ATTN__NAN : x; }   /* one NaN everywhere */
/* x + 0, which makes 0 of -0, on the bits: under -fno-signed-zeros clang 15 takes what a function or ?: gives for no
   -0. (It also makes c ? a + b : b into (c ? a : 0) + b. Where that could happen stands `if`.) */
static float attn__plus_zero(float x) { return attn__bits(x) == 0x80000000u ? 0.0f : x; }

ATTN__INLINE int64_t attn__min(int64_t a, int64_t b) { return a < b ? a : b; }
ATTN__INLINE int64_t attn__max(int64_t a, int64_t b) { return a > b ? a : b; }

/* a*b + c, rounded once. Without the instruction: the product is exact in double; the sum is rounded to odd there, so
   that rounding it again to float gives what one rounding would have (Boldo and Melquiond 2008). */
#if ATTN__HAS_FMA
static float attn__fma(float a, float b, float c) { return ATTN__FMAF(a, b, c); }
#elif defined(ATTN_NO_EXACT_FMA)
static float attn__fma(float a, float b, float c) { const float product = a * b; return product + c; }
#else
#  ifndef __wasm__              /* where a call takes longer than this */
ATTN__NOINLINE
#  endif
static float attn__fma(float a, float b, float c)
{
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
}
#endif

typedef uint16_t ATTN__MAY_ALIAS attn__half;                    /* whatever type the caller has for it */
/* The bits of the float that an element of 16 bits stands for, exactly; a NaN keeps its first bits, and is quiet. */
static uint32_t attn__widened(int32_t type, uint32_t x)
{
    const uint32_t sign = (x & 0x8000u) << 16, magnitude = x & 0x7fffu;
    if (type == ATTN_BF16) return x << 16;
    if (magnitude > 0x7c00u) return sign | 0x7fc00000u | (magnitude & 0x3ffu) << 13;
    if (magnitude == 0x7c00u) return sign | 0x7f800000u;
    if (magnitude < 0x400u)                                                     /* subnormal: so many times 2^-24 */
        return sign | attn__bits((float)(int32_t)magnitude * 5.9604644775390625e-8f);
    return sign | ((magnitude << 13) + (112u << 23));
}

/* The element of 16 bits nearest to a float, that with an even last bit where two are; one NaN. */
static uint16_t attn__narrowed(int32_t type, uint32_t x)
{
    const uint32_t sign = x >> 16 & 0x8000u, a = x & 0x7fffffffu, shift = 126u - (a >> 23);
    uint32_t m = (a & 0x7fffffu) | 0x800000u;
    if (a > 0x7f800000u) return type == ATTN_BF16 ? 0x7fc0u : 0x7e00u;
    if (type == ATTN_BF16) return (uint16_t)((x + 0x7fffu + (x >> 16 & 1u)) >> 16);
    if (a >= 0x47800000u) return (uint16_t)(sign | 0x7c00u);                     /* 2^16 and more */
    if (a >= 0x38800000u) return (uint16_t)(sign | ((a - 0x38000000u + 0xfffu + (a >> 13 & 1u)) >> 13));
    if (shift > 24) return (uint16_t)sign;                                      /* less than half of the least, 2^-24 */
    m += (1u << (shift - 1)) - 1u + (m >> shift & 1u);
    return (uint16_t)(sign | m >> shift);
}

/* Square root, correctly rounded: Newton in double is close enough to the exact root, which for a float is never near
   the middle between two floats. */
static float attn__sqrt(float x)
{
#if ATTN__GNU && ATTN__X64 && !defined(ATTN_NO_SIMD)
    __asm__("sqrtss %0, %0" : "+x"(x));
    return attn__quiet(x);
#else
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
#endif
}

/* exp: x = n ln2 + r, |r| <= ln2/2; e^r by a polynomial with e^0 = 1 exactly, times 2^n.
   Adding the magic number 1.5*2^23 + 127 rounds to an integer and leaves n + 127 in the low bits. */
static const float attn__exp_magic = 12583039.0f, attn__log2e = 1.442695022f;
static const float attn__ln2_hi = 0.6931471825f, attn__ln2_lo = -1.904654300e-09f;
static const float attn__exp_lowest = -87.33654022f;            /* below it e^x < 2^-126 */
static const float attn__exp_c[] = {1.381432055e-03f, 8.368850686e-03f, 4.166840017e-02f, 1.666651964e-01f,
                                    4.999999404e-01f, 1.0f, 1.0f};

/* The sum of c[0] .. c[n - 1] times the powers of x, the highest first. */
ATTN__INLINE float attn__polynomial(float x, const float *c, const int n)
{
    float p = c[0];
    int i;
    ATTN__UNROLL for (i = 1; i < n; i++) p = attn__fma(p, x, c[i]);
    return p;
}

static float attn__exp_poly(float x, float *shifted)
{
    const float t = attn__fma(x, attn__log2e, attn__exp_magic), n = t - attn__exp_magic;
    *shifted = t;
    return attn__polynomial(attn__fma(n, -attn__ln2_lo, attn__fma(n, -attn__ln2_hi, x)), attn__exp_c, 7);
}

/* For x <= 88, which is all that a softmax asks for. */
static float attn__exp(float x)
{
    float t;
    const float p = attn__exp_poly(x, &t);
    return x < attn__exp_lowest ? 0.0f : p * attn__float(attn__bits(t) << 23);
}

/* For every x: 2^n in two factors, since 2^128 is no float. */
static float attn__exp_full(float x)
{
    float t, p;
    uint32_t n, half;
    x = 100.0f < x ? 100.0f : x;
    p = attn__exp_poly(x, &t);
    n = attn__bits(t) - attn__bits(attn__exp_magic);            /* n modulo 2^32 */
    half = (uint32_t)((int32_t)n >> 1);
    p = p * attn__float((half + 127u) << 23) * attn__float((n - half + 127u) << 23);
    return x < attn__exp_lowest ? 0.0f : p;
}

/* log: x = 2^e m, m in [sqrt(1/2), sqrt 2), f = m - 1; log m = f - f^2/2 + f^3 Q(f). */
static const float attn__log_c[] = {-7.634497434e-02f, 1.276157796e-01f, -1.316018254e-01f, 1.420175731e-01f,
                                    -1.662335694e-01f, 2.000122666e-01f, -2.500081956e-01f, 3.333333135e-01f, -0.5f};
static const uint32_t attn__sqrt_half = 0x3f3504f3u;

static float attn__log(float x)
{
    const int tiny = x < attn__smallest;
    const float y = tiny ? x * 8388608.0f : x;      /* 2^23: subnormals */
    const uint32_t b = attn__bits(y) - attn__sqrt_half;
    const float e = (float)(((int32_t)b >> 23) - (tiny ? 23 : 0));
    const float f = attn__float((b & 0x007fffffu) + attn__sqrt_half) - 1.0f, f2 = f * f;
    float q = attn__fma(e, attn__ln2_lo, attn__polynomial(f, attn__log_c, 9) * f2);
    q = attn__fma(e, attn__ln2_hi, q + f);
    q = attn__is_inf(x) ? x : q;
    return x > 0.0f ? q : x == 0.0f ? ATTN__NEG_INF : ATTN__NAN;
}

/* tanh: a polynomial near 0, else 1 - 2/(e^2|x| + 1). */
static const float attn__tanh_c[] = {-5.704987328e-03f, 2.063908800e-02f, -5.373971537e-02f, 1.333144158e-01f,
                                     -3.333328068e-01f};

static float attn__tanh(float x)
{
    const uint32_t sign = attn__bits(x) & 0x80000000u;
    const float a = attn__float(attn__bits(x) ^ sign), b = 10.0f < a ? 10.0f : a, x2 = b * b;
    const float p = attn__polynomial(x2, attn__tanh_c, 5);
    const float y = b < 0.625f ? attn__fma(b * x2, p, b) : 1.0f - 2.0f / (attn__exp(b + b) + 1.0f);
    return attn__float(attn__bits(y) | sign);
}

/* ---------------------------------------------------------------------------------------------- >>kernels-scalar
   The kernel table. Nearly all of attention is one product, with A read where it lies and B a tile of lanes:
       C[r][lane] = sum over k, ascending, of A[r,k] * B[k][lane],   each step one fused multiply-add
   Lanes run across queries (or keys, or columns), never along a sum: so the bits do not depend on the vector width.
   A tile is a row-major array of `ld` lanes a row; ld = width*vecs is the same for all arrays of one tile.
   The scalar functions are the specification; the other tables compute the same bits. */
enum {
    ATTN__SKINNY = 8,           /* up to so many rows a tile is laid the other way, see attn__most_skinny */
    ATTN__SKINNY_SHARED = 4,    /* of those so many share what is read and transposed */
    ATTN__MAX_WIDTH = 16,       /* floats in the widest vector of any table */
    ATTN__MAX_LANES = 64,       /* the widest tile of any table */
    ATTN__MAX_VECS = 8,         /* vectors in a tile of any table */
    ATTN__CHUNK = ATTN_PART_KEYS,       /* keys per chunk: part of the numeric contract, as are the next five */
    ATTN__CHAIN = 128,          /* keys of a chunk whose weighted values are summed in one chain */
    ATTN__SQUARES = 32,         /* numbers of a vector whose squared differences are summed in one chain */
    ATTN__RUN = 64,             /* terms of a score, or of a matrix product, that are summed in one chain */
    ATTN__PARTS = 16,           /* a chunk's sum of weights: 16 partial sums by key index mod 16, then a tree */
    ATTN__TERMS = 8             /* an additive score: 8 partial sums of four units each, likewise */
};

enum { ATTN__PRODUCT = 0, ATTN__SQUARED_DISTANCE, ATTN__PRODUCT_OF_ALLOWED, ATTN__WEIGHTED_DIFFERENCE,
       ATTN__PAIRS, ATTN__PAIRS_OF_ALLOWED };           /* these two within the pair kernels alone */
enum { ATTN__FROM_ZERO = 0, ATTN__TOP, ATTN__GO_ON, ATTN__ADD_AFTER, ATTN__ADD_FAR };

static const float attn__zeros[8 * ATTN__MAX_WIDTH] = {0};      /* where nothing lies; what a sum starts from */

typedef struct attn__product {
    const float *a;             /* A[r,k] = a[r*a_row + k*a_k] */
    int64_t      a_row, a_k;
    const float *b;             /* B[k][lane] = b[k*b_row + lane] */
    float       *c;             /* C[r][lane] = c[r*c_row + lane] */
    int64_t      b_row, c_row;
    int64_t      rows, depth;
    int64_t      chain;         /* so many terms at most are summed from 0, then added to those before: less is lost
                                   to rounding */
    int32_t      vecs;          /* lanes of this product: width*vecs, at most those of a tile; 8 vectors for one row */
    int32_t      kind;          /* SQUARED_DISTANCE sums (B - A)^2. PRODUCT_OF_ALLOWED leaves steps out where B's sign
                                   bit is set: that is how a weight says "excluded", so that 0 * NaN does not happen.
                                   WEIGHTED_DIFFERENCE sums A (B - X[r][lane]) */
    int32_t      onto;          /* GO_ON: the first chain starts from what C holds; ADD_AFTER: it is added to that;
                                   ADD_FAR: which has to be fetched first. TOP: from zero, and */
    float       *top;           /* TOP: top[lane] becomes the largest of itself and the lane's results, NaN left out */
    int32_t      padded;        /* by AMX: rows of A up to a multiple of ATTN__AMX_SIDE may be read */
    const float *x;             /* X[r][lane] = x[r*x_row + lane] */
    int64_t      x_row;
    const float *fetch;         /* not NULL: a matrix whose rows are prefetched as the rows of A (of B: single rows of
                                   8 vectors) are used; of skinny, whole rows: the next ones of B are */
    int64_t      fetch_row;
    /* of dots and skinny alone, which take B of any type: */
    const char *const *groups;  /* where each b_group rows of B begin, b_row apart; after them where what is read
                                   after B begins */
    int64_t      b_group;       /* ATTN__GROUP; of dots also 4 or 8, or, of rows of a matrix, ATTN__SIDE; of skinny 1,
                                   or, for one row, more: then all rows lie together from groups[0] on, and nothing is
                                   prefetched */
    int64_t      b_first;       /* the column of these rows that is B's first */
    int64_t      ahead1, ahead2;        /* so many groups ahead rows are brought into the first cache, the second */
    const char *const *next;    /* NULL, or in place of ahead2, for each of B's rows, which lie anywhere, another
                                   that is brought into the second cache */
    int32_t      b_type;        /* attn_type; codes are multiplied by their scales: of row k b_scale[k], or, where */
    const float *b_scale;       /* b_scales is not 1, b_scale[k*b_scales + n] for its n-th ATTN__CODES_PER_SCALE */
    int64_t      b_scales;      /* columns; dots reads up to 3 floats after them */
    const float *a_scale;       /* by AMX: NULL, or what the sums of A's row r are multiplied by, before x */
    float       *columns;       /* of dots, and by AMX: room for ATTN__RUN columns of ATTN__SIDE rows */
} attn__product;

enum { ATTN__GROUP = 16, ATTN__SIDE = 2*ATTN__GROUP };  /* the former a multiple of each table's width */
enum { ATTN__AHEAD_IN_ROW = 512,        /* bytes of a row that are prefetched before they are used; more is wide */
       ATTN__SAME_SETS = 4096 };        /* rows that are a multiple of so many bytes apart, or as long, share few places
                                           of a first cache */
#define ATTN__CODES_PER_SCALE ((int64_t)32)
#define ATTN__SCALES_AT_ONCE  ((int64_t)32)      /* made side by side by attn_quantize */

/* An element as a float's bits; of codes without the scale. */
ATTN__NOINLINE static uint32_t attn__element(const void *from, int32_t type, int64_t at)
{
    if (type == ATTN_F32) return attn__bits(((const float *)from)[at]);
    if (type == ATTN_I8) return attn__bits((float)((const int8_t *)from)[at]);
    return attn__widened(type, ((const attn__half *)from)[at]);
}

/* to[r][lane] = o*old[lane] + sum*fresh[lane], or sum alone where o is NULL; sum is before + acc, or acc alone where
   before is NULL. The kernel tells whether all sums are finite. to may be before, o or acc. */
typedef struct attn__merging {
    int64_t rows, ld;
    float *to;
    const float *before, *o, *acc, *old, *fresh;
} attn__merging;

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
typedef struct attn__dropout {
    float          *s;          /* [.][ld], rows j0 .. j1, for the first `lanes` */
    int64_t         ld, lanes, j0, j1;
    uint64_t        seed, below;
    const uint32_t *i, *h;      /* per lane, with the origin added, as all of these */
    uint32_t        b, key;     /* key: of row 0 */
} attn__dropout;

/* Rows of n elements of another type side by side become rows of floats. */
typedef struct attn__stored {
    const void  *from;
    float       *to;
    int64_t      from_row, to_row;      /* elements between rows */
    int64_t      rows, n;
    int32_t      type;          /* ATTN_F16, ATTN_BF16 or ATTN_I8 */
    int32_t      grouped;       /* 0 or 1. Of I8: what codes of row r are multiplied by: scale[r*scale_row]; grouped: */
    const float *scale;         /* the x-th ATTN__CODES_PER_SCALE of them by scale[r*scale_row + x]. Then n is a */
    int64_t      scale_row;     /* multiple of the table's width, or all have the first one */
} attn__stored;

/* Rotary positions: groups of rows of `pairs` pairs, and after them `rest` numbers that are copied. A NaN becomes the
   one. Row r of group g is rotated by row at[g*at_group + r*at_row] of the tables. */
typedef struct attn__rotate {
    const float   *x;
    float         *out;         /* may be x */
    const float   *cosines, *sines;
    const int64_t *at;
    int64_t        at_group, x_group, out_group, at_row, x_row, out_row, cosines_row, sines_row;
    int64_t        groups, rows, pairs, rest;
    int64_t        fetch;       /* so many rows ahead are prefetched; 0: they are cached already */
    int            interleaved, inverse;
} attn__rotate;

#ifndef ATTN_NO_BACKWARD
/* From scores and the gradients of weights to weights P and the gradients dS of scores, [rows][ld] -> rows of `row`:
       P = keep*w (0 where keep is 0), dS = w*(dp*keep + more - shift), w = e^(s - base)*inverse, 0 below 2^-126;
   an excluded entry (s = -inf) gets -0 and 0, whatever else it holds. keep and more may be NULL (1 and 0). */
typedef struct attn__softmax_grad {
    const float *s, *dp, *keep, *more, *base, *inverse, *shift;
    float       *p, *ds;         /* ds: NULL where it is not wanted */
    int64_t      rows, lanes, ld, row;
} attn__softmax_grad;

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
    /* Few rows against B's rows: c[r*c_row + j] = sum over k, in chains of ATTN__RUN, of a[k*a_k + r] * B[j][k],
       j < columns. Lanes are keys, transposed on the way. Up to ATTN__SKINNY rows; a_k is `width`, and so many floats
       can be read there, but 1 for one row. One row whose B, no codes, lies in pieces of 4 or 8 rows has another number
       for each lane: a[k*a_k + j % a_k], a_k is `width`. Up to a multiple of ATTN__SIDE there are rows, scales and room
       in c. b, a_row, chain, vecs, kind and onto do not count */ \
    X(void, dots, (const attn__product *p, int64_t columns)) \
    /* A product of up to ATTN__SKINNY rows that goes on, all in one chain, with a B of any type and of any width */ \
    X(void, skinny, (const attn__product *p)) \
    /* s = scale * (w_sum - 2 sum_u w_u / (1 + query_u key_u)), four terms over a common denominator */ \
    X(void, additive, (const attn__additive *p)) \
    /* s = scale * sum_u w_u tanh(query_u + key_u), for pairs whose exponentials would overflow */ \
    X(void, additive_direct, (const attn__additive *p)) \
    /* one chunk's softmax for one vector of lanes: s[j][..] (j0 <= j < j1) becomes e^(s - top); its top, unless that is
       known, and its sum. mark: an excluded entry (-inf) becomes -0 instead of 0, and no other has that sign: a NaN
       becomes the one NaN */ \
    X(void, softmax_lanes, (float *s, int64_t ld, int64_t j0, int64_t j1, int known, int mark, float *top, \
                            float *sum)) \
    /* per lane: running (max, sum) and a chunk's (cmax, csum) -> their union; old and fresh are the two factors */ \
    X(void, join, (int64_t lanes, float *top, float *sum, const float *cmax, const float *csum, float *old, \
                   float *fresh)) \
    X(int, merge, (const attn__merging *m)) \
    X(int, finite, (const float *x, int64_t n)) \
    /* y = 1/x, but 0 where x is 0. n: a multiple of width */ \
    X(void, invert, (const float *x, float *y, int64_t n)) \
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
    /* row j of s, j0 <= j < j1, the first one at s: -= slope[lane] * |position[lane] - j| */ \
    X(void, alibi, (float *s, int64_t ld, int64_t j0, int64_t j1, const float *slope, const float *position)) \
    /* s[j][lane] = -inf unless first[lane] <= j < last[lane], for j0 <= j < j1. \
       top: NULL, or top[lane] becomes the largest of itself and the lane's results, NaN left out */ \
    X(void, clip, (float *s, int64_t ld, int64_t lanes, int64_t j0, int64_t j1, const int32_t *first, \
                   const int32_t *last, float *top)) \
    /* s[j][lane] += rows[lane][j*stride], but -inf there gives -inf whatever s is; keep: an s of -inf stays too. \
       top as above */ \
    X(void, bias, (float *s, int64_t ld, int64_t n, const float *const *rows, int64_t stride, int keep, float *top)) \
    /* s[j][lane] = -inf where rows[lane][j*stride] is 0 */ \
    X(void, exclude, (float *s, int64_t ld, int64_t n, const uint8_t *const *rows, int64_t stride)) \
    /* the same along a row: y[j] = x[j], or -inf; y may be x */ \
    X(void, exclude_in_row, (const float *x, float *y, int64_t n, const uint8_t *row, int64_t stride)) \
    /* y[j] = e^(scale*x[j] - top) * factor, 0 where that is below 2^-126 or scale*x[j] is -inf (even when factor is
       NaN); y may be x */ \
    X(void, normalise, (const float *x, float *y, int64_t n, float scale, float top, float factor)) \
    /* what softmax_lanes computes, for chunks, ATTN__PARTS at most, of one row of scores scale*x[j] side by side; the
       weights go to y, which may be x, or nowhere. n: of each chunk's scores those that count, the others are as good
       as -inf; a multiple of ATTN__PARTS */ \
    X(void, softmax_row, (const float *x, float *y, int64_t chunks, int64_t n, float scale, float *top, float *sum)) \
    /* to[c] = from[c]*factor, or to[c] + that in one rounding; a NaN becomes the one NaN */ \
    X(void, scale_store, (const float *from, float *to, int64_t n, float factor, int add)) \
    X(void, dropout, (const attn__dropout *d)) \
    X(void, widen, (const attn__stored *w)) \
    /* to[j] = the element of 16 bits nearest to from[j] */ \
    X(void, round, (const float *from, int32_t type, attn__half *to, int64_t n)) \
    /* of[j / each] = the bits of the largest |x[j]|, if that is more: infinity's or above where one is not finite */ \
    X(void, largest, (const float *x, int64_t n, int64_t each, uint32_t *of)) \
    /* codes[j] = x[j] / scale[j / each], to nearest even, within -127 .. 127; 0 where the scale is 0 or NaN */ \
    X(void, quantize, (const float *x, int64_t n, int64_t each, const float *scale, int8_t *codes)) \
    /* a*cos - b*sin and b*cos + a*sin, every product, difference and sum rounded */ \
    X(void, rotate, (const attn__rotate *p)) \
    ATTN__GRADIENT_KERNELS(X)
#ifdef ATTN_NO_BACKWARD
#  define ATTN__GRADIENT_KERNELS(X)
#else
#  define ATTN__GRADIENT_KERNELS(X) \
    X(void, softmax_backward, (const attn__softmax_grad *g)) \
    /* sum[lane] = sum over c, ascending, of x[c][lane] y[c][lane] */ \
    X(void, inner, (const float *x, const float *y, int64_t ld, int64_t n, float *sum)) \
    /* rows[r][c] = from[r*row + c], c < n: of a result so large that it would only pass through the caches */ \
    X(void, scale_store_far, (const float *from, int64_t row, float *const *rows, int64_t count, int64_t n)) \
    X(void, additive_gradient, (const attn__additive_gradient *g)) \
    /* y[j*row + u] += the tree of part[j][u][0..15], for n keys and four u */ \
    X(void, fold, (const float *part, int64_t n, float *y, int64_t row))
#endif

/* Kernels over pairs of bf16, for ATTN_PRECISION_FAST. The place of a float holds two: of a query's or a key's row,
   neighbours; of values and weights, one column of an even key (the low half) and of the odd one after it. Subnormals
   are taken and left as 0. Two sets of them: a pair is multiplied by a pair and summed in two multiply-adds, the odd
   half's first, pair after pair; or, by AMX, 16 pairs of a sum at a time, from the first on: the even halves in a chain
   of multiply-adds, the odd ones likewise, both added, then added to the sum. */
enum { ATTN__AMX_SIDE = 16,             /* rows, lanes and pairs of such a product */
       ATTN__AMX_ROW = (int)ATTN__CHUNK/2 + (int)ATTN__AMX_SIDE };      /* pairs of a chunk; not a power of two */
/* A chunk's scores of a vector of lanes, times `scale`, become weights relative to their largest, rounded, in pairs */
typedef struct attn__pair_softmax {
    float  *s;                  /* in place: rows 2j and 2j + 1 become row j; outside of from..to they count as -0 */
    int64_t ld, from, to, n;
    float   scale;              /* above 0 */
    int     known;              /* `top` holds the largest scores already, not scaled */
    int     mark;               /* excluded ones become -0 */
    const float *by_key;        /* NULL, or what row j's weights are multiplied by before they are rounded */
    float  *top, *sum;          /* per lane: the largest, scaled; the sum of the weights before all that */
} attn__pair_softmax;

typedef struct attn__pair_kernels {
    /* As the other one, with depth, rows and chains in pairs. PRODUCT, or PRODUCT_OF_ALLOWED, where the sign of each
       half counts. x: NULL, or what each lane's sums are multiplied by in the end */
    void (*product)(const attn__product *p);
    /* in place: rows 2j and 2j + 1 of s, rounded, become row j; outside of from..to they count as -0 and are not read.
       For one vector of lanes; n: rows */
    void (*weights)(float *s, int64_t ld, int64_t from, int64_t to, int64_t n);
    /* one vector of rows of n numbers, an even number from 2*width on: pair x of the l-th goes to to[x*ld + l] */
    void (*queries)(float *to, int64_t ld, const attn__half *const *rows, int64_t n);
    /* back: the rows of the first `lanes` of a vector, n numbers from from[x*ld + l] times scale[l], rounded */
    void (*results)(attn__half *const *rows, int64_t lanes, const float *from, int64_t ld, int64_t n,
                    const float *scale);
    /* `keys` rows of n values, from a vector on: column x of a pair of keys goes to to[x*column], the next pair's to
       the place behind it */
    void (*values)(float *to, const attn__half *const *rows, int64_t n);
    /* C[r][j] of so many columns j of B, whose numbers lie side by side, from p->b + j*b_row halves on; depth: numbers.
       A's rows, 8 at most, end with zeros: whole vectors. Sums of pairs by lanes, then a tree */
    void (*dots)(const attn__product *p, int64_t columns);
    int32_t keys, column;
    void (*softmax)(const attn__pair_softmax *p);       /* or NULL, as are these: */
    void (*codes)(attn__half *to, const int8_t *from, int64_t n);       /* from 2*width on, without their scale */
    /* in place: n rows of s, of so many lanes, rounded; 32-fold either. pairs: NULL, or where rows 2j and 2j + 1 become
       row j, ld floats apart, too */
    void (*halves)(float *s, int64_t row, int64_t n, int64_t lanes, float *pairs, int64_t ld);
    int (*finite)(const float *pairs, int64_t n);       /* n: a multiple of the width */
    void (*begin)(void), (*end)(void);  /* of a task */
} attn__pair_kernels;

typedef struct attn__kernels {
    const struct attn__kernels *weaker;         /* the next of this build, or NULL */
    int32_t isa, width, vecs;   /* attn_isa; floats in a vector; vectors in the widest tile */
    int32_t types;              /* do `dots` and `skinny` take a B that is not f32? */
    const attn__pair_kernels *pairs, *amx;      /* NULL: none in this build; the CPU may lack them, too */
#define ATTN__X(result, name, parameters) result (*name) parameters;
    ATTN__KERNEL_LIST(ATTN__X)
#undef ATTN__X
} attn__kernels;

/* Where a row lies that is only fetched: it may be after the last one, so no pointer arithmetic. */
static const float *attn__ahead(const float *p, int64_t rows, int64_t row)
{
    return (const float *)((uintptr_t)p + (uintptr_t)rows * (uintptr_t)row * sizeof *p);
}

/* How many terms the next chain of a product has, of those that are left. */
static int64_t attn__chain_of(const attn__product *p, int64_t left) { return attn__min(left, p->chain); }
/* Of dots: is it one row, times rows of a matrix, or long ones, of numbers of so many bytes? */
ATTN__INLINE int attn__is_row_by_chains(const attn__product *p, int64_t size)
{
    return p->rows == 1 && (p->b_group > ATTN__GROUP ||
                            (p->b_group == ATTN__GROUP && p->depth * size >= ATTN__SAME_SETS));
}

static int attn__finite_scalar(const float *x, int64_t n)
{
    int64_t i;
    for (i = 0; i < n; i++)
        if ((attn__bits(x[i]) & 0x7f800000u) == 0x7f800000u) return 0;
    return 1;
}

/* Never -0, so that a chunk without mass changes nothing */
static float attn__merged(const float *o, float old, float sum, float fresh)
{
    return attn__plus_zero(o ? attn__fma(sum, fresh, *o * old) : sum);
}

static void attn__chain_scalar(const attn__product *p)
{
    int64_t r, k;
    int32_t i;
    for (r = 0; r < p->rows; r++) {
        const float *a = p->a + r * p->a_row, *b = p->b;
        float *c = p->c + r * p->c_row, acc[8];
        ATTN_ASSERT(p->vecs <= 8);
        for (i = 0; i < p->vecs; i++) acc[i] = p->onto == ATTN__GO_ON ? c[i] : 0.0f;
        for (k = 0; k < p->depth; k++, a += p->a_k, b += p->b_row)
            for (i = 0; i < p->vecs; i++) {
                const float d = b[i] - *a;
                if (p->kind == ATTN__SQUARED_DISTANCE) acc[i] = attn__fma(d, d, acc[i]);
                else if (p->kind == ATTN__WEIGHTED_DIFFERENCE) acc[i] = attn__fma(*a, b[i] - p->x[r * p->x_row + i],
                                                                                  acc[i]);
                else if (p->kind == ATTN__PRODUCT || !(attn__bits(b[i]) >> 31)) acc[i] = attn__fma(*a, b[i], acc[i]);
            }
        for (i = 0; i < p->vecs; i++) {
            if (p->onto >= ATTN__ADD_AFTER) acc[i] = c[i] + acc[i];
            c[i] = acc[i];
        }
    }
}

static void attn__product_scalar(const attn__product *p)
{
    attn__product part = *p;
    int64_t left = p->depth, r;
    int32_t i;
    do {
        part.depth = attn__chain_of(p, left);
        attn__chain_scalar(&part);
        part.a += part.depth * p->a_k;
        part.b += part.depth * p->b_row;
        part.onto = ATTN__ADD_AFTER;
        left -= part.depth;
    } while (left > 0);
    for (r = 0; p->onto == ATTN__TOP && r < p->rows; r++)
        for (i = 0; i < p->vecs; i++) p->top[i] = attn__larger(p->c[r * p->c_row + i], p->top[i]);
}

/* An element of B, of any type and from anywhere. */
static float attn__of_b(const attn__product *p, int64_t row, int64_t column)
{
    const int64_t at = p->b_first + column, group = p->b_scales > 1 ? at / ATTN__CODES_PER_SCALE : 0;
    const float x = attn__float(attn__element(p->groups[row / p->b_group], p->b_type,
                                              row % p->b_group * p->b_row + at));
    return p->b_type == ATTN_I8 ? x * p->b_scale[row * p->b_scales + group] : x;
}

static void attn__dots_scalar(const attn__product *p, int64_t columns)
{
    const int pieces = p->b_group < ATTN__GROUP;
    int64_t r, j, k;
    for (r = 0; r < p->rows; r++)
        for (j = 0; j < columns; j++) {
            float sum = 0.0f, part = 0.0f;
            for (k = 0; k < p->depth;) {
                const int64_t end = attn__min(p->depth, k + ATTN__RUN);
                for (part = 0.0f; k < end; k++)
                    part = attn__fma(p->a[k * p->a_k + (pieces ? j % p->a_k : r)], attn__of_b(p, j, k), part);
                if (k > ATTN__RUN) part = sum + part;
                sum = part;
            }
            p->c[r * p->c_row + j] = sum;
        }
}

static void attn__skinny_scalar(const attn__product *p)
{
    int64_t r, k, i;
    for (k = 0; k < p->depth; k++)
        for (r = 0; r < p->rows; r++)
            for (i = 0; i < p->vecs; i++) {
                float *c = p->c + r * p->c_row + i;
                *c = attn__fma(p->a[r * p->a_row + k], attn__of_b(p, k, i), *c);
            }
}

/* The sum of n numbers, a power of two, in its fixed order. */
static float attn__tree(float *part, int n)
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
                    d[g] = d[g] < cap ? d[g] : cap;
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

static void attn__softmax_lanes_scalar(float *s, int64_t ld, int64_t j0, int64_t j1, int known, int mark, float *top,
                                       float *sum)
{
    float m = known ? *top : ATTN__NEG_INF, part[ATTN__PARTS], base;
    int64_t j;
    int r;
    for (j = j0; !known && j < j1; j++) m = attn__larger(s[j * ld], m);     /* NaN is passed over, a weight later */
    m = attn__plus_zero(m);                         /* of 0 and -0 neither is larger: whichever came first, it is 0 */
    base = attn__is_none(m) ? 0.0f : m;
    for (r = 0; r < ATTN__PARTS; r++) part[r] = 0.0f;
    for (j = j0; j < j1; j++) {
        float e = attn__exp(s[j * ld] - base);
        if (mark) e = attn__is_none(s[j * ld]) ? -0.0f : attn__quiet(e);
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
        const float m = attn__larger(cmax[i], top[i]), base = attn__is_none(m) ? 0.0f : m;
        old[i] = attn__exp(top[i] - base);
        fresh[i] = attn__exp(cmax[i] - base);
        sum[i] = attn__fma(csum[i], fresh[i], sum[i] * old[i]);
        top[i] = m;
    }
}

static int attn__merge_scalar(const attn__merging *m)
{
    int64_t i;
    int finite = 1;
    for (i = 0; i < m->rows * m->ld; i++) {
        const float sum = m->before ? m->before[i] + m->acc[i] : m->acc[i];
        finite &= attn__finite_scalar(&sum, 1);
        m->to[i] = attn__merged(m->o ? m->o + i : NULL, m->old[i % m->ld], sum, m->fresh[i % m->ld]);
    }
    return finite;
}

static void attn__invert_scalar(const float *x, float *y, int64_t n)
{
    int64_t i;
    for (i = 0; i < n; i++) y[i] = x[i] == 0.0f ? 0.0f : 1.0f / x[i];
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
            *x = u2 <= 1.0f ? attn__log(weight) : attn__is_nan(u2) ? u2 : ATTN__NEG_INF;
        }
}

static void attn__alibi_scalar(float *s, int64_t ld, int64_t j0, int64_t j1, const float *slope, const float *position)
{
    int64_t j, i;
    for (j = j0; j < j1; j++, s += ld)
        for (i = 0; i < ld; i++) {
            const float d = position[i] - (float)j;
            s[i] = attn__fma(attn__negate(slope[i]), attn__absolute(d), s[i]);
        }
}

static void attn__clip_scalar(float *s, int64_t ld, int64_t lanes, int64_t j0, int64_t j1, const int32_t *first,
                              const int32_t *last, float *top)
{
    int64_t j, i;
    for (j = j0; j < j1; j++)
        for (i = 0; i < lanes; i++) {
            if (j < first[i] || j >= last[i]) s[j * ld + i] = ATTN__NEG_INF;
            if (top) top[i] = attn__larger(s[j * ld + i], top[i]);
        }
}

static void attn__bias_scalar(float *s, int64_t ld, int64_t n, const float *const *rows, int64_t stride, int keep,
                              float *top)
{
    int64_t i, j;
    for (i = 0; i < ld; i++)
        for (j = 0; j < n; j++) {
            float *x = s + j * ld + i, b = rows[i][j * stride];
            *x = attn__is_none(b) || (keep && attn__is_none(*x)) ? ATTN__NEG_INF : *x + b;
            if (top) top[i] = attn__larger(*x, top[i]);
        }
}

static void attn__exclude_scalar(float *s, int64_t ld, int64_t n, const uint8_t *const *rows, int64_t stride)
{
    int64_t j, i;
    for (i = 0; i < ld; i++)
        for (j = 0; j < n; j++)
            if (!rows[i][j * stride]) s[j * ld + i] = ATTN__NEG_INF;
}

static void attn__exclude_in_row_scalar(const float *x, float *y, int64_t n, const uint8_t *row, int64_t stride)
{
    int64_t j;
    for (j = 0; j < n; j++) y[j] = row[j * stride] != 0 ? x[j] : ATTN__NEG_INF;
}

static void attn__normalise_scalar(const float *x, float *y, int64_t n, float scale, float top,
                                   float factor)
{
    int64_t i;
    for (i = 0; i < n; i++) {
        const float s = x[i] * scale, w = attn__exp(s - top) * factor;
        y[i] = w < attn__smallest || attn__is_none(s) ? 0.0f : attn__quiet(w);
    }
}

static void attn__softmax_row_scalar(const float *x, float *y, int64_t chunks, int64_t n, float scale, float *top,
                                     float *sum)
{
    float s[ATTN__CHUNK];
    int64_t c, i;
    for (c = 0; c < chunks; c++, x += ATTN__CHUNK) {
        for (i = 0; i < n; i++) s[i] = x[i] * scale;
        attn__softmax_lanes_scalar(s, 1, 0, n, 0, 0, top + c, sum + c);
        for (i = 0; y && i < n; i++) y[c * ATTN__CHUNK + i] = s[i];
    }
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

static void attn__dropout_scalar(const attn__dropout *d)
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

/* x*factor, or y + x*factor, rounded once: no compiler can make something else of it */
static float attn__scaled(float x, float factor, float y, int add)
{
    return add ? attn__fma(x, factor, y) : x * factor;
}

static void attn__scale_store_scalar(const float *from, float *to, int64_t n, float factor, int add)
{
    int64_t c;
    for (c = 0; c < n; c++) to[c] = attn__quiet(attn__scaled(from[c], factor, to[c], add));
}

#ifndef ATTN_NO_BACKWARD
static void attn__inner_scalar(const float *x, const float *y, int64_t ld, int64_t n, float *sum)
{
    int64_t c, l;
    for (l = 0; l < ld; l++)
        for (sum[l] = 0.0f, c = 0; c < n; c++) sum[l] = attn__fma(x[c * ld + l], y[c * ld + l], sum[l]);
}

static void attn__scale_store_far_scalar(const float *from, int64_t row, float *const *rows, int64_t count, int64_t n)
{
    int64_t r;
    for (r = 0; r < count; r++) ATTN__COPY(rows[r], from + r * row, (size_t)n * sizeof *from);
}

static void attn__softmax_backward_scalar(const attn__softmax_grad *g)
{
    int64_t j, l;
    for (j = 0; j < g->rows; j++)
        for (l = 0; l < g->lanes; l++) {
            const float s = g->s[j * g->ld + l], e = attn__exp(s - g->base[l]) * g->inverse[l];
            const float w = e < attn__smallest ? 0.0f : e;
            const float keep = g->keep ? g->keep[j * g->ld + l] : 1.0f;
            const float more = g->more ? g->more[j * g->ld + l] : 0.0f;
            const float ds = w * (attn__fma(g->dp[j * g->ld + l], keep, more) - g->shift[l]);
            g->p[j * g->row + l] = attn__is_none(s) ? -0.0f : keep == 0.0f ? 0.0f : w * keep;
            if (g->ds) g->ds[j * g->row + l] = attn__is_none(s) ? 0.0f : ds;
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

static void attn__widen_scalar(const attn__stored *w)
{
    int64_t r, j;
    for (r = 0; r < w->rows; r++)
        for (j = 0; j < w->n; j++) {
            float *to = w->to + r * w->to_row + j;
            const int64_t at = r * w->from_row + j;
            *to = attn__float(attn__element(w->from, w->type, at));
            if (w->type == ATTN_I8)
                *to = *to * w->scale[r * w->scale_row + j / ATTN__CODES_PER_SCALE * w->grouped];
        }
}

ATTN__PLAIN static void attn__round_scalar(const float *from, int32_t type, attn__half *to, int64_t n)
{
    int64_t j;
    for (j = 0; j < n; j++) to[j] = attn__narrowed(type, attn__bits(from[j]));
}

ATTN__PLAIN static void attn__largest_scalar(const float *x, int64_t n, int64_t each, uint32_t *of)
{
    int64_t j, end;
    for (j = 0; j < n; of++) {
        uint32_t most = *of;
        for (end = attn__min(j + each, n); j < end; j++) {
            const uint32_t size = attn__bits(x[j]) & 0x7fffffffu;
            most = size > most ? size : most;
        }
        *of = most;
    }
}

/* 1.5 * 2^23: what is added to it, up to 2^22, is rounded to whole numbers, of which the low bits are the sum's. */
static const float attn__code_magic = 12582912.0f;
ATTN__PLAIN static void attn__quantize_scalar(const float *x, int64_t n, int64_t each, const float *scale,
                                              int8_t *codes)
{
    int64_t j, end;
    for (j = 0; j < n; scale++) {
        const float by = *scale;
        for (end = attn__min(j + each, n); j < end; j++) {
            const float exact = by > 0.0f ? x[j] / by : 0.0f;
            const float within = exact > 127.0f ? 127.0f : exact < -127.0f ? -127.0f : exact;
            codes[j] = (int8_t)attn__bits(within + attn__code_magic);
        }
    }
}

/* A row from some pair, and from some number of the rest on. */
static void attn__rotate_row(const attn__rotate *p, int64_t g, int64_t r, int64_t pair, int64_t rest)
{
    const int64_t at = p->at[g * p->at_group + r * p->at_row];
    const float *x = p->x + g * p->x_group + r * p->x_row;
    const float *c = p->cosines + at * p->cosines_row;
    const float *s = p->sines + at * p->sines_row;
    float *out = p->out + g * p->out_group + r * p->out_row;
    int64_t n;
    for (n = pair; n < p->pairs; n++) {
        const int64_t i = p->interleaved ? 2*n : n, j = p->interleaved ? 2*n + 1 : n + p->pairs;
        const float a = x[i], b = x[j], sine = p->inverse ? attn__negate(s[n]) : s[n];
        float a_cos = a * c[n], b_sin = b * sine, b_cos = b * c[n], a_sin = a * sine;
        ATTN__APART(a_cos);
        ATTN__APART(b_sin);
        ATTN__APART(b_cos);
        ATTN__APART(a_sin);
        out[i] = attn__quiet(a_cos - b_sin);
        out[j] = attn__quiet(b_cos + a_sin);
    }
    for (n = 2*p->pairs + rest; n < 2*p->pairs + p->rest; n++) out[n] = attn__quiet(x[n]);
}

/* What whole vectors leave; is_nan: there may be NaNs in what they rotated. */
ATTN__PLAIN static void attn__finish_rotation(const attn__rotate *p, int64_t pairs, int64_t rest, int is_nan)
{
    const int64_t groups = is_nan || pairs < p->pairs || rest < p->rest ? p->groups : 0;
    int64_t g, r, n;
    for (g = 0; g < groups; g++)
        for (r = 0; r < p->rows; r++) {
            float *out = p->out + g * p->out_group + r * p->out_row;
            attn__rotate_row(p, g, r, pairs, rest);
            for (n = 0; is_nan && n < 2*p->pairs; n++) out[n] = attn__quiet(out[n]);
        }
}

static void attn__rotate_scalar(const attn__rotate *p) { attn__finish_rotation(p, 0, 0, 0); }

#define ATTN__X(result, name, parameters) , attn__##name##_scalar
static const attn__kernels attn__table_scalar = {NULL, ATTN_ISA_SCALAR, 1, 8, 1, NULL, NULL
                                                 ATTN__KERNEL_LIST(ATTN__X)};
#undef ATTN__X

#define ATTN__IN_THE_MIDDLE     /* of the first reading; what lies between is for the others */
#endif

/* ---------------------------------------------------------------------------------------------- >>kernels-vector
   The vector kernels, written once over a vocabulary. >>dispatch has this file read again per instruction set, with
   ATTN__LANES floats to a vector: of that reading only this section counts. First the vocabulary:
       VEC, MASK                  LANES floats (or 32 bits each); a truth value for each lane
       V(name)                    the name of a function in this reading
       VECS, SUMS                 vectors in the widest tile; running sums that a product keeps in registers: 24, 12, or
                                  6 where a multiply-add is long enough that so many hide its latency
       TYPES                      1: few rows take keys and values that are not f32 as they are
       DOTS                       vectors of keys that few rows are multiplied with side by side; a power of two
       STREAM(to, from)           8 floats past the caches, to a multiple of 32 bytes; only where there is such a store
       LOAD, STORE                at any address;  ALL(x), ALL_BITS(n): the same in every lane
       STORE_BYTES                the lowest byte of each lane;  STORE_HALVES: the lower 16 bits
       ADD, SUB, MUL, DIV, SQRT   FMA(a, b, c) is a*b + c, rounded once
       FACTOR, ONE, FMA_ONE       one number as the first factor of FMA; its type, and how it is made: in every lane, or
                                  as it is, where a multiply-add takes it so. SPREAD: then in every lane
       MIN, MAX                   b where a or b is NaN
       LESS, SAME, ABOVE (of signed integers), NEGATIVE (the sign bit), NOTHING (no bit at all)   -> MASK
       EITHER, ANY                of masks: lane by lane; is one set?
       PICK(x, y, m)              y where m is set, else x;  CLEAR(x, m): 0 where it is
       MUL_UNLESS(a, b, x, y)     a*b, or 0 where x is less than y; only where masks have registers of their own
       AND, XOR, ADD_BITS, LEFT, RIGHT (the sign stays), TO_FLOATS (of integers), LOAD_BITS (32 each), LOAD_BYTES
       MULTIPLY_EVEN, ODD, EVENS  64-bit products of even lanes; the odd lanes moved there; even lanes of both, by turns
       UNZIP(a, b, odd)           the even or the odd lanes of a and b, in any order that ZIP(a, b, upper) undoes: the
                                  lower or upper half of its results' lanes by turns. UNZIPPED(x): x in that order
       LOAD_QUARTER(p)            16 bytes, the first of a vector; PUT_QUARTER(x, q, p): the q-th ones of x
       KEEP(x), KEEP_POINTER      in a register: gcc folds a load into each multiply-add that uses it, a fifth slower,
                                  and makes one pointer an index of another
       HELPER, KERNEL             how a function begins;  V(transpose_4x4): 4 vectors, in each 16 bytes rows to columns
   ADD to DIV are operators where the compiler has them for vectors: those obey the arithmetic pragmas of >>platform,
   intrinsics from a header that was parsed under -ffast-math do not. */
#ifdef ATTN__LANES
#define ATTN__READ 300          /* the version of this text */
#if ATTN__LANES == 8
#  define ATTN__V(name)         attn__##name##_avx2
#  define ATTN__ISA             ATTN_ISA_AVX2
#  define ATTN__HELPER          ATTN__INLINE ATTN__WITH("avx2,fma,f16c")
#  define ATTN__KERNEL          static ATTN__WITH("avx2,fma,f16c")
#  define ATTN__MM(name)        _mm256_##name
#  define ATTN__MM_SI(name)     _mm256_##name##_si256
#  define ATTN__M(kind)         __m256##kind
#  define ATTN__FLOATS          _mm256_castsi256_ps
#  define ATTN__MASK            ATTN__VEC           /* the sign bit of each lane */
#  define ATTN__VECS            3
#  define ATTN__SUMS            12
#  define ATTN__DOTS            2
#  define ATTN__COMPARE         _mm256_cmp_ps
#  define ATTN__ABOVE(a, b)     ATTN__ON_BITS(_mm256_cmpgt_epi32, a, b)
#  define ATTN__NEGATIVE(x)     (x)
#  define ATTN__EITHER(m, n)    _mm256_or_ps(m, n)
#  define ATTN__ANY(m)          (_mm256_movemask_ps(m) != 0)
#  define ATTN__PICK(x, y, m)   _mm256_blendv_ps(x, y, m)
#  define ATTN__CLEAR(x, m)     _mm256_andnot_ps(m, x)
#  define ATTN__QUARTERS(a, b, odd) _mm256_permute2f128_ps(a, b, odd ? 0x31 : 0x20)
#  define ATTN__EVENS(a, b)     _mm256_blend_ps(a, ATTN__FLOATS(_mm256_slli_epi64(ATTN__INTS(b), 32)), 0xaa)
#  define ATTN__LOAD_QUARTER(p) ATTN__FLOATS(_mm256_castsi128_si256(ATTN__SIXTEEN_BYTES(p)))
#  define ATTN__PUT_QUARTER(x, q, p) ATTN__FLOATS(_mm256_inserti128_si256(ATTN__INTS(x), ATTN__SIXTEEN_BYTES(p), 1))
#  define ATTN__BYTES_OF(p)     _mm_loadl_epi64((const __m128i *)(const void *)(p))
#  define ATTN__HALVES_OF       ATTN__SIXTEEN_BYTES
#  define ATTN__NOTHING(x)      ATTN__FLOATS(_mm256_cmpeq_epi32(ATTN__INTS(x), _mm256_setzero_si256()))
#  define ATTN__UNZIP(a, b, odd) ((odd) ? _mm256_shuffle_ps(a, b, 0xdd) : _mm256_shuffle_ps(a, b, 0x88))
#  define ATTN__UNZIPPED(x)     ATTN__FLOATS(_mm256_permute4x64_epi64(ATTN__INTS(x), 0xd8))
#  define ATTN__ZIP(a, b, upper) ((upper) ? _mm256_unpackhi_ps(a, b) : _mm256_unpacklo_ps(a, b))
#  define ATTN__STORE_HALVES(p, x) \
    _mm_storeu_si128((__m128i *)(void *)(p), _mm_packus_epi32(_mm256_castsi256_si128(ATTN__INTS(x)), \
                                                              _mm256_extracti128_si256(ATTN__INTS(x), 1)))
#  define ATTN__FOUR_BYTES(half) _mm_shuffle_epi8(half, _mm_set1_epi32(0x0c080400))
#  define ATTN__STORE_BYTES(p, x) _mm_storel_epi64((__m128i *)(void *)(p), _mm_unpacklo_epi32( \
    ATTN__FOUR_BYTES(_mm256_castsi256_si128(ATTN__INTS(x))), \
    ATTN__FOUR_BYTES(_mm256_extracti128_si256(ATTN__INTS(x), 1))))
#  define ATTN__STORE_F16(p, x) _mm_storeu_si128((__m128i *)(void *)(p), _mm256_cvtps_ph( \
    ATTN__PICK(x, ATTN__ALL_BITS(0x7fc00000u), ATTN__V(is_nan)(x)), 0))
#elif ATTN__LANES == 16
#  define ATTN__V(name)         attn__##name##_avx512
#  define ATTN__ISA             ATTN_ISA_AVX512
#  define ATTN__HELPER          ATTN__INLINE ATTN__WITH("avx512f,avx512dq,fma")
#  define ATTN__KERNEL          static ATTN__WITH("avx512f,avx512dq,fma")
#  define ATTN__MM(name)        _mm512_##name
#  define ATTN__MM_SI(name)     _mm512_##name##_si512
#  define ATTN__M(kind)         __m512##kind
#  define ATTN__FLOATS          _mm512_castsi512_ps
#  define ATTN__MASK            __mmask16
#  define ATTN__VECS            4
#  define ATTN__SUMS            24
#  define ATTN__DOTS            2
#  define ATTN__COMPARE         _mm512_cmp_ps_mask
#  define ATTN__ABOVE(a, b)     _mm512_cmpgt_epi32_mask(ATTN__INTS(a), ATTN__INTS(b))
#  define ATTN__NEGATIVE(x)     _mm512_movepi32_mask(ATTN__INTS(x))
#  define ATTN__EITHER(m, n)    ((__mmask16)((m) | (n)))
#  define ATTN__ANY(m)          ((m) != 0)
#  define ATTN__PICK(x, y, m)   ATTN__FLOATS(_mm512_mask_blend_epi32(m, ATTN__INTS(x), ATTN__INTS(y)))
#  define ATTN__CLEAR(x, m)     ATTN__PICK(x, ATTN__FLOATS(_mm512_setzero_si512()), m)
#  define ATTN__LOAD_QUARTER(p) ATTN__FLOATS(_mm512_castsi128_si512(ATTN__SIXTEEN_BYTES(p)))
#  define ATTN__PUT_QUARTER(x, q, p) \
    ATTN__FLOATS(_mm512_mask_broadcast_i32x4(ATTN__INTS(x), (__mmask16)(15 << 4*(q)), ATTN__SIXTEEN_BYTES(p)))
#  define ATTN__BYTES_OF        ATTN__SIXTEEN_BYTES
#  define ATTN__HALVES_OF(p)    _mm256_loadu_si256((const __m256i *)(const void *)(p))
#  define ATTN__NOTHING(x)      _mm512_testn_epi32_mask(ATTN__INTS(x), ATTN__INTS(x))
#  define ATTN__UNZIP(a, b, odd) _mm512_permutex2var_ps(a, _mm512_add_epi32(_mm512_setr_epi32( \
    0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30), _mm512_set1_epi32(odd)), b)
#  define ATTN__UNZIPPED(x)     (x)
#  define ATTN__ZIP(a, b, upper) _mm512_permutex2var_ps(a, _mm512_add_epi32(_mm512_setr_epi32( \
    0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23), _mm512_set1_epi32(8*(upper))), b)
#  define ATTN__STORE_HALVES(p, x) \
    _mm256_storeu_si256((__m256i *)(void *)(p), _mm512_cvtepi32_epi16(ATTN__INTS(x)))
#  define ATTN__STORE_BYTES(p, x) _mm_storeu_si128((__m128i *)(void *)(p), _mm512_cvtepi32_epi8(ATTN__INTS(x)))
#  define ATTN__STORE_F16(p, x) _mm256_storeu_si256((__m256i *)(void *)(p), _mm512_maskz_cvtps_ph( \
    0xffff, ATTN__PICK(x, ATTN__ALL_BITS(0x7fc00000u), ATTN__V(is_nan)(x)), 0))     /* gcc warns of the plain one */
#  define ATTN__QUARTERS(a, b, odd) _mm512_maskz_shuffle_f32x4(0xffff, a, b, odd ? 0xdd : 0x88)
#  define ATTN__EVENS(a, b)     ATTN__PICK(a, ATTN__FLOATS(_mm512_slli_epi64(ATTN__INTS(b), 32)), 0xaaaa)
#  define ATTN__MUL_UNLESS(a, b, x, y) _mm512_maskz_mul_ps(ATTN__COMPARE(x, y, _CMP_NLT_UQ), a, b)
#elif ATTN__HAS_NEON
#  define ATTN__V(name)         attn__##name##_neon
#  define ATTN__ISA             ATTN_ISA_NEON
#  define ATTN__HELPER          ATTN__INLINE
#  if defined(__clang__)
#    define ATTN__KERNEL        static
#  else                         /* gcc would load all that a step needs ahead of it and run out of registers */
#    define ATTN__KERNEL        static __attribute__((optimize("no-schedule-insns")))
#  endif
#  define ATTN__MASK            uint32x4_t          /* all bits of each lane */
#  define ATTN__VECS            4
#  define ATTN__SUMS            24
#  define ATTN__DOTS            4
#  define ATTN__LOAD_BITS(p)    ATTN__FLOATS(vreinterpretq_u32_u8(vld1q_u8((const uint8_t *)(p))))
#  define ATTN__LOAD_BYTES      ATTN__V(load_bytes)
#  define ATTN__LOAD_CODES      ATTN__V(load_codes)
#  define ATTN__FOUR_HALVES(p)  vreinterpret_u16_u8(vld1_u8((const uint8_t *)(const void *)(p)))
#  define ATTN__LOAD_HALVES(p)  ATTN__FLOATS(vmovl_u16(ATTN__FOUR_HALVES(p)))
#  define ATTN__PUT_HALVES(p, x) vst1_u8((uint8_t *)(void *)(p), vreinterpret_u8_u16(x))
#  define ATTN__STORE_HALVES(p, x) ATTN__PUT_HALVES(p, vmovn_u32(ATTN__INTS(x)))
#  define ATTN__LOAD_F16(p)     vcvt_f32_f16(vreinterpret_f16_u16(ATTN__FOUR_HALVES(p)))
#  define ATTN__STORE_F16(p, x) ATTN__PUT_HALVES(p, vreinterpret_u16_f16(vcvt_f16_f32( \
    ATTN__PICK(x, ATTN__ALL_BITS(0x7fc00000u), ATTN__V(is_nan)(x)))))
#  define ATTN__ALL_BITS(n)     ATTN__FLOATS(vdupq_n_u32((uint32_t)(n)))
#  define ATTN__SIGNED(x)       vreinterpretq_s32_u32(ATTN__INTS(x))
#  define ATTN__U64(x)          vreinterpretq_u64_u32(ATTN__INTS(x))
#  define ATTN__OF_U64(x)       ATTN__FLOATS(vreinterpretq_u32_u64(x))
#  define ATTN__AND(a, b)       ATTN__FLOATS(vandq_u32(ATTN__INTS(a), ATTN__INTS(b)))
#  define ATTN__XOR(a, b)       ATTN__FLOATS(veorq_u32(ATTN__INTS(a), ATTN__INTS(b)))
#  define ATTN__ADD_BITS(a, b)  ATTN__FLOATS(vaddq_u32(ATTN__INTS(a), ATTN__INTS(b)))
#  define ATTN__LEFT(x, n)      ATTN__FLOATS(vshlq_n_u32(ATTN__INTS(x), n))
#  define ATTN__RIGHT(x, n)     ATTN__FLOATS(vreinterpretq_u32_s32(vshrq_n_s32(ATTN__SIGNED(x), n)))
#  define ATTN__MULTIPLY_EVEN(a, b) \
    ATTN__OF_U64(vmull_u32(vmovn_u64(ATTN__U64(a)), vmovn_u64(ATTN__U64(b))))
#  define ATTN__ODD(x)          ATTN__OF_U64(vshrq_n_u64(ATTN__U64(x), 32))
#  define ATTN__EVENS(a, b)     ATTN__FLOATS(vtrn1q_u32(ATTN__INTS(a), ATTN__INTS(b)))
#  define ATTN__ABOVE(a, b)     vcgtq_s32(ATTN__SIGNED(a), ATTN__SIGNED(b))
#  define ATTN__NEGATIVE(x)     vcltzq_s32(ATTN__SIGNED(x))
#  define ATTN__NOTHING(x)      vceqzq_u32(ATTN__INTS(x))
#  define ATTN__UNZIP(a, b, odd) ((odd) ? vuzp2q_f32(a, b) : vuzp1q_f32(a, b))
#  define ATTN__UNZIPPED(x)     (x)
#  define ATTN__ZIP(a, b, upper) ((upper) ? vzip2q_f32(a, b) : vzip1q_f32(a, b))
#  define ATTN__EITHER          vorrq_u32
#  define ATTN__ANY(m)          (vmaxvq_u32(m) != 0)
#  define ATTN__CLEAR(x, m)     ATTN__FLOATS(vbicq_u32(ATTN__INTS(x), m))
#  define ATTN__KEEP(v)         __asm__("" : "+w"(v))
#  define ATTN__VEC             float32x4_t
#  define ATTN__FLOATS          vreinterpretq_f32_u32
#  define ATTN__INTS            vreinterpretq_u32_f32
#  define ATTN__LOAD            vld1q_f32
#  define ATTN__STORE           vst1q_f32
#  define ATTN__ALL             vdupq_n_f32
#  define ATTN__PICK(x, y, m)   vbslq_f32(m, y, x)
#  define ATTN__FACTOR          float
#  define ATTN__ONE             ATTN__V(one)
#  define ATTN__SPREAD          vdupq_n_f32
#  define ATTN__FMA_ONE(a, b, c) vfmaq_n_f32(c, b, a)
#  define ATTN__LESS            vcltq_f32
#  define ATTN__SAME            vceqq_f32
#  define ATTN__FMA(a, b, c)    vfmaq_f32(c, a, b)
#  define ATTN__SQRT            vsqrtq_f32
#  define ATTN__TO_FLOATS(x)    vcvtq_f32_s32(ATTN__SIGNED(x))
ATTN__HELPER float ATTN__ONE(float x) { ATTN__KEEP(x); return x; }
ATTN__HELPER ATTN__VEC ATTN__V(load_bytes)(const uint8_t *p)
{
    uint32_t four;
    ATTN__COPY(&four, p, sizeof four);
    return ATTN__FLOATS(vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four))))));
}

ATTN__HELPER ATTN__VEC ATTN__V(load_codes)(const int8_t *p)
{
    uint32_t four;
    ATTN__COPY(&four, p, sizeof four);
    return ATTN__FLOATS(vreinterpretq_u32_s32(
        vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four)))))));
}
#  define ATTN__ODDS(a, b)      ATTN__FLOATS(vtrn2q_u32(ATTN__INTS(a), ATTN__INTS(b)))
ATTN__HELPER void ATTN__V(transpose_4x4)(ATTN__VEC *r)
{
    const uint64x2_t a = ATTN__U64(ATTN__EVENS(r[0], r[1])), b = ATTN__U64(ATTN__ODDS(r[0], r[1]));
    const uint64x2_t c = ATTN__U64(ATTN__EVENS(r[2], r[3])), d = ATTN__U64(ATTN__ODDS(r[2], r[3]));
    r[0] = ATTN__OF_U64(vtrn1q_u64(a, c));
    r[1] = ATTN__OF_U64(vtrn1q_u64(b, d));
    r[2] = ATTN__OF_U64(vtrn2q_u64(a, c));
    r[3] = ATTN__OF_U64(vtrn2q_u64(b, d));
}
#else
/* Any machine with vectors of 16 bytes: what gcc and clang make of their vector extensions. Comparisons, choices and
   moves go by the index of a lane, never by its address, so either order of bytes is right. */
#  if ATTN__HAS_FMA && ATTN__HAS_RELAXED
#    define ATTN__V(name)       attn__##name##_relaxed
#    define ATTN__ISA           ATTN_ISA_RELAXED
#  else
#    define ATTN__V(name)       attn__##name##_portable
#    define ATTN__ISA           ATTN_ISA_PORTABLE
#  endif
#  define ATTN__HELPER          ATTN__INLINE
#  define ATTN__KERNEL          static
#  define ATTN__TYPES           0                   /* conversions have no instruction: not in the innermost loops */
#  define ATTN__VEC             attn__f4
#  define ATTN__MASK            attn__i4            /* all bits of each lane */
#  if !ATTN__HAS_FMA && !defined(ATTN_NO_EXACT_FMA)      /* 22 instructions to a multiply-add: code stays small */
#    define ATTN__VECS          3
#    define ATTN__SUMS          6
#    define ATTN__DOTS          1
#  elif ATTN__X64 || ATTN__HAS_RELAXED          /* 16 registers: mostly such machines run WebAssembly */
#    define ATTN__VECS          3
#    define ATTN__SUMS          12
#    define ATTN__DOTS          2
#  else
#    define ATTN__VECS          4
#    define ATTN__SUMS          24
#    define ATTN__DOTS          4
#  endif
#  define ATTN__LOAD(p)         ATTN__V(load)(p)
#  define ATTN__LOAD_BITS       ATTN__V(load)
#  define ATTN__LOAD_BYTES      ATTN__V(load_bytes)
#  define ATTN__LOAD_CODES      ATTN__V(load_codes)
#  define ATTN__LOAD_HALVES     ATTN__V(load_halves)
#  define ATTN__STORE_HALVES    ATTN__V(store_halves)
#  define ATTN__STORE           ATTN__V(store)
#  define ATTN__ALL             ATTN__V(all)
#  define ATTN__ALL_BITS(n)     ((attn__f4)ATTN__V(all_bits)((uint32_t)(n)))
#  define ATTN__ON_BITS(type, a, operator, b) ((attn__f4)((type)(a) operator (type)(b)))
#  define ATTN__AND(a, b)       ATTN__ON_BITS(attn__u4, a, &, b)
#  define ATTN__XOR(a, b)       ATTN__ON_BITS(attn__u4, a, ^, b)
#  define ATTN__ADD_BITS(a, b)  ATTN__ON_BITS(attn__u4, a, +, b)
#  define ATTN__LEFT(x, n)      ((attn__f4)((attn__u4)(x) << (n)))
#  define ATTN__RIGHT(x, n)     ((attn__f4)((attn__i4)(x) >> (n)))
#  define ATTN__LOWER(x)        ((attn__u2)(x) & 0xffffffffu)   /* "even": the lower half of 64 bits, in either order */
#  define ATTN__MULTIPLY_EVEN(a, b) ((attn__f4)(ATTN__LOWER(a) * ATTN__LOWER(b)))
#  define ATTN__ODD(x)          ((attn__f4)((attn__u2)(x) >> 32))
#  define ATTN__EVENS(a, b)     ((attn__f4)(ATTN__LOWER(a) | (attn__u2)(b) << 32))
#  define ATTN__TO_FLOATS(x)    __builtin_convertvector((attn__i4)(x), attn__f4)
#  define ATTN__LESS(a, b)      ((attn__i4)((a) < (b)))
#  define ATTN__SAME(a, b)      ((attn__i4)((a) == (b)))
#  define ATTN__ABOVE(a, b)     ((attn__i4)((attn__i4)(a) > (attn__i4)(b)))
#  define ATTN__NEGATIVE(x)     ((attn__i4)(x) >> 31)
#  define ATTN__NOTHING(x)      ((attn__i4)((attn__i4)(x) == 0))
#  define ATTN__UNZIP(a, b, odd) ((odd) ? ATTN__SHUFFLE(a, b, 1, 3, 5, 7) : ATTN__SHUFFLE(a, b, 0, 2, 4, 6))
#  define ATTN__UNZIPPED(x)     (x)
#  define ATTN__ZIP(a, b, upper) ((upper) ? ATTN__SHUFFLE(a, b, 2, 6, 3, 7) : ATTN__SHUFFLE(a, b, 0, 4, 1, 5))
#  define ATTN__EITHER(m, n)    ((m) | (n))
#  define ATTN__ANY             ATTN__V(any)
#  define ATTN__PICK            ATTN__V(pick)
#  define ATTN__CLEAR(x, m)     ((attn__f4)((attn__i4)(x) & ~(m)))
#  define ATTN__SQRT            ATTN__V(sqrt)
#  define ATTN__FMA             ATTN__V(fma)
#  if ATTN__X64
#    define ATTN__KEEP(v)       __asm__("" : "+x"(v))
#  else
#    define ATTN__KEEP(v)       ((void)0)
#  endif
ATTN__HELPER attn__f4 ATTN__V(load)(const void *p) { attn__f4 x; ATTN__COPY(&x, p, sizeof x); return x; }
ATTN__HELPER void ATTN__V(store)(float *p, attn__f4 x) { ATTN__COPY(p, &x, sizeof x); }
ATTN__HELPER attn__f4 ATTN__V(all)(float x) { const attn__f4 v = {x, x, x, x}; return v; }
ATTN__HELPER attn__u4 ATTN__V(all_bits)(uint32_t n) { const attn__u4 v = {n, n, n, n}; return v; }
ATTN__HELPER attn__f4 ATTN__V(load_bytes)(const uint8_t *p)
{ const attn__u4 v = {p[0], p[1], p[2], p[3]}; return (attn__f4)v; }
ATTN__HELPER attn__f4 ATTN__V(load_codes)(const int8_t *p)
{ const attn__i4 v = {p[0], p[1], p[2], p[3]}; return (attn__f4)v; }
ATTN__HELPER attn__f4 ATTN__V(load_halves)(const attn__half *p)
{ const attn__u4 v = {p[0], p[1], p[2], p[3]}; return (attn__f4)v; }
ATTN__HELPER void ATTN__V(store_halves)(attn__half *p, attn__f4 x)
{
    int i;
    for (i = 0; i < 4; i++) p[i] = (uint16_t)((attn__u4)x)[i];
}

ATTN__HELPER attn__f4 ATTN__V(pick)(attn__f4 x, attn__f4 y, attn__i4 m)
{ return (attn__f4)(((attn__i4)x & ~m) | ((attn__i4)y & m)); }
ATTN__HELPER int ATTN__V(any)(attn__i4 m)
{
#  if ATTN__X64
    return _mm_movemask_ps((__m128)m) != 0;
#  elif defined(__wasm_simd128__)
    return __builtin_wasm_any_true_v128((signed char __attribute__((vector_size(16))))m);
#  else
    const attn__u2 halves = (attn__u2)m;
    return (halves[0] | halves[1]) != 0;
#  endif
}

ATTN__HELPER attn__f4 ATTN__V(sqrt)(attn__f4 x)
{ const attn__f4 v = {attn__sqrt(x[0]), attn__sqrt(x[1]), attn__sqrt(x[2]), attn__sqrt(x[3])}; return v; }
#  ifdef __clang__
#    define ATTN__SHUFFLE(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#  else
#    define ATTN__SHUFFLE(a, b, i, j, k, l) ATTN__V(shuffle)(a, b, i, j, k, l)
ATTN__HELPER attn__f4 ATTN__V(shuffle)(attn__f4 a, attn__f4 b, const int i, const int j, const int k, const int l)
{
    const attn__i4 from = {i, j, k, l};
    return __builtin_shuffle(a, b, from);
}
#  endif
ATTN__HELPER void ATTN__V(transpose_4x4)(attn__f4 *r)
{
    const attn__f4 a = ATTN__SHUFFLE(r[0], r[1], 0, 4, 1, 5), b = ATTN__SHUFFLE(r[2], r[3], 0, 4, 1, 5);
    const attn__f4 c = ATTN__SHUFFLE(r[0], r[1], 2, 6, 3, 7), d = ATTN__SHUFFLE(r[2], r[3], 2, 6, 3, 7);
    r[0] = ATTN__SHUFFLE(a, b, 0, 1, 4, 5);
    r[1] = ATTN__SHUFFLE(a, b, 2, 3, 6, 7);
    r[2] = ATTN__SHUFFLE(c, d, 0, 1, 4, 5);
    r[3] = ATTN__SHUFFLE(c, d, 2, 3, 6, 7);
}

/* ---- FMA, by an instruction or without */
#  if defined(__aarch64__) && defined(__ARM_NEON)       /* by name: of four lanes' calls gcc makes few vectors */
#    define ATTN__FACTOR        float
#    define ATTN__ONE(x)        (x)
#    define ATTN__SPREAD        ATTN__ALL
#    define ATTN__FMA_ONE       ATTN__V(fma_one)
ATTN__HELPER attn__f4 ATTN__V(fma)(attn__f4 a, attn__f4 b, attn__f4 c)
{ __asm__("fmla %0.4s, %1.4s, %2.4s" : "+w"(c) : "w"(a), "w"(b)); return c; }
ATTN__HELPER attn__f4 ATTN__V(fma_one)(float a, attn__f4 b, attn__f4 c)
{ __asm__("fmla %0.4s, %1.4s, %2.s[0]" : "+w"(c) : "w"(b), "w"(a)); return c; }
#  elif ATTN__HAS_FMA || defined(ATTN_NO_EXACT_FMA)
ATTN__HELPER attn__f4 ATTN__V(fma)(attn__f4 a, attn__f4 b, attn__f4 c)
{
#    if !ATTN__HAS_FMA
    const attn__f4 product = a * b;
    return product + c;
#    elif ATTN__HAS_RELAXED
    return __builtin_wasm_relaxed_madd_f32x4(a, b, c);
#    elif ATTN__X64 && defined(__FMA__)
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(c) : "x"(a), "x"(b));
    return c;
#    elif defined(__VSX__)      /* the older vector unit's multiply-add, which gcc would take too, flushes subnormals */
    __asm__("xvmaddasp %x0, %x1, %x2" : "+wa"(c) : "wa"(a), "wa"(b));
    return c;
#    else
    const attn__f4 v = {attn__fma(a[0], b[0], c[0]), attn__fma(a[1], b[1], c[1]), attn__fma(a[2], b[2], c[2]),
                        attn__fma(a[3], b[3], c[3])};
    return v;
#    endif
}
#  else
/* As attn__fma: the product is exact in double. Rounding the sum to double and then to float is wrong only where the
   first rounding moved it onto the middle between two floats. So sums that lie there are computed again, rounded to
   odd; and so is what is no normal float, where the middles have other bits. (2^-126 may have been rounded up to.) */
#    define ATTN__FACTOR        attn__d2
#    define ATTN__ONE           ATTN__V(one)
#    define ATTN__SPREAD(x)     ATTN__V(narrow)(x, x)
#    define ATTN__FMA_ONE       ATTN__V(fma_one)
ATTN__HELPER attn__d2 ATTN__V(one)(float x) { const attn__d2 v = {(double)x, (double)x}; return v; }
#    ifdef __clang__
typedef float attn__f2 __attribute__((vector_size(8)));
ATTN__HELPER attn__d2 ATTN__V(low)(attn__f4 x)
{ return __builtin_convertvector(__builtin_shufflevector(x, x, 0, 1), attn__d2); }
ATTN__HELPER attn__d2 ATTN__V(high)(attn__f4 x)
{ return __builtin_convertvector(__builtin_shufflevector(x, x, 2, 3), attn__d2); }
ATTN__HELPER attn__f4 ATTN__V(narrow)(attn__d2 low, attn__d2 high)
{
    return __builtin_shufflevector(__builtin_convertvector(low, attn__f2), __builtin_convertvector(high, attn__f2),
                                   0, 1, 2, 3);
}
#    else
ATTN__HELPER attn__d2 ATTN__V(low)(attn__f4 x) { return _mm_cvtps_pd(x); }
ATTN__HELPER attn__d2 ATTN__V(high)(attn__f4 x) { return _mm_cvtps_pd(_mm_movehl_ps(x, x)); }
ATTN__HELPER attn__f4 ATTN__V(narrow)(attn__d2 low, attn__d2 high)
{
    return _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high));
}
#    endif
/* The sum of two doubles, rounded to odd. */
ATTN__HELPER attn__d2 ATTN__V(to_odd)(attn__d2 p, attn__d2 c)
{
    const attn__d2 s = p + c, t = s - p, rest = (p - (s - t)) + (c - t), zero = {0.0, 0.0};
    const attn__u2 bits = (attn__u2)s, apart = ((attn__u2)rest ^ bits) >> 63;   /* 1: towards zero */
    const attn__u2 inexact = (attn__u2)(rest < zero) | (attn__u2)(rest > zero);         /* neither with a NaN */
    return (attn__d2)(bits + (inexact & ((bits & 1u) - 1u) & (1u - 2u * apart)));
}

ATTN__NOINLINE static attn__f4 ATTN__V(fma_exact)(attn__d2 al, attn__d2 ah, attn__d2 bl, attn__d2 bh, attn__f4 c)
{ return ATTN__V(narrow)(ATTN__V(to_odd)(al * bl, ATTN__V(low)(c)), ATTN__V(to_odd)(ah * bh, ATTN__V(high)(c))); }
ATTN__HELPER attn__f4 ATTN__V(fma_wide)(attn__d2 al, attn__d2 ah, attn__d2 bl, attn__d2 bh, attn__f4 c)
{
    const attn__d2 low = al * bl + ATTN__V(low)(c), high = ah * bh + ATTN__V(high)(c);
    const attn__f4 r = ATTN__V(narrow)(low, high), ends = ATTN__SHUFFLE((attn__f4)low, (attn__f4)high, 0, 2, 4, 6);
    const attn__i4 halfway = (attn__i4)(((attn__u4)ends & 0x1fffffffu) == 0x10000000u);
    const attn__i4 tiny = (attn__i4)((attn__i4)(((attn__u4)r | 0x80000000u) - 1u) < (int32_t)0x80800000u);
    if (__builtin_expect(ATTN__ANY(halfway | tiny), 0)) return ATTN__V(fma_exact)(al, ah, bl, bh, c);
    return r;
}

ATTN__NOINLINE static attn__f4 ATTN__V(fma)(attn__f4 a, attn__f4 b, attn__f4 c)
{ return ATTN__V(fma_wide)(ATTN__V(low)(a), ATTN__V(high)(a), ATTN__V(low)(b), ATTN__V(high)(b), c); }
ATTN__HELPER attn__f4 ATTN__V(fma_one)(attn__d2 a, attn__f4 b, attn__f4 c)
{ return ATTN__V(fma_wide)(a, a, ATTN__V(low)(b), ATTN__V(high)(b), c); }
#  endif
#endif
#define ATTN__EACH(i, n)        ATTN__UNROLL for (i = 0; i < (n); i++)
#if ATTN__LANES == 4
#  define ATTN__LOAD_QUARTER    ATTN__LOAD_BITS
#  define ATTN__PUT_QUARTER(x, q, p) (x)
#  define ATTN__MIN             ATTN__V(min)        /* fmin and fmax would give NaN where only a is NaN */
#  define ATTN__MAX             ATTN__V(max)
ATTN__HELPER ATTN__VEC ATTN__MIN(ATTN__VEC a, ATTN__VEC b) { return ATTN__PICK(b, a, ATTN__LESS(a, b)); }
ATTN__HELPER ATTN__VEC ATTN__MAX(ATTN__VEC a, ATTN__VEC b) { return ATTN__PICK(b, a, ATTN__LESS(b, a)); }
#  define ATTN__STORE_BYTES     ATTN__V(store_bytes)
ATTN__HELPER void ATTN__STORE_BYTES(int8_t *p, ATTN__VEC x)
{
    float lanes[4];
    int i;
    ATTN__STORE(lanes, x);
    ATTN__EACH(i, 4) p[i] = (int8_t)attn__bits(lanes[i]);
}
#endif
#if ATTN__GNU
#  define ATTN__KEEP_POINTER(p) __asm__("" : "+r"(p))
#  define ATTN__ADD(a, b)       ((a) + (b))
#  define ATTN__SUB(a, b)       ((a) - (b))
#  define ATTN__MUL(a, b)       ((a) * (b))
#  define ATTN__DIV(a, b)       ((a) / (b))
#else
#  define ATTN__KEEP_POINTER(p) ((void)0)
#endif
/* ---- what both widths of x86 share */
#ifdef ATTN__MM
#define ATTN__VEC               ATTN__M()
#define ATTN__INTS              ATTN__MM_SI(castps)
#define ATTN__LOAD              ATTN__MM(loadu_ps)
#define ATTN__STORE             ATTN__MM(storeu_ps)
#define ATTN__STREAM(to, from)  _mm256_stream_ps(to, _mm256_loadu_ps(from))     /* 8 floats, past the caches */
#define ATTN__ALL               ATTN__MM(set1_ps)
#define ATTN__TO_FLOATS(x)      ATTN__MM(cvtepi32_ps)(ATTN__INTS(x))
#define ATTN__SIXTEEN_BYTES(p)  _mm_loadu_si128((const __m128i *)(const void *)(p))
#define ATTN__LOAD_BITS(p)      ATTN__LOAD((const float *)(const void *)(p))
#define ATTN__LOAD_BYTES(p)     ATTN__FLOATS(ATTN__MM(cvtepu8_epi32)(ATTN__BYTES_OF(p)))
#define ATTN__LOAD_CODES(p)     ATTN__FLOATS(ATTN__MM(cvtepi8_epi32)(ATTN__BYTES_OF(p)))
#define ATTN__LOAD_HALVES(p)    ATTN__FLOATS(ATTN__MM(cvtepu16_epi32)(ATTN__HALVES_OF(p)))
#define ATTN__LOAD_F16(p)       ATTN__MM(cvtph_ps)(ATTN__HALVES_OF(p))
#define ATTN__ALL_BITS(n)       ATTN__FLOATS(ATTN__MM(set1_epi32)((int32_t)(n)))
#define ATTN__ON_BITS(f, a, b)  ATTN__FLOATS(f(ATTN__INTS(a), ATTN__INTS(b)))
#define ATTN__AND(a, b)         ATTN__ON_BITS(ATTN__MM_SI(and), a, b)
#define ATTN__XOR(a, b)         ATTN__ON_BITS(ATTN__MM_SI(xor), a, b)
#define ATTN__ADD_BITS(a, b)    ATTN__ON_BITS(ATTN__MM(add_epi32), a, b)
#define ATTN__MULTIPLY_EVEN(a, b) ATTN__ON_BITS(ATTN__MM(mul_epu32), a, b)
#define ATTN__LEFT(x, n)        ATTN__FLOATS(ATTN__MM(slli_epi32)(ATTN__INTS(x), n))
#define ATTN__RIGHT(x, n)       ATTN__FLOATS(ATTN__MM(srai_epi32)(ATTN__INTS(x), n))
#define ATTN__ODD(x)            ATTN__FLOATS(ATTN__MM(srli_epi64)(ATTN__INTS(x), 32))
#if ATTN__GNU
#  define ATTN__KEEP(v)         __asm__("" : "+v"(v))
#else
#  define ATTN__KEEP(v)         ((void)0)
#  define ATTN__ADD             ATTN__MM(add_ps)
#  define ATTN__SUB             ATTN__MM(sub_ps)
#  define ATTN__MUL             ATTN__MM(mul_ps)
#  define ATTN__DIV             ATTN__MM(div_ps)
#endif
#if ATTN__LANES == 16           /* with a mask of all: gcc 12 warns of the plain ones, wrongly */
#  define ATTN__MIN(a, b)       _mm512_maskz_min_ps(0xffff, a, b)
#  define ATTN__MAX(a, b)       _mm512_maskz_max_ps(0xffff, a, b)
#  define ATTN__UNPACK(half, a, b) _mm512_maskz_unpack##half##_ps(0xffff, a, b)
#else
#  define ATTN__MIN             ATTN__MM(min_ps)
#  define ATTN__MAX             ATTN__MM(max_ps)
#  define ATTN__UNPACK(half, a, b) _mm256_unpack##half##_ps(a, b)
#endif
#define ATTN__LESS(a, b)        ATTN__COMPARE(a, b, _CMP_LT_OQ)
#define ATTN__SAME(a, b)        ATTN__COMPARE(a, b, _CMP_EQ_OQ)
#define ATTN__FMA               ATTN__MM(fmadd_ps)
#define ATTN__SQRT              ATTN__MM(sqrt_ps)

/* Twice the same step. */
ATTN__HELPER void ATTN__V(transpose_4x4)(ATTN__VEC *r)
{
    ATTN__VEC t[4];
    int i, step;
    ATTN__EACH(step, 2) {
        ATTN__EACH(i, 4) t[i] = r[i];
        ATTN__EACH(i, 2) {
            r[2*i] = ATTN__UNPACK(lo, t[i], t[i + 2]);
            r[2*i + 1] = ATTN__UNPACK(hi, t[i], t[i + 2]);
        }
    }
}
#endif /* ATTN__MM */
#ifndef ATTN__FACTOR
#  define ATTN__FACTOR          ATTN__VEC
#  define ATTN__ONE             ATTN__ALL
#  define ATTN__SPREAD(x)       (x)
#  define ATTN__FMA_ONE         ATTN__FMA
#endif
#ifndef ATTN__TYPES
#  define ATTN__TYPES           1
#endif
/* Within 16 bytes; then whole 16 bytes, in squares of 4 rows, of 8. */
ATTN__HELPER void ATTN__V(transpose)(ATTN__VEC *r)
{
    int i;
#if ATTN__LANES > 4
    ATTN__VEC a;
    int step;
#endif
    ATTN__EACH(i, ATTN__LANES / 4) ATTN__V(transpose_4x4)(r + 4*i);
#if ATTN__LANES > 4
    ATTN__EACH(step, ATTN__LANES / 8) ATTN__EACH(i, ATTN__LANES) if (!(i & 4 << step)) {
        a = r[i];
        r[i] = ATTN__QUARTERS(a, r[i + (4 << step)], 0);
        r[i + (4 << step)] = ATTN__QUARTERS(a, r[i + (4 << step)], 1);
    }
#endif
}

/* ---- exp, log, tanh: step by step those of >>math */

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
    ATTN__VEC n[4], p[4];
    int i, u;
    ATTN__EACH(u, N) t[u] = ATTN__FMA(x[u], ATTN__ALL(attn__log2e), ATTN__ALL(attn__exp_magic));
    ATTN__EACH(u, N) n[u] = ATTN__SUB(t[u], ATTN__ALL(attn__exp_magic));
    ATTN__EACH(u, N) x[u] = ATTN__FMA(n[u], ATTN__ALL(-attn__ln2_hi), x[u]);
    ATTN__EACH(u, N) x[u] = ATTN__FMA(n[u], ATTN__ALL(-attn__ln2_lo), x[u]);
    ATTN__EACH(u, N) p[u] = ATTN__ALL(attn__exp_c[0]);
    ATTN__EACH(i, 6) ATTN__EACH(u, N) p[u] = ATTN__FMA(p[u], x[u], ATTN__ALL(attn__exp_c[i + 1]));
    ATTN__EACH(u, N) x[u] = p[u];
}

ATTN__HELPER ATTN__VEC ATTN__V(exp)(ATTN__VEC x)
{
    ATTN__VEC p = x, t;
    ATTN__V(exp_poly)(1, &p, &t);
    return ATTN__CLEAR(ATTN__MUL(p, ATTN__LEFT(t, 23)), ATTN__LESS(x, ATTN__ALL(attn__exp_lowest)));
}

/* e^x of N vectors, none above 0. Where e^x is below 2^-126 the result is some value below that, which the caller
   clears: the same bits, and a register less is needed here. */
ATTN__HELPER void ATTN__V(exp_side_by_side)(const int N, ATTN__VEC *x)
{
    ATTN__VEC t[4];
    int u;
    ATTN__EACH(u, N) x[u] = ATTN__MAX(ATTN__ALL(-88.0f), x[u]);     /* 2^n is 0 there */
    ATTN__V(exp_poly)(N, x, t);
    ATTN__EACH(u, N) x[u] = ATTN__MUL(x[u], ATTN__LEFT(t[u], 23));
}

/* The same with 0 there, as attn__exp has it. */
ATTN__HELPER void ATTN__V(exp_cut)(const int N, ATTN__VEC *x)
{
    int u;
#ifdef ATTN__MUL_UNLESS
    ATTN__VEC y[4], t[4];
    ATTN__EACH(u, N) y[u] = x[u];
    ATTN__V(exp_poly)(N, y, t);
    ATTN__EACH(u, N) x[u] = ATTN__MUL_UNLESS(y[u], ATTN__LEFT(t[u], 23), x[u], ATTN__ALL(attn__exp_lowest));
#else
    ATTN__V(exp_side_by_side)(N, x);
    ATTN__EACH(u, N) x[u] = ATTN__CLEAR(x[u], ATTN__LESS(x[u], ATTN__ALL(attn__smallest)));
#endif
}

ATTN__HELPER ATTN__VEC ATTN__V(exp_full)(ATTN__VEC x)
{
    ATTN__VEC p, t, n;
    p = x = ATTN__MIN(ATTN__ALL(100.0f), x);                    /* in this order NaN passes */
    ATTN__V(exp_poly)(1, &p, &t);
    n = ATTN__ADD_BITS(t, ATTN__ALL_BITS(254u - attn__bits(attn__exp_magic)));     /* n + 254, and 2^n in two factors */
    p = ATTN__MUL(p, ATTN__LEFT(ATTN__RIGHT(n, 1), 23));
    p = ATTN__MUL(p, ATTN__LEFT(ATTN__RIGHT(ATTN__ADD_BITS(n, ATTN__ALL_BITS(1)), 1), 23));
    return ATTN__CLEAR(p, ATTN__LESS(x, ATTN__ALL(attn__exp_lowest)));
}

ATTN__HELPER ATTN__VEC ATTN__V(log)(ATTN__VEC x)
{
    const ATTN__MASK tiny = ATTN__LESS(x, ATTN__ALL(attn__smallest));
    const ATTN__VEC y = ATTN__PICK(x, ATTN__MUL(x, ATTN__ALL(8388608.0f)), tiny);
    const ATTN__VEC b = ATTN__ADD_BITS(y, ATTN__ALL_BITS(0u - attn__sqrt_half));
    const ATTN__VEC e = ATTN__SUB(ATTN__TO_FLOATS(ATTN__RIGHT(b, 23)),
                                  ATTN__PICK(ATTN__ALL(0.0f), ATTN__ALL(23.0f), tiny));
    const ATTN__VEC m = ATTN__ADD_BITS(ATTN__AND(b, ATTN__ALL_BITS(0x007fffff)), ATTN__ALL_BITS(attn__sqrt_half));
    const ATTN__VEC f = ATTN__SUB(m, ATTN__ALL(1.0f));
    ATTN__VEC q = ATTN__MUL(ATTN__V(polynomial)(f, attn__log_c, 9), ATTN__MUL(f, f));
    q = ATTN__FMA(e, ATTN__ALL(attn__ln2_lo), q);
    q = ATTN__FMA(e, ATTN__ALL(attn__ln2_hi), ATTN__ADD(q, f));
    q = ATTN__PICK(q, x, ATTN__SAME(x, ATTN__ALL_BITS(0x7f800000u)));
    q = ATTN__PICK(ATTN__ALL(ATTN__NAN), q, ATTN__LESS(ATTN__ALL(0.0f), x));
    return ATTN__PICK(q, ATTN__ALL(ATTN__NEG_INF), ATTN__SAME(x, ATTN__ALL(0.0f)));
}

ATTN__HELPER ATTN__VEC ATTN__V(tanh)(ATTN__VEC x)
{
    const ATTN__VEC sign = ATTN__AND(x, ATTN__ALL(-0.0f)), one = ATTN__ALL(1.0f);
    const ATTN__VEC b = ATTN__MIN(ATTN__ALL(10.0f), ATTN__XOR(x, sign)), x2 = ATTN__MUL(b, b);
    const ATTN__VEC p = ATTN__FMA(ATTN__MUL(b, x2), ATTN__V(polynomial)(x2, attn__tanh_c, 5), b);
    const ATTN__VEC y = ATTN__SUB(one, ATTN__DIV(ATTN__ALL(2.0f), ATTN__ADD(ATTN__V(exp)(ATTN__ADD(b, b)), one)));
    return ATTN__XOR(ATTN__PICK(y, p, ATTN__LESS(b, ATTN__ALL(0.625f))), sign);
}

ATTN__HELPER ATTN__VEC ATTN__V(quiet)(ATTN__VEC x)
{
    return ATTN__PICK(ATTN__ALL(ATTN__NAN), x, ATTN__SAME(x, x));
}

ATTN__HELPER ATTN__VEC ATTN__V(plus_zero)(ATTN__VEC x)                   /* see attn__plus_zero */
{
    ATTN__KEEP(x);
    return ATTN__ADD(x, ATTN__ALL(0.0f));
}

/* ---- elements of 16 and 8 bits. What has no instruction for f16 does as attn__widened and attn__narrowed do. */
ATTN__HELPER ATTN__MASK ATTN__V(is_nan)(ATTN__VEC x)
{
    return ATTN__ABOVE(ATTN__AND(x, ATTN__ALL_BITS(0x7fffffffu)), ATTN__ALL_BITS(0x7f800000u));
}
#ifndef ATTN__LOAD_F16
#define ATTN__LOAD_F16          ATTN__V(load_f16)
#define ATTN__STORE_F16         ATTN__V(store_f16)
ATTN__HELPER ATTN__VEC ATTN__V(load_f16)(const attn__half *p)
{
    const ATTN__VEC x = ATTN__LOAD_HALVES(p), a = ATTN__LEFT(ATTN__AND(x, ATTN__ALL_BITS(0x7fffu)), 13);
    const ATTN__VEC more = ATTN__ADD_BITS(a, ATTN__ALL_BITS(112u << 23)), least = ATTN__ALL_BITS(113u << 23);
    ATTN__VEC y = ATTN__PICK(more, ATTN__SUB(ATTN__ADD_BITS(a, least), least),
                             ATTN__ABOVE(ATTN__ALL_BITS(0x800000u), a));        /* subnormal: 2^-14 too much */
    y = ATTN__PICK(y, ATTN__ADD_BITS(more, ATTN__ALL_BITS(112u << 23)), ATTN__ABOVE(a, ATTN__ALL_BITS(0x0f7fffffu)));
    y = ATTN__PICK(y, ATTN__ADD_BITS(y, ATTN__AND(ATTN__ALL_BITS(0x400000u), ATTN__XOR(y, ATTN__ALL_BITS(0x400000u)))),
                   ATTN__V(is_nan)(y));
    return ATTN__XOR(y, ATTN__LEFT(ATTN__AND(x, ATTN__ALL_BITS(0x8000u)), 16));
}

ATTN__HELPER void ATTN__V(store_f16)(attn__half *p, ATTN__VEC x)
{
    const ATTN__VEC a = ATTN__AND(x, ATTN__ALL_BITS(0x7fffffffu)), half = ATTN__ALL_BITS(126u << 23);
    const ATTN__VEC odd = ATTN__AND(ATTN__RIGHT(a, 13), ATTN__ALL_BITS(1));
    ATTN__VEC y = ATTN__RIGHT(ATTN__ADD_BITS(ATTN__ADD_BITS(a, ATTN__ALL_BITS(0u - 0x38000000u + 0xfffu)), odd), 13);
    y = ATTN__PICK(y, ATTN__ADD_BITS(ATTN__ADD(a, half), ATTN__ALL_BITS(0u - (126u << 23))),
                   ATTN__ABOVE(ATTN__ALL_BITS(0x38800000u), a));                /* 1/2 + a: rounded to 2^-24 */
    y = ATTN__PICK(y, ATTN__ALL_BITS(0x7c00u), ATTN__ABOVE(a, ATTN__ALL_BITS(0x477fffffu)));
    y = ATTN__XOR(y, ATTN__AND(ATTN__RIGHT(x, 16), ATTN__ALL_BITS(0x8000u)));
    ATTN__STORE_HALVES(p, ATTN__PICK(y, ATTN__ALL_BITS(0x7e00u), ATTN__V(is_nan)(x)));
}
#endif
/* in the upper halves; the lower ones hold what is left of the rounding */
ATTN__HELPER ATTN__VEC ATTN__V(round_bf16)(ATTN__VEC x)
{
    const ATTN__VEC odd = ATTN__AND(ATTN__RIGHT(x, 16), ATTN__ALL_BITS(1));
    const ATTN__VEC y = ATTN__ADD_BITS(ATTN__ADD_BITS(x, ATTN__ALL_BITS(0x7fffu)), odd);
    return ATTN__PICK(y, ATTN__ALL_BITS(0x7fc00000u), ATTN__V(is_nan)(x));
}

ATTN__HELPER void ATTN__V(store_bf16)(attn__half *p, ATTN__VEC x)
{
    ATTN__STORE_HALVES(p, ATTN__AND(ATTN__RIGHT(ATTN__V(round_bf16)(x), 16), ATTN__ALL_BITS(0xffffu)));
}

/* LANES elements as floats; codes without their scale */
ATTN__HELPER ATTN__VEC ATTN__V(widened)(const void *p, const int32_t type)
{
    if (type == ATTN_F16) return ATTN__LOAD_F16((const attn__half *)p);
    if (type == ATTN_BF16) return ATTN__LEFT(ATTN__LOAD_HALVES((const attn__half *)p), 16);
    if (type == ATTN_I8) return ATTN__TO_FLOATS(ATTN__LOAD_CODES((const int8_t *)p));
    return ATTN__LOAD((const float *)p);
}

/* Where bytes after p lie, which may be no element. */
ATTN__HELPER const char *ATTN__V(after)(const void *p, int64_t bytes)
{
    return (const char *)((uintptr_t)p + (uintptr_t)bytes);
}

/* ---- products */
#if ATTN__LANES == 16 && ATTN__HAS_BF16_DOT
/* sum += the products of a and b, pairs of bf16: not by the intrinsic, which is inlined only where its instruction set
   is. a is said to change, since gcc would put a sum into its register and move it back. */
#define ATTN__ADD_PAIRS(sum, a, b) __asm__("vdpbf16ps {%2, %1, %0|%0, %1, %2}" : "+v"(sum), "+v"(a) : "v"(b))
/* x without the halves where the sign of y's is set */
ATTN__HELPER ATTN__VEC ATTN__V(allowed_halves)(ATTN__VEC x, ATTN__VEC y)
{
    x = ATTN__PICK(x, ATTN__AND(x, ATTN__ALL_BITS(0xffffu)), ATTN__NEGATIVE(y));
    return ATTN__PICK(x, ATTN__AND(x, ATTN__ALL_BITS(0xffff0000u)), ATTN__NEGATIVE(ATTN__LEFT(y, 16)));
}
#endif

/* One step of a strip: a column of A, with a pointer to every third of its rows, times a row of B. */
ATTN__HELPER void ATTN__V(step)(const int R, const int N, const int kind, const float *const *a, int64_t a_row,
                                const float *b, const float *x, int64_t x_row, ATTN__VEC *acc)
{
    ATTN__VEC q[8], t;
    ATTN__FACTOR s;
    int r, i;
    ATTN__EACH(i, N) {
        q[i] = ATTN__LOAD(b + ATTN__LANES*i);
        if (R > 1 && kind != ATTN__SQUARED_DISTANCE) ATTN__KEEP(q[i]);  /* no register to spare: read again */
    }
    ATTN__EACH(r, R) {
        s = ATTN__ONE(a[r/3][r%3*a_row]);
        ATTN__EACH(i, N) {
            if (kind == ATTN__PRODUCT) {
                acc[r*N + i] = ATTN__FMA_ONE(s, q[i], acc[r*N + i]);
                if (N == 3 && r == 0) ATTN__KEEP(acc[i]);       /* clang 19 moves all sums in each step else */
            } else if (kind == ATTN__PRODUCT_OF_ALLOWED)
                acc[r*N + i] = ATTN__PICK(ATTN__FMA_ONE(s, q[i], acc[r*N + i]), acc[r*N + i], ATTN__NEGATIVE(q[i]));
            else if (kind == ATTN__SQUARED_DISTANCE) {
                t = ATTN__SUB(ATTN__SPREAD(s), q[i]);
                acc[r*N + i] = ATTN__FMA(t, t, acc[r*N + i]);
            } else if (kind == ATTN__WEIGHTED_DIFFERENCE) {
                t = ATTN__SUB(q[i], ATTN__LOAD(x + r*x_row + ATTN__LANES*i));
                acc[r*N + i] = ATTN__FMA_ONE(s, t, acc[r*N + i]);
            }
#ifdef ATTN__ADD_PAIRS
            else {
                t = kind == ATTN__PAIRS ? s : ATTN__V(allowed_halves)(s, q[i]);
                ATTN__ADD_PAIRS(acc[r*N + i], q[i], t);
            }
#endif
        }
    }
}

/* One chain of a strip, `depth` terms from *a and *b on, which move along. Every 16 steps the same columns of the next
   R rows are prefetched, of A where its rows are contiguous, and of the other matrix, where *other is not NULL. */
ATTN__HELPER void ATTN__V(chain)(const int R, const int N, const int kind, const attn__product *p, const float **a,
                                 const float **b, const float **other, const float *x, int64_t depth, ATTN__VEC *acc)
{
    const int64_t a_row = p->a_row, a_k = p->a_k, run = R > 2 && kind == ATTN__PRODUCT ? 16 : depth;
    int64_t k;
    int r, i;
    for (; depth > 0; depth -= run) {
        if (R > 2 && kind == ATTN__PRODUCT && a_k == 1)
            ATTN__EACH(r, R) ATTN__PREFETCH_FAR(attn__ahead(a[0], R + r, a_row));
        if (R > 2 && kind == ATTN__PRODUCT && *other) {
            ATTN__EACH(r, R) ATTN__PREFETCH_FAR(attn__ahead(*other, r, p->fetch_row));
            *other = attn__ahead(*other, 16, 1);
        }
        for (k = depth < run ? depth : run; k > 0; k--, *b += p->b_row) {
            if (N == 8) ATTN__EACH(i, ATTN__LANES / 2) {
                ATTN__PREFETCH(attn__ahead(*b, 16, p->b_row) + 16*i);
                if (*other) ATTN__PREFETCH_FAR(*other + 16*i);
            }
            if (N == 8 && *other) *other = attn__ahead(*other, 1, p->fetch_row);
            ATTN__V(step)(R, N, kind, a, a_row, *b, x, p->x_row, acc);
            ATTN__EACH(r, (R + 2) / 3) {
                a[r] += a_k;
#if defined(__clang__) && ATTN__X64     /* else it makes a pointer of each row and runs out of registers */
                if (R > 8) ATTN__KEEP_POINTER(a[r]);
#endif
            }
        }
    }
}

/* Each lane's largest number is at least those of its R results. */
ATTN__HELPER void ATTN__V(raise)(const int R, const int N, const ATTN__VEC *acc, float *top)
{
    ATTN__VEC m[8];
    int r, i;
    ATTN__EACH(i, N) m[i] = ATTN__LOAD(top + ATTN__LANES*i);
    ATTN__EACH(r, R) ATTN__EACH(i, N) m[i] = ATTN__MAX(acc[r*N + i], m[i]);
    ATTN__EACH(i, N) ATTN__STORE(top + ATTN__LANES*i, m[i]);
}

/* A chunk's outputs `acc`, and of its other chains, and those before it, from `at` on R rows of N vectors at a time.
   Zero times what is not finite is NaN and stays in `nonfinite`; there are R*N of them, as one alone would wait for
   itself each step. first: there is neither `before` nor `o`, as in a call's first chunk; small calls have no other. */
ATTN__HELPER void ATTN__V(merge_step)(const int R, const int N, const int first, const attn__merging *m, int64_t at,
                                      const ATTN__VEC *old, const ATTN__VEC *fresh, ATTN__VEC *nonfinite)
{
    ATTN__VEC x[4];
    int r, i;
#define ATTN__AT(p) (m->p + at + r*m->ld + ATTN__LANES*i)
    ATTN__EACH(r, R) ATTN__EACH(i, N) x[r*N + i] = ATTN__LOAD(ATTN__AT(acc));
    if (!first && m->before) ATTN__EACH(r, R) ATTN__EACH(i, N)
        x[r*N + i] = ATTN__ADD(ATTN__LOAD(ATTN__AT(before)), x[r*N + i]);
    ATTN__EACH(i, R*N) nonfinite[i] = ATTN__FMA(x[i], ATTN__ALL(0.0f), nonfinite[i]);
    if (!first && m->o) ATTN__EACH(r, R) ATTN__EACH(i, N)
        x[r*N + i] = ATTN__FMA(x[r*N + i], fresh[i], ATTN__MUL(ATTN__LOAD(ATTN__AT(o)), old[i]));
    ATTN__EACH(r, R) ATTN__EACH(i, N) ATTN__STORE(ATTN__AT(to), ATTN__V(plus_zero)(x[r*N + i]));
#undef ATTN__AT
}

/* All rows of N vectors, from column `at` on. Returns NaN where one of them has what is not finite. */
ATTN__HELPER ATTN__VEC ATTN__V(merge_vectors)(const int N, const int first, const attn__merging *m, int64_t at)
{
    const int R = N > 1 ? 1 : 4, sums = N > 1 ? N : R;
    ATTN__VEC old[ATTN__VECS], fresh[ATTN__VECS], nonfinite[4];
    int64_t row;
    int i;
    ATTN__EACH(i, N) old[i] = ATTN__LOAD(m->old + at + ATTN__LANES*i);
    ATTN__EACH(i, N) fresh[i] = ATTN__LOAD(m->fresh + at + ATTN__LANES*i);
    ATTN__EACH(i, sums) nonfinite[i] = ATTN__ALL(0.0f);
    for (row = 0; row + R <= m->rows; row += R, at += R*m->ld)
        ATTN__V(merge_step)(R, N, first, m, at, old, fresh, nonfinite);
    for (; R > 1 && row < m->rows; row++, at += m->ld)
        ATTN__V(merge_step)(1, N, first, m, at, old, fresh, nonfinite);
    ATTN__UNROLL for (i = 1; i < sums; i++) nonfinite[0] = ATTN__ADD(nonfinite[0], nonfinite[i]);
    return nonfinite[0];
}

ATTN__HELPER int ATTN__V(merge_rows)(const int first, const attn__merging *m)
{
    ATTN__VEC nonfinite = ATTN__ALL(0.0f);
    int64_t i = 0;
    for (; i + ATTN__VECS*ATTN__LANES <= m->ld; i += ATTN__VECS*ATTN__LANES)
        nonfinite = ATTN__ADD(nonfinite, ATTN__V(merge_vectors)(ATTN__VECS, first, m, i));
    for (; i < m->ld; i += ATTN__LANES) nonfinite = ATTN__ADD(nonfinite, ATTN__V(merge_vectors)(1, first, m, i));
    return !ATTN__ANY(ATTN__V(is_nan)(nonfinite));
}

ATTN__KERNEL int ATTN__V(merge)(const attn__merging *given)
{
    const attn__merging m = *given;             /* in registers: stores might change *given */
    return m.before || m.o ? ATTN__V(merge_rows)(0, &m) : ATTN__V(merge_rows)(1, &m);
}

/* A strip of R rows and N vectors in registers, chain by chain. R, N and kind are constants where this is inlined. */
ATTN__HELPER void ATTN__V(strip_in)(const int R, const int N, const int kind, const attn__product *p, int64_t row,
                                    ATTN__VEC *acc)
{
    const int64_t c_row = p->c_row;
    const int go_on = p->onto == ATTN__GO_ON;
    const float *from = go_on ? p->c + row*c_row : attn__zeros, *a[4], *b = p->b;
    const float *other = p->fetch ? attn__ahead(p->fetch, R > 1 ? row : 0, p->fetch_row) : NULL;
    const float *x = kind == ATTN__WEIGHTED_DIFFERENCE ? p->x + row*p->x_row : NULL;
    float *c = p->c + row*c_row;
    int64_t left = p->depth, depth;
    int add = p->onto >= ATTN__ADD_AFTER, r, i;
    ATTN__EACH(r, (R + 2) / 3) {
        a[r] = p->a + (row + 3*r)*p->a_row;
        if (r) ATTN__KEEP_POINTER(a[r]);
    }
    if (p->onto == ATTN__ADD_FAR) ATTN__EACH(r, R) ATTN__PREFETCH(c + r*c_row);
    do {
        ATTN__EACH(r, R) {
            ATTN__EACH(i, N) acc[r*N + i] = ATTN__LOAD(from + ATTN__LANES*i);
            from += go_on && !add ? c_row : 0;
            ATTN__KEEP_POINTER(from);
        }
        depth = attn__chain_of(p, left);
        left -= depth;
        ATTN__V(chain)(R, N, kind, p, a, &b, &other, x, depth, acc);
        if (add) ATTN__EACH(r, R) {
            ATTN__EACH(i, N) acc[r*N + i] = ATTN__ADD(ATTN__LOAD(c + ATTN__LANES*i), acc[r*N + i]);
            c += c_row;
            ATTN__KEEP_POINTER(c);
        }
        c = p->c + row*c_row;
        if (kind >= ATTN__PAIRS && p->x && !left)
            ATTN__EACH(r, R) ATTN__EACH(i, N) acc[r*N + i] = ATTN__MUL(acc[r*N + i], ATTN__LOAD(p->x + ATTN__LANES*i));
        if (kind == ATTN__PRODUCT && p->onto == ATTN__TOP && !left) ATTN__V(raise)(R, N, acc, p->top);
        ATTN__EACH(r, R) {
            ATTN__EACH(i, N) ATTN__STORE(c + ATTN__LANES*i, acc[r*N + i]);
            c += c_row;
            ATTN__KEEP_POINTER(c);
        }
        from = attn__zeros;
        add = 1;
        c = p->c + row*c_row;
    } while (left > 0);
}
/* Older clang leaves the sums of one row on the stack: then few of them, for the stack's sake. */
ATTN__HELPER void ATTN__V(strip)(const int R, const int N, const int kind, const attn__product *p, int64_t row)
{
    if (R == 1) {
        ATTN__VEC acc[8];
        ATTN__V(strip_in)(R, N, kind, p, row, acc);
    } else {
        ATTN__VEC acc[ATTN__SUMS > 12 ? ATTN__SUMS : 12];
        ATTN__V(strip_in)(R, N, kind, p, row, acc);
    }
}

/* What is rarer than a product, in one or two vectors at a time: short rather than fast. */
ATTN__KERNEL void ATTN__V(product_rare)(const attn__product *p)
{
    attn__product part = *p;
    int64_t r, i;
    for (i = 0; i < p->vecs; i += part.vecs) {
        part.b = p->b + ATTN__LANES*i;
        part.c = p->c + ATTN__LANES*i;
        if (p->kind == ATTN__WEIGHTED_DIFFERENCE) part.x = p->x + ATTN__LANES*i;
        part.vecs = p->kind == ATTN__SQUARED_DISTANCE && i + 2 <= p->vecs ? 2 : 1;
        r = 0;
        if (part.vecs == 2) for (; r + 6 <= p->rows; r += 6) ATTN__V(strip)(6, 2, ATTN__SQUARED_DISTANCE, &part, r);
        else if (p->kind == ATTN__SQUARED_DISTANCE)
            for (; r + 8 <= p->rows; r += 8) ATTN__V(strip)(8, 1, ATTN__SQUARED_DISTANCE, &part, r);
        for (; r < p->rows; r++)
            if (part.vecs == 2) ATTN__V(strip)(1, 2, ATTN__SQUARED_DISTANCE, &part, r);
            else if (p->kind == ATTN__SQUARED_DISTANCE) ATTN__V(strip)(1, 1, ATTN__SQUARED_DISTANCE, &part, r);
            else if (p->kind == ATTN__WEIGHTED_DIFFERENCE) ATTN__V(strip)(1, 1, ATTN__WEIGHTED_DIFFERENCE, &part, r);
            else ATTN__V(strip)(1, 1, ATTN__PRODUCT_OF_ALLOWED, &part, r);
    }
}

/* As many strips as fit from `row` on; but of six rows one less where two or three are left: two strips of four take
   them faster than those of one. Returns where the next begins. A function of its own each, RxN: in one large one
   compilers run out of registers. */
#define ATTN__STRIP_OF(name, begin, R, N, kind) \
    ATTN__NOINLINE begin int64_t ATTN__V(name##R##x##N)(const attn__product *p, int64_t row) \
    { \
        const int64_t end = p->rows - (R == 6 && p->rows % 6 / 2 == 1 ? 6 : 0); \
        for (; row + R <= end; row += R) ATTN__V(strip)(R, N, kind, p, row); \
        return row; \
    }
#define ATTN__STRIP(R, N) ATTN__STRIP_OF(strips_, ATTN__KERNEL, R, N, ATTN__PRODUCT)
ATTN__STRIP(2, 1) ATTN__STRIP(1, 1) ATTN__STRIP(1, 2) ATTN__STRIP(2, 3) ATTN__STRIP(1, 3)
#if ATTN__SUMS == 6
ATTN__STRIP(4, 1) ATTN__STRIP(2, 2)
#else
ATTN__STRIP(8, 1) ATTN__STRIP(4, 2)
#endif
#if ATTN__SUMS == 24
ATTN__STRIP(12, 2) ATTN__STRIP(8, 3) ATTN__STRIP(6, 4) ATTN__STRIP(4, 4) ATTN__STRIP(1, 4)
#elif ATTN__SUMS == 12
ATTN__STRIP(6, 2) ATTN__STRIP(4, 3)
#endif
/* By vectors, the highest first: as many as the registers hold. */
#define ATTN__STRIPS(R1, R2, R3, N) \
    {ATTN__V(strips_##R1##x##N), ATTN__V(strips_##R2##x##N), ATTN__V(strips_##R3##x##N)}
static int64_t (*const ATTN__V(strips)[][3])(const attn__product *p, int64_t row) = {
#if ATTN__SUMS == 24
    ATTN__STRIPS(8, 2, 1, 1), ATTN__STRIPS(12, 4, 1, 2), ATTN__STRIPS(8, 2, 1, 3), ATTN__STRIPS(6, 4, 1, 4)
#elif ATTN__SUMS == 6
    ATTN__STRIPS(4, 2, 1, 1), ATTN__STRIPS(2, 1, 1, 2), ATTN__STRIPS(2, 1, 1, 3)
#else
    ATTN__STRIPS(8, 2, 1, 1), ATTN__STRIPS(6, 4, 1, 2), ATTN__STRIPS(4, 2, 1, 3)
#endif
};

ATTN__KERNEL void ATTN__V(product)(const attn__product *p)
{
    int64_t row, i;
    ATTN_ASSERT(p->vecs < 8 || (p->rows == 1 && p->kind == ATTN__PRODUCT));
    if (p->kind != ATTN__PRODUCT) ATTN__V(product_rare)(p);
#if !ATTN__TYPES
    else if (p->vecs == 8) ATTN__V(strip)(1, 8, ATTN__PRODUCT, p, 0);           /* few rows: B is read in place */
#endif
    else for (row = 0, i = 0; row < p->rows; i++)
        row = ATTN__V(strips)[p->vecs - 1][i](p, row);
}

/* ---- few rows times rows of any type, of which a group at a time becomes columns */
/* Bytes of an element; of each row that a step takes; elements in 32 bits of them. */
#define ATTN__SIZE_OF(type)    ((type) == ATTN_F32 ? 4 : (type) == ATTN_I8 ? 1 : 2)
#define ATTN__STEP_OF(type)    ((type) == ATTN_F16 ? 2*ATTN__LANES : 16)
#define ATTN__NUMBERS_OF(type) ((type) == ATTN_BF16 ? 2 : (type) == ATTN_I8 ? 4 : 1)

/* A step of LANES rows: four from `from` on, `row` bytes apart, the next four from four[1] bytes after `from` on, and
   so on. The n-th 32 bits of all of them become x[n]; of f16 the n-th float. */
ATTN__HELPER void ATTN__V(transpose_step)(ATTN__VEC *x, const char *from, int64_t row, const int64_t *four,
                                          const int32_t type)
{
    int i, q;
    ATTN__EACH(i, 4) {
        ATTN__UNROLL for (q = 0; q < ATTN__LANES/4; q++) {
            const char *y = q ? from + four[q] : from;
            if (type == ATTN_F16) x[i + 4*q] = ATTN__V(widened)(y, ATTN_F16);
            else if (q) x[i] = ATTN__PUT_QUARTER(x[i], q, y);
            else x[i] = ATTN__LOAD_QUARTER(y);
        }
        from += row;                    /* one pointer walks over them: there are no registers for one per row */
        ATTN__KEEP_POINTER(from);
    }
    if (type == ATTN_F16) ATTN__V(transpose)(x);
    else ATTN__V(transpose_4x4)(x);
}

/* The n-th element in 32 bits, as a float. */
ATTN__HELPER ATTN__VEC ATTN__V(element)(ATTN__VEC x, const int n, const int32_t type, ATTN__VEC scale)
{
    if (type == ATTN_BF16 && n) return ATTN__AND(x, ATTN__ALL_BITS(0xffff0000u));
    if (type == ATTN_BF16) return ATTN__LEFT(x, 16);
    if (type != ATTN_I8) return x;
    if (n == 0) x = ATTN__LEFT(x, 24);
    if (n == 1) x = ATTN__LEFT(x, 16);
    if (n == 2) x = ATTN__LEFT(x, 8);
    return ATTN__MUL(ATTN__TO_FLOATS(ATTN__RIGHT(x, 24)), scale);
}

/* While a step of the group from row j on is taken, as much of what is ahead is prefetched: of groups ahead in the
   order of memory (in_order), which the machine's own prefetching follows; where rows lie apart, a line of each; of
   wide rows, whose group would fill the first cache, the next lines, if there is but one query. */
ATTN__HELPER int ATTN__V(in_order)(const int pieces, const attn__product *p, int64_t size)
{ return !p->next && p->b_row == p->depth && (pieces || p->rows > 1 || p->depth*size <= ATTN__AHEAD_IN_ROW); }

/* A line of each row of a group, `at` bytes after the row's beginning. */
ATTN__NOINLINE ATTN__KERNEL void ATTN__V(prefetch_lines)(const attn__product *p, int64_t j, int64_t at, int64_t size)
{
    const int64_t bytes = p->depth*size;
    const char *const *groups = p->groups + j/ATTN__GROUP;
    const char *to1 = groups[p->ahead1], *to2 = groups[p->ahead2];
    int x;
#if ATTN__GNU
    __asm__ __volatile__("");           /* else to gcc a function that only prefetches does nothing */
#endif
    if (p->next) {
        for (x = 0; x < ATTN__GROUP; x++) ATTN__PREFETCH_FAR(ATTN__V(after)(p->next[j + x], at));
        return;
    }
    if (p->rows == 1 && bytes > ATTN__AHEAD_IN_ROW) {
        at += ATTN__AHEAD_IN_ROW;
        if (at < bytes) to1 = groups[0];
        else at -= bytes;
        to2 = to1;
    }
    for (x = 0; x < ATTN__GROUP; x++, at += p->b_row*size) {
        ATTN__PREFETCH(ATTN__V(after)(to1, at));
        if (to2 != to1) ATTN__PREFETCH_FAR(ATTN__V(after)(to2, at));
    }
}

ATTN__HELPER void ATTN__V(prefetch_groups)(const int pieces, const attn__product *p, int64_t j, int64_t at,
                                           const int32_t type)
{
    const int64_t bytes = p->depth*ATTN__SIZE_OF(type);
    const int lines = ATTN__GROUP*ATTN__STEP_OF(type)/64;
    const char *const *groups = p->groups + j/(pieces ? p->b_group : (int64_t)ATTN__GROUP), *to1, *to2;
    int x;
    at *= ATTN__GROUP;
    if (pieces) for (; at >= p->b_group*bytes; at -= p->b_group*bytes) groups++;
    to1 = ATTN__V(after)(groups[p->ahead1], at);
    to2 = ATTN__V(after)(groups[p->ahead2], at);
    ATTN__EACH(x, lines) {
        ATTN__PREFETCH(ATTN__V(after)(to1, 64*x));
        if (to2 != to1) ATTN__PREFETCH_FAR(ATTN__V(after)(to2, 64*x));
    }
}

/* The scales of LANES rows from j on, for the columns from k on: 4 vectors, a group apart. */
ATTN__HELPER void ATTN__V(turn_scales)(float *to, const attn__product *p, int64_t j, int64_t k)
{
    const float *from = p->b_scale + j*p->b_scales;
    const int64_t row = 4*p->b_scales, four[4] = {0, 4*row, 8*row, 12*row};
    ATTN__VEC x[ATTN__LANES];
    int i;
    if (p->b_scales == 1) x[0] = x[1] = x[2] = x[3] = ATTN__LOAD(from);
    else ATTN__V(transpose_step)(x, (const char *)(from + k/ATTN__CODES_PER_SCALE), row, four, ATTN_F32);
    ATTN__EACH(i, 4) ATTN__STORE(to + i*ATTN__GROUP, x[i]);
}

/* A column of a group, where no step is left. */
ATTN__NOINLINE ATTN__KERNEL void ATTN__V(column_of_b)(const attn__product *p, int64_t j, int64_t k, float *column)
{
    int64_t x;
    for (x = 0; x < ATTN__GROUP; x++) column[x] = attn__of_b(p, j + x, k);
}

/* R rows from `row` on times the columns k .. k + n, [n][ATTN__SHARED_ROWS], of so many rows of B from j on. */
#define ATTN__SHARED_ROWS (ATTN__LANES == ATTN__GROUP ? 2*ATTN__GROUP : ATTN__GROUP)
ATTN__HELPER void ATTN__V(dots_of_columns)(const int R, const attn__product *p, int64_t row, int64_t j, int64_t k,
                                           int64_t n)
{
    const float *a = p->a + k*ATTN__LANES + row;
    ATTN__VEC acc[16], t[ATTN__DOTS];   /* R*DOTS at most */
    ATTN__FACTOR w;
    int64_t v, x;
    int r, i;
    for (v = 0; v < ATTN__SHARED_ROWS; v += ATTN__DOTS*ATTN__LANES) {
        float *c = p->c + row*p->c_row + j + v;
        ATTN__EACH(r, R*ATTN__DOTS) acc[r] = ATTN__ALL(0.0f);
        for (x = 0; x < n; x++) {
            ATTN__EACH(i, ATTN__DOTS) t[i] = ATTN__LOAD(p->columns + x*ATTN__SHARED_ROWS + v + i*ATTN__LANES);
            ATTN__EACH(r, R) {
                w = ATTN__ONE(a[x*ATTN__LANES + r]);
                ATTN__EACH(i, ATTN__DOTS) acc[r*ATTN__DOTS + i] = ATTN__FMA_ONE(w, t[i], acc[r*ATTN__DOTS + i]);
            }
        }
        ATTN__UNROLL for (r = 0; r < R; r++, c += p->c_row) if (row + r < p->rows) ATTN__EACH(i, ATTN__DOTS) {
            ATTN__VEC *sum = acc + r*ATTN__DOTS + i;
            if (k) *sum = ATTN__ADD(ATTN__LOAD(c + i*ATTN__LANES), *sum);
            ATTN__STORE(c + i*ATTN__LANES, *sum);
        }
    }
}

/* All rows; once for all types, which have become floats. */
ATTN__NOINLINE ATTN__KERNEL void ATTN__V(dots_of_floats)(const attn__product *p, int64_t j, int64_t k, int64_t n)
{
    int64_t row;
    if (ATTN__LANES == ATTN__GROUP && p->rows > ATTN__SKINNY_SHARED)     /* then registers hold all their sums */
        ATTN__V(dots_of_columns)(ATTN__SKINNY, p, 0, j, k, n);
    else for (row = 0; row < p->rows; row += ATTN__SKINNY_SHARED)
        ATTN__V(dots_of_columns)(ATTN__SKINNY_SHARED, p, row, j, k, n);
}

/* Where B's LANES rows from the j-th on begin, and how far after that each four of them. */
ATTN__HELPER const char *ATTN__V(lanes_of_b)(const attn__product *p, int64_t j, int64_t row, int64_t *four)
{
    const char *from[4];
    int q;
    ATTN__EACH(q, ATTN__LANES/4) {
        const int64_t at = j + 4*q;
        from[q] = p->groups[at/p->b_group] + at%p->b_group*row;
        four[q] = (int64_t)((uintptr_t)from[q] - (uintptr_t)from[0]);
    }
    return from[0];
}

/* The scales of LANES rows from j on at column k; `scale`: at the column before. of[] has those of 128 columns. */
ATTN__HELPER ATTN__VEC ATTN__V(scale_of_step)(float *of, const attn__product *p, int64_t j, int64_t k, ATTN__VEC scale)
{
    if (k % (4*ATTN__CODES_PER_SCALE) == 0) ATTN__V(turn_scales)(of, p, j, k);
    return k % ATTN__CODES_PER_SCALE ? scale : ATTN__LOAD(of + k/ATTN__CODES_PER_SCALE % 4*ATTN__GROUP);
}

/* U groups from row j on, side by side so that no sum waits for itself, times one row. pieces: B's rows lie together in
   fewer than a group has, and each lane has a number of its own. */
ATTN__HELPER void ATTN__V(dots_of_groups)(const int pieces, const int U, const attn__product *p, int64_t j,
                                          const int32_t type)
{
    const int64_t size = ATTN__SIZE_OF(type), row = p->b_row*size, step = ATTN__STEP_OF(type)/size;
    const int E = ATTN__NUMBERS_OF(type), G = ATTN__GROUP/ATTN__LANES, numbers = (int)step;
    ATTN__VEC acc[4], sum[4], scale[4], x[ATTN__LANES], y;      /* U*G at most */
    float scales[8*ATTN__GROUP];                                /* 4*U groups at most */
    const int64_t together[4] = {0, 4*row, 8*row, 12*row};
    const int in_order = ATTN__V(in_order)(pieces, p, size);
    const char *from[4];
    int64_t k = 0, first = 0, end, four[4][4];
    int i, n;
    ATTN__EACH(i, U*G) {
        scale[i] = sum[i] = ATTN__ALL(0.0f);
        if (!pieces) from[i] = p->groups[j/ATTN__GROUP + i/G] + i%G*ATTN__LANES*row;
        else from[i] = ATTN__V(lanes_of_b)(p, j + i*ATTN__LANES, row, four[i]);
    }
    for (; k < p->depth; first = k) {
        end = attn__min(p->depth, k + ATTN__RUN);
        ATTN__EACH(i, U*G) acc[i] = ATTN__ALL(0.0f);
        for (; k + step <= end; k += step) ATTN__EACH(i, U*G) {
            const int64_t at = j + i*ATTN__LANES;
            float *of = scales + i/G*4*ATTN__GROUP + i%G*ATTN__LANES;
            if (type == ATTN_I8) scale[i] = ATTN__V(scale_of_step)(of, p, at, k, scale[i]);
            ATTN__V(transpose_step)(x, from[i] + k*size, row, pieces ? four[i] : together, type);
            if (i%G == 0 && in_order) ATTN__V(prefetch_groups)(pieces, p, at, k*size, type);
            ATTN__EACH(n, numbers) {
                y = ATTN__V(element)(x[n/E], n%E, type, scale[i]);
                if (pieces) acc[i] = ATTN__FMA(ATTN__LOAD(p->a + (k + n)*ATTN__LANES), y, acc[i]);
                else acc[i] = ATTN__FMA_ONE(ATTN__ONE(p->a[k + n]), y, acc[i]);
            }
            if (i%G == 0 && !in_order && k*size % 64 == 0) ATTN__V(prefetch_lines)(p, at, k*size, size);
        }
        for (; k < end; k++) ATTN__EACH(i, U*G) {
            if (i%G == 0) ATTN__V(column_of_b)(p, j + i*ATTN__LANES, k, p->columns + i*ATTN__LANES);
            acc[i] = ATTN__FMA(pieces ? ATTN__LOAD(p->a + k*ATTN__LANES) : ATTN__ALL(p->a[k]),
                               ATTN__LOAD(p->columns + i*ATTN__LANES), acc[i]);
        }
        ATTN__EACH(i, U*G) if (first) acc[i] = ATTN__ADD(sum[i], acc[i]);
        ATTN__EACH(i, U*G) sum[i] = acc[i];
    }
    ATTN__EACH(i, U*G) ATTN__STORE(p->c + j + i*ATTN__LANES, sum[i]);
}

/* LANES rows, `row` bytes apart, a whole vector of each: the n-th 32 bits of all of them become x[n]. */
ATTN__HELPER void ATTN__V(transpose_rows)(ATTN__VEC *x, const char *from, int64_t row)
{
    int i;
    ATTN__EACH(i, ATTN__LANES) {
        x[i] = ATTN__LOAD_BITS(from);
        from += row;
        ATTN__KEEP_POINTER(from);
    }
    ATTN__V(transpose)(x);
}

/* While LANES rows of a matrix, from `rows` on, are read at column k, so many lines of those a group ahead are
   prefetched if rows lie one after the other: in the order of memory, which the machine's own prefetching follows. */
ATTN__HELPER void ATTN__V(prefetch_matrix)(const attn__product *p, const char *rows, int64_t k, int64_t size,
                                           const int lines)
{
    const char *to = ATTN__V(after)(rows, (ATTN__GROUP*p->b_row + k*ATTN__LANES)*size);
    int i;
    if (p->b_row == p->depth) ATTN__EACH(i, lines) ATTN__PREFETCH_FAR(ATTN__V(after)(to, 64*i));
}

/* LANES rows from j on, of a matrix or long ones, times one row, from the k-th column on: C chains side by side, as one
   alone waits for itself. */
ATTN__HELPER ATTN__VEC ATTN__V(dots_of_chains)(const int C, const attn__product *p, int64_t j, int64_t k, ATTN__VEC sum,
                                               const int32_t type)
{
    const int64_t size = ATTN__SIZE_OF(type), row = p->b_row*size, step = ATTN__STEP_OF(type)/size;
    const int64_t four[4] = {0, 4*row, 8*row, 12*row};
    const int E = ATTN__NUMBERS_OF(type), numbers = (int)step, lines = (int)(C*ATTN__LANES*step*size/64);
    const char *from = p->groups[j/ATTN__GROUP] + j%ATTN__GROUP*row;
    ATTN__VEC acc[2], x[ATTN__LANES];
    int64_t at, first;
    int i, n;
    ATTN__EACH(i, C) acc[i] = ATTN__ALL(0.0f);
    for (first = 0; first < ATTN__RUN; first += step) {
        ATTN__V(prefetch_matrix)(p, from, k + C*first, size, lines);
        ATTN__EACH(i, C) {
            at = k + i*ATTN__RUN + first;
            ATTN__V(transpose_step)(x, from + at*size, row, four, type);
            ATTN__EACH(n, numbers)
                acc[i] = ATTN__FMA_ONE(ATTN__ONE(p->a[at + n]), ATTN__V(element)(x[n/E], n%E, type, sum), acc[i]);
        }
    }
    if (k) acc[0] = ATTN__ADD(sum, acc[0]);
    ATTN__EACH(i, C) if (i) acc[0] = ATTN__ADD(acc[0], acc[i]);
    return acc[0];
}

ATTN__HELPER void ATTN__V(dots_of_row)(const attn__product *p, int64_t j, const int32_t type)
{
    ATTN__VEC sum = ATTN__ALL(0.0f);
    int64_t k;
    for (k = 0; k + 2*ATTN__RUN <= p->depth; k += 2*ATTN__RUN) sum = ATTN__V(dots_of_chains)(2, p, j, k, sum, type);
    if (k < p->depth) sum = ATTN__V(dots_of_chains)(1, p, j, k, sum, type);
    ATTN__STORE(p->c + j, sum);
}

#if ATTN__TYPES
/* LANES rows of codes of a matrix, from j on, whole runs of them, times R rows, C chains of each side by side. A whole
   vector of each row is read at a time, so that a line is read once, however few places such rows share in a cache;
   what four codes of each row become waits in p->columns. */
ATTN__HELPER void ATTN__V(dots_of_codes)(const int R, const int C, const attn__product *p, int64_t j, int64_t k,
                                         float *scales)
{
    const char *from = p->groups[j/ATTN__GROUP] + j%ATTN__GROUP*p->b_row;
    const int64_t a_row = R > 1 ? 1 : 0, group = ATTN__CODES_PER_SCALE;
    ATTN__VEC acc[8], x[ATTN__LANES], y, scale;                 /* R*C at most */
    int64_t at, n;
    int i, e, r;
    for (n = 0; n < C*ATTN__RUN; n += 4*ATTN__LANES) {
        if ((k + n) % (4*group) == 0) ATTN__V(turn_scales)(scales + (k + n)/group % 8*ATTN__GROUP, p, j, k + n);
        ATTN__V(transpose_rows)(x, from + k + n, p->b_row);
        ATTN__V(prefetch_matrix)(p, from, k + n, 1, ATTN__LANES*ATTN__LANES/16);
        ATTN__EACH(i, ATTN__LANES) ATTN__STORE(p->columns + (n/4 + i)*ATTN__LANES, x[i]);
    }
    ATTN__EACH(i, R*C) acc[i] = ATTN__ALL(0.0f);
    for (n = 0; n < ATTN__RUN; n += 4) ATTN__EACH(i, C) {
        at = k + i*ATTN__RUN + n;
        scale = ATTN__LOAD(scales + at/group % 8*ATTN__GROUP);
        x[0] = ATTN__LOAD(p->columns + (i*ATTN__RUN + n)/4*ATTN__LANES);
        ATTN__EACH(e, 4) {
            y = ATTN__V(element)(x[0], e, ATTN_I8, scale);
            ATTN__EACH(r, R) acc[i*R + r] = ATTN__FMA_ONE(ATTN__ONE(p->a[(at + e)*p->a_k + r*a_row]), y, acc[i*R + r]);
        }
    }
    ATTN__EACH(r, R) if (r < p->rows) {
        float *c = p->c + r*p->c_row + j;
        y = acc[r];
        if (k) y = ATTN__ADD(ATTN__LOAD(c), y);
        ATTN__EACH(i, C) if (i) y = ATTN__ADD(y, acc[i*R + r]);
        ATTN__STORE(c, y);
    }
}

/* All of them; one chain at a time what C chains leave over. */
#define ATTN__DOTS_OF_CODES(R, C) \
    ATTN__NOINLINE ATTN__KERNEL void ATTN__V(dots_of_codes_##R)(const attn__product *p, int64_t columns) \
    { \
        float scales[8*ATTN__GROUP];            /* of 256 columns */ \
        int64_t j, k; \
        for (j = 0; j < columns; j += ATTN__LANES) { \
            for (k = 0; k + C*ATTN__RUN <= p->depth; k += C*ATTN__RUN) ATTN__V(dots_of_codes)(R, C, p, j, k, scales); \
            for (; C > 1 && k < p->depth; k += ATTN__RUN) ATTN__V(dots_of_codes)(R, 1, p, j, k, scales); \
        } \
    }
ATTN__DOTS_OF_CODES(1, 4) ATTN__DOTS_OF_CODES(4, 2)
#undef ATTN__DOTS_OF_CODES
#endif

/* LANES rows from j on become the columns k .. end, SHARED_ROWS apart; those after the last step for a whole group. */
ATTN__HELPER void ATTN__V(columns_of_lanes)(const attn__product *p, int64_t j, int64_t k, int64_t end, float *to,
                                            const int32_t type)
{
    const int64_t size = ATTN__SIZE_OF(type), row = p->b_row*size, step = ATTN__STEP_OF(type)/size;
    const int64_t four[4] = {0, 4*row, 8*row, 12*row};
    const int E = ATTN__NUMBERS_OF(type), numbers = (int)step, in_order = ATTN__V(in_order)(0, p, size);
    const int matrix = type != ATTN_I8 && p->b_group > ATTN__GROUP;
    const char *from = p->groups[j/ATTN__GROUP] + j%ATTN__GROUP*row;
    ATTN__VEC x[ATTN__LANES], scale = ATTN__ALL(0.0f);
    const int64_t past = k % (4*ATTN__CODES_PER_SCALE);         /* not 0 where a run begins amid 128 columns */
    float scales[4*ATTN__GROUP];
    int n;
    if (type == ATTN_I8 && past) ATTN__V(turn_scales)(scales, p, j, k - past);
    if (matrix && type == ATTN_F32 && !(((uintptr_t)from | (uintptr_t)row) % sizeof x[0]))
        for (; k + ATTN__LANES <= end; k += ATTN__LANES, to += ATTN__LANES*ATTN__SHARED_ROWS) {
            ATTN__V(transpose_rows)(x, from + k*size, row);
            ATTN__V(prefetch_matrix)(p, from, k, size, ATTN__LANES*ATTN__LANES/16);
            ATTN__EACH(n, ATTN__LANES) ATTN__STORE(to + n*ATTN__SHARED_ROWS, x[n]);
        }
    for (; k + step <= end; k += step) {
        if (type == ATTN_I8) scale = ATTN__V(scale_of_step)(scales, p, j, k, scale);
        ATTN__V(transpose_step)(x, from + k*size, row, four, type);
        if (matrix) ATTN__V(prefetch_matrix)(p, from, k, size, ATTN__LANES*ATTN__STEP_OF(type)/64);
        else if (in_order && j % ATTN__GROUP == 0) ATTN__V(prefetch_groups)(0, p, j, k*size, type);
        ATTN__EACH(n, numbers) ATTN__STORE(to + n*ATTN__SHARED_ROWS, ATTN__V(element)(x[n/E], n%E, type, scale));
        if (!in_order && j % ATTN__GROUP == 0 && k*size % 64 == 0) ATTN__V(prefetch_lines)(p, j, k*size, size);
        to += numbers*ATTN__SHARED_ROWS;
    }
    if (j % ATTN__GROUP == 0) for (; k < end; k++, to += ATTN__SHARED_ROWS) ATTN__V(column_of_b)(p, j, k, to);
}

/* SHARED_ROWS rows from j on, times several rows, by way of p->columns, [ATTN__RUN][ATTN__SHARED_ROWS]. */
ATTN__HELPER void ATTN__V(dots_by_columns)(const attn__product *p, int64_t j, const int32_t type)
{
    int64_t k, end, i;
    for (k = 0; k < p->depth; k = end) {
        end = attn__min(p->depth, k + ATTN__RUN);
        for (i = 0; i < ATTN__SHARED_ROWS; i += ATTN__LANES)
            ATTN__V(columns_of_lanes)(p, j + i, k, end, p->columns + i, type);
        ATTN__V(dots_of_floats)(p, j, k, end - k);
    }
}

/* A function for each type: in one large one compilers run out of registers. */
#define ATTN__DOTS_OF(name, type) \
    ATTN__NOINLINE ATTN__KERNEL void ATTN__V(dots_##name)(const attn__product *p, int64_t columns) \
    { \
        const int U = type == ATTN_F32 ? 1 : ATTN__SHARED_ROWS/ATTN__GROUP; \
        const int floats = ATTN__TYPES && type != ATTN_I8, pieces = floats && p->b_group < ATTN__GROUP; \
        const int chains = floats && (ATTN__LANES < 16 || type == ATTN_BF16) && \
                           attn__is_row_by_chains(p, ATTN__SIZE_OF(type)); \
        int64_t j; \
        if (pieces) for (j = 0; j < columns; j += U*ATTN__GROUP) ATTN__V(dots_of_groups)(1, U, p, j, type); \
        else if (chains && (p->depth % (2*ATTN__RUN) == 0 || (p->depth % ATTN__RUN == 0 && p->depth > 4*ATTN__RUN))) \
            for (j = 0; j < columns; j += ATTN__LANES) ATTN__V(dots_of_row)(p, j, type); \
        else if (p->rows == 1) for (j = 0; j < columns; j += U*ATTN__GROUP) ATTN__V(dots_of_groups)(0, U, p, j, type); \
        else for (j = 0; j < columns; j += ATTN__SHARED_ROWS) ATTN__V(dots_by_columns)(p, j, type); \
    }
ATTN__DOTS_OF(f32, ATTN_F32)
#if ATTN__TYPES
ATTN__DOTS_OF(f16, ATTN_F16) ATTN__DOTS_OF(bf16, ATTN_BF16) ATTN__DOTS_OF(i8, ATTN_I8)
#endif
ATTN__KERNEL void ATTN__V(dots)(const attn__product *p, int64_t columns)
{
    ATTN_ASSERT(p->a_k == (p->rows == 1 && p->b_group >= ATTN__GROUP ? 1 : ATTN__LANES));
    ATTN_ASSERT(ATTN__TYPES || p->b_type == ATTN_F32);
#if ATTN__LANES == 16 && !defined(ATTN_NO_AVX2)
    /* Of 16 rows a multiple of 4096 bytes apart a first cache holds no line each; f32 and f16 are no slower by 8. */
    if (p->b_type != ATTN_I8 && attn__is_row_by_chains(p, p->b_type == ATTN_F32 ? 4 : 2) &&
        (p->b_type != ATTN_BF16 || p->b_row*2 % ATTN__SAME_SETS == 0)) {
        attn__dots_avx2(p, columns);
        return;
    }
#endif
#if ATTN__TYPES
    if (p->b_type == ATTN_F16) ATTN__V(dots_f16)(p, columns);
    else if (p->b_type == ATTN_BF16) ATTN__V(dots_bf16)(p, columns);
    else if (p->b_type == ATTN_I8 && p->b_group > ATTN__GROUP && p->depth % ATTN__RUN == 0 && p->rows <= 4)
        (p->rows == 1 ? ATTN__V(dots_of_codes_1) : ATTN__V(dots_of_codes_4))(p, columns);
    else if (p->b_type == ATTN_I8) ATTN__V(dots_i8)(p, columns);
    else
#endif
    ATTN__V(dots_f32)(p, columns);
}

/* ---- few rows times rows of any type, in place */
#if ATTN__TYPES
/* N vectors of a row are prefetched. */
ATTN__HELPER void ATTN__V(prefetch_row)(const int N, const char *to1, const char *to2, const int64_t size)
{
    int i;
    ATTN__EACH(i, (N*ATTN__LANES + 15)/16) if (i == 0 || 64*i < N*ATTN__LANES*size) {
        ATTN__PREFETCH(ATTN__V(after)(to1, 64*i));
        if (to2 != to1) ATTN__PREFETCH_FAR(ATTN__V(after)(to2, 64*i));
    }
}

/* The scale of the i-th vector of row k; the last one of a row may have two. */
ATTN__HELPER ATTN__VEC ATTN__V(scale_of)(const int N, const attn__product *p, int64_t k, int64_t first, int i)
{
    const float *scales = p->b_scale + k*p->b_scales;
    float each[ATTN__LANES];
    int x;
    if (p->b_scales == 1) return ATTN__ALL(*scales);
    first += i*ATTN__LANES;
    if (N > 1 || first % ATTN__LANES == 0) return ATTN__ALL(scales[first/ATTN__CODES_PER_SCALE]);
    for (x = 0; x < ATTN__LANES; x++) each[x] = scales[(first + x)/ATTN__CODES_PER_SCALE];
    return ATTN__LOAD(each);
}

/* Do the groups that are prefetched lie one after the other? Then each pass over their columns prefetches a part of
   them in the order of memory, which the machine's own prefetching follows; else the columns that it multiplies. */
ATTN__HELPER int ATTN__V(one_piece)(const attn__product *p, int64_t step)
{
    const int64_t last = (p->depth - 1)/ATTN__GROUP;
    const char *const *ahead = p->groups + p->ahead1;
    return p->b_group > 1 && (uintptr_t)ahead[last] - (uintptr_t)ahead[0] == (uintptr_t)(last*ATTN__GROUP*step);
}

ATTN__HELPER void ATTN__V(skinny_block)(const int R, const int N, const attn__product *p, int64_t row, int64_t column,
                                        const int32_t type)
{
    const int64_t size = ATTN__SIZE_OF(type), step = p->b_row*size, left = p->rows - row;
    const int64_t first = p->b_first + column, part = N*ATTN__LANES*size;
    const char *const *groups = p->groups, *b, *to1, *to2;
    const int in_order = p->b_row == p->vecs*ATTN__LANES && ATTN__V(one_piece)(p, step);
    const float *a[ATTN__SKINNY];
    float *c[ATTN__SKINNY];
    ATTN__VEC acc[16], q[8];            /* R*N and N at most */
    ATTN__FACTOR w;
    int64_t k = 0, end;
    int r, i;
    ATTN__EACH(r, R) a[r] = p->a + (row + (r < left ? r : left - 1))*p->a_row;
    ATTN__EACH(r, R) c[r] = p->c + (row + (r < left ? r : left - 1))*p->c_row + column;
    ATTN__EACH(r, R) ATTN__EACH(i, N) acc[r*N + i] = ATTN__LOAD(c[r] + i*ATTN__LANES);
    for (; k < p->depth; groups++) {
        b = groups[0] + first*size;
        to1 = ATTN__V(after)(groups[p->ahead1], first*size);
        to2 = ATTN__V(after)(p->next ? p->next[k] : groups[p->ahead2], first*size);
        if (in_order) to1 = to2 = ATTN__V(after)(p->groups[p->ahead1], first*size*p->depth + k*part);
        for (end = attn__min(p->depth, k + p->b_group); k < end; k++) {
            ATTN__EACH(i, N) q[i] = ATTN__V(widened)(b + i*ATTN__LANES*size, type);
            if (type == ATTN_I8) ATTN__EACH(i, N) q[i] = ATTN__MUL(q[i], ATTN__V(scale_of)(N, p, k, first, i));
            if (row == 0) ATTN__V(prefetch_row)(N, to1, to2, size);
            ATTN__EACH(r, R) {
                w = ATTN__ONE(a[r][k]);
                ATTN__EACH(i, N) acc[r*N + i] = ATTN__FMA_ONE(w, q[i], acc[r*N + i]);
            }
            b += step;
            to1 = ATTN__V(after)(to1, in_order ? part : step);
            to2 = ATTN__V(after)(to2, in_order ? part : step);
        }
    }
    ATTN__EACH(r, R) ATTN__EACH(i, N) ATTN__STORE(c[r] + i*ATTN__LANES, acc[r*N + i]);
}

/* N vectors from a column on of S of B's rows from the k-th on, which lie together, times their factors. ahead: the
   next rows are brought into the second cache; from memory the machine's own prefetching is slower. */
ATTN__HELPER void ATTN__V(add_rows)(const int S, const int N, const int ahead, const attn__product *p, int64_t k,
                                    int64_t column, const int32_t type)
{
    const int64_t size = ATTN__SIZE_OF(type), step = p->b_row*size;
    const char *b = p->groups[0] + k*step + column*size;
    float *c = p->c + column;
    ATTN__VEC acc[4];
    ATTN__FACTOR w;
    int r, i;
    ATTN__EACH(i, N) acc[i] = ATTN__LOAD(c + i*ATTN__LANES);
    ATTN__EACH(r, S) {
        w = ATTN__ONE(p->a[k + r]);
        ATTN__EACH(i, N) acc[i] = ATTN__FMA_ONE(w, ATTN__V(widened)(b + i*ATTN__LANES*size, type), acc[i]);
        if (ahead) ATTN__EACH(i, (N*ATTN__LANES + 15)/16)
            if (64*i < N*ATTN__LANES*size) ATTN__PREFETCH_FAR(ATTN__V(after)(b, S*step + 64*i));
        b += step;
    }
    ATTN__EACH(i, N) ATTN__STORE(c + i*ATTN__LANES, acc[i]);
}

/* One row times rows that are read whole, four side by side. */
ATTN__HELPER void ATTN__V(add_whole_rows)(const attn__product *p, const int32_t type)
{
    int64_t k, i;
    ATTN_ASSERT(p->rows == 1 && !p->b_first && p->depth <= p->b_group);
    for (k = 0; k + 4 <= p->depth; k += 4) {
        i = 0;
        if (p->fetch) for (; i + 4 <= p->vecs; i += 4) ATTN__V(add_rows)(4, 4, 1, p, k, i*ATTN__LANES, type);
        for (; i + 4 <= p->vecs; i += 4) ATTN__V(add_rows)(4, 4, 0, p, k, i*ATTN__LANES, type);
        for (; i < p->vecs; i++) ATTN__V(add_rows)(4, 1, 0, p, k, i*ATTN__LANES, type);
    }
    for (; k < p->depth; k++) for (i = 0; i < p->vecs; i++) ATTN__V(add_rows)(1, 1, 0, p, k, i*ATTN__LANES, type);
}

#define ATTN__SKINNY_OF(name, type) \
    ATTN__NOINLINE ATTN__KERNEL void ATTN__V(skinny_##name)(const attn__product *p) \
    { \
        int64_t i = 0, r; \
        if (type != ATTN_I8 && p->b_group > ATTN__GROUP) { ATTN__V(add_whole_rows)(p, type); return; } \
        if (p->rows == 1 && (type == ATTN_F32 || ATTN__LANES == 16)) for (; i + 8 <= p->vecs; i += 8) \
            ATTN__V(skinny_block)(1, 8, p, 0, i*ATTN__LANES, type); \
        if (p->rows == 1) for (; i + 4 <= p->vecs; i += 4) \
            ATTN__V(skinny_block)(1, 4, p, 0, i*ATTN__LANES, type); \
        if (ATTN__LANES == ATTN__GROUP && p->rows > ATTN__SKINNY_SHARED) for (; i + 2 <= p->vecs; i += 2) \
            ATTN__V(skinny_block)(ATTN__SKINNY, 2, p, 0, i*ATTN__LANES, type); \
        for (; i + ATTN__VECS <= p->vecs; i += ATTN__VECS) for (r = 0; r < p->rows; r += ATTN__SKINNY_SHARED) \
            ATTN__V(skinny_block)(ATTN__SKINNY_SHARED, ATTN__VECS, p, r, i*ATTN__LANES, type); \
        for (; i < p->vecs; i++) for (r = 0; r < p->rows; r += ATTN__SKINNY_SHARED) \
            ATTN__V(skinny_block)(ATTN__SKINNY_SHARED, 1, p, r, i*ATTN__LANES, type); \
    }
ATTN__SKINNY_OF(f32, ATTN_F32) ATTN__SKINNY_OF(f16, ATTN_F16)
ATTN__SKINNY_OF(bf16, ATTN_BF16) ATTN__SKINNY_OF(i8, ATTN_I8)
ATTN__KERNEL void ATTN__V(skinny)(const attn__product *p)
{
    if (p->b_type == ATTN_F32) ATTN__V(skinny_f32)(p);
    else if (p->b_type == ATTN_F16) ATTN__V(skinny_f16)(p);
    else if (p->b_type == ATTN_BF16) ATTN__V(skinny_bf16)(p);
    else ATTN__V(skinny_i8)(p);
}
#else
ATTN__KERNEL void ATTN__V(skinny)(const attn__product *p) { ATTN_ASSERT(!p->rows); (void)p; }
#endif

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
    ATTN__EACH(g, 4) d[g] = ATTN__FMA(ATTN__LOAD(e + g*ld), ATTN__ALL(f[g]), ATTN__ALL(1.0f));
    ATTN__EACH(g, 4) d[g] = ATTN__MIN(d[g], ATTN__ALL(1073741824.0f));
    n0 = ATTN__FMA(ATTN__ALL(w[0]), d[1], ATTN__MUL(ATTN__ALL(w[1]), d[0]));
    n1 = ATTN__FMA(ATTN__ALL(w[2]), d[3], ATTN__MUL(ATTN__ALL(w[3]), d[2]));
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
#if ATTN__SUMS > 6      /* else it is the multiply-adds that take the time */
                ATTN__UNROLL
#endif
                for (g = 0; g < ATTN__TERMS; g++) {
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
                x = ATTN__ADD(x, ATTN__ALL(p->key[j*p->key_stride + u]));
                x = ATTN__FMA(ATTN__ALL(p->w[u]), ATTN__V(tanh)(x), part[u % ATTN__TERMS]);
                part[u % ATTN__TERMS] = x;
            }
            x = ATTN__MUL(ATTN__ALL(p->scale), ATTN__V(tree)(ATTN__TERMS, part));
            ATTN__STORE(p->s + j*p->ld + ATTN__LANES*i, x);
        }
}

/* ---- weights, and chunks into the whole */
/* Scores of N keys become weights. */
ATTN__HELPER void ATTN__V(softmax_keys)(const int N, float *s, int64_t ld, ATTN__VEC base, int mark, ATTN__VEC *part)
{
    ATTN__VEC x[4];
    int u;
    ATTN__EACH(u, N) x[u] = ATTN__SUB(ATTN__LOAD(s + u*ld), base);
    ATTN__V(exp_cut)(N, x);
    ATTN__EACH(u, N) {
        if (mark) x[u] = ATTN__PICK(ATTN__V(quiet)(x[u]), ATTN__ALL(-0.0f),
                                    ATTN__SAME(ATTN__LOAD(s + u*ld), ATTN__ALL(ATTN__NEG_INF)));
        ATTN__STORE(s + u*ld, x[u]);
        part[u] = ATTN__ADD(part[u], x[u]);
    }
}

/* Whole groups of 16 keys, each with its own sum, go four at a time. */
ATTN__KERNEL void ATTN__V(softmax_lanes)(float *s, int64_t ld, int64_t j0, int64_t j1, int known, int mark, float *top,
                                         float *sum)
{
    const ATTN__VEC none = ATTN__ALL(ATTN__NEG_INF);
    ATTN__VEC m, base, part[ATTN__PARTS], largest[4];
    int64_t j;
    int r, u;
    ATTN__EACH(u, 4) largest[u] = none;
    if (known) largest[0] = ATTN__LOAD(top);
    for (j = known ? j1 : j0; j + 4 <= j1; j += 4)
        ATTN__EACH(u, 4) largest[u] = ATTN__MAX(ATTN__LOAD(s + (j + u)*ld), largest[u]);
    for (; j < j1; j++) largest[0] = ATTN__MAX(ATTN__LOAD(s + j*ld), largest[0]);
    m = ATTN__MAX(ATTN__MAX(largest[0], largest[1]), ATTN__MAX(largest[2], largest[3]));
    m = ATTN__V(plus_zero)(m);
    base = ATTN__CLEAR(m, ATTN__SAME(m, none));
    ATTN__EACH(r, ATTN__PARTS) part[r] = ATTN__ALL(0.0f);
    for (j = j0; j < j1;) {
        r = (int)((uint64_t)j % ATTN__PARTS);
        if (r > 0 || j + ATTN__PARTS > j1 || mark) {
            ATTN__V(softmax_keys)(1, s + j*ld, ld, base, mark, part + r);
            j++;
        } else for (; r < ATTN__PARTS; r += 4, j += 4) ATTN__V(softmax_keys)(4, s + j*ld, ld, base, 0, part + r);
    }
    ATTN__STORE(top, m);
    ATTN__STORE(sum, ATTN__V(tree)(ATTN__PARTS, part));
}

/* Infinite or NaN, whatever the compiler believes of floats. */
ATTN__HELPER ATTN__MASK ATTN__V(nonfinite)(ATTN__VEC x)
{
    return ATTN__ABOVE(ATTN__AND(x, ATTN__ALL_BITS(0x7fffffff)), ATTN__ALL_BITS(0x7f7fffff));
}

/* Whether what was before, at most e^-128 of what is now, comes to nothing in every lane: so it is in a first chunk. */
ATTN__HELPER int ATTN__V(outweighs)(ATTN__VEC now, ATTN__VEC before)
{
    const ATTN__MASK little = ATTN__LESS(ATTN__SUB(before, now), ATTN__ALL(-128.0f));
    return !ATTN__ANY(ATTN__EITHER(ATTN__V(nonfinite)(now), ATTN__NEGATIVE(ATTN__CLEAR(ATTN__ALL(-0.0f), little))));
}

ATTN__KERNEL void ATTN__V(join)(int64_t lanes, float *top, float *sum, const float *cmax, const float *csum, float *old,
                                float *fresh)
{
    int64_t i;
    for (i = 0; i < lanes; i += ATTN__LANES) {
        const ATTN__VEC before = ATTN__LOAD(top + i), now = ATTN__LOAD(cmax + i), m = ATTN__MAX(now, before);
        const ATTN__VEC base = ATTN__CLEAR(m, ATTN__SAME(m, ATTN__ALL(ATTN__NEG_INF)));
        ATTN__VEC x = ATTN__ALL(0.0f), y = ATTN__ALL(1.0f);
        if (!ATTN__V(outweighs)(now, before)) {         /* else these are the exponentials */
            x = ATTN__V(exp)(ATTN__SUB(before, base));
            y = ATTN__V(exp)(ATTN__SUB(now, base));
        }
        ATTN__STORE(old + i, x);
        ATTN__STORE(fresh + i, y);
        ATTN__STORE(sum + i, ATTN__FMA(ATTN__LOAD(csum + i), y, ATTN__MUL(ATTN__LOAD(sum + i), x)));
        ATTN__STORE(top + i, m);
    }
}

ATTN__KERNEL void ATTN__V(invert)(const float *x, float *y, int64_t n)
{
    int64_t i;
    for (i = 0; i < n; i += ATTN__LANES) {
        const ATTN__VEC v = ATTN__LOAD(x + i);
        ATTN__STORE(y + i, ATTN__CLEAR(ATTN__DIV(ATTN__ALL(1.0f), v), ATTN__SAME(v, ATTN__ALL(0.0f))));
    }
}

/* ---- rows into lanes and back */
/* Blocks of LANES rows and as many columns are transposed in registers, while what is read 64 columns later, of these
   rows or those below, is fetched; what is left, or does not lie side by side, goes column by column. */
ATTN__KERNEL void ATTN__V(pack)(float *to, int64_t ld, const float *const *rows, int64_t stride, int64_t n,
                                const float *scale)
{
    float column[ATTN__LANES];
    ATTN__VEC r[ATTN__LANES];
    int64_t i, c;
    int x;
    for (i = 0; i < ld; i += ATTN__LANES) {
        for (c = 0; stride == 1 && c + ATTN__LANES <= n; c += ATTN__LANES) {
            if (c % 16 == 0) {
                const int64_t next = c + 64 < n ? i : i + ATTN__LANES;
                const int64_t later = n <= 64 ? c : next == i ? c + 64 : c + 64 - n;
                if (next < ld) ATTN__EACH(x, ATTN__LANES) ATTN__PREFETCH(rows[next + x] + later);
            }
            ATTN__EACH(x, ATTN__LANES) r[x] = ATTN__LOAD(rows[i + x] + c);
            ATTN__V(transpose)(r);
            ATTN__EACH(x, ATTN__LANES) ATTN__STORE(to + (c + x)*ld + i, ATTN__MUL(r[x], ATTN__LOAD(scale + i)));
        }
        for (; c < n; c++) {
            for (x = 0; x < ATTN__LANES; x++) column[x] = rows[i + x][c*stride];
            ATTN__STORE(to + c*ld + i, ATTN__MUL(ATTN__LOAD(column), ATTN__LOAD(scale + i)));
        }
    }
}

ATTN__KERNEL void ATTN__V(unpack)(float *const *rows, int64_t lanes, int64_t stride, const float *from, int64_t ld,
                                  int64_t n, const float *scale)
{
    float column[ATTN__LANES];
    ATTN__VEC r[ATTN__LANES];
    int64_t i, c;
    int x;
    for (i = 0; i < lanes; i += ATTN__LANES) {
        for (c = 0; stride == 1 && c + ATTN__LANES <= n; c += ATTN__LANES) {
            ATTN__EACH(x, ATTN__LANES)
                r[x] = ATTN__V(quiet)(ATTN__MUL(ATTN__LOAD(from + (c + x)*ld + i), ATTN__LOAD(scale + i)));
            ATTN__V(transpose)(r);
            if (i + ATTN__LANES <= lanes) ATTN__EACH(x, ATTN__LANES) ATTN__STORE(rows[i + x] + c, r[x]);
            else for (x = 0; i + x < lanes; x++) ATTN__STORE(rows[i + x] + c, r[x]);
        }
        for (; c < n; c++) {
            ATTN__STORE(column, ATTN__V(quiet)(ATTN__MUL(ATTN__LOAD(from + c*ld + i), ATTN__LOAD(scale + i))));
            for (x = 0; x < ATTN__LANES && i + x < lanes; x++) rows[i + x][c*stride] = column[x];
        }
    }
}

/* -inf excludes whatever it is added to; keep: a score of -inf does, too */
ATTN__HELPER ATTN__VEC ATTN__V(add_bias)(float *s, ATTN__VEC bias, const int keep)
{
    const ATTN__VEC v = ATTN__LOAD(s), none = ATTN__ALL(ATTN__NEG_INF);
    ATTN__MASK out = ATTN__SAME(bias, none);
    ATTN__VEC x;
    if (keep) out = ATTN__EITHER(out, ATTN__SAME(v, none));
    x = ATTN__PICK(ATTN__ADD(v, bias), none, out);
    ATTN__STORE(s, x);
    return x;
}

/* LANES rows of as many words become columns, in memory: where turning is not what takes the time, in one place. */
ATTN__NOINLINE ATTN__KERNEL void ATTN__V(transpose_block)(float *to, const void *const *rows)
{
    ATTN__VEC r[ATTN__LANES];
    int x;
    ATTN__EACH(x, ATTN__LANES) r[x] = ATTN__LOAD_BITS(rows[x]);
    ATTN__V(transpose)(r);
    ATTN__EACH(x, ATTN__LANES) ATTN__STORE(to + ATTN__LANES*x, r[x]);
}

/* Rows of biases become columns a block at a time. The first block ends where the first row meets a multiple of a
   vector's size, and so do all rows of a stride that is one: after it no vector lies in two lines of the cache, which
   would both be brought in twice, as rows 2^n bytes apart push each other out. The last block begins within the one
   before it, so that it reads nothing after the rows. */
ATTN__KERNEL void ATTN__V(bias)(float *s, int64_t ld, int64_t n, const float *const *rows, int64_t stride, int keep,
                                float *top)
{
    float block[ATTN__LANES * ATTN__LANES], *to;
    const void *from[ATTN__LANES];
    ATTN__VEC m[4], r[ATTN__LANES];
    int64_t i, j, at, end, past;
    int x, k;
    for (i = 0; i < ld; i += ATTN__LANES) {
        ATTN__EACH(k, 4) m[k] = ATTN__ALL(ATTN__NEG_INF);
        for (j = 0; stride == 1 && n >= ATTN__LANES && j < n; j = end) {
            past = j ? 0 : (int64_t)((uintptr_t)rows[i] / sizeof *rows[i] % ATTN__LANES);
            end = attn__min(n, j + ATTN__LANES - past);
            at = attn__min(j, n - ATTN__LANES);
            ATTN__EACH(x, ATTN__LANES) from[x] = rows[i + x] + at;
            for (x = 0; x < ATTN__LANES; x++) ATTN__PREFETCH(attn__ahead(rows[i + x] + at, 1, ATTN__CHUNK / 4));
            if (keep || end - j < ATTN__LANES) {
                ATTN__V(transpose_block)(block, from);
                for (; j < end; j++) {
                    const ATTN__VEC bias = ATTN__LOAD(block + ATTN__LANES*(j - at));
                    m[0] = ATTN__MAX(ATTN__V(add_bias)(s + j*ld + i, bias, keep), m[0]);
                }
                continue;
            }
            to = s + j*ld + i;
            ATTN__EACH(x, ATTN__LANES) r[x] = ATTN__LOAD_BITS(from[x]);
            ATTN__V(transpose)(r);
            ATTN__EACH(x, ATTN__LANES) {
                r[x] = ATTN__V(add_bias)(to, r[x], 0);
                to += ld;
            }
            if (top) ATTN__EACH(x, ATTN__LANES) m[x % 4] = ATTN__MAX(r[x], m[x % 4]);
        }
        for (x = 1; j < n && x < ATTN__LANES && rows[i + x] == rows[i] + x;) x++;      /* are lanes side by side? */
        for (; x == ATTN__LANES && j < n; j++)
            m[0] = ATTN__MAX(ATTN__V(add_bias)(s + j*ld + i, ATTN__LOAD(rows[i] + j*stride), keep), m[0]);
        for (; j < n; j++) {
            for (x = 0; x < ATTN__LANES; x++) block[x] = rows[i + x][j*stride];
            m[0] = ATTN__MAX(ATTN__V(add_bias)(s + j*ld + i, ATTN__LOAD(block), keep), m[0]);
        }
        if (!top) continue;
        m[0] = ATTN__MAX(ATTN__MAX(m[0], m[1]), ATTN__MAX(m[2], m[3]));
        ATTN__STORE(top + i, ATTN__MAX(m[0], ATTN__LOAD(top + i)));
    }
}

/* Four keys to a word, as they lie. A copy of less than LANES words, or where bytes do not lie side by side. */
ATTN__KERNEL void ATTN__V(exclude)(float *s, int64_t ld, int64_t n, const uint8_t *const *rows, int64_t stride)
{
    enum { KEYS = 4 * ATTN__LANES };
    static const uint8_t keys[4][4] = {{255, 0, 0, 0}, {0, 255, 0, 0}, {0, 0, 255, 0}, {0, 0, 0, 255}};
    float block[ATTN__LANES * ATTN__LANES], *at;
    uint8_t copy[ATTN__LANES][KEYS] = {{0}};
    const void *from[ATTN__LANES];
    const ATTN__VEC none = ATTN__ALL(ATTN__NEG_INF);
    ATTN__VEC key[4], word;
    uint32_t bits;
    int64_t i, j, k, left;
    int x;
    ATTN__EACH(x, 4) {
        ATTN__COPY(&bits, keys[x], sizeof bits);
        key[x] = ATTN__ALL_BITS(bits);
    }
    for (i = 0; i < ld; i += ATTN__LANES)
        for (j = 0; j < n; j += KEYS) {
            left = attn__min(n - j, KEYS);
            for (x = 0; x < ATTN__LANES; x++) {
                const uint8_t *row = rows[i + x] + j*stride;
                from[x] = stride == 1 && left == KEYS ? row : copy[x];
                if (from[x] == row) continue;
                for (k = 0; stride == 1 && k + 16 <= left; k += 16) ATTN__COPY(copy[x] + k, row + k, 16);
                for (; k < left; k++) copy[x][k] = row[k*stride];
            }
            ATTN__V(transpose_block)(block, from);
            for (at = s + j*ld + i, k = 0; k < left; k += 4) {
                word = ATTN__LOAD(block + k/4*ATTN__LANES);
                ATTN__EACH(x, 4) {
                    if (x && k + x >= left) break;
                    ATTN__STORE(at, ATTN__PICK(ATTN__LOAD(at), none, ATTN__NOTHING(ATTN__AND(word, key[x]))));
                    at += ld;
                }
            }
        }
}

/* ---- number by number: functions, score transforms, masks */
/* The numbers x[0] .. x[n - 1], at most LANES of them, the others 0; and back. Fewer are rare: not inlined. */
ATTN__NOINLINE ATTN__KERNEL ATTN__VEC ATTN__V(take_some)(const float *x, int64_t n)
{
    float some[ATTN__LANES];
    int64_t i;
    for (i = 0; i < ATTN__LANES; i++) some[i] = i < n ? x[i] : 0.0f;
    return ATTN__LOAD(some);
}

ATTN__NOINLINE ATTN__KERNEL void ATTN__V(give_some)(float *x, int64_t n, ATTN__VEC v)
{
    float some[ATTN__LANES];
    int64_t i;
    ATTN__STORE(some, v);
    for (i = 0; i < n; i++) x[i] = some[i];
}

ATTN__HELPER ATTN__VEC ATTN__V(take)(const float *x, int64_t n)
{
    return n >= ATTN__LANES ? ATTN__LOAD(x) : ATTN__V(take_some)(x, n);
}

ATTN__HELPER void ATTN__V(give)(float *x, int64_t n, ATTN__VEC v)
{
    if (n >= ATTN__LANES) ATTN__STORE(x, v);
    else ATTN__V(give_some)(x, n, v);
}

ATTN__KERNEL void ATTN__V(elementary)(int32_t function, const float *x, float *y, int64_t n)
{
    int64_t i = 0;
    for (; function == 0 && i < n; i += ATTN__LANES)        /* a loop of its own: additive scores wait for it */
        ATTN__V(give)(y + i, n - i, ATTN__V(exp_full)(ATTN__V(take)(x + i, n - i)));
    for (; i < n; i += ATTN__LANES) {
        const ATTN__VEC v = ATTN__V(take)(x + i, n - i);
        ATTN__V(give)(y + i, n - i, function == 1 ? ATTN__V(log)(v) : ATTN__V(tanh)(v));
    }
}

ATTN__KERNEL int ATTN__V(finite)(const float *x, int64_t n)
{
    ATTN__MASK bad = ATTN__V(nonfinite)(ATTN__ALL(0.0f));
    int64_t i = 0;
    for (; i + ATTN__LANES <= n; i += ATTN__LANES) bad = ATTN__EITHER(bad, ATTN__V(nonfinite)(ATTN__LOAD(x + i)));
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
            y = ATTN__PICK(y, ATTN__ALL(ATTN__NEG_INF), ATTN__LESS(one, u));
            ATTN__STORE(s + i, ATTN__PICK(u, y, ATTN__SAME(u, u)));
        }
}

ATTN__KERNEL void ATTN__V(alibi)(float *s, int64_t ld, int64_t j0, int64_t j1, const float *slope,
                                 const float *position)
{
    int64_t j, i;
    for (j = j0; j < j1; j++, s += ld)
        for (i = 0; i < ld; i += ATTN__LANES) {
            const ATTN__VEC d = ATTN__SUB(ATTN__LOAD(position + i), ATTN__ALL((float)j));
            const ATTN__VEC falls = ATTN__XOR(ATTN__LOAD(slope + i), ATTN__ALL(-0.0f));
            ATTN__STORE(s + i, ATTN__FMA(falls, ATTN__AND(d, ATTN__ALL_BITS(0x7fffffff)), ATTN__LOAD(s + i)));
        }
}

ATTN__KERNEL void ATTN__V(clip)(float *s, int64_t ld, int64_t lanes, int64_t j0, int64_t j1, const int32_t *first,
                                const int32_t *last, float *top)
{
    const ATTN__VEC none = ATTN__ALL(ATTN__NEG_INF);
    int64_t j, i;
    for (i = 0; i < lanes; i += ATTN__LANES) {
        const ATTN__VEC from = ATTN__LOAD_BITS(first + i), to = ATTN__LOAD_BITS(last + i);
        ATTN__VEC m = top ? ATTN__LOAD(top + i) : none, x;
        for (j = j0; j < j1; j++) {
            x = ATTN__PICK(none, ATTN__LOAD(s + j*ld + i), ATTN__ABOVE(to, ATTN__ALL_BITS(j)));
            x = ATTN__PICK(x, none, ATTN__ABOVE(from, ATTN__ALL_BITS(j)));
            m = ATTN__MAX(x, m);
            ATTN__STORE(s + j*ld + i, x);
        }
        if (top) ATTN__STORE(top + i, m);
    }
}

/* ---- rows that lie as they are */
ATTN__KERNEL void ATTN__V(exclude_in_row)(const float *x, float *y, int64_t n, const uint8_t *row, int64_t stride)
{
    int64_t j = 0;
    for (; stride == 1 && j + ATTN__LANES <= n; j += ATTN__LANES)
        ATTN__STORE(y + j, ATTN__PICK(ATTN__LOAD(x + j), ATTN__ALL(ATTN__NEG_INF),
                                      ATTN__NOTHING(ATTN__LOAD_BYTES(row + j))));
    for (; j < n; j++) y[j] = row[j*stride] ? x[j] : ATTN__NEG_INF;
}

/* All chunks in each of four steps: what one chunk waits for another has at hand. */
ATTN__KERNEL void ATTN__V(softmax_row)(const float *x, float *y, int64_t chunks, int64_t n, float scale, float *top,
                                       float *sum)
{
    enum { VECS = ATTN__PARTS / ATTN__LANES };
    const ATTN__VEC by = ATTN__ALL(scale);
    float part[ATTN__PARTS][ATTN__PARTS];
    ATTN__VEC m, base, sums[VECS];
    int64_t c, j;
    int r;
    for (c = 0; c < chunks; c++) {
        m = ATTN__ALL(ATTN__NEG_INF);
        for (j = 0; j < n; j += ATTN__LANES) m = ATTN__MAX(ATTN__MUL(ATTN__LOAD(x + c*ATTN__CHUNK + j), by), m);
        ATTN__STORE(part[c], m);
    }
    for (c = 0; c < chunks; c++) {
        for (top[c] = part[c][0], r = 1; r < ATTN__LANES; r++) top[c] = attn__larger(part[c][r], top[c]);
        top[c] = attn__plus_zero(top[c]);
    }
    for (c = 0; c < chunks; c++) {
        base = ATTN__ALL(attn__is_none(top[c]) ? 0.0f : top[c]);
        ATTN__EACH(r, VECS) sums[r] = ATTN__ALL(0.0f);
        for (j = c*ATTN__CHUNK; j < c*ATTN__CHUNK + n; j += ATTN__PARTS)
            ATTN__EACH(r, VECS) {
                m = ATTN__SUB(ATTN__MUL(ATTN__LOAD(x + j + r*ATTN__LANES), by), base);
                m = ATTN__V(exp)(m);
                if (y) ATTN__STORE(y + j + r*ATTN__LANES, m);
                else ATTN__PREFETCH(attn__ahead(x + j + r*ATTN__LANES, chunks, ATTN__CHUNK));  /* the next row? */
                sums[r] = ATTN__ADD(sums[r], m);
            }
        ATTN__EACH(r, VECS) ATTN__STORE(part[c] + r*ATTN__LANES, sums[r]);
    }
    for (c = 0; c < chunks; c++) sum[c] = attn__tree(part[c], ATTN__PARTS);
}

/* No score is above top, and factor is at most 1 or NaN: so one cut below 2^-126 is enough. What does not fill a vector
   goes through a whole one. */
ATTN__KERNEL void ATTN__V(normalise)(const float *x, float *y, int64_t n, float scale, float top,
                                     float factor)
{
    const ATTN__VEC by = ATTN__ALL(scale), base = ATTN__ALL(top), times = ATTN__ALL(factor);
    const int nonfinite = attn__is_nan(factor);
    float some[ATTN__LANES];
    ATTN__VEC v, w;
    ATTN__MASK none;
    int64_t i = 0, left;
    for (; i + ATTN__LANES <= n; i += ATTN__LANES) {
        v = ATTN__MUL(ATTN__LOAD(x + i), by);
        w = ATTN__SUB(v, base);
        ATTN__V(exp_side_by_side)(1, &w);
        w = ATTN__MUL(w, times);
        none = ATTN__LESS(w, ATTN__ALL(attn__smallest));
        if (nonfinite) {
            none = ATTN__EITHER(none, ATTN__SAME(v, ATTN__ALL(ATTN__NEG_INF)));
            w = ATTN__V(quiet)(w);
        }
        ATTN__STORE(y + i, ATTN__CLEAR(w, none));
    }
    left = n - i;
    if (left <= 0) return;
    ATTN__STORE(some, ATTN__V(take_some)(x + i, left));
    ATTN__V(normalise)(some, some, ATTN__LANES, scale, top, factor);
    ATTN__V(give_some)(y + i, left, ATTN__LOAD(some));
}

/* ---- dropout */
/* LANES counters at a time, those of as many lanes and the same four keys: as two sets, of the even and the odd lanes,
   each number in the lower half of 64 bits, where products leave theirs; what the upper halves hold does not matter. */
ATTN__HELPER void ATTN__V(philox)(const ATTN__VEC *k0, const ATTN__VEC *k1, ATTN__VEC w[2][4])
{
    const ATTN__VEC m0 = ATTN__ALL_BITS(0xd2511f53u), m1 = ATTN__ALL_BITS(0xcd9e8d57u);
    ATTN__VEC p0, p1;
    int round, half;
    for (round = 0; round < 10; round++) ATTN__EACH(half, 2) {
        p0 = ATTN__MULTIPLY_EVEN(w[half][0], m0);
        p1 = ATTN__MULTIPLY_EVEN(w[half][2], m1);
        w[half][0] = ATTN__XOR(ATTN__XOR(ATTN__ODD(p1), w[half][1]), k0[round]);
        w[half][2] = ATTN__XOR(ATTN__XOR(ATTN__ODD(p0), w[half][3]), k1[round]);
        w[half][1] = p1;
        w[half][3] = p0;
    }
}

ATTN__KERNEL void ATTN__V(dropout)(const attn__dropout *d)
{
    const ATTN__VEC sign = ATTN__ALL(-0.0f);            /* turned, it lets integers without a sign compare with one */
    const ATTN__VEC below = ATTN__XOR(ATTN__ALL_BITS((uint32_t)d->below), sign);
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
            ATTN__EACH(x, 4) w[0][x] = ATTN__XOR(ATTN__EVENS(w[0][x], w[1][x]), sign);
            do {
                float *s = d->s + j*d->ld + l;
                const ATTN__VEC v = ATTN__LOAD(s);
                ATTN__VEC kept = ATTN__CLEAR(v, ATTN__ABOVE(below, w[0][key % 4]));
                if (all) kept = ATTN__XOR(kept, kept);
                ATTN__STORE(s, ATTN__PICK(kept, v, ATTN__NEGATIVE(v)));
                j++;
                key++;
            } while (key % 4 && j < d->j1);
        }
}

ATTN__KERNEL void ATTN__V(scale_store)(const float *from, float *to, int64_t n, float factor, int add)
{
    int64_t c;
    for (c = 0; c < n; c += ATTN__LANES) {
        ATTN__VEC x = ATTN__V(take)(from + c, n - c);
        if (add) x = ATTN__FMA(x, ATTN__ALL(factor), ATTN__V(take)(to + c, n - c));
        else x = ATTN__MUL(x, ATTN__ALL(factor));
        ATTN__V(give)(to + c, n - c, ATTN__V(quiet)(x));
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

/* N keys, step by step. No score is above its base, the maximum, and 1/mass is at most 1: so one cut below 2^-126 is
   enough. plain: there is neither keep nor more. */
ATTN__HELPER void ATTN__V(softmax_backward_keys)(const int N, int plain, const attn__softmax_grad *g, int64_t j,
                                                 int64_t l, ATTN__VEC base, ATTN__VEC inverse, ATTN__VEC shift)
{
    const int64_t ld = g->ld, row = g->row, at = j*ld + l;
    const float *s = g->s + at, *dps = g->dp + at;
    float *ps = g->p + j*row + l, *ds = g->ds ? g->ds + j*row + l : NULL;
    ATTN__VEC x[4], p, dp, keep;
    int u;
    ATTN__EACH(u, N) x[u] = ATTN__SUB(ATTN__LOAD(s + u*ld), base);
    ATTN__V(exp_side_by_side)(N, x);
    ATTN__EACH(u, N) {
        const ATTN__MASK out = ATTN__SAME(ATTN__LOAD(s + u*ld), ATTN__ALL(ATTN__NEG_INF));
        dp = ATTN__LOAD(dps + u*ld);
        x[u] = ATTN__MUL(x[u], inverse);
        p = x[u] = ATTN__CLEAR(x[u], ATTN__LESS(x[u], ATTN__ALL(attn__smallest)));
        if (!plain) {
            keep = g->keep ? ATTN__LOAD(g->keep + at + u*ld) : ATTN__ALL(1.0f);
            dp = ATTN__FMA(dp, keep, g->more ? ATTN__LOAD(g->more + at + u*ld) : ATTN__ALL(0.0f));
            p = ATTN__CLEAR(ATTN__MUL(x[u], keep), ATTN__SAME(keep, ATTN__ALL(0.0f)));
        }
        ATTN__STORE(ps + u*row, ATTN__PICK(p, ATTN__ALL(-0.0f), out));
        if (ds) ATTN__STORE(ds + u*row, ATTN__CLEAR(ATTN__MUL(x[u], ATTN__SUB(dp, shift)), out));
    }
}

/* Whole lines of the cache are written past it, which spares reading them first; the fence, for whoever is told that
   the task is done. */
ATTN__KERNEL void ATTN__V(scale_store_far)(const float *from, int64_t row, float *const *rows, int64_t count, int64_t n)
{
    int64_t r, c;
    for (r = 0; r < count; r++, from += row) {
        float *to = rows[r];
        c = 0;
#ifdef ATTN__STREAM
        c = attn__min((int64_t)((0 - (uintptr_t)to) % 64 / sizeof *to), n);
        ATTN__COPY(to, from, (size_t)c * sizeof *to);
        for (; c + 16 <= n; c += 16) {
            ATTN__STREAM(to + c, from + c);
            ATTN__STREAM(to + c + 8, from + c + 8);
        }
        if (c < n) ATTN__PREFETCH_FAR(attn__ahead(to + c, 1, n));   /* the line that the next block ends in */
#endif
        ATTN__COPY(to + c, from + c, (size_t)(n - c) * sizeof *to);
    }
#ifdef ATTN__STREAM
    _mm_sfence();
#endif
}

ATTN__KERNEL void ATTN__V(softmax_backward)(const attn__softmax_grad *g)
{
    const int N = ATTN__SUMS > 12 ? 4 : 2, plain = !g->keep && !g->more;        /* N: as many as registers hold */
    int64_t j, l;
    for (l = 0; l < g->lanes; l += ATTN__LANES) {
        const ATTN__VEC base = ATTN__LOAD(g->base + l), inverse = ATTN__LOAD(g->inverse + l);
        const ATTN__VEC shift = ATTN__LOAD(g->shift + l);
        for (j = 0; j + N <= g->rows; j += N) ATTN__V(softmax_backward_keys)(N, plain, g, j, l, base, inverse, shift);
        for (; j < g->rows; j++) ATTN__V(softmax_backward_keys)(1, plain, g, j, l, base, inverse, shift);
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
                r = ATTN__DIV(minus_one, ATTN__FMA(ATTN__LOAD(e + u*ld), ATTN__ALL(f[u]), one));
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

/* LANES rows of part at a time, transposed so that each has its tree in a lane: LANES/4 keys of four u. Beyond the last
   row the first of them again. */
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

/* ---- elements of 16 and 8 bits, row by row */
/* N vectors of a row from column j on, a multiple of N vectors where N is not 1; of codes with the row's scale or,
   grouped, their own ones. */
ATTN__HELPER void ATTN__V(widen_vectors)(const int N, const int32_t type, const int grouped, const char *from,
                                         int64_t j, const float *scales, ATTN__VEC scale, float *to)
{
    const int64_t size = type == ATTN_I8 ? 1 : 2;
    ATTN__VEC x[4];
    int i;
    ATTN__EACH(i, N) {
        x[i] = ATTN__V(widened)(from + (j + i*ATTN__LANES)*size, type);
        if (grouped && i*ATTN__LANES % ATTN__CODES_PER_SCALE == 0)
            scale = ATTN__ALL(scales[(j + i*ATTN__LANES)/ATTN__CODES_PER_SCALE]);
        if (type == ATTN_I8) x[i] = ATTN__MUL(x[i], scale);
    }
    ATTN__EACH(i, N) ATTN__STORE(to + j + i*ATTN__LANES, x[i]);
}

ATTN__HELPER void ATTN__V(widen_rows)(const attn__stored *w, const int32_t type, const int grouped)
{
    const int64_t n = w->n, rows = w->rows, from_row = w->from_row*(type == ATTN_I8 ? 1 : 2), to_row = w->to_row;
    int64_t r, j;
    for (r = 0; r < rows; r++) {
        const char *from = (const char *)w->from + r*from_row;
        const float *scales = type == ATTN_I8 ? w->scale + r*w->scale_row : attn__zeros;
        const ATTN__VEC scale = ATTN__ALL(*scales);
        float *to = w->to + r*to_row;
        for (j = 0; j + 4*ATTN__LANES <= n; j += 4*ATTN__LANES)
            ATTN__V(widen_vectors)(4, type, grouped, from, j, scales, scale, to);
        for (; j < n; j += ATTN__LANES)                                     /* the last ones end with the row */
            ATTN__V(widen_vectors)(1, type, grouped, from, attn__min(j, n - ATTN__LANES), scales, scale, to);
    }
}

ATTN__KERNEL void ATTN__V(widen)(const attn__stored *w)
{
    if (w->n < ATTN__LANES) attn__widen_scalar(w);
    else if (w->type == ATTN_F16) ATTN__V(widen_rows)(w, ATTN_F16, 0);
    else if (w->type == ATTN_BF16) ATTN__V(widen_rows)(w, ATTN_BF16, 0);
    else if (w->grouped) ATTN__V(widen_rows)(w, ATTN_I8, 1);
    else ATTN__V(widen_rows)(w, ATTN_I8, 0);
}

ATTN__KERNEL void ATTN__V(round)(const float *from, int32_t type, attn__half *to, int64_t n)
{
    int64_t j;
    for (j = 0; j <= n - ATTN__LANES; j += ATTN__LANES)
        if (type == ATTN_BF16) ATTN__V(store_bf16)(to + j, ATTN__LOAD(from + j));
        else ATTN__STORE_F16(to + j, ATTN__LOAD(from + j));
    if (j < n) attn__round_scalar(from + j, type, to + j, n - j);
}

/* The larger ones, as integers: none is negative. */
ATTN__HELPER ATTN__VEC ATTN__V(larger)(ATTN__VEC a, ATTN__VEC b) { return ATTN__PICK(a, b, ATTN__ABOVE(b, a)); }
ATTN__HELPER ATTN__VEC ATTN__V(sizes)(const float *x) { return ATTN__AND(ATTN__LOAD(x), ATTN__ALL_BITS(0x7fffffffu)); }
/* Neighbouring lanes of a, then of b, two by two. */
ATTN__HELPER ATTN__VEC ATTN__V(larger_of_pairs)(ATTN__VEC a, ATTN__VEC b)
{ return ATTN__UNZIPPED(ATTN__V(larger)(ATTN__UNZIP(a, b, 0), ATTN__UNZIP(a, b, 1))); }

/* m: numbers of four groups; the largest of each end side by side in the first four lanes. */
ATTN__HELPER void ATTN__V(largest_of_four)(ATTN__VEC *m, uint32_t *of)
{
    float lanes[ATTN__LANES];
    int i;
    m[0] = ATTN__V(larger_of_pairs)(ATTN__V(larger_of_pairs)(m[0], m[1]), ATTN__V(larger_of_pairs)(m[2], m[3]));
    ATTN__UNROLL for (i = 4; i < ATTN__LANES; i *= 2) m[0] = ATTN__V(larger_of_pairs)(m[0], m[0]);
    ATTN__STORE(lanes, m[0]);
    ATTN__EACH(i, 4) of[i] = attn__bits(lanes[i]) > of[i] ? attn__bits(lanes[i]) : of[i];
}

ATTN__KERNEL void ATTN__V(largest)(const float *x, int64_t n, int64_t each, uint32_t *of)
{
    float lanes[ATTN__LANES];
    ATTN__VEC m[4];
    int64_t j, i, end;
    int u;
    for (j = 0; each % ATTN__LANES == 0 && j <= n - 4*each; j += 4*each, of += 4) {
        ATTN__EACH(u, 4) m[u] = ATTN__ALL(0.0f);
        for (i = 0; i < each; i += ATTN__LANES)
            ATTN__EACH(u, 4) {
                ATTN__PREFETCH(attn__ahead(x + j + i + u*each, 2, ATTN__CHUNK));    /* mostly the rows after this one */
                m[u] = ATTN__V(larger)(m[u], ATTN__V(sizes)(x + j + u*each + i));
            }
        ATTN__V(largest_of_four)(m, of);
    }
    for (; j < n; j = end, of++) {
        end = attn__min(j + each, n);
        m[0] = ATTN__ALL_BITS(*of);
        for (; j <= end - ATTN__LANES; j += ATTN__LANES) {
            ATTN__PREFETCH(attn__ahead(x + j, 2, ATTN__CHUNK));
            m[0] = ATTN__V(larger)(m[0], ATTN__V(sizes)(x + j));
        }
        ATTN__UNROLL for (u = 1; u < ATTN__LANES; u *= 2) m[0] = ATTN__V(larger_of_pairs)(m[0], m[0]);
        ATTN__STORE(lanes, m[0]);
        *of = attn__bits(*lanes);
        if (j < end) attn__largest_scalar(x + j, end - j, each, of);
    }
}

ATTN__KERNEL void ATTN__V(quantize)(const float *x, int64_t n, int64_t each, const float *scale, int8_t *codes)
{
    const ATTN__VEC most = ATTN__ALL(127.0f), least = ATTN__ALL(-127.0f), magic = ATTN__ALL(attn__code_magic);
    ATTN__VEC by, within;
    int64_t j, end, whole;
    for (j = 0; j < n; j = end, scale++) {
        end = attn__min(j + each, n);
        by = ATTN__ALL(*scale);
        for (whole = *scale > 0.0f ? end : 0; j <= whole - ATTN__LANES; j += ATTN__LANES) {
            within = ATTN__MAX(ATTN__MIN(ATTN__DIV(ATTN__LOAD(x + j), by), most), least);
            ATTN__STORE_BYTES(codes + j, ATTN__ADD(within, magic));
        }
        if (j < end) attn__quantize_scalar(x + j, end - j, each, scale, codes + j);
    }
}

/* ---- rotary positions */
ATTN__HELPER ATTN__VEC ATTN__V(times)(ATTN__VEC a, ATTN__VEC b)         /* see ATTN__APART */
{
    ATTN__VEC product = ATTN__MUL(a, b);
    ATTN__KEEP(product);
    return product;
}

/* Pairs of one row, as far as whole vectors go, by these rows of the tables. */
ATTN__HELPER void ATTN__V(rotate_row)(const int64_t pairs, const int64_t apart, const int interleaved,
                                      const ATTN__VEC flip, const float *c, const float *s, const float *x, float *out,
                                      ATTN__VEC *seen)
{
    const int64_t step = interleaved ? 2 : 1;
    ATTN__VEC a[2], b[2], y[2], cosine, sine;
    int64_t n;
    int u;
    for (n = 0; n < pairs; n += ATTN__LANES) {
        cosine = ATTN__LOAD(c + n);
        sine = ATTN__LOAD(s + n);
        ATTN__EACH(u, 2) {
            a[u] = ATTN__LOAD(x + n*step + u*apart);
            ATTN__KEEP(a[u]);
        }
        ATTN__EACH(u, 2) b[u] = interleaved ? ATTN__UNZIP(a[0], a[1], u) : a[u];
        if (interleaved) {
            cosine = ATTN__UNZIPPED(cosine);
            sine = ATTN__XOR(ATTN__UNZIPPED(sine), flip);
        }
        ATTN__KEEP(cosine);
        ATTN__KEEP(sine);
        y[0] = ATTN__SUB(ATTN__V(times)(b[0], cosine), ATTN__V(times)(b[1], sine));
        y[1] = ATTN__ADD(ATTN__V(times)(b[1], cosine), ATTN__V(times)(b[0], sine));
        ATTN__EACH(u, 2) seen[u] = ATTN__ADD(seen[u], y[u]);
        ATTN__EACH(u, 2) ATTN__STORE(out + n*step + u*apart, interleaved ? ATTN__ZIP(y[0], y[1], u) : y[u]);
    }
}

/* All rows. To make every NaN the one NaN costs too much here: sums of the results tell whether there may be one (they
   are NaN where infinities meet, too). The other way round is the same with the two of a pair exchanged: of halves
   the pointers, else the sign of the sine. A copy of *p, which no store can change. */
ATTN__HELPER int ATTN__V(rotate_rows)(const attn__rotate p, const int interleaved)
{
    const int64_t whole = p.pairs/ATTN__LANES*ATTN__LANES, rest = p.rest/ATTN__LANES*ATTN__LANES;
    const int64_t first = !interleaved && p.inverse ? p.pairs : 0;
    const int64_t apart = interleaved ? ATTN__LANES : p.pairs - 2*first;
    const ATTN__VEC flip = ATTN__ALL_BITS(p.inverse ? 0x80000000u : 0u);
    ATTN__VEC seen[2];
    int64_t g, r, n;
    seen[0] = seen[1] = ATTN__ALL(0.0f);
    for (g = 0; whole && g < p.groups; g++)
        for (r = 0; r < p.rows; r++) {
            const int64_t at = p.at[g*p.at_group + r*p.at_row];
            const float *x = p.x + g*p.x_group + r*p.x_row;
            float *out = p.out + g*p.out_group + r*p.out_row;
            for (n = 0; p.fetch && n < 2*p.pairs; n += 16) {
                ATTN__PREFETCH(attn__ahead(x + n, p.fetch, p.x_row));
                ATTN__PREFETCH(attn__ahead(out + n, p.fetch, p.out_row));
            }
            ATTN__V(rotate_row)(whole, apart, interleaved, flip, p.cosines + at*p.cosines_row,
                                p.sines + at*p.sines_row, x + first, out + first, seen);
        }
    for (g = 0; rest && g < p.groups; g++)
        for (r = 0; r < p.rows; r++) {
            const float *x = p.x + g*p.x_group + r*p.x_row + 2*p.pairs;
            float *out = p.out + g*p.out_group + r*p.out_row + 2*p.pairs;
            for (n = 0; n < rest; n += ATTN__LANES) ATTN__STORE(out + n, ATTN__V(quiet)(ATTN__LOAD(x + n)));
        }
    return ATTN__ANY(ATTN__EITHER(ATTN__V(is_nan)(seen[0]), ATTN__V(is_nan)(seen[1])));
}

ATTN__KERNEL void ATTN__V(rotate)(const attn__rotate *p)
{
    const int is_nan = p->interleaved ? ATTN__V(rotate_rows)(*p, 1) : ATTN__V(rotate_rows)(*p, 0);
    attn__finish_rotation(p, p->pairs/ATTN__LANES*ATTN__LANES, p->rest/ATTN__LANES*ATTN__LANES, is_nan);
}

/* ---- pairs of bf16 */
#if ATTN__LANES == 16 && ATTN__HAS_BF16_DOT
#define ATTN__PAIRED            ATTN__WITH("avx512f,avx512dq,avx512bw,avx512bf16,fma")
ATTN__STRIP_OF(pairs_, static ATTN__PAIRED, 4, 4, ATTN__PAIRS)
ATTN__STRIP_OF(pairs_, static ATTN__PAIRED, 8, 1, ATTN__PAIRS)
ATTN__STRIP_OF(pairs_, static ATTN__PAIRED, 1, 1, ATTN__PAIRS)
ATTN__STRIP_OF(pairs_of_allowed_, static ATTN__PAIRED, 1, 1, ATTN__PAIRS_OF_ALLOWED)
/* Vectors from the i-th on, as many as `strips` takes, rows from `row` on; returns where the next begins. */
ATTN__NOINLINE static int64_t ATTN__V(pairs_from)(const attn__product *p, int64_t i, int64_t row,
                                                  int64_t (*strips)(const attn__product *, int64_t))
{
    attn__product part = *p;
    part.b += ATTN__LANES*i;
    part.c += ATTN__LANES*i;
    if (p->x) part.x += ATTN__LANES*i;
    return strips(&part, row);
}

static void ATTN__V(pair_product)(const attn__product *p)
{
    const int allowed = p->kind == ATTN__PRODUCT_OF_ALLOWED, whole = p->vecs == 4 && !allowed;
    int64_t row = whole ? ATTN__V(pairs_from)(p, 0, 0, ATTN__V(pairs_4x4)) : 0, i;
    for (i = 0; i < p->vecs; i++) {
        if (!whole && !allowed) row = ATTN__V(pairs_from)(p, i, 0, ATTN__V(pairs_8x1));
        if (row < p->rows) ATTN__V(pairs_from)(p, i, row, allowed ? ATTN__V(pairs_of_allowed_1x1) : ATTN__V(pairs_1x1));
    }
}

/* Two vectors, rounded, `even` in the lower half. clang 16 at -O3 runs out of stack on the type of the intrinsic. */
ATTN__INLINE ATTN__PAIRED __m512i ATTN__V(round_two)(ATTN__VEC even, ATTN__VEC odd)
{
    __m512i both;
    __asm__("vcvtne2ps2bf16 {%2, %1, %0|%0, %1, %2}" : "=v"(both) : "v"(odd), "v"(even));
    return both;
}

/* By turns half `even` + i and half `odd` + i of a vector, or of two. */
ATTN__INLINE ATTN__PAIRED __m512i ATTN__V(by_turns)(int even, int odd)
{
#define ATTN__P(i) (i) * 0x10001
    return _mm512_add_epi32(_mm512_set1_epi32(odd * 0x10000 + even), _mm512_set_epi32(
        ATTN__P(15), ATTN__P(14), ATTN__P(13), ATTN__P(12), ATTN__P(11), ATTN__P(10), ATTN__P(9), ATTN__P(8),
        ATTN__P(7), ATTN__P(6), ATTN__P(5), ATTN__P(4), ATTN__P(3), ATTN__P(2), ATTN__P(1), ATTN__P(0)));
#undef ATTN__P
}

/* Two rows, rounded, as one of pairs. */
ATTN__INLINE ATTN__PAIRED void ATTN__V(store_pairs)(float *to, ATTN__VEC even, ATTN__VEC odd)
{
    ATTN__STORE(to, ATTN__FLOATS(_mm512_permutexvar_epi16(ATTN__V(by_turns)(0, 16), ATTN__V(round_two)(even, odd))));
}

ATTN__PAIRED static void ATTN__V(pair_weights)(float *s, int64_t ld, int64_t from, int64_t to, int64_t n)
{
    ATTN__VEC even, odd;
    int64_t j;
    for (j = 0; j < n; j += 2) {
        even = odd = ATTN__ALL(-0.0f);
        if (j >= from && j < to) even = ATTN__LOAD(s + j*ld);
        if (j + 1 >= from && j + 1 < to) odd = ATTN__LOAD(s + (j + 1)*ld);
        ATTN__V(store_pairs)(s + j/2*ld, even, odd);
    }
}

ATTN__KERNEL void ATTN__V(pair_queries)(float *to, int64_t ld, const attn__half *const *rows, int64_t n)
{
    ATTN__VEC x[ATTN__LANES];
    int64_t j, at;
    int i;
    for (j = 0; j < n; j += 2*ATTN__LANES) {
        at = attn__min(j, n - 2*ATTN__LANES);
        ATTN__EACH(i, ATTN__LANES) x[i] = ATTN__LOAD((const float *)(const void *)(rows[i] + at));
        ATTN__V(transpose)(x);
        ATTN__EACH(i, ATTN__LANES) ATTN__STORE(to + (at/2 + i)*ld, x[i]);
    }
}

ATTN__KERNEL void ATTN__V(pair_results)(attn__half *const *rows, int64_t lanes, const float *from, int64_t ld,
                                        int64_t n, const float *scale)
{
    const ATTN__VEC by = ATTN__LOAD(scale), upper = ATTN__ALL_BITS(0xffff0000u), lower = ATTN__ALL_BITS(0xffffu);
    ATTN__VEC x[ATTN__LANES], odd;
    int64_t j, at;
    int i;
    for (j = 0; j < n; j += 2*ATTN__LANES) {
        at = attn__min(j, n - 2*ATTN__LANES);
        ATTN__EACH(i, ATTN__LANES) {
            odd = ATTN__V(round_bf16)(ATTN__MUL(ATTN__LOAD(from + (at + 2*i + 1)*ld), by));
            x[i] = ATTN__V(round_bf16)(ATTN__MUL(ATTN__LOAD(from + (at + 2*i)*ld), by));
            x[i] = ATTN__XOR(ATTN__AND(ATTN__RIGHT(x[i], 16), lower), ATTN__AND(odd, upper));
        }
        ATTN__V(transpose)(x);
        for (i = 0; i < ATTN__LANES && i < lanes; i++) ATTN__STORE((float *)(void *)(rows[i] + at), x[i]);
    }
}

ATTN__HELPER ATTN__VEC ATTN__V(two_values)(const attn__half *even, const attn__half *odd)
{
    return ATTN__XOR(ATTN__LOAD_HALVES(even), ATTN__LEFT(ATTN__LOAD_HALVES(odd), 16));
}

ATTN__PAIRED static void ATTN__V(pair_values)(float *to, const attn__half *const *rows, int64_t n)
{
    int64_t j = 0, at;
    for (; n - j >= 2*ATTN__LANES; j += 2*ATTN__LANES) {
        const __m512i even = _mm512_loadu_si512(rows[0] + j), odd = _mm512_loadu_si512(rows[1] + j);
        ATTN__STORE(to + j, ATTN__FLOATS(_mm512_permutex2var_epi16(even, ATTN__V(by_turns)(0, 32), odd)));
        ATTN__STORE(to + j + ATTN__LANES,
                    ATTN__FLOATS(_mm512_permutex2var_epi16(even, ATTN__V(by_turns)(16, 48), odd)));
    }
    for (; j < n; j += ATTN__LANES) {
        at = attn__min(j, n - ATTN__LANES);
        ATTN__STORE(to + at, ATTN__V(two_values)(rows[0] + at, rows[1] + at));
    }
}

/* R rows of A times four columns from the j-th on; of the last ones some more than once. */
ATTN__INLINE ATTN__PAIRED void ATTN__V(dots_of_pairs)(const int R, const attn__product *p, int64_t row, int64_t j,
                                                      int64_t columns)
{
    const float *a = p->a + row*p->a_row;
    const attn__half *b[4];
    ATTN__VEC sum[16], x[4], y;
    float four[ATTN__LANES];
    int64_t k, n;
    int r, i;
    ATTN__EACH(i, 4) b[i] = (const attn__half *)(const void *)p->b + attn__min(j + i, columns - 1)*p->b_row;
    ATTN__EACH(i, 4*R) sum[i] = ATTN__ALL(0.0f);
    for (k = 0; k < p->depth; k += n) {
        n = 2*ATTN__LANES;
        ATTN__EACH(i, 4) {
            const int64_t left = p->depth - k;
            const uint32_t mask = left < n ? (1u << left) - 1 : 0xffffffffu;
            x[i] = ATTN__FLOATS(_mm512_maskz_loadu_epi16(mask, b[i] + k));
            ATTN__PREFETCH_FAR(ATTN__V(after)(b[i] + k, 8*p->b_row));
        }
        ATTN__EACH(r, R) {
            y = ATTN__LOAD(a + r*p->a_row + k/2);
            ATTN__EACH(i, 4) ATTN__ADD_PAIRS(sum[4*r + i], x[i], y);
        }
    }
    ATTN__EACH(r, R) {
        ATTN__EACH(i, 2) {
            ATTN__VEC *s = sum + 4*r + 2*i;
            s[0] = ATTN__ADD(_mm512_unpacklo_ps(s[0], s[1]), _mm512_unpackhi_ps(s[0], s[1]));
        }
        y = ATTN__ADD(_mm512_shuffle_ps(sum[4*r], sum[4*r + 2], 0x44), _mm512_shuffle_ps(sum[4*r], sum[4*r + 2], 0xee));
        y = ATTN__ADD(y, _mm512_shuffle_f32x4(y, y, 0x4e));
        y = ATTN__ADD(y, _mm512_shuffle_f32x4(y, y, 0xb1));
        ATTN__STORE(four, y);
        ATTN__COPY(p->c + (row + r)*p->c_row + j, four, sizeof *four*(size_t)attn__min(columns - j, 4));
    }
}

ATTN__PAIRED static void ATTN__V(pair_dots)(const attn__product *p, int64_t columns)
{
    int64_t j, row;
    for (j = 0; j < columns; j += 4) {
        for (row = 0; row + 4 <= p->rows; row += 4) ATTN__V(dots_of_pairs)(4, p, row, j, columns);
        if (row + 2 <= p->rows) {
            ATTN__V(dots_of_pairs)(2, p, row, j, columns);
            row += 2;
        }
        if (row < p->rows) ATTN__V(dots_of_pairs)(1, p, row, j, columns);
    }
}

static const attn__pair_kernels ATTN__V(pairs) = {
    ATTN__V(pair_product), ATTN__V(pair_weights), ATTN__V(pair_queries), ATTN__V(pair_results), ATTN__V(pair_values),
    ATTN__V(pair_dots), 2, 1, NULL, NULL, NULL, NULL, NULL, NULL
};
#define ATTN__PAIR_TABLE        &ATTN__V(pairs)
#else
#define ATTN__PAIR_TABLE        NULL
#endif

/* ---- the same by AMX: eight registers, each of 16 rows of 64 bytes. Not by the intrinsics: those of gcc do not say
   that they read and write memory. */
#if ATTN__LANES == 16 && ATTN__HAS_AMX
#define ATTN__AMX               ATTN__WITH("avx512f,avx512dq,fma,amx-tile,amx-bf16")
#define ATTN__AMX_LOAD(t, at, row) __asm__ __volatile__( \
    "tileloadd {(%0,%1), %%tmm" #t "|tmm" #t ", [%0+%1]}" :: "r"(at), "r"(row) : "memory")
#define ATTN__AMX_STORE(t, at, row) __asm__ __volatile__( \
    "tilestored {%%tmm" #t ", (%0,%1)|[%0+%1], tmm" #t "}" :: "r"(at), "r"(row) : "memory")
#define ATTN__AMX_ZERO(t) __asm__ __volatile__("tilezero {%%tmm" #t "|tmm" #t "}" ::)
#define ATTN__AMX_ADD(c, a, b) __asm__ __volatile__( \
    "tdpbf16ps {%%tmm" #b ", %%tmm" #a ", %%tmm" #c "|tmm" #c ", tmm" #a ", tmm" #b "}" ::)
ATTN__AMX static void ATTN__V(amx_begin)(void)
{
    uint8_t rows_and_bytes[64] = {1};
    int t;
    for (t = 0; t < 8; t++) {
        rows_and_bytes[16 + 2*t] = 64;
        rows_and_bytes[48 + t] = ATTN__AMX_SIDE;
    }
    __asm__ __volatile__("ldtilecfg %0" :: "m"(rows_and_bytes) : "memory");
}

ATTN__AMX static void ATTN__V(amx_end)(void) { __asm__ __volatile__("tilerelease" ::); }

/* An operand's pairs, and bytes from one row to the next. By number: what is not read need not exist. */
typedef struct attn__amx_operand {
    uintptr_t at;
    int64_t   row;
} attn__amx_operand;

static attn__amx_operand attn__amx_operand_of(const float *array, int64_t at, int64_t row)
{
    const attn__amx_operand o = {(uintptr_t)array + (uintptr_t)at*sizeof(float), row*(int64_t)sizeof(float)};
    return o;
}

static int attn__is_finite_half(attn__half x) { return (x & 0x7f80) != 0x7f80; }

/* `rows` rows of A, up to two registers of them, in room: zeros below them and, finite, for what is infinite or NaN. */
static attn__amx_operand attn__amx_filled(attn__amx_operand a, int64_t rows, int finite, attn__half *room)
{
    const attn__amx_operand filled = {(uintptr_t)room, 4*ATTN__AMX_SIDE};
    int64_t r, x;
    attn__zero(room, 8*ATTN__AMX_SIDE*ATTN__AMX_SIDE);
    for (r = 0; r < rows; r++, room += 2*ATTN__AMX_SIDE, a.at += (uintptr_t)a.row) {
        ATTN__COPY(room, (const void *)a.at, 4*ATTN__AMX_SIDE);
        for (x = 0; finite && x < 2*ATTN__AMX_SIDE; x++) if (!attn__is_finite_half(room[x])) room[x] = 0;
    }
    return filled;
}

/* 16 pairs of each sum: of four registers of sums, so that all that is loaded is used twice, or of fewer. */
ATTN__INLINE ATTN__AMX void ATTN__V(amx_step)(attn__amx_operand a, attn__amx_operand b, const int below,
                                              const int beside)
{
    ATTN__AMX_LOAD(4, a.at, a.row);
    ATTN__AMX_LOAD(6, b.at, b.row);
    ATTN__AMX_ADD(0, 4, 6);
    if (beside) {
        ATTN__AMX_LOAD(7, b.at + 4*ATTN__AMX_SIDE, b.row);
        ATTN__AMX_ADD(1, 4, 7);
    }
    if (!below) return;
    ATTN__AMX_LOAD(5, a.at + ATTN__AMX_SIDE*(uintptr_t)a.row, a.row);
    ATTN__AMX_ADD(2, 5, 6);
    if (beside) ATTN__AMX_ADD(3, 5, 7);
}

/* The sums of two vectors of lanes, or of one: times the scale of A's row and X, if there are such; the largest of each
   lane. sums: NULL, or those that are added after, rows of 32. */
ATTN__KERNEL void ATTN__V(amx_finish)(const attn__product *p, int64_t row, int64_t lane, const float *sums)
{
    const int64_t rows = attn__min(p->rows - row, 2*ATTN__AMX_SIDE);
    const int beside = p->vecs*ATTN__LANES - lane > ATTN__AMX_SIDE;
    float *c = p->c + row*p->c_row + lane;
    ATTN__VEC x, even, odd;
    int64_t l, i;
    for (l = lane; l <= lane + beside*ATTN__LANES; l += ATTN__LANES, c += ATTN__LANES) {
        for (i = 0; sums && i < rows; i++)
            ATTN__STORE(c + i*p->c_row, ATTN__ADD(ATTN__LOAD(c + i*p->c_row),
                                                  ATTN__LOAD(sums + i*2*ATTN__AMX_SIDE + l - lane)));
        for (i = 0; p->a_scale && i < rows; i++)
            ATTN__STORE(c + i*p->c_row, ATTN__MUL(ATTN__LOAD(c + i*p->c_row), ATTN__ALL(p->a_scale[row + i])));
        x = ATTN__LOAD(p->x ? p->x + l : c);
        for (i = 0; p->x && i < rows; i++) ATTN__STORE(c + i*p->c_row, ATTN__MUL(ATTN__LOAD(c + i*p->c_row), x));
        if (p->onto != ATTN__TOP) continue;
        even = ATTN__LOAD(p->top + l);
        odd = ATTN__ALL(ATTN__NEG_INF);
        for (i = 0; i + 1 < rows; i += 2) {
            even = ATTN__MAX(ATTN__LOAD(c + i*p->c_row), even);
            odd = ATTN__MAX(ATTN__LOAD(c + (i + 1)*p->c_row), odd);
        }
        if (i < rows) even = ATTN__MAX(ATTN__LOAD(c + i*p->c_row), even);
        ATTN__STORE(p->top + l, ATTN__MAX(odd, even));
    }
}

/* Up to 32 rows from `row` on times 32 lanes, or 16. Sums of a register that lacks rows pass through p->columns.
   to: NULL, or where they go instead, 32 rows of 32. */
ATTN__INLINE ATTN__AMX void ATTN__V(amx_block)(const attn__product *p, int64_t row, int64_t lane, float *to,
                                               const int below, const int beside)
{
    const int64_t side = ATTN__AMX_SIDE, rows = attn__min(p->rows - row, side + below*side);
    const int64_t over = to ? 0 : rows % side, c_row = to ? 2*side : p->c_row;
    const int finite = p->kind == ATTN__PRODUCT_OF_ALLOWED, fill = finite || (over && !p->padded);
    const size_t width = sizeof(float)*(size_t)(side + beside*side);
    attn__half *const room = (attn__half *)(void *)p->columns;
    float *const some = p->columns + 2*side*side, *const sums = to ? to : p->c + row*c_row + lane;
    float *const last = sums + (rows - over)*c_row;
    attn__amx_operand a = attn__amx_operand_of(p->a, row*p->a_row, p->a_row);
    attn__amx_operand b = attn__amx_operand_of(p->b, lane, p->b_row);
    attn__amx_operand c[2];
    int64_t k, i;
    c[0] = attn__amx_operand_of(sums, 0, c_row);
    c[1] = attn__amx_operand_of(sums, side*c_row, c_row);
    if (over) c[rows > side] = attn__amx_operand_of(some, 0, 2*side);
    if (p->onto == ATTN__GO_ON) {
        for (i = 0; i < over; i++) ATTN__COPY(some + 2*side*i, last + i*c_row, width);
        ATTN__AMX_LOAD(0, c[0].at, c[0].row);
        if (beside) ATTN__AMX_LOAD(1, c[0].at + 4*ATTN__AMX_SIDE, c[0].row);
        if (below) ATTN__AMX_LOAD(2, c[1].at, c[1].row);
        if (below && beside) ATTN__AMX_LOAD(3, c[1].at + 4*ATTN__AMX_SIDE, c[1].row);
    } else {
        ATTN__AMX_ZERO(0);
        ATTN__AMX_ZERO(1);
        ATTN__AMX_ZERO(2);
        ATTN__AMX_ZERO(3);
    }
    for (k = 0; k < p->depth; k += side) {
        ATTN__V(amx_step)(fill ? attn__amx_filled(a, rows, finite, room) : a, b, below, beside);
        a.at += 4*ATTN__AMX_SIDE;
        b.at += ATTN__AMX_SIDE*(uintptr_t)b.row;
    }
    ATTN__AMX_STORE(0, c[0].at, c[0].row);
    if (beside) ATTN__AMX_STORE(1, c[0].at + 4*ATTN__AMX_SIDE, c[0].row);
    if (below) ATTN__AMX_STORE(2, c[1].at, c[1].row);
    if (below && beside) ATTN__AMX_STORE(3, c[1].at + 4*ATTN__AMX_SIDE, c[1].row);
    for (i = 0; i < over; i++) ATTN__COPY(last + i*c_row, some + 2*side*i, width);
}

/* What such a product has left out: the halves of A that are not finite, for the lanes whose weight does not exclude
   them. */
static void attn__add_nonfinite(const attn__product *p)
{
    const attn__half *a, *b;
    float *c;
    int64_t r, k, l;
    int i;
    for (r = 0; r < p->rows; r++) for (k = 0; k < p->depth; k++) for (i = 0; i < 2; i++) {
        a = (const attn__half *)(const void *)(p->a + r*p->a_row + k) + i;
        b = (const attn__half *)(const void *)(p->b + k*p->b_row) + i;
        c = p->c + r*p->c_row;
        for (l = 0; l < p->vecs*ATTN__AMX_SIDE && !attn__is_finite_half(*a); l++)
            if (!(b[2*l] & 0x8000u))
                c[l] += attn__float(attn__widened(ATTN_BF16, b[2*l])) * attn__float(attn__widened(ATTN_BF16, *a));
    }
}

/* All lanes of some rows, then the next rows': what A has of them stays in the first cache. A block is finished when
   the next one is under way, so that its sums are not waited for. */
ATTN__AMX static void ATTN__V(amx_product)(const attn__product *p)
{
    const int64_t step = 2*ATTN__AMX_SIDE, lanes = p->vecs*ATTN__LANES;
    const int64_t lines = (lanes + step - 1)/step*ATTN__LANES;     /* one for each block of a row, in floats */
    const int adds = p->onto == ATTN__ADD_AFTER, finish = adds || p->x || p->a_scale || p->onto == ATTN__TOP;
    float *sums = adds ? p->columns : NULL, *last_sums = adds ? p->columns + 4*ATTN__AMX_SIDE*ATTN__AMX_SIDE : NULL;
    int64_t row, lane, last_row = -1, last_lane = 0, i;
    for (row = 0; row < p->rows; row += step)
        for (lane = 0; lane < lanes; lane += step) {
            const int64_t rows = attn__min(p->rows - row, step);
            const int below = rows > ATTN__AMX_SIDE, beside = lanes - lane > ATTN__AMX_SIDE;
            float *const to = sums;
            if (below && beside) ATTN__V(amx_block)(p, row, lane, to, 1, 1);
            else if (below) ATTN__V(amx_block)(p, row, lane, to, 1, 0);
            else ATTN__V(amx_block)(p, row, lane, to, 0, beside);
            for (i = lane/2; p->fetch && i < rows*p->fetch_row; i += lines)
                ATTN__PREFETCH_FAR(attn__ahead(attn__ahead(p->fetch, row, p->fetch_row), 1, i));
            if (finish && last_row >= 0) ATTN__V(amx_finish)(p, last_row, last_lane, last_sums);
            last_row = row;
            last_lane = lane;
            sums = last_sums;
            last_sums = to;
        }
    if (finish && last_row >= 0) ATTN__V(amx_finish)(p, last_row, last_lane, last_sums);
    if (p->kind == ATTN__PRODUCT_OF_ALLOWED) attn__add_nonfinite(p);
}

/* e^(scale*s - top): 2^n times 2^f, f from 0 on below 1, a polynomial of 1 at 0, relative error 2.9e-6, of linear
   programming; where little is left of so many digits, fewer instructions matter more. */
ATTN__HELPER ATTN__VEC ATTN__V(amx_exp)(ATTN__VEC s, ATTN__VEC by, ATTN__VEC top)
{
    const ATTN__VEC x = _mm512_fmsub_ps(s, by, top), f = _mm512_reduce_ps(x, 1);       /* x less its floor */
    ATTN__VEC p = ATTN__FMA(ATTN__ALL(0.013426470f), f, ATTN__ALL(0.052243177f));
    p = ATTN__FMA(p, f, ATTN__ALL(0.24127963f));
    p = ATTN__FMA(p, f, ATTN__ALL(0.69304496f));
    p = ATTN__FMA(p, f, ATTN__ALL(1.0f));
    return _mm512_scalef_ps(p, x);
}

/* Those of whole pairs of rows from the j-th on that nobody is excluded from; returns where the others begin. */
ATTN__INLINE ATTN__PAIRED int64_t ATTN__V(amx_weights)(const attn__pair_softmax *p, int64_t j, ATTN__VEC by,
                                                       ATTN__VEC base, ATTN__VEC *sum, const float *by_key)
{
    float *s = p->s + j*p->ld, *to = p->s + j/2*p->ld;
    ATTN__VEC w[2];
    int i;
    for (; j + 2 <= p->to; j += 2, s += 2*p->ld, to += p->ld) {
        w[0] = ATTN__V(amx_exp)(ATTN__LOAD(s), by, base);
        w[1] = ATTN__V(amx_exp)(ATTN__LOAD(s + p->ld), by, base);
        ATTN__EACH(i, 2) sum[i] = ATTN__ADD(sum[i], w[i]);
        if (by_key) ATTN__EACH(i, 2) w[i] = ATTN__MUL(w[i], ATTN__ALL(by_key[j + i]));
        ATTN__V(store_pairs)(to, w[0], w[1]);
    }
    return j;
}

ATTN__PAIRED static void ATTN__V(amx_softmax)(const attn__pair_softmax *p)
{
    const ATTN__VEC none = ATTN__ALL(ATTN__NEG_INF), log2_e = ATTN__ALL(1.44269504f);
    const ATTN__VEC by = ATTN__ALL(p->scale*1.44269504f);
    ATTN__VEC w[2], top, base, shift, sum[2];       /* of even keys, of odd ones */
    const float *const by_key = p->by_key;
    ATTN__MASK is_large;
    float *s, *to;
    int64_t j;
    int i, large;
    top = p->known ? ATTN__LOAD(p->top) : none;
    for (j = p->known ? p->to : p->from; j < p->to; j++) top = ATTN__MAX(ATTN__LOAD(p->s + j*p->ld), top);
    shift = ATTN__CLEAR(top, ATTN__SAME(top, none));
    top = ATTN__V(plus_zero)(ATTN__MUL(top, ATTN__ALL(p->scale)));
    base = ATTN__MUL(ATTN__CLEAR(top, ATTN__SAME(top, none)), log2_e);
    is_large = ATTN__LESS(ATTN__ALL(1024.0f), ATTN__AND(base, ATTN__ALL_BITS(0x7fffffffu)));
    large = ATTN__ANY(is_large);                /* there its rounding would count: the largest is taken off before */
    shift = ATTN__PICK(ATTN__ALL(0.0f), shift, is_large);
    base = ATTN__CLEAR(base, is_large);
    sum[0] = sum[1] = ATTN__ALL(0.0f);
    for (j = 0; j < p->n; j += 2) {
        s = p->s + j*p->ld;
        to = p->s + j/2*p->ld;
        if (j >= p->from && !large && !p->mark) {   /* most of them */
            j = by_key ? ATTN__V(amx_weights)(p, j, by, base, sum, by_key)
                       : ATTN__V(amx_weights)(p, j, by, base, sum, NULL);
            if (j >= p->n) break;
            s = p->s + j*p->ld;
            to = p->s + j/2*p->ld;
        }
        ATTN__EACH(i, 2) {
            w[i] = ATTN__ALL(-0.0f);
            if (j + i < p->from || j + i >= p->to) continue;
            w[i] = ATTN__LOAD(s + i*p->ld);
            if (large) w[i] = ATTN__SUB(w[i], shift);
            w[i] = ATTN__V(amx_exp)(w[i], by, base);
            sum[i] = ATTN__ADD(sum[i], w[i]);
            if (by_key) w[i] = ATTN__MUL(w[i], ATTN__ALL(by_key[j + i]));
            if (p->mark) w[i] = ATTN__PICK(w[i], ATTN__ALL(-0.0f), ATTN__SAME(ATTN__LOAD(s + i*p->ld), none));
        }
        ATTN__V(store_pairs)(to, w[0], w[1]);
    }
    ATTN__STORE(p->top, top);
    ATTN__STORE(p->sum, ATTN__ADD(sum[0], sum[1]));
}

/* Eight columns of 32 keys: the j-th, the eighth after it and so on in one register, so that turning its quarters, of
   eight keys each, is all there is to do. */
ATTN__PAIRED static void ATTN__V(amx_values)(float *to, const attn__half *const *rows, int64_t n)
{
    __m512i r[8], two[8], four[8];
    int64_t j, at;
    int i;
    for (j = 0; j < n; j += 8) {
        at = attn__min(j, n - 8);
        ATTN__EACH(i, 8) {
            r[i] = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)(rows[i] + at)));
            r[i] = _mm512_mask_broadcast_i32x4(r[i], 0x00f0,
                                               _mm_loadu_si128((const __m128i *)(const void *)(rows[i + 8] + at)));
            r[i] = _mm512_mask_broadcast_i32x4(r[i], 0x0f00,
                                               _mm_loadu_si128((const __m128i *)(const void *)(rows[i + 16] + at)));
            r[i] = _mm512_mask_broadcast_i32x4(r[i], 0xf000,
                                               _mm_loadu_si128((const __m128i *)(const void *)(rows[i + 24] + at)));
        }
        ATTN__EACH(i, 4) {
            two[i] = _mm512_unpacklo_epi16(r[2*i], r[2*i + 1]);
            two[i + 4] = _mm512_unpackhi_epi16(r[2*i], r[2*i + 1]);
        }
        ATTN__EACH(i, 4) {
            four[2*i] = _mm512_unpacklo_epi32(two[2*i], two[2*i + 1]);
            four[2*i + 1] = _mm512_unpackhi_epi32(two[2*i], two[2*i + 1]);
        }
        ATTN__EACH(i, 8) {
            const __m512i x = four[i/4*4 + i/2%2], y = four[i/4*4 + i/2%2 + 2];
            _mm512_storeu_si512(to + (at + i)*ATTN__AMX_ROW, i%2 ? _mm512_unpackhi_epi64(x, y)
                                                                 : _mm512_unpacklo_epi64(x, y));
        }
    }
}

ATTN__PAIRED static void ATTN__V(amx_codes)(attn__half *to, const int8_t *from, int64_t n)
{
    int64_t j, at;
    for (j = 0; j < n; j += 2*ATTN__LANES) {
        at = attn__min(j, n - 2*ATTN__LANES);
        _mm512_storeu_si512(to + at, ATTN__V(round_two)(ATTN__V(widened)(from + at, ATTN_I8),
                                                        ATTN__V(widened)(from + at + ATTN__LANES, ATTN_I8)));
    }
}

ATTN__PAIRED static void ATTN__V(amx_halves)(float *s, int64_t row, int64_t n, int64_t lanes, float *pairs, int64_t ld)
{
    int64_t j, l;
    int i;
    for (j = 0; j < n; j += 2)
        for (l = 0; l < lanes; l += 2*ATTN__LANES) {
            ATTN__VEC x[2][2];          /* of both rows, two vectors */
            ATTN__EACH(i, 4) x[i/2][i%2] = ATTN__LOAD(s + (j + i/2)*row + l + i%2*ATTN__LANES);
            ATTN__EACH(i, 2) {
                ATTN__STORE(s + (j + i)*row + l/2, ATTN__FLOATS(ATTN__V(round_two)(x[i][0], x[i][1])));
                if (pairs) ATTN__V(store_pairs)(pairs + j/2*ld + l + i*ATTN__LANES, x[0][i], x[1][i]);
            }
        }
}

ATTN__KERNEL int ATTN__V(amx_finite)(const float *pairs, int64_t n)
{
    ATTN__MASK bad = ATTN__V(nonfinite)(ATTN__ALL(0.0f));
    int64_t i;
    for (i = 0; i < n; i += ATTN__LANES) {
        const ATTN__VEC x = ATTN__LOAD(pairs + i);
        bad = ATTN__EITHER(bad, ATTN__EITHER(ATTN__V(nonfinite)(x), ATTN__V(nonfinite)(ATTN__LEFT(x, 16))));
    }
    return !ATTN__ANY(bad);
}

static const attn__pair_kernels ATTN__V(amx) = {
    ATTN__V(amx_product), ATTN__V(pair_weights), ATTN__V(pair_queries), ATTN__V(pair_results), ATTN__V(amx_values),
    ATTN__V(pair_dots), 2*ATTN__AMX_SIDE, ATTN__AMX_ROW, ATTN__V(amx_softmax), ATTN__V(amx_codes), ATTN__V(amx_halves),
    ATTN__V(amx_finite), ATTN__V(amx_begin), ATTN__V(amx_end)
};
#define ATTN__AMX_TABLE         &ATTN__V(amx)
#undef ATTN__AMX
#undef ATTN__AMX_ADD
#undef ATTN__AMX_LOAD
#undef ATTN__AMX_STORE
#undef ATTN__AMX_ZERO
#else
#define ATTN__AMX_TABLE         NULL
#endif
#undef ATTN__ADD_PAIRS
#undef ATTN__PAIRED

#define ATTN__X(result, name, parameters) , ATTN__V(name)
static const attn__kernels ATTN__V(table) = {ATTN__STRONGEST, ATTN__ISA, ATTN__LANES, ATTN__VECS, ATTN__TYPES,
                                             ATTN__PAIR_TABLE, ATTN__AMX_TABLE ATTN__KERNEL_LIST(ATTN__X)};
#undef ATTN__X
#undef ATTN__ABOVE
#undef ATTN__ADD
#undef ATTN__ADD_BITS
#undef ATTN__ALL
#undef ATTN__ALL_BITS
#undef ATTN__AND
#undef ATTN__ANY
#undef ATTN__BYTES_OF
#undef ATTN__CLEAR
#undef ATTN__MUL_UNLESS
#undef ATTN__COMPARE
#undef ATTN__DIV
#undef ATTN__DOTS
#undef ATTN__DOTS_OF
#undef ATTN__SHARED_ROWS
#undef ATTN__SIZE_OF
#undef ATTN__STEP_OF
#undef ATTN__NUMBERS_OF
#undef ATTN__PUT_QUARTER
#undef ATTN__LOAD_QUARTER
#undef ATTN__SKINNY_OF
#undef ATTN__EACH
#undef ATTN__EITHER
#undef ATTN__EVENS
#undef ATTN__FACTOR
#undef ATTN__FLOATS
#undef ATTN__FOUR_BYTES
#undef ATTN__FOUR_HALVES
#undef ATTN__FMA
#undef ATTN__FMA_ONE
#undef ATTN__HALVES_OF
#undef ATTN__HELPER
#undef ATTN__INTS
#undef ATTN__ISA
#undef ATTN__KEEP
#undef ATTN__KEEP_POINTER
#undef ATTN__KERNEL
#undef ATTN__LEFT
#undef ATTN__LESS
#undef ATTN__LOAD
#undef ATTN__LOAD_BITS
#undef ATTN__LOAD_BYTES
#undef ATTN__LOAD_CODES
#undef ATTN__LOAD_F16
#undef ATTN__LOAD_HALVES
#undef ATTN__LOWER
#undef ATTN__MASK
#undef ATTN__MAX
#undef ATTN__MIN
#undef ATTN__M
#undef ATTN__MM
#undef ATTN__MM_SI
#undef ATTN__ODDS
#undef ATTN__OF_U64
#undef ATTN__MUL
#undef ATTN__MULTIPLY_EVEN
#undef ATTN__NEGATIVE
#undef ATTN__NOTHING
#undef ATTN__ODD
#undef ATTN__ONE
#undef ATTN__ON_BITS
#undef ATTN__U64
#undef ATTN__AMX_TABLE
#undef ATTN__PAIR_TABLE
#undef ATTN__PICK
#undef ATTN__PUT_HALVES
#undef ATTN__QUARTERS
#undef ATTN__RIGHT
#undef ATTN__SAME
#undef ATTN__SHUFFLE
#undef ATTN__SIGNED
#undef ATTN__SIXTEEN_BYTES
#undef ATTN__SPREAD
#undef ATTN__UNPACK
#undef ATTN__SQRT
#undef ATTN__STORE
#undef ATTN__STORE_BYTES
#undef ATTN__STORE_F16
#undef ATTN__STORE_HALVES
#undef ATTN__STREAM
#undef ATTN__STRIP
#undef ATTN__STRIP_OF
#undef ATTN__STRIPS
#undef ATTN__SUB
#undef ATTN__SUMS
#undef ATTN__TO_FLOATS
#undef ATTN__TYPES
#undef ATTN__UNZIP
#undef ATTN__UNZIPPED
#undef ATTN__V
#undef ATTN__VEC
#undef ATTN__VECS
#undef ATTN__XOR
#undef ATTN__ZIP
#undef ATTN__LANES
#endif /* ATTN__LANES */

#ifdef ATTN__IN_THE_MIDDLE
#undef ATTN__IN_THE_MIDDLE

/* ---------------------------------------------------------------------------------------------------- >>dispatch
   The instruction sets of this build, each by another reading of >>kernels-vector, and which of them runs. */
#if (ATTN__X64 && !defined(ATTN_NO_SIMD)) || ATTN__HAS_NEON || ATTN__HAS_PORTABLE
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

#define ATTN__STRONGEST &attn__table_scalar     /* of the tables so far; each knows the one before it */
#if ATTN__HAS_PORTABLE
#  define ATTN__LANES 4
#  include ATTN_FILE
#  undef ATTN__STRONGEST
#  define ATTN__STRONGEST &attn__table_portable
#endif
#if ATTN__HAS_RELAXED           /* the same once more, with a multiply-add of one instruction */
#  undef ATTN__HAS_FMA
#  define ATTN__HAS_FMA 1
#  define ATTN__LANES 4
#  include ATTN_FILE
#  undef ATTN__STRONGEST
#  define ATTN__STRONGEST &attn__table_relaxed
#endif
#if ATTN__X64 && !defined(ATTN_NO_SIMD) && !defined(ATTN_NO_AVX2)
#  define ATTN__LANES 8
#  include ATTN_FILE
#  undef ATTN__STRONGEST
#  define ATTN__STRONGEST &attn__table_avx2
#endif
#if ATTN__X64 && !defined(ATTN_NO_SIMD) && !defined(ATTN_NO_AVX512)
#  define ATTN__LANES 16
#  include ATTN_FILE
#  undef ATTN__STRONGEST
#  define ATTN__STRONGEST &attn__table_avx512
#endif
#if ATTN__HAS_NEON
#  define ATTN__LANES 4
#  include ATTN_FILE
#  undef ATTN__STRONGEST
#  define ATTN__STRONGEST &attn__table_neon
#endif
#if defined(ATTN__LANES) || (defined(ATTN__READ) && ATTN__READ != ATTN_VERSION_NUMBER)
#  error "ATTN_FILE is not this attn.h, but another file or version: define ATTN_FILE as its name, or ATTN_NO_SIMD"
#endif
/* The kernels of an instruction set, or NULL where this build has none. */
static const attn__kernels *attn__table(int32_t isa)
{
    const attn__kernels *f = ATTN__STRONGEST;
    while (f && f->isa != isa) f = f->weaker;
    return f;
}

#if ATTN__X64 && defined(_MSC_VER)
#  define ATTN__CPUID(leaf, part, r) __cpuidex(r, leaf, part)
#  define ATTN__ENABLED(mask) (mask = (uint32_t)_xgetbv(0))
#elif ATTN__X64 && defined(__clang__)
#  define ATTN__CPUID(leaf, part, r) \
    __asm__ __volatile__("cpuid" : "=a"((r)[0]), "=b"((r)[1]), "=c"((r)[2]), "=d"((r)[3]) : "0"(leaf), "2"(part))
#  define ATTN__ENABLED(mask) __asm__ __volatile__("xgetbv" : "=a"(mask) : "c"(0) : "edx")
#endif
/* The compiler's table where it has one: the instruction cpuid takes microseconds in a virtual machine, longer than a
   small call. Every CPU with AVX2 and FMA has F16C. */
static int attn__cpu_has(attn_isa isa)
{
    if (!attn__table((int32_t)isa)) return 0;
#if ATTN__HAS_RELAXED
    if (isa == ATTN_ISA_RELAXED) {      /* x*y is a little less than half a step of x: rounded twice it would count */
        const attn__f4 x = {1.00000012f}, y = {5.96046377e-8f};
        return __builtin_wasm_relaxed_madd_f32x4(x, y, x)[0] == x[0];
    }
#endif
#if ATTN__X64 && ATTN__GNU && !defined(_MSC_VER)
    __builtin_cpu_init();
#  if defined(__clang__)
    if (__builtin_cpu_supports("sse2"))     /* what zig links with says no to all: then the CPU itself is asked */
#  endif
    {
        if (isa == ATTN_ISA_AVX2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
        if (isa == ATTN_ISA_AVX512) return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
        return 1;
    }
#endif
#ifdef ATTN__CPUID
    if (isa == ATTN_ISA_AVX2 || isa == ATTN_ISA_AVX512) {
        const int fma_osxsave_avx_f16c = (1 << 12) | (1 << 27) | (1 << 28) | (1 << 29);
        uint32_t enabled;
        int r[4];
        ATTN__CPUID(0, 0, r);
        if (r[0] < 7) return 0;
        ATTN__CPUID(1, 0, r);
        if ((r[2] & fma_osxsave_avx_f16c) != fma_osxsave_avx_f16c) return 0;
        ATTN__ENABLED(enabled);
        ATTN__CPUID(7, 0, r);
        if (isa == ATTN_ISA_AVX2) return (enabled & 6) == 6 && (r[1] >> 5 & 1);
        return (enabled & 0xe6) == 0xe6 && (r[1] >> 16 & 1) && (r[1] >> 17 & 1);
    }
#endif
    return 1;
}

/* Products of pairs, on a CPU that runs AVX-512; asked only where they are allowed. */
static int attn__cpu_has_bf16_dot(void)
{
#if ATTN__HAS_BF16_DOT
#  if defined(__clang__)
    int r[4];
    if (!__builtin_cpu_supports("sse2")) {
        ATTN__CPUID(7, 1, r);
        return r[0] >> 5 & 1;
    }
#  endif
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw");
#else
    return 0;
#endif
}
#undef ATTN__CPUID
#undef ATTN__ENABLED

/* Linux lets a program use the registers of AMX once it has asked; the kernel before 5.16 knows of none of this. Each
   CPU that has them multiplies bf16. */
enum { ATTN__AMX_IN_CPU = 0x1021, ATTN__AMX_ALLOWED = 0x1022, ATTN__ASK_FOR_AMX = 0x1023, ATTN__AMX_DATA = 18 };
#if ATTN__HAS_AMX
#ifndef ATTN__ARCH_PRCTL        /* tests answer in Linux's place */
static int64_t attn__arch_prctl(int64_t request, void *value)
{
    int64_t result;
    __asm__ __volatile__("syscall" : "=a"(result) : "0"((int64_t)158), "D"(request), "S"(value)
                         : "rcx", "r11", "memory");
    return result;
}
#define ATTN__ARCH_PRCTL        attn__arch_prctl
#endif

static int attn__has_amx(int64_t request)
{
    uint64_t states = 0;
    return !ATTN__ARCH_PRCTL(request, &states) && (states >> ATTN__AMX_DATA & 1);
}

static int attn__ask_for_amx(void)
{
    return !ATTN__ARCH_PRCTL(ATTN__ASK_FOR_AMX, (void *)(uintptr_t)ATTN__AMX_DATA) && attn__has_amx(ATTN__AMX_ALLOWED);
}
#undef ATTN__ARCH_PRCTL
#else
static int attn__has_amx(int64_t request) { return (void)request, 0; }
static int attn__ask_for_amx(void) { return 0; }
#endif

ATTN_DEF attn_isa attn_best_isa(void)
{
    const attn__kernels *f = ATTN__STRONGEST;
    while (!attn__cpu_has((attn_isa)f->isa)) f = f->weaker;
    return (attn_isa)f->isa;
}

/* ------------------------------------------------------------------------------------------------------ >>errors
   How every check says no, and sums and products of sizes that stop at ATTN__HUGE instead of wrapping around. */
/* A field breaks a rule; the number that it has, and the one that it should have. Where rule is NULL, it stands behind
   the end of the field: one address for two texts. */
ATTN__NOINLINE static attn_status attn__fail2(attn_error *err, attn_status status, const char *field, const char *rule,
                                              int64_t got, int64_t want)
{
    attn_error e = {(int32_t)status, field, field, got, want, 1, 0, {0, 0}, 0, 0, 0};
    while (*e.rule++) {}
    if (rule) e.rule = rule;
    if (err) *err = e;
    return status;
}

ATTN__NOINLINE static attn_status attn__fail(attn_error *err, attn_status status, const char *field, const char *rule)
{
    attn__fail2(err, status, field, rule, 0, 0);
    if (err) err->has_numbers = 0;
    return status;
}

/* A number out of its range, at one index or (j >= 0) two. */
ATTN__NOINLINE static attn_status attn__fail_at(attn_error *err, const char *field, const char *rule, int64_t got,
                                                int64_t want, int64_t i, int64_t j)
{
    attn__fail2(err, ATTN_ERR_RANGE, field, rule, got, want);
    if (!err) return ATTN_ERR_RANGE;
    err->place[0] = i;
    err->place[1] = j >= 0 ? j : 0;
    err->has_place = 1 + (j >= 0);
    return ATTN_ERR_RANGE;
}

static attn_status attn__check_within(attn_error *err, const char *field, int64_t x, int64_t least, int64_t most,
                                      const char *at_most, int64_t i, int64_t j)
{
    const int below = x < least;
    if (!below && x <= most) return ATTN_OK;
    return attn__fail_at(err, field, below ? "must be at least" : at_most, x, below ? least : most, i, j);
}

/* Which must divide `want`, and does not. */
ATTN__NOINLINE static attn_status attn__fail_divides(attn_error *err, attn_status status, const char *field,
                                                     const char *rule, int64_t got, int64_t want)
{
    attn__fail2(err, status, field, rule, got, want);
    if (err) err->has_numbers = 2;
    return status;
}

/* Of another type than the rule says. */
ATTN__NOINLINE static attn_status attn__fail_type(attn_error *err, const char *field, const char *rule, int32_t type)
{
    attn__fail2(err, ATTN_ERR_TYPE, field, rule, type, 0);
    if (err) err->has_numbers = 0;
    if (err) err->has_type = 1;
    return ATTN_ERR_TYPE;
}

static attn_status attn__success(attn_error *err)
{
    static const attn_error none = {ATTN_OK, "", "", 0, 0, 0, 0, {0, 0}, 0, 0, 0};
    if (err) *err = none;
    return ATTN_OK;
}
#define ATTN__TRY(call) \
    do { const attn_status attn__st = (call); if (attn__st != ATTN_OK) return attn__st; } while (0)
/* What must hold; else the status ATTN_ERR_x. 2: with two numbers. OF: field and rule are not both literals. */
#define ATTN__RULE_OF(holds, status, field, rule) \
    do { if (!(holds)) return attn__fail(err, ATTN_ERR_##status, field, rule); } while (0)
#define ATTN__RULE2_OF(holds, status, field, rule, got, want) \
    do { if (!(holds)) return attn__fail2(err, ATTN_ERR_##status, field, rule, got, want); } while (0)
#define ATTN__RULE(holds, status, field, rule) \
    do { if (!(holds)) return attn__fail(err, ATTN_ERR_##status, field "\0" rule, NULL); } while (0)
#define ATTN__RULE2(holds, status, field, rule, got, want) \
    do { if (!(holds)) return attn__fail2(err, ATTN_ERR_##status, field "\0" rule, NULL, got, want); } while (0)
#define ATTN__NOT_NULL(argument) ATTN__RULE(argument, NULL, #argument, "must not be NULL")

/* Sizes are non-negative; a sum or product that does not fit sticks at the largest number. */
#define ATTN__HUGE ((int64_t)0x7fffffffffffffff)
enum { ATTN__ALIGN = 64 };      /* of every array in a workspace, in bytes */
static int64_t attn__add64(int64_t a, int64_t b) { return a > ATTN__HUGE - b ? ATTN__HUGE : a + b; }
ATTN__NOINLINE static int64_t attn__mul_large(int64_t a, int64_t b)
{ return b && a > ATTN__HUGE / b ? ATTN__HUGE : a * b; }
static int64_t attn__mul64(int64_t a, int64_t b)        /* nearly every call is spared the division */
{ return ((uint64_t)a | (uint64_t)b) >> 30 == 0 ? a * b : attn__mul_large(a, b); }

/* n / of; mostly without dividing, which takes as long as ten products. (Compilers see through a test of == 1.) */
ATTN__INLINE int64_t attn__quotient(int64_t n, int64_t of) { return n < of ? 0 : of > 1 ? n / of : n; }
static int64_t attn__blocks(int64_t n, int64_t of)      /* rounded up */
{
    return n <= of ? n > 0 : attn__quotient(n - 1, of) + 1;
}

static int64_t attn__magnitude(int64_t x) { return x >= 0 ? x : x < -ATTN__HUGE ? ATTN__HUGE : -x; }
/* For positions: any signs. */
static int64_t attn__add_signed(int64_t a, int64_t b)
{
    if (b > 0 && a > ATTN__HUGE - b) return ATTN__HUGE;
    if (b < 0 && a < -ATTN__HUGE - b) return -ATTN__HUGE;
    return a + b;
}

/* ------------------------------------------------------------------------------------------------------ >>fields
   A row for each view of a public structure, and for each array that a function takes.
   A shape has four characters, for the axes [batch, heads, rows, columns]; the view's own axes are those that are not
   '.', in this order. A letter stands for one size in the whole call: the first field that has it says which, all the
   others must equal that. Lower case: the axis may be missing, the leftmost first. A digit is the size itself, '?' any.
       B batch  H heads  K key heads  Q queries  S keys  D size of a query  E of a key  V of a value  U hidden width
   and where there are starts or pages (attn__letters_of)
       I batch of what lies as the queries do  J of what lies as the keys do  L pages of a pool  R rows of a page */
enum {                          /* what a field is; its element type */
    ATTN__RESULT = 1 << 0,      /* written */
    ATTN__KEPT = 1 << 1,        /* results of the forward pass that the backward pass reads */
    ATTN__OPERAND = 1 << 2,     /* what attends to what: not an option */
    ATTN__OPTIONS = ATTN__RESULT | ATTN__OPERAND,       /* what options are without */
    ATTN__REACHES = 1 << 3,     /* says which keys a query may attend to; one of bytes is a mask */
    ATTN__NEEDED = 1 << 4,      /* must be given, where the score takes it */
    ATTN__BROADCAST = 1 << 5,   /* an axis in lower case may have size 1 */
    ATTN__FOR_VECTORS = 1 << 6, ATTN__FOR_BILINEAR = 1 << 7, ATTN__FOR_ADDITIVE = 1 << 8,   /* which scores take it; */
    ATTN__FOR_DISTANCE = 1 << 9, ATTN__FOR_GIVEN = 1 << 10, ATTN__FOR_SOME = 31 << 6        /* without a bit: all do */
};

/* What it takes: f32, f16 or bf16; these or i8; f32 or f16; f32, f16, bf16 or f64; f32; u8; i32 or i64; i8. */
enum { ATTN__FLOATS, ATTN__CODES, ATTN__SCALES, ATTN__ANY_FLOATS, ATTN__SINGLES, ATTN__BYTES, ATTN__INTS,
       ATTN__ONLY_CODES };

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
#define ATTN__FIELD(name, at, shape, axes, takes, flags, owner) \
    {ATTN__TEXTS(name), "must be that of " axes, shape, ATTN__##takes, owner, (uint16_t)(at), flags}
#define ATTN__ROW(structure, f, shape, axes, takes, flags, owner) \
    ATTN__FIELD(#f, offsetof(structure, f), shape, axes, takes, flags, owner)
#define ATTN__ARGUMENT(f, i, shape, axes, takes, flags, owner)     /* of a function: the i-th of an attn_view[] */ \
    ATTN__FIELD(#f, (i) * sizeof(attn_view), shape, axes, takes, flags, owner)

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

static const char *attn__name(const attn__field *f) { return attn__name_of(f, ATTN__T_VIEW); }
static const char *attn__rank_name(const attn__field *f) { return attn__name_of(f, ATTN__T_RANK); }
static const char *attn__size_name(const attn__field *f, int axis) { return attn__name_of(f, ATTN__T_SIZE + axis); }
static const char *attn__size_rule(const attn__field *f, int axis) { return attn__rule_of(f, ATTN__T_SIZE + axis); }

/* ---- from here to the end of attn__matmul: what attn_cuda.cuh reads too, without the rest */
#define ATTN__IN_THE_MIDDLE
#endif /* ATTN_IMPLEMENTATION */
#if defined(ATTN__IN_THE_MIDDLE) || (defined(ATTN__CUDA_SEAM) && !defined(ATTN__IMPLEMENTED))
#ifndef ATTN__MAY_ALIAS
#  define ATTN__MAY_ALIAS       /* only copied there */
#endif
/* X(field, shape, its axes in words, takes, flags) */
#define ATTN__VIEW_LIST(X) \
    X(q, "BHQD", "[B,H,Sq,D]; without heads H = 1", FLOATS, ATTN__OPERAND | ATTN__NEEDED | ATTN__FOR_VECTORS) \
    X(k, "BKSE", "[B,Hkv,Sk,D]; without heads Hkv = 1", CODES, ATTN__OPERAND | ATTN__NEEDED | ATTN__FOR_VECTORS) \
    X(given_scores, "BHQS", "[B,H,Sq,Sk]; without heads H = 1", FLOATS, ATTN__NEEDED | ATTN__FOR_GIVEN) \
    X(v, "BKSV", "[B,Hkv,Sk,Dv]; without heads Hkv = 1", CODES, ATTN__OPERAND) \
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
    X(bias, "bhqs", "[Sk], [Sq,Sk], [H,Sq,Sk] or [B,H,Sq,Sk]", FLOATS, ATTN__BROADCAST | ATTN__REACHES) \
    X(alibi, ".H..", "[H]", FLOATS, 0) \
    X(sink, ".H..", "[H]", FLOATS, 0) \
    X(mask, "bhqs", "[Sk], [Sq,Sk], [H,Sq,Sk] or [B,H,Sq,Sk]", BYTES, ATTN__BROADCAST | ATTN__REACHES) \
    X(key_lengths, "B.q.", "[B] or [B,Sq]", INTS, ATTN__REACHES) \
    X(query_lengths, "B...", "[B]", INTS, ATTN__REACHES) \
    X(positions, "B.q.", "[B] or [B,Sq]", INTS, ATTN__REACHES) \
    X(k_scale, "BKS?", "[B,Hkv,Sk,1] or [B,Hkv,Sk,ceil(D/32)]", SCALES, ATTN__FOR_VECTORS) \
    X(v_scale, "BKS?", "[B,Hkv,Sk,1] or [B,Hkv,Sk,ceil(Dv/32)]", SCALES, 0) \
    X(query_starts, "B...", "[B]", INTS, ATTN__REACHES) \
    X(key_starts, "B...", "[B]", INTS, ATTN__REACHES) \
    X(page_table, "B.?.", "[B,pages]", INTS, 0) \
    X(carry_in, "BHQ?", "[B,H,Sq,Dv+2]; without heads H = 1", SINGLES, 0) \
    X(carry_out, "BHQ?", "[B,H,Sq,Dv+2]; without heads H = 1", SINGLES, ATTN__RESULT) \
    X(bias_index, "bhqs", "[Sk], [Sq,Sk], [H,Sq,Sk] or [B,H,Sq,Sk]", INTS, ATTN__BROADCAST | ATTN__REACHES)

/* X(type, field, what must hold of a descriptor's number x, else status, rule) */
#define ATTN__SCORE_NUMBERS(X) \
    X(int32_t, score, x >= 0 && x < ATTN_SCORE_COUNT, ATTN_ERR_OPTION, "must be one of attn_score") \
    X(float, scale, attn__is_number(x), ATTN_ERR_RANGE, "must be finite") \
    X(float, sigma, x == 0.0f || attn__is_width(x), ATTN_ERR_RANGE, "must be within 1e-18..1e18, or 0 for 1")
#define ATTN__NUMBERS(X) \
    X(int32_t, align, x >= 0 && x < ATTN_ALIGN_COUNT, ATTN_ERR_OPTION, "must be one of attn_align") \
    X(int32_t, empty, x >= 0 && x < ATTN_EMPTY_COUNT, ATTN_ERR_OPTION, "must be one of attn_empty") \
    X(int32_t, isa, x >= 0 && x < ATTN_ISA_COUNT, ATTN_ERR_OPTION, "must be one of attn_isa") \
    X(int32_t, precision, x >= 0 && x < ATTN_PRECISION_COUNT, ATTN_ERR_OPTION, "must be one of attn_precision") \
    X(int32_t, weights_after_dropout, 1, ATTN_OK, "") \
    X(int64_t, key_origin, 1, ATTN_OK, "") /* attn__check_parts */ \
    X(float, softcap, attn__is_number(x) && x >= 0.0f, ATTN_ERR_RANGE, "must be finite and > 0, or 0 for none") \
    X(float, dropout, attn__is_number(x) && x >= 0.0f && x <= 1.0f, ATTN_ERR_RANGE, "must be within 0..1") \
    X(uint64_t, seed, 1, ATTN_OK, "")

enum {
#define ATTN__X(f, shape, axes, takes, flags) ATTN__F_##f,
    ATTN__VIEW_LIST(ATTN__X)
#undef ATTN__X
    ATTN__F_COUNT
};

/* As above; with the field of attn_desc that it belongs to, and of whose shape it is. */
#define ATTN__OWNERS "what it belongs to"
#define ATTN__GRAD_LIST(X) \
    X(d_out, "BHQV", "[B,H,Sq,Dv]; without heads H = 1", ATTN__OPERAND, 0) \
    X(d_weights, "BHQS", "[B,H,Sq,Sk]; without heads H = 1", 0, 0) \
    X(d_lse, "BHQ.", "[B,H,Sq]; without heads H = 1", 0, 0) \
    X(dq, "BHQD", ATTN__OWNERS, ATTN__RESULT | ATTN__OPERAND, 1 + ATTN__F_q) \
    X(dk, "BKSE", ATTN__OWNERS, ATTN__RESULT | ATTN__OPERAND, 1 + ATTN__F_k) \
    X(dv, "BKSV", ATTN__OWNERS, ATTN__RESULT | ATTN__OPERAND, 1 + ATTN__F_v) \
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
    X(d_alibi, ".H..", ATTN__OWNERS, ATTN__RESULT, 1 + ATTN__F_alibi) \
    X(key_sums, "BHS.", "[B,H,Sk]; without heads H = 1", ATTN__RESULT, 0)
enum {
#define ATTN__X(f, shape, axes, flags, owner) ATTN__G_##f,
    ATTN__GRAD_LIST(ATTN__X)
#undef ATTN__X
    ATTN__G_COUNT
};

/* -------------------------------------------------------------------------------------------------------- >>call
   A descriptor that was checked becomes one attn__call: sizes, options with their defaults, operands, the kernels, the
   steps and how they are cut into tasks. Nothing from >>keys to >>tasks reads attn_desc or attn_grad. */

/* An operand. Element (b, head, row, column) lies stride[0]*b + .. after data; a stride is 0 along an axis that is
   absent, broadcast or of one element; but 1 along such a column of what is not broadcast. */
typedef struct attn__array {
    void   *data;
    int64_t stride[4];
    int32_t type, rank;         /* rank: of the view, 0 = absent */
} attn__array;

static attn__array attn__transposed(attn__array a)      /* rows and columns exchanged */
{
    const int64_t s = a.stride[2];
    a.stride[2] = a.stride[3];
    a.stride[3] = s;
    return a;
}

/* What a phase of tasks does. */
typedef enum attn__step {
    ATTN__STEP_ENTRIES,         /* which tasks of the other steps belong to which batch entry */
    ATTN__STEP_KEYS,            /* prepare blocks of keys, where the score needs it */
    ATTN__STEP_TILES,           /* tiles of queries, or parts of their keys */
    ATTN__STEP_JOIN,            /* the parts of a tile's keys become one */
    ATTN__STEP_ROWS,            /* backward: maximum, 1/mass and delta of every row */
    ATTN__STEP_BLOCKS,          /* backward: blocks of queries against blocks of keys */
    ATTN__STEP_ROUND,           /* backward: a few blocks of queries at a time, which leave sums apart */
    ATTN__STEP_MERGE,           /* backward: these are added up */
    ATTN__STEP_SUMS,            /* backward: sums over rows, the gradients of parameters */
    ATTN__STEP_BIAS             /* backward: d_bias from its sums, where they are floats and it is not */
} attn__step;

/* How the backward pass runs; see >>gradients. */
enum { ATTN__MAX_ROUNDS = (ATTN_MAX_PHASES - 4) / 2 };          /* two phases each */
typedef struct attn__backward {
    int64_t blocks;             /* of queries, per head */
    int64_t tiles;              /* of a block of queries */
    int64_t size_u, pad_u;      /* what dS multiplies: vectors of so many floats (additive: the hidden width) */
    int64_t pad_k, pad_v;       /* sizes rounded up to whole vectors */
    int64_t vector_row, value_row;      /* floats between copied rows of q and k, of d_out */
    int64_t does;               /* ATTN__DO_Q, ATTN__DO_K: what is wanted at all */
    int64_t vectors;            /* 0: dS multiplies no vectors, there is nothing more to find */
    int64_t bias;               /* ATTN__BIAS_x */
    int64_t bias_in_common;     /* the bias's gradient sums over streams, which one task must do in order */
    int64_t all_blocks;         /* dS is a result over all keys, so all blocks are visited */
    int64_t key_parts, query_parts;     /* 0, 0: a task does all of a unit; else tasks of each kind per unit */
    int64_t rounds, slots;      /* or so many rounds; the i-th has a unit's blocks round[i] .. round[i + 1]; */
    int64_t round[ATTN__MAX_ROUNDS + 1];        /* see >>gradients */
    int64_t cells, cell_floats; /* of a unit, each room for dq of one block against one of keys; 0: slots */
    int64_t sum_floats, all_sums;       /* floats of a set of sums of all keys; of all sets, and of the cells */
    int64_t save_u, save_t, save_b;     /* u or da, dt, db: rows that parameters are summed from */
    int64_t main_tasks, rows;   /* rows: B*H*Sq */
} attn__backward;

typedef struct attn__cut { int64_t rows, chunks, parts, slots; } attn__cut;      /* see attn__cut_of */

typedef struct ATTN__MAY_ALIAS attn__call {
    int64_t batch, heads, heads_kv, queries, keys, size_q, size_k, size_v, hidden;
    /* options, as in attn_desc, with defaults */
#define ATTN__X(type, f, ...) type f;
    ATTN__SCORE_NUMBERS(ATTN__X)
    ATTN__NUMBERS(ATTN__X)
#undef ATTN__X
    int32_t  workers;
    uint32_t accumulate;
    int64_t  last_queries;              /* of key_sums: so many of each entry count */
    float    keep_scale;                /* 1/(1-p) of dropout */
    uint32_t origin[4];
    uint64_t drop_below;                /* a weight is dropped where its number is below: 0 = never, 2^32 = always */
    int64_t  left, right;               /* key j is allowed when p - left <= j <= p + right; ATTN__HUGE: unbounded */
    /* operands */
#define ATTN__X(f, ...) attn__array f;
    ATTN__VIEW_LIST(ATTN__X)
    /* how it runs */
    const struct attn__kernels *f;
    int32_t on_device;          /* 0: on the host; 1: on the device of its arrays; n + 2: on that of number n */
    int32_t is_backward;
    int32_t idle;               /* no result has an element */
    int32_t masked;             /* there is a mask */
    int32_t ragged;             /* batch entries have sizes of their own: see >>entries */
    int32_t packed_queries, packed_keys;        /* one batch entry of the arrays has those of all */
    int64_t page, pool;         /* rows of a page of k and v, and how many pages there are; 0: they are not in pages */
    int64_t bias_row;           /* with bias_index: numbers of a row of the bias, a table */
    int64_t all_queries, all_keys;      /* the sizes of the arrays; of an entry's own call: */
    int64_t entry, row0, key0;  /* which entry it is, and where in the arrays its queries and keys begin */
    int32_t same_reach;         /* all rows of a batch entry reach the same keys */
    int32_t not_f32;            /* 0: no array has to become floats */
    int32_t plain_scores;       /* scores become weights as they are, but for which keys a row reaches; neither
                                   scores nor weights are results */
    int32_t softmax_only;       /* softmax of given rows, masked at most: row by row, where they lie */
    const struct attn__pair_kernels *pairs;     /* NULL: products of bf16 are not allowed, or this CPU has none */
    int32_t fast;               /* ATTN__FAST_x: which are made by them */
    uint8_t step[ATTN_MAX_PHASES];      /* attn__step of each phase */
    int64_t streams;            /* key sequences per batch entry: one per key head, or per head where keys are projected
                                   or queries transformed per head */
    int64_t stream_heads, stream_rows;  /* heads of a stream, and their queries */
    int64_t ld;                 /* lanes of a tile */
    int64_t room_lanes, room_keys;      /* of a tile and a chunk, for which a worker has room: as many as there are */
    int64_t tile_lanes;         /* of the call's tiles: ld, or fewer for more tasks */
    int64_t tiles;              /* tiles per stream; a task has so many of them side by side: */
    int64_t task_tiles;
    int64_t task_groups;        /* with entries of their own: groups of tiles of a task */
    int64_t task_heads;         /* or, if above 1, of few rows, those of so many streams: see attn__chunk_of_heads */
    int64_t key_blocks;         /* blocks of ATTN__CHUNK keys per stream to prepare; 0: nothing to prepare */
    int64_t key_floats;         /* prepared floats per key */
    int32_t uneven, by_entry;   /* may entries have tasks of their own; do they? See ragged, attn__cut_keys */
    int64_t work;               /* chunks of all groups of tiles, where the keys of some are cut; else 0 */
    attn__cut cut;              /* the parts are tasks among which those of a group are cut; 1: not cut */
    int64_t slots, most_slots;  /* in all; for which there is room */
    int64_t slot0;              /* in front of an entry */
    int64_t copy_floats;        /* of a worker's room for rows that become floats */
    int64_t skinny_floats;      /* of its room for tiles of few rows; 0: there are none that are laid the other way */
    int64_t output_floats;      /* of a tile's outputs, as lanes or, of few rows, as rows */
    int64_t slot_floats;        /* what a chunk leaves of a row where they are cut */
    int64_t shared_bytes;       /* what the tasks share */
    int64_t worker_bytes;       /* each worker's memory, after it */
    /* of a backward call alone */
    ATTN__GRAD_LIST(ATTN__X)
#undef ATTN__X
    attn__array saved_out, saved_stats; /* out and stats as the forward left them; no results then */
    int64_t bias_size[4];       /* of d_bias */
    attn__backward w;
} attn__call;

/* A matrix product or sums over rows:
       out[x][y][r][c] (+)= scale * sum over batch and k of a[..][r,k] b[..][k,c]
   Batch axes of size 1 are broadcast in a and b, and summed over in out. */
typedef struct attn__matmul {
    attn__array a, b, out;
    int64_t batch[2], out_batch[2];     /* out_batch: 1 where out sums over that axis of batch */
    int64_t rows, columns, depth;
    int64_t b_shares;                   /* so many heads share one of b */
    float   scale;
    int     adds;                       /* to what out holds */
    int     skip;                       /* rows of b that are not finite do not count where a is all -0 (1) or 0 (2) */
    const struct attn__call *cover;     /* not NULL: b are keys, of which those that no query may attend to are not
                                           read, or queries, of which those beyond a length or before a start are not */
    const struct attn__call *ragged;    /* not NULL: depth is what its entries have */
    int     of_keys;                    /* depth: of keys, else of queries */
    attn__array bias;                   /* of a product: added to each of its rows */
    attn__array b_scale;                /* of codes: [columns of b][1, or one per 32 numbers of a column]; or rank 0 */
    const struct attn__kernels *f;
    int64_t column_tiles, row_parts;    /* tasks of a batch entry: columns, 0 for a sum over rows, by rows */
    int64_t tile_rows;                  /* of a sum: rows of a task */
    int64_t copied, results;            /* floats that a worker has before b's columns */
    int     in_place, sums_rows, dots;  /* is b read where it lies; are its rows summed, or its columns multiplied */
    const struct attn__pair_kernels *pairs;     /* not NULL: by products of bf16 */
    int     fast;                       /* ATTN_PRECISION_FAST: a device may take its tensor cores */
    char   *memory;                     /* worker_bytes per worker */
    int64_t worker_bytes;
} attn__matmul;
#endif

#ifdef ATTN__IN_THE_MIDDLE
#undef ATTN__IN_THE_MIDDLE
static const attn__field attn__fields[ATTN__F_COUNT] = {
#define ATTN__X(f, shape, axes, takes, flags) ATTN__ROW(attn_desc, f, shape, axes, takes, flags, 0),
    ATTN__VIEW_LIST(ATTN__X)
#undef ATTN__X
};
#if !defined(ATTN_NO_BACKWARD) || defined(ATTN_CUDA)
static const attn__field attn__grad_fields[ATTN__G_COUNT] = {
#define ATTN__X(f, shape, axes, flags, owner) ATTN__ROW(attn_grad, f, shape, axes, FLOATS, flags, owner),
    ATTN__GRAD_LIST(ATTN__X)
#undef ATTN__X
};
#endif
/* In place of a bias and its gradient where there is a bias_index. */
static const attn__field attn__bias_table =
    ATTN__ROW(attn_desc, bias, ".h.?", "[N] or [H,N] with bias_index", FLOATS, ATTN__BROADCAST | ATTN__REACHES, 0);
#if !defined(ATTN_NO_BACKWARD) || defined(ATTN_CUDA)
static const attn__field attn__d_bias_table =
    ATTN__ROW(attn_grad, d_bias, ".h.?", ATTN__OWNERS, FLOATS, ATTN__RESULT | ATTN__BROADCAST, 1 + ATTN__F_bias);
#endif

/* ------------------------------------------------------------------------------------------------------- >>views
   A view as the caller made it: axes, elements, the bytes it reaches; the operand that it becomes; its check. */
/* The view that a row tells of; attn_out and attn_view have one layout. */
static attn_view attn__view_in(const void *structure, const attn__field *f)
{
    attn_view v;
    ATTN__COPY(&v, (const char *)structure + f->offset, sizeof v);
    return v;
}

/* Gives a view all four axes of its shape; those that it lacks have size 1, and size 1 has stride 0. axis: which axis
   it was, or -1. Returns how many it has to have: another number than its rank where that is impossible. */
static int attn__widen(attn_view *v, const char *shape, int *axis)
{
    int i, n = 0, most = 0;
    ATTN__UNROLL for (i = 0; i < 4; i++) {
        axis[i] = i;
        most += shape[i] != '.';
        if (i < v->rank && v->size[i] == 1) v->stride[i] = 0;
    }
    if (most == 4 && v->rank == 4) return 4;                    /* nearly always: all of them */
    for (i = 0; i < 4; i++) {
        const int left_out = shape[i] >= 'a' && most > v->rank;
        most -= left_out;
        axis[i] = shape[i] == '.' || left_out ? -1 : n++;
    }
    for (i = 3; n == v->rank && i >= 0; i--) {                  /* in place: no axis moves to the left */
        v->size[i] = axis[i] < 0 ? 1 : v->size[axis[i]];
        v->stride[i] = v->size[i] == 1 ? 0 : v->stride[axis[i]];
    }
    return n;
}

static attn_view attn__view4(attn_view v, const char *shape)
{
    int axis[4];
    if (attn__widen(&v, shape, axis) == v.rank && v.rank > 0) v.rank = 4;
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

enum { ATTN__RANK_NONE = -1, ATTN__RANK_OVERFLOW = -2 };     /* of what the functions that make views cannot make */

static int64_t attn__type_size(int32_t type)
{
    static const uint8_t size[ATTN_TYPE_COUNT] = {4, 2, 2, 8, 1, 4, 8, 1};
    return type >= 0 && type < ATTN_TYPE_COUNT ? size[type] : 4;
}

/* A view with four axes as an operand. An axis of one element has the stride 0, so that no stride is used that no
   element has; but 1 where it is the column of what is not broadcast: such rows are contiguous. Without an element it
   lies at a place that exists, and no stride leads away from it. */
static void attn__set_array(const attn_view *v, const char *shape, int empty, attn__array *a)
{
    a->data = (void *)(uintptr_t)v->data;
    a->type = v->type;
    a->rank = v->rank;
    ATTN__COPY(a->stride, v->stride, sizeof a->stride);
    if (empty) {
        a->data = (void *)(uintptr_t)(const void *)attn__zeros;
        attn__zero(a->stride, sizeof a->stride);
    }
    if (shape[3] <= 'Z' && shape[3] != '?' && (empty || v->size[3] == 1)) a->stride[3] = 1;
}

static attn__array attn__array_of(attn_view v, const char *shape)
{
    attn__array a;
    int axis[4];
    const int empty = !attn__elements(&v);
    attn__widen(&v, shape, axis);
    attn__set_array(&v, shape, empty, &a);
    return a;
}

/* The bytes that a view with elements reaches: the first, and the one after the last. */
typedef struct attn__span { uintptr_t first, end; } attn__span;
static attn__span attn__span_of(const attn_view *v, int rank)
{
    const int64_t bytes = attn__type_size(v->type);
    int64_t below = 0, above = bytes;
    attn__span s;
    int i;
    for (i = 0; i < rank; i++) {
        const int64_t reach = v->stride[i] * (v->size[i] - 1) * bytes;
        below += attn__min(reach, 0);
        above += attn__max(reach, 0);
    }
    s.first = (uintptr_t)v->data + (uintptr_t)below;
    s.end = (uintptr_t)v->data + (uintptr_t)above;
    return s;
}

/* Do the four axes nest, each stride at least as large as all that lies below it? Then no two elements coincide. */
static int attn__nests(const attn_view *v)
{
    int64_t stride[4], size[4], covered = 1;
    int i, j, n = 0;
    for (i = 0; i < 4; i++) {
        const int64_t step = attn__magnitude(v->stride[i]);
        if (v->size[i] <= 1) continue;
        for (j = n++; j > 0 && stride[j - 1] > step; j--) {
            stride[j] = stride[j - 1];
            size[j] = size[j - 1];
        }
        stride[j] = step;
        size[j] = v->size[i];
    }
    for (i = 0; i < n; i++) {
        if (stride[i] < covered) return 0;
        covered = attn__add64(attn__mul64(stride[i], size[i] - 1), covered);
    }
    return 1;
}

/* ---- each view by its row of >>fields: type, rank, sizes by their letters, extent, whom it belongs to. What is found
   goes into an attn__checker, and the operands into the call. */

/* What a check is for: a call on these data, or only its sizes. */
enum {
    ATTN__WITH_DATA = 1,
    ATTN__NO_RESULT_NEEDED = 2,
#ifdef ATTN_CUDA
    ATTN__ON_DEVICE = 4, ATTN__ON_HOST = 8,         /* neither: there is no array yet that would tell */
    ATTN__AS_TASKS = 16,                            /* what may lie on the host is used there */
    ATTN__AT_ONCE = 32,                             /* it runs next: a device then finds its workspace */
#else
    ATTN__ON_DEVICE = 0, ATTN__ON_HOST = 0, ATTN__AS_TASKS = 0, ATTN__AT_ONCE = 0,
#endif
    ATTN__DEVICE_UNIT = 64                          /* times 1 + the number of the device, 0 where that is not known */
};
static int attn__on_device(int flags)               /* see attn__call */
{ return flags & ATTN__ON_DEVICE ? 1 + flags / ATTN__DEVICE_UNIT : 0; }
#ifdef ATTN_CUDA
#define ATTN__CUDA_ONLY(...) __VA_ARGS__
#else
#define ATTN__CUDA_ONLY(...)
#endif

ATTN__NOINLINE static attn_status attn__check_type(const attn_view *v, const attn__field *f, attn_error *err)
{
    static const struct { uint32_t types; const char *rule; } takes[] = {
#define ATTN__T(name) (1u << ATTN_##name)
        {ATTN__T(F32) | ATTN__T(F16) | ATTN__T(BF16), "must be ATTN_F32, ATTN_F16 or ATTN_BF16"},
        {ATTN__T(F32) | ATTN__T(F16) | ATTN__T(BF16) | ATTN__T(I8), "must be ATTN_F32, ATTN_F16, ATTN_BF16 or ATTN_I8"},
        {ATTN__T(F32) | ATTN__T(F16), "must be ATTN_F32 or ATTN_F16"},
        {ATTN__T(F32) | ATTN__T(F16) | ATTN__T(BF16) | ATTN__T(F64), "must be a type of floats"},
        {ATTN__T(F32), "must be ATTN_F32"}, {ATTN__T(U8), "must be ATTN_U8"},
        {ATTN__T(I32) | ATTN__T(I64), "must be ATTN_I32 or ATTN_I64"}, {ATTN__T(I8), "must be ATTN_I8"}};
#undef ATTN__T
    if (v->type < 0 || v->type >= ATTN_TYPE_COUNT || !(takes[f->takes].types & 1u << v->type))
        return attn__fail_type(err, attn__name_of(f, ATTN__T_TYPE), takes[f->takes].rule, v->type);
    return ATTN_OK;
}

/* Sizes and extent of a view of any size; what passes leaves room in 64 bits. */
ATTN__NOINLINE static attn_status attn__check_extent(const attn_view *v, const attn__field *f, const int *axis,
                                                     attn_error *err)
{
    const int64_t most = attn__min(ATTN__HUGE / 2, (int64_t)((size_t)-1 / 2));
    int64_t elements = 1, extent = 1;
    int i;
    for (i = 0; i < 4; i++) {
        ATTN__RULE2_OF(v->size[i] >= 0, SIZE, attn__size_name(f, axis[i]), "must be at least", v->size[i], 0);
        elements = attn__mul64(elements, v->size[i]);
        extent = attn__add64(extent, attn__mul64(attn__magnitude(v->stride[i]), v->size[i] - 1));
    }
    if (elements == 0) return ATTN_OK;
    ATTN__RULE_OF(elements <= ATTN__HUGE / 8, OVERFLOW, attn__name(f), "must have fewer than 2^60 elements");
    ATTN__RULE_OF(attn__mul64(extent, attn__type_size(v->type)) <= most, OVERFLOW, attn__name_of(f, ATTN__T_STRIDE),
                  "must keep the extent within memory");
    return ATTN_OK;
}

/* Nearly always: elements, but so few, and no negative stride, that there is no need for attn__check_extent; span: what
   they reach. */
static int attn__is_small(const attn_view *v, attn__span *span)
{
    uint64_t steps = 0, strides = 0, last = 0;
    int i;
    for (i = 0; i < 4; i++) {
        const uint64_t n = (uint64_t)v->size[i] - 1u;       /* huge where there is no element */
        steps |= n;
        strides |= (uint64_t)v->stride[i];
        last += (uint64_t)v->stride[i] * n;
    }
    span->first = (uintptr_t)v->data;
    span->end = span->first + (uintptr_t)((last + 1) * (uint64_t)attn__type_size(v->type));
    return sizeof(size_t) >= 8 && steps >> 14 == 0 && strides >> 40 == 0;
}

/* One view on its own: rank, type, sizes, extent. Gives it four axes; axis: as attn__widen; span: what it reaches. */
static attn_status attn__check_view(attn_view *v, const attn__field *f, int flags, int *axis, attn__span *span,
                                    attn_error *err)
{
    const int axes = attn__widen(v, f->shape, axis);
    ATTN__RULE_OF(v->rank != ATTN__RANK_OVERFLOW, OVERFLOW, attn__name(f), "must have fewer than 2^60 elements");
    ATTN__RULE2_OF(v->rank == axes && axes > 0, RANK, attn__rank_name(f), f->axes, v->rank, axes > 0 ? axes : 1);
    if (f->takes > ATTN__SINGLES || v->type != ATTN_F32) ATTN__TRY(attn__check_type(v, f, err));
    if (!attn__is_small(v, span)) {
        ATTN__TRY(attn__check_extent(v, f, axis, err));
        span->first = span->end = (uintptr_t)v->data;
        if (!v->size[0] || !v->size[1] || !v->size[2] || !v->size[3]) return ATTN_OK;
        *span = attn__span_of(v, 4);
    }
    ATTN__RULE_OF(!(flags & ATTN__WITH_DATA) || v->data, NULL, attn__name_of(f, ATTN__T_DATA), "must not be NULL");
    ATTN__RULE_OF(!(f->flags & ATTN__RESULT) || attn__nests(v), STRIDE, attn__name_of(f, ATTN__T_STRIDE),
                  "must not make the output overlap itself");
    return ATTN_OK;
}

/* What is known while the tables of a call are checked: what each letter stands for and by which field; its views. */
#define ATTN__LETTER(w, letter) ((w)->size[(letter) - 'A'])
typedef struct attn__checked { const attn__field *field; const void *structure; attn__span span; } attn__checked;
typedef struct attn__checker {
    int64_t            size[26];
    const attn__field *of[26];          /* NULL: no field had this letter yet */
    uint32_t           takes;           /* ATTN__FOR_x of the score */
    uint32_t           types;           /* a bit for each element type that was found */
    int                flags, count, in_place;
    int                layouts;         /* ATTN__STARTS_OF_x, ATTN__PAGED: what changes letters */
    int                indexed;         /* there is a bias_index */
    int                pairs;           /* with starts: the descriptor has an array whose columns are those of k */
    int64_t            columns;         /* packed: fewest of a mask or a bias, and whose: no entry has more keys */
    const attn__field *columns_of;
    int                inputs;          /* so many of those found, the first, are only read in a backward pass */
    int                results;         /* 0: none is asked for; 1: none has an element; 3 */
    attn__call        *call;            /* gets the operands of the descriptor and its gradients; NULL: nobody does */
    int8_t             axis[26];        /* from here on only what was set before is read */
    const attn__field *owners;          /* of gradients, and where these lie */
    const void        *owned;
    attn__checked      found[(int)ATTN__F_COUNT + (int)ATTN__G_COUNT + 24];     /* 24: of attn_mha_desc and _grad */
} attn__checker;

static void attn__begin_checks(attn__checker *w, attn__call *call, int flags)
{
    attn__zero(w, offsetof(attn__checker, axis));
    w->takes = ATTN__FOR_SOME;
    w->call = call;
    w->flags = flags;
}

/* The letters of a field where there are starts or pages. What has queries and keys has any batch size, or any number
   of columns, until attn__check_pairs. */
enum { ATTN__STARTS_OF_QUERIES = 1, ATTN__STARTS_OF_KEYS = 2, ATTN__STARTS = 3, ATTN__PAGED = 4 };
static const char *attn__letters_of(const attn__checker *w, const attn__field *f, const int *axis, char *letters)
{
    const char *shape = f->shape;
    ATTN__COPY(letters, shape, 4);
    if (shape[3] == 's' && w->layouts & ATTN__STARTS) letters[3] = '?';
    if (shape[0] != 'B') return letters;
    if (shape[3] == 'S') letters[0] = w->layouts & ATTN__STARTS ? '?' : 'B';
    else if (shape[1] == 'K' && w->layouts & ATTN__PAGED) {             /* a pool */
        letters[0] = 'L';
        letters[2] = 'R';
    } else if (shape[2] == 'S' && w->layouts & ATTN__STARTS_OF_KEYS) letters[0] = 'J';
    else if ((shape[2] == 'Q' || (shape[2] == 'q' && axis[2] >= 0)) && w->layouts & ATTN__STARTS_OF_QUERIES)
        letters[0] = 'I';
    return letters;
}

/* What a letter stands for, from elsewhere; axis -1: the first text of the field is the rule. */
static void attn__bind(attn__checker *w, char letter, int64_t size, const attn__field *f, int axis)
{
    w->size[letter - 'A'] = size;
    w->of[letter - 'A'] = f;
    w->axis[letter - 'A'] = (int8_t)axis;
}

static const char attn__broadcast_rule[] =
    "must be 1 or that of [B,H,Sq,Sk], axes counted from the right: [Sq,Sk], [H,Sq,Sk], [B,1,1,Sk], ...";

/* One size against its letter. Key heads must divide the heads; most scores multiply keys by queries, so D = E. */
ATTN__NOINLINE static attn_status attn__check_letter(attn__checker *w, const attn__field *f, char letter, int axis,
                                                     int64_t size, attn_error *err)
{
    const int64_t batch = ATTN__LETTER(w, 'B'), heads = ATTN__LETTER(w, 'H');
    const int broadcasts = letter >= 'a' && f->flags & ATTN__BROADCAST;
    int n = letter - (letter >= 'a' ? 'a' : 'A');
    if (letter == '?' || (letter < 'A' && size == letter - '0') || (broadcasts && size == 1)) return ATTN_OK;
    ATTN__RULE2_OF(letter >= 'A', SIZE, attn__size_name(f, axis), "must be", size, letter - '0');
    if (!w->of[n]) {
        attn__bind(w, (char)('A' + n), size, f, axis);
        ATTN__RULE2_OF((letter != 'I' && letter != 'J') || size == 1 || size == batch, SIZE, attn__size_name(f, axis),
                       "must be 1 (packed), or the number of starts", size, batch);
        if (letter == 'K' && size != heads && (size ? heads % size : heads) != 0)
            return attn__fail_divides(err, ATTN_ERR_SIZE, attn__size_name(f, axis),
                                      "must divide the number of query heads", size, heads);
        if (letter != 'E' || w->takes & (ATTN__FOR_BILINEAR | ATTN__FOR_ADDITIVE)) return ATTN_OK;
        n = 'D' - 'A';
    }
    ATTN__RULE2_OF(size == w->size[n], SIZE, attn__size_name(f, axis),
                   !broadcasts ? attn__size_rule(w->of[n], w->axis[n]) :
                   f->shape[3] == '?' ? "must be 1 or that of the heads, with bias_index" :
                   f->shape[3] != 's' ? "must broadcast with a: be 1 or" :
                   attn__broadcast_rule,
                   size, w->size[n]);
    return ATTN_OK;
}

/* All four; those that have rules of their own: K, E, I, J. */
ATTN__INLINE attn_status attn__check_letters(attn__checker *w, const attn__field *f, const char *letters,
                                             const int *axis, const attn_view *v, attn_error *err)
{
    const uint32_t with_rules = 1u << ('K' - 'A') | 1u << ('E' - 'A') | 1u << ('I' - 'A') | 1u << ('J' - 'A');
    int i;
    for (i = 0; i < 4; i++) {
        const unsigned n = (unsigned char)letters[i] - (unsigned)'A';
        if (n < 26 && w->of[n] && w->size[n] == v->size[i]) continue;           /* nearly always: known and the same */
        if (n < 26 && !w->of[n] && !(with_rules >> n & 1)) attn__bind(w, letters[i], v->size[i], f, axis[i]);
        else if (axis[i] >= 0) ATTN__TRY(attn__check_letter(w, f, letters[i], axis[i], v->size[i], err));
    }
    return ATTN_OK;
}

/* A gradient against what it belongs to. */
static attn_status attn__check_owner(const attn__checker *w, const attn__field *f, const attn_view *v, const int *axis,
                                     attn_error *err)
{
    const attn__field *o = f->shape[3] == '?' && w->indexed ? &attn__bias_table : &w->owners[f->owner - 1];
    attn_view like = attn__view_in(w->owned, o);
    const int rank = like.rank;
    int i;
    ATTN__RULE_OF(rank, OPTION, attn__name(f), "must be absent where what it belongs to is");
    ATTN__RULE2_OF(v->rank == rank, RANK, attn__rank_name(f), f->axes, v->rank, rank);
    like = attn__view4(like, o->shape);
    for (i = 0; i < 4; i++)
        ATTN__RULE2_OF(v->size[i] == like.size[i], SIZE, attn__size_name(f, axis[i]), attn__size_rule(o, axis[i]),
                       v->size[i], like.size[i]);
    return ATTN_OK;
}

/* What is said of a field that the score does not take, or that it lacks. */
ATTN__NOINLINE static attn_status attn__refuse_field(const attn__field *f, int given, attn_error *err)
{
    static const struct { uint32_t by; const char *only, *needed; } rules[] = {
        {ATTN__FOR_VECTORS, "must be absent for ATTN_SCORE_GIVEN", "must be given"},
        {ATTN__FOR_BILINEAR, "counts for ATTN_SCORE_BILINEAR only", "must be given for ATTN_SCORE_BILINEAR"},
        {ATTN__FOR_ADDITIVE, "counts for ATTN_SCORE_ADDITIVE only", "must be given for ATTN_SCORE_ADDITIVE"},
        {ATTN__FOR_GIVEN, "counts for ATTN_SCORE_GIVEN only", "must be given for ATTN_SCORE_GIVEN"},
        {ATTN__FOR_DISTANCE, "counts for the distance kernels only", ""}, {ATTN__NEEDED, "", "must be given"}};
    int i = 0;
    while (!(f->flags & rules[i].by)) i++;
    return given ? attn__fail(err, ATTN_ERR_OPTION, attn__name(f), rules[i].only) :
        attn__fail(err, ATTN_ERR_NULL, attn__name(f), rules[i].needed);
}

static const attn__field *attn__indexed_field(const attn__field *f)
{
#if !defined(ATTN_NO_BACKWARD) || defined(ATTN_CUDA)
    if (f == &attn__grad_fields[ATTN__G_d_bias]) return &attn__d_bias_table;
#endif
    return f == &attn__fields[ATTN__F_bias] ? &attn__bias_table : f;
}

/* The views of one structure, and as operands where `to` is given. Those with a flag of `without` do not count, those
   with one of `unread` need no data. */
static attn_status attn__check_fields(attn__checker *w, const void *structure, const attn__field *fields, int count,
                                      uint32_t without, uint32_t unread, attn__array *to, attn_error *err)
{
    int i;
    for (i = 0; i < count; i++) {
        const attn__field *f = &fields[i];
        const char *at = (const char *)structure + f->offset;
        attn__checked *found;
        const void *data;
        int32_t rank;
        attn_view v;
        char letters[4];
        int taken, axis[4];
        ATTN__COPY(&rank, at + offsetof(attn_view, rank), sizeof rank);
        ATTN__COPY(&data, at + offsetof(attn_view, data), sizeof data);
        if (!rank && !data && !(f->flags & ATTN__NEEDED)) continue;         /* nearly always */
        if (f->flags & without) continue;
        taken = !(f->flags & ATTN__FOR_SOME) || f->flags & w->takes;
        if (rank ? !taken : !data && taken) return attn__refuse_field(f, rank != 0, err);
        if (!rank && !data) continue;               /* absent; data without a rank is a forgotten one */
        if (w->indexed) f = attn__indexed_field(f);
        found = &w->found[w->count++];
        ATTN__COPY(&v, at, sizeof v);
        ATTN__TRY(attn__check_view(&v, f, f->flags & unread ? w->flags & ~ATTN__WITH_DATA : w->flags, axis,
                                   &found->span, err));
        if (f->owner) ATTN__TRY(attn__check_owner(w, f, &v, axis, err));
        else ATTN__TRY(attn__check_letters(w, f, w->layouts ? attn__letters_of(w, f, axis, letters) : f->shape, axis,
                                           &v, err));
        w->types |= 1u << v.type;
        if (to) attn__set_array(&v, f->shape, found->span.first == found->span.end, &to[i]);
        if (f->flags & ATTN__RESULT) w->results |= found->span.first == found->span.end ? 1 : 3;
        found->field = f;
        found->structure = structure;
    }
    return ATTN_OK;
}

/* ----------------------------------------------------------------------------------------------------- >>overlap
   No output may share a byte with another one or with an input. */
static int attn__apart(attn__span a, attn__span b) { return a.end <= b.first || b.end <= a.first; }

/* The first byte and the length of the inner part of a view: the axes whose byte stride g does not divide. */
static uintptr_t attn__inner_part(const attn_view *v, int64_t g, int64_t *length)
{
    attn_view inner = *v;
    attn__span span;
    int i;
    for (i = 0; i < v->rank; i++)
        if (v->size[i] <= 1 || v->stride[i] * attn__type_size(v->type) % g == 0) inner.size[i] = 1;
    span = attn__span_of(&inner, inner.rank);
    *length = (int64_t)(span.end - span.first);
    return span.first;
}

/* Can it be seen that two views share no byte? By their extents, or because they interleave, as the q, k and v of a
   packed array do: modulo a common outer stride they lie beside each other. */
ATTN__NOINLINE static int attn__disjoint(const attn_view *a, const attn_view *b)
{
    int64_t a_length, b_length, apart;
    int i;
    if (!attn__elements(a) || !attn__elements(b)) return 1;
    if (attn__apart(attn__span_of(a, a->rank), attn__span_of(b, b->rank))) return 1;
    for (i = 0; i < a->rank; i++) {
        uintptr_t a_start, b_start;
        int64_t g;
        if (a->size[i] <= 1 || a->stride[i] == 0) continue;
        g = attn__magnitude(a->stride[i]) * attn__type_size(a->type);
        a_start = attn__inner_part(a, g, &a_length);
        b_start = attn__inner_part(b, g, &b_length);
        apart = (int64_t)(b_start - a_start) % g;               /* from a's to b's start, modulo g */
        apart = apart < 0 ? apart + g : apart;
        if (a_length <= apart && apart + b_length <= g) return 1;
    }
    return 0;
}

/* The masked softmax may work in place, its weights where its scores were; and so may what is carried. */
ATTN__NOINLINE static int attn__in_place(const attn__checker *w, const attn__checked *o, const attn__checked *x)
{
    const attn_view a = attn__view_in(o->structure, o->field), b = attn__view_in(x->structure, x->field);
    const int softmax = w->in_place && o->field == &attn__fields[ATTN__F_weights] &&
                        x->field == &attn__fields[ATTN__F_given_scores];
    const int carry = o->field == &attn__fields[ATTN__F_carry_out] && x->field == &attn__fields[ATTN__F_carry_in];
    int i, same = (softmax || carry) && a.data == b.data && a.type == b.type;
    for (i = 0; i < 4; i++) same = same && (b.size[i] <= 1 || b.stride[i] == a.stride[i]);
    return same;
}

static int attn__is_written(const attn__checker *w, const attn__checked *f)
{
    return f >= w->found + w->inputs && f->field->flags & ATTN__RESULT;
}

static attn_status attn__check_overlaps(const attn__checker *w, attn_error *err)
{
    const attn__checked *o, *x, *end = w->found + w->count;
    for (o = w->found; o < end; o++)
        for (x = w->found; attn__is_written(w, o) && x < end; x++) {
            const int both = attn__is_written(w, x);
            attn_view a, b;
            if (x == o || (both && x < o) || attn__apart(o->span, x->span)) continue;
            a = attn__view_in(o->structure, o->field);
            b = attn__view_in(x->structure, x->field);
            ATTN__RULE_OF(attn__in_place(w, o, x) || attn__disjoint(&a, &b), OVERLAP,
                          attn__name(o->field),
                          both ? "must not overlap another output" : "must not overlap an input");
        }
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------------------------- >>rules
   What no row of a table can say: what lengths, positions, starts and pages hold, which options go together, what a
   gradient needs; then a whole descriptor in its order. */
static int64_t attn__int_of(const void *at, int32_t type);
static int64_t attn__int_at(const attn__array *a, int64_t b, int64_t row);
static const void *attn__place_of(const attn__array *a, int64_t b, int64_t h, int64_t row, int64_t column);
static int64_t attn__shift_of(const attn__array *a);
static float attn__of_head(const attn__array *a, int64_t h);
/* The rows and keys of a batch entry. */
typedef struct attn__extent { int64_t row0, rows, key0, keys; } attn__extent;

static const attn__array *attn__operands_of(const attn__call *c, size_t first)      /* of a call, from that member on */
{
    return (const attn__array *)(const void *)((const char *)c + first);
}

static attn__array *attn__operands(attn__call *c, size_t first)        /* the same to be written */
{
    return (attn__array *)(uintptr_t)attn__operands_of(c, first);
}

/* Of how many entries lengths or positions are looked at: what is repeated, once; without data, or without a row, of
   none, however large the batch is said to be. */
static int64_t attn__entries_of_ints(const attn__array *a, int64_t batch, const attn__extent *x)
{
    if (!a->rank || !a->data || (a->rank == 2 && !x->rows)) return 0;
    return a->stride[0] ? batch : attn__min(batch, 1);
}

/* Lengths or positions of entry b, one or one for each of its rows: each least..most. */
static attn_status attn__check_ints(const attn__call *c, int field, int64_t least, int64_t most, const char *at_most,
                                    int64_t b, const attn__extent *x, attn_error *err)
{
    const attn__array *a = attn__operands_of(c, offsetof(attn__call, q)) + field;
    const int each = a->rank == 2;
    const int64_t rows = each && a->stride[2] ? x->rows : each ? attn__min(x->rows, 1) : 1, first = each ? x->row0 : 0;
    int64_t i;
    for (i = first; a->rank && a->data && i < first + rows; i++)       /* no data: sizes are asked for */
        ATTN__TRY(attn__check_within(err, attn__name(&attn__fields[field]), attn__int_at(a, b, i), least, most, at_most,
                                     each && c->packed_queries ? 0 : b, each ? i : -1));
    return ATTN_OK;
}

static int attn__is_number(float x) { return (attn__bits(x) & 0x7f800000u) != 0x7f800000u; }

static int attn__is_flag(int32_t x) { return (x & ~1) == 0; }
static int attn__is_width(float x) { return x >= 1e-18f && x <= 1e18f; }       /* its square is a normal float */

/* From the score's row in >>scores: the views it takes (ATTN__FOR_x); is it the logarithm of a weight? */
static uint32_t attn__views_of_score(int32_t score);
static int attn__is_kernel(int32_t score);
#define ATTN__NUMBER_RULE(type, f, holds, status, rule) \
    do { const type x = d->f; if (!(holds)) return attn__fail(err, status, #f "\0" rule, NULL); (void)x; } while (0);
static attn_status attn__check_score(const attn_desc *d, attn_error *err)
{
    ATTN__SCORE_NUMBERS(ATTN__NUMBER_RULE)
    ATTN__RULE(!attn__is_kernel(d->score) || (!d->scale_set && d->scale == 0.0f), OPTION, "scale",
               "must not be set for a distance kernel: sigma sets its width");
    ATTN__RULE(attn__views_of_score(d->score) & ATTN__FOR_DISTANCE || d->sigma == 0.0f, OPTION, "sigma",
               "counts for the distance kernels only");
    ATTN__RULE(d->sigma == 0.0f || !d->sigma_per_head.rank, OPTION, "sigma", "must be 0 where sigma_per_head is given");
    return ATTN_OK;
}

static attn_status attn__check_options(const attn_desc *d, attn_error *err)
{
    ATTN__NUMBERS(ATTN__NUMBER_RULE)
    ATTN__RULE(d->align != ATTN_ALIGN_POSITIONS || d->positions.rank, NULL, "positions",
               "must be given for ATTN_ALIGN_POSITIONS");
    ATTN__RULE(d->align == ATTN_ALIGN_POSITIONS || !d->positions.rank, OPTION, "align",
               "must be ATTN_ALIGN_POSITIONS where positions are given");
    ATTN__RULE(attn__is_flag(d->window), OPTION, "window",
               "must be 0 or 1: window_left and window_right say how far it reaches");
    ATTN__RULE(attn__is_flag(d->causal), OPTION, "causal", "must be 0 or 1");
    ATTN__RULE(attn__is_flag(d->scale_set), OPTION, "scale_set", "must be 0 or 1");
    ATTN__RULE(attn__is_flag(d->weights_after_dropout), OPTION, "weights_after_dropout", "must be 0 or 1");
    ATTN__RULE_OF(d->window || (d->window_left == 0 && d->window_right == 0), OPTION,
                  d->window_left ? "window_left" : "window_right", "counts only with window");
    ATTN__RULE2(!d->window || d->window_left >= ATTN_UNBOUNDED, RANGE, "window_left", "must be at least",
                d->window_left, ATTN_UNBOUNDED);
    ATTN__RULE2(!d->window || d->window_right >= ATTN_UNBOUNDED, RANGE, "window_right", "must be at least",
                d->window_right, ATTN_UNBOUNDED);
    ATTN__RULE(d->isa == ATTN_ISA_AUTO || attn__cpu_has((attn_isa)d->isa), ISA, "isa",
               "must be on this CPU and in this build");
    ATTN__RULE(d->reserved == 0, OPTION, "reserved", "must be 0");
    ATTN__RULE(d->reserved2 == 0, OPTION, "reserved2", "must be 0");
    ATTN__RULE(!d->allocator.allocate == !d->allocator.release, NULL, "allocator", "must have both functions or none");
    ATTN__RULE(d->parallel.workers >= 0, RANGE, "parallel.workers", "must not be negative");
    return ATTN_OK;
}

static const int64_t attn__far = (int64_t)1 << 62;      /* positions up to here can be added to sizes */
/* What the arrays hold that can be looked at. */
static attn_status attn__check_contents(const attn__checker *w, attn_error *err)
{
    const attn__call *c = w->call;
    const attn__extent all = {0, ATTN__LETTER(w, 'Q'), 0, ATTN__LETTER(w, 'S')};
    const char *axis = "must be at most the size of its axis";
    const int most = w->layouts & ATTN__STARTS_OF_QUERIES ? 1 : 2;       /* attn__check_entry looks at [B,Sq] */
    const int64_t batch = w->types & (1u << ATTN_I32 | 1u << ATTN_I64) ? ATTN__LETTER(w, 'B') : 0;
    int64_t b, h;
    for (b = 0; c->key_lengths.rank <= most && b < attn__entries_of_ints(&c->key_lengths, batch, &all); b++)
        ATTN__TRY(attn__check_ints(c, ATTN__F_key_lengths, 0, all.keys, axis, b, &all, err));
    for (b = 0; b < attn__entries_of_ints(&c->query_lengths, batch, &all); b++)
        ATTN__TRY(attn__check_ints(c, ATTN__F_query_lengths, 0, all.rows, axis, b, &all, err));
    for (b = 0; c->positions.rank <= most && b < attn__entries_of_ints(&c->positions, batch, &all); b++)
        ATTN__TRY(attn__check_ints(c, ATTN__F_positions, -attn__far, attn__far, "must be at most", b, &all, err));
    for (h = 0; c->sigma_per_head.rank && c->sigma_per_head.data && h < ATTN__LETTER(w, 'H'); h++)
        ATTN__RULE(attn__is_width(attn__of_head(&c->sigma_per_head, h)), RANGE, "sigma_per_head",
                   "must be within 1e-18..1e18");
    return ATTN_OK;
}

/* The first of n indices, `step` elements apart, that is larger; n: none. */
static int64_t attn__first_above(const void *index, int32_t type, int64_t step, int64_t n, int64_t most)
{
    const int32_t *from = (const int32_t *)index;
    const int64_t *wide = (const int64_t *)index;
    int64_t j = 0;
    if (type == ATTN_I32) while (j < n && from[j * step] <= most) j++;
    else while (j < n && wide[j * step] <= most) j++;
    return j;
}

/* A bias by index: its table, and whether all indices are in it. What rows share is looked at once: where they are
   `shift` elements apart, in steps of the columns, each but the first has so many new ones. */
static attn_status attn__check_index(const attn__checker *w, const attn_desc *d, attn_error *err)
{
    const attn_view v = attn__view4(d->bias_index, "bhqs"), *table = &d->bias;
    const attn__array *a = &w->call->bias_index;
    const int64_t shift = attn__shift_of(a), most = table->rank > 0 ? table->size[table->rank - 1] - 1 : 0;
    const int64_t rows = a->stride[2] ? v.size[2] : 1, columns = a->stride[3] ? v.size[3] : 1;
    int64_t b, h, i, j, end;
    ATTN__RULE(table->rank, NULL, "bias", "must be given where bias_index is: the table");
    w->call->bias_row = most + 1;
    ATTN__CUDA_ONLY(ATTN__RULE(!(w->flags & ATTN__ON_DEVICE), PLACE, "bias_index", "must be absent on a device");)
    for (b = 0; a->data && attn__elements(&v) && b < (a->stride[0] ? v.size[0] : 1); b++)
        for (h = 0; h < (a->stride[1] ? v.size[1] : 1); h++)
            for (i = 0; i < rows; i++) {
                j = i && shift >= 0 && shift < columns ? columns - shift : 0;
                end = i && shift < 0 && -shift < columns ? -shift : columns;
                j += attn__first_above(attn__place_of(a, b, h, i, j), a->type, a->stride[3], end - j, most);
                if (j < end)
                    return attn__fail_at(err, "bias_index", "must be within the table: at most",
                                         attn__int_of(attn__place_of(a, b, h, i, j), a->type), most,
                                         d->bias_index.rank == 1 ? j : i, d->bias_index.rank == 1 ? -1 : j);
            }
    return ATTN_OK;
}

static int attn__uses_positions(const attn_desc *d)
{
    return d->causal || d->alibi.rank || (d->window && (d->window_left >= 0 || d->window_right >= 0));
}

/* One scale for a row of codes, or one for each 32 of them; field: of the scale's last axis. */
static attn_status attn__check_groups(const attn_view *codes, const attn_view *scale, const char *field,
                                      attn_error *err)
{
    const int64_t groups = attn__blocks(codes->size[codes->rank - 1], ATTN__CODES_PER_SCALE);
    const int64_t each = scale->size[scale->rank - 1];
    ATTN__RULE2_OF(each == 1 || each == groups, SIZE, field, "must be 1, or one per 32 numbers of a row", each, groups);
    return ATTN_OK;
}

/* The scales of codes: f is their field. */
static attn_status attn__check_scale(const attn_view *codes, const attn_view *scale, const attn__field *f,
                                     attn_error *err)
{
    const int given = scale->rank > 0, needed = codes->rank > 0 && codes->type == ATTN_I8;
    if (!needed && !given) return ATTN_OK;
    ATTN__RULE_OF(given, NULL, attn__name(f), "must be given for ATTN_I8");
    ATTN__RULE_OF(needed, OPTION, attn__name(f), "counts for ATTN_I8 only");
    return attn__check_groups(codes, scale, attn__size_name(f, scale->rank - 1), err);
}

/* ---- starts and pages: what they change of the letters, before the fields are looked at */
static int attn__has_sequences(const attn_desc *d)
{
    return (d->query_starts.rank | d->key_starts.rank | d->page_table.rank) != 0;
}

ATTN__NOINLINE static attn_status attn__begin_sequences(attn__checker *w, const attn_desc *d, attn_error *err)
{
    static const attn__field keys_in_pages = {"must equal page_table.size[1] * the rows of a page", "", "", 0, 0, 0, 0};
    const int field = d->query_starts.rank ? (int)ATTN__F_query_starts : (int)ATTN__F_key_starts;
    const attn_view *starts = d->query_starts.rank ? &d->query_starts : &d->key_starts, *table = &d->page_table;
    const attn_view *pool = d->k.rank ? &d->k : &d->v;
    int i;
    w->layouts = (d->query_starts.rank ? ATTN__STARTS_OF_QUERIES : 0) |
                 (d->key_starts.rank ? ATTN__STARTS_OF_KEYS : 0) | (table->rank ? ATTN__PAGED : 0);
    if (w->layouts & ATTN__STARTS && !w->of['B' - 'A'])
        attn__bind(w, 'B', starts->size[0], &attn__fields[field], 0);
    else if (w->layouts & ATTN__STARTS) for (i = 'I'; i <= 'J'; i++)    /* of a piece whose arrays say the batch size */
        if (!w->of[i - 'A']) attn__bind(w, (char)i, ATTN__LETTER(w, 'B'), w->of['B' - 'A'], w->axis['B' - 'A']);
    if (!table->rank) return ATTN_OK;
    ATTN__RULE(pool->rank && !w->of['S' - 'A'], OPTION, "page_table",
               "must be absent where no k and v are given: it says where their rows lie");
    if (pool->rank == 4 && table->rank == 2 && pool->size[2] >= 0 && table->size[1] >= 0)
        attn__bind(w, 'S', attn__mul64(table->size[1], pool->size[2]), &keys_in_pages, -1);
    return ATTN_OK;
}

/* The picture of attn_mask, which shows packed entries, too. */
static const attn__field attn__mask_field = ATTN__ARGUMENT(
    mask, 0, "BHQS", "[B,H,Sq,Sk]; without heads H = 1", BYTES, ATTN__RESULT | ATTN__NEEDED, 0);
static int attn__is_packed(const attn__checker *w, char side)      /* I: queries, J: keys */
{
    return w->of[side - 'A'] && ATTN__LETTER(w, side) != ATTN__LETTER(w, 'B');
}

/* One entry alone looks the same packed or not: it is, where its end is told, too, and nothing forbids it. */
static int attn__is_packed_alone(const attn__checker *w, const attn__array *starts, const attn__array *lengths)
{
    return ATTN__LETTER(w, 'B') == 1 && starts->rank && lengths->rank && !w->pairs;
}

static int attn__packs_queries(const attn__checker *w)
{
    const attn__call *c = w->call;
    return attn__is_packed(w, 'I') || attn__is_packed_alone(w, &c->query_starts, &c->query_lengths);
}
static int attn__packs_keys(const attn__checker *w)
{
    const attn__call *c = w->call;
    return attn__is_packed(w, 'J') ||
           (!(w->layouts & ATTN__PAGED) && attn__is_packed_alone(w, &c->key_starts, &c->key_lengths));
}

/* Sizes of a mask, a bias or its index with starts. Packed, columns are an entry's own keys: those of the longest, or
   more. */
static attn_status attn__check_columns(attn__checker *w, const attn__field *f, const attn_view *given, int packed,
                                       attn_error *err)
{
    const attn_view v = attn__view4(*given, f->shape);
    const int axis = given->rank - 1, one = v.size[2] <= 1 && v.size[3] <= 1;
    ATTN__RULE2_OF(packed || v.size[3] == 1 || v.size[3] == ATTN__LETTER(w, 'S'), SIZE, attn__size_name(f, axis),
                   attn__broadcast_rule,
                   v.size[3], ATTN__LETTER(w, 'S'));
    ATTN__CUDA_ONLY(ATTN__RULE_OF(!packed || one || !(w->flags & ATTN__ON_DEVICE), PLACE, attn__name(f),
                                  "must have one row and one column on a device where queries or keys are packed");)
    if (packed && !one && (!w->columns_of || v.size[3] < w->columns)) {
        w->columns = v.size[3];
        w->columns_of = f;
    }
    return ATTN_OK;
}

/* What has queries and keys, from the first-th field that was found on: where all entries of a batch lie in one, there
   is no place for such a result. */
ATTN__NOINLINE static attn_status attn__check_pairs(attn__checker *w, int first, attn_error *err)
{
    const int64_t batch = ATTN__LETTER(w, 'B'), keys = ATTN__LETTER(w, 'S');
    const int in_one = attn__is_packed(w, 'I') || attn__is_packed(w, 'J');
    int i, packed;
    for (i = first; !first && w->layouts & ATTN__STARTS && i < w->count; i++) {
        const attn__field *f = w->found[i].field;
        const attn_view v = attn__view4(attn__view_in(w->found[i].structure, f), f->shape);
        const int alike = f->shape[3] == 's' && (v.size[3] == keys || v.size[3] == 1);
        if (f != &attn__mask_field)
            w->pairs |= f->shape[3] == 'S' || (alike && (v.size[2] > 1 || v.size[3] > 1));
    }
    packed = attn__packs_queries(w) || attn__packs_keys(w);
    for (i = first; w->layouts & ATTN__STARTS && i < w->count; i++) {
        const attn__field *f = w->found[i].field;
        const attn_view given = attn__view_in(w->found[i].structure, f), v = attn__view4(given, f->shape);
        if ((f->shape[3] != 'S' && f->shape[3] != 's') || f == &attn__mask_field) continue;
        ATTN__RULE_OF(!in_one || f->shape[3] == 's', OPTION, attn__name(f),
                      "must be absent where queries or keys are packed");
        if (f->shape[3] == 's' && !first) ATTN__TRY(attn__check_columns(w, f, &given, packed, err));
        ATTN__RULE2_OF(f->shape[0] != 'B' || v.size[0] == batch, SIZE, attn__size_name(f, 0),
                       "must equal the number of starts", v.size[0], batch);
    }
    return ATTN_OK;
}

/* ---- keys in parts */
/* What is carried: its last axis. */
static attn_status attn__check_carry(const attn__checker *w, const attn_view *carry, const char *field, attn_error *err)
{
    const int64_t columns = attn__add64(ATTN__LETTER(w, 'V'), 2);
    if (carry->rank)
        ATTN__RULE2_OF(carry->size[carry->rank - 1] == columns, SIZE, field, "must equal v.size[3] + 2",
                       carry->size[carry->rank - 1], columns);
    return ATTN_OK;
}

ATTN__NOINLINE static attn_status attn__check_parts(const attn__checker *w, const attn_desc *d, attn_error *err)
{
    static const int whole[] = {ATTN__F_weights, ATTN__F_scores, ATTN__F_scores_softcap, ATTN__F_scores_masked};
    const attn_view out = attn_view_of(d->carry_out);
    const int carries = d->carry_in.rank || d->carry_out.rank;
    const int64_t keys = ATTN__LETTER(w, 'S'), over = d->key_origin % ATTN__CHUNK;
    int i;
    ATTN__RULE2(d->key_origin >= 0, RANGE, "key_origin", "must be at least", d->key_origin, 0);
    ATTN__RULE2(d->key_origin <= attn__far, RANGE, "key_origin", "must be at most", d->key_origin, attn__far);
    ATTN__RULE2(!over, RANGE, "key_origin", "must be a multiple of ATTN_PART_KEYS; the next smaller one",
                d->key_origin, d->key_origin - over);
    ATTN__TRY(attn__check_carry(w, &d->carry_in, "carry_in.size[3]", err));
    ATTN__TRY(attn__check_carry(w, &out, "carry_out.size[3]", err));
    ATTN__RULE2_OF(!d->carry_out.rank || w->layouts || keys % ATTN__CHUNK == 0, SIZE,
                   attn__size_name(w->of['S' - 'A'], w->axis['S' - 'A']),
                   "must be a multiple of ATTN_PART_KEYS where carry_out is given; the next smaller one", keys,
                   keys - keys % ATTN__CHUNK);
    for (i = 0; carries && i < 4; i++)
        ATTN__RULE_OF(!attn__view_in(d, &attn__fields[whole[i]]).rank, OPTION,
                      attn__name(&attn__fields[whole[i]]), "must be absent where keys come in parts");
    ATTN__RULE(d->empty != ATTN_EMPTY_UNIFORM, OPTION, "empty",
               "must not be ATTN_EMPTY_UNIFORM where keys come in parts");
    ATTN__RULE(d->align == ATTN_ALIGN_TOP_LEFT || d->align == ATTN_ALIGN_POSITIONS || !attn__uses_positions(d), OPTION,
               "align", "must be ATTN_ALIGN_TOP_LEFT or ATTN_ALIGN_POSITIONS where keys come in parts: a part does not "
               "know where all keys end");
    return ATTN_OK;
}

/* All rules of a descriptor; without: as attn__check_fields, where the checker knows the sizes already. */
static attn_status attn__check_desc(attn__checker *w, const attn_desc *d, uint32_t without, attn_error *err)
{
    const uint32_t unread = d->score == ATTN_SCORE_CONSTANT ? (uint32_t)ATTN__FOR_VECTORS : 0u;
    const int additive = d->score == ATTN_SCORE_ADDITIVE;
    int64_t all;
    ATTN__TRY(attn__check_score(d, err));
    ATTN__TRY(attn__check_options(d, err));
    w->takes = attn__views_of_score(d->score);
    w->in_place = !d->out.rank;
    if (attn__has_sequences(d)) ATTN__TRY(attn__begin_sequences(w, d, err));
    w->indexed = d->bias_index.rank != 0;
    ATTN__TRY(attn__check_fields(w, d, attn__fields, ATTN__F_COUNT, without, unread,
                                 attn__operands(w->call, offsetof(attn__call, q)), err));
    if (w->indexed) ATTN__TRY(attn__check_index(w, d, err));
    if (w->layouts) ATTN__TRY(attn__check_pairs(w, 0, err));
    ATTN__RULE(d->key_lengths.rank || !attn__is_packed(w, 'J'), NULL, "key_lengths",
               "must be given where keys are packed, or an entry would have all that follow");
    ATTN__RULE(d->query_lengths.rank || !attn__is_packed(w, 'I'), NULL, "query_lengths",
               "must be given where queries are packed, or an entry would have all that follow");
    if (d->carry_in.rank || d->carry_out.rank || d->key_origin) ATTN__TRY(attn__check_parts(w, d, err));
    ATTN__RULE(w->results || w->flags & ATTN__NO_RESULT_NEEDED, NULL, "out", "must be given, or another result");
    ATTN__RULE(!d->out.rank || d->v.rank, NULL, "v", "must be given where out is");
    ATTN__RULE(w->flags & ATTN__NO_RESULT_NEEDED || !d->weights_after_dropout || d->dropout == 0.0f || d->weights.rank,
               OPTION, "weights_after_dropout", "counts only where weights are given");
    ATTN__RULE(d->align != ATTN_ALIGN_UNSET || ATTN__LETTER(w, 'Q') == ATTN__LETTER(w, 'S') ||
               !attn__uses_positions(d) || w->layouts & ATTN__STARTS,     /* attn__check_entry asks each entry then */
               OPTION, "align", "must be set where Sq != Sk: ATTN_ALIGN_BOTTOM_RIGHT (the last query sits at "
               "the last key, as in decode), ATTN_ALIGN_TOP_LEFT (query i at key i) or ATTN_ALIGN_POSITIONS");
    ATTN__RULE2(!additive || d->w_q.rank || d->q.size[3] == ATTN__LETTER(w, 'U'), SIZE, "q.size[3]",
                "must equal the size of w_v where w_q is absent", d->q.size[3], ATTN__LETTER(w, 'U'));
    ATTN__RULE2(!additive || d->w_k.rank || d->k.size[3] == ATTN__LETTER(w, 'U'), SIZE, "k.size[3]",
                "must equal the size of w_v where w_k is absent", d->k.size[3], ATTN__LETTER(w, 'U'));
    if (w->types & 1u << ATTN_I8 || d->k_scale.rank || d->v_scale.rank) {
        ATTN__TRY(attn__check_scale(&d->k, &d->k_scale, &attn__fields[ATTN__F_k_scale], err));
        ATTN__TRY(attn__check_scale(&d->v, &d->v_scale, &attn__fields[ATTN__F_v_scale], err));
    }
    all = attn__mul64(attn__mul64(attn__is_packed(w, 'I') || attn__is_packed(w, 'J') ? 1 : ATTN__LETTER(w, 'B'),
                                  ATTN__LETTER(w, 'H')), attn__mul64(ATTN__LETTER(w, 'Q'), ATTN__LETTER(w, 'S')));
    ATTN__RULE_OF(all < ATTN__HUGE / 8 && all * 4 <= (int64_t)((size_t)-1 / 2), OVERFLOW,
                  attn__name(w->of['S' - 'A']), "must make B*H*Sq*Sk a number that can be counted");
    if (!(w->flags & ATTN__ON_DEVICE)) ATTN__TRY(attn__check_contents(w, err));
    return w->flags & ATTN__WITH_DATA ? attn__check_overlaps(w, err) : ATTN_OK;
}

#ifndef ATTN_NO_BACKWARD
/* Of what the checker found, what a backward call reads: the forward's results are inputs now, or do not count. */
static void attn__keep_inputs(attn__checker *w)
{
    int i, n = 0;
    for (i = 0; i < w->count; i++) {
        const uint32_t flags = w->found[i].field->flags;
        if (!(flags & ATTN__RESULT) || flags & ATTN__KEPT) w->found[n++] = w->found[i];
    }
    w->count = w->inputs = n;
    w->results = 0;
}

/* Sums by key are made alone: all queries count for a gradient, and dropout does. */
static attn_status attn__check_sums(const attn__checker *w, const attn_grad *g, int results, attn_error *err)
{
    const int alone = !results && w->count == w->inputs + 1;
    ATTN__RULE(!g->key_sums.rank || alone, OPTION, "key_sums", "must be absent where gradients are given or wanted");
    ATTN__CUDA_ONLY(ATTN__RULE(!g->key_sums.rank || !(w->flags & ATTN__ON_DEVICE), PLACE, "key_sums",
                               "must be absent on a device");)
    ATTN__RULE(g->last_queries >= 0, RANGE, "last_queries", "must be at least 1, or 0 for all");
    ATTN__RULE(!g->last_queries || g->key_sums.rank, OPTION, "last_queries", "counts for key_sums only");
    return ATTN_OK;
}

/* The gradients of a call whose inputs are checked; results: there are some already. */
static attn_status attn__check_grad(attn__checker *w, const attn_desc *d, const attn_grad *g, int results,
                                    attn_error *err)
{
    const int64_t sigmas = d->sigma_per_head.rank ? d->sigma_per_head.size[0] : 1;
    int i, above = 0, reads_out = 0, is_kernel = attn__is_kernel(d->score);
    w->owners = attn__fields;
    w->owned = d;
    ATTN__TRY(attn__check_fields(w, g, attn__grad_fields, ATTN__G_COUNT, 0, 0,
                                 attn__operands(w->call, offsetof(attn__call, d_out)), err));
    if (w->layouts) ATTN__TRY(attn__check_pairs(w, w->inputs, err));
    for (i = w->inputs; i < w->count; i++) {
        const int written = attn__is_written(w, &w->found[i]);
        above |= !written;
        reads_out |= written && w->found[i].field != &attn__grad_fields[ATTN__G_dv];
    }
    ATTN__TRY(attn__check_sums(w, g, results, err));
    ATTN__RULE(!d->page_table.rank || g->key_sums.rank, OPTION, "page_table",
               "must be absent: pages have no gradients");
    ATTN__RULE(!d->carry_in.rank, OPTION, "carry_in", "must be absent: gradients carry nothing");
    ATTN__RULE(!d->carry_out.rank, OPTION, "carry_out", "must be absent: gradients carry nothing");
    ATTN__CUDA_ONLY(ATTN__RULE(!(w->flags & ATTN__ON_DEVICE) || !d->key_origin, PLACE, "key_origin",
                               "must be 0 on a device: gradients of keys in parts");)
    ATTN__RULE(!d->key_origin || d->stats.rank, NULL, "stats", "must be given, of all keys, where key_origin is not 0");
    ATTN__RULE(!d->key_origin || !g->d_weights.rank, OPTION, "d_weights", "must be absent where key_origin is not 0");
    ATTN__RULE(!d->key_origin || !g->d_sink.rank, OPTION, "d_sink", "must be absent where key_origin is not 0");
    ATTN__RULE(!d->k_scale.rank || g->key_sums.rank, TYPE, "k.type", "must not be ATTN_I8: it has no gradient");
    ATTN__RULE(!d->v_scale.rank || g->key_sums.rank, TYPE, "v.type", "must not be ATTN_I8: it has no gradient");
    ATTN__RULE(!g->d_out.rank || d->v.rank, OPTION, "d_out", "must be absent where v is");
    ATTN__RULE(!g->d_sigma.rank || is_kernel, OPTION, "d_sigma", "counts for the distance kernels only");
    ATTN__RULE(!g->d_scale.rank || !is_kernel, OPTION, "d_scale", "must be absent for the distance kernels");
    ATTN__RULE2(!g->d_sigma.rank || g->d_sigma.size[0] == sigmas, SIZE, "d_sigma.size[0]",
                "must be 1, or that of sigma_per_head", g->d_sigma.size[0], sigmas);
    ATTN__RULE(above || g->key_sums.rank, NULL, "d_out",
               "must be given, or d_weights or d_lse: the gradient of the loss with respect to a result");
    ATTN__RULE(w->results || results, NULL, "dq", "must be given, or another gradient that is to be computed");
    ATTN__RULE(g->accumulate <= ATTN_GRAD_ALL, OPTION, "accumulate", "must be ATTN_GRAD_x bits");
    ATTN__RULE(g->reserved == 0, OPTION, "reserved", "must be 0");
    ATTN__RULE(d->out.rank || !g->d_out.rank || !reads_out, NULL, "out", "must be given: the forward's result is read");
    return w->flags & ATTN__WITH_DATA ? attn__check_overlaps(w, err) : ATTN_OK;
}
#endif

#ifdef ATTN_CUDA
/* ---- where a call runs: where its arrays lie. where: 0 before the first one, then where all so far can be used. */
static attn_status attn__see(int *where, const void *data, const char *field, attn_error *err)
{
    const int here = attn__cuda_place(data, err);
    if (!here) return ATTN_ERR_CUDA;
    ATTN__RULE_OF(!*where || *where & here, PLACE, field, *where & ATTN__PLACE_HOST ?
                  "must lie on the host, where the call runs" : "must lie on the device, where the call runs");
    *where = *where ? *where & here : here;
    return ATTN_OK;
}

/* A structure with arrays (NULL: none), and the rows of its table. */
typedef struct attn__fields_in { const void *structure; const attn__field *fields; int count; } attn__fields_in;
static attn__fields_in attn__in_structure(const void *structure, const attn__field *fields, int count)
{
    const attn__fields_in s = {structure, fields, count};
    return s;
}

static attn_status attn__see_fields(int *where, attn__fields_in s, attn_error *err)
{
    int i;
    for (i = 0; s.structure && i < s.count; i++) {
        attn_view v;
        ATTN__COPY(&v.data, (const char *)s.structure + s.fields[i].offset + offsetof(attn_view, data), sizeof v.data);
        if (!v.data) continue;                                          /* nearly always */
        v = attn__view_in(s.structure, &s.fields[i]);
        if (v.rank < 1 || v.rank > 4 || !attn__elements(&v)) continue;
        ATTN__TRY(attn__see(where, v.data, attn__name(&s.fields[i]), err));
    }
    return ATTN_OK;
}

/* By one or two structures and the workspace of options; flags may say where the call runs already. Where there is no
   array, a call runs on the host, but its sizes are asked for either place. */
static attn_status attn__find_place(attn__fields_in a, attn__fields_in b, const attn_desc *options, int *flags,
                                    attn_error *err)
{
    int n, where = *flags & ATTN__ON_DEVICE ? ATTN__PLACE_DEVICE : *flags & ATTN__ON_HOST ? ATTN__PLACE_HOST : 0;
    ATTN__TRY(attn__see_fields(&where, a, err));
    ATTN__TRY(attn__see_fields(&where, b, err));
    if (where && options && options->workspace) ATTN__TRY(attn__see(&where, options->workspace, "workspace", err));
    if (where & ATTN__PLACE_DEVICE && !(*flags & ATTN__AS_TASKS && where & ATTN__PLACE_HOST)) {
        for (n = 0; n < ATTN__PLACE_NUMBERS && where != 2 << n; n++) {}
        if (n < ATTN__PLACE_NUMBERS) *flags = *flags % ATTN__DEVICE_UNIT + ATTN__DEVICE_UNIT * (1 + n);
        *flags |= ATTN__ON_DEVICE;
    } else if (where || *flags & ATTN__WITH_DATA) *flags |= ATTN__ON_HOST;
    return ATTN_OK;
}
#endif

/* ------------------------------------------------------------------------------------------------------ >>tuning
   The numbers that were measured: where one way of computing becomes the faster one, how large pieces of work are, how
   far ahead memory is prefetched. They change time and workspace, no bit. In brackets: on which machine, and the commit
   that brought them. How far ahead a kernel prefetches is written in it; what only one room knows stays there. */
enum {
    ATTN__CACHE_FLOATS = 8192,  /* what every first cache holds */
    ATTN__LARGE = 1 << 21,      /* floats of an array that no second cache holds */
    ATTN__GRAD_ROW = 144,       /* floats between the keys of a block of P or dS; not a power of two, for the cache */

    ATTN__AHEAD1 = 8192,        /* bytes of keys and values, in the order of visiting them, from those that are used to
                                   those that are brought into the first cache meanwhile: a small part of it */
    ATTN__AHEAD2 = 16384,       /* the same for the second: enough for the memory's latency [Zen 5, f259f22] */
    ATTN__GROUPS_AHEAD = 16,    /* groups of rows that these are at most */
    ATTN__ROWS_AHEAD = 4,       /* scattered rows that the former are at most: at the same place of their pages they
                                   share few of the first cache's sets [Xeon, AVX-512, ccd7231] */
    ATTN__SKINNY_KEYS = 32,     /* keys whose rows of V few queries read side by side */

    ATTN__TASK_TILES = 4,       /* tiles of a task, where keys or values become floats: for all of them at once */
    ATTN__AMX_TILES = 8,        /* the same by AMX, which has values turned as well [Xeon, 1a837db] */
    ATTN__AMX_COLUMNS = 32,     /* of q and k, or of v, from which on AMX is the faster way; twice as many of v where
                                   scores are no such products [Xeon, 1a837db]; */
    ATTN__AMX_ROWS = 32,        /* of gradients also queries and keys [Xeon, model 167] */
    ATTN__MOST_TILES = 8,       /* of all these: tiles of a task, or heads */
    ATTN__TASK_HEADS = 8,       /* heads of a task, where their rows lie side by side [Xeon, AVX-512, b78c020] */
    ATTN__TURN_HEADS = 4,       /* heads from which on few keys of each in turn are faster [Zen 5, 3584a3a] */
    ATTN__ENTRY_GROUPS = 8,     /* with starts: so many tasks' work is one task, since each makes its entry's call */
    ATTN__WORKER_TASKS = 4,     /* tasks for each worker, where keys or queries are cut into tasks */
    ATTN__WORKER_SUMS = 1 << 19,        /* backward: floats for sums that each of more than two workers has at least,
                                           where a call has so many: what a second cache holds */
    ATTN__CUT_FLOATS = 1 << 16, /* of a task's part of k and v, at least: 25 us [Zen 3] */
    ATTN__CUT_ROWS = 8,         /* for each worker, whose keys may be cut */
    ATTN__WORTH_CUTTING = 0x80000,      /* queries * keys * columns; less is done before another thread has woken up */
    ATTN__TASK_NUMBERS = 1 << 18,       /* that a task copies or converts, which takes some 30 us [Zen 3] */
    ATTN__PLAIN_NUMBER = 64,    /* of those, in the time of one that plain C makes: of a mask, of merged results */

    ATTN__SOME_COLUMNS = 32,    /* of all lanes' rows that become floats, at a time */
    ATTN__BMM_ROWS = 64,        /* rows of a product that are computed, then stored */
    ATTN__BMM_THIN = 16,        /* rows of a: up to so many a task has all columns of b that there is room for */
    ATTN__BMM_DOTS = 8,         /* up to so many, and lanes of a vector, columns of b that lie side by side are */
    ATTN__BMM_DEPTH = 512,      /* terms of a product that are summed before those of other tiles; whole chains */
    ATTN__BMM_TILES = 8,        /* tiles of columns of a task, so that a is read less often, and b's columns */
    ATTN__BMM_FLOATS = 1 << 18, /* at most so many [Zen 3, 84b0219] */
    ATTN__BMM_FAR = 1 << 24,    /* bytes of a matrix that is read once, which rarely stay in a cache [Zen 4] */
    ATTN__BMM_LONG = 128,       /* terms from which on few rows are multiplied as pairs of bf16 [Zen 4] */
    ATTN__BMM_SCRATCH = 1024,   /* floats of a worker that products by AMX pass through */
    ATTN__BMM_PACKED = 16,      /* rows of b that are packed before other columns of them are */
    ATTN__SUM_ROWS = 64,        /* rows of a tile of a sum over rows, */
    ATTN__SUM_MOST = 256        /* of a product's gradient, where that leaves enough tasks [Zen 3] */
};
typedef char attn__tiles_fit[(int)ATTN__TASK_TILES <= (int)ATTN__MOST_TILES &&
                             (int)ATTN__AMX_TILES <= (int)ATTN__MOST_TILES &&
                             (int)ATTN__TASK_HEADS <= (int)ATTN__MOST_TILES ? 1 : -1];

/* Rows that are few: beyond half of a vector's lanes the tile's own way is the faster one, unless it has to make floats
   of keys and values for them first; four are always few. [Zen 5, 86c03fe] */
static int attn__as_they_are(const attn__call *c)
{
    return c->f->types && c->k.type != ATTN_F32 && c->v.type != ATTN_F32;
}

static int64_t attn__most_skinny(const attn__call *c)
{
    return c->f->width < (attn__as_they_are(c) ? 1 : 2) * ATTN__SKINNY ? ATTN__SKINNY_SHARED : ATTN__SKINNY;
}

/* Is a tile of so many rows laid the other way? With few keys that is slower, as it takes some 32 of them at a time
   and each row costs something of its own; the tile's own way costs by keys and columns. Both take the same time with
   9 keys for one row, 30 for 4, 50 for 8, of head size 64; half of that where floats are to be made. [Zen 5,
   abbd0cb] */
static int attn__is_skinny(const attn__call *c, int64_t rows)
{
    const int64_t work = attn__mul64(c->keys, attn__add64(attn__add64(c->size_k, c->size_v), 64));
    return c->skinny_floats && c->tiles == 1 && rows <= attn__most_skinny(c) &&
           work >= (rows + 1) * (attn__as_they_are(c) ? 640 : 1280);
}

/* Few rows of several heads: with pages their turns are slower where an entry has fewer than a chunk's number of them.
   [Xeon, AVX-512, b78c020] */
static int attn__heads_take_turns(const attn__call *c)
{
    return c->task_heads > 1 && c->tiles == 1 && c->stream_rows <= attn__most_skinny(c) &&
           c->keys / ATTN__CHUNK >= c->page;
}

/* And rows that do not lie side by side are best taken as single ones; on vectors of less than a group, which leave
   less time for copies, only where a group of them has no room in a first cache. [Zen 5, 21c4e2e] */
static int attn__takes_single_rows(const attn__call *c, const attn__array *a, int64_t size)
{
    const int64_t stride = a->stride[2] % ATTN__SAME_SETS * attn__type_size(a->type);
    return c->f->types && c->task_heads > 1 && a->stride[2] != size &&
           (c->f->width == ATTN__GROUP || stride % ATTN__SAME_SETS == 0);
}

/* How many rows or groups of so many bytes ahead of those in use others are prefetched. */
static int64_t attn__rows_ahead(int64_t distance, int64_t bytes, int64_t least, int64_t most)
{
    return attn__min(attn__max(distance / attn__max(bytes, 1), least), most);
}

/* `together` rows of so many bytes to a pointer, for `rows` queries: p->ahead1 after those in use come into the first
   cache, of groups for several queries as many as these take side by side; p->ahead2 after them into the second: for
   one query, which leaves the memory little time; of many keys in order for several, twice as far, since the memory
   rests while those that became columns are multiplied; and of single rows of one head at a time, which the machine's
   own prefetching cannot follow. */
static void attn__set_ahead(const attn__call *c, const attn__array *a, int64_t rows, int64_t together, int64_t bytes,
                            attn__product *p)
{
    const int in_order = together > 1 && p->b_row * attn__type_size(p->b_type) == bytes;
    const int64_t keys = attn__mul64(attn__mul64(c->batch, c->heads_kv), c->keys);
    const int many = a == &c->k && keys > ATTN__LARGE / attn__max(c->size_k, 1);
    const int far2 = (in_order && (rows == 1 || many)) || (c->task_heads == 1 && (together == 1 || rows == 1));
    const int64_t at_once = together > 1 && rows > 1 ? (int)ATTN__SKINNY_KEYS / (int)ATTN__GROUP : 1;
    const int64_t most1 = together > 1 ? (int64_t)ATTN__GROUPS_AHEAD : (int64_t)ATTN__ROWS_AHEAD;
    const int64_t most2 = together > 1 ? (int64_t)ATTN__GROUPS_AHEAD : (int64_t)ATTN__CHUNK;
    p->ahead1 = attn__rows_ahead(ATTN__AHEAD1, together * bytes, at_once, most1);
    p->ahead2 = far2 ? attn__rows_ahead(ATTN__AHEAD2, together * bytes, at_once * p->ahead1, most2) : p->ahead1;
}

/* Where there is AMX, products of pairs by the vector unit take longer than those of floats. [Xeon, model 207] */
static int attn__dots_are_slow(void) { return attn__has_amx(ATTN__AMX_IN_CPU); }

/* The kernels for pairs of bf16 that this CPU runs and that are faster than floats; else NULL. */
static const attn__pair_kernels *attn__pairs_here(const attn__kernels *f)
{
    if (!f->pairs || !attn__cpu_has_bf16_dot()) return NULL;
    if (f->amx && attn__has_amx(ATTN__AMX_ALLOWED)) return f->amx;
    return attn__dots_are_slow() ? NULL : f->pairs;
}

/* So few keys of v that single rows of all heads, and the next ones, have room in a first cache. [Zen 5, 3584a3a] */
static int64_t attn__keys_of_a_turn(const attn__call *c, int64_t heads)
{
    const int64_t size = attn__type_size(c->v.type), step = c->v.stride[c->page == 1 ? 0 : 2] * size;
    return attn__rows_ahead(ATTN__AHEAD2, heads * c->size_v * size, 1,
                            step % ATTN__SAME_SETS ? (int64_t)ATTN__SIDE : (int64_t)ATTN__ROWS_AHEAD);
}

/* ------------------------------------------------------------------------------------------------------ >>arrays
   All that knows how operands are stored: types, strides, heads, broadcasting. Whoever reads or writes an array of the
   caller's does it here: single elements (attn__read, attn__write), rows as a product takes them (attn__rows_of),
   copies of rows; in >>keys rows become lanes and back (attn__load_lanes, attn__store_lanes). What is f32 is used where
   it lies; of other types some rows at a time become floats, in a buffer, by the kernel `widen`, and results leave by
   `round`; where they do not lie side by side, one by one. */

/* How far element (b, h, row, column) is from the first one. */
static int64_t attn__index(const attn__array *a, int64_t b, int64_t h, int64_t row, int64_t column)
{
    return b * a->stride[0] + h * a->stride[1] + row * a->stride[2] + column * a->stride[3];
}

static int attn__is_f32(const attn__array *a) { return a->type == ATTN_F32; }
/* Where it lies, of an f32; no pointer arithmetic, since data may be NULL where there is no element. */
static float *attn__at(const attn__array *a, int64_t b, int64_t h, int64_t row, int64_t column)
{
    return (float *)((uintptr_t)a->data + (uintptr_t)attn__index(a, b, h, row, column) * sizeof(float));
}

/* The same of any type. */
static const void *attn__place_of(const attn__array *a, int64_t b, int64_t h, int64_t row, int64_t column)
{
    return (const void *)((uintptr_t)a->data + (uintptr_t)attn__index(a, b, h, row, column) *
                          (uintptr_t)attn__type_size(a->type));
}

ATTN__NOINLINE static uint32_t attn__bits_of(const attn__array *a, int64_t b, int64_t h, int64_t row, int64_t column)
{
    return attn__element(attn__place_of(a, b, h, row, column), a->type, 0);
}

ATTN__NOINLINE static void attn__set_bits(const attn__array *a, int64_t b, int64_t h, int64_t row, int64_t column,
                                          uint32_t bits)
{
    *(attn__half *)(uintptr_t)attn__place_of(a, b, h, row, column) = attn__narrowed(a->type, bits);
}

static float attn__read(const attn__array *a, int64_t b, int64_t h, int64_t row, int64_t column)
{
    if (!attn__is_f32(a)) return attn__float(attn__bits_of(a, b, h, row, column));
    return *attn__at(a, b, h, row, column);
}

static void attn__write(const attn__array *a, int64_t b, int64_t h, int64_t row, int64_t column, float x)
{
    if (attn__is_f32(a)) *attn__at(a, b, h, row, column) = x;
    else attn__set_bits(a, b, h, row, column, attn__bits(x));
}

/* A row is the one before it, shifted by so many columns; ATTN__HUGE: it is not. */
static int64_t attn__shift_of(const attn__array *a)
{
    const int64_t row = a->stride[2], column = a->stride[3];
    return !row ? 0 : column && row % column == 0 ? row / column : ATTN__HUGE;
}
static float attn__of_head(const attn__array *a, int64_t h) { return attn__read(a, 0, h, 0, 0); }

/* From where on rows, or a part of a row, are read or written. */
typedef struct attn__place { const attn__array *a; int64_t b, h, row, column; } attn__place;
static attn__place attn__in(const attn__array *a, int64_t b, int64_t h, int64_t row, int64_t column)
{
    const attn__place at = {a, b, h, row, column};
    return at;
}

/* lengths, positions, numbers of pages */
static int64_t attn__int_of(const void *at, int32_t type)
{
    return type == ATTN_I32 ? *(const int32_t *)at : *(const int64_t *)at;
}

static int64_t attn__int_at(const attn__array *a, int64_t b, int64_t row)
{
    return attn__int_of(attn__place_of(a, b, 0, row, 0), a->type);
}

/* of entry b, or what counts where there is no such array */
static int64_t attn__int_or(const attn__array *a, int64_t b, int64_t absent)
{
    return a->rank ? attn__int_at(a, b, 0) : absent;
}

static int attn__byte_at(const attn__array *a, int64_t b, int64_t h, int64_t row, int64_t column)
{
    return ((const uint8_t *)a->data)[attn__index(a, b, h, row, column)];
}

/* Are rows floats side by side: where they lie? */
static int attn__is_contiguous(const attn__array *a) { return attn__is_f32(a) && a->stride[3] == 1; }

static void attn__fill(float *x, int64_t stride, int64_t n, float value)
{
    const int64_t eights = stride == 1 && n > 0 ? n & ~(int64_t)7 : 0;          /* eight that become two stores */
    int64_t j;
    if (eights >= 256 && !attn__bits(value)) {
        attn__zero(x, (size_t)n * sizeof *x);
        return;
    }
    for (j = 0; j < eights; j += 8)
        x[j] = x[j + 1] = x[j + 2] = x[j + 3] = x[j + 4] = x[j + 5] = x[j + 6] = x[j + 7] = value;
    for (; j < n; j++) x[j * stride] = value;
}

ATTN__NOINLINE static void attn__copy_floats(float *to, const float *from, int64_t n)
{
    for (; n >= 8; n -= 8, to += 8, from += 8) ATTN__COPY(to, from, 8 * sizeof *to);    /* a size that is known */
    for (; n > 0; n--) *to++ = *from++;
}

/* The scales of some rows of codes, `each` of a row: where they lie if they are f32 side by side, else
   as floats in `copy`. */
static void attn__find_scales(const attn__kernels *f, attn__place at, int64_t rows, int64_t each, float *copy,
                              attn__stored *w)
{
    const attn__array *scale = at.a;
    const int packed = each == 1 || scale->stride[3] == 1, all = packed && scale->stride[2] == each;
    int64_t r, i;
    w->scale = copy;
    w->scale_row = each;
    if (packed && attn__is_f32(scale)) {
        w->scale = attn__at(scale, at.b, at.h, at.row, at.column);
        w->scale_row = scale->stride[2];
    } else if (packed) {
        const attn__stored s = {attn__place_of(scale, at.b, at.h, at.row, at.column), copy, scale->stride[2], each,
                                all ? 1 : rows, all ? rows * each : each, scale->type, 0, NULL, 0};
        f->widen(&s);
    } else for (r = 0; r < rows; r++)
        for (i = 0; i < each; i++) copy[r * each + i] = attn__read(scale, at.b, at.h, at.row + r, at.column + i);
}

/* Some rows as floats, those in `to` `to_row` apart. scale: of codes, else NULL. */
static void attn__widen_rows(const attn__kernels *f, attn__place at, const attn__array *scale, int64_t rows,
                             int64_t columns, float *to, int64_t to_row)
{
    const attn__array *a = at.a;
    const int64_t group = ATTN__CODES_PER_SCALE, most = ATTN__CHUNK * group;
    float scales[ATTN__CHUNK];
    attn__stored w;
    int64_t x, each;
    w.type = a->type;
    w.grouped = scale && scale->stride[3];
    w.from_row = a->stride[2];
    w.to_row = to_row;
    w.scale = NULL;
    w.scale_row = 0;
    each = w.grouped ? attn__blocks(attn__min(columns, most), group) : 1;
    for (; rows > 0; at.row += w.rows, rows -= w.rows, to += w.rows * to_row) {
        w.rows = scale ? attn__min(rows, ATTN__CHUNK / each) : rows;
        for (x = 0; x < columns; x += w.n) {
            const int64_t left = columns - x, part = w.grouped ? (at.column + x) % group : 0;
            w.n = left;
            if (w.grouped) w.n = attn__min(left < f->width || part ? group - part : most, left);
            if (w.grouped && w.n >= f->width) w.n -= part ? 0 : w.n % f->width;
            w.from = attn__place_of(a, at.b, at.h, at.row, at.column + x);
            w.to = to + x;
            if (scale) attn__find_scales(f,
                                         attn__in(scale, at.b, at.h, at.row, w.grouped ? (at.column + x) / group : 0),
                                         w.rows, w.grouped ? attn__blocks(w.n, group) : 1, scales, &w);
            f->widen(&w);
        }
    }
}

/* Rows as floats: copied. */
ATTN__NOINLINE static void attn__copy_floats_of(const attn__kernels *f, attn__place at, const attn__array *scale,
                                                int64_t rows, int64_t columns, float *to, int64_t to_row)
{
    const attn__array *a = at.a, transposed = attn__transposed(*a);
    float some[ATTN__CHUNK];
    int64_t r, x;
    if (a->stride[3] == 1 && !attn__is_f32(a)) {
        attn__widen_rows(f, at, scale, rows, columns, to, to_row);
        return;
    }
    for (x = 0; a->stride[2] == 1 && !attn__is_f32(a) && !scale && rows <= ATTN__CHUNK; x++) {  /* column by column */
        if (x == columns) return;
        attn__widen_rows(f, attn__in(&transposed, at.b, at.h, at.column + x, at.row), NULL, 1, rows, some, rows);
        for (r = 0; r < rows; r++) to[r * to_row + x] = some[r];
    }
    for (r = 0; r < rows; r++, at.row++, to += to_row)
        if (attn__is_contiguous(a)) attn__copy_floats(to, attn__at(a, at.b, at.h, at.row, at.column), columns);
        else for (x = at.column; x < at.column + columns; x++) {
            const int64_t group = !scale || !scale->stride[3] ? 0 : x / ATTN__CODES_PER_SCALE;
            to[x - at.column] = attn__read(a, at.b, at.h, at.row, x);
            if (scale) to[x - at.column] = to[x - at.column] * attn__read(scale, at.b, at.h, at.row, group);
        }
}

/* A part of a row: copied; and written from floats; and one value all along it. What is mostly so is inlined: a place
   on its way to another function costs as much as a short row. */
ATTN__INLINE void attn__copy_row(const attn__kernels *f, attn__place at, int64_t n, float *to)
{
    if (attn__is_contiguous(at.a)) attn__copy_floats(to, attn__at(at.a, at.b, at.h, at.row, at.column), n);
    else attn__copy_floats_of(f, at, NULL, 1, n, to, n);
}

ATTN__NOINLINE static void attn__round_row(const attn__kernels *f, const attn__place *at, int64_t n, const float *from)
{
    const attn__array *a = at->a;
    int64_t x;
    if (!attn__is_f32(a) && a->stride[3] == 1)
        f->round(from, a->type, (attn__half *)(uintptr_t)attn__place_of(a, at->b, at->h, at->row, at->column), n);
    else for (x = 0; x < n; x++) attn__write(a, at->b, at->h, at->row, at->column + x, from[x]);
}

ATTN__INLINE void attn__store_row(const attn__kernels *f, attn__place at, int64_t n, const float *from)
{
    if (attn__is_contiguous(at.a)) attn__copy_floats(attn__at(at.a, at.b, at.h, at.row, at.column), from, n);
    else attn__round_row(f, &at, n, from);
}

static void attn__fill_row(attn__place at, int64_t n, float value)
{
    const attn__array *a = at.a;
    int64_t x;
    if (attn__is_f32(a)) attn__fill(attn__at(a, at.b, at.h, at.row, at.column), a->stride[3], n, value);
    else for (x = 0; x < n; x++) attn__write(a, at.b, at.h, at.row, at.column + x, value);
}

/* Rows as a product takes them: where they lie if they are f32, else as floats in `copy`, side by side. */
typedef struct attn__rows { const float *at; int64_t row, column; } attn__rows;         /* at[r*row + x*column] */
static attn__rows attn__packed_rows(const float *at, int64_t columns)
{
    const attn__rows r = {at, columns, 1};
    return r;
}
static attn__rows attn__rows_at(attn__place at)     /* f32 */
{
    const attn__rows r = {attn__at(at.a, at.b, at.h, at.row, at.column), at.a->stride[2], at.a->stride[3]};
    return r;
}

ATTN__INLINE attn__rows attn__rows_of(const attn__kernels *f, attn__place at, const attn__array *scale, int64_t rows,
                                      int64_t columns, float *copy)
{
    if (attn__is_f32(at.a)) return attn__rows_at(at);
    attn__copy_floats_of(f, at, scale, rows, columns, copy, columns);
    return attn__packed_rows(copy, columns);
}

/* The scales of n rows of codes, `each` of a row, as `dots` takes them, which may read 3 floats more: where they lie if
   they are so many whole sides of floats that nothing is read after, else side by side in `to`, which has that room. */
static int attn__are_side_by_side(const attn__array *scale, int64_t each)
{ return scale->stride[2] == each && (each == 1 || scale->stride[3] == 1); }

static void attn__pack_scales(const attn__kernels *f, attn__place at, int64_t n, int64_t each, float *to)
{
    const int packed = attn__are_side_by_side(at.a, each);
    attn__array flat = *at.a;
    int64_t r;
    if (packed) flat.stride[3] = 1;
    for (r = 0; r < n; r += packed ? n : 1)
        attn__copy_row(f, attn__in(&flat, at.b, at.h, at.row + r, 0), packed ? n * each : each, to + r * each);
}

static const float *attn__scales_of(const attn__kernels *f, attn__place at, int64_t n, int64_t each, float *to)
{
    if (attn__is_f32(at.a) && attn__are_side_by_side(at.a, each) && n % ATTN__SIDE == 0 && (each == 1 || each % 4 == 0))
        return attn__at(at.a, at.b, at.h, at.row, 0);
    attn__pack_scales(f, at, n, each, to);
    return to;
}

/* Floats that `copy` needs. */
static int64_t attn__copied(const attn__array *a, int64_t rows, int64_t size)
{
    return attn__is_f32(a) ? 0 : attn__mul64(rows, size);
}

/* Columns that lie side by side, `lanes` of them, of n rows, as a tile [n][ld]: transposed. What is not f32 becomes
   floats in `copy` before that, [ld][ATTN__SOME_COLUMNS], some of each column at a time. scale: of columns of codes. */
ATTN__NOINLINE static void attn__copy_columns(const attn__kernels *f, attn__place at, const attn__array *scale,
                                              int64_t n, int64_t lanes, int64_t ld, float *copy, float *tile)
{
    const attn__array *a = at.a, transposed = attn__transposed(*a);
    const int direct = attn__is_f32(a);
    float *columns[ATTN__MAX_LANES], ones[ATTN__MAX_LANES];
    int64_t l, some;
    attn__fill(ones, 1, ld, 1.0f);
    for (; n > 0; at.row += some, n -= some, tile += some * ld) {
        some = direct ? n : attn__min(n, ATTN__SOME_COLUMNS);
        if (!direct) attn__copy_floats_of(f, attn__in(&transposed, at.b, at.h, at.column, at.row), scale, lanes, some,
                                          copy, ATTN__SOME_COLUMNS);
        for (l = 0; l < ld; l++) {
            const int64_t x = attn__min(l, lanes - 1);
            columns[l] = direct ? attn__at(a, at.b, at.h, at.row, at.column + x) : copy + x * ATTN__SOME_COLUMNS;
        }
        f->pack(tile, ld, (const float *const *)columns, direct ? a->stride[2] : 1, some, ones);
    }
}

#ifndef ATTN_NO_BACKWARD
static attn__rows attn__columns_at(const float *at, int64_t row)    /* of a packed array, as rows */
{
    const attn__rows r = {at, 1, row};
    return r;
}

/* n rows, `size` columns of each, as products want them, `row` floats apart and filled up with zeros; those that `use`
   leaves out are zeros and not read (NULL: all are). factor: NULL or one per row. Is one of them NaN or Inf? */
static int attn__copy_rows(const attn__kernels *f, attn__place at, int64_t n, int64_t size, int64_t row,
                           const uint8_t *use, const float *factor, float *to)
{
    int64_t i, x;
    for (i = 0; i < n; i++, at.row++, to += row) {
        const int read = !use || use[i];
        if (read) attn__copy_row(f, at, size, to);
        attn__fill(to + (read ? size : 0), 1, row - (read ? size : 0), 0.0f);
        for (x = 0; factor && read && x < size; x++) to[x] = to[x] * factor[i];
    }
    return !f->finite(to - n * row, n * row);
}

/* Where n rows of a block lie for the products: in place, if the array has them side by side in whole vectors, none of
   which straddles two lines, all are in use as they are, and together they fit a first cache; else copied to `to`,
   rows->row apart. Result as above. */
static int attn__block_rows(const attn__kernels *f, attn__place at, int64_t n, int64_t size, const uint8_t *use,
                            const float *factor, float *to, attn__rows *rows)
{
    const int64_t row = rows->row;
    const int fits = attn__is_contiguous(at.a) && at.a->stride[2] == size && size % f->width == 0 && !factor &&
                     size <= ATTN__CACHE_FLOATS / n;
    const float *first = fits ? attn__at(at.a, at.b, at.h, at.row, at.column) : NULL;
    int in_place = fits && (uintptr_t)first % ((uintptr_t)f->width * sizeof *first) == 0;
    int64_t i;
    for (i = 0; in_place && i < n; i++) in_place = use[i];
    *rows = attn__packed_rows(in_place ? first : to, in_place ? size : row);
    if (in_place) return !f->finite(rows->at, n * size);
    return attn__copy_rows(f, at, n, size, row, use, factor, to);
}

/* A part of a row of a gradient: factor * from; from NULL: nothing came together here. */
ATTN__NOINLINE static void attn__store_grad_by_parts(const attn__kernels *f, attn__place at, int64_t n,
                                                     const float *from, float factor, int add)
{
    float some[ATTN__MAX_LANES];
    int64_t count;
    if (!from && !add) attn__fill_row(at, n, 0.0f);
    for (; from && n > 0; n -= count, from += count, at.column += count) {
        count = attn__min(n, ATTN__MAX_LANES);
        if (add) attn__copy_row(f, at, count, some);
        f->scale_store(from, some, count, factor, add);
        attn__store_row(f, at, count, some);
    }
}

ATTN__INLINE void attn__store_grad(const attn__kernels *f, attn__place at, int64_t n, const float *from, float factor,
                                   int add)
{
    if (!from || !attn__is_contiguous(at.a)) attn__store_grad_by_parts(f, at, n, from, factor, add);
    else f->scale_store(from, attn__at(at.a, at.b, at.h, at.row, at.column), n, factor, add);
}

/* So for several rows of n numbers, `row` floats apart in `from`: where both lie side by side, as one. */
static void attn__store_grads(const attn__kernels *f, attn__place at, int64_t rows, int64_t n, const float *from,
                              int64_t row, float factor, int add)
{
    const int as_one = from && row == n && at.a->stride[2] == n && attn__is_contiguous(at.a);
    int64_t r;
    if (as_one) f->scale_store(from, attn__at(at.a, at.b, at.h, at.row, at.column), rows * n, factor, add);
    else for (r = 0; r < rows; r++, at.row++)
        attn__store_grad(f, at, n, from ? from + r * row : NULL, factor, add);
}
#endif

/* ---- where the keys lie: those from `key` on of batch entry b are n rows of k and v from `row` on, of their batch
   entry, or of a page, whose end may cut n */
typedef struct attn__key_run { int64_t b, row, n; } attn__key_run;
static attn__key_run attn__key_run_of(const attn__call *c, int64_t b, int64_t key, int64_t n)
{
    attn__key_run p = {b, key, n};
    if (!c->page) return p;
    key += c->key0;
    p.b = attn__int_at(&c->page_table, b, key / c->page);
    p.row = key % c->page;
    p.n = attn__min(n, c->page - p.row);
    return p;
}

/* ----------------------------------------------------------------------------------------------------- >>entries
   Batch entries of different sizes in shared arrays. Each entry is run as a call of its own: a copy of the call whose
   operands begin at the entry's first query and key and whose sizes are the entry's. No tile and no block knows of
   starts, so that an entry has the bits of a call of its own by construction; only what lies in the workspace by row
   or by key (>>memory map: attn__rows_before, attn__keys_before) counts in the arrays' sizes. Where the queries are not
   packed, the rows in front of the entry are a second such call, whose rows are all empty. */

/* The queries of entry b; before: the rows in front of them. Beyond a length rows are empty, unless they are packed. */
static void attn__find_rows(const attn__call *c, int64_t b, int before, attn__extent *x)
{
    const int64_t start = attn__int_or(&c->query_starts, b, 0);
    x->row0 = before ? 0 : start;
    x->rows = c->queries - start;
    if (c->packed_queries) x->rows = attn__int_or(&c->query_lengths, b, x->rows);
    if (before) x->rows = c->packed_queries ? 0 : start;
}

/* Its keys: as many as the largest of its lengths, or all to the end. */
static void attn__find_keys(const attn__call *c, int64_t b, attn__extent *x)
{
    const attn__array *lengths = &c->key_lengths;
    int64_t i, rows;        /* to look at: one where they are all the same number */
    x->key0 = attn__int_or(&c->key_starts, b, 0);
    x->keys = c->keys - x->key0;
    if (lengths->rank == 1) x->keys = attn__int_at(lengths, b, 0);
    if (lengths->rank != 2) return;
    attn__find_rows(c, b, 0, x);
    rows = attn__int_or(&c->query_lengths, b, x->rows);
    if (!lengths->stride[2]) rows = attn__min(rows, 1);
    for (x->keys = i = 0; i < rows; i++) x->keys = attn__max(x->keys, attn__int_at(lengths, b, x->row0 + i));
}

/* paged: keys lie in pages; packed: the columns of a mask or a bias are the entry's own keys. */
static void attn__move_array(attn__array *a, const char *shape, const attn__extent *x, int paged, int packed)
{
    int64_t by = 0;
    if (!a->rank) return;
    if (shape[2] == 'Q' || shape[2] == 'q') by += x->row0 * a->stride[2];
    if (shape[2] == 'S' && !paged) by += x->key0 * a->stride[2];
    if (shape[3] == 'S' || (shape[3] == 's' && !packed)) by += x->key0 * a->stride[3];
    a->data = (void *)((uintptr_t)a->data + (uintptr_t)by * (uintptr_t)attn__type_size(a->type));
}

ATTN__INLINE int attn__has_same_reach(const attn__call *c)
{
    return c->left == ATTN__HUGE && c->right == ATTN__HUGE && c->key_lengths.rank < 2 && !c->query_lengths.rank &&
           !c->alibi.rank;
}

/* Packed, the columns of a mask or a bias count from the entry's first key. */
ATTN__INLINE int attn__has_own_columns(const attn__call *c) { return (c->packed_queries | c->packed_keys) != 0; }

static void attn__cut_rows(attn__call *c);
static void attn__open_entry(const attn__call *c, int64_t b, int before, attn__call *e)
{
    attn__array *a = attn__operands(e, offsetof(attn__call, q));
    const int packed = attn__has_own_columns(c);
    attn__extent x;
    int i;
    ATTN__COPY(e, c, c->is_backward ? sizeof *e : offsetof(attn__call, d_out));
    attn__find_keys(c, b, &x);
    attn__find_rows(c, b, before, &x);
    for (i = 0; i < ATTN__F_COUNT; i++)
        if (i != ATTN__F_bias || !c->bias_index.rank)
            attn__move_array(&a[i], attn__fields[i].shape, &x, c->page > 0, packed);
#ifndef ATTN_NO_BACKWARD
    a = attn__operands(e, offsetof(attn__call, d_out));
    for (i = 0; c->is_backward && i < ATTN__G_COUNT; i++)
        if (i != ATTN__G_d_bias || !c->bias_index.rank)
            attn__move_array(&a[i], attn__grad_fields[i].shape, &x, 0, packed);
    if (c->is_backward) {
        attn__move_array(&e->saved_out, "BHQV", &x, 0, packed);
        attn__move_array(&e->saved_stats, "BHQ2", &x, 0, packed);
        e->w.blocks = attn__blocks(x.rows, ATTN_GRAD_QUERIES);
    }
#endif
    e->ragged = 0;
    e->entry = b;
    e->row0 = x.row0;
    e->key0 = x.key0;
    e->queries = x.rows;
    e->keys = x.keys;
    if (c->key_lengths.rank == 1) e->key_lengths.rank = 0;
    if (c->packed_queries) e->query_lengths.rank = 0;
    if (before) {
        const attn__array no_rows = {(void *)(uintptr_t)(const void *)attn__zeros, {0, 0, 0, 0}, ATTN_I32, 1};
        e->query_lengths = no_rows;
        e->origin[2] -= (uint32_t)x.rows;           /* they count back from the entry's start */
    }
    e->same_reach = attn__has_same_reach(e);
    attn__cut_rows(e);
}

/* Entries to look at: where all are alike, by strides of 0 or because there is nothing in them, two of them. Of what
   they hold the rows and keys, or also positions and pages. */
static int64_t attn__entries_to_cut(const attn__call *c)
{
    const int alike = !c->query_starts.stride[0] && !c->key_starts.stride[0] && !c->query_lengths.stride[0] &&
                      (!c->key_lengths.stride[0] || (c->key_lengths.rank == 2 && !c->queries));
    return alike ? attn__min(c->batch, 2) : c->batch;
}

static int64_t attn__entries_to_see(const attn__call *c)
{
    const int alike = (!c->positions.stride[0] || c->positions.rank < 2 || !c->queries) &&
                      (!c->page_table.stride[0] || !c->keys);
    return alike ? attn__entries_to_cut(c) : c->batch;
}
/* Results of queries and keys, outside of an entry's keys. */
static void attn__fill_outside(const attn__array *a, int64_t b, int64_t h, int64_t i, const attn__call *c,
                               float value)
{
    if (!a->rank) return;
    attn__fill_row(attn__in(a, b, h, i, -c->key0), c->key0, value);
    attn__fill_row(attn__in(a, b, h, i, c->keys), c->all_keys - c->key0 - c->keys, value);
}

/* ---- their rules */
static attn_status attn__check_side(const attn__array *starts, const attn__array *lengths, const char *name,
                                    const char *rule, int64_t most, int64_t b, attn_error *err)
{
    const int64_t start = attn__int_or(starts, b, 0);
    const int64_t length = lengths->rank == 1 ? attn__int_at(lengths, b, 0) : 0;        /* checked already */
    if (start < 0) return attn__fail_at(err, name, "must be at least", start, 0, b, -1);
    return start <= most - length ? ATTN_OK : attn__fail_at(err, name, rule, attn__add64(start, length), most, b, -1);
}

static attn_status attn__check_entry(const attn__checker *w, int64_t b, attn_error *err)
{
    const attn__call *c = w->call;
    attn__extent x;
    int64_t rows, most;
    ATTN__TRY(attn__check_side(&c->query_starts, &c->query_lengths, "query_starts",
                               "plus query_lengths must be at most Sq", c->queries, b, err));
    ATTN__TRY(attn__check_side(&c->key_starts, &c->key_lengths, "key_starts", "plus key_lengths must be at most Sk",
                               c->keys, b, err));
    attn__find_rows(c, b, 0, &x);
    x.rows = rows = attn__int_or(&c->query_lengths, b, x.rows);
    most = c->keys - attn__int_or(&c->key_starts, b, 0);
    ATTN__TRY(attn__check_ints(c, ATTN__F_key_lengths, 0, most, "must be at most Sk - key_starts", b, &x, err));
    ATTN__TRY(attn__check_ints(c, ATTN__F_positions, -attn__far, attn__far, "must be at most", b, &x, err));
    attn__find_keys(c, b, &x);
    ATTN__RULE(c->align != ATTN_ALIGN_UNSET || rows == x.keys || (c->left == ATTN__HUGE && c->right == ATTN__HUGE &&
               !c->alibi.rank), OPTION, "align",
               "must be set where an entry has not as many queries as keys: see ATTN_ALIGN_UNSET");
    if (w->columns_of && x.keys > w->columns)
        return attn__fail_at(err, attn__name(w->columns_of), "must have a column for each key of the longest entry",
                             w->columns, x.keys, b, -1);
    return ATTN_OK;
}

/* What is written for each entry, its queries and in a backward pass its keys, must be its own: packed entries stand
   one after the other. end: of those before entry b. One without rows may begin anywhere. */
static attn_status attn__check_order(const char *starts, int64_t start, int64_t rows, int64_t b, int64_t *end,
                                     attn_error *err)
{
    if (!rows) return ATTN_OK;
    if (start < *end) return attn__fail_at(err, starts, "must be at least the end of the entry before it", start, *end,
                                           b, -1);
    *end = start + rows;
    return ATTN_OK;
}

/* Of a page table those that entry b has for some rows: pages of a pool? */
static attn_status attn__check_pages(const attn__array *table, int64_t page, int64_t pool, int64_t b, int64_t first,
                                     int64_t rows, attn_error *err)
{
    int64_t n, last;
    if (rows <= 0) return ATTN_OK;
    n = first / page;
    last = table->stride[2] ? (first + rows - 1) / page : n;        /* else one page for all */
    for (; n <= last; n++)
        ATTN__TRY(attn__check_within(err, "page_table", attn__int_at(table, b, n), 0, pool - 1,
                                     "must be a page of the pool: at most", b, n));
    return ATTN_OK;
}

static int attn__is_known(const attn__array *a) { return !a->rank || a->data; }   /* no data: sizes are asked for */
static int attn__knows_entries(const attn__call *c)         /* what they hold can be looked at */
{
    return !c->on_device && attn__is_known(&c->query_starts) && attn__is_known(&c->key_starts) &&
           attn__is_known(&c->query_lengths) && attn__is_known(&c->key_lengths) && attn__is_known(&c->page_table);
}

ATTN__NOINLINE static attn_status attn__check_entries(const attn__checker *w, attn_error *err)
{
    const attn__call *c = w->call;
    const int starts = c->query_starts.rank || c->key_starts.rank;
    int64_t b, all, end_of_queries = 0, end_of_keys = 0;
    attn__extent x;
    if (!attn__knows_entries(c)) return ATTN_OK;
    all = attn__entries_to_see(c);
    for (b = 0; b < all; b++) {
        if (starts) ATTN__TRY(attn__check_entry(w, b, err));
        attn__find_rows(c, b, 0, &x);
        if (c->packed_queries) ATTN__TRY(attn__check_order("query_starts", x.row0, x.rows, b, &end_of_queries, err));
        attn__find_keys(c, b, &x);
        if (c->page) ATTN__TRY(attn__check_pages(&c->page_table, c->page, c->pool, b, x.key0, x.keys, err));
        if (c->packed_keys && c->is_backward)
            ATTN__TRY(attn__check_order("key_starts", x.key0, x.keys, b, &end_of_keys, err));
    }
    return ATTN_OK;
}

/* -------------------------------------------------------------------------------------------------- >>memory map
   Memory is cut up by one function that counts where there is none yet and hands out where there is: the size query and
   the run are one text. */
typedef struct attn__map { char *base; int64_t bytes; } attn__map;

static int64_t attn__round4(int64_t n) { return attn__mul64(attn__add64(n, 3) / 4, 4); }
static int64_t attn__whole(int64_t floats) { return (floats * 4 + ATTN__ALIGN - 1) & ~(int64_t)(ATTN__ALIGN - 1); }
static int64_t attn__bytes_of(int64_t floats) { return floats > ATTN__HUGE / 8 ? ATTN__HUGE : attn__whole(floats); }

ATTN__NOINLINE static float *attn__take(attn__map *m, int64_t rows, int64_t floats)
{
    char *at = m->base ? m->base + m->bytes : NULL;
    if (((uint64_t)rows | (uint64_t)floats | (uint64_t)m->bytes >> 30) >> 28 == 0)      /* nearly always */
        m->bytes += attn__whole(rows * floats);
    else m->bytes = attn__add64(m->bytes, attn__bytes_of(attn__mul64(rows, floats)));
    return (float *)(void *)at;
}

static char *attn__align(void *p) { return (char *)(((uintptr_t)p + ATTN__ALIGN - 1) / ATTN__ALIGN * ATTN__ALIGN); }

/* What a backward pass keeps of each row: */
enum { ATTN__R_TOP, ATTN__R_INVERSE, ATTN__R_SHIFT, ATTN__R_SINK,           /* found first */
       ATTN__R_ALIBI, ATTN__R_SCALE, ATTN__R_SIGMA, ATTN__R_BIAS,           /* left by the blocks */
       ATTN__R_COUNT };

/* What all tasks of a call share, at the start of the workspace. */
typedef struct attn__shared {
    float *prepared;            /* [B, streams, Sk, key_floats] */
    float *slots;               /* [rows][cut.slots], where the keys of a tile are cut */
    float *rows;                /* backward: [ATTN__R_COUNT, B, H, Sq]; what was found per row. (B 1: packed) */
    float *left_u, *left_t;     /* backward: rows [B, H, Sq, size_u] that parameters are summed from */
    float *left_b;              /* and [B, streams, Sk, size_u] */
    float *bias;                /* sums that become a d_bias of 16 bits */
    float *table;               /* or, by index, [B, H, blocks, N]: attn__table_blocks. (B 1: packed) */
    float *sums;                /* backward: sums by key, a set per worker; or one per unit, then their cells */
    int64_t *entries;           /* [4*B + 1]: tasks before each entry's, before those in front of it; then slots */
} attn__shared;

static const attn__shared attn__none_shared = {NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL};

/* ---- a tile: `lanes` rows of one stream, head by head; the lanes beyond repeat the last row and are not stored */
typedef struct attn__row { int64_t position, first, last; } attn__row;

/* Which keys of a chunk do the lanes of a tile reach? */
typedef struct attn__reach {
    int64_t n;                                      /* keys of the chunk */
    int32_t vecs, width;                            /* the tile's */
    int     whole;                                  /* every lane reaches every key; then the last four are not set */
    int     gaps;                                   /* a hull has keys that none of its lanes reaches */
    int     ascending;                              /* from and to ascend: no vector is skipped between others */
    int     hull_only;                              /* scores outside of a vector's hull are neither set nor read */
    int32_t from[ATTN__MAX_VECS], to[ATTN__MAX_VECS];           /* per vector, the hull of its lanes: from <= j < to */
    int32_t all_from[ATTN__MAX_VECS], all_to[ATTN__MAX_VECS];   /* and keys that all of its lanes reach: but for the
                                                                   last ones, fewer than `width`, all of them */
    int32_t first[ATTN__MAX_LANES], last[ATTN__MAX_LANES];      /* per lane */
} attn__reach;

/* The stretch of keys from j on, up to n, that the same vectors reach: where it ends, and these, from <= x < to; a key
   that no lane reaches is in no stretch with vectors, and is never read. */
typedef struct attn__stretch { int64_t end; int32_t from, to; } attn__stretch;
static attn__stretch attn__stretch_at(const attn__reach *r, int64_t j, int64_t n)
{
    attn__stretch s;
    int32_t x;
    int64_t l;
    int some = !r->gaps;
    s.end = n;
    s.from = 0;
    s.to = r->whole ? r->vecs : 0;
    if (r->whole) return s;
    for (x = r->vecs - 1; x >= 0; x--)
        if (j < r->from[x]) s.end = attn__min(s.end, r->from[x]);
        else if (j < r->to[x]) {
            s.end = attn__min(s.end, r->to[x]);
            if (!s.to) s.to = x + 1;
            s.from = x;
        }
    for (l = 0; r->gaps && l < (int64_t)r->vecs * r->width; l++) {
        if (j < r->first[l]) s.end = attn__min(s.end, r->first[l]);
        else if (j < r->last[l]) {
            s.end = attn__min(s.end, r->last[l]);
            some = 1;
        }
    }
    if (!some) s.to = s.from;
    return s;
}

enum { ATTN__SKINNY_ROW = (int)ATTN__CHUNK + (int)ATTN__SIDE };     /* dots writes whole sides, from any key on */
/* Of k or v, where it is not f32 or lies in pages: the rows of a chunk's keys first .. end as floats, or as pairs of
   bf16, for all tiles of a task; of codes that became pairs the rows' scales, [ATTN__CHUNK]. */
typedef struct attn__expanded { float *rows, *scales; int64_t b, head, first, end, paired; } attn__expanded;
/* Where rows of k or v lie, from some keys on. */
typedef struct attn__lists {
    const char *rows[3 * ATTN__SIDE];   /* those in use, or the groups they form, and after them what is used next */
    const char *after[ATTN__SIDE];      /* of several heads: what the first one uses after all have had their turn */
    const char *next[(int)ATTN__SIDE * (int)ATTN__TASK_HEADS];     /* and all of them, row by row */
    const char *copies[ATTN__SIDE / ATTN__GROUP];       /* groups of rows that were copied */
    int64_t count, ahead;               /* pointers in rows, and after them */
    int64_t head;                       /* of several heads: the one that rows are of */
} attn__lists;

/* Its arrays, [.][ld]. */
typedef struct attn__tile_memory {
    float *raw, *query;                 /* queries before projecting; what is multiplied by keys */
    float *o, *acc, *part;              /* outputs so far, of a chunk, of a chain */
    float *chain;                       /* of a chain, where a task has several heads */
    float *s, *t;                       /* a chunk's scores, then weights; scratch of that size */
    float *w;                           /* w_v, padded */
    float *copy;                        /* rows of a parameter, or of all lanes, that are not f32 */
    attn__expanded *expanded;           /* [2]: of k, of v; NULL: both are f32 and not in pages */
    float *skinny_s;                    /* a chunk's scores, a row per query */
    attn__lists *lists;                 /* where rows of k or v lie, see attn__skinny_rows */
    float *rows;                        /* [ATTN__SIDE] of them, copied */
    float *scales;                      /* of a chunk's codes */
} attn__tile_memory;

typedef struct attn__tile {
    const attn__call *c;
    const attn__kernels *f;
    int64_t b, stream, head_kv, head;   /* head: of the first row; the only one where parameters differ per head */
    int64_t ld, lanes;                  /* ld: a multiple of the vectors' width, at most the call's */
    int32_t vecs;                       /* ld / width */
    int32_t skinny;                     /* so few rows that lanes are better keys and columns: see >>skinny */
    int32_t as_rows;                    /* and nothing else needs lanes: weights are made from skinny_s, in place */
    int32_t unscaled;                   /* by AMX: the scale of m.s is left to the softmax, and to results */
    int64_t h[ATTN__MAX_LANES], i[ATTN__MAX_LANES];
    attn__row row[ATTN__MAX_LANES];
    int64_t first, last;                /* over all lanes: keys that one of them reaches */
    int64_t all_first, all_last;        /* keys between these all of them reach */
    const float *prepared;              /* key_floats per key of this stream */
    int64_t below;                      /* not 0: backward, so many rows on a block's rows are prefetched */
    int64_t ahead, ahead_keys;          /* from which on it prefetches how many keys of the next chunk: its share */
    float *slots;                       /* not NULL: where its chunks are left */
    float *lane_max;                    /* not NULL: the scores' maximum of each lane is left here, by the products or,
                                           where there is a bias, by adding it */
    attn__tile_memory m;
    float w_sum;
    int lane_clear[ATTN__MAX_LANES];    /* additive: |a| is small enough for the factored form */
    float scale[ATTN__MAX_LANES], width[ATTN__MAX_LANES], slope[ATTN__MAX_LANES], ones[ATTN__MAX_LANES];
    float top[ATTN__MAX_LANES], sum[ATTN__MAX_LANES];
} attn__tile;
enum { ATTN__TILE_BYTES = (int)(sizeof(attn__tile) + ATTN__ALIGN - 1) / ATTN__ALIGN * ATTN__ALIGN };

typedef struct attn__pass attn__pass;
typedef struct attn__score attn__score;
/* the gradient of a bias: by index, sums of each block of queries, and sums of rows, both made like other parameters;
   block by block added to what is there, or stored */
enum { ATTN__BIAS_NONE, ATTN__BIAS_TABLE, ATTN__BIAS_ROWS, ATTN__BIAS_ADDED, ATTN__BIAS_STORED };
enum { ATTN__TABLES = 4,        /* keys by turns: an element often follows one that is added to the same */
       ATTN__TABLE_CLOSES = 1024 };     /* so many numbers of a table for each block of keys that is added to it */
#ifndef ATTN_NO_BACKWARD
/* ---- the state of a task */
enum { ATTN__DO_Q = 1, ATTN__DO_K = 2 };
/* From the first to the last row of one side of a block that some of so many rows of the other side reach: for products
   no longer than needed. */
enum { ATTN__HULL_KEYS = 16, ATTN__HULL_QUERIES = 32 };
typedef struct attn__hull { int64_t from, to; } attn__hull;
/* The worker's arrays. */
typedef struct attn__pass_memory {
    char   *tiles;
    attn__tile_memory tile;             /* what its tiles share: raw, s, t, w, copy; the queries one after the other */
    float  *d_out;                      /* as lanes */
    float  *dp, *keep;                  /* of a tile and a block of keys, [keys][ld] */
    float  *p, *ds, *soft, *square;     /* of both blocks, [keys][ATTN__GRAD_ROW]: P, dS, softcapped scores, |q-k|^2 */
    float  *dq, *dt;                    /* sums over keys; additive: [size_u][ATTN__GRAD_ROW] */
    float  *q_rows, *d_out_rows, *k_rows;       /* copies of rows, for the products */
    float  *matrix, *result, *part;
    float  *table;                      /* [ATTN__TABLES][N], of a gradient by index */
    float  *dk, *db, *dv, *key_sums, *attended; /* sums over queries, by key from key0 on, in attn__shared.sums;
                                           attended: does some query attend to it? */
} attn__pass_memory;

struct attn__pass {
    const attn__call *c;
    const attn__kernels *f;
    attn__shared shared;
    int     does;
    int64_t b, head_kv, head;
    int64_t key0, key1;                 /* the keys this task is for */
    int     first_part;                 /* of them; it also writes what lies outside of an entry's keys */
    int64_t i0, n, tiles;               /* the block of queries */
    int64_t nk;                         /* keys of the block of keys */
    int64_t lane0[ATTN_GRAD_QUERIES / 4 + 1];   /* of each tile in the block */
    int64_t first, last;                /* keys that some row of it reaches */
    float  *cells;                      /* NULL, or dq against each block of keys, from the first block of queries on */
    attn__rows q, k, d_out;             /* rows as the products want them */
    int     uniform, bad_q, bad_d_out;  /* bad: NaN or Inf in them */
    float   base[ATTN_GRAD_QUERIES], inverse[ATTN_GRAD_QUERIES], shift[ATTN_GRAD_QUERIES];
    uint8_t is_uniform[ATTN_GRAD_QUERIES];      /* rows under ATTN_EMPTY_UNIFORM */
    uint8_t dead[ATTN_GRAD_QUERIES];    /* rows without mass */
    int64_t table_blocks;               /* of keys, in m.table */
    uint8_t ascends;                    /* its rows reach ever later keys, and products alone read their P and dS: these
                                           are made within the hulls, and nowhere else */
    uint8_t whole, seen[ATTN_GRAD_KEYS];        /* the block of keys: does every row reach all; does any reach this */
    attn__hull by_key[ATTN_GRAD_KEYS / ATTN__HULL_KEYS], by_query[ATTN_GRAD_QUERIES / ATTN__HULL_QUERIES];
    attn__pass_memory m;
};
enum { ATTN__PASS_FLOATS = (int)(sizeof(attn__pass) + 3) / 4 };

/* The gradients that sums over rows make, in the order of their tasks, which is that of the call's operands. */
enum { ATTN__SUM_BIAS, ATTN__SUM_BILINEAR, ATTN__SUM_W_Q, ATTN__SUM_W_K, ATTN__SUM_W_V, ATTN__SUM_HIDDEN_BIAS,
       ATTN__SUM_SIGMA, ATTN__SUM_SCALE, ATTN__SUM_SINK, ATTN__SUM_ALIBI, ATTN__SUM_COUNT };
#  define ATTN__GRADIENTS(...) , __VA_ARGS__    /* the last members of an attn__score */
#else
#  define ATTN__GRADIENTS(...)
#endif

/* ---- what planning has to know of a score */
enum { ATTN__LOG_WEIGHT = 1,    /* the score is the logarithm of a weight: no scale, -inf excludes from the start */
       ATTN__DOTS = 2,          /* dot products of what is prepared: a tile of few rows has a way of its own */
       ATTN__KEEPS_SQUARES = 4, /* the gradient needs |q-k|^2 */
       ATTN__EXCLUDES = 32,     /* a score of -inf excludes: softcap and scale leave it alone */
       ATTN__SCALE_DQ = 8, ATTN__SCALE_DK = 16,             /* the scale is multiplied in when dq, dk are stored */
       ATTN__UNIT_VECTORS = 64 };           /* of q and k: 1/|k| is what is prepared */
/* What queries and keys are prepared to, the scores of a chunk (qk), and what is left to do then. */
struct attn__score {
    uint32_t takes, flags;      /* which views, ATTN__FOR_x; those above */
    int64_t (*key_floats)(const attn__call *c);     /* floats prepared per key; NULL: none */
    void (*prepare)(attn__tile *t, int64_t count, float *to);       /* `count` keys; the lanes' rows are those of k */
    void (*load)(attn__tile *t);                    /* the lanes' queries into t->m.query; NULL: there are none */
    /* scores of keys c0+j0 .. c0+j1 of a chunk for the vectors x0 .. x1 of the tile, into rows j0.. of t->m.s */
    void (*qk)(attn__tile *t, int64_t c0, int64_t j0, int64_t j1, int32_t x0, int32_t x1);
    void (*finish)(attn__tile *t, int64_t n);       /* n whole rows of t->m.s become scores; NULL: they are */
#ifndef ATTN_NO_BACKWARD
    /* backward; NULL: nothing. P and dS become what is summed: */
    void (*elements)(attn__pass *p, int64_t c0, int64_t n);
    int  (*query_rows)(attn__pass *p, const uint8_t *use);          /* what multiplies dS in dK: see attn__query_rows */
    void (*vectors)(attn__pass *p, int64_t c0);     /* dS of a block of keys times vectors; NULL: there are none */
    const float *(*finish_rows)(attn__pass *p, int64_t *row);   /* a block's rows of dq from its sums; NULL: they are */
    void (*finish_row)(attn__pass *p, int64_t i, float *y);
    void (*finish_key)(attn__pass *p, int64_t j, float *dk);
    void (*finish_stream)(attn__pass *p);
#endif
};

enum { ATTN__FAST_SCORES = 1, ATTN__FAST_VALUES = 2 };

static int attn__are_by_amx(const attn__pair_kernels *f) { return f && f->begin; }
static int attn__by_amx(const attn__call *c) { return attn__are_by_amx(c->pairs); }
static int64_t attn__up(int64_t n, int64_t width) { return attn__mul64(attn__blocks(n, width), width); }
/* Pairs of so many numbers, by AMX with zeros behind them. */
static int64_t attn__pairs_by(const attn__pair_kernels *f, int64_t n)
{
    return attn__are_by_amx(f) ? attn__up(attn__blocks(n, 2), ATTN__AMX_SIDE) : attn__blocks(n, 2);
}
static int64_t attn__pairs_of(const attn__call *c, int64_t n) { return attn__pairs_by(c->pairs, n); }

enum { ATTN__CALL_FLOATS = (int)(sizeof(attn__call) + 3) / 4 };
static const attn__score *attn__score_of(const attn__call *c);
static void attn__dot_qk(attn__tile *t, int64_t c0, int64_t j0, int64_t j1, int32_t x0, int32_t x1);

/* Are values multiplied? For out, or to be carried on. */
ATTN__INLINE int attn__has_outputs(const attn__call *c) { return c->out.rank || (c->carry_out.rank && c->v.rank); }

static float attn__sink_of(const attn__call *c, int64_t h)
{
    return c->sink.rank ? attn__of_head(&c->sink, h) : ATTN__NEG_INF;
}

/* Floats of a query as keys are multiplied by it. */
static int64_t attn__query_floats(const attn__call *c)
{
    const int64_t floats = c->score == ATTN_SCORE_ADDITIVE ? attn__mul64(2, attn__round4(c->hidden)) : c->size_k;
    return attn__max(floats, attn__by_amx(c) ? attn__pairs_of(c, c->size_k) : 0);
}

/* Room for the rows of an operand that become floats, the most that a step asks for; mostly none. */
static int64_t attn__room_to_copy(const attn__call *c)
{
    const attn__array *const of[] = {&c->q, &c->k, &c->bilinear, &c->w_q, &c->w_k};
    const int64_t rows[] = {1, 1, c->size_q, c->hidden, c->hidden};
    const int64_t columns[] = {c->size_q, c->size_k, c->size_k, c->size_q, c->size_k};
    const attn__array *a = attn__operands_of(c, offsetof(attn__call, q)), *end = a + ATTN__F_COUNT;
    int64_t floats = 0;
    int i;
    if (!c->not_f32) return 0;
    for (i = 0; i < 5; i++) floats = attn__max(floats, attn__copied(of[i], rows[i], columns[i]));
    for (; a < end; a++) if (a->type == ATTN_F16 || a->type == ATTN_BF16 || a->type == ATTN_I8)
        floats = attn__max(floats, ATTN__MAX_LANES * (int)ATTN__SOME_COLUMNS);
    for (a = attn__operands_of(c, offsetof(attn__call, d_out)), end = a + ATTN__G_COUNT; c->is_backward && a < end; a++)
        floats = attn__max(floats, attn__copied(a, ATTN__MAX_LANES, ATTN__SOME_COLUMNS));
    return floats;
}

/* Room for the scales of a chunk's codes, of k or of v, and of as many rows after them as a kernel reads at once. */
static int64_t attn__scale_floats(const attn__call *c)
{
    int64_t k, v;
    if (!c->k_scale.rank && !c->v_scale.rank) return 0;
    k = c->k_scale.stride[3] ? attn__blocks(c->size_k, ATTN__CODES_PER_SCALE) : 1;
    v = c->v_scale.stride[3] ? attn__blocks(c->size_v, ATTN__CODES_PER_SCALE) : 1;
    return attn__mul64((int)ATTN__CHUNK + (int)ATTN__SIDE, attn__max(k, v));
}

/* Room for keys and values of one chunk as floats, or by AMX as pairs: of v, in the forward, a row for each column. */
static int64_t attn__expanded_floats(const attn__call *c, const attn__array *a, int64_t size)
{
    if (!c->page && attn__is_f32(a)) return 0;
    if (!attn__by_amx(c)) return attn__mul64(ATTN__CHUNK, size);
    if (a == &c->k || c->is_backward) return attn__mul64(ATTN__CHUNK, attn__max(attn__pairs_of(c, size), size));
    return attn__max(attn__mul64(ATTN__AMX_ROW, attn__up(size, ATTN__AMX_SIDE)), attn__mul64(ATTN__CHUNK, size));
}

static attn__expanded *attn__take_expanded(attn__map *map, const attn__call *c)
{
    const int64_t scales_each = attn__by_amx(c) && (c->k_scale.rank || c->v_scale.rank) ? ATTN__CHUNK : 0;
    attn__expanded *expanded;
    float *k, *v, *scales;
    expanded = (attn__expanded *)(void *)attn__take(map, 2, (int64_t)(sizeof *expanded + 3) / 4);
    k = attn__take(map, 1, attn__expanded_floats(c, &c->k, c->size_k));
    v = attn__take(map, 1, attn__expanded_floats(c, &c->v, c->size_v));
    scales = attn__take(map, 2, scales_each);
    if (!expanded) return NULL;
    expanded[0].rows = k;
    expanded[0].b = expanded[0].head = expanded[0].first = expanded[0].end = -1;
    expanded[0].paired = 0;
    expanded[0].scales = scales;
    expanded[1] = expanded[0];
    expanded[1].rows = v;
    expanded[1].scales = scales + scales_each;
    return expanded;
}

/* The vectors of one of so many tiles, of one width or two next to each other, and how many lie before it. */
static int64_t attn__share(int64_t vectors, int64_t tiles, int64_t tile, int64_t *before)
{
    const int64_t each = attn__quotient(vectors, tiles), more = vectors - each * tiles;
    *before = tile * each + attn__min(tile, more);
    return each + (tile < more);
}

static int64_t attn__lanes(const attn__kernels *f) { return (int64_t)f->width * f->vecs; }
/* What the arrays of the workspace have in front of an entry, in keys of one stream. */
static int64_t attn__keys_before(const attn__call *c, int64_t b, int64_t stream)
{
    return ((c->packed_keys ? 0 : b) * c->streams + stream) * c->all_keys + c->key0;
}

static int64_t attn__batch_of_rows(const attn__call *c) { return c->packed_queries ? 1 : c->batch; }
static int64_t attn__batch_of_keys(const attn__call *c) { return c->packed_keys ? 1 : c->batch; }
static int64_t attn__rows_of_arrays(const attn__call *c)        /* of all heads and entries */
{
    return attn__mul64(attn__mul64(attn__batch_of_rows(c), c->heads), c->queries);
}
#ifndef ATTN_NO_BACKWARD
/* As attn__keys_before, in rows of one head. */
static int64_t attn__rows_before(const attn__call *c, int64_t b, int64_t head)
{
    return ((c->packed_queries ? 0 : b) * c->heads + head) * c->all_queries + c->row0;
}

static int attn__adds(const attn__call *c, uint32_t bit) { return (c->accumulate & bit) != 0; }
static int64_t attn__row_index(const attn__pass *p, int64_t i) { return attn__rows_before(p->c, p->b, p->head) + i; }

static float *attn__row_field(const attn__pass *p, int field, int64_t i)
{
    return p->shared.rows + field * p->c->w.rows + attn__row_index(p, i);
}

static attn__tile *attn__tile_at(const attn__pass *p, int64_t x)
{
    return (attn__tile *)(void *)(p->m.tiles + x * ATTN__TILE_BYTES);
}

static int attn__is_excluded(float p) { return attn__bits(p) == 0x80000000u; }      /* of a pair's P: -0 */
static int64_t attn__key_blocks(const attn__call *c) { return attn__blocks(c->keys, ATTN_GRAD_KEYS); }
#endif

/* What tiles of few rows need beside the others' arrays, one after the other: scores, pointers, rows, scales. */
enum { ATTN__SKINNY_LIST = (int)(sizeof(attn__lists) / sizeof(float)) };
static void attn__give_skinny(attn__tile_memory *m, const attn__call *c, float *at)
{
    m->skinny_s = at;
    m->lists = (attn__lists *)(void *)(at += (int)ATTN__SKINNY * (int)ATTN__SKINNY_ROW);
    m->rows = at += ATTN__SKINNY_LIST;
    m->scales = at + ATTN__SIDE * attn__max(c->size_k, c->size_v);
    attn__fill(m->scales, 1, attn__scale_floats(c), 0.0f);      /* those after the last row are read */
}

/* Another tile for the same task: what it holds from chunk to chunk, or while other heads have their turn, is its own,
   all else is the first one's. */
static attn__tile *attn__take_next_tile(attn__map *map, const attn__call *c, const attn__tile *first)
{
    const int several = c->task_heads > 1;
    const int64_t rows = attn__min(attn__mul64(c->heads, c->queries), ATTN__SKINNY);    /* of scores: attn__set_room */
    attn__tile *t = (attn__tile *)(void *)attn__take(map, 1, (int64_t)(sizeof *t + 3) / 4);
    float *query = attn__take(map, attn__query_floats(c), c->room_lanes), *o = attn__take(map, 1, c->output_floats);
    float *w = attn__take(map, 1, attn__round4(c->hidden));
    float *acc = several ? attn__take(map, 1, c->output_floats) : NULL;
    float *chain = several ? attn__take(map, 1, c->output_floats) : NULL;
    float *scores = several ? attn__take(map, 1, rows * (int)ATTN__SKINNY_ROW) : NULL;
    if (!t) return NULL;
    t->m = first->m;
    t->m.query = query;
    t->m.o = o;
    t->m.w = w;
    if (several) {
        t->m.acc = acc;
        t->m.chain = chain;
        t->m.skinny_s = scores;
    }
    t->c = c;
    t->f = c->f;
    return t;
}

/* A tile and its arrays. */
static attn__tile *attn__take_tile(attn__map *map, const attn__call *c)
{
    attn__tile *t = (attn__tile *)(void *)attn__take(map, 1, (int64_t)(sizeof *t + 3) / 4);
    const int64_t query = attn__query_floats(c), raw = attn__max(c->size_q, c->size_k), ld = c->room_lanes;
    const int64_t scores = c->room_keys * ld, scratch = attn__max(scores, (int)ATTN__RUN * (int)ATTN__SIDE);
    const int64_t others = attn__add64(scores + scratch, attn__mul64(3, c->output_floats)), outputs = c->output_floats;
    float *rows = attn__take(map, 1, attn__add64(attn__mul64(attn__add64(query, raw), ld), others));
    float *w = c->hidden ? attn__take(map, 1, attn__round4(c->hidden)) : NULL;
    float *copy = c->copy_floats ? attn__take(map, 1, c->copy_floats) : NULL;
    attn__expanded *expanded = c->not_f32 || c->page ? attn__take_expanded(map, c) : NULL;
    float *skinny = c->skinny_floats ? attn__take(map, 1, c->skinny_floats) : NULL;
    float *chain = c->task_heads > 1 ? attn__take(map, 1, outputs) : NULL;
    if (!t) return NULL;
    if (c->skinny_floats) attn__give_skinny(&t->m, c, skinny);
    t->m.expanded = expanded;
    t->m.query = rows;
    t->m.raw = t->m.query + query * ld;
    t->m.o = t->m.raw + raw * ld;
    t->m.acc = t->m.o + outputs;
    t->m.part = t->m.acc + outputs;
    t->m.chain = chain;
    t->m.s = t->m.part + outputs;
    t->m.t = t->m.s + scores;
    t->m.w = w;
    t->m.copy = copy;
    t->c = c;
    t->f = c->f;
    return t;
}

#ifndef ATTN_NO_BACKWARD
/* Floats of a row of d_out as values are multiplied by it. */
static int64_t attn__d_out_floats(const attn__call *c) { return attn__max(c->size_v, attn__pairs_of(c, c->size_v)); }

/* Sums over queries, of all keys. */
static void attn__take_sums(attn__map *map, const attn__call *c, attn__pass_memory *m)
{
    const attn__backward *w = &c->w;
    const int64_t keys = attn__up(c->all_keys, ATTN_GRAD_KEYS);
    m->dk = attn__take(map, w->pad_k, keys);
    m->db = c->score == ATTN_SCORE_ADDITIVE ? attn__take(map, w->pad_u, keys) : NULL;
    m->dv = attn__take(map, w->pad_v, keys);
    m->key_sums = attn__take(map, 1, c->key_sums.rank ? keys : 0);
    m->attended = attn__take(map, 1, w->save_b ? keys : 0);
}

/* Set n of them, from the pass's first key on. */
static void attn__use_sums(attn__pass *p, int64_t n)
{
    const attn__backward *w = &p->c->w;
    attn__map map = {(char *)(p->shared.sums + n * w->sum_floats), 0};
    attn__take_sums(&map, p->c, &p->m);
    p->m.dk += p->key0 * w->pad_k;
    if (p->m.db) p->m.db += p->key0 * w->pad_u;
    p->m.dv += p->key0 * w->pad_v;
    if (p->c->key_sums.rank) p->m.key_sums += p->key0;
    p->m.attended += p->key0 * w->save_b;
}

/* The memory of a backward pass. */
static attn__pass *attn__take_pass(attn__map *map, const attn__call *c)
{
    attn__pass *p = (attn__pass *)(void *)attn__take(map, 1, ATTN__PASS_FLOATS);
    const attn__backward *w = &c->w;
    const int64_t lanes = ATTN_GRAD_QUERIES, block = ATTN_GRAD_KEYS, row = ATTN__GRAD_ROW;
    const int64_t more = attn__max(c->size_q, c->size_k);
    attn__pass_memory m;
    const int64_t wide = attn__up(more, c->f->width), additive = c->score == ATTN_SCORE_ADDITIVE;
    const int64_t turned = ATTN__AMX_ROW;       /* pairs of one column of a block of keys */
    m.tiles = (char *)attn__take(map, w->tiles, ATTN__TILE_BYTES / 4);
    m.tile.query = attn__take(map, attn__query_floats(c), lanes);
    m.d_out = attn__take(map, attn__d_out_floats(c), lanes);
    m.tile.raw = attn__take(map, more, c->ld);
    m.tile.w = attn__take(map, 1, attn__round4(c->hidden));
    m.tile.s = attn__take(map, block, c->ld);
    m.tile.t = attn__take(map, block, c->ld);
    m.dp = attn__take(map, block, attn__by_amx(c) ? attn__max(c->ld, lanes / 2) : c->ld);       /* dS as pairs, too */
    m.keep = attn__take(map, block, c->ld);
    m.p = attn__take(map, block, row);
    m.ds = attn__take(map, block, row);
    m.soft = c->softcap != 0.0f ? attn__take(map, block, row) : NULL;
    m.square = attn__score_of(c)->flags & ATTN__KEEPS_SQUARES ? attn__take(map, block, row) : NULL;
    m.dq = attn__take(map, w->pad_u, row);
    m.dt = additive ? attn__take(map, w->pad_u, row) : NULL;
    m.q_rows = attn__take(map, w->vector_row ? attn__add64(w->pad_u, 16) : 0, lanes);       /* monotone */
    m.k_rows = attn__take(map, w->vector_row ? attn__add64(w->pad_u, 16) : 0, attn__by_amx(c) ? turned : block);
    m.d_out_rows = attn__take(map, w->value_row ? attn__add64(w->pad_v, 16) : 0, lanes);
    m.matrix = attn__take(map, c->bilinear.rank ? c->size_k : c->w_q.rank || c->w_k.rank ? c->hidden : 0, wide);
    m.result = attn__take(map, attn__max(wide, block), lanes);
    m.part = attn__take(map, 1, additive ? block * 4 * ATTN__PARTS : c->key_sums.rank ? block * ATTN__PARTS : 0);
    m.table = attn__take(map, ATTN__TABLES, w->bias == ATTN__BIAS_TABLE ? c->bias_row : 0);
    m.tile.copy = attn__take(map, 1, c->copy_floats);
    m.tile.expanded = c->not_f32 || c->page ? attn__take_expanded(map, c) : NULL;
    if (!p) return NULL;
    p->m = m;
    p->c = c;
    p->f = c->f;
    p->cells = NULL;
    return p;
}
#endif

/* A d_bias that blocks add to, where its elements would be rounded at each: sums as floats. */
static int64_t attn__bias_floats(const attn__call *c)
{
    const int64_t *n = c->bias_size;
    if (!c->is_backward || c->w.bias != ATTN__BIAS_ADDED || attn__is_f32(&c->d_bias)) return 0;
    return attn__mul64(attn__mul64(n[0], n[1]), attn__mul64(n[2], n[3]));
}

#ifndef ATTN_NO_BACKWARD
/* Of a gradient by index, sums of a head: each block of queries has its own. Packed, an entry begins with a new one. */
static int64_t attn__table_blocks(const attn__call *c)
{
    const int64_t blocks = attn__blocks(c->all_queries, ATTN_GRAD_QUERIES);
    return c->packed_queries ? attn__add64(blocks, c->batch) : blocks;
}
static int64_t attn__table_floats(const attn__call *c)
{
    return c->w.bias == ATTN__BIAS_TABLE ? attn__mul64(attn__table_blocks(c), c->bias_row) : 0;
}
#endif

static void attn__take_shared(attn__map *m, const attn__call *c, attn__shared *s)
{
    const attn__backward *w = &c->w;
    const int64_t rows = attn__rows_of_arrays(c);
    const int64_t keys = attn__mul64(attn__mul64(attn__batch_of_keys(c), c->streams), c->keys);
    s->entries = NULL;
    if (c->uneven) s->entries = (int64_t *)(void *)attn__take(m, attn__add64(attn__mul64(2, c->batch), 1), 4);
    s->prepared = attn__take(m, keys, c->key_floats);
    s->slots = attn__take(m, c->slots, c->slot_floats);
    if (!c->is_backward) return;
    s->rows = attn__take(m, rows, ATTN__R_COUNT);
    s->left_u = attn__take(m, 1, w->save_u ? attn__mul64(rows, w->size_u) : 0);
    s->left_t = attn__take(m, 1, w->save_t ? attn__mul64(rows, w->size_u) : 0);
    s->left_b = attn__take(m, 1, w->save_b ? attn__mul64(keys, w->size_u) : 0);
    s->bias = attn__take(m, 1, attn__bias_floats(c));
#ifndef ATTN_NO_BACKWARD
    s->table = attn__take(m, 1, attn__mul64(attn__mul64(attn__batch_of_rows(c), c->heads), attn__table_floats(c)));
#endif
    s->sums = attn__take(m, 1, w->all_sums);
}

typedef struct attn__task {
    const attn__call *c;
    attn__shared shared;
    attn__map memory;           /* the worker's own */
    int64_t index;
    int32_t worker, phase;
} attn__task;

/* ---------------------------------------------------------------------------------------------------- >>planning
   From descriptor to call: sizes, options, tiles; then its steps, how many tasks each has, and the workspace. */
#ifndef ATTN_NO_BACKWARD
static int attn__parameter_sum(const attn__call *c, const attn__shared *s, int which, attn__matmul *m);
static int64_t attn__sum_tasks(const attn__matmul *m);
static int64_t attn__sum_floats(const attn__kernels *f, int64_t rows);
#endif

/* The sizes that the letters of a checker stand for, and what follows from the types that it saw. */
static void attn__set_sizes(attn__call *c, const attn__checker *w)
{
    c->not_f32 = (w->types & ((1u << ATTN_F16) | (1u << ATTN_BF16) | (1u << ATTN_I8))) != 0;
    c->masked = (w->types & 1u << ATTN_U8) != 0;        /* views of bytes are masks */
    c->batch = ATTN__LETTER(w, 'B');
    c->heads = ATTN__LETTER(w, 'H');
    c->heads_kv = w->of['K' - 'A'] ? ATTN__LETTER(w, 'K') : c->heads;
    c->queries = ATTN__LETTER(w, 'Q');
    c->keys = ATTN__LETTER(w, 'S');
    c->size_q = ATTN__LETTER(w, 'D');
    c->size_k = ATTN__LETTER(w, 'E');
    c->size_v = ATTN__LETTER(w, 'V');
    c->hidden = ATTN__LETTER(w, 'U');
    c->all_queries = c->queries;
    c->all_keys = c->keys;
    if (!w->layouts) return;
    c->page = w->layouts & ATTN__PAGED ? ATTN__LETTER(w, 'R') : 0;
    c->pool = w->layouts & ATTN__PAGED ? ATTN__LETTER(w, 'L') : 0;
    c->packed_queries = attn__packs_queries(w);
    c->packed_keys = attn__packs_keys(w);
}

static void attn__set_dropout(attn__call *c, const attn_desc *d)
{
    const double bound = (double)d->dropout * 4294967296.0;
    int i;
    c->dropout = d->dropout;
    c->keep_scale = 1.0f;
    if (d->dropout == 0.0f) return;
    c->keep_scale = d->dropout < 1.0f ? 1.0f / (1.0f - d->dropout) : 0.0f;
    c->drop_below = (uint64_t)bound + ((double)(uint64_t)bound < bound);        /* rounded up */
    c->seed = d->seed;
    for (i = 0; i < 4; i++) c->origin[i] = (uint32_t)d->dropout_origin[i];
    c->origin[3] += (uint32_t)d->key_origin;
}

/* The kernels for pairs of bf16, where they are allowed and this CPU has them; of a plan, for all its tasks. The CPU is
   asked last, and not by calls that have no use for them: that takes a part of what the smallest calls take. */
static const attn__pair_kernels *attn__allowed_pairs(const attn__call *c)
{
    if (c->precision != ATTN_PRECISION_FAST || !c->not_f32 || attn__mul64(c->heads, c->queries) <= ATTN__SKINNY)
        return NULL;
    return attn__pairs_here(c->f);
}

static void attn__set_options(attn__call *c, const attn_desc *d)
{
#define ATTN__X(type, f, ...) c->f = d->f;
    ATTN__SCORE_NUMBERS(ATTN__X)
    ATTN__NUMBERS(ATTN__X)
#undef ATTN__X
    if (c->isa == ATTN_ISA_AUTO) c->isa = (int32_t)attn_best_isa();
    c->f = attn__table(c->isa);
    c->pairs = attn__allowed_pairs(c);
    c->workers = d->parallel.workers ? d->parallel.workers : 1;
    if (!d->scale_set && c->scale == 0.0f)
        c->scale = c->score == ATTN_SCORE_SCALED_DOT && c->size_q > 0 ? 1.0f / attn__sqrt((float)c->size_q) : 1.0f;
    if (c->sigma == 0.0f) c->sigma = 1.0f;
    if (c->carry_out.rank) c->sink.rank = 0;    /* it counts once, in the call that ends */
    attn__set_dropout(c, d);
    c->left = d->window && d->window_left >= 0 ? d->window_left : ATTN__HUGE;
    c->right = d->window && d->window_right >= 0 ? d->window_right : ATTN__HUGE;
    if (d->causal) c->right = 0;
    c->ragged = c->query_starts.rank || c->key_starts.rank ||
                (c->page && (c->scores.rank || c->scores_softcap.rank || c->weights.rank ||
                             c->empty == ATTN_EMPTY_UNIFORM));      /* what asks for all of an entry's keys */
    c->same_reach = attn__has_same_reach(c);
    c->plain_scores = c->softcap == 0.0f && !c->bias.rank && !c->alibi.rank && !c->scores_masked.rank;
    c->softmax_only = c->plain_scores && c->score == ATTN_SCORE_GIVEN && attn__is_contiguous(&c->given_scores) &&
                      c->scale > 0.0f && !c->out.rank && !c->carry_in.rank && !c->carry_out.rank;
    if (c->masked) c->softmax_only = c->softmax_only && c->weights.rank && attn__is_contiguous(&c->weights);
    c->plain_scores = c->plain_scores && !c->masked && !c->weights.rank && !attn__score_of(c)->finish;
}

/* Can k or v, or its codes by AMX, be multiplied as pairs of bf16? Of codes a row has one scale. */
static int attn__has_pairs(const attn__call *c, const attn__array *a, const attn__array *scale)
{
    return a->type == ATTN_BF16 || (a->type == ATTN_I8 && attn__by_amx(c) && !scale->stride[3]);
}

/* Which products are those of pairs of bf16: of the backward pass by AMX all five, or none. Scales of v are part of the
   weights. */
static int32_t attn__fast_products(const attn__call *c)
{
    const float largest = 18446744073709551616.0f;      /* 2^64: a scale beyond could make much of what was flushed */
    const int64_t least = attn__by_amx(c) ? ATTN__AMX_COLUMNS : 0;
    const int codes = c->v.type == ATTN_I8;
    int32_t fast = 0;
    if (!c->pairs || c->on_device || c->stream_rows <= ATTN__SKINNY) return 0;
    if (c->score <= ATTN_SCORE_DOT && c->q.type == ATTN_BF16 && attn__has_pairs(c, &c->k, &c->k_scale) &&
        c->size_k >= least && c->scale <= largest && c->scale >= -largest) fast |= ATTN__FAST_SCORES;
    if (c->is_backward)
        return fast && attn__by_amx(c) && c->v.type == ATTN_BF16 && c->d_out.rank && c->d_out.type == ATTN_BF16 &&
               c->size_v >= least && attn__min(c->queries, c->keys) >= ATTN__AMX_ROWS ? fast : 0;
    if (attn__has_outputs(c) && attn__has_pairs(c, &c->v, &c->v_scale) && (!codes || c->dropout == 0.0f) &&
        c->size_v >= (fast ? 1 : 2) * least) fast |= ATTN__FAST_VALUES;
    return fast;
}

/* Tiles of a stream's rows. Few rows are not torn apart: see attn__is_skinny. */
static int64_t attn__tiles_of(const attn__call *c, int64_t rows)
{
    return attn__blocks(rows, rows > ATTN__SKINNY ? c->tile_lanes : c->ld);
}

static void attn__cut_rows(attn__call *c)
{
    c->stream_rows = attn__mul64(c->stream_heads, c->queries);
    c->tiles = attn__tiles_of(c, c->stream_rows);
    c->fast = attn__fast_products(c);
}

/* Room for a tile, of no more lanes and keys than there are, nor of more lanes than `most`. Rows are those of all
   heads, though with more key heads a tile has fewer: workspace must not shrink as a size grows. */
static void attn__set_room(attn__call *c, int64_t most)
{
    const int64_t rows = attn__min(attn__mul64(c->heads, c->queries), most), width = c->f->width;
    const int64_t keys = attn__min(c->keys, ATTN__CHUNK), all_lanes = c->is_backward || c->key_floats;
    c->room_lanes = all_lanes ? c->ld : (rows + width - 1) & -width;    /* keys are prepared by tiles of all lanes */
    c->room_keys = c->is_backward ? (int64_t)ATTN__CHUNK : (keys + ATTN__SIDE - 1) & -(int64_t)ATTN__SIDE;
    c->output_floats = attn__mul64(c->size_v, c->room_lanes);
    if (c->skinny_floats)
        c->output_floats = attn__max(c->output_floats, attn__mul64(attn__most_skinny(c),
                                                                   attn__add64(c->size_v, c->f->width)));
}

/* How many streams a task may have, with few rows: where their heads lie side by side in a row, or in a page.
   It does not depend on what workspace must not shrink with: queries, workers and the rows of a page. */
static int64_t attn__most_task_heads(const attn__call *c)
{
    const int64_t most = attn__min(c->streams, ATTN__TASK_HEADS);
    if (!c->skinny_floats || !c->plain_scores || !attn__has_outputs(c) || c->dropout > 0.0f || c->key_floats ||
        attn__score_of(c)->qk != attn__dot_qk || c->keys < 2 * ATTN__CHUNK || most < 2) return 1;
    if (c->page) return most;
    return c->heads_kv > 1 && c->k.stride[1] < c->k.stride[2] && c->v.stride[1] < c->v.stride[2] ? most : 1;
}

/* Bytes that a worker needs for the steps of tiles, or of the backward pass. */
static int64_t attn__worker_bytes(const attn__call *c)
{
    attn__map m = {NULL, c->uneven ? attn__bytes_of(2 * ATTN__CALL_FLOATS) : 0};
    int64_t tiles = attn__max(c->task_tiles, c->task_heads), i;
#ifndef ATTN_NO_BACKWARD
    if (c->is_backward) {
        const int64_t calls = m.bytes;
        int64_t bytes;
        attn__take_pass(&m, c);
        bytes = m.bytes;
        m.bytes = calls + attn__bytes_of(ATTN__PASS_FLOATS);    /* the step of the rows has a tile after its pass */
        attn__take_tile(&m, c);
        return attn__max(attn__max(bytes, m.bytes), attn__bytes_of(attn__sum_floats(c->f, ATTN__SUM_ROWS)));
    }
#endif
    if (attn__by_amx(c))
        tiles = attn__max(tiles, ATTN__AMX_TILES);      /* also where a key head has few rows: see attn__set_room */
    attn__take_tile(&m, c);
    for (i = 1; i < tiles; i++) attn__take_next_tile(&m, c, NULL);
    return m.bytes;
}

enum { ATTN__TASKS, ATTN__SLOTS, ATTN__WORK, ATTN__TALLIES };
static int64_t attn__count_entries(const attn__call *c, int which, int64_t *before);
static int64_t attn__tasks_wanted(const attn__call *c) { return attn__mul64(ATTN__WORKER_TASKS, c->workers); }
static int64_t attn__rows_to_cut(const attn__call *c) { return attn__mul64(ATTN__CUT_ROWS, c->workers); }
/* Slots that there is room for: it depends on nothing with which workspace could shrink. */
static int64_t attn__most_slots(const attn__call *c)
{
    if (c->workers == 1 || c->keys <= ATTN__CHUNK || c->is_backward || c->on_device ||
        !(attn__score_of(c)->flags & ATTN__DOTS)) return 0;
    return attn__mul64(attn__min(attn__rows_of_arrays(c), attn__rows_to_cut(c)),
                       attn__add64(attn__blocks(c->keys, ATTN__CHUNK), 2));
}

/* Whether a task has so many; with room for both ways, as which of them it is changes with sizes. */
static void attn__set_task_heads(attn__call *c)
{
    int64_t share = attn__max(attn__blocks(attn__mul64(c->batch, c->streams), c->workers), 1);      /* a worker's */
    const int64_t most = attn__most_task_heads(c);
    c->task_heads = 1;
    attn__set_room(c, c->ld);
    if (most == 1) return;
    if (c->most_slots && attn__rows_of_arrays(c) <= attn__rows_to_cut(c) && attn__knows_entries(c))
        share = /* their keys can be cut */
            attn__max(2 * attn__count_entries(c, ATTN__WORK, NULL) / attn__tasks_wanted(c), share);
    c->worker_bytes = attn__worker_bytes(c);
    c->task_heads = most;
    attn__set_room(c, attn__max(c->f->width, attn__most_skinny(c)));
    c->worker_bytes = attn__max(c->worker_bytes, attn__worker_bytes(c));
    c->task_heads = attn__blocks(c->streams, attn__blocks(c->streams, attn__min(share, most)));    /* alike */
    if (attn__heads_take_turns(c)) return;
    c->task_heads = 1;
    attn__set_room(c, c->ld);
}

static int64_t attn__skinny_floats(const attn__call *c)
{
    const int64_t rows = attn__mul64(ATTN__SIDE, attn__max(c->size_k, c->size_v));
    if (!(attn__score_of(c)->flags & ATTN__DOTS) || c->is_backward || !c->size_k || c->k.stride[3] != 1 ||
        (attn__has_outputs(c) && (c->v.stride[3] != 1 || c->size_v < c->f->width))) return 0;
    return attn__add64((int)ATTN__SKINNY * (int)ATTN__SKINNY_ROW + (int)ATTN__SKINNY_LIST,
                       attn__add64(rows, attn__scale_floats(c)));
}

/* Where the keys end that some row may reach: what a cache has room for beyond them takes no time. */
static int64_t attn__end_of_keys(const attn__call *c)
{
    const int64_t all = attn__entries_to_see(c);
    attn__extent x;
    int64_t b, end = 0;
    if (!c->key_lengths.rank || c->scores.rank || c->scores_softcap.rank || !attn__knows_entries(c)) return c->keys;
    for (b = 0; b < all; b++) {
        attn__find_keys(c, b, &x);
        end = attn__max(x.key0 + x.keys, end);
    }
    return end;
}

/* Tiles and prepared keys. */
static void attn__set_tiles(attn__call *c)
{
    const attn__score *score = attn__score_of(c);
    const int64_t chunks = attn__blocks(c->keys, ATTN__CHUNK), used = attn__blocks(attn__end_of_keys(c), ATTN__CHUNK);
    c->streams = c->bilinear.rank == 3 || c->w_q.rank == 3 || c->w_k.rank == 3 || c->w_v.rank == 2 ||
                 c->hidden_bias.rank == 2 ? c->heads : c->heads_kv;
    c->stream_heads = c->streams ? attn__quotient(c->heads, c->streams) : 0;
    c->ld = c->tile_lanes = attn__lanes(c->f);
    attn__cut_rows(c);
    c->most_slots = attn__most_slots(c);
    c->uneven = c->ragged || (c->key_lengths.rank && c->batch > 1 && c->most_slots);
    c->by_entry = c->ragged;
    c->cut.parts = 1;
    c->slot_floats = attn__add64(c->size_v, 2);
    c->key_floats = score->key_floats ? score->key_floats(c) : 0;
    c->key_blocks = c->key_floats && chunks ? attn__max(used, 1) : 0;
    c->copy_floats = attn__room_to_copy(c);
    c->skinny_floats = attn__skinny_floats(c);
    c->task_tiles = !attn__is_f32(&c->k) || !attn__is_f32(&c->v) || c->page ? ATTN__TASK_TILES : 1;
    if (c->fast && attn__by_amx(c)) c->task_tiles = ATTN__AMX_TILES;
    attn__set_task_heads(c);
}

static void attn__add_step(attn_plan *plan, attn__call *c, attn__step step, int64_t tasks)
{
    c->step[plan->phases] = (uint8_t)step;
    plan->tasks[plan->phases++] = tasks;
}

/* Groups of tiles, of which a task has one or some, of the rows of all streams. */
static int64_t attn__groups(const attn__call *c, int64_t tiles)
{
    if (c->task_heads > 1) return tiles > 0 ? attn__blocks(c->streams, c->task_heads) : 0;
    return attn__mul64(c->streams, attn__blocks(tiles, c->task_tiles));
}

static int64_t attn__groups_of_a_task(const attn__call *c) { return c->cut.parts > 1 ? 1 : c->task_groups; }

/* ---- One query over a long cache would be a task for each key head: its keys are cut, as far as the workers ask. The
   first part merges its chunks as ever and leaves the outcome in a slot; of the others each chunk leaves maximum,
   sum and outputs in one, and another step joins all in order. */
static int attn__visits_all_keys(const attn__call *c) { return c->scores.rank || c->scores_softcap.rank; }

/* Of an entry's rows, or of those in front of them: chunks of keys, the parts that these are cut into, as many as their
   share of the call's chunks asks for, and slots of a row. */
static attn__cut attn__cut_of(const attn__call *c, int64_t b, int before)
{
    const int64_t key = attn__mul64(c->task_heads, attn__add64(attn__add64(c->size_k, c->size_v), 64));
    const int64_t least = attn__blocks(ATTN__CUT_FLOATS, attn__mul64(ATTN__CHUNK, key));
    int64_t reach = attn__add64(attn__add64(c->left, c->right), c->queries), rows;
    attn__cut n = {0, 0, 1, 0};
    attn__extent x;
    attn__find_keys(c, b, &x);
    attn__find_rows(c, b, before, &x);
    n.rows = x.rows;
    rows = attn__mul64(c->stream_heads, x.rows);
    if (!before) n.chunks = attn__blocks(attn__visits_all_keys(c) ? c->keys : x.keys, ATTN__CHUNK);
    if (!c->work || before || rows > c->ld ||
        (rows > ATTN__SKINNY && attn__rows_of_arrays(c) > attn__rows_to_cut(c))) return n;
    reach = attn__min(n.chunks, attn__blocks(reach, ATTN__CHUNK));
    n.parts = attn__max(attn__mul64(reach, attn__tasks_wanted(c)) / c->work, 1);
    n.parts = attn__max(reach / attn__max(reach / n.parts, least), 1);
    if (n.parts > 1) n.slots = n.chunks - attn__blocks(n.chunks, n.parts) + 1;
    return n;
}

/* Tasks (in the backward pass blocks of queries), slots, chunks of all groups. */
static void attn__tally(const attn__call *c, int64_t b, int before, int64_t *n)
{
    const attn__cut cut = attn__cut_of(c, b, before);
    const int64_t groups = attn__groups(c, attn__tiles_of(c, attn__mul64(c->stream_heads, cut.rows)));
    n[ATTN__TASKS] = cut.parts > 1 ? attn__mul64(groups, cut.parts) : attn__blocks(groups, attn__groups_of_a_task(c));
#ifndef ATTN_NO_BACKWARD
    if (c->is_backward) n[ATTN__TASKS] = attn__mul64(c->heads, attn__blocks(cut.rows, ATTN_GRAD_QUERIES));
#endif
    n[ATTN__SLOTS] = attn__mul64(attn__mul64(c->heads, cut.rows), cut.slots);
    n[ATTN__WORK] = attn__mul64(groups, cut.chunks);
}

/* One of these sums over all entries. before: is filled with attn__shared.entries. */
static int64_t attn__count_entries(const attn__call *c, int which, int64_t *before)
{
    const int64_t all = before ? c->batch : attn__entries_to_cut(c);
    int64_t f, i, sum[ATTN__TALLIES] = {0}, n[ATTN__TALLIES];
    for (f = 0; f < 2 * all; f++) {
        if (before) before[f] = sum[ATTN__TASKS];
        if (before) before[2 * all + 1 + f] = sum[ATTN__SLOTS];
        attn__tally(c, f / 2, (int)(f % 2), n);
        for (i = 0; i < ATTN__TALLIES; i++) sum[i] = attn__add64(sum[i], n[i]);
    }
    if (before) before[f] = sum[ATTN__TASKS];
    return all < c->batch ? attn__mul64(sum[which] / all, c->batch) : sum[which];
}

/* Tasks that have `each` per batch entry of the arrays; with entries of their own as many as their rows make. */
static int64_t attn__row_tasks(const attn__call *c, int64_t each)
{
    if (!c->by_entry || !attn__knows_entries(c)) return attn__mul64(attn__batch_of_rows(c), each);
    return each ? attn__count_entries(c, ATTN__TASKS, NULL) : 0;
}

static void attn__cut_keys(attn__call *c)
{
    if (!c->most_slots || !attn__knows_entries(c)) return;
    c->work = attn__count_entries(c, ATTN__WORK, NULL);     /* nothing is cut yet */
    c->slots = attn__count_entries(c, ATTN__SLOTS, NULL);
    if (c->slots > c->most_slots) c->slots = 0;
    if (!c->slots) c->work = 0;
    else if (c->uneven && (c->key_lengths.stride[0] || c->query_lengths.stride[0])) c->by_entry = 1;
    if (c->slots && !c->by_entry) c->cut = attn__cut_of(c, 0, 0);
}

/* Too few tiles for the workers: fewer side by side in a task, then narrower ones, though each row takes longer. */
static void attn__cut_tiles(attn__call *c)
{
    const int64_t streams = attn__mul64(attn__batch_of_rows(c), c->streams), width = c->f->width, vecs = c->f->vecs;
    const int64_t wanted = attn__tasks_wanted(c) / 2, all = attn__mul64(streams, attn__blocks(c->stream_rows, width));
    const int64_t work = attn__mul64(attn__mul64(width, c->keys), attn__add64(c->size_k, c->size_v));
    const int64_t least = attn__max(attn__blocks(ATTN__WORTH_CUTTING, work), c->task_tiles > 1 ? vecs / 2 : 1);
    c->worker_bytes = attn__max(c->worker_bytes, attn__worker_bytes(c));        /* as before */
    c->task_tiles = attn__max(attn__min(attn__mul64(streams, c->tiles) / wanted, c->task_tiles), 1);
    c->tile_lanes = attn__min(attn__max(all / wanted, least), vecs) * width;
    attn__cut_rows(c);
}

static void attn__forward_steps(attn__call *c, attn_plan *plan)
{
    const int64_t streams = attn__mul64(c->batch, c->streams), tiles = attn__mul64(streams, c->tiles);
    int64_t tasks;
    attn__cut_keys(c);
    if (!c->slots && c->workers > 1 && !c->on_device) attn__cut_tiles(c);
    c->task_groups = attn__max(ATTN__ENTRY_GROUPS / c->task_heads, 1);
    if (c->by_entry && c->workers > 1 && attn__knows_entries(c)) {
        const int64_t most = c->task_groups;
        c->task_groups = 1;             /* as which they are counted */
        tasks = attn__count_entries(c, ATTN__TASKS, NULL);
        c->task_groups = attn__max(attn__min(tasks / attn__tasks_wanted(c), most), 1);
    }
    tasks = attn__mul64(attn__row_tasks(c, attn__groups(c, c->tiles)), c->cut.parts);
    if (c->by_entry) attn__add_step(plan, c, ATTN__STEP_ENTRIES, tiles > 0);
    if (c->key_blocks > 0)
        attn__add_step(plan, c, ATTN__STEP_KEYS, tiles ? attn__mul64(attn__mul64(attn__batch_of_keys(c), c->streams),
                                                                     c->key_blocks) : 0);
    attn__add_step(plan, c, ATTN__STEP_TILES, tasks);
    if (c->slots) attn__add_step(plan, c, ATTN__STEP_JOIN, c->by_entry ? tasks : streams);
}
#ifndef ATTN_NO_BACKWARD
/* What the gradient of the bias is made of. */
static void attn__set_bias(attn__call *c)
{
    const int64_t shape[4] = {c->batch, c->heads, c->queries, c->keys}, *n = c->bias_size;
    const int heads = shape[1] != n[1], queries = shape[2] != n[2];     /* summed over? */
    const int batch = shape[0] != n[0] && (!c->packed_queries || queries);
    c->w.bias = ATTN__BIAS_NONE;
    if (!c->d_bias.rank) return;
    if (c->bias_index.rank) c->w.bias = ATTN__BIAS_TABLE;
    else if (n[3] == 1 && !(shape[3] == 1 && c->key_origin > 0) && (!attn__has_own_columns(c) || n[2] <= 1))
        c->w.bias = ATTN__BIAS_ROWS;                /* (else it is a column of a larger bias) */
    else c->w.bias = attn__adds(c, ATTN_GRAD_BIAS) || batch || heads || queries ? ATTN__BIAS_ADDED : ATTN__BIAS_STORED;
    c->w.bias_in_common = c->w.bias > ATTN__BIAS_ROWS && (batch || (heads && c->heads_kv > 1));
}

/* Does d_bias, or the sums that become it, begin as zeros? Packed, not every element is some entry's. */
static int attn__clears_bias(const attn__call *c)
{
    if (c->w.bias == ATTN__BIAS_STORED) return attn__has_own_columns(c);
    return c->w.bias == ATTN__BIAS_ADDED && (!attn__adds(c, ATTN_GRAD_BIAS) || attn__bias_floats(c));
}

/* Blocks of keys that a block of queries may reach, as sizes tell: all, or those up to a causal mask's edge. */
static int64_t attn__block_reach(const attn__call *c, int64_t block)
{
    const int64_t all = attn__key_blocks(c), more = c->align == ATTN_ALIGN_BOTTOM_RIGHT ? c->keys - c->queries : 0;
    if (c->right || c->align == ATTN_ALIGN_POSITIONS || c->query_lengths.rank || c->empty == ATTN_EMPTY_UNIFORM ||
        c->key_origin || c->w.all_blocks) return all;
    return attn__min(all, attn__blocks(attn__max((block + 1) * ATTN_GRAD_QUERIES + more, 0), ATTN_GRAD_KEYS));
}

/* Memory for sums by key, a set of all keys for each worker; with more than two workers enough for cells, up to a
   bound. It is counted whether there are cells or not, so that it never shrinks as a size grows. */
static void attn__set_sums(attn__call *c)
{
    attn__backward *w = &c->w;
    const attn__score *score = attn__score_of(c);
    const int64_t units = attn__mul64(c->batch, c->heads_kv);
    const int64_t blocks = attn__mul64(attn__mul64(c->batch, c->heads), attn__mul64(w->blocks, attn__key_blocks(c)));
    attn__pass_memory none;
    attn__map m = {NULL, 0};
    int64_t most;
    attn__take_sums(&m, c, &none);
    w->sum_floats = m.bytes / (int64_t)sizeof(float);
    w->all_sums = attn__mul64(c->workers, w->sum_floats);
    if (w->does != (ATTN__DO_Q | ATTN__DO_K) || c->workers <= 2 || c->ragged || score->elements || score->finish_rows ||
        c->d_alibi.rank || w->bias == ATTN__BIAS_TABLE || (c->d_bias.rank && c->bias_size[3] == 1)) return;
    w->cell_floats = attn__mul64(w->pad_u, ATTN_GRAD_QUERIES);
    most = attn__add64(attn__mul64(attn__min(units, c->workers), w->sum_floats), attn__mul64(blocks, w->cell_floats));
    w->all_sums = attn__max(w->all_sums, attn__min(most, attn__mul64(c->workers, ATTN__WORKER_SUMS)));
}

/* Rounds of cells, as few as have room: 0, if there would be too many. */
static int64_t attn__find_rounds(attn__call *c, int64_t units)
{
    attn__backward *w = &c->w;
    const int64_t all = attn__mul64(c->heads / c->heads_kv, w->blocks);
    int64_t n = 0, q = 0, cells;
    if (!w->cell_floats || w->bias_in_common || all > 1 << 16) return 0;
    w->cells = (w->all_sums / units - w->sum_floats) / w->cell_floats;
    for (; q < all && n < ATTN__MAX_ROUNDS; w->round[++n] = q)
        for (cells = 0; q < all && (cells += attn__block_reach(c, q % w->blocks)) <= w->cells;) q++;
    return q < all ? 0 : n;
}

/* Which tasks there are: one per unit, a batch entry's key head, has each block's weights once (five products). With
   fewer units than workers: rounds of slots (five products, one block after another, the last one the longest under a
   causal mask); rounds of cells (five products and half of one more, as dq is left, and queries are loaded by several
   tasks); or cut among more tasks, some of which do dK and dV for a part of the keys and others dQ for a part of the
   queries (four and three products; additive, where both need all of it, five and five). What takes longest for its
   slowest worker tells; costs are half products of a unit. With so many units that whole ones lose less than the half
   product of cells, whatever the last of them leaves idle, cells are not asked for. */
enum { ATTN__COST_WHOLE = 2 * 5, ATTN__COST_CELLS = 2 * 5 + 1, ATTN__COST_CUT = 2 * 7, ATTN__COST_ADDITIVE = 2 * 10 };
static void attn__set_block_tasks(attn__call *c)
{
    attn__backward *w = &c->w;
    const int64_t workers = c->workers, units = attn__mul64(c->batch, c->heads_kv);
    const int64_t key_units = w->bias_in_common && units > 0 ? 1 : units, key_blocks = attn__key_blocks(c);
    const int64_t whole = attn__mul64(attn__blocks(key_units, workers), ATTN__COST_WHOLE * workers);
    const int64_t cut = attn__mul64(units, c->score == ATTN_SCORE_ADDITIVE ? ATTN__COST_ADDITIVE : ATTN__COST_CUT);
    const int64_t depth = attn__add64(w->size_u, c->key_sums.rank ? c->size_k : c->size_v);
    const int64_t work = attn__mul64(attn__mul64(c->queries, c->keys), depth);
    const int64_t tasks = ATTN__WORKER_TASKS * workers, least = attn__min(whole, cut);
    const int both = w->does == (ATTN__DO_Q | ATTN__DO_K);
    int64_t i, rounds = ATTN__MAX_ROUNDS + 1;
    w->main_tasks = w->does ? key_units : 0;
    if (workers == 1 || units == 0 || !w->does || attn__mul64(work, units) < ATTN__WORTH_CUTTING ||
        (!both && key_units >= tasks)) return;
    w->slots = attn__min(workers / units, w->blocks);
    if (both && !c->ragged && w->slots > 1 && c->heads == c->heads_kv && !w->bias_in_common &&
        w->bias != ATTN__BIAS_ADDED && key_blocks > 0) rounds = attn__blocks(w->blocks, w->slots);
    if (rounds > ATTN__MAX_ROUNDS || ATTN__COST_WHOLE * workers * rounds >= least * w->blocks) rounds = 0;
    if (units < ATTN__COST_WHOLE * workers && ATTN__COST_CELLS * units < whole &&
        (!rounds || ATTN__COST_WHOLE * workers * (rounds + !c->right) > ATTN__COST_CELLS * units * w->blocks))
        w->rounds = attn__find_rounds(c, units);
    if (w->rounds) {
        w->slots = 1;
        w->key_parts = attn__max(attn__min((w->rounds > 1 ? tasks : tasks / 2) / units, key_blocks), 1);
        w->main_tasks = units * w->key_parts;
        return;
    }
    w->cells = 0;
    if (rounds) {
        for (i = 0; i <= rounds; i++) w->round[i] = attn__min(i * w->slots, w->blocks);
        w->rounds = rounds;
        w->key_parts = attn__min(key_blocks, workers);
        w->main_tasks = units * w->blocks;
        return;
    }
    if (both && whole <= cut) return;
    if (w->does & ATTN__DO_K) w->key_parts = attn__min(attn__blocks(tasks, key_units), attn__max(key_blocks, 1));
    if (w->bias_in_common && c->ragged) w->key_parts = attn__min(w->key_parts, 1);     /* each entry is cut elsewhere */
    if (w->does & ATTN__DO_Q) w->query_parts = attn__min(attn__blocks(tasks, units), attn__max(w->blocks, 1));
    w->main_tasks = attn__add64(attn__mul64(key_units, w->key_parts), attn__mul64(units, w->query_parts));
}

/* A distance of rows that are read one below the other: not one that puts all of them into a few sets of the cache. */
static int64_t attn__spread(int64_t n) { return n > 0 && n % 32 == 0 ? attn__add64(n, 16) : n; }

/* What is wanted, and the sizes that follow. */
static void attn__set_backward(attn__call *c)
{
    attn__backward *w = &c->w;
    const attn__score *score = attn__score_of(c);
    const int additive = c->score == ATTN_SCORE_ADDITIVE, width = c->f->width;
    const int below_q = c->dq.rank || c->d_bilinear.rank || c->d_w_q.rank || c->d_w_v.rank ||
                        (c->d_scale.rank && c->score != ATTN_SCORE_GIVEN);
    const int below_k = c->dk.rank || c->d_w_k.rank || c->d_hidden_bias.rank;
    attn__set_bias(c);
    w->rows = attn__rows_of_arrays(c);
    w->blocks = attn__blocks(c->queries, ATTN_GRAD_QUERIES);
    w->tiles = attn__min(attn__blocks(ATTN_GRAD_QUERIES, attn__lanes(c->f)), attn__blocks(c->queries, width));
    w->vectors = (below_q || below_k) && score->vectors;
    w->size_u = !w->vectors ? 0 : additive ? c->hidden : c->size_k;
    w->pad_u = additive ? attn__round4(w->size_u) : attn__up(w->size_u, width);
    w->pad_k = w->vectors ? attn__up(c->size_k, width) : 0;
    w->pad_v = c->d_out.rank || c->dv.rank ? attn__up(c->size_v, width) : 0;
    w->vector_row = additive ? 0 : attn__spread(w->pad_u);
    w->value_row = attn__spread(w->pad_v);
    w->all_blocks = w->bias == ATTN__BIAS_STORED || (c->d_given_scores.rank && !attn__adds(c, ATTN_GRAD_GIVEN_SCORES));
    if (below_q || c->d_given_scores.rank || c->d_sigma.rank || c->d_scale.rank || c->d_alibi.rank ||
        w->bias == ATTN__BIAS_ROWS || w->bias == ATTN__BIAS_TABLE) w->does |= ATTN__DO_Q;
    if (below_k || c->dv.rank || c->key_sums.rank || w->bias > ATTN__BIAS_ROWS) w->does |= ATTN__DO_K;
    w->save_u = w->vectors && (c->d_bilinear.rank || c->d_w_q.rank);
    w->save_t = w->vectors && c->d_w_v.rank;
    w->save_b = w->vectors && (c->d_w_k.rank || c->d_hidden_bias.rank);
    attn__set_sums(c);
    attn__set_block_tasks(c);
}

static void attn__backward_steps(attn__call *c, attn_plan *plan)
{
    attn__backward *w = &c->w;
    attn__matmul m;
    const int64_t *n = c->bias_size, blocks = attn__blocks(n[2], ATTN_GRAD_QUERIES);
    const int64_t bias = attn__mul64(attn__mul64(n[0], n[1]), blocks);  /* tasks that set it */
    int64_t sums = 0, rows;
    int i;
    attn__set_backward(c);
    if (!c->queries && !(c->keys && (c->dk.rank || c->dv.rank || c->key_sums.rank || w->save_b))) w->main_tasks = 0;
    for (i = 0; i < ATTN__SUM_COUNT; i++)
        if (attn__parameter_sum(c, &attn__none_shared, i, &m)) sums = attn__add64(sums, attn__sum_tasks(&m));
    rows = attn__add64(attn__row_tasks(c, attn__mul64(c->heads, w->blocks)), attn__clears_bias(c) ? bias :
                       w->bias == ATTN__BIAS_TABLE ? attn__mul64(attn__batch_of_rows(c), c->heads) : 0);
    if (c->ragged) attn__add_step(plan, c, ATTN__STEP_ENTRIES, rows || w->main_tasks || sums);
    if (c->key_blocks > 0)
        attn__add_step(plan, c, ATTN__STEP_KEYS, rows || w->main_tasks || sums ?
                       attn__mul64(attn__mul64(attn__batch_of_keys(c), c->streams), c->key_blocks) : 0);
    attn__add_step(plan, c, ATTN__STEP_ROWS, rows);
    if (w->rounds == 0) attn__add_step(plan, c, ATTN__STEP_BLOCKS, w->main_tasks);
    for (i = 0; i < w->rounds; i++) {
        const int64_t units = c->batch * c->heads_kv, queries = units * (w->round[i + 1] - w->round[i]);
        attn__add_step(plan, c, ATTN__STEP_ROUND, w->cells ? units * w->key_parts : queries);
        attn__add_step(plan, c, ATTN__STEP_MERGE, w->cells ? queries : units * w->key_parts);
    }
    if (attn__bias_floats(c)) attn__add_step(plan, c, ATTN__STEP_BIAS, bias);
    if (sums > 0) attn__add_step(plan, c, ATTN__STEP_SUMS, sums);
}

static void attn__set_gradients(attn__call *c, const attn_grad *g)
{
    const attn_out *bias = &g->d_bias;
    int axis;
    for (axis = 0; axis < 4; axis++) c->bias_size[axis] = axis < 4 - bias->rank ? 1 : bias->size[axis - 4 + bias->rank];
    if (c->bias_index.rank) {                   /* a table [H,N] */
        c->bias_size[1] = c->bias_size[2];
        c->bias_size[2] = 1;
    }
    c->accumulate = g->accumulate;
    c->last_queries = g->last_queries ? attn__min(g->last_queries, c->queries) : c->queries;
    if (g->key_sums.rank && !c->weights_after_dropout) {
        c->dropout = 0.0f;
        c->drop_below = 0;
    }
    c->saved_out = c->out;                      /* the forward's results are read here, not made */
    c->saved_stats = c->stats;
    if (!g->d_out.rank) c->saved_out.rank = 0;
    c->out.rank = c->lse.rank = c->stats.rank = c->weights.rank = 0;
    c->scores.rank = c->scores_softcap.rank = c->scores_masked.rank = 0;
}
#endif

struct attn_grad;       /* ATTN_NO_BACKWARD: none is ever given */
/* What was checked becomes a call; how it runs is found after. */
static attn_status attn__make_call(const attn__checker *w, const attn_desc *d, const struct attn_grad *g,
                                   attn_error *err)
{
    attn__call *c = w->call;
    c->on_device = attn__on_device(w->flags);
    c->idle = w->results == 1;
    attn__set_sizes(c, w);
    attn__set_options(c, d);
    if (w->layouts) ATTN__TRY(attn__check_entries(w, err));
#ifndef ATTN_NO_BACKWARD
    if (g) attn__set_gradients(c, g);
#endif
    (void)g;
    return ATTN_OK;
}

/* What a call does in which order, and the memory that it needs. */
static attn_status attn__plan_steps(attn_plan *plan, attn__call *c, int flags, attn_error *err)
{
    attn__shared shared;
    attn__map m = {NULL, 0};
    int64_t total, work = 0, slots;
    int32_t i;
    (void)flags;
    attn__set_tiles(c);
#ifndef ATTN_NO_BACKWARD
    if (c->is_backward) attn__backward_steps(c, plan);
    else
#endif
    attn__forward_steps(c, plan);
    c->worker_bytes = attn__max(c->worker_bytes, attn__worker_bytes(c));
    slots = c->slots;
    c->slots = c->most_slots;                   /* counted, for workspace must not shrink, but not used */
    attn__take_shared(&m, c, &shared);
    total = attn__add64(m.bytes, attn__mul64(c->worker_bytes, c->workers));
    if (slots < c->slots) {
        c->slots = slots;
        m.bytes = 0;
        attn__take_shared(&m, c, &shared);
    }
    c->shared_bytes = m.bytes;
    ATTN__RULE(total < (int64_t)((size_t)-1 / 4), OVERFLOW, "workspace", "must fit in memory: a size is too large");
    if (c->idle) attn__zero(plan->tasks, sizeof plan->tasks);
    for (i = 0; i < plan->phases; i++) work = attn__add64(work, plan->tasks[i]);
    plan->workspace_bytes = work ? (size_t)(total + ATTN__ALIGN) : 0;
    plan->isa = c->isa;
#ifdef ATTN_CUDA
    if ((flags & ATTN__ON_DEVICE || !(flags & (ATTN__ON_HOST | ATTN__WITH_DATA))) && !c->idle &&
        !(flags & ATTN__AT_ONCE)) {
        const size_t bytes = (size_t)attn__cuda_bytes(c);   /* its workspace is the device's, or enough for either */
        if (c->on_device || bytes > plan->workspace_bytes) plan->workspace_bytes = bytes;
    }
#endif
    return attn__success(err);
}

/* Everything but the running. g: NULL, or the gradients that are wanted. */
ATTN__NOINLINE static attn_status attn__plan(const attn_desc *desc, const struct attn_grad *grad, int backward,
                                             attn_plan *plan, int flags, attn_error *err)
{
    attn__call *c;
    attn__checker w;
    ATTN__RULE_OF(desc, NULL, backward ? "forward" : "desc", "must not be NULL");
    ATTN__RULE(grad || !backward, NULL, "grad", "must not be NULL");
    ATTN__NOT_NULL(plan);
    c = (attn__call *)(void *)plan->internal;
    attn__zero(plan->tasks, sizeof plan->tasks);
    attn__zero(c, backward ? sizeof *c : offsetof(attn__call, d_out));
    plan->phases = 0;
    c->is_backward = backward;
    attn__begin_checks(&w, c, grad ? flags | ATTN__NO_RESULT_NEEDED : flags);
    ATTN__TRY(attn__check_desc(&w, desc, 0, err));
#ifndef ATTN_NO_BACKWARD
    if (grad) {
        attn__keep_inputs(&w);
        ATTN__TRY(attn__check_grad(&w, desc, grad, 0, err));
    }
#endif
    ATTN__TRY(attn__make_call(&w, desc, grad, err));
    return attn__plan_steps(plan, c, flags, err);
}

/* -------------------------------------------------------------------------------------------------------- >>keys
   Where the rows of a tile lie, and the rows of keys and values: used where they are, or as floats side by side, or as
   pairs of bf16. */
/* Where the lanes' rows of an operand begin, from a column on; mostly each lies after the one before it. */
static void attn__lane_rows(const attn__tile *t, const attn__array *a, int64_t column, int64_t count, float **rows)
{
    const uintptr_t row = (uintptr_t)a->stride[2] * sizeof(float);
    int64_t l = 0;
    if (t->c->page && a == &t->c->k) for (; l < count; l++) {       /* lanes are keys */
        const attn__key_run p = attn__key_run_of(t->c, t->b, t->i[l], 1);
        rows[l] = attn__at(a, p.b, t->h[l], p.row, column);
    }
    while (l < count) {
        uintptr_t at = (uintptr_t)attn__at(a, t->b, t->h[l], t->i[l], column);
        do {
            rows[l++] = (float *)at;
            at += row;
        } while (l < count && t->i[l] == t->i[l - 1] + 1);      /* a next head begins with row 0 */
    }
}

/* Of codes, where their scales are; else NULL. */
static const attn__array *attn__scale_of(const attn__call *c, const attn__array *a)
{
    return a->type != ATTN_I8 ? NULL : a == &c->k ? &c->k_scale : &c->v_scale;
}

/* The lanes' rows of an operand, columns from `column` on, as [n][ld], times a factor per lane; and back, those that
   stand for a row: a NaN becomes the one NaN. What is not f32 on the way through t->m.copy, some columns at a time. */
static int64_t attn__columns_at_once(const attn__tile *t) { return ATTN__MAX_LANES * (int)ATTN__SOME_COLUMNS / t->ld; }

static void attn__load_lanes(const attn__tile *t, const attn__array *a, int64_t column, int64_t n, const float *factor,
                             float *to)
{
    const int direct = attn__is_f32(a);
    float *rows[ATTN__MAX_LANES];
    int64_t l, x, count, from;
    if (direct) attn__lane_rows(t, a, column, t->ld, rows);
    for (x = 0; x < n; x += count) {
        count = direct ? n : attn__min(n - x, attn__columns_at_once(t));
        for (from = 0; !direct && from < t->ld; from = l) {         /* rows that follow each other */
            attn__key_run p = {t->b, t->i[from], 0};
            for (l = from; l < t->ld && t->h[l] == t->h[from] && t->i[l] == t->i[from] + p.n; p.n++)
                rows[l++] = t->m.copy + (from + p.n) * count;
            if (a == &t->c->k) p = attn__key_run_of(t->c, t->b, t->i[from], p.n);
            l = from + p.n;
            attn__copy_floats_of(t->f, attn__in(a, p.b, t->h[from], p.row, column + x), attn__scale_of(t->c, a), p.n,
                                 count, rows[from], count);
        }
        t->f->pack(to + x * t->ld, t->ld, (const float *const *)rows, direct ? a->stride[3] : 1, count, factor);
    }
}

/* Can the kernels of pairs take rows of an array, and give them? */
static int attn__are_pairs(const attn__tile *t, const attn__array *a, int64_t n)
{
    return t->c->fast && a->type == ATTN_BF16 && a->stride[3] == 1 && n % 2 == 0 && n >= 2 * t->f->width;
}

static void attn__store_bf16_pairs(const attn__tile *t, const attn__array *a, int64_t column, int64_t n,
                                   const float *factor, const float *from)
{
    const int64_t width = t->f->width;
    attn__half *rows[ATTN__MAX_LANES];
    int64_t l;
    for (l = 0; l < t->lanes; l++) rows[l] = (attn__half *)(uintptr_t)attn__place_of(a, t->b, t->h[l], t->i[l], column);
    for (l = 0; l < t->lanes; l += width)
        t->c->pairs->results(rows + l, attn__min(t->lanes - l, width), from + l, t->ld, n, factor + l);
}

static void attn__store_lanes(const attn__tile *t, const attn__array *a, int64_t column, int64_t n, const float *factor,
                              const float *from)
{
    const int direct = attn__is_f32(a);
    float *rows[ATTN__MAX_LANES];
    int64_t l, x, count;
    if (!a->rank) return;
    if (attn__are_pairs(t, a, n)) {
        attn__store_bf16_pairs(t, a, column, n, factor, from);
        return;
    }
    if (direct) attn__lane_rows(t, a, column, t->lanes, rows);
    for (x = 0; x < n; x += count) {
        count = direct ? n : attn__min(n - x, attn__columns_at_once(t));
        for (l = 0; !direct && l < t->lanes; l++) rows[l] = t->m.copy + l * count;
        t->f->unpack(rows, t->lanes, direct ? a->stride[3] : 1, from + x * t->ld, t->ld, count, factor);
        for (l = 0; !direct && l < t->lanes; l++)
            attn__store_row(t->f, attn__in(a, t->b, t->h[l], t->i[l], column + x), count, rows[l]);
    }
}

/* n numbers of a row of bf16, or of codes, as halves. */
static void attn__halves_of(const attn__pair_kernels *f, const attn__array *a, const void *from, int64_t n,
                            attn__half *to)
{
    int64_t x;
    if (a->stride[3] != 1 || (a->type == ATTN_I8 && n < 2 * ATTN__AMX_SIDE))
        for (x = 0; x < n; x++) to[x] = (attn__half)(attn__element(from, a->type, x * a->stride[3]) >> 16);
    else if (a->type == ATTN_I8) f->codes(to, (const int8_t *)from, n);
    else ATTN__COPY(to, from, (size_t)n * sizeof *to);
}

/* n rows of them, `size` numbers of each, as `pairs` pairs side by side: zeros after the last. */
static void attn__pair_rows(const attn__pair_kernels *f, const attn__array *a, const void *place, int64_t n,
                            int64_t size, int64_t pairs, float *to)
{
    const uintptr_t step = (uintptr_t)(a->stride[2] * attn__type_size(a->type));
    attn__half *row;
    int64_t r, x;
    if (a->stride[3] == 1 && a->stride[2] == size && size == 2 * pairs) {
        attn__halves_of(f, a, place, n * size, (attn__half *)(void *)to);
        return;
    }
    for (r = 0; r < n; r++, to += pairs) {
        row = (attn__half *)(void *)to;
        attn__halves_of(f, a, (const void *)((uintptr_t)place + (uintptr_t)r * step), size, row);
        for (x = size; x < 2 * pairs; x++) row[x] = 0;
    }
}

/* As many rows as these kernels take together, `size` numbers of each, `step` apart; NULL: zeros. scratch: as large as
   a tile's. */
static void attn__pair_columns(const attn__pair_kernels *f, const void *const *row, int32_t type, int64_t size,
                               int64_t step, float *scratch, float *to)
{
    enum { SOME = 64 };         /* columns of codes that become halves before they are turned */
    const int codes = type == ATTN_I8, whole = step == 1 && size >= (1 + codes) * ATTN__AMX_SIDE;
    const int64_t most = codes ? (int64_t)SOME : 2 * (int64_t)(sizeof attn__zeros / sizeof *attn__zeros);
    attn__half *const some = (attn__half *)(void *)scratch, *pair;
    const attn__half *part[2 * ATTN__AMX_SIDE];
    int64_t x, i, n;
    for (x = 0; whole && x < size; x += n) {                /* at most as many columns as there are zeros */
        n = size - x;
        if (n > most) n = most / 2;                         /* so that no less than a kernel takes is left */
        for (i = 0; i < f->keys; i++)
            part[i] = row[i] ? (const attn__half *)row[i] + x : (const attn__half *)(const void *)attn__zeros;
        for (i = 0; codes && i < f->keys; i++) if (row[i]) {
            f->codes(some + i * SOME, (const int8_t *)row[i] + x, n);
            part[i] = some + i * SOME;
        }
        f->values(to + x * f->column, part, n);
    }
    for (; x < size; x++) {
        pair = (attn__half *)(void *)(to + x * f->column);
        for (i = 0; i < f->keys; i++)
            pair[i] = (attn__half)(row[i] ? attn__element(row[i], type, x * step) >> 16 : 0);
    }
}

/* Of k or v the keys from j on that the kernels take together, as far as they are within first .. end and reached by a
   row (reached: of these keys; NULL: all are); the others are 0 and not read. */
static void attn__pair_values(const attn__tile *t, const attn__array *a, int64_t size, int64_t j, int64_t first,
                              int64_t end, const uint8_t *reached, float *to)
{
    const attn__pair_kernels *f = t->c->pairs;
    const void *row[2 * ATTN__AMX_SIDE];
    int64_t i;
    for (i = 0; i < f->keys; i++) {
        row[i] = NULL;
        if (j + i >= first && j + i < end && (!reached || reached[i])) {
            const attn__key_run p = attn__key_run_of(t->c, t->b, j + i, 1);
            row[i] = attn__place_of(a, p.b, t->head_kv, p.row, 0);
        }
    }
    attn__pair_columns(f, row, a->type, size, a->stride[3], t->m.t, to);
}

/* Where the values of a chunk's keys lie as pairs, from the j-th pair on. */
static attn__rows attn__paired_values(const attn__tile *t, float *chunk, int64_t j)
{
    const attn__pair_kernels *f = t->c->pairs;
    const int64_t row = f->column > 1 ? 1 : t->c->size_v;
    const attn__rows r = {chunk + j * row, row, f->column};
    return r;
}

/* The scales of a chunk's keys from .. end, where codes become pairs. */
static void attn__copy_scales(const attn__tile *t, const attn__array *a, int64_t from, int64_t end)
{
    attn__array scales;
    attn__key_run p;
    if (a->type != ATTN_I8) return;
    scales = attn__transposed(*attn__scale_of(t->c, a));        /* in a row */
    for (; from < end; from += p.n) {
        p = attn__key_run_of(t->c, t->b, from, end - from);
        attn__copy_row(t->f, attn__in(&scales, p.b, t->head_kv, 0, p.row), p.n,
                       t->m.expanded[a == &t->c->v].scales + from % ATTN__CHUNK);
    }
}

/* Keys from .. end of a chunk, of which first .. last may be read, into the room of expanded rows. */
static void attn__expand_bf16_pairs(const attn__tile *t, const attn__array *a, const attn__expanded *expanded,
                                    int64_t from, int64_t end)
{
    const int64_t size = a == &t->c->k ? t->c->size_k : t->c->size_v, pairs = attn__pairs_of(t->c, size);
    const int64_t chunk = from / ATTN__CHUNK * ATTN__CHUNK, keys = t->c->pairs->keys;
    attn__key_run p;
    int64_t j;
    attn__copy_scales(t, a, from, end);
    if (a == &t->c->k || t->c->is_backward) for (j = from; j < end; j += p.n) {
        float *to = expanded->rows + (j - chunk) * pairs;
        p = attn__key_run_of(t->c, t->b, j, end - j);
        attn__pair_rows(t->c->pairs, a, attn__place_of(a, p.b, t->head_kv, p.row, 0), p.n, size, pairs, to);
    } else for (j = from / keys * keys; j < end; j += keys)
        attn__pair_values(t, a, size, j, expanded->first, expanded->end, NULL,
                          (float *)(uintptr_t)attn__paired_values(t, expanded->rows, (j - chunk) / 2).at);
}

/* Rows of the keys from `key` on as floats, side by side. */
static void attn__copy_keys(const attn__tile *t, const attn__array *a, int64_t key, int64_t n, int64_t size, float *to)
{
    attn__key_run p;
    for (; n > 0; key += p.n, n -= p.n, to += p.n * size) {
        p = attn__key_run_of(t->c, t->b, key, n);
        attn__copy_floats_of(t->f, attn__in(a, p.b, t->head_kv, p.row, 0), attn__scale_of(t->c, a), p.n, size, to,
                             size);
    }
}

/* Rows of k or v, as a product takes them; all of one chunk, whose first key would lie at the result. What is not f32
   becomes floats, or pairs, and what lies in several pages is put side by side, once for all tiles that a task has side
   by side, and only what they reach. */
ATTN__NOINLINE static const float *attn__expand(const attn__tile *t, const attn__array *a, int64_t key, int64_t n,
                                                int64_t size, int paired)
{
    attn__expanded *expanded = &t->m.expanded[a == &t->c->v];
    const int64_t chunk = key / ATTN__CHUNK * ATTN__CHUNK;
    int64_t first, end, from, to;
    int after;
    if (expanded->b != t->b || expanded->head != t->head_kv || expanded->first < chunk || expanded->end < key ||
        expanded->first > key + n || expanded->paired != paired) expanded->first = expanded->end = key;
    expanded->b = t->b;
    expanded->head = t->head_kv;
    expanded->paired = paired;
    first = expanded->first;
    end = expanded->end;
    expanded->first = attn__min(first, key);
    expanded->end = attn__max(end, key + n);
    for (after = 0; after < 2; after++) {    /* what is missing before those that are there, and after them */
        from = after ? end : expanded->first;
        to = after ? expanded->end : first;
        if (from < to && paired) attn__expand_bf16_pairs(t, a, expanded, from, to);
        else attn__copy_keys(t, a, from, to - from, size, expanded->rows + (from - chunk) * size);
    }
    return expanded->rows;
}

static attn__rows attn__expanded_rows(const attn__tile *t, const attn__array *a, int64_t key, int64_t n, int64_t size)
{
    return attn__packed_rows(attn__expand(t, a, key, n, size, 0) + key % ATTN__CHUNK * size, size);
}

/* Does a tile that shares its keys with no other go over them part by part? Where it is small enough for that. */
static int attn__in_parts(const attn__tile *t)
{
    return t->c->tiles == 1 && !t->c->is_backward &&
           t->ld * attn__max(t->c->size_k, t->c->size_v) <= ATTN__CACHE_FLOATS / 2;
}

/* Rows of k or v from `key` on, *n at most; *n becomes how many there are at once: mostly all; of a tile that goes over
   them part by part only some, always in the same place, so that they stay cached. */
ATTN__NOINLINE static attn__rows attn__keys_as_floats(const attn__tile *t, const attn__array *a, int64_t key,
                                                      int64_t *n, int64_t size)
{
    const attn__key_run p = attn__key_run_of(t->c, t->b, key, *n);
    attn__expanded *expanded = &t->m.expanded[a == &t->c->v];
    if (attn__is_f32(a) && p.n == *n) return attn__rows_at(attn__in(a, p.b, t->head_kv, p.row, 0));
    if (!attn__in_parts(t)) return attn__expanded_rows(t, a, key, *n, size);
    expanded->b = -1;                       /* what it held is gone */
    *n = attn__min(*n, attn__max(ATTN__CACHE_FLOATS / attn__max(size, 1) / ATTN__SIDE, 1) * ATTN__SIDE);
    attn__copy_keys(t, a, key, *n, size, expanded->rows);
    return attn__packed_rows(expanded->rows, size);
}

ATTN__INLINE attn__rows attn__keys_of(const attn__tile *t, const attn__array *a, int64_t key, int64_t *n, int64_t size)
{
    if (t->m.expanded) return attn__keys_as_floats(t, a, key, n, size);
    return attn__rows_at(attn__in(a, t->b, t->head_kv, key, 0));
}

/* Rows of k or v that will become floats are prefetched as they are stored, while a product of `rows` rows works on
   others: n of them from a key on, if there are so many side by side. */
static void attn__fetch_stored(const attn__tile *t, const attn__array *a, int64_t key, int64_t n, int64_t size,
                               int64_t rows, attn__product *p)
{
    attn__key_run at;
    if (n <= 0 || attn__is_f32(a) || a->stride[3] != 1 || a->stride[2] != size || key + n > t->last) return;
    at = attn__key_run_of(t->c, t->b, key, n);
    if (at.n < n) return;
    p->fetch = (const float *)attn__place_of(a, at.b, t->head_kv, at.row, 0);
    p->fetch_row = n * size * attn__type_size(a->type) / (rows * (int64_t)sizeof(float));
}

/* Rows of q or d_out that the next block of queries begins with, from the tile's row j of them on. */
static void attn__fetch_below(const attn__tile *t, const attn__array *a, int64_t j, attn__product *p)
{
    if (!t->below || !attn__is_contiguous(a)) return;
    p->fetch = attn__ahead(attn__at(a, t->b, t->head, t->i[0] + t->below, 0), j, a->stride[2]);
    p->fetch_row = a->stride[2];
}

/* A parameter of the tile's head: where it lies, or as floats in t->m.copy. */
static attn__rows attn__parameter_of(const attn__tile *t, const attn__array *a, int64_t rows, int64_t columns)
{
    return attn__rows_of(t->f, attn__in(a, 0, t->head, 0, 0), NULL, rows, columns, t->m.copy);
}

/* One value along a part of a row. */
static void attn__fill_lane(const attn__tile *t, const attn__array *a, int64_t l, int64_t from, int64_t to,
                            float value)
{
    attn__fill_row(attn__in(a, t->b, t->h[l], t->i[l], from), to - from, value);
}

static void attn__skinny_scores(attn__tile *t, int64_t c0, int64_t j0, int64_t j1);

/* ---------------------------------------------------------------------------------------------------- >>products
   Matrix products: projections, and what gradients are made of. */
static void attn__set_a(attn__product *p, attn__rows rows)
{
    p->a = rows.at;
    p->a_row = rows.row;
    p->a_k = rows.column;
}

/* c = matrix * b, matrix [rows,depth] */
static void attn__apply(const attn__kernels *f, attn__rows matrix, const float *b, float *c, int64_t rows,
                        int64_t depth, int64_t ld)
{
    attn__product p;
    attn__set_a(&p, matrix);
    p.b = b;
    p.c = c;
    p.rows = rows;
    p.b_row = p.c_row = ld;
    p.vecs = (int32_t)ld / f->width;
    p.kind = ATTN__PRODUCT;
    p.fetch = NULL;
    p.onto = ATTN__FROM_ZERO;
    p.depth = depth;
    p.chain = ATTN__RUN;
    f->product(&p);
}

/* Of so many vectors, how many are the next tile: all that it may have, but no single one is left. */
static int32_t attn__tile_vectors(const attn__kernels *f, int64_t left)
{
    return (int32_t)(left == f->vecs + 1 ? (left + 1) / 2 : attn__min(left, f->vecs));
}

#ifndef ATTN_NO_BACKWARD
/* ---- products in the layout of gradients: C[r][c] += sum over k of A[r,k] B[k][c], or A[r,k] (B[k][c] - X[r][c]).
   mark: NULL, or strides as A's and -0 where the pair is excluded: then in plain C without these pairs, because B or X
   holds NaN or Inf. */
static void attn__multiply_careful(const attn__product *p, int64_t columns, const float *mark)
{
    int64_t r, k, c;
    for (r = 0; r < p->rows; r++)
        for (c = 0; c < columns; c++) {
            float sum = 0.0f;
            for (k = 0; k < p->depth; k++) {
                const int64_t at = r * p->a_row + k * p->a_k;
                const float b = p->b[k * p->b_row + c];
                if (!attn__is_excluded(mark[at]))
                    sum = attn__fma(p->a[at], p->x ? b - p->x[r * p->x_row + c] : b, sum);
            }
            p->c[r * p->c_row + c] = p->c[r * p->c_row + c] + sum;
        }
}

static void attn__multiply(const attn__kernels *f, attn__product *p, int64_t columns, const float *mark)
{
    int64_t step;
    if (p->depth <= 0 || p->rows <= 0) return;
    if (mark) { attn__multiply_careful(p, columns, mark); return; }
    p->kind = p->x ? ATTN__WEIGHTED_DIFFERENCE : ATTN__PRODUCT;
    p->onto = ATTN__ADD_FAR;
    p->chain = ATTN__HUGE;
    for (; columns > 0; columns -= step) {
        p->vecs = attn__tile_vectors(f, attn__blocks(columns, f->width));
        f->product(p);
        p->fetch = NULL;
        step = p->vecs * f->width;
        p->b += step;
        p->c += step;
        if (p->x) p->x += step;
    }
}

/* rows [n][depth] (any strides) times a parameter, [depth][columns]; in p->m.result, rows of `pad` */
static const float *attn__times(attn__pass *p, attn__rows a, int64_t n, int64_t depth, attn__array m, int64_t columns,
                                int64_t pad)
{
    attn__product g;
    attn__copy_rows(p->f, attn__in(&m, 0, p->head, 0, 0), depth, columns, pad, NULL, NULL, p->m.matrix);
    attn__fill(p->m.result, 1, n * pad, 0.0f);
    attn__set_a(&g, a);
    g.b = p->m.matrix;
    g.b_row = g.c_row = pad;
    g.c = p->m.result;
    g.rows = n;
    g.depth = depth;
    g.x = g.fetch = NULL;
    attn__multiply(p->f, &g, pad, NULL);
    return p->m.result;
}
#endif

/* packed floats [.][heads][rows][columns] */
static attn__array attn__packed(const float *data, int64_t heads, int64_t rows, int64_t columns)
{
    const int64_t head = attn__mul64(rows, columns);
    const attn__array a = {(void *)(uintptr_t)data, {attn__mul64(heads, head), head, columns, 1}, ATTN_F32, 4};
    return a;
}

/* out (+)= a b over all of a batch, or summed over it where `out_batch` says so */
static attn__matmul attn__matmul_of(const attn__kernels *f, attn__array a, attn__array b, attn__array out, int64_t rows,
                                    int64_t columns, int64_t depth)
{
    attn__matmul m;
    m.a = a;
    m.b = b;
    m.out = out;
    m.batch[0] = m.batch[1] = m.out_batch[0] = m.out_batch[1] = 1;
    m.rows = rows;
    m.columns = columns;
    m.depth = depth;
    m.b_shares = 1;
    m.scale = 1.0f;
    m.adds = m.skip = 0;
    m.cover = m.ragged = NULL;
    m.of_keys = 0;
    m.bias.rank = 0;
    attn__zero(&m.b_scale, sizeof m.b_scale);
    m.f = f;
    m.column_tiles = m.row_parts = m.copied = m.results = 0;
    m.tile_rows = ATTN__SUM_ROWS;
    m.in_place = m.sums_rows = m.dots = 0;
    m.pairs = NULL;
    m.fast = 0;
    m.memory = NULL;
    m.worker_bytes = 0;
    return m;
}

/* ------------------------------------------------------------------------------------------------------ >>scores
   Each score is one row of a table: what it is, how queries and keys are prepared and multiplied, its gradients. */

/* ---- products of queries and keys */
/* The lanes' rows of q, or of d_out, n numbers, as pairs of bf16; the scale is for the scores. */
static void attn__load_bf16_pairs(const attn__tile *t, const attn__array *a, int64_t n, float *to)
{
    const int64_t used = attn__blocks(n, 2), width = t->f->width;
    const attn__half *rows[ATTN__MAX_LANES];
    attn__half *pair = (attn__half *)(void *)to;
    int64_t l, x;
    for (l = 0; l < t->ld; l++) rows[l] = (const attn__half *)attn__place_of(a, t->b, t->h[l], t->i[l], 0);
    attn__fill(to + used * t->ld, 1, (attn__pairs_of(t->c, n) - used) * t->ld, 0.0f);
    if (attn__are_pairs(t, a, n)) {
        for (l = 0; l < t->ld; l += width) t->c->pairs->queries(to + l, t->ld, rows + l, n);
        return;
    }
    for (x = 0; x < n; x += 2)
        for (l = 0; l < t->ld; l++, pair += 2) {
            pair[0] = rows[l][x * a->stride[3]];
            pair[1] = (attn__half)(x + 1 < n ? rows[l][(x + 1) * a->stride[3]] : 0);
        }
}

/* Keys as lanes want the one query of a tile side by side. */
static int attn__is_row(const attn__tile *t) { return t->skinny && t->lanes == 1; }
static void attn__lane_to_row(attn__tile *t, int64_t n)
{
    int64_t x;
    for (x = 1; x < n; x++) t->m.query[x] = t->m.query[x * t->ld];
}

static void attn__load_query(attn__tile *t)
{
    const attn__array *q = &t->c->q;
    const int64_t n = t->c->size_q;
    if (t->c->fast & ATTN__FAST_SCORES) attn__load_bf16_pairs(t, q, n, t->m.query);
    else if (attn__is_row(t) && attn__is_contiguous(q))
        t->f->scale_store(attn__at(q, t->b, t->h[0], t->i[0], 0), t->m.query, n, t->scale[0], 0);
    else {
        attn__load_lanes(t, q, 0, n, t->scale, t->m.query);
        if (attn__is_row(t)) attn__lane_to_row(t, n);
    }
}

/* Where a tile's queries lie and its scores go: keys j0..j1 of a chunk, vectors x0..x1. */
static void attn__set_scores(attn__product *p, const attn__tile *t, int64_t j0, int64_t j1, int32_t x0, int32_t x1)
{
    const int64_t lane0 = x0 * t->f->width;
    p->b = t->m.query + lane0;
    p->c = t->m.s + j0 * t->ld + lane0;
    p->rows = j1 - j0;
    p->b_row = p->c_row = t->ld;
    p->vecs = x1 - x0;
    p->fetch = NULL;
    p->onto = t->lane_max && !t->c->bias.rank ? ATTN__TOP : ATTN__FROM_ZERO;
    p->top = t->lane_max ? t->lane_max + lane0 : NULL;
}

/* K's rows against the tile's queries; kind: ATTN__PRODUCT or ATTN__SQUARED_DISTANCE, in chains of `chain` */
static void attn__product_qk(attn__tile *t, int64_t c0, int64_t j0, int64_t j1, int32_t x0, int32_t x1, int32_t kind,
                             int64_t chain)
{
    const attn__call *c = t->c;
    attn__product p;
    int64_t n;
    for (; j0 < j1; j0 += n) {
        n = j1 - j0;
        attn__set_a(&p, attn__keys_of(t, &c->k, c0 + j0, &n, c->size_k));
        attn__set_scores(&p, t, j0, j0 + n, x0, x1);
        p.kind = kind;
        if (p.a_k == 1 && attn__has_outputs(c) && !c->page && attn__is_contiguous(&c->v)) {
            p.fetch = attn__at(&c->v, t->b, t->head_kv, c0 + j0, 0);
            p.fetch_row = c->v.stride[2];
        } else if (attn__has_outputs(c)) attn__fetch_stored(t, &c->v, c0 + j0, n, c->size_v, n, &p);
        else attn__fetch_below(t, &c->q, j0, &p);
        p.depth = c->size_k;
        p.chain = chain;
        t->f->product(&p);
    }
}

/* Rows of k, or of v, `size` numbers of each, as pairs: by AMX where they lie, if they are whole lines of the cache. */
static attn__rows attn__bf16_keys(const attn__tile *t, const attn__array *a, int64_t size, int64_t key, int64_t n)
{
    const int64_t pairs = attn__pairs_of(t->c, size), line = 2 * ATTN__AMX_SIDE;
    const attn__key_run p = attn__key_run_of(t->c, t->b, key, n);
    const uintptr_t at = (uintptr_t)attn__place_of(a, p.b, t->head_kv, p.row, 0);
    if (!attn__by_amx(t->c) || a->type == ATTN_I8 || a->stride[3] != 1 || size % line || a->stride[2] % line ||
        at % 64 || p.n < n)
        return attn__packed_rows(attn__expand(t, a, key, n, pairs, 1) + key % ATTN__CHUNK * pairs, pairs);
    return attn__packed_rows((const float *)at, a->stride[2] / 2);
}

static void attn__bf16_qk(attn__tile *t, int64_t c0, int64_t j0, int64_t j1, int32_t x0, int32_t x1)
{
    attn__product p;
    attn__set_scores(&p, t, j0, j1, x0, x1);
    attn__set_a(&p, attn__bf16_keys(t, &t->c->k, t->c->size_k, c0 + j0, j1 - j0));
    p.kind = ATTN__PRODUCT;
    p.padded = 0;
    p.depth = attn__pairs_of(t->c, t->c->size_k);
    p.chain = ATTN__RUN / 2;
    p.x = t->unscaled ? NULL : t->scale + x0 * t->f->width;
    p.columns = t->m.t;
    p.a_scale = t->c->k.type == ATTN_I8 ? t->m.expanded[0].scales + j0 : NULL;
    if (attn__by_amx(t->c))
        attn__fetch_stored(t, &t->c->k, c0 + ATTN__CHUNK + t->ahead, t->ahead_keys, t->c->size_k, p.rows, &p);
    t->c->pairs->product(&p);
}

static void attn__dot_qk(attn__tile *t, int64_t c0, int64_t j0, int64_t j1, int32_t x0, int32_t x1)
{
    if (t->skinny) attn__skinny_scores(t, c0, j0, j1);
    else if (t->c->fast & ATTN__FAST_SCORES) attn__bf16_qk(t, c0, j0, j1, x0, x1);
    else attn__product_qk(t, c0, j0, j1, x0, x1, ATTN__PRODUCT, ATTN__RUN);
}

/* 1 / |v| for the cosine, 0 for the zero vector (and below 2^-126); scaled by a power of two so that no square over- or
   underflows. */
static float attn__inverse_norm(const float *v, int64_t stride, int64_t n)
{
    float largest = 0.0f, scale, sum = 0.0f, part;
    uint32_t exponent;
    int64_t c, end;
    for (c = 0; c < n; c++) {
        const float a = attn__absolute(v[c * stride]);
        if (attn__is_nan(a) || attn__is_inf(a)) return ATTN__NAN;
        largest = attn__larger(a, largest);
    }
    exponent = attn__bits(largest) >> 23;
    if (exponent == 0) return 0.0f;                 /* zero, or so small that 1/|v| is no float */
    exponent = exponent > 252 ? 252 : exponent;
    scale = attn__float((254u - exponent) << 23);               /* largest * scale is in [1,2), or near it */
    for (c = 0; c < n; sum = sum + part)
        for (part = 0.0f, end = attn__min(n, c + ATTN__RUN); c < end; c++)
            part = attn__fma(v[c * stride] * scale, v[c * stride] * scale, part);
    return scale / attn__sqrt(sum);
}

/* 1/|row|, for the cosine */
static float attn__inverse_of(const attn__call *c, const attn__array *a, int64_t b, int64_t h, int64_t i,
                              int64_t size, float *copy)
{
    const attn__rows row = attn__rows_of(c->f, attn__in(a, b, h, i, 0), attn__scale_of(c, a), 1, size, copy);
    return attn__inverse_norm(row.at, row.column, size);
}

#ifndef ATTN_NO_BACKWARD
static void attn__grad_vectors(attn__pass *p, int64_t c0);
static void attn__store_scores_grad(const attn__pass *p, const attn__array *o, int64_t c0, int64_t n,
                                    float factor, int add);
/* ---- its gradients, where dS is multiplied by vectors. What multiplies dS in dK: the queries' rows, of those that
   `use` names. Returns whether one of them is not finite. */
static int attn__query_rows(attn__pass *p, const uint8_t *use)
{
    const attn__call *c = p->c;
    const int unit = (attn__score_of(c)->flags & ATTN__UNIT_VECTORS) != 0;
    float factor[ATTN_GRAD_QUERIES];
    int64_t i;
    for (i = 0; unit && i < p->n; i++)
        if (use[i]) factor[i] = attn__inverse_of(c, &c->q, p->b, p->head, p->i0 + i, c->size_q, p->m.tile.copy);
    p->q = attn__packed_rows(p->m.q_rows, c->w.vector_row);
    return attn__copy_rows(p->f, attn__in(&c->q, p->b, p->head, p->i0, 0), p->n, c->size_q, c->w.vector_row, use,
                           unit ? factor : NULL, p->m.q_rows);
}

/* and in dQ: the keys' rows */
static int attn__key_rows(attn__pass *p, int64_t c0)
{
    const attn__call *c = p->c;
    const float *factor = attn__score_of(c)->flags & ATTN__UNIT_VECTORS ? attn__tile_at(p, 0)->prepared + c0 : NULL;
    p->k.row = c->w.vector_row;
    return attn__block_rows(p->f, attn__in(&c->k, p->b, p->head_kv, c0, 0), p->nk, c->size_k, p->seen, factor,
                            p->m.k_rows, &p->k);
}

static float attn__dot_of(const attn__array *a, int64_t b, int64_t h, int64_t i, const float *y, int64_t n)
{
    float sum = 0.0f;
    int64_t x;
    for (x = 0; x < n; x++) sum = attn__fma(attn__read(a, b, h, i, x), y[x], sum);
    return sum;
}

/* The scale's gradient, of one query: y is the sum of dS k. */
static void attn__dot_finish_row(attn__pass *p, int64_t i, float *y)
{
    if (p->c->d_scale.rank)
        *attn__row_field(p, ATTN__R_SCALE, i) = attn__dot_of(&p->c->q, p->b, p->head, i, y, p->c->size_q);
}
#endif
#define ATTN__ROW_OF_DOTS { \
    ATTN__FOR_VECTORS, ATTN__DOTS | ATTN__SCALE_DQ | ATTN__SCALE_DK, NULL, NULL, attn__load_query, attn__dot_qk, \
    NULL \
    ATTN__GRADIENTS(NULL, attn__query_rows, attn__grad_vectors, NULL, attn__dot_finish_row, NULL, NULL) }
static const attn__score attn__score_SCALED_DOT = ATTN__ROW_OF_DOTS, attn__score_DOT = ATTN__ROW_OF_DOTS;
#undef ATTN__ROW_OF_DOTS

/* ---- cosine: 1/|k| is prepared, 1/|q| is part of the lane's scale */
static int64_t attn__cosine_key_floats(const attn__call *c) { (void)c; return 1; }
static void attn__cosine_prepare(attn__tile *t, int64_t count, float *to)
{
    const attn__call *c = t->c;
    int64_t l;
    for (l = 0; l < count; l++) {
        const attn__key_run p = attn__key_run_of(c, t->b, t->i[l], 1);
        to[l] = attn__inverse_of(c, &c->k, p.b, t->h[l], p.row, c->size_k, t->m.copy);
    }
}

static void attn__cosine_load(attn__tile *t)
{
    const attn__call *c = t->c;
    int64_t l;
    for (l = 0; l < t->ld; l++)
        t->scale[l] = c->scale * attn__inverse_of(c, &c->q, t->b, t->h[l], t->i[l], c->size_q, t->m.copy);
    attn__load_query(t);
}

static void attn__cosine_qk(attn__tile *t, int64_t c0, int64_t j0, int64_t j1, int32_t x0, int32_t x1)
{
    int64_t j, l;
    attn__dot_qk(t, c0, j0, j1, x0, x1);
    for (j = j0; j < j1; j++)
        for (l = x0 * t->f->width; l < x1 * t->f->width; l++)
            t->m.s[j * t->ld + l] = t->m.s[j * t->ld + l] * t->prepared[c0 + j];
}
#ifndef ATTN_NO_BACKWARD
/* y becomes inverse * (y - v (v . y)) for the unit vector v = x * inverse; returns v . y */
static float attn__normal_part(const attn__array *a, int64_t b, int64_t h, int64_t i, float inverse,
                               float *y, int64_t n)
{
    const float along = attn__dot_of(a, b, h, i, y, n) * inverse;
    int64_t x;
    for (x = 0; x < n; x++)
        y[x] = attn__fma(attn__negate(attn__read(a, b, h, i, x) * inverse), along, y[x]) * inverse;
    return along;
}

static void attn__cosine_finish_row(attn__pass *p, int64_t i, float *y)
{
    const attn__call *c = p->c;
    const float inverse = attn__inverse_of(c, &c->q, p->b, p->head, i, c->size_q, p->m.tile.copy);
    *attn__row_field(p, ATTN__R_SCALE, i) = attn__normal_part(&c->q, p->b, p->head, i, inverse, y, c->size_q);
}

static void attn__cosine_finish_key(attn__pass *p, int64_t j, float *dk)
{
    const attn__call *c = p->c;
    attn__normal_part(&c->k, p->b, p->head_kv, j,
                      p->shared.prepared[attn__keys_before(c, p->b, p->head_kv) + j], dk, c->size_k);
}
#endif
static const attn__score attn__score_COSINE = {
    ATTN__FOR_VECTORS, ATTN__DOTS | ATTN__SCALE_DQ | ATTN__SCALE_DK | ATTN__UNIT_VECTORS, attn__cosine_key_floats,
    attn__cosine_prepare, attn__cosine_load, attn__cosine_qk, NULL
    ATTN__GRADIENTS(NULL, attn__query_rows, attn__grad_vectors, NULL, attn__cosine_finish_row, attn__cosine_finish_key,
                    NULL)
};

/* ---- bilinear: M^T q times k */
static void attn__bilinear_load(attn__tile *t)
{
    const attn__call *c = t->c;
    const attn__array transposed = attn__transposed(c->bilinear);
    attn__load_lanes(t, &c->q, 0, c->size_q, t->scale, t->m.raw);
    attn__apply(t->f, attn__parameter_of(t, &transposed, c->size_k, c->size_q), t->m.raw, t->m.query, c->size_k,
                c->size_q, t->ld);
    if (attn__is_row(t)) attn__lane_to_row(t, c->size_k);
}
#ifndef ATTN_NO_BACKWARD
static int attn__bilinear_query_rows(attn__pass *p, const uint8_t *use)
{
    const int64_t row = p->c->w.vector_row;
    float *rows[ATTN__MAX_LANES];
    int64_t i, x;
    for (x = 0; x < p->tiles; x++) {
        attn__tile *t = attn__tile_at(p, x);
        for (i = 0; i < t->lanes; i++) {
            rows[i] = p->m.q_rows + (p->lane0[x] + i) * row;
            attn__fill(rows[i], 1, row, 0.0f);
        }
        p->f->unpack(rows, t->lanes, 1, t->m.query, t->ld, p->c->size_k, t->ones);
    }
    for (i = 0; i < p->n; i++)
        if (!use[i]) attn__fill(p->m.q_rows + i * row, 1, row, 0.0f);
    p->q = attn__packed_rows(p->m.q_rows, row);
    return !p->f->finite(p->m.q_rows, p->n * row);
}

/* u = sum of dS k, per query: M u is dq / scale, and rows of u make M's gradient */
static const float *attn__bilinear_finish_rows(attn__pass *p, int64_t *row)
{
    const attn__call *c = p->c;
    const int64_t pad = c->w.pad_u, size = c->size_k;
    int64_t i, x;
    for (i = 0; c->w.save_u && i < p->n; i++)
        for (x = 0; x < size; x++)
            p->shared.left_u[attn__row_index(p, p->i0 + i) * size + x] =
                p->dead[i] ? -0.0f : attn__plus_zero(p->m.dq[i * pad + x]);
    *row = attn__up(c->size_q, p->f->width);
    return attn__times(p, attn__packed_rows(p->m.dq, pad), p->n, size, attn__transposed(c->bilinear), c->size_q, *row);
}
#endif
static const attn__score attn__score_BILINEAR = {
    ATTN__FOR_VECTORS | ATTN__FOR_BILINEAR, ATTN__DOTS | ATTN__SCALE_DQ, NULL, NULL, attn__bilinear_load,
    attn__dot_qk, NULL
    ATTN__GRADIENTS(NULL, attn__bilinear_query_rows, attn__grad_vectors, attn__bilinear_finish_rows,
                    attn__dot_finish_row, NULL, NULL)
};

/* ---- additive: tanh(a + b) = 1 - 2/(1 + e^2a e^2b). Prepared, per key: e^2b, b (both padded to a multiple of 4), and
   1 where |b| is small enough for this form; per query likewise. Other pairs go by tanh itself. */
static int64_t attn__additive_key_floats(const attn__call *c)
{
    return attn__add64(attn__mul64(2, attn__round4(c->hidden)), 1);
}

/* projected = W x for the lanes' vectors x in `raw` ([size][ld]); a copy where W is absent. Padded rows 0. */
static void attn__project(const attn__tile *t, const attn__array *w, int64_t size, float *projected)
{
    const int64_t hidden = t->c->hidden, n = hidden * t->ld;
    if (!w->rank) attn__copy_floats(projected, t->m.raw, n);
    else attn__apply(t->f, attn__parameter_of(t, w, hidden, size), t->m.raw, projected, hidden, size, t->ld);
    attn__fill(projected + n, 1, attn__round4(hidden) * t->ld - n, 0.0f);
}

/* e = e^2x for rows [hidden][ld], 0 in the padded rows */
static void attn__exp_twice(const attn__tile *t, const float *x, float *e)
{
    const int64_t n = t->c->hidden * t->ld, eights = n & ~(int64_t)7;
    float some[8];                  /* so that compilers see vectors */
    int64_t u;
    int l;
    for (u = 0; u < eights; u += 8) {
        for (l = 0; l < 8; l++) some[l] = x[u + l] + x[u + l];
        ATTN__COPY(e + u, some, sizeof some);
    }
    for (; u < n; u++) e[u] = x[u] + x[u];
    t->f->elementary(ATTN_EXP, e, e, n);
    attn__fill(e + n, 1, attn__round4(t->c->hidden) * t->ld - n, 0.0f);
}

static int attn__clear(const float *x, int64_t stride, int64_t n)
{
    const float most = 20.0f;       /* |a|, |b| up to here: e^2a e^2b neither overflows nor underflows */
    int64_t u;
    for (u = 0; u < n; u++) if (!(x[u * stride] <= most && x[u * stride] >= -most)) return 0;
    return 1;
}

static void attn__additive_prepare(attn__tile *t, int64_t count, float *to)
{
    const attn__call *c = t->c;
    const int64_t padded = attn__round4(c->hidden);
    float *b = t->m.query + padded * t->ld, *keys[ATTN__MAX_LANES];
    int64_t l, u;
    attn__load_lanes(t, &c->k, 0, c->size_k, t->ones, t->m.raw);
    attn__project(t, &c->w_k, c->size_k, b);
    for (u = 0; c->hidden_bias.rank && u < c->hidden; u++)
        for (l = 0; l < t->ld; l++)
            b[u * t->ld + l] = b[u * t->ld + l] + attn__read(&c->hidden_bias, 0, t->head, 0, u);
    attn__exp_twice(t, b, t->m.query);
    for (l = 0; l < count; l++) keys[l] = to + l * c->key_floats;
    t->f->unpack(keys, count, 1, t->m.query, t->ld, 2 * padded, t->ones);
    for (l = 0; l < count; l++)
        keys[l][2 * padded] = attn__clear(keys[l] + padded, 1, c->hidden) ? 1.0f : 0.0f;
}

static void attn__additive_load(attn__tile *t)
{
    const attn__call *c = t->c;
    const int64_t padded = attn__round4(c->hidden);
    float *a = t->m.query + padded * t->ld;                   /* e^2a first, then a itself */
    int64_t l, u;
    attn__load_lanes(t, &c->q, 0, c->size_q, t->ones, t->m.raw);
    attn__project(t, &c->w_q, c->size_q, a);
    attn__exp_twice(t, a, t->m.query);
    for (l = 0; l < t->ld; l++) t->lane_clear[l] = attn__clear(a + l, t->ld, c->hidden);
    for (t->w_sum = 0.0f, u = 0; u < c->hidden; u++) {      /* w_v, padded; its sum, one chain */
        t->m.w[u] = attn__read(&c->w_v, 0, t->head, 0, u);
        t->w_sum = t->w_sum + t->m.w[u];
    }
    for (; u < padded; u++) t->m.w[u] = 0.0f;
}

static void attn__additive_qk(attn__tile *t, int64_t c0, int64_t j0, int64_t j1, int32_t x0, int32_t x1)
{
    const attn__call *c = t->c;
    const int64_t padded = attn__round4(c->hidden), lane0 = x0 * t->f->width, lane1 = x1 * t->f->width;
    const float *keys = t->prepared + (c0 + j0) * c->key_floats;
    attn__additive p = {t->m.query + lane0, keys, c->key_floats, t->m.w, t->m.s + j0 * t->ld + lane0, j1 - j0, padded,
                        t->w_sum, c->scale, (int32_t)t->ld, x1 - x0};
    int64_t j, l, lanes_clear = 1;
    t->f->additive(&p);
    for (l = lane0; l < lane1; l++) lanes_clear &= t->lane_clear[l];
    for (j = 0; j < j1 - j0; j++) {                 /* the pairs that are not clear, again */
        const int key_clear = keys[j * c->key_floats + 2 * padded] != 0.0f;
        if (lanes_clear && key_clear) continue;
        p.query = t->m.query + padded * t->ld + lane0;
        p.key = keys + j * c->key_floats + padded;
        p.s = t->m.t + lane0;
        p.rows = 1;
        t->f->additive_direct(&p);
        for (l = lane0; l < lane1; l++)
            if (!key_clear || !t->lane_clear[l]) t->m.s[(j0 + j) * t->ld + l] = t->m.t[l];
    }
}
#ifndef ATTN_NO_BACKWARD
/* da, db and the sums of dS tanh, four hidden units at a time */
static void attn__additive_vectors(attn__pass *p, int64_t c0)
{
    const attn__call *c = p->c;
    const int64_t padded = c->w.pad_u;
    attn__additive_gradient g;
    int64_t u, x, j, i, clear = 1;
    for (j = 0; c->w.save_b && j < p->nk; j++) {
        float *met = p->m.attended + (c0 - p->key0 + j);
        for (i = 0; *met == 0.0f && i < p->n; i++)
            if (!attn__is_excluded(p->m.p[j * ATTN__GRAD_ROW + i])) *met = 1.0f;
    }
    g.key = attn__tile_at(p, 0)->prepared + c0 * c->key_floats;
    g.key_stride = c->key_floats;
    g.keys = p->nk;
    g.padded = padded;
    g.row = ATTN__GRAD_ROW;
    g.part = p->m.part;
    for (j = 0; j < p->nk; j++) clear &= p->seen[j] && g.key[j * c->key_floats + 2 * padded] != 0.0f;
    for (u = 0; u < padded; u += 4) {
        attn__fill(p->m.part, 1, p->nk * 4 * ATTN__PARTS, 0.0f);
        for (x = 0; x < p->tiles; x++) {
            const attn__tile *t = attn__tile_at(p, x);
            int64_t l, lanes_clear = clear;
            if (t->first >= t->last) continue;
            for (l = 0; l < t->ld; l++) lanes_clear &= t->lane_clear[l];
            g.u = u;
            g.query = t->m.query;
            g.ld = t->ld;
            g.lane_clear = t->lane_clear;
            g.lane0 = p->lane0[x];
            g.ds = p->m.ds + g.lane0;
            g.mark = lanes_clear ? NULL : p->m.p + g.lane0;
            g.da = p->m.dq + u * ATTN__GRAD_ROW + g.lane0;
            g.dt = p->m.dt + u * ATTN__GRAD_ROW + g.lane0;
            if (lanes_clear) p->f->additive_gradient(&g);
            else attn__additive_gradient_scalar(&g);
        }
        p->f->fold(p->m.part, p->nk, p->m.db + (c0 - p->key0) * padded + u, padded);
    }
}

/* dq from da, [hidden][ATTN__GRAD_ROW]; da, dt and the scale's gradient stay there. Where no row of the block has
   a key, w was not loaded: da and dt are 0, and may be wanted of a row whose sink is no number. */
static const float *attn__additive_finish_rows(attn__pass *p, int64_t *row)
{
    const attn__call *c = p->c;
    const int64_t size = c->hidden;
    const float *w = attn__tile_at(p, 0)->m.w;
    const int has_keys = p->first < p->last;
    int64_t i, u;
    for (u = 0; has_keys && u < size; u++)
        for (i = u * ATTN__GRAD_ROW; i < u * ATTN__GRAD_ROW + p->n; i++)
            p->m.dq[i] = p->m.dq[i] * (-4.0f * c->scale * w[u]);
    for (i = 0; i < p->n; i++) {
        const int64_t at = attn__row_index(p, p->i0 + i) * size;
        float *sum = attn__row_field(p, ATTN__R_SCALE, p->i0 + i);
        for (u = 0; u < size; u++) {
            const float da = p->m.dq[u * ATTN__GRAD_ROW + i], dt = p->m.dt[u * ATTN__GRAD_ROW + i];
            if (c->w.save_u) p->shared.left_u[at + u] = p->dead[i] ? -0.0f : attn__plus_zero(da);
            if (c->w.save_t) p->shared.left_t[at + u] = dt;
            if (has_keys && !p->dead[i]) *sum = attn__fma(w[u], dt, *sum);
        }
    }
    *row = c->w_q.rank ? attn__up(c->size_q, p->f->width) : c->w.pad_u;
    if (!c->dq.rank) return p->m.result;
    if (c->w_q.rank)
        return attn__times(p, attn__columns_at(p->m.dq, ATTN__GRAD_ROW), p->n, size, c->w_q, c->size_q, *row);
    for (i = 0; i < p->n; i++)
        for (u = 0; u < size; u++) p->m.result[i * *row + u] = p->m.dq[u * ATTN__GRAD_ROW + i];
    return p->m.result;
}

static int attn__all_zero(const float *x, int64_t n)
{
    int64_t i;
    for (i = 0; i < n; i++) if (attn__bits(x[i]) << 1 != 0) return 0;
    return 1;
}

/* Where a stream ends: db of its keys stays in the workspace and becomes a part of dk. */
static void attn__additive_finish_stream(attn__pass *p)
{
    const attn__call *c = p->c;
    const int64_t padded = c->w.pad_u, hidden = c->hidden, pad = c->w.pad_k, n = p->key1 - p->key0;
    const int64_t key0 = attn__keys_before(c, p->b, c->streams == c->heads ? p->head : p->head_kv) + p->key0;
    const float *y;
    int64_t j, j0, u, count;
    for (j = 0; j < n; j++)
        for (u = 0; u < hidden; u++) {
            float *db = p->m.db + j * padded + u;
            *db = *db * (-4.0f * c->scale * attn__read(&c->w_v, 0, p->head, 0, u));
            if (c->w.save_b)                        /* -0: no query attends to it */
                p->shared.left_b[(key0 + j) * hidden + u] =
                    p->m.attended[j] == 0.0f ? -0.0f : attn__plus_zero(*db);
        }
    if (c->w.save_b) attn__fill(p->m.attended, 1, n, 0.0f);
    for (j0 = 0; c->dk.rank && j0 < n; j0 += count) {
        const float *db = p->m.db + j0 * padded;
        count = attn__min(n - j0, ATTN_GRAD_QUERIES);
        y = c->w_k.rank ? attn__times(p, attn__packed_rows(db, padded), count, hidden, c->w_k, c->size_k, pad) : db;
        for (j = 0; j < count; j++, y += c->w_k.rank ? pad : padded) {
            float *dk = p->m.dk + (j0 + j) * pad;
            if (attn__all_zero(db + j * padded, hidden)) continue;
            for (u = 0; u < c->size_k; u++) dk[u] = dk[u] + y[u];
        }
    }
    attn__fill(p->m.db, 1, n * padded, 0.0f);
}
#endif
static const attn__score attn__score_ADDITIVE = {
    ATTN__FOR_VECTORS | ATTN__FOR_ADDITIVE, 0, attn__additive_key_floats, attn__additive_prepare, attn__additive_load,
    attn__additive_qk, NULL
    ATTN__GRADIENTS(NULL, NULL, attn__additive_vectors, attn__additive_finish_rows, NULL, NULL,
                    attn__additive_finish_stream)
};

/* ---- distance kernels: sums of squares, then the logarithm of the weight */
static float attn__sigma_of(const attn__call *c, int64_t h)
{
    return c->sigma_per_head.rank ? attn__of_head(&c->sigma_per_head, h) : c->sigma;
}

static void attn__distance_load(attn__tile *t)
{
    int64_t l;
    for (l = 0; l < t->ld; l++) {
        const float sigma = attn__sigma_of(t->c, t->h[l]), width = sigma * sigma;
        t->width[l] = t->c->score == ATTN_SCORE_GAUSSIAN ? -0.5f / width : width;
    }
    attn__load_query(t);
}

static void attn__distance_qk(attn__tile *t, int64_t c0, int64_t j0, int64_t j1, int32_t x0, int32_t x1)
{
    attn__product_qk(t, c0, j0, j1, x0, x1, ATTN__SQUARED_DISTANCE, ATTN__SQUARES);
}

static void attn__distance_finish(attn__tile *t, int64_t n) { t->f->distance(t->m.s, t->ld, n, t->c->score, t->width); }
#ifndef ATTN_NO_BACKWARD
/* dS becomes the factor of k - q: times -score' / |k - q|; */
static float attn__distance_slope(int32_t score, float ds, float square, float width)
{
    const float u2 = square / width;
    float u;
    if (score == ATTN_SCORE_GAUSSIAN) return ds / width;
    if (score == ATTN_SCORE_EPANECHNIKOV) return (ds + ds) / (width * (1.0f - u2));
    u = attn__sqrt(u2);
    return u == 0.0f ? 0.0f : ds / (width * (u * (1.0f - u)));
}

/* and sigma's gradient on the way. */
static void attn__distance_elements(attn__pass *p, int64_t c0, int64_t n)
{
    const attn__call *c = p->c;
    const float sigma = attn__sigma_of(c, p->head), width = sigma * sigma, inverse = 1.0f / sigma;
    int64_t i, j;
    (void)c0;
    for (j = 0; j < n; j++)
        for (i = 0; i < p->n; i++) {
            const int64_t at = j * ATTN__GRAD_ROW + i;
            float *sum = attn__row_field(p, ATTN__R_SIGMA, p->i0 + i);
            if (attn__is_excluded(p->m.p[at])) continue;
            p->m.ds[at] = attn__distance_slope(c->score, p->m.ds[at], p->m.square[at], width);
            if (p->does & ATTN__DO_Q) *sum = attn__fma(p->m.ds[at], p->m.square[at] * inverse, *sum);
        }
}
#endif
#define ATTN__ROW_OF_DISTANCE(finish) { \
    ATTN__FOR_VECTORS | ATTN__FOR_DISTANCE, ATTN__LOG_WEIGHT | ATTN__KEEPS_SQUARES, NULL, NULL, attn__distance_load, \
    attn__distance_qk, finish \
    ATTN__GRADIENTS(attn__distance_elements, attn__query_rows, attn__grad_vectors, NULL, NULL, NULL, NULL) }
static const attn__score attn__score_GAUSSIAN = ATTN__ROW_OF_DISTANCE(attn__distance_finish),
    attn__score_EPANECHNIKOV = ATTN__ROW_OF_DISTANCE(attn__distance_finish),
    attn__score_TRIANGULAR = ATTN__ROW_OF_DISTANCE(attn__distance_finish);
#undef ATTN__ROW_OF_DISTANCE
static const attn__score attn__score_BOXCAR = {     /* a weight of 0 or 1: nothing to differentiate */
    ATTN__FOR_VECTORS | ATTN__FOR_DISTANCE, ATTN__LOG_WEIGHT, NULL, NULL, attn__distance_load, attn__distance_qk,
    attn__distance_finish
    ATTN__GRADIENTS(NULL, NULL, NULL, NULL, NULL, NULL, NULL)
};

/* ---- without queries and keys */
static void attn__constant_qk(attn__tile *t, int64_t c0, int64_t j0, int64_t j1, int32_t x0, int32_t x1)
{
    (void)c0, (void)x0, (void)x1;
    attn__fill(t->m.s + j0 * t->ld, 1, (j1 - j0) * t->ld, 0.0f);
}

static const attn__score attn__score_CONSTANT = {
    ATTN__FOR_VECTORS, ATTN__LOG_WEIGHT, NULL, NULL, NULL, attn__constant_qk, NULL
    ATTN__GRADIENTS(NULL, NULL, NULL, NULL, NULL, NULL, NULL)
};

static void attn__given_qk(attn__tile *t, int64_t c0, int64_t j0, int64_t j1, int32_t x0, int32_t x1)
{
    const float scale = t->c->scale, least = t->c->softcap != 0.0f ? -3.40282347e38f : ATTN__NEG_INF;
    const int careful = t->c->softcap != 0.0f || !(scale > 0.0f);
    float *s = t->m.s + j0 * t->ld;
    int64_t i;
    (void)x0, (void)x1;
    attn__load_lanes(t, &t->c->given_scores, c0 + j0, j1 - j0, careful ? t->ones : t->scale, s);
    for (i = 0; careful && i < (j1 - j0) * t->ld; i++) {        /* -inf stays, and only that is -inf to a softcap */
        const float x = s[i] * scale;
        if (!attn__is_none(s[i])) s[i] = attn__is_none(x) ? least : x;
    }
}
#ifndef ATTN_NO_BACKWARD
static void attn__given_elements(attn__pass *p, int64_t c0, int64_t n)
{
    const attn__call *c = p->c;
    int64_t i, j;
    if (!(p->does & ATTN__DO_Q)) return;
    if (c->d_given_scores.rank)
        attn__store_scores_grad(p, &c->d_given_scores, c0, n, c->scale, attn__adds(c, ATTN_GRAD_GIVEN_SCORES));
    for (i = 0; c->d_scale.rank && i < p->n; i++) {
        float *sum = attn__row_field(p, ATTN__R_SCALE, p->i0 + i);
        for (j = 0; j < n; j++)
            if (!attn__is_excluded(p->m.p[j * ATTN__GRAD_ROW + i]))
                *sum = attn__fma(p->m.ds[j * ATTN__GRAD_ROW + i],
                                 attn__read(&c->given_scores, p->b, p->head, p->i0 + i, c0 + j), *sum);
    }
}
#endif
static const attn__score attn__score_GIVEN = {
    ATTN__FOR_GIVEN, ATTN__EXCLUDES, NULL, NULL, NULL, attn__given_qk, NULL
    ATTN__GRADIENTS(attn__given_elements, NULL, NULL, NULL, NULL, NULL, NULL)
};

static const attn__score *const attn__scores[] = {
#define ATTN__X(name, text, bound) &attn__score_##name,
    ATTN_SCORE_LIST(ATTN__X)
#undef ATTN__X
};

static const attn__score *attn__score_of(const attn__call *c) { return attn__scores[c->score]; }
static uint32_t attn__views_of_score(int32_t score) { return attn__scores[score]->takes; }
static int attn__is_kernel(int32_t score) { return (attn__scores[score]->flags & ATTN__LOG_WEIGHT) != 0; }

/* ------------------------------------------------------------------------------------------------------ >>skinny
   A tile of few rows (one query; a group of heads) would leave most lanes idle. Then lanes are keys, on the way
   transposed in registers, and after that columns of V, read where they lie. The same chains, so the same bits. Outputs
   are rows, [lanes][attn__skinny_row], until the tile's end; scores of a chunk are transposed into the tile's layout,
   where everything else happens, if there is anything else. */
/* Floats of a row of outputs: the last vector of columns has a place of its own, see attn__skinny_columns. */
static int64_t attn__skinny_row(const attn__tile *t)
{
    const int64_t width = t->f->width;
    return t->c->size_v / width * width + width;
}

static int64_t attn__output_floats(const attn__tile *t)
{
    return t->skinny ? t->lanes * attn__skinny_row(t) : t->c->size_v * t->ld;
}

/* [lanes][row] at `from` -> t's layout */
static void attn__skinny_transpose(const attn__tile *t, const float *from, int64_t row, int64_t n, float *to)
{
    const float *rows[ATTN__MAX_LANES];
    int64_t l;
    for (l = 0; l < t->ld; l++) rows[l] = from + attn__min(l, t->lanes - 1) * row;
    t->f->pack(to, t->ld, rows, 1, n, t->ones);
}

/* ---- where rows of k or v lie */
/* Pointers to those of the keys key .. end, `together` to a pointer, n at most; returns how many there are. */
static int64_t attn__list_stretch(const attn__tile *t, const attn__array *a, int64_t key, int64_t end,
                                  int64_t together, int64_t n, const char **list)
{
    const attn__array *table = &t->c->page_table;
    const int64_t page = t->c->page ? t->c->page : ATTN__HUGE, paged_key = t->c->page ? t->c->key0 + key : key;
    const int64_t size = attn__type_size(a->type), b = t->b, count = attn__min(attn__blocks(end - key, together), n);
    const uintptr_t first = (uintptr_t)attn__place_of(a, t->c->page ? 0 : b, t->head_kv, 0, 0);
    const uintptr_t step = (uintptr_t)(a->stride[2] * size), page_step = (uintptr_t)(a->stride[0] * size);
    const uintptr_t to_next = t->c->page ? (uintptr_t)(table->stride[2] * attn__type_size(table->type)) : 0;
    const int64_t entry = t->c->page ? paged_key / page : 0;
    int64_t row = paged_key - (t->c->page ? entry * page : 0), i;
    uintptr_t at = first + (uintptr_t)row * step, number = 0;
    if (t->c->page) {
        number = (uintptr_t)attn__place_of(table, b, 0, entry, 0);
        at += (uintptr_t)attn__int_of((const void *)number, table->type) * page_step;
    }
    for (i = 0; i < count; i++, row += together, at += (uintptr_t)together * step) {
        if (row >= page) {
            row = 0;
            number += to_next;
            at = first + (uintptr_t)attn__int_of((const void *)number, table->type) * page_step;
        }
        list[i] = (const char *)at;
    }
    return count;
}

/* n pointers to rows in the order of visiting them, from `skip` rows after `key` of k or v on, where the keys up to
   `until` are in use: the rest of the chunk, its v after its k, k of the next chunk; the last one again where nothing
   is left. */
static void attn__list_rows(const attn__tile *t, const attn__array *a, int64_t key, int64_t until, int64_t skip,
                            int64_t together, int64_t n, const char **list)
{
    const attn__call *c = t->c;
    int64_t c0 = key / ATTN__CHUNK * ATTN__CHUNK, count = 0;
    int64_t end = attn__max(attn__min(c0 + ATTN__CHUNK, t->last), until);
    for (;;) {
        if (skip < end - key)
            count += attn__list_stretch(t, a, key + skip, end, together, n - count, list + count);
        skip = attn__max(skip - (end - key), 0);
        if (count == n || (end >= t->last && (a == &c->v || !attn__has_outputs(c)))) break;
        if (a == &c->k && attn__has_outputs(c)) {
            a = &c->v;
            key = attn__max(c0, t->first);
        } else {
            a = &c->k;
            key = c0 = end;
            end = attn__min(c0 + ATTN__CHUNK, t->last);
        }
    }
    if (!count) count = attn__list_stretch(t, a, end - 1, end, 1, 1, list);
    for (; count < n; count++) list[count] = list[count - 1];
}

static void attn__list_head(const attn__tile *t, const attn__array *a, int64_t key, int64_t n, int64_t together,
                            attn__product *p)
{
    attn__lists *s = t->m.lists;
    const int64_t ahead2 = p->ahead2;
    const int apart = together == 1 && ahead2 > p->ahead1;          /* the second cache's in a list of its own */
    p->next = NULL;
    if (apart) p->ahead2 = s->count + p->ahead1;
    s->ahead = apart ? p->ahead1 : ahead2;
    attn__list_rows(t, a, key, key + n, 0, together, s->count + s->ahead, s->rows);
    if (apart) attn__list_rows(t, a, key, key + n, ahead2, 1, s->count, s->rows + p->ahead2);
}

/* ---- several heads of a task take turns: some keys of each, then the next keys of each. One list serves all of them,
   since the rows of a head lie as far after those of the head before as any others. */
static void attn__add_to_rows(const char **to, const char *const *rows, int64_t n, uintptr_t step)
{
    int64_t i;
    for (i = 0; i < n; i++) to[i] = (const char *)((uintptr_t)rows[i] + step);
}

/* From a row of a head to the same one of a later head. */
static uintptr_t attn__head_step(const attn__array *a, int64_t heads)
{
    return (uintptr_t)heads * (uintptr_t)a->stride[1] * (uintptr_t)attn__type_size(a->type);
}

/* The first head's. Prefetched meanwhile is what comes next: the next head's rows, and in the last head's turn what
   comes after it; of single rows what comes after all turns, in the order of memory, an equal share in each turn. */
static void attn__list_heads(const attn__tile *t, int64_t heads, const attn__array *a, int64_t key, int64_t n,
                             int64_t together, attn__product *p)
{
    attn__lists *s = t->m.lists;
    const int64_t end = attn__min((key / ATTN__CHUNK + 1) * ATTN__CHUNK, t->last);
    const attn__array *after = key + n < end ? a : a == &t->c->k ? &t->c->v : end < t->last ? &t->c->k : a;
    const uintptr_t step = attn__head_step(after, 1);
    const int across = after->stride[1] <= after->stride[t->c->page == 1 ? 0 : 2];  /* a key's rows lie side by side */
    int64_t i, x;
    attn__list_rows(t, a, key, key + n, 0, together, s->count, s->rows);
    attn__list_rows(t, a, key, key + n, n, together, s->count, s->after);
    s->head = t->head_kv;
    p->ahead1 = attn__min(p->ahead1, s->count);
    p->ahead2 = s->ahead = attn__min(p->ahead2, s->count);
    attn__add_to_rows(s->rows + s->count, s->rows, s->ahead, attn__head_step(a, 1));
    p->next = together == 1 ? s->next : NULL;
    for (i = 0; p->next && i < s->count; i++)
        for (x = 0; x < heads; x++)
            s->next[across ? i * heads + x : x * s->count + i] =
                (const char *)((uintptr_t)s->after[i] + (uintptr_t)x * step);
}

/* From a head to t's. */
static void attn__list_next_head(const attn__tile *t, const attn__array *a, int last, attn__product *p)
{
    attn__lists *s = t->m.lists;
    attn__add_to_rows(s->rows, s->rows, s->count + s->ahead, attn__head_step(a, t->head_kv - s->head));
    if (last) attn__add_to_rows(s->rows + s->count, s->after, s->ahead, 0);
    s->head = t->head_kv;
    if (p->next) p->next += s->count;
}

/* The scales of n rows of codes, side by side as floats, and what may be read after them. */
static void attn__skinny_scales(const attn__tile *t, const attn__array *scale, int64_t key, int64_t n, int64_t size,
                                attn__product *p)
{
    const int64_t each = scale->stride[3] ? attn__blocks(size, ATTN__CODES_PER_SCALE) : 1;
    attn__key_run at = attn__key_run_of(t->c, t->b, key, n);
    float *to = t->m.scales;
    int64_t i;
    p->b_scales = each;
    p->b_scale = to;
    if (at.n == n) p->b_scale = attn__scales_of(t->f, attn__in(scale, at.b, t->head_kv, at.row, 0), n, each, to);
    else for (i = 0; i < n; i += at.n) {
        at = attn__key_run_of(t->c, t->b, key + i, n - i);
        attn__pack_scales(t->f, attn__in(scale, at.b, t->head_kv, at.row, 0), at.n, each, to + i * each);
    }
}

/* ---- n rows of k or v as what is multiplied */
/* In which way, the same for all heads of a task, and of how many of the n keys: in groups, where they lie so, within
   pages, too; else up to ATTN__SIDE single rows, which are copied if they are of k, or for kernels that take f32 alone.
   Of k whole sides of rows are read, of v any number. */
static int64_t attn__skinny_rows(const attn__tile *t, const attn__array *a, int64_t key, int64_t n, int64_t size,
                                 attn__product *p)
{
    attn__lists *s = t->m.lists;
    const int converted = !t->f->types && a->type != ATTN_F32, is_k = a == &t->c->k;
    const int64_t run = converted ? n : attn__key_run_of(t->c, t->b, key, n).n;
    const int in_groups = run == n || (t->c->page | (t->c->key0 + key)) % ATTN__GROUP == 0;
    const int64_t least = is_k ? ATTN__SIDE : run == n ? 1 : ATTN__GROUP;
    const int64_t whole = attn__takes_single_rows(t->c, a, size) ? 0 : (in_groups ? n : run) / least * least;
    const int copied = !whole && (is_k || !t->f->types);
    n = whole ? whole : attn__min(n, ATTN__SIDE);
    p->b_type = converted ? ATTN_F32 : a->type;
    p->b_first = 0;
    p->b_scales = 1;
    p->b_group = whole || copied ? ATTN__GROUP : 1;
    p->b_row = converted || copied ? size : a->stride[2];
    p->groups = copied ? s->copies : s->rows;
    s->count = whole ? attn__blocks(n, ATTN__GROUP) : copied ? (int64_t)ATTN__SIDE : n;
    return n;
}

/* Single rows, copied side by side; the rest of ATTN__SIDE is 0. k is read 16 rows at a time, some bytes of each: of
   rows at the same place of their pages a first cache cannot hold so many. `floats`: where they are, if converted. */
static void attn__skinny_copy(const attn__tile *t, int64_t n, int64_t bytes, const float *floats,
                              const attn__product *p)
{
    attn__lists *s = t->m.lists;
    char *rows = (char *)t->m.rows, *to = rows;
    int64_t i, x;
    for (i = 0; !floats && i < n; i++, to += bytes) {
        const uintptr_t next1 = (uintptr_t)s->rows[s->ahead + i], next2 = (uintptr_t)s->rows[p->ahead2 + i];
        for (x = 0; !p->next && x < bytes; x += 64) {       /* else these came into the second cache before */
            ATTN__PREFETCH((const void *)(next1 + (uintptr_t)x));
            ATTN__PREFETCH_FAR((const void *)(next2 + (uintptr_t)x));
        }
        ATTN__COPY(to, s->rows[i], (size_t)bytes);
    }
    if (floats) attn__copy_floats(t->m.rows, floats, n * bytes / (int64_t)sizeof *floats);
    attn__zero(rows + n * bytes, (size_t)((ATTN__SIDE - n) * bytes));
    for (i = 0; i < ATTN__SIDE; i += ATTN__GROUP) s->copies[i / ATTN__GROUP] = rows + i * bytes;
}

/* And for t, the x-th of the heads, whose turn it is: lists, copies and scales. */
static void attn__skinny_head(const attn__tile *t, int64_t x, int64_t heads, const attn__array *a, int64_t key,
                              int64_t n, int64_t size, attn__product *p)
{
    attn__lists *s = t->m.lists;
    const attn__array *scale = attn__scale_of(t->c, a);
    const int copied = p->groups == s->copies, converted = a->type != p->b_type;
    const int64_t bytes = size * attn__type_size(p->b_type), together = copied ? 1 : p->b_group;
    const float *floats = converted ? attn__expanded_rows(t, a, key, n, size).at : NULL;
    int64_t i;
    if (x) attn__list_next_head(t, a, x == heads - 1, p);
    else {
        attn__set_ahead(t->c, a, t->lanes, together, bytes, p);
        if (heads > 1) attn__list_heads(t, heads, a, key, n, together, p);
        else attn__list_head(t, a, key, n, together, p);
    }
    if (copied) {
        attn__skinny_copy(t, n, bytes, floats, p);
        p->ahead1 = p->ahead2 = 0;
    }
    for (i = 0; floats && !copied && i < s->count; i++) s->rows[i] = (const char *)(floats + i * ATTN__GROUP * size);
    if (scale && !converted) attn__skinny_scales(t, scale, key, n, size, p);
}

static void attn__skinny_scores_of_heads(attn__tile *const *tiles, int64_t heads, int64_t c0, int64_t j0, int64_t j1)
{
    const attn__tile *t = tiles[0];
    const int64_t size = t->c->size_k;
    attn__product p;
    int64_t j, n, x;
    p.a_k = attn__is_row(t) ? 1 : t->ld;
    p.c_row = ATTN__SKINNY_ROW;
    p.rows = t->lanes;
    p.depth = size;
    p.columns = t->m.t;
    for (j = j0; j < j1; j += n) {
        n = attn__skinny_rows(t, &t->c->k, c0 + j, heads > 1 ? attn__min(j1 - j, ATTN__CHAIN) : j1 - j, size, &p);
        for (x = 0; x < heads; x++) {
            attn__skinny_head(tiles[x], x, heads, &t->c->k, c0 + j, n, size, &p);
            p.a = tiles[x]->m.query;
            p.c = tiles[x]->m.skinny_s + j;
            t->f->dots(&p, n);
        }
    }
}

/* ---- Heads of one row each whose rows of a key lie one after the other, as in [B,S,H,D] or pages of one key: lanes
   are then the rows of some keys, of all heads, so that memory is read in its order, and each has its own head's query:
   in t->m.raw, which nobody needs once the queries are loaded. */
static int attn__has_one_row_a_head(const attn__tile *t) { return t->lanes == 1 && t->c->streams == t->c->heads_kv; }
static int attn__heads_are_lanes(const attn__tile *t, int64_t heads)
{
    const attn__array *k = &t->c->k;
    return t->f->types && attn__has_one_row_a_head(t) && k->type != ATTN_I8 && k->stride[1] == t->c->size_k &&
           heads % 4 == 0 && t->f->width % heads == 0;
}

static void attn__heads_to_lanes(attn__tile *const *tiles, int64_t heads)
{
    const attn__tile *t = tiles[0];
    float *to = t->m.raw;
    int64_t k, l;
    for (k = 0; k < t->c->size_k; k++)
        for (l = 0; l < t->ld; l++) *to++ = tiles[l % heads]->m.query[k];
}

static void attn__scores_of_lanes(attn__tile *const *tiles, int64_t heads, int64_t c0, int64_t n)
{
    const attn__tile *t = tiles[0];
    const attn__array *keys = &t->c->k;
    attn__lists *s = t->m.lists;
    const int64_t together = ATTN__GROUP / heads, side = ATTN__SIDE / heads;
    attn__product p;
    int64_t j, some, i, x;
    p.a = t->m.raw;
    p.a_k = t->ld;
    p.c = t->m.s;
    p.columns = t->m.t;
    p.rows = 1;
    p.depth = p.b_row = t->c->size_k;
    p.groups = s->rows;
    p.next = NULL;
    p.b_group = heads;
    p.b_type = keys->type;
    p.b_first = 0;
    p.b_scales = 1;
    attn__set_ahead(t->c, &t->c->k, 1, ATTN__GROUP, p.depth * attn__type_size(p.b_type), &p);
    p.ahead1 *= together;
    p.ahead2 *= together;
    for (j = 0; j < n; j += some) {
        some = attn__min(n - j, ATTN__SIDE);
        s->count = attn__blocks(some, side) * side;
        i = attn__list_stretch(t, keys, c0 + j, c0 + j + some, 1, some, s->rows);
        for (; i < s->count; i++) s->rows[i] = s->rows[i - 1];
        attn__list_rows(t, keys, c0 + j, c0 + j + some, some, 1, p.ahead2, s->rows + s->count);
        t->f->dots(&p, some * heads);
        for (x = 0; x < heads; x++)
            for (i = 0; i < some; i++) tiles[x]->m.skinny_s[j + i] = p.c[i * heads + x];
    }
}

static void attn__skinny_scores(attn__tile *t, int64_t c0, int64_t j0, int64_t j1)
{
    attn__skinny_scores_of_heads(&t, 1, c0, j0, j1);
    if (!t->as_rows) attn__skinny_transpose(t, t->m.skinny_s + j0, ATTN__SKINNY_ROW, j1 - j0, t->m.s + j0 * t->ld);
}

static void attn__skinny_weights(attn__tile *t, int64_t n, float *cmax, float *csum)
{
    const int64_t up = attn__up(n, ATTN__PARTS);
    int64_t l;
    for (l = 0; l < t->ld; l++)
        if (l < t->lanes) {
            float *row = t->m.skinny_s + l * ATTN__SKINNY_ROW;
            attn__fill(row + n, 1, up - n, ATTN__NEG_INF);
            t->f->softmax_row(row, row, 1, up, 1.0f, cmax + l, csum + l);
        } else {
            cmax[l] = cmax[l - 1];
            csum[l] = csum[l - 1];
        }
}

/* Some keys at a time, so that a row of V is read whole while its lines are cached. The last vector of columns ends
   with the row and may overlap the one before it; it has a place of its own: with 8 lanes and 20 columns they start at
   0, 8 and 12, the last is kept in places 16..23, and its upper half moves down to 16..19 at the end. */
static void attn__skinny_columns(const attn__tile *t, int64_t n, const attn__product *p)
{
    const int64_t width = t->f->width, size = t->c->size_v, whole = size / width * width;
    attn__product part = *p;
    int64_t j, column;
    for (j = 0; j < n; j += part.depth) {
        part.a = p->a + j;
        part.depth = attn__min(n - j, t->f->types ? (int64_t)ATTN__SKINNY_KEYS : (int64_t)ATTN__GROUP);
        part.groups = p->groups + j / p->b_group;
        part.next = p->next ? p->next + j : NULL;
        if (p->b_type == ATTN_I8) part.b_scale = p->b_scale + j * p->b_scales;
        for (column = 0; column < size; column += part.vecs * width) {
            const int64_t left = (whole - column) / width;
            const int64_t most = t->f->types ? left : p->rows == 1 && left >= 8 ? 8 : t->f->vecs;
            part.vecs = (int32_t)attn__max(attn__min(left, most), 1);
            part.b_first = p->b_first + attn__min(column, size - width);
            part.c = p->c + column;
            if (t->f->types) t->f->skinny(&part);
            else {
                part.b = (const float *)(const void *)part.groups[0] + part.b_first;
                t->f->product(&part);
            }
        }
    }
}

/* Where a chain of a chunk is summed: the first one in t->m.acc, to which the others are added. */
static float *attn__chain_at(const attn__tile *t, int64_t heads, int64_t j0)
{
    return !j0 ? t->m.acc : heads > 1 ? t->m.chain : t->m.part;
}

static void attn__begin_chain(attn__tile *t, int64_t j0, int64_t j1, float *sum)
{
    float *weights[ATTN__SKINNY];
    int64_t l;
    for (l = 0; l < t->lanes; l++) weights[l] = t->m.skinny_s + l * ATTN__SKINNY_ROW + j0;
    if (!t->as_rows) t->f->unpack(weights, t->lanes, 1, t->m.s + j0 * t->ld, t->ld, j1 - j0, t->ones);
    attn__fill(sum, 1, t->lanes * attn__skinny_row(t), 0.0f);
}

static void attn__add_chain(attn__tile *t, int64_t rows, int64_t ld, const float *sum)
{
    const attn__merging m = {rows, ld, t->m.acc, t->m.acc, NULL, sum, t->ones, t->ones};
    t->f->merge(&m);
}

static void attn__end_chain(attn__tile *t, int64_t j0, float *sum)
{
    const int64_t width = t->f->width, size = t->c->size_v, row = attn__skinny_row(t), whole = row - width;
    int64_t column, l;
    for (l = 0; l < t->lanes; l++)
        for (column = whole; column < size; column++)
            sum[l * row + column] = sum[l * row + column + width - (size - whole)];
    if (j0) attn__add_chain(t, attn__output_floats(t) / width, width, sum);
}

/* n single rows of v, no codes, for heads of one row each: some keys of all heads in turn. */
static void attn__single_rows_of_heads(attn__tile *const *tiles, int64_t heads, int64_t c0, int64_t j0, int64_t j,
                                       int64_t n, attn__product *p)
{
    const attn__tile *t = tiles[0];
    const attn__array *v = &t->c->v;
    const int64_t turn = attn__keys_of_a_turn(t->c, heads);
    int64_t i, x, some;
    p->ahead1 = p->ahead2 = turn;
    attn__list_head(t, v, c0 + j, n, 1, p);
    for (i = 0; i < n; i += some) {
        some = attn__min(n - i, turn);
        p->groups = t->m.lists->rows + i;
        for (x = 0; x < heads; x++) {
            p->a = tiles[x]->m.skinny_s + j + i;
            p->c = attn__chain_at(tiles[x], heads, j0);
            p->b_first = x * v->stride[1];
            attn__skinny_columns(t, some, p);
        }
    }
}

static void attn__skinny_chain(attn__tile *const *tiles, int64_t heads, int64_t c0, int64_t j0, int64_t j1,
                               const attn__reach *r)
{
    const attn__tile *t = tiles[0];
    const int64_t size = t->c->size_v;
    attn__product p;
    attn__stretch s;
    int64_t j, n, x;
    p.a_row = ATTN__SKINNY_ROW;
    p.a_k = 1;
    p.c_row = attn__skinny_row(t);
    p.rows = t->lanes;
    p.chain = ATTN__HUGE;
    p.kind = ATTN__PRODUCT;
    p.onto = ATTN__GO_ON;
    p.fetch = NULL;
    for (x = 0; x < heads; x++) attn__begin_chain(tiles[x], j0, j1, attn__chain_at(tiles[x], heads, j0));
    for (j = j0; j < j1; j = s.end) {
        s = attn__stretch_at(r, j, j1);
        for (; s.from < s.to && j < s.end; j += n) {
            n = attn__skinny_rows(t, &t->c->v, c0 + j, s.end - j, size, &p);
            if (heads >= ATTN__TURN_HEADS && p.b_group == 1 && attn__has_one_row_a_head(t) && p.b_type != ATTN_I8) {
                attn__single_rows_of_heads(tiles, heads, c0, j0, j, n, &p);
                continue;
            }
            for (x = 0; x < heads; x++) {
                attn__skinny_head(tiles[x], x, heads, &t->c->v, c0 + j, n, size, &p);
                p.a = tiles[x]->m.skinny_s + j;
                p.c = attn__chain_at(tiles[x], heads, j0);
                attn__skinny_columns(t, n, &p);
            }
        }
    }
    for (x = 0; x < heads; x++) attn__end_chain(tiles[x], j0, attn__chain_at(tiles[x], heads, j0));
}

/* Outputs in the tile's layout, in t->m.acc, become rows. */
static void attn__skinny_from_lanes(attn__tile *t)
{
    float *rows[ATTN__SKINNY], *to = t->m.part;
    int64_t l;
    attn__fill(to, 1, attn__output_floats(t), 0.0f);
    for (l = 0; l < t->lanes; l++) rows[l] = to + l * attn__skinny_row(t);
    t->f->unpack(rows, t->lanes, 1, t->m.acc, t->ld, t->c->size_v, t->ones);
    t->m.part = t->m.acc;
    t->m.acc = to;
}

/* A tile's outputs that are rows. */
static void attn__store_skinny_rows(const attn__tile *t, const float *factor)
{
    const attn__array *o = &t->c->out;
    const int direct = attn__is_contiguous(o);
    const int64_t size = t->c->size_v, row = attn__skinny_row(t);
    int64_t l;
    for (l = 0; o->rank && l < t->lanes; l++) {
        float *from = t->m.o + l * row, *to = direct ? attn__at(o, t->b, t->h[l], t->i[l], 0) : from;
        t->f->scale_store(from, to, size, factor[l], 0);
        if (!direct) attn__store_row(t->f, attn__in(o, t->b, t->h[l], t->i[l], 0), size, to);
    }
}

/* ----------------------------------------------------------------------------------------------------- >>options
   What stands between a score and its weight, each option for itself: lengths, causal, window; softcap; bias, ALiBi,
   mask; sink; dropout. */

/* ---- lengths, causal, window: which keys a row may attend to, first <= j < last; its position, counted as they are
   from the call's first key */
ATTN__INLINE attn__row attn__row_of(const attn__call *c, int64_t b, int64_t i)
{
    const int64_t query_length = attn__int_or(&c->query_lengths, b, c->queries);
    attn__row row = {i, 0, 0};
    int64_t key_length;
    if (i >= query_length) return row;          /* where nothing else is read */
    key_length = c->key_lengths.rank ? attn__int_at(&c->key_lengths, b, i) : c->keys;
    if (c->align == ATTN_ALIGN_BOTTOM_RIGHT) row.position = i + key_length - query_length;
    if (c->align == ATTN_ALIGN_POSITIONS)
        row.position = attn__add_signed(attn__int_at(&c->positions, b, i), c->positions.rank == 2 ? 0 : i);
    row.position = attn__add_signed(row.position, -c->key_origin);
    row.last = key_length;
    if (c->left != ATTN__HUGE) row.first = attn__max(attn__add_signed(row.position, -c->left), 0);
    if (c->right != ATTN__HUGE) {
        const int64_t end = attn__add_signed(row.position, c->right);
        if (end < row.last) row.last = end < 0 ? 0 : end + 1;
    }
    if (row.first >= row.last) row.first = row.last = 0;
    return row;
}

/* The masks of a call, one after the other: *field is 0 first. NULL: no more. */
static const attn__array *attn__next_mask(const attn__call *c, int *field)
{
    const attn__array *operands = attn__operands_of(c, offsetof(attn__call, q));
    int n;
    for (n = *field ? *field : (int)ATTN__F_mask; n < ATTN__F_COUNT; n++) {
        *field = n + 1;
        if (attn__fields[n].takes == ATTN__BYTES && operands[n].rank) return &operands[n];
    }
    return NULL;
}

/* ---- a bias by index. A plan may run after its indices have changed: none is used that is not in the table. */
static float attn__bias_at(const attn__call *c, int64_t b, int64_t h, int64_t i, int64_t j)
{
    int64_t at;
    if (!c->bias_index.rank) return attn__read(&c->bias, b, h, i, j);
    at = attn__int_of(attn__place_of(&c->bias_index, b, h, i, j), c->bias_index.type);
    return at >= 0 && at < c->bias_row ? attn__read(&c->bias, 0, h, 0, at) : 0.0f;
}

/* The numbers of the table that n indices, `step` elements apart, stand for. */
static void attn__look_up(const attn__call *c, int64_t h, const void *index, int64_t step, int64_t n, float *to)
{
    const attn__array *table = &c->bias;
    const int64_t size = c->bias_row;
    int64_t j;
    if (attn__is_contiguous(table) && c->bias_index.type == ATTN_I32 && size < (int64_t)1 << 31) {
        const float *row = attn__at(table, 0, h, 0, 0);
        const int32_t *from = (const int32_t *)index;
        const uint32_t end = (uint32_t)size;
        for (j = 0; j < n - 3; j += 4) {
            const int32_t *at = from + j * step;
            if (j % 16 == 0) ATTN__PREFETCH(attn__ahead((const float *)(const void *)at, n, step));
            const uint32_t x = (uint32_t)at[0], y = (uint32_t)at[step];
            const uint32_t z = (uint32_t)at[2 * step], u = (uint32_t)at[3 * step];
            to[j] = x < end ? row[x] : 0.0f;
            to[j + 1] = y < end ? row[y] : 0.0f;
            to[j + 2] = z < end ? row[z] : 0.0f;
            to[j + 3] = u < end ? row[u] : 0.0f;
        }
        for (; j < n; j++) to[j] = (uint32_t)from[j * step] < end ? row[from[j * step]] : 0.0f;
    } else for (j = 0; j < n; j++) {
        const int64_t at = attn__int_of((const void *)((uintptr_t)index + (uintptr_t)(j * step) *
                                        (uintptr_t)attn__type_size(c->bias_index.type)), c->bias_index.type);
        to[j] = at >= 0 && at < size ? attn__read(table, 0, h, 0, at) : 0.0f;
    }
}

/* A bias by index for n keys of a tile from c0 on: the lanes' rows, in t->m.t. Rows of indices that are the one before
   shifted by at most their length, as those by distance are, are looked up together. */
static void attn__look_up_lanes(const attn__tile *t, int64_t c0, int64_t n, float **rows)
{
    const attn__array *a = &t->c->bias_index;
    const int64_t shift = attn__shift_of(a), near_by = attn__magnitude(shift) <= n;
    float *to = t->m.t;
    int64_t l, k, count, more, first;
    for (l = 0; l < t->ld; l += count) {
        count = 1;
        while (near_by && l + count < t->ld && t->h[l + count] == t->h[l] &&
               t->i[l + count] == t->i[l + count - 1] + 1) count++;
        more = (count - 1) * (near_by ? shift : 0);
        first = attn__min(more, 0);                     /* the column from which on it begins, from c0 */
        if (l > 0 && t->h[l] == t->h[l - 1] && t->i[l] == t->i[l - 1]) {        /* lanes beyond the last row */
            rows[l] = rows[l - 1];
            continue;
        }
        attn__look_up(t->c, t->h[l], attn__place_of(a, t->b, t->h[l], t->i[l], c0 + first), a->stride[3],
                      n + attn__magnitude(more), to);
        for (k = 0; k < count; k++) rows[l + k] = to + k * (near_by ? shift : 0) - first;
        to += n + attn__magnitude(more);
    }
}

/* Added to the scores of n keys from c0 on; where each row is looked up, what the first cache holds at a time. */
static void attn__add_by_index(const attn__tile *t, int64_t c0, int64_t n)
{
    const int64_t some = attn__magnitude(attn__shift_of(&t->c->bias_index)) <= n ? n : 64;
    float *rows[ATTN__MAX_LANES];
    int64_t j, count;
    for (j = 0; j < n; j += count) {
        count = attn__min(n - j, some);
        attn__look_up_lanes(t, c0 + j, count, rows);
        t->f->bias(t->m.s + j * t->ld, t->ld, count, (const float *const *)rows, 1, attn__is_kernel(t->c->score),
                   t->lane_max);
    }
}

/* May query (b,h,i), whose keys `row` bounds, attend to key j, as far as can be told without q and k? */
static int attn__mask_at(const attn__call *c, attn__row row, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const attn__array *mask;
    int n = 0;
    if (j < row.first || j >= row.last) return 0;
    while ((mask = attn__next_mask(c, &n)) != NULL) if (!attn__byte_at(mask, b, h, i, j)) return 0;
    return !c->bias.rank || !attn__is_none(attn__bias_at(c, b, h, i, j));
}

/* ---- softcap, on raw scores. A score that is -inf already, and is meant to exclude, stays so. */
static void attn__apply_softcap(attn__tile *t, int64_t n)
{
    const int keep = (attn__score_of(t->c)->flags & (ATTN__LOG_WEIGHT | ATTN__EXCLUDES)) != 0;
    if (t->c->softcap != 0.0f) t->f->softcap(t->m.s, n * t->ld, t->c->softcap, keep);
}

/* ---- bias, ALiBi, masks, on n keys from c0 on */
static void attn__clip_scores(attn__tile *t, const attn__reach *r)
{
    int32_t x;
    if (!r->hull_only) t->f->clip(t->m.s, t->ld, t->ld, 0, r->n, r->first, r->last, NULL);
    else for (x = 0; x < t->vecs; x++) {            /* the keys that some lanes of a vector reach and some do not */
        const int64_t lane0 = x * t->f->width, middle = attn__max(attn__min(r->all_from[x], r->to[x]), r->from[x]);
        const int32_t *first = r->first + lane0, *last = r->last + lane0;
        float *s = t->m.s + lane0, *top = t->lane_max ? t->lane_max + lane0 : NULL;
        t->f->clip(s, t->ld, t->f->width, r->from[x], middle, first, last, top);
        t->f->clip(s, t->ld, t->f->width, attn__max(r->all_to[x], middle), r->to[x], first, last, top);
    }
}

static void attn__apply_masks(attn__tile *t, int64_t c0, int64_t n, const attn__reach *r)
{
    const attn__call *c = t->c;
    const attn__array *mask;
    int field = 0;
    int64_t l;
    if (c->bias_index.rank) attn__add_by_index(t, c0, n);
    else if (c->bias.rank) {
        float *rows[ATTN__MAX_LANES];
        const int as_lanes = !attn__is_f32(&c->bias);           /* as floats, in t->m.t */
        if (as_lanes) attn__load_lanes(t, &c->bias, c0, n, t->ones, t->m.t);
        for (l = 0; as_lanes && l < t->ld; l++) rows[l] = t->m.t + l;
        if (!as_lanes) attn__lane_rows(t, &c->bias, c0, t->ld, rows);
        t->f->bias(t->m.s, t->ld, n, (const float *const *)rows,
                   as_lanes ? t->ld : c->bias.stride[3], attn__is_kernel(c->score), t->lane_max);
    }
    if (c->alibi.rank) {
        float position[ATTN__MAX_LANES];
        const int64_t j0 = c0 % ATTN__CHUNK;        /* far ones are rounded: from the chunk's start, in gradients too */
        for (l = 0; l < t->ld; l++) position[l] = (float)attn__add_signed(t->row[l].position, j0 - c0);
        t->f->alibi(t->m.s, t->ld, j0, j0 + n, t->slope, position);
    }
    while (c->masked && (mask = attn__next_mask(c, &field)) != NULL) {
        const uint8_t *rows[ATTN__MAX_LANES];
        for (l = 0; l < t->ld; l++)
            rows[l] = (const uint8_t *)mask->data + attn__index(mask, t->b, t->h[l], t->i[l], c0);
        t->f->exclude(t->m.s, t->ld, n, rows, mask->stride[3]);
    }
    if (!r->whole) attn__clip_scores(t, r);
}

/* ---- the sink: one more logit. The row's maximum and sum with it in them; returns the share of the sum before. */
static float attn__add_sink(const attn__call *c, int64_t h, float *top, float *sum, float *own)
{
    const float sink = attn__sink_of(c, h), m = attn__larger(sink, *top);
    float share;
    *own = 0.0f;
    if (attn__is_none(sink)) return 1.0f;
    share = attn__exp(*top - m);
    *own = attn__exp(sink - m);
    *sum = attn__fma(*sum, share, *own);
    *top = m;
    return share;
}

/* ---- dropout: for some lanes of the tile and the rows j0 .. j1 of [.][ld]; row 0 is key c0 */
static void attn__drop_lanes(const attn__tile *t, int64_t c0, int64_t lane0, int64_t lanes, int64_t j0, int64_t j1,
                             float *s)
{
    uint32_t i[ATTN__MAX_LANES], h[ATTN__MAX_LANES];
    const attn__call *c = t->c;
    const attn__dropout d = {s + lane0, t->ld, lanes, j0, j1, c->seed, c->drop_below, i, h,
                             (uint32_t)t->b + c->origin[0], (uint32_t)c0 + c->origin[3]};
    int64_t l;
    for (l = 0; l < lanes; l++) {
        i[l] = (uint32_t)t->i[lane0 + l] + c->origin[2];
        h[l] = (uint32_t)t->h[lane0 + l] + c->origin[1];
    }
    t->f->dropout(&d);
}

/* Row by row: walks along one row of the mask, j ascending; four keys come from one counter. */
typedef struct attn__dropper { uint64_t seed, below; uint32_t b, h, i, j, block, words[4]; int ready; } attn__dropper;
static attn__dropper attn__dropper_of(const attn__call *c, int64_t b, int64_t h, int64_t i)
{
    const uint32_t *o = c->origin;                          /* sums are modulo 2^32 */
    const attn__dropper x = {c->seed, c->drop_below, (uint32_t)b + o[0], (uint32_t)h + o[1], (uint32_t)i + o[2], o[3],
                             0, {0, 0, 0, 0}, 0};
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

#ifndef ATTN_NO_BACKWARD
/* What dropout does to the weights of a tile: 0 or 1/(1-p). */
static void attn__keep_factors(const attn__tile *t, int64_t c0, int64_t n, float *keep)
{
    attn__fill(keep, 1, n * t->ld, t->c->keep_scale);
    attn__drop_lanes(t, c0, 0, t->ld, 0, n, keep);
}

/* What blocks add their gradients of a bias to: d_bias itself, or sums that become it. */
static attn__array attn__bias_sums(const attn__call *c, const attn__shared *s)
{
    const int64_t *n = c->bias_size;
    attn__array a = c->d_bias;
    int axis;
    if (!attn__bias_floats(c)) return a;
    a = attn__packed(s->bias, n[1], n[2], n[3]);
    for (axis = 0; axis < 4; axis++) if (n[axis] == 1) a.stride[axis] = 0;
    a.data = attn__at(&a, 0, 0, c->row0, attn__has_own_columns(c) ? 0 : c->key0);
    return a;
}

/* dS, [n keys][ATTN__GRAD_ROW], as a result of its own: the gradient of a bias or of given scores */
static void attn__store_scores_grad(const attn__pass *p, const attn__array *o, int64_t c0, int64_t n,
                                    float factor, int add)
{
    float *rows[ATTN__MAX_LANES], by[ATTN__MAX_LANES];
    const int streamed = !add && attn__is_contiguous(o) && p->c->w.rows > ATTN__LARGE / attn__max(p->c->keys, 1);
    int64_t i, i0, lanes;
    attn__fill(by, 1, ATTN__MAX_LANES, factor);
    for (i0 = 0; i0 < p->n; i0 += lanes) {
        lanes = attn__min(p->n - i0, ATTN__MAX_LANES);
        for (i = 0; i < lanes; i++) rows[i] = p->m.result + i * ATTN_GRAD_KEYS;
        p->f->unpack(rows, lanes, 1, p->m.ds + i0, ATTN__GRAD_ROW, n, by);
        for (i = 0; !streamed && i < lanes; i++)
            attn__store_grad(p->f, attn__in(o, p->b, p->head, p->i0 + i0 + i, c0), n, rows[i], 1.0f, add);
        for (i = 0; streamed && i < lanes; i++) rows[i] = attn__at(o, p->b, p->head, p->i0 + i0 + i, c0);
        if (streamed) p->f->scale_store_far(p->m.result, ATTN_GRAD_KEYS, rows, lanes, n);
    }
}

/* What a block of queries has against some blocks of keys, to its sums of the table. */
static void attn__close_table(attn__pass *p)
{
    const attn__call *c = p->c;
    const int64_t n = c->bias_row, head = (c->packed_queries ? 0 : p->b) * c->heads + p->head;
    const int64_t first = c->packed_queries ? c->row0 / ATTN_GRAD_QUERIES + p->b : 0;
    float *t = p->m.table, *to = p->shared.table + head * attn__table_floats(c) +
                                 (first + p->i0 / ATTN_GRAD_QUERIES) * n;
    if (!p->table_blocks) return;
    p->f->scale_store(t + n, t, n, 1.0f, 1);
    p->f->scale_store(t + 3 * n, t + 2 * n, n, 1.0f, 1);
    p->f->scale_store(t + 2 * n, t, n, 1.0f, 1);
    p->f->scale_store(t, to, n, 1.0f, 1);
    p->table_blocks = 0;
}

/* dS of a block of queries against n keys from c0 on, to sums of the elements of the table: query by query, in a query
   key by key, every fourth to the same sums. Closed often, no chain is long, however few the elements are. Rows without
   mass add nothing: those in front of an entry share their block with the entry's first ones, but not their task. */
static void attn__add_to_table(attn__pass *p, int64_t c0, int64_t n)
{
    const attn__call *c = p->c;
    const attn__array *a = &c->bias_index;
    const int64_t size = c->bias_row, step = a->stride[3];
    float *to = p->m.table;
    int64_t i, j, rows = 0;
    for (i = 0; i < p->n; i++) rows += !p->dead[i];
    if (!rows) return;
    if (!p->table_blocks) attn__fill(to, 1, ATTN__TABLES * size, 0.0f);
    for (i = 0; i < p->n; i++) {
        const void *index = attn__place_of(a, p->b, p->head, p->i0 + i, c0);
        const int32_t *from = (const int32_t *)index;
        const int64_t *wide = (const int64_t *)index;
        for (j = 0; !p->dead[i] && j < n; j++) {
            const int64_t at = a->type == ATTN_I32 ? from[j * step] : wide[j * step];
            float *sum = to + j % ATTN__TABLES * size;
            if (at >= 0 && at < size) sum[at] = sum[at] + p->m.ds[j * ATTN__GRAD_ROW + i];
        }
    }
    if (++p->table_blocks * ATTN__TABLE_CLOSES >= size) attn__close_table(p);
}

/* The gradients of bias and ALiBi: sums of dS. */
static void attn__grad_masks(attn__pass *p, int64_t c0, int64_t n)
{
    const attn__call *c = p->c;
    const int rows_too = !c->w.key_parts && (p->does & ATTN__DO_Q);
    int64_t i, j;
    const attn__array bias = attn__bias_sums(c, &p->shared);
    if (c->w.bias > ATTN__BIAS_ROWS && ((p->does & ATTN__DO_K) || rows_too))
        attn__store_scores_grad(p, &bias, c0, n, 1.0f, c->w.bias == ATTN__BIAS_ADDED);
    if (c->w.bias == ATTN__BIAS_TABLE && (p->does & ATTN__DO_Q)) attn__add_to_table(p, c0, n);
    if (!(p->does & ATTN__DO_Q) || (c->w.bias != ATTN__BIAS_ROWS && !c->d_alibi.rank)) return;
    for (i = 0; i < p->n; i++) {
        const attn__row row = attn__row_of(c, p->b, p->i0 + i);
        float *sum = attn__row_field(p, ATTN__R_BIAS, p->i0 + i), *alibi = attn__row_field(p, ATTN__R_ALIBI, p->i0 + i);
        for (j = 0; j < n; j++) {
            const float x = p->m.ds[j * ATTN__GRAD_ROW + i], apart = (float)attn__add_signed(row.position, -c0 - j);
            *sum = *sum + x;
            *alibi = attn__fma(attn__negate(x), attn__absolute(apart), *alibi);
        }
    }
}

/* dS through the softcap: times 1 - tanh^2. */
static void attn__grad_softcap(attn__pass *p, int64_t n)
{
    const float cap = p->c->softcap;
    int64_t i, j;
    for (j = 0; p->m.soft && j < n; j++)
        for (i = j * ATTN__GRAD_ROW; i < j * ATTN__GRAD_ROW + p->n; i++)
            if (!attn__is_excluded(p->m.p[i])) {
                const float y = p->m.soft[i] / cap;
                p->m.ds[i] = p->m.ds[i] * attn__fma(attn__negate(y), y, 1.0f);
            }
}
#endif

/* ---- covered[j] for keys c0..c0+n: does any row of batch entry b reach it? All, where every key's score is wanted */
static void attn__cover_rows(const attn__call *c, int64_t b, int64_t c0, int64_t n, int32_t *change)
{
    const int every = c->scores.rank || c->scores_softcap.rank;
    int64_t i;
    for (i = 0; i < (every ? 1 : c->queries); i++) {
        const attn__row all = {0, 0, c->keys}, row = every ? all : attn__row_of(c, b, i);
        const int64_t first = attn__max(row.first - c0, 0), last = attn__min(row.last - c0, n);
        if (first >= n || last <= 0) continue;
        change[first]++;
        change[last]--;
    }
}

/* The same with starts: c0 counts in the arrays. */
ATTN__NOINLINE static void attn__cover_entries(const attn__call *c, int64_t b, int64_t c0, int64_t n, int32_t *change)
{
    const int64_t end = c->packed_keys ? c->batch : b + 1;
    attn__extent x;
    attn__call e;
    for (; b < end; b++) {
        attn__find_keys(c, b, &x);
        if (x.key0 >= c0 + n || x.key0 + x.keys <= c0) continue;
        attn__open_entry(c, b, 0, &e);
        attn__cover_rows(&e, b, c0 - x.key0, n, change);
    }
}

static void attn__cover(const attn__call *c, int64_t b, int64_t c0, int64_t n, uint8_t *covered)
{
    int32_t change[ATTN__CHUNK + 1];
    int64_t j, depth = 0;
    for (j = 0; j <= n; j++) change[j] = 0;
    if (c->ragged) attn__cover_entries(c, b, c0, n, change);
    else attn__cover_rows(c, b, c0, n, change);
    for (j = 0; j < n; j++) {
        depth += change[j];
        covered[j] = depth > 0;
    }
}

/* -------------------------------------------------------------------------------------------------------- >>tile
   The forward pass, written once for all instruction sets. Keys are prepared, where a score needs it. A tile of queries
   is opened; chunk by chunk of keys: scores -> softcap, bias, masks -> weights -> times V, merged in ascending order;
   then it is finished. Where the keys of a tile were cut among tasks, its chunks are merged in a step of their own. */

/* A chunk of keys of one stream. Only those that some row may attend to are read. */
static void attn__prepare_keys(attn__tile *t, int64_t c0, float *prepared)
{
    const attn__call *c = t->c;
    const int64_t n = attn__min(c->keys - c0, ATTN__CHUNK);
    uint8_t covered[ATTN__CHUNK];
    int64_t j, l, run;
    attn__cover(c, t->b, c0, n, covered);
    for (j = 0; j < n; j += attn__max(run, 1)) {
        for (run = 0; j + run < n && run < t->ld && covered[j + run];) run++;
        for (l = 0; l < t->ld; l++) {
            t->h[l] = t->head_kv;
            t->i[l] = c0 + j + attn__min(l, run - 1);
        }
        if (run > 0) attn__score_of(c)->prepare(t, run, prepared + (c0 + j) * c->key_floats);
    }
}

/* ---- which keys of a chunk the lanes of a tile reach */
static void attn__find_reach_of(const attn__tile *t, int64_t c0, int32_t x, attn__reach *r)
{
    int64_t l = x * t->f->width;
    const int64_t end = l + t->f->width;
    int32_t from = (int32_t)r->n, to = 0, all_from = 0, all_to = (int32_t)r->n;
    for (; l < end; l++) {
        const int32_t first = (int32_t)attn__min(attn__max(t->row[l].first - c0, 0), r->n);
        const int32_t last = (int32_t)attn__min(attn__max(t->row[l].last - c0, 0), r->n);
        r->first[l] = first;
        r->last[l] = last;
        all_from = first > all_from ? first : all_from;
        all_to = last < all_to ? last : all_to;
        if (first >= last) continue;
        if (from < to && (first > to || last < from)) r->gaps = 1;
        from = first < from ? first : from;
        to = last > to ? last : to;
    }
    r->all_from[x] = all_from;
    r->all_to[x] = all_to - all_to % r->width;          /* so strips of scores end with whole vectors of keys */
    r->from[x] = from < to ? from : 0;
    r->to[x] = to;
    if (x > 0 && (r->from[x] < r->from[x - 1] || to < r->to[x - 1])) r->ascending = 0;
}

static void attn__find_reach(const attn__tile *t, int64_t c0, int64_t n, attn__reach *r)
{
    int32_t x;
    r->n = n;
    r->vecs = t->vecs;
    r->width = t->f->width;
    r->gaps = r->hull_only = 0;
    r->ascending = 1;
    r->whole = t->all_first <= c0 && t->all_last >= c0 + n;
    for (x = 0; x < t->vecs; x++)
        if (!r->whole) attn__find_reach_of(t, c0, x, r);
        else {
            r->from[x] = 0;
            r->to[x] = (int32_t)n;
        }
}

/* ---- a chunk's scores. Where their maxima are wanted, those of keys that not all lanes of a vector reach do not count
   yet: attn__clip_scores adds what remains of them. */
static void attn__partly_reached_scores(attn__tile *t, int64_t c0, int64_t j, const attn__reach *r, attn__stretch *s)
{
    const int64_t width = t->f->width;
    float tops[ATTN__MAX_LANES];
    int32_t x;
    for (x = s->from; x < s->to; x++) if (j < r->all_to[x]) s->end = attn__min(s->end, r->all_to[x]);
    ATTN__COPY(tops, t->lane_max, (size_t)t->ld * sizeof *tops);
    attn__score_of(t->c)->qk(t, c0, j, s->end, s->from, s->to);
    for (x = s->from; x < s->to; x++)
        if (j >= r->all_to[x]) attn__copy_floats(t->lane_max + x * width, tops + x * width, width);
}

static void attn__raw_scores(attn__tile *t, int64_t c0, int64_t n, const attn__reach *r)
{
    attn__stretch s;
    int64_t j;
    if (!r->whole && !r->hull_only) attn__fill(t->m.s, 1, n * t->ld, ATTN__NEG_INF);
    for (j = 0; j < n; j = s.end) {
        s = attn__stretch_at(r, j, n);
        if (s.from == s.to) continue;
        if (t->lane_max && !r->whole) attn__partly_reached_scores(t, c0, j, r, &s);
        else attn__score_of(t->c)->qk(t, c0, j, s.end, s.from, s.to);
    }
}

static void attn__finish_scores(attn__tile *t, int64_t n)
{
    if (attn__score_of(t->c)->finish) attn__score_of(t->c)->finish(t, n);
}

static void attn__chunk_scores(attn__tile *t, int64_t c0, int64_t n, const attn__reach *r)
{
    attn__raw_scores(t, c0, n, r);
    attn__finish_scores(t, n);
    attn__apply_softcap(t, n);
    attn__apply_masks(t, c0, n, r);
}

/* The raw and the softcapped scores as results: over all keys, apart from the rest so that they change no bit of it.
   from: a multiple of ATTN__CHUNK */
static void attn__store_raw_scores(attn__tile *t, int64_t from, int64_t to)
{
    int64_t c0, n;
    for (c0 = from; c0 < to; c0 += ATTN__CHUNK) {
        n = attn__min(to - c0, ATTN__CHUNK);
        attn__score_of(t->c)->qk(t, c0, 0, n, 0, t->vecs);
        attn__finish_scores(t, n);
        attn__store_lanes(t, &t->c->scores, c0, n, t->ones, t->m.s);
        attn__apply_softcap(t, n);
        attn__store_lanes(t, &t->c->scores_softcap, c0, n, t->ones, t->m.s);
    }
}

/* ---- its weights. Scores of the tile's vector x become weights relative to the chunk's maximum, between the keys that
   some lane reaches. mark: tell excluded ones from those that underflow. */
static void attn__softmax_vector(attn__tile *t, const attn__reach *r, int32_t x, int mark, float *cmax, float *csum)
{
    const int64_t lane0 = x * t->f->width;
    t->f->softmax_lanes(t->m.s + lane0, t->ld, r->from[x], r->to[x], t->lane_max != NULL, mark, cmax + lane0,
                        csum + lane0);
}

/* The same as pairs, at once. */
static int attn__makes_pairs(const attn__call *c)
{
    return (c->fast & ATTN__FAST_VALUES) && attn__by_amx(c) && c->dropout == 0.0f;
}

static void attn__softmax_pairs(attn__tile *t, const attn__reach *r, int32_t x, int mark, float *cmax, float *csum)
{
    const int64_t lane0 = x * t->f->width;
    const attn__pair_softmax p = {t->m.s + lane0, t->ld, r->from[x], r->to[x], attn__up(r->n, t->c->pairs->keys),
                                  t->unscaled ? t->c->scale : 1.0f, t->lane_max != NULL, mark,
                                  t->c->v.type == ATTN_I8 ? t->m.expanded[1].scales : NULL,
                                  cmax + lane0, csum + lane0};
    t->c->pairs->softmax(&p);
}

/* By AMX a weight takes the scale of its key's codes along. That may turn its sign, which counts for values alone that
   are not finite: no codes. */
static int attn__scales_weights(const attn__call *c) { return c->v.type == ATTN_I8 && (c->fast & ATTN__FAST_VALUES); }
static attn__rows attn__bf16_values(const attn__tile *t, int64_t c0, int64_t j, int64_t end, const attn__reach *r);

/* Not inlined, for the stack's sake: the chunk's arrays are there already. */
ATTN__NOINLINE static void attn__chunk_weights(attn__tile *t, int64_t c0, int64_t n, const attn__reach *r, int mark,
                                               float *cmax, float *csum)
{
    const int64_t width = t->f->width;
    int64_t j;
    int32_t x;
    if (attn__scales_weights(t->c)) attn__bf16_values(t, c0, 0, attn__up(n, t->c->pairs->keys) / 2, r);
    for (x = 0; x < t->vecs; x++) {
        if (attn__makes_pairs(t->c)) {
            attn__softmax_pairs(t, r, x, mark, cmax, csum);
            continue;
        }
        attn__softmax_vector(t, r, x, mark, cmax, csum);
        for (j = 0; !r->whole && !r->hull_only && j < n; j++)   /* between vectors that reach it: excluded, inert */
            if (j < r->from[x] || j >= r->to[x]) attn__fill(t->m.s + j * t->ld + x * width, 1, width, -0.0f);
        if (t->c->dropout > 0.0f) attn__drop_lanes(t, c0, x * width, width, r->from[x], r->to[x], t->m.s);
    }
}

/* ---- its outputs. Which keys of a chunk does a lane reach? Returns whether all from `from` to `to` are. */
static int attn__find_reached(const attn__reach *r, int64_t from, int64_t to, uint8_t *reached)
{
    int64_t l, j;
    attn__zero(reached, ATTN__CHUNK);
    for (l = 0; !r->gaps && l < r->vecs; l++) for (j = r->from[l]; j < r->to[l]; j++) reached[j] = 1;
    for (l = 0; r->gaps && l < (int64_t)r->vecs * r->width; l++)
        for (j = r->first[l]; j < r->last[l]; j++) reached[j] = 1;
    for (j = from; j < to && reached[j];) j++;
    return j >= to;
}

/* With pairs of keys, from the j-th to `end`: what the lanes that reach them reach may be read. Where that is not all
   between the first and the last of it the kernels' groups of keys are made apart, and not kept. */
static attn__rows attn__bf16_values(const attn__tile *t, int64_t c0, int64_t j, int64_t end, const attn__reach *r)
{
    float *const rows = t->m.expanded[1].rows;
    const int64_t keys = t->c->pairs->keys;
    int64_t from = r->whole ? 0 : r->n, to = r->whole ? r->n : 0, l;
    uint8_t reached[ATTN__CHUNK];
    for (l = 0; !r->whole && l < t->ld; l++) {
        if (r->first[l] >= r->last[l] || r->first[l] >= 2 * end || r->last[l] <= 2 * j) continue;
        from = attn__min(from, r->first[l]);
        to = attn__max(to, r->last[l]);
    }
    if (!attn__by_amx(t->c) || r->whole || attn__find_reached(r, from, to, reached))
        attn__expand(t, &t->c->v, c0 + from, to - from, t->c->size_v, 1);
    else {
        t->m.expanded[1].b = -1;
        attn__fill(t->m.expanded[1].scales, 1, attn__scales_weights(t->c) ? ATTN__CHUNK : 0, 0.0f);
        for (l = from; l < to; l++) if (reached[l]) attn__copy_scales(t, &t->c->v, c0 + l, c0 + l + 1);
        for (l = j; l < end; l += keys / 2)
            attn__pair_values(t, &t->c->v, t->c->size_v, c0 + 2 * l, c0 + from, c0 + to, reached + 2 * l,
                              (float *)(uintptr_t)attn__paired_values(t, rows, l).at);
    }
    return attn__paired_values(t, rows, j);
}

/* A chunk's weights and its reach in pairs of keys; by AMX in as many of them as it takes together. */
ATTN__NOINLINE static void attn__to_bf16_pairs(const attn__tile *t, const attn__reach *r, attn__reach *half)
{
    const attn__pair_kernels *f = t->c->pairs;
    const int32_t keys = f->keys, n = (int32_t)attn__up(r->n, keys) / 2;
    int64_t l;
    for (l = 0; l < t->vecs && !attn__makes_pairs(t->c); l++)
        f->weights(t->m.s + l * t->f->width, t->ld, r->from[l], r->to[l], attn__up(r->n, keys));
    *half = *r;
    half->n = n;
    for (l = 0; l < r->vecs; l++) {
        half->from[l] = r->from[l] / keys * (keys / 2);
        half->to[l] = (int32_t)attn__min(attn__up(r->to[l], keys) / 2, n);
    }
    for (l = 0; r->gaps && l < (int64_t)r->vecs * r->width; l++) {
        half->first[l] = r->first[l] / keys * (keys / 2);
        half->last[l] = half->first[l];
        if (r->first[l] < r->last[l]) half->last[l] = (int32_t)attn__min(attn__up(r->last[l], keys) / 2, n);
    }
}

/* The bias that comes next, column j of a chunk: of the next chunk, or of the tile that follows. It is prefetched while
   the values are multiplied: later, all at once, it would be waited for. NULL: there is none, or not as floats. */
static const float *attn__next_bias(const attn__tile *t, int64_t c0, int64_t j)
{
    const attn__array *bias = &t->c->bias;
    const int64_t next = c0 + ATTN__CHUNK;
    const float *row;
    if (!bias->rank || !attn__is_contiguous(bias) || t->c->bias_index.rank) return NULL;
    row = attn__at(bias, t->b, t->h[0], t->i[0], 0);
    if (next < t->last) return attn__ahead(row, 1, next + j);
    return attn__ahead(attn__ahead(row, t->ld, bias->stride[2]), 1, t->first + j);
}

/* Of all columns of v. */
static attn__product attn__product_of_values(const attn__tile *t, int32_t kind)
{
    attn__product p;
    p.x = NULL;
    p.fetch = NULL;
    p.vecs = t->vecs;
    p.rows = t->c->size_v;
    p.b_row = p.c_row = t->ld;
    p.chain = ATTN__HUGE;
    p.kind = kind;
    p.a_scale = NULL;
    p.columns = t->m.t;
    p.padded = 1;
    p.onto = ATTN__FROM_ZERO;
    p.fetch_row = t->c->bias.stride[2];
    return p;
}

/* paired: NULL, or the reach of all keys, where j and r are in pairs */
static void attn__chunk_values(attn__tile *t, int64_t c0, int64_t j0, int64_t j1, const attn__reach *r,
                               const attn__reach *paired, int32_t kind, float *acc)
{
    const attn__call *c = t->c;
    attn__product p = attn__product_of_values(t, kind);
    attn__stretch s;
    attn__rows v;
    int64_t j, n;
    for (j = j0; j < j1; j = s.end) {
        s = attn__stretch_at(r, j, j1);
        p.fetch = paired ? NULL : attn__next_bias(t, c0, j);
        if (j == j0 && s.to - s.from < t->vecs) {
            attn__fill(acc, 1, c->size_v * t->ld, 0.0f);
            p.onto = ATTN__GO_ON;
        }
        if (s.from == s.to) continue;
        p.vecs = s.to - s.from;
        for (; j < s.end; j += n) {
            n = s.end - j;
            if (paired) v = attn__bf16_values(t, c0, j, s.end, paired);
            else v = attn__keys_of(t, &c->v, c0 + j, &n, c->size_v);
            p.a = v.at;
            p.a_row = v.column;
            p.a_k = v.row;
            p.b = t->m.s + j * t->ld + s.from * t->f->width;
            p.c = acc + s.from * t->f->width;
            p.depth = n;
            if (!paired && t->m.expanded) attn__fetch_stored(t, &c->k, c0 + j + ATTN__CHUNK, n, c->size_k, p.rows, &p);
            (paired ? c->pairs->product : t->f->product)(&p);
            p.onto = ATTN__GO_ON;
        }
    }
}

/* A chunk's outputs, in t->m.acc, and those of the chunks before it, in t->m.o, are merged into t->m.part. Returns
   whether the chunk's were all finite. t->m.o stays as it was until attn__keep_part: the chunk can be done again. */
static const float *attn__outputs_before(const attn__tile *t, int64_t c0)
{
    return c0 <= t->first && !t->c->carry_in.rank ? NULL : t->m.o;
}

static int attn__merge_outputs(attn__tile *t, int64_t c0, const float *old, const float *fresh)
{
    const int64_t row = attn__skinny_row(t), width = t->f->width;
    float factors[2][ATTN__MAX_WIDTH];
    attn__merging m = {t->c->size_v, t->ld, t->m.part, NULL, attn__outputs_before(t, c0), t->m.acc, old, fresh};
    int finite = 1;
    int64_t l;
    if (!t->skinny) return t->f->merge(&m);
    m.rows = row / width, m.ld = width, m.old = factors[0], m.fresh = factors[1];
    for (l = 0; l < t->lanes; l++) {
        attn__fill(factors[0], 1, width, old[l]);
        attn__fill(factors[1], 1, width, fresh[l]);
        finite &= t->f->merge(&m);
        m.to += row, m.o = m.o ? m.o + row : NULL, m.acc += row;
    }
    return finite;
}

static void attn__keep_part(attn__tile *t)
{
    float *o = t->m.o;
    t->m.o = t->m.part;
    t->m.part = o;
}

/* By AMX all at once, if all lanes take all keys: some rows at a time, merged while the first cache holds them. */
static int attn__merge_values(attn__tile *t, int64_t c0, const attn__reach *paired, const attn__reach *half,
                              int32_t kind, const float *old, const float *fresh)
{
    const attn__rows v = attn__bf16_values(t, c0, 0, half->n, paired);
    const float *fetch, *o = attn__outputs_before(t, c0);
    attn__product p = attn__product_of_values(t, kind);
    attn__merging m = {0, t->ld, NULL, NULL, NULL, t->m.acc, old, fresh};
    int64_t x;
    int finite = 1;
    p.a_row = v.column;
    p.a_k = v.row;
    p.b = t->m.s;
    p.c = t->m.acc;
    p.depth = half->n;
    attn__fetch_stored(t, &t->c->v, c0 + ATTN__CHUNK + t->ahead, t->ahead_keys, t->c->size_v, p.rows, &p);
    fetch = p.fetch;
    for (x = 0; x < t->c->size_v; x += p.rows) {
        p.a = v.at + x * v.column;
        p.rows = attn__min(t->c->size_v - x, 2 * ATTN__AMX_SIDE);
        if (fetch) p.fetch = attn__ahead(fetch, x, p.fetch_row);
        t->c->pairs->product(&p);
        m.rows = p.rows;
        m.to = t->m.part + x * t->ld;
        m.o = o ? o + x * t->ld : NULL;
        finite &= t->f->merge(&m);
    }
    return finite;
}

/* The weighted values of a chunk: chain by chain, which loses less to rounding than one long chain; the last one is
   added to the others where the chunk is merged, unless that is for later. Returns as the one above. Not inlined, as
   chunk_weights. */
ATTN__NOINLINE static int attn__chunk_outputs(attn__tile *t, int64_t c0, const attn__reach *r, int32_t kind,
                                              const float *old, const float *fresh)
{
    const attn__reach *paired = t->c->fast & ATTN__FAST_VALUES ? r : NULL;
    const int64_t of_pairs = attn__by_amx(t->c) ? (int64_t)ATTN__CHUNK : (int64_t)ATTN__CHAIN / 2;
    const int64_t chain = paired ? of_pairs : (int64_t)ATTN__CHAIN;
    const int64_t size = t->c->size_v;
    const int by_few = t->skinny && kind == ATTN__PRODUCT;
    attn__stretch all;
    attn__reach half;
    int64_t j, end;
    if (paired) {
        attn__to_bf16_pairs(t, paired, &half);
        r = &half;
        all = attn__stretch_at(r, 0, r->n);
        if (attn__by_amx(t->c) && !t->slots && all.end == r->n && all.to - all.from == t->vecs)
            return attn__merge_values(t, c0, paired, r, kind, old, fresh);
    }
    for (j = 0; j < r->n; j = end) {
        float *part = j ? t->m.part : t->m.acc;
        end = attn__min(r->n, j + chain);
        if (by_few) attn__skinny_chain(&t, 1, c0, j, end, r);
        else attn__chunk_values(t, c0, j, end, r, paired, kind, part);
        if (by_few || !j) continue;
        if (end == r->n && !t->skinny && !t->slots) {
            const attn__merging m = {size, t->ld, part, t->m.acc, attn__outputs_before(t, c0), part, old, fresh};
            return t->f->merge(&m);
        }
        attn__add_chain(t, size, t->ld, part);
    }
    if (t->skinny && !by_few) attn__skinny_from_lanes(t);
    return t->slots ? t->f->finite(t->m.acc, attn__output_floats(t)) : attn__merge_outputs(t, c0, old, fresh);
}

/* Masked scores as results; as f32 weights too, for now: attn__finish_weights turns them. */
ATTN__INLINE void attn__store_chunk_scores(attn__tile *t, int64_t c0, int64_t n)
{
    const float *factor = t->unscaled ? t->scale : t->ones;
    attn__store_lanes(t, &t->c->scores_masked, c0, n, factor, t->m.s);
    if (attn__is_f32(&t->c->weights)) attn__store_lanes(t, &t->c->weights, c0, n, factor, t->m.s);
}

/* Where keys are cut among tasks: the first chunk of a part of those that a tile visits; mere room takes no time. */
static int64_t attn__chunk_of_part(const attn__tile *t, int64_t part)
{
    const int all = attn__visits_all_keys(t->c);
    const int64_t first = all ? 0 : t->first / ATTN__CHUNK, parts = t->c->cut.parts;
    const int64_t chunks = ((all ? t->c->keys : t->last) + ATTN__CHUNK - 1) / ATTN__CHUNK - first;
    return first + attn__quotient(chunks * part + parts - 1, parts);
}

/* A chunk leaves its outputs, maximum and sum of each row in a slot, */
static float *attn__slot(const attn__tile *t, int64_t c0)
{
    return t->slots + (c0 / ATTN__CHUNK - attn__chunk_of_part(t, 1) + 1) * t->lanes * t->c->slot_floats;
}

static void attn__save_chunk(const attn__tile *t, float *slot, const float *cmax, const float *csum)
{
    const int64_t outputs = attn__has_outputs(t->c) ? t->c->size_v : 0;
    float *rows[ATTN__MAX_LANES];
    int64_t l;
    for (l = 0; l < t->lanes; l++) {
        rows[l] = slot + 2 * t->lanes + l * outputs;
        slot[l] = cmax[l];
        slot[t->lanes + l] = csum[l];
    }
    if (t->skinny)
        for (l = 0; l < t->lanes; l++) attn__copy_floats(rows[l], t->m.acc + l * attn__skinny_row(t), outputs);
    else if (outputs) t->f->unpack(rows, t->lanes, 1, t->m.acc, t->ld, outputs, t->ones);
}

/* or the first part all of its chunks', */
static void attn__save_part(attn__tile *t, float *slot)
{
    t->m.acc = t->m.o;
    attn__save_chunk(t, slot, t->top, t->sum);
}

/* and they are joined from there. */
static void attn__load_slot(const attn__tile *t, const float *slot, float *cmax, float *csum, float *to)
{
    const int64_t outputs = attn__has_outputs(t->c) ? t->c->size_v : 0, row = attn__skinny_row(t);
    int64_t l;
    for (l = 0; l < t->ld; l++) {
        cmax[l] = slot[attn__min(l, t->lanes - 1)];
        csum[l] = slot[t->lanes + attn__min(l, t->lanes - 1)];
    }
    slot += 2 * t->lanes;
    if (!t->skinny && outputs) attn__skinny_transpose(t, slot, outputs, outputs, to);
    for (l = 0; t->skinny && l < t->lanes; l++) {
        attn__copy_floats(to + l * row, slot + l * outputs, outputs);
        attn__fill(to + l * row + outputs, 1, row - outputs, 0.0f);
    }
}

static void attn__join_saved(attn__tile *t, int64_t c0)
{
    float cmax[ATTN__MAX_LANES], csum[ATTN__MAX_LANES], old[ATTN__MAX_LANES], fresh[ATTN__MAX_LANES];
    attn__load_slot(t, attn__slot(t, c0), cmax, csum, t->m.acc);
    t->f->join(t->ld, t->top, t->sum, cmax, csum, old, fresh);
    if (!attn__has_outputs(t->c)) return;
    attn__merge_outputs(t, c0, old, fresh);
    attn__keep_part(t);
}

static int attn__are_zeros(const uint8_t *row, int64_t n)
{
    uint64_t eight, any = 0;
    int64_t j;
    for (j = 0; j < n; j += 8) {
        ATTN__COPY(&eight, row + j, sizeof eight);
        any |= eight;
    }
    return !any;
}

/* The first key from j on, before `end`, that a row of a mask admits; or the end. Then the other way round: after the
   last one; or j. */
static int64_t attn__first_admitted(const uint8_t *row, int64_t step, int64_t j, int64_t end)
{
    while (step == 1 && j + 64 <= end && attn__are_zeros(row + j, 64)) j += 64;
    while (step == 1 && j + 8 <= end && attn__are_zeros(row + j, 8)) j += 8;
    while (j < end && !row[j * step]) j++;
    return j;
}

static int64_t attn__last_admitted(const uint8_t *row, int64_t step, int64_t j, int64_t end)
{
    while (step == 1 && end - 64 >= j && attn__are_zeros(row + end - 64, 64)) end -= 64;
    while (step == 1 && end - 8 >= j && attn__are_zeros(row + end - 8, 8)) end -= 8;
    while (end > j && !row[(end - 1) * step]) end--;
    return end;
}

/* Between which of a chunk's keys are all that the masks admit for some lane? Mostly the first bytes and the last ones
   say that these are all. */
static void attn__find_admitted(const attn__tile *t, int64_t c0, int64_t n, int64_t *from, int64_t *to)
{
    const int whole = t->all_first <= c0 && t->all_last >= c0 + n;
    const attn__array *mask;
    int64_t l, j;
    int field = 0;
    *from = 0;
    *to = n;
    while ((mask = attn__next_mask(t->c, &field)) != NULL) {
        const int64_t step = mask->stride[3];
        const uint8_t *row = NULL, *before;
        int64_t first = n, last = 0;
        for (l = 0; l < t->lanes && (first > 0 || last < n); l++) {
            const int64_t lane_first = attn__max(t->row[l].first - c0, 0);
            const int64_t lane_last = attn__min(t->row[l].last - c0, n);
            before = row;
            row = (const uint8_t *)mask->data + attn__index(mask, t->b, t->h[l], t->i[l], c0);
            if (row == before && whole) continue;           /* one row for all */
            j = attn__first_admitted(row, step, lane_first, lane_last);
            if (j >= lane_last) continue;                   /* none */
            first = attn__min(first, j);
            last = attn__max(last, attn__last_admitted(row, step, attn__max(last, j), lane_last));
        }
        *from = attn__max(*from, first);
        *to = attn__min(*to, last);
    }
}

/* A chunk that the masks exclude, without its products: nothing is merged, which changes no bit. */
static void attn__skip_chunk(attn__tile *t, int64_t c0, int64_t n)
{
    const attn__call *c = t->c;
    float cmax[ATTN__MAX_LANES], csum[ATTN__MAX_LANES];
    if (c->scores_masked.rank || c->weights.rank) {
        attn__fill(t->m.s, 1, n * t->ld, ATTN__NEG_INF);
        attn__store_chunk_scores(t, c0, n);
    }
    if (t->slots) {
        attn__fill(cmax, 1, t->ld, ATTN__NEG_INF);
        attn__fill(csum, 1, t->ld, 0.0f);
        attn__fill(t->m.acc, 1, attn__output_floats(t), 0.0f);
        attn__save_chunk(t, attn__slot(t, c0), cmax, csum);
    } else if (!attn__outputs_before(t, c0) && attn__has_outputs(c))
        attn__fill(t->m.o, 1, attn__output_floats(t), 0.0f);
}

static void attn__chunk(attn__tile *t, int64_t c0, int64_t n)
{
    const attn__call *c = t->c;
    float cmax[ATTN__MAX_LANES], csum[ATTN__MAX_LANES], old[ATTN__MAX_LANES], fresh[ATTN__MAX_LANES];
    attn__reach r;
    const int dots = c->plain_scores && attn__score_of(c)->qk == attn__dot_qk &&
                     (attn__by_amx(c) || !(c->fast & ATTN__FAST_SCORES));
    const int biased = c->bias.rank && !c->alibi.rank && !c->masked &&
                       ATTN__CHUNK * t->ld > ATTN__CACHE_FLOATS;        /* else to read them once more costs nothing */
    int32_t kind;
    t->unscaled = (c->fast & ATTN__FAST_SCORES) && attn__makes_pairs(c) && c->scale > 0.0f && c->softcap == 0.0f &&
                  !c->bias.rank && !c->alibi.rank;
    attn__find_reach(t, c0, n, &r);
    r.hull_only = c->plain_scores && !t->skinny && r.ascending && !r.gaps;
    if ((dots || biased) && !t->skinny && (r.whole || (r.hull_only && t->all_first <= c0)))
        t->lane_max = cmax;                                             /* see there */
    for (kind = ATTN__PRODUCT;; kind = ATTN__PRODUCT_OF_ALLOWED) {
        if (t->lane_max) attn__fill(cmax, 1, t->ld, ATTN__NEG_INF);
        t->as_rows = t->skinny && c->plain_scores && r.whole && c->dropout == 0.0f && kind == ATTN__PRODUCT &&
                    attn__score_of(c)->qk == attn__dot_qk;
        attn__chunk_scores(t, c0, n, &r);
        if (kind == ATTN__PRODUCT) attn__store_chunk_scores(t, c0, n);
        if (t->as_rows) attn__skinny_weights(t, n, cmax, csum);
        else attn__chunk_weights(t, c0, n, &r, kind != ATTN__PRODUCT, cmax, csum);
        if (!t->slots && kind == ATTN__PRODUCT) t->f->join(t->ld, t->top, t->sum, cmax, csum, old, fresh);
        if (!attn__has_outputs(c) || !c->size_v) break;
        if (attn__chunk_outputs(t, c0, &r, kind, old, fresh)) break;
        if (kind != ATTN__PRODUCT) break;           /* NaN, Inf or overflow: once more, without excluded lanes */
    }
    t->lane_max = NULL;
    t->unscaled = 0;
    if (t->slots) attn__save_chunk(t, attn__slot(t, c0), cmax, csum);
    else if (attn__has_outputs(c)) attn__keep_part(t);
}

/* What the masks exclude for all lanes is out of their reach, as after a window: it is not computed. */
static void attn__masked_chunk(attn__tile *t, int64_t c0, int64_t n)
{
    const int64_t all_first = t->all_first, all_last = t->all_last;
    attn__row row[ATTN__MAX_LANES];
    int64_t l, from, to;
    attn__find_admitted(t, c0, n, &from, &to);
    if (from >= to) attn__skip_chunk(t, c0, n);
    else if (to - from > n - ATTN__CHUNK/4) attn__chunk(t, c0, n);          /* too little would be left out */
    else {
        ATTN__COPY(row, t->row, sizeof row);
        for (l = 0; l < t->ld; l++) {
            t->row[l].first = attn__max(row[l].first, c0 + from);
            t->row[l].last = attn__min(row[l].last, c0 + to);
        }
        t->all_first = attn__max(all_first, c0 + from);
        t->all_last = attn__min(all_last, c0 + to);
        attn__chunk(t, c0, t->c->scores_masked.rank || t->c->weights.rank ? n : to);
        ATTN__COPY(t->row, row, sizeof row);
        t->all_first = all_first;
        t->all_last = all_last;
    }
}

/* The same for the tiles of several heads, some keys of all of them before the next: where the rows of the heads lie
   side by side, memory is read in its order then. */
static int attn__reach_whole(attn__tile *const *tiles, int64_t count, int64_t c0, int64_t n)
{
    for (; count > 0; count--, tiles++)
        if (!tiles[0]->skinny || tiles[0]->all_first > c0 || tiles[0]->all_last < c0 + n) return 0;
    return 1;
}

/* Not inlined, for the stack's sake. */
ATTN__NOINLINE static void attn__chunk_of_heads(attn__tile *const *tiles, int64_t count, int64_t c0, int64_t n,
                                                float **free_part)
{
    float cmax[ATTN__TASK_HEADS][ATTN__MAX_WIDTH], csum[ATTN__TASK_HEADS][ATTN__MAX_WIDTH];
    int64_t i, j;
    attn__reach r;
    attn__find_reach(tiles[0], c0, n, &r);
    for (i = 0; i < count; i++) tiles[i]->as_rows = 1;
    if (attn__heads_are_lanes(tiles[0], count)) attn__scores_of_lanes(tiles, count, c0, n);
    else attn__skinny_scores_of_heads(tiles, count, c0, 0, n);
    for (i = 0; i < count; i++) attn__skinny_weights(tiles[i], n, cmax[i], csum[i]);
    for (j = 0; j < n; j += ATTN__CHAIN)
        attn__skinny_chain(tiles, count, c0, j, attn__min(n, j + ATTN__CHAIN), &r);
    for (i = 0; i < count; i++) {
        attn__tile *t = tiles[i];
        t->m.part = *free_part;
        if (!t->f->finite(t->m.acc, attn__output_floats(t))) attn__chunk(t, c0, n);     /* rare */
        else if (t->slots) attn__save_chunk(t, attn__slot(t, c0), cmax[i], csum[i]);
        else {
            float old[ATTN__MAX_WIDTH], fresh[ATTN__MAX_WIDTH];
            t->f->join(t->ld, t->top, t->sum, cmax[i], csum[i], old, fresh);
            attn__merge_outputs(t, c0, old, fresh);
            attn__keep_part(t);
        }
        *free_part = t->m.part;
    }
}

/* ---- softmax of given rows, masked at most: row by row, where they lie */
/* Where row l lies; with masks the weights' row, with the scores in it and -inf where they exclude. */
static const float *attn__softmax_only_scores(const attn__tile *t, int64_t l)
{
    const attn__call *c = t->c;
    const int64_t b = t->b, h = t->h[l], i = t->i[l], first = t->row[l].first, n = t->row[l].last - first;
    const float *x = attn__at(&c->given_scores, b, h, i, 0);
    const attn__array *mask;
    float *w;
    int field = 0;
    while ((mask = attn__next_mask(c, &field)) != NULL) {
        w = attn__at(&c->weights, b, h, i, 0);
        t->f->exclude_in_row(x + first, w + first, n,
                             (const uint8_t *)mask->data + attn__index(mask, b, h, i, first), mask->stride[3]);
        x = w;
    }
    return x;
}

/* Chunks in ascending order into the row's maximum and sum; lanes are chunks on the way. */
static void attn__softmax_only_join(attn__tile *t, int64_t l, int64_t chunks, float *tops, float *sums)
{
    float before[ATTN__PARTS + 1], none[ATTN__PARTS] = {0}, old[ATTN__PARTS], fresh[ATTN__PARTS];
    int64_t c;
    attn__fill(tops + chunks, 1, ATTN__PARTS - chunks, ATTN__NEG_INF);
    before[0] = t->top[l];
    for (c = 0; c < ATTN__PARTS; c++) before[c + 1] = attn__larger(tops[c], before[c]);
    t->top[l] = before[chunks];
    t->f->join(ATTN__PARTS, before, none, tops, attn__zeros, old, fresh);
    for (c = 0; c < chunks; c++) t->sum[l] = attn__fma(sums[c], fresh[c], t->sum[l] * old[c]);
}

/* A row's maximum and sum. Chunks and the 16 sums go by absolute key, so edges are filled up. */
static void attn__softmax_only_row(attn__tile *t, int64_t l)
{
    const float *x = attn__softmax_only_scores(t, l), scale = t->c->scale;
    const int64_t first = t->row[l].first, last = t->row[l].last;
    float tops[ATTN__PARTS], sums[ATTN__PARTS], *edge = t->m.t;
    int64_t c0, from, to, chunks, n;
    for (c0 = first / ATTN__CHUNK * ATTN__CHUNK; c0 < last; c0 += chunks * ATTN__CHUNK) {
        chunks = attn__min((last - c0) / ATTN__CHUNK, ATTN__PARTS);
        if (c0 < first || chunks == 0) {
            chunks = 1;
            from = attn__max(first, c0);
            to = attn__min(last, c0 + ATTN__CHUNK);
            n = attn__up(to - c0, ATTN__PARTS);
            attn__fill(edge, 1, from - c0, ATTN__NEG_INF);
            attn__copy_floats(edge + (from - c0), x + from, to - from);
            attn__fill(edge + (to - c0), 1, n - (to - c0), ATTN__NEG_INF);
            t->f->softmax_row(edge, NULL, 1, n, scale, tops, sums);
        } else t->f->softmax_row(x + c0, NULL, chunks, ATTN__CHUNK, scale, tops, sums);
        attn__softmax_only_join(t, l, chunks, tops, sums);
    }
}

/* ---- keys in parts: what a tile keeps from chunk to chunk goes on from call to call. What its rows begin with: */
static void attn__begin_outputs(attn__tile *t)
{
    const attn__call *c = t->c;
    const attn__array *carry = &c->carry_in;
    const int64_t size = c->size_v, row = attn__skinny_row(t);
    int64_t l;
    if (!carry->rank) {
        if (attn__has_outputs(c) && t->first >= t->last) attn__fill(t->m.o, 1, attn__output_floats(t), 0.0f);
        return;
    }
    for (l = 0; l < t->ld; l++) {
        t->top[l] = attn__read(carry, t->b, t->h[l], t->i[l], size);
        t->sum[l] = attn__read(carry, t->b, t->h[l], t->i[l], size + 1);
    }
    if (!attn__has_outputs(c)) return;
    if (!t->skinny) attn__load_lanes(t, carry, 0, size, t->ones, t->m.o);
    else for (l = 0; l < t->lanes; l++) {
        attn__copy_row(t->f, attn__in(carry, t->b, t->h[l], t->i[l], 0), size, t->m.o + l * row);
        attn__fill(t->m.o + l * row + size, 1, row - size, 0.0f);
    }
}

/* and after the last. */
static void attn__store_carry(const attn__tile *t)
{
    const attn__array *carry = &t->c->carry_out;
    const int64_t size = t->c->size_v;
    int64_t l;
    if (attn__has_outputs(t->c)) attn__store_lanes(t, carry, 0, size, t->ones, t->m.o);
    for (l = 0; l < t->lanes; l++) {
        attn__write(carry, t->b, t->h[l], t->i[l], size, t->top[l]);
        attn__write(carry, t->b, t->h[l], t->i[l], size + 1, attn__quiet(t->sum[l]));
    }
}

/* ---- a tile is opened */
/* Its rows from query i of head h on, and what they may reach */
static void attn__open_lanes(attn__tile *t, int64_t h, int64_t i)
{
    const attn__call *c = t->c;
    const int64_t ld = t->ld, lanes = t->lanes, queries = c->queries;
    attn__row row = {0, 0, 0};
    int64_t first = ATTN__HUGE, last = 0, all_first = 0, all_last = ATTN__HUGE, l, end;
    t->head = h;
    t->lane_max = NULL;
    attn__fill(t->scale, 1, t->ld, c->scale);
    attn__fill(t->ones, 1, t->ld, 1.0f);
    attn__fill(t->top, 1, t->ld, ATTN__NEG_INF);
    attn__fill(t->sum, 1, t->ld, 0.0f);
    for (l = 0; l < lanes; h++, i = 0)
        for (end = attn__min(lanes, l + queries - i); l < end; l++) {
            t->h[l] = h;
            t->i[l] = i++;
        }
    for (; l < ld; l++) {               /* after the last row: once more */
        t->h[l] = t->h[l - 1];
        t->i[l] = t->i[l - 1];
    }
    for (l = 0; l < (c->same_reach ? 1 : ld); l++) {
        row = attn__row_of(c, t->b, t->i[l]);
        if (row.first < row.last) {
            first = attn__min(row.first, first);
            last = attn__max(row.last, last);
        }
        all_first = attn__max(row.first, all_first);
        all_last = attn__min(row.last, all_last);
        t->row[l] = row;
    }
    for (; l < ld; l++) t->row[l] = row;
    for (l = 0; c->alibi.rank && l < t->ld; l++) t->slope[l] = attn__of_head(&c->alibi, t->h[l]);
    t->first = first < last ? first : 0;
    t->last = first < last ? last : 0;
    t->all_first = all_first;
    t->all_last = all_last;
}

/* Loads the lanes' queries, transformed into what keys are multiplied by. A row that reaches no key is not read, unless
   its scores are asked for: the reached one before it, or else the first one, stands in for it. Not inlined, for the
   stack's sake. */
ATTN__NOINLINE static void attn__load_queries(attn__tile *t)
{
    const attn__call *c = t->c;
    void (*const load)(attn__tile *t) = attn__score_of(c)->load;
    int64_t h[ATTN__MAX_LANES], i[ATTN__MAX_LANES], l, some = 0;
    if (!load) return;
    if (t->all_last > 0 || c->same_reach || c->scores.rank || c->scores_softcap.rank) {      /* > 0: none is empty */
        load(t);
        return;
    }
    if (t->first >= t->last) return;
    for (l = t->ld - 1; l >= 0; l--) if (t->row[l].first < t->row[l].last) some = l;
    ATTN__COPY(h, t->h, sizeof h);
    ATTN__COPY(i, t->i, sizeof i);
    for (l = 0; l < t->ld; l++) {
        if (t->row[l].first < t->row[l].last) some = l;
        t->h[l] = h[some];
        t->i[l] = i[some];
    }
    load(t);
    ATTN__COPY(t->h, h, sizeof h);
    ATTN__COPY(t->i, i, sizeof i);
}

/* A tile of stream `index` of all; first: NULL, or the task's. */
static attn__tile *attn__tile_of_stream(attn__task *task, int64_t index, const attn__tile *first)
{
    const attn__call *c = task->c;
    attn__tile *t = first ? attn__take_next_tile(&task->memory, c, first) : attn__take_tile(&task->memory, c);
    const int64_t b = attn__quotient(index, c->streams);
    t->stream = index - b * c->streams;
    t->b = c->entry + b;
    t->head = t->stream * c->stream_heads;
    t->head_kv = c->streams == c->heads_kv ? t->stream : t->head / (c->heads / c->heads_kv);
    t->ld = c->ld;
    t->vecs = c->f->vecs;
    t->prepared = task->shared.prepared;
    if (t->prepared) t->prepared += attn__keys_before(c, t->b, t->stream) * c->key_floats;
    return t;
}

static attn__tile *attn__open_tile(attn__task *task, int64_t index, const attn__tile *first)
{
    const attn__call *c = task->c;
    const int64_t stream = attn__quotient(index, c->tiles);
    attn__tile *t = attn__tile_of_stream(task, stream, first);
    int64_t row0, head;
    t->vecs = (int32_t)attn__share(attn__blocks(c->stream_rows, t->f->width), c->tiles, index - stream * c->tiles,
                                   &row0);
    row0 *= t->f->width;
    t->ld = t->vecs * t->f->width;
    t->lanes = attn__min(c->stream_rows - row0, t->ld);
    t->skinny = attn__is_skinny(c, t->lanes);
    t->as_rows = t->unscaled = 0;
    t->ahead = t->ahead_keys = t->below = 0;
    t->slots = NULL;
    head = attn__quotient(row0, c->queries);
    attn__open_lanes(t, t->head + head, row0 - head * c->queries);
    return t;
}

/* What comes before the chunks. first: of its keys */
static void attn__begin_tile(attn__tile *t, int64_t from, int64_t to, int first)
{
    const attn__call *c = t->c;
    int64_t l;
    attn__load_queries(t);
    if (attn__visits_all_keys(c)) attn__store_raw_scores(t, from, to);
    if (!first) return;
    attn__begin_outputs(t);
    for (l = 0; c->keys < c->all_keys && l < t->lanes; l++) {
        attn__fill_outside(&c->weights, t->b, t->h[l], t->i[l], c, 0.0f);
        attn__fill_outside(&c->scores, t->b, t->h[l], t->i[l], c, ATTN__NEG_INF);
        attn__fill_outside(&c->scores_softcap, t->b, t->h[l], t->i[l], c, ATTN__NEG_INF);
        attn__fill_outside(&c->scores_masked, t->b, t->h[l], t->i[l], c, ATTN__NEG_INF);
    }
}

/* ---- the end of a tile: per row 1/mass, then outputs, log-sum-exp and weights */
/* A weight of a row under ATTN_EMPTY_UNIFORM, after dropout. */
static float attn__uniform_weight(const attn__call *c, attn__dropper *drop, int64_t j)
{
    const float weight = 1.0f / (float)c->keys;
    if (c->dropout == 0.0f) return weight;
    return attn__kept(drop, j) ? weight * c->keep_scale : 0.0f;
}

static void attn__uniform_row(const attn__tile *t, int64_t l)
{
    const attn__call *c = t->c;
    attn__dropper drop = attn__dropper_of(c, t->b, t->h[l], t->i[l]);
    const int64_t columns = c->out.rank ? c->size_v : 0;
    float *o = t->m.o + l, *acc = t->m.acc + l;
    attn__rows v = {NULL, 0, 0};
    int64_t x, j, one = 1;
    attn__fill(o, t->ld, columns, 0.0f);
    attn__fill(acc, t->ld, columns, 0.0f);
    for (j = 0; j < c->keys; j++) {
        const float w = attn__uniform_weight(c, &drop, j);
        if (columns) v = attn__keys_of(t, &c->v, j, &one, columns);
        for (x = 0; x < columns; x++)
            acc[x * t->ld] = attn__fma(w, v.at[x * v.column], acc[x * t->ld]);
        if (j % ATTN__CHUNK == ATTN__CHUNK - 1 || j == c->keys - 1) {
            for (x = 0; x < columns; x++) o[x * t->ld] = o[x * t->ld] + acc[x * t->ld];
            attn__fill(acc, t->ld, columns, 0.0f);
        }
        if (c->weights.rank)
            attn__write(&c->weights, t->b, t->h[l], t->i[l], j,
                        c->weights_after_dropout ? w : 1.0f / (float)c->keys);
    }
}

/* Weights c0 .. c0+n of a row from its scores, x[j*stride]; x may be where they go. */
static void attn__store_weights(const attn__tile *t, int64_t l, int64_t c0, int64_t n, const float *x, int64_t stride,
                                float inverse)
{
    const attn__call *c = t->c;
    const attn__array *o = &c->weights;
    const int direct = attn__is_contiguous(o);
    const float base = attn__is_none(t->top[l]) ? 0.0f : t->top[l];
    float *w = direct ? attn__at(o, t->b, t->h[l], t->i[l], c0) : t->m.t;
    int64_t j;
    for (j = 0; stride != 1 && j < n; j++) w[j] = x[j * stride];
    t->f->normalise(stride == 1 ? x : w, w, n, c->softmax_only ? c->scale : 1.0f, base, inverse);
    if (c->weights_after_dropout && c->dropout > 0.0f) {
        attn__dropper drop = attn__dropper_of(c, t->b, t->h[l], t->i[l]);
        for (j = 0; j < n; j++) w[j] = attn__kept(&drop, c0 + j) ? w[j] * c->keep_scale : 0.0f;
    }
    if (!direct) attn__store_row(t->f, attn__in(o, t->b, t->h[l], t->i[l], c0), n, w);
}

/* One row of weights, which holds masked scores in the chunks that were visited; in the plain case only under masks. */
static void attn__finish_weights(const attn__tile *t, int64_t l, float inverse)
{
    const attn__call *c = t->c;
    int field = 0;
    const attn__array *from = c->softmax_only && !attn__next_mask(c, &field) ? &c->given_scores : &c->weights;
    const int64_t first = c->softmax_only ? t->row[l].first : t->first / ATTN__CHUNK * ATTN__CHUNK;
    const int64_t last = c->softmax_only ? t->row[l].last : t->last;
    int64_t c0, n;
    attn__fill_lane(t, &c->weights, l, 0, first < last ? first : c->keys, 0.0f);
    for (c0 = first; c0 < last && attn__is_f32(from); c0 += n) {
        n = attn__min(last - c0, ATTN__CHUNK);
        attn__store_weights(t, l, c0, n, attn__at(from, t->b, t->h[l], t->i[l], c0), from->stride[3], inverse);
    }
    if (first < last) attn__fill_lane(t, &c->weights, l, last, c->keys, 0.0f);
}

/* All of them where they could not hold scores, since they are not f32: these are computed again. inverse: as below */
ATTN__NOINLINE static void attn__store_all_weights(attn__tile *t, const float *inverse)
{
    int64_t l, c0, n;
    attn__reach r;
    attn__load_queries(t);
    for (c0 = t->first / ATTN__CHUNK * ATTN__CHUNK; c0 < t->last; c0 += n) {
        n = attn__min(t->last - c0, ATTN__CHUNK);
        attn__find_reach(t, c0, n, &r);
        attn__chunk_scores(t, c0, n, &r);
        for (l = 0; l < t->lanes; l++)
            if (!(inverse[l] < 0.0f)) attn__store_weights(t, l, c0, n, t->m.s + l, t->ld, inverse[l]);
    }
}

/* One row's log-sum-exp and weights; returns what its outputs are multiplied by. *inverse: what its weights are, -1 for
   an empty row, whose weights are there already. */
static float attn__finish_row(attn__tile *t, int64_t l, float *inverse)
{
    const attn__call *c = t->c;
    float top = t->top[l], sum = t->sum[l], own, share;
    if (c->stats.rank) {
        attn__write(&c->stats, t->b, t->h[l], t->i[l], 0, top);
        attn__write(&c->stats, t->b, t->h[l], t->i[l], 1, attn__quiet(sum));
    }
    share = attn__add_sink(c, t->h[l], &top, &sum, &own);
    if (c->lse.rank)
        attn__write(&c->lse, t->b, t->h[l], t->i[l], 0,
                    sum == 0.0f ? ATTN__NEG_INF : attn__quiet(top + attn__log(sum)));
    *inverse = sum == 0.0f ? -1.0f : share / sum;
    if (sum == 0.0f && c->empty == ATTN_EMPTY_UNIFORM) {
        attn__uniform_row(t, l);
        return 1.0f;
    }
    if (sum == 0.0f) {
        const float value = c->empty == ATTN_EMPTY_NAN ? ATTN__NAN : 0.0f;
        if (c->weights.rank) attn__fill_lane(t, &c->weights, l, 0, c->keys, value);
        return value;
    }
    if (c->weights.rank) attn__finish_weights(t, l, *inverse);
    return c->dropout > 0.0f ? *inverse * c->keep_scale : *inverse;
}

static void attn__finish_tile(attn__tile *t)
{
    const attn__call *c = t->c;
    const int out_alone = !c->stats.rank && !c->lse.rank && !c->weights.rank && !c->sink.rank &&
                          !c->scores_masked.rank && c->empty == ATTN_EMPTY_ZERO && c->dropout == 0.0f;
    float inverse[ATTN__MAX_LANES], factor[ATTN__MAX_LANES];
    int64_t l;
    if (out_alone) t->f->invert(t->sum, factor, t->ld);         /* not one by one: unpack would wait for these stores */
    if (out_alone && t->skinny && !c->carry_out.rank) {
        attn__store_skinny_rows(t, factor);
        return;
    }
    if (t->skinny && attn__has_outputs(c)) {
        attn__skinny_transpose(t, t->m.o, attn__skinny_row(t), c->size_v, t->m.part);
        attn__keep_part(t);
    }
    if (c->carry_out.rank) attn__store_carry(t);
    for (l = 0; !out_alone && l < t->lanes; l++) {
        if (c->softmax_only) attn__softmax_only_row(t, l);
        factor[l] = attn__finish_row(t, l, &inverse[l]);
        if (!c->scores_masked.rank) continue;       /* the chunks that were not visited */
        attn__fill_lane(t, &c->scores_masked, l, 0, t->first / ATTN__CHUNK * ATTN__CHUNK, ATTN__NEG_INF);
        attn__fill_lane(t, &c->scores_masked, l, t->last, c->keys, ATTN__NEG_INF);
    }
    for (l = t->lanes; !out_alone && l < t->ld; l++) factor[l] = 0.0f;
    if (!attn__is_f32(&c->weights) && !c->softmax_only) attn__store_all_weights(t, inverse);
    attn__store_lanes(t, &c->out, 0, c->size_v, factor, t->m.o);
}

/* ---- tasks: all of some tiles, or a part of the keys of one */
static int attn__has_row_results(const attn__call *c)
{
    return c->out.rank || c->lse.rank || c->weights.rank || c->scores_masked.rank || c->stats.rank || c->carry_out.rank;
}

static void attn__run_keys(attn__task *task)
{
    const attn__call *c = task->c;
    const int64_t stream = task->index / c->key_blocks;
    attn__tile *t = attn__tile_of_stream(task, stream, NULL);
    attn__fill(t->ones, 1, t->ld, 1.0f);
    attn__prepare_keys(t, task->index % c->key_blocks * ATTN__CHUNK,
                       task->shared.prepared + stream * c->keys * c->key_floats);
}

static void attn__run_entries(attn__task *task) { attn__count_entries(task->c, 0, task->shared.entries); }
/* The call of a task's rows: that of an entry where these have tasks of their own, of which the index becomes one. */
static const attn__call *attn__entry_call(attn__task *task)
{
    const attn__call *c = task->c;
    const int64_t *before = task->shared.entries;
    attn__call *e;
    int64_t f = 0, end = 2 * c->batch, middle;
    if (!c->by_entry) return c;
    while (end - f > 1) {                           /* the last one with before[f] <= index */
        middle = f + (end - f) / 2;
        if (before[middle] <= task->index) f = middle;
        else end = middle;
    }
    e = (attn__call *)(void *)attn__take(&task->memory, 1, ATTN__CALL_FLOATS);
    if (c->ragged) attn__open_entry(c, f / 2, (int)(f % 2), e);
    else {
        ATTN__COPY(e, c, offsetof(attn__call, d_out));
        e->entry = f / 2;
    }
    if (c->work) e->cut = attn__cut_of(c, f / 2, (int)(f % 2));
    e->slot0 = before[2 * c->batch + 1 + f];
    task->index -= before[f];
    return task->c = e;
}

/* Under causal masks later tiles take longer: they come first, of all heads, so that no worker waits long for the last
   task. Where tasks are many, those of a head stay neighbours, as they read the same keys. */
static int64_t attn__longest_first(const attn__call *c, int64_t index, int64_t groups)
{
    int64_t x;
    if (c->workers == 1 || c->right == ATTN__HUGE || c->task_heads > 1 ||
        attn__mul64(c->batch, groups) / 8 > attn__tasks_wanted(c)) return index;
    x = attn__quotient(index, c->streams);
    return (index - x * c->streams + 1) * attn__quotient(groups, c->streams) - 1 - x;
}

static float *attn__slots_of_tile(const attn__task *task, const attn__tile *t)
{
    const attn__call *c = t->c;
    const int64_t row = ((t->b - c->entry) * c->heads + t->h[0]) * c->queries + t->i[0];
    return task->shared.slots + (c->slot0 + row * c->cut.slots) * c->slot_floats;
}

static void attn__run_group(attn__task *task)
{
    const attn__call *c = task->c;
    const int several = c->task_heads > 1;
    const int64_t of = several ? c->streams : c->tiles, side = several ? c->task_heads : c->task_tiles;
    const int64_t each = attn__blocks(of, side), groups = several ? each : c->streams * each;
    const int64_t index = attn__quotient(task->index, c->cut.parts), part = task->index - index * c->cut.parts;
    const int64_t entry = attn__quotient(index, groups);
    const int64_t group = entry * groups + attn__longest_first(c, index - entry * groups, groups);
    const int64_t whole = attn__quotient(group, each), tile0 = (group - whole * each) * side;
    const int64_t n = attn__min(of - tile0, side);
    attn__tile *tiles[ATTN__MOST_TILES] = {NULL}, *t;
    float *free_part;
    int64_t i, c0, from = ATTN__HUGE, to = 0;       /* the chunks that some tile has */
    for (i = 0; i < n; i++) {
        t = tiles[i] = attn__open_tile(task, whole * of + tile0 + i, tiles[0]);
        t->ahead_keys = attn__share(ATTN__CHUNK, n, i, &t->ahead);
        from = attn__min(attn__chunk_of_part(t, part) * ATTN__CHUNK, from);
        to = attn__max(attn__min(attn__chunk_of_part(t, part + 1) * ATTN__CHUNK, c->keys), to);
    }
    if (part && from >= to) return;
    for (i = 0; i < n; i++) {
        if (part) tiles[i]->slots = attn__slots_of_tile(task, tiles[i]);
        attn__begin_tile(tiles[i], from, to, part == 0);
    }
    if (!attn__has_row_results(c)) return;
    if (n > 1 && attn__heads_are_lanes(tiles[0], n)) attn__heads_to_lanes(tiles, n);
    free_part = tiles[0]->m.part;               /* a tile merges its outputs into it, and leaves the old ones' place */
    for (c0 = from; !c->softmax_only && c0 < to; c0 += ATTN__CHUNK) {
        const int64_t keys = attn__min(tiles[0]->last - c0, ATTN__CHUNK);
        if (c->task_heads > 1 && keys > 0 && attn__reach_whole(tiles, n, c0, keys)) {
            attn__chunk_of_heads(tiles, n, c0, keys, &free_part);
            continue;
        }
        for (i = 0; i < n; i++) {
            t = tiles[i];
            if (c0 + ATTN__CHUNK <= t->first || c0 >= t->last) continue;
            t->m.part = free_part;
            (c->masked ? attn__masked_chunk : attn__chunk)(t, c0, attn__min(t->last - c0, ATTN__CHUNK));
            free_part = t->m.part;
        }
    }
    for (i = 0; i < n && part == 0; i++) {
        t = tiles[i];
        t->m.part = free_part;
        if (c->cut.parts == 1) attn__finish_tile(t);
        else attn__save_part(t, attn__slots_of_tile(task, t));
        free_part = t->m.part;
    }
}

/* Groups of an entry; or a part of one, where the keys are cut. */
ATTN__NOINLINE static void attn__run_entry_groups(attn__task *task)
{
    const attn__call *c = attn__entry_call(task);
    const int64_t groups = attn__mul64(attn__groups(c, c->tiles), c->cut.parts), some = attn__groups_of_a_task(c);
    const int64_t used = task->memory.bytes;
    const int64_t first = task->index * some, end = attn__min(first + some, groups);
    for (task->index = first; task->index < end; task->index++) {
        task->memory.bytes = used;
        attn__run_group(task);
    }
}

static void attn__run_tiles(attn__task *task)
{
    if (task->c->by_entry) attn__run_entry_groups(task);
    else attn__run_group(task);
}

static void attn__join_tile(attn__task *task, int64_t index)
{
    attn__tile *t = attn__open_tile(task, index, NULL);
    int64_t c0;
    t->slots = attn__slots_of_tile(task, t);
    attn__load_slot(t, t->slots, t->top, t->sum, t->m.o);
    for (c0 = attn__chunk_of_part(t, 1) * ATTN__CHUNK; c0 < t->last; c0 += ATTN__CHUNK)
        if (c0 + ATTN__CHUNK > t->first) attn__join_saved(t, c0);
    attn__finish_tile(t);
}

static void attn__run_join(attn__task *task)    /* a tile; those of an entry are shared out among its tasks */
{
    const attn__call *c = attn__entry_call(task);
    const int64_t used = task->memory.bytes, step = attn__mul64(attn__groups(c, 1), c->cut.parts);
    int64_t i = task->index, end = c->by_entry ? c->streams : i + 1;
    for (; c->cut.parts > 1 && attn__has_row_results(c) && i < end; i += step) {
        task->memory.bytes = used;
        attn__join_tile(task, i);
    }
}

#ifndef ATTN_NO_BACKWARD

/* --------------------------------------------------------------------------------------------------- >>gradients
   Steps: keys are prepared as in the forward, where a score needs it; per row maximum, 1/mass and delta are found
   (ATTN__R_x); blocks of queries against blocks of keys; sums over rows, in >>sums, become the gradients of parameters.
   A block of queries is ATTN_GRAD_QUERIES rows of one head, cut into tiles of the forward's kind, so that scores,
   masks and the rest are the forward's own code. Per block of keys every tile leaves its weights P and the gradients dS
   of its scores after, [key][query]; three products with lanes along columns take them on:
       dV[j] += P[j][.] dO     dK[j] += dS[j][.] Q     dQ[i] += dS[.][i] K
   each a chain from 0 over the block, then one addition: so the blocks are what defines the bits, not who computes
   them when. Adding an excluded pair's 0 changes nothing as long as the other factor is finite; where one is not, the
   product is made in plain C, without the excluded pairs. */

/* A tile of `lanes` rows of the pass's head, from query i on. */
static void attn__grad_tile(const attn__pass *p, attn__tile *t, int64_t i, int64_t lanes)
{
    const attn__call *c = p->c;
    t->c = c;
    t->f = p->f;
    t->b = p->b;
    t->head_kv = p->head_kv;
    t->stream = c->streams == c->heads ? p->head : p->head_kv;
    t->prepared = p->shared.prepared + attn__keys_before(c, t->b, t->stream) * c->key_floats;
    t->lanes = lanes;
    t->vecs = (int32_t)attn__blocks(lanes, p->f->width);
    t->ld = t->vecs * p->f->width;
    t->skinny = t->unscaled = 0;
    t->ahead = t->ahead_keys = t->below = 0;
    t->slots = NULL;
    attn__open_lanes(t, p->head, i);
}

/* ---- the step of the rows: maximum and sum as the forward had them, then delta */
static void attn__row_stats(attn__pass *p, attn__tile *t)
{
    const attn__array *stats = &p->c->saved_stats;
    float cmax[ATTN__MAX_LANES], csum[ATTN__MAX_LANES], old[ATTN__MAX_LANES], fresh[ATTN__MAX_LANES];
    attn__reach r;
    int64_t l, c0, n;
    int32_t x;
    for (l = 0; stats->rank && l < t->ld; l++) {
        t->top[l] = attn__read(stats, t->b, t->h[l], t->i[l], 0);
        t->sum[l] = attn__read(stats, t->b, t->h[l], t->i[l], 1);
    }
    for (c0 = t->first / ATTN__CHUNK * ATTN__CHUNK; !stats->rank && c0 < t->last; c0 += ATTN__CHUNK) {
        n = attn__min(t->last - c0, ATTN__CHUNK);
        attn__find_reach(t, c0, n, &r);
        attn__chunk_scores(t, c0, n, &r);
        for (x = 0; x < t->vecs; x++) attn__softmax_vector(t, &r, x, 0, cmax, csum);
        t->f->join(t->ld, t->top, t->sum, cmax, csum, old, fresh);
    }
}

/* delta[lane] += sum over j of P dW, a chain per block of ATTN_GRAD_KEYS */
static void attn__weights_delta(attn__pass *p, attn__tile *t, const float *base, const float *inverse, float *delta)
{
    const attn__call *c = p->c;
    const int drops = c->dropout > 0.0f && c->weights_after_dropout;
    float zero[ATTN__MAX_LANES], part[ATTN__MAX_LANES], *keep = t->m.t + ATTN_GRAD_KEYS * t->ld;
    attn__softmax_grad g;
    attn__reach r;
    int64_t l, j, c0;
    attn__fill(zero, 1, ATTN__MAX_LANES, 0.0f);
    g.base = base;
    g.inverse = inverse;
    g.shift = zero;
    g.s = t->m.s;
    g.dp = t->m.t;
    g.more = NULL;
    g.keep = drops ? keep : NULL;
    g.p = g.ds = t->m.s;
    g.lanes = g.ld = g.row = t->ld;
    for (c0 = t->first / ATTN_GRAD_KEYS * ATTN_GRAD_KEYS; c0 < t->last; c0 += ATTN_GRAD_KEYS) {
        g.rows = attn__min(t->last - c0, ATTN_GRAD_KEYS);
        attn__find_reach(t, c0, g.rows, &r);
        attn__chunk_scores(t, c0, g.rows, &r);
        attn__load_lanes(t, &c->d_weights, c0, g.rows, t->ones, t->m.t);
        if (drops) attn__keep_factors(t, c0, g.rows, keep);
        t->f->softmax_backward(&g);
        attn__fill(part, 1, t->lanes, 0.0f);        /* a block on its own: one chain over all keys would lose more */
        for (j = 0; j < g.rows; j++)
            for (l = 0; l < t->lanes; l++) part[l] = part[l] + t->m.s[j * t->ld + l];
        for (l = 0; l < t->lanes; l++) delta[l] = delta[l] + part[l];
    }
}

static void attn__row_tile(attn__pass *p, attn__tile *t)
{
    const attn__call *c = p->c;
    float base[ATTN__MAX_LANES], inverse[ATTN__MAX_LANES], delta[ATTN__MAX_LANES], p_sink[ATTN__MAX_LANES];
    float *tops = attn__row_field(p, ATTN__R_TOP, 0), *inverses = attn__row_field(p, ATTN__R_INVERSE, 0);
    float *shifts = attn__row_field(p, ATTN__R_SHIFT, 0), *sinks = attn__row_field(p, ATTN__R_SINK, 0);
    int64_t l;
    if (!c->saved_stats.rank || c->d_weights.rank) attn__load_queries(t);
    attn__row_stats(p, t);
    for (l = 0; l < t->ld; l++) {
        float top, sum, own, share;
        if (t->row[l].first >= t->row[l].last) {    /* it has no query either, whatever the stats given say */
            t->top[l] = ATTN__NEG_INF;
            t->sum[l] = 0.0f;
        }
        top = t->top[l];
        sum = t->sum[l];
        base[l] = attn__is_none(top) ? 0.0f : top;
        share = attn__add_sink(c, t->h[l], &top, &sum, &own);
        p_sink[l] = own == 0.0f ? 0.0f : own / sum;
        inverse[l] = sum == 0.0f ? 0.0f : share / sum;
        delta[l] = 0.0f;
    }
    if (c->d_out.rank && c->saved_out.rank) {
        attn__load_lanes(t, &c->d_out, 0, c->size_v, t->ones, t->m.o);
        attn__load_lanes(t, &c->saved_out, 0, c->size_v, t->ones, t->m.acc);
        t->f->inner(t->m.o, t->m.acc, t->ld, c->size_v, delta);
        for (l = 0; l < t->ld; l++) delta[l] = t->sum[l] == 0.0f ? 0.0f : delta[l];
    }
    if (c->d_weights.rank) attn__weights_delta(p, t, base, inverse, delta);
    for (l = 0; l < t->lanes; l++) {
        const float d_lse = c->d_lse.rank ? attn__read(&c->d_lse, t->b, t->h[l], t->i[l], 0) : 0.0f;
        tops[t->i[l]] = t->top[l];
        inverses[t->i[l]] = inverse[l];
        shifts[t->i[l]] = delta[l] - d_lse;
        sinks[t->i[l]] = p_sink[l] == 0.0f ? 0.0f : p_sink[l] * (d_lse - delta[l]);
    }
}

/* ---- a block of queries */

/* What the rows step found, for the block's rows. */
static void attn__open_rows(attn__pass *p)
{
    const attn__call *c = p->c;
    const int uniform = c->empty == ATTN_EMPTY_UNIFORM && attn__is_none(attn__sink_of(c, p->head));
    const float *tops = attn__row_field(p, ATTN__R_TOP, p->i0);
    const float *inverses = attn__row_field(p, ATTN__R_INVERSE, p->i0);
    const float *shifts = attn__row_field(p, ATTN__R_SHIFT, p->i0);
    const int64_t lanes = attn__up(p->n, p->f->width);
    int64_t i;
    p->uniform = 0;
    for (i = 0; i < p->n; i++) {
        const float top = tops[i];
        p->inverse[i] = inverses[i];
        p->shift[i] = shifts[i];
        p->base[i] = attn__is_none(top) ? 0.0f : top;
        p->dead[i] = (uint8_t)(attn__is_none(top) && !attn__is_nan(p->inverse[i]));
        p->is_uniform[i] = (uint8_t)(uniform && p->dead[i]);
        p->uniform |= p->is_uniform[i];
    }
    for (; i < lanes; i++) p->base[i] = p->inverse[i] = p->shift[i] = 0.0f;
}

/* A pass that only adds up what others have left of dq needs nothing of the block but its rows' reach. */
static int attn__adds_cells(const attn__pass *p) { return p->cells && !(p->does & ATTN__DO_K); }

/* Its tiles, with their queries and d_out as lanes. */
static void attn__open_tiles(attn__pass *p)
{
    const attn__call *c = p->c;
    const int64_t depth = attn__query_floats(c), vectors = attn__blocks(p->n, p->f->width);
    const int64_t row = attn__d_out_floats(c);
    const int adds = attn__adds_cells(p);
    int64_t x, i, before;
    p->tiles = attn__blocks(vectors, p->f->vecs);
    p->first = ATTN__HUGE;
    p->last = 0;
    for (x = 0, i = 0; x < p->tiles; x++) {
        attn__tile *t = attn__tile_at(p, x);
        attn__grad_tile(p, t, p->i0 + i, attn__min(p->n - i, attn__share(vectors, p->tiles, x, &before) * p->f->width));
        p->lane0[x] = i;
        t->m = p->m.tile;
        t->m.query += i * depth;
        if (!adds) attn__load_queries(t);
        if (!adds && c->fast) attn__load_bf16_pairs(t, &c->d_out, c->size_v, p->m.d_out + i * row);
        else if (!adds && c->d_out.rank) attn__load_lanes(t, &c->d_out, 0, c->size_v, t->ones, p->m.d_out + i * row);
        if (t->first < t->last) {
            p->first = attn__min(t->first, p->first);
            p->last = attn__max(t->last, p->last);
        }
        i += t->ld;
    }
    if (p->first >= p->last) p->first = p->last = 0;
}

/* See `ascends` of the pass. */
static uint8_t attn__block_ascends(const attn__pass *p)
{
    const attn__call *c = p->c;
    const attn__score *score = attn__score_of(c);
    int64_t x, l, first = 0, last = 0;
    if (!c->plain_scores || c->dropout > 0.0f || c->d_weights.rank || p->uniform || score->elements || c->fast ||
        c->key_sums.rank || score->vectors != attn__grad_vectors) return 0;
    for (x = 0; x < p->tiles; x++) {
        const attn__tile *t = attn__tile_at(p, x);
        for (l = 0; l < t->lanes; l++) {
            const attn__row row = t->row[l];
            if (row.first >= row.last || row.first < first || row.last < last) return 0;
            first = row.first;
            last = row.last;
        }
    }
    return 1;
}

/* Rows of the block as pairs of queries, those that `use` leaves out as zeros. Does one of them hold NaN or Inf? */
static int attn__paired_rows(const attn__pass *p, const attn__array *a, int64_t size, int64_t pad, const uint8_t *use,
                             float *to)
{
    const int64_t queries = attn__up(p->n, 2 * ATTN__AMX_SIDE);
    const void *row[2];
    int64_t i;
    if (pad > size) attn__fill(to, 1, queries / 2 * pad, 0.0f);
    for (i = 0; i < queries; i++) {
        row[i % 2] = i < p->n && use[i] ? attn__place_of(a, p->b, p->head, p->i0 + i, 0) : NULL;
        if (i % 2) attn__pair_columns(p->f->pairs, row, a->type, size, a->stride[3], NULL, to + i / 2 * pad);
    }
    return !p->c->pairs->finite(to, queries / 2 * pad);
}

/* Floats of the sums that become dq, of one block of queries. */
static int64_t attn__dq_floats(const attn__pass *p)
{
    return p->c->w.pad_u * (p->m.dt ? (int64_t)ATTN__GRAD_ROW : p->c->fast ? ATTN_GRAD_QUERIES : p->n);
}

static void attn__open_block(attn__pass *p, int64_t i0)
{
    const attn__call *c = p->c;
    const attn__score *score = attn__score_of(c);
    uint8_t use[ATTN_GRAD_QUERIES];
    int64_t i;
    int field;
    p->i0 = i0;
    p->n = attn__min(c->queries - i0, ATTN_GRAD_QUERIES);
    attn__open_rows(p);
    attn__open_tiles(p);
    p->ascends = attn__block_ascends(p);
    p->bad_q = p->bad_d_out = 0;
    for (i = 0; i < p->n; i++) use[i] = !p->dead[i] || p->is_uniform[i];
    p->d_out.row = c->w.value_row;
    if (c->fast && c->dv.rank && (p->does & ATTN__DO_K))
        p->bad_d_out = attn__paired_rows(p, &c->d_out, c->size_v, c->w.pad_v, use, p->m.d_out_rows);
    else if (c->d_out.rank && c->dv.rank && (p->does & ATTN__DO_K))
        p->bad_d_out = attn__block_rows(p->f, attn__in(&c->d_out, p->b, p->head, i0, 0), p->n, c->size_v, use, NULL,
                                        p->m.d_out_rows, &p->d_out);
    for (i = 0; i < p->n; i++) use[i] = !p->dead[i];
    if (c->fast && c->w.pad_u && c->dk.rank && (p->does & ATTN__DO_K))
        p->bad_q = attn__paired_rows(p, &c->q, c->size_q, c->w.pad_k, use, p->m.q_rows);
    else if (!c->fast && c->w.vector_row && score->query_rows && !attn__adds_cells(p))
        p->bad_q = score->query_rows(p, use);
    if (!(p->does & ATTN__DO_Q) || (p->cells && (p->does & ATTN__DO_K))) return;
    attn__fill(p->m.dq, 1, attn__dq_floats(p), 0.0f);
    if (p->m.dt) attn__fill(p->m.dt, 1, c->w.pad_u * ATTN__GRAD_ROW, 0.0f);
    for (field = ATTN__R_ALIBI; field < ATTN__R_COUNT; field++)
        attn__fill(attn__row_field(p, field, i0), 1, p->n, 0.0f);
}

/* ---- P and dS */
static void attn__reach_hull(attn__hull *h, int64_t from, int64_t to)
{
    h->from = attn__min(h->from, from);
    h->to = attn__max(h->to, to);
}

/* The hulls of a block that not every row reaches as a whole. */
static void attn__find_hulls(attn__pass *p, int64_t c0)
{
    const attn__hull none = {ATTN__HUGE, 0};
    int64_t x, l, a, b, g;
    for (g = 0; g < ATTN_GRAD_KEYS / ATTN__HULL_KEYS; g++) p->by_key[g] = none;
    for (g = 0; g < ATTN_GRAD_QUERIES / ATTN__HULL_QUERIES; g++) p->by_query[g] = none;
    for (x = 0; x < p->tiles; x++) {
        const attn__tile *t = attn__tile_at(p, x);
        if (!p->uniform && (t->first >= c0 + p->nk || t->last <= c0)) continue;
        for (l = 0; l < t->lanes; l++) {
            const int64_t i = p->lane0[x] + l;
            a = p->is_uniform[i] ? 0 : attn__max(t->row[l].first - c0, 0);
            b = p->is_uniform[i] ? p->nk : attn__min(t->row[l].last - c0, p->nk);
            if (a >= b) continue;
            attn__reach_hull(&p->by_query[i / ATTN__HULL_QUERIES], a, b);
            for (g = a / ATTN__HULL_KEYS; g * ATTN__HULL_KEYS < b; g++) attn__reach_hull(&p->by_key[g], i, i + 1);
        }
    }
}

/* dP = dO V^T for one tile and the keys it reaches. */
static void attn__grad_weights(const attn__pass *p, const attn__tile *t, int64_t lane0, int64_t c0, int64_t n,
                               const attn__reach *r)
{
    const attn__call *c = p->c;
    attn__product q;
    attn__stretch s;
    int64_t j;
    if ((!r->whole && !r->hull_only) || !c->d_out.rank) attn__fill(p->m.dp, 1, n * t->ld, 0.0f);
    q.b_row = q.c_row = t->ld;
    q.kind = ATTN__PRODUCT;
    q.onto = ATTN__FROM_ZERO;
    q.fetch = q.x = q.a_scale = NULL;
    q.columns = t->m.t;
    q.padded = 0;
    q.depth = c->fast ? attn__pairs_of(c, c->size_v) : c->size_v;
    q.chain = ATTN__HUGE;
    for (j = 0; c->d_out.rank && j < n; j = s.end) {
        s = attn__stretch_at(r, j, n);
        if (s.from == s.to) continue;
        q.rows = s.end - j;
        if (c->fast) attn__set_a(&q, attn__bf16_keys(t, &c->v, c->size_v, c0 + j, q.rows));
        else attn__set_a(&q, attn__keys_of(t, &c->v, c0 + j, &q.rows, c->size_v));
        q.b = p->m.d_out + lane0 * attn__d_out_floats(c) + s.from * t->f->width;
        q.c = p->m.dp + j * t->ld + s.from * t->f->width;
        q.vecs = s.to - s.from;
        attn__fetch_below(t, &c->d_out, j, &q);
        (c->fast ? c->pairs->product : t->f->product)(&q);
    }
}

/* A copy of the tile's scores, at its lanes of the block. */
static void attn__keep_scores(const attn__tile *t, int64_t n, float *to, int64_t lane0)
{
    int64_t j;
    for (j = 0; to && j < n; j++) attn__copy_floats(to + lane0 + j * ATTN__GRAD_ROW, t->m.s + j * t->ld, t->ld);
}

/* P and dS of lanes from .. to of the block: nothing. */
static void attn__exclude_lanes(attn__pass *p, int64_t n, int64_t from, int64_t to)
{
    int64_t j;
    for (j = 0; from < to && j < n; j++) {
        attn__fill(p->m.p + j * ATTN__GRAD_ROW + from, 1, to - from, -0.0f);
        attn__fill(p->m.ds + j * ATTN__GRAD_ROW + from, 1, to - from, 0.0f);
    }
}

/* The keys that products take of the hull that vector x of a tile is part of: 0 to 0, where it is empty. */
static attn__hull attn__hull_keys(const attn__pass *p, const attn__tile *t, int64_t lane0, int64_t n, int32_t x)
{
    attn__hull h = p->by_query[(lane0 + x * t->f->width) / ATTN__HULL_QUERIES];
    if (h.from >= h.to) h.from = h.to = 0;
    h.from = h.from / ATTN__HULL_KEYS * ATTN__HULL_KEYS;
    h.to = attn__min(attn__up(h.to, ATTN__HULL_KEYS), n);
    return h;
}

/* P and dS of these keys alone, vector by vector; those that it does not reach are excluded there, with a dP of 0, for
   nothing has written theirs. */
static void attn__softmax_backward_hulls(attn__pass *p, attn__tile *t, int64_t lane0, int64_t n, const attn__reach *r,
                                         attn__softmax_grad g)
{
    const attn__softmax_grad all = g;
    const int64_t width = t->f->width;
    int64_t j;
    int32_t x;
    for (x = 0; x < t->vecs; x++) {
        const attn__hull h = attn__hull_keys(p, t, lane0, n, x);
        const int64_t lane = x * width, at = h.from * t->ld + lane, to = h.from * ATTN__GRAD_ROW + lane;
        for (j = h.from; j < h.to; j++) {
            if (j >= r->from[x] && j < r->to[x]) continue;
            attn__fill(t->m.s + j * t->ld + lane, 1, width, ATTN__NEG_INF);
            attn__fill(p->m.dp + j * t->ld + lane, 1, width, 0.0f);
        }
        g.s = all.s + at;
        g.dp = all.dp + at;
        g.base = all.base + lane;
        g.inverse = all.inverse + lane;
        g.shift = all.shift + lane;
        g.p = all.p + to;
        g.ds = all.ds + to;
        g.rows = h.to - h.from;
        g.lanes = width;
        t->f->softmax_backward(&g);
    }
}

/* P and dS of one tile against the keys c0 .. c0+n, into its lanes of the block. */
static void attn__grad_scores(attn__pass *p, int64_t tile, int64_t c0, int64_t n)
{
    const attn__call *c = p->c;
    attn__tile *t = attn__tile_at(p, tile);
    const int64_t lane0 = p->lane0[tile];
    attn__reach r;
    attn__stretch s;
    attn__softmax_grad g;
    int64_t i, j;
    int32_t x;
    if (t->first >= c0 + n || t->last <= c0) {
        for (x = 0; x < t->vecs; x++) {
            const attn__hull h = attn__hull_keys(p, t, lane0, n, x);
            const int64_t lane = lane0 + x * t->f->width;
            if (!p->ascends || h.from < h.to) attn__exclude_lanes(p, n, lane, lane + t->f->width);
        }
        return;
    }
    t->below = p->i0 + 2 * ATTN_GRAD_QUERIES <= c->queries ? ATTN_GRAD_QUERIES : 0;
    if (c0 + n < attn__min(p->last, p->key1)) t->below = 0;
    attn__find_reach(t, c0, n, &r);
    r.hull_only = p->ascends && !p->whole && !r.gaps;
    for (j = 0; j < n; j = s.end) {
        s = attn__stretch_at(&r, j, n);
        for (i = j; i < s.end; i++) p->seen[i] |= s.from < s.to;
    }
    attn__raw_scores(t, c0, n, &r);
    if (!c->key_sums.rank) attn__grad_weights(p, t, lane0, c0, n, &r);
    attn__keep_scores(t, n, p->m.square, lane0);
    attn__finish_scores(t, n);
    attn__apply_softcap(t, n);
    attn__keep_scores(t, n, p->m.soft, lane0);
    attn__apply_masks(t, c0, n, &r);
    g.s = t->m.s;
    g.dp = c->key_sums.rank ? t->m.s : p->m.dp;     /* read, but not used where dS is not wanted */
    g.base = p->base + lane0;
    g.inverse = p->inverse + lane0;
    g.shift = p->shift + lane0;
    g.keep = g.more = NULL;
    if (c->dropout > 0.0f) {
        attn__keep_factors(t, c0, n, p->m.keep);
        g.keep = p->m.keep;
    }
    if (c->d_weights.rank) {
        attn__load_lanes(t, &c->d_weights, c0, n, t->ones, t->m.t);
        if (!c->weights_after_dropout) g.more = t->m.t;
        else for (j = 0; j < n * t->ld; j++) p->m.dp[j] = p->m.dp[j] + t->m.t[j];
    }
    g.p = p->m.p + lane0;
    g.ds = c->key_sums.rank ? NULL : p->m.ds + lane0;
    g.row = ATTN__GRAD_ROW;
    g.lanes = g.ld = t->ld;
    g.rows = n;
    if (r.hull_only) attn__softmax_backward_hulls(p, t, lane0, n, &r, g);
    else t->f->softmax_backward(&g);
    attn__exclude_lanes(p, n, lane0 + t->lanes, lane0 + t->ld);      /* beyond the last row */
}

/* Rows under ATTN_EMPTY_UNIFORM: their weights on all keys. */
static void attn__grad_uniform(attn__pass *p, int64_t c0, int64_t n)
{
    const attn__call *c = p->c;
    int64_t i, j;
    for (i = 0; i < p->n; i++) {
        attn__dropper drop = attn__dropper_of(c, p->b, p->head, p->i0 + i);
        for (j = 0; p->is_uniform[i] && j < n; j++)
            p->m.p[j * ATTN__GRAD_ROW + i] = attn__uniform_weight(c, &drop, c0 + j);
    }
}

/* ---- the products of two blocks */

/* The bias that comes next, in the pass's block of queries or in the next one: it is prefetched while dQ is summed, a
   product that has queries for rows and keys for columns, as the bias has. NULL: none, or not as floats. */
static const float *attn__grad_next_bias(const attn__pass *p, int64_t c0)
{
    const attn__array *bias = &p->c->bias;
    const float *row;
    if (!bias->rank || !attn__is_contiguous(bias) || p->c->bias_index.rank) return NULL;
    row = attn__at(bias, p->b, p->head, p->i0, 0);
    if (c0 + ATTN_GRAD_KEYS < attn__min(p->last, p->key1)) return attn__ahead(row, 1, c0 + ATTN_GRAD_KEYS);
    return attn__ahead(attn__ahead(row, ATTN_GRAD_QUERIES, bias->stride[2]), 1, p->key0);
}

/* One of these products: a is P or dS, b the rows that it multiplies, x NULL or rows as b has; to: rows of `pad`
   floats. */
static attn__product attn__grad_product(const float *a, const attn__rows *b, const attn__rows *x, float *to,
                                        int64_t pad)
{
    attn__product g;
    g.a = a;
    g.b = b->at;
    g.b_row = b->row;
    g.x = x ? x->at : NULL;
    g.x_row = x ? x->row : 0;
    g.c = to;
    g.c_row = pad;
    return g;
}

/* dV or dK: rows are keys, the sum runs over the block's queries; dQ: the other way round. */
static void attn__grad_side(const attn__pass *p, int64_t c0, int by_key, const attn__product *all, int careful)
{
    const int64_t rows = by_key ? p->nk : p->n, part = by_key ? ATTN__HULL_KEYS : ATTN__HULL_QUERIES;
    const int64_t step = p->whole ? rows : part;
    const attn__hull whole = {0, by_key ? p->n : p->nk};
    const float *next = by_key ? NULL : attn__grad_next_bias(p, c0);
    attn__product g = *all;
    int64_t r, at;
    g.a_row = by_key ? ATTN__GRAD_ROW : 1;
    g.a_k = by_key ? 1 : ATTN__GRAD_ROW;
    g.fetch_row = p->c->bias.stride[2];
    for (r = 0; r < rows; r += step) {
        const attn__hull h = p->whole ? whole : by_key ? p->by_key[r / part] : p->by_query[r / part];
        if (h.from >= h.to) continue;
        at = r * g.a_row + h.from * g.a_k;
        g.rows = attn__min(rows - r, step);
        g.depth = h.to - h.from;
        g.a = all->a + at;
        g.b = all->b + h.from * g.b_row;
        g.x = all->x ? all->x + r * g.x_row : NULL;
        g.c = all->c + r * g.c_row;
        g.fetch = next ? attn__ahead(next, r, g.fetch_row) : NULL;
        attn__multiply(p->f, &g, g.c_row, careful ? p->m.p + at : NULL);
    }
}

/* dS times the vectors of both sides; for distance kernels their difference. */
static void attn__grad_vectors(attn__pass *p, int64_t c0)
{
    const attn__backward *w = &p->c->w;
    const attn__pass_memory *m = &p->m;
    const int differ = m->square != NULL, bad_k = attn__key_rows(p, c0) || (differ && p->bad_q);
    attn__product g;
    if ((p->does & ATTN__DO_K) && p->c->dk.rank) {
        float *dk = m->dk + (c0 - p->key0) * w->pad_k;
        g = attn__grad_product(m->ds, &p->q, differ ? &p->k : NULL, dk, w->pad_k);
        attn__grad_side(p, c0, 1, &g, p->bad_q || (differ && bad_k));
    }
    if (p->does & ATTN__DO_Q) {
        g = attn__grad_product(m->ds, &p->k, differ ? &p->q : NULL, m->dq, w->pad_u);
        attn__grad_side(p, c0, 0, &g, bad_k);
    }
}

/* ---- the same products by AMX, of bf16: P and dS are rounded for them. dQ is summed with queries as lanes, and turned
   in the end. */
enum { ATTN__GRAD_PAIRS = 2 * (int)ATTN__AMX_SIDE };    /* rows, and terms, by which a block is cut */

/* In plain C without the excluded pairs, because rows of `a` from `first` on hold NaN or Inf. */
static void attn__paired_side_careful(const attn__pass *p, int by_key, const float *s, const attn__array *a,
                                      int64_t head, int64_t first, int64_t size, float *to, int64_t row)
{
    const int64_t rows = by_key ? p->nk : p->n, depth = by_key ? p->n : p->nk;
    int64_t r, k, x;
    for (r = 0; r < rows; r++)
        for (x = 0; x < size; x++) {
            float sum = 0.0f, *const y = by_key ? to + r * row + x : to + x * row + r;
            for (k = 0; k < depth; k++) {
                const int64_t at = by_key ? r * ATTN__GRAD_ROW + k : k * ATTN__GRAD_ROW + r;
                if (attn__is_excluded(p->m.p[at])) continue;
                sum = attn__fma(s[at], attn__read(a, p->b, head, first + k, x), sum);
            }
            *y = *y + sum;
        }
}

/* dV or dK: rows are keys, lanes columns; dQ: rows are columns, lanes queries. */
static void attn__paired_side(const attn__pass *p, int by_key, const attn__product *all)
{
    const int64_t most = by_key ? p->nk : p->n, step = p->whole ? most : (int64_t)ATTN__GRAD_PAIRS;
    attn__product g = *all;
    int64_t r;
    for (r = 0; r < most; r += step) {
        attn__hull h = {0, by_key ? p->n : p->nk};
        if (!p->whole && !by_key) h = p->by_query[r / ATTN__HULL_QUERIES];
        if (!p->whole && by_key) {
            h = p->by_key[r / ATTN__HULL_KEYS];
            if (r + ATTN__HULL_KEYS < most)
                attn__reach_hull(&h, p->by_key[r / ATTN__HULL_KEYS + 1].from, p->by_key[r / ATTN__HULL_KEYS + 1].to);
        }
        if (h.from >= h.to) continue;
        h.from = h.from / ATTN__GRAD_PAIRS * (ATTN__GRAD_PAIRS / 2);
        g.depth = attn__up(h.to, ATTN__GRAD_PAIRS) / 2 - h.from;
        g.a = all->a + h.from;
        g.b = all->b + h.from * g.b_row;
        if (by_key) {
            g.rows = attn__min(most - r, step);
            g.a += r * g.a_row;
            g.c = all->c + r * g.c_row;
        } else {
            g.vecs = (int32_t)attn__blocks(attn__min(most - r, step), p->f->width);
            g.b += r;
            g.c = all->c + r;
        }
        p->c->pairs->product(&g);
    }
}

static attn__product attn__paired_product(const attn__pass *p, const float *a, int64_t a_row, const float *b,
                                          int64_t b_row, float *to)
{
    attn__product g;
    g.columns = p->m.tile.t;
    g.a = a;
    g.a_row = a_row;
    g.a_k = 1;
    g.b = b;
    g.c = to;
    g.b_row = g.c_row = b_row;
    g.kind = ATTN__PRODUCT;
    g.onto = ATTN__ADD_AFTER;
    g.x = g.fetch = g.a_scale = NULL;
    g.padded = 1;
    return g;
}

/* P or dS as pairs of queries, in place, and as pairs of keys; zeros after the last ones. */
static void attn__round_block(const attn__pass *p, float *s, float *pairs)
{
    const int64_t keys = attn__up(p->nk, ATTN__GRAD_PAIRS), lanes = attn__up(p->n, ATTN__GRAD_PAIRS);
    const int64_t width = attn__up(p->n, p->f->width);
    int64_t j;
    for (j = 0; j < keys; j++) {
        const int64_t from = j < p->nk ? width : 0;
        attn__fill(s + j * ATTN__GRAD_ROW + from, 1, lanes - from, 0.0f);
    }
    p->c->pairs->halves(s, ATTN__GRAD_ROW, keys, lanes, pairs, ATTN_GRAD_QUERIES);
}

/* The block's rows of k as pairs of keys, a row for each column. Are they finite? */
static int attn__paired_keys(const attn__pass *p, int64_t c0)
{
    const attn__call *c = p->c;
    const int64_t end = attn__up(p->nk, ATTN__GRAD_PAIRS), pad = attn__up(c->size_k, ATTN__AMX_SIDE);
    int64_t j, x;
    int finite = 1;
    for (j = 0; j < end; j += ATTN__GRAD_PAIRS)
        attn__pair_values(attn__tile_at(p, 0), &c->k, c->size_k, c0 + j, c0, c0 + p->nk, p->seen + j,
                          p->m.k_rows + j / 2);
    for (x = 0; x < pad; x++) {
        float *column = p->m.k_rows + x * ATTN__AMX_ROW;
        if (x >= c->size_k) attn__fill(column, 1, end / 2, 0.0f);
        else finite &= c->pairs->finite(column, end / 2);
    }
    return finite;
}

/* dK and dQ: dS times the vectors of both sides. */
static void attn__paired_vectors(attn__pass *p, int64_t c0)
{
    const attn__call *c = p->c;
    const attn__pass_memory *m = &p->m;
    const int by_key = (p->does & ATTN__DO_K) && c->dk.rank, by_query = (p->does & ATTN__DO_Q) != 0;
    const int finite = !by_query || attn__paired_keys(p, c0);
    float *const dk = m->dk + (c0 - p->key0) * c->w.pad_k;
    attn__product g;
    if (by_key && p->bad_q)
        attn__paired_side_careful(p, 1, m->ds, &c->q, p->head, p->i0, c->size_q, dk, c->w.pad_k);
    if (!finite)
        attn__paired_side_careful(p, 0, m->ds, &c->k, p->head_kv, c0, c->size_k, m->dq, ATTN_GRAD_QUERIES);
    attn__round_block(p, m->ds, m->dp);
    if (by_key && !p->bad_q) {
        g = attn__paired_product(p, m->ds, ATTN__GRAD_ROW, m->q_rows, c->w.pad_k, dk);
        g.vecs = (int32_t)(c->w.pad_k / p->f->width);
        attn__paired_side(p, 1, &g);
    }
    if (by_query && finite) {
        g = attn__paired_product(p, m->k_rows, ATTN__AMX_ROW, m->dp, ATTN_GRAD_QUERIES, m->dq);
        g.rows = c->size_k;
        g.vecs = (int32_t)attn__blocks(p->n, p->f->width);
        attn__paired_side(p, 0, &g);
    }
}

/* dV: P times d_out. */
static void attn__paired_weights(attn__pass *p, float *dv)
{
    const attn__call *c = p->c;
    attn__product g;
    if (p->bad_d_out) {
        attn__paired_side_careful(p, 1, p->m.p, &c->d_out, p->head, p->i0, c->size_v, dv, c->w.pad_v);
        return;
    }
    attn__round_block(p, p->m.p, NULL);
    g = attn__paired_product(p, p->m.p, ATTN__GRAD_ROW, p->m.d_out_rows, c->w.pad_v, dv);
    g.vecs = (int32_t)(c->w.pad_v / p->f->width);
    attn__paired_side(p, 1, &g);
}

/* The sums of a block's rows, turned. */
static const float *attn__turned_rows(const attn__pass *p)
{
    float *rows[ATTN__MAX_LANES];
    int64_t x, i;
    for (x = 0; x < p->tiles; x++) {
        const attn__tile *t = attn__tile_at(p, x);
        for (i = 0; i < t->lanes; i++) rows[i] = p->m.result + (p->lane0[x] + i) * p->c->w.pad_u;
        p->f->unpack(rows, t->lanes, 1, p->m.dq + p->lane0[x], ATTN_GRAD_QUERIES, p->c->size_k, t->ones);
    }
    return p->m.result;
}

/* ---- sums by key: over the queries of the pass's entry that count, whose last one is not always the arrays' */
static int64_t attn__last_query(const attn__pass *p) { return attn__int_or(&p->c->query_lengths, p->b, p->c->queries); }
static int64_t attn__first_query(const attn__pass *p) { return attn__last_query(p) - p->c->last_queries; }

static void attn__sum_weights(attn__pass *p, int64_t c0)
{
    const int64_t lanes = attn__up(p->n, ATTN__PARTS), keys = attn__round4(p->nk);
    const int64_t from = attn__min(attn__max(attn__first_query(p) - p->i0, 0), lanes);
    const int64_t to = attn__min(attn__max(attn__last_query(p) - p->i0, 0), p->n);
    float ones[ATTN_GRAD_QUERIES], *part = p->m.part;
    int64_t j;
    attn__exclude_lanes(p, p->nk, 0, from);
    attn__exclude_lanes(p, p->nk, to, lanes);
    attn__fill(ones, 1, lanes, 1.0f);
    for (j = 0; j < p->nk; j++, part += ATTN__PARTS)
        p->f->inner(p->m.p + j * ATTN__GRAD_ROW, ones, ATTN__PARTS, lanes / ATTN__PARTS, part);
    attn__fill(part, 1, (keys - p->nk) * ATTN__PARTS, 0.0f);
    p->f->fold(p->m.part, keys / 4, p->m.key_sums + c0 - p->key0, 4);
}

static void attn__store_sums(const attn__pass *p)
{
    const attn__array by_key = attn__transposed(p->c->key_sums);
    attn__store_grad(p->f, attn__in(&by_key, p->b, p->head, 0, p->key0), p->key1 - p->key0, p->m.key_sums, 1.0f, 0);
}

/* ---- a block of queries against one of keys */
static void attn__grad_block(attn__pass *p, int64_t c0)
{
    const attn__call *c = p->c;
    const attn__score *score = attn__score_of(c);
    int64_t x, j;
    p->nk = attn__min(c->keys - c0, ATTN_GRAD_KEYS);
    p->whole = 1;
    for (x = 0; x < p->tiles; x++)
        if (attn__tile_at(p, x)->all_first > c0 || attn__tile_at(p, x)->all_last < c0 + p->nk) p->whole = 0;
    if (!p->whole) attn__find_hulls(p, c0);
    for (j = 0; j < p->nk; j++) p->seen[j] = 0;
    for (x = 0; x < p->tiles; x++) attn__grad_scores(p, x, c0, p->nk);
    if (c->key_sums.rank) {
        if (p->uniform) attn__grad_uniform(p, c0, p->nk);
        attn__sum_weights(p, c0);
        return;
    }
    attn__grad_masks(p, c0, p->nk);
    attn__grad_softcap(p, p->nk);
    if (score->elements) score->elements(p, c0, p->nk);
    if (c->w.pad_u > 0) (c->fast ? attn__paired_vectors : score->vectors)(p, c0);
    if (p->uniform) attn__grad_uniform(p, c0, p->nk);           /* last: its rows count as excluded until here */
    if (c->d_out.rank && c->dv.rank && (p->does & ATTN__DO_K)) {
        float *dv = p->m.dv + (c0 - p->key0) * c->w.pad_v;
        if (c->fast) attn__paired_weights(p, dv);
        else {
            const attn__product g = attn__grad_product(p->m.p, &p->d_out, NULL, dv, c->w.pad_v);
            attn__grad_side(p, c0, 1, &g, p->bad_d_out);
        }
    }
}

/* ---- from sums to results */

/* The block's rows: sums over keys become dq; what parameters need stays there. Rows of one kind go together. */
static void attn__finish_block_gradient(attn__pass *p)
{
    const attn__call *c = p->c;
    const attn__score *score = attn__score_of(c);
    const float factor = score->flags & ATTN__SCALE_DQ ? c->scale : 1.0f;
    const float *y = p->m.dq;
    int64_t row = c->w.pad_u, i, run, x;
    if (!c->q.rank) return;
    if (c->w.vectors && c->fast) y = attn__turned_rows(p);
    if (c->w.vectors && score->finish_rows) y = score->finish_rows(p, &row);
    for (i = 0; i < p->n; i += run, y += run * row) {
        const int nothing = !c->w.vectors || p->dead[i];
        for (run = 1; i + run < p->n && p->dead[i + run] == p->dead[i];) run++;
        for (x = 0; x < run && !nothing && score->finish_row; x++)
            score->finish_row(p, p->i0 + i + x, (float *)(uintptr_t)y + x * row);
        if (c->dq.rank) attn__store_grads(p->f, attn__in(&c->dq, p->b, p->head, p->i0 + i, 0), run, c->size_q,
                                          nothing ? NULL : y, row, factor, attn__adds(c, ATTN_GRAD_Q));
    }
}

static void attn__finish_keys_gradient(attn__pass *p)
{
    const attn__call *c = p->c;
    const attn__score *score = attn__score_of(c);
    const float factor = score->flags & ATTN__SCALE_DK ? c->scale : 1.0f;
    const int64_t pad = c->w.pad_k;
    float *dk = p->m.dk;
    int64_t j, run, x;
    if (c->dv.rank) attn__store_grads(p->f, attn__in(&c->dv, p->b, p->head_kv, p->key0, 0), p->key1 - p->key0,
                                      c->size_v, p->m.dv, c->w.pad_v, 1.0f, attn__adds(c, ATTN_GRAD_V));
    for (j = p->key0; c->dk.rank && j < p->key1; j += run, dk += run * pad) {
        const int nothing = !c->w.vectors || attn__all_zero(dk, c->size_k);
        for (run = 1; j + run < p->key1 && c->w.vectors && attn__all_zero(dk + run * pad, c->size_k) == nothing;) run++;
        for (x = 0; x < run && !nothing && score->finish_key; x++) score->finish_key(p, j + x, dk + x * pad);
        attn__store_grads(p->f, attn__in(&c->dk, p->b, p->head_kv, j, 0), run, c->size_k, nothing ? NULL : dk, pad,
                          factor, attn__adds(c, ATTN_GRAD_K));
    }
}

static void attn__clear_keys(attn__pass *p)
{
    const attn__call *c = p->c;
    const int64_t n = p->key1 - p->key0;
    if (p->does & ATTN__DO_K) {
        attn__fill(p->m.dk, 1, n * c->w.pad_k, 0.0f);
        attn__fill(p->m.dv, 1, n * c->w.pad_v, 0.0f);
    }
    if (p->m.db) attn__fill(p->m.db, 1, n * c->w.pad_u, 0.0f);
    if (c->w.save_b) attn__fill(p->m.attended, 1, n, 0.0f);
}

/* ---- the order of the blocks */

/* Gradients of the block's rows that are not added up, outside of the entry's keys. */
static void attn__clear_outside(const attn__pass *p)
{
    const attn__call *c = p->c;
    const int bias = c->w.bias == ATTN__BIAS_STORED && !attn__has_own_columns(c) && p->first_part &&
                     ((p->does & ATTN__DO_K) || !c->w.key_parts);
    const int scores = (p->does & ATTN__DO_Q) && !attn__adds(c, ATTN_GRAD_GIVEN_SCORES);
    int64_t i;
    for (i = p->i0; c->keys < c->all_keys && i < p->i0 + p->n; i++) {
        if (bias) attn__fill_outside(&c->d_bias, p->b, p->head, i, c, 0.0f);
        if (scores) attn__fill_outside(&c->d_given_scores, p->b, p->head, i, c, 0.0f);
    }
}

/* Blocks q0 .. q1 of queries of the pass's head against its keys. With cells dq of each goes there and is not added up;
   or a pass for dq alone adds up what is there. */
static void attn__run_queries(attn__pass *p, int64_t q0, int64_t q1)
{
    const int leaves = p->cells && (p->does & ATTN__DO_K);
    const int64_t floats = p->c->w.cell_floats;
    int64_t block, c0, to, reach, at = 0;       /* at: where the block's cells begin */
    for (block = q0; block < q1; block++, at += reach * floats) {
        reach = attn__block_reach(p->c, block);
        if (p->key0 > 0 && p->key0 >= reach * ATTN_GRAD_KEYS) continue;
        if (p->c->key_sums.rank && (block + 1) * ATTN_GRAD_QUERIES <= attn__first_query(p)) continue;
        attn__open_block(p, block * ATTN_GRAD_QUERIES);
        p->table_blocks = 0;
        c0 = p->uniform || p->c->w.all_blocks ? 0 : p->first / ATTN_GRAD_KEYS * ATTN_GRAD_KEYS;
        to = p->uniform || p->c->w.all_blocks ? p->c->keys : p->last;
        for (c0 = attn__max(c0, p->key0); c0 < attn__min(to, p->key1); c0 += ATTN_GRAD_KEYS) {
            float *cell = p->cells ? p->cells + at + c0 / ATTN_GRAD_KEYS * floats : NULL;
            if (leaves) attn__fill(p->m.dq = cell, 1, attn__dq_floats(p), 0.0f);
            if (leaves || !cell) attn__grad_block(p, c0);
            else p->f->scale_store(cell, p->m.dq, attn__dq_floats(p), 1.0f, 1);
        }
        attn__close_table(p);
        if ((p->does & ATTN__DO_Q) && !leaves) attn__finish_block_gradient(p);
        attn__clear_outside(p);
    }
}

static void attn__finish_stream_gradient(attn__pass *p)
{
    if (p->c->w.vectors && attn__score_of(p->c)->finish_stream) attn__score_of(p->c)->finish_stream(p);
}

static void attn__part_of_keys(attn__pass *p, int64_t part, int64_t parts)
{
    const int64_t blocks = attn__key_blocks(p->c);
    p->first_part = part == 0;
    p->key0 = blocks * part / parts * ATTN_GRAD_KEYS;
    p->key1 = part + 1 < parts ? blocks * (part + 1) / parts * ATTN_GRAD_KEYS : p->c->keys;
}

/* Rows of dk and dv outside of the entry's keys. */
static void attn__clear_keys_outside(const attn__pass *p)
{
    const attn__call *c = p->c;
    const int64_t group = c->heads / c->heads_kv;
    int64_t j, h;
    for (j = -c->key0; !c->packed_keys && p->first_part && j < c->all_keys - c->key0; j++) {
        if (j == 0) j = c->keys;
        if (j == c->all_keys - c->key0) return;
        if (c->dk.rank) attn__store_grad(p->f, attn__in(&c->dk, p->b, p->head_kv, j, 0), c->size_k, NULL, 1.0f,
                                         attn__adds(c, ATTN_GRAD_K));
        if (c->dv.rank) attn__store_grad(p->f, attn__in(&c->dv, p->b, p->head_kv, j, 0), c->size_v, NULL, 1.0f,
                                         attn__adds(c, ATTN_GRAD_V));
        for (h = p->head_kv * group; c->key_sums.rank && h < (p->head_kv + 1) * group; h++)
            attn__store_grad(p->f, attn__in(&c->key_sums, p->b, h, j, 0), 1, NULL, 1.0f, 0);
    }
}

/* One unit, a batch entry's key head and the query heads that read it; or one of `parts` of its keys, or of its blocks
   of queries. own: NULL, or with starts room for the entry's calls: its rows, and those in front of them. */
static void attn__run_unit(attn__pass *p, int64_t unit, int64_t part, int64_t parts, attn__call *own)
{
    const attn__call *c = p->c;
    const int64_t group = c->heads / c->heads_kv, b = unit / c->heads_kv;
    int64_t h;
    int before;
    p->b = b;
    p->head_kv = unit % c->heads_kv;
    for (before = 0; own && before < 2; before++) attn__open_entry(c, b, before, &own[before]);
    if (own) p->c = own;
    if (p->does == ATTN__DO_Q) attn__part_of_keys(p, 0, 1);
    else attn__part_of_keys(p, part, parts);
    attn__clear_keys(p);
    for (h = 0; h < group; h++) {
        p->head = p->head_kv * group + h;
        attn__fill(p->m.key_sums, 1, c->key_sums.rank ? p->key1 - p->key0 : 0, 0.0f);
        for (before = 0; before < (own ? 2 : 1); before++) {
            if (own) p->c = &own[before];
            if (p->does == ATTN__DO_Q) attn__run_queries(p, p->c->w.blocks * part / parts,
                                                         p->c->w.blocks * (part + 1) / parts);
            else attn__run_queries(p, 0, p->c->w.blocks);
        }
        if ((p->does & ATTN__DO_K) && (c->streams == c->heads || h + 1 == group)) attn__finish_stream_gradient(p);
        if (own) p->c = own;
        if (c->key_sums.rank) attn__store_sums(p);
    }
    if (p->does & ATTN__DO_K) attn__finish_keys_gradient(p);
    if (own && (p->does & ATTN__DO_K)) attn__clear_keys_outside(p);
    p->c = c;
}

/* ---- its tasks */
/* Some rows of d_bias before the first block: zeros; or from its sums after the last. */
static void attn__set_bias_rows(const attn__call *c, const attn__shared *s, int64_t index, int after)
{
    const attn__array to = attn__bias_sums(c, s);
    const int64_t *n = c->bias_size, blocks = attn__blocks(n[2], ATTN_GRAD_QUERIES);
    const int64_t b = index / blocks / n[1], h = index / blocks % n[1], i0 = index % blocks * ATTN_GRAD_QUERIES;
    int64_t i;
    for (i = i0; i < attn__min(i0 + ATTN_GRAD_QUERIES, n[2]); i++)
        if (!after) attn__fill_row(attn__in(&to, b, h, i, 0), n[3], 0.0f);
        else attn__store_grad(c->f, attn__in(&c->d_bias, b, h, i, 0), n[3], attn__at(&to, b, h, i, 0), 1.0f,
                              attn__adds(c, ATTN_GRAD_BIAS));
}

static void attn__run_bias(attn__task *task) { attn__set_bias_rows(task->c, &task->shared, task->index, 1); }
static attn__pass *attn__open_pass(attn__task *task)
{
    attn__pass *p = attn__take_pass(&task->memory, task->c);
    p->shared = task->shared;
    p->does = (int)task->c->w.does;
    p->key0 = 0;
    p->key1 = task->c->keys;
    attn__use_sums(p, task->worker);
    return p;
}

static void attn__run_rows(attn__task *task)
{
    const attn__call *c = task->c;
    attn__pass *p = (attn__pass *)(void *)attn__take(&task->memory, 1, ATTN__PASS_FLOATS);
    attn__tile *t = attn__take_tile(&task->memory, c);
    int64_t i = c->ragged ? task->shared.entries[2 * c->batch] : c->w.blocks * c->batch * c->heads, end, lanes;
    if (task->index >= i) {
        const int64_t table = attn__table_floats(c);
        if (c->w.bias != ATTN__BIAS_TABLE) attn__set_bias_rows(c, &task->shared, task->index - i, 0);
        else attn__fill(task->shared.table + (task->index - i) * table, 1, table, 0.0f);
        return;
    }
    c = attn__entry_call(task);
    p->c = c;
    p->f = c->f;
    p->shared = task->shared;
    p->head = task->index / c->w.blocks % c->heads;
    p->b = c->entry + task->index / c->w.blocks / c->heads;
    p->head_kv = p->head / (c->heads / c->heads_kv);
    i = task->index % c->w.blocks * ATTN_GRAD_QUERIES;
    end = attn__min(c->queries, i + ATTN_GRAD_QUERIES);
    if (c->key_sums.rank && end <= attn__first_query(p)) return;        /* nobody asks for these rows */
    for (; i < end; i += lanes) {
        lanes = attn__min(end - i, c->ld);
        attn__grad_tile(p, t, i, lanes);
        attn__row_tile(p, t);
    }
}

static void attn__run_blocks(attn__task *task)
{
    const attn__call *c = task->c;
    const attn__backward *w = &c->w;
    const int64_t units = c->batch * c->heads_kv, key_units = w->bias_in_common ? 1 : units;
    int64_t index = task->index, unit, part, end, parts = 1;
    attn__pass *p = attn__open_pass(task);
    attn__call *own = !c->ragged ? NULL : (attn__call *)(void *)attn__take(&task->memory, 2, ATTN__CALL_FLOATS);
    if (index < key_units * w->key_parts) {
        p->does = ATTN__DO_K;
        parts = w->key_parts;
    } else if (w->key_parts + w->query_parts > 0) {
        p->does = ATTN__DO_Q;
        index -= key_units * w->key_parts;
        parts = w->query_parts;
    }
    unit = p->does & ATTN__DO_K ? key_units : units;            /* under a causal mask the longest tasks come first */
    part = p->does & ATTN__DO_K ? index / unit : parts - 1 - index / unit;
    unit = index % unit;
    end = w->bias_in_common && (p->does & ATTN__DO_K) ? units : unit + 1;
    for (; unit < end; unit++) attn__run_unit(p, unit, part, parts, own);
}

/* ---- rounds, each of some blocks of queries of a unit, whose sums by key go on from round to round. With cells a task
   has a part of the keys and leaves dq against each block of keys apart; then these are added up, in the order of the
   keys. With slots a task has one block of queries and sums by key for itself; then the first slot's sums get those of
   the others added, in the order of the queries. Either way as if one task had done it all. */
static attn__pass *attn__open_unit(attn__task *task, int64_t unit)
{
    attn__pass *p = attn__open_pass(task);
    p->b = unit / task->c->heads_kv;
    p->head = p->head_kv = unit % task->c->heads_kv;
    p->first_part = 1;
    return p;
}

static const int64_t *attn__round_of(const attn__task *task)    /* its first block, and the next round's */
{
    return task->c->w.round + (task->phase - (task->c->key_blocks > 0) - 1) / 2;
}

/* Block q of a unit: its head, and its cells in a round from block `from` on. Returns which of the head's it is. */
static int64_t attn__open_cells(attn__pass *p, int64_t unit, int64_t from, int64_t q)
{
    const attn__call *c = p->c;
    const attn__backward *w = &c->w;
    p->head = p->head_kv * (c->heads / c->heads_kv) + q / w->blocks;
    if (!w->cells) return q;
    p->cells = p->shared.sums + c->batch * c->heads_kv * w->sum_floats + unit * w->cells * w->cell_floats;
    for (; from < q; from++) p->cells += attn__block_reach(c, from % w->blocks) * w->cell_floats;
    return q % w->blocks;
}

static void attn__run_round(attn__task *task)
{
    const attn__backward *w = &task->c->w;
    const int64_t *round = attn__round_of(task), units = task->c->batch * task->c->heads_kv;
    const int64_t unit = task->index % units, part = task->index / units, slot = w->cells ? 0 : part;
    const int64_t end = w->cells ? round[1] : round[0] + slot + 1;
    attn__pass *p = attn__open_unit(task, unit);
    int64_t q, block, n;
    if (w->cells) attn__part_of_keys(p, part, w->key_parts);
    attn__use_sums(p, unit * w->slots + slot);
    if (round[0] == 0 || slot > 0) attn__clear_keys(p);
    for (q = round[0] + slot; q < end; q += n) {
        block = attn__open_cells(p, unit, round[0], q);
        n = attn__min(end - q, w->blocks - block);
        attn__run_queries(p, block, block + n);
    }
    if (w->cells && round == w->round + w->rounds - 1) attn__finish_keys_gradient(p);
}

/* The sums of slots 1 .. n, `pad` floats per key, added to those of the first. */
static void attn__add_slots(const attn__pass *p, float *to, int64_t pad, int64_t n)
{
    int64_t slot;
    for (slot = 1; to && slot < n; slot++)
        p->f->scale_store(to + slot * p->c->w.sum_floats, to, (p->key1 - p->key0) * pad, 1.0f, 1);
}

static void attn__run_merge(attn__task *task)
{
    const attn__backward *w = &task->c->w;
    const int64_t *round = attn__round_of(task), units = task->c->batch * task->c->heads_kv, n = round[1] - round[0];
    const int64_t unit = task->index % units, part = task->index / units;
    attn__pass *p = attn__open_unit(task, unit);
    if (w->cells) {
        const int64_t block = attn__open_cells(p, unit, round[0], round[1] - 1 - part);
        p->does = ATTN__DO_Q;
        attn__run_queries(p, block, block + 1);
        return;
    }
    attn__part_of_keys(p, part, w->key_parts);
    attn__use_sums(p, unit * w->slots);
    attn__add_slots(p, p->m.dk, w->pad_k, n);
    attn__add_slots(p, p->m.db, w->pad_u, n);
    attn__add_slots(p, p->m.dv, w->pad_v, n);
    attn__add_slots(p, p->m.attended, w->save_b, n);
    if (round[1] < w->blocks) return;
    attn__finish_stream_gradient(p);
    attn__finish_keys_gradient(p);
}

/* -------------------------------------------------------------------------------------------------------- >>sums
   The gradients of parameters: each a sum of products over rows or keys, of what the blocks have left. */
/* ---- a sum in chains of ATTN_GRAD_QUERIES: a task is a tile of out */
static int64_t attn__sum_tasks(const attn__matmul *m)
{
    return attn__mul64(attn__mul64(m->out_batch[0], m->out_batch[1]),
                       attn__mul64(attn__blocks(m->rows, m->tile_rows), attn__blocks(m->columns, attn__lanes(m->f))));
}

static int64_t attn__sum_floats(const attn__kernels *f, int64_t rows)
{
    return (ATTN_GRAD_QUERIES + rows) * attn__lanes(f);
}

/* Is a column of a all zero (1: all -0), so that what it is multiplied by may be anything? */
static int attn__sum_skips(const attn__matmul *m, int64_t x, int64_t y, int64_t k)
{
    int64_t r;
    for (r = 0; r < m->rows; r++) {
        const uint32_t bits = attn__bits(attn__read(&m->a, x, y, r, k));
        if (m->skip == 1 ? bits != 0x80000000u : bits << 1 != 0) return 0;
    }
    return 1;
}

/* covered[k] of row k0+k: is it one of the queries of batch entry b? */
static void attn__cover_queries(const attn__call *c, int64_t b, int64_t k0, int64_t n, uint8_t *covered)
{
    const int64_t start = attn__int_or(&c->query_starts, b, 0);
    const int64_t end = start + attn__int_or(&c->query_lengths, b, c->queries - start);
    int64_t k;
    for (k = 0; k < n; k++) covered[k] = k0 + k >= start && k0 + k < end;
}

/* n of b's rows, of a head of out, `lanes` columns of each, as a tile */
static void attn__sum_panel(const attn__matmul *m, attn__place at, int64_t n, int64_t lanes, int64_t ld, float *panel)
{
    const int64_t head = at.h;
    const int turned = attn__is_f32(&m->b) && m->b.stride[2] == 1 && m->b.stride[3] != 1 && !m->cover;
    uint8_t covered[ATTN__CHUNK];
    int64_t k;
    int bad;
    at.h /= m->b_shares;
    if (turned) attn__copy_columns(m->f, at, NULL, n, lanes, ld, NULL, panel);
    if (m->cover && m->of_keys) attn__cover(m->cover, at.b, at.row, n, covered);
    else if (m->cover) attn__cover_queries(m->cover, at.b, at.row, n, covered);
    bad = turned ? m->skip && !m->f->finite(panel, n * ld) :
                   attn__copy_rows(m->f, at, n, lanes, ld, m->cover ? covered : NULL, NULL, panel);
    if (bad && m->skip)
        for (k = 0; k < n; k++, panel += ld)
            if (!m->f->finite(panel, lanes) && attn__sum_skips(m, at.b, head, at.row + k))
                attn__fill(panel, 1, lanes, 0.0f);
}

/* What is summed of batch entry b: row0 .. + rows of b's rows and a's columns. */
static attn__extent attn__terms_of(const attn__matmul *m, int64_t b, int before)
{
    attn__extent x = {0, m->depth, 0, 0};
    if (m->ragged && !m->of_keys) attn__find_rows(m->ragged, b, before, &x);
    if (m->ragged && m->of_keys) {
        attn__find_keys(m->ragged, b, &x);
        x.row0 = x.key0;
        x.rows = before ? 0 : x.keys;
    }
    return x;
}

ATTN__NOINLINE static void attn__sum_tile(const attn__matmul *m, int64_t index, float *panel)
{
    const int64_t wide = attn__lanes(m->f), columns = attn__blocks(m->columns, wide), column = index % columns * wide;
    const int64_t row_tiles = attn__blocks(m->rows, m->tile_rows), r0 = index / columns % row_tiles * m->tile_rows;
    const int64_t y = index / columns / row_tiles % m->out_batch[1], x = index / columns / row_tiles / m->out_batch[1];
    const int64_t lanes = attn__min(m->columns - column, wide), ld = attn__up(lanes, m->f->width);
    const int64_t x0 = m->out_batch[0] == 1 ? 0 : x, x1 = m->out_batch[0] == 1 ? m->batch[0] : x + 1;
    const int64_t y0 = m->out_batch[1] == 1 ? 0 : y, y1 = m->out_batch[1] == 1 ? m->batch[1] : y + 1;
    float *c = panel + ATTN_GRAD_QUERIES * wide;
    attn__product p;
    int64_t b, h, r, k0;
    attn__extent terms;
    int before;
    p.rows = attn__min(m->rows - r0, m->tile_rows);
    p.b = panel;
    p.c = c;
    p.b_row = p.c_row = ld;
    p.vecs = (int32_t)(ld / m->f->width);
    p.chain = ATTN__HUGE;
    p.kind = ATTN__PRODUCT;
    p.onto = ATTN__ADD_AFTER;
    p.fetch = NULL;
    attn__fill(c, 1, p.rows * ld, 0.0f);
    for (b = m->depth ? x0 : x1; b < x1; b++)
        for (h = y0; h < y1; h++)
            for (before = 0; before < (m->ragged ? 2 : 1); before++) {
                terms = attn__terms_of(m, b, before);
                for (k0 = terms.row0; k0 < terms.row0 + terms.rows; k0 += ATTN_GRAD_QUERIES) {
                    p.depth = attn__min(terms.row0 + terms.rows - k0, ATTN_GRAD_QUERIES);
                    attn__sum_panel(m, attn__in(&m->b, b, h, k0, column), p.depth, lanes, ld, panel);
                    attn__set_a(&p, attn__rows_of(m->f, attn__in(&m->a, b, h, r0, k0), NULL, p.rows, p.depth,
                                                  c + m->tile_rows * wide));
                    m->f->product(&p);
                }
            }
    for (r = 0; r < p.rows; r++)
        attn__store_grad(m->f, attn__in(&m->out, x, y, r0 + r, column), lanes, c + r * ld, m->scale, m->adds);
}

/* ---- the gradients of parameters */

/* A vector of as many ones as are asked for. */
static attn__array attn__ones(void)
{
    static const float one = 1.0f;
    attn__array a = attn__packed(&one, 0, 0, 0);
    a.stride[3] = 0;
    return a;
}

/* A sum over batch, heads and queries (of_keys: streams and keys) of a^T b; a NULL: ones. */
static attn__matmul attn__sum_over(const attn__call *c, const attn__array *a, attn__array b, attn__array out,
                                   int64_t rows, int64_t columns, int of_keys)
{
    attn__matmul m = attn__matmul_of(c->f, a ? attn__transposed(*a) : attn__ones(), b, out, rows, columns,
                                     of_keys ? c->keys : c->queries);
    m.batch[0] = c->batch;
    m.batch[1] = !of_keys ? c->heads : c->heads > 0 ? c->streams : 0;   /* without a head no stream was closed */
    m.skip = a != NULL;
    m.ragged = c->ragged ? c : NULL;
    m.of_keys = of_keys;
    if ((of_keys ? c->packed_keys : c->packed_queries)) m.a.stride[0] = m.b.stride[0] = 0;
    return m;
}

/* That of a bias by index: what its blocks left. */
static attn__matmul attn__sum_of_tables(const attn__call *c, const float *from)
{
    const int64_t floats = attn__table_floats(c), rows = attn__table_blocks(c);
    attn__array a = attn__packed(from, c->heads, rows, c->bias_row);
    attn__matmul m;
    a.stride[0] = c->heads * floats;
    m = attn__matmul_of(c->f, attn__ones(), a, c->d_bias, 1, c->bias_row, rows);
    m.batch[0] = attn__batch_of_rows(c);
    m.batch[1] = c->heads;
    m.out_batch[1] = c->bias_size[1];
    return m;
}

/* That of a bias which was broadcast along the keys: it has the bias's axes. */
static void attn__keep_bias_axes(const attn__call *c, attn__matmul *m)
{
    m->out_batch[0] = c->bias_size[0];
    m->out_batch[1] = c->bias_size[1];
    if (c->bias_size[2] != c->queries || c->packed_queries) return;
    m->depth = 1;                                   /* not summed over queries: they are columns */
    m->ragged = NULL;
    m->columns = c->queries;
    m->b = attn__transposed(m->b);
    m->out = attn__transposed(m->out);
}

/* The sum that makes one gradient: of one field of the rows, where it is no product. */
static void attn__set_sum(const attn__call *c, const attn__shared *s, int which, attn__matmul *m)
{
    static const uint8_t field[ATTN__SUM_COUNT] = {ATTN__R_BIAS, 0, 0, 0, 0, 0, ATTN__R_SIGMA, ATTN__R_SCALE,
                                                   ATTN__R_SINK, ATTN__R_ALIBI};
    static const uint8_t rank_per_head[ATTN__SUM_COUNT] = {0, 3, 3, 3, 2, 2, 1, 0, 1, 1};   /* of what has heads then */
    const int64_t size = c->w.size_u;
    const float *rows = s->rows ? s->rows + field[which] * attn__rows_of_arrays(c) : NULL;
    const attn__array row = attn__packed(rows, c->heads, c->queries, 1);
    const attn__array u = attn__packed(s->left_u, c->heads, c->queries, size);
    const attn__array t = attn__packed(s->left_t, c->heads, c->queries, size);
    const attn__array b = attn__packed(s->left_b, c->streams, c->keys, size);
    const attn__array out = attn__operands_of(c, offsetof(attn__call, d_bias))[which];
    if (which == ATTN__SUM_BILINEAR) *m = attn__sum_over(c, &u, c->q, attn__transposed(out), size, c->size_q, 0);
    else if (which == ATTN__SUM_W_Q) *m = attn__sum_over(c, &u, c->q, out, size, c->size_q, 0);
    else if (which == ATTN__SUM_W_K) *m = attn__sum_over(c, &b, c->k, out, size, c->size_k, 1);
    else if (which == ATTN__SUM_W_V) *m = attn__sum_over(c, NULL, t, out, 1, size, 0);
    else if (which == ATTN__SUM_HIDDEN_BIAS) *m = attn__sum_over(c, NULL, b, out, 1, size, 1);
    else if (which == ATTN__SUM_BIAS && c->w.bias == ATTN__BIAS_TABLE) *m = attn__sum_of_tables(c, s->table);
    else *m = attn__sum_over(c, NULL, row, out, 1, 1, 0);
    m->adds = attn__adds(c, (uint32_t)ATTN_GRAD_BIAS << which);         /* these bits have the same order */
    if (out.rank == rank_per_head[which] && (which != ATTN__SUM_SIGMA || c->sigma_per_head.rank))
        m->out_batch[1] = c->heads;
    if (which == ATTN__SUM_BILINEAR || which == ATTN__SUM_W_V) m->scale = c->scale;
    if (m->skip) m->cover = c;
    if (which == ATTN__SUM_W_K && c->heads_kv > 0) m->b_shares = c->streams / c->heads_kv;
    if (which == ATTN__SUM_BIAS && c->w.bias == ATTN__BIAS_ROWS) attn__keep_bias_axes(c, m);
}

/* 0: it is not asked for, or not made so. */
static int attn__parameter_sum(const attn__call *c, const attn__shared *s, int which, attn__matmul *m)
{
    if (!attn__operands_of(c, offsetof(attn__call, d_bias))[which].rank) return 0;
    if (which == ATTN__SUM_BIAS && c->w.bias != ATTN__BIAS_ROWS && c->w.bias != ATTN__BIAS_TABLE) return 0;
    attn__set_sum(c, s, which, m);
    return 1;
}

static void attn__run_sums(attn__task *task)
{
    attn__matmul m;
    int64_t index = task->index, n;
    int which;
    for (which = 0; which < ATTN__SUM_COUNT; which++) {
        if (!attn__parameter_sum(task->c, &task->shared, which, &m)) continue;
        n = attn__sum_tasks(&m);
        if (index < n) {
            attn__sum_tile(&m, index, attn__take(&task->memory, 1, attn__sum_floats(m.f, ATTN__SUM_ROWS)));
            return;
        }
        index -= n;
    }
}
#endif

/* ------------------------------------------------------------------------------------------------------- >>tasks
   A phase of a call is a step, cut into tasks: what one task of each step does. */

/* ---- any step */
ATTN__NOINLINE static void attn__run_task(const attn__call *c, void *workspace, int32_t phase, int64_t index,
                                          int32_t worker)
{
    static void (*const run[])(attn__task *task) = {
        attn__run_entries, attn__run_keys, attn__run_tiles, attn__run_join
#ifndef ATTN_NO_BACKWARD
        , attn__run_rows, attn__run_blocks, attn__run_round, attn__run_merge, attn__run_sums, attn__run_bias
#endif
    };
    const int amx = c->fast && attn__by_amx(c);
    attn__map shared = {attn__align(workspace), 0};
    const attn__map own = {shared.base + c->shared_bytes + worker * c->worker_bytes, 0};
    attn__task task = {c, attn__none_shared, own, index, worker, phase};
    if (c->shared_bytes || c->is_backward) attn__take_shared(&shared, c, &task.shared);
    if (amx) c->pairs->begin();
    run[c->step[phase]](&task);
    if (amx) c->pairs->end();
}
#ifdef ATTN_CUDA
enum { ATTN__PLAN_BYTES = sizeof(attn__call) + ATTN__CUDA_KEPT };       /* what the device keeps lies behind the call */
#else
enum { ATTN__PLAN_BYTES = sizeof(attn__call) };
#endif
typedef char attn__call_fits[ATTN__PLAN_BYTES <= sizeof(((attn_plan *)0)->internal) ? 1 : -1];
static const attn__call *attn__call_of(const attn_plan *plan)
{ return (const attn__call *)(const void *)plan->internal; }

/* A statement in the floating-point state that the bits ask for; after it the caller's is back. */
#define ATTN__IN_FP_STATE(...) \
    do { const attn__fp_state attn__saved = attn__fp_enter(); __VA_ARGS__; attn__fp_leave(attn__saved); } while (0)

ATTN_DEF void attn_task(const attn_plan *plan, void *workspace, int32_t phase, int64_t index, int32_t worker)
{
    ATTN__CUDA_ONLY(if (attn__call_of(plan)->on_device) {
        attn__cuda_task(attn__call_of(plan), attn__call_of(plan) + 1, workspace);
        return;
    })
    ATTN__IN_FP_STATE(attn__run_task(attn__call_of(plan), workspace, phase, index, worker));
}

/* Tasks 0 .. count: by the caller's threads, or here. */
static void attn__for_each(const attn_parallel *parallel, int64_t count, attn_task_fn task, void *arg)
{
    int64_t i;
    if (parallel->run && count > 1) parallel->run(parallel->user, count, task, arg);
    else for (i = 0; i < count; i++) task(arg, i, 0);
}

/* Rows that need nothing of each other: some of them are a task. */
typedef struct attn__by_rows {
    void      (*run)(const void *call, int64_t row, int64_t end);
    const void *call;
    int64_t     rows, some;     /* of a task */
} attn__by_rows;

static void attn__row_task(void *arg, int64_t index, int32_t worker)
{
    const attn__by_rows *r = (const attn__by_rows *)arg;
    (void)worker;
    ATTN__IN_FP_STATE(r->run(r->call, index * r->some, attn__min((index + 1) * r->some, r->rows)));
}

/* From one row to the next, but for whole lines of the cache. */
static int64_t attn__row_bytes(const attn__array *a)
{
    return (a->stride[2] & (ATTN__ALIGN - 1)) * attn__type_size(a->type);
}

/* numbers: a row takes as long as so many that are copied. bytes: attn__row_bytes of the result, of several their `or`.
   Tasks of many rows end where a line of the cache does, if the first one begins there: no two write to the same, where
   rows lie one after the other (those of all heads at once: if each head begins with a line). */
static void attn__for_rows(const attn_parallel *parallel, int64_t rows, int64_t numbers, int64_t bytes,
                           void (*run)(const void *call, int64_t row, int64_t end), const void *call)
{
    attn__by_rows r;
    int64_t line = 1;
    r.run = run;
    r.call = call;
    r.rows = rows;
    r.some = attn__max(ATTN__TASK_NUMBERS / attn__max(numbers, 1) + 1,
                       attn__blocks(rows, ATTN__WORKER_TASKS * attn__max(parallel->workers, 1)));
    while (bytes * line % ATTN__ALIGN) line *= 2;
    if (r.some >= 4 * line) r.some = attn__blocks(r.some, line) * line;        /* a quarter more at most */
    attn__for_each(parallel, attn__blocks(rows, r.some), attn__row_task, &r);
}

/* Of rows from one on, counted through all heads of all entries: some of a head, or all of some heads. */
typedef struct attn__box { int64_t b, h, heads, i, rows; } attn__box;
static attn__box attn__box_of(const int64_t *size, int64_t row, int64_t end)
{
    attn__box x;
    x.b = row / size[2] / size[1];
    x.h = row / size[2] % size[1];
    x.i = row % size[2];
    x.rows = attn__min(size[2] - x.i, end - row);
    x.heads = x.rows < size[2] ? 1 : attn__min(size[1] - x.h, (end - row) / size[2]);
    return x;
}

typedef struct attn__job { const attn_plan *plan; void *workspace; int32_t phase; } attn__job;
static void attn__job_task(void *arg, int64_t index, int32_t worker)
{
    const attn__job *job = (const attn__job *)arg;
    attn_task(job->plan, job->workspace, job->phase, index, worker);
}

/* ------------------------------------------------------------------------------------------------ >>constructors
   The views that a caller makes: from here on, the functions of the API. */
/* What cannot be a view of anything: refused by whatever takes it or a part of it. */
static attn_view attn__no_view(attn_view v, int rank)
{
    v.rank = rank;
    return v;
}

/* A view that lies in `rows` rows of `row` elements, if so many can be. */
static attn_view attn__within(attn_view v, int64_t row, int64_t rows)
{
    if (row > 0 && rows > 0 && attn__mul64(row, rows) > ATTN__HUGE / 8 && attn__elements(&v) > 0)
        v.rank = ATTN__RANK_OVERFLOW;
    return v;
}

static attn_view attn__view(const void *data, attn_type type, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3)
{
    attn_view v = {data, {n0, n1, n2, n3}, {0, 0, 0, 0}, (int32_t)type, rank};
    int i;
    if (rank < 1 || rank > 4) return v;             /* refused by whatever takes it */
    v.stride[rank - 1] = 1;
    for (i = rank - 2; i >= 0; i--) v.stride[i] = v.size[i + 1] > 0 ? attn__mul64(v.stride[i + 1], v.size[i + 1]) :
        v.stride[i + 1];
    for (i = rank; i < 4; i++) v.size[i] = 0;
    return attn__within(v, v.stride[0], v.size[0]);
}

static int attn__has_axis(const attn_view *v, int axis) { return axis >= 0 && axis < v->rank && axis <= 3; }
static attn_out attn__out(attn_view v)              /* the same, writable */
{
    attn_out o;
    ATTN__COPY(&o, &v, sizeof o);
    return o;
}

ATTN_DEF attn_view attn_view_of(attn_out o)
{
    attn_view v;
    ATTN__COPY(&v, &o, sizeof v);
    return v;
}
#define ATTN__VIEW_OF(name, element, type) \
    ATTN_DEF attn_view attn_view_##name(const element *data, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3) \
    { return attn__view(data, type, rank, n0, n1, n2, n3); }
#define ATTN__OUT_OF(name, element, type) \
    ATTN_DEF attn_out attn_out_##name(element *data, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3) \
    { return attn__out(attn__view(data, type, rank, n0, n1, n2, n3)); }
ATTN__VIEW_OF(f32, float, ATTN_F32)
ATTN__VIEW_OF(u8, uint8_t, ATTN_U8)
ATTN__VIEW_OF(i32, int32_t, ATTN_I32)
ATTN__VIEW_OF(i64, int64_t, ATTN_I64)
ATTN__OUT_OF(f32, float, ATTN_F32)
ATTN__OUT_OF(u8, uint8_t, ATTN_U8)
#undef ATTN__VIEW_OF
#undef ATTN__OUT_OF
ATTN_DEF attn_view attn_view_typed(attn_type type, const void *data, int rank, int64_t n0, int64_t n1, int64_t n2,
                                   int64_t n3)
{ return attn__view(data, type, rank, n0, n1, n2, n3); }
ATTN_DEF attn_out attn_out_typed(attn_type type, void *data, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3)
{ return attn__out(attn__view(data, type, rank, n0, n1, n2, n3)); }
ATTN_DEF attn_view attn_view_bhsd(const float *data, int64_t b, int64_t h, int64_t s, int64_t d)
{ return attn__view(data, ATTN_F32, 4, b, h, s, d); }
ATTN_DEF attn_view attn_view_bshd(const float *data, int64_t b, int64_t s, int64_t h, int64_t d)
{ return attn_view_swap(attn__view(data, ATTN_F32, 4, b, s, h, d), 1, 2); }
ATTN_DEF attn_out attn_out_bhsd(float *data, int64_t b, int64_t h, int64_t s, int64_t d)
{ return attn__out(attn_view_bhsd(data, b, h, s, d)); }
ATTN_DEF attn_out attn_out_bshd(float *data, int64_t b, int64_t s, int64_t h, int64_t d)
{ return attn__out(attn_view_bshd(data, b, s, h, d)); }
ATTN_DEF attn_view attn_view_qkv(const float *data, int which, int64_t b, int64_t s, int64_t h, int64_t d)
{
    const attn_view whole = attn_view_f32(data, 4, b, s, 3, attn__mul64(attn__max(h, 0), attn__max(d, 0)));
    attn_view v = attn_view_bshd(data, b, s, h, d);
    if (which < 0 || which > 2) return attn__no_view(v, ATTN__RANK_NONE);
    if (whole.rank != 4 || v.rank != 4 || (attn__elements(&v) > 0 && whole.stride[2] > ATTN__HUGE / 8))
        return attn__no_view(v, ATTN__RANK_OVERFLOW);
    v.stride[0] = whole.stride[0];
    v.stride[2] = whole.stride[1];
    if (data && attn__elements(&v) > 0) v.data = data + which * whole.stride[2];
    return v;
}

ATTN_DEF attn_view attn_view_rows(const float *data, int64_t b, int64_t s, int64_t h, int64_t d, int64_t row)
{
    attn_view v = attn_view_bshd(data, b, s, h, d);
    if (row < 0) return attn__no_view(v, ATTN__RANK_NONE);
    v.stride[0] = s > 0 ? attn__mul64(s, row) : 0;
    v.stride[2] = row;
    return attn__within(v, v.stride[0], b);
}

ATTN_DEF attn_out attn_out_rows(float *data, int64_t b, int64_t s, int64_t h, int64_t d, int64_t row)
{ return attn__out(attn_view_rows(data, b, s, h, d, row)); }
ATTN_DEF attn_view attn_view_slice(attn_view v, int axis, int64_t first, int64_t count)
{
    int is_far;                                     /* what has no element may have any stride */
    if (v.rank <= 0) return v;
    if (!attn__has_axis(&v, axis)) return attn__no_view(v, ATTN__RANK_NONE);
    if (first < 0 || count < 0 || count > v.size[axis] || first > v.size[axis] - count) {
        v.size[axis] = -1;                          /* refused by whatever takes it */
        return v;
    }
    v.size[axis] = count;
    is_far = first > 0 && (v.stride[axis] > ATTN__HUGE / 8 / first || v.stride[axis] < -ATTN__HUGE / 8 / first);
    if (is_far && attn__elements(&v)) return attn__no_view(v, ATTN__RANK_OVERFLOW);
    if (v.data && count > 0 && !is_far)
        v.data = (const char *)((uintptr_t)v.data + (uintptr_t)first * (uintptr_t)v.stride[axis] *
                                (uintptr_t)attn__type_size(v.type));
    return v;
}

ATTN_DEF attn_out attn_out_slice(attn_out o, int axis, int64_t first, int64_t count)
{ return attn__out(attn_view_slice(attn_view_of(o), axis, first, count)); }
ATTN_DEF attn_view attn_view_swap(attn_view v, int axis_a, int axis_b)
{
    attn_view r = v;
    if (v.rank <= 0) return v;
    if (!attn__has_axis(&v, axis_a) || !attn__has_axis(&v, axis_b)) return attn__no_view(v, ATTN__RANK_NONE);
    r.size[axis_a] = v.size[axis_b];
    r.size[axis_b] = v.size[axis_a];
    r.stride[axis_a] = v.stride[axis_b];
    r.stride[axis_b] = v.stride[axis_a];
    return r;
}

/* -------------------------------------------------------------------------------------------------------- >>text
   Into the caller's block, cut where that ends, or through a small one that `full` empties: errors and names. */
typedef struct attn__text attn__text;
struct attn__text { char *at; size_t size, length; void (*full)(attn__text *text); };

static attn__text attn__text_into(char *at, size_t size)
{
    attn__text t = {at, at ? size : 0, 0, NULL};
    return t;
}

static void attn__put_byte(attn__text *t, uint32_t byte)
{
    if (t->full && t->length == t->size) t->full(t);
    if (t->length < t->size) t->at[t->length] = (char)(unsigned char)byte;
    t->length++;
}

static void attn__put(attn__text *t, const char *s) { while (*s) attn__put_byte(t, (unsigned char)*s++); }
ATTN__NOINLINE static void attn__put2(attn__text *t, const char *s, const char *then)
{
    attn__put(t, s);
    attn__put(t, then);
}

/* mantissa * 10^e10 as a person writes it: 0.25, 1500, 2.5e-7; every digit counts. */
static void attn__put_decimal(attn__text *t, int64_t mantissa, int e10)
{
    char digits[32];                                /* the last one first */
    uint64_t u = mantissa < 0 ? 0 - (uint64_t)mantissa : (uint64_t)mantissa;
    int n = 0, end = 0, point, scientific, i;
    for (; e10 > 0 && u < 10000000; e10--) u *= 10;
    if (mantissa == 0 && e10 < -4) e10 = 0;
    do digits[n++] = (char)('0' + (int)(u % 10)); while ((u /= 10) != 0);
    scientific = mantissa != 0 && e10 != 0 && (n + e10 < -3 || n + e10 > 7);
    point = scientific ? n - 1 : -e10;
    while (scientific && digits[end] == '0') end++;
    while (n <= point) digits[n++] = '0';
    if (mantissa < 0) attn__put(t, "-");
    for (i = n - 1; i >= end; i--) {
        attn__put_byte(t, (unsigned char)digits[i]);
        if (i == point && i > end) attn__put(t, ".");
    }
    if (!scientific) return;
    attn__put(t, "e");
    attn__put_decimal(t, n - 1 + e10, 0);
}

/* A finite number, to six digits. */
static void attn__put_number(attn__text *t, float x)
{
    double size = x < 0.0f ? -(double)x : (double)x;
    int64_t digits;
    int e10 = 0;
    for (; size >= 1e6; e10++) size /= 10;
    for (; size != 0 && size < 1e5; e10--) size *= 10;
    digits = (int64_t)(size + 0.5);
    for (; digits != 0 && digits % 10 == 0; e10++) digits /= 10;
    attn__put_decimal(t, x < 0.0f ? -digits : digits, e10);
}

static void attn__put_colour(attn__text *t, int64_t rgb)
{
    int shift;
    attn__put(t, "#");
    for (shift = 20; shift >= 0; shift -= 4) attn__put_byte(t, (unsigned char)"0123456789abcdef"[rgb >> shift & 15]);
}

/* % stands for the next argument, @ for the next as a colour. */
static void attn__format(attn__text *t, const char *format, const int64_t *next)
{
    for (; *format; format++) {
        if (*format == '%') attn__put_decimal(t, *next++, 0);
        else if (*format == '@') attn__put_colour(t, *next++);
        else attn__put_byte(t, (unsigned char)*format);
    }
}
#define ATTN__FORMAT(t, format, ...) \
    do { const int64_t attn__args[] = {__VA_ARGS__}; attn__format(t, format, attn__args); } while (0)

/* The end of the text is cut off for the 0 at its end; returns the whole length. */
static size_t attn__end_text(const attn__text *t)
{
    if (t->size) t->at[t->length < t->size ? t->length : t->size - 1] = 0;
    return t->length;
}

/* f16, or as the header names it: ATTN_F16 */
static void attn__put_type(attn__text *t, int64_t type, int as_name)
{
    static const char *const names[ATTN_TYPE_COUNT] = {"f32", "f16", "bf16", "f64", "u8", "i32", "i64", "i8"};
    const char *s;
    if (type < 0 || type >= ATTN_TYPE_COUNT) {
        ATTN__FORMAT(t, "%", type);
        return;
    }
    if (as_name) attn__put(t, "ATTN_");
    for (s = names[type]; *s; s++) attn__put_byte(t, (unsigned char)*s - (as_name && *s >= 'a' ? 32u : 0u));
}

static void attn__put_error(attn__text *t, const attn_error *err)
{
    attn__put2(t, err->field, " ");
    attn__put(t, err->rule);
    if (err->has_numbers == 2) ATTN__FORMAT(t, ": % does not divide %", err->got, err->want);
    else if (err->has_numbers) ATTN__FORMAT(t, ": %, is %", err->want, err->got);
    if (err->has_type) {
        attn__put(t, ", is ");
        attn__put_type(t, err->got, 1);
    }
    if (err->has_place) ATTN__FORMAT(t, err->has_place == 1 ? " at [%]" : " at [%,%]", err->place[0], err->place[1]);
}

ATTN_DEF size_t attn_error_string(const attn_error *err, char *text, size_t size)
{
    attn__text t = attn__text_into(text, size);
    if (!err || err->status == ATTN_OK) attn__put(&t, "ok");
    else attn__put_error(&t, err);
    return attn__end_text(&t);
}

/* The n-th of a list of texts, each with a 0 at its end; the first one stands for every n beyond them. */
static const char *attn__nth_text(const char *texts, int n, int count)
{
    for (n = n >= 0 && n < count ? n + 1 : 0; n > 0; n--) while (*texts++) {}
    return texts;
}

ATTN_DEF const char *attn_status_string(attn_status status)
{
#define ATTN_X(name, text) "\0" text
    return attn__nth_text("unknown status" ATTN_STATUS_LIST(ATTN_X), (int)status, ATTN_STATUS_COUNT);
}

ATTN_DEF const char *attn_isa_string(attn_isa isa)
{
    return attn__nth_text("unknown instruction set" ATTN_ISA_LIST(ATTN_X), (int)isa, ATTN_ISA_COUNT);
#undef ATTN_X
}

ATTN_DEF const char *attn_score_string(attn_score score)
{
#define ATTN_X(name, text, bound) "\0" text
    return attn__nth_text("unknown score" ATTN_SCORE_LIST(ATTN_X), (int)score, ATTN_SCORE_COUNT);
#undef ATTN_X
}

ATTN_DEF int32_t attn_version(void) { return ATTN_VERSION_NUMBER; }

/* --------------------------------------------------------------------------------------------------- >>attention
   Structures of older callers; plan, workspace, run. Memory for one call is the caller's, or one allocation. */
ATTN_DEF attn_status attn_enable_amx(attn_error *err)
{
    ATTN__RULE(ATTN__HAS_AMX, ISA, "amx", "must be in the build: x86-64, Linux, gcc 12 or clang 13, with AVX-512");
    ATTN__RULE(attn__has_amx(ATTN__AMX_IN_CPU) && attn__cpu_has(ATTN_ISA_AVX512) && attn__cpu_has_bf16_dot(), ISA,
               "amx", "must be in the CPU and known to the kernel (Linux 5.16)");
    ATTN__RULE(attn__ask_for_amx(), ISA, "amx", "must not be refused by the kernel");
    return attn__success(err);
}

/* ---- how much of a structure the caller has. Of one who knows less, from an older header, a copy is made with 0 for
   the rest; of one who knows more the rest must be 0. least: the size of version 0.3. */
static uint64_t attn__bytes_given(const void *structure)        /* its struct_bytes; 0: the size that is known here */
{
    uint64_t n = 0;
    if (structure) ATTN__COPY(&n, structure, sizeof n);
    return n;
}

static attn_status attn__check_bytes(const void *structure, size_t known, size_t least, attn_error *err)
{
    static const char field[] = "struct_bytes";
    const unsigned char *bytes = (const unsigned char *)structure;
    const uint64_t n = attn__bytes_given(structure);
    uint64_t i;
    if (n == 0 || n == known) return ATTN_OK;
    ATTN__RULE2_OF(n >= least, OPTION, field, "must be 0 or at least", (int64_t)n, (int64_t)least);
    ATTN__RULE_OF(n % sizeof(void *) == 0 && n < 1 << 16, OPTION, field, "must be the structure's size, or 0");
    for (i = known; i < n; i++)
        ATTN__RULE_OF(!bytes[i], OPTION, field, "must count no field that this version lacks and that is not 0");
    return ATTN_OK;
}

static const void *attn__known_part(const void *structure, void *copy, size_t known)
{
    const uint64_t n = attn__bytes_given(structure);
    if (n == 0 || n >= known) return structure;
    attn__zero(copy, known);
    ATTN__COPY(copy, structure, (size_t)n);
    return copy;
}
#define ATTN__KNOWN(type, p, copy, last) \
    ATTN__TRY(attn__check_bytes(p, sizeof(type), offsetof(type, last) + sizeof(p)->last, err)); \
    p = (const type *)attn__known_part(p, copy, sizeof(type))

/* ---- memory */
/* What a resolved call does with its memory. */
typedef attn_status attn__run_fn(void *call, const attn_desc *d, void *memory, attn_error *err);

/* The two things that every function does once its call is resolved: it says how much memory that needs (where `bytes`
   is not NULL), or gets so much and runs it. */
static attn_status attn__size_or_run(attn__run_fn *run, void *call, const attn_desc *d, int64_t needed, int on_device,
                                     size_t *bytes, attn_error *err)
{
    const attn_allocator *memory = &d->allocator;
    const size_t size = (size_t)needed;
    void *own = NULL;
    attn_status st;
    (void)on_device;
    if (bytes) {
        *bytes = size;
        return attn__success(err);
    }
    ATTN__RULE(d->workspace || !d->workspace_bytes, NULL, "workspace", "must be given where workspace_bytes is not 0");
    ATTN__RULE2(!d->workspace || d->workspace_bytes >= size, WORKSPACE, "workspace_bytes", "must be at least",
                (int64_t)d->workspace_bytes, needed);
    if (!d->workspace && size) {
        if (memory->allocate) own = memory->allocate(memory->user, size);
        ATTN__CUDA_ONLY(else if (on_device) own = attn__cuda_allocate(d, size, on_device);)
#ifdef ATTN_MALLOC
        else own = ATTN_MALLOC(size);
#endif
        ATTN__RULE2(own, ALLOC, "workspace", "could not be allocated: bytes needed", 0, needed);
    }
    st = run(call, d, own ? own : d->workspace, err);
    if (own && memory->release) memory->release(memory->user, own);
    ATTN__CUDA_ONLY(else if (own && on_device) attn__cuda_release(own, d->stream, on_device);)
#ifdef ATTN_FREE
    else if (own) ATTN_FREE(own);
#endif
    return st == ATTN_OK ? attn__success(err) : st;
}

#ifdef ATTN_CUDA
/* A plan on a device has one task, which enqueues all kernels of the call. */
static attn_status attn__plan_on_device(attn_plan *plan, const attn_desc *desc, attn_error *err)
{
    attn__call *c = (attn__call *)(void *)plan->internal;
    plan->phases = 1;
    attn__zero(plan->tasks, sizeof plan->tasks);
    if (c->idle) return ATTN_OK;
    plan->tasks[0] = 1;
    return attn__cuda_plan(c, desc->stream, c + 1, &plan->workspace_bytes, err);
}
#endif
static attn_status attn__plan_known(const attn_desc *desc, const struct attn_grad *grad, int backward, attn_plan *plan,
                                    int flags, attn_error *err)
{
    attn_status st;
    ATTN__CUDA_ONLY(ATTN__TRY(attn__find_place(attn__in_structure(desc, attn__fields, ATTN__F_COUNT),
                                               attn__in_structure(grad, attn__grad_fields, ATTN__G_COUNT), desc,
                                               &flags, err));)
    ATTN__CUDA_ONLY(if (flags & ATTN__AS_TASKS) flags |= ATTN__AT_ONCE;)
    ATTN__IN_FP_STATE(st = attn__plan(desc, grad, backward, plan, flags, err));
    ATTN__CUDA_ONLY(if (st == ATTN_OK && flags & ATTN__AS_TASKS && flags & ATTN__ON_DEVICE)
        return attn__plan_on_device(plan, desc, err);)
    return st;
}

/* For a caller whose structures are older: apart, for the copies take room on the stack. */
ATTN__NOINLINE static attn_status attn__plan_older(const attn_desc *desc, const struct attn_grad *grad, int backward,
                                                   attn_plan *plan, int flags, attn_error *err)
{
    attn_desc copy;
#ifndef ATTN_NO_BACKWARD
    attn_grad grad_copy;
    ATTN__KNOWN(attn_grad, grad, &grad_copy, reserved);
#endif
    ATTN__KNOWN(attn_desc, desc, &copy, stream);
    return attn__plan_known(desc, grad, backward, plan, flags, err);
}

static attn_status attn__plan_call(const attn_desc *desc, const struct attn_grad *grad, int backward, attn_plan *plan,
                                   int flags, attn_error *err)
{
    return (attn__bytes_given(desc) || attn__bytes_given(grad) ? attn__plan_older : attn__plan_known)(
        desc, grad, backward, plan, flags, err);
}

static attn_status attn__run_plan(void *call, const attn_desc *desc, void *workspace, attn_error *err)
{
    const attn_plan *plan = (const attn_plan *)call;
    attn__job job = {plan, workspace, 0};
    ATTN__CUDA_ONLY(if (attn__call_of(plan)->on_device && !attn__call_of(plan)->idle)
        return attn__cuda_run(attn__call_of(plan), workspace, desc->stream, err);)
    (void)err;
    for (; job.phase < plan->phases; job.phase++)
        attn__for_each(&desc->parallel, plan->tasks[job.phase], attn__job_task, &job);
    return ATTN_OK;
}

/* Sizes are asked for without data, and before it is known which results are wanted. Where the caller gives no
   workspace, what this call uses is taken, for a large block takes time even if it is not written. */
static attn_status attn__attention(const attn_desc *desc, const struct attn_grad *grad, int backward, size_t *bytes,
                                   attn_error *err)
{
    attn_plan plan;
    const attn__call *c = attn__call_of(&plan);
    int64_t needed;
    ATTN__TRY(attn__plan_call(desc, grad, backward, &plan,
                              bytes ? ATTN__NO_RESULT_NEEDED : ATTN__WITH_DATA | ATTN__AT_ONCE, err));
    ATTN__CUDA_ONLY(if (!bytes && c->on_device && !c->idle) return attn__cuda_call(c, desc, attn__size_or_run, err);)
    needed = (int64_t)plan.workspace_bytes;
    if (needed && !bytes && !desc->workspace && !c->on_device)
        needed = c->shared_bytes + c->worker_bytes * c->workers + ATTN__ALIGN;
    return attn__size_or_run(attn__run_plan, &plan, desc, needed, c->on_device, bytes, err);
}

ATTN_DEF attn_status attn_forward(const attn_desc *desc, attn_error *err)
{ return attn__attention(desc, NULL, 0, NULL, err); }

ATTN_DEF attn_status attn_workspace_size(const attn_desc *desc, size_t *bytes, attn_error *err)
{
    ATTN__NOT_NULL(bytes);
    return attn__attention(desc, NULL, 0, bytes, err);
}

/* Another function, and the one that says how much workspace it needs; in the former `call` gets no bytes. */
#define ATTN__CALL(name, call, ...) \
    ATTN_DEF attn_status name(__VA_ARGS__, attn_error *err) \
    { \
        size_t *const bytes = NULL; \
        return call; \
    } \
    ATTN_DEF attn_status name##_workspace_size(__VA_ARGS__, size_t *bytes, attn_error *err) \
    { \
        ATTN__NOT_NULL(bytes); \
        return call; \
    }
ATTN_DEF attn_status attn_plan_forward(const attn_desc *desc, attn_plan *plan, attn_error *err)
{ return attn__plan_call(desc, NULL, 0, plan, ATTN__WITH_DATA | ATTN__AS_TASKS, err); }

#ifndef ATTN_NO_BACKWARD
ATTN__CALL(attn_backward, attn__attention(forward, grad, 1, bytes, err),
           const attn_desc *forward, const attn_grad *grad)
ATTN_DEF attn_status attn_plan_backward(const attn_desc *forward, const attn_grad *grad, attn_plan *plan,
                                        attn_error *err)
{ return attn__plan_call(forward, grad, 1, plan, ATTN__WITH_DATA | ATTN__AS_TASKS, err); }

static attn_status attn__key_sums(const attn_desc *forward, int64_t last_queries, attn_out key_sums, size_t *bytes,
                                  attn_error *err)
{
    attn_grad g;
    ATTN__RULE(key_sums.rank, NULL, "key_sums", "must be given: where the sums go");
    attn__zero(&g, sizeof g);
    g.key_sums = key_sums;
    g.last_queries = last_queries;
    return attn__attention(forward, &g, 1, bytes, err);
}
ATTN__CALL(attn_key_sums, attn__key_sums(forward, last_queries, key_sums, bytes, err),
           const attn_desc *forward, int64_t last_queries, attn_out key_sums)
#endif

/* ----------------------------------------------------------------------------------------------------- >>explain */
#ifdef ATTN_CUDA
/* "; on the device, stage 1 (not stage 3: why, not stage 2: why)" */
static void attn__put_stages(attn__text *t, const attn__call *c)
{
    const char *why, *name = attn__cuda_stage(c, 0, &why);
    int n;
    attn__put2(t, "; on the device, ", name);
    for (n = 1; (name = attn__cuda_stage(c, n, &why)) != NULL; n++) {
        attn__put2(t, n == 1 ? " (not " : ", not ", name);
        attn__put2(t, ": ", why);
    }
    if (n > 1) attn__put(t, ")");
}
#endif
/* ", softcap 50" */
static void attn__put_option(attn__text *t, const char *name, float x)
{
    attn__put(t, name);
    attn__put_number(t, x);
}

static void attn__put_limit(attn__text *t, const char *name, int64_t x)
{
    attn__put(t, name);
    if (x < 0) attn__put(t, "unbounded");
    else ATTN__FORMAT(t, "%", x);
}

/* "; with scale 0.125, causal, align bottom-right, dropout 0.1, bias, mask" */
ATTN__NOINLINE static void attn__put_options(attn__text *t, const attn_desc *d, const attn__call *c)
{
    static const char *const aligns[ATTN_ALIGN_COUNT] = {"top-left", "bottom-right", "positions", "top-left"};
    const attn__array *a = attn__operands_of(c, offsetof(attn__call, q));
    int i;
    attn__put(t, "; with ");
    if (!attn__is_kernel(c->score)) attn__put_option(t, "scale ", c->scale);
    else if (!c->sigma_per_head.rank) attn__put_option(t, "sigma ", c->sigma);
    else attn__put(t, "a sigma per head");
    if (c->softcap != 0.0f) attn__put_option(t, ", softcap ", c->softcap);
    if (d->causal) attn__put(t, ", causal");
    if (d->window) {
        attn__put_limit(t, ", window_left ", d->window_left);
        attn__put_limit(t, ", window_right ", d->window_right);
    }
    if (attn__uses_positions(d)) attn__put2(t, ", align ", aligns[c->align]);
    if (c->empty != ATTN_EMPTY_ZERO) attn__put(t, c->empty == ATTN_EMPTY_NAN ? ", empty NaN" : ", empty uniform");
    if (c->dropout > 0.0f) attn__put_option(t, ", dropout ", c->dropout);
    if (c->dropout > 0.0f && c->weights_after_dropout) attn__put(t, ", weights after dropout");
    for (i = 0; i < ATTN__F_COUNT; i++) {       /* what the score cannot do without goes without saying */
        const attn__field *f = &attn__fields[i];
        if (!a[i].rank || f->flags & (ATTN__OPERAND | ATTN__RESULT | ATTN__NEEDED) || f->takes == ATTN__SCALES ||
            i == ATTN__F_sigma_per_head) continue;
        attn__put2(t, ", ", attn__name(f));
    }
}

enum { ATTN__COUNTED_ROWS = 1 << 20 };  /* at most; an entry takes as long as some rows, even one without a query */
/* "; 50.3906 % of the pairs allowed by lengths, causal and window"; packed entries count as padded to the longest */
ATTN__NOINLINE static void attn__put_pairs(attn__text *t, const attn__call *c)
{
    const int limited = c->ragged || c->key_lengths.rank || c->query_lengths.rank || c->left != ATTN__HUGE ||
                        c->right != ATTN__HUGE;
    int64_t rows = c->packed_queries ? 0 : c->queries, keys = c->packed_keys ? 0 : c->keys, b, i;
    double all, allowed = 0;
    attn__call entry;
    const attn__call *e = c->ragged ? &entry : c;
    if (!limited || c->on_device || !attn__knows_entries(c) || !attn__is_known(&c->positions) ||
        attn__mul64(c->batch, attn__max(c->queries, 16)) > ATTN__COUNTED_ROWS) return;
    for (b = 0; b < c->batch; b++) {
        if (c->ragged) attn__open_entry(c, b, 0, &entry);
        if (c->packed_queries) rows = attn__max(entry.queries, rows);
        if (c->packed_keys) keys = attn__max(entry.keys, keys);
        for (i = 0; i < e->queries; i++) {
            const attn__row row = attn__row_of(e, b, i);
            allowed += (double)(row.last - row.first);
        }
    }
    all = (double)c->batch * (double)rows * (double)keys;
    if (all == 0) return;
    attn__put_option(t, "; ", (float)(100 * allowed / all));
    attn__put(t, " % of the pairs allowed by lengths, causal and window");
}

/* "; k f16, v i8, converted on the way, for 4 tiles at a time" */
static void attn__put_types(attn__text *t, const attn__call *c)
{
    const attn__array *a = attn__operands_of(c, offsetof(attn__call, q));
    int i, n = 0;
    for (i = 0; i < ATTN__F_COUNT; i++) {
        if (!a[i].rank || attn__fields[i].takes > ATTN__CODES || a[i].type == ATTN_F32) continue;
        attn__put2(t, n++ ? ", " : "; ", attn__name(&attn__fields[i]));
        attn__put(t, " ");
        attn__put_type(t, a[i].type, 0);
    }
    attn__put(t, n ? ", converted on the way" : "; all numbers f32");
    if (n && c->task_tiles > 1 && !c->is_backward) ATTN__FORMAT(t, ", for % tiles at a time", c->task_tiles);
    if (c->precision == ATTN_PRECISION_FAST)
        attn__put(t, !c->fast ? "; no products of bf16" : c->is_backward ? "; products of bf16" :
                  c->fast == ATTN__FAST_SCORES ? "; scores by products of bf16" :
                  c->fast == ATTN__FAST_VALUES ? "; out by products of bf16" : "; scores and out by products of bf16");
    if (c->fast && attn__by_amx(c)) attn__put(t, ", by AMX");
}

static void attn__put_forward(attn__text *t, const attn_plan *plan, const attn__call *c)
{
    ATTN__FORMAT(t, ", tiles of % queries x % keys, ",
                 c->stream_rows > ATTN__SKINNY ? c->tile_lanes : c->ld, ATTN__CHUNK);
    if (c->key_blocks > 0) ATTN__FORMAT(t, "% tasks for the keys, then ", plan->tasks[c->by_entry]);
    if (c->slots) ATTN__FORMAT(t, "% tasks for parts of the keys, then ", plan->tasks[plan->phases - 2]);
    ATTN__FORMAT(t, "% tasks", plan->tasks[plan->phases - 1]);
}
#ifndef ATTN_NO_BACKWARD
static void attn__put_backward(attn__text *t, const attn_plan *plan, const attn__call *c)
{
    const attn__backward *w = &c->w;
    ATTN__FORMAT(t, ", blocks of % queries x % keys, statistics ", ATTN_GRAD_QUERIES, ATTN_GRAD_KEYS);
    attn__put(t, c->saved_stats.rank ? "given, " : "computed again, ");
    ATTN__FORMAT(t, "% tasks for the rows, then %", plan->tasks[(c->ragged != 0) + (c->key_blocks > 0)],
                 w->main_tasks);
    attn__put(t, w->cells ? " tasks for parts of keys, a few blocks of queries at a time" :
                 w->rounds ? " tasks for blocks of queries, a few at a time" : w->key_parts + w->query_parts == 0 ?
                 " tasks for all products" : " tasks for parts of keys or queries");
    if (c->step[plan->phases - 1] == ATTN__STEP_SUMS)
        ATTN__FORMAT(t, ", then % tasks for parameters", plan->tasks[plan->phases - 1]);
}
#endif
static size_t attn__explain(const attn_desc *desc, const struct attn_grad *grad, int backward, char *text, size_t size)
{
    attn_plan plan;
    attn_error err;
    attn__text t = attn__text_into(text, size);
    const attn__call *c;
    if (attn__plan_call(desc, grad, backward, &plan, ATTN__NO_RESULT_NEEDED, &err) != ATTN_OK) {
        attn__put(&t, "refused: ");
        attn__put_error(&t, &err);
        return attn__end_text(&t);
    }
    c = attn__call_of(&plan);
    if (backward) attn__put(&t, c->key_sums.rank ? "sums by key of " : "gradients of ");
    attn__put2(&t, attn_score_string((attn_score)c->score), " attention");
    if (!backward) ATTN__FORMAT(&t, ", % x % heads (% of keys), % queries x % keys, d %, dv %", c->batch, c->heads,
                                c->heads_kv, c->queries, c->keys, c->size_q, c->size_v);
    ATTN__IN_FP_STATE(attn__put_options(&t, desc, c));
    ATTN__IN_FP_STATE(attn__put_pairs(&t, c));
    ATTN__CUDA_ONLY(if (c->on_device) {
        attn__put_stages(&t, c);
        ATTN__FORMAT(&t, "; workspace % bytes", (int64_t)plan.workspace_bytes);
        return attn__end_text(&t);
    })
    attn__put2(&t, "; kernels ", attn_isa_string((attn_isa)c->isa));
#ifndef ATTN_NO_BACKWARD
    if (backward) attn__put_backward(&t, &plan, c);
    else
#endif
    attn__put_forward(&t, &plan, c);
    if (c->query_starts.rank || c->key_starts.rank)
        attn__put(&t, c->packed_queries ? "; packed entries" : "; entries from their starts");
    if (c->page) ATTN__FORMAT(&t, "; keys in pages of %", c->page);
    attn__put_types(&t, c);
    ATTN__FORMAT(&t, "; workspace % bytes for % ", (int64_t)plan.workspace_bytes, c->workers);
    attn__put(&t, c->workers == 1 ? "worker" : "workers");
    return attn__end_text(&t);
}

ATTN_DEF size_t attn_explain(const attn_desc *desc, char *text, size_t size)
{ return attn__explain(desc, NULL, 0, text, size); }

#ifndef ATTN_NO_BACKWARD
ATTN_DEF size_t attn_explain_backward(const attn_desc *forward, const attn_grad *grad, char *text, size_t size)
{ return attn__explain(forward, grad, 1, text, size); }
#endif

/* ------------------------------------------------------------------------------------------------------ >>pieces
   Parts of attention on their own: softmax, scores, masks as data, two results merged. */
/* A copy of a structure (NULL: all 0) without the fields that have one of these flags. */
static void attn__copy_without(void *copy, const void *structure, size_t size, const attn__field *f, int count,
                               uint32_t flags)
{
    if (!structure) attn__zero(copy, size);
    else if (structure != copy) ATTN__COPY(copy, structure, size);
    attn__zero(copy, sizeof(uint64_t));             /* struct_bytes */
    for (; count > 0; count--, f++) if (f->flags & flags) attn__zero((char *)copy + f->offset, sizeof(attn_view));
}

static attn_status attn__options(const attn_desc *options, uint32_t without, attn_desc *d, attn_error *err)
{
    ATTN__KNOWN(attn_desc, options, d, stream);
    attn__copy_without(d, options, sizeof *d, attn__fields, ATTN__F_COUNT, without);
    return ATTN_OK;
}

/* Of functions whose tasks are rows. */
static attn_status attn__row_options(const attn_desc *options, attn_desc *d, attn_error *err)
{
    ATTN__TRY(attn__options(options, ATTN__OPTIONS, d, err));
    ATTN__RULE(d->parallel.workers >= 0, RANGE, "parallel.workers", "must not be negative");
    return ATTN_OK;
}

/* Of those that can do without: all that they use. Not inlined: a whole descriptor would stay on the stack. */
typedef struct attn__spare { attn_parallel parallel; void *stream; } attn__spare;
ATTN__NOINLINE static attn_status attn__spare_options(const attn_desc *options, attn__spare *used, attn_error *err)
{
    attn_desc d;
    attn__zero(used, sizeof *used);
    ATTN__CUDA_ONLY(used->stream = attn__cuda_stream();)
    if (!options) return ATTN_OK;
    ATTN__TRY(attn__row_options(options, &d, err));
    used->parallel = d.parallel;
    used->stream = d.stream;
    return ATTN_OK;
}

/* An error in a field that has another name in the function that was called, where it was of that rank. */
static void attn__rename(attn_error *err, const attn__field *from, const attn__field *to, int rank)
{
    int n;
    if (!err || err->status == ATTN_OK) return;
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

/* An attention to given scores. y: out; backward d_out, and dx is given. Where x has three axes, [B,Sq,Sk], those of a
   mask and a bias are these. */
static attn_status attn__softmax(attn_view x, attn_view y, const attn_out *dx, const attn_desc *options, size_t *bytes,
                                 attn_error *err)
{
#define ATTN__ROWS(f) {ATTN__TEXTS(f), "must be that of [n], [Sq,Sk], [B,Sq,Sk] or [B,H,Sq,Sk]", "", 0, 0, 0, 0}
    static const attn__field names[5] = {ATTN__ROWS("x"), ATTN__ROWS("out"),
                                         ATTN__ROWS("x"), ATTN__ROWS("d_out"), ATTN__ROWS("dx")};
#undef ATTN__ROWS
    const attn__field *f = attn__fields, *name = names + (dx ? 2 : 0);
    const attn_view v[3] = {x, y, dx ? attn_view_of(*dx) : x};
    attn_status st = ATTN_OK;
    attn_desc d;
    int i, mask3, bias3, index3;
    for (i = 0; i < (dx ? 3 : 2); i++) {
        ATTN__RULE_OF(v[i].rank, NULL, attn__name(&name[i]), "must be given");
        ATTN__RULE2_OF(v[i].rank == x.rank, RANK, attn__rank_name(&name[i]), "must equal x.rank", v[i].rank, x.rank);
    }
    ATTN__TRY(attn__options(options, ATTN__OPTIONS, &d, err));
    ATTN__RULE(!(d.dropout > 0.0f && d.dropout <= 1.0f) || d.weights_after_dropout, OPTION, "dropout",
               "counts only with weights_after_dropout");
    mask3 = x.rank == 3 && d.mask.rank == 3;
    bias3 = x.rank == 3 && d.bias.rank == 3 && !d.bias_index.rank;
    index3 = x.rank == 3 && d.bias_index.rank == 3;
    d.score = ATTN_SCORE_GIVEN;
    d.given_scores = attn__rows4(x);
    if (mask3) d.mask = attn__rows4(d.mask);
    if (bias3) d.bias = attn__rows4(d.bias);
    if (index3) d.bias_index = attn__rows4(d.bias_index);
    if (!dx) {
        if (options) d.lse = options->lse;
        if (options) d.stats = options->stats;
        d.weights = attn__out(attn__rows4(y));
        st = attn__attention(&d, NULL, 0, bytes, err);
        attn__rename(err, &f[ATTN__F_weights], &name[1], x.rank);
    }
#ifndef ATTN_NO_BACKWARD
    else {
        attn_grad g;
        attn__zero(&g, sizeof g);
        g.d_weights = attn__rows4(y);
        g.d_given_scores = attn__out(attn__rows4(v[2]));
        st = attn__attention(&d, &g, 1, bytes, err);
        attn__rename(err, &attn__grad_fields[ATTN__G_d_weights], &name[1], x.rank);
        attn__rename(err, &attn__grad_fields[ATTN__G_d_given_scores], &name[2], x.rank);
    }
#endif
    attn__rename(err, &f[ATTN__F_given_scores], name, x.rank);
    if (mask3) attn__rename(err, &f[ATTN__F_mask], &f[ATTN__F_mask], 3);
    if (bias3) attn__rename(err, &f[ATTN__F_bias], &f[ATTN__F_bias], 3);
    if (index3) attn__rename(err, &f[ATTN__F_bias_index], &f[ATTN__F_bias_index], 3);
    return st;
}

ATTN__CALL(attn_softmax, attn__softmax(x, attn_view_of(out), NULL, options, bytes, err),
           attn_view x, attn_out out, const attn_desc *options)
ATTN_DEF attn_status attn_scores(attn_view q, attn_view k, attn_out scores, const attn_desc *options, attn_error *err)
{
    attn_desc d;
    ATTN__TRY(attn__options(options, ATTN__OPTIONS, &d, err));
    ATTN__RULE(scores.rank, NULL, "scores", "must be given");
    d.q = q;
    d.k = k;
    d.scores = scores;
    d.weights_after_dropout = 0;
    return attn_forward(&d, err);
}

#ifndef ATTN_NO_BACKWARD
ATTN__CALL(attn_softmax_backward, attn__softmax(x, d_out, &dx, options, bytes, err),
           attn_view x, attn_view d_out, attn_out dx, const attn_desc *options)
#endif

/* ---- masks as data */
/* Of the options those that decide which keys a query may attend to. A function of its own for its stack's sake. */
ATTN__NOINLINE static attn_status attn__reaching(const attn_desc *options, attn_desc *d, attn_error *err)
{
    attn_desc copy;
    int i;
    ATTN__KNOWN(attn_desc, options, &copy, stream);
    attn__zero(d, sizeof *d);
    d->causal = options->causal;
    d->align = options->align;
    d->window = options->window;
    d->window_left = options->window_left;
    d->window_right = options->window_right;
    d->key_origin = options->key_origin;
    for (i = 0; i < ATTN__F_COUNT; i++)
        if (attn__fields[i].flags & ATTN__REACHES)
            ATTN__COPY((char *)d + attn__fields[i].offset, (const char *)options + attn__fields[i].offset,
                       sizeof(attn_view));
    return ATTN_OK;
}

/* A mask as data, and where it is not NULL what makes it: no scores, only what says who may attend to whom. */
static attn_status attn__mask_check(const void *mask, const attn__field *f, const attn_desc *options, int flags,
                                    attn__call *c, attn_error *err)
{
    attn__checker w;
    attn_desc d;
    const attn_view *starts;
    attn__zero(c, sizeof *c);
    attn__begin_checks(&w, c, flags | ATTN__NO_RESULT_NEEDED);
    ATTN__TRY(attn__check_fields(&w, mask, f, 1, 0, ATTN__OPERAND, NULL, err));
    if (!options) return ATTN_OK;
    ATTN__TRY(attn__reaching(options, &d, err));
    starts = d.query_starts.rank ? &d.query_starts : &d.key_starts;
    if (starts->rank == 1 && starts->size[0] > 1 && ATTN__LETTER(&w, 'B') == 1) {       /* all in one picture */
        attn__bind(&w, 'B', starts->size[0], &attn__fields[starts == &d.query_starts ? ATTN__F_query_starts :
                                                           ATTN__F_key_starts], 0);
        attn__bind(&w, 'I', 1, f, 0);
        attn__bind(&w, 'J', 1, f, 0);
    }
    ATTN__TRY(attn__check_desc(&w, &d, ATTN__OPERAND, err));
    c->ld = 1;
    return attn__make_call(&w, &d, NULL, err);
}

typedef struct attn__masking {
    const attn__call *c;
    const int64_t *n;           /* the mask's sizes */
    attn__array mask;
    int dropout;
} attn__masking;

ATTN__NOINLINE static void attn__mask_row(const attn__call *c, uint8_t *to, int64_t step, int64_t b, int64_t h,
                                          int64_t i)
{
    const attn__row row = attn__row_of(c, b, i);
    const int64_t keys = c->keys;
    int64_t j;
    for (j = 0; j < keys; j++, to += step) *to = (uint8_t)attn__mask_at(c, row, b, h, i, j);
}

/* Rows of a head from i on, with starts: what entries make of them, in one picture all of them; each is opened once,
   which may take as long as all its rows. Not inlined, for the stack's sake. */
ATTN__NOINLINE static void attn__mask_rows_of_entries(const attn__masking *m, uint8_t *to, int64_t b, int64_t h,
                                                      int64_t i, int64_t rows)
{
    const attn__call *c = m->c;
    const int64_t row = m->mask.stride[2], step = m->mask.stride[3], entries = m->n[0] == 1 ? c->batch : b + 1;
    attn__extent x;
    attn__call e;
    int64_t r, j, end;
    for (r = 0; r < rows; r++) for (j = 0; j < m->n[3]; j++) to[r * row + j * step] = 0;
    for (; b < entries; b++) {
        attn__find_rows(c, b, 0, &x);
        r = attn__max(x.row0, i);
        end = attn__min(x.row0 + x.rows, i + rows);
        if (r < end) attn__open_entry(c, b, 0, &e);
        for (; r < end; r++) attn__mask_row(&e, to + (r - i) * row + e.key0 * step, step, b, h, r - e.row0);
    }
}

static void attn__mask_rows(const void *call, int64_t first, int64_t end)
{
    const attn__masking *m = (const attn__masking *)call;
    const int64_t *n = m->n, step = m->mask.stride[3];
    int64_t j, rows;
    for (; first < end; first += rows) {
        const int64_t b = first / n[2] / n[1], h = first / n[2] % n[1], i = first % n[2];
        uint8_t *to = (uint8_t *)m->mask.data + attn__index(&m->mask, b, h, i, 0);
        attn__dropper drop = attn__dropper_of(m->c, b, h, i);
        rows = m->c->ragged ? attn__min(end - first, n[2] - i) : 1;
        if (m->dropout) for (j = 0; j < n[3]; j++) to[j * step] = (uint8_t)attn__kept(&drop, j);
        else if (m->c->ragged) attn__mask_rows_of_entries(m, to, b, h, i, rows);
        else attn__mask_row(m->c, to, step, b, h, i);
    }
}

/* What attends to what, or what dropout keeps. */
static attn_status attn__mask(attn_out mask, const attn_desc *options, int dropout, attn_error *err)
{
    const attn_view out = attn_view_of(mask);
    attn__masking m;
    attn__call c;
    attn_desc d;
    int flags = ATTN__WITH_DATA;
    ATTN__TRY(attn__row_options(options, &d, err));
    ATTN__CUDA_ONLY(ATTN__TRY(attn__find_place(attn__in_structure(&mask, &attn__mask_field, 1),
                                               attn__in_structure(dropout ? NULL : &d, &attn__fields[ATTN__F_bias],
                                                                  ATTN__F_COUNT - ATTN__F_bias),
                                               NULL, &flags, err));)
    ATTN__TRY(attn__mask_check(&mask, &attn__mask_field, dropout ? NULL : &d, flags, &c, err));
    ATTN__RULE(!dropout || (attn__is_number(d.dropout) && d.dropout >= 0.0f && d.dropout <= 1.0f), RANGE, "dropout",
               "must be within 0..1");
    m.c = &c;
    m.n = mask.size;
    m.mask = attn__array_of(out, attn__mask_field.shape);
    m.dropout = dropout;
    ATTN__IN_FP_STATE(if (dropout) attn__set_dropout(&c, &d));
    ATTN__CUDA_ONLY(if (flags & ATTN__ON_DEVICE) {
        ATTN__TRY(attn__cuda_mask(&c, &m.mask, mask.size, dropout, d.stream, err));
        return attn__success(err);
    })
    if (!attn__elements(&out)) return attn__success(err);
    attn__for_rows(&d.parallel, mask.size[0] * mask.size[1] * mask.size[2],
                   attn__mul64(mask.size[3], ATTN__PLAIN_NUMBER), 0, attn__mask_rows, &m);
    return attn__success(err);
}

ATTN_DEF attn_status attn_mask(attn_out mask, const attn_desc *options, attn_error *err)
{ return attn__mask(mask, options, 0, err); }

ATTN_DEF attn_status attn_dropout_mask(attn_out mask, const attn_desc *options, attn_error *err)
{ return attn__mask(mask, options, 1, err); }

/* ---- two results merged */
typedef struct attn__two_results {
    attn__array a[6];           /* out_a, lse_a, out_b, lse_b, out, lse */
    int64_t size[4];
} attn__two_results;

ATTN__NOINLINE static void attn__merge_rows(const void *call, int64_t row, int64_t end)
{
    const attn__array *a = ((const attn__two_results *)call)->a;
    const int64_t *n = ((const attn__two_results *)call)->size;
    int64_t x;
    for (; row < end; row++) {
        const attn__box at = attn__box_of(n, row, row + 1);
        const int64_t b = at.b, h = at.h, i = at.i;
        const float la = attn__read(&a[1], b, h, i, 0), lb = attn__read(&a[3], b, h, i, 0);
        const float m = attn__larger(la, lb), base = attn__is_none(m) ? 0.0f : m;
        const float ea = attn__exp(la - base), eb = attn__exp(lb - base), sum = ea + eb;
        for (x = 0; x < n[3]; x++) {                            /* a part without mass contributes nothing, no NaN */
            float both = 0.0f;
            if (!attn__is_none(la)) both = attn__read(&a[0], b, h, i, x) * ea;
            if (!attn__is_none(lb)) both = attn__fma(attn__read(&a[2], b, h, i, x), eb, both);
            attn__write(&a[4], b, h, i, x, sum == 0.0f ? 0.0f : attn__quiet(both / sum));
        }
        if (a[5].rank) attn__write(&a[5], b, h, i, 0, sum == 0.0f ? ATTN__NEG_INF : attn__quiet(m + attn__log(sum)));
    }
}

ATTN_DEF attn_status attn_merge_with(attn_view out_a, attn_view lse_a, attn_view out_b, attn_view lse_b,
                                     attn_out out, attn_out lse, const attn_desc *options, attn_error *err)
{
#define ATTN__OUT(f, i, flags) ATTN__ARGUMENT(f, i, "BHQV", "[B,H,Sq,Dv]; without heads H = 1", FLOATS, flags, 0)
#define ATTN__LSE(f, i, flags) ATTN__ARGUMENT(f, i, "BHQ.", "[B,H,Sq]; without heads H = 1", SINGLES, flags, 0)
    static const attn__field fields[6] = {
        ATTN__OUT(out_a, 0, ATTN__NEEDED), ATTN__LSE(lse_a, 1, ATTN__NEEDED),
        ATTN__OUT(out_b, 2, ATTN__NEEDED), ATTN__LSE(lse_b, 3, ATTN__NEEDED),
        ATTN__OUT(out, 4, ATTN__NEEDED | ATTN__RESULT), ATTN__LSE(lse, 5, ATTN__RESULT)};
#undef ATTN__OUT
#undef ATTN__LSE
    const attn_view v[6] = {out_a, lse_a, out_b, lse_b, attn_view_of(out), attn_view_of(lse)};
    attn__checker w;
    attn__two_results m;
    attn__spare used;
    int flags = ATTN__WITH_DATA;
    ATTN__TRY(attn__spare_options(options, &used, err));
    ATTN__CUDA_ONLY(ATTN__TRY(attn__find_place(attn__in_structure(v, fields, 6), attn__in_structure(NULL, NULL, 0),
                                               NULL, &flags, err));)
    attn__zero(m.a, sizeof m.a);
    attn__begin_checks(&w, NULL, flags);
    ATTN__TRY(attn__check_fields(&w, v, fields, 6, 0, 0, m.a, err));
    ATTN__TRY(attn__check_overlaps(&w, err));
    if (!attn__elements(&v[4]) && (!lse.rank || !attn__elements(&v[5]))) return attn__success(err);
    ATTN__CUDA_ONLY(if (flags & ATTN__ON_DEVICE) return attn__cuda_merge(m.a, out.size, used.stream, err);)
    ATTN__COPY(m.size, out.size, sizeof m.size);
    attn__for_rows(&used.parallel, out.size[0] * out.size[1] * out.size[2],
                   attn__mul64(out.size[3], ATTN__PLAIN_NUMBER), attn__row_bytes(&m.a[4]) | attn__row_bytes(&m.a[5]),
                   attn__merge_rows, &m);
    return attn__success(err);
}

ATTN_DEF attn_status attn_merge(attn_view out_a, attn_view lse_a, attn_view out_b, attn_view lse_b,
                                attn_out out, attn_out lse, attn_error *err)
{ return attn_merge_with(out_a, lse_a, out_b, lse_b, out, lse, NULL, err); }

/* -------------------------------------------------------------------------------------------------- >>conversion
   Numbers of one type from those of another; functions of one number. */

/* The bits of a float next to a double, so that rounding them to fewer bits rounds the double once: to odd. */
static uint32_t attn__bits_to_odd(double x)
{
    const float close = (float)x;
    const double back = (double)close;
    uint32_t bits = attn__bits(close);
    uint64_t from, to;
    ATTN__COPY(&from, &x, sizeof from);
    ATTN__COPY(&to, &back, sizeof to);
    if ((bits & 0x7f800000u) == 0x7f800000u && (from >> 52 & 0x7ff) != 0x7ff) return bits - 1;     /* too large: odd */
    if (from == to || (bits & 0x7f800000u) == 0x7f800000u) return bits;
    if ((from << 1) < (to << 1)) bits--;                                        /* towards 0, then the last bit set */
    return bits | 1u;
}

/* Some numbers of a row of doubles, as floats that rounding to `type` rounds once. */
static void attn__floats_of_doubles(const attn__array *from, int32_t type, int64_t b, int64_t h, int64_t i,
                                    int64_t column, int64_t n, float *some)
{
    const double *x = (const double *)attn__place_of(from, b, h, i, column);
    int64_t j;
    for (j = 0; j < n; j++) {
        const double number = x[j * from->stride[3]];
        some[j] = type == ATTN_F32 ? (float)number : attn__float(attn__bits_to_odd(number));
    }
}

/* The other way round; of doubles, where `some` is NULL. */
static void attn__doubles_of(const attn__array *from, const attn__array *to, int64_t b, int64_t h, int64_t i,
                             int64_t column, int64_t n, const float *some)
{
    const double *x = some ? NULL : (const double *)attn__place_of(from, b, h, i, column);
    double *y = (double *)(uintptr_t)attn__place_of(to, b, h, i, column), number;
    int64_t j;
    for (j = 0; j < n; j++) {
        number = some ? (double)some[j] : x[j * from->stride[3]];
        y[j * to->stride[3]] = number == number ? number : (double)ATTN__NAN;
    }
}

/* Rows of all heads, n numbers in each. The kernel of rotary positions, turning nothing, makes each NaN the one. */
ATTN__NOINLINE static void attn__convert_rows(const attn__kernels *f, const attn__array *from, const attn__array *to,
                                              int64_t b, int64_t heads, int64_t rows, int64_t n)
{
    const int straight = attn__is_contiguous(to), whole = straight && attn__is_contiguous(from);
    const int64_t none = 0;
    float some[ATTN__CHUNK];
    attn__rotate t;
    int64_t h, i, x;
    attn__zero(&t, sizeof t);
    t.at = &none;
    t.cosines = t.sines = attn__zeros;
    t.groups = whole ? heads : 1;
    t.rows = whole ? rows : 1;
    t.rest = n;
    t.x = attn__at(from, b, 0, 0, 0);
    t.out = attn__at(to, b, 0, 0, 0);
    t.x_group = from->stride[1];
    t.x_row = from->stride[2];
    t.out_group = to->stride[1];
    t.out_row = to->stride[2];
    if (whole && heads && rows && n) f->rotate(&t);     /* else there may be no data */
    for (h = 0; !whole && h < heads; h++)
        for (i = 0; i < rows; i++)
            for (x = 0; x < n; x += t.rest) {
                const int wide = from->type == ATTN_F64;
                t.rest = attn__min(n - x, ATTN__CHUNK);
                t.x = t.out = straight ? attn__at(to, b, h, i, x) : some;
                if (!wide) attn__copy_row(f, attn__in(from, b, h, i, x), t.rest, t.out);
                else if (to->type != ATTN_F64) attn__floats_of_doubles(from, to->type, b, h, i, x, t.rest, t.out);
                if (to->type == ATTN_F64) attn__doubles_of(from, to, b, h, i, x, t.rest, wide ? NULL : some);
                else if (attn__is_f32(to)) f->rotate(&t);       /* a NaN of 16 bits will be the one anyway */
                if (!straight && to->type != ATTN_F64) attn__store_row(f, attn__in(to, b, h, i, x), t.rest, some);
            }
}
#define ATTN__ROWS(f, i, shape, takes, flags) \
    ATTN__ARGUMENT(f, i, shape, "any shape: 1 to 4", takes, ATTN__NEEDED | (flags), 0)
/* Checks of functions of arrays, and their operands. on_device: as in attn__call; NULL: they may not be there. */
static attn_status attn__check_arrays(const void *v, const attn__field *fields, int count, attn__array *a,
                                      ATTN__CUDA_ONLY(int *on_device,) attn_error *err)
{
    attn__checker w;
    int flags = ATTN__WITH_DATA;
    ATTN__CUDA_ONLY(ATTN__TRY(attn__find_place(attn__in_structure(v, fields, count),
                                               attn__in_structure(NULL, NULL, 0), NULL, &flags, err));
                    ATTN__RULE_OF(on_device || !(flags & ATTN__ON_DEVICE), PLACE, attn__name(fields),
                                  "must lie on the host");
                    if (on_device) *on_device = attn__on_device(flags);)
    attn__begin_checks(&w, NULL, flags);
    attn__zero(a, (size_t)count * sizeof *a);
    ATTN__TRY(attn__check_fields(&w, v, fields, count, 0, 0, a, err));
    return attn__check_overlaps(&w, err);
}

typedef struct attn__converting {
    attn__array  a[2];          /* from, to */
    int64_t      size[4];
    int64_t      parts, part;   /* of a row that is longer than a task has to be, and their columns */
    const attn__kernels *f;
} attn__converting;

static void attn__convert_some(const void *call, int64_t at, int64_t end)
{
    const attn__converting *c = (const attn__converting *)call;
    attn__array from = c->a[0], to = c->a[1];
    for (; at < end;) {
        const int64_t row = at / c->parts, column = at % c->parts * c->part;
        const attn__box x = attn__box_of(c->size, row, c->parts > 1 ? row + 1 : end);
        from.data = (void *)(uintptr_t)attn__place_of(&c->a[0], x.b, x.h, x.i, column);
        to.data = (void *)(uintptr_t)attn__place_of(&c->a[1], x.b, x.h, x.i, column);
        attn__convert_rows(c->f, &from, &to, 0, x.heads, x.rows, attn__min(c->size[3] - column, c->part));
        at += x.heads * x.rows;
    }
}

ATTN_DEF attn_status attn_convert_with(attn_view from, attn_out to, const attn_desc *options, attn_error *err)
{
    static const attn__field fields[2] = {ATTN__ROWS(from, 0, "bhqd", ANY_FLOATS, 0),
                                          ATTN__ROWS(to, 1, "bhqd", ANY_FLOATS, ATTN__RESULT)};
    const attn_view v[2] = {from, attn_view_of(to)}, all = attn__view4(from, "bhqd");
    attn__converting c;
    attn__spare used;
    ATTN__CUDA_ONLY(int on_device;)
    ATTN__TRY(attn__spare_options(options, &used, err));
    ATTN__TRY(attn__check_arrays(v, fields, 2, c.a, ATTN__CUDA_ONLY(&on_device,) err));
    ATTN__RULE2(from.rank == to.rank, RANK, "to.rank", "must equal from.rank", to.rank, from.rank);
    ATTN__CUDA_ONLY(if (on_device) return attn__cuda_convert(c.a, all.size, used.stream, on_device, err);)
    if (!attn__elements(&all)) return attn__success(err);
    c.f = attn__table((int32_t)attn_best_isa());
    ATTN__COPY(c.size, all.size, sizeof c.size);
    c.parts = attn__max(all.size[3] / (ATTN__TASK_NUMBERS + 1), 1);
    c.part = attn__blocks(all.size[3], c.parts * ATTN__ALIGN) * ATTN__ALIGN;        /* whole lines of the cache */
    c.parts = attn__blocks(all.size[3], c.part);
    attn__for_rows(&used.parallel, all.size[0] * all.size[1] * all.size[2] * c.parts, attn__min(all.size[3], c.part),
                   c.parts > 1 ? 0 : attn__row_bytes(&c.a[1]), attn__convert_some, &c);
    return attn__success(err);
}

ATTN_DEF attn_status attn_convert(attn_view from, attn_out to, attn_error *err)
{ return attn_convert_with(from, to, NULL, err); }

/* Numbers x .. x+n of a row, or of as many rows side by side as it says, as codes, with a scale for `each` of them:
   a: from, codes, scale. */
static void attn__quantize_some(const attn__kernels *f, const attn__array *a, int64_t b, int64_t h, int64_t i,
                                int64_t rows, int64_t x, int64_t n, int64_t each)
{
    float some[ATTN__CHUNK], scale[ATTN__SCALES_AT_ONCE];
    uint32_t largest[ATTN__SCALES_AT_ONCE];
    int8_t some_codes[ATTN__CHUNK];
    const int straight = attn__is_contiguous(&a[0]);
    const int64_t groups = attn__max(attn__blocks(n, each), 1), step = rows > 1 ? n : (int64_t)ATTN__CHUNK;
    const int64_t first = x / each;
    int64_t j, k, r, g, count;
    for (k = 0; k < groups; k++) largest[k] = 0;
    for (j = x; j < x + n; j += count) {
        count = attn__min(x + n - j, step);
        if (!straight) attn__copy_row(f, attn__in(&a[0], b, h, i, j), count, some);
        f->largest(straight ? attn__at(&a[0], b, h, i, j) : some, count, each, largest);
    }
    for (r = k = 0; r < rows; r++)
        for (g = 0; g < groups / rows; g++, k++) {
            scale[k] = largest[k] >= 0x7f800000u ? ATTN__NAN : attn__float(largest[k]) / 127.0f;
            if (a[2].type == ATTN_F16) scale[k] = scale[k] > 65504.0f ? 65504.0f : scale[k];    /* the largest f16 */
            attn__write(&a[2], b, h, i + r, first + g, scale[k]);
            if (a[2].type != ATTN_F32) scale[k] = attn__read(&a[2], b, h, i + r, first + g);    /* as it is rounded */
        }
    for (j = x; j < x + n; j += count) {
        int8_t *at = (int8_t *)(uintptr_t)attn__place_of(&a[1], b, h, i, j);
        int8_t *codes = a[1].stride[3] == 1 ? at : some_codes;
        count = attn__min(x + n - j, step);
        if (!straight && n > ATTN__CHUNK) attn__copy_row(f, attn__in(&a[0], b, h, i, j), count, some);
        f->quantize(straight ? attn__at(&a[0], b, h, i, j) : some, count, each, scale, codes);
        for (k = 0; codes != at && k < count; k++) at[k * a[1].stride[3]] = codes[k];
    }
}

/* Whole rows i .. end, with so many scales each. What is done with a row's largest number waits for it: several rows
   at a time hide that, where they lie one after the other. */
static void attn__quantize_rows(const attn__kernels *f, const attn__array *a, int64_t b, int64_t h, int64_t i,
                                int64_t end, int64_t columns, int64_t groups)
{
    const int64_t each = groups == 1 ? attn__max(columns, 1) : ATTN__CODES_PER_SCALE;
    const int64_t n = groups == 1 ? each : (int64_t)ATTN__CHUNK;
    const int dense = attn__is_contiguous(&a[0]) && columns > 0 && a[1].stride[3] == 1 && a[0].stride[2] == columns &&
                      a[1].stride[2] == columns && columns == groups * each;
    const int64_t together = dense ? attn__min(ATTN__SCALES_AT_ONCE / groups, 2048 / columns) : 0;
    int64_t x, rows;
    for (; i < end; i += rows) {
        rows = attn__max(attn__min(together, end - i), 1);
        if (rows > 1) attn__quantize_some(f, a, b, h, i, rows, 0, rows * columns, each);
        else for (x = 0; x < groups * each; x += n)
            attn__quantize_some(f, a, b, h, i, 1, x, attn__min(columns - x, n), each);
    }
}

typedef struct attn__quantizing {
    attn__array  a[3];          /* from, codes, scale */
    int64_t      size[4], groups;
    const attn__kernels *f;
} attn__quantizing;

static void attn__quantize_heads(const void *call, int64_t row, int64_t end)
{
    const attn__quantizing *c = (const attn__quantizing *)call;
    int64_t h;
    while (row < end) {
        const attn__box x = attn__box_of(c->size, row, end);
        for (h = x.h; h < x.h + x.heads; h++)
            attn__quantize_rows(c->f, c->a, x.b, h, x.i, x.i + x.rows, c->size[3], c->groups);
        row += x.heads * x.rows;
    }
}

ATTN_DEF attn_status attn_quantize_with(attn_view from, attn_out codes, attn_out scale, const attn_desc *options,
                                        attn_error *err)
{
    static const attn__field fields[3] = {
        ATTN__ARGUMENT(from, 0, "BHSD", "[B,H,S,D]", FLOATS, ATTN__NEEDED, 0),
        ATTN__ARGUMENT(codes, 1, "BHSD", "[B,H,S,D]", ONLY_CODES, ATTN__NEEDED | ATTN__RESULT, 0),
        ATTN__ARGUMENT(scale, 2, "BHS?", "[B,H,S,1] or [B,H,S,ceil(D/32)]", SCALES, ATTN__NEEDED | ATTN__RESULT, 0)};
    const attn_view v[3] = {from, attn_view_of(codes), attn_view_of(scale)};
    attn__quantizing c;
    attn__spare used;
    ATTN__CUDA_ONLY(int on_device;)
    ATTN__TRY(attn__spare_options(options, &used, err));
    ATTN__TRY(attn__check_arrays(v, fields, 3, c.a, ATTN__CUDA_ONLY(&on_device,) err));
    ATTN__TRY(attn__check_groups(&v[1], &v[2], "scale.size[3]", err));
    if (!attn__elements(&v[2])) return attn__success(err);              /* there is one for each row that has numbers */
    ATTN__CUDA_ONLY(if (on_device)
        return attn__cuda_quantize(c.a, codes.size, scale.size[3], used.stream, on_device, err);)
    c.f = attn__table((int32_t)attn_best_isa());
    ATTN__COPY(c.size, codes.size, sizeof c.size);
    c.groups = scale.size[3];
    attn__for_rows(&used.parallel, codes.size[0] * codes.size[1] * codes.size[2], codes.size[3],
                   attn__row_bytes(&c.a[1]) | attn__row_bytes(&c.a[2]), attn__quantize_heads, &c);
    return attn__success(err);
}

ATTN_DEF attn_status attn_quantize(attn_view from, attn_out codes, attn_out scale, attn_error *err)
{ return attn_quantize_with(from, codes, scale, NULL, err); }

ATTN_DEF attn_status attn_unpack_q8_0(const void *blocks, attn_out codes, attn_out scale, attn_error *err)
{
    static const attn__field fields[2] = {
        ATTN__ARGUMENT(codes, 0, "BHSD", "[B,H,S,D]", ONLY_CODES, ATTN__NEEDED | ATTN__RESULT, 0),
        ATTN__ARGUMENT(scale, 1, "BHS?", "[B,H,S,ceil(D/32)]", SCALES, ATTN__NEEDED | ATTN__RESULT, 0)};
    const attn_view v[2] = {attn_view_of(codes), attn_view_of(scale)};
    const uint8_t *block = (const uint8_t *)blocks;
    attn__fp_state saved;
    attn__array a[2];
    int64_t b, h, i, x, j;
    ATTN__CUDA_ONLY(int on_device, where;)
    ATTN__TRY(attn__check_arrays(v, fields, 2, a, ATTN__CUDA_ONLY(&on_device,) err));
    ATTN__RULE2(codes.size[3] % ATTN__CODES_PER_SCALE == 0, SIZE, "codes.size[3]", "must be a multiple", codes.size[3],
                ATTN__CODES_PER_SCALE);
    ATTN__RULE2(scale.size[3] == codes.size[3] / ATTN__CODES_PER_SCALE, SIZE, "scale.size[3]",
                "must be one per 32 numbers of a row", scale.size[3], codes.size[3] / ATTN__CODES_PER_SCALE);
    ATTN__RULE(blocks || !attn__elements(&v[0]), NULL, "blocks", "must not be NULL");
    if (!attn__elements(&v[0])) return attn__success(err);
    ATTN__CUDA_ONLY(where = on_device ? attn__cuda_place(a[0].data, err) & ATTN__PLACE_DEVICE : ATTN__PLACE_HOST;
                    ATTN__TRY(attn__see(&where, blocks, "blocks", err));
                    if (on_device) return attn__cuda_unpack_q8_0(blocks, a, codes.size, err);)
    saved = attn__fp_enter();
    for (b = 0; b < scale.size[0]; b++)
        for (h = 0; h < scale.size[1]; h++)
            for (i = 0; i < scale.size[2]; i++)
                for (x = 0; x < scale.size[3]; x++, block += ATTN__CODES_PER_SCALE + 2) {
                    const uint32_t unit = attn__widened(ATTN_F16, (uint32_t)block[0] | (uint32_t)block[1] << 8);
                    uint8_t *to = (uint8_t *)(uintptr_t)attn__place_of(&a[0], b, h, i, x * ATTN__CODES_PER_SCALE);
                    attn__write(&a[1], b, h, i, x, attn__quiet(attn__float(unit)));
                    for (j = 0; j < ATTN__CODES_PER_SCALE; j++) to[j * a[0].stride[3]] = block[2 + j];
                }
    attn__fp_leave(saved);
    return attn__success(err);
}
#undef ATTN__ROWS

ATTN_DEF attn_status attn_elementary(attn_function function, const float *x, float *y, int64_t n, attn_isa isa)
{
    const attn__kernels *f;
    int64_t i;
    if ((int)function < 0 || function >= ATTN_FUNCTION_COUNT || (int)isa < 0 || isa >= ATTN_ISA_COUNT)
        return ATTN_ERR_OPTION;
    if (n < 0) return ATTN_ERR_SIZE;
    if (n > 0 && (!x || !y)) return ATTN_ERR_NULL;
    if (isa != ATTN_ISA_AUTO && !attn__cpu_has(isa)) return ATTN_ERR_ISA;
    ATTN__CUDA_ONLY(if (n > 0 && !(attn__cuda_place(x, NULL) & attn__cuda_place(y, NULL) & ATTN__PLACE_HOST))
        return ATTN_ERR_PLACE;)
    f = attn__table((int32_t)(isa == ATTN_ISA_AUTO ? attn_best_isa() : isa));
    ATTN__IN_FP_STATE(f->elementary((int32_t)function, x, y, n));
    for (i = 0; i < n; i++) y[i] = attn__quiet(y[i]);
    return ATTN_OK;
}

/* --------------------------------------------------------------------------------------------------------- >>bmm */
/* ---- a product in chains of ATTN__RUN: a task is some columns of one batch entry, tile by tile; lanes are columns */
typedef struct attn__columns {
    const attn__matmul *m;
    int64_t x, y, row, rows;            /* batch entry; its rows, */
    int64_t first, count;               /* its columns of b, */
    int64_t vectors, in_place;          /* these in vectors; the first of them, whose b is read where it lies */
    float  *panel, *c, *copy;           /* b's other tiles one after the other; what is computed; rows as floats */
    int64_t c_row;                      /* floats from a row of c to the next */
    int     in_out;                     /* c lies in the result, whose columns are whole vectors */
} attn__columns;

static void attn__bmm_store(const attn__columns *t, int64_t row, int64_t rows)
{
    const attn__array *out = &t->m->out;
    const int64_t ld = t->vectors * t->m->f->width;
    const int quiet = t->m->f->finite(t->c, rows * ld), copies = quiet && attn__is_contiguous(out);
    const float *c = t->c;
    attn__place at = attn__in(out, t->x, t->y, row, t->first);
    int64_t l;
    for (; rows > 0; rows--, at.row++, c += ld)
        if (copies) attn__copy_floats(attn__at(out, at.b, at.h, at.row, at.column), c, t->count);   /* short: no call */
        else if (quiet) attn__store_row(t->m->f, at, t->count, c);
        else for (l = 0; l < t->count; l++) attn__write(out, at.b, at.h, at.row, at.column + l, attn__quiet(c[l]));
}

/* What was computed in its place: each NaN becomes the one. */
static void attn__bmm_quiet(const attn__columns *t, int64_t rows)
{
    float *c = t->c;
    int64_t l;
    for (; rows > 0; rows--, c += t->c_row)
        if (!t->m->f->finite(c, t->count)) for (l = 0; l < t->count; l++) c[l] = attn__quiet(c[l]);
}

/* The tile from the v-th vector on: how many vectors it has. */
static int32_t attn__bmm_tile(const attn__columns *t, int64_t v)
{
    return attn__tile_vectors(t->m->f, (v < t->in_place ? t->in_place : t->vectors) - v);
}

/* n terms, from the k-th on, of some columns, as pairs of bf16. Columns of b that lie side by side are rows as these
   kernels take them of queries. */
static void attn__bmm_pack_pairs(const attn__columns *t, int64_t k, int64_t n, int64_t column, int64_t lanes,
                                 int64_t ld, float *to)
{
    const attn__array *b = &t->m->b;
    const attn__pair_kernels *f = t->m->f->pairs;       /* lanes are columns by AMX, too */
    const int64_t width = t->m->f->width, turned = b->stride[2] == 1 && n >= 2 * width ? n / 2 * 2 : 0;
    const attn__half *columns[ATTN__MAX_WIDTH];
    const int direct = b->stride[3] == 1 && lanes >= width;
    const uintptr_t step = (uintptr_t)b->stride[2] * sizeof(attn__half);
    uintptr_t at = (uintptr_t)attn__place_of(b, t->x, t->y, k + turned, column);
    int64_t l, i;
    for (l = 0; turned && l < ld; l += width) {
        for (i = 0; i < width; i++)
            columns[i] = (const attn__half *)attn__place_of(b, t->x, t->y, k, column + attn__min(l + i, lanes - 1));
        f->queries(to + l, ld, columns, turned);
    }
    for (to += turned / 2 * ld, i = turned; i < n; i += 2, to += ld, at += 2 * step) {
        const uintptr_t later = at + ATTN__BMM_PACKED * step, end = (uintptr_t)lanes * sizeof(attn__half) - 1;
        const void *const row[2] = {(const void *)at, i + 1 < n ? (const void *)(at + step) : NULL};
        ATTN__PREFETCH_FAR((const void *)later);
        ATTN__PREFETCH_FAR((const void *)(later + end));
        ATTN__PREFETCH_FAR((const void *)(later + step));
        ATTN__PREFETCH_FAR((const void *)(later + step + end));
        if (direct && row[1]) f->values(to, (const attn__half *const *)row, lanes);
        else attn__pair_columns(f, row, b->type, lanes, b->stride[3], NULL, to);
        if (lanes < ld) attn__fill(to + lanes, 1, ld - lanes, 0.0f);
    }
}

/* n terms, from the k-th on, of all tiles that are not read in place: from row `to` of their `depth` rows on. */
static void attn__bmm_pack_rows(const attn__columns *t, int64_t k, int64_t n, int64_t depth, float *panel, int64_t to)
{
    const attn__array *b = &t->m->b;
    const int64_t width = t->m->f->width, step = b->stride[2] * attn__type_size(b->type);
    const attn__array *scale = b->type == ATTN_I8 ? &t->m->b_scale : NULL;
    const int direct = attn__is_contiguous(b), by_rows = b->stride[3] == 1 && !scale && !t->m->pairs;
    int64_t r, v, vectors;
    for (v = t->in_place; v < t->vectors; v += vectors) {
        vectors = attn__bmm_tile(t, v);
        const int64_t column = t->first + v * width, ld = vectors * width, lanes = attn__min(t->count - v * width, ld);
        float *at = panel + (v - t->in_place) * width * depth + to * ld;
        uintptr_t row = (uintptr_t)attn__place_of(b, t->x, t->y, k, column);
        if (t->m->pairs)
            attn__bmm_pack_pairs(t, k, n, column, lanes, ld, at);
        else if (!by_rows)
            attn__copy_columns(t->m->f, attn__in(b, t->x, t->y, k, column), scale, n, lanes, ld, t->copy, at);
        else if (!direct)
            attn__copy_floats_of(t->m->f, attn__in(b, t->x, t->y, k, column), NULL, n, lanes, at, ld);
        else for (r = 0; r < n; r++, row += (uintptr_t)step) {
            const uintptr_t later = row + (uintptr_t)(ATTN__BMM_PACKED * step);
            ATTN__PREFETCH_FAR((const void *)later);
            ATTN__PREFETCH_FAR((const void *)(later + (uintptr_t)(ld * (int64_t)sizeof *at - 1)));
            attn__copy_floats(at + r * ld, (const float *)row, lanes);
        }
        for (r = 0; by_rows && lanes < ld && r < n; r++) attn__fill(at + r * ld + lanes, 1, ld - lanes, 0.0f);
    }
}

/* Of rows that lie so some at a time: what a tile leaves of a line is still near when the next tile takes it. */
static void attn__bmm_pack(const attn__columns *t, int64_t k, int64_t n, int64_t depth, float *panel)
{
    const attn__matmul *m = t->m;
    const int64_t most = attn__is_contiguous(&m->b) || (m->pairs && m->b.stride[3] == 1) ?
                         (int64_t)ATTN__BMM_PACKED : n;
    const int64_t paired = attn__blocks(n, 2);
    int64_t r, v, vectors;
    for (r = 0; r < n; r += most)
        attn__bmm_pack_rows(t, k + r, attn__min(n - r, most), depth, panel, m->pairs ? r / 2 : r);
    for (v = 0; m->pairs && paired < depth && v < t->vectors; v += vectors) {
        const int64_t ld = (vectors = attn__bmm_tile(t, v)) * m->f->width;
        attn__fill(panel + v * m->f->width * depth + paired * ld, 1, (depth - paired) * ld, 0.0f);
    }
}

/* The few rows of a, as floats in the panel unless they lie so. */
static attn__rows attn__bmm_few_rows(const attn__columns *t)
{
    const attn__matmul *m = t->m;
    const attn__place at = attn__in(&m->a, t->x, t->y, 0, 0);
    if (attn__is_contiguous(&m->a)) return attn__rows_at(at);
    attn__copy_floats_of(m->f, at, NULL, m->rows, m->depth, t->panel, m->depth);
    return attn__packed_rows(t->panel, m->depth);
}

/* One row of a or three, or some and a b that is not f32: rows of b, in the order of memory, a few at a time, are added
   up in c; later chains in a second c after it, added to the first when whole. */
ATTN__NOINLINE static void attn__bmm_sum_rows(const attn__columns *t)
{
    const attn__matmul *m = t->m;
    const int64_t sums = m->rows * t->vectors * m->f->width;
    const char *groups[2];
    attn__rows a = attn__bmm_few_rows(t);
    attn__product p;
    int64_t k, i;
    ATTN_ASSERT(2 * sums <= m->results);
    attn__zero(&p, sizeof p);
    p.rows = m->rows;
    p.a_row = a.row;
    p.b_row = m->b.stride[2];
    p.c_row = t->vectors * m->f->width;
    p.vecs = (int32_t)t->in_place;
    p.b_type = m->b.type;
    p.b_group = m->rows == 1 ? (int64_t)ATTN__RUN : (int64_t)ATTN__GROUP;
    p.groups = groups;
    p.ahead1 = p.ahead2 = 1;
    if (m->depth * m->columns * attn__type_size(m->b.type) >= ATTN__BMM_FAR) p.fetch = (const float *)m->b.data;
    for (k = 0; k < m->depth || !k; k += p.b_group) {
        p.depth = attn__min(m->depth - k, p.b_group);
        p.a = a.at + k;
        p.c = t->c + (k < ATTN__RUN ? 0 : sums);
        if (k % ATTN__RUN == 0) attn__fill(p.c, 1, sums, 0.0f);
        for (i = 0; i < 2; i++)
            groups[i] = (const char *)attn__place_of(&m->b, t->x, t->y, k + i * p.b_group, t->first);
        m->f->skinny(&p);
        if (k >= ATTN__RUN && (k + p.b_group >= m->depth || (k + p.b_group) % ATTN__RUN == 0))
            for (i = 0; i < sums; i++) t->c[i] = t->c[i] + p.c[i];
    }
}

/* Of codes: how many scales a column has. */
static int64_t attn__bmm_scales(const attn__matmul *m)
{ return m->b_scale.stride[3] ? attn__blocks(m->depth, ATTN__CODES_PER_SCALE) : 1; }

/* Rows of a as pairs, where they lie if they can be read so. */
static attn__rows attn__bmm_pair_rows(const attn__matmul *m, attn__place at, int64_t rows, int64_t depth, int64_t pairs,
                                      float *copy)
{
    const attn__array *a = at.a;
    const void *place = attn__place_of(a, at.b, at.h, at.row, at.column);
    if (a->stride[3] == 1 && a->stride[2] % 2 == 0 && depth == 2 * pairs && (uintptr_t)place % sizeof(float) == 0)
        return attn__packed_rows((const float *)place, a->stride[2] / 2);
    attn__pair_rows(m->pairs, a, place, rows, depth, pairs, copy);
    return attn__packed_rows(copy, pairs);
}

/* Few rows of a, and columns of b that lie side by side: as pairs of bf16. */
static void attn__bmm_pair_dots(const attn__columns *t)
{
    const attn__matmul *m = t->m;
    const int64_t pairs = attn__up(m->depth, 2 * ATTN__AMX_SIDE) / 2;
    attn__product p;
    attn__zero(&p, sizeof p);
    attn__set_a(&p, attn__bmm_pair_rows(m, attn__in(&m->a, t->x, t->y, 0, 0), m->rows, m->depth, pairs, t->panel));
    p.rows = m->rows;
    p.depth = m->depth;
    p.b = (const float *)attn__place_of(&m->b, t->x, t->y, 0, t->first);
    p.b_row = m->b.stride[3];
    p.c = t->c;
    p.c_row = t->vectors * m->f->width;
    if (t->count < p.c_row) attn__fill(t->c, 1, m->rows * p.c_row, 0.0f);
    m->pairs->dots(&p, t->count);
}

/* Few rows of a, and columns of b that lie side by side, ATTN__SIDE of them at a time. Rows are lanes: where half of a
   vector would be idle, floats are multiplied by vectors of half as many. [Zen 4] */
ATTN__NOINLINE static void attn__bmm_dots(const attn__columns *t)
{
    const attn__matmul *m = t->m;
    const attn__kernels *half = m->f->weaker;
    const attn__kernels *f = m->rows > 1 && attn__is_f32(&m->b) && half && half->types &&
                             2 * half->width == m->f->width && m->rows <= half->width ? half : m->f;
    const int64_t width = f->width;
    const attn__rows a = attn__bmm_few_rows(t);
    const float *rows[ATTN__MAX_WIDTH];
    const char *groups[ATTN__SIDE / ATTN__GROUP];
    float ones[ATTN__MAX_WIDTH];
    attn__product p;
    int64_t j, i;
    attn__zero(&p, sizeof p);
    p.rows = m->rows;
    p.depth = m->depth;
    p.a = a.at;
    p.a_k = m->rows == 1 ? 1 : width;
    if (m->rows > 1) {
        float *turned = t->panel + (a.at == t->panel ? m->rows * m->depth : 0);
        for (i = 0; i < width; i++) rows[i] = a.at + attn__min(i, m->rows - 1) * a.row;
        attn__fill(ones, 1, width, 1.0f);
        f->pack(turned, width, rows, 1, m->depth, ones);
        p.a = turned;
    }
    p.c_row = t->vectors * m->f->width;
    p.b_row = m->b.stride[3];
    p.b_type = m->b.type;
    p.b_group = ATTN__SIDE;
    p.groups = groups;
    p.ahead1 = p.ahead2 = 0;                    /* of a matrix what follows is prefetched without a list */
    p.columns = t->c + m->rows * p.c_row;
    p.b_scales = attn__bmm_scales(m);
    for (j = 0; j < t->in_place * m->f->width; j += ATTN__SIDE) {
        for (i = 0; i < ATTN__SIDE / ATTN__GROUP; i++)
            groups[i] = (const char *)attn__place_of(&m->b, t->x, t->y, 0, t->first + j + i * ATTN__GROUP);
        p.c = t->c + j;
        if (m->b_scale.rank) p.b_scale = attn__scales_of(m->f, attn__in(&m->b_scale, t->x, t->y, t->first + j, 0),
                                                         ATTN__SIDE, p.b_scales, t->copy);
        f->dots(&p, ATTN__SIDE);
    }
}

/* Rows of a, from `row` on, times these columns from the v0-th vector on: a block of terms at a time, which is packed
   for the task's first rows; if it can have no others, in the place of the block before it. */
static void attn__bmm_multiply(const attn__columns *t, int64_t row, int64_t rows, int64_t v0)
{
    const attn__matmul *m = t->m;
    const int64_t width = m->f->width;
    const int64_t most = t->in_place ? (int64_t)ATTN__RUN : (int64_t)ATTN__BMM_DEPTH;   /* rows in place: far apart */
    void (*const product)(const attn__product *) = m->pairs ? m->pairs->product : m->f->product;
    attn__product p;
    int64_t k, v;
    attn__zero(&p, sizeof p);
    p.rows = rows;
    p.c_row = t->c_row;
    p.kind = ATTN__PRODUCT;
    p.onto = ATTN__FROM_ZERO;
    p.chain = m->pairs ? ATTN__RUN / 2 : ATTN__RUN;
    if (m->pairs) p.columns = t->copy + m->copied - ATTN__BMM_SCRATCH;
    for (k = 0; k < m->depth || !k; k += most, p.onto = attn__are_by_amx(m->pairs) ? ATTN__GO_ON : ATTN__ADD_AFTER) {
        float *panel = t->panel + (m->rows > ATTN__BMM_ROWS ? (m->pairs ? k / 2 : k) * t->vectors * width : 0);
        const int64_t depth = attn__min(m->depth - k, most);
        const attn__place at = attn__in(&m->a, t->x, t->y, row, k);
        p.depth = m->pairs ? attn__pairs_by(m->pairs, depth) : depth;
        if (row == t->row) attn__bmm_pack(t, k, depth, p.depth, panel);
        attn__set_a(&p, m->pairs ? attn__bmm_pair_rows(m, at, rows, depth, p.depth, t->copy) :
                                   attn__rows_of(m->f, at, NULL, rows, depth, t->copy));
        for (v = v0; v < t->vectors; v += p.vecs) {
            p.vecs = attn__bmm_tile(t, v);
            p.c = t->c + v * width;
            p.b_row = v < t->in_place ? m->b.stride[2] : p.vecs * width;
            p.b = v < t->in_place ? attn__at(&m->b, t->x, t->y, k, t->first + v * width) :
                                    panel + (v - t->in_place) * width * p.depth;
            product(&p);
        }
    }
}

/* By rows, which may lie far apart, some columns at a time. */
ATTN__NOINLINE static void attn__bmm_add_bias(const attn__columns *t, int64_t rows)
{
    float bias[ATTN__MAX_LANES];
    int64_t r, l, i, n;
    for (l = 0; l < t->count; l += n) {
        n = attn__min(t->count - l, ATTN__MAX_LANES);
        for (i = 0; i < n; i++) bias[i] = attn__read(&t->m->bias, 0, 0, 0, t->first + l + i);
        for (r = 0; r < rows; r++) t->m->f->scale_store(bias, t->c + r * t->c_row + l, n, 1.0f, 1);
    }
}

ATTN__NOINLINE static void attn__bmm_columns(const attn__matmul *m, int64_t index, float *memory)
{
    const int64_t part = index / m->row_parts, batch = part / m->column_tiles, width = m->f->width;
    const int64_t unit = m->dots ? (int64_t)ATTN__SIDE : width;         /* of columns */
    attn__columns t;
    float *results;
    int64_t row, rows, r, v0;
    t.m = m;
    t.y = batch % m->out_batch[1];
    t.x = batch / m->out_batch[1];
    t.rows = attn__share(attn__blocks(m->rows, ATTN__BMM_ROWS), m->row_parts, index % m->row_parts, &t.row);
    t.row *= ATTN__BMM_ROWS;
    t.rows = attn__min(m->rows - t.row, t.rows * ATTN__BMM_ROWS);
    t.count = unit * attn__share(attn__blocks(m->columns, unit), m->column_tiles, part % m->column_tiles, &t.first);
    t.first *= unit;
    t.count = attn__min(m->columns - t.first, t.count);
    t.vectors = attn__blocks(t.count, width);
    t.in_place = m->dots && m->pairs ? t.vectors : m->dots ? t.count / ATTN__SIDE * (ATTN__SIDE / width) :
                 m->in_place ? t.count / width : 0;
    t.copy = memory;
    results = t.copy + m->copied;
    t.in_out = m->rows > ATTN__BMM_THIN && m->depth <= ATTN__BMM_DEPTH && !m->in_place &&
               attn__is_contiguous(&m->out) && t.count == t.vectors * width;
    t.c = results;
    t.c_row = t.vectors * width;
    t.panel = results + m->results;
    v0 = m->dots || m->sums_rows ? t.in_place : 0;
    for (row = t.row; row < t.row + t.rows; row += rows) {
        rows = attn__min(t.row + t.rows - row, ATTN__BMM_ROWS);
        if (t.in_out) {
            t.c = attn__at(&m->out, t.x, t.y, row, t.first);
            t.c_row = m->out.stride[2];
        } else for (r = 0; attn__is_f32(&m->out) && r < rows; r++) {       /* where a tile is stored in the end */
            const float *to = attn__at(&m->out, t.x, t.y, row + r, t.first);
            ATTN__PREFETCH(to);
            ATTN__PREFETCH(attn__ahead(to, 1, t.count - 1));
        }
        if (m->sums_rows) attn__bmm_sum_rows(&t);
        if (m->dots) (m->pairs ? attn__bmm_pair_dots : attn__bmm_dots)(&t);
        if (v0 < t.vectors) attn__bmm_multiply(&t, row, rows, v0);
        if (m->bias.rank) attn__bmm_add_bias(&t, rows);
        if (t.in_out) attn__bmm_quiet(&t, rows);
        else attn__bmm_store(&t, row, rows);
    }
}

/* ---- either kind: column_tiles is 0 for a sum */
static void attn__matmul_tile(const attn__matmul *m, int64_t index, float *memory)
{
#ifndef ATTN_NO_BACKWARD
    if (!m->column_tiles) attn__sum_tile(m, index, memory);
    else
#endif
    attn__bmm_columns(m, index, memory);
}

static int64_t attn__matmul_tasks(const attn__matmul *m)
{
#ifndef ATTN_NO_BACKWARD
    if (!m->column_tiles) return attn__sum_tasks(m);
#endif
    return m->out_batch[0] * m->out_batch[1] * m->column_tiles * m->row_parts;
}

/* b's columns: neither this nor the rest of a worker's memory shrinks as a size grows, or depends on the rows. */
static int64_t attn__bmm_panel_floats(const attn__matmul *m)
{
    const int64_t most = attn__max(ATTN__BMM_FLOATS, attn__mul64(m->depth, attn__lanes(m->f)));
    return attn__min(attn__mul64(m->depth, m->results / ATTN__BMM_ROWS), most);
}

static int64_t attn__matmul_floats(const attn__matmul *m)       /* that a worker needs */
{
#ifndef ATTN_NO_BACKWARD
    if (!m->column_tiles)
        return attn__sum_floats(m->f, ATTN__SUM_MOST) + attn__copied(&m->a, ATTN__SUM_MOST, ATTN_GRAD_QUERIES);
#endif
    return attn__add64(attn__bmm_panel_floats(m), m->copied + m->results);
}

static int64_t attn__matmul_bytes(const attn__matmul *m, const attn_desc *d)
{
    const int64_t bytes = attn__bytes_of(attn__matmul_floats(m));
    return attn__add64(attn__mul64(bytes, attn__max(d->parallel.workers, 1)), ATTN__ALIGN);
}

static void attn__matmul_task(void *arg, int64_t index, int32_t worker)
{
    const attn__matmul *m = (const attn__matmul *)arg;
    float *memory = (float *)(void *)(m->memory + worker * m->worker_bytes);
    if (attn__are_by_amx(m->pairs)) m->pairs->begin();
    ATTN__IN_FP_STATE(attn__matmul_tile(m, index, memory));
    if (attn__are_by_amx(m->pairs)) m->pairs->end();
}

/* Products one after the other; without a result it is left out. */
typedef struct attn__products { attn__matmul m[2]; int count, flags; } attn__products;
static attn_status attn__run_products(void *call, const attn_desc *d, void *workspace, attn_error *err)
{
    attn__products *p = (attn__products *)call;
    attn__matmul *m;
    (void)err;
    for (m = p->m; m < p->m + p->count; m++) {
        if (!m->out.rank) continue;
        ATTN__CUDA_ONLY(if (p->flags & ATTN__ON_DEVICE) {
            ATTN__TRY(attn__cuda_matmul(m, d->stream, attn__on_device(p->flags), err));
            continue;
        })
        m->memory = attn__align(workspace);
        if (m->rows && m->columns) attn__for_each(&d->parallel, attn__matmul_tasks(m), attn__matmul_task, m);
    }
    return ATTN_OK;
}

#define ATTN__MATRIX(f, i, shape, takes, flags) \
    ATTN__ARGUMENT(f, i, shape, "a matrix: 2, or 3 or 4 with batch axes before it", takes, flags, 0)
#define ATTN__FACTORS(takes) \
    ATTN__MATRIX(a, 0, "bhRT", FLOATS, ATTN__NEEDED | ATTN__BROADCAST), \
    ATTN__MATRIX(b, 1, "bhTC", takes, ATTN__NEEDED | ATTN__BROADCAST)
static attn_view attn__transposed_view(attn_view v) { return attn_view_swap(v, v.rank - 2, v.rank - 1); }

/* The factors, then what has their product's shape, with the batch that they have together; then gradients, or the
   scales of b, which have its batch or none. */
static attn_status attn__check_product(const attn_view *v, const attn__field *fields, int count, int flags,
                                       attn_error *err)
{
    static const attn__field batch = {"must have the broadcast batch of a and b", "", "", 0, 0, 0, 0};
    static const attn__field batch_of_b = {"must be that of b's batch", "", "", 0, 0, 0, 0};
    const int gradients = count > 4;
    attn_view codes;
    attn__checker w;
    int i;
    attn__begin_checks(&w, NULL, flags);
    w.owners = fields;
    w.owned = v;
    ATTN__TRY(attn__check_fields(&w, v, fields, 2, 0, 0, NULL, err));
    for (i = 0; i < 2; i++) if (!w.of["BH"[i] - 'A']) attn__bind(&w, "BH"[i], 1, &batch, -1);
    ATTN__TRY(attn__check_fields(&w, v, fields + 2, 1, 0, 0, NULL, err));
    for (i = 0; i < 4 - v[2].rank; i++) {
        const int64_t n = ATTN__LETTER(&w, "BH"[i]);
        ATTN__RULE2_OF(n == 1, SIZE, attn__rank_name(fields + 2), batch.texts, 1, n);
    }
    ATTN__RULE(!gradients || v[3].rank || v[4].rank, NULL, "da", "must be given, or db");
    codes = attn__view4(v[1], "bhTC");
    for (i = 0; i < 2; i++) attn__bind(&w, "XY"[i], codes.size[i], &batch_of_b, -1);
    ATTN__TRY(attn__check_fields(&w, v, fields + 3, count - 3, 0, 0, NULL, err));
    codes = attn__transposed_view(v[1]);
    if (!gradients) ATTN__TRY(attn__check_scale(&codes, &v[3], fields + 3, err));
    return flags & ATTN__WITH_DATA ? attn__check_overlaps(&w, err) : ATTN_OK;
}

/* Rows of all batch entries that share b are those of one matrix, where they lie so. */
static void attn__join_entries(attn__matmul *m)
{
    int axis;
    for (axis = 1; axis >= 0 && !m->b.stride[axis] && !m->b_scale.stride[axis]; axis--) {
        int64_t *a = m->a.stride, *out = m->out.stride;
        if (m->batch[axis] == 1) continue;
        if (m->rows == 1) {
            a[2] = a[axis];
            out[2] = out[axis];
        }
        if (a[axis] != attn__mul64(m->rows, a[2]) || out[axis] != attn__mul64(m->rows, out[2])) break;
        m->rows = attn__mul64(m->rows, m->batch[axis]);
        m->batch[axis] = m->out_batch[axis] = 1;
    }
}

/* In which way, and how many columns a task has: in place all that there is room for; else several tiles, so that a is
   read less often; but fewer than that, and not all rows, where workers would have nothing to do. In place b is read
   again for each strip of rows: wider tiles have strips of more rows, and where b's rows share few places in a cache,
   what was read is gone by then. */
static void attn__cut_product(attn__matmul *m, int64_t workers)
{
    const int64_t tile = attn__lanes(m->f), terms = attn__max(m->depth, 1);
    const int apart = m->b.stride[2] % (ATTN__SAME_SETS / (int64_t)sizeof(float)) == 0;
    const int64_t thin = attn__min(apart ? tile / 2 : tile + tile / 2, ATTN__BMM_ROWS);
    const int64_t batch = attn__max(attn__mul64(m->out_batch[0], m->out_batch[1]), 1);
    const int64_t columns = attn__up(attn__max(m->columns, ATTN__SKINNY_SHARED), m->f->width);  /* for sum_rows's a */
    int64_t most = attn__max(attn__min(ATTN__BMM_FLOATS / terms / tile, ATTN__BMM_TILES), 1), tasks;
    int64_t tiles = attn__blocks(m->columns, tile), some;
    m->sums_rows = m->f->types && m->b.stride[3] == 1 && !m->b_scale.rank && m->rows <= ATTN__SKINNY_SHARED &&
                   (m->rows % 2 == 1 || !attn__is_f32(&m->b));       /* three are slow in place: two, then one */
    m->dots = m->f->types && m->b.stride[2] == 1 && m->b.stride[3] > 1 && m->columns >= 2 * ATTN__SIDE &&
              m->depth > 0 && m->rows <= attn__min(ATTN__BMM_DOTS, m->f->width);
    m->in_place = m->dots || m->sums_rows || (m->rows <= thin && attn__is_contiguous(&m->b));
    m->copied = attn__max(attn__copied(&m->a, ATTN__BMM_ROWS, attn__min(m->depth, ATTN__BMM_DEPTH)),
                          attn__copied(&m->b, ATTN__MAX_LANES, ATTN__SOME_COLUMNS));
    if (m->b_scale.rank) m->copied = attn__max(m->copied, attn__mul64(attn__bmm_scales(m) + 1, ATTN__SIDE));
    if (m->a.type == ATTN_BF16 && m->b.type == ATTN_BF16) m->copied += ATTN__BMM_SCRATCH;
    m->results = ATTN__BMM_ROWS * attn__min(columns, ATTN__BMM_TILES * tile);
    if (m->sums_rows) most = ATTN__BMM_ROWS * ATTN__BMM_TILES / 2 / attn__max(m->rows, 1);
    else if (m->in_place) most = ATTN__BMM_ROWS * ATTN__BMM_TILES / attn__max(m->rows, ATTN__BMM_THIN);
    if (m->dots) tiles = m->columns / ATTN__SIDE;
    /* as many for each worker: several where b is packed, as such tasks take long */
    some = attn__blocks(m->in_place || workers == 1 ? workers : ATTN__WORKER_TASKS * workers, batch);
    m->column_tiles = attn__max(attn__min(attn__up(attn__blocks(tiles, most), some), tiles), 1);
    tasks = attn__mul64(batch, m->column_tiles);
    m->row_parts = tasks < workers ? attn__blocks(ATTN__WORKER_TASKS * workers, tasks) : 1;
    m->row_parts = attn__max(attn__min(m->row_parts, attn__blocks(m->rows, ATTN__BMM_ROWS)), 1);
}

/* The kernels for products of bf16, where these are allowed and pay: of few rows where the columns of b lie side by
   side, and are long. */
static const attn__pair_kernels *attn__pairs_of_product(const attn_desc *d, const attn__matmul *m)
{
    const int few = m->rows <= ATTN__BMM_DOTS;
    if (d->precision != ATTN_PRECISION_FAST || m->a.type != ATTN_BF16 || m->b.type != ATTN_BF16 ||
        m->depth < (few ? (int64_t)ATTN__BMM_LONG : 2 * ATTN__AMX_SIDE) || (few && m->b.stride[2] != 1)) return NULL;
    return attn__pairs_here(m->f);
}

/* out (+)= a b for checked views: a product in order (a task has columns of one batch entry, of all its rows or some),
   or a sum over rows (a task per tile of out). scale: of codes, else NULL or absent */
static attn__matmul attn__matmul_of_views(const attn_desc *d, const attn_view *a, const attn_view *b,
                                          const attn_view *scale, const attn_view *out, int in_order)
{
    const attn_view x = attn__view4(*a, "bhRC"), y = attn__view4(*b, "bhRC"), o = attn__view4(*out, "bhRC");
    const attn__kernels *f = attn__table(d->isa ? d->isa : (int32_t)attn_best_isa());
    attn__matmul m = attn__matmul_of(f, attn__array_of(x, "bhRC"), attn__array_of(y, "bhRC"),
                                     attn__array_of(o, "bhRC"), o.size[2], o.size[3], x.size[3]);
    const int64_t workers = attn__max(d->parallel.workers, 1);
    int axis;
    for (axis = 0; axis < 2; axis++) {
        m.batch[axis] = x.size[axis] == 1 ? y.size[axis] : x.size[axis];
        m.out_batch[axis] = o.size[axis];
    }
    if (scale && scale->rank) m.b_scale = attn__array_of(*scale, "bhC?");
    m.fast = d->precision == ATTN_PRECISION_FAST;
    if (in_order) {
        attn__join_entries(&m);
        m.pairs = attn__pairs_of_product(d, &m);
        attn__cut_product(&m, workers);
    }
#ifndef ATTN_NO_BACKWARD
    m.tile_rows = ATTN__SUM_MOST;
    if (attn__sum_tasks(&m) < ATTN__WORKER_TASKS * workers) m.tile_rows = ATTN__SUM_ROWS;
#endif
    m.worker_bytes = attn__bytes_of(attn__matmul_floats(&m));
    return m;
}

/* c: out; or, where grads is not NULL, d_out: grads are da and db, of which one may be absent. */
static attn_status attn__bmm(attn_view a, attn_view b, attn_view c, const attn_out *grads, uint32_t accumulate,
                             const attn_desc *options, size_t *bytes, attn_error *err)
{
    static const attn__field fields[9] = {
        ATTN__FACTORS(CODES), ATTN__MATRIX(out, 2, "bhRC", FLOATS, ATTN__NEEDED | ATTN__RESULT),
        ATTN__MATRIX(k_scale, 3, "xyC?", SCALES, 0),
        ATTN__FACTORS(FLOATS), ATTN__MATRIX(d_out, 2, "bhRC", FLOATS, ATTN__NEEDED),
        ATTN__ARGUMENT(da, 3, "bhRT", "a", FLOATS, ATTN__RESULT, 1),
        ATTN__ARGUMENT(db, 4, "bhTC", "b", FLOATS, ATTN__RESULT, 2)};
    const attn__field *f = fields + (grads ? 4 : 0);
    attn_view v[5];
    const int count = grads ? 5 : 4;
    attn__products p;
    attn_desc d;
    int64_t needed;
    ATTN__TRY(attn__options(options, ATTN__OPTIONS, &d, err));
    v[0] = a;
    v[1] = b;
    v[2] = c;
    v[3] = grads ? attn_view_of(grads[0]) : d.k_scale;
    v[4] = grads ? attn_view_of(grads[1]) : c;
    p.flags = bytes ? 0 : ATTN__WITH_DATA;
    ATTN__CUDA_ONLY(ATTN__TRY(attn__find_place(attn__in_structure(v, f, count), attn__in_structure(NULL, NULL, 0), &d,
                                               &p.flags, err));)
    ATTN__TRY(attn__check_product(v, f, count, p.flags, err));
    ATTN__TRY(attn__check_options(&d, err));
    ATTN__RULE(accumulate <= 3, OPTION, "accumulate", "must be 1 for da, 2 for db, or both");
    ATTN__RULE(!grads || !d.k_scale.rank, OPTION, "k_scale", "must be absent: codes have no gradient");
    ATTN__CUDA_ONLY(ATTN__RULE(!(p.flags & ATTN__ON_DEVICE) || b.type != ATTN_I8, PLACE, "b.type",
                               "must not be ATTN_I8 on a device");)
    p.count = grads ? 2 : 1;
    if (!grads) p.m[0] = attn__matmul_of_views(&d, &a, &b, &v[3], &c, 1);
    else {
        a = attn__transposed_view(a);
        b = attn__transposed_view(b);
        p.m[0] = attn__matmul_of_views(&d, &c, &b, NULL, &v[3], 0);
        p.m[1] = attn__matmul_of_views(&d, &a, &c, NULL, &v[4], 0);
        p.m[0].adds = (int)(accumulate & 1u);
        p.m[1].adds = (int)(accumulate >> 1);
    }
    needed = attn__max(attn__matmul_bytes(&p.m[0], &d), attn__matmul_bytes(&p.m[grads ? 1 : 0], &d));
    ATTN__RULE(needed < (int64_t)((size_t)-1 / 4), OVERFLOW, "a", "must leave a workspace that fits in memory");
    if (p.flags & ATTN__ON_DEVICE) needed = 0;
    return attn__size_or_run(attn__run_products, &p, &d, needed, attn__on_device(p.flags), bytes, err);
}

ATTN__CALL(attn_bmm, attn__bmm(a, b, attn_view_of(out), NULL, 0, options, bytes, err),
           attn_view a, attn_view b, attn_out out, const attn_desc *options)

#ifndef ATTN_NO_BACKWARD
ATTN_DEF attn_status attn_bmm_backward(attn_view a, attn_view b, attn_view d_out, attn_out da, attn_out db,
                                       uint32_t accumulate, const attn_desc *options, attn_error *err)
{
    const attn_out grads[2] = {da, db};
    return attn__bmm(a, b, d_out, grads, accumulate, options, NULL, err);
}

ATTN_DEF attn_status attn_bmm_backward_workspace_size(attn_view a, attn_view b, attn_view d_out, attn_out da,
                                                      attn_out db, const attn_desc *options, size_t *bytes,
                                                      attn_error *err)
{
    ATTN__NOT_NULL(bytes);
    const attn_out grads[2] = {da, db};
    return attn__bmm(a, b, d_out, grads, 0, options, bytes, err);
}
#endif

/* --------------------------------------------------------------------------------------------------------- >>mha
   Multi-head attention: four linear layers around the attention; backward, its gradients between theirs */
/* The weights have H*D = M, Hkv*D = N, Hkv*Dv = P rows; w_result takes T and gives O; the inputs' sizes are X, Y, Z. */
#define ATTN__MHA_INPUTS(X) \
    X(query, "B.QX", "[B,Sq,Eq]", ATTN__NEEDED) X(key, "B.SY", "[B,Sk,Ek]", 0) X(value, "B.SZ", "[B,Sk,Ev]", 0) \
    X(w_query, "..MX", "[H*D,Eq]", ATTN__NEEDED) X(w_key, "..NY", "[Hkv*D,Ek]", ATTN__NEEDED) \
    X(w_value, "..PZ", "[Hkv*Dv,Ev]", ATTN__NEEDED) X(w_result, "..OT", "[Eo,H*Dv]", 0) \
    X(b_query, "...M", "[H*D]", 0) X(b_key, "...N", "[Hkv*D]", 0) X(b_value, "...P", "[Hkv*Dv]", 0) \
    X(b_result, "...O", "[Eo]", 0)
#define ATTN__MHA_LIST(X) ATTN__MHA_INPUTS(X) X(out, "B.QO", "[B,Sq,Eo]", ATTN__NEEDED | ATTN__RESULT)
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

/* Layer i, of query, key, value and result: y = x w^T + bias, and its gradients. On the side of the attention, y of the
   first three layers and x of the last, they lie in the workspace (y and x in `saved`, if given), on the other where
   the caller has them; but a dx of 16 bits is summed in the workspace, and becomes the caller's `rounded` then. */
typedef struct attn__layer { attn_view x, w, y, dx, dy, rounded; } attn__layer;
typedef struct attn__mha_call {
    const attn_mha_desc *desc;
    const struct attn_mha_grad *grad;   /* NULL: none are wanted */
    attn_desc attention;                /* its options */
    attn_plan plan;                     /* of it, or of its gradients */
    attn__layer layer[4];
    float   *stats;                     /* of its softmax, where there are gradients or `saved` */
    uint8_t *stored;                    /* packed: the rows of a gradient of 16 bits that it has already */
    int      flags;
    int      keeps;                     /* `saved` is given, or its size is asked for */
    attn__map kept;                     /* it: a line with the mark, then the arrays */
    void    *inner;             /* memory for a product or the attention, one after the other */
} attn__mha_call;
enum { ATTN__MHA_FORWARD, ATTN__MHA_BACKWARD, ATTN__MHA_SAVED_SIZE };

/* Which of query, key, value is projected: key absent = query, value absent = key. */
static int attn__mha_input(const attn_mha_desc *desc, int which)
{
    if (which == ATTN__H_value && !desc->value.rank) which = ATTN__H_key;
    return which == ATTN__H_key && !desc->key.rank ? ATTN__H_query : which;
}

/* What a letter stands for before there is a field that says so. */
#define ATTN__BIND(letter, size, rule) \
    do { static const attn__field from = {rule, "", "", 0, 0, 0, 0}; attn__bind(w, letter, size, &from, -1); } while (0)
/* All that a call has; d: its options without q, k, v and out. */
static attn_status attn__mha_check(attn__checker *w, const attn_mha_desc *desc, attn_desc *d, uint32_t without,
                                   attn_error *err)
{
    const attn__field *f = attn__mha_fields, *key = &f[attn__mha_input(desc, ATTN__H_key)];
    const attn__field *value = &f[attn__mha_input(desc, ATTN__H_value)];
    const int64_t heads = desc->heads, heads_kv = desc->heads_kv ? desc->heads_kv : heads;
    int64_t size_d, size_v;
    int i;
    ATTN__RULE(heads > 0, RANGE, "heads", "must be at least 1");
    if (heads_kv <= 0 || heads % heads_kv != 0)
        return attn__fail_divides(err, ATTN_ERR_RANGE, "heads_kv", "must divide heads", heads_kv, heads);
    ATTN__RULE(desc->w_result.rank || !desc->b_result.rank, OPTION, "b_result", "must be absent where w_result is");
    ATTN__TRY(attn__check_score(d, err));
    for (i = 0; i < 3; i++) {
        const attn_view v = attn__view_in(desc, &f[ATTN__H_w_query + i]);
        const int64_t n = i ? heads_kv : heads;
        ATTN__RULE2_OF(v.rank != 2 || v.size[0] <= 0 || v.size[0] % n == 0, SIZE,
                       attn__size_name(&f[ATTN__H_w_query + i], 0), "must be a multiple of the number of heads",
                       v.size[0], n);
    }
    size_d = desc->w_query.size[0] / heads;
    size_v = desc->w_value.size[0] / heads_kv;
    attn__bind(w, 'S', attn__view_in(desc, key).size[1], key, 1);
    attn__bind(w, 'Y', attn__view_in(desc, key).size[2], key, 2);
    attn__bind(w, 'Z', attn__view_in(desc, value).size[2], value, 2);
    attn__bind(w, 'E', desc->w_key.size[0] / heads_kv, &f[ATTN__H_w_key], 0);
    ATTN__BIND('H', heads, "must equal heads");
    ATTN__BIND('K', heads_kv, "must equal heads_kv");
    ATTN__BIND('D', size_d, "must equal w_query.size[0] / heads");
    ATTN__BIND('V', size_v, "must equal w_value.size[0] / heads_kv");
    ATTN__BIND('T', attn__mul64(heads, size_v), "must equal heads * w_value.size[0] / heads_kv");
    if (!desc->w_result.rank)
        ATTN__BIND('O', attn__mul64(heads, size_v), "must equal heads * w_value.size[0] / heads_kv");
    if (!(attn__views_of_score(d->score) & (ATTN__FOR_BILINEAR | ATTN__FOR_ADDITIVE)))
        ATTN__BIND('N', attn__mul64(heads_kv, size_d), "must equal heads_kv * w_query.size[0] / heads");
    if (attn__has_sequences(d)) ATTN__TRY(attn__begin_sequences(w, d, err));
    ATTN__TRY(attn__check_fields(w, desc, f, ATTN__H_COUNT, 0, 0, NULL, err));
    ATTN__RULE(desc->key.rank || !attn__is_packed(w, 'I') || d->key_starts.rank, NULL, "key_starts",
               "must be given where query is packed and is key, too");
    if (!desc->key.rank && w->layouts & ATTN__STARTS_OF_KEYS)
        ATTN__TRY(attn__check_letter(w, &f[ATTN__H_query], 'J', 0, desc->query.size[0], err));
    d->q.size[3] = size_d;                          /* a rule looks there */
    d->k.size[3] = ATTN__LETTER(w, 'E');
    ATTN__TRY(attn__check_desc(w, d, without, err));
    return d->score == ATTN_SCORE_GIVEN ? attn__refuse_field(&attn__fields[ATTN__F_q], 1, err) : ATTN_OK;
}

#ifndef ATTN_NO_BACKWARD
/* d_out, then in the order of attn_mha_desc the gradients of its fields */
static const attn__field attn__mha_grad_fields[ATTN__H_COUNT] = {
    ATTN__ROW(attn_mha_grad, d_out, "B.QO", "[B,Sq,Eo]", FLOATS, ATTN__NEEDED, 0),
#define ATTN__X(f, shape, axes, flags) ATTN__ROW(attn_mha_grad, d##f, shape, #f, FLOATS, ATTN__RESULT, 1 + ATTN__H_##f),
    ATTN__MHA_INPUTS(ATTN__X)
#undef ATTN__X
};

/* The gradients against what they belong to, and against everything else. */
static attn_status attn__mha_check_grad(attn__checker *w, const attn_mha_desc *desc, const attn_mha_grad *grad,
                                        const attn_grad *own, const attn_desc *d, attn_error *err)
{
    attn__keep_inputs(w);
    w->owners = attn__mha_fields;
    w->owned = desc;
    ATTN__TRY(attn__check_fields(w, grad, attn__mha_grad_fields, ATTN__H_COUNT, 0, 0, NULL, err));
    ATTN__RULE(w->results || grad->attention, NULL, "dquery", "must be given, or another result");
    ATTN__RULE(grad->accumulate < 1u << 11, OPTION, "accumulate", "must be bits 0 to 10");
    ATTN__RULE(grad->reserved == 0, OPTION, "reserved", "must be 0");
    ATTN__RULE(!d->key_origin, OPTION, "key_origin", "must be 0: gradients are those of all keys");
    return attn__check_grad(w, d, own, 1, err);
}

/* Is the input of layer i that of layer i + by? */
static int attn__mha_shares(const attn__mha_call *a, int i, int by)
{
    return i < 3 && i + by >= 0 && i + by < 3 && attn__mha_input(a->desc, i + by) == attn__mha_input(a->desc, i);
}
#endif

/* Checks everything, and makes the call of the attention but for what lies between the layers. */
ATTN__NOINLINE static attn_status attn__mha_resolve(attn__mha_call *a, int flags, attn_error *err)
{
    attn__call *c = (attn__call *)(void *)a->plan.internal;
    const attn_mha_desc *desc = a->desc;
    const struct attn_grad *wanted = NULL;
    attn_desc *d = &a->attention;
    attn__checker w;
    ATTN__TRY(attn__options(desc->attention, ATTN__OPERAND, d, err));
    attn__zero(&d->out, sizeof d->out);
    ATTN__CUDA_ONLY(ATTN__TRY(attn__find_place(attn__in_structure(desc, attn__mha_fields, ATTN__H_COUNT),
                                               attn__in_structure(d, attn__fields, ATTN__F_COUNT), d, &flags, err));)
#ifndef ATTN_NO_BACKWARD
    const attn_grad *given = a->grad ? a->grad->attention : NULL;
    attn_grad own;              /* without those of q, k, v and out, which are between the layers */
    ATTN__KNOWN(attn_grad, given, &own, reserved);
    if (a->grad) {
        attn__copy_without(&own, given, sizeof own, attn__grad_fields, ATTN__G_COUNT, ATTN__OPERAND);
        own.accumulate &= ~(uint32_t)(ATTN_GRAD_Q | ATTN_GRAD_K | ATTN_GRAD_V);
        wanted = &own;
    }
    ATTN__CUDA_ONLY(ATTN__TRY(attn__find_place(attn__in_structure(a->grad, attn__mha_grad_fields, ATTN__H_COUNT),
                                               attn__in_structure(wanted, attn__grad_fields, ATTN__G_COUNT), NULL,
                                               &flags, err));)
#endif
    attn__begin_checks(&w, c, flags | ATTN__NO_RESULT_NEEDED);
    w.pairs = (d->weights.rank | d->scores.rank | d->scores_softcap.rank | d->scores_masked.rank) != 0;
    ATTN__TRY(attn__mha_check(&w, desc, d, a->grad ? ATTN__OPERAND | ATTN__RESULT : ATTN__OPERAND, err));
#ifndef ATTN_NO_BACKWARD
    if (wanted) ATTN__TRY(attn__mha_check_grad(&w, desc, a->grad, wanted, d, err));
#endif
    c->is_backward = a->grad != NULL;           /* a rule looks there */
    ATTN__TRY(attn__make_call(&w, d, wanted, err));
    a->flags = flags;
    c->idle = c->idle && (a->grad || !a->keeps);        /* an empty result has gradients, too */
    ATTN__RULE(a->grad || !a->keeps || !d->stats.rank, OPTION, "stats", "must be absent where saved is given");
    ATTN__RULE(!c->on_device || !a->keeps, PLACE, "saved", "must be NULL on a device");
    ATTN__RULE(!a->keeps || !(d->carry_in.rank || d->carry_out.rank || d->key_origin), OPTION, "saved",
               "must be NULL where keys come in parts: they have no gradients");
    ATTN__RULE_OF(!c->on_device || !(c->packed_queries || c->packed_keys), PLACE,
                  c->packed_queries ? "query_starts" : "key_starts", "must be absent on a device where it is packed");
    return ATTN_OK;
}

/* Room for floats, of any type: what a call needs is not less where it has more rows, which may be bf16. */
static attn_view attn__take_view(attn__map *m, int64_t batch, int64_t rows, int64_t columns, int32_t type)
{
    const int64_t row = attn__mul64(rows, columns);
    const attn_view v = {attn__take(m, batch, row), {batch, rows, columns, 0}, {row, columns, 1, 0}, type, 3};
    return v;
}

/* On a device: of all layers alike, since attention's tensor cores want arrays of one type. That of 16 bits which all
   weights have, as what they multiply, and without w_result what comes out; else f32. */
static int32_t attn__mha_device_type(const attn__mha_call *a)
{
    const int32_t type = a->desc->query.type;
    int i;
    if (a->attention.precision != ATTN_PRECISION_FAST || (type != ATTN_BF16 && type != ATTN_F16)) return ATTN_F32;
    for (i = 0; i < 4; i++) {
        const attn_view w = attn__view_in(a->desc, &attn__mha_fields[ATTN__H_w_query + i]);
        const int outer = i < 3 ? attn__mha_input(a->desc, i) : (int)ATTN__H_out;
        if (w.rank && w.type != type) return ATTN_F32;
        if ((i < 3 || !w.rank) && attn__view_in(a->desc, &attn__mha_fields[outer]).type != type) return ATTN_F32;
#ifndef ATTN_NO_BACKWARD
        if (i == 3 && !w.rank && a->grad && a->grad->d_out.type != type) return ATTN_F32;
#endif
    }
    return type;
}

/* Between the layers: floats; where products of bf16 are allowed and the weights are bf16, as what they multiply, bf16,
   as arrays of the caller would be. */
static int32_t attn__mha_type(const attn__mha_call *a, int i)
{
    const attn__layer *l = &a->layer[i];
    const attn__call *c = attn__call_of(&a->plan);
    if (c->on_device) return attn__mha_device_type(a);
    return c->pairs && l->w.rank && l->w.type == ATTN_BF16 && (i == 3 || l->x.type == ATTN_BF16) ? ATTN_BF16 : ATTN_F32;
}

#ifndef ATTN_NO_BACKWARD
/* Their gradients: on a device of the type of what they belong to */
static int32_t attn__mha_grad_type(const attn__mha_call *a, int i)
{
    return attn__call_of(&a->plan)->on_device ? attn__mha_type(a, i) : (int32_t)ATTN_F32;
}
#endif

static int attn__mha_of_keys(int i) { return i == 1 || i == 2; }        /* a layer's rows: keys, else queries */
/* Without a result layer the attention's out, or d_out, is the caller's; but what is saved of out is f32. */
static void attn__mha_take(attn__map *m, attn__mha_call *a)
{
    attn__map *const kept = a->keeps ? &a->kept : m;
    const attn__call *c = attn__call_of(&a->plan);
    const int64_t columns[4] = {c->heads * c->size_q, c->heads_kv * c->size_k, c->heads_kv * c->size_v,
                                attn__mul64(c->heads, c->size_v)};
    int i;
    for (i = 0; i < 4; i++) {
        attn__layer *l = &a->layer[i];
        const int input = attn__mha_input(a->desc, i), of_keys = attn__mha_of_keys(i);
        const int64_t rows = of_keys ? c->keys : c->queries;
        const int64_t batch = of_keys ? attn__batch_of_keys(c) : attn__batch_of_rows(c);
        attn_view *inner = i < 3 ? &l->y : &l->x, *outer = i < 3 ? &l->x : &l->y;
        l->w = attn__view_in(a->desc, &attn__mha_fields[ATTN__H_w_query + i]);
        *outer = attn__view_in(a->desc, &attn__mha_fields[i < 3 ? input : (int)ATTN__H_out]);
        *inner = *outer;
        if (l->w.rank || a->grad || a->keeps)
            *inner = attn__take_view(kept, batch, rows, columns[i], attn__mha_type(a, i));
#ifndef ATTN_NO_BACKWARD
        if (!a->grad) continue;
        inner = i < 3 ? &l->dy : &l->dx;
        outer = i < 3 ? &l->dx : &l->dy;
        *outer = attn__view_in(a->grad, &attn__mha_grad_fields[i < 3 ? 1 + input : 0]);
        *inner = *outer;
        if (l->w.rank) *inner = attn__take_view(m, batch, rows, columns[i], attn__mha_grad_type(a, i));
        l->rounded = l->dx;
        if (i == 3 || !l->dx.rank || l->dx.type == ATTN_F32 || c->on_device) continue;
        l->dx = attn__mha_shares(a, i, -1) ? l[-1].dx : attn__take_view(m, batch, rows, l->dx.size[2], ATTN_F32);
#endif
    }
    if (a->grad || a->keeps) a->stats = attn__take(kept, attn__rows_of_arrays(c), 2);
    if (a->grad) a->stored = (uint8_t *)(void *)attn__take(m, 1, attn__blocks(c->queries, 4));
}

/* [B,S,heads*size] as [B,heads,S,size] */
ATTN__NOINLINE static attn__array attn__split_heads(const attn_view *v, int64_t heads)
{
    attn__array a = attn__array_of(*v, "B.QD");
    if (heads > 1) a.stride[1] = v->size[2] / heads * a.stride[3];
    if (heads == v->size[2]) a.stride[3] = 1;
    a.rank = 4;
    return a;
}

/* What the attention, or its gradients, find between the layers. */
static void attn__mha_set_operands(attn__mha_call *a, int backward)
{
    attn__call *c = (attn__call *)(void *)a->plan.internal;
    attn__array *const inner[4] = {&c->q, &c->k, &c->v, &c->out};
    attn__array *const d_inner[4] = {&c->dq, &c->dk, &c->dv, &c->d_out};
    int i;
    for (i = 0; i < 4; i++) {
        const attn__layer *l = &a->layer[i];
        const int64_t heads = attn__mha_of_keys(i) ? c->heads_kv : c->heads;
        *inner[i] = attn__split_heads(i < 3 ? &l->y : &l->x, heads);
        if (backward) *d_inner[i] = attn__split_heads(i < 3 ? &l->dy : &l->dx, heads);
    }
    c->is_backward = backward;
    if (a->grad || a->keeps) c->stats = attn__packed(a->stats, c->heads, c->queries, 2);
    if (c->packed_queries) c->stats.stride[0] = 0;
#ifndef ATTN_NO_BACKWARD
    if (!backward) return;
    c->saved_out = c->out;
    c->saved_stats = c->stats;
    c->out.rank = c->stats.rank = 0;
#endif
}

static attn_status attn__mha_plan(attn__mha_call *a, int backward, attn_error *err)
{
    attn__call *c = (attn__call *)(void *)a->plan.internal;
    attn__mha_set_operands(a, backward);
    a->plan.phases = 0;
    attn__zero(&c->w, sizeof c->w);
    return attn__plan_steps(&a->plan, c, a->flags, err);
}

/* The rows of layer i: all; or, packed, those of entries, of some that lie one after the other at a time. Returns 0
   after the last ones. To begin with, entry is 0. */
typedef struct attn__band { int64_t first, count, entry; } attn__band;
static int attn__next_rows(const attn__mha_call *a, int i, attn__band *r)
{
    const attn__call *c = attn__call_of(&a->plan);
    const int of_keys = attn__mha_of_keys(i);
    attn__extent x;
    r->count = 0;
    if (!(of_keys ? c->packed_keys : c->packed_queries)) {
        r->first = 0;
        r->count = of_keys ? c->keys : c->queries;
        return !r->entry++;
    }
    for (; r->entry < c->batch; r->entry++) {
        if (of_keys) attn__find_keys(c, r->entry, &x);
        else attn__find_rows(c, r->entry, 0, &x);
        if ((of_keys ? x.keys : x.rows) == 0) continue;
        if (!r->count) r->first = of_keys ? x.key0 : x.row0;
        if (r->first + r->count != (of_keys ? x.key0 : x.row0)) break;
        r->count += of_keys ? x.keys : x.rows;
    }
    return r->count > 0;
}

static attn_view attn__only(attn_view v, const attn__band *r) { return attn_view_slice(v, 1, r->first, r->count); }

static attn__matmul attn__mha_product(const attn__mha_call *a, int i, const attn__band *r)
{
    const attn__layer *l = &a->layer[i];
    const attn_view x = attn__only(l->x, r), w = attn__transposed_view(l->w), y = attn__only(l->y, r);
    return attn__matmul_of_views(&a->attention, &x, &w, NULL, &y, 1);
}

static attn_status attn__mha_layer(attn__mha_call *a, int i, attn_error *err)
{
    const attn__array bias = attn__array_of(attn__view_in(a->desc, &attn__mha_fields[ATTN__H_b_query + i]), "...N");
    attn__band r = {0, 0, 0};
    attn__products p;
    while (attn__next_rows(a, i, &r)) {
        p.m[0] = attn__mha_product(a, i, &r);
        p.m[0].bias = bias;
        p.count = 1;
        p.flags = a->flags;
        ATTN__TRY(attn__run_products(&p, &a->attention, a->inner, err));
    }
    return ATTN_OK;
}

#ifndef ATTN_NO_BACKWARD
/* Packed: a sum over the rows of layer i goes entry by entry, as it does over those of a batch. */
static void attn__sum_entries(const attn__mha_call *a, int i, attn__matmul *m)
{
    const attn__call *c = attn__call_of(&a->plan);
    m->of_keys = attn__mha_of_keys(i);
    if (!(m->of_keys ? c->packed_keys : c->packed_queries)) return;
    m->ragged = c;
    m->batch[0] = c->batch;
    m->a.stride[0] = m->b.stride[0] = 0;
}

/* dx (+)= dy w. Layers of one input add to one dx. Keys may have rows that no packed query has: those begin with 0. */
ATTN__NOINLINE static attn_status attn__mha_input_gradient(const attn__mha_call *a, int i, attn_error *err)
{
    const attn__layer *l = &a->layer[i];
    const attn__array to = attn__array_of(l->dx, "B.QX");
    const int onto = i < 3 && a->grad->accumulate >> attn__mha_input(a->desc, i) & 1u && l->dx.type == l->rounded.type;
    const int clears = i == 0 && attn__mha_shares(a, 0, 1) && attn__call_of(&a->plan)->packed_queries && !onto;
    attn__band r = {0, 0, 0};
    attn__products p;
    int64_t row;
    if (!l->dx.rank) return ATTN_OK;
    while (clears && attn__next_rows(a, 1, &r))
        for (row = r.first; row < r.first + r.count; row++)
            attn__store_grad(attn__call_of(&a->plan)->f, attn__in(&to, 0, 0, row, 0), l->dx.size[2], NULL, 1.0f, 0);
    p.count = 1;
    p.flags = a->flags;
    for (r.entry = 0; attn__next_rows(a, i, &r);) {
        const attn_view dy = attn__only(l->dy, &r), dx = attn__only(l->dx, &r);
        p.m[0] = attn__matmul_of_views(&a->attention, &dy, &l->w, NULL, &dx, 0);
        p.m[0].adds = attn__mha_shares(a, i, -1) || onto;
        ATTN__TRY(attn__run_products(&p, &a->attention, a->inner, err));
    }
    return ATTN_OK;
}

/* What is wanted of dw (+)= dy^T x and dbias (+)= sums of dy */
ATTN__NOINLINE static attn_status attn__mha_weight_gradient(const attn__mha_call *a, int i, attn_error *err)
{
    static const float one = 1.0f;
    const attn_desc *d = &a->attention;
    const attn__layer *l = &a->layer[i];
    const attn_view dy = attn__transposed_view(l->dy);
    attn_view ones = attn_view_f32(&one, 2, 1, l->x.size[1], 0, 0), to;
    attn__products p;
    int n;
    p.count = 2;
    p.flags = a->flags;
    ones.stride[1] = 0;
    for (n = 0; n < 2; n++) {
        const int input = (n ? (int)ATTN__H_b_query : (int)ATTN__H_w_query) + i;
        to = attn__view_in(a->grad, &attn__mha_grad_fields[1 + input]);
        if (n) to = attn__view4(to, "...C");
        p.m[n] = attn__matmul_of_views(d, n ? &ones : &dy, n ? &l->dy : &l->x, NULL, &to, 0);
        p.m[n].adds = (int)(a->grad->accumulate >> input & 1u);
        attn__sum_entries(a, i, &p.m[n]);
    }
    p.m[0].skip = i < 3 ? 2 : 0;
    p.m[1].a.rank = 0;                                  /* tells a device, which cannot read this one */
    return attn__run_products(&p, d, a->inner, err);
}

/* Neither is inlined, so that their products are not on the stack together. */
static attn_status attn__mha_layer_gradient(const attn__mha_call *a, int i, attn_error *err)
{
    ATTN__TRY(attn__mha_weight_gradient(a, i, err));
    return attn__mha_input_gradient(a, i, err);
}

/* The gradient of layer i's input from its sum: the rows of all layers that have it, each once. */
static void attn__mha_store_sum(const attn__mha_call *a, int i)
{
    const attn__layer *l = &a->layer[i];
    const attn__call *c = attn__call_of(&a->plan);
    const attn__array from = attn__array_of(l->dx, "B.QX"), to = attn__array_of(l->rounded, "B.QX");
    const int both = i > 0 && attn__mha_input(a->desc, i) == 0 && (c->packed_queries || c->packed_keys);
    const int adds = (int)(a->grad->accumulate >> attn__mha_input(a->desc, i) & 1u);
    attn__fp_state saved;
    int64_t b, row;
    int layer;
    if (attn__mha_shares(a, i, 1) || l->dx.data == l->rounded.data || !attn__elements(&l->dx)) return;
    saved = attn__fp_enter();
    if (both) attn__zero(a->stored, (size_t)c->queries);
    for (layer = both ? 0 : i; layer <= i; layer++) {
        attn__band r = {0, 0, 0};
        while (attn__next_rows(a, layer, &r))
            for (b = 0; b < l->dx.size[0]; b++)
                for (row = r.first; row < r.first + r.count; row++) {
                    if (both && a->stored[row]) continue;
                    if (both) a->stored[row] = 1;
                    attn__store_grad(c->f, attn__in(&to, b, 0, row, 0), l->dx.size[2], attn__at(&from, b, 0, row, 0),
                                     1.0f, adds);
                }
    }
    attn__fp_leave(saved);
}
#endif

/* ---- what a forward call leaves for its gradients */
static uint64_t attn__hash(uint64_t h, const void *p, size_t bytes)     /* FNV-1a */
{
    const unsigned char *at = (const unsigned char *)p;
    while (bytes--) h = (h ^ *at++) * (uint64_t)0x100000001b3;
    return h;
}

static uint64_t attn__hash_inputs(uint64_t h, const void *structure, const attn__field *f, int count)
{
    for (; count > 0; count--, f++) {
        const attn_view v = attn__view_in(structure, f);
        if (f->flags & ATTN__RESULT || !v.rank) continue;
        h = attn__hash(attn__hash(h, &f->offset, sizeof f->offset), &v.type, sizeof v.type);
        h = attn__hash(h, v.size, sizeof *v.size * (size_t)v.rank);
    }
    return h;
}

/* Stands before what is saved: the sizes, types and options of the call that it is of. */
static uint64_t attn__mha_mark(const attn__mha_call *a)
{
    const attn__call *c = attn__call_of(&a->plan);
    const attn_desc *d = &a->attention;
    const int64_t heads[4] = {c->heads, c->heads_kv, c->packed_queries, c->packed_keys};
    const int32_t types[4] = {a->layer[0].y.type, a->layer[1].y.type, a->layer[2].y.type, a->layer[3].x.type};
    uint64_t h = attn__hash(attn__hash((uint64_t)0x6174746e2e6d6861, heads, sizeof heads), types, sizeof types);
#define ATTN__X(type, f, ...) h = attn__hash(h, &d->f, sizeof d->f);
    ATTN__SCORE_NUMBERS(ATTN__X) ATTN__NUMBERS(ATTN__X) ATTN__X(int32_t, scale_set, 1) ATTN__X(int32_t, causal, 1)
    ATTN__X(int32_t, window, 1) ATTN__X(int64_t, window_left, 1) ATTN__X(int64_t, window_right, 1)
    ATTN__X(int64_t, dropout_origin, 1)
#undef ATTN__X
    h = attn__hash_inputs(h, d, attn__fields, ATTN__F_COUNT);
    return attn__hash_inputs(h, a->desc, attn__mha_fields, ATTN__H_COUNT);
}

/* Is there room in `saved`, or what gradients read? From here on, until it is done, a forward call leaves nothing. */
static attn_status attn__mha_check_saved(const attn__mha_call *a, attn_error *err)
{
    const attn_mha_desc *desc = a->desc;
    uint64_t *const held = (uint64_t *)(void *)attn__align(desc->saved);
    ATTN__RULE(desc->saved || !desc->saved_bytes, NULL, "saved", "must be given where saved_bytes is not 0");
    if (!a->keeps) return ATTN_OK;
    ATTN__RULE2(desc->saved_bytes >= (size_t)a->kept.bytes, WORKSPACE, "saved_bytes", "must be at least",
                (int64_t)desc->saved_bytes, a->kept.bytes);
    ATTN__RULE(!a->grad || *held == attn__mha_mark(a), OPTION, "saved",
               "must be what attn_mha left there, with these sizes, types and options");
    if (!a->grad) *held = 0;
    return ATTN_OK;
}

/* Without a result layer: what was saved of the attention's out becomes the caller's. */
static void attn__mha_store_out(const attn__mha_call *a)
{
    const attn__layer *l = &a->layer[3];
    const attn__array from = attn__array_of(l->x, "B.QX"), to = attn__array_of(l->y, "B.QX");
    attn__band r = {0, 0, 0};
    int64_t b, row;
    while (attn__next_rows(a, 3, &r))
        for (b = 0; b < l->y.size[0]; b++)
            for (row = r.first; row < r.first + r.count; row++)
                attn__store_row(attn__call_of(&a->plan)->f, attn__in(&to, b, 0, row, 0), l->y.size[2],
                                attn__at(&from, b, 0, row, 0));
}

static attn_status attn__mha_run(void *call, const attn_desc *d, void *workspace, attn_error *err)
{
    attn__mha_call *a = (attn__mha_call *)call;
    const attn__call *c = attn__call_of(&a->plan);
    attn__map m = {attn__align(workspace), 0};
    int i;
    if (c->idle) return ATTN_OK;
    a->kept.base = attn__align(a->desc->saved);
    a->kept.bytes = ATTN__ALIGN;
    attn__mha_take(&m, a);
    a->inner = m.base + m.bytes;
    if (!a->grad || !a->keeps) {
        for (i = 0; i < 3; i++) ATTN__TRY(attn__mha_layer(a, i, err));
        attn__mha_set_operands(a, 0);           /* the steps are planned */
        if (c->batch && c->queries) ATTN__TRY(attn__run_plan(&a->plan, d, a->inner, err));
    }
    if (!a->grad) {
        if (a->layer[3].w.rank) ATTN__TRY(attn__mha_layer(a, 3, err));
        else if (a->keeps) ATTN__IN_FP_STATE(attn__mha_store_out(a));
        if (a->keeps) *(uint64_t *)(void *)a->kept.base = attn__mha_mark(a);
        return ATTN_OK;
    }
#ifndef ATTN_NO_BACKWARD
    if (a->layer[3].w.rank) ATTN__TRY(attn__mha_layer_gradient(a, 3, err));
    ATTN__TRY(attn__mha_plan(a, 1, err));
    ATTN__TRY(attn__run_plan(&a->plan, d, a->inner, err));
    for (i = 0; i < 3; i++) {
        ATTN__TRY(attn__mha_layer_gradient(a, i, err));
        attn__mha_store_sum(a, i);
    }
#endif
    return ATTN_OK;
}

/* What the layers' products need, one after the other. Not inlined, for the stack's sake. */
ATTN__NOINLINE static int64_t attn__mha_product_bytes(const attn__mha_call *a)
{
    const attn__band none = {0, 0, 0};
    int64_t bytes = 0;
    int i;
    for (i = 0; i < 4 && a->layer[i].w.rank; i++) {
        attn__matmul product = attn__mha_product(a, i, &none);
        bytes = attn__max(bytes, attn__matmul_bytes(&product, &a->attention));
        if (!a->grad) continue;
        product.column_tiles = 0;               /* as sums, of d_out as it is stored */
        product.a.type = a->layer[3].dy.type;
        bytes = attn__max(bytes, attn__matmul_bytes(&product, &a->attention));
    }
    return bytes;
}

static attn_status attn__mha_known(const attn_mha_desc *desc, const struct attn_mha_grad *grad, int what,
                                   size_t *bytes, attn_error *err)
{
    attn__mha_call a;
    attn_desc *d = &a.attention;
    attn__map m = {NULL, 0};
    attn_status st;
    int64_t inner, total;
    int i;
    ATTN__RULE(grad || what != ATTN__MHA_BACKWARD, NULL, "grad", "must not be NULL");
    ATTN__NOT_NULL(desc);
    attn__zero(&a, sizeof a);
    a.desc = desc;
    a.grad = grad;
    a.keeps = desc->saved || what == ATTN__MHA_SAVED_SIZE;
    a.kept.bytes = 2 * ATTN__ALIGN;             /* the mark, and what comes before it */
    ATTN__IN_FP_STATE(st = attn__mha_resolve(&a, bytes ? 0 : ATTN__WITH_DATA, err));
    if (st != ATTN_OK) return st;
    attn__mha_take(&m, &a);
    inner = attn__mha_product_bytes(&a);
    for (i = grad != NULL; i >= (grad && a.keeps); i--) {
        ATTN__TRY(attn__mha_plan(&a, i, err));
        inner = attn__max(inner, (int64_t)a.plan.workspace_bytes);
    }
    total = attn__add64(attn__add64(m.bytes, inner), 2 * ATTN__ALIGN);
    if (what == ATTN__MHA_SAVED_SIZE) total = a.kept.bytes;
    ATTN__RULE(attn__max(total, a.kept.bytes) < (int64_t)((size_t)-1 / 4), OVERFLOW, "query",
               "must leave a workspace that fits in memory");
    if (attn__call_of(&a.plan)->idle) total = 0;
    d->q.data = desc->query.data;               /* tells the device */
    if (!bytes) ATTN__TRY(attn__mha_check_saved(&a, err));
    return attn__size_or_run(attn__mha_run, &a, d, total, attn__on_device(a.flags), bytes, err);
}

/* As attn__plan_older. */
ATTN__NOINLINE static attn_status attn__mha_older(const attn_mha_desc *desc, const struct attn_mha_grad *grad,
                                                  int what, size_t *bytes, attn_error *err)
{
    attn_mha_desc copy;
#ifndef ATTN_NO_BACKWARD
    attn_mha_grad grad_copy;
    ATTN__KNOWN(attn_mha_grad, grad, &grad_copy, reserved);
#endif
    ATTN__KNOWN(attn_mha_desc, desc, &copy, attention);
    if (attn__bytes_given(desc) == offsetof(attn_mha_desc, saved_bytes)) copy.saved = NULL;    /* 32 bits: padding */
    return attn__mha_known(desc, grad, what, bytes, err);
}

static attn_status attn__mha(const attn_mha_desc *desc, const struct attn_mha_grad *grad, int what, size_t *bytes,
                             attn_error *err)
{
    return (attn__bytes_given(desc) || attn__bytes_given(grad) ? attn__mha_older : attn__mha_known)(
        desc, grad, what, bytes, err);
}

ATTN__CALL(attn_mha, attn__mha(desc, NULL, ATTN__MHA_FORWARD, bytes, err), const attn_mha_desc *desc)

ATTN_DEF attn_status attn_mha_saved_size(const attn_mha_desc *desc, size_t *bytes, attn_error *err)
{
    ATTN__NOT_NULL(bytes);
    return attn__mha(desc, NULL, ATTN__MHA_SAVED_SIZE, bytes, err);
}

#ifndef ATTN_NO_BACKWARD
ATTN__CALL(attn_mha_backward, attn__mha(desc, grad, ATTN__MHA_BACKWARD, bytes, err),
           const attn_mha_desc *desc, const attn_mha_grad *grad)
#endif

/* ------------------------------------------------------------------------------------------------------ >>layout */
static void attn__put_place(attn__text *t, const char *name, int64_t offset, int64_t size)
{
    attn__put2(t, "    ", name);
    ATTN__FORMAT(t, " % %\n", offset, size);
}

static void attn__put_views(attn__text *t, const attn__field *f, int count)
{
    for (; count > 0; count--, f++) attn__put_place(t, attn__name(f), f->offset, sizeof(attn_view));
}

typedef struct attn__offset { char name[22]; uint16_t offset, size; } attn__offset;
static void attn__put_places(attn__text *t, const char *structure, int64_t size, const attn__offset *p, size_t count)
{
    attn__put(t, structure);
    ATTN__FORMAT(t, " %\n", size);
    for (; count > 0; count--, p++) attn__put_place(t, p->name, p->offset, p->size);
}
#define ATTN__F(f) {#f, (uint16_t)offsetof(attn__structure, f), (uint16_t)sizeof(((attn__structure *)0)->f)},
#define ATTN__LAYOUT(structure, fields) \
    do { \
        typedef structure attn__structure; \
        static const attn__offset places[] = {fields}; \
        attn__put_places(&t, #structure, sizeof(structure), places, sizeof places / sizeof *places); \
    } while (0)
ATTN_DEF size_t attn_layout(char *text, size_t size)
{
    attn__text t = attn__text_into(text, size);
    ATTN__LAYOUT(attn_view, ATTN__F(data) ATTN__F(size) ATTN__F(stride) ATTN__F(type) ATTN__F(rank));
    ATTN__LAYOUT(attn_out, ATTN__F(data) ATTN__F(size) ATTN__F(stride) ATTN__F(type) ATTN__F(rank));
    ATTN__LAYOUT(attn_error, ATTN__F(status) ATTN__F(field) ATTN__F(rule) ATTN__F(got) ATTN__F(want)
                 ATTN__F(has_numbers) ATTN__F(cuda) ATTN__F(place) ATTN__F(has_place) ATTN__F(has_type)
                 ATTN__F(reserved2));
    ATTN__LAYOUT(attn_allocator, ATTN__F(allocate) ATTN__F(release) ATTN__F(user));
    ATTN__LAYOUT(attn_parallel, ATTN__F(run) ATTN__F(user) ATTN__F(workers));
    ATTN__LAYOUT(attn_plan, ATTN__F(workspace_bytes) ATTN__F(phases) ATTN__F(isa) ATTN__F(tasks));
#define ATTN__X(type, f, ...) ATTN__F(f)
    ATTN__LAYOUT(attn_desc, ATTN__F(struct_bytes) ATTN__SCORE_NUMBERS(ATTN__X) ATTN__NUMBERS(ATTN__X)
                 ATTN__F(scale_set) ATTN__F(causal) ATTN__F(window) ATTN__F(window_left) ATTN__F(window_right)
                 ATTN__F(dropout_origin) ATTN__F(reserved) ATTN__F(workspace) ATTN__F(workspace_bytes)
                 ATTN__F(allocator) ATTN__F(parallel) ATTN__F(stream) ATTN__F(reserved2));
#undef ATTN__X
    attn__put_views(&t, attn__fields, ATTN__F_COUNT);
    ATTN__LAYOUT(attn_mha_desc, ATTN__F(struct_bytes) ATTN__F(heads) ATTN__F(heads_kv) ATTN__F(attention)
                 ATTN__F(saved) ATTN__F(saved_bytes));
    attn__put_views(&t, attn__mha_fields, ATTN__H_COUNT);
    ATTN__LAYOUT(attn_rope_desc, ATTN__F(struct_bytes) ATTN__F(base) ATTN__F(scaling) ATTN__F(no_truncation)
                 ATTN__F(factor) ATTN__F(original_positions) ATTN__F(low_freq_factor) ATTN__F(high_freq_factor)
                 ATTN__F(beta_fast) ATTN__F(beta_slow) ATTN__F(attention_factor) ATTN__F(first_position)
                 ATTN__F(factors));
#ifndef ATTN_NO_BACKWARD
    ATTN__LAYOUT(attn_grad, ATTN__F(struct_bytes) ATTN__F(accumulate) ATTN__F(reserved) ATTN__F(last_queries));
    attn__put_views(&t, attn__grad_fields, ATTN__G_COUNT);
    ATTN__LAYOUT(attn_mha_grad, ATTN__F(struct_bytes) ATTN__F(attention) ATTN__F(accumulate) ATTN__F(reserved));
    attn__put_views(&t, attn__mha_grad_fields, ATTN__H_COUNT);
#endif
#ifndef ATTN_NO_HEATMAP
    ATTN__LAYOUT(attn_writer, ATTN__F(write) ATTN__F(user));
    ATTN__LAYOUT(attn_buffer, ATTN__F(data) ATTN__F(size) ATTN__F(length));
    ATTN__LAYOUT(attn_heatmap, ATTN__F(struct_bytes) ATTN__F(values) ATTN__F(mask_of) ATTN__F(title) ATTN__F(x_label)
                 ATTN__F(y_label) ATTN__F(x_ticks) ATTN__F(y_ticks) ATTN__F(panel_titles) ATTN__F(colormap)
                 ATTN__F(range_set) ATTN__F(range_min) ATTN__F(range_max) ATTN__F(width) ATTN__F(height)
                 ATTN__F(ticks_on_top) ATTN__F(no_colorbar) ATTN__F(numbers) ATTN__F(terminal)
                 ATTN__F(cell_titles) ATTN__F(mask));
#endif
    return attn__end_text(&t);
}

/* ------------------------------------------------------------------------------------------------------- >>cache
   Lengths from offsets, and new rows of a cache. Everything is checked before anything is written. */
ATTN_DEF attn_status attn_lengths_of(attn_view offsets, attn_out lengths, attn_error *err)
{
    static const attn__field fields[2] = {
        ATTN__ARGUMENT(offsets, 0, "A...", "[B+1]", INTS, ATTN__NEEDED, 0),
        ATTN__ARGUMENT(lengths, 1, "B...", "[B]", INTS, ATTN__NEEDED | ATTN__RESULT, 0)};
    const attn_view v[2] = {offsets, attn_view_of(lengths)};
    const int64_t most = lengths.type == ATTN_I32 ? 0x7fffffff : ATTN__HUGE;
    attn__array a[2];
    int64_t b;
    ATTN__TRY(attn__check_arrays(v, fields, 2, a, ATTN__CUDA_ONLY(NULL,) err));
    ATTN__RULE2(offsets.size[0] == lengths.size[0] + 1, SIZE, "offsets.size[0]",
                "must be one more than lengths.size[0]", offsets.size[0], lengths.size[0] + 1);
    for (b = 0; b < offsets.size[0]; b++) {
        const int64_t end = attn__int_at(&a[0], b, 0), start = b ? attn__int_at(&a[0], b - 1, 0) : 0;
        if (end < start) return attn__fail_at(err, "offsets", "must not descend and be at least", end, start, b, -1);
        if (b && end - start > most)
            return attn__fail_at(err, "lengths", "must hold the length: at most", end - start, most, b - 1, -1);
    }
    for (b = 0; b < lengths.size[0]; b++) {
        const int64_t length = attn__int_at(&a[0], b + 1, 0) - attn__int_at(&a[0], b, 0), at = b * a[1].stride[0];
        if (lengths.type == ATTN_I32) ((int32_t *)a[1].data)[at] = (int32_t)length;
        else ((int64_t *)a[1].data)[at] = length;
    }
    return attn__success(err);
}

/* ---- new rows of a cache */
typedef struct attn__append {
    const attn_desc *d;         /* the options, with the new rows as q, the cache as k and its lengths as key_lengths */
    attn__array  fresh, cache, lengths, query_lengths, query_starts, key_starts, page_table, k_scale, v_scale;
    attn__array  scale;         /* that of the two which is given; rank 0: none */
    const attn__kernels *f;
    int64_t      groups;        /* of a row's scales */
    int64_t      page;          /* rows of a page, or of an entry where there are no pages */
    int64_t      most;          /* rows that an entry gets, at most: so many of each are counted */
    ATTN__CUDA_ONLY(int on_device;)
} attn__append;

/* Entry b: its first row in fresh and, counted from its own page 0, in the cache; how many rows. */
typedef struct attn__entry { int64_t from, to, rows; } attn__entry;
static attn_status attn__find_entry(const attn__append *p, int64_t b, attn__entry *e, attn_error *err)
{
#define ATTN__OF(f, absent) attn__int_or(&p->f, b, absent)
    const int64_t start = ATTN__OF(key_starts, 0), length = ATTN__OF(lengths, 0), fresh = p->d->q.size[2];
    const int64_t room = p->page_table.rank ? attn__mul64(p->page, p->d->page_table.size[1]) : p->page;
    e->from = ATTN__OF(query_starts, 0);
    ATTN__TRY(attn__check_within(err, "query_starts", e->from, 0, fresh, "must be at most fresh.size[2]", b, -1));
    e->rows = ATTN__OF(query_lengths, fresh - e->from);
    ATTN__TRY(attn__check_within(err, "query_lengths", e->rows, 0, fresh - e->from, "must end within fresh: at most",
                                 b, -1));
    ATTN__TRY(attn__check_within(err, "key_starts", start, 0, room, "must lie in the cache: at most", b, -1));
    ATTN__TRY(attn__check_within(err, "lengths", length, 0, room - start - e->rows,
                                 "must leave room for the new rows: at most", b, -1));
    e->to = start + length;
    if (!p->page_table.rank) return ATTN_OK;
    return attn__check_pages(&p->page_table, p->page, p->d->k.size[0], b, e->to, e->rows, err);
#undef ATTN__OF
}

static attn_status attn__check_append(attn__append *p, attn_error *err)
{
#define ATTN__AS(f, as, shape, axes, takes, flags) \
    ATTN__FIELD(#f, offsetof(attn_desc, as), shape, axes, takes, flags, 0)
#define ATTN__AN_INT(f, as, flags) ATTN__AS(f, as, "B...", "[B]", INTS, flags)
#define ATTN__A_SCALE(f) \
    ATTN__AS(f, f, "CHS?", "the cache's: [B,Hkv,S,1] or [B,Hkv,S,ceil(D/32)]", SCALES, ATTN__RESULT)
    static const attn__field fields[] = {       /* as the arrays of attn__append */
        ATTN__AS(fresh, q, "FHND", "[B,Hkv,n,D]", FLOATS, ATTN__NEEDED),
        ATTN__AS(cache, k, "CHSD", "[B,Hkv,S,D]", CODES, ATTN__NEEDED | ATTN__RESULT),
        ATTN__AN_INT(lengths, key_lengths, ATTN__NEEDED), ATTN__AN_INT(query_lengths, query_lengths, 0),
        ATTN__AN_INT(query_starts, query_starts, 0), ATTN__AN_INT(key_starts, key_starts, 0),
        ATTN__AS(page_table, page_table, "B.T.", "[B,pages]", INTS, 0), ATTN__A_SCALE(k_scale), ATTN__A_SCALE(v_scale)};
#undef ATTN__AS
#undef ATTN__AN_INT
#undef ATTN__A_SCALE
    const attn_desc *d = p->d;
    const attn__field *f = &attn__fields[d->v_scale.rank ? ATTN__F_v_scale : ATTN__F_k_scale];
    const attn_view *fresh = &d->q, *cache = &d->k, scale = attn__view_in(d, f);
    attn__array *arrays = (attn__array *)(void *)((char *)p + offsetof(attn__append, fresh)), *a;
    attn__entry e;
    int64_t b, batch, seen;
    ATTN__TRY(attn__check_arrays(d, fields, (int)(sizeof fields / sizeof *fields), arrays,
                                 ATTN__CUDA_ONLY(&p->on_device,) err));
    batch = d->key_lengths.size[0];
    ATTN__RULE2(fresh->size[0] == batch || (d->query_starts.rank && fresh->size[0] == 1), SIZE, "fresh.size[0]",
                "must equal lengths.size[0], or with query_starts be 1", fresh->size[0], batch);
    ATTN__RULE2(cache->size[0] == batch || d->page_table.rank || (d->key_starts.rank && cache->size[0] == 1), SIZE,
                "cache.size[0]", "must equal lengths.size[0], or with key_starts be 1", cache->size[0], batch);
    ATTN__RULE(!d->k_scale.rank || !d->v_scale.rank, OPTION, "v_scale",
               "must be absent where k_scale is given: the cache is of one of them");
    ATTN__RULE(cache->type != ATTN_I8 || scale.rank, NULL, "k_scale",
               "must be given for a cache of ATTN_I8, or v_scale");
    ATTN__TRY(attn__check_scale(cache, &scale, f, err));
    p->scale = d->v_scale.rank ? p->v_scale : p->k_scale;
    p->groups = scale.size[3];
    p->page = cache->size[2];
    ATTN__CUDA_ONLY(if (p->on_device) return ATTN_OK;)          /* what lengths, starts, pages hold is not looked at */
    for (seen = attn__min(batch, 1), a = arrays + 2; a < arrays + 7; a++)   /* lengths to page_table */
        if (a->stride[0]) seen = batch;                         /* else all entries are alike */
    for (b = 0; b < seen; b++) {
        ATTN__TRY(attn__find_entry(p, b, &e, err));
        p->most = attn__max(e.rows, p->most);
    }
    return ATTN_OK;
}

/* The new rows i .. end of entry b, page by page; a: from, codes or numbers, scales. */
static void attn__append_rows(const attn__append *p, int64_t b, int64_t i, int64_t end)
{
    const int paged = p->page_table.rank > 0;
    const int64_t fresh_b = p->d->q.size[0] == 1 ? 0 : b, cache_b = p->d->k.size[0] == 1 ? 0 : b;
    const int64_t heads = p->d->q.size[1], columns = p->d->q.size[3];
    attn__array a[3];
    attn__entry e;
    int64_t n, h;
    (void)attn__find_entry(p, b, &e, NULL);
    for (end = attn__min(end, e.rows); i < end; i += n) {
        const int64_t page = paged ? (e.to + i) / p->page : 0, row = e.to + i - page * p->page;
        const int64_t at = paged ? attn__int_at(&p->page_table, b, page) : cache_b;
        n = attn__min(end - i, p->page - row);
        a[0] = p->fresh;
        a[1] = p->cache;
        a[2] = p->scale;
        a[0].data = (void *)(uintptr_t)attn__place_of(&p->fresh, fresh_b, 0, e.from + i, 0);
        a[1].data = (void *)(uintptr_t)attn__place_of(&p->cache, at, 0, row, 0);
        a[2].data = (void *)(uintptr_t)attn__place_of(&p->scale, at, 0, row, 0);
        if (!p->scale.rank) attn__convert_rows(p->f, &a[0], &a[1], 0, heads, n, columns);
        for (h = 0; p->scale.rank && h < heads; h++)
            attn__quantize_rows(p->f, a, 0, h, 0, n, columns, p->groups);
    }
}

static void attn__append_some(const void *call, int64_t at, int64_t end)
{
    const attn__append *p = (const attn__append *)call;
    int64_t n;
    for (; at < end; at += n) {
        const int64_t i = at % p->most;
        n = attn__min(p->most - i, end - at);
        attn__append_rows(p, at / p->most, i, i + n);
    }
}

ATTN_DEF attn_status attn_append(attn_view fresh, attn_out cache, attn_view lengths, const attn_desc *options,
                                 attn_error *err)
{
    attn__append p;
    attn_desc d;
    ATTN__TRY(attn__row_options(options, &d, err));
    attn__zero(&p, sizeof p);
    p.d = &d;
    d.q = fresh;
    d.k = attn_view_of(cache);
    d.key_lengths = lengths;
    p.f = attn__table((int32_t)attn_best_isa());
    ATTN__TRY(attn__check_append(&p, err));
    ATTN__CUDA_ONLY(if (p.on_device) return attn__cuda_append(&p.fresh, &d, p.on_device, err);)
    if (!p.most || !fresh.size[1] || !(fresh.size[3] || (p.scale.rank && p.groups))) return attn__success(err);
    attn__for_rows(&d.parallel, attn__mul64(lengths.size[0], p.most), attn__mul64(fresh.size[1], fresh.size[3]), 0,
                   attn__append_some, &p);
    return attn__success(err);
}

/* -------------------------------------------------------------------------------------------------------- >>rope
   Rotary positions. */
/* Rows at once: few enough that those of the tables stay cached for the next head; of large arrays so many that what is
   read lies side by side for a while. */
enum { ATTN__ROTATED = 16, ATTN__ROTATED_FAR = 128 };
enum { ATTN__STAGED = 512 };    /* pairs in the buffer of rows that are not floats side by side */
typedef struct attn__rotation {
    attn__array  x, cosines, sines, positions, out;     /* first of all, in the order of attn_rope's fields */
    int64_t      size[4];
    int          whole_tables;  /* their rows are floats side by side, */
    int          as_floats;     /* and so are those of x and out */
    ATTN__CUDA_ONLY(int on_device;)
    attn__rotate rotate;
    const attn__kernels *f;
} attn__rotation;

static int64_t attn__row_of_table(const attn__rotation *c, int64_t b, int64_t i)
{
    if (!c->positions.rank) return i;
    return c->positions.rank == 1 ? attn__int_at(&c->positions, b, 0) + i : attn__int_at(&c->positions, b, i);
}

/* t.pairs pairs from the first-th on, of t.rows rows of a head from row i on, through a buffer: their first numbers,
   their second ones; of interleaved pairs the numbers of the first half of them, then of the others. */
static void attn__rotate_staged(const attn__rotation *c, int64_t b, int64_t h, int64_t i, int64_t first, attn__rotate t)
{
    const int64_t n = t.pairs, apart = t.interleaved ? n : c->rotate.pairs, column = t.interleaved ? 2*first : first;
    float some[2 * ATTN__STAGED], cosines[ATTN__STAGED], sines[ATTN__STAGED];
    int64_t at[ATTN__ROTATED], r, x;
    for (r = 0; r < t.rows; r++) {
        at[r] = attn__row_of_table(c, b, i + r);
        if (c->whole_tables) continue;
        attn__copy_row(c->f, attn__in(&c->cosines, 0, 0, at[r], first), n, cosines + r * n);
        attn__copy_row(c->f, attn__in(&c->sines, 0, 0, at[r], first), n, sines + r * n);
        at[r] = r;
    }
    t.cosines = c->whole_tables ? t.cosines + first : cosines;
    t.sines = c->whole_tables ? t.sines + first : sines;
    if (!c->whole_tables) t.cosines_row = t.sines_row = n;
    t.at = at;
    t.x = t.out = some;
    t.x_row = t.out_row = 2 * n;
    t.rest = 0;
    for (x = 0; x < 2; x++)
        attn__copy_floats_of(c->f, attn__in(&c->x, b, h, i, column + x * apart), NULL, t.rows, n, some + x * n, 2 * n);
    c->f->rotate(&t);
    for (x = 0; x < 2; x++)
        for (r = 0; r < t.rows; r++)
            attn__store_row(c->f, attn__in(&c->out, b, h, i + r, column + x * apart), n, some + (2*r + x) * n);
}

/* Rows row .. end that do not lie there as floats side by side: their pairs, then what is behind them. */
static void attn__rotate_stored(const attn__rotation *c, int64_t b, int64_t row, int64_t end)
{
    const int64_t all = c->rotate.pairs, some = attn__max(attn__min(all, ATTN__STAGED), 1);
    const int64_t most = attn__min(ATTN__ROTATED, ATTN__STAGED / some);
    attn__array from = c->x, to = c->out;
    attn__rotate t = c->rotate;
    int64_t h, i, x;
    t.groups = t.at_row = 1;
    for (h = 0; h < c->size[1]; h++)
        for (i = row; i < end; i += most)
            for (x = 0; x < all; x += some) {
                t.rows = attn__min(end - i, most);
                t.pairs = attn__min(all - x, some);
                attn__rotate_staged(c, b, h, i, x, t);
            }
    from.data = (void *)(uintptr_t)attn__place_of(&from, 0, 0, row, 2 * all);
    to.data = (void *)(uintptr_t)attn__place_of(&to, 0, 0, row, 2 * all);
    attn__convert_rows(c->f, &from, &to, b, c->size[1], end - row, t.rest);
}

/* Rows that do: those of some positions in a call of the kernel, heads inside where they lie closer. */
static void attn__rotate_floats(const attn__rotation *c, int64_t b, int64_t i, int64_t end)
{
    const int64_t heads = c->size[1], rows = c->size[2];
    const int by_head = rows == 1 || (heads > 1 && c->out.stride[1] < c->out.stride[2]);
    const int group = by_head ? 2 : 1, row = 3 - group;         /* which axis is which in the kernel */
    const int large = heads * rows > ATTN__LARGE / c->size[3];
    int64_t at[ATTN__ROTATED_FAR], j, n;
    attn__rotate t = c->rotate;
    t.at = at;
    t.at_group = group == 2;
    t.at_row = row == 2;
    t.x_group = c->x.stride[group];
    t.x_row = c->x.stride[row];
    t.out_group = c->out.stride[group];
    t.out_row = c->out.stride[row];
    t.fetch = large ? 4 : 0;
    for (; i < end; i += n) {
        n = attn__min(end - i, large ? ATTN__ROTATED_FAR : ATTN__ROTATED);
        for (j = 0; j < n; j++) at[j] = attn__row_of_table(c, b, i + j);
        t.groups = by_head ? n : heads;
        t.rows = by_head ? heads : n;
        t.x = attn__at(&c->x, b, 0, i, 0);
        t.out = attn__at(&c->out, b, 0, i, 0);
        c->f->rotate(&t);
    }
}

/* Rows of all heads, counted through the entries. */
static void attn__rotate_some(const void *call, int64_t at, int64_t end)
{
    const attn__rotation *c = (const attn__rotation *)call;
    int64_t n;
    for (; at < end; at += n) {
        const int64_t i = at % c->size[2];
        n = attn__min(c->size[2] - i, end - at);
        (c->as_floats ? attn__rotate_floats : attn__rotate_stored)(c, at / c->size[2], i, i + n);
    }
}

/* Does every row have its row in the tables? */
static attn_status attn__check_positions(const attn__rotation *c, int64_t table, attn_error *err)
{
    const int64_t rows = c->size[2];
    const int each = c->positions.rank == 2;
    const int64_t batch = c->positions.stride[0] ? c->size[0] : attn__min(c->size[0], 1);   /* repeated: seen once */
    const int64_t some = each && c->positions.stride[2] ? rows : attn__min(rows, 1);
    int64_t b, i;
    ATTN__RULE2(c->positions.rank || rows <= table, SIZE, "cosines.size[0]",
                "must be at least x.size[2] where positions are absent", table, rows);
    ATTN__CUDA_ONLY(ATTN__RULE2(!c->on_device || table >= (each ? some : rows), SIZE, "cosines.size[0]",
                                "must hold a row for each position: at least", table, each ? some : rows);
                    if (c->on_device) return ATTN_OK;)          /* positions that they hold are not looked at */
    for (b = 0; c->positions.rank && b < batch; b++)
        for (i = 0; i < some; i++)
            ATTN__TRY(attn__check_within(err, "positions", attn__int_at(&c->positions, b, i), 0,
                                         each ? table - 1 : table - rows, "must lie in the tables: at most", b,
                                         each ? i : -1));
    return ATTN_OK;
}

ATTN_DEF attn_status attn_rope_with(attn_view x, attn_view cosines, attn_view sines, attn_view positions,
                                    uint32_t flags, attn_out out, const attn_desc *options, attn_error *err)
{
    static const attn__field fields[5] = {
        ATTN__ARGUMENT(x, 0, "BHSD", "[B,H,S,D]", FLOATS, 0, 0),
        ATTN__ARGUMENT(cosines, 1, "..TR", "[positions,R/2]", SINGLES, ATTN__NEEDED, 0),
        ATTN__ARGUMENT(sines, 2, "..TR", "[positions,R/2]", SINGLES, ATTN__NEEDED, 0),
        ATTN__ARGUMENT(positions, 3, "B.s.", "[B] or [B,S]", INTS, 0, 0),
        ATTN__ARGUMENT(out, 4, "BHSD", "[B,H,S,D]", FLOATS, ATTN__NEEDED | ATTN__RESULT, 0)};
    attn_view v[5] = {x, cosines, sines, positions, attn_view_of(out)};
    attn__rotation c;
    attn__spare used;
    int i, same = x.data == out.data && x.type == out.type && x.rank == 4 && out.rank == 4;
    ATTN__TRY(attn__spare_options(options, &used, err));
    ATTN__RULE(x.rank || x.data, NULL, "x", "must be given");
    for (i = 0; same && i < 4; i++) same = x.size[i] == out.size[i] && (x.size[i] <= 1 || x.stride[i] == out.stride[i]);
    if (same) attn__zero(v, sizeof *v);         /* looked at once, as out */
    attn__zero(&c, sizeof c);
    ATTN__TRY(attn__check_arrays(v, fields, 5, (attn__array *)(void *)&c, ATTN__CUDA_ONLY(&c.on_device,) err));
    ATTN__RULE2(cosines.size[1] <= out.size[3] / 2, SIZE, "cosines.size[1]", "must be at most half of x.size[3]",
                cosines.size[1], out.size[3] / 2);
    ATTN__RULE(flags <= 3, OPTION, "flags", "must be ATTN_ROPE_x bits");
    if (same) c.x = c.out;
    ATTN__COPY(c.size, out.size, sizeof c.size);
    c.whole_tables = !cosines.size[1] || (attn__is_contiguous(&c.cosines) && attn__is_contiguous(&c.sines));
    c.rotate.pairs = cosines.size[1];
    c.rotate.rest = out.size[3] - 2 * cosines.size[1];
    c.rotate.cosines = (const float *)c.cosines.data;
    c.rotate.sines = (const float *)c.sines.data;
    c.rotate.cosines_row = c.cosines.stride[2];
    c.rotate.sines_row = c.sines.stride[2];
    c.rotate.interleaved = (flags & ATTN_ROPE_INTERLEAVED) != 0;
    c.rotate.inverse = (flags & ATTN_ROPE_INVERSE) != 0;
    c.f = attn__table((int32_t)attn_best_isa());
    ATTN__TRY(attn__check_positions(&c, cosines.size[0], err));
    ATTN__CUDA_ONLY(if (c.on_device)
        return attn__cuda_rope(&c.x, c.size, cosines.size, flags, used.stream, c.on_device, err);)
    c.as_floats = attn__is_contiguous(&c.x) && attn__is_contiguous(&c.out) && c.whole_tables;
    if (!attn__elements(&v[4])) return attn__success(err);
    attn__for_rows(&used.parallel, c.size[0] * c.size[2], c.size[1] * c.size[3], attn__row_bytes(&c.out),
                   attn__rotate_some, &c);
    return attn__success(err);
}

ATTN_DEF attn_status attn_rope(attn_view x, attn_view cosines, attn_view sines, attn_view positions, uint32_t flags,
                               attn_out out, attn_error *err)
{ return attn_rope_with(x, cosines, sines, positions, flags, out, NULL, err); }

/* ---- tables for them, in double. What goes into a sum is a product of attn__product_of: rounded, never fused. */
static double attn__product_of(double a, double b)
{
    double product = a * b;
    ATTN__APART(product);
    return product;
}

static const double attn__ln2 = 0.6931471805599453, attn__two_pi = 6.283185307179586;

/* Of a normal x = 2^n m, m within sqrt(1/2)..sqrt(2), ln m: 2 artanh((m-1)/(m+1)), by its series. */
static double attn__log_of_rest(double x, int64_t *n)
{
    uint64_t bits;
    double m, s, s2, sum = 0.0;
    int i;
    ATTN__COPY(&bits, &x, sizeof bits);
    *n = (int64_t)((bits + 0x95f619980c433u) >> 52) - 1023;             /* the bits of 2 - sqrt(2) */
    bits -= (uint64_t)*n << 52;
    ATTN__COPY(&m, &bits, sizeof m);
    s = (m - 1.0) / (m + 1.0);
    s2 = attn__product_of(s, s);
    for (i = 21; i > 0; i -= 2) sum = attn__product_of(sum, s2) + 2.0 / i;
    return attn__product_of(sum, s);
}

static double attn__log_of(double x)
{
    int64_t n;
    const double rest = attn__log_of_rest(x, &n);
    return attn__product_of((double)n, attn__ln2) + rest;
}

/* x^(-a/b), x at least 1, a from 0 to b. Of x = 2^n m the power of 2 is split once more, into a whole one, which is
   exact, and a rest: 2^(-n a/b) = 2^-whole 2^(-rest/b). So the series of e^y gets a y of at most ln 2, within 3 ulp. */
static double attn__root(double x, int64_t a, int64_t b)
{
    int64_t n, whole;
    const double log_m = attn__log_of_rest(x, &n);
    double y, power = 1.0, scale;
    uint64_t bits;
    int i;
    whole = (2*n*a + b) / (2*b);
    y = -(attn__product_of((double)(n*a - whole*b), attn__ln2) + attn__product_of((double)a, log_m)) / (double)b;
    for (i = 17; i > 0; i--) power = 1.0 + attn__product_of(power, y) / i;
    bits = (uint64_t)(1023 - whole) << 52;
    ATTN__COPY(&scale, &bits, sizeof scale);
    return power * scale;
}

typedef struct attn__frequencies {
    attn_rope_desc d;           /* with its defaults */
    int64_t        size;        /* R */
    double         low, high;
} attn__frequencies;

/* How many pairs turn more than `turns` times within the training's context: c in the manual. */
static double attn__pairs_above(const attn__frequencies *f, double turns)
{
    const double context = (double)f->d.original_positions / (turns * attn__two_pi);
    return (double)f->size * attn__log_of(context) / (2.0 * attn__log_of(f->d.base));
}

static void attn__set_frequencies(attn__frequencies *f)
{
    const double n = (double)f->size;
    if (f->d.scaling != ATTN_ROPE_YARN) {
        if (!(f->d.attention_factor > 0.0)) f->d.attention_factor = 1.0;
        return;
    }
    if (f->d.attention_factor < 0.0)
        f->d.attention_factor = attn__product_of(0.1, attn__log_of(f->d.factor)) + 1.0;
    f->low = attn__pairs_above(f, f->d.beta_fast);
    f->high = attn__pairs_above(f, f->d.beta_slow);
    if (f->low < 0.0) f->low = 0.0;             /* what lies beyond all pairs need not be known exactly */
    if (f->low > 2.0 * n) f->low = 2.0 * n;
    if (f->high < -1.0) f->high = -1.0;
    if (f->high > n - 1.0) f->high = n - 1.0;
    if (!f->d.no_truncation) {
        const double whole = (double)(int64_t)f->high;      /* towards 0, so that of -0.5 it is the ceiling */
        f->low = (double)(int64_t)f->low;
        f->high = f->high > whole ? whole + 1.0 : whole;
    }
    if (f->low == f->high) f->high += 0.001;
}

static double attn__frequency(const attn__frequencies *f, int64_t pair)
{
    const attn_rope_desc *d = &f->d;
    const double w = attn__root(d->base, 2 * pair, f->size);
    double part;                /* of w itself */
    if (d->scaling == ATTN_ROPE_LINEAR) return w / d->factor;
    if (d->scaling == ATTN_ROPE_NTK) return pair ? w * attn__root(d->factor, 2 * pair, f->size - 2) : w;
    if (d->scaling == ATTN_ROPE_YARN) part = 1.0 - ((double)pair - f->low) / (f->high - f->low);
    else if (d->scaling == ATTN_ROPE_LLAMA3)
        part = ((double)d->original_positions * w / attn__two_pi - d->low_freq_factor) /
            (d->high_freq_factor - d->low_freq_factor);
    else return w;
    if (part >= 1.0) return w;
    return part > 0.0 ? attn__product_of(w / d->factor, 1.0 - part) + attn__product_of(w, part) : w / d->factor;
}

/* Cosine and sine of an angle from 0 to 2^26: less k quarter turns, in parts of 27 bits (the last one of 53), of which
   k times each is exact; then Taylor's series, to 1e-18. */
static void attn__cosine_and_sine(double angle, double *cosine, double *sine)
{
    static const double quarter[4] = {1.570796325802803, 9.920935739593517e-10, 5.721188709663575e-18,
                                      1.6446256936324258e-26};
    static const double of_c[] = {1.0/20922789888000.0, 1.0/87178291200.0, 1.0/479001600.0, 1.0/3628800.0,
                                  1.0/40320.0, 1.0/720.0, 1.0/24.0, 0.5, 1.0};
    static const double of_s[] = {1.0/355687428096000.0, 1.0/1307674368000.0, 1.0/6227020800.0, 1.0/39916800.0,
                                  1.0/362880.0, 1.0/5040.0, 1.0/120.0, 1.0/6.0, 1.0};
    const int64_t k = (int64_t)(attn__product_of(angle, 0.6366197723675814) + 0.5);
    double r = angle, c = of_c[0], s = of_s[0], r2, t;
    int i;
    for (i = 0; i < 4; i++) r = r - attn__product_of((double)k, quarter[i]);
    r2 = r * r;
    for (i = 1; i < 9; i++) {
        c = of_c[i] - attn__product_of(c, r2);
        s = of_s[i] - attn__product_of(s, r2);
    }
    s = s * r;
    if (k & 1) {
        t = c;
        c = -s;
        s = t;
    }
    *cosine = k & 2 ? -c : c;
    *sine = k & 2 ? -s : s;
}

/* a: cosines, sines, factors */
ATTN__NOINLINE static void attn__make_tables(const attn__array *a, attn__frequencies *f, int64_t rows, int64_t pairs)
{
    double w[ATTN__MAX_LANES], c, s;
    int64_t i, x, n, j;
    attn__set_frequencies(f);
    for (x = 0; x < pairs; x += n) {
        n = attn__min(pairs - x, ATTN__MAX_LANES);
        for (j = 0; j < n; j++) {
            w[j] = attn__frequency(f, x + j);
            if (a[2].rank) w[j] = w[j] / (double)*attn__at(&a[2], 0, 0, 0, x + j);
        }
        for (i = 0; i < rows; i++)
            for (j = 0; j < n; j++) {
                attn__cosine_and_sine(attn__product_of((double)(f->d.first_position + i), w[j]), &c, &s);
                *attn__at(&a[0], 0, 0, i, x + j) = (float)(c * f->d.attention_factor);
                *attn__at(&a[1], 0, 0, i, x + j) = (float)(s * f->d.attention_factor);
            }
    }
}

#ifdef ATTN_CUDA
/* On a device: it gets the frequencies, some at a time, and finds the angles. */
static attn_status attn__launch_tables(const attn__array *a, attn__frequencies *f, const int64_t *size, attn_error *err)
{
    double w[ATTN__MAX_LANES];
    attn__array part[3];
    int64_t x, j, some[2];
    attn_status st = ATTN_OK;
    attn__set_frequencies(f);
    some[0] = size[0];
    for (x = 0; st == ATTN_OK && x < size[1]; x += some[1]) {
        some[1] = attn__min(size[1] - x, ATTN__MAX_LANES);
        for (j = 0; j < 3; j++) {
            part[j] = a[j];
            part[j].data = (void *)(uintptr_t)attn__place_of(&a[j], 0, 0, 0, x);
        }
        for (j = 0; j < some[1]; j++) w[j] = attn__frequency(f, x + j);
        st = attn__cuda_rope_table(part, w, some, f->d.first_position, f->d.attention_factor, err);
    }
    return st;
}
#endif

/* The numbers of a descriptor, and their defaults. By their bits, which for positive numbers have the same order. */
static attn_status attn__check_frequencies(attn_rope_desc *d, attn_error *err)
{
    static const struct { uint16_t at; uint8_t kinds; double least, otherwise; const char *name, *rule; } numbers[] = {
#define ATTN__N(f, kinds, least, otherwise, range) \
        {(uint16_t)offsetof(attn_rope_desc, f), kinds, least, otherwise, #f, "must be " range " to 1e18"}
        ATTN__N(base, 63, 1.0000000000000002, 10000.0, "above 1,"), ATTN__N(factor, 30, 1.0, 0.0, "within 1"),
        ATTN__N(low_freq_factor, 16, 1e-18, 1.0, "within 1e-18"),
        ATTN__N(high_freq_factor, 16, 1e-18, 4.0, "within 1e-18"),
        ATTN__N(beta_fast, 8, 1e-18, 32.0, "within 1e-18"), ATTN__N(beta_slow, 8, 1e-18, 1.0, "within 1e-18"),
        ATTN__N(attention_factor, 40, 1e-18, -1.0, "within 1e-18")};    /* -1: from factor, later */
#undef ATTN__N
    const int in_context = d->scaling == ATTN_ROPE_YARN || d->scaling == ATTN_ROPE_LLAMA3;
    const double most = 1e18;
    uint64_t bits, low, high;
    size_t i;
    ATTN__RULE(d->scaling >= 0 && d->scaling < ATTN_ROPE_SCALING_COUNT, OPTION, "scaling",
               "must be one of attn_rope_scaling");
    ATTN__COPY(&high, &most, sizeof high);
    ATTN__RULE(!d->factors.rank || d->scaling == ATTN_ROPE_PLAIN, OPTION, "factors",
               "count for ATTN_ROPE_PLAIN only");
    for (i = 0; i < sizeof numbers / sizeof *numbers; i++) {    /* kinds: a bit for each scaling, then factors */
        const int counts = numbers[i].kinds >> (d->factors.rank ? (int)ATTN_ROPE_SCALING_COUNT : d->scaling) & 1;
        char *at = (char *)d + numbers[i].at;
        ATTN__COPY(&bits, at, sizeof bits);
        ATTN__COPY(&low, &numbers[i].least, sizeof low);
        ATTN__RULE_OF(counts || bits << 1 == 0, OPTION, numbers[i].name, "does not count for this scaling");
        if (!counts) continue;
        if (bits << 1 == 0 && i != 1) ATTN__COPY(at, &numbers[i].otherwise, sizeof bits);
        else ATTN__RULE_OF(bits >= low && bits <= high, RANGE, numbers[i].name, numbers[i].rule);
    }
    ATTN__RULE(d->scaling != ATTN_ROPE_LLAMA3 || d->high_freq_factor > d->low_freq_factor, RANGE, "high_freq_factor",
               "must be above low_freq_factor");
    ATTN__RULE(d->beta_fast >= d->beta_slow, RANGE, "beta_slow", "must be at most beta_fast");
    ATTN__RULE(attn__is_flag(d->no_truncation), OPTION, "no_truncation", "must be 0 or 1");
    ATTN__RULE(!d->no_truncation || d->scaling == ATTN_ROPE_YARN, OPTION, "no_truncation",
               "counts for ATTN_ROPE_YARN only");
    ATTN__RULE(in_context || !d->original_positions, OPTION, "original_positions", "does not count for this scaling");
    ATTN__RULE(!in_context || (d->original_positions > 0 && d->original_positions <= (int64_t)1 << 48), RANGE,
               "original_positions", "must be within 1..2^48");
    return ATTN_OK;
}

ATTN_DEF attn_status attn_rope_table(attn_out cosines, attn_out sines, const attn_rope_desc *desc, attn_error *err)
{
    static const attn__field fields[3] = {
        ATTN__ARGUMENT(cosines, 0, "..TR", "[positions,R/2]", SINGLES, ATTN__NEEDED | ATTN__RESULT, 0),
        ATTN__ARGUMENT(sines, 1, "..TR", "[positions,R/2]", SINGLES, ATTN__NEEDED | ATTN__RESULT, 0),
        ATTN__ARGUMENT(factors, 2, "...R", "[R/2]", SINGLES, 0, 0)};
    attn_view v[3] = {attn_view_of(cosines), attn_view_of(sines)};
    const int64_t last = (int64_t)1 << 24;
    attn__frequencies f;
    attn__array a[3];
    int64_t n;
    ATTN__CUDA_ONLY(attn_status st;
                    int on_device;)
    attn__zero(&f, sizeof f);
    ATTN__KNOWN(attn_rope_desc, desc, &f.d, first_position);
    if (desc && desc != &f.d) f.d = *desc;
    v[2] = f.d.factors;
    ATTN__TRY(attn__check_frequencies(&f.d, err));
    ATTN__TRY(attn__check_arrays(v, fields, 3, a, ATTN__CUDA_ONLY(&on_device,) err));
    for (n = 0; a[2].rank && ATTN__CUDA_ONLY(!on_device &&)
         n < cosines.size[1]; n++) {                            /* by their bits: no NaN, and no angle above 2^26 */
        const uint32_t bits = attn__bits(*attn__at(&a[2], 0, 0, 0, n));
        ATTN__RULE(bits >= 0x3e800000u && bits <= 0x7f800000u, RANGE, "factors", "must hold 0.25 or more, no NaN");
    }
    ATTN__RULE(f.d.first_position >= 0 && f.d.first_position <= last, RANGE, "first_position",
               "must be within 0..2^24");
    ATTN__RULE2(cosines.size[0] - 1 <= last - f.d.first_position, RANGE, "cosines.size[0]",
                "must end at position 2^24: at most", cosines.size[0], last - f.d.first_position + 1);
    f.size = 2 * cosines.size[1];
    ATTN__CUDA_ONLY(if (on_device && attn__elements(v)) {
        ATTN__IN_FP_STATE(st = attn__launch_tables(a, &f, cosines.size, err));
        return st;
    })
    if (attn__elements(v)) ATTN__IN_FP_STATE(attn__make_tables(a, &f, cosines.size[0], cosines.size[1]));
    return attn__success(err);
}

ATTN_DEF attn_status attn_alibi_slopes(attn_out slopes, attn_error *err)
{
    static const attn__field field = ATTN__ARGUMENT(slopes, 0, ".H..", "[H]", FLOATS, ATTN__NEEDED | ATTN__RESULT, 0);
    const attn_view v = attn_view_of(slopes);
    attn__array a;
    int64_t h, p = 1;
    ATTN__TRY(attn__check_arrays(&v, &field, 1, &a, ATTN__CUDA_ONLY(NULL,) err));
    while (p <= slopes.size[0] / 2) p *= 2;
    ATTN__IN_FP_STATE(for (h = 0; h < slopes.size[0]; h++)
        attn__write(&a, 0, h, 0, 0, (float)(h < p ? attn__root(256.0, h + 1, p)
                                                  : attn__root(256.0, 2*(h - p) + 1, 2*p))));
    return attn__success(err);
}

/* ----------------------------------------------------------------------------------------------------- >>heatmap */
#ifndef ATTN_NO_HEATMAP
/* attn__pic_open checks everything and finds the range of the colours, attn__pic_layout says where things stand (for
   SVG and PPM, in whole pixels), and attn__pic_svg, _ppm or _ansi walks over panels and cells. All bytes leave through
   attn__pic_flush. Rows and columns are counted through all panels. (ATTN__NOINLINE: called from many places.) */
enum {
    ATTN__PIC_POINTS = 7,           /* control points of a colour map */
    ATTN__PIC_NAN    = 0xFF00FF,
    ATTN__PIC_MASKED = 0x1000000,   /* no colour: hatched */
    ATTN__PIC_HATCH  = 6,           /* pixels from one stroke of it to the next */
    ATTN__PIC_STROKE = 0x999999,
    ATTN__PIC_LABEL  = 32,          /* columns of a label; a longer one is cut */
    ATTN__PIC_STAIRS = 48,          /* most column labels on lines of their own in a terminal */
    ATTN__PIC_CELLS  = 65536,       /* most rows, and columns, of all panels together */
    ATTN__PIC_PIXELS = 32767,       /* largest width and height */
    ATTN__PIC_TITLES = 4096,        /* most cells with a title */
    ATTN__PIC_CHAR   = 7,           /* width of a character of the 12 pixel font, generously */
    ATTN__PIC_PAD    = 12,          /* empty margin */
    ATTN__PIC_BAR    = 14           /* width of the colour bar */
};

/* One direction of a picture, in pixels; on a terminal in columns. */
typedef struct attn__pic_axis {
    const char *const *ticks;       /* NULL: numbers */
    int64_t panels, cells, all;     /* panels, cells of a panel and of all panels together */
    int64_t label_len, step;        /* columns of the longest label; there is one at every step-th cell */
    int64_t wish, least, total;     /* size of the picture as given, for the titles, as it is */
    int64_t before, gap, after;     /* before, between and after the panels */
    int64_t extent, pitch, grid;    /* of a panel, from one to the next, of all */
} attn__pic_axis;

typedef struct attn__pic {
    attn__text out;                 /* the first, so that attn__pic_flush finds the rest */
    const attn_heatmap *map;
    attn__array values;             /* [panel rows, panel columns, rows, columns]; or instead */
    attn__call mask;                /* of mask_of */
    attn__array kept;               /* map.mask: 0 where a cell is hatched; no data: nowhere */
    attn__fp_state caller;
    attn_writer to;
    attn__pic_axis y, x;
    int      svg, plain;            /* an SVG file; a terminal without colours */
    int      failed, has_nan, has_masked, turned;   /* the writer reported a failure; column labels are slanted */
    int      tick_e10, number_e10;  /* powers of ten of the ticks of the colour bar and of numbers in cells */
    int64_t  tick_first, tick_last, tick_unit;      /* ticks at k*tick_unit*10^tick_e10, first <= k <= last */
    int64_t  title_len, number_len; /* columns of the longest panel title, of the longest number in a cell, 0 = none */
    int64_t  column;                /* terminal: of the next character in its line */
    int64_t  names, below;          /* pixels: words along the columns, what NaN and masked cells look like */
    double   low, high;             /* range of the colours, low < high */
    char     number[32], bytes[512];                /* the latest number as text; what is not written yet */
} attn__pic;

typedef void attn__pic_draw(attn__pic *p);

static attn__pic_axis *attn__pic_axis_of(attn__pic *p, int i) { return i % 2 ? &p->x : &p->y; }

static double attn__pic_pow10(int e)
{
    return e < 0 ? 1 / attn__pic_pow10(-e) : e > 0 ? 10 * attn__pic_pow10(e - 1) : 1;
}

/* The power of ten of the first digit of x > 0. */
static int attn__pic_exponent(double x)
{
    int e = 0;
    for (x *= 1 + 1e-9; x >= 10; e++) x /= 10;      /* 0.01 times 10 and 10 may be a hair less than 1 */
    for (; x < 1; e--) x *= 10;
    return e;
}

static int64_t attn__pic_floor(double x) { return (int64_t)x - ((double)(int64_t)x > x); }

/* mantissa * 10^e10 in p->number. */
ATTN__NOINLINE static const char *attn__pic_decimal(attn__pic *p, int64_t mantissa, int e10)
{
    attn__text text = attn__text_into(p->number, sizeof p->number);
    attn__put_decimal(&text, mantissa, e10);
    attn__end_text(&text);
    return p->number;
}

/* ---- text: UTF-8 in, UTF-8 out */
static void attn__pic_flush(attn__text *out)
{
    attn__pic *p = (attn__pic *)out;
    if (out->length != 0 && !p->failed) {
        attn__fp_leave(p->caller);                  /* the writer is the caller's code */
        p->failed = p->to.write(p->to.user, out->at, out->length) != 0;
        p->caller = attn__fp_enter();
    }
    out->length = 0;
}

static void attn__pic_puts(attn__pic *p, const char *s) { attn__put(&p->out, s); }

/* How many columns the code points from `first` to before `end` take: combining marks none, East Asian letters and
   emoji two, what is in no range one; -1: control characters, of the writing direction too, and what is none. */
static const struct { uint32_t first, end; int columns; } attn__pic_ranges[] = {
    {0, 0x20, -1}, {0x7F, 0xA0, -1}, {0x300, 0x370, 0}, {0x61C, 0x61D, -1}, {0x1100, 0x1160, 2}, {0x200B, 0x200E, 0},
    {0x200E, 0x2010, -1}, {0x202A, 0x202F, -1}, {0x2066, 0x206A, -1}, {0x2E80, 0xA4D0, 2}, {0xAC00, 0xD7A4, 2},
    {0xD800, 0xE000, -1}, {0xF900, 0xFB00, 2}, {0xFE00, 0xFE10, 0}, {0xFF00, 0xFF61, 2}, {0x1F300, 0x1FB00, 2},
    {0x20000, 0x40000, 2}, {0x110000, 0xFFFFFFFF, -1}
};

static int attn__pic_columns(uint32_t c)
{
    int i = 0;
    while (c >= attn__pic_ranges[i].end) i++;
    return c < attn__pic_ranges[i].first ? 1 : attn__pic_ranges[i].columns;
}

/* The next code point, made harmless: what is not UTF-8, or has no place in a picture, becomes U+FFFD; 0 at the end. */
static uint32_t attn__pic_next(const char **text)
{
    static const uint32_t least[4] = {0, 0x80, 0x800, 0x10000};         /* with so many bytes more */
    const unsigned char *s = (const unsigned char *)*text;
    uint32_t c = s[0];
    const int more = c < 0x80 ? 0 : c < 0xC2 ? -1 : c < 0xE0 ? 1 : c < 0xF0 ? 2 : c < 0xF5 ? 3 : -1;
    int i = 1;
    if (c == 0) return 0;
    if (more > 0) c &= 0x3Fu >> more;
    while (i <= more && (s[i] & 0xC0) == 0x80) c = c << 6 | (s[i++] & 0x3Fu);
    *text += i;
    if (i <= more || more < 0 || c < least[more]) return 0xFFFD;
    if (c == '\t' || c == '\n' || c == '\r') return ' ';
    return (c & 0xFFFE) == 0xFFFE || attn__pic_columns(c) < 0 ? 0xFFFD : c;
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
static int64_t attn__pic_cut(const char *label) { return attn__min(attn__pic_length(label), ATTN__PIC_LABEL); }

static void attn__pic_code(attn__pic *p, uint32_t c)
{
    int shift = c < 0x80 ? 0 : c < 0x800 ? 6 : c < 0x10000 ? 12 : 18;
    p->column = c == '\n' ? 0 : p->column + attn__pic_columns(c);
    if (p->svg && (c == '&' || c == '<' || c == '>' || c == '"' || c == '\'')) {
        ATTN__FORMAT(&p->out, "&#%;", c);
        return;
    }
    attn__put_byte(&p->out, (shift ? 0xFF80u >> shift / 6 : 0) | c >> shift);
    while (shift > 0) attn__put_byte(&p->out, 0x80 | (c >> (shift -= 6) & 0x3F));
}

ATTN__NOINLINE static void attn__pic_spaces(attn__pic *p, int64_t column)
{
    while (p->column < column) attn__pic_code(p, ' ');
}

/* Puts at most `most` columns of s, exactly so many with an ellipsis at the end where something is cut off. */
static void attn__pic_text(attn__pic *p, const char *s, int64_t most)
{
    const int64_t all = attn__pic_length(s), end = p->column + (all > most ? most - 1 : all);
    uint32_t c;
    if (most < 1) return;
    while ((c = attn__pic_next(&s)) != 0 && p->column + attn__pic_columns(c) <= end) attn__pic_code(p, c);
    if (all <= most) return;
    attn__pic_spaces(p, end);                       /* half a wide letter has no place */
    attn__pic_code(p, p->plain ? '~' : 0x2026);
}

/* ---- values and colours */
typedef struct attn__cell { float value; int masked; } attn__cell;
static attn__cell attn__pic_cell(const attn__pic *p, int64_t row, int64_t column)
{
    const int64_t b = row / p->y.cells, h = column / p->x.cells, i = row % p->y.cells, j = column % p->x.cells;
    attn__cell cell;
    cell.masked = p->kept.data && !attn__byte_at(&p->kept, b, h, i, j);
    if (p->map->mask_of) cell.value = (float)attn__mask_at(&p->mask, attn__row_of(&p->mask, b, i), b, h, i, j);
    else if (p->values.type == ATTN_U8) cell.value = (float)attn__byte_at(&p->values, b, h, i, j);
    else cell.value = attn__read(&p->values, b, h, i, j);
    return cell;
}

/* Piecewise linear through equally spaced points, fitted to the maps of these names; those of the last have the
   lightness .38, .55, .77 and .97 of OKLab on both sides, at the hues 256 and 28 degrees. */
static const uint32_t attn__pic_maps[ATTN_COLORMAP_COUNT][ATTN__PIC_POINTS] = {
    { 0xFFF5F0, 0xFDD6C4, 0xFB9F80, 0xFD6A49, 0xE52B25, 0xB41017, 0x67000D },
    { 0x440154, 0x463B87, 0x31688F, 0x1D908D, 0x2EB87E, 0x8ED83C, 0xFDE725 },
    { 0xFFFFFF, 0xD5D5D5, 0xAAAAAA, 0x808080, 0x555555, 0x2B2B2B, 0x000000 },
    { 0x004085, 0x2D71C7, 0x91B7EA, 0xF5F5F5, 0xE5A096, 0xB9473D, 0x791A16 }
};

/* Where a cell lies in the range: 0..1, infinities at the ends; -1 for NaN, -2 where it is masked. */
ATTN__NOINLINE static double attn__pic_place(const attn__pic *p, attn__cell cell)
{
    const double x = (double)cell.value;
    if (cell.masked) return -2;
    if (attn__is_nan(cell.value)) return -1;
    return x >= p->high ? 1 : x > p->low ? (x - p->low) / (p->high - p->low) : 0;
}

/* The colour 0xrrggbb of such a place. */
static uint32_t attn__pic_colour(const attn__pic *p, double place)
{
    const double x = place * (ATTN__PIC_POINTS - 1);
    const int i = (int)attn__max(0, attn__min((int64_t)x, ATTN__PIC_POINTS - 2));
    const uint32_t *points = attn__pic_maps[p->map->colormap] + i;
    uint32_t rgb = 0;
    int shift;
    if (place < 0) return place < -1 ? ATTN__PIC_MASKED : ATTN__PIC_NAN;
    for (shift = 16; shift >= 0; shift -= 8) {
        const int a = points[0] >> shift & 255, b = points[1] >> shift & 255;
        rgb |= (uint32_t)(a + (x - i) * (b - a) + 0.5) << shift;
    }
    return rgb;
}

static uint32_t attn__pic_cell_colour(const attn__pic *p, int64_t row, int64_t column)
{
    return attn__pic_colour(p, attn__pic_place(p, attn__pic_cell(p, row, column)));
}

/* Is white read better on the colour than black? */
static int attn__pic_is_dark(uint32_t rgb)
{
    return (rgb >> 16) * 299 + (rgb >> 8 & 255) * 587 + (rgb & 255) * 114 <= 140000;
}

/* A value as text, rounded to a multiple of 10^e. */
static const char *attn__pic_rounded(attn__pic *p, float value, int e)
{
    double x = (double)value / attn__pic_pow10(e);
    if (attn__is_nan(value)) return "NaN";
    if (attn__is_inf(value)) return value > 0 ? "inf" : "-inf";
    for (; x > 1e7 || x < -1e7; e++) x /= 10;
    return attn__pic_decimal(p, attn__pic_floor(x + 0.5), e);
}

/* As exact as the range of the colours asks for. */
static const char *attn__pic_number(attn__pic *p, float value) { return attn__pic_rounded(p, value, p->number_e10); }

/* ---- checks, range, labels */
#define ATTN__CELLS(member, takes) ATTN__ROW(attn_heatmap, member, "bhQS", \
    "[rows,cols], [panel cols,rows,cols] or [panel rows,panel cols,rows,cols]", takes, ATTN__OPERAND, 0)
static const attn__field attn__pic_floats = ATTN__CELLS(values, FLOATS);
static const attn__field attn__pic_bytes[2] = {ATTN__CELLS(values, BYTES), ATTN__CELLS(mask, BYTES)};
#undef ATTN__CELLS

/* Values and mask as [panel rows, panel columns, rows, columns]; missing axes have size 1. */
static attn_status attn__pic_check_cells(attn__pic *p, attn_error *err)
{
    const int mask_of = p->map->mask_of != NULL, u8 = mask_of || p->map->values.type == ATTN_U8;
    const attn__field *field = u8 ? attn__pic_bytes : &attn__pic_floats, *kept = &attn__pic_bytes[1];
    attn_view v = p->map->values, mask = p->map->mask;
    attn__span span;
    int i, axis[4];
    ATTN__RULE(v.rank, NULL, "values", "must be given");
    ATTN__RULE(!mask_of || v.rank == 4, RANK, "values.rank", "must be 4 with mask_of");
    if (!u8 && v.type != ATTN_F32 && v.type != ATTN_F16 && v.type != ATTN_BF16)
        return attn__fail_type(err, "values.type", "must be ATTN_F32, ATTN_F16, ATTN_BF16 or ATTN_U8", v.type);
    ATTN__TRY(attn__check_view(&v, field, mask_of ? 0 : ATTN__WITH_DATA, axis, &span, err));
    ATTN__RULE(!mask_of || !v.data, OPTION, "values.data", "must be NULL with mask_of");
    attn__set_array(&v, field->shape, span.first == span.end, &p->values);
    for (i = 0; i < 4; i++) {
        const int64_t all = attn__max(v.size[i], attn__mul64(v.size[i], i ? v.size[i == 3] : 1));
        attn__pic_axis *a = attn__pic_axis_of(p, i);
        ATTN__RULE2_OF(all <= ATTN__PIC_CELLS, RANGE, attn__size_name(field, axis[i]),
                       "must be, times the number of panels, at most", all, ATTN__PIC_CELLS);
        *(i < 2 ? &a->panels : &a->cells) = v.size[i];
        a->all = a->panels * a->cells;
    }
    if (!mask.rank && !mask.data) return ATTN_OK;
    ATTN__RULE(!mask_of, OPTION, "mask", "must be absent with mask_of");
    ATTN__RULE(mask.rank == p->map->values.rank, RANK, "mask.rank", "must equal values.rank");
    ATTN__TRY(attn__check_view(&mask, kept, ATTN__WITH_DATA, axis, &span, err));
    for (i = 0; i < 4; i++)
        ATTN__RULE2_OF(mask.size[i] == v.size[i], SIZE, attn__size_name(kept, axis[i]), "must equal that of values",
                       mask.size[i], v.size[i]);
    attn__set_array(&mask, kept->shape, span.first == span.end, &p->kept);
    return ATTN_OK;
}

static attn_status attn__pic_check(attn__pic *p, attn_error *err)
{
    const attn_heatmap *m = p->map;
    int flags = ATTN__WITH_DATA | ATTN__ON_HOST;
    ATTN__RULE(m, NULL, "map", "must not be NULL");
    ATTN__RULE(p->to.write, NULL, "writer.write", "must not be NULL");
    ATTN__CUDA_ONLY(ATTN__TRY(attn__find_place(attn__in_structure(m, attn__pic_bytes, 2),
                                               attn__in_structure(m->mask_of, &attn__fields[ATTN__F_bias],
                                                                  ATTN__F_COUNT - ATTN__F_bias),
                                               NULL, &flags, err));)
    ATTN__TRY(attn__pic_check_cells(p, err));
    ATTN__RULE((uint32_t)m->colormap < ATTN_COLORMAP_COUNT, OPTION, "colormap", "must be one of attn_colormap");
    ATTN__RULE((uint32_t)m->terminal < ATTN_TERMINAL_COUNT, OPTION, "terminal", "must be one of attn_terminal");
#define ATTN__FLAG_RULE(f) ATTN__RULE(attn__is_flag(m->f), OPTION, #f, "must be 0 or 1");
    ATTN__FLAG_RULE(range_set) ATTN__FLAG_RULE(ticks_on_top) ATTN__FLAG_RULE(no_colorbar) ATTN__FLAG_RULE(numbers)
    ATTN__FLAG_RULE(cell_titles)
#undef ATTN__FLAG_RULE
    ATTN__RULE(!m->range_set || attn__is_number(m->range_min), RANGE, "range_min", "must be finite");
    ATTN__RULE(!m->range_set || attn__is_number(m->range_max), RANGE, "range_max", "must be finite");
    ATTN__RULE(!m->range_set || m->range_min < m->range_max, RANGE, "range_max", "must be above range_min");
    if (!m->mask_of) return ATTN_OK;
    return attn__mask_check(m, attn__pic_bytes, m->mask_of, flags, &p->mask, err);
}

/* The range over the finite values that are not masked. One value alone is seen against 0, so that all ones look full
   and all zeros empty; a mask runs from 0 to 1. Around the middle of a diverging map both sides are equally long. */
static void attn__pic_range(attn__pic *p)
{
    const attn_heatmap *m = p->map;
    double low = 1e39, high = -1e39;                /* beyond all floats */
    int64_t i, j;
    for (i = 0; i < p->y.all && !m->mask_of; i++)
        for (j = 0; j < p->x.all; j++) {
            const attn__cell cell = attn__pic_cell(p, i, j);
            const double x = (double)cell.value;
            p->has_masked |= cell.masked;
            p->has_nan |= !cell.masked && attn__is_nan(cell.value);
            if (cell.masked || !attn__is_number(cell.value)) continue;
            low = x < low ? x : low;
            high = x > high ? x : high;
        }
    if (low > high) low = high = 0;
    if (low == high && low > 0) low = 0;
    else if (low == high) high = low < 0 ? 0 : 1;
    if (m->colormap == ATTN_COLORMAP_DIVERGING) low = -(high = high > -low ? high : -low);
    p->low = m->range_set ? (double)m->range_min : low;
    p->high = m->range_set ? (double)m->range_max : high;
}

/* Three to six ticks of the colour bar: the finest of 1, 2, 2.5, 5 times a power of ten that gives no more. */
static void attn__pic_choose_ticks(attn__pic *p)
{
    static const int units[4] = { 10, 20, 25, 50 };
    double step;
    int k = 0, unit, e;
    do {
        e = attn__pic_exponent(p->high - p->low) - 3 + k / 4;
        unit = units[k++ % 4];
        step = unit * attn__pic_pow10(e);
        p->tick_first = -attn__pic_floor(1e-3 - p->low / step);
        p->tick_last = attn__pic_floor(1e-3 + p->high / step);
    } while (p->tick_last - p->tick_first >= 6);
    p->tick_unit = unit == 25 ? 25 : unit / 10;
    p->tick_e10 = unit == 25 ? e : e + 1;
}

static const char *attn__pic_tick(attn__pic *p, int64_t k)
{
    return attn__pic_decimal(p, k * p->tick_unit, p->tick_e10);
}

static const char *attn__pic_word(const char *const *words, int64_t i) { return words && words[i] ? words[i] : ""; }
/* The label of row or column i of a panel. */
static const char *attn__pic_label(attn__pic *p, const attn__pic_axis *a, int64_t i)
{
    return a->ticks ? attn__pic_word(a->ticks, i) : attn__pic_decimal(p, i, 0);
}

/* The smallest of 1, 2, 5, 10, 20, ... cells that take at least `need` where `cells` of them take `extent`. */
ATTN__NOINLINE static int64_t attn__pic_step(int64_t need, int64_t extent, int64_t cells)
{
    int64_t step = 1;
    int k;
    for (k = 0; step < cells && step * extent < need * cells; k++) step = k % 3 == 1 ? step / 2 * 5 : step * 2;
    return step;
}

/* ---- pixels: SVG and PPM. Cell i of n covers the pixels from i*extent/n to (i+1)*extent/n, rounded down. */
/* Side of a cell where the caller gives neither width nor height. */
static int64_t attn__pic_cell_side(const attn__pic *p)
{
    const int64_t all = attn__max(p->y.all, p->x.all), longest = attn__max(p->y.cells, p->x.cells);
    int64_t side = all ? attn__max(640 / all, 120 / longest) : 1;
    side = attn__max(1, attn__min(side, 28));
    if (!p->svg) return side;
    if ((p->x.ticks || p->y.ticks) && all < 128) side = attn__max(side, 16);
    return p->number_len ? attn__max(side, p->number_len * ATTN__PIC_CHAR + 6) : side;
}

/* Margins of an SVG before and after the panels, and gaps between them. Column labels that do not fit side by side are
   slanted if they are words and thinned out if they are numbers. */
static void attn__svg_margins(attn__pic *p, int64_t side)
{
    const attn_heatmap *m = p->map;
    const int64_t line = 20, width = p->x.label_len * ATTN__PIC_CHAR, title = m->panel_titles ? line : 0;
    const int64_t panel = p->x.wish && p->x.panels ? p->x.wish * 3 / 4 / p->x.panels : side * p->x.cells;
    int64_t slant, numbers = p->has_masked ? 6 * ATTN__PIC_CHAR + 6 : 0, k;         /* the word "masked" */
    p->turned = p->x.ticks && (width + 6) * p->x.cells > panel;
    slant = p->turned ? width * 5 / 7 : 0;
    p->names = (p->turned ? slant + 18 : line) + (m->x_label ? line : 0);
    for (k = p->tick_first; k <= p->tick_last; k++)
        numbers = attn__max(numbers, attn__pic_length(attn__pic_tick(p, k)) * ATTN__PIC_CHAR + 6);
    p->x.gap = 16;
    p->y.gap = p->x.gap + title;
    p->y.before = ATTN__PIC_PAD + (m->title ? line + line / 2 : 0) + (m->ticks_on_top ? p->names : title);
    p->y.after = ATTN__PIC_PAD + (m->ticks_on_top ? title : p->names);
    p->x.before = ATTN__PIC_PAD + (m->y_label ? line : 0) + p->y.label_len * ATTN__PIC_CHAR + 8;
    p->x.after = ATTN__PIC_PAD + (m->no_colorbar ? 0 : p->x.gap + ATTN__PIC_BAR + numbers);
    if (m->ticks_on_top) p->x.after = attn__max(p->x.after, slant);
    else p->x.before = attn__max(p->x.before, slant);
    p->y.least = attn__pic_length(m->y_label) * ATTN__PIC_CHAR + 2 * ATTN__PIC_PAD;
    p->below = 24 * (p->has_nan + p->has_masked);
    if (!m->no_colorbar) p->y.least = attn__max(p->y.least, p->y.before + 80 + p->below + ATTN__PIC_PAD);
    p->x.least = 2 * ATTN__PIC_PAD +
               attn__max(attn__pic_length(m->x_label) * ATTN__PIC_CHAR, attn__pic_length(m->title) * 10);
}

static attn_status attn__pic_layout(attn__pic *p, attn_error *err)
{
    static const char *const names[2] = {"height", "width"};
    const int64_t side = attn__pic_cell_side(p), cells = p->y.all * p->x.all;
    attn__pic_axis *a, *b;
    int i;
    p->y.gap = p->x.gap = 8;
    p->x.after = p->map->no_colorbar ? 0 : p->x.gap + ATTN__PIC_BAR;
    ATTN__RULE2(!p->svg || !p->map->cell_titles || cells <= ATTN__PIC_TITLES, RANGE, "cell_titles",
                "must be 0 where there are more cells than", cells, ATTN__PIC_TITLES);
    if (p->svg) attn__svg_margins(p, side);
    for (i = 0; i < 2; i++) {
        int64_t used;
        a = attn__pic_axis_of(p, i);
        used = a->before + a->after + attn__max(a->panels - 1, 0) * a->gap;
        ATTN__RULE2_OF(!a->wish || a->wish >= used + a->panels, RANGE, names[i],
                       "must leave room for labels and cells: be at least", a->wish, used + a->panels);
        ATTN__RULE2_OF(a->wish <= ATTN__PIC_PIXELS, RANGE, names[i], "must be at most", a->wish, ATTN__PIC_PIXELS);
        a->extent = a->wish && a->panels && a->cells ? (a->wish - used) / a->panels : a->cells * side;
    }
    for (i = 0; i < 2; i++) {
        a = attn__pic_axis_of(p, i);
        b = attn__pic_axis_of(p, i + 1);
        if (!a->wish && b->wish && b->cells)            /* one side given: cells stay square */
            a->extent = (b->extent * a->cells + b->cells - 1) / b->cells;
        a->pitch = a->extent + a->gap;
        if (i && p->svg && !a->wish) a->pitch = attn__max(a->pitch, p->title_len * ATTN__PIC_CHAR + 8);
        a->grid = a->panels ? (a->panels - 1) * a->pitch + a->extent : 0;
        a->total = attn__max(attn__max(1, a->before + a->grid + a->after), attn__min(a->least, ATTN__PIC_PIXELS));
        if (a->wish) a->total = a->wish;
        ATTN__RULE2_OF(a->total <= ATTN__PIC_PIXELS, RANGE, names[i], "as derived must be at most", a->total,
                       ATTN__PIC_PIXELS);
    }
    p->y.step = attn__pic_step(12, p->y.extent, p->y.cells);
    p->x.step = attn__pic_step(p->turned ? 16 : p->x.label_len * ATTN__PIC_CHAR + 6, p->x.extent, p->x.cells);
    return ATTN_OK;
}

/* Where cell i of a panel begins. */
ATTN__NOINLINE static int64_t attn__pic_edge(const attn__pic_axis *a, int64_t panel, int64_t i)
{
    return a->before + panel * a->pitch + (i ? i * a->extent / a->cells : 0);
}

#define ATTN__SVG_RECT(edge) "<rect x=\"%" edge "\" y=\"%" edge "\" width=\"%\" height=\"%\" fill="
#define ATTN__SVG_FRAME ATTN__SVG_RECT(".5") "\"none\" stroke=\"#999\"/>\n"
static void attn__svg_area(attn__pic *p, int64_t x, int64_t y, int64_t w, int64_t h, uint32_t rgb)
{
    ATTN__FORMAT(&p->out, ATTN__SVG_RECT(""), x, y, w, h);
    ATTN__FORMAT(&p->out, rgb == ATTN__PIC_MASKED ? "\"url(#attn-masked)\"/>\n" : "\"@\"/>\n", rgb);
}

/* At most `most` columns of s; `anchor`: which of its points stands at x, y; `angle`: it is turned by so much. */
ATTN__NOINLINE static void attn__svg_text(attn__pic *p, int64_t x, int64_t y, int angle, const char *anchor,
                                          const char *s, int64_t most)
{
    ATTN__FORMAT(&p->out, angle ? "<text transform=\"translate(% %) rotate(%)\" text-anchor=\"" :
                                  "<text x=\"%\" y=\"%\" text-anchor=\"", x, y, angle);
    attn__pic_puts(p, anchor);
    attn__pic_puts(p, "\">");
    attn__pic_text(p, s, most);
    attn__pic_puts(p, "</text>\n");
}

/* A title in the middle of the panels, moved or cut to stay in the picture. */
static void attn__svg_title(attn__pic *p, const attn__pic_axis *a, int64_t at, const char *s, int64_t per_column)
{
    const int64_t most = (a->total - 2 * ATTN__PIC_PAD) / per_column;
    const int64_t half = attn__min(attn__pic_length(s), most) * per_column / 2 + ATTN__PIC_PAD;
    const int64_t middle = attn__max(attn__min(a->before + a->grid / 2, a->total - half), half);
    if (!s) return;
    if (a == &p->y) attn__svg_text(p, at, middle, -90, "middle", s, most);
    else attn__svg_text(p, middle, at, 0, "middle", s, most);
}

/* What the pointer is told over a cell of a panel: its labels and its value, more exact than a number in the cell. */
static void attn__svg_cell_title(attn__pic *p, int64_t i, int64_t j, attn__cell cell)
{
    int a;
    for (a = 0; a < 2; a++) {
        attn__pic_puts(p, a ? ", " : "<g><title>");
        attn__pic_text(p, attn__pic_label(p, attn__pic_axis_of(p, a), a ? j : i), ATTN__HUGE);
    }
    attn__pic_puts(p, ": ");
    attn__pic_puts(p, cell.masked ? "masked" : attn__pic_rounded(p, cell.value, p->number_e10 - 3));
    attn__pic_puts(p, "</title>\n");
}

/* The cells of panel r, c. */
static void attn__svg_cells(attn__pic *p, int64_t r, int64_t c)
{
    const attn__pic_axis *y = &p->y, *x = &p->x;
    const int64_t row = r * y->cells, column = c * x->cells, len = p->number_len * ATTN__PIC_CHAR;
    const int gap = y->extent >= 12 * y->cells && x->extent >= 12 * x->cells;       /* small maps: a white grid */
    const int titles = p->map->cell_titles, merged = !gap && !len && !titles;
    int64_t i, j, next, left, w, top, h;
    ATTN__FORMAT(&p->out, "<g shape-rendering=\"crispEdges\" text-anchor=\"middle\" font-size=\"%\">\n",
                 len ? attn__max(1, attn__min(12, (x->extent / x->cells - 2) * 12 / len)) : 12);
    for (i = 0; i < y->cells && !p->failed; i++) {
        top = attn__pic_edge(y, r, i);
        h = attn__pic_edge(y, r, i + 1) - top;
        for (j = 0; j < x->cells && h > 0; j = next) {
            const attn__cell cell = attn__pic_cell(p, row + i, column + j);
            const uint32_t rgb = attn__pic_colour(p, attn__pic_place(p, cell));
            next = j + 1;           /* in large maps equal neighbours are one rectangle */
            while (merged && next < x->cells && attn__pic_cell_colour(p, row + i, column + next) == rgb) next++;
            left = attn__pic_edge(x, c, j);
            w = attn__pic_edge(x, c, next) - left;
            if (w == 0) continue;
            if (titles) attn__svg_cell_title(p, i, j, cell);
            attn__svg_area(p, left, top, w - gap, h - gap, rgb);
            if (len && !cell.masked) {
                ATTN__FORMAT(&p->out, "<text x=\"%\" y=\"%\" fill=\"@\">", left + w / 2, top + h / 2 + 4,
                             attn__pic_is_dark(rgb) ? 0xFFFFFF : 0);
                attn__pic_puts(p, attn__pic_number(p, cell.value));
                attn__pic_puts(p, "</text>\n");
            }
            if (titles) attn__pic_puts(p, "</g>\n");
        }
    }
    ATTN__FORMAT(&p->out, "</g>\n" ATTN__SVG_FRAME, attn__pic_edge(x, c, 0) - 1, attn__pic_edge(y, r, 0) - 1,
                 x->extent - gap + 1, y->extent - gap + 1);
}

/* Labels of the rows left of the panels, or of the columns below or above them. */
static void attn__svg_labels(attn__pic *p, const attn__pic_axis *a, int64_t panel)
{
    const int top = p->map->ticks_on_top;
    const int of_rows = a == &p->y, angle = !of_rows && p->turned ? -45 : 0;
    const int64_t base = of_rows ? p->x.before - 8 : top ? p->y.before - 7 : p->y.before + p->y.grid + 15;
    const char *anchor = angle && top ? "start" : of_rows || angle ? "end" : "middle";
    int64_t i, at;
    for (i = 0; i < a->cells; i += a->step) {
        at = (attn__pic_edge(a, panel, i) + attn__pic_edge(a, panel, i + 1)) / 2 + (of_rows || angle ? 4 : 0);
        attn__svg_text(p, of_rows ? base : at, of_rows ? at : base, angle, anchor, attn__pic_label(p, a, i),
                       ATTN__PIC_LABEL);
    }
}

static void attn__svg_bar(attn__pic *p)
{
    const attn__pic_axis *a = &p->y, *b = &p->x;
    const int64_t x = b->before + b->grid + b->gap, end = x + ATTN__PIC_BAR, y = a->before, map = p->map->colormap;
    const int64_t room = attn__min(attn__max(a->grid - p->below, 80), a->total - y - p->below - ATTN__PIC_PAD);
    const int64_t h = attn__max(room, 1);           /* also where the panels are low; the colour of NaN stands below */
    const int64_t step = attn__pic_step(14, h, p->tick_last - p->tick_first + 1);
    const double unit = (double)p->tick_unit * attn__pic_pow10(p->tick_e10);
    int64_t k, at;
    ATTN__FORMAT(&p->out, "<linearGradient id=\"attn-colormap-%\" x1=\"0\" y1=\"1\" x2=\"0\" y2=\"0\">\n", map);
    for (k = 0; k < ATTN__PIC_POINTS; k++)
        ATTN__FORMAT(&p->out, "<stop offset=\"%e-2\" stop-color=\"@\"/>\n", (k * 100 + 3) / (ATTN__PIC_POINTS - 1),
                     attn__pic_colour(p, (double)k / (ATTN__PIC_POINTS - 1)));
    ATTN__FORMAT(&p->out, "</linearGradient>\n" ATTN__SVG_RECT("") "\"url(#attn-colormap-%)\"/>\n" ATTN__SVG_FRAME,
                 x, y, ATTN__PIC_BAR, h, map, x - 1, y - 1, ATTN__PIC_BAR + 1, h + 1);
    for (k = p->tick_first; k <= p->tick_last; k += step) {
        at = y + (int64_t)((double)h * (p->high - (double)k * unit) / (p->high - p->low) + 0.5);
        ATTN__FORMAT(&p->out, "<path d=\"M% %.5h4\" stroke=\"#999\"/>\n", end, at - 1);
        attn__svg_text(p, end + 6, at + 4, 0, "start", attn__pic_tick(p, k), ATTN__PIC_LABEL);
    }
    for (k = !p->has_nan, at = y + h + 10; k <= p->has_masked; k++, at += 24) {
        attn__svg_area(p, x, at, ATTN__PIC_BAR, ATTN__PIC_BAR, k ? ATTN__PIC_MASKED : ATTN__PIC_NAN);
        attn__svg_text(p, end + 6, at + 11, 0, "start", k ? "masked" : "NaN", ATTN__PIC_LABEL);
    }
}

static void attn__pic_svg(attn__pic *p)
{
    const attn_heatmap *m = p->map;
    const int top = m->ticks_on_top;
    int64_t r, c;
    ATTN__FORMAT(&p->out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%\" height=\"%\" viewBox=\"0 0 % %\" "
                 "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\" fill=\"#222\" role=\"img\" "
                 "aria-label=\"", p->x.total, p->y.total, p->x.total, p->y.total);
    attn__pic_text(p, m->title ? m->title : "Heatmap", ATTN__HUGE);
    ATTN__FORMAT(&p->out, "\">\n<rect width=\"%\" height=\"%\" fill=\"#fff\"/>\n", p->x.total, p->y.total);
    if (p->has_masked)
        ATTN__FORMAT(&p->out, "<pattern id=\"attn-masked\" width=\"%\" height=\"%\" patternUnits=\"userSpaceOnUse\">"
                     "<path d=\"M-1 1L1-1M-1 7L7-1M5 7L7 5\" stroke=\"@\"/></pattern>\n",
                     ATTN__PIC_HATCH, ATTN__PIC_HATCH, ATTN__PIC_STROKE);
    if (m->title) {
        attn__pic_puts(p, "<g font-size=\"16\">\n");
        attn__svg_title(p, &p->x, ATTN__PIC_PAD + 14, m->title, 10);
        attn__pic_puts(p, "</g>\n");
    }
    attn__svg_title(p, &p->x, p->y.before + (top ? 8 - p->names : p->y.grid + p->names - 2), m->x_label,
                    ATTN__PIC_CHAR);
    attn__svg_title(p, &p->y, ATTN__PIC_PAD + 10, m->y_label, ATTN__PIC_CHAR);
    for (r = 0; r < p->y.panels; r++) for (c = 0; c < p->x.panels; c++) {
        attn__svg_cells(p, r, c);
        if (c == 0) attn__svg_labels(p, &p->y, r);
        if (r == (top ? 0 : p->y.panels - 1)) attn__svg_labels(p, &p->x, c);
        if (m->panel_titles)
            attn__svg_text(p, attn__pic_edge(&p->x, c, 0) + p->x.extent / 2,
                           attn__pic_edge(&p->y, r, 0) + (top ? p->y.extent + 16 : -7), 0, "middle",
                           attn__pic_word(m->panel_titles, r * p->x.panels + c), (p->x.pitch - 4) / ATTN__PIC_CHAR);
    }
    if (!m->no_colorbar) attn__svg_bar(p);
    attn__pic_puts(p, "</svg>\n");
}

/* The row or column that a pixel is in, -1 beside the panels. */
static int64_t attn__ppm_find(const attn__pic_axis *a, int64_t pixel)
{
    const int64_t panel = pixel / a->pitch, in = pixel % a->pitch;
    return panel < a->panels && in < a->extent ? panel * a->cells + ((in + 1) * a->cells - 1) / a->extent : -1;
}

static void attn__pic_ppm(attn__pic *p)
{
    const int64_t left = p->map->no_colorbar ? p->x.total : p->x.before + p->x.grid + p->x.gap, last = p->y.grid - 1;
    int64_t h, w, i, j, before;
    uint32_t rgb = 0, seen;
    int shift;
    ATTN__FORMAT(&p->out, "P6\n% %\n255\n", p->x.total, p->y.total);
    for (h = 0; h < p->y.total && !p->failed; h++) {
        i = attn__ppm_find(&p->y, h);
        for (w = 0, before = -2; w < p->x.total; w++, before = j) {
            j = i < 0 ? -1 : attn__ppm_find(&p->x, w);
            if (j != before) rgb = j < 0 ? 0xFFFFFF : attn__pic_cell_colour(p, i, j);
            if (w == left && h <= last) rgb = attn__pic_colour(p, last > 0 ? (double)(last - h) / (double)last : 1);
            if (w == left + ATTN__PIC_BAR) rgb = 0xFFFFFF;
            seen = rgb != ATTN__PIC_MASKED ? rgb : (h + w) % ATTN__PIC_HATCH ? 0xFFFFFF : ATTN__PIC_STROKE;
            for (shift = 16; shift >= 0; shift -= 8) attn__put_byte(&p->out, seen >> shift);
        }
    }
}

/* ---- terminal */
/* The one of the colours 16..255 that is nearest: a cube of 6*6*6, then 24 greys. */
static int attn__ansi_256(uint32_t rgb)
{
    int best = 16, least = 3 * 256 * 256, k, shift, unit, distance, part, level;
    for (k = 16; k < 256; k++) {
        distance = 0;
        for (shift = 16, unit = 36; shift >= 0; shift -= 8, unit /= 6) {
            part = (k - 16) / unit % 6;
            level = (k >= 232 ? 8 + 10 * (k - 232) : part ? 55 + 40 * part : 0) - (int)(rgb >> shift & 255);
            distance += level * level;
        }
        if (distance < least) { least = distance; best = k; }
    }
    return best;
}

/* A field up to column `end` in the colour of a place in the range, with text in it; plain terminals get shades,
   after a sign where the colours have two sides. */
static void attn__ansi_field(attn__pic *p, double place, const char *text, int64_t end)
{
    const uint32_t rgb = attn__pic_colour(p, place);
    const int masked = rgb == ATTN__PIC_MASKED;
    const int two_sides = p->map->colormap == ATTN_COLORMAP_DIVERGING && place >= 0;
    const double size = !two_sides ? place : place < 0.5 ? 1 - 2*place : 2*place - 1;
    const char *shades = two_sides ? " .:~=o*#%@" : " .:-=+*#%@";
    const char shade = masked ? '/' : place < 0 ? '?' : shades[(int)(size * 9 + 0.5)];
    if (masked && !p->plain) attn__pic_puts(p, "\033[0m");
    if (two_sides && p->plain && shade != ' ') attn__pic_code(p, place < 0.5 ? '-' : '+');
    while ((masked || p->plain) && p->column < end) attn__pic_code(p, (unsigned char)shade);
    if (masked || p->plain) return;
    if (p->map->terminal == ATTN_TERMINAL_256) ATTN__FORMAT(&p->out, "\033[48;5;%m", attn__ansi_256(rgb));
    else ATTN__FORMAT(&p->out, "\033[48;2;%;%;%m", rgb >> 16, rgb >> 8 & 255, rgb & 255);
    if (*text) ATTN__FORMAT(&p->out, "\033[38;5;%m", attn__pic_is_dark(rgb) ? 231 : 16);
    attn__pic_spaces(p, end - 1 - attn__pic_length(text));
    attn__pic_text(p, text, end);
    attn__pic_spaces(p, end);
}

/* A line of words over or under panels: `titles`, one for each; or, without them, labels at their columns, up to the
   last one. In stairs those before it are strokes that lead to their own lines. */
static void attn__ansi_words(attn__pic *p, const char *const *titles, int64_t last, int stairs)
{
    const attn__pic_axis *x = &p->x;
    int64_t c, i;
    attn__pic_spaces(p, x->before);
    for (c = 0; c < x->panels; c++) {
        attn__pic_spaces(p, attn__pic_edge(x, c, 0));
        for (i = 0; i <= last; i += x->step) {
            attn__pic_spaces(p, attn__pic_edge(x, c, i));
            if (stairs && i < last) attn__pic_code(p, p->plain ? '|' : 0x2502);
            else attn__pic_text(p, titles ? attn__pic_word(titles, c) : attn__pic_label(p, x, i), ATTN__PIC_LABEL);
        }
    }
    attn__pic_code(p, '\n');
}

/* Column labels on one line where they fit, else as stairs, each on a line of its own. */
static void attn__ansi_labels(attn__pic *p)
{
    const attn__pic_axis *x = &p->x;
    const int64_t last = x->cells > 0 ? (x->cells - 1) / x->step * x->step : -1;
    int64_t i;
    if (x->label_len < (p->number_len + 2) * x->step) attn__ansi_words(p, NULL, last, 0);
    else for (i = 0; i <= last; i += x->step) attn__ansi_words(p, NULL, p->map->ticks_on_top ? i : last - i, 1);
}

static void attn__ansi_row(attn__pic *p, int64_t r, int64_t i)
{
    const char *s = attn__pic_label(p, &p->y, i);
    int64_t column = 0, c, j;
    attn__pic_spaces(p, p->x.before - 1 - attn__pic_cut(s));
    attn__pic_text(p, s, ATTN__PIC_LABEL);
    attn__pic_spaces(p, p->x.before);
    for (c = 0; c < p->x.panels; c++) {
        attn__pic_spaces(p, attn__pic_edge(&p->x, c, 0));
        for (j = 0; j < p->x.cells; j++, column++) {
            const attn__cell cell = attn__pic_cell(p, r * p->y.cells + i, column);
            attn__ansi_field(p, attn__pic_place(p, cell), p->number_len ? attn__pic_number(p, cell.value) : "",
                             attn__pic_edge(&p->x, c, j + 1));
        }
        if (!p->plain) attn__pic_puts(p, "\033[0m");
    }
    attn__pic_code(p, '\n');
}

/* What the colours mean, on one line. */
static void attn__ansi_legend(attn__pic *p)
{
    const int fields = p->plain ? 10 : 20;          /* a sign and a shade take two columns */
    int k;
    attn__pic_code(p, '\n');
    attn__pic_spaces(p, p->x.before);
    attn__pic_puts(p, attn__pic_number(p, (float)p->low));
    attn__pic_puts(p, p->plain ? " [" : " ");
    for (k = 0; k < fields; k++) attn__ansi_field(p, k / (fields - 1.0), "", p->column + 20 / fields);
    attn__pic_puts(p, p->plain ? "] " : "\033[0m ");
    attn__pic_puts(p, attn__pic_number(p, (float)p->high));
    if (p->has_nan) {
        attn__pic_puts(p, "   ");
        attn__ansi_field(p, -1, "", p->column + 2);
        attn__pic_puts(p, p->plain ? " NaN" : "\033[0m NaN");
    }
    if (p->has_masked) attn__pic_puts(p, "   // masked");
    attn__pic_code(p, '\n');
}

static void attn__ansi_line(attn__pic *p, const char *what, const char *s)
{
    if (!s) return;
    attn__pic_puts(p, what);
    attn__pic_text(p, s, ATTN__HUGE);
    attn__pic_code(p, '\n');
}

static void attn__pic_ansi(attn__pic *p)
{
    const attn_heatmap *m = p->map;
    const int64_t cell = p->number_len + 2;
    int64_t r, i;
    p->x.before = p->y.label_len + 1;
    p->x.extent = p->x.cells * cell;
    p->x.step = m->x_ticks ? attn__pic_step(1, ATTN__PIC_STAIRS, p->x.cells)
                         : attn__pic_step(p->x.label_len + 1, p->x.extent, p->x.cells);
    p->x.pitch = attn__max(p->x.extent, p->title_len);      /* room for the cells, the title and the labels */
    for (i = 0; i < p->x.cells; i += p->x.step)
        p->x.pitch = attn__max(p->x.pitch, i * cell + attn__pic_cut(attn__pic_label(p, &p->x, i)));
    p->x.pitch += 2;
    attn__ansi_line(p, "", m->title);
    attn__ansi_line(p, "rows: ", m->y_label);
    attn__ansi_line(p, "columns: ", m->x_label);
    for (r = 0; r < p->y.panels; r++) {
        if (r) attn__pic_code(p, '\n');
        if (m->panel_titles) attn__ansi_words(p, m->panel_titles + r * p->x.panels, 0, 0);
        if (m->ticks_on_top && r == 0) attn__ansi_labels(p);
        for (i = 0; i < p->y.cells && !p->failed; i++) attn__ansi_row(p, r, i);
        if (!m->ticks_on_top && r == p->y.panels - 1) attn__ansi_labels(p);
    }
    if (!m->no_colorbar) attn__ansi_legend(p);
}

/* ---- the public functions */
static attn_status attn__pic_open(attn__pic *p, attn__pic_draw *draw, attn_error *err)
{
    const attn_heatmap *m = p->map;
    attn__pic_axis *a;
    int64_t i, j;
    int k;
    ATTN__TRY(attn__pic_check(p, err));
    p->y.wish = m->height;
    p->x.wish = m->width;
    p->y.ticks = m->y_ticks;
    p->x.ticks = m->x_ticks;
    p->svg = draw == attn__pic_svg;
    p->plain = draw == attn__pic_ansi && m->terminal == ATTN_TERMINAL_ASCII;
    attn__pic_range(p);
    attn__pic_choose_ticks(p);
    p->number_e10 = attn__pic_exponent((p->high - p->low) / 50);
    for (i = 0; i < p->y.all && m->numbers && !p->plain; i++)
        for (j = 0; j < p->x.all; j++) {
            const attn__cell cell = attn__pic_cell(p, i, j);
            if (cell.masked) continue;
            p->number_len = attn__max(p->number_len, attn__pic_length(attn__pic_number(p, cell.value)));
        }
    for (k = 0; k < 2; k++) {           /* of numbers the last is the longest */
        a = attn__pic_axis_of(p, k);
        for (i = a->ticks ? 0 : attn__max(0, a->cells - 1); i < a->cells; i++)
            a->label_len = attn__max(a->label_len, attn__pic_cut(attn__pic_label(p, a, i)));
    }
    for (i = 0; i < p->y.panels * p->x.panels; i++)
        p->title_len = attn__max(p->title_len, attn__pic_cut(attn__pic_word(m->panel_titles, i)));
    return p->svg || draw == attn__pic_ppm ? attn__pic_layout(p, err) : ATTN_OK;
}

static attn_status attn__pic_run(attn__pic_draw *draw, const attn_heatmap *map, attn_writer writer, attn_error *err)
{
    attn_heatmap copy;
    attn__pic p;
    attn_status st;
    ATTN__KNOWN(attn_heatmap, map, &copy, terminal);
    attn__zero(&p, sizeof p);
    p.out = attn__text_into(p.bytes, sizeof p.bytes);
    p.out.full = attn__pic_flush;
    p.map = map;
    p.to = writer;
    p.caller = attn__fp_enter();
    st = attn__pic_open(&p, draw, err);
    if (st == ATTN_OK) {
        draw(&p);
        attn__pic_flush(&p.out);
        st = p.failed ? attn__fail(err, ATTN_ERR_WRITE, "writer.write", "must return 0") : attn__success(err);
    }
    attn__fp_leave(p.caller);
    return st;
}

ATTN_DEF attn_status attn_heatmap_ansi(const attn_heatmap *map, attn_writer writer, attn_error *err)
{ return attn__pic_run(attn__pic_ansi, map, writer, err); }
ATTN_DEF attn_status attn_heatmap_svg(const attn_heatmap *map, attn_writer writer, attn_error *err)
{ return attn__pic_run(attn__pic_svg, map, writer, err); }
ATTN_DEF attn_status attn_heatmap_ppm(const attn_heatmap *map, attn_writer writer, attn_error *err)
{ return attn__pic_run(attn__pic_ppm, map, writer, err); }

/* ---- a writer into memory */
static int attn__buffer_write(void *user, const char *bytes, size_t count)
{
    attn_buffer *b = (attn_buffer *)user;
    attn__text text = attn__text_into(b->data, b->size);
    size_t i;
    text.length = b->length;
    for (i = 0; i < count; i++) attn__put_byte(&text, (unsigned char)bytes[i]);
    b->length = attn__end_text(&text);
    return 0;
}

ATTN_DEF attn_writer attn_buffer_writer(attn_buffer *buffer)
{
    const attn_writer w = {buffer ? attn__buffer_write : NULL, buffer};
    if (buffer) (void)attn__buffer_write(buffer, "", 0);        /* an empty text ends in 0, too */
    return w;
}
#endif /* ATTN_NO_HEATMAP */

/* -------------------------------------------------------------------------------------------------------- >>tail */
#if defined(__clang__)
#  pragma STDC FP_CONTRACT DEFAULT
#  if ATTN__PRECISE
#    pragma float_control(pop)
#  endif
#elif defined(__GNUC__)
#  pragma GCC pop_options
#  pragma GCC diagnostic pop
#elif defined(_MSC_VER)
#  pragma fp_contract(on)
#  pragma float_control(pop)
#endif
#undef ATTN__APART
#undef ATTN__COPY
#undef ATTN__FORMAT
#undef ATTN__GNU
#undef ATTN__HUGE
#undef ATTN__GRADIENT_KERNELS
#undef ATTN__INLINE
#undef ATTN__IN_FP_STATE
#undef ATTN__KERNEL_LIST
#undef ATTN__READ
#undef ATTN__FMAF
#undef ATTN__HAS_FMA
#undef ATTN__HAS_NEON
#undef ATTN__HAS_AMX
#undef ATTN__HAS_BF16_DOT
#undef ATTN__HAS_PORTABLE
#undef ATTN__HAS_RELAXED
#undef ATTN__STRONGEST
#undef ATTN__WITH
#undef ATTN__EQUALS
#undef ATTN__F
#undef ATTN__KNOWN
#undef ATTN__LAYOUT
#undef ATTN__LETTER
#undef ATTN__MHA_INPUTS
#undef ATTN__MHA_LIST
#undef ATTN__NUMBERS
#undef ATTN__NUMBER_RULE
#undef ATTN__SCORE_NUMBERS
#undef ATTN__OWNERS
#undef ATTN__FIELD
#undef ATTN__ROW
#undef ATTN__TEXTS
#undef ATTN__NAN
#undef ATTN__NEG_INF
#undef ATTN__CODES_PER_SCALE
#undef ATTN__SCALES_AT_ONCE
#undef ATTN__MAY_ALIAS
#undef ATTN__0
#undef ATTN__GRADIENTS
#undef ATTN__BIND
#undef ATTN__CALL
#undef ATTN__FACTORS
#undef ATTN__ARGUMENT
#undef ATTN__MATRIX
#undef ATTN__CUDA_ONLY
#undef ATTN__NOINLINE
#undef ATTN__PLAIN
#undef ATTN__PREFETCH
#undef ATTN__PREFETCH_FAR
#undef ATTN__SVG_FRAME
#undef ATTN__SVG_RECT
#undef ATTN__RULE
#undef ATTN__RULE2
#undef ATTN__RULE_OF
#undef ATTN__RULE2_OF
#undef ATTN__TRY
#undef ATTN__NOT_NULL
#undef ATTN__PLACE_HOST
#undef ATTN__PLACE_DEVICE
#undef ATTN__PLACE_NUMBERS
#undef ATTN__UNROLL
#undef ATTN__VIEW_LIST
#undef ATTN__GRAD_LIST
#undef ATTN__PRECISE
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
