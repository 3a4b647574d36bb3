/* An assembler and interpreter for a small stack machine: text is assembled to bytecode, then run by a switch in a loop. Programs: factorial with
 * wrapping, primes by trial division, and squares kept in the machine's own memory. */
#include "check.h"

enum { PUSH, ADD, SUB, MUL, MOD, LESS, JUMP, JUMP0, LOAD, STORE, CALL, RETURN, OUT, DUP, DROP, SWAP, HALT, OPERATIONS };

static const char *const names[OPERATIONS] = {"push", "add",   "sub",  "mul",    "mod", "less", "jump", "jump0", "load",
                                              "store", "call", "return", "out", "dup", "drop", "swap", "halt"};

static int32_t code[512], stack[128], memory[128];
static int calls[64], length;
static int labels[26];

static int same(const char *a, const char *b, int count) {
  for (int i = 0; i < count; i++)
    if (a[i] != b[i] || !b[i]) return 0;
  return !b[count];
}

/* Two passes: the first finds the labels (one capital letter and a colon), the second writes the code. */
static int assemble(const char *source) {
  for (int pass = 0; pass < 2; pass++) {
    const char *at = source;
    length = 0;
    while (*at) {
      if (*at == ' ' || *at == '\n') {
        at++;
      } else if (*at >= 'A' && *at <= 'Z' && at[1] == ':') {
        labels[*at - 'A'] = length;
        at += 2;
      } else if (*at >= 'A' && *at <= 'Z') {
        code[length++] = labels[*at++ - 'A'];
      } else if ((*at >= '0' && *at <= '9') || *at == '-') {
        int32_t value = 0, sign = 1;
        if (*at == '-') sign = -1, at++;
        while (*at >= '0' && *at <= '9') value = value * 10 + (*at++ - '0');
        code[length++] = sign * value;
      } else {
        int size = 0, found = -1;
        while (at[size] > ' ') size++;
        for (int i = 0; i < OPERATIONS; i++)
          if (same(at, names[i], size)) found = i;
        if (found < 0) return 0;
        code[length++] = found;
        at += size;
      }
    }
  }
  return 1;
}

static uint32_t execute(uint32_t hash) {
  int pc = 0, sp = 0, depth = 0;
  int32_t a;
  for (int fuel = 0; fuel < 1000000; fuel++) {
    switch (code[pc++]) {
      case PUSH: stack[sp++] = code[pc++]; break;
      case ADD: sp--; stack[sp - 1] = (int32_t)((uint32_t)stack[sp - 1] + (uint32_t)stack[sp]); break;
      case SUB: sp--; stack[sp - 1] = (int32_t)((uint32_t)stack[sp - 1] - (uint32_t)stack[sp]); break;
      case MUL: sp--; stack[sp - 1] = (int32_t)((uint32_t)stack[sp - 1] * (uint32_t)stack[sp]); break;
      case MOD: sp--; stack[sp - 1] %= stack[sp]; break;
      case LESS: sp--; stack[sp - 1] = stack[sp - 1] < stack[sp]; break;
      case JUMP: pc = code[pc]; break;
      case JUMP0: a = stack[--sp]; pc = a ? pc + 1 : code[pc]; break;
      case LOAD: stack[sp - 1] = memory[stack[sp - 1]]; break;
      case STORE: sp -= 2; memory[stack[sp + 1]] = stack[sp]; break;
      case CALL: calls[depth++] = pc + 1; pc = code[pc]; break;
      case RETURN: pc = calls[--depth]; break;
      case OUT: hash = mix(hash, (uint32_t)stack[--sp]); break;
      case DUP: stack[sp] = stack[sp - 1]; sp++; break;
      case DROP: sp--; break;
      case SWAP: a = stack[sp - 1]; stack[sp - 1] = stack[sp - 2]; stack[sp - 2] = a; break;
      case HALT: return mix(hash, (uint32_t)fuel);
    }
  }
  return 0;
}

static const char *const programs[] = {
    /* factorial by recursion: n -- n! */
    "push 20 call F out push 12 call F out halt "
    "F: dup push 2 less jump0 G drop push 1 return "
    "G: dup push 1 sub call F mul return",
    /* primes below 200: memory 0 = candidate, 1 = divisor */
    "push 2 push 0 store "
    "A: push 0 load push 200 less jump0 Z push 2 push 1 store "
    "B: push 1 load push 0 load less jump0 P "
    "push 0 load push 1 load mod jump0 N "
    "push 1 load push 1 add push 1 store jump B "
    "P: push 0 load out "
    "N: push 0 load push 1 add push 0 store jump A "
    "Z: halt",
    /* squares into memory from 10 on, then out in reverse order: memory 0 = counter */
    "push 0 push 0 store "
    "A: push 0 load push 40 less jump0 B push 0 load dup mul push 0 load push 10 add store "
    "push 0 load push 1 add push 0 store jump A "
    "B: push 49 D: dup load out push 1 sub dup push 10 less jump0 D halt",
};

RUN {
  uint32_t hash = HASH;
  for (unsigned i = 0; i < sizeof programs / sizeof programs[0]; i++) {
    if (!assemble(programs[i])) return -1;
    for (int j = 0; j < 128; j++) memory[j] = 0;
    hash = execute(hash);
    if (!hash) return -2;
  }
  return (int32_t)hash;
}
