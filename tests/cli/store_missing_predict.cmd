$TANDEM advise --model mlp --cluster t4 --add "v100 node=10GB/s,3us" --predict -q
