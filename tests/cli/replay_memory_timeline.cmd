$TANDEM replay --model mlp --device t4 --batch 64 --accumulate 2 --recompute 3 --predict --memory-timeline -v
