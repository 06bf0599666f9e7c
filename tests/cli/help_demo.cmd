$TANDEM demo --help
