/* The referee of the arena: a game of light cycles for four bots, each its own session, in its own language.
 *
 * Every turn takes one frame. The referee sends each bot in the game a view of the board, sleeps a frame, and receives the answers; a bot that did not
 * answer moves straight on. All move at once and leave a trail; a bot that hits a wall, a trail or another head is out. The last bot in
 * the game wins the round. `args = [name, rounds, show]`: show 0 prints the board at each round's end, 1 redraws it every turn.
 *
 * A view is 12 bytes (the bot's number, width, height, turn modulo 256, then x and y of each of four heads, 255 for a bot that is out)
 * and then the cells row by row: 0 free, 1 to 4 the trail of a bot, 9 the wall. An answer is the number (turn modulo 256) * 4 + direction, with 0 up,
 * 1 right, 2 down, 3 left. An answer to another turn is late and ignored.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../guests/c/wavelock.h"

enum { WIDTH = 48, HEIGHT = 20, BOTS = 4, HEAD = 12, WALL = 9, LONGEST = 400 };

static const char *const names[BOTS] = {"flood (C)", "hugger (AssemblyScript)", "voronoi (Rust)", "rover (WAT)"};
static const char *const out_ports[BOTS] = {"view0", "view1", "view2", "view3"};
static const char *const in_ports[BOTS] = {"move0", "move1", "move2", "move3"};
static const int step_x[4] = {0, 1, 0, -1}, step_y[4] = {-1, 0, 1, 0};

static struct bot {
  int x, y, direction, playing, waiting, points, late;
  int32_t view, move;
} bots[BOTS];

static unsigned char message[HEAD + WIDTH * HEIGHT];
static unsigned char (*const cells)[WIDTH] = (unsigned char (*)[WIDTH])(message + HEAD);
static int show;

static void draw(int round, int turn) {
  if (show) printf("\033[H\033[2J");
  printf("round %d, turn %d\n", round, turn);
  for (int y = 0; y < HEIGHT; y++) {
    char line[WIDTH + 2];
    for (int x = 0; x < WIDTH; x++) line[x] = cells[y][x] == WALL ? '#' : " fhvr"[cells[y][x]];
    for (int b = 0; b < BOTS; b++)
      if (bots[b].playing && bots[b].y == y) line[bots[b].x] = "FHVR"[b];
    line[WIDTH] = '\n';
    line[WIDTH + 1] = 0;
    fputs(line, stdout);
  }
  fflush(stdout);
}

static void set_up(int round) {
  static const int at_x[4] = {12, 35, 35, 12}, at_y[4] = {5, 14, 5, 14}, towards[4] = {1, 3, 2, 0};
  memset(cells, 0, WIDTH * HEIGHT);
  for (int x = 0; x < WIDTH; x++) cells[0][x] = cells[HEIGHT - 1][x] = WALL;
  for (int y = 0; y < HEIGHT; y++) cells[y][0] = cells[y][WIDTH - 1] = WALL;
  for (int b = 0; b < BOTS; b++) {
    int seat = (b + round) % BOTS;
    bots[b].x = at_x[seat];
    bots[b].y = at_y[seat];
    bots[b].direction = towards[seat];
    bots[b].playing = 1;
    cells[bots[b].y][bots[b].x] = (unsigned char)(b + 1);
  }
}

/* Sends the views, waits a frame, receives the answers. */
static void consult(int turn) {
  message[1] = WIDTH;
  message[2] = HEIGHT;
  message[3] = (unsigned char)turn;
  for (int b = 0; b < BOTS; b++) {
    message[4 + 2 * b] = (unsigned char)(bots[b].playing ? bots[b].x : 255);
    message[5 + 2 * b] = (unsigned char)(bots[b].playing ? bots[b].y : 255);
  }
  for (int b = 0; b < BOTS; b++) {
    if (!bots[b].playing || bots[b].waiting) continue; /* a bot that has not answered gets no second view, so it cannot block the referee */
    message[0] = (unsigned char)b;
    bots[b].waiting = wl_send_bytes(bots[b].view, message, sizeof message) == 0;
  }
  wl_sleep(1);
  for (int b = 0; b < BOTS; b++) {
    int64_t answer;
    int in_time = 0;
    if (bots[b].waiting && wl_try_recv(bots[b].move, &answer) == 0) {
      bots[b].waiting = 0;
      in_time = answer >> 2 == (turn & 255);
      if (in_time && bots[b].playing) bots[b].direction = (int)answer & 3;
    }
    if (bots[b].playing && !in_time) bots[b].late++;
  }
}

/* All bots move at once. */
static int move(int round, int turn) {
  int left = 0, crashed[BOTS] = {0};
  for (int b = 0; b < BOTS; b++) {
    if (!bots[b].playing) continue;
    bots[b].x += step_x[bots[b].direction];
    bots[b].y += step_y[bots[b].direction];
  }
  for (int b = 0; b < BOTS; b++) {
    if (!bots[b].playing) continue;
    crashed[b] = cells[bots[b].y][bots[b].x] != 0;
    for (int o = 0; o < BOTS; o++)
      if (o != b && bots[o].playing && bots[o].x == bots[b].x && bots[o].y == bots[b].y) crashed[b] = 1;
  }
  for (int b = 0; b < BOTS; b++) {
    if (!bots[b].playing) continue;
    if (crashed[b]) {
      bots[b].playing = 0;
      if (!show) printf("round %d, turn %d: %s is out\n", round, turn, names[b]);
    } else {
      cells[bots[b].y][bots[b].x] = (unsigned char)(b + 1);
      left++;
    }
  }
  return left;
}

static void play(int round, int *turn) {
  int left = BOTS;
  set_up(round);
  for (int t = 0; left > 1 && t < LONGEST; t++) {
    consult(++*turn);
    left = move(round, *turn);
    if (show) draw(round, *turn);
  }
  if (!show) draw(round, *turn);
  for (int b = 0; b < BOTS; b++)
    if (bots[b].playing && left == 1) {
      bots[b].points++;
      printf("round %d goes to %s\n", round, names[b]);
    }
  if (left != 1) printf("round %d goes to nobody\n", round);
}

int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 3, turn = 0, best = 0;
  show = argc > 2 && atoi(argv[2]);
  for (int b = 0; b < BOTS; b++) {
    bots[b].view = wl_port_str(out_ports[b]);
    bots[b].move = wl_port_str(in_ports[b]);
    if (bots[b].view < 0 || bots[b].move < 0) {
      fprintf(stderr, "no channels to %s\n", names[b]);
      return 1;
    }
  }
  for (int round = 1; round <= rounds; round++) play(round, &turn);
  printf("after %d turns:\n", turn);
  for (int b = 0; b < BOTS; b++) {
    printf("  %-24s %d point%s, %d late answers\n", names[b], bots[b].points, bots[b].points == 1 ? "" : "s", bots[b].late);
    if (bots[b].points > bots[best].points) best = b;
    wl_close(bots[b].view); /* the bots end when their channel of views is closed */
  }
  printf("the winner is %s\n", names[best]);
  return 0;
}
