/* The C library's formatted output and input: snprintf over every conversion, sscanf and strtod back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static char text[4096];

RUN {
  uint32_t hash = HASH;
  for (int i = -6; i <= 6; i++) {
    double x = i * 1234.56789 / (1 << (i + 6));
    int size = snprintf(text, sizeof text, "[%d|%5d|%-5d|%05d|%+d|%x|%X|%#o|%u|%lld|%llx]", i, i, i, i, i, (unsigned)i, (unsigned)i, (unsigned)i * 8,
                        (unsigned)i, (long long)i << 40, (unsigned long long)i);
    size += snprintf(text + size, sizeof text - (size_t)size, "[%f|%.3f|%10.2f|%-12.4f|%e|%.0e|%g|%.10g|%G|%a]", x, x, x, x, x, x, x, x, x, x);
    size += snprintf(text + size, sizeof text - (size_t)size, "[%s|%10s|%-10s|%.3s|%c|%5c|%%|%*d|%.*f]", "wave", "lock", "lane", "frame", 'A' + i, '!', 7, i,
                     i + 6, x);
    if ((int)strlen(text) != size) return -1;
    hash = mix_text(hash, text);
    int whole;
    double back;
    char word[16];
    snprintf(text, sizeof text, "%d %.17g %s", i, x, "word");
    if (sscanf(text, "%d %lf %15s", &whole, &back, word) != 3 || whole != i || back != x || strcmp(word, "word")) return -2;
    if (strtod(strchr(text, ' '), NULL) != x) return -3;
  }
  int cut = snprintf(text, 8, "%s", "a line that does not fit");
  return (int32_t)mix(mix_text(hash, text), (uint32_t)cut);
}
