/* properties.c - what the mathematics and the contract say of any input: identities between scores, the same
   bits for the same row computed in another way. */
#include "cases.h"

static double at(const attn_out *o, int64_t b, int64_t h, int64_t i, int64_t c) {
    attn_view v = attn_view_of(*o);
    return ref_at(&v, b, h, i, c);
}

/* Both calls on every instruction set; the largest difference of their weights against the sum of their
 * bounds. */
static void check_close_weights(attn_desc *a, attn_desc *b, double slack, const char *what) {
    ref_result r, s;
    ask_for(a, RESULT_OUT | RESULT_WEIGHTS, LAYOUT_PACKED);
    ask_for(b, RESULT_OUT | RESULT_WEIGHTS, LAYOUT_PACKED);
    ref_forward(a, &r);
    ref_forward(b, &s);
    for (int n = 0; n < test_isa_count(); n++) {
        double worst = 0;
        check_on(a, &r, test_isa(n), what);
        check_on(b, &s, test_isa(n), what);
        for (int64_t row = 0; row < r.b * r.h * r.sq; row++) {
            double bound = ref_bound(a) * (1 + r.s_max[row]) + ref_bound(b) * (1 + s.s_max[row]) + slack;
            int64_t i = row % r.sq, h = row / r.sq % r.h, e = row / (r.sq * r.h);
            for (int64_t j = 0; j < r.sk; j++) {
                double difference = fabs(at(&a->weights, e, h, i, j) - at(&b->weights, e, h, i, j));
                worst = fmax(worst, difference <= bound ? 0 : difference / bound);
            }
        }
        CHECKF(worst == 0, "%s: weights differ by %g of both bounds", what, worst);
    }
    ref_free(&r);
    ref_free(&s);
}

/* |q-k|^2 = |q|^2 + |k|^2 - 2 q.k: with |k| the same for all keys only q.k/sigma^2 tells them apart. */
static void gaussian_is_dot(void) {
    for (int n = 0; n < 8; n++) {
        attn_desc gaussian = make_desc(1, 2, 1, 21, 50, 3 + n * 5, 4);
        int64_t size = gaussian.k.size[3];
        for (int j = 0; j < 50; j++) {
            double norm2 = 0;
            for (int64_t c = 0; c < size; c++) norm2 += pow(ref_at(&gaussian.k, 0, 0, j, c), 2);
            for (int64_t c = 0; c < size; c++)
                put_at(&gaussian.k, 0, 0, j, c, 2 / sqrt(norm2) * ref_at(&gaussian.k, 0, 0, j, c));
        }
        attn_desc dot = gaussian;
        gaussian.score = ATTN_SCORE_GAUSSIAN;
        gaussian.sigma = 1.25f;
        dot.score = ATTN_SCORE_DOT;
        dot.scale = 1 / (1.25f * 1.25f);
        check_close_weights(&gaussian, &dot, 2e-6, "Gaussian and dot"); /* the norms are 2 to a rounding only */
        test_release();
    }
}

/* w_v . tanh(W [q;k]) with W cut into two views, against the same sum over the concatenation. */
static void additive_of_concatenation(void) {
    for (int n = 0; n < test_isa_count(); n++) {
        enum { DQ = 5, DK = 8, HIDDEN = 7, SQ = 9, SK = 20 };
        attn_desc d = make_desc(1, 1, 1, SQ, SK, DK, 3);
        attn_view w = make_filled(LAYOUT_PACKED, 0.4, 2, HIDDEN, DQ + DK, 0, 0);
        d.q = make_filled(LAYOUT_PACKED, 1, 4, 1, 1, SQ, DQ);
        d.score = ATTN_SCORE_ADDITIVE;
        d.isa = (int32_t)test_isa(n);
        d.w_q = attn_view_slice(w, 1, 0, DQ);
        d.w_k = attn_view_slice(w, 1, DQ, DK);
        d.w_v = make_filled(LAYOUT_PACKED, 1, 1, HIDDEN, 0, 0, 0);
        ask_for(&d, RESULT_SCORES, LAYOUT_PACKED);
        run_desc(&d, "additive");
        for (int i = 0; i < SQ; i++)
            for (int j = 0; j < SK; j++) {
                double score = 0, terms = 0;
                for (int u = 0; u < HIDDEN; u++) {
                    double sum = 0;
                    for (int c = 0; c < DQ + DK; c++)
                        sum += ref_at(&w, 0, 0, u, c) *
                               (c < DQ ? ref_at(&d.q, 0, 0, i, c) : ref_at(&d.k, 0, 0, j, c - DQ));
                    score += ref_at(&d.w_v, 0, 0, 0, u) * tanh(sum);
                    terms += fabs(ref_at(&d.w_v, 0, 0, 0, u)) * (1 + fabs(sum));
                }
                CHECK_CLOSE(at(&d.scores, 0, 0, i, j), score, ref_bound(&d) * (1 + terms));
            }
        test_release();
    }
}

