/* page.h - the web page of a heatmap, a copy of its own for each suite that draws one, so that what suites are linked
   with is attn.h alone. Before test.h, which counts calls. */
#include "../attn.h"
#define ATTN_HEATMAP_HTML_DEF static
#define ATTN_HEATMAP_HTML_IMPLEMENTATION
#include "../examples/web/attn_heatmap_html.h"
