(* The checker of proof/Certificate.v behind the line protocol: [start], [admit] and [check] answer
   the commands of the same names.

   The numbers of a check, in order: the certificate (wave, span, claims) and the facts (wave, span,
   lanes, sessions); a list has its length first, and so has what may be absent (0 or 1). *)

module Zarith = Z
open Certify
module Z = Zarith

let now = ref (new_checker Z.zero Z.zero)

let numbers = ref []
let next () =
  match !numbers with
  | n :: r -> numbers := r; n
  | [] -> failwith "too few numbers"
let list item = let n = Z.to_int (next ()) in List.init n (fun _ -> item ())
let flag () = Z.to_int (next ()) <> 0

let span () =
  let by_picks = flag () in
  let n = next () in
  if by_picks then Picks n else Cycles n

let channel () = let owner = next () in let index = next () in (owner, index)

let sets () =
  let x_sessions = list next in
  let x_channels = list channel in
  { x_sessions; x_channels }

let pick () =
  let p_lane = next () in
  let p_session = next () in
  let p_slot = next () in
  let p_generation = next () in
  { p_lane; p_session; p_slot; p_generation }

let claim () =
  let m_lanes = list next in
  let m_version = next () in
  let m_sets = if flag () then Some (sets ()) else None in
  let m_digest = next () in
  let m_picks = list pick in
  { m_lanes; m_version; m_sets; m_digest; m_picks }

let certificate () =
  let t_wave = next () in
  let t_span = span () in
  let t_claims = list claim in
  { t_wave; t_span; t_claims }

let lane_facts () =
  let f_digest = next () in
  let f_version = next () in
  let f_group = next () in
  let f_sessions = next () in
  let f_work = flag () in
  { f_digest; f_version; f_group; f_sessions; f_work }

let facts () =
  let a_wave = next () in
  let a_span = span () in
  let a_lanes = list lane_facts in
  let a_sessions = list next in
  { a_wave; a_span; a_lanes; a_sessions }

let start lanes sessions = now := new_checker lanes sessions; "new"
let admit sessions = now := Certify.admit sessions !now; "admitted"

let words l = String.concat " " (List.map Z.to_string l)
let span_words = function Cycles n -> [ Z.zero; n ] | Picks n -> [ Z.one; n ]
let channel_words (owner, index) = [ owner; index ]
let optional = function Some n -> [ Z.one; n ] | None -> [ Z.zero ]

(* In the order of the fields in proof/Certificate.v and crates/certify. *)
let fields = function
  | BadWave (a, b) | UnknownLane (a, b) | UnknownSession (a, b) | PickSession (a, b)
  | PickLane (a, b) | SplitGroup (a, b) | Unclaimed (a, b) -> [ a; b ]
  | BadSpan (a, b) -> span_words a @ span_words b
  | NoLane a -> [ a ]
  | LaneShared (a, b, c) | SessionShared (a, b, c) | ReadySet (a, b, c) | PickCount (a, b, c)
  | OtherGroup (a, b, c) | SessionCount (a, b, c) -> [ a; b; c ]
  | ChannelShared (c, a, b) -> channel_words c @ [ a; b ]
  | ForeignChannel (c, a) -> channel_words c @ [ a ]
  | SetVersion (a, b, c, o) -> [ a; b; c ] @ optional o
  | OtherSession (a, b, o) -> [ a; b ] @ optional o

let check given =
  numbers := given;
  let t = certificate () in
  let f = facts () in
  if !numbers <> [] then failwith "too many numbers";
  let k, refused = Certify.check t f !now in
  now := k;
  match refused with
  | None -> "accepted " ^ string_of_int (List.length t.t_claims)
  | Some r -> "refused " ^ words (code r :: fields r)
