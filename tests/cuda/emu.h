/* A CPU emulator of what the kernels of attn_cuda.cuh use of a GPU, for compilers that know no CUDA. It stands in for
   the header's section >>hw: the same names, so that the very kernel sources run here.

       g++ -std=c++17 -DATTN_CUDA_HW_HEADER='"cuda/emu.h"' ...

   A thread of a block is a fiber; one scheduler runs the fibers of one block. Some blocks are alive at once, one or
   more of a launch, in the order of their numbers; where one can't go on, since it waits for what another counts in
   global memory, or at random, another one does. What a GPU does
   asynchronously (cp.async, TMA, wgmma) is queued, and a `timing` says when it lands: at once, as late as the waits
   allow, or at random; another choice is how far warps may run apart. Lanes of a warp run from 0 to 31 in some
   launches, from 31 to 0 in others. A kernel that waits for too little, releases too early or lacks a barrier computes
   something else under one of them. Shared memory starts as NaNs, ends in a page that faults, and no access of the
   asynchronous units may see or overwrite bytes that no proxy fence has published. setmaxnreg waits for registers as on
   a GPU. What lanes of a warp have to call together (>>hw says it of each function) they meet at, so that one that does
   not come is waited for; what warps of a warpgroup have to call is the same for all four. A block in which nobody can
   go on is reported with who waits for what. What store_global writes other blocks may see late, unless the block
   publishes it. Not modelled: the weak memory model beyond that, timing. */
#ifndef ATTN_EMU_H
#define ATTN_EMU_H

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <algorithm>
#include <deque>
#include <functional>
#include <string>
#include <vector>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace attn_emu {

/* ---- when things happen */
enum when { EARLY, LATE, RANDOM };
struct timing {
    const char *name;
    when wgmma, tma, copy;
    bool apart;    /* warps run as far apart as barriers let them; else in step */
    bool hesitate; /* a thread may pause where others can overtake it */
};
static const timing timings[] = {
    {"early", EARLY, EARLY, EARLY, false, false},
    {"late", LATE, LATE, LATE, false, false},
    {"random", RANDOM, RANDOM, RANDOM, false, true},
    {"early, warps apart", EARLY, EARLY, EARLY, true, false},
    {"late, warps apart", LATE, LATE, LATE, true, true},
    {"late wgmma, early loads", LATE, EARLY, EARLY, true, true},
    {"early wgmma, late loads", EARLY, LATE, LATE, true, true},
    {"random wgmma, early loads", RANDOM, EARLY, EARLY, true, true},
};
static const int timing_count = (int)(sizeof timings / sizeof timings[0]);

inline timing now_timing = timings[0];
inline uint64_t random_state = 1;
inline uint32_t random_bits() {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}
inline void set_timing(int index, uint64_t seed) {
    now_timing = timings[index];
    random_state = seed * 2654435761u + (uint64_t)index;
}

/* ---- fibers: a stack and where it stopped */
#if defined(__x86_64__)
extern "C" void attn_emu_switch(void **from, void *to);
#ifndef ATTN_EMU_ELSEWHERE /* the switch itself must be in one object file only */
asm(".text\n.globl attn_emu_switch\nattn_emu_switch:\n"
    "  pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
    "  movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
    "  popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n  ret\n");
#endif
struct context {
    void *sp;
};
inline void context_make(context *c, unsigned char *stack, size_t bytes, void (*entry)()) {
    void **sp = (void **)(stack + bytes);
    *--sp = NULL; /* the alignment of the stack at a function's first instruction */
    *--sp = (void *)entry;
    for (int i = 0; i < 6; i++) *--sp = NULL;
    c->sp = sp;
}
inline void context_switch(context *from, context *to) { attn_emu_switch(&from->sp, to->sp); }
#else
struct context {
    ucontext_t u;
};
inline void context_make(context *c, unsigned char *stack, size_t bytes, void (*entry)()) {
    getcontext(&c->u);
    c->u.uc_stack.ss_sp = stack;
    c->u.uc_stack.ss_size = bytes;
    c->u.uc_link = NULL;
    makecontext(&c->u, entry, 0);
}
inline void context_switch(context *from, context *to) { swapcontext(&from->u, &to->u); }
#endif

/* ---- the state of one block */
enum waits_for { NOTHING, A_PAUSE, ITS_WARP, BARRIER, MBARRIER, WGMMA, REGISTERS, A_COUNT, FINISHED };

struct copy_op {
    uint32_t to;
    const void *from;
    int bytes;
    int64_t group;
}; /* cp.async */
struct store_op {
    std::function<void()> read;
    int64_t group;
}; /* TMA store */

struct late_store {
    unsigned char *to;
    uint32_t words[4];
    size_t bytes;
}; /* to global memory */

struct thread_state {
    context at;
    unsigned char *stack = NULL;
    waits_for wait = NOTHING;
    int which = 0; /* barrier's number, mbarrier's offset, groups of wgmma that may be left, registers missing, count */
    uint64_t until = 0; /* the generation or parity that it waits to see change; the address of the count */
    std::vector<copy_op> copies;
    int64_t copy_group = 0;
    std::vector<store_op> stores;
    int64_t store_group = 0;
    int registers = 0;                 /* that it may use */
    std::vector<uint32_t> unpublished; /* words of shared memory it wrote since its last proxy fence */
    std::vector<uint32_t> new_mbarriers;
};

struct warp_state { /* a meeting of its 32 lanes */
    uint64_t generation = 0;
    int arrived = 0;
    const char *at = NULL;
    void *lane[32];
    size_t steps = 0; /* of its warpgroup: so many it has gone */
    int64_t wgmma_issued = 0, wgmma_group = 0;
    bool wgmma_fenced = false;
};

struct barrier_state {
    uint64_t generation = 0;
    int arrived = 0, expected = 0;
    bool any = false, any_last = false;
};

struct group_step { /* an instruction that the four warps of a warpgroup have to run */
    const char *name;
    int number; /* of groups that may be left, of registers */
};

struct wgmma_op {
    int n;
    bool a_in_registers, bf16, transpose_a, transpose_b;
    uint64_t desc_a, desc_b;
    int accumulate;
    float *d[128];
    const uint32_t *a[128];
    int issued;
    int64_t group, due;
};

struct tma_op {
    std::function<void()> land;
    int64_t due;
};

struct block_state {
    std::vector<thread_state> threads;
    std::vector<warp_state> warps;
    std::vector<std::vector<group_step>> steps; /* per warpgroup, in order */
    std::vector<std::deque<wgmma_op>> wgmma;    /* per warpgroup, in order */
    std::vector<size_t> wgmma_done;             /* of these, the first so many: they run in order */
    std::vector<tma_op> tma;
    std::vector<late_store> late; /* that other blocks do not see yet, in order */
    barrier_state barriers[16];
    std::vector<uint16_t> dirty; /* per word of shared memory: 1 + the thread that wrote it, no fence yet */
    unsigned char *shared = NULL;
    size_t shared_bytes = 0;
    int count = 0, finished = 0, current = 0, index = 0, grid = 0;
    int registers_left = 0;    /* given back by setmaxnreg */
    bool by_scheduler = false; /* what runs is no thread's */
    int64_t tick = 0;
    context scheduler;
    std::function<void()> body;
    std::string error;
};
inline block_state *block = NULL;

struct counters {
    int64_t shared, launches, blocks, switches, mma, wgmma, tma, copies, ldmatrix, stmatrix, ldmatrix_conflicts;
    int64_t places, facts, maps, drivers, allowances, calls; /* that the host asked for: see fake_counts */
    int64_t downwards;                                       /* launches whose lanes run from the last to the first */
};
inline counters count;
inline bool lanes_downwards = false;

static const uint32_t shared_base = 1024; /* a GPU's shared addresses do not start at 0 for the kernel either */
#ifndef ATTN_EMU_STACK
#define ATTN_EMU_STACK (128 * 1024) /* bytes of a thread's; sanitizers need more */
#endif
static const size_t stack_bytes = ATTN_EMU_STACK;

