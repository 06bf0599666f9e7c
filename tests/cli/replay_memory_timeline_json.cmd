$TANDEM replay --model mlp:depth=1 --device t4 --batch 64 --predict --memory-timeline --json
