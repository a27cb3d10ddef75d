/* attn_heatmap_html.h - heatmaps of attn.h as a web page and as lines - MIT or Unlicense, as attn.h, which has the text
   SPDX-License-Identifier: MIT OR Unlicense

       #include "attn.h"
       #define ATTN_HEATMAP_HTML_IMPLEMENTATION        // in ONE C or C++ file of a program; the others just include
       #include "attn_heatmap_html.h"

   Copy it beside attn.h; `make install` does not install it.

   attn_heatmap_html writes a page in one file, which loads nothing. All panels are seen small, beside each other; a
   click or Enter opens one, Escape goes back. A panel is shown as cells, with the labels and the value of the one under
   the pointer, or that the arrow keys move to, and zoom; or as lines between two columns of words, queries on the left
   and keys on the right, of which a word under the pointer, or that the arrow keys move to, shows its own alone, with
   their values. Light and dark; phones; keyboard and screen readers. A label without room is cut; that of the word that
   is chosen among the lines is told in full. The page has 21 KB and 4/3 of the bytes of the values; a mask adds a sixth
   of a byte for each cell.

   attn_heatmap_lines_svg writes the lines as an SVG file, panels beside and below each other as in attn_heatmap_svg.

   A line is as thick, and as opaque, as its value is large: 8 pixels for the largest magnitude of the range of the
   colours; red above 0 and blue below it, the colours of ATTN_COLORMAP_DIVERGING. There is none where a cell is masked
   or less than 1/200 of that magnitude; that of NaN is thin, dashed and magenta. The page shows at most 4000 lines, the
   thickest. In the file labels are cut at 240 pixels, some 32 letters, and thinned out where there are more than some
   600.

   Both ignore width, height, numbers, ticks_on_top (but for the page's cells) and cell_titles. mask_of takes a byte of
   memory for each cell, from malloc (ATTN_ERR_ALLOC: there is none); the rest takes none. They are made of the public
   functions of attn.h alone, so that all pictures of a map agree: they refuse what attn_heatmap_ansi refuses, in the
   same words; strings are what attn_heatmap_ansi makes of a title; the colours and the ticks of the colour bar are read
   from a small SVG file. Their linkage is ATTN_DEF, or ATTN_HEATMAP_HTML_DEF. */
#ifndef ATTN_HEATMAP_HTML_INCLUDED
#define ATTN_HEATMAP_HTML_INCLUDED
#if !defined(ATTN_H_INCLUDED) || defined(ATTN_NO_HEATMAP)
#error "attn_heatmap_html.h: include attn.h before it, with its pictures (without ATTN_NO_HEATMAP)"
#endif
#ifndef ATTN_HEATMAP_HTML_DEF
#define ATTN_HEATMAP_HTML_DEF ATTN_DEF
#endif
#ifdef __cplusplus
extern "C" {
#endif
ATTN_HEATMAP_HTML_DEF attn_status attn_heatmap_html(const attn_heatmap *map, attn_writer writer, attn_error *err);
ATTN_HEATMAP_HTML_DEF attn_status attn_heatmap_lines_svg(const attn_heatmap *map, attn_writer writer, attn_error *err);
#ifdef __cplusplus
}
#endif
#endif /* ATTN_HEATMAP_HTML_INCLUDED */

#if defined(ATTN_HEATMAP_HTML_IMPLEMENTATION) && !defined(ATTN_HEATMAP_HTML_IMPLEMENTED)
#define ATTN_HEATMAP_HTML_IMPLEMENTED
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the page: labels as items of hidden lists; values as base64, an element for each panel, decoded when it is
   shown; then the program that draws them. */
/* clang-format off */
static const char attn_html__style[] =
    ":root { color-scheme: light dark; --line: color-mix(in srgb, CanvasText 22%, Canvas) }"
    "body { max-width: 76em; margin: auto; padding: 1.5em; background: Canvas; color: CanvasText;"
        "font: 15px/1.45 system-ui, sans-serif }"
    "header { display: flex; flex-wrap: wrap; gap: .5em; align-items: center; margin-bottom: 1.5em }"
    "h1 { flex: 1 1 9em; margin: 0; font-size: 1.35em; overflow-wrap: anywhere }"
    "button, select { font: inherit; color: inherit; background: Canvas; padding: .3em .7em;"
        "border: 1px solid var(--line); border-radius: .4em }"
    "[aria-pressed=true] { background: color-mix(in srgb, #2a7de1 25%, Canvas) }"
    "[hidden] { display: none !important }"
    ":focus-visible { outline: 3px solid #2a7de1; outline-offset: 2px }"
    "#plot { display: grid; grid-template-columns: repeat(4, max-content); column-gap: .5em }"
    "#plot > * { grid-row: 3; position: relative }"
    "#plot > #names1, #title1 { grid-column: 3; grid-row: 4; text-align: center }"
    "#plot > #title1 { grid-row: 5 }"
    "#plot.top > #names1 { grid-row: 2 }"
    "#plot.top > #title1 { grid-row: 1 }"
    "#title0 { writing-mode: vertical-rl; transform: rotate(180deg); text-align: center }"
    "#plot i { position: absolute; max-width: 11em; overflow: hidden; text-overflow: ellipsis; white-space: pre;"
        "font: 13px/1.2 system-ui, sans-serif }"
    "#names0 i { right: 0; transform: translateY(-50%) }"
    "#names1 i { top: 6px; transform: translateX(-50%) }"
    "#names1.turned i { transform: translateX(-100%) rotate(-45deg); transform-origin: right top }"
    ".top #names1 i { top: auto; bottom: 6px }"
    ".top #names1.turned i { transform: rotate(-45deg); transform-origin: left bottom }"
    "#bar { width: 14px; min-height: 80px; margin: 0 4em 0 1em; background: linear-gradient(to top, var(--shades)) }"
    "#bar i { left: 20px; bottom: var(--at); transform: translateY(50%) }"
    "canvas { display: block; cursor: crosshair }"
    "#cell { position: absolute; box-sizing: border-box; border: 2px solid #fff; outline: 2px solid #000;"
        "pointer-events: none }"
    "#say { position: absolute; box-sizing: border-box; width: max-content; max-width: min(30em, 100vw - 2em);"
        "overflow: hidden; text-overflow: ellipsis; white-space: pre; z-index: 1; padding: .4em .7em;"
        "background: Canvas; border: 1px solid var(--line); border-radius: .4em;"
        "box-shadow: 0 2px 9px #0005; pointer-events: none }"
    "#say:empty { opacity: 0 }"
    "#wall { display: grid; grid-template-columns: repeat(auto-fill,"
        "minmax(max(9.5em, 100% / var(--across) - .6em), 1fr)); gap: .6em; max-width: calc(var(--across) * 13em) }"
    "#wall button { display: flex; flex-direction: column; align-items: center; justify-content: space-between;"
        "gap: .4em; min-width: 0; padding: .6em; overflow-wrap: anywhere }"
    "#wall canvas { max-width: 100%; cursor: inherit }"
    "#help { opacity: .75; margin-top: 1.5em }"
    "#touch { display: none }"
    "@media (pointer: coarse) { #mouse { display: none } #touch { display: inline } }"
    "@media (max-width: 600px) {"
        "body { padding: 1em .8em }"
        "#plot { grid-template-columns: repeat(3, max-content); column-gap: .3em }"
        "#names0 i { max-width: 100% }"
        "#names1.turned i, .top #names1.turned i { writing-mode: vertical-rl; max-height: 11em;"
            "transform: translateX(-50%) rotate(180deg); transform-origin: center }"
        "#plot > #bar { grid-area: 6 / 1 / auto / 4; width: auto; min-height: 14px; margin: 1em 1.5em 1.5em;"
            "background: linear-gradient(to right, var(--shades)) }"
        "#bar i { left: var(--at); bottom: auto; top: 18px; transform: translateX(-50%) }"
    "}";
