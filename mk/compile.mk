# How a source becomes an object, and what is generated before.

# Texts that the program carries: path/name.ext becomes the C string name_ext of a header of its own.
TEXT_HEADERS = $(addprefix $(B)/generated/,schema_sql.h page_css.h page_js.h)
$(B)/generated/schema_sql.h: profiles/store/schema.sql
$(B)/generated/page_css.h: report/page.css
$(B)/generated/page_js.h: report/page.js
$(TEXT_HEADERS):
	@mkdir -p $(@D)
	@{ echo '/* made from $< */'; echo 'static const char $(basename $(@F))[] ='; \
	  sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/    "/' -e 's/$$/\\n"/' $<; echo '    ;'; } > $@

# Measured times of cards that ship: an array of names and texts.
MEASURED = $(sort $(wildcard profiles/devices/measured/*.csv))
$(B)/generated/measured_tables.h: $(MEASURED) mk/compile.mk
	@mkdir -p $(@D)
	@{ echo 'static const tandem_measured_file measured_tables[] = {'; for file in $(MEASURED); do \
	    echo "    {\"$$(basename $$file .csv)\","; \
	    sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/     "/' -e 's/$$/\\n"/' $$file; echo '    },'; done; \
	  echo '    {0}};'; } > $@
$(B)/obj/predictor/measured_check.o: $(B)/generated/measured_tables.h

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

$(patsubst $(B)/generated/%.h,$(B)/obj/%.o,$(MESSAGES)): $(B)/obj/%.o: $(B)/generated/%.c $(B)/flags
	@mkdir -p $(@D)
	@echo "  cc    $<"
	@$(COMPILE_C) -w -c -o $@ $<

$(B)/obj/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	@echo "  cc    $<"
	@$(COMPILE_C) -MMD -MP -c -o $@ $<

$(B)/obj/%.o: %.cc $(B)/flags
	@mkdir -p $(@D)
	@echo "  c++   $<"
	@$(COMPILE_CXX) -MMD -MP -c -o $@ $<

# Tables of functions fix the parameters of a kernel; most kernels leave some of them unused.
$(B)/obj/backend/%: private OWN_CFLAGS += -Wno-unused-parameter

# A header of Gloo's that Debian's package lacks.
$(B)/obj/backend/comm/gloo.o: private OWN_CXXFLAGS += -idirafter backend/comm/gloo_missing

# The team of threads.
$(B)/obj/backend/cpu/team.o: private OWN_CFLAGS += -fopenmp
# Square roots in vectors.
$(B)/obj/runtime/estimate/probe_direction.o: private OWN_CFLAGS += -fno-math-errno

# Kernels of our own, once for each instruction set.
ISA_FLAGS_sse41 = -msse4.1
ISA_FLAGS_avx = -mavx
ISA_FLAGS_avx2 = -mavx2 -mfma -mf16c
ISA_FLAGS_avx512 = $(ISA_FLAGS_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512cd
ISA_FLAGS_avx2_vnni = $(ISA_FLAGS_avx2) -mavxvnni
ISA_FLAGS_avx512_vnni = $(ISA_FLAGS_avx512) -mavx512vnni
define isa_rule
$(B)/obj/isa/$(1)/%.o: $(2)/%.c $(B)/flags
	@mkdir -p $$(@D)
	@echo "  cc    $$< for $(1)"
	@$$(COMPILE_C) -O3 -fno-math-errno -Wno-unused-parameter -DTANDEM_ISA=$(1) $(ISA_FLAGS_$(1)) -MMD -MP \
	    -c -o $$@ $$<
endef
$(foreach isa,$(ISAS),$(foreach folder,kernels/cpu/isa backend/cpu/isa,$(eval \
    $(call isa_rule,$(isa),$(folder)))))
