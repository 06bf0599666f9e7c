$TANDEM compare --model mlp --device cpu:avx2 --steps 2
