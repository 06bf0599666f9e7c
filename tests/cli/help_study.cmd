$TANDEM study --help
