$TANDEM list precisions --json
