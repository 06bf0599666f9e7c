head -c 300 "$FIXTURES/plan.json" > plan.json; $TANDEM replay --plan plan.json
