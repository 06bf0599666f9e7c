$TANDEM train --model mlp --device strongest --wire b16
