$TANDEM train --model mlp --device cpu:avx2 --timeout 5
