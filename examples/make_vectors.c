/* cc -O2 make_vectors.c -lm */
/* Word vectors for two languages at once, from sentences and their translations.

       make_vectors SENTENCES A.vec B.vec    writes both files; SENTENCES has lines of two sentences and a tab
       make_vectors                          checks the files in data/ against the sentences there

   A word is described by the pairs of sentences it occurs in, and a pair is the same thing for both
   languages: that is why a word and its translation come out close together. In the space with one axis per
   pair a word has the weight 1/sqrt(words in the pair) on the axes of its pairs, since a short sentence has
   few words that could be its translation. Random signs project this space onto DIM axes; they change cosines
   by about 1/sqrt(DIM) (Achlioptas 2003). Vectors have the length sqrt(DIM). Words are in lower case,
   frequent ones first. */
#include "words.h"
#include <math.h>
#include <stdint.h>

enum { DIM = 100 };

typedef struct {
    char *word;
    long pair;
    double weight;
} use; /* one word in one sentence */
typedef struct {
    use *of;
    long count, room;
} uses;
typedef struct {
    const use *first;
    long count;
} entry; /* one word and all its uses */

static int order_uses(const void *a, const void *b) {
    const use *x = (const use *)a, *y = (const use *)b;
    int order = strcmp(x->word, y->word);
    return order ? order : (x->pair > y->pair) - (x->pair < y->pair);
}

static int order_entries(const void *a, const void *b) {
    const entry *x = (const entry *)a, *y = (const entry *)b;
    return x->count != y->count ? (x->count < y->count) - (x->count > y->count) : order_uses(x->first, y->first);
}

