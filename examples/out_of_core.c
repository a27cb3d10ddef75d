/* cc -O2 out_of_core.c -lm */
/* Keys and values that are larger than memory: they lie in a file and come part by part, the next part read by a
   thread while this one is computed. What a part leaves of each row, attn_desc.carry_out, is carry_in of the next.
   The program sets itself a limit of memory that the file does not fit in, and compares with a call that had
   everything in memory before that.

   out_of_core [KEYS [MEGABYTES]]
   98304 keys (96 MB) and a limit of 64 MB unless given. Older systems want -lpthread, too. */
#define _XOPEN_SOURCE 700
#include <stdio.h>
#ifdef _WIN32
int main(void) {
    printf("skipped: this program maps its file with mmap, which Windows does not have\n");
    return 0;
}
#else
#define ATTN_IMPLEMENTATION
#include "../attn.h"
#include "numbers.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { H = 8, HKV = 2, QUERIES = 16, D = 64, ROW = HKV * D, PART = 16 * ATTN_PART_KEYS };
#define ROW_BYTES ((int64_t)ROW * (int64_t)sizeof(float))

static void stop(const char *what) {
    printf("%s\n", what);
    exit(1);
}
static void *must_allocate(size_t bytes) {
    void *p = malloc(bytes);
    if (!p) stop("no memory");
    return p;
}
static void fill(float *x, int64_t n) {
    static uint64_t state = 1;
    for (int64_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)((double)(state >> 40) / 8388608.0 - 1);
    }
}

/* ---- a part of the file: rows of all heads, token by token; first all keys, then, from where a page may begin, all
   values */
static int64_t first_value(int64_t keys) { return (keys + ATTN_PART_KEYS - 1) / ATTN_PART_KEYS * ATTN_PART_KEYS; }
typedef struct part {
    int file;
    int64_t keys, first, n; /* of all; of the part */
    float *k, *v;           /* where it is mapped */
} part;

static float *map(const part *p, int64_t row) {
    void *at = mmap(NULL, (size_t)(p->n * ROW_BYTES), PROT_READ, MAP_SHARED, p->file, (off_t)(row * ROW_BYTES));
    if (at == MAP_FAILED) stop("the part cannot be mapped: the limit is too small");
    return (float *)at;
}
static void touch(const float *x, int64_t bytes) { /* so that it is there when it is needed */
    const volatile char *at = (const volatile char *)x;
    posix_madvise((void *)(uintptr_t)x, (size_t)bytes, POSIX_MADV_WILLNEED);
    for (int64_t i = 0; i < bytes; i += 4096) (void)at[i];
}
static void *read_part(void *user) {
    part *p = (part *)user;
    p->k = map(p, p->first);
    p->v = map(p, first_value(p->keys) + p->first);
    touch(p->k, p->n * ROW_BYTES);
    touch(p->v, p->n * ROW_BYTES);
    return NULL;
}
static part part_at(const part *p, int64_t first) {
    part next = *p;
    next.first = first;
    next.n = p->keys - first < PART ? p->keys - first : PART;
    return next;
}
static void forget(const part *p) {
    munmap(p->k, (size_t)(p->n * ROW_BYTES));
    munmap(p->v, (size_t)(p->n * ROW_BYTES));
}

static void attend(attn_desc *d) {
    attn_error err;
    char text[160];
    if (attn_forward(d, &err) == ATTN_OK) return;
    attn_error_string(&err, text, sizeof text);
    stop(text);
}

