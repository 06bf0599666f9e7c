$TANDEM replay --model mlp --device cpu:avx2 --batch auto
