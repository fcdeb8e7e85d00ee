# inferd - `make help` lists what there is to do.
#
# Variants build beside each other: build/ (optimized), build-asan/, build-tsan/, build-arm64/,
# build-metal/, build-release/ (packages).
VERSION := 0.1.0
CC      ?= cc
CXX     ?= c++
# METAL: "native" (macOS), "standin" (a Linux build against tests/metal/standin, for tests), "" none.
METAL   ?= $(if $(filter Darwin,$(shell uname -s)),native)
# MPI: the name of its package for pkg-config; the module libinferd-mpi.so is built if there is one. "" none.
MPI     ?= $(firstword $(foreach p,ompi-c mpich,$(shell pkg-config --exists $p 2>/dev/null && echo $p)))
# CUDA: "1" (a module beside the program, where nvcc is), "standin" (linked in, for tests), "" none.
CUDA    ?=
BUILD   ?= $(if $(filter standin,$(METAL)),build-metal,$(if $(filter standin,$(CUDA)),build-cuda,build))
PREFIX  ?= /usr/local
PORT    ?= 8080
SAN     ?=
# What debuggers are told: -g1 (lines, no variables) takes four fifths of the time to compile.
DEBUG_INFO ?= -g
JOBS    ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)

UNAME := $(shell uname -s)
ARCH  := $(shell uname -m)

PACKAGES   := libmicrohttpd gnutls libgcrypt libcjson sqlite3 sentencepiece nettle libpcre2-8 libcurl libedit
PKG_CFLAGS  = $(shell pkg-config --cflags $(PACKAGES) 2>/dev/null)
PKG_LIBS    = $(shell pkg-config --libs $(PACKAGES) 2>/dev/null)

WARN     := -Wall -Wextra -Wshadow -Wpointer-arith -Wvla -Wstrict-prototypes -Wmissing-prototypes
COMMON   := -O2 $(DEBUG_INFO) -fno-omit-frame-pointer -ffp-contract=off -fno-math-errno -pthread -I.
CPPFLAGS := -DINFERD_VERSION='"$(VERSION)"' $(if $(filter Linux,$(UNAME)),-D_GNU_SOURCE)
CFLAGS    = -std=c11 $(COMMON) $(WARN) $(SAN_C) $(PKG_CFLAGS)
SAN_C     = $(SAN)
CXXFLAGS  = -std=c++17 $(COMMON) -Wall -Wextra $(SAN) $(PKG_CFLAGS)
LDLIBS    = $(PKG_LIBS) -lstdc++ -lm -pthread
# RELEASE=1 (make deb, oci, tarball): hardened, and with no path of this machine in what is built.
ifdef RELEASE
COMMON  += -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -fPIE -ffile-prefix-map=$(CURDIR)=.
LDFLAGS := -pie -Wl,-z,relro,-z,now
endif
# macOS: one architecture a build (ARCH=x86_64 for the other one; lipo joins programs), and the oldest system that it
# runs on, whatever the machine that builds it has. Apple's frameworks: tests/metal/metal.mk.
ifeq ($(UNAME),Darwin)
MACOS_MIN ?= 13.0
MAC_FLAGS := -arch $(ARCH) -mmacosx-version-min=$(MACOS_MIN)
COMMON    += $(MAC_FLAGS)
LDLIBS     = $(MAC_FLAGS) $(PKG_LIBS) -lc++ -lm -pthread
endif

# CROSS is set for another architecture, whose libraries are not here: the rooms that need none.
ifdef CROSS
LIB_C  := $(wildcard $(addprefix core/,base/*.c text/*.c formats/*.c formats/*/*.c backend/*.c backend/cpu/*.c \
          backend/cpu/*/*.c))
LIB_CC :=
PKG_CFLAGS =
LDLIBS = -lm -pthread
else
LIB_C  := $(filter-out core/backend/cuda/% core/backend/mpi/% daemon/main.c, \
          $(wildcard core/*/*.c core/*/*/*.c core/backend/cpu/*/*.c registry/*.c api/*.c api/*/*.c \
                     daemon/*.c daemon/*/*.c))