inline thread_state &self() { return block->threads[(size_t)block->current]; }
inline warp_state &self_warp() { return block->warps[(size_t)block->current / 32]; }

/* ---- going on, waiting, failing */
bool can_go_on(int index);
/* To the next lane of the warp where that can go on, which is what the scheduler would do; else to the scheduler. */
inline void switch_out() {
    thread_state &t = self();
    const int next = block->current + (lanes_downwards ? -1 : 1);
    const bool same_warp = next >= 0 && next / 32 == block->current / 32;
    if (same_warp && next < block->count && block->error.empty() && can_go_on(next)) {
        thread_state &to = block->threads[(size_t)next];
        block->current = next;
        to.wait = NOTHING;
        count.switches++;
        context_switch(&t.at, &to.at);
    } else {
        context_switch(&t.at, &block->scheduler);
    }
}

struct failed {}; /* thrown by what the scheduler runs */
[[noreturn]] inline void fail(const char *format, ...) {
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (block->error.empty())
        block->error =
            "block " + std::to_string(block->index) + ", thread " + std::to_string(block->current) + ": " + text;
    if (block->by_scheduler) throw failed();
    self().wait = FINISHED;
    switch_out();
    abort(); /* the scheduler does not come back to a block that failed */
}

inline void wait(waits_for what, int which, uint64_t until) {
    thread_state &t = self();
    t.wait = what;
    t.which = which;
    t.until = until;
    switch_out();
}
inline void may_pause() {
    if (now_timing.hesitate && random_bits() % 4 == 0) wait(A_PAUSE, 0, (uint64_t)(block->tick + random_bits() % 12));
}

/* ---- mbarriers: 8 bytes of shared memory */
struct mbarrier {
    int64_t phase : 2, expected : 20, pending : 21, bytes : 21;
};
static_assert(sizeof(mbarrier) == 8, "an mbarrier has 8 bytes");

inline unsigned char *shared_at(uint32_t address, uint32_t bytes, const char *who) {
    if (address < shared_base || address - shared_base + bytes > block->shared_bytes)
        fail("%s: %u bytes at shared address %u, of %zu", who, bytes, address - shared_base, block->shared_bytes);
    return block->shared + (address - shared_base);
}
inline uint32_t shared_address(const void *p) {
    return (uint32_t)((const unsigned char *)p - block->shared) + shared_base;
}
inline mbarrier mbarrier_load(const uint64_t *p, const char *who) {
    mbarrier m;
    if ((uint64_t)shared_address(p) % 8) fail("%s: an mbarrier that is not 8-byte aligned", who);
    memcpy(&m, shared_at(shared_address(p), 8, who), 8);
    if (m.expected <= 0) fail("%s: an mbarrier that was never initialised", who);
    return m;
}
inline void mbarrier_store(uint64_t *p, mbarrier m) {
    if (m.pending == 0 && m.bytes == 0) {
        m.phase = m.phase ? 0 : 1;
        m.pending = m.expected;
    }
    memcpy(p, &m, 8);
}
inline void mbarrier_arrive(uint64_t *p, int64_t bytes) {
    mbarrier m = mbarrier_load(p, "mbarrier arrive");
    if (m.pending == 0)
        fail("mbarrier at %u: more arrivals than it was initialised for", shared_address(p) - shared_base);
    m.bytes += bytes;
    m.pending -= 1;
    mbarrier_store(p, m);
}
inline void mbarrier_complete(uint64_t *p, int64_t bytes) {
    mbarrier m = mbarrier_load(p, "TMA load");
    m.bytes -= bytes;
    mbarrier_store(p, m);
}

/* ---- 16-bit floats */
inline float bits_float(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}
inline uint32_t float_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}
inline float from_bf16(uint16_t h) { return bits_float((uint32_t)h << 16); }
inline uint16_t to_bf16(float f) {
    uint32_t u = float_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}
inline float from_f16(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023;
    if (e == 31) return bits_float(sign | 0x7f800000u | m << 13);
    if (e == 0) return bits_float(sign | float_bits((float)m * 5.9604644775390625e-8f));
    return bits_float(sign | (e + 112) << 23 | m << 13);
}
inline uint16_t to_f16(float f) {
    const uint32_t u = float_bits(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return 0x7fff;
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00); /* rounds beyond 65504 */
    if (a < 0x38800000u)                                    /* subnormal: units of 2^-24 */
        return (uint16_t)(sign | (uint32_t)lrintf(bits_float(a) * 16777216.0f));
    return (uint16_t)(sign | (a + 0xfffu + (a >> 13 & 1) - 0x38000000u) >> 13);
}
inline float from_16(uint16_t h, bool bf16) { return bf16 ? from_bf16(h) : from_f16(h); }

/* ---- shared memory as the asynchronous units see it: 128-byte rows whose 16-byte chunks are exchanged by the row's
   number modulo 8, which is bits 7..9 of the address itself */
inline uint32_t swizzle128(uint32_t address) { return address ^ ((address >> 7 & 7) << 4); }

inline void check_published(uint32_t address, const char *who) {
    const uint16_t writer = block->dirty[(address - shared_base) / 4];
    if (writer)
        fail("%s reads shared address %u, which thread %d wrote without a proxy fence since", who,
             address - shared_base, writer - 1);
}
/* A copy that lands where a thread's write has not been published may be overtaken by it. */
inline void check_free(uint32_t address, uint32_t bytes, const char *who) {
    shared_at(address, bytes, who);
    for (uint32_t at = address & ~3u; at < address + bytes; at += 4) {
        const uint16_t writer = block->dirty[(at - shared_base) / 4];
        if (writer)
            fail("%s lands at shared address %u, which thread %d wrote without a proxy fence since", who,
                 at - shared_base, writer - 1);
    }
}
inline uint16_t async_load16(uint32_t address, const char *who) {
    uint16_t h;
    memcpy(&h, shared_at(address, 2, who), 2);
    check_published(address, who);
    return h;
}

