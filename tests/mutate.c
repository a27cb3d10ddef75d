/* mutate.c - breaks a C file in one place.

   mutate FILE list N        N mutants of each section, one a line: number, section, key, with tabs between
   mutate FILE list N added  the same of the lines that a diff without context on standard input has added
   mutate FILE write NUMBER  the file with that one change, on standard output

   A section begins at a banner (a comment line of dashes up to >>name). The key names the mutant by the text
   of its line and the change, so that it stays the same while the file grows around it; which N of a section
   are taken depends on the keys alone, for the same reason. */
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const sections[] = {"math",    "kernels-scalar", "kernels-vector", "errors",   "call",    "views",
                                       "checks",  "overlap",        "rules",          "arrays",   "entries", "scores",
                                       "options", "forward",        "gradients",      "products", "tasks",   "planning",
                                       "cache",   "rope",           "kernels-neon",   NULL};

/* operators between two operands, and what they become */
static const char *const operators[][2] = {
    {"<", "<="},  {"<=", "<"},  {">", ">="},  {">=", ">"},  {"==", "!="}, {"!=", "=="}, {"&&", "||"}, {"||", "&&"},
    {"+", "-"},   {"-", "+"},   {"*", "+"},   {"/", "*"},   {"%", "/"},   {"&", "|"},   {"|", "&"},   {"^", "&"},
    {"<<", ">>"}, {">>", "<<"}, {"+=", "-="}, {"-=", "+="}, {"*=", "+="}, {"|=", "&="}, {"&=", "|="},
};
/* parts of names: the same operands, another operation */
static const char *const names[][2] = {
    {"_max_", "_min_"},
    {"_min_", "_max_"},
    {"_add_", "_sub_"},
    {"_sub_", "_add_"},
    {"_mul_", "_add_"},
    {"_fmadd_", "_fnmadd_"},
    {"_fnmadd_", "_fmadd_"},
    {"_and_", "_or_"},
    {"_or_", "_and_"},
    {"unpacklo", "unpackhi"},
    {"unpackhi", "unpacklo"},
    {"_slli_", "_srli_"},
    {"_srli_", "_slli_"},
    {"_cmpgt_", "_cmpeq_"},
    {"_CMP_LT_", "_CMP_LE_"},
    {"_CMP_LE_", "_CMP_LT_"},
    {"_CMP_GT_", "_CMP_GE_"},
    {"_CMP_GE_", "_CMP_GT_"},
    {"_CMP_UNORD_", "_CMP_ORD_"},
    {"_CMP_EQ_", "_CMP_NEQ_"},
    {"__max", "__min"},
    {"__min", "__max"},
    {"_UNBOUNDED", "_UNBOUNDED+1"},
};
/* NEON's names, each a function of its own: the same operands, as far as types that pass for each other allow */
static const char *const neon_names[][2] = {
    {"vandq_u32", "vorrq_u32"},        {"vandq_u32", "vbicq_u32"},      {"veorq_u32", "vorrq_u32"},
    {"vaddq_u32", "vsubq_u32"},        {"vaddq_u32", "vqaddq_u32"},     {"vshlq_n_u32", "vshrq_n_u32"},
    {"vshlq_n_u32", "vqshlq_n_u32"},   {"vshrq_n_s32", "vshrq_n_u32"},  {"vshrq_n_s32", "vrshrq_n_s32"},
    {"vmull_u32", "vmull_s32"},        {"vmovn_u64", "vget_low_u32"},   {"vmovn_u64", "vget_high_u32"},
    {"vmovn_u64", "vqmovn_u64"},       {"vshrq_n_u64", "vrshrq_n_u64"}, {"vshrq_n_u64", "vshlq_n_u64"},
    {"vtrn1q_u32", "vtrn2q_u32"},      {"vtrn1q_u32", "vzip1q_u32"},    {"vtrn2q_u32", "vtrn1q_u32"},
    {"vtrn2q_u32", "vuzp2q_u32"},      {"vtrn1q_u64", "vtrn2q_u64"},    {"vtrn2q_u64", "vtrn1q_u64"},
    {"vcgtq_s32", "vcgeq_s32"},        {"vcgtq_s32", "vcgtq_u32"},      {"vcltzq_s32", "vclezq_s32"},
    {"vcltzq_s32", "vcgtzq_s32"},      {"vcltzq_s32", "vcltzq_s8"},     {"vorrq_u32", "vandq_u32"},
    {"vorrq_u32", "veorq_u32"},        {"vmaxvq_u32", "vminvq_u32"},    {"vmaxvq_u32", "vmaxvq_s32"},
    {"vmaxvq_u32", "vaddvq_u32"},      {"vbicq_u32", "vandq_u32"},      {"vbicq_u32", "vornq_u32"},
    {"vld1q_f32", "vld1q_dup_f32"},    {"vld1q_f32", "-vld1q_f32"},     {"vst1q_f32", "(void)"},
    {"vdupq_n_f32", "-vdupq_n_f32"},   {"vcltq_f32", "vcleq_f32"},      {"vcltq_f32", "vcaltq_f32"},
    {"vceqq_f32", "vcleq_f32"},        {"vceqq_f32", "vcgeq_f32"},      {"vfmaq_f32", "vfmsq_f32"},
    {"vfmaq_f32", "vmlaq_f32"},        {"vfmaq_n_f32", "vfmsq_n_f32"},  {"vfmaq_n_f32", "vmlaq_n_f32"},
    {"vsqrtq_f32", "vrsqrteq_f32"},    {"vsqrtq_f32", "vabsq_f32"},     {"vcvtq_f32_s32", "vcvtq_f32_u32"},
    {"vcvtq_f32_s32", "ATTN__FLOATS"}, {"vdupq_n_u32", "~vdupq_n_u32"}, {"vget_low_u16", "vget_high_u16"},
    {"vmovl_u8", "vmovl_s8"},          {"vmovl_u16", "vmovl_s16"},      {"vreinterpretq_u32_u8", "vmvnq_u32"},
    {"ATTN__SIGNED", "-ATTN__SIGNED"}, {"ATTN__LESS", "ATTN__SAME"},
};
static const char *const before_unary[] = {"return", "case", "else", "sizeof", "in", NULL};
static const char *const types[] = {"float",   "double",   "void",     "char",    "int",
                                    "const",   "unsigned", "size_t",   "int32_t", "int64_t",
                                    "uint8_t", "uint32_t", "uint64_t", "struct",  NULL};

