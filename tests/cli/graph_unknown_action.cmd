$TANDEM graph shwo mlp
