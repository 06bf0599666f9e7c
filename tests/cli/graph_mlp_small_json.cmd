$TANDEM graph show mlp:width=4,depth=1,image=2x2x1 --batch 3 --json
