/* peers_ggml.c - what peers.py calls of ggml: its attention on the CPU, ggml_flash_attn_ext, as a graph of one node,
   with a thread pool of ggml's own. Where ggml's headers are not at hand there is nothing in it. */
#include "work.h"
#ifdef __has_include
#if __has_include("ggml-cpu.h")
#include "ggml-cpu.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static struct ggml_cgraph *graph;
static struct ggml_cplan plan;

static struct ggml_tensor *array(struct ggml_context *context, enum ggml_type type, const void *data, int64_t batch,
                                 int64_t heads, int64_t rows, int64_t columns) {
    struct ggml_tensor *t = ggml_new_tensor_4d(context, type, columns, rows, heads, batch);
    t->data = (void *)data;
    return t;
}

/* Queries and out are f32, out [B,Sq,H,Dv]; keys and values as the row stores them, 8 bits as ggml's blocks. mask: what
   is added to the scores, f16 [masks,1,Sq,Sk]; NULL: nothing. */
int ggml_start(const job *j, const void *mask, int masks) {
    struct ggml_init_params memory = {ggml_graph_overhead() + 16 * ggml_tensor_overhead(), NULL, true};
    struct ggml_context *c = ggml_init(memory);
    struct ggml_threadpool_params threads = ggml_threadpool_params_default(j->threads);
    struct ggml_threadpool *pool = ggml_threadpool_new(&threads);
    enum ggml_type type = j->type == 0           ? GGML_TYPE_F32
                          : j->type == WORK_F16  ? GGML_TYPE_F16
                          : j->type == WORK_BF16 ? GGML_TYPE_BF16
                                                 : GGML_TYPE_Q8_0;
    struct ggml_tensor *q, *k, *v, *m, *out;
    if (!c || !pool) return 1;
    ggml_cpu_init();
    q = array(c, GGML_TYPE_F32, j->q, j->batch, j->heads, j->queries, j->d);
    k = array(c, type, j->k, j->batch, j->kv_heads, j->keys, j->d);
    v = array(c, type, j->v, j->batch, j->kv_heads, j->keys, j->dv);
    m = mask ? array(c, GGML_TYPE_F16, mask, masks, 1, j->queries, j->keys) : NULL;
    out = ggml_flash_attn_ext(c, q, k, v, m, 1 / sqrtf((float)j->d), 0, 0);
    out->data = j->out;
    graph = ggml_new_graph(c);
    ggml_build_forward_expand(graph, out);
    plan = ggml_graph_plan(graph, j->threads, pool);
    plan.work_data = (uint8_t *)malloc(plan.work_size + 1);
    return !plan.work_data;
}
void ggml_call(const job *j) {
    (void)j;
    if (ggml_graph_compute(graph, &plan) != GGML_STATUS_SUCCESS) abort();
}
const char *ggml_name(void) {
    static char name[100];
    snprintf(name, sizeof name, "ggml %s of %s", ggml_version(), GGML_PACKAGE);
    return name;
}
/* Its helpers sleep until the next call: else they would spin into the others' samples. */
void ggml_rest(void) { ggml_threadpool_pause(plan.threadpool); }
#endif
#endif
