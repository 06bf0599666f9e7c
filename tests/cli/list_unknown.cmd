$TANDEM list polices
