# strips.awk - reads a disassembly (objdump -d --no-show-raw-insn) and prints the innermost loops of the strips of the
# product kernels, one a line: strip, multiply-adds, instructions, moves from vector register to vector register,
# vectors kept on the stack. With -v TEXT=STRIP instead the instructions of its loop, for llvm-mca.
function end_of_function(    i, j, k, inner, fma, moves, stack, text) {
    for (i = 1; i <= n; i++) {
        if (!(target[i] in at) || at[target[i]] > i) continue       # a jump back is the end of a loop
        j = at[target[i]]
        inner = 1
        for (k = j; k < i; k++) if (target[k] in at && at[target[k]] <= k && at[target[k]] >= j) inner = 0
        fma = moves = stack = 0
        text = ""
        for (k = j; k <= i; k++) {
            fma += code[k] ~ /^(vfmadd...ps|fmla)/
            moves += code[k] ~ /^(vmov[au]ps|vmovdq[au][0-9]*) %[xyz]mm[0-9]+,%[xyz]mm|^mov v[0-9]+\.16b, v/
            stack += code[k] ~ /\(%rsp.*mm|mm.*\(%rsp|[qdsv][0-9]+.*\[sp/
            if (k < i) text = text code[k] "\n"
        }
        if (!inner || !fma) continue
        if (TEXT == name && fma >= 12) printf "%s", text
        if (!TEXT) print name, fma, i - j + 1, moves, stack
    }
    split("", at); split("", target); n = 0
}
/^[0-9a-f]+ <.*>:$/ {
    if (wanted) end_of_function()
    name = $2; gsub(/[<>:]|attn__strips_/, "", name)
    wanted = $2 ~ /attn__strips_/
}
wanted && /^ *[0-9a-f]+:/ {
    address = $1; sub(":", "", address)
    line = $0; sub(/^ *[0-9a-f]+:[ \t]*/, "", line); sub(/ +# .*| *\/\/.*/, "", line); gsub(/[ \t]+/, " ", line)
    n++
    at[address] = n
    code[n] = line
    target[n] = line ~ /^(j|b\.|b |cb|tb)/ && match(line, /[0-9a-f]+ </) ? substr(line, RSTART, RLENGTH - 2) : "none"
}
END { if (wanted) end_of_function() }
