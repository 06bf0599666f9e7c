$TANDEM list models --steps 3
