/* ref.c - attention in float64, see ref.h. One pass over (query, key) pairs, every row read through its view once a
   head; a key that is excluded is not read (unless the raw scores of all keys are asked for).

   The gradients: L is the sum of d_out*out + d_weights*weights + d_lse*lse; for every (query, key) pair with weight,
   dL/d(raw score) comes first, then what it means for what the score is made of. */
#include "ref.h"
#include <float.h>

/* ---- dropout: Philox4x32-10 of Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3"
 * (2011) */
void ref_philox(uint32_t x[4], uint32_t key0, uint32_t key1) {
    for (int round = 0; round < 10; round++) {
        uint64_t left = (uint64_t)0xD2511F53u * x[0], right = (uint64_t)0xCD9E8D57u * x[2];
        uint32_t x1 = x[1], x3 = x[3];
        x[0] = (uint32_t)(right >> 32) ^ x1 ^ key0;
        x[1] = (uint32_t)right;
        x[2] = (uint32_t)(left >> 32) ^ x3 ^ key1;
        x[3] = (uint32_t)left;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
}

static int ref_kept(const attn_desc *d, const ref_result *r, int64_t b, int64_t h, int64_t i, int64_t j) {
    const int64_t *origin = d->dropout_origin;
    ref_entry e = ref_entry_of(d, r, b);
    uint32_t column = (uint32_t)(origin[3] + j - e.k0);
    uint32_t x[4] = {column / 4, (uint32_t)(origin[2] + i - e.q0), (uint32_t)(origin[1] + h),
                     (uint32_t)(origin[0] + b)};
    ref_philox(x, (uint32_t)d->seed, (uint32_t)(d->seed >> 32));
    return (double)x[column % 4] >= (double)d->dropout * 4294967296.0;
}

/* ---- scores */

static void ref_make_rows(ref_rows *rows, const attn_view *v, int64_t count) {
    rows->v = v;
    rows->width = v->rank ? v->size[v->rank - 1] : 0;
    rows->x = ref_doubles((size_t)(count * rows->width));
    rows->ready = (unsigned char *)calloc((size_t)count + 1, 1);
    if (!rows->ready) abort();
}
static void ref_free_rows(ref_rows *rows) {
    free(rows->x);
    free(rows->ready);
}
/* Row n of those in memory, which is row (a,b,c) of the view. */
static const double *ref_row(ref_rows *rows, int64_t n, int64_t a, int64_t b, int64_t c) {
    double *x = rows->x + n * rows->width;
    for (int64_t i = 0; !rows->ready[n] && i < rows->width; i++) x[i] = ref_at(rows->v, a, b, c, i);
    rows->ready[n] = 1;
    return x;
}

/* What is computed once for one head: q, k, v and the parameters as doubles, W_k k of the keys read so far, and W_q q
   or q M of the query at hand. */
typedef struct ref_head {
    const attn_desc *d;
    const ref_result *r;
    int64_t b, h, hkv;
    ref_rows q, k, v, bilinear, w_v, hidden_bias;
    double *query, *query_terms; /* of size max(Dk, hidden) */
    double *keys;                /* [sk, hidden] */
    unsigned char *key_ready;
} ref_head;

static void ref_make_head(ref_head *s, const attn_desc *d, const ref_result *r) {
    int64_t width = r->dk > r->hidden ? r->dk : r->hidden;
    memset(s, 0, sizeof *s);
    s->d = d;
    s->r = r;
    ref_make_rows(&s->q, &d->q, r->sq);
    ref_make_rows(&s->k, &d->k, r->sk);
    ref_make_rows(&s->v, &d->v, r->sk);
    ref_make_rows(&s->bilinear, &d->bilinear, d->q.rank ? d->q.size[3] : 0);
    ref_make_rows(&s->w_v, &d->w_v, 1);
    ref_make_rows(&s->hidden_bias, &d->hidden_bias, 1);
    s->query = ref_doubles((size_t)width);
    s->query_terms = ref_doubles((size_t)width);
    s->keys = ref_doubles((size_t)(r->sk * r->hidden));
    s->key_ready = (unsigned char *)malloc((size_t)r->sk + 1);
}
static void ref_begin_head(ref_head *s, int64_t b, int64_t h) {
    s->b = b;
    s->h = h;
    s->hkv = h / (s->r->h / s->r->hkv);
    memset(s->q.ready, 0, (size_t)s->r->sq);
    memset(s->k.ready, 0, (size_t)s->r->sk);
    memset(s->v.ready, 0, (size_t)s->r->sk);
    memset(s->bilinear.ready, 0, s->d->q.rank ? (size_t)s->d->q.size[3] : 0);
    s->w_v.ready[0] = s->hidden_bias.ready[0] = 0;
    memset(s->key_ready, 0, (size_t)s->r->sk);
}
static void ref_free_head(ref_head *s) {
    ref_rows *rows[6] = {&s->q, &s->k, &s->v, &s->bilinear, &s->w_v, &s->hidden_bias};
    for (int n = 0; n < 6; n++) ref_free_rows(rows[n]);
    free(s->query);
    free(s->query_terms);
    free(s->keys);
    free(s->key_ready);
}

static const double *ref_q(ref_head *s, int64_t i) { return ref_row(&s->q, i, s->b, s->h, i); }
/* Where key j of entry b lies in k or v: in its row of the batch, or in the pool's page that the table names. */
int64_t ref_key_place(const attn_desc *d, const attn_view *v, int64_t b, int64_t j, int64_t *row) {
    int64_t page = d->page_table.rank && v->rank ? v->size[2] : 0; /* 0: no pages, or no array */
    *row = page ? j % page : j;
    return page ? ref_int(&d->page_table, b, j / page) : b;
}
static const double *ref_k(ref_head *s, int64_t j) {
    int64_t row, b = s->k.ready[j] ? 0 : ref_key_place(s->d, &s->d->k, s->b, j, &row);
    return ref_row(&s->k, j, b, s->hkv, s->k.ready[j] ? 0 : row);
}
static const double *ref_v(ref_head *s, int64_t j) {
    int64_t row, b = s->v.ready[j] ? 0 : ref_key_place(s->d, &s->d->v, s->b, j, &row);
    return ref_row(&s->v, j, b, s->hkv, s->v.ready[j] ? 0 : row);
}
static const double *ref_m(ref_head *s, int64_t a) { return ref_row(&s->bilinear, a, 0, s->h, a); }
static const double *ref_w_v(ref_head *s) { return ref_row(&s->w_v, 0, 0, 0, s->h); }
/* NULL where there is none */
static const double *ref_hidden_bias(ref_head *s) {
    return s->d->hidden_bias.rank ? ref_row(&s->hidden_bias, 0, 0, 0, s->h) : NULL;
}

static double ref_project(const attn_view *w, const attn_view *x, int64_t b, int64_t head, int64_t whead, int64_t row,
                          int64_t unit) {
    double sum = 0;
    if (!w->rank) return ref_at(x, b, head, row, unit); /* absent = identity */
    for (int64_t c = 0; c < x->size[3]; c++) sum += ref_at(w, 0, whead, unit, c) * ref_at(x, b, head, row, c);
    return sum;
}

static void ref_prepare_query(ref_head *s, int64_t i) {
    const attn_desc *d = s->d;
    if (d->score == ATTN_SCORE_ADDITIVE) {
        for (int64_t u = 0; u < s->r->hidden; u++) s->query[u] = ref_project(&d->w_q, &d->q, s->b, s->h, s->h, i, u);
    } else if (d->score == ATTN_SCORE_BILINEAR) {
        const double *q = ref_q(s, i);
        for (int64_t c = 0; c < s->r->dk; c++) s->query[c] = s->query_terms[c] = 0;
        for (int64_t a = 0; a < d->q.size[3]; a++) {
            const double *m = ref_m(s, a);
            for (int64_t c = 0; c < s->r->dk; c++) {
                double term = q[a] * m[c];
                s->query[c] += term;
                s->query_terms[c] += fabs(term);
            }
        }
    } else if (d->score != ATTN_SCORE_GIVEN) {
        const double *q = ref_q(s, i);
        for (int64_t c = 0; c < s->r->dk; c++) {
            s->query[c] = q[c];
            s->query_terms[c] = fabs(q[c]);
        }
    }
}

static double ref_additive(ref_head *s, int64_t j, double *terms) {
    const attn_desc *d = s->d;
    const double *biases = ref_hidden_bias(s), *w_v = ref_w_v(s);
    double score = 0, *key = s->keys + j * s->r->hidden;
    int64_t row, place = ref_key_place(d, &d->k, s->b, j, &row);
    *terms = 0;
    for (int64_t u = 0; u < s->r->hidden; u++) {
        double bias = biases ? biases[u] : 0, w = w_v[u];
        if (!s->key_ready[j]) key[u] = ref_project(&d->w_k, &d->k, place, s->hkv, s->h, row, u);
        score += w * tanh(s->query[u] + key[u] + bias);
        *terms += fabs(w) * (fabs(s->query[u]) + fabs(key[u] + bias) + 1);
    }
    s->key_ready[j] = 1;
    return score;
}

static double ref_product(ref_head *s, int64_t j, double *terms) {
    const double *key = ref_k(s, j);
    double dot = 0, query2 = 0, key2 = 0, sum = 0;
    for (int64_t c = 0; c < s->r->dk; c++) {
        dot += s->query[c] * key[c];
        sum += s->query_terms[c] * fabs(key[c]);
        query2 += s->query[c] * s->query[c];
        key2 += key[c] * key[c];
    }
    *terms = sum;
    if (s->d->score != ATTN_SCORE_COSINE) return dot;
    double norms = sqrt(query2) * sqrt(key2);
    if (norms == 0) return *terms = 0;
    *terms /= norms;
    return dot / norms;
}

double ref_sigma(const attn_desc *d, int64_t h) {
    if (d->sigma_per_head.rank) return ref_at(&d->sigma_per_head, 0, 0, 0, h);
    return d->sigma != 0 ? (double)d->sigma : 1;
}

static double ref_distance_kernel(ref_head *s, int64_t j) {
    const attn_desc *d = s->d;
    const double *key = ref_k(s, j);
    double u2 = 0, weight, sigma = ref_sigma(d, s->h);
    for (int64_t c = 0; c < s->r->dk; c++) {
        double difference = s->query[c] - key[c];
        u2 += difference * difference;
    }
    u2 /= sigma * sigma;
    if (isnan(u2)) return u2;
    if (d->score == ATTN_SCORE_GAUSSIAN) return -u2 / 2;
    if (d->score == ATTN_SCORE_BOXCAR) weight = u2 <= 1;
    else if (d->score == ATTN_SCORE_EPANECHNIKOV) weight = 1 - u2;
    else weight = 1 - sqrt(u2);
    return weight > 0 ? log(weight) : -INFINITY;
}

double ref_scale_nudge;

static double ref_scale(const attn_desc *d, const ref_result *r) {
    double scale = d->scale_set || d->scale != 0 ? (double)d->scale : 1;
    if (d->score == ATTN_SCORE_SCALED_DOT && !d->scale_set && d->scale == 0 && r->dk > 0)
        scale = 1 / sqrt((double)r->dk);
    return scale + ref_scale_nudge;
}

/* The raw score, scale included, and the sum of its absolute terms. */
static double ref_score(ref_head *s, int64_t i, int64_t j, double *terms) {
    const attn_desc *d = s->d;
    double score = 0, scale = ref_scale(d, s->r);
    *terms = 0;
    switch (d->score) {
    case ATTN_SCORE_CONSTANT: return 0;
    case ATTN_SCORE_GIVEN: *terms = fabs(score = ref_at(&d->given_scores, s->b, s->h, i, j)); break;
    case ATTN_SCORE_ADDITIVE: score = ref_additive(s, j, terms); break;
    case ATTN_SCORE_SCALED_DOT:
    case ATTN_SCORE_DOT:
    case ATTN_SCORE_COSINE:
    case ATTN_SCORE_BILINEAR: score = ref_product(s, j, terms); break;
    default: *terms = fabs(score = ref_distance_kernel(s, j)); return score;
    }
    *terms *= fabs(scale);
    if (d->score != ATTN_SCORE_GIVEN) return scale * score;
    if (score == -INFINITY) return score; /* it alone excludes; what the scale makes -inf is data to a softcap */
    return d->softcap > 0 && scale * score == -INFINITY ? -FLT_MAX : scale * score;
}

/* A kernel's weight of 0, and a given score of -inf, exclude before the softcap, which would make a number of it. */
static double ref_softcap(const attn_desc *d, double score) {
    if ((ref_is_distance(d->score) || d->score == ATTN_SCORE_GIVEN) && score == -INFINITY) return score;
    return d->softcap > 0 ? d->softcap * tanh(score / d->softcap) : score;
}

/* ---- batch entries */
static int64_t ref_longest(const attn_desc *d, int64_t b, const ref_entry *e) { /* of lengths per query */
    int64_t longest = 0;
    for (int64_t i = e->q0; i < e->q0 + e->q; i++) longest = (int64_t)fmax(longest, ref_int(&d->key_lengths, b, i));
    return longest;
}

/* Without starts and pages all keys count, and what lies beyond a length is excluded. */
static ref_entry ref_find_entry(const attn_desc *d, const ref_result *r, int64_t b) {
    ref_entry e = {0, r->sq, 0, r->sk};
    if (d->query_starts.rank) e.q0 = ref_int(&d->query_starts, b, 0);
    e.q = d->query_lengths.rank ? ref_int(&d->query_lengths, b, 0) : r->sq - e.q0;
    if (!r->has_entries) return e;
    if (d->key_starts.rank) e.k0 = ref_int(&d->key_starts, b, 0);
    e.k = d->key_lengths.rank == 2   ? ref_longest(d, b, &e)
          : d->key_lengths.rank == 1 ? ref_int(&d->key_lengths, b, 0)
                                     : r->sk - e.k0;
    return e;
}
ref_entry ref_entry_of(const attn_desc *d, const ref_result *r, int64_t b) {
    return r->has_entries ? r->entries[b] : ref_find_entry(d, r, b);
}
int ref_has_key(const attn_desc *d, const ref_result *r, int64_t b, int64_t j) {
    ref_entry e = ref_entry_of(d, r, b);
    return j >= e.k0 && j < e.k0 + e.k;
}
int ref_has_row(const attn_desc *d, const ref_result *r, int64_t b, int64_t i) {
    ref_entry e = ref_entry_of(d, r, b);
    return !r->packed_rows || (i >= e.q0 && i < e.q0 + e.q);
}

/* ---- masks */
/* The column of a mask or a bias that key j of the arrays has */
static int64_t ref_column(const attn_desc *d, const ref_result *r, int64_t b, int64_t j) {
    return r->packed_rows || r->packed_keys ? j - ref_entry_of(d, r, b).k0 : j;
}
int64_t ref_key_length(const attn_desc *d, const ref_result *r, int64_t b, int64_t i) {
    return d->key_lengths.rank ? ref_int(&d->key_lengths, b, i) : ref_entry_of(d, r, b).k;
}

int64_t ref_query_length(const attn_desc *d, const ref_result *r, int64_t b) { return ref_entry_of(d, r, b).q; }

/* p, counted from the first key of the entry */
int64_t ref_position(const attn_desc *d, const ref_result *r, int64_t b, int64_t place) {
    int64_t i = place - ref_entry_of(d, r, b).q0;
    if (d->align == ATTN_ALIGN_BOTTOM_RIGHT) return i + ref_key_length(d, r, b, place) - ref_query_length(d, r, b);
    if (d->align == ATTN_ALIGN_POSITIONS) return ref_int(&d->positions, b, place) + (d->positions.rank == 1 ? i : 0);
    return i;
}

/* |a - b| for any two numbers of 64 bits */
static uint64_t ref_distance(int64_t a, int64_t b) {
    return a > b ? (uint64_t)a - (uint64_t)b : (uint64_t)b - (uint64_t)a;
}

int ref_allowed(const attn_desc *d, const ref_result *r, int64_t b, int64_t h, int64_t row, int64_t key) {
    ref_entry e = ref_entry_of(d, r, b);
    int64_t i = row - e.q0, j = key - e.k0;
    if (i < 0 || i >= e.q || j < 0 || j >= ref_key_length(d, r, b, row)) return 0;
    int64_t p = ref_position(d, r, b, row), side = j < p ? d->window_left : d->window_right;
    if (d->causal && j > p) return 0;
    if (d->window && j != p && side != ATTN_UNBOUNDED && ref_distance(j, p) > (uint64_t)side) return 0;
    if (d->mask.rank && ref_at(&d->mask, b, h, row, ref_column(d, r, b, key)) == 0) return 0;
    return ref_bias(d, b, h, row, ref_column(d, r, b, key)) != -INFINITY;
}

/* ---- one row */
static int64_t ref_row_index(const ref_result *r, int64_t b, int64_t h, int64_t i) {
    return (b * r->h + h) * r->sq + i;
}

static void ref_row_scores(ref_head *s, int64_t i) {
    const attn_desc *d = s->d;
    const ref_result *r = s->r;
    int64_t row = ref_row_index(r, s->b, s->h, i);
    int all = d->scores.rank || d->scores_softcap.rank, prepared = 0;
    for (int64_t j = 0; j < r->sk; j++) {
        int64_t at = row * r->sk + j;
        int allowed = ref_allowed(d, r, s->b, s->h, i, j);
        r->scores[at] = r->softcap[at] = NAN;
        r->masked[at] = -INFINITY;
        r->terms[at] = r->all_terms[at] = INFINITY;
        if (all && !ref_has_key(d, r, s->b, j)) r->scores[at] = r->softcap[at] = -INFINITY;
        if (!allowed && (!all || !ref_has_key(d, r, s->b, j))) continue;
        if (!prepared) ref_prepare_query(s, i);
        prepared = 1;
        r->scores[at] = ref_score(s, i, j, &r->terms[at]);
        if (ref_is_distance(d->score)) r->exp_scores[at] = exp(r->scores[at]);
        r->softcap[at] = ref_softcap(d, r->scores[at]);
        if (!allowed || r->softcap[at] == -INFINITY) continue;
        double bias = ref_bias(d, s->b, s->h, i, ref_column(d, r, s->b, j));
        double slope = d->alibi.rank ? ref_at(&d->alibi, 0, 0, 0, s->h) : 0;
        int64_t first = ref_entry_of(d, r, s->b).k0;
        double alibi = slope * (double)ref_distance(ref_position(d, r, s->b, i), j - first);
        r->masked[at] = r->softcap[at] + bias - alibi;
        r->all_terms[at] = r->terms[at] + fabs(bias) + fabs(alibi);
    }
}

/* max that lets NaN through */
static double ref_max(double a, double b) { return isnan(a) || a > b ? a : b; }

static void ref_row_stats(const ref_head *s, int64_t row) { /* leaves e^(score - largest) where the weights will be */
    const ref_result *r = s->r;
    const double *masked = r->masked + row * r->sk;
    double *exps = r->weights + row * r->sk;
    double top = -INFINITY, sum = 0, off = 0;
    for (int64_t j = 0; j < r->sk; j++) top = ref_max(top, masked[j]);
    for (int64_t j = 0; j < r->sk; j++) {
        double terms = r->all_terms[row * r->sk + j];
        if (masked[j] == -INFINITY) continue;
        sum += exps[j] = exp(masked[j] - top);
        if (ref_is_distance(s->d->score)) terms = (1 + terms) / fmin(1, r->exp_scores[row * r->sk + j]);
        if (terms > off) off = terms;
    }
    r->stats[2 * row] = top;
    r->stats[2 * row + 1] = sum;
    r->stats_off[row] = 1 + off;
}

static void ref_row_softmax(const ref_head *s, int64_t i) {
    const attn_desc *d = s->d;
    const ref_result *r = s->r;
    int64_t row = ref_row_index(r, s->b, s->h, i);
    double *weights = r->weights + row * r->sk;
    const double *masked = r->masked + row * r->sk;
    double sink = d->sink.rank ? ref_at(&d->sink, 0, 0, 0, s->h) : -INFINITY, top = sink, sum;
    for (int64_t j = 0; j < r->sk; j++) top = ref_max(top, masked[j]);
    if (top == -INFINITY) {
        const int64_t keys = ref_entry_of(d, r, s->b).k;
        const double same = d->empty == ATTN_EMPTY_NAN ? NAN : d->empty == ATTN_EMPTY_UNIFORM ? 1 / (double)keys : 0;
        r->lse[row] = -INFINITY;
        for (int64_t j = 0; j < r->sk; j++) weights[j] = ref_has_key(d, r, s->b, j) ? same : 0;
        return;
    }
    sum = sink == -INFINITY ? 0 : exp(sink - top);
    for (int64_t j = 0; j < r->sk; j++) {
        if (masked[j] == -INFINITY) continue;
        if (top != r->stats[2 * row]) weights[j] = exp(masked[j] - top); /* the sink is larger */
        sum += weights[j];
    }
    for (int64_t j = 0; j < r->sk; j++) weights[j] = masked[j] == -INFINITY ? 0 : weights[j] / sum;
    r->lse[row] = top + log(sum);
}

/* V and S of the bound. A key whose exact weight is far below rounding adds nothing to S, nor does one
 * outside. */
static void ref_row_bound(ref_head *s, int64_t i, int uniform) {
    const attn_desc *d = s->d;
    const ref_result *r = s->r;
    int64_t row = ref_row_index(r, s->b, s->h, i);
    double v_max = 0, s_max = 0;
    for (int64_t j = 0; j < r->sk; j++) {
        double masked = r->masked[row * r->sk + j], terms = r->all_terms[row * r->sk + j];
        if (masked == -INFINITY && !(uniform && ref_has_key(d, r, s->b, j))) continue;
        const double *v = ref_v(s, j);
        for (int64_t c = 0; c < r->dv; c++)
            if (isfinite(v[c]) && fabs(v[c]) > v_max) v_max = fabs(v[c]);
        if (isfinite(terms) && terms > s_max && masked - r->lse[row] > -40 - 1e-5 * terms) s_max = terms;
    }
    r->v_max[row] = d->dropout < 1 ? v_max / (1 - (double)d->dropout) : 0;
    r->s_max[row] = s_max;
}

static void ref_row_output(ref_head *s, int64_t i) {
    const attn_desc *d = s->d;
    const ref_result *r = s->r;
    int64_t row = ref_row_index(r, s->b, s->h, i);
    const double *weights = r->weights + row * r->sk, *masked = r->masked + row * r->sk;
    double *dropped = r->dropped + row * r->sk, *out = r->out + row * r->dv;
    int empty = r->lse[row] == -INFINITY, uniform = empty && d->empty == ATTN_EMPTY_UNIFORM;
    for (int64_t j = 0; j < r->sk; j++) {
        dropped[j] = weights[j];
        if (d->dropout > 0 && !(empty && d->empty == ATTN_EMPTY_NAN))
            dropped[j] = ref_kept(d, r, s->b, s->h, i, j) ? weights[j] / (1 - (double)d->dropout) : 0;
    }
    for (int64_t c = 0; c < r->dv; c++) out[c] = empty && d->empty == ATTN_EMPTY_NAN ? NAN : 0;
    for (int64_t j = 0; j < r->sk; j++) {
        if (masked[j] == -INFINITY && !(uniform && ref_has_key(d, r, s->b, j))) continue;
        const double *v = ref_v(s, j);
        for (int64_t c = 0; c < r->dv; c++) out[c] += dropped[j] * v[c];
    }
    ref_row_bound(s, i, uniform);
}

/* One entry alone counts as packed where it has starts and lengths and no array of queries by keys; a mask or a bias
   may have other columns than the keys. */
static int ref_pairs(const ref_result *r, const attn_view *v, int broadcast) {
    int64_t columns = v->rank > 0 ? v->size[v->rank - 1] : 1, rows = v->rank > 1 ? v->size[v->rank - 2] : 1;
    return v->rank && (!broadcast || ((columns == 1 || columns == r->sk) && (rows > 1 || columns > 1)));
}
static int ref_alone(const attn_desc *d, const ref_result *r, const attn_view *starts, const attn_view *lengths) {
    return r->b == 1 && starts->rank && lengths->rank && !ref_pairs(r, &d->given_scores, 0) && !d->weights.rank &&
           !d->scores.rank && !d->scores_softcap.rank && !d->scores_masked.rank &&
           !ref_pairs(r, d->bias_index.rank ? &d->bias_index : &d->bias, 1) && !ref_pairs(r, &d->mask, 1);
}

/* ---- the whole */
void ref_sizes(const attn_desc *d, ref_result *r) {
    int given = d->score == ATTN_SCORE_GIVEN;
    memset(r, 0, sizeof *r);
    r->b = r->rows_b = given ? d->given_scores.size[0] : d->q.size[0];
    r->h = given ? d->given_scores.size[1] : d->q.size[1];
    r->sq = given ? d->given_scores.size[2] : d->q.size[2];
    r->sk = given ? d->given_scores.size[3] : d->k.size[2];
    r->dk = given ? 0 : d->k.size[3];
    r->hkv = !given ? d->k.size[1] : d->v.rank ? d->v.size[1] : r->h;
    r->dv = d->v.rank ? d->v.size[3] : 0;
    r->hidden = d->score == ATTN_SCORE_ADDITIVE ? d->w_v.size[d->w_v.rank - 1] : 0;
    const attn_view *per_entry[3] = {&d->query_starts, &d->key_starts, &d->page_table};
    for (int n = 0; n < 3; n++)
        if (per_entry[n]->rank) r->b = per_entry[n]->size[0], r->has_entries = 1;
    if (d->page_table.rank && !given) r->sk = d->page_table.size[1] * d->k.size[2];
    r->packed_rows = r->rows_b != r->b || ref_alone(d, r, &d->query_starts, &d->query_lengths);
    r->packed_keys = !d->page_table.rank &&
                     ((d->k.rank && d->k.size[0] != r->b) || ref_alone(d, r, &d->key_starts, &d->key_lengths));
    if (r->has_entries && r->b > REF_ENTRIES) abort();
    for (int64_t b = 0; r->has_entries && b < r->b; b++) r->entries[b] = ref_find_entry(d, r, b);
}

double *ref_doubles(size_t n) {
    double *p = (double *)malloc((n + 1) * sizeof *p);
    if (!p) abort();
    return p;
}

static double *ref_take(double **from, int64_t n) {
    double *p = *from;
    *from += n;
    return p;
}

static void ref_allocate(ref_result *r) {
    int64_t rows = r->b * r->h * r->sq;
    double *p = r->block = ref_doubles((size_t)(rows * (r->dv + 6 + 8 * r->sk)));
    r->out = ref_take(&p, rows * r->dv);
    r->lse = ref_take(&p, rows);
    r->v_max = ref_take(&p, rows);
    r->s_max = ref_take(&p, rows);
    r->stats = ref_take(&p, 2 * rows);
    r->stats_off = ref_take(&p, rows);
    r->weights = ref_take(&p, rows * r->sk);
    r->dropped = ref_take(&p, rows * r->sk);
    r->scores = ref_take(&p, rows * r->sk);
    r->softcap = ref_take(&p, rows * r->sk);
    r->masked = ref_take(&p, rows * r->sk);
    r->terms = ref_take(&p, rows * r->sk);
    r->all_terms = ref_take(&p, rows * r->sk);
    r->exp_scores = ref_take(&p, rows * r->sk);
}

/* Free with ref_free. The descriptor must be one that attn_forward accepts. */
void ref_forward(const attn_desc *d, ref_result *r) {
    ref_sizes(d, r);
    ref_allocate(r);
    ref_head s;
    ref_make_head(&s, d, r);
    for (int64_t b = 0; b < r->b; b++) {
        for (int64_t h = 0; h < r->h; h++) {
            ref_begin_head(&s, b, h);
            for (int64_t i = 0; i < r->sq; i++) {
                ref_row_scores(&s, i);
                ref_row_stats(&s, ref_row_index(r, s.b, s.h, i));
                ref_row_softmax(&s, i);
                ref_row_output(&s, i);
            }
        }
    }
    ref_free_head(&s);
}

void ref_free(ref_result *r) { free(r->block); }

/* ---- comparison */
static const double ref_bounds[] = {
#define REF_X(name, text, bound) bound,
    ATTN_SCORE_LIST(REF_X)
#undef REF_X
};
const char *const ref_score_names[] = {
#define REF_X(name, text, bound) text,
    ATTN_SCORE_LIST(REF_X)
#undef REF_X
};

double ref_bound(const attn_desc *d) { return ref_bounds[d->score]; }

/* With --verbose: how near the bound of a score a test came. */
void ref_print_worst(int32_t score, double ratio) {
    if (test_verbose())
        printf("    %-20s largest error %.3f of the bound %g * V * (1 + S)\n", ref_score_names[score], ratio,
               ref_bounds[score]);
}

/* The few numbers that say which rows and keys a batch entry has. */
static void ref_print_entries(const attn_desc *d) {
    ref_result r;
    ref_sizes(d, &r);
    for (int64_t b = 0; r.has_entries && b < r.b; b++)
        printf("        entry %ld: rows %ld + %ld, keys %ld + %ld\n", (long)b, (long)r.entries[b].q0,
               (long)r.entries[b].q, (long)r.entries[b].k0, (long)r.entries[b].k);
}

static void ref_print_view(const char *name, const attn_view *v) {
    static const char *const types[] = {"f32", "f16", "bf16", "f64", "u8", "i32", "i64"};
    if (!v->rank) return;
    printf("        %-14s %s size", name, types[v->type]);
    for (int axis = 0; axis < v->rank; axis++) printf(" %ld", (long)v->size[axis]);
    printf(" stride");
    for (int axis = 0; axis < v->rank; axis++) printf(" %ld", (long)v->stride[axis]);
    printf("\n");
}

/* What is needed to build the same call again. */
void ref_print(const attn_desc *d) {
    const struct {
        const char *name;
        attn_view view;
    } views[] = {{"q", d->q},
                 {"k", d->k},
                 {"v", d->v},
                 {"given_scores", d->given_scores},
                 {"sigma_per_head", d->sigma_per_head},
                 {"bilinear", d->bilinear},
                 {"w_q", d->w_q},
                 {"w_k", d->w_k},
                 {"w_v", d->w_v},
                 {"hidden_bias", d->hidden_bias},
                 {"bias", d->bias},
                 {"bias_index", d->bias_index},
                 {"alibi", d->alibi},
                 {"sink", d->sink},
                 {"mask", d->mask},
                 {"key_lengths", d->key_lengths},
                 {"query_lengths", d->query_lengths},
                 {"positions", d->positions},
                 {"query_starts", d->query_starts},
                 {"key_starts", d->key_starts},
                 {"page_table", d->page_table},
                 {"out", attn_view_of(d->out)},
                 {"lse", attn_view_of(d->lse)},
                 {"weights", attn_view_of(d->weights)},
                 {"scores", attn_view_of(d->scores)},
                 {"scores_softcap", attn_view_of(d->scores_softcap)},
                 {"scores_masked", attn_view_of(d->scores_masked)},
                 {"stats", attn_view_of(d->stats)}};
    if (test_quiet()) return;
    printf("        %s, isa %s, scale %g (set %d), sigma %g, softcap %g, causal %d, align %d, window %d "
           "[%ld,%ld], "
           "empty %d, dropout %g (after %d) seed %llu origin %ld %ld %ld %ld\n",
           ref_score_names[d->score], attn_isa_string((attn_isa)d->isa), (double)d->scale, d->scale_set,
           (double)d->sigma, (double)d->softcap, d->causal, d->align, d->window, (long)d->window_left,
           (long)d->window_right, d->empty, (double)d->dropout, d->weights_after_dropout, (unsigned long long)d->seed,
           (long)d->dropout_origin[0], (long)d->dropout_origin[1], (long)d->dropout_origin[2],
           (long)d->dropout_origin[3]);
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) ref_print_view(views[i].name, &views[i].view);
    ref_print_entries(d);
}

