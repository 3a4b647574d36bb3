-- The speed table's workloads for Lua 5.4 and LuaJIT: a scheduler, channels and a timer wheel in plain Lua.
-- usage: lua bench.lua WORKLOAD NUMBER...   prints nanoseconds of CPU time per operation
local create, resume, yield, clock = coroutine.create, coroutine.resume, coroutine.yield, os.clock
local workloads = {}

-- n coroutines yield m times each, round robin.
function workloads.yield(n, m)
  local live = {}
  for i = 1, n do
    live[i] = create(function() for _ = 1, m do yield() end return true end)
  end
  collectgarbage()
  local start, count = clock(), n
  while count > 0 do
    local kept = 0
    for i = 1, count do
      local coroutine = live[i]
      local _, done = resume(coroutine)
      if not done then kept = kept + 1; live[kept] = coroutine end
    end
    for i = kept + 1, count do live[i] = nil end
    count = kept
  end
  return (clock() - start) * 1e9 / (n * m)
end

-- A run queue in a ring buffer, and bounded channels in ring buffers with one parked coroutine at either end.
local SLOTS = 4096
local queue, head, tail, current = {}, 0, 0, nil
for i = 1, SLOTS do queue[i] = false end

local function ready(coroutine)
  queue[tail % SLOTS + 1] = coroutine
  tail = tail + 1
end

local function channel(capacity)
  local ring = {}
  for i = 1, capacity do ring[i] = 0 end
  return { ring = ring, first = 0, last = 0, capacity = capacity, receiver = false, sender = false }
end

local function send(to, value)
  local capacity = to.capacity
  while to.last - to.first >= capacity do to.sender = current; yield() end
  to.ring[to.last % capacity + 1] = value
  to.last = to.last + 1
  local waiting = to.receiver
  if waiting then to.receiver = false; ready(waiting) end
end

local function receive(from)
  while from.first == from.last do from.receiver = current; yield() end
  local value = from.ring[from.first % from.capacity + 1]
  from.first = from.first + 1
  local waiting = from.sender
  if waiting then from.sender = false; ready(waiting) end
  return value
end

local function run()
  while head < tail do
    current = queue[head % SLOTS + 1]
    head = head + 1
    assert(resume(current))
  end
end

-- Pairs pass a number back and forth over two channels of capacity 1; an operation is a message.
function workloads.pairs(count, rounds)
  for _ = 1, count do
    local there, back = channel(1), channel(1)
    ready(create(function() for i = 1, rounds do send(there, i); receive(back) end end))
    ready(create(function() for _ = 1, rounds do send(back, receive(there)) end end))
  end
  collectgarbage()
  local start = clock()
  run()
  return (clock() - start) * 1e9 / (2 * count * rounds)
end

function workloads.stream(messages, capacity)
  local wire, sum = channel(capacity), 0
  ready(create(function() for i = 1, messages do send(wire, i) end end))
  ready(create(function() for _ = 1, messages do sum = sum + receive(wire) end end))
  local start = clock()
  run()
  assert(sum == messages * (messages + 1) / 2)
  return (clock() - start) * 1e9 / messages
end

-- n coroutines are created, then each runs once and ends.
function workloads.spawn(n)
  local ended, all, start = 0, {}, clock()
  for i = 1, n do all[i] = create(function() ended = ended + 1 end) end
  for i = 1, n do resume(all[i]); all[i] = false end
  assert(ended == n)
  return (clock() - start) * 1e9 / n
end

-- n coroutines sleep m times, 1 to 1,000 ticks each, in a wheel of 1,024 lists; ticks are virtual.
function workloads.sleepers(n, m)
  local wheel, now, live, seed = {}, 0, n, 12345
  for i = 0, 1023 do wheel[i] = {} end
  local floor = math.floor
  local function ticks()
    seed = (seed * 1664525 + 1013904223) % 4294967296
    return floor(seed / 65536) % 1000 + 1
  end
  local function park(coroutine, delay)
    local list = wheel[(now + delay) % 1024]
    list[#list + 1] = coroutine
  end
  for _ = 1, n do
    local sleeper = create(function() for _ = 1, m do yield(ticks()) end live = live - 1 end)
    local _, delay = resume(sleeper)
    park(sleeper, delay)
  end
  collectgarbage()
  local start = clock()
  while live > 0 do
    now = now + 1
    local due = wheel[now % 1024]
    wheel[now % 1024] = {}
    for i = 1, #due do
      local _, delay = resume(due[i])
      if delay then park(due[i], delay) end
    end
  end
  return (clock() - start) * 1e9 / (n * m)
end

print(("%.3f"):format(workloads[arg[1]](tonumber(arg[2]), tonumber(arg[3]))))
