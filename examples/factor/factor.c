/* A passive server: it finds the smallest factor of the number in each call. The manifest gives it no context; wl_serve replies to the last call and takes
 * the next one that lends a context, so every cycle it uses is charged to the client it works for. */
#include "../../guests/c/wavelock.h"

static int64_t smallest_factor(int64_t number) {
  if (number % 2 == 0) return 2;
  for (int64_t factor = 3; factor * factor <= number; factor += 2)
    if (number % factor == 0) return factor;
  return number;
}

void _start(void) {
  int64_t number = 0, answer = 0;
  int32_t questions = wl_port_str("questions"), reply = -1;
  while ((reply = wl_serve(questions, &number, reply, answer)) >= 0) answer = smallest_factor(number);
}
