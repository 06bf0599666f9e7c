$TANDEM graph show mlp
