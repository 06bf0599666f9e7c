$TANDEM --help
