/* heatmap.c - the pictures: well-formed, the right colours in the right places, every string escaped, every
   mistake refused before a byte is written. */
#include "page.h"

#include "test.h"

typedef attn_status (*draw_fn)(const attn_heatmap *, attn_writer, attn_error *);
enum { ANSI, SVG, PPM, HTML, LINES, KINDS };
static const draw_fn draws[KINDS] = {attn_heatmap_ansi, attn_heatmap_svg, attn_heatmap_ppm, attn_heatmap_html,
                                     attn_heatmap_lines_svg};

static attn_heatmap make_map(const float *data, int64_t rows, int64_t cols) {
    attn_heatmap m;
    memset(&m, 0, sizeof m);
    m.values = attn_view_f32(data, 2, rows, cols, 0, 0);
    return m;
}

/* The whole picture, drawn twice: for its size, then into a block of exactly that size. */
static char *draw(int kind, const attn_heatmap *m, size_t *length) {
    attn_buffer size = {NULL, 0, 0}, b = {NULL, 0, 0};
    attn_error err;
    CHECK_STATUS(draws[kind](m, attn_buffer_writer(&size), &err), ATTN_OK);
    CHECK(err.status == ATTN_OK && !*err.field && !*err.rule);
    b.size = size.length + 1;
    b.data = test_guarded(b.size);
    CHECK_STATUS(draws[kind](m, attn_buffer_writer(&b), NULL), ATTN_OK);
    CHECKF(b.length == size.length && b.data[b.length] == 0, "%zu bytes, the query said %zu", b.length, size.length);
    if (length) *length = b.length;
    return b.data;
}

static int same(int kind, const attn_heatmap *a, const attn_heatmap *b) {
    size_t na, nb;
    const char *x = draw(kind, a, &na), *y = draw(kind, b, &nb);
    return na == nb && !memcmp(x, y, na);
}

static int count(const char *s, const char *what) {
    int n = 0;
    for (; (s = strstr(s, what)) != NULL; s += strlen(what)) n++;
    return n;
}

/* ---- XML: a checker of well-formedness for what a picture may hold (no DTD, no comments, no CDATA) */

static int utf8_ok(const char *text) {
    const unsigned char *s = (const unsigned char *)text;
    while (*s) {
        unsigned c = *s++, more = c < 0x80 ? 0 : c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : 1;
        if (c >= 0x80 && (c < 0xC2 || c > 0xF4)) return 0;
        if (more) c &= 0x3Fu >> more;
        for (unsigned i = 0; i < more; i++, s++) {
            if ((*s & 0xC0) != 0x80) return 0;
            c = c * 64 + (*s & 63u);
        }
        if ((more == 2 && c < 0x800) || (more == 3 && c < 0x10000) || c > 0x10FFFF) return 0;
        if ((c < 32 && c != '\n' && c != '\t') || (c >= 0xD800 && c < 0xE000) || c == 0xFFFE || c == 0xFFFF) return 0;
    }
    return 1;
}

