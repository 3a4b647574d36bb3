(* Waves on any number of workers.

   A wave is run by groups of lanes: each group by one worker, in lane order, the
   groups in any interleaving. Two families of theorems:

   - with the groups the state itself holds ([own_groups_*]): lanes that share a
     session are in one group; nothing else is assumed;
   - with the groups a certificate claims ([covered_wave_is_canonical]): the checker accepted
     it, and what it granted covers the sessions that live on the claimed lanes. A worker
     sees the sessions it was granted and no others. Acceptance.v shows that acceptance
     implies this.

   In both, every complete interleaving ends in the canonical state, logs included. *)

From Coq Require Import List Arith NArith Lia Bool Permutation.
From Wavelock Require Import Interleave Groups Certificate Machine Invariants Parcels.
Import ListNotations.

Section Waves.

Variables mem co : Type.
Notation session := (session mem co).
Notation view := (view mem co).
Notation state := (state mem co).

Variable slice : mem -> co -> option answer -> N -> slice_result mem co.
Variable choose : list cid -> nat.
Variable cfg : settings.

Notation step_seeing := (step_seeing mem co slice choose cfg).
Notation step := (step mem co slice choose cfg).
Notation tick := (tick mem co slice choose cfg).

(* ---- The machine as lanes, sessions and what a wave does not change ---- *)

Definition rest (st : state) :=
  (homes _ _ st, frame _ _ st, wave _ _ st, phase _ _ st, history _ _ st).

Definition put (ls : list lane) (ss : list session) (st : state) : state :=
  set_sessions _ _ ss (set_lanes _ _ ls st).

Definition act (r : list (list nat) * N * N * phase_t * list event) (n me : nat) (l : lane)
  (v : view) : bool * (lane * view) :=
  lane_step _ _ slice choose cfg
    (Env n (fst (fst (fst (fst r)))) (snd (fst (fst (fst r)))) (snd (fst (fst r)))) me l v.

Lemma parts (a b : state) :
  lanes _ _ a = lanes _ _ b -> sessions _ _ a = sessions _ _ b -> rest a = rest b -> a = b.
Proof.
  destruct a, b. unfold rest. cbn. intros -> -> H. injection H as -> -> -> -> ->. auto.
Qed.

Notation generic f := (f state lane session _ (lanes _ _) (sessions _ _) rest put).

(* A step touches its lane and the sessions it sees, and depends on nothing else. *)
Theorem step_local vis me :
  local _ _ _ _ (Groups.get _ _ _ (lanes _ _) (sessions _ _))
    (Groups.shape _ _ _ _ (lanes _ _) (sessions _ _) rest) (Groups.foot vis me)
    (step_seeing vis me).
Proof. exact (generic Groups.step_local (fun _ _ _ => eq_refl) (fun _ _ _ => eq_refl) (fun _ _ _ =>
    eq_refl) act vis me). Qed.

(* ---- The canonical run of a wave ---- *)

Notation iter vis := (iter state (fun l => step_seeing (vis l) l)).
Notation exec vis := (exec state (fun l => step_seeing (vis l) l)).
Notation complete := (complete state).

Lemma step_phase vis me p (st : state) :
  step_seeing vis me (set_phase _ _ p st)
  = (fst (step_seeing vis me st), set_phase _ _ p (snd (step_seeing vis me st))).
Proof.
  unfold Machine.step_seeing. cbn. destruct (nth_error (lanes _ _ st) me) as [l|]; auto.
  change (env_of mem co (set_phase mem co p st)) with (env_of mem co st).
  destruct (lane_step _ _ _ _ _ _ _ _ _) as [b [l' v']]. auto.
Qed.

Lemma step_keeps vis me (st : state) :
  homes _ _ (snd (step_seeing vis me st)) = homes _ _ st /\
  length (lanes _ _ (snd (step_seeing vis me st))) = length (lanes _ _ st) /\
  length (sessions _ _ (snd (step_seeing vis me st))) = length (sessions _ _ st).
Proof.
  unfold Machine.step_seeing. destruct (nth_error (lanes _ _ st) me) as [l|]; auto.
  destruct (lane_step _ _ _ _ _ _ _ _ _) as [b [l' v']]. cbn.
  unfold Machine.merge. rewrite upd_length, merge_length. auto.
Qed.

