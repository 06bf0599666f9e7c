$TANDEM replay --model mlp --cluster "2*t4 node=1GB/s,1us" --predict --collective tre