static const char *xml_reference(const char *s) { /* at & */
    static const char *const known[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&apos;"};
    for (int i = 0; i < 5; i++)
        if (!strncmp(s, known[i], strlen(known[i]))) return s + strlen(known[i]);
    const char *end = s + 2;
    if (s[1] != '#') return NULL;
    while (*end >= '0' && *end <= '9') end++;
    return end > s + 2 && *end == ';' ? end + 1 : NULL;
}

static size_t xml_name(const char *s) {
    return strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-");
}

static const char *xml_attributes(const char *s) { /* after the name; to the > or /> */
    const char *seen[32];
    int n = 0;
    for (;;) {
        const char *blank = s;
        while (*s == ' ' || *s == '\n') s++;
        if (*s == '>' || (*s == '/' && s[1] == '>')) return s;
        size_t length = xml_name(s);
        if (s == blank || !length || n == 32) return NULL;
        for (int i = 0; i < n; i++)
            if (!strncmp(seen[i], s, length + 1)) return NULL; /* twice */
        seen[n++] = s;
        s += length;
        if (*s != '=' || s[1] != '"') return NULL;
        for (s += 2; *s != '"';) {
            if (!*s || *s == '<') return NULL;
            s = *s == '&' ? xml_reference(s) : s + 1;
            if (!s) return NULL;
        }
        s++;
    }
}

/* NULL, or where it is not well-formed. */
static const char *xml_fault(const char *s) {
    const char *open[16];
    int depth = 0, roots = 0;
    if (!utf8_ok(s)) return s;
    while (*s) {
        const char *at = s;
        if (*s == '<' && s[1] == '/') {
            size_t n = xml_name(s += 2);
            if (!depth || n != xml_name(open[depth - 1]) || strncmp(open[depth - 1], s, n) || s[n] != '>') return at;
            depth--;
            s += n + 1;
        } else if (*s == '<') {
            size_t n = xml_name(++s);
            if (!n || depth == 16 || (!depth && roots++)) return at;
            open[depth++] = s;
            s = xml_attributes(s + n);
            if (!s) return at;
            if (*s++ == '/') {
                depth--;
                s++;
            }
        } else if (*s == '&') {
            s = depth ? xml_reference(s) : NULL;
            if (!s) return at;
        } else {
            if (!depth && *s != '\n') return at;
            s++;
        }
    }
    return depth || !roots ? s : NULL;
}

static void checker_itself(void) {
    static const char *const good[] = {"<a/>", "<a b=\"1\"><c>x &lt; &#65;</c></a>\n", "<a>\xC3\xA9</a>"};
    static const char *const bad[] = {"",
                                      "x",
                                      "<a>",
                                      "<a></b>",
                                      "<a/><a/>",
                                      "<a>&</a>",
                                      "<a>&x;</a>",
                                      "<a>&#;</a>",
                                      "<a b=1/>",
                                      "<a b=\"<\"/>",
                                      "<a b=\"&\"/>",
                                      "<a><</a>",
                                      "<a>\x01</a>",
                                      "<a>\xFF</a>",
                                      "<a>\xC0\xAF</a>",
                                      "<a>\xED\xA0\x80</a>",
                                      "<a b=\"1\" b=\"2\"/>",
                                      "<a b=\"1\"c=\"2\"/>",
                                      "<a>\xEF\xBF\xBE</a>"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) CHECKF(!xml_fault(good[i]), "%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) CHECKF(xml_fault(bad[i]) != NULL, "%s", bad[i]);
}

/* ---- what is in an SVG */

typedef struct {
    int x, y, w, h;
    unsigned rgb;
} rect;

/* The next cell at or after *s (rectangles with a number for a colour; the background has none). */
static int next_rect(const char **s, rect *r) {
    while ((*s = strstr(*s, "<rect x=")) != NULL) {
        int n = sscanf(*s, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#%6x\"", &r->x, &r->y, &r->w,
                       &r->h, &r->rgb);
        (*s)++;
        if (n == 5) return 1;
    }
    return 0;
}

typedef struct {
    char text[256], anchor[8];
    int x, y, angle;
} label;

static int next_label(const char **s, label *l) {
    const char *p = strstr(*s, "<text "), *anchor, *body;
    if (!p) return 0;
    memset(l, 0, sizeof *l);
    body = strchr(p, '>');
    anchor = strstr(p, "text-anchor=\"");
    if (sscanf(p, "<text x=\"%d\" y=\"%d\"", &l->x, &l->y) != 2)
        CHECK(sscanf(p, "<text transform=\"translate(%d %d) rotate(%d)\"", &l->x, &l->y, &l->angle) == 3);
    if (anchor && anchor < body) sscanf(anchor + 13, "%7[a-z]", l->anchor);
    sscanf(body + 1, "%255[^<]", l->text);
    *s = body;
    return 1;
}

static int find_label(const char *svg, const char *text, label *l) {
    while (next_label(&svg, l))
        if (!strcmp(l->text, text)) return 1;
    return 0;
}

/* ---- what is in a PPM */

typedef struct {
    int w, h;
    const unsigned char *data;
} image;

static image draw_ppm(const attn_heatmap *m) {
    image p = {0, 0, NULL};
    int head = 0;
    size_t length;
    const char *s = draw(PPM, m, &length);
    CHECK(sscanf(s, "P6\n%d %d\n255%n", &p.w, &p.h, &head) == 2 && s[head] == '\n');
    p.data = (const unsigned char *)s + head + 1;
    if (!CHECKF(length == (size_t)head + 1 + (size_t)p.w * (size_t)p.h * 3, "%d x %d in %zu bytes", p.w, p.h, length))
        p.w = p.h = 0;
    return p;
}

static unsigned pixel(const image *p, int x, int y) {
    const unsigned char *c;
    if (!CHECKF(x >= 0 && y >= 0 && x < p->w && y < p->h, "no pixel %d %d in %d x %d", x, y, p->w, p->h)) return 0;
    c = p->data + ((size_t)y * (size_t)p->w + (size_t)x) * 3;
    return (unsigned)c[0] << 16 | (unsigned)c[1] << 8 | c[2];
}

/* One pixel per cell. */
static image draw_cells(attn_heatmap m) {
    m.no_colorbar = 1;
    m.width = (int32_t)m.values.size[1];
    m.height = (int32_t)m.values.size[0];
    return draw_ppm(&m);
}

static int far_apart(unsigned a, unsigned b) {
    int d = 0;
    for (int c = 0; c < 24; c += 8) d += abs((int)(a >> c & 255) - (int)(b >> c & 255));
    return d;
}

/* ---- colours and ranges */

static const unsigned lowest[] = {0xFFF5F0, 0x440154, 0xFFFFFF, 0x004085}; /* what the maps of these names begin, */
static const unsigned middle[] = {0xFA6A4A, 0x21918C, 0x808080, 0xF5F5F5}; /* pass through and end with */
static const unsigned highest[] = {0x67000D, 0xFDE725, 0x000000, 0x791A16};

static double lightness(unsigned rgb) { return 0.3 * (rgb >> 16) + 0.59 * (rgb >> 8 & 255) + 0.11 * (rgb & 255); }

static void colours(void) {
    float x[101], y[4] = {0.0f, NAN, 1.0f, 0.5f};
    for (int i = 0; i <= 100; i++) x[i] = (float)i / 100;
    for (int c = 0; c < ATTN_COLORMAP_COUNT; c++) {
        attn_heatmap m = make_map(x, 1, 101);
        image p;
        unsigned nan;
        m.colormap = c;
        m.range_set = 1;
        m.range_max = 1;
        p = draw_cells(m);
        CHECK(p.w == 101 && p.h == 1);
        CHECKF(pixel(&p, 0, 0) == lowest[c], "map %d begins with %06x", c, pixel(&p, 0, 0));
        CHECKF(pixel(&p, 100, 0) == highest[c], "map %d ends with %06x", c, pixel(&p, 100, 0));
        CHECKF(far_apart(pixel(&p, 50, 0), middle[c]) <= 16, "map %d has %06x in the middle", c, pixel(&p, 50, 0));
        for (int i = 1; i <= 100; i++) { /* one step is a small one, and lightness goes one way, or up to the middle */
            unsigned a = pixel(&p, i - 1, 0), b = pixel(&p, i, 0);
            int up = c == ATTN_COLORMAP_VIRIDIS || (c == ATTN_COLORMAP_DIVERGING && i <= 50);
            CHECKF(far_apart(a, b) > 0 && far_apart(a, b) < 16, "map %d, step %d: %06x %06x", c, i, a, b);
            CHECKF(up == (lightness(b) > lightness(a)), "map %d, step %d: %06x %06x", c, i, a, b);
        }
        const char *stop = draw(SVG, &m, NULL), *from = stop;
        int at = -1, n = 0;
        for (unsigned rgb; (stop = strstr(stop, "<stop ")) != NULL; n++, stop++) { /* the bar says the same */
            CHECK(sscanf(stop, "<stop offset=\"%de-2\" stop-color=\"#%6x\"/>", &at, &rgb) == 2);
            CHECKF(at >= 0 && at <= 100 && far_apart(rgb, pixel(&p, at, 0)) < 10, "%06x at %d%%", rgb, at);
            CHECK(n || (at == 0 && rgb == lowest[c]));
            if (at == 100) CHECK(rgb == highest[c]);
        }
        CHECK(n >= 2 && at == 100 && count(from, "url(#") == 1);
        m.values.data = y;
        m.values.size[1] = 4;
        image q = draw_cells(m);
        nan = pixel(&q, 1, 0);
        for (int i = 0; i <= 100; i++) CHECK(far_apart(nan, pixel(&p, i, 0)) > 150);
    }
}

static void one_range(const float *x, int n, unsigned first, unsigned last) {
    attn_heatmap m = make_map(x, 1, n);
    image p = draw_cells(m);
    CHECKF(pixel(&p, 0, 0) == first, "%g is %06x", (double)x[0], pixel(&p, 0, 0));
    CHECKF(pixel(&p, n - 1, 0) == last, "%g is %06x", (double)x[n - 1], pixel(&p, n - 1, 0));
}

static void ranges(void) {
    const float some[5] = {-3, NAN, INFINITY, 2, 7}, ends[4] = {-INFINITY, 1, 2, INFINITY}, ones[2] = {1, 1};
    const float zeros[2] = {0, 0}, negative[2] = {-2, -2}, nothing[2] = {-INFINITY, INFINITY};
    const float huge[2] = {-3.4e38f, 3.4e38f}, tiny[2] = {0, 1e-44f}, close[2] = {1, 1.0000001f};
    const float clamped[5] = {-9, 0.25f, 0.5f, 0.75f, 9};
    const uint8_t bytes[3] = {3, 4, 250};
    attn_heatmap m;
    image p;
    one_range(some, 5, lowest[0], highest[0]);
    one_range(ends, 4, lowest[0], highest[0]);
    one_range(ones, 2, highest[0], highest[0]); /* one value alone is seen against 0 */
    one_range(zeros, 2, lowest[0], lowest[0]);
    one_range(negative, 2, lowest[0], lowest[0]);
    one_range(nothing, 2, lowest[0], highest[0]);
    one_range(huge, 2, lowest[0], highest[0]);
    one_range(tiny, 2, lowest[0], highest[0]);
    one_range(close, 2, lowest[0], highest[0]);
    m = make_map(clamped, 1, 5);
    m.colormap = ATTN_COLORMAP_GREY;
    m.range_set = 1;
    m.range_min = 0.25f;
    m.range_max = 0.75f;
    p = draw_cells(m);
    CHECK(pixel(&p, 0, 0) == 0xFFFFFF && pixel(&p, 1, 0) == 0xFFFFFF && pixel(&p, 2, 0) == 0x808080);
    CHECK(pixel(&p, 3, 0) == 0 && pixel(&p, 4, 0) == 0);
    m = make_map(NULL, 1, 3);
    m.values = attn_view_u8(bytes, 2, 1, 3, 0, 0);
    m.colormap = ATTN_COLORMAP_GREY;
    p = draw_cells(m);
    CHECK(pixel(&p, 0, 0) == 0xFFFFFF && pixel(&p, 1, 0) == 0xFEFEFE && pixel(&p, 2, 0) == 0);
}

/* Two sides: 0 is grey whatever the other values are, blue is below it and red above, x as dark as -x. The colours are
   those of a calculation by hand from the seven points, at -3, -2, -1, 0, 1, 2, 3. */
static void diverging(void) {
    static const float x[] = {-3, -2, -1, 0, 0.5f, 1.5f, -INFINITY, INFINITY, -2.5f};
    static const unsigned want[] = {0x004085, 0x2D71C7, 0x91B7EA, 0xF5F5F5, 0xEDCBC6,
                                    0xCF746A, 0x004085, 0x791A16, 0x1759A6};
    const float up[2] = {0, 4}, down[3] = {-4, 0, 2}, zeros[2] = {0, 0}, huge[3] = {-1, 0, 3.4e38f};
    static const uint8_t bytes[2] = {0, 200};
    float both[101];
    attn_heatmap m = make_map(x, 1, sizeof x / sizeof *x), n;
    attn_desc d;
    image p;
    m.colormap = ATTN_COLORMAP_DIVERGING;
    p = draw_cells(m);
    for (int i = 0; i < p.w; i++) CHECKF(pixel(&p, i, 0) == want[i], "%g is %06x", (double)x[i], pixel(&p, i, 0));
    n = m;
    n.range_set = 1;
    n.range_min = -3;
    n.range_max = 3;
    for (int kind = 0; kind < KINDS; kind++) CHECK(same(kind, &m, &n));
    n.range_min = -2; /* of a range that is set the middle is grey, here 0.5 */
    p = draw_cells(n);
    CHECK(pixel(&p, 4, 0) == 0xF5F5F5 && pixel(&p, 3, 0) != 0xF5F5F5 && pixel(&p, 1, 0) == lowest[3]);
    n = m;
    for (int i = 0; i <= 100; i++) both[i] = (float)(i - 50);
    n.values = attn_view_f32(both, 2, 1, 101, 0, 0);
    p = draw_cells(n);
    for (int i = 0; i < 50; i++) {
        unsigned a = pixel(&p, i, 0), b = pixel(&p, 100 - i, 0);
        CHECKF(fabs(lightness(a) - lightness(b)) < 3 && far_apart(a, b) > 2 * (50 - i), "%d: %06x %06x", i, a, b);
        CHECK((a >> 16) < (a & 255) && (b >> 16) > (b & 255));
    }
#define AT(view, i) (n = m, n.values = view, p = draw_cells(n), pixel(&p, i, 0))
    CHECK(AT(attn_view_f32(up, 2, 1, 2, 0, 0), 0) == 0xF5F5F5 && pixel(&p, 1, 0) == highest[3]);
    CHECK(AT(attn_view_f32(down, 2, 1, 3, 0, 0), 1) == 0xF5F5F5 && pixel(&p, 0, 0) == lowest[3]);
    CHECK(AT(attn_view_f32(zeros, 2, 1, 2, 0, 0), 0) == 0xF5F5F5 && pixel(&p, 1, 0) == 0xF5F5F5);
    CHECK(AT(attn_view_f32(huge, 2, 1, 3, 0, 0), 1) == 0xF5F5F5 && pixel(&p, 2, 0) == highest[3]);
    CHECK(AT(attn_view_u8(bytes, 2, 1, 2, 0, 0), 0) == 0xF5F5F5 && pixel(&p, 1, 0) == highest[3]);
#undef AT
    memset(&d, 0, sizeof d); /* a mask: all is kept */
    n = m;
    n.values = attn_view_u8(NULL, 4, 1, 1, 1, 2);
    n.mask_of = &d;
    n.width = 2;
    n.height = n.no_colorbar = 1;
    p = draw_ppm(&n);
    CHECK(pixel(&p, 0, 0) == highest[3]);
    n = m;
    n.terminal = ATTN_TERMINAL_ASCII; /* a sign and a shade of the size; none for 0 */
    n.values = attn_view_f32(x, 2, 1, 6, 0, 0);
    const char *s = draw(ANSI, &n, NULL);
    CHECKF(!strcmp(s, "0 -@-*-~  +:+o\n  0 1 2 3 4 5\n\n  -3.0 [-@-#-o-~-.+.+~+o+#+@] 3.0\n"), "%s", s);
}

/* ---- places */

/* 2 x 3 panels of 3 x 5 cells that all differ; 8 white pixels between panels and before the bar of 14. */
static void ppm_places(void) {
    enum { PR = 2, PC = 3, R = 3, C = 5, GAP = 8, BAR = 14, W = 60, H = 36 };
    float x[PR * PC * R * C] = {0};
    attn_heatmap m = make_map(x, 1, 1);
    image p, cells;
    for (int i = 0; i < PR * PC * R * C; i++) x[i] = (float)((i * 37) % (PR * PC * R * C));
    m.values = attn_view_f32(x, 2, PR * PC * R, C, 0, 0);
    cells = draw_cells(m);
    m.values = attn_view_f32(x, 4, PR, PC, R, C);
    m.width = PC * W + (PC - 1) * GAP + GAP + BAR;
    m.height = PR * H + (PR - 1) * GAP;
    m.title = m.x_label = m.y_label = "text is for the others";
    p = draw_ppm(&m);
    CHECKF(p.w == m.width && p.h == m.height, "%d x %d", p.w, p.h);
    for (int y = 0; y < p.h; y++) {
        for (int k = 0; k < p.w; k++) {
            int r = y / (H + GAP), i = y % (H + GAP) * R / H, c = k / (W + GAP), j = k % (W + GAP) * C / W;
            unsigned want = i < R && j < C && c < PC ? pixel(&cells, j, ((r * PC + c) * R) + i) : 0xFFFFFF;
            if (k >= p.w - BAR) continue;
            CHECKF(pixel(&p, k, y) == want, "pixel %d %d is %06x, not %06x", k, y, pixel(&p, k, y), want);
        }
        for (int k = 1; k < BAR; k++) CHECK(pixel(&p, p.w - 1 - k, y) == pixel(&p, p.w - 1, y));
    }
    CHECK(pixel(&p, p.w - 1, 0) == highest[0] && pixel(&p, p.w - 1, p.h - 1) == lowest[0]);
    m.width = m.height = 0; /* by the number of cells, square */
    m.no_colorbar = 1;
    p = draw_ppm(&m);
    CHECKF((p.w - 2 * GAP) % (PC * C) == 0 && (p.w - 2 * GAP) / (PC * C) == (p.h - GAP) / (PR * R), "%d x %d", p.w,
           p.h);
    m.values = attn_view_f32(x, 2, 6, 15, 0, 0);
    m.width = 150;
    p = draw_ppm(&m);
    CHECKF(p.w == 150 && p.h == 60, "%d x %d", p.w, p.h);
    m.width = 0;
    m.height = 12;
    p = draw_ppm(&m);
    CHECKF(p.w == 30 && p.h == 12, "%d x %d", p.w, p.h);
    m.width = 10; /* fewer pixels than cells */
    p = draw_ppm(&m);
    CHECKF(p.w == 10 && p.h == 12, "%d x %d", p.w, p.h);
}

/* Every pixel of a panel belongs to one rectangle, of the colour that the PPM has there. */
static void svg_places(void) {
    enum { N = 70, SIDE = 700 };
    float x[N * N] = {0};
    static unsigned seen[SIDE][SIDE];
    attn_heatmap m = make_map(x, N, N);
    for (int i = 0; i < N * N; i++) x[i] = (float)(test_int(0, 3) == 0 ? test_uniform() : i / N % 2);
    for (int round = 0; round < 3; round++) {
        const char *s;
        rect r;
        int x0 = 9999, y0 = 9999, x1 = 0, y1 = 0;
        memset(seen, 0xFF, sizeof seen);
        m.width = round == 0 ? 0 : round == 1 ? 391 : 90; /* the last has more cells than pixels */
        m.height = round == 0 ? 0 : round == 1 ? 277 : 77;
        m.no_colorbar = 1;
        s = draw(SVG, &m, NULL);
        while (next_rect(&s, &r)) {
            x0 = r.x < x0 ? r.x : x0;
            y0 = r.y < y0 ? r.y : y0;
            x1 = r.x + r.w > x1 ? r.x + r.w : x1;
            y1 = r.y + r.h > y1 ? r.y + r.h : y1;
            if (!CHECK(r.x >= 0 && r.y >= 0 && r.w > 0 && r.h > 0 && r.x + r.w <= SIDE && r.y + r.h <= SIDE)) return;
            for (int b = r.y; b < r.y + r.h; b++)
                for (int a = r.x; a < r.x + r.w; a++) {
                    CHECKF(seen[b][a] == 0xFFFFFFFF, "pixel %d %d is drawn twice", a, b);
                    seen[b][a] = r.rgb;
                }
        }
        m.width = x1 - x0;
        m.height = y1 - y0;
        image p = draw_ppm(&m);
        for (int b = 0; b < p.h; b++)
            for (int a = 0; a < p.w; a++)
                CHECKF(seen[y0 + b][x0 + a] == pixel(&p, a, b), "pixel %d %d: %06x and %06x", a, b,
                       seen[y0 + b][x0 + a], pixel(&p, a, b));
    }
}

/* In large maps equal neighbours are one rectangle; a cell is never less than a pixel unless asked for. */
static void large_maps(void) {
    static float x[1000];
    attn_heatmap m = make_map(x, 60, 60);
    image p;
    rect r;
    const char *s;
    int n = 0;
    m.values.stride[0] = m.values.stride[1] = 0;
    m.no_colorbar = 1;
    for (s = draw(SVG, &m, NULL); next_rect(&s, &r); n++) CHECK(r.w > 60 && r.w % 60 == 0);
    CHECKF(n == 60, "%d rectangles", n);
    m = make_map(x, 1, 1000);
    m.no_colorbar = 1;
    p = draw_ppm(&m);
    CHECKF(p.w == 1000 && p.h == 1, "%d x %d", p.w, p.h);
    m.width = 32767;
    m.height = 1;
    p = draw_ppm(&m);
    CHECKF(p.w == 32767 && p.h == 1, "%d x %d", p.w, p.h);
    m = make_map(x, 1, 0);
    m.no_colorbar = 1;
    p = draw_ppm(&m);
    CHECKF(p.w == 1 && p.h >= 1, "%d x %d", p.w, p.h);
}

/* Small maps: one rectangle per cell with one pixel between them, and the label of a row or column at its middle. */
static void svg_cells(void) {
    enum { R = 3, C = 4 };
    static const char *const rows[R] = {"one", "two", "three"}, *const cols[C] = {"a", "b", "c", "d"};
    static const char *const words[C] = {"incomprehensible", "b", "extraordinary", NULL};
    float x[R * C] = {0};
    attn_heatmap m = make_map(x, R, C);
    rect r[R * C], spare;
    label l;
    for (int i = 0; i < R * C; i++) x[i] = (float)i;
    for (int top = 0; top < 2; top++) {
        const char *svg, *s;
        image p;
        int n = 0, below, low;
        m.ticks_on_top = top;
        m.y_ticks = rows;
        m.x_ticks = cols;
        s = svg = draw(SVG, &m, NULL);
        while (n < R * C && next_rect(&s, &r[n])) n++;
        if (!CHECK(n == R * C && !next_rect(&s, &spare))) return;
        p = draw_cells(m);
        for (int i = 0; i < R * C; i++) {
            CHECK(r[i].rgb == pixel(&p, i % C, i / C));
            if (i % C) CHECK(r[i].x == r[i - 1].x + r[i - 1].w + 1 && r[i].y == r[i - 1].y);
            if (i >= C) CHECK(r[i].y == r[i - C].y + r[i - C].h + 1 && r[i].x == r[i - C].x);
        }
        for (int i = 0; i < R; i++) {
            CHECK(find_label(svg, rows[i], &l) && !strcmp(l.anchor, "end") && l.x < r[0].x);
            CHECKF(l.y > r[i * C].y && l.y < r[i * C].y + r[i * C].h, "%s at %d", rows[i], l.y);
        }
        for (int j = 0; j < C; j++) {
            CHECK(find_label(svg, cols[j], &l) && !strcmp(l.anchor, "middle") && l.angle == 0);
            CHECKF(abs(l.x - r[j].x - r[j].w / 2) <= 1, "%s at %d", cols[j], l.x);
            below = l.y > r[R * C - 1].y + r[R * C - 1].h;
            CHECK(top ? l.y < r[0].y : below);
        }
        m.x_label = "title";
        m.x_ticks = words; /* long words stand slanted; one that is absent leaves its place empty */
        s = svg = draw(SVG, &m, NULL);
        for (n = 0; n < R * C && next_rect(&s, &r[n]);) n++;
        CHECK(find_label(svg, "extraordinary", &l) && l.angle == -45 && !strcmp(l.anchor, top ? "start" : "end"));
        CHECK(abs(l.x - r[2].x - r[2].w / 2) <= 6);
        low = l.y + (top ? -1 : 1) * (int)strlen(words[0]) * 21 / 5; /* where the longest one ends */
        CHECK(find_label(svg, "title", &l) && (top ? l.y < low : l.y - 9 > low));
        CHECK(find_label(svg, "extraordinary", &l));
        CHECK(top ? l.y < r[0].y : l.y > r[R * C - 1].y + r[R * C - 1].h);
        m.x_label = NULL;
        m.x_ticks = m.y_ticks = NULL; /* numbers */
        svg = draw(SVG, &m, NULL);
        CHECK(find_label(svg, "3", &l) && l.angle == 0);
    }
}

/* Titles, labels and the bar stay inside the picture, whose size is what was asked for. */
static void svg_size(void) {
    float x[40] = {0};
    static const char *const titles[2] = {"a panel with quite a title", "b"};
    for (int i = 0; i < 40; i++) x[i] = (float)i;
    for (int round = 0; round < 8; round++) {
        attn_heatmap m = make_map(x, 4, 5);
        const char *svg, *s;
        int w = 0, h = 0;
        label l;
        m.values = attn_view_f32(x, 3, 2, 4, 5, 0);
        m.title = "A title that is longer than all the panels together would ever be wide, by far";
        m.x_label = "keys";
        m.y_label = "A title of the rows that is longer than the panels are high";
        m.panel_titles = titles;
        m.ticks_on_top = round & 1;
        m.width = round & 2 ? 333 : 0;
        m.height = round & 4 ? 222 : 0;
        s = svg = draw(SVG, &m, NULL);
        CHECK(sscanf(svg, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\"", &w, &h) == 2);
        CHECKF(w > 0 && h > 0 && (!m.width || w == m.width) && (!m.height || h == m.height), "%d x %d", w, h);
        while (next_label(&s, &l)) {
            int wide = (int)strlen(l.text) * (strcmp(l.text, m.title) ? 6 : 8);
            int from = !strcmp(l.anchor, "middle") ? wide / 2 : !strcmp(l.anchor, "end") ? wide : 0;
            int low = l.angle ? l.y + from - wide : l.x - from, high = l.angle ? l.y + from : l.x - from + wide;
            CHECKF(low >= 0 && high <= (l.angle ? h : w), "'%s' from %d to %d in %d x %d", l.text, low, high, w, h);
            CHECK(l.x > 0 && l.x < w && l.y > 0 && l.y < h);
        }
        if (!m.width) CHECK(find_label(svg, m.title, &l) && find_label(svg, titles[0], &l));
        if (!m.height) CHECK(find_label(svg, m.y_label, &l) && l.angle == -90);
        CHECK(find_label(svg, "keys", &l) && l.angle == 0);
    }
}

/* The numbers at the bar: three to six, evenly spaced, in the range, at their places, short. */
static void one_bar(float low, float high) {
    float x[2] = {low, high};
    attn_heatmap m = make_map(x, 2, 1);
    const char *svg, *s;
    label l;
    double value[16];
    int y[16], n = 0, left = 0, top = -1, width = 0, height = 0;
    m.height = 500;
    m.x_label = "."; /* not a number */
    s = svg = draw(SVG, &m, NULL);
    CHECK((s = strstr(svg, "fill=\"url(")) != NULL);
    while (s && s > svg && *s != '<') s--;
    CHECK(s && sscanf(s, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"", &left, &top, &width, &height) == 4);
    for (s = svg; n < 16 && next_label(&s, &l);)
        if (!strcmp(l.anchor, "start")) {
            char *end;
            value[n] = strtod(l.text, &end);
            y[n++] = l.y;
            CHECK(l.x > left + width && l.x < left + width + 10);
            CHECKF(!*end && strlen(l.text) < 13, "'%s'", l.text);
        }
    CHECKF(n >= 3 && n <= 6, "%d ticks for %g..%g", n, (double)low, (double)high);
    for (int i = 0; i < n; i++) {
        double part = (value[i] - low) / ((double)high - low);
        CHECKF(part >= -0.001 && part <= 1.001, "%.9g in %g..%g", value[i], (double)low, (double)high);
        CHECK_CLOSE(y[i], top + height * (1 - part) + 4, 1.5);
        if (i > 1) CHECK_CLOSE((value[i] - value[i - 1]) / (value[1] - value[0]), 1, 1e-6);
    }
}

static void bar_ticks(void) {
    static const char *const unit[] = {"0.0", "0.2", "0.4", "0.6", "0.8", "1.0"}, *const large[] = {"0", "2e8", "1e9"};
    static const char *const small[] = {"0", "2e-8", "1e-7"}, *const both[] = {"-4", "-2", "0", "2", "4"};
    struct {
        float low, high;
        const char *const *want;
        int n;
    } set[] = {{0, 1, unit, 6}, {0, 1e9f, large, 3}, {0, 1.0001e-7f, small, 3}, {-5, 5, both, 5}};
    float x[2] = {0};
    label l;
    for (int i = 0; i < 4; i++) {
        attn_heatmap m = make_map(x, 2, 1);
        const char *svg;
        x[0] = set[i].low;
        x[1] = set[i].high;
        m.height = 500;
        svg = draw(SVG, &m, NULL);
        for (int k = 0; k < set[i].n; k++) CHECKF(find_label(svg, set[i].want[k], &l), "%s", set[i].want[k]);
        one_bar(x[0], x[1]);
    }
    one_bar(-3e38f, 3e38f);
    one_bar(0, 1e-44f);
    one_bar(1000000, 1000001);
    for (int i = 0; i < 310; i++) {
        float low = (float)(test_normal() * pow(10, test_int(-30, 30)));
        float high = low + (float)(fabs((double)low) * (test_uniform() + 1e-3) * pow(10, test_int(-2, 2)));
        if (low < high) one_bar(low, high);
    }
}

static void no_bar(void) {
    float x[4] = {0, 1, 2, NAN};
    attn_heatmap m = make_map(x, 2, 2);
    label l;
    CHECK(find_label(draw(SVG, &m, NULL), "NaN", &l)); /* the bar says what the colour of NaN is */
    CHECK(strstr(draw(ANSI, &m, NULL), "NaN") != NULL);
    m.no_colorbar = 1;
    CHECK(!find_label(draw(SVG, &m, NULL), "NaN", &l) && !strstr(draw(SVG, &m, NULL), "url("));
    CHECK(!strstr(draw(ANSI, &m, NULL), "NaN"));
    m.no_colorbar = 0;
    x[3] = INFINITY;
    CHECK(!find_label(draw(SVG, &m, NULL), "NaN", &l) && !strstr(draw(ANSI, &m, NULL), "NaN"));
}

/* Numbers in the cells are the values, in an ink that can be read. */
static void numbers(void) {
    enum { R = 5, C = 4 };
    float x[R * C] = {0};
    for (int round = 0; round < 40; round++) {
        double scale = pow(10, test_int(-12, 12)), low = 0, high = 0;
        attn_heatmap m = make_map(x, R, C), shades;
        const char *s;
        int n = 0;
        for (int i = 0; i < R * C; i++) {
            x[i] = i == 3 ? NAN : i == 5 ? -INFINITY : (float)(scale * test_normal());
            if (i != 3 && i != 5) low = x[i] < low ? x[i] : low, high = x[i] > high ? x[i] : high;
        }
        m.numbers = 1;
        m.no_colorbar = 1;
        for (s = draw(SVG, &m, NULL); (s = strstr(s, "<rect x=\"")) != NULL; s++) {
            unsigned paper, ink;
            int wide;
            char text[32];
            if (sscanf(s,
                       "<rect x=\"%*d\" y=\"%*d\" width=\"%d\" height=\"%*d\" fill=\"#%6x\"/>\n<text x=\"%*d\" "
                       "y=\"%*d\" fill=\"#%6x\">%31[^<]",
                       &wide, &paper, &ink, text) != 4)
                continue;
            CHECKF(wide >= 7 * (int)strlen(text), "'%s' in %d pixels", text, wide);
            CHECKF(far_apart(paper, ink) > 200, "%06x on %06x", ink, paper);
            if (n < R * C) CHECK_CLOSE(strtod(text, NULL), (double)x[n], (high - low) / 50);
            n++;
        }
        CHECKF(n == R * C, "%d numbers", n);
        s = draw(ANSI, &m, NULL);
        n = 0;
        for (; (s = strstr(s, "\033[38;5;")) != NULL; n++) {
            s = strchr(s, 'm') + 1;
            if (n < R * C) CHECK_CLOSE(strtod(s, NULL), (double)x[n], (high - low) / 50);
        }
        CHECKF(n == R * C, "%d numbers", n);
        m.terminal = ATTN_TERMINAL_ASCII; /* shades always */
        shades = m;
        shades.numbers = 0;
        CHECK(same(ANSI, &m, &shades));
    }
}

/* Values far outside the range of the colours are numbers, too. */
static void numbers_outside(void) {
    float x[4] = {3e38f, -3e38f, 12345678, 0.5f};
    attn_heatmap m = make_map(x, 1, 4);
    const char *s;
    m.numbers = m.range_set = 1;
    m.range_max = 1;
    s = draw(ANSI, &m, NULL);
    for (int i = 0; i < 4; i++) {
        s = strstr(s, "\033[38;5;");
        if (!CHECK(s != NULL)) return;
        s = strchr(s, 'm') + 1;
        CHECK_CLOSE(strtod(s, NULL) / (double)x[i], 1, 1e-6);
    }
}

/* ---- strings */

/* Labels are data: no byte of them may act as markup or as a terminal's command. */
static void escaping(void) {
    static const struct {
        const char *raw, *svg, *terminal;
    } set[] = {
        {"a<b>&\"c\"'", "a&#60;b&#62;&#38;&#34;c&#34;&#39;", "a<b>&\"c\"'"},
        {"&amp;", "&#38;amp;", "&amp;"},
        {"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80",
         "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"},
        {"tab\tline\nend", "tab line end", "tab line end"},
        {"x\033[2Jy\x01\x7F", "x\xEF\xBF\xBD[2Jy\xEF\xBF\xBD\xEF\xBF\xBD", "x\xEF\xBF\xBD[2Jy\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xFFz", "\xEF\xBF\xBDz", "\xEF\xBF\xBDz"},                             /* no such byte */
        {"\xC3", "\xEF\xBF\xBD", "\xEF\xBF\xBD"},                                /* cut short by the end */
        {"\xE2\x82z", "\xEF\xBF\xBDz", "\xEF\xBF\xBDz"},                         /* cut short by a letter */
        {"\xC0\xAFz", "\xEF\xBF\xBD\xEF\xBF\xBDz", "\xEF\xBF\xBD\xEF\xBF\xBDz"}, /* longer than needed */
        {"\xE0\x80\xAFz", "\xEF\xBF\xBDz", "\xEF\xBF\xBDz"},
        {"\xF0\x80\x80\xAFz", "\xEF\xBF\xBDz", "\xEF\xBF\xBDz"},
        {"\xED\xA0\x80z", "\xEF\xBF\xBDz", "\xEF\xBF\xBDz"},     /* half a surrogate pair */
        {"\xF4\x90\x80\x80z", "\xEF\xBF\xBDz", "\xEF\xBF\xBDz"}, /* beyond the last code point */
        {"\xEF\xBF\xBEz", "\xEF\xBF\xBDz", "\xEF\xBF\xBDz"},     /* not a character */
        {"\xC2\x9B", "\xEF\xBF\xBD", "\xEF\xBF\xBD"},            /* a terminal's command in one code point */
        {"\xF4\x8F\xBF\xBDz\xE0\xA0\x80\xC2\xA0", "\xF4\x8F\xBF\xBDz\xE0\xA0\x80\xC2\xA0",
         "\xF4\x8F\xBF\xBDz\xE0\xA0\x80\xC2\xA0"},
    };
    float x[2] = {0, 1};
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        for (int place = 0; place < 6; place++) {
            attn_heatmap m = make_map(x, 1, 1);
            const char *one[1], *s;
            char body[64];
            one[0] = set[i].raw;
            if (place == 0) m.title = one[0];
            if (place == 1) m.x_label = one[0];
            if (place == 2) m.y_label = one[0];
            if (place == 3) m.x_ticks = one;
            if (place == 4) m.y_ticks = one;
            if (place == 5) m.panel_titles = one;
            snprintf(body, sizeof body, ">%s</text>", set[i].svg);
            s = draw(SVG, &m, NULL);
            CHECKF(!xml_fault(s) && strstr(s, body), "string %zu at place %d", i, place);
            snprintf(body, sizeof body, " role=\"img\" aria-label=\"%s\">", place ? "Heatmap" : set[i].svg);
            CHECKF(strstr(s, body), "the alternative text of string %zu at place %d", i, place);
            s = draw(ANSI, &m, NULL);
            CHECKF(utf8_ok(set[i].terminal) && strstr(s, set[i].terminal), "string %zu at place %d", i, place);
            CHECK(count(s, "\033") == count(s, "\033[48;2;") + count(s, "\033[0m"));
            snprintf(body, sizeof body, ">%s<", set[i].svg);
            s = draw(HTML, &m, NULL);
            CHECKF(utf8_ok(s) && strstr(s, body), "string %zu at place %d", i, place);
            s = draw(LINES, &m, NULL);
            CHECKF(!xml_fault(s) && strstr(s, body), "string %zu at place %d", i, place);
        }
    }
}

static int write_code(char *to, unsigned c) { /* as UTF-8, from two bytes up; how many */
    int n = 0;
    if (c >= 0x10000) to[n++] = (char)(0xF0 | c >> 18), to[n++] = (char)(0x80 | (c >> 12 & 63));
    else if (c >= 0x800) to[n++] = (char)(0xE0 | c >> 12);
    to[n++] = (char)(c >= 0x800 ? 0x80 | (c >> 6 & 63) : 0xC0 | c >> 6);
    to[n++] = (char)(0x80 | (c & 63));
    to[n] = 0;
    return n;
}

/* Controls of the writing direction would let a label rearrange what stands beside it. */
static void directions(void) {
    static const unsigned first[] = {0x61C, 0x200E, 0x202A, 0x2066}, last[] = {0x61C, 0x200F, 0x202E, 0x2069};
    float x[2] = {0, 1};
    for (int i = 0; i < 4; i++)
        for (unsigned c = first[i] - 1; c <= last[i] + 1; c++) {
            const int replaced = c >= first[i] && c <= last[i];
            attn_heatmap m = make_map(x, 1, 1);
            char text[16] = "a", want[16] = "a";
            const char *one[1] = {text};
            strcpy(text + 1 + write_code(text + 1, c), "b");
            strcpy(want + 1 + write_code(want + 1, replaced ? 0xFFFD : c), "b");
            m.title = m.x_label = m.y_label = text;
            m.x_ticks = m.y_ticks = m.panel_titles = one;
            CHECKF(count(draw(SVG, &m, NULL), want) == 7, "U+%04X in an SVG", c); /* the title twice */
            CHECKF(count(draw(ANSI, &m, NULL), want) == 6, "U+%04X on a terminal", c);
        }
}

/* A long label is cut, by code points, with an ellipsis. */
static void long_labels(void) {
    char name[1000] = "", want[200] = "";
    const char *one[1] = {name};
    float x[1] = {1};
    attn_heatmap m = make_map(x, 1, 1);
    label l;
    for (int i = 0; i < 100; i++) strcat(name, "\xC3\xA9");
    for (int i = 0; i < 31; i++) strcat(want, "\xC3\xA9");
    m.y_ticks = one;
    strcat(want, "\xE2\x80\xA6");
    CHECK(find_label(draw(SVG, &m, NULL), want, &l));
    CHECK(count(draw(ANSI, &m, NULL), want) == 1);
    name[64] = 0; /* 32 fit */
    CHECK(find_label(draw(SVG, &m, NULL), name, &l));
    m.terminal = ATTN_TERMINAL_ASCII;
    memset(name, 'x', 40);
    CHECK(strstr(draw(ANSI, &m, NULL), "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx~ ") != NULL);
}

/* ---- the terminal */

/* Columns that a line takes, without the commands for colours; East Asian letters take two. */
static int columns(const char *s, const char *end) {
    int n = 0;
    for (; s < end; s++) {
        if (*s == '\033') s = strchr(s, 'm');
        else if (((unsigned char)*s & 0xC0) != 0x80) n += (unsigned char)*s >= 0xE3 ? 2 : 1;
    }
    return n;
}

static const char *line_of(const char *text, const char *at) {
    while (at > text && at[-1] != '\n') at--;
    return at;
}

/* Every word stands whole over or under its column, two columns to a cell, and to the left of its row. */
static void terminal_words(void) {
    enum { R = 3, C = 5 };
    static const char *const rows[R] = {"L", "\303\251conomique", "\xE7\xBB\x8F\xE6\xB5\x8E"};
    static const char *const cols[C] = {"The", "agreement", "signed", "zone\xC3\xA9", "1992"};
    float x[R * C] = {0};
    for (int i = 0; i < R * C; i++) x[i] = (float)i;
    for (int kind = 0; kind < ATTN_TERMINAL_COUNT * 2; kind++) {
        attn_heatmap m = make_map(x, R, C);
        const char *s, *row[R], *at;
        m.terminal = kind / 2;
        m.ticks_on_top = kind % 2;
        m.x_ticks = cols;
        m.y_ticks = rows;
        s = draw(ANSI, &m, NULL);
        for (int i = 0; i < R; i++) {
            row[i] = strstr(s, rows[i]);
            if (!CHECK(row[i] != NULL)) return;
            at = row[i] + strlen(rows[i]);
            CHECKF(columns(line_of(s, at), at) == 10 && *at == ' ', "%s ends at %d", rows[i],
                   columns(line_of(s, at), at));
            CHECKF(columns(line_of(s, at), strchr(at, '\n')) == 11 + 2 * C, "row %d", i);
        }
        for (int j = 0; j < C; j++) {
            at = strstr(s, cols[j]);
            if (!CHECK(at != NULL)) return;
            CHECKF(columns(line_of(s, at), at) == 11 + 2 * j, "%s at %d", cols[j], columns(line_of(s, at), at));
            CHECK(m.ticks_on_top ? at < row[0] : at > row[R - 1]);
        }
    }
}

/* How many columns letters take: the rows below each other must align. */
static void letter_widths(void) {
    static const struct {
        unsigned code;
        int width;
    } set[] = {{0x2FF, 1},  {0x300, 0},  {0x36F, 0},  {0x370, 1},   {0x10FF, 1},  {0x1100, 2},  {0x115F, 2},
               {0x1160, 1}, {0x200A, 1}, {0x200B, 0}, {0x200D, 0},  {0x2010, 1},  {0x2E7F, 1},  {0x2E80, 2},
               {0xA4CF, 2}, {0xA4D0, 1}, {0xABFF, 1}, {0xAC00, 2},  {0xD7A3, 2},  {0xD7A4, 1},  {0xF8FF, 1},
               {0xF900, 2}, {0xFAFF, 2}, {0xFB00, 1}, {0xFDFF, 1},  {0xFE00, 0},  {0xFE0F, 0},  {0xFEFF, 1},
               {0xFF00, 2}, {0xFF60, 2}, {0xFF61, 1}, {0x1F2FF, 1}, {0x1F300, 2}, {0x1FAFF, 2}, {0x1FB00, 1}};
    float x[2] = {0, 1};
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        attn_heatmap m = make_map(x, 2, 1);
        char letter[8];
        const char *rows[2], *second;
        unsigned c = set[i].code;
        write_code(letter, c);
        rows[0] = "wide";
        rows[1] = letter;
        m.y_ticks = rows;
        second = strchr(draw(ANSI, &m, NULL), '\n') + 1;
        CHECKF((int)strspn(second, " ") == 4 - set[i].width, "U+%04X", c);
        CHECK(!strncmp(second + strspn(second, " "), letter, strlen(letter)));
    }
}

