$TANDEM graph show bert_base:layers=1,seq=64,vocabulary=1000 --batch 2
