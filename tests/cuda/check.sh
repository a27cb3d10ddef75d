# check.sh - `make check-cuda`: what ptxas told while `make cuda` built, and what it made. Fails where a kernel's
# registers spilled, where products of a warpgroup run one after the other because its registers are touched meanwhile,
# where the innermost loops of stage 1, or a tile of stage 3, have too many instructions, and where a build of few
# kernels has a warning. POSIX sh.
. tests/items.sh
. tests/cuda/nvcc.sh

# Every kernel of the header, read from it so that a new one is not forgotten; and those that may spill.
KERNELS=$(sed -n 's/.*ATTN__KERNEL(.*) void \([a-z_]*\)(.*/\1/p' attn_cuda.cuh | sort -u)
MAY_SPILL=

# kernels_of FILE: "name registers bytes" of each kernel that ptxas told of; bytes on the stack, spilled or indexed
kernels_of() {
    sed -n -e "s/.*Compiling entry function '\\([^']*\\)'.*/kernel \\1/p" \
        -e 's/.*Used \([0-9]*\) registers.*/used \1/p' \
        -e 's/^ *\([0-9]*\) bytes stack frame, \([0-9]*\) bytes spill stores, \([0-9]*\) .*/stack \1 \2 \3/p' "$1" |
        awk '$1 == "kernel" { name = $2; bytes = 0 }
             $1 == "stack" { bytes = $2 + $3 + $4 }
             $1 == "used" { print name, $2, bytes }'
}
# own_name NAME: the kernel's own name, without what the compiler put around it
own_name() {
    for kernel in $KERNELS; do
        case $1 in *[0-9]"$kernel"[IE]*) echo "$kernel" ;; esac
    done | awk '{ if (length($0) > length(best)) best = $0 } END { print best }'
}
no_spills() { # no_spills FILE
    kernels_of "$1" | while read -r name registers bytes; do
        own=$(own_name "$name")
        case " $MAY_SPILL " in *" ${own:-none} "*) continue ;; esac
        [ "$bytes" = 0 ] || echo "$name: $registers registers, $bytes bytes beside them"
    done >"$1.spilled"
    [ ! -s "$1.spilled" ] || { cat "$1.spilled"; return 1; }
}
not_serialised() { ! grep -E 'C75[0-9][0-9]|serializ' "$1"; }
# A block whose kernel moves registers by setmaxnreg starts with 168 for each of its 384 threads, or 128 of 512 (the
# forward of heads of 64 without options that shape scores or have a number for each pair), which is what
# registers_suffice reckons with: with fewer, consumers would wait for ever.
starts_in_full() { # starts_in_full FILE
    moving=$(awk '/ATTN__KERNEL\(.*\) void / { sub(/\(ATTN__PARAM.*/, ""); sub(/.* /, ""); name = $0 }
                  /setmaxnreg_inc/ && name { print name }' attn_cuda.cuh | sort -u)
    kernels_of "$1" | while read -r name registers bytes; do
        own=$(own_name "$name")
        case " $(echo $moving) " in *" ${own:-none} "*) ;; *) continue ;; esac
        case $name in *hopper_forward_kernel*Li64ELi64ELb1EEELb0ELb0E*) wanted=128 ;; *) wanted=168 ;; esac
        echo "$registers of $wanted: $name"
    done >"$1.moving"
    [ -s "$1.moving" ] && ! awk '$1 != $3 + 0' "$1.moving" | grep .
}
complete() { # complete FILE: every kernel of the header was compiled
    kernels_of "$1" | while read -r name rest; do own_name "$name"; done | sort -u >"$1.names"
    missing=$(for kernel in $KERNELS; do grep -qx "$kernel" "$1.names" || echo "$kernel"; done)
    [ -z "$missing" ] || { echo "never compiled:" $missing; return 1; }
}
item_architecture() { # item_architecture ARCHITECTURE
    told=$cuda/attn_$1.ptxas; said=$cuda/attn_$1.said
    [ -s "$told" ] || { failed "sm_$1 (make cuda did not build it)"; return; }
    [ ! attn_cuda.cuh -nt "$told" ] || { failed "sm_$1 (built before attn_cuda.cuh was changed: make cuda)"; return; }
    try "sm_$1: every kernel compiled" complete "$told"
    try "sm_$1: $(kernels_of "$told" | wc -l) kernels, at most $(kernels_of "$told" |
        awk '$2 > most { most = $2 } END { print most }') registers, none spilled" no_spills "$told"
    [ "$1" != 90a ] || try "sm_$1: kernels with setmaxnreg start with all registers" starts_in_full "$told"
    try "sm_$1: no product of a warpgroup waits for another" not_serialised "$said"
}

