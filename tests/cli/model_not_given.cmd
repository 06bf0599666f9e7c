$TANDEM replay --cluster cpu:avx2
