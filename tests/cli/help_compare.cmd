$TANDEM compare --help
