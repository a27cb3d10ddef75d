#!/bin/sh
# build.sh - tests/fuzz.c as a libFuzzer target, $OUT/fuzz_attn: every public function with descriptors that the fuzzer's
# bytes draw, held against the reference. OSS-Fuzz sets the variables; `make fuzz-libfuzzer` builds and runs the same.
set -eu
: "${CC:=clang}" "${OUT:=build/fuzz}" "${LIB_FUZZING_ENGINE:=-fsanitize=fuzzer}"
: "${CFLAGS:=-O1 -g1 -fsanitize=address,fuzzer-no-link}"
mkdir -p "$OUT"
objects=
for file in attn ref cases grads fuzz; do # tests/fuzz.c may wrap around: it also looks at what is far too large
    $CC $CFLAGS -fwrapv -DFUZZ_LIBFUZZER -c tests/$file.c -o "$OUT/$file-libfuzzer.o"
    objects="$objects $OUT/$file-libfuzzer.o"
done
${CXX:-$CC} $CFLAGS $objects $LIB_FUZZING_ENGINE -lm -o "$OUT/fuzz_attn"
