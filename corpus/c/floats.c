/* Floating point: Newton and series written here, a small n-body system, a linear solver, single precision, conversions, rounding and
 * comparisons. Only correctly rounded operations are used, so every conforming engine gives the same bits. */
#include "check.h"

static uint64_t bits(double x) {
  union { double d; uint64_t u; } v = {x};
  return v.u;
}
static uint32_t bits32(float x) {
  union { float f; uint32_t u; } v = {x};
  return v.u;
}

static double root(double x) {
  double guess = x > 1 ? x / 2 : 1;
  for (int i = 0; i < 60; i++) guess = (guess + x / guess) / 2;
  return guess;
}
static double exponential(double x) {
  double term = 1, sum = 1;
  for (int i = 1; i < 40; i++) sum += term *= x / i;
  return sum;
}
static double sine(double x) {
  double term = x, sum = x;
  for (int i = 1; i < 20; i++) sum += term *= -x * x / ((2 * i) * (2 * i + 1));
  return sum;
}

struct body { double p[3], v[3], m; };
static struct body bodies[4] = {
    {{0, 0, 0}, {0, 0, 0}, 39.5}, {{4.84, -1.16, -0.10}, {0.61, 2.81, -0.02}, 0.0377},
    {{8.34, 4.12, -0.40}, {-1.01, 1.82, 0.008}, 0.0113}, {{12.89, -15.11, -0.22}, {1.08, 0.87, -0.01}, 0.0017}};

static void advance(double step) {
  for (int i = 0; i < 4; i++)
    for (int j = i + 1; j < 4; j++) {
      double d[3], square = 0;
      for (int k = 0; k < 3; k++) {
        d[k] = bodies[i].p[k] - bodies[j].p[k];
        square += d[k] * d[k];
      }
      double scale = step / (square * __builtin_sqrt(square));
      for (int k = 0; k < 3; k++) {
        bodies[i].v[k] -= d[k] * bodies[j].m * scale;
        bodies[j].v[k] += d[k] * bodies[i].m * scale;
      }
    }
  for (int i = 0; i < 4; i++)
    for (int k = 0; k < 3; k++) bodies[i].p[k] += step * bodies[i].v[k];
}

/* Gauss with pivots on the Hilbert matrix. */
static uint32_t solve(uint32_t hash) {
  double a[8][9];
  for (int i = 0; i < 8; i++) {
    for (int j = 0; j < 8; j++) a[i][j] = 1.0 / (i + j + 1);
    a[i][8] = i % 2 ? -1 : 1;
  }
  for (int c = 0; c < 8; c++) {
    int best = c;
    for (int r = c + 1; r < 8; r++)
      if (__builtin_fabs(a[r][c]) > __builtin_fabs(a[best][c])) best = r;
    for (int j = 0; j < 9; j++) {
      double held = a[c][j];
      a[c][j] = a[best][j];
      a[best][j] = held;
    }
    for (int r = 0; r < 8; r++) {
      if (r == c) continue;
      double factor = a[r][c] / a[c][c];
      for (int j = c; j < 9; j++) a[r][j] -= factor * a[c][j];
    }
  }
  for (int i = 0; i < 8; i++) hash = mix64(hash, bits(a[i][8] / a[i][i]));
  return hash;
}

RUN {
  uint32_t hash = HASH;
  if (__builtin_fabs(root(2) - __builtin_sqrt(2.0)) > 1e-15) return -1;
  for (int i = -20; i <= 20; i++) {
    double x = i * 0.37;
    hash = mix64(hash, bits(exponential(x)));
    hash = mix64(hash, bits(sine(x)));
    hash = mix64(hash, bits(__builtin_floor(x) + 16 * __builtin_ceil(x) + 256 * __builtin_trunc(x)));
    hash = mix(hash, bits32((float)x * 1.1f / 3.0f - 0.25f));
    hash = mix(hash, (uint32_t)(int32_t)(x * 1000) + (x < 1.5) + 2 * (x >= -2.25) + 4 * (x == 0));
    hash = mix64(hash, (uint64_t)(int64_t)(x * 1e12));
    hash = mix64(hash, bits((double)(uint64_t)(i * 0x123456789abcdefLL)));
    hash = mix(hash, bits32((float)(int64_t)(i * 0x123456789abcdefLL)));
    hash = mix64(hash, bits(__builtin_copysign(i + 0.5, -x)));
  }
  for (int i = 0; i < 400; i++) advance(0.01);
  for (int i = 0; i < 4; i++)
    for (int k = 0; k < 3; k++) hash = mix64(hash, bits(bodies[i].p[k]));
  return (int32_t)solve(hash);
}