/* ---- TMA */
inline bool driver_has_tma = true;
struct alignas(128) tensor_map { /* as large as the driver's: what is passed to a kernel has 4 KB at most */
    unsigned char *base;
    uint64_t size[4], stride[4]; /* stride in bytes; that of axis 0 is 2 */
    uint32_t box[4];
};
inline int64_t due_of(when w) {
    return w == EARLY ? 0 : w == LATE ? INT64_MAX : block->tick + (int64_t)(random_bits() % 40);
}
/* calls f(address in shared memory, pointer into the tensor or NULL outside) for each element of the box */
template <class F> inline uint32_t tma_box(const tensor_map &m, uint32_t shared, const int (&at)[4], F f) {
    uint32_t bytes = 0;
    for (uint32_t row = 0; row < m.box[1] * m.box[2] * m.box[3]; row++) {
        const int64_t i[4] = {at[0], at[1] + (int64_t)(row % m.box[1]), at[2] + (int64_t)(row / m.box[1] % m.box[2]),
                              at[3] + (int64_t)(row / m.box[1] / m.box[2])};
        unsigned char *p = m.base;
        for (int k = 1; k < 4; k++) {
            if (i[k] < 0 || (uint64_t)i[k] >= m.size[k]) p = NULL;
            if (p) p += (uint64_t)i[k] * m.stride[k];
        }
        for (int64_t x = i[0]; x < i[0] + m.box[0]; x++, bytes += 2)
            f(swizzle128(shared + bytes), p && x >= 0 && (uint64_t)x < m.size[0] ? p + x * 2 : NULL);
    }
    return bytes;
}
inline void tma_check(const tensor_map &m, uint32_t shared, const char *who) {
    if (shared % 1024) fail("%s: shared address %u is not 1024-byte aligned", who, shared - shared_base);
    if (m.box[0] != 64) fail("%s: a box of %u columns; the 128-byte swizzle wants 64", who, m.box[0]);
    count.tma++;
}
inline void check_initialised(uint64_t *bar, const char *who) {
    for (uint32_t b : self().new_mbarriers)
        if (b == shared_address(bar)) fail("%s: its mbarrier was initialised without a fence since", who);
    mbarrier_load(bar, who);
}
template <class F> inline void land_later(F land) {
    if (now_timing.tma == EARLY) land();
    else block->tma.push_back(tma_op{land, due_of(now_timing.tma)});
}
inline void tma_load(void *to, const tensor_map *map, uint64_t *bar, int c0, int c1, int c2, int c3) {
    const tensor_map m = *map; /* the GPU has it in constant memory for the kernel's whole life */
    const uint32_t shared = shared_address(to);
    check_initialised(bar, "TMA load");
    tma_check(m, shared, "TMA load");
    land_later([=] {
        const int at[4] = {c0, c1, c2, c3};
        const uint32_t bytes = tma_box(m, shared, at, [](uint32_t a, const unsigned char *p) {
            unsigned char *s = shared_at(a, 2, "TMA load");
            if (a % 4 == 0) check_free(a, 4, "TMA load");
            if (p) memcpy(s, p, 2);
            else memset(s, 0, 2);
        });
        mbarrier_complete(bar, bytes);
    });
}
inline void cp_async_bulk(void *to, const void *from, uint32_t bytes, uint64_t *bar) {
    check_initialised(bar, "cp.async.bulk");
    if (shared_address(to) % 16 || (uintptr_t)from % 16 || bytes % 16 || !bytes)
        fail("cp.async.bulk: an address or a size that is not 16-byte aligned");
    count.tma++;
    land_later([=] {
        check_free(shared_address(to), bytes, "cp.async.bulk");
        memcpy(shared_at(shared_address(to), bytes, "cp.async.bulk"), from, bytes);
        mbarrier_complete(bar, bytes);
    });
}
inline void tma_store(const tensor_map *map, const void *from, int c0, int c1, int c2, int c3) {
    const tensor_map m = *map;
    const uint32_t shared = shared_address(from);
    tma_check(m, shared, "TMA store");
    if (c0 < 0 || c1 < 0 || c2 < 0 || c3 < 0) /* "illegal instruction" on an H100 and an H200; a load may */
        fail("TMA store: a box that begins in front of the tensor (%d, %d, %d, %d)", c0, c1, c2, c3);
    auto read = [=] {
        const int at[4] = {c0, c1, c2, c3};
        tma_box(m, shared, at, [](uint32_t a, unsigned char *p) {
            const uint16_t h = async_load16(a, "TMA store");
            if (p) memcpy(p, &h, 2);
        });
    };
    if (now_timing.tma == EARLY || (now_timing.tma == RANDOM && random_bits() % 2)) read();
    else self().stores.push_back(store_op{read, self().store_group});
}
inline void finish_stores(int may_be_left) {
    thread_state &t = self();
    while (!t.stores.empty() && t.stores[0].group + may_be_left < t.store_group) {
        t.stores[0].read();
        t.stores.erase(t.stores.begin());
    }
}

/* ---- stores to global memory (those by store_global), which other blocks see when the block publishes them or ends,
   or as early as they like */
inline void land_stores() {
    for (const late_store &s : block->late) memcpy(s.to, s.words, s.bytes);
    block->late.clear();
}
/* What a thread has stored there comes before what it does there next. */
inline void land_stores_at(const void *to) {
    for (const late_store &s : block->late)
        if ((const unsigned char *)to >= s.to && (const unsigned char *)to < s.to + s.bytes) return land_stores();
}
inline void store_late(void *to, const uint32_t *words, size_t bytes) {
    late_store s;
    s.to = (unsigned char *)to, s.bytes = bytes;
    memcpy(s.words, words, bytes);
    block->late.push_back(s);
    if (now_timing.copy == EARLY || (now_timing.copy == RANDOM && random_bits() % 8 == 0)) land_stores();
}

/* ---- cp.async */
inline void copy_land(const copy_op &c) {
    unsigned char *to = shared_at(c.to, 16, "cp.async");
    memcpy(to, c.from, (size_t)c.bytes);
    memset(to + c.bytes, 0, (size_t)(16 - c.bytes));
}
inline void copy_issue(uint32_t to, const void *from, int bytes) {
    if (to % 16 || (uintptr_t)from % 16) fail("cp.async: an address that is not 16-byte aligned");
    const copy_op c = {to, from, bytes, self().copy_group};
    count.copies++;
    if (now_timing.copy == EARLY || (now_timing.copy == RANDOM && random_bits() % 2)) copy_land(c);
    else self().copies.push_back(c);
}
inline void cp_async_wait(int may_be_left) {
    thread_state &t = self();
    size_t n = 0;
    for (; n < t.copies.size() && t.copies[n].group + may_be_left < t.copy_group; n++) copy_land(t.copies[n]);
    t.copies.erase(t.copies.begin(), t.copies.begin() + (long)n);
    may_pause();
}

/* ---- a meeting of a warp's lanes: each brings `mine`, the last one runs `all(lanes)` for everybody */
template <class T, class F> inline void meet(const char *name, T *mine, F all) {
    warp_state &w = self_warp();
    const uint64_t generation = w.generation;
    if (w.arrived && w.at != name && strcmp(w.at, name))
        fail("deadlock: the warp diverged: %d lanes are at %s, this one at %s", w.arrived, w.at, name);
    w.at = name;
    w.lane[block->current % 32] = (void *)mine;
    if (++w.arrived == 32) {
        all((T **)w.lane);
        w.arrived = 0;
        w.generation++;
    } else {
        wait(ITS_WARP, 0, generation);
    }
}

/* ---- what the four warps of a warpgroup have to run: the lanes of each meet, and the last one runs `once`. The warps
   may be apart, but go the same steps. */
template <class F> inline void group_meet(const char *name, int number, F once) {
    int mine = number;
    meet(name, &mine, [=](int **lanes) {
        warp_state &w = self_warp();
        std::vector<group_step> &steps = block->steps[(size_t)block->current / 128];
        for (int i = 0; i < 32; i++)
            if (*lanes[i] != number) fail("%s: the lanes do not agree", name);
        if (w.steps == steps.size()) steps.push_back(group_step{name, number});
        const group_step &step = steps[w.steps++];
        if (strcmp(step.name, name) || step.number != number)
            fail("the warpgroup diverged: a warp ran %s %d, this one %s %d", step.name, step.number, name, number);
        once(w);
    });
}
/* at the end of a block: what a warp has left out, or "" */
inline std::string steps_left_out() {
    for (size_t i = 0; i < block->warps.size(); i++) {
        const std::vector<group_step> &steps = block->steps[i / 4];
        if (block->warps[i].steps < steps.size())
            return "the warpgroup diverged: warp " + std::to_string(i) + " did not come to " +
                   steps[block->warps[i].steps].name;
    }
    return "";
}

/* ---- barriers: warps arrive, as soon as all of their lanes have come */
struct arrival {
    int id, expected;
    bool vote;
};
inline void warp_arrives(const arrival &a) {
    if (a.expected % 32 || a.id < 0 || a.id > 15) fail("barrier %d of %d threads", a.id, a.expected);
    barrier_state &b = block->barriers[a.id];
    if (b.arrived && b.expected != a.expected)
        fail("barrier %d of %d threads, while %d others wait there for %d", a.id, a.expected, b.arrived, b.expected);
    b.expected = a.expected;
    b.any = b.any || a.vote;
    b.arrived += 32;
    if (b.arrived == a.expected) {
        b.arrived = 0;
        b.any_last = b.any;
        b.any = false;
        b.generation++;
    }
}
inline void barrier_arrive(const char *name, int id, int expected, bool vote) {
    arrival mine = {id, expected, vote};
    meet(name, &mine, [name](arrival **lanes) {
        arrival all = *lanes[0];
        for (int i = 0; i < 32; i++) {
            if (lanes[i]->id != all.id || lanes[i]->expected != all.expected) fail("%s: the lanes do not agree", name);
            all.vote = all.vote || lanes[i]->vote;
        }
        warp_arrives(all);
    });
}
/* true where any thread votes */
inline bool barrier_sync(const char *name, int id, int expected, bool vote) {
    const uint64_t generation = block->barriers[id & 15].generation;
    barrier_arrive(name, id, expected, vote);
    if (block->barriers[id].generation == generation) wait(BARRIER, id, generation);
    return block->barriers[id].any_last;
}

