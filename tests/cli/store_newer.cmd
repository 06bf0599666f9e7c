cp "$FIXTURES/newer.sqlite" tandem.db; $TANDEM replay --model mlp --device cpu:avx2; code=$?; cmp tandem.db "$FIXTURES/newer.sqlite"; exit $code
