cp $FIXTURES/plan.json . && $TANDEM whatif plan.json
