/* mpicc -O2 ring.c -lm -o ring && mpirun -n 4 ./ring [--causal] [TOKENS] */
/* One sequence whose keys and values are spread over the processes of an MPI job. They stay where they are: each rank
   has a range of them. Blocks of queries travel from rank to rank in the order of the keys, and with them what the
   ranks before have left of each row (attn_desc.carry_out, carry_in), so that the last one has the bits of one process
   that has all keys. Many blocks are on their way at once, as in a pipeline; with --causal a block ends at the rank
   that has its last key. For the gradients the blocks travel once more, with out, stats and the sums for dq; dk and dv
   stay. Rank 0 has the queries, gets the results, and compares them with one call.
       With RING_CUDA keys and values lie on GPUs, one for each rank, or several ranks have one:
       nvcc -O3 -std=c++17 -arch=native -c ../cuda/kernels.cu (Hopper: -arch=sm_90a)
       mpicc -O2 -DRING_CUDA -I/usr/local/cuda/include ring.c kernels.o -L/usr/local/cuda/lib64 -lcudart -lstdc++ -lm
   Blocks then come and go by way of host memory; --device-memory: MPI takes them from the device and leaves them there,
   as CUDA-aware MPI does. Results are within the bounds of one call, not its bits. */
#ifdef RING_CUDA
#define ATTN_CUDA
#endif
#define ATTN_IMPLEMENTATION
#include "../../attn.h"
#include "../numbers.h"
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef HEADS
#define HEADS 8
#endif
enum { H = HEADS, D = 64, BLOCK = 128, SLOTS = 4 }; /* SLOTS: blocks that come, go and wait at once */
enum { ROWS = H * BLOCK, VECTORS = ROWS * D };      /* of a block */

typedef struct ring {
    int rank, ranks, causal;
    int64_t tokens, blocks;
    int64_t first, keys;    /* of this rank */
    float *k, *v, *dk, *dv; /* [H, keys, D], on the device */
    float *working;         /* the block in work, on the device; NULL: it stays where MPI leaves it */
    int64_t *position;      /* of its first query, on the device */
    /* of rank 0: block by block, [blocks][H, BLOCK, .] */
    float *q, *d_out, *out, *stats, *dq;
    double waited; /* seconds of the journey at hand */
} ring;

static void stop(const char *what) {
    printf("%s\n", what);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}
static float *take(int64_t floats) {
    float *p = (float *)calloc((size_t)(floats > 0 ? floats : 1), sizeof(float));
    if (!p) stop("no memory");
    return p;
}

/* ---- the device of a rank: a GPU, or this machine itself */
#ifdef RING_CUDA
#include <cuda_runtime_api.h>
enum { ON_DEVICE = 1 };
static void must_cuda(cudaError_t error) {
    if (error != cudaSuccess) stop(cudaGetErrorString(error));
}
/* The devices of a machine in turn: its ranks are neighbours, as mpirun deals them unless it is told otherwise. */
static void choose_device(int rank) {
    int devices;
    must_cuda(cudaGetDeviceCount(&devices));
    must_cuda(cudaSetDevice(rank % devices));
}
static void *take_on_device(size_t bytes) {
    void *p;
    must_cuda(cudaMalloc(&p, bytes ? bytes : 1));
    must_cuda(cudaMemset(p, 0, bytes));
    return p;
}
static void free_on_device(void *p) { must_cuda(cudaFree(p)); }
/* From anywhere to anywhere, when what was enqueued before is done */
static void copy(void *to, const void *from, size_t bytes) {
    if (to != from) must_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
    must_cuda(cudaDeviceSynchronize());
}
#else
enum { ON_DEVICE = 0 };
static void choose_device(int rank) { (void)rank; }
static void *take_on_device(size_t bytes) { return take((int64_t)(bytes / sizeof(float))); }
static void free_on_device(void *p) { free(p); }
static void copy(void *to, const void *from, size_t bytes) {
    if (to != from) memcpy(to, from, bytes);
}
#endif
static float *floats_on_device(int64_t n) { return (float *)take_on_device((size_t)n * sizeof(float)); }
static void copy_floats(float *to, const float *from, int64_t n) { copy(to, from, (size_t)n * sizeof *to); }

static void must(attn_status status, const attn_error *err) {
    char text[200];
    if (status == ATTN_OK) return;
    attn_error_string(err, text, sizeof text);
    stop(text);
}

