# tandem: `make` builds, `make demo` runs the whole loop, `make test` runs the tests; `make setup` installs
# what they need. SAN=address,undefined or SAN=thread builds and tests with sanitizers, in a folder of its
# own.
# Subjects lie in mk/: flags, which parts an artefact has, how sources are compiled and artefacts linked.
SAN =
comma := ,
B := build$(if $(SAN),/$(subst $(comma),-,$(SAN)))
.DEFAULT_GOAL := all

include folders.mk
include mk/flags.mk mk/parts.mk mk/compile.mk mk/cuda.mk mk/ptx.mk mk/products.mk mk/programs.mk

all: $(CUDA_LIBRARY) $(addprefix $(B)/,tandem tandem-rank libtandem.so libtandem_runtime.so \
    libtandem_backend.so libtandem_kernels.so) $(PLUGINS) ## the program and the libraries

setup: ## compilers and libraries from Debian, once
	@scripts/setup.sh

missing:
	@scripts/setup.sh --missing

include mk/tests.mk mk/checks.mk mk/fuzz.mk mk/install.mk

# --- Runs ---
demo: missing ## the whole loop on this machine, in minutes
	@$(MAKE) --no-print-directory -j$$(nproc) all
	@$(B)/tandem demo

# --- Care ---
help: ## this list
	@echo "usage: make [TARGET] [SAN=address,undefined|thread]"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' Makefile mk/*.mk | sort | expand -t 22
	@printf '  %-20s%s\n' "test-FOLDER" "tests of one folder: $(FOLDERS) $(PROGRAMS)"

compdb: ## compile_commands.json, for clangd and other tools
	@$(MAKE) -nB --no-print-directory NVCC= all programs tests | perl scripts/compdb.pl >compile_commands.json

api: ## the API reference from the headers, build/api.md
	@mkdir -p $(B)
	@perl scripts/api.pl >$(B)/api.md

lines: ## lines of code, without comments and blank lines, by folder
	@perl scripts/lines.pl

clean: ## removes build/
	rm -rf build

.SECONDARY:
.PHONY: all setup missing demo help compdb api lines clean
-include $(shell find $(B) -path $(B)/mutants -prune -o -name '*.d' -print 2>/dev/null)
