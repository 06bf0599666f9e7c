$TANDEM replay --model resnet50 --batch 8 --cluster "16*a100@8 link=600GB/s,1us + 8*v100@8 link=150GB/s,1us node=12GB/s,3us net=25Gbit/s,5us" --predict --collective auto
