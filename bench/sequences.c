/* sequences.c - what sequences cost beside what they replace, each as a ratio of two measurements of one run, in pairs
   one after the other: documents packed into one row against a call for each and against a dense mask, decode from
   pages and from rows whose heads lie side by side against decode from contiguous keys, a cache with much room against
   one with little, keys in parts against one call.
   `make bench-sequences` prints them, and those of rotary positions and attn_append, which bench.c has; one thread. */
#define ATTN_IMPLEMENTATION
#include "../attn.h"
#include "measure.h"

enum { SAMPLES = 41, HEADS = 8 };

/* Both calls' results are compared before anything is measured: they have the same bits. */
typedef struct work {
    void (*run)(void *arg);
    void *arg;
} work;
static void print_ratio(const char *name, work ours, work other, double bar) { /* other's time over ours */
    double ratios[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        double before = rate(other.run, other.arg, 0), fast = rate(ours.run, ours.arg, 0);
        ratios[i] = fast / (0.5 * (before + rate(other.run, other.arg, 0)));
    }
    double ratio = median(ratios, SAMPLES); /* and the middle half of them */
    printf("%-64s %6.2f (%.2f to %.2f)", name, ratio, ratios[SAMPLES / 4], ratios[SAMPLES * 3 / 4]);
    if (bar > 0) printf(", bar %.2f %s", bar, ratio >= bar ? "holds" : "SHORT");
    printf("\n");
    fflush(stdout);
}
static void must(attn_status status, const attn_error *err) {
    char text[200];
    if (status == ATTN_OK) return;
    attn_error_string(err, text, sizeof text);
    stop(text);
}
static void must_equal(const void *a, const void *b, size_t bytes) {
    if (memcmp(a, b, bytes)) stop("two ways to the same result differ");
}
static void forward(void *desc) {
    attn_error err;
    must(attn_forward((const attn_desc *)desc, &err), &err);
}

/* ---- documents packed into one row */
enum { DOCUMENTS = 16, DOCUMENT_SIZE = 64 };
typedef struct calls {
    attn_desc desc[DOCUMENTS];
} calls;
static void run_calls(void *arg) {
    for (int i = 0; i < DOCUMENTS; i++) forward(&((calls *)arg)->desc[i]);
}
static void documents(int64_t length) {
    const int64_t total = DOCUMENTS * length, d = DOCUMENT_SIZE;
    const size_t n = elements(1, HEADS, total, d), workspace = (size_t)1 << 22;
    float *q = random_floats(n), *k = random_floats(n), *v = random_floats(n), *out = random_floats(n);
    float *again = random_floats(n);
    uint8_t *mask = (uint8_t *)must_have((size_t)(total * total));
    int64_t offsets[DOCUMENTS + 1], lengths[DOCUMENTS];
    attn_desc dense = {0}, packed, masked;
    calls each;
    char name[100];
    dense.q = attn_view_bhsd(q, 1, HEADS, total, d), dense.k = attn_view_bhsd(k, 1, HEADS, total, d);
    dense.v = attn_view_bhsd(v, 1, HEADS, total, d), dense.out = attn_out_bhsd(out, 1, HEADS, total, d);
    dense.workspace = must_have(workspace), dense.workspace_bytes = workspace;
    packed = masked = dense;
    for (int64_t b = 0; b <= DOCUMENTS; b++) offsets[b] = b * length;
    for (int64_t b = 0; b < DOCUMENTS; b++) {
        attn_desc *own = &each.desc[b];
        lengths[b] = length, *own = dense;
        own->q = attn_view_slice(dense.q, 2, b * length, length),
        own->k = attn_view_slice(dense.k, 2, b * length, length);
        own->v = attn_view_slice(dense.v, 2, b * length, length);
        own->out = attn_out_slice(dense.out, 2, b * length, length);
        for (int64_t i = b * length; i < (b + 1) * length; i++)
            for (int64_t j = 0; j < total; j++) mask[i * total + j] = (uint8_t)(j / length == b);
    }
    packed.query_starts = packed.key_starts = attn_view_i64(offsets, 1, DOCUMENTS, 0, 0, 0);
    packed.query_lengths = packed.key_lengths = attn_view_i64(lengths, 1, DOCUMENTS, 0, 0, 0);
    masked.mask = attn_view_u8(mask, 2, total, total, 0, 0);
    run_calls(&each), memcpy(again, out, n * sizeof *out);
    memset(out, 0, n * sizeof *out), forward(&packed), must_equal(out, again, n * sizeof *out);
    memset(out, 0, n * sizeof *out), forward(&masked), must_equal(out, again, n * sizeof *out);
    work pack = {forward, &packed}, apart = {run_calls, &each}, chunks = {forward, &masked}, whole = {forward, &dense};
    snprintf(name, sizeof name, "%d documents of %d packed, over a call for each", DOCUMENTS, (int)length);
    print_ratio(name, pack, apart, 1.0);
    snprintf(name, sizeof name, "    over a dense mask");
    print_ratio(name, pack, chunks, 0);
    snprintf(name, sizeof name, "    the dense mask over no mask");
    print_ratio(name, chunks, whole, length == 128 ? 5.0 : 0);
    free(q), free(k), free(v), free(out), free(again), free(mask), free(dense.workspace);
}

