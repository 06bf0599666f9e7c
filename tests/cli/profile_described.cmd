$TANDEM profile --model mlp --device cpu:sse41,t4
