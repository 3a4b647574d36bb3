/* The C interface of Wavelock: deterministic WebAssembly machines.

Every function returns a code; wavelock_error has the text of the last refusal of the calling
thread. Texts are UTF-8 and end with a zero byte. Bytes come with their length, and may be null
if that is 0. Results are written through pointers, on success only; where a comment says so, a
pointer may be null. A handle is a number: one that was dropped, is of another kind or was made
up is refused. A machine that is in use by another thread, or by the call that called a function
of its host, is busy. Pointers are used during the call alone, but for those of a host, which
must stay valid until every machine and snapshot with it was dropped, and may be used from any
thread.

Made by crates/c/tests/header.rs; do not edit. */

#ifndef WAVELOCK_H
#define WAVELOCK_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/// How a call ended. Codes keep their numbers.
typedef enum {
  /// It did what it should.
  WAVELOCK_OK = 0,
  /// A pointer is null that must not be.
  WAVELOCK_NULL = 1,
  /// A text is not UTF-8.
  WAVELOCK_TEXT = 2,
  /// A number is outside its range.
  WAVELOCK_RANGE = 3,
  /// A handle was dropped, was used up, or never was one.
  WAVELOCK_STALE = 4,
  /// A handle is of another kind of object.
  WAVELOCK_KIND = 5,
  /// The object is in use: by another thread, or by the call that called this function.
  WAVELOCK_BUSY = 6,
  /// There is nothing under this name or number.
  WAVELOCK_UNKNOWN = 7,
  /// The bytes are no module that can be loaded.
  WAVELOCK_MODULE = 8,
  /// The manifest has problems; the text has them all.
  WAVELOCK_MANIFEST = 9,
  /// A file could not be read or written.
  WAVELOCK_IO = 10,
  /// The machine cannot be made.
  WAVELOCK_LOAD = 11,
  /// An input, or a change of a session, is refused.
  WAVELOCK_INPUT = 12,
  /// The machine is in the middle of a frame: finish it first.
  WAVELOCK_IN_FRAME = 13,
  /// The frame was interrupted; the next call continues it.
  WAVELOCK_INTERRUPTED = 14,
  /// The run has ended.
  WAVELOCK_OVER = 15,
  /// The snapshot is of another machine, or of a frame that was confirmed since.
  WAVELOCK_SNAPSHOT = 16,
  /// The machine is recorded already, or keeps no events to record.
  WAVELOCK_RECORDING = 17,
  /// The machine has other host functions.
  WAVELOCK_HOST = 18,
  /// A file is no machine or state that this version reads.
  WAVELOCK_FORMAT = 19,
  /// The host ran out of memory for the scheduler: the machine is lost.
  WAVELOCK_LOST = 20,
  /// A bug of this library; the object is not usable any more. Please report it.
  WAVELOCK_BUG = 21,
  /// Any other refusal.
  WAVELOCK_REFUSED = 22,
} wavelock_code;

/// A kind of host function.
typedef enum {
  /// Of its arguments alone; called in place, on any thread.
  WAVELOCK_PURE = 0,
  /// Sees the host's state and guest memory; called in place, on any thread.
  WAVELOCK_VIEW = 1,
  /// Changes the host's state at the wave's end; the guest goes on at once.
  WAVELOCK_COMMAND = 2,
  /// Never called: the guest waits for `wavelock_answer`.
  WAVELOCK_ASK = 3,
} wavelock_kind;

/// The name of an object: an engine, module, host, description, session, machine or snapshot. 0 is
/// never one. `wavelock_drop` ends it; later uses are refused.
typedef uint64_t wavelock_handle;

/// Copies the state behind a host, for a snapshot.
typedef void *(*wavelock_copy)(const void *user);

/// Frees the state behind a host, or a copy of it.
typedef void (*wavelock_free)(void *user);

/// A function of the host. `call` is valid until it returns. Arguments and results are words: a
/// number of 32 bits is the low half of one. Returning false, it faults the guest's coroutine.
typedef bool (*wavelock_function)(void *user,
                                  wavelock_handle call,
                                  const uint64_t *arguments,
                                  uint64_t *results);

