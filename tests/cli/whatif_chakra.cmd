"$TANDEM" whatif "$FIXTURES/chakra.0.et" "$FIXTURES/chakra.1.et" -v
