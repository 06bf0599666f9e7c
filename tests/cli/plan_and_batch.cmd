$TANDEM train --plan plan.json --batch 16
