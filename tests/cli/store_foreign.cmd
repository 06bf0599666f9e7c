cp "$FIXTURES/foreign.sqlite" tandem.db; $TANDEM replay --model mlp --device cpu:avx2; code=$?; cmp tandem.db "$FIXTURES/foreign.sqlite"; exit $code
