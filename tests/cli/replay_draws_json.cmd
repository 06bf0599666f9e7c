$TANDEM --json replay --model mlp --batch 64 --cluster "4*t4@4 net=10Gbit/s,5us slow=1.5@rank1" --predict --simulations 7 --time-spread 0% --accumulate 3 --bucket 100KiB
