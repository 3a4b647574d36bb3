(* The oracle: the extracted model behind a line protocol.

   One line in, one line out. A line is a letter and integers, separated by spaces; the letters are
   in [command]. Output is kept until the line "." and then written at once, so that a driver can
   send a whole sequence before it reads. Anything the model does not know is an error line. The
   letter Y is a whole machine and has as many lines as there are things to compare ([Machines]);
   the words checker, admit and check are for the checker of certificates ([Checker]).

   `oracle --self-check` tests that numbers above 2^63 survive extraction. *)

module Zarith = Z
open Model
module Z = Zarith

let machine = ref (new_lanes O { the_policy = Cooperative; frame_cycles = Z.one; handoff = false;
                                 costs = costs_v1 })
let out = Buffer.create 65536

(* The refill ring: period, least, capacity and entries. *)
let ring = ref (Z.one, Z.one, O, [])

let rec nat n = if n <= 0 then O else S (nat (n - 1))

let reasons = [| ChannelSend; ChannelReceive; Select; Join; Input; Reply; OtherLane; Park;
  OtherSession |]
let sources =
  [| FromChannel; FromJoin; FromInput; FromAnswer; FromSessionEnd; FromTimer; FromRelease;
     FromUnpark |]

let rec index_from i x a = if a.(i) = x then i else index_from (i + 1) x a
let code x a = string_of_int (index_from 0 x a)

let z = Z.to_string
let bool b = if b then "1" else "0"
let refer (s, g) = z s ^ ":" ^ z g
let join f l = String.concat " " (List.map f l)

let policy kind quantum =
  match kind with
  | 0 -> Cooperative
  | 1 -> RoundRobin quantum
  | 2 -> Fixed quantum
  | 3 -> Aging quantum
  | 4 -> TokenWeighted quantum
  | 5 -> ProgressAware quantum
  | 6 | 7 -> FairShare (quantum, Z.succ (Z.div quantum (Z.of_int 6)), kind = 7)
  | _ -> failwith "policy"

let state = function
  | Ready -> "ready"
  | Running -> "running"
  | Sleeping until -> "sleeping:" ^ z until
  | Blocked reason -> "blocked:" ^ code reason reasons
  | Held holds -> "held:" ^ z holds
  | Ended Finish -> "finished"
  | Ended Fault -> "faulted"
  | Ended Cancel -> "canceled"

let refusal = function
  | Stale -> "stale"
  | NotWaiting s -> "not-waiting " ^ state s
  | WrongSource (r, s) -> "wrong-source " ^ code r reasons ^ " " ^ code s sources
  | InSlice r -> "in-slice " ^ refer r
  | NotEnded s -> "not-ended " ^ state s
  | IsEnded s -> "ended " ^ state s
  | NotHeld (reason, holds) -> "not-held " ^ z reason ^ " " ^ z holds
  | NotReady s -> "not-ready " ^ state s
  | SlotTaken r -> "slot-taken " ^ refer r
  | HandoffOff -> "handoff-off"
  | NoSession -> "no-session"
  | NotFresh -> "not-fresh"
  | Protocol -> "protocol"

let result show = function Done a -> show a | Refused r -> refusal r
let unit_ () = "ok"

let ledger a =
  join z ([ a.runtime; a.wait_total; a.wait_longest; a.switches; a.preemptions ] @ a.blocks
          @ [ a.sleeps; a.migrations; a.steals ])

let limit = function FrameEnd -> "frame" | Quantum -> "quantum" | WaveEnd -> "wave"

let decision = function
  | Run (who, bound, why, picked, switched) ->
      String.concat " " [ "run"; refer who; z bound; limit why; bool picked; bool switched ]
  | Idle -> "idle"
  | Over -> "over"

let stopped = function
  | Requeued -> "requeued"
  | Kept -> "kept"
  | Waiting -> "waiting"
  | IsHeld -> "held"
  | HasEnded -> "ended"

let row r =
  join z [ r.r_frame; r.r_charged; r.r_overhead; r.r_idle; r.r_overrun_in; r.r_overrun_out ]

let delivery (p, d) =
  let what =
    match d with
    | Woken r -> "woken " ^ result unit_ r
    | Published (r, done_) -> "published " ^ refer r ^ " " ^ result unit_ done_
    | HandedOff (r, preferred) -> "handed " ^ result unit_ r ^ " " ^ bool preferred
  in
  join z [ p.p_from; p.p_step; p.p_sequence; p.p_to ] ^ " " ^ what

