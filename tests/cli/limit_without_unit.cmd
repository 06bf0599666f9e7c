$TANDEM compare --model mlp --device cpu:avx2 --limit 5
