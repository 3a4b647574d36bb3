(* The executable machine of System.v, the one that is extracted and compared with the shipped
   code: its waves on any number of workers.

   Its transitions are [System.tick]; [System.round] is a canonical round. A step of a lane is given
   the lane and the sessions of its group and nothing else ([System.act_on]). So the theorems of
   Waves.v and Acceptance.v hold for it too, with sessions that move between waves: groups are
   constants of a machine, homes and versions change with a move.

   Rule numbers are those of docs/spec/semantics.md. *)

From Coq Require Import ZArith List Arith NArith Lia Bool.
From Wavelock Require Import Interleave Groups Certificate Acceptance.
From Wavelock Require Waves Lane Lanes System Changes.
Import ListNotations.
Local Open Scope nat_scope.

Notation world := System.world.
Notation tick := System.tick.
Notation run := System.run.
Notation lanes := System.w_lanes.
Notation sessions := System.w_sessions.
Notation out := System.w_out.
Notation phase := System.w_phase.
Notation step_seeing := System.step_seeing.

(* ---- A wave as moves of lanes ---- *)

Definition open (l : System.lane_state) : bool := System.l_open l.
Definition idle (l : System.lane_state) : bool := negb (System.l_open l).

Lemma parts (a b : world) :
  lanes a = lanes b -> sessions a = sessions b -> out a = out b -> a = b.
Proof. destruct a, b. cbn. intros -> -> ->. auto. Qed.

Notation generic f :=
  (f world System.lane_state System.session System.outside lanes sessions out System.put).
Notation iter vis := (iter world (fun l => step_seeing (vis l) l)).
Notation exec vis := (exec world (fun l => step_seeing (vis l) l)).
Notation complete := (complete world).

(* A step writes its lane and the sessions it sees, and depends on nothing else but what is
   constant in a wave. *)
Theorem step_local vis me :
  local _ _ _ _ (get _ _ _ lanes sessions) (shape _ _ _ _ lanes sessions out) (foot vis me)
    (step_seeing vis me).
Proof.
  exact (generic Groups.step_local (fun _ _ _ => eq_refl) (fun _ _ _ => eq_refl)
           (fun _ _ _ => eq_refl) System.act_on vis me).
Qed.

Lemma idle_act r n me l v : me < n -> idle l = true ->
  fst (System.act_on r n me l v) = false /\ fst (snd (System.act_on r n me l v)) = l /\
  forall i s, nth_error v i = Some (Some s) ->
    nth_error (snd (snd (System.act_on r n me l v))) i = Some (Some s).
Proof.
  intros Hn Hi. unfold System.act_on. cbv zeta.
  match goal with |- context [System.run_step _ ?x] => set (w := x) end.
  assert (Hl : System.at_lane w (Z.of_nat me) = l).
  { unfold System.at_lane, w. cbn [System.w_lanes]. rewrite Nat2Z.id, Changes.nth_set_nth,
      repeat_length,
      Nat.eqb_refl. destruct (Nat.ltb_spec me n); [auto|lia]. }
  unfold System.run_step. rewrite Hl. unfold idle in Hi. apply negb_true_iff in Hi. rewrite Hi.
  cbn [fst snd]. rewrite Hl. split; auto. split; auto.
  intros i s H. cbn [w System.w_sessions]. rewrite map_map, nth_error_map, H. auto.
Qed.

Lemma step_shape vis me (w : world) :
  length (lanes (snd (step_seeing vis me w))) = length (lanes w) /\
  length (sessions (snd (step_seeing vis me w))) = length (sessions w) /\
  out (snd (step_seeing vis me w)) = out w.
Proof.
  destruct (step_local vis me) as [[H _] _]. specialize (H w). unfold shape in H.
  injection H as H1 H2 H3. auto.
Qed.

Lemma step_phase vis me p (w : world) :
  step_seeing vis me (System.with_phase p w)
  = (fst (step_seeing vis me w), System.with_phase p (snd (step_seeing vis me w))).
Proof.
  unfold System.step_seeing, Groups.step_seeing. cbn [System.with_phase System.on_out lanes
      sessions out].
  destruct (nth_error (lanes w) me) as [l|]; auto.
  match goal with |- context [System.act_on ?o] => change (System.act_on o) with (System.act_on
      (out w)) end.
  destruct (System.act_on _ _ _ _ _) as [b [l' v']]. auto.
