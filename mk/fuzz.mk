# Fuzzing with coverage guidance: the code that targets parse with, by clang, in a folder of its own
# (docs/fuzzing.md).
FUZZ_CC = clang-14
FUZZED = $(CORE) $(MODEL_FILES) $(SLURM_PARTS) $(PARTS_report) \
    $(call objects,tests/support/draw.c tests/support/page_check.c \
        $(call sources,data backend $(addprefix backend/,executor device)))
$(B)/libfuzzed.a: $(FUZZED)
	@rm -f $@
	@ar rcs $@ $^

$(B)/libfuzzer_%: $(B)/obj/tests/fuzz/fuzz_%.o $(B)/obj/tests/fuzz/libfuzzer/main.o $(B)/libfuzzed.a
	@echo "  link  $@"
	@$(CC) $(LINK_FLAGS) -o $@ $^ $(shell $(CC) -print-file-name=libclang_rt.fuzzer_no_main-x86_64.a) \
	    -lstdc++ $(CORE_LIBS) -ldl -lpthread

fuzz fuzz-minimise: ## coverage-guided fuzzing of TARGET (docs/fuzzing.md)
	@FUZZ_CC="$(FUZZ_CC)" scripts/fuzz.sh $(@:fuzz-minimise=minimise) "$(TARGET)"

.PHONY: fuzz fuzz-minimise
