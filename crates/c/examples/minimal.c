/* A guest that echoes its input, with a function of the host, saved and rolled back. Ends with 0 if
   everything is as expected. Also compiles as C++. */
#include "wavelock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char GUEST[] =
    "(module"
    "  (import \"game\" \"double\" (func $double (param i32) (result i32)))"
    "  (import \"wavelock\" \"input\" (func $input (param i32 i32) (result i32)))"
    "  (import \"wavelock\" \"output\" (func $output (param i32 i32) (result i32)))"
    "  (import \"wavelock\" \"sleep\" (func $sleep (param i64)))"
    "  (memory 1)"
    "  (func (export \"_start\")"
    "    (loop $forever"
    "      (if (i32.gt_s (call $input (i32.const 0) (i32.const 1)) (i32.const 0)) (then"
    "        (i32.store8 (i32.const 0) (call $double (i32.load8_u (i32.const 0))))"
    "        (drop (call $output (i32.const 0) (i32.const 1)))"
    "        (br $forever)))"
    "      (call $sleep (i64.const 1))"
    "      (br $forever))))";

static void check(wavelock_code code, const char *what) {
    if (code != WAVELOCK_OK) {
        char text[1024];
        wavelock_error(text, sizeof text, NULL);
        text[sizeof text - 1] = 0;
        fprintf(stderr, "%s: %s\n", what, text);
        exit(1);
    }
}

/* The state behind the host: how often the guest called. */
typedef struct {
    int calls;
} game;

static bool doubled(void *user, wavelock_handle call, const uint64_t *arguments, uint64_t *results) {
    uint32_t session = 9;
    ((game *)user)->calls += 1;
    results[0] = arguments[0] * 2;
    return wavelock_call_from(call, &session, NULL) == WAVELOCK_OK && session == 0;
}

/* One frame with one byte of input; the byte that comes out. */
static int frame(wavelock_handle machine, uint32_t session, uint8_t byte, wavelock_report *report) {
    uint8_t answer = 0;
    size_t length = 0;
    check(wavelock_input(machine, session, &byte, 1, NULL), "input");
    check(wavelock_advance(machine, report), "advance");
    if (report->outputs != 1) {
        return -1;
    }
    check(wavelock_output(machine, 0, NULL, &answer, 1, &length), "output");
    return length == 1 ? answer : -1;
}

int main(void) {
    wavelock_handle engine, module, host, session, description, machine, before;
    wavelock_report first, again;
    uint32_t echo;
    game state = {0};

    check(wavelock_engine_new(1, &engine), "engine");
    check(wavelock_module_new(engine, (const uint8_t *)GUEST, strlen(GUEST), &module), "module");
    check(wavelock_host_new("game", 1, &state, NULL, NULL, &host), "host");
    check(wavelock_host_function(host, WAVELOCK_VIEW, "game", "double", 40, "i", "i", doubled), "view");
    check(wavelock_session_new("echo", module, &session), "session");
    check(wavelock_description_new(engine, &description), "description");
    check(wavelock_description_rollback(description, 8), "rollback");
    check(wavelock_description_host(description, host), "host");
    check(wavelock_description_session(description, session), "session");
    check(wavelock_machine_new(description, &machine), "machine");
    check(wavelock_session_find(machine, "echo", &echo), "find");

    check(wavelock_save(machine, &before), "save");
    printf("%d\n", frame(machine, echo, 21, &first));
    check(wavelock_load(machine, before), "load");
    printf("%d\n", frame(machine, echo, 21, &again));
    if (memcmp(first.digest, again.digest, sizeof first.digest) != 0 || state.calls != 2) {
        fprintf(stderr, "the same input gave another digest\n");
        return 1;
    }
    for (int at = 0; at < 4; at++) {
        printf("%02x", first.digest[at]);
    }
    printf(" after frame %" PRIu64 "\n", again.frame);

    check(wavelock_drop(before), "drop");
    check(wavelock_drop(machine), "drop");
    check(wavelock_drop(module), "drop");
    check(wavelock_drop(engine), "drop");
    /* A handle that was dropped is refused, not used. */
    return wavelock_advance(machine, NULL) == WAVELOCK_STALE ? 0 : 1;
}
