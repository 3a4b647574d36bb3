-- A formula in DIMACS form: random clauses of three, at a ratio where solving is work, with a seeded generator.
local variables, clauses, state = 140, 585, tonumber(arg and arg[1]) or 7
local function random(n)
  state = (state * 1103515245 + 12345) & 0x7fffffff
  return (state >> 8) % n
end
print("c random 3-SAT")
print("p cnf " .. variables .. " " .. clauses)
for _ = 1, clauses do
  local clause = {}
  for i = 1, 3 do clause[i] = (1 + random(variables)) * (random(2) * 2 - 1) end
  print(table.concat(clause, " ") .. " 0")
end