/* +1 or -1 for an axis of the pairs and one of the vectors: a bit of splitmix64 (Steele, Lea, Flood 2014). */
static double random_sign(long pair, int axis) {
    uint64_t z = ((uint64_t)pair * DIM + (uint64_t)axis + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (z ^ (z >> 31)) & 1 ? 1 : -1;
}

static int add_use(uses *u, const char *word, long pair, double weight) {
    if (u->count == u->room) {
        use *grown = (use *)realloc(u->of, (size_t)(2 * u->room + 1024) * sizeof *grown);
        if (!grown) return 0;
        u->of = grown;
        u->room = 2 * u->room + 1024;
    }
    use *added = u->of + u->count;
    if (!(added->word = (char *)malloc(strlen(word) + 1))) return 0;
    words_lower(strcpy(added->word, word));
    added->pair = pair;
    added->weight = weight;
    return u->count++, 1;
}

/* The words of one line; 0 = there is no tab in it, or no memory. */
static int read_pair(char *line, long pair, uses sides[2]) {
    words w[2] = {{0, 0}, {0, 0}};
    char *tab = strchr(line, '\t');
    if (!tab) return 0;
    *tab = 0;
    int ok = words_split(&w[0], line) && words_split(&w[1], tab + 1);
    for (int side = 0; side < 2; side++)
        for (int i = 0; ok && i < w[side].count; i++)
            ok = add_use(&sides[side], w[side].word[i], pair, 1 / sqrt(w[0].count + w[1].count));
    free(w[0].word);
    free(w[1].word);
    return ok;
}

static void write_vector(FILE *f, const entry *e) {
    double v[DIM] = {0}, square = 0;
    for (long i = 0; i < e->count; i++)
        for (int axis = 0; axis < DIM; axis++) v[axis] += e->first[i].weight * random_sign(e->first[i].pair, axis);
    for (int axis = 0; axis < DIM; axis++) square += v[axis] * v[axis];
    fprintf(f, "%s", e->first->word);
    for (int axis = 0; axis < DIM; axis++) fprintf(f, " %.2f", square > 0 ? v[axis] * sqrt(DIM / square) : 0);
    fprintf(f, "\n");
}

/* Writes one file and frees the uses; the number of words, -1 = no memory. */
static long write_vectors(FILE *f, uses *u) {
    long count = 0;
    entry *entries = (entry *)malloc((size_t)(u->count + 1) * sizeof *entries);
    if (u->count) qsort(u->of, (size_t)u->count, sizeof *u->of, order_uses);
    for (long i = 0; entries && i < u->count; i++) {
        if (i == 0 || strcmp(u->of[i].word, u->of[i - 1].word)) {
            entries[count].first = u->of + i;
            entries[count++].count = 0;
        }
        entries[count - 1].count++;
    }
    if (count) qsort(entries, (size_t)count, sizeof *entries, order_entries);
    fprintf(f, "%ld %d\n", count, DIM);
    for (long i = 0; i < count; i++) write_vector(f, entries + i);
    for (long i = 0; i < u->count; i++) free(u->of[i].word);
    free(u->of);
    if (!entries) return -1;
    free(entries);
    return count;
}

/* Reads the sentences, writes the two files and how many words they have. 0 = failed, with a message. */
static int make_vectors(const char *sentences, FILE *out[2], long counts[2]) {
    lines l = {fopen(sentences, "rb"), sentences, 0, 0, 0};
    uses sides[2] = {{0, 0, 0}, {0, 0, 0}};
    long pair = 0;
    int ok = l.file != 0;
    if (!ok) perror(sentences);
    while (ok && lines_next(&l)) {
        if (!l.text[0] || l.text[0] == '#') continue;
        ok = read_pair(l.text, pair++, sides);
        if (!ok) fprintf(stderr, "%s, line %ld: no tab between two sentences, or no memory\n", l.name, l.number);
    }
    for (int side = 0; side < 2; side++) counts[side] = write_vectors(out[side], &sides[side]);
    if (l.file) fclose(l.file);
    free(l.text);
    return ok && counts[0] >= 0 && counts[1] >= 0;
}

/* The same words and, within rounding, the same numbers in two lines? */
static int same_line(const char *a, const char *b) {
    size_t word = strcspn(a, " ");
    if (word != strcspn(b, " ") || strncmp(a, b, word) != 0) return 0;
    for (a += word, b += word; *a && *b;) {
        char *end_a, *end_b;
        double x = strtod(a, &end_a), y = strtod(b, &end_b);
        if (end_a == a || end_b == b || !(fabs(x - y) <= 0.011)) return 0; /* the last digit may be rounded apart */
        a = end_a;
        b = end_b;
    }
    return !*a && !*b;
}

static int same_vectors(FILE *a, FILE *b) {
    lines x = {a, "", 0, 0, 0}, y = {b, "", 0, 0, 0};
    int same = 1;
    while (same && lines_next(&x)) same = lines_next(&y) && same_line(x.text, y.text);
    same = same && !lines_next(&y);
    free(x.text);
    free(y.text);
    return same;
}

static int check_vectors(const char *sentences, const char *const paths[2]) {
    FILE *made[2] = {tmpfile(), tmpfile()}, *shipped[2] = {fopen(paths[0], "rb"), fopen(paths[1], "rb")};
    long counts[2] = {0, 0};
    int ok = made[0] && made[1] && shipped[0] && shipped[1] && make_vectors(sentences, made, counts);
    for (int side = 0; side < 2; side++) {
        if (ok) rewind(made[side]);
        ok = ok && same_vectors(made[side], shipped[side]);
        if (made[side]) fclose(made[side]);
        if (shipped[side]) fclose(shipped[side]);
    }
    if (ok) printf("%s: %ld and %ld words, as made from %s\n", paths[0], counts[0], counts[1], sentences);
    else printf("WRONG: %s or %s is not what %s gives\n", paths[0], paths[1], sentences);
    return ok;
}

int main(int argc, char **argv) {
    if (argc == 1) {
        const char *const paths[2] = {data_path("examples/data/fr.vec"), data_path("examples/data/en.vec")};
        const int same = check_vectors(data_path("examples/data/sentences.tsv"), paths);
        return !same || fflush(stdout) || ferror(stdout); /* an output that is lost fails, too */
    }
    if (argc != 4) {
        fprintf(stderr, "usage: make_vectors [SENTENCES A.vec B.vec]\n");
        return 2;
    }
    FILE *out[2] = {fopen(argv[2], "wb"), fopen(argv[3], "wb")};
    long counts[2] = {0, 0};
    int ok = out[0] && out[1] && make_vectors(argv[1], out, counts);
    for (int side = 0; side < 2; side++) ok = out[side] && !ferror(out[side]) && !fclose(out[side]) && ok;
    if (ok) printf("%ld and %ld words of %d numbers\n", counts[0], counts[1], DIM);
    else fprintf(stderr, "make_vectors: could not write %s and %s\n", argv[2], argv[3]);
    return !ok || fflush(stdout) || ferror(stdout);
}