/* How far a result is off, in units of its bound. */
typedef struct ref_worst {
    double ratio;     /* largest error / bound; above 1 = wrong; infinite where the kind of number is wrong */
    int64_t index[4]; /* of the first element above 1, else of the largest */
    double got, want, tolerance;
} ref_worst;

double ref_ratio(float got, double want, double tolerance) {
    uint32_t bits;
    memcpy(&bits, &got, sizeof bits);
    if (isnan(got) || isnan(want)) return isnan(want) && bits == 0x7fc00000u ? 0 : INFINITY;
    if (isinf(got) || isinf(want)) return (double)got == want ? 0 : INFINITY;
    double error = fabs((double)got - want);
    return error == 0 ? 0 : tolerance > 0 ? error / tolerance : INFINITY;
}

/* Where weights, or these times a scale of codes, may be rounded to bf16 before they meet v: half a unit of its last
   place, of each. */
static double ref_of_weights(const attn_desc *d) {
    int rounded = d->v.type == ATTN_BF16 || (d->v.type == ATTN_I8 && d->v_scale.size[3] == 1);
    return d->precision == ATTN_PRECISION_FAST && rounded ? ldexp(1, -8) : 0;
}
/* The error allowed for one element of a result. */
double ref_tolerance(const attn_desc *d, const ref_result *r, const double *want, int64_t row, int64_t at) {
    double unit = ref_bound(d) * (1 + r->s_max[row]);
    if (want == r->out) return (unit + ref_of_weights(d)) * r->v_max[row];
    if (want == r->lse) return ref_bound(d) * (1 + r->s_max[row] + fabs(r->lse[row]));
    if (want == r->weights || want == r->dropped) /* an excluded key has a weight of exactly 0 */
        return want[at] == 0 ? 0 : want == r->weights ? unit : unit / (1 - (double)d->dropout);
    unit = ref_bound(d) * (1 + (want == r->masked ? r->all_terms : r->terms)[at]);
    /* the logarithm of a kernel's weight: what is exact to the bound is the weight, near its edge not the logarithm */
    return ref_is_distance(d->score) && d->score != ATTN_SCORE_GAUSSIAN ? unit / r->exp_scores[at] : unit;
}

