$TANDEM allocate --model mlp --device cpu:avx2 --front --target 1ms
