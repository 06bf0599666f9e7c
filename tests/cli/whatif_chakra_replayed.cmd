"$TANDEM" replay --model resnet20 --batch 8 --cluster "2*v100@2 + 2*t4@2 net=10Gbit/s,5us" --predict --trace s.et --all-ranks | head -n 1 && ls && "$TANDEM" whatif s.*.et
