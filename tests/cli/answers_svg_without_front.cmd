$TANDEM allocate --model mlp --device cpu:avx2 --svg front.svg
