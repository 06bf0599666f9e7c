$TANDEM list policies --json