(* What a canonical step of each lane sees. *)
Definition sees (h : list (list nat)) (l : nat) : nat -> bool := lives_on h l.

Lemma run_app m n (st : state) :
  run _ _ slice choose cfg (m + n) st = run _ _ slice choose cfg n (run _ _ slice choose cfg m st).
Proof. revert st. induction m; intros st; cbn; auto. Qed.

Lemma run_snoc n (st : state) :
  run _ _ slice choose cfg (S n) st = snd (tick (run _ _ slice choose cfg n st)).
Proof. replace (S n) with (n + 1) by lia. rewrite run_app. auto. Qed.

(* The transitions of the machine in a wave are the moves of all lanes in order. *)
Lemma ticks_are_moves n (st : state) : phase _ _ st = InWave 0 ->
  let h := homes _ _ st in
  let nl := length (lanes _ _ st) in
  let r := iter (sees h) n (seq 0 nl, st) in
  exists m j, m <= nl /\ fst r = seq m (nl - m) /\
    homes _ _ (snd r) = h /\ length (lanes _ _ (snd r)) = nl /\
    run _ _ slice choose cfg j st = set_phase _ _ (InWave m) (snd r).
Proof.
  intros Hp h nl. cbn zeta. induction n as [|n (m & j & Hm & Hf & Hh & Hl & Hr)].
  - exists 0, 0. cbn. rewrite Nat.sub_0_r. repeat (split; auto); try lia.
    destruct st; cbn in *; subst; auto.
  - cbn [Interleave.iter].
    destruct (iter (sees h) n (seq 0 nl, st)) as [t c] eqn:Er.
    cbn [fst snd] in *. unfold move. cbn [fst snd].
    destruct (nl - m) as [|k] eqn:Ek; cbn [seq] in Hf; subst t.
    + exists m, j. rewrite Ek. cbn. auto.
    + assert (Hmlt : m < nl) by lia.
      destruct (step_keeps (sees h m) m c) as (K1 & K2 & K3).
      assert (Htick : run _ _ slice choose cfg (S j) st =
        set_phase _ _ (InWave (if fst (step_seeing (sees h m) m c) then m else S m))
          (snd (step_seeing (sees h m) m c))).
      { rewrite run_snoc, Hr.
        unfold Machine.tick. cbn [phase set_phase].
        change (lanes mem co (set_phase mem co (InWave m) c)) with (lanes mem co c).
        rewrite Hl. destruct (Nat.ltb_spec m nl); [|lia].
        unfold Machine.step.
        change (homes mem co (set_phase mem co (InWave m) c)) with (homes mem co c).
        rewrite Hh. fold (sees h m). rewrite step_phase.
        destruct (step_seeing (sees h m) m c) as [b c']. cbn. destruct b; auto. }
      destruct (step_seeing (sees h m) m c) as [b c'] eqn:Es. cbn [fst snd] in *.
      destruct b; cbn [fst snd].
      * exists m, (S j). rewrite Ek. cbn [seq]. repeat (split; auto); try lia; congruence.
      * exists (S m), (S j). replace (nl - S m) with k by lia.
        repeat (split; auto); try lia; congruence.
Qed.

(* The driver's end of a wave: no lane is left to run, then the wave closes. *)
Definition end_wave (st : state) : state :=
  close_wave _ _ cfg (set_phase _ _ (InWave (length (lanes _ _ st))) st).

(* When all lanes have run, the machine closes the wave. *)
Lemma wave_ends n (st cf : state) : phase _ _ st = InWave 0 ->
  iter (sees (homes _ _ st)) n (seq 0 (length (lanes _ _ st)), st) = ([], cf) ->
  exists j, run _ _ slice choose cfg j st = end_wave cf.
Proof.
  intros Hp H.
  destruct (ticks_are_moves n st Hp) as (m & j & Hm & Hf & Hh & Hl & Hr).
  rewrite H in *. cbn [fst snd] in *.
  assert (Hml : m = length (lanes _ _ st)).
  { destruct (length (lanes _ _ st) - m) eqn:E; [lia|discriminate]. }
  exists (S j). rewrite run_snoc, Hr. unfold Machine.tick. cbn [phase set_phase].
  change (lanes mem co (set_phase mem co (InWave m) cf)) with (lanes mem co cf).
  rewrite Hl. destruct (Nat.ltb_spec m (length (lanes _ _ st))); [lia|].
  unfold end_wave. rewrite Hl, Hml. reflexivity.
Qed.

(* ---- Groups ---- *)

(* Groups of lanes, run by any workers in any interleaving, then the wave's end. *)
Definition parallel_wave (vis : nat -> nat -> bool) (gs : list (list nat)) (sched : list nat)
  (st : state) : list (list nat) * state :=
  exec vis sched (map (todo (length (lanes _ _ st))) gs, st).

(* A lane without work has no step, whatever else the store holds. *)
Definition idle_lane (l : lane) : bool :=
  (wave_end l <=? now l)%N || negb (has_work l).

Lemma idle_act r n me l v : me < n -> idle_lane l = true ->
  fst (act r n me l v) = false /\ fst (snd (act r n me l v)) = l /\
  forall i s, nth_error v i = Some (Some s) -> nth_error (snd (snd (act r n me l v))) i = Some
      (Some s).
Proof.
  intros _ Hi. unfold act, lane_step.
  unfold idle_lane in Hi. destruct (wave_end l <=? now l)%N; auto. cbn in Hi.
  unfold has_work in Hi. destruct (current l); [discriminate|].
  destruct (ready l); [auto|discriminate].
Qed.

(* The general statement: disjoint groups that cover the lanes with work, each seeing
   on every lane what the canonical step of that lane sees. *)
Theorem groups_are_canonical vis gs sched (st : state) :
  phase _ _ st = InWave 0 ->
  (forall g l i, In g gs -> In l g -> i < length (sessions _ _ st) ->
     vis l i = lives_on (homes _ _ st) l i) ->
  (forall a b ga gb, nth_error gs a = Some ga -> nth_error gs b = Some gb -> a <> b ->
     forall p, group_foot vis ga p = true -> group_foot vis gb p = true -> False) ->
  (forall l x, nth_error (lanes _ _ st) l = Some x -> (forall g, In g gs -> ~ In l g) ->
     idle_lane x = true) ->
  complete (parallel_wave vis gs sched st) ->
  exists j, run _ _ slice choose cfg j st
            = end_wave (snd (parallel_wave vis gs sched st)).
Proof.
  intros Hp Hvis Hdis Hidle Hc.
  destruct (generic Groups.groups_are_canonical (fun _ _ _ => eq_refl) (fun _ _ _ => eq_refl)
              (fun _ _ _ => eq_refl) parts act idle_lane idle_act (sees (homes _ _ st)) vis gs sched
              st Hvis Hdis Hidle Hc) as [n Hn].
  apply (wave_ends n); auto.
Qed.

(* ---- The groups that the state itself holds ---- *)

Lemma lives_on_in h l i : lives_on h l i = true -> In l (nth i h []).
Proof.
  unfold lives_on. intros H. apply existsb_exists in H. destruct H as (x & Hx & E).
  apply Nat.eqb_eq in E. subst. auto.
Qed.

(* Every complete interleaving of the state's own groups ends in the canonical state.
   There is no premise but that the wave is open. *)
Theorem own_groups_are_canonical sched (st : state) :
  phase _ _ st = InWave 0 ->
  let gs := groups_of (length (lanes _ _ st)) (homes _ _ st) in
  let vis := sees (homes _ _ st) in
  complete (parallel_wave vis gs sched st) ->
  exists j, run _ _ slice choose cfg j st = end_wave (snd (parallel_wave vis gs sched st)).
Proof.
  intros Hp gs vis Hc.
  (* Lanes that do not exist have no part in it. *)
  set (nl := length (lanes _ _ st)) in *. set (h := homes _ _ st) in *.
  destruct (groups_of_spec nl h) as (G1 & G2 & G3). fold gs in G1, G2, G3.
  set (real := map (filter (fun l => l <? nl)) gs).
  assert (Htodo : map (todo nl) real = map (todo nl) gs).
  { unfold real. rewrite map_map. apply map_ext. intros g. unfold todo.
    apply filter_ext_in. intros l Hl. apply in_seq in Hl.
    destruct (lane_in g l) eqn:E.
    - apply lane_in_spec. apply lane_in_spec in E. apply filter_In. split; auto.
      apply Nat.ltb_lt. lia.
    - destruct (lane_in (filter (fun l0 => l0 <? nl) g) l) eqn:E2; auto.
      apply lane_in_spec in E2. apply filter_In in E2. destruct E2 as [E2 _].
      apply lane_in_spec in E2. congruence. }
  assert (Hpar : parallel_wave vis real sched st = parallel_wave vis gs sched st).
  { unfold parallel_wave. fold nl. rewrite Htodo. auto. }
  rewrite <- Hpar in *. clear Hpar Htodo.
  assert (Hin : forall a g, nth_error real a = Some g -> exists g0, nth_error gs a = Some g0 /\
     forall l, In l g <-> In l g0 /\ l < nl).
  { intros a g Ha. unfold real in Ha. rewrite nth_error_map in Ha.
    destruct (nth_error gs a) as [g0|]; [|discriminate]. cbn in Ha. injection Ha as <-.
    exists g0. split; auto. intros l. split.
    - intros H. apply filter_In in H. destruct H as [H1 H2]. apply Nat.ltb_lt in H2. auto.
    - intros [H1 H2]. apply filter_In. split; auto. apply Nat.ltb_lt. auto. }
  apply groups_are_canonical; auto.
  - intros a b ga gb Ha Hb Hne p Hpa Hpb.
    destruct (Hin a ga Ha) as (ga0 & Ha0 & Hga). destruct (Hin b gb Hb) as (gb0 & Hb0 & Hgb).
    destruct p as [l|i]; cbn in Hpa, Hpb.
    + apply lane_in_spec in Hpa, Hpb. apply Hga in Hpa. apply Hgb in Hpb.
      apply Hne. destruct Hpa as [Hpa _], Hpb as [Hpb _].
      exact (G1 a b ga0 gb0 l Ha0 Hb0 Hpa Hpb).
    + apply existsb_exists in Hpa, Hpb.
      destruct Hpa as (l & Hl & Hli). destruct Hpb as (m & Hm & Hmi).
      apply Hga in Hl. apply Hgb in Hm. destruct Hl as [Hl Hlt], Hm as [Hm Hmt].
      apply lives_on_in in Hli, Hmi. fold h in Hli, Hmi.
      destruct (G3 (nth i h []) l m) as (g & Hg & H1 & H2); auto.
      { eapply nth_nonempty_in; eauto. }
      apply In_nth_error in Hg. destruct Hg as [c Hc'].
      apply Hne. transitivity c.
      * exact (G1 a c ga0 g l Ha0 Hc' Hl H1).
      * symmetry. exact (G1 b c gb0 g m Hb0 Hc' Hm H2).
  - intros l x Hl Hnone. exfalso.
    assert (Hlt : l < nl) by (apply nth_error_Some; unfold nl; congruence).
    destruct (G2 l Hlt) as (g & Hg & H1 & _). apply In_nth_error in Hg. destruct Hg as [a Ha].
    apply (Hnone (filter (fun l => l <? nl) g)).
    + unfold real. apply in_map. eapply nth_error_In; eauto.
    + apply filter_In. split; auto. apply Nat.ltb_lt. auto.
Qed.

(* ---- The groups of a certificate ---- *)

Definition granted_sessions (k : checker) (m : claim) : list nat :=
  match granted k m with Some (_, x) => x_sessions x | None => [] end.

Definition has (l : list nat) (x : nat) : bool := existsb (Nat.eqb x) l.

Lemma has_spec l x : has l x = true <-> In x l.
Proof.
  unfold has. rewrite existsb_exists. split.
  - intros (y & Hy & E). apply Nat.eqb_eq in E. subst. auto.
  - intros H. exists x. split; auto. apply Nat.eqb_refl.
Qed.

(* What a worker sees on a lane: the sessions that live there and were granted to the
   claim that has the lane. *)
Definition granted_view (k : checker) (t : certificate) (h : list (list nat)) (l i : nat) : bool :=
  lives_on h l i &&
  existsb (fun m => lane_in (m_lanes m) l && has (granted_sessions k m) i) (t_claims t).

(* What the state itself must hold for the claims to be its groups: the sessions that
   live on a claimed lane were granted to its claim, and a lane that is in no claim has
   nothing to run. *)
Definition covers (k : checker) (t : certificate) (st : state) : bool :=
  forallb (fun m => forallb (fun l => forallb (fun i =>
      negb (lives_on (homes _ _ st) l i) || has (granted_sessions k m) i)
    (seq 0 (length (sessions _ _ st)))) (m_lanes m)) (t_claims t) &&
  forallb (fun l => existsb (fun m => lane_in (m_lanes m) l) (t_claims t) ||
      match nth_error (lanes _ _ st) l with Some x => idle_lane x | None => true end)
    (seq 0 (length (lanes _ _ st))).

Theorem covered_wave_is_canonical k k' t f sched (st : state) :
  phase _ _ st = InWave 0 ->
  invariant k -> check t f k = (k', None) -> covers k' t st = true ->
  let gs := map m_lanes (t_claims t) in
  let vis := granted_view k' t (homes _ _ st) in
  complete (parallel_wave vis gs sched st) ->
  exists j, run _ _ slice choose cfg j st = end_wave (snd (parallel_wave vis gs sched st)).
Proof.
  intros Hp Hk Hck Hcov gs vis Hc.
  assert (A := check_sound t f k k' Hk Hck). destruct A as [_ _ _ AL AC AS _ _ _].
  apply andb_prop in Hcov. destruct Hcov as [Hc1 Hc2].
  rewrite forallb_forall in Hc1, Hc2.
  assert (Hgrant : forall m l i, In m (t_claims t) -> In l (m_lanes m) ->
     i < length (sessions _ _ st) -> lives_on (homes _ _ st) l i = true ->
     In i (granted_sessions k' m)).
  { intros m l i Hm Hl Hi Hlive. specialize (Hc1 m Hm). rewrite forallb_forall in Hc1.
    specialize (Hc1 l Hl). rewrite forallb_forall in Hc1.
    specialize (Hc1 i). rewrite Hlive in Hc1. cbn in Hc1. apply has_spec. apply Hc1.
    apply in_seq. lia. }
  apply groups_are_canonical; auto.
  - intros g l i Hg Hl Hi. unfold gs in Hg. apply in_map_iff in Hg. destruct Hg as (m & <- & Hm).
    unfold vis, granted_view.
    destruct (lives_on (homes _ _ st) l i) eqn:E; auto. cbn.
    apply existsb_exists. exists m. split; auto. apply andb_true_intro.
    split; [apply lane_in_spec; auto|]. apply has_spec. eapply Hgrant; eauto.
  - intros a b ga gb Ha Hb Hne p Hpa Hpb. unfold gs in Ha, Hb. rewrite nth_error_map in Ha, Hb.
    destruct (nth_error (t_claims t) a) as [ma|] eqn:Ea; [|discriminate].
    destruct (nth_error (t_claims t) b) as [mb|] eqn:Eb; [|discriminate].
    cbn in Ha, Hb. injection Ha as <-. injection Hb as <-.
    assert (Hlane : forall l, In l (m_lanes ma) -> In l (m_lanes mb) -> False).
    { intros l H1 H2. apply Hne. eapply (nodup_flat_map_index m_lanes); eauto. }
    destruct p as [l|i]; cbn in Hpa, Hpb.
    + apply lane_in_spec in Hpa, Hpb. eauto.
    + (* A session that both see was granted to both. *)
      assert (Hsee : forall c m, nth_error (t_claims t) c = Some m ->
         existsb (fun l => vis l i) (m_lanes m) = true -> In i (granted_sessions k' m)).
      { intros c m Hm Hx. apply existsb_exists in Hx. destruct Hx as (l & Hl & Hx).
        unfold vis, granted_view in Hx. apply andb_prop in Hx. destruct Hx as [_ Hx].
        apply existsb_exists in Hx. destruct Hx as (m' & Hm' & Hx).
        apply andb_prop in Hx. destruct Hx as [Hx1 Hx2].
        apply lane_in_spec in Hx1. apply has_spec in Hx2.
        apply In_nth_error in Hm'. destruct Hm' as [c' Hc'].
        assert (c = c') by (eapply (nodup_flat_map_index m_lanes); eauto). subst.
        congruence. }
      apply (Hsee a ma Ea) in Hpa. apply (Hsee b mb Eb) in Hpb.
      unfold granted_sessions in Hpa, Hpb.
      destruct (granted k' ma) as [[va xa]|] eqn:Ga; [|destruct Hpa].
      destruct (granted k' mb) as [[vb xb]|] eqn:Gb; [|destruct Hpb].
      eapply (AS a b); eauto.
  - intros l x Hl Hnone. specialize (Hc2 l).
    assert (Hlt : l < length (lanes _ _ st)) by (apply nth_error_Some; congruence).
    rewrite Hl in Hc2.
    assert (Hcl : existsb (fun m => lane_in (m_lanes m) l) (t_claims t) = false).
    { destruct (existsb _ _) eqn:E; auto. apply existsb_exists in E.
      destruct E as (m & Hm & E). apply lane_in_spec in E.
      exfalso. apply (Hnone (m_lanes m)); auto. unfold gs. apply in_map. auto. }
    rewrite Hcl in Hc2. apply Hc2. apply in_seq. lia.
Qed.

(* ---- The driver ---- *)

(* What one round of the driver can be. [workers] is the number of threads; the
   schedule is whatever they make of the wave. *)
Inductive round_of (workers : nat) : state * checker -> state * checker -> Prop :=
| round_boundary st k : in_wave _ _ st = false ->
    round_of workers (st, k) (snd (tick st), k)
| round_own_groups st k sched : phase _ _ st = InWave 0 ->
    (* The state's own groups in any interleaving: what the shipped pool runs once a
       certificate was accepted, and one thread without any. *)
    complete (parallel_wave (sees (homes _ _ st))
      (groups_of (length (lanes _ _ st)) (homes _ _ st)) sched st) ->
    round_of workers (st, k)
      (end_wave (snd (parallel_wave (sees (homes _ _ st))
         (groups_of (length (lanes _ _ st)) (homes _ _ st)) sched st)), k)
| round_certified st k t f k' sched : 1 < workers -> phase _ _ st = InWave 0 ->
    check t f k = (k', None) -> covers k' t st = true ->
    complete (parallel_wave (granted_view k' t (homes _ _ st))
      (map m_lanes (t_claims t)) sched st) ->
    round_of workers (st, k)
      (end_wave (snd (parallel_wave (granted_view k' t (homes _ _ st))
         (map m_lanes (t_claims t)) sched st)), k')
| round_refused st k t f k' r : check t f k = (k', Some r) ->
    round_of workers (st, k) (st, k')
| round_step st k turn : phase _ _ st = InWave turn ->
    (* After a refusal: one transition in canonical order. *)
    round_of workers (st, k) (snd (tick st), k).

Inductive driven (workers : nat) : state * checker -> state * checker -> Prop :=
| driven_start x : driven workers x x
| driven_round x y z : driven workers x y -> round_of workers y z -> driven workers x z.

Lemma run_tick (st : state) : snd (tick st) = run _ _ slice choose cfg 1 st.
Proof. reflexivity. Qed.

Lemma round_of_canonical workers st k st' k' :
  invariant k -> round_of workers (st, k) (st', k') ->
  invariant k' /\ exists n, run _ _ slice choose cfg n st = st'.
Proof.
  intros Hk H. inversion H; subst.
  - split; auto. exists 1. auto.
  - split; auto. destruct (own_groups_are_canonical sched st) as [j Hj]; eauto.
  - split.
    + match goal with E : check ?t ?f k = _ |- _ =>
        assert (X := check_invariant t f k Hk); rewrite E in X; exact X end.
    + match goal with
      | P : phase _ _ st = InWave 0, E : check _ _ k = _, C : covers _ _ _ = true, K : complete _
          |- _ =>
          exact (covered_wave_is_canonical _ _ _ _ _ _ P Hk E C K)
      end.
  - split; [|exists 0; auto].
    match goal with E : check ?t ?f k = _ |- _ =>
      assert (X := check_invariant t f k Hk); rewrite E in X; exact X end.
  - split; auto. exists 1. auto.
Qed.

(* A driver on any number of workers only ever reaches canonical states. *)
Theorem driver_is_canonical workers lanes sessions st0 st k :
  driven workers (st0, new_checker lanes sessions) (st, k) ->
  exists n, run _ _ slice choose cfg n st0 = st.
Proof.
  intros H. remember (st0, new_checker lanes sessions) as x. remember (st, k) as y.
  assert (G : invariant (snd y) /\ exists n, run _ _ slice choose cfg n st0 = fst y).
  { clear Heqy st k. induction H as [x|x [s1 k1] [s2 k2] H IH Hr]; subst.
    - cbn. split; [apply new_checker_invariant|exists 0; auto].
    - destruct (IH eq_refl) as [I [n Hn]]. cbn [fst snd] in *.
      destruct (round_of_canonical _ _ _ _ _ I Hr) as [I2 [m Hm]].
      split; auto. exists (n + m). rewrite run_app, Hn. auto. }
  subst y. apply G.
Qed.

Lemma run_done n (st : state) : is_done _ _ st = true -> run _ _ slice choose cfg n st = st.
Proof.
  intros H. induction n; cbn; auto. unfold Machine.tick. unfold is_done in H.
  destruct (phase _ _ st); try discriminate. auto.
Qed.

(* When it has ended, it has ended in the canonical end, with the canonical log. *)
Theorem driver_ends_canonically workers lanes sessions st0 st k :
  driven workers (st0, new_checker lanes sessions) (st, k) -> is_done _ _ st = true ->
  exists n, forall m, n <= m -> run _ _ slice choose cfg m st0 = st.
Proof.
  intros H Hd. apply driver_is_canonical in H. destruct H as [n Hn]. exists n.
  intros m Hm. replace m with (n + (m - n)) by lia. rewrite run_app, Hn. apply run_done. auto.
Qed.

(* Two drivers that have ended have ended in the same state. *)
Theorem workers_do_not_matter w1 w2 l1 l2 s1 s2 st0 a b ka kb :
  driven w1 (st0, new_checker l1 s1) (a, ka) -> is_done _ _ a = true ->
  driven w2 (st0, new_checker l2 s2) (b, kb) -> is_done _ _ b = true -> a = b.
Proof.
  intros Ha Da Hb Db.
  destruct (driver_ends_canonically _ _ _ _ _ _ Ha Da) as [n Hn].
  destruct (driver_ends_canonically _ _ _ _ _ _ Hb Db) as [m Hm].
  rewrite <- (Hn (n + m)), <- (Hm (n + m)); auto; lia.
Qed.

(* ---- One worker ---- *)

(* The one worker runs the groups one after the other: one move of the first group
   that is not done. *)
Definition solo : (nat -> nat -> bool) -> nat -> list (list nat) * state -> list (list nat) * state
    :=
  generic Groups.solo act.

(* State for state and, since logs are part of the state, event for event: after any
   number of moves the one worker is where the canonical run is, if the groups are
   consecutive lanes. *)
Theorem one_worker_state_for_state vis n ts c :
  (concat (fst (solo vis n (ts, c))), snd (solo vis n (ts, c))) = iter vis n (concat ts, c).
Proof. exact (generic Groups.one_worker_is_the_canonical_run act vis n ts c). Qed.

(* Without split sessions every group is one lane, and the groups are consecutive. *)
Lemma single_lanes nl : concat (map (fun l => [l]) (seq 0 nl)) = seq 0 nl.
Proof. generalize 0. induction nl; intros s; cbn; auto. rewrite IHnl. auto. Qed.

Theorem one_worker_is_canonical n (st : state) : phase _ _ st = InWave 0 ->
  let vis := sees (homes _ _ st) in
  let r := solo vis n (map (fun l => [l]) (seq 0 (length (lanes _ _ st))), st) in
  exists turn j, concat (fst r) = seq turn (length (lanes _ _ st) - turn) /\
    run _ _ slice choose cfg j st = set_phase _ _ (InWave turn) (snd r).
Proof.
  intros Hp vis r.
  destruct (ticks_are_moves n st Hp) as (m & j & _ & Hf & _ & _ & Hr).
  assert (H := one_worker_state_for_state vis n (map (fun l => [l]) (seq 0 (length (lanes _ _
      st)))) st).
  rewrite single_lanes in H. fold r in H. exists m, j.
  unfold vis in H. rewrite <- H in Hf, Hr. auto.
Qed.

(* Groups that are not consecutive lanes: the same state at the wave's end. *)
Theorem one_worker_wave_is_canonical n (st : state) : phase _ _ st = InWave 0 ->
  let vis := sees (homes _ _ st) in
  let gs := groups_of (length (lanes _ _ st)) (homes _ _ st) in
  let r := solo vis n (map (todo (length (lanes _ _ st))) gs, st) in
  fst r = [] -> exists j, run _ _ slice choose cfg j st = end_wave (snd r).
Proof.
  intros Hp vis gs r Hr.
  destruct (generic Groups.solo_is_a_schedule parts act vis n (map (todo (length (lanes _ _ st)))
      gs) st)
    as (sched & H1 & H2).
  fold solo in H1, H2. fold r in H1, H2. rewrite <- H1.
  apply (own_groups_are_canonical sched st Hp). apply H2. auto.
Qed.

(* ---- Workers as threads with queues of groups ---- *)

(* Whatever queues the workers have and however their moves interleave, if all groups
   are done the wave is canonical. *)
Theorem any_workers_are_canonical queues events (st : state) : phase _ _ st = InWave 0 ->
  let vis := sees (homes _ _ st) in
  let gs := groups_of (length (lanes _ _ st)) (homes _ _ st) in
  let w := snd (work _ (fun l => step_seeing (vis l) l) events
                  (queues, (map (todo (length (lanes _ _ st))) gs, st))) in
  complete w -> exists j, run _ _ slice choose cfg j st = end_wave (snd w).
Proof.
  intros Hp vis gs w Hc.
  destruct (workers_follow_a_schedule _ (fun l => step_seeing (vis l) l) events
    (queues, (map (todo (length (lanes _ _ st))) gs, st))) as [sched Hs].
  fold w in Hs. cbn [snd] in Hs. rewrite Hs in Hc |- *.
  apply (own_groups_are_canonical sched st Hp). exact Hc.
Qed.

(* ---- The order in which workers finish ---- *)

Lemma exec_inv vis sched ts (st : state) :
  inv _ _ st -> in_wave _ _ st = true ->
  inv _ _ (snd (exec vis sched (ts, st))) /\ in_wave _ _ (snd (exec vis sched (ts, st))) = true.
Proof.
  intros I W.
  apply (exec_ext _ (fun l => step_seeing (vis l) l) (fun l => step_seeing (vis l) l)
           (fun c => inv _ _ c /\ in_wave _ _ c = true)); auto.
  intros l c [Ic Wc]. destruct (step_seeing (vis l) l c) as [b c'] eqn:E.
  destruct (step_seeing_inv _ _ _ _ _ _ _ _ _ _ E Wc Ic) as (J & _ & _ & K). auto.
Qed.

(* The posts of the lanes arrive in any order, as the workers finish; the machine sorts
   them by (lane, step, sequence) and is where the canonical run is. *)
Theorem arrivals_are_canonical sched arrived (st : state) :
  inv _ _ st -> phase _ _ st = InWave 0 ->
  let gs := groups_of (length (lanes _ _ st)) (homes _ _ st) in
  let vis := sees (homes _ _ st) in
  let c := snd (parallel_wave vis gs sched st) in
  complete (parallel_wave vis gs sched st) ->
  Permutation arrived (keyed_from 0 (lanes _ _ c)) ->
  exists j, run _ _ slice choose cfg j st
    = close_with _ _ cfg (map strip (sort arrived)) (set_phase _ _ (InWave (length (lanes _ _ c)))
        c).
Proof.
  intros I Hp gs vis c Hc Ha.
  destruct (own_groups_are_canonical sched st Hp Hc) as [j Hj]. exists j. rewrite Hj.
  fold gs vis c. unfold end_wave, close_wave. f_equal. symmetry.
  apply (arrival_order_does_not_matter _ _
           (set_phase _ _ (InWave (length (lanes _ _ c))) c)); cbn; auto.
  destruct (exec_inv vis sched (map (todo (length (lanes _ _ st))) gs) st I) as [J _].
  { unfold in_wave. rewrite Hp. auto. }
  destruct J as [_ _ _ O _]. exact O.
Qed.

(* ---- Concurrency 0 ---- *)

Inductive driver_error := NoWorkers.

(* A driver is started with a number of workers. *)
Definition start (workers : nat) (st : state) : state + driver_error :=
  match workers with O => inr NoWorkers | S _ => inl st end.

Theorem concurrency_zero_is_refused st : start 0 st = inr NoWorkers.
Proof. reflexivity. Qed.

Theorem any_other_concurrency_starts n st : start (S n) st = inl st.
Proof. reflexivity. Qed.

End Waves.