/* A label that is cut where a letter of two columns would have to be halved takes as many columns as the others. */
static void cut_letters(void) {
    enum { N = 4, LETTER = 3 }; /* bytes */
    static const char wide[] = "\xE7\xBB\x8F";
    char names[N][LETTER * 40 + 2] = {"", "x", "", "x"};
    const char *rows[N], *s, *at;
    float x[N] = {0, 1, 2, 3};
    for (int i = 0; i < N; i++) {
        rows[i] = names[i];
        for (int k = 0; k < 15 + i / 2 * 20; k++) strcat(names[i], wide); /* 30 and 31 columns, 70 and 71 */
    }
    for (int terminal = 0; terminal < ATTN_TERMINAL_COUNT; terminal++) {
        attn_heatmap m = make_map(x, N, 1);
        m.terminal = terminal;
        m.no_colorbar = 1;
        m.y_ticks = rows;
        s = draw(ANSI, &m, NULL);
        for (int i = 0; i < N; i++, s = strchr(s, '\n') + 1) {
            CHECKF(columns(s, strchr(s, '\n')) == 32 + 1 + 2, "row %d has %d columns", i, columns(s, strchr(s, '\n')));
            at = i < 2 ? s + strspn(s, " ") : s;
            CHECKF(!strncmp(at, names[i], LETTER) && columns(s, at) == (i < 2 ? 2 - i : 0), "row %d", i);
        }
        m = make_map(x, 1, 2); /* two panels of one cell below titles that are cut */
        m.values = attn_view_f32(x, 3, 2, 1, 1, 0);
        m.terminal = terminal;
        m.panel_titles = rows + 2;
        s = draw(ANSI, &m, NULL);
        at = strstr(s, names[1]);
        CHECKF(at && columns(s, at) == 2 + 32 + 2, "the second title is at %d", at ? columns(s, at) : -1);
    }
}

