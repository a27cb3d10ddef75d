/* pool.h - threads for the benchmarks, as a program would have them: helpers that spin shortly for the next call, then
   sleep. GCC or clang, POSIX; on WASI there is one thread. */
#include <stdlib.h>

#ifdef __wasi__
typedef struct pool {
    int32_t threads, pinned;
} pool;
static void pool_run(void *user, int64_t count, attn_task_fn task, void *arg) {
    (void)user;
    for (int64_t i = 0; i < count; i++) task(arg, i, 0);
}
static inline void pool_start(pool *p, int32_t threads) {
    if (threads > 1) abort();
    p->threads = 1;
}
#else
#include <pthread.h>
#include <sched.h>

enum { POOL_SPINS = 20000 }; /* tens of microseconds: what a wake-up would cost */

typedef struct pool {
    int32_t threads, busy, started;
    int32_t pinned;                  /* set before the start: each thread has a core of its own */
    int64_t next, count, generation; /* index to hand out next, how many there are, number of this call */
    attn_task_fn task;
    void *arg;
    pthread_mutex_t lock;
    pthread_cond_t wake;
} pool;

static void pool_take_tasks(pool *p, int32_t worker) {
    int64_t i;
    while ((i = __atomic_fetch_add(&p->next, 1, __ATOMIC_RELAXED)) < p->count) p->task(p->arg, i, worker);
}

/* The calling thread stays on the nth core it may use. Linux, with _GNU_SOURCE; else nothing happens. */
static void pool_pin(int n) {
#ifdef CPU_SETSIZE
    cpu_set_t allowed, own;
    int core = -1;
    if (sched_getaffinity(0, sizeof allowed, &allowed) || CPU_COUNT(&allowed) <= n) return;
    while (n >= 0) n -= CPU_ISSET(++core, &allowed) ? 1 : 0;
    CPU_ZERO(&own);
    CPU_SET(core, &own);
    sched_setaffinity(0, sizeof own, &own);
#else
    (void)n;
#endif
}

static void *pool_helper(void *user) {
    pool *p = (pool *)user;
    int32_t worker = __atomic_add_fetch(&p->started, 1, __ATOMIC_RELAXED);
    int64_t seen = 0;
    if (p->pinned) pool_pin(worker);
    for (;;) {
        int spins = POOL_SPINS;
        while (__atomic_load_n(&p->generation, __ATOMIC_ACQUIRE) == seen && --spins) {}
        pthread_mutex_lock(&p->lock);
        while (p->generation == seen) pthread_cond_wait(&p->wake, &p->lock);
        seen = p->generation;
        pthread_mutex_unlock(&p->lock);
        pool_take_tasks(p, worker);
        __atomic_sub_fetch(&p->busy, 1, __ATOMIC_RELEASE);
    }
    return NULL;
}

/* The callback of attn_parallel. */
static void pool_run(void *user, int64_t count, attn_task_fn task, void *arg) {
    pool *p = (pool *)user;
    int spins = 0;
    int64_t i;
    if (count <= 1 || p->threads <= 1) { /* nothing to share */
        for (i = 0; i < count; i++) task(arg, i, 0);
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->task = task, p->arg = arg, p->next = 0, p->count = count, p->busy = p->threads - 1, p->generation++;
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    pool_take_tasks(p, 0);
    while (__atomic_load_n(&p->busy, __ATOMIC_ACQUIRE)) /* a helper that lost its core needs this one */
        if (++spins > POOL_SPINS) sched_yield();
}

static inline void pool_start(pool *p, int32_t threads) { /* for the life of the process */
    pthread_t thread;
    p->threads = 1;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    for (; p->threads < threads; p->threads++)
        if (pthread_create(&thread, NULL, pool_helper, p)) abort();
    if (p->pinned) pool_pin(0);
}
#endif
