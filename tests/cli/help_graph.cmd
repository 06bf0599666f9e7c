$TANDEM graph --help
