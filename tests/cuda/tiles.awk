# tiles.awk - of what `cuobjdump -sass` prints, the loops of stage 3 that go over tiles: the innermost that have products
# of a warpgroup (HGMMA). A line each with the kernel, the products of a tile, and the instructions of three ways through
# it: the shortest that has most products, a whole tile's; the longest in which nothing is repeated but waiting, an
# edge's; the longest of all, that of an edge where numbers are not finite, with each repeated part counted once.
#     Others are asked for by -v kernels=PATTERN -v product=HMMA (a warp's: stage 2). -v counted=MUFU.EX2,LDSM: the
# whole tile's is the shortest way that has most of these, too; how many of each it has stands at the end of the line.
BEGIN {
    if (!kernels) kernels = "hopper_"
    if (!product) product = "HGMMA"
    counts_of = split(counted ? product "," counted : product, counted_op, ",")
}
function number(hex,    i, n) {
    hex = tolower(hex)
    for (i = 1; i <= length(hex); i++) n = 16 * n + index("123456789abcdef", substr(hex, i, 1))
    return n
}
# A walk from the first instruction on, depth first: `order` has the instructions that can be reached, each after all
# that follow it; back[from, to] the branches that lead back, tails[to] where they come from.
function walk(    top, at, next_one) {
    top = 1; stack[1] = 0; state[0] = 1
    while (top) {
        at = stack[top]
        if (tried[at] < degree[at]) {
            next_one = next_of[at, ++tried[at]]
            if (!state[next_one]) { state[next_one] = 1; stack[++top] = next_one }
            else if (state[next_one] == 1) { back[at, next_one] = 1; tails[next_one] = tails[next_one] " " at }
        } else { state[at] = 2; order[++reached] = at; top-- }
    }
}
# body[i] for the instructions of the loop that begins at `head`; how many products it has, and whether it waits
function gather(head,    n, top, at, i, list) {
    split("", body)
    body[head] = 1; products = op[head] == product; waits = op[head] == "SYNCS"
    n = split(tails[head], list, " ")
    for (i = 1; i <= n; i++) stack[++top] = list[i]
    while (top) {
        at = stack[top--]
        if (at in body) continue
        body[at] = 1
        products += op[at] == product; waits += op[at] == "SYNCS"
        for (i = 1; i <= entering[at]; i++) if (!(before[at, i] in body)) stack[++top] = before[at, i]
    }
}
# The ways through the loop in `body`, from its head to where it is left for the head again; `apart`: repeated parts
function ways(head,    i, k, at, to, list, n, best, whole, edge, most, end, from, tally, others) {
    split("", from); split("", short); split("", plain); split("", long); split("", passed)
    short[head] = plain[head] = long[head] = 1; passed[head] = kind[head] > 0
    for (i = reached; i >= 1; i--) {
        at = order[i]
        if (!(at in body) || !(at in short)) continue
        for (k = 1; k <= degree[at]; k++) {
            to = next_of[at, k]
            if (!(to in body) || (at, to) in back) continue
            n = passed[at] + (kind[to] > 0)
            if (!(to in short) || n > passed[to] || (n == passed[to] && short[at] + 1 < short[to])) {
                short[to] = short[at] + 1; passed[to] = n; from[to] = at
            }
            if (long[at] + 1 > long[to]) long[to] = long[at] + 1
            if (plain[at] && !(to in apart) && plain[at] + 1 > plain[to]) plain[to] = plain[at] + 1
        }
    }
    n = split(tails[head], list, " "); best = -1
    for (i = 1; i <= n; i++) {
        at = list[i]
        if (passed[at] > best || (passed[at] == best && short[at] < whole)) {
            best = passed[at]; whole = short[at]; end = at
        }
        if (plain[at] > edge) edge = plain[at]
        if (long[at] > most) most = long[at]
    }
    split("", tally)
    for (at = end; ; at = from[at]) { tally[kind[at]]++; if (at == head) break }
    others = ""
    for (i = 2; i <= counts_of; i++) others = others " " tally[i] + 0
    print kernel, tally[1] + 0, whole, edge, most others
}
function link(from, to) { next_of[from, ++degree[from]] = to; before[to, ++entering[to]] = from }
function report(    i, at, head, inner, other) {
    if (!found) return
    for (i = 0; i < count; i++) {
        if (target[i] in place) link(i, place[target[i]])
        if (!ends[i] && i + 1 < count) link(i, i + 1)
    }
    walk()
    for (head in tails) {
        gather(head)
        for (at in body) inside[head, at] = 1
        counts[head] = products; waiting[head] = waits
    }
    for (head in tails) {
        if (!counts[head]) continue
        inner = 1
        split("", apart)
        for (other in tails) {
            if (other == head || !((head, other) in inside)) continue
            if (counts[other]) inner = 0
            else if (!waiting[other]) for (i = 0; i < count; i++) if ((other, i) in inside) apart[i] = 1
        }
        if (inner) { gather(head); ways(head) }
    }
}
function clear() {
    count = reached = found = 0
    split("", op); split("", kind); split("", target); split("", place); split("", ends); split("", next_of)
    split("", degree)
    split("", before); split("", entering); split("", state); split("", tried); split("", back); split("", tails)
    split("", order); split("", inside); split("", counts); split("", waiting)
}
/Function :/ { report(); clear(); kernel = $3; wanted = kernel ~ kernels }
wanted && $1 ~ /^\/\*[0-9a-f]+\*\/$/ {
    at = number(substr($1, 3, length($1) - 4)); guarded = $2 ~ /^@/; first = guarded ? 3 : 2
    for (k = counts_of; k && index($first, counted_op[k]) != 1; k--);
    kind[count] = k                                             # which of what is counted, or 0
    op[count] = $first; sub(/[.;].*/, "", op[count])
    place[at] = count
    found += op[count] == product
    if (op[count] == "BRA")
        for (k = first + 1; k <= NF; k++)
            if ($k ~ /^0x[0-9a-f]+;?$/) { sub(/^0x/, "", $k); sub(/;$/, "", $k); target[count] = number($k); break }
    ends[count] = !guarded && (op[count] == "EXIT" || op[count] == "RET" || (op[count] == "BRA" && k == first + 1))
    count++
}
END { report() }
