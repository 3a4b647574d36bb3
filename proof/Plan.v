(* The planner's certificates cover the state.

   The checker takes a group's sets from the planner, once for each version of them. It
   is [honest] with the machine when what it accepted under the machine's version is what
   the machine has. This file proves that a planner that sends the machine's own sets
   (crates/waves/src/plan.rs) keeps the checker honest, whatever is accepted or refused
   and whenever sessions move, if a version rises with each change. An accepted
   certificate of this planner then covers the state, so that the premise [covers] of
   [certified_wave_is_canonical] is what the state itself holds. *)

From Coq Require Import List Arith NArith Lia Bool.
From Wavelock Require Import Interleave Certificate Machine Invariants Waves.
Import ListNotations.

(* What a group says about itself. *)
Record group := Group {
  u_lanes : list nat;
  u_version : N;
  u_sets : sets;
  u_digest : N;
  u_work : bool;
  u_picks : list pick }.

Definition u_first (g : group) : nat := hd 0 (u_lanes g).

(* By first lane: the version of the sets that was sent last; any list is good. *)
Definition was_sent (sent : list N) (g : group) : bool :=
  match nth_error sent (u_first g) with Some v => N.eqb v (u_version g) | None => false end.

Definition claim_of (sent : list N) (g : group) : claim :=
  {| m_lanes := u_lanes g; m_version := u_version g;
     m_sets := if was_sent sent g then None else Some (u_sets g);
     m_digest := u_digest g; m_picks := u_picks g |}.

(* Every group with work or with other sets than it last sent. *)
Definition plan (w : N) (s : span) (sent : list N) (gs : list group) : certificate :=
  {| t_wave := w; t_span := s;
     t_claims := map (claim_of sent) (filter (fun g => u_work g || negb (was_sent sent g)) gs) |}.

Definition distinct (gs : list group) : Prop :=
  forall g h, In g gs -> In h gs -> u_first g = u_first h -> g = h.

Definition honest (k : checker) (gs : list group) : Prop :=
  forall g v x, In g gs -> accepted_at k (u_first g) = Some (v, x) ->
    (v <= u_version g)%N /\ (v = u_version g -> x = u_sets g).

Lemma first_claim sent g : first_lane (claim_of sent g) = u_first g.
Proof. reflexivity. Qed.

Theorem new_checker_is_honest lanes sessions gs : honest (new_checker lanes sessions) gs.
Proof.
  intros g v x _ H. unfold accepted_at, new_checker in H; simpl in H.
  destruct (nth_error (repeat None lanes) (u_first g)) eqn:E; [|discriminate].
  apply nth_repeat in E. congruence.
Qed.

