/* nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a cuda_cache.cu kernels.o attention.o -o cache */
/* How fast what stands around attention moves memory on a device: attn_append, attn_rope, attn_convert, attn_quantize,
   beside the runtime's own copy. Bytes are those that must be read and written, tables of angles not among them; a row
   of 1 token per text is too small for that and has its time. What the results are the tests say (make test-cuda). */
#include "../examples/cuda/device.h"

enum { TEXTS = 8, HEADS = 8, TOKENS = 4096, SIZE = 128, ROOM = 2 * TOKENS, PAGE = 64, ROUNDS = 20 };
static const size_t NUMBERS = (size_t)TEXTS * HEADS * TOKENS * SIZE;

static cudaStream_t stream;
static double copy_speed;

/* Seconds of a call; the first ones are not counted. */
template <class F> static double time_of(F call) {
    cudaEvent_t start, end;
    float milliseconds = 0;
    must_cuda(cudaEventCreate(&start), "an event"), must_cuda(cudaEventCreate(&end), "an event");
    for (int i = 0; i < 3; i++) call();
    must_cuda(cudaEventRecord(start, stream), "an event");
    for (int i = 0; i < ROUNDS; i++) call();
    must_cuda(cudaEventRecord(end, stream), "an event");
    must_cuda(cudaEventSynchronize(end), "the kernels");
    must_cuda(cudaEventElapsedTime(&milliseconds, start, end), "an event");
    return milliseconds / 1e3 / ROUNDS;
}
template <class F> static void measure(const char *name, double bytes, F call) {
    attn_error err;
    const double seconds = time_of([&] { must_attn(call(&err), &err, name); });
    printf("%-52s %8.1f us", name, 1e6 * seconds);
    if (bytes > 0)
        printf(" %7.0f GB/s, %3.0f %% of copying", bytes / seconds / 1e9, 100 * bytes / seconds / copy_speed);
    printf("\n");
}

/* Zeros: no NaN, which would take longer */
static void *zeros(size_t bytes) {
    void *p = on_device(NULL, bytes);
    must_cuda(cudaMemset(p, 0, bytes), "cudaMemset");
    return p;
}
static size_t bytes_of(int32_t type) { return type == ATTN_F32 ? 4 : type == ATTN_I8 ? 1 : 2; }
static attn_view some_lengths(int64_t count, int32_t value) {
    int32_t x[1024];
    for (int i = 0; i < 1024; i++) x[i] = value;
    return attn_view_i32((const int32_t *)on_device(x, sizeof(int32_t) * (size_t)count), 1, count, 0, 0, 0);
}
/* [texts,heads,tokens,SIZE], stored as projections leave it */
static attn_out rows_of(void *data, int32_t type, int64_t texts, int64_t heads, int64_t tokens) {
    attn_out o = attn_out_bshd((float *)data, texts, tokens, heads, SIZE);
    o.type = type;
    return o;
}

/* pages, packed: of the cache, of the new rows; groups: scales of a row, 0: none */
static void append(const char *name, int32_t from, int32_t to, bool pages, bool packed, int64_t groups) {
    static void *fresh = zeros(NUMBERS * 4), *cache = zeros(NUMBERS * 8);
    static void *scales = zeros(NUMBERS * 2 / 32 * 4);
    static const attn_view lengths = some_lengths(TEXTS, 1000), counts = some_lengths(TEXTS, TOKENS);
    const int64_t texts = pages ? TEXTS * ROOM / PAGE : TEXTS, rows = pages ? PAGE : ROOM;
    const attn_out room = attn_out_typed((attn_type)to, cache, 4, texts, HEADS, rows, SIZE);
    attn_desc o = {};
    o.stream = stream;
    if (groups) o.k_scale = attn_view_f32((const float *)scales, 4, texts, HEADS, rows, groups);
    if (pages) {
        static int32_t table[TEXTS * ROOM / PAGE];
        for (int i = 0; i < TEXTS * ROOM / PAGE; i++) table[i] = (int32_t)((int64_t)i * 7919 % (TEXTS * ROOM / PAGE));
        o.page_table = attn_view_i32((const int32_t *)on_device(table, sizeof table), 2, TEXTS, ROOM / PAGE, 0, 0);
    }
    if (packed) {
        int32_t starts[TEXTS];
        for (int b = 0; b < TEXTS; b++) starts[b] = b * TOKENS;
        o.query_starts = attn_view_i32((const int32_t *)on_device(starts, sizeof starts), 1, TEXTS, 0, 0, 0);
        o.query_lengths = counts;
    }
    const attn_view x = attn_view_of(rows_of(fresh, from, packed ? 1 : TEXTS, HEADS, packed ? TEXTS * TOKENS : TOKENS));
    const double bytes =
        (double)NUMBERS * (double)(bytes_of(from) + bytes_of(to)) + (double)(NUMBERS / SIZE) * (double)groups * 4;
    measure(name, bytes, [&](attn_error *err) { return attn_append(x, room, lengths, &o, err); });
}
static void append_one(const char *name, int64_t texts) {
    static void *fresh = zeros((size_t)1024 * HEADS * SIZE * 2);
    static void *cache = zeros((size_t)1024 * HEADS * 256 * SIZE * 2);
    const attn_view x = attn_view_of(rows_of(fresh, ATTN_BF16, texts, HEADS, 1)), lengths = some_lengths(texts, 100);
    const attn_out room = attn_out_typed(ATTN_BF16, cache, 4, texts, HEADS, 256, SIZE);
    attn_desc o = {};
    o.stream = stream;
    measure(name, 0, [&](attn_error *err) { return attn_append(x, room, lengths, &o, err); });
}

