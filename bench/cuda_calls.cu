/* Sequences, options and types on a device, each beside its plain call: rates of both, their ratio, medians of rounds
   in which both take their samples in turn. Rates are those of the plain call's operations (a causal call counts half)
   or, in a decode, of its bytes of k and v, so that the ratio is one of times. Where the plain call has the same
   results their bits are compared. */
#include "../examples/cuda/device.h"
#include <algorithm>
#include <vector>

enum { HEADS = 16, SIZE = 128, ROUNDS = 9 };
static cudaStream_t stream;
static const char *const *only;
static int only_count, failures;

/* ---- calls */
struct job {
    attn_desc d = {};
    attn_grad g = {};
    bool backward = false;
};
static uint16_t to_bf16(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
static void *random_halves(size_t n) {
    std::vector<float> x(n);
    std::vector<uint16_t> y(n);
    fill_random(x.data(), n);
    for (size_t i = 0; i < n; i++) y[i] = to_bf16(x[i]);
    return on_device(y.data(), n * 2);
}
static void *memory(size_t bytes) {
    void *p = on_device(NULL, bytes);
    must_cuda(cudaMemset(p, 0, bytes), "cudaMemset");
    return p;
}
static attn_out rows_of(void *data, int64_t batch, int64_t rows, int64_t heads, int64_t size = SIZE) {
    attn_out o = attn_out_bshd((float *)data, batch, rows, heads, size);
    o.type = ATTN_BF16;
    return o;
}
static attn_view ints(const std::vector<int32_t> &x) {
    return attn_view_i32((const int32_t *)on_device(x.data(), x.size() * 4), 1, (int64_t)x.size(), 0, 0, 0);
}
/* Arrays of heads side by side in each row, so that a batch and the same entries packed are the same memory. */
static job self(int64_t batch, int64_t rows, bool causal, bool backward) {
    static void *arrays[8];
    const int64_t n = batch * rows * HEADS * SIZE;
    job j;
    if (!arrays[0])
        for (int i = 0; i < 8; i++) arrays[i] = random_halves((size_t)4 * 4096 * HEADS * SIZE);
    if (n > (int64_t)4 * 4096 * HEADS * SIZE) exit(1);
    j.d.q = attn_view_of(rows_of(arrays[0], batch, rows, HEADS));
    j.d.k = attn_view_of(rows_of(arrays[1], batch, rows, HEADS));
    j.d.v = attn_view_of(rows_of(arrays[2], batch, rows, HEADS));
    j.d.out = rows_of(arrays[3], batch, rows, HEADS);
    j.d.stats = attn_out_f32((float *)memory((size_t)(batch * rows * HEADS) * 8), 4, batch, HEADS, rows, 2);
    j.d.causal = causal, j.d.align = ATTN_ALIGN_TOP_LEFT;
    j.d.stream = stream;
    j.g.d_out = attn_view_of(rows_of(arrays[4], batch, rows, HEADS));
    j.g.dq = rows_of(arrays[5], batch, rows, HEADS);
    j.g.dk = rows_of(arrays[6], batch, rows, HEADS);
    j.g.dv = rows_of(arrays[7], batch, rows, HEADS);
    j.backward = backward;
    return j;
}
static job packed(int64_t batch, int64_t rows, bool causal, bool backward) {
    job j = self(1, batch * rows, causal, backward);
    std::vector<int32_t> starts, lengths;
    for (int64_t b = 0; b < batch; b++) starts.push_back((int32_t)(b * rows)), lengths.push_back((int32_t)rows);
    j.d.query_starts = j.d.key_starts = ints(starts);
    j.d.query_lengths = j.d.key_lengths = ints(lengths);
    return j;
}
/* Entries that begin where the batch's do: what starts cost where they change nothing */
static job with_starts(int64_t batch, int64_t rows, bool causal, bool backward) {
    job j = self(batch, rows, causal, backward);
    j.d.query_starts = j.d.key_starts = ints(std::vector<int32_t>((size_t)batch, 0));
    return j;
}
enum { TEXTS = 32, KV = 8, GROUP = 4, KEYS = 8192 };
static job decode(int page, bool codes, int groups) {
    static void *halves[2], *bytes[2], *scales[2], *small[2];
    const size_t n = (size_t)TEXTS * KV * KEYS * SIZE;
    const int64_t texts = page ? TEXTS * KEYS / page : TEXTS, rows = page ? page : KEYS;
    job j;
    for (int i = 0; i < 2 && !small[i]; i++) {
        std::vector<int8_t> x(n);
        std::vector<float> s(n / 32, 0.01f);
        for (size_t k = 0; k < n; k++) x[k] = (int8_t)(k * 2654435761u >> 24);
        halves[i] = random_halves(n);
        bytes[i] = on_device(x.data(), n), scales[i] = on_device(s.data(), s.size() * 4);
        small[i] = random_halves((size_t)TEXTS * KV * GROUP * SIZE);
    }
    const attn_type type = codes ? ATTN_I8 : ATTN_BF16;
    j.d.q = attn_view_typed(ATTN_BF16, small[0], 4, TEXTS, KV * GROUP, 1, SIZE);
    j.d.out = attn_out_typed(ATTN_BF16, small[1], 4, TEXTS, KV * GROUP, 1, SIZE);
    j.d.k = attn_view_typed(type, codes ? bytes[0] : halves[0], 4, texts, KV, rows, SIZE);
    j.d.v = attn_view_typed(type, codes ? bytes[1] : halves[1], 4, texts, KV, rows, SIZE);
    if (codes) j.d.k_scale = attn_view_f32((const float *)scales[0], 4, texts, KV, rows, groups);
    if (codes) j.d.v_scale = attn_view_f32((const float *)scales[1], 4, texts, KV, rows, groups);
    if (page) {
        std::vector<int32_t> table((size_t)texts);
        for (int64_t i = 0; i < texts; i++) table[(size_t)i] = (int32_t)(i * 7919 % texts);
        j.d.page_table = ints(table);
        j.d.page_table.rank = 2, j.d.page_table.size[0] = TEXTS, j.d.page_table.size[1] = KEYS / page;
        j.d.page_table.stride[0] = KEYS / page, j.d.page_table.stride[1] = 1;
        j.d.key_lengths = ints(std::vector<int32_t>(TEXTS, KEYS));
    }
    j.d.stream = stream;
    return j;
}
/* The last tokens of each of these texts, 512 or fewer */
static job prefill(int page, int64_t tokens = 512, bool codes = false) {
    static void *small[2];
    job j = decode(page, codes, 1);
    for (int i = 0; i < 2 && !small[i]; i++) small[i] = random_halves((size_t)TEXTS * KV * GROUP * 512 * SIZE);
    j.d.q = attn_view_typed(ATTN_BF16, small[0], 4, TEXTS, KV * GROUP, tokens, SIZE);
    j.d.out = attn_out_typed(ATTN_BF16, small[1], 4, TEXTS, KV * GROUP, tokens, SIZE);
    j.d.causal = 1, j.d.align = ATTN_ALIGN_BOTTOM_RIGHT;
    return j;
}

/* ---- time */
static void prepare(job &j) {
    attn_error err;
    size_t bytes = 0;
    j.d.workspace = NULL, j.d.workspace_bytes = 0;
    must_attn(j.backward ? attn_backward_workspace_size(&j.d, &j.g, &bytes, &err)
                         : attn_workspace_size(&j.d, &bytes, &err),
              &err, "a workspace");
    j.d.workspace = memory(bytes + 256), j.d.workspace_bytes = bytes;
}
static void run(job &j, const char *name) {
    attn_error err;
    must_attn(j.backward ? attn_backward(&j.d, &j.g, &err) : attn_forward(&j.d, &err), &err, name);
}
static double sample(job &j, int calls, const char *name) {
    static cudaEvent_t start, end;
    float milliseconds = 0;
    if (!start) must_cuda(cudaEventCreate(&start), "an event"), must_cuda(cudaEventCreate(&end), "an event");
    must_cuda(cudaEventRecord(start, stream), "an event");
    for (int i = 0; i < calls; i++) run(j, name);
    must_cuda(cudaEventRecord(end, stream), "an event");
    must_cuda(cudaEventSynchronize(end), name);
    must_cuda(cudaEventElapsedTime(&milliseconds, start, end), "an event");
    return milliseconds / 1e3 / calls;
}
static int calls_for(job &j, const char *name) { /* so many take a few milliseconds */
    sample(j, 1, name);
    return (int)std::min(50.0, 1 + 3e-3 / sample(j, 2, name));
}
static std::vector<unsigned char> results_of(job &j, const char *name) {
    const attn_out *const all[3] = {j.backward ? &j.g.dq : &j.d.out, &j.g.dk, &j.g.dv};
    std::vector<unsigned char> bytes;
    run(j, name);
    must_cuda(cudaStreamSynchronize(stream), name);
    for (int i = 0; i < (j.backward ? 3 : 1); i++) {
        const attn_out &a = *all[i];
        const size_t n = (size_t)(a.size[0] * a.size[1] * a.size[2] * a.size[3]) * 2, before = bytes.size();
        bytes.resize(before + n);
        to_host(bytes.data() + before, a.data, n);
    }
    return bytes;
}
/* work: of the plain call, in operations or bytes; same: both have the same results */
static void row(const char *name, job plain, job with, double work, bool same) {
    std::vector<double> times[2], ratios;
    bool wanted = only_count == 0;
    for (int i = 0; i < only_count; i++) wanted = wanted || strstr(name, only[i]);
    if (!wanted) return;
    job *const both[2] = {&plain, &with};
    int calls[2];
    std::vector<unsigned char> bits[2];
    for (int i = 0; i < 2; i++) {
        prepare(*both[i]);
        if (both[i]->backward) {
            job forward = *both[i];
            forward.backward = false;
            prepare(forward);
            run(forward, name);
            must_cuda(cudaStreamSynchronize(stream), name);
            cudaFree(forward.d.workspace);
        }
        if (same) bits[i] = results_of(*both[i], name);
        calls[i] = calls_for(*both[i], name);
    }
    for (int n = 0; n < ROUNDS; n++) {
        for (int i = 0; i < 2; i++) times[i].push_back(sample(*both[i], calls[i], name));
        ratios.push_back(times[0].back() / times[1].back());
    }
    for (std::vector<double> &t : times) std::sort(t.begin(), t.end());
    std::sort(ratios.begin(), ratios.end());
    const double unit = work > 1e11 ? 1e12 : 1e9;
    char text[200] = "";
    if (both[1]->backward) attn_explain_backward(&with.d, &with.g, text, sizeof text);
    else attn_explain(&with.d, text, sizeof text);
    text[60] = 0;
    const bool equal = !same || bits[0] == bits[1];
    failures += !equal;
    printf("%-44s %7.1f plain %7.1f, %.2f%s  %s\n", name, work / times[1][ROUNDS / 2] / unit,
           work / times[0][ROUNDS / 2] / unit, ratios[ROUNDS / 2],
           !same   ? ""
           : equal ? ", same bits"
                   : ", OTHER BITS",
           text);
    fflush(stdout);
    cudaFree(plain.d.workspace), cudaFree(with.d.workspace);
}

int main(int argc, char **argv) {
    cudaDeviceProp device;
    only = argv + 1, only_count = argc - 1;
    must_cuda(cudaGetDeviceProperties(&device, 0), "the device");
    must_cuda(cudaStreamCreate(&stream), "a stream");
    printf("%s; TFLOP/s, or in a decode GB/s; 16 heads of 128 in bf16; decode, prefill 32 x 32/8 heads, 8k keys\n",
           device.name);
    const double bytes = 2.0 * TEXTS * KV * KEYS * SIZE * 2;
    row("decode, pages of 16", decode(0, false, 0), decode(16, false, 0), bytes, false);
    row("decode, pages of 64", decode(0, false, 0), decode(64, false, 0), bytes, false);
    row("decode, pages of 128", decode(0, false, 0), decode(128, false, 0), bytes, false);
    row("decode, int8, a scale per row", decode(0, false, 0), decode(0, true, 1), bytes, false);
    row("decode, int8, a scale per 32", decode(0, false, 0), decode(0, true, 4), bytes, false);
    row("decode, int8, a scale per row, pages of 16", decode(0, false, 0), decode(16, true, 1), bytes, false);
    row("decode of 8 tokens, int8", prefill(0, 8), prefill(0, 8, true), bytes, false);
    row("decode of 16 tokens, int8", prefill(0, 16), prefill(0, 16, true), bytes, false);
    const double prefilled = 4.0 * SIZE * TEXTS * KV * GROUP * 512 * (KEYS - 256);
    row("prefill of 512, pages of 16", prefill(0), prefill(16), prefilled, false);
    row("prefill of 512, pages of 128", prefill(0), prefill(128), prefilled, false);
    row("prefill of 32, int8", prefill(0, 32), prefill(0, 32, true), prefilled / 16, false);
    row("prefill of 512, int8", prefill(0), prefill(0, 512, true), prefilled, false);
    for (int backward = 0; backward < 2; backward++) {
        const char *const pass = backward ? "backward" : "forward";
        const double per_pair = backward ? 10.0 * SIZE : 4.0 * SIZE;
        const auto pairs = [&](double batch, double rows) { return batch * HEADS * rows * rows * per_pair; };
        const auto called = [&](const char *what) {
            static char name[100];
            snprintf(name, sizeof name, "%s, %s", pass, what);
            return name;
        };
        row(called("packed 16 x 1024, causal"), self(16, 1024, true, backward), packed(16, 1024, true, backward),
            pairs(16, 1024) / 2, true);
        row(called("packed 4 x 4096, causal"), self(4, 4096, true, backward), packed(4, 4096, true, backward),
            pairs(4, 4096) / 2, true);
        row(called("packed 256 x 64, causal"), self(256, 64, true, backward), packed(256, 64, true, backward),
            pairs(256, 64) / 2, true);
        row(called("16 x 1024 with starts, causal"), self(16, 1024, true, backward),
            with_starts(16, 1024, true, backward), pairs(16, 1024) / 2, true);
        job batch = self(16, 1024, true, backward), documents = packed(16, 1024, true, backward);
        batch.d.dropout = documents.d.dropout = 0.1f, batch.d.seed = documents.d.seed = 1;
        row(called("packed 16 x 1024, causal, dropout in both"), batch, documents, pairs(16, 1024) / 2, true);
        static void *bias = random_halves((size_t)4096 * 4096), *mask = NULL, *blocks = NULL;
        if (!mask) {
            std::vector<uint8_t> m((size_t)4096 * 4096);
            for (size_t i = 0; i < m.size(); i++) m[i] = i / 4096 / 2048 == i % 4096 / 2048;
            blocks = on_device(m.data(), m.size());
            for (size_t i = 0; i < m.size(); i++) m[i] = i * 2654435761u >> 31 & 1;
            mask = on_device(m.data(), m.size());
        }
        const job plain = self(4, 4096, false, backward);
        job with = plain;
        with.d.bias = attn_view_typed(ATTN_BF16, bias, 2, 4096, 4096, 0, 0);
        row(called("4k, bias"), plain, with, pairs(4, 4096), false);
        with = plain;
        with.d.mask = attn_view_u8((const uint8_t *)mask, 2, 4096, 4096, 0, 0);
        row(called("4k, mask"), plain, with, pairs(4, 4096), false);
        with.d.mask = attn_view_u8((const uint8_t *)blocks, 2, 4096, 4096, 0, 0); /* two documents */
        row(called("4k, mask of half the blocks"), plain, with, pairs(4, 4096), false);
        with = plain;
        with.d.dropout = 0.1f, with.d.seed = 1;
        row(called("4k, dropout"), plain, with, pairs(4, 4096), false);
        with = plain;
        with.d.softcap = 2;
        row(called("4k, softcap"), plain, with, pairs(4, 4096), false);
    }
    printf("%d results have other bits than those of the plain call\n", failures);
    return failures != 0;
}
