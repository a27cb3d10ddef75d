/* work.h - what is measured: a job is one call, its numbers in the table below, its data a program's. C99. */
#include <stddef.h>
#include <stdint.h>

typedef struct job {
    const char *name;
    int32_t kind; /* 0 attn_forward, 's' attn_softmax of q under a mask, 'b' attn_bmm of q and k, 'g' attn_backward of
                     what attn_forward left before, 't' both in turn, as in training; 'm' attn_mha, 'n' and its backward.
                     With gradients: Hkv = H */
    int32_t batch, heads, kv_heads, queries, keys, d, dv, score, causal, window, masked, biased, weighed;
    int32_t projected; /* additive with W_q, W_k and a hidden bias; the hidden width is D */
    float dropout;
    const int32_t *lengths; /* [B] */

    int32_t threads, isa;
    const float *q, *k, *v, *bias, *w_v;          /* [B,H,Sq,D] [B,Hkv,Sk,D] [B,Hkv,Sk,Dv] [H,Sq,Sk] [D] */
    const float *w_q, *w_k, *hidden_bias, *d_out; /* [D,D] [D,D] [D]; as out */
    const uint8_t *mask;                          /* [Sq,Sk] */
    float *out, *weights, *stats;                 /* [B,H,Sq,Dv] [B,H,Sq,Sk] [B,H,Sq,2] */
    float *d_q, *d_k, *d_v, *d_bias, *d_w_v, *d_w_q, *d_w_k, *d_hidden_bias; /* each as what it belongs to */
    void (*loop)(void *job, int64_t i, int32_t worker);                      /* a function of loops.c */
    int32_t type;                   /* attn_type of q, k, v and out, then; of 8 bits: of k and v alone */
    const float *k_scale, *v_scale; /* [B,Hkv,Sk] of codes; of attn_bmm [Hkv,Sk] */
    int32_t precision;              /* attn_precision */
    int32_t transposed;             /* k of attn_bmm is stored as [Hkv,Sk,D], as weights of a layer are */
} job;

enum { WORK_ADDITIVE = 4, WORK_GAUSSIAN = 5 };     /* attn_score, for files without attn.h */
enum { WORK_F16 = 1, WORK_BF16 = 2, WORK_I8 = 7 }; /* attn_type */
enum { WORK_Q8_0 = 100 };                          /* ggml's blocks, [B,Hkv,Sk,D/32]; attn.h unpacks them */

#define SIZES(b, h, hkv, sq, sk, size, size_v) \
    .batch = b, .heads = h, .kv_heads = hkv, .queries = sq, .keys = sk, .d = size, .dv = size_v
