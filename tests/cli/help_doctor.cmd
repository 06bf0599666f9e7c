$TANDEM doctor --help