static ref_worst ref_compare_result(const attn_desc *d, const ref_result *r, const attn_out *got, const double *want) {
    ref_worst worst = {0, {0, 0, 0, 0}, 0, 0, 0};
    attn_view view = attn_view_of(*got);
    int64_t last = want == r->out ? r->dv : want == r->lse ? 1 : r->sk;
    for (int64_t row = 0; row < r->b * r->h * r->sq; row++) {
        int64_t b = row / (r->h * r->sq), h = row / r->sq % r->h, i = row % r->sq;
        if (!ref_has_row(d, r, b, i)) continue;
        for (int64_t c = 0; c < last; c++) {
            int64_t at = row * last + c;
            float value = (float)(want == r->lse ? ref_at(&view, 0, b, h, i) : ref_at(&view, b, h, i, c));
            double tolerance = ref_tolerance(d, r, want, row, at), ratio = ref_ratio(value, want[at], tolerance);
            if (!(ratio > worst.ratio)) continue;
            ref_worst found = {ratio, {b, h, i, c}, value, want[at], tolerance};
            worst = found;
            if (ratio > 1) return worst;
        }
    }
    return worst;
}

/* The two numbers of a row belong together: the sum is held against the one that goes with the maximum found. */
static double ref_stats_ratio(const attn_desc *d, const ref_result *r, int64_t row, double top, double sum) {
    double want = r->stats[2 * row], mass = r->stats[2 * row + 1], off = ref_bound(d) * r->stats_off[row];
    if (isnan(mass)) return isnan(sum) ? 0 : INFINITY; /* of a row with NaN or +inf the maximum says nothing */
    if (want == -INFINITY) return top == want && sum == 0 ? 0 : INFINITY;
    double ratio = fabs(top - want) / off;
    return fmax(ratio, fabs(log(sum) + top - log(mass) - want) / (off + ref_bound(d) * fabs(log(mass))));
}