/* Number `at` of array `which`, -1 .. 1: every rank can make any part of any array. */
static float number(uint64_t which, uint64_t at) {
    uint64_t x = (at << 3 | which) * 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return (float)((double)((x ^ x >> 31) >> 40) / 8388608.0 - 1);
}
/* Tokens first .. first + n of all heads */
static void make_tokens(int which, int64_t first, int64_t n, float *to) {
    for (int64_t h = 0; h < H; h++)
        for (int64_t i = 0; i < n * D; i++) *to++ = number((uint64_t)which, (uint64_t)(h << 40 | (first * D + i)));
}
static float *tokens_on_device(int which, int64_t first, int64_t n) {
    float *made = take(H * n * D), *there = floats_on_device(H * n * D);
    make_tokens(which, first, n, made);
    copy_floats(there, made, H * n * D);
    free(made);
    return there;
}

/* ---- who has which keys: multiples of ATTN_PART_KEYS. Causal, a rank's keys meet the queries from there on: the first
   ranks have fewer, so that all have as much to do. */
static int64_t first_key(const ring *r, int rank) {
    double share = (double)rank / r->ranks;
    if (rank == r->ranks) return r->tokens;
    if (r->causal) share = 1 - sqrt(1 - share);
    return (int64_t)(share * (double)r->tokens) / ATTN_PART_KEYS * ATTN_PART_KEYS;
}
/* Where a block's journey ends. */
static int last_rank(const ring *r, int64_t block) {
    int rank = r->ranks - 1;
    while (r->causal && rank > 0 && first_key(r, rank) >= (block + 1) * BLOCK) rank--;
    return rank;
}

/* ---- a journey: `load` fills a block at rank 0, `work` is what each rank does with it on its device, and what it
   leaves in `result` if it is the last one; the results come back to rank 0, one after the other in `results`. */
typedef struct journey {
    int floats, result_floats;
    void (*load)(const ring *r, int64_t block, float *at);
    void (*work)(ring *r, int64_t block, float *at, float *result);
    float *results;
} journey;

static void wait_for(ring *r, MPI_Request *request) {
    const double began = MPI_Wtime();
    MPI_Wait(request, MPI_STATUS_IGNORE);
    r->waited += MPI_Wtime() - began;
}
static int64_t next_block(const ring *r, int64_t block) { /* the next one that comes here; r->blocks: none does */
    do block++;
    while (block < r->blocks && last_rank(r, block) < r->rank);
    return block;
}
static double travel(ring *r, const journey *j) {
    const int pitch = j->floats + j->result_floats;
    float *slots = r->working ? take((int64_t)pitch * SLOTS) : floats_on_device((int64_t)pitch * SLOTS);
    MPI_Request arriving[SLOTS], leaving[SLOTS], *back = (MPI_Request *)malloc((size_t)r->blocks * sizeof *back);
    int64_t block = next_block(r, -1), n = 0, next;
    if (!back) stop("no memory");
    for (int s = 0; s < SLOTS; s++) arriving[s] = leaving[s] = MPI_REQUEST_NULL;
    MPI_Barrier(MPI_COMM_WORLD);
    const double began = MPI_Wtime();
    r->waited = 0;
    for (int64_t b = 0; b < r->blocks; b++) {
        const int from = last_rank(r, b);
        back[b] = MPI_REQUEST_NULL;
        if (r->rank == 0 && from > 0)
            MPI_Irecv(j->results + b * j->result_floats, j->result_floats, MPI_FLOAT, from, (int)b, MPI_COMM_WORLD,
                      &back[b]);
    }
    if (r->rank > 0 && block < r->blocks)
        MPI_Irecv(slots, j->floats, MPI_FLOAT, r->rank - 1, (int)block, MPI_COMM_WORLD, &arriving[0]);
    for (; block < r->blocks; block = next, n++) {
        const int slot = (int)(n % SLOTS), other = (int)((n + 1) % SLOTS), is_last = last_rank(r, block) == r->rank;
        float *at = slots + (int64_t)slot * pitch, *result = at + j->floats, *working = r->working ? r->working : at;
        next = next_block(r, block);
        if (r->rank == 0) {
            wait_for(r, &leaving[slot]);
            j->load(r, block, at);
        } else {
            if (next < r->blocks) { /* the next one arrives while this one is in work */
                wait_for(r, &leaving[other]);
                MPI_Irecv(slots + (int64_t)other * pitch, j->floats, MPI_FLOAT, r->rank - 1, (int)next, MPI_COMM_WORLD,
                          &arriving[other]);
            }
            wait_for(r, &arriving[slot]);
        }
        if (is_last && r->rank == 0) result = j->results + block * j->result_floats;
        copy_floats(working, at, j->floats);
        j->work(r, block, working, working + j->floats);
        if (is_last) copy_floats(result, working + j->floats, j->result_floats);
        else copy_floats(at, working, j->floats);
        if (!is_last) MPI_Isend(at, j->floats, MPI_FLOAT, r->rank + 1, (int)block, MPI_COMM_WORLD, &leaving[slot]);
        else if (r->rank > 0)
            MPI_Isend(result, j->result_floats, MPI_FLOAT, 0, (int)block, MPI_COMM_WORLD, &leaving[slot]);
    }
    for (int s = 0; s < SLOTS; s++) wait_for(r, &leaving[s]);
    for (int64_t b = 0; b < r->blocks; b++) wait_for(r, &back[b]);
    const double seconds = MPI_Wtime() - began;
    free(back);
    if (r->working) free(slots);
    else free_on_device(slots);
    return seconds;
}

