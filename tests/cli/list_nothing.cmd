$TANDEM list
