$TANDEM replay --model mlp --device cpu:avx2:x
