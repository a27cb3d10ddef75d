/* measure.c - what tests/measure.sh measures of a source file, and the time that compiling takes. Stands alone. POSIX.
       measure text FILE                       a line per number: "NUMBER NAME"
       measure time PAIRS DIR_A DIR_B COMMAND  runs COMMAND in both directories in turn: user seconds, medians, ratio

   Bytes of comments   with their delimiters and the line breaks between these
   Lines of comments   lines that a part of a comment stands on
   Tokens              what is left without comments and line splices, in preprocessing directives too: an identifier or
                       a keyword, a number, a string, a character, a punctuator (the longest that fits) is one each
   Functions           a brace outside of every function (extern "C" aside) after a closing parenthesis begins one; its
                       lines are those from the first token of its head to its closing brace. What a #define makes is
                       not seen as a function: the lines of the longest #define stand for it
   Levels              of braces around statements inside the braces of a function, these not counted; the braces of
                       initialisers and types do not count either */
#define _DEFAULT_SOURCE
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_TOKENS = 1 << 20, MOST_DEPTH = 200, MOST_PAIRS = 99, MOST_FUNCTIONS = 1 << 14, LONG = 60, WIDE = 9 };

static void stop(const char *what) {
    fprintf(stderr, "measure: %s\n", what);
    exit(1);
}

/* ---- the text, without line splices: each character with its place in the file */
static struct {
    char *characters;
    size_t *place;
    int *line;
    size_t size, bytes;
    int lines, blank; /* blank: nothing but white space */
} text;

static char *read_file(const char *name, size_t *size) {
    FILE *f = fopen(name, "rb");
    char *all;
    long n = 0;
    if (!f || fseek(f, 0, SEEK_END) || (n = ftell(f)) < 0 || fseek(f, 0, SEEK_SET)) stop("cannot read the file");
    all = (char *)malloc((size_t)n + 1);
    if (!all || fread(all, 1, (size_t)n, f) != (size_t)n) stop("cannot read the file");
    fclose(f), all[n] = 0, *size = (size_t)n;
    return all;
}
static void read_text(const char *name) {
    char *all = read_file(name, &text.bytes);
    text.characters = (char *)calloc(text.bytes + 4, 1);
    text.place = (size_t *)calloc(text.bytes + 4, sizeof(size_t));
    text.line = (int *)calloc(text.bytes + 4, sizeof(int));
    if (!text.characters || !text.place || !text.line) stop("out of memory");
    for (size_t i = 0; i < text.bytes; i++) {
        if (all[i] == '\\' && all[i + 1] == '\n') {
            text.lines++, i++;
            continue;
        }
        text.characters[text.size] = all[i], text.place[text.size] = i, text.line[text.size] = text.lines + 1;
        text.size++;
        if (all[i] == '\n') text.lines++;
    }
    text.place[text.size] = text.bytes, text.line[text.size] = text.lines;
    for (size_t i = 0, seen = 0; i < text.bytes; i++) {
        if (!isspace((unsigned char)all[i])) seen = 1;
        if (all[i] == '\n') text.blank += !seen, seen = 0;
    }
    free(all);
}

/* ---- tokens */
typedef struct token {
    size_t at, size;
    int directive; /* the number of the directive it belongs to, 0: none */
} token;
static token tokens[MOST_TOKENS];
static size_t token_count, comment_bytes;
static int comment_lines, longest_define, defines;

static size_t end_of_comment(size_t i) {
    const char *c = text.characters;
    if (c[i + 1] == '/') {
        while (i < text.size && c[i] != '\n') i++;
        return i;
    }
    for (i += 2; i < text.size && !(c[i] == '*' && c[i + 1] == '/'); i++) {}
    return i + 2 < text.size ? i + 2 : text.size;
}
static size_t end_of_literal(size_t i) {
    const char *c = text.characters, quote = c[i++];
    while (i < text.size && c[i] != quote && c[i] != '\n') i += c[i] == '\\' ? 2 : 1;
    return i + 1;
}
static size_t end_of_number(size_t i) {
    const char *c = text.characters;
    while (isalnum((unsigned char)c[i]) || c[i] == '_' || c[i] == '.' ||
           ((c[i] == '+' || c[i] == '-') && strchr("eEpP", c[i - 1])))
        i++;
    return i;
}
static size_t size_of_punctuator(const char *c) {
    static const char *const several[] = {"...", "<<=", ">>=", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=",
                                          "&&",  "||",  "+=",  "-=", "*=", "/=", "%=", "&=", "^=", "|=", "##", "::"};
    for (size_t n = 0; n < sizeof several / sizeof *several; n++)
        if (!strncmp(c, several[n], strlen(several[n]))) return strlen(several[n]);
    return 1;
}
static size_t end_of_token(size_t i) {
    const char *c = text.characters + i;
    if (isalpha((unsigned char)*c) || *c == '_') {
        while (isalnum((unsigned char)text.characters[i]) || text.characters[i] == '_') i++;
        return i;
    }
    if (isdigit((unsigned char)*c) || (*c == '.' && isdigit((unsigned char)c[1]))) return end_of_number(i);
    return *c == '"' || *c == '\'' ? end_of_literal(i) : i + size_of_punctuator(c);
}