static void ref_check_stats(const attn_desc *d, const ref_result *r, const char *what) {
    attn_view view = attn_view_of(d->stats);
    for (int64_t row = 0; d->stats.rank && row < r->b * r->h * r->sq; row++) {
        int64_t b = row / (r->h * r->sq), h = row / r->sq % r->h, i = row % r->sq;
        if (!ref_has_row(d, r, b, i)) continue;
        double top = ref_at(&view, b, h, i, 0), sum = ref_at(&view, b, h, i, 1),
               ratio = ref_stats_ratio(d, r, row, top, sum);
        if (CHECKF(ratio <= 1, "%s: stats[%ld,%ld,%ld] are %.9g and %.9g, want %.9g and %.9g (isa %s, seed %llu)", what,
                   (long)b, (long)h, (long)i, top, sum, r->stats[2 * row], r->stats[2 * row + 1],
                   attn_isa_string((attn_isa)d->isa), test_seed()))
            continue;
        ref_print(d);
        return;
    }
}

/* Checks every result that `d` asks for and attn_forward has written; returns the largest ratio of an error
   in out or weights to its bound. `what` says what was tried. */
double ref_check(const attn_desc *d, const ref_result *r, const char *what) {
    const struct {
        const char *name;
        const attn_out *got;
        const double *want;
    } results[] = {{"out", &d->out, r->out},
                   {"lse", &d->lse, r->lse},
                   {"weights", &d->weights, d->weights_after_dropout ? r->dropped : r->weights},
                   {"scores", &d->scores, r->scores},
                   {"scores_softcap", &d->scores_softcap, r->softcap},
                   {"scores_masked", &d->scores_masked, r->masked}};
    double ratio = 0;
    for (int n = 0; n < 6; n++) {
        if (!results[n].got->rank) continue;
        ref_worst w = ref_compare_result(d, r, results[n].got, results[n].want);
        if (n == 0 || n == 2) ratio = fmax(ratio, w.ratio);
        if (!CHECKF(w.ratio <= 1,
                    "%s: %s[%ld,%ld,%ld,%ld] is %.9g, want %.9g: off by %.3g, bound %.3g (isa %s, seed %llu)", what,
                    results[n].name, (long)w.index[0], (long)w.index[1], (long)w.index[2], (long)w.index[3], w.got,
                    w.want, fabs(w.got - w.want), w.tolerance, attn_isa_string((attn_isa)d->isa), test_seed()))
            ref_print(d);
    }
    ref_check_stats(d, r, what);
    return ratio;
}