typedef struct {
    size_t start, length;
    char kind;
} token; /* kind: i name, n number, o operator */
typedef struct {
    size_t at, remove;
    char insert[64], section[32], *key;
    uint64_t rank;
    size_t number;
} mutant;

static char *text;
static size_t text_length;
static token *tokens;
static size_t token_count;
static mutant *mutants;
static size_t mutant_count;

static void *grow(void *array, size_t count, size_t size) { /* room for one more */
    void *p = array;
    if ((count & (count - 1)) == 0) p = realloc(array, (count ? 2 * count : 1) * size);
    if (!p) exit(2);
    return p;
}

/* ---- reading */
static void read_file(const char *path) {
    FILE *f = fopen(path, "rb");
    size_t room = 0;
    if (!f) {
        printf("cannot open %s\n", path);
        exit(2);
    }
    for (;;) {
        if (text_length + 1 >= room) text = (char *)realloc(text, room = 2 * room + 65536);
        if (!text) exit(2);
        size_t n = fread(text + text_length, 1, room - text_length - 1, f);
        if (n == 0) break;
        text_length += n;
    }
    text[text_length] = 0;
    fclose(f);
}

static size_t after_comment(size_t i) { /* i is at the slash */
    const char *end = text[i + 1] == '/' ? strchr(text + i, '\n') : strstr(text + i + 2, "*/");
    if (!end) return text_length;
    return (size_t)(end - text) + (*end == '*' ? 2 : 0);
}
static size_t after_string(size_t i) {
    char quote = text[i++];
    while (text[i] && text[i] != quote && text[i] != '\n') i += text[i] == '\\' ? 2 : 1;
    return i + 1;
}
static size_t after_line(size_t i) { /* of a directive: goes on after a backslash */
    while (text[i] && (text[i] != '\n' || text[i - 1] == '\\')) i++;
    return i;
}
/* A directive is left alone, but the body of a macro is code. Returns where to go on. */
static size_t after_directive(size_t i) {
    size_t j = i + 1;
    while (text[j] == ' ') j++;
    if (strncmp(text + j, "define ", 7) != 0) return after_line(i);
    j += 7;
    while (text[j] == ' ') j++;
    while (isalnum((unsigned char)text[j]) || text[j] == '_') j++;
    if (text[j] == '(') j += strcspn(text + j, ")\n") + 1;
    return j;
}
static size_t name_length(size_t i) {
    size_t n = 0;
    while (isalnum((unsigned char)text[i + n]) || text[i + n] == '_') n++;
    return n;
}
static size_t number_length(size_t i) {
    size_t n = 0;
    int hexadecimal = text[i] == '0' && (text[i + 1] | 32) == 'x';
    for (;; n++) {
        char c = text[i + n], previous = n ? (char)(text[i + n - 1] | 32) : 0;
        int sign = (c == '+' || c == '-') && previous == (hexadecimal ? 'p' : 'e');
        if (!(isalnum((unsigned char)c) || c == '.' || sign)) return n;
    }
}
static size_t operator_length(size_t i) {
    static const char *const long_ones[] = {"<<=", ">>=", "<=", ">=", "==", "!=", "&&", "||", "<<", ">>", "+=", "-=",
                                            "*=",  "/=",  "|=", "&=", "^=", "->", "++", "--", "%=", "##", NULL};
    int k;
    for (k = 0; long_ones[k]; k++)
        if (strncmp(text + i, long_ones[k], strlen(long_ones[k])) == 0) return strlen(long_ones[k]);
    return 1;
}
static void add_token(size_t start, size_t length, char kind) {
    tokens = (token *)grow(tokens, token_count, sizeof *tokens);
    tokens[token_count].start = start;
    tokens[token_count].length = length;
    tokens[token_count++].kind = kind;
}
static void split(void) {
    size_t i = 0;
    int line_is_empty = 1;
    while (i < text_length) {
        char c = text[i];
        size_t n;
        if (c == '\n') line_is_empty = 1;
        if (isspace((unsigned char)c) || c == '\\') {
            i++;
            continue;
        }
        if (c == '/' && (text[i + 1] == '*' || text[i + 1] == '/')) {
            i = after_comment(i);
            continue;
        }
        if (c == '#' && line_is_empty) {
            i = after_directive(i);
            line_is_empty = 0;
            continue;
        }
        line_is_empty = 0;
        if (c == '"' || c == '\'') {
            i = after_string(i);
            continue;
        }
        if (isalpha((unsigned char)c) || c == '_') add_token(i, n = name_length(i), 'i');
        else if (isdigit((unsigned char)c) || (c == '.' && isdigit((unsigned char)text[i + 1])))
            add_token(i, n = number_length(i), 'n');
        else add_token(i, n = operator_length(i), 'o');
        i += n;
    }
}

