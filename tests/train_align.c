/* train_align.c - the example of that name: its dates, its gradients, its states, and that it learns. Runs from the
   top of the tree. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200112L /* as the example wants it, which must come after the first include here */
#endif
#include "test.h"
#define ATTN__IMPLEMENTED /* the test program has the implementation already */
#define main train_align_main
#include "../examples/train_align.c"
#undef main
#ifdef _WIN32
#include <process.h>
#define getpid _getpid
#endif

/* ---- the task */
static void test_dates(void) {
    static batch b;
    uint64_t random = test_bits();
    int names = 0, digits = 0;
    for (int i = 0; i < 60; i++) {
        draw_batch(&b, &random, i % 2);
        for (int n = 0; n < BATCH; n++) {
            const char *source = b.source[n], *target = b.target[n];
            int year, month, day;
            CHECKF(sscanf(target, "%4d-%2d-%2d", &year, &month, &day) == 3 && strlen(target) == TARGET, "%s", target);
            CHECKF(year >= 1000 && year <= 2999 && month >= 1 && month <= 12 && day >= 1 && day <= 31, "%s", target);
            CHECKF(is_unseen(year, month, day) == i % 2, "%s belongs to the others", target);
            CHECKF((int)strlen(source) == b.lengths[n] && b.lengths[n] < SOURCE, "%s", source);
            for (int t = 0; t < TARGET; t++) {
                const int first = b.first[n][t], length = b.last[n][t] - first;
                const int is_digit = length == 1 && source[first] == target[t];
                const int is_name = length >= 3 && (t == 5 || t == 6);
                CHECKF(length == 0 || is_digit || is_name, "%s: character %d of %s", source, t, target);
                digits += is_digit;
                names += is_name;
            }
        }
    }
    CHECKF(digits > 5 * 60 * BATCH && names > 60 * BATCH / 2, "%d digits and %d names have places", digits, names);
    CHECK(is_leap(2000) && is_leap(1996) && !is_leap(1900) && !is_leap(1999));
}

