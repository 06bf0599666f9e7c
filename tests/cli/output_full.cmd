$TANDEM list models --json > /dev/full
