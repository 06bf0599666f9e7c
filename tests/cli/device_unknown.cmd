$TANDEM replay --model mlp --device cpu:axv2
