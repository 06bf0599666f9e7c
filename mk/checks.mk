# What a change is held to, beside the tests.

# Tests, lint and sanitizers: what .ci/run runs, and all of it.
check: ## tests, lint and the tests that find most under sanitizers
	@scripts/check.sh
check-all: ## tests, lint, and all tests under sanitizers
	@scripts/check.sh --all

lint: all programs $(TEXT_HEADERS) $(MESSAGES)
lint: ## clang-tidy, cppcheck, words, structure
	scripts/lint.sh

structs: ## the Python package's C structs, from the headers
	@perl scripts/structs.pl >python/tandem/_structs.py.new
	@mv python/tandem/_structs.py.new python/tandem/_structs.py

C_FILES = $(shell git ls-files '*.c' '*.h' '*.cc' '*.cu')
format: ## clang-format 14
	clang-format -i $(C_FILES)

# What `tandem allocate` answers, against every plan there is (tests/truth): PROBLEM=17 judges one again,
# FROM= and TO= a part, SEED= other ones.
check-truth: all $(TRUTH_DOOR) ## 300 problems of allocate against every plan; PROBLEM=17, FROM=1 TO=9
	@tests/truth/check_truth.py $(B) $(addprefix --problem ,$(PROBLEM)) $(addprefix --from ,$(FROM)) \
	    $(addprefix --to ,$(TO)) $(addprefix --seed ,$(SEED)) $(addprefix --jobs ,$(JOBS))

# Which breaks of the product no test notices (docs/testing.md): 200 lines that SEED draws are broken in
# copies of the tree, one at a time. It goes on where it was stopped. MUTANTS=--survivors: those once more.
SEED = 1
MUTANTS =
mutants: missing ## breaks 200 lines, and lists those that no test notices; SEED=1, ONLY, MUTANTS=OPTIONS
	@python3 scripts/mutants --seed $(SEED) --only "$(ONLY)" --sources "$(FOLDERS) python/tandem" \
	    --programs "$(TESTS:$(B)/tests/%=%)" --scripts "$(SCRIPTS:tests/%=%)" \
	    --products "all programs $(TRUTH_DOOR) $(SLURM_DOOR) $(B)/tests/torch/probe_numbers \
	    $(B)/tests/libtandem_cuda.so $(B)/tests/libtandem_cuda_kernels.so.0" $(MUTANTS)

.PHONY: check check-all lint format check-truth mutants
