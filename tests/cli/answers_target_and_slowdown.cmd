$TANDEM allocate --model mlp --device cpu:avx2 --target 200ms --slowdown 3%
