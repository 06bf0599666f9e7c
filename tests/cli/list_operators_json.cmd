$TANDEM list operators --json