/* ---- one query over keys in pages, allotted at random; page 0: over [1,keys,heads,d], where heads lie side by side */
static void pages(int64_t page, int64_t kv_heads, int64_t heads, attn_type type, double bar) {
    const int64_t keys = 4096, d = 128, count = page ? keys / page : 1, element = type == ATTN_F32 ? 4 : 2;
    const size_t n = elements(1, kv_heads, keys, d), row = (size_t)(d * element), workspace = (size_t)1 << 22;
    float *numbers = random_floats(n), *q = random_floats(elements(1, heads, 1, d));
    float *out = random_floats(elements(1, heads, 1, d)), *again = random_floats(elements(1, heads, 1, d));
    char *k[2] = {(char *)must_have(n * 4), (char *)must_have(n * 4)};
    char *v[2] = {(char *)must_have(n * 4), (char *)must_have(n * 4)};
    int32_t *table = (int32_t *)must_have((size_t)count * sizeof *table);
    uint32_t state = 7;
    attn_desc near_by = {0}, paged;
    attn_error err;
    char name[100], where[20];
    for (int side = 0; side < 2; side++) {
        attn_out to = attn_out_typed(type, side ? v[0] : k[0], 4, 1, kv_heads, keys, d);
        must(attn_convert(attn_view_bhsd(numbers, 1, kv_heads, keys, d), to, &err), &err);
    }
    for (int64_t i = 0; i < count; i++) table[i] = (int32_t)i;
    for (int64_t i = count - 1; i > 0; i--) {
        int64_t j = (int64_t)((state = state * 1664525u + 1013904223u) >> 8) % (i + 1);
        int32_t other = table[i];
        table[i] = table[j], table[j] = other;
    }
    for (int64_t h = 0; h < kv_heads; h++)
        for (int64_t j = 0; j < keys; j++) {
            size_t from = (size_t)(h * keys + j), to = (size_t)(j * kv_heads + h);
            if (page) to = (size_t)((table[j / page] * kv_heads + h) * page + j % page);
            memcpy(k[1] + to * row, k[0] + from * row, row), memcpy(v[1] + to * row, v[0] + from * row, row);
        }
    near_by.q = attn_view_bhsd(q, 1, heads, 1, d), near_by.out = attn_out_bhsd(out, 1, heads, 1, d);
    near_by.workspace = must_have(workspace), near_by.workspace_bytes = workspace;
    paged = near_by, paged.out = attn_out_bhsd(again, 1, heads, 1, d);
    near_by.k = attn_view_typed(type, k[0], 4, 1, kv_heads, keys, d);
    near_by.v = attn_view_typed(type, v[0], 4, 1, kv_heads, keys, d);
    if (page) {
        paged.k = attn_view_typed(type, k[1], 4, count, kv_heads, page, d);
        paged.v = attn_view_typed(type, v[1], 4, count, kv_heads, page, d);
        paged.page_table = attn_view_i32(table, 2, 1, count, 0, 0);
    } else {
        paged.k = attn_view_swap(attn_view_typed(type, k[1], 4, 1, keys, kv_heads, d), 1, 2);
        paged.v = attn_view_swap(attn_view_typed(type, v[1], 4, 1, keys, kv_heads, d), 1, 2);
    }
    forward(&near_by), forward(&paged), must_equal(out, again, elements(1, heads, 1, d) * sizeof *out);
    work ours = {forward, &paged}, other = {forward, &near_by};
    snprintf(where, sizeof where, page ? "pages of %d" : "[B,S,H,D]", (int)page);
    snprintf(name, sizeof name, "a query, %d heads on %d, 4096 keys d128 %s, %s", (int)heads, (int)kv_heads,
             type == ATTN_F32 ? "f32" : "bf16", where);
    print_ratio(name, ours, other, bar);
    free(numbers), free(q), free(out), free(again), free(k[0]), free(k[1]), free(v[0]), free(v[1]), free(table);
    free(near_by.workspace);
}