const char *const ref_grad_names[GRAD_COUNT] = {"dq",         "dk",      "dv",     "d_given_scores", "d_bias",
                                                "d_bilinear", "d_w_q",   "d_w_k",  "d_w_v",          "d_hidden_bias",
                                                "d_sigma",    "d_scale", "d_sink", "d_alibi"};

/* ---- shapes */
attn_view ref_grad_like(const attn_desc *d, int which) {
    static const float one = 1;
    attn_view none;
    memset(&none, 0, sizeof none);
    switch (which) {
    case GRAD_Q: return d->q;
    case GRAD_K: return d->k;
    case GRAD_V: return d->v;
    case GRAD_GIVEN: return d->given_scores;
    case GRAD_BIAS: return d->bias;
    case GRAD_BILINEAR: return d->bilinear;
    case GRAD_W_Q: return d->w_q;
    case GRAD_W_K: return d->w_k;
    case GRAD_W_V: return d->w_v;
    case GRAD_HIDDEN_BIAS: return d->hidden_bias;
    case GRAD_SIGMA:
        if (!ref_is_distance(d->score)) return none;
        return d->sigma_per_head.rank ? d->sigma_per_head : attn_view_f32(&one, 1, 1, 0, 0, 0);
    case GRAD_SCALE: return ref_is_kernel(d->score) ? none : attn_view_f32(&one, 1, 1, 0, 0, 0);
    case GRAD_SINK: return d->sink;
    default: return d->alibi;
    }
}

