-- Coroutines and errors need setjmp, which this C library lacks.
-- Classic benchmarks in small: calls, floats, tables, closures, strings, patterns, metatables, integers.
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
print("fib", fib(23))

local function queens(n)
  local count, rows, up, down = 0, {}, {}, {}
  local function place(c)
    if c > n then count = count + 1 return end
    for r = 1, n do
      if not rows[r] and not up[r + c] and not down[r - c] then
        rows[r], up[r + c], down[r - c] = true, true, true
        place(c + 1)
        rows[r], up[r + c], down[r - c] = nil, nil, nil
      end
    end
  end
  place(1)
  return count
end
print("queens", queens(7))

local function spectral(n)
  local function a(i, j) local ij = i + j - 1 return 1.0 / (ij * (ij - 1) * 0.5 + i) end
  local function times(x, transposed)
    local y = {}
    for i = 1, n do
      local sum = 0
      for j = 1, n do sum = sum + (transposed and a(j, i) or a(i, j)) * x[j] end
      y[i] = sum
    end
    return y
  end
  local u, v = {}, nil
  for i = 1, n do u[i] = 1 end
  for _ = 1, 4 do v = times(times(u), true) u = times(times(v), true) end
  local uv, vv = 0, 0
  for i = 1, n do uv, vv = uv + u[i] * v[i], vv + v[i] * v[i] end
  return math.sqrt(uv / vv)
end
print("spectral", string.format("%.9f", spectral(30)))

local sieve, primes = {}, 0
for i = 2, 30000 do
  if not sieve[i] then
    primes = primes + 1
    for j = i * i, 30000, i do sieve[j] = true end
  end
end
print("primes", primes)

local words = {}
for word in string.gmatch(string.rep("the quick brown fox jumps over the lazy dog ", 200), "%a+") do
  words[word] = (words[word] or 0) + 1
end
local names = {}
for word in pairs(words) do names[#names + 1] = word end
table.sort(names, function(x, y) return words[x] > words[y] or words[x] == words[y] and x < y end)
print("words", table.concat(names, ","), words.the)

local list, state = {}, 42
for i = 1, 5000 do state = (state * 16807) % 2147483647 list[i] = state end
table.sort(list)
print("sort", list[1], list[2500], list[5000])

local Point = {}
Point.__index = Point
Point.__add = function(p, q) return setmetatable({x = p.x + q.x, y = p.y + q.y}, Point) end
Point.__tostring = function(p) return "(" .. p.x .. ", " .. p.y .. ")" end
local sum = setmetatable({x = 0, y = 0}, Point)
for i = 1, 5000 do sum = sum + setmetatable({x = i, y = -i / 2}, Point) end
print("objects", tostring(sum))

print("strings", ("%5.2f|%-8s|%08x|%q"):format(math.pi, "left", 48879, "a\nb"), #string.rep("xyz", 1000, "-"))
print("gsub", (string.gsub("hello world from Lua", "(%w+) (%w+)", "%2 %1")), string.find("key = value", "^(%w+)%s*=%s*(%w+)$"))
print("integers", 7 // -2, 7 % -2, -7 // 2, 1 << 62, math.maxinteger + 1 == math.mininteger, 5 // 0.0, 2^53, math.tointeger(3.0))
print("pack", string.unpack("<i4 d z", string.pack("<i4 d z", -7, 0.1, "text")))
print("utf8", utf8.char(233, 8364, 128512), utf8.len("héllo €"))
print("close", select("#", table.unpack({1, 2, nil, 4}, 1, 4)), next({}), rawlen({1, 2, 3}))
collectgarbage()
print("input", io.read("n") == nil and "none" or "some")
os.exit(3)
