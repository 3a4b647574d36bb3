(* Machines of proof/System.v behind a line protocol: [run] takes the numbers of one machine and
   adds one line for each thing to compare.

   The numbers, in order: the machine, its policy, programs, modules, sessions, channels, inputs; a
   list has its length first. The harness in checks/oracle writes them. Lines: [F] and the boundary events of a frame, [L] and the events of one lane in it,
   [S] and the state of a lane, [C] of a channel, [K] of a coroutine, [O] the outcome. *)

module Zarith = Z
open Machine
module Z = Zarith

let numbers = ref []
let next () =
  match !numbers with
  | n :: r -> numbers := r; n
  | [] -> failwith "the description is too short"
let int () = Z.to_int (next ())
let flag () = int () <> 0
let list item = let n = int () in List.init n (fun _ -> item ())

let action () =
  match int () with
  | 0 -> Fold
  | 1 -> FoldCell (next ())
  | 2 -> KeepResult (next ())
  | 3 -> KeepSum (next ())
  | _ -> failwith "action"

let operation () =
  let one f = f (next ()) in
  let two f = let a = next () in let b = next () in f a b in
  match int () with
  | 0 -> OYield
  | 1 -> one (fun n -> OSleep n)
  | 2 -> one (fun e -> OSpawn e)
  | 3 -> two (fun e l -> OSpawnOn (e, l))
  | 4 -> two (fun c t -> OJoin (c, t))
  | 5 -> one (fun c -> OCancel c)
  | 6 -> one (fun c -> ODetach c)
  | 7 -> OExit
  | 8 -> one (fun h -> OSend h)
  | 9 -> one (fun h -> OTrySend h)
  | 10 -> two (fun h t -> ORecv (h, t))
  | 11 -> two (fun h t -> OTryRecv (h, t))
  | 12 -> one (fun h -> OClose h)
  | 13 -> one (fun c -> OMake c)
  | 14 -> OSelect (list next)
  | 15 -> one (fun c -> OOutput c)
  | 16 -> one (fun r -> OInput r)
  | 17 -> ORemaining
  | 18 -> two (fun n e -> OWork (n, e))
  | 19 -> OFault
  | 20 -> OReturn
  | _ -> failwith "operation"

let instruction () =
  let i_stops = flag () in
  let i_cost = next () in
  let i_actions = list action in
  let i_op = operation () in
  let i_op_cost = next () in
  { i_stops; i_cost; i_actions; i_op; i_op_cost }

let policy () =
  let kind = int () in
  let quantum = next () in
  let least = next () in
  match kind with
  | 0 -> Cooperative
  | 1 -> RoundRobin quantum
  | 2 -> Fixed quantum
  | 3 -> Aging quantum
  | 4 -> TokenWeighted quantum
  | 5 -> ProgressAware quantum
  | 6 -> FairShare (quantum, least, false)
  | 7 -> FairShare (quantum, least, true)
  | _ -> failwith "policy"

let load () =
  let f_lanes = next () in
  let f_frame_cycles = next () in
  let f_span_picks = flag () in
  let f_span = next () in
  let f_last = next () in
  let f_handoff = flag () in
  let f_steal = flag () in
  let f_balance = flag () in
  let f_policy = policy () in
  let programs = Array.of_list (list (fun () -> list instruction)) in
  let program () = programs.(int ()) in
  let modules =
    Array.of_list (list (fun () -> let main = program () in let entries = list program in
                                    (main, entries))) in
  let session () =
    let n_lanes = list next in
    let n_priority = next () in
    let n_weight = next () in
    let n_class = next () in
    let n_pinned = flag () in
    let n_main, n_entries = modules.(int ()) in
    let n_ports = list next in
    let n_coroutines = next () in
    let n_channels = next () in
    { n_lanes; n_priority; n_weight; n_class; n_pinned; n_main; n_entries; n_ports; n_coroutines;
      n_channels } in
  let sessions = list session in
  let wires = list (fun () -> let v_owner = next () in let v_capacity = next () in
                              { v_owner; v_capacity }) in
  let inputs = list (fun () -> let frame = next () in let length = next () in (frame, length)) in
  machine_load
    { f_lanes; f_frame_cycles; f_span_picks; f_span; f_last; f_handoff; f_steal; f_balance; f_policy }
    sessions wires inputs

