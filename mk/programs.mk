# Programs that are not installed: the study of low precision, the benchmarks, the fit of the constants of
# --predict. They share the command line with `tandem`, and link what they name of everything.
PARTS_research = $(call objects,$(filter-out research/main.c,$(call sources,research research/method)))
PARTS_bench = $(call objects,$(filter-out bench/program/main.c,$(call sources,bench/program)))
PARTS_tools = $(call objects,$(filter-out tools/main.c,$(call sources,tools)))

$(B)/programs.a: $(PARTS_cli) $(PARTS_runtime) $(PARTS_report) $(PARTS_data) $(CORE) $(MODEL_FILES) $(KERNELS)
	@rm -f $@
	@ar rcsT $@ $^

$(B)/tandem-study: $(B)/obj/research/main.o $(PARTS_research)
$(B)/tandem-bench: $(B)/obj/bench/program/main.o $(PARTS_bench)
$(B)/tandem-fit: $(B)/obj/tools/main.o $(PARTS_tools)
MADE_PROGRAMS = $(addprefix $(B)/tandem-,study bench fit)
$(MADE_PROGRAMS): $(B)/programs.a
	@echo "  link  $@"
	@$(CC) -pie $(LINK_FLAGS) $(RESULTS) -o $@ $(filter %.o,$^) $(B)/programs.a $(CORE_LIBS) -ldl

programs: $(MADE_PROGRAMS) ## tandem-study, tandem-bench and tandem-fit, which are not installed

# The tables of docs/study, by the commands in them.
STUDY_PARTS = rounding sampled batch
STUDY_KEPT = rank add exchange crossed null price plans drift
study: all $(B)/tandem-study ## the study of low precision: tables in docs/study
	@for part in $(STUDY_PARTS); do \
	    $(B)/tandem-study $$part --output docs/study/$$part || [ $$? = 1 ] || exit; \
	done
	@for part in $(STUDY_KEPT); do \
	    $(B)/tandem-study $$part --checkpoint docs/study/$$part.jsonl --output docs/study/$$part || \
	        [ $$? = 1 ] || exit; \
	done

.PHONY: programs study
