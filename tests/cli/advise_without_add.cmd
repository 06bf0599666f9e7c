$TANDEM advise --model mlp --cluster cpu:avx2
