$TANDEM --db --nonsense doctor --js | head -n 2; $TANDEM list policies --js | head -n 2
