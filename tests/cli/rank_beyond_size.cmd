RANK=3 WORLD_SIZE=2 TANDEM_STORE=. $TANDEM train --model mlp --device cpu:avx2,cpu:avx2
