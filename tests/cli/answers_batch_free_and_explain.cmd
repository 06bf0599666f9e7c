$TANDEM allocate --model mlp --device cpu:avx2 --batch auto --global-batch 64 --explain fc1
