$TANDEM allocate --model mlp --device cpu:avx2 --budget -1e-8
