/* A bot in C: it moves to where the most free cells are reachable, and straight on if that makes no difference. */
#include "../../guests/c/wavelock.h"

enum { HEAD = 12, MOST = 4096 };

static unsigned char view[HEAD + MOST], seen[MOST];
static int16_t queue[MOST];

/* The number of free cells reachable from a cell, including itself. */
static int reach(int from, int width, int size) {
  const unsigned char *cells = view + HEAD;
  const int steps[4] = {-width, 1, width, -1};
  int head = 0, tail = 0;
  if (cells[from]) return 0;
  for (int i = 0; i < size; i++) seen[i] = cells[i];
  seen[from] = 1;
  queue[tail++] = (int16_t)from;
  while (head < tail) {
    int cell = queue[head++];
    for (int d = 0; d < 4; d++) {
      int next = cell + steps[d];
      if (seen[next]) continue;
      seen[next] = 1;
      queue[tail++] = (int16_t)next;
    }
  }
  return tail;
}

static int choose(int last) {
  int me = view[0], width = view[1], size = view[1] * view[2];
  int at = view[5 + 2 * me] * width + view[4 + 2 * me];
  const int steps[4] = {-width, 1, width, -1};
  int best = last, most = -1;
  for (int turn = 0; turn < 4; turn++) {
    int direction = (last + turn) & 3, room = reach(at + steps[direction], width, size);
    if (room > most) {
      most = room;
      best = direction;
    }
  }
  return best;
}

void _start(void) {
  int32_t views = wl_port_str("view"), moves = wl_port_str("move");
  int direction = 1;
  while (wl_recv_bytes(views, view, sizeof view) > 0) {
    direction = choose(direction);
    wl_send(moves, view[3] * 4 + direction);
  }
}
