# `make help` lists what is asked for most, `make help-all` all targets. Everything goes into build/. A C compiler and
# GNU make are enough for test, demo, examples, conformance, exhaustive and bench; the others say which compiler or tool
# they lack, and skip it. What concerns GPUs is in tests/cuda/cuda.mk.

CC      = cc
CFLAGS  = -O2 -Wall -Wextra
LDLIBS  = -lm -lpthread

SUITES   = $(shell sh tests/suites.sh)
EXAMPLES = $(basename $(notdir $(wildcard examples/*.c)))
VENV     = .venv-peers
VERSIONS = build/versions
COMMIT   = $(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)

MAKEFLAGS += -j$(or $(JOBS),2)
.DEFAULT_GOAL := test
.DELETE_ON_ERROR:
.PHONY: help test demo demo-mpi demo-mpi-cuda demo-train demo-gpt demo-generate examples conformance check \
        check-machines sanitize golden fuzz fuzz-libfuzzer wheels mutants exhaustive bench bench-peers \
        bench-scaling bench-strips bench-versions bench-sequences bench-wasm measure format clean test-bindings \
        test-embed install install-shared install-files uninstall web test-web help-all ALWAYS

LISTED = sed -n 's/^\([a-z-]*\): *[^\#]*\#\# */\1\t/p' $(MAKEFILE_LIST) | while IFS='	' read -r name text; do \
             printf '%-18s %s\n' "$$name" "$$text"; done
FEW    = test check bench demo examples install clean help
help:         ## List the targets that are asked for most; make help-all lists all.
	@$(LISTED) | grep -E '^($(subst $() ,|,$(FEW))) '

help-all:     ## List all targets.
	@$(LISTED)

test: build/tests ## Build the test program and run every suite on every instruction set of this machine (the default).
	@sh tests/run.sh

demo: build/align ## Align two sentences by attention: a heatmap in the terminal, build/align.svg and build/align.html.
	build/align --svg build/align.svg --html build/align.html

demo-train: build/train_align ## Train additive attention to read dates: loss and heatmaps before and after, a picture in build/.
	build/train_align --svg build/train_align.svg

demo-gpt: build/tiny_gpt-openmp ## Train a small transformer on README.md and attn.h (minutes): samples, build/tiny_gpt.svg.
	build/tiny_gpt-openmp --full --svg build/tiny_gpt.svg --export build/tiny_gpt.bin

demo-generate: build/generate-apart build/tiny_gpt.bin ## Write a text with the model of demo-gpt (trained first, minutes); compare with a plain loop.
	build/generate-apart --temperature 0.5 build/tiny_gpt.bin
	build/generate-apart --measure

demo-mpi: | build ## Spread the keys of one sequence over 1, 2 and 4 processes (MPICC=mpicc, MPIRUN=mpirun): equal bits, times.
	@MPICC="$(MPICC)" MPIRUN="$(MPIRUN)" sh tests/mpi.sh

demo-mpi-cuda: | build ## The same with keys and values on the GPUs here, which the processes share.
	@MPICC="$(MPICC)" MPIRUN="$(MPIRUN)" NVCC="$(NVCC)" sh tests/mpi.sh cuda

examples: $(EXAMPLES:%=build/%) ## Build and run every program in examples/; each checks its own results.
	@NAMES="$(EXAMPLES)" sh tests/examples.sh

test-bindings: | build ## attn.h from Python, Rust and Zig, each where it is installed (VENV: a Python with PyTorch); the package for pip.
	@CC="$(CC)" VENV=$(VENV) sh tests/bindings.sh

test-embed: | build ## attn.h in CMake, pkg-config and Meson projects, from the tree and after make install.
	@CC="$(CC)" sh tests/embed.sh

VERSION   = $(shell sed -n '1s/.* v\([0-9.]*\) .*/\1/p' attn.h)
SERIES    = $(basename $(VERSION))
PREFIX    = /usr/local
LIBDIR    = $(PREFIX)/lib
DOCDIR    = $(PREFIX)/share/doc/attn
LIBRARY   = build/libattn.a
SHARED    = build/libattn.so
PACKAGE   = $(wildcard examples/embed/package/*.cmake)
INSTALLED = $(PREFIX)/include/attn.h $(PREFIX)/include/attn_cuda.cuh $(DOCDIR)/LICENSE $(LIBDIR)/pkgconfig/attn.pc \
            $(PACKAGE:examples/embed/package/%=$(LIBDIR)/cmake/attn/%) \
            $(addprefix $(LIBDIR)/,libattn.a libattn.so libattn.so.$(SERIES) libattn.so.$(VERSION))
install: install-files $(LIBRARY) ## Copy headers, library, licence, attn.pc, CMake package to PREFIX=/usr/local (LIBDIR, DESTDIR).
	install -m 644 $(LIBRARY) $(DESTDIR)$(LIBDIR)

install-shared: install-files $(SHARED) ## The same with a shared library; both may be installed.
	install -m 755 $(SHARED) $(DESTDIR)$(LIBDIR)/libattn.so.$(VERSION)
	ln -sf libattn.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libattn.so.$(SERIES)
	ln -sf libattn.so.$(SERIES) $(DESTDIR)$(LIBDIR)/libattn.so

install-files:
	install -d $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(LIBDIR)/cmake/attn $(DESTDIR)$(DOCDIR)
	install -m 644 attn.h attn_cuda.cuh $(DESTDIR)$(PREFIX)/include
	install -m 644 LICENSE $(DESTDIR)$(DOCDIR)
	for file in $(notdir $(PACKAGE)); do sed 's|@PREFIX@|$(PREFIX)|' examples/embed/package/$$file \
	    >$(DESTDIR)$(LIBDIR)/cmake/attn/$$file || exit; done
	sed 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR:$(PREFIX)/%=$${prefix}/%)|; s|@VERSION@|$(VERSION)|' \
	    examples/embed/package/attn.pc.in >$(DESTDIR)$(LIBDIR)/pkgconfig/attn.pc

uninstall: ## Remove what install and install-shared have put there (the same PREFIX, LIBDIR, DESTDIR).
	rm -f $(addprefix $(DESTDIR),$(INSTALLED))
	-rmdir $(DESTDIR)$(DOCDIR) $(DESTDIR)$(LIBDIR)/cmake/attn 2>/dev/null

conformance: build/conformance ## Run CASES=FILE, numbers stated by other projects, in the conformance file format.
	@test -n "$(CASES)" || { echo "usage: make conformance CASES=FILE"; exit 2; }
	build/conformance $(CASES)

web: | build ## Make build/attn.html: the textbook's chapter to play with, computed by attn.h as WebAssembly in the page.
	@sh examples/web/build.sh

test-web: | build ## Use the web pages in a Chromium without a window, as a reader would. Skips where there is none.
	@CC="$(CC)" sh tests/web.sh

check-machines: | build ## Every machine, compiler and flag at hand: golden hashes, all suites on AArch64 (takes long).
	@sh tests/machines.sh

check: | build ## Warnings, C99 to C++20, other compilers and systems, macros, symbols, sizes, the ways to include.
	@sh tests/check.sh

sanitize: | build ## Run the suites under the address, undefined-behaviour, thread and memory sanitizers.
	@sh tests/sanitize.sh

golden: | build ## Compute one hash over a fixed set of calls in every way there is; compare with tests/golden.txt.
	@sh tests/golden.sh

SECONDS = 60
fuzz: | build ## Call every function at random for SECONDS=60, most calls legal, many with one thing wrong (SEED=N).
	@CC="$(CC)" sh tests/fuzz.sh $(SECONDS) $(SEED)

fuzz-libfuzzer: | build ## The same as a libFuzzer target, as OSS-Fuzz builds it, for SECONDS=60 (clang).
	@CC="$(or $(FUZZ_CC),clang)" OUT=build/fuzz sh tests/oss-fuzz/build.sh
	build/fuzz/fuzz_attn -max_total_time=$(or $(SECONDS),60) -max_len=4096 -print_final_stats=1

wheels: | build ## Wheels for manylinux on x86-64 and AArch64 into build/wheels, each tried here or in qemu (VENV: a Python).
	@VENV="$(VENV)" sh tests/wheels.sh

measure: | build ## Compare headers and walks through them with those of REF=HEAD (TO: of another commit): lines, tokens, time (PAIRS=0: none).
	@CC="$(CC)" PAIRS="$(or $(PAIRS),5)" WORDS="$(or $(WORDS),0)" sh tests/measure.sh "$(REF)" "$(TO)"

mutants: build/mutate build/tests ## Break attn.h in hundreds of places, one at a time (SINCE=<commit>: in lines added since; ISA=neon: NEON's operations); suites must notice.
	@ISA="$(ISA)" SINCE="$(SINCE)" sh tests/mutants.sh

exhaustive: build/exhaustive ## Check exp, log and tanh over every float, and the tables of rotary positions (minutes).
	build/exhaustive

bench: build/bench build/bench-native ## Measure this machine and attn.h on it, per instruction set (ARGS=--json).
	build/bench $(ARGS)
	@build/bench-native --loops $(ARGS)

bench-sequences: build/sequences build/bench ## Measure packed entries, masks, pages, rotary positions and appending.
	build/sequences
	build/bench --sequences

bench-peers: | build ## Compare with PyTorch, onnxruntime, ggml and OpenBLAS, installed into VENV (ARGS="--rows TEXT").
	@VENV=$(VENV) COMMIT=$(COMMIT) sh bench/peers.sh $(ARGS)

bench-scaling: build/workers build/scaling ## How far calls spread over up to 128 workers; time and memory by size, drawn (ARGS=TEXT: some).
	build/workers $(ARGS)
	@mkdir -p bench/plots
	build/scaling bench/plots $(ARGS)

bench-versions: build/versions/versions ## Is attn.h as fast as that of REF (a commit, a tag, a file)? Ratios, intervals (ARGS="--rows TEXT --isa NAME").
	build/versions/versions --old '$(REF)' --bar $(or $(BAR),0.98) $(ARGS)

bench-wasm: $(VERSIONS)/old/attn.h ## The same as WebAssembly, each version with the kernels it chooses there, in node or wasmtime.
	@sh bench/wasm.sh $< $(or $(ARGS),--rows x64x64)

bench-strips: | build ## Count the instructions for a multiply-add in the innermost loops, for each compiler at hand.
	@sh bench/strips.sh

format: ## Lay out tests/, examples/ and bench/ with clang-format 14; attn.h is laid out by hand.
	clang-format -i $(wildcard $(addsuffix *.[ch]*,tests/ tests/cuda/ tests/cuda/stand_in/ tests/web/ examples/ \
	    examples/cuda/ examples/embed/ examples/mpi/ examples/web/ bench/))

clean: ## Remove build/.
	rm -rf build

build build/obj build/cuda build/cuda-full:
	mkdir -p $@

$(LIBRARY): attn.h | build
	$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -x c -DATTN_IMPLEMENTATION -c $< -o $(@:.a=.o)
	rm -f $@
	$(AR) rc $@ $(@:.a=.o)
# Versions with one minor number can stand for each other while the major one is 0: that is in its SONAME.
$(SHARED): attn.h | build
	$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -fvisibility=hidden '-DATTN_DEF=extern __attribute__((visibility("default")))' \
	    -x c -DATTN_IMPLEMENTATION -c $< -o $(@:.so=-shared.o)
	$(CC) $(CFLAGS) $(LDFLAGS) -shared -Wl,-soname,libattn.so.$(SERIES) $(@:.so=-shared.o) -o $@

# ---- the test program: the implementation is compiled once, in tests/attn.c
build/obj/align.o build/obj/train_align.o: $(wildcard examples/*.[ch])
build/obj/%.o: tests/%.c attn.h $(wildcard tests/*.h examples/web/*.h) | build/obj
	$(CC) $(CFLAGS) -c $< -o $@

# What suites do themselves takes less time than compiling them at -O2; these are what they run most.
HARNESS = ref cases grads
$(patsubst %,build/obj/%.o,$(filter-out main $(HARNESS),$(SUITES))): CFLAGS += -O1

# The scalar kernels take the machine's own fused multiply-add here: made of doubles, it was half of the suites' time.
# `make check` runs them without it (item suites_plain).
build/obj/attn.o: CFLAGS += $(shell grep -qw fma /proc/cpuinfo 2>/dev/null && \
    $(CC) -mfma -E -x c /dev/null >/dev/null 2>&1 && echo -mfma)
build/tests: build/obj/attn.o $(SUITES:%=build/obj/%.o)
	$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LDLIBS) -o $@

build/conformance build/exhaustive: build/%: build/obj/attn.o build/obj/%.o
	$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LDLIBS) -o $@

build/mutate: tests/mutate.c | build
	$(CC) $(CFLAGS) $(LDFLAGS) $< -o $@

include tests/cuda/cuda.mk

# ---- the benchmarks, as users build; once more with a fused multiply-add for the scalar kernels
build/bench-native: CFLAGS += -march=native
build/bench build/bench-native: bench/bench.c bench/loops.c $(wildcard bench/*.h) attn.h | build
	$(CC) $(CFLAGS) -DBENCH_FLAGS='"$(CC) $(CFLAGS)"' -DBENCH_COMMIT='"$(COMMIT)"' $(LDFLAGS) $(filter %.c,$^) \
	    $(LDLIBS) -o $@

# ---- two versions of the header, each in an object of its own; functions begin where the lines of the cache do, so
# that it does not count where an object happens to lie
VERSIONS_FLAGS = $(CFLAGS) -falign-functions=64
$(VERSIONS)/old/attn.h: ALWAYS
	@test -n "$(REF)" || { echo "usage: make bench-versions REF=<commit, tag or file> [BAR=0.98] [ARGS=...]"; exit 2; }
	@mkdir -p $(@D)
	@if [ -f "$(REF)" ]; then cat "$(REF)"; else git show "$(REF):attn.h"; fi >$@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
$(VERSIONS)/old.o: $(VERSIONS)/old/attn.h
$(VERSIONS)/old.o: VERSIONS_HEADER = ../$(VERSIONS)/old/attn.h
$(VERSIONS)/new.o $(VERSIONS)/again.o: attn.h
$(VERSIONS)/new.o $(VERSIONS)/again.o: VERSIONS_HEADER = ../attn.h
$(VERSIONS)/%.o: bench/version_shim.c $(wildcard bench/*.h)
	@mkdir -p $(@D)
	$(CC) $(VERSIONS_FLAGS) -DVERSION_NAME=version_$* '-DVERSION_HEADER="$(VERSIONS_HEADER)"' -c $< -o $@
$(VERSIONS)/versions: bench/versions.c $(addprefix $(VERSIONS)/,old.o new.o again.o) $(wildcard bench/*.h) attn.h
	$(CC) $(CFLAGS) -DBENCH_FLAGS='"$(CC) $(VERSIONS_FLAGS)"' $(LDFLAGS) $(filter %.c %.o,$^) $(LDLIBS) -o $@

build/scaling build/sequences build/workers: build/%: bench/%.c $(wildcard bench/*.h) attn.h | build
	$(CC) $(CFLAGS) -DBENCH_COMMIT='"$(COMMIT)"' $(LDFLAGS) $< $(LDLIBS) -o $@

# on all cores where the compiler has OpenMP, else on one
build/tiny_gpt-openmp: examples/tiny_gpt.c attn.h | build
	$(CC) -O2 -fopenmp $< -lm -o $@ || $(CC) -O2 $< -lm -o $@

# trained once, by whichever of the two demos comes first; the program comes before it, but a newer one is no reason
build/tiny_gpt.bin: | build/tiny_gpt-openmp
	build/tiny_gpt-openmp --full --export $@

# the plain loop with the flags that such loops are made for
build/generate-apart: examples/generate.c build/generate_loop.o $(wildcard examples/generate*.h) attn.h
	$(CC) -O2 -DLOOP_APART $< build/generate_loop.o -lm -o $@
build/generate_loop.o: examples/generate_loop.h | build
	$(CC) -O3 -march=native -ffast-math -x c -c $< -o $@

# ---- examples are built as their first line says, with nothing but cc -O2; in CI, to spare compiling the implementation
# for each, with COMPILED, an object that has it: all but these, of which one has memory of its own
build/quickstart build/agents: override COMPILED =
build/%: examples/%.c $(wildcard examples/*.h examples/web/*.h) attn.h | build
	$(CC) -O2 $(COMPILED:%=-DATTN__IMPLEMENTED) $< $(COMPILED) -lm -o $@
