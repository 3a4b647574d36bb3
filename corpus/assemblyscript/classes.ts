// Objects and the collector: a class hierarchy with overridden methods, generics, linked structures made and dropped by the thousand, a set, static
// arrays of objects, and `instanceof`.

abstract class Shape {
  constructor(public name: string) {}
  abstract area(): f64;
  describe(): string {
    return this.name + ":" + (<i32>(this.area() * 100)).toString();
  }
}
class Circle extends Shape {
  constructor(private radius: f64) {
    super("circle");
  }
  area(): f64 {
    return 3.25 * this.radius * this.radius;
  }
}
class Rectangle extends Shape {
  constructor(protected width: f64, protected height: f64, name: string = "rectangle") {
    super(name);
  }
  area(): f64 {
    return this.width * this.height;
  }
}
class Square extends Rectangle {
  constructor(side: f64) {
    super(side, side, "square");
  }
  describe(): string {
    return "[" + super.describe() + "]";
  }
}

class Node<T> {
  next: Node<T> | null = null;
  constructor(public value: T) {}
}
class Queue<T> {
  private head: Node<T> | null = null;
  private tail: Node<T> | null = null;
  length: i32 = 0;
  push(value: T): void {
    const node = new Node<T>(value);
    const tail = this.tail;
    if (tail) tail.next = node;
    else this.head = node;
    this.tail = node;
    this.length++;
  }
  shift(): T {
    const head = this.head!;
    this.head = head.next;
    if (!this.head) this.tail = null;
    this.length--;
    return head.value;
  }
}

class Tree {
  left: Tree | null = null;
  right: Tree | null = null;
  constructor(public key: i32) {}
  insert(key: i32): void {
    if (key < this.key) {
      const left = this.left;
      if (left) left.insert(key);
      else this.left = new Tree(key);
    } else {
      const right = this.right;
      if (right) right.insert(key);
      else this.right = new Tree(key);
    }
  }
  sum(depth: i32): i32 {
    const left = this.left;
    const right = this.right;
    return this.key * depth + (left ? left.sum(depth + 1) : 0) + (right ? right.sum(depth + 1) : 0);
  }
}

function mixText(hash: u32, text: string): u32 {
  for (let i = 0; i < text.length; i++) hash = (hash ^ <u32>text.charCodeAt(i)) * 16777619;
  return hash;
}

export function run(): i32 {
  let hash: u32 = 2166136261;
  const shapes: Shape[] = [new Circle(2), new Rectangle(3, 4.5), new Square(1.5), new Circle(0.75), new Square(9)];
  let squares = 0;
  for (let i = 0; i < shapes.length; i++) {
    hash = mixText(hash, shapes[i].describe());
    if (shapes[i] instanceof Square) squares++;
  }
  if (squares != 2) return -1;

  const queue = new Queue<string>();
  for (let round = 0; round < 300; round++) {
    for (let i = 0; i < 10; i++) queue.push((round * i).toString());
    for (let i = 0; i < 9; i++) hash = mixText(hash, queue.shift());
  }
  if (queue.length != 300) return -2;

  // Garbage: each round's tree is dropped for the next one's.
  let state: u32 = 99;
  for (let round = 0; round < 40; round++) {
    const tree = new Tree(0);
    for (let i = 0; i < 100; i++) {
      state = state * 1664525 + 1013904223;
      tree.insert(<i32>(state >> 20) - 2048);
    }
    hash = hash * 31 + <u32>tree.sum(1);
  }

  const seen = new Set<i32>();
  for (let i = 0; i < 1000; i++) seen.add((i * i) % 257);
  return <i32>(hash + <u32>seen.size);
}