/* ---- wgmma. The four warps of a warpgroup hold 16 rows each; lane/4 is the row of 8, lane%4 the pair of columns. */
/* Eight neighbours, as a unit reads them: 16 bytes, 16-byte aligned before and after the swizzle. */
inline void async_load_chunk(float (&x)[8], uint32_t address, bool bf16) {
    uint16_t h[8];
    const uint32_t at = swizzle128(address);
    memcpy(h, shared_at(at, 16, "wgmma"), 16);
    for (uint32_t i = 0; i < 16; i += 4) check_published(at + i, "wgmma");
    for (int i = 0; i < 8; i++) x[i] = from_16(h[i], bf16);
}
/* 16 of k for each of `count` rows (m or n). K-major: rows of 64 elements along k, groups of 8 rows `stride` apart.
   Transposed: rows of 64 elements along m or n; the next 8 of k are `stride` on, the next 64 of m or n `leading`. */
inline void wgmma_load(float (*to)[16], int count, uint64_t desc, bool transposed, bool bf16) {
    const uint32_t start = (uint32_t)(desc & 0x3fff) << 4, leading = (uint32_t)(desc >> 16 & 0x3fff) << 4;
    const uint32_t stride = (uint32_t)(desc >> 32 & 0x3fff) << 4;
    float x[8];
    if (desc >> 62 != 1) fail("wgmma: a descriptor without the 128-byte swizzle");
    if (!transposed)
        for (int row = 0; row < count; row++)
            for (int half = 0; half < 2; half++) {
                async_load_chunk(
                    x, start + (uint32_t)(row / 8) * stride + (uint32_t)(row % 8) * 128 + (uint32_t)half * 16, bf16);
                for (int i = 0; i < 8; i++) to[row][half * 8 + i] = x[i];
            }
    else
        for (int k = 0; k < 16; k++)
            for (int row = 0; row < count; row += 8) {
                async_load_chunk(x,
                                 start + (uint32_t)(row / 64) * leading + (uint32_t)(row % 64) * 2 +
                                     (uint32_t)(k / 8) * stride + (uint32_t)(k % 8) * 128,
                                 bf16);
                for (int i = 0; i < 8; i++) to[row + i][k] = x[i];
            }
}
/* What takes longest in the emulator is in vectors, whatever the rest is compiled with. They run along n, so that each
   sum has its order. */
typedef float eight __attribute__((vector_size(32)));
inline void wgmma_row(float *sum, const float *a, const float (*b)[256], int n) {
    for (int x = 0; x < n; x += 8) { /* n is a multiple of 8 */
        eight of_eight = {}, row;
        for (int k = 0; k < 16; k++) {
            memcpy(&row, &b[k][x], sizeof row);
            of_eight += a[k] * row;
        }
        memcpy(&sum[x], &of_eight, sizeof of_eight);
    }
}
inline void wgmma_run(wgmma_op &o) {
    static float a[64][16], b_rows[256][16], b[16][256], sum[256];
    if (o.a_in_registers)
        for (int row = 0; row < 64; row++)
            for (int k = 0; k < 16; k++) {
                const int lane = row % 8 * 4 + k % 8 / 2, part = k / 8 * 2 + row % 16 / 8;
                a[row][k] = from_16((uint16_t)(o.a[row / 16 * 32 + lane][part] >> (k % 2 * 16)), o.bf16);
            }
    else wgmma_load(a, 64, o.desc_a, o.transpose_a, o.bf16);
    wgmma_load(b_rows, o.n, o.desc_b, o.transpose_b, o.bf16);
    for (int n = 0; n < o.n; n++)
        for (int k = 0; k < 16; k++) b[k][n] = b_rows[n][k];
    for (int row = 0; row < 64; row++) {
        wgmma_row(sum, a[row], b, o.n);
        for (int lane = 0; lane < 4; lane++) {
            float *d = &o.d[row / 16 * 32 + row % 8 * 4 + lane][row % 16 / 8 * 2];
            for (int n = lane * 2; n < o.n; n += 8, d += 4)
                for (int i = 0; i < 2; i++) d[i] = (o.accumulate ? d[i] : 0.0f) + sum[n + i];
        }
    }
    count.wgmma++;
}
inline void wgmma_fence() {
    group_meet("wgmma.fence", 0, [](warp_state &w) { w.wgmma_fenced = true; });
}
inline void wgmma_commit() {
    group_meet("wgmma.commit", 0, [](warp_state &w) { w.wgmma_fenced = false, w.wgmma_group++; });
}
struct wgmma_part { /* of a lane */
    const wgmma_op *like;
    float *d;
    const uint32_t *a;
};
inline bool are_same(const wgmma_op &x, const wgmma_op &y) {
    return x.n == y.n && x.a_in_registers == y.a_in_registers && x.desc_a == y.desc_a && x.desc_b == y.desc_b &&
           x.accumulate == y.accumulate;
}
inline void wgmma_issue(const wgmma_op &like, float *d, const uint32_t *a) {
    wgmma_part mine = {&like, d, a};
    meet("wgmma", &mine, [](wgmma_part **lanes) {
        warp_state &w = self_warp();
        std::deque<wgmma_op> &queue = block->wgmma[(size_t)block->current / 128];
        const size_t index = (size_t)w.wgmma_issued++;
        if (!w.wgmma_fenced) fail("wgmma: no wgmma.fence since the last group");
        if (queue.size() <= index) {
            queue.push_back(*lanes[0]->like);
            queue[index].issued = 0;
            queue[index].group = w.wgmma_group;
        }
        wgmma_op &o = queue[index];
        for (int i = 0; i < 32; i++) {
            const int place = block->current % 128 / 32 * 32 + i;
            if (!are_same(o, *lanes[i]->like) || o.group != w.wgmma_group)
                fail("wgmma: the threads of the warpgroup do not agree");
            o.d[place] = lanes[i]->d;
            o.a[place] = lanes[i]->a;
        }
        o.issued += 32;
        if (o.issued < 128) return;
        o.due = due_of(now_timing.wgmma);
        if (now_timing.wgmma == EARLY) wgmma_run(o), block->wgmma_done[(size_t)block->current / 128]++;
    });
}
inline bool wgmma_finished(int index, int may_be_left) {
    const std::deque<wgmma_op> &queue = block->wgmma[(size_t)index / 128];
    const warp_state &w = block->warps[(size_t)index / 32];
    const size_t done = block->wgmma_done[(size_t)index / 128]; /* the next one is of the earliest group that is left */
    return done >= (size_t)w.wgmma_issued || queue[done].group + may_be_left >= w.wgmma_group;
}
inline void wgmma_wait(int may_be_left) {
    group_meet("wgmma.wait", may_be_left, [](warp_state &) {});
    may_pause();
    if (!wgmma_finished(block->current, may_be_left)) wait(WGMMA, may_be_left, 0);
}

/* ---- setmaxnreg: from `given` to `wanted` registers for each thread of a warpgroup; more come from what others gave
   back, and are waited for */
inline int registers_at_start() { return std::min(65536 / block->count / 8 * 8, 255); }
inline void set_registers(int wanted, bool more) {
    thread_state &t = self();
    group_meet(more ? "setmaxnreg.inc" : "setmaxnreg.dec", wanted, [](warp_state &) {});
    if (wanted < 24 || wanted > 256 || wanted % 8) fail("setmaxnreg: %d registers", wanted);
    if (more ? wanted < t.registers : wanted > t.registers)
        fail("setmaxnreg: from %d to %d registers, by the form for the other direction", t.registers, wanted);
    while (wanted - t.registers > block->registers_left) wait(REGISTERS, wanted - t.registers, 0);
    block->registers_left -= wanted - t.registers;
    t.registers = wanted;
}

