$TANDEM graph show mlp --batch 1.5