/* Where there is no room for all labels, those that are left stand at their places and apart from each other. */
static void thinned_labels(void) {
    enum { COLS = 230 };
    static float x[COLS];
    static char names[COLS][16];
    const char *ticks[COLS];
    for (int i = 0; i < COLS; i++) {
        snprintf(names[i], sizeof names[i], "word-of-%d", i);
        ticks[i] = names[i];
    }
    for (int words = 0; words < 2; words++) {
        attn_heatmap m = make_map(x, 1, COLS);
        const char *s, *line, *end;
        label l;
        int n = 0, last = -1000, lines = 0, skip = words ? 8 : 0; /* "word-of-" */
        m.x_ticks = words ? ticks : NULL;
        m.no_colorbar = 1;
        for (s = draw(SVG, &m, NULL); next_label(&s, &l); n++) {
            if (!strcmp(l.anchor, "end") && !l.angle) continue; /* the row's */
            CHECKF(l.x - last > (l.angle ? 14 : 7 * (int)strlen(l.text)), "%s at %d after %d", l.text, l.x, last);
            last = l.x;
        }
        CHECKF(n > 8 && n < COLS, "%d labels", n);
        s = draw(ANSI, &m, NULL);
        for (line = strchr(s, '\n') + 1; *line; line = end + 1, lines++) {
            const char *p = end = strchr(line, '\n');
            while (p > line && p[-1] != ' ') p--;
            CHECKF(columns(line, p) == 2 + 2 * atoi(p + skip), "%.5s at %d", p, columns(line, p));
        }
        CHECKF(words ? lines > 8 && lines <= 48 : lines == 1, "%d lines", lines);
    }
}

/* The colours of the cells, command by command; shades where there are none. */
static void terminal_cells(void) {
    float x[5] = {0, 0.5f, 1, NAN, INFINITY};
    attn_heatmap m = make_map(x, 1, 5);
    const char *s;
    m.colormap = ATTN_COLORMAP_GREY;
    m.no_colorbar = 1;
    s = draw(ANSI, &m, NULL);
    CHECKF(!strncmp(s,
                    "0 \033[48;2;255;255;255m  \033[48;2;128;128;128m  \033[48;2;0;0;0m  \033[48;2;255;0;255m  "
                    "\033[48;2;0;0;0m  \033[0m\n",
                    88),
           "%s", s);
    m.terminal = ATTN_TERMINAL_256;
    s = draw(ANSI, &m, NULL);
    CHECKF(!strncmp(s, "0 \033[48;5;231m  \033[48;5;244m  \033[48;5;16m  \033[48;5;201m  \033[48;5;16m  \033[0m\n", 64),
           "%s", s);
    m.terminal = ATTN_TERMINAL_ASCII;
    m.title = "title";
    m.x_label = "keys";
    m.y_label = "queries";
    s = draw(ANSI, &m, NULL);
    CHECKF(!strcmp(s, "title\nrows: queries\ncolumns: keys\n0   ++@@??@@\n  0 1 2 3 4\n"), "%s", s);
    m.no_colorbar = 0;
    m.ticks_on_top = 1;
    s = draw(ANSI, &m, NULL);
    CHECKF(!strcmp(s, "title\nrows: queries\ncolumns: keys\n  0 1 2 3 4\n0   ++@@??@@\n\n  0.00 [  ..::--==++**##%%@@] "
                      "1.00   ?? NaN\n"),
           "%s", s);
    for (const char *c = s; *c; c++) CHECK((unsigned char)*c < 0x80 && *c != '\033');
}

/* Each palette entry is the nearest of the 240 to what the true colours say. */
static void terminal_256(void) {
    float x[64] = {0};
    for (int i = 0; i < 64; i++) x[i] = (float)(i - 32);
    for (int c = 0; c < ATTN_COLORMAP_COUNT; c++) {
        attn_heatmap m = make_map(x, 1, 64);
        const char *a, *b;
        m.colormap = c;
        m.no_colorbar = 1;
        a = draw(ANSI, &m, NULL);
        m.terminal = ATTN_TERMINAL_256;
        b = draw(ANSI, &m, NULL);
        for (int i = 0; i < 64; i++) {
            int rgb[3] = {0, 0, 0}, entry = 0;
            long best = 1L << 30, ours = 1L << 30;
            a = strstr(a + 1, "\033[48");
            b = strstr(b + 1, "\033[48");
            if (!CHECK(a && b && sscanf(a, "\033[48;2;%d;%d;%dm", &rgb[0], &rgb[1], &rgb[2]) == 3)) return;
            CHECK(sscanf(b, "\033[48;5;%dm", &entry) == 1 && entry >= 16 && entry < 256);
            for (int k = 16; k < 256; k++) {
                static const int cube[6] = {0, 95, 135, 175, 215, 255};
                int q = k - 16, grey = 8 + 10 * (k - 232);
                int e[3] = {cube[q / 36 % 6], cube[q / 6 % 6], cube[q % 6]};
                long d = 0;
                for (int t = 0; t < 3; t++) {
                    long step = rgb[t] - (k < 232 ? e[t] : grey);
                    d += step * step;
                }
                best = d < best ? d : best;
                if (k == entry) ours = d;
            }
            CHECKF(ours == best, "%d for %d %d %d", entry, rgb[0], rgb[1], rgb[2]);
        }
    }
}

