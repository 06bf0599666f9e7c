$TANDEM replay --model mlp --cluster "2*t4 nod=1GB/s,1us" --predict
