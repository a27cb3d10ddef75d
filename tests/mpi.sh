# mpi.sh - examples/mpi/ring.c over 1, 2 and 4 processes, one job after the other: processes that wait take a core each.
# `make demo-mpi` runs it; `make demo-mpi-cuda` with keys and values on the device here, `mpi.sh emulated:OBJECT` on the
# emulated one whose kernels are OBJECT. Skipped where there is no MPI; what is missing is said. POSIX sh.
: "${MPICC:=mpicc}" "${MPIRUN:=mpirun}"
. tests/items.sh

# Open MPI refuses to run as root, and more processes than cores, unless it is told.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

ring=$out/ring
compiled() { # compiled WHERE ARGUMENTS...: $ring, by these
    where=$1; shift
    try "examples/mpi/ring.c compiles$where" "$MPICC" -O2 -Wall -Wextra -Werror examples/mpi/ring.c "$@" -lm -o "$ring"
}
ranks() { # ranks COUNT ARGUMENTS...: one job; what it prints
    count=$1; shift
    log=$ring.log
    "$MPIRUN" -n "$count" "$ring" "$@" >"$log" 2>&1 || { failed "$count ranks${*:+ $*}" "$log"; return; }
    ok "$count ranks${*:+ $*}"
    sed 's/^/        /' "$log"
}
item_ring() {
    plain_object >"$ring.log" 2>&1 || { failed "attn.h compiles" "$ring.log"; return; }
    compiled "" -DATTN__IMPLEMENTED "$plain" || return
    for count in 1 2 4; do
        ranks $count
        ranks $count --causal 2048
    done
    ranks 3 256         # ranks without a key
}
# All ranks have the devices here between them.
item_cuda() {
    . tests/cuda/nvcc.sh
    what="examples/mpi/ring.c on a device"
    [ -n "$NVCC" ] || { skipped "$what ($WITHOUT_NVCC)"; return; }
    device_here || { skipped "$what ($no_device)"; return; }
    ring=$cuda/ring home=$(dirname "$(dirname "$(readlink -f "$(command -v "$NVCC")")")")
    try "kernels for sm_$device" "$NVCC" $NVCC_FLAGS $(code_for "$device") -DATTN_CUDA_HEAD_DIMS=64 \
        -c examples/cuda/kernels.cu -o "$ring-kernels.o" || return
    compiled " for a device" -DRING_CUDA -I"$home/include" "$ring-kernels.o" -L"$home/lib64" -lcudart -lstdc++ || return
    for count in 1 2 4; do
        ranks $count
        ranks $count --causal 2048
    done
}
# Several ranks, with few heads: the emulator is slow. Its memory is the host's, so MPI can take it as it is. The
# implementation with ATTN_CUDA has been compiled beside the kernels.
item_emulated() {
    ring=$(dirname "$1")/ring
    compiled " for a device" -DRING_CUDA -DHEADS=1 -Itests/cuda/stand_in -DATTN__IMPLEMENTED \
        "$(dirname "$1")/attn.o" "$1" -lstdc++ || return
    ranks 2 512
    ranks 2 --device-memory --causal 1024
    ranks 3 256         # ranks without a key
}

for tool in "$MPICC" "$MPIRUN"; do
    have "$tool" && continue
    skipped "MPI (no $tool: in Debian libopenmpi-dev and openmpi-bin)"
    [ -n "$1" ] || echo "0 passed, 0 failed, 1 skipped"
    exit 0
done
items "$1" ring
