$TANDEM train --model mlp --cluster cpu:sse41 --threads 2