/// What a frame did.
typedef struct {
  /// The frame.
  uint64_t frame;
  /// The run digest at its end.
  uint8_t digest[32];
  /// Outputs: `wavelock_output` has each.
  size_t outputs;
  /// Logs: `wavelock_log` has each.
  size_t logs;
  /// Sessions that ended: `wavelock_ended` has each.
  size_t ended;
  /// Asks that guests made: `wavelock_ask` has each.
  size_t asks;
  /// Refusals: `wavelock_refusal` has the text of each.
  size_t refused;
  /// How the run ended with it: 0 finished, 1 frames, 2 deadlocked, 3 faulted, 4 stopped,
  /// 5 killed; -1 if it goes on.
  int32_t outcome;
  /// The time the host took for it, in nanoseconds.
  uint64_t wall_nanoseconds;
} wavelock_report;

/// What a session has used so far.
typedef struct {
  /// Cycles charged to its coroutines.
  uint64_t cycles;
  /// Host operations it called.
  uint64_t host_calls;
  /// Messages it sent.
  uint64_t messages;
  /// Bytes of its memories.
  uint64_t memory_bytes;
  /// Coroutines alive.
  uint32_t coroutines;
  /// How it ended: 0 finished, 1 faulted, 3 deadlocked, 4 killed, 5 canceled; -1 if it has not.
  int32_t outcome;
} wavelock_usage;

/// Sees a confirmed frame: its number and the 32 bytes of the run digest.
typedef void (*wavelock_observer)(void *user, uint64_t frame, const uint8_t *digest);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/// Errors.
///
/// The text of the last refusal on this thread, without a zero byte at its end unless it fits.
wavelock_code wavelock_error(char *buffer, size_t capacity, size_t *length);

/// Ends a handle. What it names lives on while something else needs it.
wavelock_code wavelock_drop(wavelock_handle handle);

/// Makes an engine: threads and loaded modules for any number of machines.
wavelock_code wavelock_engine_new(size_t threads, wavelock_handle *engine);

/// Loads a module from its binary or its text form.
wavelock_code wavelock_module_new(wavelock_handle engine,
                                  const uint8_t *wasm_or_wat,
                                  size_t length,
                                  wavelock_handle *module);

/// Describes a session that runs a module.
wavelock_code wavelock_session_new(const char *name,
                                   wavelock_handle module,
                                   wavelock_handle *session);

/// The lane that a session stays on.
wavelock_code wavelock_session_lane(wavelock_handle session, uint16_t lane);

/// One more argument.
wavelock_code wavelock_session_arg(wavelock_handle session, const char *arg);

/// One more environment variable.
wavelock_code wavelock_session_env(wavelock_handle session, const char *name, const char *value);

/// A port to a channel of another session.
wavelock_code wavelock_session_port(wavelock_handle session, const char *name, const char *channel);

/// A channel that the session owns.
wavelock_code wavelock_session_channel(wavelock_handle session,
                                       const char *name,
                                       uint32_t capacity);

/// The weight of a session, 1 to 4096.
wavelock_code wavelock_session_weight(wavelock_handle session, uint16_t weight);

/// The most cycles of a session in `frames` frames. `overrun`: 0 throttle, 1 demote, 2 end.
wavelock_code wavelock_session_cap(wavelock_handle session,
                                   uint64_t cycles,
                                   uint64_t frames,
                                   uint8_t overrun);

/// Cycles that a session is guaranteed in every `period` cycles.
wavelock_code wavelock_session_budget(wavelock_handle session, uint64_t cycles, uint64_t period);

/// Limits of a session in place of the machine's: pages of memory, coroutines. 0 keeps one.
wavelock_code wavelock_session_limits(wavelock_handle session,
                                      uint32_t memory_pages,
                                      uint32_t coroutines);

/// Makes a host: functions that guests import. `user` is the state behind them. With `copy`, a
/// snapshot of a machine has a copy of it and a load returns to that; without, the state is the
/// program's alone. `free`, if given, frees it and each copy.
wavelock_code wavelock_host_new(const char *name,
                                uint32_t version,
                                void *user,
                                wavelock_copy copy,
                                wavelock_free free,
                                wavelock_handle *host);

/// Adds a function to a host. `kind` is a `wavelock_kind`; guests import it as `module` `name`;
/// each letter of `params` and `results` is a type (i i32, I i64, f f32, F f64). `function` may be
/// null for an ask.
wavelock_code wavelock_host_function(wavelock_handle host,
                                     uint32_t kind,
                                     const char *module,
                                     const char *name,
                                     uint64_t cost,
                                     const char *params,
                                     const char *results,
                                     wavelock_function function);

/// The session and the frame of a call of a host function.
wavelock_code wavelock_call_from(wavelock_handle call, uint32_t *session, uint64_t *frame);

