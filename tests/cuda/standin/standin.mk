# standin.mk - CUDA=standin: the CUDA backend linked in, its kernels as C++, against the stand-in in
# this folder. No toolkit is needed. With SAN: give BUILD too (make CUDA=standin SAN=... BUILD=build-cuda-asan).
CUDA_SIM := tests/cuda/standin
CUDASIM_FLAGS := -DINFERD_CUDA_STANDIN -isystem $(CUDA_SIM)/include
CPPFLAGS += -DINFERD_CUDA
CUDA_C   := $(filter-out core/backend/cuda/lt.c,$(wildcard core/backend/cuda/*.c)) $(CUDA_SIM)/lt.c
CUDA_CU  := $(wildcard shaders/cuda/*.cu)
CUDASIM_C := $(wildcard $(CUDA_SIM)/sim_*.c)
CUDASIM_O := $(CUDASIM_C:%.c=$(BUILD)/%.o) $(BUILD)/$(CUDA_SIM)/msl_switch.o
CUDA_O   := $(CUDA_C:%.c=$(BUILD)/%.o) $(CUDA_CU:%.cu=$(BUILD)/%.cu.o)
.PHONY: cuda-objects
cuda-objects: $(CUDA_C:%.c=$(BUILD)/%.o) # the host code alone
# Only core/backend/backend.c depends on the presence of a CUDA backend: everything else comes from the
# plain build.
LIB_C    := core/backend/backend.c
LIB_CC   :=
WEB      :=
CUDA_BASE ?= $(if $(SAN),build-asan,build)
.PHONY: cuda-base
cuda-base:
	@$(MAKE) -s METAL= CUDA= BUILD=$(CUDA_BASE) $(CUDA_BASE)/libinferd.a
$(CUDA_BASE)/libinferd.a: cuda-base ;
CUDA_LIB := $(BUILD)/core/backend/backend.o $(BUILD)/libcuda.a $(CUDA_BASE)/libinferd.a
$(BUILD)/libcuda.a: $(CUDA_O) $(CUDASIM_O)
	@rm -f $@
	$(AR) rcs $@ $^

# -O1 takes half of the time to compile kernels, and they run as fast. They call fmaf often; tests run on the
# machine that builds them.
CUDASIM_ISA := $(if $(shell grep -m1 -ow fma /proc/cpuinfo 2>/dev/null),-mavx2 -mfma -mf16c)
# CUDA_CHECK=1: every access of a kernel is checked (sim_check.c); give BUILD too.
ifdef CUDA_CHECK
CUDASIM_FLAGS += -DCUDASIM_CHECK
CUDASIM_ISA   += -DCUDASIM_CHECK
CUDASIM_TRACE := -fsanitize=thread
endif
$(CUDA_C:%.c=$(BUILD)/%.o): CPPFLAGS += $(CUDASIM_FLAGS)
$(BUILD)/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(CXX) -x c++ $(CPPFLAGS) $(CUDASIM_FLAGS) -std=c++17 $(COMMON) $(CUDASIM_ISA) -Wall -Wno-unknown-pragmas -Wno-sign-compare \
	    -Wno-int-in-bool-context -O1 -g1 $(SAN) $(CUDASIM_TRACE) -MMD -MP -c -o $@ $<
$(CUDASIM_C:%.c=$(BUILD)/%.o): $(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) -D_GNU_SOURCE -std=gnu11 -O3 $(DEBUG_INFO) -fno-omit-frame-pointer -ffp-contract=off $(CUDASIM_ISA) -Wall -Wextra -Wshadow \
	    -pthread -I. $(SAN) -MMD -MP -c -o $@ $<
# Fibers are switched by the Metal stand-in's code.
$(BUILD)/$(CUDA_SIM)/msl_switch.o: tests/metal/standin/runtime/msl_switch.S
	@mkdir -p $(@D)
	$(CC) -c -o $@ $<

# Uses the backend's internals.
$(BUILD)/test_cuda_format $(BUILD)/test_cuda_linear $(BUILD)/test_cuda_branch $(BUILD)/test_cuda_gated: CPPFLAGS += $(CUDASIM_FLAGS) -DINFERD_CUDA_INSIDE

# The stand-in's own test.
$(BUILD)/test_cuda_standin: $(BUILD)/tests/cuda/test_standin.cu.o $(CUDASIM_O)
	$(CXX) $(SAN) -o $@ $^ -lm -ldl -pthread
$(BUILD)/tests/cuda/bench_gemm.o $(BUILD)/tests/cuda/bench_linear.o $(BUILD)/tests/cuda/bench_attention.o $(BUILD)/tests/cuda/bench_delta.o $(BUILD)/tests/cuda/bench_side.o: CPPFLAGS += $(CUDASIM_FLAGS)
$(BUILD)/bench_gemm $(BUILD)/bench_linear $(BUILD)/bench_attention $(BUILD)/bench_delta $(BUILD)/bench_side: $(BUILD)/%: $(BUILD)/tests/cuda/%.o $(CUDA_LIB)
	$(CXX) $(SAN) -o $@ $^ -lm -ldl -pthread
.PHONY: cuda-standin-test
cuda-standin-test: $(BUILD)/test_cuda_standin
	$<
	CUDASIM_SHUFFLE=1 CUDASIM_LATE=1 $<
	@$(MAKE) -s CUDA_CHECK=1 BUILD=$(BUILD)-check $(BUILD)-check/test_cuda_standin
	$(BUILD)-check/test_cuda_standin
-include $(CUDA_O:.o=.d) $(CUDASIM_O:.o=.d) $(BUILD)/tests/cuda/test_standin.cu.d \
  $(patsubst %.c,$(BUILD)/%.d,$(wildcard tests/cuda/bench_*.c))
