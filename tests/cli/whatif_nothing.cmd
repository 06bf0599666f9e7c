$TANDEM whatif