/* ---- the scheduler */
inline void fiber_entry() {
    block->body();
    thread_state &t = self();
    if (!t.copies.empty() && t.copies[0].group < t.copy_group) t.copies.clear(); /* lands in nobody's memory */
    if (!t.stores.empty()) fail("the thread ends before its TMA stores have read their data");
    t.wait = FINISHED;
    block->finished++;
    switch_out();
    abort();
}
inline bool can_go_on(int index) {
    const thread_state &t = block->threads[(size_t)index];
    switch (t.wait) {
    case NOTHING: return true;
    case A_PAUSE: return (int64_t)t.until <= block->tick;
    case ITS_WARP: return block->warps[(size_t)index / 32].generation != t.until;
    case BARRIER: return block->barriers[t.which].generation != t.until;
    case MBARRIER: {
        mbarrier m;
        memcpy(&m, block->shared + t.which, 8);
        return (m.phase != 0) != (t.until != 0);
    }
    case WGMMA: return wgmma_finished(index, t.which);
    case REGISTERS: return t.which <= block->registers_left;
    case A_COUNT: return *(const int *)t.until >= t.which;
    case FINISHED: break;
    }
    return false;
}
inline bool run_warp(size_t warp) {
    bool moved = false;
    const size_t first = warp * 32, last = std::min(first + 32, block->threads.size());
    for (size_t n = first; n < last && block->error.empty(); n++) {
        const size_t i = lanes_downwards ? first + last - 1 - n : n;
        if (!can_go_on((int)i)) continue;
        moved = true;
        block->current = (int)i;
        block->threads[i].wait = NOTHING;
        count.switches++;
        context_switch(&block->scheduler, &block->threads[i].at);
        n = lanes_downwards ? first + last - 1 - (size_t)block->current : (size_t)block->current; /* so far they ran */
    }
    return moved;
}
/* lets operations land: those that are due, or with `force` one of all that can, so that somebody may go on */
inline bool run_units(bool force) {
    static std::vector<int> ready; /* TMA by index, warpgroups as -1 - index */
    bool any = false;
    ready.clear();
    for (size_t i = 0; i < block->tma.size(); i++)
        if (force || block->tma[i].due <= block->tick) ready.push_back((int)i);
    for (size_t g = 0; g < block->wgmma.size(); g++) {
        if (block->wgmma_done[g] == block->wgmma[g].size()) continue;
        const wgmma_op &o = block->wgmma[g][block->wgmma_done[g]]; /* in order */
        if (o.issued == 128 && (force || o.due <= block->tick)) ready.push_back(-1 - (int)g);
    }
    if (force && ready.size() > 1) {
        ready[0] = ready[random_bits() % ready.size()];
        ready.resize(1);
    }
    block->by_scheduler = true;
    std::reverse(ready.begin(), ready.end()); /* so that erasing a TMA moves none that is still to run */
    for (int r : ready) {
        any = true;
        if (r >= 0) {
            block->tma[(size_t)r].land();
            block->tma.erase(block->tma.begin() + r);
        } else {
            const size_t group = (size_t)(-1 - r);
            wgmma_run(block->wgmma[group][block->wgmma_done[group]++]);
        }
    }
    block->by_scheduler = false;
    return any;
}
inline std::string describe(const thread_state &t) {
    char text[200];
    switch (t.wait) {
    case ITS_WARP: return "the other lanes of the warp";
    case BARRIER: {
        const barrier_state &b = block->barriers[t.which];
        snprintf(text, sizeof text, "barrier %d (%d of %d have arrived)", t.which, b.arrived, b.expected);
        return text;
    }
    case MBARRIER: {
        mbarrier m;
        memcpy(&m, block->shared + t.which, 8);
        snprintf(text, sizeof text, "the mbarrier at %d to leave phase %d (%d arrivals and %d bytes are missing)",
                 t.which, (int)t.until, (int)m.pending, (int)m.bytes);
        return text;
    }
    case WGMMA: return "its wgmma, which not all of the warpgroup have issued";
    case REGISTERS: return std::to_string(t.which) + " more registers";
    case A_COUNT:
        snprintf(text, sizeof text, "a count in global memory to go from %d to %d", *(const int *)t.until, t.which);
        return text;
    case FINISHED: return "nothing, it has finished";
    default: return "its turn";
    }
}
inline std::string deadlock() { /* of this block */
    std::string text = "deadlock in block " + std::to_string(block->index) + ":";
    for (size_t i = 0; i < block->threads.size();) {
        const std::string what = describe(block->threads[i]);
        size_t last = i;
        while (last + 1 < block->threads.size() && describe(block->threads[last + 1]) == what) last++;
        text += (i == last ? " thread " : " threads ") + std::to_string(i);
        if (i != last) text += ".." + std::to_string(last);
        text += (i == last ? " waits for " : " wait for ") + what + ";";
        i = last + 1;
    }
    return text;
}
inline bool any_waits_for(waits_for what) {
    for (const thread_state &t : block->threads)
        if (t.wait == what) return true;
    return false;
}
/* Runs the block until it has finished, or can't go on before another one counts; with others beside it also now and
   then only so far. True: some thread went on. */
inline bool run_block(bool others) {
    bool ever = false;
    const size_t warps = block->warps.size();
    std::vector<size_t> order(warps);
    for (size_t i = 0; i < warps; i++) order[i] = i;
    while (block->error.empty() && block->finished < block->count) {
        bool moved = false;
        block->tick++;
        if (now_timing.apart ? block->tick % 16 == 1 : true)
            for (size_t i = warps; i > 1; i--) std::swap(order[i - 1], order[random_bits() % i]);
        for (size_t i = 0; i < warps && block->error.empty(); i++) {
            const bool went = run_warp(order[i]);
            moved = moved || went;
            if (went && now_timing.apart) break; /* the first of the order goes as far as it can */
        }
        if (!block->error.empty()) break;
        try {
            if (run_units(false)) moved = true;
            if (!moved && block->finished < block->count && !any_waits_for(A_PAUSE)) {
                if (run_units(true)) moved = true;
                else if (any_waits_for(A_COUNT)) break;
                else block->error = deadlock();
            }
        } catch (failed) {} /* block->error says what */
        ever = ever || moved;
        if (others && moved && random_bits() % 32 == 0) break;
    }
    return ever;
}

