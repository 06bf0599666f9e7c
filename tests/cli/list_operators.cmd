$TANDEM list operators
