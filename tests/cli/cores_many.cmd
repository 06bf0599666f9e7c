$TANDEM train --model mlp --device cpu:avx2:1000
