/* align.c - the examples align and make_vectors with their data. Runs from the top of the tree. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200112L /* as examples/align.c wants it, which must come after the first include here */
#endif
#include "page.h"

#include "test.h"
#define ATTN__IMPLEMENTED /* the test program has the implementation already */
#define main align_main
#include "../examples/align.c"
#undef main
#define main make_vectors_main
#include "../examples/make_vectors.c"
#undef main
#ifdef _WIN32
#include <process.h>
#define getpid _getpid
#endif

static const char french[] = "examples/data/fr.vec", english[] = "examples/data/en.vec";
static const char training[] = "examples/data/sentences.tsv", held_out[] = "examples/data/heldout.tsv";

/* ---- running the program and looking at what it says */
#define PROGRAM align
#include "program.h"

static void says(const char *text) { CHECKF(strstr(said.out, text), "the output lacks \"%s\"", text); }
static void complains(int status, const char *text) {
    CHECKF(said.status == status, "exit status %d, want %d", said.status, status);
    CHECKF(strstr(said.log, text), "the message \"%s\" lacks \"%s\"", said.log, text);
}

/* A file of one's own in build/, gone at the end of the test. */
static const char *scratch(int number, const char *text) {
    static char names[2][64];
    FILE *f;
    snprintf(names[number], sizeof names[number], "build/test-align-%ld-%d", (long)getpid(), number);
    if (!CHECK((f = fopen(names[number], "wb")) != NULL)) return names[number];
    fputs(text, f);
    fclose(f);
    return names[number];
}

/* ---- sentences, words, vectors */
static int open_sentence(sentence *s, const char *text, const char *path) {
    memset(s, 0, sizeof *s);
    s->text = text;
    s->path = path;
    return CHECKF(read_sentence(s, 0, stdout), "%s", path);
}

static void test_words(void) {
    static const char text[] =
        "  L'accord d\342\200\231\303\211tat,\t\302\253\302\240Z\303\251ro 3.5 a.5 \302\273 (peut-\303\252tre).";
    static const char *const want[] = {
        "L", "accord", "d", "\303\211tat", ",", "Z\303\251ro", "3.5", "a", ".", "5", "(", "peut-\303\252tre", ")", "."};
    const int count = (int)(sizeof want / sizeof want[0]);
    words w;
    CHECK(words_split(&w, text));
    CHECKF(w.count == count, "%d words, want %d", w.count, count);
    for (int i = 0; i < w.count && i < count; i++) CHECKF(is(w.word[i], want[i]), "word %d is %s", i, w.word[i]);
    free(w.word);
    CHECK(words_split(&w, " \n") && w.count == 0);
    free(w.word);
}

static void test_lower_case(void) {
    static const char *const pairs[][2] = {
        {"European 1992", "european 1992"},
        {"\303\200\303\211\303\226\303\227\303\236\303\237",
         "\303\240\303\251\303\266\303\227\303\276\303\237"},                /* Latin-1 */
        {"\304\200\304\265\304\271\305\212\305\222\305\270\305\271\305\275", /* Latin Extended-A */
         "\304\201\304\265\304\272\305\213\305\223\303\277\305\272\305\276"},
        {"\316\221\316\251\316\261", "\316\261\317\211\316\261"},                 /* Greek */
        {"\320\201\320\220\320\257\321\217", "\321\221\320\260\321\217\321\217"}, /* Cyrillic */
        {"\377\303", "\377\303"},                                                 /* no UTF-8 */
        {"\342\202\254A", "\342\202\254a"},                                       /* three bytes */
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        char text[64];
        words_lower(strcpy(text, pairs[i][0]));
        CHECKF(is(text, pairs[i][1]), "%s becomes %s, want %s", pairs[i][0], text, pairs[i][1]);
    }
}

