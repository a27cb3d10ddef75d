# check.sh - what can be wrong with a header besides its results. `make check` runs all, `sh tests/check.sh traces`
# one item (the list is at the end). What needs a tool that is not here is skipped.
. tests/items.sh
. tests/emulate.sh

dir=$out/check
mkdir -p "$dir"

WARNINGS="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wundef -Wcast-align -Wdouble-promotion -Werror"
C_WARNINGS="-Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition"
# Every macro ATTN_NO_* of the header, read from it so that a new one is not forgotten.
OPTIONS=$(grep -o 'ATTN_NO_[A-Z0-9_]*' attn.h | sort -u)

implementation() { # implementation MACROS...: a file with the implementation, on standard output
    for macro in "$@"; do echo "#define $macro"; done
    printf '#define ATTN_IMPLEMENTATION\n#include "attn.h"\n'
}

# ---- warnings: the public part, the implementation, the private copy, in every language and with every compiler
warnings_of() { # warnings_of COMPILER LANGUAGE STANDARD
    case $2 in c) flags="$WARNINGS $C_WARNINGS -std=$3" ;; *) flags="$WARNINGS -std=$3" ;; esac
    case $3 in c99|c++11) optimised=-O1 ;; *) optimised=-fsyntax-only ;; esac    # what flow tells, once per language
    for options in "-fsyntax-only" "$optimised -DATTN_IMPLEMENTATION" "-fsyntax-only -DATTN_IMPLEMENTATION -DATTN_STATIC"
    do
        printf '#include "attn.h"\nint main(void) { return ATTN_OK; }\n' |
            $1 $flags $options -I. -x "$2" -c - -o /dev/null || return 1
    done
}
item_warnings() { # item_warnings COMPILER STANDARD
    have "$1" || { skipped "warnings $1 $2 (no $1)"; return; }
    case $2 in c++*) language=c++ ;; *) language=c ;; esac
    try "warnings $1 -std=$2" warnings_of "$1" "$language" "$2"
}

# What the optimiser sees when it unrolls and inlines most: it warns of loops that cannot end where they say, and frames
# are largest.
item_optimised() { # item_optimised COMPILER
    have "$1" || { skipped "$1 -O3 -Wall -Wextra -Werror (no $1)"; return; }
    try "$1 -O3 -Wall -Wextra -Werror" "$1" -O3 -Wall -Wextra -Werror -c tests/attn.c -o "$dir/optimised.$1.o" || return
    try "the stack of a call, $1 -O3" stack_of "$dir/optimised.$1.o"
}
stack_of() { # stack_of OBJECT
    of_memory=$(for file in memory $harness; do echo "build/obj/$file.o"; done)
    make $of_memory && $CC -O1 -w '-DSUITES=X(memory)' -c tests/main.c -o "$dir/memory_main.o" &&
        $CC "$dir/memory_main.o" $of_memory "$1" -o "$dir/stack" -lm -lpthread && "$dir/stack" --filter memory.stack
}