Qed.

(* ---- The canonical run of a wave ---- *)

(* What a step of each lane sees: the sessions of its group. *)
Definition sees (w : world) : nat -> nat -> bool := System.sees (out w).

Lemma run_app m n (w : world) : run (m + n) w = run n (run m w).
Proof. revert w. induction m; intros w; cbn; auto. Qed.

Lemma run_snoc n (w : world) : run (S n) w = snd (tick (run n w)).
Proof. replace (S n) with (n + 1) by lia. rewrite run_app. auto. Qed.

Lemma with_phase_out p (w c : world) : out c = out w ->
  System.with_phase p c = System.put (lanes c) (sessions c) (System.with_phase p w).
Proof. intros H. unfold System.with_phase, System.on_out, System.put. cbn. rewrite H. auto. Qed.

Lemma same_phase p (w : world) : phase w = p -> System.with_phase p w = w.
Proof. destruct w as [l s o]. destruct o. unfold phase. cbn. intros <-. auto. Qed.

(* The transitions of the machine in a wave are the moves of all lanes in order. *)
Lemma ticks_are_moves n (w : world) : phase w = System.InWave 0 ->
  let nl := length (lanes w) in
  let r := iter (sees w) n (seq 0 nl, w) in
  exists m j, m <= nl /\ fst r = seq m (nl - m) /\
    out (snd r) = out w /\ length (lanes (snd r)) = nl /\
    run j w = System.with_phase (System.InWave m) (snd r).
