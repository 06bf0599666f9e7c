$TANDEM list --help
