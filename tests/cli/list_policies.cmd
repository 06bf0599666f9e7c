$TANDEM list policies
