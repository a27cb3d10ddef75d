# summary.awk - a table from what `make bench-peers ARGS=--markdown` printed, for README.md: in how many of its rows is
# attn.h faster than the best of its peers? awk -f bench/summary.awk bench/zen4.md. A row's ratio is the least of those
# against a peer: the peer's time over ours, so above 1 attn.h is the faster one. The table has the rows on one thread;
# those on more, and the ratios against ggml alone, have a sentence each.
function kind_of(name) {
    if (name ~ /^(forward\+)?backward/) return "backward pass"
    if (name ~ /stored as/) return "16-bit arrays, 8-bit keys and values"
    if (name ~ /^(one query|8 queries)/) return "decode: one or a few queries"
    if (name ~ /softmax|products/) return "masked softmax, matrix products"
    return "forward pass"
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
function sum_up(group, form,    i, n, ahead, middle) {
    n = count[group]
    for (i = 1; i <= n; i++) ahead += ratio_of[group, rows[group, i]] >= 1
    middle = ratio_of[group, rows[group, int((n + 1) / 2)]] + ratio_of[group, rows[group, int((n + 2) / 2)]]
    printf form, ahead, n, middle / 2, ratio_of[group, rows[group, 1]], rows[group, 1]
}
BEGIN { FS = " *[|] *" }
/cores?; attn\.h/ && !machine { machine = $0 }
NF < 9 || $2 == "---" { next }
$4 == "attn.h" { for (i = 1; i <= NF; i++) column[$i] = i; next }
{ ratio = $column["ratio"]; peer = $column["against"] }
$2 != "" { name = $2 ($3 > 1 ? ", " $3 " threads" : ""); kind = $3 > 1 ? "more" : kind_of($2) }
peer !~ /^(peers|PyTorch|onnxruntime|OpenBLAS|ggml)/ { next }
ratio == "-" { unknown = unknown (unknown ? "; " : "") name " beside " peer; next }
{
    if (!(kind in count) && kind != "more") kinds[++kinds_found] = kind
    add(kind, name, ratio)
    if (kind != "more") add("all rows", name, ratio)
    if (peer == "ggml") add("ggml", name, ratio)
}
END {
    print "| against the fastest of PyTorch, onnxruntime" ("ggml" in count ? ", OpenBLAS and ggml" : " and OpenBLAS") \
        " | attn.h is faster in | median | least |"
    print "|---|---|---|---|"
    kinds[++kinds_found] = "all rows"
    for (k = 1; k <= kinds_found; k++) sum_up(kinds[k], "| " kinds[k] " | %d of %d | %.2f | %.2f (%s) |\n")
    print ""
    sentence = "faster in %d of %d rows, median %.2f, least %.2f (%s).\n"
    if ("more" in count) sum_up("more", "On more threads: " sentence)
    if ("ggml" in count)
        sum_up("ggml", "Beside ggml alone, the CPU backend of llama.cpp with its own threads: " sentence)
    if (unknown) print "Not compared: " unknown "."
    print machine "."
}
