/* What a C compiler keeps on the shadow stack: structures by value and as results, variable arguments, arrays of run-time length, addresses of
 * locals passed down, jump tables and tables of function pointers with several types. */
#include <stdarg.h>

#include "check.h"

struct vector { int x, y, z; };
struct matrix { struct vector row[3]; };

static struct vector add(struct vector a, struct vector b) { return (struct vector){a.x + b.x, a.y + b.y, a.z + b.z}; }
static int dot(struct vector a, struct vector b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
static struct matrix multiply(struct matrix a, struct matrix b) {
  struct matrix result;
  for (int i = 0; i < 3; i++) {
    struct vector columns[3] = {{b.row[0].x, b.row[1].x, b.row[2].x}, {b.row[0].y, b.row[1].y, b.row[2].y}, {b.row[0].z, b.row[1].z, b.row[2].z}};
    result.row[i] = (struct vector){dot(a.row[i], columns[0]), dot(a.row[i], columns[1]), dot(a.row[i], columns[2])};
  }
  return result;
}

static double total(const char *kinds, ...) {
  va_list list;
  double sum = 0;
  va_start(list, kinds);
  for (; *kinds; kinds++) switch (*kinds) {
      case 'i': sum += va_arg(list, int); break;
      case 'l': sum += (double)va_arg(list, long long); break;
      case 'd': sum += va_arg(list, double); break;
      case 'v': sum += dot(va_arg(list, struct vector), (struct vector){1, 2, 3}); break;
    }
  va_end(list);
  return sum;
}

static uint32_t triangle(int size, uint32_t hash) {
  int row[size];
  for (int i = 0; i < size; i++) row[i] = i ? row[i - 1] + i : 1;
  for (int i = 0; i < size; i++) hash = mix(hash, (uint32_t)row[i]);
  return size > 1 ? triangle(size - 1, hash) : hash;
}

static void set(int *to, int value) { *to = value; }
static void twice(int *to, int value) { set(to, value), set(to, *to * 2); }

static int op_add(int a, int b) { return a + b; }
static int op_sub(int a, int b) { return a - b; }
static int op_mul(int a, int b) { return a * b; }
static long long wide(long long a) { return a * a + 1; }
static double half(double a) { return a / 2; }
static int (*const binary[])(int, int) = {op_add, op_sub, op_mul};
static long long (*volatile const widen)(long long) = wide;
static double (*volatile const halve)(double) = half;

RUN {
  uint32_t hash = HASH;
  struct matrix m = {{{1, 2, 0}, {0, 1, 3}, {2, 0, 1}}}, p = m;
  for (int i = 0; i < 8; i++) p = multiply(p, m);
  for (int i = 0; i < 3; i++) {
    struct vector s = add(p.row[i], m.row[2 - i]);
    hash = mix(mix(mix(hash, (uint32_t)s.x), (uint32_t)s.y), (uint32_t)s.z);
  }
  double sum = total("idlvdi", 7, 2.5, 1LL << 40, (struct vector){4, 5, 6}, -0.25, -9);
  hash = mix64(hash, (uint64_t)(int64_t)(sum * 4));
  hash = triangle(24, hash);
  for (int i = 0; i < 30; i++) {
    int local;
    (i & 1 ? set : twice)(&local, i);
    hash = mix(hash, (uint32_t)binary[i % 3](local, i + 3));
  }
  hash = mix64(hash, (uint64_t)widen(123456789));
  return (int32_t)mix64(hash, (uint64_t)(halve(12345.0) * 16));
}
