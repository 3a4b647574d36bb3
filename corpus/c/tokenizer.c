/* A tokenizer and recursive-descent reader for JSON texts, good and bad ones: string scanning, switch tables, recursion, error paths. */
#include "check.h"

enum kind { END, OPEN_OBJECT, CLOSE_OBJECT, OPEN_LIST, CLOSE_LIST, COLON, COMMA, STRING, NUMBER, WORD, BAD };

static const char *at, *start;
static enum kind kind;
static uint32_t hash;
static int depth, deepest, values;

static int digit(char c) { return c >= '0' && c <= '9'; }

static enum kind scan_number(void) {
  if (*at == '-') at++;
  if (!digit(*at)) return BAD;
  if (*at == '0') at++;
  else
    while (digit(*at)) at++;
  if (*at == '.') {
    if (!digit(*++at)) return BAD;
    while (digit(*at)) at++;
  }
  if (*at == 'e' || *at == 'E') {
    at++;
    if (*at == '+' || *at == '-') at++;
    if (!digit(*at)) return BAD;
    while (digit(*at)) at++;
  }
  return NUMBER;
}

static enum kind scan_string(void) {
  for (at++; *at != '"'; at++) {
    if ((unsigned char)*at < 0x20) return BAD;
    if (*at != '\\') continue;
    switch (*++at) {
      case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't': break;
      case 'u':
        for (int i = 0; i < 4; i++) {
          char c = *++at;
          if (!digit(c) && !(c >= 'a' && c <= 'f') && !(c >= 'A' && c <= 'F')) return BAD;
        }
        break;
      default: return BAD;
    }
  }
  at++;
  return STRING;
}

static enum kind scan_word(void) {
  static const char *const words[] = {"true", "false", "null"};
  for (int w = 0; w < 3; w++) {
    const char *x = at, *y = words[w];
    while (*y && *x == *y) x++, y++;
    if (!*y) {
      at = x;
      return WORD;
    }
  }
  return BAD;
}

static void next(void) {
  while (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r') at++;
  start = at;
  switch (*at) {
    case 0: kind = END; break;
    case '{': at++; kind = OPEN_OBJECT; break;
    case '}': at++; kind = CLOSE_OBJECT; break;
    case '[': at++; kind = OPEN_LIST; break;
    case ']': at++; kind = CLOSE_LIST; break;
    case ':': at++; kind = COLON; break;
    case ',': at++; kind = COMMA; break;
    case '"': kind = scan_string(); break;
    case '-': case '0': case '1': case '2': case '3': case '4': case '5': case '6': case '7': case '8': case '9':
      kind = scan_number();
      break;
    default: kind = scan_word();
  }
  hash = mix_byte(hash, (uint8_t)kind);
  for (const char *c = start; c < at; c++) hash = mix_byte(hash, (uint8_t)*c);
}

static int value(void);

static int members(enum kind close, int keyed) {
  next();
  if (kind == close) {
    next();
    return 1;
  }
  for (;;) {
    if (keyed) {
      if (kind != STRING) return 0;
      next();
      if (kind != COLON) return 0;
      next();
    }
    if (!value()) return 0;
    if (kind == close) {
      next();
      return 1;
    }
    if (kind != COMMA) return 0;
    next();
  }
}

static int value(void) {
  int good;
  values++;
  if (++depth > deepest) deepest = depth;
  switch (kind) {
    case OPEN_OBJECT: good = members(CLOSE_OBJECT, 1); break;
    case OPEN_LIST: good = members(CLOSE_LIST, 0); break;
    case STRING: case NUMBER: case WORD:
      next();
      good = 1;
      break;
    default: good = 0;
  }
  depth--;
  return good;
}

static int text(const char *source) {
  at = source;
  depth = 0;
  next();
  return value() && kind == END;
}

static const char *const samples[] = {
    ("{\"machine\":{\"lanes\":2,\"policy\":\"round-robin\",\"seed\":42},\"sessions\":[{\"name\":\"worker.0\",\"cycles\":1e6},{\"name\":"
    "\"worker.1\",\"cycles\":-0.5E-3,\"notes\":[true,false,null,\"\\u00e9\\n\"]}]}"),
    "[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]",
    "[]", "{}", " 0 ", "\"text with \\\"quotes\\\"\"",
    "{\"a\":1,}", "[1 2]", "01", "1.", "\"open", "{\"a\" 1}", "nul", "[1,2", "\"\\x\"", "",
};

RUN {
  int good = 0;
  hash = HASH;
  for (unsigned i = 0; i < sizeof samples / sizeof samples[0]; i++) {
    int answer = text(samples[i]);
    good += answer;
    hash = mix_byte(hash, (uint8_t)answer);
  }
  if (good != 6 || deepest != 21) return -1;
  return (int32_t)mix(hash, (uint32_t)values);
}
