# Which folder may use which. `make lint` holds includes and symbols to it (scripts/lint_structure.pl), and a
# test that names its folder links no more than that folder and what it may use.
FOLDERS = base graph step profiles predictor trace replayer allocator plugins kernels data backend report \
    runtime cli
USES_base =
USES_graph = base
USES_step = base graph
USES_profiles = base graph step
USES_predictor = base graph step profiles
USES_trace = base graph step profiles predictor
USES_replayer = base graph step profiles predictor trace
USES_allocator = base graph step profiles predictor replayer
USES_plugins = base graph step profiles predictor replayer allocator
USES_kernels = base
USES_data = base
USES_backend = base graph step kernels data
USES_runtime = base graph step profiles predictor trace replayer allocator data backend
USES_report = base graph step profiles predictor trace
USES_cli = base graph step profiles predictor trace replayer allocator data backend runtime report

# Programs that are not installed (mk/programs.mk). They may use all, private headers too, and nothing uses
# them.
PROGRAMS = research bench tools
USES_research = $(FOLDERS)
USES_bench = $(FOLDERS)
USES_tools = $(FOLDERS)

# Internal headers that other folders include, each a contract between two folders:
#   build.h       how a graph is put together; zoo.h: its limits of models
#   chakra.h, chakra.pb-c.h, chrome.h, plan_json.h: the formats of files, for those that read and write them
#   isa_kernels.h, kernels.h, arguments.h: kernels, for the backend that launches them
#   step_timeline.h: a recorded step, for its drawing; page.h: what a page is drawn from; store_overview.h:
#   what a store holds, for a page
#   of runtime/: backend_library.h, process.h and rank_place.h are what a program does with its own process;
#   machine_check.h, sensitivity.h and run_steadiness.h are read for printing
SHARED = graph/ir/build.h graph/zoo/zoo.h profiles/plan/plan_json.h profiles/store/store_overview.h \
         profiles/format/chakra.h profiles/format/chakra.pb-c.h profiles/format/chrome.h \
         kernels/cpu/isa_kernels.h kernels/cpu/isa/isa.h kernels/cpu/isa/gemm_s8.h kernels/cpu/isa/amx.h \
         kernels/cuda/kernels.h \
         kernels/cuda/arguments.h \
         trace/reader/step_timeline.h report/page.h runtime/backend_library.h runtime/machine_check.h \
         runtime/process/process.h runtime/process/rank_place.h runtime/estimate/sensitivity.h \
         runtime/train/run_steadiness.h
