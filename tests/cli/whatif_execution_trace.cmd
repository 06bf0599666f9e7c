echo '{"schema": "1.0.2-chakra.0.0.4", "pid": 1, "nodes": [{"id": 1}]}' >observer.json && $TANDEM whatif observer.json
