/* Guaranteed tail calls: two functions that call each other a million times in constant stack, and a threaded interpreter whose instructions jump to
 * each other. Compiled with -mtail-call. */
#include "check.h"

#define TAIL __attribute__((musttail)) return

static int odd(uint32_t n);
__attribute__((noinline)) static int even(uint32_t n) {
  if (n == 0) return 1;
  TAIL odd(n - 1);
}
__attribute__((noinline)) static int odd(uint32_t n) {
  if (n == 0) return 0;
  TAIL even(n - 1);
}

struct machine { uint32_t a, b, left; };
typedef uint32_t (*operation)(struct machine *, const uint8_t *);
static operation const operations[5];
#define NEXT TAIL operations[*program](machine, program)

static uint32_t op_add(struct machine *machine, const uint8_t *program) {
  machine->a += program[1] + machine->b;
  program += 2;
  NEXT;
}
static uint32_t op_mul(struct machine *machine, const uint8_t *program) {
  machine->a = machine->a * 31 + 7;
  program += 1;
  NEXT;
}
static uint32_t op_swap(struct machine *machine, const uint8_t *program) {
  uint32_t held = machine->a;
  machine->a = machine->b;
  machine->b = held;
  program += 1;
  NEXT;
}
static uint32_t op_loop(struct machine *machine, const uint8_t *program) {
  program = --machine->left ? program - program[1] : program + 2;
  NEXT;
}
static uint32_t op_halt(struct machine *machine, const uint8_t *program) { return machine->a ^ machine->b ^ *program; }
static operation const operations[5] = {op_add, op_mul, op_swap, op_loop, op_halt};

RUN {
  static const uint8_t program[] = {0, 3, 1, 2, 0, 9, 2, 1, 3, 8, 4};
  struct machine machine = {1, 2, 20000};
  if (!even(1000000) || odd(1000000)) return -1;
  return (int32_t)mix(HASH, operations[program[0]](&machine, program));
}