/* ---- where a mutant is */
static int token_is(size_t t, const char *word) {
    return t < token_count && tokens[t].length == strlen(word) &&
           !memcmp(text + tokens[t].start, word, tokens[t].length);
}
static int token_in(size_t t, const char *const *words) {
    int k;
    for (k = 0; words[k]; k++)
        if (token_is(t, words[k])) return 1;
    return 0;
}
/* The vocabulary of NEON, which only a compiler for AArch64 sees, counts as a section of its own. */
static int in_neon(size_t at) {
    static size_t from, to;
    if (!to) {
        const char *begins = strstr(text, "\n#elif ATTN__HAS_NEON"), *ends = begins ? strstr(begins, "\n#else") : NULL;
        from = ends ? (size_t)(begins - text) : text_length;
        to = ends ? (size_t)(ends - text) : text_length;
    }
    return at >= from && at < to;
}
static const char *section_of(size_t at) { /* the name after the last banner above, if it is one that is broken */
    static char name[32];
    static size_t from, to; /* what `name` holds for */
    size_t i = at;
    int k;
    if (in_neon(at)) return "kernels-neon";
    if (at >= from && at < to) return name;
    name[0] = 0;
    while (i > 0 && !(text[i] == '/' && text[i - 1] == '\n' && !strncmp(text + i, "/* ---", 6))) i--;
    from = i, to = at + 1;
    {
        const size_t dashes = strspn(text + i + 3, "-");
        const char *mark = text + i + 3 + dashes + 1;
        if (dashes < 10 || strncmp(mark, ">>", 2) != 0) { /* a smaller heading: look further up */
            char found[32];
            if (i == 0) return name;
            snprintf(found, sizeof found, "%s", section_of(i - 1));
            memcpy(name, found, sizeof name);
            from = i, to = at + 1;
            return name;
        }
        for (k = 0; sections[k]; k++) {
            size_t n = strlen(sections[k]);
            if (!strncmp(mark + 2, sections[k], n) && !isalnum((unsigned char)mark[2 + n]) && mark[2 + n] != '-')
                strcpy(name, sections[k]);
        }
    }
    return name;
}
static uint64_t hash(const char *s) { /* FNV-1a, then mixed, since it orders the mutants */
    uint64_t h = 0xCBF29CE484222325u;
    while (*s) h = (h ^ (unsigned char)*s++) * 0x100000001B3u;
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCDu;
    return h ^ h >> 29;
}
/* "text of the line | old -> new at column": spaces folded, so that a new indentation changes nothing */
static char *make_key(size_t at, const char *was, const char *becomes) {
    size_t start = at, end = at, i, n = 0, column = 0;
    char *key;
    while (start > 0 && text[start - 1] != '\n') start--;
    while (text[end] && text[end] != '\n') end++;
    key = (char *)malloc(end - start + strlen(was) + strlen(becomes) + 64);
    if (!key) exit(2);
    for (i = start; i < end; i++) {
        int space = isspace((unsigned char)text[i]);
        if (i == at) column = n;
        if (!space || (n > 0 && key[n - 1] != ' ')) key[n++] = space ? ' ' : text[i];
    }
    snprintf(key + n, strlen(was) + strlen(becomes) + 64, " | %s -> %s at %lu", was, becomes, (unsigned long)column);
    return key;
}
static void add_mutant(size_t at, size_t remove, const char *becomes) {
    const char *section = section_of(at);
    char was[64], *key;
    mutant *m;
    if (!section[0] || remove >= sizeof was || strlen(becomes) >= sizeof m->insert) return;
    memcpy(was, text + at, remove);
    was[remove] = 0;
    key = make_key(at, remove ? was : "nothing", becomes);
    if (strstr(key, "ATTN__PREFETCH")) return; /* what is prefetched changes no result */
    mutants = (mutant *)grow(mutants, mutant_count, sizeof *mutants);
    m = &mutants[mutant_count];
    m->at = at;
    m->remove = remove;
    strcpy(m->insert, becomes);
    strcpy(m->section, section);
    m->key = key;
    m->number = mutant_count++;
}

