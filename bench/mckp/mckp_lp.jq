# A tandem.mckp/1 with a limit on time as an integer program in CPLEX LP format, for another solver: x_i_k is 1
# where item i takes choice k.
def sum(f):
  [.items | to_entries[] | .key as $i | .value.choices | to_entries[]
    | "+ \(.value | f) x_\($i)_\(.key)"] | join("\n  ");
"Minimize\n sensitivity:\n  \(sum(.sensitivity))",
"Subject To\n time:\n  \(sum(.time_ns))\n  <= \(.limits.time_ns)",
(.items | to_entries[] | .key as $i
 | " one_\($i): \([.value.choices | keys[] | "+ x_\($i)_\(.)"] | join(" ")) = 1"),
(.items as $items | .ties | to_entries[] | .key as $t | .value[0] as $a | .value[1:][] as $b
 | $items[$a].choices | keys[] | " tie_\($t)_\($b)_\(.): x_\($a)_\(.) - x_\($b)_\(.) = 0"),
"Binary",
(.items | to_entries[] | .key as $i | .value.choices | keys[] | " x_\($i)_\(.)"),
"End"
