$TANDEM allocate --model mlp --device cpu:avx2 --batch free --global-batch 64 --explain fc1