# The tests and the examples keep to most of these rules too.
sources_of() {
    for file in tests/*.c tests/web/*.c bench/*.c examples/*.c; do
        $1 -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Werror -fsyntax-only "$file" || return 1
    done
}
item_sources() {
    have "$1" || { skipped "tests and examples with $1 (no $1)"; return; }
    try "tests and examples with $1" sources_of "$1"
}
item_examples_cxx() {
    have c++ || { skipped "examples as C++ (no c++)"; return; }
    for name in quickstart agents; do
        try "examples/$name.c as C++20" c++ -std=c++20 -Wall -Wextra -Werror -x c++ examples/$name.c -o "$dir/$name" -lm
    done
}
# The web page of a heatmap, in each language, and of public functions alone.
warnings_of_page() { # warnings_of_page COMPILER STANDARD FLAGS...
    compiler=$1 standard=$2; shift 2
    printf '#include "attn.h"\n#include "examples/web/attn_heatmap_html.h"\n' |
        $compiler $WARNINGS "$@" -std=$standard -DATTN_HEATMAP_HTML_IMPLEMENTATION -I. -O1 -c - -o "$dir/page.$standard.o"
}
item_page() {
    try "the web page of a heatmap names nothing private" sh -c '! grep -niE "attn__" examples/web/attn_heatmap_html.h'
    for each in gcc:c99 gcc:c17 clang:c99 g++:c++11 g++:c++20 clang++:c++20; do
        compiler=${each%:*} standard=${each#*:} language=c
        have $compiler || { skipped "the web page of a heatmap, $compiler (no $compiler)"; continue; }
        case $standard in c++*) language=c++ flags= ;; *) flags=$C_WARNINGS ;; esac
        try "the web page of a heatmap, $compiler -std=$standard" warnings_of_page $compiler $standard $flags -x $language
    done
}

# ---- every option alone, all together, and what else may be defined before the include
embed() { # embed NAME FLAGS...: a program of one file, built and run
    program=$dir/$1; shift
    $CC -Wall -Wextra -Werror "$@" -DATTN_IMPLEMENTATION tests/embed.c -o "$program" -lm && "$program"
}
refused() { ! embed "$@"; }
item_options() {
    all=
    for option in $OPTIONS; do
        try "$option" embed "$option" "-D$option"
        all="$all -D$option"
    done
    try "all ATTN_NO_* together" embed all_options $all
    if have g++; then
        try "all ATTN_NO_* beside attn_cuda.cuh" g++ -std=c++17 -fsyntax-only -w $all -DATTN_CUDA_HEAD_DIMS=64 -I. \
            tests/cuda/device.cc
    fi
}
item_ways() {
    try "ATTN_STATIC" embed static -DATTN_STATIC
    try "ATTN_DEF of the user" embed def '-DATTN_DEF=extern __attribute__((visibility("hidden")))'
    try "NDEBUG" embed ndebug -DNDEBUG
    try "ATTN_ASSERT of the user" embed assert '-DATTN_ASSERT(x)=((void)(x))'
    try "ATTN_MALLOC and ATTN_FREE of the user" \
        embed malloc -include stdlib.h '-DATTN_MALLOC(n)=malloc(n)' '-DATTN_FREE(p)=free(p)'
    try "ATTN_MALLOC alone is refused" refused one_hook -include stdlib.h '-DATTN_MALLOC(n)=malloc(n)'
    try "-funsigned-char -fshort-enums" embed char -funsigned-char -fshort-enums -Wno-type-limits
    try "-march=native on the whole file" embed native -march=native
}
hostile() {
    {   for macro in near far; do echo "#define $macro"; done
        for macro in min max small I check verify PI MIN MAX ABS IN OUT ERROR TRUE FALSE interface major minor unix \
                     linux None Status Bool DELETE OPTIONAL CONST VOID F X; do
            printf '#undef %s\n#define %s !hostile!\n' "$macro" "$macro"
        done
        printf '#define ATTN_IMPLEMENTATION\n#include "attn.h"\n'
    } >"$dir/hostile.c"
    $CC -I. -c "$dir/hostile.c" -o "$dir/hostile.o" &&
        $CC tests/embed.c "$dir/hostile.o" -o "$dir/hostile" -lm && "$dir/hostile"
}
# The header reads itself again, so it must find itself, wherever it lies and whatever it is called.
# what the file reads of itself again is the vector kernels: with those of one kind it compiles in half the time
WITHOUT_REST="-DATTN_NO_BACKWARD -DATTN_NO_PORTABLE -DATTN_NO_AVX512"
read_as() { # read_as HEADER FLAGS...: a user who includes it by this name
    header=$1; shift
    $CC -Wall -Wextra -Werror $WITHOUT_REST -DATTN_IMPLEMENTATION "-DATTN_HEADER=$header" "$@" tests/embed.c \
        -o "$dir/read" -lm && "$dir/read"
}
compiled_alone() { # compiled_alone FILE FLAGS...
    $CC $WITHOUT_REST -x c -DATTN_IMPLEMENTATION "$@" -c -o "$dir/alone.o" &&
        $CC $WITHOUT_REST tests/embed.c "$dir/alone.o" -o "$dir/alone" -lm &&
        "$dir/alone"
}
told() { # told COMMAND...: refused, and told what to define
    ! "$@" >"$dir/told" 2>&1 && grep -q 'error.*ATTN_FILE.*ATTN_NO_SIMD' "$dir/told" || { cat "$dir/told"; return 1; }
}
precompiled() {
    mkdir -p "$dir/pch" && cp attn.h "$dir/pch" &&
        $CC -DATTN_IMPLEMENTATION -x c-header "$dir/pch/attn.h" -o "$dir/pch/attn.h.gch" &&
        $CC -Winvalid-pch -Werror -DATTN_IMPLEMENTATION '-DATTN_HEADER="attn.h"' -iquote "$dir/pch" tests/embed.c \
            -o "$dir/precompiled" -lm && "$dir/precompiled"
}
item_reading() {
    case $(uname -m) in x86_64|aarch64) ;; *) skipped "reading itself again (no vector kernels here)"; return ;; esac
    tree=$PWD/$dir/tree; rm -rf "$tree"; mkdir -p "$tree/sub/dir" "$tree/link" "$tree/copy" "$tree/wrong"
    cp attn.h "$tree/sub/dir/attn.h"; cp attn.h "$tree/copy/copy.h"; cp attn.h "$tree/sub/dir/copy.h"
    ln -s ../sub/dir/attn.h "$tree/link/attn.h"; ln -s ../sub/dir/attn.h "$tree/link/other.h"
    printf '#pragma once\n#include "sub/dir/attn.h"\n' >"$tree/wrap.h"
    printf '#error wrong attn.h\n' >"$tree/wrong/attn.h"
    sed 's/^\(#define ATTN__READ *\).*/\119999/' attn.h >"$tree/version.h"
    { echo '#define ATTN_IMPLEMENTATION'; cat attn.h; } >"$tree/copy/pasted.c"
    try "in a subdirectory" read_as '"sub/dir/attn.h"' -I"$tree/wrong" -I"$tree"
    try "by <>" read_as '<dir/attn.h>' -I"$tree/sub"
    try "by an absolute path" read_as "\"$tree/sub/dir/attn.h\""
    try "behind a symbolic link" read_as '"link/attn.h"' -I"$tree"
    try "within a wrapper that is read once" read_as '"wrap.h"' -I"$tree" -DATTN_STATIC
    try "by -include" read_as '<stddef.h>' -include "$tree/sub/dir/attn.h"
    try "compiled itself" compiled_alone "$tree/sub/dir/attn.h"
    try "preprocessed first" sh -c "$CC -DATTN_IMPLEMENTATION -E attn.h -x c -o $dir/pre.i && $CC -c $dir/pre.i -o $dir/pre.o"
    try "precompiled" precompiled
    try "renamed, told its name" read_as '"copy/copy.h"' -I"$tree" '-DATTN_FILE="copy.h"'
    try "compiled itself under another name, told its name" compiled_alone "$tree/copy/copy.h" '-DATTN_FILE="copy.h"'
    if echo '#if !defined(__FILE_NAME__)
#error
#endif' | $CC -E - >"$dir/file_name" 2>&1; then
        try "a copy by another name in a subdirectory" read_as '"sub/dir/copy.h"' -I"$tree/wrong" -I"$tree"
        try "a link by another name" read_as '"link/other.h"' -I"$tree"
    else skipped "other names (this compiler does not tell a file its name)"; fi
    try "pasted, without vector kernels" $CC -c -DATTN_NO_SIMD "$tree/copy/pasted.c" -o "$dir/pasted.o"
    try "pasted is refused" told $CC -c "$tree/copy/pasted.c" -o "$dir/pasted.o"
    try "another version is refused" told $CC -I. '-DATTN_FILE="build/check/tree/version.h"' -DATTN_IMPLEMENTATION \
        -x c -c attn.h -o "$dir/version.o"
}
two_files() { $CC tests/embed.c tests/attn.c -o "$dir/two" -lm && "$dir/two"; }
c_and_cxx() {
    $CC -c tests/attn.c -o "$dir/c_attn.o" && c++ -c -x c++ tests/embed.c -o "$dir/cxx_embed.o" &&
        c++ "$dir/cxx_embed.o" "$dir/c_attn.o" -o "$dir/c_and_cxx" -lm && "$dir/c_and_cxx" &&
        c++ -c -x c++ tests/attn.c -o "$dir/cxx_attn.o" && $CC -c tests/embed.c -o "$dir/c_embed.o" &&
        c++ "$dir/c_embed.o" "$dir/cxx_attn.o" -o "$dir/cxx_and_c" -lm && "$dir/cxx_and_c"
}
shared() {
    $CC -shared -fPIC -x c -DATTN_IMPLEMENTATION attn.h -o "$dir/libattn.so" -lm &&
        $CC tests/embed.c -L"$dir" -lattn -o "$dir/shared" && LD_LIBRARY_PATH=$dir "$dir/shared"
}
item_embedding() {
    try "two files linked" two_files
    try "macros of other headers in the way" hostile
    try "cc -shared -fPIC -x c -DATTN_IMPLEMENTATION attn.h" shared
    if have c++; then try "C with C++" c_and_cxx; else skipped "C with C++ (no c++)"; fi
}

