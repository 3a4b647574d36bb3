/* wavelock.h: the guest interface of Wavelock, version 1, for C and C++ compiled to WebAssembly with clang. Header only, no libc needed.
 *
 * Every function of import module "wavelock" is here under its name with the prefix wl_, with the interface's types; below them
 * are a few inline helpers. A negative result is one of the WL_E... codes. A pointer outside the guest's memory faults the coroutine.
 *
 * Coroutines and the stack: compiled C keeps arrays and variables whose address is taken on a shadow stack in memory. A coroutine started
 * with wl_spawn has none (its first use faults), so start C functions with wl_start, which gives the child its own stack:
 *
 *     static WL_STACK stack[8192];
 *     int64_t child = wl_start(work, 7, stack, sizeof stack);
 *
 * Wavelock finds the stack pointer by its name, so link without --strip-all (--strip-debug is fine), or with --export=__stack_pointer.
 *
 *     clang --target=wasm32 -O2 -nostdlib -mbulk-memory -Wl,--strip-debug,--export-table -o guest.wasm guest.c
 *
 * (clang runs wasm-opt if it is installed, and wasm-opt removes the bodies of functions that only wl_start calls unless the table is exported.)
 */
#ifndef WAVELOCK_H
#define WAVELOCK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WL_IMPORT(name) __attribute__((import_module("wavelock"), import_name(name)))

/* Error codes. */
enum {
  WL_EINVAL = -1,    /* an argument is outside what the operation accepts */
  WL_ESTALE = -2,    /* the reference or handle is no longer valid */
  WL_ECLOSED = -3,   /* the channel is closed and, for a receiver, drained */
  WL_EAGAIN = -4,    /* it would have to block, and this call never blocks */
  WL_EMSGSIZE = -5,  /* the message does not fit the buffer, or is of the other kind; it stays in the channel */
  WL_ELIMIT = -6,    /* a limit of the manifest is reached */
  WL_EDENIED = -7,   /* the session has no right to do this */
  WL_EFAULTED = -8,  /* the coroutine waited for ended with a fault */
  WL_ECANCELED = -9, /* the coroutine waited for was canceled */
  WL_EREVOKED = -10  /* the time lent with a call was revoked */
};

/* Coroutines. A reference is never negative. An entry is a function of table 0, which is what a C function pointer is. */
WL_IMPORT("spawn") int64_t wl_spawn(int32_t entry, int64_t arg);
WL_IMPORT("spawn_on") int64_t wl_spawn_on(int32_t entry, int64_t arg, int32_t lane);
WL_IMPORT("spawn_stack") int64_t wl_spawn_stack(int32_t entry, int64_t arg, void *top);
WL_IMPORT("detach") int32_t wl_detach(int64_t ref);
WL_IMPORT("yield") void wl_yield(void);
WL_IMPORT("sleep") void wl_sleep(int64_t frames);
WL_IMPORT("self") int64_t wl_self(void);
WL_IMPORT("join") int32_t wl_join(int64_t ref, int64_t *result);
WL_IMPORT("cancel") int32_t wl_cancel(int64_t ref);
WL_IMPORT("park") int32_t wl_park(void);
WL_IMPORT("unpark") int32_t wl_unpark(int64_t ref);
WL_IMPORT("exit") void wl_exit(int64_t value) __attribute__((noreturn));

/* Channels. A handle is never negative. */
WL_IMPORT("channel") int32_t wl_channel(int32_t capacity);
WL_IMPORT("port") int32_t wl_port(const char *name, int32_t length);
WL_IMPORT("send") int32_t wl_send(int32_t channel, int64_t value);
WL_IMPORT("try_send") int32_t wl_try_send(int32_t channel, int64_t value);
WL_IMPORT("recv") int32_t wl_recv(int32_t channel, int64_t *value);
WL_IMPORT("try_recv") int32_t wl_try_recv(int32_t channel, int64_t *value);
WL_IMPORT("send_bytes") int32_t wl_send_bytes(int32_t channel, const void *bytes, int32_t length);
WL_IMPORT("recv_bytes") int32_t wl_recv_bytes(int32_t channel, void *bytes, int32_t capacity);
WL_IMPORT("select") int32_t wl_select(const int32_t *channels, int32_t count);
WL_IMPORT("close") int32_t wl_close(int32_t channel);

/* This session, and the end of another, to which a port leads. */
WL_IMPORT("session_name") int32_t wl_session_name(char *name, int32_t capacity);
WL_IMPORT("session_index") int32_t wl_session_index(void);
WL_IMPORT("session_wait") int32_t wl_session_wait(int32_t port, int64_t *exit_code);

/* Time, lane, random numbers. */
WL_IMPORT("frame") int64_t wl_frame(void);
WL_IMPORT("lane") int32_t wl_lane(void);
WL_IMPORT("cycles") int64_t wl_cycles(void);
WL_IMPORT("remaining") int64_t wl_remaining(void);
WL_IMPORT("random") int64_t wl_random(void);

/* Input, output, diagnostics. */
WL_IMPORT("input") int32_t wl_input(void *bytes, int32_t capacity);
WL_IMPORT("output") int32_t wl_output(const void *bytes, int32_t length);
WL_IMPORT("log") void wl_log(const void *bytes, int32_t length);

/* Calls. A caller that holds a context lends it to the coroutine that accepts the call, until the reply. wl_accept takes every call; wl_serve replies to the
 * last one (-1: none) and takes the next that lends a context: the loop of a passive server. Both return a handle for the reply. */
WL_IMPORT("call") int32_t wl_call(int32_t channel, int64_t *answer, int64_t value);
WL_IMPORT("accept") int32_t wl_accept(int32_t channel, int64_t *value);
WL_IMPORT("reply") int32_t wl_reply(int32_t reply, int64_t value);
WL_IMPORT("serve") int32_t wl_serve(int32_t channel, int64_t *value, int32_t reply, int64_t answer);

