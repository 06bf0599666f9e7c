$TANDEM replay --model mlp --cluster nowhere.json
