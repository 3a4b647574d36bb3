/* What every program of the corpus shares: the exported `run`, whose result is a checksum, and a hash to make it with. Compiled for the host
 * instead of WebAssembly it becomes a program that prints the same number. */
#ifndef CHECK_H
#define CHECK_H

#include <stdint.h>

#ifdef __wasm__
#define RUN __attribute__((export_name("run"))) int32_t run(void)
#else
#include <stdio.h>
int32_t run(void);
int main(void) { return printf("%d\n", run()) < 0; }
#define RUN int32_t run(void)
#endif

/* FNV-1a, a byte or a word at a time. */
static inline uint32_t mix_byte(uint32_t hash, uint8_t byte) { return (hash ^ byte) * 16777619u; }
static inline uint32_t mix(uint32_t hash, uint32_t word) {
  for (int i = 0; i < 4; i++) hash = mix_byte(hash, (uint8_t)(word >> (8 * i)));
  return hash;
}
static inline uint32_t mix64(uint32_t hash, uint64_t word) { return mix(mix(hash, (uint32_t)word), (uint32_t)(word >> 32)); }
static inline uint32_t mix_text(uint32_t hash, const char *text) {
  while (*text) hash = mix_byte(hash, (uint8_t)*text++);
  return hash;
}
#define HASH 2166136261u

#endif
