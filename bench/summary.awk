# summary.awk - a table from what `make bench-peers ARGS=--markdown` printed, for README.md: in how many of its rows is
# attn.h faster than its peers, and how many times as fast is it? awk -f bench/summary.awk bench/zen4.md. A ratio is a
# peer's time over ours; of two in a row the lesser counts, for each kind of work and each group of peers: ggml, and all
# others. Those on one thread and those on more are counted apart, and so are arrays of f32 and smaller ones. What
# `make bench-cuda ARGS=--markdown` printed of a GPU has a table of its own form.
function kind_on_gpu(name,    pass) {
    if (name ~ /^additive/) return "additive scores, f32"
    if (name ~ /^decode/) return "decode: one query of each head"
    if (name ~ /^product/) return "products of matrices, `ATTN_PRECISION_FAST`"
    pass = name
    sub(/ .*/, ", ", pass)
    if (name ~ / f32 /) return pass "f32"
    if (name ~ /bias|dropout/) return pass "bias or dropout"
    if (name ~ /window|softcap/) return pass "window or softcap"
    if (name ~ /one sweep/) return pass "`ATTN_PRECISION_FAST`"
    return pass (name ~ /causal|chunk/ ? "causal" : "all keys seen")
}
function kind_of(name) {
    if (gpu) return kind_on_gpu(name)
    if (name ~ /stored as (i8|q8_0)/) return "8-bit keys and values"
    if (name ~ /stored as/) return "16-bit arrays"
    if (name ~ /^(forward\+)?backward/) return "f32: backward pass"
    if (name ~ /^(one query|8 queries)/) return "f32: one or a few queries"
    if (name ~ /softmax|matrix product/) return "f32: masked softmax, matrix products"
    return "f32: forward pass"
}
function in_words(name,    head, tail, size) { # 8x64x64 d64: 8 heads, 64 queries, 64 keys of 64 numbers
    if (gpu) return name
    if (name ~ /^matrix products [0-9]+ x [0-9]+\^3$/) {
        split(name, size, / x |\^| /)
        return size[3] " products of " size[4] " x " size[4] " matrices"
    }
    sub(/^backward, /, "", name)
    sub(/^stored as /, "", name)
    sub(/, and its products:/, ", products too:", name)
    if (match(name, /[0-9]+x[0-9]+(x[0-9]+)? d[0-9]+/)) {
        head = substr(name, 1, RSTART - 1); tail = substr(name, RSTART + RLENGTH)
        split(substr(name, RSTART, RLENGTH), size, /x| d/)
        if (substr(name, RSTART, RLENGTH) ~ /x.*x/)
            name = size[2] " queries, " size[3] " keys of " size[4] " numbers"
        else name = size[2] " queries and keys of " size[3] " numbers"
        name = head size[1] (size[1] == 1 ? " head, " : " heads, ") name tail
    } else if (match(name, / d[0-9]+/)) {
        head = substr(name, 1, RSTART - 1) " of "; tail = " numbers" substr(name, RSTART + RLENGTH)
        name = head substr(name, RSTART + 2, RLENGTH - 2) tail
    }
    return name
}
function add(group, row, ratio,    i) { # keeps the rows in the order of their ratios; of two of a row the lesser counts
    if (!((group, row) in ratio_of)) rows[group, ++count[group]] = row
    else if (ratio >= ratio_of[group, row]) return
    ratio_of[group, row] = ratio + 0
    for (i = 1; rows[group, i] != row; i++) {}
    for (; i < count[group] && ratio_of[group, rows[group, i + 1]] < ratio; i++) rows[group, i] = rows[group, i + 1]
    for (; i > 1 && ratio_of[group, rows[group, i - 1]] > ratio; i--) rows[group, i] = rows[group, i - 1]
    rows[group, i] = row
}
function sum_up(group, with_name,    i, n, ahead, middle, least) {
    n = count[group]
    if (!n) return " - | - | - |"
    for (i = 1; i <= n; i++) ahead += ratio_of[group, rows[group, i]] >= 1
    middle = ratio_of[group, rows[group, int((n + 1) / 2)]] + ratio_of[group, rows[group, int((n + 2) / 2)]]
    least = with_name ? " (" in_words(rows[group, 1]) ")" : ""
    return sprintf(" %d of %d | %.2f | %.2f%s |", ahead, n, middle / 2, ratio_of[group, rows[group, 1]], least)
}
function cpu_table(    k, g, group, peers) {
    print "| one thread | beside the fastest of | faster in | times as fast (median) | least |" \
        (more ? " more threads: faster in | median | least |" : "")
    print "|---|---|---|---|---|" (more ? "---|---|---|" : "")
    for (k = 1; k <= kinds_found; k++)
        for (g = 0; g < 2; g++) {
            group = kinds[k] (g ? " ggml " : " others ")
            if (!count[group "one"] && !count[group "more"]) continue
            peers = g ? "ggml" : kinds[k] ~ /^f32/ ? "PyTorch, onnxruntime, OpenBLAS" : "PyTorch (16 bits)"
            print "| " kinds[k] " | " peers " |" sum_up(group "one", 1) (more ? sum_up(group "more", 0) : "")
        }
}
function gpu_table(    k, group, most) {
    print "| bf16 where nothing is said | fastest peer | as fast or faster in | times as fast (median) | least | most |"
    print "|---|---|---|---|---|---|"
    for (k = 1; k <= kinds_found; k++) {
        group = kinds[k]
        most = rows[group, count[group]]
        printf "| %s | %s |%s %.2f (%s) |\n", group, peers_of[group], sum_up(group, 1), ratio_of[group, most], most
    }
}
BEGIN { FS = " *[|] *" }
/(cores?; attn\.h|; attn_cuda\.cuh)/ && !machine { machine = $0 }
NF < 9 || $2 == "---" { next }
$4 == "attn_cuda" { gpu = 1; next }
gpu && $2 == "" { next } # what a copy gives is a bound
gpu && $7 !~ /^[0-9]/ { unknown = unknown (unknown ? "; " : "") $2; next }
gpu {
    kind = kind_of($2)
    if (!(kind in seen)) { seen[kind] = 1; kinds[++kinds_found] = kind }
    if (!((kind, $5) in seen)) { seen[kind, $5] = 1; peers_of[kind] = peers_of[kind] (peers_of[kind] ? ", " : "") $5 }
    add(kind, $2, $7)
    next
}
$4 == "attn.h" { for (i = 1; i <= NF; i++) column[$i] = i; next }
{ ratio = $column["ratio"]; peer = $column["against"] }
$2 != "" { name = $2; threads = $3 > 1 ? "more" : "one"; more = more || $3 > 1 }
peer !~ /^(peers|PyTorch|onnxruntime|OpenBLAS|ggml)/ { next }
ratio == "-" { unknown = unknown (unknown ? "; " : "") in_words(name) " beside " peer; next }
{
    kind = kind_of(name)
    if (!(kind in seen)) { seen[kind] = 1; kinds[++kinds_found] = kind }
    add(kind (peer == "ggml" ? " ggml " : " others ") threads, name, ratio)
}
END {
    if (gpu) gpu_table()
    else cpu_table()
    print ""
    if (unknown) print "Not compared: " unknown "."
    print machine "."
}
