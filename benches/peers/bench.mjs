// The speed table's workloads for generators of V8: a scheduler, channels and a timer wheel in plain JavaScript.
// usage: node bench.mjs WORKLOAD NUMBER...   prints nanoseconds of CPU time per operation
const clock = () => {
  const usage = process.cpuUsage();
  return (usage.user + usage.system) * 1000;
};

// A run queue in a ring buffer of 4,096 generators.
const SLOTS = 4096;
const queue = new Array(SLOTS).fill(null);
let head = 0;
let tail = 0;
let current = null;
const ready = (generator) => { queue[tail++ % SLOTS] = generator; };
const run = () => {
  while (head < tail) {
    current = queue[head++ % SLOTS];
    current.next();
  }
};

const channel = (capacity) => ({ ring: new Array(capacity).fill(0), first: 0, last: 0, capacity, receiver: null, sender: null });
// Whether a send or receive completes at once; otherwise the generator is parked and must yield.
const full = (to) => { if (to.last - to.first < to.capacity) return false; to.sender = current; return true; };
const empty = (from) => { if (from.first !== from.last) return false; from.receiver = current; return true; };
const put = (to, value) => {
  to.ring[to.last++ % to.capacity] = value;
  if (to.receiver) { ready(to.receiver); to.receiver = null; }
};
const take = (from) => {
  const value = from.ring[from.first++ % from.capacity];
  if (from.sender) { ready(from.sender); from.sender = null; }
  return value;
};

const workloads = {
  yield(n, m) {
    function* worker() { for (let i = 0; i < m; i++) yield; }
    const live = [];
    for (let i = 0; i < n; i++) { const one = worker(); one.next(); live.push(one); }
    const start = clock();
    for (let count = n; count > 0;) {
      let kept = 0;
      for (let i = 0; i < count; i++) { const one = live[i]; if (!one.next().done) live[kept++] = one; }
      count = kept;
    }
    return (clock() - start) / (n * m);
  },
  pairs(count, rounds) {
    function* ping(there, back) {
      for (let i = 0; i < rounds; i++) { while (full(there)) yield; put(there, i); while (empty(back)) yield; take(back); }
    }
    function* pong(there, back) {
      for (let i = 0; i < rounds; i++) { while (empty(there)) yield; const value = take(there); while (full(back)) yield; put(back, value); }
    }
    for (let i = 0; i < count; i++) {
      const [there, back] = [channel(1), channel(1)];
      ready(ping(there, back));
      ready(pong(there, back));
    }
    const start = clock();
    run();
    return (clock() - start) / (2 * count * rounds);
  },
  stream(messages, capacity) {
    const wire = channel(capacity);
    let sum = 0;
    function* producer() { for (let i = 1; i <= messages; i++) { while (full(wire)) yield; put(wire, i); } }
    function* consumer() { for (let i = 0; i < messages; i++) { while (empty(wire)) yield; sum += take(wire); } }
    ready(producer());
    ready(consumer());
    const start = clock();
    run();
    if (sum !== (messages * (messages + 1)) / 2) throw new Error(`sum ${sum}`);
    return (clock() - start) / messages;
  },
  spawn(n) {
    let ended = 0;
    function* worker() { ended++; }
    const start = clock();
    const all = [];
    for (let i = 0; i < n; i++) all.push(worker());
    for (let i = 0; i < n; i++) { all[i].next(); all[i] = null; }
    if (ended !== n) throw new Error(`ended ${ended}`);
    return (clock() - start) / n;
  },
  // Ticks are virtual.
  sleepers(n, m) {
    const wheel = Array.from({ length: 1024 }, () => []);
    let [now, live, seed] = [0, n, 12345];
    const ticks = () => { seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0; return ((seed >>> 16) % 1000) + 1; };
    function* sleeper() { for (let i = 0; i < m; i++) yield ticks(); live--; }
    const park = (one) => { const step = one.next(); if (!step.done) wheel[(now + step.value) % 1024].push(one); };
    for (let i = 0; i < n; i++) park(sleeper());
    const start = clock();
    while (live > 0) {
      now++;
      const due = wheel[now % 1024];
      wheel[now % 1024] = [];
      for (const one of due) park(one);
    }
    return (clock() - start) / (n * m);
  },
};

const [name, ...numbers] = process.argv.slice(2);
console.log(workloads[name](...numbers.map(Number)).toFixed(3));
