$TANDEM train --model mlp --device cpu:sse41 --timeout 0s