/* ---- a cache with much room against one with little; where it is room alone, there need be no memory */
static void room(int64_t much, double bar) {
    enum { BATCH = 8, KEYS = 64, SIZE = 64, LITTLE = 1 << 14 };
    const size_t rows = elements(BATCH, HEADS, 1, SIZE), held = elements(BATCH, HEADS, KEYS, SIZE);
    float *all = random_floats(3 * rows + held), *k = all + 3 * rows; /* keys last: their view reaches far */
    int32_t lengths[BATCH];
    attn_desc little = {0}, large;
    char name[100];
    for (int b = 0; b < BATCH; b++) lengths[b] = KEYS;
    little.q = attn_view_bhsd(all, BATCH, HEADS, 1, SIZE),
    little.out = attn_out_bhsd(all + rows, BATCH, HEADS, 1, SIZE);
    little.k = attn_view_bhsd(k, BATCH, HEADS, KEYS, SIZE);
    little.k.size[2] = LITTLE, little.v = little.k, little.key_lengths = attn_view_i32(lengths, 1, BATCH, 0, 0, 0);
    large = little, large.k.size[2] = large.v.size[2] = much;
    large.out = attn_out_bhsd(all + 2 * rows, BATCH, HEADS, 1, SIZE);
    forward(&little), forward(&large), must_equal(little.out.data, large.out.data, rows * sizeof *all);
    work ours = {forward, &large}, other = {forward, &little};
    snprintf(name, sizeof name, "a query over 64 keys, room for %ld keys beside 16384", (long)much);
    print_ratio(name, ours, other, bar);
    free(all);
}

/* ---- keys in parts against all keys at once */
enum { PARTS = 8, PART = 4096 };
typedef struct cut {
    attn_desc desc[PARTS];
} cut;
static void run_cut(void *arg) {
    for (int i = 0; i < PARTS; i++) forward(&((cut *)arg)->desc[i]);
}
static void parts(int64_t queries, int64_t d, double bar) {
    const int64_t keys = PARTS * PART;
    const size_t n = elements(1, HEADS, keys, d), rows = elements(1, HEADS, queries, d), workspace = (size_t)1 << 24;
    float *q = random_floats(rows), *k = random_floats(n), *v = random_floats(n);
    float *out = random_floats(rows), *again = random_floats(rows);
    const attn_out carry = attn_out_bhsd(random_floats(elements(1, HEADS, queries, d + 2)), 1, HEADS, queries, d + 2);
    attn_desc whole = {0};
    cut each;
    char name[100];
    whole.q = attn_view_bhsd(q, 1, HEADS, queries, d), whole.k = attn_view_bhsd(k, 1, HEADS, keys, d);
    whole.v = attn_view_bhsd(v, 1, HEADS, keys, d), whole.out = attn_out_bhsd(out, 1, HEADS, queries, d);
    whole.workspace = must_have(workspace), whole.workspace_bytes = workspace;
    for (int i = 0; i < PARTS; i++) {
        attn_desc *part = &each.desc[i];
        *part = whole, memset(&part->out, 0, sizeof part->out);
        part->k = attn_view_slice(whole.k, 2, i * PART, PART), part->v = attn_view_slice(whole.v, 2, i * PART, PART);
        part->key_origin = i * PART;
        if (i > 0) part->carry_in = attn_view_of(carry);
        if (i + 1 < PARTS) part->carry_out = carry;
        else part->out = attn_out_bhsd(again, 1, HEADS, queries, d);
    }
    forward(&whole), run_cut(&each), must_equal(out, again, rows * sizeof *out);
    work in_parts = {run_cut, &each}, at_once = {forward, &whole};
    snprintf(name, sizeof name, "%d queries, 8 heads, d%d, 8 parts of 4096 keys, over one call", (int)queries, (int)d);
    print_ratio(name, in_parts, at_once, bar);
    free(q), free(k), free(v), free(out), free(again), free(carry.data), free(whole.workspace);
}

int main(void) {
    printf("%s\nbest instruction set: %s; one thread; medians of %d pairs of measurements and their middle half\n\n",
           cpu_name(), attn_isa_string(attn_best_isa()), SAMPLES);
    documents(32), documents(128), documents(512);
    pages(16, 8, 8, ATTN_F32, 0.95), pages(16, 8, 32, ATTN_F32, 0.95), pages(16, 8, 32, ATTN_BF16, 0.95);
    pages(1, 8, 8, ATTN_F32, 0.7), pages(1, 8, 32, ATTN_F32, 0.7), pages(1, 8, 32, ATTN_BF16, 0.7);
    pages(0, 8, 8, ATTN_F32, 0), pages(0, 8, 32, ATTN_F32, 0), pages(0, 8, 32, ATTN_BF16, 0);
    room((int64_t)1 << 22, 0.67), room((int64_t)1 << 26, 0.67);
    parts(64, 64, 0.97), parts(1, 128, 0.95);
    return 0;
}
