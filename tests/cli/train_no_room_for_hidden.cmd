echo 'abcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabc' >text; $TANDEM train -q --model bert_base:seq=4,vocabulary=4 --device cpu:sse41 --data text --steps 3
