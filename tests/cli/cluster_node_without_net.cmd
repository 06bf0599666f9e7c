$TANDEM replay --model mlp --cluster "4*t4@2 node=1GB/s,1us" --predict
