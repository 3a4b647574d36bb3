/* A plain C program that does not use Wavelock's interface: arguments, formatted output, and standard input echoed line by line in capitals. */
#include <ctype.h>
#include <stdio.h>

int main(int argc, char **argv) {
  char line[256];
  printf("Hello from C, with %d argument%s:", argc - 1, argc == 2 ? "" : "s");
  for (int i = 1; i < argc; i++) printf(" %s", argv[i]);
  printf("\n");
  for (int number = 1; fgets(line, sizeof line, stdin); number++) {
    for (char *c = line; *c; c++) *c = (char)toupper((unsigned char)*c);
    printf("%3d: %s", number, line);
  }
  return 0;
}