let operations t =
  [ t.o_pick; t.o_switch; t.o_wake; t.o_timer; t.o_inbox; t.o_refill; t.o_migrate; t.o_steal ]

let option show = function Some a -> show a | None -> "-"

let summary l =
  let c = l.ctl and t = l.time in
  String.concat " | "
    [ join z [ t.clock; t.charged; t.idle ];
      join z (operations t.overhead);
      join z [ c.picks; c.steps; c.frame; frame_end l ];
      join z c.wakes;
      option (fun (s, _) -> refer (reference_of l s)) l.at_.current;
      join z (population l);
      z (ready_digest l);
      row (row_of l);
      option z (next_wake l);
      bool (has_work l);
      (if c.in_slice then z (left_of l Z.zero) else "-") ]

let coroutine l r =
  match resolve l r, state_at l (fst r) with
  | Some c, Some s -> String.concat " | " [ state s; z c.tokens; z c.tag; ledger c.account ]
  | _ -> "stale"

let on_machine (answer, next) = machine := next; answer
let lane i f = on_machine (on i f !machine)

let rec triples = function a :: b :: c :: r -> ((a, b), c) :: triples r | _ -> []
let rec pairs = function a :: b :: r -> (a, b) :: pairs r | _ -> []

let show_ring entries = join (fun (amount, at) -> z amount ^ ":" ^ z at) entries

let on_ring f =
  let period, least, capacity, entries = !ring in
  let entries = f period least capacity entries in
  ring := (period, least, capacity, entries);
  show_ring entries

let command letter n =
  let i k = Z.to_int (List.nth n k) in
  match letter, n with
  | "N", [ _; _; quantum; cycles; _ ] ->
      machine := new_lanes (nat (i 0))
          { the_policy = policy (i 1) quantum; frame_cycles = cycles; handoff = i 4 <> 0;
            costs = costs_v1 };
      "new"
  | "S", [ l; s; g; tag; priority; weight; class_ ] ->
      result unit_ (lane l (fun x -> spawn x (s, g) tag priority weight class_ neutral))
  | "D", [ l ] -> result decision (lane l dispatch)
  | "d", [] ->
      option (fun (l, d) -> z l ^ " " ^ decision d) (on_machine (dispatch_next !machine))
  | "T", [ l; used; _; argument ] ->
      let outcome =
        match i 2 with
        | 0 -> Yielded
        | 1 -> Slept argument
        | 2 -> Blocks reasons.(i 3)
        | 3 -> OutOfCycles
        | 4 -> Finished
        | 5 -> Faulted
        | _ -> failwith "outcome"
      in
      result stopped (lane l (fun x -> stop x used outcome))
  | "W", [ l; s; g; _ ] -> result unit_ (lane l (fun x -> wake x (s, g) sources.(i 3)))
  | "H", [ l; s; g; reason ] -> result unit_ (lane l (fun x -> hold x (s, g) reason))
  | "R", [ l; s; g; reason ] -> result unit_ (lane l (fun x -> release x (s, g) reason))
  | "C", [ l; s; g ] -> result unit_ (lane l (fun x -> cancel x (s, g)))
  | "P", [ l; s; g ] -> result ledger (lane l (fun x -> reap x (s, g)))
  | "E", [ l; session ] ->
      let show ended = join (fun (t, a) -> "[" ^ z t ^ " " ^ ledger a ^ "]") ended in
      result show (lane l (fun x -> end_session x session))
  | "F", [ l; s; g ] -> result unit_ (lane l (fun x -> prefer x (s, g)))
  | "I", [ l; s; g; p ] -> result unit_ (lane l (fun x -> set_priority x (s, g) p))
  | "A", [ l; s; g; weight; class_ ] ->
      result unit_ (lane l (fun x -> set_share x (s, g) weight class_))
  | "U", [ l; session; weight; class_ ] ->
      result unit_ (lane l (fun x -> set_session_share x session weight class_))
  | "O", [ l; _; quantum ] ->
      result unit_ (lane l (fun x -> set_policy x (policy (i 1) quantum)))
  | "w", [ from; to_; s; g; _ ] ->
      refer (on_machine (post_effect from to_ (EWake ((s, g), sources.(i 4))) !machine))
  | "h", [ from; to_; s; g; _ ] ->
      refer (on_machine (post_effect from to_ (EHandoff ((s, g), sources.(i 4))) !machine))
  | "s", [ from; to_; tag; priority ] ->
      refer (on_machine (post_effect from to_ (EPublish (tag, priority)) !machine))
  | "M", session :: from :: to_ :: fresh ->
      result (join z) (on_machine (migrate session from to_ (pairs fresh) false !machine))
  | "K", thief :: banned :: fresh -> (
      match on_machine (steal thief banned (pairs fresh) !machine) with
      | Won (session, victim, tags) -> String.concat " " [ "won"; z session; z victim; join z tags ]
      | Busy -> "busy"
      | Nothing -> "nothing")
  | "V", fresh ->
      let delivered = on_machine (end_wave (pairs fresh) !machine) in
      String.concat ", " (List.map delivery delivered)
  | "v", [ by_picks; length ] ->
      machine := begin_waves (Z.sign by_picks <> 0) length !machine;
      "ok"
  | "f", [] -> String.concat ", " (List.map row (on_machine (end_frames !machine)))
  | "b", [ frame ] -> z (on_machine (begin_frames frame !machine))
  | "j", [] -> option z (first_wake !machine)
  | "L", [ l ] -> summary (lane_at !machine l)
  | "Q", [ l; s; g ] -> coroutine (lane_at !machine l) (s, g)
  | "G", [ budget; period; _; least ] ->
      ring := (period, least, nat (i 2), [ (budget, Z.zero) ]);
      on_ring (fun _ _ _ entries -> entries)
  | "a", [ at ] -> on_ring (fun _ _ _ entries -> ring_activate at entries)
  | "c", [ used ] ->
      on_ring (fun period least capacity entries -> ring_charge period least capacity used entries)
  | "B", blocking :: overrun :: release :: every :: cost :: cap :: contexts ->
      bool (admission blocking overrun release every cost cap (triples contexts))
  | "X", [] -> bool (is_stalled !machine)
  | _ -> failwith "command"