static const char attn_html__style_of_lines[] =
    "#pair { display: grid; column-gap: .5em; row-gap: .4em; width: fit-content; max-width: 100% }"
    "#pair > strong { overflow: hidden; text-overflow: ellipsis }"
    "#pair > :nth-child(3n + 1) { text-align: right }"
    "#pair > div { position: relative }"
    "#pair i { position: absolute; display: flex; gap: .5em; max-width: 100%; transform: translateY(-50%);"
        "white-space: pre; font: 13px/1.2 system-ui, sans-serif }"
    "#side0 i { right: 0 }"
    "#side1 i { left: 0; flex-direction: row-reverse }"
    "#pair span { overflow: hidden; text-overflow: ellipsis }"
    "#pair .on { font-weight: bold; text-decoration: underline }"
    "#threads { width: 100%; overflow: visible }"
    "#tell { display: block; position: sticky; bottom: 0; box-sizing: border-box; max-height: 40vh; overflow: auto;"
        "margin-top: .5em; padding: .3em 0; background: Canvas; white-space: pre-wrap; overflow-wrap: anywhere }"
    "#tell:empty { margin: 0; padding: 0 }";
/* Values as attn_html__values has them, and their colours. */
static const char attn_html__data[] =
    "const $ = id => document.getElementById(id);"
    "const plot = $('plot'), map = $('map'), cell = $('cell'), say = $('say');"
    "const words = id => $(id) && [...$(id).children].map(e => e.textContent);"
    "function bytes(id) {"
        "const text = atob($(id).textContent), all = new Uint8Array(text.length);"
        "for (let k = 0; k < all.length; k++) all[k] = text.charCodeAt(k);"
        "return all.buffer;"
    "}"
    "const f16 = h => (h >> 15 ? -1 : 1) * ((h >> 10 & 31) == 31 ? h & 1023 ? NaN : 1 / 0 :"
        "h >> 10 & 31 ? 2 ** ((h >> 10 & 31) - 25) * (1024 + (h & 1023)) : (h & 1023) / 2 ** 24);"
    "const float = new Float32Array(1), bits = new Uint32Array(float.buffer);"
    "const bf16 = h => (bits[0] = h << 16, float[0]);"
    "const stored = [Float32Array, Uint16Array, Uint16Array][type] || Uint8Array;"
    "const number = [0, f16, bf16][type] || (v => v);"
    "const [low, high] = new Float32Array(bytes('range')), rgb = shades.map(s => parseInt(s.slice(1), 16));"
    "function colour(v) {"
        "if (v != v) return 0xffff00ff;"
        "const x = 6 * Math.min(1, Math.max(0, (v - low) / (high - low))), k = Math.min(5, x | 0);"
        "let abgr = 0xff000000;"
        "for (const shift of [0, 8, 16]) {"
            "const a = rgb[k] >> shift & 255, b = rgb[k + 1] >> shift & 255;"
            "abgr |= a + (x - k) * (b - a) + .5 << 16 - shift;"
        "}"
        "return abgr;"
    "}";
/* The picture: a pixel shows the largest of its cells; labels stand where they fit, as in an SVG. */
static const char attn_html__draw[] =
    "const pen = map.getContext('2d'), names = [words('words0'), words('words1')];"
    "const name = (a, k) => names[a] ? names[a][k] : String(k);"
    "pen.font = '13px system-ui, sans-serif';"
    "const longest = names.map((w, a) =>"
        "Math.min(143, (w || [count[a] - 1]).reduce((most, s) => Math.max(most, pen.measureText(s).width), 0)));"
    "const narrow = matchMedia('(max-width: 600px)');"
    "let values, kept, panel = 0, at = [0, 0], size = [0, 0], first = [0, 0], shown = count, zoom = 1;"
    "const load = n => [new stored(bytes('panel' + n)), $('mask' + n) && new Uint8Array(bytes('mask' + n))];"
    "const masked = (k, kept) => kept && !(kept[k >> 3] >> 7 - k % 8 & 1);"
    "function spans(pixels, first, n) {"
        "const grid = pixels >= 12 * devicePixelRatio * n;"
        "return Array.from({ length: pixels }, (_, k) => {"
            "const from = Math.floor(k * n / pixels), to = Math.floor((k + 1) * n / pixels);"
            "return grid && to > from ? null : [first + from, first + Math.max(to, from + 1)];"
        "});"
    "}"
    "function paint(map, [values, kept], size, first, shown) {"
        "const [height, width] = size.map(s => Math.max(1, Math.round(s * devicePixelRatio)));"
        "const rows = spans(height, first[0], shown[0]), columns = spans(width, first[1], shown[1]);"
        "const pen = map.getContext('2d'), image = pen.createImageData(width, height);"
        "const pixels = new Uint32Array(image.data.buffer), hatch = Math.round(6 * devicePixelRatio);"
        "rows.forEach((r, y) => r && columns.forEach((c, x) => {"
            "if (!c) return;"
            "let most;"
            "for (let i = r[0]; i < r[1]; i++)"
                "for (let j = c[0]; j < c[1]; j++) {"
                    "const k = i * count[1] + j, v = number(values[k]);"
                    "if (!masked(k, kept) && !(v <= most) && most == most) most = v;"
                "}"
            "pixels[y * width + x] = most !== undefined ? colour(most) : (x + y) % hatch ? 0 : 0xff999999;"
        "}));"
        "map.width = width;"
        "map.height = height;"
        "map.style.height = size[0] + 'px';"
        "map.style.width = size[1] + 'px';"
        "pen.putImageData(image, 0, 0);"
    "}"
    "function label(a, turned) {"
        "const box = $('names' + a), pitch = size[a] / shown[a], need = a && !turned ? longest[1] + 8 : 15;"
        "let step = 1;"
        "for (let k = 0; step * pitch < need && step < count[a]; k++) step = k % 3 == 1 ? step / 2 * 5 : step * 2;"
        "box.replaceChildren();"
        "for (let k = Math.ceil(first[a] / step) * step; k < first[a] + shown[a]; k += step) {"
            "const text = box.appendChild(document.createElement('i'));"
            "text.textContent = name(a, k);"
            "text.style[a ? 'left' : 'top'] = (k - first[a] + .5) * pitch + 'px';"
        "}"
    "}"
    "function draw_cells() {"
        "const thin = narrow.matches, wide = Math.min(longest[0], thin ? plot.clientWidth * .3 : 143);"
        "const room = [innerHeight * .72, plot.clientWidth - wide - 150], left = $('names0').style;"
        "left.width = wide + 'px';"
        "const side = Math.min(44, ...room.map((r, a) => r / count[a])), whole = side > 4 ? Math.floor(side) : side;"
        "size = count.map(n => Math.max(n * whole, Math.min(n * 24, 96)));"
        "if (thin) {" /* the whole width; cells are square if the screen is high enough */
            "size[1] = Math.floor(plot.clientWidth - map.offsetParent.offsetLeft + plot.offsetLeft);"
            "size[0] = Math.floor(Math.min(room[0], size[1] * count[0] / count[1]));"
            "size[0] = Math.max(size[0], Math.min(count[0] * 24, 96));"
        "}"
        "const pitch = size[1] / shown[1], turned = names[1] && longest[1] + 8 > pitch;"
        "const slant = !turned ? 0 : thin ? longest[1] : longest[1] * .71;"
        "if (!thin) left.width = Math.max(wide, slant - pitch / 2) + 'px';"
        "$('names1').style.height = slant + 28 + 'px';"
        "$('names1').className = turned ? 'turned' : '';"
        "paint(map, [values, kept], size, first, shown);"
        "label(0);"
        "label(1, turned);"
        "$('dense').hidden = Math.min(size[0] / shown[0], pitch) * devicePixelRatio >= 1;"
        "if (say.textContent) mark();"
    "}";
