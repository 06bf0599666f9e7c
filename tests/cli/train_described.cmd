$TANDEM train --model mlp --device t4 --steps 1
