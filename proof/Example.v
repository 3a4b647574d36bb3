(* The model runs: a producer and a consumer on two lanes, with a channel of two places,
   from the start to the end, and one of its waves on two workers. A check that the
   theorems are about something. *)

From Coq Require Import List Arith NArith Bool.
From Wavelock Require Import Interleave Certificate Machine Invariants Waves Acceptance.
Import ListNotations.

(* A coroutine is (who, position in its script); memory is the sum of what it received. *)
Definition script (who pos : nat) : request (nat * nat) :=
  match who, pos with
  | 0, S (S (S (S (S _)))) => Finish _ 0
  | 0, _ => Send _ 1 0 (N.of_nat (10 + pos))
  | 1, S (S (S (S (S _)))) => Finish _ 0
  | 1, _ => Recv _ 0
  | _, _ => Finish _ 0
  end.

Definition example_slice (m : N) (c : nat * nat) (a : option answer) (_ : N)
  : slice_result N (nat * nat) :=
  Result _ _ (match a with Some (Value v) => m + v | _ => m end)%N (fst c, S (snd c)) 3
    (script (fst c) (snd c)).

Definition example_cfg : settings := Settings 1 2 1 1 1 50 40 1000 9.
Definition first (_ : list cid) : nat := 0.

Definition example : state N (nat * nat) :=
  boot _ _ 2 [Program _ _ 0%N (0, 0) [0] []; Program _ _ 0%N (1, 0) [1] [(2%N, [0])]].

Definition go (n : nat) : state N (nat * nat) := run _ _ example_slice first example_cfg n example.

(* It finishes, and the consumer has received 10, 11, 12, 13 and 14. *)
Theorem example_finishes :
  phase _ _ (go 200) = Done Finished /\ map (s_mem _ _) (sessions _ _ (go 200)) = [0; 60]%N.
Proof. vm_compute. auto. Qed.

(* Its first wave is open after two transitions. *)
Theorem example_wave : phase _ _ (go 2) = InWave 0.
Proof. vm_compute. auto. Qed.

(* A certificate with a claim for each of the two groups. *)
Definition example_claim (l : nat) : claim :=
  {| m_lanes := [l]; m_version := 1;
     m_sets := Some {| x_sessions := [l]; x_channels := [] |}; m_digest := 0; m_picks := [] |}.

Definition example_plan : certificate :=
  {| t_wave := 0; t_span := Cycles 40; t_claims := [example_claim 0; example_claim 1] |}.

Definition versions (_ : nat) : N := 1.
Definition digests (_ : nat) : N := 0.

Definition example_facts : facts := facts_of _ _ versions digests (Cycles 40) (go 2).

Definition granted_by : checker := fst (check example_plan example_facts (new_checker 2 2)).

Definition on_two (sched : list nat) : list (list nat) * state N (nat * nat) :=
  parallel_wave _ _ example_slice first example_cfg
    (granted_view granted_by example_plan (homes _ _ (go 2)))
    (map m_lanes (t_claims example_plan)) sched (go 2).

(* The certificate has two claims and is accepted, two schedules complete the wave, and it
   ends as in the canonical run. *)
Theorem example_on_two_workers :
  length (t_claims example_plan) = 2 /\
  snd (check example_plan example_facts (new_checker 2 2)) = None /\
  fst (on_two (repeat 0 9 ++ repeat 1 9)) = [[]; []] /\
  fst (on_two (flat_map (fun _ => [1; 0]) (seq 0 9))) = [[]; []] /\
  snd (on_two (repeat 0 9 ++ repeat 1 9)) = snd (on_two (flat_map (fun _ => [1; 0]) (seq 0 9))) /\
  exists n, go (2 + n) = end_wave _ _ example_cfg (snd (on_two (repeat 0 9 ++ repeat 1 9))).
Proof.
  split; [vm_compute; auto|]. split; [vm_compute; auto|]. split; [vm_compute; auto|].
  split; [vm_compute; auto|]. split; [vm_compute; auto|].
  assert (H : exists j, run _ _ example_slice first example_cfg j (go 2)
     = end_wave _ _ example_cfg (snd (on_two (repeat 0 9 ++ repeat 1 9)))).
  { apply (certified_wave_is_canonical _ _ example_slice first example_cfg 2 versions digests
             (Cycles 40) example_plan (new_checker 2 2) granted_by).
    - apply example_wave.
    - apply checked_start.
    - vm_compute. auto.
    - vm_compute. auto. }
  destruct H as [j Hj]. exists j. rewrite <- Hj. unfold go. apply run_app.
Qed.