/* ---- what is changed */
static int ends_operand(size_t t) { /* may an operator between two operands follow? */
    if (tokens[t].kind == 'n' || token_is(t, ")") || token_is(t, "]")) return 1;
    return tokens[t].kind == 'i' && !token_in(t, before_unary) && !token_in(t, types);
}
static int even_spaces(size_t t) { /* a*b, a * b, but not char *b: that is a declaration */
    size_t start = tokens[t].start, end = start + tokens[t].length;
    return (text[start - 1] == ' ') == (text[end] == ' ');
}
static void change_operator(size_t t) {
    size_t k;
    if (token_is(t, "!") && tokens[t].kind == 'o') add_mutant(tokens[t].start, 1, " ");
    if (t == 0 || !ends_operand(t - 1) || !even_spaces(t)) return;
    for (k = 0; k < sizeof operators / sizeof *operators; k++)
        if (token_is(t, operators[k][0])) add_mutant(tokens[t].start, tokens[t].length, operators[k][1]);
}
/* Is the bracket at t that of `type name[...]`? Then what is in it is a size. */
static int declares(size_t t) {
    if (t < 2 || !token_is(t, "[") || tokens[t - 1].kind != 'i') return 0;
    return (tokens[t - 2].kind == 'i' && !token_in(t - 2, before_unary)) ||
           (token_is(t - 2, "*") && !even_spaces(t - 2));
}
static void change_number(size_t t) {
    char digits[64];
    size_t n = tokens[t].length, i = 0, significant = 0;
    int hexadecimal;
    if (n + 2 > sizeof digits || (t > 0 && declares(t - 1))) return;
    memcpy(digits, text + tokens[t].start, n);
    digits[n] = 0;
    hexadecimal = digits[0] == '0' && (digits[1] | 32) == 'x';
    if (hexadecimal) { /* the last digit of the integer or of the mantissa */
        size_t end = strcspn(digits, "pPuUlL");
        if (end < 3) return;
        digits[end - 1] = (char)(digits[end - 1] == '0' ? '1' : digits[end - 1] == '.' ? '.' : digits[end - 1] - 1);
        if (digits[end - 1] == '@' || digits[end - 1] == '`') digits[end - 1] = '9';
    } else if (strpbrk(digits, ".eEfF")) { /* the third digit that counts, or the last */
        size_t end = strcspn(digits, "eEfF"), last = 0;
        for (i = 0; i < end && significant < 3; i++) {
            if (!isdigit((unsigned char)digits[i])) continue;
            if (significant || digits[i] != '0' || i + 1 == end) significant++;
            if (significant || digits[i] == '0') last = i;
        }
        digits[last] = (char)(digits[last] == '9' ? '8' : digits[last] + 1);
    } else { /* an integer and its suffix */
        unsigned long value = strtoul(digits, NULL, 10);
        size_t end = strspn(digits, "0123456789");
        char suffix[8];
        snprintf(suffix, sizeof suffix, "%.7s", digits + end);
        snprintf(digits, sizeof digits, "%lu%s", value + 1, suffix);
    }
    add_mutant(tokens[t].start, n, digits);
}
static void change_name(size_t t) {
    char name[64];
    size_t k, n = tokens[t].length;
    if (n + 3 > sizeof name) return;
    memcpy(name, text + tokens[t].start, n);
    name[n] = 0;
    for (k = 0; k < sizeof names / sizeof *names; k++) {
        char changed[64], *found = strstr(name, names[k][0]);
        if (!found || n + strlen(names[k][1]) >= sizeof changed) continue;
        snprintf(changed, sizeof changed, "%.*s%s%s", (int)(found - name), name, names[k][1],
                 found + strlen(names[k][0]));
        add_mutant(tokens[t].start, n, changed);
    }
}
static size_t matching(size_t t, const char *open, const char *close) {
    int depth = 0;
    for (; t < token_count; t++) {
        if (token_is(t, open)) depth++;
        if (token_is(t, close) && --depth == 0) return t;
    }
    return 0;
}
/* f(a, b) becomes f(b, a) */
static void change_arguments(size_t t) {
    size_t close = matching(t + 1, "(", ")"), comma = 0, second = 0, end = 0, k;
    int depth = 0;
    char swapped[64];
    if (!close || !token_is(t + 1, "(")) return;
    for (k = t + 1; k <= close && !end; k++) {
        if (token_is(k, "(")) depth++;
        if (token_is(k, ")")) depth--;
        if (!(depth == 1 && token_is(k, ",")) && k != close) continue;
        if (!comma) comma = k;
        else end = k;
    }
    if (!end) return;
    {
        const size_t from = tokens[t + 2].start, first = tokens[comma].start - from;
        size_t length;
        second = tokens[comma + 1].start;
        length = tokens[end].start - second;
        if (first + length + 3 > sizeof swapped) return;
        snprintf(swapped, sizeof swapped, "%.*s, %.*s", (int)length, text + second, (int)first, text + from);
        add_mutant(from, second + length - from, swapped);
    }
}
static void change_neon(size_t t) {
    size_t k;
    if (strcmp(section_of(tokens[t].start), "kernels-neon") != 0) return;
    for (k = 0; k < sizeof neon_names / sizeof *neon_names; k++)
        if (token_is(t, neon_names[k][0])) add_mutant(tokens[t].start, tokens[t].length, neon_names[k][1]);
    change_arguments(t);
}
static int is_constant(size_t t) { /* a name in capitals */
    size_t i;
    for (i = 0; i < tokens[t].length; i++)
        if (islower((unsigned char)text[tokens[t].start + i])) return 0;
    return 1;
}
static void change_index(size_t t) { /* x[i] becomes x[i + 1], unless this declares x */
    size_t close = matching(t, "[", "]");
    if (t < 2 || !close || close == t + 1 || tokens[t - 1].kind != 'i' || declares(t)) return;
    if (close == t + 2 && (tokens[t + 1].kind == 'n' || is_constant(t + 1))) return; /* a size, or changed anyway */
    add_mutant(tokens[close].start, 0, " + 1");
}
static void change_condition(size_t t) { /* if (c) becomes if (!c) by way of (c) == 0 */
    size_t close = matching(t + 1, "(", ")");
    if (!close || !token_is(t + 1, "(")) return;
    add_mutant(tokens[t + 1].start, 1, "(0 == ");
}
static void find_mutants(void) {
    size_t t;
    for (t = 0; t < token_count; t++) {
        if (tokens[t].kind == 'n') change_number(t);
        else if (tokens[t].kind == 'i') {
            change_name(t);
            change_neon(t);
            if (token_is(t, "if")) change_condition(t);
        } else {
            change_operator(t);
            if (token_is(t, "[")) change_index(t);
        }
    }
}