/* Lines between two columns of words: all of a panel, or those of a word, which have their values beside them. */
static const char attn_html__lines_of_page[] =
    "const pair = $('pair'), threads = $('threads'), most = Math.max(Math.abs(low), Math.abs(high));"
    "const axis = a => $('title' + a).textContent || ['row', 'column'][a];"
    "const short = v => String(+v.toPrecision(3));"
    "const part = v => v != v ? 1 : Math.min(1, Math.abs(v) / most), grade = v => Math.floor(part(v) * faintest);"
    "let word = null;" /* [its side, its number] */
    "function strands() {"
        "const [rows, columns] = [0, 1].map(a => word && word[0] == a ? [word[1], word[1] + 1] : [0, count[a]]);"
        "const each = f => {"
            "for (let i = rows[0]; i < rows[1]; i++)"
                "for (let j = columns[0]; j < columns[1]; j++) {"
                    "const k = i * count[1] + j;"
                    "if (!masked(k, kept)) f(i, j, number(values[k]));"
                "}"
        "};"
        "const grades = new Float64Array(faintest + 1), all = [], room = 4000;"
        "each((i, j, v) => grades[grade(v)]++);"
        "let least = faintest, sum = grades[least];"
        "while (least > 1 && sum + grades[least - 1] <= room) sum += grades[--least];"
        "each((i, j, v) => grade(v) >= least && all.length < room && all.push([i, j, v]));"
        "$('many').hidden = least == 1;"
        "return all;"
    "}"
    "function draw_lines() {"
        "const height = Math.min(24 * Math.max(...count), 6144), lines = strands(), other = word && 1 - word[0];"
        "const wide = longest.map(w => Math.min(w + 64, pair.parentNode.clientWidth * .33) + 'px ');"
        "const y = (a, k) => (k + .5) * height / count[a];"
        "pair.style.gridTemplateColumns = wide[0] + 'minmax(0, 22em) ' + wide[1];"
        "threads.style.height = height + 'px';"
        "threads.innerHTML = lines.map(([i, j, v]) => `<line x1='0' y1='${y(0, i)}' x2='100%' y2='${y(1, j)}' ` +"
            "(v != v ? `stroke='#f0f' stroke-width='1' stroke-dasharray='4'/>` : `stroke='${poles[v < 0 ? 1 : 5]}' `"
            "+ `stroke-width='${widest * part(v)}' stroke-opacity='${(2 + 3 * part(v)) / 5}'/>`)).join('');"
        "for (const a of [0, 1]) {"
            "const side = $('side' + a), step = Math.ceil(15 * count[a] / height);"
            "side.replaceChildren();"
            "$('head' + a).textContent = $('title' + a).textContent;"
            "const chosen = word && a == word[0] ? word[1] : 0;" /* is among those that have room */
            "for (let k = chosen % step; k < count[a]; k += step) {"
                "const line = side.appendChild(document.createElement('i'));"
                "line.style.top = y(a, k) + 'px';"
                "line.appendChild(document.createElement('span')).textContent = name(a, k);"
                "if (word && a == word[0]) line.className = k == word[1] ? 'on' : '';"
                "if (!word || a != other) continue;"
                "const index = a ? word[1] * count[1] + k : k * count[1] + word[1];"
                "line.appendChild(document.createElement('strong')).textContent ="
                    "masked(index, kept) ? 'masked' : short(number(values[index]));"
            "}"
        "}"
        "lines.sort((a, b) => part(b[2]) - part(a[2]));"
        "$('tell').textContent = word ? axis(word[0]) + ': ' + name(...word) + '\\n' + lines.slice(0, 5).map(line =>"
            "name(other, line[other]) + ' ' + short(line[2])).join(', ') : '';"
    "}"
    "function choose(to) {"
        "if (String(to) == String(word)) return;"
        "word = to;"
        "draw();"
    "}"
    "function reach(e) {" /* scrolls to what a key has chosen, which is not to lie under #tell */
        "e.style.scrollMargin = `4px 0 ${4 + $('tell').offsetHeight}px`;"
        "e.scrollIntoView({ block: 'nearest' });"
    "}"
    "const along = (a, k) => [a, Math.max(0, Math.min(count[a] - 1, Math.floor(k)))];"
    "const steps = { ArrowUp: -1, ArrowDown: 1, Home: -1 / 0, End: 1 / 0 };"
    "pair.onkeydown = e => {"
        "if (e.ctrlKey || e.altKey || e.metaKey) return;"
        "const [a, k] = word, to = { ArrowLeft: 0, ArrowRight: 1 }[e.key];"
        "if (steps[e.key]) choose(along(a, k + steps[e.key]));"
        "else if (turns[e.key]) show(panel + turns[e.key]);"
        "else if (to === undefined) return;"
        "else if (to != a) choose(along(to, (k + .5) * count[to] / count[a]));"
        "reach(pair.querySelector('.on'));"
        "e.preventDefault();"
    "};"
    "pair.onpointermove = pair.onpointerdown = e => {"
        "const box = threads.getBoundingClientRect(), a = +(e.clientX > box.left + box.width / 2);"
        "choose(along(a, (e.clientY - box.top) * count[a] / box.height));"
    "};"
    "const leave = () => document.activeElement == pair || choose(null);"
    /* A word stays chosen under the text that has come to lie over it, and after the finger, which is gone before the
       focus comes; but not where the finger has moved the page. */
    "pair.onpointerleave = $('tell').onpointerleave = e =>"
        "e.relatedTarget == $('tell') || e.pointerType == 'touch' || leave();"
    "pair.onpointercancel = leave;"
    "pair.onfocus = () => {"
        "choose(word || [0, 0]);"
        "reach(pair.querySelector('.on'));"
    "};"
    "pair.onblur = () => choose(null);";
/* What the reader does: a cell is marked and told, part of a panel enlarged, the colours change. */
static const char attn_html__use[] =
    "function mark() {"
        "const pitch = size.map((s, a) => s / shown[a]), from = at.map((k, a) => (k - first[a]) * pitch[a]);"
        "const place = [['top', 'bottom', 'height'], ['left', 'right', 'width']], px = x => x + 'px';"
        "place.forEach(([near, far, extent], a) => {"
            "const side = Math.max(pitch[a], 9), beyond = from[a] > size[a] / 2;"
            "cell.style[extent] = px(side);"
            "cell.style[near] = px(from[a] + (pitch[a] - side) / 2);"
            "say.style[near] = beyond ? 'auto' : px(from[a] + side + 6);"
            "say.style[far] = beyond ? px(size[a] - from[a] + 6) : 'auto';"
        "});"
        "cell.hidden = false;"
        "const index = at[0] * count[1] + at[1];"
        "say.textContent = (panels > 1 ? $('panel').selectedOptions[0].text + '\\n' : '') +"
            "at.map((k, a) => axis(a) + ': ' + name(a, k) + '\\n').join('') +"
            "(masked(index, kept) ? 'masked' : 'value: ' + +number(values[index]).toPrecision(6));"
        /* Where it would be past a side of the window, which scrolls only up and down, it moves. */
        "const { left, right } = say.getBoundingClientRect(), end = document.documentElement.clientWidth - 8;"
        "say.style.left = px(say.offsetLeft - (Math.max(0, right - end) || Math.min(0, left - 8)));"
        "say.style.right = 'auto';"
    "}"
    "function hide() {"
        "cell.hidden = true;"
        "say.textContent = '';"
    "}"
    "function go(to) {"
        "const before = String(first);"
        "at = to.map((k, a) => Math.max(0, Math.min(count[a] - 1, k)));"
        "first = first.map((f, a) => Math.max(at[a] - shown[a] + 1, Math.min(f, at[a])));"
        "if (String(first) != before) draw();"
        "mark();"
    "}"
    "function scale(by) {"
        "zoom = Math.max(1, Math.min(Math.max(...count) / 8, zoom * by));"
        "const old = shown;"
        "shown = count.map(n => Math.max(1, Math.round(n / zoom)));"
        "first = first.map((f, a) => Math.round(Math.max(0, Math.min(count[a] - shown[a],"
            "at[a] - (at[a] - f) * shown[a] / old[a]))));"
        "map.style.touchAction = zoom > 1 ? 'none' : '';" /* what is enlarged a finger moves, else the page */
        "draw();"
    "}"
    "function theme(dark) {"
        "document.documentElement.style.colorScheme = dark ? 'dark' : 'light';"
        "$('theme').textContent = dark ? 'Light' : 'Dark';"
        "$('theme').onclick = () => theme(!dark);"
    "}"
    "const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],"
        "Home: [0, -count[1]], End: [0, count[1]] };"
    "const zooms = { '+': 2, '=': 2, '-': .5 };"
    "map.onkeydown = e => {"
        "if (e.ctrlKey || e.altKey || e.metaKey) return;"
        "if (moves[e.key]) go(at.map((k, a) => k + moves[e.key][a]));"
        "else if (turns[e.key]) show(panel + turns[e.key]);"
        "else if (zooms[e.key]) scale(zooms[e.key]);"
        "else return;"
        "reach(cell);"
        "e.preventDefault();"
    "};"
    "const see = e => go([e.offsetY, e.offsetX].map((p, a) =>"
        "first[a] + Math.floor(Math.max(0, Math.min(size[a] - 1, p)) * shown[a] / size[a])));"
    "let held;"
    "map.onpointerdown = e => {"
        "held = zoom > 1 && e.pointerType == 'touch' && { from: [e.offsetY, e.offsetX], first };"
        "see(e);"
    "};"
    "map.onpointermove = e => {"
        "if (!held) return see(e);"
        "first = [e.offsetY, e.offsetX].map((p, a) => Math.round(Math.max(0, Math.min(count[a] - shown[a],"
            "held.first[a] + (held.from[a] - p) * shown[a] / size[a]))));"
        "at = at.map((k, a) => Math.max(first[a], Math.min(first[a] + shown[a] - 1, k)));"
        "draw();"
    "};"
    "map.onpointerup = map.onpointercancel = () => held = 0;"
    "$('nearer').onclick = () => scale(2);"
    "$('farther').onclick = () => scale(.5);"
    "$('nearer').disabled = $('farther').disabled = Math.max(...count) <= 8;"
    "map.onpointerleave = () => document.activeElement == map || hide();"
    "map.onfocus = mark;"
    "map.onblur = hide;"
    "map.onwheel = e => {"
        "if (document.activeElement != map) return;"
        "scale(2 ** (-e.deltaY / 240));"
        "e.preventDefault();"
    "};"
    "$('panel').onchange = e => show(+e.target.value);"
    "$('before').onclick = () => show(panel - 1);"
    "$('after').onclick = () => show(panel + 1);"
    "const system = matchMedia('(prefers-color-scheme: dark)');"
    "system.onchange = () => theme(system.matches);"
    "theme(system.matches);"
    "if ($('bar')) {"
        "$('bar').style.setProperty('--shades', String(shades));"
        "for (const t of words('ticks')) {"
            "const text = $('bar').appendChild(document.createElement('i'));"
            "text.textContent = t;"
            "text.style.setProperty('--at', 100 * (t - low) / (high - low) + '%');"
        "}"
    "}";
