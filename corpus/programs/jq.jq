if type == "object" then
  (.people | map({(.name): (2000 - .born)}) | add),
  (.people | group_by(.langs | length) | map(map(.name))),
  (.numbers | sort | unique | [length, min, max, add]),
  (.text | ascii_upcase, length, (explode | map(select(. < 128)) | implode)),
  ([paths(scalars) | map(tostring) | join(".")] | length),
  (to_entries | map(.key) | join(",")),
  ([range(0; 2000)] | map(select(. % 3 == 0 or . % 5 == 0)) | add),
  (reduce range(0; 3000) as $i ({}; .[($i * 7919 % 100) | tostring] += 1) | [keys[]] | length),
  ([limit(10; def f: 1, (f | . * 2); f)]),
  (.numbers | [.[] | tostring] | join(" ")),
  (def fac: if . < 2 then 1 else . * (. - 1 | fac) end; [range(0; 15) | fac]),
  (.people | tojson | fromjson | .[0]),
  ([.people[] | .born as $b | {name, century: ($b / 100 | floor)}]),
  (try error("caught") catch .), (.nothing // "default"), ("\(1 + 2) is three" | @base64, @uri), (now | type)
elif type == "array" then (flatten, [.. | numbers], (tostream | tojson))
else (split(" ") | (reverse, @html, @csv)) end