/* ---- panels, views, masks */

static void panels(void) {
    static const char *const titles[6] = {"Head 1", NULL, "Head 3", "Head 4", "Head 5", "Head 6"};
    static const char *const rows[2] = {"up", "down"}, *const cols[4] = {"k0", "k1", "k2", "k3"};
    float x[48] = {0};
    attn_heatmap m = make_map(x, 1, 1), n;
    const char *s, *at;
    rect r, last = {0, 0, 0, 0, 0};
    label l;
    int cells = 0;
    for (int i = 0; i < 48; i++) x[i] = (float)i;
    m.values = attn_view_f32(x, 4, 2, 3, 2, 4);
    m.panel_titles = titles;
    m.y_ticks = rows;
    m.x_ticks = cols;
    for (int top = 0; top < 2; top++) {
        m.ticks_on_top = top;
        s = draw(SVG, &m, NULL);
        CHECK(count(s, ">k2<") == 3 && count(s, ">up<") == 2); /* only on the outer panels */
        for (int i = 0; i < 6; i++) CHECK(!titles[i] || find_label(s, titles[i], &l));
        at = s;
        CHECK(next_rect(&at, &r) && find_label(s, titles[0], &l)); /* on the side that has no column labels */
        CHECK(top ? l.y > r.y + 2 * r.h : l.y < r.y);
        CHECK(l.x > r.x && l.x < r.x + 4 * (r.w + 1));
        for (cells = 0; next_rect(&s, &r); last = r) /* panel by panel, row by row */
            if (cells++ % 8) CHECK(r.y > last.y || r.x == last.x + last.w + 1);
        CHECK(cells == 48);
        s = draw(ANSI, &m, NULL);
        CHECK(count(s, "up ") == 2 && count(s, "down ") == 2 && count(s, "k3") == 3);
        for (int i = 0; i < 6; i++) CHECK(!titles[i] || count(s, titles[i]) == 1);
    }
    m.values = attn_view_f32(x, 4, 1, 3, 2, 4);
    n = m;
    n.values = attn_view_f32(x, 3, 3, 2, 4, 0);
    for (int kind = 0; kind < KINDS; kind++) CHECK(same(kind, &m, &n));
}

/* Strides of every kind draw what a packed copy draws. */
static void strides(void) {
    enum { A = 2, B = 3, R = 4, C = 5, N = A * B * R * C };
    float packed[N] = {0}, apart[N * 3] = {0}, *turned = test_floats(N);
    uint8_t bytes[N] = {0};
    for (int i = 0; i < N; i++) {
        packed[i] = (float)(bytes[i] = (uint8_t)test_int(0, 255));
        apart[i * 3] = turned[N - 1 - i] = packed[i];
        apart[i * 3 + 1] = apart[i * 3 + 2] = 1e9f;
    }
    for (int kind = 0; kind < KINDS; kind++) {
        attn_heatmap m = make_map(packed, 1, 1), n = m;
        m.values = attn_view_f32(packed, 4, A, B, R, C);
        n.values = attn_view_u8(bytes, 4, A, B, R, C);
        CHECK(same(kind, &m, &n) == (kind != HTML)); /* a page holds values as they are stored */
        n.values = attn_view_f32(apart, 4, A, B, R, C);
        for (int a = 0; a < 4; a++) n.values.stride[a] *= 3;
        CHECK(same(kind, &m, &n));
        n.values = attn_view_f32(turned + N - 1, 4, A, B, R, C);
        for (int a = 0; a < 4; a++) n.values.stride[a] *= -1;
        CHECK(same(kind, &m, &n));
        for (int i = 0; i < N; i++) apart[i] = packed[i / (R * C) * R * C + i % C * R + i / C % R];
        n.values = attn_view_swap(attn_view_f32(apart, 4, A, B, R, C), 2, 3);
        m.values = attn_view_f32(packed, 4, A, B, C, R);
        CHECK(same(kind, &m, &n));
        for (int i = 0; i < N; i++) apart[i * 3] = packed[i];
        m.values = n.values = attn_view_f32(packed, 2, R, C, 0, 0);
        n.values.stride[0] = 0;
        for (int i = 0; i < R * C; i++) apart[i] = packed[i % C];
        m.values.data = apart;
        CHECK(same(kind, &m, &n));
        for (int i = 0; i < N; i++) apart[i * 3] = packed[i], apart[i * 3 + 1] = apart[i * 3 + 2] = 1e9f;
    }
}

/* The picture of a descriptor's mask is the picture of what attn_mask gives. */
static void masks(void) {
    for (int round = 0; round < 60; round++) {
        enum { MOST = 9 };
        const int64_t b = test_int(1, 2), h = test_int(1, 3), q = test_int(1, MOST), k = test_int(1, MOST);
        uint8_t out[2 * 3 * MOST * MOST], mask[MOST * MOST];
        float bias[MOST];
        int32_t lengths[2], positions[2];
        attn_desc d;
        attn_heatmap m = make_map(NULL, 1, 1), n;
        memset(&d, 0, sizeof d);
        d.causal = test_int(0, 1);
        d.window = test_int(0, 1);
        d.window_left = test_int(-1, 3);
        d.window_right = test_int(-1, 3);
        if (!d.window) d.window_left = d.window_right = 0;
        for (int i = 0; i < MOST * MOST; i++) mask[i] = (uint8_t)test_int(0, 2);
        for (int i = 0; i < MOST; i++) bias[i] = test_int(0, 2) ? 1.0f : -INFINITY;
        for (int i = 0; i < 2; i++) {
            lengths[i] = test_int(0, (int)k);
            positions[i] = test_int(-3, 9);
        }
        if (test_int(0, 1)) d.mask = attn_view_u8(mask, 2, q, k, 0, 0);
        if (test_int(0, 1)) d.bias = attn_view_f32(bias, 1, k, 0, 0, 0);
        if (test_int(0, 1)) d.key_lengths = attn_view_i32(lengths, 1, b, 0, 0, 0);
        d.align = test_int(1, 3);
        if (d.align == ATTN_ALIGN_POSITIONS) d.positions = attn_view_i32(positions, 1, b, 0, 0, 0);
        CHECK_STATUS(attn_mask(attn_out_u8(out, 4, b, h, q, k), &d, NULL), ATTN_OK);
        n = m;
        n.values = attn_view_u8(out, 4, b, h, q, k);
        n.range_set = 1;
        n.range_max = 1;
        m.mask_of = &d;
        m.values = attn_view_u8(NULL, 4, b, h, q, k);
        for (int kind = 0; kind < KINDS; kind++) CHECKF(same(kind, &m, &n), "round %d, kind %d", round, kind);
    }
}

static void empty(void) {
    attn_heatmap m = make_map(NULL, 0, 0);
    for (int axes = 0; axes < 16; axes++) {
        m.values = attn_view_f32(NULL, 4, axes & 1, axes & 2, axes & 4, axes & 8);
        if (axes == 15) m.values.size[1] = 0;
        m.title = axes & 1 ? "nothing" : NULL;
        m.numbers = axes >> 1 & 1;
        CHECK(!xml_fault(draw(SVG, &m, NULL)));
        CHECK(!xml_fault(draw(LINES, &m, NULL)));
        CHECK(count(draw(HTML, &m, NULL), "id=panel") == 1 + (int)(m.values.size[0] * m.values.size[1]));
        m.terminal = ATTN_TERMINAL_ASCII;
        CHECK(utf8_ok(draw(ANSI, &m, NULL)));
        CHECK(draw_ppm(&m).w >= 1);
    }
}

/* ---- titles of cells */

/* Each cell of an SVG tells its labels and its value; the picture is otherwise as without them. */
static void cell_titles(void) {
    enum { R = 4, C = 3, PANELS = 2, N = PANELS * R * C };
    static const char *const rows[R] = {"a<b", "\"q\"", NULL, "a label that is longer than thirty-two columns"};
    static const char *const want[R] = {"a&#60;b", "&#34;q&#34;", "", "a label that is longer than thirty-two columns"};
    float x[N] = {0};
    for (int i = 0; i < N; i++) x[i] = i == 5 ? NAN : i == 7 ? INFINITY : (float)test_normal();
    for (int round = 0; round < 4; round++) {
        attn_heatmap m = make_map(x, 1, 1), without;
        const char *s, *plain;
        char text[128], labels[64], value[32];
        rect a, b;
        int n = 0;
        m.values = attn_view_f32(x, 3, PANELS, R, C, 0);
        m.y_ticks = rows;
        m.numbers = round & 1;
        m.width = round & 2 ? 390 : 0; /* cells too small for a grid */
        without = m;
        m.cell_titles = 1;
        plain = draw(SVG, &without, NULL);
        s = draw(SVG, &m, NULL);
        CHECK(!xml_fault(s) && count(s, "<title>") == N && !count(plain, "<title>"));
        for (const char *at = s; next_rect(&at, &a) && next_rect(&plain, &b);) CHECK(!memcmp(&a, &b, sizeof a));
        for (; (s = strstr(s, "<g><title>")) != NULL; s++, n++) {
            if (!CHECK(sscanf(s, "<g><title>%127[^\n]", text) == 1) || n >= N) return;
            snprintf(labels, sizeof labels, "%s, %d: ", want[n / C % R], n % C);
            if (!CHECKF(!strncmp(text, labels, strlen(labels)), "cell %d: %s", n, text)) continue;
            CHECK(sscanf(text + strlen(labels), "%31[^<]", value) == 1);
            if (isfinite(x[n])) CHECK_CLOSE(strtod(value, NULL), (double)x[n], 1e-3);
            else CHECKF(!strcmp(value, isnan(x[n]) ? "NaN" : "inf"), "cell %d: %s", n, value);
            CHECK(strstr(s, "</g>") && strstr(s, "<rect") < strstr(s, "</g>"));
        }
        CHECK(n == N);
        for (int kind = 0; kind < KINDS; kind++) CHECK(kind == SVG || same(kind, &m, &without));
    }
}

/* There are at most 4096 titles, in all panels together. */
static void many_titles(void) {
    static float x[4097];
    attn_buffer size = {NULL, 0, 0};
    attn_heatmap m = make_map(x, 64, 64);
    attn_error err;
    m.cell_titles = 1;
    CHECK(count(draw(SVG, &m, NULL), "<title>") == 4096);
    for (int panels = 0; panels < 2; panels++) {
        m.values = panels ? attn_view_f32(x, 3, 17, 241, 1, 0) : attn_view_f32(x, 2, 1, 4097, 0, 0);
        CHECK_STATUS(attn_heatmap_svg(&m, attn_buffer_writer(&size), &err), ATTN_ERR_RANGE);
        CHECK(!strcmp(err.field, "cell_titles") && *err.rule && err.has_numbers && err.got == 4097 && err.want == 4096);
        CHECK(size.length == 0);
        CHECK_STATUS(attn_heatmap_html(&m, attn_buffer_writer(&size), NULL), ATTN_OK); /* where it does not count */
        size.length = 0;
    }
}

/* ---- lines between two columns of words */

typedef struct {
    double x1, y1, x2, y2, width, opacity;
    unsigned rgb;
} line;
/* The next line at or after *s; what NaN has is none. */
static int next_line(const char **s, line *l) {
    const char *end, *stroke;
    while ((*s = strstr(*s, "<line ")) != NULL) {
        int n =
            sscanf(*s, "<line x1=\"%lf\" y1=\"%lf\" x2=\"%lf\" y2=\"%lf\" stroke-width=\"%lf\" stroke-opacity=\"%lf\"",
                   &l->x1, &l->y1, &l->x2, &l->y2, &l->width, &l->opacity);
        end = strchr(*s, '>');
        stroke = strstr(*s, " stroke=\"#");
        l->rgb = 0xB9473D; /* of the group, as the diverging map has it between its middle and its end */
        if (stroke && stroke < end) CHECK(sscanf(stroke, " stroke=\"#%6x", &l->rgb) == 1);
        *s = end;
        if (n == 6) return 1;
    }
    return 0;
}

/* The lines of a map, one after another in the order of its cells, against numbers reckoned here: 8 pixels for the
   largest magnitude of the range, from the height of the query's label to that of the key's; none below 1/200. */