/* softmax(x + c) = softmax(x), and the log-sum-exp moves by c. */
static void constant_added(void) {
    static const double constants[] = {1, -7, 100, -1000, 30000};
    for (size_t n = 0; n < sizeof constants / sizeof *constants; n++) {
        attn_desc plain = make_desc(2, 2, 2, 19, 70, 8, 3), moved = plain;
        moved.bias = make_filled(LAYOUT_PACKED, 1, 2, 19, 1, 0, 0);
        for (int i = 0; i < 19; i++) put_at(&moved.bias, 0, 0, i, 0, i % 2 ? constants[n] : -constants[n]);
        check_close_weights(&plain, &moved, 0, "a constant added to the scores of a row");
        ask_for(&plain, RESULT_LSE, LAYOUT_PACKED);
        ask_for(&moved, RESULT_LSE, LAYOUT_PACKED);
        run_desc(&plain, "plain");
        run_desc(&moved, "moved");
        for (int i = 0; i < 19; i++)
            CHECK_CLOSE(at(&moved.lse, 0, 1, 1, i), at(&plain.lse, 0, 1, 1, i) + (i % 2 ? constants[n] : -constants[n]),
                        1e-6 * (10 + fabs(constants[n])));
        test_release();
    }
}

/* ---- the same row, the same bits */

/* Queries first..first+count-1 of `d` as a call of their own on the keys up to theirs: the ways a decoder
 * has. */
enum { BY_ALIGNMENT, BY_LENGTH, BY_POSITION, BY_POSITIONS, BY_COUNT };

static attn_desc block_of_queries(const attn_desc *d, int64_t first, int64_t count, int how) {
    attn_desc block = *d;
    int64_t batch = d->q.size[0];
    block.q = attn_view_slice(d->q, 2, first, count);
    block.out = attn_out_slice(d->out, 2, first, count);
    block.lse = attn_out_slice(d->lse, 2, first, count);
    block.bias = attn_view_slice(d->bias, 0, first, count);
    block.dropout_origin[2] += first;
    block.align = how == BY_ALIGNMENT || how == BY_LENGTH ? ATTN_ALIGN_BOTTOM_RIGHT : ATTN_ALIGN_POSITIONS;
    if (how == BY_ALIGNMENT) { /* only the keys so far exist */
        block.k = attn_view_slice(d->k, 2, 0, first + count);
        block.v = attn_view_slice(d->v, 2, 0, first + count);
        block.bias = attn_view_slice(block.bias, 1, 0, first + count);
    }
    if (how == BY_LENGTH)
        block.key_lengths = make_ints(ATTN_I32, 1, batch, 0, 0, 0, (int)(first + count), (int)(first + count));
    if (how == BY_POSITION) block.positions = make_ints(ATTN_I64, 1, batch, 0, 0, 0, (int)first, (int)first);
    if (how == BY_POSITIONS) {
        block.positions = make_view(ATTN_I32, LAYOUT_GAPS, 2, batch, count, 0, 0);
        for (int64_t b = 0; b < batch; b++)
            for (int64_t i = 0; i < count; i++) put_at(&block.positions, 0, 0, b, i, (double)(first + i));
    }
    return block;
}

