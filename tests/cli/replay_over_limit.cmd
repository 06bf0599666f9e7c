$TANDEM replay --model vit_b16 --batch 32 --cluster "2*v100@2 + 2*t4@2 net=10Gbit/s,5us" --memory 16GiB,4GiB --predict
