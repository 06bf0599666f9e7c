# `make install`, with PREFIX, LIBDIR and DESTDIR; `make uninstall` takes away the same. The program looks for
# libtandem_backend.so beside itself, in ../lib and where the loader looks, and for tandem-rank beside
# itself and in ../libexec/tandem.
DESTDIR =
PREFIX = /usr/local
LIBDIR = $(PREFIX)/lib
INTO = $(DESTDIR)$(PREFIX)
LIB_INTO = $(DESTDIR)$(LIBDIR)
VERSION = $(shell sed -n 's/^\#define TANDEM_VERSION "\(.*\)"/\1/p' include/tandem/status.h)

CUDA_INSTALLS = $(if $(filter %.so,$(CUDA_LIBRARY)),tandem_cuda_kernels)
FOR_LINKING = tandem tandem_runtime tandem_kernels $(CUDA_INSTALLS)

install: all api ## program, libraries, headers, man page; PREFIX, DESTDIR
	install -d $(addprefix $(INTO)/,bin include/tandem/advanced share/man/man1 share/doc/tandem/examples) \
	    $(LIB_INTO)/pkgconfig $(INTO)/libexec/tandem
	install -m 755 $(B)/tandem $(INTO)/bin/
	install -m 755 $(B)/tandem-rank $(INTO)/libexec/tandem/
	install -m 644 $(patsubst %,$(B)/lib%.so.0,$(FOR_LINKING)) $(B)/libtandem_backend.so \
	    $(wildcard $(B)/libtandem_cuda.so) $(LIB_INTO)/
	for name in $(FOR_LINKING); do ln -sf lib$$name.so.0 $(LIB_INTO)/lib$$name.so && \
	    sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))|' \
	        -e 's|@VERSION@|$(VERSION)|' $$name.pc.in >$(LIB_INTO)/pkgconfig/$$name.pc || exit 1; done
	install -m 644 $(wildcard include/tandem/*.h include/tandem/*.def) $(INTO)/include/tandem/
	install -m 644 include/tandem/advanced/* $(INTO)/include/tandem/advanced/
	install -m 644 docs/tandem.1 $(INTO)/share/man/man1/
	install -m 644 $(B)/api.md $(INTO)/share/doc/tandem/
	install -m 644 docs/examples/* $(INTO)/share/doc/tandem/examples/

# Slurm's plug-ins go where Slurm looks for them: pkg-config knows, or they go beside those that are there.
SLURM_PLUGIN_DIR = $(or $(shell pkg-config --variable=plugindir slurm 2>/dev/null),$(firstword $(wildcard \
    $(addsuffix /slurm-wlm,/usr/lib/$(shell $(CC) -print-multiarch)) /usr/lib64/slurm)),/usr/lib/slurm)
install-slurm: $(PLUGINS) ## Slurm's plug-ins, where Slurm looks for them
	install -d $(DESTDIR)$(SLURM_PLUGIN_DIR)
	install -m 644 $(filter %.so,$^) $(DESTDIR)$(SLURM_PLUGIN_DIR)/

uninstall: ## takes away what install put there
	rm -f $(addprefix $(INTO)/,bin/tandem share/man/man1/tandem.1) \
	    $(addprefix $(LIB_INTO)/libtandem,.so .so.0 _runtime.so _runtime.so.0 _kernels.so _kernels.so.0 \
	        _backend.so _cuda.so _cuda_kernels.so _cuda_kernels.so.0) \
	    $(addprefix $(LIB_INTO)/pkgconfig/tandem,.pc _runtime.pc _kernels.pc _cuda_kernels.pc)
	rm -rf $(INTO)/include/tandem $(INTO)/share/doc/tandem $(INTO)/libexec/tandem

.PHONY: install install-slurm uninstall
