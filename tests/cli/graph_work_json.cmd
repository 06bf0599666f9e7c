$TANDEM graph work mlp --uniform fp8 --json
