$TANDEM replay --model mlp --cluster "2*cpu:avx2 net=10,5us"
