$TANDEM replay --model mlp --device cpu:avx2 --uniform int9
