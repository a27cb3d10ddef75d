# build.sh - `make cuda`: the implementation for every architecture, without a warning; how long it takes, how large it
# is. ARCHS="80 90a" builds for these. POSIX sh.
. tests/items.sh
. tests/cuda/nvcc.sh

# What ptxas tells of every kernel goes to attn_ARCH.ptxas (for check.sh); what else is said is a warning.
item_build() { # item_build ARCHITECTURE
    base=$cuda/attn_$1
    rm -f "$base.o" "$base.ptxas"
    cuda_implementation >"$base.cu"
    sh -c '"$@"; status=$?; times; exit $status' sh \
        "$NVCC" $NVCC_FLAGS $NVCC_WARNINGS -Xptxas -v $(code_for "$1") -c "$base.cu" -o "$base.o" \
        >"$base.times" 2>"$base.said"
    status=$?
    grep -E "$PTXAS_FACTS" "$base.said" >"$base.kernels"
    grep -vE "$PTXAS_FACTS" "$base.said" >"$base.log"
    seconds=$(tail -n 1 "$base.times" | awk '{ for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); s += 60 * t[1] + t[2] }
                                               printf "%.0f", s }')
    if [ $status = 0 ] && [ ! -s "$base.log" ]; then
        mv "$base.kernels" "$base.ptxas"
        ok "sm_$1: $seconds s of processor time, object of $(($(wc -c <"$base.o") / 1024)) KB"
    else
        failed "sm_$1" "$base.log"
    fi
}
if [ -z "$NVCC" ]; then skipped "make cuda ($WITHOUT_NVCC)"; echo "0 passed, 0 failed, 1 skipped"; exit 0; fi
if [ -z "$1" ]; then "$NVCC" --version | sed -n 's/.*release/nvcc/p'; fi
items "$1" $(for arch in $ARCHS; do echo "build:$arch"; done)
