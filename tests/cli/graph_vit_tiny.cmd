$TANDEM graph show vit_tiny:depth=1
