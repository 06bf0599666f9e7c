$TANDEM sensitivity --model mlp --data fashion-mnist --device cpu:avx2,cpu:sse41
