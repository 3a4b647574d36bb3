/* SHA-256 with its constants computed at the start (the roots of the first primes, by integer Newton iteration), checked against the published
 * digest of "abc" and run over a longer message. */
#include "check.h"

static uint32_t constants[64], initial[8];

/* The first 32 bits of the fraction of the square (2) or cube (3) root of a prime. */
static uint32_t root_fraction(uint32_t prime, int degree) {
  uint64_t low = 0, high = (uint64_t)20 << 32;
  while (high - low > 1) {
    uint64_t middle = low + (high - low) / 2;
    /* middle^degree against prime * 2^(32 * degree), in 32-bit limbs. */
    uint32_t product[6] = {1}, factor[2] = {(uint32_t)middle, (uint32_t)(middle >> 32)};
    for (int d = 0; d < degree; d++) {
      uint32_t next[6] = {0};
      for (int j = 0; j < 2; j++) {
        uint64_t carry = 0;
        for (int i = 0; i + j < 6; i++) {
          carry += (uint64_t)product[i] * factor[j] + next[i + j];
          next[i + j] = (uint32_t)carry;
          carry >>= 32;
        }
      }
      for (int i = 0; i < 6; i++) product[i] = next[i];
    }
    uint64_t whole = product[degree] | (uint64_t)product[degree + 1] << 32;
    if (whole < prime) low = middle;
    else high = middle;
  }
  return (uint32_t)low;
}

static void prepare(void) {
  int found = 0;
  for (uint32_t n = 2; found < 64; n++) {
    int prime = 1;
    for (uint32_t d = 2; d * d <= n; d++)
      if (n % d == 0) prime = 0;
    if (!prime) continue;
    if (found < 8) initial[found] = root_fraction(n, 2);
    constants[found++] = root_fraction(n, 3);
  }
}

static uint32_t rotate(uint32_t word, int by) { return word >> by | word << (32 - by); }

static void block(uint32_t state[8], const uint8_t *bytes) {
  uint32_t w[64], v[8];
  for (int i = 0; i < 16; i++)
    w[i] = (uint32_t)bytes[4 * i] << 24 | (uint32_t)bytes[4 * i + 1] << 16 | (uint32_t)bytes[4 * i + 2] << 8 | bytes[4 * i + 3];
  for (int i = 16; i < 64; i++) {
    uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + w[i - 7] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
  }
  for (int i = 0; i < 8; i++) v[i] = state[i];
  for (int i = 0; i < 64; i++) {
    uint32_t e = v[4], a = v[0];
    uint32_t t1 = v[7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & v[5]) ^ (~e & v[6])) + constants[i] + w[i];
    uint32_t t2 = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
    for (int j = 7; j > 0; j--) v[j] = v[j - 1];
    v[4] += t1;
    v[0] = t1 + t2;
  }
  for (int i = 0; i < 8; i++) state[i] += v[i];
}

static void sha256(const uint8_t *message, uint32_t length, uint32_t state[8]) {
  uint8_t tail[128] = {0};
  uint32_t whole = length / 64 * 64, rest = length - whole, size = rest < 56 ? 64 : 128;
  for (int i = 0; i < 8; i++) state[i] = initial[i];
  for (uint32_t i = 0; i < whole; i += 64) block(state, message + i);
  for (uint32_t i = 0; i < rest; i++) tail[i] = message[whole + i];
  tail[rest] = 0x80;
  for (int i = 0; i < 8; i++) tail[size - 1 - i] = (uint8_t)((uint64_t)length * 8 >> (8 * i));
  for (uint32_t i = 0; i < size; i += 64) block(state, tail + i);
}

static uint8_t message[10000];

RUN {
  uint32_t state[8], hash = HASH;
  prepare();
  sha256((const uint8_t *)"abc", 3, state);
  if (state[0] != 0xba7816bf || state[7] != 0xf20015ad) return -1;
  for (int i = 0; i < 10000; i++) message[i] = (uint8_t)(i * 7 + 3);
  for (uint32_t length = 0; length <= 10000; length += 1111) {
    sha256(message, length, state);
    for (int i = 0; i < 8; i++) hash = mix(hash, state[i]);
  }
  return (int32_t)hash;
}
