$TANDEM graph show vit_tiny
