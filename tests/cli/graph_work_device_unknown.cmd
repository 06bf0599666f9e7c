$TANDEM graph work mlp --device h20