/* What a block has for itself: its shared memory, up to a page that faults, and stacks */
struct block_place {
    unsigned char *shared = NULL;
    size_t pages = 0;
    std::vector<unsigned char *> stacks;
};
inline unsigned char *map_memory(size_t bytes) {
    return (unsigned char *)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
inline void make_place(block_place &place, int threads, size_t shared_bytes) {
    const size_t page = 4096, pages = (shared_bytes + page - 1) / page * page;
    while (place.stacks.size() < (size_t)threads) place.stacks.push_back(map_memory(stack_bytes));
    if (place.shared && place.pages == pages) return;
    if (place.shared) munmap(place.shared, place.pages + page);
    place.pages = pages;
    place.shared = map_memory(pages + page);
    mprotect(place.shared + pages, page, PROT_NONE);
}
inline void start_block(block_state &b, const block_place &place) {
    b.shared = place.shared;
    b.threads.assign((size_t)b.count, thread_state());
    block = &b;
    for (thread_state &t : b.threads) t.registers = registers_at_start();
    b.warps.assign((size_t)(b.count + 31) / 32, warp_state());
    b.steps.assign((size_t)(b.count + 127) / 128, std::vector<group_step>());
    b.wgmma.assign((size_t)(b.count + 127) / 128, std::deque<wgmma_op>());
    b.wgmma_done.assign(b.wgmma.size(), 0);
    b.dirty.assign(place.pages / 4, 0);
    memset(place.shared, 0xff, place.pages);
    for (size_t k = 0; k < (size_t)b.count; k++)
        context_make(&b.threads[k].at, place.stacks[k], stack_bytes, fiber_entry);
    count.blocks++;
}
inline std::string end_of_block(const block_state &b, const block_place &place) {
    land_stores();
    if (!b.error.empty()) return b.error;
    const std::string left_out = steps_left_out();
    if (!left_out.empty()) return left_out;
    if (!b.tma.empty()) return "a TMA load is still under way when the block ends";
    for (size_t k = b.shared_bytes; k < place.pages; k++)
        if (place.shared[k] != 0xff) return "shared memory was written beyond its end";
    return "";
}

/* Runs `body` as a grid of blocks, of which up to `together` are alive at once: 0 is one in most launches, else some.
   As on a GPU blocks start in the order of their numbers, the next one when another has ended; who goes on is anybody.
   Returns "" or what went wrong. */
inline std::string last_error;
inline int together = 0;
template <class F> inline const std::string &launch(int grid, int threads, size_t shared_bytes, F body) {
    static std::vector<block_place> places;
    const int some[8] = {1, 1, 1, 1, 1, 2, 3, 8}, most = std::min(grid, together ? together : some[random_bits() % 8]);
    std::vector<block_state *> alive((size_t)most, NULL);
    int started = 0, ended = 0;
    last_error.clear();
    if (places.size() < (size_t)most) places.resize((size_t)most);
    count.launches++;
    lanes_downwards = random_bits() & 1;
    count.downwards += lanes_downwards;
    count.shared = std::max(count.shared, (int64_t)shared_bytes);
    while (ended < grid && last_error.empty()) {
        const size_t first = random_bits() % (unsigned)most;
        bool moved = false;
        for (size_t n = 0; n < (size_t)most && !moved && last_error.empty(); n++) {
            const size_t i = (first + n) % (size_t)most;
            for (size_t k = 0; k < (size_t)most; k++) /* whoever can start has started */
                if (!alive[k] && started < grid) {
                    make_place(places[k], threads, shared_bytes);
                    alive[k] = new block_state;
                    alive[k]->shared_bytes = shared_bytes;
                    alive[k]->count = threads;
                    alive[k]->grid = grid;
                    alive[k]->index = started++;
                    alive[k]->body = body;
                    start_block(*alive[k], places[k]);
                }
            if (!alive[i]) continue;
            block = alive[i];
            moved = run_block(most > 1);
            if (block->error.empty() && block->finished < threads) continue;
            last_error = end_of_block(*block, places[i]);
            delete alive[i];
            alive[i] = NULL;
            ended++;
            moved = true;
        }
        if (!moved && last_error.empty())
            for (block_state *b : alive)
                if ((block = b) != NULL) last_error += deadlock() + " ";
    }
    for (block_state *b : alive) delete b;
    block = NULL;
    return last_error;
}

inline void *last_stream; /* of the last launch */
template <class P>
inline int launch_kernel(void (*kernel)(P), int64_t grid, int threads, size_t shared_bytes, void *stream, const P &p) {
    last_stream = stream;
    return launch((int)grid, threads, shared_bytes, [kernel, &p] { kernel(p); }).empty() ? 0 : 719;
}

} /* namespace attn_emu */

/* ---- the names of the section >>hw */
#define ATTN__DEVICE static inline
#define ATTN__HAVE_MMA 1
#define ATTN__HAVE_WGMMA 1
#define ATTN__LARGE_TILES 256
#define ATTN__KERNEL(threads, min_blocks) static
#define ATTN__PARAM
#define ATTN__SHARED(name) unsigned char *const name = attn_emu::block->shared
#define ATTN__LAUNCH(...) attn_emu::launch_kernel(__VA_ARGS__)
#define ATTN__UNROLL
#define ATTN__UNROLL_BY(n) (void)(n);
#define ATTN__LOOP

namespace attn__hw {

struct f16 {
    static const bool is_bf16 = false, is_f32 = false;
};
struct bf16 {
    static const bool is_bf16 = true, is_f32 = false;
};
struct f32 {
    static const bool is_bf16 = false, is_f32 = true;
};
typedef attn_emu::tensor_map tensor_map;

inline int thread() { return attn_emu::block->current; }
inline int threads() { return attn_emu::block->count; }
inline int block() { return attn_emu::block->index; }
inline int blocks() { return attn_emu::block->grid; }
inline int lane() { return thread() % 32; }
inline int lane_anew() { return lane(); }
inline int thread_anew() { return thread(); }
inline int anew(int x) { return x; }
inline void *anew(void *x) { return x; }
inline void missing() { attn_emu::fail("a kernel without a body"); }

inline void sync() { attn_emu::barrier_sync("sync", 0, threads(), false); }
inline void barrier_sync(int id, int count) { attn_emu::barrier_sync("barrier_sync", id, count, false); }
inline void barrier_arrive(int id, int count) { attn_emu::barrier_arrive("barrier_arrive", id, count, false); }
inline bool barrier_or(int id, int count, bool vote) { return attn_emu::barrier_sync("barrier_or", id, count, vote); }

/* ---- the lanes of a warp; each function has a name of its own, so that lanes at different ones do not meet */
template <class T> inline T exchange(const char *name, T x, int source) {
    struct mine {
        T in, out;
        int source;
    } m = {x, x, source};
    attn_emu::meet(name, &m, [](mine **lanes) {
        for (int i = 0; i < 32; i++) lanes[i]->out = lanes[lanes[i]->source & 31]->in;
    });
    return m.out;
}
template <class T> inline T shfl(T x, int source) { return exchange("shfl", x, source); }
template <class T> inline T shfl_xor(T x, int mask) { return exchange("shfl_xor", x, lane() ^ mask); }
template <class T> inline T uniform(T x) {
    const T first = exchange("uniform", x, 0);
    if (x != first) attn_emu::fail("uniform: the lanes do not agree");
    return first;
}
inline int warp() { return uniform(thread() / 32); }
inline uint32_t votes(const char *name, bool vote) {
    struct mine {
        bool in;
        uint32_t out;
    } m = {vote, 0};
    attn_emu::meet(name, &m, [](mine **lanes) {
        uint32_t all = 0;
        for (int i = 0; i < 32; i++) all |= (uint32_t)lanes[i]->in << i;
        for (int i = 0; i < 32; i++) lanes[i]->out = all;
    });
    return m.out;
}
inline uint32_t ballot(bool vote) { return votes("ballot", vote); }
inline bool any(bool vote) { return votes("any", vote) != 0; }
inline int take_one(int *counter) { return (*counter)++; }
inline void wait_for_count(const int *counter, int value) {
    attn_emu::may_pause();
    if (*counter < value) attn_emu::wait(attn_emu::A_COUNT, value, (uint64_t)(uintptr_t)counter);
}
inline void publish_count(int *counter, int value) {
    attn_emu::land_stores();
    *counter = value;
    attn_emu::may_pause();
}
inline int publish_one(int *counter) {
    attn_emu::may_pause();
    attn_emu::land_stores();
    return (*counter)++;
}
inline void come(const char *name) {
    char none;
    attn_emu::meet(name, &none, [](char **) {});
}
inline void sync_warp() { come("sync_warp"); }
inline bool elect() {
    come("elect");
    return lane() == 13; /* which one it is is not to matter */
}
inline int ctz(uint32_t x) { return __builtin_ctz(x); }
inline int popc(uint32_t x) { return __builtin_popcount(x); }

/* flushes what the GPU's .ftz forms flush; their last bits are the host's own */
inline float flush(float x) { return fabsf(x) < 1.17549435e-38f ? copysignf(0.0f, x) : x; }
inline float ex2(float x) { return flush(exp2f(flush(x))); }
inline float lg2(float x) { return flush(log2f(flush(x))); }
inline float rcp(float x) { return flush(1.0f / flush(x)); }
inline float fma(float a, float b, float c) { return fmaf(a, b, c); }
inline void biased(float &x, float a, float b) { x = b == -INFINITY ? b : fmaf(x, a, b); }
/* Where the compiler may fuse: a product that it cannot see through. */
template <class T> inline T rounded(T x) {
    volatile T result = x;
    return result;
}
inline float mul(float a, float b) { return rounded(a * b); }
inline float add(float a, float b) { return a + b; }
inline float div(float a, float b) { return a / b; }
inline double mul(double a, double b) { return rounded(a * b); }
inline double add(double a, double b) { return a + b; }
inline double div(double a, double b) { return a / b; }

inline uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t which) {
    uint32_t r = 0;
    for (int n = 0; n < 4; n++) r |= (uint32_t)(((uint64_t)b << 32 | a) >> (which >> 4 * n & 7) * 8 & 0xff) << 8 * n;
    return r;
}
inline uint32_t multiply_high(uint32_t a, uint32_t b) { return (uint32_t)((uint64_t)a * b >> 32); }
inline uint32_t larger_halves(uint32_t a, uint32_t b) {
    return std::max(a >> 16, b >> 16) << 16 | std::max(a & 0xffff, b & 0xffff);
}
inline uint32_t smaller_halves(uint32_t a, uint32_t b) {
    const auto half = [](uint32_t x) { return (int16_t)x; };
    return (uint32_t)std::min(half(a >> 16), half(b >> 16)) << 16 | (uint16_t)std::min(half(a), half(b));
}
inline float from_f16(uint16_t h) { return attn_emu::from_f16(h); }
inline float from_bf16(uint16_t h) { return attn_emu::from_bf16(h); }
inline uint16_t to_f16(float f) { return attn_emu::to_f16(f); }
inline uint16_t to_bf16(float f) { return attn_emu::to_bf16(f); }
template <class T> inline uint32_t pack(float low, float high) {
    return T::is_bf16 ? attn_emu::to_bf16(low) | (uint32_t)attn_emu::to_bf16(high) << 16
                      : attn_emu::to_f16(low) | (uint32_t)attn_emu::to_f16(high) << 16;
}
inline uint32_t and_or(uint32_t a, uint32_t b, uint32_t c) { return (a & b) | c; }
template <class T> inline uint32_t subtract_halves(uint32_t a, uint32_t b) {
    uint32_t r = 0;
    for (int n = 0; n < 32; n += 16) {
        const uint16_t x = (uint16_t)(a >> n), y = (uint16_t)(b >> n);
        r |= (uint32_t)(T::is_bf16 ? attn_emu::to_bf16(attn_emu::from_bf16(x) - attn_emu::from_bf16(y))
                                   : attn_emu::to_f16(attn_emu::from_f16(x) - attn_emu::from_f16(y)))
             << n;
    }
    return r;
}

