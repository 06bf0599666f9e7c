$TANDEM allocate --model mlp --device cpu:avx2 --policy gredy
