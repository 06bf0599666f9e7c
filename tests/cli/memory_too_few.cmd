$TANDEM replay --model mlp --device cpu:avx2,cpu:sse41,cpu:avx --memory 1GiB,2GiB
