// Sorting: a merge sort over a plain array, the library's sort with a comparison function, a heap over a typed array, and a binary search.

function mix(hash: u32, word: u32): u32 {
  for (let i = 0; i < 4; i++) hash = (hash ^ ((word >> (8 * i)) & 255)) * 16777619;
  return hash;
}

class Random {
  constructor(private state: u32) {}
  next(): i32 {
    this.state = this.state * 1664525 + 1013904223;
    return <i32>(this.state ^ (this.state >> 13));
  }
}

function mergeSort(items: Array<i32>): Array<i32> {
  if (items.length < 2) return items;
  const half = items.length >> 1;
  const left = mergeSort(items.slice(0, half));
  const right = mergeSort(items.slice(half));
  const result = new Array<i32>();
  let i = 0;
  let j = 0;
  while (i < left.length || j < right.length) {
    if (j >= right.length || (i < left.length && left[i] <= right[j])) result.push(left[i++]);
    else result.push(right[j++]);
  }
  return result;
}

function siftDown(heap: Int32Array, from: i32, count: i32): void {
  let root = from;
  while (2 * root + 1 < count) {
    let child = 2 * root + 1;
    if (child + 1 < count && heap[child] < heap[child + 1]) child++;
    if (heap[root] >= heap[child]) return;
    const held = heap[root];
    heap[root] = heap[child];
    heap[child] = held;
    root = child;
  }
}

function heapSort(heap: Int32Array): void {
  const count = heap.length;
  for (let i = (count >> 1) - 1; i >= 0; i--) siftDown(heap, i, count);
  for (let end = count - 1; end > 0; end--) {
    const held = heap[0];
    heap[0] = heap[end];
    heap[end] = held;
    siftDown(heap, 0, end);
  }
}

function find(items: Array<i32>, wanted: i32): i32 {
  let low = 0;
  let high = items.length - 1;
  while (low <= high) {
    const middle = (low + high) >> 1;
    if (items[middle] == wanted) return middle;
    if (items[middle] < wanted) low = middle + 1;
    else high = middle - 1;
  }
  return -1;
}

export function run(): i32 {
  const random = new Random(2024);
  const items = new Array<i32>();
  const typed = new Int32Array(500);
  for (let i = 0; i < 500; i++) items.push((typed[i] = random.next()));
  const merged = mergeSort(items);
  heapSort(typed);
  items.sort((a, b) => (a < b ? 1 : a > b ? -1 : 0));
  let hash: u32 = 2166136261;
  for (let i = 0; i < 500; i++) {
    if (merged[i] != typed[i] || merged[i] != items[499 - i]) return -1;
    hash = mix(hash, <u32>merged[i]);
  }
  for (let i = 0; i < 50; i++) if (find(merged, items[i * 10]) != 499 - i * 10) return -2;
  return <i32>hash;
}
