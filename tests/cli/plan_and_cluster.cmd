$TANDEM replay --plan plan.json --cluster cpu:avx2
