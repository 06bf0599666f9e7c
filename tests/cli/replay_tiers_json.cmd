$TANDEM replay --model mlp --cluster "3*t4@1 + 2*l4 node=12GB/s,3us net=1Gbit/s,20us" --predict --collective halving-doubling --json | sed -n '/"all_reduce"/,$p'
