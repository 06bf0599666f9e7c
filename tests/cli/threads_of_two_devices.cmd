$TANDEM profile --model mlp --device cpu:sse41,cpu:sse41 --threads 2
