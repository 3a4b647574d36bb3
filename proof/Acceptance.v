(* What acceptance gives.

   The checker compares a certificate with what the machine states about itself: the group of
   each lane, the sessions of each group, the version of a group's sessions, its ready digest
   and whether it has work ([facts_of] computes all but the versions and the digests from a
   state of Machine.v). Sets of sessions are compared when they are sent, and known by their
   version afterwards. [checked] is a checker that has seen any certificates, accepted or
   refused, while sessions moved, if a version rises with each change of a group's sessions.

   An accepted certificate then covers the state ([accepted_covers]): every session on a
   claimed lane was granted to its claim, and a lane that is not claimed has no work. So any
   interleaving of the claimed groups on any number of workers is canonical
   ([certified_wave_is_canonical], [certified_run_is_canonical]), whoever wrote the
   certificates. There is no premise about grants, groups or planners. *)

From Coq Require Import List Arith NArith Lia Bool.
From Wavelock Require Import Interleave Groups Certificate Machine Invariants Waves.
Import ListNotations.

(* ---- What a machine states ---- *)

(* By lane, the first lane of its group; by session, that of its group; by lane, the version
   of the sessions of the group that begins there. *)
Record layout := Layout {
  y_groups : list nat;
  y_owners : list nat;
  y_versions : list N }.

(* The sessions of a group. *)
Definition members (y : layout) (g : nat) : list nat :=
  filter (fun i => match nth_error (y_owners y) i with Some h => Nat.eqb h g | None => false end)
    (seq 0 (length (y_owners y))).

Definition states (f : facts) (y : layout) : Prop :=
  a_sessions f = y_owners y /\
  forall l a, nth_error (a_lanes f) l = Some a ->
    nth_error (y_groups y) l = Some (f_group a) /\
    nth_error (y_versions y) l = Some (f_version a) /\
    f_sessions a = length (members y (f_group a)).

