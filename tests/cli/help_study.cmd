$TANDEM-study --help