/* ---- output */
static int by_rank(const void *a, const void *b) {
    uint64_t x = ((const mutant *)a)->rank, y = ((const mutant *)b)->rank;
    return x < y ? -1 : x > y;
}
/* Equal lines give equal keys: the second of them gets "#2", ... */
static void number_equal_keys(void) {
    size_t i, j;
    for (i = 0; i < mutant_count; i++) {
        int same = 1;
        size_t n = strlen(mutants[i].key);
        for (j = 0; j < i; j++)
            if (!strncmp(mutants[j].key, mutants[i].key, n) && (!mutants[j].key[n] || mutants[j].key[n + 1] == '#'))
                same++;
        if (same > 1) {
            mutants[i].key = (char *)realloc(mutants[i].key, n + 16);
            if (!mutants[i].key) exit(2);
            snprintf(mutants[i].key + n, 16, " #%d", same);
        }
        mutants[i].rank = hash(mutants[i].key);
    }
}
/* A byte for each of the text: is it in a line that the diff on standard input (git diff -U0) has added? */
static char *find_added(void) {
    char line[4096], *added = (char *)calloc(text_length + 1, 1);
    size_t at = 0;
    long here = 1;
    if (!added) exit(2);
    while (fgets(line, sizeof line, stdin)) {
        char *plus = strncmp(line, "@@ -", 4) == 0 ? strchr(line, '+') : NULL;
        if (!plus) continue;
        const long first = strtol(plus + 1, &plus, 10), count = *plus == ',' ? strtol(plus + 1, NULL, 10) : 1;
        for (; at < text_length && here < first + count; at++) {
            added[at] = here >= first;
            here += text[at] == '\n';
        }
    }
    return added;
}
static void list(long per_section, const char *added) {
    int k;
    size_t i;
    number_equal_keys();
    qsort(mutants, mutant_count, sizeof *mutants, by_rank);
    for (k = 0; sections[k]; k++) {
        long taken = 0;
        for (i = 0; i < mutant_count && taken < per_section; i++) {
            if (strcmp(mutants[i].section, sections[k]) != 0 || (added && !added[mutants[i].at])) continue;
            printf("%lu\t%s\t%s\n", (unsigned long)mutants[i].number, mutants[i].section, mutants[i].key);
            taken++;
        }
    }
}
static int write_mutant(unsigned long number) {
    const mutant *m;
    if (number >= mutant_count) return 2;
    m = &mutants[number];
    fwrite(text, 1, m->at, stdout);
    fputs(m->insert, stdout);
    fwrite(text + m->at + m->remove, 1, text_length - m->at - m->remove, stdout);
    return 0;
}

int main(int argc, char **argv) {
    const int only_added = argc == 5 && !strcmp(argv[4], "added");
    if (argc != 4 && !only_added) {
        printf("usage: mutate FILE list N [added <DIFF] | mutate FILE write NUMBER\n");
        return 2;
    }
    read_file(argv[1]);
    split();
    find_mutants();
    if (!strcmp(argv[2], "write")) return write_mutant(strtoul(argv[3], NULL, 10));
    list(strtol(argv[3], NULL, 10), only_added ? find_added() : NULL);
    return 0;
}
