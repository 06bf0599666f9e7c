$TANDEM sensitivity --help
