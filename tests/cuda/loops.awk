# loops.awk - of what `cuobjdump -sass` prints, the innermost loops that multiply and add and do nothing else: a line each
# with the kernel, how many instructions, and how many of them are FFMA and FADD (of differences). Where a
# loop ends is a branch backward; a loop with a special function (MUFU) is a softmax, not a product, and one of fewer
# than 64 FFMA is the rare one that passes over excluded pairs.
function report(    i, j, inner, ffma, fadd) {
    for (i = 0; i < count; i++) {
        if (!(i in back)) continue;
        inner = 1; ffma = fadd = 0
        for (j = back[i]; j <= i; j++) {
            if ((j != i && j in back) || op[j] == "MUFU") inner = 0
            if (op[j] == "FFMA") ffma++
            if (op[j] == "FADD") fadd++
        }
        if (inner && ffma >= 64) print kernel, i - back[i] + 1, ffma, fadd
    }
}
/Function :/ { report(); kernel = $3; count = 0; split("", back); split("", place) }
$1 ~ /^\/\*[0-9a-f]+\*\/$/ {
    at = substr($1, 3, length($1) - 4); sub(/^0+/, "", at)
    first = $2 ~ /^@/ ? 3 : 2
    op[count] = $first; sub(/[.;].*/, "", op[count])
    place[at] = count
    target = ""
    if (op[count] == "BRA") for (k = first + 1; k <= NF; k++) if ($k ~ /^0x[0-9a-f]+;?$/) { target = $k; break }
    sub(/^0x0*/, "", target); sub(/;$/, "", target)
    if (target != "" && target in place && place[target] <= count) back[count] = place[target]
    count++
}
END { report() }
