# mpi.sh - examples/mpi/ring.c over 1, 2 and 4 processes, one job after the other: processes that wait take a core each.
# `make demo-mpi` runs it. Skipped where there is no MPI; what is missing is said. POSIX sh.
: "${MPICC:=mpicc}" "${MPIRUN:=mpirun}"
. tests/items.sh

# Open MPI refuses to run as root, and more processes than cores, unless it is told.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

ranks() { # ranks COUNT ARGUMENTS...: one job; what it prints
    count=$1; shift
    log=$out/mpi.log
    "$MPIRUN" -n "$count" "$out/ring" "$@" >"$log" 2>&1 || { failed "$count ranks${*:+ $*}" "$log"; return; }
    ok "$count ranks${*:+ $*}"
    sed 's/^/        /' "$log"
}
item_ring() {
    try "examples/mpi/ring.c compiles" "$MPICC" -O2 -Wall -Wextra -Werror examples/mpi/ring.c -lm -o "$out/ring" ||
        return
    for count in 1 2 4; do
        ranks $count
        ranks $count --causal 2048
    done
    ranks 3 256         # ranks without a key
}

for tool in "$MPICC" "$MPIRUN"; do
    have "$tool" && continue
    skipped "MPI (no $tool: in Debian libopenmpi-dev and openmpi-bin)"
    [ -n "$1" ] || echo "0 passed, 0 failed, 1 skipped"
    exit 0
done
items "$1" ring
