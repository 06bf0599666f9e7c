$TANDEM profile --help
