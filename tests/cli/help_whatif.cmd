$TANDEM whatif --help
