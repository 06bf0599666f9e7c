# The program and the libraries.

# Standard output of our own objects is a stream of results, that of libraries is not (cli/standard_files.c).
RESULTS = $(addprefix -Wl$(comma)--wrap=,stdout printf vprintf __printf_chk __vprintf_chk puts putchar)
$(B)/tandem: $(CLI) $(PARTS_runtime) $(PARTS_report) $(PARTS_data) $(CORE) $(MODEL_FILES)
	@echo "  link  $@"
	@$(CC) -pie $(LINK_FLAGS) $(RESULTS) -o $@ $^ $(CORE_LIBS) -ldl

# One rank of a run; the runtime's library starts it.
$(B)/tandem-rank: $(B)/obj/runtime/rank_main.o $(PARTS_runtime) $(CORE) $(MODEL_FILES)
	@echo "  link  $@"
	@$(CC) -pie $(LINK_FLAGS) -o $@ $^ $(CORE_LIBS) -ldl

# For others to link: a soname with the number of the interface, and nothing undefined.
FOR_OTHERS = $(call LIBRARY_FLAGS,$<) -Wl,-Bsymbolic-functions -Wl,-z,defs
$(B)/libtandem.so.0: libtandem.map $(CORE) $(MODEL_FILES)
	@echo "  link  $@"
	@$(CC) $(FOR_OTHERS) -o $@ $(filter %.o,$^) $(CORE_LIBS)

# All of libtandem, and what runs: a program links the one or the other.
$(B)/libtandem_runtime.so.0: libtandem.map $(PARTS_runtime) $(CORE) $(MODEL_FILES)
	@echo "  link  $@"
	@$(CC) $(FOR_OTHERS) -o $@ $(filter %.o,$^) $(CORE_LIBS) -ldl

$(B)/libtandem_kernels.so.0: libtandem.map $(B)/obj/base/cpu_tiles.o $(B)/obj/base/printable.o \
                            $(B)/obj/base/status.o $(KERNELS)
	@echo "  link  $@"
	@$(CC) $(FOR_OTHERS) -o $@ $(filter %.o,$^) -lm

$(B)/libtandem_cuda_kernels.so.0: kernels/cuda/libtandem_cuda_kernels.map $(CUDA_KERNEL_LIBRARY)
	@echo "  link  $@"
	@$(CXX) $(FOR_OTHERS) -o $@ $(filter %.o,$^) -L$(CUDA_HOME)/lib64 -lcudart -lcublasLt -lm

$(addprefix $(B)/libtandem,.so _runtime.so _kernels.so _cuda_kernels.so): %.so: %.so.0
	@ln -sf $(<F) $@

# Opened by this name, and not linked.
$(B)/libtandem_backend.so: libtandem_backend.map $(BACKEND) $(FOUNDATION)
	@echo "  link  $@"
	@$(CXX) $(call LIBRARY_FLAGS,$<) -o $@ $(filter %.o,$^) $(BACKEND_LIBS)

$(B)/libtandem_cuda.so: backend/cuda/libtandem_cuda.map $(CUDA_ON_CARD) $(CUDA_BELOW)
	@echo "  link  $@"
	@$(CXX) $(call LIBRARY_FLAGS,$<) -o $@ $(filter %.o,$^) $(CUDA_LIBS)

# Slurm's plug-ins, where its headers are; no sanitizer fits into its daemons.
SLURM_HEADER = $(wildcard /usr/include/slurm/spank.h)
PLUGINS = $(if $(SAN),,$(if $(SLURM_HEADER),$(addprefix $(B)/,spank_tandem.so spank_tandem_planner.so \
    job_submit_tandem.so),no-plugins))
PLUGIN_MAP = plugins/slurm/plugin.map
$(B)/spank_tandem.so: $(SPANK) $(PLUGIN_MAP)
	@echo "  link  $@"
	@$(CC) $(call LIBRARY_FLAGS,$(PLUGIN_MAP)) -o $@ $(filter %.o,$^)

# In Slurm a path is no name of a model: tandem_graph_open is the zoo's there.
$(B)/spank_tandem_planner.so: $(SPANK_PLANNER) $(SLURM_PARTS) $(CORE) $(PLUGIN_MAP)
	@echo "  link  $@"
	@$(CC) $(call LIBRARY_FLAGS,$(PLUGIN_MAP)) -Wl,--defsym=tandem_graph_open=tandem_graph_open_zoo -o $@ \
	    $(filter %.o,$^) $(CORE_LIBS)

$(B)/job_submit_tandem.so: $(JOB_SUBMIT) $(PLUGIN_MAP)
	@echo "  link  $@"
	@$(CC) $(call LIBRARY_FLAGS,$(PLUGIN_MAP)) -o $@ $(filter %.o,$^) -lm

no-plugins:
	@echo "  skip  spank_tandem.so, spank_tandem_planner.so, job_submit_tandem.so: Slurm's headers" \
	    "are not here (scripts/setup.sh --slurm)"

$(B)/bench/mckp: $(B)/obj/bench/mckp/main.o $(MCKP) $(CORE) $(MODEL_FILES)
	@mkdir -p $(@D)
	@echo "  link  $@"
	@$(CC) $(LINK_FLAGS) -o $@ $^ $(CORE_LIBS)

.PHONY: no-plugins
