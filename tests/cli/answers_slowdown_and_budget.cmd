$TANDEM allocate --model mlp --device cpu:avx2 --slowdown 3% --budget 1e-8
