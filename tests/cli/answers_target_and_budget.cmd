$TANDEM allocate --model mlp --device cpu:avx2 --target 200ms --budget 1e-8
