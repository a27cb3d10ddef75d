/* cc -O2 draft_tree.c -lm */
/* Speculative decoding with a tree of drafts (SpecInfer, Miao et al. 2023; Medusa, Cai et al. 2024): a small model
   proposes a tree of next tokens for each sequence, and one call of the large model looks at all of them. A draft may
   see the cache of its sequence, itself and the drafts it follows, which a mask says. Here two sequences with caches of
   unequal length, in pages, have eight drafts each, packed one after the other: the mask has a row for each packed
   draft, and its columns count from the first key of the draft's own sequence. Outputs are compared with double
   precision, and, bit for bit, with those of each sequence alone. */
#define ATTN_IMPLEMENTATION
#include "../attn.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 2, DRAFTS = 8, HEADS = 4, KEY_HEADS = 2, SIZE = 16, PAGE = 16, PAGES = 4, POOL = SEQUENCES * PAGES };
enum { QUERIES = SEQUENCES * DRAFTS, COLUMNS = 58 }; /* of the longest: 50 keys in its cache, and its drafts */
static const int32_t cached[SEQUENCES] = {37, 50};
/* Which draft each one follows; -1: the last token of the cache.
       0 -- 1 -- 3 -- 6
       |    |     `-- 7
       |     `-- 4
        `-- 2 -- 5 */
static const int32_t follows[DRAFTS] = {-1, 0, 0, 1, 1, 2, 3, 3};

static float q[HEADS * QUERIES * SIZE], k[POOL * KEY_HEADS * PAGE * SIZE], v[POOL * KEY_HEADS * PAGE * SIZE];
static float out[HEADS * QUERIES * SIZE], alone[HEADS * DRAFTS * SIZE];
static uint8_t mask[QUERIES * COLUMNS];
static int32_t table[SEQUENCES * PAGES], starts[SEQUENCES], drafts[SEQUENCES], lengths[SEQUENCES];

static float uniform(void) { /* the same numbers on every machine */
    static uint64_t state = 5;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(state >> 40) / 8388608.0f - 1.0f;
}

static void must(attn_status status, const attn_error *err) {
    char text[160];
    if (status == ATTN_OK) return;
    attn_error_string(err, text, sizeof text);
    printf("attn.h refused: %s\n", text);
    exit(1);
}

/* Row j of sequence s, of a head of k or v */
static const float *row_of(const float *pool, int s, int head, int j) {
    return pool + ((table[s * PAGES + j / PAGE] * KEY_HEADS + head) * PAGE + j % PAGE) * SIZE;
}

static double exact(int s, int head, int draft, int column) {
    const float *query = q + (head * QUERIES + s * DRAFTS + draft) * SIZE;
    const int head_kv = head / (HEADS / KEY_HEADS);
    double sum = 0, mass = 0;
    for (int j = 0; j < lengths[s]; j++) {
        double score = 0;
        if (!mask[(s * DRAFTS + draft) * COLUMNS + j]) continue;
        for (int n = 0; n < SIZE; n++) score += (double)query[n] * row_of(k, s, head_kv, j)[n];
        score = exp(score / sqrt((double)SIZE));
        mass += score;
        sum += score * row_of(v, s, head_kv, j)[column];
    }
    return sum / mass;
}

int main(void) {
    attn_desc d = {0}, one;
    attn_error err;
    double worst = 0;
    int same = 1;
    for (int n = 0; n < HEADS * QUERIES * SIZE; n++) q[n] = uniform();
    for (int n = 0; n < POOL * KEY_HEADS * PAGE * SIZE; n++) k[n] = uniform(), v[n] = uniform();
    for (int s = 0; s < SEQUENCES; s++) {
        starts[s] = s * DRAFTS, drafts[s] = DRAFTS, lengths[s] = cached[s] + DRAFTS;
        for (int n = 0; n < PAGES; n++) table[s * PAGES + n] = n * SEQUENCES + s; /* pages as they were needed */
        for (int i = 0; i < DRAFTS; i++) {
            uint8_t *row = mask + (s * DRAFTS + i) * COLUMNS;
            memset(row, 1, (size_t)cached[s]);
            for (int ancestor = i; ancestor >= 0; ancestor = follows[ancestor]) row[cached[s] + ancestor] = 1;
        }
    }

    d.q = attn_view_bhsd(q, 1, HEADS, QUERIES, SIZE);
    d.k = attn_view_bhsd(k, POOL, KEY_HEADS, PAGE, SIZE);
    d.v = attn_view_bhsd(v, POOL, KEY_HEADS, PAGE, SIZE);
    d.out = attn_out_bhsd(out, 1, HEADS, QUERIES, SIZE);
    d.query_starts = attn_view_i32(starts, 1, SEQUENCES, 0, 0, 0);
    d.query_lengths = attn_view_i32(drafts, 1, SEQUENCES, 0, 0, 0);
    d.key_lengths = attn_view_i32(lengths, 1, SEQUENCES, 0, 0, 0);
    d.page_table = attn_view_i32(table, 2, SEQUENCES, PAGES, 0, 0);
    d.mask = attn_view_u8(mask, 2, QUERIES, COLUMNS, 0, 0);
    must(attn_forward(&d, &err), &err);

    for (int s = 0; s < SEQUENCES; s++)
        for (int h = 0; h < HEADS; h++)
            for (int i = 0; i < DRAFTS; i++)
                for (int n = 0; n < SIZE; n++)
                    worst = fmax(worst, fabs(out[(h * QUERIES + s * DRAFTS + i) * SIZE + n] - exact(s, h, i, n)));

    for (int s = 0; s < SEQUENCES; s++) { /* a batch of one, without starts: columns as k has them */
        static uint8_t wide[DRAFTS * PAGES * PAGE];
        for (int i = 0; i < DRAFTS; i++) memcpy(wide + i * PAGES * PAGE, mask + (s * DRAFTS + i) * COLUMNS, COLUMNS);
        one = d;
        one.query_starts.rank = one.query_lengths.rank = 0;
        one.query_starts.data = one.query_lengths.data = 0;
        one.q = attn_view_slice(d.q, 2, s * DRAFTS, DRAFTS);
        one.out = attn_out_bhsd(alone, 1, HEADS, DRAFTS, SIZE);
        one.key_lengths = attn_view_slice(d.key_lengths, 0, s, 1);
        one.page_table = attn_view_slice(d.page_table, 0, s, 1);
        one.mask = attn_view_u8(wide, 2, DRAFTS, PAGES * PAGE, 0, 0);
        must(attn_forward(&one, &err), &err);
        for (int h = 0; h < HEADS; h++)
            same &= !memcmp(alone + h * DRAFTS * SIZE, out + (h * QUERIES + s * DRAFTS) * SIZE,
                            sizeof(float) * DRAFTS * SIZE);
    }
    printf("%d drafts of %d sequences in one call: at most %.1e from double precision, %s bits as each alone\n",
           QUERIES, SEQUENCES, worst, same ? "the same" : "OTHER");
    return worst > 1e-6 || !same || fflush(stdout) || ferror(stdout);
}