/* ---- shared memory */
inline uint32_t shared_address(const void *p) { return attn_emu::shared_address(p); }
inline void store_shared(uint32_t address, uint32_t value) {
    memcpy(attn_emu::shared_at(address, 4, "store_shared"), &value, 4);
    uint16_t &writer = attn_emu::block->dirty[(address - attn_emu::shared_base) / 4];
    writer = (uint16_t)(thread() + 1);
    attn_emu::self().unpublished.push_back(address);
}
inline void store_shared(uint32_t address, const uint32_t (&r)[2]) {
    if (address % 8) attn_emu::fail("store_shared: an address that is not 8-byte aligned");
    for (uint32_t i = 0; i < 2; i++) store_shared(address + 4 * i, r[i]);
}
inline void store_shared(uint32_t address, const uint32_t (&r)[4]) {
    if (address % 16) attn_emu::fail("store_shared: an address that is not 16-byte aligned");
    for (uint32_t i = 0; i < 4; i++) store_shared(address + 4 * i, r[i]);
}
inline void load_shared(uint32_t (&r)[4], uint32_t address) {
    if (address % 16) attn_emu::fail("load_shared: an address that is not 16-byte aligned");
    memcpy(r, attn_emu::shared_at(address, 16, "load_shared"), 16);
}
inline void load_shared(uint32_t (&r)[2], uint32_t address) {
    if (address % 8) attn_emu::fail("load_shared: an address that is not 8-byte aligned");
    memcpy(r, attn_emu::shared_at(address, 8, "load_shared"), 8);
}
inline uint32_t load_shared_word(uint32_t address) {
    uint32_t r;
    memcpy(&r, attn_emu::shared_at(address, 4, "load_shared_word"), 4);
    return r;
}
inline void fence_async() {
    for (uint32_t address : attn_emu::self().unpublished) {
        uint16_t &writer = attn_emu::block->dirty[(address - attn_emu::shared_base) / 4];
        if (writer == thread() + 1) writer = 0;
    }
    attn_emu::self().unpublished.clear();
}

/* ---- global memory, 16 or 8 bytes at once */
inline void aligned_to(const void *at, size_t bytes) {
    if ((uintptr_t)at % bytes) attn_emu::fail("global memory: an address that is not aligned");
}
inline void load_global(uint32_t (&r)[4], const void *from) {
    aligned_to(from, 16);
    memcpy(r, from, 16);
}
template <int N> inline void store_global(void *to, const uint32_t (&r)[N]) {
    aligned_to(to, 4 * N);
    attn_emu::store_late(to, r, 4 * N);
}

/* ---- cp.async */
inline void cp_async_part(uint32_t to, const void *from, int bytes) { attn_emu::copy_issue(to, from, bytes); }
inline void cp_async(uint32_t to, const void *from, bool inside) { cp_async_part(to, from, inside ? 16 : 0); }
inline void cp_async_commit() { attn_emu::self().copy_group++; }
template <int N> inline void cp_async_wait() { attn_emu::cp_async_wait(N); }

/* ---- tensor cores of a warp */
/* d 16x8 += left . right, in vectors (see wgmma_row) */
template <int K, class Lane>
inline void multiply_add(Lane **lanes, const float (&left)[16][K], const float (&right)[K][8]) {
    attn_emu::eight rows[K];
    memcpy(rows, right, sizeof rows);
    for (int row = 0; row < 16; row++) {
        Lane **const four = lanes + row % 8 * 4;
        const int part = row / 8 * 2;
        attn_emu::eight sum;
        for (int n = 0; n < 8; n++) sum[n] = four[n / 2]->d[part + n % 2];
        for (int k = 0; k < K; k++) sum += left[row][k] * rows[k];
        for (int n = 0; n < 8; n++) four[n / 2]->d[part + n % 2] = sum[n];
    }
}
inline void ldmatrix_any(uint32_t (&r)[4], uint32_t address, bool transpose) {
    struct mine {
        uint32_t address, *r;
        bool transpose;
    } m = {address, r, transpose};
    if (address % 16) attn_emu::fail("ldmatrix: a row that is not 16-byte aligned");
    attn_emu::meet(transpose ? "ldmatrix_transposed" : "ldmatrix", &m, [](mine **lanes) {
        attn_emu::count.ldmatrix++;
        for (int matrix = 0; matrix < 4; matrix++) {
            uint16_t tile[8][8];
            unsigned banks = 0;
            for (int row = 0; row < 8; row++) {
                const uint32_t at = lanes[matrix * 8 + row]->address;
                memcpy(tile[row], attn_emu::shared_at(at, 16, "ldmatrix"), 16);
                banks |= 1u << (at / 16 % 8);
            }
            if (banks != 255) attn_emu::count.ldmatrix_conflicts++;
            for (int i = 0; i < 32; i++) {
                const int row = i / 4, column = i % 4 * 2;
                const bool t = lanes[i]->transpose;
                const uint16_t low = t ? tile[column][row] : tile[row][column];
                const uint16_t high = t ? tile[column + 1][row] : tile[row][column + 1];
                lanes[i]->r[matrix] = low | (uint32_t)high << 16;
            }
        }
    });
}
inline void ldmatrix(uint32_t (&r)[4], uint32_t address) { ldmatrix_any(r, address, false); }
inline void ldmatrix_transposed(uint32_t (&r)[4], uint32_t address) { ldmatrix_any(r, address, true); }

