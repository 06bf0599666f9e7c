# Tests: every tests/*/test_*.c and tests/fuzz/fuzz_*.c is a program of its own.
TEST_SOURCES = $(wildcard tests/*/test_*.c) $(filter-out %/fuzz_main.c,$(wildcard tests/fuzz/fuzz_*.c))
TESTS = $(patsubst tests/%.c,$(B)/tests/%,$(TEST_SOURCES))
# What tests/python holds the package's probe against.
PROBE_SOURCE = tests/torch/probe_numbers.c
TEST_SUPPORT = $(call objects,$(filter-out $(TEST_SOURCES) tests/support/fail_allocation.c \
    tests/support/without_avx512.c tests/onnx/train_steps.c tests/truth/door.c tests/slurm/door.c \
    $(PROBE_SOURCE) \
    $(addprefix tests/cuda/,on_card.c gpu_programs.c), \
                                                    $(wildcard tests/*/*.c)))

# What tests say at their top, read once, and only where a test is linked: words SOURCE@link=WORD and
# SOURCE@folder=NAME.
TEST_MARKS = $(eval TEST_MARKS := $(shell perl -ne 'print map { "$$ARGV\@link=$$_ " } split " ", $$1 \
    if m{link: (--.*) \*/}; print "$$ARGV\@folder=$$1 " if m{folder: ([a-z]*) \*/}; \
    close ARGV if $$. == 6 || eof' $(TEST_SOURCES) $(PROBE_SOURCE)))$(TEST_MARKS)
# marks SOURCE,KIND: what it says.
marks = $(patsubst $(1)@$(2)=%,%,$(filter $(1)@$(2)=%,$(TEST_MARKS)))
# A test that makes allocations fail says so in a line `link: --wrap=…`.
wraps = $(addprefix -Wl$(comma),$(call marks,$(1),link))
# A test that names its folder in a line `folder: NAME` is linked with that folder and what it may use
# (folders.mk).
folder_of = $(or $(call marks,$(1),folder),all)

# What a test may need, as a thin archive: a program takes what it names, and links in a tenth of a second.
TEST_PARTS = $(patsubst %,$(B)/tests/parts-%.a,$(FOLDERS) $(PROGRAMS) all)
define parts_rule
$(B)/tests/parts-$(1).a: $(foreach folder,$(1) $(USES_$(1)),$(PARTS_$(folder))) $(MODEL_FILES) $(TEST_SUPPORT)
endef
$(foreach folder,$(FOLDERS) $(PROGRAMS),$(eval $(call parts_rule,$(folder))))
$(B)/tests/parts-all.a: $(CORE) $(MODEL_FILES) $(PARTS_kernels) $(PARTS_backend) $(SLURM_PARTS) $(MCKP) \
    $(CARD_BENCH) $(TEST_SUPPORT)
$(TEST_PARTS):
	@mkdir -p $(@D)
	@rm -f $@
	@ar rcsT $@ $^

# Tests may ignore results that glibc wants used. Most tests do not use the state that cmocka passes.
$(B)/tests/% $(B)/obj/tests/%: private OWN_CFLAGS += -Wno-unused-result -Wno-unused-parameter

$(TESTS): | $(B)/tests/libtandem_cuda.so $(B)/tests/libtandem_cuda_kernels.so.0
$(B)/tests/ptx/test_ptx_kernels: | $(PTX_DOORS)
$(addprefix $(B)/tests/,unit/test_runtime fault/test_runtime_memory): | $(B)/tandem-rank \
    $(B)/libtandem_backend.so
$(B)/tests/%: tests/%.c $(TEST_PARTS) $(B)/obj/tests/support/fail_allocation.o $(B)/flags
	@mkdir -p $(@D)
	@echo "  test  $@"
	@$(COMPILE_C) $(LINK_FLAGS) -MMD -MP -o $@ $< $(if $(call wraps,$<),$(call wraps,$<) \
	    $(B)/obj/tests/support/fail_allocation.o) \
	    $(B)/tests/parts-$(call folder_of,$<).a -lcmocka $(CORE_LIBS) $(BACKEND_LIBS) -ldl

# The second door of `make check-truth`, on the library that others link.
TRUTH_DOOR = $(B)/tests/truth/door
$(TRUTH_DOOR): tests/truth/door.c $(B)/libtandem.so $(B)/flags
	@mkdir -p $(@D)
	@echo "  link  $@"
	@$(COMPILE_C) $(LINK_FLAGS) -MMD -MP -o $@ $< -L$(B) -ltandem -Wl,-rpath,'$$ORIGIN/../..'

# What a step under Slurm asks, without a Slurm: a door of tests/property/test_doors.sh.
SLURM_DOOR = $(B)/tests/slurm/door
$(SLURM_DOOR): tests/slurm/door.c $(SLURM_PARTS) $(CORE) $(B)/flags
	@mkdir -p $(@D)
	@echo "  link  $@"
	@$(COMPILE_C) $(LINK_FLAGS) -Wl,--defsym=tandem_graph_open=tandem_graph_open_zoo -MMD -MP -o $@ $< \
	    $(SLURM_PARTS) $(CORE) $(CORE_LIBS)

# The CUDA backend as a library, on what tests put in the place of NVIDIA's:
# TANDEM_CUDA=build/tests/libtandem_cuda.so runs any command.
CUDA_STAND_IN = $(CUDA_HOST) $(CUDA_AS_COROUTINES) $(B)/obj/tests/cuda/stand_in.o \
    $(B)/obj/tests/cuda/stand_in_graph.o $(CUDA_BELOW)
