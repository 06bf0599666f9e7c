$TANDEM allocate --model mlp --device cpu:avx2 --policy uniform --uniform int8 --max-sensitivity 1%