/// Reads guest memory, in a view.
wavelock_code wavelock_call_read(wavelock_handle call,
                                 uint32_t address,
                                 uint8_t *buffer,
                                 uint32_t length);

/// Writes guest memory, in a view.
wavelock_code wavelock_call_write(wavelock_handle call,
                                  uint32_t address,
                                  const uint8_t *from,
                                  uint32_t length);

/// Begins the description of a machine.
wavelock_code wavelock_description_new(wavelock_handle engine, wavelock_handle *description);

/// Everything that a manifest describes; its modules are read from `folder`.
wavelock_code wavelock_description_manifest(wavelock_handle description,
                                            const char *toml,
                                            const char *folder);

/// The number of lanes.
wavelock_code wavelock_description_lanes(wavelock_handle description, uint16_t lanes);

/// Cycles of a frame, of a wave, and of a slice of a coroutine; 0 keeps one as it is.
wavelock_code wavelock_description_cycles(wavelock_handle description,
                                          uint64_t frame,
                                          uint64_t wave,
                                          uint64_t quantum);

/// The scheduling policy, by its name in manifests.
wavelock_code wavelock_description_policy(wavelock_handle description, const char *name);

/// The seed of every random stream.
wavelock_code wavelock_description_seed(wavelock_handle description, uint64_t seed);

/// The machine ends after this many frames.
wavelock_code wavelock_description_frames(wavelock_handle description, uint64_t frames);

/// Whether the machine takes inputs while it runs: the default, but for manifests.
wavelock_code wavelock_description_live(wavelock_handle description, bool live);

/// Frames that can be undone.
wavelock_code wavelock_description_rollback(wavelock_handle description, uint64_t frames);

/// Whether the machine keeps events, for recordings above level 0.
wavelock_code wavelock_description_events(wavelock_handle description, bool events);

/// The longest gap between safepoints of modules that come later, in cycles.
wavelock_code wavelock_description_most_gap(wavelock_handle description, uint64_t cycles);

/// The functions that guests import. Uses the host up.
wavelock_code wavelock_description_host(wavelock_handle description, wavelock_handle host);

/// Adds a session. Uses its description up.
wavelock_code wavelock_description_session(wavelock_handle description, wavelock_handle session);

/// Adds a channel that a session owns.
wavelock_code wavelock_description_channel(wavelock_handle description,
                                           const char *name,
                                           const char *owner,
                                           uint32_t capacity);

/// Makes the machine. Uses the description up, also when it is refused.
wavelock_code wavelock_machine_new(wavelock_handle description, wavelock_handle *machine);

/// Reads a machine that `wavelock_export` wrote. `host` is 0 if it has none; it is used up.
wavelock_code wavelock_import(wavelock_handle engine,
                              const char *path,
                              wavelock_handle host,
                              wavelock_handle *machine);

/// The number of a session, by its name.
wavelock_code wavelock_session_find(wavelock_handle machine, const char *name, uint32_t *session);

/// Gives a session bytes in the next frame. `frame` may be null.
wavelock_code wavelock_input(wavelock_handle machine,
                             uint32_t session,
                             const uint8_t *from,
                             size_t length,
                             uint64_t *frame);

/// Gives a session bytes in a later frame.
wavelock_code wavelock_input_at(wavelock_handle machine,
                                uint64_t frame,
                                uint32_t session,
                                const uint8_t *from,
                                size_t length);

/// Gives a session bytes at the next boundary, from any thread, also while the machine runs. A
/// refusal is in the report of that frame.
wavelock_code wavelock_post(wavelock_handle machine,
                            uint32_t session,
                            const uint8_t *from,
                            size_t length);

/// Stops the frame that is running between two waves, from any thread.
wavelock_code wavelock_interrupt(wavelock_handle machine);

/// Ends the input of a session.
wavelock_code wavelock_close_input(wavelock_handle machine, uint32_t session, uint64_t *frame);

/// Ends the machine with its next frame.
wavelock_code wavelock_stop(wavelock_handle machine, uint64_t *frame);

/// Starts a session, and writes its number. Uses its description up, also when it is refused.
wavelock_code wavelock_start_session(wavelock_handle machine,
                                     wavelock_handle session,
                                     uint32_t *number);

/// Gives a session another module, with which it begins anew; its first input are the carried
/// bytes.
wavelock_code wavelock_replace_session(wavelock_handle machine,
                                       uint32_t session,
                                       wavelock_handle module,
                                       const uint8_t *carry,
                                       size_t length,
                                       uint64_t *frame);