static void decode_case(int32_t score, int64_t length, int64_t block_size) {
    attn_desc d = make_desc(2, 4, 2, length, length, 9, 6);
    if (score != ATTN_SCORE_GIVEN) set_score(&d, score, 5);
    d.causal = 1;
    d.window = score % 2;
    d.window_left = d.window ? 140 : 0;
    d.alibi = make_filled(LAYOUT_PACKED, 0.1, 1, 4, 0, 0, 0);
    d.sink = make_filled(LAYOUT_PACKED, 1, 1, 4, 0, 0, 0);
    d.bias = make_filled(LAYOUT_PACKED, 1, 2, length, length, 0, 0);
    d.dropout = 0.2f;
    d.seed = test_bits();
    ask_for(&d, RESULT_OUT | RESULT_LSE, LAYOUT_PACKED);
    for (int n = 0; n < test_isa_count(); n++) {
        d.isa = (int32_t)test_isa(n);
        run_desc(&d, "prefill");
        for (int how = 0; how < BY_COUNT; how++) {
            attn_desc whole = copy_results(&d);
            poison_results(&whole);
            for (int64_t first = 0; first < length; first += block_size) {
                attn_desc block =
                    block_of_queries(&whole, first, length - first < block_size ? length - first : block_size, how);
                if (!run_desc(&block, "a block of queries")) break;
            }
            if (!check_same_results(&d, &whole, "prefill and blocks of queries")) {
                printf("        blocks of %ld, way %d\n", (long)block_size, how);
                ref_print(&d);
            }
        }
    }
    test_release();
}

static void token_by_token(void) {
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++)
        if (score != ATTN_SCORE_GIVEN) decode_case(score, 45, 1);
    decode_case(ATTN_SCORE_SCALED_DOT, 280, 1);
}

static void block_by_block(void) {
    static const int sizes[] = {2, 7, 16, 33, 100};
    for (int n = 0; n < 5; n++) decode_case(n % 2 ? ATTN_SCORE_ADDITIVE : ATTN_SCORE_SCALED_DOT, 150, sizes[n]);
}

static void row_alone_same_bits(void) {
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++) {
        attn_desc d = make_desc(2, 4, 2, 18, 150, 9, 6);
        set_score(&d, score, 5);
        d.causal = score % 2;
        d.align = ATTN_ALIGN_BOTTOM_RIGHT;
        d.key_lengths = make_ints(ATTN_I32, 1, 2, 0, 0, 0, 100, 150);
        d.mask = make_ints(ATTN_U8, 4, 1, 4, 18, 150, 0, 3);
        d.dropout = 0.3f;
        d.seed = test_bits();
        for (int n = 0; n < 4; n++) d.dropout_origin[n] = 1000 + n;
        ask_for(&d, RESULT_ALL, LAYOUT_PACKED);
        for (int n = 0; n < test_isa_count(); n++) {
            d.isa = (int32_t)test_isa(n);
            run_desc(&d, "a batch");
            for (int row = 0; row < 2 * 4 * 18; row += 5) check_row_alone(&d, row / 72, row / 18 % 4, row % 18);
        }
        test_release();
    }
}

/* Rows differ where dropout says so: two origins give two masks, and about the right share is kept. */
static void dropout_share(void) {
    attn_desc d = make_desc(1, 4, 4, 64, 128, 2, 1);
    set_score(&d, ATTN_SCORE_CONSTANT, 0);
    d.dropout = 0.3f;
    d.weights_after_dropout = 1;
    ask_for(&d, RESULT_WEIGHTS, LAYOUT_PACKED);
    long kept[2], total = 4 * 64 * 128, equal = 0;
    attn_desc other = d;
    ask_for(&other, RESULT_WEIGHTS, LAYOUT_PACKED);
    other.dropout_origin[2] = 64;
    run_desc(&d, "dropout");
    run_desc(&other, "dropout further on");
    kept[0] = kept[1] = 0;
    for (int64_t n = 0; n < total; n++) {
        int x = at(&d.weights, 0, n / 8192, n / 128 % 64, n % 128) != 0;
        int y = at(&other.weights, 0, n / 8192, n / 128 % 64, n % 128) != 0;
        kept[0] += x;
        kept[1] += y;
        equal += x == y;
    }
    double deviation = sqrt((double)total * 0.3 * 0.7);
    CHECK_CLOSE((double)kept[0], 0.7 * (double)total, 5 * deviation);
    CHECK_CLOSE((double)kept[1], 0.7 * (double)total, 5 * deviation);
    CHECK_CLOSE((double)equal, (0.49 + 0.09) * (double)total, 5 * sqrt((double)total * 0.58 * 0.42));
}

