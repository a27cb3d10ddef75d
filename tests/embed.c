/* embed.c - the smallest user of attn.h, for the ways to embed it: two files linked, one file, C++, a shared
   library, a renamed copy, macros of other headers in the way, every ATTN_NO_*. Exit 0 when all is well. */
#ifndef ATTN_HEADER
#define ATTN_HEADER "../attn.h"
#endif
#include ATTN_HEADER
#include ATTN_HEADER /* twice is the same as once */
#include <stdio.h>
#include <string.h>

static int failures;

static void expect(int ok, const char *what) {
    if (ok) return;
    printf("embed: %s\n", what);
    failures++;
}

static attn_desc average(float *out) { /* four keys of one score: the output is the mean of the values */
    static const float q[3] = {0, 0, 0}, k[4 * 3] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, v[4] = {1, 2, 3, 4};
    attn_desc d = {0};
    d.q = attn_view_bhsd(q, 1, 1, 1, 3);
    d.k = attn_view_bhsd(k, 1, 1, 4, 3);
    d.v = attn_view_bhsd(v, 1, 1, 4, 1);
    d.out = attn_out_bhsd(out, 1, 1, 1, 1);
    return d;
}

static void attention(void) {
    static unsigned char workspace[1 << 20];
    float out[1] = {0};
    size_t bytes = 0;
    attn_error error;
    attn_desc d = average(out);
    expect(attn_workspace_size(&d, &bytes, &error) == ATTN_OK && bytes <= sizeof workspace, "workspace size");
    d.workspace = workspace;
    d.workspace_bytes = bytes;
    expect(attn_forward(&d, &error) == ATTN_OK && out[0] == 2.5f, "attention");
#ifndef ATTN_NO_LIBC
    out[0] = 0;
    d.workspace = NULL;
    d.workspace_bytes = 0;
    expect(attn_forward(&d, NULL) == ATTN_OK && out[0] == 2.5f, "attention with malloc");
#endif
    d.k.size[3] = 2;
    expect(attn_forward(&d, &error) == ATTN_ERR_SIZE && error.field[0] != 0, "a wrong size");
}

static void instruction_sets(void) {
    static const struct {
        int isa;
        const char *what;
    } left_out[] = {
#if defined(ATTN_NO_SIMD) || defined(ATTN_NO_AVX2)
        {ATTN_ISA_AVX2, "AVX2 was left out"},
#endif
#if defined(ATTN_NO_SIMD) || defined(ATTN_NO_AVX512)
        {ATTN_ISA_AVX512, "AVX-512 was left out"},
#endif
#if defined(ATTN_NO_SIMD) || defined(ATTN_NO_NEON)
        {ATTN_ISA_NEON, "NEON was left out"},
#endif
#if defined(ATTN_NO_SIMD) || defined(ATTN_NO_PORTABLE)
        {ATTN_ISA_PORTABLE, "the portable vectors were left out"},
#endif
#if defined(ATTN_NO_SIMD) || defined(ATTN_NO_RELAXED)
        {ATTN_ISA_RELAXED, "relaxed SIMD was left out"},
#endif
        {0, NULL}
    };
    float out[1];
    attn_desc d = average(out);
    int n;
    for (n = 0; left_out[n].what; n++) {
        d.isa = left_out[n].isa;
        expect(attn_forward(&d, NULL) == ATTN_ERR_ISA, left_out[n].what);
    }
    expect(attn_best_isa() >= ATTN_ISA_SCALAR, "the best instruction set");
    expect(attn_version() == ATTN_VERSION_NUMBER, "version");
    expect(strcmp(attn_isa_string(ATTN_ISA_SCALAR), "scalar") == 0, "name of an instruction set");
}

static void picture(void) {
#ifndef ATTN_NO_HEATMAP
    static const float cells[4] = {0, 1, 2, 3};
    static char text[4096];
    attn_buffer buffer;
    attn_heatmap map = {0};
    buffer.data = text;
    buffer.size = sizeof text;
    buffer.length = 0;
    map.values = attn_view_f32(cells, 2, 2, 2, 0, 0);
    map.terminal = ATTN_TERMINAL_ASCII;
    expect(attn_heatmap_ansi(&map, attn_buffer_writer(&buffer), NULL) == ATTN_OK && buffer.length > 0, "heatmap");
#endif
}

int main(void) {
    attention();
    instruction_sets();
    picture();
    if (failures == 0) printf("embed: ok\n");
    return failures != 0;
}
