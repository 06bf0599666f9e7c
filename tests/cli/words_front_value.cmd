$TANDEM allocate --model mlp --device cpu:avx2 --front 5
