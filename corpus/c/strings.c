/* The C library's text and memory routines, its sort and search, and its number parsers. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static const char prose[] =
    "A wave is a span of lane-local time in which lanes cannot see each other's effects; effects cross at its end. "
    "A frame samples input, delivers events, runs waves within the cycle budget, and ends in FRAME_SYNC.";

static int order(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

RUN {
  static char copy[512], other[512];
  char *words[64], *key = "lane-local";
  int count = 0;
  uint32_t hash = HASH;
  strcpy(copy, prose);
  for (char *word = strtok(copy, " .,;"); word; word = strtok(NULL, " .,;")) words[count++] = word;
  qsort(words, (size_t)count, sizeof words[0], order);
  for (int i = 0; i < count; i++) hash = mix_text(hash, words[i]);
  char **found = bsearch(&key, words, (size_t)count, sizeof words[0], order);
  if (!found || strcmp(*found, key)) return -1;

  strcpy(other, prose);
  for (char *c = other; *c; c++) *c = (char)(isupper((unsigned char)*c) ? tolower((unsigned char)*c) : toupper((unsigned char)*c));
  hash = mix_text(hash, other);
  memmove(other + 3, other, 100);
  memmove(other + 50, other + 60, 100);
  memset(other + 10, '-', 7);
  hash = mix_text(hash, other);
  hash = mix(hash, (uint32_t)(strstr(prose, "frame") - prose));
  hash = mix(hash, (uint32_t)(strrchr(prose, 'w') - prose));
  hash = mix(hash, (uint32_t)strspn(prose, "A wvaei"));
  hash = mix(hash, (uint32_t)strcspn(prose, ";"));
  hash = mix(hash, (uint32_t)(memcmp(prose, other, 20) > 0) + 2 * (uint32_t)(strncmp("frame", "framing", 4) == 0));
  if (strstr(prose, "absent") || memchr(prose, 'Z', sizeof prose)) return -2;
  other[0] = 0;
  for (int i = 0; i < 10; i++) strncat(other, prose + i * 7, 5);
  hash = mix_text(hash, other);
  char *end;
  hash = mix(hash, (uint32_t)strtol("  -1234xyz", &end, 10));
  hash = mix_text(hash, end);
  hash = mix(hash, (uint32_t)strtoul("deadbeef", NULL, 16));
  hash = mix64(hash, (uint64_t)strtoll("-777777777777", NULL, 8));
  return (int32_t)mix(hash, (uint32_t)atoi("424242"));
}