static void test_lookup(void) {
    /* written and lower case in both orders, one word twice, odd bytes, no word at all, foreign line ends */
    const char *path = scratch(0, "8 2\r\nparis 3 4 \r\nParis 0 -2 \r\nBonn 5 0\nbonn 0 5\n\377\302\240 1 1\n 7 7\n"
                                  "nul 0 0\nparis 9 9");
    static const float want[][2] = {{0, -1.41421356f},       {0.8485281f, 1.1313708f}, {0, 1.41421356f}, {0, 0}, {0, 0},
                                    {0.8485281f, 1.1313708f}};
    static const int found[] = {2, 3, 3, 3, 0, 1};
    sentence s;
    if (open_sentence(&s, "Paris paris bonn nul absent PARIS", path)) {
        CHECK(s.read == 8 && s.dim == 2);
        for (int w = 0; w < s.words.count; w++) {
            CHECKF(s.found[w] == found[w], "%s: found %d", s.words.word[w], s.found[w]);
            for (int i = 0; i < 2; i++) CHECK_CLOSE(s.vectors[2 * w + i], want[w][i], 1e-6);
        }
    }
    free_sentence(&s);
    CHECK(RUN("Paris absent", "paris", path, path) == 0);
    says("queries: unknown word: absent");
    says("absent\342\206\222(unknown)");
    remove(path);
}

/* ---- attention: both axes against the formula in double */
static double exact_weight(const sentence *q, const sentence *k, int columns, double scale, int i, int j) {
    double sum = 0, self = 0;
    for (int other = 0; other < (columns ? q : k)->words.count; other++) {
        int row = columns ? other : i, column = columns ? j : other;
        double score = 0;
        for (long c = 0; c < q->dim; c++)
            score += (double)q->vectors[row * q->dim + c] * k->vectors[column * k->dim + c];
        sum += exp(scale * score);
        if (row == i && column == j) self = exp(scale * score);
    }
    return self / sum;
}

static void test_axes(void) {
    enum { N = 5, M = 7, D = 3 };
    sentence q, k;
    memset(&q, 0, sizeof q);
    memset(&k, 0, sizeof k);
    q.words.count = N;
    k.words.count = M;
    q.dim = k.dim = D;
    q.vectors = test_floats(N * D);
    k.vectors = test_floats(M * D);
    for (int columns = 0; columns < 2; columns++) {
        options o = {.columns = columns, .sharpness = 1.5f};
        float *weights = test_floats(N * M), *out = test_floats(N * D);
        CHECK_STATUS(attention_qkv(&q, &k, &o, weights, out, NULL), ATTN_OK);
        for (int i = 0; i < N; i++) {
            double want[D] = {0};
            for (int j = 0; j < M; j++) {
                double w = exact_weight(&q, &k, columns, 1.5 / sqrt(D), i, j);
                CHECK_CLOSE(weights[i * M + j], w, 1e-5);
                for (int c = 0; c < D; c++) want[c] += w * k.vectors[j * D + c];
            }
            for (int c = 0; c < D; c++) CHECK_CLOSE(out[i * D + c], want[c], 1e-4);
        }
    }
}

/* ---- the program */
static void test_demo(void) {
    static const char *const pairs[][2] = {{"accord", "agreement"},
                                           {"sur", "on"},
                                           {"zone", "Area"},
                                           {"\303\251conomique", "Economic"},
                                           {"europ\303\251enne", "European"},
                                           {"sign\303\251", "signed"},
                                           {"en", "in"},
                                           {"ao\303\273t", "August"},
                                           {"1992", "1992"}};
    char line[64];
    CHECK(RUN("--softmax", "rows") == 0);
    says("fr.vec, vocabulary size 1");
    says("embedding size 100");
    says("attention_qkv(q, k, v): shape (14, 100), first numbers");
    for (size_t i = 0; i < 9; i++) {
        snprintf(line, sizeof line, " %s\342\206\222%s\n", pairs[i][0], pairs[i][1]);
        says(line);
    }
    CHECK(RUN("--softmax", "columns") == 0);
    for (size_t i = 0; i < 9; i++) {
        snprintf(line, sizeof line, " %s\342\206\222%s\n", pairs[i][1], pairs[i][0]);
        says(line);
    }
}

