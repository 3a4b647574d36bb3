/* A generic quicksort over bytes with a comparison by function pointer, on words, on records by two keys and on pointers to text. */
#include "check.h"

typedef int (*comparison)(const void *, const void *);

static void swap(char *a, char *b, int size) {
  while (size--) {
    char held = *a;
    *a++ = *b;
    *b++ = held;
  }
}

static void sort(char *base, int count, int size, comparison compare) {
  while (count > 1) {
    char *last = base + (count - 1) * size;
    swap(base + (count / 2) * size, last, size);
    int below = 0;
    for (int i = 0; i < count - 1; i++)
      if (compare(base + i * size, last) < 0) swap(base + i * size, base + below++ * size, size);
    swap(base + below * size, last, size);
    if (below < count - below - 1) {
      sort(base, below, size, compare);
      base += (below + 1) * size;
      count -= below + 1;
    } else {
      sort(base + (below + 1) * size, count - below - 1, size, compare);
      count = below;
    }
  }
}

struct record {
  int16_t key;
  uint8_t minor;
  uint32_t payload;
};

static int by_value(const void *a, const void *b) {
  int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return (x > y) - (x < y);
}
static int by_keys(const void *a, const void *b) {
  const struct record *x = a, *y = b;
  if (x->key != y->key) return x->key < y->key ? -1 : 1;
  if (x->minor != y->minor) return (int)y->minor - (int)x->minor;
  return (x->payload > y->payload) - (x->payload < y->payload);
}
static int by_text(const void *a, const void *b) {
  const char *x = *(const char *const *)a, *y = *(const char *const *)b;
  while (*x && *x == *y) x++, y++;
  return (int)(unsigned char)*x - (int)(unsigned char)*y;
}

static int32_t numbers[2000];
static struct record records[500];
static const char *words[] = {"lane", "wave", "frame", "cycle", "session", "coroutine", "channel", "ledger", "lease", "island", "slice", "step"};

RUN {
  uint32_t state = 7, hash = HASH;
  for (int i = 0; i < 2000; i++) numbers[i] = (int32_t)(state = state * 1664525u + 1013904223u);
  sort((char *)numbers, 2000, sizeof numbers[0], by_value);
  for (int i = 0; i < 2000; i++) {
    if (i && numbers[i - 1] > numbers[i]) return -1;
    hash = mix(hash, (uint32_t)numbers[i]);
  }
  for (int i = 0; i < 500; i++) {
    state = state * 1664525u + 1013904223u;
    records[i] = (struct record){(int16_t)(state >> 28) - 8, (uint8_t)(state >> 20) & 7, state};
  }
  sort((char *)records, 500, sizeof records[0], by_keys);
  for (int i = 0; i < 500; i++) {
    if (i && by_keys(&records[i - 1], &records[i]) > 0) return -2;
    hash = mix(hash, records[i].payload);
  }
  sort((char *)words, sizeof words / sizeof words[0], sizeof words[0], by_text);
  for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++) hash = mix_text(hash, words[i]);
  return (int32_t)hash;
}
