$TANDEM replay --model mlp --device cpu:avx2,cpu:sse41,cpu:avx --uniform int8,fp32