# A caller of version 0.3 and a library whose descriptors have grown since.
old_caller() {
    sed -E 's/^\} attn_(desc|grad|mha_desc|mha_grad|rope_desc|heatmap);/    int64_t grown[6] ATTN__0;\n&/' attn.h >"$dir/grown.h"
    [ "$(grep -c 'grown\[6\]' "$dir/grown.h")" = 6 ] && printf '#define ATTN_IMPLEMENTATION\n#include "grown.h"\n' |
        $CC -O0 -I"$dir" -x c -c - -o "$dir/grown.o" &&
        $CC -Wall -Wextra -Werror tests/old_caller.c "$dir/grown.o" -o "$dir/old_caller" -lm && "$dir/old_caller"
}
item_old_caller() { try "a caller of version 0.3 with structures that have grown" old_caller; }

# Descriptors as C++ writes them: zeroed, and from C++20 on with designators; what they leave out is no warning.
zeroed() { # zeroed COMPILER STANDARD
    for set in attn_desc:causal attn_grad:accumulate attn_mha_desc:heads attn_mha_grad:accumulate attn_heatmap:title \
        attn_parallel:workers attn_allocator:user attn_rope_desc:factor; do
        type=${set%:*} designated=
        [ "$2" != c++20 ] || designated="$type c = {.${set#*:} = 0}; a.${set#*:} = c.${set#*:};"
        printf '#include "attn.h"\nint main() { %s a = {}; %s b = {0}; %s return a.%s != b.%s; }\n' \
            $type $type "$designated" "${set#*:}" "${set#*:}" |
            $1 -std=$2 -Wall -Wextra -Wmissing-field-initializers -Werror -I. -x c++ -c - -o /dev/null || return 1
    done
}
# C++ with the flags that its own code is often compiled with: the declarations draw no warning, and the implementation
# none as a system header.
strict() { # strict COMPILER FLAGS...
    printf '#include <attn.h>\nint main() { attn_desc d = {}; return attn_forward(&d, nullptr) == ATTN_OK; }\n' |
        "$@" -std=c++17 -Wall -Wextra -Wconversion -Wsign-conversion -Wold-style-cast -Werror -fsyntax-only -x c++ -
}
item_strict() {
    for compiler in g++ clang++; do
        have $compiler || { skipped "-Wold-style-cast -Wconversion (no $compiler)"; continue; }
        try "the declarations, $compiler -Wold-style-cast -Wconversion" strict $compiler -I.
        try "the implementation as a system header, $compiler" strict $compiler -isystem . -DATTN_IMPLEMENTATION
    done
}
item_zeroed() {
    for compiler in g++ clang++; do
        have $compiler || { skipped "zeroed descriptors with $compiler (no $compiler)"; continue; }
        for standard in c++14 c++17 c++20; do
            try "zeroed descriptors, $compiler -std=$standard" zeroed $compiler $standard
        done
    done
}

