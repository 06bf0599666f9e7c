$TANDEM replay --model resnet50 --batch 32 --cluster "8*v100@8 + 8*t4@8 net=100Gbit/s,5us" --uniform fp32,int8 --predict
