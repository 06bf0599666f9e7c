$TANDEM train --model mlp --device cuda:0:2
