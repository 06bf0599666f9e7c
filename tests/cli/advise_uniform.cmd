$TANDEM advise --model mlp --cluster cpu:avx2 --add cpu:sse41 --policy uniform
