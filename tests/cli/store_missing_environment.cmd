TANDEM_DB=nowhere/costs.db $TANDEM replay --model mlp --device cpu:avx2
