$TANDEM replay --help
