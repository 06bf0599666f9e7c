"$TANDEM" whatif "$FIXTURES/../../data/torch/gloo0.json.gz" "$FIXTURES/../../data/torch/gloo1.json.gz"
