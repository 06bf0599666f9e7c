$TANDEM bench --help
