# web.sh - pages in a browser without a window: those of attn_heatmap_html, the chapter of examples/web and its workers
# that share a memory. `make test-web` runs all, `sh tests/web.sh heatmap` one.
. tests/items.sh

dir=$out/web
mkdir -p "$dir/heatmap" "$dir/chapter"

browser() { for name in chromium chromium-browser google-chrome; do have $name && echo $name && return; done; }
lacking() { # what is not here of that without which no page can be looked at
    have node || { echo "no node"; return; }
    [ -n "$(browser)" ] || echo "no chromium"
}

item_heatmap() {
    plain_object >"$dir/pages.log" 2>&1 || { failed "attn.h compiles" "$dir/pages.log"; return; }
    try "tests/web/pages.c" $CC -O2 -Wall -Wextra -Werror -DATTN__IMPLEMENTED tests/web/pages.c "$plain" \
        -o "$dir/pages" -lm || return
    try "it writes its pages" "$dir/pages" "$dir/heatmap" || return
    lacks=$(lacking)
    [ -z "$lacks" ] || { skipped "pages of attn_heatmap_html in a browser ($lacks)"; return; }
    node tests/web/heatmap.js "$(browser)" "$dir/heatmap"
}

# What `make web` builds, used in a browser: look_at WHAT IS-BUILT-BY SCRIPT ARGUMENT...
look_at() {
    what=$1 built=$(sh examples/web/build.sh "$2") script=$3; shift 3
    printf '%s\n' "$built"
    case $built in *skipped*|*FAILED*) return ;; esac
    lacks=$(lacking)
    [ -z "$lacks" ] || { skipped "$what in a browser ($lacks)"; return; }
    node "$script" "$(browser)" "$@"
}
item_chapter() { look_at "the chapter" page tests/web/chapter.js "$out/attn.html" "$dir/chapter"; }
item_threads() { look_at "a page's workers" threads tests/web/threads.js "$dir/threads.wasm"; }

# What `make web` says where no clang is found: the packages by name.
item_lacking() {
    tools=$out/web/tools
    rm -rf "$tools"; mkdir -p "$tools"
    for tool in sh cat find grep head mkdir mktemp rm sed; do
        ln -s "$(command -v $tool)" "$tools" || return
    done
    try "make web names the packages that it lacks" sh -c '
        said=$(PATH=$0 sh examples/web/build.sh page 2>&1); echo "$said"
        case $said in "skipped build/attn.html"*"missing packages: clang-"*" lld-"*) ;; *) exit 1 ;; esac' "$tools"
}

items "$1" lacking heatmap chapter threads