void ref_make_tensor(ref_tensor *t, attn_view like) {
    memset(t, 0, sizeof *t);
    t->like = like;
    if (!like.rank) return;
    t->count = 1;
    for (int axis = like.rank; axis-- > 0;) {
        t->like.stride[axis] = t->count;
        t->count *= like.size[axis];
    }
    t->x = (double *)calloc((size_t)t->count + 1, sizeof *t->x);
    t->error = (double *)calloc((size_t)t->count + 1, sizeof *t->error);
    if (!t->x || !t->error) abort();
}

/* Adds to element [a,b,c,d], broadcast as the thing itself is. */
void ref_add(ref_tensor *t, int64_t a, int64_t b, int64_t c, int64_t d, double x, double error) {
    int64_t at = ref_offset(&t->like, a, b, c, d);
    t->x[at] += x;
    t->error[at] += error;
}

/* A row of one along its last axis, which is packed. */
typedef struct ref_sums {
    double *x, *error;
} ref_sums;
static ref_sums ref_sums_of(ref_tensor *t, int64_t a, int64_t b, int64_t c) {
    int64_t at = ref_offset(&t->like, a, b, c, 0);
    ref_sums sums = {t->x + at, t->error + at};
    return sums;
}
static void ref_add_to(ref_sums to, int64_t n, double x, double error) {
    to.x[n] += x;
    to.error[n] += error;
}

/* Where a slope is 0, what it is taken of may be infinite. */
static double ref_share(double slope, double x) { return slope == 0 ? 0 : slope * x; }

/* ---- what a raw score is made of. g is dL/d(raw score), e how far it may be off. */
static void ref_grad_dot(ref_grads *g, ref_head *s, int64_t i, int64_t j, double slope, double e) {
    const double *q = ref_q(s, i), *k = ref_k(s, j);
    ref_sums dq = ref_sums_of(&g->g[GRAD_Q], s->b, s->h, i), dk = ref_sums_of(&g->g[GRAD_K], s->b, s->hkv, j);
    double scale = g->scale, raw = 0, terms = 0;
    for (int64_t c = 0; c < g->forward.dk; c++) {
        ref_add_to(dq, c, slope * scale * k[c], e * fabs(scale * k[c]));
        ref_add_to(dk, c, slope * scale * q[c], e * fabs(scale * q[c]));
        raw += q[c] * k[c];
        terms += fabs(q[c] * k[c]);
    }
    ref_add(&g->g[GRAD_SCALE], 0, 0, 0, 0, slope * raw, e * terms);
}

static void ref_grad_cosine(ref_grads *g, ref_head *s, int64_t i, int64_t j, double slope, double e) {
    const double *query = ref_q(s, i), *key = ref_k(s, j);
    ref_sums dq = ref_sums_of(&g->g[GRAD_Q], s->b, s->h, i), dk = ref_sums_of(&g->g[GRAD_K], s->b, s->hkv, j);
    double scale = g->scale, dot = 0, terms = 0, q2 = 0, k2 = 0;
    for (int64_t c = 0; c < g->forward.dk; c++) {
        dot += query[c] * key[c];
        terms += fabs(query[c] * key[c]);
        q2 += query[c] * query[c];
        k2 += key[c] * key[c];
    }
    if (q2 == 0 || k2 == 0) return; /* the cosine of a zero vector is 0, and has no direction */
    double q_norm = sqrt(q2), k_norm = sqrt(k2), cosine = dot / q_norm / k_norm;
    terms /= q_norm * k_norm;
    double small = 1e-44 / GRAD_BOUND / (q_norm * k_norm); /* a slope times a tiny component may be subnormal */
    for (int64_t c = 0; c < g->forward.dk; c++) {
        double q = query[c] / q_norm, k = key[c] / k_norm;
        ref_add_to(dq, c, slope * scale * (k - cosine * q) / q_norm,
                   fabs(scale) * (e * (fabs(k) + terms * fabs(q)) / q_norm + small));
        ref_add_to(dk, c, slope * scale * (q - cosine * k) / k_norm,
                   fabs(scale) * (e * (fabs(q) + terms * fabs(k)) / k_norm + small));
    }
    ref_add(&g->g[GRAD_SCALE], 0, 0, 0, 0, slope * cosine, e * terms);
}

/* q M k */
static void ref_grad_bilinear(ref_grads *g, ref_head *s, int64_t i, int64_t j, double slope, double e) {
    const attn_desc *d = g->d;
    const double *q = ref_q(s, i), *k = ref_k(s, j);
    ref_sums dq = ref_sums_of(&g->g[GRAD_Q], s->b, s->h, i), dk = ref_sums_of(&g->g[GRAD_K], s->b, s->hkv, j);
    double scale = g->scale, raw = 0, all_terms = 0;
    for (int64_t a = 0; a < d->q.size[3]; a++) {
        const double *m = ref_m(s, a);
        ref_sums dm = ref_sums_of(&g->g[GRAD_BILINEAR], 0, s->h, a);
        double sum = 0, terms = 0;
        for (int64_t c = 0; c < d->k.size[3]; c++) {
            sum += m[c] * k[c];
            terms += fabs(m[c] * k[c]);
            ref_add_to(dk, c, slope * scale * q[a] * m[c], e * fabs(scale * q[a] * m[c]));
            ref_add_to(dm, c, slope * scale * q[a] * k[c], e * fabs(scale * q[a] * k[c]));
        }
        ref_add_to(dq, a, slope * scale * sum, e * fabs(scale) * terms);
        raw += q[a] * sum;
        all_terms += fabs(q[a]) * terms;
    }
    ref_add(&g->g[GRAD_SCALE], 0, 0, 0, 0, slope * raw, e * all_terms);
}