# ---- without the C library. Compilers call memcpy, memmove, memset and memcmp whatever the source says.
CPU_TABLE='__cpu_indicator_init|__cpu_model|__cpu_features2' # the compiler's own: what the CPU has
BUILTINS='memcpy|memmove|memset|memcmp|_GLOBAL_OFFSET_TABLE_'
no_libc() {
    implementation ATTN_NO_LIBC | $CC -O2 -fno-stack-protector -I. -x c -c - -o "$dir/no_libc.o" || return 1
    undefined=$(nm -u "$dir/no_libc.o" | awk '{ print $2 }' | grep -Ev "^($BUILTINS|$CPU_TABLE)\$")
    [ -z "$undefined" ] || { echo "needs:" $undefined; return 1; }
}
no_headers() { # the headers of the compiler itself are allowed: those beside its stddef.h
    implementation ATTN_NO_LIBC ATTN_NO_SIMD |
        $CC -ffreestanding -I. -x c -fsyntax-only -H - 2>"$dir/headers" || return 1
    own=$(dirname "$($CC -print-file-name=include/stddef.h)")
    foreign=$(grep '^\.' "$dir/headers" | grep -v " $own/" | grep -v 'attn\.h$')
    [ -z "$foreign" ] || { echo "$foreign"; return 1; }
}
item_no_libc() {
    try "ATTN_NO_LIBC needs no symbol but $(echo $BUILTINS | tr '|' ' ')" no_libc
    try "ATTN_NO_LIBC with ATTN_NO_SIMD includes no header of the C library" no_headers
}

# ---- symbols, sizes
no_globals() {
    size -A "$dir/attn.o" "$dir/attn_pic.o" | awk '
        $1 ~ /^\.data\.rel\.ro/ { next } # constant tables of pointers
        $1 ~ /^\.(data|bss|tdata|tbss|init_array|ctors)/ && $2 > 0 { print; bad = 1 }
        END { exit bad }'
}
no_foreign_symbols() { # defined and visible: attn_ only; wanted: the C library only, and no libm
    nm -g --defined-only "$dir/attn.o" | awk '$3 !~ /^attn_[a-z]/ { print; bad = 1 } END { exit bad }' || return 1
    nm -u "$dir/attn.o" | awk '{ print $2 }' |
        grep -Ev "^($BUILTINS|$CPU_TABLE|malloc|free|strlen|__assert_fail|abort|__stack_chk_fail)\$" >"$dir/wanted"
    [ ! -s "$dir/wanted" ] || { echo "needs:" $(cat "$dir/wanted"); return 1; }
}
kilobytes() { # of an object file, and of the code and constants in it
    echo "$(($(wc -c <"$1") / 1024)) KB ($(size "$1" |
        awk 'NR == 2 { print int(($1 + $2) / 1024) }') of code and constants)"
}
item_object() {
    plain_object >"$dir/object.log" 2>&1 || { failed "object" "$dir/object.log"; return; }
    cp "$plain" "$dir/attn.o"
    seconds=$(cat "$plain.seconds")
    $CC -O2 -fPIC -c tests/attn.c -o "$dir/attn_pic.o"
    try "no mutable global" no_globals
    try "no symbol outside attn_" no_foreign_symbols
    ok "object of $(kilobytes "$dir/attn.o") with all"
    if [ "${BUILDS:-}" != few ]; then                       # `options` compiles them, but for the size of the object
        $CC -O2 -DATTN_NO_PORTABLE -c tests/attn.c -o "$dir/attn_three.o"
        ok "object of $(kilobytes "$dir/attn_three.o") with three instruction sets"
        try "compiles without gradients" $CC -O2 -DATTN_NO_BACKWARD -c tests/attn.c -o "$dir/attn_forward.o" &&
            ok "object of $(kilobytes "$dir/attn_forward.o") without gradients"
    fi
    try "compiled in $seconds s at -O2, at most 30" awk "BEGIN { exit !($seconds <= 30) }"
}

# ---- nothing stays behind: macros, pragmas
defined_here() { grep -oE '^ *# *define +[A-Za-z0-9_]+' attn.h | awk '{ print $NF }' | sort -u; }
macros_left() { # macros_left FLAGS...: those of attn.h that are alive after it
    echo '#include "attn.h"' | $CC "$@" -I. -x c -dM -E - |
        awk '{ sub(/\(.*/, "", $2); print $2 }' | sort -u >"$dir/alive"
    defined_here | comm -12 - "$dir/alive"
}
no_foreign_macros() {
    macros_left "$@" | grep -v '^ATTN__IMPLEMENTED$' | grep -vE '^ATTN_[A-Z0-9]' >"$dir/foreign"
    [ ! -s "$dir/foreign" ] || { cat "$dir/foreign"; return 1; }
}
same_code_after() { # a user's functions after the include compile as if it were not there
    cat >"$dir/user.c" <<'END'
float user_fma(float a, float b, float c) { return a * b + c; }
int user_nan(float x) { return x != x; }
float user_sum(const float *x) { float s = 0; int i; for (i = 0; i < 64; i++) s += x[i]; return s; }
END
    for file in user with; do           # ATTN_STATIC: functions that nobody calls are read, and not optimised
        { [ $file = user ] || implementation ATTN_STATIC; cat "$dir/user.c"; } >"$dir/$file.after.c"
        $1 -I. -Ofast -fno-finite-math-only -mfma -fno-asynchronous-unwind-tables \
            -S "$dir/$file.after.c" -o "$dir/$file.$1.s" || return 1
        awk '/\.size/ { on = 0 } /^user_/ { on = 1 } on' "$dir/$file.$1.s" | grep -vE '^[[:space:]]*[.#]' |
            sed -e 's/[.]L[A-Za-z]*[0-9_]*/L/g' -e 's/#.*//' >"$dir/$file.$1.text"
    done
    grep -q vfmadd "$dir/user.$1.text" && diff "$dir/user.$1.text" "$dir/with.$1.text"
}
item_traces() {
    try "no foreign macro after the header" no_foreign_macros
    try "no foreign macro after the implementation" no_foreign_macros -DATTN_IMPLEMENTATION
    for compiler in gcc clang; do
        name="-Ofast after the include is as before with $compiler"
        case $(uname -m) in x86_64) ;; *) skipped "$name (not x86-64)"; continue ;; esac
        if have $compiler; then try "$name" same_code_after $compiler; else skipped "$name (no $compiler)"; fi
    done
}

