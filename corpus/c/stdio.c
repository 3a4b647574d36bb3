/* A whole program on WASI: arguments, standard input to its end, formatted output through stdio's buffers, the clock, sleep, and an exit code. Time is
 * virtual, so it only checks that the clock does not go back. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
  unsigned char block[64];
  size_t size, bytes = 0, lines = 0;
  unsigned sum = 0;
  struct timespec before, after;
  clock_gettime(CLOCK_MONOTONIC, &before);
  for (int i = 1; i < argc; i++) printf("argument %d: %s\n", i, argv[i]);
  while ((size = fread(block, 1, sizeof block, stdin)) > 0)
    for (size_t i = 0; i < size; i++, bytes++) {
      lines += block[i] == '\n';
      sum = sum * 31 + block[i];
    }
  printf("stdin: %zu bytes, %zu lines, sum %08x\n", bytes, lines, sum);
  for (int i = 1; i <= 10; i++) printf("%2d %4d %8.5f %s\n", i, i * i * i, 1.0 / i, i % 2 ? "odd" : "even");
  usleep(1500);
  clock_gettime(CLOCK_MONOTONIC, &after);
  if (after.tv_sec < before.tv_sec || (after.tv_sec == before.tv_sec && after.tv_nsec < before.tv_nsec)) {
    fputs("the clock went back\n", stderr);
    return 1;
  }
  fputs("done\n", stderr);
  exit(argc == 1 ? 0 : 7);
}
