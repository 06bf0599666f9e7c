$TANDEM replay --model mlp --cluster "4*t4@4 net=10Gbit/s,5us slow=1.1@rank4" --predict