/* Which panel is shown, and how; all beside each other, of which one opens. */
static const char attn_html__wall[] =
    "let view = 'cells', last = view;" /* or lines, or all: an overview of the panels; the last that was not all */
    "const draw = () => view == 'cells' ? draw_cells() : view == 'lines' && draw_lines();"
    "function take(n) {"
        "panel = (n + panels) % panels;"
        "[values, kept] = load(panel);"
        "$('panel').value = panel;"
    "}"
    "function show(n) {"
        "take(n);"
        "draw();"
    "}"
    "function look(to) {"
        "view = to;"
        "if (view != 'all') last = view;"
        "for (const e of document.querySelectorAll('[data-in]')) e.hidden = !e.dataset.in.includes(view);"
        "for (const id of ['all', 'cells', 'lines']) $(id).setAttribute('aria-pressed', id == view);"
        "if (panels < 2) $('choice').hidden = true;"
        "hide();"
        "draw();"
    "}"
    "const wall = $('wall'), tiles = [];"
    "function overview() {"
        "look('all');"
        "tiles[panel].focus();"
    "}"
    "const small = count.map(n => Math.max(8, Math.round(n * 128 / Math.max(...count))));"
    "const watch = new IntersectionObserver(seen => seen.forEach(({ target, isIntersecting }) => {"
        "if (!isIntersecting) return;"
        "paint(target.firstChild, load(tiles.indexOf(target)), small, [0, 0], count);"
        "watch.unobserve(target);"
    "}));"
    "for (let n = 0; n < panels && panels > 1 && count[0] * count[1]; n++) {"
        "const tile = wall.appendChild(document.createElement('button'));"
        "tiles.push(tile);"
        "tile.append(document.createElement('canvas'), $('panel').options[n].text);"
        "tile.firstChild.style.height = small[0] + 'px';" /* before it is painted, too: else the page would move then */
        "tile.firstChild.style.width = small[1] + 'px';"
        "tile.tabIndex = n ? -1 : 0;"
        "tile.onfocus = () => {"
            "tiles[panel].tabIndex = -1;"
            "take(n);"
            "tile.tabIndex = 0;"
        "};"
        "tile.onclick = () => {"
            "take(n);"
            "look(last);"
            "(last == 'lines' ? pair : map).focus();"
        "};"
        "watch.observe(tile);"
    "}"
    "wall.onkeydown = e => {"
        "const across = tiles.filter(t => t.offsetTop == tiles[0].offsetTop).length;"
        "const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across,"
            "Home: -panel, End: panels - 1 - panel }[e.key];"
        "if (step === undefined || e.ctrlKey || e.altKey || e.metaKey) return;"
        "(tiles[panel + step] || tiles[panel]).focus();"
        "e.preventDefault();"
    "};"
    "onkeydown = e => {" /* returns nothing: false would take the other keys from the page */
        "if (e.key == 'Escape' && view != 'all' && tiles.length) overview();"
    "};"
    "$('all').onclick = overview;"
    "$('cells').onclick = () => look('cells');"
    "$('lines').onclick = () => look('lines');"
    "if (panels * count[0] * count[1]) {"
        "$('views').hidden = false;"
        "$('all').hidden = panels < 2;"
        "take(0);"
        "look(panels > 1 ? 'all' : 'cells');"
        "onresize = draw;"
    "} else plot.textContent = 'There are no cells.';";
static const char attn_html__help[] =
    "<p id=help><span data-in=cells><span id=mouse>Point at a cell, or move to it with the arrow keys, to see what it "
    "holds. + and - zoom, and so does the wheel after a click.</span><span id=touch>Touch a cell to see what it holds. "
    "+ and - zoom; what is enlarged follows the finger.</span>"
    "<span id=dense hidden> A pixel shows the largest of its cells.</span></span>"
    "<span data-in=lines hidden>The thicker a line, the larger its value: red above 0, blue below. Point at a word, or "
    "move to it with the arrow keys, to see its lines alone, with their values."
    "<span id=many hidden> The 4000 thickest are shown.</span></span>"
    "<span data-in=all hidden>A click, or the arrow keys and Enter, open a panel.</span>";
/* Beside the plot: the lines, and a wall of all panels. */
static const char attn_html__views[] =
    "<div data-in=lines hidden><div id=pair tabindex=0 role=application aria-describedby=help "
    "aria-label='Lines between two columns of words'>"
    "<strong id=head0></strong><strong></strong><strong id=head1></strong>"
    "<div id=side0 aria-hidden=true></div><svg id=threads aria-hidden=true></svg><div id=side1 aria-hidden=true></div>"
    "</div><output id=tell></output></div>\n";
/* clang-format on */

/* How thick a line is, in the page and in an SVG file: in proportion to the magnitude, up to so many pixels for the
   largest one of the range; what is less than this part of it has no line. It is as opaque as (2 + 3 share) / 5. */
enum { ATTN_HTML__WIDEST = 8, ATTN_HTML__FAINTEST = 200 };

/* ---- how the values are stored */
typedef struct attn_html__kind {
    int bytes;               /* of a value */
    uint32_t sign, infinity; /* bits; what is above infinity is NaN */
    uint32_t nan;            /* the one that all become; 0: they stay as they are */
} attn_html__kind;
/* Of f32, f16, bf16, u8. */
static const attn_html__kind attn_html__kinds[] = {{4, 0x80000000u, 0x7f800000u, 0},
                                                   {2, 0x8000u, 0x7c00u, 0x7e00u},
                                                   {2, 0x8000u, 0x7f80u, 0x7fc0u},
                                                   {1, 0, 0x100u, 0}};

typedef struct attn_html__page {
    attn_heatmap map; /* the caller's, with a range, and values and mask [panel rows, panel columns, rows, columns] */
    attn_writer to;
    attn_html__kind kind;
    void *memory; /* that of a mask_of */
    int failed, has_nan, has_masked, has_negative;
    uint32_t waiting; /* the lowest bits are those that base64 has not written yet, */
    int waiting_bits; /* so many */
    size_t length;    /* of what is not written yet */
    int64_t room;     /* pixels that the rest of a string may take */
    char bytes[512];
    char bar[4096]; /* an SVG file with the colour bar */
} attn_html__page;

