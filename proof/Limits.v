(* What the checker refuses, and why it has to.

   A certificate that splits one group in two claims each session once, so the comparison of the
   claims with each other finds nothing wrong. Two workers that ran the claimed lanes with the
   sessions that really live there would race: two interleavings give two memories
   ([splitting_would_race]). The checker refuses it, because it compares the claims with the
   groups that the machine states ([a_splitting_certificate_is_refused]). *)

From Coq Require Import List Arith NArith Bool Lia.
From Wavelock Require Import Interleave Groups Certificate Machine Waves Acceptance.
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

Definition a_claim (ls ss : list nat) : claim :=
  {| m_lanes := ls; m_version := 1;
     m_sets := Some {| x_sessions := ss; x_channels := [] |}; m_digest := 7; m_picks := [] |}.

Definition lying : certificate := {|
  t_wave := 0; t_span := Cycles 100; t_claims := [a_claim [0] []; a_claim [1] [0]] |}.

(* What the state states, with version 1 and ready digest 7 or 0. *)
Definition split_facts : facts :=
  facts_of N bool (fun _ => 1%N) (fun l => if l =? 0 then 7%N else 0%N) (Cycles 100) split.

Definition claimed_wave (sched : list nat) : list (list nat) * state N bool :=
  parallel_wave N bool tiny_slice (fun _ => 0) tiny_cfg (sees [[0; 1]])
    (map m_lanes (t_claims lying)) sched split.

Definition memory (st : state N bool) : list N := map (s_mem N bool) (sessions N bool st).

Theorem splitting_would_race :
  complete _ (claimed_wave [0; 0; 1; 1]) /\ complete _ (claimed_wave [1; 1; 0; 0]) /\
  memory (snd (claimed_wave [0; 0; 1; 1])) = [8%N] /\
  memory (snd (claimed_wave [1; 1; 0; 0])) = [7%N].
Proof. repeat split; repeat constructor. Qed.

Theorem a_splitting_certificate_is_refused :
  snd (check lying split_facts (new_checker 2 1)) = Some (OtherGroup 1 1 0).
Proof. vm_compute. reflexivity. Qed.

(* The honest one is accepted. *)
Theorem a_whole_certificate_is_accepted :
  snd (check {| t_wave := 0; t_span := Cycles 100; t_claims := [a_claim [0; 1] [0]] |}
         split_facts (new_checker 2 1)) = None.
Proof. vm_compute. reflexivity. Qed.

(* Sets that leave out a session, or name one of another group, are refused. *)
Theorem another_set_is_refused :
  snd (check {| t_wave := 0; t_span := Cycles 100; t_claims := [a_claim [0; 1] []] |}
         split_facts (new_checker 2 1)) = Some (SessionCount 0 0 1).
Proof. vm_compute. reflexivity. Qed.

(* The state's own groups put both lanes in one. *)
Theorem the_state_has_one_group : groups_of 2 (homes N bool split) = [[0; 1]].
Proof. reflexivity. Qed.

(* A certificate without claims is refused while any lane's group has work. *)
Theorem an_empty_certificate_is_refused w s f k l a :
  invariant k -> l < length (k_accepted k) ->
  nth_error (a_lanes f) l = Some a -> f_work a = true ->
  snd (check {| t_wave := w; t_span := s; t_claims := [] |} f k) <> None.
Proof.
  intros I Hl Ha Hw H. set (t := {| t_wave := w; t_span := s; t_claims := [] |}) in *.
  destruct (check t f k) as [k' e] eqn:E. cbn [snd] in H. subst e.
  assert (A := check_sound _ _ _ _ I E). destruct A as [_ _ _ _ _ _ _ _ _ _ AR].
  destruct (AR l a) as [X _]; auto; [|congruence].
  assert (L := check_length t f k). rewrite E in L. cbn [fst] in L. lia.
Qed.
