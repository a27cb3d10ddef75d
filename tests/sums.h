/* sums.h - what attn_key_sums must give: sums of the reference's weights, and the error allowed. */
#ifndef ATTN_TEST_SUMS_H
#define ATTN_TEST_SUMS_H

#include "cases.h"

typedef struct sums_case {
    attn_desc d;
    attn_out sums; /* [B,H,Sk], 1 for B where the keys are packed */
    int64_t last;
    attn_view plain_k; /* the floats that keys of another type stand for; rank 0: d.k are floats */
} sums_case;

/* Does row i of the arrays count: is it one of entry b, and among its last? */
static inline int is_counted(const sums_case *s, const ref_result *r, int64_t b, int64_t i) {
    int64_t at = i - ref_entry_of(&s->d, r, b).q0, length = ref_query_length(&s->d, r, b);
    return at >= 0 && at < length && (s->last == 0 || at >= length - s->last);
}

/* Of one key: what its weights add up to, and the error that is allowed. */
static inline double sum_of_key(const sums_case *s, const ref_result *r, int64_t b, int64_t h, int64_t j,
                                double *allowed) {
    const double *weights = s->d.weights_after_dropout ? r->dropped : r->weights;
    double sum = 0;
    *allowed = 0;
    for (int64_t i = 0; i < r->sq; i++) {
        int64_t row = (b * r->h + h) * r->sq + i, at = row * r->sk + j;
        int empty = r->lse[row] == -INFINITY;
        if (!ref_has_row(&s->d, r, b, i) || !is_counted(s, r, b, i)) continue;
        if (empty && s->d.empty != ATTN_EMPTY_UNIFORM) continue;
        sum += weights[at];
        *allowed += ref_tolerance(&s->d, r, weights, row, at) + 2e-6 * weights[at];
    }
    if (s->sums.type == ATTN_BF16) *allowed += ldexp(sum, -8);
    return sum;
}

static inline int check_sums_of(const sums_case *s, const ref_result *r, int64_t b, int64_t h, const char *what) {
    attn_view got = attn_view_of(s->sums);
    int packed = r->packed_keys;
    for (int64_t j = 0; j < r->sk; j++) {
        double allowed, want = sum_of_key(s, r, b, h, j, &allowed);
        if (packed && !ref_has_key(&s->d, r, b, j)) continue;
        double value = ref_at(&got, 0, packed ? 0 : b, h, j);
        if (!CHECKF(ref_ratio((float)value, want, allowed) <= 1,
                    "%s: sums[%ld,%ld,%ld] is %.9g, want %.9g (isa %s, last %ld, seed %llu)", what, (long)b, (long)h,
                    (long)j, value, want, attn_isa_string((attn_isa)s->d.isa), (long)s->last, test_seed()))
            return 0;
    }
    return 1;
}

static inline void check_reference(const sums_case *s, const ref_result *r, const char *what) {
    for (int64_t b = 0; b < r->b; b++)
        for (int64_t h = 0; h < r->h; h++)
            if (!check_sums_of(s, r, b, h, what)) {
                ref_print(&s->d);
                return;
            }
}

#endif
