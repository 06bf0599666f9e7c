RANK=0 $TANDEM train --model mlp --device cpu:avx2,cpu:avx2
