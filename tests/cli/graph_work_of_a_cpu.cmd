$TANDEM graph work mlp --device cpu:avx2
