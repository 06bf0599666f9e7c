# Compilers and flags. CPPFLAGS, CFLAGS, CXXFLAGS and LDFLAGS are the user's and come after our own; OPT and
# HARDEN are ours, to be replaced. WERROR=-Werror, from the command line or the environment, makes warnings
# errors.
CC = gcc
CXX = g++

# With a sanitizer, what compiles fastest: the tests are what takes time. gcc 12 warns of what is right at
# -O1.
WARN = $(if $(SAN),-w,-Wall -Wextra -Wshadow -Wconversion $(WERROR))
OPT = $(if $(SAN),-O1 -g1,-O2 -g)
SANFLAGS = $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all)
# What makes a defect of memory harder to use. Sanitizers look closer themselves, and a user's level stays.
FORTIFY = $(if $(findstring _FORTIFY_SOURCE,$(CPPFLAGS) $(CFLAGS)),,-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
HARDEN = $(if $(SAN),,-fstack-protector-strong $(FORTIFY))

OWN_CPPFLAGS = -D_GNU_SOURCE -I. -Iinclude -I$(B)/generated
OWN_CFLAGS = -std=c11 $(OPT) -ffp-contract=off -fPIC -fvisibility=hidden -fno-semantic-interposition $(WARN) \
    $(HARDEN) $(SANFLAGS)
OWN_CXXFLAGS = -std=c++17 $(OPT) -fPIC -fvisibility=hidden $(filter-out -Wshadow -Wconversion,$(WARN)) \
    $(HARDEN) $(SANFLAGS)
OWN_LDFLAGS = -Wl,-z,relro,-z,now $(SANFLAGS)

COMPILE_C = $(CC) $(OWN_CPPFLAGS) $(CPPFLAGS) $(OWN_CFLAGS) $(CFLAGS)
COMPILE_CXX = $(CXX) $(OWN_CPPFLAGS) $(CPPFLAGS) $(OWN_CXXFLAGS) $(CXXFLAGS)
LINK_FLAGS = $(OWN_LDFLAGS) $(LDFLAGS)
# A library, with the name of its file as its soname, that shows what the version script $(1) names.
LIBRARY_FLAGS = -shared $(LINK_FLAGS) -Wl,-soname,$(@F) -Wl,--version-script=$(1)

CORE_LIBS = -lsqlite3 -ljansson -lz -lprotobuf-c -lglpk -lgsl -lgslcblas -lm
BACKEND_LIBS = -ldnnl -lgloo -lgomp -ljansson -lz -lstdc++ -lpthread -lm

# What all objects are compiled with, but for warnings. Where the flags differ from those of the last build,
# the file is written again, and all that depends on it is built again.
# kept FILE FLAGS: the rule of such a file.
define kept
ifneq ($$(file <$(1)),$$($(2)))
.PHONY: $(1)
endif
$(1):
	@mkdir -p $$(@D)
	@printf '%s\n' '$$(subst ','\'',$$($(2)))' >$$@
endef
FLAGS := $(strip $(filter-out $(WARN) $(WERROR),$(COMPILE_C) $(COMPILE_CXX) $(LINK_FLAGS)))
$(eval $(call kept,$(B)/flags,FLAGS))
