# metal.mk - builds the Metal backend: on a Mac (METAL=native) against Apple's framework, on Linux
# (METAL=standin) against the stand-in in tests/metal/standin, which runs the shaders on the CPU.
METAL_O   :=
METAL_LIB :=
METAL_SIM ?= tests/metal/standin
ifneq ($(filter native standin,$(METAL)),)
ifndef CROSS
CPPFLAGS += -DINFERD_METAL
METAL_M  := $(wildcard core/backend/metal/*.m)
METAL_O  := $(METAL_M:%.m=$(BUILD)/%.o) $(BUILD)/shaders/metal_sources.o
OBJC_CC  ?= $(if $(filter native,$(METAL)),$(CC),clang)
OBJC_WARN := -Wall -Wextra -Wshadow -Wno-nullability-completeness

$(BUILD)/shaders/metal_sources.c: $(wildcard shaders/metal/*) $(wildcard shaders/args*.h) core/base/qblock.h scripts/embed-metal
	@mkdir -p $(@D)
	scripts/embed-metal $(sort $(wildcard shaders/metal/*.metal)) > $@.tmp && mv $@.tmp $@
$(BUILD)/shaders/metal_sources.o: $(BUILD)/shaders/metal_sources.c
	$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<
endif
endif

ifeq ($(METAL),native)
ifndef CROSS
# CoreGraphics: a command-line program has no default device without it (MTLCreateSystemDefaultDevice).
METAL_FRAMEWORKS := Metal Foundation CoreGraphics
LDLIBS += $(METAL_FRAMEWORKS:%=-framework %)
$(BUILD)/%.o: %.m
	@mkdir -p $(@D)
	$(OBJC_CC) $(CPPFLAGS) -std=gnu11 $(COMMON) $(OBJC_WARN) $(SAN) -fno-objc-arc -MMD -MP -c -o $@ $<
endif
endif

ifeq ($(METAL),standin)
GCC_LIB  := $(dir $(shell gcc -print-file-name=libobjc.so))
GCC_INC  := $(shell gcc -print-file-name=include)
OBJC_ABI := -fobjc-runtime=gcc -fblocks -fexceptions -fobjc-exceptions -D_NATIVE_OBJC_EXCEPTIONS \
  -fconstant-string-class=NSConstantString -DGNUSTEP -DGNUSTEP_BASE_LIBRARY=1 -DGNU_RUNTIME=1 \
  -isystem /usr/include/GNUstep -isystem $(METAL_SIM)/framework -idirafter $(BUILD)/sim/include
# Only objc/ of gcc's folder: clang must not use its other headers.
$(BUILD)/sim/include/objc:
	@mkdir -p $(@D) && ln -sfn $(GCC_INC)/objc $@
SIM_RT   := $(patsubst $(METAL_SIM)/%,$(BUILD)/sim/%.o,$(wildcard $(METAL_SIM)/runtime/*.c $(METAL_SIM)/runtime/*.S))
SIM_FW   := $(patsubst $(METAL_SIM)/%,$(BUILD)/sim/%.o,$(wildcard $(METAL_SIM)/framework/*.m))
METAL_O  += $(SIM_FW)
.PHONY: metal-objects
metal-objects: $(METAL_M:%.m=$(BUILD)/%.o) # the host code alone

# Only core/backend/backend.c depends on whether there is a Metal backend: everything else comes from the
# plain build.
LIB_C    := core/backend/backend.c
LIB_CC   :=
WEB      :=
METAL_BASE ?= build
.PHONY: metal-base
metal-base:
	@$(MAKE) -s METAL= BUILD=$(METAL_BASE) $(METAL_BASE)/libinferd.a
$(METAL_BASE)/libinferd.a: metal-base ;
METAL_LIB := $(BUILD)/core/backend/backend.o $(SIM_RT) $(BUILD)/libmetal.a $(METAL_BASE)/libinferd.a
$(BUILD)/libmetal.a: $(METAL_O)
	@rm -f $@
	$(AR) rcs $@ $^
$(METAL_M:%.m=$(BUILD)/%.o) $(SIM_FW): | $(BUILD)/sim/include/objc
LDLIBS   += -L$(GCC_LIB) -lBlocksRuntime -lgnustep-base -lobjc -lm -ldl -pthread -rdynamic

$(BUILD)/%.o: %.m
	@mkdir -p $(@D)
	$(OBJC_CC) $(CPPFLAGS) -std=gnu11 $(COMMON) $(OBJC_WARN) $(SAN) -fPIC $(OBJC_ABI) -I$(METAL_SIM)/runtime -MMD -MP -c -o $@ $<
$(BUILD)/sim/framework/%.m.o: $(METAL_SIM)/framework/%.m
	@mkdir -p $(@D)
	clang -D_GNU_SOURCE -std=gnu11 -O2 $(DEBUG_INFO) -Wall -Wextra -fPIC -pthread -I. $(SAN) $(OBJC_ABI) \
	    -DMETALSIM_DEFAULT_CC='"$(abspath $(METAL_SIM))/tools/metalcc"' -MMD -MP -c -o $@ $<
$(BUILD)/sim/runtime/%.c.o: $(METAL_SIM)/runtime/%.c
	@mkdir -p $(@D)
	$(CC) -std=gnu11 -O2 $(DEBUG_INFO) -Wall -Wextra -fPIC -ftls-model=initial-exec -fomit-frame-pointer -pthread -MMD -MP -c -o $@ $<
$(BUILD)/sim/runtime/%.S.o: $(METAL_SIM)/runtime/%.S
	@mkdir -p $(@D)
	$(CC) -c -o $@ $<
endif
# Tests that run on a device or on the stand-in.
ifneq ($(filter native standin,$(METAL)),)
METAL_OPS  := test_backend test_linear test_moe test_mla test_attention test_encoder test_rope_store \
              test_gated test_delta_net test_short_conv test_top test_model test_mtp test_arch test_arch_forward test_ops \
              test_tier
METAL_UNIT := $(filter $(METAL_OPS:%=$(BUILD)/%) $(BUILD)/test_metal_%,$(patsubst tests/unit/%.c,$(BUILD)/%,$(wildcard tests/unit/test_*.c)))
endif
# The stand-in's own tests: C, or Objective-C against its Metal.h.
ifeq ($(METAL),standin)
METAL_TESTS := $(patsubst tests/metal/%.c,$(BUILD)/%,$(wildcard tests/metal/test_standin_*.c)) \
               $(patsubst tests/metal/%.m,$(BUILD)/%,$(wildcard tests/metal/test_standin_*.m))
$(BUILD)/tests/metal/%.o: CFLAGS += -I$(METAL_SIM)/runtime
$(BUILD)/test_standin_%: $(BUILD)/tests/metal/test_standin_%.o $(SUPPORT_O) $(METAL_LIB)
	$(CC) $(SAN) $(TEST_LD) -o $@ $^ $(LDLIBS)
.SECONDARY: $(METAL_TESTS:$(BUILD)/%=$(BUILD)/tests/metal/%.o)
endif
# What scripts/test-metal quick runs: without models that repeat others' ops, the meters of traffic, and the tests of
# what the stand-in catches.
METAL_QUICK := $(filter-out $(BUILD)/test_encoder $(BUILD)/test_mtp $(BUILD)/test_arch $(BUILD)/test_ops $(BUILD)/test_tier %_traffic %_decode %_msl %_checks \
               $(BUILD)/test_standin_moe,$(METAL_UNIT) $(METAL_TESTS))
-include $(METAL_O:.o=.d) $(SIM_RT:.o=.d) \
         $(METAL_TESTS:$(BUILD)/%=$(BUILD)/tests/metal/%.d)
