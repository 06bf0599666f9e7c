$TANDEM replay --model mlp --device t4 --recompute block
