# The kernels' own PTX, run on the host (tests/ptx): nvcc's host objects and the PTX that it kept, for each of
# PTX_ARCHS, over tests/ptx/library/cudart.c; and the same calls of the kernels as coroutines. `make test`
# compares them.
PTX_ARCHS = 90
PTX_DOORS = $(if $(SAN),,$(if $(NVCC),$(B)/ptx/coroutines.so \
    $(foreach a,$(PTX_ARCHS),$(B)/ptx/$(a)/kernels.so)))
PTX_CALLS = $(call objects,$(wildcard tests/ptx/library/calls*.c)) \
    $(filter-out $(JSON),$(PARTS_base))
PTX_MACHINE = $(call objects,$(wildcard tests/ptx/ptx_*.c))

define ptx_rules
$(B)/ptx/$(1)/%.o: kernels/cuda/%.cu tests/ptx/library/narrow.h $(B)/flags.cuda
	@mkdir -p $(B)/ptx/$(1)/$$*
	@echo "  nvcc  $$< as PTX of sm_$(1)"
	@$$(NVCC) $$(OWN_CPPFLAGS) $$(NVCCFLAGS) -include tests/ptx/library/narrow.h -std=c++17 -O3 \
	    -gencode arch=compute_$(1),code=compute_$(1) -Xcompiler -fPIC,-fvisibility=hidden -MMD -MP \
	    -keep -keep-dir $(B)/ptx/$(1)/$$* -c -o $$@ $$<
	@mv $(B)/ptx/$(1)/$$*/$$*.ptx $(B)/ptx/$(1)/$$*.ptx
	@rm -rf $(B)/ptx/$(1)/$$*

$(B)/ptx/$(1)/kernels.so: $(patsubst kernels/cuda/%.cu,$(B)/ptx/$(1)/%.o,$(CUDA_KERNELS)) $(PTX_CALLS) \
    $(PTX_MACHINE) $(B)/obj/tests/ptx/library/cudart.o
	@echo "  link  $$@"
	@$$(CXX) -shared $$(LINK_FLAGS) -Wl,-Bsymbolic,-z,defs -o $$@ $$^ -lm
endef
$(foreach a,$(PTX_ARCHS),$(eval $(call ptx_rules,$(a))))

$(B)/ptx/coroutines.so: $(CUDA_AS_COROUTINES) $(PTX_CALLS) $(PTX_MACHINE) $(B)/obj/tests/ptx/library/at_once.o
	@mkdir -p $(@D)
	@echo "  link  $@"
	@$(CXX) -shared $(LINK_FLAGS) -Wl,-Bsymbolic,-z,defs -o $@ $^ -lm

# What most of the time goes into.
$(addprefix $(B)/obj/tests/ptx/ptx_,lanes.o memory.o matrix.o run.o): private OWN_CFLAGS += -O3

ifeq ($(PTX_DOORS),)
check-ptx:
	@echo "SKIP: the kernels' PTX: it is built where nvcc is, and without sanitizers"
else
check-ptx: ## the kernels' PTX for four architectures, and as a card may round
	@$(MAKE) --no-print-directory PTX_ARCHS="75 80 89 90" $(B)/tests/ptx/test_ptx_kernels
	@scripts/check_ptx.sh $(B) 75 80 89 90
endif

.PHONY: check-ptx