# ---- numbers stated in the conformance format: of this project's own, forward and backward
item_conformance() {
    { plain_object && $CC -O2 -w tests/conformance.c "$plain" -o "$dir/conformance" -lm; } \
        >"$dir/conformance.log" 2>&1 || { failed "conformance" "$dir/conformance.log"; return; }
    for file in tests/data/conformance_*.txt; do try "$file" "$dir/conformance" "$file"; done
}

# ---- text
narrow()   { awk 'length($0) > 120 { print FILENAME ":" FNR; bad = 1 } END { exit bad }' "$@"; }
ascii()    { ! LC_ALL=C grep -n '[^ -~]' "$@" /dev/null; }
trimmed()  { ! grep -nE '[[:space:]]$' "$@" /dev/null; }
version() {
    first=$(sed -n '1s/.* v\([0-9.]*\) .*/\1/p' attn.h)
    text=$(sed -n 's/^#define ATTN__READ *\([0-9]*\).*/\1/p' attn.h)
    macros=$(awk '/define ATTN_VERSION_(MAJOR|MINOR|PATCH) / { printf "%s%s", sep, $3; sep = "." }' attn.h)
    log=$(grep -oE '[0-9]+\.[0-9]+\.[0-9]+' CHANGELOG.md | head -n 1)
    echo "line 1: $first, macros: $macros, CHANGELOG: $log, vector kernels: $text"
    [ -n "$first" ] && [ "$first" = "$macros" ] && [ "$first" = "$log" ] &&
        [ "$text" = "$(echo "$first" | awk -F. '{ print 10000 * $1 + 100 * $2 + $3 }')" ]
}
item_text() {
    sources="attn.h attn_cuda.cuh $(ls tests/*.[ch] tests/cuda/*.[ch]* examples/*.c examples/cuda/*.[ch]* bench/*.c* \
        tests/web/* examples/web/*.[chs]* examples/embed/*.c tests/*.py examples/*.py examples/python/*.py \
        examples/rust/*.rs examples/zig/*.zig)"
    try "at most 120 columns" narrow $sources
    try "ASCII" ascii attn.h
    try "no tab and no space at the end of a line" trimmed $sources
    try "one version: line 1, macros, CHANGELOG, vector kernels" version
    try "the code of the manual's recipes is that of examples/recipes.c" recipes
    try "make help lists eight targets, make help-all every one that has a text" help_lists
}
help_lists() {
    all=$(cat Makefile tests/cuda/cuda.mk | grep -c '^[a-z-]*:.* ## ')
    [ "$(make -s help | wc -l)" = 8 ] && [ "$(make -s help-all | wc -l)" = "$all" ]
}
recipes() { # each line of code there, but for what a comment adds
    sed -n '/^   RECIPES /,/^   ORDER /p' attn.h | sed -n 's/^                 \([a-zA-Z].*[;]\).*/\1/p' >"$dir/recipes"
    [ "$(wc -l <"$dir/recipes")" -ge 15 ] || { echo "no recipes found"; return 1; }
    while IFS= read -r line; do
        grep -qF -- "$line" examples/recipes.c || { echo "not in examples/recipes.c: $line"; return 1; }
    done <"$dir/recipes"
}

