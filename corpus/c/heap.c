/* The C library's allocator under a random load of malloc, realloc and free, with memory growing: a binary tree and a hash table of lists. */
#include <stdlib.h>
#include <string.h>

#include "check.h"

struct node { struct node *left, *right; uint32_t key; };
struct entry { struct entry *next; uint32_t key, value; };

static uint32_t state = 2463534242u;
static uint32_t draw(void) {
  state ^= state << 13;
  state ^= state >> 17;
  return state ^= state << 5;
}

static struct node *insert(struct node *tree, uint32_t key) {
  if (!tree) {
    tree = calloc(1, sizeof *tree);
    tree->key = key;
  } else if (key < tree->key) {
    tree->left = insert(tree->left, key);
  } else {
    tree->right = insert(tree->right, key);
  }
  return tree;
}
static uint32_t walk(const struct node *tree, uint32_t hash) {
  if (!tree) return hash;
  hash = walk(tree->left, hash);
  return walk(tree->right, mix(hash, tree->key));
}
static void drop(struct node *tree) {
  if (!tree) return;
  drop(tree->left);
  drop(tree->right);
  free(tree);
}

RUN {
  uint32_t hash = HASH;
  static unsigned char *blocks[200];
  static uint32_t sizes[200];
  for (int i = 0; i < 6000; i++) {
    uint32_t slot = draw() % 200, size = draw() % 3000 + 1;
    if (blocks[slot] && draw() % 3 == 0) {
      blocks[slot] = realloc(blocks[slot], size);
      if (size > sizes[slot]) memset(blocks[slot] + sizes[slot], (int)slot, size - sizes[slot]);
    } else {
      free(blocks[slot]);
      blocks[slot] = malloc(size);
      memset(blocks[slot], (int)slot, size);
    }
    sizes[slot] = size;
    uint32_t probe = draw() % 200;
    if (blocks[probe] && (blocks[probe][0] != (unsigned char)probe || blocks[probe][sizes[probe] - 1] != (unsigned char)probe)) return -1;
  }
  for (int i = 0; i < 200; i++) hash = mix(hash, blocks[i] ? sizes[i] : 0);

  struct node *tree = NULL;
  for (int i = 0; i < 3000; i++) tree = insert(tree, draw());
  hash = walk(tree, hash);
  drop(tree);

  struct entry **table = calloc(256, sizeof *table);
  for (int i = 0; i < 5000; i++) {
    uint32_t key = draw() % 700;
    struct entry *e = table[key % 256];
    while (e && e->key != key) e = e->next;
    if (!e) {
      e = malloc(sizeof *e);
      *e = (struct entry){table[key % 256], key, 0};
      table[key % 256] = e;
    }
    e->value += (uint32_t)i;
  }
  for (int b = 0; b < 256; b++)
    for (struct entry *e = table[b]; e; e = e->next) hash = mix(mix(hash, e->key), e->value);
  unsigned char *large = malloc(3 << 20);
  if (!large) return -2;
  memset(large, 0x5a, 3 << 20);
  memmove(large + 1, large, (3 << 20) - 1);
  return (int32_t)mix_byte(hash, large[(3 << 20) - 1]);
}
