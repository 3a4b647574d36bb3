/* The worked example of the C kit: a crew of coroutines. Four workers receive numbers from one channel, count the steps of each number's
 * Collatz sequence, and send the results to another; the first coroutine collects and prints them and joins the workers. */
#include "wavelock.h"

enum { WORKERS = 4, LAST = 24 };

static int32_t jobs, answers;
static WL_STACK stacks[WORKERS][4096];

static int64_t steps(uint64_t number) {
  int64_t count = 0;
  for (; number != 1; count++) number = number & 1 ? 3 * number + 1 : number / 2;
  return count;
}

/* Receives jobs until the channel is closed; returns the number of jobs done. */
static int64_t worker(int64_t me) {
  int64_t done = 0, number;
  while (wl_recv(jobs, &number) == 0) {
    wl_send(answers, number << 32 | steps((uint64_t)number));
    done++;
    if (me == 0) wl_yield(); /* the first worker is slower than the others */
  }
  return done;
}

/* Sends the numbers, then closes the channel. */
static int64_t foreman(int64_t last) {
  for (int64_t number = 1; number <= last; number++) wl_send(jobs, number);
  wl_close(jobs);
  return 0;
}

void _start(void) {
  static WL_STACK foreman_stack[1024];
  int64_t crew[WORKERS], table[LAST + 1], answer, done, total = 0;
  char line[64], *at;

  jobs = wl_channel(4);
  answers = wl_channel(4);
  if (jobs < 0 || answers < 0) {
    wl_log_str("no channels\n");
    return;
  }
  for (int i = 0; i < WORKERS; i++) crew[i] = wl_start(worker, i, stacks[i], sizeof stacks[i]);
  wl_detach(wl_start(foreman, LAST, foreman_stack, sizeof foreman_stack));

  for (int i = 0; i < LAST; i++) {
    if (wl_recv(answers, &answer)) return;
    table[answer >> 32] = answer & 0xffffffff;
  }
  for (int i = 0; i < WORKERS; i++)
    if (wl_join(crew[i], &done) == 0) total += done;

  for (int64_t number = 1; number <= LAST; number++) {
    at = wl_put_i64(line, number);
    at = wl_put_str(at, " takes ");
    at = wl_put_i64(at, table[number]);
    at = wl_put_str(at, table[number] == 1 ? " step\n" : " steps\n");
    wl_output(line, (int32_t)(at - line));
  }
  at = wl_put_str(line, "jobs done: ");
  at = wl_put_i64(at, total);
  at = wl_put_str(at, "\n");
  wl_output(line, (int32_t)(at - line));
}
