$TANDEM replay --model mlp --cluster cpu:avx2 --device cpu:sse41
