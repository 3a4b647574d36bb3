/* Recursion of several kinds: Ackermann, mutual, n queens with backtracking, the towers of Hanoi, and permutations by recursion over an array on
 * the shadow stack. */
#include "check.h"

#ifdef __clang__
#define KEEP __attribute__((noinline))
#else
#define KEEP
#endif

static KEEP uint32_t ackermann(uint32_t m, uint32_t n) {
  if (m == 0) return n + 1;
  if (n == 0) return ackermann(m - 1, 1);
  return ackermann(m - 1, ackermann(m, n - 1));
}

static KEEP int odd(uint32_t n);
static KEEP int even(uint32_t n) { return n == 0 ? 1 : odd(n - 1); }
static KEEP int odd(uint32_t n) { return n == 0 ? 0 : even(n - 1); }

static KEEP int queens(uint32_t all, uint32_t columns, uint32_t left, uint32_t right) {
  if (columns == all) return 1;
  int count = 0;
  for (uint32_t free = all & ~(columns | left | right); free; free &= free - 1) {
    uint32_t bit = free & -free;
    count += queens(all, columns | bit, (left | bit) << 1, (right | bit) >> 1);
  }
  return count;
}

static uint32_t moves;
static KEEP void hanoi(int disks, int from, int to) {
  if (disks == 0) return;
  hanoi(disks - 1, from, 3 - from - to);
  moves = mix_byte(moves, (uint8_t)(disks * 16 + from * 4 + to));
  hanoi(disks - 1, 3 - from - to, to);
}

static KEEP uint32_t permutations(const int8_t *items, int count, uint32_t hash) {
  int8_t rest[8];
  if (count == 0) return hash * 31 + 1;
  for (int i = 0; i < count; i++) {
    for (int j = 0, k = 0; j < count; j++)
      if (j != i) rest[k++] = items[j];
    hash = permutations(rest, count - 1, hash + (uint32_t)items[i]);
  }
  return hash;
}

RUN {
  static const int8_t items[7] = {1, 2, 3, 5, 7, 11, 13};
  uint32_t hash = HASH;
  if (ackermann(2, 9) != 21 || queens(255, 0, 0, 0) != 92 || even(3001)) return -1;
  hash = mix(hash, ackermann(3, 4));
  hash = mix(hash, (uint32_t)queens(511, 0, 0, 0));
  hash = mix(hash, (uint32_t)(even(4000) * 2 + odd(4001)));
  moves = HASH;
  hanoi(12, 0, 2);
  hash = mix(hash, moves);
  return (int32_t)mix(hash, permutations(items, 7, 0));
}