/* ---- what a rank does with a block: its own keys, for queries that come from elsewhere */
static attn_desc call_of(const ring *r, int64_t block, float *q) {
    /* gradients on a device take no key_origin; positions from this rank's first key on do as well */
    const int64_t origin = ON_DEVICE ? 0 : r->first, position = block * BLOCK - r->first + origin;
    attn_desc d = {0};
    copy(r->position, &position, sizeof position);
    d.q = attn_view_bhsd(q, 1, H, BLOCK, D);
    d.k = attn_view_bhsd(r->k, 1, H, r->keys, D);
    d.v = attn_view_bhsd(r->v, 1, H, r->keys, D);
    d.causal = r->causal;
    d.align = ATTN_ALIGN_POSITIONS;
    d.positions = attn_view_i64(r->position, 1, 1, 0, 0, 0);
    d.key_origin = origin;
    return d;
}
/* On the way forward: q, then what is carried. The result: out, then stats. */
enum { CARRY = ROWS * (D + 2), FORWARD = VECTORS + CARRY, FORWARD_RESULT = VECTORS + 2 * ROWS };
static void load_forward(const ring *r, int64_t block, float *at) { copy_floats(at, r->q + block * VECTORS, VECTORS); }
static void work_forward(ring *r, int64_t block, float *at, float *result) {
    const attn_out carry = attn_out_bhsd(at + VECTORS, 1, H, BLOCK, D + 2);
    attn_error err;
    attn_desc d = call_of(r, block, at);
    if (r->rank > 0) d.carry_in = attn_view_of(carry);
    if (last_rank(r, block) > r->rank) d.carry_out = carry; /* in place */
    else {
        d.out = attn_out_bhsd(result, 1, H, BLOCK, D);
        d.stats = attn_out_bhsd(result + VECTORS, 1, H, BLOCK, 2);
    }
    must(attn_forward(&d, &err), &err);
}
/* On the way for gradients: q, d_out, out, stats, dq so far. The result: dq. */
enum { BACKWARD = 4 * VECTORS + 2 * ROWS, MOST = BACKWARD + VECTORS }; /* MOST: of a journey, with its result */
static void load_backward(const ring *r, int64_t block, float *at) {
    copy_floats(at, r->q + block * VECTORS, VECTORS);
    copy_floats(at + VECTORS, r->d_out + block * VECTORS, VECTORS);
    copy_floats(at + 2 * VECTORS, r->out + block * FORWARD_RESULT, FORWARD_RESULT);
}
static void work_backward(ring *r, int64_t block, float *at, float *result) {
    float *dq = at + 2 * VECTORS + FORWARD_RESULT;
    attn_error err;
    attn_desc d = call_of(r, block, at);
    attn_grad g = {0};
    d.out = attn_out_bhsd(at + 2 * VECTORS, 1, H, BLOCK, D);
    d.stats = attn_out_bhsd(at + 3 * VECTORS, 1, H, BLOCK, 2);
    g.d_out = attn_view_bhsd(at + VECTORS, 1, H, BLOCK, D);
    g.dq = attn_out_bhsd(dq, 1, H, BLOCK, D);
    g.dk = attn_out_bhsd(r->dk, 1, H, r->keys, D);
    g.dv = attn_out_bhsd(r->dv, 1, H, r->keys, D);
    g.accumulate = ATTN_GRAD_K | ATTN_GRAD_V; /* over the blocks; dq over the ranks */
    if (r->rank > 0) g.accumulate |= ATTN_GRAD_Q;
    must(attn_backward(&d, &g, &err), &err);
    if (last_rank(r, block) == r->rank) copy_floats(result, dq, VECTORS);
}

