$TANDEM train --model mlp --device cpu:sse41:2 --threads 2
