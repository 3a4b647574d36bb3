// A bot in AssemblyScript: it follows walls and trails. It moves to the free neighbour with the fewest free neighbours, avoids dead ends, and turns as
// little as possible.

import { portNamed, recvBytes, send } from "../../guests/assemblyscript/wavelock";

const HEAD = 12;
const view = new Uint8Array(HEAD + 4096);

class Position {
  constructor(public at: i32, public width: i32) {}

  step(direction: i32): Position {
    const by = direction == 0 ? -this.width : direction == 1 ? 1 : direction == 2 ? this.width : -1;
    return new Position(this.at + by, this.width);
  }
  get free(): bool {
    return view[HEAD + this.at] == 0;
  }
  /** The number of free neighbours of a cell. */
  get ways(): i32 {
    let count = 0;
    for (let d = 0; d < 4; d++) if (this.step(d).free) count++;
    return count;
  }
}

function choose(last: i32): i32 {
  const me = view[0];
  const width = <i32>view[1];
  const here = new Position(<i32>view[5 + 2 * me] * width + <i32>view[4 + 2 * me], width);
  let best = last;
  let least = i32.MAX_VALUE;
  for (let turn = 0; turn < 4; turn++) {
    const direction = (last + turn) & 3;
    const there = here.step(direction);
    if (!there.free) continue;
    const ways = there.ways;
    const cost = ways == 0 ? 100 : ways;
    if (cost < least) {
      least = cost;
      best = direction;
    }
  }
  return best;
}

export function _start(): void {
  const views = portNamed("view");
  const moves = portNamed("move");
  let direction = 1;
  while (recvBytes(views, view.dataStart, view.length) > 0) {
    direction = choose(direction);
    send(moves, (<i64>view[3] << 2) | direction);
  }
}
