# emulate.sh - sourced after items.sh by other scripts: the AVX-512 kernels on a machine that has AVX2 only, by way of
# SIMDe's portable functions (emulate_avx512.h), and AMX's tiles (emulate_amx.h).
EMULATION="-O2 -w -mavx2 -mfma -mf16c -include tests/emulate_avx512.h -include tests/emulate_amx.h"
emulator() { if command -v clang; then :; else echo "${CC:-cc}"; fi; } # clang compiles it in half the time

# emulate IN OUT: a copy of attn.h that calls those functions
emulate() {
    sed -e 's/__asm__("vdpbf16ps.*/(sum) = _mm512_dpbf16_ps(sum, a, b)/' \
        -e 's/__asm__("vcvtne2ps2bf16.*/both = _mm512_cvtne2ps_pbh(odd, even);/' -e 's/_mm512_/simde_mm512_/g' -e 's/__m512/simde__m512/g' -e 's/__mmask/simde__mmask/g' \
        -e '/define ATTN__AMX_/s/__asm__ __volatile__(/(/' -e 's/"tilezero.*/emulated_tile_zero(t))/' \
        -e 's/"tileloadd.*/emulated_tile_loadd(t, at, row))/' \
        -e 's/"tilestored.*/emulated_tile_stored(t, at, row))/' \
        -e 's/"tdpbf16ps.*/emulated_tile_dpbf16ps(c, a, b))/' -e 's/,amx-tile,amx-bf16//' \
        -e 's/__asm__ __volatile__("ldtilecfg.*/emulated_tile_loadconfig(rows_and_bytes);/' \
        -e 's/__asm__ __volatile__("tilerelease.*/emulated_tile_release(); }/' \
        -e 's/\(ATTN__AMX_[CR]O[A-Z]*\) \([?:]\)/emulated_least(\1) \2/' \
        -e 's/avx512[a-z][a-z0-9]*\([,"]\)/avx2\1/g' -e 's/"+v"/"+m"/g' "$1" >"$2"
}
# why_no_emulation: nothing, or what this machine lacks
why_no_emulation() {
    if [ ! -e /usr/include/simde/x86/avx512.h ]; then echo "no simde"
    elif ! grep -qw avx2 /proc/cpuinfo; then echo "this CPU lacks AVX2"; fi
}
# The implementation on these functions, compiled once for the suites and the golden hashes
emulated=$out/emulated.o
emulated_object() {
    [ -n "$(find attn.h tests/attn.c tests/emulate.sh tests/emulate_*.h -newer "$emulated" 2>&1)" ] || return 0
    mkdir -p "$emulated.$$/tests"
    emulate attn.h "$emulated.$$/attn.h"
    cp tests/attn.c "$emulated.$$/tests"
    [ "$(grep -c emulated_least "$emulated.$$/attn.h")" = 2 ] &&        # both places are still found
        $(emulator) $EMULATION -c "$emulated.$$/tests/attn.c" -o "$emulated.$$/attn.o" &&
        mv "$emulated.$$/attn.o" "$emulated"
    emulated_status=$?
    rm -r "$emulated.$$"
    return $emulated_status
}
# emulated_suites PROGRAM [SUITE]: the suites on these kernels, or one; of all not memory, which counts the stack; those
# that may run on AMX once more there
emulated_suites() {
    if [ -n "${2:-}" ]; then "$1" --isa avx512 --suite "$2"; else
        WITHOUT="memory
$(left_out_suites)" each_suite "$1" --isa avx512 && emulated_amx_suites "$1"
    fi
}
emulated_amx_suites() {
    for one in precision products parts; do EMULATED_AMX=few "$1" --isa avx512 --amx --suite $one || return 1; done
    EMULATED_AMX=few "$1" --isa avx512 --amx --filter memory.monotone || return 1
    EMULATED_AMX=few "$1" --isa avx512 --amx --filter mha.fast || return 1
    for one in precision mha; do EMULATED_AMX=few "$1" --isa avx512 --filter $one.asked_later || return 1; done
}
