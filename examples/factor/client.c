/* A client with a context: each call to the server lends it the context until the reply. The name of its context tells the client which one it is, and so
 * which numbers to ask for. */
#include "../../guests/c/wavelock.h"

static const int64_t generous[] = {15, 1000003, 2147483647, 999985999949}, modest[] = {91, 10007 * 10009};

void _start(void) {
  int32_t context = wl_capability_str("generous"), questions = wl_port_str("questions");
  int is_generous = context >= 0;
  int count = is_generous ? sizeof generous / sizeof *generous : sizeof modest / sizeof *modest;
  if (!is_generous) context = wl_capability_str("modest");
  for (int i = 0; i < count; i++) {
    int64_t number = is_generous ? generous[i] : modest[i], factor = 0;
    char line[160], *at = wl_put_str(line, is_generous ? "generous: " : "modest:   ");
    int32_t code = wl_call(questions, &factor, number);
    at = wl_put_i64(at, number);
    if (code < 0) {
      at = wl_put_str(at, ": ");
      at = wl_put_str(at, wl_code_name(code));
    } else if (factor == number) {
      at = wl_put_str(at, " is prime");
    } else {
      at = wl_put_str(at, " = ");
      at = wl_put_i64(at, factor);
      at = wl_put_str(at, " * ");
      at = wl_put_i64(at, number / factor);
    }
    at = wl_put_str(at, "; frame ");
    at = wl_put_i64(at, wl_frame());
    at = wl_put_str(at, ", paid ");
    at = wl_put_i64(at, wl_context_consumed(context));
    at = wl_put_str(at, " cycles\n");
    wl_output(line, (int32_t)(at - line));
  }
}
