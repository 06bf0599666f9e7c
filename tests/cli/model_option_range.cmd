$TANDEM graph show mlp:depth=0
