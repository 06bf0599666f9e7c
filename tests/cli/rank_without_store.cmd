RANK=0 WORLD_SIZE=2 $TANDEM train --model mlp --device cpu:avx2,cpu:avx2