# Another compiler's 160 is found.
item_start() {
    for registers in 168 160; do
        printf '%s\n' "ptxas info    : Compiling entry function '_ZN9attn__gpu18hopper_grad_kernelI1' for 'sm_90a'" \
            "ptxas info    : Used $registers registers, used 16 barriers" >"$cuda/start_$registers"
    done
    if starts_in_full "$cuda/start_168" >/dev/null && ! starts_in_full "$cuda/start_160" >/dev/null
    then ok "a kernel that starts with fewer registers is found"
    else failed "a kernel that starts with fewer registers is found" "$cuda/start_160.moving"; fi
}

compile() { "$NVCC" $NVCC_FLAGS -Xptxas -v $(code_for "$1") -c "$cuda/$2.cu" -o "$cuda/$2.o" >"$cuda/$2.said" 2>&1; }

# Fewer head sizes, fewer kernels.
item_trimmed() { # item_trimmed ARCHITECTURE
    name="ATTN_CUDA_HEAD_DIMS 64, 128 for sm_$1"
    { echo '#define ATTN_CUDA_HEAD_DIMS 64, 128'; cuda_implementation; } >"$cuda/trimmed.cu"
    compile "$1" trimmed || { failed "$name" "$cuda/trimmed.said"; return; }
    whole=$(wc -c <"$cuda/attn_$1.o"); trimmed=$(wc -c <"$cuda/trimmed.o")
    if [ "$trimmed" -lt "$whole" ]; then ok "$name: $((trimmed / 1024)) KB instead of $((whole / 1024))"
    else failed "$name: $((trimmed / 1024)) KB, all sizes $((whole / 1024))"; fi
}

# The fewest there are: no warning then, either.
item_fewest() { # item_fewest ARCHITECTURE
    name="head size 64 of bf16, forward alone, for sm_$1"
    { printf '#define ATTN_CUDA_%s\n' 'HEAD_DIMS 64' 'F16 0' 'F32 0' 'GRADIENTS 0'; cuda_implementation; } >"$cuda/fewest.cu"
    try "$name, without a warning" "$NVCC" $NVCC_FLAGS $NVCC_WARNINGS $(code_for "$1") -c "$cuda/fewest.cu" \
        -o "$cuda/fewest.o"
}

# The innermost loops of stage 1: instructions for a multiply-add, at most 1.45 of products and 2.5 of distances (which
# have a subtraction for each). Few queries are left out: memory limits these.
loops_of() { # loops_of OBJECT: kernel, instructions, FFMA, FADD
    "$CUOBJDUMP" -sass "$1" | awk -f tests/cuda/loops.awk | grep 'tiled_' | grep -v 'tiled_forwardILi1E'
}
item_loops() { # item_loops ARCHITECTURE
    name="sm_$1: instructions for a multiply-add in stage 1"
    [ -n "$CUOBJDUMP" ] || { skipped "$name ($WITHOUT_CUOBJDUMP)"; return; }
    loops_of "$cuda/attn_$1.o" >"$cuda/attn_$1.loops" 2>"$cuda/attn_$1.loops.log"
    awk '{ distance = 2 * $4 >= $3; each = $2 / $3; n++; kernels[$1] = 1
           if (each > most[distance]) most[distance] = each
           if (each > (distance ? 2.5 : 1.45)) { print $0, "too many"; bad = 1 } }
         END { for (k in kernels) count++
               printf "%d loops of %d kernels, at most %.2f, of distances %.2f\n", n, count, most[0], most[1]
               exit bad || count < 6 || !most[0] || !most[1] }' "$cuda/attn_$1.loops" >>"$cuda/attn_$1.loops.log" 2>&1 ||
        { failed "$name" "$cuda/attn_$1.loops.log"; return; }
    ok "$name: $(tail -n 1 "$cuda/attn_$1.loops.log")"
}