Proof.
  intros Hp nl. cbn zeta. induction n as [|n (m & j & Hm & Hf & Ho & Hl & Hr)].
  - exists 0, 0. cbn [Interleave.iter fst snd]. rewrite Nat.sub_0_r.
    rewrite (same_phase _ w Hp). repeat (split; auto); try lia.
  - cbn [Interleave.iter].
    destruct (iter (sees w) n (seq 0 nl, w)) as [t c] eqn:Er.
    cbn [fst snd] in *. unfold move. cbn [fst snd].
    destruct (nl - m) as [|k] eqn:Ek; cbn [seq] in Hf; subst t.
    + exists m, j. rewrite Ek. cbn. auto.
    + assert (Hmlt : m < nl) by lia.
      destruct (step_shape (sees w m) m c) as (K1 & K2 & K3).
      assert (Htick : run (S j) w =
        System.with_phase (System.InWave (if fst (step_seeing (sees w m) m c) then m else S m))
          (snd (step_seeing (sees w m) m c))).
      { rewrite run_snoc, Hr. unfold System.tick.
        replace (phase (System.with_phase (System.InWave m) c)) with (System.InWave m) by
            reflexivity.
        replace (lanes (System.with_phase (System.InWave m) c)) with (lanes c) by reflexivity.
        rewrite Hl. destruct (Nat.ltb_spec m nl); [|lia].
        unfold System.step.
        replace (System.sees (out (System.with_phase (System.InWave m) c)) m) with (sees w m)
          by (unfold sees; rewrite <- Ho; reflexivity).
        rewrite step_phase. destruct (step_seeing (sees w m) m c) as [b c']. cbn [fst snd].
        destruct b; auto. }
      destruct (step_seeing (sees w m) m c) as [b c'] eqn:Es. cbn [fst snd] in *.
      destruct b; cbn [fst snd].
      * exists m, (S j). rewrite Ek. cbn [seq]. repeat (split; auto); try lia; congruence.
      * exists (S m), (S j). replace (nl - S m) with k by lia.
        repeat (split; auto); try lia; congruence.
Qed.

(* The driver's end of a wave: no lane is left to run, then the wave closes. *)
Definition end_wave (w : world) : world :=
  System.close_wave (System.with_phase (System.InWave (length (lanes w))) w).

Lemma wave_ends n (w c : world) : phase w = System.InWave 0 ->
  iter (sees w) n (seq 0 (length (lanes w)), w) = ([], c) -> exists j, run j w = end_wave c.
Proof.
  intros Hp H. destruct (ticks_are_moves n w Hp) as (m & j & Hm & Hf & Ho & Hl & Hr).
  rewrite H in *. cbn [fst snd] in *.
  assert (Hml : m = length (lanes w)).
  { destruct (length (lanes w) - m) eqn:E; [lia|discriminate]. }
  exists (S j). rewrite run_snoc, Hr. unfold System.tick.
  replace (phase (System.with_phase (System.InWave m) c)) with (System.InWave m) by reflexivity.
  replace (lanes (System.with_phase (System.InWave m) c)) with (lanes c) by reflexivity.
  rewrite Hl. destruct (Nat.ltb_spec m (length (lanes w))); [lia|].
  unfold end_wave. rewrite Hl, Hml. reflexivity.
Qed.

(* Groups of lanes, run by any workers in any interleaving. *)
Definition parallel_wave : (nat -> nat -> bool) -> list (list nat) -> list nat -> world ->
  list (list nat) * world := generic Groups.parallel_wave System.act_on.

Theorem groups_are_canonical vis gs sched (w : world) :
  phase w = System.InWave 0 ->
  (forall g l i, In g gs -> In l g -> i < length (sessions w) -> vis l i = sees w l i) ->
  (forall a b ga gb, nth_error gs a = Some ga -> nth_error gs b = Some gb -> a <> b ->
     forall p, group_foot vis ga p = true -> group_foot vis gb p = true -> False) ->
  (forall l x, nth_error (lanes w) l = Some x -> (forall g, In g gs -> ~ In l g) ->
     idle x = true) ->
  complete (parallel_wave vis gs sched w) ->
  exists j, run j w = end_wave (snd (parallel_wave vis gs sched w)).
Proof.
  intros Hp Hvis Hdis Hidle Hc.
  destruct (generic Groups.groups_are_canonical (fun _ _ _ => eq_refl) (fun _ _ _ => eq_refl)
              (fun _ _ _ => eq_refl) parts System.act_on idle idle_act (sees w) vis gs sched
              w Hvis Hdis Hidle Hc) as [n Hn].
  apply (wave_ends n); auto.
Qed.

(* ---- The groups that the state itself holds ---- *)

(* By first lane; a lane is in the group that [o_groups] names. *)
Definition own_groups (w : world) : list (list nat) :=
  map (fun g => filter (fun l => Nat.eqb (System.group_at (out w) l) g)
                  (seq 0 (length (lanes w))))
    (nodup Nat.eq_dec (map (System.group_at (out w)) (seq 0 (length (lanes w))))).

Lemma own_groups_spec w g : In g (own_groups w) ->
  exists f, forall l, In l g <-> l < length (lanes w) /\ System.group_at (out w) l = f.
Proof.
  unfold own_groups. rewrite in_map_iff. intros (f & <- & _). exists f. intros l.
  rewrite filter_In, in_seq, Nat.eqb_eq. split; intros [H1 H2]; split; auto; lia.
Qed.

(* Every complete interleaving of the state's own groups ends in the canonical state, logs
   included. There is no premise but that the wave is open. *)
Theorem own_groups_are_canonical sched (w : world) : phase w = System.InWave 0 ->
  complete (parallel_wave (sees w) (own_groups w) sched w) ->
  exists j, run j w = end_wave (snd (parallel_wave (sees w) (own_groups w) sched w)).
Proof.
  intros Hp Hc. apply groups_are_canonical; auto.
  - intros a b ga gb Ha Hb Hne p Hpa Hpb. apply Hne.
    unfold own_groups in Ha, Hb. set (fs := nodup _ _) in *.
    assert (Hnd : NoDup fs) by apply NoDup_nodup. rewrite NoDup_nth_error in Hnd.
    rewrite nth_error_map in Ha, Hb.
    destruct (nth_error fs a) as [fa|] eqn:Ea; [|discriminate].
    destruct (nth_error fs b) as [fb|] eqn:Eb; [|discriminate].
    cbn in Ha, Hb. injection Ha as <-. injection Hb as <-.
    apply Hnd; [apply nth_error_Some; congruence|]. rewrite Ea, Eb. f_equal.
    destruct p as [l|i]; cbn in Hpa, Hpb.
    + apply lane_in_spec in Hpa, Hpb. apply filter_In in Hpa, Hpb.
      destruct Hpa as [_ Hpa], Hpb as [_ Hpb]. apply Nat.eqb_eq in Hpa, Hpb. congruence.
    + apply existsb_exists in Hpa, Hpb. destruct Hpa as (l & Hl & Hli), Hpb as (m & Hm & Hmi).
      apply filter_In in Hl, Hm. destruct Hl as [_ Hl], Hm as [_ Hm].
      apply Nat.eqb_eq in Hl, Hm. unfold sees, System.sees in Hli, Hmi.
      apply Nat.eqb_eq in Hli, Hmi. congruence.
  - intros l x Hx Hnone. exfalso.
    assert (Hl : l < length (lanes w)) by (apply nth_error_Some; congruence).
    apply (Hnone (filter (fun k => Nat.eqb (System.group_at (out w) k) (System.group_at (out w) l))
                    (seq 0 (length (lanes w))))).
    + unfold own_groups.
      apply (in_map (fun g => filter (fun k => Nat.eqb (System.group_at (out w) k) g)
                                (seq 0 (length (lanes w))))).
      apply nodup_In. apply in_map. apply in_seq. lia.
    + apply filter_In. split; [apply in_seq; lia|apply Nat.eqb_refl].
Qed.

(* One worker that runs the groups one after the other. *)
Definition solo : (nat -> nat -> bool) -> nat -> list (list nat) * world -> list (list nat) * world
    :=
  generic Groups.solo System.act_on.

(* State for state and, since logs are part of the state, event for event, if the groups are
   consecutive lanes. *)
Theorem one_worker_state_for_state vis n ts c :
  (concat (fst (solo vis n (ts, c))), snd (solo vis n (ts, c))) = iter vis n (concat ts, c).
Proof. exact (generic Groups.one_worker_is_the_canonical_run System.act_on vis n ts c). Qed.

Theorem one_worker_is_canonical n (w : world) : phase w = System.InWave 0 ->
  let r := solo (sees w) n (map (fun l => [l]) (seq 0 (length (lanes w))), w) in
  exists turn j, concat (fst r) = seq turn (length (lanes w) - turn) /\
    run j w = System.with_phase (System.InWave turn) (snd r).
Proof.
  intros Hp r. destruct (ticks_are_moves n w Hp) as (m & j & _ & Hf & _ & _ & Hr).
  assert (H := one_worker_state_for_state (sees w) n (map (fun l => [l]) (seq 0 (length (lanes
      w)))) w).
  rewrite Waves.single_lanes in H. fold r in H. exists m, j. rewrite <- H in Hf, Hr. auto.
Qed.

Theorem one_worker_wave_is_canonical n (w : world) : phase w = System.InWave 0 ->
  let r := solo (sees w) n (map (todo (length (lanes w))) (own_groups w), w) in
  fst r = [] -> exists j, run j w = end_wave (snd r).
Proof.
  intros Hp r Hr.
  destruct (generic Groups.solo_is_a_schedule parts System.act_on (sees w) n
              (map (todo (length (lanes w))) (own_groups w)) w) as (sched & H1 & H2).
  fold solo in H1, H2. fold r in H1, H2. rewrite <- H1.
  apply (own_groups_are_canonical sched w Hp). apply H2. auto.
Qed.

(* Whatever queues the workers have and however their moves interleave. *)
Theorem any_workers_are_canonical queues events (w : world) : phase w = System.InWave 0 ->
  let c := snd (work _ (fun l => step_seeing (sees w l) l) events
                  (queues, (map (todo (length (lanes w))) (own_groups w), w))) in
  complete c -> exists j, run j w = end_wave (snd c).
Proof.
  intros Hp c Hc.
  destruct (workers_follow_a_schedule _ (fun l => step_seeing (sees w l) l) events
    (queues, (map (todo (length (lanes w))) (own_groups w), w))) as [sched Hs].
  fold c in Hs. cbn [snd] in Hs. rewrite Hs in Hc |- *.
  apply (own_groups_are_canonical sched w Hp). exact Hc.
Qed.

(* ---- Certificates ---- *)

Notation layout_of := Changes.layout_of.

Definition group_is_open (w : world) (g : nat) : bool :=
  existsb (fun l => Nat.eqb (System.group_at (out w) l) g &&
                    match nth_error (lanes w) l with Some x => open x | None => false end)
    (seq 0 (length (lanes w))).

(* What the machine states about itself [17]; [ds] are the ready digests, by lane, and [s] the span:
   any, since the checker only compares them. *)
Definition facts_of (ds : nat -> N) (s : span) (w : world) : facts :=
  {| a_wave := Z.to_N (System.w_wave w); a_span := s;
     a_lanes := map (fun l =>
       let g := System.group_at (out w) l in
       {| f_digest := ds l; f_version := nth l (System.o_versions (out w)) 0%N; f_group := g;
          f_sessions := length (members (layout_of w) g);
          f_work := group_is_open w g |}) (seq 0 (length (lanes w)));
     a_sessions := y_owners (layout_of w) |}.

Theorem a_state_states_its_layout ds s w : states (facts_of ds s w) (layout_of w).
Proof.
  split; [reflexivity|]. intros l a H. apply nth_map_seq in H. destruct H as [Hl ->]. cbn.
  split; [apply nth_map_seq; auto|]. split; [apply nth_map_seq; auto|]. reflexivity.
Qed.

(* What a worker sees on a lane: the sessions that were granted to the claim that has the lane. *)
Definition granted_view (k : checker) (t : certificate) (l i : nat) : bool :=
  existsb (fun m => lane_in (m_lanes m) l && Waves.has (Waves.granted_sessions k m) i) (t_claims t).

(* An accepted certificate, whoever wrote it, any number of workers, each seeing what was granted to
   its claim, any interleaving of the claims: the canonical state with the canonical log. *)
Theorem certified_wave_is_canonical ns ds s t k k' sched (w : world) :
  phase w = System.InWave 0 ->
  checked (length (lanes w)) ns k (layout_of w) ->
  check t (facts_of ds s w) k = (k', None) ->
  let r := parallel_wave (granted_view k' t) (map m_lanes (t_claims t)) sched w in
  complete r -> exists j, run j w = end_wave (snd r).
Proof.
  intros Hp Hk H r Hc. set (nl := length (lanes w)) in *. set (o := out w).
  assert (S := a_state_states_its_layout ds s w).
  assert (Gr := accepted_grants_are_the_machine's _ _ _ _ _ _ _ Hk S H).
  destruct (checked_checker_is_honest _ _ _ _ Hk) as (I & _ & L).
  assert (A := check_sound _ _ _ _ I H). destruct A as [_ _ AN AL AC _ _ _ _ AG AR].
  assert (L' : length (k_accepted k') = nl).
  { assert (X := check_length t (facts_of ds s w) k). rewrite H in X. cbn [fst] in X. lia. }
  assert (Hgroup : forall m l, In m (t_claims t) -> In l (m_lanes m) ->
     System.group_at o l = first_lane m).
  { intros m l Hm Hl. destruct (AC m Hm) as (_ & C2 & _). destruct (C2 l Hl) as (a & Ha & _).
    assert (Hg := AG m l a Hm Hl Ha). apply nth_map_seq in Ha. destruct Ha as [_ ->]. auto. }
  assert (Hgrant : forall m i, In m (t_claims t) -> i < length (sessions w) ->
     (In i (Waves.granted_sessions k' m) <-> System.owner_at o i = first_lane m)).
  { intros m i Hm Hi. destruct (Gr m Hm) as (v & x & G & Hx). unfold Waves.granted_sessions.
    rewrite G, Hx. unfold layout_of. cbn [y_owners]. rewrite nth_map_seq. split.
    - intros [_ E]. auto.
    - intros E. auto. }
  assert (Hone : forall a b ma mb l, nth_error (t_claims t) a = Some ma ->
     nth_error (t_claims t) b = Some mb -> In l (m_lanes ma) -> In l (m_lanes mb) -> a = b).
  { intros a b ma mb l Ha Hb Hla Hlb. eapply (nodup_flat_map_index m_lanes); eauto. }
  assert (Hvis : forall m l i, In m (t_claims t) -> In l (m_lanes m) -> i < length (sessions w) ->
     granted_view k' t l i = sees w l i).
  { intros m l i Hm Hl Hi. unfold granted_view, sees, System.sees. fold o.
    apply eq_true_iff_eq. rewrite existsb_exists, Nat.eqb_eq. split.
    - intros (m' & Hm' & E). apply andb_prop in E. destruct E as [E1 E2].
      apply lane_in_spec in E1. apply Waves.has_spec in E2.
      rewrite (Hgroup m' l); auto. apply Hgrant; auto.
    - intros E. exists m. split; auto. apply andb_true_intro. split; [apply lane_in_spec; auto|].
      apply Waves.has_spec. apply Hgrant; auto. rewrite E. apply Hgroup; auto. }
  apply groups_are_canonical; auto.
  - intros g l i Hg Hl Hi. apply in_map_iff in Hg. destruct Hg as (m & <- & Hm).
    eapply Hvis; eauto.
  - intros a b ga gb Ha Hb Hne p Hpa Hpb. rewrite nth_error_map in Ha, Hb.
    destruct (nth_error (t_claims t) a) as [ma|] eqn:Ea; [|discriminate].
    destruct (nth_error (t_claims t) b) as [mb|] eqn:Eb; [|discriminate].
    cbn in Ha, Hb. injection Ha as <-. injection Hb as <-. apply Hne.
    assert (Ma := nth_error_In _ _ Ea). assert (Mb := nth_error_In _ _ Eb).
    destruct p as [l|i]; cbn in Hpa, Hpb.
    + apply lane_in_spec in Hpa, Hpb. eauto.
    + (* A session that both see: of both claims' groups. *)
      assert (Hsee : forall c m, nth_error (t_claims t) c = Some m ->
         existsb (fun l => granted_view k' t l i) (m_lanes m) = true ->
         exists v x, granted k' m = Some (v, x) /\ In i (x_sessions x)).
      { intros c m Hm Hx. apply existsb_exists in Hx. destruct Hx as (l & Hl & Hx).
        apply existsb_exists in Hx. destruct Hx as (m' & Hm' & Hx).
        apply andb_prop in Hx. destruct Hx as [Hx1 Hx2].
        apply lane_in_spec in Hx1. apply Waves.has_spec in Hx2.
        apply In_nth_error in Hm'. destruct Hm' as [c' Hc'].
        assert (c = c') by (eapply Hone; eauto). subst.
        assert (m = m') by congruence. subst. unfold Waves.granted_sessions in Hx2.
        destruct (granted k' m') as [[v x]|]; [eauto|destruct Hx2]. }
      destruct (Hsee a ma Ea Hpa) as (va & xa & Ga & Sa).
      destruct (Hsee b mb Eb Hpb) as (vb & xb & Gb & Sb).
      assert (Fa : nth_error (y_owners (layout_of w)) i = Some (first_lane ma)).
      { destruct (Gr ma Ma) as (v & x & G & Hx). rewrite Ga in G. injection G as <- <-.
        apply Hx. auto. }
      assert (Fb : nth_error (y_owners (layout_of w)) i = Some (first_lane mb)).
      { destruct (Gr mb Mb) as (v & x & G & Hx). rewrite Gb in G. injection G as <- <-.
        apply Hx. auto. }
      apply (Hone a b ma mb (first_lane ma)); auto; [apply first_lane_in; auto|].
      replace (first_lane ma) with (first_lane mb) by congruence. apply first_lane_in. auto.
  - intros l x Hx Hnone. unfold idle. apply negb_true_iff.
    assert (Hl : l < nl) by (apply nth_error_Some; unfold nl; congruence).
    set (a := {| f_digest := ds l; f_version := nth l (System.o_versions o) 0%N;
                 f_group := System.group_at o l;
                 f_sessions := length (members (layout_of w) (System.group_at o l));
                 f_work := group_is_open w (System.group_at o l) |}).
    assert (Ha : nth_error (a_lanes (facts_of ds s w)) l = Some a).
    { apply nth_map_seq. split; [fold nl; lia|reflexivity]. }
    destruct (AR l a) as [Hw _]; auto; [lia| |].
    + intros Hin. apply in_flat_map in Hin. destruct Hin as (m & Hm & Hlm).
      apply (Hnone (m_lanes m)); auto. apply in_map. auto.
    + cbn in Hw. destruct (System.l_open x) eqn:E; auto. exfalso.
      assert (X : group_is_open w (System.group_at o l) = true); [|congruence].
      apply existsb_exists. exists l. split; [apply in_seq; fold nl; lia|].
      fold o. rewrite Nat.eqb_refl, Hx. unfold open. rewrite E. auto.
Qed.

(* ---- A whole run ---- *)

(* Rounds of a driver that gets certificates from anywhere: it runs the claimed groups of an
    accepted
   one on its workers, each with what was granted to its claim, or the state's own groups; single
   transitions in canonical order after a refusal and between waves. *)
Inductive certified_round : world * checker -> world * checker -> Prop :=
| certified_accepted w k t ds s k' sched : phase w = System.InWave 0 ->
    let r := parallel_wave (granted_view k' t) (map m_lanes (t_claims t)) sched w in
    check t (facts_of ds s w) k = (k', None) -> complete r ->
    certified_round (w, k) (end_wave (snd r), k')
| certified_own w k t ds s k' sched : phase w = System.InWave 0 ->
    let r := parallel_wave (sees w) (own_groups w) sched w in
    check t (facts_of ds s w) k = (k', None) -> complete r ->
    certified_round (w, k) (end_wave (snd r), k')
| certified_refused w k t ds s k' e :
    check t (facts_of ds s w) k = (k', Some e) -> certified_round (w, k) (w, k')
| certified_tick w k : certified_round (w, k) (snd (tick w), k).

Inductive certified_run (w0 : world) (k0 : checker) : world -> checker -> Prop :=
| certified_run_start : certified_run w0 k0 w0 k0
| certified_run_round w k w' k' : certified_run w0 k0 w k ->
    certified_round (w, k) (w', k') -> certified_run w0 k0 w' k'.

Lemma run_evolves n : forall w : world,
  length (lanes (run n w)) = length (lanes w) /\ evolves (layout_of w) (layout_of (run n w)).
Proof.
  induction n as [|n IH]; intros w; cbn; [split; auto; apply Changes.evolves_refl|].
  destruct (Changes.tick_ticks w) as [T1 _ _ T2 _ _]. destruct (IH (snd (tick w))) as [I1 I2].
  split; [congruence|]. eapply Changes.evolves_trans; eauto.
Qed.

(* Every state of such a run is a canonical state, also when sessions move between waves. *)
Theorem certified_run_is_canonical ns (w0 w : world) k :
  certified_run w0 (new_checker (length (lanes w0)) ns) w k ->
  (exists n, run n w0 = w) /\ checked (length (lanes w)) ns k (layout_of w).
Proof.
  intros H. induction H as [|w k w' k' _ [[n Hn] Hp] Hr].
  - split; [exists 0; auto|constructor].
  - assert (G : exists m, run m w = w').
    { inversion Hr; subst.
      - eapply certified_wave_is_canonical; eauto.
      - eapply own_groups_are_canonical; eauto.
      - exists 0. auto.
      - exists 1. auto. }
    destruct G as [m Hm]. split; [exists (n + m); rewrite run_app, Hn; auto|].
    destruct (run_evolves m w) as [E1 E2]. rewrite Hm in E1, E2. rewrite E1.
    assert (C : checked (length (lanes w)) ns k' (layout_of w)).
    { assert (X : forall t ds s, checked (length (lanes w)) ns
                    (fst (check t (facts_of ds s w) k)) (layout_of w)).
      { intros t ds s. apply checked_check; auto. apply a_state_states_its_layout. }
      clear - Hr Hp X. inversion Hr; subst; auto;
        match goal with E : check _ _ _ = _ |- _ =>
          specialize (X t ds s); rewrite E in X; exact X end. }
    eapply checked_moves; eauto.
Qed.

Lemma run_done n (w : world) o : phase w = System.Done_ o -> run n w = w.
Proof.
  intros H. induction n; cbn; auto. unfold System.tick. rewrite H. exact IHn.
Qed.

(* Two runs that have ended have ended in the same state, whoever wrote the certificates and
   whatever the workers did. *)
Theorem workers_do_not_matter na nb (w0 a b : world) ka kb oa ob :
  certified_run w0 (new_checker (length (lanes w0)) na) a ka -> phase a = System.Done_ oa ->
  certified_run w0 (new_checker (length (lanes w0)) nb) b kb -> phase b = System.Done_ ob -> a = b.
Proof.
  intros Ha Da Hb Db.
  destruct (certified_run_is_canonical _ _ _ _ Ha) as [[n Hn] _].
  destruct (certified_run_is_canonical _ _ _ _ Hb) as [[m Hm] _].
  assert (A : run (n + m) w0 = a) by (rewrite run_app, Hn; eapply run_done; eauto).
  assert (B : run (m + n) w0 = b) by (rewrite run_app, Hm; eapply run_done; eauto).
  rewrite Nat.add_comm in B. congruence.
Qed.

(* ---- Canonical steps ---- *)

(* A canonical round that returns made exactly one step, which is in the log, or the run is over and
   it made none. *)
Theorem round_is_one_step fuel : forall (w w' : world) b, System.round fuel w = Some (b, w') ->
  Changes.steps_of w' = Changes.steps_of w + (if b then 1 else 0) /\
  (b = false -> exists o, phase w' = System.Done_ o).
Proof.
  induction fuel as [|n IH]; intros w w' b H; cbn in H; [discriminate|].
  assert (T := Changes.tick_ticks w).
  destruct (phase w) as [| |turn|o] eqn:Ep.
  4:{ injection H as <- <-. split; [lia|]. intros _. exists o. auto. }
  all: destruct (tick w) as [c w1]; cbn [fst snd] in T; destruct T as [_ _ _ _ _ S];
    destruct c; [injection H as <- <-; split; [lia|discriminate]|];
    apply IH in H; destruct H as [H1 H2]; split; auto; lia.
Qed.

(* A round that does not end the run is the canonical run for some number of transitions. *)
Theorem rounds_are_transitions fuel : forall (w w' : world) b, System.round fuel w = Some (b, w') ->
  exists n, run n w = w'.
Proof.
  induction fuel as [|n IH]; intros w w' b H; cbn in H; [discriminate|].
  assert (D : phase w = phase w) by auto. destruct (phase w) eqn:Ep in H.
  4:{ injection H as _ <-. exists 0. auto. }
  all: destruct (tick w) as [c w1] eqn:Et; destruct c;
    [injection H as _ <-; exists 1; cbn; rewrite Et; auto|];
    apply IH in H; destruct H as [m Hm]; exists (S m); cbn; rewrite Et; auto.
Qed.

Lemma load_is_good c ps cs inputs : Changes.all_good (System.load c ps cs inputs).
Proof.
  unfold System.load. cbv zeta. set (w := System.World _ _ _).
  assert (G : Changes.all_good w).
  { apply Forall_forall. intros x Hx. apply repeat_spec in Hx. subst x. apply Lane.good_new. }
  revert G. apply Changes.kept_good. unfold System.load_credits.
  apply Changes.kept_fold.
  - intros w1 s K. apply Changes.kept_fold; auto. intros w2 k K2.
    destruct (System.c_wiring _); auto. apply Changes.kept_fold; auto. intros w3 i K3.
    apply Changes.kept_on_lane; auto; unfold System.set_credit;
      destruct (System.find_credit _ _); auto.
  - apply Changes.kept_fold; [|apply Changes.kept_refl]. intros w1 s K.
    unfold System.publish_first. cbv zeta.
    match goal with |- context [System.publish ?a ?b ?c ?d] =>
      assert (P := Changes.kept_publish w d a b c K); destruct (System.publish a b c d) end.
    apply Changes.kept_on_session. exact P.
Qed.

(* In every state of every run, on each lane: every live coroutine of the kernel is in exactly one
   place, and charged + overhead + idle = clock. *)
Theorem every_run_is_placed_and_conserved n c ps cs inputs l :
  In l (lanes (run n (System.load c ps cs inputs))) ->
  Lane.Placed (Lane.at_ (System.l_kernel l)) /\ Lane.Conserved (Lane.time (System.l_kernel l)).
Proof.
  assert (G : forall n w, Changes.all_good w -> Changes.all_good (run n w)).
  { clear. induction n as [|n IH]; intros w H; cbn; auto. apply IH.
    apply (Changes.ticked_good _ _ _ (Changes.tick_ticks w)). auto. }
  intros H. assert (A := G n _ (load_is_good c ps cs inputs)).
  unfold Changes.all_good in A. rewrite Forall_forall in A. destruct (A l H). auto.
Qed.
