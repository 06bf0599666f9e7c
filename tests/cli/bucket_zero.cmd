$TANDEM replay --model mlp --device cpu:sse41 --bucket 0B