# A tile of stage 3, of which every kernel with products of a warpgroup has a loop: at most 900 instructions where rows of
# head size 128 end. What each kernel has is left in attn_90a.tiles; any object's: cuobjdump -sass X | awk -f tiles.awk.
item_tiles() { # item_tiles ARCHITECTURE
    name="sm_$1: instructions of a tile in stage 3"
    [ -n "$CUOBJDUMP" ] || { skipped "$name ($WITHOUT_CUOBJDUMP)"; return; }
    "$CUOBJDUMP" -sass "$cuda/attn_$1.o" 2>"$cuda/attn_$1.tiles.log" | awk -f tests/cuda/tiles.awk >"$cuda/attn_$1.tiles"
    kernels=$(grep -cE 'Compiling entry.*hopper_(forward|grad)_kernel' "$cuda/attn_$1.ptxas")
    awk -v kernels="$kernels" '
         { loops++ }
         /hopper_forward_kernel.*Li128ELi128ELb1EEELb0ELb0E/ { n++; whole = $3; if ($4 > edge) edge = $4; last = $5 }
         END { printf "%d of a whole tile of head size 128, %d at an edge, %d with infinite numbers; %d of %d kernels\n",
                   whole, edge, last, loops, kernels
               exit n != 2 || edge > 900 || !loops || loops != kernels }' "$cuda/attn_$1.tiles" \
        >>"$cuda/attn_$1.tiles.log" 2>&1 || { failed "$name" "$cuda/attn_$1.tiles.log"; return; }
    ok "$name: $(tail -n 1 "$cuda/attn_$1.tiles.log")"
}

# The checks themselves: a kernel that must spill, and one that reads what a product is still writing, are found.
item_spilling() {
    cat >"$cuda/spilling.cu" <<'END'
__global__ void __launch_bounds__(1024, 2) spilling(float *x)
{
    float a[64];
#pragma unroll
    for (int i = 0; i < 64; i++) a[i] = x[i * 1024 + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 64; i++) x[i * 1024 + threadIdx.x] = a[i] * a[63 - i];
}
END
    compile 80 spilling || { failed "a kernel that spills" "$cuda/spilling.said"; return; }
    if no_spills "$cuda/spilling.said" >/dev/null; then failed "a kernel that spills is found" "$cuda/spilling.said"
    else ok "a kernel that spills is found"; fi
}
item_serialised() {
    cat >"$cuda/serialised.cu" <<'END'
__global__ void __launch_bounds__(128, 1) serialised(float *x, unsigned long long a, unsigned long long b)
{
    float d[4] = {0, 0, 0, 0};
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int i = 0; i < 4; i++) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
        d[i] += x[i];
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < 4; i++) x[threadIdx.x * 4 + i] = d[i];
}
END
    compile 90a serialised || { failed "serialised products" "$cuda/serialised.said"; return; }
    if not_serialised "$cuda/serialised.said" >/dev/null
    then failed "products that wait for each other are found" "$cuda/serialised.said"
    else ok "products that wait for each other are found"; fi
}

if [ -z "$NVCC" ]; then skipped "make check-cuda ($WITHOUT_NVCC)"; echo "0 passed, 0 failed, 1 skipped"; exit 0; fi
items "$1" start spilling serialised $(for arch in $ARCHS; do
                                           echo "architecture:$arch" "loops:$arch"
                                           [ "$arch" != 90a ] || echo "tiles:$arch fewest:$arch"
                                       done) "trimmed:${ARCHS%% *}"
