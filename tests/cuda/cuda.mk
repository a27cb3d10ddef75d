# cuda.mk - what the Makefile, which includes it, makes of the GPU kernels: in the emulator, with nvcc, on a device.
.PHONY: test-cuda-emulated test-cuda-mutants cuda check-cuda cuda-lib cuda-device-build cuda-device-programs \
        test-cuda-run cuda-device-first test-cuda bench-cuda

CUDA          = build/cuda$(if $(FULL),-full)
CUDA_PROGRAMS = emulated suites primitives fast trimmed uneven
CUDA_LIBRARIES = libattn_emulated.so libbench_emulated.so
test-cuda-emulated: $(CUDA_PROGRAMS:%=$(CUDA)/%) $(CUDA_LIBRARIES:%=$(CUDA)/%) ## Run the GPU kernels in an emulator (FULL=1: minutes).
	@FULL="$(FULL)" CXX="$(CXX)" VENV="$(VENV)" sh tests/cuda/emulated.sh

test-cuda-mutants: build/cuda/emulated ## Plant faults into the GPU kernels, one at a time; the emulated tests must notice each.
	@CXX="$(CXX)" sh tests/cuda/mutants.sh

cuda: | build ## Compile attn_cuda.cuh with nvcc for every architecture (ARCHS="80 90a": some), without a warning.
	@sh tests/cuda/build.sh

check-cuda: cuda ## Look at the kernels that make cuda compiled: no spilled register, no serialised wgmma.
	@sh tests/cuda/check.sh

cuda-lib: | build ## Build build/cuda/libattn.so, attn.h with its kernels, for DEVICE_ARCH=90a or the device here.
	@DEVICE_ARCH="$(DEVICE_ARCH)" CC="$(CC)" sh tests/cuda/library.sh

cuda-device-build: | build ## Build what runs on a device, for DEVICE_ARCH=90a or the device here: all cores, minutes.
	@DEVICE_ARCH="$(DEVICE_ARCH)" CC="$(CC)" sh tests/cuda/device.sh build

test-cuda-run: | build ## Run what cuda-device-build built, on the device here, within 8 minutes; each step has a limit.
	@sh tests/cuda/device.sh run

cuda-device-first: | build ## The same where a device is at hand for ten minutes: what tells most comes first.
	@sh tests/cuda/device.sh first

test-cuda: | build ## Build and test the GPU kernels on a device: primitives, suites, examples. Skips where there is none.
	@DEVICE_ARCH="$(DEVICE_ARCH)" CC="$(CC)" sh tests/cuda/device.sh

bench-cuda: | build ## Measure the GPU kernels on a device, beside PyTorch's where VENV has it (ARGS=--markdown, --help).
	@VENV=$(VENV) COMMIT=$(COMMIT) CC="$(CC)" sh bench/cuda.sh $(ARGS)

