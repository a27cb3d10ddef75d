# summary.awk - a table from what `make bench-peers ARGS=--markdown` printed, for README.md: in how many of its rows is
# attn.h faster than the best of PyTorch, onnxruntime and OpenBLAS? awk -f bench/summary.awk bench/zen4.md. A row's
# ratio is the least of those against a peer: the peer's time over ours, so above 1 attn.h is the faster one.
function kind_of(name) {
    if (name ~ /^(forward\+)?backward/) return "backward pass"
    if (name ~ /stored as/) return "16-bit arrays, 8-bit keys and values"
    if (name ~ /^(one query|8 queries)/) return "decode: one or a few queries"
    if (name ~ /softmax|products/) return "masked softmax, matrix products"
    return "forward pass"
}
function put(kind, ratios, n,    i, j, x) {         # sorts them
    for (i = 2; i <= n; i++) {
        x = ratios[i]
        for (j = i - 1; j > 0 && ratio_of[ratios[j]] > ratio_of[x]; j--) ratios[j + 1] = ratios[j]
        ratios[j + 1] = x
    }
    ahead = 0
    for (i = 1; i <= n; i++) ahead += ratio_of[ratios[i]] >= 1
    x = n % 2 ? ratio_of[ratios[(n + 1) / 2]] : (ratio_of[ratios[n / 2]] + ratio_of[ratios[n / 2 + 1]]) / 2
    printf "| %s | %d of %d | %.2f | %.2f (%s) |\n", kind, ahead, n, x, ratio_of[ratios[1]], ratios[1]
}
BEGIN { FS = " *[|] *" }
/^AMD|^Intel|^Apple|cores?; attn\.h/ && !machine { machine = $0 }
NF < 9 || $2 == "---" || $4 == "attn.h" { next }
$2 != "" { row = $3 == 1 ? $2 : $2 ", " $3 " threads"; kind = kind_of($2) }
$8 ~ /^(PyTorch|onnxruntime|OpenBLAS)/ {
    if (!(row in ratio_of)) {
        if (!(kind in count)) kinds[++kinds_found] = kind
        rows[kind, ++count[kind]] = row
        all[++total] = row
        ratio_of[row] = $6
    }
    if ($6 < ratio_of[row]) ratio_of[row] = $6
}
END {
    print "| against the fastest of PyTorch, onnxruntime and OpenBLAS | attn.h is faster in | median | least |"
    print "|---|---|---|---|"
    for (k = 1; k <= kinds_found; k++) {
        for (i = 1; i <= count[kinds[k]]; i++) some[i] = rows[kinds[k], i]
        put(kinds[k], some, count[kinds[k]])
    }
    put("all rows", all, total)
    print ""
    print machine "."
}
