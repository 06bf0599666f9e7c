$TANDEM allocate --model mlp --device cpu:avx2 --batch auto