let self_check () =
  let big = Z.pow (Z.of_int 2) 63 in
  assert (Z.equal (mix Z.one Z.zero) (Z.of_string "0x4179B061E0C0E0D0"));
  assert (Z.equal (mix Z.zero Z.one) (Z.of_string "0x4E17CF67001B3979"));
  (* A lane whose clock passes 2^63 and 2^64. *)
  machine := new_lanes (S O) { the_policy = Cooperative; frame_cycles = Z.pow big 2;
                               handoff = false; costs = costs_v1 };
  let send line = match String.split_on_char ' ' line with
    | letter :: n -> command letter (List.map Z.of_string n)
    | [] -> "" in
  assert (send "S 0 0 0 1 0 1024 2" = "ok");
  ignore (send ("v 0 " ^ Z.to_string (Z.pow big 2)));
  assert (send "D 0" = "run 0:0 18446744073709551615 quantum 1 1");
  assert (send "T 0 18446744073709551614 3 0" = "kept");
  assert (send "D 0" = "run 0:0 1 quantum 0 0");
  assert (send "T 0 1 3 0" = "requeued");
  let l = lane_at !machine Z.zero in
  assert (z l.time.clock = "18446744073709551651");
  print_endline "numbers above 2^63 are exact"

let () =
  if Array.length Sys.argv > 1 && Sys.argv.(1) = "--self-check" then self_check ()
  else
    try
      while true do
        let line = input_line stdin in
        if line = "." then begin
          Buffer.add_string out ".\n";
          print_string (Buffer.contents out);
          flush stdout;
          Buffer.clear out
        end
        else begin
          (match String.split_on_char ' ' line with
          | "Y" :: n ->
              Buffer.add_string out
                (try Machines.run (List.map Z.of_string n)
                 with error -> "error " ^ Printexc.to_string error)
          | [ "checker"; lanes; sessions ] ->
              Buffer.add_string out (Checker.start (Z.of_string lanes) (Z.of_string sessions))
          | [ "admit"; sessions ] -> Buffer.add_string out (Checker.admit (Z.of_string sessions))
          | "check" :: n ->
              Buffer.add_string out
                (try Checker.check (List.map Z.of_string n)
                 with error -> "error " ^ Printexc.to_string error)
          | letter :: n ->
              Buffer.add_string out
                (try command letter (List.map Z.of_string n)
                 with error -> "error " ^ Printexc.to_string error)
          | [] -> Buffer.add_string out "error empty");
          Buffer.add_char out '\n'
        end
      done
    with End_of_file -> ()
