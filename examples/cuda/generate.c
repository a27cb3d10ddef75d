/* nvcc -O3 -std=c++17 -arch=native generate.c attention.c kernels.cu -o generate (Hopper: -arch=sm_90a) */
/* The loop of examples/generate.c where keys and values stay on the device: prompts of unequal lengths are read in
   packed form, then each text gets a row at a time. Projected, turned by their positions and put into a cache of bf16
   in pages, all on one stream; nothing comes back before the end. The same steps on the host say what is right: there
   the cache has the same bits. Of a layer only what attention needs; its input is random, whatever comes out. */
#include "device.h"

enum { TEXTS = 4, HEADS = 8, KV_HEADS = 2, HEAD = 64, WIDTH = 256, ROW = (HEADS + 2 * KV_HEADS) * HEAD };
enum { PAGE = 16, PAGES = 8, TOKENS = 24, PROMPTS = 37 + 5 + 64 + 20, ROWS = PROMPTS + TOKENS * TEXTS };
static const int32_t prompts[TEXTS] = {37, 5, 64, 20};

/* Everything, in one place. Step 0 takes the prompts, each of the others a row of each text. */
typedef struct {
    float *x, *w, *cosines, *sines;               /* [ROWS,WIDTH]: the rows of all steps; [ROW,WIDTH]; tables */
    float *qkv, *y;                               /* [PROMPTS,ROW]: of a step; [ROWS,HEADS*HEAD] */
    uint16_t *keys, *values;                      /* pools [TEXTS*PAGES,KV_HEADS,PAGE,HEAD] */
    int32_t *starts, *counts, *table, *positions; /* of step 0 [TEXTS]; [TEXTS,PAGES]; of all rows [ROWS] */
    int32_t *lengths;                             /* [TOKENS+2,TEXTS]: before each step; the next: after it */
    void *stream;
} decoder;

static const size_t pool_bytes = sizeof(uint16_t) * TEXTS * PAGES * KV_HEADS * PAGE * HEAD;
static const size_t y_bytes = sizeof(float) * ROWS * HEADS * HEAD;

static void *zeros(size_t bytes) {
    void *p = calloc(bytes, 1);
    if (!p) exit(1);
    return p;
}
static int32_t *integers(size_t n) { return (int32_t *)zeros(n * sizeof(int32_t)); }

static decoder on_the_host(void) {
    decoder d = {0};
    attn_error err;
    int32_t b, i, s, row = 0;
    d.x = random_floats(ROWS * WIDTH);
    d.w = random_floats(ROW * WIDTH);
    for (i = 0; i < ROW * WIDTH; i++) d.w[i] /= 16; /* sqrt(WIDTH) */
    d.cosines = random_floats(PAGES * PAGE * HEAD / 2), d.sines = random_floats(PAGES * PAGE * HEAD / 2);
    d.qkv = random_floats(PROMPTS * ROW), d.y = (float *)zeros(y_bytes);
    d.keys = (uint16_t *)zeros(pool_bytes), d.values = (uint16_t *)zeros(pool_bytes);
    d.starts = integers(TEXTS), d.counts = integers(TEXTS), d.table = integers(TEXTS * PAGES);
    d.positions = integers(ROWS), d.lengths = integers((TOKENS + 2) * TEXTS);
    for (b = 0; b < TEXTS; b++) {
        d.starts[b] = row;
        d.counts[b] = prompts[b];
        for (i = 0; i < prompts[b]; i++) d.positions[row++] = i;
        for (i = 0; i < PAGES; i++) d.table[b * PAGES + i] = i * TEXTS + b; /* pages of texts take turns */
        for (s = 1; s < TOKENS + 2; s++) d.lengths[s * TEXTS + b] = prompts[b] + s - 1;
    }
    for (s = 1; s <= TOKENS; s++)
        for (b = 0; b < TEXTS; b++) d.positions[row++] = prompts[b] + s - 1;
    must_attn(attn_rope_table(attn_out_f32(d.cosines, 2, PAGES * PAGE, HEAD / 2, 0, 0),
                              attn_out_f32(d.sines, 2, PAGES * PAGE, HEAD / 2, 0, 0), NULL, &err),
              &err, "attn_rope_table");
    return d;
}

static decoder on_the_device(const decoder *h) {
    const size_t tables = sizeof(float) * PAGES * PAGE * HEAD / 2, ints = sizeof(int32_t);
    decoder d;
    cudaStream_t stream;
    must_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
    d.x = (float *)on_device(h->x, sizeof(float) * ROWS * WIDTH);
    d.w = (float *)on_device(h->w, sizeof(float) * ROW * WIDTH);
    d.cosines = (float *)on_device(h->cosines, tables), d.sines = (float *)on_device(h->sines, tables);
    d.qkv = (float *)on_device(NULL, sizeof(float) * PROMPTS * ROW), d.y = (float *)on_device(NULL, y_bytes);
    d.keys = (uint16_t *)on_device(h->keys, pool_bytes), d.values = (uint16_t *)on_device(h->values, pool_bytes);
    d.starts = (int32_t *)on_device(h->starts, ints * TEXTS), d.counts = (int32_t *)on_device(h->counts, ints * TEXTS);
    d.table = (int32_t *)on_device(h->table, ints * TEXTS * PAGES);
    d.positions = (int32_t *)on_device(h->positions, ints * ROWS);
    d.lengths = (int32_t *)on_device(h->lengths, ints * (TOKENS + 2) * TEXTS);
    d.stream = stream;
    return d;
}