#define SELF(h, s, size) SIZES(1, h, h, s, s, size, size)
static const int32_t work_half[] = {256, 512, 768, 1024, 1024, 1280, 1536, 1792};
static const job work_table[] = {
    {"8x512 d64", SELF(8, 512, 64)},
    {"8x512 d64 causal", SELF(8, 512, 64), .causal = 1},
    {"8x2048 d64", SELF(8, 2048, 64)},
    {"8x2048 d64 causal", SELF(8, 2048, 64), .causal = 1},
    {"8x2048 d128", SELF(8, 2048, 128)},
    {"8x2048 d128 causal", SELF(8, 2048, 128), .causal = 1},
    {"4x4096 d128 causal", SELF(4, 4096, 128), .causal = 1},
    {"window of 256, 4x8192 d64", SELF(4, 8192, 64), .causal = 1, .window = 256},
    {"half of the keys padded, 8x2048 d64", SIZES(8, 1, 1, 2048, 2048, 64, 64), .lengths = work_half},
    {"bool mask, 8x1024 d64", SELF(8, 1024, 64), .masked = 1},
    {"float bias, 8x1024 d64", SELF(8, 1024, 64), .biased = 1},
    {"8x1024 d40", SELF(8, 1024, 40)},
    {"8x1024 d65", SELF(8, 1024, 65)},
    {"8x1024 d72", SELF(8, 1024, 72)},
    {"8x1024 d96", SELF(8, 1024, 96)},
    {"8x1024 d130", SELF(8, 1024, 130)},
    {"cross, 8x64 queries, 4096 keys d64", SIZES(1, 8, 8, 64, 4096, 64, 64)},
    {"8x64x64 d64", SELF(8, 64, 64)},
    {"1x16x16 d16", SELF(1, 16, 16)},
    {"one query, 8 heads, 4096 keys d128", SIZES(1, 8, 8, 1, 4096, 128, 128)},
    {"one query, 8 heads, 32768 keys d128", SIZES(1, 8, 8, 1, 32768, 128, 128)},
    {"one query, one head, 32768 keys d128", SIZES(1, 1, 1, 1, 32768, 128, 128)},
    {"one query, 32 heads on 8, 8192 keys d128", SIZES(1, 32, 8, 1, 8192, 128, 128)},
    {"8 queries, 32 heads on 8, 8192 keys d128", SIZES(1, 32, 8, 8, 8192, 128, 128)},
    {"weights returned, 8x512 d64", SELF(8, 512, 64), .weighed = 1},
    {"additive h128, 1024x1024, values 64", SIZES(1, 1, 1, 1024, 1024, 128, 64), .score = WORK_ADDITIVE},
    {"Gaussian, 8x1024 d64", SELF(8, 1024, 64), .score = WORK_GAUSSIAN},
    {"masked softmax 4096x4096", SELF(1, 4096, 1), .kind = 's', .masked = 1},
    {"matrix products 32 x 128^3", SELF(32, 128, 128), .kind = 'b'},
    {"matrix product 512^3", SELF(1, 512, 512), .kind = 'b'},
    {"matrix product 1024^3", SELF(1, 1024, 1024), .kind = 'b'},
    {"matrix product 2048^3", SELF(1, 2048, 2048), .kind = 'b'},
    {"matrix product 128x512x512", SIZES(1, 1, 1, 128, 512, 512, 512), .kind = 'b'},
    {"matrix product 16x1024x1024", SIZES(1, 1, 1, 16, 1024, 1024, 1024), .kind = 'b'},
    {"matrix product 1x1024x1024", SIZES(1, 1, 1, 1, 1024, 1024, 1024), .kind = 'b'},
    {"matrix product 1x4096x4096", SIZES(1, 1, 1, 1, 4096, 4096, 4096), .kind = 'b'},
    {"matrix product 1x1024x1024, b transposed", SIZES(1, 1, 1, 1, 1024, 1024, 1024), .kind = 'b', .transposed = 1},
    {"matrix product 8x1024x1024, b transposed", SIZES(1, 1, 1, 8, 1024, 1024, 1024), .kind = 'b', .transposed = 1},
    {"backward, 8x512 d64", SELF(8, 512, 64), .kind = 'g'},
    {"backward, 8x512 d64 causal", SELF(8, 512, 64), .kind = 'g', .causal = 1},
    {"backward, 8x2048 d64", SELF(8, 2048, 64), .kind = 'g'},
    {"backward, 8x2048 d64 causal", SELF(8, 2048, 64), .kind = 'g', .causal = 1},
    {"backward, 8x2048 d128", SELF(8, 2048, 128), .kind = 'g'},
    {"backward, 8x2048 d128 causal", SELF(8, 2048, 128), .kind = 'g', .causal = 1},
    {"backward, bias gradient too, 8x1024 d64", SELF(8, 1024, 64), .kind = 'g', .biased = 1},
    {"backward, dropout 0.1, 8x1024 d64", SELF(8, 1024, 64), .kind = 'g', .dropout = 0.1f},
    {"forward+backward, additive h128, 512x512", SIZES(1, 1, 1, 512, 512, 128, 64), .kind = 't', .score = WORK_ADDITIVE,
     .projected = 1},
};
enum { WORK_COUNT = sizeof work_table / sizeof *work_table };
