/* version_shim.c - one version of attn.h behind the functions of version.h, which know nothing of its types. Compiled
   once per version, with VERSION_HEADER its path and VERSION_NAME the one symbol that the object exports. Keeps to what
   every version since 0.2.0 has: descriptors are zeroed, then filled by name; causal rows have as many queries as keys,
   so that no alignment need be named. */
#define _GNU_SOURCE
#ifndef VERSION_HEADER
#define VERSION_HEADER "../attn.h"
#define VERSION_NAME version_new
#endif
#ifdef __clang__ /* private, but called as a user's program calls it */
#define ATTN_DEF static __attribute__((unused, noinline))
#else
#define ATTN_DEF static __attribute__((unused, noinline, noclone))
#endif
#define ATTN_IMPLEMENTATION
#define ATTN_NO_HEATMAP
#include VERSION_HEADER
#include "measure.h"
#include "version.h"

typedef struct shim {
    call call;
    attn_plan plan;
    attn_mha_desc mha;
    attn_mha_grad mha_grad;
    int32_t way, backward;
    size_t bytes;
} shim;

static int32_t isa_named(const char *name) {
    for (int32_t isa = ATTN_ISA_AUTO; isa < ATTN_ISA_COUNT; isa++) {
        float x = 0;
        if (strcmp(attn_isa_string((attn_isa)isa), name) != 0) continue;
        return attn_elementary(0, &x, &x, 1, (attn_isa)isa) == ATTN_OK ? isa : -1;
    }
    return -1;
}

/* Self-attention of [B,S,E], E = d: matrices [E,E], which alternate, and one bias. */
static attn_status prepare_mha(shim *s, const job *j) {
    attn_mha_desc *m = &s->mha;
    attn_mha_grad *g = &s->mha_grad;
    m->query = attn_view_f32(j->q, 3, j->batch, j->queries, j->d, 0);
    m->w_query = m->w_value = attn_view_f32(j->w_q, 2, j->d, j->d, 0, 0);
    m->w_key = m->w_result = attn_view_f32(j->w_k, 2, j->d, j->d, 0, 0);
    m->b_query = attn_view_f32(j->hidden_bias, 1, j->d, 0, 0, 0);
    m->out = attn_out_f32(j->out, 3, j->batch, j->queries, j->d, 0);
    m->heads = j->heads, m->attention = &s->call.desc;
    if (!s->backward) return attn_mha_workspace_size(m, &s->bytes, NULL);
    g->d_out = attn_view_f32(j->d_out, 3, j->batch, j->queries, j->d, 0);
    g->dquery = attn_out_f32(j->d_q, 3, j->batch, j->queries, j->d, 0);
    g->dw_query = attn_out_f32(j->d_w_q, 2, j->d, j->d, 0, 0), g->dw_key = attn_out_f32(j->d_w_k, 2, j->d, j->d, 0, 0);
    g->dw_value = attn_out_f32(j->d_k, 2, j->d, j->d, 0, 0), g->dw_result = attn_out_f32(j->d_v, 2, j->d, j->d, 0, 0);
    g->db_query = attn_out_f32(j->d_hidden_bias, 1, j->d, 0, 0, 0);
    return attn_mha_backward_workspace_size(m, g, &s->bytes, NULL);
}

static attn_status prepare_call(shim *s, const version_row *row, pool *threads) {
    attn_desc *d = &s->call.desc;
    attn_status status = call_prepare(&s->call, &row->job, threads);
    free(d->workspace), d->workspace = NULL, s->bytes = d->workspace_bytes, d->workspace_bytes = 0;
    if (status == ATTN_OK && row->softcap > 0) {
        d->softcap = row->softcap;
        status = attn_workspace_size(d, &s->bytes, NULL);
    }
    if (status == ATTN_OK && row->way == 'p') {
        status = attn_plan_forward(d, &s->plan, NULL);
        s->bytes = s->plan.workspace_bytes;
    }
    return status;
}

static char refusal_text[200] = "this machine lacks the instruction set";
static const char *refusal(void) { return refusal_text; }
static void keep_refusal(const shim *s) {
    attn_error err;
    memset(&err, 0, sizeof err);
    if (s->way == 'm') attn_mha(&s->mha, &err);
    else if (s->call.kind == 'b') attn_bmm(s->call.left, s->call.right, s->call.desc.out, &s->call.desc, &err);
    else if (s->call.kind == 's') attn_softmax(s->call.left, s->call.desc.out, &s->call.desc, &err);
    else if (attn_forward(&s->call.desc, &err) == ATTN_OK) attn_backward(&s->call.desc, &s->call.grad, &err);
    attn_error_string(&err, refusal_text, sizeof refusal_text);
}

static void *prepare(const version_row *row, int32_t isa, pool *threads) {
    shim *s = (shim *)calloc(1, sizeof *s);
    version_row on = *row;
    attn_status status;
    if (!s) return NULL;
    on.job.isa = isa, on.job.threads = threads->threads;
    s->way = row->way, s->backward = row->job.kind == 'g', s->call.desc.isa = isa;
    s->call.desc.parallel.run = pool_run, s->call.desc.parallel.user = threads;
    s->call.desc.parallel.workers = on.job.threads;
    status = row->way == 'm' ? prepare_mha(s, &on.job) : prepare_call(s, &on, threads);
    if (status == ATTN_OK) return s;
    keep_refusal(s);
    free(s);
    return NULL;
}
static size_t bytes(const void *s) { return ((const shim *)s)->bytes; }
static void give(void *p, void *workspace) {
    shim *s = (shim *)p;
    s->call.desc.workspace = workspace, s->call.desc.workspace_bytes = s->bytes;
}

static attn_status run_plan(const shim *s) {
    for (int32_t p = 0; p < s->plan.phases; p++)
        for (int64_t i = 0; i < s->plan.tasks[p]; i++) attn_task(&s->plan, s->call.desc.workspace, p, i, 0);
    return ATTN_OK;
}
static attn_status run_once(const shim *s) {
    attn_status status = ATTN_OK;
    size_t size;
    if (s->way == 'p') return run_plan(s);
    if (s->way == 'm' && s->backward) return attn_mha_backward(&s->mha, &s->mha_grad, NULL);
    if (s->way == 'm') return attn_mha(&s->mha, NULL);
    if (s->way == 'w') status = attn_workspace_size(&s->call.desc, &size, NULL);
    return status == ATTN_OK ? call_run(&s->call) : status;
}
static int32_t run(const void *s, int32_t times) {
    while (times-- > 0)
        if (run_once((const shim *)s) != ATTN_OK) return 0;
    return 1;
}

extern const version VERSION_NAME;
const version VERSION_NAME = {ATTN_VERSION_NUMBER, isa_named, prepare, refusal, bytes, give, run};
