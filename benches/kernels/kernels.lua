-- The compute kernels in Lua 5.4, for the comparison table: the same algorithms and results as the modules beside this file.
-- `lua5.4 kernels.lua NAME N` prints the result as a signed 32-bit number. Lua has no flat memory, so the two copies are missing.
-- Numbers are masked to 32 bits only where the algorithm needs it: Lua's integers have 64.

local kernels = {}

local function fib(n)
  if n < 2 then return n end
  return fib(n - 1) + fib(n - 2)
end
kernels.fib = fib

function kernels.lcg(n)
  local state = 1
  for _ = 1, n do state = (state * 1664525 + 1013904223) & 0xffffffff end
  return state
end

function kernels.sieve(n)
  local prime = {}
  for i = 2, n do prime[i] = true end
  local i = 2
  while i * i <= n do
    if prime[i] then
      for j = i * i, n, i do prime[j] = false end
    end
    i = i + 1
  end
  local count = 0
  for i = 2, n do
    if prime[i] then count = count + 1 end
  end
  return count
end

local function signed(x)
  x = x & 0xffffffff
  return x >= 0x80000000 and x - 0x100000000 or x
end

local function sort(a, low, high)
  while high - low >= 12 do
    local pivot = a[low + (high - low) // 2]
    local i, j = low, high
    while i <= j do
      while a[i] < pivot do i = i + 1 end
      while a[j] > pivot do j = j - 1 end
      if i <= j then
        a[i], a[j] = a[j], a[i]
        i, j = i + 1, j - 1
      end
    end
    sort(a, low, j)
    low = i
  end
  for i = low + 1, high do
    local held, j = a[i], i
    while j > low and a[j - 1] > held do
      a[j] = a[j - 1]
      j = j - 1
    end
    a[j] = held
  end
end

function kernels.sort(n)
  local a, state = {}, 12345
  for i = 1, n do
    state = (state * 1103515245 + 12345) & 0xffffffff
    a[i] = signed(state ~ (state >> 15))
  end
  sort(a, 1, n)
  local hash = 0
  for i = 1, n do
    if i > 1 and a[i - 1] > a[i] then return -1 end
    hash = (hash * 31 + a[i]) & 0xffffffff
  end
  return hash
end

-- The constants of SHA-256: fractions of the roots of the first primes. A double is not precise enough for the last bits, so they are found by bisection.
local function root_fraction(prime, degree)
  local low, high = 0, 20 << 32
  while high - low > 1 do
    local middle = (low + high) // 2
    -- middle^degree < prime * 2^(32 * degree), in limbs of 16 bits.
    local product = { 1 }
    for _ = 1, degree do
      local next, carry = {}, 0
      for k = 1, 16 do
        local sum = carry
        for j = 0, 2 do
          if product[k - j] then sum = sum + product[k - j] * ((middle >> (16 * j)) & 0xffff) end
        end
        next[k], carry = sum & 0xffff, sum >> 16
      end
      product = next
    end
    local whole = 0
    for k = 16, 2 * degree + 1, -1 do whole = whole << 16 | product[k] end
    if whole < prime then low = middle else high = middle end
  end
  return low & 0xffffffff
end

function kernels.sha256(n)
  local constants, state, number = {}, {}, 2
  while #constants < 64 do
    local prime = true
    for d = 2, number - 1 do
      if number % d == 0 then prime = false break end
    end
    if prime then
      if #state < 8 then state[#state + 1] = root_fraction(number, 2) end
      constants[#constants + 1] = root_fraction(number, 3)
    end
    number = number + 1
  end
  local w = {}
  local function rotate(x, by) return (x >> by | x << (32 - by)) & 0xffffffff end
  local function compress()
    for i = 17, 64 do
      local x, y = w[i - 15], w[i - 2]
      w[i] = (w[i - 16] + w[i - 7] + (rotate(x, 7) ~ rotate(x, 18) ~ x >> 3) + (rotate(y, 17) ~ rotate(y, 19) ~ y >> 10)) & 0xffffffff
    end
    local a, b, c, d, e, f, g, h = table.unpack(state)
    for i = 1, 64 do
      local t = h + (rotate(e, 6) ~ rotate(e, 11) ~ rotate(e, 25)) + (g ~ (e & (f ~ g))) + constants[i] + w[i]
      h, g, f, e = g, f, e, (d + t) & 0xffffffff
      t = (t + (rotate(a, 2) ~ rotate(a, 13) ~ rotate(a, 22)) + ((a & b) | (c & (a | b)))) & 0xffffffff
      d, c, b, a = c, b, a, t
    end
    for i, v in ipairs { a, b, c, d, e, f, g, h } do state[i] = (state[i] + v) & 0xffffffff end
  end
  for block = 0, n - 1 do
    for i = 0, 15 do
      local word = 0
      for k = 0, 3 do word = word << 8 | (((block << 6) + i * 4 + k) * 7 + 3) & 255 end
      w[i + 1] = word
    end
    compress()
  end
  for i = 1, 16 do w[i] = 0 end
  w[1], w[15], w[16] = 0x80000000, n >> 23, n << 9 & 0xffffffff
  compress()
  return state[1]
end

function kernels.matmul(n)
  local a, b = {}, {}
  for i = 0, n - 1 do
    for j = 0, n - 1 do
      a[i * n + j] = (i * 3 + j * 7) % 11 - 4.0
      b[i * n + j] = (i * 5 + j * 2) % 11 - 4.0
    end
  end
  local total = 0.0
  for i = 0, n - 1 do
    for j = 0, n - 1 do
      local sum, left, right = 0.0, i * n, j
      for _ = 1, n do
        sum = sum + a[left] * b[right]
        left, right = left + 1, right + n
      end
      total = total + sum
    end
  end
  return math.tointeger(total)
end

function kernels.indirect(n)
  local m = 0xffffffff
  local steps = {
    [0] = function(x) return (x + 0x3c6ef372) & m end,
    function(x) return (x - 0x1b873593) & m end,
    function(x) return x ~ 0x5bd1e995 end,
    function(x) return (((x << 13 | x >> 19) & m) + 7) & m end,
    function(x) return (x * 1664525 + 1013904223) & m end,
    function(x) return ((x >> 16 | x << 16 & m) - 3) & m end,
    function(x) return (x ~ ((x << 5) + 11)) & m end,
    function(x) return (x >> 7 ~ x * 69069) & m end,
  }
  local value = 1
  for k = n, 1, -1 do value = steps[(value ~ value >> 16) & 7]((value + k) & m) end
  return value
end

function kernels.vm(n)
  local program = { 6, 7, 4, 0, 1, 5, 2, 0, 5, 1, 3, 0, 5, 1, 0, 0 }
  local pc, r0, r1, r2 = 1, 0, 0, 0
  while true do
    local operation, operand = program[pc], program[pc + 1] * 2 + 1
    pc = pc + 2
    if operation == 0 then return r2
    elseif operation == 1 then if r0 & 1 == 1 then pc = operand end
    elseif operation == 2 then r0, r2 = r0 >> 1, r2 + 1
    elseif operation == 3 then r0, r2 = 3 * r0 + 1, r2 + 1
    elseif operation == 4 then if r0 == 1 then pc = operand end
    elseif operation == 5 then pc = operand
    else
      r1 = r1 + 1
      r0 = r1
      if r1 > n then pc = operand end
    end
  end
end

local name, n = arg[1], math.tointeger(arg[2])
if not kernels[name] or not n then
  io.stderr:write("usage: lua5.4 kernels.lua NAME N\n")
  os.exit(2)
end
print(signed(kernels[name](n)))
