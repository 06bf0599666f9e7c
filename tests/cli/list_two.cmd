$TANDEM list models devices
