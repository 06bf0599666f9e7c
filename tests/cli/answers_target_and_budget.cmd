$TANDEM allocate --model mlp --device cpu:avx2 --max-step 200ms --max-sensitivity 1%