/* ---- rank 0 compares: from [blocks][H, BLOCK, n] and [H, tokens, n] */
static double worst(const ring *r, const float *blocks, int64_t pitch, const float *whole, int64_t n, int *same) {
    double apart = 0, most = 0;
    for (int64_t h = 0; h < H; h++)
        for (int64_t i = 0; i < r->tokens; i++) {
            const float *a = blocks + i / BLOCK * pitch + (h * BLOCK + i % BLOCK) * n, *b = whole;
            whole += n;
            if (memcmp(a, b, (size_t)n * sizeof *a)) *same = 0;
            for (int64_t c = 0; c < n; c++) {
                if (!(fabs((double)a[c] - b[c]) <= apart)) apart = fabs((double)a[c] - b[c]);
                if (fabs((double)b[c]) > most) most = fabs((double)b[c]);
            }
        }
    return apart / most;
}
/* Gradients of keys, rank by rank, into one array [H, tokens, D] of rank 0. */
static float *gather(const ring *r, const float *on_device) {
    float *all = r->rank ? NULL : take(H * r->tokens * D), *mine = take(H * r->keys * D);
    copy_floats(mine, on_device, H * r->keys * D);
    for (int64_t h = 0; h < H; h++)
        for (int rank = 0; rank < r->ranks; rank++) {
            const int n = (int)((first_key(r, rank + 1) - first_key(r, rank)) * D), tag = (int)h;
            float *to = all ? all + (h * r->tokens + first_key(r, rank)) * D : NULL;
            if (rank == 0 && r->rank == 0) memcpy(to, mine + h * n, (size_t)n * sizeof *to);
            else if (r->rank == 0) MPI_Recv(to, n, MPI_FLOAT, rank, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            else if (r->rank == rank) MPI_Send(mine + h * n, n, MPI_FLOAT, 0, tag, MPI_COMM_WORLD);
        }
    free(mine);
    return all;
}
static int compare(ring *r, const float *dk, const float *dv, double seconds[2]) {
    const int64_t n = H * r->tokens * D;
    float *q = take(n), *k = take(n), *v = take(n), *out = take(n), *stats = take(2 * H * r->tokens);
    float *d_out = take(n), *want[3] = {take(n), take(n), take(n)};
    attn_error err;
    attn_desc d = {0};
    attn_grad g = {0};
    make_tokens(0, 0, r->tokens, q);
    make_tokens(1, 0, r->tokens, k);
    make_tokens(2, 0, r->tokens, v);
    make_tokens(3, 0, r->tokens, d_out);
    d.q = attn_view_bhsd(q, 1, H, r->tokens, D);
    d.k = attn_view_bhsd(k, 1, H, r->tokens, D);
    d.v = attn_view_bhsd(v, 1, H, r->tokens, D);
    d.out = attn_out_bhsd(out, 1, H, r->tokens, D);
    d.stats = attn_out_bhsd(stats, 1, H, r->tokens, 2);
    d.causal = r->causal;
    g.d_out = attn_view_bhsd(d_out, 1, H, r->tokens, D);
    g.dq = attn_out_bhsd(want[0], 1, H, r->tokens, D);
    g.dk = attn_out_bhsd(want[1], 1, H, r->tokens, D);
    g.dv = attn_out_bhsd(want[2], 1, H, r->tokens, D);
    double began = MPI_Wtime();
    must(attn_forward(&d, &err), &err);
    printf("one process: forward %.3f s, %.2f times as long", MPI_Wtime() - began, (MPI_Wtime() - began) / seconds[0]);
    began = MPI_Wtime();
    must(attn_backward(&d, &g, &err), &err);
    printf("; backward %.3f s, %.2f times\n", MPI_Wtime() - began, (MPI_Wtime() - began) / seconds[1]);

    int same = 1, ignored;
    const double off_out = worst(r, r->out, FORWARD_RESULT, out, D, &same);
    const double off_stats = worst(r, r->out + VECTORS, FORWARD_RESULT, stats, 2, &same);
    const double off_q = worst(r, r->dq, VECTORS, want[0], D, &ignored);
    double off_kv[2] = {0, 0}, most[2] = {0, 0};
    for (int64_t i = 0; i < n; i++)
        for (int x = 0; x < 2; x++) {
            const double a = x ? dv[i] : dk[i], b = want[1 + x][i];
            if (!(fabs(a - b) <= off_kv[x])) off_kv[x] = fabs(a - b);
            if (fabs(b) > most[x]) most[x] = fabs(b);
        }
    if (ON_DEVICE) printf("out and stats off by %.1e, %.1e of the largest\n", off_out, off_stats);
    else printf("out and stats: %s\n", same ? "the same bits" : "WRONG: other bits");
    printf("gradients off by %.1e (dq), %.1e (dk), %.1e (dv) of the largest\n", off_q, off_kv[0] / most[0],
           off_kv[1] / most[1]);
    for (int x = 0; x < 3; x++) free(want[x]);
    free(q), free(k), free(v), free(out), free(stats), free(d_out);
    return (ON_DEVICE ? off_out <= 4e-6 && off_stats <= 4e-6 : same) && off_q <= 4e-6 && off_kv[0] <= 4e-6 * most[0] &&
           off_kv[1] <= 4e-6 * most[1];
}
static void tell(const ring *r, const char *what, double seconds) {
    double mine[2] = {seconds, r->waited}, *all = (double *)malloc((size_t)r->ranks * sizeof mine);
    if (!all) stop("no memory");
    MPI_Gather(mine, 2, MPI_DOUBLE, all, 2, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    for (int rank = 0; r->rank == 0 && rank < r->ranks; rank++)
        printf("%s, rank %d, keys %lld .. %lld: %.3f s, %.0f %% of it waiting\n", what, rank,
               (long long)first_key(r, rank), (long long)first_key(r, rank + 1), all[2 * rank],
               100 * all[2 * rank + 1] / all[2 * rank]);
    free(all);
}

int main(int argc, char **argv) {
    ring r = {0};
    int good = 1, stays = 0; /* stays: blocks where MPI leaves them */
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &r.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &r.ranks);
    r.tokens = 4096;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--causal")) r.causal = 1;
        else if (ON_DEVICE && !strcmp(argv[i], "--device-memory")) stays = 1;
        else if (!take_whole(r.rank == 0 ? stderr : NULL, "ring", "TOKENS", argv[i], BLOCK, 1 << 20, &r.tokens)) {
            MPI_Finalize();
            return 2;
        }
    }
    if (r.tokens % BLOCK) {
        if (r.rank == 0) fprintf(stderr, "ring: TOKENS: %lld is no multiple of 128\n", (long long)r.tokens);
        MPI_Finalize();
        return 2;
    }
    r.blocks = r.tokens / BLOCK;
    r.first = first_key(&r, r.rank);
    r.keys = first_key(&r, r.rank + 1) - r.first;
    choose_device(r.rank);
    r.k = tokens_on_device(1, r.first, r.keys), r.v = tokens_on_device(2, r.first, r.keys);
    r.dk = floats_on_device(H * r.keys * D), r.dv = floats_on_device(H * r.keys * D);
    r.position = (int64_t *)take_on_device(sizeof *r.position);
    if (ON_DEVICE && !stays) r.working = floats_on_device(MOST);
    if (r.rank == 0) {
        r.q = take(r.blocks * VECTORS), r.d_out = take(r.blocks * VECTORS), r.dq = take(r.blocks * VECTORS);
        r.out = take(r.blocks * FORWARD_RESULT);
        for (int64_t b = 0; b < r.blocks; b++) {
            make_tokens(0, b * BLOCK, BLOCK, r.q + b * VECTORS);
            make_tokens(3, b * BLOCK, BLOCK, r.d_out + b * VECTORS);
        }
        printf("%d ranks, %d heads, %lld queries and keys%s\n", r.ranks, H, (long long)r.tokens,
               r.causal ? ", causal" : "");
    }
    const journey forward = {FORWARD, FORWARD_RESULT, load_forward, work_forward, r.out};
    const journey backward = {BACKWARD, VECTORS, load_backward, work_backward, r.dq};
    double seconds[2];
    seconds[0] = travel(&r, &forward);
    tell(&r, "forward", seconds[0]);
    seconds[1] = travel(&r, &backward);
    tell(&r, "backward", seconds[1]);
    float *dk = gather(&r, r.dk), *dv = gather(&r, r.dv);
    MPI_Barrier(MPI_COMM_WORLD);
    if (r.rank == 0) good = compare(&r, dk, dv, seconds);
    MPI_Bcast(&good, 1, MPI_INT, 0, MPI_COMM_WORLD);
    good = !fflush(stdout) && !ferror(stdout) && good;
    MPI_Finalize();
    free_on_device(r.k), free_on_device(r.v), free_on_device(r.dk), free_on_device(r.dv), free_on_device(r.position);
    if (r.working) free_on_device(r.working);
    free(dk), free(dv);
    free(r.q), free(r.d_out), free(r.dq), free(r.out);
    return !good;
}