$(B)/tests/libtandem_cuda.so: $(CUDA_STAND_IN)
	@mkdir -p $(@D)
	@echo "  link  $@"
	@$(CXX) -shared $(LINK_FLAGS) -Wl,-Bsymbolic -o $@ $(CUDA_STAND_IN) -lpthread -lm

# The kernels for other programs on the same, for tests/python.
CUDA_KERNELS_STAND_IN = $(CUDA_FOR_OTHERS) $(addprefix $(B)/obj/simt/,quantise.o bytes.o) $(addprefix \
    $(B)/obj/tests/cuda/,stand_in.o stand_in_graph.o)
$(B)/tests/libtandem_cuda_kernels.so.0: kernels/cuda/libtandem_cuda_kernels.map $(CUDA_KERNELS_STAND_IN)
	@mkdir -p $(@D)
	@echo "  link  $@"
	@$(CXX) $(call LIBRARY_FLAGS,$<) -o $@ $(CUDA_KERNELS_STAND_IN) -lpthread -lm

# CPU=avx2: tests see a CPU without AVX-512, so that its kernels and its speed are tested on a larger one,
# too.
CPU =
WITHOUT_AVX512 = $(B)/tests/without_avx512.so
$(WITHOUT_AVX512): tests/support/without_avx512.c
	@mkdir -p $(@D)
	@echo "  link  $@"
	@$(CC) -O2 $(WARN) -fPIC -shared -Wl,-z,initfirst -o $@ $<

# Imported models against PyTorch and ONNX's own cases (tests/onnx): minutes, so no part of `make test`.
ONNX_TRAIN = $(B)/tests/onnx/train_steps
$(ONNX_TRAIN): $(B)/obj/tests/onnx/train_steps.o $(CORE) $(MODEL_FILES) $(BACKEND)
	@mkdir -p $(@D)
	@echo "  link  $@"
	@$(CXX) $(LINK_FLAGS) -o $@ $^ $(CORE_LIBS) $(BACKEND_LIBS)

tests: $(TESTS) $(B)/bench/mckp $(B)/tests/libtandem_cuda.so $(B)/tests/libtandem_cuda_kernels.so.0 \
    $(CARD_PROGRAMS) $(PTX_DOORS)

SCRIPTS = tests/cli/run.sh $(sort $(wildcard tests/cli/test_*.sh)) tests/slurm/run.sh tests/fuzz/run.sh \
    $(sort $(wildcard tests/torch/test_*.sh tests/python/test_*.sh tests/property/test_*.sh))
# LONG=1 runs these, too, and others with more draws (tests/support/tandem_test.h): a card's kit, and
# trainings on its stand-in; the study; what compares with PyTorch; times of a machine of one's own; what
# developers run.
LONG =
LONG_TESTS = $(addprefix $(B)/tests/cuda/test_cuda_,graphs merged operators padded training) \
    $(addprefix tests/cli/test_,\
    card_scripts.sh cuda.sh documents.sh study.sh loop.sh man.sh prediction.sh install.sh mutants.sh \
    runner.sh) \
    $(addprefix tests/torch/test_,truth.sh peer.sh)
LEFT_OUT = $(if $(LONG)$(ONLY),,$(LONG_TESTS))
# ONLY='unit fault/test_comm' builds and runs those whose names begin so.
ONLY =
CHOSEN = $(if $(ONLY),$(filter $(foreach name,$(ONLY),$(B)/tests/$(name)% tests/$(name)%),$(TESTS) \
    $(SCRIPTS)),$(filter-out $(LEFT_OUT),$(TESTS) $(SCRIPTS)))
test: missing ## builds and runs the tests; LONG=1: all; ONLY='unit fault/test_comm': names that begin so
	$(eval begin := $(shell date +%s))
	@$(MAKE) --no-print-directory -j$$(nproc) all programs $(TRUTH_DOOR) $(SLURM_DOOR) \
	    $(B)/tests/torch/probe_numbers \
	    $(if $(ONLY),$(filter $(TESTS),$(CHOSEN)),tests) \
	    $(if $(filter avx2,$(CPU)),$(WITHOUT_AVX512))
	@B=$(B) TEST_LONG=$(LONG) TEST_LEFT_OUT="$(LEFT_OUT)" \
	    TEST_PRELOAD=$(if $(filter avx2,$(CPU)),$(abspath $(WITHOUT_AVX512))) \
	    BUILD_SECONDS=$$(($$(date +%s) - $(begin))) scripts/run_tests.sh $(CHOSEN)

# The page of `tandem report`: its tests, and a headless Chromium that opens it.
test-report: all ## the page: its tests, and in a browser
	@$(MAKE) --no-print-directory test ONLY="unit/test_report cli/test_report"
	@tests/browser/page.py $(B)

# `make test-allocator`: the tests that name this folder.
test-%:
	@$(MAKE) --no-print-directory test \
	    ONLY="$(if $(filter cli,$*),cli,$(patsubst tests/%.c,%,$(shell \
	        grep -lE 'folder: $*( \*/|,)' tests/*/*.c)))"

test-onnx: all $(ONNX_TRAIN) ## imported models against PyTorch, and ONNX's own cases
	@tests/onnx/run.sh $(B)

.PHONY: test tests test-report
