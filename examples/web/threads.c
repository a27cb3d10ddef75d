/* threads.c - attention by several workers of a page, or of node, which share one memory: each takes tasks of a plan
   until none is left. threads.js and threads.html start them; `make web` compiles it. No C library: Debian's for
   WebAssembly is not made for shared memory. */
#define ATTN_NO_LIBC
#define ATTN_NO_HEATMAP
#define ATTN_NO_BACKWARD
#define ATTN_IMPLEMENTATION
#include "../../attn.h"

#define PAGE(name) __attribute__((export_name(#name))) name
enum { HEADS = 8, LENGTH = 512, SIZE = 64, N = HEADS * LENGTH * SIZE, MOST = 8, STACK = 1 << 16 };

int PAGE(prepare)(int workers);
void *PAGE(stack_of)(int worker);
void PAGE(begin)(void);
void PAGE(work)(int phase, int worker);
unsigned PAGE(hash)(void);
int PAGE(relaxed)(void);

static float q[N], k[N], v[N], out[N];
static attn_plan plan;
static unsigned char workspace[16 << 20];
static _Alignas(16) unsigned char stacks[MOST][STACK];
static int64_t next; /* task to take, of a phase */

static void fill(float *x, unsigned state) {
    for (int i = 0; i < N; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) / 8388608.0f - 1;
    }
}

int prepare(int workers) { /* the number of phases, or 0 */
    attn_desc d = {0};
    fill(q, 1), fill(k, 2), fill(v, 3);
    for (int i = 0; i < N; i++) out[i] = 0;
    d.q = attn_view_bhsd(q, 1, HEADS, LENGTH, SIZE);
    d.k = attn_view_bhsd(k, 1, HEADS, LENGTH, SIZE);
    d.v = attn_view_bhsd(v, 1, HEADS, LENGTH, SIZE);
    d.out = attn_out_bhsd(out, 1, HEADS, LENGTH, SIZE);
    d.causal = 1;
    d.parallel.workers = workers;
    if (attn_plan_forward(&d, &plan, NULL) != ATTN_OK || plan.workspace_bytes > sizeof workspace) return 0;
    return plan.phases;
}

void *stack_of(int worker) { return stacks[worker] + STACK; } /* stacks grow downwards */

void begin(void) { __atomic_store_n(&next, 0, __ATOMIC_SEQ_CST); }

void work(int phase, int worker) {
    int64_t i;
    while ((i = __atomic_fetch_add(&next, 1, __ATOMIC_SEQ_CST)) < plan.tasks[phase])
        attn_task(&plan, workspace, phase, i, worker);
}

unsigned hash(void) { /* FNV-1a of the results' bits */
    const unsigned char *bytes = (const unsigned char *)out;
    unsigned h = 2166136261u;
    for (unsigned i = 0; i < sizeof out; i++) h = (h ^ bytes[i]) * 16777619u;
    return h;
}

int relaxed(void) { return plan.isa == ATTN_ISA_RELAXED; }
