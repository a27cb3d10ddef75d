/* A program that gets attn.h from a package: CMakeLists.txt and meson.build here say how. Compiled with
   ATTN_IMPLEMENTATION it brings the implementation, too; without, it is linked with it. */
#include <attn.h>
#include <stdio.h>

int main(void) {
    const float q[2] = {0, 0}, k[3 * 2] = {1, 2, 3, 4, 5, 6}, v[3] = {1, 2, 6}; /* all scores are 0 */
    float out[1] = {0};
    attn_desc d = {0};
    d.q = attn_view_bhsd(q, 1, 1, 1, 2);
    d.k = attn_view_bhsd(k, 1, 1, 3, 2);
    d.v = attn_view_bhsd(v, 1, 1, 3, 1);
    d.out = attn_out_bhsd(out, 1, 1, 1, 1);
    if (attn_forward(&d, NULL) != ATTN_OK || attn_version() != ATTN_VERSION_NUMBER) return 1;
    printf("attn.h %d.%d.%d: the mean of 1, 2 and 6 is %g\n", ATTN_VERSION_MAJOR, ATTN_VERSION_MINOR,
           ATTN_VERSION_PATCH, (double)out[0]);
    return out[0] != 3;
}
