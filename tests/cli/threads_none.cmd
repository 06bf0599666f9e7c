$TANDEM train --model mlp --device cpu:sse41 --threads 0
