head -c 100 "$FIXTURES/chakra.0.et" | gzip -n >cut.0.et.gz && "$TANDEM" whatif cut.0.et.gz
