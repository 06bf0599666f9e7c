$TANDEM replay --model mlp --device t4; code=$?; $TANDEM advise --model mlp --cluster v100 --add t4 -q; $TANDEM allocate --model mlp --device t4,cpu:sse41; ls; exit $code