/* The attention to the keys of a file, of which two parts at a time are in memory. */
static void attend_to_file(attn_desc d, int file, int64_t keys) {
    const part all = {file, keys, 0, 0, NULL, NULL};
    const attn_out carry =
        attn_out_bhsd((float *)must_allocate(H * QUERIES * (D + 2) * sizeof(float)), 1, H, QUERIES, D + 2);
    const attn_out out = d.out;
    part now = part_at(&all, 0), next;
    read_part(&now);
    for (;; now = next) {
        const int is_last = now.first + now.n == keys;
        pthread_t reader;
        next = part_at(&all, now.first + now.n);
        if (!is_last && pthread_create(&reader, NULL, read_part, &next)) stop("no thread");

        d.k = attn_view_bshd(now.k, 1, now.n, HKV, D);
        d.v = attn_view_bshd(now.v, 1, now.n, HKV, D);
        d.key_origin = now.first;
        memset(&d.carry_out, 0, sizeof d.carry_out);
        memset(&d.out, 0, sizeof d.out);
        if (now.first > 0) d.carry_in = attn_view_of(carry);
        if (!is_last) d.carry_out = carry; /* in place: the next part adds to it */
        else d.out = out;
        attend(&d);

        printf("\r%3d %% of %lld keys", (int)(100 * (now.first + now.n) / keys), (long long)keys);
        fflush(stdout);
        forget(&now);
        if (is_last) break;
        pthread_join(reader, NULL);
    }
    printf("\n");
    free(carry.data);
}

int main(int argc, char **argv) {
    static float q[H * QUERIES * D], whole[H * QUERIES * D], by_parts[H * QUERIES * D];
    int64_t keys = 98304, limit = 64, position;
    struct rlimit memory;
    attn_desc d = {0};
    FILE *f;
    if ((argc > 1 && !take_whole(stderr, "out_of_core", "KEYS", argv[1], QUERIES, (int64_t)1 << 32, &keys)) ||
        (argc > 2 && !take_whole(stderr, "out_of_core", "MEGABYTES", argv[2], 1, 1 << 20, &limit)))
        return 2;
    const int64_t bytes = keys * ROW_BYTES;
    position = keys - QUERIES; /* of the first query: they are the last tokens of the text */
    printf("%lld keys and values, %lld MB\n", (long long)keys, (long long)(2 * bytes >> 20));
    if (fflush(stdout)) return 1; /* lost already: nothing may be opened in its place */
    f = tmpfile();
    if (!f) stop("no temporary file");

    float *k = (float *)must_allocate((size_t)bytes), *v = (float *)must_allocate((size_t)bytes);
    fill(q, H * QUERIES * D);
    fill(k, keys * ROW);
    fill(v, keys * ROW);
    if (fwrite(k, 1, (size_t)bytes, f) != (size_t)bytes ||
        fseeko(f, (off_t)(first_value(keys) * ROW_BYTES), SEEK_SET) ||
        fwrite(v, 1, (size_t)bytes, f) != (size_t)bytes || fflush(f))
        stop("the temporary file cannot be written");
    d.q = attn_view_bhsd(q, 1, H, QUERIES, D);
    d.causal = 1;
    d.align = ATTN_ALIGN_POSITIONS;
    d.positions = attn_view_i64(&position, 1, 1, 0, 0, 0);

    d.k = attn_view_bshd(k, 1, keys, HKV, D);
    d.v = attn_view_bshd(v, 1, keys, HKV, D);
    d.out = attn_out_bhsd(whole, 1, H, QUERIES, D);
    attend(&d);
    free(k);
    free(v);
    printf("in memory: done\n");

    memory.rlim_cur = memory.rlim_max = (rlim_t)limit << 20;
    if (setrlimit(RLIMIT_AS, &memory)) stop("the limit cannot be set");
    printf("from a file, with a limit of %lld MB:\n", (long long)limit);
    d.out = attn_out_bhsd(by_parts, 1, H, QUERIES, D);
    attend_to_file(d, fileno(f), keys);
    fclose(f);

    int same = memcmp(whole, by_parts, sizeof whole) == 0;
    printf("%s\n", same ? "the same bits" : "WRONG: other bits");
    return !same || fflush(stdout) || ferror(stdout); /* lost output fails, too */
}
#endif
