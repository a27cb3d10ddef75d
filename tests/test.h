/* test.h - the small harness of this project's tests. Suites include this file and know attn.h by its API
   only.

   A suite is a file tests/NAME.c that ends with
       const test_case suite_NAME[] = { {"NAME.what", function}, ..., {0, 0} };
   and is listed in SUITES of tests/main.c. Every test starts with the random state of (seed, name), so that
   it does the same alone as among the others; what it took from test_guarded and the like is freed when it
   returns. */
#ifndef ATTN_TEST_H
#define ATTN_TEST_H

#include "../attn.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *name;
    void (*run)(void);
} test_case;

/* ---- checks. All are NaN-safe, none stops the test; each returns (as a number) whether it held. */
#if defined(__GNUC__) && !defined(_WIN32)
__attribute__((format(printf, 4, 5)))
#endif
int test_check(int ok, const char *file, int line, const char *format, ...);
int test_close(double got, double want, double tolerance, const char *file, int line, const char *text);
int test_status(attn_status got, attn_status want, const char *file, int line, const char *text);

#define CHECK(cond) test_check((cond) != 0, __FILE__, __LINE__, "%s", #cond)
#define CHECKF(cond, ...) test_check((cond) != 0, __FILE__, __LINE__, __VA_ARGS__)
/* |got - want| <= tol; NaN equals NaN, an infinity equals itself */
#define CHECK_CLOSE(got, want, tol) test_close((got), (want), (tol), __FILE__, __LINE__, #got)
#define CHECK_STATUS(call, want) test_status((call), (want), __FILE__, __LINE__, #call)
int test_quiet(void);            /* enough failures of this test were printed at length */
void test_skip(const char *why); /* this test did not look at everything; counted and printed */

/* ---- what a suite did: the checks above, and its calls of the functions below by their names (not through pointers;
   a picture goes to a writer). The program prints both sums, tests/run.sh holds them against tests/counts.txt. */