inline void stmatrix(uint32_t address, const uint32_t (&r)[4]) {
    struct mine {
        uint32_t address, at[4]; /* at: where this lane's words go */
    } m = {address, {}};
    if (address % 16) attn_emu::fail("stmatrix: a row that is not 16-byte aligned");
    attn_emu::meet("stmatrix", &m, [](mine **lanes) {
        attn_emu::count.stmatrix++;
        for (int matrix = 0; matrix < 4; matrix++) {
            unsigned banks = 0;
            for (int i = 0; i < 32; i++) {
                const uint32_t row = lanes[matrix * 8 + i / 4]->address;
                banks |= 1u << (row / 16 % 8);
                lanes[i]->at[matrix] = row + (uint32_t)i % 4 * 4;
            }
            if (banks != 255) attn_emu::count.ldmatrix_conflicts++;
        }
    });
    for (int matrix = 0; matrix < 4; matrix++) store_shared(m.at[matrix], r[matrix]);
}

template <class T> inline void mma(float *d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    struct mine {
        float *d;
        const uint32_t *a;
        uint32_t b[2];
    } m = {d, a, {b0, b1}};
    attn_emu::meet(T::is_bf16 ? "mma bf16" : "mma f16", &m, [](mine **lanes) {
        static float left[16][16], right[16][8];
        attn_emu::count.mma++;
        for (int i = 0; i < 32; i++)
            for (int half = 0; half < 2; half++) {
                for (int part = 0; part < 4; part++)
                    left[i / 4 + part % 2 * 8][i % 4 * 2 + half + part / 2 * 8] =
                        attn_emu::from_16((uint16_t)(lanes[i]->a[part] >> (half * 16)), T::is_bf16);
                for (int part = 0; part < 2; part++)
                    right[i % 4 * 2 + half + part * 8][i / 4] =
                        attn_emu::from_16((uint16_t)(lanes[i]->b[part] >> (half * 16)), T::is_bf16);
            }
        multiply_add(lanes, left, right);
    });
}

/* The last 13 bits of a number are not read. Products have 22 bits, so they are exact; sums are rounded to nearest, in
   the order of k (a device's may have another order, and be cut off). */
inline void mma_tf32(float *d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    struct mine {
        float *d;
        const uint32_t *a;
        uint32_t b[2];
    } m = {d, a, {b0, b1}};
    attn_emu::meet("mma tf32", &m, [](mine **lanes) {
        static float left[16][8], right[8][8];
        const auto read = [](uint32_t x) {
            float f;
            x &= 0xffffe000u;
            memcpy(&f, &x, 4);
            return f;
        };
        attn_emu::count.mma++;
        for (int i = 0; i < 32; i++) {
            for (int part = 0; part < 4; part++)
                left[i / 4 + part % 2 * 8][i % 4 + part / 2 * 4] = read(lanes[i]->a[part]);
            for (int part = 0; part < 2; part++) right[i % 4 + part * 4][i / 4] = read(lanes[i]->b[part]);
        }
        multiply_add(lanes, left, right);
    });
}

/* ---- mbarriers, TMA */
inline void mbarrier_init(uint64_t *bar, int arrivals) {
    const attn_emu::mbarrier m = {0, arrivals, arrivals, 0};
    memcpy(bar, &m, 8);
    attn_emu::self().new_mbarriers.push_back(attn_emu::shared_address(bar));
}
inline void mbarrier_fence_init() { attn_emu::self().new_mbarriers.clear(); }
inline void mbarrier_expect(uint64_t *bar, uint32_t bytes) { attn_emu::mbarrier_arrive(bar, bytes); }
inline void mbarrier_arrive(uint64_t *bar) {
    attn_emu::mbarrier_arrive(bar, 0);
    attn_emu::may_pause();
}
inline void mbarrier_wait(uint64_t *bar, int parity) {
    const attn_emu::mbarrier m = attn_emu::mbarrier_load(bar, "mbarrier wait");
    if ((m.phase != 0) == (parity != 0))
        attn_emu::wait(attn_emu::MBARRIER, (int)(attn_emu::shared_address(bar) - attn_emu::shared_base),
                       (uint64_t)parity);
}
inline void tma_load(void *to, const tensor_map *map, uint64_t *bar, int c0, int c1, int c2, int c3) {
    attn_emu::tma_load(to, map, bar, c0, c1, c2, c3);
}
inline void cp_async_bulk(void *to, const void *from, uint32_t bytes, uint64_t *bar) {
    attn_emu::cp_async_bulk(to, from, bytes, bar);
}
inline void tma_store(const tensor_map *map, const void *from, int c0, int c1, int c2, int c3) {
    attn_emu::tma_store(map, from, c0, c1, c2, c3);
}
inline void tma_store_commit() { attn_emu::self().store_group++; }
template <int N> inline void tma_store_wait_read() { attn_emu::finish_stores(N); }
typedef bool tensor_map_encoder_fn;
inline tensor_map_encoder_fn tensor_map_encoder() {
    attn_emu::count.drivers++, attn_emu::count.calls++;
    return attn_emu::driver_has_tma;
}
/* A tensor of 16-bit elements with four axes; boxes of 64 columns, `along` of the second and `across` of the third. 0 =
   fine. */
inline int tensor_map_make(tensor_map_encoder_fn encode, tensor_map *map, void *base, const int64_t (&size)[4],
                           const int64_t (&stride)[4], int along, int across = 1) {
    attn_emu::count.maps++;
    if ((uintptr_t)base % 16 || !encode) return 1;
    for (int i = 0; i < 4; i++) {
        if (size[i] <= 0 || (i && (stride[i] * 2 % 16 || stride[i] <= 0 || stride[i] >> 39))) return 1;
        map->size[i] = (uint64_t)size[i];
        map->stride[i] = (uint64_t)stride[i] * 2;
        map->box[i] = i == 0 ? 64 : i == 1 ? (uint32_t)along : i == 2 ? (uint32_t)across : 1;
    }
    map->base = (unsigned char *)base;
    return along > 256 || across > 256;
}

/* ---- tensor cores of a warpgroup */
template <int N> inline void setmaxnreg_inc() { attn_emu::set_registers(N, true); }
template <int N> inline void setmaxnreg_dec() { attn_emu::set_registers(N, false); }
inline void add_to_global(float *to, float x) {
    attn_emu::land_stores_at(to);
    *to += x;
}
inline void add_to_global(float *to, const float (&x)[4]) {
    if ((uintptr_t)to % 16) attn_emu::fail("red: an address that is not 16-byte aligned");
    for (int i = 0; i < 4; i++) to[i] += x[i];
}

inline void wgmma_fence() { attn_emu::wgmma_fence(); }
inline void wgmma_commit() { attn_emu::wgmma_commit(); }
template <int N> inline void wgmma_wait() { attn_emu::wgmma_wait(N); }
template <class A> inline void wgmma_keep(A &) {}
template <class T, int N, bool TransposeA, bool TransposeB>
inline void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, bool accumulate) {
    attn_emu::wgmma_op o = attn_emu::wgmma_op();
    o.n = N, o.bf16 = T::is_bf16, o.transpose_a = TransposeA, o.transpose_b = TransposeB;
    o.desc_a = a, o.desc_b = b, o.accumulate = accumulate;
    attn_emu::wgmma_issue(o, d, NULL);
}
template <class T, int N, bool TransposeB>
inline void wgmma(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, bool accumulate) {
    attn_emu::wgmma_op o = attn_emu::wgmma_op();
    o.n = N, o.bf16 = T::is_bf16, o.a_in_registers = true, o.transpose_b = TransposeB;
    o.desc_b = b, o.accumulate = accumulate;
    attn_emu::wgmma_issue(o, d, a);
}

} /* namespace attn__hw */

#endif
