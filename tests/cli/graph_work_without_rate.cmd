$TANDEM graph work mlp --uniform fp32
