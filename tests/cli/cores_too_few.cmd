$TANDEM train --model mlp --device cpu:sse41:512 --steps 1 2>&1 | sed "s/may use [0-9]*; .* or allow/may use N; … or allow/"