static void check_lines(const attn_heatmap *m, const float *x, const uint8_t *kept, int panels, int rows, int columns,
                        double most) {
    const char *s = draw(LINES, m, NULL), *at = s;
    const double high = rows > columns ? rows : columns;
    int drawn = 0, dashed = 0;
    double across = 0;
    CHECK(!xml_fault(s));
    for (int k = 0; k < panels * rows * columns; k++) {
        const double v = (double)x[k], part = isinf(v) ? 1 : fmin(1, fabs(v) / most);
        const int i = k / columns % rows, j = k % columns;
        line l;
        if (kept && !kept[k]) continue;
        if (isnan(v)) dashed++;
        if (isnan(v) || part < 1.0 / 200) continue;
        if (!CHECKF(next_line(&at, &l), "no line of cell %d", k)) return;
        if (!drawn++) across = l.x2 - l.x1;
        CHECK_CLOSE(l.width, 8 * part, 0.0052); /* rounded, as what the page has is by a browser */
        CHECK_CLOSE(l.opacity, 0.4 + 0.6 * part, 0.0052);
        CHECKF(l.rgb == (v < 0 ? 0x2D71C7 : 0xB9473D), "cell %d, %g: %06x", k, v, l.rgb);
        CHECK(l.x2 - l.x1 == across && across > 0);
        CHECK_CLOSE(l.y2 - l.y1, ((j + 0.5) / columns - (i + 0.5) / rows) * high * 20, 1.01);
    }
    line extra;
    CHECK(!next_line(&at, &extra) && count(s, "stroke=\"#f0f\" stroke-width=\"1\"") == dashed);
    CHECK(count(s, ">NaN<") == (dashed > 0));
}

static void lines(void) {
    enum { PANELS = 3, R = 4, C = 7, N = PANELS * R * C };
    float x[N];
    uint8_t kept[N], bytes[N];
    uint16_t half[N];
    for (int round = 0; round < 12; round++) {
        attn_heatmap m = make_map(x, 1, 1);
        double most = 0;
        for (int i = 0; i < N; i++) {
            x[i] = round % 3 ? (float)test_normal() : (float)test_uniform();
            if (round == 5) x[i] *= 1e-40f;
            if (round == 6) x[i] *= 3e37f;
            if (round % 4 == 1 && i % 9 == 2) x[i] = i % 2 ? NAN : i % 4 ? INFINITY : -INFINITY;
            if (i % 11 == 3) x[i] = i % 2 ? -0.0f : x[i] * 0.004f;
            kept[i] = (uint8_t)(test_int(0, 3) != 0);
            if (isfinite(x[i]) && (round % 2 == 0 || kept[i])) most = fmax(most, fabs((double)x[i]));
        }
        m.values = attn_view_f32(x, 3, PANELS, R, C, 0);
        m.colormap = round % ATTN_COLORMAP_COUNT;
        if (round % 2) m.mask = attn_view_u8(kept, 3, PANELS, R, C, 0);
        check_lines(&m, x, round % 2 ? kept : NULL, PANELS, R, C, most);
        m.range_set = 1;
        m.range_min = round % 4 ? -2 : 0.5f;
        m.range_max = 1;
        check_lines(&m, x, round % 2 ? kept : NULL, PANELS, R, C, round % 4 ? 2 : 1);
    }
    for (int i = 0; i < N; i++) bytes[i] = (uint8_t)(i * 3), x[i] = (float)(i - 40) / 64;
    for (int type = ATTN_F16; type <= ATTN_BF16; type++) {
        attn_heatmap m = make_map(x, 1, 1), n;
        m.values = attn_view_f32(x, 2, PANELS * R, C, 0, 0);
        n = m;
        n.values = attn_view_typed((attn_type)type, half, 2, PANELS * R, C, 0, 0);
        CHECK_STATUS(attn_convert(m.values, attn_out_typed((attn_type)type, half, 2, PANELS * R, C, 0, 0), NULL), 0);
        CHECK(same(LINES, &m, &n));
    }
    attn_heatmap m = make_map(x, 1, 1);
    for (int i = 0; i < N; i++) x[i] = bytes[i];
    m.values = attn_view_u8(bytes, 3, PANELS, R, C, 0);
    check_lines(&m, x, NULL, PANELS, R, C, 3 * (N - 1));
}

/* Words on both sides, each at the end of its lines; names of panels; what the thickest line means; a text for whom the
   picture is not seen by. */
static void lines_words(void) {
    static const char *const rows[2] = {"first", "second & <last>"}, *const heads[2] = {"one", NULL};
    float x[2 * 2 * 4] = {0};
    attn_heatmap m = make_map(x, 1, 1);
    const char *s;
    label l;
    line of;
    for (int i = 0; i < 16; i++) x[i] = 0.5f;
    m.values = attn_view_f32(x, 3, 2, 2, 4, 0);
    m.y_ticks = rows;
    m.panel_titles = heads;
    m.title = "a \"title\"";
    m.y_label = "queries";
    m.x_label = "a title that is as long as no word of the picture's columns is";
    s = draw(LINES, &m, NULL);
    CHECK(strstr(s, " role=\"img\" ") &&
          strstr(s, "<title>a &#34;title&#34;</title>\n<desc>A line from each of 2 rows"));
    CHECK(count(s, ">first<") == 2 && count(s, ">second &#38; &#60;last&#62;<") == 2 && count(s, ">3</text>") == 2);
    CHECK(count(s, ">one<") == 1 && count(s, ">Head 1<") == 1 && count(s, ">0.50<") == 1 && count(s, ">queries<") == 2);
    CHECK(count(s, ">a title that is as long as n\342\200\246<") == 2);
    const char *at = s;
    CHECK(next_line(&at, &of) && of.width == 8 && find_label(s, "first", &l) && !strcmp(l.anchor, "end"));
    CHECKF(l.x < of.x1 && fabs(l.y - 4 - of.y1) <= 1, "a word at %d %d, its line from %g %g", l.x, l.y, of.x1, of.y1);
    CHECK(find_label(s, "0", &l) && !strcmp(l.anchor, "start") && l.x > of.x2 && fabs(l.y - 4 - of.y2) <= 1);
    m.no_colorbar = 1;
    CHECK(!strstr(draw(LINES, &m, NULL), ">0.50<"));
    m.no_colorbar = 0; /* a line below 0 has its entry, whatever the range; it has none without such a line */
    m.range_set = 1;
    m.range_min = 5;
    m.range_max = 9;
    for (int i = 0; i < 16; i++) x[i] = i % 2 ? 3 : -0.0f;
    CHECK(count(draw(LINES, &m, NULL), ">9.0<") == 1 && !strstr(draw(LINES, &m, NULL), ">-9.0<"));
    x[6] = -3;
    CHECK(count(draw(LINES, &m, NULL), ">9.0<") == 1 && count(draw(LINES, &m, NULL), ">-9.0<") == 1);
    m.range_set = 0;
    m.no_colorbar = 1;
    x[0] = 1;
    m.values = attn_view_f32(x, 2, 5000, 1, 0, 0); /* more words than have room: some are left out */
    m.values.stride[0] = 0;
    m.y_ticks = NULL;
    s = draw(LINES, &m, NULL);
    CHECK(!xml_fault(s) && count(s, "<line ") == 5000 && count(s, "<text ") > 200 && count(s, "<text ") < 1000);
}

/* ---- the web page. What it shows and does tests/web/heatmap.js looks at, in a browser. */

/* The bytes of a script element in base64; how many there are. */
static size_t html_data(const char *page, const char *id, unsigned char *to, size_t most) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char tag[64];
    size_t n = 0;
    unsigned bits = 0, waiting = 0;
    snprintf(tag, sizeof tag, "<script type=text/plain id=%s>", id);
    const char *s = strstr(page, tag), *digit;
    if (!CHECKF(s != NULL, "no %s", id)) return 0;
    for (s += strlen(tag); *s && (digit = strchr(digits, *s)) != NULL; s++) {
        bits = bits << 6 | (unsigned)(digit - digits);
        waiting += 6;
        if (waiting < 8) continue;
        waiting -= 8;
        if (n < most) to[n] = (unsigned char)(bits >> waiting & 255);
        n++;
    }
    CHECKF(!strncmp(s, "</script>", 9), "%s ends with %.9s", id, s);
    CHECK((bits & ((1u << waiting) - 1)) == 0);
    return n;
}

/* Element i of an array of elements of so many bytes, as a number. */
static uint32_t element(const void *array, size_t bytes, size_t i) {
    uint32_t word;
    uint16_t half;
    uint8_t byte;
    memcpy(bytes == 4 ? (void *)&word : bytes == 2 ? (void *)&half : &byte, (const char *)array + i * bytes, bytes);
    return bytes == 4 ? word : bytes == 2 ? half : byte;
}
/* The one NaN that a type has in a picture; what else it has are numbers. */
static uint32_t plain_nan(int type, uint32_t x) {
    static const uint32_t nan[] = {0x7fc00000u, 0x7e00u, 0x7fc0u}, infinity[] = {0x7f800000u, 0x7c00u, 0x7f80u};
    return type < 3 && (x & (type ? 0x7fffu : 0x7fffffffu)) > infinity[type] ? nan[type] : x;
}

/* The values are there bit for bit, of each type, the lowest byte first, in the order of rows whatever the strides. */
static void html_values(void) {
    enum { B = 2, H = 3, R = 5, C = 7, CELLS = R * C, N = B * H * CELLS };
    static const attn_type types[] = {ATTN_F32, ATTN_F16, ATTN_BF16, ATTN_U8};
    static const size_t sizes[] = {4, 2, 2, 1};
    unsigned char data[4 * N], back[4 * CELLS];
    for (int round = 0; round < 24; round++) {
        int t = round / 6, turned = round % 2; /* rows and columns the other way round in memory */
        size_t size = sizes[t], length;
        attn_heatmap m = make_map(NULL, 1, 1);
        const char *page;
        for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)test_int(0, 255);
        m.values = attn_view_typed(types[t], data, 4, B, H, turned ? C : R, turned ? R : C);
        if (turned) m.values = attn_view_swap(m.values, 2, 3);
        page = draw(HTML, &m, &length);
        CHECKF(length <= N * size * 3 / 2 + 65536, "%zu bytes for %zu", length, N * size);
        CHECK(count(page, "type=text/plain id=panel") == B * H && count(page, "<option ") == B * H);
        for (size_t panel = 0; panel < B * H; panel++) {
            char id[16];
            snprintf(id, sizeof id, "panel%d", (int)panel);
            if (!CHECK(html_data(page, id, back, sizeof back) == CELLS * size)) continue;
            for (size_t i = 0; i < CELLS; i++) {
                size_t at = panel * CELLS + (turned ? i % C * R + i / C : i);
                uint32_t got = 0, want = plain_nan(t, element(data, size, at));
                for (size_t k = size; k-- > 0;) got = got << 8 | back[i * size + k];
                CHECKF(plain_nan(t, got) == want, "type %d, %s, cell %zu: %x, not %x", t, id, i, got, want);
            }
        }
    }
}

static void check_hatch(const attn_heatmap *m, const uint8_t *kept, int cells, int masked) {
    attn_heatmap n = *m;
    image with, without;
    n.numbers = 0;
    n.terminal = ATTN_TERMINAL_ASCII;
    CHECK(count(draw(ANSI, &n, NULL), "//") == masked + (masked > 0)); /* and in the legend */
    n.terminal = ATTN_TERMINAL_256;
    CHECK(count(draw(ANSI, &n, NULL), "//") == masked + (masked > 0));
    const char *s = draw(SVG, m, NULL);
    CHECK(!xml_fault(s) && count(s, "<pattern ") == (masked > 0) && count(s, ">masked<") == (masked > 0));
    CHECK(count(s, "url(#attn-masked)") == masked + (masked > 0) && count(s, ": masked</title>") == masked);
    CHECK(count(draw(HTML, m, NULL), "Hatched cells") == (masked > 0));
    n.no_colorbar = 1;
    n.width = 24 * cells; /* of one row */
    n.height = 24;
    with = draw_ppm(&n);
    memset(&n.mask, 0, sizeof n.mask);
    without = draw_ppm(&n);
    for (int y = 0; y < with.h; y++)
        for (int x = 0; x < with.w; x++) {
            const unsigned hatch = (x + y) % 6 ? 0xFFFFFF : 0x999999;
            const unsigned want = kept[x / 24] ? pixel(&without, x, y) : hatch;
            CHECKF(pixel(&with, x, y) == want, "pixel %d %d is %06x, not %06x", x, y, pixel(&with, x, y), want);
        }
}

/* Masked cells are hatched in each kind of picture, whatever they hold and whatever the range would be with it. */
static void hatched(void) {
    enum { PANELS = 2, R = 3, C = 5, N = PANELS * R * C };
    float x[N], y[N];
    uint8_t kept[N], ones[N], back[(R * C + 7) / 8];
    for (int round = 0; round < 20; round++) {
        attn_heatmap m = make_map(x, 1, N), n;
        int masked = 0;
        for (int i = 0; i < N; i++) {
            kept[i] = (uint8_t)(round ? test_int(0, 2) : 0);
            masked += !kept[i];
            ones[i] = 1;
            y[i] = x[i] = (float)test_normal();
            if (!kept[i]) y[i] = i % 2 ? NAN : 1e30f;
        }
        m.mask = attn_view_u8(kept, 2, 1, N, 0, 0);
        m.range_set = 1;
        m.range_max = 1;
        m.cell_titles = m.numbers = round % 2;
        if (m.cell_titles) check_hatch(&m, kept, N, masked);
        m.range_set = 0;
        m.values = attn_view_f32(x, 3, PANELS, R, C, 0);
        m.mask = attn_view_u8(kept, 3, PANELS, R, C, 0);
        n = m;
        n.values.data = y;
        for (int kind = 0; kind < HTML; kind++) CHECKF(same(kind, &m, &n), "round %d, kind %d", round, kind);
        for (int panel = 0; panel < PANELS && masked; panel++) {
            char id[16];
            snprintf(id, sizeof id, "mask%d", panel);
            CHECK(html_data(draw(HTML, &m, NULL), id, back, sizeof back) == sizeof back);
            for (int i = 0; i < R * C; i++) CHECK((back[i / 8] >> (7 - i % 8) & 1) == (kept[panel * R * C + i] != 0));
        }
        m.mask.data = ones; /* nothing is masked: as without a mask */
        n = m;
        memset(&n.mask, 0, sizeof n.mask);
        for (int kind = 0; kind < KINDS; kind++) CHECKF(same(kind, &m, &n), "round %d, kind %d", round, kind);
    }
}