/* ---- merging, permuting, scaling */

/* Two halves of the keys, merged, against the whole; a half may be empty, or both. */
static void merge_case(int64_t cut, int empty_half, attn_isa isa) {
    enum { SQ = 9, SK = 60 };
    attn_desc d = make_desc(2, 2, 2, SQ, SK, 6, 5);
    d.isa = (int32_t)isa;
    d.mask = make_ints(ATTN_U8, 1, SK, 0, 0, 0, 1, 1);
    for (int64_t j = 0; j < SK; j++)
        if ((empty_half & 1 && j < cut) || (empty_half & 2 && j >= cut)) put_at(&d.mask, 0, 0, 0, j, 0);
    ask_for(&d, RESULT_OUT | RESULT_LSE, LAYOUT_PACKED);
    attn_desc half[2];
    for (int n = 0; n < 2; n++) {
        int64_t first = n ? cut : 0, count = n ? SK - cut : cut;
        half[n] = d;
        half[n].k = attn_view_slice(d.k, 2, first, count);
        half[n].v = attn_view_slice(d.v, 2, first, count);
        half[n].mask = attn_view_slice(d.mask, 0, first, count);
        ask_for(&half[n], RESULT_OUT | RESULT_LSE, n ? LAYOUT_GAPS : LAYOUT_MIXED);
        run_desc(&half[n], "a half of the keys");
    }
    CHECK_STATUS(attn_merge(attn_view_of(half[0].out), attn_view_of(half[0].lse), attn_view_of(half[1].out),
                            attn_view_of(half[1].lse), d.out, d.lse, NULL),
                 ATTN_OK);
    ref_result r;
    ref_forward(&d, &r);
    ref_check(&d, &r, "two halves merged");
    ref_free(&r);
    test_release();
}

static void merge(void) {
    static const int64_t cuts[] = {0, 1, 16, 30, 60};
    for (int n = 0; n < test_isa_count(); n++)
        for (int cut = 0; cut < 5; cut++)
            for (int empty_half = 0; empty_half < 4; empty_half++) merge_case(cuts[cut], empty_half, test_isa(n));
}

/* Heads in another order give their results in that order; V times a power of two gives out times it: bit for
 * bit. */
static void heads_permuted_and_scaled(void) {
    enum { H = 5, SQ = 17, SK = 140, D = 7, DV = 6 };
    for (int n = 0; n < test_isa_count(); n++) {
        attn_desc d = make_desc(1, H, H, SQ, SK, D, DV), p = d;
        int64_t order[H] = {0, 1, 2, 3, 4};
        shuffle(order, H);
        d.isa = p.isa = (int32_t)test_isa(n);
        p.q = make_view(ATTN_F32, LAYOUT_PACKED, 4, 1, H, SQ, D);
        p.k = make_view(ATTN_F32, LAYOUT_PACKED, 4, 1, H, SK, D);
        p.v = make_view(ATTN_F32, LAYOUT_PACKED, 4, 1, H, SK, DV);
        for (int h = 0; h < H; h++) {
            for (int i = 0; i < SQ * D; i++) put_at(&p.q, 0, h, i / D, i % D, ref_at(&d.q, 0, order[h], i / D, i % D));
            for (int i = 0; i < SK * D; i++) put_at(&p.k, 0, h, i / D, i % D, ref_at(&d.k, 0, order[h], i / D, i % D));
            for (int i = 0; i < SK * DV; i++)
                put_at(&p.v, 0, h, i / DV, i % DV, ldexp(ref_at(&d.v, 0, order[h], i / DV, i % DV), h - 2));
        }
        ask_for(&p, RESULT_OUT, LAYOUT_PACKED);
        run_desc(&d, "heads");
        run_desc(&p, "heads permuted");
        for (int h = 0; h < H; h++)
            for (int i = 0; i < SQ * DV; i++)
                CHECK_CLOSE(at(&p.out, 0, h, i / DV, i % DV), ldexp(at(&d.out, 0, order[h], i / DV, i % DV), h - 2), 0);
        test_release();
    }
}