/* w_v tanh(a + b): what belongs to W_q q and W_k k is collected per query and per key, see below */
static void ref_grad_additive(ref_grads *g, ref_head *s, int64_t j, double slope, double e) {
    const attn_desc *d = g->d;
    const double *biases = ref_hidden_bias(s), *w_v = ref_w_v(s);
    int64_t hidden = g->forward.hidden;
    double scale = g->scale, raw = 0, all_terms = 0;
    for (int64_t u = 0; u < hidden; u++) {
        double bias = biases ? biases[u] : 0, key = s->keys[j * hidden + u], w = w_v[u],
               t = tanh(s->query[u] + key + bias), steep = 1 - t * t,
               inner = fabs(s->query[u]) + fabs(key) + fabs(bias), x = slope * scale * w * steep,
               x_error = fabs(scale * w) *
                         (ref_share(steep, e) + (fabs(slope) + GRAD_BOUND * e) * (1 + ref_share(steep, inner)));
        raw += w * t;
        all_terms += fabs(w) * (1 + inner);
        ref_add(&g->g[GRAD_W_V], 0, 0, s->h, u, slope * scale * t,
                fabs(scale) * (e * fabs(t) + (fabs(slope) + GRAD_BOUND * e) * (1 + ref_share(steep, inner))));
        if (d->hidden_bias.rank) ref_add(&g->g[GRAD_HIDDEN_BIAS], 0, 0, s->h, u, x, x_error);
        g->hidden_q[u] += x;
        g->hidden_q_error[u] += x_error;
        g->hidden_k[j * hidden + u] += x;
        g->hidden_k_error[j * hidden + u] += x_error;
    }
    ref_add(&g->g[GRAD_SCALE], 0, 0, 0, 0, slope * raw, e * all_terms);
}

/* From dL/d(W x) to dL/dW and dL/dx; without W they are the same. */
static void ref_grad_project(ref_grads *g, const attn_view *w, const attn_view *x, ref_tensor *dw, ref_tensor *dx,
                             int64_t b, int64_t head, int64_t whead, int64_t row, const double *slope,
                             const double *error) {
    for (int64_t u = 0; u < g->forward.hidden; u++) {
        if (!w->rank) ref_add(dx, b, head, row, u, slope[u], error[u]);
        for (int64_t c = 0; w->rank && c < x->size[3]; c++) {
            double factor = ref_at(w, 0, whead, u, c), value = ref_at(x, b, head, row, c);
            ref_add(dx, b, head, row, c, slope[u] * factor, error[u] * fabs(factor));
            ref_add(dw, 0, whead, u, c, slope[u] * value, error[u] * fabs(value));
        }
    }
}

/* The logarithm of a weight that depends on u = |q - k|/sigma. m (q - k) is its slope in q. */
static void ref_grad_distance(ref_grads *g, ref_head *s, int64_t i, int64_t j, double slope, double e) {
    const attn_desc *d = g->d;
    const double *q = ref_q(s, i), *k = ref_k(s, j);
    ref_sums dq = ref_sums_of(&g->g[GRAD_Q], s->b, s->h, i), dk = ref_sums_of(&g->g[GRAD_K], s->b, s->hkv, j);
    double sigma = ref_sigma(d, s->h), square = 0, m = 0;
    for (int64_t c = 0; c < g->forward.dk; c++) {
        double difference = q[c] - k[c];
        square += difference * difference;
    }
    double u = sqrt(square) / sigma;
    if (d->score == ATTN_SCORE_GAUSSIAN) m = -1 / (sigma * sigma);
    if (d->score == ATTN_SCORE_EPANECHNIKOV) m = -2 / (sigma * sigma * (1 - u * u));
    if (d->score == ATTN_SCORE_TRIANGULAR && u != 0) m = -1 / (sigma * sigma * u * (1 - u));
    for (int64_t c = 0; c < g->forward.dk; c++) {
        double x = m * (q[c] - k[c]);
        ref_add_to(dq, c, slope * x, e * fabs(x));
        ref_add_to(dk, c, -slope * x, e * fabs(x));
    }
    ref_add(&g->g[GRAD_SIGMA], 0, 0, 0, s->h, -slope * m * square / sigma, e * fabs(m) * square / sigma);
}

static void ref_grad_raw(ref_grads *g, ref_head *s, int64_t i, int64_t j, double slope, double e) {
    switch (g->d->score) {
    case ATTN_SCORE_SCALED_DOT:
    case ATTN_SCORE_DOT: ref_grad_dot(g, s, i, j, slope, e); break;
    case ATTN_SCORE_COSINE: ref_grad_cosine(g, s, i, j, slope, e); break;
    case ATTN_SCORE_BILINEAR: ref_grad_bilinear(g, s, i, j, slope, e); break;
    case ATTN_SCORE_ADDITIVE: ref_grad_additive(g, s, j, slope, e); break;
    case ATTN_SCORE_GAUSSIAN:
    case ATTN_SCORE_EPANECHNIKOV:
    case ATTN_SCORE_TRIANGULAR: ref_grad_distance(g, s, i, j, slope, e); break;
    case ATTN_SCORE_GIVEN: {
        double given = ref_at(&g->d->given_scores, s->b, s->h, i, j);
        ref_add(&g->g[GRAD_GIVEN], s->b, s->h, i, j, slope * g->scale, e * fabs(g->scale));
        ref_add(&g->g[GRAD_SCALE], 0, 0, 0, 0, slope * given, e * fabs(given));
        break;
    }
    default: break; /* steps and constants have no slope */
    }
}

/* ---- one row */

/* How far a weight may be off, relative to it. Next to a kernel's edge it is a small difference of rounded numbers. */
static double ref_grad_off(const attn_desc *d, const ref_result *r, int64_t row, int64_t at) {
    int edge = d->score == ATTN_SCORE_EPANECHNIKOV || d->score == ATTN_SCORE_TRIANGULAR;
    return 1 + (r->all_terms[at] > r->s_max[row] ? r->all_terms[at] : r->s_max[row]) +
           (edge ? 0.1 / r->exp_scores[at] : 0);
}

/* As large as the weight may be found: where scores are so large that they lose their digits, rows become flat. */
static double ref_grad_reach(const ref_result *r, int64_t row, int64_t at, double off) {
    return exp(fmin(0, r->masked[at] - r->lse[row] + GRAD_BOUND * off));
}

/* dL/d(weight) of one pair and the sum of its absolute terms; adds the pair's part of dv. `error`: of the weight.
   ref_tiny stands for a weight below 2^-126, which is rounded to 0: what that is in units of the bound. */
static const double ref_tiny = 2e-32;

static double ref_grad_weight(ref_grads *g, ref_head *s, int64_t i, int64_t j, double error, double *terms) {
    const attn_desc *d = g->d;
    const ref_result *r = &g->forward;
    int64_t at = ref_row_index(r, s->b, s->h, i) * r->sk + j;
    double kept = d->dropout > 0 ? ref_kept(d, r, s->b, s->h, i, j) ? 1 / (1 - (double)d->dropout) : 0 : 1, slope = 0;
    *terms = 0;
    if (g->up->out.rank) {
        const double *upstream = ref_row(&g->d_out, i, s->b, s->h, i), *v = ref_v(s, j);
        ref_sums dv = ref_sums_of(&g->g[GRAD_V], s->b, s->hkv, j);
        double weight = r->dropped[at], share = ref_share(kept, error), sum = 0;
        for (int64_t c = 0; c < r->dv; c++) {
            slope += upstream[c] * v[c];
            sum += fabs(upstream[c] * v[c]);
            ref_add_to(dv, c, weight * upstream[c], share * fabs(upstream[c]));
        }
        *terms = sum;
    }
    double given = g->up->weights.rank ? ref_at(&g->up->weights, s->b, s->h, i, j) : 0;
    if (d->weights_after_dropout) given *= kept;
    *terms = kept * *terms + fabs(given);
    return kept * slope + given;
}

