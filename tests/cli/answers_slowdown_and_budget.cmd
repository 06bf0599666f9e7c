$TANDEM allocate --model mlp --device cpu:avx2 --slowdown 3% --max-sensitivity 1%
