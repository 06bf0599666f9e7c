$TANDEM replay --plan "$FIXTURES/plan.json" --model mlp:width=32