static int is(size_t n, const char *what) {
    return n < token_count && tokens[n].size == strlen(what) &&
           !strncmp(text.characters + tokens[n].at, what, tokens[n].size);
}
static int line_of(size_t n) { return text.line[tokens[n].at]; }

static void cut_into_tokens(void) {
    const char *c = text.characters;
    int directive = 0, directives = 0, fresh = 1, counted = 0; /* fresh: no token yet */
    for (size_t i = 0, end; i < text.size; i = end) {
        end = i + 1;
        if (c[i] == '\n') fresh = 1, directive = 0;
        if (isspace((unsigned char)c[i])) continue;
        if (c[i] == '/' && (c[i + 1] == '/' || c[i + 1] == '*')) {
            int first = text.line[i], last;
            end = end_of_comment(i), last = text.line[end - 1];
            comment_bytes += text.place[end] - text.place[i];
            comment_lines += last - (first > counted ? first - 1 : counted), counted = last;
            continue;
        }
        if (fresh && c[i] == '#') directive = ++directives;
        fresh = 0, end = end_of_token(i);
        if (token_count == MOST_TOKENS) stop("too many tokens");
        tokens[token_count].at = i, tokens[token_count].size = end - i;
        tokens[token_count++].directive = directive;
    }
}
static void find_longest_define(void) { /* lines with splices are of the file, so those of the next token's place */
    for (size_t n = 0; n + 1 < token_count; n++)
        if (tokens[n].directive && is(n, "#") && is(n + 1, "define")) {
            size_t last = n;
            int lines;
            defines++;
            while (last + 1 < token_count && tokens[last + 1].directive == tokens[n].directive) last++;
            lines = line_of(last) - line_of(n) + 1;
            if (lines > longest_define) longest_define = lines;
        }
}

/* ---- functions */
static struct {
    int count, longer, wide, deepest, longest; /* wide: of many parameters; the longest: its lines */
    int lines[MOST_FUNCTIONS];
    char name[80], deep_name[80];
} functions;

/* The last name before parentheses, outside of any; how many parameters these hold, none counted as one. */
static int read_head(size_t from, size_t brace, char *name) {
    int depth = 0, parameters = 0;
    name[0] = 0;
    for (size_t n = from; n < brace; n++) {
        if (is(n, "(") && depth++ == 0 && n > from && !is(n - 1, "__attribute__") && !is(n - 1, ")")) {
            snprintf(name, 80, "%.*s", (int)tokens[n - 1].size, text.characters + tokens[n - 1].at);
            parameters = 1;
        }
        if (is(n, ")")) depth--;
        if (is(n, ",") && depth == 1) parameters++;
    }
    return parameters;
}
static void add_function(size_t from, size_t brace, size_t end, int levels) {
    char name[80];
    int lines = line_of(end) - line_of(from) + 1;
    functions.wide += read_head(from, brace, name) >= WIDE;
    if (functions.count == MOST_FUNCTIONS) stop("too many functions");
    functions.lines[functions.count++] = lines, functions.longer += lines > LONG;
    if (lines > functions.longest) functions.longest = lines, memcpy(functions.name, name, sizeof name);
    if (levels > functions.deepest) functions.deepest = levels, memcpy(functions.deep_name, name, sizeof name);
}