static void test_pictures(void) {
    const char *path = scratch(0, ""), *const maps[] = {"reds", "grey"};
    static char svg[2][1 << 18];
    for (int i = 0; i < 2; i++) {
        FILE *f;
        CHECK(RUN("Un chien & un chat", "A dog < a cat", "--svg", path, "--map", maps[i]) == 0);
        CHECK(!strchr(said.out, '\033'));
        if (CHECK((f = fopen(path, "rb")) != NULL)) slurp(f, svg[i], sizeof svg[i]);
        CHECK(strncmp(svg[i], "<svg", 4) == 0 || strncmp(svg[i], "<?xml", 5) == 0);
        CHECK(strstr(svg[i], ">chien<") && strstr(svg[i], ">dog<") && strstr(svg[i], "</svg>"));
    }
    CHECK(strcmp(svg[0], svg[1]) != 0);
    CHECK(RUN("Un chien & un chat", "A dog < a cat", "--lines", path) == 0);
    FILE *f = fopen(path, "rb");
    if (CHECK(f != NULL)) slurp(f, svg[0], sizeof svg[0]);
    CHECK(strncmp(svg[0], "<svg", 4) == 0 && strstr(svg[0], "<line ") && strstr(svg[0], ">&#60;</text>"));
    CHECK(RUN("Un chien & un chat", "A dog < a cat", "--html", path) == 0);
    f = fopen(path, "rb");
    if (CHECK(f != NULL)) slurp(f, svg[0], sizeof svg[0]);
    CHECK(strncmp(svg[0], "<!DOCTYPE html>", 15) == 0 && strstr(svg[0], "<li>chien<li>") &&
          strstr(svg[0], "<li>dog<li>"));
    CHECK(RUN("chien", "dog", "--terminal", "true") == 0 && strstr(said.out, "48;2;"));
    CHECK(RUN("chien", "dog", "--terminal", "256") == 0 && strstr(said.out, "48;5;"));
    RUN("chien", "dog", "--svg", "no such directory/x.svg");
    complains(1, "no such directory/x.svg");
    RUN("chien", "dog", "--html", "no such directory/x.html");
    complains(1, "no such directory/x.html");
    remove(path);
}

static void test_errors(void) {
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"", "line 1: not the number of words"},
        {"chat 1 2\n", "line 1: not the number of words"},
        {"0 2\n", "line 1: not the number of words"},
        {"1 0\nchat\n", "line 1: not the number of words"},
        {"1 -2\nchat 1 2\n", "line 1: not the number of words"},
        {"1 2 3\nchat 1 2\n", "line 1: not the number of words"},
        {"3 2\nchat 1 2\nchien 1 2\n", "line 4: the end, after 2 of 3 words"},
        {"2 2\nchat 1 2\nchien 1\n", "line 3: 1 numbers, not 2"},
        {"2 2\nchat 1 2\nchien\n", "line 3: 0 numbers, not 2"},
        {"2 2\nchat 1 2 3\nchien 1 2\n", "line 2: 3 numbers, not 2"},
        {"2 2\nchien 1 2\nautre 1 2 3\n", "line 3: 3 numbers, not 2"},
        {"1 2\nchat 1 x\n", "line 2: not a number: x"},
        {"1 2\nchat 1 2x\n", "line 2: not a number: 2x"},
        {"1 2\nchat 1 nan\n", "line 2: not a number: nan"},
        {"1 2\nchat inf 1\n", "line 2: not a number: inf"},
        {"1 2\nchat 1e39 1\n", "line 2: not a number: 1e39"},
        {"1 2\nautre 1 x\n", "line 2: not a number: x"},
        {"1 2\nchat 1 2\nchien 1 2\n", "line 3: more than 1 words"},
    };
    const char *path = NULL, *other;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        path = scratch(0, bad[i].text);
        RUN("chat", "chat", path, french);
        complains(1, bad[i].message);
        complains(1, path);
        RUN("chat", "chat", french, path);
        complains(1, bad[i].message);
    }
    path = scratch(0, "9 2\nchat 1 2\nbroken\n"); /* what the limit leaves out is not looked at */
    CHECK(RUN("chat", "chat", path, path, "--max-words", "1") == 0);
    says("vocabulary size 1, embedding size 2");
    other = scratch(1, "1 3\nchat 1 2 3\n");
    RUN("chat", "chat", path, other, "--max-words", "1");
    complains(1, "3");
    remove(other);
    remove(path);
    RUN("chat", "cat", "no-such-file.vec", english);
    complains(1, "no-such-file.vec");
    RUN("", "cat");
    complains(1, "without words");
}

