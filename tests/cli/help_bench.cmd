$TANDEM-bench --help