static const unsigned char *attn_html__at(const attn_view *v, int bytes, int64_t b, int64_t h, int64_t i, int64_t j) {
    return (const unsigned char *)v->data +
           (b * v->stride[0] + h * v->stride[1] + i * v->stride[2] + j * v->stride[3]) * bytes;
}
/* The bits of a value. */
static uint32_t attn_html__stored(const attn_html__page *p, int64_t b, int64_t h, int64_t i, int64_t j) {
    const unsigned char *at = attn_html__at(&p->map.values, p->kind.bytes, b, h, i, j);
    uint32_t word = *at;
    uint16_t half;
    if (p->kind.bytes == 4) memcpy(&word, at, sizeof word);
    if (p->kind.bytes == 2) {
        memcpy(&half, at, sizeof half);
        word = half;
    }
    return p->kind.nan && (word & ~p->kind.sign) > p->kind.infinity ? p->kind.nan : word;
}
static int attn_html__is_masked(const attn_html__page *p, int64_t b, int64_t h, int64_t i, int64_t j) {
    return p->map.mask.rank && !*attn_html__at(&p->map.mask, 1, b, h, i, j);
}
/* No step of it is inexact: the caller may have unmasked that exception. */
static float attn_html__as_float(int32_t type, uint32_t word) {
    const uint16_t half = (uint16_t)word;
    float x = (float)(word & 255);
    if (type == ATTN_F32) memcpy(&x, &word, sizeof x);
    else if (type != ATTN_U8)
        attn_convert(attn_view_typed((attn_type)type, &half, 1, 1, 0, 0, 0), attn_out_f32(&x, 1, 1, 0, 0, 0), NULL);
    return x;
}

/* The least and the largest value so far, by their bits in the order of the values, so that the caller's floating-point
   state is of no account; and these bits. */
typedef struct attn_html__range {
    int64_t low, high;
    uint32_t least, most;
} attn_html__range;
static void attn_html__see(attn_html__page *p, attn_html__range *r, int64_t b, int64_t h, int64_t i, int64_t j) {
    const uint32_t word = attn_html__stored(p, b, h, i, j), size = word & ~p->kind.sign;
    const int64_t x = word & p->kind.sign ? -(int64_t)size : (int64_t)size;
    const int masked = attn_html__is_masked(p, b, h, i, j);
    if (masked) p->has_masked = 1;
    else if (size > p->kind.infinity) p->has_nan = 1;
    else if (x < 0) p->has_negative = 1;
    if (masked || size >= p->kind.infinity) return;
    if (x < r->low) r->low = x, r->least = word;
    if (x > r->high) r->high = x, r->most = word;
}
/* The range over the finite values that are not masked, as in the other pictures; one value alone is seen against 0,
   and both sides of a diverging map are equally long. */
static void attn_html__find_range(attn_html__page *p) {
    attn_html__range r = {INT64_MAX, INT64_MIN, 0, 0};
    attn_heatmap *m = &p->map;
    const int64_t *n = m->values.size;
    int64_t b, h, i, j;
    for (b = 0; b < n[0]; b++)
        for (i = 0; i < n[2]; i++)
            for (h = 0; h < n[1]; h++)
                for (j = 0; j < n[3]; j++) attn_html__see(p, &r, b, h, i, j);
    if (m->range_set) return;
    if (r.low > r.high) r.low = r.high = 0;
    m->range_set = 1;
    m->range_min = attn_html__as_float(m->values.type, r.least);
    m->range_max = attn_html__as_float(m->values.type, r.most);
    if (r.low == r.high && r.low > 0) m->range_min = 0;
    else if (r.low == r.high) m->range_max = r.low < 0 ? 0.0f : 1.0f;
    if (m->colormap != ATTN_COLORMAP_DIVERGING) return;
    if (r.high < -r.low) m->range_max = -m->range_min;
    else m->range_min = -m->range_max;
}

/* ---- writing */
static void attn_html__flush(attn_html__page *p) {
    if (p->length > 0 && !p->failed) p->failed = p->to.write(p->to.user, p->bytes, p->length) != 0;
    p->length = 0;
}
static void attn_html__put(attn_html__page *p, const char *s, size_t n) {
    for (; n > 0; s++, n--) {
        if (p->length == sizeof p->bytes) attn_html__flush(p);
        p->bytes[p->length++] = *s;
    }
}
static void attn_html__puts(attn_html__page *p, const char *s) { attn_html__put(p, s, strlen(s)); }
static void attn_html__print(attn_html__page *p, const char *format, ...) {
    char text[200];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    attn_html__puts(p, text);
}

/* The pixels of the letter that a byte begins, in the type of an SVG file, 12 pixels high: some more than most fonts
   have, for a program that reads the file may have any. Letters of East Asia are among those of three bytes or more. */
static int attn_html__pixels_of(char byte) {
    const int c = byte & 255;
    if (c == '\n' || (c & 0xC0) == 0x80) return 0;
    if (c >= 0xE2 || strchr("MWm@%", c)) return 14;
    return c >= 0x80 || (c >= 'A' && c <= 'Z') || strchr("w&+<=>#~", c) ? 10 : 7;
}
static int attn_html__count(void *pixels, const char *s, size_t n) {
    for (; n > 0; s++, n--) *(int64_t *)pixels += attn_html__pixels_of(*s);
    return 0;
}
/* A line for a terminal becomes text of the page. */
static int attn_html__escape(void *page, const char *s, size_t n) {
    attn_html__page *p = (attn_html__page *)page;
    for (; n > 0; s++, n--) {
        p->room -= attn_html__pixels_of(*s);
        if (p->room < 0) continue;
        if (strchr("&<>\"'", *s)) attn_html__print(p, "&#%d;", *s);
        else if (*s != '\n') attn_html__put(p, s, 1);
    }
    return p->failed;
}
/* A string of the caller's: the title of a picture without a panel, for that is UTF-8 without control characters. */
static void attn_html__line_of(const char *s, attn_writer writer) {
    attn_heatmap line;
    memset((void *)&line, 0, sizeof line);
    line.values = attn_view_u8(NULL, 4, 0, 0, 0, 0);
    line.no_colorbar = 1;
    line.title = s;
    attn_heatmap_ansi(&line, writer, NULL);
}
static void attn_html__text(attn_html__page *p, const char *s) {
    const attn_writer escape = {attn_html__escape, p};
    p->room = INT64_MAX;
    attn_html__line_of(s, escape);
}
static int64_t attn_html__pixels(const char *s) {
    int64_t pixels = 0;
    const attn_writer count = {attn_html__count, &pixels};
    attn_html__line_of(s, count);
    return pixels;
}
/* At most so many pixels of it. */
static void attn_html__cut(attn_html__page *p, const char *s, int64_t most) {
    const attn_writer escape = {attn_html__escape, p};
    const int whole = attn_html__pixels(s) <= most;
    p->room = whole ? most : most - 14;
    attn_html__line_of(s, escape);
    if (!whole) attn_html__puts(p, "\342\200\246");
}
static const char *attn_html__word(const char *const *words, int64_t i) { return words && words[i] ? words[i] : ""; }

/* The SVG file of a cell, high enough that each tick of the colour bar has a label. */
static void attn_html__draw_bar(attn_html__page *p, int32_t colormap) {
    static const uint8_t cell = 0;
    attn_buffer buffer = {NULL, 0, 0};
    attn_heatmap bar;
    memset((void *)&bar, 0, sizeof bar);
    bar.values = attn_view_u8(&cell, 2, 1, 1, 0, 0);
    bar.range_set = 1;
    bar.range_min = p->map.range_min;
    bar.range_max = p->map.range_max;
    bar.colormap = colormap;
    bar.height = 300;
    buffer.data = p->bar;
    buffer.size = sizeof p->bar;
    attn_heatmap_svg(&bar, attn_buffer_writer(&buffer), NULL);
}
/* What stands in it after each `mark`, up to the character `end`; `between` joins the pieces. */
static void attn_html__of_bar(attn_html__page *p, const char *mark, const char *end, const char *between) {
    const char *s = strstr(p->bar, mark), *next;
    for (; s; s = next) {
        s += strlen(mark);
        next = strstr(s, mark);
        attn_html__put(p, s, strcspn(s, end));
        if (next) attn_html__puts(p, between);
    }
}