void test_count_call(void); /* on any thread */
#define TEST_CALL(call) (test_count_call(), call)
#define attn_forward(...) TEST_CALL(attn_forward(__VA_ARGS__))
#define attn_workspace_size(...) TEST_CALL(attn_workspace_size(__VA_ARGS__))
#define attn_plan_forward(...) TEST_CALL(attn_plan_forward(__VA_ARGS__))
#define attn_task(...) TEST_CALL(attn_task(__VA_ARGS__))
#define attn_explain(...) TEST_CALL(attn_explain(__VA_ARGS__))
#define attn_backward(...) TEST_CALL(attn_backward(__VA_ARGS__))
#define attn_backward_workspace_size(...) TEST_CALL(attn_backward_workspace_size(__VA_ARGS__))
#define attn_plan_backward(...) TEST_CALL(attn_plan_backward(__VA_ARGS__))
#define attn_explain_backward(...) TEST_CALL(attn_explain_backward(__VA_ARGS__))
#define attn_key_sums(...) TEST_CALL(attn_key_sums(__VA_ARGS__))
#define attn_key_sums_workspace_size(...) TEST_CALL(attn_key_sums_workspace_size(__VA_ARGS__))
#define attn_softmax(...) TEST_CALL(attn_softmax(__VA_ARGS__))
#define attn_softmax_workspace_size(...) TEST_CALL(attn_softmax_workspace_size(__VA_ARGS__))
#define attn_softmax_backward(...) TEST_CALL(attn_softmax_backward(__VA_ARGS__))
#define attn_softmax_backward_workspace_size(...) TEST_CALL(attn_softmax_backward_workspace_size(__VA_ARGS__))
#define attn_bmm(...) TEST_CALL(attn_bmm(__VA_ARGS__))
#define attn_bmm_workspace_size(...) TEST_CALL(attn_bmm_workspace_size(__VA_ARGS__))
#define attn_bmm_backward(...) TEST_CALL(attn_bmm_backward(__VA_ARGS__))
#define attn_bmm_backward_workspace_size(...) TEST_CALL(attn_bmm_backward_workspace_size(__VA_ARGS__))
#define attn_mha(...) TEST_CALL(attn_mha(__VA_ARGS__))
#define attn_mha_workspace_size(...) TEST_CALL(attn_mha_workspace_size(__VA_ARGS__))
#define attn_mha_saved_size(...) TEST_CALL(attn_mha_saved_size(__VA_ARGS__))
#define attn_mha_backward(...) TEST_CALL(attn_mha_backward(__VA_ARGS__))
#define attn_mha_backward_workspace_size(...) TEST_CALL(attn_mha_backward_workspace_size(__VA_ARGS__))
#define attn_scores(...) TEST_CALL(attn_scores(__VA_ARGS__))
#define attn_mask(...) TEST_CALL(attn_mask(__VA_ARGS__))
#define attn_dropout_mask(...) TEST_CALL(attn_dropout_mask(__VA_ARGS__))
#define attn_merge(...) TEST_CALL(attn_merge(__VA_ARGS__))
#define attn_merge_with(...) TEST_CALL(attn_merge_with(__VA_ARGS__))
#define attn_elementary(...) TEST_CALL(attn_elementary(__VA_ARGS__))
#define attn_convert(...) TEST_CALL(attn_convert(__VA_ARGS__))
#define attn_convert_with(...) TEST_CALL(attn_convert_with(__VA_ARGS__))
#define attn_quantize(...) TEST_CALL(attn_quantize(__VA_ARGS__))
#define attn_quantize_with(...) TEST_CALL(attn_quantize_with(__VA_ARGS__))
#define attn_unpack_q8_0(...) TEST_CALL(attn_unpack_q8_0(__VA_ARGS__))
#define attn_lengths_of(...) TEST_CALL(attn_lengths_of(__VA_ARGS__))
#define attn_append(...) TEST_CALL(attn_append(__VA_ARGS__))
#define attn_rope(...) TEST_CALL(attn_rope(__VA_ARGS__))
#define attn_rope_with(...) TEST_CALL(attn_rope_with(__VA_ARGS__))
#define attn_rope_table(...) TEST_CALL(attn_rope_table(__VA_ARGS__))
#define attn_alibi_slopes(...) TEST_CALL(attn_alibi_slopes(__VA_ARGS__))
#define attn_buffer_writer(...) TEST_CALL(attn_buffer_writer(__VA_ARGS__))
#define attn_heatmap_ansi(...) TEST_CALL(attn_heatmap_ansi(__VA_ARGS__))
#define attn_heatmap_svg(...) TEST_CALL(attn_heatmap_svg(__VA_ARGS__))
#define attn_heatmap_ppm(...) TEST_CALL(attn_heatmap_ppm(__VA_ARGS__))
#define attn_heatmap_html(...) TEST_CALL(attn_heatmap_html(__VA_ARGS__))
#define attn_heatmap_lines_svg(...) TEST_CALL(attn_heatmap_lines_svg(__VA_ARGS__))

/* ---- options of the program */
int test_verbose(void);
int test_with_amx(void);            /* --amx: it was asked for, and is there */
unsigned long long test_seed(void); /* --seed */
int test_isa_count(void);           /* instruction sets of this build and CPU (only --isa when given) */
attn_isa test_isa(int i);

/* ---- the deterministic generator */
void test_rand_seed(uint64_t seed);
uint64_t test_bits(void);
double test_uniform(void);    /* [0,1) */
double test_normal(void);     /* mean 0, variance 1 */
int test_int(int lo, int hi); /* lo..hi, both included */

/* ---- memory between unmapped pages. Bytes are 0xFF (floats: NaN); what a page has left beside the block is
   checked when it is freed, so that a write there fails the test. */
void *test_guarded(size_t bytes);     /* ends where the upper guard page begins */
void *test_guarded_low(size_t bytes); /* begins where the lower guard page ends */
void *test_guarded_span(size_t before, size_t bytes, size_t after, int low); /* at least so many unmapped bytes */
void test_read_only(void *block);              /* from now on a write to this block is a fault */
void test_no_access(void *from, size_t bytes); /* part of a block: any access to its whole pages is one */
float *test_floats(size_t n);                  /* guarded, normal numbers */
void test_release(void);                       /* free all blocks now: between the cases of a long test */

#endif
