$TANDEM graph show vit_tiny --batch 2 --json | grep -v '^   '
