$TANDEM replay --plan nowhere.json
