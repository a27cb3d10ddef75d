/* saved.h - multi-head attention and its gradients with what attn_mha leaves for them in `saved`: the bits of the same
   calls without. */
#ifndef ATTN_SAVED_H
#define ATTN_SAVED_H

#include "grads.h"

enum { MHA_RESULTS = 11 };
static inline attn_out *mha_gradient(attn_mha_grad *g, int n) {
    return (attn_out *)(void *)((char *)g + offsetof(attn_mha_grad, dquery)) + n;
}

/* A call with results of its own, which hold what the given ones do: for those that are added to. */
typedef struct saved_call {
    attn_mha_desc m;
    attn_mha_grad g;
    attn_desc options;
    attn_grad inside;
} saved_call;
static inline void copy_mha(saved_call *to, const attn_mha_desc *m, const attn_mha_grad *g) {
    memset(to, 0, sizeof *to);
    to->m = *m, to->g = *g;
    if (m->attention) to->options = copy_results(m->attention);
    memset(&to->options.stats, 0, sizeof to->options.stats);
    to->m.attention = &to->options;
    to->m.out = copy_out(&m->out);
    poison(&to->m.out);
    for (int n = 0; n < MHA_RESULTS; n++) *mha_gradient(&to->g, n) = copy_out(mha_gradient(&to->g, n));
    if (!g->attention) return;
    to->inside = *g->attention;
    for (int n = 0; n < GRAD_COUNT; n++) *grad_of(&to->inside, n) = copy_out(grad_of(&to->inside, n));
    to->g.attention = &to->inside;
}

/* At any alignment, as many bytes as are asked for; those around it must stay as they are. NULL: on a device, where
   it is refused. */
static inline unsigned char *give_saved(attn_mha_desc *m) {
    size_t off = (size_t)test_int(0, 63);
    const attn_status st = attn_mha_saved_size(m, &m->saved_bytes, 0);
    if (st == ATTN_ERR_PLACE || !CHECK_STATUS(st, ATTN_OK)) return 0;
    unsigned char *at = (unsigned char *)(test_int(0, 1) ? test_guarded(m->saved_bytes + 2 * off)
                                                         : test_guarded_low(m->saved_bytes + 2 * off));
    m->saved = at + off;
    return at;
}

/* Both calls, in a workspace of exactly the size asked for, by so many workers (0: without any). */
static inline int run_mha(saved_call *c, int32_t workers) {
    attn_error err;
    size_t bytes = 0;
    attn_status st;
    if (workers) c->options.parallel.run = run_shuffled;
    c->options.parallel.user = &workers, c->options.parallel.workers = workers;
    for (int backward = 0; backward < 2; backward++) {
        st = backward ? attn_mha_backward_workspace_size(&c->m, &c->g, &bytes, &err)
                      : attn_mha_workspace_size(&c->m, &bytes, &err);
        c->options.workspace = test_guarded(bytes + 1), c->options.workspace_bytes = bytes;
        if (st == ATTN_OK) st = backward ? attn_mha_backward(&c->m, &c->g, &err) : attn_mha(&c->m, &err);
        if (!CHECKF(st == ATTN_OK, "%s: refused: %s %s", backward ? "backward" : "forward", err.field, err.rule))
            return 0;
    }
    return 1;
}

static inline void same_mha(saved_call *a, saved_call *b) {
    check_same(&a->m.out, &b->m.out, "out with saved");
    for (int n = 0; n < RESULT_COUNT; n++)
        check_same(result_of(&a->options, n), result_of(&b->options, n), "a result with saved");
    for (int n = 0; n < MHA_RESULTS; n++)
        check_same(mha_gradient(&a->g, n), mha_gradient(&b->g, n), "a gradient from saved");
    for (int n = 0; n < GRAD_COUNT; n++)
        check_same(grad_of(&a->inside, n), grad_of(&b->inside, n), "a gradient inside, from saved");
}

/* What m and g say, without `saved` and with it. The latter's gradients are made twice: they only read it. */
static inline void check_saved(const attn_mha_desc *m, const attn_mha_grad *g) {
    saved_call plain, with, again;
    const int32_t workers = (int32_t)test_int(0, 4);
    copy_mha(&plain, m, g), copy_mha(&with, m, g), copy_mha(&again, m, g);
    unsigned char *at = give_saved(&with.m), *saved = (unsigned char *)with.m.saved;
    if (!at || !run_mha(&plain, 0) || !run_mha(&with, workers)) return;
    same_mha(&plain, &with);
    size_t bytes = with.m.saved_bytes, off = (size_t)(saved - at);
    unsigned char *copy = (unsigned char *)malloc(bytes + 1);
    if (!copy) abort();
    memcpy(copy, saved, bytes);
    again.m.saved = saved, again.m.saved_bytes = bytes;
    CHECK_STATUS(attn_mha_backward(&again.m, &again.g, 0), ATTN_OK);
    again.m.out = with.m.out, again.options = with.options;
    same_mha(&plain, &again);
    CHECK(!memcmp(copy, saved, bytes));
    free(copy);
    int clean = 1;
    for (size_t i = 0; i < off; i++) clean &= at[i] == 0xFF && saved[bytes + i] == 0xFF;
    CHECKF(clean, "wrote beside %lu saved bytes", (unsigned long)bytes);
}
#endif
