/* npy.h - arrays in NumPy's files (.npy, versions 1 to 3) as views of attn.h; include it after attn.h.
       attn_view q;
       const char *wrong = attn_npy_read("q.npy", &q);      NULL, or what is wrong
       wrong = attn_npy_write("out.npy", attn_view_of(d.out));
       free((void *)q.data);
   Read are f16, f32, f64, i8, i32, i64, u8 and bool (as u8), of 1 to 4 axes, of either byte order, row-major or
   column-major: the strides say which. Written is any view of these types, row-major. NumPy has no bf16. */
#ifndef NPY_H
#define NPY_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline int attn_npy_little_endian(void) {
    const uint16_t one = 1;
    return *(const unsigned char *)&one == 1;
}

/* Letter and size of each type: "f4" is f32. Of two rows with one type the first is written. */
typedef struct {
    char kind, size;
    attn_type type;
} attn_npy_type;
static const attn_npy_type attn_npy_types[] = {{'f', 2, ATTN_F16}, {'f', 4, ATTN_F32}, {'f', 8, ATTN_F64},
                                               {'i', 1, ATTN_I8},  {'i', 4, ATTN_I32}, {'i', 8, ATTN_I64},
                                               {'u', 1, ATTN_U8},  {'b', 1, ATTN_U8}};
enum { ATTN_NPY_TYPES = sizeof attn_npy_types / sizeof *attn_npy_types };

static inline int64_t attn_npy_count(const attn_view *v) {
    int64_t count = 1;
    for (int axis = 0; axis < v->rank; axis++) count *= v->size[axis];
    return count;
}

/* "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }" into the view; *size: of an element, negative where its
   bytes are the other way round. */
static inline const char *attn_npy_header(const char *text, attn_view *v, int *size) {
    const char *descr = strstr(text, "'descr':"), *order = strstr(text, "'fortran_order':");
    const char *shape = strstr(text, "'shape':");
    char endian, kind;
    int turned, n, bytes = 0;
    if (!descr || !order || !shape) return "no header of a .npy file";
    turned = strncmp(order + strlen("'fortran_order':"), " True", 5) == 0;
    if (sscanf(descr, "'descr': '%c%c%d'", &endian, &kind, &bytes) != 3) return "an array of structures";
    for (n = 0; n < ATTN_NPY_TYPES; n++)
        if (attn_npy_types[n].kind == kind && attn_npy_types[n].size == bytes) break;
    if (n == ATTN_NPY_TYPES) return "a type that is none of f16, f32, f64, i8, i32, i64, u8 and bool";
    v->type = attn_npy_types[n].type;
    *size = (endian == '>') == attn_npy_little_endian() && endian != '=' && endian != '|' ? -bytes : bytes;
    if (!(shape = strchr(shape, '('))) return "a header without a shape";
    for (shape++; *shape == ' ' || (*shape >= '0' && *shape <= '9'); shape += *shape == ',') {
        char *end;
        const long long length = strtoll(shape, &end, 10);
        if (end == shape) return "a bad shape";
        if (v->rank == 4) return "more than 4 axes";
        v->size[v->rank++] = length;
        shape = end;
    }
    if (*shape != ')' || v->rank == 0) return *shape == ')' ? "an array of no axis" : "a bad shape";
    for (int64_t i = 0, stride = 1; i < v->rank; i++) {
        const int64_t axis = turned ? i : v->rank - 1 - i;
        if (v->size[axis] > 0 && stride > INT64_MAX / 16 / v->size[axis]) return "an array too large";
        v->stride[axis] = stride;
        stride *= v->size[axis];
    }
    return NULL;
}