/* Grouped heads are heads whose keys and values are repeated: bit for bit. */
static void grouped_is_repeated(void) {
    for (int n = 0; n < test_isa_count(); n++) {
        attn_desc grouped = make_desc(2, 6, 2, 5, 150, 8, 7), repeated = grouped;
        grouped.isa = repeated.isa = (int32_t)test_isa(n);
        repeated.k = make_view(ATTN_F32, LAYOUT_PACKED, 4, 2, 6, 150, 8);
        repeated.v = make_view(ATTN_F32, LAYOUT_PACKED, 4, 2, 6, 150, 7);
        for (int row = 0; row < 2 * 6 * 150; row++) {
            int64_t b = row / 900, h = row / 150 % 6, j = row % 150;
            for (int64_t c = 0; c < 8; c++) put_at(&repeated.k, b, h, j, c, ref_at(&grouped.k, b, h / 3, j, c));
            for (int64_t c = 0; c < 7; c++) put_at(&repeated.v, b, h, j, c, ref_at(&grouped.v, b, h / 3, j, c));
        }
        ask_for(&grouped, RESULT_OUT | RESULT_LSE | RESULT_WEIGHTS, LAYOUT_PACKED);
        ask_for(&repeated, RESULT_OUT | RESULT_LSE | RESULT_WEIGHTS, LAYOUT_PACKED);
        run_desc(&grouped, "grouped heads");
        run_desc(&repeated, "repeated heads");
        check_same_results(&grouped, &repeated, "grouped and repeated heads");
        test_release();
    }
}

/* A row of weights sums to 1 and lies in 0..1; an output lies between the least and the largest value. */
static void rows_are_averages(void) {
    for (int n = 0; n < test_isa_count(); n++) {
        attn_desc d = make_desc(1, 2, 2, 18, 700, 8, 3);
        d.isa = (int32_t)test_isa(n);
        ask_for(&d, RESULT_OUT | RESULT_WEIGHTS, LAYOUT_PACKED);
        run_desc(&d, "averages");
        for (int row = 0; row < 36; row++) {
            int64_t h = row / 18, i = row % 18;
            double sum = 0;
            int inside = 1;
            for (int64_t j = 0; j < 700; j++) {
                double w = at(&d.weights, 0, h, i, j);
                sum += w;
                inside &= w >= 0 && w <= 1;
            }
            CHECK(inside);
            CHECK_CLOSE(sum, 1, 1e-6);
            for (int64_t c = 0; c < 3; c++) {
                double low = INFINITY, high = -INFINITY, x = at(&d.out, 0, h, i, c);
                for (int64_t j = 0; j < 700; j++) {
                    low = fmin(low, ref_at(&d.v, 0, h, j, c));
                    high = fmax(high, ref_at(&d.v, 0, h, j, c));
                }
                CHECKF(x >= low && x <= high, "out %g outside %g..%g", x, low, high);
            }
        }
        test_release();
    }
}

const test_case suite_properties[] = {
    {"properties.gaussian_is_dot", gaussian_is_dot},
    {"properties.additive_of_concatenation", additive_of_concatenation},
    {"properties.constant_added", constant_added},
    {"properties.token_by_token", token_by_token},
    {"properties.block_by_block", block_by_block},
    {"properties.row_alone", row_alone_same_bits},
    {"properties.dropout_share", dropout_share},
    {"properties.merge", merge},
    {"properties.heads_permuted_and_scaled", heads_permuted_and_scaled},
    {"properties.grouped_is_repeated", grouped_is_repeated},
    {"properties.rows_are_averages", rows_are_averages},
    {0, 0},
};
