$TANDEM replay --model mlp
