# tandem: `make` builds, `make demo` runs the whole loop, `make test` runs the tests; each installs what is
# missing first. SAN=address,undefined or SAN=thread builds and tests with sanitizers, in a folder of its own.
CC = gcc
CXX = g++
SAN =
comma := ,
B := build$(if $(SAN),/$(subst $(comma),-,$(SAN)))

# With a sanitizer, what compiles fastest: the tests are what takes time. gcc 12 warns of what is right at
# -O1.
WARN = $(if $(SAN),-w,-Wall -Wextra -Wshadow -Wconversion -Werror)
OPT = $(if $(SAN),-O1 -g1,-O2 -g)
SANFLAGS = $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all)
# What makes a defect of memory harder to use. Sanitizers look closer themselves.
HARDEN = $(if $(SAN),,-fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
CPPFLAGS = -D_GNU_SOURCE -I. -Iinclude -I$(B)/generated
CFLAGS = -std=c11 $(OPT) -ffp-contract=off -fPIC -fvisibility=hidden -fno-semantic-interposition $(WARN) \
    $(HARDEN) $(SANFLAGS)
CXXFLAGS = -std=c++17 $(OPT) -fPIC -fvisibility=hidden $(if $(SAN),-w,-Wall -Wextra -Werror) $(HARDEN) \
    $(SANFLAGS)
LDFLAGS = -Wl,-z,relro,-z,now $(SANFLAGS)
CORE_LIBS = -lsqlite3 -ljansson -lz -lprotobuf-c -lglpk -lgsl -lgslcblas -lm
BACKEND_LIBS = -ldnnl -lgloo -lgomp -ljansson -lz -lstdc++ -lpthread -lm

objects = $(patsubst %,$(B)/obj/%.o,$(basename $(1)))
sources = $(wildcard $(addsuffix /*.c,$(1)))

include folders.mk
.DEFAULT_GOAL := all

# What each artefact is made of. The backend carries its own base and graph, so that it links nothing of the
# core's libraries; the program carries all of the core, so that it runs from wherever it lies. Only what
# include/tandem/ declares is exported.
PARTS_base = $(call objects,$(call sources,base))
PARTS_graph = $(call objects,$(call sources,$(addprefix graph/,format ir step zoo)))
# Models in files of users: no part of what Slurm's plug-ins link.
MODEL_FILES = $(B)/obj/graph/onnx/onnx.pb-c.o $(call objects,$(call sources,graph/onnx profiles/recording))
PARTS_profiles = $(B)/obj/profiles/format/chakra.pb-c.o \
                 $(call objects,$(call sources,profiles $(addprefix profiles/,store cluster plan format)))
PARTS_predictor = $(call objects,$(call sources,predictor))
PARTS_trace = $(call objects,$(call sources,trace $(addprefix trace/,reader whatif torch)))
PARTS_replayer = $(call objects,$(call sources,replayer))
PARTS_allocator = $(call objects,$(call sources,allocator $(addprefix allocator/,policy bound queries)))
PARTS_report = $(call objects,$(call sources,report report/section))
PARTS_plugins = $(SLURM_PARTS)
PARTS_backend = $(BACKEND) $(CUDA_HOST) $(CUDA_PUBLIC) $(CUDA_AS_COROUTINES)
FOUNDATION = $(PARTS_base) $(PARTS_graph)
CORE = $(FOUNDATION) $(foreach folder,profiles predictor trace replayer allocator,$(PARTS_$(folder)))
CLI = $(call objects,$(call sources,cli cli/command cli/bench cli/study cli/study/method))
PARTS_cli = $(filter-out $(B)/obj/cli/main.o,$(CLI))
ISAS = sse41 avx avx2 avx2_vnni avx512 avx512_vnni
ISA_SOURCES = $(wildcard backend/cpu/isa/*.c)
ISA_OBJECTS = $(foreach isa,$(ISAS),$(patsubst backend/cpu/isa/%.c,$(B)/obj/isa/$(isa)/%.o,$(ISA_SOURCES)))
BACKEND = $(call objects,$(call sources,backend $(addprefix backend/,executor device cpu cpu/op comm data))) \
          $(B)/obj/backend/comm/gloo.o $(ISA_OBJECTS)
KERNELS = $(call objects,base/amax_history.c \
          $(addprefix backend/cpu/,kernels.c layer_kernels.c conv3x3.c isa_kernels.c)) $(ISA_OBJECTS)

# The CUDA backend's own code, but for the files that call NVIDIA's libraries; tests run it, its kernels too,
# without a card.
CUDA_LIBRARY_SOURCES = $(addprefix backend/cuda/,runtime.c clocks.c cublaslt.c cudnn.c)
CUDA_KERNELS = $(wildcard backend/cuda/*.cu)
CUDA_PUBLIC = $(call objects,$(addprefix backend/cuda/,cuda_kernels.c cuda_products.c))
CUDA_HOST = $(filter-out $(CUDA_PUBLIC),$(call objects,$(filter-out $(CUDA_LIBRARY_SOURCES),$(call \
    sources,backend/cuda backend/cuda/op))))
CUDA_AS_COROUTINES = $(patsubst backend/cuda/%.cu,$(B)/obj/simt/%.o,$(CUDA_KERNELS))
CUDA_BELOW = $(B)/obj/backend/device/kernel_name.o $(FOUNDATION)
CUDA_ON_CARD = $(CUDA_HOST) $(call objects,$(CUDA_LIBRARY_SOURCES)) $(patsubst \
    %.cu,$(B)/obj/%.cu.o,$(CUDA_KERNELS))

# Casts and products for other programs, which link no more of NVIDIA's than cudart and cuBLASLt.
CUDA_FOR_OTHERS = $(CUDA_PUBLIC) $(call objects,$(addprefix backend/cuda/,algorithm_cache.c gpu.c kernel.c \
    planned_work.c product.c) backend/device/kernel_name.c) $(FOUNDATION)
CUDA_KERNEL_LIBRARY = $(CUDA_FOR_OTHERS) $(call objects,$(addprefix backend/cuda/,runtime.c clocks.c \
    cublaslt.c)) $(addprefix $(B)/obj/backend/cuda/,quantise.cu.o bytes.cu.o)

# The knapsack problem behind policy exact as a program of its own, for bench/mckp/hawq.sh.
MCKP = $(call objects,$(addprefix bench/mckp/,solve_mckp.c read_mckp.c))
$(B)/bench/mckp: $(B)/obj/bench/mckp/main.o $(MCKP) $(CORE)
	@mkdir -p $(@D)
	@echo "  link  $@"
	@$(CC) $(LDFLAGS) -o $@ $^ $(CORE_LIBS)

CARD_BENCH = $(call objects,$(addprefix bench/cuda/,kernels.c linear.c measure.c report.c))

# Slurm's plug-ins, where its headers are; no sanitizer fits into its daemons. SLURM_PARTS need no header of
# Slurm's. What slurmd and slurmstepd open, as root, links libc alone; the planner is a file of its own, which
# users' commands open.
SLURM_PARTS = $(call objects,$(addprefix plugins/slurm/,memory_fit.c job_plan.c layout.c run_folder.c site.c \
    submission.c))
SPANK = $(call objects,plugins/slurm/spank_tandem.c plugins/slurm/run_folder.c base/status.c base/printable.c)
SPANK_PLANNER = $(call objects,$(addprefix plugins/slurm/,spank_planner.c step_nodes.c))
JOB_SUBMIT = $(FOUNDATION) $(call objects,$(addprefix plugins/slurm/,job_submit_tandem.c submission.c \
    memory_fit.c site.c)) \
             $(call objects,$(addprefix profiles/,cluster/device.c plan/plan.c plan/assignment.c))
SLURM_HEADER = $(wildcard /usr/include/slurm/spank.h)
PLUGINS = $(if $(SAN),,$(if $(SLURM_HEADER),$(addprefix $(B)/,spank_tandem.so spank_tandem_planner.so \
    job_submit_tandem.so),no-plugins))

# The CUDA backend is built where nvcc is, for these architectures and as PTX of the last. Nothing here links
# it.
NVCC := $(firstword $(wildcard /usr/local/cuda/bin/nvcc) $(shell command -v nvcc))
CUDA_HOME = $(patsubst %/bin/nvcc,%,$(NVCC))
CUDA_ARCHS = 75 80 86 89 90
CUDA_CODE = $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) \
            -gencode arch=compute_$(lastword $(CUDA_ARCHS)),code=compute_$(lastword $(CUDA_ARCHS))
CUDA_LIBS = -L$(CUDA_HOME)/lib64 -lcudart -lcublasLt -lcudnn -lm
CUDA_LIBRARY = $(if $(SAN),,$(if $(NVCC),$(B)/libtandem_cuda.so $(B)/libtandem_cuda_kernels.so,no-cuda))

all: $(CUDA_LIBRARY) $(B)/tandem $(B)/libtandem.so $(B)/libtandem_backend.so $(B)/libtandem_kernels.so \
    $(PLUGINS) ## the program and the libraries

# --- Set-up: compilers and libraries from Debian, once ---
setup: ## compilers and libraries from Debian, once
	@scripts/setup.sh

# Standard output of our own objects is a stream of results, that of libraries is not (cli/standard_files.c).
RESULTS = $(addprefix -Wl$(comma)--wrap=,stdout printf vprintf __printf_chk __vprintf_chk puts putchar)
$(B)/tandem: $(CLI) $(PARTS_report) $(CORE) $(MODEL_FILES) $(KERNELS)
	@echo "  link  $@"
	@$(CC) -pie $(LDFLAGS) $(RESULTS) -o $@ $^ $(CORE_LIBS) -ldl

$(B)/libtandem.so.0: libtandem.map $(CORE) $(MODEL_FILES)
	@echo "  link  $@"
	@$(CC) -shared $(LDFLAGS) -Wl,-soname,$(@F) -Wl,--version-script=$< -Wl,-Bsymbolic-functions -Wl,-z,defs \
	    -o $@ $(CORE) $(MODEL_FILES) $(CORE_LIBS)

$(B)/libtandem_kernels.so.0: libtandem.map $(B)/obj/base/status.o $(B)/obj/base/printable.o $(KERNELS)
	@echo "  link  $@"
	@$(CC) -shared $(LDFLAGS) -Wl,-soname,$(@F) -Wl,--version-script=$< -Wl,-Bsymbolic-functions -Wl,-z,defs \
	    -o $@ $(filter %.o,$^) -lm

$(B)/libtandem_cuda_kernels.so.0: backend/cuda/libtandem_cuda_kernels.map $(CUDA_KERNEL_LIBRARY)
	@echo "  link  $@"
	@$(CXX) -shared $(LDFLAGS) -Wl,-soname,$(@F) -Wl,--version-script=$< -Wl,-Bsymbolic-functions \
	    -Wl,-z,defs \
	    -o $@ $(filter %.o,$^) -L$(CUDA_HOME)/lib64 -lcudart -lcublasLt -lm

$(B)/libtandem.so $(B)/libtandem_kernels.so $(B)/libtandem_cuda_kernels.so: %.so: %.so.0
	@ln -sf $(<F) $@

$(B)/libtandem_backend.so: libtandem_backend.map $(BACKEND) $(FOUNDATION)
	@echo "  link  $@"
	@$(CXX) -shared $(LDFLAGS) -Wl,--version-script=$< -o $@ $(BACKEND) $(FOUNDATION) $(BACKEND_LIBS)

PLUGIN_LINK = $(CC) -shared $(LDFLAGS) -Wl,--version-script=plugins/slurm/plugin.map
$(B)/spank_tandem.so: $(SPANK) plugins/slurm/plugin.map
	@echo "  link  $@"
	@$(PLUGIN_LINK) -o $@ $(filter %.o,$^)

$(B)/spank_tandem_planner.so: $(SPANK_PLANNER) $(SLURM_PARTS) $(CORE) plugins/slurm/plugin.map
	@echo "  link  $@"
	@$(PLUGIN_LINK) -o $@ $(filter %.o,$^) $(CORE_LIBS)

$(B)/job_submit_tandem.so: $(JOB_SUBMIT) plugins/slurm/plugin.map
	@echo "  link  $@"
	@$(PLUGIN_LINK) -o $@ $(filter %.o,$^) -lm

$(B)/libtandem_cuda.so: backend/cuda/libtandem_cuda.map $(CUDA_ON_CARD) $(CUDA_BELOW)
	@echo "  link  $@"
	@$(CXX) -shared $(LDFLAGS) -Wl,--version-script=$< -o $@ $(filter %.o,$^) $(CUDA_LIBS)

no-cuda:
	@echo "  skip  libtandem_cuda.so: nvcc is not here (CUDA Toolkit 13 with cuDNN 9)"

no-plugins:
	@echo "  skip  spank_tandem.so, spank_tandem_planner.so, job_submit_tandem.so: Slurm's headers" \
	    "are not here (scripts/setup.sh --slurm)"

# Texts that the program carries: path/name.ext becomes the C string name_ext of a header of its own.
TEXT_HEADERS = $(addprefix $(B)/generated/,schema_sql.h page_css.h page_js.h)
$(B)/generated/schema_sql.h: profiles/store/schema.sql
$(B)/generated/page_css.h: report/page.css
$(B)/generated/page_js.h: report/page.js
$(TEXT_HEADERS):
	@mkdir -p $(@D)
	@{ echo '/* made from $< */'; echo 'static const char $(basename $(@F))[] ='; \
	  sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/    "/' -e 's/$$/\\n"/' $<; echo '    ;'; } > $@

$(B)/obj/profiles/store/store.o: $(B)/generated/schema_sql.h
$(B)/obj/report/page.o: $(B)/generated/page_css.h $(B)/generated/page_js.h

# Messages of execution traces and of ONNX models. What protoc-c generates is not held to our warnings.
MESSAGES = $(addprefix $(B)/generated/,profiles/format/chakra.pb-c.h graph/onnx/onnx.pb-c.h)
$(MESSAGES): $(B)/generated/%.pb-c.h: %.proto
	@mkdir -p $(@D)
	@protoc-c --c_out=$(B)/generated $<

$(MESSAGES:.h=.c): %.c: %.h
$(B)/obj/profiles/format/chakra.o $(B)/obj/trace/reader/read_chakra.o: \
    $(B)/generated/profiles/format/chakra.pb-c.h
$(call objects,$(call sources,graph/onnx) tests/fuzz/fuzz_onnx.c) $(B)/tests/fuzz/fuzz_onnx: \
    $(B)/generated/graph/onnx/onnx.pb-c.h

$(patsubst $(B)/generated/%.h,$(B)/obj/%.o,$(MESSAGES)): $(B)/obj/%.o: $(B)/generated/%.c
	@mkdir -p $(@D)
	@echo "  cc    $<"
	@$(CC) $(CPPFLAGS) $(CFLAGS) -w -c -o $@ $<

$(B)/obj/%.o: %.c
	@mkdir -p $(@D)
	@echo "  cc    $<"
	@$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

# Tables of functions fix the parameters of a kernel; most kernels leave some of them unused.
$(B)/obj/backend/%: private CFLAGS += -Wno-unused-parameter

# A header of Gloo's that Debian's package lacks.
$(B)/obj/backend/comm/gloo.o: private CXXFLAGS += -idirafter backend/comm/gloo_missing

$(B)/obj/%.o: %.cc
	@mkdir -p $(@D)
	@echo "  c++   $<"
	@$(CXX) $(CPPFLAGS) $(CXXFLAGS) -MMD -MP -c -o $@ $<

$(call objects,$(CUDA_LIBRARY_SOURCES) tests/cuda/on_card.c): CPPFLAGS += -isystem $(CUDA_HOME)/include

# Square roots in vectors.
$(B)/obj/cli/probe_direction.o: private CFLAGS += -fno-math-errno

# Nothing is spilled: a kernel that needs more registers than there are is an error here.
$(B)/obj/%.cu.o: %.cu
	@mkdir -p $(@D)
	@echo "  nvcc  $<"
	@$(NVCC) $(CPPFLAGS) -std=c++17 -O3 $(CUDA_CODE) -Xcompiler -fPIC,-fvisibility=hidden -Werror \
	    all-warnings \
	    -Xptxas -v,-warn-spills -MMD -MP -c -o $@ $< >$@.log 2>&1 || { cat $@.log; exit 1; }
	@! grep -E '[1-9][0-9]* bytes spill' $@.log

# CUDA kernels for the tests: threads are coroutines on the host, whose stacks sanitizers would not know.
$(B)/obj/simt/%.o: backend/cuda/%.cu
	@mkdir -p $(@D)
	@echo "  c++   $< as coroutines"
	@$(CXX) $(CPPFLAGS) $(CXXFLAGS) $(if $(SAN),-fno-sanitize=all) -fsanitize=alignment \
	    -fsanitize-undefined-trap-on-error -ffp-contract=off -Wno-unknown-pragmas -Wno-unused-function \
	    -Wno-clobbered -x c++ -include tests/cuda/simt.h -MMD -MP -c -o $@ $<

# Kernels of our own, once for each instruction set.
ISA_FLAGS_sse41 = -msse4.1
ISA_FLAGS_avx = -mavx
ISA_FLAGS_avx2 = -mavx2 -mfma -mf16c
ISA_FLAGS_avx512 = $(ISA_FLAGS_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512cd
ISA_FLAGS_avx2_vnni = $(ISA_FLAGS_avx2) -mavxvnni
ISA_FLAGS_avx512_vnni = $(ISA_FLAGS_avx512) -mavx512vnni
define isa_rule
$(B)/obj/isa/$(1)/%.o: backend/cpu/isa/%.c
	@mkdir -p $$(@D)
	@echo "  cc    $$< for $(1)"
	@$(CC) $(CPPFLAGS) $(CFLAGS) -O3 -fno-math-errno -Wno-unused-parameter -DTANDEM_ISA=$(1) $(ISA_FLAGS_$(1)) \
	    -MMD -MP -c -o $$@ $$<
endef
$(foreach isa,$(ISAS),$(eval $(call isa_rule,$(isa))))

# --- Tests: every tests/*/test_*.c and tests/fuzz/fuzz_*.c is a program of its own ---
TEST_SOURCES = $(wildcard tests/*/test_*.c) $(filter-out %/fuzz_main.c,$(wildcard tests/fuzz/fuzz_*.c))
TESTS = $(patsubst tests/%.c,$(B)/tests/%,$(TEST_SOURCES))
TEST_SUPPORT = $(call objects,$(filter-out $(TEST_SOURCES) tests/support/fail_allocation.c \
    tests/support/without_avx512.c tests/onnx/train_steps.c tests/truth/door.c \
    $(addprefix tests/cuda/,on_card.c gpu_programs.c), \
                                                    $(wildcard tests/*/*.c)))
# A test that makes allocations fail says so in a line `link: --wrap=…` at its top.
wraps = $(addprefix -Wl$(comma),$(shell sed -n '1,5s/^.*link: \(.*\) \*\/.*$$/\1/p' $(1)))

# The second door of `make check-truth`, on the library that others link.
TRUTH_DOOR = $(B)/tests/truth/door
$(TRUTH_DOOR): tests/truth/door.c $(B)/libtandem.so
	@mkdir -p $(@D)
	@echo "  link  $@"
	@$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -MMD -MP -o $@ $< -L$(B) -ltandem -Wl,-rpath,'$$ORIGIN/../..'

# The CUDA backend as a library, on what tests put in the place of NVIDIA's:
# TANDEM_CUDA=build/tests/libtandem_cuda.so runs any command.
CUDA_STAND_IN = $(CUDA_HOST) $(CUDA_AS_COROUTINES) $(B)/obj/tests/cuda/stand_in.o \
    $(B)/obj/tests/cuda/stand_in_graph.o $(CUDA_BELOW)
$(B)/tests/libtandem_cuda.so: $(CUDA_STAND_IN)
	@mkdir -p $(@D)
	@echo "  link  $@"
	@$(CXX) -shared $(LDFLAGS) -Wl,-Bsymbolic -o $@ $(CUDA_STAND_IN) -lpthread -lm

# The kernels for other programs on the same, for tests/python.
CUDA_KERNELS_STAND_IN = $(CUDA_FOR_OTHERS) $(addprefix $(B)/obj/simt/,quantise.o bytes.o) $(addprefix \
    $(B)/obj/tests/cuda/,stand_in.o stand_in_graph.o)
$(B)/tests/libtandem_cuda_kernels.so.0: backend/cuda/libtandem_cuda_kernels.map $(CUDA_KERNELS_STAND_IN)
	@mkdir -p $(@D)
	@echo "  link  $@"
	@$(CXX) -shared $(LDFLAGS) -Wl,--version-script=$< -o $@ $(CUDA_KERNELS_STAND_IN) -lpthread -lm

# What a test may need, as a thin archive: a program takes what it names, and links in a tenth of a second. A
# test that names its folder in a line `folder: NAME` at its top gets that folder and what it may use
# (folders.mk).
folder_of = $(or $(shell sed -n '1,6s/^.*folder: \([a-z]*\) \*\/.*$$/\1/p' $(1)),all)
TEST_PARTS = $(patsubst %,$(B)/tests/parts-%.a,$(FOLDERS) all)
define parts_rule
$(B)/tests/parts-$(1).a: $(foreach folder,$(1) $(USES_$(1)),$(PARTS_$(folder))) $(MODEL_FILES) $(TEST_SUPPORT)
endef
$(foreach folder,$(FOLDERS),$(eval $(call parts_rule,$(folder))))
$(B)/tests/parts-all.a: $(CORE) $(MODEL_FILES) $(PARTS_backend) $(SLURM_PARTS) $(MCKP) $(CARD_BENCH) \
    $(TEST_SUPPORT)
$(TEST_PARTS):
	@mkdir -p $(@D)
	@rm -f $@
	@ar rcsT $@ $^

# Tests may ignore results that glibc wants used. Most tests do not use the state that cmocka passes.
$(B)/tests/% $(B)/obj/tests/%: private CFLAGS += -Wno-unused-result -Wno-unused-parameter

$(TESTS): | $(B)/tests/libtandem_cuda.so $(B)/tests/libtandem_cuda_kernels.so.0
$(B)/tests/%: tests/%.c $(TEST_PARTS) $(B)/obj/tests/support/fail_allocation.o
	@mkdir -p $(@D)
	@echo "  test  $@"
	@$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -MMD -MP -o $@ $< $(if $(call wraps,$<),$(call wraps,$<) \
	    $(B)/obj/tests/support/fail_allocation.o) \
	    $(B)/tests/parts-$(call folder_of,$<).a -lcmocka $(CORE_LIBS) $(BACKEND_LIBS) -ldl

SCRIPTS = tests/cli/run.sh $(sort $(wildcard tests/cli/test_*.sh)) tests/slurm/run.sh tests/fuzz/run.sh \
    $(sort $(wildcard tests/torch/test_*.sh tests/python/test_*.sh))
# ONLY='unit fault/test_comm' builds and runs those whose names begin so.
ONLY =
# CPU=avx2: they see a CPU without AVX-512, so that its kernels and its speed are tested on a larger one, too.
CPU =
WITHOUT_AVX512 = $(B)/tests/without_avx512.so
$(WITHOUT_AVX512): tests/support/without_avx512.c
	@mkdir -p $(@D)
	@echo "  link  $@"
	@$(CC) -O2 $(WARN) -fPIC -shared -Wl,-z,initfirst -o $@ $<
CHOSEN = $(if $(ONLY),$(filter $(foreach name,$(ONLY),$(B)/tests/$(name)% tests/$(name)%),$(TESTS) \
    $(SCRIPTS)),$(TESTS) $(SCRIPTS))
test: setup ## builds and runs the tests; ONLY='unit fault/test_comm' those whose names begin so; CPU=avx2
	$(eval begin := $(shell date +%s))
	@$(MAKE) --no-print-directory -j$$(nproc) all $(TRUTH_DOOR) \
	    $(if $(ONLY),$(filter $(TESTS),$(CHOSEN)),tests) \
	    $(if $(filter avx2,$(CPU)),$(WITHOUT_AVX512))
	@B=$(B) TEST_PRELOAD=$(if $(filter avx2,$(CPU)),$(abspath $(WITHOUT_AVX512))) \
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

# Tests, lint and sanitizers: what .ci/run runs, and all of it.
check: ## tests, lint and the tests that find most under sanitizers
	@scripts/check.sh
check-all: ## tests, lint, and all tests under sanitizers
	@scripts/check.sh --all

# What `tandem allocate` answers, against every plan there is (tests/truth): PROBLEM=17 judges one again,
# FROM= and TO= a part, SEED= other ones.
check-truth: all $(TRUTH_DOOR) ## 300 problems of allocate against every plan; PROBLEM=17, FROM=1 TO=9
	@tests/truth/check_truth.py $(B) $(addprefix --problem ,$(PROBLEM)) $(addprefix --from ,$(FROM)) \
	    $(addprefix --to ,$(TO)) $(addprefix --seed ,$(SEED)) $(addprefix --jobs ,$(JOBS))

# The same tests with NVIDIA's libraries behind them, for a card, and bench_gpu; `make test` builds them
# where nvcc is, so that they stay whole. They are one program, which has a name for each.
CARD_NAMES = $(shell sed -n 's/^PROGRAM(\(.*\))$$/\1/p' tests/cuda/gpu_programs.def)
CARD_PROGRAMS = $(if $(SAN),,$(if $(NVCC),$(addprefix $(B)/card/,$(CARD_NAMES))))
CARD_SUPPORT = $(call objects,$(addprefix tests/support/,every_case.c gradient_check.c metrics.c \
    operator_case.c reference.c) \
                              $(addprefix tests/cuda/,mirror.c on_card.c gpu_programs.c) \
                              $(addprefix backend/data/,idx.c data_file.c))
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
	@$(CXX) -pie $(LDFLAGS) -o $@ $(filter %.o,$^) -lcmocka $(CUDA_LIBS) -lgsl -lgslcblas -ljansson -lz \
	    -lm
$(CARD_PROGRAMS): $(B)/card/gpu_programs
	@ln -f $< $@

# Imported models against PyTorch and ONNX's own cases (tests/onnx): minutes, so no part of `make test`.
ONNX_TRAIN = $(B)/tests/onnx/train_steps
$(ONNX_TRAIN): $(B)/obj/tests/onnx/train_steps.o $(CORE) $(MODEL_FILES) $(BACKEND)
	@mkdir -p $(@D)
	@echo "  link  $@"
	@$(CXX) $(LDFLAGS) -o $@ $^ $(CORE_LIBS) $(BACKEND_LIBS)

test-onnx: all $(ONNX_TRAIN) ## imported models against PyTorch, and ONNX's own cases
	@tests/onnx/run.sh $(B)

tests: $(TESTS) $(B)/bench/mckp $(B)/tests/libtandem_cuda.so $(B)/tests/libtandem_cuda_kernels.so.0 \
    $(CARD_PROGRAMS)

# --- Without one: what the kernels' machine code allows ---
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

bench-cuda: all $(B)/card/bench_gpu
	@bench/cuda/clocks.sh $(B)/card/bench_gpu
	@bench/cuda/clocks.sh bench/cuda/steps.sh $(B)/tandem

card-kit: all $(CARD_PROGRAMS)
	@scripts/card_kit.sh $(B)
endif

# --- Fuzzing with coverage guidance: the code that targets parse with, by clang, in a folder of its own
# (docs/fuzzing.md) ---
FUZZ_CC = clang-14
FUZZED = $(CORE) $(MODEL_FILES) $(SLURM_PARTS) $(PARTS_report) \
    $(call objects,tests/support/draw.c tests/support/page_check.c \
        $(call sources,backend $(addprefix backend/,executor device data)))
$(B)/libfuzzed.a: $(FUZZED)
	@rm -f $@
	@ar rcs $@ $^

$(B)/libfuzzer_%: $(B)/obj/tests/fuzz/fuzz_%.o $(B)/obj/tests/fuzz/libfuzzer/main.o $(B)/libfuzzed.a
	@echo "  link  $@"
	@$(CC) $(LDFLAGS) -o $@ $^ $(shell $(CC) -print-file-name=libclang_rt.fuzzer_no_main-x86_64.a) -lstdc++ \
	    $(CORE_LIBS) -ldl -lpthread

fuzz fuzz-minimise: ## coverage-guided fuzzing of TARGET (docs/fuzzing.md)
	@FUZZ_CC="$(FUZZ_CC)" scripts/fuzz.sh $(@:fuzz-minimise=minimise) "$(TARGET)"

# Which breaks of the product no test notices (docs/testing.md): 200 lines that SEED draws are broken in
# copies of the tree, one at a time. It goes on where it was stopped. MUTANTS=--survivors: those once more.
SEED = 1
MUTANTS =
mutants: setup ## breaks 200 lines, and lists those that no test notices; SEED=1, ONLY, MUTANTS=OPTIONS
	@python3 scripts/mutants --seed $(SEED) --only "$(ONLY)" --sources "$(FOLDERS) python/tandem" \
	    --programs "$(TESTS:$(B)/tests/%=%)" --scripts "$(SCRIPTS:tests/%=%)" \
	    --products "all $(B)/tests/libtandem_cuda.so $(B)/tests/libtandem_cuda_kernels.so.0" $(MUTANTS)

# The tables of docs/study, by the commands that stand in them.
STUDY_PARTS = rounding gradient sampled batch
STUDY_KEPT = rank add exchange crossed null price plans drift
study: all ## the study of low precision: tables in docs/study
	@for part in $(STUDY_PARTS); do \
	    $(B)/tandem study $$part --output docs/study/$$part || [ $$? = 1 ] || exit; \
	done
	@for part in $(STUDY_KEPT); do \
	    $(B)/tandem study $$part --checkpoint docs/study/$$part.jsonl --output docs/study/$$part || \
	        [ $$? = 1 ] || exit; \
	done

demo: setup ## the whole loop on this machine, in minutes
	@$(MAKE) --no-print-directory -j$$(nproc) all
	@$(B)/tandem demo

# --- Installing: `make install`, with PREFIX and DESTDIR; `make uninstall` takes away the same ---
DESTDIR =
PREFIX = /usr/local
INTO = $(DESTDIR)$(PREFIX)
VERSION = $(shell sed -n 's/^\#define TANDEM_VERSION "\(.*\)"/\1/p' include/tandem/status.h)

CUDA_INSTALLS = $(if $(filter %.so,$(CUDA_LIBRARY)),tandem_cuda_kernels)

install: all api ## program, libraries, headers, man page; PREFIX, DESTDIR
	install -d $(addprefix $(INTO)/,bin lib/pkgconfig include/tandem/advanced share/man/man1 \
	    share/doc/tandem/examples)
	install -m 755 $(B)/tandem $(INTO)/bin/
	install -m 644 $(B)/libtandem.so.0 $(B)/libtandem_kernels.so.0 $(B)/libtandem_backend.so \
	    $(wildcard $(B)/libtandem_cuda.so) $(if $(CUDA_INSTALLS),$(B)/libtandem_cuda_kernels.so.0) \
	    $(INTO)/lib/
	ln -sf libtandem.so.0 $(INTO)/lib/libtandem.so
	ln -sf libtandem_kernels.so.0 $(INTO)/lib/libtandem_kernels.so
	$(if $(CUDA_INSTALLS),ln -sf libtandem_cuda_kernels.so.0 $(INTO)/lib/libtandem_cuda_kernels.so)
	for pc in tandem tandem_kernels $(CUDA_INSTALLS); do sed -e 's|@PREFIX@|$(PREFIX)|' -e \
	    's|@VERSION@|$(VERSION)|' $$pc.pc.in \
	    >$(INTO)/lib/pkgconfig/$$pc.pc || exit 1; done
	install -m 644 $(wildcard include/tandem/*.h include/tandem/*.def) $(INTO)/include/tandem/
	install -m 644 include/tandem/advanced/* $(INTO)/include/tandem/advanced/
	install -m 644 docs/tandem.1 $(INTO)/share/man/man1/
	install -m 644 $(B)/api.md $(INTO)/share/doc/tandem/
	install -m 644 docs/examples/* $(INTO)/share/doc/tandem/examples/

# Slurm's plug-ins go where Slurm looks for them.
SLURM_PLUGIN_DIR = /usr/lib/x86_64-linux-gnu/slurm-wlm
install-slurm: $(PLUGINS) ## Slurm's plug-ins, where Slurm looks for them
	install -d $(DESTDIR)$(SLURM_PLUGIN_DIR)
	install -m 644 $(filter %.so,$^) $(DESTDIR)$(SLURM_PLUGIN_DIR)/

uninstall: ## takes away what install put there
	rm -f $(addprefix $(INTO)/,bin/tandem $(addprefix lib/libtandem,.so .so.0 _kernels.so _kernels.so.0 \
	    _backend.so _cuda.so \
	    _cuda_kernels.so _cuda_kernels.so.0) $(addprefix lib/pkgconfig/tandem,.pc _kernels.pc \
	    _cuda_kernels.pc) share/man/man1/tandem.1)
	rm -rf $(INTO)/include/tandem $(INTO)/share/doc/tandem

# --- Care ---
help: ## this list
	@echo "usage: make [TARGET] [SAN=address,undefined|thread]"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | sort | expand -t 22
	@printf '  %-20s%s\n' "test-FOLDER" "tests of one folder: $(FOLDERS)"

compdb: ## compile_commands.json, for clangd and other tools
	@$(MAKE) -nB --no-print-directory NVCC= all tests | perl scripts/compdb.pl >compile_commands.json

api: ## the API reference from the headers, build/api.md
	@mkdir -p $(B)
	@perl scripts/api.pl >$(B)/api.md

lines: ## lines of code, without comments and blank lines, by folder
	@perl scripts/lines.pl

C_FILES = $(shell git ls-files '*.c' '*.h' '*.cc' '*.cu')
format: ## clang-format 14
	clang-format -i $(C_FILES)

lint: all $(TEXT_HEADERS) $(MESSAGES)
lint: ## clang-tidy, cppcheck, words, structure
	scripts/lint.sh

clean: ## removes build/
	rm -rf build

.SECONDARY:
.PHONY: study test-report mutants check-truth
.PHONY: help api compdb lines all no-plugins no-cuda setup test check check-all tests cuda-limits test-cuda \
    bench-cuda card-kit fuzz fuzz-minimise demo install install-slurm uninstall format lint clean
-include $(shell find $(B) -path $(B)/mutants -prune -o -name '*.d' -print 2>/dev/null)