/* ---- data */
/* The lowest bits of x, at most 8 of them, go on in base64. */
static void attn_html__bits(attn_html__page *p, uint32_t x, int count) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    p->waiting = p->waiting << count | (x & ((1u << count) - 1));
    for (p->waiting_bits += count; p->waiting_bits >= 6; p->waiting_bits -= 6)
        attn_html__put(p, &digits[p->waiting >> (p->waiting_bits - 6) & 63], 1);
}
/* A number of so many bytes, the lowest first on every machine. */
static void attn_html__number(attn_html__page *p, uint32_t word, int bytes) {
    for (; bytes > 0; bytes--, word >>= 8) attn_html__bits(p, word, 8);
}
static uint32_t attn_html__bits_of(float x) {
    uint32_t word;
    memcpy(&word, &x, sizeof word);
    return word;
}
static void attn_html__end_data(attn_html__page *p) {
    attn_html__bits(p, 0, (6 - p->waiting_bits) % 6);
    attn_html__puts(p, "</script>\n");
}

/* The values of a panel as they are stored, row by row. Where some are masked: a bit for each cell, in whole bytes. */
static void attn_html__values(attn_html__page *p, int64_t b, int64_t h) {
    const int64_t *n = p->map.values.size;
    const long long panel = b * n[1] + h;
    int64_t i, j;
    attn_html__print(p, "<script type=text/plain id=panel%lld>", panel);
    for (i = 0; i < n[2] && !p->failed; i++)
        for (j = 0; j < n[3]; j++) attn_html__number(p, attn_html__stored(p, b, h, i, j), p->kind.bytes);
    attn_html__end_data(p);
    if (!p->has_masked) return;
    attn_html__print(p, "<script type=text/plain id=mask%lld>", panel);
    for (i = 0; i < n[2] && !p->failed; i++)
        for (j = 0; j < n[3]; j++) attn_html__bits(p, !attn_html__is_masked(p, b, h, i, j), 1);
    attn_html__bits(p, 0, (int)(-(uint64_t)(n[2] * n[3]) % 8));
    attn_html__end_data(p);
}

/* A hidden list of the labels of an axis; numbers need none. */
static void attn_html__words(attn_html__page *p, int axis, const char *const *words) {
    int64_t i;
    if (!words) return;
    attn_html__print(p, "<ul hidden id=words%d>", axis);
    for (i = 0; i < p->map.values.size[2 + axis]; i++) {
        attn_html__puts(p, "<li>");
        attn_html__text(p, attn_html__word(words, i));
    }
    attn_html__puts(p, "</ul>\n");
}

static void attn_html__panel_name(attn_html__page *p, int64_t i, int64_t most) {
    const int64_t *n = p->map.values.size;
    const char *title = attn_html__word(p->map.panel_titles, i);
    const long long batch = i / n[1], head = i % n[1];
    if (*title) attn_html__cut(p, title, most);
    else if (n[0] > 1) attn_html__print(p, "Batch %lld, head %lld", batch, head);
    else attn_html__print(p, "Head %lld", head);
}
static void attn_html__picker(attn_html__page *p) {
    const int64_t *n = p->map.values.size;
    int64_t i;
    attn_html__puts(p, "<div id=views hidden role=group aria-label=View><button id=all>All</button>\n"
                       "<button id=cells>Cells</button>\n<button id=lines>Lines</button></div>\n");
    attn_html__puts(p, n[0] * n[1] > 1 && n[2] * n[3] > 0 ? "<nav id=choice data-in='cells lines'>"
                                                          : "<nav id=choice hidden>");
    attn_html__puts(p, "<button id=before aria-label='Previous panel'>&lt;</button>\n"
                       "<select id=panel aria-label=Panel>\n");
    for (i = 0; i < n[0] * n[1] && !p->failed; i++) {
        attn_html__print(p, "<option value=%lld>", (long long)i);
        attn_html__panel_name(p, i, INT64_MAX);
        attn_html__puts(p, "</option>\n");
    }
    attn_html__puts(p, "</select>\n<button id=after aria-label='Next panel'>&gt;</button></nav>\n");
}

static void attn_html__plot(attn_html__page *p) {
    const attn_heatmap *m = &p->map;
    const int64_t *n = m->values.size;
    attn_html__puts(p, m->ticks_on_top ? "<div id=plot data-in=cells class=top>\n" : "<div id=plot data-in=cells>\n");
    attn_html__puts(p, "<div id=title0>");
    attn_html__text(p, m->y_label);
    attn_html__puts(p, "</div><div id=names0 aria-hidden=true></div>\n"
                       "<div><canvas id=map tabindex=0 role=application ");
    attn_html__print(p, "aria-label='Heatmap of %lld rows and %lld columns' ", (long long)n[2], (long long)n[3]);
    attn_html__puts(p, "aria-describedby=help></canvas><div id=cell hidden></div><output id=say></output></div>\n");
    if (!m->no_colorbar) {
        attn_html__puts(p, "<div id=bar aria-hidden=true></div><ul hidden id=ticks><li>");
        attn_html__of_bar(p, "text-anchor=\"start\">", "<", "<li>");
        attn_html__puts(p, "</ul>\n");
    }
    attn_html__puts(p, "<div id=names1 aria-hidden=true></div><div id=title1>");
    attn_html__text(p, m->x_label);
    attn_html__puts(p, "</div></div>\n");
    attn_html__puts(p, attn_html__views);
    attn_html__print(p, "<div id=wall data-in=all hidden role=group aria-label=Panels style='--across: %lld'></div>\n",
                     (long long)n[1]);
    attn_html__puts(p, attn_html__help);
    if (n[0] * n[1] > 1)
        attn_html__puts(
            p, "<span data-in='cells lines'> Page Up and Page Down change the panel, Escape shows all panels.</span>");
    if (p->has_nan)
        attn_html__puts(p, "<span data-in='all cells'> Cells in magenta are NaN.</span>"
                           "<span data-in=lines hidden> Dashed lines are NaN.</span>");
    if (p->has_masked)
        attn_html__puts(p, "<span data-in='all cells'> Hatched cells are masked.</span>"
                           "<span data-in=lines hidden> Masked pairs have no line.</span>");
    attn_html__puts(p, "</p>\n");
}

static void attn_html__write(attn_html__page *p) {
    const attn_heatmap *m = &p->map;
    const int64_t *n = m->values.size;
    const char *title = m->title ? m->title : "Heatmap";
    int64_t b, h;
    attn_html__puts(p, "<!DOCTYPE html>\n<html lang=en>\n<meta charset=utf-8>\n"
                       "<meta name=viewport content='width=device-width'>\n<title>");
    attn_html__text(p, title);
    attn_html__puts(p, "</title>\n<style>\n");
    attn_html__puts(p, attn_html__style);
    attn_html__puts(p, attn_html__style_of_lines);
    attn_html__puts(p, "</style>\n<header><h1>");
    attn_html__text(p, title);
    attn_html__puts(p, "</h1>\n");
    attn_html__picker(p);
    attn_html__puts(p,
                    "<span data-in=cells><button id=farther aria-label='Zoom out'>-</button>\n"
                    "<button id=nearer aria-label='Zoom in'>+</button></span>\n<button id=theme></button></header>\n");
    attn_html__plot(p);
    attn_html__words(p, 0, m->y_ticks);
    attn_html__words(p, 1, m->x_ticks);
    attn_html__puts(p, "<script type=text/plain id=range>");
    attn_html__number(p, attn_html__bits_of(m->range_min), 4);
    attn_html__number(p, attn_html__bits_of(m->range_max), 4);
    attn_html__end_data(p);
    for (b = 0; b < n[0] && !p->failed; b++)
        for (h = 0; h < n[1] && !p->failed; h++) attn_html__values(p, b, h);
    attn_html__print(p, "<script>'use strict'; {\nconst count = [%lld, %lld], panels = %lld, type = %d, shades = '",
                     (long long)n[2], (long long)n[3], (long long)(n[0] * n[1]), (int)m->values.type);
    attn_html__of_bar(p, "stop-color=\"", "\"", " ");
    attn_html__draw_bar(p, ATTN_COLORMAP_DIVERGING);
    attn_html__puts(p, "'.split(' '), poles = '");
    attn_html__of_bar(p, "stop-color=\"", "\"", " ");
    attn_html__print(p, "'.split(' '), widest = %d, faintest = %d, turns = { PageUp: -1, PageDown: 1 };\n",
                     ATTN_HTML__WIDEST, ATTN_HTML__FAINTEST);
    attn_html__puts(p, attn_html__data);
    attn_html__puts(p, attn_html__draw);
    attn_html__puts(p, attn_html__lines_of_page);
    attn_html__puts(p, attn_html__use);
    attn_html__puts(p, attn_html__wall);
    attn_html__puts(p, "}</script>\n");
}

