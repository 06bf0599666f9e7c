$TANDEM --json list policies
