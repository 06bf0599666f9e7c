$TANDEM replay --model mlp --device cpu:sse41 --uniform bf16