# ---- other systems. Stub headers stand for a C library where only the compiler is here.
stubs() { # each is moved into place, for another item may be reading it
    mkdir -p "$dir/stub"
    cat >"$dir/stub/stdlib.$$" <<'END'
#pragma once
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
void *malloc(size_t); void free(void *); void abort(void); int posix_memalign(void **, size_t, size_t);
void *_aligned_malloc(size_t, size_t); void _aligned_free(void *);
void *memcpy(void *, const void *, size_t); void *memmove(void *, const void *, size_t);
void *memset(void *, int, size_t); int memcmp(const void *, const void *, size_t);
size_t strlen(const char *); int strcmp(const char *, const char *); int printf(const char *, ...);
typedef int jmp_buf[64];
#ifdef __cplusplus
}
#endif
#define assert(x) ((void)(x))
END
    mv "$dir/stub/stdlib.$$" "$dir/stub/stdlib.h"
    for header in string stdio assert malloc setjmp; do
        echo '#include "stdlib.h"' >"$dir/stub/$header.$$"; mv "$dir/stub/$header.$$" "$dir/stub/$header.h"
    done
}
# Seen as cl.exe, clang must be told to allow instructions (cl.exe needs neither flag nor attribute) and to pass over
# pragmas that are cl.exe's own.
MS="--target=x86_64-pc-windows-msvc -fms-compatibility-version=19.29"
MS32="--target=i686-pc-windows-msvc -fms-compatibility-version=19.29"
MSARM="--target=aarch64-pc-windows-msvc -fms-compatibility-version=19.29"
MS_SIMD="-Wno-unknown-pragmas -mavx2 -mfma -mavx512f -mavx512dq -mavx512bw -mavx512vl -mxsave"
syntax() { # syntax FLAGS...: the implementation and a user of it
    clang -Wall -Wextra -Werror -fsyntax-only -nostdlibinc -isystem "$dir/stub" -DATTN_IMPLEMENTATION "$@" tests/embed.c
}
item_readme() { # its tables of speed: the line before each says of which file in bench/ it is made
    for machine in $(sed -n 's/^<!-- from here.* bench.\([a-z0-9-]*\)[.]md -->$/\1/p' README.md); do
        awk -f bench/summary.awk "bench/$machine.md" >"$dir/summary.txt"
        sed -n "/^<!-- from here.*[/]$machine[.]md/,/^<!-- end/p" README.md | sed '1d;$d' |
            try "README's table of speed is made from bench/$machine.md" cmp "$dir/summary.txt" -
    done
}
# The processes of make bench-peers, on some that raise, die and hang.
item_forked() {
    have python3 || { skipped "processes of the benchmark that die or hang (no python3)"; return; }
    try "processes of the benchmark that die or hang" python3 bench/forked.py
}
item_other_targets() {
    have clang || { skipped "other targets (no clang)"; return; }
    stubs
    try "MSVC's target, as cl.exe sees it, C" syntax $MS -U__clang__ $MS_SIMD -std=c11
    try "MSVC's target, as cl.exe sees it, C++" syntax $MS -U__clang__ $MS_SIMD -x c++ -std=c++17
    try "clang-cl, C" syntax $MS -std=c11
    try "clang-cl, C++" syntax $MS -x c++ -std=c++17
    try "MSVC's 32-bit target" syntax $MS32 -U__clang__ $MS_SIMD
    try "MSVC's ARM target" syntax $MSARM
    try "32-bit x86" syntax --target=i386-linux-gnu
    try "32-bit x86 without SSE" syntax --target=i386-linux-gnu -mno-sse
    try "AArch64" syntax --target=aarch64-linux-gnu
    try "32-bit ARM" syntax --target=armv7-linux-gnueabihf
    try "RISC-V" syntax --target=riscv64-linux-gnu -march=rv64gc -mabi=lp64d
    try "big-endian PowerPC" syntax --target=powerpc64-linux-gnu
    try "WebAssembly" syntax --target=wasm32-unknown-unknown
    try "WebAssembly, relaxed SIMD" syntax --target=wasm32-unknown-unknown -msimd128 -mrelaxed-simd
}
# golden.c beside an implementation that has been compiled: golden_with OBJECT PROGRAM COMPILER FLAG...
golden_with() {
    object=$1 golden=$2; shift 2
    "$@" -O2 -w -static -DGOLDEN_LINKED tests/golden.c "$object" -o "$golden" -lm
}
wine_run() { WINEDEBUG=-all WINEPREFIX=$PWD/$dir/wine wine "$@" 2>/dev/null | tr -d '\r'; }
item_mingw() { # item_mingw TRIPLE
    compiler=$1-w64-mingw32-gcc
    have "$compiler" || { skipped "mingw $1 (no $compiler)"; return; }
    program=$dir/embed_$1.exe
    try "mingw $1 builds" $compiler -Wall -Wextra -Werror -O2 -c tests/attn.c -o "$dir/mingw_$1.o" || return
    try "mingw $1 links" $compiler -Wall -Wextra -Werror -static tests/embed.c "$dir/mingw_$1.o" -o "$program" || return
    have wine || { skipped "mingw $1 runs (no wine)"; return; }
    [ "$1" = x86_64 ] || { skipped "mingw $1 runs (a 64-bit wine only)"; return; }
    if [ "$(wine_run "$program")" = "embed: ok" ]; then ok "mingw $1 runs under wine"
    else failed "mingw $1 runs under wine"; fi
    golden_with "$dir/mingw_$1.o" "$dir/golden.exe" $compiler 2>"$dir/wine.log" ||
        { failed "mingw $1 builds golden.c" "$dir/wine.log"; return; }
    for isa in scalar avx2; do
        wine_run "$dir/golden.exe" --isa $isa --mixed >"$dir/wine.log"
        case $(cat "$dir/wine.log") in
            "$(sed -n 1p tests/golden.txt) "*) ok "golden hash under wine, $isa" ;;
            *"no such instruction set"*) skipped "golden hash under wine, $isa (this CPU lacks it)" ;;
            *) failed "golden hash under wine, $isa" "$dir/wine.log" ;;
        esac
    done
}
# The suites on the AVX-512 kernels, on a machine without AVX-512. One that has it runs them all on its own (make test),
# and here the suite that looks at the kernels one by one (not at those of attn_rope, which choose their own).
item_suites_emulated() {
    suite=; grep -qw avx512dq /proc/cpuinfo && suite=isa
    name="the suites on emulated AVX-512"; tree=$dir/emulated; lacks=$(why_no_emulation)
    [ -z "$lacks" ] || { skipped "$name ($lacks)"; return; }
    mkdir -p "$tree"
    objects=$(for s in $(sh tests/suites.sh); do echo "build/obj/$s.o"; done)
    { emulated_object && make $objects && $CC $objects "$emulated" -o "$tree/run" -lm -lpthread; } >"$tree/log" 2>&1 ||
        { failed "$name" "$tree/log"; return; }
    emulated_suites "$tree/run" $suite >"$tree/log" 2>&1 || { failed "$name" "$tree/log"; return; }
    [ -z "$suite" ] || emulated_amx_suites "$tree/run" >>"$tree/log" 2>&1 || { failed "$name" "$tree/log"; return; }
    ok "$name${suite:+ (suite $suite)}: $(passed_in "$tree/log") tests"
}
# All suites on the portable vectors; `make test` leaves some of them out.
# As `make test`, but the kernels have to make the fused multiply-add themselves.
item_suites_plain() {
    program=$dir/plain; objects=$(for suite in $(sh tests/suites.sh); do echo "build/obj/$suite.o"; done)
    { make $objects && plain_object && $CC $objects "$plain" -o "$program" -lm -lpthread; } >"$program.log" 2>&1 ||
        { failed "the suites as plain cc compiles them" "$program.log"; return; }
    without=$(left_out_suites)
    for isa in scalar portable; do
        name="the suites on $isa kernels, as plain cc compiles them"
        case $("$program" --suite bmm --isa $isa) in
            *"has no $isa"*) skipped "$name (not in this build)"; continue ;;
        esac
        if WITHOUT=$without each_suite "$program" --isa $isa >"$program.log" 2>&1; then
            ok "$name: $(passed_in "$program.log") tests"
        else failed "$name" "$program.log"; fi
        without=$(left_out_suites; ! have nm || for object in $objects; do   # what takes none does the same on the next
            nm "$object" | grep -q ' U test_isa' || basename "$object" .o
        done)
    done
}
# attn_rope and its kin take no instruction set and run on the best one: builds that leave the better ones out.
# (With all of them it runs in suites_plain.) Compiled for as long as it takes to run.
best_without() {
    $CC -O0 -w "$@" -c tests/attn.c -o "$dir/sequence.o" &&
        $CC "$dir/sequence.o" "$dir/sequence_main.o" $of_sequence -o "$dir/sequence" -lm -lpthread && "$dir/sequence"
}
item_sequences() {
    of_sequence=$(for file in sequence $harness; do echo "build/obj/$file.o"; done)
    { make $of_sequence &&
        $CC -O1 -w '-DSUITES=X(sequence)' -c tests/main.c -o "$dir/sequence_main.o"; } >"$dir/sequence.log" 2>&1 ||
        { failed "the suite sequence" "$dir/sequence.log"; return; }
    try "the suite sequence without AVX-512" best_without -DATTN_NO_AVX512
    try "the suite sequence with portable vectors" best_without -DATTN_NO_AVX512 -DATTN_NO_AVX2 -DATTN_NO_NEON
    try "the suite sequence without vectors" best_without -DATTN_NO_SIMD
}
golden_in_emulation() { # golden_in_emulation ISA EMULATOR PROGRAM
    case $("$2" "$3" --isa "$1" --mixed 2>&1) in
        "$(sed -n 1p tests/golden.txt) "*) ok "golden hash in emulation, $(basename "$2"), $1" ;;
        *) failed "golden hash in emulation, $(basename "$2"), $1" ;;
    esac
}
# The other storage types, each call in another way: NEON converts with instructions of its own, a big-endian machine has
# the bytes of a number the other way round.
golden_of_types() { # golden_of_types EMULATOR PROGRAM OPTIONS...
    for type in f16 bf16 i8; do
        case $("$@" --type $type --mixed 2>&1) in
            "$(sed -n "s/^$type //p" tests/golden.txt) "*) ok "golden hash of $type in emulation, $(basename "$1")" ;;
            *) failed "golden hash of $type in emulation, $(basename "$1")" ;;
        esac
    done
}
# The NEON kernels, where the machine is another one: each beside the scalar one, and the golden hash.
item_aarch64() {
    compiler=aarch64-linux-gnu-gcc
    for tool in $compiler qemu-aarch64; do have $tool || { skipped "AArch64 in emulation (no $tool)"; return; }; done
    try "AArch64 -Wall -Wextra -Werror" $compiler -O2 -Wall -Wextra -Werror -c tests/attn.c -o "$dir/aarch64.o" || return
    try "AArch64 builds golden.c" golden_with "$dir/aarch64.o" "$dir/golden_aarch64" $compiler || return
    if [ "${BUILDS:-}" != few ]; then                       # s390x has portable vectors, too
        $compiler -O2 -w -static -DATTN_NO_NEON tests/golden.c -o "$dir/golden_aarch64_portable" -lm \
            2>"$dir/aarch64.log" || { failed "AArch64 without NEON builds golden.c" "$dir/aarch64.log"; return; }
        golden_in_emulation portable qemu-aarch64 "$dir/golden_aarch64_portable"
    fi
    for isa in scalar neon; do golden_in_emulation $isa qemu-aarch64 "$dir/golden_aarch64"; done
    golden_of_types qemu-aarch64 "$dir/golden_aarch64" --isa neon
    try "AArch64 builds the suite isa" $compiler -O1 -w -static '-DSUITES=X(isa)' tests/main.c tests/isa.c tests/ref.c \
        tests/cases.c "$dir/aarch64.o" -o "$dir/isa_aarch64" -lm -lpthread &&
        try "the suite isa in emulation" qemu-aarch64 "$dir/isa_aarch64" --isa neon
}
# Other machines, each with the best kernels it has: every call of the golden set, each in another way.
golden_on() { # golden_on NAME COMMAND...: the program, run as the command says
    name=$1; shift
    "$@" --mixed --float-control 2 >"$dir/$name.log" 2>&1   # a caller who rounds upwards
    case $(cat "$dir/$name.log") in
        "$(sed -n 1p tests/golden.txt) "*) ok "golden hash on $name" ;;
        *) failed "golden hash on $name" "$dir/$name.log" ;;
    esac
}
item_machine() { # item_machine NAME COMPILER EMULATOR FLAG...
    name=$1 compiler=$2 emulator=$3; shift 3
    for tool in $compiler $emulator; do have $tool || { skipped "$name (no $tool)"; return; }; done
    try "$name -Wall -Wextra -Werror" $compiler -O2 -Wall -Wextra -Werror "$@" -c tests/attn.c -o "$dir/$name.o" || return
    try "$name builds golden.c" golden_with "$dir/$name.o" "$dir/golden_$name" $compiler "$@" || return
    golden_on "$name" $emulator "$dir/golden_$name"
    [ "$name" != s390x ] || golden_of_types $emulator "$dir/golden_$name"
}
# wasm COMPILER FLAG...: golden.c, built for WASI, whose C library and builtins come apart from the compiler
wasm() { "$@" --target=wasm32-wasi --sysroot=/usr -w tests/golden.c -o "$dir/golden.wasm" -lm; }
item_wasm() {
    compiler=$(wasm_clang)
    [ -n "$compiler" ] || { skipped "WebAssembly (no clang that builds for WASI)"; return; }
    run=$(wasm_engine wasmtime) run=${run:-$(wasm_engine node)}
    for simd in -mno-simd128 -msimd128 "-msimd128 -mrelaxed-simd"; do
        try "WebAssembly $simd builds golden.c" wasm $compiler -O2 $simd || return
        if [ -n "$run" ]; then golden_on "wasm $simd" $run "$dir/golden.wasm"
        else skipped "golden hash on wasm (neither wasmtime nor node)"; fi
    done
}

