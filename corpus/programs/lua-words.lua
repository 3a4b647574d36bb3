-- A text of about 300 kB from a seeded generator, the input of the compressors: words of a grammar, numbers, and runs of one letter.
local state = 20231
local function random(n)
  state = (state * 1103515245 + 12345) & 0x7fffffff
  return (state >> 8) % n
end
local starts = {"th", "sh", "br", "st", "w", "l", "m", "n", "pr", "k", "c", "d"}
local middles = {"a", "e", "i", "o", "u", "ea", "ou", "ai"}
local ends = {"n", "t", "r", "s", "nd", "ck", "ll", "", "", "ng"}
local function word()
  local parts = {}
  for _ = 1, 1 + random(2) do
    parts[#parts + 1] = starts[1 + random(#starts)] .. middles[1 + random(#middles)] .. ends[1 + random(#ends)]
  end
  return table.concat(parts)
end
local vocabulary = {}
for i = 1, 900 do vocabulary[i] = word() end
local lines = tonumber(arg and arg[1]) or 5000
for i = 1, lines do
  local line = {}
  for _ = 1, 4 + random(9) do
    local a, b = random(#vocabulary), random(#vocabulary)
    line[#line + 1] = vocabulary[1 + (a < b and a or b)]
  end
  if i % 50 == 0 then line[#line + 1] = string.rep(string.char(97 + random(26)), random(200)) end
  if i % 7 == 0 then line[#line + 1] = string.format("%d %.3f %x", random(100000), random(1000) / 7, random(1 << 20)) end
  io.write(table.concat(line, " "), "\n")
end
