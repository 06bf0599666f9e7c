"$TANDEM" whatif "$FIXTURES/chakra.1.et" "$FIXTURES/chakra.0.et" --json
