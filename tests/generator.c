/* generator.c - random descriptors that cover every pair of options: against the reference, the same bits on
   every instruction set, from tasks in any order, from one row alone. */
#include "descriptors.h"

/* The results are there; other ways to the same bits. */
static void check_other_ways(const attn_desc *d, int32_t workers) {
    attn_desc other = copy_results(d);
    poison_results(&other);
    if (run_planned(&other, workers) && !check_same_results(d, &other, "tasks in a random order")) ref_print(d);
    other.parallel.run = run_shuffled;
    other.parallel.workers = workers;
    other.parallel.user = &workers;
    poison_results(&other);
    run_desc(&other, "through a parallel callback");
    if (!check_same_results(d, &other, "through a parallel callback")) ref_print(d);
    if (d->empty == ATTN_EMPTY_UNIFORM) return; /* these rows are outside the promise */
    ref_result r;
    ref_sizes(d, &r);
    check_entries_alone(d);
    check_row_alone(d, test_int(0, (int)r.b - 1), test_int(0, (int)r.h - 1), test_int(0, (int)r.sq - 1));
}

static void pairs(void) {
    static const int32_t workers[] = {1, 2, 3, 8};
    double worst[ATTN_SCORE_COUNT] = {0};
    memset(covered, 0, sizeof covered);
    for (int n = 0; n < 900; n++) {
        int f[FACTOR_COUNT];
        attn_desc d;
        char what[40];
        draw_factors(f);
        build(&d, f);
        snprintf(what, sizeof what, "case %d", n);
        worst[d.score] = fmax(worst[d.score], check_everywhere(&d, what));
        check_other_ways(&d, workers[f[F_WORKERS]]);
        test_release();
    }
    for (int32_t score = 0; score < ATTN_SCORE_COUNT; score++) ref_print_worst(score, worst[score]);
    int missing = missing_pairs();
    CHECKF(missing == 0, "%d pairs of options were not tried", missing);
}

/* The reference's generator gives the numbers published with it (Random123, kat_vectors). */
static void philox(void) {
    static const uint32_t known[][10] = {{0, 0, 0, 0, 0, 0, 0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u},
                                         {0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu,
                                          0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu},
                                         {0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u, 0xa4093822u, 0x299f31d0u,
                                          0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}};
    for (int n = 0; n < 3; n++) {
        uint32_t x[4];
        memcpy(x, known[n], sizeof x);
        ref_philox(x, known[n][4], known[n][5]);
        CHECKF(memcmp(x, known[n] + 6, sizeof x) == 0, "vector %d: %08x %08x %08x %08x", n, (unsigned)x[0],
               (unsigned)x[1], (unsigned)x[2], (unsigned)x[3]);
    }
}

const test_case suite_generator[] = {
    {"generator.philox", philox},
    {"generator.pairs", pairs},
    {0, 0},
};
