mkdir plan.json; $TANDEM replay --plan plan.json