/* Contexts and policy: the handles come from wl_capability, for what the manifest granted. */
typedef struct {
  int64_t budget, period, deadline; /* cycles */
  int64_t refills;                  /* 2 to 8 */
  int64_t overrun;                  /* one of WL_OVERRUN_... */
  int64_t activation;               /* 0 sporadic, 1 constant bandwidth */
} wl_context;
typedef struct {
  int64_t count, first, last, overrun;
} wl_notice;
enum { WL_OVERRUN_THROTTLE, WL_OVERRUN_NOTIFY_AND_THROTTLE, WL_OVERRUN_DEMOTE, WL_OVERRUN_NOTIFY_ONLY, WL_OVERRUN_END };
WL_IMPORT("capability") int32_t wl_capability(const char *name, int32_t length);
WL_IMPORT("context_create") int32_t wl_context_create(int32_t control, const wl_context *parameters);
WL_IMPORT("context_configure") int32_t wl_context_configure(int32_t context, const wl_context *parameters);
WL_IMPORT("context_bind") int32_t wl_context_bind(int32_t context, int64_t ref);
WL_IMPORT("context_unbind") int32_t wl_context_unbind(int32_t context);
WL_IMPORT("context_revoke") int32_t wl_context_revoke(int32_t context);
WL_IMPORT("context_consumed") int64_t wl_context_consumed(int32_t context);
WL_IMPORT("context_notice") int32_t wl_context_notice(int32_t context, wl_notice *notice);
WL_IMPORT("context_timeout") int32_t wl_context_timeout(int32_t context, int32_t channel);
WL_IMPORT("context_yield") int32_t wl_context_yield(void);
WL_IMPORT("weight") int32_t wl_weight(int32_t policy, int64_t ref, int32_t weight);
WL_IMPORT("latency_class") int32_t wl_latency_class(int32_t policy, int64_t ref, int32_t latency_class);
WL_IMPORT("priority") int32_t wl_priority(int32_t policy, int64_t ref, int32_t priority);

/* Pass this to wl_join or wl_session_wait to discard the result. */
#define WL_NOWHERE ((int64_t *)-1)

/* The entry function of a coroutine, and the memory for its stack. */
typedef int64_t (*wl_entry)(int64_t arg);
#ifdef __cplusplus
#define WL_STACK alignas(16) unsigned char
#else
#define WL_STACK _Alignas(16) unsigned char
#endif

/* Starts `entry(arg)` as a coroutine with the `size` bytes at `stack` as its shadow stack; nothing else may use them until it has ended. */
static inline int64_t wl_start(wl_entry entry, int64_t arg, void *stack, size_t size) {
  uintptr_t top = ((uintptr_t)stack + size) & ~(uintptr_t)15;
  return wl_spawn_stack((int32_t)(uintptr_t)entry, arg, (void *)top);
}

static inline int32_t wl_length(const char *text) {
  int32_t length = 0;
  while (text[length]) length++;
  return length;
}

/* The channel wired to a port by its name. */
static inline int32_t wl_port_str(const char *name) { return wl_port(name, wl_length(name)); }

/* The handle of what the manifest granted: "control", "policy", or the name of a context. */
static inline int32_t wl_capability_str(const char *name) { return wl_capability(name, wl_length(name)); }

/* Writes a string to the output or to the log. No newline is added. */
static inline int32_t wl_output_str(const char *text) { return wl_output(text, wl_length(text)); }
static inline void wl_log_str(const char *text) { wl_log(text, wl_length(text)); }

/* Writes a string or a decimal number at `at` and returns the new end, to build a line for one wl_output. No NUL is added. */
static inline char *wl_put_str(char *at, const char *text) {
  while (*text) *at++ = *text++;
  return at;
}
static inline char *wl_put_i64(char *at, int64_t value) {
  char digits[20];
  int count = 0;
  uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
  if (value < 0) *at++ = '-';
  do digits[count++] = (char)('0' + left % 10);
  while (left /= 10);
  while (count) *at++ = digits[--count];
  return at;
}

/* The name of an error code. */
static inline const char *wl_code_name(int32_t code) {
  switch (code) {
    case WL_EINVAL: return "EINVAL";
    case WL_ESTALE: return "ESTALE";
    case WL_ECLOSED: return "ECLOSED";
    case WL_EAGAIN: return "EAGAIN";
    case WL_EMSGSIZE: return "EMSGSIZE";
    case WL_ELIMIT: return "ELIMIT";
    case WL_EDENIED: return "EDENIED";
    case WL_EFAULTED: return "EFAULTED";
    case WL_ECANCELED: return "ECANCELED";
    case WL_EREVOKED: return "EREVOKED";
    default: return code < 0 ? "unknown" : "ok";
  }
}

/* Leases: a lane for one coroutine alone, for sessions with `[[grant]] of = "isolation"`. */
enum {
  WL_LEASE_REQUESTED = 1, WL_LEASE_DRAINING, WL_LEASE_FLUSHING, WL_LEASE_ACTIVE, WL_LEASE_REVOKING, WL_LEASE_RELEASED, WL_LEASE_DENIED
};
/* `session` and `began` are -1 for none. */
typedef struct { int64_t state, reason, session, count, began, ended, revocation, noise; } wl_lease;
WL_IMPORT("lease_request") int32_t wl_lease_request(int32_t isolation, const char *name, int32_t length);
WL_IMPORT("lease_revoke") int32_t wl_lease_revoke(int32_t lease);
WL_IMPORT("lease_state") int32_t wl_lease_state(int32_t lease, wl_lease *state);

#ifdef __cplusplus
}
#endif
#endif
