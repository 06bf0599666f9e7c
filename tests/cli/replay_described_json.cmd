$TANDEM replay --model mlp --device l4 --predict --json
