$TANDEM replay --model mlp:depth=1 --device t4 --batch 64 --accumulate 2 --recompute 2 --predict --memory-timeline --details
