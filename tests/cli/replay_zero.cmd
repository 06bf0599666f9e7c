$TANDEM replay --model mlp --batch 64 --cluster "4*t4@4 net=10Gbit/s,5us" --predict --bucket 100KiB --zero 3 --details
