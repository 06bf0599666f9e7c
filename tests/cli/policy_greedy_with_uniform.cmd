$TANDEM allocate --model mlp --device cpu:avx2 --uniform int8
