sed "s/\"graph_hash\": \"./\"graph_hash\": \"0/" "$FIXTURES/plan.json" > plan.json; $TANDEM replay --plan plan.json
