root=$FIXTURES/../../.. TANDEM_BUILD=${TANDEM%/*}; export TANDEM_BUILD; { while read -r change; do sed -n "1,3{$change;p}" "$root/bench/published.csv" >table.csv && "$root/bench/published.sh" table.csv && echo "not refused: $change"; done <<<"3s/^resnet50/resnet51/
3s/v100,8/v101,8/
3s/v100,8/v101,1/
3s/fp32/fp33/
3s/,fp32/,/
3s/2855/many/
3s/https.*/nvidia.com/
3s/,NVIDIA[^,]*//
3s/$/,more/
1s/batch/n/
2,3d"; } 2>&1 | sed "s, Devices: .*,,"