static void ref_grad_pair(ref_grads *g, ref_head *s, int64_t i, int64_t j, double slope, double error, double off) {
    const attn_desc *d = g->d;
    const ref_result *r = &g->forward;
    int64_t row = ref_row_index(r, s->b, s->h, i), at = row * r->sk + j;
    int64_t first = ref_entry_of(d, r, s->b).k0;
    double distance = (double)ref_distance(ref_position(d, r, s->b, i), j - first), steep = 1;
    double e = ref_share(error, off);
    int64_t column = ref_column(d, r, s->b, j);
    int64_t of_table = d->bias_index.rank ? ref_bias_index(d, s->b, s->h, i, column) : -1;
    if (d->bias.rank && !d->bias_index.rank) ref_add(&g->g[GRAD_BIAS], s->b, s->h, i, column, slope, e);
    else if (of_table >= 0) ref_add(&g->g[GRAD_BIAS], 0, 0, s->h, of_table, slope, e);
    if (d->alibi.rank) ref_add(&g->g[GRAD_ALIBI], 0, 0, 0, s->h, -slope * distance, e * distance);
    if (d->softcap > 0) { /* the slope of tanh where it is flat is a small difference of rounded numbers */
        double t = tanh(r->scores[at] / d->softcap);
        steep = 1 - t * t;
        e = ref_share(steep, e) + error * (1 + ref_share(steep, r->terms[at] / d->softcap));
    }
    ref_grad_raw(g, s, i, j, slope * steep, e);
}

static void ref_grad_uniform_row(ref_grads *g, ref_head *s, int64_t i) {
    ref_entry e = ref_entry_of(g->d, &g->forward, s->b);
    for (int64_t j = e.k0; j < e.k0 + e.k; j++) {
        double terms;
        if (g->up->out.rank) ref_grad_weight(g, s, i, j, 1 / (double)e.k, &terms);
    }
}

/* The row's delta = sum over k of P_k dL/dP_k is a term in the gradient of every weight W of the row: W (.. - delta).
   In W P_k dL/dP_k the weights are off by `off` and by off_k, relative to themselves, and the larger one counts; this
   is the sum of these terms in units of `off`. Keys that matter all have the same, 1 + S. But a key far below, with a
   weight of e^-43, may have more terms in its score than S says, and it is all there is of delta where the others have
   no dL/dP: their values are 0, they are dropped, or the sink has all the mass. */
static double ref_delta_terms(double delta_terms, double delta_error, double off) {
    return fmax(delta_terms, delta_error / off);
}

/* What is known of a row's keys, [sk] each: dL/d(weight), the sum of its absolute terms, how large the weight may be
   found, how far it may be off, relative to it. */
typedef struct ref_grad_keys {
    double *slope, *terms, *reach, *off;
} ref_grad_keys;

static void ref_grad_row(ref_grads *g, ref_head *s, int64_t i, const ref_grad_keys *key) {
    double *slope = key->slope, *terms = key->terms, *reach = key->reach, *off = key->off;
    const attn_desc *d = g->d;
    const ref_result *r = &g->forward;
    int64_t row = ref_row_index(r, s->b, s->h, i);
    const double *weights = r->weights + row * r->sk, *masked = r->masked + row * r->sk;
    double delta = 0, delta_terms = 0, delta_error = 0,
           d_lse = g->up->lse.rank ? ref_at(&g->up->lse, 0, s->b, s->h, i) : 0;
    if (!ref_has_row(d, r, s->b, i)) return;
    if (r->lse[row] == -INFINITY) { /* a row without mass has no gradients, but for the values under UNIFORM */
        if (d->empty == ATTN_EMPTY_UNIFORM) ref_grad_uniform_row(g, s, i);
        return;
    }
    if (d->score == ATTN_SCORE_ADDITIVE) {
        memset(g->hidden_q, 0, (size_t)r->hidden * sizeof(double));
        memset(g->hidden_q_error, 0, (size_t)r->hidden * sizeof(double));
        ref_prepare_query(s, i);
    }
    for (int64_t j = 0; j < r->sk; j++) {
        if (masked[j] == -INFINITY) continue;
        off[j] = ref_grad_off(d, r, row, row * r->sk + j);
        reach[j] = ref_grad_reach(r, row, row * r->sk + j, off[j]) + ref_tiny;
        slope[j] = ref_grad_weight(g, s, i, j, ref_share(reach[j], off[j]), &terms[j]);
        delta += weights[j] * slope[j];
        delta_terms += reach[j] * terms[j];
        delta_error += ref_share(reach[j] * terms[j], off[j]);
    }
    for (int64_t j = 0; j < r->sk; j++) {
        double ignored;
        if (masked[j] == -INFINITY) continue;
        if (d->score == ATTN_SCORE_ADDITIVE && !s->key_ready[j]) ref_additive(s, j, &ignored);
        ref_grad_pair(g, s, i, j, weights[j] * (slope[j] - delta + d_lse),
                      reach[j] * (terms[j] + ref_delta_terms(delta_terms, delta_error, off[j]) + fabs(d_lse)), off[j]);
    }
    if (d->sink.rank) {
        double sink = ref_at(&d->sink, 0, 0, 0, s->h), weight = sink == -INFINITY ? 0 : exp(sink - r->lse[row]),
               own_off = 1 + r->s_max[row] + fabs(sink);
        if (weight != 0) /* NaN too */
            ref_add(&g->g[GRAD_SINK], 0, 0, 0, s->h, weight * (d_lse - delta),
                    (weight + ref_tiny) * own_off * (ref_delta_terms(delta_terms, delta_error, own_off) + fabs(d_lse)));
    }
    if (d->score == ATTN_SCORE_ADDITIVE)
        ref_grad_project(g, &d->w_q, &d->q, &g->g[GRAD_W_Q], &g->g[GRAD_Q], s->b, s->h, s->h, i, g->hidden_q,
                         g->hidden_q_error);
}

/* ---- the whole */
void ref_backward(const attn_desc *d, const ref_upstream *up, ref_grads *g) {
    memset(g, 0, sizeof *g);
    ref_forward(d, &g->forward);
    const ref_result *r = &g->forward;
    int64_t hidden_keys = r->sk * r->hidden;
    double *block = ref_doubles((size_t)(4 * r->sk));
    ref_grad_keys key = {block, block + r->sk, block + 2 * r->sk, block + 3 * r->sk};
    ref_head s;
    ref_make_head(&s, d, r);
    ref_make_rows(&g->d_out, &up->out, r->sq);
    g->d = d;
    g->up = up;
    g->scale = ref_scale(d, r);
    g->hidden_k = ref_doubles((size_t)hidden_keys);
    g->hidden_k_error = ref_doubles((size_t)hidden_keys);
    g->hidden_q = ref_doubles((size_t)r->hidden);
    g->hidden_q_error = ref_doubles((size_t)r->hidden);
    for (int n = 0; n < GRAD_COUNT; n++) ref_make_tensor(&g->g[n], ref_grad_like(d, n));
    for (int64_t b = 0; b < r->b; b++)
        for (int64_t h = 0; h < r->h; h++) {
            ref_begin_head(&s, b, h);
            memset(g->d_out.ready, 0, (size_t)r->sq);
            memset(g->hidden_k, 0, (size_t)hidden_keys * sizeof(double));
            memset(g->hidden_k_error, 0, (size_t)hidden_keys * sizeof(double));
            for (int64_t i = 0; i < r->sq; i++) ref_grad_row(g, &s, i, &key);
            for (int64_t j = 0; d->score == ATTN_SCORE_ADDITIVE && j < r->sk; j++)
                if (s.key_ready[j]) /* some row may attend to it */
                    ref_grad_project(g, &d->w_k, &d->k, &g->g[GRAD_W_K], &g->g[GRAD_K], s.b, s.hkv, s.h, j,
                                     g->hidden_k + j * r->hidden, g->hidden_k_error + j * r->hidden);
        }
    free(block);
    ref_free_head(&s);
    ref_free_rows(&g->d_out);
    free(g->hidden_k);
    free(g->hidden_k_error);
    free(g->hidden_q);
    free(g->hidden_q_error);
}

void ref_free_grads(ref_grads *g) {
    ref_free(&g->forward);
    for (int n = 0; n < GRAD_COUNT; n++) {
        free(g->g[n].x);
        free(g->g[n].error);
    }
}
