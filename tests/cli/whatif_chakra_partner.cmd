head -c 91 "$FIXTURES/chakra.1.et" >chakra.1.et && "$TANDEM" whatif "$FIXTURES/chakra.0.et" chakra.1.et 2>&1 | sed "s|'[^']*/|'|"