LIB_CC := $(wildcard core/tokenizer/*.cc)
endif
# Kernels for one instruction set are built with its flags, on its architecture only.
ifeq ($(filter x86_64 amd64,$(ARCH)),)
LIB_C  := $(filter-out %_avx2.c %_avxvnni.c %_avx512.c,$(LIB_C))
endif
ifeq ($(filter aarch64 arm64,$(ARCH)),)
LIB_C  := $(filter-out %_neon.c %_i8mm.c,$(LIB_C))
endif
WEB    := $(if $(CROSS),,$(sort $(wildcard api/web/*.* $(addprefix api/web/vendor/*.,js mjs txt))))

SUPPORT_O := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/support/*.c))

# Programs of tests are linked by lld where it is installed: that takes a third of the time.
TEST_LD := $(if $(CROSS)$(filter-out Linux,$(UNAME)),,$(if $(shell command -v ld.lld 2>/dev/null),-fuse-ld=lld))

.DEFAULT_GOAL := all
include tests/metal/metal.mk
include tests/cuda/cuda.mk

LIB_O  := $(LIB_C:%.c=$(BUILD)/%.o) $(LIB_CC:%.cc=$(BUILD)/%.o) $(if $(WEB),$(BUILD)/api/web_files.o) \
          $(METAL_O)
VECTOR_O := $(patsubst %,$(BUILD)/\%_%.o,avx2 avxvnni avx512 neon i8mm)
# A sanitizer's short form takes the kernels for one instruction set from the plain build.
ifneq ($(and $(QUICK),$(findstring -fsanitize=,$(SAN))),)
PLAIN_O := $(filter $(VECTOR_O:$(BUILD)/%=build/%),$(LIB_C:%.c=build/%.o))
LIB_O   := $(filter-out $(VECTOR_O),$(LIB_O)) $(PLAIN_O)
.PHONY: plain-kernels
plain-kernels:
	@$(MAKE) -s SAN= QUICK= BUILD=build $(PLAIN_O)
$(PLAIN_O): plain-kernels ;
endif

LIB    := $(or $(METAL_LIB),$(CUDA_LIB),$(BUILD)/libinferd.a)
UNIT_C := $(wildcard tests/unit/test_*.c)
# Programs that never start a thread: ThreadSanitizer has nothing to see there.
ONE_THREAD := api_parse api_responses api_tools base bpe chat_builtin chat_cut chat_parser chat_shapes \
              chat_syntax config fim gemm gguf grammar_dfa grammar_format grammar_gbnf \
              grammar_number grammar_regex grammar_schema hf_manifest hf_model json kv_collision kv_states kv_transfer kv_windows pace \
              qtype rope safetensors sampler quota sched sched_fair sched_random sched_states text tokenizer_rules vocab_write
# What QUICK=1 leaves out, in every build: they compute long.
SLOW_UNIT  := arch arch_forward attention backend chat_cut engine_grammar gemm golden linear metal_% moe model qtype \
              quantize rope_store sample tokenizer tokenizer_rules grammar_% bpe vocab_write
# What QUICK=1 also leaves to the whole `make asan`: programs that own little memory (schedulers, samplers, ranks,
# whose threads are the thread sanitizer's), and cuda_%, which that build skips.
ASAN_SLOW  := cuda_% parallel pace sched sched_random sched_states sampler embeddings worker_grammar delta_net
# What QUICK=1 leaves in of `make tsan`: threads that share state. The other programs start the same threads
# without asking more of them.
THREADED   := api conns engine kvevents kvstore kvstore_memory log_line model_ahead models parallel pipeline pool \
              responses_store stages tracer watch work_pool worker worker_deadline worker_grammar
# What runs shorter there.
ASAN_SHORT := api worker
IS_TSAN    := $(findstring -fsanitize=thread,$(SAN))
LEFT_OUT   := $(if $(IS_TSAN),$(ONE_THREAD)) $(if $(QUICK),$(SLOW_UNIT) $(if $(findstring =address,$(SAN)),$(ASAN_SLOW)) \
              $(if $(IS_TSAN),$(filter-out $(THREADED),$(UNIT_C:tests/unit/test_%.c=%))))
UNIT   := $(filter-out $(LEFT_OUT:%=$(BUILD)/test_%),$(UNIT_C:tests/unit/%.c=$(BUILD)/%))
# AFTER_ASAN=1: only what `make asan QUICK=1` leaves out or shortens (CI has run that before).
ifdef AFTER_ASAN
UNIT   := $(filter-out $(BUILD)/test_metal_% $(BUILD)/test_cuda_%,$(filter \
          $(patsubst %,$(BUILD)/test_%,$(SLOW_UNIT) $(ASAN_SLOW) $(ASAN_SHORT)),$(UNIT)))
endif
# The longest begin first, so that none is left alone at the end.
LONGEST := $(addprefix $(BUILD)/test_,arch worker_grammar worker responses_store faults moe attention chat_cut)
UNIT   := $(filter $(UNIT),$(LONGEST)) $(filter-out $(LONGEST),$(UNIT))
FUZZ_C := $(wildcard tests/fuzz/fuzz_*.c)
FUZZ   := $(FUZZ_C:tests/fuzz/%.c=$(BUILD)/%)

# Ranks as processes: MPI is loaded by a module beside the program, so that nothing else needs it.
MPI_MODULE := $(if $(MPI),$(if $(CROSS),,$(BUILD)/libinferd-mpi.so))
$(BUILD)/libinferd-mpi.so: core/backend/mpi/mpi.c core/backend/link_module.h core/backend/link.h core/base/err.h
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -fvisibility=hidden $(patsubst -I%,-isystem %,$(shell pkg-config --cflags $(MPI))) \
	    -shared -o $@ $< $(shell pkg-config --libs $(MPI)) -pthread

.PHONY: all mpi
all: $(if $(wildcard daemon/main.c),$(BUILD)/inferd,$(LIB)) $(CUDA_MODULE) $(MPI_MODULE) ## build build/inferd, with nvcc and MPI their modules
mpi: $(MPI_MODULE)

# A missing package is one sentence, not a page of compiler errors.
$(BUILD)/.probed: scripts/setup
	@scripts/setup probe
	@mkdir -p $(@D) && touch $@
ifndef CROSS
$(LIB_O) $(BUILD)/daemon/main.o: | $(BUILD)/.probed
endif

$(BUILD)/inferd: $(BUILD)/daemon/main.o $(LIB)
	$(CC) $(SAN) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# The program of the tarball: libraries that it has inside, then those that are loaded (scripts/packages/README.md).
INSIDE := microhttpd sqlite3 pcre2-8 edit bsd md tinfo
LOADED := gnutls gcrypt nettle curl cjson sentencepiece stdc++
$(BUILD)/inferd-tarball: $(BUILD)/daemon/main.o $(LIB)
	$(CC) $(LDFLAGS) -Wl,--exclude-libs,ALL -Wl,-rpath,'$$ORIGIN/../lib/inferd' -o $@ $^ \
	    -Wl,-Bstatic $(INSIDE:%=-l%) -Wl,-Bdynamic $(LOADED:%=-l%) -lm -pthread

ifeq ($(METAL_LIB)$(CUDA_LIB),)
$(LIB): $(LIB_O)
	@rm -f $@
	$(AR) rcs $@ $^
endif

$(BUILD)/%_avx2.o: CFLAGS += -mavx2 -mfma -mf16c
$(BUILD)/%_avxvnni.o: CFLAGS += -mavx2 -mfma -mf16c -mavxvnni
$(BUILD)/%_avx512.o: CFLAGS += -mavx512f -mavx512bw -mavx512vl -mavx512vnni -mfma -mf16c
$(BUILD)/%_neon.o: CFLAGS += -march=armv8.2-a+dotprod
$(BUILD)/%_i8mm.o: CFLAGS += -march=armv8.2-a+dotprod+i8mm
# ThreadSanitizer takes a vector load for a range of bytes: these files would be a hundred times slower. What
# rows and columns a thread has is decided by their callers, and the generic kernels stay instrumented.
$(VECTOR_O): SAN_C = $(if $(IS_TSAN),$(filter-out -fsanitize=%,$(SAN)),$(SAN))
# Where variables live takes a third of the time to compile these, and a debugger rarely shows it.
$(VECTOR_O): CFLAGS += -g1


$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/%.o: %.cc
	@mkdir -p $(@D)
	$(CXX) $(CPPFLAGS) $(CXXFLAGS) -MMD -MP -c -o $@ $<

# The page is embedded: no file is needed beside the binary.
$(BUILD)/api/web_files.c: $(WEB) scripts/embed
	@mkdir -p $(@D)
	scripts/embed $(WEB) > $@.tmp && mv $@.tmp $@

$(BUILD)/api/web_files.o: $(BUILD)/api/web_files.c
	$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

# What takes time is in the library: -O1 takes two thirds of the time to compile these. A change of the library
# only links them again.
$(BUILD)/tests/unit/%.o: CFLAGS += -O1
$(BUILD)/test_%: $(BUILD)/tests/unit/test_%.o $(SUPPORT_O) $(LIB)
	$(CC) $(SAN) $(TEST_LD) -o $@ $^ $(LDLIBS)
.SECONDARY: $(UNIT_C:%.c=$(BUILD)/%.o) $(SUPPORT_O)

.PHONY: run
run: ## set up, build, register the demo model and serve it on PORT (8080)
	@scripts/setup run
	@$(MAKE) -s -j$(JOBS) all
	@scripts/serve-demo $(BUILD)/inferd $(PORT)

# The tests of ops and architectures have smaller sets ("quick"): every kernel and mode, fewer sizes and types.
QUICK_SETS := $(basename $(notdir $(shell grep -l be_args $(UNIT_C))))
.PHONY: test test-long
test: ## set up, build, run all tests; those of ops, ARM and GPU stand-ins on their smaller sets
	@scripts/setup test
	@$(MAKE) -s -j$(JOBS) all
	@UNIT_QUICK="$(QUICK_SETS)" LOAD_CLIENTS=64 scripts/run-tests $(BUILD)
test-long: ## the same on whole sets, with all modes of the GPU stand-ins
	@scripts/setup test
	@$(MAKE) -s -j$(JOBS) all
	@LONG=1 UNIT_LIMIT_S=1800 scripts/run-tests $(BUILD)

# The two minutes before a commit, from a built tree.
QUICK_HTTP := http fields tools structured responses messages ollama
.PHONY: test-quick
test-quick: ## the tests that take under two minutes in all; it says what it leaves out
	@$(MAKE) -s -j$(JOBS) all
	@echo "test-quick leaves out the unit programs $(SLOW_UNIT), all HTTP files except"
	@echo "$(QUICK_HTTP), the command line, the page in a browser, load, agents, fuzz corpora,"
	@echo "ARM, Metal and CUDA: make test"
	@SUITES="unit http" FILES="$(QUICK_HTTP)" scripts/run-tests $(BUILD) QUICK=1

# The processors and what each is to pick are in scripts/test-arm64.
ARM64_TESTS := test_base test_qtype test_gemm test_backend test_moe test_linear test_attention test_rope_store test_top test_delta_net
.PHONY: test-arm64 arm64
test-arm64: ## cross-build the CPU backend for 64-bit ARM and run its tests under qemu, every set on each processor
	@scripts/test-arm64 full
arm64: $(ARM64_TESTS:%=$(BUILD)/%)

.PHONY: test-metal metal-tests metal-quick metal-list metal-mutants
test-metal: ## the Metal backend on its stand-in (Linux): whole sets, all modes; QUICK=1: the part of make test
	@scripts/setup test
	@scripts/test-metal $(if $(QUICK),quick,full)
metal-tests: $(BUILD)/inferd $(METAL_UNIT) $(METAL_TESTS)
metal-quick: $(BUILD)/inferd $(METAL_QUICK)
metal-list:
	@echo $(METAL_UNIT)
metal-mutants: ## plant faults in the Metal backend and count how many its tests catch
	@scripts/setup test
	@tests/metal/mutants.py

.PHONY: cuda-check test-cuda
cuda-check: ## compile the CUDA module, warnings as errors, where nvcc is; ALL=1: for each GPU; QUICK=1: to PTX
	@QUICK=$(QUICK) scripts/check-cuda $(if $(ALL),,CUDA_ARCHS=90)
test-cuda: ## the CUDA backend on its stand-in (Linux): every op, models, a server
	@scripts/setup test
	@scripts/npm-ci tests/http
	@scripts/test-cuda full

.PHONY: test-gpu
test-gpu: ## the CUDA backend on this machine's NVIDIA GPU; scripts/test-gpu makes a folder for another one
	@scripts/setup test
	@scripts/test-gpu

# The tests of ops take their smaller sets, as they do under an emulator: the code is the same. QUICK=1
# leaves out what computes long, the server with many clients, and models over several processes.
.PHONY: asan tsan
SANITIZED   = UNIT_QUICK="$(QUICK_SETS) $(SHORT)" UNIT_LIMIT_S=1800
SANITIZED_LIB  = $(if $(QUICK),sanitized-lib,all)
SANITIZED_HTTP = $(if $(QUICK),,load processes)
asan: SHORT = $(if $(QUICK),$(ASAN_SHORT:%=test_%))
asan: ## unit tests, fuzz corpora, load, ranks and stages under AddressSanitizer and UBSan; QUICK=1: a short form
	@scripts/setup test
	@$(MAKE) -s -j$(JOBS) BUILD=build-asan SAN="$(ASAN)" $(SANITIZED_LIB)
	@$(SANITIZED) SUITES="unit fuzz $(SANITIZED_HTTP)" ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 scripts/run-tests build-asan SAN="$(ASAN)" QUICK=$(QUICK)
tsan: SHORT = $(if $(QUICK),test_api test_worker test_worker_grammar test_responses_store)
tsan: ## tests with threads, load, ranks and stages under ThreadSanitizer; QUICK=1: a short form
	@scripts/setup test
	@$(MAKE) -s -j$(JOBS) BUILD=build-tsan SAN="$(TSAN)" $(SANITIZED_LIB)
	@$(SANITIZED) SUITES="unit $(SANITIZED_HTTP)" TSAN_OPTIONS=halt_on_error=1:suppressions=tests/tsan.supp scripts/run-tests build-tsan SAN="$(TSAN)" QUICK=$(QUICK)
# -O1 and line numbers alone take half the time to compile and find the same.
ASAN := -fsanitize=address,undefined -fno-sanitize-recover=undefined -O1 -g1
TSAN := -fsanitize=thread -O1 -g1

.PHONY: sanitized-lib
sanitized-lib: $(LIB)
.PHONY: objects
objects: $(LIB_O) $(BUILD)/daemon/main.o

.PHONY: check
check: ## format, floors, sizes, call cycles, static analysis
	@scripts/setup test
	@scripts/check

.PHONY: format
format: ## rewrite all sources in the project's format
	@scripts/format

.PHONY: bench
bench: all ## short benchmark of the demo model on the CPU backend
	@scripts/bench $(BUILD)/inferd

# install-files builds nothing: for `sudo make install-files` after a build by an ordinary user.
.PHONY: install install-files uninstall
INSTALL = PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" SYSTEM="$(UNAME)" DYNAMIC_USER="$(DYNAMIC_USER)" scripts/install
install: all install-files ## install daemon, configuration example, demo model and service files below PREFIX
install-files:
	@$(INSTALL) install $(BUILD)/inferd
uninstall: ## remove what install put below PREFIX
	@$(INSTALL) uninstall $(BUILD)/inferd

# Packages are made of a build of their own; scripts/packages/README.md. CUDA=1: with inferd-cuda, where nvcc is.
PACKAGES_OUT = build-release/packages
.PHONY: release release-files deb oci tarball formula packages test-packages
release:
	@scripts/setup packages
	@$(MAKE) -s -j$(JOBS) RELEASE=1 BUILD=build-release METAL= CUDA=$(CUDA) release-files
release-files: $(BUILD)/inferd $(BUILD)/inferd-tarball $(CUDA_MODULE) $(MPI_MODULE)
deb oci tarball: release ## a Debian package; an OCI image; archives of program and source with an SBOM: build-release/packages
	@scripts/packages/$@ build-release $(PACKAGES_OUT)
formula: tarball ## the Homebrew formula of the source archive; RELEASE_URL=https://... is where that will lie
	@scripts/packages/formula $(PACKAGES_OUT)
packages: deb oci formula ## all of them, with SHA256SUMS
	@scripts/packages/sums $(PACKAGES_OUT)
test-packages: packages ## install, run, upgrade and purge them in a chroot (root, a Debian mirror); build them twice
	@tests/packages/run $(PACKAGES_OUT)

.PHONY: unit
unit: $(UNIT) ## build and run the unit tests only
	@scripts/run-unit $(UNIT)

$(BUILD)/fuzz_%: tests/fuzz/fuzz_%.c tests/fuzz/replay.c $(LIB)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP $(TEST_LD) -o $@ $< tests/fuzz/replay.c $(LIB) $(LDLIBS)

.PHONY: fuzz-replay
fuzz-replay: $(FUZZ) ## run every file of the fuzz corpora once
	@scripts/run-unit $(FUZZ)

# Needs clang. What it finds is for tests/fuzz/corpus/NAME/ once the bug is mended.
FUZZ_NAMES ?= $(FUZZ_C:tests/fuzz/fuzz_%.c=%)
FUZZ_SECONDS ?= 60
FUZZ_SAN := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -fno-sanitize=vptr
.PHONY: fuzz
fuzz: ## fuzz every target, or FUZZ_NAMES="gguf api", for FUZZ_SECONDS (60) of CPU time
	@$(MAKE) -s -j$(JOBS) BUILD=build-fuzz CC=clang CXX=clang++ SAN="$(FUZZ_SAN)" fuzzers
	@FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/fuzz $(FUZZ_NAMES)

.PHONY: fuzzers
fuzzers: $(FUZZ_NAMES:%=$(BUILD)/libfuzzer_%)

$(BUILD)/libfuzzer_%: tests/fuzz/fuzz_%.c $(LIB)
	$(CC) $(CPPFLAGS) $(CFLAGS) -DLIBFUZZER -fsanitize=fuzzer -o $@ $< $(LIB) $(LDLIBS)

-include $(FUZZ:=.d)
-include $(LIB_O:.o=.d) $(UNIT_C:%.c=$(BUILD)/%.d) $(SUPPORT_O:.o=.d) $(BUILD)/daemon/main.d

.PHONY: clean
clean: ## remove everything that was built
	rm -rf build build-asan build-tsan build-arm64 build-fuzz build-metal build-cuda build-release

.PHONY: help
help: ## this list
	@grep -E '^[a-z -]+:.*## ' Makefile | sed -E 's/^([a-z -]+):.*## /  make \1|/' | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'
