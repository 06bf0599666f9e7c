$TANDEM replay --model mlp --cluster "2*cpu:avx2:0"
