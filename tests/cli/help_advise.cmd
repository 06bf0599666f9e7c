$TANDEM advise --help
