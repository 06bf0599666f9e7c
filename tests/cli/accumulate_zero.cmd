$TANDEM train --model mlp --device cpu:avx2 --accumulate 0
