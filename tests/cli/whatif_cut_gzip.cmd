gzip -n <$FIXTURES/torch0.json | head -c 200 >cut.json.gz && $TANDEM whatif cut.json.gz