/// Ends a session.
wavelock_code wavelock_end_session(wavelock_handle machine, uint32_t session, uint64_t *frame);

/// Holds a session: none of its coroutines runs.
wavelock_code wavelock_hold(wavelock_handle machine, uint32_t session, uint64_t *frame);

/// Takes back a hold.
wavelock_code wavelock_release(wavelock_handle machine, uint32_t session, uint64_t *frame);

/// Gives a session another weight.
wavelock_code wavelock_set_weight(wavelock_handle machine,
                                  uint32_t session,
                                  uint16_t weight,
                                  uint64_t *frame);

/// Gives a session another cap; 0 cycles take it away. `overrun`: 0 throttle, 1 demote, 2 end.
wavelock_code wavelock_set_cap(wavelock_handle machine,
                               uint32_t session,
                               uint64_t cycles,
                               uint64_t frames,
                               uint8_t overrun,
                               uint64_t *frame);

/// Gives a context of the description another budget.
wavelock_code wavelock_set_context_budget(wavelock_handle machine,
                                          uint32_t session,
                                          const char *context,
                                          uint64_t cycles,
                                          uint64_t *frame);

/// Runs one frame. `report` may be null.
wavelock_code wavelock_advance(wavelock_handle machine, wavelock_report *report);

/// Runs one frame or part of it, for about `nanoseconds`. `done` holds whether it has ended;
/// if not, the next call continues the same frame.
wavelock_code wavelock_advance_for(wavelock_handle machine,
                                   uint64_t nanoseconds,
                                   bool *done,
                                   wavelock_report *report);

/// The frame that the next call runs, or continues.
wavelock_code wavelock_frame(wavelock_handle machine, uint64_t *frame);

/// An output of the last frame: its session, and as many of its bytes as fit.
wavelock_code wavelock_output(wavelock_handle machine,
                              size_t number,
                              uint32_t *session,
                              uint8_t *buffer,
                              size_t capacity,
                              size_t *length);

/// What a guest logged in the last frame: its session, and as many of its bytes as fit.
wavelock_code wavelock_log(wavelock_handle machine,
                           size_t number,
                           uint32_t *session,
                           uint8_t *buffer,
                           size_t capacity,
                           size_t *length);

/// A session that ended in the last frame, and how (the numbers of `wavelock_usage`).
wavelock_code wavelock_ended(wavelock_handle machine,
                             size_t number,
                             uint32_t *session,
                             int32_t *outcome);

/// The text of a refusal of the last frame.
wavelock_code wavelock_refusal(wavelock_handle machine,
                               size_t number,
                               uint8_t *buffer,
                               size_t capacity,
                               size_t *length);

/// An ask of the last frame: its session and number, as much as fits of the name of its function,
/// and its arguments as words, for which there must be room for 8.
wavelock_code wavelock_ask(wavelock_handle machine,
                           size_t number,
                           uint32_t *session,
                           uint64_t *ask,
                           uint8_t *name,
                           size_t capacity,
                           uint64_t *arguments);

/// The reply to an ask, by its session and number: as many words as the function returns.
wavelock_code wavelock_answer(wavelock_handle machine,
                              uint32_t session,
                              uint64_t ask,
                              const uint64_t *words,
                              size_t count,
                              uint64_t *frame);

/// What a session has used so far.
wavelock_code wavelock_session_usage(wavelock_handle machine,
                                     uint32_t session,
                                     wavelock_usage *usage);

/// Keeps the state between two frames.
wavelock_code wavelock_save(wavelock_handle machine, wavelock_handle *snapshot);

/// Returns to a state.
wavelock_code wavelock_load(wavelock_handle machine, wavelock_handle snapshot);

/// Frames before this one will not be undone.
wavelock_code wavelock_confirm(wavelock_handle machine, uint64_t frame);

/// Writes the machine with its modules and state to a file.
wavelock_code wavelock_export(wavelock_handle machine, const char *path);

/// Records confirmed frames into a file. `level`: 0 inputs, 1 schedule, 2 every event.
wavelock_code wavelock_record(wavelock_handle machine, const char *path, uint8_t level);

/// Confirms all frames and ends the recording, and writes its bytes; 0 if nothing was recorded.
wavelock_code wavelock_finish_recording(wavelock_handle machine, uint64_t *written);

/// Shows every confirmed frame to a function, on the thread that advances the machine.
wavelock_code wavelock_observe(wavelock_handle machine, wavelock_observer observe, void *user);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* WAVELOCK_H */