static void test_forms(void) {
    static const struct {
        const char *form;
        int year, month, day;
        const char *text;
    } cases[] = {{"W, the dE of M Y", 1994, 5, 3, "Tuesday, the 3rd of May 1994"},
                 {"dE", 2000, 1, 11, "11th"},
                 {"dE", 2000, 1, 22, "22nd"},
                 {"dE", 2000, 1, 31, "31st"},
                 {"W m d, y", 2000, 2, 29, "Tuesday Feb 29, 00"},
                 {"D.N.Y d/n", 1000, 9, 8, "08.09.1000 8/9"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static batch b;
        memset(&b, 0, sizeof b);
        for (const char *f = cases[i].form; *f; f++) add_field(&b, 0, *f, cases[i].year, cases[i].month, cases[i].day);
        CHECKF(strcmp(b.source[0], cases[i].text) == 0, "%s, not %s", b.source[0], cases[i].text);
    }
}

/* ---- the gradients of the whole model */
/* Moves some parameters by +-step along a direction and compares the slope with what the gradient says of it. */
static void check_slope(parameters *p, const batch *b, size_t first, size_t count, const float *direction, double want,
                        const char *name) {
    static parameters moved;
    const double step = 4e-3;
    double loss[2];
    for (int side = 0; side < 2; side++) {
        float *x = (float *)(void *)&moved + first;
        moved = *p;
        for (size_t i = 0; i < count; i++) x[i] += (float)((side ? step : -step) * direction[i]);
        loss[side] = loss_of(&moved, b);
    }
    CHECKF(fabs((loss[1] - loss[0]) / (2 * step) - want) <= 1e-4 + 0.01 * fabs(want), "%s: the slope is %.6f, not %.6f",
           name, (loss[1] - loss[0]) / (2 * step), want);
}

static void test_gradients(void) {
#define TENSORS(X) \
    X(letter) \
    X(w_key) X(b_key) X(place) X(before) X(w_q) X(w_k) X(w_v) X(hidden_bias) X(w_mix) X(b_mix) X(w_out) X(b_out)
#define X(name) {#name, offsetof(parameters, name) / sizeof(float), sizeof(((parameters *)0)->name) / sizeof(float)},
    static const struct {
        const char *name;
        size_t first, count;
    } tensors[] = {TENSORS(X)};
#undef X
    static trainer t;
    static batch b;
    static parameters gradient;
    const float *g = (const float *)(void *)&gradient;
    size_t covered = 0;
    trainer_start(&t, 1);
    for (int i = 0; i < 20; i++) train_step(&t); /* away from the even weights of the start */
    draw_batch(&b, &t.random, 0);
    loss_of(&t.p, &b);
    backward(&t.p, &b, &gradient);
    for (size_t k = 0; k < sizeof tensors / sizeof *tensors; k++) {
        const size_t first = tensors[k].first, count = tensors[k].count;
        float *direction = (float *)test_guarded(count * sizeof(float)), one = 1;
        double length = 0;
        for (size_t i = 0; i < count; i++) length += (double)g[first + i] * g[first + i];
        length = sqrt(length);
        CHECKF(length > 1e-3, "%s has no gradient", tensors[k].name);
        for (size_t i = 0; i < count; i++) direction[i] = (float)(g[first + i] / length);
        check_slope(&t.p, &b, first, count, direction, length, tensors[k].name);
        for (int i = 0; i < 2; i++) { /* the largest of eight, so that it is not lost in rounding */
            size_t at = first;
            for (int draws = 0; draws < 8; draws++) {
                size_t other = first + (size_t)test_int(0, (int)count - 1);
                if (fabsf(g[other]) > fabsf(g[at])) at = other;
            }
            check_slope(&t.p, &b, at, 1, &one, g[at], tensors[k].name);
        }
        covered += count;
    }
    CHECKF(covered == PARAMETERS, "%d parameters of %d", (int)covered, (int)PARAMETERS);
}

/* ---- training */

/* Under sanitizers and with one instruction set forced, which may be emulated, learning would take minutes. */
static int is_slow(void) {
#ifdef TEST_NO_SIGNALS
    return 1;
#else
    return test_isa_count() == 1 && attn_best_isa() != ATTN_ISA_SCALAR;
#endif
}

static void test_learns(void) { /* from a start that is quick to learn */
    static trainer t;
    if (is_slow()) {
        double loss = 0;
        trainer_start(&t, 5);
        while (t.step < 15) loss = train_step(&t);
        CHECKF(loss < 2, "the loss fell to %.4f only", loss);
        test_skip("learns for 15 steps only in a slow build");
        return;
    }
    trainer_start(&t, 5);
    const marks before = examine(&t.p);
    while (t.step < 160) train_step(&t);
    const marks after = examine(&t.p);
    CHECK(after.dates == TESTS * BATCH && after.places == before.places && after.places > 5 * after.dates);
    CHECKF(after.loss <= 0.05 * before.loss, "the loss fell from %.4f to %.4f", before.loss, after.loss);
    CHECKF(after.dates_right * 10 >= after.dates * 8, "%d of %d dates", after.dates_right, after.dates);
    CHECKF(before.places_right * 3 < before.places, "%d of %d places before training", before.places_right,
           before.places);
    CHECKF(after.places_right * 20 >= after.places * 19, "%d of %d places", after.places_right, after.places);
}

static void test_padding(void) { /* an answer does not depend on what else is in the batch */
    static trainer t;
    static batch b;
    trainer_start(&t, 1);
    draw_batch(&b, &t.random, 0);
    translate(&t.p, &b);
    for (int n = 0; n < BATCH; n += 9) {
        const reading r = read_date(&t.p, b.source[n]);
        CHECKF(strcmp(r.answer, b.target[n]) == 0, "%s: %s, in the batch %s", b.source[n], r.answer, b.target[n]);
        for (int i = 0; i < TARGET * SOURCE; i++)
            if (i % SOURCE >= b.lengths[n]) CHECK(r.weights[i / SOURCE][i % SOURCE] == 0);
    }
}

static void test_resumes(void) {
    static trainer whole, first, second;
    FILE *file = tmpfile(), *bad = tmpfile();
    if (!CHECK(file && bad)) return;
    trainer_start(&whole, 3);
    while (whole.step < 7) train_step(&whole);
    trainer_start(&first, 3);
    while (first.step < 4) train_step(&first);
    CHECK(trainer_write(&first, file));
    rewind(file);
    train_step(&whole); /* what another one does in between does not matter */
    CHECK(trainer_read(&second, file) && second.step == 4);
    while (second.step < 8) train_step(&second);
    CHECK(memcmp(&whole, &second, sizeof whole) == 0);
    train_step(&first);
    CHECK(memcmp(&first, &second, sizeof first) != 0);

    CHECK(!trainer_read(&second, NULL) && !trainer_write(&second, NULL));
    first.magic[0] = 'x';
    CHECK(trainer_write(&first, bad));
    rewind(bad);
    CHECK(!trainer_read(&second, bad)); /* of something else */
    rewind(bad);
    CHECK(fwrite(&second, 1, sizeof second - 1, bad) == sizeof second - 1 && fseek(bad, 8, SEEK_SET) == 0);
    CHECK(!trainer_read(&second, bad)); /* too short */
    fclose(file);
    fclose(bad);
}

/* ---- the program */
#define PROGRAM train_align
#include "program.h"

static void test_usage(void) {
    static const char *const bad[][2] = {
        {"--steps", "x"},  {"--steps", ""}, {"--steps", "-1"},
        {"--steps", "5k"}, {"--what", "1"}, {"one date", "more"},
        {"", NULL},        {"--svg", NULL}, {"a date that is longer than forty characters", NULL}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        RUN(bad[i][0], bad[i][1]);
        CHECKF(said.status == 2 && strstr(said.log, "usage: train_align"), "%s: %d", bad[i][0], said.status);
    }
    RUN("--load", "no such file");
    CHECK(said.status == 1 && strstr(said.log, "no such file"));
}

static void test_program(void) { /* three steps teach nothing, and it says so */
    static char svg[1 << 16];
    char picture[64], state[64];
    FILE *f;
    snprintf(picture, sizeof picture, "build/test-train-align-%ld.svg", (long)getpid());
    snprintf(state, sizeof state, "build/test-train-align-%ld.state", (long)getpid());
    RUN("--steps", "3", "--svg", picture, "--save", state, "1 May 1994");
    CHECK(said.status == 1 && strstr(said.log, "the loss did not fall") && strstr(said.log, "of the alignment"));
    CHECK(strstr(said.out, "the same bits") && strstr(said.out, "3 of 3 steps") && strstr(said.out, "steps/s"));
    CHECK(strstr(said.out, "1 _ M a y _ 1 9 9 4") && !strchr(said.out, '\r') && !strchr(said.out, '\033'));
    if (CHECK((f = fopen(picture, "rb")) != NULL)) slurp(f, svg, sizeof svg);
    CHECK(strstr(svg, ">before<") && strstr(svg, ">after<") && strstr(svg, "</svg>"));
    RUN("--load", state, "--steps", "3", "--svg", "no such directory/x.svg");
    CHECK(said.status == 1 && strstr(said.log, "no such directory/x.svg") && strstr(said.out, "after 3 steps"));
    CHECK(!strstr(said.log, "the loss did not fall")); /* nothing was trained */
    remove(picture);
    remove(state);
}

static void test_lost_output(void) {
    static char name[] = "train_align", steps[] = "--steps", none[] = "0";
    char *argv[] = {name, steps, none, NULL};
    FILE *full = fopen("/dev/full", "r+b"), *log = tmpfile();
    if (!full) test_skip("there is no /dev/full");
    if (full && CHECK(log != NULL)) {
        CHECK(train_align(3, argv, full, log) == 1);
        slurp(log, said.log, sizeof said.log);
        CHECKF(strstr(said.log, "the output is lost"), "%s", said.log);
    }
    if (full) fclose(full);
}

const test_case suite_train_align[] = {
    {"train_align.dates", test_dates},
    {"train_align.forms", test_forms},
    {"train_align.gradients", test_gradients},
    {"train_align.learns", test_learns},
    {"train_align.padding", test_padding},
    {"train_align.resumes", test_resumes},
    {"train_align.usage", test_usage},
    {"train_align.program", test_program},
    {"train_align.lost_output", test_lost_output},
    {0, 0},
};
