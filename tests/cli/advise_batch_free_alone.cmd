$TANDEM advise --model mlp --cluster t4 --add v100 --batch auto
