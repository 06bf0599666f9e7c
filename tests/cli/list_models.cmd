$TANDEM list models