/* The page is about 4/3 as long as large data. */
static void html_size(void) {
    enum { N = 1000 };
    attn_buffer size = {NULL, 0, 0};
    attn_heatmap m = make_map(test_floats(N * N), N, N);
    CHECK_STATUS(attn_heatmap_html(&m, attn_buffer_writer(&size), NULL), ATTN_OK);
    CHECKF(size.length > 4 * N * N / 3 * 4 && size.length <= 4 * N * N / 2 * 3 + 65536, "%zu bytes", size.length);
}

/* The range of the colours is that of all panels, or the one given. */
static void html_range(void) {
    float x[12] = {3, -2, NAN, 1, INFINITY, 5, 0.1f, 4, 2, -7.25f, 0, 6}, range[2];
    unsigned char bytes[8];
    attn_heatmap m = make_map(x, 1, 1);
    m.values = attn_view_f32(x, 3, 2, 2, 3, 0);
    for (int set = 0; set < 2; set++) {
        m.range_set = set;
        m.range_min = 0.1f;
        m.range_max = 0.7f;
        CHECK(html_data(draw(HTML, &m, NULL), "range", bytes, sizeof bytes) == sizeof bytes);
        for (int i = 0; i < 2; i++) {
            uint32_t bits = 0;
            for (int k = 3; k >= 0; k--) bits = bits << 8 | bytes[4 * i + k];
            memcpy(&range[i], &bits, sizeof bits);
        }
        CHECK(range[0] == (set ? 0.1f : -7.25f) && range[1] == (set ? 0.7f : 6.0f));
    }
}

/* Labels are text in hidden lists: whole, in order, never markup; nothing is loaded from anywhere. */
static void html_labels(void) {
    enum { R = 3, C = 4 };
    static const char *const rows[R] = {"</script><script>alert(1)</script>", "\"it's\" <b>&amp;</b>", NULL};
    static const char *const cols[C] = {"one", "]]>", "<!--", "a label that is longer than thirty-two columns"};
    static const char *const heads[2] = {"the <first>", ""};
    static const char *const outside[] = {"http", "src=", "href", "url(", "@import", "fetch", "import("};
    float x[2 * R * C] = {0};
    attn_heatmap m = make_map(x, 1, 1);
    const char *page;
    m.values = attn_view_f32(x, 3, 2, R, C, 0);
    page = draw(HTML, &m, NULL);
    CHECK(!strstr(page, "id=words0") && !strstr(page, "id=words1") && strstr(page, "<h1>Heatmap</h1>"));
    CHECK(strstr(page, "<option value=1>Head 1</option>") != NULL);
    m.y_ticks = rows;
    m.x_ticks = cols;
    m.panel_titles = heads;
    m.title = m.x_label = m.y_label = "</title></h1></script>'\"&";
    page = draw(HTML, &m, NULL);
    CHECK(utf8_ok(page) && count(page, "<script") == 4 && count(page, "</script>") == 4);
    CHECK(count(page, "&#60;/title&#62;&#60;/h1&#62;&#60;/script&#62;&#39;&#34;&#38;") == 4);
    CHECK(strstr(page, "<ul hidden id=words0><li>&#60;/script&#62;&#60;script&#62;alert(1)&#60;/script&#62;"
                       "<li>&#34;it&#39;s&#34; &#60;b&#62;&#38;amp;&#60;/b&#62;<li></ul>") != NULL);
    CHECK(strstr(page, "<ul hidden id=words1><li>one<li>]]&#62;<li>&#60;!--<li>a label that is longer than "
                       "thirty-two columns</ul>") != NULL);
    CHECK(strstr(page, "<option value=0>the &#60;first&#62;</option>") != NULL);
    CHECK(strstr(page, "<option value=1>Head 1</option>") != NULL); /* one without a title has a number */
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) CHECKF(!strstr(page, outside[i]), "%s", outside[i]);
    m.values = attn_view_f32(x, 4, 2, 1, R, C);
    m.panel_titles = NULL;
    CHECK(strstr(draw(HTML, &m, NULL), "<option value=1>Batch 1, head 0</option>") != NULL);
}

/* ---- writers */

typedef struct {
    int calls, fail_at;
    size_t length;
    char data[40000];
} sink;

static int put(void *user, const char *bytes, size_t n) {
    sink *s = (sink *)user;
    if (++s->calls == s->fail_at) return -7;
    CHECK(n > 0 && s->length + n <= sizeof s->data);
    if (s->length + n <= sizeof s->data) memcpy(s->data + s->length, bytes, n);
    s->length += n;
    return 0;
}

static void writers(void) {
    static sink s;
    float x[49] = {0};
    attn_heatmap m = make_map(x, 7, 7);
    attn_writer w = {put, &s};
    attn_error err;
    for (int i = 0; i < 49; i++) x[i] = (float)i;
    for (int kind = 0; kind < KINDS; kind++) {
        size_t length;
        const char *all;
        int calls;
        m.width = kind == PPM ? 60 : 0;
        all = draw(kind, &m, &length);
        s.calls = s.fail_at = 0;
        s.length = 0;
        CHECK_STATUS(draws[kind](&m, w, &err), ATTN_OK);
        CHECK(s.length == length && !memcmp(s.data, all, length) && s.calls > 1);
        calls = s.calls;
        for (int at = 1; at <= calls; at++) {
            s.calls = 0;
            s.fail_at = at;
            s.length = 0;
            CHECK_STATUS(draws[kind](&m, w, &err), ATTN_ERR_WRITE);
            CHECK(err.status == ATTN_ERR_WRITE && !strcmp(err.field, "writer.write") && *err.rule);
            CHECKF(s.calls == at, "%d calls after the failure of call %d", s.calls - at, at);
            CHECK(!memcmp(s.data, all, s.length));
        }
    }
}

static void buffers(void) {
    float x[4] = {0, 1, 2, 3};
    attn_heatmap m = make_map(x, 2, 2);
    size_t length, sizes[7];
    const char *all = draw(SVG, &m, &length);
    attn_buffer b;
    sizes[0] = 0;
    sizes[1] = 1;
    sizes[2] = 2;
    sizes[3] = 100;
    sizes[4] = length;
    sizes[5] = length + 1;
    sizes[6] = length + 50;
    for (int i = 0; i < 7; i++) {
        size_t fits = sizes[i] ? sizes[i] - 1 : 0;
        b.data = test_guarded(sizes[i] ? sizes[i] : 1);
        b.size = sizes[i];
        b.length = 0;
        b.data[0] = '?';
        CHECK_STATUS(attn_heatmap_svg(&m, attn_buffer_writer(&b), NULL), ATTN_OK);
        fits = fits < length ? fits : length;
        CHECK(b.length == length);
        CHECK(sizes[i] ? !memcmp(b.data, all, fits) && b.data[fits] == 0 : b.data[0] == '?');
    }
    b.data = test_guarded(2 * length + 1); /* one picture after the other */
    b.size = 2 * length + 1;
    b.length = 0;
    for (int i = 0; i < 2; i++) CHECK_STATUS(attn_heatmap_svg(&m, attn_buffer_writer(&b), NULL), ATTN_OK);
    CHECK(b.length == 2 * length && !memcmp(b.data, all, length) && !strcmp(b.data + length, all));
    b.data = NULL; /* no memory, whatever size says */
    b.length = 0;
    CHECK_STATUS(attn_heatmap_svg(&m, attn_buffer_writer(&b), NULL), ATTN_OK);
    CHECK(b.length == length);
}

/* ---- mistakes */

static sink untouched;

static void refused(const attn_heatmap *m, int kinds, attn_status want, const char *field) {
    attn_writer w = {put, &untouched};
    for (int kind = 0; kind < KINDS; kind++) {
        attn_error err;
        if (!(kinds >> kind & 1)) continue;
        untouched.calls = 0;
        CHECK_STATUS(draws[kind](m, w, &err), want);
        CHECKF(err.status == (int32_t)want && !strcmp(err.field, field) && *err.rule, "%s %s", err.field, err.rule);
        CHECK_STATUS(draws[kind](m, w, NULL), want);
        CHECKF(untouched.calls == 0, "wrote before refusing %s", field);
    }
}

