$TANDEM graph show vit_tiny:widht=256