static inline const char *attn_npy_numbers(FILE *f, attn_view *v, int size) {
    const size_t bytes = (size_t)(size < 0 ? -size : size), total = bytes * (size_t)attn_npy_count(v);
    unsigned char *data = (unsigned char *)malloc(total + 1);
    if (!data) return "no memory for it";
    v->data = data;
    if (fread(data, 1, total, f) != total) return "the file ends too early";
    if (fgetc(f) != EOF) return "the file goes on after the array";
    for (size_t i = 0; size < 0 && i < total; i += bytes)
        for (size_t lo = 0, hi = bytes - 1; lo < hi; lo++, hi--) {
            const unsigned char swapped = data[i + lo];
            data[i + lo] = data[i + hi];
            data[i + hi] = swapped;
        }
    return NULL;
}

/* The array in a file; v->data is then to be freed. NULL, or a text that says what is wrong; v is then all zero. */
static inline const char *attn_npy_read(const char *path, attn_view *v) {
    static const attn_view none = {0};
    unsigned char start[12] = {0};
    char text[4096];
    const char *wrong = NULL;
    size_t length = 0, more;
    int size = 0;
    FILE *f = fopen(path, "rb");
    *v = none;
    if (!f) return strerror(errno);
    if (fread(start, 1, 10, f) != 10 || memcmp(start, "\x93NUMPY", 6)) wrong = "no .npy file";
    else if (start[6] < 1 || start[6] > 3) wrong = "a version of .npy that is not known";
    else {
        more = start[6] == 1 ? 0 : 2; /* bytes of the header's length, little-endian */
        if (fread(start + 10, 1, more, f) == more)
            length = start[8] | (size_t)start[9] << 8 | (size_t)start[10] << 16 | (size_t)start[11] << 24;
        if (length == 0 || length >= sizeof text || fread(text, 1, length, f) != length) wrong = "a bad header";
    }
    if (!wrong) {
        text[length] = 0;
        wrong = attn_npy_header(text, v, &size);
    }
    if (!wrong) wrong = attn_npy_numbers(f, v, size);
    fclose(f);
    if (wrong) {
        free((void *)v->data);
        *v = none;
    }
    return wrong;
}

/* The view's numbers into an open file. NULL, or a text that says what is wrong. */
static inline const char *attn_npy_put(FILE *f, attn_view v) {
    char text[192], shape[96] = "";
    int n = 0, at = 0;
    while (n < ATTN_NPY_TYPES && (int32_t)attn_npy_types[n].type != v.type) n++;
    if (n == ATTN_NPY_TYPES) return "NumPy has no such type";
    for (int axis = 0; axis < v.rank; axis++)
        at += snprintf(shape + at, sizeof shape - (size_t)at, "%lld, ", (long long)v.size[axis]);
    snprintf(text, sizeof text, "{'descr': '%c%c%d', 'fortran_order': False, 'shape': (%.*s), }",
             attn_npy_types[n].size == 1 ? '|'
             : attn_npy_little_endian()  ? '<'
                                         : '>',
             attn_npy_types[n].kind, attn_npy_types[n].size, v.rank > 1 ? at - 2 : at - 1, shape);
    fwrite("\x93NUMPY\x01\0\xb6\0", 1, 10, f); /* 0xb6 = 182 bytes of header: the numbers begin at byte 192 */
    fprintf(f, "%-181s\n", text);
    for (int64_t i = 0; i < attn_npy_count(&v); i++) {
        int64_t rest = i, element = 0;
        for (int axis = v.rank - 1; axis >= 0; axis--) {
            element += rest % v.size[axis] * v.stride[axis];
            rest /= v.size[axis];
        }
        fwrite((const char *)v.data + element * attn_npy_types[n].size, (size_t)attn_npy_types[n].size, 1, f);
    }
    return ferror(f) ? "it cannot be written" : NULL;
}
/* Into a file that is made, or made anew. */
static inline const char *attn_npy_write(const char *path, attn_view v) {
    FILE *f = fopen(path, "wb");
    const char *wrong = f ? attn_npy_put(f, v) : "it cannot be written";
    return f && fclose(f) && !wrong ? "it cannot be written" : wrong;
}

#endif
