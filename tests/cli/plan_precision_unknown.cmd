sed "s/\"fp32\"/\"fp23\"/" "$FIXTURES/plan.json" > plan.json; $TANDEM replay --plan plan.json