static void rope(const char *name, int32_t type, int64_t texts, int64_t heads, int64_t tokens, int64_t size,
                 uint32_t flags) {
    static void *x = zeros(NUMBERS * 2 * 4);
    static float *cosines = (float *)zeros(sizeof(float) * ROOM * SIZE / 2);
    static float *sines = (float *)zeros(sizeof(float) * ROOM * SIZE / 2);
    static const attn_view positions = some_lengths(1024, 100);
    attn_view at = positions;
    attn_error err;
    at.size[0] = texts;
    must_attn(attn_rope_table(attn_out_f32(cosines, 2, ROOM, size / 2, 0, 0),
                              attn_out_f32(sines, 2, ROOM, size / 2, 0, 0), NULL, &err),
              &err, "attn_rope_table");
    const attn_out rows = rows_of(x, type, texts, heads, tokens);
    const double bytes = 2.0 * (double)(texts * heads * tokens * SIZE) * (double)bytes_of(type);
    measure(name, tokens > 1 ? bytes : 0, [&](attn_error *e) {
        return attn_rope(attn_view_of(rows), attn_view_f32(cosines, 2, ROOM, size / 2, 0, 0),
                         attn_view_f32(sines, 2, ROOM, size / 2, 0, 0), at, flags, rows, e);
    });
}

static void convert(const char *name, int32_t from, int32_t to) {
    static void *x = zeros(NUMBERS * 4), *y = zeros(NUMBERS * 4);
    const attn_view all = attn_view_typed((attn_type)from, x, 1, (int64_t)NUMBERS, 0, 0, 0);
    const attn_out result = attn_out_typed((attn_type)to, y, 1, (int64_t)NUMBERS, 0, 0, 0);
    measure(name, (double)NUMBERS * (double)(bytes_of(from) + bytes_of(to)),
            [&](attn_error *err) { return attn_convert(all, result, err); });
}

int main() {
    cudaDeviceProp device;
    void *a = zeros(NUMBERS * 4), *b = zeros(NUMBERS * 4);
    must_cuda(cudaGetDeviceProperties(&device, 0), "the device");
    must_cuda(cudaStreamCreate(&stream), "a stream");
    attn_cuda_use_stream(stream);
    const double seconds =
        time_of([&] { must_cuda(cudaMemcpyAsync(b, a, NUMBERS * 4, cudaMemcpyDeviceToDevice, stream), "a copy"); });
    copy_speed = 2.0 * (double)NUMBERS * 4 / seconds;
    printf("%s, copies %.0f GB/s\n", device.name, copy_speed / 1e9);
    append("append bf16 to bf16", ATTN_BF16, ATTN_BF16, false, false, 0);
    append("append bf16 to bf16, pages of 64", ATTN_BF16, ATTN_BF16, true, false, 0);
    append("append bf16 to bf16, packed, pages of 64", ATTN_BF16, ATTN_BF16, true, true, 0);
    append("append f32 to bf16", ATTN_F32, ATTN_BF16, false, false, 0);
    append("append bf16 to int8, a scale per row", ATTN_BF16, ATTN_I8, false, false, 1);
    append("append bf16 to int8, a scale per 32, pages of 64", ATTN_BF16, ATTN_I8, true, false, SIZE / 32);
    append_one("append bf16 to bf16, 1 token of 1024 texts", 1024);
    append_one("append bf16 to bf16, 1 token of 8 texts", 8);
    rope("rope bf16, halves", ATTN_BF16, TEXTS, 2 * HEADS, TOKENS, SIZE, 0);
    rope("rope bf16, interleaved", ATTN_BF16, TEXTS, 2 * HEADS, TOKENS, SIZE, ATTN_ROPE_INTERLEAVED);
    rope("rope bf16, halves of the first half", ATTN_BF16, TEXTS, 2 * HEADS, TOKENS, SIZE / 2, 0);
    rope("rope f32, halves", ATTN_F32, TEXTS, 2 * HEADS, TOKENS, SIZE, 0);
    rope("rope bf16, 1 token of 1024 texts", ATTN_BF16, 1024, 4 * HEADS, 1, SIZE, 0);
    convert("convert f32 to bf16", ATTN_F32, ATTN_BF16);
    convert("convert bf16 to bf16", ATTN_BF16, ATTN_BF16);
    return 0;
}