# ---- the kernels of attn_cuda.cuh in the emulator: its tests; suites of the CPU all of whose arrays lie on a device, for
# stage 1, which keeps what they ask of bits. One object file has the kernels of all, for they are what takes long to
# compile; FULL=1 has those of every head size.
CUDA_SUITES  = forward special properties mha bmm pieces softmax entries
CUDA_SOURCES = attn_cuda.cuh attn.h $(wildcard tests/cuda/*.h tests/*.h) tests/cuda/device.cc
CUDA_SOME    = 64,128,256
CUDA_HOPPER  = 64,96,128,192,256
CUDA_HEADS   = -DATTN_CUDA_HEAD_DIMS=$(CUDA_SOME) -DATTN_CUDA_HOPPER_DIMS=$(CUDA_HOPPER)
# The machine's own fused multiply-add where it has one, in place of a call for each; no other sum is made one.
CUDA_FMA     = $(shell grep -qw fma /proc/cpuinfo 2>/dev/null && echo -mfma) -ffp-contract=off
CXXFLAGS     = $(if $(FULL),-O2,-O1) $(CUDA_FMA) -Wall -Wextra -Wno-psabi

$(CUDA)/%.o: tests/cuda/%.c $(CUDA_SOURCES) | $(CUDA)
	$(CC) $(CFLAGS) -fPIC -I. -c $< -o $@
$(CUDA)/%.o: tests/cuda/%.cc $(CUDA_SOURCES) | $(CUDA)
	$(CXX) -std=c++17 $(CXXFLAGS) -fPIC $(if $(FULL),,$(CUDA_HEADS)) -I. -c $< -o $@
$(CUDA)/primitives.o: CUDA_HEADS = -DATTN_CUDA_HEAD_DIMS=64
$(CUDA)/main-%.o: tests/main.c tests/test.h attn.h | $(CUDA)
	$(CC) $(CFLAGS) -D'SUITES=$(if $(filter suites,$*),${CUDA_SUITES:%=X(%)},X($*))' -c $< -o $@
$(CUDA)/suites: $(CUDA_SUITES:%=build/obj/%.o)
$(CUDA)/emulated $(CUDA)/suites: $(CUDA)/%: $(CUDA)/main-%.o $(CUDA)/attn.o $(HARNESS:%=build/obj/%.o)
$(CUDA)/emulated: $(CUDA)/emulated.o
$(CUDA)/emulated $(CUDA)/suites $(CUDA)/fast: $(CUDA)/fast.o
$(CUDA)/primitives: $(CUDA)/primitives.o
$(CUDA)/trimmed.o: CUDA_HEADS =
$(CUDA)/trimmed.o: CXXFLAGS += -DATTN_CUDA_BF16=0 -DATTN_CUDA_GRADIENTS=0 -DATTN_CUDA_HEAD_DIMS=64
$(CUDA)/trimmed: $(CUDA)/trimmed.o $(CUDA)/attn.o
# Kernels of columns that are no multiple of 32, or above 128 none of 64; compiled for as long as it takes to run a few
# calls.
$(CUDA)/uneven.o: tests/cuda/fast.cc $(CUDA_SOURCES) | $(CUDA)
	$(CXX) -std=c++17 -O0 $(CUDA_FMA) -Wall -Wextra -DATTN_CUDA_HEAD_DIMS=32,48,64,80,160 -DATTN_CUDA_F16=0 -DATTN_CUDA_F32=0 -I. -c $< -o $@
$(CUDA)/uneven: $(CUDA)/uneven.o
$(CUDA)/libattn_emulated.so: $(CUDA)/attn.o $(CUDA)/fast.o      # for Python: the device is the emulator
	$(CXX) $(LDFLAGS) -shared $^ $(LDLIBS) -o $@
$(CUDA)/bench.o: bench/cuda.cu attn.h attn_cuda.cuh | $(CUDA)
	$(CXX) -std=c++17 $(CXXFLAGS) -x c++ -fPIC -DCUDA_BENCH_LIBRARY -c $< -o $@
$(CUDA)/libbench_emulated.so: $(CUDA)/bench.o $(CUDA)/attn.o $(CUDA)/fast.o     # for a trial of bench/cuda_peers.py
	$(CXX) $(LDFLAGS) -shared $^ $(LDLIBS) -o $@
# by emulated.sh, which knows the flags; of one type, for the addresses of the other are the same
$(CUDA)/sanitized: tests/cuda/fast.cc $(CUDA_SOURCES) | $(CUDA)
	$(CXX) -std=c++17 -Og $(CUDA_FMA) $(SANITIZERS) $(CUDA_HEADS) \
		$(if $(FULL),,-DATTN_CUDA_F16=0) -Wno-psabi -I. $< -o $@
$(CUDA_PROGRAMS:%=$(CUDA)/%):
	$(CXX) $(LDFLAGS) $^ $(LDLIBS) -o $@

# ---- what runs on a device. Two objects have the kernels: that of the tests, which watches the runtime, and that of the
# examples and the benchmark. Objects have a folder of their own: DEVICE is what is carried to the device.
DEVICE          = build/cuda/device-$(DEVICE_ARCH)
DEVICE_OBJ      = build/cuda/objects-$(DEVICE_ARCH)
DEVICE_KERNELS  = $(DEVICE_OBJ)/kernels.o $(DEVICE_OBJ)/attention.o
DEVICE_CC       = $(NVCC) $(NVCC_DEVICE_FLAGS) -Xcompiler -fPIC
DEVICE_EXAMPLES = quickstart compare generate train
DEVICE_PROGRAMS = which arrives hw_conformance fast emulated suites $(DEVICE_EXAMPLES) bench cache calls libkernels.so \
                  libattn_cuda.so repeat $(if $(filter 90a,$(DEVICE_ARCH)),repeat-plain fast-plain)
cuda-device-programs: $(DEVICE_PROGRAMS:%=$(DEVICE)/%)
$(DEVICE_PROGRAMS:%=$(DEVICE)/%): | $(DEVICE)
$(DEVICE) $(DEVICE_OBJ):
	mkdir -p $@
$(DEVICE)/which $(DEVICE)/arrives $(DEVICE)/hw_conformance: $(DEVICE)/%: tests/cuda/%.cu tests/cuda/primitives.cc $(CUDA_SOURCES)
	$(DEVICE_CC) $< -o $@
$(DEVICE_OBJ)/fast.o: tests/cuda/fast.cu tests/cuda/fast.cc tests/cuda/device.cu $(CUDA_SOURCES) | $(DEVICE_OBJ)
	$(DEVICE_CC) -c $< -o $@
$(DEVICE_OBJ)/kernels.o: examples/cuda/kernels.cu attn_cuda.cuh attn.h | $(DEVICE_OBJ)
	$(DEVICE_CC) -c $< -o $@
$(DEVICE_OBJ)/attention.o: examples/cuda/attention.c attn.h | $(DEVICE_OBJ)
	$(CC) -O2 -fPIC -c $< -o $@
$(DEVICE_OBJ)/main-%.o: tests/main.c tests/test.h attn.h | $(DEVICE_OBJ)
	$(CC) -O2 -DTEST_MAPPED -D'SUITES=$(if $(filter suites,$*),${CUDA_SUITES:%=X(%)},X($*))' -c $< -o $@
$(DEVICE_OBJ)/attn.o $(DEVICE_OBJ)/emulated.o: $(DEVICE_OBJ)/%.o: tests/cuda/%.c $(CUDA_SOURCES) | $(DEVICE_OBJ)
	$(CC) $(CFLAGS) -I. -c $< -o $@
$(DEVICE)/fast: $(DEVICE_OBJ)/fast.o
$(DEVICE)/emulated: $(DEVICE_OBJ)/emulated.o
$(DEVICE)/suites: $(CUDA_SUITES:%=build/obj/%.o)
$(DEVICE)/emulated $(DEVICE)/suites: $(DEVICE)/%: $(DEVICE_OBJ)/main-%.o $(DEVICE_OBJ)/fast.o $(DEVICE_OBJ)/attn.o \
                                                    $(HARNESS:%=build/obj/%.o)
$(DEVICE)/fast $(DEVICE)/emulated $(DEVICE)/suites:
	$(NVCC) $^ -o $@
# The kernels once for all programs, for what is carried: a library beside them.
DEVICE_LINK = -L$(DEVICE) -lkernels -Xlinker -rpath -Xlinker '$$ORIGIN'
$(DEVICE)/libkernels.so: $(DEVICE_KERNELS)
	$(DEVICE_CC) -shared $^ -o $@
$(DEVICE_EXAMPLES:%=$(DEVICE)/%): $(DEVICE)/%: $(DEVICE)/libkernels.so $(wildcard examples/cuda/*)
	$(DEVICE_CC) $(wildcard examples/cuda/$*.c examples/cuda/$*.cu) $(DEVICE_LINK) -o $@
$(DEVICE)/bench: bench/cuda.cu $(DEVICE)/libkernels.so
	$(DEVICE_CC) $< $(DEVICE_LINK) -o $@
$(DEVICE)/cache $(DEVICE)/calls: $(DEVICE)/%: bench/cuda_%.cu $(DEVICE)/libkernels.so
	$(DEVICE_CC) $< $(DEVICE_LINK) -o $@
$(DEVICE)/repeat: tests/cuda/repeat.cu bench/cuda.cu $(DEVICE)/libkernels.so
	$(DEVICE_CC) $< $(DEVICE_LINK) -o $@
# What a build for sm_90 without the "a" has, of few head sizes: all of stage 2, of which a build for sm_90a leaves out
# the kernels of many queries.
PLAIN_CC = $(subst sm_90a,sm_90,$(subst compute_90a,compute_90,$(DEVICE_CC)))
$(DEVICE_OBJ)/kernels-plain.o: examples/cuda/kernels.cu attn_cuda.cuh attn.h | $(DEVICE_OBJ)
	$(PLAIN_CC) -DATTN_CUDA_HEAD_DIMS=128 -c $< -o $@
$(DEVICE)/repeat-plain: tests/cuda/repeat.cu bench/cuda.cu $(DEVICE_OBJ)/kernels-plain.o $(DEVICE_OBJ)/attention.o
	$(PLAIN_CC) $< $(filter %.o,$^) -o $@
$(DEVICE_OBJ)/fast-plain.o: tests/cuda/fast_plain.cu tests/cuda/fast.cu tests/cuda/fast.cc tests/cuda/device.cu $(CUDA_SOURCES) | $(DEVICE_OBJ)
	$(PLAIN_CC) -c $< -o $@
$(DEVICE)/fast-plain: $(DEVICE_OBJ)/fast-plain.o
	$(NVCC) $^ -o $@
$(DEVICE)/libattn_cuda.so: bench/cuda.cu $(DEVICE)/libkernels.so
	$(DEVICE_CC) -shared -DCUDA_BENCH_LIBRARY $< $(DEVICE_LINK) -o $@
