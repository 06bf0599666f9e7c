$TANDEM frobnicate
