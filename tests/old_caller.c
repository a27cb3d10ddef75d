/* old_caller.c - a program built against version 0.3 (interface-0.3.h) with a library whose structures have grown:
   what lies after its own, on a page that cannot be read, counts as 0. `make check` builds it. */
#define _DEFAULT_SOURCE
#include "interface-0.3.h"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { B = 2, S = 3, D = 4, H = 2, N = B * H * S * D };
static float q[N], k[N], v[N], out[N], again[N], weights[B * H * S * S], w[4 * D * D], gradient[4][N];
static int failures;

#define EXPECT(x) \
    do { \
        if (!(x)) printf("line %d: %s\n", __LINE__, #x), failures++; \
    } while (0)
static void must(attn_status status, const attn_error *err, int line) {
    if (status == ATTN_OK) return;
    printf("line %d: %s (%s %s)\n", line, attn_status_string(status), err->field, err->rule);
    failures++;
}
#define MUST(call) must(call, &err, __LINE__)

/* A structure of zeros that ends where memory does. */
static void *at_the_end(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *p = (char *)mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == (char *)MAP_FAILED || mprotect(p + 2 * page, page, PROT_NONE)) return NULL;
    uint64_t n = bytes;
    char *at = p + 2 * page - bytes;
    memcpy(at, &n, sizeof n);
    return at;
}

static int write_nothing(void *user, const char *bytes, size_t count) {
    (void)bytes;
    *(size_t *)user += count;
    return 0;
}

static void heads(const attn_desc *attention, const attn_grad *own) {
    attn_error err;
    size_t bytes;
    attn_mha_desc *m = (attn_mha_desc *)at_the_end(sizeof *m);
    attn_mha_grad *g = (attn_mha_grad *)at_the_end(sizeof *g);
    m->query = attn_view_f32(q, 3, B, S, D, 0);
    m->w_query = m->w_key = m->w_value = m->w_result = attn_view_f32(w, 2, D, D, 0, 0);
    m->out = attn_out_f32(out, 3, B, S, D, 0);
    m->heads = H;
    m->attention = attention;
    MUST(attn_mha_workspace_size(m, &bytes, &err));
    MUST(attn_mha(m, &err));
    g->d_out = attn_view_f32(v, 3, B, S, D, 0);
    g->dquery = attn_out_f32(gradient[0], 3, B, S, D, 0);
    g->attention = own;
    MUST(attn_mha_backward_workspace_size(m, g, &bytes, &err));
    MUST(attn_mha_backward(m, g, &err));
    m->struct_bytes -= sizeof(void *); /* less than any version had */
    EXPECT(attn_mha(m, &err) == ATTN_ERR_OPTION && !strcmp(err.field, "struct_bytes"));
}

static void pieces(attn_desc *options) {
    attn_error err;
    size_t bytes;
    attn_view x = attn_view_f32(weights, 4, B, H, S, S);
    attn_out y = attn_out_f32(again, 4, B, H, S, S);
    options->causal = 1;
    MUST(attn_softmax(x, y, options, &err));
    MUST(attn_softmax_workspace_size(x, y, options, &bytes, &err));
    MUST(attn_softmax_backward(x, x, y, options, &err));
    MUST(attn_scores(attn_view_bhsd(q, B, H, S, D), attn_view_bhsd(k, B, H, S, D), y, options, &err));
    MUST(attn_bmm(x, x, y, options, &err));
    MUST(attn_bmm_backward(x, x, x, y, attn_out_f32(out, 4, B, H, S, S), 0, options, &err));
    MUST(attn_mask(attn_out_u8((uint8_t *)again, 4, B, H, S, S), options, &err));
    MUST(attn_dropout_mask(attn_out_u8((uint8_t *)again, 4, B, H, S, S), options, &err));
}

int main(void) {
    attn_error err;
    attn_desc *d = (attn_desc *)at_the_end(sizeof *d);
    attn_grad *g = (attn_grad *)at_the_end(sizeof *g), *own = (attn_grad *)at_the_end(sizeof *own);
    attn_heatmap *map = (attn_heatmap *)at_the_end(sizeof *map);
    size_t bytes, drawn = 0;
    attn_writer writer = {write_nothing, NULL};
    char text[400];
    writer.user = &drawn;
    if (!d || !g || !own || !map) return 1;
    for (int i = 0; i < N; i++) q[i] = (float)(i % 7), k[i] = (float)(i % 5), v[i] = (float)(i % 3);
    for (int i = 0; i < 4 * D * D; i++) w[i] = (float)(i % 2);
    d->q = attn_view_bhsd(q, B, H, S, D);
    d->k = attn_view_bhsd(k, B, H, S, D);
    d->v = attn_view_bhsd(v, B, H, S, D);
    d->out = attn_out_bhsd(out, B, H, S, D);
    d->weights = attn_out_bhsd(weights, B, H, S, S);
    MUST(attn_workspace_size(d, &bytes, &err));
    MUST(attn_forward(d, &err));
    attn_desc whole = *d; /* the same, said by 0: of one version with the library, so with room for what has grown */
    struct {
        attn_desc d;
        char grown[1000];
    } now;
    memset(&now, 0, sizeof now);
    now.d = whole;
    now.d.struct_bytes = 0;
    now.d.out.data = again;
    MUST(attn_forward(&now.d, &err));
    EXPECT(!memcmp(out, again, sizeof out));
    now.d.struct_bytes = sizeof now; /* a newer caller: what is not known here must be 0 */
    MUST(attn_forward(&now.d, &err));
    now.grown[sizeof now.grown - 1] = 1;
    EXPECT(attn_forward(&now.d, &err) == ATTN_ERR_OPTION && !strcmp(err.field, "struct_bytes"));
    EXPECT(attn_explain(d, text, sizeof text) > 20 && !strstr(text, "refused"));
    g->d_out = attn_view_bhsd(q, B, H, S, D);
    g->dq = attn_out_bhsd(gradient[1], B, H, S, D);
    MUST(attn_backward_workspace_size(d, g, &bytes, &err));
    MUST(attn_backward(d, g, &err));
    EXPECT(attn_explain_backward(d, g, text, sizeof text) > 20 && !strstr(text, "refused"));
    map->values = attn_view_f32(weights, 4, B, H, S, S);
    MUST(attn_heatmap_svg(map, writer, &err));
    MUST(attn_heatmap_ppm(map, writer, &err));
    map->values = attn_view_u8(NULL, 4, B, H, S, S);
    attn_desc *options = (attn_desc *)at_the_end(sizeof *options);
    map->mask_of = options;
    MUST(attn_heatmap_ansi(map, writer, &err));
    EXPECT(drawn > 100);
    heads(options, own);
    pieces(options);
    if (!failures) printf("an old caller: ok\n");
    return failures != 0;
}
