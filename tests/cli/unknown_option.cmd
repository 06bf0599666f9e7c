$TANDEM list models --jsno