# clang under -ffast-math: refused with the flag to add; with it, in what clang makes of the header before it optimises,
# no operation between floats may be changed.
as_written() { # as_written COMPILER TARGET
    $1 --target=$2 -ffast-math -fno-finite-math-only -O1 -Xclang -disable-llvm-passes -w -nostdlibinc \
        -isystem "$dir/stub" -S -emit-llvm tests/attn.c -o "$dir/$1.$2.ll" || return 1
    awk '/^define/ { match($0, /@[A-Za-z0-9_]+/); name = substr($0, RSTART, RLENGTH) }
         name !~ /attn_/ { next }
         / f(add|sub|mul|div) / { seen = 1 }
         / f(add|sub|mul|div) (fast|reassoc|nnan|ninf|nsz|arcp|contract|afn) / { print name ": " $0; bad = 1 }
         END { exit bad || !seen }' "$dir/$1.$2.ll"
}
refused_fast() { # refused_fast FLAG COMPILER...
    flag=$1; shift
    ! "$@" -ffast-math -nostdlibinc -isystem "$dir/stub" -DATTN_IMPLEMENTATION -x c -fsyntax-only attn.h \
        2>"$dir/refused.$1.log" && grep -q "error.*add $flag to" "$dir/refused.$1.log"
}
item_fast_math() { # item_fast_math COMPILER
    [ "$1" != newest ] || set -- "$(newest_clang)"
    have "$1" || { skipped "clang under -ffast-math (no $1)"; return; }
    stubs
    with="x86_64 aarch64" without="wasm32-unknown-unknown riscv64-linux-gnu arm-linux-gnu"     # the pragma
    case $1 in clang-1[345]) with=x86_64 without="$without aarch64-linux-gnu" ;; esac
    for target in $with; do
        try "$1 -ffast-math, $target: refused" refused_fast -fno-finite-math-only "$1" --target=$target-linux-gnu
        try "$1 -ffast-math, $target: arithmetic as written" as_written "$1" $target-linux-gnu
        try "$1 -ffast-math, $target: no warning" "$1" --target=$target-linux-gnu -nostdlibinc -isystem "$dir/stub" \
            $WARNINGS -ffast-math -fno-finite-math-only -DATTN_IMPLEMENTATION -x c -fsyntax-only attn.h
    done
    for target in $without; do
        try "$1 -ffast-math, ${target%%-*}: refused" refused_fast -fno-fast-math "$1" --target=$target
    done
}
item_m32() {
    echo '#include <stdlib.h>' | $CC -m32 -x c -fsyntax-only - 2>/dev/null ||
        { skipped "$CC -m32 (no 32-bit C library)"; return; }
    try "$CC -m32" $CC -m32 -Wall -Wextra -Werror -O2 -c tests/attn.c -o "$dir/m32.o"
}
item_tcc() {
    have tcc || { skipped "tcc (no tcc)"; return; }
    try "tcc" tcc -DATTN_IMPLEMENTATION -run tests/embed.c
}

