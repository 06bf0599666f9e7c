$TANDEM report --help