let out = Buffer.create 65536
let z = Z.to_string
let words l = String.concat " " l
let line letter text =
  Buffer.add_string out letter; Buffer.add_char out ' '; Buffer.add_string out text;
  Buffer.add_char out '\n'
let events l = String.concat "; " (List.map (fun e -> words (List.map z e)) l)
let bool b = if b then "1" else "0"

let place l reference =
  let s = fst reference in
  let p = l.at_ in
  let has k = List.exists (fun q -> Z.equal (fst q) s) k in
  let plain = List.exists (Z.equal s) in
  if plain p.ready then "ready"
  else match p.current with
    | Some (c, _) when Z.equal c s -> "running"
    | _ ->
      if has p.sleeping then "sleeping:" ^ z (snd (List.find (fun q -> Z.equal (fst q) s) p.sleeping))
      else if has p.blocked then "blocked"
      else if plain p.held then "held" else "ended"

let ledger a =
  words (List.map z ([ a.runtime; a.wait_total; a.wait_longest; a.switches; a.preemptions ]
                     @ a.blocks @ [ a.sleeps; a.migrations; a.steals ]))

(* The state of the machine between two frames. *)
let state w =
  List.iter (fun l ->
      let k = l.l_kernel in
      line "S" (words (List.map z (lane_clock k :: lane_population k)))) w.w_lanes;
  List.iter (fun s ->
      List.iter (fun c ->
          let receivers = List.map (fun (_, slot) -> z slot) (c.c_receivers @ c.c_selectors) in
          let senders = List.map (fun (_, q) -> let (s, slot), g = q.q_name in
                                   z s ^ "/" ^ z slot ^ "." ^ z g) c.c_senders in
          line "C" (words [ string_of_int (List.length c.c_queue); z c.c_capacity; bool c.c_closed;
                            "[" ^ words receivers ^ "]"; "[" ^ words senders ^ "]" ]))
        s.s_channels;
      List.iteri (fun slot t ->
          match t.k_state with
          | Alive x ->
              let lane = List.nth w.w_lanes (Z.to_int t.k_lane) in
              let seen = match x.kernel with
                | None -> "-"
                | Some r ->
                    let account = match record_of lane.l_kernel (fst r) with
                      | Some c -> ledger c.account
                      | None -> "lost" in
                    place lane.l_kernel r ^ " " ^ account in
              line "K" (words [ string_of_int slot; z t.k_generation; z t.k_lane;
                                z x.body.g_used; seen ])
          | _ -> ()) s.s_tasks) w.w_sessions

(* Runs a machine to its end; everything to compare goes to [out]. *)
let run given =
  Buffer.clear out;
  numbers := given;
  let w = ref (load ()) in
  if !numbers <> [] then failwith "the description is too long";
  let rec go n =
    if n > 100_000_000 then failwith "it does not end";
    let before = w_frames !w in
    w := snd (machine_tick !w);
    (match w_frames !w with
     | ((boundary, lanes), _) :: _ when w_frames !w != before ->
         line "F" (events boundary);
         List.iter (fun l -> line "L" (events l)) lanes;
         (match w_phase !w with AtBoundary -> state !w | _ -> ())
     | _ -> ());
    match w_phase !w with
    | Done_ o ->
        List.iter (fun l -> line "S" (words (List.map z (lane_clock l.l_kernel
                                                         :: lane_population l.l_kernel)))) !w.w_lanes;
        line "O" (z o)
    | _ -> go (n + 1)
  in
  go 0;
  Buffer.contents out
