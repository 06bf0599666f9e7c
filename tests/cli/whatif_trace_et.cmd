"$TANDEM" whatif "$FIXTURES/chakra.0.et" --trace ideal.et
