(* What acceptance alone does not give.

   The checker compares claims with each other and with versions and digests that the
   machine states. It does not know which sessions live on a lane: it takes the sets
   from the planner. So it accepts a certificate that splits one group in two, if each
   session is claimed once. Two workers that ran the claimed lanes with the sessions
   that really live there would race. The theorem of Waves.v therefore has the premise
   [covers], and the shipped pool runs the world's own groups, not the claimed ones. *)

From Coq Require Import List Arith NArith Bool.
From Wavelock Require Import Interleave Certificate Machine Waves.
Import ListNotations.

(* Guests over one number: a coroutine adds one or doubles it, and ends. *)
Definition tiny_slice (m : N) (adds : bool) (_ : option answer) (_ : N) : slice_result N bool :=
  Result N bool (if adds then m + 1 else 2 * m)%N adds 1 (Finish bool 0).

Definition tiny_cfg : settings := Settings 1 1 1 1 1 10 100 1000 9.

Definition tiny_lane (c : cid) : lane :=
  Lane (Times 0 0 0 0) None 0 None [c] [] [] [] 100 0 [].

(* One session on two lanes, with a coroutine on each. *)
Definition split : state N bool :=
  State N bool [tiny_lane (0, 0); tiny_lane (0, 1)]
    [Session N bool 3%N [Some (Coro bool true 0 None); Some (Coro bool false 1 None)] [] []]
    [[0; 1]] 0 0 (InWave 0) [].

Definition lying : certificate := {|
  t_wave := 0; t_span := Cycles 100;
  t_claims := [
    {| m_lanes := [0]; m_version := 1;
       m_sets := Some {| x_sessions := []; x_channels := [] |}; m_digest := 7; m_picks := [] |};
    {| m_lanes := [1]; m_version := 1;
       m_sets := Some {| x_sessions := [0]; x_channels := [] |}; m_digest := 7; m_picks := [] |}]
           |}.

Definition split_facts : facts := {|
  a_wave := 0; a_span := Cycles 100;
  a_lanes := [{| f_digest := 7; f_version := 1 |}; {| f_digest := 7; f_version := 1 |}] |}.

Definition claimed_wave (sched : list nat) : list (list nat) * state N bool :=
  parallel_wave N bool tiny_slice (fun _ => 0) tiny_cfg (sees [[0; 1]])
    (map m_lanes (t_claims lying)) sched split.

Definition memory (st : state N bool) : list N := map (s_mem N bool) (sessions N bool st).

Theorem acceptance_alone_is_not_enough :
  snd (check lying split_facts (new_checker 2 1)) = None /\
  complete _ (claimed_wave [0; 0; 1; 1]) /\ complete _ (claimed_wave [1; 1; 0; 0]) /\
  memory (snd (claimed_wave [0; 0; 1; 1])) = [8%N] /\
  memory (snd (claimed_wave [1; 1; 0; 0])) = [7%N] /\
  covers N bool (fst (check lying split_facts (new_checker 2 1))) lying split = false.
Proof. repeat split; repeat constructor. Qed.

(* The state's own groups put both lanes in one. *)
Theorem the_state_has_one_group : groups_of 2 (homes N bool split) = [[0; 1]].
Proof. reflexivity. Qed.

(* A certificate without claims is accepted: the checker does not ask that every group
   with work is claimed. *)
Theorem an_empty_certificate_is_accepted w s fl k :
  snd (check {| t_wave := w; t_span := s; t_claims := [] |}
         {| a_wave := w; a_span := s; a_lanes := fl |} k) = None.
Proof.
  unfold check. cbn [t_wave t_span a_wave a_span t_claims]. rewrite N.eqb_refl.
  assert (H : span_eqb s s = true) by (destruct s; apply N.eqb_refl).
  rewrite H. reflexivity.
Qed.
