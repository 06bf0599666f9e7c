$TANDEM graph show vit_tiny:patch=5
