/* Integer arithmetic of every width: 64-bit division and remainder, shifts and rotations, counting bits, modular powers, multi-word
 * multiplication, sign extension of bytes and halves, bit fields. */
#include "check.h"

static uint64_t xorshift(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  return *state ^= *state << 17;
}

static uint64_t power(uint64_t base, uint64_t exponent, uint64_t modulus) {
  uint64_t result = 1;
  for (base %= modulus; exponent; exponent >>= 1, base = base * base % modulus)
    if (exponent & 1) result = result * base % modulus;
  return result;
}

static int prime(uint32_t n) {
  static const uint32_t witnesses[] = {2, 7, 61};
  uint32_t odd = n - 1;
  int twos = 0;
  if (n < 2) return 0;
  for (int i = 0; i < 3; i++)
    if (n % witnesses[i] == 0) return n == witnesses[i];
  while (!(odd & 1)) odd >>= 1, twos++;
  for (int i = 0; i < 3; i++) {
    uint64_t x = power(witnesses[i], odd, n);
    int r = 0;
    if (x == 1 || x == n - 1) continue;
    for (; r < twos - 1 && x != n - 1; r++) x = x * x % n;
    if (x != n - 1) return 0;
  }
  return 1;
}

struct packed {
  unsigned a : 3;
  int b : 5;
  unsigned c : 11;
  int d : 13;
};

RUN {
  uint64_t state = 88172645463325252ull;
  uint32_t hash = HASH;
  int primes = 0;
  for (int i = 0; i < 500; i++) {
    uint64_t x = xorshift(&state), y = xorshift(&state) >> (i % 60);
    int64_t s = (int64_t)x, t = (int64_t)(y | 1);
    if (i & 1) t = -t;
    hash = mix64(hash, x / (y | 1) + x % (y | 1));
    if (t != -1) hash = mix64(hash, (uint64_t)(s / t) ^ (uint64_t)(s % t));
    hash = mix64(hash, (uint64_t)(s >> (i & 63)) + (x >> (i & 63)) + (x << (i & 31)));
    hash = mix64(hash, x << (y & 63) | x >> (-y & 63));
    hash = mix(hash, (uint32_t)(__builtin_popcountll(x) + __builtin_clzll(y | 1) * 64 + __builtin_ctzll(y | 1 << 30) * 4096));
    hash = mix(hash, (uint32_t)(__builtin_popcount((uint32_t)x) + __builtin_clz((uint32_t)y | 1)));
    hash = mix64(hash, (uint64_t)(int64_t)(int8_t)x + (uint64_t)(int64_t)(int16_t)(x >> 8) + (uint64_t)(int64_t)(int32_t)(x >> 16));
    hash = mix(hash, (uint32_t)((int32_t)x / ((int32_t)(y >> 1 & 0x7fff) + 1) + (int32_t)((uint32_t)x % ((uint32_t)y | 1))));
    struct packed p = {(unsigned)x & 7, (int)(x >> 3 & 15) - 8, (unsigned)(x >> 8) & 2047, (int)(x >> 20 & 4095) - 2048};
    hash = mix(hash, p.a + (uint32_t)p.b * 3 + p.c * 5 + (uint32_t)p.d * 7);
    primes += prime((uint32_t)x >> 8);
  }
  if (!prime(2147483647) || prime(2147483646) || prime(3215031751u)) return -1;
  return (int32_t)mix(hash, (uint32_t)primes);
}
