$TANDEM allocate --model mlp --device cpu:avx2 --policy uniform --uniform int8 --budget 1e-8
