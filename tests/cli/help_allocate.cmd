$TANDEM allocate --help
