$TANDEM graph show mlp --batch 0