static void errors(void) {
    enum { ALL = (1 << KINDS) - 1, PIXELS = 1 << SVG | 1 << PPM };
    float x[16] = {0};
    uint8_t bytes[16] = {0};
    attn_desc d;
    attn_heatmap good, m;
    attn_error err;
    attn_writer none = {NULL, NULL};
    for (int i = 0; i < 16; i++) x[i] = (float)i;
    memset(&d, 0, sizeof d);
    good = make_map(x, 4, 4);
#define REFUSED(change, kinds, status, field) (m = good, change, refused(&m, kinds, status, field))
    for (int kind = 0; kind < KINDS; kind++) {
        CHECK_STATUS(draws[kind](&good, none, &err), ATTN_ERR_NULL);
        CHECK(!strcmp(err.field, "writer.write"));
        CHECK_STATUS(draws[kind](&good, attn_buffer_writer(NULL), &err), ATTN_ERR_NULL);
    }
    refused(NULL, ALL, ATTN_ERR_NULL, "map");
    REFUSED(memset(&m.values, 0, sizeof m.values), ALL, ATTN_ERR_NULL, "values");
    REFUSED(m.values.data = NULL, ALL, ATTN_ERR_NULL, "values.data");
    REFUSED(m.mask = attn_view_u8(bytes, 1, 16, 0, 0, 0), ALL, ATTN_ERR_RANK, "mask.rank");
    REFUSED(m.mask = attn_view_u8(bytes, 2, 4, 3, 0, 0), ALL, ATTN_ERR_SIZE, "mask.size[1]");
    REFUSED(m.mask = attn_view_u8(bytes, 2, 1, 4, 0, 0), ALL, ATTN_ERR_SIZE, "mask.size[0]");
    REFUSED(m.mask = attn_view_u8(NULL, 2, 4, 4, 0, 0), ALL, ATTN_ERR_NULL, "mask.data");
    REFUSED(m.mask = attn_view_f32(x, 2, 4, 4, 0, 0), ALL, ATTN_ERR_TYPE, "mask.type");
    REFUSED(m.mask.data = bytes, ALL, ATTN_ERR_RANK, "mask.rank");
    m = good;
    m.mask_of = &d;
    m.values = attn_view_u8(NULL, 4, 1, 1, 4, 4);
    m.mask = attn_view_u8(bytes, 4, 1, 1, 4, 4);
    refused(&m, ALL, ATTN_ERR_OPTION, "mask");
    REFUSED(m.values.rank = 1, ALL, ATTN_ERR_RANK, "values.rank");
    REFUSED(m.values.rank = 5, ALL, ATTN_ERR_RANK, "values.rank");
    REFUSED(m.values.rank = -1, ALL, ATTN_ERR_RANK, "values.rank");
    for (int type = -1; type <= ATTN_TYPE_COUNT; type++)
        if (type > ATTN_BF16 && type != ATTN_U8) REFUSED(m.values.type = type, ALL, ATTN_ERR_TYPE, "values.type");
    m = good;
    m.values.type = ATTN_I32; /* both types that would do are named, one where a mask is drawn */
    CHECK(draws[SVG](&m, (attn_writer){put, &untouched}, &err) &&
          !strcmp(err.rule, "must be ATTN_F32, ATTN_F16, ATTN_BF16 or ATTN_U8"));
    m.mask_of = &d;
    m.values.rank = 4;
    CHECK(draws[SVG](&m, (attn_writer){put, &untouched}, &err) && !strcmp(err.rule, "must be ATTN_U8"));
    REFUSED(m.values.size[0] = -1, ALL, ATTN_ERR_SIZE, "values.size[0]");
    REFUSED(m.values.size[1] = -4, ALL, ATTN_ERR_SIZE, "values.size[1]");
    REFUSED(m.values.size[0] = 65537, ALL, ATTN_ERR_RANGE, "values.size[0]");
    REFUSED((m.values = attn_view_f32(x, 3, 300, 1, 300, 0)), ALL, ATTN_ERR_RANGE, "values.size[2]");
    REFUSED((m.values = attn_view_f32(x, 4, 300, 1, 300, 1)), ALL, ATTN_ERR_RANGE, "values.size[2]");
    REFUSED((m.values = attn_view_f32(x, 4, 300, 300, 0, 0)), ALL, ATTN_ERR_RANGE, "values.size[1]");
    REFUSED((m.values = attn_view_f32(x, 4, INT64_MAX, 0, INT64_MAX, 1)), ALL, ATTN_ERR_RANGE, "values.size[0]");
    REFUSED(m.values.stride[0] = INT64_MAX, ALL, ATTN_ERR_OVERFLOW, "values.stride");
    REFUSED(m.values.stride[1] = INT64_MIN, ALL, ATTN_ERR_OVERFLOW, "values.stride");
    REFUSED(m.colormap = -1, ALL, ATTN_ERR_OPTION, "colormap");
    REFUSED(m.colormap = ATTN_COLORMAP_COUNT, ALL, ATTN_ERR_OPTION, "colormap");
    REFUSED(m.terminal = -1, ALL, ATTN_ERR_OPTION, "terminal");
    REFUSED(m.terminal = ATTN_TERMINAL_COUNT, ALL, ATTN_ERR_OPTION, "terminal");
    REFUSED(m.range_set = 2, ALL, ATTN_ERR_OPTION, "range_set");
    REFUSED(m.ticks_on_top = -1, ALL, ATTN_ERR_OPTION, "ticks_on_top");
    REFUSED(m.no_colorbar = 2, ALL, ATTN_ERR_OPTION, "no_colorbar");
    REFUSED(m.numbers = 3, ALL, ATTN_ERR_OPTION, "numbers");
    REFUSED(m.cell_titles = INT32_MIN, ALL, ATTN_ERR_OPTION, "cell_titles");
    REFUSED(m.width = -1, PIXELS, ATTN_ERR_RANGE, "width");
    REFUSED(m.height = INT32_MIN, PIXELS, ATTN_ERR_RANGE, "height");
    REFUSED(m.width = 32768, PIXELS, ATTN_ERR_RANGE, "width");
    REFUSED(m.width = INT32_MAX, PIXELS, ATTN_ERR_RANGE, "width");
    REFUSED(m.width = INT32_MIN, PIXELS, ATTN_ERR_RANGE, "width");
    REFUSED(m.height = INT32_MAX, PIXELS, ATTN_ERR_RANGE, "height");
    REFUSED(m.width = 20, PIXELS, ATTN_ERR_RANGE, "width");
    REFUSED(m.height = 20, 1 << SVG, ATTN_ERR_RANGE, "height");
    REFUSED((m.range_set = 1, m.range_min = NAN, m.range_max = 1), ALL, ATTN_ERR_RANGE, "range_min");
    REFUSED((m.range_set = 1, m.range_min = -INFINITY, m.range_max = 1), ALL, ATTN_ERR_RANGE, "range_min");
    REFUSED((m.range_set = 1, m.range_max = NAN), ALL, ATTN_ERR_RANGE, "range_max");
    REFUSED((m.range_set = 1, m.range_max = INFINITY), ALL, ATTN_ERR_RANGE, "range_max");
    REFUSED((m.range_set = 1, m.range_min = m.range_max = 2), ALL, ATTN_ERR_RANGE, "range_max");
    good.mask_of = &d;
    REFUSED(m.values = attn_view_u8(NULL, 3, 2, 4, 4, 0), ALL, ATTN_ERR_RANK, "values.rank");
    REFUSED(m.values = attn_view_f32(NULL, 4, 1, 2, 4, 4), ALL, ATTN_ERR_TYPE, "values.type");
    REFUSED(m.values = attn_view_u8((const uint8_t *)x, 4, 1, 2, 2, 4), ALL, ATTN_ERR_OPTION, "values.data");
    good.values = attn_view_u8(NULL, 4, 1, 2, 4, 4);
    d.mask = attn_view_u8((const uint8_t *)x, 2, 4, 5, 0, 0);
    REFUSED((void)0, ALL, ATTN_ERR_SIZE, "mask.size[1]");
    memset(&d, 0, sizeof d);
    d.align = ATTN_ALIGN_COUNT;
    REFUSED((void)0, ALL, ATTN_ERR_OPTION, "align");
    memset(&d, 0, sizeof d); /* what a mask is made of is read: it needs data, as in any call */
#define WITHOUT_DATA(field, view) \
    d.field = view; \
    REFUSED((void)0, ALL, ATTN_ERR_NULL, #field ".data"); \
    memset(&d.field, 0, sizeof d.field)
    WITHOUT_DATA(mask, attn_view_u8(NULL, 2, 4, 4, 0, 0));
    WITHOUT_DATA(bias, attn_view_f32(NULL, 1, 4, 0, 0, 0));
    WITHOUT_DATA(key_lengths, attn_view_i32(NULL, 1, 1, 0, 0, 0));
    WITHOUT_DATA(query_lengths, attn_view_i64(NULL, 1, 1, 0, 0, 0));
    d.align = ATTN_ALIGN_POSITIONS;
    WITHOUT_DATA(positions, attn_view_i32(NULL, 1, 1, 0, 0, 0));
#undef WITHOUT_DATA
#undef REFUSED
    m = make_map(x, 4, 4); /* the smallest that fits is the number in the error */
    m.width = 1;
    CHECK_STATUS(attn_heatmap_svg(&m, none, &err), ATTN_ERR_NULL);
    refused(&m, PIXELS, ATTN_ERR_RANGE, "width");
    for (int kind = SVG; kind <= PPM; kind++) {
        attn_writer w = {put, &untouched};
        m.width = 1;
        CHECK_STATUS(draws[kind](&m, w, &err), ATTN_ERR_RANGE);
        CHECK(err.has_numbers && err.got == 1 && err.want > 1);
        m.width = (int32_t)err.want - 1;
        refused(&m, 1 << kind, ATTN_ERR_RANGE, "width");
        m.width++;
        draw(kind, &m, NULL);
    }
}

/* The side that is not given counts too, before a byte is written. */
static void derived_sides(void) {
    static const float one[1] = {1};
    static const struct {
        int64_t rows, cols;
        int32_t width, height;
        const char *field; /* NULL: fits */
        int64_t got;
    } set[] = {{2000, 1, 1000, 0, "height", 0},  {1, 2000, 0, 1000, "width", 0},   {40000, 1, 0, 0, "height", 40000},
               {1, 40000, 0, 0, "width", 40000}, {2000, 1, 1000, 900, NULL, 0},    {40000, 1, 900, 900, NULL, 0},
               {32767 - 64, 1, 0, 0, NULL, 0},   {32768, 1, 0, 0, "height", 32768}};
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        for (int kind = SVG; kind <= PPM; kind++) {
            attn_heatmap m = make_map(one, set[i].rows, set[i].cols);
            attn_writer w = {put, &untouched};
            attn_error err;
            m.values.stride[0] = m.values.stride[1] = 0;
            m.no_colorbar = 1;
            m.width = set[i].width;
            m.height = set[i].height;
            untouched.calls = 0;
            untouched.fail_at = 1; /* nobody waits for gigabytes */
            CHECK_STATUS(draws[kind](&m, w, &err), set[i].field ? ATTN_ERR_RANGE : ATTN_ERR_WRITE);
            if (!set[i].field) continue;
            CHECK(!strcmp(err.field, set[i].field) && strstr(err.rule, "derived") && untouched.calls == 0);
            CHECK(err.has_numbers && err.want == 32767 && err.got > 32767);
            if (kind == PPM && set[i].got) CHECK(err.got == set[i].got);
        }
    untouched.fail_at = 0;
}

/* ---- anything goes: random maps are well-formed, of the size asked for, and inside it */

static void random_maps(void) {
    static const char *const words[6] = {"a", "\xC3\xA9t\xC3\xA9", "<&>", NULL, "something much longer than a cell",
                                         ""};
    for (int round = 0; round < 150; round++) {
        float x[3 * 3 * 20 * 20];
        const char *ticks[2][20], *titles[9];
        attn_heatmap m = make_map(x, 1, 1);
        const char *s;
        rect r;
        image p;
        int w = 0, h = 0, rank = test_int(2, 4);
        for (size_t i = 0; i < sizeof x / sizeof *x; i++)
            x[i] = test_int(0, 30) ? (float)test_normal() : test_int(0, 1) ? NAN : INFINITY;
        for (int i = 0; i < 20; i++) ticks[0][i] = words[test_int(0, 5)], ticks[1][i] = words[test_int(0, 5)];
        for (int i = 0; i < 9; i++) titles[i] = words[test_int(0, 5)];
        m.values = rank == 2   ? attn_view_f32(x, 2, test_int(0, 20), test_int(0, 20), 0, 0)
                   : rank == 3 ? attn_view_f32(x, 3, test_int(0, 3), test_int(0, 20), test_int(0, 20), 0)
                               : attn_view_f32(x, 4, test_int(0, 3), test_int(0, 3), test_int(0, 20), test_int(0, 20));
        if (test_int(0, 1)) m.title = words[test_int(0, 5)];
        if (test_int(0, 1)) m.x_label = words[test_int(0, 5)];
        if (test_int(0, 1)) m.y_label = words[test_int(0, 5)];
        if (test_int(0, 1)) m.x_ticks = ticks[0];
        if (test_int(0, 1)) m.y_ticks = ticks[1];
        if (test_int(0, 1)) m.panel_titles = titles;
        if (test_int(0, 2) == 0) m.width = test_int(550, 900);
        if (test_int(0, 2) == 0) m.height = test_int(550, 900);
        if ((m.range_set = test_int(0, 1)) != 0) m.range_max = m.range_min = (float)test_normal(), m.range_max += 0.5f;
        m.ticks_on_top = test_int(0, 1);
        m.no_colorbar = test_int(0, 3) == 0;
        m.numbers = test_int(0, 3) == 0;
        m.cell_titles = m.values.rank == 2;
        m.colormap = test_int(0, ATTN_COLORMAP_COUNT - 1);
        m.terminal = test_int(0, 2);
        s = draw(SVG, &m, NULL);
        CHECKF(!xml_fault(s), "round %d: %.60s", round, xml_fault(s) ? xml_fault(s) : "");
        CHECK(sscanf(s, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\"", &w, &h) == 2);
        CHECKF((!m.width || w == m.width) && (!m.height || h == m.height), "round %d: %d x %d", round, w, h);
        while (next_rect(&s, &r))
            CHECKF(r.x >= 0 && r.y >= 0 && r.w > 0 && r.h > 0 && r.x + r.w <= w && r.y + r.h <= h,
                   "round %d: %d %d %d %d", round, r.x, r.y, r.w, r.h);
        s = draw(LINES, &m, NULL);
        CHECKF(!xml_fault(s), "round %d: %.60s", round, xml_fault(s) ? xml_fault(s) : "");
        s = draw(ANSI, &m, NULL);
        CHECK(m.terminal != ATTN_TERMINAL_ASCII || (utf8_ok(s) && !strchr(s, '\033')));
        p = draw_ppm(&m);
        CHECKF((!m.width || p.w == m.width) && (!m.height || p.h == m.height), "round %d: %d x %d", round, p.w, p.h);
        test_release();
    }
}

/* Elements of 16 bits are drawn as the floats that they are. */
static void sixteen_bits(void) {
    static char plain[1 << 16], typed[1 << 16];
    static const float x[6] = {0, 0.5f, -1, 3, INFINITY, 0.25f};
    uint16_t half[6];
    for (int type = ATTN_F16; type <= ATTN_BF16; type++) {
        attn_buffer a = {plain, sizeof plain, 0}, b = {typed, sizeof typed, 0};
        attn_heatmap m;
        memset(&m, 0, sizeof m);
        m.values = attn_view_f32(x, 2, 2, 3, 0, 0);
        CHECK_STATUS(attn_convert(m.values, attn_out_typed((attn_type)type, half, 2, 2, 3, 0, 0), NULL), ATTN_OK);
        CHECK_STATUS(attn_heatmap_svg(&m, attn_buffer_writer(&a), NULL), ATTN_OK);
        m.values = attn_view_typed((attn_type)type, half, 2, 2, 3, 0, 0);
        CHECK_STATUS(attn_heatmap_svg(&m, attn_buffer_writer(&b), NULL), ATTN_OK);
        CHECK(a.length == b.length && a.length < sizeof plain && !strcmp(plain, typed));
    }
}

const test_case suite_heatmap[] = {{"heatmap.sixteen_bits", sixteen_bits},
                                   {"heatmap.checker_itself", checker_itself},
                                   {"heatmap.colours", colours},
                                   {"heatmap.ranges", ranges},
                                   {"heatmap.diverging", diverging},
                                   {"heatmap.ppm_places", ppm_places},
                                   {"heatmap.svg_places", svg_places},
                                   {"heatmap.large_maps", large_maps},
                                   {"heatmap.svg_cells", svg_cells},
                                   {"heatmap.svg_size", svg_size},
                                   {"heatmap.bar_ticks", bar_ticks},
                                   {"heatmap.no_bar", no_bar},
                                   {"heatmap.numbers", numbers},
                                   {"heatmap.numbers_outside", numbers_outside},
                                   {"heatmap.escaping", escaping},
                                   {"heatmap.directions", directions},
                                   {"heatmap.long_labels", long_labels},
                                   {"heatmap.terminal_words", terminal_words},
                                   {"heatmap.letter_widths", letter_widths},
                                   {"heatmap.cut_letters", cut_letters},
                                   {"heatmap.thinned_labels", thinned_labels},
                                   {"heatmap.terminal_cells", terminal_cells},
                                   {"heatmap.terminal_256", terminal_256},
                                   {"heatmap.panels", panels},
                                   {"heatmap.strides", strides},
                                   {"heatmap.masks", masks},
                                   {"heatmap.empty", empty},
                                   {"heatmap.cell_titles", cell_titles},
                                   {"heatmap.many_titles", many_titles},
                                   {"heatmap.lines", lines},
                                   {"heatmap.lines_words", lines_words},
                                   {"heatmap.html_values", html_values},
                                   {"heatmap.hatched", hatched},
                                   {"heatmap.html_size", html_size},
                                   {"heatmap.html_range", html_range},
                                   {"heatmap.html_labels", html_labels},
                                   {"heatmap.writers", writers},
                                   {"heatmap.buffers", buffers},
                                   {"heatmap.errors", errors},
                                   {"heatmap.derived_sides", derived_sides},
                                   {"heatmap.random_maps", random_maps},
                                   {0, 0}};
