/* fake.h - the emulated device as the tests see it (plain C). */
#ifndef ATTN_FAKE_H
#define ATTN_FAKE_H

#include <stddef.h>

/* Where memory lies: that of the table, else `elsewhere` (0 unregistered, 1 pinned on the host, 2 a device,
   3 managed; plus 16 times that device's number, which may be negative), before a test says otherwise the environment's
   FAKE_ELSEWHERE, or 0. */
void fake_everything(int type); /* forgets the table */
void fake_range(const void *data, size_t bytes, int type);
int fake_type_of(const void *data);

void *fake_allocate(size_t bytes, void *stream); /* NULL when told to fail */
void fake_release(void *block, void *stream);

/* What happened since the last fake_forget. */
typedef struct fake_counts {
    long allocations, releases, launches, blocks;
    size_t shared; /* the most bytes of shared memory that a block had */
    void *stream;  /* of the last launch or allocation */
    int device;    /* that was current at the last allocation or release */
    /* asked for (in the emulator alone): where data lie, numbers of the device, tensor maps, the driver's function that
       makes these, more than 48 KB of shared memory for a kernel; and what TMA moved */
    long places, facts, maps, drivers, allowances, loads;
    long calls;  /* of the runtime, whichever, with launches and allocations; but no maps */
    int refused; /* numbers of devices to make current that are none */
} fake_counts;
void *fake_stream(void); /* one other than the default stream */
void fake_forget(void);
fake_counts fake_counted(void);
/* As cudaDeviceReset: no kernel has been allowed more than 48 KB any more. */
void fake_reset_device(void);
/* Of the kernels that have run in this program, how many were not loaded since the last fake_forget_loaded (in the
   emulator alone); *all: how many have run. */
void fake_forget_loaded(void);
int fake_not_loaded(int *all);
void fake_fail_allocations(int fail);
void fake_fail_queries(int error); /* what the runtime says when it is asked where memory lies; 0: it answers */
int fake_last_error(void);         /* what the runtime keeps until it is asked, as here */
int fake_device(void);             /* the current one; -1 where there is but one to test on */

/* Which device there is, 75 to 120, with how many multiprocessors, and whether its driver has TMA: the stages look at
   it. What was found of the one before is forgotten. In the emulator device FAKE_OLD_DEVICE is an older one. */
enum { FAKE_OLD_DEVICE = 6 };
void fake_set_arch(int arch);
int fake_arch(void);
void fake_set_compiled(int newest); /* of its instructions, the newest that kernels were compiled with: 90 (sm_90a), 80,
                                       75; 0: with none that run there */
int fake_compiled(void);
void fake_set_processors(int processors); /* 0: as many as there are */
int fake_processors(void);
void fake_set_tma(int has_tma);
int fake_simple(void); /* stage 1 alone? The environment's FAKE_SIMPLE */

/* The emulator's timings (see emu.h): how many there are, and which one kernels run under. */
int fake_timings(void);
void fake_timing(int index, unsigned long long seed);
const char *fake_timing_name(void);
void fake_together(int blocks); /* so many of a launch are alive at once; 0: as the emulator likes */
const char *fake_failure(void); /* of the last launch; "" when it was fine */
int fake_summary(void);         /* prints what ran in all; 0: something was wrong with it */

void *fake_share(size_t bytes); /* memory that kernels and tests use */
void fake_unshare(void *block);

#endif
