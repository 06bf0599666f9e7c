$TANDEM allocate --model mlp --device cpu:avx2 --global-batch 64
