# What each artefact is made of. The backend carries its own base and graph, so that it links nothing of the
# core's libraries; the program carries all of the core, so that it runs from wherever it lies. Only what
# include/tandem/ declares is exported.
objects = $(patsubst %,$(B)/obj/%.o,$(basename $(1)))
sources = $(wildcard $(addsuffix /*.c,$(1)))

PARTS_base = $(call objects,$(call sources,base))
PARTS_graph = $(call objects,$(call sources,$(addprefix graph/,format ir zoo)))
PARTS_step = $(call objects,$(call sources,$(addprefix step/,program fusion state_space)))
# Models in files of users, and tandem_graph_open, which opens them: no part of the backend and of Slurm's
# plug-ins.
MODEL_FILES = $(B)/obj/graph/onnx/onnx.pb-c.o $(call objects,$(call sources,graph graph/onnx graph/recording))
PARTS_profiles = $(B)/obj/profiles/format/chakra.pb-c.o \
                 $(call objects,$(call sources,profiles $(addprefix profiles/,store cluster plan format)))
PARTS_predictor = $(call objects,$(call sources,predictor))
PARTS_trace = $(call objects,$(call sources,trace $(addprefix trace/,reader whatif torch)))
PARTS_replayer = $(call objects,$(call sources,replayer))
PARTS_allocator = $(call objects,$(call sources,allocator $(addprefix allocator/,policy bound queries)))
PARTS_report = $(call objects,$(call sources,report report/section))
PARTS_plugins = $(SLURM_PARTS)
PARTS_data = $(call objects,$(call sources,data))
PARTS_kernels = $(CPU_KERNELS) $(B)/obj/kernels/cuda/cuda_kernels.o $(CUDA_AS_COROUTINES)
PARTS_backend = $(BACKEND) $(CUDA_HOST) $(CUDA_PUBLIC)
# What reads JSON needs jansson: not for slurmctld, and not for libraries of kernels.
JSON = $(B)/obj/base/json.o
FOUNDATION = $(filter-out $(JSON),$(PARTS_base)) $(PARTS_graph) $(PARTS_step)
CORE = $(FOUNDATION) $(JSON) $(foreach folder,profiles predictor trace replayer allocator,$(PARTS_$(folder)))
PARTS_runtime = $(call objects,$(filter-out runtime/rank_main.c,$(call sources,runtime $(addprefix \
    runtime/,process train estimate profile compare trial))))
CLI = $(call objects,$(call sources,cli cli/command))
PARTS_cli = $(filter-out $(B)/obj/cli/main.o,$(CLI))
ISAS = sse41 avx avx2 avx2_vnni avx512 avx512_vnni
ISA_SOURCES = $(wildcard kernels/cpu/isa/*.c)
ISA_OBJECTS = $(foreach isa,$(ISAS),$(patsubst kernels/cpu/isa/%.c,$(B)/obj/isa/$(isa)/%.o,$(ISA_SOURCES)))
# Those that are divided among threads, with OpenMP: not for libraries of kernels.
DIVIDED_KERNELS = $(foreach isa,$(ISAS),$(B)/obj/isa/$(isa)/team.o)
BACKEND = $(call objects,$(call sources,backend $(addprefix backend/,executor device cpu cpu/op comm))) \
          $(B)/obj/backend/comm/gloo.o $(DIVIDED_KERNELS) $(CPU_KERNELS) $(PARTS_data)
CPU_KERNELS = $(call objects,$(call sources,kernels/cpu)) $(ISA_OBJECTS)
KERNELS = $(B)/obj/base/amax_history.o $(CPU_KERNELS)

# The CUDA backend's own code, but for the files that call NVIDIA's libraries; tests run it, its kernels too,
# without a card.
CUDA_LIBRARY_SOURCES = $(addprefix backend/cuda/,runtime.c clocks.c cublaslt.c cudnn.c)
CUDA_KERNELS = $(wildcard kernels/cuda/*.cu)
CUDA_PUBLIC = $(call objects,kernels/cuda/cuda_kernels.c backend/cuda/cuda_products.c)
CUDA_HOST = $(filter-out $(CUDA_PUBLIC),$(call objects,$(filter-out $(CUDA_LIBRARY_SOURCES),$(call \
    sources,backend/cuda backend/cuda/op))))
CUDA_AS_COROUTINES = $(patsubst kernels/cuda/%.cu,$(B)/obj/simt/%.o,$(CUDA_KERNELS))
CUDA_BELOW = $(B)/obj/backend/device/kernel_name.o $(FOUNDATION)
CUDA_ON_CARD = $(CUDA_HOST) $(call objects,$(CUDA_LIBRARY_SOURCES)) $(patsubst \
    %.cu,$(B)/obj/%.cu.o,$(CUDA_KERNELS))

# Casts and products for other programs, which link no more of NVIDIA's than cudart and cuBLASLt.
CUDA_FOR_OTHERS = $(CUDA_PUBLIC) $(call objects,$(addprefix backend/cuda/,algorithm_cache.c gpu.c kernel.c \
    planned_work.c product.c) backend/device/kernel_name.c) $(FOUNDATION)
CUDA_KERNEL_LIBRARY = $(CUDA_FOR_OTHERS) $(call objects,$(addprefix backend/cuda/,runtime.c clocks.c \
    cublaslt.c)) $(addprefix $(B)/obj/kernels/cuda/,quantise.cu.o bytes.cu.o)

# Slurm's plug-ins. SLURM_PARTS need no header of Slurm's. What slurmd and slurmstepd open, as root, links
# libc alone; the planner is a file of its own, which users' commands open.
SLURM_PARTS = $(call objects,$(addprefix plugins/slurm/,memory_fit.c job_plan.c layout.c run_folder.c site.c \
    step_plan.c submission.c))
SPANK = $(call objects,plugins/slurm/spank_tandem.c plugins/slurm/run_folder.c base/status.c base/printable.c)
SPANK_PLANNER = $(call objects,$(addprefix plugins/slurm/,spank_planner.c step_nodes.c))
JOB_SUBMIT = $(FOUNDATION) $(call objects,$(addprefix plugins/slurm/,job_submit_tandem.c submission.c \
    memory_fit.c site.c)) \
             $(call objects,$(addprefix profiles/,cluster/device.c plan/plan.c plan/assignment.c))

# Benchmarks that tests look into: the knapsack problem of policy exact as a program of its own, and what
# measures a card.
MCKP = $(call objects,$(addprefix bench/mckp/,solve_mckp.c read_mckp.c))
CARD_BENCH = $(call objects,$(addprefix bench/cuda/,attention.c kernels.c linear.c measure.c report.c))
