$TANDEM graph show mlp:depth=1,depth=2
