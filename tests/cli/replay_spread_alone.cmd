$TANDEM replay --model mlp --cluster "4*t4@4 net=10Gbit/s,5us" --predict --time-spread 5%
