# cuda.mk - how the CUDA backend is built. CUDA=1 (the default if nvcc is installed): the module
# libinferd-cuda.so beside the program, which loads it at run time. CUDA=standin: linked into the tests,
# against the simulator in tests/cuda/standin, which runs the kernels on the CPU. CUDA= : neither.
CUDA_HOME  ?= /usr/local/cuda
NVCC       ?= $(firstword $(wildcard $(CUDA_HOME)/bin/nvcc) $(shell command -v nvcc 2>/dev/null))
CUDA_ARCHS ?= 80 90 120
CUDA_MODULE :=
ifeq ($(CUDA),1)
CUDA_C   := $(wildcard core/backend/cuda/*.c)
CUDA_CU  := $(wildcard shaders/cuda/*.cu)
# For scripts/check-cuda with QUICK=1.
ifdef CUDA_SOME
CUDA_CU  := $(patsubst %,shaders/cuda/%.cu,attention_latent attention_prefill product_wgmma product_skinny16 \
              product_skinny_q4 sample rope short_conv dequantize delta_net repack)
endif
# The module contains its own copy of the lower rooms' code that it uses.
CUDA_BASE_C := $(if $(CUDA_SOME),,$(wildcard core/base/*.c) core/backend/kv_layout.c)
CUDA_O   := $(CUDA_C:%.c=$(BUILD)/pic/%.o) $(CUDA_CU:%.cu=$(BUILD)/pic/%.cu.o) $(CUDA_BASE_C:%.c=$(BUILD)/pic/%.o)
CUDA_MODULE := $(BUILD)/libinferd-cuda.so
# The last architecture also as PTX, for later GPUs.
CUDA_TARGETS := $(patsubst 90,90a,$(CUDA_ARCHS)) # 90a: wgmma (shaders/cuda/wgmma.cuh)
CUDA_GENCODE := $(foreach a,$(if $(CUDA_PTX_ONLY),,$(CUDA_TARGETS)),-gencode arch=compute_$(a),code=sm_$(a)) \
  -gencode arch=compute_$(lastword $(CUDA_TARGETS)),code=compute_$(lastword $(CUDA_TARGETS))
NVCC_OPT   ?= -O3
NVCC_FLAGS := -std=c++17 $(NVCC_OPT) -I. --Werror all-warnings -Xcompiler -fPIC,-Wall,-Wno-unknown-pragmas $(CUDA_GENCODE) \
  $(if $(filter 90a,$(CUDA_TARGETS)),-DCUDA_HAVE_SM90A)

$(BUILD)/pic/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -fvisibility=hidden -isystem $(CUDA_HOME)/include -MMD -MP -c -o $@ $<
$(BUILD)/pic/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(NVCC) $(NVCC_FLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<
.PHONY: cuda-kernels
cuda-kernels: $(CUDA_O)
$(CUDA_MODULE): $(CUDA_O)
	$(CXX) -shared -o $@ $^ -L$(CUDA_HOME)/lib64 -lcudart_static -Wl,--no-undefined -lpthread -ldl -lrt -lm

# Benchmarks of single kernels on a GPU.
$(BUILD)/bench_gemm $(BUILD)/bench_linear $(BUILD)/bench_attention $(BUILD)/bench_delta $(BUILD)/bench_side: $(BUILD)/%: $(BUILD)/pic/tests/cuda/%.o $(CUDA_O) \
  $(BUILD)/libinferd.a
	$(CXX) -o $@ $^ -L$(CUDA_HOME)/lib64 -lcudart_static $(LDLIBS) -lstdc++ -ldl -lrt

# Takes the device from the module, as the program does.
$(BUILD)/bench_exchange: $(BUILD)/pic/tests/cuda/bench_exchange.o $(BUILD)/libinferd.a
	$(CC) -o $@ $^ $(LDLIBS)

# Uses private headers, so it links its own copy of the backend.
$(BUILD)/test_cuda_format: tests/unit/test_cuda_format.c $(SUPPORT_O) $(CUDA_O) $(BUILD)/libinferd.a
	@mkdir -p $(@D)
	$(CC) -DINFERD_CUDA_INSIDE $(CPPFLAGS) $(CFLAGS) -isystem $(CUDA_HOME)/include -MMD -MP -o $@ $< $(SUPPORT_O) \
	    $(CUDA_O) $(BUILD)/libinferd.a -L$(CUDA_HOME)/lib64 -lcudart_static $(LDLIBS) -lstdc++ -ldl -lrt
-include $(CUDA_O:.o=.d) $(patsubst %.c,$(BUILD)/pic/%.d,$(wildcard tests/cuda/bench_*.c)) $(BUILD)/test_cuda_format.d
endif
ifeq ($(CUDA),standin)
include tests/cuda/standin/standin.mk
endif
