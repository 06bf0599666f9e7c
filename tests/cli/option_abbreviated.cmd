$TANDEM list policies --js -q | head -n 2; $TANDEM --db --nonsense list policies | head -n 1
