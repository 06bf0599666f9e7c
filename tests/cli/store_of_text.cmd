echo "not a database, but a text of some length" > tandem.db; $TANDEM replay --model mlp --device cpu:avx2