Theorem refusal_keeps_honesty t f k k' r gs :
  invariant k -> check t f k = (k', Some r) -> honest k gs -> honest k' gs.
Proof.
  intros I H Hh g v x Hg Ha. rewrite (refused_check_keeps_sets _ _ _ _ _ I H) in Ha. eauto.
Qed.

(* An accepted certificate of the planner grants each claimed group its own sets. *)
Theorem plan_grants_own_sets w s sent gs f k k' :
  invariant k -> honest k gs -> distinct gs ->
  check (plan w s sent gs) f k = (k', None) ->
  honest k' gs /\
  (forall g, In g gs -> u_work g || negb (was_sent sent g) = true ->
     granted k' (claim_of sent g) = Some (u_version g, u_sets g)).
Proof.
  intros I Hh Hd H.
  assert (A := check_sound _ _ _ _ I H). destruct A as [_ _ _ _ AC _ _ _ _].
  assert (Hgrant : forall g, In g gs -> u_work g || negb (was_sent sent g) = true ->
     granted k' (claim_of sent g) = Some (u_version g, u_sets g)).
  { intros g Hg Hc.
    assert (Hin : In (claim_of sent g) (t_claims (plan w s sent gs))).
    { simpl. apply in_map. apply filter_In. auto. }
    destruct (AC _ Hin) as ((x & Hx & Hsets & _) & _). simpl in Hx.
    rewrite Hx. do 2 f_equal. destruct (was_sent sent g) eqn:Ew.
    - (* Sent before: what is accepted is what was accepted. *)
      assert (Hold : accepted_at k' (u_first g) = accepted_at k (u_first g)).
      { eapply accepted_check_keeps_others; eauto. simpl. intros Hch.
        unfold changed_groups in Hch. apply in_map_iff in Hch. destruct Hch as (m & Hm1 & Hm2).
        apply filter_In in Hm2. destruct Hm2 as [Hm2 Hm3].
        apply in_map_iff in Hm2. destruct Hm2 as (h & <- & Hin2).
        apply filter_In in Hin2. destruct Hin2 as [Hin2 _]. rewrite first_claim in Hm1.
        assert (h = g) by (apply Hd; auto). subst h. simpl in Hm3. rewrite Ew in Hm3.
        discriminate. }
      unfold granted in Hx. rewrite first_claim, Hold in Hx.
      destruct (Hh g _ _ Hg Hx) as [_ E]. auto.
    - apply Hsets. simpl. rewrite Ew. auto. }
  split; auto.
  intros g v x Hg Ha.
  destruct (u_work g || negb (was_sent sent g)) eqn:Ec.
  - specialize (Hgrant g Hg Ec). unfold granted in Hgrant. rewrite first_claim in Hgrant.
    rewrite Hgrant in Ha. injection Ha as <- <-. split; [lia|auto].
  - apply (Hh g v x Hg). rewrite <- Ha. symmetry.
    eapply accepted_check_keeps_others; eauto. simpl. intros Hch.
    unfold changed_groups in Hch. apply in_map_iff in Hch. destruct Hch as (m & Hm1 & Hm2).
    apply filter_In in Hm2. destruct Hm2 as [Hm2 _].
    apply in_map_iff in Hm2. destruct Hm2 as (h & <- & Hin2).
    apply filter_In in Hin2. destruct Hin2 as [Hin2 Hc2]. rewrite first_claim in Hm1.
    assert (h = g) by (apply Hd; auto). subst h. congruence.
Qed.

(* Sessions move: a group keeps its sets, or its version rises. *)
Definition evolves (gs gs' : list group) : Prop :=
  forall g', In g' gs' -> exists g, In g gs /\ u_first g = u_first g' /\
    ((u_version g' = u_version g /\ u_sets g' = u_sets g) \/ (u_version g < u_version g')%N).

Theorem moves_keep_honesty k gs gs' : evolves gs gs' -> honest k gs -> honest k gs'.
Proof.
  intros He Hh g' v x Hg Ha. destruct (He g' Hg) as (g & Hin & Hf & [[E1 E2]|Hlt]).
  - rewrite <- Hf in Ha. rewrite E1, E2. eauto.
  - rewrite <- Hf in Ha. destruct (Hh g v x Hin Ha) as [Hv _]. split; [lia|].
    intros ->. lia.
Qed.

(* A run as the checker sees it: certificates of the planner, accepted or refused, and
   moves of sessions between them. *)
Inductive planned (lanes sessions : nat) : checker -> list group -> Prop :=
| planned_start gs : planned lanes sessions (new_checker lanes sessions) gs
| planned_check k gs w s sent f : planned lanes sessions k gs -> distinct gs ->
    planned lanes sessions (fst (check (plan w s sent gs) f k)) gs
| planned_moves k gs gs' : planned lanes sessions k gs -> evolves gs gs' ->
    planned lanes sessions k gs'.

Theorem planned_checker_is_honest lanes sessions k gs :
  planned lanes sessions k gs -> invariant k /\ honest k gs.
Proof.
  induction 1 as [gs|k gs w s sent f _ [I Hh] Hd|k gs gs' _ [I Hh] He].
  - split; [apply new_checker_invariant|apply new_checker_is_honest].
  - split; [apply check_invariant; auto|].
    destruct (check (plan w s sent gs) f k) as [k' [r|]] eqn:E; simpl.
    + eapply refusal_keeps_honesty; eauto.
    + eapply plan_grants_own_sets; eauto.
  - split; auto. eapply moves_keep_honesty; eauto.
Qed.

Section Plan.

Variables mem co : Type.
Notation state := (state mem co).

Variable slice : mem -> co -> option answer -> N -> slice_result mem co.
Variable choose : list cid -> nat.
Variable cfg : settings.

(* The groups describe the state: they have its lanes, their sets have the sessions that
   live there, and a group without work has idle lanes. *)
Record describes (st : state) (gs : list group) : Prop := {
  d_sessions : forall g l i, In g gs -> In l (u_lanes g) -> i < length (sessions _ _ st) ->
    lives_on (homes _ _ st) l i = true -> In i (x_sessions (u_sets g));
  d_lanes : forall l, l < length (lanes _ _ st) -> exists g, In g gs /\ In l (u_lanes g);
  d_idle : forall g l x, In g gs -> u_work g = false -> In l (u_lanes g) ->
    nth_error (lanes _ _ st) l = Some x -> idle_lane x = true }.

Lemma planned_covers w s sent gs f k k' (st : state) :
  invariant k -> honest k gs -> distinct gs -> describes st gs ->
  check (plan w s sent gs) f k = (k', None) ->
  covers mem co k' (plan w s sent gs) st = true.
Proof.
  intros I Hh Hd [D1 D2 D3] H.
  destruct (plan_grants_own_sets _ _ _ _ _ _ _ I Hh Hd H) as [_ G].
  unfold covers. apply andb_true_intro. split; apply forallb_forall.
  - intros m Hm. simpl in Hm. apply in_map_iff in Hm. destruct Hm as (g & <- & Hg).
    apply filter_In in Hg. destruct Hg as [Hg Hc].
    apply forallb_forall. intros l Hl. apply forallb_forall. intros i Hi. apply in_seq in Hi.
    destruct (lives_on (homes _ _ st) l i) eqn:E; simpl; auto.
    apply has_spec. unfold granted_sessions. rewrite (G g Hg Hc).
    apply (D1 g l); auto. lia.
  - intros l Hl. apply in_seq in Hl. destruct (D2 l) as (g & Hg & Hlg); [lia|].
    destruct (u_work g || negb (was_sent sent g)) eqn:Ec.
    + apply orb_true_intro. left. apply existsb_exists. exists (claim_of sent g). split.
      * simpl. apply in_map. apply filter_In. auto.
      * apply lane_in_spec. auto.
    + apply orb_true_intro. right. apply orb_false_elim in Ec. destruct Ec as [Ew _].
      destruct (nth_error (lanes _ _ st) l) as [x|] eqn:E; auto. eapply D3; eauto.
Qed.

(* The certified wave of the planner, with no premise on what was granted. *)
Theorem planned_wave_is_canonical lanes_ sessions_ w s sent gs f k k' sched (st : state) :
  phase _ _ st = InWave 0 ->
  planned lanes_ sessions_ k gs -> distinct gs -> describes st gs ->
  check (plan w s sent gs) f k = (k', None) ->
  let t := plan w s sent gs in
  let vis := granted_view k' t (homes _ _ st) in
  let r := parallel_wave mem co slice choose cfg vis (map m_lanes (t_claims t)) sched st in
  complete _ r ->
  exists j, run _ _ slice choose cfg j st = end_wave mem co cfg (snd r).
Proof.
  intros Hp Hpl Hd Hs H t vis r Hc.
  destruct (planned_checker_is_honest _ _ _ _ Hpl) as [I Hh].
  apply (certified_wave_is_canonical mem co slice choose cfg k k' t f sched st); auto.
  eapply planned_covers; eauto.
Qed.

(* The groups that the state itself holds, in the planner's terms. *)
Definition describe (st : state) : list group :=
  map (fun g =>
    let ls := todo (length (lanes _ _ st)) g in
    Group ls 1
      {| x_sessions := filter (fun i => existsb (fun l => lives_on (homes _ _ st) l i) ls)
                         (seq 0 (length (sessions _ _ st)));
         x_channels := [] |}
      0 (existsb (fun l => match nth_error (lanes _ _ st) l with
                           | Some x => has_work x | None => false end) ls) [])
    (filter (fun g => match todo (length (lanes _ _ st)) g with [] => false | _ => true end)
       (groups_of (length (lanes _ _ st)) (homes _ _ st))).

Lemma todo_spec nl g l : In l (todo nl g) <-> In l g /\ l < nl.
Proof.
  unfold todo. rewrite filter_In, in_seq, lane_in_spec. intuition lia.
Qed.

Theorem the_state_describes_itself st : describes st (describe st) /\ distinct (describe st).
Proof.
  destruct (groups_of_spec (length (lanes _ _ st)) (homes _ _ st)) as (G1 & G2 & _).
  set (nl := length (lanes _ _ st)) in *.
  split; [constructor|].
  - intros g l i Hg Hl Hi Hlive. unfold describe in Hg. apply in_map_iff in Hg.
    destruct Hg as (g0 & <- & _). simpl in *. apply filter_In. split; [apply in_seq; lia|].
    apply existsb_exists. eauto.
  - intros l Hl. destruct (G2 l Hl) as (g & Hg & Hlg & _).
    assert (Hin : In l (todo nl g)) by (apply todo_spec; auto).
    eexists. split.
    + unfold describe. apply in_map. apply filter_In. split; [exact Hg|]. fold nl.
      destruct (todo nl g); [destruct Hin|auto].
    + simpl. auto.
  - intros g l x Hg Hw Hl Hx. unfold describe in Hg. apply in_map_iff in Hg.
    destruct Hg as (g0 & <- & _). simpl in *.
    unfold idle_lane. apply orb_true_intro. right.
    destruct (has_work x) eqn:E; auto. exfalso.
    assert (existsb (fun l => match nth_error (lanes _ _ st) l with
              Some x => has_work x | None => false end) (todo nl g0) = true); [|fold nl in Hw;
                  congruence].
    apply existsb_exists. exists l. rewrite Hx. auto.
  - intros g h Hg Hh Hf. unfold describe in Hg, Hh.
    apply in_map_iff in Hg, Hh. destruct Hg as (g0 & <- & Hg), Hh as (h0 & <- & Hh).
    apply filter_In in Hg, Hh. destruct Hg as [Hg Ng], Hh as [Hh Nh]. fold nl in Ng, Nh.
    unfold u_first in Hf. simpl in Hf. fold nl in Hf.
    assert (g0 = h0) as ->; auto.
    apply In_nth_error in Hg, Hh. destruct Hg as [a Ha], Hh as [b Hb].
    assert (Hfa : In (hd 0 (todo nl g0)) g0).
    { destruct (todo nl g0) as [|x r] eqn:E; [discriminate|].
      assert (X : In x (todo nl g0)) by (rewrite E; left; auto).
      apply todo_spec in X. simpl. tauto. }
    assert (Hfb : In (hd 0 (todo nl g0)) h0).
    { rewrite Hf. destruct (todo nl h0) as [|x r] eqn:E; [discriminate|].
      assert (X : In x (todo nl h0)) by (rewrite E; left; auto).
      apply todo_spec in X. simpl. tauto. }
    assert (a = b) by (eapply G1; eauto). subst. congruence.
Qed.

(* ---- A whole run with the planner ---- *)

(* Groups are constants of a run: transitions keep lanes, sessions and homes. *)
Definition same_shape (a b : state) : Prop :=
  length (lanes _ _ b) = length (lanes _ _ a) /\
  length (sessions _ _ b) = length (sessions _ _ a) /\ homes _ _ b = homes _ _ a.

Lemma close_keeps (st : state) : lanes _ _ st <> [] -> same_shape st (close_wave _ _ cfg st).
Proof.
  intros H. unfold close_wave, close_with.
  set (st1 := set_lanes _ _ _ _).
  assert (H1 : lanes _ _ st1 <> []).
  { unfold st1; cbn. destruct (lanes _ _ st); cbn; congruence. }
  assert (M1 := apply_all_moved _ _ cfg (effects_from 0 (lanes _ _ st)) st1 H1).
  set (st2 := apply_all _ _ cfg _ st1) in *.
  assert (H2 := moved_nonempty _ _ _ _ _ _ M1 H1).
  assert (M2 := settle_moved _ _ cfg (channels_of _ _ (sessions _ _ st2)) st2 H2).
  set (st3 := fold_left _ _ _) in *.
  assert (L1 := moved_length _ _ _ _ _ _ M1). assert (L2 := moved_length _ _ _ _ _ _ M2).
  destruct M1 as [_ _ _ (A1 & A2 & _)]. destruct M2 as [_ _ _ (B1 & B2 & _)].
  unfold same_shape; cbn. rewrite map_length, L2, L1, B1, A1, B2, A2.
  unfold st1; cbn. rewrite map_length. auto.
Qed.

Lemma tick_keeps (st : state) : lanes _ _ st <> [] ->
  same_shape st (snd (tick _ _ slice choose cfg st)).
Proof.
  intros H. unfold tick. destruct (phase _ _ st).
  - unfold same_shape; cbn. rewrite map_length. auto.
  - destruct (forallb _ _); [unfold same_shape; cbn; auto|].
    destruct (_ && _); [unfold same_shape; cbn; rewrite map_length; auto|].
    destruct (_ && _); [unfold same_shape; cbn; auto|].
    unfold next_frame. destruct (_ <=? _)%N; unfold same_shape; cbn; rewrite ?map_length; auto.
  - destruct (_ <? _).
    + unfold step.
      destruct (step_keeps mem co slice choose cfg (lives_on (homes _ _ st) turn) turn st)
        as (K1 & K2 & K3).
      destruct (step_seeing _ _ _ _ _ _ _ _) as [b st']. cbn in *.
      destruct b; unfold same_shape; cbn; auto.
    + apply close_keeps. auto.
  - unfold same_shape; cbn; auto.
Qed.

Lemma run_keeps n : forall st : state, lanes _ _ st <> [] ->
  same_shape st (run _ _ slice choose cfg n st).
Proof.
  induction n as [|n IH]; intros st H; cbn; [unfold same_shape; auto|].
  assert (T := tick_keeps st H).
  assert (H' : lanes _ _ (snd (tick _ _ slice choose cfg st)) <> []).
  { intros E. destruct T as [T _]. rewrite E in T. destruct (lanes _ _ st);
      [congruence|discriminate]. }
  specialize (IH _ H'). destruct T as (T1 & T2 & T3), IH as (I1 & I2 & I3).
  unfold same_shape. rewrite I1, I2, I3. auto.
Qed.

Lemma describe_evolves (a b : state) : same_shape a b -> evolves (describe a) (describe b).
Proof.
  intros (S1 & S2 & S3) g' Hg. unfold describe in *. rewrite S1, S2, S3 in Hg.
  apply in_map_iff in Hg. destruct Hg as (g & <- & Hg).
  eexists. split; [apply in_map; exact Hg|]. split; [reflexivity|]. left. auto.
Qed.

(* The driver of Waves.v with the planner in place of the test [covers]: certificates are
   the planner's, for the state as it is, with whatever it remembers as sent. *)
Inductive planned_round : state * checker -> state * checker -> Prop :=
| planned_boundary st k : in_wave _ _ st = false ->
    planned_round (st, k) (snd (tick _ _ slice choose cfg st), k)
| planned_accepted st k w s sent f k' sched : phase _ _ st = InWave 0 ->
    let t := plan w s sent (describe st) in
    let r := parallel_wave mem co slice choose cfg (granted_view k' t (homes _ _ st))
               (map m_lanes (t_claims t)) sched st in
    check t f k = (k', None) -> complete _ r ->
    planned_round (st, k) (end_wave mem co cfg (snd r), k')
| planned_refused st k w s sent f k' e :
    check (plan w s sent (describe st)) f k = (k', Some e) ->
    planned_round (st, k) (st, k')
| planned_step st k turn : phase _ _ st = InWave turn ->
    planned_round (st, k) (snd (tick _ _ slice choose cfg st), k).

Inductive planned_run (st0 : state) (k0 : checker) : state -> checker -> Prop :=
| planned_run_start : planned_run st0 k0 st0 k0
| planned_run_round st k st' k' : planned_run st0 k0 st k ->
    planned_round (st, k) (st', k') -> planned_run st0 k0 st' k'.

(* Every state of a planned run is a canonical state. Its waves run as the accepted
   certificates say, each worker sees what the checker granted, and there is no premise
   about either. *)
Theorem planned_run_is_canonical nl ns (st0 st : state) k : lanes _ _ st0 <> [] ->
  planned_run st0 (new_checker nl ns) st k ->
  (exists n, run _ _ slice choose cfg n st0 = st) /\ planned nl ns k (describe st).
Proof.
  intros H0 H. induction H as [|st k st' k' _ [[n Hn] Hp] Hr].
  - split; [exists 0; auto|constructor].
  - assert (Hne : lanes _ _ st <> []).
    { intros E. destruct (run_keeps n st0 H0) as [L _]. rewrite Hn, E in L.
      destruct (lanes _ _ st0); [congruence|discriminate]. }
    assert (G : exists m, run _ _ slice choose cfg m st = st').
    { inversion Hr; subst.
      - exists 1. auto.
      - match goal with
        | P : phase _ _ _ = InWave 0, E : check _ _ _ = _, K : complete _ _ |- _ =>
            exact (planned_wave_is_canonical nl ns _ _ _ _ _ _ _ _ _ P Hp
                     (proj2 (the_state_describes_itself _))
                     (proj1 (the_state_describes_itself _)) E K)
        end.
      - exists 0. auto.
      - exists 1. auto. }
    destruct G as [m Hm]. split.
    + exists (n + m). rewrite run_app, Hn. auto.
    + apply (planned_moves _ _ _ (describe st)).
      2:{ apply describe_evolves. rewrite <- Hm. apply run_keeps. auto. }
      assert (Hd := proj2 (the_state_describes_itself st)).
      inversion Hr; subst; auto.
      * assert (X := planned_check nl ns k _ w s sent f Hp Hd).
        match goal with E : check _ _ _ = (_, None) |- _ =>
          exact (eq_ind _ (fun y => planned nl ns (fst y) _) X _ E) end.
      * assert (X := planned_check nl ns k _ w s sent f Hp Hd).
        match goal with R : run _ _ _ _ _ _ _ = _ |- _ => rewrite <- R in * end.
        match goal with E : check _ _ _ = (_, Some _) |- _ => rewrite E in X end. exact X.
Qed.

End Plan.