/* ---- lines: an SVG file. All is in whole pixels and reckoned in whole numbers. */
enum {
    ATTN_HTML__PAD = 12,
    ATTN_HTML__WORD = 240, /* the most that a word takes */
    ATTN_HTML__PITCH = 20,
    ATTN_HTML__HIGHEST = 8000,
    ATTN_HTML__SPAN = 160
};
typedef struct attn_html__lines {
    int64_t words[2];      /* the longest label of each side */
    int64_t top, height;   /* above the words of a panel, of the words */
    int64_t across, below; /* from one panel to the next */
    int64_t head;          /* above the panels */
} attn_html__lines;

static int64_t attn_html__least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t attn_html__most(int64_t a, int64_t b) { return a > b ? a : b; }
/* Bold letters are an eighth wider. */
static int64_t attn_html__bold(int64_t pixels) { return (pixels * 9 + 7) / 8; }

/* The bits of a magnitude. */
static uint32_t attn_html__size(float x) { return attn_html__bits_of(x) & 0x7fffffffu; }
/* x / most, at most 1, in units of 1/65536. */
static int64_t attn_html__share(uint32_t x, uint32_t most) {
    const int64_t a = x >> 23 ? (x & 0x7fffff) | 0x800000 : x, b = most >> 23 ? (most & 0x7fffff) | 0x800000 : most;
    const int64_t shift = attn_html__most(most >> 23, 1) - attn_html__most(x >> 23, 1);
    return x >= most ? 65536 : shift > 40 ? 0 : (a * 65536 / b) >> shift;
}

static const char *const *attn_html__ticks(const attn_html__page *p, int side) {
    return side ? p->map.x_ticks : p->map.y_ticks;
}
static void attn_html__lay_out(attn_html__page *p, attn_html__lines *l) {
    const attn_heatmap *m = &p->map;
    const int64_t *n = m->values.size, longest = attn_html__most(n[2], n[3]);
    int side;
    for (side = 0; side < 2; side++) {
        const char *const *words = attn_html__ticks(p, side), *title = side ? m->x_label : m->y_label;
        int64_t i, pixels = title ? attn_html__bold(attn_html__pixels(title)) : 0;
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)n[2 + side]);
        pixels = attn_html__most(pixels, words ? 0 : attn_html__pixels(number));
        for (i = 0; words && i < n[2 + side]; i++)
            pixels = attn_html__most(pixels, attn_html__pixels(attn_html__word(words, i)));
        l->words[side] = attn_html__least(pixels, ATTN_HTML__WORD);
    }
    l->head = ATTN_HTML__PAD + (m->title ? 30 : 0);
    l->top = (n[0] * n[1] > 1 || m->panel_titles ? 22 : 0) + (m->x_label || m->y_label ? ATTN_HTML__PITCH : 0);
    l->height = attn_html__least(longest * ATTN_HTML__PITCH, ATTN_HTML__HIGHEST);
    l->below = l->top + l->height + 2 * ATTN_HTML__PAD;
    l->across = l->words[0] + l->words[1] + ATTN_HTML__SPAN + 16 + 2 * ATTN_HTML__PAD;
}

static void attn_html__svg_text(attn_html__page *p, int64_t x, int64_t y, const char *anchor) {
    attn_html__print(p, "<text x=\"%lld\" y=\"%lld\" text-anchor=\"%s\">", (long long)x, (long long)y, anchor);
}
/* The words of a side, those that have room. */
static void attn_html__svg_words(attn_html__page *p, const attn_html__lines *l, int side, int64_t x, int64_t y) {
    const int64_t n = p->map.values.size[2 + side], step = l->height ? 12 * n / l->height + 1 : 1;
    const char *const *words = attn_html__ticks(p, side), *title = side ? p->map.x_label : p->map.y_label;
    const char *anchor = side ? "start" : "end";
    int64_t i;
    if (title) {
        attn_html__svg_text(p, x, y - 8, anchor);
        attn_html__puts(p, "<tspan font-weight=\"bold\">");
        attn_html__cut(p, title, l->words[side] * 8 / 9);
        attn_html__puts(p, "</tspan></text>\n");
    }
    for (i = 0; i < n && !p->failed; i += step) {
        attn_html__svg_text(p, x, y + (2 * i + 1) * l->height / (2 * n) + 4, anchor);
        if (words) attn_html__cut(p, attn_html__word(words, i), l->words[side]);
        else attn_html__print(p, "%lld", (long long)i);
        attn_html__puts(p, "</text>\n");
    }
}

/* What is above 0 has the red of a diverging map that is read on light and dark paper, what is below it its blue. */
static void attn_html__stroke(attn_html__page *p, int below) {
    const char *s = p->bar;
    int k;
    for (k = below ? 1 : 5; s && k >= 0; k--) s = strstr(s + 1, "stop-color=");
    if (s) attn_html__print(p, " stroke=%.9s", s + 11);
}
/* The line of a pair: as thick as its share of the largest magnitude, and as dark. */
static void attn_html__svg_line(attn_html__page *p, int64_t x, int64_t y1, int64_t y2, uint32_t word, uint32_t most) {
    const uint32_t size = word & ~p->kind.sign;
    const int nan = size > p->kind.infinity;
    const uint32_t bits =
        size == p->kind.infinity ? most : attn_html__size(attn_html__as_float(p->map.values.type, size));
    const int64_t share = nan ? 65536 : attn_html__share(bits, most);
    const long width = (long)((share * 100 * ATTN_HTML__WIDEST + 32768) / 65536);
    const long dark = (long)(40 + (share * 60 + 32768) / 65536);
    if (share * ATTN_HTML__FAINTEST < 65536) return;
    attn_html__print(p, "<line x1=\"%lld\" y1=\"%lld\" x2=\"%lld\" y2=\"%lld\" ", (long long)x, (long long)y1,
                     (long long)(x + ATTN_HTML__SPAN), (long long)y2);
    if (nan) attn_html__puts(p, "stroke=\"#f0f\" stroke-width=\"1\" stroke-dasharray=\"4\"");
    else
        attn_html__print(p, "stroke-width=\"%ld.%02ld\" stroke-opacity=\"%ld.%02ld\"", width / 100, width % 100,
                         dark / 100, dark % 100);
    if (!nan && word & p->kind.sign) attn_html__stroke(p, 1);
    attn_html__puts(p, "/>\n");
}
static void attn_html__svg_panel(attn_html__page *p, const attn_html__lines *l, int64_t b, int64_t h, uint32_t most) {
    const int64_t *n = p->map.values.size, left = ATTN_HTML__PAD + h * l->across + l->words[0] + 8;
    const int64_t top = l->head + b * l->below + l->top;
    int64_t i, j;
    if (n[0] * n[1] > 1 || p->map.panel_titles) {
        attn_html__svg_text(p, h * l->across + l->across / 2, l->head + b * l->below + 12, "middle");
        attn_html__panel_name(p, b * n[1] + h, l->across - 2 * ATTN_HTML__PAD);
        attn_html__puts(p, "</text>\n");
    }
    attn_html__svg_words(p, l, 0, left - 8, top);
    attn_html__svg_words(p, l, 1, left + ATTN_HTML__SPAN + 8, top);
    attn_html__puts(p, "<g");
    attn_html__stroke(p, 0);
    attn_html__puts(p, ">\n");
    for (i = 0; i < n[2] && !p->failed; i++)
        for (j = 0; j < n[3]; j++)
            if (!attn_html__is_masked(p, b, h, i, j))
                attn_html__svg_line(p, left, top + (2 * i + 1) * l->height / (2 * n[2]),
                                    top + (2 * j + 1) * l->height / (2 * n[3]), attn_html__stored(p, b, h, i, j), most);
    attn_html__puts(p, "</g>\n");
}

