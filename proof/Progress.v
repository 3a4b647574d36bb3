(* Guests with bounded cost: how far a slice can overrun, that every wave ends, and the
   conservation row of a frame. *)

From Coq Require Import List Arith NArith Lia Bool.
From Wavelock Require Import Interleave Certificate Machine Invariants Parcels Waves.
Import ListNotations.

Section Progress.

Variables mem co : Type.
Notation state := (state mem co).

Variable slice : mem -> co -> option answer -> N -> slice_result mem co.
Variable choose : list cid -> nat.
Variable cfg : settings.

(* The longest gap between safepoints: a slice stops at the first one at or past its
   bound. *)
Definition bounded (G : N) : Prop :=
  forall m c a b, (r_used _ _ (slice m c a b) < b + G)%N.

(* No slice is free (law 6). *)
Definition positive : Prop := forall m c a b, (1 <= r_used _ _ (slice m c a b))%N.

Lemma no_step_after_end e me l v : (wave_end l <= now l)%N ->
  fst (lane_step mem co slice choose cfg e me l v) = false.
Proof.
  intros H. unfold lane_step. apply N.leb_le in H. rewrite H. reflexivity.
Qed.

(* What a guest is charged in one step passes the wave's end by less than [G] (law 5). *)
Theorem overrun_is_less_than_gap G vis me (st st' : state) l l' : bounded G ->
  step_seeing mem co slice choose cfg vis me st = (true, st') ->
  nth_error (lanes _ _ st) me = Some l -> nth_error (lanes _ _ st') me = Some l' ->
  (now l < wave_end l /\ now l + (charged (tm l') - charged (tm l)) < wave_end l + G)%N.
Proof.
  intros HG H Hl Hl'. unfold step_seeing in H. rewrite Hl in H.
  destruct (lane_step mem co slice choose cfg (env_of _ _ st) me l _) as [b [l1 v1]] eqn:E.
  injection H as -> <-. cbn in Hl'.
  assert (Hlt : (now l < wave_end l)%N).
  { destruct (N.lt_ge_cases (now l) (wave_end l)) as [|Hge]; auto.
    apply (no_step_after_end (env_of _ _ st) me l (mask _ _ vis 0 (sessions _ _ st))) in Hge.
    rewrite E in Hge. discriminate. }
  split; auto.
  rewrite nth_upd, Nat.eqb_refl, Hl in Hl'. cbn in Hl'. injection Hl' as <-.
  apply lane_step_ok in E. destruct E as [_ _ _ _ _ _ _ _ U]. cbn [fst] in U.
  destruct U as (m & c & a & bound & H1 & H2 & _). cbn zeta in *.
  specialize (HG m c a bound). rewrite H2. lia.
Qed.

Notation iter vis := (iter state (fun l => step_seeing mem co slice choose cfg (vis l) l)).

(* Lanes that run in order all reach the wave's end. *)
Theorem lanes_end vis : positive -> forall ls (st : state), exists n, fst (iter vis n (ls, st)) =
    [].
Proof.
  intros HP. induction ls as [|l ls IH]; intros st; [exists 0; auto|].
  assert (G : forall d (st : state),
     (match nth_error (lanes _ _ st) l with
      | Some x => N.to_nat (wave_end x - now x) <= d | None => True end) ->
     exists n, fst (iter vis n (l :: ls, st)) = []).
  { clear st. induction d as [|d IHd]; intros st Hd.
    - (* The lane is at the wave's end or does not exist. *)
      assert (Hf : fst (step_seeing mem co slice choose cfg (vis l) l st) = false).
      { unfold step_seeing. destruct (nth_error (lanes _ _ st) l) as [x|]; auto.
        assert (X := no_step_after_end (env_of _ _ st) l x (mask _ _ (vis l) 0 (sessions _ _ st))).
        destruct (lane_step _ _ _ _ _ _ _ _ _) as [b [l1 v1]]. cbn in *. apply X. lia. }
      destruct (IH (snd (step_seeing mem co slice choose cfg (vis l) l st))) as [n Hn].
      exists (S n). rewrite iter_shift. unfold move. cbn [fst snd].
      destruct (step_seeing mem co slice choose cfg (vis l) l st) as [b c]. cbn [fst snd] in *.
      subst b. auto.
    - destruct (step_seeing mem co slice choose cfg (vis l) l st) as [b st'] eqn:E.
      destruct b.
      + destruct (IHd st') as [n Hn].
        { unfold step_seeing in E. destruct (nth_error (lanes _ _ st) l) as [x|] eqn:El;
            [|discriminate].
          destruct (lane_step mem co slice choose cfg (env_of _ _ st) l x _) as [b [l1 v1]] eqn:Es.
          injection E as -> <-. cbn. rewrite nth_upd, Nat.eqb_refl, El. cbn.
          apply lane_step_ok in Es. destruct Es as [_ _ _ _ _ _ _ E1 U]. cbn [fst] in *.
          destruct U as (m & c & a & bound & H1 & H2 & H3). cbn zeta in *.
          specialize (HP m c a bound). rewrite E1. lia. }
        exists (S n). rewrite iter_shift. unfold move. cbn [fst snd]. rewrite E. auto.
      + destruct (IH st') as [n Hn]. exists (S n).
        rewrite iter_shift. unfold move. cbn [fst snd]. rewrite E. auto. }
  destruct (nth_error (lanes _ _ st) l) as [x|] eqn:E.
  - apply (G (N.to_nat (wave_end x - now x))). rewrite E. lia.
  - apply (G 0). rewrite E. auto.
Qed.

(* Every wave ends, so that the canonical run reaches the next. *)
Theorem every_wave_ends (st : state) : positive -> phase _ _ st = InWave 0 ->
  exists j c, run _ _ slice choose cfg j st = end_wave mem co cfg c.
Proof.
  intros HP Hp.
  destruct (lanes_end (sees (homes _ _ st)) HP (seq 0 (length (lanes _ _ st))) st) as [n Hn].
  destruct (iter (sees (homes _ _ st)) n (seq 0 (length (lanes _ _ st)), st)) as [t c] eqn:E.
  cbn in Hn. subst t.
  destruct (wave_ends mem co slice choose cfg n st c Hp E) as [j Hj]. eauto.
Qed.

(* A frame of a lane, from its state [a] when it began to [b] when it ended: the row adds
   up, with the overruns of the frame before and of this one (rule 20). *)
Theorem frame_row (a b : lane) (n overrun_in overrun_out : N) :
  conserved a -> conserved b ->
  (charged (tm a) <= charged (tm b) -> overhead (tm a) <= overhead (tm b) ->
   idle (tm a) <= idle (tm b) ->
   now a = n * frame_cycles cfg + overrun_in ->
   now b = (n + 1) * frame_cycles cfg + overrun_out ->
   (charged (tm b) - charged (tm a)) + (overhead (tm b) - overhead (tm a))
     + (idle (tm b) - idle (tm a)) + overrun_in = frame_cycles cfg + overrun_out)%N.
Proof. unfold conserved, now. intros Ha Hb H1 H2 H3 H4 H5. lia. Qed.

(* When a frame ends, every lane is at the frame's end or past it by its overrun. *)
Theorem frame_ends_on_the_grid (st : state) l :
  (frame _ _ st < last_frame cfg)%N -> In l (lanes _ _ (next_frame _ _ cfg st)) ->
  exists l0, In l0 (lanes _ _ st) /\
    now l = N.max (now l0) ((frame _ _ st + 1) * frame_cycles cfg).
Proof.
  intros Hf Hl. unfold next_frame in Hl.
  destruct (N.leb_spec (last_frame cfg) (frame _ _ st)); [lia|]. cbn in Hl.
  apply in_map_iff in Hl. destruct Hl as (l0 & <- & Hl0). exists l0. split; auto.
  unfold frame_end, now, idle_to, now; cbn. lia.
Qed.

End Progress.
