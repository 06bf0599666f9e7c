$TANDEM replay --model bert_base:seq=128 --batch 32 --cluster "4*t4@2 node=12GB/s,3us net=10Gbit/s,5us" --predict --wire bf16
