$TANDEM list precisions
