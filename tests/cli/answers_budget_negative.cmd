$TANDEM allocate --model mlp --device cpu:avx2 --max-sensitivity -1%
