/* words.h - for align.c and make_vectors.c: lines of any length, a sentence cut into words, lower case.
   Text is UTF-8; bytes that are not pass through as they are. */
#ifndef WORDS_H
#define WORDS_H

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { /* start: {file, name}; end: free(text) */
    FILE *file;
    const char *name;
    char *text;  /* the line, without the spaces and the line feed at its end */
    size_t size; /* of the block at text */
    long number; /* of the line, from 1 */
} lines;

/* The next line into l->text; 0 at the end of the file (or of the memory). */
static int lines_next(lines *l) {
    size_t n = 0;
    l->number++;
    do {
        if (l->size - n < 2) {
            char *grown = (char *)realloc(l->text, 2 * l->size + 256);
            if (!grown) return 0;
            l->text = grown;
            l->size = 2 * l->size + 256;
        }
        if (!fgets(l->text + n, (int)(l->size - n), l->file)) {
            if (n == 0) return 0;
            break;
        }
        n += strlen(l->text + n);
    } while (n > 0 && l->text[n - 1] != '\n');
    while (n > 0 && strchr(" \t\r\n", l->text[n - 1])) n--;
    l->text[n] = 0;
    return 1;
}

/* A file in examples/data/, seen from the top of the tree or else from examples/. */
static const char *data_path(const char *from_top) {
    FILE *f = fopen(from_top, "rb");
    if (f) fclose(f);
    return f ? from_top : from_top + strlen("examples/");
}

/* Bytes at s that separate words without being one, 0 = none. Apostrophes do: L'accord is L and accord. */
static size_t words_gap(const char *s) {
    static const char *const gaps[] = {" ",
                                       "\t",
                                       "\r",
                                       "\n",
                                       "'",
                                       "\"",
                                       "\302\240",
                                       "\342\200\257", /* spaces that do not break */
                                       "\302\253",
                                       "\302\273", /* French quotation marks */
                                       "\342\200\230",
                                       "\342\200\231",
                                       "\342\200\234",
                                       "\342\200\235"};
    for (size_t i = 0; i < sizeof gaps / sizeof gaps[0]; i++)
        if (strncmp(s, gaps[i], strlen(gaps[i])) == 0) return strlen(gaps[i]);
    return 0;
}

/* Punctuation that is a word of its own; a point or comma between two digits is none. */
static int words_mark(const char *s, const char *start) {
    if (!strchr(".,;:!?()[]{}", *s)) return 0;
    return s == start || !isdigit((unsigned char)s[-1]) || !isdigit((unsigned char)s[1]);
}

typedef struct {
    int count;
    char **word; /* one block: free(word) */
} words;

/* Cuts a sentence into words; 0 = no memory. */
static int words_split(words *w, const char *s) {
    size_t n = strlen(s); /* at most n words, and n letters with an end each */
    w->count = 0;
    w->word = (char **)malloc((n + 1) * sizeof *w->word + 2 * n);
    if (!w->word) return 0;
    for (char *to = (char *)(w->word + n + 1); *s;) {
        size_t taken = words_gap(s);
        if (taken > 0) {
            s += taken;
            continue;
        }
        taken = 1;
        if (!words_mark(s, s))
            while (s[taken] && !words_gap(s + taken) && !words_mark(s + taken, s)) taken++;
        memcpy(to, s, taken);
        to[taken] = 0;
        w->word[w->count++] = to;
        to += taken + 1;
        s += taken;
    }
    return 1;
}

/* Lower case in place, for the letters of one and two bytes: Latin, Greek, Cyrillic. */
static void words_lower(char *s) {
    for (; *s; s++) {
        unsigned c = (unsigned char)s[0], d = (unsigned char)s[1];
        if (c >= 'A' && c <= 'Z') *s = (char)(c + 32);
        if (c < 0xC3 || c > 0xDF || (d & 0xC0) != 0x80) continue;
        c = (c & 31) << 6 | (d & 63);
        if (c >= 0xC0 && c <= 0xDE && c != 0xD7) c += 32;
        else if (c == 0x178) c = 0xFF;
        else if ((c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17E)) c += c & 1;
        else if (c >= 0x100 && c <= 0x177 && c != 0x130 && c != 0x131 && c != 0x138) c |= 1;
        else if ((c >= 0x391 && c <= 0x3A9) || (c >= 0x410 && c <= 0x42F)) c += 32;
        else if (c >= 0x400 && c <= 0x40F) c += 80;
        *s++ = (char)(0xC0 | c >> 6);
        *s = (char)(0x80 | (c & 63));
    }
}

#endif
