(** Extraction of the lane model to OCaml. [Z] becomes zarith's unbounded integer: an OCaml [int]
    has 63 bits and would wrap silently on numbers of 64 bits. *)

From Coq Require Import ZArith List Extraction ExtrOcamlBasic ExtrOcamlZBigInt.
From Wavelock Require Import Lane Lanes.
From Wavelock Require Refill Admission Shipped.

Open Scope Z_scope.

(* The standard mapping leaves these to the extracted code, bit by bit. *)
Extract Constant Z.leb => "Big_int_Z.le_big_int".
Extract Constant Z.ltb => "Big_int_Z.lt_big_int".
Extract Constant Z.lxor => "Big_int_Z.xor_big_int".
Extract Constant Z.lor => "Big_int_Z.or_big_int".
Extract Constant Z.land => "Big_int_Z.and_big_int".

(* Names of their own: a lane has a [charge] too. *)
Definition ring_activate (now : Z) (l : list (Z * Z)) := Refill.activate now l.
Definition ring_charge (period least : Z) (capacity : nat) (used : Z) (l : list (Z * Z)) :=
  Refill.charge period least capacity used l.

(** Budget, period and deadline of each context. *)
Definition admission (blocking overrun release every cost cap : Z) (cs : list (Z * Z * Z)) : bool :=
  Shipped.shipped_admit (Shipped.LaneTerms blocking overrun release
                           (if every =? 0 then None else Some (every, cost)) cap)
    (map (fun c => let '(b, p, d) := c in Admission.Demand b p d) cs).

Extraction "model.ml" admission ring_activate ring_charge new_lanes costs_v1 lane_at on spawn dispatch stop
  wake hold release cancel reap end_session prefer set_priority set_share set_session_share neutral set_policy begin_waves
  dispatch_next post_effect end_wave end_frames begin_frames first_wake migrate steal is_stalled population ready_digest
  row_of has_work left_of next_wake frame_end resolve state_at reference_of mix.
