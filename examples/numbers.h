/* numbers.h - a number of a command line. Each function returns whether it took the whole text and found it in range;
   if not, it says so on `log` (NULL: nowhere), with the names of the program and of the option. */
#ifndef NUMBERS_H
#define NUMBERS_H
#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* A text that a number begins, as strtoll and strtof found it: it ends with the number, and they met no limit. */
static inline int number_is_whole(const char *text, const char *end) {
    return end != text && *end == 0 && !isspace((unsigned char)*text) && errno == 0;
}

static inline int take_whole(FILE *log, const char *program, const char *option, const char *text, int64_t least,
                             int64_t most, int64_t *number) {
    char *end;
    errno = 0;
    const long long x = strtoll(text, &end, 10);
    if (number_is_whole(text, end) && x >= least && x <= most) return *number = x, 1;
    if (log)
        fprintf(log, "%s: %s: %s is not a whole number from %lld to %lld\n", program, option, text, (long long)least,
                (long long)most);
    return 0;
}

/* All 64 bits. strtoull would take -1 for the largest of them. */
static inline int take_seed(FILE *log, const char *program, const char *option, const char *text, uint64_t *number) {
    char *end;
    errno = 0;
    const unsigned long long x = strtoull(text, &end, 10);
    if (number_is_whole(text, end) && *text != '-') return *number = x, 1;
    if (log)
        fprintf(log, "%s: %s: %s is not a whole number from 0 to %llu\n", program, option, text,
                (unsigned long long)UINT64_MAX);
    return 0;
}

/* most FLT_MAX and least -FLT_MAX: all that a float holds. One so small that it would count as 0, or nearly, is not. */
static inline int take_real(FILE *log, const char *program, const char *option, const char *text, float least,
                            float most, float *number) {
    char *end;
    errno = 0;
    const float x = strtof(text, &end);
    if (number_is_whole(text, end) && isfinite(x) && x >= least && x <= most) return *number = x, 1;
    if (!log) return 0;
    fprintf(log, "%s: %s: %s is not a number ", program, option, text);
    if (most < FLT_MAX) fprintf(log, "from %g to %g\n", (double)least, (double)most);
    else fprintf(log, least > 0 ? "above 0 that a float holds\n" : "that a float holds\n");
    return 0;
}
#endif
