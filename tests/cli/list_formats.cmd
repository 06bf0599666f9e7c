$TANDEM list formats
