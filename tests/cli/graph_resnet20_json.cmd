$TANDEM graph show resnet20 --batch 2 --json | grep -v '^   '