static void test_usage(void) {
    static const char *const bad[][2] = {{"--softmax", "diagonal"},
                                         {"--map", "blue"},
                                         {"--terminal", "vt52"},
                                         {"--sharpness", "x"},
                                         {"--sharpness", "-1"},
                                         {"--sharpness", ""},
                                         {"--sharpness", "nan"},
                                         {"--max-words", "0"},
                                         {"--max-words", "1k"},
                                         {"--sharpness", "1e39"},
                                         {"--max-words", "99999999999999999999"},
                                         {"--max-words", ""},
                                         {"--what", "1"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        RUN(bad[i][0], bad[i][1]);
        complains(2, "usage: align");
    }
    RUN("--svg");
    complains(2, "usage");
    RUN("one sentence");
    complains(2, "usage");
    RUN("chat", "cat", french);
    complains(2, "usage");
    RUN("chat", "cat", french, english, "more");
    complains(2, "usage");
    RUN("chat", "cat", french, english, "more", "still more");
    complains(2, "usage");
}

static void test_lost_output(void) {
    static char name[] = "align";
    char *argv[] = {name, NULL};
    FILE *full = fopen("/dev/full", "r+b"), *log = tmpfile();
    if (!full) test_skip("there is no /dev/full");
    if (full && CHECK(log != NULL)) {
        said.status = align(1, argv, full, log);
        slurp(log, said.log, sizeof said.log);
        complains(1, "cannot be written");
    }
    if (!full) return;
    fclose(full);
    RUN("chat", "cat", "--svg", "/dev/full");
    complains(1, "/dev/full cannot be written");
}

/* ---- the data */

/* A sentence as its words in lower case, each with a space after it, between two line ends. */
static void append_normal(char *to, size_t size, const char *text) {
    size_t used = strlen(to);
    words w = {0, NULL};
    CHECK(words_split(&w, text));
    used += (size_t)snprintf(to + used, size - used, "\n");
    for (int i = 0; i < w.count && used < size; i++) {
        words_lower(w.word[i]);
        used += (size_t)snprintf(to + used, size - used, "%s ", w.word[i]);
    }
    CHECKF(used + 1 < size, "a buffer is too small");
    snprintf(to + strlen(to), size - strlen(to), "\n");
    free(w.word);
}

/* The fields of the next line that has some; NULL at the end. */
static char *next_fields(lines *l, char *fields[3], int count) {
    do {
        if (!lines_next(l)) return NULL;
    } while (!l->text[0] || l->text[0] == '#');
    fields[0] = l->text;
    for (int i = 1; i < count; i++) {
        fields[i] = strchr(fields[i - 1], '\t');
        if (!CHECKF(fields[i] != NULL, "%s, line %ld: %d columns, want %d", l->name, l->number, i, count)) return NULL;
        *fields[i]++ = 0;
    }
    return l->text;
}

/* Is the word at the best place of its row one of the alternatives "a/b"? */
static int is_right(const sentence *q, const sentence *k, const float *weights, const char *word, const char *wanted) {
    const int m = k->words.count;
    for (int i = 0; i < q->words.count; i++) {
        if (!is(q->words.word[i], word)) continue;
        int best = 0;
        for (int j = 1; j < m; j++)
            if (weights[i * m + j] > weights[i * m + best]) best = j;
        for (const char *p = wanted; *p; p += strcspn(p, "/"), p += *p == '/') {
            const char *found = k->words.word[best];
            if (strlen(found) == strcspn(p, "/") && strncmp(p, found, strlen(found)) == 0) return 1;
        }
        if (test_verbose()) printf("    %s: %s, not %s\n", word, k->words.word[best], wanted);
        return 0;
    }
    return CHECKF(0, "%s is not in its sentence", word);
}

static void test_held_out(void) {
    lines l = {fopen(held_out, "rb"), held_out, NULL, 0, 0};
    char *fields[3];
    int pairs = 0, total = 0, right = 0;
    if (!CHECKF(l.file != NULL, "%s", held_out)) return;
    for (; next_fields(&l, fields, 3); pairs++) {
        sentence q, k;
        int ok = open_sentence(&q, fields[0], french) & open_sentence(&k, fields[1], english);
        float *weights = test_floats((size_t)(q.words.count * k.words.count));
        float *out = test_floats((size_t)(q.words.count * q.dim));
        const options o = {.sharpness = 1};
        if (ok && CHECK_STATUS(attention_qkv(&q, &k, &o, weights, out, NULL), ATTN_OK))
            for (char *word = strtok(fields[2], " "); word; word = strtok(NULL, " "), total++) {
                char *wanted = strchr(word, '=');
                if (!CHECKF(wanted != NULL, "%s, line %ld: %s", held_out, l.number, word)) continue;
                *wanted++ = 0;
                right += is_right(&q, &k, weights, word, wanted);
            }
        free_sentence(&q);
        free_sentence(&k);
    }
    if (test_verbose()) printf("    %d of %d content words in %d pairs of sentences\n", right, total, pairs);
    CHECKF(pairs >= 24 && total >= 4 * pairs, "%d content words in %d pairs of sentences", total, pairs);
    CHECKF(10 * right >= 8 * total, "only %d of %d content words are right", right, total);
    fclose(l.file);
    free(l.text);
}

static void check_new(char known[2][1 << 18], const char *const pair[2], int is_new) {
    char asked[1 << 10];
    for (int side = 0; side < 2; side++) {
        asked[0] = 0;
        append_normal(asked, sizeof asked, pair[side]);
        CHECKF((strstr(known[side], asked) == NULL) == is_new, "%s the training sentences:%s",
               is_new ? "among" : "not among", asked);
    }
}

/* What is asked about has not been learnt by heart. */
static void test_not_among_training(void) {
    static const char *const demo[2] = {
        "L accord sur la zone \303\251conomique europ\303\251enne a \303\251t\303\251 sign\303\251 "
        "en ao\303\273t 1992 .",
        "The agreement on the European Economic Area was signed in August 1992 ."};
    static const char *const learnt[2] = {"La reine est n\303\251e en 1926 .", "The queen was born in 1926 ."};
    static char known[2][1 << 18];
    lines train = {fopen(training, "rb"), training, NULL, 0, 0}, held = {fopen(held_out, "rb"), held_out, NULL, 0, 0};
    char *fields[3];
    int count = 0;
    if (!CHECK(train.file && held.file)) return;
    for (; next_fields(&train, fields, 2); count++)
        for (int side = 0; side < 2; side++) append_normal(known[side], sizeof known[side], fields[side]);
    CHECKF(count >= 900, "%d sentences", count);
    check_new(known, learnt, 0);
    check_new(known, demo, 1);
    while (next_fields(&held, fields, 3)) check_new(known, (const char *const *)fields, 1);
    fclose(train.file);
    fclose(held.file);
    free(train.text);
    free(held.text);
}

static void test_vectors(void) {
    FILE *made[2] = {tmpfile(), tmpfile()}, *shipped[2] = {fopen(french, "rb"), fopen(english, "rb")};
    long counts[2] = {0, 0};
    if (!CHECK(made[0] && made[1] && shipped[0] && shipped[1])) return;
    CHECK(make_vectors(training, made, counts));
    for (int side = 0; side < 2; side++) {
        CHECKF(counts[side] >= 1000, "%ld words", counts[side]);
        rewind(made[side]);
        CHECK(same_vectors(made[side], shipped[side]));
        fclose(made[side]);
        fclose(shipped[side]);
    }
}

static void test_vectors_differ(void) {
    static const char *const rows[] = {"chat 1.00 -2.00", "chat 1.01 -2.00",   "chat 1.03 -2.00", "chats 1.00 -2.00",
                                       "chat 1.00",       "chat 1.00 -2.00 3", "chat 1.00 nan",   "chat 1.00 x"};
    for (int i = 0; i < 8; i++) {
        CHECKF(same_line(rows[0], rows[i]) == (i < 2), "%s", rows[i]);
        CHECKF(same_line(rows[i], rows[0]) == (i < 2), "%s", rows[i]);
    }
}

const test_case suite_align[] = {
    {"align.words", test_words},
    {"align.lower_case", test_lower_case},
    {"align.lookup", test_lookup},
    {"align.axes", test_axes},
    {"align.demo", test_demo},
    {"align.pictures", test_pictures},
    {"align.errors", test_errors},
    {"align.usage", test_usage},
    {"align.lost_output", test_lost_output},
    {"align.held_out", test_held_out},
    {"align.not_among_training", test_not_among_training},
    {"align.vectors", test_vectors},
    {"align.vectors_differ", test_vectors_differ},
    {0, 0},
};
