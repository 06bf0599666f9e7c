$TANDEM replay --model mlp --cluster cpu:avx2 + cpu:sse41
