/* cc -O2 threads.c -lm */
/* The library starts no thread; it hands its tasks to whatever the program has. Here that is OpenMP (compile
   with cc -O2 -fopenmp threads.c -lm) or a small job system on pthreads (older systems want -lpthread too),
   with a worker for each core, and what that gains is measured. Then the same tasks are spread by hand over the
   frames of a game loop. The bits are always the same. */
#ifndef _OPENMP
#define _POSIX_C_SOURCE 200809L /* clock_gettime, sysconf */
#endif
#define ATTN_IMPLEMENTATION
#include "../attn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WORKERS = 64 };
static int workers; /* as many as there are cores, and at least two */

#ifdef _OPENMP
#include <omp.h>

static void run_tasks(void *user, int64_t count, attn_task_fn task, void *arg) {
    (void)user;
#pragma omp parallel for schedule(dynamic) num_threads(workers)
    for (int64_t i = 0; i < count; i++) task(arg, i, omp_get_thread_num());
}

static int core_count(void) { return omp_get_num_procs(); }
static double seconds_now(void) { return omp_get_wtime(); }
static void *start_workers(void) { return NULL; } /* OpenMP has its own */
static void stop_workers(void *user) { (void)user; }
static const char *const how = "OpenMP";

#else
#include <pthread.h>
#include <time.h>
#include <unistd.h>

static int core_count(void) { return (int)sysconf(_SC_NPROCESSORS_ONLN); }
static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The threads and the caller take indices until none is left. */
typedef struct job_system {
    pthread_t threads[MOST_WORKERS - 1];
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    attn_task_fn task;
    void *arg;
    int64_t next, count, unfinished; /* index to hand out next, how many there are, how many still run or wait */
    int32_t started;
    int quit;
} job_system;

static void take_tasks(job_system *s, int32_t worker) { /* called and left with the lock held */
    while (s->next < s->count) {
        int64_t index = s->next++;
        pthread_mutex_unlock(&s->lock);
        s->task(s->arg, index, worker);
        pthread_mutex_lock(&s->lock);
        if (--s->unfinished == 0) pthread_cond_signal(&s->done);
    }
}

static void *worker_main(void *user) {
    job_system *s = (job_system *)user;
    pthread_mutex_lock(&s->lock);
    int32_t worker = ++s->started; /* from 1 on; the caller is 0 */
    while (!s->quit) {
        take_tasks(s, worker);
        if (!s->quit) pthread_cond_wait(&s->wake, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void run_tasks(void *user, int64_t count, attn_task_fn task, void *arg) {
    job_system *s = (job_system *)user;
    pthread_mutex_lock(&s->lock);
    s->task = task;
    s->arg = arg;
    s->next = 0;
    s->count = s->unfinished = count;
    pthread_cond_broadcast(&s->wake);
    take_tasks(s, 0);
    while (s->unfinished > 0) pthread_cond_wait(&s->done, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

static void *start_workers(void) {
    static job_system s;
    pthread_mutex_init(&s.lock, NULL);
    pthread_cond_init(&s.wake, NULL);
    pthread_cond_init(&s.done, NULL);
    for (int i = 0; i < workers - 1; i++)
        if (pthread_create(&s.threads[i], NULL, worker_main, &s) != 0) {
            printf("no thread to be had\n");
            exit(1);
        }
    return &s;
}

static void stop_workers(void *user) {
    job_system *s = (job_system *)user;
    pthread_mutex_lock(&s->lock);
    s->quit = 1;
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < workers - 1; i++) pthread_join(s->threads[i], NULL);
}
static const char *const how = "a job system on pthreads";
#endif

/* ---- */
enum { H = 8, S = 1024, D = 64, N = H * S * D, TIMES = 7 }; /* q, k, v, out [1,H,S,D]; calls that are timed */

static attn_error err;

static void must(attn_status status) {
    char text[160];
    if (status == ATTN_OK) return;
    attn_error_string(&err, text, sizeof text);
    printf("attn.h refused: %s\n", text);
    exit(1);
}

static void fill(float *x) {
    static uint64_t state = 1;
    for (int i = 0; i < N; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)((double)(state >> 40) / 8388608.0 - 1);
    }
}

/* Seconds of one call. */
static double time_of(const attn_desc *d) {
    double start = seconds_now();
    must(attn_forward(d, &err));
    return seconds_now() - start;
}

/* The least times of both calls, which are made in turn, as a machine does other things now and then. */
static void compare(const attn_desc *one, const attn_desc *all) {
    double least[2] = {1e9, 1e9};
    for (int i = 0; i < TIMES; i++) {
        double times[2] = {time_of(one), time_of(all)};
        for (int n = 0; n < 2; n++)
            if (times[n] < least[n]) least[n] = times[n];
    }
    printf("%.2f ms on one, %.2f ms on %d: %.2f times as fast, efficiency %.2f\n", least[0] * 1e3, least[1] * 1e3,
           workers, least[0] / least[1], least[0] / least[1] / workers);
}

/* `per_frame` tasks in every frame, backwards because any order will do. Returns the number of frames. */
static int run_over_frames(const attn_desc *d, int per_frame) {
    attn_plan plan;
    int frames = 0, left = 0;
    must(attn_plan_forward(d, &plan, &err));
    void *workspace = malloc(plan.workspace_bytes ? plan.workspace_bytes : 1);
    if (!workspace) exit(1);
    for (int32_t phase = 0; phase < plan.phases; phase++) /* a phase starts when the one before is done */
        for (int64_t i = plan.tasks[phase]; i-- > 0;) {
            if (left == 0) { /* the game draws, reads the keyboard, ... and comes back */
                frames++;
                left = per_frame;
            }
            attn_task(&plan, workspace, phase, i, 0);
            left--;
        }
    free(workspace);
    return frames;
}

int main(void) {
    static float q[N], k[N], v[N], alone[N], together[N], spread[N];
    attn_desc d = {0};
    int cores = core_count();
    workers = cores < 2 ? 2 : cores > MOST_WORKERS ? MOST_WORKERS : cores;
    fill(q);
    fill(k);
    fill(v);
    d.q = attn_view_bhsd(q, 1, H, S, D);
    d.k = attn_view_bhsd(k, 1, H, S, D);
    d.v = attn_view_bhsd(v, 1, H, S, D);
    d.causal = 1;

    d.out = attn_out_bhsd(alone, 1, H, S, D);
    must(attn_forward(&d, &err));
    printf("the calling thread alone: done\n");

    attn_desc pooled = d;
    pooled.out = attn_out_bhsd(together, 1, H, S, D);
    pooled.parallel.run = run_tasks;
    pooled.parallel.user = start_workers();
    pooled.parallel.workers = workers;
    must(attn_forward(&pooled, &err));
    int same_together = memcmp(alone, together, sizeof alone) == 0;
    printf("%s, %d workers: %s\n", how, workers, same_together ? "the same bits" : "WRONG: other bits");
    compare(&d, &pooled);
    stop_workers(pooled.parallel.user);

    d.out = attn_out_bhsd(spread, 1, H, S, D);
    int frames = run_over_frames(&d, 3);
    int same_spread = memcmp(alone, spread, sizeof alone) == 0;
    printf("three tasks a frame, %d frames: %s\n", frames, same_spread ? "the same bits" : "WRONG: other bits");
    return !(same_together && same_spread) || fflush(stdout) || ferror(stdout); /* lost output fails, too */
}