enum { OUTER = 'o', FUNCTION = 'f', BLOCK = 'b', DATA = 'd' };
static int kind_of_brace(int around, size_t before) {
    if (around == OUTER) return is(before, ")") ? FUNCTION : OUTER;
    if (around == DATA) return DATA;
    if (is(before, ")") || is(before, "else") || is(before, "do") || is(before, ":")) return BLOCK;
    return is(before, ";") || is(before, "{") || is(before, "}") ? BLOCK : DATA;
}
typedef struct place {        /* within braces */
    int depth, level, levels; /* of all braces, of blocks in a function; the most of these */
    char kind[MOST_DEPTH + 1];
} place;
static void follow_directive(place *now, size_t n) { /* each branch of an #if begins with the braces that it found */
    static place found[MOST_DEPTH + 1];
    static int ifs;
    if (!is(n, "#")) return;
    if (is(n + 1, "if") || is(n + 1, "ifdef") || is(n + 1, "ifndef")) {
        if (ifs == MOST_DEPTH) stop("#if too deep");
        found[ifs++] = *now;
    }
    if (!ifs) return;
    if (is(n + 1, "else") || is(n + 1, "elif")) *now = found[ifs - 1];
    if (is(n + 1, "endif")) ifs--;
}
static void find_functions(void) {
    static place now = {0, 0, 0, {OUTER}};
    size_t head = 0, from = 0, brace = 0, before = 0; /* of the declaration; of the function */
    for (size_t n = 0; n < token_count; n++) {
        if (tokens[n].directive) {
            follow_directive(&now, n);
            if (now.kind[now.depth] == OUTER) head = n + 1;
            continue;
        }
        if (is(n, "{")) {
            char kind = (char)kind_of_brace(now.kind[now.depth], before);
            if (now.depth == MOST_DEPTH) stop("braces too deep");
            now.kind[++now.depth] = kind;
            if (kind == FUNCTION) from = head, brace = n, now.level = now.levels = 0;
            if (kind == BLOCK && ++now.level > now.levels) now.levels = now.level;
        } else if (is(n, "}") && now.depth > 0) {
            if (now.kind[now.depth] == FUNCTION) add_function(from, brace, n, now.levels);
            now.level -= now.kind[now.depth--] == BLOCK;
        }
        if (now.kind[now.depth] == OUTER && (is(n, ";") || is(n, "}") || is(n, "{"))) head = n + 1;
        before = n;
    }
    if (now.depth) stop("an open brace at the end");
}

static int ascending(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
static void print_text(void) {
    qsort(functions.lines, (size_t)functions.count, sizeof(int), ascending);
    printf("%d lines\n%d lines that are not blank\n%.1f %% of the lines blank\n", text.lines, text.lines - text.blank,
           100.0 * text.blank / (text.lines ? text.lines : 1));
    printf("%lu bytes\n%.1f bytes a line\n", (unsigned long)text.bytes,
           (double)text.bytes / (text.lines ? text.lines : 1));
    printf("%.1f %% of the bytes in comments\n", 100.0 * (double)comment_bytes / (double)(text.bytes ? text.bytes : 1));
    printf("%.1f %% of the lines with a comment\n", 100.0 * comment_lines / (text.lines ? text.lines : 1));
    printf("%lu tokens\n", (unsigned long)token_count);
    printf("%d functions\n%d lines of the median function\n", functions.count,
           functions.count ? functions.lines[functions.count / 2] : 0);
    printf("%d lines of the longest function: %s\n", functions.longest, functions.name);
    printf("%d functions above %d lines\n", functions.longer, LONG);
    printf("%d functions of %d or more parameters\n", functions.wide, WIDE);
    printf("%d levels of braces in the deepest function: %s\n", functions.deepest, functions.deep_name);
    printf("%d #defines\n%d lines of the longest #define\n", defines, longest_define);
}

/* ---- time */
static double user_seconds(const char *directory, char **command) {
    struct rusage used;
    int status;
    pid_t child = fork();
    if (child == 0) {
        if (chdir(directory) == 0) execvp(command[0], command);
        _exit(127);
    }
    if (child < 0 || wait4(child, &status, 0, &used) != child || status != 0) stop("the command failed");
    return (double)used.ru_utime.tv_sec + 1e-6 * (double)used.ru_utime.tv_usec;
}
static int ascending_double(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, ascending_double);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}
static void print_times(int pairs, char **directories, char **command) {
    double seconds[2][MOST_PAIRS], ratios[MOST_PAIRS], a, b;
    if (pairs < 1 || pairs > MOST_PAIRS) stop("1 to 99 pairs");
    for (int i = 0; i < 2; i++) user_seconds(directories[i], command); /* the files are read, the caches warm */
    for (int i = 0; i < pairs; i++) {
        int first = i % 2;
        seconds[first][i] = user_seconds(directories[first], command);
        seconds[!first][i] = user_seconds(directories[!first], command);
        ratios[i] = seconds[1][i] / seconds[0][i];
    }
    a = median(seconds[0], pairs), b = median(seconds[1], pairs);
    printf("%.2f %.2f %.3f\n", a, b, median(ratios, pairs));
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "text")) {
        read_text(argv[2]), cut_into_tokens(), find_longest_define(), find_functions(), print_text();
        return 0;
    }
    if (argc > 5 && !strcmp(argv[1], "time")) {
        print_times(atoi(argv[2]), argv + 3, argv + 5);
        return 0;
    }
    stop("measure text FILE, or measure time PAIRS DIR_A DIR_B COMMAND...");
    return 1;
}