# BUILDS=few: of the languages' versions the first and the last.
standards() { # standards COMPILER...: an item for each, in each version
    for compiler in "$@"; do
        case $compiler:${BUILDS:-} in
            *++:few) versions="c++11 c++20" ;;
            *++:*)   versions="c++11 c++14 c++17 c++20" ;;
            *:few)   versions="c99 c17" ;;
            *)       versions="c99 c11 c17 gnu99 gnu17" ;;
        esac
        for version in $versions; do echo "warnings:$compiler:$version"; done
    done
}
machines() { # the machines in emulation; i386 runs on this one, where it is x86-64
    echo machine:armhf:arm-linux-gnueabihf-gcc:qemu-arm
    echo machine:i386:i686-linux-gnu-gcc:qemu-i386:-msse2:-mfpmath=sse
    echo machine:s390x:s390x-linux-gnu-gcc:qemu-s390x:-march=z14          # big-endian, and portable vectors
    [ "${BUILDS:-}" != few ] || return              # these two are like others: little-endian, of 64 bits
    echo machine:riscv64:riscv64-linux-gnu-gcc:qemu-riscv64
    echo machine:ppc64le:powerpc64le-linux-gnu-gcc:qemu-ppc64le:-mcpu=power8
}
items "$1" suites_emulated suites_plain sequences mingw:x86_64 aarch64 $(machines) object optimised:gcc \
    optimised:clang $(standards gcc clang g++ clang++) sources:gcc sources:clang examples_cxx page options ways embedding \
    reading old_caller zeroed strict no_libc traces text readme forked conformance other_targets fast_math:newest \
    fast_math:$(oldest_clang) wasm mingw:i686 m32 tcc
