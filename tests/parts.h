/* parts.h - a call cut into parts of its keys, run one after the other with what they carry: for parts.c, and for the
   fuzzer, which draws other calls. */
#ifndef ATTN_PARTS_H
#define ATTN_PARTS_H

#include "grads.h"

enum { MOST_PARTS = 8 };
typedef struct cuts {
    int64_t at[MOST_PARTS + 1]; /* the keys that each part begins with, and where the last one ends */
    int count;
} cuts;
static inline cuts draw_cuts(int64_t keys) {
    cuts c = {{0}, 0};
    do {
        c.at[c.count + 1] = c.at[c.count] + ATTN_PART_KEYS * test_int(test_int(0, 5) > 0, 2); /* a part may be empty */
        c.count++;
    } while (c.at[c.count] < keys && c.count < MOST_PARTS);
    c.at[c.count] = keys;
    return c;
}

/* ---- one part of a call, its keys first .. end of each entry */
static inline int64_t within(int64_t keys, int64_t first, int64_t end) {
    int64_t n = (keys < end ? keys : end) - first;
    return n > 0 ? n : 0;
}
static inline attn_view lengths_within(const attn_view *lengths, int64_t first, int64_t end) {
    attn_view v = copy_view(lengths, LAYOUT_MIXED);
    int64_t index[4] = {0, 0, 0, 0}, low, high;
    if (!view_extent(&v, &low, &high)) return v;
    do put(&v, offset_of(&v, index), (double)within(ref_int(&v, index[0], index[1]), first, end));
    while (next_index(&v, index));
    return v;
}
/* By views of the keys: everything that has them is cut. */
static inline void cut_views(attn_desc *d, int64_t first, int64_t end) {
    attn_view *keys[] = {&d->k, &d->v, &d->k_scale, &d->v_scale};
    for (int n = 0; n < 4; n++)
        if (keys[n]->rank) *keys[n] = attn_view_slice(*keys[n], 2, first, end - first);
    if (d->given_scores.rank) d->given_scores = attn_view_slice(d->given_scores, 3, first, end - first);
    *ref_bias_of_pairs(d) = cut_broadcast(*ref_bias_of_pairs(d), 3, first, end - first);
    d->mask = cut_broadcast(d->mask, 3, first, end - first);
    if (d->key_lengths.rank) d->key_lengths = lengths_within(&d->key_lengths, first, end);
}
/* By where the keys of each entry begin and how many they are: no array is cut. */
static inline void cut_starts(attn_desc *d, int64_t first, int64_t end) {
    attn_view starts, lengths;
    ref_result r;
    ref_sizes(d, &r);
    starts = make_view(draw_int_type(), LAYOUT_MIXED, 1, r.b, 0, 0, 0);
    lengths = make_view(draw_int_type(), LAYOUT_MIXED, 1, r.b, 0, 0, 0);
    for (int64_t b = 0; b < r.b; b++) {
        int64_t start = r.has_entries ? r.entries[b].k0 : 0, keys = r.has_entries ? r.entries[b].k : r.sk;
        if (d->key_lengths.rank == 1) keys = ref_int(&d->key_lengths, b, 0);
        put_at(&starts, 0, 0, 0, b, (double)(start + (first < keys ? first : keys)));
        put_at(&lengths, 0, 0, 0, b, (double)within(keys, first, end));
    }
    attn_view *added[] = {ref_bias_of_pairs(d), &d->mask};
    for (int n = 0; n < 2 && (r.packed_rows || r.packed_keys); n++) { /* columns count from the part's first key */
        const int64_t columns = added[n]->rank ? added[n]->size[added[n]->rank - 1] : 0;
        *added[n] = cut_broadcast(*added[n], 3, first < columns ? first : columns, within(columns, first, columns));
    }
    if (d->key_lengths.rank == 2) d->key_lengths = lengths_within(&d->key_lengths, first, end);
    else d->key_lengths = lengths;
    d->key_starts = starts;
}
static inline attn_desc cut(const attn_desc *d, int64_t first, int64_t end, int by_starts) {
    attn_desc part = *d;
    if (by_starts) cut_starts(&part, first, end);
    else cut_views(&part, first, end);
    part.key_origin = first;
    return part;
}