/* Heads side by side in rows of `row` floats: of step 0 packed, [1,heads,rows,HEAD], else [TEXTS,heads,1,HEAD]. */
static attn_out heads_of(float *x, int step, int heads, int row) {
    return step ? attn_out_rows(x, TEXTS, 1, heads, HEAD, row) : attn_out_rows(x, 1, PROMPTS, heads, HEAD, row);
}
static attn_view numbers(const int32_t *x) { return attn_view_i32(x, 1, TEXTS, 0, 0, 0); }

/* The arrays say where it runs. */
static void take_step(const decoder *d, int step) {
    const int first = step ? PROMPTS + (step - 1) * TEXTS : 0, rows = step ? TEXTS : PROMPTS;
    const attn_view table = attn_view_f32(d->cosines, 2, PAGES * PAGE, HEAD / 2, 0, 0);
    const attn_view lengths = numbers(d->lengths + step * TEXTS);
    const attn_out turned = heads_of(d->qkv, step, HEADS + KV_HEADS, ROW); /* queries and keys */
    float *k = d->qkv + HEADS * HEAD, *v = k + KV_HEADS * HEAD;
    const attn_out keys = attn_out_typed(ATTN_BF16, d->keys, 4, TEXTS * PAGES, KV_HEADS, PAGE, HEAD);
    const attn_out values = attn_out_typed(ATTN_BF16, d->values, 4, TEXTS * PAGES, KV_HEADS, PAGE, HEAD);
    attn_desc o = {0};
    attn_view sines = table;
    attn_error err;
    sines.data = d->sines;
    o.stream = d->stream;
    must_attn(attn_bmm(attn_view_f32(d->x + first * WIDTH, 2, rows, WIDTH, 0, 0),
                       attn_view_swap(attn_view_f32(d->w, 2, ROW, WIDTH, 0, 0), 0, 1),
                       attn_out_f32(d->qkv, 2, rows, ROW, 0, 0), &o, &err),
              &err, "attn_bmm");
    must_attn(attn_rope(attn_view_of(turned), table, sines,
                        attn_view_i32(d->positions + first, 2, turned.size[0], turned.size[2], 0, 0), 0, turned, &err),
              &err, "attn_rope");
    if (!step) o.query_starts = numbers(d->starts), o.query_lengths = numbers(d->counts);
    o.page_table = attn_view_i32(d->table, 2, TEXTS, PAGES, 0, 0);
    must_attn(attn_append(attn_view_of(heads_of(k, step, KV_HEADS, ROW)), keys, lengths, &o, &err), &err,
              "attn_append of keys");
    must_attn(attn_append(attn_view_of(heads_of(v, step, KV_HEADS, ROW)), values, lengths, &o, &err), &err,
              "attn_append of values");
    o.q = attn_view_of(heads_of(d->qkv, step, HEADS, ROW));
    o.k = attn_view_of(keys);
    o.v = attn_view_of(values);
    o.out = heads_of(d->y + first * HEADS * HEAD, step, HEADS, HEADS * HEAD);
    o.key_lengths = numbers(d->lengths + (step + 1) * TEXTS);
    o.causal = 1;
    o.align = ATTN_ALIGN_BOTTOM_RIGHT;
    must_attn(attn_forward(&o, &err), &err, "attn_forward");
}

int main(void) {
    const decoder host = on_the_host(), device = on_the_device(&host);
    float *y = (float *)zeros(y_bytes), most = 0;
    uint16_t *pool = (uint16_t *)zeros(pool_bytes);
    int step, i, same, ok;
    attn_cuda_use_stream(device.stream);                             /* of attn_rope, which has no options */
    for (step = 0; step <= TOKENS; step++) take_step(&device, step); /* enqueued */
    for (step = 0; step <= TOKENS; step++) take_step(&host, step);
    must_cuda(cudaStreamSynchronize((cudaStream_t)device.stream), "the steps on the device");
    to_host(pool, device.keys, pool_bytes);
    same = !memcmp(pool, host.keys, pool_bytes);
    to_host(pool, device.values, pool_bytes);
    same = same && !memcmp(pool, host.values, pool_bytes);
    to_host(y, device.y, y_bytes);
    for (i = 0; i < ROWS * HEADS * HEAD; i++) {
        const float difference = fabsf(y[i] - host.y[i]);
        if (!(difference <= most)) most = difference; /* a NaN stays */
    }
    printf("%d texts, prompts of %d to %d rows, %d rows more of each\n", TEXTS, prompts[1], prompts[2], TOKENS);
    printf("the cache: %s; outputs differ by at most %.1e\n", same ? "the bits of the host's" : "WRONG", (double)most);
    ok = same && most <= 1e-4f;
    printf(ok ? "as on the host\n" : "WRONG: not as on the host\n");
    return ok ? 0 : 1;
}