(* Sessions move: a group keeps its sessions, or its version rises. *)
Definition evolves (y y' : layout) : Prop :=
  forall g w', nth_error (y_versions y') g = Some w' ->
    exists w, nth_error (y_versions y) g = Some w /\
      ((w = w' /\ forall s, In s (members y g) <-> In s (members y' g)) \/ (w < w')%N).

Lemma members_spec y g s : In s (members y g) <-> nth_error (y_owners y) s = Some g.
Proof.
  unfold members. rewrite filter_In, in_seq. split.
  - intros [_ H]. destruct (nth_error (y_owners y) s) as [h|]; [|discriminate].
    apply Nat.eqb_eq in H. congruence.
  - intros H. rewrite H, Nat.eqb_refl. split; auto. split; [lia|]. simpl.
    apply nth_error_Some. congruence.
Qed.

(* What was accepted under the machine's version is what the machine has. *)
Definition honest (k : checker) (y : layout) : Prop :=
  forall g v x w, accepted_at k g = Some (v, x) -> nth_error (y_versions y) g = Some w ->
    (v <= w)%N /\ (v = w -> forall s, In s (x_sessions x) <-> In s (members y g)).

Lemma changed_claim ms g : In g (changed_groups ms) ->
  exists m x, In m ms /\ m_sets m = Some x /\ first_lane m = g.
Proof.
  unfold changed_groups. intros H. apply in_map_iff in H. destruct H as (m & Hm & H).
  apply filter_In in H. destruct H as [H Hs]. destruct (m_sets m) as [x|] eqn:E; [|discriminate].
  eauto.
Qed.

Lemma accepted_is_honest t f k k' y :
  invariant k -> states f y -> honest k y -> check t f k = (k', None) -> honest k' y.
Proof.
  intros I [Ss Sl] Hh H g v x w Ha Hw.
  destruct (in_dec Nat.eq_dec g (changed_groups (t_claims t))) as [Hin|Hout].
  - destruct (changed_claim _ _ Hin) as (m & x0 & Hm & Hx & Hg).
    assert (A := check_sound _ _ _ _ I H). destruct A as [_ _ AN _ AC _ _ _ _ AG _].
    destruct (AC m Hm) as ((x1 & G1 & G2 & _) & C2 & _ & _ & _ & C6).
    specialize (G2 x0 Hx). subst x1. destruct (C6 x0 Hx) as [O1 O2]. rewrite Hg in *.
    unfold granted in G1. rewrite Hg in G1. rewrite G1 in Ha. injection Ha as <- <-.
    assert (Hl : In g (m_lanes m)) by (rewrite <- Hg; apply first_lane_in; auto).
    destruct (C2 g Hl) as (a & Hla & Hv). destruct (Sl g a Hla) as (L1 & L2 & L3).
    rewrite L2 in Hw. injection Hw as <-. split; [lia|]. intros _ s.
    assert (Hga := AG m g a Hm Hl Hla). rewrite Hg in Hga. rewrite <- Hga in L3.
    assert (Hincl : incl (x_sessions x0) (members y g)).
    { intros i Hi. apply members_spec. rewrite <- Ss. auto. }
    split; [apply Hincl|].
    assert (I' : invariant k').
    { assert (X := check_invariant t f k I). rewrite H in X. exact X. }
    destruct I' as (_ & _ & Ka & _). destruct (Ka g _ _ G1) as (ND & _).
    apply (NoDup_length_incl ND); auto.
    specialize (O2 a Hla). lia.
  - rewrite (accepted_check_keeps_others _ _ _ _ _ H Hout) in Ha. eauto.
Qed.

Theorem check_keeps_honesty t f k y :
  invariant k -> states f y -> honest k y -> honest (fst (check t f k)) y.
Proof.
  intros I S Hh. destruct (check t f k) as [k' [r|]] eqn:E; cbn [fst].
  - intros g v x w Ha Hw. rewrite (refused_check_keeps_sets _ _ _ _ _ I E) in Ha. eauto.
  - eapply accepted_is_honest; eauto.
Qed.

Theorem moves_keep_honesty k y y' : evolves y y' -> honest k y -> honest k y'.
Proof.
  intros He Hh g v x w' Ha Hw. destruct (He g w' Hw) as (w & Hw0 & [[-> Hm]|Hlt]).
  - destruct (Hh g v x w' Ha Hw0) as [H1 H2]. split; auto.
    intros Hv s. rewrite <- Hm. auto.
  - destruct (Hh g v x w Ha Hw0) as [H1 _]. split; [lia|]. intros ->. lia.
Qed.

(* The number of lanes of a checker never changes. *)
Lemma restore_length before : forall k,
  length (k_accepted (fold_left restore before k)) = length (k_accepted k).
Proof.
  induction before as [|b before IH]; intros k; cbn [fold_left]; auto. rewrite IH.
  unfold restore. destruct (snd b) as [[v x]|]; auto.
  destruct (hold (fst b) v x k) as [k1 e] eqn:E. cbn [fst].
  destruct (hold_facts _ _ _ _ _ _ E) as (_ & _ & L & _). auto.
Qed.

Lemma release_all_accepted gs : forall k,
  length (k_accepted (release_all gs k)) = length (k_accepted k).
Proof.
  induction gs as [|g gs IH]; intros k; [reflexivity|].
  change (release_all (g :: gs) k) with (release_all gs (release g k)).
  rewrite IH. apply release_marks.
Qed.

Lemma check_length t f k : length (k_accepted (fst (check t f k))) = length (k_accepted k).
Proof.
  unfold check.
  destruct (N.eqb (t_wave t) (a_wave f)); cbn [negb]; [|reflexivity].
  destruct (span_eqb (t_span t) (a_span f)); cbn [negb]; [|reflexivity].
  destruct (mark_claims _ _ _ _) as [marks|]; [|reflexivity].
  destruct (check_groups _ _ _ _ _); [reflexivity|].
  destruct (check_claims _ _ _ _) as [k2 e2] eqn:Ec.
  destruct (check_claims_others _ _ _ _ _ _ Ec) as (_ & L & _).
  rewrite release_all_accepted in L.
  destruct e2; cbn [fst]; [|exact L].
  rewrite restore_length, release_all_accepted. exact L.
Qed.

(* A checker from its start: any certificates, each with what the machine stated then. *)
Inductive checked (lanes sessions : nat) : checker -> layout -> Prop :=
| checked_start y : checked lanes sessions (new_checker lanes sessions) y
| checked_check k y t f : checked lanes sessions k y -> states f y ->
    checked lanes sessions (fst (check t f k)) y
| checked_admit k y n : checked lanes sessions k y -> checked lanes sessions (admit n k) y
| checked_moves k y y' : checked lanes sessions k y -> evolves y y' ->
    checked lanes sessions k y'.

Theorem checked_checker_is_honest lanes sessions k y :
  checked lanes sessions k y -> invariant k /\ honest k y /\ length (k_accepted k) = lanes.
Proof.
  induction 1 as [y|k y t f _ (I & Hh & L) S|k y n _ (I & Hh & L)|k y y' _ (I & Hh & L) He].
  - split; [apply new_checker_invariant|]. split.
    + intros g v x w H. unfold accepted_at, new_checker in H; simpl in H.
      destruct (nth_error (repeat None lanes) g) eqn:E; [|discriminate].
      apply nth_repeat in E. congruence.
    + apply repeat_length.
  - split; [apply check_invariant; auto|]. split; [apply check_keeps_honesty; auto|].
    rewrite check_length. auto.
  - split; [apply admit_invariant; auto|]. split; auto.
  - split; auto. split; auto. eapply moves_keep_honesty; eauto.
Qed.

(* What an accepted certificate grants is exactly what the machine has: the sessions of the
   claimed group, all of them. *)
Theorem accepted_grants_are_the_machine's lanes sessions t f k k' y :
  checked lanes sessions k y -> states f y -> check t f k = (k', None) ->
  forall m, In m (t_claims t) -> exists v x, granted k' m = Some (v, x) /\
    forall s, In s (x_sessions x) <-> nth_error (y_owners y) s = Some (first_lane m).
Proof.
  intros Hk S H m Hm. destruct (checked_checker_is_honest _ _ _ _ Hk) as (I & Hh & _).
  assert (Hh' := accepted_is_honest _ _ _ _ _ I S Hh H).
  assert (A := check_sound _ _ _ _ I H). destruct A as [_ _ AN _ AC _ _ _ _ _ _].
  destruct (AC m Hm) as ((x & G & _) & C2 & _).
  exists (m_version m), x. split; auto.
  destruct (C2 (first_lane m)) as (a & Ha & Hv); [apply first_lane_in; auto|].
  destruct S as [Ss Sl]. destruct (Sl _ a Ha) as (_ & L2 & _).
  destruct (Hh' _ _ _ _ G L2) as [_ E]. intros s. rewrite E; auto. apply members_spec.
Qed.

Section Acceptance.

Variables mem co : Type.
Notation state := (state mem co).

Variable slice : mem -> co -> option answer -> N -> slice_result mem co.
Variable choose : list cid -> nat.
Variable cfg : settings.

(* ---- What a state of the model states ---- *)

Definition group_has_work (st : state) (g : nat) : bool :=
  existsb (fun l => Nat.eqb (group_of (length (lanes _ _ st)) (homes _ _ st) l) g &&
                    match nth_error (lanes _ _ st) l with Some x => has_work x | None => false end)
    (seq 0 (length (lanes _ _ st))).

(* [vs], [ds]: versions of the groups' sessions and ready digests, by lane. *)
Definition layout_of (vs : nat -> N) (st : state) : layout :=
  let nl := length (lanes _ _ st) in
  Layout (map (group_of nl (homes _ _ st)) (seq 0 nl))
    (map (fun i => owner_of nl (homes _ _ st) (nth i (homes _ _ st) []))
       (seq 0 (length (sessions _ _ st))))
    (map vs (seq 0 nl)).

Definition facts_of (vs ds : nat -> N) (s : span) (st : state) : facts :=
  let nl := length (lanes _ _ st) in
  {| a_wave := wave _ _ st; a_span := s;
     a_lanes := map (fun l =>
       let g := group_of nl (homes _ _ st) l in
       {| f_digest := ds l; f_version := vs l; f_group := g;
          f_sessions := length (members (layout_of vs st) g);
          f_work := group_has_work st g |}) (seq 0 nl);
     a_sessions := y_owners (layout_of vs st) |}.

Theorem a_state_states_its_layout vs ds s st : states (facts_of vs ds s st) (layout_of vs st).
Proof.
  split; [reflexivity|]. intros l a H. apply nth_map_seq in H. destruct H as [Hl ->]. cbn.
  split; [apply nth_map_seq; auto|]. split; [apply nth_map_seq; auto|]. reflexivity.
Qed.

(* An accepted certificate covers the state, whoever wrote it. *)
Theorem accepted_covers ns vs ds s t k k' (st : state) :
  checked (length (lanes _ _ st)) ns k (layout_of vs st) ->
  check t (facts_of vs ds s st) k = (k', None) ->
  covers mem co k' t st = true.
Proof.
  intros Hk H. set (nl := length (lanes _ _ st)) in *. set (h := homes _ _ st).
  assert (S := a_state_states_its_layout vs ds s st).
  assert (Gr := accepted_grants_are_the_machine's _ _ _ _ _ _ _ Hk S H).
  destruct (checked_checker_is_honest _ _ _ _ Hk) as (I & _ & L).
  assert (A := check_sound _ _ _ _ I H). destruct A as [_ _ AN _ AC _ _ _ _ AG AR].
  assert (L' : length (k_accepted k') = nl).
  { assert (X := check_length t (facts_of vs ds s st) k). rewrite H in X. cbn [fst] in X. lia. }
  unfold covers. apply andb_true_intro. split; apply forallb_forall.
  - intros m Hm. apply forallb_forall. intros l Hl. apply forallb_forall. intros i Hi.
    apply in_seq in Hi. destruct (lives_on (homes _ _ st) l i) eqn:E; cbn; auto.
    apply has_spec. unfold granted_sessions.
    destruct (Gr m Hm) as (v & x & -> & Hx). apply Hx.
    destruct (AC m Hm) as (_ & C2 & _). destruct (C2 l Hl) as (a & Ha & _).
    assert (Hg := AG m l a Hm Hl Ha). apply nth_map_seq in Ha. destruct Ha as [Hlt ->].
    cbn in Hg. fold nl h in Hg, Hlt. rewrite Hg.
    apply nth_map_seq. split; [lia|]. symmetry. apply owner_of_lane; auto.
    apply lives_on_in. exact E.
  - intros l Hl. apply in_seq in Hl. fold nl in Hl.
    destruct (existsb (fun m => lane_in (m_lanes m) l) (t_claims t)) eqn:Ec; cbn; auto.
    destruct (nth_error (lanes _ _ st) l) as [x|] eqn:Ex; auto.
    set (a := {| f_digest := ds l; f_version := vs l; f_group := group_of nl h l;
                 f_sessions := length (members (layout_of vs st) (group_of nl h l));
                 f_work := group_has_work st (group_of nl h l) |}).
    assert (Ha : nth_error (a_lanes (facts_of vs ds s st)) l = Some a).
    { apply nth_map_seq. split; [fold nl; lia|reflexivity]. }
    destruct (AR l a) as [Hw _]; auto; [lia| |].
    + intros Hin. apply in_flat_map in Hin. destruct Hin as (m & Hm & Hlm).
      assert (X : existsb (fun m => lane_in (m_lanes m) l) (t_claims t) = true); [|congruence].
      apply existsb_exists. exists m. split; auto. apply lane_in_spec. auto.
    + unfold idle_lane. apply orb_true_intro. right.
      destruct (has_work x) eqn:E; auto. exfalso. cbn in Hw.
      assert (X : group_has_work st (group_of nl h l) = true); [|congruence].
      apply existsb_exists. exists l. split; [apply in_seq; fold nl; lia|].
      fold nl h. rewrite Nat.eqb_refl, Ex. auto.
Qed.

(* An accepted certificate, any number of workers, any interleaving: the canonical state. *)
Theorem certified_wave_is_canonical ns vs ds s t k k' sched (st : state) :
  phase _ _ st = InWave 0 ->
  checked (length (lanes _ _ st)) ns k (layout_of vs st) ->
  check t (facts_of vs ds s st) k = (k', None) ->
  let r := parallel_wave mem co slice choose cfg (granted_view k' t (homes _ _ st))
             (map m_lanes (t_claims t)) sched st in
  complete _ r ->
  exists j, run _ _ slice choose cfg j st = end_wave mem co cfg (snd r).
Proof.
  intros Hp Hk H r Hc. destruct (checked_checker_is_honest _ _ _ _ Hk) as (I & _).
  apply (covered_wave_is_canonical mem co slice choose cfg k k' t (facts_of vs ds s st) sched st);
    auto.
  eapply accepted_covers; eauto.
Qed.

(* ---- A whole run ---- *)

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

Lemma layout_of_shape vs (a b : state) : same_shape a b -> layout_of vs b = layout_of vs a.
Proof. intros (S1 & S2 & S3). unfold layout_of. rewrite S1, S2, S3. auto. Qed.

(* Rounds of a driver that gets certificates from anywhere: it runs the claimed groups of an
   accepted one on its workers, each with what was granted to its claim, and single steps
   otherwise. [vs] are the versions, constant because no session moves in this model. *)
Inductive certified_round (vs : nat -> N) : state * checker -> state * checker -> Prop :=
| certified_boundary st k : in_wave _ _ st = false ->
    certified_round vs (st, k) (snd (tick _ _ slice choose cfg st), k)
| certified_accepted st k t ds s k' sched : phase _ _ st = InWave 0 ->
    let r := parallel_wave mem co slice choose cfg (granted_view k' t (homes _ _ st))
               (map m_lanes (t_claims t)) sched st in
    check t (facts_of vs ds s st) k = (k', None) -> complete _ r ->
    certified_round vs (st, k) (end_wave mem co cfg (snd r), k')
| certified_refused st k t ds s k' e :
    check t (facts_of vs ds s st) k = (k', Some e) -> certified_round vs (st, k) (st, k')
| certified_step st k turn : phase _ _ st = InWave turn ->
    certified_round vs (st, k) (snd (tick _ _ slice choose cfg st), k).

Inductive certified_run (vs : nat -> N) (st0 : state) (k0 : checker) : state -> checker -> Prop :=
| certified_run_start : certified_run vs st0 k0 st0 k0
| certified_run_round st k st' k' : certified_run vs st0 k0 st k ->
    certified_round vs (st, k) (st', k') -> certified_run vs st0 k0 st' k'.

(* Every state of such a run is a canonical state. *)
Theorem certified_run_is_canonical vs ns (st0 st : state) k : lanes _ _ st0 <> [] ->
  certified_run vs st0 (new_checker (length (lanes _ _ st0)) ns) st k ->
  (exists n, run _ _ slice choose cfg n st0 = st) /\
  checked (length (lanes _ _ st)) ns k (layout_of vs st).
Proof.
  intros H0 H. induction H as [|st k st' k' _ [[n Hn] Hp] Hr].
  - split; [exists 0; auto|constructor].
  - assert (Hne : lanes _ _ st <> []).
    { intros E. destruct (run_keeps n st0 H0) as [L _]. rewrite Hn, E in L.
      destruct (lanes _ _ st0); [congruence|discriminate]. }
    assert (G : exists m, run _ _ slice choose cfg m st = st').
    { inversion Hr; subst.
      - exists 1. auto.
      - eapply certified_wave_is_canonical; eauto.
      - exists 0. auto.
      - exists 1. auto. }
    destruct G as [m Hm]. split.
    + exists (n + m). rewrite run_app, Hn. auto.
    + assert (Sh : same_shape st st') by (rewrite <- Hm; apply run_keeps; auto).
      rewrite (layout_of_shape vs st st' Sh). destruct Sh as (-> & _ & _).
      assert (X : forall t ds s, checked (length (lanes _ _ st)) ns
                    (fst (check t (facts_of vs ds s st) k)) (layout_of vs st)).
      { intros t ds s. apply checked_check; auto. apply a_state_states_its_layout. }
      clear - Hr Hp X. inversion Hr; subst; auto.
      * match goal with E : check _ _ _ = (_, None) |- _ =>
          specialize (X t ds s); rewrite E in X; exact X end.
      * match goal with E : check _ _ _ = (_, Some _) |- _ =>
          specialize (X t ds s); rewrite E in X; exact X end.
Qed.

End Acceptance.
