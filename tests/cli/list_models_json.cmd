$TANDEM list models --json