/* What the thickest lines mean, on one line: the number is the last one of a map's on a terminal. */
static void attn_html__svg_legend(attn_html__page *p, int64_t y, uint32_t low, uint32_t high) {
    static const uint8_t cell = 0;
    char text[256] = "";
    attn_buffer buffer = {NULL, 0, 0};
    attn_heatmap map;
    const int signs = p->has_negative || (low > 0 && attn_html__bits_of(p->map.range_min) != low);
    int k, x = ATTN_HTML__PAD;
    memset((void *)&map, 0, sizeof map);
    map.values = attn_view_u8(&cell, 2, 1, 1, 0, 0);
    map.terminal = ATTN_TERMINAL_ASCII;
    map.range_set = 1;
    map.range_max = low > high ? -p->map.range_min : p->map.range_max;
    buffer.data = text;
    buffer.size = sizeof text;
    attn_heatmap_ansi(&map, attn_buffer_writer(&buffer), NULL);
    text[strcspn(text, "]") + strcspn(strchr(text, ']'), "\n")] = 0;
    for (k = 0; k < 3; k++) {
        if (k == 1 ? !signs : k == 2 && !p->has_nan) continue;
        attn_html__print(p, "<path d=\"M%d %lldh24\" stroke-width=\"%d\"", x, (long long)y,
                         k < 2 ? ATTN_HTML__WIDEST : 1);
        if (k < 2) attn_html__stroke(p, k);
        else attn_html__puts(p, " stroke=\"#f0f\" stroke-dasharray=\"4\"");
        attn_html__puts(p, "/>\n");
        attn_html__svg_text(p, x + 32, y + 4, "start");
        attn_html__print(p, k < 2 ? "%s%s</text>\n" : "NaN</text>\n", k ? "-" : "", strchr(text, ']') + 2);
        x += 120;
    }
}

static void attn_html__write_lines(attn_html__page *p) {
    const attn_heatmap *m = &p->map;
    const int64_t *n = m->values.size;
    const uint32_t low = attn_html__size(m->range_min), high = attn_html__size(m->range_max);
    const char *title = m->title ? m->title : "Attention as lines";
    int64_t width, height, b, h;
    attn_html__lines l;
    attn_html__lay_out(p, &l);
    attn_html__draw_bar(p, ATTN_COLORMAP_DIVERGING);
    width = attn_html__most(n[1] * l.across, m->no_colorbar ? 1 : 3 * 120 + 2 * ATTN_HTML__PAD);
    if (m->title) width = attn_html__most(width, attn_html__least(attn_html__pixels(title), 560) * 10 / 7 + 24);
    height = l.head + n[0] * l.below + (m->no_colorbar ? 0 : 24);
    attn_html__print(p, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%lld\" height=\"%lld\" ", (long long)width,
                     (long long)height);
    attn_html__print(p, "viewBox=\"0 0 %lld %lld\" role=\"img\" ", (long long)width, (long long)height);
    attn_html__puts(p, "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\" fill=\"#222\">\n<title>");
    attn_html__text(p, title);
    attn_html__print(p, "</title>\n<desc>A line from each of %lld rows, on the left, to each of %lld columns, ",
                     (long long)n[2], (long long)n[3]);
    attn_html__puts(p, "as thick as its value is large: red above 0, blue below.</desc>\n"
                       "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n");
    if (m->title) {
        attn_html__print(p, "<text x=\"%lld\" y=\"26\" text-anchor=\"middle\" font-size=\"16\">",
                         (long long)(width / 2));
        attn_html__cut(p, title, (width - 2 * ATTN_HTML__PAD) * 7 / 10);
        attn_html__puts(p, "</text>\n");
    }
    for (b = 0; b < n[0] && !p->failed; b++)
        for (h = 0; h < n[1] && !p->failed; h++) attn_html__svg_panel(p, &l, b, h, low > high ? low : high);
    if (!m->no_colorbar) attn_html__svg_legend(p, height - 20, low, high);
    attn_html__puts(p, "</svg>\n");
}

/* ---- the public functions */
static attn_status attn_html__tell(attn_error *err, attn_status status, const char *field, const char *rule) {
    const attn_error told = {(int32_t)status, field, rule, 0, 0, 0, 0, {0, 0}, 0, 0, 0};
    if (err) *err = told;
    return status;
}

/* The mask of a descriptor becomes values from 0 to 1. */
static attn_status attn_html__draw_mask(attn_html__page *p, attn_error *err) {
    attn_heatmap *m = &p->map;
    const int64_t *n = m->values.size;
    const uint64_t cells = (uint64_t)(n[0] * n[2]) * (uint64_t)(n[1] * n[3]);
    uint8_t *to = (size_t)cells == cells ? (uint8_t *)malloc(cells ? (size_t)cells : 1) : NULL;
    if (!to) return attn_html__tell(err, ATTN_ERR_ALLOC, "mask_of", "needs a byte of memory for each cell");
    p->memory = to;
    m->values = attn_view_u8(to, 4, n[0], n[1], n[2], n[3]);
    if (!m->range_set) m->range_min = 0, m->range_max = 1;
    m->range_set = 1;
    return attn_mask(attn_out_u8(to, 4, n[0], n[1], n[2], n[3]), m->mask_of, err);
}

/* Missing axes have size 1. */
static void attn_html__to_four_axes(attn_view *v) {
    for (; v->rank > 0 && v->rank < 4; v->rank++) {
        memmove(v->size + 1, v->size, 3 * sizeof *v->size);
        memmove(v->stride + 1, v->stride, 3 * sizeof *v->stride);
        v->size[0] = 1;
        v->stride[0] = 0;
    }
}

/* A map that attn_heatmap_ansi takes; an older caller's ends before what it lacks. */
static attn_status attn_html__open(attn_html__page *p, const attn_heatmap *map, attn_writer writer, attn_error *err) {
    const size_t given = (size_t)map->struct_bytes, known = sizeof p->map;
    memset((void *)p, 0, sizeof *p);
    memcpy((void *)&p->map, map, given && given < known ? given : known);
    p->to = writer;
    if (map->mask_of) {
        const attn_status status = attn_html__draw_mask(p, err);
        if (status != ATTN_OK) return status;
    }
    p->kind = attn_html__kinds[p->map.values.type == ATTN_U8 ? 3 : p->map.values.type];
    attn_html__to_four_axes(&p->map.values);
    attn_html__to_four_axes(&p->map.mask);
    attn_html__find_range(p);
    attn_html__draw_bar(p, p->map.colormap);
    return ATTN_OK;
}

/* A writer that takes nothing: all that can be wrong with a map is found before. */
static int attn_html__refuse(void *user, const char *bytes, size_t count) {
    (void)user, (void)bytes, (void)count;
    return 1;
}
static attn_status attn_html__run(void (*write)(attn_html__page *), const attn_heatmap *map, attn_writer writer,
                                  attn_error *err) {
    const attn_writer refuse = {writer.write ? attn_html__refuse : NULL, NULL};
    attn_html__page p;
    attn_status status = attn_heatmap_ansi(map, refuse, err);
    if (status != ATTN_OK && status != ATTN_ERR_WRITE) return status;
    status = attn_html__open(&p, map, writer, err);
    if (status == ATTN_OK) {
        write(&p);
        attn_html__flush(&p);
        status = p.failed ? attn_html__tell(err, ATTN_ERR_WRITE, "writer.write", "must return 0")
                          : attn_html__tell(err, ATTN_OK, "", "");
    }
    free(p.memory);
    return status;
}
ATTN_HEATMAP_HTML_DEF attn_status attn_heatmap_html(const attn_heatmap *map, attn_writer writer, attn_error *err) {
    return attn_html__run(attn_html__write, map, writer, err);
}
ATTN_HEATMAP_HTML_DEF attn_status attn_heatmap_lines_svg(const attn_heatmap *map, attn_writer writer, attn_error *err) {
    return attn_html__run(attn_html__write_lines, map, writer, err);
}
#endif /* ATTN_HEATMAP_HTML_IMPLEMENTATION */