/* ---- running them */
static inline attn_out make_carry(const attn_desc *d) {
    ref_result r;
    ref_sizes(d, &r);
    attn_out carry = make_out(test_int(0, 1) ? LAYOUT_PACKED : LAYOUT_MIXED, 4, r.rows_b, r.h, r.sq, r.dv + 2);
    poison(&carry);
    return carry;
}
static inline int run_somehow(attn_desc *d, const char *what) {
    attn_plan plan;
    if (d->precision == ATTN_PRECISION_F32) d->isa = test_isa(test_int(0, test_isa_count() - 1));
    if (test_int(0, 1) && attn_plan_forward(d, &plan, NULL) == ATTN_OK) return run_planned(d, test_int(1, 3));
    return run_desc(d, what);
}
static inline void without_results(attn_desc *d) {
    for (int n = 0; n < RESULT_COUNT; n++) memset(result_of(d, n), 0, sizeof(attn_out));
}
/* What a call gives of all keys so far: without its sink, which counts at the end. */
static inline void check_so_far(const attn_desc *whole, const attn_desc *part, int64_t end, int by_starts) {
    attn_desc so_far = cut(whole, 0, end, by_starts), got = copy_results(part);
    so_far.sink.rank = 0, so_far.sink.data = NULL;
    poison_results(&so_far);
    if (!run_somehow(&so_far, "the keys so far") || check_same_results(&so_far, &got, "the keys so far")) return;
    ref_print(whole);
}
/* The results of `d` by parts. */
static inline void run_parts(const attn_desc *d, const cuts *c, int by_starts) {
    attn_out carry[2] = {make_carry(d), make_carry(d)};
    int at = 0, first_carries = test_int(0, 3) == 0;
    attn_view none = attn_view_of(carry[0]);
    if (first_carries) { /* the carry of rows without mass is one to begin with */
        ref_result r;
        ref_sizes(d, &r);
        fill(&none, draw_normal, 0, 0);
        none = attn_view_slice(none, 3, r.dv, 1);
        fill(&none, draw_normal, -INFINITY, 0);
    }
    for (int n = 0; n < c->count; n++) {
        attn_desc part = cut(d, c->at[n], c->at[n + 1], by_starts);
        int so_far = test_int(0, 3) == 0, in_place = test_int(0, 2) == 0 && n > 0;
        if (n > 0 || first_carries) part.carry_in = attn_view_of(carry[at]);
        if (n + 1 < c->count) {
            at = in_place ? at : 1 - at;
            part.carry_out = carry[at];
            if (!so_far) without_results(&part);
        }
        poison_results(&part);
        if (!run_somehow(&part, "a part")) return;
        CHECK(gaps_untouched(&carry[at]));
        if (n + 1 < c->count && so_far) check_so_far(d, &part, c->at[n + 1], by_starts);
    }
}

/* ---- gradients: with the stats and the out of the whole. What belongs to keys has its bits, the rest adds up. */
static inline unsigned of_keys(const attn_desc *d) {
    unsigned set = 1u << GRAD_K | 1u << GRAD_V | 1u << GRAD_GIVEN;
    if (d->bias.rank && !d->bias_index.rank && d->bias.size[d->bias.rank - 1] > 1) set |= 1u << GRAD_BIAS;
    return set;
}
/* The gradients of the part with keys first .. end, in their places; `adds` to what those before it left. */
static inline call cut_call(const call *c, int64_t first, int64_t end, unsigned adds) {
    call part = *c;
    part.d = cut(&c->d, first, end, 0);
    for (int n = 0; n < GRAD_COUNT; n++) {
        attn_out *o = grad_of(&part.g, n);
        int axis = n == GRAD_K || n == GRAD_V ? 2 : o->rank - 1;
        if (o->rank && of_keys(&c->d) >> n & 1) *o = attn_out_slice(*o, axis, first, end - first);
    }
    part.g.accumulate = adds;
    return part;
}
/* Computes them again into `parts`, a copy of `whole`: 0 where a part is refused. */
static inline int gradients_in_parts(const call *whole, call *parts, const cuts *c) {
    unsigned sums = ~of_keys(&whole->d) & ATTN_GRAD_ALL;
    attn_error err;
    prepare_grads(parts);
    for (int p = 0; p < c->count; p++) {
        call part = cut_call(parts, c->at[p], c->at[p + 1], p ? sums : 0);
        part.d.isa = test_isa(test_int(0, test_isa_count() - 1));
        if (!part.d.parallel.run) part.d.parallel.workers = test_int(1, 3);
        if (!accepted(attn_backward(&part.d, &part.g, &err), &err, &part.d, "gradients of a part")) return 0;
    }
    call a = *whole, b = *parts;
    for (int k = 0; k < GRAD_COUNT; k++)
        if (sums >> k & 1) memset(grad_of(&a.g, k), 0, sizeof(attn_out));
    if (!same_grads(&a, &b, "in parts and at once")) ref_print(&whole->d);
    return 1;
}

#endif
