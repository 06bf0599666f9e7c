# The CUDA backend, built where nvcc is, for CUDA_ARCHS and as PTX of the last of them; nothing links it.
# NVCCFLAGS are the user's. And what runs on a card.
NVCC := $(firstword $(wildcard /usr/local/cuda/bin/nvcc) $(shell command -v nvcc))
CUDA_HOME = $(patsubst %/bin/nvcc,%,$(NVCC))
CUDA_ARCHS = 75 80 86 89 90
CUDA_CODE = $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) \
            -gencode arch=compute_$(lastword $(CUDA_ARCHS)),code=compute_$(lastword $(CUDA_ARCHS))
CUDA_LIBS = -L$(CUDA_HOME)/lib64 -lcudart -lcublasLt -lcudnn -lm
CUDA_LIBRARY = $(if $(SAN),,$(if $(NVCC),$(B)/libtandem_cuda.so $(B)/libtandem_cuda_kernels.so,no-cuda))

no-cuda:
	@echo "  skip  libtandem_cuda.so: nvcc is not here (CUDA Toolkit 13 with cuDNN 9)"

$(call objects,$(CUDA_LIBRARY_SOURCES) tests/cuda/on_card.c): private \
    OWN_CPPFLAGS += -isystem $(CUDA_HOME)/include

COMPILE_CUDA = $(NVCC) $(OWN_CPPFLAGS) $(NVCCFLAGS) -std=c++17 -O3 $(CUDA_CODE) -Xcompiler \
    -fPIC,-fvisibility=hidden $(if $(WERROR),-Werror all-warnings) -Xptxas -v,-warn-spills
CUDA_FLAGS := $(strip $(filter-out -Werror all-warnings,$(COMPILE_CUDA)))
$(eval $(call kept,$(B)/flags.cuda,CUDA_FLAGS))

# Nothing is spilled: a kernel that needs more registers than there are is an error here.
$(B)/obj/%.cu.o: %.cu $(B)/flags.cuda
	@mkdir -p $(@D)
	@echo "  nvcc  $<"
	@$(COMPILE_CUDA) -MMD -MP -c -o $@ $< >$@.log 2>&1 || { cat $@.log; exit 1; }
	@! grep -E '[1-9][0-9]* bytes spill' $@.log

# CUDA kernels for the tests: threads are coroutines on the host, whose stacks sanitizers would not know.
$(B)/obj/simt/%.o: kernels/cuda/%.cu $(B)/flags
	@mkdir -p $(@D)
	@echo "  c++   $< as coroutines"
	@$(COMPILE_CXX) $(if $(SAN),-fno-sanitize=all) -fsanitize=alignment \
	    -fsanitize-undefined-trap-on-error -ffp-contract=off -Wno-unknown-pragmas -Wno-unused-function \
	    -Wno-clobbered -x c++ -include tests/cuda/simt.h -MMD -MP -c -o $@ $<

# The tests linked with NVIDIA's libraries, for a card, and bench_gpu; `make test` builds them where nvcc
# is, so that they stay whole. They are one program, which has a name for each.
CARD_NAMES := $(shell sed -n 's/^PROGRAM(\(.*\))$$/\1/p' tests/cuda/gpu_programs.def)
CARD_PROGRAMS = $(if $(SAN),,$(if $(NVCC),$(addprefix $(B)/card/,$(CARD_NAMES))))
CARD_SUPPORT = $(call objects,$(addprefix tests/support/,every_case.c gradient_check.c metrics.c \
    operator_case.c reference.c) \
                              $(addprefix tests/cuda/,mirror.c on_card.c gpu_programs.c) data/images.c)
$(B)/obj/card/%.o: $(B)/obj/tests/cuda/%.o
	@mkdir -p $(@D)
	@objcopy --redefine-sym main=$* $< $@
$(B)/obj/card/bench_gpu.o: $(B)/obj/bench/cuda/bench_gpu.o
	@mkdir -p $(@D)
	@objcopy --redefine-sym main=bench_gpu $< $@
$(B)/obj/tests/cuda/gpu_programs.o: tests/cuda/gpu_programs.def
$(B)/card/gpu_programs: $(patsubst %,$(B)/obj/card/%.o,$(CARD_NAMES)) $(CARD_SUPPORT) $(CARD_BENCH) \
    $(CUDA_ON_CARD) $(CUDA_PUBLIC) $(CUDA_BELOW) $(B)/obj/predictor/robust.o $(KERNELS)
	@mkdir -p $(@D)
	@echo "  link  $@"
	@$(CXX) -pie $(LINK_FLAGS) -Wl,--defsym=tandem_graph_open=tandem_graph_open_zoo -o $@ \
	    $(filter %.o,$^) -lcmocka $(CUDA_LIBS) -lgsl -lgslcblas -ljansson -lz \
	    -lm
$(CARD_PROGRAMS): $(B)/card/gpu_programs
	@ln -f $< $@

# --- Without a card: what the kernels' machine code allows ---
cuda-limits: $(CUDA_LIBRARY) ## what the CUDA kernels' machine code allows
	@$(if $(NVCC),B=$(B) scripts/kernel_limits.py,true)

# --- On a card: its tests, its speeds, and all that a machine with a card and without our libraries needs
# (scripts/on_card.sh) ---
ifeq ($(CARD_PROGRAMS),)
test-cuda bench-cuda card-kit:
	@echo "SKIP $@:" \
	    "$(if $(SAN),no sanitizer fits into CUDA's libraries,nvcc is not here (CUDA Toolkit 13 with cuDNN 9))"
else
test-cuda: $(CARD_PROGRAMS)
	@scripts/test_cuda.sh $(B)/card

bench-cuda: all programs $(B)/card/bench_gpu
	@bench/cuda/clocks.sh $(B)/card/bench_gpu
	@bench/cuda/clocks.sh bench/cuda/steps.sh $(B)/tandem

card-kit: all programs $(CARD_PROGRAMS)
	@scripts/card_kit.sh $(B)
endif

.PHONY: no-cuda cuda-limits test-cuda bench-cuda card-kit
